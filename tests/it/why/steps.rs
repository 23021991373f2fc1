//! Steps and jobs: every code for which they wait, and every one for which they end.

use stepward::domain::reason::Reason;
use stepward::domain::retry::{OnWorkerLoss, RetryPolicy};
use stepward::domain::task::{Concurrency, ForEach, Items, StepDraft, TaskDraft, WhenFull};
use stepward::domain::{JobId, Json, Timestamp};
use stepward::engine::{Decision, Finished, HeldPhase, Submission};

use stepward::cli::why_text;
use stepward::server::api::show;

use super::{check_job, check_step, look};
use crate::house::{TestHouse, frozen, script};

fn release(steps: Vec<StepDraft>) -> TaskDraft {
    TaskDraft::new("release", steps)
}

/// `build`, then `test`, then `publish`.
fn chain() -> Vec<StepDraft> {
    vec![
        script("build"),
        script("test").after(&["build"]),
        script("publish").after(&["test"]),
    ]
}

fn submit(house: &TestHouse, steps: Vec<StepDraft>) -> JobId {
    house.submit_tasks(vec![release(steps)])
}

fn tagged(name: &str, tag: &str) -> StepDraft {
    StepDraft {
        tags: vec![tag.to_string()],
        ..script(name)
    }
}

fn each(name: &str, count: usize, max_parallel: Option<u32>) -> StepDraft {
    let items = (0..count).map(|item| Json(item.to_string())).collect();
    StepDraft {
        for_each: Some(ForEach {
            items: Items::List(items),
            max_parallel,
        }),
        ..script(name)
    }
}

fn grouped(when_full: WhenFull) -> TaskDraft {
    TaskDraft {
        concurrency: Some(Concurrency {
            group: "deploys".to_string(),
            limit: 1,
            when_full,
        }),
        ..release(chain())
    }
}

fn waiting(code: &str, house: &TestHouse, job: JobId, step: &str) {
    check_step(code, &format!("waiting_{code}"), house, job, step);
}

fn ended(code: &str, house: &TestHouse, job: JobId, step: &str) {
    check_step(code, code, house, job, step);
}

/// What a worker reports, of the first step of a chain.
fn reported(reason: Reason, message: &str, exit_code: Option<i32>) -> (TestHouse, JobId) {
    let house = TestHouse::new();
    let job = submit(&house, chain());
    let ann = house.worker("edge-1", &[], 2);
    let given = ann.begin();
    house.clock.advance_ms(72_000);
    let finished = Finished::Failed {
        reason,
        message: message.to_string(),
        exit_code,
    };
    ann.finish(given.attempt, finished);
    house.clock.advance_ms(360_000);
    (house, job)
}

#[test]
fn dependencies() {
    let house = TestHouse::new();
    let job = submit(&house, chain());
    house.worker("edge-1", &[], 2).begin();
    house.clock.advance_ms(8_000);
    waiting("dependencies", &house, job, "publish");
}

#[test]
fn not_before() {
    let house = TestHouse::new();
    let later = Submission {
        not_before: Some(Timestamp(house.now().wall.0 + 3 * 3_600_000)),
        ..Submission::of(&frozen(vec![release(chain())]))
    };
    let job = house.submission(later).unwrap();
    house.clock.advance_ms(60_000);
    waiting("not_before", &house, job, "build");
}

#[test]
fn retry_backoff() {
    let house = TestHouse::new();
    let retry = RetryPolicy {
        delay_ms: 90_000,
        ..RetryPolicy::times(3)
    };
    let flaky = StepDraft {
        retry,
        ..script("upload")
    };
    let job = submit(&house, vec![flaky]);
    let ann = house.worker("edge-1", &[], 2);
    ann.fail(ann.begin().attempt);
    house.clock.advance_ms(12_000);
    waiting("retry_backoff", &house, job, "upload");
}

#[test]
fn concurrency() {
    let house = TestHouse::new();
    let task = || TaskDraft {
        queue_timeout_ms: Some(600_000),
        ..grouped(WhenFull::Queue)
    };
    house.submit_tasks(vec![task()]);
    let job = house.submit_tasks(vec![task()]);
    house.clock.advance_ms(60_000);
    waiting("concurrency", &house, job, "build");
}

#[test]
fn concurrency_of_a_loop() {
    let house = TestHouse::new();
    let job = submit(&house, vec![each("shard", 3, Some(1))]);
    house.worker("edge-1", &[], 2).begin();
    house.clock.advance_ms(5_000);
    check_step(
        "concurrency",
        "waiting_concurrency-loop",
        &house,
        job,
        "shard[1]",
    );
}

