//! `stepward demo`: all of recovery in seconds, and nothing of it left.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::house::{Process, await_that};
use crate::typed::{Typed, command};

/// Processes that are somewhere below this folder, or were started from there.
fn at_home_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let all = entries.map(|entry| entry.path());
    let is_there = |process: &PathBuf| {
        let cwd = fs::read_link(process.join("cwd"));
        cwd.is_ok_and(|cwd| cwd.starts_with(folder))
    };
    all.filter(is_there).collect()
}

fn assert_nothing_left(folder: &Path) {
    let left: Vec<_> = fs::read_dir(folder).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(at_home_in(folder), Vec::<PathBuf>::new());
}

#[test]
fn the_demo_shows_each_phase_of_recovery_and_leaves_nothing() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut demo = command(elsewhere.path(), &["demo", "--json"]);
    let typed: Typed = demo.env("TMPDIR", folder.path()).output().unwrap().into();
    assert_eq!(typed.code, Some(0), "{typed:?}");
    let parts: Vec<Value> = typed
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told: Vec<String> = parts
        .iter()
        .map(|part| {
            let word = |key: &str| part[key].as_str().unwrap_or("-").to_string();
            let words = [word("task"), word("status"), word("reason")].join(" ");
            format!("{} {words} {}", part["part"], part["phase"])
        })
        .collect();
    assert_eq!(
        told,
        [
            "1 hello completed - null",
            "2 backup failed worker_lost 1",
            "3 slow-report failed step_timeout 2",
            "4 nightly cancelled job_timeout 3",
            "5 train failed unmatched 4",
        ]
    );
    assert!(parts.iter().all(|part| part["as_expected"] == true));
    let message = |part: usize| parts[part - 1]["message"].as_str().unwrap();
    assert!(message(2).contains("worker demo-b was lost"), "{typed:?}");
    assert!(message(5).contains("needs gpu"), "{typed:?}");
    for words in [
        "real defaults  heartbeat 30s · worker timeout 120s · sweep 60s · unmatched 30s",
        "killing worker demo-b (pid ",
        "stepward init ",
        "stepward why latest ",
    ] {
        assert!(typed.stderr.contains(words), "{words}: {typed:?}");
    }
    assert_nothing_left(folder.path());
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

/// A demo in which a worker has just been killed and steps run.
fn in_the_middle(folder: &Path) -> Process {
    let mut demo = command(folder, &["demo"]);
    demo.env("TMPDIR", folder);
    let demo = Process::start("demo", demo);
    await_that("the middle of it", || {
        assert!(demo.is_alive(), "{}", demo.said());
        demo.said()
            .contains("of task train is submitted")
            .then_some(())
    });
    demo
}

#[test]
fn ctrl_c_in_the_middle_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let demo = in_the_middle(folder.path());
    demo.signal(Signal::INT);
    await_that("it says so", || {
        let words = "interrupted; nothing is left behind";
        demo.said().contains(words).then_some(())
    });
    assert!(!demo.wait(), "it was interrupted");
    assert_nothing_left(folder.path());
}

#[test]
fn a_demo_that_is_killed_takes_its_processes_along() {
    let folder = tempfile::tempdir().unwrap();
    let demo = in_the_middle(folder.path());
    assert!(!at_home_in(folder.path()).is_empty());
    demo.kill();
    await_that("nobody is left", || {
        at_home_in(folder.path()).is_empty().then_some(())
    });
    // Its folder stays until somebody comes who can remove it: the next command that needs a folder of its own.
    let left = |name: &str| {
        let entries = fs::read_dir(folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|found| found.starts_with(name)).count()
    };
    assert_eq!(left("stepward-demo-"), 1);
    let file = folder.path().join("hello.yaml");
    fs::write(
        &file,
        "tasks: { hello: { flow: { a: { script: 'true' } } } }",
    )
    .unwrap();
    let mut run = command(folder.path(), &["run", "hello.yaml"]);
    let typed: Typed = run.env("TMPDIR", folder.path()).output().unwrap().into();
    assert_eq!(typed.code, Some(0), "{typed:?}");
    assert_eq!(left("stepward-"), 0);
}

#[test]
fn a_demo_without_a_place_to_play_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = command(folder.path(), &["demo"]);
    let typed: Typed = demo
        .env("TMPDIR", "/no/such/folder")
        .output()
        .unwrap()
        .into();
    assert_eq!(typed.code, Some(1), "{typed:?}");
    assert!(
        typed.stderr.contains("no temporary folder can be made"),
        "{typed:?}"
    );
    assert_eq!(typed.stdout, "");
}
