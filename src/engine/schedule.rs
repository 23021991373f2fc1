//! Schedules as the files have them, as people pause and resume them, as everybody sees them.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::{Engine, EngineError};
use crate::cron::Cron;
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::limits::shorten;
use crate::domain::schedule::{Fire, FireOutcome, Overlap, Schedule, ScheduleDraft};
use crate::domain::{Now, ScheduleId, Timestamp};
use crate::language::words::did_you_mean;
use crate::store::Tx;

/// So many of its next times are told.
const FOLLOWING: usize = 5;

/// So many are looked at for the one that somebody meant.
const NAMED_MAX: u32 = 1_000;

/// A schedule, when it fires next, and what became of the last time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleView {
    pub schedule: Schedule,
    /// The next few times, `next_at` included. A paused schedule has them as well: as if it were resumed.
    pub following: Vec<Timestamp>,
    pub last: Option<Fire>,
}

impl Engine {
    /// Takes over the schedules of all files: these, and no others. Unless the load is `whole`: one that is missing then may be in
    /// a file that does not load, so it is not removed but lost from sight. It makes no jobs, and goes on where it was once it is
    /// back.
    ///
    /// A new one is due for the first time after now; so is one whose cron or time zone was changed, one that comes back, and one
    /// that is enabled again. One that stayed as it was keeps its time, so that what was due while the server was off is seen.
    pub fn set_schedules(
        &self,
        drafts: &[ScheduleDraft],
        whole: bool,
        now: Now,
    ) -> Result<(), EngineError> {
        let mut wanted: BTreeMap<(String, String), (ScheduleDraft, Option<Timestamp>)> =
            BTreeMap::new();
        for draft in drafts {
            let cron = cron_of(draft)?;
            let key = (draft.task.clone(), draft.name.clone());
            wanted.insert(key, (draft.clone(), cron.next_after(now.wall)));
        }
        self.write(now, move |tx| {
            let mut new: BTreeMap<_, _> = wanted.iter().collect();
            for schedule in tx.all_schedules()? {
                let key = (schedule.draft.task.clone(), schedule.draft.name.clone());
                match new.remove(&key) {
                    Some((draft, next_from_now)) => {
                        update(tx, &schedule, draft, *next_from_now, now)?;
                    }
                    None if schedule.removed_at.is_some() => {}
                    None if !whole => tx.lose_schedule(schedule.schedule_id)?,
                    None => {
                        tx.remove_schedule(schedule.schedule_id, now)?;
                        drop_queued(tx, &schedule, FireOutcome::Missed, "no file has it", now)?;
                    }
                }
            }
            for (draft, next_at) in new.into_values() {
                tx.insert_schedule(draft, *next_at, now)?;
            }
            Ok(())
        })
    }

    /// Until it is resumed it makes no jobs; the ledger says so of each time that passes.
    pub fn pause_schedule(
        &self,
        schedule_id: ScheduleId,
        who: &str,
        now: Now,
    ) -> Result<(), EngineError> {
        let who = who.to_string();
        self.write(now, move |tx| {
            let schedule = there(tx, schedule_id)?;
            if tx.pause_schedule(schedule_id, true)? {
                let why = "the schedule is paused";
                drop_queued(tx, &schedule, FireOutcome::Paused, why, now)?;
                tell(
                    tx,
                    &schedule,
                    (EventKind::SchedulePaused, AuditAction::SchedulePaused),
                    "paused",
                    &who,
                    now,
                )?;
            }
            Ok(())
        })
    }

    /// Nothing is made up for what was due meanwhile.
    pub fn resume_schedule(
        &self,
        schedule_id: ScheduleId,
        who: &str,
        now: Now,
    ) -> Result<(), EngineError> {
        // What is due up to now belongs to the pause. It makes no jobs, so it needs no tasks.
        self.store
            .read(|tx| Ok::<_, EngineError>(there(tx, schedule_id)?.paused))?
            .then(|| self.catch_up_with(schedule_id, now, &|_| None))
            .transpose()?;
        let who = who.to_string();
        self.write(now, move |tx| {
            let schedule = there(tx, schedule_id)?;
            if tx.pause_schedule(schedule_id, false)? {
                tell(
                    tx,
                    &schedule,
                    (EventKind::ScheduleResumed, AuditAction::ScheduleResumed),
                    "resumed",
                    &who,
                    now,
                )?;
            }
            Ok(())
        })
    }

    /// Those that a file has, in the order in which they came.
    pub fn schedules(
        &self,
        after: ScheduleId,
        limit: u32,
    ) -> Result<Vec<ScheduleView>, EngineError> {
        self.store.read(|tx| {
            let schedules = tx.schedules_after(after, limit)?.into_iter();
            schedules.map(|schedule| view(tx, schedule)).collect()
        })
    }

    pub fn schedule(&self, schedule_id: ScheduleId) -> Result<ScheduleView, EngineError> {
        self.store.read(|tx| view(tx, find(tx, schedule_id)?))
    }

