//! What the server knows of its own absences. It lives in memory because it is about this life alone: the next one
//! begins with an absence.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use super::Settings;
use crate::domain::Uptime;
use crate::domain::recovery::Bounds;
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
    /// When a session last spoke without the store being able to write that down.
    pub unwritten: HashMap<String, Uptime>,
}

/// More sessions than this were never heard of in one moment of failing: then it is everybody's.
const UNWRITTEN_MAX: usize = 10_000;

impl Watch {
    pub fn new(begun_up: Uptime) -> Watch {
        let state = State {
            undisturbed_since: begun_up,
            patient_until: None,
            is_failing: false,
            refusals: 0,
            failures: 0,
            unwritten: HashMap::new(),
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

    /// A session spoke, and the store turned it away.
    pub fn heard(&self, session_key: &str, up: Uptime) {
        let mut state = self.state();
        if state.unwritten.len() >= UNWRITTEN_MAX {
            state.unwritten.clear();
            state.undisturbed_since = state.undisturbed_since.max(up);
        }
        state.unwritten.insert(session_key.to_string(), up);
    }

    /// What it said later was written down.
    pub fn wrote(&self, session_key: &str) {
        let mut state = self.state();
        if !state.unwritten.is_empty() {
            state.unwritten.remove(session_key);
        }
    }

    /// When a session last spoke, as far as that is known here and not on disk.
    pub fn unwritten(&self, session_key: Option<&str>) -> Option<Uptime> {
        self.state().unwritten.get(session_key?).copied()
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }
}
