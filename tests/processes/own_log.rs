//! What a server and a worker write of themselves: for people, for collectors, for the journal, and for nobody.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::house::{BINARY, House, await_that};

const LONG: &str = "tasks:\n  long:\n    flow:\n      work: { script: SLEEP }\n";

fn server(folder: &Path, args: &[&str], variables: &[(&str, String)], stderr: PipeWriter) -> Child {
    Command::new(BINARY)
        .args(["server", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder.join("data"))
        .args(args)
        .current_dir(folder)
        .env_remove("JOURNAL_STREAM")
        .envs(variables.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap()
}

/// Once it can be found by its folder.
fn await_there(folder: &Path) {
    let file = folder.join("data/server.json");
    await_that("the server is there", || file.exists().then_some(()));
}

fn stop(child: &mut Child) {
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let ended = await_that("the server ends", || child.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
}

/// All that a server says in its life.
fn life(args: &[&str], variables: &[(&str, String)], ends: (PipeReader, PipeWriter)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (mut said, stderr) = ends;
    let mut child = server(folder.path(), args, variables, stderr);
    await_there(folder.path());
    stop(&mut child);
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn for_people_a_server_says_what_it_always_said() {
    let said = life(&[], &[], pipe().unwrap());
    assert!(
        said.starts_with("stepward: listening on http://127.0.0.1:"),
        "{said}"
    );
    let mut last = said.lines().rev();
    assert!(last.next().unwrap().contains("audit head seq="), "{said}");
    assert_eq!(last.next(), Some("stepward: stopping"), "{said}");
}

#[test]
fn for_a_collector_every_line_is_an_object() {
    let by_flag = life(&["--log-format", "json"], &[], pipe().unwrap());
    let variable = ("STEPWARD_LOG_FORMAT", "json".to_string());
    let by_variable = life(&[], &[variable], pipe().unwrap());
    for said in [by_flag, by_variable] {
        let lines: Vec<Value> = said
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
            .collect();
        for line in &lines {
            let at = line["at"].as_str().unwrap();
            assert!(at.len() == 24 && at.ends_with('Z'), "{line}");
            assert_eq!(line["level"], "info", "{line}");
            let target = match line["message"] == "audit head" {
                true => "stepward::audit_head",
                false => "stepward",
            };
            assert_eq!(line["target"], target, "{line}");
        }
        let messages: Vec<&str> = lines
            .iter()
            .map(|line| line["message"].as_str().unwrap())
            .collect();
        assert!(messages[0].starts_with("listening on http://"), "{said}");
        let last = &messages[messages.len() - 2..];
        assert_eq!(last, ["stopping", "audit head"]);
    }
}

#[test]
fn the_head_of_the_audit_log_is_logged_at_every_level_but_off() {
    for level in ["error", "warn", "info", "off"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server.yaml");
        std::fs::write(&file, format!("log: {{ level: {level} }}\n")).unwrap();
        let args = ["--config", file.to_str().unwrap()];
        let said = life(&args, &[], pipe().unwrap());
        let is_logged = said.contains("audit head seq=");
        assert_eq!(is_logged, level != "off", "{level}: {said}");
    }
}

/// All that a server says that does not start.
fn refusal(settings: &str, args: &[&str], to_journal: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.yaml");
    std::fs::write(&file, settings).unwrap();
    let (mut said, stderr) = pipe().unwrap();
    let place = fstat(stderr.as_fd()).unwrap();
    let stream = format!("{}:{}", place.st_dev, place.st_ino);
    let variables = [("JOURNAL_STREAM", stream)];
    let args = [&["--config", file.to_str().unwrap()], args].concat();
    let variables = &variables[..usize::from(to_journal)];
    let mut child = server(folder.path(), &args, variables, stderr);
    assert!(!child.wait().unwrap().success());
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn why_it_does_not_start_is_told_as_everything_else() {
    let no_token = "auth: { token_file: /nowhere/token }\n";
    let unknown = "log: { format: json }\nlistn: 1\n";
    let json = ["--log-format", "json"];
    for (settings, args) in [(no_token, &json[..]), (unknown, &[]), ("listn: 1\n", &json)] {
        let said = refusal(settings, args, false);
        let line: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        assert_eq!(line["level"], "error", "{said}");
    }
    for settings in [no_token, "listn: 1\n"] {
        let said = refusal(settings, &[], true);
        assert!(said.starts_with("<3>stepward: "), "{said}");
        let said = refusal(settings, &[], false);
        assert!(said.starts_with("stepward: "), "{said}");
    }
}

#[test]
fn a_level_and_a_format_of_the_settings_are_taken_and_others_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.yaml");
    let start = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let output = Command::new(BINARY)
            .args(["config", "show", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert!(start("log: { format: json, level: warn }\n").0);
    let (is_taken, said) = start("log: { format: yaml }\n");
    assert!(
        !is_taken && said.contains("text") && said.contains("json"),
        "{said}"
    );
    let (is_taken, said) = start("embedded_worker: { log: { level: warn } }\n");
    assert!(
        !is_taken && said.contains("embedded_worker.log cannot be set"),
        "{said}"
    );
}

#[test]
fn the_journal_is_told_how_bad_it_is_and_not_when() {
    let (said, stderr) = pipe().unwrap();
    let found = fstat(&stderr).unwrap();
    let stream = (
        "JOURNAL_STREAM",
        format!("{}:{}", found.st_dev, found.st_ino),
    );
    let text = life(&[], &[stream], (said, stderr));
    assert!(
        text.starts_with("<6>stepward: listening on http://127.0.0.1:"),
        "{text}"
    );
    let beginnings = ["<6>stepward: ", "<6>stepward::audit_head: audit head "];
    for line in text.lines() {
        assert!(beginnings.iter().any(|it| line.starts_with(it)), "{text}");
    }

    // A variable that speaks of another stream says nothing of this one.
    let stream = ("JOURNAL_STREAM", "1:2".to_string());
    let text = life(&[], &[stream], pipe().unwrap());
    assert!(text.starts_with("stepward: listening"), "{text}");
}

#[test]
fn nobody_waits_for_who_does_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (mut said, mut stderr) = pipe().unwrap();
    // Not a byte more fits in.
    let flags = fcntl_getfl(stderr.as_fd()).unwrap();
    fcntl_setfl(stderr.as_fd(), flags | OFlags::NONBLOCK).unwrap();
    let mut before = 0;
    for piece in [4_096, 1] {
        while let Ok(written) = stderr.write(&vec![b'.'; piece]) {
            before += written;
        }
    }
    fcntl_setfl(stderr.as_fd(), flags).unwrap();
    let mut child = server(folder.path(), &[], &[], stderr.try_clone().unwrap());
    await_there(folder.path());
    stop(&mut child);
    drop(stderr);
    let mut text = Vec::new();
    said.read_to_end(&mut text).unwrap();
    assert_eq!(text.len(), before, "nothing fitted in");
}

#[test]
fn a_server_whose_reader_is_gone_lives_and_ends_well() {
    let folder = tempfile::tempdir().unwrap();
    let (said, stderr) = pipe().unwrap();
    drop(said);
    let mut child = server(folder.path(), &[], &[], stderr);
    await_there(folder.path());
    stop(&mut child);

    // And one whose disk takes no line.
    let folder = tempfile::tempdir().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut child = Command::new(BINARY)
        .args(["server", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder.path().join("data"))
        .current_dir(folder.path())
        .stderr(full)
        .spawn()
        .unwrap();
    await_there(folder.path());
    stop(&mut child);
}

#[test]
fn what_recovery_does_is_in_the_log_with_whom_it_did_it_to() {
    let mut house = House::with(LONG);
    let mut worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_asleep(1);
    worker.kill();
    house.await_job(job_id, "failed");
    let said = await_that("both are said", || {
        let said = house.server().said();
        (said.matches("recovery phase 1 ").count() == 2).then_some(said)
    });
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.contains(" recovery phase "))
        .collect();
    assert!(lines[0].contains(" WARN  stepward::sweeper"), "{said}");
    let inactive = "recovery phase 1 marked a silent worker inactive worker=1";
    let failed =
        "recovery phase 1 failed a step job=1 step=1 attempt=1 worker=1 reason=worker_lost";
    assert!(lines[0].ends_with(inactive), "{said}");
    assert!(lines[1].ends_with(failed), "{said}");
}
