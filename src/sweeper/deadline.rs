//! When the next round of the sweeper is due: exactly when the first deadline passes.

use crate::domain::{Now, Timestamp, Uptime};
use crate::engine::{Engine, EngineError};

/// How soon a round is repeated if something is past its deadline and the last round left it alone, for example because it has a
/// grace after an absence of the server.
pub const OUTSTANDING_RETRY_MS: i64 = 1_000;

/// Rounds are at least this far apart, so that many deadlines shortly after each other share rounds.
pub const ROUND_GAP_MS: i64 = 100;

/// The last round of the sweeper, as far as the next one depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRound {
    /// The time that the round was made at: it looked at everything that was due by then.
    pub at_up: Uptime,
    /// The round must be repeated after this, whatever is due.
    pub retry_ms: Option<i64>,
    /// No other round before this.
    pub gap_ms: i64,
}

impl LastRound {
    /// When the next round is due: at the first deadline after the last round, and after the sweep interval at the latest.
    pub fn next_due(&self, engine: &Engine, now: Now) -> Result<Uptime, EngineError> {
        let deadlines = find_deadlines(engine, now, self.at_up)?;
        let outstanding_ms = deadlines.is_outstanding.then_some(OUTSTANDING_RETRY_MS);
        let retry_up = self.retry_ms.or(outstanding_ms);
        let retry_up = retry_up.map(|ms| self.at_up.plus_ms(ms));
        let due_up = retry_up.into_iter().chain(deadlines.next).min();
        let interval_up = self.at_up.plus_ms(engine.settings.sweep_interval_ms);
        let due_up = due_up.map_or(interval_up, |due_up| due_up.min(interval_up));
        Ok(match self.retry_ms {
            Some(0) => due_up,
            _ => due_up.max(self.at_up.plus_ms(self.gap_ms)),
        })
    }
}

/// What is due, seen from the last round.
#[derive(Debug, Default)]
struct Deadlines {
    /// Something was due by the time of the last round and is still there.
    is_outstanding: bool,
    /// The first deadline after the last round. It may be too early, and is never too late.
    next: Option<Uptime>,
}

impl Deadlines {
    fn add(&mut self, at: Option<Uptime>, after: Uptime) {
        match at {
            Some(at) if at <= after => self.is_outstanding = true,
            Some(at) => self.next = Some(self.next.map_or(at, |next| next.min(at))),
            None => {}
        }
    }
}

/// The deadline at the front of each queue, and the first one after the last round if the front is older.
fn find_deadlines(engine: &Engine, now: Now, after: Uptime) -> Result<Deadlines, EngineError> {
    let bounds = engine.bounds();
    let settings = &bounds.settings;
    let start = Uptime(i64::MIN);
    engine.store.read(|tx| {
        let mut found = Deadlines::default();
        if !tx.abandoned_steps(1)?.is_empty() {
            found.add(Some(after), after);
        }
        // Each queue is sorted by a time; its deadline is so much later.
        let heartbeat_ms = settings.heartbeat_timeout_ms;
        let unmatched_ms = settings.unmatched_step_timeout_ms;
        let grace_ms = settings.report_grace_ms;
        let mut add_queue =
            |first_after: &dyn Fn(Uptime) -> Result<Option<Uptime>, EngineError>,
             deadline: &dyn Fn(Uptime) -> Uptime,
             later_ms: i64| {
                let front = first_after(start)?.map(deadline);
                found.add(front, after);
                if front.is_some_and(|front| front <= after) {
                    let second = first_after(after.plus_ms(-later_ms))?;
                    found.add(second.map(deadline), after);
                }
                Ok::<_, EngineError>(())
            };
        let plain = |up: Uptime| up;
        add_queue(
            &|up| Ok(tx.first_seen_after(up)?),
            &|up| bounds.silent_at(up),
            heartbeat_ms,
        )?;
        add_queue(
            &|up| Ok(tx.first_forgotten_after(up)?),
            &|up| up.plus_ms(grace_ms),
            grace_ms,
        )?;
        add_queue(&|up| Ok(tx.first_unacknowledged_after(up)?), &plain, 0)?;
        add_queue(&|up| Ok(tx.first_overdue_step_after(up)?), &plain, 0)?;
        add_queue(&|up| Ok(tx.first_overdue_job_after(up)?), &plain, 0)?;
        add_queue(
            &|up| Ok(tx.first_unmatched_after(up)?),
            &|up| bounds.unmatched_at(up, up),
            unmatched_ms,
        )?;
        add_queue(&|up| Ok(tx.first_delayed_after(up)?), &plain, 0)?;
        // These wait for a wall clock time.
        let to_up = |wall: Timestamp| now.up.plus_ms(wall.0.saturating_sub(now.wall.0));
        let to_wall = |up: Uptime| {
            let ms = up.0.saturating_sub(now.up.0);
            Timestamp(now.wall.0.saturating_add(ms))
        };
        let not_before = |up| Ok(tx.first_not_before_after(to_wall(up))?.map(to_up));
        add_queue(&not_before, &plain, 0)?;
        if found.is_outstanding {
            // What began before an absence of the server has a grace, which ends at one of these times.
            for ms in [settings.heartbeat_interval_ms, settings.ack_timeout_ms] {
                let grace_ends_up = bounds.undisturbed_since.plus_ms(ms);
                found.add(Some(grace_ends_up), after);
            }
        }
        Ok(found)
    })
}
