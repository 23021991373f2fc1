//! Phase 2: steps that run too long, approvals that nobody gives.

use stepward::domain::reason::Reason;
use stepward::domain::retry::RetryPolicy;
use stepward::domain::task::{StepDraft, TaskDraft};
use stepward::engine::{HeldPhase, Verdict};

use super::{recovery_events, recovery_log};
use crate::house::{TestHouse, script};

fn bounded(step: StepDraft, secs: i64) -> StepDraft {
    StepDraft {
        timeout_ms: Some(secs * 1_000),
        ..step
    }
}

#[test]
fn a_step_is_bounded_from_its_start_not_from_its_assignment() {
    let house = TestHouse::new();
    let job = house.submit(vec![bounded(script("a"), 60), script("b").after(&["a"])]);
    let ann = house.worker("ann", &[], 1);
    let attempt = ann.claim().attempt;
    house.clock.advance_ms(50_000);
    ann.start(attempt);
    house.clock.advance_ms(59_999);
    ann.heartbeat(1, &[(attempt, HeldPhase::Running)]);
    assert!(house.sweep().is_empty());
    house.clock.advance_ms(1);
    assert_eq!(house.sweep(), ["2 fail step_timeout"]);
    assert_eq!(house.summary(job), "a failed, b skipped → failed");
    assert_eq!(
        recovery_log(&house, job),
        ["[recovery] step a failed: it ran for 60 s, the limit is 60 s"]
    );
    let answer = ann.heartbeat(2, &[(attempt, HeldPhase::Running)]);
    assert_eq!(answer.abort, [attempt]);
    assert!(matches!(ann.complete(attempt), Verdict::Abort { .. }));
    assert!(house.sweep().is_empty());
}

#[test]
fn by_policy_a_step_that_ran_too_long_is_tried_again() {
    let house = TestHouse::new();
    let step = StepDraft {
        retry: RetryPolicy::times(2),
        ..bounded(script("a"), 10)
    };
    let job = house.submit(vec![step]);
    let ann = house.worker("ann", &[], 2);
    ann.begin();
    house.clock.advance_ms(10_000);
    assert_eq!(house.sweep(), ["2 retry step_timeout"]);
    ann.begin();
    house.clock.advance_ms(10_000);
    assert_eq!(house.sweep(), ["2 fail step_timeout"]);
    assert_eq!(house.summary(job), "a failed → failed");
    assert_eq!(recovery_events(&house), ["2 step_retried", "2 step_failed"]);
}

#[test]
fn an_approval_that_nobody_gives_fails() {
    let house = TestHouse::new();
    let job = house.submit(vec![bounded(StepDraft::approval("ok", "go?"), 300)]);
    house.clock.advance_ms(299_999);
    assert!(house.sweep().is_empty());
    house.clock.advance_ms(1);
    assert_eq!(house.sweep(), ["2 fail approval_timeout"]);
    let step = house.step(job, "ok");
    assert_eq!(step.reason, Some(Reason::ApprovalTimeout));
    assert_eq!(step.message.as_deref(), Some("nobody decided within 300 s"));
}

#[test]
fn a_task_step_that_runs_too_long_takes_its_child_job_with_it() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft::new("top", vec![bounded(StepDraft::task("call", "deep"), 60)]),
        TaskDraft::new("deep", vec![script("a")]),
    ]);
    let child = house.child_of(job, "call");
    let ann = house.worker("ann", &[], 1);
    let attempt = ann.begin().attempt;
    house.clock.advance_ms(60_000);
    assert_eq!(house.sweep(), ["2 fail step_timeout"]);
    assert_eq!(house.summary(job), "call failed → failed");
    assert_eq!(house.summary(child), "a cancelled → cancelled");
    assert_eq!(
        house.job(child).job.message.as_deref(),
        Some("step call of its parent, job 1, ran out of time")
    );
    assert!(matches!(ann.complete(attempt), Verdict::Abort { .. }));
    assert_eq!(recovery_events(&house), ["2 step_failed"]);
}

#[test]
fn a_task_step_that_is_tried_again_gets_a_new_child_job() {
    let house = TestHouse::new();
    let call = StepDraft {
        retry: RetryPolicy::times(2),
        ..bounded(StepDraft::task("call", "deep"), 60)
    };
    let job = house.submit_tasks(vec![
        TaskDraft::new("top", vec![call]),
        TaskDraft::new("deep", vec![script("a")]),
    ]);
    let first = house.child_of(job, "call");
    house.worker("ann", &[], 1);
    house.clock.advance_ms(60_000);
    assert_eq!(house.sweep(), ["2 retry step_timeout"]);
    assert_eq!(house.summary(first), "a cancelled → cancelled");
    assert_ne!(house.child_of(job, "call"), first);
    house.run_all(&[]);
    assert_eq!(house.summary(job), "call completed → completed");
}
