//! What the server knows of its own absences. It lives in memory because it is about this life alone: the next one
//! begins with an absence.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use super::{Engine, EngineError, Settings};
use crate::domain::recovery::Bounds;
use crate::domain::{Now, Uptime};
use crate::planted::{Bug, planted};

pub(super) struct Watch {
    state: Mutex<State>,
}

pub(super) struct State {
    pub undisturbed_since: Uptime,
    pub patient_until: Option<Uptime>,
    /// The store could not write when it was last tried.
    pub is_failing: bool,
    /// Calls that the store had turned away when it was last tried.
    pub refusals: u64,
    /// What the last sweep could not end.
    pub failures: u32,
    /// Sessions whose sign of life is on its way to the disk, apart from what else they say.
    pub noting: HashSet<String>,
}

/// With nothing written for so long, the clock is written by itself.
const SAVE_CLOCK_MS: i64 = 10_000;

impl Engine {
    /// The bounds that recovery holds now.
    pub fn bounds(&self) -> Bounds {
        self.watch.bounds(self.settings)
    }

    /// The server was not there until then: nobody's silence before counts.
    pub fn was_absent_until(&self, up: Uptime) {
        self.watch.was_absent_until(up);
    }

    /// Too many were silent at once, and that has ended one way or the other.
    pub fn end_patience(&self) {
        self.watch.state().patient_until = None;
    }

    /// Saves the service clock if that is due or if somebody was turned away: a store that takes not even that cannot hear
    /// anybody, and its failing is an absence of the server.
    pub fn try_to_write(&self, now: Now) -> Result<(), EngineError> {
        let refusals = self.store.refusals();
        let is_due = now.up.0 - self.store.saved_up().0 >= SAVE_CLOCK_MS;
        let was_failing = {
            let mut state = self.watch.state();
            let refused = std::mem::replace(&mut state.refusals, refusals) != refusals;
            if !state.is_failing && !refused && !is_due {
                return Ok(());
            }
            state.is_failing
        };
        let saved = self.save_clock(now);
        self.watch.state().is_failing = saved.is_err();
        if was_failing && saved.is_ok() {
            self.was_absent_until(now.up);
        }
        saved
    }

    /// A sweep remembers how many it could not end.
    pub fn note_failures(&self, failures: usize) {
        self.watch.state().failures = u32::try_from(failures).unwrap_or(u32::MAX);
    }

    pub fn failures_of_last_sweep(&self) -> u32 {
        self.watch.state().failures
    }

    /// Whether the store could not write when it was last tried.
    pub fn is_failing(&self) -> bool {
        self.watch.state().is_failing
    }

    /// Whether the store can write: it did so within the last second, or is tried.
    pub fn can_write(&self, now: Now) -> bool {
        !self.is_failing() && self.prove_writing(now).is_ok()
    }

    /// The store wrote within the last second, or does so now. It takes as long as the store takes.
    pub fn prove_writing(&self, now: Now) -> Result<(), EngineError> {
        // While it fails, no time passes on this clock.
        let wrote_lately = !self.is_failing() && now.up.0 - self.store.saved_up().0 < 1_000;
        match wrote_lately {
            true => Ok(()),
            false => self.save_clock(now),
        }
    }

    /// Lets the next life of the server continue the service clock here, although nothing happened.
    pub fn save_clock(&self, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| Ok(tx.save_service_clock(now.up)?))
    }
}

impl Watch {
    pub fn new(begun_up: Uptime) -> Watch {
        let state = State {
            undisturbed_since: begun_up,
            patient_until: None,
            is_failing: false,
            refusals: 0,
            failures: 0,
            noting: HashSet::new(),
        };
        Watch {
            state: Mutex::new(state),
        }
    }

    pub fn bounds(&self, settings: Settings) -> Bounds {
        let state = self.state();
        let undisturbed_since = match planted(Bug::NoGraceAfterStart) {
            true => Uptime(0),
            false => state.undisturbed_since,
        };
        Bounds {
            settings,
            undisturbed_since,
            patient_until: state.patient_until,
        }
    }

    pub fn was_absent_until(&self, up: Uptime) {
        let mut state = self.state();
        state.undisturbed_since = state.undisturbed_since.max(up);
    }

    /// `false`: somebody else is at it.
    pub fn begin_noting(&self, session_key: &str) -> bool {
        self.state().noting.insert(session_key.to_string())
    }

    pub fn end_noting(&self, session_key: &str) {
        self.state().noting.remove(session_key);
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }
}
