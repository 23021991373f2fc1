//! Read-only views for people who look: jobs with all that belongs to them, workers, what happened.
//!
//! Every list has a bound, and what comes after it can be asked for.

use std::collections::{BTreeSet, HashMap};
use std::iter::once;

use super::queries::{load, output_of_job, split_name, step_output};
use super::sealed::{Secrecy, stored_output};
use super::{Engine, EngineError};
use crate::domain::depends::DependsOn;
use crate::domain::event::Event;
use crate::domain::job::{Job, JobFilter, JobState};
use crate::domain::limits::shorten;
use crate::domain::recovery::Recovery;
use crate::domain::step::{Step, StepKind, StepState};
use crate::domain::task::{Action, Task};
use crate::domain::value::ValueSpec;
use crate::domain::worker::{Worker, WorkerState};
use crate::domain::{EventSeq, JobId, Json, Now, StepId, Timestamp, WorkerId};
use crate::language::words::did_you_mean;
use crate::store::{ChangedJob, FormerAttempt, PAGE_BYTES_MAX, PastJob, RelatedJob, Tx};

/// Outputs of loops and child jobs in one answer; the last may go over it. Each can be asked for by itself.
const COMPOSED_BYTES_MAX: usize = 1 << 20;

/// The parts of a search that one page of jobs may cost. A search whose conditions each fit every second of a million jobs needs twenty.
const SEARCH_PARTS_MAX: usize = 100;

/// The job and the step that a job is the child of.
pub type Parent = (JobId, String);

#[derive(Debug, Clone)]
pub struct ListedJob {
    pub job: Job,
    pub parent: Option<Parent>,
}

#[derive(Debug, Clone)]
pub struct JobDetail {
    pub job: Job,
    pub parent: Option<Parent>,
    /// Once it has ended, unless it is too much for one piece.
    pub output: Option<Json>,
    pub steps: Vec<StepDetail>,
}

#[derive(Debug, Clone)]
pub struct StepDetail {
    pub name: String,
    pub step: Step,
    pub kind: &'static str,
    pub depends_on: Vec<String>,
    /// What it asks of them.
    pub asked_of_them: DependsOn<String>,
    pub continue_on_failure: bool,
    pub required_tags: Vec<String>,
    pub max_attempts: u32,
    pub worker: Option<String>,
    /// What it gave; of a loop or a child job, unless it is too much.
    pub output: Option<Json>,
    /// What whoever approves is asked for.
    pub asks: Vec<ValueSpec>,
    /// Those that did not settle it, with the names of their workers.
    pub former: Vec<(FormerAttempt, Option<String>)>,
}

#[derive(Debug, Clone)]
pub struct WorkerDetail {
    pub worker: Worker,
    pub held: Vec<HeldStep>,
    /// Milliseconds since it was last heard.
    pub silent_ms: i64,
    /// When it is given up if it stays silent.
    pub inactive_in_ms: Option<i64>,
}

#[derive(Debug, Clone)]
pub struct HeldStep {
    pub job_id: JobId,
    pub step: String,
    pub attempt: u32,
    pub state: StepState,
}

/// An event with the names of what it speaks of.
#[derive(Debug, Clone)]
pub struct NamedEvent {
    pub event: Event,
    pub step: Option<String>,
    pub worker: Option<String>,
}

/// The names of what recovery does something about.
#[derive(Debug, Clone)]
pub struct RecoveryNames {
    pub task: Option<String>,
    pub step: Option<String>,
    pub worker: Option<String>,
}

impl Engine {
    pub fn job_detail(&self, job_id: JobId) -> Result<JobDetail, EngineError> {
        self.store.read(|tx| {
            let (job, context) = load(tx, job_id)?;
            let mut names = Names::new(tx);
            let parent = names.parent(&job)?;
            let task = context.task();
            let (mut steps, mut composed_bytes) = (Vec::new(), 0);
            for step in tx.steps_of_job(job_id)? {
                let name = context.name(&step);
                steps.push(detail(task, name, step, &mut names, &mut composed_bytes)?);
            }
            let output = match job.state.is_terminal() {
                true => match output_of_job(tx, job_id, &mut Secrecy::Masked) {
                    Err(EngineError::Invalid { .. }) => None,
                    output => Some(output?),
                },
                false => None,
            };
            Ok(JobDetail {
                job,
                parent,
                output,
                steps,
            })
        })
    }

    /// One step of it, by the name that people know it by.
    pub fn step_detail(&self, job_id: JobId, name: &str) -> Result<StepDetail, EngineError> {
        self.store.read(|tx| {
            let step = step_named(tx, job_id, name)?;
            let (_, context) = load(tx, job_id)?;
            let name = context.name(&step);
            detail(context.task(), name, step, &mut Names::new(tx), &mut 0)
        })
    }

