//! The server's own absences are nobody's silence: downtime, stalls, clock steps, a disk that cannot be written.

use std::path::Path;
use std::time::Duration;

use stepward::clock::ServiceClock;
use stepward::domain::{AttemptRef, Now, Timestamp, Uptime};
use stepward::engine::{
    Beat, Engine, EngineError, HeldAttempt, HeldPhase, Poll, Settings, Submission,
};
use stepward::store::{Store, StoreOptions};
use stepward::sweeper::{round, sweep_once};

use super::Stuck;
use crate::house::{TestHouse, frozen, registration, script};
use stepward::domain::task::TaskDraft;

fn at(up_ms: i64) -> Now {
    Now {
        wall: Timestamp(1_700_000_000_000 + up_ms),
        up: Uptime(up_ms),
    }
}

fn life(folder: &Path) -> Engine {
    let options = StoreOptions {
        write_deadline: Duration::from_millis(200),
        ..StoreOptions::default()
    };
    Engine::new(Store::open(folder, options).unwrap(), Settings::default())
}

/// A worker that runs one step, in a life of the server that ends at the given time.
fn worker_runs_a_step(folder: &Path, until_ms: i64) -> (String, AttemptRef) {
    let engine = life(folder);
    let task = frozen(vec![TaskDraft::new("main", vec![script("a")])]);
    engine.submit(Submission::of(&task), at(0)).unwrap();
    let key = "its only life".to_string();
    let ann = registration("ann", &key, &[], 1);
    engine.open_session(ann, Vec::new(), at(0)).unwrap();
    let poll = Poll {
        session_key: key.clone(),
        free_slots: 1,
        held: Vec::new(),
    };
    let attempt = engine.poll(poll, at(0)).unwrap().assignments[0].attempt;
    engine.start(&key, attempt, at(0)).unwrap();
    engine.save_clock(at(until_ms)).unwrap();
    (key, attempt)
}

fn swept(engine: &Engine, up_ms: i64) -> usize {
    let report = sweep_once(engine, at(up_ms));
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    report.recoveries.len()
}

#[test]
fn after_a_restart_every_worker_has_a_full_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let (key, attempt) = worker_runs_a_step(folder.path(), 119_000);
    // However long it was down: the service clock goes on where it was.
    let engine = life(folder.path());
    assert_eq!(engine.store.begun_up(), Uptime(119_000));
    assert_eq!(swept(&engine, 119_000), 0);
    assert_eq!(swept(&engine, 238_999), 0);
    let held = vec![HeldAttempt {
        attempt,
        phase: HeldPhase::Running,
    }];
    let beat = Beat {
        session_key: key,
        seq: 1,
        held,
    };
    let answer = engine.heartbeat(beat, at(238_999)).unwrap();
    assert!(answer.abort.is_empty(), "it goes on as if nothing had been");
    assert_eq!(swept(&engine, 358_998), 0);
    assert_eq!(swept(&engine, 358_999), 2);
}

#[test]
fn a_stall_or_a_suspended_machine_is_no_silence() {
    let folder = tempfile::tempdir().unwrap();
    worker_runs_a_step(folder.path(), 0);
    let engine = life(folder.path());
    let mut clock = ServiceClock::continuing(Uptime(0), 0, 10_000);
    for ms in (0..100_000).step_by(1_000) {
        clock.read(ms);
    }
    // Ten minutes later.
    let up = clock.read(700_000);
    engine.was_absent_until(clock.undisturbed_since());
    assert_eq!(up, Uptime(109_000));
    assert_eq!(swept(&engine, up.0), 0);
    assert_eq!(swept(&engine, up.0 + 119_999), 0);
    assert_eq!(swept(&engine, up.0 + 120_000), 2);
}

#[test]
fn steps_of_the_wall_clock_in_both_directions_change_nothing() {
    let house = TestHouse::new();
    house.submit(vec![script("a"), script("b")]);
    let ann = house.worker("ann", &[], 1);
    ann.begin();
    const TEN_YEARS_MS: i64 = 10 * 365 * 86_400_000;
    for step_ms in [TEN_YEARS_MS, -2 * TEN_YEARS_MS, TEN_YEARS_MS] {
        house.clock.step_wall_ms(step_ms);
        house.clock.advance_ms(1_000);
        assert!(house.sweep().is_empty());
    }
    house.clock.step_wall_ms(-TEN_YEARS_MS);
    house.clock.advance_ms(117_000);
    assert_eq!(house.sweep(), ["1 mark_inactive", "1 fail worker_lost"]);
}

