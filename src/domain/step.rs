//! A step: one node of a job's graph, its states, and the one table of its moves.

use std::fmt;
use std::ops::Deref;

use super::depends::Outcome;
use super::reason::Reason;
use super::{
    AttemptRef, JobId, Json, Now, RequirementId, SessionId, StepId, Timestamp, Uptime, WorkerId,
    words,
};

words! {
    pub enum StepState {
        Pending = "pending",
        Ready = "ready",
        Assigned = "assigned",
        Running = "running",
        Suspended = "suspended",
        Completed = "completed",
        Failed = "failed",
        Skipped = "skipped",
        Cancelled = "cancelled",
    }
}

words! {
    pub enum StepMove {
        Release = "release",
        Skip = "skip",
        Suspend = "suspend",
        Dispatch = "dispatch",
        Assign = "assign",
        Start = "start",
        Requeue = "requeue",
        Complete = "complete",
        Fail = "fail",
        Retry = "retry",
        Hold = "hold",
        Resume = "resume",
        Cancel = "cancel",
    }
}

words! {
    /// Who carries a step out.
    pub enum StepKind {
        /// A worker, matched by tags.
        Work = "work",
        /// The placeholder of a `for_each`: its instances are steps of their own.
        Loop = "loop",
        /// The server: a child job.
        Task = "task",
        /// A person.
        Approval = "approval",
    }
}

impl StepState {
    pub fn is_terminal(self) -> bool {
        use StepState::*;
        matches!(self, Completed | Failed | Skipped | Cancelled)
    }

    /// The whole life of a step. A pair that is not listed here cannot happen.
    #[rustfmt::skip]
    pub fn after(self, step_move: StepMove) -> Result<StepState, IllegalMove> {
        use {StepMove::*, StepState::*};
        match (self, step_move) {
            (Pending,   Release)  => Ok(Ready),     // every dependency decided and accepted
            (Pending,   Skip)     => Ok(Skipped),   // a dependency not accepted, or its own choice
            (Pending,   Suspend)  => Ok(Suspended), // an approval waits for a person
            (Pending,   Dispatch) => Ok(Running),   // a child job or loop instances were created
            (Pending,   Fail)     => Ok(Failed),    // what it asks for cannot be made
            (Ready,     Dispatch) => Ok(Running),   // a child job's retry delay is over
            (Ready,     Assign)   => Ok(Assigned),  // a worker's poll; attempt + 1
            (Ready,     Fail)     => Ok(Failed),    // nobody can run it, or payload error
            (Assigned,  Fail)     => Ok(Failed),    // came back unstarted too often
            (Assigned,  Start)    => Ok(Running),   // the worker acknowledged
            (Assigned,  Requeue)  => Ok(Ready),     // declined, expired, session or worker gone
            (Running,   Complete) => Ok(Completed), // the worker's, child's or instances' word
            (Running,   Fail)     => Ok(Failed),    // no try remains
            (Running,   Retry)    => Ok(Ready),     // failed, a try remains: never visible as failed
            (Running,   Hold)     => Ok(Suspended), // worker lost, a person decides
            (Suspended, Complete) => Ok(Completed), // approved
            (Suspended, Fail)     => Ok(Failed),    // rejected, or nobody answered in time
            (Suspended, Resume)   => Ok(Ready),     // held, and told to run again
            (Pending | Ready | Assigned | Running | Suspended, Cancel) => Ok(Cancelled),
            (from, step_move) => Err(IllegalMove { from, step_move }),
        }
    }
}

/// A move that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IllegalMove {
    pub from: StepState,
    pub step_move: StepMove,
}

impl fmt::Display for IllegalMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a step that is {} cannot {}", self.from, self.step_move)
    }
}

impl std::error::Error for IllegalMove {}

/// What decides about a step: its place, its state, its fence. A report reads no more than that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepHead {
    pub step_id: StepId,
    pub job_id: JobId,
    /// Its place in the frozen definition.
    pub position: u32,
    /// Which instance of a loop it is, counted from 0.
    pub item: Option<u32>,
    pub kind: StepKind,
    pub state: StepState,
    pub attempt: u32,
    /// Started attempts: what `retry.max_attempts` counts.
    pub tries: u32,
    /// Assignments that came back without having started, since the last start.
    pub returns: u32,
    pub worker_id: Option<WorkerId>,
    pub session_id: Option<SessionId>,
    /// When it first became ready: its place in the queue, kept when an assignment comes back.
    pub queued_up: Option<Uptime>,
    /// When it entered the state it is in.
    pub since_up: Uptime,
}

