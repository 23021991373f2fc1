//! Schedules: when a task is submitted by itself, and what happens when that was not possible in time.

use super::{Json, words};

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

/// Fires were due while nobody could act on them.
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
        /// The task does not take its input, or is not there.
        Refused = "refused",
    }
}
