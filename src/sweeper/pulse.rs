//! The sign of life of recovery, for the service manager: a server whose recovery hangs is no use to anybody, and is started anew.
//!
//! It comes from the sweeper's own thread, after it has looked and after the store has shown that it writes. So a sweep that does
//! not come back, a store that does not answer and a thread that is gone are all silent. A full disk is none of these: the server
//! answers, says so and goes on by itself once there is room, while one that is started anew would not start.

use std::time::Duration;

use crate::clock::monotonic_ms;
use crate::domain::Now;
use crate::domain::job::JobState;
use crate::domain::worker::WorkerState;
use crate::engine::{Engine, EngineError};
use crate::service::ServiceManager;
use crate::store::StoreError;

/// Of more than this it is enough to know that there are more.
const JOBS_MAX: u32 = 1_000;

pub(super) struct Pulse {
    manager: ServiceManager,
    due_ms: i64,
}

impl Pulse {
    pub(super) fn new(manager: ServiceManager) -> Pulse {
        let due_ms = i64::MIN;
        Pulse { manager, due_ms }
    }

    /// If it is time. Whoever calls it has just looked at everything that is due.
    pub(super) fn beat(&mut self, engine: &Engine, now: Now) {
        let Some(every) = self.manager.told_every() else {
            return;
        };
        if self.wait() > Duration::ZERO {
            return;
        }
        match engine.prove_writing(now) {
            Ok(()) => {
                self.manager.alive();
                self.manager.status(&in_words(engine));
            }
            Err(error) => {
                if matches!(error, EngineError::Store(StoreError::Full)) {
                    self.manager.alive();
                }
                self.manager
                    .status(&format!("recovery stands still: {error}"));
            }
        }
        self.due_ms = monotonic_ms().saturating_add(every.as_millis() as i64);
    }

    /// How long until it is time again.
    pub(super) fn wait(&self) -> Duration {
        match self.manager.told_every() {
            Some(_) => {
                let ms = self.due_ms.saturating_sub(monotonic_ms()).max(0);
                Duration::from_millis(ms as u64)
            }
            None => Duration::MAX,
        }
    }
}

/// `2 jobs running, 3 of 4 workers active`.
fn in_words(engine: &Engine) -> String {
    let counted = engine.store.read(|tx| {
        let jobs = tx.open_jobs(JobState::Running, JOBS_MAX)?.len();
        let workers = tx.workers()?;
        let active = workers.iter();
        let active = active.filter(|worker| worker.state == WorkerState::Active);
        Ok::<_, EngineError>((jobs, active.count(), workers.len()))
    });
    match counted {
        Ok((jobs, active, workers)) => {
            let more = if jobs == JOBS_MAX as usize { "+" } else { "" };
            let (job, worker) = (noun(jobs, "job"), noun(workers, "worker"));
            format!("{jobs}{more} {job} running, {active} of {workers} {worker} active")
        }
        Err(error) => format!("the database cannot be read: {error}"),
    }
}

fn noun(count: usize, one: &str) -> String {
    match count {
        1 => one.to_string(),
        _ => format!("{one}s"),
    }
}
