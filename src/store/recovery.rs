//! What recovery looks for. Ids and times only: a row that cannot be read must not hide the others.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, Params, named_params};

use super::assignments::wanted;
use super::{StoreError, Tx};
use crate::domain::{JobId, StepId, Timestamp, Uptime, WorkerId};

pub const STATEMENTS: &[&str] = &[
    SILENT_WORKERS,
    SEEN_UNTIL,
    WAS_SEEN_UNTIL,
    ABANDONED_STEPS,
    FORGOTTEN_STEPS,
    UNACKNOWLEDGED_STEPS,
    OVERDUE_STEPS,
    OVERDUE_JOBS,
    UNMATCHED_STEPS,
    FIRST_SEEN,
    FIRST_FORGOTTEN,
    FIRST_UNACKNOWLEDGED,
    FIRST_OVERDUE_STEP,
    FIRST_OVERDUE_JOB,
    FIRST_UNMATCHED,
    FIRST_DELAYED,
    FIRST_NOT_BEFORE,
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

const WAS_SEEN_UNTIL: &str = "
    SELECT EXISTS (SELECT 1
                     FROM worker
                    WHERE worker_id = :worker_id AND session_id = :session_id AND state = 'active' AND seen_up <= :up)
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

const FIRST_SEEN: &str = "
    SELECT seen_up FROM worker WHERE state = 'active' AND seen_up > :after ORDER BY seen_up LIMIT 1
";

const FIRST_FORGOTTEN: &str = "
    SELECT since_up
      FROM step
     WHERE state = 'running' AND absent_beats >= 2 AND since_up > :after
     ORDER BY since_up
     LIMIT 1
";

const FIRST_UNACKNOWLEDGED: &str = "
    SELECT due_up FROM step WHERE state = 'assigned' AND due_up > :after ORDER BY due_up LIMIT 1
";

const FIRST_OVERDUE_STEP: &str = "
    SELECT due_up FROM step WHERE state <> 'assigned' AND due_up > :after ORDER BY due_up LIMIT 1
";

const FIRST_OVERDUE_JOB: &str = "
    SELECT due_up FROM job WHERE due_up > :after ORDER BY due_up LIMIT 1
";

const FIRST_UNMATCHED: &str = concat!(
    unmatched!(),
    "
    SELECT min(max(s.since_up, x.lost_up))
      FROM nobody_takes AS x
      CROSS JOIN step AS s ON s.requirement_id = x.requirement_id
     WHERE s.state = 'ready' AND s.not_before_up IS NULL AND max(s.since_up, x.lost_up) > :after"
);

const FIRST_DELAYED: &str = "
    SELECT not_before_up FROM step WHERE not_before_up > :after ORDER BY not_before_up LIMIT 1
";

const FIRST_NOT_BEFORE: &str = "
    SELECT not_before FROM job WHERE hold = 'not_before' AND not_before > :after ORDER BY not_before LIMIT 1
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
        // Rows may be behind the contacts in memory. With as many more rows as there are contacts, the first ones are still
        // among them when the contacts have been added.
        let contacts = self.unwritten_contacts();
        let more = u32::try_from(contacts.len()).unwrap_or(u32::MAX);
        let rows_max = limit.saturating_add(more);
        let mut silent = self.ids_and_times(SILENT_WORKERS, WorkerId, seen_up, rows_max)?;
        if !contacts.is_empty() {
            let heard_up: HashMap<WorkerId, Uptime> = contacts
                .iter()
                .map(|contact| (contact.worker_id, contact.at.up))
                .collect();
            for (worker_id, row_up) in &mut silent {
                if let Some(heard_up) = heard_up.get(worker_id) {
                    *row_up = (*row_up).max(*heard_up);
                }
            }
            silent.retain(|(_, heard_up)| *heard_up <= seen_up);
            silent.sort_by_key(|(worker_id, heard_up)| (*heard_up, *worker_id));
            silent.truncate(limit as usize);
        }
        Ok(silent)
    }

    /// How many active workers were last seen by then.
    pub fn workers_seen_until(&self, seen_up: Uptime) -> Result<u32, StoreError> {
        let params = named_params! {":up": seen_up.0};
        let mut count: u32 = self.sql(SEEN_UNTIL)?.query_row(params, |row| row.get(0))?;
        let contacts = self.unwritten_contacts().into_iter();
        for contact in contacts.filter(|contact| contact.at.up > seen_up) {
            let was_counted = self.sql(WAS_SEEN_UNTIL)?.query_row(
                named_params! {
                    ":worker_id": contact.worker_id.0,
                    ":session_id": contact.session_id.0,
                    ":up": seen_up.0,
                },
                |row| row.get(0),
            )?;
            if was_counted {
                count = count.saturating_sub(1);
            }
        }
        Ok(count)
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

    /// The first time after the given one at which an active worker was last seen, as the rows have it. Contacts that are only
    /// in memory are left out: with them the time could only be later.
    pub fn first_seen_after(&self, after: Uptime) -> Result<Option<Uptime>, StoreError> {
        self.first_after(FIRST_SEEN, after)
    }

    /// The first time after the given one at which a step started that two heartbeats in a row have left out.
    pub fn first_forgotten_after(&self, after: Uptime) -> Result<Option<Uptime>, StoreError> {
        self.first_after(FIRST_FORGOTTEN, after)
    }

    /// The first deadline of an assigned step after the given time.
    pub fn first_unacknowledged_after(&self, after: Uptime) -> Result<Option<Uptime>, StoreError> {
        self.first_after(FIRST_UNACKNOWLEDGED, after)
    }

    /// The first deadline of a running or suspended step after the given time.
    pub fn first_overdue_step_after(&self, after: Uptime) -> Result<Option<Uptime>, StoreError> {
        self.first_after(FIRST_OVERDUE_STEP, after)
    }

    /// The first deadline of a job after the given time.
    pub fn first_overdue_job_after(&self, after: Uptime) -> Result<Option<Uptime>, StoreError> {
        self.first_after(FIRST_OVERDUE_JOB, after)
    }

    /// The first time after the given one since when a ready step has no worker that could take it.
    pub fn first_unmatched_after(&self, after: Uptime) -> Result<Option<Uptime>, StoreError> {
        self.first_after(FIRST_UNMATCHED, after)
    }

    /// The first time after the given one at which a delayed step may go on.
    pub fn first_delayed_after(&self, after: Uptime) -> Result<Option<Uptime>, StoreError> {
        self.first_after(FIRST_DELAYED, after)
    }

    /// The first wall clock time after the given one at which a job may go on that waits for its time.
    pub fn first_not_before_after(
        &self,
        after: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let at = self.first_after(FIRST_NOT_BEFORE, Uptime(after.0))?;
        Ok(at.map(|at| Timestamp(at.0)))
    }

    fn first_after(
        &self,
        statement: &'static str,
        after: Uptime,
    ) -> Result<Option<Uptime>, StoreError> {
        let first: Option<Option<i64>> = self
            .sql(statement)?
            .query_row(named_params! {":after": after.0}, |row| row.get(0))
            .optional()?;
        Ok(first.flatten().map(Uptime))
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
