//! One explanation for any step at any time: what it waits for, who could take it, what recovery will do about it and when;
//! or what ended it, down to the root cause.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use super::cascade::JobContext;
use super::lacks::{Lacks, WORKERS_MAX, in_words, install_on};
use super::poll::asked_again_alone_up;
use super::queries::load;
use super::{Engine, EngineError, Suspect};
use crate::domain::depends::Outcome;
use crate::domain::job::{Hold, Job};
use crate::domain::peer::Features;
use crate::domain::reason::{Reason, Waiting};
use crate::domain::recovery::{Deed, Foreseen};
use crate::domain::schedule::ScheduleStanding;
use crate::domain::span::span;
use crate::domain::step::{Step, StepKind, StepState};
use crate::domain::task::Action;
use crate::domain::worker::{Worker, WorkerStanding, WorkerState};
use crate::domain::{
    AttemptRef, JobId, Now, RequirementId, SessionId, StepId, Uptime, WorkerId, words,
};
use crate::metrics::Assignment;
use crate::store::{FormerOutcome, Requirement, Tx};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Waiting(Waiting),
    Ended(Reason),
    Completed,
    Worker(WorkerStanding),
    Schedule(ScheduleStanding),
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Code::Waiting(waiting) => waiting.fmt(f),
            Code::Ended(reason) => reason.fmt(f),
            Code::Completed => f.write_str("completed"),
            Code::Worker(standing) => standing.fmt(f),
            Code::Schedule(standing) => standing.fmt(f),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    pub code: Code,
    pub sentence: String,
    /// One line per worker, dependency or job that matters here.
    pub facts: Vec<Fact>,
    /// What a worker must offer to take it.
    pub needs: Vec<String>,
    /// Those that matter here; who offers all that it needs comes first.
    pub workers: Vec<WhyWorker>,
    /// Where it began, if that was somewhere else.
    pub root_cause: Option<RootCause>,
    /// What recovery will do if nothing happens.
    pub outcome: Option<WhyOutcome>,
    /// Steps that never run because of that, or because of how it ended; the first of them.
    pub skips: Vec<String>,
    /// What a person can do.
    pub fix: Vec<String>,
}

/// A line of an explanation, and what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub kind: FactKind,
    /// Without the words that say its kind.
    pub text: String,
}

words! {
    pub enum FactKind {
        Note = "note",
        /// There are more workers than are named.
        Others = "others",
        /// What follows from what recovery will do.
        Then = "then",
        /// What became of the last time of a schedule.
        Last = "last",
        /// The last time that made a job.
        LastJob = "last_job",
        /// What `root_cause` says.
        RootCause = "root_cause",
        ChildJob = "child_job",
        /// Why the latest assignment came back unstarted.
        Returned = "returned",
    }
}

impl Fact {
    pub fn new(kind: FactKind, text: impl Into<String>) -> Fact {
        let text = text.into();
        Fact { kind, text }
    }

    fn label(&self) -> &'static str {
        match self.kind {
            FactKind::Note | FactKind::Others | FactKind::Returned => "",
            FactKind::Then => "then ",
            FactKind::Last => "last: ",
            FactKind::LastJob => "last job: ",
            FactKind::RootCause => "root cause: ",
            FactKind::ChildJob => "child job ",
        }
    }

    pub(super) fn others() -> Fact {
        Fact::new(FactKind::Others, "and others")
    }
}

impl From<String> for Fact {
    fn from(text: String) -> Fact {
        Fact::new(FactKind::Note, text)
    }
}

impl PartialEq<&str> for Fact {
    fn eq(&self, sentence: &&str) -> bool {
        sentence.strip_prefix(self.label()) == Some(self.text.as_str())
    }
}

/// As a sentence that says its kind.
impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())?;
        f.write_str(&self.text)
    }
}

words! {
    /// What recovery will do, as its forecast calls it, seen from what is asked about.
    pub enum Outlook {
        Fail = "fail",
        Requeue = "requeue",
        Retry = "retry",
        Hold = "hold",
        CancelJob = "cancel_job",
        MarkInactive = "mark_inactive",
    }
}

