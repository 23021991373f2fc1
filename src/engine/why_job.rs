//! Why a job is where it is: what has not ended of it, or what ended it, and all of it taken together.

use std::collections::BTreeMap;

use super::queries::load;
use super::why::{Code, Explainer, Fact, StepWhy, Why, shell_word};
use super::why_ended::root_of_job;
use super::{Engine, EngineError};
use crate::domain::job::Job;
use crate::domain::reason::{Reason, Waiting};
use crate::domain::step::{Step, StepState};
use crate::domain::{JobId, Now};
use crate::store::Tx;

/// Steps of a job whose waiting or ending is explained at once.
const EXPLAINED_MAX: usize = 50;

#[derive(Debug, Clone)]
pub struct JobWhy {
    pub job: Job,
    /// For the job as a whole.
    pub why: Why,
    pub steps: Vec<StepWhy>,
    /// So many more such steps there are.
    pub more: usize,
    /// How many steps are where.
    pub counts: BTreeMap<StepState, usize>,
}

impl Engine {
    pub fn why_job(&self, job_id: JobId, now: Now) -> Result<JobWhy, EngineError> {
        self.store.read(|tx| {
            let (job, context) = load(tx, job_id)?;
            let mut steps = tx.steps_of_job(job_id)?;
            let mut counts = BTreeMap::new();
            for step in &steps {
                *counts.entry(step.state).or_default() += 1;
            }
            let root_cause = root_of_job(tx, &job, &context)?;
            choose(&job, &mut steps);
            steps.sort_by_key(|step| {
                let is_root = root_cause.as_ref().is_some_and(|root| {
                    (root.job_id, root.step.as_str()) == (job_id, context.name(step).as_str())
                });
                (place(&job, step), !is_root)
            });
            let more = steps.len().saturating_sub(EXPLAINED_MAX);
            let explainer = Explainer::in_full(self, tx, now);
            let mut explained = Vec::new();
            for step in steps.into_iter().take(EXPLAINED_MAX) {
                explained.push(explainer.step(&job, &context, step)?);
            }
            let mut why = match job.state.is_terminal() {
                true => ended_why(tx, &job)?,
                false => open_why(&job, &explained),
            };
            why.root_cause = root_cause;
            Ok(JobWhy {
                job,
                why,
                steps: explained,
                more,
                counts,
            })
        })
    }
}

/// What has not ended, or what did not complete. What waits for other steps only matters if nothing else is open.
fn choose(job: &Job, steps: &mut Vec<Step>) {
    let acts = |step: &Step| !step.state.is_terminal() && step.state != StepState::Pending;
    let some_act = steps.iter().any(acts);
    steps.retain(|step| match step.state {
        StepState::Completed => false,
        StepState::Failed => true,
        StepState::Cancelled | StepState::Skipped => job.state.is_terminal(),
        StepState::Pending => !some_act,
        StepState::Ready | StepState::Assigned | StepState::Running | StepState::Suspended => true,
    });
}

/// What is open comes first, then what went wrong by itself, then what that did to others.
fn place(job: &Job, step: &Step) -> u8 {
    match (step.state, step.reason) {
        _ if !step.state.is_terminal() => 0,
        (StepState::Failed, Some(Reason::ChildFailed | Reason::InstanceFailed)) => 2,
        (StepState::Failed, _) => 1,
        // With its job, which says why.
        (StepState::Cancelled, _) if step.message == job.message => 5,
        (StepState::Cancelled, _) => 3,
        _ => 4,
    }
}

fn ended_why(tx: &Tx, job: &Job) -> Result<Why, EngineError> {
    let (job_id, state) = (job.job_id, job.state);
    let sentence = match &job.message {
        Some(message) => message.clone(),
        None => format!("job {job_id} is {state}"),
    };
    let code = job.reason.map_or(Code::Completed, Code::Ended);
    Ok(Why {
        fix: ended_fix(tx, job)?,
        ..Why::of(code, sentence)
    })
}

fn ended_fix(tx: &Tx, job: &Job) -> Result<Vec<String>, EngineError> {
    use Reason::*;
    let task = shell_word(&job.task);
    let mut fix = Vec::new();
    match job.reason {
        None | Some(Superseded | OverlapSkipped) => {}
        // What it runs is frozen: a retry would do the same.
        Some(TemplateError | PayloadError) => fix.push(format!(
            "mend task {task} in its file, then: stepward run {task}"
        )),
        // It is the job above all that can go on where this one did not.
        Some(_) => {
            let top = top_of(tx, job)?;
            if top.state.is_terminal() && top.reason.is_some() {
                fix.push(format!("stepward retry {}", top.job_id));
            }
        }
    }
    if job.reason == Some(JobTimeout) {
        fix.push(format!(
            "give it a longer timeout in its file, then: stepward run {task}"
        ));
    }
    Ok(fix)
}

fn top_of(tx: &Tx, job: &Job) -> Result<Job, EngineError> {
    let mut top = job.clone();
    while let Some(parent) = top.parent {
        let above = match tx.step(parent.step_id)? {
            Some(step) => tx.job(step.job_id)?,
            None => None,
        };
        match above {
            Some(above) => top = above,
            None => break,
        }
    }
    Ok(top)
}

/// What is nearest to its end speaks for the job; else what waits rather than runs; else the first.
fn open_why(job: &Job, steps: &[StepWhy]) -> Why {
    let urgency = |step: &&StepWhy| {
        let in_ms = step.why.outcome.map_or(i64::MAX, |outcome| outcome.in_ms);
        let runs = matches!(step.why.code, Code::Waiting(Waiting::Running));
        (runs, in_ms)
    };
    let state = format!("job {} is {}", job.job_id, job.state);
    let open = || steps.iter().filter(|step| !step.step.state.is_terminal());
    let Some(first) = open().min_by_key(urgency) else {
        return Why::of(Code::Waiting(Waiting::Running), state);
    };
    let mut fix: Vec<String> = Vec::new();
    for line in open().flat_map(|step| &step.why.fix) {
        if !fix.contains(line) {
            fix.push(line.clone());
        }
    }
    let outcomes = open().filter_map(|step| step.why.outcome);
    let facts = open().map(|step| format!("step {}: {}", step.name, step.why.sentence));
    Why {
        facts: facts.map(Fact::from).collect(),
        outcome: outcomes.min_by_key(|outcome| outcome.in_ms),
        fix,
        ..Why::of(
            first.why.code,
            format!("{state}; step {}: {}", first.name, first.why.sentence),
        )
    }
}
