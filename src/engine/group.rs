//! Concurrency groups: who may come in, who waits, who comes in next.

use super::EngineError;
use super::cascade::{Cascade, JobContext};
use super::facts::Facts;
use super::scope::{declared, parsed};
use super::sealed::masked_input;
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::job::{Hold, Job, ParentStep};
use crate::domain::limits;
use crate::domain::reason::Reason;
use crate::domain::task::{TaskDraft, WhenFull};
use crate::domain::{JobId, Json};
use crate::language::template::{Context, render_text};
use crate::language::values::Violation;

/// What a concurrency group says to a job.
pub(super) enum Entry {
    Enter,
    Hold(Hold),
    Skip { message: String, facts: Facts },
}

impl Cascade<'_> {
    /// Asks the job's concurrency group for a place.
    pub(super) fn enter(
        &mut self,
        context: &JobContext,
        group: Option<&str>,
        parent: Option<ParentStep>,
    ) -> Result<Entry, EngineError> {
        let (Some(concurrency), Some(group)) = (&context.task().draft.concurrency, group) else {
            return Ok(Entry::Enter);
        };
        if let Some(parent) = parent
            && self.tx.has_ancestor_in_group(parent, group)?
        {
            return Ok(Entry::Enter);
        }
        // The job itself is in the group already, not held: it was just inserted or released.
        let others: Vec<JobId> = self
            .tx
            .group_running(group)?
            .into_iter()
            .filter(|&job_id| job_id != context.job_id)
            .collect();
        if (others.len() as u32) < concurrency.limit {
            let someone_waits = self.tx.next_in_group(group)?.is_some();
            if concurrency.when_full != WhenFull::Queue || !someone_waits {
                return Ok(Entry::Enter);
            }
            // Nobody goes past those that wait; whose turn it is, is seen when this event is done.
            self.freed_groups.insert(group.to_string());
            return Ok(Entry::Hold(Hold::Concurrency));
        }
        match concurrency.when_full {
            WhenFull::Queue => Ok(Entry::Hold(Hold::Concurrency)),
            WhenFull::Skip => Ok(Entry::Skip {
                message: format!(
                    "group {group} is full: job {} is in it, the limit is {}",
                    others[0], concurrency.limit
                ),
                facts: Facts::none()
                    .and("group", group)
                    .and("group_job_id", others[0].0)
                    .and("limit", concurrency.limit),
            }),
            WhenFull::CancelPrevious => {
                let surplus = others.len() + 1 - concurrency.limit as usize;
                for &job_id in &others[..surplus] {
                    let message = format!("superseded by job {} in group {group}", context.job_id);
                    let facts = Facts::none()
                        .and("group", group)
                        .and("superseded_by", context.job_id.0);
                    self.cancel_job(job_id, Reason::Superseded, &message, facts)?;
                }
                Ok(Entry::Enter)
            }
        }
    }

    /// Keeps a pending job's first steps back, and says why.
    pub(super) fn hold_job(&mut self, job_id: JobId, hold: Hold) -> Result<(), EngineError> {
        let context = self.context(job_id)?;
        let due_up = match hold {
            // Waiting that the submitter asked for is not waiting in a queue.
            Hold::NotBefore => None,
            Hold::Concurrency => self.queue_due_up(&context.definition, context.task_index),
        };
        self.tx.hold_job(job_id, hold, due_up)?;
        let text = match hold {
            Hold::NotBefore => format!("job {job_id} waits for its time"),
            Hold::Concurrency => format!("job {job_id} waits for a place in its concurrency group"),
        };
        let event = NewEvent::new(EventKind::JobHeld, text).job(job_id);
        let group = self.tx.job(job_id)?.and_then(|job| job.concurrency_group);
        let facts = held_by(hold, &context, group.as_deref());
        Ok(self.tx.record(&event.data(facts.data()), self.now)?)
    }

    /// A place in a group is free: whoever waits first, by priority, comes in.
    pub(super) fn admit_waiting(&mut self, group: &str) -> Result<(), EngineError> {
        while let Some(next) = self.tx.next_in_group(group)? {
            let context = self.context(next.job_id)?;
            let limit = context
                .task()
                .draft
                .concurrency
                .as_ref()
                .map_or(1, |c| c.limit);
            if self.tx.members_of_group(group)? >= limit {
                return Ok(());
            }
            self.release_held(&next, Hold::Concurrency)?;
        }
        Ok(())
    }

    pub(super) fn release_held(&mut self, job: &Job, hold: Hold) -> Result<(), EngineError> {
        let context = self.context(job.job_id)?;
        let due_up = match hold {
            Hold::NotBefore => self.queue_due_up(&context.definition, context.task_index),
            // It has been waiting, and goes on waiting until its first step starts.
            Hold::Concurrency => job.due_up,
        };
        if self.tx.release_job(job.job_id, hold, due_up)? {
            let text = format!("job {} goes ahead", job.job_id);
            let event = NewEvent::new(EventKind::JobReleased, text).job(job.job_id);
            let facts = held_by(hold, &context, job.concurrency_group.as_deref());
            self.tx.record(&event.data(facts.data()), self.now)?;
            self.release_first_steps(job.job_id)?;
        }
        Ok(())
    }
}

/// The name of the group that a job with this input is in.
pub(super) fn group_of(task: &TaskDraft, input: &Json) -> Result<Option<String>, EngineError> {
    let Some(concurrency) = &task.concurrency else {
        return Ok(None);
    };
    // The name of a group is stored and shown.
    let input = masked_input(&task.inputs, &parsed(input));
    let context = Context::new().with("input", declared(&task.inputs, &input));
    let refused = |message: String| EngineError::InputInvalid {
        place: format!("task {}", task.name),
        violations: vec![Violation {
            name: "concurrency.group".to_string(),
            message,
        }],
    };
    let group =
        render_text(&concurrency.group, &context).map_err(|fault| refused(fault.message))?;
    match group.len() {
        0 => Err(refused("is empty with this input".to_string())),
        bytes if bytes > limits::KEY_BYTES_MAX => Err(refused(format!(
            "is {bytes} bytes long with this input, at most {} are allowed",
            limits::KEY_BYTES_MAX
        ))),
        _ => Ok(Some(group)),
    }
}

fn held_by(hold: Hold, context: &JobContext, group: Option<&str>) -> Facts {
    let facts = Facts::none().and("hold", hold.as_str());
    match (hold, &context.task().draft.concurrency, group) {
        (Hold::Concurrency, Some(concurrency), Some(group)) => {
            facts.and("group", group).and("limit", concurrency.limit)
        }
        _ => facts,
    }
}
