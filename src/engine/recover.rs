//! Recovery acts: whoever or whatever it suspects is looked at again, and ended if its time has come.
//!
//! One function finds out what becomes of a suspect, and when. `recover` does it in a transaction of its own once that time
//! has come; `foresee` only tells.

use super::cascade::{Cascade, Failure, JobContext, seconds};
use super::decline::Returned;
use super::facts::Facts;
use super::heartbeat::write_contacts;
use super::lacks::{Lacks, in_words};
use super::queries::load;
use super::{Engine, EngineError, Settings};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::job::{Job, JobState};
use crate::domain::limits;
use crate::domain::reason::Reason;
use crate::domain::recovery::{
    Bounds, Deed, Foreseen, HeldFate, HeldStep, Holder, Phase, Recovery, Return,
};
use crate::domain::retry::{AfterFailure, after_failure};
use crate::domain::step::{Step, StepKind, StepState};
use crate::domain::worker::{Worker, WorkerState};
use crate::domain::{JobId, Now, StepId, Uptime, WorkerId};
use crate::planted::{Bug, planted};
use crate::store::{Ending, Tx};

/// What a step fails with whose tags no active worker has. People search for this sentence.
pub const UNMATCHED_MESSAGE: &str = "No active worker with required tags to run this step";

/// So many transactions are queued at a time, and so many rows: they share commits and leave others their turn.
const TOGETHER_MAX: usize = 256;
const TOGETHER_ROWS_MAX: usize = 2_000;

/// Whom or what recovery looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspect {
    /// Most of the active ones fell silent together, the first of them at this time.
    ManyWorkers {
        at_up: Uptime,
    },
    Worker(WorkerId),
    HeldStep(StepId),
    OverdueStep(StepId),
    /// With so many open steps.
    OverdueJob(JobId, u32),
    UnmatchedStep(StepId),
}

impl Suspect {
    /// Whether its fate depends on when workers were last heard.
    fn is_about_silence(&self) -> bool {
        matches!(self, Suspect::ManyWorkers { .. } | Suspect::Worker(_))
    }

    /// How many rows it will move, at a guess.
    fn weight(&self) -> usize {
        match self {
            Suspect::OverdueJob(_, steps_open) => 1 + *steps_open as usize,
            _ => 1,
        }
    }
}

impl Engine {
    /// Each suspect in a transaction of its own. `None`: it was no longer so.
    pub fn recover(
        &self,
        suspects: &[Suspect],
        now: Now,
    ) -> Vec<Result<Option<Recovery>, EngineError>> {
        let bounds = self.bounds();
        let settings = self.settings;
        let mut outcomes = Vec::with_capacity(suspects.len());
        let mut rest = suspects;
        while !rest.is_empty() {
            let suspects;
            (suspects, rest) = rest.split_at(together(rest));
            let works = suspects.iter().map(|&suspect| {
                move |tx: &Tx| {
                    tx.happens_at(now.up);
                    if suspect.is_about_silence() {
                        // Within this transaction the rows are then as exact as the memory.
                        write_contacts(tx, now)?;
                    }
                    let case = Case { tx, bounds, now };
                    match case.fate(suspect)? {
                        Some(fate) if fate.at_up <= now.up => case.carry_out(&settings, fate),
                        _ => Ok(None),
                    }
                }
            });
            outcomes.extend(self.store.write_many(works.collect()));
        }
        for recovery in outcomes.iter().flatten().flatten() {
            if recovery.deed == Deed::WaitLonger {
                let until_up = now.up.plus_ms(settings.heartbeat_timeout_ms);
                self.watch.state().patient_until = Some(until_up);
            }
        }
        outcomes
    }

