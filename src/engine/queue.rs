//! What waits, and why: page by page, each out of one snapshot.

use super::cascade::JobContext;
use super::queries::load;
use super::why::{Explainer, Why};
use super::{Engine, EngineError};
use crate::domain::job::Job;
use crate::domain::step::Step;
use crate::domain::{JobId, Now};
use crate::store::QueuePlace;

#[derive(Debug, Clone)]
pub struct WaitingStep {
    pub job_id: JobId,
    pub task: String,
    pub name: String,
    pub step: Step,
    pub required_tags: Vec<String>,
    /// Milliseconds since it got its place in the queue.
    pub age_ms: i64,
    pub why: Why,
}

impl Engine {
    /// What waits for a worker, for a person, for its next try, for its turn; and where to go on.
    pub fn queue(
        &self,
        after: Option<QueuePlace>,
        limit: u32,
        now: Now,
    ) -> Result<(Vec<WaitingStep>, Option<QueuePlace>), EngineError> {
        self.store.read(|tx| {
            let explainer = Explainer::new(self, tx, now);
            let places = tx.waiting_steps(after, limit)?;
            let mut waiting = Vec::with_capacity(places.len());
            // Steps of one job often wait together. Only one is kept: a job may be large.
            let mut last: Option<(Job, JobContext)> = None;
            for (_, step_id) in &places {
                let Some(step) = tx.step(*step_id)? else {
                    continue;
                };
                let of_last = last.take().filter(|(job, _)| job.job_id == step.job_id);
                let (job, context) = match of_last {
                    Some(same) => last.insert(same),
                    None => last.insert(load(tx, step.job_id)?),
                };
                waiting.push(WaitingStep {
                    job_id: job.job_id,
                    task: job.task.clone(),
                    name: context.name(&step),
                    required_tags: context.draft(&step).required_tags(),
                    // An assignment that came back kept its place, and its age.
                    age_ms: (now.up.0 - step.queued_up.unwrap_or(step.since_up).0)
                        .max(step.since_ms(job.created_at, now)),
                    why: explainer.why(job, context, &step)?,
                    step,
                });
            }
            let is_full = places.len() == limit as usize;
            let next = places.last().map(|(place, _)| *place);
            Ok((waiting, next.filter(|_| is_full)))
        })
    }
}
