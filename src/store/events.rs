//! Events. Whoever subscribed to one is posted a message in the same transaction.

use rusqlite::named_params;

use super::rows;
use super::{StoreError, Tx};
use crate::domain::audit::Actor;
use crate::domain::event::{Event, EventKind, NewEvent};
use crate::domain::limits::{self, clip};
use crate::domain::reason::Reason;
use crate::domain::{EventSeq, JobId, Json, Now, StepId, Timestamp, WorkerId};
use crate::metrics::Fact;

pub const STATEMENTS: &[&str] = &[
    RECORD,
    RECORD_ONCE,
    EVENTS_OF_JOB,
    EVENTS_AFTER,
    EVENTS_BEFORE,
    RECOVERIES_BEFORE,
    RECOVERIES_OF,
    EVENTS_OF_JOB_BEFORE,
    LAST_SEQ,
];

const RECORD: &str = "
    INSERT INTO event (at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data, actor)
    VALUES (:wall, :kind, :phase, :job_id, :step_id, :worker_id, :attempt, :reason, :message, :data, :actor)
";

const RECORD_ONCE: &str = "
    INSERT INTO event (at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data, actor)
    VALUES (:wall, :kind, :phase, :job_id, :step_id, :worker_id, :attempt, :reason, :message, :data, :actor)
    ON CONFLICT (step_id, attempt, kind) WHERE step_id IS NOT NULL DO NOTHING
";

const EVENTS_OF_JOB: &str = "
    SELECT seq, at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data, actor
      FROM event
     WHERE job_id = :job_id AND seq > :after
     ORDER BY seq
     LIMIT :limit
";

const EVENTS_AFTER: &str = "
    SELECT seq, at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data, actor
      FROM event
     WHERE seq > :after
     ORDER BY seq
     LIMIT :limit
";

const EVENTS_BEFORE: &str = "
    SELECT seq, at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data, actor
      FROM event
     WHERE seq < :before
     ORDER BY seq DESC
     LIMIT :limit
";

const RECOVERIES_BEFORE: &str = "
    SELECT seq, at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data, actor
      FROM event
     WHERE phase IS NOT NULL AND seq < :before
     ORDER BY seq DESC
     LIMIT :limit
";

const RECOVERIES_OF: &str = "
    SELECT seq, at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data, actor
      FROM event
     WHERE phase = :phase AND seq < :before
     ORDER BY seq DESC
     LIMIT :limit
";

const EVENTS_OF_JOB_BEFORE: &str = "
    SELECT seq, at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data, actor
      FROM event
     WHERE job_id = :job_id AND seq < :before
     ORDER BY seq DESC
     LIMIT :limit
";

const LAST_SEQ: &str = "
    SELECT coalesce(max(seq), 0) FROM event
";

