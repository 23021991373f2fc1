//! One explanation for any step at any time: each code, its sentence, what recovery will do, what a person can.

use stepward::domain::retry::{OnWorkerLoss, RetryPolicy};
use stepward::domain::task::{Concurrency, ForEach, StepDraft, TaskDraft, Unmatched, WhenFull};
use stepward::domain::{JobId, Json, Timestamp};
use stepward::engine::{Outlook, Submission, Why, WhyOutcome};

use crate::house::{TestHouse, frozen, script};

/// `code: sentence`
fn told(why: &Why) -> String {
    format!("{}: {}", why.code, why.sentence)
}

fn ask(house: &TestHouse, job: JobId, step: &str) -> String {
    told(&house.why(job, step))
}

fn fails_in(phase: u8, in_ms: i64) -> Option<WhyOutcome> {
    Some(WhyOutcome {
        deed: Outlook::Fail,
        phase,
        in_ms,
    })
}

#[test]
fn a_pending_step_waits_for_its_dependencies() {
    let house = TestHouse::new();
    let job = house.submit(vec![
        script("a"),
        script("b"),
        script("c").after(&["a", "b"]),
    ]);
    let why = house.why(job, "c");
    assert_eq!(told(&why), "dependencies: it waits for 2 steps to end");
    assert_eq!(why.facts, ["step a is ready", "step b is ready"]);
}

#[test]
fn a_held_job_says_what_holds_it() {
    let house = TestHouse::new();
    let task = frozen(vec![TaskDraft::new("main", vec![script("a")])]);
    let later = Submission {
        not_before: Some(Timestamp(house.now().wall.0 + 90_000)),
        ..Submission::of(&task)
    };
    let job = house.submission(later).unwrap();
    assert_eq!(
        ask(&house, job, "a"),
        "not_before: its job starts in 1m 30s"
    );

    let concurrency = Some(Concurrency {
        group: "g".to_string(),
        limit: 1,
        when_full: WhenFull::Queue,
    });
    let queue = || {
        house.submit_tasks(vec![TaskDraft {
            concurrency: concurrency.clone(),
            queue_timeout_ms: Some(60_000),
            ..TaskDraft::new("main", vec![script("a")])
        }])
    };
    queue();
    let waiting = queue();
    let why = house.why(waiting, "a");
    assert_eq!(
        told(&why),
        "concurrency: its job waits for a place in group g"
    );
    assert_eq!(why.facts, ["job 2 is in the group"]);
    let outcome = WhyOutcome {
        deed: Outlook::CancelJob,
        phase: 3,
        in_ms: 60_000,
    };
    assert_eq!(why.outcome, Some(outcome));
}

#[test]
fn an_instance_held_back_says_so() {
    let house = TestHouse::new();
    let items = vec![Json("1".to_string()), Json("2".to_string())];
    let for_each = Some(ForEach {
        items: stepward::domain::task::Items::List(items),
        max_parallel: Some(1),
    });
    let job = house.submit(vec![StepDraft {
        for_each,
        ..script("t")
    }]);
    assert_eq!(
        ask(&house, job, "t[1]"),
        "concurrency: max_parallel lets 1 instance of the loop run at a time"
    );
    assert_eq!(
        ask(&house, job, "t"),
        "instances: 2 instances have not ended"
    );
}

#[test]
fn a_ready_step_says_who_could_take_it_and_what_recovery_will_do() {
    let house = TestHouse::new();
    let mut step = script("train");
    step.tags = vec!["gpu".to_string()];
    let job = house.submit(vec![step]);
    house.worker("edge-1", &["docker"], 1);
    house.clock.advance_ms(12_000);
    let why = house.why(job, "train");
    assert_eq!(
        told(&why),
        "no_matching_worker: no worker offers gpu + script"
    );
    assert_eq!(why.facts, ["worker edge-1 lacks gpu"]);
    assert_eq!(why.outcome, fails_in(4, 18_000));
    assert_eq!(why.fix, ["stepward worker --tags gpu,script"]);

    let able = house.worker("edge-2", &["gpu"], 1);
    assert_eq!(
        ask(&house, job, "train"),
        "claimable: worker edge-2 can take it with its next poll"
    );

    house.engine.pause(able.worker_id, house.now()).unwrap();
    let why = house.why(job, "train");
    assert_eq!(
        told(&why),
        "paused: the workers that offer gpu + script are paused or drain"
    );
    assert_eq!(
        why.facts,
        [
            "worker edge-2 matches, but is paused",
            "worker edge-1 lacks gpu"
        ]
    );
    assert_eq!(why.fix[0], "stepward worker resume edge-2");
    house.engine.resume(able.worker_id, house.now()).unwrap();

    house.clock.advance_ms(200_000);
    house.sweep();
    let why = house.why(job, "train");
    assert_eq!(
        told(&why),
        "matching_workers_silent: the workers that offer gpu + script are silent"
    );
    assert_eq!(why.facts[0], "worker edge-2 matches, silent for 200 s");
    // It was not without a taker before the worker was given up.
    assert_eq!(why.outcome, fails_in(4, 30_000));
}

