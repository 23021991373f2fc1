//! Why a schedule makes no job now, or did not: what it waits for, what holds it, what became of its last time.

use super::schedule::{find, view};
use super::scope::rfc3339;
use super::why::{Code, Fact, FactKind, Why, shell_word};
use super::{Engine, EngineError, ScheduleView};
use crate::domain::schedule::{Fire, FireOutcome, Overlap, ScheduleStanding};
use crate::domain::span::span;
use crate::domain::{Now, ScheduleId, Timestamp};
use crate::store::Tx;

/// Times among which the last one that made a job is looked for.
const LEDGER_LOOKED_AT: u32 = 100;

#[derive(Debug, Clone)]
pub struct ScheduleWhy {
    pub view: ScheduleView,
    pub why: Why,
    /// Until it fires next; `None` if it will not.
    pub next_in_ms: Option<i64>,
}

impl Engine {
    pub fn why_schedule(
        &self,
        schedule_id: ScheduleId,
        now: Now,
    ) -> Result<ScheduleWhy, EngineError> {
        self.store.read(|tx| {
            let view = view(tx, find(tx, schedule_id)?)?;
            let queued = tx.queued_fire(schedule_id)?;
            let standing = standing(&view, queued.is_some());
            let why = Asked {
                tx,
                now,
                view: &view,
            }
            .why(standing, queued.as_ref())?;
            let fires = matches!(
                standing,
                ScheduleStanding::Scheduled | ScheduleStanding::Overlap
            );
            let next_at = view.schedule.next_at.filter(|_| fires);
            Ok(ScheduleWhy {
                next_in_ms: next_at.map(|at| (at.0 - now.wall.0).max(0)),
                why,
                view,
            })
        })
    }
}

fn standing(view: &ScheduleView, is_queued: bool) -> ScheduleStanding {
    let schedule = &view.schedule;
    if schedule.removed_at.is_some() {
        ScheduleStanding::Removed
    } else if !schedule.loaded {
        ScheduleStanding::NotLoaded
    } else if schedule.paused {
        ScheduleStanding::Paused
    } else if !schedule.draft.enabled {
        ScheduleStanding::Disabled
    } else if is_queued || schedule.waits() || schedule.backlog().is_some() {
        ScheduleStanding::Overlap
    } else if schedule.next_at.is_none() {
        ScheduleStanding::NeverDue
    } else {
        ScheduleStanding::Scheduled
    }
}

/// A fire is due at a whole second.
fn moment(at: Timestamp) -> String {
    rfc3339(at).replace(".000Z", "Z")
}

struct Asked<'a> {
    tx: &'a Tx<'a>,
    now: Now,
    view: &'a ScheduleView,
}

