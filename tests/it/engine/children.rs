//! Child jobs: made with their step, and their end climbs, at any depth, in the same transaction.

use stepward::domain::Json;
use stepward::domain::event::EventKind;
use stepward::domain::job::{JobState, Source};
use stepward::domain::reason::Reason;
use stepward::domain::retry::RetryPolicy;
use stepward::domain::task::{StepDraft, TaskDraft};
use stepward::engine::Finished;

use crate::house::{TestHouse, script};

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
        when: false,
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
fn children_by_the_thousand_in_one_go_are_bounded() {
    let house = TestHouse::new();
    let many = |name: &str| {
        (0..10_000)
            .map(|n| script(&format!("{name}{n}")))
            .collect::<Vec<_>>()
    };
    let calls = (0..12)
        .map(|n| StepDraft::task(&format!("go{n}"), "child"))
        .collect();
    let job = house.submit_tasks(vec![
        TaskDraft::new("top", calls),
        TaskDraft::new("child", many("s")),
    ]);
    let refused = house.job(job);
    let failed: Vec<_> = refused
        .steps
        .iter()
        .filter(|(_, step)| step.reason == Some(Reason::PayloadError))
        .collect();
    assert_eq!(failed.len(), 3);
    assert_eq!(
        failed[0].1.message.as_deref().unwrap(),
        "it would make more than 100000 steps at once, give the loop a max_parallel"
    );
    house.engine.cancel(job, "eve", house.now()).unwrap();
}
