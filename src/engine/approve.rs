//! A person decides about a suspended step: an approval, or a step that is held because its worker was lost.

use super::cascade::Cascade;
use super::check::{check_json, check_text};
use super::{Engine, EngineError};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::limits;
use crate::domain::reason::Reason;
use crate::domain::step::{Step, StepHead, StepKind, StepState};
use crate::domain::{Json, Now, StepId};
use crate::store::{Ending, FormerOutcome};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// An approval completes, with what was entered as its output; a held step runs again.
    Approve {
        output: Option<Json>,
    },
    Reject {
        why: String,
    },
}

impl Engine {
    pub fn decide(
        &self,
        step_id: StepId,
        decision: Decision,
        who: &str,
        now: Now,
    ) -> Result<(), EngineError> {
        check_text("name", who, limits::NAME_BYTES_MAX)?;
        match &decision {
            Decision::Approve {
                output: Some(output),
            } => {
                check_json("output", output, limits::OUTPUT_BYTES_MAX)?;
            }
            Decision::Approve { output: None } => {}
            Decision::Reject { why } => check_text("reason", why, limits::MESSAGE_BYTES_MAX)?,
        }
        let settings = self.settings;
        let who = who.to_string();
        self.write(now, move |tx| {
            let step = &tx
                .step(step_id)?
                .ok_or(EngineError::StepNotFound { step_id })?;
            if step.state != StepState::Suspended {
                return Err(EngineError::NotSuspended {
                    step_id,
                    state: step.state,
                });
            }
            let mut cascade = Cascade::new(tx, &settings, now);
            let context = cascade.context(step.job_id)?;
            let name = context.name(step);
            match &decision {
                Decision::Approve { output } if step.kind == StepKind::Approval => {
                    let event = told(
                        EventKind::StepApproved,
                        step,
                        format!("step {name} was approved by {who}"),
                    );
                    tx.record(&event, now)?;
                    cascade.finish_step(step, Ending::completed(None, output.clone()))?;
                }
                Decision::Approve { .. } => {
                    let event = told(
                        EventKind::StepResumed,
                        step,
                        format!("step {name} was resumed by {who}"),
                    );
                    tx.record(&event, now)?;
                    cascade.resume(step)?;
                }
                Decision::Reject { why } => {
                    let text = format!("rejected by {who}: {why}");
                    let event = told(
                        EventKind::StepRejected,
                        step,
                        format!("step {name} was {text}"),
                    );
                    tx.record(&event, now)?;
                    let reason = match step.kind {
                        StepKind::Approval => Reason::ApprovalRejected,
                        _ => step.reason.unwrap_or(Reason::WorkerLost),
                    };
                    let message = limits::clip(&text, limits::MESSAGE_BYTES_MAX);
                    let ending = Ending::failed(reason, message);
                    cascade.finish_step(step, ending)?;
                }
            }
            cascade.settle()
        })
    }
}

fn told(kind: EventKind, step: &StepHead, text: String) -> NewEvent {
    NewEvent::new(kind, text).step(step)
}

impl Cascade<'_> {
    fn resume(&mut self, step: &Step) -> Result<(), EngineError> {
        let resumed = self.tx.resume_step(step, self.now)?;
        assert!(resumed, "nobody moves the step within our transaction");
        let reason = step.reason.unwrap_or(Reason::WorkerLost);
        let message = step.message.as_deref().unwrap_or_default();
        self.tx.record_former_attempt(
            step,
            FormerOutcome::Failed,
            reason.as_str(),
            message,
            None,
            self.now,
        )?;
        Ok(())
    }
}
