//! A job's steps over time, as bars: what each waited for, by its reason, and when it ran.
//!
//! `of_job` makes rows of what a server tells; `bars` draws one of them, `Axis` says where times are. All of it is pure, and the
//! time is an argument. Times come from wall clocks that somebody may set: whatever they say, a segment begins where the one before
//! it ended, and nothing is outside of the job.
//!
//! A room beside `graph` and not in it: it knows times, and nothing of edges and places.
//!
//! Deliberately not here: why something waits now. Whoever knows is asked, for the rows that are shown.

mod axis;
mod bars;
mod of;
mod trail;
mod words;

pub use axis::{Axis, Tick};
pub use bars::{bars, hatches};
pub use of::of_job;

use crate::domain::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    pub begin: Timestamp,
    /// Until the job ended, or until now.
    pub length_ms: i64,
    pub is_over: bool,
    /// How long the job was held before anything of it could begin. That is not drawn: it may have been days.
    pub held_ms: i64,
    pub rows: Vec<Row>,
    /// How many rows there are besides these.
    pub more: usize,
}

/// A step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub href: String,
    pub state: String,
    /// One after the other.
    pub segments: Vec<Segment>,
    /// The sentence that says what it waits for now.
    pub why: Option<String>,
    /// What else is to know, a few words.
    pub note: Option<String>,
    /// Of a loop, whose row is somewhere before it.
    pub is_instance: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub part: Part,
    /// Since the begin of the timeline.
    pub from_ms: i64,
    pub to_ms: i64,
    /// It goes on.
    pub is_open: bool,
    /// What it was, in words.
    pub title: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// By its reason: the codes of `Waiting`, and in the past `queued` and `requeued`.
    Wait { code: String },
    /// By how it ended, or `running`.
    Run { outcome: String, by: By },
    /// So many attempts that they are told together.
    Earlier { attempts: usize },
}

/// Who carries a step out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Worker,
    ChildJob,
    Instances,
}

impl Timeline {
    pub fn axis(&self) -> Axis {
        match self.is_over {
            true => Axis::of_ended(self.length_ms),
            false => Axis::of_running(self.length_ms),
        }
    }

    /// That not all is shown.
    pub fn note(&self) -> Option<String> {
        match self.more {
            0 => None,
            1 => Some("1 more step is not shown".to_string()),
            more => Some(format!(
                "{more} more steps are not shown; what failed, runs or waits comes before what completed"
            )),
        }
    }
}

impl Row {
    pub fn wait_ms(&self) -> i64 {
        let waits = |segment: &&Segment| matches!(segment.part, Part::Wait { .. });
        self.segments.iter().filter(waits).map(Segment::ms).sum()
    }

    pub fn run_ms(&self) -> i64 {
        let runs = |segment: &&Segment| matches!(segment.part, Part::Run { .. });
        self.segments.iter().filter(runs).map(Segment::ms).sum()
    }

    /// The row for those who do not see it: `unit: waited 0.2s for dependencies, 1.1s for a worker, ran 2.3s, failed`.
    pub fn said(&self) -> String {
        words::said(self)
    }
}

impl Segment {
    pub fn ms(&self) -> i64 {
        self.to_ms - self.from_ms
    }

    /// What it waits for; `None`: it runs.
    pub fn wait_code(&self) -> Option<&str> {
        match &self.part {
            Part::Wait { code } => Some(code),
            _ => None,
        }
    }
}
