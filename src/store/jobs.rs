//! Jobs: made, counted down, started, ended; concurrency groups; idempotency keys.

use std::sync::atomic::Ordering;

use rusqlite::{Connection, OptionalExtension, Row, named_params};

use super::rows::{self, job_columns};
use super::{Changes, StoreError, Tx};
use crate::domain::idempotency::KeyOwner;
use crate::domain::job::{Hold, Job, JobMove, JobState, ParentStep, Source, Tally};
use crate::domain::reason::Reason;
use crate::domain::{
    DefinitionId, JobId, Json, Now, ScheduleId, SealId, StepId, Timestamp, Uptime,
};
use crate::metrics::Fact;
use crate::planted::{Bug, planted};

pub const STATEMENTS: &[&str] = &[
    INSERT_JOB,
    JOB,
    LATEST_JOB,
    LATEST_OF_TASK,
    LAST_OF_TASK,
    OPEN_JOBS,
    JOBS_IN_TROUBLE,
    RETRIES_OF,
    HOOKS_OF,
    JOBS_CHANGED,
    INSTALLATION,
    JOB_STANDING,
    TALLY,
    BLAME_STEP,
    START_JOB,
    END_JOB,
    HOLD_JOB,
    RELEASE_JOB,
    DUE_JOBS,
    MEMBERS_OF_GROUP,
    GROUP_RUNNING,
    NEXT_IN_GROUP,
    HAS_ANCESTOR_IN_GROUP,
    NOTE_CHANGE,
    IDEMPOTENT_JOB,
    REMEMBER_KEY,
    SAVE_SERVICE_CLOCK,
    SERVICE_CLOCK,
    LAST_CHANGE,
];

/// What an event must know of a job that it touches.
pub struct JobStanding {
    pub definition_id: DefinitionId,
    pub task_index: u32,
    pub started: bool,
    pub tally: Tally,
}

/// A job about to be made.
pub struct NewJob {
    pub definition_id: DefinitionId,
    pub task_index: u32,
    pub task: String,
    pub source: Source,
    pub input: Json,
    pub labels: Json,
    pub priority: i32,
    pub parent: Option<ParentStep>,
    pub depth: u32,
    pub retry_of: Option<JobId>,
    pub hook_of: Option<JobId>,
    pub schedule_id: Option<ScheduleId>,
    pub scheduled_for: Option<Timestamp>,
    pub not_before: Option<Timestamp>,
    pub concurrency_group: Option<String>,
    pub steps_open: u32,
    pub due_up: Option<Uptime>,
    pub seal_id: SealId,
}

/// A job that came of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelatedJob {
    pub job_id: JobId,
    pub task: String,
    pub state: JobState,
}

/// How a job went, in a few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastJob {
    pub job_id: JobId,
    pub state: JobState,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// That a job changed, and what it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedJob {
    pub job_id: JobId,
    pub task: String,
    pub state: JobState,
    pub change_seq: i64,
}

const INSERT_JOB: &str = "
    INSERT INTO job (definition_id, task_index, task, state, source, input, labels, priority, parent_step_id,
                     parent_attempt, depth, retry_of, hook_of, schedule_id, scheduled_for, not_before, concurrency_group, steps_open, change_seq, created_at,
                     since_up, due_up, seal_id)
    VALUES (:definition_id, :task_index, :task, 'pending', :source, :input, :labels, :priority, :parent_step_id,
            :parent_attempt, :depth, :retry_of, :hook_of, :schedule_id, :scheduled_for, :not_before, :concurrency_group, :steps_open, 0, :wall,
            :up, :due_up, :seal_id)
";

const JOB: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM job AS j WHERE j.job_id = :job_id AND j.leaving = 0"
);

const LATEST_JOB: &str = "
    SELECT max(job_id) FROM job WHERE parent_step_id IS NULL
";

const OPEN_JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM job AS j
      WHERE j.state = :state
      ORDER BY j.job_id DESC
      LIMIT :limit"
);

