//! Workers that are told to stop: once, twice, or by the server.

use rustix::process::Signal;

use crate::house::{House, await_that, processes};

#[test]
fn a_worker_told_to_stop_finishes_what_it_runs_and_takes_nothing_new() {
    let workflows = "
tasks:
  gated:
    flow:
      work: { script: 'while [ ! -e LEDGER.gate ]; do sleep 0.05; done' }
";
    let mut house = House::with(workflows);
    let mut worker = house.worker(2);
    let running = house.submit("gated");
    house.await_step(running, "work", "running");
    worker.signal(Signal::TERM);
    await_that("the server knows", || {
        house.workers()[0].draining.then_some(())
    });
    let waiting = house.submit("gated");
    std::fs::write(house.path("ledger.gate"), "").unwrap();
    assert!(worker.wait(), "a drained worker ends well");
    house.await_job(running, "completed");
    assert_eq!(house.step(waiting, "work").status, "ready");
    worker.start();
    house.await_job(waiting, "completed");
    house.check();
}

#[test]
fn a_worker_told_twice_ends_what_it_runs_and_says_so() {
    let workflows = "tasks:\n  long:\n    flow:\n      work: { script: sleep 870010 }\n";
    let mut house = House::with(workflows);
    let mut worker = house.worker(1);
    let job_id = house.submit("long");
    await_that("it sleeps", || {
        (!processes("sleep 870010").is_empty()).then_some(())
    });
    worker.signal(Signal::TERM);
    await_that("the server knows", || {
        house.workers()[0].draining.then_some(())
    });
    assert!(worker.process().is_alive(), "it waits for its step");
    worker.signal(Signal::TERM);
    assert!(worker.wait());
    let job = house.await_job(job_id, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(step.reason.as_deref(), Some("worker_shutdown"));
    assert!(processes("sleep 870010").is_empty());
    house.check();
}

#[test]
fn a_worker_that_the_server_drains_leaves_when_it_is_done() {
    let mut house = House::with("tasks:\n  quick:\n    flow:\n      work: { script: 'true' }\n");
    let mut worker = house.worker(1);
    let job_id = house.submit("quick");
    house.await_job(job_id, "completed");
    let id = house.workers()[0].id;
    let _: serde_json::Value = house.post(&format!("/api/workers/{id}/drain")).unwrap();
    assert!(worker.wait(), "it leaves by itself");
    house.check();
}

#[test]
fn what_a_draining_worker_runs_can_be_cancelled_at_once() {
    // Heartbeats are too far apart to tell it.
    let settings = "recovery: { heartbeat_interval_secs: 30, heartbeat_timeout_secs: 120 }";
    let workflows = "tasks:\n  long:\n    flow:\n      work: { script: sleep 870011 }\n";
    let mut house = House::with_settings(workflows, settings);
    let mut worker = house.worker(2);
    let job_id = house.submit("long");
    await_that("it sleeps", || {
        (!processes("sleep 870011").is_empty()).then_some(())
    });
    worker.signal(Signal::TERM);
    await_that("the server knows", || {
        house.workers()[0].draining.then_some(())
    });
    let begun = std::time::Instant::now();
    house.cancel(job_id);
    assert!(worker.wait(), "nothing is left to wait for");
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    assert!(processes("sleep 870011").is_empty());
    house.check();
}

#[test]
fn a_worker_whose_server_is_away_can_be_stopped() {
    let workflows = "tasks:\n  long:\n    flow:\n      work: { script: sleep 870012 }\n";
    let mut house = House::with(workflows);
    let mut worker = house.worker(1);
    let job_id = house.submit("long");
    await_that("it sleeps", || {
        (!processes("sleep 870012").is_empty()).then_some(())
    });
    assert!(house.stop_server());
    worker.signal(Signal::TERM);
    // Two at once would count as one.
    await_that("the first was heard", || {
        worker.process().said().contains("finishing").then_some(())
    });
    worker.signal(Signal::TERM);
    assert!(worker.wait());
    assert!(processes("sleep 870012").is_empty());
    assert_eq!(worker.spooled(), 1, "its next life tells");
    house.start_server();
    worker.start();
    let job = house.await_job(job_id, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(step.reason.as_deref(), Some("worker_shutdown"));
    house.check();
}
