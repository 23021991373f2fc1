//! Phase 1: workers gone silent, restarted, deleted or forgetful, and what becomes of what they held.

use stepward::domain::reason::Reason;
use stepward::domain::retry::{OnWorkerLoss, RetryPolicy};
use stepward::domain::step::StepState;
use stepward::domain::task::{StepDraft, TaskDraft};
use stepward::engine::{Decision, HeldPhase, Suspect, Verdict};

use super::{recovery_events, recovery_log};
use crate::house::{TestHouse, TestWorker, script};

fn state_of(house: &TestHouse, worker: &TestWorker) -> &'static str {
    let workers = house.engine.store.read(|tx| tx.workers()).unwrap();
    let found = workers
        .iter()
        .find(|found| found.worker_id == worker.worker_id);
    found.unwrap().state.as_str()
}

#[test]
fn a_worker_silent_for_longer_than_the_timeout_loses_what_it_runs() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b").after(&["a"])]);
    let ann = house.worker("ann", &[], 1);
    ann.begin();
    house.clock.advance_ms(119_999);
    assert!(house.sweep().is_empty());
    assert_eq!(state_of(&house, &ann), "active");
    house.clock.advance_ms(1);
    assert_eq!(house.sweep(), ["1 mark_inactive", "1 fail worker_lost"]);
    assert_eq!(state_of(&house, &ann), "inactive");
    assert_eq!(house.summary(job), "a failed, b skipped → failed");
    let step = house.step(job, "a");
    let message = "worker ann was lost (silent for 120 s, the limit is 120 s) while it ran attempt 1; the step may have run \
                   partly";
    assert_eq!(step.reason, Some(Reason::WorkerLost));
    assert_eq!(step.message.as_deref(), Some(message));
    assert_eq!(
        recovery_log(&house, job),
        [format!("[recovery] step a failed: {message}")]
    );
    assert_eq!(
        recovery_events(&house),
        ["1 worker_inactive", "1 step_failed"]
    );
    assert!(house.sweep().is_empty(), "a second sweep changes nothing");
}

#[test]
fn a_child_jobs_lost_worker_fails_its_parents_too() {
    let house = TestHouse::new();
    let job = house.submit_tasks(vec![
        TaskDraft::new("top", vec![StepDraft::task("call", "deep")]),
        TaskDraft::new("deep", vec![script("a")]),
    ]);
    house.worker("ann", &[], 1).begin();
    house.clock.advance_ms(121_000);
    house.sweep();
    assert_eq!(house.summary(job), "call failed → failed");
}

#[test]
fn one_missed_heartbeat_changes_nothing() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let held = [(ann.begin().attempt, HeldPhase::Running)];
    for seq in 0..10 {
        ann.heartbeat(seq, &held);
        // Every second one is lost.
        house.clock.advance_ms(60_000);
        assert!(house.sweep().is_empty());
    }
}

#[test]
fn any_contact_is_a_sign_of_life() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let held = [ann.begin().attempt];
    for _ in 0..5 {
        house.clock.advance_ms(119_000);
        ann.poll(0, &held);
        assert!(house.sweep().is_empty());
    }
}

#[test]
fn a_heartbeat_makes_an_inactive_worker_active_and_it_may_claim_at_once() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    let ann = house.worker("ann", &[], 1);
    let lost = ann.begin();
    house.clock.advance_ms(121_000);
    house.sweep();
    let answer = ann.heartbeat(1, &[(lost.attempt, HeldPhase::Running)]);
    assert_eq!(answer.abort, [lost.attempt]);
    assert_eq!(state_of(&house, &ann), "active");
    assert!(matches!(ann.complete(lost.attempt), Verdict::Abort { .. }));
    let next = ann.begin();
    assert_eq!(next.step, "b");
    ann.complete(next.attempt);
    assert_eq!(house.summary(job), "a failed, b completed → failed");
}

