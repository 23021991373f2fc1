//! Steps: made, decided, moved, ended. Every move names the state and the attempt that it leaves; `false` means someone was first.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, named_params, params};

use super::rows::{self, step_columns, step_head_columns};
use super::{StoreError, Tx};
use crate::domain::depends::Outcome;
use crate::domain::reason::Reason;
use crate::domain::step::{self, Step, StepHead, StepKind, StepMove, StepState};
use crate::domain::{JobId, Json, Now, RequirementId, StepId, Uptime, WorkerId};
use crate::metrics::{Assignment, Fact};
use crate::planted::{Bug, planted};

pub const STATEMENTS: &[&str] = &[
    INSERT_STEP,
    CARRY_STEP,
    SKIP_STEP,
    FIRST_CANCELLED,
    STEP,
    STEP_HEAD,
    STEP_AT,
    STEPS_OF_JOB,
    OUTCOME_AT,
    DEPENDENT,
    DEPENDENCY_ENDED,
    RELEASE_ONLY_DEPENDENT,
    RELEASE_STEP,
    END_STEP,
    BACK_TO_READY,
    POSTPONE_STEP,
    FAILED_STEPS,
    SUSPEND_STEP,
    DISPATCH_STEP,
    DUE_RETRIES,
    WAKE_STEP,
    CANCEL_STEPS,
];

/// A step about to be made: pending, or ready at once.
pub struct NewStep {
    pub job_id: JobId,
    pub position: u32,
    pub item: Option<u32>,
    pub kind: StepKind,
    pub requirement_id: Option<RequirementId>,
    pub priority: i32,
    pub ready: bool,
    pub waiting_on: u32,
    pub origin_step_id: Option<StepId>,
    pub item_value: Option<Json>,
}

/// How a step ends.
#[derive(Debug, Clone)]
pub struct Ending {
    pub step_move: StepMove,
    pub reason: Option<Reason>,
    pub message: Option<String>,
    pub exit_code: Option<i32>,
    pub output: Option<Json>,
    /// For the event that tells of it.
    pub data: Option<Json>,
}

impl Ending {
    pub fn completed(exit_code: Option<i32>, output: Option<Json>) -> Ending {
        Ending {
            step_move: StepMove::Complete,
            reason: None,
            message: None,
            exit_code,
            output,
            data: None,
        }
    }

    pub fn failed(reason: Reason, message: String) -> Ending {
        Ending {
            step_move: StepMove::Fail,
            reason: Some(reason),
            message: Some(message),
            exit_code: None,
            output: None,
            data: None,
        }
    }
}

const INSERT_STEP: &str = "
    INSERT INTO step (job_id, position, item, kind, state, requirement_id, priority, waiting_on, origin_step_id,
                      item_value, since_up, ready_at, queued_up)
    VALUES (:job_id, :position, :item, :kind, :state, :requirement_id, :priority, :waiting_on, :origin_step_id,
            :item_value, :up, :ready_at, :queued_up)
";

/// A step of a former job stands in the new one as it ended there. Row by row: an INSERT … SELECT into a table that
/// others refer to makes SQLite read all of those for every row.
const CARRY_STEP: &str = "
    INSERT INTO step (job_id, position, item, kind, state, reason, message, requirement_id, priority, waiting_on,
                      child_job_id, origin_step_id, exit_code, output, item_value, ended_at, since_up)
    VALUES (:job_id, :position, :item, :kind, :state, :reason, :message, :requirement_id, :priority, 0,
            :child_job_id, :origin_step_id, :exit_code, :output, :item_value, :ended_at, :up)
";

const SKIP_STEP: &str = "
    UPDATE step
       SET state = 'skipped', reason = :reason, message = :message, ended_at = :wall, since_up = :up
     WHERE step_id = :step_id
       AND state   = 'pending'
";

const FIRST_CANCELLED: &str = "
    SELECT position
      FROM step
     WHERE job_id = :job_id AND item = -1 AND state = 'cancelled'
     ORDER BY position
     LIMIT 1
";

const STEP: &str = concat!(
    "SELECT ",
    step_columns!(),
    " FROM step AS s WHERE s.step_id = :step_id"
);

