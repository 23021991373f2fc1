//! What is too old: how old things are, what nobody needs any more, and its removal in pieces.
//!
//! Every look is a range of an index and ends at a limit. What must stay is stepped over, so whoever looks says where to go on.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, Row, named_params};

use super::{StoreError, Tx};
use crate::domain::retention::{AgeClock, Milestone};
use crate::domain::{
    DefinitionId, EventSeq, JobId, OutboxId, ScheduleId, SessionId, StepId, Timestamp, Uptime,
    WorkerId,
};

pub const STATEMENTS: &[&str] = &[
    LAST_MILESTONE,
    MILESTONE_OF_AGE,
    SET_MILESTONE,
    FORGET_MILESTONES,
    ROOTS,
    ROOT_OF,
    IS_LEAVING,
    TREE,
    TREE_SIZE,
    IS_NEEDED,
    HAS_KEY,
    SET_LEAVING,
    LEAVING_JOBS,
    UNBLAME,
    LAST_STEPS,
    CHILD_OF_STEP,
    FORGET_FORMER_ATTEMPTS,
    FORGET_AVOIDANCES,
    FORGET_LOG_FAULTS,
    REMOVE_STEP,
    UNLINK_CHILD,
    FORGET_KEY_OF_JOB,
    FORGET_FIRE_OF_JOB,
    SAVE_CHANGE_SEQ,
    DEFINITION_OF,
    REMOVE_JOB,
    REMOVE_DEFINITION,
    JOBS_WITH_LOGS,
    MARK_LOGS_REMOVED,
    HAS_LOGS,
    OLD_KEYS,
    REMOVE_KEY,
    OLD_EVENTS,
    EVENTS_OF_GONE_JOBS,
    REMOVE_EVENT,
    OLD_MESSAGES,
    REMOVE_TRIES,
    REMOVE_MESSAGE,
    OLD_FIRES,
    REMOVE_FIRE,
    ABSENT_WORKERS,
    DELETED_WORKERS,
    NAMED_BY_STEPS,
    NAMED_BY_ATTEMPTS,
    FORGET_SESSION_OF_WORKER,
    SESSIONS_OF_WORKER,
    REMOVE_WORKER,
    OLD_SESSIONS,
    REMOVE_SESSION,
    KEEP_JOB,
];

/// A job that is nobody's child, as far as its age goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootJob {
    pub job_id: JobId,
    /// When it ended, by both clocks.
    pub ended: Option<(Timestamp, Uptime)>,
    pub kept: bool,
    pub leaving: bool,
}

/// What a removal took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovedPiece {
    pub jobs: usize,
    /// Of all tables.
    pub rows: usize,
    /// There is no more of it.
    pub done: bool,
}

/// An idempotency key, and who it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedKey {
    pub key: String,
    pub owner: String,
}

/// A due instant in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FireRef {
    schedule_id: ScheduleId,
    due_at: Timestamp,
    manual: bool,
}

/// Who is named by what is still kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    pub workers: BTreeSet<WorkerId>,
    pub sessions: BTreeSet<SessionId>,
}

/// The file of the database, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSize {
    pub pages: i64,
    /// In the file, and used for nothing.
    pub free_pages: i64,
    pub page_bytes: i64,
    /// It can give free pages back while it is in use.
    pub shrinks: bool,
}

impl FileSize {
    pub fn free_bytes(&self) -> i64 {
        self.free_pages * self.page_bytes
    }
}

const LAST_MILESTONE: &str = "
    SELECT age_ms, at, up, owed_ms, job_id, event_seq, outbox_id, session_id, audit_seq
      FROM milestone
     WHERE age_ms >= 0
     ORDER BY age_ms DESC
     LIMIT 1
";

const MILESTONE_OF_AGE: &str = "
    SELECT age_ms, at, up, owed_ms, job_id, event_seq, outbox_id, session_id, audit_seq
      FROM milestone
     WHERE age_ms <= :age_ms
     ORDER BY age_ms DESC
     LIMIT 1
";

const SET_MILESTONE: &str = "
    INSERT INTO milestone (age_ms, at, up, owed_ms, job_id, event_seq, outbox_id, session_id, audit_seq)
    VALUES (:age_ms, :at, :up, :owed_ms,
            (SELECT coalesce(max(job_id), 0) FROM job), (SELECT coalesce(max(seq), 0) FROM event),
            (SELECT coalesce(max(outbox_id), 0) FROM outbox), (SELECT coalesce(max(session_id), 0) FROM session),
            (SELECT coalesce(max(seq), 0) FROM audit))
    ON CONFLICT (age_ms) DO NOTHING
