//! Cancelling: everything open ends with the job, whatever it was doing.

use stepward::domain::event::EventKind;
use stepward::domain::job::JobState;
use stepward::domain::reason::Reason;
use stepward::domain::task::{Hook, HookDoes, HookOn, StepDraft, TaskDraft};
use stepward::engine::{EngineError, Verdict};

use crate::house::{TestHouse, script};

#[test]
fn a_step_in_any_state_ends_with_its_job() {
    let house = TestHouse::new();
    let job = house.submit(vec![
        script("done"),
        script("running"),
        script("assigned"),
        script("ready"),
        script("pending").after(&["running"]),
        StepDraft::approval("suspended", "go?"),
    ]);
    let worker = house.worker("ann", &[], 3);
    worker.complete(worker.begin().attempt);
    let running = worker.begin();
    worker.claim_names(1);
    house.engine.cancel(job, "eve", house.now()).unwrap();
    assert_eq!(
        house.summary(job),
        "done completed, running cancelled, assigned cancelled, ready cancelled, pending cancelled, \
         suspended cancelled → cancelled"
    );
    let step = house.step(job, "running");
    assert_eq!(step.reason, Some(Reason::CancelledByUser));
    assert_eq!(step.message.unwrap(), "cancelled by eve");
    assert_eq!(
        worker.complete(running.attempt),
        Verdict::Abort {
            why: "the step is cancelled already".to_string()
        }
    );
    assert_eq!(house.count_events(job, EventKind::JobCancelled), 1);
}

#[test]
fn a_job_ends_once() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    house.run_all(&[]);
    let late = house.engine.cancel(job, "eve", house.now());
    assert!(matches!(
        late,
        Err(EngineError::JobEnded {
            state: JobState::Completed,
            ..
        })
    ));
    assert_eq!(late.unwrap_err().to_string(), "job 1 is completed already");
}

#[test]
fn cancelling_a_parent_cancels_its_children_at_any_depth() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft::new(
            "top",
            vec![
                StepDraft::task("go", "middle"),
                script("after").after(&["go"]),
            ],
        ),
        TaskDraft::new("middle", vec![StepDraft::task("go", "bottom")]),
        TaskDraft::new("bottom", vec![script("a"), script("b")]),
    ]);
    let worker = house.worker("ann", &[], 2);
    worker.begin();
    let middle = house.child_of(job, "go");
    let bottom = house.child_of(middle, "go");
    house.engine.cancel(job, "eve", house.now()).unwrap();
    assert_eq!(
        house.summary(job),
        "go cancelled, after cancelled → cancelled"
    );
    assert_eq!(house.summary(middle), "go cancelled → cancelled");
    assert_eq!(
        house.summary(bottom),
        "a cancelled, b cancelled → cancelled"
    );
    assert_eq!(
        house.job(bottom).job.reason,
        Some(Reason::CancelledByParent)
    );
}

#[test]
fn cancelling_a_child_cancels_its_parents_step_and_the_parent_decides() {
    let house = TestHouse::new();
    let tolerant = script("cleanup").depending(stepward::domain::depends::DependsOn::accepting(
        "go",
        stepward::domain::depends::Accept::TERMINAL,
    ));
    let job = house.submit_tasks(vec![
        TaskDraft::new("top", vec![StepDraft::task("go", "child"), tolerant]),
        TaskDraft::new("child", vec![script("a")]),
    ]);
    house
        .engine
        .cancel(house.child_of(job, "go"), "eve", house.now())
        .unwrap();
    assert_eq!(house.summary(job), "go cancelled, cleanup ready → running");
    house.run_all(&[]);
    assert_eq!(
        house.summary(job),
        "go cancelled, cleanup completed → cancelled"
    );
    let job = house.job(job).job;
    assert_eq!(job.reason, Some(Reason::ChildCancelled));
    assert_eq!(job.message.unwrap(), "step go was cancelled");
}

#[test]
fn each_outcome_posts_its_own_hooks_once() {
    let house = TestHouse::new();
    let hook = |on, target: &str| Hook {
        on,
        does: HookDoes::Notify {
            target: target.to_string(),
        },
    };
    let hooks = vec![
        hook(HookOn::Success, "tell"),
        hook(HookOn::Error, "tell"),
        hook(HookOn::Cancel, "cheer"),
        hook(HookOn::Cancel, "tell"),
        hook(HookOn::Cancel, "tell"),
    ];
    let submit = || {
        let task = TaskDraft {
            hooks: hooks.clone(),
            ..TaskDraft::new("main", vec![script("a")])
        };
        house.submit_tasks(vec![task])
    };
    let (good, bad) = (submit(), submit());
    let worker = house.worker("ann", &[], 2);
    worker.complete(worker.begin().attempt);
    worker.fail(worker.begin().attempt);
    let cancelled = submit();
    house.engine.cancel(cancelled, "eve", house.now()).unwrap();
    let posted: Vec<_> = house
        .outbox()
        .into_iter()
        .map(|message| (message.job_id.unwrap(), message.target))
        .collect();
    let posted: Vec<_> = posted
        .iter()
        .map(|(job, target)| (*job, target.as_str()))
        .collect();
    assert_eq!(
        posted,
        [
            (good, "tell"),
            (bad, "tell"),
            (cancelled, "cheer"),
            (cancelled, "tell"),
        ],
        "each target is told once of an outcome"
    );
}