#[test]
fn a_step_that_may_wait_for_a_worker_is_not_threatened() {
    let house = TestHouse::new();
    let job = house.submit(vec![StepDraft {
        unmatched: Unmatched::Wait,
        ..script("a")
    }]);
    assert_eq!(house.why(job, "a").outcome, None);
}

#[test]
fn busy_workers_are_named() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    house.worker("ann", &[], 1).begin();
    let why = house.why(job, "b");
    assert_eq!(
        told(&why),
        "workers_busy: every worker that could take it is busy"
    );
    assert_eq!(why.facts, ["worker ann: its slot is busy"]);
}

#[test]
fn a_step_in_a_workers_hands_says_whose_and_until_when() {
    let house = TestHouse::new();
    let retry = RetryPolicy {
        delay_ms: 8_000,
        ..RetryPolicy::times(3)
    };
    let step = StepDraft {
        retry,
        timeout_ms: Some(60_000),
        ..script("a")
    };
    let job = house.submit(vec![step]);
    let ann = house.worker("ann", &[], 1);
    let claimed = ann.claim();
    house.clock.advance_ms(5_000);
    let why = house.why(job, "a");
    assert_eq!(told(&why), "preparing: worker ann prepares it for 5.0s");
    let back = WhyOutcome {
        deed: Outlook::Requeue,
        phase: 1,
        in_ms: 55_000,
    };
    assert_eq!(why.outcome, Some(back));

    ann.start(claimed.attempt);
    house.clock.advance_ms(10_000);
    let why = house.why(job, "a");
    assert_eq!(told(&why), "running: worker ann runs it for 10s");
    let again = WhyOutcome {
        deed: Outlook::Retry,
        phase: 2,
        in_ms: 50_000,
    };
    assert_eq!(why.outcome, Some(again));

    ann.fail(claimed.attempt);
    house.clock.advance_ms(1_500);
    assert_eq!(
        ask(&house, job, "a"),
        "retry_backoff: try 2 of 3 begins in 6.5s"
    );
}

#[test]
fn what_waits_for_a_person_says_what_to_type() {
    let house = TestHouse::new();
    let held = StepDraft {
        on_worker_loss: OnWorkerLoss::Hold,
        ..script("a")
    };
    let job = house.submit(vec![StepDraft::approval("ask", "Publish 1.2.3?"), held]);
    house.worker("ann", &[], 1).begin();
    house.worker("ann", &[], 1);
    let why = house.why(job, "ask");
    assert_eq!(told(&why), "approval: someone must decide: Publish 1.2.3?");
    assert_eq!(
        why.fix,
        ["stepward approve 1 ask", "stepward reject 1 ask -m WHY"]
    );
    assert_eq!(
        ask(&house, job, "a"),
        "held: someone must decide whether it runs again (approve) or fails (reject): worker ann restarted while it ran attempt 1; \
         the step may have run partly"
    );
}

#[test]
fn a_child_job_is_named() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft::new("top", vec![StepDraft::task("go", "child")]),
        TaskDraft::new("child", vec![script("a")]),
    ]);
    house.clock.advance_ms(2_000);
    assert_eq!(
        ask(&house, job, "go"),
        "child_job: child job 2 runs for 2.0s"
    );
    house.run_all(&["a"]);
    let why = house.why(job, "go");
    assert_eq!(
        told(&why),
        "child_failed: child job 2 failed: step a failed: exit code 1"
    );
    assert_eq!(why.facts, ["child job 2"]);
}

#[test]
fn what_ended_is_explained_down_to_its_root_cause() {
    let house = TestHouse::new();
    let job = house.submit(vec![
        script("build"),
        script("test").after(&["build"]),
        script("publish").after(&["test"]),
        script("x"),
    ]);
    house.run_all(&["build"]);
    assert_eq!(ask(&house, job, "build"), "exit_code: exit code 1");
    let why = house.why(job, "publish");
    assert_eq!(
        told(&why),
        "dependency_not_accepted: step test was omitted, which it does not accept"
    );
    assert_eq!(why.facts, ["root cause: step build failed: exit code 1"]);
    assert_eq!(ask(&house, job, "x"), "completed: completed");
}

#[test]
fn a_step_knows_the_deadlines_of_the_jobs_above_it() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft {
            timeout_ms: Some(60_000),
            ..TaskDraft::new("top", vec![StepDraft::task("call", "deep")])
        },
        TaskDraft::new("deep", vec![script("a")]),
    ]);
    let child = house.child_of(job, "call");
    house.worker("ann", &[], 1).begin();
    let ends = WhyOutcome {
        deed: Outlook::CancelJob,
        phase: 3,
        in_ms: 60_000,
    };
    assert_eq!(house.why(child, "a").outcome, Some(ends));
}
