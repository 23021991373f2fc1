//! Hooks: jobs of their own, once per outcome, whoever made the outcome.

use stepward::domain::Json;
use stepward::domain::event::EventKind;
use stepward::domain::job::Source;
use stepward::domain::retry::OnWorkerLoss;
use stepward::domain::task::{Concurrency, Hook, HookDoes, HookOn, StepDraft, TaskDraft, WhenFull};
use stepward::domain::value::{ValueSpec, ValueType};
use stepward::domain::{JobId, Now};

use crate::house::{TestHouse, script};

/// A task with a hook for every outcome, and the task that the hooks make jobs of.
fn with_hooks(steps: Vec<StepDraft>) -> Vec<TaskDraft> {
    let hook = |&on: &HookOn| Hook {
        on,
        does: HookDoes::Job {
            task: "hook.tell".to_string(),
            input: Json(format!(
                r#"{{"text": "{on}: {{{{ hook.summary }}}}", "failed": "{{{{ hook.failed_steps | map(attribute='name') | join(',') }}}}"}}"#
            )),
        },
    };
    let main = TaskDraft {
        hooks: HookOn::ALL.iter().map(hook).collect(),
        ..TaskDraft::new("main", steps)
    };
    let tell = TaskDraft {
        inputs: vec![
            ValueSpec::new("text", ValueType::String),
            ValueSpec::new("failed", ValueType::String),
        ],
        ..TaskDraft::new("hook.tell", vec![script("tell")])
    };
    vec![main, tell]
}

/// The texts that hook jobs were given, in the order in which they were made.
fn told(house: &TestHouse, job: JobId) -> Vec<String> {
    let mut told = Vec::new();
    for id in job.0 + 1.. {
        let Ok(view) = house.engine.job(JobId(id)) else {
            return told;
        };
        if view.job.hook_of == Some(job) {
            assert_eq!(view.job.source, Source::Hook);
            let input: serde_json::Value = serde_json::from_str(&view.job.input.0).unwrap();
            let text = |key: &str| input[key].as_str().unwrap().to_string();
            told.push(format!("{} [{}]", text("text"), text("failed")));
        }
    }
    told
}

#[test]
fn each_outcome_makes_its_hook_job_once() {
    let house = TestHouse::new();
    let good = house.submit_tasks(with_hooks(vec![script("a")]));
    house.run_all(&[]);
    assert_eq!(
        told(&house, good),
        ["on_success: main (job 1): completed []"]
    );

    let bad = house.submit_tasks(with_hooks(vec![script("a"), script("b").after(&["a"])]));
    house.run_all(&["a"]);
    let summary = format!("on_error: main (job {bad}): failed: step a failed: exit code 1 [a]");
    assert_eq!(told(&house, bad), [summary]);

    let unwanted = house.submit_tasks(with_hooks(vec![script("a")]));
    house.engine.cancel(unwanted, "eve", house.now()).unwrap();
    let texts = told(&house, unwanted);
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].starts_with(&format!("on_cancel: main (job {unwanted}): cancelled")));
}

#[test]
fn an_outcome_made_by_recovery_makes_the_same_hook_job() {
    let house = TestHouse::new();
    let step = StepDraft {
        timeout_ms: Some(1_000),
        ..script("a")
    };
    let job = house.submit_tasks(with_hooks(vec![step]));
    let worker = house.worker("ann", &[], 1);
    worker.begin();
    house.clock.advance_ms(2_000);
    house.sweep();
    let texts = told(&house, job);
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].starts_with(&format!(
        "on_error: main (job {job}): failed: step a failed"
    )));
    house.sweep();
    assert_eq!(told(&house, job).len(), 1);
    let _: Now = house.now();
}

#[test]
fn an_approval_that_waits_makes_a_hook_job_too() {
    let house = TestHouse::new();
    let job = house.submit_tasks(with_hooks(vec![StepDraft::approval("ask", "Go?")]));
    let expected = format!("on_suspended: main (job {job}), step ask: suspended: Go? []");
    assert_eq!(told(&house, job), [expected]);
}