impl Outlook {
    pub fn sentence(self) -> &'static str {
        match self {
            Outlook::Fail => "the step fails",
            Outlook::Requeue => "the step goes back to the queue",
            Outlook::Retry => "the step is tried again",
            Outlook::Hold => "the step is held",
            Outlook::CancelJob => "its job is cancelled",
            Outlook::MarkInactive => "the worker becomes inactive",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WhyOutcome {
    pub deed: Outlook,
    pub phase: u8,
    pub in_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhyWorker {
    pub name: String,
    pub offers: Vec<String>,
    pub lacks: Vec<String>,
    /// What its program lacks for the step: a newer version has it.
    pub lacks_features: Features,
    /// `active`, `draining`, `paused` or `inactive`.
    pub standing: WorkerStanding,
    pub seen_ms_ago: i64,
    pub slots_used: u32,
    pub slots: u32,
}

/// The step that did not do as it should by itself, perhaps of a child job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootCause {
    pub job_id: JobId,
    pub step: String,
    pub state: StepState,
    pub reason: Option<Reason>,
    pub sentence: String,
}

/// A step with its job, explained.
#[derive(Debug, Clone)]
pub struct StepWhy {
    pub job: Job,
    pub name: String,
    pub step: Step,
    pub worker: Option<String>,
    pub max_attempts: u32,
    pub why: Why,
}

impl Why {
    pub(super) fn of(code: Code, sentence: impl Into<String>) -> Why {
        Why {
            code,
            sentence: sentence.into(),
            facts: Vec::new(),
            needs: Vec::new(),
            workers: Vec::new(),
            root_cause: None,
            outcome: None,
            skips: Vec::new(),
            fix: Vec::new(),
        }
    }

    fn new(waiting: Waiting, sentence: impl Into<String>) -> Why {
        Why::of(Code::Waiting(waiting), sentence)
    }
}

impl Engine {
    pub fn why(&self, step_id: StepId, now: Now) -> Result<Why, EngineError> {
        self.store.read(|tx| {
            let step = tx
                .step(step_id)?
                .ok_or(EngineError::StepNotFound { step_id })?;
            let (job, context) = load(tx, step.job_id)?;
            Explainer::new(self, tx, now).why(&job, &context, &step)
        })
    }

    /// With what follows from it.
    pub fn why_step(&self, step_id: StepId, now: Now) -> Result<StepWhy, EngineError> {
        self.store.read(|tx| {
            let step = tx
                .step(step_id)?
                .ok_or(EngineError::StepNotFound { step_id })?;
            let (job, context) = load(tx, step.job_id)?;
            Explainer::in_full(self, tx, now).step(&job, &context, step)
        })
    }
}

/// Of steps of jobs below that are looked at for one answer.
const LOOKS_BELOW_MAX: u32 = 100;

/// Answers for as many steps as one likes, out of one snapshot. Who could take what is looked up once for all of them.
pub(super) struct Explainer<'a> {
    pub(super) engine: &'a Engine,
    pub(super) tx: &'a Tx<'a>,
    pub(super) now: Now,
    /// What follows for other steps is told as well. That takes a look at each of them.
    in_full: bool,
    pub(super) outcomes: RefCell<HashMap<(JobId, u32), Option<Outcome>>>,
    able: RefCell<HashMap<RequirementId, Rc<Vec<Worker>>>>,
    slots_used: RefCell<HashMap<SessionId, u32>>,
    /// How many more steps of jobs below are looked at, for all that is asked.
    looks_below: Cell<u32>,
}

impl<'a> Explainer<'a> {
    pub fn new(engine: &'a Engine, tx: &'a Tx<'a>, now: Now) -> Explainer<'a> {
        Explainer {
            engine,
            tx,
            now,
            in_full: false,
            outcomes: RefCell::default(),
            able: RefCell::default(),
            slots_used: RefCell::default(),
            looks_below: Cell::new(LOOKS_BELOW_MAX),
        }
    }

    pub fn in_full(engine: &'a Engine, tx: &'a Tx<'a>, now: Now) -> Explainer<'a> {
        Explainer {
            in_full: true,
            ..Explainer::new(engine, tx, now)
        }
    }

    pub fn step(
        &self,
        job: &Job,
        context: &JobContext,
        step: Step,
    ) -> Result<StepWhy, EngineError> {
        let why = self.why(job, context, &step)?;
        let worker = match step.worker_id {
            Some(worker_id) => self.tx.worker(worker_id)?,
            None => None,
        };
        Ok(StepWhy {
            job: job.clone(),
            name: context.name(&step),
            worker: worker.map(|worker| worker.name),
            max_attempts: context.draft(&step).retry.max_attempts,
            step,
            why,
        })
    }

    pub fn why(&self, job: &Job, context: &JobContext, step: &Step) -> Result<Why, EngineError> {
        let asked = Asked {
            all: self,
            tx: self.tx,
            now: self.now,
            job,
            context,
            step,
        };
        asked.why()
    }

    fn able(&self, requirement_id: RequirementId) -> Result<Rc<Vec<Worker>>, EngineError> {
        if let Some(known) = self.able.borrow().get(&requirement_id) {
            return Ok(known.clone());
        }
        let able = Rc::new(self.tx.workers_able_to(requirement_id, u32::MAX)?);
        self.able.borrow_mut().insert(requirement_id, able.clone());
        Ok(able)
    }

    /// As it stands, against what is needed.
    pub fn worker(
        &self,
        worker: &Worker,
        needs: Option<&Requirement>,
    ) -> Result<WhyWorker, EngineError> {
        let slots_used = match worker.session_id {
            Some(session_id) => self.slots_used(session_id)?,
            None => 0,
        };
        let standing = match worker.state {
            WorkerState::Inactive => WorkerStanding::Inactive,
            WorkerState::Active if worker.draining => WorkerStanding::Draining,
            WorkerState::Active if worker.paused => WorkerStanding::Paused,
            WorkerState::Active => WorkerStanding::Active,
        };
        let tags = needs.map_or(&[][..], |needs| &needs.tags);
        let lacks = tags.iter().filter(|tag| !worker.tags.contains(tag));
        let lacks_features = needs.map_or(Features::NONE, |needs| {
            needs.features.missing_in(worker.features)
        });
        Ok(WhyWorker {
            name: worker.name.clone(),
            offers: worker.tags.clone(),
            lacks: lacks.cloned().collect(),
            lacks_features,
            standing,
            seen_ms_ago: worker.silent_ms(self.now),
            slots_used,
            slots: worker.slots,
        })
    }

    /// What steps with this requirement wait for, as each of them would be answered.
    pub fn taken_by(&self, requirement_id: RequirementId) -> Result<Waiting, EngineError> {
        let able = self.able(requirement_id)?;
        if able.is_empty() {
            return Ok(Waiting::NoMatchingWorker);
        }
        let active = able
            .iter()
            .filter(|worker| worker.state == WorkerState::Active);
        if active.clone().next().is_none() {
            return Ok(Waiting::MatchingWorkersSilent);
        }
        let mut waiting = Waiting::Paused;
        for worker in active.filter(|worker| worker.takes_work()) {
            let used = match worker.session_id {
                Some(session_id) => self.slots_used(session_id)?,
                None => 0,
            };
            if used < worker.slots {
                return Ok(Waiting::Claimable);
            }
            waiting = Waiting::WorkersBusy;
        }
        Ok(waiting)
    }

    pub fn slots_used(&self, session_id: SessionId) -> Result<u32, EngineError> {
        if let Some(&known) = self.slots_used.borrow().get(&session_id) {
            return Ok(known);
        }
        let used = self.tx.slots_used(session_id)?;
        self.slots_used.borrow_mut().insert(session_id, used);
        Ok(used)
    }
}

/// One question, with everything needed to answer it.
pub(super) struct Asked<'a> {
    pub all: &'a Explainer<'a>,
    pub tx: &'a Tx<'a>,
    pub now: Now,
    pub job: &'a Job,
    pub context: &'a JobContext,
    pub step: &'a Step,
}

impl Asked<'_> {
    fn why(&self) -> Result<Why, EngineError> {
        let mut why = self.explained()?;
        if !self.step.state.is_terminal() {
            why.outcome = self.outcome()?;
        }
        if self.all.in_full {
            why.skips = match why.outcome {
                Some(outcome) if outcome.deed == Outlook::Fail => self.would_skip()?,
                None if self.step.state.is_terminal() => self.skipped()?,
                _ => Vec::new(),
            };
        }
        Ok(why)
    }

