//! What events say to programs: the same as their sentences, as values.

use serde_json::{Value, json};
use stepward::domain::JobId;
use stepward::domain::event::{Event, EventKind};
use stepward::domain::retry::OnWorkerLoss;
use stepward::domain::task::{Action, Concurrency, StepDraft, TaskDraft, WhenFull};
use stepward::engine::{Decision, Finished, Retry, RetryScope, Submission};

use crate::house::{TestHouse, frozen, script};

fn data(event: &Event) -> Value {
    let data = event.fact.data.as_ref();
    data.map_or(Value::Null, |data| serde_json::from_str(&data.0).unwrap())
}

/// What the last event of this kind says.
fn said(house: &TestHouse, kind: EventKind) -> Value {
    let events = house.events();
    let event = events.iter().rev().find(|event| event.fact.kind == kind);
    data(event.unwrap_or_else(|| panic!("no {kind}")))
}

#[test]
fn a_jobs_story_says_who_and_what() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    assert_eq!(
        said(&house, EventKind::JobSubmitted),
        json!({ "task": "main", "source": "submit" })
    );
    let ann = house.worker("ann", &["gpu"], 2);
    assert_eq!(
        said(&house, EventKind::WorkerRegistered),
        json!({ "tags": ["gpu", "script"], "slots": 2, "version": "0.1.0", "platform": "linux" })
    );
    let first = ann.begin();
    ann.finish(first.attempt, Finished::exited(7));
    assert_eq!(
        said(&house, EventKind::StepFailed),
        json!({ "exit_code": 7 })
    );
    ann.complete(ann.begin().attempt);
    assert_eq!(
        said(&house, EventKind::JobFailed),
        json!({ "step": "a", "failed": 1 })
    );
    let again = Retry::of(job, RetryScope::All);
    let again = house.engine.retry(again, house.now()).unwrap().job_id;
    assert_eq!(
        said(&house, EventKind::JobSubmitted),
        json!({ "task": "main", "source": "retry", "retry_of": 1 })
    );
    house.engine.cancel(again, "eve", house.now()).unwrap();
    assert_eq!(
        said(&house, EventKind::JobCancelled),
        json!({ "by": "eve" })
    );
}

#[test]
fn a_try_that_is_followed_by_another_says_which_it_was() {
    let house = TestHouse::new();
    let mut step = script("a");
    step.retry.max_attempts = 3;
    step.retry.delay_ms = 5_000;
    house.submit(vec![step]);
    let ann = house.worker("ann", &[], 1);
    ann.fail(ann.begin().attempt);
    let told = said(&house, EventKind::StepRetried);
    assert_eq!(
        (&told["exit_code"], &told["tries"], &told["max_attempts"]),
        (&json!(1), &json!(1), &json!(3))
    );
    assert_eq!(told["again_in_secs"], json!(5.0));
}

#[test]
fn what_a_person_decided_says_who_and_why() {
    let house = TestHouse::new();
    let ask = || StepDraft {
        action: Action::Approval {
            message: "sure?".to_string(),
            inputs: Vec::new(),
        },
        timeout_ms: Some(60_000),
        ..script("ask")
    };
    let decide = |job: JobId, decision| {
        let step_id = house.step(job, "ask").step_id;
        let decided = house.engine.decide(step_id, decision, "eve", house.now());
        decided.unwrap();
    };
    decide(
        house.submit(vec![ask()]),
        Decision::Approve { output: None },
    );
    assert_eq!(
        said(&house, EventKind::StepSuspended),
        json!({ "timeout_secs": 60.0 })
    );
    assert_eq!(
        said(&house, EventKind::StepApproved),
        json!({ "by": "eve" })
    );
    let why = "not today".to_string();
    decide(house.submit(vec![ask()]), Decision::Reject { why });
    let rejected = json!({ "by": "eve", "why": "not today" });
    assert_eq!(said(&house, EventKind::StepRejected), rejected);
    assert_eq!(said(&house, EventKind::StepFailed), rejected);
    house.submit(vec![ask()]);
    house.clock.advance_ms(60_000);
    house.sweep();
    assert_eq!(
        said(&house, EventKind::StepFailed),
        json!({ "timeout_secs": 60.0 })
    );
}

#[test]
fn an_assignment_that_comes_back_is_counted() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    ann.decline(ann.claim().attempt, "no disk");
    assert_eq!(
        said(&house, EventKind::StepRequeued),
        json!({ "what": "declined", "why": "no disk", "returns": 1, "returns_max": 5 })
    );
    let bob = house.worker("bob", &[], 1);
    bob.claim();
    house.clock.advance_ms(60_000);
    house.sweep();
    assert_eq!(
        said(&house, EventKind::StepRequeued),
        json!({ "what": "ack_timeout", "ack_timeout_secs": 60.0, "returns": 2, "returns_max": 5 })
    );
}

#[test]
fn recovery_says_the_silence_and_the_limits_in_force() {
    let house = TestHouse::new();
    let mut held = script("held");
    held.on_worker_loss = OnWorkerLoss::Hold;
    house.submit(vec![script("lost")]);
    house.submit(vec![held]);
    let ann = house.worker("ann", &[], 2);
    for given in ann.poll(2, &[]).assignments {
        ann.start(given.attempt);
    }
    house.clock.advance_ms(121_000);
    house.sweep();
    let silence = json!({ "silent_secs": 121.0, "heartbeat_timeout_secs": 120.0 });
    for kind in [
        EventKind::WorkerInactive,
        EventKind::StepFailed,
        EventKind::StepHeld,
    ] {
        assert_eq!(said(&house, kind), silence, "{kind}");
    }
    ann.heartbeat(1, &[]);
    assert_eq!(
        said(&house, EventKind::WorkerActive),
        json!({ "silent_secs": 121.0 })
    );
}

