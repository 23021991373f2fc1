//! Jobs and loop instances come into being: inserted, held back by a group or a time, and their first steps decided.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::EngineError;
use super::cascade::{Cascade, Failure, JobContext};
use super::facts::Facts;
use super::group::{Entry, group_of};
use super::inputs::{JobInput, sentence};
use super::retry::Carried;
use super::scope::rfc3339;
use super::sealed::reseal_step;
use crate::domain::cascade::{Decision, decide};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::job::{Hold, JobMove, ParentStep, Source, Tally, TallyChange};
use crate::domain::limits;
use crate::domain::peer::needed_features;
use crate::domain::reason::Reason;
use crate::domain::step::{Step, StepKind, StepState};
use crate::domain::task::{Action, Definition, StepDraft, Unmatched};
use crate::domain::{
    DefinitionId, JobId, Json, RequirementId, ScheduleId, SealId, StepId, Timestamp, Uptime,
};
use crate::planted::{Bug, planted};
use crate::store::{JobStanding, NewJob, NewStep, Requirement};

/// What a step requires of a worker.
fn required_by(draft: &StepDraft) -> Requirement {
    Requirement {
        tags: draft.required_tags(),
        features: needed_features(draft),
    }
}

/// A job about to be made.
pub(super) struct JobPlan {
    pub definition_id: DefinitionId,
    pub definition: Arc<Definition>,
    pub task_index: u32,
    pub source: Source,
    pub input: JobInput,
    pub labels: Json,
    pub priority: i32,
    pub parent: Option<ParentStep>,
    pub depth: u32,
    pub hook_of: Option<JobId>,
    pub schedule_id: Option<ScheduleId>,
    pub scheduled_for: Option<Timestamp>,
    pub not_before: Option<Timestamp>,
    pub carried: Carried,
}

