//! Why a job is where it is: what has not ended of it, or what ended it, and all of it taken together.

use std::collections::BTreeSet;

use super::queries::load;
use super::why::{Code, Explainer, Why};
use super::{Engine, EngineError};
use crate::domain::job::Job;
use crate::domain::reason::{Reason, Waiting};
use crate::domain::step::{Step, StepState};
use crate::domain::{JobId, Now};

/// Steps of a job whose waiting or ending is explained at once.
const EXPLAINED_MAX: usize = 50;

#[derive(Debug, Clone)]
pub struct JobWhy {
    pub job: Job,
    /// For the job as a whole.
    pub why: Why,
    pub steps: Vec<(String, Step, Why)>,
    /// There are more such steps.
    pub more: bool,
}

impl Engine {
    pub fn why_job(&self, job_id: JobId, now: Now) -> Result<JobWhy, EngineError> {
        self.store.read(|tx| {
            let (job, context) = load(tx, job_id)?;
            let mut steps = tx.steps_of_job(job_id)?;
            let ended = job.state.is_terminal();
            let acts = |step: &Step| match ended {
                true => step.state == StepState::Failed || step.state == StepState::Cancelled,
                false => !step.state.is_terminal() && step.state != StepState::Pending,
            };
            match steps.iter().any(acts) || ended {
                true => steps.retain(acts),
                false => steps.retain(|step| !step.state.is_terminal()),
            }
            let more = steps.len() > EXPLAINED_MAX;
            let explainer = Explainer::new(self, tx, now);
            let mut explained = Vec::new();
            for step in steps.into_iter().take(EXPLAINED_MAX) {
                let why = explainer.why(&job, &context, &step)?;
                explained.push((context.name(&step), step, why));
            }
            let why = match ended {
                true => ended_why(&job),
                false => open_why(&job, &explained),
            };
            Ok(JobWhy {
                job,
                why,
                steps: explained,
                more,
            })
        })
    }
}

fn ended_why(job: &Job) -> Why {
    let (job_id, state) = (job.job_id, job.state);
    let sentence = match &job.message {
        Some(message) => message.clone(),
        None => format!("job {job_id} is {state}"),
    };
    let retry = || format!("stepward retry {job_id}");
    Why {
        code: job.reason.map_or(Code::Completed, Code::Ended),
        sentence,
        facts: Vec::new(),
        outcome: None,
        fix: job.reason.map(|_: Reason| retry()).into_iter().collect(),
    }
}

/// What is nearest to its end speaks for the job; else what waits rather than runs; else the first.
fn open_why(job: &Job, steps: &[(String, Step, Why)]) -> Why {
    let urgency = |(_, _, why): &&(String, Step, Why)| {
        let in_ms = why.outcome.map_or(i64::MAX, |outcome| outcome.in_ms);
        let runs = matches!(why.code, Code::Waiting(Waiting::Running));
        (runs, in_ms)
    };
    let state = format!("job {} is {}", job.job_id, job.state);
    let Some((name, _, first)) = steps.iter().min_by_key(urgency) else {
        return Why {
            code: Code::Waiting(Waiting::Running),
            sentence: state,
            facts: Vec::new(),
            outcome: None,
            fix: Vec::new(),
        };
    };
    let outcomes = steps.iter().filter_map(|(_, _, why)| why.outcome);
    let fixes: BTreeSet<&String> = steps.iter().flat_map(|(_, _, why)| &why.fix).collect();
    let facts = (steps.iter()).map(|(name, _, why)| format!("step {name}: {}", why.sentence));
    Why {
        code: first.code,
        sentence: format!("{state}; step {name}: {}", first.sentence),
        facts: facts.collect(),
        outcome: outcomes.min_by_key(|outcome| outcome.in_ms),
        fix: fixes.into_iter().cloned().collect(),
    }
}
