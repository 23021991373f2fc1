//! Something to be told that is no consequence of a verb, such as a file that does not load.

use super::{Engine, EngineError};
use crate::domain::Now;
use crate::domain::event::NewEvent;

impl Engine {
    pub fn tell(&self, event: NewEvent, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| Ok(tx.record(&event, now)?))
    }

    /// What nobody is to be sent a message about.
    pub fn tell_quietly(&self, event: NewEvent, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| Ok(tx.record_quietly(&event, now)?))
    }
}