    /// What recovery will do first if nothing happens. Its own foresight says that.
    fn outcome(&self) -> Result<Option<WhyOutcome>, EngineError> {
        let step_id = self.step.step_id;
        let mut suspects = vec![
            Suspect::HeldStep(step_id),
            Suspect::OverdueStep(step_id),
            Suspect::UnmatchedStep(step_id),
            Suspect::OverdueJob(self.job.job_id, 0),
        ];
        // Whatever ends a job above ends this step too.
        let mut parent = self.job.parent;
        while let Some(above) = parent {
            let Some(step) = self.tx.step(above.step_id)? else {
                break;
            };
            suspects.push(Suspect::OverdueStep(step.step_id));
            suspects.push(Suspect::OverdueJob(step.job_id, 0));
            parent = self.tx.job(step.job_id)?.and_then(|job| job.parent);
        }
        let holder = match self
            .step
            .worker_id
            .filter(|_| self.step.session_id.is_some())
        {
            Some(worker_id) => self.tx.worker(worker_id)?,
            None => None,
        };
        let late_up = self.all.engine.bounds().late_since(self.now.up);
        if let Some(worker) = holder.filter(|worker| worker.seen_up <= late_up) {
            suspects.push(Suspect::Worker(worker.worker_id));
        }
        let mut first: Option<Foreseen> = None;
        for suspect in suspects {
            for foreseen in self.all.engine.foresee(self.tx, suspect, self.now)? {
                let of_others = matches!(suspect, Suspect::Worker(_))
                    && foreseen.recovery.step_id != Some(step_id);
                let sooner = first
                    .as_ref()
                    .is_none_or(|first| foreseen.at_up < first.at_up);
                if sooner && !of_others {
                    first = Some(foreseen);
                }
            }
        }
        Ok(first.map(|foreseen| WhyOutcome {
            deed: match foreseen.recovery.deed {
                _ if foreseen.recovery.step_id != Some(step_id) => Outlook::CancelJob,
                Deed::Requeue => Outlook::Requeue,
                Deed::Retry => Outlook::Retry,
                Deed::Hold => Outlook::Hold,
                _ => Outlook::Fail,
            },
            phase: foreseen.recovery.phase.number(),
            in_ms: foreseen.in_ms,
        }))
    }

