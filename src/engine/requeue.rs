//! An admin puts a step back in the queue, although its worker holds it: for a worker that hangs and still sends heartbeats.

use super::cascade::Cascade;
use super::check::check_text;
use super::facts::Facts;
use super::poll::AVOID_MS;
use super::queries::load;
use super::{Engine, EngineError};
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::limits;
use crate::domain::step::{Step, StepKind, StepState};
use crate::domain::token::LOCAL;
use crate::domain::{Now, StepId};
use crate::metrics::Assignment;
use crate::store::FormerOutcome;

impl Engine {
    /// Ends the current attempt of an assigned or running step and makes the step ready again. The worker that holds it is told
    /// to stop, and what the old attempt reports later is turned away.
    pub fn requeue_step(&self, step_id: StepId, who: &str, now: Now) -> Result<(), EngineError> {
        check_text("name", who, limits::NAME_BYTES_MAX)?;
        let settings = self.settings;
        let who = who.to_string();
        self.write(now, move |tx| {
            let step = &tx
                .step(step_id)?
                .ok_or(EngineError::StepNotFound { step_id })?;
            if let Some(hint) = obstacle(step) {
                let (_, context) = load(tx, step.job_id)?;
                return Err(EngineError::NotRequeueable {
                    job_id: step.job_id,
                    step: context.name(step),
                    state: step.state,
                    hint,
                });
            }
            let mut cascade = Cascade::new(tx, &settings, now);
            cascade.requeue_by(step, &who)?;
            cascade.settle()
        })
    }
}

/// Why the step cannot be put back in the queue, and what to do instead. `None`: it can.
fn obstacle(step: &Step) -> Option<&'static str> {
    match (step.state, step.kind) {
        (StepState::Assigned, _) | (StepState::Running, StepKind::Work) => None,
        (StepState::Running, StepKind::Task) => {
            Some("it waits for its child job; requeue a step of that job")
        }
        (StepState::Running, _) => Some("it waits for its instances; requeue one of them"),
        (StepState::Pending, _) => Some("it waits for other steps or for its turn"),
        (StepState::Ready, _) if step.not_before_up.is_some() => {
            Some("it waits for its next attempt already")
        }
        (StepState::Ready, _) => Some("it is in the queue already"),
        (StepState::Suspended, StepKind::Approval) => Some("it waits for a decision"),
        (StepState::Suspended, _) => {
            Some("it is held for a decision; approve it with `stepward approve` to run it again")
        }
        (
            StepState::Completed | StepState::Failed | StepState::Skipped | StepState::Cancelled,
            _,
        ) => Some("it has ended; retry its job to run it again"),
    }
}

/// The person as a sentence names them. Without tokens nobody knows who called.
pub(super) fn named(who: &str) -> &str {
    match who {
        LOCAL => "a person",
        who => who,
    }
}

impl Cascade<'_> {
    fn requeue_by(&mut self, step: &Step, who: &str) -> Result<(), EngineError> {
        let context = self.context(step.job_id)?;
        let what = Assignment::RequeuedByUser.as_str();
        let text = format!("requeued by {}", named(who));
        let (moved, outcome) = match step.state {
            StepState::Assigned => {
                let moved = self.tx.requeue_step(step, self.now)?;
                if let Some(worker_id) = step.worker_id {
                    let until_up = self.now.up.plus_ms(AVOID_MS);
                    self.tx.avoid(step.step_id, worker_id, until_up)?;
                }
                (moved, FormerOutcome::Returned)
            }
            _ => {
                let moved = self.tx.retry_step(step, None, self.now)?;
                (moved, FormerOutcome::Failed)
            }
        };
        assert!(moved, "nobody moves the step within our transaction");
        self.tx
            .record_former_attempt(step, outcome, what, &text, None, self.now)?;
        let name = context.name(step);
        let facts = Facts::none()
            .and("what", what)
            .and("by", who)
            .and("was", step.state.as_str());
        let text = format!("step {name} is ready again: {text}");
        let requeued = AuditEntry::of(AuditAction::StepRequeued).step(step.job_id, &name);
        self.tx.audit(&requeued, self.now)?;
        let event = NewEvent::new(EventKind::StepRequeued, text).step(step);
        self.tell(event.data(facts.data()))
    }
}
