//! What is shown of a log: pages of lines, bounded whatever the log holds.

use std::io::Read;

use stepward::domain::Timestamp;
use stepward::domain::log::LogStream;
use stepward::logs::{LogLimits, LogLine, LogPage};

use super::{Dice, LogRoom, lines_of, numbered, record, shown};

#[test]
fn a_log_that_does_not_exist_reads_as_empty() {
    let room = LogRoom::new();
    assert_eq!(room.tail(10), LogPage::default());
    assert_eq!(room.range(1, 10), LogPage::default());
    assert_eq!(room.text(), b"");
    assert_eq!(room.length(), 0);
    assert!(!room.path().join("7").exists(), "reading makes no file");
    // It may come later.
    room.send(&numbered(1));
    assert_eq!(room.tail(10).total_lines, 1);
}

#[test]
fn a_page_begins_where_it_is_asked_to() {
    let room = LogRoom::holding(&numbered(10));
    let numbers = |page: LogPage| {
        assert_eq!((page.total_lines, page.truncated), (10, false));
        page.lines.iter().map(|line| line.n).collect::<Vec<_>>()
    };
    assert_eq!(numbers(room.tail(3)), [8, 9, 10]);
    assert_eq!(numbers(room.tail(100)), (1..=10).collect::<Vec<_>>());
    let none: [u64; 0] = [];
    assert_eq!(numbers(room.tail(0)), none);
    assert_eq!(numbers(room.range(1, 2)), [1, 2]);
    assert_eq!(numbers(room.range(0, 2)), [1, 2]);
    assert_eq!(numbers(room.range(9, 100)), [9, 10]);
    assert_eq!(numbers(room.range(10, 1)), [10]);
    assert_eq!(numbers(room.range(11, 5)), none);
    assert_eq!(numbers(room.range(u64::MAX, usize::MAX)), none);
    assert_eq!(numbers(room.range(5, 0)), none);
}

#[test]
fn a_line_has_its_time_and_its_stream() {
    let log = [record(1_763_312_345_678, 'e', "oh"), b"noise\n".to_vec()].concat();
    let expected = [
        LogLine {
            n: 1,
            at: Some(Timestamp(1_763_312_345_678)),
            stream: LogStream::Stderr,
            text: b"oh".to_vec(),
        },
        LogLine {
            n: 2,
            at: None,
            stream: LogStream::Worker,
            text: b"noise".to_vec(),
        },
    ];
    assert_eq!(LogRoom::holding(&log).tail(9).lines, expected);
}

#[test]
fn a_line_in_pieces_is_one_line_unless_another_stream_comes_between() {
    let log = [
        record(1, 'O', "one "),
        record(2, 'O', "line, "),
        record(3, 'o', "three pieces"),
        record(4, 'o', "the next"),
        record(5, 'O', "half of "),
        record(6, 'e', "an error comes between"),
        record(7, 'o', "it"),
        record(8, 'E', "both "),
        record(9, 'W', "go on"),
        record(10, 'E', "with others"),
        b"noise\n".to_vec(),
        record(11, 'e', "after noise"),
        record(12, 'O', "still going"),
    ]
    .concat();
    let room = LogRoom::holding(&log);
    let expected = [
        "1 stdout: one line, three pieces",
        "2 stdout: the next",
        "3 stdout: half of ",
        "4 stderr: an error comes between",
        "5 stdout: it",
        "6 stderr: both ",
        "7 worker: go on",
        "8 stderr: with others",
        "9 worker: noise",
        "10 stderr: after noise",
        "11 stdout: still going",
    ];
    assert_eq!(shown(&room.tail(99).lines), expected);
    assert_eq!(room.tail(99).lines[0].at, Some(Timestamp(1)));

    room.send(&record(13, 'o', ", and done"));
    let page = room.tail(1);
    assert_eq!(page.total_lines, 11);
    assert_eq!(shown(&page.lines), ["11 stdout: still going, and done"]);
}