const STEP_HEAD: &str = concat!(
    "SELECT ",
    step_head_columns!(),
    " FROM step AS s WHERE s.step_id = ?1"
);

const STEP_AT: &str = concat!(
    "SELECT ",
    step_columns!(),
    " FROM step AS s WHERE s.job_id = :job_id AND s.position = :position AND s.item = :item"
);

/// Bounded by the limits on steps and loop items; pages come with the API.
const STEPS_OF_JOB: &str = concat!(
    "SELECT ",
    step_columns!(),
    " FROM step AS s WHERE s.job_id = :job_id ORDER BY s.position, s.item"
);

const OUTCOME_AT: &str = "
    SELECT state, reason FROM step WHERE job_id = :job_id AND position = :position AND item = -1
";

const DEPENDENT: &str = "
    SELECT step_id, waiting_on
      FROM step
     WHERE job_id = :job_id AND position = :position AND item = -1 AND state = 'pending'
";

const DEPENDENCY_ENDED: &str = "
    UPDATE step
       SET waiting_on = :waiting_on - 1
     WHERE step_id    = :step_id
       AND state      = 'pending'
       AND waiting_on = :waiting_on
";

/// For a step with a single dependency, whose end decides it at once. Bound by position, as all of a step's life.
const RELEASE_ONLY_DEPENDENT: &str = "
    UPDATE step
       SET state = 'ready', waiting_on = 0, ready_at = ?3, queued_up = ?4, since_up = ?4
     WHERE job_id = ?1 AND position = ?2 AND item = -1
       AND state      = 'pending'
       AND waiting_on = 1
";

const RELEASE_STEP: &str = "
    UPDATE step
       SET state = 'ready', ready_at = :wall, queued_up = :up, since_up = :up
     WHERE step_id    = :step_id
       AND state      = 'pending'
       AND waiting_on = 0
";

const END_STEP: &str = "
    UPDATE step
       SET state = ?4, reason = ?5, message = ?6, exit_code = ?7, output = ?8,
           ended_at = ?9, since_up = ?10, due_up = NULL, not_before_up = NULL
     WHERE step_id = ?1
       AND state   = ?2
       AND attempt = ?3
";

/// `queued_up` is kept when an assignment comes back, and new when a try failed.
const BACK_TO_READY: &str = "
    UPDATE step
       SET state = 'ready', worker_id = NULL, session_id = NULL, child_job_id = NULL, assigned_at = NULL,
           started_at = NULL, due_up = NULL, since_up = :up, reason = NULL, message = NULL,
           ready_at = :wall, queued_up = :queued_up, returns = :returns, not_before_up = :not_before_up
     WHERE step_id = :step_id
       AND state   = :from
       AND attempt = :attempt
";

/// Ready, but for `release_due` to carry out, not for workers.
const POSTPONE_STEP: &str = "
    UPDATE step
       SET state = 'ready', ready_at = :wall, queued_up = :up, since_up = :up, not_before_up = :up
     WHERE step_id = :step_id
       AND state   = :from
       AND attempt = :attempt
";

const FAILED_STEPS: &str = concat!(
    "SELECT ",
    step_columns!(),
    " FROM step AS s
      WHERE s.job_id = :job_id AND s.item = -1 AND s.state = 'failed'
      ORDER BY s.position
      LIMIT :limit"
);

const SUSPEND_STEP: &str = "
    UPDATE step
       SET state = 'suspended', ready_at = :wall, since_up = :up, due_up = :due_up, session_id = NULL,
           reason = :reason, message = :message
     WHERE step_id = :step_id
       AND state   = :from
       AND attempt = :attempt
";

const DISPATCH_STEP: &str = "
    UPDATE step
       SET state = 'running', started_at = :wall, since_up = :up, due_up = :due_up, child_job_id = :child_job_id,
           waiting_on = :waiting_on, attempt = :attempt_next, tries = :tries, not_before_up = NULL
     WHERE step_id = :step_id
       AND state   = :from
       AND attempt = :attempt
";

const DUE_RETRIES: &str = "
    SELECT step_id FROM step WHERE not_before_up <= :up ORDER BY not_before_up, step_id LIMIT :limit
";

