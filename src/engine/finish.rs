//! A worker reports how its attempt ended. One report wins; those of a former attempt or session change nothing.

use super::cascade::{Cascade, Failure};
use super::heartbeat::sign_of_life;
use super::submit::check_json;
use super::{Engine, EngineError};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::limits;
use crate::domain::reason::Reason;
use crate::domain::step::{StepMove, StepState};
use crate::domain::{AttemptRef, Json, Now};
use crate::store::{Ending, SessionView, StepView};

/// How an attempt ended, in the worker's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    Completed { output: Option<Json>, exit_code: Option<i32> },
    Failed { reason: Reason, message: String, exit_code: Option<i32> },
}

impl Report {
    pub fn completed() -> Report {
        Report::Completed { output: None, exit_code: Some(0) }
    }

    pub fn exited(exit_code: i32) -> Report {
        Report::Failed {
            reason: Reason::ExitCode,
            message: format!("exit code {exit_code}"),
            exit_code: Some(exit_code),
        }
    }

    pub(super) fn check(&self) -> Result<(), EngineError> {
        match self {
            Report::Completed { output: Some(output), .. } => {
                check_json("output", output, limits::OUTPUT_BYTES_MAX)
            }
            Report::Completed { .. } => Ok(()),
            Report::Failed { reason, .. } if !reason.is_reported() => Err(EngineError::Invalid {
                place: "reason",
                fault: format!("{reason} is the server's to give, not a worker's"),
            }),
            Report::Failed { message, .. } if message.contains('\0') => {
                Err(EngineError::Invalid { place: "message", fault: "holds a NUL byte".to_string() })
            }
            Report::Failed { .. } => Ok(()),
        }
    }
}

/// The answer to a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// The attempt is not, or no longer, this session's: kill what still runs of it and forget it.
    Abort { why: String },
}

impl Verdict {
    pub(super) fn abort(why: impl Into<String>) -> Verdict {
        Verdict::Abort { why: why.into() }
    }
}

impl Engine {
    pub fn finish(
        &self,
        session_key: &str,
        attempt: AttemptRef,
        report: Report,
        now: Now,
    ) -> Result<Verdict, EngineError> {
        report.check()?;
        let settings = self.settings;
        let session_key = session_key.to_string();
        self.store.write(move |tx| {
            let mut cascade = Cascade::new(tx, &settings, now);
            let Some(session) = tx.session(&session_key)? else {
                return Ok(Verdict::abort("the session is not known here"));
            };
            if session.current {
                sign_of_life(tx, &session, now)?;
            }
            let verdict = cascade.finish_attempt(&session, attempt, &report)?;
            cascade.settle()?;
            Ok(verdict)
        })
    }
}

impl Cascade<'_> {
    /// Ends an attempt as reported, if it is still this session's.
    pub(super) fn finish_attempt(
        &mut self,
        session: &SessionView,
        attempt: AttemptRef,
        report: &Report,
    ) -> Result<Verdict, EngineError> {
        let view = match self.fence_step(session, attempt)? {
            Ok(view) => view,
            Err(verdict) => return Ok(verdict),
        };
        let step = &view.step;
        if step.state != StepState::Running {
            return Ok(Verdict::abort(format!("{attempt} was never started")));
        }
        let context = self.context_of(&view)?;
        let finished = match report.clone() {
            Report::Completed { output, exit_code } => {
                let step_move = StepMove::Complete;
                let ending = Ending { step_move, reason: None, message: None, exit_code, output };
                self.finish_step(&context, step, ending)?
            }
            Report::Failed { reason, message, exit_code } => {
                self.fail_or_retry(&context, step, Failure { reason, message, exit_code })?
            }
        };
        assert!(finished, "nobody moves the step within our transaction");
        Ok(Verdict::Accepted)
    }

    /// The session and the step in its hands, for reports that only a current session may make; else the answer.
    pub(super) fn fence(
        &mut self,
        session_key: &str,
        attempt: AttemptRef,
    ) -> Result<Result<(SessionView, StepView), Verdict>, EngineError> {
        let Some(session) = self.tx.session(session_key)? else {
            return Ok(Err(Verdict::abort("the session is not known here")));
        };
        if !session.current {
            return Ok(Err(Verdict::abort("the session was replaced or its worker deleted")));
        }
        sign_of_life(self.tx, &session, self.now)?;
        Ok(self.fence_step(&session, attempt)?.map(|view| (session, view)))
    }

    /// The step, if this attempt of it is in this session's hands; else the answer.
    fn fence_step(
        &mut self,
        session: &SessionView,
        attempt: AttemptRef,
    ) -> Result<Result<StepView, Verdict>, EngineError> {
        let Some(view) = self.tx.step_view(attempt.step_id)? else {
            return Ok(Err(Verdict::abort(format!("step {} does not exist", attempt.step_id))));
        };
        let step = &view.step;
        let same = step.attempt == attempt.attempt && step.session_id == Some(session.session_id);
        let why = match (same, step.state) {
            (true, StepState::Assigned | StepState::Running) => return Ok(Ok(view)),
            // The answer to its own report was lost, or the job was cancelled meanwhile: nothing to tell.
            (true, state) => return Ok(Err(Verdict::abort(format!("the step is {state} already")))),
            (false, _) if step.attempt != attempt.attempt => {
                format!("the step is at attempt {}, the report is for attempt {}", step.attempt, attempt.attempt)
            }
            (false, _) => "the attempt belongs to another session".to_string(),
        };
        let text = format!("a report of worker {} was turned away: {why}", session.worker_name);
        let mut event = NewEvent::new(EventKind::ReportFenced, text).step(step);
        event.attempt = Some(attempt.attempt);
        event.worker_id = Some(session.worker_id);
        self.tx.record_once(&event, self.now)?;
        Ok(Err(Verdict::Abort { why }))
    }
}