#[test]
fn a_record_is_shown_once_it_is_whole() {
    let room = LogRoom::holding(b"1 o one\n1763312345678 o a very long beginn");
    assert_eq!(shown(&room.tail(9).lines), ["1 stdout: one"]);
    assert_eq!(room.tail(9).total_lines, 1);
    assert_eq!(room.text(), b"one\n");
    room.send(b"ing\n");
    assert_eq!(
        shown(&room.tail(9).lines),
        ["1 stdout: one", "2 stdout: a very long beginning"]
    );
}

#[test]
fn any_bytes_survive() {
    let every: Vec<u8> = (0..=255).filter(|byte| *byte != b'\n').collect();
    let room = LogRoom::holding(&record(1, 'o', &every));
    assert_eq!(room.tail(1).lines[0].text, every);
    assert_eq!(room.text(), [&every[..], b"\n"].concat());
}

#[test]
fn a_page_has_no_more_lines_than_fit_and_says_so() {
    let room = LogRoom::holding(&numbered(3_000));
    let page = room.tail(2_000);
    assert_eq!((page.lines.len(), page.truncated), (1_000, true));
    assert_eq!(page.lines[0].n, 2_001);
    let page = room.range(1_500, 1_001);
    assert_eq!((page.lines.len(), page.truncated), (1_000, true));
    assert_eq!(page.lines[0].n, 1_500);
    let page = room.range(2_001, 5_000);
    assert_eq!((page.lines.len(), page.truncated), (1_000, false));
}

#[test]
fn a_page_has_no_more_text_than_fits_and_says_so() {
    let line = |n: i64| record(n, 'o', vec![b'x'; 400 << 10]);
    let room = LogRoom::holding(&(1..=30).flat_map(line).collect::<Vec<_>>());
    let numbers = |page: LogPage| {
        assert!(page.truncated);
        page.lines.iter().map(|line| line.n).collect::<Vec<_>>()
    };
    assert_eq!(numbers(room.range(4, 10)), [4, 5]);
    assert_eq!(numbers(room.tail(10)), [29, 30]);
    assert!(!room.range(4, 2).truncated);
    assert!(!room.tail(2).truncated);
}

#[test]
fn of_a_line_that_is_too_long_the_first_part_is_shown() {
    let limits = LogLimits {
        line_bytes_max: 10,
        ..LogLimits::default()
    };
    let room = LogRoom::with(limits);
    room.send(&record(1, 'o', "0123456789"));
    assert!(!room.tail(1).truncated);
    room.send(&record(2, 'O', "01234"));
    room.send(&record(3, 'o', "56789ab"));
    room.send(&record(4, 'o', "01234567ü9"));
    room.send(&record(5, 'o', "012345678ü"));
    room.send(&record(6, 'o', "0123456\u{20ac}9"));
    room.send(&record(7, 'o', "0123456\u{1f600}"));
    room.send(&record(8, 'o', "short"));
    let page = room.tail(9);
    let expected = [
        "1 stdout: 0123456789",
        "2 stdout: 0123456789 … [2 more bytes]",
        "3 stdout: 01234567ü … [1 more bytes]",
        "4 stdout: 012345678 … [2 more bytes]",
        "5 stdout: 0123456\u{20ac} … [1 more bytes]",
        "6 stdout: 0123456 … [4 more bytes]",
        "7 stdout: short",
    ];
    assert_eq!(shown(&page.lines), expected);
    assert!(page.truncated);
}

#[test]
fn a_line_of_a_hundred_megabytes_is_nobodys_memory() {
    let limits = LogLimits {
        attempt_bytes_max: 1 << 30,
        ..LogLimits::default()
    };
    let room = LogRoom::with(limits);
    room.send(b"1 o before\n2 o ");
    let piece = vec![b'x'; 4 << 20];
    for _ in 0..25 {
        room.send(&piece);
    }
    room.send(b"\n3 o after\n");
    let before = room.logs.bytes_read();
    assert_eq!(shown(&room.range(3, 9).lines), ["3 stdout: after"]);
    let cost = room.logs.bytes_read() - before;
    assert!(cost < 1_000, "the line before is not read: {cost} bytes");

    for page in [room.range(1, 9), room.tail(9)] {
        assert!(page.truncated);
        let bytes: usize = page.lines.iter().map(|line| line.text.len()).sum();
        assert!(bytes < (1 << 20) + 100, "{bytes}");
    }
    let page = room.range(2, 1);
    assert!(page.lines[0].text.starts_with(&[b'x'; 1 << 20]));
    assert!(
        page.lines[0]
            .text
            .ends_with(" … [103809024 more bytes]".as_bytes())
    );

    let mut text = room.logs.text(super::JOB, super::BUILD).unwrap();
    let copied = std::io::copy(&mut text, &mut std::io::sink()).unwrap();
    assert_eq!(copied, 25 * (4 << 20) + "before\n\nafter\n".len() as u64);
}

