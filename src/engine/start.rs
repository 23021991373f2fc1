//! A worker acknowledges its assignment: from here on the step runs, and only from here on its time counts.

use super::cascade::Cascade;
use super::heartbeat::ack_due_up;
use super::{Engine, EngineError, Verdict};
use crate::domain::job::JobState;
use crate::domain::step::StepState;
use crate::domain::{AttemptRef, Now};

impl Engine {
    /// Repeating it while the step runs changes nothing and answers the same.
    pub fn start(
        &self,
        session_key: &str,
        attempt: AttemptRef,
        now: Now,
    ) -> Result<Verdict, EngineError> {
        let settings = self.settings;
        let session_key = session_key.to_string();
        self.store.write(move |tx| {
            let mut cascade = Cascade::new(tx, &settings, now);
            let (session, view) = match cascade.fence(&session_key, attempt)? {
                Ok(found) => found,
                Err(verdict) => return Ok(verdict),
            };
            let step = &view.step;
            if step.state == StepState::Running {
                return Ok(Verdict::Accepted);
            }
            let context = cascade.context_of(&view)?;
            let timeout_ms = context.draft(step).timeout_ms.unwrap_or(settings.step_timeout_ms);
            let due_up = Some(now.up.plus_ms(timeout_ms));
            if !tx.start_step(step, session.session_id, due_up, now)? {
                return Ok(Verdict::abort("the step was moved by someone else"));
            }
            if step.returns > 0 {
                tx.forget_avoidances(step.step_id)?;
            }
            if view.job_state == JobState::Pending {
                cascade.start_job(&context)?;
            }
            cascade.settle()?;
            Ok(Verdict::Accepted)
        })
    }

    /// Preparation goes on: the acknowledgement deadline moves, up to the cap on preparation.
    pub fn keep_alive(
        &self,
        session_key: &str,
        attempt: AttemptRef,
        now: Now,
    ) -> Result<Verdict, EngineError> {
        let settings = self.settings;
        let session_key = session_key.to_string();
        self.store.write(move |tx| {
            let mut cascade = Cascade::new(tx, &settings, now);
            let (session, view) = match cascade.fence(&session_key, attempt)? {
                Ok(found) => found,
                Err(verdict) => return Ok(verdict),
            };
            if view.step.state == StepState::Assigned {
                let due_up = ack_due_up(&settings, view.step.since_up, now);
                tx.keep_alive(attempt.step_id, attempt.attempt, session.session_id, due_up)?;
            }
            Ok(Verdict::Accepted)
        })
    }
}