/// With the other indexes SQLite would go through every job that ever failed.
const JOBS_IN_TROUBLE: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM job AS j INDEXED BY job_in_trouble
      WHERE j.parent_step_id IS NULL
        AND (j.state = 'failed' OR (j.state = 'cancelled' AND j.reason IN ('job_timeout', 'queue_timeout')))
        AND j.ended_at >= :since
      ORDER BY j.ended_at DESC
      LIMIT :limit"
);

const RETRIES_OF: &str = "
    SELECT job_id, task, state FROM job WHERE retry_of = :job_id ORDER BY job_id LIMIT :limit
";

const HOOKS_OF: &str = "
    SELECT job_id, task, state FROM job WHERE hook_of = :job_id ORDER BY job_id LIMIT :limit
";

/// By state, so that the index finds them however long the history is.
const LAST_OF_TASK: &str = "
    SELECT job_id, created_at, started_at, ended_at
      FROM job
     WHERE task = :task AND state = :state
     ORDER BY job_id DESC
     LIMIT :limit
";

const LATEST_OF_TASK: &str = "
    SELECT max(job_id) FROM job WHERE task = :task AND state = :state
";

const JOBS_CHANGED: &str = "
    SELECT job_id, task, state, change_seq
      FROM job
     WHERE (change_seq, job_id) > (:after, :after_job)
     ORDER BY change_seq, job_id
     LIMIT :limit
";

const INSTALLATION: &str = "
    SELECT installation_key FROM server WHERE only_row = 1
";

const JOB_STANDING: &str = "
    SELECT definition_id, task_index, started_at IS NOT NULL, steps_open, steps_failed, steps_cancelled
      FROM job
     WHERE job_id = :job_id
";

const TALLY: &str = "
    UPDATE job
       SET steps_open = :open, steps_failed = :failed, steps_cancelled = :cancelled
     WHERE job_id     = :job_id
       AND ended_at IS NULL
       AND steps_open = :was_open
";

/// Apart from the tally, since a reference is checked whenever it is set.
const BLAME_STEP: &str = "
    UPDATE job
       SET failed_step_id = :step_id
     WHERE job_id = :job_id
       AND failed_step_id IS NULL
";

const START_JOB: &str = "
    UPDATE job
       SET state = 'running', started_at = :wall, since_up = :up, due_up = :due_up
     WHERE job_id = :job_id
       AND state  = 'pending'
";

const END_JOB: &str = "
    UPDATE job
       SET state = :next, reason = :reason, message = :message, ended_at = :wall, since_up = :up, due_up = NULL,
           hold = NULL
     WHERE job_id     = :job_id
       AND state      = :from
       AND steps_open = 0
";

const HOLD_JOB: &str = "
    UPDATE job
       SET hold = :hold, due_up = coalesce(due_up, :due_up)
     WHERE job_id = :job_id
       AND state  = 'pending'
";

/// Waiting that the submitter asked for is not waiting in a queue: its time runs from the release.
const RELEASE_JOB: &str = "
    UPDATE job
       SET hold = NULL, due_up = coalesce(due_up, :due_up)
     WHERE job_id = :job_id
       AND state  = 'pending'
       AND hold   = :hold
";

const DUE_JOBS: &str = "
    SELECT job_id
      FROM job
     WHERE hold = 'not_before' AND not_before <= :wall
     ORDER BY not_before, job_id
     LIMIT :limit
";

/// Bounded by the limit of the group; those that wait for it are not looked at.
const MEMBERS_OF_GROUP: &str = "
    SELECT count(*) FROM job WHERE concurrency_group = :group AND ended_at IS NULL AND hold IS NULL
";

/// Bounded by the limit of the group.
const GROUP_RUNNING: &str = "
    SELECT job_id
      FROM job
     WHERE concurrency_group = :group AND ended_at IS NULL AND hold IS NULL
     ORDER BY job_id
";

const NEXT_IN_GROUP: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM job AS j
      WHERE j.concurrency_group = :group AND j.ended_at IS NULL AND j.hold = 'concurrency'
      ORDER BY j.priority DESC, j.job_id
      LIMIT 1"
);

