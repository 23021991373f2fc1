//! Messages to the outside, and the log of their deliveries.

use std::sync::Arc;

use rusqlite::{OptionalExtension, Row, named_params};

use super::rows;
use super::{StoreError, Tx};
use crate::domain::event::NewEvent;
use crate::domain::limits::clip;
use crate::domain::outbox::{Delivery, Message, MessageState, Sent, Target};
use crate::domain::{EventSeq, JobId, Now, OutboxId, Timestamp, Uptime};

pub const STATEMENTS: &[&str] = &[
    TASK_OF_JOB,
    POST,
    NEXT_MESSAGE,
    MESSAGE,
    MESSAGES_BEFORE,
    MESSAGES_IN_STATE,
    MESSAGES_FOR_TARGET,
    MESSAGES_OF_JOB,
    NEXT_TARGET,
    PENDING_COUNT,
    SETTLE_TRY,
    LOG_TRY,
    FORGET_TRIES,
    TRIES,
    POST_AGAIN,
    GIVE_UP_ALL,
];

/// Of each message, the last ones.
const TRIES_KEPT: u32 = 50;
const TRY_BYTES_MAX: usize = 512;

/// In the order in which `message` reads them.
macro_rules! message_columns {
    () => {
        "o.outbox_id, o.event_seq, o.target, o.job_id, o.state, o.attempts, o.tries, o.next_up, o.created_at,
         o.delivered_at, o.last_error"
    };
}

const TASK_OF_JOB: &str = "
    SELECT task FROM job WHERE job_id = :job_id
";

const POST: &str = "
    INSERT INTO outbox (event_seq, target, job_id, state, next_up, created_at)
    VALUES (:event_seq, :target, :job_id, 'pending', :up, :wall)
    ON CONFLICT (event_seq, target) DO NOTHING
";

const NEXT_MESSAGE: &str = concat!(
    "SELECT ",
    message_columns!(),
    "  FROM outbox AS o
      WHERE o.state = 'pending' AND o.target = :target
      ORDER BY o.next_up, o.outbox_id
      LIMIT 1"
);

const MESSAGE: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM outbox AS o WHERE o.outbox_id = :outbox_id"
);

const MESSAGES_BEFORE: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM outbox AS o
      WHERE o.outbox_id < :before
      ORDER BY o.outbox_id DESC
      LIMIT :limit"
);

const MESSAGES_IN_STATE: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM outbox AS o
      WHERE o.state = :state AND o.outbox_id < :before
      ORDER BY o.outbox_id DESC
      LIMIT :limit"
);

const MESSAGES_FOR_TARGET: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM outbox AS o
      WHERE o.target = :target AND o.state = :state AND o.outbox_id < :before
      ORDER BY o.outbox_id DESC
      LIMIT :limit"
);

const MESSAGES_OF_JOB: &str = concat!(
    "SELECT ",
    message_columns!(),
    "  FROM outbox AS o
      WHERE o.job_id = :job_id AND o.outbox_id < :before
        AND (:state IS NULL OR o.state = :state) AND (:target IS NULL OR o.target = :target)
      ORDER BY o.outbox_id DESC
      LIMIT :limit"
);

/// One seek. By the index of states SQLite would go through every message that waits.
const NEXT_TARGET: &str = "
    SELECT min(target) FROM outbox INDEXED BY outbox_pending WHERE state = 'pending' AND target > :after
";

/// As many as wait; none is looked at for longer than that.
const PENDING_COUNT: &str = "
    SELECT count(*) FROM (SELECT 1 FROM outbox WHERE state = 'pending' AND target = :target LIMIT :limit)
";

const SETTLE_TRY: &str = "
    UPDATE outbox
       SET state = :state, attempts = :attempt, tries = :tries, next_up = :next_up, delivered_at = :delivered_at,
           last_error = :error
     WHERE outbox_id = :outbox_id AND state = 'pending' AND attempts = :attempt - 1
";

const LOG_TRY: &str = "
    INSERT INTO delivery (outbox_id, attempt, at, ok, status, message, duration_ms)
    VALUES (:outbox_id, :attempt, :wall, :ok, :status, :message, :duration_ms)
";

const FORGET_TRIES: &str = "
    DELETE FROM delivery WHERE outbox_id = :outbox_id AND attempt <= :until
";

const TRIES: &str = "
    SELECT attempt, at, ok, status, message, duration_ms
      FROM delivery
     WHERE outbox_id = :outbox_id
     ORDER BY attempt
     LIMIT :limit
";

const POST_AGAIN: &str = "
    UPDATE outbox
       SET state = 'pending', tries = 0, next_up = :up, delivered_at = NULL
     WHERE outbox_id = :outbox_id AND state = :from
";

const GIVE_UP_ALL: &str = "
    UPDATE outbox
       SET state = 'given_up', next_up = NULL, last_error = :error
     WHERE outbox_id IN (SELECT outbox_id FROM outbox WHERE state = 'pending' AND target = :target
                          ORDER BY next_up, outbox_id LIMIT :limit)
