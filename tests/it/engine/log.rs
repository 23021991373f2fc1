//! Pieces of logs: whose they are, and that whoever sends them lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stepward::domain::worker::WorkerState;
use stepward::domain::{AttemptRef, StepId};
use stepward::engine::EngineError;
use stepward::store::StoreOptions;

use crate::house::{TestHouse, TestWorker, script};

fn send(worker: &TestWorker, attempt: AttemptRef) -> Result<bool, EngineError> {
    let house = worker.house;
    let owner = house.engine.log_owner(&worker.key, attempt, house.now());
    owner.map(|owner| owner.live)
}

fn state(worker: &TestWorker) -> WorkerState {
    let house = worker.house;
    let shown = house.engine.worker(worker.worker_id, house.now());
    shown.unwrap().worker.state
}

#[test]
fn a_piece_of_a_log_is_a_sign_of_life() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let attempt = ann.begin().attempt;
    for _ in 0..10 {
        house.clock.advance_ms(100_000);
        assert!(send(&ann, attempt).unwrap());
        assert_eq!(house.sweep(), [] as [String; 0]);
    }
    house.clock.advance_ms(121_000);
    assert_eq!(
        house.sweep(),
        ["1 mark_inactive", "1 fail worker_lost"],
        "silence is silence"
    );
    // The rest of what it printed is taken, and may come from anybody who has its folder: it does not bring the worker back.
    assert!(!send(&ann, attempt).unwrap());
    assert_eq!(state(&ann), WorkerState::Inactive);
}

#[test]
fn a_thousand_pieces_cost_one_commit() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let attempt = ann.begin().attempt;
    let before = house.engine.store.groups();
    for _ in 0..1_000 {
        house.clock.advance_ms(5);
        send(&ann, attempt).unwrap();
    }
    let after = house.engine.store.groups();
    assert_eq!(after, before, "the sign of life is kept in memory");
    let commits = house.engine.store.durable_commits();
    house.engine.write_contacts(house.now()).unwrap();
    assert_eq!(house.engine.store.durable_commits() - commits, 1);
}

#[test]
fn pieces_that_come_while_a_workers_return_is_written_do_not_wait_for_it() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let options = StoreOptions {
        write_deadline: Duration::from_secs(60),
        on_statement: Some(Arc::new(move |_, text| {
            if text.contains("UPDATE worker") && text.contains("seen_up = :up\n") {
                counted.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50));
            }
        })),
        ..StoreOptions::default()
    };
    let house = TestHouse::with_options(options);
    house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let attempt = ann.begin().attempt;
    house.clock.advance_ms(5_000);
    let now = house.now();
    let marked = house.engine.store.write(move |tx| {
        let worker = tx.workers()?.remove(0);
        tx.silence_worker(&worker, now)
    });
    assert!(marked.unwrap());
    let (before, written) = (house.engine.store.groups(), calls.load(Ordering::Relaxed));
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| send(&ann, attempt).unwrap());
        }
    });
    assert_eq!(house.engine.store.groups().1 - before.1, 1);
    assert_eq!(calls.load(Ordering::Relaxed) - written, 1);
    assert_eq!(state(&ann), WorkerState::Active);
}

#[test]
fn what_is_not_its_own_or_of_a_former_life_says_nothing_of_a_worker() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let old = house.worker("ann", &[], 1);
    let attempt = old.begin().attempt;
    let new = house.worker("ann", &[], 1);
    let strange = AttemptRef {
        step_id: StepId(99),
        attempt: 1,
    };
    house.clock.advance_ms(100_000);
    assert!(matches!(
        send(&new, strange),
        Err(EngineError::AttemptNotFound { .. })
    ));
    house.clock.advance_ms(21_000);
    // What the former life still has of its log is taken; it says nothing about the present one.
    assert!(!send(&old, attempt).unwrap());
    assert_eq!(house.sweep(), ["1 mark_inactive"]);
    assert_eq!(state(&new), WorkerState::Inactive);
}
