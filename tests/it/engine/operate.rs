//! What an admin does to a step that hangs: put it back in the queue, or fail it.

use stepward::domain::event::EventKind;
use stepward::domain::reason::Reason;
use stepward::domain::retry::OnWorkerLoss;
use stepward::domain::step::StepState;
use stepward::domain::task::{StepDraft, TaskDraft};
use stepward::domain::{JobId, StepId};
use stepward::engine::{EngineError, HeldPhase, Verdict};

use crate::house::counted::written;
use crate::house::{TestHouse, script};

fn requeue(house: &TestHouse, step_id: StepId) -> Result<(), EngineError> {
    house
        .engine
        .by("eve")
        .requeue_step(step_id, "eve", house.now())
}

fn fail(house: &TestHouse, step_id: StepId) -> Result<(), EngineError> {
    let engine = house.engine.by("eve");
    engine.fail_step(step_id, "eve", "the license server is down", house.now())
}

fn last_event(house: &TestHouse, kind: EventKind) -> (String, Option<String>) {
    let mut events = house.events().into_iter().rev();
    let event = events.find(|event| event.fact.kind == kind).unwrap();
    (event.fact.message, event.actor)
}

fn attempts(house: &TestHouse, job_id: JobId, name: &str) -> Vec<String> {
    let step_id = house.step(job_id, name).step_id;
    let former = house.engine.store.read(|tx| tx.former_attempts(step_id));
    let former = former.unwrap().into_iter();
    former
        .map(|former| format!("{} {:?} {}", former.attempt, former.outcome, former.reason))
        .collect()
}

#[test]
fn a_running_step_is_requeued_and_its_old_attempt_is_fenced() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let old = ann.begin().attempt;
    requeue(&house, old.step_id).unwrap();
    assert_eq!(house.step_state(job, "a"), StepState::Ready);
    let message = "step a is ready again: requeued by eve".to_string();
    let expected = (message, Some("eve".to_string()));
    assert_eq!(last_event(&house, EventKind::StepRequeued), expected);
    assert_eq!(attempts(&house, job, "a"), ["1 Failed requeued_by_user"]);

    let answer = ann.heartbeat(1, &[(old, HeldPhase::Running)]);
    assert_eq!(answer.abort, [old], "its worker is told to stop");
    assert!(matches!(ann.complete(old), Verdict::Abort { .. }));
    let new = house.worker("bob", &[], 1).begin().attempt;
    assert_eq!(new.attempt, old.attempt + 1);
    assert!(house.breaches().is_empty());
}

#[test]
fn an_assigned_step_is_requeued_in_its_place_as_often_as_one_likes() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    for n in 0..7 {
        let worker = house.worker(&format!("w{n}"), &[], 1);
        let given = worker.claim();
        assert_eq!(given.step, "a", "it is still the first");
        requeue(&house, given.attempt.step_id).unwrap();
        assert_eq!(worker.claim_names(1), ["b"], "another worker is preferred");
        requeue(&house, house.step(job, "b").step_id).unwrap();
    }
    assert_eq!(attempts(&house, job, "a").len(), 7);
    assert!(attempts(&house, job, "a")[6].ends_with("Returned requeued_by_user"));
    let counted = written(&house);
    let family = "stepward_assignments_total{result=\"requeued_by_user\"}";
    assert_eq!(counted.value(family), 14.0);
}