    fn explained(&self) -> Result<Why, EngineError> {
        match self.step.state {
            StepState::Pending => self.pending(),
            StepState::Ready => self.ready(),
            StepState::Assigned => self.assigned(),
            StepState::Running => self.running(),
            StepState::Suspended => Ok(self.suspended()),
            StepState::Completed => Ok(Why::of(Code::Completed, "completed")),
            StepState::Failed | StepState::Skipped | StepState::Cancelled => self.ended(),
        }
    }

    fn pending(&self) -> Result<Why, EngineError> {
        if self.step.item.is_some() {
            let for_each = self.draft().for_each.as_ref();
            let limit = for_each
                .and_then(|for_each| for_each.max_parallel)
                .unwrap_or(0);
            let noun = if limit == 1 { "instance" } else { "instances" };
            let sentence = format!("max_parallel lets {limit} {noun} of the loop run at a time");
            return Ok(Why::new(Waiting::Concurrency, sentence));
        }
        match self.job.hold {
            Some(Hold::NotBefore) => {
                let in_ms = self
                    .job
                    .not_before
                    .map_or(0, |at| at.0 - self.now.wall.0)
                    .max(0);
                let sentence = format!("its job starts in {}", span(in_ms));
                Ok(Why::new(Waiting::NotBefore, sentence))
            }
            Some(Hold::Concurrency) => {
                let group = self.job.concurrency_group.as_deref().unwrap_or_default();
                let mut why = Why::new(
                    Waiting::Concurrency,
                    format!("its job waits for a place in group {group}"),
                );
                for job_id in self.tx.group_running(group)? {
                    why.facts
                        .push(format!("job {job_id} is in the group").into());
                    why.fix.push(format!("stepward why {job_id}"));
                }
                Ok(why)
            }
            None => self.dependencies(),
        }
    }

    fn dependencies(&self) -> Result<Why, EngineError> {
        const FACTS_MAX: usize = 10;
        let task = self.context.task();
        let mut facts = Vec::new();
        for &position in task.dependencies(self.step.position) {
            if facts.len() == FACTS_MAX {
                break;
            }
            let dependency = self.tx.step_at(self.step.job_id, position, None)?;
            if let Some(dependency) = dependency.filter(|step| !step.state.is_terminal()) {
                let name = &task.step(position).name;
                facts.push(format!("step {name} is {}", dependency.state).into());
            }
        }
        let count = self.step.waiting_on;
        let noun = if count == 1 { "step" } else { "steps" };
        let sentence = format!("it waits for {count} {noun} to end");
        Ok(Why {
            facts,
            fix: vec![format!("stepward why {}", self.step.job_id)],
            ..Why::new(Waiting::Dependencies, sentence)
        })
    }

