//! Child jobs: made with their step, and their end climbs, at any depth, in the same transaction.

use stepward::domain::Json;
use stepward::domain::event::EventKind;
use stepward::domain::job::{JobState, Source};
use stepward::domain::reason::Reason;
use stepward::domain::retry::RetryPolicy;
use stepward::domain::step::StepState;
use stepward::domain::task::{ForEach, Hook, HookDoes, HookOn, StepDraft, TaskDraft};
use stepward::engine::{Finished, Retry, RetryScope, Submission};

use crate::house::{TestHouse, frozen, script};

fn nest(levels: usize) -> Vec<TaskDraft> {
    let call = |n: usize| {
        let steps = vec![
            StepDraft::task("go", &format!("t{}", n + 1)),
            script("after").after(&["go"]),
        ];
        TaskDraft::new(&format!("t{n}"), steps)
    };
    let mut tasks: Vec<TaskDraft> = (0..levels).map(call).collect();
    tasks.push(TaskDraft::new(&format!("t{levels}"), vec![script("leaf")]));
    tasks
}

#[test]
fn a_child_job_is_made_with_its_step_and_its_end_is_the_steps() {
    let house = TestHouse::new();
    let job = house.submit_tasks(nest(1));
    assert_eq!(house.summary(job), "go running, after pending → running");
    let child = house.job(house.child_of(job, "go"));
    assert_eq!((child.job.source, child.job.depth), (Source::Task, 1));
    house.run_all(&[]);
    assert_eq!(
        house.summary(job),
        "go completed, after completed → completed"
    );
}

#[test]
fn a_failure_ten_levels_down_reaches_the_top() {
    let house = TestHouse::new();
    let job = house.submit_tasks(nest(10));
    house.run_all(&["leaf"]);
    assert_eq!(house.summary(job), "go failed, after skipped → failed");
    let top = house.step(job, "go");
    assert_eq!(top.reason, Some(Reason::ChildFailed));
    assert!(
        top.message
            .as_deref()
            .unwrap()
            .starts_with("child job 2 failed: step go failed: child job 3 failed")
    );
    let mut deepest = job;
    for _ in 0..10 {
        deepest = house.child_of(deepest, "go");
    }
    assert_eq!(house.summary(deepest), "leaf failed → failed");
    assert_eq!(house.job(deepest).job.depth, 10);
}

#[test]
fn a_child_that_ends_as_it_is_made_does_not_leave_its_parent_waiting() {
    let house = TestHouse::new();
    let never = StepDraft {
        when: Some(stepward::domain::Json("false".into())),
        ..script("a")
    };
    let job = house.submit_tasks(vec![
        TaskDraft::new(
            "top",
            vec![
                StepDraft::task("go", "child"),
                script("after").after(&["go"]),
            ],
        ),
        TaskDraft::new("child", vec![never]),
    ]);
    assert_eq!(house.summary(job), "go completed, after ready → running");
    house.run_all(&[]);
    assert_eq!(house.job_state(job), JobState::Completed);
}

#[test]
fn a_step_may_retry_its_child_with_a_fresh_one_and_a_late_end_changes_nothing() {
    let house = TestHouse::new();
    let retry = RetryPolicy {
        on: vec![Reason::ChildFailed],
        delay_ms: 1_000,
        ..RetryPolicy::times(2)
    };
    let job = house.submit_tasks(vec![
        TaskDraft::new(
            "top",
            vec![StepDraft {
                retry,
                ..StepDraft::task("go", "child")
            }],
        ),
        TaskDraft::new("child", vec![script("a")]),
    ]);
    let first = house.child_of(job, "go");
    house.run_all(&["a"]);
    assert_eq!(house.summary(job), "go ready → running");
    assert_eq!(house.job_state(first), JobState::Failed);
    house.clock.advance_ms(1_000);
    assert_eq!(house.engine.release_due(house.now()).unwrap(), 1);
    let second = house.child_of(job, "go");
    assert_ne!(first, second);
    house.run_all(&[]);
    assert_eq!(house.summary(job), "go completed → completed");
    assert_eq!(house.count_events(job, EventKind::StepRetried), 1);
}

#[test]
fn a_childs_output_becomes_the_steps() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft::new("top", vec![StepDraft::task("go", "child")]),
        TaskDraft::new(
            "child",
            vec![script("first"), script("last").after(&["first"])],
        ),
    ]);
    let worker = house.worker("ann", &[], 1);
    for output in ["1", r#"{"n":2}"#] {
        let claimed = worker.begin();
        let output = Some(Json(output.to_string()));
        worker.finish(
            claimed.attempt,
            Finished::Completed {
                output,
                exit_code: Some(0),
            },
        );
    }
    let output = house.engine.output(job, "go").unwrap().unwrap();
    assert_eq!(output.0, r#"{"last":{"n":2}}"#);
    assert_eq!(
        house.engine.job_output(job).unwrap().0,
        r#"{"go":{"last":{"n":2}}}"#
    );
}

