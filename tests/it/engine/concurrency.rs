//! Concurrency groups: so many at a time, the others wait, are skipped, or take their place.

use stepward::domain::event::EventKind;
use stepward::domain::job::{Hold, JobState};
use stepward::domain::reason::Reason;
use stepward::domain::retry::RetryPolicy;
use stepward::domain::task::{Concurrency, StepDraft, TaskDraft, WhenFull};
use stepward::domain::{JobId, Timestamp};
use stepward::engine::{Finished, News, Reports, Submission, Verdict};

use crate::house::{TestHouse, frozen, script};

fn grouped(name: &str, limit: u32, when_full: WhenFull, steps: Vec<StepDraft>) -> TaskDraft {
    let concurrency = Some(Concurrency {
        group: "deploy".to_string(),
        limit,
        when_full,
    });
    TaskDraft {
        concurrency,
        ..TaskDraft::new(name, steps)
    }
}

fn submit(house: &TestHouse, when_full: WhenFull) -> JobId {
    house.submit_tasks(vec![grouped("main", 1, when_full, vec![script("a")])])
}

fn hold(house: &TestHouse, job: JobId) -> Option<Hold> {
    house.job(job).job.hold
}

#[test]
fn what_one_report_releases_and_supersedes_ends_superseded() {
    let house = TestHouse::new();
    let steps = || vec![script("a"), script("b").after(&["a"])];
    let deploy = || grouped("deploy", 1, WhenFull::CancelPrevious, steps());
    let first = house.submit_tasks(vec![deploy()]);
    let second = house.submit_tasks(vec![
        TaskDraft::new(
            "main",
            vec![script("x"), StepDraft::task("y", "deploy").after(&["x"])],
        ),
        deploy(),
    ]);
    let worker = house.worker("ann", &[], 2);
    let (a, x) = (worker.begin(), worker.begin());
    let completed = |attempt| (attempt, News::Finished(Finished::completed()));
    let reports = Reports {
        session_key: worker.key.clone(),
        items: vec![completed(a.attempt), completed(x.attempt)],
        poll: None,
    };
    let answer = house.engine.report(reports, house.now()).unwrap();
    assert_eq!(answer.verdicts, [Verdict::Accepted, Verdict::Accepted]);
    assert_eq!(house.summary(first), "a completed, b cancelled → cancelled");
    assert_eq!(house.summary(second), "x completed, y running → running");
}

#[test]
fn a_full_group_lets_the_next_one_in_when_one_ends() {
    let house = TestHouse::new();
    let jobs: Vec<_> = (0..3).map(|_| submit(&house, WhenFull::Queue)).collect();
    assert_eq!(
        jobs.iter()
            .map(|&job| hold(&house, job))
            .collect::<Vec<_>>(),
        [None, Some(Hold::Concurrency), Some(Hold::Concurrency)]
    );
    let worker = house.worker("ann", &[], 3);
    for (at, &job) in jobs.iter().enumerate() {
        let claimed = worker.begin();
        assert_eq!(claimed.job_id, job);
        assert_eq!(worker.claim_names(1), Vec::<String>::new());
        if at == 1 {
            worker.fail(claimed.attempt)
        } else {
            worker.complete(claimed.attempt)
        };
    }
    assert_eq!(
        house.event_kinds(jobs[1]),
        [
            EventKind::JobSubmitted,
            EventKind::JobHeld,
            EventKind::JobReleased,
            EventKind::StepFailed,
            EventKind::JobFailed
        ]
    );
}

#[test]
fn a_waiting_job_of_higher_priority_goes_first() {
    let house = TestHouse::new();
    let task = frozen(vec![grouped("main", 1, WhenFull::Queue, vec![script("a")])]);
    let submit = |priority| {
        let submission = Submission {
            priority: Some(priority),
            ..Submission::of(&task)
        };
        house.submission(submission).unwrap()
    };
    let (first, low, high) = (submit(0), submit(1), submit(2));
    house.engine.cancel(first, "eve", house.now()).unwrap();
    assert_eq!(
        (hold(&house, low), hold(&house, high)),
        (Some(Hold::Concurrency), None)
    );
}