";

const FORGET_MILESTONES: &str = "
    DELETE FROM milestone WHERE age_ms < :age_ms
";

const ROOTS: &str = "
    SELECT job_id, ended_at, since_up, kept, leaving
      FROM job
     WHERE parent_step_id IS NULL AND job_id > :after AND job_id <= :until
     ORDER BY job_id
     LIMIT :limit
";

/// Upwards, by id, a level at a time: at most ten.
const ROOT_OF: &str = "
    WITH RECURSIVE a (job_id) AS (
        SELECT :job_id
        UNION ALL
        SELECT s.job_id
          FROM a
          CROSS JOIN job AS j ON j.job_id = a.job_id
          CROSS JOIN step AS s ON s.step_id = j.parent_step_id)
    SELECT j.job_id, j.ended_at, j.since_up, j.kept, j.leaving
      FROM a
      CROSS JOIN job AS j ON j.job_id = a.job_id
     WHERE j.parent_step_id IS NULL
";

const IS_LEAVING: &str = "
    WITH RECURSIVE a (job_id) AS (
        SELECT :job_id
        UNION ALL
        SELECT s.job_id
          FROM a
          CROSS JOIN job AS j ON j.job_id = a.job_id
          CROSS JOIN step AS s ON s.step_id = j.parent_step_id)
    SELECT EXISTS (SELECT 1 FROM a CROSS JOIN job AS j ON j.job_id = a.job_id WHERE j.leaving = 1)
";

/// A job and everything below it.
const TREE: &str = "
    WITH RECURSIVE d (job_id) AS (
        SELECT :job_id
        UNION ALL
        SELECT c.job_id
          FROM d
          CROSS JOIN step AS s ON s.job_id = d.job_id AND s.kind = 'task'
          CROSS JOIN job AS c ON c.parent_step_id = s.step_id)
    SELECT j.job_id, j.logs_removed_at IS NULL
      FROM d
      CROSS JOIN job AS j ON j.job_id = d.job_id
";

/// Its steps, as far as they matter.
const TREE_SIZE: &str = "
    WITH RECURSIVE d (job_id) AS (
        SELECT :job_id
        UNION ALL
        SELECT c.job_id
          FROM d
          CROSS JOIN step AS s ON s.job_id = d.job_id AND s.kind = 'task'
          CROSS JOIN job AS c ON c.parent_step_id = s.step_id)
    SELECT count(*) FROM (SELECT 1 FROM d CROSS JOIN step AS s ON s.job_id = d.job_id LIMIT :limit)
";

/// By a retry or a hook that is still kept: what was carried over is shown from here.
const IS_NEEDED: &str = "
    WITH RECURSIVE d (job_id) AS (
        SELECT :job_id
        UNION ALL
        SELECT c.job_id
          FROM d
          CROSS JOIN step AS s ON s.job_id = d.job_id AND s.kind = 'task'
          CROSS JOIN job AS c ON c.parent_step_id = s.step_id)
    SELECT EXISTS (
        SELECT 1
          FROM d
         WHERE EXISTS (SELECT 1 FROM job AS r WHERE r.retry_of = d.job_id)
            OR EXISTS (SELECT 1 FROM job AS r WHERE r.hook_of = d.job_id))
";

const HAS_KEY: &str = "
    SELECT EXISTS (SELECT 1 FROM idempotency WHERE job_id = :job_id)
";

const LEAVING_JOBS: &str = "
    SELECT job_id FROM job WHERE leaving = 1 AND parent_step_id IS NULL ORDER BY job_id LIMIT :limit
";

const SET_LEAVING: &str = "
    UPDATE job SET leaving = 1 WHERE job_id = :job_id
";

const UNBLAME: &str = "
    UPDATE job SET failed_step_id = NULL WHERE job_id = :job_id AND failed_step_id IS NOT NULL
";

/// The last first, so that what is left of a job is its beginning.
const LAST_STEPS: &str = "
    SELECT step_id FROM step WHERE job_id = :job_id ORDER BY position DESC, item DESC LIMIT :limit
";

const CHILD_OF_STEP: &str = "
    SELECT job_id FROM job WHERE parent_step_id = :step_id LIMIT 1
";

const FORGET_FORMER_ATTEMPTS: &str = "
    DELETE FROM former_attempt WHERE step_id = :step_id
";

const FORGET_AVOIDANCES: &str = "
    DELETE FROM avoidance WHERE step_id = :step_id
