//! `run` and `watch` on a terminal: what is drawn, what stays, what Ctrl-C does.

use std::fs;
use std::path::Path;

use crate::house::{A_PERSON, House, await_that, processes};
use crate::pty::Terminal;

/// A sleep that no other process of this machine is in.
fn sleep_of_its_own(n: u32) -> String {
    format!("sleep 7{:07}{n:03}", std::process::id())
}

fn folder(workflow: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("flow.yaml"), workflow).unwrap();
    folder
}

const STEPS: &str = "
tasks:
  flow:
    flow:
      fetch: { script: echo a rather long line that says what was fetched and from where it came }
      build:
        depends_on: [fetch]
        script: 'echo building; until test -e go; do sleep 0.05; done; echo built'
        workdir: FOLDER
      each: { depends_on: [build], for_each: [1, 2, 3, 4], script: 'echo $EACH_ITEM' }
      a-step-with-a-name-that-is-rather-long: { depends_on: [each], script: echo 日本語 }
";

fn steps(folder: &Path) {
    let workflow = STEPS.replace("FOLDER", folder.to_str().unwrap());
    fs::write(folder.join("flow.yaml"), workflow).unwrap();
}

#[test]
fn a_run_is_drawn_within_the_width_and_leaves_what_was_above_it() {
    for columns in [80, 40] {
        let folder = tempfile::tempdir().unwrap();
        steps(folder.path());
        let mut terminal = Terminal::run(folder.path(), columns, &[], &["run", "flow.yaml"]);
        terminal.await_text("▶ build");
        terminal.await_text("running");
        fs::write(folder.path().join("go"), "").unwrap();
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(0), "{screen}");
        assert_eq!(terminal.wrapped(), None);
        let lines: Vec<&str> = screen.lines().collect();
        assert_eq!(lines[..2], ["one before", "another before"], "{screen}");
        assert_eq!(lines[2], "flow · job 1 · in this process");
        for (line, name) in lines[3..7].iter().zip(["fetch", "build", "each", "a-step"]) {
            assert!(line.starts_with(&format!("  ✔ {name}")), "{screen}");
            assert!(line.contains("completed"), "{screen}");
        }
        assert!(
            lines[7].starts_with("flow · job 1 · ✔ completed in "),
            "{screen}"
        );
        // Nothing is left of what was drawn before.
        assert_eq!(lines.len(), 8, "{screen}");
        if columns == 80 {
            assert!(lines[4].ends_with("built"), "{screen}");
            assert!(lines[5].ends_with("4 of 4 done"), "{screen}");
            assert!(lines[6].ends_with("日本語"), "{screen}");
        }
    }
}

#[test]
fn a_terminal_that_becomes_narrower_keeps_what_was_above() {
    let folder = tempfile::tempdir().unwrap();
    steps(folder.path());
    let mut terminal = Terminal::run(folder.path(), 80, &[], &["run", "flow.yaml"]);
    terminal.await_text("▶ build");
    terminal.resize(36);
    terminal.await_text("…");
    fs::write(folder.path().join("go"), "").unwrap();
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("another before"), "{screen}");
    assert!(screen.contains("completed in"), "{screen}");
}

#[test]
fn colours_are_left_out_where_nobody_wants_them() {
    for (variable, is_drawn) in [(("NO_COLOR", "1"), true), (("TERM", "dumb"), false)] {
        let folder = folder("tasks: { flow: { flow: { a: { script: echo hello } } } }");
        let mut terminal = Terminal::run(folder.path(), 80, &[variable], &["run", "flow.yaml"]);
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(0), "{screen}");
        assert!(screen.contains("✔ completed"), "{screen}");
        let written = terminal.written();
        let escapes: Vec<&str> = written.split('\x1b').skip(1).collect();
        assert_eq!(!escapes.is_empty(), is_drawn, "{written:?}");
        let is_colour = |escape: &&&str| {
            let end = escape.find(|c: char| c.is_ascii_alphabetic());
            end.is_some_and(|end| escape[end..].starts_with('m'))
        };
        assert_eq!(escapes.iter().find(is_colour), None, "{written:?}");
    }
}

#[test]
fn one_ctrl_c_cancels_a_job_of_this_process() {
    let sleep = sleep_of_its_own(1);
    let folder = folder(&format!(
        "tasks: {{ flow: {{ flow: {{ nap: {{ script: 'echo asleep; {sleep}' }} }} }} }}"
    ));
    let mut terminal = Terminal::run(folder.path(), 80, &[], &["run", "flow.yaml"]);
    terminal.await_text("asleep");
    terminal.press_ctrl_c();
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(130), "{screen}");
    assert!(
        screen.contains("cancelling; once more to stop at once"),
        "{screen}"
    );
    assert!(screen.contains("flow · job 1 · ⊘ cancelled"), "{screen}");
    // It waited for them: they are gone by now.
    assert_eq!(processes(&sleep), [0; 0]);
}

