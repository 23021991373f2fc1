//! What is too old goes: jobs with their logs, then everything that spoke of them.
//!
//! How old something is, its number says (`domain/retention.rs`); what it needs to stay for, the store. A round takes one small
//! piece of each kind, in the order of `KINDS`, each piece a transaction of its own, and lets everybody go first who waits for the
//! writer. What must stay is stepped over and looked at again after the others, so a round costs the same however long the
//! history is.
//!
//! # File and row
//! First the job says that its logs are gone, then they go, then its rows. Killed in between, there is a job that says so and
//! whose files are still there; the next round, or the walk through the folder, removes them. Never the other way round.
//!
//! # What stays
//! A job that has not ended, with everything below it; a child for as long as the job that it is of; a job that somebody keeps; one that
//! a retry or a hook that is kept came of; one whose idempotency key is promised. Events of jobs that are kept, or that a message
//! tells. Messages that are to be sent. The fire that waits, and those of jobs that are kept. Workers and sessions that a kept
//! job names. Tokens, until what they did is forgotten. Rows of the audit log go from the oldest on, none before an older one.
//!
//! Deliberately not reaped: schedules and sets of tags, which are no more than what people wrote; SQL, and the time, are elsewhere.

mod history;
mod jobs;
mod prune;
mod space;
mod thread;

use std::io;
use std::time::Duration;

use crate::domain::retention::{AgeClock, MILESTONE_MS, Milestone, Retention};
use crate::domain::{EventSeq, JobId, Now, OutboxId, SessionId, WorkerId};
use crate::engine::{Engine, EngineError};
use crate::logs::{JobFolders, Logs};
use crate::store::{StoreError, StoreFailure, Tx};

pub use prune::{Pruned, PrunedEvents, prune_events, prune_jobs};
pub use thread::{LastRound, Reaper, ReaperStats};

/// Rows that one transaction removes. So few that nobody who waits for it notices.
pub const BATCH_ROWS: usize = 100;

/// Rows that one look reads, whether they may go or not.
const LOOKED_AT_MAX: u32 = 1_000;

/// The writer is waited for like this, and so often at most.
const GIVE_WAY: Duration = Duration::from_millis(5);
const GIVE_WAY_TIMES: u32 = 200;

/// What is removed, and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Of jobs that are kept themselves.
    Logs,
    Jobs,
    Keys,
    Messages,
    Events,
    Fires,
    /// Deleted, since nobody has heard of them.
    AbsentWorkers,
    /// Deleted ones that no job names any more.
    Workers,
    Sessions,
    /// That let nobody in any more.
    Tokens,
    /// The oldest rows of the audit log.
    Audit,
    /// Folders of logs that are no job's.
    StrayLogs,
    /// Of the database file.
    Pages,
}

impl Kind {
    pub const ALL: [Kind; 13] = {
        let mut kinds = [Kind::Logs; 13];
        let mut place = 0;
        while place < KINDS.len() {
            kinds[place] = KINDS[place].0;
            place += 1;
        }
        kinds
    };

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Logs => "logs",
            Kind::Jobs => "jobs",
            Kind::Keys => "idempotency_keys",
            Kind::Messages => "messages",
            Kind::Events => "events",
            Kind::Fires => "schedule_fires",
            Kind::AbsentWorkers => "absent_workers",
            Kind::Workers => "workers",
            Kind::Sessions => "sessions",
            Kind::Tokens => "tokens",
            Kind::Audit => "audit",
            Kind::StrayLogs => "stray_logs",
            Kind::Pages => "pages",
        }
    }
}

/// Takes one piece.
type Reap = fn(&mut Reaping, &Look) -> Result<Taken, ReapError>;

#[rustfmt::skip]
const KINDS: [(Kind, Reap); 13] = [
    (Kind::Logs,          jobs::reap_logs),
    (Kind::Jobs,          jobs::reap_jobs),
    (Kind::Keys,          history::reap_keys),
    (Kind::Messages,      history::reap_messages),
    (Kind::Events,        history::reap_events),
    (Kind::Fires,         history::reap_fires),
    (Kind::AbsentWorkers, history::forget_absent_workers),
    (Kind::Workers,       history::reap_workers),
    (Kind::Sessions,      history::reap_sessions),
    (Kind::Tokens,        history::reap_tokens),
    (Kind::Audit,         history::reap_audit),
    (Kind::StrayLogs,     space::reap_stray_logs),
    (Kind::Pages,         space::give_pages_back),
];

/// Why a piece could not be taken. It is tried again with the next round.
#[derive(Debug, thiserror::Error)]
pub enum ReapError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("logs of job {job_id} cannot be removed: {source}")]
    Logs { job_id: JobId, source: io::Error },
    #[error("the folder of logs cannot be read: {0}")]
    Folder(io::Error),
}

impl From<StoreError> for ReapError {
    fn from(error: StoreError) -> ReapError {
        ReapError::Engine(error.into())
    }
}

impl StoreFailure for ReapError {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            ReapError::Engine(error) => error.store_error(),
            ReapError::Logs { .. } | ReapError::Folder(_) => None,
        }
    }
}

/// What a piece took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Taken {
    count: usize,
    /// The next piece may find something.
    more: bool,
}

