//! After a power cut: the end of a log is missing, torn, or zeros. Whoever goes on with it is told, and so is whoever reads it.

use stepward::logs::AppendError;

use super::{LogRoom, numbered, record, shown};

/// The next life finds this in place of what the worker has sent.
fn room_that_finds(sent: &[u8], found: &[u8]) -> LogRoom {
    let mut room = LogRoom::holding(sent);
    std::fs::write(room.file("log"), found).unwrap();
    room.restart();
    room
}

/// A worker that was told that all of it had arrived, and prints more.
fn goes_on(room: &LogRoom, sent: &[u8], whole: usize) {
    let more = record(9, 'o', "more");
    let gap = room.append(sent.len() as u64, &more).unwrap_err();
    let AppendError::Gap { length } = gap else {
        panic!("{gap}");
    };
    assert_eq!(length, whole as u64);
    let all = [sent, &more].concat();
    room.append(length, &all[whole..]).unwrap();
    assert!(room.bytes() == all);
}

#[test]
fn zeros_at_the_end_are_sent_again() {
    let sent = numbered(500);
    for kept in [0, 1, 5_000, sent.len() - 1] {
        let mut found = sent.clone();
        found[kept..].fill(0);
        let whole = found.iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |newline| newline + 1);
        goes_on(&room_that_finds(&sent, &found), &sent, whole);
        // A worker of a new life begins at the beginning, and is not told that it lies.
        let room = room_that_finds(&sent, &found);
        assert_eq!(room.append(0, &sent).unwrap(), sent.len() as u64);
        assert!(room.bytes() == sent);
    }
}

#[test]
fn many_zeros_at_the_end_are_sent_again() {
    let sent = numbered(50_000);
    let mut found = sent.clone();
    found[200_000..].fill(0);
    let room = room_that_finds(&sent, &found);
    room.tail(1);
    let whole = found.iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    goes_on(&room, &sent, whole);
    assert_eq!(room.tail(1).total_lines, 50_001);
}

#[test]
fn a_record_that_is_torn_is_sent_again() {
    let sent = [record(1, 'o', "one"), record(2, 'o', "two")].concat();
    let mut found = sent[..12].to_vec();
    found.extend_from_slice(b"\xff\xfe\xfd");
    goes_on(&room_that_finds(&sent, &found), &sent, 8);
}

/// What came later reached the disk, what came before did not.
#[test]
fn a_hole_is_sent_again_with_all_that_follows_it() {
    let sent = numbered(1_000);
    let mut found = sent.clone();
    found[5_000..8_192].fill(0);
    let whole = found[..5_000].iter().rposition(|byte| *byte == b'\n');
    goes_on(&room_that_finds(&sent, &found), &sent, whole.unwrap() + 1);
}

#[test]
fn zeros_that_a_step_prints_are_no_hole() {
    let zeros = record(1, 'o', vec![0; 1_000]);
    let sent = [zeros.clone(), zeros, numbered(10)].concat();
    let mut room = LogRoom::holding(&sent);
    room.restart();
    room.send(&record(2, 'o', "more"));
    assert!(room.bytes().starts_with(&sent));
    assert_eq!(room.tail(0).total_lines, 13);
}

/// The worker may have removed its own: then nobody sends it again, and nobody is to believe that this was all.
#[test]
fn an_end_that_was_lost_is_told_until_it_is_sent_again() {
    let sent = numbered(3);
    let mut found = sent.clone();
    found[30..].fill(0);
    let mut room = room_that_finds(&sent, &found);
    let told = "2 worker: [the last 46 bytes of this log were lost when the server's machine stopped; \
                a worker that still has them sends them again]";
    for _ in 0..2 {
        let page = room.tail(9);
        assert_eq!(shown(&page.lines), ["1 stdout: line 1", told]);
        assert_eq!((page.total_lines, page.truncated), (2, false));
        assert_eq!(shown(&room.range(2, 1).lines), [told]);
        let text = room.text();
        assert!(text.starts_with(b"line 1\n[the last 46") && text.ends_with(b"again]\n"));
        assert!(room.bytes() == found, "reading changes nothing");
        room.restart();
    }
    room.append(0, &sent).unwrap();
    assert_eq!(
        shown(&room.tail(9).lines),
        ["1 stdout: line 1", "2 stdout: line 2", "3 stdout: line 3"]
    );
}

#[test]
fn a_piece_that_ends_in_zeros_is_not_lost() {
    let room = LogRoom::holding(b"1 o one\n2 o \0\0");
    assert_eq!(shown(&room.tail(9).lines), ["1 stdout: one"]);
    room.send(b"\n");
    assert_eq!(room.tail(9).total_lines, 2);
}
