//! A real worker and a real server: how many processes run at a time, and what one answer that never comes costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::house::{House, await_that, processes};
use super::proxy::{Fate, Proxy};

const TIMINGS: &str = "recovery:
  heartbeat_interval_secs: 1
  heartbeat_timeout_secs: 3
  sweep_interval_secs: 1
  cancel_grace_secs: 3
";

#[test]
fn a_cancelled_step_in_its_grace_is_not_joined_by_another() {
    let workflows = "tasks:
  deaf:
    flow:
      work: { script: \"trap '' TERM; while :; do sleep 871020; done\" }
  next:
    flow:
      work: { script: 'pgrep -cf \"[s]leep 871020\" > LEDGER || true' }
";
    let mut house = House::with_settings(workflows, TIMINGS);
    let _worker = house.worker(1);
    let deaf = house.submit("deaf");
    await_that("it sleeps", || {
        (!processes("sleep 871020").is_empty()).then_some(())
    });
    let next = house.submit("next");
    house.cancel(deaf);
    house.await_job(deaf, "cancelled");
    assert!(!processes("sleep 871020").is_empty(), "it is in its grace");
    // Long before the poll that waited all the time would have ended by itself.
    let begun = std::time::Instant::now();
    house.await_job(next, "completed");
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    assert_eq!(house.read("ledger").trim(), "0", "it ran alone");
    house.check();
}

#[test]
fn a_heartbeat_that_is_never_answered_does_not_cost_a_worker_its_life() {
    let workflows = "tasks:
  long:
    flow:
      work:
        on_worker_loss: retry
        script: 'while [ ! -e LEDGER ]; do sleep 0.05; done'
";
    // Shorter than a worker would wait for an answer if it did not know, and long enough for a busy machine.
    let timings = TIMINGS.replace("timeout_secs: 3", "timeout_secs: 5");
    let mut house = House::with_settings(workflows, &timings);
    let hung = Arc::new(AtomicU32::new(0));
    let (counted, beats) = (hung.clone(), AtomicU32::new(0));
    let proxy = Proxy::start(&house.url(), move |path, _| {
        let is_beat = path.ends_with("/heartbeat");
        match is_beat && beats.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            true => {
                counted.fetch_add(1, Ordering::Relaxed);
                Fate::Hang
            }
            false => Fate::Pass,
        }
    });
    let _worker = house.worker_with(1, &proxy.url, "");
    let job_id = house.submit("long");
    house.await_step(job_id, "work", "running");
    let before = hung.load(Ordering::Relaxed);
    await_that("three more heartbeats hang", || {
        (hung.load(Ordering::Relaxed) >= before + 3).then_some(())
    });
    std::fs::write(house.path("ledger"), "").unwrap();
    let job = house.await_job(job_id, "completed");
    assert_eq!(job.steps.unwrap()[0].attempt, 1, "it was never given up");
    house.check();
}
