//! What recovery looks for. Ids and times only: a row that cannot be read must not hide the others.

use rusqlite::{OptionalExtension, Params, named_params};

use super::assignments::wanted;
use super::{StoreError, Tx};
use crate::domain::{JobId, StepId, Timestamp, Uptime, WorkerId};

pub const STATEMENTS: &[&str] = &[
    SILENT_WORKERS,
    SEEN_UNTIL,
    ABANDONED_STEPS,
    FORGOTTEN_STEPS,
    UNACKNOWLEDGED_STEPS,
    OVERDUE_STEPS,
    OVERDUE_JOBS,
    UNMATCHED_STEPS,
    NEXT_UNMATCHED,
    NEXT_DELAYED,
    NEXT_NOT_BEFORE,
    IS_TAKEN_CARE_OF,
    LOST_UP,
];

const SILENT_WORKERS: &str = "
    SELECT worker_id, seen_up
      FROM worker
     WHERE state = 'active' AND seen_up <= :up
     ORDER BY seen_up, worker_id
     LIMIT :limit
";

const SEEN_UNTIL: &str = "
    SELECT count(*) FROM worker WHERE state = 'active' AND seen_up <= :up
";

/// Goes from one session that holds something to the next, so it costs as much as workers are busy, however much they do.
const ABANDONED_STEPS: &str = "
    WITH RECURSIVE holder (session_id) AS (
        SELECT min(session_id) FROM step WHERE ended_at IS NULL AND session_id IS NOT NULL
        UNION ALL
        SELECT (SELECT min(s.session_id) FROM step AS s WHERE s.ended_at IS NULL AND s.session_id > h.session_id)
          FROM holder AS h
         WHERE h.session_id IS NOT NULL)
    SELECT s.step_id
      FROM holder AS h
      LEFT JOIN session AS n ON n.session_id = h.session_id
      LEFT JOIN worker AS w ON w.worker_id = n.worker_id AND w.session_id = h.session_id AND w.state = 'active'
      CROSS JOIN step AS s ON s.session_id = h.session_id AND s.ended_at IS NULL
     WHERE h.session_id IS NOT NULL AND w.worker_id IS NULL
     LIMIT :limit
";

const FORGOTTEN_STEPS: &str = "
    SELECT step_id, since_up
      FROM step
     WHERE state = 'running' AND absent_beats >= 2 AND since_up <= :up
     ORDER BY since_up
     LIMIT :limit
";

const UNACKNOWLEDGED_STEPS: &str = "
    SELECT step_id, due_up FROM step WHERE state = 'assigned' AND due_up <= :up ORDER BY due_up LIMIT :limit
";

const OVERDUE_STEPS: &str = "
    SELECT step_id, due_up FROM step WHERE state <> 'assigned' AND due_up <= :up ORDER BY due_up LIMIT :limit
";

const OVERDUE_JOBS: &str = "
    SELECT job_id, due_up, steps_open FROM job WHERE due_up <= :up ORDER BY due_up LIMIT :limit
";

/// The requirements that steps wait for, and whether nobody takes steps of them.
macro_rules! unmatched {
    () => {
        concat!(
            wanted!(),
            ",
    nobody_takes (requirement_id, lost_up) AS (
        SELECT r.requirement_id, r.lost_up
          FROM wanted AS d
          CROSS JOIN requirement AS r ON r.requirement_id = d.requirement_id
         WHERE r.unmatched = 'fail'
           AND NOT EXISTS (SELECT 1
                             FROM capability AS c
                             CROSS JOIN worker AS w ON w.worker_id = c.worker_id
                            WHERE c.requirement_id = r.requirement_id
                              AND w.state = 'active' AND w.draining = 0 AND w.paused = 0))"
        )
    };
}

/// Those that nobody takes are failed soon, so they are few, however many others are ready.
const UNMATCHED_STEPS: &str = concat!(
    unmatched!(),
    "
    SELECT s.step_id
      FROM nobody_takes AS x
      CROSS JOIN step AS s ON s.requirement_id = x.requirement_id
     WHERE s.state = 'ready' AND s.not_before_up IS NULL AND max(s.since_up, x.lost_up) <= :up
     LIMIT :limit"
);

const NEXT_UNMATCHED: &str = concat!(
    unmatched!(),
    "
    SELECT min(max(s.since_up, x.lost_up))
      FROM nobody_takes AS x
      CROSS JOIN step AS s ON s.requirement_id = x.requirement_id
     WHERE s.state = 'ready' AND s.not_before_up IS NULL"
);

const NEXT_DELAYED: &str = "
    SELECT min(not_before_up) FROM step WHERE not_before_up IS NOT NULL
";

const NEXT_NOT_BEFORE: &str = "
    SELECT min(not_before) FROM job WHERE hold = 'not_before'
";

const IS_TAKEN_CARE_OF: &str = "
    SELECT EXISTS (SELECT 1
                     FROM step AS s
                     CROSS JOIN capability AS c ON c.requirement_id = s.requirement_id
                     CROSS JOIN worker AS w ON w.worker_id = c.worker_id
                    WHERE s.step_id = :step_id AND w.state = 'active' AND w.draining = 0 AND w.paused = 0)
";

const LOST_UP: &str = "
    SELECT r.lost_up
      FROM step AS s
      JOIN requirement AS r ON r.requirement_id = s.requirement_id
     WHERE s.step_id = :step_id AND r.unmatched = 'fail'