    /// The newest jobs below an id that fit a filter, and where the next page begins. `None`: this is the last page.
    pub fn jobs(
        &self,
        before: Option<JobId>,
        filter: &JobFilter,
        limit: u32,
    ) -> Result<(Vec<ListedJob>, Option<JobId>), EngineError> {
        let mut before = before.unwrap_or(JobId(i64::MAX));
        let (mut found, mut input_bytes) = (Vec::new(), 0);
        let mut next = None;
        // Each part of a long search has a read transaction of its own, so that none is open for long.
        for _ in 0..SEARCH_PARTS_MAX {
            let wanted = limit - found.len() as u32;
            let (jobs, rest) = self.store.read(|tx| {
                let (jobs, rest) = tx.jobs_before(before, filter, wanted)?;
                Ok::<_, EngineError>((listed(tx, jobs)?, rest))
            })?;
            let bytes = jobs.iter().map(|listed| listed.job.input.0.len());
            input_bytes += bytes.sum::<usize>();
            found.extend(jobs);
            next = rest;
            match rest {
                Some(rest) if found.len() < limit as usize && input_bytes < PAGE_BYTES_MAX => {
                    before = rest;
                }
                _ => break,
            }
        }
        Ok((found, next))
    }

    /// The newest jobs in a state that is not terminal.
    pub fn open_jobs(&self, state: JobState, limit: u32) -> Result<Vec<ListedJob>, EngineError> {
        self.store
            .read(|tx| listed(tx, tx.open_jobs(state, limit)?))
    }

