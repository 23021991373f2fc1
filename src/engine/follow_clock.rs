//! Schedules follow the wall clock when it was set. What such a step means is decided in `domain/presence.rs`.

use super::schedule::{about, cron_of};
use super::scope::rfc3339;
use super::{Engine, EngineError};
use crate::cron::Cron;
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::presence::{CORRECTION_MAX_MS, ClockChange, ClockReading, Presence};
use crate::domain::schedule::{Fire, FireOutcome, ON_TIME_MS, Schedule};
use crate::domain::span::span;
use crate::domain::{Now, Timestamp};
use crate::essential::catch_and_count;
use crate::metrics::PanicPlace;
use crate::store::Tx;

/// A reading is written to the database this often, and whenever the clock was set.
const SAVE_MS: i64 = 60_000;

/// A reading is also written when the service clock has left out more than this since the last one.
const UNSERVED_MAX_MS: i64 = 1_000;

/// An absence between two boots of the machine is logged if it was longer than this: the wall clock may be wrong.
const LONG_ABSENCE_MS: i64 = 86_400_000;

/// What a step of up to this jumped over is written to the ledger and told: somebody may miss it. A longer one says only that the
/// clock was wrong, before or after it.
const JUMP_TOLD_MAX_MS: i64 = 86_400_000;

/// So many instants that had their turn are passed over to find the next one.
const PASSED_OVER_MAX: usize = 1_000;

/// Rows of the ledger among which the one of an earlier step forward is searched.
const JUMP_SEARCH_MAX: u32 = 100;

impl Engine {
    /// Compares the clocks with the last reading, and has the schedules follow a clock that was set. To be called before each look
    /// at the schedules, and before they are loaded at the start of the server.
    ///
    /// `last`: the last reading of this process. `None`: the one that is in the database.
    pub fn follow_clock(
        &self,
        last: Option<Presence>,
        reading: ClockReading,
        now: Now,
    ) -> Result<Presence, EngineError> {
        let is_start = last.is_none();
        let last = match last {
            Some(last) => Some(last),
            None => {
                let saved = self.store.read(|tx| Ok::<_, EngineError>(tx.presence()?))?;
                saved.map(|saved| saved.served_until(self.store.saved_up(), &reading))
            }
        };
        let Some(last) = last else {
            return self.begin_to_follow(reading, now);
        };
        let (change, presence) = last.compare(&reading);
        let is_save_due = reading.boot_ms - last.saved_ms >= SAVE_MS;
        // While the store cannot write, the service clock stands still, and a reading could not be saved either.
        let is_unserved =
            last.unserved_ms(&reading) > UNSERVED_MAX_MS && reading.up > last.reading.up;
        if change == ClockChange::None && !is_start && !is_save_due && !is_unserved {
            return Ok(presence);
        }
        log_change(change, &last.reading, &reading);
        let presence = Presence::saved(reading, presence.behind);
        let (saved, last_wall) = (presence.clone(), last.reading.wall);
        self.write(now, move |tx| {
            let following = Following {
                tx,
                change,
                last_wall,
                now,
            };
            if change != ClockChange::None {
                for schedule in tx.all_schedules()? {
                    following.follow_or_skip(&schedule)?;
                }
            }
            Ok(tx.save_presence(&saved)?)
        })?;
        Ok(presence)
    }

    /// There is no reading to compare with: the database is new, or of a version that kept none. What is too far ahead is of a
    /// clock that was.
    fn begin_to_follow(&self, reading: ClockReading, now: Now) -> Result<Presence, EngineError> {
        let presence = Presence::saved(reading, None);
        let saved = presence.clone();
        self.write(now, move |tx| {
            for schedule in tx.all_schedules()? {
                // A schedule that cannot be read any more is reported when it is due.
                let cron = cron_of(&schedule.draft).ok();
                let next_at = cron.and_then(|cron| cron.next_after(now.wall));
                if schedule.removed_at.is_none() && schedule.next_at > next_at && next_at.is_some()
                {
                    tx.withdraw_fires(schedule.schedule_id, now)?;
                    tx.set_times(schedule.schedule_id, next_at, None, None)?;
                }
            }
            Ok(tx.save_presence(&saved)?)
        })?;
        Ok(presence)
    }
}

