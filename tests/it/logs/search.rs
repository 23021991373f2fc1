//! Finding lines in a log: literally, in all of it, with the true count.

use stepward::logs::{LogLimits, LogMatches, Needle};

use super::{BUILD, Dice, JOB, LogRoom, lines_of, numbered, record, shown};

impl LogRoom {
    fn search(&self, needle: impl AsRef<[u8]>, from_line: u64, n: usize) -> LogMatches {
        self.search_for(needle.as_ref(), false, from_line, n)
    }

    fn search_any_case(&self, needle: impl AsRef<[u8]>) -> LogMatches {
        self.search_for(needle.as_ref(), true, 1, 1_000)
    }

    fn search_for(&self, bytes: &[u8], ignore_case: bool, from_line: u64, n: usize) -> LogMatches {
        let needle = Needle { bytes, ignore_case };
        self.logs.search(JOB, BUILD, needle, from_line, n).unwrap()
    }
}

#[test]
fn the_count_is_that_of_the_whole_log_wherever_the_page_begins() {
    let room = LogRoom::holding(&numbered(10_000));
    let found = room.search("77", 1, 3);
    assert_eq!(
        shown(&found.lines),
        [
            "77 stdout: line 77",
            "177 stdout: line 177",
            "277 stdout: line 277"
        ]
    );
    assert_eq!((found.total_matches, found.total_lines), (280, 10_000));
    assert!(found.truncated, "there are more");

    let found = room.search("77", 9_878, 10);
    assert_eq!(shown(&found.lines), ["9977 stdout: line 9977"]);
    assert_eq!(found.total_matches, 280);
    assert!(!found.truncated, "these were the last");

    let found = room.search("line 77", 1, 0);
    assert_eq!((found.lines.len(), found.total_matches), (0, 111));
}

#[test]
fn the_last_that_match_can_be_asked_for() {
    let room = LogRoom::with(LogLimits {
        lines_max: 30,
        ..LogLimits::default()
    });
    room.send(&numbered(10_000));
    let last = |bytes: &[u8], n: usize| {
        let ignore_case = false;
        let needle = Needle { bytes, ignore_case };
        room.logs.search_tail(JOB, BUILD, needle, n).unwrap()
    };
    let found = last(b"77", 2);
    assert_eq!(
        shown(&found.lines),
        ["9877 stdout: line 9877", "9977 stdout: line 9977"]
    );
    assert_eq!((found.total_matches, found.truncated), (280, true));
    let found = last(b"line 999", 100);
    assert_eq!((found.lines.len(), found.truncated), (11, false));
    let found = last(b"line", 100);
    assert_eq!((found.lines.len(), found.lines[29].n), (30, 10_000));
    assert!(found.truncated);
    assert_eq!(last(b"77", 0).lines, []);
}

#[test]
fn nothing_found_is_an_answer() {
    let room = LogRoom::new();
    assert_eq!(room.search("x", 1, 10), LogMatches::default());
    room.send(&numbered(5));
    let found = room.search("x", 1, 10);
    assert_eq!((found.total_matches, found.total_lines), (0, 5));
    assert!(!found.truncated);
}

#[test]
fn a_needle_is_taken_literally() {
    let log = [
        record(1, 'o', "a.c"),
        record(2, 'o', "abc"),
        record(3, 'o', "[a-z]*"),
        record(4, 'o', b"\xff\0"),
    ]
    .concat();
    let room = LogRoom::holding(&log);
    assert_eq!(shown(&room.search("a.c", 1, 9).lines), ["1 stdout: a.c"]);
    assert_eq!(
        shown(&room.search("[a-z]*", 1, 9).lines),
        ["3 stdout: [a-z]*"]
    );
    assert_eq!(room.search(b"\xff\0", 1, 9).lines[0].n, 4);
    assert_eq!(room.search("", 1, 9).total_matches, 4);
    // Neither the time nor the stream is text, nor is the end of a line.
    assert_eq!(room.search("1 o", 1, 9).total_matches, 0);
    assert_eq!(room.search("c\n", 1, 9).total_matches, 0);
}

