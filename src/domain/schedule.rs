//! Schedules: when a task is submitted by itself, and what happens when that was not possible in time.

use super::{JobId, Json, ScheduleId, Timestamp, words};

/// A schedule as somebody wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleDraft {
    pub task: String,
    /// Unique within its task.
    pub name: String,
    /// 5 or 6 fields, or a word such as `@daily`.
    pub cron: String,
    /// An IANA name.
    pub timezone: String,
    /// Templates; checked against the task's inputs when it fires.
    pub input: Json,
    pub overlap: Overlap,
    pub catch_up: CatchUp,
    /// `false`: paused by its file.
    pub enabled: bool,
}

words! {
    /// A fire is due while a job of an earlier one is still there.
    pub enum Overlap {
        Skip = "skip",
        /// At most one waits.
        Queue = "queue",
        Allow = "allow",
        CancelPrevious = "cancel_previous",
    }
}

/// Fires were due while nobody could act on them, and were found more than [`ON_TIME_MS`] late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatchUp {
    None,
    /// The last one of them, if it is no older than this.
    Latest {
        within_ms: i64,
    },
    /// The last so many of them.
    All {
        max: u32,
    },
}

impl CatchUp {
    pub const LATEST_WITHIN_MS: i64 = 3_600_000;
    pub const ALL_MAX: u32 = 100;
}

words! {
    /// What became of an instant at which a schedule was due.
    pub enum FireOutcome {
        Fired = "fired",
        CaughtUp = "caught_up",
        /// By its `overlap`.
        Skipped = "skipped",
        /// By its `catch_up`.
        Missed = "missed",
        Paused = "paused",
        /// Waits for the job of an earlier one; becomes `fired`, or what it was kept from by.
        Queued = "queued",
        /// The task does not take its input, or is not there.
        Refused = "refused",
    }
}

words! {
    /// What there is to say of a schedule: why it makes no jobs, or what it waits for.
    pub enum ScheduleStanding {
        /// No file has it any more.
        Removed = "removed",
        /// Its file does not load.
        NotLoaded = "not_loaded",
        /// By a person.
        Paused = "paused",
        /// By its file.
        Disabled = "disabled",
        /// Its cron has no time that is still to come.
        NeverDue = "never_due",
        /// A time that has come waits for the job of an earlier one.
        Overlap = "overlap",
        Scheduled = "scheduled",
    }
}

/// What is found later than this is late, and `catch_up` decides; before that a fire is on time. Longer than a quick restart and
/// than a disk stalls, so that neither costs a fire; short, so that what was due while nobody was there is not fired as if it were
/// now.
pub const ON_TIME_MS: i64 = 10_000;

/// A schedule as it is kept. Its pause and its next time outlive every reload of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    pub schedule_id: ScheduleId,
    pub draft: ScheduleDraft,
    /// By a person.
    pub paused: bool,
    /// What is loaded has it. If not, and it is not removed either, its file does not load: it makes no jobs and keeps its time.
    pub loaded: bool,
    /// The first instant that the ledger says nothing of. `None`: it will not fire.
    pub next_at: Option<Timestamp>,
    /// When something is to be done. It is `next_at`, unless that is to be made up for and waits for the job of an earlier one.
    pub look_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// Since when no file has it.
    pub removed_at: Option<Timestamp>,
    /// The first instant of an absence that is still to be made up for. Without `away_until`, the end of the absence is not known
    /// yet, see `presence.rs`.
    pub away_from: Option<Timestamp>,
    pub away_until: Option<Timestamp>,
}

/// A row of the ledger: what became of one due instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fire {
    pub schedule_id: ScheduleId,
    /// The time that was meant, not the time at which somebody got to it.
    pub due_at: Timestamp,
    /// A person did not want to wait for the next time.
    pub manual: bool,
    pub outcome: FireOutcome,
    pub job_id: Option<JobId>,
    /// It stands for every instant from `due_at` to before this one: too many to keep one by one.
    pub until_at: Option<Timestamp>,
    /// When it was written.
    pub at: Timestamp,
    pub message: String,
}

/// What a due instant comes to, before anybody has looked whether an earlier job is in its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// `Fired` or `CaughtUp`.
    Fire(FireOutcome),
    /// It makes no job, for this reason.
    Pass(FireOutcome, String),
}

impl Schedule {
    /// What makes no jobs needs no file.
    pub fn is_due(&self, now: Timestamp) -> bool {
        (self.loaded || self.pause().is_some()) && self.look_at.is_some_and(|at| at <= now)
    }

    /// The first and the last instant of an absence that is to be made up for apart from the times to come: the clock was set
    /// since.
    pub fn backlog(&self) -> Option<(Timestamp, Timestamp)> {
        self.away_from.zip(self.away_until)
    }

    /// What is to be made up for waits for the job of an earlier fire.
    pub fn waits(&self) -> bool {
        self.look_at != self.next_at
    }

    /// All that was missed is wanted and no two at a time: one after another, or hardly any would be left.
    pub fn makes_up_one_by_one(&self) -> bool {
        let all = matches!(self.draft.catch_up, CatchUp::All { .. });
        all && matches!(self.draft.overlap, Overlap::Skip | Overlap::Queue)
    }

