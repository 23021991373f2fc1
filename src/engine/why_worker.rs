//! Why a worker is as it is: heard or not, what it offers, what it runs, what it could take, what recovery will make of it.

use super::queries::load;
use super::recover::together_silent;
use super::views::{Names, WorkerDetail};
use super::why::{Code, Explainer, Fact, FactKind, Outlook, Why, WhyOutcome, revive, shell_word};
use super::{Engine, EngineError, Suspect};
use crate::domain::event::{Event, EventKind};
use crate::domain::recovery::{Bounds, Deed};
use crate::domain::span::span;
use crate::domain::step::StepState;
use crate::domain::worker::{Worker, WorkerStanding};
use crate::domain::{EventSeq, JobId, Now, WorkerId};
use crate::store::Tx;

/// Places in the queue that are looked at, and steps that are named of them.
const QUEUE_LOOKED_AT: u32 = 500;
const NAMED_MAX: usize = 10;
/// Recoveries among which those of a worker are looked for.
const HISTORY_MAX: u32 = 500;

#[derive(Debug, Clone)]
pub struct WorkerWhy {
    pub detail: WorkerDetail,
    pub why: Why,
    /// Steps that wait and that it offers all for, in the order of the queue.
    pub could_take: Vec<(JobId, String)>,
}

impl Engine {
    pub fn why_worker(&self, worker_id: WorkerId, now: Now) -> Result<WorkerWhy, EngineError> {
        self.store.read(|tx| {
            let worker = tx.worker(worker_id)?;
            let worker = worker.filter(|worker| worker.deleted_at.is_none());
            let worker = worker.ok_or(EngineError::WorkerNotFound { worker_id })?;
            let detail = self.worker_detail(tx, worker, &mut Names::new(tx), now)?;
            let asked = Asked {
                engine: self,
                tx,
                now,
                worker: &detail.worker,
            };
            let could_take = asked.could_take()?;
            let why = asked.why(!could_take.is_empty())?;
            Ok(WorkerWhy {
                why,
                could_take,
                detail,
            })
        })
    }
}

struct Asked<'a> {
    engine: &'a Engine,
    tx: &'a Tx<'a>,
    now: Now,
    worker: &'a Worker,
}