    fn ready(&self) -> Result<Why, EngineError> {
        // A step that was never tried waits only because one event had made enough others.
        let retry_up = self.step.not_before_up.filter(|_| self.step.tries > 0);
        if let Some(not_before_up) = retry_up {
            let in_ms = (not_before_up.0 - self.now.up.0).max(0);
            let (next, max) = (self.step.tries + 1, self.draft().retry.max_attempts);
            let sentence = format!("try {next} of {max} begins in {}", span(in_ms));
            let mut why = Why::new(Waiting::RetryBackoff, sentence);
            if let Some(last) = self.tx.former_attempts(self.step.step_id)?.last() {
                why.facts
                    .push(format!("attempt {}: {}", last.attempt, last.message).into());
            }
            let (job_id, name) = (self.step.job_id, shell_word(&self.name()));
            why.fix.push(format!("stepward logs {job_id} {name}"));
            return Ok(why);
        }
        let Some(requirement_id) = self.step.requirement_id else {
            return Ok(Why::new(Waiting::Claimable, "the server takes it next"));
        };
        let mut why = self.taker(requirement_id)?;
        why.needs = self.tx.requirement(requirement_id)?.tags;
        why.facts.splice(0..0, self.last_return()?);
        Ok(why)
    }

    /// Why the latest assignment of this step came back unstarted, for example because the worker's disk is full. `None` if the
    /// step never came back, or has been started since.
    fn last_return(&self) -> Result<Option<Fact>, EngineError> {
        if self.step.returns == 0 {
            return Ok(None);
        }
        let former = self.tx.former_attempts(self.step.step_id)?;
        let returned = former.iter().rev();
        let mut returned = returned.filter(|former| former.outcome == FormerOutcome::Returned);
        let last = returned.next();
        Ok(last.map(|last| {
            let text = format!("attempt {}: {}", last.attempt, last.message);
            Fact::new(FactKind::Returned, text)
        }))
    }

    /// Whether a person took the step from this worker when the worker last had it.
    fn was_requeued_from(&self, worker_id: WorkerId) -> Result<bool, EngineError> {
        let former = self.tx.former_attempts(self.step.step_id)?;
        let mut its = former.iter().rev();
        let last = its.find(|former| former.worker_id == Some(worker_id));
        Ok(last.is_some_and(|last| last.reason == Assignment::RequeuedByUser.as_str()))
    }

    /// Who will take a step that is there to be taken.
    fn taker(&self, requirement_id: RequirementId) -> Result<Why, EngineError> {
        let able = self.all.able(requirement_id)?;
        let active: Vec<&Worker> = able
            .iter()
            .filter(|worker| worker.state == WorkerState::Active)
            .collect();
        let taking: Vec<&&Worker> = active.iter().filter(|worker| worker.takes_work()).collect();
        if taking.is_empty() {
            let requirement = self.tx.requirement(requirement_id)?;
            return self.nobody_takes_it(requirement_id, &requirement, &able, &active);
        }
        let mut workers = Vec::new();
        for worker in taking.iter().take(WORKERS_MAX) {
            workers.push(self.all.worker(worker, None)?);
        }
        // Workers that gave the step back, and until when another worker is preferred to each of them.
        let mut avoided: Vec<(&Worker, Uptime)> = Vec::new();
        let mut has_alternative = false;
        for worker in &taking {
            let until_up = self.tx.avoided_until(self.step.step_id, worker.worker_id)?;
            let until_up = until_up.filter(|until_up| *until_up > self.now.up);
            let used = match worker.session_id {
                Some(session_id) => self.all.slots_used(session_id)?,
                None => 0,
            };
            let has_free_slot = used < worker.slots;
            match until_up {
                Some(until_up) if has_free_slot => avoided.push((worker, until_up)),
                Some(_) => {}
                None if has_free_slot => return Ok(can_take(&worker.name, workers)),
                None => has_alternative = true,
            }
        }
        if let Some((worker, until_up)) = avoided.iter().min_by_key(|(_, until_up)| *until_up) {
            let name = &worker.name;
            let asked_up = match has_alternative {
                true => *until_up,
                false => asked_again_alone_up(*until_up),
            };
            if asked_up <= self.now.up {
                return Ok(can_take(name, workers));
            }
            let within = span(asked_up.0 - self.now.up.0);
            let sentence = match self.was_requeued_from(worker.worker_id)? {
                true => format!(
                    "a person requeued the step; worker {name}, which had it, is asked again within {within}"
                ),
                false => format!("worker {name} gave it back and is asked again within {within}"),
            };
            return Ok(Why {
                workers,
                ..Why::new(Waiting::Claimable, sentence)
            });
        }
        let busy = |worker: &&&Worker| {
            let (name, slots) = (&worker.name, worker.slots);
            match slots {
                1 => format!("worker {name}: its slot is busy"),
                _ => format!("worker {name}: all {slots} slots are busy"),
            }
        };
        let others = (taking.len() > WORKERS_MAX).then(Fact::others);
        let facts = taking.iter().take(WORKERS_MAX).map(busy);
        let facts = facts.map(Fact::from);
        let facts = facts.chain(others).collect();
        let sentence = "every worker that could take it is busy";
        Ok(Why {
            facts,
            workers,
            ..Why::new(Waiting::WorkersBusy, sentence)
        })
    }

