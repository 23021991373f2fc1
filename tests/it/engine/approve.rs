//! Approvals and held steps: a person decides, once.

use stepward::domain::Json;
use stepward::domain::event::EventKind;
use stepward::domain::reason::Reason;
use stepward::domain::retry::OnWorkerLoss;
use stepward::domain::task::{Hook, HookDoes, HookOn, StepDraft, TaskDraft};
use stepward::engine::{Decision, EngineError, Fact};
use stepward::store::FormerOutcome;

use crate::house::{TestHouse, script};

fn approve() -> Decision {
    Decision::Approve { output: None }
}

fn reject() -> Decision {
    Decision::Reject {
        why: "not today".to_string(),
    }
}

#[test]
fn an_approval_waits_and_goes_on_when_approved() {
    let house = TestHouse::new();
    let mut ask = StepDraft::approval("ask", "Publish?").after(&["a"]);
    ask.timeout_ms = Some(5_000);
    let hook = Hook {
        on: HookOn::Suspended,
        does: HookDoes::Notify {
            target: "tell".to_string(),
        },
    };
    let steps = vec![script("a"), ask, script("b").after(&["ask"])];
    let job = house.submit_tasks(vec![TaskDraft {
        hooks: vec![hook],
        ..TaskDraft::new("main", steps)
    }]);
    house.run_all(&[]);
    assert_eq!(
        house.summary(job),
        "a completed, ask suspended, b pending → running"
    );
    let step = house.step(job, "ask");
    assert_eq!(step.due_up, Some(house.now().up.plus_ms(5_000)));
    let posted = house.outbox();
    assert_eq!(posted.len(), 1);
    let told = house.engine.message(posted[0].outbox_id).unwrap().event;
    let told = told.unwrap().event.fact;
    assert_eq!(told.kind, EventKind::StepSuspended);
    assert_eq!(told.step_id, Some(step.step_id));

    let output = Some(Json(r#"{"who":"ann"}"#.to_string()));
    let decision = Decision::Approve {
        output: output.clone(),
    };
    house
        .engine
        .decide(step.step_id, decision, "ann", house.now())
        .unwrap();
    assert_eq!(
        house.summary(job),
        "a completed, ask completed, b ready → running"
    );
    assert_eq!(house.engine.output(job, "ask").unwrap(), output);
    house.run_all(&[]);
    assert_eq!(house.count_events(job, EventKind::StepApproved), 1);
}

#[test]
fn a_rejected_approval_fails_and_skips_what_follows() {
    let house = TestHouse::new();
    let job = house.submit(vec![
        StepDraft::approval("ask", "Publish?"),
        script("b").after(&["ask"]),
    ]);
    assert_eq!(house.summary(job), "ask suspended, b pending → running");
    let step_id = house.step(job, "ask").step_id;
    house
        .engine
        .decide(step_id, reject(), "eve", house.now())
        .unwrap();
    assert_eq!(house.summary(job), "ask failed, b skipped → failed");
    let step = house.step(job, "ask");
    assert_eq!(step.reason, Some(Reason::ApprovalRejected));
    assert_eq!(step.message.unwrap(), "rejected by eve: not today");
}

#[test]
fn the_second_decision_comes_too_late() {
    let house = TestHouse::new();
    let job = house.submit(vec![StepDraft::approval("ask", "Publish?")]);
    let step_id = house.step(job, "ask").step_id;
    house
        .engine
        .decide(step_id, approve(), "ann", house.now())
        .unwrap();
    let late = house.engine.decide(step_id, reject(), "eve", house.now());
    assert!(matches!(late, Err(EngineError::NotSuspended { .. })));
    assert_eq!(house.summary(job), "ask completed → completed");
}

#[test]
fn a_held_step_runs_again_or_fails_as_told() {
    for again in [true, false] {
        let house = TestHouse::new();
        let held = StepDraft {
            on_worker_loss: OnWorkerLoss::Hold,
            ..script("a")
        };
        let job = house.submit(vec![held]);
        house.worker("ann", &[], 1).begin();
        let next = house.worker("ann", &[], 1);
        let step = house.step(job, "a");
        assert_eq!(step.state.as_str(), "suspended");
        let decision = if again { approve() } else { reject() };
        house
            .engine
            .decide(step.step_id, decision, "ann", house.now())
            .unwrap();
        if again {
            let claimed = next.begin();
            assert_eq!(claimed.attempt.attempt, 2);
            next.complete(claimed.attempt);
            assert_eq!(house.summary(job), "a completed → completed");
        } else {
            assert_eq!(house.step(job, "a").reason, Some(Reason::WorkerRestarted));
            let why = house.why(job, "a");
            assert!(why.sentence.contains("rejected by ann"), "{why:?}");
            let tells = |fact: &Fact| fact.text.contains("worker ann restarted while it ran");
            assert!(why.facts.iter().any(tells), "{why:?}");
            assert_eq!(house.summary(job), "a failed → failed");
        }
    }
}

/// The worker that ran the step restarted, so the step is held. Nothing that happens to the step afterwards may remove the
/// attempt from the history or overwrite the sentence that tells why it ended.
#[test]
fn the_lost_attempt_of_a_held_step_stays_in_the_history() {
    for then in ["nothing", "approve", "reject", "cancel", "delete worker"] {
        let house = TestHouse::new();
        let held = StepDraft {
            on_worker_loss: OnWorkerLoss::Hold,
            ..script("a")
        };
        let job = house.submit(vec![held]);
        let first = house.worker("ann", &[], 1);
        let lost = first.begin().attempt;
        let next = house.worker("ann", &[], 1);
        house.clock.advance_ms(5_000);
        let (engine, now) = (&house.engine, house.now());
        match then {
            "approve" => engine.decide(lost.step_id, approve(), "ann", now).unwrap(),
            "reject" => engine.decide(lost.step_id, reject(), "eve", now).unwrap(),
            "cancel" => engine.cancel(job, "eve", now).unwrap(),
            "delete worker" => {
                engine.delete_worker(next.worker_id, true, now).unwrap();
            }
            _ => {}
        }
        if then == "cancel" {
            let why = house.why(job, "a");
            let tells = |fact: &Fact| fact.text.contains("worker ann restarted while it ran");
            assert!(why.facts.iter().any(tells), "{why:?}");
        }
        let detail = house.engine.step_detail(job, "a").unwrap();
        assert_eq!(detail.former.len(), 1, "after {then}");
        let (attempt, worker) = &detail.former[0];
        assert_eq!(worker.as_deref(), Some("ann"), "after {then}");
        assert_eq!(attempt.attempt, 1, "after {then}");
        assert_eq!(attempt.outcome, FormerOutcome::Failed, "after {then}");
        assert_eq!(attempt.reason, "worker_restarted", "after {then}");
        let told = "worker ann restarted while it ran attempt 1; the step may have run partly";
        assert_eq!(attempt.message, told, "after {then}");
        assert!(attempt.started_at.is_some(), "after {then}");
        assert_eq!(now.wall.0 - attempt.ended_at.0, 5_000, "after {then}");
        // The session is known, so the lines that the worker still sends belong to the attempt.
        let owner = house.engine.log_owner(&first.key, lost, house.now());
        assert!(!owner.unwrap().live, "after {then}");
        assert_eq!(house.breaches(), [] as [String; 0], "after {then}");
    }
}
