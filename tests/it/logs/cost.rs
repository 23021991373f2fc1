//! What reading costs: the first line, the last, and any in between are equally near.

use stepward::logs::Needle;

use super::{BUILD, JOB, LogRoom, numbered};

const LINES: u64 = 1_000_000;

/// From a mark to the line, the lines themselves, and the rest of the block in which they end.
const PAGE_BYTES_MAX: u64 = 200_000;

#[test]
fn any_page_of_a_million_lines_costs_the_same_few_bytes() {
    let mut room = LogRoom::new();
    let log = numbered(LINES);
    for piece in log.chunks(4 << 20) {
        room.send(piece);
    }
    let check_pages = |room: &LogRoom| {
        for from in [1, 900_000, LINES / 2, LINES - 399] {
            let before = room.logs.bytes_read();
            let page = room.range(from, 400);
            let cost = room.logs.bytes_read() - before;
            assert!(cost < PAGE_BYTES_MAX, "400 lines from {from}: {cost} bytes");
            assert_eq!((page.lines.len(), page.total_lines), (400, LINES));
            for (n, line) in (from..).zip(&page.lines) {
                assert_eq!(line.text, format!("line {n}").into_bytes());
            }
        }
        let before = room.logs.bytes_read();
        let page = room.tail(400);
        let cost = room.logs.bytes_read() - before;
        assert!(cost < PAGE_BYTES_MAX, "the last 400 lines: {cost} bytes");
        assert_eq!(page.lines[0].n, LINES - 399);
    };
    check_pages(&room);

    // Opening it again believes the index, as far as it can be checked, and reads what comes after it.
    room.restart();
    room.length();
    let cost = room.logs.bytes_read();
    assert!(cost < 200_000, "opening: {cost} bytes");
    check_pages(&room);

    let before = room.logs.bytes_read();
    let needle = Needle {
        bytes: b"99",
        ignore_case: false,
    };
    let found = room.logs.search(JOB, BUILD, needle, 1, 10).unwrap();
    assert_eq!(room.logs.bytes_read() - before, log.len() as u64);
    assert_eq!(found.total_matches, 45_739);
}

#[test]
fn an_append_reads_next_to_nothing() {
    let room = LogRoom::new();
    for piece in numbered(100_000).chunks(10_000) {
        room.send(piece);
    }
    let marks = std::fs::metadata(room.file("idx")).unwrap().len() / 24;
    assert!(marks > 10);
    assert_eq!(room.logs.bytes_read(), marks * 64, "for their seals");
}

#[test]
fn the_end_of_a_log_of_long_lines_is_as_near() {
    let room = LogRoom::new();
    let line = super::record(1, 'o', vec![b'x'; 60_000]);
    for _ in 0..40 {
        room.send(&line.repeat(20));
    }
    let before = room.logs.bytes_read();
    let page = room.tail(400);
    let cost = room.logs.bytes_read() - before;
    assert_eq!((page.lines.len(), page.truncated), (17, true));
    assert!(cost < 2_500_000, "{cost} of 48,000,000 bytes");
}
