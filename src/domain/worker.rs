//! A worker: a machine or process that runs steps; its state, its flags, and what it may be given.

use super::check::bad_tag;
use super::limits;
use super::peer::Features;
use super::{Now, SessionId, Timestamp, Uptime, WorkerId, words};

words! {
    pub enum WorkerState {
        Active = "active",
        Inactive = "inactive",
    }
}

words! {
    pub enum WorkerMove {
        /// It was silent for too long.
        Silence = "silence",
        /// Any contact of its current session.
        Speak = "speak",
    }
}

words! {
    /// What there is to say of a worker, the worst of it.
    pub enum WorkerStanding {
        Inactive = "inactive",
        /// It should have spoken by now, and is not given up yet.
        Silent = "silent",
        Draining = "draining",
        Paused = "paused",
        Active = "active",
    }
}

impl WorkerState {
    /// `None`: it is there already, and nothing is told.
    pub fn after(self, worker_move: WorkerMove) -> Option<WorkerState> {
        use {WorkerMove::*, WorkerState::*};
        match (self, worker_move) {
            (Active, Silence) => Some(Inactive),
            (Inactive, Speak) => Some(Active),
            (Active, Speak) | (Inactive, Silence) => None,
        }
    }
}

/// What is wrong with what a worker offers, and where.
pub fn offer_fault(slots: u32, tags: &[String]) -> Option<(&'static str, String)> {
    let (slots_max, tags_max) = (limits::SLOTS_MAX, limits::STEP_TAGS_MAX);
    if slots == 0 || slots > slots_max {
        return Some(("slots", format!("are {slots}, expected 1 to {slots_max}")));
    }
    if tags.len() > tags_max {
        let count = tags.len();
        return Some((
            "tags",
            format!("are {count}, at most {tags_max} are allowed"),
        ));
    }
    bad_tag(tags).map(|fault| ("tag", fault))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    pub worker_id: WorkerId,
    /// Made once by the worker and kept in its folder: the same machine after a restart.
    pub instance_key: String,
    pub name: String,
    pub state: WorkerState,
    /// Belongs to the session: finishes what it has, takes nothing new, leaves.
    pub draining: bool,
    /// Belongs to the worker: takes nothing new until resumed, over restarts.
    pub paused: bool,
    pub deleted_at: Option<Timestamp>,
    pub tags: Vec<String>,
    pub slots: u32,
    pub version: String,
    pub platform: String,
    pub session_id: Option<SessionId>,
    pub session_key: Option<String>,
    pub heartbeat_seq: i64,
    pub seen_at: Timestamp,
    pub seen_up: Uptime,
    /// What it announced when it opened its current session.
    pub features: Features,
}

impl Worker {
    /// How long ago it was last heard, as people count: with the time in which the server was off. Recovery counts otherwise.
    pub fn silent_ms(&self, now: Now) -> i64 {
        let by_wall = now.wall.0 - self.seen_at.0;
        by_wall.max(now.up.0 - self.seen_up.0).max(0)
    }

    /// Whether it may be given new steps at all. Being busy is another question.
    pub fn takes_work(&self) -> bool {
        self.state == WorkerState::Active
            && !self.draining
            && !self.paused
            && self.deleted_at.is_none()
    }
}
