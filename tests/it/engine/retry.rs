//! Retrying a job: a new one, linked to it, in which what need not run again stands as it ended.

use stepward::domain::depends::{Accept, DependsOn};
use stepward::domain::job::Source;
use stepward::domain::task::{ForEach, StepDraft, TaskDraft};
use stepward::domain::{JobId, Json};
use stepward::engine::{EngineError, Finished, Retry, RetryScope};

use crate::house::{TestHouse, script};

fn retry(house: &TestHouse, job: JobId, scope: RetryScope) -> JobId {
    let retry = Retry::of(job, scope);
    house.engine.retry(retry, house.now()).unwrap().job_id
}

fn chain() -> Vec<StepDraft> {
    vec![
        script("a"),
        script("b").after(&["a"]),
        script("c").after(&["b"]),
        script("x"),
    ]
}

#[test]
fn only_what_did_not_complete_runs_again() {
    let house = TestHouse::new();
    let job = house.submit(chain());
    house.run_all(&["b"]);
    assert_eq!(
        house.summary(job),
        "a completed, b failed, c skipped, x completed → failed"
    );
    let again = retry(&house, job, RetryScope::Failed);
    assert_eq!(
        house.summary(again),
        "a completed, b ready, c pending, x completed → pending"
    );
    let view = house.job(again).job;
    assert_eq!((view.retry_of, view.source), (Some(job), Source::Retry));
    house.run_all(&[]);
    assert_eq!(
        house.summary(again),
        "a completed, b completed, c completed, x completed → completed"
    );
    // The former job stays as it ended.
    assert_eq!(
        house.summary(job),
        "a completed, b failed, c skipped, x completed → failed"
    );
}

#[test]
fn carried_steps_keep_their_outputs() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b").after(&["a"])]);
    let worker = house.worker("ann", &[], 1);
    let output = Some(Json("[1,2]".to_string()));
    let claimed = worker.begin();
    worker.finish(
        claimed.attempt,
        Finished::Completed {
            output: output.clone(),
            exit_code: Some(0),
        },
    );
    worker.fail(worker.begin().attempt);
    let again = retry(&house, job, RetryScope::Failed);
    assert_eq!(house.engine.output(again, "a").unwrap(), output);
    let origin = house.step(job, "a").step_id;
    assert_eq!(house.step(again, "a").origin_step_id, Some(origin));
}

#[test]
fn from_a_step_means_it_and_everything_behind_it() {
    let house = TestHouse::new();
    let job = house.submit(chain());
    house.run_all(&[]);
    let again = retry(&house, job, RetryScope::From("b".to_string()));
    assert_eq!(
        house.summary(again),
        "a completed, b ready, c pending, x completed → pending"
    );
    let unknown = house.engine.retry(
        Retry::of(job, RetryScope::From("z".to_string())),
        house.now(),
    );
    assert_eq!(unknown.unwrap_err().to_string(), r#"job 1 has no step "z""#);
}

#[test]
fn all_means_all() {
    let house = TestHouse::new();
    let job = house.submit(chain());
    house.run_all(&[]);
    let again = retry(&house, job, RetryScope::All);
    assert_eq!(
        house.summary(again),
        "a ready, b pending, c pending, x ready → pending"
    );
}

#[test]
fn what_reacted_to_a_failure_is_decided_anew() {
    let house = TestHouse::new();
    let undo = script("undo").depending(DependsOn::accepting("a", Accept::TERMINAL));
    let job = house.submit(vec![script("a"), undo]);
    house.run_all(&["a"]);
    assert_eq!(house.summary(job), "a failed, undo completed → failed");
    let again = retry(&house, job, RetryScope::Failed);
    assert_eq!(house.summary(again), "a ready, undo pending → pending");
}

#[test]
fn a_retry_of_what_completed_or_still_runs_is_refused() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let open = house
        .engine
        .retry(Retry::of(job, RetryScope::All), house.now());
    assert!(matches!(open, Err(EngineError::JobNotEnded { .. })));
    house.run_all(&[]);
    let nothing = house
        .engine
        .retry(Retry::of(job, RetryScope::Failed), house.now());
    assert_eq!(
        nothing.unwrap_err().to_string(),
        "job 1 has no step to retry: all completed; retry all (--all), or from a step (--from STEP)"
    );
}

