//! Drain, pause, delete.

use stepward::domain::event::EventKind;
use stepward::domain::reason::Reason;
use stepward::engine::EngineError;

use crate::house::{TestHouse, script};

#[test]
fn draining_ends_with_the_session_and_pausing_does_not() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    house.engine.drain_session(&ann.key, house.now()).unwrap();
    house.engine.drain_session(&ann.key, house.now()).unwrap();
    assert_eq!(ann.claim_names(1), Vec::<String>::new());
    house.engine.pause(ann.worker_id, house.now()).unwrap();
    let ann = house.worker("ann", &[], 1);
    assert_eq!(ann.claim_names(1), Vec::<String>::new());
    house.engine.resume(ann.worker_id, house.now()).unwrap();
    assert_eq!(ann.claim_names(1), ["a"]);
    let told: Vec<_> = house
        .events()
        .into_iter()
        .map(|event| event.fact.kind)
        .filter(|kind| kind.as_str().starts_with("worker_"))
        .collect();
    assert_eq!(
        told,
        [
            EventKind::WorkerRegistered,
            EventKind::WorkerDraining,
            EventKind::WorkerPaused,
            EventKind::WorkerRestarted,
            EventKind::WorkerResumed,
        ]
    );
}

#[test]
fn a_worker_that_holds_steps_is_deleted_only_by_force() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b"), script("c").after(&["a"])]);
    let ann = house.worker("ann", &[], 2);
    let running = ann.begin();
    ann.claim_names(1);
    let refused = house
        .engine
        .delete_worker(ann.worker_id, false, house.now())
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "worker 1 holds 2 steps: drain it first, or delete it with ?force=true, which fails them"
    );
    house
        .engine
        .delete_worker(ann.worker_id, true, house.now())
        .unwrap();
    assert_eq!(house.summary(job), "a failed, b ready, c skipped → running");
    let step = house.step(job, "a");
    assert_eq!(step.reason, Some(Reason::WorkerDeleted));
    assert_eq!(step.worker_id, Some(ann.worker_id));

    assert!(matches!(
        ann.try_poll(1, &[]),
        Err(EngineError::SessionReplaced)
    ));
    assert!(matches!(
        ann.complete(running.attempt),
        stepward::engine::Verdict::Abort { .. }
    ));
    let gone = house.engine.drain(ann.worker_id, house.now());
    assert!(matches!(gone, Err(EngineError::WorkerNotFound { .. })));

    // The same machine may come back, as a new worker.
    let back = house.worker("ann", &[], 1);
    assert_ne!(back.worker_id, ann.worker_id);
    assert_eq!(back.claim_names(1), ["b"]);
}
