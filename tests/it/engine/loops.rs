//! `for_each`: one instance per item, so many at a time, and the loop ends as its worst instance.

use stepward::domain::Json;
use stepward::domain::reason::Reason;
use stepward::domain::retry::RetryPolicy;
use stepward::domain::task::{ForEach, StepDraft, TaskDraft};
use stepward::engine::Finished;

use crate::house::{TestHouse, script};

fn looped(step: StepDraft, items: usize, max_parallel: Option<u32>) -> StepDraft {
    let items = (0..items).map(|n| Json(n.to_string())).collect();
    StepDraft {
        for_each: Some(ForEach {
            items,
            max_parallel,
        }),
        ..step
    }
}

#[test]
fn a_loop_runs_one_instance_per_item_and_then_its_dependents() {
    let house = TestHouse::new();
    let job = house.submit(vec![
        looped(script("test"), 3, None),
        script("b").after(&["test"]),
    ]);
    assert_eq!(
        house.summary(job),
        "test running, test[0] ready, test[1] ready, test[2] ready, b pending → pending"
    );
    let worker = house.worker("ann", &[], 5);
    let given = worker.poll(5, &[]).assignments;
    let items: Vec<_> = given
        .iter()
        .map(|found| (found.item, found.item_value.clone()))
        .collect();
    assert_eq!(items[2], (Some(2), Some(Json("2".to_string()))));
    for found in given {
        worker.start(found.attempt);
        let output = Some(Json(format!("\"out {}\"", found.item.unwrap())));
        worker.finish(
            found.attempt,
            Finished::Completed {
                output,
                exit_code: Some(0),
            },
        );
    }
    worker.run_all(&[]);
    assert_eq!(
        house.summary(job),
        "test completed, test[0] completed, test[1] completed, test[2] completed, b completed → completed"
    );
    let outputs = house.engine.output(job, "test").unwrap().unwrap();
    assert_eq!(outputs.0, r#"["out 0","out 1","out 2"]"#);
    assert_eq!(
        house.engine.output(job, "test[1]").unwrap().unwrap().0,
        r#""out 1""#
    );
}

#[test]
fn max_parallel_bounds_how_many_run_at_a_time() {
    let house = TestHouse::new();
    let job = house.submit(vec![looped(script("t"), 5, Some(2))]);
    let worker = house.worker("ann", &[], 5);
    let given = worker.poll(5, &[]).assignments;
    assert_eq!(given.len(), 2);
    worker.start(given[1].attempt);
    worker.fail(given[1].attempt);
    assert_eq!(
        house.summary(job),
        "t running, t[0] assigned, t[1] failed, t[2] ready, t[3] pending, t[4] pending → running"
    );
    worker.start(given[0].attempt);
    worker.complete(given[0].attempt);
    worker.run_all(&[]);
    assert_eq!(
        house.summary(job),
        "t failed, t[0] completed, t[1] failed, t[2] completed, t[3] completed, t[4] completed → failed"
    );
    let step = house.step(job, "t");
    assert_eq!(step.reason, Some(Reason::InstanceFailed));
    assert_eq!(step.message.unwrap(), "1 of 5 instances failed: t[1]");
}

#[test]
fn an_empty_loop_is_skipped_by_its_own_choice() {
    let house = TestHouse::new();
    let job = house.submit(vec![looped(script("t"), 0, None)]);
    assert_eq!(house.summary(job), "t skipped → completed");
    assert_eq!(house.step(job, "t").reason, Some(Reason::EmptyLoop));
}

#[test]
fn a_tolerated_loop_may_fail() {
    let house = TestHouse::new();
    let mut step = looped(script("t"), 2, None);
    step.continue_on_failure = true;
    let job = house.submit(vec![step, script("b").after(&["t"])]);
    house.run_all(&["t[0]"]);
    assert_eq!(
        house.summary(job),
        "t failed, t[0] failed, t[1] completed, b skipped → completed"
    );
}

#[test]
fn a_loop_behind_a_failure_is_skipped_unexpanded() {
    let house = TestHouse::new();
    let job = house.submit(vec![
        script("a"),
        looped(script("t").after(&["a"]), 3, None),
    ]);
    house.run_all(&["a"]);
    assert_eq!(house.summary(job), "a failed, t skipped → failed");
}

#[test]
fn instances_retry_on_their_own() {
    let house = TestHouse::new();
    let mut step = looped(script("t"), 2, None);
    step.retry = RetryPolicy::times(2);
    let job = house.submit(vec![step]);
    let worker = house.worker("ann", &[], 1);
    let first = worker.begin();
    worker.fail(first.attempt);
    worker.run_all(&[]);
    assert_eq!(
        house.summary(job),
        "t completed, t[0] completed, t[1] completed → completed"
    );
    assert_eq!(house.step(job, "t[0]").tries, 2);
}

#[test]
fn a_loop_of_child_jobs_makes_as_many_as_may_run() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft::new(
            "top",
            vec![looped(StepDraft::task("go", "child"), 3, Some(1))],
        ),
        TaskDraft::new("child", vec![script("a")]),
    ]);
    assert_eq!(
        house.summary(job),
        "go running, go[0] running, go[1] pending, go[2] pending → running"
    );
    house.run_all(&[]);
    assert_eq!(
        house.summary(job),
        "go completed, go[0] completed, go[1] completed, go[2] completed → completed"
    );
    assert_eq!(
        house.engine.job_output(job).unwrap().0,
        r#"{"go":[{},{},{}]}"#
    );
}

#[test]
fn cancelling_in_the_middle_of_a_loop_ends_all_of_it() {
    let house = TestHouse::new();
    let job = house.submit(vec![looped(script("t"), 3, Some(1))]);
    let worker = house.worker("ann", &[], 1);
    worker.begin();
    house.engine.cancel(job, "eve", house.now()).unwrap();
    assert_eq!(
        house.summary(job),
        "t cancelled, t[0] cancelled, t[1] cancelled, t[2] cancelled → cancelled"
    );
}
