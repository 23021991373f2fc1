//! What the server knows of its own absences. It lives in memory because it is about this life alone: the next one
//! begins with an absence.

use std::sync::Mutex;

use super::Settings;
use crate::domain::recovery::Bounds;
use crate::domain::{Now, Uptime};
use crate::planted::{Bug, planted};

pub(super) struct Watch {
    state: Mutex<State>,
}

struct State {
    undisturbed_since: Uptime,
    patient_until: Option<Uptime>,
    /// Calls that the store had turned away when somebody last looked.
    refusals: u64,
}

impl Watch {
    pub fn new(begun_up: Uptime) -> Watch {
        let state = State {
            undisturbed_since: begun_up,
            patient_until: None,
            refusals: 0,
        };
        Watch {
            state: Mutex::new(state),
        }
    }

    /// A store that turned anybody away since the last look may have turned heartbeats away.
    pub fn bounds(&self, settings: Settings, refusals: u64, now: Now) -> Bounds {
        let mut state = self.state();
        if refusals != state.refusals {
            state.refusals = refusals;
            state.undisturbed_since = state.undisturbed_since.max(now.up);
        }
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

    pub fn be_patient_until(&self, up: Uptime) {
        self.state().patient_until = Some(up);
    }

    pub fn end_patience(&self) {
        self.state().patient_until = None;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }
}