#[test]
fn paused() {
    let house = TestHouse::new();
    let job = submit(&house, vec![tagged("train", "gpu")]);
    house.worker("edge-1", &["docker"], 2);
    let able = house.worker("edge-2", &["gpu"], 1);
    house.engine.pause(able.worker_id, house.now()).unwrap();
    house.clock.advance_ms(12_000);
    waiting("paused", &house, job, "train");
}

#[test]
fn approval() {
    let house = TestHouse::new();
    let ask = StepDraft {
        timeout_ms: Some(3_600_000),
        ..StepDraft::approval("ask", "Publish 1.2.3 to everybody?")
    };
    let job = submit(&house, vec![ask, script("publish").after(&["ask"])]);
    house.clock.advance_ms(780_000);
    waiting("approval", &house, job, "ask");
}

#[test]
fn a_long_question_is_cut() {
    let house = TestHouse::new();
    let question = format!(
        "Publish 1.2.3 to everybody? {}",
        "Think of it. ".repeat(230)
    );
    let ask = StepDraft::approval("ask", &question);
    let job = submit(&house, vec![ask, script("publish").after(&["ask"])]);
    house.clock.advance_ms(780_000);
    check_step("approval", "waiting_approval-long", &house, job, "ask");
}

#[test]
fn a_loop_of_which_the_same_is_to_say_is_told_once() {
    let house = TestHouse::new();
    let job = submit(&house, vec![each("shard", 15, None)]);
    house.worker("edge-1", &[], 1).begin();
    house.clock.advance_ms(5_000);
    let name = "waiting_workers_busy-many";
    check_step("workers_busy", name, &house, job, "shard[2]");
    let job = submit(&house, vec![each("test", 900, None)]);
    let why = house.engine.why_job(job, house.now()).unwrap();
    let json = show::job_why(&why, house.now());
    let text = why_text::job(&json, &look(80));
    assert!(text.lines().count() < 20, "{text}");
    let more = format!("and {} more steps", json.more_steps);
    assert!(json.more && text.contains(&more), "{text}");
    assert_eq!(json.steps.len() + json.more_steps, 901, "{text}");
}

#[test]
fn held() {
    let house = TestHouse::new();
    let step = StepDraft {
        on_worker_loss: OnWorkerLoss::Hold,
        ..script("migrate")
    };
    let job = submit(&house, vec![step]);
    house.worker("edge-1", &[], 1).begin();
    house.clock.advance_ms(30_000);
    house.worker("edge-1", &[], 1);
    house.clock.advance_ms(30_000);
    waiting("held", &house, job, "migrate");
}

fn with_child(house: &TestHouse) -> JobId {
    house.submit_tasks(vec![
        release(vec![
            StepDraft::task("checks", "check"),
            script("publish").after(&["checks"]),
        ]),
        TaskDraft::new(
            "check",
            vec![script("lint"), script("unit").after(&["lint"])],
        ),
    ])
}

#[test]
fn child_job() {
    let house = TestHouse::new();
    let job = with_child(&house);
    house.worker("edge-1", &[], 1).begin();
    house.clock.advance_ms(20_000);
    waiting("child_job", &house, job, "checks");
}

#[test]
fn child_job_that_nobody_can_go_on_with() {
    let house = TestHouse::new();
    let job = with_child(&house);
    house.clock.advance_ms(12_000);
    check_step(
        "child_job",
        "waiting_child_job-waiting",
        &house,
        job,
        "checks",
    );
}

/// The server was off for an hour: that is in every age, and in no deadline.
#[test]
fn ages_are_those_of_the_wall_clock() {
    let house = TestHouse::new();
    let job = submit(&house, vec![script("fit")]);
    house.clock.advance_ms(12_000);
    house.clock.step_wall_ms(3_600_000);
    let now = house.now();
    let told = show::job_why(&house.engine.why_job(job, now).unwrap(), now);
    assert_eq!(
        (told.since_secs, told.steps[0].since_secs),
        (3_612.0, 3_612.0)
    );
    let outcome = told.steps[0].why.outcome.as_ref().unwrap();
    assert!(outcome.in_secs < 20.0, "{outcome:?}");
    let (queued, _) = house.engine.queue(None, 10, now).unwrap();
    assert_eq!(queued[0].age_ms, 3_612_000);
    // Somebody sets the clock back: an age is never less than nothing.
    house.clock.step_wall_ms(-7_200_000);
    let now = house.now();
    let told = show::job_why(&house.engine.why_job(job, now).unwrap(), now);
    assert_eq!(told.steps[0].since_secs, 12.0);
}