#[test]
fn what_an_interrupted_sweep_left_behind_is_taken_by_the_next() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    ann.begin();
    house.clock.advance_ms(121_000);
    // The server died after it had marked the worker and before it took its steps.
    let now = house.now();
    let marked = house.engine.store.write(move |tx| {
        let worker = tx.workers()?.remove(0);
        tx.silence_worker(&worker, now)
    });
    assert!(marked.unwrap());
    assert_eq!(house.step_state(job, "a"), StepState::Running);
    assert_eq!(house.sweep(), ["1 fail worker_lost"]);
}

#[test]
fn what_a_former_session_or_a_deleted_worker_still_holds_is_taken() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b"), script("c"), script("d")]);
    let ann = house.worker("ann", &[], 2);
    let bob = house.worker("bob", &[], 2);
    for worker in [&ann, &bob] {
        let claimed = worker.poll(2, &[]).assignments;
        worker.start(claimed[0].attempt);
    }
    // Rows that no verb leaves behind: the sweep is the backstop.
    let sql = rusqlite::Connection::open(house.database()).unwrap();
    sql.execute_batch(
        "INSERT INTO session (worker_id, session_key, opened_at, closed_at) VALUES (1, 'next life', 0, 0);
         UPDATE worker SET session_id = last_insert_rowid() WHERE worker_id = 1;
         UPDATE worker SET state = 'inactive', deleted_at = 0 WHERE worker_id = 2;
         DELETE FROM capability WHERE worker_id = 2;",
    )
    .unwrap();
    let mut swept = house.sweep();
    swept.sort();
    assert_eq!(
        swept,
        [
            "1 fail worker_deleted",
            "1 fail worker_restarted",
            "1 requeue",
            "1 requeue"
        ]
    );
    assert_eq!(
        house.summary(job),
        "a failed, b ready, c failed, d ready → running"
    );
}

#[test]
fn a_running_step_that_two_heartbeats_leave_out_was_forgotten() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let held = [(ann.begin().attempt, HeldPhase::Running)];
    house.clock.advance_ms(10_000);
    ann.heartbeat(1, &[]);
    assert!(house.sweep().is_empty());
    ann.heartbeat(2, &held);
    ann.heartbeat(3, &[]);
    // Overtaken by number 3: it says nothing about now.
    ann.heartbeat(2, &[]);
    house.clock.advance_ms(30_000);
    assert!(house.sweep().is_empty(), "not twice in a row");
    ann.heartbeat(4, &[]);
    assert_eq!(house.sweep(), ["1 fail worker_forgot"]);
    let message = house.step(job, "a").message.unwrap();
    assert_eq!(
        message,
        "worker ann lives, but left it out of 2 heartbeats in a row while it ran attempt 1; the step may have run partly"
    );
}

#[test]
fn a_step_that_just_started_is_not_missed() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    ann.begin();
    ann.heartbeat(1, &[]);
    ann.heartbeat(2, &[]);
    house.clock.advance_ms(29_999);
    assert!(house.sweep().is_empty());
    house.clock.advance_ms(1);
    assert_eq!(house.sweep(), ["1 fail worker_forgot"]);
}

#[test]
fn an_unacknowledged_assignment_keeps_its_place_and_prefers_another_worker() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    let ann = house.worker("ann", &[], 1);
    assert_eq!(ann.claim().step, "a");
    house.clock.advance_ms(59_999);
    assert!(house.sweep().is_empty());
    house.clock.advance_ms(1);
    assert_eq!(house.sweep(), ["1 requeue"]);
    assert_eq!(
        recovery_log(&house, job),
        [
            "[recovery] step a is ready again: worker ann did not say within 60 s that it starts the step or still \
             prepares it"
        ]
    );
    let bob = house.worker("bob", &[], 1);
    assert_eq!(ann.claim_names(1), ["b"], "another is preferred");
    assert_eq!(bob.claim_names(1), ["a"], "it is still the first");
}