impl Tx<'_> {
    pub fn record(&self, event: &NewEvent, now: Now) -> Result<(), StoreError> {
        self.insert_event(RECORD, event, now)?;
        self.post_to_subscribers(event, None, now)
    }

    /// For what others can make happen again and again: told the first time only.
    pub fn record_once(&self, event: &NewEvent, now: Now) -> Result<(), StoreError> {
        match self.insert_event(RECORD_ONCE, event, now)? {
            true => self.post_to_subscribers(event, None, now),
            false => Ok(()),
        }
    }

    /// For what a target itself is the matter with: it is not told.
    pub fn record_about_target(
        &self,
        event: &NewEvent,
        target: &str,
        now: Now,
    ) -> Result<(), StoreError> {
        self.insert_event(RECORD, event, now)?;
        self.post_to_subscribers(event, Some(target), now)
    }

    /// For what nobody is to be sent a message about.
    pub fn record_quietly(&self, event: &NewEvent, now: Now) -> Result<(), StoreError> {
        self.insert_event(RECORD, event, now).map(|_| ())
    }

    pub fn events_of_job(
        &self,
        job_id: JobId,
        after: EventSeq,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError> {
        self.many_events(
            EVENTS_OF_JOB,
            named_params! {":job_id": job_id.0, ":after": after.0, ":limit": limit},
        )
    }

    pub fn events_after(&self, after: EventSeq, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.many_events(
            EVENTS_AFTER,
            named_params! {":after": after.0, ":limit": limit},
        )
    }

    /// Newest first.
    pub fn events_before(&self, before: EventSeq, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.many_events(
            EVENTS_BEFORE,
            named_params! {":before": before.0, ":limit": limit},
        )
    }

    /// What recovery did, newest first.
    pub fn recoveries_before(
        &self,
        before: EventSeq,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError> {
        self.many_events(
            RECOVERIES_BEFORE,
            named_params! {":before": before.0, ":limit": limit},
        )
    }

    /// Of one job, newest first.
    pub fn events_of_job_before(
        &self,
        job_id: JobId,
        before: EventSeq,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError> {
        self.many_events(
            EVENTS_OF_JOB_BEFORE,
            named_params! {":job_id": job_id.0, ":before": before.0, ":limit": limit},
        )
    }

    /// What one phase did, newest first.
    pub fn recoveries_of(
        &self,
        phase: u8,
        before: EventSeq,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError> {
        self.many_events(
            RECOVERIES_OF,
            named_params! {":phase": phase, ":before": before.0, ":limit": limit},
        )
    }

    pub fn last_event(&self) -> Result<EventSeq, StoreError> {
        let last = self.sql(LAST_SEQ)?.query_row([], |row| row.get(0));
        Ok(EventSeq(last?))
    }

    /// `false`: it had been told.
    fn insert_event(
        &self,
        statement: &'static str,
        event: &NewEvent,
        now: Now,
    ) -> Result<bool, StoreError> {
        let inserted = self.sql(statement)?.execute(named_params! {
            ":wall": now.wall.0,
            ":kind": event.kind.as_str(),
            ":phase": event.phase,
            ":job_id": event.job_id.map(|id| id.0),
            ":step_id": event.step_id.map(|id| id.0),
            ":worker_id": event.worker_id.map(|id| id.0),
            ":attempt": event.attempt,
            ":reason": event.reason.map(Reason::as_str),
            ":message": clip(&event.message, limits::MESSAGE_BYTES_MAX),
            ":data": event.data.as_ref().map(|data| &data.0),
            ":actor": self.changes.borrow().actor.as_deref().and_then(Actor::event_name),
        })?;
        let mut changes = self.changes.borrow_mut();
        changes.notice.news = true;
        if inserted == 1 {
            changes.recorded_last = Some(EventSeq(self.connection.last_insert_rowid()));
        }
        drop(changes);
        if inserted == 1 {
            self.note(Fact::Recorded {
                kind: event.kind,
                phase: event.phase,
                reason: event.reason,
            });
        }
        if let Some(job_id) = event.job_id {
            self.touch_job(job_id);
        }
        Ok(inserted == 1)
    }

    /// The event that this transaction recorded last.
    pub fn recorded_last(&self) -> Option<EventSeq> {
        self.changes.borrow().recorded_last
    }

    fn many_events(
        &self,
        statement: &'static str,
        params: &[(&str, &dyn rusqlite::ToSql)],
    ) -> Result<Vec<Event>, StoreError> {
        let mut statement = self.sql(statement)?;
        let mut rows = statement.query(params)?;
        let mut events = Vec::new();
        while let Some(row) = rows.next()? {
            events.push(Event {
                seq: EventSeq(row.get(0)?),
                at: Timestamp(row.get(1)?),
                actor: row.get(11)?,
                fact: NewEvent {
                    kind: rows::word(row, 2, EventKind::from_word, "the kind of an event")?,
                    phase: row.get(3)?,
                    job_id: row.get::<_, Option<i64>>(4)?.map(JobId),
                    step_id: row.get::<_, Option<i64>>(5)?.map(StepId),
                    worker_id: row.get::<_, Option<i64>>(6)?.map(WorkerId),
                    attempt: row.get(7)?,
                    reason: rows::word_or_null(row, 8, Reason::from_word, "a reason")?,
                    message: row.get(9)?,
                    data: row.get::<_, Option<String>>(10)?.map(Json),
                },
            });
        }
        Ok(events)
    }
}
