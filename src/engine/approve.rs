//! A person decides about a suspended step: an approval, or a step that is held because its worker was lost.

use super::cascade::Cascade;
use super::check::{check_json, check_text};
use super::facts::Facts;
use super::inputs::{fit, refuse_reserved_key};
use super::queries::load;
use super::scope::parsed;
use super::sealed::sealed_entries;
use super::{Engine, EngineError};
use crate::domain::audit::{AUDIT_TEXT_BYTES_MAX, AuditAction, AuditEntry};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::limits;
use crate::domain::reason::Reason;
use crate::domain::step::{Step, StepKind, StepState};
use crate::domain::task::Action;
use crate::domain::{Json, Now, SealId, StepId};
use crate::store::{Ending, Tx};

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
                let (_, context) = load(tx, step.job_id)?;
                return Err(EngineError::NotSuspended {
                    job_id: step.job_id,
                    step: context.name(step),
                    state: step.state,
                });
            }
            let mut cascade = Cascade::new(tx, &settings, now);
            let context = cascade.context(step.job_id)?;
            let name = context.name(step);
            let by = Facts::none().and("by", who.as_str());
            let tell = |kind, text: String, facts: &Facts| {
                let event = NewEvent::new(kind, text).step(step);
                tx.record(&event.data(facts.data()), now)
            };
            let action = match &decision {
                Decision::Approve { .. } => AuditAction::StepApproved,
                Decision::Reject { .. } => AuditAction::StepRejected,
            };
            let decided = AuditEntry::of(action).step(step.job_id, &name);
            let detail = match &decision {
                Decision::Reject { why } => {
                    Facts::none().and("why", limits::clip(why, AUDIT_TEXT_BYTES_MAX))
                }
                Decision::Approve { .. } => Facts::none(),
            };
            tx.audit(&decided.detail(detail.detail()), now)?;
            match &decision {
                Decision::Approve { output } if step.kind == StepKind::Approval => {
                    let seal_id = cascade.job_of(&context)?.seal_id;
                    let action = &context.draft(step).action;
                    let output = entered(tx, seal_id, action, &name, output.as_ref())?;
                    let text = format!("step {name} was approved by {who}");
                    tell(EventKind::StepApproved, text, &by)?;
                    cascade.finish_step(step, Ending::completed(None, output))?;
                }
                Decision::Approve { .. } => {
                    let text = format!("step {name} was resumed by {who}");
                    tell(EventKind::StepResumed, text, &by)?;
                    cascade.resume(step)?;
                }
                Decision::Reject { why } => {
                    let text = format!("rejected by {who}: {why}");
                    let facts = by.and("why", why.as_str());
                    tell(
                        EventKind::StepRejected,
                        format!("step {name} was {text}"),
                        &facts,
                    )?;
                    let reason = match step.kind {
                        StepKind::Approval => Reason::ApprovalRejected,
                        _ => step.reason.unwrap_or(Reason::WorkerLost),
                    };
                    let message = limits::clip(&text, limits::MESSAGE_BYTES_MAX);
                    let ending = Ending {
                        data: facts.data(),
                        ..Ending::failed(reason, message)
                    };
                    cascade.finish_step(step, ending)?;
                }
            }
            cascade.settle()
        })
    }
}

/// What whoever approved has entered, if it fits what was asked for. An approval that asks for nothing takes anything.
fn entered(
    tx: &Tx,
    seal_id: Option<SealId>,
    action: &Action,
    name: &str,
    output: Option<&Json>,
) -> Result<Option<Json>, EngineError> {
    let given = output.map_or(serde_json::Value::Null, parsed);
    let place = format!("step {name}");
    refuse_reserved_key(&place, &given)?;
    match action {
        Action::Approval { inputs, .. } if !inputs.is_empty() => {
            let values = fit(&place, inputs, &given)?;
            let values = sealed_entries(tx, seal_id, name, inputs, values);
            Ok(Some(Json(serde_json::Value::Object(values).to_string())))
        }
        _ => Ok(output.cloned()),
    }
}

impl Cascade<'_> {
    /// Puts a held step back in the queue. Its lost attempt was recorded when the step was held.
    fn resume(&mut self, step: &Step) -> Result<(), EngineError> {
        let resumed = self.tx.resume_step(step, self.now)?;
        assert!(resumed, "nobody moves the step within our transaction");
        Ok(())
    }
}
