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
//! # What follows
//! A step forward by up to two minutes is an ordinary correction: what it jumped over was really due a moment ago, and is found a
//! little late. After a longer one, and after any step back, the schedules go on with the new time: the next time of each is the
//! first one after the last reading, carried over to the new clock. So a step makes no jobs. After a step back, what was due in the
//! last ten seconds and has no job yet is still on time.

use super::Timestamp;
use super::schedule::ON_TIME_MS;

/// A wall clock that differs from the real time that passed by less than this was not set back. Clocks are slewed all the time.
const STEP_BACK_MIN_MS: i64 = 500;

/// A step forward of up to this is an ordinary correction: a clock that was this slow makes fires late, and loses none.
const CORRECTION_MAX_MS: i64 = 120_000;

/// For so long after a start with a clock that is behind, a step forward may tell when the server was away.
const SEARCH_MAX_MS: i64 = 3_600_000;

/// Both clocks at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockReading {
    /// Names the boot of the machine. Readings of different boots cannot be compared by `boot_ms`.
    pub boot_id: String,
    /// Milliseconds since that boot, with the time that the machine was suspended.
    pub boot_ms: i64,
    pub wall: Timestamp,
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
    /// The wall clock was behind and was corrected: the server was away until `away_until`.
    Found {
        away_until: Timestamp,
        resume_after: Timestamp,
    },
    /// The wall clock was behind for so long that the end of the absence is no longer looked for.
    SearchEnded,
}

impl Presence {
    /// Compares the last reading with a new one.
    pub fn compare(&self, now: &ClockReading) -> (ClockChange, Presence) {
        let (change, behind) = self.change(now);
        let presence = Presence {
            reading: now.clone(),
            behind,
            saved_ms: self.saved_ms,
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
        let is_set = !(-STEP_BACK_MIN_MS..=CORRECTION_MAX_MS).contains(&step_ms);
        let on_time_ms = if step_ms < 0 { ON_TIME_MS } else { 0 };
        let resume_after = Timestamp(now.wall.0 - away_ms.max(on_time_ms));
        if let Some(behind) = self.behind {
            let here_ms = now.boot_ms - behind.since_ms;
            if here_ms > SEARCH_MAX_MS && !is_set {
                return (ClockChange::SearchEnded, None);
            }
            let away_until = Timestamp(now.wall.0 - here_ms);
            if is_set && here_ms <= SEARCH_MAX_MS && away_until >= behind.last_wall {
                let found = ClockChange::Found {
                    away_until,
                    resume_after,
                };
                return (found, None);
            }
        }
        if !is_set || is_stuck {
            return (ClockChange::None, self.behind);
        }
        let step = ClockChange::Step {
            step_ms,
            resume_after,
        };
        (step, self.behind)
    }

    fn change_since_former_boot(&self, now: &ClockReading) -> (ClockChange, Option<ClockBehind>) {
        let former = self.behind.map(|behind| behind.last_wall);
        let last_wall = former.unwrap_or(self.reading.wall).max(self.reading.wall);
        if now.wall < last_wall {
            let behind = ClockBehind {
                last_wall,
                since_ms: now.boot_ms,
            };
            return (ClockChange::Behind, Some(behind));
        }
        let change = match self.behind {
            None => ClockChange::None,
            Some(_) => ClockChange::Found {
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
        }
    }

    fn seen(boot: &str, boot_ms: i64, wall: i64) -> Presence {
        Presence {
            reading: reading(boot, boot_ms, wall),
            behind: None,
            saved_ms: boot_ms,
        }
    }

    #[test]
    fn time_that_passes_is_no_step_however_much_of_it() {
        let last = seen("a", 5_000, NOW);
        for away_ms in [0, 1_000, 3_600_000, 10 * YEAR] {
            for drift_ms in [-500, 0, 120_000] {
                let now = reading("a", 5_000 + away_ms, NOW + away_ms + drift_ms);
                assert_eq!(last.compare(&now).0, ClockChange::None, "{away_ms}");
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_resumes_where_the_last_reading_is_on_the_new_clock() {
        let last = seen("a", 5_000, NOW);
        for step_ms in [120_001, 10 * YEAR] {
            let now = reading("a", 6_000, NOW + 1_000 + step_ms);
            let step = ClockChange::Step {
                step_ms,
                resume_after: Timestamp(NOW + step_ms),
            };
            assert_eq!(last.compare(&now).0, step);
        }
        let now = reading("a", 6_000, NOW + 1_000 - YEAR);
        let step = ClockChange::Step {
            step_ms: -YEAR,
            resume_after: Timestamp(NOW + 1_000 - YEAR - ON_TIME_MS),
        };
        assert_eq!(last.compare(&now).0, step, "ten seconds are on time");
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
}