    fn nobody_takes_it(
        &self,
        requirement_id: RequirementId,
        requirement: &Requirement,
        able: &[Worker],
        active: &[&Worker],
    ) -> Result<Why, EngineError> {
        let tags = &requirement.tags;
        let needs = |has: &str| match requirement.features.is_empty() {
            true => tags.join(" + "),
            false => format!(
                "{} and {has} the feature {}",
                tags.join(" + "),
                in_words(requirement.features)
            ),
        };
        let (waiting, sentence) = if able.is_empty() {
            (
                Waiting::NoMatchingWorker,
                format!("no worker offers {}", needs("has")),
            )
        } else if active.is_empty() {
            (
                Waiting::MatchingWorkersSilent,
                format!("the workers that offer {} are silent", needs("have")),
            )
        } else {
            (
                Waiting::Paused,
                format!(
                    "the workers that offer {} are paused or drain",
                    needs("have")
                ),
            )
        };
        let mut why = Why::new(waiting, sentence);
        let lacks = Lacks::find(self.tx, requirement_id, requirement, self.now)?;
        why.facts = lacks.about_workers().map(Fact::from).collect();
        why.facts.extend(lacks.more.then(Fact::others));
        for worker in lacks.workers() {
            why.workers
                .push(self.all.worker(worker, Some(requirement))?);
        }
        why.fix = able.iter().take(3).map(revive).collect();
        let too_old = why
            .workers
            .iter()
            .filter(|worker| worker.lacks.is_empty() && !worker.lacks_features.is_empty());
        let upgrades = too_old.take(3).map(|worker| install_on(&worker.name));
        why.fix.extend(upgrades);
        why.fix
            .push(format!("stepward worker --tags {}", tags.join(",")));
        Ok(why)
    }

    fn assigned(&self) -> Result<Why, EngineError> {
        let worker = self.worker_name(self.step.worker_id)?;
        let sentence = format!("worker {worker} prepares it for {}", self.since());
        let silence = self.silence()?.map(Fact::from);
        Ok(Why {
            facts: self.last_return()?.into_iter().chain(silence).collect(),
            ..Why::new(Waiting::Preparing, sentence)
        })
    }

    /// Of whoever holds it, if it should have spoken by now.
    fn silence(&self) -> Result<Option<String>, EngineError> {
        let worker = match self.step.worker_id {
            Some(worker_id) => self.tx.worker(worker_id)?,
            None => None,
        };
        let late_up = self.all.engine.bounds().late_since(self.now.up);
        let limit = span(self.all.engine.settings.heartbeat_timeout_ms);
        Ok(worker.filter(|worker| worker.seen_up <= late_up).map(|worker| {
            let heard = span(worker.silent_ms(self.now));
            let name = worker.name;
            format!(
                "worker {name} was last heard {heard} ago; after {limit} of silence it counts as gone"
            )
        }))
    }