    /// What will be done about a suspect, and in consequence, if nothing happens until then.
    pub fn foresee(
        &self,
        tx: &Tx,
        suspect: Suspect,
        now: Now,
    ) -> Result<Vec<Foreseen>, EngineError> {
        let bounds = self.bounds();
        let case = Case { tx, bounds, now };
        let Some(fate) = case.fate(suspect)? else {
            return Ok(Vec::new());
        };
        let at_up = fate.at_up;
        let foreseen = |recovery| Foreseen {
            recovery,
            at_up,
            in_ms: (at_up.0 - now.up.0).max(0),
        };
        let mut all = vec![foreseen(fate.recovery)];
        if let Found::Worker(worker) = &fate.found
            && !planted(Bug::ForecastForgetsHeldSteps)
        {
            for step in case.held_by(worker)? {
                let lost = case.held_fate(step, Holder::Inactive, Some(worker.clone()))?;
                all.extend(lost.map(|fate| foreseen(fate.recovery)));
            }
        }
        Ok(all)
    }
}

/// How many of the first are queued at a time.
fn together(suspects: &[Suspect]) -> usize {
    let mut rows = 0;
    let fitting = suspects.iter().take(TOGETHER_MAX).take_while(|suspect| {
        rows += suspect.weight();
        rows <= TOGETHER_ROWS_MAX
    });
    fitting.count().max(1)
}

/// What becomes of a suspect from a time on, and what was read to find that out.
struct Fate {
    at_up: Uptime,
    recovery: Recovery,
    found: Found,
}

enum Found {
    ManyWorkers {
        silent: u32,
        active: u32,
    },
    Worker(Worker),
    Held {
        step: Box<Step>,
        fate: HeldFate,
        worker: Option<Worker>,
    },
    Overdue(Step, Reason),
    OverdueJob(Job, Reason),
    Unmatched(Step),
}

struct Case<'a> {
    tx: &'a Tx<'a>,
    bounds: Bounds,
    now: Now,
}

