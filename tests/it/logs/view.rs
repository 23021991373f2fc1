//! A viewer looks at some of a log: windows of what passes a filter, and jumps from one to any other.

use std::ops::RangeInclusive;

use stepward::domain::log::LogStream;
use stepward::logs::{LogFilter, LogLimits, LogLine, LogMarks, LogView, Needle, Streams};

use super::{BUILD, Dice, JOB, LogRoom, lines_of, numbered, record, shown};

const ERRORS: LogFilter<'static> = LogFilter {
    streams: Streams {
        stdout: false,
        stderr: true,
        worker: false,
    },
    needle: None,
    left_out: &[],
};

fn holding(text: &str) -> LogFilter<'_> {
    let needle = Needle {
        bytes: text.as_bytes(),
        ignore_case: false,
    };
    LogFilter {
        needle: Some(needle),
        ..LogFilter::default()
    }
}

impl LogRoom {
    fn view(&self, filter: &LogFilter<'_>, from_line: u64, n: usize) -> LogView {
        (self.logs.view(JOB, BUILD, filter, from_line, n)).unwrap()
    }

    fn marks(&self, filter: &LogFilter<'_>, from_line: u64, every: u64) -> LogMarks {
        (self.logs.marks(JOB, BUILD, filter, from_line, every)).unwrap()
    }
}

fn numbers(lines: &[LogLine]) -> Vec<u64> {
    lines.iter().map(|line| line.n).collect()
}

#[test]
fn without_a_filter_everything_passes() {
    let room = LogRoom::holding(&numbered(1_000));
    let view = room.view(&LogFilter::default(), 501, 3);
    assert_eq!(view.lines, room.range(501, 3).lines);
    assert_eq!((view.total_lines, view.next_line), (1_000, 504));
    let view = room.view(&LogFilter::default(), 0, 1);
    assert_eq!(numbers(&view.lines), [1]);
    let view = room.view(&LogFilter::default(), 999, 400);
    assert_eq!(
        (numbers(&view.lines), view.next_line),
        (vec![999, 1_000], 1_001)
    );
    let view = room.view(&LogFilter::default(), 2_000, 400);
    assert_eq!((view.lines.len(), view.next_line), (0, 2_000));
    assert_eq!(room.view(&LogFilter::default(), 7, 0).next_line, 7);
}

#[test]
fn nothing_is_seen_of_a_log_that_is_not_there() {
    let room = LogRoom::new();
    let view = room.view(&ERRORS, 9, 400);
    assert_eq!((view.lines.len(), view.next_line), (0, 1));
    let marks = room.marks(&ERRORS, 1, 400);
    assert_eq!((marks.total_lines, marks.matching), (0, 0));
    assert_eq!(marks.marks, Vec::<u64>::new());
}

#[test]
fn one_stream_is_seen_alone_with_the_numbers_of_all() {
    let log = [
        record(1, 'w', "begins"),
        record(2, 'o', "one"),
        record(3, 'e', "two"),
        record(4, 'O', "thr"),
        record(5, 'o', "ee"),
        b"noise\n".to_vec(),
        record(6, 'e', "four"),
    ]
    .concat();
    let room = LogRoom::holding(&log);
    let view = room.view(&ERRORS, 1, 9);
    assert_eq!(shown(&view.lines), ["3 stderr: two", "6 stderr: four"]);
    let printed = LogFilter {
        streams: Streams {
            worker: false,
            ..Streams::ALL
        },
        ..LogFilter::default()
    };
    assert_eq!(numbers(&room.view(&printed, 1, 9).lines), [2, 3, 4, 6]);
    let nobody = LogFilter {
        streams: Streams {
            stderr: false,
            ..ERRORS.streams
        },
        ..ERRORS
    };
    assert_eq!(room.view(&nobody, 1, 9).lines, []);
}

#[test]
fn a_text_is_found_as_it_is_seen() {
    let log = [
        record(1, 'o', "\x1b[31mer\x1b[1mror\x1b[0m: disk"),
        record(2, 'o', "\x1b[31mfine\x1b[0m"),
        record(3, 'O', "\x1b[3"),
        record(4, 'o', "1merr\x1b"),
        record(5, 'o', "[0mor"),
        record(6, 'o', "\x1b]0;error\x07a title"),
        record(7, 'o', "\x1b]0;error and no end"),
        record(8, 'o', "\x1b]8;;http://x\x1b\\error\x1b]8;;\x1b\\"),
    ]
    .concat();
    let room = LogRoom::holding(&log);
    assert_eq!(
        numbers(&room.view(&holding("error"), 1, 9).lines),
        [1, 6, 7]
    );
    assert_eq!(room.view(&holding("31"), 1, 9).lines, [], "no colour");
    assert_eq!(room.view(&holding("http"), 1, 9).lines, [], "no link");
    assert_eq!(room.view(&holding(""), 1, 9).lines.len(), 7);
    let seen = &room.view(&holding("error: disk"), 1, 9).lines[0];
    assert_eq!(
        seen.text, b"\x1b[31mer\x1b[1mror\x1b[0m: disk",
        "as printed"
    );
}