#[test]
fn a_full_group_may_skip() {
    let house = TestHouse::new();
    let first = submit(&house, WhenFull::Skip);
    let second = submit(&house, WhenFull::Skip);
    let job = house.job(second).job;
    assert_eq!(
        (job.state, job.reason),
        (JobState::Skipped, Some(Reason::OverlapSkipped))
    );
    assert_eq!(
        job.message.unwrap(),
        "group deploy is full: job 1 is in it, the limit is 1"
    );
    house.run_all(&[]);
    assert_eq!(house.job_state(first), JobState::Completed);
    assert_eq!(
        house.summary(submit(&house, WhenFull::Skip)),
        "a ready → pending"
    );
}

#[test]
fn a_newcomer_may_take_the_place() {
    let house = TestHouse::new();
    let first = submit(&house, WhenFull::CancelPrevious);
    let worker = house.worker("ann", &[], 2);
    let claimed = worker.begin();
    let second = submit(&house, WhenFull::CancelPrevious);
    let job = house.job(first).job;
    assert_eq!(
        (job.state, job.reason),
        (JobState::Cancelled, Some(Reason::Superseded))
    );
    assert_eq!(worker.poll(0, &[claimed.attempt]).abort, [claimed.attempt]);
    assert_eq!(house.summary(second), "a ready → pending");
}

#[test]
fn a_child_does_not_wait_for_its_own_parent() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        grouped(
            "top",
            1,
            WhenFull::Queue,
            vec![StepDraft::task("go", "child")],
        ),
        grouped("child", 1, WhenFull::Queue, vec![script("a")]),
    ]);
    house.run_all(&[]);
    assert_eq!(house.summary(job), "go completed → completed");
}

#[test]
fn a_child_that_is_skipped_fails_its_parents_step() {
    let house = TestHouse::new();
    submit(&house, WhenFull::Skip);
    let job = house.submit_tasks(vec![
        TaskDraft::new("top", vec![StepDraft::task("go", "child")]),
        grouped("child", 1, WhenFull::Skip, vec![script("a")]),
    ]);
    assert_eq!(house.summary(job), "go failed → failed");
    assert_eq!(house.step(job, "go").reason, Some(Reason::ChildFailed));
}

#[test]
fn a_job_of_later_asks_its_group_when_its_time_has_come() {
    for (when_full, expected) in [
        (WhenFull::Queue, "a pending → pending"),
        (WhenFull::Skip, "a cancelled → skipped"),
        (WhenFull::CancelPrevious, "a ready → pending"),
    ] {
        let house = TestHouse::new();
        let task = frozen(vec![grouped("main", 1, when_full, vec![script("a")])]);
        let later = house.submission(Submission {
            not_before: Some(Timestamp(house.now().wall.0 + 1_000)),
            ..Submission::of(&task)
        });
        let later = later.unwrap();
        let first = submit(&house, when_full);
        assert_eq!(
            hold(&house, first),
            None,
            "one that waits for its time is not in the group"
        );
        house.clock.advance_ms(1_000);
        house.engine.release_due(house.now()).unwrap();
        assert_eq!(house.summary(later), expected, "{when_full}");
        assert_eq!(house.engine.release_due(house.now()).unwrap(), 0);
    }
}

#[test]
fn a_held_job_can_be_cancelled() {
    let house = TestHouse::new();
    submit(&house, WhenFull::Queue);
    let held = submit(&house, WhenFull::Queue);
    house.engine.cancel(held, "eve", house.now()).unwrap();
    assert_eq!(house.summary(held), "a cancelled → cancelled");
}

#[test]
fn what_is_due_may_end_what_else_is_due() {
    let house = TestHouse::new();
    let retry = RetryPolicy {
        on: vec![Reason::ChildFailed],
        delay_ms: 1_000,
        ..RetryPolicy::times(2)
    };
    let go = |task| StepDraft {
        retry: retry.clone(),
        ..StepDraft::task("go", task)
    };
    // The child of the first takes the place of the second in their group.
    let first = house.submit_tasks(vec![
        TaskDraft::new("first", vec![go("child")]),
        grouped("child", 1, WhenFull::CancelPrevious, vec![script("a")]),
    ]);
    house.run_all(&["a"]);
    let second = house.submit_tasks(vec![
        grouped("second", 1, WhenFull::Queue, vec![go("other")]),
        TaskDraft::new("other", vec![script("b")]),
    ]);
    house.run_all(&["b"]);
    assert_eq!(house.summary(first), "go ready → running");
    assert_eq!(house.summary(second), "go ready → running");
    house.clock.advance_ms(1_000);
    assert_eq!(house.engine.release_due(house.now()).unwrap(), 1);
    assert_eq!(house.summary(first), "go running → running");
    assert_eq!(house.summary(second), "go cancelled → cancelled");
}