impl Case<'_> {
    fn fate(&self, suspect: Suspect) -> Result<Option<Fate>, EngineError> {
        match suspect {
            Suspect::ManyWorkers { at_up } => self.many_workers(at_up),
            Suspect::Worker(worker_id) => self.worker(worker_id),
            Suspect::HeldStep(step_id) => self.held_step(step_id),
            Suspect::OverdueStep(step_id) => self.overdue_step(step_id),
            Suspect::OverdueJob(job_id, _) => self.overdue_job(job_id),
            Suspect::UnmatchedStep(step_id) => self.unmatched_step(step_id),
        }
    }

    fn many_workers(&self, at_up: Uptime) -> Result<Option<Fate>, EngineError> {
        let (silent, active) = together_silent(self.tx, &self.bounds, at_up, self.now)?;
        if !Bounds::is_mass_silence(silent, active) {
            return Ok(None);
        }
        Ok(Some(Fate {
            at_up,
            recovery: Recovery::new(Phase::StaleWorkers, Deed::WaitLonger),
            found: Found::ManyWorkers { silent, active },
        }))
    }

    fn worker(&self, worker_id: WorkerId) -> Result<Option<Fate>, EngineError> {
        let Some(worker) = self.tx.worker(worker_id)? else {
            return Ok(None);
        };
        if worker.state != WorkerState::Active {
            return Ok(None);
        }
        let seen_up = match planted(Bug::WallClockLiveness) {
            true => Uptime(self.now.up.0 - (self.now.wall.0 - worker.seen_at.0)),
            false => worker.seen_up,
        };
        Ok(Some(Fate {
            at_up: self.bounds.silent_at(seen_up),
            recovery: Recovery {
                worker_id: Some(worker_id),
                ..Recovery::new(Phase::StaleWorkers, Deed::MarkInactive)
            },
            found: Found::Worker(worker),
        }))
    }

    fn held_step(&self, step_id: StepId) -> Result<Option<Fate>, EngineError> {
        let Some(step) = self.tx.step(step_id)? else {
            return Ok(None);
        };
        // A task step runs without anybody holding it.
        let (Some(session_id), Some(worker_id)) = (step.session_id, step.worker_id) else {
            return Ok(None);
        };
        let worker = self
            .tx
            .worker(worker_id)?
            .filter(|worker| worker.deleted_at.is_none());
        let holder = match &worker {
            None => Holder::Deleted,
            Some(worker) if worker.session_id != Some(session_id) => Holder::Replaced,
            Some(worker) if worker.state == WorkerState::Inactive => Holder::Inactive,
            Some(_) => Holder::Present,
        };
        self.held_fate(step, holder, worker)
    }

    fn held_fate(
        &self,
        step: Step,
        holder: Holder,
        worker: Option<Worker>,
    ) -> Result<Option<Fate>, EngineError> {
        let held = HeldStep {
            state: step.state,
            holder,
            since_up: step.since_up,
            due_up: step.due_up,
            absent_beats: step.absent_beats,
        };
        let Some((at_up, fate)) = self.bounds.held_step(&held) else {
            return Ok(None);
        };
        let (deed, reason) = match fate {
            HeldFate::Fail(reason) => (self.deed(&step, reason)?, Some(reason)),
            HeldFate::Return(_) if step.returns + 1 >= limits::RETURNS_MAX => {
                (Deed::Fail, Some(Reason::AssignmentExhausted))
            }
            HeldFate::Return(_) => (Deed::Requeue, None),
        };
        Ok(Some(Fate {
            at_up,
            recovery: of_step(Phase::StaleWorkers, deed, reason, &step),
            found: Found::Held {
                step: Box::new(step),
                fate,
                worker,
            },
        }))
    }

    fn held_by(&self, worker: &Worker) -> Result<Vec<Step>, EngineError> {
        let Some(session_id) = worker.session_id else {
            return Ok(Vec::new());
        };
        let mut steps = Vec::new();
        for held in self.tx.held_steps(session_id)? {
            steps.extend(self.tx.step(held.step_id)?);
        }
        Ok(steps)
    }

    fn overdue_step(&self, step_id: StepId) -> Result<Option<Fate>, EngineError> {
        let Some(step) = self.tx.step(step_id)? else {
            return Ok(None);
        };
        let Some(due_up) = step.due_up else {
            return Ok(None);
        };
        let reason = match step.state {
            StepState::Running => Reason::StepTimeout,
            StepState::Suspended => Reason::ApprovalTimeout,
            _ => return Ok(None),
        };
        let deed = match step.state {
            StepState::Running => self.deed(&step, reason)?,
            _ => Deed::Fail,
        };
        Ok(Some(Fate {
            at_up: self.bounds.overdue_at(step.since_up, due_up),
            recovery: of_step(Phase::OverdueSteps, deed, Some(reason), &step),
            found: Found::Overdue(step, reason),
        }))
    }

    fn overdue_job(&self, job_id: JobId) -> Result<Option<Fate>, EngineError> {
        let Some(job) = self.tx.job(job_id)? else {
            return Ok(None);
        };
        let (Some(due_up), false) = (job.due_up, job.state.is_terminal()) else {
            return Ok(None);
        };
        let reason = match job.state {
            JobState::Pending => Reason::QueueTimeout,
            _ => Reason::JobTimeout,
        };
        Ok(Some(Fate {
            at_up: self.bounds.overdue_at(job.since_up, due_up),
            recovery: Recovery {
                job_id: Some(job_id),
                reason: Some(reason),
                ..Recovery::new(Phase::OverdueJobs, Deed::Cancel)
            },
            found: Found::OverdueJob(job, reason),
        }))
    }

    fn unmatched_step(&self, step_id: StepId) -> Result<Option<Fate>, EngineError> {
        let Some(step) = self.tx.step(step_id)? else {
            return Ok(None);
        };
        if step.state != StepState::Ready || step.not_before_up.is_some() {
            return Ok(None);
        }
        let Some(lost_up) = self.tx.lost_up(step_id)? else {
            return Ok(None);
        };
        if self.tx.is_taken_care_of(step_id)? && !planted(Bug::UnmatchedIgnoresTags) {
            return Ok(None);
        }
        let reason = Some(Reason::Unmatched);
        Ok(Some(Fate {
            at_up: self.bounds.unmatched_at(step.since_up, lost_up),
            recovery: of_step(Phase::UnmatchedSteps, Deed::Fail, reason, &step),
            found: Found::Unmatched(step),
        }))
    }

    /// What the step's policy makes of a try that ends for this reason.
    fn deed(&self, step: &Step, reason: Reason) -> Result<Deed, EngineError> {
        let (_, context) = load(self.tx, step.job_id)?;
        let draft = context.draft(step);
        let after = after_failure(
            &draft.retry,
            draft.on_worker_loss,
            reason,
            step.tries,
            step.attempt_ref(),
        );
        Ok(match after {
            AfterFailure::Fail => Deed::Fail,
            AfterFailure::RetryIn { .. } => Deed::Retry,
            AfterFailure::Hold => Deed::Hold,
        })
    }

    fn carry_out(&self, settings: &Settings, fate: Fate) -> Result<Option<Recovery>, EngineError> {
        let mut cascade = Cascade::new(self.tx, settings, self.now);
        cascade.recovering = Some((fate.recovery.phase, String::new()));
        let done = match fate.found {
            Found::ManyWorkers { silent, active } => cascade.wait_longer(silent, active)?,
            Found::Worker(worker) => cascade.mark_inactive(&worker)?,
            Found::Held { step, fate, worker } => {
                cascade.take_from_holder(&step, fate, worker.as_ref())?
            }
            Found::Overdue(step, reason) => cascade.end_overdue_step(&step, reason)?,
            Found::OverdueJob(job, reason) => cascade.cancel_overdue_job(&job, reason)?,
            Found::Unmatched(step) => cascade.fail_unmatched(&step)?,
        };
        assert!(
            !done || cascade.recovering.is_none(),
            "every recovery is told"
        );
        cascade.settle()?;
        Ok(done.then_some(fate.recovery))
    }
}