    /// Why it makes no jobs now.
    pub fn pause(&self) -> Option<&'static str> {
        match (self.paused, self.draft.enabled) {
            (true, _) => Some("the schedule is paused"),
            (_, false) => Some("the schedule is not enabled in its file"),
            _ => None,
        }
    }

    /// What each of these instants comes to. All of them are due, the oldest first.
    pub fn turns(&self, due: &[Timestamp], now: Timestamp) -> Vec<Turn> {
        let is_late = |at: &&Timestamp| now.0 - at.0 > ON_TIME_MS;
        let late = due.iter().filter(is_late).count();
        self.turns_of(due, late, now)
    }

    /// Decides the outcome of each instant of a backlog. All of them count as late, whatever the clock shows now.
    pub fn turns_of_backlog(&self, due: &[Timestamp], now: Timestamp) -> Vec<Turn> {
        self.turns_of(due, due.len(), now)
    }

    /// `late`: so many of them, from the first on, are late.
    fn turns_of(&self, due: &[Timestamp], late: usize, now: Timestamp) -> Vec<Turn> {
        if let Some(pause) = self.pause() {
            let paused = Turn::Pass(FireOutcome::Paused, pause.to_string());
            return vec![paused; due.len()];
        }
        // Those from here on are not too late to be made up for.
        let wanted = match self.draft.catch_up {
            CatchUp::None => late,
            CatchUp::Latest { within_ms } => match due.last() {
                // With one that is on time, there is a later one than all of these.
                Some(last) if late == due.len() && now.0 - last.0 <= within_ms => late - 1,
                _ => late,
            },
            CatchUp::All { max } => late.saturating_sub(max as usize),
        };
        let turn = |(index, at): (usize, &Timestamp)| {
            if index >= late {
                return Turn::Fire(FireOutcome::Fired);
            }
            if index >= wanted {
                return Turn::Fire(FireOutcome::CaughtUp);
            }
            let secs = (now.0 - at.0).max(0) / 1_000;
            let policy = self.draft.catch_up.in_words();
            Turn::Pass(
                FireOutcome::Missed,
                format!("found {secs} s late; catch_up is {policy}"),
            )
        };
        due.iter().enumerate().map(turn).collect()
    }
}

impl CatchUp {
    pub fn as_str(self) -> &'static str {
        match self {
            CatchUp::None => "none",
            CatchUp::Latest { .. } => "latest",
            CatchUp::All { .. } => "all",
        }
    }

    pub fn in_words(self) -> String {
        match self {
            CatchUp::None => "none".to_string(),
            CatchUp::Latest { within_ms } => format!("latest, within {} s", within_ms / 1_000),
            CatchUp::All { max } => format!("all, at most {max}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(catch_up: CatchUp) -> Schedule {
        Schedule {
            schedule_id: ScheduleId(1),
            draft: ScheduleDraft {
                task: "main".to_string(),
                name: "nightly".to_string(),
                cron: "0 * * * *".to_string(),
                timezone: "UTC".to_string(),
                input: Json::empty_object(),
                overlap: Overlap::Skip,
                catch_up,
                enabled: true,
            },
            paused: false,
            loaded: true,
            next_at: None,
            look_at: None,
            created_at: Timestamp(0),
            removed_at: None,
            away_from: None,
            away_until: None,
        }
    }

    /// Instants so many seconds ago, and what they come to.
    fn outcomes(schedule: &Schedule, ages_secs: &[i64]) -> Vec<FireOutcome> {
        let now = Timestamp(10_000_000_000);
        let due: Vec<Timestamp> = ages_secs
            .iter()
            .map(|secs| Timestamp(now.0 - secs * 1_000))
            .collect();
        let turns = schedule.turns(&due, now).into_iter();
        turns
            .map(|turn| match turn {
                Turn::Fire(outcome) | Turn::Pass(outcome, _) => outcome,
            })
            .collect()
    }

    #[test]
    fn what_is_on_time_fires_whatever_the_policy() {
        use FireOutcome::{CaughtUp, Fired, Missed};
        let latest = CatchUp::Latest {
            within_ms: 3_600_000,
        };
        for policy in [CatchUp::None, latest, CatchUp::All { max: 2 }] {
            let schedule = schedule(policy);
            assert_eq!(outcomes(&schedule, &[10, 5, 0]), [Fired; 3]);
        }
        assert_eq!(outcomes(&schedule(CatchUp::None), &[11]), [Missed]);
        assert_eq!(outcomes(&schedule(latest), &[11]), [CaughtUp]);
        assert_eq!(outcomes(&schedule(latest), &[3_600]), [CaughtUp]);
        assert_eq!(outcomes(&schedule(latest), &[3_601]), [Missed]);
        assert_eq!(outcomes(&schedule(latest), &[900, 500]), [Missed, CaughtUp]);
        assert_eq!(outcomes(&schedule(latest), &[900, 1]), [Missed, Fired]);
        assert_eq!(
            outcomes(&schedule(CatchUp::All { max: 2 }), &[900, 600, 300, 1]),
            [Missed, CaughtUp, CaughtUp, Fired]
        );
        assert_eq!(
            outcomes(&schedule(CatchUp::All { max: 0 }), &[900, 1]),
            [Missed, Fired]
        );
    }
}
