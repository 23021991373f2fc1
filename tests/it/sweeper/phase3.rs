//! Phase 3: jobs that run too long, and jobs that never start.

use stepward::domain::Timestamp;
use stepward::domain::reason::Reason;
use stepward::domain::task::{Concurrency, Hook, HookDoes, HookOn, StepDraft, TaskDraft, WhenFull};
use stepward::engine::{HeldPhase, Submission};

use super::{recovery_events, recovery_log};
use crate::house::{TestHouse, frozen, script};

#[test]
fn a_job_that_runs_too_long_is_cancelled_with_its_steps_and_child_jobs() {
    let house = TestHouse::new();
    let hook = Hook {
        on: HookOn::Cancel,
        does: HookDoes::Notify {
            target: "tell".to_string(),
        },
    };
    let top = vec![
        script("a"),
        StepDraft::task("call", "deep"),
        script("z").after(&["a"]),
    ];
    let job = house.submit_tasks(vec![
        TaskDraft {
            timeout_ms: Some(600_000),
            hooks: vec![hook],
            ..TaskDraft::new("top", top)
        },
        TaskDraft::new("deep", vec![script("b")]),
    ]);
    let child = house.child_of(job, "call");
    let ann = house.worker("ann", &[], 2);
    let held: Vec<_> = ann
        .poll(2, &[])
        .assignments
        .into_iter()
        .map(|given| (given.attempt, HeldPhase::Running))
        .collect();
    for (attempt, _) in &held {
        ann.start(*attempt);
    }
    // The job started when its first step did: with its child, at once.
    for seq in 0..10 {
        ann.heartbeat(seq, &held);
        assert!(house.sweep().is_empty());
        house.clock.advance_ms(60_000);
    }
    ann.heartbeat(10, &held);
    assert_eq!(house.sweep(), ["3 cancel job_timeout"]);
    assert_eq!(
        house.summary(job),
        "a cancelled, call cancelled, z cancelled → cancelled"
    );
    assert_eq!(house.summary(child), "b cancelled → cancelled");
    assert_eq!(house.job(job).job.reason, Some(Reason::JobTimeout));
    assert_eq!(
        recovery_log(&house, job),
        ["[recovery] job 1 cancelled: it ran for 600 s, the limit is 600 s"]
    );
    assert_eq!(recovery_events(&house), ["3 job_cancelled"]);
    assert_eq!(house.outbox().len(), 1, "its hook is fired as ever");
    let abort = ann.heartbeat(11, &held).abort;
    assert_eq!(abort.len(), 2, "the worker is told to stop both");
}

#[test]
fn a_child_job_that_runs_too_long_fails_its_parents_step() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft::new("top", vec![StepDraft::task("call", "deep")]),
        TaskDraft {
            timeout_ms: Some(50_000),
            ..TaskDraft::new("deep", vec![script("a")])
        },
    ]);
    house.worker("ann", &[], 1).begin();
    house.clock.advance_ms(50_000);
    assert_eq!(house.sweep(), ["3 cancel job_timeout"]);
    assert_eq!(house.summary(job), "call failed → failed");
    assert_eq!(
        house.step(job, "call").message.as_deref(),
        Some("child job 2 was cancelled: it ran for 50 s, the limit is 50 s")
    );
}

#[test]
fn a_job_that_never_starts_is_bounded_by_its_queue_timeout() {
    let house = TestHouse::new();
    let task = TaskDraft {
        queue_timeout_ms: Some(20_000),
        ..TaskDraft::new("main", vec![script("a")])
    };
    let job = house.submit_tasks(vec![task.clone()]);
    let started = house.submit_tasks(vec![task]);
    let ann = house.worker("ann", &[], 1);
    let first = ann.begin();
    assert_eq!(first.job_id, job);
    house.clock.advance_ms(19_999);
    assert!(house.sweep().is_empty());
    house.clock.advance_ms(1);
    assert_eq!(house.sweep(), ["3 cancel queue_timeout"]);
    assert_eq!(house.summary(started), "a cancelled → cancelled");
    assert_eq!(
        house.job(started).job.message.as_deref(),
        Some("it has not started within its queue_timeout of 20 s")
    );
    ann.complete(first.attempt);
    assert_eq!(house.summary(job), "a completed → completed");
}

#[test]
fn waiting_for_a_group_is_waiting_in_a_queue_and_waiting_for_a_time_is_not() {
    let house = TestHouse::new();
    let task = |name: &str| TaskDraft {
        queue_timeout_ms: Some(20_000),
        concurrency: Some(Concurrency {
            group: name.to_string(),
            limit: 1,
            when_full: WhenFull::Queue,
        }),
        ..TaskDraft::new(name, vec![script("a")])
    };
    house.submit_tasks(vec![task("one")]);
    house.worker("ann", &[], 1).begin();
    let waits = house.submit_tasks(vec![task("one")]);
    let later = frozen(vec![task("two")]);
    let later = Submission {
        not_before: Some(Timestamp(house.now().wall.0 + 600_000)),
        ..Submission::of(&later)
    };
    let later = house.submission(later).unwrap();
    house.clock.advance_ms(20_000);
    assert_eq!(house.sweep(), ["3 cancel queue_timeout"]);
    assert_eq!(house.summary(waits), "a cancelled → cancelled");
    assert_eq!(house.summary(later), "a pending → pending");
}