#[test]
fn folded_lines_are_not_seen_in_whatever_order_they_are_given() {
    let room = LogRoom::holding(&numbered(20));
    let left_out = [15..=30, 3..=9, 5..=6, 10..=10, 1..=1];
    let filter = LogFilter {
        left_out: &left_out,
        ..LogFilter::default()
    };
    assert_eq!(
        numbers(&room.view(&filter, 1, 9).lines),
        [2, 11, 12, 13, 14]
    );
    assert_eq!(numbers(&room.view(&filter, 5, 2).lines), [11, 12]);
    assert_eq!(room.view(&filter, 1, 9).next_line, 21);
    let backwards = RangeInclusive::new(9, 3);
    let filter = LogFilter {
        left_out: &[backwards, 0..=u64::MAX],
        ..LogFilter::default()
    };
    assert_eq!(room.view(&filter, 1, 9).lines, []);
}

/// A window that is full is the beginning of another; one that is not is the end.
#[test]
fn windows_follow_each_other() {
    let room = LogRoom::holding(&numbered(10_000));
    let filter = holding("77");
    let mut seen = Vec::new();
    let mut from = 1;
    while from <= 10_000 {
        let view = room.view(&filter, from, 30);
        seen.extend(numbers(&view.lines));
        from = view.next_line;
    }
    assert_eq!(seen.len(), 280);
    assert!(seen.is_sorted());
    assert_eq!((seen[0], seen[279]), (77, 9_977));
}

#[test]
fn marks_say_where_each_window_begins() {
    let room = LogRoom::holding(&numbered(10_000));
    let filter = holding("77");
    let marks = room.marks(&filter, 1, 100);
    assert_eq!((marks.total_lines, marks.matching), (10_000, 280));
    assert_eq!(marks.every, 100);
    assert_eq!(marks.marks.len(), 3);
    let windows: Vec<Vec<u64>> = (marks.marks.iter())
        .map(|from| numbers(&room.view(&filter, *from, 100).lines))
        .collect();
    assert_eq!((windows[0].len(), windows[2].len()), (100, 80));
    let all = numbers(&room.view(&filter, 1, 1_000).lines);
    assert_eq!(windows.concat(), all);

    // Of a log that grows, only what is new has to be read.
    let rest = room.marks(&filter, marks.marks[2], 100);
    assert_eq!((rest.matching, rest.marks), (80, vec![marks.marks[2]]));
    assert_eq!(room.marks(&filter, 20_000, 100).matching, 0);
}

#[test]
fn there_are_never_more_marks_than_a_viewer_can_hold() {
    let room = LogRoom::holding(&numbered(70_001));
    let marks = room.marks(&LogFilter::default(), 1, 0);
    assert_eq!((marks.matching, marks.every), (70_001, 8));
    assert_eq!(marks.marks.len(), 8_751);
    assert!((0..).zip(&marks.marks).all(|(k, n)| *n == 1 + 8 * k));
}

#[test]
fn a_line_that_grows_is_looked_at_again() {
    let room = LogRoom::holding(&[numbered(3), record(4, 'O', "nee")].concat());
    let view = room.view(&holding("needle"), 1, 9);
    assert_eq!((view.lines.len(), view.partial), (0, false));
    assert_eq!(view.next_line, 4);
    room.send(&record(5, 'O', "dle"));
    let view = room.view(&holding("needle"), view.next_line, 1);
    assert_eq!(shown(&view.lines), ["4 stdout: needle"]);
    assert_eq!((view.partial, view.next_line), (true, 4));
    room.send(&record(6, 'o', "s"));
    let view = room.view(&holding("needle"), view.next_line, 1);
    assert_eq!(shown(&view.lines), ["4 stdout: needles"]);
    assert_eq!((view.partial, view.next_line), (false, 5));
}

