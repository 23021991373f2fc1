//! Steps in pods, through real workers and a recorded kubectl.

use rustix::process::{Signal, kill_process};

use crate::desk::Desk;
use crate::house::{House, Worker, await_that};
use crate::kubectl::{KUBECTL, ended, running};

const WORKFLOWS: &str = "
tasks:
  podded:
    flow:
      work: { runner: pod, image: busybox, script: 'echo hello' }
";

fn desk() -> Desk {
    let mut desk = Desk::new();
    desk.tools.kubectl = desk.tool("kubectl", KUBECTL);
    desk.write("log.follow", "");
    desk.write("log", "");
    desk
}

/// One that runs until it is deleted.
fn long_desk() -> Desk {
    let desk = desk();
    desk.write("sight", &running());
    desk.write("hang", "");
    desk.write("after.delete", &ended(143, ""));
    desk
}

fn pod_worker(house: &mut House, desk: &Desk) -> Worker {
    let kubectl = &desk.tools.kubectl;
    let settings = format!("tags: [script, kubernetes]\nkubernetes: {{ command: {kubectl} }}");
    let worker = house.worker_with(1, &house.url(), &settings);
    let said = worker.process().said();
    assert!(said.contains("offers kubernetes, script"), "{said}");
    worker
}

fn has_called(desk: &Desk, words: &str) -> bool {
    desk.ledger().iter().any(|call| call.contains(words))
}

fn await_call(desk: &Desk, words: &str) {
    await_that(words, || has_called(desk, words).then_some(()));
}

/// What the supervisor calls in every ending.
const CLEANUP: &str = "--ignore-not-found --wait=false --now";

/// The worker has nothing to do any more; this is what happened before it was told to leave.
fn end(house: House, mut worker: Worker, expected: &[&str]) {
    // One that does not know its session yet leaves without a word.
    await_that("it has heard of its session", || {
        worker
            .process()
            .said()
            .contains("session opened")
            .then_some(())
    });
    worker.signal(Signal::TERM);
    assert!(worker.wait(), "a drained worker ends well");
    let killed = stepward::worker::marked::kill_marked(&worker.instance_key());
    assert_eq!(killed, 0, "processes ran on");
    let expected = [expected, &["worker_draining w1"]].concat();
    house.ends(&expected);
}

#[test]
fn the_example_of_pods_runs() {
    let desk = desk();
    // The container of the manifest, and the one that a script is given.
    let ended = |name: &str| serde_json::json!({ "name": name, "state": { "terminated": { "exitCode": 0 } } });
    let status = serde_json::json!({ "phase": "Running", "containerStatuses": [ended("main"), ended("step")] });
    desk.write(
        "sight",
        &serde_json::json!({ "status": status }).to_string(),
    );
    let mut house = House::with(include_str!("../../examples/containers.yaml"));
    let worker = pod_worker(&mut house, &desk);
    let job_id = house.submit("in-kubernetes");
    house.await_job(job_id, "completed");
    drop(worker);
    house.check();
}