";

impl Tx<'_> {
    /// Active workers that were last seen by then, the longest silent first.
    pub fn silent_workers(
        &self,
        seen_up: Uptime,
        limit: u32,
    ) -> Result<Vec<(WorkerId, Uptime)>, StoreError> {
        self.ids_and_times(SILENT_WORKERS, WorkerId, seen_up, limit)
    }

    /// How many active workers were last seen by then.
    pub fn workers_seen_until(&self, seen_up: Uptime) -> Result<u32, StoreError> {
        let params = named_params! {":up": seen_up.0};
        Ok(self.sql(SEEN_UNTIL)?.query_row(params, |row| row.get(0))?)
    }

    /// Steps in the hands of a session that is not the current one of an active worker.
    pub fn abandoned_steps(&self, limit: u32) -> Result<Vec<StepId>, StoreError> {
        self.ids(ABANDONED_STEPS, StepId, named_params! {":limit": limit})
    }

    /// Running steps that two heartbeats in a row have left out, since when they run.
    pub fn forgotten_steps(
        &self,
        since_up: Uptime,
        limit: u32,
    ) -> Result<Vec<(StepId, Uptime)>, StoreError> {
        self.ids_and_times(FORGOTTEN_STEPS, StepId, since_up, limit)
    }

    /// Assigned steps whose deadline comes by then.
    pub fn unacknowledged_steps(
        &self,
        due_up: Uptime,
        limit: u32,
    ) -> Result<Vec<(StepId, Uptime)>, StoreError> {
        self.ids_and_times(UNACKNOWLEDGED_STEPS, StepId, due_up, limit)
    }

    /// Running or suspended steps whose time is up by then.
    pub fn overdue_steps(
        &self,
        due_up: Uptime,
        limit: u32,
    ) -> Result<Vec<(StepId, Uptime)>, StoreError> {
        self.ids_and_times(OVERDUE_STEPS, StepId, due_up, limit)
    }

    /// Jobs whose time is up by then, whether they wait or run, and how many of their steps are open.
    pub fn overdue_jobs(
        &self,
        due_up: Uptime,
        limit: u32,
    ) -> Result<Vec<(JobId, Uptime, u32)>, StoreError> {
        let mut statement = self.sql(OVERDUE_JOBS)?;
        let found = statement
            .query_map(named_params! {":up": due_up.0, ":limit": limit}, |row| {
                Ok((JobId(row.get(0)?), Uptime(row.get(1)?), row.get(2)?))
            })?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Ready steps that nobody takes, and has taken since before then.
    pub fn unmatched_steps(&self, since_up: Uptime, limit: u32) -> Result<Vec<StepId>, StoreError> {
        let params = named_params! {":up": since_up.0, ":limit": limit};
        self.ids(UNMATCHED_STEPS, StepId, params)
    }

    /// Since when the first of the steps that nobody takes is without a taker.
    pub fn next_unmatched(&self) -> Result<Option<Uptime>, StoreError> {
        let since: Option<i64> = self.sql(NEXT_UNMATCHED)?.query_row([], |row| row.get(0))?;
        Ok(since.map(Uptime))
    }

    /// When the first delayed step may go on.
    pub fn next_delayed(&self) -> Result<Option<Uptime>, StoreError> {
        let up: Option<i64> = self.sql(NEXT_DELAYED)?.query_row([], |row| row.get(0))?;
        Ok(up.map(Uptime))
    }

    /// When the first job that waits for its time may go on.
    pub fn next_not_before(&self) -> Result<Option<Timestamp>, StoreError> {
        let at: Option<i64> = self.sql(NEXT_NOT_BEFORE)?.query_row([], |row| row.get(0))?;
        Ok(at.map(Timestamp))
    }

    /// Whether some worker that takes steps has all the tags of this one.
    pub fn is_taken_care_of(&self, step_id: StepId) -> Result<bool, StoreError> {
        let params = named_params! {":step_id": step_id.0};
        Ok(self
            .sql(IS_TAKEN_CARE_OF)?
            .query_row(params, |row| row.get(0))?)
    }

    /// When a worker with the tags of this step last stopped taking steps. `None`: it may wait for one for ever.
    pub fn lost_up(&self, step_id: StepId) -> Result<Option<Uptime>, StoreError> {
        let up: Option<i64> = self
            .sql(LOST_UP)?
            .query_row(named_params! {":step_id": step_id.0}, |row| row.get(0))
            .optional()?;
        Ok(up.map(Uptime))
    }

    pub(super) fn ids<T>(
        &self,
        statement: &'static str,
        id: fn(i64) -> T,
        params: impl Params,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.sql(statement)?;
        let ids = statement.query_map(params, |row| Ok(id(row.get(0)?)))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    fn ids_and_times<T>(
        &self,
        statement: &'static str,
        id: fn(i64) -> T,
        up: Uptime,
        limit: u32,
    ) -> Result<Vec<(T, Uptime)>, StoreError> {
        let mut statement = self.sql(statement)?;
        let found = statement.query_map(named_params! {":up": up.0, ":limit": limit}, |row| {
            Ok((id(row.get(0)?), Uptime(row.get(1)?)))
        })?;
        Ok(found.collect::<Result<_, _>>()?)
    }
}