";

const FORGET_LOG_FAULTS: &str = "
    DELETE FROM log_fault WHERE step_id = :step_id
";

const REMOVE_STEP: &str = "
    DELETE FROM step WHERE step_id = :step_id AND ended_at IS NOT NULL
";

/// Only from the step that it is the child of. Should another have it, the database refuses, and nothing is removed.
const UNLINK_CHILD: &str = "
    UPDATE step
       SET child_job_id = NULL
     WHERE step_id = (SELECT parent_step_id FROM job WHERE job_id = :job_id) AND child_job_id = :job_id
";

const FORGET_KEY_OF_JOB: &str = "
    DELETE FROM idempotency WHERE job_id = :job_id
";

const FORGET_FIRE_OF_JOB: &str = "
    DELETE FROM schedule_fire WHERE job_id = :job_id
";

const SAVE_CHANGE_SEQ: &str = "
    UPDATE server
       SET change_seq = max(change_seq, (SELECT change_seq FROM job WHERE job_id = :job_id))
     WHERE only_row = 1
";

const DEFINITION_OF: &str = "
    SELECT definition_id FROM job WHERE job_id = :job_id
";

const REMOVE_JOB: &str = "
    DELETE FROM job WHERE job_id = :job_id AND ended_at IS NOT NULL
";

const REMOVE_DEFINITION: &str = "
    DELETE FROM definition
     WHERE definition_id = :definition_id
       AND NOT EXISTS (SELECT 1 FROM job WHERE definition_id = :definition_id)
";

const JOBS_WITH_LOGS: &str = "
    SELECT job_id
      FROM job
     WHERE logs_removed_at IS NULL AND ended_at IS NOT NULL AND job_id > :after AND job_id <= :until
     ORDER BY job_id
     LIMIT :limit
";

const MARK_LOGS_REMOVED: &str = "
    UPDATE job SET logs_removed_at = :wall WHERE job_id = :job_id AND logs_removed_at IS NULL
";

const HAS_LOGS: &str = "
    SELECT EXISTS (SELECT 1 FROM job WHERE job_id = :job_id AND logs_removed_at IS NULL)
";

const OLD_KEYS: &str = "
    SELECT idempotency_key, owner FROM idempotency WHERE job_id <= :until ORDER BY job_id LIMIT :limit
";

const REMOVE_KEY: &str = "
    DELETE FROM idempotency WHERE idempotency_key = :key AND owner = :owner
";

/// With whether it may go: a job's stay with it, and what a message tells stays with that.
const OLD_EVENTS: &str = "
    SELECT e.seq,
           NOT EXISTS (SELECT 1 FROM job AS j WHERE j.job_id = e.job_id)
           AND NOT EXISTS (SELECT 1 FROM outbox AS o WHERE o.event_seq = e.seq)
      FROM event AS e
     WHERE e.seq > :after AND e.seq <= :until
     ORDER BY e.seq
     LIMIT :limit
";

/// Each event with whether it tells of a job that was removed. An event that a message tells stays with the message.
const EVENTS_OF_GONE_JOBS: &str = "
    SELECT e.seq,
           e.job_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM job AS j WHERE j.job_id = e.job_id)
           AND NOT EXISTS (SELECT 1 FROM outbox AS o WHERE o.event_seq = e.seq)
      FROM event AS e
     WHERE e.seq > :after
     ORDER BY e.seq
     LIMIT :limit
";

const REMOVE_EVENT: &str = "
    DELETE FROM event WHERE seq = :seq
";

const OLD_MESSAGES: &str = "
    SELECT outbox_id, state <> 'pending'
      FROM outbox
     WHERE outbox_id > :after AND outbox_id <= :until
     ORDER BY outbox_id
     LIMIT :limit
";

/// Somebody may have asked for it again meanwhile.
const REMOVE_TRIES: &str = "
    DELETE FROM delivery
     WHERE outbox_id = :outbox_id
       AND EXISTS (SELECT 1 FROM outbox WHERE outbox_id = :outbox_id AND state <> 'pending')
";

const REMOVE_MESSAGE: &str = "
    DELETE FROM outbox WHERE outbox_id = :outbox_id AND state <> 'pending'
";

const OLD_FIRES: &str = "
    SELECT schedule_id, due_at, manual
      FROM schedule_fire
     WHERE job_id IS NULL AND outcome <> 'queued' AND at <= :until
     ORDER BY at
     LIMIT :limit
";