#[test]
fn a_loop_runs_again_only_where_it_failed() {
    let house = TestHouse::new();
    let items = (0..3).map(|n| Json(n.to_string())).collect();
    let for_each = Some(ForEach {
        items,
        max_parallel: None,
    });
    let job = house.submit(vec![
        StepDraft {
            for_each,
            ..script("t")
        },
        script("b").after(&["t"]),
    ]);
    house.run_all(&["t[1]"]);
    let again = retry(&house, job, RetryScope::Failed);
    assert_eq!(
        house.summary(again),
        "t running, t[0] completed, t[1] ready, t[2] completed, b pending → pending"
    );
    house.run_all(&[]);
    assert!(house.summary(again).ends_with("b completed → completed"));

    // A loop that completed is carried over with its instances.
    let once_more = retry(&house, again, RetryScope::From("b".to_string()));
    assert_eq!(
        house.summary(once_more),
        "t completed, t[0] completed, t[1] completed, t[2] completed, b ready → pending"
    );
    // Told to begin with the loop, all of it runs.
    let whole = retry(&house, again, RetryScope::From("t".to_string()));
    assert_eq!(
        house.summary(whole),
        "t running, t[0] ready, t[1] ready, t[2] ready, b pending → pending"
    );
}

#[test]
fn a_failed_child_job_is_retried_where_it_failed() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft::new(
            "top",
            vec![
                StepDraft::task("go", "child"),
                script("after").after(&["go"]),
            ],
        ),
        TaskDraft::new("child", vec![script("a"), script("b").after(&["a"])]),
    ]);
    house.run_all(&["b"]);
    let former_child = house.child_of(job, "go");
    let again = retry(&house, job, RetryScope::Failed);
    let child = house.child_of(again, "go");
    assert_eq!(house.summary(child), "a completed, b ready → pending");
    assert_eq!(house.job(child).job.retry_of, Some(former_child));
    house.run_all(&[]);
    assert_eq!(
        house.summary(again),
        "go completed, after completed → completed"
    );
}

#[test]
fn a_cancelled_job_can_be_retried_in_the_middle() {
    let house = TestHouse::new();
    let job = house.submit(chain());
    let worker = house.worker("ann", &[], 1);
    worker.complete(worker.begin().attempt);
    house.engine.cancel(job, "eve", house.now()).unwrap();
    let again = retry(&house, job, RetryScope::Failed);
    assert_eq!(
        house.summary(again),
        "a completed, b ready, c pending, x ready → pending"
    );
    let third = {
        house.run_all(&["b"]);
        retry(&house, again, RetryScope::Failed)
    };
    assert_eq!(
        house.summary(third),
        "a completed, b ready, c pending, x completed → pending"
    );
}

#[test]
fn a_retried_job_keeps_input_labels_and_priority() {
    let house = TestHouse::new();
    let task = crate::house::frozen(vec![crate::house::taking(&["n"], vec![script("a")])]);
    let mut submission = stepward::engine::Submission::of(&task);
    submission.input = Json(r#"{"n":1}"#.to_string());
    submission.priority = Some(4);
    submission
        .labels
        .insert("team".to_string(), "core".to_string());
    let job = house.submission(submission).unwrap();
    house.run_all(&["a"]);
    let again = house.job(retry(&house, job, RetryScope::Failed)).job;
    let former = house.job(job).job;
    assert_eq!(
        (&again.input, &again.labels, again.priority),
        (&former.input, &former.labels, 4)
    );
}

#[test]
fn a_loop_behind_what_runs_again_runs_as_a_whole() {
    let house = TestHouse::new();
    let items = (0..2).map(|n| Json(n.to_string())).collect();
    let for_each = Some(ForEach {
        items,
        max_parallel: None,
    });
    let job = house.submit(vec![
        script("a"),
        StepDraft {
            for_each,
            ..script("t").after(&["a"])
        },
    ]);
    house.run_all(&["t[1]"]);
    let again = retry(&house, job, RetryScope::From("a".to_string()));
    house.run_all(&[]);
    // Nothing was carried over: the first instance has an attempt of its own.
    assert_eq!(house.step(again, "t[0]").attempt, 1);
    assert_eq!(house.step(again, "t[0]").origin_step_id, None);
}
