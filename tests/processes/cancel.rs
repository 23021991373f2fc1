//! A cancelled job ends at once, and its processes soon, whatever its worker does.

use rustix::process::Signal;

use crate::house::{House, await_that, processes};

fn long(number: u32, script: &str) -> String {
    let script = script.replace("SLEEP", &format!("sleep {number}"));
    format!("tasks:\n  long:\n    flow:\n      work:\n        script: |\n          {script}\n")
}

#[test]
fn a_running_process_is_stopped_within_a_second() {
    let mut house = House::with(&long(870_020, "(setsid SLEEP &); SLEEP"));
    let _worker = house.worker(1);
    let job_id = house.submit("long");
    await_that("it sleeps", || {
        (processes("sleep 870020").len() >= 2).then_some(())
    });
    let begun = std::time::Instant::now();
    house.cancel(job_id);
    house.await_job(job_id, "cancelled");
    await_that("no process is left", || {
        processes("sleep 870020").is_empty().then_some(())
    });
    assert!(begun.elapsed().as_secs_f64() < 1.0, "{:?}", begun.elapsed());
    await_that("the log tells how", || {
        let lines = house.log_lines(job_id, "work");
        lines
            .iter()
            .any(|line| line.contains("none left"))
            .then_some(())
    });
    house.check();
}

#[test]
fn a_process_that_ignores_the_first_word_is_killed_after_the_grace() {
    let mut house = House::with(&long(870_021, "trap '' TERM; SLEEP & SLEEP"));
    let _worker = house.worker(1);
    let job_id = house.submit("long");
    await_that("it sleeps", || {
        (processes("sleep 870021").len() >= 2).then_some(())
    });
    house.cancel(job_id);
    await_that("no process is left", || {
        processes("sleep 870021").is_empty().then_some(())
    });
    house.check();
}

#[test]
fn a_cancel_ends_also_when_the_worker_is_stopped_dead_or_restarted() {
    let mut house = House::with(&long(870_022, "SLEEP"));
    for fate in ["stopped", "dead", "restarted"] {
        let mut worker = house.worker(1);
        let job_id = house.submit("long");
        await_that("it sleeps", || {
            (!processes("sleep 870022").is_empty()).then_some(())
        });
        match fate {
            "stopped" => worker.signal(Signal::STOP),
            "dead" => worker.kill(),
            _ => {
                worker.kill();
                worker.start();
            }
        }
        if fate != "restarted" {
            house.cancel(job_id);
            house.await_job(job_id, "cancelled");
        }
        if fate == "stopped" {
            worker.signal(Signal::CONT);
        }
        await_that("no process is left", || {
            processes("sleep 870022").is_empty().then_some(())
        });
        let status = house.job(job_id).status;
        assert!(status == "cancelled" || fate == "restarted", "{status}");
        if fate != "dead" {
            worker.signal(Signal::TERM);
            assert!(worker.wait());
        }
    }
    house.check();
}

#[test]
fn a_step_past_its_timeout_is_ended_by_its_worker() {
    let workflows =
        "tasks:\n  long:\n    flow:\n      work: { script: sleep 870023, timeout: 1s }\n";
    let mut house = House::with(workflows);
    let _worker = house.worker(1);
    let job_id = house.submit("long");
    let job = house.await_job(job_id, "failed");
    assert_eq!(
        job.steps.unwrap()[0].reason.as_deref(),
        Some("step_timeout")
    );
    await_that("no process is left", || {
        processes("sleep 870023").is_empty().then_some(())
    });
    house.check();
}
