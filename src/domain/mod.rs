//! What exists and the rules that bind it: pure values, no I/O, no clock, no thread.
//!
//! Deliberately not here: SQL, JSON decoding, the time. Whatever a rule needs comes in as an argument, so that every
//! rule can be tested by a table.

pub mod audit;
pub mod cascade;
pub mod check;
pub mod cycle;
pub mod depends;
pub mod event;
pub mod idempotency;
pub mod job;
pub mod limits;
pub mod lineage;
pub mod log;
pub mod outbox;
pub mod peer;
pub mod presence;
pub mod protocol;
pub mod reason;
pub mod recovery;
pub mod retention;
pub mod retry;
pub mod schedule;
pub mod secret;
pub mod selector;
pub mod settings;
pub mod span;
pub mod step;
pub mod task;
pub mod token;
pub mod value;
pub mod webhook;
pub mod worker;

use std::fmt;

/// A closed set of words that is the same in SQL, Rust, JSON and on the pages.
macro_rules! words {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }

            pub fn from_word(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

/// Ids are integers that people can type; a newtype each, so that a job is never taken for a step.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )+};
}

ids! {
    JobId
    StepId
    WorkerId
    /// The server's own number for one life of a worker process; the opaque key the worker made is `session_key`.
    SessionId
    /// A distinct set of required tags, interned.
    RequirementId
    /// A distinct frozen definition, interned.
    DefinitionId
    EventSeq
    ScheduleId
    /// A message to the outside.
    OutboxId
    TokenId
}

/// Wall-clock time in milliseconds since 1970, UTC. For display, `not_before` and cron; never for liveness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// 0001-01-01T00:00:00Z.
    pub const FIRST_PRINTABLE: Timestamp = Timestamp(-62_135_596_800_000);
    /// 9999-12-30T22:00:00Z: the last one that has a calendar date in every time zone.
    pub const LAST_PRINTABLE: Timestamp = Timestamp(253_402_207_200_000);

    /// `false`: the time is the first or last that can be printed, or beyond.
    pub fn is_within_calendars(self) -> bool {
        self > Timestamp::FIRST_PRINTABLE && self < Timestamp::LAST_PRINTABLE
    }

    /// The nearest time that has a calendar date with a year of four digits.
    pub fn printable(self) -> Timestamp {
        self.clamp(Timestamp::FIRST_PRINTABLE, Timestamp::LAST_PRINTABLE)
    }
}

/// Service-clock time: milliseconds the server has been up, over all its lives.
///
/// It cannot jump, and downtime is not in it, so every timeout and every order in a queue is measured on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uptime(pub i64);

impl Uptime {
    pub fn plus_ms(self, ms: i64) -> Uptime {
        Uptime(self.0.saturating_add(ms))
    }
}

/// Both clocks, read once per verb by its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub wall: Timestamp,
    pub up: Uptime,
}

/// One JSON value as text. Whoever brings it in has checked that it is one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Json(pub String);

impl Json {
    pub fn empty_object() -> Json {
        Json("{}".to_string())
    }
}

/// Random bits that a job is given when it is made. The values of its secret inputs are sealed for this id and open for no other job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SealId(pub [u8; 16]);

/// One attempt of one step: what fences a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptRef {
    pub step_id: StepId,
    pub attempt: u32,
}

impl fmt::Display for AttemptRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} attempt {}", self.step_id, self.attempt)
    }
}