fn log_change(change: ClockChange, last: &ClockReading, now: &ClockReading) {
    let (last_wall, now_wall) = (rfc3339(last.wall), rfc3339(now.wall));
    match change {
        ClockChange::None => {
            let away_ms = now.wall.0 - last.wall.0;
            if last.boot_id != now.boot_id && away_ms > LONG_ABSENCE_MS {
                let away = span(away_ms);
                log::warn!(
                    "the machine was started again and its wall clock shows {now_wall}, {away} after the last recorded time {last_wall}; the server assumes it was not running in between and applies catch_up"
                );
            }
        }
        ClockChange::Step { step_ms, .. } => {
            let direction = if step_ms < 0 { "back" } else { "forward" };
            let by = span(step_ms.saturating_abs());
            let away_ms = now.boot_ms - last.boot_ms;
            let absence = match away_ms > ON_TIME_MS {
                true => format!(
                    "; times missed during the absence of {} are caught up",
                    span(away_ms)
                ),
                false => String::new(),
            };
            log::warn!(
                "the wall clock was set {direction} by {by}; schedules continue from the new time, and skipped times make no jobs{absence}"
            );
        }
        ClockChange::Behind => log::warn!(
            "the wall clock shows {now_wall}, earlier than the last recorded time {last_wall}; schedules use the current clock. If the clock is corrected within an hour, missed times are caught up"
        ),
        ClockChange::Found {
            away_from,
            away_until,
            ..
        } if away_from < away_until => {
            let (from, until) = (rfc3339(away_from), rfc3339(away_until));
            log::warn!(
                "the wall clock was set forward to {now_wall}; the server assumes it was not running from {from} to {until} and applies catch_up"
            );
        }
        ClockChange::Found { .. } => {
            log::warn!("the wall clock was set forward to {now_wall}; no time was missed")
        }
        ClockChange::SearchEnded => log::warn!(
            "the wall clock was not corrected within an hour after the start; times before the start are not caught up"
        ),
    }
}

/// The clock was set, and what is needed to have a schedule follow it.
struct Following<'a> {
    tx: &'a Tx<'a>,
    change: ClockChange,
    /// The wall clock at the last reading.
    last_wall: Timestamp,
    now: Now,
}