#[test]
fn a_window_is_bounded_as_any_page_is() {
    let line = |n: i64| record(n, 'e', vec![b'x'; 400 << 10]);
    let room = LogRoom::holding(&(1..=30).flat_map(line).collect::<Vec<_>>());
    let view = room.view(&ERRORS, 4, 400);
    assert_eq!((numbers(&view.lines), view.next_line), (vec![4, 5], 6));
    assert!(!view.shortened);
    let room = LogRoom::holding(&record(1, 'e', vec![b'x'; 2 << 20]));
    let view = room.view(&ERRORS, 1, 400);
    assert!(view.shortened && view.lines[0].text.len() < (1 << 20) + 100);
    let room = LogRoom::holding(&numbered(3_000));
    let view = room.view(&LogFilter::default(), 1, 3_000);
    assert_eq!((view.lines.len(), view.next_line), (1_000, 1_001));
}

#[test]
fn a_window_costs_what_it_shows_and_what_is_folded_costs_nothing() {
    let room = LogRoom::new();
    for piece in numbered(500_000).chunks(4 << 20) {
        room.send(piece);
    }
    let cost = |of: &dyn Fn()| {
        let before = room.logs.bytes_read();
        of();
        room.logs.bytes_read() - before
    };
    let near = cost(&|| assert_eq!(room.view(&holding("7"), 400_000, 100).lines.len(), 100));
    assert!(near < 200_000, "{near}");
    let filter = LogFilter {
        left_out: &[2..=499_998],
        ..holding("line")
    };
    let ends = [1, 499_999, 500_000];
    let folded = cost(&|| assert_eq!(numbers(&room.view(&filter, 1, 400).lines), ends));
    assert!(folded < 300_000, "{folded}");
    let folded = cost(&|| assert_eq!(room.marks(&filter, 1, 400).matching, 3));
    assert!(folded < 300_000, "{folded}");
}

/// Whatever the log and the filter: what a plain reading of all of it lets pass.
#[test]
fn a_view_is_what_a_plain_reading_lets_pass() {
    let limits = LogLimits {
        lines_max: 30,
        ..LogLimits::default()
    };
    for seed in 0..25 {
        let mut dice = Dice(seed);
        let log = dice.log(200_000);
        let room = LogRoom::with(limits);
        room.send(&log);
        let lines = lines_of(&log);
        let count = lines.len() as u64;
        for _ in 0..6 {
            let needle: Vec<u8> = (0..dice.roll(4))
                .map(|_| b"abcAB "[dice.roll(6) as usize])
                .collect();
            let ignore_case = dice.roll(2) == 0;
            let mut some = || dice.roll(3) > 0;
            let streams = Streams {
                stdout: some(),
                stderr: some(),
                worker: some(),
            };
            let left_out: Vec<RangeInclusive<u64>> = (0..dice.roll(5))
                .map(|_| {
                    let first = dice.roll(count + 2);
                    first..=first + dice.roll(count / 3 + 1)
                })
                .collect();
            let filter = LogFilter {
                streams,
                needle: Some(Needle {
                    bytes: &needle,
                    ignore_case,
                }),
                left_out: &left_out,
            };
            let fold = |bytes: &[u8]| match ignore_case {
                true => bytes.to_ascii_lowercase(),
                false => bytes.to_vec(),
            };
            let holds = |text: &[u8]| {
                let (text, sought) = (fold(text), fold(&needle));
                sought.is_empty() || text.windows(sought.len()).any(|part| part == sought)
            };
            let is_shown = |stream: LogStream| match stream {
                LogStream::Stdout => streams.stdout,
                LogStream::Stderr => streams.stderr,
                LogStream::Worker => streams.worker,
            };
            let from = dice.roll(count + 2);
            let passing: Vec<&LogLine> = (lines.iter())
                .filter(|line| line.n >= from && is_shown(line.stream) && holds(&line.text))
                .filter(|line| !left_out.iter().any(|lines| lines.contains(&line.n)))
                .collect();
            let n = dice.roll(50) as usize;
            let view = room.view(&filter, from, n);
            assert!(view.lines.len() <= n.min(30));
            let same = |(seen, line): (&LogLine, &&LogLine)| seen == *line;
            assert!(view.lines.iter().zip(&passing).all(same), "seed {seed}");
            let next = passing.get(view.lines.len()).map(|line| line.n);
            match view.lines.len() == n.min(30) {
                true => assert!(next.is_none_or(|next| next >= view.next_line)),
                false => assert!(next.is_none() || !view.lines.is_empty()),
            }

            let marks = room.marks(&filter, from, 7);
            assert_eq!(marks.matching, passing.len() as u64, "seed {seed}");
            let expected: Vec<u64> = passing.iter().step_by(7).map(|line| line.n).collect();
            assert_eq!(marks.marks, expected);
        }
    }
}
