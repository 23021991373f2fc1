//! Rows as the domain sees them. Data read from disk is never trusted into a panic: a word we do not know is an error.

use rusqlite::Row;

use super::{Held, SessionView, StoreError};
use crate::domain::job::{Hold, Job, JobState, ParentStep, Source, Tally};
use crate::domain::peer::Features;
use crate::domain::reason::Reason;
use crate::domain::step::{Step, StepHead, StepKind, StepState};
use crate::domain::worker::{Worker, WorkerState};
use crate::domain::{
    DefinitionId, JobId, Json, RequirementId, ScheduleId, SealId, SessionId, StepId, Timestamp,
    Uptime, WorkerId,
};

/// In the order in which `step_head` reads them.
macro_rules! step_head_columns {
    () => {
        "s.step_id, s.job_id, s.position, s.item, s.kind, s.state, s.attempt, s.tries, s.returns, s.worker_id,
         s.session_id, s.queued_up, s.since_up"
    };
}
pub(super) use step_head_columns;

/// How many columns `step_head_columns` has: what comes after them in a row starts here.
const STEP_HEAD_COLUMNS: usize = 13;

/// In the order in which `step` reads them.
macro_rules! step_columns {
    () => {
        concat!(
            crate::store::rows::step_head_columns!(),
            ", s.reason, s.message, s.requirement_id, s.priority, s.waiting_on, s.child_job_id, s.origin_step_id,
               s.exit_code, s.output, s.item_value, s.absent_beats, s.ready_at, s.assigned_at, s.started_at, s.ended_at,
               s.due_up, s.not_before_up"
        )
    };
}
pub(super) use step_columns;

/// In the order in which `job` reads them.
macro_rules! job_columns {
    () => {
        "j.job_id, j.definition_id, j.task_index, j.task, j.state, j.reason, j.message, j.source, j.input, j.labels,
         j.priority, j.parent_step_id, j.parent_attempt, j.depth, j.retry_of, j.hold, j.not_before,
         j.concurrency_group, j.steps_open, j.steps_failed, j.steps_cancelled, j.change_seq, j.created_at, j.started_at,
         j.ended_at, j.since_up, j.due_up, j.failed_step_id, j.hook_of,
         j.schedule_id, j.scheduled_for, j.logs_removed_at, j.kept, j.seal_id"
    };
}
pub(super) use job_columns;

/// In the order in which `worker` reads them; needs `worker AS w LEFT JOIN session AS n`.
macro_rules! worker_columns {
    () => {
        "w.worker_id, w.instance_key, w.name, w.state, w.draining, w.paused, w.deleted_at, w.tags, w.slots, w.version,
         w.platform, w.session_id, n.session_key, w.heartbeat_seq, w.seen_at, w.seen_up, n.features"
    };
}
pub(super) use worker_columns;

/// In the order in which `session` reads them; needs `session AS n` and `worker AS w`.
macro_rules! session_columns {
    () => {
        "n.session_id, w.worker_id, w.name, w.state, w.draining, w.paused, w.slots, w.heartbeat_seq, w.seen_up,
         w.session_id = n.session_id AND w.deleted_at IS NULL, n.features"
    };
}
pub(super) use session_columns;

/// A word of one of the domain's closed sets.
pub(super) fn word<T>(
    row: &Row,
    column: usize,
    from_word: fn(&str) -> Option<T>,
    expected: &'static str,
) -> Result<T, StoreError> {
    let text = row
        .get_ref(column)?
        .as_str()
        .map_err(rusqlite::Error::from)?;
    from_word(text).ok_or_else(|| StoreError::Unreadable {
        expected,
        found: text.to_string(),
    })
}

pub(super) fn word_or_null<T>(
    row: &Row,
    column: usize,
    from_word: fn(&str) -> Option<T>,
    expected: &'static str,
) -> Result<Option<T>, StoreError> {
    if row
        .get_ref(column)?
        .as_str_or_null()
        .map_err(rusqlite::Error::from)?
        .is_none()
    {
        return Ok(None);
    }
    word(row, column, from_word, expected).map(Some)
}

pub(super) fn id<T>(row: &Row, column: usize, make: fn(i64) -> T) -> rusqlite::Result<Option<T>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(make))
}

pub(super) fn step_head(row: &Row) -> Result<StepHead, StoreError> {
    let item: i64 = row.get(3)?;
    Ok(StepHead {
        step_id: StepId(row.get(0)?),
        job_id: JobId(row.get(1)?),
        position: row.get(2)?,
        item: u32::try_from(item).ok(),
        kind: word(row, 4, StepKind::from_word, "the kind of a step")?,
        state: word(row, 5, StepState::from_word, "the state of a step")?,
        attempt: row.get(6)?,
        tries: row.get(7)?,
        returns: row.get(8)?,
        worker_id: id(row, 9, WorkerId)?,
        session_id: id(row, 10, SessionId)?,
        queued_up: id(row, 11, Uptime)?,
        since_up: Uptime(row.get(12)?),
    })
}