const REMOVE_FIRE: &str = "
    DELETE FROM schedule_fire
     WHERE schedule_id = :schedule_id AND due_at = :due_at AND manual = :manual
       AND job_id IS NULL AND outcome <> 'queued'
";

const ABSENT_WORKERS: &str = "
    SELECT worker_id
      FROM worker
     WHERE state = 'inactive' AND deleted_at IS NULL AND seen_up <= :until
     ORDER BY seen_up
     LIMIT :limit
";

/// Before, not at: what a worker did in the same moment may be of a job that the milestone does not know.
const DELETED_WORKERS: &str = "
    SELECT worker_id, seen_up < :until
      FROM worker
     WHERE deleted_at IS NOT NULL AND worker_id > :after
     ORDER BY worker_id
     LIMIT :limit
";

const NAMED_BY_STEPS: &str = "
    SELECT s.worker_id, s.session_id
      FROM (SELECT job_id FROM job WHERE job_id <= :until ORDER BY job_id LIMIT :limit) AS c
      CROSS JOIN step AS s ON s.job_id = c.job_id
     LIMIT :limit
";

const NAMED_BY_ATTEMPTS: &str = "
    SELECT f.worker_id, f.session_id
      FROM (SELECT job_id FROM job WHERE job_id <= :until ORDER BY job_id LIMIT :limit) AS c
      CROSS JOIN step AS s ON s.job_id = c.job_id
      CROSS JOIN former_attempt AS f ON f.step_id = s.step_id
     LIMIT :limit
";

const FORGET_SESSION_OF_WORKER: &str = "
    UPDATE worker SET session_id = NULL WHERE worker_id = :worker_id AND deleted_at IS NOT NULL
";

const SESSIONS_OF_WORKER: &str = "
    SELECT session_id FROM session WHERE worker_id = :worker_id ORDER BY session_id LIMIT :limit
";

const REMOVE_WORKER: &str = "
    DELETE FROM worker WHERE worker_id = :worker_id AND deleted_at IS NOT NULL
";

/// With whether it was replaced by one that is as old itself: then it has not been anybody's for so long.
const OLD_SESSIONS: &str = "
    SELECT n.session_id,
           n.closed_at IS NOT NULL
           AND EXISTS (SELECT 1 FROM session AS r
                        WHERE r.worker_id = n.worker_id AND r.session_id > n.session_id AND r.session_id <= :until)
      FROM session AS n
     WHERE n.session_id > :after AND n.session_id <= :until
     ORDER BY n.session_id
     LIMIT :limit
";

const REMOVE_SESSION: &str = "
    DELETE FROM session WHERE session_id = :session_id AND closed_at IS NOT NULL
";

const KEEP_JOB: &str = "
    UPDATE job SET kept = :kept WHERE job_id = :job_id AND kept <> :kept
";

/// Runs once for a few hundred folders. The table has a row for each table whose ids are never used twice.
const LAST_JOB_ID: &str = "SELECT seq FROM sqlite_sequence WHERE name = 'job'";