fn beat_at(engine: &Engine, attempt: AttemptRef, up_ms: i64) -> Result<(), EngineError> {
    let beat = Beat {
        session_key: "its only life".to_string(),
        seq: up_ms,
        held: vec![HeldAttempt {
            attempt,
            phase: HeldPhase::Running,
        }],
    };
    engine.heartbeat(beat, at(up_ms)).map(|_| ())
}

/// What a round recovers; `None` if it could not write.
fn round_at(engine: &Engine, up_ms: i64) -> Option<usize> {
    let report = round(engine, at(up_ms)).report?;
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    Some(report.recoveries.len())
}

#[test]
fn while_the_store_cannot_write_nobody_falls_silent() {
    let folder = tempfile::tempdir().unwrap();
    worker_runs_a_step(folder.path(), 0);
    let engine = life(folder.path());
    assert_eq!(round_at(&engine, 100_000), Some(0));
    let stuck = Stuck::new(&engine);
    let refused = engine.save_clock(at(110_000)).unwrap_err().to_string();
    assert!(refused.contains("the store is busy"), "{refused}");
    assert_eq!(round_at(&engine, 111_000), None);
    assert!(engine.is_failing(), "the clock is held");
    drop(stuck);
    assert_eq!(
        round_at(&engine, 121_000),
        Some(0),
        "silent for too long, but for us"
    );
    assert!(!engine.is_failing());
    assert_eq!(round_at(&engine, 240_999), Some(0));
    assert_eq!(round_at(&engine, 241_000), Some(2));
}

#[test]
fn a_call_turned_away_now_and_then_does_not_put_recovery_off() {
    let folder = tempfile::tempdir().unwrap();
    worker_runs_a_step(folder.path(), 0);
    let engine = life(folder.path());
    for up_ms in [50_000, 100_000] {
        let stuck = Stuck::new(&engine);
        engine.save_clock(at(up_ms)).unwrap_err();
        drop(stuck);
        assert_eq!(round_at(&engine, up_ms + 1_000), Some(0));
    }
    assert_eq!(round_at(&engine, 120_000), Some(2));
}

#[test]
fn no_step_is_unmatched_and_no_assignment_overdue_right_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let engine = life(folder.path());
    let task = frozen(vec![TaskDraft::new("main", vec![script("a"), script("b")])]);
    engine.submit(Submission::of(&task), at(0)).unwrap();
    let key = "its only life".to_string();
    let ann = registration("ann", &key, &[], 1);
    engine.open_session(ann, Vec::new(), at(0)).unwrap();
    let poll = Poll {
        session_key: key.clone(),
        free_slots: 1,
        held: Vec::new(),
    };
    engine.poll(poll, at(0)).unwrap();
    engine.drain_session(&key, at(0)).unwrap();
    engine.save_clock(at(29_000)).unwrap();
    drop(engine);
    let engine = life(folder.path());
    assert_eq!(swept(&engine, 58_999), 0);
    assert_eq!(
        swept(&engine, 59_000),
        1,
        "unmatched, a full timeout after the start"
    );
    assert_eq!(swept(&engine, 88_999), 0);
    assert_eq!(swept(&engine, 89_000), 1, "not acknowledged, likewise");
}

#[test]
fn the_service_clock_on_disk_is_never_behind_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let engine = life(folder.path());
    let ann = registration("ann", "a life", &[], 1);
    engine.open_session(ann, Vec::new(), at(12_345)).unwrap();
    assert_eq!(engine.store.saved_up(), Uptime(12_345));
    drop(engine);
    assert_eq!(life(folder.path()).store.begun_up(), Uptime(12_345));
}

#[test]
fn a_contact_that_could_not_be_written_down_is_a_sign_of_life() {
    let folder = tempfile::tempdir().unwrap();
    let (_, attempt) = worker_runs_a_step(folder.path(), 0);
    let engine = life(folder.path());
    let stuck = Stuck::new(&engine);
    let poll = Poll {
        session_key: "its only life".to_string(),
        free_slots: 0,
        held: Vec::new(),
    };
    engine.poll(poll, at(90_000)).unwrap_err();
    // A heartbeat that says nothing else needs no commit, so a store that cannot write does not refuse it.
    beat_at(&engine, attempt, 100_000).unwrap();
    drop(stuck);
    // Others could write: this was no absence of the server, but this one was heard.
    assert_eq!(round_at(&engine, 121_000), Some(0));
    assert_eq!(round_at(&engine, 219_999), Some(0));
    assert_eq!(round_at(&engine, 220_000), Some(2));
}