pub(super) fn step(row: &Row) -> Result<Step, StoreError> {
    let at = STEP_HEAD_COLUMNS;
    Ok(Step {
        head: step_head(row)?,
        reason: word_or_null(row, at, Reason::from_word, "a reason")?,
        message: row.get(at + 1)?,
        requirement_id: id(row, at + 2, RequirementId)?,
        priority: row.get(at + 3)?,
        waiting_on: row.get(at + 4)?,
        child_job_id: id(row, at + 5, JobId)?,
        origin_step_id: id(row, at + 6, StepId)?,
        exit_code: row.get(at + 7)?,
        output: row.get::<_, Option<String>>(at + 8)?.map(Json),
        item_value: row.get::<_, Option<String>>(at + 9)?.map(Json),
        absent_beats: row.get(at + 10)?,
        ready_at: id(row, at + 11, Timestamp)?,
        assigned_at: id(row, at + 12, Timestamp)?,
        started_at: id(row, at + 13, Timestamp)?,
        ended_at: id(row, at + 14, Timestamp)?,
        due_up: id(row, at + 15, Uptime)?,
        not_before_up: id(row, at + 16, Uptime)?,
    })
}

pub(super) fn job(row: &Row) -> Result<Job, StoreError> {
    let parent_step_id = id(row, 11, StepId)?;
    let parent_attempt: Option<u32> = row.get(12)?;
    Ok(Job {
        job_id: JobId(row.get(0)?),
        definition_id: DefinitionId(row.get(1)?),
        task_index: row.get(2)?,
        task: row.get(3)?,
        state: word(row, 4, JobState::from_word, "the state of a job")?,
        reason: word_or_null(row, 5, Reason::from_word, "a reason")?,
        message: row.get(6)?,
        source: word(row, 7, Source::from_word, "the source of a job")?,
        input: Json(row.get(8)?),
        labels: Json(row.get(9)?),
        priority: row.get(10)?,
        parent: parent_step_id
            .zip(parent_attempt)
            .map(|(step_id, attempt)| ParentStep { step_id, attempt }),
        depth: row.get(13)?,
        retry_of: id(row, 14, JobId)?,
        hold: word_or_null(row, 15, Hold::from_word, "what holds a job")?,
        not_before: id(row, 16, Timestamp)?,
        concurrency_group: row.get(17)?,
        tally: Tally {
            open: row.get(18)?,
            failed: row.get(19)?,
            cancelled: row.get(20)?,
        },
        change_seq: row.get(21)?,
        created_at: Timestamp(row.get(22)?),
        started_at: id(row, 23, Timestamp)?,
        ended_at: id(row, 24, Timestamp)?,
        since_up: Uptime(row.get(25)?),
        due_up: id(row, 26, Uptime)?,
        failed_step_id: id(row, 27, StepId)?,
        hook_of: id(row, 28, JobId)?,
        schedule_id: id(row, 29, ScheduleId)?,
        scheduled_for: id(row, 30, Timestamp)?,
        logs_removed_at: id(row, 31, Timestamp)?,
        kept: row.get(32)?,
        seal_id: row.get::<_, Option<[u8; 16]>>(33)?.map(SealId),
    })
}

pub(super) fn worker(row: &Row) -> Result<Worker, StoreError> {
    let tags: String = row.get(7)?;
    Ok(Worker {
        worker_id: WorkerId(row.get(0)?),
        instance_key: row.get(1)?,
        name: row.get(2)?,
        state: word(row, 3, WorkerState::from_word, "the state of a worker")?,
        draining: row.get(4)?,
        paused: row.get(5)?,
        deleted_at: id(row, 6, Timestamp)?,
        tags: split_tags(&tags),
        slots: row.get(8)?,
        version: row.get(9)?,
        platform: row.get(10)?,
        session_id: id(row, 11, SessionId)?,
        session_key: row.get(12)?,
        heartbeat_seq: row.get(13)?,
        seen_at: Timestamp(row.get(14)?),
        seen_up: Uptime(row.get(15)?),
        features: features(row, 16)?,
    })
}

pub(super) fn session(row: &Row) -> Result<SessionView, StoreError> {
    Ok(SessionView {
        session_id: SessionId(row.get(0)?),
        worker_id: WorkerId(row.get(1)?),
        worker_name: row.get(2)?,
        worker_state: word(row, 3, WorkerState::from_word, "the state of a worker")?,
        draining: row.get(4)?,
        paused: row.get(5)?,
        slots: row.get(6)?,
        heartbeat_seq: row.get(7)?,
        seen_up: Uptime(row.get(8)?),
        current: row.get::<_, Option<bool>>(9)?.unwrap_or(false),
        features: features(row, 10)?,
    })
}

/// The features in this column. A worker that never opened a session has none.
pub(super) fn features(row: &Row, column: usize) -> Result<Features, StoreError> {
    let names = row
        .get_ref(column)?
        .as_str_or_null()
        .map_err(rusqlite::Error::from)?;
    Ok(names.map_or(Features::NONE, Features::parse))
}

pub(super) fn held(row: &Row) -> Result<Held, StoreError> {
    Ok(Held {
        step_id: StepId(row.get(0)?),
        attempt: row.get(1)?,
        state: word(row, 2, StepState::from_word, "the state of a step")?,
        since_up: Uptime(row.get(3)?),
        absent_beats: row.get(4)?,
        unconfirmed: row.get(5)?,
    })
}

pub(super) fn split_tags(tags: &str) -> Vec<String> {
    tags.split_whitespace().map(str::to_string).collect()
}