#[test]
fn an_overdue_step_and_an_overdue_job_say_how_long_they_ran() {
    let house = TestHouse::new();
    let mut slow = script("slow");
    slow.timeout_ms = Some(10_000);
    house.submit(vec![slow]);
    let mut task = TaskDraft::new("bounded", vec![script("a")]);
    task.timeout_ms = Some(20_000);
    house.submit_tasks(vec![task]);
    let mut task = TaskDraft::new("queued", vec![script("b")]);
    task.queue_timeout_ms = Some(25_000);
    house.submit_tasks(vec![task]);
    let ann = house.worker("ann", &[], 2);
    for given in ann.poll(2, &[]).assignments {
        ann.start(given.attempt);
    }
    house.clock.advance_ms(60_000);
    house.sweep();
    let told = said(&house, EventKind::StepFailed);
    assert_eq!(told["timeout_secs"], json!(10.0));
    assert_eq!(told["ran_secs"], json!(60.0));
    let cancelled = house.events();
    let cancelled = cancelled
        .iter()
        .filter(|event| event.fact.kind == EventKind::JobCancelled);
    let cancelled: Vec<Value> = cancelled.map(data).collect();
    assert!(cancelled.contains(&json!({ "timeout_secs": 20.0, "ran_secs": 60.0 })));
    assert!(cancelled.contains(&json!({ "queue_timeout_secs": 25.0 })));
}

#[test]
fn a_step_that_nobody_can_run_says_what_each_worker_lacks() {
    let house = TestHouse::new();
    let mut step = script("train");
    step.tags = ["gpu", "cuda"].map(str::to_string).into();
    house.submit(vec![step.clone()]);
    let (ann, bob) = (
        house.worker("ann", &["gpu"], 1),
        house.worker("bob", &["gpu", "cuda"], 1),
    );
    house.engine.pause(bob.worker_id, house.now()).unwrap();
    house.clock.advance_ms(31_000);
    ann.heartbeat(1, &[]);
    house.sweep();
    let told = said(&house, EventKind::StepFailed);
    assert_eq!(
        told,
        json!({
            "required_tags": ["cuda", "gpu", "script"],
            "ready_secs": 31.0,
            "unmatched_step_timeout_secs": 30.0,
            "workers": [
                { "worker": "bob", "lacks": [], "paused": true },
                { "worker": "ann", "lacks": ["cuda"] },
            ],
            "more_workers": false,
        })
    );
}

#[test]
fn a_long_list_is_cut_and_says_so() {
    let house = TestHouse::new();
    let mut step = script("picky");
    step.tags = (0..99).map(|n| format!("{n:064}")).collect();
    house.submit(vec![step]);
    for n in 0..30 {
        house.worker(&format!("w{n}"), &[], 1);
    }
    house.clock.advance_ms(31_000);
    house.sweep();
    let told = said(&house, EventKind::StepFailed);
    assert_eq!(told["required_tags"].as_array().unwrap().len(), 100);
    assert_eq!(told["workers"].as_array().unwrap().len(), 1);
    assert_eq!(told["more_workers"], true);
}

#[test]
fn groups_loops_and_children_name_each_other() {
    let house = TestHouse::new();
    let mut task = TaskDraft::new("main", vec![script("a")]);
    let group = |when_full| Concurrency {
        group: "deploy".to_string(),
        limit: 1,
        when_full,
    };
    task.concurrency = Some(group(WhenFull::Queue));
    let first = house.submit_tasks(vec![task.clone()]);
    house.submit_tasks(vec![task.clone()]);
    let held = json!({ "hold": "concurrency", "group": "deploy", "limit": 1 });
    assert_eq!(said(&house, EventKind::JobHeld), held);
    house.engine.cancel(first, "eve", house.now()).unwrap();
    assert_eq!(said(&house, EventKind::JobReleased), held);
    task.concurrency = Some(group(WhenFull::Skip));
    house.submit_tasks(vec![task.clone()]);
    assert_eq!(
        said(&house, EventKind::JobSkipped),
        json!({ "group": "deploy", "group_job_id": 2, "limit": 1 })
    );
    task.concurrency = Some(group(WhenFull::CancelPrevious));
    house.submit_tasks(vec![task]);
    assert_eq!(
        said(&house, EventKind::JobCancelled),
        json!({ "group": "deploy", "superseded_by": 4 })
    );

    let call = StepDraft {
        action: Action::Task {
            task: "child".to_string(),
            input: stepward::domain::Json::empty_object(),
        },
        ..script("call")
    };
    let tasks = vec![
        TaskDraft::new("main", vec![call]),
        TaskDraft::new("child", vec![script("a")]),
    ];
    let submission = Submission::of(&frozen(tasks));
    let parent = house.submission(submission).unwrap();
    house.run_all(&["a"]);
    let child = house.child_of(parent, "call");
    let told = said(&house, EventKind::StepFailed);
    assert_eq!(told, json!({ "child_job_id": child.0 }));
}