impl Cascade<'_> {
    /// Inserts a job with its steps. Unless something holds it, its first steps are decided as well.
    ///
    /// `InputInvalid`: nothing was made.
    pub fn create_job(&mut self, mut plan: JobPlan) -> Result<Created, EngineError> {
        let task = plan.definition.task(plan.task_index);
        let seal_id = SealId::random();
        let input = plan.input.fit(self.tx, &task.draft, seal_id)?;
        for (position, step) in &mut plan.carried.kept {
            reseal_step(
                self.tx,
                &task.draft.name,
                task.step(*position),
                step,
                seal_id,
            )?;
        }
        let concurrency_group = group_of(&task.draft, &input)?;
        let steps_open = task.draft.steps.len() - plan.carried.kept.len();
        let queue_due_up = self.queue_due_up(&plan.definition, plan.task_index);
        let waits_for_time = plan.not_before.is_some_and(|at| at > self.now.wall);
        let job_id = self.tx.insert_job(
            &NewJob {
                definition_id: plan.definition_id,
                task_index: plan.task_index,
                task: task.draft.name.clone(),
                source: plan.source,
                input,
                labels: plan.labels,
                priority: plan.priority,
                parent: plan.parent,
                depth: plan.depth,
                retry_of: plan.carried.retry_of,
                hook_of: plan.hook_of,
                schedule_id: plan.schedule_id,
                scheduled_for: plan.scheduled_for,
                not_before: plan.not_before,
                concurrency_group: concurrency_group.clone(),
                steps_open: steps_open as u32,
                due_up: queue_due_up.filter(|_| !waits_for_time),
                seal_id,
            },
            self.now,
        )?;
        let schedule = plan.schedule_id.zip(plan.scheduled_for);
        self.announce(
            &plan.source,
            plan.carried.retry_of,
            schedule.filter(|_| plan.source == Source::Schedule),
            job_id,
            &task.draft.name,
        )?;
        let standing = JobStanding {
            definition_id: plan.definition_id,
            task_index: plan.task_index,
            started: false,
            tally: Tally {
                open: steps_open as u32,
                ..Tally::default()
            },
        };
        let context = self.learn_context(job_id, standing)?;
        let entry = if waits_for_time {
            Entry::Hold(Hold::NotBefore)
        } else {
            self.enter(&context, concurrency_group.as_deref(), plan.parent)?
        };
        let held = match entry {
            Entry::Enter => false,
            Entry::Hold(hold) => {
                self.hold_job(job_id, hold)?;
                true
            }
            Entry::Skip { message, facts } => {
                // It ends with all its steps unmade.
                let change = TallyChange {
                    ended: steps_open as u32,
                    ..TallyChange::default()
                };
                self.count(job_id, change)?;
                let why = Some((Reason::OverlapSkipped, message.as_str()));
                self.end_job(job_id, JobMove::Skip, why, &facts)?;
                return Ok(Created {
                    job_id,
                    skipped: Some(message),
                });
            }
        };
        let undecided = self.insert_steps(&context, &plan.carried, plan.priority, held)?;
        for (step_id, position) in undecided {
            self.decide_step(&context, step_id, position)?;
        }
        Ok(Created {
            job_id,
            skipped: None,
        })
    }

    /// When a job that never starts is given up.
    pub(super) fn queue_due_up(&self, definition: &Definition, task_index: u32) -> Option<Uptime> {
        let queue_timeout_ms = definition.task(task_index).draft.queue_timeout_ms;
        queue_timeout_ms.map(|ms| self.now.up.plus_ms(ms))
    }

    /// Returns the steps without open dependencies that could not simply be inserted as ready.
    fn insert_steps(
        &mut self,
        context: &JobContext,
        carried: &Carried,
        priority: i32,
        held: bool,
    ) -> Result<Vec<(StepId, u32)>, EngineError> {
        let task = context.task();
        let mut requirements: BTreeMap<(Requirement, Unmatched), RequirementId> = BTreeMap::new();
        let mut undecided = Vec::new();
        for (position, draft) in task.draft.steps.iter().enumerate() {
            let position = position as u32;
            if let Some(origin) = carried.kept.get(&position) {
                self.tx.carry_step(context.job_id, origin, self.now)?;
                if draft.kind() == StepKind::Loop {
                    for instance in self.tx.carried_instances(origin.step_id)? {
                        self.tx.carry_step(context.job_id, &instance, self.now)?;
                    }
                }
                continue;
            }
            let kind = draft.kind();
            let requirement_id = match kind {
                StepKind::Work => {
                    let wish = (required_by(draft), draft.unmatched);
                    Some(match requirements.get(&wish) {
                        Some(&requirement_id) => requirement_id,
                        None => {
                            let requirement_id = self.intern_requirement(&wish.0, wish.1)?;
                            requirements.insert(wish, requirement_id);
                            requirement_id
                        }
                    })
                }
                _ => None,
            };
            let open = |dependency: &&u32| !carried.kept.contains_key(dependency);
            let waiting_on = task.dependencies(position).iter().filter(open).count() as u32;
            let no_dependencies = task.dependencies(position).is_empty();
            // The common case needs no second statement: a first step that a worker may take at once.
            let ready = !held
                && no_dependencies
                && decide(draft, task.depends_on(position), &|_| {
                    unreachable!("it names no step")
                }) == Decision::Release;
            let early = planted(Bug::ReadyTooEarly) && kind == StepKind::Work && !held;
            let (ready, waiting_on) = match early {
                true => (true, 0),
                false => (ready, waiting_on),
            };
            let step_id = self.tx.insert_step(
                &NewStep {
                    job_id: context.job_id,
                    position,
                    item: None,
                    kind,
                    requirement_id,
                    priority,
                    ready,
                    waiting_on,
                    origin_step_id: carried.origins.get(&position).copied(),
                    item_value: None,
                },
                self.now,
            )?;
            self.steps_created += 1;
            if waiting_on == 0 && !ready && !held {
                undecided.push((step_id, position));
            }
        }
        Ok(undecided)
    }

    fn intern_requirement(
        &self,
        requirement: &Requirement,
        unmatched: Unmatched,
    ) -> Result<RequirementId, EngineError> {
        Ok(self
            .tx
            .intern_requirement(requirement, unmatched, self.now)?)
    }

    /// What held a job is over: its first steps are decided now.
    pub(super) fn release_first_steps(&mut self, job_id: JobId) -> Result<(), EngineError> {
        let context = self.context(job_id)?;
        for step in self.tx.steps_of_job(job_id)? {
            if step.state == StepState::Pending && step.waiting_on == 0 && step.item.is_none() {
                self.decide_step(&context, step.step_id, step.position)?;
            }
        }
        Ok(())
    }

    /// Creates the child job that a `task` step stands for, one per attempt.
    pub(super) fn dispatch_child(
        &mut self,
        context: &JobContext,
        step: &Step,
    ) -> Result<(), EngineError> {
        let draft = context.draft(step);
        let Action::Task { input, .. } = &draft.action else {
            unreachable!("only task steps are dispatched");
        };
        let task_index = context
            .task()
            .calls(step.position)
            .expect("checked with the definition");
        let child = &context.definition.task(task_index).draft;
        if self.is_over_budget(child.steps.len()) {
            return self.postpone(step);
        }
        let input = match self.input_of_child(context, step, input, &child.inputs)? {
            Ok(input) => Json(input.to_string()),
            Err(failure) => return self.fail_step(step, failure),
        };
        let job = self.tx.job(step.job_id)?.expect("a step has its job");
        let carried = match step.origin_step_id {
            Some(origin_step_id) if step.attempt == 0 => {
                self.carried_by_child(context, task_index, origin_step_id)?
            }
            _ => Carried::default(),
        };
        let created = self.create_job(JobPlan {
            definition_id: context.definition_id,
            definition: context.definition.clone(),
            task_index,
            // Hook jobs fire no hooks, nor does what they call.
            source: match job.source {
                Source::Hook => Source::Hook,
                _ => Source::Task,
            },
            input: JobInput::Given(input),
            labels: job.labels.clone(),
            priority: job.priority,
            parent: Some(ParentStep {
                step_id: step.step_id,
                attempt: step.attempt + 1,
            }),
            depth: job.depth + 1,
            hook_of: None,
            schedule_id: None,
            scheduled_for: job.scheduled_for,
            not_before: None,
            carried,
        });
        let child = match created {
            Err(EngineError::InputInvalid { place, violations }) => {
                let message = format!("{place} does not take its input: {}", sentence(&violations));
                return self.fail_step(step, Failure::new(Reason::PayloadError, message));
            }
            created => created?,
        };
        let due_up = draft.timeout_ms.map(|ms| self.now.up.plus_ms(ms));
        let dispatched = self
            .tx
            .dispatch_step(step, Some(child.job_id), 0, due_up, self.now)?;
        assert!(dispatched, "nobody moves the step within our transaction");
        self.start_job(context)?;
        if let Some(message) = child.skipped {
            // Its end came before the step could hear of it.
            let running = self.tx.step(step.step_id)?.expect("just dispatched");
            let text = format!("child job {} was skipped: {message}", child.job_id);
            let failure = Failure::of_child(child.job_id, text);
            self.fail_or_retry(context, &running, failure)?;
        }
        Ok(())
    }

    /// Turns a `for_each` into its instances, of which the first `max_parallel` begin at once.
    pub(super) fn expand_loop(
        &mut self,
        context: &JobContext,
        placeholder: &Step,
    ) -> Result<(), EngineError> {
        let draft = context.draft(placeholder);
        let for_each = draft.for_each.as_ref().expect("a loop has its list");
        let items = match self.items_of(context, placeholder)? {
            Ok(items) => items,
            Err(failure) => return self.fail_step(placeholder, failure),
        };
        if items.is_empty() {
            return self.skip_step(
                context,
                placeholder.step_id,
                placeholder.position,
                Reason::EmptyLoop,
                "its list is empty",
            );
        }
        if self.is_over_budget(items.len()) {
            return self.postpone(placeholder);
        }
        let mut kept: BTreeMap<u32, Step> = BTreeMap::new();
        if let Some(origin_step_id) = placeholder.origin_step_id {
            for instance in self.tx.carried_instances(origin_step_id)? {
                let item = instance.item.expect("instances have an item");
                if items.get(item as usize) == instance.item_value.as_ref() {
                    kept.insert(item, instance);
                }
            }
        }
        let open = (items.len() - kept.len()) as u32;
        let dispatched = self
            .tx
            .dispatch_step(placeholder, None, open, None, self.now)?;
        assert!(dispatched, "nobody moves it within our transaction");
        self.uncounted.entry(context.job_id).or_default().added += open;

        let kind = draft.action.kind();
        let requirement_id = match kind {
            StepKind::Work => Some(self.intern_requirement(&required_by(draft), draft.unmatched)?),
            _ => None,
        };
        let mut free = for_each.max_parallel.unwrap_or(u32::MAX);
        for (item, value) in items.iter().enumerate() {
            let item = item as u32;
            if let Some(origin) = kept.get(&item) {
                self.tx.carry_step(context.job_id, origin, self.now)?;
                continue;
            }
            let begins = free > 0;
            free = free.saturating_sub(1);
            let step_id = self.tx.insert_step(
                &NewStep {
                    job_id: context.job_id,
                    position: placeholder.position,
                    item: Some(item),
                    kind,
                    requirement_id,
                    priority: placeholder.priority,
                    ready: begins && kind == StepKind::Work,
                    waiting_on: 0,
                    origin_step_id: None,
                    item_value: Some(value.clone()),
                },
                self.now,
            )?;
            self.steps_created += 1;
            if begins && kind == StepKind::Task {
                let step = self.tx.step(step_id)?.expect("just inserted");
                self.dispatch_child(context, &step)?;
            }
        }
        if open == 0 {
            self.roll_up_loop(context.job_id, placeholder.position)
        } else {
            Ok(())
        }
    }

    /// The next instance that `max_parallel` had held back.
    pub(super) fn begin_instance(
        &mut self,
        context: &JobContext,
        step: &Step,
    ) -> Result<(), EngineError> {
        match step.kind {
            StepKind::Task => self.dispatch_child(context, step),
            _ => {
                self.tx.release_step(step.step_id, self.now)?;
                Ok(())
            }
        }
    }

    /// Loops of child jobs of loops multiply; what is over the budget of one event comes with the next.
    fn is_over_budget(&self, steps: usize) -> bool {
        self.steps_created > 0 && self.steps_created + steps > limits::CREATED_STEPS_MAX
    }

    /// Due at once: `release_due` carries it out in a transaction of its own.
    fn postpone(&mut self, step: &Step) -> Result<(), EngineError> {
        let postponed = self.tx.postpone_step(step, self.now)?;
        assert!(postponed, "nobody moves the step within our transaction");
        Ok(())
    }

    /// A job that a person, a schedule or a hook asked for is told; child jobs are told by their parent's step.
    fn announce(
        &mut self,
        source: &Source,
        retry_of: Option<JobId>,
        schedule: Option<(ScheduleId, Timestamp)>,
        job_id: JobId,
        task: &str,
    ) -> Result<(), EngineError> {
        let text = match (source, retry_of) {
            (Source::Task, _) => return Ok(()),
            (_, Some(former)) => format!("job {job_id} retries job {former}"),
            (_, None) => format!("task {task} was submitted as job {job_id}"),
        };
        let facts = Facts::none()
            .and("task", task)
            .and("source", source.as_str());
        let facts = match retry_of {
            Some(former) => facts.and("retry_of", former.0),
            None => facts,
        };
        let facts = match schedule {
            Some((schedule_id, due_at)) => facts
                .and("schedule_id", schedule_id.0)
                .and("scheduled_for", rfc3339(due_at)),
            None => facts,
        };
        let event = NewEvent::new(EventKind::JobSubmitted, text).job(job_id);
        Ok(self.tx.record(&event.data(facts.data()), self.now)?)
    }
}

/// A job that was made, and why it ended at once if its group did not let it in.
pub(super) struct Created {
    pub job_id: JobId,
    pub skipped: Option<String>,
}
