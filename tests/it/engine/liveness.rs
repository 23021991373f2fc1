//! Signs of life: exact in memory, written in groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stepward::domain::Uptime;
use stepward::domain::event::EventKind;
use stepward::domain::worker::WorkerState;
use stepward::engine::HeldPhase;
use stepward::metrics::PanicPlace;
use stepward::store::{Contact, StoreOptions};
use stepward::sweeper::{LastRound, recovery_forecast};

use crate::house::{TestHouse, TestWorker, script};

/// Commits that the call costs.
fn commits(house: &TestHouse, call: impl FnOnce()) -> u64 {
    let before = house.engine.store.durable_commits();
    call();
    house.engine.store.durable_commits() - before
}

fn silent_ms(worker: &TestWorker) -> i64 {
    let house = worker.house;
    let shown = house.engine.worker(worker.worker_id, house.now());
    shown.unwrap().silent_ms
}

/// When the worker was last seen, as its row has it.
fn row_seen_up(worker: &TestWorker) -> i64 {
    let sql = rusqlite::Connection::open(worker.house.database()).unwrap();
    let select = "SELECT seen_up FROM worker WHERE worker_id = ?1";
    sql.query_row(select, [worker.worker_id.0], |row| row.get(0))
        .unwrap()
}

#[test]
fn the_signs_of_life_of_200_workers_are_one_commit() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let workers: Vec<TestWorker> = (0..200)
        .map(|n| house.worker(&format!("w{n}"), &[], 1))
        .collect();
    let held = [(workers[7].begin().attempt, HeldPhase::Running)];
    for seq in 1..4 {
        house.clock.advance_ms(1_000);
        let heard = commits(&house, || {
            for (n, worker) in workers.iter().enumerate() {
                worker.heartbeat(seq, if n == 7 { &held } else { &[] });
                worker.poll(0, &[held[0].0]);
            }
        });
        assert_eq!(heard, 0, "kept in memory");
        house.clock.advance_ms(250);
        assert_eq!(silent_ms(&workers[0]), 250, "and shown at once");
        let written = commits(&house, || house.engine.write_contacts(house.now()).unwrap());
        assert_eq!(written, 1);
        assert_eq!(row_seen_up(&workers[199]), house.now().up.0 - 250);
        let nothing = commits(&house, || house.engine.write_contacts(house.now()).unwrap());
        assert_eq!(nothing, 0);
    }
    assert!(house.breaches().is_empty());
}

#[test]
fn a_heartbeat_that_changes_more_than_liveness_is_one_commit_at_once() {
    let house = TestHouse::new();
    house.submit(vec![script("a"), script("b")]);
    let ann = house.worker("ann", &[], 2);
    let running = (ann.begin().attempt, HeldPhase::Running);
    let assigned = ann.claim().attempt;
    let preparing = (assigned, HeldPhase::Preparing);
    let beat = |seq, held: &[_]| {
        commits(&house, || {
            ann.heartbeat(seq, held);
        })
    };
    assert_eq!(beat(1, &[running]), 0);
    assert_eq!(beat(2, &[running, preparing]), 1, "more time to prepare");
    assert_eq!(beat(3, &[]), 1, "a running step is left out");
    assert_eq!(beat(4, &[running]), 1, "and mentioned again");
    assert_eq!(beat(5, &[running]), 0);
    assert_eq!(beat(3, &[]), 0, "a late one changes nothing");
    house.clock.advance_ms(120_000);
    house.sweep();
    assert_eq!(beat(6, &[]), 1, "an inactive worker is active again");
    let kinds = house.events().into_iter().map(|event| event.fact.kind);
    assert_eq!(
        kinds
            .filter(|kind| *kind == EventKind::WorkerActive)
            .count(),
        1
    );
}

#[test]
fn a_sign_of_life_that_no_row_has_yet_counts_to_the_millisecond() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let held = [(ann.begin().attempt, HeldPhase::Running)];
    house.clock.advance_ms(119_999);
    ann.heartbeat(1, &held);
    assert_eq!(row_seen_up(&ann), 0);
    house.clock.advance_ms(1);
    assert!(house.sweep().is_empty());
    house.clock.advance_ms(119_998);
    let forecast = recovery_forecast(&house.engine, house.now()).unwrap();
    assert_eq!(forecast.foreseen[0].at_up, Uptime(239_999));
    assert_eq!(forecast.foreseen[0].in_ms, 1);
    assert!(house.sweep().is_empty());
    house.clock.advance_ms(1);
    assert_eq!(house.sweep(), ["1 mark_inactive", "1 fail worker_lost"]);
    assert_eq!(row_seen_up(&ann), 119_999);
}

#[test]
fn a_mass_silence_is_not_seen_in_rows_that_are_behind() {
    let house = TestHouse::new();
    let names = ["ann", "bob", "cid", "dan"];
    let workers = names.map(|name| house.worker(name, &[], 1));
    house.clock.advance_ms(119_000);
    for worker in &workers[1..] {
        worker.heartbeat(1, &[]);
    }
    house.clock.advance_ms(1_000);
    assert_eq!(house.sweep(), ["1 mark_inactive"], "ann alone is silent");
}

