//! Start, keep-alive, finish: reports of the right attempt count, all others are turned away.

use stepward::domain::event::EventKind;
use stepward::domain::reason::Reason;
use stepward::domain::retry::{Backoff, RetryPolicy};
use stepward::domain::step::StepState;
use stepward::domain::task::{StepDraft, TaskDraft};
use stepward::domain::{AttemptRef, Json, StepId};
use stepward::engine::{Assignment, Finished, HeldPhase, News, Reports, Verdict};

use crate::house::{TestHouse, script};

fn aborted(verdict: Verdict) -> String {
    match verdict {
        Verdict::Abort { why } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_step_runs_only_from_its_start_on_and_the_job_with_it() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    house.clock.advance_ms(1_000);
    let claimed = worker.claim();
    assert_eq!(house.summary(job), "a assigned → pending");
    house.clock.advance_ms(30_000);
    assert_eq!(worker.start(claimed.attempt), Verdict::Accepted);
    assert_eq!(house.summary(job), "a running → running");
    let step = house.step(job, "a");
    assert_eq!(
        step.started_at.unwrap().0 - step.assigned_at.unwrap().0,
        30_000
    );
    assert_eq!(step.due_up, Some(house.now().up.plus_ms(24 * 3_600_000)));
}

#[test]
fn a_repeated_start_changes_nothing() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    let claimed = worker.begin();
    let before = house.step(job, "a");
    house.clock.advance_ms(5_000);
    assert_eq!(worker.start(claimed.attempt), Verdict::Accepted);
    assert_eq!(house.step(job, "a"), before);
}

#[test]
fn nothing_finishes_that_was_not_started() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    let claimed = worker.claim();
    let why = aborted(worker.complete(claimed.attempt));
    assert!(why.ends_with("was never started"), "{why}");
    assert_eq!(house.step_state(job, "a"), StepState::Assigned);
}