/// A child that waited for its own ancestor's place would wait for ever. CROSS JOIN fixes the order: upwards, by id.
const HAS_ANCESTOR_IN_GROUP: &str = "
    WITH RECURSIVE ancestor (job_id) AS (
        SELECT s.job_id FROM step AS s WHERE s.step_id = :parent_step_id
        UNION ALL
        SELECT s.job_id
          FROM ancestor AS a
          CROSS JOIN job AS j ON j.job_id = a.job_id
          CROSS JOIN step AS s ON s.step_id = j.parent_step_id)
    SELECT EXISTS (
        SELECT 1
          FROM ancestor AS a
          CROSS JOIN job AS j ON j.job_id = a.job_id
         WHERE j.concurrency_group = :group AND j.hold IS NULL)
";

const NOTE_CHANGE: &str = "
    UPDATE job SET change_seq = :change_seq WHERE job_id = :job_id
";

const IDEMPOTENT_JOB: &str = "
    SELECT job_id, request_hash FROM idempotency WHERE idempotency_key = :key AND owner = :owner
";

const REMEMBER_KEY: &str = "
    INSERT INTO idempotency (idempotency_key, owner, request_hash, job_id, created_at)
    VALUES (:key, :owner, :request_hash, :job_id, :wall)
";

const SAVE_SERVICE_CLOCK: &str = "
    UPDATE server SET service_clock_up = max(service_clock_up, :up) WHERE only_row = 1
";

const SERVICE_CLOCK: &str = "
    SELECT service_clock_up FROM server WHERE only_row = 1
";

const LAST_CHANGE: &str = "
    SELECT max(coalesce((SELECT max(change_seq) FROM job), 0), change_seq) FROM server WHERE only_row = 1
";

/// Where the change sequence goes on after a start.
pub fn change_seq_max(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row(LAST_CHANGE, [], |row| row.get(0))
}

/// Where the service clock goes on after a start.
pub fn service_clock(connection: &Connection) -> rusqlite::Result<Uptime> {
    connection.query_row(SERVICE_CLOCK, [], |row| row.get(0).map(Uptime))
}

