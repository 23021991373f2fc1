//! Something to be told that is no consequence of a verb, such as a file that does not load or a sweep that a person asked for.

use super::facts::Facts;
use super::{Engine, EngineError};
use crate::domain::Now;
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::event::{EventKind, NewEvent};

impl Engine {
    pub fn tell(&self, event: NewEvent, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| Ok(tx.record(&event, now)?))
    }

    /// A person had recovery look at everything at once.
    pub fn tell_sweep(&self, actions: usize, failures: usize, now: Now) -> Result<(), EngineError> {
        let did = match actions {
            0 => "nothing was due".to_string(),
            1 => "it did 1 thing".to_string(),
            actions => format!("it did {actions} things"),
        };
        let failed = match failures {
            0 => String::new(),
            failures => format!(", {failures} failed"),
        };
        let text = format!("recovery was swept on request: {did}{failed}");
        let facts = Facts::none()
            .and("actions", actions)
            .and("failures", failures);
        let event = NewEvent::new(EventKind::RecoverySwept, text).data(facts.data());
        let swept = AuditEntry::of(AuditAction::RecoverySwept).detail(facts.detail());
        self.tell_audited_loudly(event, swept, now)
    }

    /// Records an event, which people may be sent a message about, together with its row in the audit log.
    pub fn tell_audited_loudly(
        &self,
        event: NewEvent,
        entry: AuditEntry,
        now: Now,
    ) -> Result<(), EngineError> {
        self.write(now, move |tx| {
            tx.audit(&entry, now)?;
            Ok(tx.record(&event, now)?)
        })
    }

    /// Records an event that nobody is sent a message about, together with its row in the audit log.
    pub fn tell_audited(
        &self,
        event: NewEvent,
        entry: AuditEntry,
        now: Now,
    ) -> Result<(), EngineError> {
        self.write(now, move |tx| {
            tx.audit(&entry, now)?;
            Ok(tx.record_quietly(&event, now)?)
        })
    }

    /// What nobody is to be sent a message about.
    pub fn tell_quietly(&self, event: NewEvent, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| Ok(tx.record_quietly(&event, now)?))
    }
}
