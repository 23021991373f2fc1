//! The sections of a log, as programs mark them, and what only looks like one.

use stepward::logs::LogGroups;

use super::{BUILD, JOB, LogRoom, record};

impl LogRoom {
    fn groups(&self) -> LogGroups {
        self.logs.groups(JOB, BUILD).unwrap()
    }
}

/// `first-last title`, with a plus where it is to be open.
fn groups_of(lines: &[&str]) -> Vec<String> {
    groups_in('o', lines)
}

fn groups_in(stream: char, lines: &[&str]) -> Vec<String> {
    let records = lines.iter().flat_map(|line| record(1, stream, line));
    let room = LogRoom::holding(&records.collect::<Vec<u8>>());
    told(&room.groups())
}

fn told(found: &LogGroups) -> Vec<String> {
    let groups = found.groups.iter();
    let told = groups.map(|group| {
        let open = if group.is_open { "+" } else { "" };
        let (first, last) = (group.first_line, group.last_line);
        format!("{first}-{last} {open}{}", group.title)
    });
    told.collect()
}

#[test]
fn groups_of_github_say_where_they_end() {
    let log = [
        "before",
        "::group::Install",
        "one",
        "::endgroup::",
        "between",
        "  ::group::Build \u{1f528}",
        "two",
        "::group::Test",
        "--- text of the group",
        "::endgroup::",
        "after",
        "::endgroup::",
        "::group::Open end",
        "three",
    ];
    assert_eq!(
        groups_of(&log),
        [
            "2-4 Install",
            "6-7 Build \u{1f528}",
            "8-10 Test",
            "13-14 Open end"
        ]
    );
}

#[test]
fn sections_of_buildkite_end_where_the_next_begins() {
    let log = [
        "before",
        "--- :package: Install",
        "one",
        "+++ Test",
        "two",
        "~~~ Clean up",
        "three",
        "^^^ +++",
        "four",
    ];
    assert_eq!(
        groups_of(&log),
        ["2-3 :package: Install", "4-5 +Test", "6-9 +Clean up"]
    );
    // One that is empty is followed by the next at once.
    assert_eq!(
        groups_of(&["--- Nothing", "+++ Test"]),
        ["1-1 Nothing", "2-2 +Test"]
    );
    assert_eq!(
        groups_of(&["--- A", "::group::B", "b", "::endgroup::", "x"]),
        ["1-1 A", "2-4 B"]
    );
}

#[test]
fn what_only_looks_like_a_heading_is_none() {
    for lines in [
        &["---"][..],
        &["--- "],
        &["---   ", "key: value", "---"],
        &["----- BEGIN"],
        &["---title", "+++", "~~~", "~~~~ x"],
        &["--- ---", "--- ==="],
        &[" --- indented", "text --- inside"],
        // YAML
        &["--- # Source: chart", "--- !tag", "--- |", "--- >-"],
        // Diffs
        &["--- a/file", "+++ b/file", "@@ -1 +1 @@", "-a", "+b"],
        &["--- a/file", "+++ b/file"],
        &["--- /dev/null", "+++ b/file"],
        &["--- a/file", "+++ /dev/null"],
        &["--- src/main.rs", "+++ src/main.rs"],
        &[
            "--- old.txt\t2026-01-01",
            "+++ new.txt\t2026-01-02",
            "@@ -1 +1 @@",
        ],
        &[
            "\x1b[1m--- a/x\x1b[m",
            "\x1b[1m+++ b/x\x1b[m",
            "\x1b[36m@@ -1 +1 @@\x1b[m",
        ],
        &["*** old.c", "--- new.c", "***************", "--- 1,7 ----"],
        // A shell that traces
        &["+++ dirname ./x.sh", "++ cd .", "+ make"],
        // Tests of Go, the end of ping
        &["--- FAIL: TestX (0.00s)", "--- PASS: TestY (0.00s)"],
        &["--- example.com ping statistics ---"],
        &["::endgroup::", "^^^ +++", "::groups::x", "x ::group::y"],
    ] {
        assert_eq!(groups_of(lines), Vec::<String>::new(), "{lines:?}");
    }
    // There a shell traces, and there the worker speaks.
    assert_eq!(groups_in('e', &["+++ uname -s"]), Vec::<String>::new());
    assert_eq!(groups_in('w', &["--- text"]), Vec::<String>::new());
    let diff = ["--- a/x", "+++ b/x", "@@ -1 +1 @@"];
    assert_eq!(groups_in('e', &diff), Vec::<String>::new());
    assert_eq!(groups_in('e', &["--- Said there"]), ["1-1 Said there"]);
}

#[test]
fn a_diff_within_a_section_is_part_of_it() {
    let log = [
        "--- Compare",
        "--- a/file",
        "+++ b/file",
        "@@ -1 +1 @@",
        "--- Next",
    ];
    assert_eq!(groups_of(&log), ["1-4 Compare", "5-5 Next"]);
}

#[test]
fn a_title_is_short_and_does_nothing() {
    let long = format!("::group::{}", "ü".repeat(300));
    let found = groups_of(&[
        "::group::\x1b[31mred\x1b]0;x\x07 \x07\u{202e}\tend\r",
        &long,
        "::group::",
        "--- \x1b[32mgreen\x1b[0m",
    ]);
    assert_eq!(found[0], "1-1 red \u{fffd}\u{fffd} end");
    assert_eq!(found[1], format!("2-2 {}…", "ü".repeat(199)));
    assert_eq!(found[2], "3-4 ", "in a group, a section is text");
    assert_eq!(groups_of(&["--- \x1b[32mgreen\x1b[0m"]), ["1-1 green"]);
}

#[test]
fn there_are_no_more_groups_than_a_page_can_show() {
    let lines = |count: i64| -> Vec<u8> {
        let two = |n| [record(n, 'o', format!("--- Part {n}")), record(n, 'o', "x")].concat();
        (1..=count).flat_map(two).collect()
    };
    let found = LogRoom::holding(&lines(1_000)).groups();
    assert_eq!((found.groups.len(), found.truncated), (1_000, false));
    assert_eq!(found.groups[999].last_line, 2_000);
    let found = LogRoom::holding(&lines(1_001)).groups();
    assert_eq!((found.groups.len(), found.truncated), (1_000, true));
    assert_eq!(
        (found.groups[999].last_line, found.total_lines),
        (2_000, 2_002)
    );
}

#[test]
fn nothing_has_no_groups() {
    let room = LogRoom::new();
    assert_eq!(room.groups(), LogGroups::default());
    room.send(&record(1, 'O', "--- a heading "));
    room.send(&record(2, 'o', "in pieces"));
    assert_eq!(told(&room.groups()), ["1-1 a heading in pieces"]);
}
