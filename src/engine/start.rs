//! A worker acknowledges its assignment: from here on the step runs, and only from here on its time counts.

use std::collections::BTreeMap;

use super::EngineError;
use super::cascade::Cascade;
use super::heartbeat::ack_due_up;
use super::report::Verdict;
use crate::domain::Uptime;
use crate::domain::step::{StepHead, StepState};
use crate::store::SessionView;

/// Steps that start with one report, by when their time is up: all of one time are one statement.
pub(super) type Starting = BTreeMap<Uptime, Vec<StepHead>>;

impl Cascade<'_> {
    /// Repeating it while the step runs changes nothing and answers the same.
    pub(super) fn start_attempt(
        &mut self,
        step: &StepHead,
        starting: &mut Starting,
    ) -> Result<Verdict, EngineError> {
        if step.state == StepState::Running {
            return Ok(Verdict::Accepted);
        }
        let context = self.context(step.job_id)?;
        let timeout_ms = context
            .draft(step)
            .timeout_ms
            .unwrap_or(self.settings.step_timeout_ms);
        starting
            .entry(self.now.up.plus_ms(timeout_ms))
            .or_default()
            .push(step.clone());
        if step.returns > 0 {
            self.tx.forget_avoidances(step.step_id)?;
        }
        self.start_job(&context)?;
        Ok(Verdict::Accepted)
    }

    /// Makes what starts run.
    pub(super) fn start_steps(
        &mut self,
        session: &SessionView,
        starting: &mut Starting,
    ) -> Result<(), EngineError> {
        for (due_up, steps) in std::mem::take(starting) {
            let started = self
                .tx
                .start_steps(&steps, session.session_id, due_up, self.now)?;
            assert!(started, "nobody moves a step within our transaction");
        }
        Ok(())
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