impl Asked<'_> {
    fn why(&self, something_waits: bool) -> Result<Why, EngineError> {
        let explainer = Explainer::new(self.engine, self.tx, self.now);
        let mut shown = explainer.worker(self.worker, None)?;
        let late_up = self.engine.bounds().late_since(self.now.up);
        if shown.standing != WorkerStanding::Inactive && self.worker.seen_up <= late_up {
            shown.standing = WorkerStanding::Silent;
        }
        let standing = shown.standing;
        let heard = span(self.worker.silent_ms(self.now));
        let limit = span(self.engine.settings.heartbeat_timeout_ms);
        let (used, slots) = (shown.slots_used, shown.slots);
        let has_left = self.worker.draining && used == 0;
        let sentence = match standing {
            WorkerStanding::Inactive | WorkerStanding::Silent if has_left => {
                format!("it was drained and has left; it was last heard {heard} ago")
            }
            WorkerStanding::Inactive => format!(
                "it was last heard {heard} ago, and after {limit} of silence a worker counts as gone"
            ),
            WorkerStanding::Silent => {
                format!("it was last heard {heard} ago; after {limit} of silence it counts as gone")
            }
            WorkerStanding::Draining if used == 0 => {
                "it was told to drain: it takes nothing new, and leaves".to_string()
            }
            WorkerStanding::Draining => {
                "it was told to drain: it finishes what it has, takes nothing new, and leaves"
                    .to_string()
            }
            WorkerStanding::Paused => {
                "somebody paused it: it takes nothing new until it is resumed".to_string()
            }
            WorkerStanding::Active if used >= slots => "all its slots are busy".to_string(),
            WorkerStanding::Active if something_waits => {
                "it has a free slot and takes what waits with its next poll".to_string()
            }
            WorkerStanding::Active => "it has a free slot, and nothing waits for it".to_string(),
        };
        let mut why = Why::of(Code::Worker(standing), sentence);
        why.workers = vec![shown];
        match standing {
            WorkerStanding::Inactive | WorkerStanding::Silent if has_left => {}
            WorkerStanding::Inactive => {
                why.facts = self.history()?.into_iter().map(Fact::from).collect()
            }
            WorkerStanding::Silent => self.foresee(&mut why)?,
            _ => {}
        }
        let name = shell_word(&self.worker.name);
        why.fix = match standing {
            WorkerStanding::Inactive | WorkerStanding::Silent if has_left => {
                vec![format!("start worker {name} again to have it back")]
            }
            WorkerStanding::Inactive | WorkerStanding::Silent => vec![format!(
                "start worker {name} again, or see whether its machine and its network are well"
            )],
            WorkerStanding::Draining => vec![format!("start worker {name} again to have it back")],
            WorkerStanding::Paused => vec![revive(self.worker)],
            WorkerStanding::Active => Vec::new(),
        };
        Ok(why)
    }

    /// When it is given up, and what becomes of what it holds.
    fn foresee(&self, why: &mut Why) -> Result<(), EngineError> {
        let suspect = Suspect::Worker(self.worker.worker_id);
        let foreseen = self.engine.foresee(self.tx, suspect, self.now)?;
        let Some((first, rest)) = foreseen.split_first() else {
            return Ok(());
        };
        why.outcome = Some(WhyOutcome {
            deed: Outlook::MarkInactive,
            phase: first.recovery.phase.number(),
            in_ms: first.in_ms,
        });
        let mut names = Names::new(self.tx);
        for held in rest {
            let Some(step_id) = held.recovery.step_id else {
                continue;
            };
            let Some((job_id, name)) = names.step(step_id)? else {
                continue;
            };
            let fate = match held.recovery.deed {
                Deed::Requeue => "goes back to the queue",
                Deed::Retry => "is tried again",
                Deed::Hold => "is held until a person decides",
                _ => "fails",
            };
            why.facts.push(Fact::new(
                FactKind::Then,
                format!("step {name} of job {job_id} {fate}"),
            ));
        }
        let bounds = self.engine.bounds();
        let (silent, active) = together_silent(self.tx, &bounds, first.at_up, self.now)?;
        if Bounds::is_mass_silence(silent, active) {
            let patience = format!(
                "{silent} of {active} active workers are silent: the fault is probably the server's or its network's, so \
                 they get more time"
            );
            why.facts.push(patience.into());
        }
        Ok(())
    }

    /// When it was given up, and what that did to which steps.
    fn history(&self) -> Result<Vec<String>, EngineError> {
        let newest = EventSeq(i64::MAX);
        let events = self.tx.recoveries_before(newest, HISTORY_MAX)?;
        let is_its = |event: &&Event| event.fact.worker_id == Some(self.worker.worker_id);
        let mut lines = Vec::new();
        for event in events.iter().filter(is_its) {
            if event.fact.kind == EventKind::WorkerInactive {
                let ago = span(self.now.wall.0 - event.at.0);
                lines.push(format!("recovery phase 1 marked it inactive {ago} ago"));
                break;
            }
            if let Some(job_id) = event.fact.job_id
                && lines.len() < NAMED_MAX
            {
                let told = event.fact.message.trim_start_matches("[recovery] ");
                lines.push(format!("job {job_id}: {told}"));
            }
        }
        lines.reverse();
        Ok(lines)
    }

    fn could_take(&self) -> Result<Vec<(JobId, String)>, EngineError> {
        let mut found = Vec::new();
        for (_, step_id) in self.tx.waiting_steps(None, QUEUE_LOOKED_AT)? {
            let Some(step) = self.tx.step(step_id)? else {
                continue;
            };
            let waits = step.state == StepState::Ready && step.not_before_up.is_none();
            let Some(requirement_id) = step.requirement_id.filter(|_| waits) else {
                continue;
            };
            let requirement = self.tx.requirement(requirement_id)?;
            let has_tags = (requirement.tags.iter()).all(|tag| self.worker.tags.contains(tag));
            let has_features = (requirement.features)
                .missing_in(self.worker.features)
                .is_empty();
            if has_tags && has_features {
                let (_, context) = load(self.tx, step.job_id)?;
                found.push((step.job_id, context.name(&step)));
            }
            if found.len() == NAMED_MAX {
                break;
            }
        }
        Ok(found)
    }
}
