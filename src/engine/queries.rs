//! Read-only views: a job with its steps, and what a step or job gave.

use super::cascade::JobContext;
use super::sealed::{Secrecy, stored_output};
use super::views::step_named;
use super::{Engine, EngineError};
use crate::domain::event::Event;
use crate::domain::job::Job;
use crate::domain::step::{Step, StepKind, StepState};
use crate::domain::{EventSeq, JobId, Json, Timestamp};
use crate::store::{Breach, Tx};

/// Outputs of outputs of child jobs add up; more than this is not given out in one piece.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// A job and its steps, each under the name that people know it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    pub job: Job,
    pub steps: Vec<(String, Step)>,
}

/// A line of the log of the virtual step `_server`. The next ones come after its `seq`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    pub seq: EventSeq,
    pub at: Timestamp,
    pub text: String,
}

impl JobView {
    pub fn step(&self, name: &str) -> Option<&Step> {
        self.steps
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, step)| step)
    }
}

impl Engine {
    pub fn job(&self, job_id: JobId) -> Result<JobView, EngineError> {
        self.store.read(|tx| {
            let (job, context) = load(tx, job_id)?;
            let steps = tx.steps_of_job(job_id)?;
            let steps = steps
                .into_iter()
                .map(|step| (context.name(&step), step))
                .collect();
            Ok(JobView { job, steps })
        })
    }

    pub fn events_of_job(&self, job_id: JobId) -> Result<Vec<Event>, EngineError> {
        const EVENTS_MAX: u32 = 10_000;
        self.store
            .read(|tx| Ok(tx.events_of_job(job_id, EventSeq(0), EVENTS_MAX)?))
    }

    /// The log of the virtual step `_server`: what the server did about this job, line by line.
    pub fn server_log(
        &self,
        job_id: JobId,
        after: EventSeq,
        limit: u32,
    ) -> Result<Vec<LogLine>, EngineError> {
        self.store.read(|tx| {
            tx.job(job_id)?.ok_or(EngineError::JobNotFound { job_id })?;
            let events = tx.events_of_job(job_id, after, limit)?;
            let line = |event: Event| LogLine {
                seq: event.seq,
                at: event.at,
                text: event.fact.message,
            };
            Ok(events.into_iter().map(line).collect())
        })
    }

    /// What a step gave: its own output, of a loop the list of its instances', of a child job what that gave.
    ///
    /// Only the first is stored; the others are made from it whenever somebody asks.
    pub fn output(&self, job_id: JobId, step: &str) -> Result<Option<Json>, EngineError> {
        self.store.read(|tx| {
            let step = step_named(tx, job_id, step)?;
            step_output(tx, &step, &mut Secrecy::Masked)
        })
    }

    /// What a whole job gave: the outputs of the steps that nothing depends on, by name.
    pub fn job_output(&self, job_id: JobId) -> Result<Json, EngineError> {
        self.store
            .read(|tx| output_of_job(tx, job_id, &mut Secrecy::Masked))
    }

    /// Everything in the database that must not be so, if its file is sound.
    pub fn rule_breaches(&self) -> Result<Vec<Breach>, EngineError> {
        self.store.read(|tx| Ok(tx.rule_breaches()?))
    }

    /// Everything in the database that must not be so.
    pub fn breaches(&self) -> Result<Vec<Breach>, EngineError> {
        self.store.read(|tx| Ok(tx.breaches()?))
    }
}

pub(super) fn load(tx: &Tx, job_id: JobId) -> Result<(Job, JobContext), EngineError> {
    let job = tx.job(job_id)?.ok_or(EngineError::JobNotFound { job_id })?;
    let context = JobContext {
        job_id,
        definition_id: job.definition_id,
        definition: tx.definition(job.definition_id)?,
        task_index: job.task_index,
        started: job.started_at.is_some(),
        tally: job.tally,
    };
    Ok((job, context))
}

/// `test[2]` is the third instance of `test`.
pub(super) fn split_name(name: &str) -> (&str, Option<u32>) {
    let instance = name
        .strip_suffix(']')
        .and_then(|name| name.rsplit_once('['));
    match instance.and_then(|(name, item)| Some((name, item.parse().ok()?))) {
        Some((name, item)) => (name, Some(item)),
        None => (name, None),
    }
}

pub(super) fn step_output(
    tx: &Tx,
    step: &Step,
    secrecy: &mut Secrecy,
) -> Result<Option<Json>, EngineError> {
    if step.state != StepState::Completed {
        return Ok(None);
    }
    match step.kind {
        StepKind::Work | StepKind::Approval => stored_output(tx, step, secrecy),
        StepKind::Task => match step.child_job_id {
            Some(child_job_id) => Ok(Some(output_of_job(tx, child_job_id, secrecy)?)),
            None => Ok(None),
        },
        StepKind::Loop => {
            let items = tx.instances(step.job_id, step.position)?.total();
            let mut outputs = Parts::default();
            for item in 0..items {
                let instance = tx.step_at(step.job_id, step.position, Some(item))?;
                let output = match instance {
                    Some(instance) => step_output(tx, &instance, secrecy)?,
                    None => None,
                };
                outputs.add(&output.map_or("null".to_string(), |output| output.0))?;
            }
            Ok(Some(Json(format!("[{}]", outputs.joined))))
        }
    }
}

pub(super) fn output_of_job(
    tx: &Tx,
    job_id: JobId,
    secrecy: &mut Secrecy,
) -> Result<Json, EngineError> {
    let (_, context) = load(tx, job_id)?;
    let task = context.task();
    let mut members = Parts::default();
    for position in (0..task.draft.steps.len() as u32).filter(|&at| task.dependents(at).is_empty())
    {
        let Some(step) = tx.step_at(job_id, position, None)? else {
            continue;
        };
        if let Some(output) = step_output(tx, &step, secrecy)? {
            let name = serde_json::Value::from(task.step(position).name.as_str());
            members.add(&format!("{name}:{}", output.0))?;
        }
    }
    Ok(Json(format!("{{{}}}", members.joined)))
}

/// Outputs put together, with commas between, as long as they are not too much.
#[derive(Default)]
struct Parts {
    joined: String,
}

impl Parts {
    fn add(&mut self, part: &str) -> Result<(), EngineError> {
        if self.joined.len() + part.len() > OUTPUT_BYTES_MAX {
            let fault = format!(
                "is more than {OUTPUT_BYTES_MAX} bytes in all, ask for its steps one by one"
            );
            return Err(EngineError::Invalid {
                place: "output",
                fault,
            });
        }
        if !self.joined.is_empty() {
            self.joined.push(',');
        }
        self.joined.push_str(part);
        Ok(())
    }
}
