//! Workers that are told to stop: once, twice, or by the server.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::house::{House, PATIENT, await_that};
use crate::ledger::AWAIT_GATE;

const LONG: &str = "tasks:\n  long:\n    flow:\n      work: { script: SLEEP }\n";

fn gated() -> String {
    format!("tasks:\n  gated:\n    flow:\n      work: {{ script: '{AWAIT_GATE}' }}\n")
}

fn await_draining(house: &House) {
    await_that("the server knows", || {
        house.workers()[0].draining.then_some(())
    });
}

#[test]
fn a_worker_told_to_stop_finishes_what_it_runs_and_takes_nothing_new() {
    let mut house = House::with_settings(&gated(), PATIENT);
    let mut worker = house.worker(2);
    let running = house.submit("gated");
    house.await_step(running, "work", "running");
    worker.signal(Signal::TERM);
    await_draining(&house);
    let waiting = house.submit("gated");
    house.open_gate();
    assert!(worker.wait(), "a drained worker ends well");
    house.await_job(running, "completed");
    assert_eq!(house.step(waiting, "work").status, "ready");
    worker.start();
    house.await_job(waiting, "completed");
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "worker_draining w1",
        "job_submitted 2",
        "job_completed 1",
        "worker_restarted w1",
        "job_completed 2",
    ]);
}

#[test]
fn a_worker_told_twice_ends_what_it_runs_and_says_so() {
    let mut house = House::with_settings(LONG, PATIENT);
    let mut worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_asleep(1);
    worker.signal(Signal::TERM);
    await_draining(&house);
    assert!(worker.process().is_alive(), "it waits for its step");
    assert_eq!(house.asleep().len(), 1);
    worker.process().signal_again(Signal::TERM);
    assert!(worker.wait());
    assert!(house.asleep().is_empty());
    house.await_job(job_id, "failed");
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "worker_draining w1",
        "step_failed 1/work/1 worker_shutdown w1",
        "job_failed 1 worker_shutdown",
    ]);
}

#[test]
fn a_worker_that_the_server_drains_leaves_when_it_is_done() {
    let mut house = House::with_settings(&gated(), PATIENT);
    let mut worker = house.worker(1);
    let job_id = house.submit("gated");
    house.await_step(job_id, "work", "running");
    let id = house.workers()[0].id;
    let _: serde_json::Value = house.post(&format!("/api/workers/{id}/drain")).unwrap();
    await_draining(&house);
    assert!(worker.process().is_alive(), "it waits for its step");
    house.open_gate();
    assert!(worker.wait(), "it leaves by itself");
    house.await_job(job_id, "completed");
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "worker_draining w1",
        "job_completed 1",
    ]);
}

#[test]
fn what_a_draining_worker_runs_can_be_cancelled_at_once() {
    let mut house = House::with_settings(LONG, PATIENT);
    let mut worker = house.worker(2);
    let job_id = house.submit("long");
    house.await_asleep(1);
    worker.signal(Signal::TERM);
    await_draining(&house);
    let begun = Instant::now();
    house.cancel(job_id);
    assert!(worker.wait(), "nothing is left to wait for");
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    assert!(house.asleep().is_empty());
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "worker_draining w1",
        "job_cancelled 1 cancelled_by_user",
    ]);
}

#[test]
fn a_worker_whose_server_is_away_can_be_stopped() {
    let mut house = House::with_settings(LONG, PATIENT);
    let mut worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_asleep(1);
    assert!(house.stop_server());
    worker.signal(Signal::TERM);
    // Two at once would count as one.
    await_that("the first was heard", || {
        worker.process().said().contains("finishing").then_some(())
    });
    worker.process().signal_again(Signal::TERM);
    assert!(worker.wait());
    assert!(house.asleep().is_empty());
    assert_eq!(worker.spooled(), 1, "its next life tells");
    house.start_server();
    worker.start();
    house.await_job(job_id, "failed");
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "step_failed 1/work/1 worker_shutdown w1",
        "worker_restarted w1",
        "job_failed 1 worker_shutdown",
    ]);
}