#[test]
fn the_text_of_a_log_is_its_lines_and_nothing_else() {
    let log = [
        record(1, 'O', "one "),
        record(2, 'o', "line"),
        record(3, 'o', ""),
        b"noise\n".to_vec(),
        record(4, 'E', "open end"),
    ]
    .concat();
    let room = LogRoom::holding(&log);
    assert_eq!(room.text(), b"one line\n\nnoise\nopen end\n");
    let mut reader = room.logs.text(super::JOB, super::BUILD).unwrap();
    room.send(&record(5, 'o', "too late for this download"));
    let mut text = Vec::new();
    let mut byte = [0];
    while reader.read(&mut byte).unwrap() == 1 {
        text.push(byte[0]);
    }
    assert_eq!(text, b"one line\n\nnoise\nopen end\n");
}

/// Any page of any log is a piece of what a plain reading of the whole log gives.
#[test]
fn every_page_is_a_piece_of_the_whole() {
    let limits = LogLimits {
        lines_max: 40,
        page_bytes_max: 8_000,
        ..LogLimits::default()
    };
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let bytes_about = [10, 2_000, 150_000, 400_000][dice.roll(4) as usize];
        let mut log = dice.log(bytes_about);
        log.truncate(log.len() - dice.roll(20).min(log.len() as u64) as usize);
        let room = LogRoom::with(limits);
        for piece in log.chunks(1 + dice.roll(100_000) as usize) {
            room.send(piece);
        }
        let lines = lines_of(&log);
        let text: Vec<u8> = lines
            .iter()
            .flat_map(|line| [&line.text[..], b"\n"].concat())
            .collect();
        assert!(room.text() == text, "seed {seed}");
        for _ in 0..20 {
            let n = dice.roll(60) as usize;
            let from = dice.roll(lines.len() as u64 + 3);
            let first = (from.max(1) as usize - 1).min(lines.len());
            let asked = &lines[first..lines.len().min(first + n)];
            let page = room.range(from, n);
            assert!(asked.starts_with(&page.lines), "seed {seed}: {from} {n}");
            check(&page, asked, lines.len(), &limits);

            let asked = &lines[lines.len().saturating_sub(n)..];
            let page = room.tail(n);
            assert!(asked.ends_with(&page.lines), "seed {seed}: tail {n}");
            check(&page, asked, lines.len(), &limits);
        }
    }
}

/// It is within its bounds, and as large as they allow.
fn check(page: &LogPage, asked: &[LogLine], total_lines: usize, limits: &LogLimits) {
    let bytes = |lines: &[LogLine]| lines.iter().map(|line| line.text.len()).sum::<usize>();
    // Of bytes that are no text, an answer makes up to six each.
    let bytes_at_most = |lines: &[LogLine]| 6 * bytes(lines) + 80 * lines.len();
    assert_eq!(page.total_lines, total_lines as u64);
    assert_eq!(page.truncated, page.lines.len() < asked.len());
    assert!(page.lines.len() <= limits.lines_max);
    assert!(page.lines.len() <= 1 || bytes(&page.lines) <= limits.page_bytes_max);
    assert_eq!(page.lines.is_empty(), asked.is_empty());
    let small = bytes_at_most(asked) <= limits.page_bytes_max && asked.len() <= limits.lines_max;
    assert!(!small || !page.truncated);
}
