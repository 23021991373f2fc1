//! A worker acknowledges its assignment: from here on the step runs, and only from here on its time counts.

use super::EngineError;
use super::cascade::Cascade;
use super::heartbeat::ack_due_up;
use super::report::Together;
use crate::domain::protocol::Verdict;
use crate::domain::step::{StepHead, StepState};
use crate::planted::{Bug, planted};
use crate::store::SessionView;

impl Cascade<'_> {
    /// Repeating it while the step runs changes nothing and answers the same.
    pub(super) fn start_attempt(
        &mut self,
        step: &StepHead,
        together: &mut Together,
    ) -> Result<Verdict, EngineError> {
        if step.state == StepState::Running {
            return Ok(Verdict::Accepted);
        }
        let context = self.context(step.job_id)?;
        let timeout_ms = context
            .draft(step)
            .timeout_ms
            .unwrap_or(self.settings.step_timeout_ms);
        let begun_up = match planted(Bug::TimeoutFromAssignment) {
            true => step.since_up,
            false => self.now.up,
        };
        let due_up = begun_up.plus_ms(timeout_ms);
        together.starting.push((step.clone(), due_up));
        if step.returns > 0 {
            self.tx.forget_avoidances(step.step_id)?;
        }
        self.start_job(&context)?;
        Ok(Verdict::Accepted)
    }

    /// Preparation goes on: the acknowledgement deadline moves, up to the cap on preparation.
    pub(super) fn keep_attempt_alive(
        &mut self,
        session: &SessionView,
        step: &StepHead,
    ) -> Result<Verdict, EngineError> {
        if step.state == StepState::Assigned {
            let due_up = ack_due_up(self.settings, step.since_up, self.now);
            self.tx
                .keep_alive(step.step_id, step.attempt, session.session_id, due_up)?;
        }
        Ok(Verdict::Accepted)
    }
}
