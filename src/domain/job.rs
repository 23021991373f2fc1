//! A job: one submission of a task, its states, and how its end follows from its steps.

use std::fmt;

use super::reason::Reason;
use super::{DefinitionId, JobId, Json, ScheduleId, SealId, StepId, Timestamp, Uptime, words};

words! {
    pub enum JobState {
        Pending = "pending",
        Running = "running",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
        /// Only by a policy that lets no second one in while one is there.
        Skipped = "skipped",
    }
}

words! {
    pub enum JobMove {
        Start = "start",
        Complete = "complete",
        Fail = "fail",
        Cancel = "cancel",
        Skip = "skip",
    }
}

words! {
    /// Why a job that was accepted has not released its first steps yet.
    pub enum Hold {
        NotBefore = "not_before",
        Concurrency = "concurrency",
    }
}

words! {
    /// Where a job came from.
    pub enum Source {
        Submit = "submit",
        /// A `task` step of another job.
        Task = "task",
        Retry = "retry",
        Hook = "hook",
        Schedule = "schedule",
        Webhook = "webhook",
    }
}

/// Which jobs somebody wants to see; what is not said is not asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub state: Option<JobState>,
    pub task: Option<String>,
    pub reason: Option<Reason>,
    pub source: Option<Source>,
    /// Made then or later.
    pub since: Option<Timestamp>,
}

impl JobState {
    pub fn is_terminal(self) -> bool {
        !matches!(self, JobState::Pending | JobState::Running)
    }

    /// The whole life of a job.
    #[rustfmt::skip]
    pub fn after(self, job_move: JobMove) -> Result<JobState, IllegalJobMove> {
        use {JobMove::*, JobState::*};
        match (self, job_move) {
            (Pending,           Start)    => Ok(Running),   // its first step started
            (Pending | Running, Complete) => Ok(Completed), // pending: every step was skipped
            (Pending | Running, Fail)     => Ok(Failed),    // pending: failed before any step started
            (Pending | Running, Cancel)   => Ok(Cancelled), // a person, a timeout, its parent
            (Pending,           Skip)     => Ok(Skipped),   // its group is full
            (from, job_move) => Err(IllegalJobMove { from, job_move }),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IllegalJobMove {
    pub from: JobState,
    pub job_move: JobMove,
}

impl fmt::Display for IllegalJobMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a job that is {} cannot {}", self.from, self.job_move)
    }
}

impl std::error::Error for IllegalJobMove {}

/// A job as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub job_id: JobId,
    pub definition_id: DefinitionId,
    /// Which task of the frozen definition it is.
    pub task_index: u32,
    pub task: String,
    pub state: JobState,
    pub reason: Option<Reason>,
    pub message: Option<String>,
    pub source: Source,
    pub input: Json,
    pub labels: Json,
    pub priority: i32,
    pub parent: Option<ParentStep>,
    /// Levels of parents above it.
    pub depth: u32,
    pub retry_of: Option<JobId>,
    /// The job whose hook it is.
    pub hook_of: Option<JobId>,
    /// Whose fire it is, or was before it was retried.
    pub schedule_id: Option<ScheduleId>,
    /// The time that its schedule meant; child jobs and retries keep it.
    pub scheduled_for: Option<Timestamp>,
    pub hold: Option<Hold>,
    pub not_before: Option<Timestamp>,
    pub concurrency_group: Option<String>,
    pub tally: Tally,
    /// The first step whose failure fails the job.
    pub failed_step_id: Option<StepId>,
    pub change_seq: i64,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub since_up: Uptime,
    pub due_up: Option<Uptime>,
    /// Since when what its steps printed is not kept any more.
    pub logs_removed_at: Option<Timestamp>,
    /// By a person: it does not grow too old, nor does what is below it.
    pub kept: bool,
    /// Random id that the secret inputs of the job are sealed for. `None` if the job was created before version 0.2.
    pub seal_id: Option<SealId>,
}

/// The step, and which attempt of it, that a child job carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParentStep {
    pub step_id: StepId,
    pub attempt: u32,
}

/// What the job row counts, so that its end needs no look at its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    pub open: u32,
    /// Failed without `continue_on_failure`.
    pub failed: u32,
    pub cancelled: u32,
}

/// What one event changes in a job's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TallyChange {
    pub added: u32,
    pub ended: u32,
    pub failed: u32,
    pub cancelled: u32,
    /// The first of those that failed.
    pub failed_step_id: Option<StepId>,
}

impl Tally {
    pub fn after(self, change: TallyChange) -> Tally {
        Tally {
            open: self.open + change.added - change.ended,
            failed: self.failed + change.failed,
            cancelled: self.cancelled + change.cancelled,
        }
    }

    /// How a job whose steps all ended has ended; `None` while one is open.
    pub fn settles(self) -> Option<JobMove> {
        match self {
            Tally { open: 1.., .. } => None,
            Tally { failed: 1.., .. } => Some(JobMove::Fail),
            Tally { cancelled: 1.., .. } => Some(JobMove::Cancel),
            _ => Some(JobMove::Complete),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_settles_by_its_worst_step() {
        let tally = |open, failed, cancelled| Tally {
            open,
            failed,
            cancelled,
        };
        assert_eq!(tally(1, 5, 5).settles(), None);
        assert_eq!(tally(0, 1, 1).settles(), Some(JobMove::Fail));
        assert_eq!(tally(0, 0, 1).settles(), Some(JobMove::Cancel));
        assert_eq!(tally(0, 0, 0).settles(), Some(JobMove::Complete));
    }

    #[test]
    fn a_settled_job_never_changes_again() {
        for &state in JobState::ALL.iter().filter(|state| state.is_terminal()) {
            assert!(
                JobMove::ALL
                    .iter()
                    .all(|&job_move| state.after(job_move).is_err())
            );
        }
        assert!(JobState::Running.after(JobMove::Start).is_err());
        assert!(JobState::Running.after(JobMove::Skip).is_err());
    }
}