#[test]
fn a_completed_step_keeps_its_output() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    let claimed = worker.begin();
    let output = Some(Json(r#"{"image":"app:1"}"#.to_string()));
    worker.finish(
        claimed.attempt,
        Finished::Completed {
            output: output.clone(),
            exit_code: Some(0),
        },
    );
    assert_eq!(house.engine.output(job, "a").unwrap(), output);
    assert_eq!(
        house.engine.job_output(job).unwrap().0,
        r#"{"a":{"image":"app:1"}}"#
    );
}

#[test]
fn a_failed_try_is_tried_again_after_its_delay_and_never_seen_as_failed() {
    let house = TestHouse::new();
    let retry = RetryPolicy {
        delay_ms: 10_000,
        backoff: Backoff::Exponential,
        ..RetryPolicy::times(3)
    };
    let job = house.submit(vec![
        StepDraft {
            retry,
            ..script("a")
        },
        script("b").after(&["a"]),
    ]);
    let worker = house.worker("ann", &[], 1);
    for delay_ms in [10_000, 20_000] {
        let claimed = worker.begin();
        worker.fail(claimed.attempt);
        assert_eq!(house.summary(job), "a ready, b pending → running");
        house.clock.advance_ms(delay_ms - 1);
        house.engine.release_due(house.now()).unwrap();
        assert_eq!(worker.claim_names(1), Vec::<String>::new());
        house.clock.advance_ms(1);
        house.engine.release_due(house.now()).unwrap();
    }
    let third = worker.begin();
    assert_eq!(third.attempt.attempt, 3);
    worker.complete(third.attempt);
    worker.run_all(&[]);
    assert_eq!(house.summary(job), "a completed, b completed → completed");
    assert_eq!(house.count_events(job, EventKind::StepRetried), 2);
    let step = house.step(job, "a");
    let former = house
        .engine
        .store
        .read(|tx| tx.former_attempts(step.step_id))
        .unwrap();
    assert_eq!(former.len(), 2);
    assert_eq!(
        (former[0].reason.as_str(), former[0].message.as_str()),
        ("exit_code", "exit code 1")
    );
}

#[test]
fn the_last_try_decides() {
    let house = TestHouse::new();
    let job = house.submit(vec![
        StepDraft {
            retry: RetryPolicy::times(2),
            ..script("a")
        },
        script("b").after(&["a"]),
    ]);
    house.run_all(&["a"]);
    assert_eq!(house.summary(job), "a failed, b skipped → failed");
    assert_eq!(house.step(job, "a").tries, 2);
    assert_eq!(house.count_events(job, EventKind::StepFailed), 1);
}

#[test]
fn a_report_of_a_former_attempt_changes_nothing_and_is_told_once() {
    let house = TestHouse::new();
    let job = house.submit(vec![StepDraft {
        retry: RetryPolicy::times(2),
        ..script("a")
    }]);
    let worker = house.worker("ann", &[], 1);
    let first = worker.begin();
    worker.fail(first.attempt);
    let second = worker.begin();
    let before = house.job(job);
    for _ in 0..3 {
        let why = aborted(worker.complete(first.attempt));
        assert_eq!(why, "the step is at attempt 2, the report is for attempt 1");
    }
    assert_eq!(house.job(job).steps, before.steps);
    assert_eq!(house.count_events(job, EventKind::ReportFenced), 1);
    assert_eq!(worker.complete(second.attempt), Verdict::Accepted);
}

#[test]
fn another_workers_attempt_cannot_be_touched() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let (ann, eve) = (house.worker("ann", &[], 1), house.worker("eve", &[], 1));
    let claimed = ann.begin();
    assert_eq!(
        aborted(eve.complete(claimed.attempt)),
        "the attempt belongs to another session"
    );
    assert_eq!(
        aborted(eve.start(claimed.attempt)),
        "the attempt belongs to another session"
    );
    let guess = AttemptRef {
        step_id: StepId(i64::MAX),
        attempt: u32::MAX,
    };
    assert_eq!(
        aborted(eve.complete(guess)),
        "step 9223372036854775807 does not exist"
    );
    assert_eq!(house.step_state(job, "a"), StepState::Running);
}

#[test]
fn keep_alives_move_the_deadline_but_never_past_the_cap() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    let claimed = worker.claim();
    let assigned_up = house.now().up;
    assert_eq!(
        house.step(job, "a").due_up,
        Some(assigned_up.plus_ms(60_000))
    );
    house.clock.advance_ms(50_000);
    house
        .engine
        .keep_alive(&worker.key, claimed.attempt, house.now())
        .unwrap();
    assert_eq!(
        house.step(job, "a").due_up,
        Some(assigned_up.plus_ms(110_000))
    );
    house.clock.advance_ms(840_000);
    worker.heartbeat(1, &[(claimed.attempt, HeldPhase::Preparing)]);
    assert_eq!(
        house.step(job, "a").due_up,
        Some(assigned_up.plus_ms(900_000))
    );
}

#[test]
fn one_bad_item_does_not_touch_the_others() {
    let house = TestHouse::new();
    let job = house.submit(vec![
        script("a"),
        script("b"),
        script("c").after(&["a", "b"]),
    ]);
    let worker = house.worker("ann", &[], 3);
    let held = worker.poll(2, &[]).assignments;
    let items = |news: fn() -> News| held.iter().map(move |found| (found.attempt, news()));
    let mut started: Vec<_> = items(|| News::Started).collect();
    started.insert(
        1,
        (
            AttemptRef {
                step_id: StepId(999),
                attempt: 1,
            },
            News::Started,
        ),
    );
    let reports = Reports {
        session_key: worker.key.clone(),
        items: started,
        poll: None,
    };
    let answer = house.engine.report(reports, house.now()).unwrap();
    assert!(matches!(
        answer.verdicts[..],
        [Verdict::Accepted, Verdict::Abort { .. }, Verdict::Accepted]
    ));

    let mut ended: Vec<_> = items(|| News::Finished(Finished::completed())).collect();
    ended.insert(
        0,
        (
            held[0].attempt,
            News::Declined {
                why: "too late".to_string(),
            },
        ),
    );
    let reports = Reports {
        session_key: worker.key.clone(),
        items: ended,
        poll: Some((1, Vec::new())),
    };
    let answer = house.engine.report(reports, house.now()).unwrap();
    assert_eq!(
        answer.verdicts[0],
        Verdict::Refused {
            why: "a step that has started cannot be declined: report it as finished, with how it failed"
               .to_string()
        }
    );
    // What the finished steps release comes with the same answer.
    let given = answer.poll.unwrap().assignments;
    assert_eq!(
        given
            .iter()
            .map(|found| found.step.as_str())
            .collect::<Vec<_>>(),
        ["c"]
    );
    assert_eq!(
        house.summary(job),
        "a completed, b completed, c assigned → running"
    );
}