    /// Those that ended since then by nobody's wish and are nobody's child, the last first.
    pub fn jobs_in_trouble(
        &self,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<ListedJob>, EngineError> {
        self.store
            .read(|tx| listed(tx, tx.jobs_in_trouble(since, limit)?))
    }

    /// The story of a job from its end, newest first.
    pub fn story_before(
        &self,
        job_id: JobId,
        before: EventSeq,
        limit: u32,
    ) -> Result<Vec<NamedEvent>, EngineError> {
        self.store.read(|tx| {
            tx.job(job_id)?.ok_or(EngineError::JobNotFound { job_id })?;
            named(tx, tx.events_of_job_before(job_id, before, limit)?)
        })
    }

    /// Where these jobs are, one for one. `None`: there is no such job.
    pub fn states_of(&self, jobs: &[JobId]) -> Result<Vec<Option<JobState>>, EngineError> {
        self.store.read(|tx| {
            let jobs = jobs.iter();
            jobs.map(|&job_id| Ok(tx.job(job_id)?.map(|job| job.state)))
                .collect()
        })
    }

    /// What came of a job: the jobs in which it was tried again, and those that its hooks made; the first of each.
    pub fn descendants(
        &self,
        job_id: JobId,
        limit: u32,
    ) -> Result<(Vec<RelatedJob>, Vec<RelatedJob>), EngineError> {
        self.store
            .read(|tx| Ok((tx.retries_of(job_id, limit)?, tx.hooks_of(job_id, limit)?)))
    }

    /// How the newest jobs of each of these tasks went, newest first.
    pub fn last_of_tasks(
        &self,
        tasks: &[&str],
        limit: u32,
    ) -> Result<Vec<Vec<PastJob>>, EngineError> {
        self.store.read(|tx| {
            let tasks = tasks.iter();
            tasks
                .map(|task| Ok(tx.last_of_task(task, limit)?))
                .collect()
        })
    }

    /// The step that people know by this name.
    pub fn step_named(&self, job_id: JobId, name: &str) -> Result<Step, EngineError> {
        self.store.read(|tx| step_named(tx, job_id, name))
    }

    /// The tags that active workers offer, taken together.
    pub fn offered_tags(&self) -> Result<BTreeSet<String>, EngineError> {
        let workers = self.store.read(|tx| Ok::<_, EngineError>(tx.workers()?))?;
        let active = workers
            .into_iter()
            .filter(|worker| worker.state == WorkerState::Active);
        Ok(active.flat_map(|worker| worker.tags).collect())
    }

    pub fn workers(
        &self,
        after: WorkerId,
        limit: u32,
        now: Now,
    ) -> Result<Vec<WorkerDetail>, EngineError> {
        self.store.read(|tx| {
            let mut names = Names::new(tx);
            let workers = tx.workers_after(after, limit)?.into_iter();
            let details = workers.map(|worker| self.worker_detail(tx, worker, &mut names, now));
            details.collect()
        })
    }

    pub fn worker(&self, worker_id: WorkerId, now: Now) -> Result<WorkerDetail, EngineError> {
        self.store.read(|tx| {
            let worker = tx.worker(worker_id)?;
            let worker = worker.filter(|worker| worker.deleted_at.is_none());
            let worker = worker.ok_or(EngineError::WorkerNotFound { worker_id })?;
            self.worker_detail(tx, worker, &mut Names::new(tx), now)
        })
    }

    pub(super) fn worker_detail(
        &self,
        tx: &Tx,
        worker: Worker,
        names: &mut Names,
        now: Now,
    ) -> Result<WorkerDetail, EngineError> {
        let mut held = Vec::new();
        if let Some(session_id) = worker.session_id {
            for step in tx.held_steps(session_id)? {
                if let Some((job_id, name)) = names.step(step.step_id)? {
                    held.push(HeldStep {
                        job_id,
                        step: name,
                        attempt: step.attempt,
                        state: step.state,
                    });
                }
            }
        }
        let inactive_up = self.bounds().silent_at(worker.seen_up);
        let is_active = worker.state == WorkerState::Active;
        Ok(WorkerDetail {
            silent_ms: (now.up.0 - worker.seen_up.0).max(0),
            inactive_in_ms: is_active.then(|| (inactive_up.0 - now.up.0).max(0)),
            worker,
            held,
        })
    }

    pub fn events_after(
        &self,
        after: EventSeq,
        limit: u32,
    ) -> Result<Vec<NamedEvent>, EngineError> {
        self.store
            .read(|tx| named(tx, tx.events_after(after, limit)?))
    }

    /// Newest first.
    pub fn events_before(
        &self,
        before: EventSeq,
        limit: u32,
    ) -> Result<Vec<NamedEvent>, EngineError> {
        self.store
            .read(|tx| named(tx, tx.events_before(before, limit)?))
    }

    /// The story of a job.
    pub fn story(
        &self,
        job_id: JobId,
        after: EventSeq,
        limit: u32,
    ) -> Result<Vec<NamedEvent>, EngineError> {
        self.store.read(|tx| {
            tx.job(job_id)?.ok_or(EngineError::JobNotFound { job_id })?;
            named(tx, tx.events_of_job(job_id, after, limit)?)
        })
    }

    /// What recovery did, newest first.
    pub fn recoveries_before(
        &self,
        before: EventSeq,
        limit: u32,
    ) -> Result<Vec<NamedEvent>, EngineError> {
        self.store
            .read(|tx| named(tx, tx.recoveries_before(before, limit)?))
    }

    /// What one phase of it did, newest first.
    pub fn recoveries_of(
        &self,
        phase: u8,
        before: EventSeq,
        limit: u32,
    ) -> Result<Vec<NamedEvent>, EngineError> {
        self.store
            .read(|tx| named(tx, tx.recoveries_of(phase, before, limit)?))
    }

    /// What people know these by, one for one.
    pub fn names_of(&self, recoveries: &[Recovery]) -> Result<Vec<RecoveryNames>, EngineError> {
        self.store.read(|tx| {
            let mut names = Names::new(tx);
            let mut all = Vec::with_capacity(recoveries.len());
            for recovery in recoveries {
                let job = match recovery.job_id {
                    Some(job_id) => tx.job(job_id)?,
                    None => None,
                };
                let step = match recovery.step_id {
                    Some(step_id) => names.step(step_id)?,
                    None => None,
                };
                all.push(RecoveryNames {
                    task: job.map(|job| job.task),
                    step: step.map(|(_, name)| name),
                    worker: names.worker(recovery.worker_id)?,
                });
            }
            Ok(all)
        })
    }

    /// Where a stream that begins now begins: the last event, the last change of a job.
    pub fn present(&self) -> Result<(EventSeq, i64), EngineError> {
        self.store
            .read(|tx| Ok((tx.last_event()?, tx.last_change()?)))
    }

    pub fn jobs_changed(
        &self,
        after: i64,
        after_job: JobId,
        limit: u32,
    ) -> Result<Vec<ChangedJob>, EngineError> {
        self.store
            .read(|tx| Ok(tx.jobs_changed(after, after_job, limit)?))
    }

    pub fn installation_key(&self) -> Result<String, EngineError> {
        self.store.read(|tx| Ok(tx.installation_key()?))
    }
}

fn listed(tx: &Tx, jobs: Vec<Job>) -> Result<Vec<ListedJob>, EngineError> {
    let mut names = Names::new(tx);
    let mut listed = Vec::with_capacity(jobs.len());
    for job in jobs {
        let parent = names.parent(&job)?;
        listed.push(ListedJob { job, parent });
    }
    Ok(listed)
}

pub(super) fn step_named(tx: &Tx, job_id: JobId, name: &str) -> Result<Step, EngineError> {
    let (_, context) = load(tx, job_id)?;
    let (bare, item) = split_name(name);
    let step = match context.task().position(bare) {
        Some(position) => tx.step_at(job_id, position, item)?,
        None => None,
    };
    step.ok_or_else(|| no_such_step(job_id, name, context.task()))
}

pub(super) fn no_such_step(job_id: JobId, name: &str, task: &Task) -> EngineError {
    let known = task.draft.steps.iter().map(|step| step.name.as_str());
    EngineError::NoSuchStep {
        job_id,
        step: shorten(name),
        hint: did_you_mean(split_name(name).0, known),
    }
}

/// Put together from what others gave, as long as that is not too much for one answer.
fn composed_output(
    step: &Step,
    names: &Names,
    composed_bytes: &mut usize,
) -> Result<Option<Json>, EngineError> {
    if *composed_bytes > COMPOSED_BYTES_MAX {
        return Ok(None);
    }
    let output = match step_output(names.tx, step, &mut Secrecy::Masked) {
        Err(EngineError::Invalid { .. }) => None,
        output => output?,
    };
    *composed_bytes += output.as_ref().map_or(0, |output| output.0.len());
    Ok(output)
}

fn detail(
    task: &Task,
    name: String,
    step: Step,
    names: &mut Names,
    composed_bytes: &mut usize,
) -> Result<StepDetail, EngineError> {
    let draft = task.step(step.position);
    let dependencies = task.dependencies(step.position).iter();
    let depends_on = dependencies.map(|&position| task.step(position).name.clone());
    // An attempt before the last is in a table of its own; most steps have none.
    let has_former = step.attempt > 1 || (step.attempt == 1 && step.session_id.is_none());
    let mut former = Vec::new();
    if has_former {
        for attempt in names.tx.former_attempts(step.step_id)? {
            let worker = names.worker(attempt.worker_id)?;
            former.push((attempt, worker));
        }
    }
    let output = match step.kind {
        StepKind::Work | StepKind::Approval => {
            stored_output(names.tx, &step, &mut Secrecy::Masked)?
        }
        StepKind::Loop | StepKind::Task => composed_output(&step, names, composed_bytes)?,
    };
    let asks = match &draft.action {
        Action::Approval { inputs, .. } => inputs.clone(),
        _ => Vec::new(),
    };
    Ok(StepDetail {
        name,
        output,
        asks,
        kind: draft.action.word(),
        depends_on: depends_on.collect(),
        asked_of_them: draft.depends_on.clone(),
        continue_on_failure: draft.continue_on_failure,
        required_tags: draft.required_tags(),
        max_attempts: draft.retry.max_attempts,
        worker: names.worker(step.worker_id)?,
        former,
        step,
    })
}

pub(super) fn named(tx: &Tx, events: Vec<Event>) -> Result<Vec<NamedEvent>, EngineError> {
    let mut names = Names::new(tx);
    let mut named = Vec::with_capacity(events.len());
    for event in events {
        let step = match event.fact.step_id {
            Some(step_id) => names.step(step_id)?.map(|(_, name)| name),
            None => None,
        };
        let worker = names.worker(event.fact.worker_id)?;
        named.push(NamedEvent {
            event,
            step,
            worker,
        });
    }
    Ok(named)
}

/// Names of workers and steps, each looked up once.
pub(super) struct Names<'a> {
    tx: &'a Tx<'a>,
    workers: HashMap<WorkerId, Option<String>>,
    steps: HashMap<StepId, Option<(JobId, String)>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(tx: &'a Tx<'a>) -> Names<'a> {
        Names {
            tx,
            workers: HashMap::new(),
            steps: HashMap::new(),
        }
    }

    fn worker(&mut self, worker_id: Option<WorkerId>) -> Result<Option<String>, EngineError> {
        let Some(worker_id) = worker_id else {
            return Ok(None);
        };
        if let Some(known) = self.workers.get(&worker_id) {
            return Ok(known.clone());
        }
        let name = self.tx.worker(worker_id)?.map(|worker| worker.name);
        self.workers.insert(worker_id, name.clone());
        Ok(name)
    }

    fn parent(&mut self, job: &Job) -> Result<Option<Parent>, EngineError> {
        match job.parent {
            Some(parent) => self.step(parent.step_id),
            None => Ok(None),
        }
    }

    pub(super) fn step(&mut self, step_id: StepId) -> Result<Option<(JobId, String)>, EngineError> {
        if let Some(known) = self.steps.get(&step_id) {
            return Ok(known.clone());
        }
        let step = self.tx.step_heads(once(step_id))?.remove(&step_id);
        let standing = match &step {
            Some(step) => self.tx.job_standing(step.job_id)?,
            None => None,
        };
        let named = match step.zip(standing) {
            Some((step, standing)) => {
                let definition = self.tx.definition(standing.definition_id)?;
                let task = definition.task(standing.task_index);
                Some((step.job_id, task.step_name(step.position, step.item)))
            }
            None => None,
        };
        self.steps.insert(step_id, named.clone());
        Ok(named)
    }
}
