//! Phase 4: ready steps that no worker can take.

use stepward::domain::JobId;
use stepward::domain::event::EventKind;
use stepward::domain::job::JobState;
use stepward::domain::reason::Reason;
use stepward::domain::retry::RetryPolicy;
use stepward::domain::step::StepState;
use stepward::domain::task::{StepDraft, TaskDraft, Unmatched};

use super::recovery_log;
use crate::house::{TestHouse, script};

fn gpu(name: &str) -> StepDraft {
    StepDraft {
        tags: vec!["gpu".to_string()],
        ..script(name)
    }
}

/// Sweeps every second; how many it took until the job ended.
fn secs_until_end(house: &TestHouse, job_id: JobId) -> u32 {
    for secs in 0..600 {
        house.sweep();
        if house.job_state(job_id).is_terminal() {
            return secs;
        }
        house.clock.advance_ms(1_000);
    }
    panic!("job {job_id} did not end");
}

#[test]
fn a_step_that_nobody_can_run_fails_with_exactly_this_sentence() {
    let house = TestHouse::new();
    house.worker("ann", &[], 1);
    house.worker("bob", &["arm"], 1);
    let job = house.submit(vec![gpu("a"), script("b").after(&["a"])]);
    house.clock.advance_ms(29_999);
    assert!(house.sweep().is_empty());
    house.clock.advance_ms(1);
    assert_eq!(house.sweep(), ["4 fail unmatched"]);
    let step = house.step(job, "a");
    assert_eq!(step.reason, Some(Reason::Unmatched));
    assert_eq!(
        step.message.as_deref(),
        Some("No active worker with required tags to run this step")
    );
    assert_eq!(
        recovery_log(&house, job),
        [
            "[recovery] step a failed: No active worker with required tags to run this step (it needs gpu + script; \
             worker ann lacks gpu; worker bob lacks gpu)"
        ]
    );
    assert_eq!(house.summary(job), "a failed, b skipped → failed");
    assert!(house.sweep().is_empty());
}

#[test]
fn a_late_sweep_fails_it_at_once() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    house.clock.advance_ms(31_000);
    assert_eq!(house.sweep(), ["4 fail unmatched"]);
    let log = recovery_log(&house, job);
    assert!(
        log[0].ends_with("(it needs script; there is no worker)"),
        "{log:?}"
    );
}

#[test]
fn a_busy_worker_is_able_and_a_paused_draining_silent_or_deleted_one_is_not() {
    let house = TestHouse::new();
    let busy = house.submit(vec![gpu("first"), gpu("second")]);
    let ann = house.worker("ann", &["gpu"], 1);
    let first = ann.begin().attempt;
    for _ in 0..10 {
        house.clock.advance_ms(100_000);
        ann.poll(0, &[first]);
        assert!(house.sweep().is_empty(), "it waits for a busy worker");
    }
    assert_eq!(house.step_state(busy, "second"), StepState::Ready);

    // From when its last taker is gone, not from when it became ready.
    house.engine.pause(ann.worker_id, house.now()).unwrap();
    house.clock.advance_ms(29_000);
    ann.poll(0, &[first]);
    assert!(house.sweep().is_empty());
    house.engine.resume(ann.worker_id, house.now()).unwrap();
    house.clock.advance_ms(60_000);
    ann.poll(0, &[first]);
    assert!(house.sweep().is_empty());
    house.engine.pause(ann.worker_id, house.now()).unwrap();
    house.clock.advance_ms(30_000);
    assert_eq!(house.sweep(), ["4 fail unmatched"]);
    let log = recovery_log(&house, busy);
    assert!(
        log[0].ends_with("worker ann matches, but is paused)"),
        "{log:?}"
    );
    house.engine.resume(ann.worker_id, house.now()).unwrap();
    ann.complete(first);

    let job = house.submit(vec![gpu("a")]);
    house.engine.drain(ann.worker_id, house.now()).unwrap();
    assert_eq!(secs_until_end(&house, job), 30);

    let job = house.submit(vec![gpu("a")]);
    let ann = house.worker("ann", &["gpu"], 1);
    assert_eq!(secs_until_end(&house, job), 120 + 30, "silence comes first");
    assert_eq!(house.job_state(job), JobState::Failed);

    let job = house.submit(vec![gpu("a")]);
    ann.heartbeat(1, &[]);
    house.clock.advance_ms(100_000);
    house
        .engine
        .delete_worker(ann.worker_id, false, house.now())
        .unwrap();
    assert_eq!(secs_until_end(&house, job), 30);
}