impl Asked<'_> {
    fn why(&self, standing: ScheduleStanding, queued: Option<&Fire>) -> Result<Why, EngineError> {
        use ScheduleStanding::*;
        let schedule = &self.view.schedule;
        let draft = &schedule.draft;
        let name = shell_word(&format!("{}.{}", draft.task, draft.name));
        let earlier = self.tx.live_jobs_of_schedule(schedule.schedule_id)?;
        let (sentence, fix) = match standing {
            Removed => (
                format!(
                    "no file has it any more; it was removed {}",
                    self.ago(schedule.removed_at)
                ),
                Vec::new(),
            ),
            NotLoaded => (
                "its file does not load: it makes no jobs, and goes on where it was once the file does".to_string(),
                vec!["stepward validate".to_string()],
            ),
            Paused => (
                "somebody paused it: it makes no jobs until it is resumed".to_string(),
                vec![format!("stepward schedule resume {name}")],
            ),
            Disabled => (
                "its file says enabled: false, so it makes no jobs".to_string(),
                vec!["say enabled: true in its file".to_string()],
            ),
            NeverDue => (
                format!("its cron {} has no time that is still to come", draft.cron),
                vec!["change cron in its file".to_string()],
            ),
            Overlap => {
                let backlog = schedule.backlog().map(|(from, _)| from);
                let due_at = queued.map(|fire| fire.due_at).or(backlog).or(schedule.next_at);
                let fire = due_at.map_or("a fire".to_string(), |at| format!("the fire of {}", moment(at)));
                let (job, fix) = match earlier.first() {
                    Some(job_id) => (
                        format!("job {job_id} of an earlier fire"),
                        vec![format!("stepward why {job_id}"), format!("stepward cancel {job_id}")],
                    ),
                    None => ("its turn".to_string(), Vec::new()),
                };
                (format!("{fire} waits for {job}; overlap is {}", draft.overlap), fix)
            }
            Scheduled => {
                let at = schedule.next_at.unwrap_or(self.now.wall);
                (format!("it fires in {}, at {}", span(at.0 - self.now.wall.0), moment(at)), Vec::new())
            }
        };
        let mut why = Why::of(Code::Schedule(standing), sentence);
        why.fix = fix;
        if standing == Scheduled {
            let then = earlier.first().and_then(|job_id| self.in_the_way(job_id.0));
            why.facts.extend(then.map(Fact::from));
        }
        self.past(&mut why, &name)?;
        Ok(why)
    }

    /// What an earlier job that is still there will do to the next time.
    fn in_the_way(&self, job_id: i64) -> Option<String> {
        let overlap = self.view.schedule.draft.overlap;
        let then = match overlap {
            Overlap::Skip => "that time is skipped",
            Overlap::Queue => "that time waits for it",
            Overlap::CancelPrevious => "it is cancelled",
            Overlap::Allow => return None,
        };
        Some(format!(
            "job {job_id} of an earlier fire is there: if it still is then, {then}; overlap is {overlap}"
        ))
    }

    /// What became of the last time, and when it last made a job.
    fn past(&self, why: &mut Why, name: &str) -> Result<(), EngineError> {
        let Some(last) = &self.view.last else {
            why.facts.push("it has not been due yet".to_string().into());
            return Ok(());
        };
        why.facts.push(Fact::new(FactKind::Last, self.line(last)));
        match last.outcome {
            FireOutcome::Refused => {
                why.fix.push("stepward validate".to_string());
                why.fix.push(format!("stepward schedule fire {name}"));
            }
            FireOutcome::Missed => why.fix.push(format!("stepward schedule fire {name}")),
            _ => {}
        }
        if last.job_id.is_none() {
            let newest = (Timestamp(i64::MAX), true);
            let schedule_id = self.view.schedule.schedule_id;
            let fires = self
                .tx
                .fires_before(schedule_id, newest, LEDGER_LOOKED_AT)?;
            let made = fires.iter().find(|fire| fire.job_id.is_some());
            why.facts
                .extend(made.map(|fire| Fact::new(FactKind::LastJob, self.line(fire))));
        }
        Ok(())
    }

    fn line(&self, fire: &Fire) -> String {
        let due_at = moment(fire.due_at);
        // After a clock that was ahead, the ledger has times that are still to come.
        let age = match self.now.wall.0 - fire.due_at.0 {
            age_ms @ 0.. => format!(", {} ago", span(age_ms)),
            _ => " (later than the current clock)".to_string(),
        };
        let outcome = match fire.outcome {
            FireOutcome::CaughtUp => "made up for".to_string(),
            outcome => outcome.to_string(),
        };
        let by_hand = if fire.manual { " by hand" } else { "" };
        let job = fire.job_id.map(|job_id| format!(", job {job_id}"));
        let message = match fire.message.is_empty() {
            true => String::new(),
            false => format!(": {}", fire.message),
        };
        format!(
            "{due_at}{age}, {outcome}{by_hand}{}{message}",
            job.unwrap_or_default()
        )
    }

    fn ago(&self, at: Option<Timestamp>) -> String {
        at.map_or("?".to_string(), |at| {
            format!("{} ago", span(self.now.wall.0 - at.0))
        })
    }
}