#[test]
fn a_worker_that_was_heard_while_it_was_marked_inactive_comes_back() {
    let house = TestHouse::new();
    let ann = house.worker("ann", &[], 1);
    house.clock.advance_ms(120_000);
    assert_eq!(house.sweep(), ["1 mark_inactive"]);
    // A heartbeat that had read the row before the sweep changed it, and is recorded after that.
    house.clock.advance_ms(1);
    let key = ann.key.clone();
    let session = house.engine.store.read(|tx| tx.session(&key)).unwrap();
    let contact = Contact::of(&session.unwrap(), 1, house.now());
    house.engine.store.record_contact(contact);
    house.engine.write_contacts(house.now()).unwrap();
    let shown = house.engine.worker(ann.worker_id, house.now()).unwrap();
    assert_eq!(shown.worker.state, WorkerState::Active);
    let last = house.events().pop().unwrap().fact;
    assert_eq!(last.kind, EventKind::WorkerActive);
}

#[test]
fn the_next_round_is_due_when_the_forecast_says_so() {
    let house = TestHouse::new();
    let ann = house.worker("ann", &[], 1);
    house.clock.advance_ms(300);
    let bob = house.worker("bob", &[], 1);
    let due_after = |at_up| {
        let round = LastRound {
            at_up,
            retry_ms: None,
            gap_ms: 100,
        };
        let due = round.next_due(&house.engine, house.now());
        due.unwrap().0
    };
    house.clock.advance_ms(99_700);
    assert_eq!(due_after(house.now().up), 120_000);
    house.clock.advance_ms(20_000);
    assert_eq!(house.sweep(), ["1 mark_inactive"]);
    // No second passes between two rounds.
    assert_eq!(due_after(house.now().up), 120_300);
    let forecast = recovery_forecast(&house.engine, house.now()).unwrap();
    assert_eq!(forecast.foreseen[0].at_up, Uptime(120_300));
    house.clock.advance_ms(300);
    assert_eq!(house.sweep(), ["1 mark_inactive"]);
    // With nothing left to wait for, the sweep interval decides.
    assert_eq!(due_after(house.now().up), 180_300);
    drop((ann, bob));
}

#[test]
fn what_has_a_grace_makes_no_rounds_without_a_pause() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    ann.claim();
    house.clock.advance_ms(59_000);
    house.engine.was_absent_until(house.now().up);
    house.clock.advance_ms(1_000);
    assert!(house.sweep().is_empty(), "due, but there was an absence");
    let round = LastRound {
        at_up: house.now().up,
        retry_ms: None,
        gap_ms: 100,
    };
    let due = round.next_due(&house.engine, house.now()).unwrap();
    assert_eq!(due, house.now().up.plus_ms(1_000));
    house.clock.advance_ms(57_500);
    let round = LastRound {
        at_up: house.now().up,
        ..round
    };
    house.clock.advance_ms(600);
    ann.poll(0, &[]);
    let due = round.next_due(&house.engine, house.now()).unwrap();
    assert_eq!(due, Uptime(118_500));
    house.clock.advance_ms(900);
    assert_eq!(house.sweep(), ["1 requeue"], "the grace ends at 119 s");
}

#[test]
fn a_contact_that_panics_keeps_no_other_from_being_written_and_no_worker_from_being_lost() {
    let panics = Arc::new(AtomicBool::new(false));
    let armed = panics.clone();
    let on_statement = move |_: u64, text: &'static str| {
        let is_contact = text.contains("UPDATE worker") && text.contains("heartbeat_seq");
        assert!(
            !(is_contact && armed.swap(false, Ordering::Relaxed)),
            "a bug over the first contact"
        );
    };
    let house = TestHouse::with_options(StoreOptions {
        on_statement: Some(Arc::new(on_statement)),
        ..StoreOptions::default()
    });
    let silent = house.worker("silent", &[], 1);
    house.clock.advance_ms(121_000);
    let (ann, bob) = (house.worker("ann", &[], 1), house.worker("bob", &[], 1));
    house.clock.advance_ms(1_000);
    ann.heartbeat(1, &[]);
    bob.heartbeat(1, &[]);
    panics.store(true, Ordering::Relaxed);
    house.sweep();
    assert!(!panics.load(Ordering::Relaxed), "the bug was met");
    let state = |worker: &TestWorker| {
        let shown = house.engine.worker(worker.worker_id, house.now());
        shown.unwrap().worker.state
    };
    assert_eq!(state(&silent), WorkerState::Inactive);
    let heard_up = house.now().up.0;
    let written: Vec<bool> = [&ann, &bob]
        .map(|worker| row_seen_up(worker) == heard_up)
        .to_vec();
    assert_eq!(written.iter().filter(|written| **written).count(), 1);
    assert_eq!((silent_ms(&ann), silent_ms(&bob)), (0, 0), "both are heard");
    let panics = &house.engine.store.metrics().panics;
    assert_eq!(panics.count(PanicPlace::Sweeper), 1);
    house.engine.write_contacts(house.now()).unwrap();
    assert_eq!((row_seen_up(&ann), row_seen_up(&bob)), (heard_up, heard_up));
}
