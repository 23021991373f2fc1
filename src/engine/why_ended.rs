//! What ended a step, down to where that began, and what never ran because of it.

use std::collections::HashMap;

use super::EngineError;
use super::cascade::JobContext;
use super::lacks::install_on;
use super::queries::load;
use super::scope::parsed;
use super::why::{Asked, Code, Fact, FactKind, RootCause, Why, shell_word};
use crate::domain::depends::Outcome;
use crate::domain::event::{Event, EventKind};
use crate::domain::job::Job;
use crate::domain::reason::Reason;
use crate::domain::step::{Step, StepState};
use crate::domain::{EventSeq, JobId};
use crate::store::{FormerAttempt, Tx};

/// Steps that are named as never running.
const SKIPS_MAX: usize = 20;
/// Dependencies that are looked at to find them.
const LOOKS_MAX: usize = 20_000;
/// Child jobs in child jobs and instances in loops that lead to a root cause.
const DEPTH_MAX: usize = 100;
/// Events among which the one that ended a step is looked for.
const EVENTS_MAX: u32 = 2_000;

/// Workers that are named as too old.
const UPGRADES_MAX: usize = 3;

/// What is written of every attempt whose worker vanished, and what that means for whoever reads it.
const RAN_PARTLY: &str = "; the step may have run partly";
const LOOK_FIRST: &str = "it may have run partly: check its side effects before retrying";

