//! A cancelled job ends at once, and its processes soon, whatever its worker does.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::house::{House, PATIENT, SETTINGS, Worker, await_that};

/// One step that runs until somebody ends it.
const LONG: &str = "
tasks:
  long:
    flow:
      work: { script: SLEEP }
";

/// One that is tried again when its worker is lost: there is something to cancel after that, too.
const LONG_AGAIN: &str = "
tasks:
  long:
    flow:
      work: { script: SLEEP, on_worker_loss: retry }
";

/// Whoever waits for the end of the grace is found out.
fn long_grace() -> String {
    PATIENT.replace("cancel_grace_secs: 2", "cancel_grace_secs: 30")
}

/// With a worker that is in the middle of the step.
fn at_work(workflows: &str, settings: &str) -> (House, Worker, i64) {
    let mut house = House::with_settings(workflows, settings);
    let worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_asleep(1);
    (house, worker, job_id)
}

/// Its second attempt runs, and of its first one nothing is left.
fn await_second_attempt(house: &House, job_id: i64) {
    await_that("the second attempt runs", || {
        let step = house.step(job_id, "work");
        ((step.attempt, step.status.as_str()) == (2, "running")).then_some(())
    });
    house.await_asleep(1);
}

/// Neither by the next heartbeat, nor when the grace is over.
fn assert_stopped_at_once(house: &House, job_id: i64) {
    let begun = Instant::now();
    house.cancel(job_id);
    house.await_job(job_id, "cancelled");
    house.await_nobody_asleep();
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_running_process_is_stopped_at_once() {
    let workflows = LONG.replace("SLEEP", "'(setsid SLEEP &); SLEEP'");
    let mut house = House::with_settings(&workflows, &long_grace());
    let _worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_asleep(2);
    assert_stopped_at_once(&house, job_id);
    house.await_log_line(job_id, "work", "stopped: 3 processes killed, none left");
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "job_cancelled 1 cancelled_by_user",
    ]);
}

#[test]
fn a_process_that_ignores_the_first_word_is_killed_after_the_grace() {
    let workflows = LONG.replace("SLEEP", "\"trap '' TERM; SLEEP & SLEEP\"");
    let mut house = House::with_settings(&workflows, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_asleep(2);
    let begun = Instant::now();
    house.cancel(job_id);
    house.await_job(job_id, "cancelled");
    assert_eq!(house.asleep().len(), 2, "the job has ended, they have not");
    house.await_nobody_asleep();
    assert!(
        begun.elapsed() >= Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    house.await_log_line(job_id, "work", "stopped: 3 processes killed, none left");
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "job_cancelled 1 cancelled_by_user",
    ]);
}

#[test]
fn a_cancel_ends_when_the_worker_is_silent() {
    let (house, worker, job_id) = at_work(LONG, SETTINGS);
    worker.signal(Signal::STOP);
    worker.process().await_standstill();
    house.cancel(job_id);
    house.await_job(job_id, "cancelled");
    house.await_worker("w1", "inactive");
    assert_eq!(house.asleep().len(), 1, "nobody could end it");
    worker.signal(Signal::CONT);
    house.await_nobody_asleep();
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "job_cancelled 1 cancelled_by_user",
        "worker_inactive(1) w1",
        "worker_active w1",
    ]);
}

#[test]
fn a_cancel_ends_when_the_worker_is_dead() {
    let (house, mut worker, job_id) = at_work(LONG, SETTINGS);
    worker.kill();
    house.cancel(job_id);
    house.await_job(job_id, "cancelled");
    house.await_nobody_asleep();
    // The job stays as it is when its worker is given up.
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "job_cancelled 1 cancelled_by_user",
        "worker_inactive(1) w1",
    ]);
}

#[test]
fn a_cancel_ends_when_the_worker_restarts_after_it() {
    let (house, mut worker, job_id) = at_work(LONG, PATIENT);
    worker.kill();
    house.cancel(job_id);
    house.await_job(job_id, "cancelled");
    worker.start();
    house.await_nobody_asleep();
    let end = "the worker died: 2 processes were killed, none is left";
    house.await_log_line(job_id, "work", end);
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "job_cancelled 1 cancelled_by_user",
        "worker_restarted w1",
    ]);
}

#[test]
fn a_cancel_ends_when_the_worker_has_restarted() {
    let (house, mut worker, job_id) = at_work(LONG_AGAIN, &long_grace());
    worker.kill_and_restart();
    await_second_attempt(&house, job_id);
    assert_stopped_at_once(&house, job_id);
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "step_retried 1/work/1 worker_restarted w1",
        "worker_restarted w1",
        "job_cancelled 1 cancelled_by_user",
    ]);
}

#[test]
fn a_cancel_ends_when_the_worker_is_deleted_after_it() {
    let (house, worker, job_id) = at_work(LONG, PATIENT);
    let worker_id = house.workers()[0].id;
    // It cannot hear of the cancel before it is nobody's worker.
    worker.signal(Signal::STOP);
    worker.process().await_standstill();
    house.cancel(job_id);
    house.await_job(job_id, "cancelled");
    assert_eq!(
        house.delete_worker(worker_id, false),
        200,
        "it holds nothing"
    );
    assert_eq!(house.asleep().len(), 1, "nobody could end it");
    worker.signal(Signal::CONT);
    house.await_nobody_asleep();
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "job_cancelled 1 cancelled_by_user",
        "worker_deleted w1",
        "worker_registered w1",
    ]);
}

#[test]
fn a_cancel_ends_when_the_worker_has_been_deleted() {
    let (house, _worker, job_id) = at_work(LONG_AGAIN, &long_grace());
    let worker_id = house.workers()[0].id;
    assert_eq!(house.delete_worker(worker_id, true), 200);
    await_second_attempt(&house, job_id);
    assert_stopped_at_once(&house, job_id);
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "worker_deleted w1",
        "step_retried 1/work/1 worker_deleted w1",
        "worker_registered w1",
        "job_cancelled 1 cancelled_by_user",
    ]);
}

#[test]
fn a_step_past_its_timeout_is_ended_by_its_worker() {
    let workflows = LONG.replace("SLEEP", "SLEEP, timeout: 1s");
    let (house, _worker, job_id) = at_work(&workflows, PATIENT);
    let job = house.await_job(job_id, "failed");
    assert_eq!(
        job.steps.unwrap()[0].reason.as_deref(),
        Some("step_timeout")
    );
    house.await_nobody_asleep();
    house.await_log_line(job_id, "work", "stopped: 2 processes killed, none left");
    // Its worker and the server count to the same second: who of them says so first is open.
    let story = house
        .story()
        .join("\n")
        .replace("step_failed(2)", "step_failed");
    let expected = [
        "worker_registered w1",
        "job_submitted 1",
        "step_failed 1/work/1 step_timeout w1",
        "job_failed 1 step_timeout",
    ];
    assert_eq!(story, expected.join("\n"));
    house.check();
}
