//! Every move names the state and the attempt that it leaves: what has moved since it was read does not move again.

use stepward::domain::Now;
use stepward::domain::reason::Reason;
use stepward::domain::retry::RetryPolicy;
use stepward::domain::step::{Step, StepMove};
use stepward::domain::task::StepDraft;
use stepward::store::{Ending, StoreError, Tx};

use crate::house::{TestHouse, script};

type Move = (
    &'static str,
    fn(&Tx, &Step, Now) -> Result<bool, StoreError>,
);

/// What may be done to a running step.
const MOVES: [Move; 4] = [
    ("fail", |tx, step, now| {
        let ending = Ending::failed(Reason::ExitCode, "late".to_string());
        tx.end_steps(&[(step.head.clone(), ending)], now)
    }),
    ("cancel", |tx, step, now| {
        let step_move = StepMove::Cancel;
        let ending = Ending {
            step_move,
            ..Ending::failed(Reason::Superseded, "late".to_string())
        };
        tx.end_steps(&[(step.head.clone(), ending)], now)
    }),
    ("retry", |tx, step, now| tx.retry_step(step, None, now)),
    ("hold", |tx, step, now| {
        tx.suspend_step(
            step,
            StepMove::Hold,
            None,
            Some(Reason::WorkerLost),
            "late",
            now,
        )
    }),
];

/// Whether the move would happen. An error undoes it again.
fn would_move(house: &TestHouse, step: &Step, (_, make): Move) -> bool {
    let (step, now) = (step.clone(), house.now());
    let undone = house
        .engine
        .store
        .write(move |tx| match make(tx, &step, now)? {
            true => Err(StoreError::Stopped),
            false => Ok(()),
        });
    match undone {
        Ok(()) => false,
        Err(StoreError::Stopped) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_step_that_has_moved_on_does_not_move_again() {
    let house = TestHouse::new();
    let job = house.submit(vec![StepDraft {
        retry: RetryPolicy::times(3),
        ..script("a")
    }]);
    let worker = house.worker("ann", &[], 1);
    let first = worker.begin();
    let former = house.step(job, "a");
    for step_move in MOVES {
        assert!(would_move(&house, &former, step_move), "{}", step_move.0);
    }
    // Another attempt of it runs now.
    worker.fail(first.attempt);
    let second = worker.begin();
    for step_move in MOVES {
        assert!(
            !would_move(&house, &former, step_move),
            "{} of a former attempt",
            step_move.0
        );
    }
    // The same attempt, but it has ended.
    let running = house.step(job, "a");
    worker.complete(second.attempt);
    for step_move in MOVES {
        assert!(
            !would_move(&house, &running, step_move),
            "{} after the end",
            step_move.0
        );
    }
    assert_eq!(house.summary(job), "a completed → completed");
}