impl Asked<'_> {
    pub fn ended(&self) -> Result<Why, EngineError> {
        let reason = self.step.reason.unwrap_or(Reason::PayloadError);
        let mut why = Why::of(Code::Ended(reason), sentence(self.step, reason));
        if reason == Reason::DependencyNotAccepted
            && let Some(root) = self.refused_root()?
        {
            let message = match root.state {
                StepState::Completed => "which was not accepted",
                _ => &root.sentence,
            };
            let (name, state) = (&root.step, root.state);
            why.facts.push(Fact::new(
                FactKind::RootCause,
                format!("step {name} {state}: {message}"),
            ));
            why.root_cause = Some(root);
        }
        if matches!(reason, Reason::ChildFailed | Reason::InstanceFailed) {
            let root = root_of(self.tx, self.context, self.step)?;
            why.root_cause =
                root.filter(|root| (root.job_id, &root.step) != (self.step.job_id, &self.name()));
        }
        if let Some(child_job_id) = self.step.child_job_id {
            why.facts
                .push(Fact::new(FactKind::ChildJob, child_job_id.to_string()));
        }
        // A step that was held when its worker was lost tells how it ended then: a person rejected or failed it, or its job was
        // cancelled. Its attempt tells of the lost worker.
        let held = self.held_attempt()?;
        if let Some(lost) = &held {
            let told = format!("attempt {}: {}", lost.attempt, lost.message);
            why.facts.push(told.into());
        }
        if reason.is_worker_loss() || held.is_some() {
            why.facts.push(LOOK_FIRST.to_string().into());
        }
        if reason == Reason::Unmatched {
            why.needs = self.draft().required_tags();
            let (lacked, upgrades) = self.lacked()?;
            why.facts.extend(lacked);
            why.fix = upgrades;
        }
        let fix = self.fix(reason, why.root_cause.as_ref());
        why.fix.extend(fix);
        Ok(why)
    }

    /// The attempt that was lost with its worker before the step ended, if the step was not assigned again since.
    fn held_attempt(&self) -> Result<Option<FormerAttempt>, EngineError> {
        let last = self.tx.former_attempts(self.step.step_id)?.pop();
        Ok(last.filter(|last| {
            let reason = Reason::from_word(&last.reason);
            last.attempt == self.step.attempt && reason.is_some_and(Reason::is_worker_loss)
        }))
    }

    fn fix(&self, reason: Reason, root: Option<&RootCause>) -> Vec<String> {
        use Reason::*;
        let (job_id, task) = (self.step.job_id, shell_word(&self.job.task));
        let fix = match reason {
            ExitCode | Signal | SpawnError | OutputInvalid | StepTimeout | WorkerShutdown
            | WorkerLost | WorkerRestarted | WorkerDeleted | WorkerForgot => {
                format!("stepward logs {job_id} {}", shell_word(&self.name()))
            }
            // What it runs is frozen with its job: a retry would do the same.
            TemplateError | PayloadError => {
                format!("mend task {task} in its file, then: stepward run {task}")
            }
            Unmatched => {
                let tags = self.draft().required_tags().join(",");
                format!("stepward worker --tags {tags}")
            }
            ChildFailed | ChildCancelled => match self.step.child_job_id {
                Some(child_job_id) => format!("stepward why {child_job_id}"),
                None => return Vec::new(),
            },
            InstanceFailed => match root {
                Some(root) => format!("stepward why {} {}", root.job_id, shell_word(&root.step)),
                None => return Vec::new(),
            },
            AssignmentExhausted => match self.worker_name(self.step.worker_id) {
                Ok(name) if name != "?" => format!("stepward why --worker {}", shell_word(&name)),
                _ => return Vec::new(),
            },
            ApprovalTimeout
            | ApprovalRejected
            | JobTimeout
            | QueueTimeout
            | DependencyNotAccepted
            | WhenFalse
            | EmptyLoop
            | FailedByUser
            | CancelledByUser
            | CancelledByParent
            | Superseded
            | OverlapSkipped => return Vec::new(),
        };
        let mut fixes = vec![fix];
        if reason == StepTimeout {
            fixes.push(format!(
                "give it a longer timeout in its file, then: stepward run {task}"
            ));
        }
        fixes
    }

    /// Which workers there were when nobody could take the step, as it was noted then, and what to install on those that only
    /// lacked a feature.
    fn lacked(&self) -> Result<(Vec<Fact>, Vec<String>), EngineError> {
        let job_id = self.step.job_id;
        let events = self.tx.events_of_job(job_id, EventSeq(0), EVENTS_MAX)?;
        let is_it = |event: &&Event| {
            event.fact.kind == EventKind::StepFailed
                && event.fact.step_id == Some(self.step.step_id)
        };
        let data = events
            .iter()
            .find(is_it)
            .and_then(|event| event.fact.data.as_ref());
        let Some(data) = data.map(parsed) else {
            return Ok((Vec::new(), Vec::new()));
        };
        let workers = data["workers"].as_array().cloned().unwrap_or_default();
        if workers.is_empty() {
            let fact = "there was no worker then".to_string().into();
            return Ok((vec![fact], Vec::new()));
        }
        let (mut lines, mut upgrades) = (Vec::new(), Vec::new());
        for worker in &workers {
            let name = worker["worker"].as_str().unwrap_or("?");
            let (tags, features) = (words(&worker["lacks"]), words(&worker["lacks_features"]));
            let obstacle = if !tags.is_empty() {
                format!("lacked {}", tags.join(", "))
            } else if !features.is_empty() {
                if upgrades.len() < UPGRADES_MAX {
                    upgrades.push(install_on(name));
                }
                let version = worker["version"].as_str().unwrap_or("?");
                let features = features.join(" and ");
                format!("lacked the feature {features} (version {version})")
            } else if worker["paused"] == true {
                "was paused".to_string()
            } else if worker["draining"] == true {
                "was draining".to_string()
            } else {
                "was silent".to_string()
            };
            lines.push(Fact::from(format!("worker {name} {obstacle} then")));
        }
        if data["more_workers"] == true {
            lines.push(Fact::others());
        }
        Ok((lines, upgrades))
    }

    /// Follows blocked steps back to the one that was not blocked itself.
    fn refused_root(&self) -> Result<Option<RootCause>, EngineError> {
        let task = self.context.task();
        let mut position = self.step.position;
        // Every round goes one step back in an acyclic graph, so this ends.
        loop {
            let mut outcomes = HashMap::new();
            for &dependency in task.dependencies(position) {
                let outcome = self.outcome_at(dependency)?;
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
            return match self.tx.step_at(self.step.job_id, refused_by, None)? {
                Some(step) => root_of(self.tx, self.context, &step),
                None => Ok(None),
            };
        }
    }

    fn outcome_at(&self, position: u32) -> Result<Option<Outcome>, EngineError> {
        let key = (self.step.job_id, position);
        if let Some(known) = self.all.outcomes.borrow().get(&key) {
            return Ok(*known);
        }
        let outcome = self.tx.outcome_at(self.step.job_id, position)?;
        self.all.outcomes.borrow_mut().insert(key, outcome);
        Ok(outcome)
    }

    /// What would never run if the step failed now and all else went well.
    pub fn would_skip(&self) -> Result<Vec<String>, EngineError> {
        let task = self.context.task();
        let mut ended = HashMap::from([(self.step.position, Outcome::Failed)]);
        let mut looks = 0;
        self.follow(|asked, position| {
            looks += task.dependencies(position).len();
            if looks > LOOKS_MAX || asked.outcome_at(position)?.is_some() {
                return Ok(false);
            }
            let mut known = HashMap::new();
            for &dependency in task.dependencies(position) {
                let outcome = asked.outcome_at(dependency)?;
                known.insert(dependency, outcome.unwrap_or(Outcome::Completed));
            }
            let depends_on = task.depends_on(position);
            let before = depends_on.accepts(&|at| known[&at]);
            let then = |at: u32| ended.get(&at).copied().unwrap_or(known[&at]);
            let skips = before && !depends_on.accepts(&then);
            if skips {
                ended.insert(position, Outcome::Omitted);
            }
            Ok(skips)
        })
    }

    /// What never ran because the step ended as it did.
    pub fn skipped(&self) -> Result<Vec<String>, EngineError> {
        if self.step.outcome() == Some(Outcome::Completed) {
            return Ok(Vec::new());
        }
        self.follow(|asked, position| Ok(asked.outcome_at(position)? == Some(Outcome::Omitted)))
    }

    /// The steps after it, and after those, for which it is so.
    fn follow(
        &self,
        mut is_so: impl FnMut(&Self, u32) -> Result<bool, EngineError>,
    ) -> Result<Vec<String>, EngineError> {
        let task = self.context.task();
        let mut found = std::collections::BTreeSet::new();
        let mut unvisited = task.dependents(self.step.position).to_vec();
        while let Some(position) = unvisited.pop() {
            if found.len() == SKIPS_MAX {
                break;
            }
            if !found.contains(&position) && is_so(self, position)? {
                found.insert(position);
                unvisited.extend(task.dependents(position));
            }
        }
        let names = found.into_iter();
        Ok(names.map(|at| task.step(at).name.clone()).collect())
    }
}