#[test]
fn instances() {
    let house = TestHouse::new();
    let job = submit(&house, vec![each("shard", 2, None)]);
    house.worker("edge-1", &[], 2).begin();
    house.clock.advance_ms(20_000);
    waiting("instances", &house, job, "shard");
}

/// The example of the manual.
fn train() -> Vec<StepDraft> {
    vec![
        tagged("train", "gpu"),
        script("evaluate").after(&["train"]),
        script("publish").after(&["evaluate"]),
    ]
}

#[test]
fn no_matching_worker() {
    let house = TestHouse::new();
    let job = submit(&house, train());
    house.worker("edge-1", &["docker"], 4);
    house.clock.advance_ms(10_000);
    house.worker("a-worker-with-a-long-name", &["docker", "kubernetes"], 4);
    house.clock.advance_ms(2_000);
    waiting("no_matching_worker", &house, job, "train");
}

#[test]
fn no_worker_at_all() {
    let house = TestHouse::new();
    let job = submit(&house, train());
    house.clock.advance_ms(2_000);
    check_step(
        "no_matching_worker",
        "waiting_no_matching_worker-none",
        &house,
        job,
        "train",
    );
}

#[test]
fn matching_workers_silent() {
    let house = TestHouse::new();
    house.worker("edge-2", &["gpu"], 1);
    house.clock.advance_ms(200_000);
    house.sweep();
    let job = submit(&house, train());
    house.worker("edge-1", &["docker"], 4);
    house.clock.advance_ms(12_000);
    waiting("matching_workers_silent", &house, job, "train");
}

#[test]
fn workers_busy() {
    let house = TestHouse::new();
    let job = submit(&house, vec![script("one"), script("two"), script("three")]);
    let ann = house.worker("edge-1", &[], 2);
    ann.begin();
    ann.begin();
    house.clock.advance_ms(20_000);
    waiting("workers_busy", &house, job, "three");
}

#[test]
fn claimable() {
    let house = TestHouse::new();
    let job = submit(&house, chain());
    house.worker("edge-1", &[], 2);
    house.clock.advance_ms(400);
    waiting("claimable", &house, job, "build");
}

#[test]
fn preparing() {
    let house = TestHouse::new();
    let job = submit(&house, chain());
    house.worker("edge-1", &[], 2).claim();
    house.clock.advance_ms(5_000);
    waiting("preparing", &house, job, "build");
}

#[test]
fn running() {
    let house = TestHouse::new();
    let limited = StepDraft {
        timeout_ms: Some(600_000),
        ..script("build")
    };
    let job = submit(&house, vec![limited, script("test").after(&["build"])]);
    house.worker("edge-1", &[], 2).begin();
    house.clock.advance_ms(95_000);
    waiting("running", &house, job, "build");
}

#[test]
fn running_with_a_failure() {
    let house = TestHouse::new();
    let job = submit(&house, vec![script("unit"), script("slow")]);
    let ann = house.worker("edge-1", &[], 2);
    let unit = ann.begin();
    ann.begin();
    ann.fail(unit.attempt);
    house.clock.advance_ms(20_000);
    check_step("running", "waiting_running-failed", &house, job, "slow");
}

#[test]
fn completed() {
    let house = TestHouse::new();
    let job = submit(&house, chain());
    house.run_all(&[]);
    house.clock.advance_ms(60_000);
    check_step("completed", "completed", &house, job, "build");
}

#[test]
fn exit_code() {
    let (house, job) = reported(Reason::ExitCode, "exit code 2", Some(2));
    ended("exit_code", &house, job, "build");
}

#[test]
fn exit_codes_that_mean_something() {
    for code in [126, 127, 137] {
        let (house, job) = reported(Reason::ExitCode, &format!("exit code {code}"), Some(code));
        check_step(
            "exit_code",
            &format!("exit_code-{code}"),
            &house,
            job,
            "build",
        );
    }
}

#[test]
fn signal() {
    let (house, job) = reported(Reason::Signal, "killed by signal 9 (SIGKILL)", None);
    ended("signal", &house, job, "build");
}

#[test]
fn spawn_error() {
    let message = "no such program: /usr/bin/pytohn";
    let (house, job) = reported(Reason::SpawnError, message, None);
    ended("spawn_error", &house, job, "build");
}

#[test]
fn payload_error() {
    let message = "the workdir ../../etc leads out of the workspace";
    let (house, job) = reported(Reason::PayloadError, message, None);
    ended("payload_error", &house, job, "build");
}

#[test]
fn output_invalid() {
    let message = "the output is not an object: line 1, column 3";
    let (house, job) = reported(Reason::OutputInvalid, message, Some(0));
    ended("output_invalid", &house, job, "build");
}

