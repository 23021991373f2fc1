//! Which history the database continues: counted at each start, and asked for the name of a log.

use super::{Engine, EngineError};
use crate::domain::event::NewEvent;
use crate::domain::lineage::{EpochHistory, Lineages, LogTag};
use crate::domain::{AttemptRef, Now};

impl Engine {
    /// A server starts: the epoch of its lineage grows by one, in the transaction that also saves the service clock.
    pub fn begin_epoch(&self, now: Now) -> Result<EpochHistory, EngineError> {
        self.write(now, |tx| Ok(tx.begin_epoch()?))
    }

    /// A worker has worked for a later state of the database. `event` tells people.
    pub fn note_rollback(&self, event: NewEvent, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| {
            tx.note_rollback()?;
            Ok(tx.record(&event, now)?)
        })
    }

    /// The name of the worker that has this session. `None`: the database does not know the session.
    pub fn worker_of_session(&self, session_key: &str) -> Result<Option<String>, EngineError> {
        let session = self.store.read(|tx| tx.session(session_key))?;
        Ok(session.map(|session| session.worker_name))
    }

    /// All lineages of this installation. They do not change while a server runs.
    pub fn lineages(&self) -> Result<Lineages, EngineError> {
        self.store.read(|tx| Ok(tx.lineages()?))
    }

    /// The lineage in which an attempt ran, as it stands in the name of its log. `None`: version 0.1 ran it.
    pub fn log_tag(
        &self,
        attempt: AttemptRef,
        lineages: &Lineages,
    ) -> Result<Option<LogTag>, EngineError> {
        let session_id = self.store.read(|tx| tx.session_of_attempt(attempt))?;
        Ok(lineages.log_tag(session_id))
    }
}
