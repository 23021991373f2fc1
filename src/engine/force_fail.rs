//! An admin fails a step that has not ended, with a sentence that says why.

use super::cascade::Cascade;
use super::check::check_text;
use super::facts::Facts;
use super::queries::load;
use super::requeue::named;
use super::{Engine, EngineError};
use crate::domain::audit::{AUDIT_TEXT_BYTES_MAX, AuditAction, AuditEntry};
use crate::domain::limits;
use crate::domain::reason::Reason;
use crate::domain::step::{Step, StepKind, StepState};
use crate::domain::{Now, StepId};
use crate::store::Ending;

/// The reason, as the command line and the API name it.
const WHY: &str = "the message (--message, in the API: why)";

impl Engine {
    /// Fails a ready, assigned, running or suspended step. The step is not retried; what depends on it follows as after any
    /// failure. A worker that runs it is told to stop, and a child job of it is cancelled.
    pub fn fail_step(
        &self,
        step_id: StepId,
        who: &str,
        why: &str,
        now: Now,
    ) -> Result<(), EngineError> {
        check_text("name", who, limits::NAME_BYTES_MAX)?;
        let why = why.trim();
        check_text(WHY, why, limits::MESSAGE_BYTES_MAX)?;
        let settings = self.settings;
        let (who, why) = (who.to_string(), why.to_string());
        self.write(now, move |tx| {
            let step = &tx
                .step(step_id)?
                .ok_or(EngineError::StepNotFound { step_id })?;
            if let Some(hint) = obstacle(step) {
                let (_, context) = load(tx, step.job_id)?;
                return Err(EngineError::NotFailable {
                    job_id: step.job_id,
                    step: context.name(step),
                    state: step.state,
                    hint,
                });
            }
            let mut cascade = Cascade::new(tx, &settings, now);
            cascade.fail_by(step, &who, &why)?;
            cascade.settle()
        })
    }
}

/// Why the step cannot be failed, and what to do instead. `None`: it can.
fn obstacle(step: &Step) -> Option<&'static str> {
    match (step.state, step.kind) {
        (StepState::Running, StepKind::Loop) => {
            Some("it waits for its instances; fail them, or cancel the job")
        }
        (StepState::Ready | StepState::Assigned | StepState::Running | StepState::Suspended, _) => {
            None
        }
        (StepState::Pending, _) => Some("it waits for other steps or for its turn; cancel the job"),
        (
            StepState::Completed | StepState::Failed | StepState::Skipped | StepState::Cancelled,
            _,
        ) => Some("it has ended"),
    }
}

impl Cascade<'_> {
    fn fail_by(&mut self, step: &Step, who: &str, why: &str) -> Result<(), EngineError> {
        let context = self.context(step.job_id)?;
        let message = format!("failed by {}: {why}", named(who));
        let message = limits::clip(&message, limits::MESSAGE_BYTES_MAX);
        let facts = Facts::none().and("by", who).and("why", why);
        let ending = Ending {
            data: facts.data(),
            ..Ending::failed(Reason::FailedByUser, message)
        };
        let detail = Facts::none()
            .and("why", limits::clip(why, AUDIT_TEXT_BYTES_MAX))
            .detail();
        let entry = AuditEntry::of(AuditAction::StepFailed).step(step.job_id, &context.name(step));
        self.tx.audit(&entry.detail(detail), self.now)?;
        let failed = self.finish_step(step, ending)?;
        assert!(failed, "nobody moves the step within our transaction");
        if let (StepKind::Task, Some(child_job_id)) = (step.kind, step.child_job_id)
            && step.state == StepState::Running
        {
            let (name, job_id) = (context.name(step), step.job_id);
            let message =
                format!("step {name} of its parent, job {job_id}, was failed by a person");
            let facts = Facts::none()
                .and("parent_job_id", job_id.0)
                .and("parent_step", name);
            self.cancel_job(child_job_id, Reason::CancelledByParent, &message, facts)?;
        }
        Ok(())
    }
}