#[test]
fn case_matters_unless_it_is_said_not_to() {
    let log = [
        record(1, 'o', "Error: disk"),
        record(2, 'e', "ERROR"),
        record(3, 'o', "no errors"),
        record(4, 'o', "fine"),
    ]
    .concat();
    let room = LogRoom::holding(&log);
    assert_eq!(room.search("ERROR", 1, 9).total_matches, 1);
    for needle in ["error", "ERROR", "eRRoR"] {
        let found = room.search_any_case(needle);
        assert_eq!(found.total_matches, 3);
        assert_eq!(found.lines[0].text, b"Error: disk", "as it was printed");
    }
}

#[test]
fn a_line_in_pieces_is_searched_as_one() {
    let log = [
        record(1, 'O', "nee"),
        record(2, 'O', ""),
        record(3, 'O', "d"),
        record(4, 'o', "le"),
        record(5, 'o', "need"),
        record(6, 'o', "le"),
        record(7, 'O', "need"),
        record(8, 'e', "le"),
    ]
    .concat();
    let found = LogRoom::holding(&log).search("needle", 1, 9);
    assert_eq!(shown(&found.lines), ["1 stdout: needle"]);
}

#[test]
fn what_is_not_shown_of_a_long_line_is_searched_too() {
    let mut text = vec![b'x'; 3 << 20];
    text.extend_from_slice(b"Needle");
    let room = LogRoom::holding(&record(1, 'o', text));
    for found in [room.search("Needle", 1, 9), room.search_any_case("nEEDLE")] {
        assert_eq!((found.total_matches, found.truncated), (1, true));
        let shown = &found.lines[0].text;
        assert!(shown.ends_with(" … [2097158 more bytes]".as_bytes()));
    }
    assert_eq!(room.search("xN", 1, 9).total_matches, 1);
    assert_eq!(room.search("Nx", 1, 9).total_matches, 0);
}

#[test]
fn many_matches_are_counted_and_few_are_shown() {
    let log: Vec<u8> = (1..=40)
        .flat_map(|n| record(n, 'o', vec![b'x'; 100_000]))
        .collect();
    let found = LogRoom::holding(&log).search("xxx", 1, 1_000);
    assert_eq!((found.lines.len(), found.total_matches), (10, 40));
    assert!(found.truncated);
}

/// Whatever the log and the needle, and wherever blocks and records end: what a plain search finds.
#[test]
fn a_search_finds_what_a_plain_reading_finds() {
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
        for _ in 0..6 {
            let length = 1 + dice.roll(7) as usize;
            let needle: Vec<u8> = (0..length)
                .map(|_| b"abcAB "[dice.roll(6) as usize])
                .collect();
            let ignore_case = dice.roll(2) == 0;
            let from = dice.roll(lines.len() as u64 + 2);
            let n = dice.roll(50) as usize;
            let fold = |bytes: &[u8]| match ignore_case {
                true => bytes.to_ascii_lowercase(),
                false => bytes.to_vec(),
            };
            let sought = fold(&needle);
            let matching: Vec<_> = lines
                .iter()
                .filter(|line| fold(&line.text).windows(length).any(|part| part == sought))
                .collect();
            let from_there: Vec<_> = matching.iter().filter(|line| line.n >= from).collect();
            let found = room.search_for(&needle, ignore_case, from, n);
            assert_eq!(found.total_matches, matching.len() as u64, "seed {seed}");
            assert_eq!(found.lines.len(), from_there.len().min(n).min(30));
            assert_eq!(found.truncated, found.lines.len() < from_there.len());
            let expected = from_there.into_iter().copied();
            assert!(found.lines.iter().zip(expected).all(|(a, b)| a == b));
        }
    }
}
