//! Somebody puts an older copy of the data folder in place while workers go on: nothing that they have to report is lost.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::house::{BINARY, House, PATIENT, Process, await_that};
use crate::typed::typed;

const WORK: &str = "
tasks:
  gated:
    flow:
      wait: { script: 'echo begun; while [ ! -e LEDGER.gate ]; do sleep 0.05; done; echo through' }
";

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

/// The codes of the problems that `stepward status` shows.
fn problems(house: &House) -> Vec<String> {
    let status = typed(house, &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    let problems = status["problems"].as_array().unwrap().iter();
    let codes = problems.map(|problem| problem["code"].as_str().unwrap().to_string());
    codes.collect()
}

#[test]
fn a_worker_notices_that_the_database_was_rolled_back_and_keeps_its_result() {
    let mut house = House::with_settings(WORK, PATIENT);
    let (data, early, late) = (house.path("data"), house.path("early"), house.path("late"));
    house.stop_server();
    copy(&data, &early);
    house.start_server();
    let mut worker = house.worker(1);
    let job = house.submit("gated");
    house.await_log_line(job, "wait", "begun");

    // The copy is whole, with everything that the server wrote beside its database: only the worker knows of the later state.
    house.stop_server();
    std::fs::rename(&data, &late).unwrap();
    copy(&early, &data);
    house.start_server();
    await_that("the server shows the problem", || {
        problems(&house)
            .contains(&"database_rolled_back".to_string())
            .then_some(())
    });
    await_that("the worker says so", || {
        let said = worker.process().said();
        said.contains("database was rolled back").then_some(())
    });
    let told = house.all_events();
    assert!(told.iter().any(|event| event.kind == "rollback_noticed"));

    // The step ends. Its result stays with the worker, also when the worker and the server are started again.
    house.open_gate();
    await_that("the result is kept", || {
        (worker.spooled() == 1).then_some(())
    });
    worker.kill_and_restart();
    house.stop_server();
    house.start_server();
    await_that("the problem is there again", || {
        problems(&house)
            .contains(&"database_rolled_back".to_string())
            .then_some(())
    });
    assert_eq!(worker.spooled(), 1);

    // With the later data folder back in its place, the result and the rest of the log arrive.
    house.stop_server();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&late, &data).unwrap();
    house.start_server();
    house.await_job(job, "completed");
    house.await_log_line(job, "wait", "through");
    await_that("the worker has nothing to report", || {
        (worker.spooled() == 0).then_some(())
    });
    assert!(!problems(&house).contains(&"database_rolled_back".to_string()));

    // Rolled back once more, and now a person accepts that. The worker goes on in the new lineage: the next job has the number of
    // the one that is lost, and its log is its own.
    house.stop_server();
    std::fs::remove_dir_all(&data).unwrap();
    copy(&early, &data);
    house.start_server();
    await_that("the problem is there once more", || {
        problems(&house)
            .contains(&"database_rolled_back".to_string())
            .then_some(())
    });
    house.stop_server();
    accept(&data);
    house.start_server();
    house.await_worker("w1", "active");
    await_that("the worker says so", || {
        worker
            .process()
            .said()
            .contains("new lineage")
            .then_some(())
    });
    assert_eq!(house.submit("gated"), job);
    house.await_job(job, "completed");
    let lines = house.log_lines(job, "wait");
    assert_eq!(lines[..2], ["begun", "through"]);
    assert_eq!(lines.len(), 3, "and the exit code: {lines:?}");
    assert!(!problems(&house).contains(&"database_rolled_back".to_string()));
    drop(worker);
    house.check();
}

/// Starts a server once with `--accept-older-database`.
pub fn accept(data: &Path) {
    let mut command = Command::new(BINARY);
    command.args(["server", "--listen", "127.0.0.1:0"]);
    command.arg("--accept-older-database");
    command.arg("--data-dir").arg(data);
    let server = Process::start("accepting", command);
    await_that("it starts", || {
        server.said().contains("listening on").then_some(())
    });
    server.signal(Signal::TERM);
    assert!(server.wait());
}