#[test]
fn keep_alives_cannot_extend_preparation_for_ever() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let attempt = ann.claim().attempt;
    for round in 0..30 {
        if round % 2 == 0 {
            ann.heartbeat(round, &[(attempt, HeldPhase::Preparing)]);
        } else {
            let now = house.now();
            house.engine.keep_alive(&ann.key, attempt, now).unwrap();
        }
        assert!(house.sweep().is_empty(), "round {round}");
        house.clock.advance_ms(30_000);
    }
    ann.heartbeat(30, &[(attempt, HeldPhase::Preparing)]);
    assert_eq!(house.sweep(), ["1 requeue"]);
    assert_eq!(
        recovery_log(&house, job),
        [
            "[recovery] step a is ready again: worker ann prepared for 900 s and did not start the step"
        ]
    );
}

#[test]
fn after_five_returns_the_step_fails_with_the_list() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    for round in 0..5 {
        let worker = house.worker(&format!("w{round}"), &[], 1);
        worker.claim();
        house.clock.advance_ms(60_000);
        let deed = house.sweep();
        match round {
            4 => assert_eq!(deed.last().unwrap(), "1 fail assignment_exhausted"),
            _ => assert_eq!(deed.last().unwrap(), "1 requeue"),
        }
    }
    let message = house.step(job, "a").message.unwrap();
    for round in 0..5 {
        let line = format!(
            "attempt {}: worker w{round} did not say within 60 s",
            round + 1
        );
        assert!(message.contains(&line), "{message}");
    }
}

#[test]
fn an_assigned_step_of_a_lost_worker_goes_back_to_the_queue() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let attempt = ann.claim().attempt;
    house.clock.advance_ms(61_000);
    ann.heartbeat(1, &[(attempt, HeldPhase::Preparing)]);
    // It prepares on, as far as its words go, but then they stop.
    let now = house.now();
    let engine = &house.engine;
    engine
        .store
        .write(move |tx| {
            let worker = tx.workers()?.remove(0);
            tx.silence_worker(&worker, now)
        })
        .unwrap();
    assert_eq!(house.sweep(), ["1 requeue"]);
    assert_eq!(house.step_state(job, "a"), StepState::Ready);
}

#[test]
fn by_policy_a_lost_step_is_tried_again_or_held() {
    let house = TestHouse::new();
    let again = StepDraft {
        on_worker_loss: OnWorkerLoss::Retry,
        ..script("again")
    };
    let named = StepDraft {
        retry: RetryPolicy {
            on: vec![Reason::WorkerLost],
            ..RetryPolicy::times(2)
        },
        ..script("named")
    };
    let held = StepDraft {
        on_worker_loss: OnWorkerLoss::Hold,
        ..script("held")
    };
    let job = house.submit(vec![again, named, held]);
    let ann = house.worker("ann", &[], 3);
    for claimed in ann.poll(3, &[]).assignments {
        ann.start(claimed.attempt);
    }
    house.clock.advance_ms(121_000);
    assert_eq!(
        house.sweep(),
        [
            "1 mark_inactive",
            "1 retry worker_lost",
            "1 retry worker_lost",
            "1 hold worker_lost"
        ]
    );
    assert_eq!(
        house.summary(job),
        "again ready, named ready, held suspended → running"
    );
    assert_eq!(
        recovery_events(&house),
        [
            "1 worker_inactive",
            "1 step_retried",
            "1 step_retried",
            "1 step_held"
        ]
    );
    let step_id = house.step(job, "held").step_id;
    let go = Decision::Approve { output: None };
    house
        .engine
        .decide(step_id, go, "eve", house.now())
        .unwrap();
    ann.run_all(&[]);
    assert_eq!(
        house.summary(job),
        "again completed, named completed, held completed → completed"
    );
}