#[test]
fn a_pod_is_followed_to_its_end_and_deleted() {
    for (exit_code, status) in [(0, "completed"), (7, "failed")] {
        let desk = desk();
        desk.write("sight.1", r#"{ "status": { "phase": "Pending" } }"#);
        desk.write("sight.2", &running());
        desk.write("sight", &ended(exit_code, "image=app:1\n"));
        desk.write("log.follow", "2026-11-16T17:00:00.1Z one\n");
        desk.write("log", "2026-11-16T17:00:00.2Z two\n");
        let mut house = House::with(WORKFLOWS);
        let worker = pod_worker(&mut house, &desk);
        let job_id = house.submit("podded");
        let job = house.await_job(job_id, status);
        let step = &job.steps.unwrap()[0];
        assert_eq!(step.exit_code, Some(exit_code));
        let output = serde_json::to_string(&step.output).unwrap();
        assert_eq!(output == r#"{"image":"app:1"}"#, exit_code == 0, "{output}");
        let last = format!("exit code {exit_code}");
        assert_eq!(house.log_lines(job_id, "work"), ["one", "two", &last]);
        assert!(desk.ledger().last().unwrap().ends_with(CLEANUP));
        let mut expected = vec!["worker_registered w1", "job_submitted 1"];
        match exit_code {
            0 => expected.push("job_completed 1"),
            _ => expected.extend([
                "step_failed 1/work/1 exit_code w1",
                "job_failed 1 exit_code",
            ]),
        }
        end(house, worker, &expected);
    }
}

#[test]
fn a_cancelled_pod_is_deleted() {
    let desk = long_desk();
    let mut house = House::with(WORKFLOWS);
    let worker = pod_worker(&mut house, &desk);
    let job_id = house.submit("podded");
    await_call(&desk, "logs ");
    house.cancel(job_id);
    house.await_job(job_id, "cancelled");
    await_call(&desk, CLEANUP);
    let calls = desk.ledger();
    let gently = calls
        .iter()
        .position(|call| call.starts_with("delete ") && !call.ends_with("--now"));
    let last = calls.iter().position(|call| call.ends_with("--now"));
    assert!(gently.is_some() && gently < last, "{calls:?}");
    end(
        house,
        worker,
        &[
            "worker_registered w1",
            "job_submitted 1",
            "job_cancelled 1 cancelled_by_user",
        ],
    );
}

#[test]
fn a_pod_whose_worker_is_killed_is_deleted_by_its_supervisor() {
    let desk = long_desk();
    let mut house = House::with(WORKFLOWS);
    let mut worker = pod_worker(&mut house, &desk);
    let job_id = house.submit("podded");
    await_call(&desk, "logs ");
    worker.kill();
    await_call(&desk, CLEANUP);
    let job = house.await_job(job_id, "failed");
    let step = &job.steps.unwrap()[0];
    assert_eq!(step.reason.as_deref(), Some("worker_lost"));
    worker.start();
    house.await_worker("w1", "active");
    end(
        house,
        worker,
        &[
            "worker_registered w1",
            "job_submitted 1",
            "worker_inactive(1) w1",
            "step_failed(1) 1/work/1 worker_lost w1",
            "job_failed 1 worker_lost",
            "worker_restarted w1",
        ],
    );
}

#[test]
fn a_pod_that_is_just_being_made_is_deleted_after_that() {
    let desk = long_desk();
    desk.write("slow", "");
    let mut house = House::with(WORKFLOWS);
    let mut worker = pod_worker(&mut house, &desk);
    let job_id = house.submit("podded");
    await_call(&desk, "create ");
    let supervisor = worker.supervisors()[0];
    worker.kill();
    house.await_job(job_id, "failed");
    std::fs::remove_file(desk.folder.path().join("slow")).unwrap();
    await_that("its supervisor has ended", || {
        let folder = format!("/proc/{supervisor}");
        (!std::path::Path::new(&folder).exists()).then_some(())
    });
    let calls = desk.ledger();
    let made = calls.iter().position(|call| call == "made");
    let deleted = calls.iter().position(|call| call.ends_with(CLEANUP));
    assert!(made.is_some() && made < deleted, "{calls:?}");
    worker.start();
    house.await_worker("w1", "active");
    end(
        house,
        worker,
        &[
            "worker_registered w1",
            "job_submitted 1",
            "worker_inactive(1) w1",
            "step_failed(1) 1/work/1 worker_lost w1",
            "job_failed 1 worker_lost",
            "worker_restarted w1",
        ],
    );
}

#[test]
fn a_pod_that_nobody_could_delete_is_deleted_by_the_next_life() {
    let desk = long_desk();
    let mut house = House::with(WORKFLOWS);
    let mut worker = pod_worker(&mut house, &desk);
    let job_id = house.submit("podded");
    await_call(&desk, "logs ");
    // Neither may see the other die.
    let supervisor = worker.supervisors()[0];
    worker.signal(Signal::STOP);
    worker.process().await_standstill();
    kill_process(supervisor, Signal::KILL).unwrap();
    worker.kill();
    assert!(!has_called(&desk, CLEANUP), "{:?}", desk.ledger());
    let before = desk.ledger().len();
    worker.start();
    await_that("its next life looks for pods", || {
        let calls = desk.ledger();
        let mut calls = calls[before..].iter();
        calls
            .any(|call| call.contains("--selector=stepward.instance="))
            .then_some(())
    });
    house.await_job(job_id, "failed");
    house.await_worker("w1", "active");
    await_that("it has introduced itself", || {
        worker.process().said().contains("offers").then_some(())
    });
    end(
        house,
        worker,
        &[
            "worker_registered w1",
            "job_submitted 1",
            "step_failed 1/work/1 worker_restarted w1",
            "worker_restarted w1",
            "job_failed 1 worker_restarted",
        ],
    );
}
