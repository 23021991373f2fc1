//! One explanation for any step at any time: what it waits for, who could take it, what recovery will do about it and when;
//! or what ended it, down to the root cause.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use super::cascade::{JobContext, seconds};
use super::lacks::{Lacks, WORKERS_MAX};
use super::queries::load;
use super::{Engine, EngineError, Suspect};
use crate::domain::depends::Outcome;
use crate::domain::job::{Hold, Job};
use crate::domain::reason::{Reason, Waiting};
use crate::domain::recovery::{Deed, Foreseen};
use crate::domain::step::{Step, StepKind, StepState};
use crate::domain::task::Action;
use crate::domain::worker::{Worker, WorkerState};
use crate::domain::{Now, RequirementId, SessionId, StepId, WorkerId};
use crate::store::Tx;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Waiting(Waiting),
    Ended(Reason),
    Completed,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Code::Waiting(waiting) => waiting.fmt(f),
            Code::Ended(reason) => reason.fmt(f),
            Code::Completed => f.write_str("completed"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    pub code: Code,
    pub sentence: String,
    /// One line per worker, dependency or job that matters here.
    pub facts: Vec<String>,
    /// What recovery will do if nothing happens.
    pub outcome: Option<WhyOutcome>,
    /// What a person can do.
    pub fix: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WhyOutcome {
    pub action: &'static str,
    pub phase: u8,
    pub in_ms: i64,
}

impl Why {
    fn new(waiting: Waiting, sentence: impl Into<String>) -> Why {
        Why {
            code: Code::Waiting(waiting),
            sentence: sentence.into(),
            facts: Vec::new(),
            outcome: None,
            fix: Vec::new(),
        }
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
}

/// Answers for as many steps as one likes, out of one snapshot. Who could take what is looked up once for all of them.
pub(super) struct Explainer<'a> {
    engine: &'a Engine,
    tx: &'a Tx<'a>,
    now: Now,
    able: RefCell<HashMap<RequirementId, Rc<Vec<Worker>>>>,
    slots_used: RefCell<HashMap<SessionId, u32>>,
}

impl<'a> Explainer<'a> {
    pub fn new(engine: &'a Engine, tx: &'a Tx<'a>, now: Now) -> Explainer<'a> {
        Explainer {
            engine,
            tx,
            now,
            able: RefCell::default(),
            slots_used: RefCell::default(),
        }
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

    fn slots_used(&self, session_id: SessionId) -> Result<u32, EngineError> {
        if let Some(&known) = self.slots_used.borrow().get(&session_id) {
            return Ok(known);
        }
        let used = self.tx.slots_used(session_id)?;
        self.slots_used.borrow_mut().insert(session_id, used);
        Ok(used)
    }
}

/// One question, with everything needed to answer it.
struct Asked<'a> {
    all: &'a Explainer<'a>,
    tx: &'a Tx<'a>,
    now: Now,
    job: &'a Job,
    context: &'a JobContext,
    step: &'a Step,
}

impl Asked<'_> {
    fn why(&self) -> Result<Why, EngineError> {
        let mut why = self.explained()?;
        if !self.step.state.is_terminal() {
            why.outcome = self.outcome()?;
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
            action: match foreseen.recovery.deed {
                _ if foreseen.recovery.step_id != Some(step_id) => "its job is cancelled",
                Deed::Requeue => "the step goes back to the queue",
                Deed::Retry => "the step is tried again",
                Deed::Hold => "the step is held",
                _ => "the step fails",
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
            StepState::Completed => Ok(Why {
                code: Code::Completed,
                ..Why::new(Waiting::Running, "completed")
            }),
            StepState::Failed | StepState::Skipped | StepState::Cancelled => self.ended(),
        }
    }

    fn pending(&self) -> Result<Why, EngineError> {
        if self.step.item.is_some() {
            let for_each = self.draft().for_each.as_ref();
            let limit = for_each
                .and_then(|for_each| for_each.max_parallel)
                .unwrap_or(0);
            let sentence = format!("max_parallel lets {limit} instances of the loop run at a time");
            return Ok(Why::new(Waiting::Concurrency, sentence));
        }
        match self.job.hold {
            Some(Hold::NotBefore) => {
                let in_ms = self
                    .job
                    .not_before
                    .map_or(0, |at| at.0 - self.now.wall.0)
                    .max(0);
                let sentence = format!("its job starts in {}", seconds(in_ms));
                Ok(Why::new(Waiting::NotBefore, sentence))
            }
            Some(Hold::Concurrency) => {
                let group = self.job.concurrency_group.as_deref().unwrap_or_default();
                let mut why = Why::new(
                    Waiting::Concurrency,
                    format!("its job waits for a place in group {group}"),
                );
                for job_id in self.tx.group_running(group)? {
                    why.facts.push(format!("job {job_id} is in the group"));
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
                facts.push(format!(
                    "step {} is {}",
                    task.step(position).name,
                    dependency.state
                ));
            }
        }
        let count = self.step.waiting_on;
        let noun = if count == 1 { "step" } else { "steps" };
        let sentence = format!("it waits for {count} {noun} to end");
        Ok(Why {
            facts,
            ..Why::new(Waiting::Dependencies, sentence)
        })
    }

    fn ready(&self) -> Result<Why, EngineError> {
        // A step that was never tried waits only because one event had made enough others.
        let retry_up = self.step.not_before_up.filter(|_| self.step.tries > 0);
        if let Some(not_before_up) = retry_up {
            let in_ms = (not_before_up.0 - self.now.up.0).max(0);
            let (next, max) = (self.step.tries + 1, self.draft().retry.max_attempts);
            let sentence = format!("try {next} of {max} begins in {}", seconds(in_ms));
            return Ok(Why::new(Waiting::RetryBackoff, sentence));
        }
        let Some(requirement_id) = self.step.requirement_id else {
            return Ok(Why::new(Waiting::Claimable, "the server takes it next"));
        };
        let able = self.all.able(requirement_id)?;
        let active: Vec<&Worker> = able
            .iter()
            .filter(|worker| worker.state == WorkerState::Active)
            .collect();
        let taking: Vec<&&Worker> = active.iter().filter(|worker| worker.takes_work()).collect();
        if taking.is_empty() {
            let tags = self.tx.requirement_tags(requirement_id)?;
            return self.nobody_takes_it(requirement_id, &tags, &able, &active);
        }
        let mut passed_over = None;
        for worker in &taking {
            let used = match worker.session_id {
                Some(session_id) => self.all.slots_used(session_id)?,
                None => 0,
            };
            if used < worker.slots {
                let until_up = self.tx.avoided_until(self.step.step_id, worker.worker_id)?;
                if let Some(until_up) = until_up.filter(|until_up| *until_up > self.now.up) {
                    passed_over = Some((worker.name.clone(), until_up));
                    continue;
                }
                let sentence = format!("worker {} can take it with its next poll", worker.name);
                return Ok(Why::new(Waiting::Claimable, sentence));
            }
        }
        if let Some((name, until_up)) = passed_over {
            let in_ms = until_up.0 - self.now.up.0;
            let sentence = format!(
                "worker {name} gave it back and is asked again within {}",
                seconds(in_ms)
            );
            return Ok(Why::new(Waiting::Claimable, sentence));
        }
        let busy = |worker: &&&Worker| {
            let (name, slots) = (&worker.name, worker.slots);
            format!("worker {name}: all {slots} slots busy")
        };
        let others = (taking.len() > WORKERS_MAX).then(|| "and others".to_string());
        let facts = taking.iter().take(WORKERS_MAX).map(busy);
        let facts = facts.chain(others).collect();
        let sentence = "every worker that could take it is busy";
        Ok(Why {
            facts,
            ..Why::new(Waiting::WorkersBusy, sentence)
        })
    }

    fn nobody_takes_it(
        &self,
        requirement_id: RequirementId,
        tags: &[String],
        able: &[Worker],
        active: &[&Worker],
    ) -> Result<Why, EngineError> {
        let needs = tags.join(" + ");
        let (waiting, sentence) = if able.is_empty() {
            (
                Waiting::NoMatchingWorker,
                format!("no worker offers {needs}"),
            )
        } else if active.is_empty() {
            (
                Waiting::MatchingWorkersSilent,
                format!("the workers that offer {needs} are silent"),
            )
        } else {
            (
                Waiting::Paused,
                format!("the workers that offer {needs} are paused or drain"),
            )
        };
        let mut why = Why::new(waiting, sentence);
        why.facts = Lacks::find(self.tx, requirement_id, tags, self.now)?.lines();
        why.fix = able.iter().take(3).map(revive).collect();
        why.fix
            .push(format!("stepward worker --tags {}", tags.join(",")));
        Ok(why)
    }

    fn assigned(&self) -> Result<Why, EngineError> {
        let worker = self.worker_name(self.step.worker_id)?;
        let sentence = format!("worker {worker} prepares it for {}", self.since());
        Ok(Why::new(Waiting::Preparing, sentence))
    }

    fn running(&self) -> Result<Why, EngineError> {
        Ok(match self.step.kind {
            StepKind::Task => {
                let child = self
                    .step
                    .child_job_id
                    .map_or("?".to_string(), |id| id.to_string());
                Why::new(
                    Waiting::ChildJob,
                    format!("child job {child} runs for {}", self.since()),
                )
            }
            StepKind::Loop => {
                let open = self.step.waiting_on;
                Why::new(
                    Waiting::Instances,
                    format!("{open} instances have not ended"),
                )
            }
            StepKind::Work | StepKind::Approval => {
                let worker = self.worker_name(self.step.worker_id)?;
                Why::new(
                    Waiting::Running,
                    format!("worker {worker} runs it for {}", self.since()),
                )
            }
        })
    }

    fn suspended(&self) -> Why {
        let message = self.step.message.as_deref().unwrap_or_default();
        let (waiting, sentence) = match &self.draft().action {
            Action::Approval { .. } => {
                (Waiting::Approval, format!("someone must decide: {message}"))
            }
            _ => (
                Waiting::Held,
                format!("someone must resume or fail it: {message}"),
            ),
        };
        let mut why = Why::new(waiting, sentence);
        let (job_id, name) = (self.step.job_id, self.context.name(self.step));
        why.fix = vec![
            format!("stepward approve {job_id} {name}"),
            format!("stepward reject {job_id} {name}"),
        ];
        why
    }

    fn ended(&self) -> Result<Why, EngineError> {
        let reason = self.step.reason.unwrap_or(Reason::PayloadError);
        let mut sentence = self.step.message.clone().unwrap_or_default();
        let mut facts = Vec::new();
        if reason == Reason::DependencyNotAccepted
            && let Some((name, root)) = self.root_cause()?
        {
            let message = root
                .message
                .as_deref()
                .unwrap_or("it completed, which was not accepted");
            facts.push(format!("root cause: step {name} {}: {message}", root.state));
        }
        if let Some(child_job_id) = self.step.child_job_id {
            facts.push(format!("child job {child_job_id}"));
        }
        if sentence.is_empty() {
            sentence = reason.to_string();
        }
        Ok(Why {
            code: Code::Ended(reason),
            sentence,
            facts,
            outcome: None,
            fix: Vec::new(),
        })
    }

    /// Follows blocked steps back to the one that was not blocked itself.
    fn root_cause(&self) -> Result<Option<(String, Step)>, EngineError> {
        let task = self.context.task();
        let mut position = self.step.position;
        // Every round goes one step back in an acyclic graph, so this ends.
        loop {
            let mut outcomes = HashMap::new();
            for &dependency in task.dependencies(position) {
                let outcome = self.tx.outcome_at(self.step.job_id, dependency)?;
                outcomes.insert(dependency, outcome.unwrap_or(Outcome::Completed));
            }
            let refusals = task.depends_on(position).refusals(&|at| outcomes[&at]);
            let Some(&(refused_by, outcome)) = refusals.first() else {
                return Ok(None);
            };
            if outcome == Outcome::Omitted {
                position = refused_by;
                continue;
            }
            let step = self.tx.step_at(self.step.job_id, refused_by, None)?;
            return Ok(step.map(|step| (task.step(refused_by).name.clone(), step)));
        }
    }

    fn draft(&self) -> &crate::domain::task::StepDraft {
        self.context.draft(self.step)
    }

    fn since(&self) -> String {
        seconds((self.now.up.0 - self.step.since_up.0).max(0))
    }

    fn worker_name(&self, worker_id: Option<WorkerId>) -> Result<String, EngineError> {
        let worker = match worker_id {
            Some(worker_id) => self.tx.worker(worker_id)?,
            None => None,
        };
        Ok(worker.map_or("?".to_string(), |worker| worker.name))
    }
}

fn revive(worker: &Worker) -> String {
    if worker.paused {
        format!("stepward worker resume {}", worker.name)
    } else {
        format!("start worker {} again", worker.name)
    }
}
