//! A step ended: its dependents are decided, its loop goes on or settles, its job counts it. `domain::cascade` decides,
//! this applies.
//!
//! A `Cascade` is what one verb sets in motion inside its transaction. It holds a list of ends not yet followed up, and per
//! job what is to be counted, so the cost of an end is that of its dependents, whatever the size of the job.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::facts::Facts;
use super::hooks::Hooked;
use super::{EngineError, Settings};
use crate::domain::cascade::{Decision, begin, decide};
use crate::domain::depends::Outcome;
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::job::{Tally, TallyChange};
use crate::domain::limits::{self, clip};
use crate::domain::reason::Reason;
use crate::domain::recovery::Phase;
use crate::domain::retry::{AfterFailure, after_failure};
use crate::domain::step::{Step, StepHead, StepKind, StepMove, StepState};
use crate::domain::task::{Action, Definition, HookOn, StepDraft, Task};
use crate::domain::{DefinitionId, JobId, Now, StepId};
use crate::planted::{Bug, planted};
use crate::store::{Ending, FormerOutcome, JobStanding, Tx};

/// The frozen definition that a job is made from.
#[derive(Clone)]
pub(super) struct JobContext {
    pub job_id: JobId,
    pub definition_id: DefinitionId,
    pub definition: Arc<Definition>,
    pub task_index: u32,
    /// Whether a step of it has started, and its counters: as they are in the database now.
    pub started: bool,
    pub tally: Tally,
}

impl JobContext {
    pub fn task(&self) -> &Task {
        self.definition.task(self.task_index)
    }

    pub fn draft(&self, step: &StepHead) -> &StepDraft {
        self.task().step(step.position)
    }

    pub fn name(&self, step: &StepHead) -> String {
        self.task().step_name(step.position, step.item)
    }
}

/// A failed try, as it was reported or found.
pub(super) struct Failure {
    pub reason: Reason,
    pub message: String,
    pub exit_code: Option<i32>,
    /// What the message says, for programs.
    pub facts: Facts,
}

impl Failure {
    pub fn new(reason: Reason, message: impl Into<String>) -> Failure {
        Failure {
            reason,
            message: message.into(),
            exit_code: None,
            facts: Facts::none(),
        }
    }

    pub fn of_child(child_job_id: JobId, message: String) -> Failure {
        Failure {
            facts: Facts::none().and("child_job_id", child_job_id.0),
            ..Failure::new(Reason::ChildFailed, message)
        }
    }

    pub fn exited(self, exit_code: Option<i32>) -> Failure {
        let facts = match exit_code {
            Some(exit_code) => self.facts.and("exit_code", exit_code),
            None => self.facts,
        };
        Failure {
            exit_code,
            facts,
            ..self
        }
    }
}

/// A step that became terminal and whose consequences are still to come.
struct Ended {
    job_id: JobId,
    position: u32,
    item: Option<u32>,
}

pub(super) struct Cascade<'a> {
    pub tx: &'a Tx<'a>,
    pub settings: &'a Settings,
    pub now: Now,
    /// The phase of recovery that set this in motion, and what it adds to the story, until the event that tells it.
    pub recovering: Option<(Phase, String)>,
    /// Steps made by this event so far.
    pub steps_created: usize,
    pub(super) uncounted: BTreeMap<JobId, TallyChange>,
    /// Groups in which a place may be free now.
    pub(super) freed_groups: BTreeSet<String>,
    ended: VecDeque<Ended>,
    /// Steps whose only dependency has ended, to be made ready together.
    releasing: Vec<(JobId, u32)>,
    contexts: HashMap<JobId, JobContext>,
    outcomes: HashMap<(JobId, u32), Outcome>,
    pub(super) outcomes_to_hook: VecDeque<Hooked>,
}