const WAKE_STEP: &str = "
    UPDATE step
       SET not_before_up = NULL, since_up = :up
     WHERE step_id = :step_id
       AND state   = 'ready'
       AND attempt = :attempt
       AND not_before_up <= :up
";

/// All open steps of a job at once: its end does not depend on how many they are.
const CANCEL_STEPS: &str = "
    UPDATE step
       SET state = 'cancelled', reason = :reason, message = :message, ended_at = :wall, since_up = :up, due_up = NULL,
           not_before_up = NULL
     WHERE job_id = :job_id
       AND ended_at IS NULL
 RETURNING child_job_id, iif(returns > 0, step_id, NULL), iif(session_id IS NOT NULL, worker_id, NULL)
";

/// SQL keeps "not an instance" as -1, so that the unique index sees it.
fn item_column(item: Option<u32>) -> i64 {
    item.map_or(-1, i64::from)
}

/// Where a move leads. Verbs check first; a move that is not in the table is a bug of theirs.
pub(super) fn after(step: &StepHead, step_move: StepMove) -> StepState {
    step.state
        .after(step_move)
        .expect("the verb has checked that the move is legal")
}

impl Tx<'_> {
    pub fn insert_step(&self, step: &NewStep, now: Now) -> Result<StepId, StoreError> {
        self.sql(INSERT_STEP)?.execute(named_params! {
            ":job_id": step.job_id.0,
            ":position": step.position,
            ":item": item_column(step.item),
            ":kind": step.kind.as_str(),
            ":state": if step.ready { "ready" } else { "pending" },
            ":ready_at": step.ready.then_some(now.wall.0),
            ":queued_up": step.ready.then_some(now.up.0),
            ":requirement_id": step.requirement_id.map(|id| id.0),
            ":priority": step.priority,
            ":waiting_on": step.waiting_on,
            ":origin_step_id": step.origin_step_id.map(|id| id.0),
            ":item_value": step.item_value.as_ref().map(|value| &value.0),
            ":up": now.up.0,
        })?;
        if step.ready {
            self.note_ready();
        }
        Ok(StepId(self.connection.last_insert_rowid()))
    }

    /// Takes a step over from a former job, where it completed or was skipped.
    pub fn carry_step(&self, job_id: JobId, origin: &Step, now: Now) -> Result<(), StoreError> {
        assert!(matches!(
            origin.state,
            StepState::Completed | StepState::Skipped
        ));
        self.sql(CARRY_STEP)?.execute(named_params! {
            ":job_id": job_id.0,
            ":position": origin.position,
            ":item": item_column(origin.item),
            ":kind": origin.kind.as_str(),
            ":state": origin.state.as_str(),
            ":reason": origin.reason.map(Reason::as_str),
            ":message": origin.message,
            ":requirement_id": origin.requirement_id.map(|id| id.0),
            ":priority": origin.priority,
            ":child_job_id": origin.child_job_id.map(|id| id.0),
            ":origin_step_id": origin.step_id.0,
            ":exit_code": origin.exit_code,
            ":output": origin.output.as_ref().map(|output| &output.0),
            ":item_value": origin.item_value.as_ref().map(|value| &value.0),
            ":ended_at": origin.ended_at.map(|at| at.0),
            ":up": now.up.0,
        })?;
        Ok(())
    }

    /// A pending step will never run. `false`: it is not pending any more.
    pub fn skip_step(
        &self,
        step_id: StepId,
        reason: Reason,
        message: &str,
        now: Now,
    ) -> Result<bool, StoreError> {
        let changed = self.sql(SKIP_STEP)?.execute(named_params! {
            ":step_id": step_id.0,
            ":reason": reason.as_str(),
            ":message": message,
            ":wall": now.wall.0,
            ":up": now.up.0,
        })?;
        if changed == 1 {
            self.note(Fact::StepsFinished(StepState::Skipped, Some(reason), 1));
        }
        Ok(changed == 1)
    }

    /// The first cancelled step of a job, for the sentence.
    pub fn first_cancelled(&self, job_id: JobId) -> Result<Option<u32>, StoreError> {
        Ok(self
            .sql(FIRST_CANCELLED)?
            .query_row(named_params! {":job_id": job_id.0}, |row| row.get(0))
            .optional()?)
    }

    pub fn step(&self, step_id: StepId) -> Result<Option<Step>, StoreError> {
        self.one_step(STEP, named_params! {":step_id": step_id.0})
    }

    /// Those of the steps that exist.
    pub fn step_heads(
        &self,
        step_ids: impl ExactSizeIterator<Item = StepId>,
    ) -> Result<HashMap<StepId, StepHead>, StoreError> {
        let mut statement = self.sql_repeated(STEP_HEAD)?;
        let mut heads = HashMap::with_capacity(step_ids.len());
        for step_id in step_ids {
            if let Some(row) = statement.query([step_id.0])?.next()? {
                heads.insert(step_id, rows::step_head(row)?);
            }
        }
        Ok(heads)
    }

    pub fn step_at(
        &self,
        job_id: JobId,
        position: u32,
        item: Option<u32>,
    ) -> Result<Option<Step>, StoreError> {
        self.one_step(
            STEP_AT,
            named_params! {":job_id": job_id.0, ":position": position, ":item": item_column(item)},
        )
    }

    pub fn steps_of_job(&self, job_id: JobId) -> Result<Vec<Step>, StoreError> {
        self.many_steps(STEPS_OF_JOB, named_params! {":job_id": job_id.0})
    }

    /// How the step at this position ended; `None` while it has not.
    pub fn outcome_at(&self, job_id: JobId, position: u32) -> Result<Option<Outcome>, StoreError> {
        let mut statement = self.sql(OUTCOME_AT)?;
        let mut rows =
            statement.query(named_params! {":job_id": job_id.0, ":position": position})?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let state = rows::word(row, 0, StepState::from_word, "the state of a step")?;
        let reason = rows::word_or_null(row, 1, Reason::from_word, "a reason")?;
        Ok(step::outcome(state, reason))
    }

    /// One dependency less to wait for. `None`: the dependent is not pending any more.
    pub fn dependency_ended(
        &self,
        job_id: JobId,
        position: u32,
    ) -> Result<Option<(StepId, u32)>, StoreError> {
        let dependent: Option<(i64, u32)> = self
            .sql(DEPENDENT)?
            .query_row(
                named_params! {":job_id": job_id.0, ":position": position},
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()?;
        let Some((step_id, waiting_on)) = dependent else {
            return Ok(None);
        };
        self.sql(DEPENDENCY_ENDED)?
            .execute(named_params! {":step_id": step_id, ":waiting_on": waiting_on})?;
        Ok(Some((StepId(step_id), waiting_on - 1)))
    }

    /// The only dependency of each of these steps has ended and is accepted. Those that are not pending any more stay.
    pub fn release_only_dependents(
        &self,
        dependents: &[(JobId, u32)],
        now: Now,
    ) -> Result<(), StoreError> {
        let mut statement = self.sql_repeated(RELEASE_ONLY_DEPENDENT)?;
        for (job_id, position) in dependents {
            statement.execute(params![job_id.0, position, now.wall.0, now.up.0])?;
        }
        self.note_ready();
        Ok(())
    }

    pub fn release_step(&self, step_id: StepId, now: Now) -> Result<bool, StoreError> {
        let changed = self
            .sql(RELEASE_STEP)?
            .execute(named_params! {":step_id": step_id.0, ":wall": now.wall.0, ":up": now.up.0})?;
        self.note_ready();
        Ok(changed == 1)
    }

    /// Makes steps terminal; `false` if one of them was not where it was read any more.
    pub fn end_steps(&self, endings: &[(StepHead, Ending)], now: Now) -> Result<bool, StoreError> {
        let mut statement = self.sql_repeated(END_STEP)?;
        for (step, ending) in endings {
            let next = after(step, ending.step_move);
            assert!(next.is_terminal(), "{} is not an end", ending.step_move);
            let changed = statement.execute(params![
                step.step_id.0,
                step.state.as_str(),
                step.attempt,
                next.as_str(),
                ending.reason.map(Reason::as_str),
                ending.message,
                ending.exit_code,
                ending.output.as_ref().map(|output| &output.0),
                now.wall.0,
                now.up.0,
            ])?;
            if changed == 0 {
                return Ok(false);
            }
            self.note(Fact::StepsFinished(next, ending.reason, 1));
            if ending.reason == Some(Reason::AssignmentExhausted) {
                self.note(Fact::Assignment(Assignment::Exhausted));
            }
            self.note_run(step, now);
            self.note_taken(step);
            self.touch_job(step.job_id);
        }
        Ok(true)
    }

    /// An assignment comes back unstarted: the step keeps its place in the queue.
    pub fn requeue_step(&self, step: &StepHead, now: Now) -> Result<bool, StoreError> {
        let place_up = step.queued_up.filter(|_| !planted(Bug::RequeueLosesPlace));
        let queued_up = place_up.unwrap_or(now.up);
        self.back_to_ready(
            step,
            StepMove::Requeue,
            queued_up,
            step.returns + 1,
            None,
            now,
        )
    }

    /// A try failed and another follows: at the end of the queue, not before the given time.
    pub fn retry_step(
        &self,
        step: &StepHead,
        not_before_up: Option<Uptime>,
        now: Now,
    ) -> Result<bool, StoreError> {
        self.back_to_ready(step, StepMove::Retry, now.up, 0, not_before_up, now)
    }

    /// A held step is told to run again.
    pub fn resume_step(&self, step: &StepHead, now: Now) -> Result<bool, StoreError> {
        self.back_to_ready(step, StepMove::Resume, now.up, 0, None, now)
    }

    fn back_to_ready(
        &self,
        step: &StepHead,
        step_move: StepMove,
        queued_up: Uptime,
        returns: u32,
        not_before_up: Option<Uptime>,
        now: Now,
    ) -> Result<bool, StoreError> {
        assert_eq!(after(step, step_move), StepState::Ready);
        let changed = self.sql(BACK_TO_READY)?.execute(named_params! {
            ":step_id": step.step_id.0,
            ":from": step.state.as_str(),
            ":attempt": step.attempt,
            ":queued_up": queued_up.0,
            ":returns": returns,
            ":not_before_up": not_before_up.map(|up| up.0),
            ":wall": now.wall.0,
            ":up": now.up.0,
        })?;
        if changed == 1 {
            self.note_run(step, now);
        }
        self.note_taken(step);
        if not_before_up.is_none() {
            self.note_ready();
        }
        self.touch_job(step.job_id);
        Ok(changed == 1)
    }

    /// An attempt that a worker had started is over.
    fn note_run(&self, step: &StepHead, now: Now) {
        if step.state == StepState::Running && step.kind == StepKind::Work {
            let ms = now.up.0 - step.since_up.0;
            self.note(Fact::AttemptRan { ms });
        }
    }

    /// Whoever held the step holds it no more.
    fn note_taken(&self, step: &StepHead) {
        if let (Some(worker_id), Some(_)) = (step.worker_id, step.session_id) {
            self.note_worker(worker_id);
        }
    }

    /// What the server itself is to carry out waits for `release_due`.
    pub fn postpone_step(&self, step: &StepHead, now: Now) -> Result<bool, StoreError> {
        let changed = self.sql(POSTPONE_STEP)?.execute(named_params! {
            ":step_id": step.step_id.0,
            ":from": step.state.as_str(),
            ":attempt": step.attempt,
            ":wall": now.wall.0,
            ":up": now.up.0,
        })?;
        self.touch_job(step.job_id);
        Ok(changed == 1)
    }

    /// Those that failed, in their order; of a loop, the loop itself.
    pub fn failed_steps(&self, job_id: JobId, limit: u32) -> Result<Vec<Step>, StoreError> {
        self.many_steps(
            FAILED_STEPS,
            named_params! {":job_id": job_id.0, ":limit": limit},
        )
    }

    /// An approval waits for a person (`Suspend`), or a step whose worker was lost does (`Hold`).
    pub fn suspend_step(
        &self,
        step: &StepHead,
        step_move: StepMove,
        due_up: Option<Uptime>,
        reason: Option<Reason>,
        message: &str,
        now: Now,
    ) -> Result<bool, StoreError> {
        assert_eq!(after(step, step_move), StepState::Suspended);
        let changed = self.sql(SUSPEND_STEP)?.execute(named_params! {
            ":step_id": step.step_id.0,
            ":from": step.state.as_str(),
            ":attempt": step.attempt,
            ":due_up": due_up.map(|up| up.0),
            ":reason": reason.map(Reason::as_str),
            ":message": message,
            ":wall": now.wall.0,
            ":up": now.up.0,
        })?;
        if changed == 1 {
            self.note_run(step, now);
        }
        self.note_taken(step);
        self.touch_job(step.job_id);
        Ok(changed == 1)
    }

    /// The server itself carries a step out: its child job, or so many instances.
    pub fn dispatch_step(
        &self,
        step: &StepHead,
        child_job_id: Option<JobId>,
        instances: u32,
        due_up: Option<Uptime>,
        now: Now,
    ) -> Result<bool, StoreError> {
        assert_eq!(after(step, StepMove::Dispatch), StepState::Running);
        // A child job is an attempt; instances count their own.
        let tried = u32::from(child_job_id.is_some());
        let changed = self.sql(DISPATCH_STEP)?.execute(named_params! {
            ":step_id": step.step_id.0,
            ":from": step.state.as_str(),
            ":attempt": step.attempt,
            ":attempt_next": step.attempt + tried,
            ":tries": step.tries + tried,
            ":child_job_id": child_job_id.map(|id| id.0),
            ":waiting_on": instances,
            ":due_up": due_up.map(|up| up.0),
            ":wall": now.wall.0,
            ":up": now.up.0,
        })?;
        self.touch_job(step.job_id);
        Ok(changed == 1)
    }

    /// Steps whose retry delay is over.
    pub fn due_retries(&self, now: Now, limit: u32) -> Result<Vec<StepId>, StoreError> {
        let params = named_params! {":up": now.up.0, ":limit": limit};
        self.ids(DUE_RETRIES, StepId, params)
    }

    /// Lets workers claim a step whose retry delay is over.
    pub fn wake_step(&self, step: &StepHead, now: Now) -> Result<bool, StoreError> {
        let changed = self.sql(WAKE_STEP)?.execute(named_params! {
            ":step_id": step.step_id.0,
            ":attempt": step.attempt,
            ":up": now.up.0,
        })?;
        self.note_ready();
        self.touch_job(step.job_id);
        Ok(changed == 1)
    }

    /// Cancels all open steps of a job: how many, and which child jobs they had.
    pub fn cancel_steps(
        &self,
        job_id: JobId,
        reason: Reason,
        message: &str,
        now: Now,
    ) -> Result<(u32, Vec<JobId>), StoreError> {
        let mut statement = self.sql(CANCEL_STEPS)?;
        let mut rows = statement.query(named_params! {
            ":job_id": job_id.0,
            ":reason": reason.as_str(),
            ":message": message,
            ":wall": now.wall.0,
            ":up": now.up.0,
        })?;
        let (mut cancelled, mut children, mut avoided) = (0, Vec::new(), Vec::new());
        while let Some(row) = rows.next()? {
            cancelled += 1;
            children.extend(row.get::<_, Option<i64>>(0)?.map(JobId));
            avoided.extend(row.get::<_, Option<i64>>(1)?.map(StepId));
            if let Some(worker_id) = row.get::<_, Option<i64>>(2)?.map(WorkerId) {
                self.note_worker(worker_id);
            }
        }
        for step_id in avoided {
            self.forget_avoidances(step_id)?;
        }
        let state = StepState::Cancelled;
        self.note(Fact::StepsFinished(state, Some(reason), cancelled));
        self.touch_job(job_id);
        Ok((cancelled, children))
    }

    pub(super) fn one_step(
        &self,
        statement: &'static str,
        params: &[(&str, &dyn rusqlite::ToSql)],
    ) -> Result<Option<Step>, StoreError> {
        let mut statement = self.sql(statement)?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(rows::step).transpose()
    }

    pub(super) fn many_steps(
        &self,
        statement: &'static str,
        params: &[(&str, &dyn rusqlite::ToSql)],
    ) -> Result<Vec<Step>, StoreError> {
        let mut statement = self.sql(statement)?;
        let mut rows = statement.query(params)?;
        let mut steps = Vec::new();
        while let Some(row) = rows.next()? {
            steps.push(rows::step(row)?);
        }
        Ok(steps)
    }
}