#[test]
fn children_by_the_thousand_come_in_transactions_of_bounded_size() {
    let house = TestHouse::new();
    let many = (0..9_000).map(|n| script(&format!("s{n}"))).collect();
    let calls = (0..5)
        .map(|n| StepDraft::task(&format!("go{n}"), "child"))
        .collect();
    let job = house.submit_tasks(vec![
        TaskDraft::new("top", calls),
        TaskDraft::new("child", many),
    ]);
    assert_eq!(
        house.summary(job),
        "go0 running, go1 running, go2 ready, go3 ready, go4 ready → running"
    );
    assert_eq!(
        house.why(job, "go2").sentence,
        "the server takes it next",
        "it is no retry"
    );
    // Not for workers: the server makes them, each in a transaction of its own.
    assert_eq!(house.engine.release_due(house.now()).unwrap(), 3);
    assert_eq!(
        house.summary(job),
        "go0 running, go1 running, go2 running, go3 running, go4 running → running"
    );
    assert_eq!(house.engine.release_due(house.now()).unwrap(), 0);
    house.engine.cancel(job, "eve", house.now()).unwrap();
}

#[test]
fn a_large_loop_behind_a_large_job_is_expanded_later() {
    let house = TestHouse::new();
    let items = (0..9_999).map(|n| Json(n.to_string())).collect();
    let for_each = Some(ForEach {
        items,
        max_parallel: Some(1),
    });
    let mut steps: Vec<StepDraft> = (0..2)
        .map(|n| StepDraft {
            for_each: for_each.clone(),
            ..script(&format!("t{n}"))
        })
        .collect();
    steps.extend((0..5_000).map(|n| script(&format!("s{n}"))));
    let job = house.submit(steps);
    assert_eq!(house.step_state(job, "t0"), StepState::Running);
    assert_eq!(house.step_state(job, "t1"), StepState::Ready);
    assert_eq!(house.engine.release_due(house.now()).unwrap(), 1);
    assert_eq!(house.step_state(job, "t1"), StepState::Running);
    house.engine.cancel(job, "eve", house.now()).unwrap();
}

#[test]
fn a_late_end_of_a_former_child_changes_nothing() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft::new("top", vec![StepDraft::task("go", "child")]),
        TaskDraft::new("child", vec![script("a")]),
    ]);
    let child = house.child_of(job, "go");
    // The step gave up on its child and went on, as a timeout makes it: the child lives on.
    let sql = rusqlite::Connection::open(house.database()).unwrap();
    sql.execute(
        "UPDATE job SET parent_attempt = 7 WHERE job_id = ?1",
        [child.0],
    )
    .unwrap();
    let worker = house.worker("ann", &[], 1);
    let claimed = worker.begin();
    worker.fail(claimed.attempt);
    assert_eq!(house.job_state(child), JobState::Failed);
    assert_eq!(house.summary(job), "go running → running");
    sql.execute(
        "UPDATE job SET parent_attempt = 1 WHERE job_id = ?1",
        [child.0],
    )
    .unwrap();
    house.engine.cancel(job, "eve", house.now()).unwrap();
}

#[test]
fn a_child_has_its_parents_labels_and_priority_and_its_steps_timeout() {
    let house = TestHouse::new();
    let go = StepDraft {
        timeout_ms: Some(5_000),
        ..StepDraft::task("go", "child")
    };
    let task = frozen(vec![
        TaskDraft {
            timeout_ms: Some(60_000),
            ..TaskDraft::new("top", vec![go])
        },
        TaskDraft::new("child", vec![script("a")]),
    ]);
    let mut submission = Submission {
        priority: Some(7),
        ..Submission::of(&task)
    };
    submission
        .labels
        .insert("team".to_string(), "core".to_string());
    let job = house.submission(submission).unwrap();
    let child = house.job(house.child_of(job, "go"));
    assert_eq!(
        (child.job.priority, child.job.labels.0.as_str()),
        (7, r#"{"team":"core"}"#)
    );
    assert_eq!(child.steps[0].1.priority, 7);
    assert_eq!(
        house.step(job, "go").due_up,
        Some(house.now().up.plus_ms(5_000))
    );
    assert_eq!(
        house.job(job).job.due_up,
        Some(house.now().up.plus_ms(60_000))
    );
}

#[test]
fn hook_jobs_and_what_they_call_fire_no_hooks() {
    let house = TestHouse::new();
    let hooks: Vec<Hook> = HookOn::ALL
        .iter()
        .map(|&on| Hook {
            on,
            does: HookDoes::Notify {
                target: "tell".to_string(),
            },
        })
        .collect();
    let with_hooks = |name: &str, steps| TaskDraft {
        hooks: hooks.clone(),
        ..TaskDraft::new(name, steps)
    };
    let task = frozen(vec![
        with_hooks(
            "top",
            vec![
                StepDraft::approval("ask", "go?"),
                StepDraft::task("go", "child"),
            ],
        ),
        with_hooks("child", vec![script("a")]),
    ]);
    let hook = Submission {
        source: Source::Hook,
        ..Submission::of(&task)
    };
    let job = house.submission(hook).unwrap();
    house.run_all(&["a"]);
    house.engine.cancel(job, "eve", house.now()).unwrap();
    let again = house
        .engine
        .retry(Retry::of(job, RetryScope::All), house.now())
        .unwrap();
    house
        .engine
        .cancel(again.job_id, "eve", house.now())
        .unwrap();
    assert_eq!(house.outbox(), []);
    house.submission(Submission::of(&task)).unwrap();
    assert_eq!(house.outbox().len(), 1, "an ordinary job does fire them");
}
