//! The end of a job: told, its hooks posted, its group's next one let in, its parent's step moved; all in one transaction.

use super::EngineError;
use super::cascade::{Cascade, Failure, JobContext};
use super::facts::Facts;
use crate::domain::JobId;
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::job::{Job, JobMove, TallyChange};
use crate::domain::reason::Reason;
use crate::domain::step::{StepMove, StepState};
use crate::domain::task::HookOn;
use crate::store::Ending;

impl Cascade<'_> {
    /// All steps of a job have ended.
    pub(super) fn settle_job(
        &mut self,
        job_id: JobId,
        job_move: JobMove,
    ) -> Result<(), EngineError> {
        let context = self.context(job_id)?;
        match job_move {
            JobMove::Fail => {
                let (reason, message, facts) = self.first_failure(&context)?;
                self.end_job(job_id, job_move, Some((reason, &message)), &facts)
            }
            JobMove::Cancel => {
                let name = match self.tx.first_cancelled(job_id)? {
                    Some(position) => context.task().step(position).name.clone(),
                    None => "a step".to_string(),
                };
                let message = format!("step {name} was cancelled");
                let why = Some((Reason::ChildCancelled, message.as_str()));
                self.end_job(job_id, job_move, why, &Facts::none().and("step", name))
            }
            _ => self.end_job(job_id, job_move, None, &Facts::none()),
        }
    }

    fn first_failure(
        &mut self,
        context: &JobContext,
    ) -> Result<(Reason, String, Facts), EngineError> {
        let job = self.tx.job(context.job_id)?.expect("it was just counted");
        let step_id = job.failed_step_id.expect("a job fails because a step did");
        let step = self.tx.step(step_id)?.expect("the job points at it");
        let reason = step.reason.expect("a failed step has a reason");
        let message = step.message.as_deref().unwrap_or_default();
        let name = context.name(&step);
        let message = format!("step {name} failed: {message}");
        let facts = Facts::none()
            .and("step", name)
            .and("failed", job.tally.failed);
        Ok((reason, message, facts))
    }

    /// Ends a job whose steps have all ended, and everything that follows from it.
    pub(super) fn end_job(
        &mut self,
        job_id: JobId,
        job_move: JobMove,
        why: Option<(Reason, &str)>,
        facts: &Facts,
    ) -> Result<(), EngineError> {
        let job = self
            .tx
            .job(job_id)?
            .ok_or(EngineError::JobNotFound { job_id })?;
        let ended = self.tx.end_job(&job, job_move, why, self.now)?;
        assert!(ended, "nobody moves job {job_id} within our transaction");
        let context = self.context(job_id)?;

        let (kind, state) = match job_move {
            JobMove::Complete => (EventKind::JobCompleted, "completed"),
            JobMove::Fail => (EventKind::JobFailed, "failed"),
            JobMove::Cancel => (EventKind::JobCancelled, "cancelled"),
            JobMove::Skip => (EventKind::JobSkipped, "skipped"),
            JobMove::Start => unreachable!("a start is no end"),
        };
        let text = match why {
            None => format!("job {job_id} {state}"),
            Some((_, message)) => format!("job {job_id} {state}: {message}"),
        };
        let mut event = NewEvent::new(kind, text).job(job_id);
        event.reason = why.map(|(reason, _)| reason);
        self.tell(event.data(facts.data()))?;

        match job_move {
            JobMove::Complete => self.note_hooks(&context, HookOn::Success, None),
            JobMove::Fail => self.note_hooks(&context, HookOn::Error, None),
            JobMove::Cancel => self.note_hooks(&context, HookOn::Cancel, None),
            JobMove::Skip | JobMove::Start => {}
        }
        // Whoever waits for its place comes in when all that this event ends has ended, not in the middle of it.
        self.freed_groups.extend(job.concurrency_group.clone());
        self.tell_parent(&job, job_move, why)
    }

    /// A child's end becomes its parent step's, unless that step has gone on without it.
    fn tell_parent(
        &mut self,
        job: &Job,
        job_move: JobMove,
        why: Option<(Reason, &str)>,
    ) -> Result<(), EngineError> {
        let Some(parent) = job.parent else {
            return Ok(());
        };
        let step = &self
            .tx
            .step(parent.step_id)?
            .ok_or(EngineError::StepNotFound {
                step_id: parent.step_id,
            })?;
        if step.state != StepState::Running
            || step.attempt != parent.attempt
            || step.child_job_id != Some(job.job_id)
        {
            return Ok(());
        }
        let context = self.context(step.job_id)?;
        let message = why.map(|(_, message)| message).unwrap_or_default();
        let child = job.job_id;
        // That nobody wanted it any more is one thing, that it took too long is a failure.
        let reason = why.map(|(reason, _)| reason);
        let ran_out_of_time = matches!(reason, Some(Reason::JobTimeout | Reason::QueueTimeout));
        match job_move {
            JobMove::Complete => {
                self.finish_step(step, Ending::completed(None, None))?;
            }
            JobMove::Cancel if !ran_out_of_time => {
                let text = format!("child job {child} was cancelled: {message}");
                let ending = Ending {
                    step_move: StepMove::Cancel,
                    ..Ending::failed(Reason::ChildCancelled, text)
                };
                self.finish_step(step, ending)?;
            }
            JobMove::Fail | JobMove::Skip | JobMove::Cancel => {
                let state = match job_move {
                    JobMove::Fail => "failed",
                    JobMove::Skip => "was skipped",
                    _ => "was cancelled",
                };
                let text = format!("child job {child} {state}: {message}");
                self.fail_or_retry(&context, step, Failure::of_child(child, text))?;
            }
            JobMove::Start => unreachable!("a start is no end"),
        }
        Ok(())
    }

    /// Ends a job and all that is open in it and below it, whatever its steps were doing.
    pub(super) fn cancel_job(
        &mut self,
        job_id: JobId,
        reason: Reason,
        message: &str,
        facts: Facts,
    ) -> Result<(), EngineError> {
        let mut unvisited = vec![(job_id, reason, message.to_string(), facts)];
        while let Some((job_id, reason, message, facts)) = unvisited.pop() {
            let job = self
                .tx
                .job(job_id)?
                .ok_or(EngineError::JobNotFound { job_id })?;
            if job.state.is_terminal() {
                continue;
            }
            let children = self.cancel_open_steps(job_id, reason, &message)?;
            self.end_job(job_id, JobMove::Cancel, Some((reason, &message)), &facts)?;
            for child in children {
                let message = format!("its parent, job {job_id}, was cancelled");
                let facts = Facts::none().and("parent_job_id", job_id.0);
                unvisited.push((child, Reason::CancelledByParent, message, facts));
            }
        }
        Ok(())
    }

    /// Cancels and counts all open steps of a job, so that it can end; the child jobs they had.
    pub(super) fn cancel_open_steps(
        &mut self,
        job_id: JobId,
        reason: Reason,
        message: &str,
    ) -> Result<Vec<JobId>, EngineError> {
        let (cancelled, children) = self.tx.cancel_steps(job_id, reason, message, self.now)?;
        let uncounted = self.uncounted.remove(&job_id).unwrap_or_default();
        let change = TallyChange {
            ended: uncounted.ended + cancelled,
            cancelled: uncounted.cancelled + cancelled,
            ..uncounted
        };
        self.count(job_id, change)?;
        Ok(children)
    }
}
