//! Polls that wait for something to do. Whoever lets them wait asks here what there is for whom, and answers those alone.
//!
//! Deliberately not here: the waiting itself. A poll that waits owns no transaction and no connection.

use std::sync::Arc;

use super::heartbeat::current_session;
use super::poll::{answer_poll, asking_session};
use super::{Engine, EngineError, Settings};
use crate::domain::protocol::{Poll, PollAnswer};
use crate::domain::worker::WorkerState;
use crate::domain::{Now, WorkerId};
use crate::store::{Demand, Joiner, StoreError, Tx, requirement_words};

/// Kinds of steps that one look sees. More wait for the next: polls end and are asked again.
const DEMANDS_MAX: u32 = 1_000;

/// What a session has to offer to waiting steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub worker_id: WorkerId,
    pub slots: u32,
    /// The worker's tags, and its features as a requirement names them.
    pub words: Vec<String>,
    /// It is paused or drains: it is given nothing.
    pub is_held_back: bool,
}

/// A poll that shares a commit, and who is told what it was given.
pub struct AskedOnTheWay {
    pub poll: Poll,
    /// Must not block.
    pub hand_on: Box<dyn FnOnce(Result<PollAnswer, EngineError>) + Send>,
}

/// What claimable steps need, and how many there are of each kind, counted up to a bound.
pub type Look<'a> = &'a dyn Fn(u32) -> Result<Vec<Demand>, StoreError>;

impl Engine {
    pub fn offer(&self, session_key: &str) -> Result<Offer, EngineError> {
        self.store.read(|tx| {
            let session = current_session(tx, session_key)?;
            let worker = tx.worker(session.worker_id)?;
            let worker = worker.ok_or(EngineError::SessionUnknown)?;
            Ok(Offer {
                worker_id: worker.worker_id,
                slots: worker.slots,
                words: requirement_words(&worker.tags, worker.features),
                is_held_back: worker.paused || worker.draining,
            })
        })
    }

    /// What claimable steps need, and how many there are of each kind, counted up to a bound.
    pub fn demand(&self, steps_max: u32) -> Result<Vec<Demand>, EngineError> {
        self.store.read(|tx| Ok(tx.demand(steps_max, DEMANDS_MAX)?))
    }

    /// Polls that have been waiting, asked again.
    pub fn answer_waiting(
        &self,
        polls: Vec<Poll>,
        now: Now,
    ) -> Vec<Result<PollAnswer, EngineError>> {
        let settings = self.settings;
        let works = polls.into_iter();
        let works = works.map(|poll| move |tx: &Tx| answer_one(tx, &settings, &poll, now));
        self.store.write_many(works.collect())
    }

    /// Lets waiting polls share the commit that makes steps claimable: from a submission to its assignment there is one sync
    /// of the disk instead of two. `choose` says who is asked; it must not block, nor keep the engine alive.
    pub fn hand_out_on_the_way<C>(&self, now: impl Fn() -> Now + Send + Sync + 'static, choose: C)
    where
        C: Fn(Look) -> Vec<AskedOnTheWay> + Send + Sync + 'static,
    {
        let settings = self.settings;
        self.store.let_join(Arc::new(move |tx: &Tx| {
            let asked = choose(&|steps_max| tx.demand(steps_max, DEMANDS_MAX));
            let joiner = |AskedOnTheWay { poll, hand_on }| {
                let now = now();
                let work = move |tx: &Tx| answer_one(tx, &settings, &poll, now);
                Joiner::new(work, hand_on)
            };
            asked.into_iter().map(joiner).collect()
        }));
    }
}

/// That somebody looks at a waiting poll is no sign of life of its worker.
fn answer_one(
    tx: &Tx,
    settings: &Settings,
    poll: &Poll,
    now: Now,
) -> Result<PollAnswer, EngineError> {
    tx.happens_at(now.up);
    let session = asking_session(tx, &poll.session_key)?;
    // It was given up while its poll waited, and has not spoken since.
    if session.worker_state == WorkerState::Inactive {
        return Ok(PollAnswer::default());
    }
    answer_poll(tx, settings, &session, poll.free_slots, &poll.held, now)
}