#[test]
fn a_held_step_can_be_failed() {
    let house = TestHouse::new();
    let job = house.submit(vec![StepDraft {
        on_worker_loss: OnWorkerLoss::Hold,
        ..script("a")
    }]);
    house.worker("ann", &[], 1).begin();
    house.clock.advance_ms(121_000);
    house.sweep();
    let step_id = house.step(job, "a").step_id;
    let why = "half of it is done".to_string();
    let no = Decision::Reject { why };
    house
        .engine
        .decide(step_id, no, "eve", house.now())
        .unwrap();
    assert_eq!(house.summary(job), "a failed → failed");
    assert_eq!(house.step(job, "a").reason, Some(Reason::WorkerLost));
}

#[test]
fn when_most_workers_fall_silent_together_the_fault_is_probably_ours() {
    let house = TestHouse::new();
    house.submit(vec![script("a"), script("b"), script("c")]);
    let names = ["ann", "bob", "cid", "dan", "eve"];
    let workers: Vec<TestWorker> = names.map(|name| house.worker(name, &[], 1)).into();
    for worker in &workers[..3] {
        worker.begin();
        // Their heartbeats are spread over an interval.
        house.clock.advance_ms(9_000);
    }
    house.clock.advance_ms(93_000);
    workers[4].poll(0, &[]);
    assert_eq!(house.sweep(), ["1 wait_longer"]);
    let told = house.events().pop().unwrap().fact.message;
    assert_eq!(
        told,
        "[recovery] 4 of 5 active workers are silent, so the fault is probably the server's or its network's; they have \
         another 120 s before they are given up"
    );
    assert!(house.sweep().is_empty(), "told once");
    house.clock.advance_ms(119_999);
    workers[0].poll(0, &[]);
    workers[4].poll(0, &[]);
    assert!(house.sweep().is_empty());
    house.clock.advance_ms(1);
    let swept = house.sweep();
    assert_eq!(
        swept
            .iter()
            .filter(|deed| *deed == "1 mark_inactive")
            .count(),
        3
    );
    assert_eq!(swept.len(), 5, "with the two steps that they ran");
}

#[test]
fn two_of_two_workers_are_given_up_in_time() {
    let house = TestHouse::new();
    house.worker("ann", &[], 1);
    house.worker("bob", &[], 1);
    house.clock.advance_ms(121_000);
    assert_eq!(house.sweep(), ["1 mark_inactive", "1 mark_inactive"]);
}

#[test]
fn nothing_but_its_own_contact_refreshes_a_worker() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    let ann = house.worker("ann", &[], 1);
    ann.begin();
    house.clock.advance_ms(100_000);
    let engine = &house.engine;
    engine.pause(ann.worker_id, house.now()).unwrap();
    engine.resume(ann.worker_id, house.now()).unwrap();
    engine.cancel(job, "eve", house.now()).unwrap();
    house.clock.advance_ms(21_000);
    assert_eq!(house.sweep(), ["1 mark_inactive"]);
}

#[test]
fn many_silent_workers_that_have_spoken_meanwhile_are_not_told_of() {
    let house = TestHouse::new();
    let workers = ["ann", "bob", "cid"].map(|name| house.worker(name, &[], 1));
    house.clock.advance_ms(121_000);
    // Found silent together; before anything is done about it, they speak.
    for worker in &workers {
        worker.heartbeat(1, &[]);
    }
    let suspect = Suspect::ManyWorkers {
        at_up: house.now().up,
    };
    let outcome = house.engine.recover(&[suspect], house.now()).remove(0);
    assert_eq!(outcome.unwrap(), None);
    assert!(recovery_events(&house).is_empty());
}

#[test]
fn when_most_fall_silent_once_more_they_get_more_time_once_more() {
    let house = TestHouse::new();
    let names = ["ann", "bob", "cid"];
    let workers = names.map(|name| house.worker(name, &[], 1));
    house.clock.advance_ms(121_000);
    assert_eq!(house.sweep(), ["1 wait_longer"]);
    house.clock.advance_ms(120_000);
    assert_eq!(house.sweep().len(), 3);
    for worker in &workers {
        worker.heartbeat(1, &[]);
    }
    house.clock.advance_ms(121_000);
    assert_eq!(
        house.sweep(),
        ["1 wait_longer"],
        "the next time is another story"
    );
}