    fn running(&self) -> Result<Why, EngineError> {
        Ok(match self.step.kind {
            StepKind::Task => {
                let child = self.step.child_job_id;
                let named = child.map_or("?".to_string(), |id| id.to_string());
                let mut why = Why::new(
                    Waiting::ChildJob,
                    format!("child job {named} runs for {}", self.since()),
                );
                if let Some(child) = child.filter(|_| self.all.in_full) {
                    why.facts = self.waits_below(child)?;
                }
                why.fix = vec![format!("stepward why {named}")];
                why
            }
            StepKind::Loop => {
                let sentence = match self.step.waiting_on {
                    1 => "1 instance has not ended".to_string(),
                    open => format!("{open} instances have not ended"),
                };
                Why::new(Waiting::Instances, sentence)
            }
            StepKind::Work | StepKind::Approval => {
                let worker = self.worker_name(self.step.worker_id)?;
                let mut facts: Vec<Fact> = self.silence()?.into_iter().map(Fact::from).collect();
                let attempt = AttemptRef {
                    step_id: self.step.step_id,
                    attempt: self.step.attempt,
                };
                if self.tx.is_unconfirmed(attempt)? {
                    let text = "the worker has not confirmed that it received the step";
                    facts.push(text.to_string().into());
                }
                Why {
                    facts,
                    ..Why::new(
                        Waiting::Running,
                        format!("worker {worker} runs it for {}", self.since()),
                    )
                }
            }
        })
    }

    /// What the first step of a child job waits for that waits for somebody: who asks about the parent wants to know it.
    fn waits_below(&self, child: JobId) -> Result<Vec<Fact>, EngineError> {
        if self.all.looks_below.get() == 0 {
            return Ok(Vec::new());
        }
        let (job, context) = load(self.tx, child)?;
        let mut below = Vec::new();
        for step in self.tx.steps_of_job(child)? {
            let is_child = step.state == StepState::Running && step.kind == StepKind::Task;
            if !is_child && !matches!(step.state, StepState::Ready | StepState::Suspended) {
                continue;
            }
            // A child may have as many steps, and children, as a job can: what is well would be looked at without end.
            let Some(left) = self.all.looks_below.get().checked_sub(1) else {
                break;
            };
            self.all.looks_below.set(left);
            let why = self.all.why(&job, &context, &step)?;
            if is_child {
                below = why.facts;
            } else if why.code != Code::Waiting(Waiting::Claimable) {
                let outcome = why.outcome.map(|outcome| {
                    let (deed, phase) = (outcome.deed.sentence(), outcome.phase);
                    format!(
                        "; {deed} in {} by recovery phase {phase}",
                        span(outcome.in_ms)
                    )
                });
                let (name, sentence) = (context.name(&step), why.sentence);
                let outcome = outcome.unwrap_or_default();
                below =
                    vec![format!("step {name} of job {child} waits: {sentence}{outcome}").into()];
            }
            if !below.is_empty() {
                break;
            }
        }
        Ok(below)
    }

    fn suspended(&self) -> Why {
        let message = self.step.message.as_deref().unwrap_or_default();
        let (waiting, sentence) = match &self.draft().action {
            Action::Approval { .. } => {
                (Waiting::Approval, format!("someone must decide: {message}"))
            }
            _ => (
                Waiting::Held,
                format!(
                    "someone must decide whether it runs again (approve) or fails (reject): {message}"
                ),
            ),
        };
        let mut why = Why::new(waiting, sentence);
        let (job_id, name) = (self.step.job_id, shell_word(&self.name()));
        why.fix = vec![
            format!("stepward approve {job_id} {name}"),
            format!("stepward reject {job_id} {name} -m WHY"),
        ];
        why
    }

    pub fn name(&self) -> String {
        self.context.name(self.step)
    }

    pub fn draft(&self) -> &crate::domain::task::StepDraft {
        self.context.draft(self.step)
    }

    fn since(&self) -> String {
        span(self.step.since_ms(self.job.created_at, self.now))
    }

    pub fn worker_name(&self, worker_id: Option<WorkerId>) -> Result<String, EngineError> {
        let worker = match worker_id {
            Some(worker_id) => self.tx.worker(worker_id)?,
            None => None,
        };
        Ok(worker.map_or("?".to_string(), |worker| worker.name))
    }
}

/// As a shell reads it back.
pub(super) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./@:,+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

pub(super) fn revive(worker: &Worker) -> String {
    if worker.paused && worker.state == WorkerState::Active {
        format!("stepward worker resume {}", shell_word(&worker.name))
    } else {
        format!("start worker {} again", worker.name)
    }
}

/// Says that a worker with a free slot can take the step. `workers`: all workers that could take it.
fn can_take(name: &str, workers: Vec<WhyWorker>) -> Why {
    let sentence = format!("worker {name} can take it with its next poll");
    Why {
        workers,
        ..Why::new(Waiting::Claimable, sentence)
    }
}