    /// By its number, or as `TASK.NAME`.
    pub fn select_schedule(&self, selector: &str) -> Result<ScheduleId, EngineError> {
        let none = |hint: String| EngineError::NoScheduleFits {
            selector: shorten(selector),
            hint,
        };
        if selector.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = selector.parse().map(ScheduleId);
            return number.map_err(|_| none(String::new()));
        }
        self.store.read(|tx| {
            for (dot, _) in selector.match_indices('.') {
                let (task, name) = (&selector[..dot], &selector[dot + 1..]);
                if let Some(schedule) = tx.schedule_named(task, name)? {
                    return Ok(schedule.schedule_id);
                }
            }
            let schedules = tx.schedules_after(ScheduleId(0), NAMED_MAX)?;
            // Whoever forgot its task, before whoever forgot a letter.
            let namesake = schedules
                .iter()
                .find(|schedule| schedule.draft.name == selector);
            if let Some(schedule) = namesake {
                let full_name = full_name(schedule);
                return Err(none(format!("; did you mean {full_name}?")));
            }
            let names: Vec<String> = schedules.iter().map(full_name).collect();
            Err(none(did_you_mean(
                selector,
                names.iter().map(String::as_str),
            )))
        })
    }

    /// Its ledger, the newest first, from before a row on.
    pub fn fires(
        &self,
        schedule_id: ScheduleId,
        before: Option<(Timestamp, bool)>,
        limit: u32,
    ) -> Result<Vec<Fire>, EngineError> {
        let before = before.unwrap_or((Timestamp(i64::MAX), true));
        self.store.read(|tx| {
            find(tx, schedule_id)?;
            Ok(tx.fires_before(schedule_id, before, limit)?)
        })
    }
}

pub(super) fn cron_of(draft: &ScheduleDraft) -> Result<Cron, EngineError> {
    Cron::parse(&draft.cron, &draft.timezone).map_err(|fault| EngineError::Invalid {
        place: "schedule",
        fault: format!("{} of task {}: {fault}", draft.name, draft.task),
    })
}

pub(super) fn find(tx: &Tx, schedule_id: ScheduleId) -> Result<Schedule, EngineError> {
    tx.schedule(schedule_id)?
        .ok_or_else(|| EngineError::NoScheduleFits {
            selector: schedule_id.to_string(),
            hint: String::new(),
        })
}

fn full_name(schedule: &Schedule) -> String {
    format!("{}.{}", schedule.draft.task, schedule.draft.name)
}

/// One that a file has.
pub(super) fn there(tx: &Tx, schedule_id: ScheduleId) -> Result<Schedule, EngineError> {
    let schedule = find(tx, schedule_id)?;
    match schedule.removed_at {
        None => Ok(schedule),
        Some(_) => Err(EngineError::ScheduleRemoved {
            task: schedule.draft.task,
            name: schedule.draft.name,
        }),
    }
}

fn update(
    tx: &Tx,
    schedule: &Schedule,
    draft: &ScheduleDraft,
    next_from_now: Option<Timestamp>,
    now: Now,
) -> Result<(), EngineError> {
    let was = &schedule.draft;
    let begins_anew = schedule.removed_at.is_some()
        || (&was.cron, &was.timezone) != (&draft.cron, &draft.timezone)
        || (draft.enabled && !was.enabled);
    let next_at = match schedule.next_at {
        Some(next_at) if !begins_anew => Some(next_at),
        _ => next_from_now,
    };
    if was.enabled && !draft.enabled {
        let why = "the schedule is not enabled in its file";
        drop_queued(tx, schedule, FireOutcome::Paused, why, now)?;
    }
    if was.overlap == Overlap::Queue && draft.overlap != Overlap::Queue {
        // What waits would be in the way of those that do not.
        let why = format!("overlap is {} now", draft.overlap);
        drop_queued(tx, schedule, FireOutcome::Skipped, &why, now)?;
    }
    let stays = was == draft && schedule.loaded && !schedule.waits() && schedule.next_at == next_at;
    if !stays {
        tx.update_schedule(schedule.schedule_id, draft, next_at, begins_anew)?;
    }
    Ok(())
}

/// The fire that waits for an earlier job waits no longer, and makes none.
fn drop_queued(
    tx: &Tx,
    schedule: &Schedule,
    outcome: FireOutcome,
    why: &str,
    now: Now,
) -> Result<(), EngineError> {
    if let Some(queued) = tx.queued_fire(schedule.schedule_id)? {
        tx.settle_queued(&queued, outcome, None, why, now)?;
    }
    Ok(())
}

fn tell(
    tx: &Tx,
    schedule: &Schedule,
    (kind, action): (EventKind, AuditAction),
    deed: &str,
    who: &str,
    now: Now,
) -> Result<(), EngineError> {
    let draft = &schedule.draft;
    let text = format!(
        "schedule {} of task {} {deed} by {who}",
        draft.name, draft.task
    );
    tx.audit(&about_schedule(action, schedule), now)?;
    let facts = about(schedule).and("by", who);
    Ok(tx.record(&NewEvent::new(kind, text).data(facts.data()), now)?)
}

/// The row names the schedule as commands do: by its task and its name.
pub(super) fn about_schedule(action: AuditAction, schedule: &Schedule) -> AuditEntry {
    let draft = &schedule.draft;
    AuditEntry::of(action).object("schedule", format_args!("{}.{}", draft.task, draft.name))
}

/// Which schedule an event speaks of, for programs.
pub(super) fn about(schedule: &Schedule) -> Facts {
    Facts::none()
        .and("schedule_id", schedule.schedule_id.0)
        .and("schedule", schedule.draft.name.as_str())
        .and("task", schedule.draft.task.as_str())
}

pub(super) fn view(tx: &Tx, schedule: Schedule) -> Result<ScheduleView, EngineError> {
    let cron = cron_of(&schedule.draft).ok();
    let following = std::iter::successors(schedule.next_at, |at| cron.as_ref()?.next_after(*at));
    Ok(ScheduleView {
        following: following.take(FOLLOWING).collect(),
        last: tx.last_fire(schedule.schedule_id)?,
        schedule,
    })
}
