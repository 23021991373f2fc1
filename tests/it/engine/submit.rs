//! Submitting: what a job is made of, and that the same request makes it once.

use std::collections::BTreeMap;
use std::sync::Arc;

use stepward::domain::event::EventKind;
use stepward::domain::job::JobState;
use stepward::domain::step::StepState;
use stepward::domain::task::{Hook, HookDoes, HookOn, StepDraft, TaskDraft};
use stepward::domain::{Json, Timestamp};
use stepward::engine::{EngineError, Submission};

use crate::house::{TestHouse, frozen, script, taking};

#[test]
fn a_submitted_job_has_its_first_steps_ready_and_the_others_pending() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b").after(&["a"]), script("c")]);
    assert_eq!(house.summary(job), "a ready, b pending, c ready → pending");
    assert_eq!(house.event_kinds(job), [EventKind::JobSubmitted]);
}

#[test]
fn a_job_keeps_what_it_was_submitted_with() {
    let house = TestHouse::new();
    let task = TaskDraft {
        priority: 3,
        ..taking(&["version"], vec![script("a")])
    };
    let mut submission = Submission::of(&frozen(vec![task]));
    submission.input = Json(r#"{"version":"1.2.3"}"#.to_string());
    submission.labels = BTreeMap::from([("team".to_string(), "core".to_string())]);
    let job = house.job(house.submission(submission.clone()).unwrap()).job;
    assert_eq!(job.input, Json(r#"{"version":"1.2.3"}"#.to_string()));
    assert_eq!(job.labels, Json(r#"{"team":"core"}"#.to_string()));
    assert_eq!(job.priority, 3);
    submission.priority = Some(-7);
    assert_eq!(
        house
            .job(house.submission(submission).unwrap())
            .job
            .priority,
        -7
    );
}

#[test]
fn the_same_key_answers_with_the_same_job_and_another_request_is_refused() {
    let house = TestHouse::new();
    let mut submission = Submission::of(&frozen(vec![TaskDraft::new("main", vec![script("a")])]));
    submission.idempotency_key = Some("order 66".to_string());
    let first = house
        .engine
        .submit(submission.clone(), house.now())
        .unwrap();
    house.clock.advance_ms(3_600_000);
    let second = house
        .engine
        .submit(submission.clone(), house.now())
        .unwrap();
    assert_eq!((first.job_id, first.repeated), (second.job_id, false));
    assert!(second.repeated);

    submission.input = Json(r#"{"other":true}"#.to_string());
    let refused = house.submission(submission).unwrap_err();
    assert_eq!(
        refused.to_string(),
        r#"idempotency key "order 66" was used for another request, take a new one"#
    );
    assert_eq!(house.events().len(), 1);
}

#[test]
fn fifty_callers_with_one_key_make_one_job() {
    let house = TestHouse::new();
    let mut submission = Submission::of(&frozen(vec![TaskDraft::new("main", vec![script("a")])]));
    submission.idempotency_key = Some("once".to_string());
    let jobs: Vec<_> = std::thread::scope(|scope| {
        let submit = || house.submission(submission.clone()).unwrap();
        let threads: Vec<_> = (0..50).map(|_| scope.spawn(submit)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(jobs.iter().all(|job| *job == jobs[0]));
    assert_eq!(house.events().len(), 1);
}

#[test]
fn a_job_of_later_waits_for_its_time() {
    let house = TestHouse::new();
    let mut submission = Submission::of(&frozen(vec![TaskDraft::new("main", vec![script("a")])]));
    submission.not_before = Some(Timestamp(house.now().wall.0 + 60_000));
    let job = house.submission(submission).unwrap();
    let worker = house.worker("ann", &[], 1);
    house.clock.advance_ms(59_999);
    assert_eq!(house.engine.release_due(house.now()).unwrap(), 0);
    assert_eq!(worker.claim_names(1), Vec::<String>::new());
    house.clock.advance_ms(1);
    assert_eq!(house.engine.release_due(house.now()).unwrap(), 1);
    assert_eq!(worker.claim_names(1), ["a"]);
    assert_eq!(
        house.event_kinds(job),
        [
            EventKind::JobSubmitted,
            EventKind::JobHeld,
            EventKind::JobReleased
        ]
    );
}

#[test]
fn a_job_whose_steps_are_all_skipped_ends_at_submission_and_fires_its_hooks() {
    let house = TestHouse::new();
    let hook = Hook {
        on: HookOn::Success,
        does: HookDoes::Notify {
            target: "cheer".to_string(),
        },
    };
    let never = StepDraft {
        when: Some(stepward::domain::Json("false".into())),
        ..script("a")
    };
    let task = TaskDraft {
        hooks: vec![hook],
        ..TaskDraft::new("main", vec![never])
    };
    let job = house.submit_tasks(vec![task]);
    assert_eq!(house.job_state(job), JobState::Completed);
    assert_eq!(house.outbox().len(), 1);
}

#[test]
fn jobs_of_one_definition_share_it_and_keep_it_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let clock = stepward::clock::ManualClock::default();
    let open = || {
        let store =
            stepward::store::Store::open(folder.path(), stepward::store::StoreOptions::default());
        stepward::engine::Engine::new(store.unwrap(), stepward::engine::Settings::default())
    };
    let mut step = script("a");
    step.tags = vec!["gpu".to_string()];
    step.timeout_ms = Some(5_000);
    let submission = Submission::of(&frozen(vec![TaskDraft::new("main", vec![step])]));
    let jobs: Vec<_> = {
        let engine = open();
        (0..3)
            .map(|_| {
                engine
                    .submit(submission.clone(), clock.now())
                    .unwrap()
                    .job_id
            })
            .collect()
    };
    let engine = open();
    let first = engine.job(jobs[0]).unwrap();
    assert!(
        jobs.iter()
            .all(|&job| { engine.job(job).unwrap().job.definition_id == first.job.definition_id })
    );
    assert_eq!(first.step("a").unwrap().state, StepState::Ready);
    let kept = engine
        .store
        .read(|tx| Ok::<_, EngineError>(tx.definition(first.job.definition_id)?))
        .unwrap();
    assert_eq!(kept, Arc::clone(&submission.frozen.definition));
}
