//! Events, and the outbox of what must be delivered after the commit.

use rusqlite::named_params;

use super::rows;
use super::{StoreError, Tx};
use crate::domain::event::{Event, EventKind, NewEvent};
use crate::domain::limits::{self, clip};
use crate::domain::reason::Reason;
use crate::domain::task::HookOn;
use crate::domain::{EventSeq, JobId, Json, Now, StepId, Timestamp, WorkerId};

pub const STATEMENTS: &[&str] = &[
    RECORD,
    RECORD_ONCE,
    EVENTS_OF_JOB,
    EVENTS_AFTER,
    EVENTS_BEFORE,
    RECOVERIES_BEFORE,
    LAST_SEQ,
    POST,
    OUTBOX_PENDING,
];

/// A hook that waits to be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    pub outbox_id: i64,
    pub job_id: JobId,
    pub step_id: Option<StepId>,
    pub hook_on: HookOn,
    pub hook_index: u32,
}

const RECORD: &str = "
    INSERT INTO event (at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data)
    VALUES (:wall, :kind, :phase, :job_id, :step_id, :worker_id, :attempt, :reason, :message, :data)
";

const RECORD_ONCE: &str = "
    INSERT INTO event (at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data)
    VALUES (:wall, :kind, :phase, :job_id, :step_id, :worker_id, :attempt, :reason, :message, :data)
    ON CONFLICT (step_id, attempt, kind) WHERE step_id IS NOT NULL DO NOTHING
";

const EVENTS_OF_JOB: &str = "
    SELECT seq, at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data
      FROM event
     WHERE job_id = :job_id AND seq > :after
     ORDER BY seq
     LIMIT :limit
";

const EVENTS_AFTER: &str = "
    SELECT seq, at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data
      FROM event
     WHERE seq > :after
     ORDER BY seq
     LIMIT :limit
";

const EVENTS_BEFORE: &str = "
    SELECT seq, at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data
      FROM event
     WHERE seq < :before
     ORDER BY seq DESC
     LIMIT :limit
";

const RECOVERIES_BEFORE: &str = "
    SELECT seq, at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data
      FROM event
     WHERE phase IS NOT NULL AND seq < :before
     ORDER BY seq DESC
     LIMIT :limit
";

const LAST_SEQ: &str = "
    SELECT coalesce(max(seq), 0) FROM event
";

const POST: &str = "
    INSERT INTO outbox (job_id, step_id, hook_on, hook_index, created_at)
    VALUES (:job_id, :step_id, :hook_on, :hook_index, :wall)
";

const OUTBOX_PENDING: &str = "
    SELECT outbox_id, job_id, step_id, hook_on, hook_index
      FROM outbox
     WHERE delivered_at IS NULL AND outbox_id > :after
     ORDER BY outbox_id
     LIMIT :limit
";

impl Tx<'_> {
    pub fn record(&self, event: &NewEvent, now: Now) -> Result<(), StoreError> {
        self.insert_event(RECORD, event, now)
    }

    /// For what others can make happen again and again: told the first time only.
    pub fn record_once(&self, event: &NewEvent, now: Now) -> Result<(), StoreError> {
        self.insert_event(RECORD_ONCE, event, now)
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

    pub fn last_event(&self) -> Result<EventSeq, StoreError> {
        let last = self.sql(LAST_SEQ)?.query_row([], |row| row.get(0));
        Ok(EventSeq(last?))
    }

    /// Leaves a hook to be delivered once this transaction is committed.
    pub fn post(
        &self,
        job_id: JobId,
        step_id: Option<StepId>,
        hook_on: HookOn,
        hook_index: u32,
        now: Now,
    ) -> Result<(), StoreError> {
        self.sql(POST)?.execute(named_params! {
            ":job_id": job_id.0,
            ":step_id": step_id.map(|id| id.0),
            ":hook_on": hook_on.as_str(),
            ":hook_index": hook_index,
            ":wall": now.wall.0,
        })?;
        Ok(())
    }

    pub fn outbox_pending(&self, after: i64, limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
        let mut statement = self.sql(OUTBOX_PENDING)?;
        let mut rows = statement.query(named_params! {":after": after, ":limit": limit})?;
        let mut pending = Vec::new();
        while let Some(row) = rows.next()? {
            pending.push(OutboxRow {
                outbox_id: row.get(0)?,
                job_id: JobId(row.get(1)?),
                step_id: row.get::<_, Option<i64>>(2)?.map(StepId),
                hook_on: rows::word(row, 3, HookOn::from_word, "an outcome with hooks")?,
                hook_index: row.get(4)?,
            });
        }
        Ok(pending)
    }

    fn insert_event(
        &self,
        statement: &'static str,
        event: &NewEvent,
        now: Now,
    ) -> Result<(), StoreError> {
        self.changes.borrow_mut().notice.news = true;
        self.sql(statement)?.execute(named_params! {
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
        })?;
        if let Some(job_id) = event.job_id {
            self.touch_job(job_id);
        }
        Ok(())
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
