//! What time alone makes due: jobs whose `not_before` has come, retries whose delay is over.

use super::cascade::Cascade;
use super::group::Entry;
use super::{Engine, EngineError};
use crate::domain::job::{Hold, Job, JobMove};
use crate::domain::reason::Reason;
use crate::domain::step::{Step, StepKind, StepState};
use crate::domain::{JobId, Now, StepId};

/// One call takes this many of each; the rest comes with the next one.
const BATCH_MAX: u32 = 256;

impl Engine {
    /// Releases what is due and returns how much that was; a full batch means there may be more.
    ///
    /// Each job and step is a transaction of its own, so one that cannot be released does not hold up the others; its
    /// error is returned once they are done.
    pub fn release_due(&self, now: Now) -> Result<usize, EngineError> {
        let (jobs, steps) = self.store.read(|tx| {
            let jobs = tx.due_jobs(now, BATCH_MAX)?;
            let steps = tx.due_retries(now, BATCH_MAX)?;
            Ok::<_, EngineError>((jobs, steps))
        })?;
        let released = jobs
            .into_iter()
            .map(|job_id| self.release_job(job_id, now))
            .chain(
                steps
                    .into_iter()
                    .map(|step_id| self.release_step(step_id, now)),
            );
        let (mut count, mut failed) = (0, None);
        for outcome in released {
            match outcome {
                Ok(released) => count += usize::from(released),
                Err(error) => {
                    log::error!("what is due could not be released: {error}");
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(count), Err)
    }

    fn release_job(&self, job_id: JobId, now: Now) -> Result<bool, EngineError> {
        let settings = self.settings;
        self.write(now, move |tx| {
            let job = tx.job(job_id)?.ok_or(EngineError::JobNotFound { job_id })?;
            let due = job.not_before.is_some_and(|at| at <= now.wall);
            if job.hold != Some(Hold::NotBefore) || !due {
                return Ok(false);
            }
            let mut cascade = Cascade::new(tx, &settings, now);
            cascade.release_due_job(&job)?;
            cascade.settle()?;
            Ok(true)
        })
    }

    fn release_step(&self, step_id: StepId, now: Now) -> Result<bool, EngineError> {
        let settings = self.settings;
        self.write(now, move |tx| {
            let step = tx
                .step(step_id)?
                .ok_or(EngineError::StepNotFound { step_id })?;
            let due = step.not_before_up.is_some_and(|up| up <= now.up);
            if step.state != StepState::Ready || !due {
                return Ok(false);
            }
            let mut cascade = Cascade::new(tx, &settings, now);
            cascade.release_due_step(&step)?;
            cascade.settle()?;
            Ok(true)
        })
    }
}

impl Cascade<'_> {
    fn release_due_job(&mut self, job: &Job) -> Result<(), EngineError> {
        let context = self.context(job.job_id)?;
        match self.enter(&context, job.concurrency_group.as_deref(), job.parent)? {
            Entry::Enter => self.release_held(job, Hold::NotBefore),
            Entry::Hold(hold) => self.hold_job(job.job_id, hold),
            Entry::Skip { message, facts } => {
                self.cancel_open_steps(job.job_id, Reason::OverlapSkipped, &message)?;
                self.end_job(
                    job.job_id,
                    JobMove::Skip,
                    Some((Reason::OverlapSkipped, &message)),
                    &facts,
                )
            }
        }
    }

    fn release_due_step(&mut self, step: &Step) -> Result<(), EngineError> {
        let context = self.context(step.job_id)?;
        match step.kind {
            StepKind::Task => self.dispatch_child(&context, step),
            StepKind::Loop => self.expand_loop(&context, step),
            StepKind::Work | StepKind::Approval => {
                self.tx.wake_step(step, self.now)?;
                Ok(())
            }
        }
    }
}
