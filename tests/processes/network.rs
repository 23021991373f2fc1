//! Networks that lose and double what passes, and endpoints that hang.

use crate::house::{House, await_that};
use crate::ledger::{self, BEGIN, END};
use crate::proxy::{Fate, Proxy};

/// Numbers that look like chance and are the same every time.
fn chance(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (x ^ (x >> 31)) % 100
}

#[test]
fn a_thousand_steps_over_a_lossy_network_run_exactly_once_each() {
    let items: Vec<String> = (0..250).map(|item| item.to_string()).collect();
    let workflows = format!(
        "tasks:
  many:
    flow:
      work:
        for_each: [{}]
        script: '{BEGIN}; {END}'
",
        items.join(", ")
    );
    // Heartbeats get through often enough: this story is about lost answers, not about lost workers.
    let settings = "recovery: { heartbeat_interval_secs: 2, heartbeat_timeout_secs: 60, ack_timeout_secs: 60 }";
    let mut house = House::with_settings(&workflows, settings);
    let proxy = Proxy::start(&house.url(), |_, number| match chance(number) {
        0..4 => Fate::LoseRequest,
        4..10 => Fate::LoseAnswer,
        10..14 => Fate::Double,
        _ => Fate::Pass,
    });
    let _workers = [
        house.worker_with(8, &proxy.url, ""),
        house.worker_with(8, &proxy.url, ""),
    ];
    let jobs: Vec<i64> = (0..4).map(|_| house.submit("many")).collect();
    for job_id in jobs {
        house.await_job(job_id, "completed");
    }
    let lives = ledger::lives(&house);
    assert_eq!(lives.len(), 1_000);
    for (attempt, life) in &lives {
        assert_eq!(*life, (1, 1), "{attempt}");
        assert!(attempt.ends_with("/1"), "nothing ran twice: {attempt}");
    }
    for fate in [Fate::LoseRequest, Fate::LoseAnswer, Fate::Double] {
        assert!(proxy.count("/reports", fate) > 0, "no report met {fate:?}");
    }
    // The jobs run side by side, so their ends have no order. Nothing else happened: nobody was given up, nothing was
    // turned away or tried again.
    let mut story = house.story();
    story[6..].sort();
    assert_eq!(
        story,
        [
            "worker_registered w1",
            "worker_registered w2",
            "job_submitted 1",
            "job_submitted 2",
            "job_submitted 3",
            "job_submitted 4",
            "job_completed 1",
            "job_completed 2",
            "job_completed 3",
            "job_completed 4",
        ]
    );
    house.check();
}

#[test]
fn heartbeats_go_on_with_all_slots_busy_and_a_log_endpoint_that_hangs() {
    let workflows = "
tasks:
  loud:
    flow:
      work: { script: 'while [ ! -e LEDGER.gate ]; do echo noise; sleep 0.01; done' }
";
    let mut house = House::with(workflows);
    let proxy = Proxy::start(&house.url(), |path, _| match path.contains("/log?") {
        true => Fate::Hang,
        false => Fate::Pass,
    });
    let _worker = house.worker_with(2, &proxy.url, "");
    let jobs = [house.submit("loud"), house.submit("loud")];
    for job_id in jobs {
        house.await_step(job_id, "work", "running");
    }
    let first = house.await_worker("w1", "active").last_heartbeat_at;
    await_that("many more heartbeats than a timeout has room for", || {
        let seen = house.await_worker("w1", "active").last_heartbeat_at;
        (seen.0.0 - first.0.0 > 6_000).then_some(())
    });
    assert!(proxy.count("/log?", Fate::Hang) > 0, "nothing hung");
    assert_eq!(house.workers()[0].slots_used, 2);
    house.open_gate();
    for job_id in jobs {
        house.await_job(job_id, "completed");
    }
    // Which of the two ends first is open. The server notes after each result that the log does not have all bytes yet.
    let mut story = await_that("both logs are known to be incomplete", || {
        let story = house.story();
        (story.len() >= 7).then_some(story)
    });
    story[3..].sort();
    assert_eq!(
        story,
        [
            "worker_registered w1",
            "job_submitted 1",
            "job_submitted 2",
            "job_completed 1",
            "job_completed 2",
            "log_incomplete 1/work/1 w1",
            "log_incomplete 2/work/1 w1",
        ]
    );
    house.check();
}
