//! When the scheduler was there, and what the wall clock did meanwhile.
//!
//! # The problem
//! Schedules follow the wall clock, and the wall clock may be wrong: a machine without a battery starts in 1970 and is corrected
//! seconds later, a person mistypes a year, a test tool sets any time. What was due while the server was away is made up for by
//! the schedule's `catch_up`. What a clock merely jumped over is not: nobody was away.
//!
//! # What is known
//! The kernel counts the milliseconds since the machine started (`CLOCK_BOOTTIME`), which nobody can set and which goes on while
//! the machine is suspended. So between two readings within one boot of the machine, the real time that passed is known exactly,
//! and a wall clock that moved by another amount was set. The last reading is kept in the database with the id of the boot, so
//! this also holds for a server that was killed and started again, and a suspended machine counts as away.
//!
//! Between two boots only the wall clock is left:
//!
//! - It is not before the last reading: it is believed, and the time between is an absence. (A clock that was wrong in this
//!   direction cannot be told from a machine that was off for as long.)
//! - It is before the last reading: it was wrong then or is wrong now. The schedules follow it, and the start of the absence is
//!   remembered, for each schedule as the first time that was not dealt with. If the clock is then set forward, to a time at which
//!   this boot began after the last reading of the former one, that reveals the real time: the absence was between the two, and it
//!   is made up for. This counts for an hour after the start. Later, whatever the clock does is an ordinary step.
//!
//! A database without a reading has no absence: nothing was due before it.
//!
//! # How exact the last reading is
//! A reading is written to the database about once a minute, but each commit writes the service clock. So at a start the last
//! reading is moved on by the service time that was committed after it: [`Presence::served_until`]. Everything that a schedule did
//! is a commit, so no time at which a schedule was served counts as an absence, however the server ended.
//!
//! Each schedule has its own mark as well: its next time is the first one that was not dealt with. Without a step of the clock, and
//! between two boots, only that mark counts.
//!
//! # What follows
//! A step forward by up to ten seconds changes nothing: a time that it jumped over is found a little late, and is on time. After a
//! longer one, and after any step back, the schedules go on with the new time: the next time of each is the first one after the last
//! reading, carried over to the new clock. So a step makes no jobs, with two exceptions that lose no daily job to a clock that is
//! being corrected:
//!
//! - After a step forward by up to two minutes, the last time that it jumped over counts as found late, and `catch_up` decides.
//! - After a step back, a time of the last ten seconds that an earlier step forward had jumped over is on time.

use super::schedule::ON_TIME_MS;
use super::{Timestamp, Uptime};

/// A wall clock that differs from the real time that passed by less than this was not set. Clocks are slewed all the time.
const STEP_MIN_MS: i64 = 500;

/// A step forward of up to this is an ordinary correction: a clock that was this slow loses no schedule its time.
pub const CORRECTION_MAX_MS: i64 = 120_000;

/// For so long after a start with a clock that is behind, a step forward may tell when the server was away.
const SEARCH_MAX_MS: i64 = 3_600_000;

/// The clocks at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockReading {
    /// Names the boot of the machine. Readings of different boots cannot be compared by `boot_ms`.
    pub boot_id: String,
    /// Milliseconds since that boot, with the time that the machine was suspended.
    pub boot_ms: i64,
    pub wall: Timestamp,
    /// The service clock.
    pub up: Uptime,
}

/// The server started with a clock that is behind the last reading of its former life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockBehind {
    /// The latest wall time that was read before.
    pub last_wall: Timestamp,
    /// `boot_ms` of the start.
    pub since_ms: i64,
}

/// The last reading of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    pub reading: ClockReading,
    pub behind: Option<ClockBehind>,
    /// `boot_ms` of the last reading that was written to the database.
    pub saved_ms: i64,
    /// The service clock of the last reading that was written to the database.
    pub saved_up: Uptime,
}

/// What the wall clock did between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockChange {
    /// The wall clock advanced with real time, apart from a small correction.
    None,
    /// The wall clock was set. `resume_after` is the last reading on the new clock; schedules continue after it.
    Step {
        step_ms: i64,
        resume_after: Timestamp,
    },
    /// The server started with a clock that is behind its last reading: how long it was away is not known yet.
    Behind,
    /// The wall clock was behind and was corrected: the server was away from `away_from` to `away_until`. If it was away for so
    /// short a time that the clock cannot tell, `away_until` is not later than `away_from`.
    Found {
        away_from: Timestamp,
        away_until: Timestamp,
        resume_after: Timestamp,
    },
    /// The wall clock was behind for so long that the end of the absence is no longer looked for.
    SearchEnded,
}

impl Presence {
    /// A reading that has just been written to the database.
    pub fn saved(reading: ClockReading, behind: Option<ClockBehind>) -> Presence {
        Presence {
            saved_ms: reading.boot_ms,
            saved_up: reading.up,
            reading,
            behind,
        }
    }

