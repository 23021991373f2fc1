//! Four phases in order, each bounded, each on its own: whatever fails, the rest goes on.

use stepward::domain::recovery::{Deed, Phase};
use stepward::domain::retry::{OnWorkerLoss, RetryPolicy};
use stepward::domain::step::StepState;
use stepward::domain::task::{StepDraft, TaskDraft};
use stepward::sweeper::{round, sweep_once};

use super::recovery_events;
use crate::house::{TestHouse, script};

/// One victim of each phase, all due at once.
fn one_of_each(house: &TestHouse) {
    let slow = StepDraft::approval("slow", "go?");
    house.submit(vec![script("lost")]);
    house.worker("ann", &[], 1).begin();
    house.submit(vec![StepDraft {
        timeout_ms: Some(60_000),
        ..slow.clone()
    }]);
    house.submit_tasks(vec![TaskDraft {
        timeout_ms: Some(60_000),
        ..TaskDraft::new("main", vec![slow])
    }]);
    house.submit(vec![StepDraft {
        tags: vec!["gpu".to_string()],
        ..script("odd")
    }]);
    house.clock.advance_ms(121_000);
}

#[test]
fn the_phases_come_in_their_order_and_each_action_is_told_once() {
    let house = TestHouse::new();
    one_of_each(&house);
    assert_eq!(
        house.sweep(),
        [
            "1 mark_inactive",
            "1 fail worker_lost",
            "2 fail approval_timeout",
            "3 cancel job_timeout",
            "4 fail unmatched"
        ]
    );
    assert_eq!(
        recovery_events(&house),
        [
            "1 worker_inactive",
            "1 step_failed",
            "2 step_failed",
            "3 job_cancelled",
            "4 step_failed"
        ]
    );
    let events = house.events().len();
    assert!(house.sweep().is_empty());
    assert_eq!(house.events().len(), events, "a second sweep says nothing");
}

#[test]
fn a_phase_that_fails_does_not_stop_the_next() {
    let house = TestHouse::new();
    one_of_each(&house);
    let sql = rusqlite::Connection::open(house.database()).unwrap();
    sql.execute_batch("ALTER TABLE worker RENAME COLUMN seen_up TO hidden")
        .unwrap();
    let report = sweep_once(&house.engine, house.now());
    assert!(
        report
            .failures
            .iter()
            .any(|(phase, _)| *phase == Phase::StaleWorkers)
    );
    assert_eq!(report.of_phase(Phase::StaleWorkers).count(), 0);
    assert_eq!(report.of_phase(Phase::OverdueSteps).count(), 1);
    assert_eq!(report.of_phase(Phase::OverdueJobs).count(), 1);
    sql.execute_batch("ALTER TABLE worker RENAME COLUMN hidden TO seen_up")
        .unwrap();
    assert_eq!(
        house.sweep(),
        ["1 mark_inactive", "1 fail worker_lost", "4 fail unmatched"]
    );
}

#[test]
fn a_row_that_cannot_be_read_does_not_stop_its_phase_and_is_not_ended() {
    let house = TestHouse::new();
    let steps = ["a", "b", "c"].map(|name| StepDraft {
        timeout_ms: Some(10_000),
        ..script(name)
    });
    let job = house.submit(steps.into());
    let ann = house.worker("ann", &[], 3);
    for given in ann.poll(3, &[]).assignments {
        ann.start(given.attempt);
    }
    let poison = house.step(job, "a").step_id;
    let sql = rusqlite::Connection::open(house.database()).unwrap();
    let set = |reason: Option<&str>| {
        let changed = sql.execute(
            "UPDATE step SET reason = ?1 WHERE step_id = ?2",
            (reason, poison.0),
        );
        assert_eq!(changed.unwrap(), 1);
    };
    set(Some("a word of another version"));
    house.clock.advance_ms(10_000);
    let report = sweep_once(&house.engine, house.now());
    assert_eq!(report.recoveries.len(), 2);
    assert!(report.recoveries.iter().all(|done| done.deed == Deed::Fail));
    assert_eq!(report.failures.len(), 1);
    let (phase, error) = &report.failures[0];
    assert_eq!(*phase, Phase::OverdueSteps);
    assert_eq!(
        error.to_string(),
        "the database holds \"a word of another version\" where a reason belongs, run: stepward db check"
    );
    set(None);
    assert_eq!(house.step_state(job, "a"), StepState::Running);
    assert_eq!(house.sweep(), ["2 fail step_timeout"]);
}

