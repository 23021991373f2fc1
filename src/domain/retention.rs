//! How long what has happened is kept, and how old it is.
//!
//! Bounds are in days, and days are the wall clock's; but that may be set at any time, and a wrong year must not cost anybody
//! a history. So age is counted by a clock of its own: the time that the server was there, and of the time that it was not, what the
//! wall clock says, if that is believable. Where things stood at an age is written down once an hour (`Milestone`). What is no
//! newer than a milestone is at least as old as it, whatever time is written beside it.

use super::{EventSeq, JobId, Now, OutboxId, SessionId, Timestamp, Uptime};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// A server may be off for a long weekend. Of a clock that has moved by more than that nobody can say whether it was wrong before
/// or is now: nothing grows older by it. What is kept for too long does less harm than what is gone too soon.
pub const ABSENCE_BELIEVED_MS: i64 = 4 * DAY_MS;

/// A milestone is written down this often: nothing goes before its time, and at most this much later.
pub const MILESTONE_MS: i64 = HOUR_MS;

/// How long each is kept, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// From its end. Children go with the job that they are of.
    pub job_ms: i64,
    /// What its steps printed, from its end; never longer than the job.
    pub log_ms: i64,
    /// Never shorter than jobs: those of a job stay as long as it does.
    pub event_ms: i64,
    /// The audit log. Its oldest rows go first.
    pub audit_ms: i64,
    /// To the outside, delivered or given up.
    pub message_ms: i64,
    /// A job that was made under a key stays as long as the key.
    pub key_ms: i64,
    /// What was written down about instants that no job was made for. The others go with their jobs.
    pub fire_ms: i64,
    /// Since it was last heard of. Its name stays for as long as a job has it.
    pub worker_ms: i64,
}

impl Retention {
    pub const DEFAULT: Retention = Retention {
        job_ms: 90 * DAY_MS,
        log_ms: 30 * DAY_MS,
        event_ms: 90 * DAY_MS,
        audit_ms: 365 * DAY_MS,
        message_ms: 30 * DAY_MS,
        key_ms: 30 * DAY_MS,
        fire_ms: 90 * DAY_MS,
        worker_ms: 7 * DAY_MS,
    };

    /// No milestone before this age is ever asked for.
    pub fn longest_ms(&self) -> i64 {
        let all = [
            self.job_ms,
            self.log_ms,
            self.event_ms,
            self.audit_ms,
            self.message_ms,
            self.key_ms,
            self.fire_ms,
            self.worker_ms,
        ];
        all.into_iter().max().unwrap_or_default()
    }
}

impl Default for Retention {
    fn default() -> Retention {
        Retention::DEFAULT
    }
}

/// The clock that age is counted by, as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgeClock {
    pub age_ms: i64,
    pub at: Timestamp,
    pub up: Uptime,
    /// What the wall clock was set back by and has not made good: it does not pass twice.
    pub owed_ms: i64,
}

impl AgeClock {
    pub fn beginning(now: Now) -> AgeClock {
        AgeClock {
            age_ms: 0,
            at: now.wall,
            up: now.up,
            owed_ms: 0,
        }
    }

    pub fn read(&self, now: Now) -> AgeClock {
        let served_ms = (now.up.0 - self.up.0).max(0);
        let absent_ms = now
            .wall
            .0
            .saturating_sub(self.at.0)
            .saturating_sub(served_ms);
        let (counted_ms, owed_ms) = if absent_ms.abs() > ABSENCE_BELIEVED_MS {
            (0, self.owed_ms)
        } else {
            let owed_ms = self.owed_ms.saturating_sub(absent_ms);
            ((-owed_ms).max(0), owed_ms.max(0))
        };
        AgeClock {
            age_ms: self.age_ms + served_ms + counted_ms,
            at: now.wall,
            up: now.up,
            owed_ms,
        }
    }
}

/// Where things stood at an age: the highest number of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Milestone {
    pub clock: AgeClock,
    pub job_id: JobId,
    pub event_seq: EventSeq,
    pub outbox_id: OutboxId,
    pub session_id: SessionId,
    pub audit_seq: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEARS_MS: i64 = 3_652 * DAY_MS;

    fn clock() -> AgeClock {
        AgeClock::beginning(at(0, 0))
    }

    fn at(wall: i64, up: i64) -> Now {
        Now {
            wall: Timestamp(1_800_000_000_000 + wall),
            up: Uptime(up),
        }
    }

    #[test]
    fn what_the_server_was_there_for_counts_and_the_nights_that_it_was_off() {
        let evening = clock().read(at(8 * HOUR_MS, 8 * HOUR_MS));
        assert_eq!(evening.age_ms, 8 * HOUR_MS);
        let morning = evening.read(at(DAY_MS, 8 * HOUR_MS));
        assert_eq!(morning.age_ms, DAY_MS);
        let tuesday = morning.read(at(DAY_MS + ABSENCE_BELIEVED_MS, 8 * HOUR_MS));
        assert_eq!(tuesday.age_ms, DAY_MS + ABSENCE_BELIEVED_MS);
    }

    #[test]
    fn a_clock_that_jumps_by_years_makes_nothing_older_and_nothing_younger() {
        for years in [YEARS_MS, -YEARS_MS, i64::MAX / 2, i64::MIN / 2] {
            let jumped = clock().read(at(years, HOUR_MS));
            assert_eq!(jumped.age_ms, HOUR_MS, "{years}");
            let back = jumped.read(at(2 * HOUR_MS, 2 * HOUR_MS));
            assert_eq!(back.age_ms, 2 * HOUR_MS, "{years}");
        }
    }

    #[test]
    fn a_clock_that_goes_to_and_fro_does_not_let_the_same_day_pass_twice() {
        let mut clock = clock();
        for _ in 0..50 {
            clock = clock.read(at(DAY_MS, 0));
            clock = clock.read(at(0, 0));
        }
        assert_eq!(clock.age_ms, DAY_MS);
        assert_eq!(clock.read(at(3 * DAY_MS, 0)).age_ms, 3 * DAY_MS);
    }
}
