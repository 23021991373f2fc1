//! A worker acknowledges its assignment: from here on the step runs, and only from here on its time counts.

use std::collections::BTreeMap;

use super::EngineError;
use super::cascade::Cascade;
use super::heartbeat::ack_due_up;
use super::report::Together;
use super::scope::rfc3339;
use crate::domain::Timestamp;
use crate::domain::peer::STARTED_AT_VARIABLE;
use crate::domain::protocol::{StartDetails, Verdict};
use crate::domain::step::{StepHead, StepState};
use crate::planted::{Bug, planted};
use crate::store::{Claim, SessionView};

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

    /// Starts what was just assigned to a session that knows no preparation. Its worker confirms the delivery by listing the attempts.
    pub(super) fn start_on_delivery(&mut self, claims: &[Claim]) -> Result<(), EngineError> {
        let mut heads = self
            .tx
            .step_heads(claims.iter().map(|claim| claim.step_id))?;
        let mut together = Together::default();
        for claim in claims {
            let step = heads.remove(&claim.step_id).expect("it was just assigned");
            self.start_attempt(&step, &mut together)?;
        }
        let started = self.tx.start_steps(&together.starting, true, self.now)?;
        assert!(started, "nobody moves a step within our transaction");
        Ok(())
    }

    /// What a session with feature `start_details` is told of an attempt that has started now, or had before.
    pub(super) fn details_of_start(
        &mut self,
        step: &StepHead,
    ) -> Result<StartDetails, EngineError> {
        let known = match step.state {
            StepState::Running => self.tx.step(step.step_id)?.and_then(|step| step.started_at),
            _ => None,
        };
        let context = self.context(step.job_id)?;
        let timeout_ms = context.draft(step).timeout_ms;
        let timeout_ms = timeout_ms.unwrap_or(self.settings.step_timeout_ms);
        Ok(start_details(known.unwrap_or(self.now.wall), timeout_ms))
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

pub(super) fn start_details(started_at: Timestamp, timeout_ms: i64) -> StartDetails {
    let variable = (STARTED_AT_VARIABLE.to_string(), rfc3339(started_at));
    StartDetails {
        started_at,
        timeout_ms,
        env: BTreeMap::from([variable]),
    }
}