impl Following<'_> {
    /// A schedule that makes the scheduler panic must not keep the others from following the clock. It has no next time until it
    /// is loaded again, because its old one may be years away from the new clock.
    fn follow_or_skip(&self, schedule: &Schedule) -> Result<(), EngineError> {
        let schedule_id = schedule.schedule_id;
        let item = format_args!("schedule {schedule_id}, which follows the wall clock,");
        let metrics = self.tx.metrics();
        let followed = catch_and_count(metrics, PanicPlace::Scheduler, item, || {
            self.follow(schedule)
        });
        followed.unwrap_or_else(|| Ok(self.tx.set_times(schedule_id, None, None, None)?))
    }

    fn follow(&self, schedule: &Schedule) -> Result<(), EngineError> {
        let schedule_id = schedule.schedule_id;
        if schedule.removed_at.is_some() {
            return Ok(());
        }
        // A schedule that cannot be read any more is reported when it is due.
        let Ok(cron) = cron_of(&schedule.draft) else {
            return Ok(());
        };
        let (away_from, away_until) = (schedule.away_from, schedule.away_until);
        let is_searched = away_from.is_some() && away_until.is_none();
        let (resume_after, backlog) = match self.change {
            ClockChange::None => return Ok(()),
            ClockChange::SearchEnded => {
                // The clock is right, so what was written later than now is of one that was ahead.
                self.tx.withdraw_fires(schedule_id, self.now)?;
                if is_searched {
                    let next_at = schedule.next_at;
                    self.tx.set_times(schedule_id, next_at, None, None)?;
                }
                return Ok(());
            }
            ClockChange::Behind if away_until.is_some() => (self.now.wall, (away_from, away_until)),
            ClockChange::Behind => (self.now.wall, (away_from.or(schedule.next_at), None)),
            ClockChange::Found {
                away_until: until,
                resume_after,
                ..
            } => {
                let from = away_from.filter(|from| is_searched && *from <= until);
                let backlog = match is_searched {
                    true => (from, from.map(|_| until)),
                    false => (away_from, away_until),
                };
                (resume_after, backlog)
            }
            ClockChange::Step {
                step_ms,
                resume_after,
            } => {
                let mut resume_after = resume_after;
                if step_ms < 0 {
                    let jumped_from = self.jumped_from(schedule)?;
                    resume_after = jumped_from.unwrap_or(resume_after).min(resume_after);
                    self.tx.withdraw_fires(schedule_id, self.now)?;
                } else if step_ms <= CORRECTION_MAX_MS
                    && let Some(last) = self.last_jumped_over(&cron, resume_after)
                {
                    resume_after = Timestamp(last.0 - 1);
                }
                (resume_after, self.backlog_at_step(schedule))
            }
        };
        let next_at = self.next_without_row(schedule, &cron, resume_after)?;
        if let ClockChange::Step { step_ms, .. } = self.change
            && (1..=JUMP_TOLD_MAX_MS).contains(&step_ms)
        {
            self.tell_jump(schedule, resume_after, next_at)?;
        }
        let (away_from, away_until) = backlog;
        Ok(self
            .tx
            .set_times(schedule_id, next_at, away_from, away_until)?)
    }

    /// Instants that were due at the last reading and have not fired yet are still handled.
    fn backlog_at_step(&self, schedule: &Schedule) -> (Option<Timestamp>, Option<Timestamp>) {
        match (schedule.away_from, schedule.next_at) {
            (None, Some(next_at)) if next_at <= self.last_wall => {
                (Some(next_at), Some(self.last_wall))
            }
            (away_from, _) => (away_from, schedule.away_until),
        }
    }

    /// The last instant that a step forward jumped over.
    fn last_jumped_over(&self, cron: &Cron, resume_after: Timestamp) -> Option<Timestamp> {
        let first = cron.next_after(self.last_wall)?;
        let jumped = (first <= resume_after).then(|| cron.due(first, resume_after, 1))?;
        jumped.instants.last().copied()
    }

    /// After a step back: the moment from which instants of the last ten seconds are on time, because an earlier step forward had
    /// jumped over them. `None`: there is no such instant.
    fn jumped_from(&self, schedule: &Schedule) -> Result<Option<Timestamp>, EngineError> {
        let until_now = (self.now.wall, true);
        let rows = self
            .tx
            .fires_before(schedule.schedule_id, until_now, JUMP_SEARCH_MAX)?;
        let last = rows.iter().find(|row| !row.manual);
        let jump = last.filter(|row| row.at > self.now.wall && row.until_at.is_some());
        let on_time_from = Timestamp(self.now.wall.0 - ON_TIME_MS);
        Ok(jump.map(|row| on_time_from.max(Timestamp(row.due_at.0 - 1))))
    }

    fn next_without_row(
        &self,
        schedule: &Schedule,
        cron: &Cron,
        after: Timestamp,
    ) -> Result<Option<Timestamp>, EngineError> {
        let mut next_at = cron.next_after(after);
        for _ in 0..PASSED_OVER_MAX {
            match next_at {
                Some(at) if self.tx.has_fire(schedule.schedule_id, at, false)? => {
                    next_at = cron.next_after(at);
                }
                _ => break,
            }
        }
        Ok(next_at)
    }

    /// One row of the ledger for all that the step jumped over.
    fn tell_jump(
        &self,
        schedule: &Schedule,
        resume_after: Timestamp,
        next_at: Option<Timestamp>,
    ) -> Result<(), EngineError> {
        let jumped = schedule
            .look_at
            .filter(|at| *at > self.last_wall && *at <= resume_after);
        let (Some(first), true) = (jumped, schedule.loaded) else {
            return Ok(());
        };
        if self.tx.has_fire(schedule.schedule_id, first, false)? {
            return Ok(());
        }
        let (outcome, message) = match schedule.pause() {
            Some(pause) => (FireOutcome::Paused, pause.to_string()),
            None => (
                FireOutcome::Missed,
                "the clock was set forward over this time".to_string(),
            ),
        };
        self.tx.insert_fire(&Fire {
            schedule_id: schedule.schedule_id,
            due_at: first,
            manual: false,
            outcome,
            job_id: None,
            until_at: Some(next_at.unwrap_or(Timestamp(resume_after.0 + 1))),
            at: self.now.wall,
            message,
        })?;
        if outcome == FireOutcome::Missed {
            let draft = &schedule.draft;
            let (name, task, first) = (&draft.name, &draft.task, rfc3339(first));
            let text = format!(
                "schedule {name} of task {task} missed {first}: the clock was set forward over it"
            );
            let facts = about(schedule)
                .and("first", first)
                .and("last", rfc3339(resume_after))
                .and("catch_up", draft.catch_up.in_words());
            let event = NewEvent::new(EventKind::ScheduleMissed, text).data(facts.data());
            self.tx.record(&event, self.now)?;
        }
        Ok(())
    }
}
