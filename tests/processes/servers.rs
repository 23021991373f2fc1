//! Servers that die, are stopped, or are away for longer than a worker may be silent.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use stepward::client::CallError;
use stepward::wire::api::{JobJson, SubmitRequest};

use crate::house::{House, await_that};
use crate::ledger::{self, BEGIN, END};

#[test]
fn a_server_killed_under_load_loses_nothing_that_it_had_said_yes_to() {
    let workflows = format!(
        "tasks:
  pair:
    flow:
      one: {{ script: '{BEGIN}; sleep 0.1; {END}' }}
      two: {{ script: '{BEGIN}; {END}', depends_on: [one] }}
"
    );
    let mut house = House::with(&workflows);
    let _workers = [house.worker(4), house.worker(4)];
    let mut accepted = BTreeSet::new();
    for round in 0..4 {
        for _ in 0..8 {
            let request = SubmitRequest::default();
            let path = "/api/tasks/pair/jobs";
            let timeout = Duration::from_secs(5);
            match house.client.post::<_, JobJson>(path, &request, timeout) {
                Ok(job) => drop(accepted.insert(job.id)),
                // It may or may not have happened.
                Err(CallError::Unreachable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        await_that("some steps have begun", || {
            let begun = house.read("ledger").lines().count();
            (begun > round * 6).then_some(())
        });
        house.kill_server();
        house.start_server();
    }
    for job_id in accepted {
        house.await_job(job_id, "completed");
    }
    let lives = ledger::lives(&house);
    assert!(!lives.is_empty());
    for (attempt, life) in &lives {
        assert_eq!(*life, (1, 1), "{attempt}");
        assert!(attempt.ends_with("/1"), "nothing ran twice: {attempt}");
    }
    house.check();
}

#[test]
fn a_server_that_was_away_for_longer_than_a_worker_may_be_silent_fails_nothing() {
    let workflows = format!(
        "tasks:
  long:
    flow:
      work: {{ script: '{BEGIN}; while [ ! -e LEDGER.gate ]; do sleep 0.05; done; {END}' }}
"
    );
    let mut house = House::with(&workflows);
    let _worker = house.worker(2);
    let waiting = house.submit("long");
    let ending = house.submit("long");
    house.await_step(waiting, "work", "running");
    house.await_step(ending, "work", "running");
    assert!(house.stop_server());
    // The time of being away is what this story is about.
    std::thread::sleep(Duration::from_secs(5));
    std::fs::write(house.path("ledger.gate"), "").unwrap();
    await_that("both end while nobody listens", || {
        let lives = ledger::lives(&house);
        (lives.len() == 2 && lives.values().all(|life| *life == (1, 1))).then_some(())
    });
    house.start_server();
    house.await_job(waiting, "completed");
    house.await_job(ending, "completed");
    let told = house.all_events().into_iter();
    let recoveries: Vec<_> = told.filter(|event| event.phase.is_some()).collect();
    assert!(recoveries.is_empty(), "{recoveries:?}");
    house.check();
}

#[test]
fn a_server_that_was_frozen_gives_nobody_up() {
    let mut house = House::with("tasks:\n  nap:\n    flow:\n      work: { script: sleep 6 }\n");
    let _worker = house.worker(1);
    let job_id = house.submit("nap");
    house.await_step(job_id, "work", "running");
    house.server().signal(Signal::STOP);
    // As above.
    std::thread::sleep(Duration::from_secs(5));
    house.server().signal(Signal::CONT);
    house.await_job(job_id, "completed");
    let told = house.all_events().into_iter();
    assert_eq!(told.filter(|event| event.phase.is_some()).count(), 0);
    house.check();
}

#[test]
fn a_server_stops_in_seconds_with_workers_connected_and_their_steps_go_on() {
    let workflows = format!(
        "tasks:
  long:
    flow:
      work: {{ script: '{BEGIN}; while [ ! -e LEDGER.gate ]; do sleep 0.05; done; {END}' }}
"
    );
    let mut house = House::with(&workflows);
    let worker = house.worker(2);
    let job_id = house.submit("long");
    house.await_step(job_id, "work", "running");
    let begun = std::time::Instant::now();
    assert!(house.stop_server());
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert!(worker.process().is_alive());
    house.start_server();
    assert_eq!(house.step(job_id, "work").status, "running");
    std::fs::write(house.path("ledger.gate"), "").unwrap();
    house.await_job(job_id, "completed");
    assert_eq!(ledger::lives(&house)[&format!("{job_id}/work/1")], (1, 1));
    house.check();
}

#[test]
fn a_second_server_on_the_same_folder_and_one_on_a_taken_port_are_refused_in_one_line() {
    let house = House::with("tasks: {}");
    let refused = |arguments: &[&str]| {
        let ended = std::process::Command::new(crate::house::BINARY)
            .arg("server")
            .args(arguments)
            .output()
            .unwrap();
        assert!(!ended.status.success());
        String::from_utf8(ended.stderr).unwrap()
    };
    let data = house.path("data");
    let data = data.to_str().unwrap();
    let said = refused(&["--listen", "127.0.0.1:0", "--data-dir", data]);
    assert!(said.contains("in use by another server"), "{said}");
    let address = house.url();
    let address = address.strip_prefix("http://").unwrap();
    let other = house.path("other");
    let said = refused(&["--listen", address, "--data-dir", other.to_str().unwrap()]);
    assert!(said.contains("cannot listen on"), "{said}");
    let said = refused(&[
        "--listen",
        "0.0.0.0:0",
        "--data-dir",
        other.to_str().unwrap(),
    ]);
    assert!(said.contains("auth.token_file"), "{said}");
    house.check();
}

#[test]
fn a_server_with_a_worker_of_its_own_runs_steps_and_takes_them_along_when_it_stops() {
    let settings =
        "embedded_worker: { name: inside, slots: 2 }\nrecovery: { cancel_grace_secs: 1 }";
    let workflows = "
tasks:
  quick:
    flow:
      work: { script: echo hello }
  long:
    flow:
      work: { script: sleep 870030 }
";
    let mut house = House::with_settings(workflows, settings);
    house.await_worker("inside", "active");
    let quick = house.submit("quick");
    house.await_job(quick, "completed");
    assert_eq!(house.log_lines(quick, "work")[0], "hello");
    let long = house.submit("long");
    await_that("it sleeps", || {
        (!crate::house::processes("sleep 870030").is_empty()).then_some(())
    });
    assert!(house.stop_server());
    assert!(crate::house::processes("sleep 870030").is_empty());
    house.start_server();
    let job = house.await_job(long, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(step.reason.as_deref(), Some("worker_shutdown"));
    house.check();
}

#[test]
fn whoever_has_no_token_is_not_let_in() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "0123456789abcdef0123\n").unwrap();
    let settings = format!("auth: {{ token_file: {} }}", token_file.display());
    let house = House::with_settings("tasks: {}", &settings);
    let timeout = Duration::from_secs(5);
    let _: serde_json::Value = house.client.get("/healthz", timeout).unwrap();
    let refused = house.client.get::<serde_json::Value>("/api/jobs", timeout);
    assert!(matches!(
        refused,
        Err(CallError::Refused { status: 401, .. })
    ));
    let wrong = stepward::client::Client::new(&house.url(), Some("0123456789abcdef0124"));
    let refused = wrong.get::<serde_json::Value>("/api/jobs", timeout);
    assert!(matches!(
        refused,
        Err(CallError::Refused { status: 401, .. })
    ));
    let known = stepward::client::Client::new(&house.url(), Some("0123456789abcdef0123"));
    let _: serde_json::Value = known.get("/api/jobs", timeout).unwrap();
    let mut command = std::process::Command::new(crate::house::BINARY);
    command.args(["worker", "--server", &house.url(), "--data-dir"]);
    command.arg(folder.path().join("worker"));
    command.env("STEPWARD_TOKEN", "0123456789abcdef0123");
    let worker = crate::house::Process::start("w", command);
    await_that("the worker is let in", || {
        worker.said().contains("session opened").then_some(())
    });
    house.check();
}