#[test]
fn cancelling_a_parent_lets_nobody_in_that_it_is_about_to_cancel() {
    let house = TestHouse::new();
    let child = grouped(
        "child",
        1,
        WhenFull::Queue,
        vec![StepDraft::approval("ask", "go?")],
    );
    let job = house.submit_tasks(vec![
        TaskDraft::new(
            "top",
            vec![
                StepDraft::task("one", "child"),
                StepDraft::task("two", "child"),
            ],
        ),
        child,
    ]);
    let waiting = house.child_of(job, "two");
    assert_eq!(hold(&house, waiting), Some(Hold::Concurrency));
    let bystander = submit(&house, WhenFull::Queue);
    house.engine.cancel(job, "eve", house.now()).unwrap();
    assert_eq!(house.summary(waiting), "ask cancelled → cancelled");
    assert_eq!(house.count_events(waiting, EventKind::JobReleased), 0);
    assert_eq!(house.count_events(waiting, EventKind::StepSuspended), 0);
    assert_eq!(house.summary(bystander), "a ready → pending");
}

#[test]
fn a_newcomers_child_may_supersede_while_others_wait_for_the_place() {
    let house = TestHouse::new();
    let in_group = |name: &str, group: &str, limit, when_full, steps| {
        let concurrency = Some(Concurrency {
            group: group.to_string(),
            limit,
            when_full,
        });
        TaskDraft {
            concurrency,
            ..TaskDraft::new(name, steps)
        }
    };
    // One in h; one that waits for h and whose child would take a place in g; and a newcomer in g whose child enters h.
    house.submit_tasks(vec![in_group(
        "first",
        "h",
        1,
        WhenFull::Queue,
        vec![script("a")],
    )]);
    let waiting = house.submit_tasks(vec![
        in_group(
            "waiting",
            "h",
            1,
            WhenFull::Queue,
            vec![StepDraft::task("go", "into-g")],
        ),
        in_group(
            "into-g",
            "g",
            1,
            WhenFull::CancelPrevious,
            vec![script("b")],
        ),
    ]);
    let newcomer = house.submit_tasks(vec![
        in_group(
            "newcomer",
            "g",
            1,
            WhenFull::Queue,
            vec![StepDraft::task("go", "into-h")],
        ),
        in_group(
            "into-h",
            "h",
            1,
            WhenFull::CancelPrevious,
            vec![script("c")],
        ),
    ]);
    assert_eq!(house.summary(newcomer), "go running → running");
    assert_eq!(hold(&house, waiting), Some(Hold::Concurrency));
    house.run_all(&[]);
    assert_eq!(house.job_state(newcomer), JobState::Completed);
    assert_eq!(house.job_state(waiting), JobState::Completed);
}

#[test]
fn nobody_goes_past_a_job_that_waits_for_a_smaller_limit() {
    let house = TestHouse::new();
    let submit = |limit| {
        house.submit_tasks(vec![grouped(
            "main",
            limit,
            WhenFull::Queue,
            vec![script("a")],
        )])
    };
    let (first, narrow, wide) = (submit(2), submit(1), submit(2));
    assert_eq!(hold(&house, narrow), Some(Hold::Concurrency));
    assert_eq!(hold(&house, wide), Some(Hold::Concurrency));
    house.engine.cancel(first, "eve", house.now()).unwrap();
    assert_eq!((hold(&house, narrow), hold(&house, wide)), (None, None));
}

#[test]
fn waiting_for_a_place_and_for_a_worker_is_one_waiting() {
    let house = TestHouse::new();
    let patient = TaskDraft {
        queue_timeout_ms: Some(10_000),
        ..grouped("main", 1, WhenFull::Queue, vec![script("a")])
    };
    house.submit_tasks(vec![patient.clone()]);
    let worker = house.worker("ann", &[], 1);
    let first = worker.begin();
    let second = house.submit_tasks(vec![patient]);
    let due_up = house.job(second).job.due_up;
    assert_eq!(due_up, Some(house.now().up.plus_ms(10_000)));
    house.clock.advance_ms(6_000);
    worker.complete(first.attempt);
    assert_eq!(hold(&house, second), None);
    assert_eq!(house.job(second).job.due_up, due_up);
}
