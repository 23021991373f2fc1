//! Whom a command connects to: nobody whom nobody named. The kernel is asked, by strace.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::house::{BINARY, Process, await_that};
use crate::typed::command;

/// The command under strace, which writes every connection down.
fn traced(folder: &Path, words: &[&str]) -> Command {
    let plain = command(folder, words);
    let mut traced = Command::new("strace");
    traced
        .args(["-f", "-qq", "-e", "trace=connect", "-o", "connections"])
        .arg(BINARY)
        .args(words)
        .current_dir(folder)
        .stdin(std::process::Stdio::null());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    traced
}

/// The connections to other processes over a network, one in a line.
fn connections(folder: &Path) -> Vec<String> {
    let seen = fs::read_to_string(folder.join("connections")).unwrap();
    let is_network = |line: &&str| line.contains("AF_INET");
    seen.lines()
        .filter(is_network)
        .map(str::to_string)
        .collect()
}

fn is_to_this_machine(line: &str) -> bool {
    line.contains("inet_addr(\"127.0.0.1\")")
}

fn project() -> tempfile::TempDir {
    let folder = crate::cli_dev::project();
    fs::write(folder.path().join("crontab"), "0 3 * * * echo hello\n").unwrap();
    folder
}

#[test]
fn what_needs_nobody_connects_to_nobody() {
    let folder = project();
    for words in [
        &["--help"][..],
        &["--version"],
        &["completions", "fish"],
        &["man", "run"],
        &["explain", "recovery"],
        &["schema", "workflow"],
        &["validate"],
        &["render", "hello"],
        &["graph", "hello"],
        &["import", "crontab", "crontab", "--dry-run"],
        &["config", "show"],
        &["init", "other"],
        &["doctor"],
        &["status"],
        &["db", "check"],
        &[],
    ] {
        traced(folder.path(), words).output().unwrap();
        let made = connections(folder.path());
        assert_eq!(made, [""; 0], "{words:?}");
    }
}

#[test]
fn a_run_and_a_dev_server_connect_to_themselves_alone() {
    let folder = project();
    let run = traced(folder.path(), &["run", "hello"]).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    let made = connections(folder.path());
    assert!(!made.is_empty(), "its worker speaks to its server");
    let strange = made.iter().find(|line| !is_to_this_machine(line));
    assert_eq!(strange, None);

    // What people have installed asks whom it likes; here nothing is.
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for name in ["sh", "strace"] {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {name}")])
            .output();
        let found = String::from_utf8(found.unwrap().stdout).unwrap();
        std::os::unix::fs::symlink(found.trim(), bin.join(name)).unwrap();
    }
    let mut dev = traced(folder.path(), &["dev", "--port", "0"]);
    dev.env("PATH", &bin);
    let dev = Process::start("dev", dev);
    await_that("its worker is there", || {
        dev.said()
            .contains("kubernetes is not offered")
            .then_some(())
    });
    let announced = fs::read_to_string(folder.path().join(".stepward/server.json")).unwrap();
    let announced: serde_json::Value = serde_json::from_str(&announced).unwrap();
    let pid = announced["pid"].as_i64().unwrap() as i32;
    kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
    await_that("dev ends", || (!dev.is_alive()).then_some(()));
    let made = connections(folder.path());
    assert!(!made.is_empty(), "{}", dev.said());
    let strange = made.iter().find(|line| !is_to_this_machine(line));
    assert_eq!(strange, None);
}