#[test]
fn what_cannot_be_released_keeps_nobody_from_being_recovered() {
    let house = TestHouse::new();
    let job = house.submit(vec![StepDraft {
        retry: RetryPolicy {
            delay_ms: 1_000,
            ..RetryPolicy::times(2)
        },
        ..script("a")
    }]);
    let ann = house.worker("ann", &[], 1);
    ann.fail(ann.begin().attempt);
    let lost = house.submit(vec![script("b")]);
    ann.begin();
    let sql = rusqlite::Connection::open(house.database()).unwrap();
    sql.execute_batch("UPDATE step SET reason = 'rubbish' WHERE not_before_up IS NOT NULL")
        .unwrap();
    house.clock.advance_ms(121_000);
    let round = round(&house.engine, house.now());
    assert_eq!(round.report.unwrap().recoveries.len(), 2);
    assert_eq!(house.summary(lost), "b failed → failed");
    sql.execute_batch("UPDATE step SET reason = NULL WHERE reason = 'rubbish'")
        .unwrap();
    assert_eq!(house.step_state(job, "a"), StepState::Ready);
}

#[test]
fn a_worker_that_cannot_be_read_is_unknown_not_dead() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    let ann = house.worker("ann", &[], 1);
    ann.begin();
    let sql = rusqlite::Connection::open(house.database()).unwrap();
    // Reading the worker fails from here on; finding its steps does not.
    sql.execute_batch("UPDATE step SET session_id = 77 WHERE state = 'running'; ALTER TABLE worker RENAME COLUMN version TO v")
        .unwrap();
    let report = sweep_once(&house.engine, house.now());
    assert_eq!(report.recoveries, []);
    assert_eq!(report.failures.len(), 1);
    sql.execute_batch("ALTER TABLE worker RENAME COLUMN v TO version; UPDATE step SET session_id = 1 WHERE session_id = 77")
        .unwrap();
    assert_eq!(house.step_state(job, "a"), StepState::Running);
    assert!(house.sweep().is_empty());
}

#[test]
fn an_idle_sweep_costs_the_same_number_of_statements_however_much_there_is() {
    let house = TestHouse::new();
    let idle_statements = || {
        let before = house.engine.store.statements();
        assert!(house.sweep().is_empty());
        house.engine.store.statements() - before
    };
    house.submit(vec![script("a")]);
    house.worker("w0", &[], 1).begin();
    let of_one = idle_statements();
    for n in 1..50 {
        house.submit((0..10).map(|n| script(&format!("s{n}"))).collect());
        house.worker(&format!("w{n}"), &["gpu"], 5).poll(3, &[]);
    }
    assert_eq!(idle_statements(), of_one);
}

#[test]
fn all_victims_of_a_dead_worker_are_taken_in_one_sweep() {
    let house = TestHouse::new();
    let steps = (0..600).map(|n| StepDraft {
        on_worker_loss: OnWorkerLoss::Retry,
        ..script(&format!("s{n}"))
    });
    house.submit(steps.collect());
    let ann = house.worker("ann", &[], 600);
    for given in ann.poll(600, &[]).assignments {
        ann.start(given.attempt);
    }
    house.clock.advance_ms(121_000);
    assert_eq!(house.sweep().len(), 601);
}

#[test]
fn a_batch_is_bounded_and_the_next_one_takes_the_rest() {
    let house = TestHouse::new();
    let step = |n: usize| StepDraft {
        tags: vec!["gpu".to_string()],
        ..script(&format!("s{n}"))
    };
    house.submit((0..10_000).map(step).collect());
    let last = house.submit(vec![step(0)]);
    house.clock.advance_ms(30_000);
    let report = sweep_once(&house.engine, house.now());
    assert_eq!(report.recoveries.len(), 10_000);
    assert!(report.more, "the thread comes back at once");
    assert_eq!(house.step_state(last, "s0"), StepState::Ready);
    let report = sweep_once(&house.engine, house.now());
    assert_eq!(report.recoveries.len(), 1);
    assert!(!report.more);
}