/// What a round may go by.
struct Look {
    now: Now,
    clock: AgeClock,
    jobs: Option<Milestone>,
    logs: Option<Milestone>,
    events: Option<Milestone>,
    messages: Option<Milestone>,
    keys: Option<Milestone>,
    fires: Option<Milestone>,
    workers: Option<Milestone>,
    audit: Option<Milestone>,
}

/// Where the next look of each walk begins. Nothing of the state lives here: a new life begins at the beginning.
#[derive(Default)]
struct Walks {
    logs: Walk<JobId>,
    jobs: Walk<JobId>,
    messages: Walk<OutboxId>,
    events: Walk<EventSeq>,
    workers: Walk<WorkerId>,
    sessions: Walk<SessionId>,
    folders: Option<JobFolders>,
    folders_since_ms: Option<i64>,
}

/// Through the numbers of one kind, from the first to where the milestone is; then again when there is another milestone.
#[derive(Debug, Clone, Copy)]
struct Walk<T> {
    after: Option<T>,
    /// The age of the milestone that it has come to the end of.
    ended_at_ms: Option<i64>,
}

impl<T> Default for Walk<T> {
    fn default() -> Walk<T> {
        Walk {
            after: None,
            ended_at_ms: None,
        }
    }
}

impl<T: Copy> Walk<T> {
    /// Whether there is anything that it has not come by.
    fn is_due(&self, milestone: &Milestone) -> bool {
        self.ended_at_ms != Some(milestone.clock.age_ms)
    }

    /// Goes on behind the last that was seen. None: it was at the end.
    fn went_to(&mut self, last: Option<T>, milestone: &Milestone) {
        self.after = last;
        if last.is_none() {
            self.ended_at_ms = Some(milestone.clock.age_ms);
        }
    }
}

/// The reaper without its thread.
pub struct Reaping {
    engine: Engine,
    logs: Logs,
    retention: Retention,
    walks: Walks,
}

/// What a round did.
#[derive(Debug, Default)]
pub struct Round {
    pub removed: Vec<(Kind, usize)>,
    pub failures: Vec<(Kind, ReapError)>,
    /// The next round may find something.
    pub more: bool,
}

impl Round {
    pub fn removed(&self, kind: Kind) -> usize {
        let counts = self.removed.iter().filter(|(removed, _)| *removed == kind);
        counts.map(|(_, count)| count).sum()
    }
}

impl Reaping {
    pub fn new(engine: Engine, logs: Logs, retention: Retention) -> Reaping {
        Reaping {
            engine,
            logs,
            retention,
            walks: Walks::default(),
        }
    }

    /// Takes one piece of everything that is too old.
    pub fn reap_once(&mut self, now: Now) -> Result<Round, EngineError> {
        let look = self.look(now)?;
        let mut round = Round::default();
        for (kind, reap) in KINDS {
            match reap(self, &look) {
                Ok(taken) => {
                    round.more |= taken.more;
                    if taken.count > 0 {
                        round.removed.push((kind, taken.count));
                    }
                }
                Err(error) => round.failures.push((kind, error)),
            }
        }
        Ok(round)
    }

    /// What time it is for retention, and where things stood when what is now too old was made.
    fn look(&self, now: Now) -> Result<Look, EngineError> {
        let store = &self.engine.store;
        let last = store.read(|tx| Ok::<_, EngineError>(tx.last_milestone()?))?;
        let clock = match last {
            None => AgeClock::beginning(now),
            Some(last) => last.clock.read(now),
        };
        let is_due = last.is_none_or(|last| clock.age_ms >= last.clock.age_ms + MILESTONE_MS);
        if is_due {
            let longest_ms = self.retention.longest_ms();
            self.write(now, move |tx| {
                tx.set_milestone(&clock)?;
                // The last one before the bound is what the bound is told by.
                match tx.milestone_of_age(clock.age_ms - longest_ms)? {
                    Some(oldest) => tx.forget_milestones(oldest.clock.age_ms),
                    None => Ok(0),
                }
            })?;
        }
        let retention = self.retention;
        store.read(|tx| {
            let before = |ms: i64| tx.milestone_of_age(clock.age_ms - ms);
            Ok::<_, EngineError>(Look {
                now,
                clock,
                jobs: before(retention.job_ms)?,
                logs: before(retention.log_ms)?,
                events: before(retention.event_ms)?,
                messages: before(retention.message_ms)?,
                keys: before(retention.key_ms)?,
                fires: before(retention.fire_ms)?,
                workers: before(retention.worker_ms)?,
                audit: before(retention.audit_ms)?,
            })
        })
    }

    /// One piece. Whoever waits for the writer goes first, for a while.
    fn write<T, F>(&self, now: Now, work: F) -> Result<T, StoreError>
    where
        F: Fn(&Tx) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let store = &self.engine.store;
        for _ in 0..GIVE_WAY_TIMES {
            if store.queued() == 0 {
                break;
            }
            std::thread::sleep(GIVE_WAY);
        }
        store.write(move |tx| {
            tx.happens_at(now.up);
            work(tx)
        })
    }

    fn read<T>(&self, look: impl FnOnce(&Tx) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.engine.store.read(look)
    }
}