#[test]
fn worker_shutdown() {
    let message = "the worker was told to stop and its time to finish was over";
    let (house, job) = reported(Reason::WorkerShutdown, message, None);
    ended("worker_shutdown", &house, job, "build");
}

#[test]
fn template_error() {
    let house = TestHouse::new();
    let tag = StepDraft::script("tag", "git tag {{ steps.build.output.version | sh }}");
    let steps = vec![
        script("build"),
        tag.after(&["build"]),
        script("push").after(&["tag"]),
    ];
    let job = submit(&house, steps);
    house.run_all(&[]);
    house.clock.advance_ms(60_000);
    ended("template_error", &house, job, "tag");
}

#[test]
fn worker_lost() {
    let house = TestHouse::new();
    let job = submit(
        &house,
        vec![script("dump"), script("upload").after(&["dump"])],
    );
    house.worker("edge-2", &[], 1).begin();
    house.clock.advance_ms(134_000);
    house.sweep();
    house.clock.advance_ms(360_000);
    ended("worker_lost", &house, job, "dump");
}

#[test]
fn worker_restarted() {
    let house = TestHouse::new();
    let job = submit(&house, chain());
    house.worker("edge-2", &[], 1).begin();
    house.clock.advance_ms(34_000);
    house.worker("edge-2", &[], 1);
    house.clock.advance_ms(60_000);
    ended("worker_restarted", &house, job, "build");
}

#[test]
fn worker_deleted() {
    let house = TestHouse::new();
    let job = submit(&house, chain());
    let ann = house.worker("edge-2", &[], 1);
    ann.begin();
    house.clock.advance_ms(34_000);
    let now = house.now();
    house
        .engine
        .delete_worker(ann.worker_id, true, now)
        .unwrap();
    house.clock.advance_ms(60_000);
    ended("worker_deleted", &house, job, "build");
}

#[test]
fn worker_forgot() {
    let house = TestHouse::new();
    let job = submit(&house, chain());
    let ann = house.worker("edge-2", &[], 1);
    ann.begin();
    house.clock.advance_ms(40_000);
    ann.heartbeat(1, &[]);
    ann.heartbeat(2, &[]);
    house.sweep();
    house.clock.advance_ms(60_000);
    ended("worker_forgot", &house, job, "build");
}

#[test]
fn assignment_exhausted() {
    let house = TestHouse::new();
    let job = submit(&house, chain());
    let ann = house.worker("edge-2", &[], 1);
    for _ in 0..5 {
        ann.decline(ann.claim().attempt, "its disk is full");
        house.clock.advance_ms(10_000);
    }
    ended("assignment_exhausted", &house, job, "build");
}

#[test]
fn step_timeout() {
    let house = TestHouse::new();
    let limited = StepDraft {
        timeout_ms: Some(60_000),
        ..script("build")
    };
    let job = submit(&house, vec![limited, script("test").after(&["build"])]);
    let ann = house.worker("edge-1", &[], 1);
    let held = [(ann.begin().attempt, HeldPhase::Running)];
    house.clock.advance_ms(61_000);
    ann.heartbeat(1, &held);
    house.sweep();
    house.clock.advance_ms(60_000);
    ended("step_timeout", &house, job, "build");
}

#[test]
fn approval_timeout() {
    let house = TestHouse::new();
    let ask = StepDraft {
        timeout_ms: Some(3_600_000),
        ..StepDraft::approval("ask", "Publish 1.2.3 to everybody?")
    };
    let job = submit(&house, vec![ask, script("publish").after(&["ask"])]);
    house.clock.advance_ms(3_601_000);
    house.sweep();
    ended("approval_timeout", &house, job, "ask");
}

#[test]
fn approval_rejected() {
    let house = TestHouse::new();
    let ask = StepDraft::approval("ask", "Publish 1.2.3 to everybody?");
    let job = submit(&house, vec![ask, script("publish").after(&["ask"])]);
    let why = "not before the freeze is over".to_string();
    let step_id = house.step(job, "ask").step_id;
    let now = house.now();
    let no = Decision::Reject { why };
    house.engine.decide(step_id, no, "ann", now).unwrap();
    house.clock.advance_ms(60_000);
    ended("approval_rejected", &house, job, "ask");
}

#[test]
fn failed_by_user() {
    let house = TestHouse::new();
    let job = submit(&house, chain());
    house.worker("edge-1", &[], 1).begin();
    let step_id = house.step(job, "build").step_id;
    let (why, now) = ("the license server is down", house.now());
    house.engine.fail_step(step_id, "ann", why, now).unwrap();
    house.clock.advance_ms(60_000);
    ended("failed_by_user", &house, job, "build");
}