";

/// Which messages to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageFilter {
    pub state: Option<MessageState>,
    pub target: Option<String>,
    pub job_id: Option<JobId>,
}

/// What became of a message that was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tried<'a> {
    pub message: &'a Message,
    pub sent: &'a Sent,
    pub duration_ms: i64,
    pub state: MessageState,
    pub next_up: Option<Uptime>,
}

impl Tx<'_> {
    /// The target of this name, if the settings have one.
    pub fn target(&self, name: &str) -> Option<Target> {
        let targets = self.shared.targets();
        targets.iter().find(|target| target.name == name).cloned()
    }

    /// Leaves the event for everybody who subscribed to its kind, but one.
    pub(super) fn post_to_subscribers(
        &self,
        event: &NewEvent,
        but: Option<&str>,
        now: Now,
    ) -> Result<(), StoreError> {
        let targets: Arc<Vec<Target>> = self.shared.targets();
        let is_named = |target: &&Target| target.on.contains(&event.kind);
        let mut subscribers = targets.iter().filter(is_named).peekable();
        if subscribers.peek().is_none() {
            return Ok(());
        }
        let event_seq = self.recorded_last().expect("it was just recorded");
        let mut task: Option<Option<String>> = None;
        for target in subscribers.filter(|target| Some(target.name.as_str()) != but) {
            // Whose task it is costs a look, which few targets need.
            if target.tasks.is_some() && task.is_none() {
                task = Some(self.task_of(event.job_id)?);
            }
            if target.wants(event.kind, task.as_ref().and_then(Option::as_deref)) {
                self.post(event_seq, &target.name, event.job_id, now)?;
            }
        }
        Ok(())
    }

    fn task_of(&self, job_id: Option<JobId>) -> Result<Option<String>, StoreError> {
        let Some(job_id) = job_id else {
            return Ok(None);
        };
        let mut statement = self.sql(TASK_OF_JOB)?;
        let task = statement.query_row(named_params! {":job_id": job_id.0}, |row| row.get(0));
        Ok(task.optional()?)
    }

    /// Leaves the event for a target, to be delivered once this transaction is committed; once, however often it is posted.
    pub fn post(
        &self,
        event_seq: EventSeq,
        target: &str,
        job_id: Option<JobId>,
        now: Now,
    ) -> Result<(), StoreError> {
        self.sql(POST)?.execute(named_params! {
            ":event_seq": event_seq.0,
            ":target": target,
            ":job_id": job_id.map(|id| id.0),
            ":up": now.up.0,
            ":wall": now.wall.0,
        })?;
        self.note_posted();
        Ok(())
    }

    fn note_posted(&self) {
        self.changes.borrow_mut().notice.posted = true;
    }

    /// What the target is told next, be it due or not.
    pub fn next_message(&self, target: &str) -> Result<Option<Message>, StoreError> {
        let mut statement = self.sql(NEXT_MESSAGE)?;
        one(statement.query(named_params! {":target": target})?)
    }

    pub fn message(&self, outbox_id: OutboxId) -> Result<Option<Message>, StoreError> {
        let mut statement = self.sql(MESSAGE)?;
        one(statement.query(named_params! {":outbox_id": outbox_id.0})?)
    }

    /// The newest messages before one that fit a filter, and where the next page begins. `None`: this is the last page.
    pub fn messages_before(
        &self,
        before: OutboxId,
        filter: &MessageFilter,
        limit: u32,
    ) -> Result<(Vec<Message>, Option<OutboxId>), StoreError> {
        // One more than the page holds tells whether there is a next page.
        let mut found = self.matching_messages(before, filter, limit + 1)?;
        let is_last = found.len() <= limit as usize;
        found.truncate(limit as usize);
        let next = found.last().map(|message| message.outbox_id);
        Ok((found, next.filter(|_| !is_last)))
    }

    fn matching_messages(
        &self,
        before: OutboxId,
        filter: &MessageFilter,
        limit: u32,
    ) -> Result<Vec<Message>, StoreError> {
        let (before, state) = (before.0, filter.state.map(MessageState::as_str));
        match (filter.job_id, &filter.target, filter.state) {
            (Some(job_id), target, _) => many(self.sql(MESSAGES_OF_JOB)?.query(named_params! {
                ":job_id": job_id.0, ":before": before, ":state": state, ":target": target, ":limit": limit,
            })?),
            (None, None, None) => many(
                self.sql(MESSAGES_BEFORE)?
                    .query(named_params! {":before": before, ":limit": limit})?,
            ),
            (None, None, Some(_)) => many(self.sql(MESSAGES_IN_STATE)?.query(named_params! {
                ":state": state, ":before": before, ":limit": limit,
            })?),
            (None, Some(target), one) => {
                let states = one.as_slice();
                let states = if states.is_empty() { MessageState::ALL } else { states };
                let mut found = Vec::new();
                for state in states {
                    let mut statement = self.sql(MESSAGES_FOR_TARGET)?;
                    found.extend(many(statement.query(named_params! {
                        ":target": target, ":state": state.as_str(), ":before": before, ":limit": limit,
                    })?)?);
                }
                found.sort_by_key(|message| std::cmp::Reverse(message.outbox_id));
                found.truncate(limit as usize);
                Ok(found)
            }
        }
    }

    /// The next name, in order, of a target for which messages wait.
    pub fn next_waiting_target(&self, after: &str) -> Result<Option<String>, StoreError> {
        let mut statement = self.sql(NEXT_TARGET)?;
        Ok(statement.query_row(named_params! {":after": after}, |row| row.get(0))?)
    }

    /// How many messages wait for a target, up to a limit.
    pub fn waiting_messages(&self, target: &str, limit: u32) -> Result<u32, StoreError> {
        let params = named_params! {":target": target, ":limit": limit};
        Ok(self
            .sql(PENDING_COUNT)?
            .query_row(params, |row| row.get(0))?)
    }

    /// Writes down how a delivery went and what follows. `false`: the message is not what it was.
    pub fn settle_try(&self, tried: &Tried, now: Now) -> Result<bool, StoreError> {
        let Tried { message, sent, .. } = tried;
        let attempt = message.attempts + 1;
        let said = clip(&sent.message, TRY_BYTES_MAX);
        let is_delivered = tried.state == MessageState::Delivered;
        let settled = self.sql(SETTLE_TRY)?.execute(named_params! {
            ":outbox_id": message.outbox_id.0,
            ":attempt": attempt,
            ":state": tried.state.as_str(),
            ":tries": message.tries + 1,
            ":next_up": tried.next_up.map(|up| up.0),
            ":delivered_at": is_delivered.then_some(now.wall.0),
            ":error": (!sent.is_ok).then_some(&said),
        })?;
        if settled == 0 {
            return Ok(false);
        }
        self.sql(LOG_TRY)?.execute(named_params! {
            ":outbox_id": message.outbox_id.0,
            ":attempt": attempt,
            ":wall": now.wall.0,
            ":ok": sent.is_ok,
            ":status": sent.status,
            ":message": said,
            ":duration_ms": tried.duration_ms,
        })?;
        if let Some(until @ 1..) = attempt.checked_sub(TRIES_KEPT) {
            let params = named_params! {":outbox_id": message.outbox_id.0, ":until": until};
            self.sql(FORGET_TRIES)?.execute(params)?;
        }
        Ok(true)
    }

    /// Oldest first, the last ones.
    pub fn deliveries(&self, outbox_id: OutboxId) -> Result<Vec<Delivery>, StoreError> {
        let mut statement = self.sql(TRIES)?;
        let params = named_params! {":outbox_id": outbox_id.0, ":limit": TRIES_KEPT};
        let mut rows = statement.query(params)?;
        let mut deliveries = Vec::new();
        while let Some(row) = rows.next()? {
            deliveries.push(Delivery {
                attempt: row.get(0)?,
                at: Timestamp(row.get(1)?),
                is_ok: row.get(2)?,
                status: row.get(3)?,
                message: row.get(4)?,
                duration_ms: row.get(5)?,
            });
        }
        Ok(deliveries)
    }

    /// To be delivered once more, at once. `false`: it is not what it was.
    pub fn post_again(&self, message: &Message, now: Now) -> Result<bool, StoreError> {
        let posted = self.sql(POST_AGAIN)?.execute(named_params! {
            ":outbox_id": message.outbox_id.0,
            ":from": message.state.as_str(),
            ":up": now.up.0,
        })?;
        self.note_posted();
        Ok(posted == 1)
    }

    /// Gives up so many of the messages that wait for a target. Returns how many there were.
    pub fn give_up_all(&self, target: &str, why: &str, limit: u32) -> Result<usize, StoreError> {
        let params = named_params! {":target": target, ":error": why, ":limit": limit};
        Ok(self.sql(GIVE_UP_ALL)?.execute(params)?)
    }
}

fn one(mut rows: rusqlite::Rows) -> Result<Option<Message>, StoreError> {
    rows.next()?.map(message).transpose()
}

fn many(mut rows: rusqlite::Rows) -> Result<Vec<Message>, StoreError> {
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(message(row)?);
    }
    Ok(found)
}

fn message(row: &Row) -> Result<Message, StoreError> {
    Ok(Message {
        outbox_id: OutboxId(row.get(0)?),
        event_seq: EventSeq(row.get(1)?),
        target: row.get(2)?,
        job_id: row.get::<_, Option<i64>>(3)?.map(JobId),
        state: rows::word(row, 4, MessageState::from_word, "the state of a message")?,
        attempts: row.get(5)?,
        tries: row.get(6)?,
        next_up: row.get::<_, Option<i64>>(7)?.map(Uptime),
        created_at: Timestamp(row.get(8)?),
        delivered_at: row.get::<_, Option<i64>>(9)?.map(Timestamp),
        last_error: row.get(10)?,
    })
}