/// How many fell silent with the one whose time is up then, of how many active workers.
pub fn together_silent(
    tx: &Tx,
    bounds: &Bounds,
    at_up: Uptime,
    now: Now,
) -> Result<(u32, u32), EngineError> {
    let seen_up = bounds.suspect_since(at_up).min(bounds.late_since(now.up));
    let silent = tx.workers_seen_until(seen_up)?;
    Ok((silent, tx.workers_seen_until(Uptime(i64::MAX))?))
}

fn of_step(phase: Phase, deed: Deed, reason: Option<Reason>, step: &Step) -> Recovery {
    Recovery {
        reason,
        job_id: Some(step.job_id),
        step_id: Some(step.step_id),
        attempt: Some(step.attempt),
        worker_id: step.worker_id,
        ..Recovery::new(phase, deed)
    }
}

/// Each returns `false` if someone was first and nothing happened.
impl Cascade<'_> {
    fn wait_longer(&mut self, silent: u32, active: u32) -> Result<bool, EngineError> {
        let text = format!(
            "{silent} of {active} active workers are silent, so the fault is probably the server's or its network's; \
             they have another {} before they are given up",
            seconds(self.settings.heartbeat_timeout_ms)
        );
        let facts = Facts::none()
            .and("silent", silent)
            .and("active", active)
            .and_secs("heartbeat_timeout_secs", self.settings.heartbeat_timeout_ms);
        self.tell(NewEvent::new(EventKind::WorkersSilent, text).data(facts.data()))?;
        Ok(true)
    }

    fn mark_inactive(&mut self, worker: &Worker) -> Result<bool, EngineError> {
        if !self.tx.silence_worker(worker, self.now)? {
            return Ok(false);
        }
        let text = format!(
            "worker {} is inactive: {}",
            worker.name,
            self.silence(worker)
        );
        let event = NewEvent::new(EventKind::WorkerInactive, text)
            .worker(worker.worker_id)
            .data(self.silence_facts(worker).data());
        if planted(Bug::DoubleEvent) {
            self.tell(event.clone())?;
            self.recovering = Some((Phase::StaleWorkers, String::new()));
        }
        self.tell(event)?;
        Ok(true)
    }

    fn silence(&self, worker: &Worker) -> String {
        format!(
            "silent for {}, the limit is {}",
            seconds((self.now.up.0 - worker.seen_up.0).max(0)),
            seconds(self.settings.heartbeat_timeout_ms)
        )
    }

    fn silence_facts(&self, worker: &Worker) -> Facts {
        let silent_ms = (self.now.up.0 - worker.seen_up.0).max(0);
        let timeout_ms = self.settings.heartbeat_timeout_ms;
        Facts::none()
            .and_secs("silent_secs", silent_ms)
            .and_secs("heartbeat_timeout_secs", timeout_ms)
    }

    /// The holder of a step will not end it any more.
    fn take_from_holder(
        &mut self,
        step: &Step,
        fate: HeldFate,
        worker: Option<&Worker>,
    ) -> Result<bool, EngineError> {
        let context = self.context(step.job_id)?;
        let (name, attempt) = (holder_name(step, worker), step.attempt);
        match fate {
            HeldFate::Fail(reason) => {
                let (what, facts) = match (reason, worker) {
                    (Reason::WorkerLost, Some(worker)) => {
                        let text = format!("was lost ({})", self.silence(worker));
                        (text, self.silence_facts(worker))
                    }
                    (Reason::WorkerForgot, _) => {
                        let beats = step.absent_beats;
                        let text = format!("lives, but left it out of {beats} heartbeats in a row");
                        (text, Facts::none().and("absent_beats", beats))
                    }
                    (Reason::WorkerDeleted, _) => ("was deleted".to_string(), Facts::none()),
                    _ => ("restarted".to_string(), Facts::none()),
                };
                let text = format!(
                    "worker {name} {what} while it ran attempt {attempt}; the step may have run partly"
                );
                let failure = Failure {
                    facts,
                    ..Failure::new(reason, text)
                };
                self.fail_or_retry(&context, step, failure)
            }
            HeldFate::Return(what) => {
                let (settings, limit) = (self.settings, seconds);
                let text = match what {
                    Return::WorkerLost => "was lost before it started the step".to_string(),
                    Return::WorkerRestarted => "restarted before it started the step".to_string(),
                    Return::WorkerDeleted => "was deleted before it started the step".to_string(),
                    Return::AckTimeout => format!(
                        "did not say within {} that it starts the step or still prepares it",
                        limit(settings.ack_timeout_ms)
                    ),
                    Return::PrepareTimeout => format!(
                        "prepared for {} and did not start the step",
                        limit(settings.prepare_timeout_ms)
                    ),
                };
                let avoid = worker
                    .filter(|_| what.avoids())
                    .map(|worker| worker.worker_id);
                let facts = match (what, worker) {
                    (Return::WorkerLost, Some(worker)) => self.silence_facts(worker),
                    (Return::AckTimeout, _) => {
                        Facts::none().and_secs("ack_timeout_secs", settings.ack_timeout_ms)
                    }
                    (Return::PrepareTimeout, _) => {
                        Facts::none().and_secs("prepare_timeout_secs", settings.prepare_timeout_ms)
                    }
                    _ => Facts::none(),
                };
                let returned = Returned {
                    what: what.as_str(),
                    text: format!("worker {name} {text}"),
                    avoid,
                    facts,
                };
                self.return_step(&context, step, returned)
            }
        }
    }

    fn end_overdue_step(&mut self, step: &Step, reason: Reason) -> Result<bool, EngineError> {
        let context = self.context(step.job_id)?;
        let limit_ms = limit_of(step.since_up, step.due_up);
        let limit = seconds(limit_ms);
        let facts = Facts::none().and_secs("timeout_secs", limit_ms);
        if step.state == StepState::Suspended {
            let message = format!("nobody decided within {limit}");
            let ending = Ending {
                data: facts.data(),
                ..Ending::failed(reason, message)
            };
            return self.finish_step(step, ending);
        }
        let ran_ms = (self.now.up.0 - step.since_up.0).max(0);
        let message = format!("it ran for {}, the limit is {limit}", seconds(ran_ms));
        let failure = Failure {
            facts: facts.and_secs("ran_secs", ran_ms),
            ..Failure::new(reason, message)
        };
        if !self.fail_or_retry(&context, step, failure)? {
            return Ok(false);
        }
        if let (StepKind::Task, Some(child_job_id)) = (step.kind, step.child_job_id) {
            self.cancel_child(&context, step, child_job_id)?;
        }
        Ok(true)
    }

    /// Its parent step has gone on without it.
    fn cancel_child(
        &mut self,
        context: &JobContext,
        step: &Step,
        child_job_id: JobId,
    ) -> Result<(), EngineError> {
        let (name, job_id) = (context.name(step), step.job_id);
        let message = format!("step {name} of its parent, job {job_id}, ran out of time");
        let facts = Facts::none()
            .and("parent_job_id", job_id.0)
            .and("parent_step", name);
        self.cancel_job(child_job_id, Reason::CancelledByParent, &message, facts)
    }

    fn cancel_overdue_job(&mut self, job: &Job, reason: Reason) -> Result<bool, EngineError> {
        let (message, facts) = match reason {
            Reason::QueueTimeout => {
                let context = self.context(job.job_id)?;
                let limit_ms = context.task().draft.queue_timeout_ms.unwrap_or(0);
                let limit = seconds(limit_ms);
                let message = format!("it has not started within its queue_timeout of {limit}");
                let facts = Facts::none().and_secs("queue_timeout_secs", limit_ms);
                (message, facts)
            }
            _ => {
                let ran_ms = (self.now.up.0 - job.since_up.0).max(0);
                let limit_ms = limit_of(job.since_up, job.due_up);
                let (ran, limit) = (seconds(ran_ms), seconds(limit_ms));
                let message = format!("it ran for {ran}, the limit is {limit}");
                let facts = Facts::none()
                    .and_secs("ran_secs", ran_ms)
                    .and_secs("timeout_secs", limit_ms);
                (message, facts)
            }
        };
        self.cancel_job(job.job_id, reason, &message, facts)?;
        Ok(true)
    }

    fn fail_unmatched(&mut self, step: &Step) -> Result<bool, EngineError> {
        let requirement_id = step.requirement_id.expect("workers run it");
        let requirement = self.tx.requirement(requirement_id)?;
        let lacks = Lacks::find(self.tx, requirement_id, &requirement, self.now)?;
        let message = match lacks.is_only_feature_missing() {
            true => format!(
                "No active worker with required tags has every feature that this step needs ({})",
                in_words(requirement.features)
            ),
            false => UNMATCHED_MESSAGE.to_string(),
        };
        let tags = requirement.tags;
        let lines = lacks.lines();
        let lines = match lines.is_empty() {
            true => "there is no worker".to_string(),
            false => lines.join("; "),
        };
        let addition = format!(" (it needs {}; {lines})", tags.join(" + "));
        self.recovering = Some((Phase::UnmatchedSteps, addition));
        let timeout_ms = self.settings.unmatched_step_timeout_ms;
        let facts = lacks
            .facts()
            .and("required_tags", tags)
            .and_secs("ready_secs", (self.now.up.0 - step.since_up.0).max(0))
            .and_secs("unmatched_step_timeout_secs", timeout_ms);
        let ending = Ending {
            data: facts.data(),
            ..Ending::failed(Reason::Unmatched, message)
        };
        self.finish_step(step, ending)
    }
}

fn holder_name(step: &Step, worker: Option<&Worker>) -> String {
    match (worker, step.worker_id) {
        (Some(worker), _) => worker.name.clone(),
        (None, Some(worker_id)) => worker_id.to_string(),
        (None, None) => "?".to_string(),
    }
}

fn limit_of(since_up: Uptime, due_up: Option<Uptime>) -> i64 {
    due_up.map_or(0, |due_up| due_up.0 - since_up.0)
}