#[test]
fn a_second_item_about_a_step_sees_what_the_first_one_did() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    let attempt = worker.claim().attempt;
    let finished = || News::Finished(Finished::completed());
    let news = [News::Started, News::Started, finished(), finished()];
    let reports = Reports {
        session_key: worker.key.clone(),
        items: news.map(|news| (attempt, news)).into(),
        poll: None,
    };
    let mut verdicts = house
        .engine
        .report(reports, house.now())
        .unwrap()
        .verdicts
        .into_iter();
    let three: Vec<Verdict> = verdicts.by_ref().take(3).collect();
    assert_eq!(three, vec![Verdict::Accepted; 3]);
    assert_eq!(
        aborted(verdicts.next().unwrap()),
        "the step is completed already"
    );
    assert_eq!(house.summary(job), "a completed → completed");
}

#[test]
fn the_first_of_several_failures_in_one_report_is_the_jobs() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    let worker = house.worker("ann", &[], 2);
    let held = worker.poll(2, &[]).assignments;
    for found in &held {
        worker.start(found.attempt);
    }
    let failed = |found: &Assignment| (found.attempt, News::Finished(Finished::exited(1)));
    let reports = Reports {
        session_key: worker.key.clone(),
        items: held.iter().map(failed).collect(),
        poll: None,
    };
    house.engine.report(reports, house.now()).unwrap();
    let why = house.job(job).job.message.unwrap();
    assert!(why.contains("step a failed"), "{why}");
}

#[test]
fn a_report_is_a_sign_of_life() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    let claimed = worker.claim();
    house.clock.advance_ms(10_000);
    worker.start(claimed.attempt);
    let seen_up = |worker_id| {
        let worker = house.engine.store.read(|tx| tx.worker(worker_id)).unwrap();
        worker.unwrap().seen_up
    };
    assert_eq!(seen_up(worker.worker_id), house.now().up);
}

#[test]
fn invented_attempts_are_turned_away_and_fill_no_story() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    let step_id = worker.claim().attempt.step_id;
    let mallory = house.worker("mallory", &[], 1);
    let invented = |attempt| (AttemptRef { step_id, attempt }, News::Started);
    let reports = |count: u32| Reports {
        session_key: mallory.key.clone(),
        items: (2..2 + count).map(invented).collect(),
        poll: None,
    };
    let answer = house.engine.report(reports(5_000), house.now()).unwrap();
    let abort = |verdict: &Verdict| matches!(verdict, Verdict::Abort { .. });
    assert!(answer.verdicts.iter().all(abort));
    assert_eq!(house.count_events(job, EventKind::ReportFenced), 0);

    let too_many = house.engine.report(reports(10_001), house.now());
    assert_eq!(
        too_many.unwrap_err().to_string(),
        "reports are 10001, at most 10000 are allowed in one request"
    );
}