#[test]
fn what_cannot_be_requeued_is_refused_with_the_reason() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft::new(
            "top",
            vec![
                StepDraft::task("call", "deep"),
                StepDraft::approval("ask", "go?"),
                script("later").after(&["ask"]),
            ],
        ),
        TaskDraft::new("deep", vec![script("a")]),
    ]);
    let child = house.child_of(job, "call");
    let refused = |job: JobId, name: &str| {
        let step_id = house.step(job, name).step_id;
        let error = requeue(&house, step_id).unwrap_err().to_string();
        let (_, why) = error.split_once(": ").unwrap();
        why.to_string()
    };
    assert_eq!(
        refused(job, "call"),
        "the step is running, it waits for its child job; requeue a step of that job"
    );
    assert_eq!(
        refused(job, "ask"),
        "the step is suspended, it waits for a decision"
    );
    assert_eq!(
        refused(job, "later"),
        "the step is pending, it waits for other steps or for its turn"
    );
    assert_eq!(
        refused(child, "a"),
        "the step is ready, it is in the queue already"
    );
    house.worker("ann", &[], 1).run_all(&[]);
    assert_eq!(
        refused(child, "a"),
        "the step is completed, it has ended; retry its job to run it again"
    );
}

#[test]
fn a_step_is_failed_with_a_sentence_and_never_retried() {
    let house = TestHouse::new();
    let job = house.submit(vec![
        StepDraft {
            on_worker_loss: OnWorkerLoss::Retry,
            ..script("runs")
        },
        script("assigned"),
        script("ready"),
        StepDraft::approval("ask", "go?"),
        script("after").after(&["runs"]),
    ]);
    let ann = house.worker("ann", &[], 2);
    let running = ann.begin().attempt;
    ann.claim();
    let pending = fail(&house, house.step(job, "after").step_id).unwrap_err();
    assert!(
        pending.to_string().contains("the step is pending"),
        "{pending}"
    );
    for name in ["runs", "assigned", "ready", "ask"] {
        fail(&house, house.step(job, name).step_id).unwrap();
        let step = house.step(job, name);
        assert_eq!(step.reason, Some(Reason::FailedByUser), "{name}");
        let message = "failed by eve: the license server is down";
        assert_eq!(step.message.as_deref(), Some(message));
        let (_, actor) = last_event(&house, EventKind::StepFailed);
        assert_eq!(actor.as_deref(), Some("eve"));
    }
    assert_eq!(
        house.summary(job),
        "runs failed, assigned failed, ready failed, ask failed, after skipped → failed"
    );
    assert_eq!(
        ann.heartbeat(1, &[(running, HeldPhase::Running)]).abort,
        [running]
    );
    let twice = fail(&house, running.step_id).unwrap_err().to_string();
    assert!(
        twice.ends_with("the step is failed, it has ended"),
        "{twice}"
    );
    assert!(house.breaches().is_empty());
}

#[test]
fn a_step_that_waits_for_a_child_job_takes_it_along() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft::new("top", vec![StepDraft::task("call", "deep")]),
        TaskDraft::new("deep", vec![script("a")]),
    ]);
    let child = house.child_of(job, "call");
    fail(&house, house.step(job, "call").step_id).unwrap();
    assert_eq!(house.summary(job), "call failed → failed");
    assert_eq!(house.summary(child), "a cancelled → cancelled");
}

#[test]
fn refusals_name_the_step_and_its_job() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    let step_id = house.step(job, "b").step_id;
    assert_eq!(
        requeue(&house, step_id).unwrap_err().to_string(),
        "cannot requeue step `b` of job 1: the step is ready, it is in the queue already"
    );
    fail(&house, step_id).unwrap();
    assert_eq!(
        fail(&house, step_id).unwrap_err().to_string(),
        "cannot fail step `b` of job 1: the step is failed, it has ended"
    );
}

#[test]
fn a_step_is_not_failed_with_a_blank_message() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let step_id = house.step(job, "a").step_id;
    let blank = house.engine.fail_step(step_id, "eve", " \t ", house.now());
    assert_eq!(
        blank.unwrap_err().to_string(),
        "the message (--message, in the API: why) is empty"
    );
    assert_eq!(house.step_state(job, "a"), StepState::Ready);
}

#[test]
fn why_says_that_a_person_requeued_the_step() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    requeue(&house, ann.claim().attempt.step_id).unwrap();
    let sentence = house.why(job, "a").sentence;
    assert!(
        sentence.starts_with(
            "a person requeued the step; worker ann, which had it, is asked again within "
        ),
        "{sentence}"
    );
}
