//! Somebody retries a job that has ended: a new job, linked to it, in which what need not run again stands as it ended.

use std::collections::{BTreeMap, BTreeSet};

use super::cascade::{Cascade, JobContext};
use super::create::JobPlan;
use super::facts::Facts;
use super::inputs::JobInput;
use super::once::Once;
use super::select::select;
use super::submit::Submitted;
use super::views::no_such_step;
use super::{Engine, EngineError};
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::depends::Outcome;
use crate::domain::idempotency::KeyOwner;
use crate::domain::job::Source;
use crate::domain::selector::JobSelector;
use crate::domain::step::{Step, StepKind};
use crate::domain::task::Task;
use crate::domain::{JobId, Now, StepId};
use crate::store::Tx;

/// How much of a job runs again. Whatever depends on a step that does, does too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryScope {
    /// What did not complete.
    Failed,
    /// This step, and what did not complete.
    From(String),
    All,
}

#[derive(Debug, Clone)]
pub struct Retry {
    pub of: JobSelector,
    pub scope: RetryScope,
    pub idempotency_key: Option<String>,
}

impl Retry {
    pub fn of(job_id: JobId, scope: RetryScope) -> Retry {
        Retry {
            of: JobSelector::Id(job_id),
            scope,
            idempotency_key: None,
        }
    }

    /// The job as it was named: a repetition may find that by now the name fits another one.
    fn once(&self, owner: KeyOwner) -> Result<Once, EngineError> {
        let (word, from) = match &self.scope {
            RetryScope::Failed => ("failed", None),
            RetryScope::From(step) => ("from", Some(step)),
            RetryScope::All => ("all", None),
        };
        let request = serde_json::json!(["retry", self.of.to_string(), word, from]);
        Once::new(owner, self.idempotency_key.clone(), &request)
    }
}

/// What a new job takes over from a former one.
#[derive(Debug, Clone, Default)]
pub(super) struct Carried {
    pub retry_of: Option<JobId>,
    /// Stand in the new job as they ended, with their outputs.
    pub kept: BTreeMap<u32, Step>,
    /// Loops and child jobs that run again, but whose completed parts need not.
    pub origins: BTreeMap<u32, StepId>,
}

impl Engine {
    pub fn retry(&self, retry: Retry, now: Now) -> Result<Submitted, EngineError> {
        let once = retry.once(self.key_owner)?;
        let settings = self.settings;
        self.write(now, move |tx| {
            if let Some(job_id) = once.made_before(tx)? {
                return Ok(Submitted {
                    job_id,
                    repeated: true,
                });
            }
            let job_id = select(tx, &retry.of)?;
            let job = tx.job(job_id)?.ok_or(EngineError::JobNotFound { job_id })?;
            if tx.is_leaving(job_id)? {
                return Err(EngineError::JobNotFound { job_id });
            }
            if !job.state.is_terminal() {
                return Err(EngineError::JobNotEnded {
                    job_id,
                    state: job.state,
                });
            }
            let mut cascade = Cascade::new(tx, &settings, now);
            let context = cascade.context(job_id)?;
            let carried = carry(tx, context.task(), job_id, &retry.scope)?;
            if carried.kept.len() == context.task().draft.steps.len() {
                return Err(EngineError::NothingToRetry { job_id });
            }
            let created = cascade.create_job(JobPlan {
                definition_id: context.definition_id,
                definition: context.definition.clone(),
                task_index: context.task_index,
                source: match job.source {
                    Source::Hook => Source::Hook,
                    _ => Source::Retry,
                },
                input: JobInput::Kept {
                    input: job.input.clone(),
                    seal_id: job.seal_id,
                },
                labels: job.labels.clone(),
                priority: job.priority,
                parent: None,
                depth: 0,
                hook_of: job.hook_of,
                schedule_id: job.schedule_id,
                scheduled_for: job.scheduled_for,
                not_before: None,
                carried,
            })?;
            once.remember(tx, created.job_id, now)?;
            let detail = Facts::none().and("new_job_id", created.job_id.0).detail();
            let retried = AuditEntry::of(AuditAction::JobRetried).job(job_id);
            tx.audit(&retried.detail(detail), now)?;
            cascade.settle()?;
            Ok(Submitted {
                job_id: created.job_id,
                repeated: false,
            })
        })
    }
}

impl Cascade<'_> {
    /// The child job of a retried step: what the former child completed is carried over as well.
    pub(super) fn carried_by_child(
        &mut self,
        context: &JobContext,
        task_index: u32,
        origin_step_id: StepId,
    ) -> Result<Carried, EngineError> {
        let origin = self.tx.step(origin_step_id)?;
        let Some(former_id) = origin.and_then(|step| step.child_job_id) else {
            return Ok(Carried::default());
        };
        let task = context.definition.task(task_index);
        let carried = carry(self.tx, task, former_id, &RetryScope::Failed)?;
        // A child that completed, under a step that did not, runs again as a whole.
        if carried.kept.len() == task.draft.steps.len() {
            Ok(Carried::default())
        } else {
            Ok(carried)
        }
    }
}

/// What a retry of this job, made from this task, takes over from it.
fn carry(tx: &Tx, task: &Task, job_id: JobId, scope: &RetryScope) -> Result<Carried, EngineError> {
    let all = 0..task.draft.steps.len() as u32;
    let mut ended_well: BTreeMap<u32, Step> = BTreeMap::new();
    let mut former: BTreeMap<u32, StepId> = BTreeMap::new();
    for step in tx
        .steps_of_job(job_id)?
        .into_iter()
        .filter(|step| step.item.is_none())
    {
        former.insert(step.position, step.step_id);
        if matches!(step.outcome(), Some(Outcome::Completed | Outcome::Skipped)) {
            ended_well.insert(step.position, step);
        }
    }
    let mut again: BTreeSet<u32> = all
        .clone()
        .filter(|at| !ended_well.contains_key(at))
        .collect();
    let mut whole: BTreeSet<u32> = BTreeSet::new();
    match scope {
        RetryScope::Failed => {}
        RetryScope::All => {
            again.extend(all.clone());
            whole.extend(all.clone());
        }
        RetryScope::From(name) => {
            let position = task.position(name);
            let position = position.ok_or_else(|| no_such_step(job_id, name, task))?;
            again.insert(position);
            whole.insert(position);
        }
    }
    let again = task.with_dependents(again);
    let kept: BTreeMap<u32, Step> = ended_well
        .into_iter()
        .filter(|(position, _)| !again.contains(position))
        .collect();
    // Its completed parts are still good if nothing before it runs again.
    let continues = |position: &u32| {
        let kind = task.step(*position).kind();
        matches!(kind, StepKind::Loop | StepKind::Task)
            && !whole.contains(position)
            && task
                .dependencies(*position)
                .iter()
                .all(|dependency| kept.contains_key(dependency))
    };
    let origins = again
        .iter()
        .filter(|position| continues(position))
        .filter_map(|position| former.get(position).map(|&step_id| (*position, step_id)))
        .collect();
    Ok(Carried {
        retry_of: Some(job_id),
        kept,
        origins,
    })
}