#[test]
fn an_output_that_nobody_could_read_again_fails_its_step() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    let attempt = worker.begin().attempt;
    let deep = Json(format!("{}{}", "[".repeat(1_000), "]".repeat(1_000)));
    let finished = Finished::Completed {
        output: Some(deep),
        exit_code: Some(0),
    };
    assert_eq!(worker.finish(attempt, finished), Verdict::Accepted);
    let step = house.step(job, "a");
    assert_eq!(step.reason, Some(Reason::OutputInvalid));
    assert_eq!(step.exit_code, Some(0), "how it exited is still told");
}

#[test]
fn a_worker_loss_can_be_named_as_a_reason_to_retry() {
    let house = TestHouse::new();
    let retry = RetryPolicy {
        on: vec![Reason::WorkerRestarted],
        ..RetryPolicy::times(2)
    };
    let job = house.submit_tasks(vec![TaskDraft::new(
        "main",
        vec![StepDraft {
            retry,
            ..script("a")
        }],
    )]);
    house.worker("ann", &[], 1).begin();
    let next_life = house.worker("ann", &[], 1);
    let again = next_life.begin();
    assert_eq!(again.attempt.attempt, 2);
    next_life.complete(again.attempt);
    assert_eq!(house.summary(job), "a completed → completed");
}

#[test]
fn a_dead_session_that_reports_nothing_is_told() {
    let house = TestHouse::new();
    let former = house.worker("ann", &[], 1);
    house.worker("ann", &[], 1);
    for poll in [Some((1, vec![])), None] {
        let ask = |key: &str| {
            let reports = Reports {
                session_key: key.to_string(),
                items: vec![],
                poll: poll.clone(),
            };
            let refused = house.engine.report(reports, house.now()).unwrap_err();
            refused.to_string()
        };
        assert!(ask(&former.key).starts_with("the session was replaced"));
        assert!(ask("nobody").starts_with("the session is not known here"));
    }
}

#[test]
fn what_is_kept_alive_is_not_given_again() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    let claimed = worker.claim();
    let reports = Reports {
        session_key: worker.key.clone(),
        items: vec![(claimed.attempt, News::KeepAlive)],
        poll: Some((1, vec![])),
    };
    let answer = house.engine.report(reports, house.now()).unwrap();
    assert_eq!(answer.poll.unwrap().assignments, []);
}

#[test]
fn a_former_attempt_is_told_to_abort_whatever_it_says() {
    let house = TestHouse::new();
    house.submit(vec![StepDraft {
        retry: RetryPolicy::times(2),
        ..script("a")
    }]);
    let worker = house.worker("ann", &[], 1);
    let first = worker.begin();
    worker.fail(first.attempt);
    let broken = Finished::Completed {
        output: Some(Json("{nope".into())),
        exit_code: None,
    };
    aborted(worker.finish(first.attempt, broken));
    aborted(worker.decline(first.attempt, ""));
}

#[test]
fn a_step_of_the_wall_clock_moves_no_deadline_and_no_retry() {
    const TEN_YEARS_MS: i64 = 10 * 365 * 24 * 3_600_000;
    for jump_ms in [TEN_YEARS_MS, -TEN_YEARS_MS] {
        let house = TestHouse::new();
        let retry = RetryPolicy {
            delay_ms: 5_000,
            ..RetryPolicy::times(2)
        };
        let job = house.submit(vec![StepDraft {
            retry,
            ..script("a")
        }]);
        let worker = house.worker("ann", &[], 1);
        let first = worker.begin();
        let due_up = house.step(job, "a").due_up;
        house.clock.step_wall_ms(jump_ms);
        assert_eq!(house.step(job, "a").due_up, due_up);
        worker.fail(first.attempt);
        house.clock.advance_ms(4_999);
        assert_eq!(house.engine.release_due(house.now()).unwrap(), 0);
        house.clock.advance_ms(1);
        assert_eq!(house.engine.release_due(house.now()).unwrap(), 1);
        worker.run_all(&[]);
        assert_eq!(house.summary(job), "a completed → completed");
    }
}
