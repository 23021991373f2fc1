//! `stepward run`: in this process and at a server, each way in which it can end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::house::{House, await_that, processes};
use crate::typed::{Typed, announce, command, typed, typed_in};

fn folder_with(name: &str, workflow: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, workflow).unwrap();
    folder
}

/// A sleep that no other process of this machine is in.
fn sleep_of_its_own(n: u32) -> String {
    format!("sleep 6{:07}{n:03}", std::process::id())
}

fn lines_of_json(typed: &Typed) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{typed:?}"));
    typed.stdout.lines().map(parse).collect()
}

const HELLO: &str = "
tasks:
  hello:
    input:
      name: { type: string, default: world }
      count: { type: integer, default: 1 }
      tags: { type: string, multiple: true }
      extra: { type: json }
    flow:
      greet:
        script: |
          echo \"hello $INPUT_NAME\"
          echo \"name=$INPUT_NAME\" >> \"$STEPWARD_OUTPUT\"
  broken:
    flow:
      build: { script: echo building }
      test: { script: 'for i in 1 2 3 4 5 6 7 8 9 10 11; do echo line $i; done; echo oh no >&2; exit 2', depends_on: [build] }
      publish: { script: echo publishing, depends_on: [test] }
";

#[test]
fn a_file_is_a_green_run_with_one_command() {
    let folder = folder_with("hello.yaml", HELLO);
    let run = typed_in(folder.path(), &["run", "hello.yaml", "-i", "name=Ada"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.stdout, "", "progress is not data");
    let mut lines = run.stderr.lines();
    assert_eq!(lines.next(), Some("hello · job 1 · in this process"));
    let last = run.stderr.lines().next_back().unwrap();
    assert!(
        last.starts_with("hello · job 1 · ✔ completed in "),
        "{run:?}"
    );
    let greeted = run
        .stderr
        .lines()
        .find(|line| line.contains("step greet  ✔ completed"));
    let time = &greeted.unwrap_or_else(|| panic!("{run:?}"))[..8];
    assert!(
        time.bytes().filter(|byte| *byte == b':').count() == 2,
        "{time}"
    );
    let kept: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(kept.len(), 1, "nothing but the file: {kept:?}");
}

#[test]
fn what_the_job_gave_is_data() {
    let folder = folder_with("hello.yaml", HELLO);
    let words = [
        "run",
        "hello.yaml",
        "-i",
        "name=1.10",
        "--output",
        "--progress",
        "none",
    ];
    let run = typed_in(folder.path(), &words);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.json(), json!({"greet": {"name": "1.10"}}));
    assert_eq!(run.stderr, "");
}

#[test]
fn a_failure_is_explained_where_it_happens() {
    let folder = folder_with("hello.yaml", HELLO);
    let run = typed_in(folder.path(), &["run", "hello.yaml", "--task", "broken"]);
    assert_eq!(run.code, Some(10), "{run:?}");
    for told in [
        "step test  ✘ failed",
        "step publish  ↷ skipped",
        "  test · last 10 of 12 lines, ! is stderr\n",
        "    11   line 11\n",
        "    12 ! oh no\n",
        "broken · job 1 · ✘ failed in ",
        "because  step test failed: exit code 2",
    ] {
        assert!(run.stderr.contains(told), "{told}: {}", run.stderr);
    }
    // There is no server that could answer them.
    for cannot_work in ["stepward why", "stepward logs", "stepward retry"] {
        assert!(!run.stderr.contains(cannot_work), "{}", run.stderr);
    }
}