    /// Moves a reading that was loaded from the database to the last commit, which was made at `up` on the service clock: until
    /// then the server was there, and no step of the wall clock was seen.
    pub fn served_until(mut self, up: Uptime, now: &ClockReading) -> Presence {
        let reading = &mut self.reading;
        let mut served_ms = (up.0 - reading.up.0).max(0);
        if reading.boot_id == now.boot_id {
            // A commit is not later than now. The two clocks are not read at exactly the same moment.
            served_ms = served_ms.min((now.boot_ms - reading.boot_ms).max(0));
        }
        reading.boot_ms += served_ms;
        reading.wall = Timestamp(reading.wall.0 + served_ms).printable();
        reading.up = reading.up.plus_ms(served_ms);
        self
    }

    /// Milliseconds since the last saved reading that the service clock did not count: the server stalled, the machine slept, or
    /// the store could not write. A reading that is moved on by the service clock would be too early by these.
    pub fn unserved_ms(&self, now: &ClockReading) -> i64 {
        (now.boot_ms - self.saved_ms) - (now.up.0 - self.saved_up.0)
    }

    /// Compares the last reading with a new one.
    pub fn compare(&self, now: &ClockReading) -> (ClockChange, Presence) {
        let (change, behind) = self.change(now);
        let presence = Presence {
            reading: now.clone(),
            behind,
            ..self.clone()
        };
        (change, presence)
    }

    fn change(&self, now: &ClockReading) -> (ClockChange, Option<ClockBehind>) {
        let last = &self.reading;
        if last.boot_id != now.boot_id || now.boot_ms < last.boot_ms {
            return self.change_since_former_boot(now);
        }
        let away_ms = now.boot_ms - last.boot_ms;
        let step_ms = now.wall.0 - last.wall.0 - away_ms;
        // A clock beyond all calendars reads as the last printable time for ever.
        let is_stuck = now.wall == last.wall && !now.wall.is_within_calendars();
        let is_set = !(-STEP_MIN_MS..=ON_TIME_MS).contains(&step_ms);
        let last_on_new_clock = Timestamp(now.wall.0 - away_ms);
        if let Some(behind) = self.behind {
            let here_ms = now.boot_ms - behind.since_ms;
            if here_ms > SEARCH_MAX_MS && !is_set {
                return (ClockChange::SearchEnded, None);
            }
            let away_until = Timestamp(now.wall.0 - here_ms);
            // Any correction that brings the clock to where it was before, or later, has set it right. A later step is an ordinary
            // one, so the search ends here even if the correction was small.
            let is_right = away_until.0 >= behind.last_wall.0 - ON_TIME_MS;
            if step_ms >= STEP_MIN_MS && is_right && here_ms <= SEARCH_MAX_MS {
                let found = ClockChange::Found {
                    away_from: behind.last_wall,
                    away_until,
                    resume_after: if is_set { last_on_new_clock } else { last.wall },
                };
                return (found, None);
            }
        }
        if !is_set || is_stuck {
            return (ClockChange::None, self.behind);
        }
        let step = ClockChange::Step {
            step_ms,
            resume_after: last_on_new_clock,
        };
        (step, self.behind)
    }