#[test]
fn a_second_ctrl_c_ends_what_does_not_want_to_end() {
    let sleep = sleep_of_its_own(2);
    let folder = folder(&format!(
        "tasks: {{ flow: {{ flow: {{ stubborn: {{ script: \"trap '' TERM INT; echo awake; while true; do {sleep}; done\" }} }} }} }}"
    ));
    let mut terminal = Terminal::run(folder.path(), 80, &[], &["run", "flow.yaml"]);
    terminal.await_text("awake");
    terminal.press_ctrl_c();
    terminal.await_text("cancelling");
    std::thread::sleep(A_PERSON);
    terminal.press_ctrl_c();
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(130), "{screen}");
    await_that("nothing is left", || {
        processes(&sleep).is_empty().then_some(())
    });
}

#[test]
fn ctrl_c_leaves_the_job_of_a_server_alone() {
    let mut house =
        House::with("tasks: { flow: { flow: { nap: { script: 'echo asleep; SLEEP' } } } }");
    let _worker = house.worker(1);
    let url = house.url();
    let variables = [("STEPWARD_SERVER_URL", url.as_str())];
    let mut terminal = Terminal::run(house.folder.path(), 80, &variables, &["run", "flow"]);
    terminal.await_text("asleep");
    terminal.await_text("Ctrl-C detaches");
    terminal.press_ctrl_c();
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(130), "{screen}");
    assert!(screen.contains("watch   stepward watch 1\n"), "{screen}");
    assert!(screen.contains("cancel  stepward cancel 1"), "{screen}");
    assert_eq!(house.job(1).status, "running");
    house.cancel(1);
}

#[test]
fn many_steps_are_shown_as_a_few_and_those_that_matter() {
    let mut house = House::with(
        "
tasks:
  flow:
    flow:
      first: { script: 'echo begun; until test -e LEDGER; do sleep 0.05; done; exit 3' }
"
        .to_string()
        .chars()
        .chain((1..=30).flat_map(|n| {
            format!("      later-{n}: {{ depends_on: [first], script: echo {n} }}\n")
                .chars()
                .collect::<Vec<_>>()
        }))
        .collect::<String>()
        .as_str(),
    );
    let _worker = house.worker(1);
    let url = house.url();
    let variables = [("STEPWARD_SERVER_URL", url.as_str())];
    let mut terminal = Terminal::run(house.folder.path(), 60, &variables, &["run", "flow"]);
    terminal.await_text("▶ first");
    terminal.await_text("and 19 more: 19 pending");
    fs::write(house.path("ledger"), "").unwrap();
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(10), "{screen}");
    let first = screen
        .lines()
        .find(|line| line.contains("because"))
        .unwrap();
    assert!(first.contains("step first failed: exit code 3"), "{screen}");
    for next in [
        "stepward why 1",
        "stepward logs 1 first",
        "stepward retry 1",
    ] {
        assert!(screen.contains(next), "{screen}");
    }
}

#[test]
fn two_taps_in_quick_succession_are_two() {
    let sleep = sleep_of_its_own(5);
    let folder = folder(&format!(
        "tasks: {{ flow: {{ flow: {{ stubborn: {{ script: \"trap '' TERM INT; echo awake; while true; do {sleep}; done\" }} }} }} }}"
    ));
    let words = ["run", "--watch", "flow.yaml"];
    let mut terminal = Terminal::run(folder.path(), 80, &[], &words);
    terminal.await_text("awake");
    terminal.press_ctrl_c();
    // As quick as a finger is.
    std::thread::sleep(std::time::Duration::from_millis(90));
    terminal.press_ctrl_c();
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(130), "{screen}");
    assert!(!screen.contains("waiting up to"), "{screen}");
    await_that("nothing is left", || {
        processes(&sleep).is_empty().then_some(())
    });
}

#[test]
fn what_is_wrong_with_a_workflow_is_shown_in_colours() {
    let folder = folder("tasks: { flow: { flow: { a: { scrpt: hi } } } }");
    for words in [
        ["run", "flow.yaml"],
        ["render", "flow.yaml"],
        ["graph", "flow.yaml"],
    ] {
        let mut terminal = Terminal::run(folder.path(), 80, &[], &words);
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(3), "{screen}");
        assert!(
            screen.contains("error[E012]: unknown key `scrpt`"),
            "{screen}"
        );
        assert!(!screen.contains('\u{fffd}'), "{screen}");
        assert!(terminal.written().contains("\x1b[1m"), "{screen}");
    }
}
