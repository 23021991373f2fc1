//! From match to match, in both directions, and which of how many it is.

use stepward::logs::{LogFilter, LogMatch, MatchFound, Needle, Streams};

use super::{BUILD, JOB, LogRoom, numbered, record};

impl LogRoom {
    fn after(&self, text: &str, filter: &LogFilter<'_>, line: u64) -> MatchFound {
        let found = self
            .logs
            .match_after(JOB, BUILD, needle(text), filter, line);
        found.unwrap()
    }

    fn before(&self, text: &str, filter: &LogFilter<'_>, line: u64) -> MatchFound {
        let found = self
            .logs
            .match_before(JOB, BUILD, needle(text), filter, line);
        found.unwrap()
    }
}

fn needle(text: &str) -> Needle<'_> {
    Needle {
        bytes: text.as_bytes(),
        ignore_case: true,
    }
}

fn at(line: u64, ordinal: u64) -> Option<LogMatch> {
    Some(LogMatch {
        line,
        ordinal,
        wrapped: false,
    })
}

fn wrapped(line: u64, ordinal: u64) -> Option<LogMatch> {
    at(line, ordinal).map(|found| LogMatch {
        wrapped: true,
        ..found
    })
}

#[test]
fn the_next_and_the_one_before_know_which_of_all_they_are() {
    let room = LogRoom::holding(&numbered(10_000));
    let all = LogFilter::default();
    let found = room.after("LINE 77", &all, 0);
    assert_eq!((found.found, found.total_matches), (at(77, 1), 111));
    assert_eq!(found.total_lines, 10_000);
    assert_eq!(room.after("line 77", &all, 77).found, at(770, 2));
    assert_eq!(room.after("line 77", &all, 776).found, at(777, 9));
    assert_eq!(room.before("line 77", &all, 777).found, at(776, 8));
    assert_eq!(room.before("line 77", &all, 770).found, at(77, 1));
    let last = room.before("line 77", &all, u64::MAX);
    assert_eq!(last.found, at(7_799, 111));
}

#[test]
fn behind_the_last_comes_the_first() {
    let room = LogRoom::holding(&numbered(100));
    let all = LogFilter::default();
    assert_eq!(room.after("9", &all, 99).found, wrapped(9, 1));
    assert_eq!(room.before("9", &all, 9).found, wrapped(99, 19));
    // The only one is its own neighbour.
    assert_eq!(room.after("line 100", &all, 100).found, wrapped(100, 1));
    assert_eq!(room.before("line 100", &all, 100).found, wrapped(100, 1));
}

#[test]
fn none_at_all_is_an_answer() {
    let room = LogRoom::new();
    let all = LogFilter::default();
    assert_eq!(room.after("x", &all, 1), MatchFound::default());
    room.send(&numbered(3));
    for found in [room.after("x", &all, 1), room.before("x", &all, 1)] {
        assert_eq!((found.found, found.total_matches), (None, 0));
        assert_eq!(found.total_lines, 3);
    }
}

#[test]
fn what_does_not_pass_the_filter_is_not_counted() {
    let log = [
        record(1, 'o', "error one"),
        record(2, 'e', "error two: disk"),
        record(3, 'e', "\x1b[31mer\x1b[32mror\x1b[0m three: disk"),
        record(4, 'e', "error four"),
        record(5, 'e', "disk"),
        record(6, 'e', "error six: disk"),
    ]
    .concat();
    let room = LogRoom::holding(&log);
    let filter = LogFilter {
        streams: Streams {
            stdout: false,
            ..Streams::ALL
        },
        needle: Some(needle("disk")),
        left_out: &[6..=6],
    };
    let found = room.after("error", &filter, 0);
    assert_eq!((found.found, found.total_matches), (at(2, 1), 2));
    assert_eq!(room.after("error", &filter, 2).found, at(3, 2));
    assert_eq!(room.before("error", &filter, 6).found, at(3, 2));
    assert_eq!(room.before("error", &filter, 2).found, wrapped(3, 2));
}