#[test]
fn what_cannot_be_run_is_told_before_anything_runs() {
    let folder = folder_with("hello.yaml", HELLO);
    let wrong = "tasks: { a: { flow: { s: { scirpt: echo } } } }";
    fs::write(folder.path().join("wrong.yaml"), wrong).unwrap();
    let several =
        "tasks: { a: { flow: { s: { script: echo } } }, b: { flow: { s: { script: echo } } } }";
    fs::write(folder.path().join("several.yaml"), several).unwrap();
    let cases: [(&[&str], i32, &[&str]); 13] = [
        (
            &["run", "wrong.yaml"],
            3,
            &["scirpt", "did you mean `script`?", "-->"],
        ),
        (
            &["run", "helo.yaml"],
            5,
            &["helo.yaml does not exist", "did you mean hello.yaml?"],
        ),
        (
            &["run", "no/such.yaml"],
            5,
            &["no/such.yaml does not exist"],
        ),
        (
            &["run", "several.yaml"],
            2,
            &["choose with --task: `a` or `b`"],
        ),
        (
            &["run", "several.yaml", "--task", "c"],
            5,
            &["it has `a` or `b`"],
        ),
        (&["run", "hello.yaml", "--detach"], 2, &["stepward dev"]),
        (
            &["run", "hello.yaml", "--server", "http://127.0.0.1:9"],
            2,
            &["name one of its tasks"],
        ),
        (
            &["run", "hello.yaml", "-i", "name"],
            2,
            &["write -i key=value"],
        ),
        (
            &["run", "hello.yaml", "-i", "@none.json"],
            5,
            &["none.json cannot be read"],
        ),
        (
            &["run", "hello.yaml", "-i", "naem=x", "-i", "count=many"],
            3,
            &["naem is not known; did you mean name?", "count"],
        ),
        (
            &["run", "hello.yaml", "-i", "extra={"],
            3,
            &["input extra: expected JSON"],
        ),
        (
            &["run", "hello"],
            5,
            &["no server is known", "stepward run FILE"],
        ),
        (&["run"], 2, &["TASK|FILE"]),
    ];
    for (words, code, told) in cases {
        let run = typed_in(folder.path(), words);
        assert_eq!(run.code, Some(code), "{words:?} {run:?}");
        assert_eq!(run.stdout, "", "{words:?}");
        for told in told {
            assert!(
                run.stderr.contains(told),
                "{words:?} {told}: {}",
                run.stderr
            );
        }
        assert!(!run.stderr.contains("panicked"), "{run:?}");
    }
}