/// The words of a list in noted facts. What is missing is an empty list.
fn words(list: &serde_json::Value) -> Vec<&str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str()).collect()
}

fn sentence(step: &Step, reason: Reason) -> String {
    let message = step.message.as_deref().unwrap_or_default();
    if message.is_empty() {
        return reason.to_string();
    }
    let meaning = match (reason, step.exit_code) {
        (Reason::ExitCode, Some(126)) => ": not executable",
        (Reason::ExitCode, Some(127)) => ": command not found",
        (Reason::ExitCode, Some(137)) => ": killed, often out of memory",
        (Reason::Signal, _) if message.contains("SIGKILL") => ": often out of memory",
        _ => "",
    };
    let message = match reason.is_worker_loss() {
        true => message.strip_suffix(RAN_PARTLY).unwrap_or(message),
        false => message,
    };
    format!("{message}{meaning}")
}

/// Goes down from a step that failed because of others to the one that failed by itself.
fn root_of(tx: &Tx, context: &JobContext, step: &Step) -> Result<Option<RootCause>, EngineError> {
    let mut step = step.clone();
    let mut name = context.name(&step);
    for _ in 0..DEPTH_MAX {
        let below = match step.reason {
            Some(Reason::InstanceFailed) => {
                let failed = tx.first_failed_instances(step.job_id, step.position)?;
                match failed.first() {
                    Some(&item) => tx.step_at(step.job_id, step.position, Some(item))?,
                    None => None,
                }
            }
            Some(Reason::ChildFailed) => match step.child_job_id {
                Some(child_job_id) => first_failed(tx, child_job_id)?,
                None => None,
            },
            _ => None,
        };
        let Some(below) = below else {
            break;
        };
        let (_, context) = load(tx, below.job_id)?;
        name = context.name(&below);
        step = below;
    }
    let reason = step.reason;
    Ok(Some(RootCause {
        job_id: step.job_id,
        step: name,
        state: step.state,
        reason,
        sentence: match reason {
            Some(reason) => sentence(&step, reason),
            None => step.state.to_string(),
        },
    }))
}

fn first_failed(tx: &Tx, job_id: JobId) -> Result<Option<Step>, EngineError> {
    let job = tx.job(job_id)?;
    match job.and_then(|job| job.failed_step_id) {
        Some(step_id) => Ok(tx.step(step_id)?),
        None => Ok(None),
    }
}

/// Where the failure of a job began.
pub(super) fn root_of_job(
    tx: &Tx,
    job: &Job,
    context: &JobContext,
) -> Result<Option<RootCause>, EngineError> {
    match first_failed(tx, job.job_id)? {
        Some(step) => root_of(tx, context, &step),
        None => Ok(None),
    }
}