impl Tx<'_> {
    /// The last change of a job.
    pub fn last_change(&self) -> Result<i64, StoreError> {
        Ok(self.sql(LAST_CHANGE)?.query_row([], |row| row.get(0))?)
    }

    pub fn insert_job(&self, job: &NewJob, now: Now) -> Result<JobId, StoreError> {
        self.sql(INSERT_JOB)?.execute(named_params! {
            ":definition_id": job.definition_id.0,
            ":task_index": job.task_index,
            ":task": job.task,
            ":source": job.source.as_str(),
            ":input": job.input.0,
            ":labels": job.labels.0,
            ":priority": job.priority,
            ":parent_step_id": job.parent.map(|parent| parent.step_id.0),
            ":parent_attempt": job.parent.map(|parent| parent.attempt),
            ":depth": job.depth,
            ":retry_of": job.retry_of.map(|id| id.0),
            ":hook_of": job.hook_of.map(|id| id.0),
            ":schedule_id": job.schedule_id.map(|id| id.0),
            ":scheduled_for": job.scheduled_for.map(|at| at.0),
            ":not_before": job.not_before.map(|at| at.0),
            ":concurrency_group": job.concurrency_group,
            ":steps_open": job.steps_open,
            ":wall": now.wall.0,
            ":up": now.up.0,
            ":due_up": job.due_up.map(|up| up.0),
            ":seal_id": job.seal_id.0,
        })?;
        let job_id = JobId(self.connection.last_insert_rowid());
        self.note(Fact::JobCreated(job.source));
        self.touch_job(job_id);
        Ok(job_id)
    }

    pub fn job(&self, job_id: JobId) -> Result<Option<Job>, StoreError> {
        self.one_job(JOB, named_params! {":job_id": job_id.0})
    }

    /// The newest job that is nobody's child.
    pub fn latest_job(&self) -> Result<Option<JobId>, StoreError> {
        let latest: Option<i64> = self.sql(LATEST_JOB)?.query_row([], |row| row.get(0))?;
        Ok(latest.map(JobId))
    }

    /// The newest job of a task that is in this state.
    pub fn latest_of_task(&self, task: &str, state: JobState) -> Result<Option<JobId>, StoreError> {
        let params = named_params! {":task": task, ":state": state.as_str()};
        let mut statement = self.sql(LATEST_OF_TASK)?;
        let latest: Option<i64> = statement.query_row(params, |row| row.get(0))?;
        Ok(latest.map(JobId))
    }

    /// The newest jobs in a state that is not terminal.
    pub fn open_jobs(&self, state: JobState, limit: u32) -> Result<Vec<Job>, StoreError> {
        let params = named_params! {":state": state.as_str(), ":limit": limit};
        self.many_jobs(OPEN_JOBS, params)
    }

    /// Those that ended since then by nobody's wish and are nobody's child, the last first.
    pub fn jobs_in_trouble(&self, since: Timestamp, limit: u32) -> Result<Vec<Job>, StoreError> {
        self.many_jobs(
            JOBS_IN_TROUBLE,
            named_params! {":since": since.0, ":limit": limit},
        )
    }

    fn many_jobs(
        &self,
        statement: &'static str,
        params: &[(&str, &dyn rusqlite::ToSql)],
    ) -> Result<Vec<Job>, StoreError> {
        let mut statement = self.sql(statement)?;
        let mut rows = statement.query(params)?;
        let mut jobs = Vec::new();
        while let Some(row) = rows.next()? {
            jobs.push(rows::job(row)?);
        }
        Ok(jobs)
    }

    /// The jobs in which this one was tried again, the first of them.
    pub fn retries_of(&self, job_id: JobId, limit: u32) -> Result<Vec<RelatedJob>, StoreError> {
        self.related(RETRIES_OF, job_id, limit)
    }

    /// The jobs that its hooks made, the first of them.
    pub fn hooks_of(&self, job_id: JobId, limit: u32) -> Result<Vec<RelatedJob>, StoreError> {
        self.related(HOOKS_OF, job_id, limit)
    }

    fn related(
        &self,
        statement: &'static str,
        job_id: JobId,
        limit: u32,
    ) -> Result<Vec<RelatedJob>, StoreError> {
        let mut statement = self.sql(statement)?;
        let mut rows = statement.query(named_params! {":job_id": job_id.0, ":limit": limit})?;
        let mut related = Vec::new();
        while let Some(row) = rows.next()? {
            related.push(RelatedJob {
                job_id: JobId(row.get(0)?),
                task: row.get(1)?,
                state: rows::word(row, 2, JobState::from_word, "the state of a job")?,
            });
        }
        Ok(related)
    }

    /// How the newest jobs of a task went, newest first.
    pub fn last_of_task(&self, task: &str, limit: u32) -> Result<Vec<PastJob>, StoreError> {
        let mut jobs = Vec::new();
        for &state in JobState::ALL {
            let mut statement = self.sql(LAST_OF_TASK)?;
            let params = named_params! {":task": task, ":state": state.as_str(), ":limit": limit};
            let mut rows = statement.query(params)?;
            while let Some(row) = rows.next()? {
                jobs.push(PastJob {
                    job_id: JobId(row.get("job_id")?),
                    state,
                    created_at: Timestamp(row.get("created_at")?),
                    started_at: row.get::<_, Option<i64>>("started_at")?.map(Timestamp),
                    ended_at: row.get::<_, Option<i64>>("ended_at")?.map(Timestamp),
                });
            }
        }
        jobs.sort_by_key(|job| std::cmp::Reverse(job.job_id));
        jobs.truncate(limit as usize);
        Ok(jobs)
    }

    /// Jobs that changed after the given change of the given job, each as it is now.
    pub fn jobs_changed(
        &self,
        after: i64,
        after_job: JobId,
        limit: u32,
    ) -> Result<Vec<ChangedJob>, StoreError> {
        let mut statement = self.sql(JOBS_CHANGED)?;
        let params = named_params! {":after": after, ":after_job": after_job.0, ":limit": limit};
        let mut rows = statement.query(params)?;
        let mut changed = Vec::new();
        while let Some(row) = rows.next()? {
            changed.push(ChangedJob {
                job_id: JobId(row.get(0)?),
                task: row.get(1)?,
                state: rows::word(row, 2, JobState::from_word, "the state of a job")?,
                change_seq: row.get(3)?,
            });
        }
        Ok(changed)
    }

    /// What tells this installation from others.
    pub fn installation_key(&self) -> Result<String, StoreError> {
        Ok(self.sql(INSTALLATION)?.query_row([], |row| row.get(0))?)
    }

    pub fn job_standing(&self, job_id: JobId) -> Result<Option<JobStanding>, StoreError> {
        let mut statement = self.sql(JOB_STANDING)?;
        Ok(statement
            .query_row(named_params! {":job_id": job_id.0}, |row| {
                Ok(JobStanding {
                    definition_id: DefinitionId(row.get(0)?),
                    task_index: row.get(1)?,
                    started: row.get(2)?,
                    tally: Tally {
                        open: row.get(3)?,
                        failed: row.get(4)?,
                        cancelled: row.get(5)?,
                    },
                })
            })
            .optional()?)
    }

    /// Counts what an event changed. `false`: the job has ended, and its counters with it, or they are not what they were.
    pub fn tally(
        &self,
        job_id: JobId,
        was: Tally,
        tally: Tally,
        failed_step_id: Option<StepId>,
    ) -> Result<bool, StoreError> {
        let changed = self.sql(TALLY)?.execute(named_params! {
            ":job_id": job_id.0,
            ":was_open": was.open,
            ":open": tally.open,
            ":failed": tally.failed,
            ":cancelled": tally.cancelled,
        })?;
        if let Some(step_id) = failed_step_id.filter(|_| changed == 1) {
            self.sql(BLAME_STEP)?
                .execute(named_params! {":job_id": job_id.0, ":step_id": step_id.0})?;
        }
        self.touch_job(job_id);
        Ok(changed == 1)
    }

    /// The job's first step started: from now on its running time counts.
    pub fn start_job(
        &self,
        job_id: JobId,
        due_up: Option<Uptime>,
        now: Now,
    ) -> Result<bool, StoreError> {
        let changed = self.sql(START_JOB)?.execute(named_params! {
            ":job_id": job_id.0,
            ":due_up": due_up.map(|up| up.0),
            ":wall": now.wall.0,
            ":up": now.up.0,
        })?;
        self.touch_job(job_id);
        Ok(changed == 1)
    }

    /// Makes a job terminal, if it is still where it was read.
    pub fn end_job(
        &self,
        job: &Job,
        job_move: JobMove,
        why: Option<(Reason, &str)>,
        now: Now,
    ) -> Result<bool, StoreError> {
        let next = job
            .state
            .after(job_move)
            .expect("the verb has checked that the move is legal");
        assert!(next.is_terminal() && (next == JobState::Completed) == why.is_none());
        let changed = self.sql(END_JOB)?.execute(named_params! {
            ":job_id": job.job_id.0,
            ":from": job.state.as_str(),
            ":next": next.as_str(),
            ":reason": why.map(|(reason, _)| reason.as_str()),
            ":message": why.map(|(_, message)| message),
            ":wall": now.wall.0,
            ":up": now.up.0,
        })?;
        if changed == 1 {
            self.note(Fact::JobFinished(next, why.map(|(reason, _)| reason)));
        }
        self.touch_job(job.job_id);
        Ok(changed == 1)
    }

    pub fn hold_job(
        &self,
        job_id: JobId,
        hold: Hold,
        due_up: Option<Uptime>,
    ) -> Result<bool, StoreError> {
        let changed = self.sql(HOLD_JOB)?.execute(named_params! {
            ":job_id": job_id.0,
            ":hold": hold.as_str(),
            ":due_up": due_up.map(|up| up.0),
        })?;
        self.touch_job(job_id);
        Ok(changed == 1)
    }

    /// Lets go of a job that was held for this reason.
    pub fn release_job(
        &self,
        job_id: JobId,
        hold: Hold,
        due_up: Option<Uptime>,
    ) -> Result<bool, StoreError> {
        let changed = self.sql(RELEASE_JOB)?.execute(named_params! {
            ":job_id": job_id.0,
            ":hold": hold.as_str(),
            ":due_up": due_up.map(|up| up.0),
        })?;
        self.touch_job(job_id);
        Ok(changed == 1)
    }

    /// Jobs whose `not_before` has come.
    pub fn due_jobs(&self, now: Now, limit: u32) -> Result<Vec<JobId>, StoreError> {
        let params = named_params! {":wall": now.wall.0, ":limit": limit};
        self.ids(DUE_JOBS, JobId, params)
    }

    /// How many jobs are in a group, not counting those that wait for it.
    pub fn members_of_group(&self, group: &str) -> Result<u32, StoreError> {
        Ok(self
            .sql(MEMBERS_OF_GROUP)?
            .query_row(named_params! {":group": group}, |row| row.get(0))?)
    }

    /// The jobs that are in a group, not those that wait for it.
    pub fn group_running(&self, group: &str) -> Result<Vec<JobId>, StoreError> {
        let mut statement = self.sql(GROUP_RUNNING)?;
        let jobs = statement.query_map(named_params! {":group": group}, |row| row.get(0))?;
        Ok(jobs
            .map(|job_id| job_id.map(JobId))
            .collect::<Result<_, _>>()?)
    }

    pub fn next_in_group(&self, group: &str) -> Result<Option<Job>, StoreError> {
        self.one_job(NEXT_IN_GROUP, named_params! {":group": group})
    }

    /// Whether a job above this parent step is in the group already.
    pub fn has_ancestor_in_group(
        &self,
        parent: ParentStep,
        group: &str,
    ) -> Result<bool, StoreError> {
        Ok(self.sql(HAS_ANCESTOR_IN_GROUP)?.query_row(
            named_params! {":parent_step_id": parent.step_id.0, ":group": group},
            |row| row.get(0),
        )?)
    }

    /// The job that a key of this owner stands for, and the hash of the request that made it. A key that belongs to nobody in
    /// particular stands for its job whoever asks.
    pub fn idempotent_job(
        &self,
        owner: KeyOwner,
        key: &str,
    ) -> Result<Option<(JobId, String)>, StoreError> {
        let mut statement = self.sql(IDEMPOTENT_JOB)?;
        let mut find = |owner: KeyOwner| {
            let params = named_params! {":key": key, ":owner": owner.to_string()};
            let read = |row: &Row| Ok((JobId(row.get(0)?), row.get(1)?));
            statement.query_row(params, read).optional()
        };
        let own = find(owner)?;
        Ok(match own {
            None if owner != KeyOwner::Anyone => find(KeyOwner::Anyone)?,
            own => own,
        })
    }

    pub fn remember_key(
        &self,
        owner: KeyOwner,
        key: &str,
        request_hash: &str,
        job_id: JobId,
        now: Now,
    ) -> Result<(), StoreError> {
        self.sql(REMEMBER_KEY)?.execute(named_params! {
            ":key": key,
            ":owner": owner.to_string(),
            ":request_hash": request_hash,
            ":job_id": job_id.0,
            ":wall": now.wall.0,
        })?;
        Ok(())
    }

    /// Written whether or not it has moved: whoever asks wants to know whether anything can be written.
    pub fn save_service_clock(&self, up: Uptime) -> Result<(), StoreError> {
        self.sql(SAVE_SERVICE_CLOCK)?
            .execute(named_params! {":up": up.0})?;
        Ok(())
    }

    /// Last in a group of calls: the service clock, and one new number for all jobs that the group touched.
    pub(super) fn seal(&self, changes: &Changes) -> Result<(), StoreError> {
        let saved_up = Uptime(self.shared.service_clock_up.load(Ordering::Relaxed));
        if let Some(up) = changes
            .up
            .filter(|up| *up > saved_up && !planted(Bug::ClockNotSaved))
        {
            self.save_service_clock(up)?;
        }
        if changes.jobs.is_empty() {
            return Ok(());
        }
        let change_seq = self.shared.change_seq.fetch_add(1, Ordering::Relaxed) + 1;
        let mut statement = self.sql_repeated(NOTE_CHANGE)?;
        for job_id in &changes.jobs {
            statement.execute(named_params! {":job_id": job_id.0, ":change_seq": change_seq})?;
        }
        Ok(())
    }

    fn one_job(
        &self,
        statement: &'static str,
        params: &[(&str, &dyn rusqlite::ToSql)],
    ) -> Result<Option<Job>, StoreError> {
        let mut statement = self.sql(statement)?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(rows::job).transpose()
    }
}
