//! What a task wants done about an outcome: a job of its own, or a message to somebody. In the transaction that makes the
//! outcome, so exactly once, whoever made it: a report, a person, recovery.

use serde_json::{Map, Value, json};

use super::EngineError;
use super::cascade::{Cascade, JobContext};
use super::create::JobPlan;
use super::facts::Facts;
use super::inputs::{JobInput, sentence};
use super::retry::Carried;
use super::scope::{Names, Rendered, parsed, render_input, rfc3339, texts_in};
use super::sealed::Secrecy;
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::job::{Job, Source};
use crate::domain::limits::{self, clip, shorten};
use crate::domain::task::{HookDoes, HookOn};
use crate::domain::{EventSeq, JobId, Json, StepId};

/// Failed steps that a hook is told of.
const FAILED_STEPS_MAX: u32 = 20;

/// An outcome whose hooks have not run yet.
pub(super) struct Hooked {
    job_id: JobId,
    on: HookOn,
    /// Of `on_suspended`.
    step_id: Option<StepId>,
    /// What told it.
    event: EventSeq,
}

impl Cascade<'_> {
    /// An outcome that was just recorded. Its hooks run when all that this event sets in motion has come to rest: a job that is
    /// made in the middle of it could cancel the very job that is being moved.
    pub(super) fn note_hooks(&mut self, context: &JobContext, on: HookOn, step_id: Option<StepId>) {
        let hooks = &context.task().draft.hooks;
        if hooks.iter().any(|hook| hook.on == on) {
            let event = self.tx.recorded_last().expect("hooks follow an event");
            self.outcomes_to_hook.push_back(Hooked {
                job_id: context.job_id,
                on,
                step_id,
                event,
            });
        }
    }

    /// Carries out all hooks of an outcome. A hook that cannot be carried out is told; it changes nothing else.
    pub(super) fn run_hooks(&mut self, hooked: Hooked) -> Result<(), EngineError> {
        let Hooked {
            job_id,
            on,
            step_id,
            event,
        } = hooked;
        let context = &self.context(job_id)?;
        let hooks = &context.task().draft.hooks;
        let job = self.job_of(context)?;
        if job.source == Source::Hook {
            // A hook that fires hooks could go on for ever.
            return Ok(());
        }
        for (index, hook) in hooks.iter().enumerate() {
            match &hook.does {
                _ if hook.on != on => {}
                HookDoes::Notify { target } => self.notify(job_id, event, target)?,
                HookDoes::Job { task, input } => {
                    if let Err(why) = self.make_hook_job(context, &job, step_id, index, input)? {
                        let text = format!("hook {task} of {on} could not run: {why}");
                        let facts = Facts::none()
                            .and("hook", task.as_str())
                            .and("on", on.as_str());
                        let event = NewEvent::new(EventKind::HookFailed, text).job(job.job_id);
                        self.tx.record(&event.data(facts.data()), self.now)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Leaves the outcome for the target of a hook, whether it subscribed to it or not.
    fn notify(&self, job_id: JobId, outcome: EventSeq, target: &str) -> Result<(), EngineError> {
        if self.tx.target(target).is_some() {
            return Ok(self.tx.post(outcome, target, Some(job_id), self.now)?);
        }
        let text = format!(
            "a hook of job {job_id} would tell {}, which the settings do not have: add it under notify",
            shorten(target)
        );
        let event = NewEvent::new(EventKind::HookFailed, text).job(job_id);
        let facts = Facts::none().and("target", target);
        Ok(self.tx.record(&event.data(facts.data()), self.now)?)
    }

    fn make_hook_job(
        &mut self,
        context: &JobContext,
        job: &Job,
        step_id: Option<StepId>,
        hook: usize,
        input: &Json,
    ) -> Result<Result<(), String>, EngineError> {
        let names = match Names::of(texts_in(&parsed(input)).iter().map(String::as_str)) {
            Ok(names) => names,
            Err(fault) => return Ok(Err(fault.message)),
        };
        let task_index = context.task().hook_calls(hook);
        let task_index = task_index.expect("checked with the definition");
        let specs = &context.definition.task(task_index).draft.inputs;
        let Value::Object(values) = parsed(input) else {
            return Ok(Err("its input is not a map".to_string()));
        };
        let facts = self.facts_of(context, job, step_id)?;
        let mut scope_for = |mut secrecy: Secrecy| -> Rendered<Map<String, Value>> {
            let scope = self.values_of_job(context, job, 1, &names, &mut secrecy)?;
            Ok(scope.map(|mut scope| {
                scope.insert("hook".to_string(), facts.clone());
                scope
            }))
        };
        let rendered = render_input(&mut scope_for, values, specs)?;
        let input = match rendered {
            Ok(input) => Json(input.to_string()),
            Err(failure) => return Ok(Err(failure.message)),
        };
        let made = self.create_job(JobPlan {
            definition_id: context.definition_id,
            definition: context.definition.clone(),
            task_index,
            source: Source::Hook,
            input: JobInput::Given(input),
            labels: job.labels.clone(),
            priority: job.priority,
            parent: None,
            depth: 0,
            hook_of: Some(job.job_id),
            schedule_id: None,
            scheduled_for: job.scheduled_for,
            not_before: None,
            carried: Carried::default(),
        });
        match made {
            Ok(_) => Ok(Ok(())),
            Err(EngineError::InputInvalid { violations, .. }) => Ok(Err(sentence(&violations))),
            Err(error) => Err(error),
        }
    }

    /// What a hook is told of the outcome.
    fn facts_of(
        &self,
        context: &JobContext,
        job: &Job,
        step_id: Option<StepId>,
    ) -> Result<Value, EngineError> {
        let step = match step_id {
            Some(step_id) => self.tx.step(step_id)?,
            None => None,
        };
        let status = match &step {
            Some(step) => step.state.as_str(),
            None => job.state.as_str(),
        };
        let message = match &step {
            Some(step) => step.message.as_deref(),
            None => job.message.as_deref(),
        };
        let step_name = step.as_ref().map(|step| context.name(step));
        let subject = match &step_name {
            Some(step) => format!("{} (job {}), step {step}: {status}", job.task, job.job_id),
            None => format!("{} (job {}): {status}", job.task, job.job_id),
        };
        let summary = match message {
            Some(message) if !message.is_empty() => format!("{subject}: {message}"),
            _ => subject,
        };
        let failed = self.tx.failed_steps(job.job_id, FAILED_STEPS_MAX)?;
        let failed = failed.iter().map(|step| {
            json!({
                "name": context.name(step),
                "reason": step.reason.map(|reason| reason.as_str()),
                "message": step.message,
            })
        });
        Ok(json!({
            "job": job.job_id.0,
            "task": job.task,
            "status": status,
            "step": step_name,
            "reason": job.reason.map(|reason| reason.as_str()),
            "message": message,
            "summary": clip(&summary, limits::MESSAGE_BYTES_MAX),
            "failed_steps": failed.collect::<Vec<Value>>(),
            "created_at": rfc3339(job.created_at),
            "started_at": job.started_at.map(rfc3339),
            "ended_at": job.ended_at.map(rfc3339),
            "url": format!("{}/jobs/{}", self.tx.public_url(), job.job_id),
        }))
    }
}
