//! Attempts that did not settle their step. The last attempt of a step is in the step's own row.

use rusqlite::{Row, named_params};

use super::{StoreError, Tx};
use crate::domain::step::Step;
use crate::domain::{Now, SessionId, StepId, Timestamp, WorkerId};
use crate::metrics::{Assignment, Fact};

pub const STATEMENTS: &[&str] = &[INSERT_FORMER_ATTEMPT, FORMER_ATTEMPTS];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormerOutcome {
    /// Never started.
    Returned,
    Failed,
}

/// An attempt that did not settle its step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerAttempt {
    pub attempt: u32,
    pub worker_id: Option<WorkerId>,
    pub session_id: Option<SessionId>,
    pub outcome: FormerOutcome,
    pub reason: String,
    pub message: String,
    pub exit_code: Option<i32>,
    pub assigned_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
}

const INSERT_FORMER_ATTEMPT: &str = "
    INSERT INTO former_attempt (step_id, attempt, worker_id, session_id, child_job_id, outcome, reason, message,
                                exit_code, assigned_at, started_at, ended_at)
    VALUES (:step_id, :attempt, :worker_id, :session_id, :child_job_id, :outcome, :reason, :message,
            :exit_code, :assigned_at, :started_at, :wall)
";

/// At most `retry.max_attempts` times `RETURNS_MAX`.
const FORMER_ATTEMPTS: &str = "
    SELECT attempt, worker_id, session_id, outcome, reason, message, exit_code, assigned_at, started_at, ended_at
      FROM former_attempt
     WHERE step_id = :step_id
     ORDER BY attempt
";

impl Tx<'_> {
    /// Remembers an attempt that its step goes on without.
    pub fn record_former_attempt(
        &self,
        step: &Step,
        outcome: FormerOutcome,
        reason: &str,
        message: &str,
        exit_code: Option<i32>,
        now: Now,
    ) -> Result<(), StoreError> {
        self.sql(INSERT_FORMER_ATTEMPT)?.execute(named_params! {
            ":step_id": step.step_id.0,
            ":attempt": step.attempt,
            ":worker_id": step.worker_id.map(|id| id.0),
            ":session_id": step.session_id.map(|id| id.0),
            ":child_job_id": step.child_job_id.map(|id| id.0),
            ":outcome": match outcome {
                FormerOutcome::Returned => "returned",
                FormerOutcome::Failed => "failed",
            },
            ":reason": reason,
            ":message": message,
            ":exit_code": exit_code,
            ":assigned_at": step.assigned_at.map(|at| at.0),
            ":started_at": step.started_at.map(|at| at.0),
            ":wall": now.wall.0,
        })?;
        if let (FormerOutcome::Returned, Some(why)) = (outcome, Assignment::from_word(reason)) {
            self.note(Fact::Assignment(why));
        }
        Ok(())
    }

    pub fn former_attempts(&self, step_id: StepId) -> Result<Vec<FormerAttempt>, StoreError> {
        let mut statement = self.sql(FORMER_ATTEMPTS)?;
        let attempts =
            statement.query_map(named_params! {":step_id": step_id.0}, |row: &Row| {
                Ok(FormerAttempt {
                    attempt: row.get(0)?,
                    worker_id: row.get::<_, Option<i64>>(1)?.map(WorkerId),
                    session_id: row.get::<_, Option<i64>>(2)?.map(SessionId),
                    outcome: match row.get_ref(3)?.as_str()? {
                        "returned" => FormerOutcome::Returned,
                        _ => FormerOutcome::Failed,
                    },
                    reason: row.get(4)?,
                    message: row.get(5)?,
                    exit_code: row.get(6)?,
                    assigned_at: row.get::<_, Option<i64>>(7)?.map(Timestamp),
                    started_at: row.get::<_, Option<i64>>(8)?.map(Timestamp),
                    ended_at: Timestamp(row.get(9)?),
                })
            })?;
        Ok(attempts.collect::<Result<_, _>>()?)
    }
}