impl Tx<'_> {
    pub fn last_milestone(&self) -> Result<Option<Milestone>, StoreError> {
        let mut statement = self.sql(LAST_MILESTONE)?;
        Ok(statement.query_row([], milestone).optional()?)
    }

    /// The last that is not younger than this.
    pub fn milestone_of_age(&self, age_ms: i64) -> Result<Option<Milestone>, StoreError> {
        let mut statement = self.sql(MILESTONE_OF_AGE)?;
        let found = statement.query_row(named_params! {":age_ms": age_ms}, milestone);
        Ok(found.optional()?)
    }

    /// Writes down where things stand.
    pub fn set_milestone(&self, clock: &AgeClock) -> Result<(), StoreError> {
        self.sql(SET_MILESTONE)?.execute(named_params! {
            ":age_ms": clock.age_ms, ":at": clock.at.0, ":up": clock.up.0, ":owed_ms": clock.owed_ms,
        })?;
        Ok(())
    }

    /// Those before this age.
    pub fn forget_milestones(&self, age_ms: i64) -> Result<usize, StoreError> {
        let params = named_params! {":age_ms": age_ms};
        Ok(self.sql(FORGET_MILESTONES)?.execute(params)?)
    }

    /// Jobs that are nobody's child, by number.
    pub fn root_jobs(
        &self,
        after: JobId,
        until: JobId,
        limit: u32,
    ) -> Result<Vec<RootJob>, StoreError> {
        let mut statement = self.sql(ROOTS)?;
        let params = named_params! {":after": after.0, ":until": until.0, ":limit": limit};
        let roots = statement.query_map(params, root_job)?;
        Ok(roots.collect::<Result<_, _>>()?)
    }

    /// The job that it is a child of, or a child's child; itself if it is nobody's.
    pub fn root_of_job(&self, job_id: JobId) -> Result<Option<RootJob>, StoreError> {
        let mut statement = self.sql(ROOT_OF)?;
        let found = statement.query_row(named_params! {":job_id": job_id.0}, root_job);
        Ok(found.optional()?)
    }

    /// It, or what it is a child of, is being removed.
    pub fn is_leaving(&self, job_id: JobId) -> Result<bool, StoreError> {
        self.is_so(IS_LEAVING, named_params! {":job_id": job_id.0})
    }

    /// The job and everything below it, each with whether its logs are kept.
    pub fn job_tree(&self, job_id: JobId) -> Result<Vec<(JobId, bool)>, StoreError> {
        let mut statement = self.sql(TREE)?;
        let tree = statement.query_map(named_params! {":job_id": job_id.0}, |row| {
            Ok((JobId(row.get(0)?), row.get(1)?))
        })?;
        Ok(tree.collect::<Result<_, _>>()?)
    }

    /// How many steps it and everything below it have, counted up to the limit.
    pub fn tree_size(&self, job_id: JobId, limit: u32) -> Result<u32, StoreError> {
        let params = named_params! {":job_id": job_id.0, ":limit": limit};
        Ok(self.sql(TREE_SIZE)?.query_row(params, |row| row.get(0))?)
    }

    /// A retry or a hook of it, or of something below it, is still kept.
    pub fn is_needed(&self, job_id: JobId) -> Result<bool, StoreError> {
        self.is_so(IS_NEEDED, named_params! {":job_id": job_id.0})
    }

    /// The same request would be answered with it.
    pub fn has_key(&self, job_id: JobId) -> Result<bool, StoreError> {
        self.is_so(HAS_KEY, named_params! {":job_id": job_id.0})
    }

    /// From now on nobody sees it, nobody can come to need it, and there is no way back: whoever comes by removes it.
    pub fn hide_job(&self, job_id: JobId) -> Result<(), StoreError> {
        self.set_leaving(job_id)?;
        self.sql(FORGET_KEY_OF_JOB)?
            .execute(named_params! {":job_id": job_id.0})?;
        Ok(())
    }

    fn set_leaving(&self, job_id: JobId) -> Result<(), StoreError> {
        self.sql(SET_LEAVING)?
            .execute(named_params! {":job_id": job_id.0})?;
        Ok(())
    }

    /// Hidden and not gone yet; those that are nobody's child.
    pub fn leaving_jobs(&self, limit: u32) -> Result<Vec<JobId>, StoreError> {
        self.numbers(LEAVING_JOBS, named_params! {":limit": limit}, JobId)
    }

    /// By a person, until it is released. `false`: it was so before.
    pub fn keep_job(&self, job_id: JobId, kept: bool) -> Result<bool, StoreError> {
        let params = named_params! {":job_id": job_id.0, ":kept": kept};
        let changed = self.sql(KEEP_JOB)?.execute(params)? == 1;
        if changed {
            self.touch_job(job_id);
        }
        Ok(changed)
    }

    /// Removes a job that has ended, with everything below it, from the end: so many rows, or a few more. What is left is on its
    /// way, and nobody sees it.
    pub fn remove_job(&self, root: JobId, rows_max: usize) -> Result<RemovedPiece, StoreError> {
        let mut removed = RemovedPiece::default();
        let mut path = Vec::new();
        self.enter(root, &mut path)?;
        'jobs: while let Some(&job_id) = path.last() {
            let rows_left = rows_max.saturating_sub(removed.rows);
            if rows_left == 0 {
                for job_id in path {
                    self.set_leaving(job_id)?;
                }
                return Ok(removed);
            }
            let steps = self.last_steps(job_id, rows_left as u32)?;
            if steps.is_empty() {
                removed.rows += self.remove_job_itself(job_id)?;
                removed.jobs += 1;
                path.pop();
                continue;
            }
            for step_id in steps {
                if removed.rows >= rows_max {
                    continue 'jobs;
                }
                if let Some(child_id) = self.child_of_step(step_id)? {
                    self.enter(child_id, &mut path)?;
                    continue 'jobs;
                }
                removed.rows += self.remove_step(step_id)?;
            }
        }
        removed.done = true;
        Ok(removed)
    }

    fn enter(&self, job_id: JobId, path: &mut Vec<JobId>) -> Result<(), StoreError> {
        self.sql(UNBLAME)?
            .execute(named_params! {":job_id": job_id.0})?;
        path.push(job_id);
        Ok(())
    }

    fn last_steps(&self, job_id: JobId, limit: u32) -> Result<Vec<StepId>, StoreError> {
        let params = named_params! {":job_id": job_id.0, ":limit": limit};
        self.numbers(LAST_STEPS, params, StepId)
    }

    fn child_of_step(&self, step_id: StepId) -> Result<Option<JobId>, StoreError> {
        let mut statement = self.sql(CHILD_OF_STEP)?;
        let params = named_params! {":step_id": step_id.0};
        let found = statement.query_row(params, |row| row.get(0).map(JobId));
        Ok(found.optional()?)
    }

    fn remove_step(&self, step_id: StepId) -> Result<usize, StoreError> {
        let mut rows = 0;
        for statement in [
            FORGET_FORMER_ATTEMPTS,
            FORGET_AVOIDANCES,
            FORGET_LOG_FAULTS,
            REMOVE_STEP,
        ] {
            rows += self
                .sql(statement)?
                .execute(named_params! {":step_id": step_id.0})?;
        }
        Ok(rows)
    }

    /// Its steps are gone.
    fn remove_job_itself(&self, job_id: JobId) -> Result<usize, StoreError> {
        let params = named_params! {":job_id": job_id.0};
        let mut statement = self.sql(DEFINITION_OF)?;
        let definition_id = statement.query_row(params, |row| row.get(0).map(DefinitionId))?;
        let mut rows = 0;
        self.sql(SAVE_CHANGE_SEQ)?.execute(params)?;
        self.sql(UNLINK_CHILD)?.execute(params)?;
        for statement in [FORGET_KEY_OF_JOB, FORGET_FIRE_OF_JOB, REMOVE_JOB] {
            rows += self.sql(statement)?.execute(params)?;
        }
        let params = named_params! {":definition_id": definition_id.0};
        Ok(rows + self.sql(REMOVE_DEFINITION)?.execute(params)?)
    }

    /// Jobs that have ended and whose logs are kept, by number.
    pub fn jobs_with_logs(
        &self,
        after: JobId,
        until: JobId,
        limit: u32,
    ) -> Result<Vec<JobId>, StoreError> {
        let params = named_params! {":after": after.0, ":until": until.0, ":limit": limit};
        self.numbers(JOBS_WITH_LOGS, params, JobId)
    }

    /// Before they are, so that no job speaks of a file that is not there.
    pub fn mark_logs_removed(&self, jobs: &[JobId], wall: Timestamp) -> Result<usize, StoreError> {
        let mut statement = self.sql_repeated(MARK_LOGS_REMOVED)?;
        let mut marked = 0;
        for job_id in jobs {
            marked += statement.execute(named_params! {":job_id": job_id.0, ":wall": wall.0})?;
        }
        Ok(marked)
    }

    /// The highest id that a job ever had. 0: there was no job yet.
    pub fn last_job_id(&self) -> Result<JobId, StoreError> {
        let found = self.sql(LAST_JOB_ID)?.query_row([], |row| row.get(0));
        Ok(JobId(found.optional()?.unwrap_or(0)))
    }

    /// There is such a job, and its logs are kept.
    pub fn has_logs(&self, job_id: JobId) -> Result<bool, StoreError> {
        self.is_so(HAS_LOGS, named_params! {":job_id": job_id.0})
    }

    /// The idempotency keys of jobs up to this one, those of the oldest job first.
    pub fn old_keys(&self, until: JobId, limit: u32) -> Result<Vec<OwnedKey>, StoreError> {
        let mut statement = self.sql(OLD_KEYS)?;
        let params = named_params! {":until": until.0, ":limit": limit};
        let keys = statement.query_map(params, |row| {
            Ok(OwnedKey {
                key: row.get(0)?,
                owner: row.get(1)?,
            })
        })?;
        Ok(keys.collect::<Result<_, _>>()?)
    }

    pub fn remove_keys(&self, keys: &[OwnedKey]) -> Result<usize, StoreError> {
        let mut statement = self.sql_repeated(REMOVE_KEY)?;
        let mut removed = 0;
        for OwnedKey { key, owner } in keys {
            removed += statement.execute(named_params! {":key": key, ":owner": owner})?;
        }
        Ok(removed)
    }

    /// By number, each with whether it may go.
    pub fn old_events(
        &self,
        after: EventSeq,
        until: EventSeq,
        limit: u32,
    ) -> Result<Vec<(EventSeq, bool)>, StoreError> {
        let params = named_params! {":after": after.0, ":until": until.0, ":limit": limit};
        self.judged(OLD_EVENTS, params, EventSeq)
    }

    /// By number, each with whether its job is gone and nothing else needs it.
    pub fn events_of_gone_jobs(
        &self,
        after: EventSeq,
        limit: u32,
    ) -> Result<Vec<(EventSeq, bool)>, StoreError> {
        let params = named_params! {":after": after.0, ":limit": limit};
        self.judged(EVENTS_OF_GONE_JOBS, params, EventSeq)
    }

    pub fn remove_events(&self, events: &[EventSeq]) -> Result<usize, StoreError> {
        let mut statement = self.sql_repeated(REMOVE_EVENT)?;
        let mut removed = 0;
        for seq in events {
            removed += statement.execute(named_params! {":seq": seq.0})?;
        }
        Ok(removed)
    }

    /// By number, each with whether it may go.
    pub fn old_messages(
        &self,
        after: OutboxId,
        until: OutboxId,
        limit: u32,
    ) -> Result<Vec<(OutboxId, bool)>, StoreError> {
        let params = named_params! {":after": after.0, ":until": until.0, ":limit": limit};
        self.judged(OLD_MESSAGES, params, OutboxId)
    }

    /// With how their deliveries went. Those that are to be sent again stay.
    pub fn remove_messages(&self, messages: &[OutboxId]) -> Result<usize, StoreError> {
        let mut tries = self.sql_repeated(REMOVE_TRIES)?;
        let mut statement = self.sql_repeated(REMOVE_MESSAGE)?;
        let mut removed = 0;
        for outbox_id in messages {
            let params = named_params! {":outbox_id": outbox_id.0};
            tries.execute(params)?;
            removed += statement.execute(params)?;
        }
        Ok(removed)
    }

    /// What was written down until then about instants that no job was made for, the first first.
    pub fn old_fires(&self, until: Timestamp, limit: u32) -> Result<Vec<FireRef>, StoreError> {
        let mut statement = self.sql(OLD_FIRES)?;
        let params = named_params! {":until": until.0, ":limit": limit};
        let fires = statement.query_map(params, |row| {
            Ok(FireRef {
                schedule_id: ScheduleId(row.get(0)?),
                due_at: Timestamp(row.get(1)?),
                manual: row.get(2)?,
            })
        })?;
        Ok(fires.collect::<Result<_, _>>()?)
    }

    pub fn remove_fires(&self, fires: &[FireRef]) -> Result<usize, StoreError> {
        let mut statement = self.sql_repeated(REMOVE_FIRE)?;
        let mut removed = 0;
        for fire in fires {
            removed += statement.execute(named_params! {
                ":schedule_id": fire.schedule_id.0, ":due_at": fire.due_at.0, ":manual": fire.manual,
            })?;
        }
        Ok(removed)
    }

    /// Inactive, and not heard of since then.
    pub fn absent_workers(&self, until: Uptime, limit: u32) -> Result<Vec<WorkerId>, StoreError> {
        let params = named_params! {":until": until.0, ":limit": limit};
        self.numbers(ABSENT_WORKERS, params, WorkerId)
    }

    /// Kept for the history that names them, each with whether it was not heard of since then.
    pub fn deleted_workers(
        &self,
        after: WorkerId,
        until: Uptime,
        limit: u32,
    ) -> Result<Vec<(WorkerId, bool)>, StoreError> {
        let params = named_params! {":after": after.0, ":until": until.0, ":limit": limit};
        self.judged(DELETED_WORKERS, params, WorkerId)
    }

    /// Who is named by the jobs up to this one. `None`: there are too many to look.
    pub fn named_by_jobs(&self, until: JobId, limit: u32) -> Result<Option<Named>, StoreError> {
        let mut named = Named::default();
        for statement in [NAMED_BY_STEPS, NAMED_BY_ATTEMPTS] {
            let mut statement = self.sql(statement)?;
            let mut rows = statement.query(named_params! {":until": until.0, ":limit": limit})?;
            let mut looked_at = 0;
            while let Some(row) = rows.next()? {
                looked_at += 1;
                (named.workers).extend(row.get::<_, Option<i64>>(0)?.map(WorkerId));
                (named.sessions).extend(row.get::<_, Option<i64>>(1)?.map(SessionId));
            }
            if looked_at >= limit {
                return Ok(None);
            }
        }
        Ok(Some(named))
    }

    /// A deleted one that no kept row names, with its sessions; so many of these at a time.
    pub fn remove_worker(
        &self,
        worker_id: WorkerId,
        rows_max: u32,
    ) -> Result<RemovedPiece, StoreError> {
        let params = named_params! {":worker_id": worker_id.0};
        self.sql(FORGET_SESSION_OF_WORKER)?.execute(params)?;
        let params_of_sessions = named_params! {":worker_id": worker_id.0, ":limit": rows_max};
        let sessions = self.numbers(SESSIONS_OF_WORKER, params_of_sessions, SessionId)?;
        let mut removed = RemovedPiece {
            rows: self.remove_sessions(&sessions)?,
            ..RemovedPiece::default()
        };
        if sessions.len() < rows_max as usize {
            removed.rows += self.sql(REMOVE_WORKER)?.execute(params)?;
            removed.done = true;
        }
        Ok(removed)
    }

    /// By number, each with whether it was replaced by one that is among them.
    pub fn old_sessions(
        &self,
        after: SessionId,
        until: SessionId,
        limit: u32,
    ) -> Result<Vec<(SessionId, bool)>, StoreError> {
        let params = named_params! {":after": after.0, ":until": until.0, ":limit": limit};
        self.judged(OLD_SESSIONS, params, SessionId)
    }

    pub fn remove_sessions(&self, sessions: &[SessionId]) -> Result<usize, StoreError> {
        let mut statement = self.sql_repeated(REMOVE_SESSION)?;
        let mut removed = 0;
        for session_id in sessions {
            removed += statement.execute(named_params! {":session_id": session_id.0})?;
        }
        Ok(removed)
    }

    pub fn file_size(&self) -> Result<FileSize, StoreError> {
        let number = |pragma| -> Result<i64, StoreError> {
            let value = self
                .connection
                .pragma_query_value(None, pragma, |row| row.get(0));
            Ok(value?)
        };
        const INCREMENTAL: i64 = 2;
        Ok(FileSize {
            pages: number("page_count")?,
            free_pages: number("freelist_count")?,
            page_bytes: number("page_size")?,
            shrinks: number("auto_vacuum")? == INCREMENTAL,
        })
    }

    /// Gives some of the free pages of the file back, in pieces of a fixed size. Each moves a page from its end.
    pub fn give_pages_back(&self) -> Result<(), StoreError> {
        let mut statement = self.sql("PRAGMA incremental_vacuum(128)")?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    }

    fn is_so(
        &self,
        statement: &'static str,
        params: &[(&str, &dyn rusqlite::ToSql)],
    ) -> Result<bool, StoreError> {
        Ok(self.sql(statement)?.query_row(params, |row| row.get(0))?)
    }

    fn numbers<T>(
        &self,
        statement: &'static str,
        params: &[(&str, &dyn rusqlite::ToSql)],
        number: fn(i64) -> T,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.sql(statement)?;
        let numbers = statement.query_map(params, |row| row.get(0).map(number))?;
        Ok(numbers.collect::<Result<_, _>>()?)
    }

    fn judged<T>(
        &self,
        statement: &'static str,
        params: &[(&str, &dyn rusqlite::ToSql)],
        number: fn(i64) -> T,
    ) -> Result<Vec<(T, bool)>, StoreError> {
        let mut statement = self.sql(statement)?;
        let judged = statement.query_map(params, |row| Ok((number(row.get(0)?), row.get(1)?)))?;
        Ok(judged.collect::<Result<_, _>>()?)
    }
}

fn milestone(row: &Row) -> rusqlite::Result<Milestone> {
    Ok(Milestone {
        clock: AgeClock {
            age_ms: row.get(0)?,
            at: Timestamp(row.get(1)?),
            up: Uptime(row.get(2)?),
            owed_ms: row.get(3)?,
        },
        job_id: JobId(row.get(4)?),
        event_seq: EventSeq(row.get(5)?),
        outbox_id: OutboxId(row.get(6)?),
        session_id: SessionId(row.get(7)?),
        audit_seq: row.get(8)?,
    })
}

fn root_job(row: &Row) -> rusqlite::Result<RootJob> {
    let since_up = Uptime(row.get(2)?);
    let ended_at: Option<i64> = row.get(1)?;
    Ok(RootJob {
        job_id: JobId(row.get(0)?),
        ended: ended_at.map(|at| (Timestamp(at), since_up)),
        kept: row.get(3)?,
        leaving: row.get(4)?,
    })
}