#[test]
fn inputs_come_from_files_and_from_stdin() {
    let folder = folder_with("hello.yaml", HELLO);
    fs::write(
        folder.path().join("in.json"),
        r#"{"name": "file", "count": 3}"#,
    )
    .unwrap();
    let words = [
        "run",
        "hello.yaml",
        "-i",
        "@in.json",
        "-i",
        "@-",
        "-i",
        "tags=a",
        "-i",
        "tags=b",
        "--json",
    ];
    let mut child = command(folder.path(), &words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(br#"{"name": "stdin", "extra": [1]}"#)
        .unwrap();
    drop(stdin);
    let run = Typed::from(child.wait_with_output().unwrap());
    assert_eq!(run.code, Some(0), "{run:?}");
    let end = lines_of_json(&run).pop().unwrap();
    let expected = json!({"name": "stdin", "count": 3, "extra": [1], "tags": ["a", "b"]});
    assert_eq!(end["job"]["input"], expected);
}

#[test]
fn a_task_of_this_place_runs_where_there_is_no_server() {
    let folder = folder_with("workflows/all.yaml", HELLO);
    let run = typed_in(folder.path(), &["run", "hello"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let run = typed_in(folder.path(), &["run", "helo"]);
    assert_eq!(run.code, Some(5), "{run:?}");
    assert!(run.stderr.contains("did you mean hello?"), "{run:?}");
    // A server that lives and does not answer has the say all the same.
    announce(folder.path(), "http://127.0.0.1:9", None);
    let run = typed_in(folder.path(), &["run", "hello"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(6), ""), "{run:?}");
    assert!(run.stderr.contains("does not answer"), "{run:?}");
    let run = typed_in(folder.path(), &["run", "hello", "--local"]);
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[test]
fn json_tells_everything_in_lines_and_ends_with_the_end() {
    let folder = folder_with("hello.yaml", HELLO);
    let run = typed_in(
        folder.path(),
        &["run", "hello.yaml", "--task", "broken", "--json"],
    );
    assert_eq!(run.code, Some(10), "{run:?}");
    assert_eq!(run.stderr, "");
    let lines = lines_of_json(&run);
    for line in &lines {
        assert_eq!(line["job_id"], 1, "{line}");
        assert!(line["at"].is_string(), "{line}");
        let kind = line["kind"].as_str().unwrap();
        assert!(["job", "step", "event", "end"].contains(&kind), "{line}");
        assert!(
            line[if kind == "end" { "job" } else { kind }].is_object(),
            "{line}"
        );
    }
    let of_step = |name: &str| -> Vec<String> {
        let steps = lines.iter().filter(|line| line["step"]["name"] == name);
        let states = steps.map(|line| line["step"]["status"].as_str().unwrap().to_string());
        states.collect()
    };
    assert_eq!(of_step("test").last().unwrap(), "failed");
    assert_eq!(of_step("publish"), ["pending", "skipped"]);
    let events = lines.iter().filter(|line| line["kind"] == "event");
    let kinds: Vec<&str> = events
        .map(|line| line["event"]["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds.first(), Some(&"job_submitted"));
    assert_eq!(kinds.last(), Some(&"job_failed"));
    let ends = lines.iter().filter(|line| line["kind"] == "end").count();
    assert_eq!(ends, 1);
    let end = lines.last().unwrap();
    assert_eq!(end["kind"], "end");
    assert_eq!(end["exit_code"], 10);
    assert_eq!(end["job"]["status"], "failed");
    assert_eq!(end["job"]["steps"].as_array().unwrap().len(), 3);
}

#[test]
fn a_reader_that_goes_away_does_not_stop_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let workflow = format!(
        "tasks: {{ a: {{ flow: {{ one: {{ script: 'until test -e {0}.go; do sleep 0.02; done' }}, two: {{ depends_on: [one], script: 'touch {0}' }} }} }} }}",
        done.display()
    );
    fs::write(folder.path().join("a.yaml"), workflow).unwrap();
    let mut child = command(folder.path(), &["run", "a.yaml", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    drop(stdout);
    fs::write(folder.path().join("done.go"), "").unwrap();
    let status = await_that("the run ends", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    assert!(done.exists());
}

#[test]
fn a_step_that_this_machine_cannot_run_has_an_exit_code_of_its_own() {
    let workflow = "tasks: { train: { flow: { fit: { script: echo fits, tags: [gpu] } } } }";
    let folder = folder_with("train.yaml", workflow);
    let run = typed_in(folder.path(), &["run", "train.yaml"]);
    assert_eq!(run.code, Some(13), "{run:?}");
    assert!(run.stderr.contains("--tags"), "{run:?}");
    let run = typed_in(folder.path(), &["run", "train.yaml", "--tags", "gpu"]);
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[test]
fn a_job_that_takes_too_long_for_itself_is_timed_out() {
    let sleep = sleep_of_its_own(1);
    let workflow =
        format!("tasks: {{ slow: {{ timeout: 1s, flow: {{ nap: {{ script: {sleep} }} }} }} }}");
    let folder = folder_with("slow.yaml", &workflow);
    let run = typed_in(folder.path(), &["run", "slow.yaml"]);
    assert_eq!(run.code, Some(12), "{run:?}");
    assert_eq!(processes(&sleep), [0; 0]);
}

#[test]
fn a_job_of_this_process_ends_with_the_patience_for_it() {
    let sleep = sleep_of_its_own(2);
    let workflow = format!("tasks: {{ slow: {{ flow: {{ nap: {{ script: {sleep} }} }} }} }}");
    let folder = folder_with("slow.yaml", &workflow);
    let run = typed_in(folder.path(), &["run", "slow.yaml", "--timeout", "1s"]);
    assert_eq!(run.code, Some(124), "{run:?}");
    assert!(
        run.stderr.contains("runs in this process and is cancelled"),
        "{run:?}"
    );
    assert_eq!(processes(&sleep), [0; 0]);
}

#[test]
fn a_signal_cancels_a_job_of_this_process() {
    let sleep = sleep_of_its_own(3);
    let workflow = format!("tasks: {{ slow: {{ flow: {{ nap: {{ script: {sleep} }} }} }} }}");
    for signal in [Signal::INT, Signal::TERM] {
        let folder = folder_with("slow.yaml", &workflow);
        let mut child = command(folder.path(), &["run", "slow.yaml"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        await_that("it sleeps", || {
            (!processes(&sleep).is_empty()).then_some(())
        });
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = await_that("the run ends", || child.try_wait().unwrap());
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(status.code(), Some(130), "{said}");
        assert!(
            said.contains("cancelling; once more to stop at once"),
            "{said}"
        );
        assert!(said.contains("⊘ cancelled"), "{said}");
        assert_eq!(processes(&sleep), [0; 0]);
    }
}

#[test]
fn what_is_kept_can_be_looked_at_later() {
    let folder = folder_with("hello.yaml", HELLO);
    for _ in 0..2 {
        let run = typed_in(folder.path(), &["run", "hello.yaml", "--data", "kept"]);
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    crate::house::check_database(&folder.path().join("kept"));
    let run = typed_in(
        folder.path(),
        &["run", "hello.yaml", "--data", "kept", "--json"],
    );
    assert_eq!(lines_of_json(&run).last().unwrap()["job"]["id"], 3);
}

#[test]
fn hooks_are_not_cut_off_by_the_end_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let workflow = format!(
        "
actions:
  note: {{ script: 'sleep 0.3; touch {path}/noted' }}
tasks:
  a:
    on_error: [{{ action: note }}]
    flow: {{ s: {{ script: exit 1 }} }}
"
    );
    fs::write(folder.path().join("a.yaml"), workflow).unwrap();
    let run = typed_in(folder.path(), &["run", "a.yaml"]);
    assert_eq!(run.code, Some(10), "{run:?}");
    assert!(Path::new(&format!("{path}/noted")).exists(), "{run:?}");
}

const SERVED: &str = "
tasks:
  hello:
    input: { name: { type: string, default: world }, version: { type: string } }
    flow:
      greet: { script: 'echo hello $INPUT_NAME' }
  broken:
    flow:
      test: { script: 'echo testing; exit 2' }
  nap:
    flow:
      rest: { script: 'SLEEP' }
  loops:
    flow:
      each: { for_each: [1, 2, 3], script: 'echo item $EACH_ITEM; test $EACH_ITEM != 2' }
  parent:
    flow:
      call: { type: task, task: broken }
  flaky:
    flow:
      once: { script: 'echo trying; test -e LEDGER || { touch LEDGER; exit 5; }', retry: { max_attempts: 2, delay: 0s } }
";

#[test]
fn a_run_at_a_server_ends_as_its_job_does() {
    let mut house = House::with(SERVED);
    let _worker = house.worker(2);
    let run = typed(&house, &["run", "hello", "-i", "version=1.10"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let url = house.url();
    assert!(
        run.stderr
            .starts_with(&format!("hello · job 1 · at {url}\n")),
        "{run:?}"
    );
    let input = serde_json::to_value(house.job(1).input).unwrap();
    assert_eq!(input, json!({"name": "world", "version": "1.10"}));

    let run = typed(&house, &["run", "broken"]);
    assert_eq!(run.code, Some(10), "{run:?}");
    for next in [
        "stepward why 2\n",
        "stepward logs 2 test\n",
        "stepward retry 2\n",
    ] {
        assert!(run.stderr.contains(next), "{run:?}");
    }
    // Whoever named the server has to name it again.
    let folder = tempfile::tempdir().unwrap();
    let run = typed_in(folder.path(), &["run", "broken", "--server", &url]);
    assert_eq!(run.code, Some(10), "{run:?}");
    assert!(
        run.stderr
            .contains(&format!("stepward why 3 --server {url}\n")),
        "{run:?}"
    );

    let run = typed(&house, &["run", "helo"]);
    assert_eq!(run.code, Some(5), "{run:?}");
    assert!(run.stderr.contains("did you mean hello?"), "{run:?}");
    let run = typed(&house, &["run", "hello", "-i", "nam=x"]);
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(run.stderr.contains("did you mean name?"), "{run:?}");
    house.check();
}

#[test]
fn the_cause_of_a_failure_is_found_where_it_is() {
    let mut house = House::with(SERVED);
    let _worker = house.worker(2);
    let run = typed(&house, &["run", "loops"]);
    assert_eq!(run.code, Some(10), "{run:?}");
    assert!(
        run.stderr.contains("  each[1] · 1 line\n    1   item 2\n"),
        "{run:?}"
    );
    assert!(
        run.stderr.contains("stepward logs 1 'each[1]'\n"),
        "{run:?}"
    );
    let run = typed(&house, &["run", "parent"]);
    assert_eq!(run.code, Some(10), "{run:?}");
    assert!(
        run.stderr
            .contains("  job 3 test · 1 line\n    1   testing\n"),
        "{run:?}"
    );
    assert!(run.stderr.contains("stepward logs 3 test\n"), "{run:?}");
    assert!(run.stderr.contains("stepward why 2\n"), "{run:?}");
    let run = typed(&house, &["run", "flaky"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let done = run
        .stderr
        .lines()
        .find(|line| line.contains("completed"))
        .unwrap();
    assert!(done.ends_with("try 2 of 2"), "{run:?}");
    house.check();
}

#[test]
fn a_job_can_be_left_to_its_server() {
    let mut house = House::with(SERVED);
    let run = typed(
        &house,
        &[
            "run",
            "hello",
            "--detach",
            "--label",
            "team=data",
            "--priority",
            "-3",
        ],
    );
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "1\n"), "{run:?}");
    let job = house.job(1);
    assert_eq!(job.priority, -3);
    assert_eq!(
        serde_json::to_value(job.labels).unwrap(),
        json!({"team": "data"})
    );
    let again = ["run", "hello", "--detach", "--idempotency-key", "k"];
    assert_eq!(typed(&house, &again).stdout, "2\n");
    assert_eq!(typed(&house, &again).stdout, "2\n");
    let run = typed(&house, &["run", "hello", "--detach", "--json"]);
    assert_eq!(run.json()["id"], 3);

    // Nobody is there to run it: the patience ends, the job does not.
    let run = typed(&house, &["run", "nap", "--timeout", "1s"]);
    assert_eq!(run.code, Some(124), "{run:?}");
    assert!(
        run.stderr
            .contains("the job goes on\n  watch   stepward watch 4\n"),
        "{run:?}"
    );
    let _worker = house.worker(2);
    house.await_step(4, "rest", "running");
    // Somebody else cancels it.
    let mut child = command(house.folder.path(), &["watch", "4"])
        .env("STEPWARD_SERVER_URL", house.url())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("step rest") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    house.cancel(4);
    let status = await_that("the watch ends", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(11));
    house.await_job(3, "completed");
    house.check();
}

#[test]
fn a_server_that_is_not_there_or_does_not_let_us_in_is_told_apart() {
    let folder = folder_with("workflows/all.yaml", HELLO);
    let nowhere = ["run", "hello", "--server", "http://127.0.0.1:9"];
    let run = typed_in(folder.path(), &nowhere);
    assert_eq!(run.code, Some(6), "{run:?}");
    assert!(run.stderr.contains("does not answer"), "{run:?}");
    // Unless this very process is asked for.
    let run = typed_in(
        folder.path(),
        &["run", "hello", "--server", "http://127.0.0.1:9", "--local"],
    );
    assert_eq!(run.code, Some(0), "{run:?}");

    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    let mut permissions = fs::metadata(&token).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    fs::set_permissions(&token, permissions).unwrap();
    let settings = format!("auth: {{ token_file: {} }}", token.display());
    let file = folder.path().join("locked.yaml");
    let data = folder.path().join("data");
    fs::write(
        &file,
        format!(
            "listen: 127.0.0.1:0\ndata_dir: {}\n{settings}\n",
            data.display()
        ),
    )
    .unwrap();
    let mut server = std::process::Command::new(crate::house::BINARY);
    server.args(["server", "--config", file.to_str().unwrap()]);
    let server = crate::house::Process::start("server", server);
    let url = await_that("it listens", || {
        let said = server.said();
        let line = said.lines().find(|line| line.contains("listening on"))?;
        Some(line.rsplit(' ').next()?.to_string())
    });
    let run = typed_in(folder.path(), &["run", "hello", "--server", &url]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.contains("--token-file"), "{run:?}");
    let words = [
        "run",
        "hello",
        "--server",
        &url,
        "--token-file",
        token.to_str().unwrap(),
    ];
    let run = typed_in(folder.path(), &words);
    assert_eq!(run.code, Some(5), "{run:?}");
}

#[test]
fn a_job_that_waits_for_a_decision_says_how_to_give_it() {
    let workflow = "
tasks:
  gated:
    flow:
      gate: { type: approval, message: ship it? }
      ship: { depends_on: [gate], script: echo shipped }
";
    let folder = folder_with("gated.yaml", workflow);
    let mut child = command(folder.path(), &["run", "gated.yaml"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    let decide = loop {
        let mut line = String::new();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "{said}");
        said.push_str(&line);
        if let Some((_, how)) = line.split_once("somebody must decide: stepward ") {
            break how.split(',').next().unwrap().to_string();
        }
    };
    // The very words that it said.
    let words: Vec<&str> = decide.split_whitespace().collect();
    let approved = typed_in(folder.path(), &words);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let status = await_that("the run ends", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0), "{said}");
}

#[test]
fn the_report_is_about_the_step_that_the_job_failed_for() {
    let workflow = "
tasks:
  tolerant:
    flow:
      a: { continue_on_failure: true, script: 'echo tolerated; exit 3' }
      z: { depends_on: [{ step: a, accept: terminal }], script: 'echo the real one; exit 5' }
";
    let mut house = House::with(workflow);
    let _worker = house.worker(1);
    let run = typed(&house, &["run", "tolerant"]);
    assert_eq!(run.code, Some(10), "{run:?}");
    assert!(run.stderr.contains("  z · 1 line\n"), "{run:?}");
    assert!(run.stderr.contains("stepward logs 1 z\n"), "{run:?}");
    assert!(!run.stderr.contains("tolerated"), "{run:?}");
    house.check();
}

#[test]
fn only_hooks_of_this_very_job_are_waited_for_and_those_that_fail_are_told() {
    let workflow = "
actions:
  tell: { script: exit 7 }
tasks:
  old:
    flow: { gate: { type: approval } }
  new:
    on_success: [{ action: tell }]
    flow: { call: { type: task, task: called } }
  called:
    on_success: [{ action: tell }]
    flow: { s: { script: exit 0 } }
";
    let folder = folder_with("all.yaml", workflow);
    let words = ["run", "all.yaml", "--data", "kept", "--task", "old"];
    let mut child = command(folder.path(), &words)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("somebody must decide") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The old job is still in the folder, and waits for a person.
    let words = ["run", "all.yaml", "--data", "kept", "--task", "new"];
    let run = typed_in(folder.path(), &words);
    assert_eq!(run.code, Some(0), "{run:?}");
    let failed: Vec<&str> = (run.stderr.lines())
        .filter(|line| line.starts_with("stepward: the hook on_success failed: job "))
        .collect();
    assert_eq!(failed.len(), 2, "{run:?}");
    assert!(
        failed[0].ends_with("of task hook.tell: step tell failed: exit code 7"),
        "{run:?}"
    );
}

#[test]
fn a_signal_to_a_process_and_to_its_group_is_one() {
    let sleep = sleep_of_its_own(5);
    let workflow = format!("tasks: {{ slow: {{ flow: {{ nap: {{ script: {sleep} }} }} }} }}");
    let folder = folder_with("slow.yaml", &workflow);
    let mut child = command(folder.path(), &["run", "slow.yaml"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    await_that("it sleeps", || {
        (!processes(&sleep).is_empty()).then_some(())
    });
    let pid = Pid::from_child(&child);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    kill_process(pid, Signal::TERM).unwrap();
    while !said.contains("cancelling") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    // The process is gone already on a slow day.
    let _ = kill_process(pid, Signal::TERM);
    stderr.read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("slow · job 1 · ⊘ cancelled"), "{said}");
    assert_eq!(processes(&sleep), [0; 0]);
}

#[test]
fn who_waits_for_a_step_that_does_not_want_to_end_is_told_so() {
    let sleep = sleep_of_its_own(6);
    let workflow = format!(
        "tasks: {{ slow: {{ flow: {{ stubborn: {{ script: \"trap '' TERM; {sleep} & wait; wait\" }} }} }} }}"
    );
    let folder = folder_with("slow.yaml", &workflow);
    let settings = "recovery: { cancel_grace_secs: 2 }\n";
    fs::write(folder.path().join("stepward.yaml"), settings).unwrap();
    let mut child = command(folder.path(), &["run", "slow.yaml"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    await_that("it sleeps", || {
        (!processes(&sleep).is_empty()).then_some(())
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(
        said.contains(" s for step stubborn to end; once more to stop at once\n"),
        "{said}"
    );
    assert_eq!(processes(&sleep), [0; 0]);
}

#[test]
fn a_file_that_is_called_like_a_task_does_not_hide_it() {
    let folder = folder_with("workflows/all.yaml", HELLO);
    fs::write(folder.path().join("hello"), "no workflow at all").unwrap();
    let run = typed_in(folder.path(), &["run", "hello"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    fs::write(folder.path().join("other"), HELLO).unwrap();
    let run = typed_in(folder.path(), &["run", "other"]);
    assert_eq!(run.code, Some(5), "{run:?}");
    assert!(run.stderr.contains("the file is ./other"), "{run:?}");
    let run = typed_in(folder.path(), &["run", "./other", "--task", "hello"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    // Without a folder of workflows, too.
    fs::remove_dir_all(folder.path().join("workflows")).unwrap();
    let run = typed_in(folder.path(), &["run", "other"]);
    assert_eq!(run.code, Some(5), "{run:?}");
    assert!(run.stderr.contains("the file is ./other"), "{run:?}");
}

#[test]
fn what_is_wrong_is_said_once_and_with_the_flag_that_mends_it() {
    let folder = folder_with("hello.yaml", HELLO);
    fs::create_dir(folder.path().join("data")).unwrap();
    fs::write(
        folder.path().join("data/stepward.db"),
        "rubbish".repeat(999),
    )
    .unwrap();
    let words = ["run", "hello.yaml", "--task", "hello", "--data", "data"];
    let run = typed_in(folder.path(), &words);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(
        run.stderr.contains("choose another folder with --data\n"),
        "{run:?}"
    );
    let dev = typed_in(folder.path(), &["dev", "--port", "0", "--data-dir", "data"]);
    assert_eq!(dev.code, Some(1), "{dev:?}");
    assert!(
        dev.stderr
            .contains("choose another folder with --data-dir\n"),
        "{dev:?}"
    );

    let words = [
        "run",
        "hello.yaml",
        "--task",
        "hello",
        "--data",
        "hello.yaml/below",
    ];
    let run = typed_in(folder.path(), &words);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_eq!(run.stderr.matches("os error").count(), 1, "{run:?}");

    std::os::unix::fs::symlink("loop.yaml", folder.path().join("loop.yaml")).unwrap();
    let run = typed_in(folder.path(), &["run", "loop.yaml"]);
    assert_eq!(run.code, Some(5), "{run:?}");
    assert!(!run.stderr.contains("did you mean"), "{run:?}");
    // These take a job; no server is needed to say so.
    for verb in ["watch", "wait", "cancel", "retry"] {
        let typed = typed_in(folder.path(), &[verb, "1/c"]);
        assert_eq!(typed.code, Some(2), "{typed:?}");
        assert!(typed.stderr.contains("1/c names a step"), "{typed:?}");
    }
}

#[test]
fn lines_say_why_a_step_waits() {
    let workflow = "tasks: { train: { flow: { fit: { script: echo fits, tags: [gpu] } } } }";
    let mut house = House::with(workflow);
    let _worker = house.worker(1);
    let mut child = command(house.folder.path(), &["run", "train"])
        .env("STEPWARD_SERVER_URL", house.url())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    let line = loop {
        let mut line = String::new();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "{said}");
        said.push_str(&line);
        if line.contains("step fit") {
            break line;
        }
    };
    assert!(line.contains("Z step fit  ● ready  "), "{said}");
    assert!(line.contains("gpu"), "{said}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert_eq!(
        said.matches("step fit").count(),
        1,
        "once is enough: {said}"
    );
}

const FAMILY: &str = "
tasks:
  parent:
    flow:
      a: { script: 'echo from a; echo complaint >&2' }
      k: { type: task, task: child, depends_on: [a] }
  child:
    flow:
      x: { script: echo from x }
  alone: { flow: { only: { script: 'echo first; exit 3' } } }
  many: { flow: { each: { type: task, task: child, for_each: '{{ range(50) | list }}' } } }
";

#[test]
fn what_steps_print_is_printed_while_they_do_if_somebody_wants_it() {
    let folder = folder_with("family.yaml", FAMILY);
    let run = |words: &[&str]| typed_in(folder.path(), &[&["run", "family.yaml"], words].concat());
    let whole = run(&["--task", "parent", "--logs"]);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    assert_eq!(whole.stdout, "a | from a\na | complaint\nk/x | from x\n");
    assert!(whole.stderr.contains("step k  ✔ completed"), "{whole:?}");
    let alone = run(&["--task", "alone", "--logs", "--progress", "none"]);
    assert_eq!(alone.code, Some(10), "{alone:?}");
    assert_eq!(alone.stdout, "first\n");
    assert!(
        alone.stderr.contains("because  step only failed"),
        "{alone:?}"
    );
    for wrong in ["--json", "--detach", "--output"] {
        let refused = run(&["--task", "alone", "--logs", wrong]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
    }

    // Many children are followed one after another, and none is left out.
    let many = run(&[
        "--task",
        "many",
        "--logs",
        "--progress",
        "none",
        "--slots",
        "4",
    ]);
    assert_eq!(many.code, Some(0), "{many:?}");
    let mut lines: Vec<&str> = many.stdout.lines().collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 50, "{many:?}");

    let mut house = House::with(FAMILY);
    let _worker = house.worker(1);
    let there = typed(&house, &["run", "parent", "--logs"]);
    assert_eq!(there.code, Some(0), "{there:?}");
    assert_eq!(there.stdout, whole.stdout);
    let again = typed(&house, &["watch", "1", "--logs"]);
    assert_eq!(again.stdout, whole.stdout, "{again:?}");
    house.check();
}

#[test]
fn colours_of_what_failed_are_no_rubbish() {
    let workflow =
        "tasks: { red: { flow: { a: { script: 'printf \"\\033[31mbad\\n\"; exit 1' } } } }";
    let folder = folder_with("red.yaml", workflow);
    let run = typed_in(folder.path(), &["run", "red.yaml"]);
    assert_eq!(run.code, Some(10), "{run:?}");
    assert!(run.stderr.contains("    1   bad\n"), "{run:?}");
    let run = typed_in(folder.path(), &["run", "red.yaml", "--color", "always"]);
    assert!(run.stderr.contains("\x1b[31mbad\x1b[0m\n"), "{run:?}");
}

#[test]
fn a_task_runs_here_although_another_file_does_not_load() {
    let folder = folder_with(
        "workflows/good.yaml",
        "tasks: { good: { flow: { a: { script: echo } } } }",
    );
    std::fs::write(
        folder.path().join("workflows/bad.yaml"),
        "tasks: { bad: { flow: { a: { scrpt: x } } } }",
    )
    .unwrap();
    let run = typed_in(folder.path(), &["run", "good"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let told = "stepward: workflows/bad.yaml does not load and is left out, `stepward validate workflows` says why\n";
    assert!(run.stderr.starts_with(told), "{run:?}");
    let run = typed_in(folder.path(), &["run", "bad"]);
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(run.stderr.contains("unknown key `scrpt`"), "{run:?}");
}

#[test]
fn whoever_had_a_server_is_told_that_it_has_ended() {
    let folder = crate::cli_dev::project();
    let dev = crate::cli_dev::Dev::start(folder.path(), &["--no-worker"]);
    dev.process.signal(rustix::process::Signal::KILL);
    await_that("it is gone", || (!dev.process.is_alive()).then_some(()));
    let run = typed_in(folder.path(), &["run", "hello"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("has ended"), "{run:?}");
    assert!(
        run.stderr
            .contains("this runs here, and nothing of it is kept"),
        "{run:?}"
    );
    let detached = typed_in(folder.path(), &["run", "hello", "--detach"]);
    assert_eq!(detached.code, Some(6), "{detached:?}");
    assert!(detached.stderr.contains("has ended"), "{detached:?}");
}

/// What a step prints while it is ended belongs to what it printed.
#[test]
fn the_last_words_of_what_is_cancelled_are_printed() {
    let workflow = "
tasks:
  tidy:
    flow:
      a: { script: \"trap 'echo cleaning; sleep 0.3; echo cleaned; exit 1' TERM; echo begun; while true; do sleep 0.05; done\" }
";
    let folder = folder_with("tidy.yaml", workflow);
    let run = typed_in(
        folder.path(),
        &["run", "tidy.yaml", "--logs", "--timeout", "1"],
    );
    assert_eq!(run.code, Some(124), "{run:?}");
    assert!(run.stdout.starts_with("begun\n"), "{run:?}");
    assert!(
        run.stdout.contains("cleaning\n") && run.stdout.ends_with("cleaned\n"),
        "{run:?}"
    );

    let mut house = House::with(workflow);
    let _worker = house.worker(1);
    let job_id = house.submit("tidy");
    house.await_log_line(job_id, "a", "begun");
    let mut follow = crate::typed::command(house.folder.path(), &["logs", "-f", "1"]);
    follow.env("STEPWARD_SERVER_URL", house.url());
    let follow = follow.stdout(std::process::Stdio::piped()).spawn().unwrap();
    house.cancel(job_id);
    let ended = follow.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stdout);
    assert!(
        printed.contains("cleaning\n") && printed.ends_with("cleaned\n"),
        "{printed}"
    );
    house.check();
}

#[test]
fn a_server_that_is_away_right_after_it_took_the_job_is_waited_for() {
    let mut house = House::with("tasks: { one: { flow: { a: { script: echo printed } } } }");
    let _worker = house.worker(1);
    let proxy = crate::proxy::Proxy::start(&house.url(), |path, n| {
        match path.starts_with("/api/jobs/") && n < 12 || path.starts_with("/api/events") {
            true => crate::proxy::Fate::BadGateway,
            false => crate::proxy::Fate::Pass,
        }
    });
    let words = ["run", "one", "--logs", "--server", &proxy.url];
    let run = typed_in(house.folder.path(), &words);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.stdout, "printed\n", "{run:?}");
    house.check();
}
