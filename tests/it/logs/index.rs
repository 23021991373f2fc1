//! The index of a log is an aid: lost, torn, stale or a lie, nobody sees a difference.

use std::path::Path;

use super::{BUILD, Dice, JOB, LogRoom, lines_of, numbered, record, shown};

/// A log of about half a megabyte: several marks, with lines of all kinds between them.
fn room_with_log() -> (LogRoom, Vec<u8>) {
    let log = Dice(4).log(600_000);
    let room = LogRoom::holding(&log);
    (room, log)
}

/// Damages the index between two lives of the server; afterwards all is as it was, the index too.
fn survives(what: &str, damage: impl Fn(&Path, &[u8])) {
    let (mut room, log) = room_with_log();
    let index = std::fs::read(room.file("idx")).unwrap();
    assert!(index.len() >= 4 * 24, "{} marks", index.len() / 24);
    damage(&room.file("idx"), &index);
    room.restart();
    assert_eq!(room.seen(), lines_of(&log), "{what}");
    assert!(room.bytes() == log, "{what}");
    let mended = std::fs::read(room.file("idx")).unwrap();
    assert!(mended.starts_with(&index), "{what}");
    room.send(&numbered(10_000));
    let grown = std::fs::read(room.file("idx")).unwrap();
    assert!(grown.starts_with(&index) && grown.len() > index.len());
    room.restart();
    assert_eq!(room.seen(), lines_of(&room.bytes()), "{what}");
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn an_index_that_is_lost_is_made_again() {
    survives("lost", |path, _| std::fs::remove_file(path).unwrap());
    survives("empty", |path, _| write(path, b""));
}

#[test]
fn an_index_that_is_torn_is_made_good() {
    for missing in [1, 8, 23, 24, 25, 48, 60] {
        survives(&format!("{missing} bytes short"), |path, index| {
            write(path, &index[..index.len() - missing]);
        });
    }
}

#[test]
fn an_index_that_is_garbage_is_not_believed() {
    survives("zeros", |path, index| write(path, &vec![0; index.len()]));
    survives("ones", |path, index| write(path, &vec![255; index.len()]));
    survives("noise", |path, _| write(path, &Dice(1).log(5_000)));
    survives("huge", |path, _| {
        let file = std::fs::File::create(path).unwrap();
        file.set_len(1 << 40).unwrap();
    });
    for byte in [0, 7, 8, 15, 16, 23, 24, 40, 50, 72] {
        survives(&format!("byte {byte} is wrong"), |path, index| {
            let mut index = index.to_vec();
            index[byte] ^= 1;
            write(path, &index);
        });
    }
}

#[test]
fn the_marks_of_another_log_are_not_believed() {
    survives("another log", |path, _| {
        let mut other = LogRoom::holding(&Dice(5).log(600_000));
        other.restart();
        std::fs::copy(other.file("idx"), path).unwrap();
    });
    // The same bytes, another attempt: nearly right is wrong too.
    let (room, log) = room_with_log();
    let mut second = BUILD;
    second.attempt = 2;
    room.logs.append(JOB, second, 0, &log).unwrap();
    let other = std::fs::read(room.path().join("7/42.2.idx")).unwrap();
    let own = std::fs::read(room.file("idx")).unwrap();
    assert!(other.len() == own.len() && other != own);
}

#[test]
fn an_index_that_cannot_be_opened_or_written_is_done_without() {
    let (mut room, log) = room_with_log();
    std::fs::remove_file(room.file("idx")).unwrap();
    std::fs::create_dir(room.file("idx")).unwrap();
    room.restart();
    assert_eq!(room.seen(), lines_of(&log));
    room.send(&numbered(10_000));
    assert_eq!(room.seen(), lines_of(&room.bytes()));
}

/// A power cut leaves less of the log than of the index. The worker is told so, and sends the rest again.
#[test]
fn an_index_that_knows_more_than_the_log_is_cut() {
    let (_, log) = room_with_log();
    let mut dice = Dice(9);
    let mut cuts: Vec<usize> = (0..15)
        .map(|_| dice.roll(log.len() as u64) as usize)
        .collect();
    cuts.extend([0, 1, log.len() - 1]);
    for cut in cuts {
        let (mut room, log) = room_with_log();
        let index = std::fs::read(room.file("idx")).unwrap();
        write(&room.file("log"), &log[..cut]);
        room.restart();
        let whole = log[..cut].iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |newline| newline + 1);
        assert_eq!(room.length(), whole as u64);
        assert_eq!(room.seen(), lines_of(&log[..cut]), "cut at {cut}");
        room.send(&log[whole..]);
        assert_eq!(room.seen(), lines_of(&log), "cut at {cut}");
        assert_eq!(std::fs::read(room.file("idx")).unwrap(), index);
    }
}

#[test]
fn a_log_that_grew_differently_after_a_power_cut_is_read_as_it_is() {
    let (mut room, log) = room_with_log();
    let other = [&log[..200_000], &numbered(20_000)].concat();
    write(&room.file("log"), &other);
    room.restart();
    assert_eq!(room.seen(), lines_of(&other));
}

/// A disk may give back zeros where the last bytes were.
#[test]
fn a_log_that_lost_its_middle_is_read_as_it_is() {
    let (mut room, mut log) = room_with_log();
    log[150_000..350_000].fill(0);
    write(&room.file("log"), &log);
    room.restart();
    let expected = lines_of(&log);
    // Marks beyond the hole were right before, and must not be used now.
    assert_eq!(room.tail(1).lines, expected[expected.len() - 1..]);
    assert_eq!(room.seen(), expected);
}

#[test]
fn a_write_that_was_torn_by_a_crash_is_completed() {
    let mut room = LogRoom::holding(&record(1, 'o', "one"));
    write(&room.file("log"), b"1 o one\n2 o tw");
    room.restart();
    assert_eq!(shown(&room.tail(9).lines), ["1 stdout: one"]);
    assert_eq!(room.append(8, b"2 o two\n3 o three\n").unwrap(), 26);
    assert_eq!(
        shown(&room.tail(9).lines),
        ["1 stdout: one", "2 stdout: two", "3 stdout: three"]
    );
}

#[test]
fn a_short_log_needs_no_index() {
    let room = LogRoom::holding(&numbered(100));
    assert!(!room.file("idx").exists());
    assert_eq!(room.tail(1).total_lines, 100);
}