impl<'a> Cascade<'a> {
    pub fn new(tx: &'a Tx<'a>, settings: &'a Settings, now: Now) -> Cascade<'a> {
        Cascade {
            tx,
            settings,
            now,
            recovering: None,
            steps_created: 0,
            uncounted: BTreeMap::new(),
            freed_groups: BTreeSet::new(),
            ended: VecDeque::new(),
            releasing: Vec::new(),
            contexts: HashMap::new(),
            outcomes: HashMap::new(),
            outcomes_to_hook: VecDeque::new(),
        }
    }

    /// Follows up everything that has ended, until nothing is left to decide, count or settle.
    pub fn settle(mut self) -> Result<(), EngineError> {
        loop {
            while let Some(ended) = self.ended.pop_front() {
                match ended.item {
                    Some(_) => self.instance_ended(&ended)?,
                    None => self.decide_dependents(&ended)?,
                }
            }
            if !self.releasing.is_empty() {
                let releasing = std::mem::take(&mut self.releasing);
                self.tx.release_only_dependents(&releasing, self.now)?;
            }
            // Children have larger ids than their parents: settled first, they are counted in the same round.
            if let Some((job_id, change)) = self.uncounted.pop_last() {
                if let Some(job_move) = self.count(job_id, change)?.and_then(Tally::settles) {
                    self.settle_job(job_id, job_move)?;
                }
            } else if let Some(hooked) = self.outcomes_to_hook.pop_front() {
                self.run_hooks(hooked)?;
            } else if let Some(group) = self.freed_groups.pop_first() {
                self.admit_waiting(&group)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Records an event. The first one of a recovery is the one that tells it.
    pub(super) fn tell(&mut self, mut event: NewEvent) -> Result<(), EngineError> {
        if let Some((phase, addition)) = self.recovering.take() {
            event.phase = Some(phase.number());
            event.message = format!("[recovery] {}{addition}", event.message);
        }
        Ok(self.tx.record(&event, self.now)?)
    }

    /// Brings a job's counters up to date. `None`: it has ended meanwhile.
    pub(super) fn count(
        &mut self,
        job_id: JobId,
        change: TallyChange,
    ) -> Result<Option<Tally>, EngineError> {
        let was = self.context(job_id)?.tally;
        let tally = was.after(change);
        if !self.tx.tally(job_id, was, tally, change.failed_step_id)? {
            let ended = self
                .tx
                .job(job_id)?
                .is_some_and(|job| job.state.is_terminal());
            assert!(ended, "counters change through `count` alone");
            return Ok(None);
        }
        self.known_context(job_id).tally = tally;
        Ok(Some(tally))
    }

    fn known_context(&mut self, job_id: JobId) -> &mut JobContext {
        self.contexts.get_mut(&job_id).expect("just looked at")
    }

    pub fn context(&mut self, job_id: JobId) -> Result<JobContext, EngineError> {
        if let Some(context) = self.contexts.get(&job_id) {
            return Ok(context.clone());
        }
        let standing = self
            .tx
            .job_standing(job_id)?
            .ok_or(EngineError::JobNotFound { job_id })?;
        self.learn_context(job_id, standing)
    }

    /// What is known of a job that was just read or made.
    pub fn learn_context(
        &mut self,
        job_id: JobId,
        standing: JobStanding,
    ) -> Result<JobContext, EngineError> {
        let context = JobContext {
            job_id,
            definition_id: standing.definition_id,
            definition: self.tx.definition(standing.definition_id)?,
            task_index: standing.task_index,
            started: standing.started,
            tally: standing.tally,
        };
        self.contexts.insert(job_id, context.clone());
        Ok(context)
    }

    /// `false`: someone else was first, and nothing happened.
    pub fn finish_step(&mut self, step: &StepHead, ending: Ending) -> Result<bool, EngineError> {
        self.finish_steps(&[(step.clone(), ending)])
    }

    /// The one terminal writer. `false`: someone else was first with one of them.
    pub fn finish_steps(&mut self, endings: &[(StepHead, Ending)]) -> Result<bool, EngineError> {
        if !self.tx.end_steps(endings, self.now)? {
            return Ok(false);
        }
        for (step, ending) in endings {
            let context = self.context(step.job_id)?;
            if step.returns > 0 {
                self.tx.forget_avoidances(step.step_id)?;
            }
            if ending.step_move == StepMove::Fail {
                let name = context.name(step);
                let message = ending.message.as_deref().unwrap_or_default();
                let text = format!("step {name} failed: {message}");
                let mut event = NewEvent::new(EventKind::StepFailed, text).step(step);
                event.reason = ending.reason;
                self.tell(event.data(ending.data.clone()))?;
            }
            let outcome = match ending.step_move {
                StepMove::Complete => Outcome::Completed,
                StepMove::Fail => Outcome::Failed,
                StepMove::Cancel => Outcome::Cancelled,
                other => unreachable!("{other} does not finish a step that could run"),
            };
            self.note_end(&context, step.step_id, step.position, step.item, outcome);
        }
        Ok(true)
    }

    /// A try failed: by policy the step is tried again, held for a person, or failed.
    pub fn fail_or_retry(
        &mut self,
        context: &JobContext,
        step: &StepHead,
        failure: Failure,
    ) -> Result<bool, EngineError> {
        let draft = context.draft(step);
        let message = clip(&failure.message, limits::MESSAGE_BYTES_MAX);
        let after = after_failure(
            &draft.retry,
            draft.on_worker_loss,
            failure.reason,
            step.tries,
            step.attempt_ref(),
        );
        match after {
            AfterFailure::Fail => {
                let ending = Ending {
                    exit_code: failure.exit_code,
                    data: failure.facts.data(),
                    ..Ending::failed(failure.reason, message)
                };
                self.finish_step(step, ending)
            }
            AfterFailure::Hold => self.hold_step(context, step, &failure, &message),
            AfterFailure::RetryIn { delay_ms } => {
                self.retry_step(context, step, &failure, &message, delay_ms)
            }
        }
    }

    fn hold_step(
        &mut self,
        context: &JobContext,
        step: &StepHead,
        failure: &Failure,
        message: &str,
    ) -> Result<bool, EngineError> {
        let tried = self.tx.step(step.step_id)?.expect("it was just read");
        let reason = Some(failure.reason);
        if !self
            .tx
            .suspend_step(step, StepMove::Hold, None, reason, message, self.now)?
        {
            return Ok(false);
        }
        // The attempt is over now. Whatever a person decides later overwrites the step's row, but not this record.
        self.tx.record_former_attempt(
            &tried,
            FormerOutcome::Failed,
            failure.reason.as_str(),
            message,
            failure.exit_code,
            self.now,
        )?;
        let name = context.name(step);
        let text = format!("step {name} is held until someone resumes or fails it: {message}");
        let event = NewEvent::new(EventKind::StepHeld, text)
            .step(step)
            .reason(failure.reason);
        self.tell(event.data(failure.facts.data()))?;
        self.note_hooks(context, HookOn::Suspended, Some(step.step_id));
        Ok(true)
    }

    fn retry_step(
        &mut self,
        context: &JobContext,
        step: &StepHead,
        failure: &Failure,
        message: &str,
        delay_ms: i64,
    ) -> Result<bool, EngineError> {
        let tried = self.tx.step(step.step_id)?.expect("it was just read");
        let not_before_up = (delay_ms > 0).then(|| self.now.up.plus_ms(delay_ms));
        if !self.tx.retry_step(step, not_before_up, self.now)? {
            return Ok(false);
        }
        self.tx.record_former_attempt(
            &tried,
            FormerOutcome::Failed,
            failure.reason.as_str(),
            message,
            failure.exit_code,
            self.now,
        )?;
        let name = context.name(step);
        let text = format!(
            "step {name} failed (try {}) and is tried again in {}: {message}",
            step.tries,
            seconds(delay_ms)
        );
        let facts = (failure.facts.clone())
            .and("tries", step.tries)
            .and("max_attempts", context.draft(step).retry.max_attempts)
            .and_secs("again_in_secs", delay_ms);
        let event = NewEvent::new(EventKind::StepRetried, text)
            .step(step)
            .reason(failure.reason);
        self.tell(event.data(facts.data()))?;
        if step.kind == StepKind::Task && not_before_up.is_none() {
            let again = self.tx.step(step.step_id)?.expect("it was just moved");
            self.dispatch_child(context, &again)?;
        }
        Ok(true)
    }

    /// Counts an end and queues its consequences.
    pub(super) fn note_end(
        &mut self,
        context: &JobContext,
        step_id: StepId,
        position: u32,
        item: Option<u32>,
        outcome: Outcome,
    ) {
        let job_id = context.job_id;
        let change = self.uncounted.entry(job_id).or_default();
        change.ended += 1;
        if item.is_none() {
            // A loop counts once, through its placeholder.
            match outcome {
                Outcome::Failed if !context.task().step(position).continue_on_failure => {
                    change.failed += 1;
                    change.failed_step_id.get_or_insert(step_id);
                }
                Outcome::Cancelled => change.cancelled += 1,
                _ => {}
            }
            self.outcomes.insert((job_id, position), outcome);
        }
        self.ended.push_back(Ended {
            job_id,
            position,
            item,
        });
    }

    fn decide_dependents(&mut self, ended: &Ended) -> Result<(), EngineError> {
        let context = self.context(ended.job_id)?;
        let task = context.task();
        if planted(Bug::NoCascade) {
            return Ok(());
        }
        for &dependent in task.dependents(ended.position) {
            if let &[only] = task.dependencies(dependent) {
                // The usual chain: its one dependency decides it, so counting down and releasing are one statement.
                let outcome = self.outcomes[&(ended.job_id, only)];
                let depends_on = task.depends_on(dependent);
                if decide(task.step(dependent), depends_on, &|_| outcome) == Decision::Release {
                    self.releasing.push((ended.job_id, dependent));
                    continue;
                }
            }
            if let Some((step_id, 0)) = self.tx.dependency_ended(ended.job_id, dependent)? {
                self.decide_step(&context, step_id, dependent)?;
            }
        }
        Ok(())
    }

    /// Every dependency of a pending step is terminal: it runs, waits for a person, is made by the server, or is skipped.
    pub(super) fn decide_step(
        &mut self,
        context: &JobContext,
        step_id: StepId,
        position: u32,
    ) -> Result<(), EngineError> {
        for &dependency in context.task().dependencies(position) {
            self.learn_outcome(context.job_id, dependency)?;
        }
        let outcome_of = |position| self.outcomes[&(context.job_id, position)];
        let task = context.task();
        let decision = decide(task.step(position), task.depends_on(position), &outcome_of);
        let decision = match decision {
            Decision::Ask => {
                let Some(step) = self.pending_step(step_id)? else {
                    return Ok(());
                };
                match self.agrees(context, &step)? {
                    Ok(true) => begin(task.step(position)),
                    Ok(false) => Decision::Skip {
                        reason: Reason::WhenFalse,
                        refused_by: Vec::new(),
                    },
                    Err(failure) => return self.fail_step(&step, failure),
                }
            }
            other => other,
        };
        match decision {
            Decision::Ask => unreachable!("just asked"),
            Decision::Release => {
                self.tx.release_step(step_id, self.now)?;
            }
            Decision::Skip { reason, refused_by } => {
                let message = skip_sentence(task, reason, &refused_by);
                self.skip_step(context, step_id, position, reason, &message)?;
            }
            Decision::Suspend => self.suspend_for_approval(context, step_id)?,
            Decision::Dispatch => {
                if let Some(step) = self.pending_step(step_id)? {
                    self.dispatch_child(context, &step)?;
                }
            }
            Decision::Expand => {
                if let Some(step) = self.pending_step(step_id)? {
                    self.expand_loop(context, &step)?;
                }
            }
        }
        Ok(())
    }

    /// What it asks for cannot be made. No try follows: the next one would ask for the same.
    pub(super) fn fail_step(
        &mut self,
        step: &StepHead,
        failure: Failure,
    ) -> Result<(), EngineError> {
        let ending = Ending {
            data: failure.facts.data(),
            ..Ending::failed(
                failure.reason,
                clip(&failure.message, limits::MESSAGE_BYTES_MAX),
            )
        };
        let failed = self.finish_step(step, ending)?;
        assert!(failed, "nobody moves the step within our transaction");
        Ok(())
    }

    /// It never runs, by its own choice or because of what it depends on.
    pub(super) fn skip_step(
        &mut self,
        context: &JobContext,
        step_id: StepId,
        position: u32,
        reason: Reason,
        message: &str,
    ) -> Result<(), EngineError> {
        if self.tx.skip_step(step_id, reason, message, self.now)? {
            let outcome = match reason {
                Reason::DependencyNotAccepted => Outcome::Omitted,
                _ => Outcome::Skipped,
            };
            self.note_end(context, step_id, position, None, outcome);
        }
        Ok(())
    }

    /// `None`: its job was ended by what another step of it set in motion, such as a job that supersedes it.
    fn pending_step(&self, step_id: StepId) -> Result<Option<Step>, EngineError> {
        let step = self
            .tx
            .step(step_id)?
            .ok_or(EngineError::StepNotFound { step_id })?;
        Ok(Some(step).filter(|step| step.state == StepState::Pending))
    }

    fn learn_outcome(&mut self, job_id: JobId, position: u32) -> Result<(), EngineError> {
        if !self.outcomes.contains_key(&(job_id, position)) {
            let outcome = self.tx.outcome_at(job_id, position)?;
            let outcome = outcome.expect("a step is decided when all that it waits for has ended");
            self.outcomes.insert((job_id, position), outcome);
        }
        Ok(())
    }

    fn suspend_for_approval(
        &mut self,
        context: &JobContext,
        step_id: StepId,
    ) -> Result<(), EngineError> {
        let Some(step) = self.pending_step(step_id)? else {
            return Ok(());
        };
        let timeout_ms = context.draft(&step).timeout_ms;
        let due_up = timeout_ms.map(|ms| self.now.up.plus_ms(ms));
        let Action::Approval { message, .. } = &context.draft(&step).action else {
            unreachable!("only approvals are suspended before they ran");
        };
        let question = match self.render_kept_text(context, &step, "message", message)? {
            Ok(question) => clip(&question, limits::MESSAGE_BYTES_MAX),
            Err(failure) => return self.fail_step(&step, failure),
        };
        self.tx
            .suspend_step(&step, StepMove::Suspend, due_up, None, &question, self.now)?;
        self.start_job(context)?;
        let name = context.name(&step);
        let text = match question.trim() {
            "" => format!("step {name} waits for approval"),
            question => format!("step {name} waits for approval: {question}"),
        };
        let facts = match timeout_ms {
            Some(ms) => Facts::none().and_secs("timeout_secs", ms),
            None => Facts::none(),
        };
        let event = NewEvent::new(EventKind::StepSuspended, text).step(&step);
        self.tx.record(&event.data(facts.data()), self.now)?;
        self.note_hooks(context, HookOn::Suspended, Some(step_id));
        Ok(())
    }

    /// The job's first step started. Later ones change nothing.
    pub(super) fn start_job(&mut self, context: &JobContext) -> Result<(), EngineError> {
        if self.context(context.job_id)?.started {
            return Ok(());
        }
        let timeout_ms = context
            .task()
            .draft
            .timeout_ms
            .unwrap_or(self.settings.job_timeout_ms);
        let due_up = self.now.up.plus_ms(timeout_ms);
        let due_up = Some(due_up).filter(|_| !planted(Bug::JobTimeoutNotSet));
        self.tx.start_job(context.job_id, due_up, self.now)?;
        self.known_context(context.job_id).started = true;
        Ok(())
    }

    /// One instance of a loop ended: the next one starts, or the loop is over.
    fn instance_ended(&mut self, ended: &Ended) -> Result<(), EngineError> {
        let (job_id, position) = (ended.job_id, ended.position);
        match self.tx.instance_ended(job_id, position)? {
            // The loop was cancelled with its job.
            None => Ok(()),
            Some(0) => self.roll_up_loop(job_id, position),
            Some(_) => {
                let context = self.context(job_id)?;
                let for_each = context.task().step(position).for_each.as_ref();
                if for_each.is_some_and(|for_each| for_each.max_parallel.is_some())
                    && let Some(next) = self.tx.next_instance(job_id, position)?
                {
                    self.begin_instance(&context, &next)?;
                }
                Ok(())
            }
        }
    }

    /// All instances of a loop ended, so the loop did.
    pub(super) fn roll_up_loop(&mut self, job_id: JobId, position: u32) -> Result<(), EngineError> {
        let context = self.context(job_id)?;
        let instances = self.tx.instances(job_id, position)?;
        let placeholder = self
            .tx
            .step_at(job_id, position, None)?
            .expect("instances have their placeholder");
        let step_move = instances.roll_up();
        let (reason, message) = match step_move {
            StepMove::Complete => (None, None),
            StepMove::Fail => {
                let names: Vec<String> = self
                    .tx
                    .first_failed_instances(job_id, position)?
                    .into_iter()
                    .map(|item| context.task().step_name(position, Some(item)))
                    .collect();
                let more = if instances.failed as usize > names.len() {
                    ", …"
                } else {
                    ""
                };
                let message = format!(
                    "{} of {} instances failed: {}{more}",
                    instances.failed,
                    instances.total(),
                    names.join(", ")
                );
                (Some(Reason::InstanceFailed), Some(message))
            }
            _ => {
                let (cancelled, total) = (instances.cancelled, instances.total());
                let message = format!("{cancelled} of {total} instances were cancelled");
                (Some(Reason::ChildCancelled), Some(message))
            }
        };
        let ending = Ending {
            step_move,
            reason,
            message,
            exit_code: None,
            output: None,
            data: Facts::none()
                .and("failed", instances.failed)
                .and("cancelled", instances.cancelled)
                .and("instances", instances.total())
                .data(),
        };
        self.finish_step(&placeholder, ending)?;
        Ok(())
    }
}

fn skip_sentence(task: &Task, reason: Reason, refused_by: &[(u32, Outcome)]) -> String {
    const NAMED_MAX: usize = 3;
    match reason {
        Reason::WhenFalse => "its condition is false".to_string(),
        _ => {
            let named: Vec<String> = refused_by
                .iter()
                .take(NAMED_MAX)
                .map(|&(position, outcome)| match outcome {
                    Outcome::Skipped | Outcome::Omitted | Outcome::Cancelled => {
                        format!("step {} was {outcome}", task.step(position).name)
                    }
                    Outcome::Completed | Outcome::Failed => {
                        format!("step {} {outcome}", task.step(position).name)
                    }
                })
                .collect();
            let more = refused_by.len().saturating_sub(NAMED_MAX);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            format!("{}{more}, which it does not accept", named.join(", "))
        }
    }
}

/// A duration as people say it in these sentences.
pub(super) fn seconds(ms: i64) -> String {
    match (ms / 1000, ms % 1000) {
        (secs, 0) => format!("{secs} s"),
        (secs, ms) => format!("{secs}.{ms:03} s"),
    }
}