#[test]
fn hook_jobs_fire_no_hooks() {
    let house = TestHouse::new();
    let mut tasks = with_hooks(vec![script("a")]);
    tasks[1].hooks = vec![Hook {
        on: HookOn::Error,
        does: HookDoes::Job {
            task: "hook.tell".to_string(),
            input: Json::empty_object(),
        },
    }];
    let job = house.submit_tasks(tasks);
    house.run_all(&["a", "tell"]);
    assert_eq!(told(&house, job).len(), 1);
    assert_eq!(told(&house, JobId(job.0 + 1)), Vec::<String>::new());
}

#[test]
fn a_hook_that_cannot_run_is_told_and_changes_nothing_else() {
    let house = TestHouse::new();
    let mut tasks = with_hooks(vec![script("a")]);
    for hook in &mut tasks[0].hooks {
        hook.does = HookDoes::Job {
            task: "hook.tell".to_string(),
            input: Json(r#"{"txt": "{{ hook.summary }}"}"#.to_string()),
        };
    }
    let job = house.submit_tasks(tasks);
    house.run_all(&[]);
    assert_eq!(house.summary(job), "a completed → completed");
    assert_eq!(told(&house, job), Vec::<String>::new());
    assert_eq!(house.count_events(job, EventKind::HookFailed), 1);
}

#[test]
fn a_step_that_is_held_waits_for_somebody_and_is_told_like_an_approval() {
    let house = TestHouse::new();
    let step = StepDraft {
        on_worker_loss: OnWorkerLoss::Hold,
        ..script("a")
    };
    let job = house.submit_tasks(with_hooks(vec![step]));
    house.worker("ann", &[], 1).begin();
    house.worker("ann", &[], 1);
    let texts = told(&house, job);
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].starts_with(&format!(
        "on_suspended: main (job {job}), step a: suspended"
    )));
}

/// One group for a job and for the jobs of its hooks, in which the newest cancels the others: whatever is moved when a hook makes its
/// job, everything ends.
#[test]
fn hooks_in_the_group_of_their_own_job_end_like_all_others() {
    let group = |when_full| {
        Some(Concurrency {
            group: "z".to_string(),
            limit: 1,
            when_full,
        })
    };
    for on in HookOn::ALL {
        for when_full in WhenFull::ALL {
            let house = TestHouse::new();
            let mut steps = vec![script("s").after(&["y"])];
            steps.push(StepDraft::approval("x", "hi"));
            steps.push(StepDraft::approval("y", "hi"));
            let hook = Hook {
                on: *on,
                does: HookDoes::Job {
                    task: "hz".to_string(),
                    input: Json::empty_object(),
                },
            };
            let main = TaskDraft {
                concurrency: group(*when_full),
                hooks: vec![hook],
                ..TaskDraft::new("main", steps)
            };
            let hz = TaskDraft {
                concurrency: group(WhenFull::CancelPrevious),
                ..TaskDraft::new("hz", vec![script("tell")])
            };
            let blocker = TaskDraft {
                concurrency: group(WhenFull::Queue),
                ..TaskDraft::new("blocker", vec![script("b")])
            };
            house.submit_tasks(vec![blocker]);
            let first = house.submit_tasks(vec![main.clone(), hz.clone()]);
            let second = house.submit_tasks(vec![main, hz]);
            house.run_all(&[]);
            for job in [first, second] {
                if !house.job_state(job).is_terminal() {
                    house.engine.cancel(job, "eve", house.now()).unwrap();
                }
            }
            house.run_all(&[]);
            let last = house
                .events()
                .iter()
                .filter_map(|event| event.fact.job_id)
                .max();
            for id in 1..=last.unwrap().0 {
                assert!(
                    house.job_state(JobId(id)).is_terminal(),
                    "{on} {when_full} job {id}"
                );
            }
        }
    }
}
