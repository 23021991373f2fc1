//! What time alone makes due: jobs whose `not_before` has come, retries whose delay is over.

use super::cascade::Cascade;
use super::create::Entry;
use super::{Engine, EngineError};
use crate::domain::Now;
use crate::domain::job::{Hold, Job, JobMove};
use crate::domain::reason::Reason;
use crate::domain::step::StepKind;

/// One transaction takes this many; the rest comes with the next call.
const BATCH_MAX: u32 = 256;

impl Engine {
    /// Releases what is due and returns how much that was; a full batch means there may be more.
    pub fn release_due(&self, now: Now) -> Result<usize, EngineError> {
        // Nothing is due most of the time, and a look does not need the writer.
        let due = self.store.read(|tx| {
            Ok::<_, EngineError>(tx.due_jobs(now, 1)?.len() + tx.due_retries(now, 1)?.len())
        })?;
        if due == 0 {
            return Ok(0);
        }
        let settings = self.settings;
        self.store.write(move |tx| {
            let mut cascade = Cascade::new(tx, &settings, now);
            let jobs = tx.due_jobs(now, BATCH_MAX)?;
            for job in &jobs {
                cascade.release_due_job(job)?;
            }
            let steps = tx.due_retries(now, BATCH_MAX)?;
            for step in &steps {
                if step.kind == StepKind::Task {
                    let context = cascade.context(step.job_id)?;
                    cascade.dispatch_child(&context, step)?;
                } else {
                    tx.wake_step(step, now)?;
                }
            }
            cascade.settle()?;
            Ok(jobs.len() + steps.len())
        })
    }
}

impl Cascade<'_> {
    fn release_due_job(&mut self, job: &Job) -> Result<(), EngineError> {
        let context = self.context(job.job_id)?;
        match self.enter(&context, job.parent)? {
            Entry::Enter => self.release_held(job, Hold::NotBefore),
            Entry::Hold(hold) => self.hold_job(job.job_id, hold),
            Entry::Skip { message } => {
                self.cancel_open_steps(job.job_id, Reason::OverlapSkipped, &message)?;
                self.end_job(
                    job.job_id,
                    JobMove::Skip,
                    Some((Reason::OverlapSkipped, &message)),
                )
            }
        }
    }
}