/// A step as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub head: StepHead,
    pub reason: Option<Reason>,
    pub message: Option<String>,
    pub requirement_id: Option<RequirementId>,
    pub priority: i32,
    /// Dependencies not yet terminal while pending; instances not yet terminal while a loop runs.
    pub waiting_on: u32,
    pub child_job_id: Option<JobId>,
    /// In a retried job: the step of the former job that it stands for, if what that one did may be carried over.
    pub origin_step_id: Option<StepId>,
    pub exit_code: Option<i32>,
    pub output: Option<Json>,
    pub item_value: Option<Json>,
    /// Consecutive in-order heartbeats of its session that did not mention it while it was running.
    pub absent_beats: u32,
    pub ready_at: Option<Timestamp>,
    pub assigned_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// When recovery acts on it if nothing happens.
    pub due_up: Option<Uptime>,
    pub not_before_up: Option<Uptime>,
}

impl Deref for Step {
    type Target = StepHead;

    fn deref(&self) -> &StepHead {
        &self.head
    }
}

impl StepHead {
    pub fn attempt_ref(&self) -> AttemptRef {
        AttemptRef {
            step_id: self.step_id,
            attempt: self.attempt,
        }
    }
}

impl Step {
    /// How long it is in its state, as people count: with the time in which the server was off. It was made with its job.
    pub fn since_ms(&self, made_at: Timestamp, now: Now) -> i64 {
        let since_at = match self.state {
            // An instance was made by its loop, nobody knows when.
            StepState::Pending if self.item.is_some() => Some(now.wall),
            StepState::Pending => None,
            StepState::Ready | StepState::Suspended => self.ready_at,
            StepState::Assigned => self.assigned_at,
            StepState::Running => self.started_at,
            StepState::Completed
            | StepState::Failed
            | StepState::Skipped
            | StepState::Cancelled => self.ended_at,
        };
        let by_wall = now.wall.0 - since_at.unwrap_or(made_at).0;
        // Somebody may have set the wall clock back.
        by_wall.max(now.up.0 - self.since_up.0).max(0)
    }

    /// How it ended, as its dependents see it; `None` while it has not.
    pub fn outcome(&self) -> Option<Outcome> {
        outcome(self.state, self.reason)
    }
}

pub fn outcome(state: StepState, reason: Option<Reason>) -> Option<Outcome> {
    match state {
        StepState::Completed => Some(Outcome::Completed),
        StepState::Failed => Some(Outcome::Failed),
        StepState::Cancelled => Some(Outcome::Cancelled),
        StepState::Skipped if reason == Some(Reason::DependencyNotAccepted) => {
            Some(Outcome::Omitted)
        }
        StepState::Skipped => Some(Outcome::Skipped),
        StepState::Pending
        | StepState::Ready
        | StepState::Assigned
        | StepState::Running
        | StepState::Suspended => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table once more, from the reader's side: for each state, what may happen to it.
    #[test]
    fn every_state_allows_exactly_its_moves() {
        use StepMove::*;
        use StepState::*;
        let expected: [(StepState, &[StepMove]); 9] = [
            (Pending, &[Release, Skip, Suspend, Dispatch, Fail, Cancel]),
            (Ready, &[Dispatch, Assign, Fail, Cancel]),
            (Assigned, &[Start, Requeue, Fail, Cancel]),
            (Running, &[Complete, Fail, Retry, Hold, Cancel]),
            (Suspended, &[Complete, Fail, Resume, Cancel]),
            (Completed, &[]),
            (Failed, &[]),
            (Skipped, &[]),
            (Cancelled, &[]),
        ];
        for (from, allowed) in expected {
            for &step_move in StepMove::ALL {
                assert_eq!(
                    from.after(step_move).is_ok(),
                    allowed.contains(&step_move),
                    "{from} {step_move}"
                );
            }
        }
    }

    #[test]
    fn a_terminal_state_is_for_ever() {
        for &state in StepState::ALL.iter().filter(|state| state.is_terminal()) {
            assert!(
                StepMove::ALL
                    .iter()
                    .all(|&step_move| state.after(step_move).is_err())
            );
        }
    }

    #[test]
    fn blocked_steps_are_omitted_and_choices_are_skipped() {
        let skipped = |reason| outcome(StepState::Skipped, Some(reason));
        assert_eq!(
            skipped(Reason::DependencyNotAccepted),
            Some(Outcome::Omitted)
        );
        assert_eq!(skipped(Reason::WhenFalse), Some(Outcome::Skipped));
        assert_eq!(skipped(Reason::EmptyLoop), Some(Outcome::Skipped));
        assert_eq!(outcome(StepState::Suspended, None), None);
    }
}