#[test]
fn job_timeout() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![TaskDraft {
        timeout_ms: Some(50_000),
        ..release(chain())
    }]);
    let ann = house.worker("edge-1", &[], 1);
    let held = [(ann.begin().attempt, HeldPhase::Running)];
    house.clock.advance_ms(50_000);
    ann.heartbeat(1, &held);
    house.sweep();
    house.clock.advance_ms(10_000);
    ended("job_timeout", &house, job, "build");
}

#[test]
fn queue_timeout() {
    let house = TestHouse::new();
    let task = || TaskDraft {
        queue_timeout_ms: Some(20_000),
        ..grouped(WhenFull::Queue)
    };
    house.submit_tasks(vec![task()]);
    house.worker("edge-1", &[], 1).begin();
    let job = house.submit_tasks(vec![task()]);
    house.clock.advance_ms(20_000);
    house.sweep();
    house.clock.advance_ms(10_000);
    ended("queue_timeout", &house, job, "build");
}

#[test]
fn unmatched() {
    let house = TestHouse::new();
    let job = submit(&house, train());
    house.worker("edge-1", &["docker"], 4);
    house.clock.advance_ms(30_000);
    house.sweep();
    house.clock.advance_ms(60_000);
    ended("unmatched", &house, job, "train");
}

#[test]
fn dependency_not_accepted() {
    let house = TestHouse::new();
    let job = submit(&house, chain());
    house.run_all(&["build"]);
    house.clock.advance_ms(60_000);
    ended("dependency_not_accepted", &house, job, "publish");
}

#[test]
fn when_false() {
    let house = TestHouse::new();
    let publish = StepDraft {
        when: Some(Json("false".to_string())),
        ..script("publish")
    };
    let job = submit(&house, vec![script("build"), publish.after(&["build"])]);
    house.run_all(&[]);
    house.clock.advance_ms(60_000);
    ended("when_false", &house, job, "publish");
}

#[test]
fn empty_loop() {
    let house = TestHouse::new();
    let job = submit(&house, vec![script("build"), each("shard", 0, None)]);
    house.run_all(&[]);
    house.clock.advance_ms(60_000);
    ended("empty_loop", &house, job, "shard");
}

#[test]
fn child_failed() {
    let house = TestHouse::new();
    let job = with_child(&house);
    house.run_all(&["lint"]);
    house.clock.advance_ms(60_000);
    ended("child_failed", &house, job, "checks");
}

#[test]
fn instance_failed() {
    let house = TestHouse::new();
    let steps = vec![each("shard", 3, None), script("merge").after(&["shard"])];
    let job = submit(&house, steps);
    house.run_all(&["shard[1]"]);
    house.clock.advance_ms(60_000);
    ended("instance_failed", &house, job, "shard");
}

#[test]
fn cancelled_by_user() {
    let house = TestHouse::new();
    let job = submit(&house, chain());
    house.worker("edge-1", &[], 1).begin();
    house.clock.advance_ms(20_000);
    house.engine.cancel(job, "ann", house.now()).unwrap();
    house.clock.advance_ms(60_000);
    ended("cancelled_by_user", &house, job, "build");
}

#[test]
fn cancelled_by_parent() {
    let house = TestHouse::new();
    let job = with_child(&house);
    let child = house.child_of(job, "checks");
    house.engine.cancel(job, "ann", house.now()).unwrap();
    house.clock.advance_ms(60_000);
    ended("cancelled_by_parent", &house, child, "lint");
}

#[test]
fn child_cancelled() {
    let house = TestHouse::new();
    let job = with_child(&house);
    let child = house.child_of(job, "checks");
    house.engine.cancel(child, "ann", house.now()).unwrap();
    house.clock.advance_ms(60_000);
    ended("child_cancelled", &house, job, "checks");
}

#[test]
fn superseded() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![grouped(WhenFull::CancelPrevious)]);
    house.worker("edge-1", &[], 1).begin();
    house.submit_tasks(vec![grouped(WhenFull::CancelPrevious)]);
    house.clock.advance_ms(60_000);
    ended("superseded", &house, job, "build");
}

#[test]
fn overlap_skipped() {
    let house = TestHouse::new();
    house.submit_tasks(vec![grouped(WhenFull::Skip)]);
    let job = house.submit_tasks(vec![grouped(WhenFull::Skip)]);
    house.clock.advance_ms(60_000);
    check_job("overlap_skipped", &house, job);
}
