//! Polls that wait for something to do. Whoever lets them wait asks here what there is for whom, and answers those alone.
//!
//! Deliberately not here: the waiting itself. A poll that waits owns no transaction and no connection.

use super::heartbeat::current_session;
use super::poll::answer_poll;
use super::{Engine, EngineError};
use crate::domain::protocol::{Poll, PollAnswer};
use crate::domain::worker::WorkerState;
use crate::domain::{Now, WorkerId};
use crate::store::{Demand, Tx};

/// Kinds of steps that one look sees. More wait for the next: polls end and are asked again.
const DEMANDS_MAX: u32 = 1_000;

/// What a session has to offer to waiting steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub worker_id: WorkerId,
    pub slots: u32,
    pub tags: Vec<String>,
}

impl Engine {
    pub fn offer(&self, session_key: &str) -> Result<Offer, EngineError> {
        self.store.read(|tx| {
            let session = current_session(tx, session_key)?;
            let worker = tx.worker(session.worker_id)?;
            let worker = worker.ok_or(EngineError::SessionUnknown)?;
            Ok(Offer {
                worker_id: worker.worker_id,
                slots: worker.slots,
                tags: worker.tags,
            })
        })
    }

    /// What claimable steps need, and how many there are of each kind, counted up to a bound.
    pub fn demand(&self, steps_max: u32) -> Result<Vec<Demand>, EngineError> {
        self.store.read(|tx| Ok(tx.demand(steps_max, DEMANDS_MAX)?))
    }

    /// Polls that have been waiting, asked again. That somebody looks at them is no sign of life of their workers.
    pub fn answer_waiting(
        &self,
        polls: Vec<Poll>,
        now: Now,
    ) -> Vec<Result<PollAnswer, EngineError>> {
        let settings = self.settings;
        let works = polls.into_iter().map(|poll| {
            move |tx: &Tx| {
                tx.happens_at(now.up);
                let session = current_session(tx, &poll.session_key)?;
                // It was given up while its poll waited, and has not spoken since.
                if session.worker_state == WorkerState::Inactive {
                    return Ok(PollAnswer::default());
                }
                answer_poll(tx, &settings, &session, poll.free_slots, &poll.held, now)
            }
        });
        self.store.write_many(works.collect())
    }
}