    fn change_since_former_boot(&self, now: &ClockReading) -> (ClockChange, Option<ClockBehind>) {
        let former = self.behind.map(|behind| behind.last_wall);
        let last_wall = former.unwrap_or(self.reading.wall).max(self.reading.wall);
        // A clock that is behind by a few seconds only is right: its schedules wait for those.
        if now.wall.0 < last_wall.0 - ON_TIME_MS {
            let behind = ClockBehind {
                last_wall,
                since_ms: now.boot_ms,
            };
            return (ClockChange::Behind, Some(behind));
        }
        let change = match self.behind {
            None => ClockChange::None,
            Some(_) => ClockChange::Found {
                away_from: last_wall,
                away_until: now.wall,
                resume_after: now.wall,
            },
        };
        (change, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: i64 = 365 * 86_400_000;
    const NOW: i64 = 1_700_000_000_000;

    fn reading(boot: &str, boot_ms: i64, wall: i64) -> ClockReading {
        ClockReading {
            boot_id: boot.to_string(),
            boot_ms,
            wall: Timestamp(wall),
            up: Uptime(boot_ms),
        }
    }

    fn seen(boot: &str, boot_ms: i64, wall: i64) -> Presence {
        Presence::saved(reading(boot, boot_ms, wall), None)
    }

    #[test]
    fn time_that_passes_is_no_step_however_much_of_it() {
        let last = seen("a", 5_000, NOW);
        for away_ms in [0, 1_000, 3_600_000, 10 * YEAR] {
            for drift_ms in [-500, 0, 10_000] {
                let now = reading("a", 5_000 + away_ms, NOW + away_ms + drift_ms);
                assert_eq!(last.compare(&now).0, ClockChange::None, "{away_ms}");
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_resumes_where_the_last_reading_is_on_the_new_clock() {
        let last = seen("a", 5_000, NOW);
        for step_ms in [10_001, 10 * YEAR, -YEAR] {
            let now = reading("a", 6_000, NOW + 1_000 + step_ms);
            let step = ClockChange::Step {
                step_ms,
                resume_after: Timestamp(NOW + step_ms),
            };
            assert_eq!(last.compare(&now).0, step);
        }
    }

    #[test]
    fn a_clock_at_the_end_of_all_calendars_stands_still_and_is_not_set_back() {
        let end = Timestamp::LAST_PRINTABLE.0;
        let now = reading("a", 60_000, end);
        assert_eq!(seen("a", 0, end).compare(&now).0, ClockChange::None);
    }

    #[test]
    fn a_start_in_1970_that_is_corrected_tells_how_long_the_server_was_away() {
        let last = seen("a", 9_000_000, NOW);
        let (change, behind) = last.compare(&reading("b", 20_000, 0));
        assert_eq!(change, ClockChange::Behind);
        let (change, behind) = behind.compare(&reading("b", 21_000, 1_000));
        assert_eq!(change, ClockChange::None);
        // Set forward, but not far enough to be right.
        let (change, behind) = behind.compare(&reading("b", 22_000, NOW - YEAR));
        assert!(matches!(change, ClockChange::Step { .. }), "{change:?}");
        let (change, after) = behind.compare(&reading("b", 24_000, NOW + 3_600_000));
        let found = ClockChange::Found {
            away_from: Timestamp(NOW),
            away_until: Timestamp(NOW + 3_600_000 - 4_000),
            resume_after: Timestamp(NOW + 3_600_000 - 2_000),
        };
        assert_eq!((change, after.behind), (found, None));
    }

    #[test]
    fn the_search_for_an_absence_survives_another_boot_and_ends_after_an_hour() {
        let last = seen("a", 9_000_000, NOW);
        let (_, behind) = last.compare(&reading("b", 20_000, 0));
        let (change, still) = behind.compare(&reading("c", 20_000, 5_000));
        assert_eq!(change, ClockChange::Behind);
        assert_eq!(still.behind.unwrap().last_wall, Timestamp(NOW));
        let (change, _) = still.compare(&reading("d", 20_000, NOW + YEAR));
        let found = ClockChange::Found {
            away_from: Timestamp(NOW),
            away_until: Timestamp(NOW + YEAR),
            resume_after: Timestamp(NOW + YEAR),
        };
        assert_eq!(change, found);
        let hour = 3_600_000;
        let (change, ended) = behind.compare(&reading("b", 20_001 + hour, hour + 1));
        assert_eq!((change, ended.behind), (ClockChange::SearchEnded, None));
        let (change, _) = behind.compare(&reading("b", 20_001 + hour, NOW + YEAR));
        assert!(matches!(change, ClockChange::Step { .. }), "{change:?}");
    }

    #[test]
    fn between_two_boots_a_clock_that_went_on_is_believed() {
        let last = seen("a", 9_000_000, NOW);
        let now = reading("b", 20_000, NOW + YEAR);
        assert_eq!(last.compare(&now).0, ClockChange::None);
    }

    #[test]
    fn a_small_correction_ends_the_search_if_the_clock_is_then_right() {
        let last = seen("a", 9_000_000, NOW);
        for (behind_ms, correction_ms) in [(120_000, 115_000), (120_000, 121_000), (15_000, 8_000)]
        {
            let (change, behind) = last.compare(&reading("b", 20_000, NOW - behind_ms));
            assert_eq!(change, ClockChange::Behind);
            let right = NOW - behind_ms + correction_ms + 3_000;
            let (change, after) = behind.compare(&reading("b", 23_000, right));
            assert!(matches!(change, ClockChange::Found { .. }), "{change:?}");
            let (change, _) = after.compare(&reading("b", 24_000, right + 1_000 + 10 * YEAR));
            assert!(matches!(change, ClockChange::Step { .. }), "{change:?}");
        }
        let (change, after) = last.compare(&reading("b", 20_000, NOW - 9_000));
        assert_eq!(
            (change, after.behind),
            (ClockChange::None, None),
            "a clock that is behind by nine seconds is right"
        );
    }

    #[test]
    fn the_service_clock_moves_a_saved_reading_to_the_last_commit() {
        let saved = || seen("a", 5_000, NOW);
        let now = reading("a", 60_000, NOW + 10 * YEAR);
        let moved = saved().served_until(Uptime(50_000), &now);
        assert_eq!(moved.reading, reading("a", 50_000, NOW + 45_000));
        let same = saved().served_until(Uptime(4_000), &now);
        assert_eq!(same, saved(), "the commit was before the reading");
        // The service clock was read a moment after the other clocks.
        let moved = saved().served_until(Uptime(60_003), &now);
        assert_eq!(moved.reading.boot_ms, 60_000);
        let moved = saved().served_until(Uptime(50_000), &reading("b", 1_000, NOW));
        assert_eq!(moved.reading.wall, Timestamp(NOW + 45_000));
    }
}