#[test]
fn a_worker_that_comes_in_time_gets_the_step() {
    let house = TestHouse::new();
    let job = house.submit(vec![gpu("a")]);
    house.clock.advance_ms(29_000);
    let ann = house.worker("ann", &["gpu"], 1);
    house.clock.advance_ms(60_000);
    assert!(house.sweep().is_empty());
    ann.run_all(&[]);
    assert_eq!(house.job_state(job), JobState::Completed);
}

#[test]
fn a_step_may_wait_for_its_worker() {
    let house = TestHouse::new();
    let job = house.submit(vec![
        StepDraft {
            unmatched: Unmatched::Wait,
            ..gpu("waits")
        },
        gpu("fails"),
    ]);
    house.clock.advance_ms(3_600_000);
    assert_eq!(house.sweep(), ["4 fail unmatched"]);
    assert_eq!(house.summary(job), "waits ready, fails failed → pending");
    house.worker("ann", &["gpu"], 1).run_all(&[]);
    assert_eq!(house.summary(job), "waits completed, fails failed → failed");
}

#[test]
fn what_the_server_itself_runs_needs_no_worker() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft::new(
            "top",
            vec![
                StepDraft::task("call", "deep"),
                StepDraft::approval("ok", "go?"),
            ],
        ),
        TaskDraft::new("deep", vec![StepDraft::approval("ok", "go?")]),
    ]);
    house.clock.advance_ms(3_600_000);
    assert!(house.sweep().is_empty());
    assert_eq!(house.summary(job), "call running, ok suspended → running");
}

#[test]
fn a_retry_is_not_without_a_taker_before_its_delay_is_over() {
    let house = TestHouse::new();
    let job = house.submit(vec![StepDraft {
        retry: RetryPolicy {
            delay_ms: 60_000,
            ..RetryPolicy::times(2)
        },
        ..script("a")
    }]);
    let ann = house.worker("ann", &[], 1);
    let attempt = ann.begin().attempt;
    ann.fail(attempt);
    house.engine.drain(ann.worker_id, house.now()).unwrap();
    house.clock.advance_ms(60_000);
    house.engine.release_due(house.now()).unwrap();
    assert!(house.sweep().is_empty(), "nobody could take it before");
    house.clock.advance_ms(30_000);
    assert_eq!(house.sweep(), ["4 fail unmatched"]);
    assert_eq!(house.count_events(job, EventKind::StepFailed), 1);
}

#[test]
fn a_loop_of_steps_that_nobody_can_run_ends() {
    let house = TestHouse::new();
    let mut step = gpu("each");
    step.for_each = Some(stepward::domain::task::ForEach {
        items: (0..5)
            .map(|n| stepward::domain::Json(n.to_string()))
            .collect(),
        max_parallel: Some(2),
    });
    let job = house.submit(vec![step]);
    assert_eq!(secs_until_end(&house, job), 90, "two at a time");
    assert_eq!(house.job_state(job), JobState::Failed);
}

#[test]
fn the_drain_of_a_worker_that_was_given_up_does_not_begin_the_wait_anew() {
    let house = TestHouse::new();
    let job = house.submit(vec![gpu("a")]);
    let ann = house.worker("ann", &["gpu"], 1);
    house.clock.advance_ms(121_000);
    assert_eq!(house.sweep(), ["1 mark_inactive"]);
    house.clock.advance_ms(20_000);
    house.engine.drain_session(&ann.key, house.now()).unwrap();
    house.clock.advance_ms(10_000);
    assert_eq!(house.sweep(), ["4 fail unmatched"]);
    assert_eq!(house.job_state(job), JobState::Failed);
}
