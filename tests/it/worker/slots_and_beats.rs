//! A real worker and a real server: how many processes run at a time, and what one answer that never comes costs.

use super::house::{House, await_that, processes};

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
