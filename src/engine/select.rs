//! The job or the worker that somebody means.

use super::{Engine, EngineError};
use crate::domain::job::JobState;
use crate::domain::limits::shorten;
use crate::domain::selector::JobSelector;
use crate::domain::worker::WorkerState;
use crate::domain::{JobId, WorkerId};
use crate::store::Tx;

impl Engine {
    pub fn select(&self, selector: &JobSelector) -> Result<JobId, EngineError> {
        self.store.read(|tx| select(tx, selector))
    }

    /// By its number or its name: of those with the same name the active one, else the newest.
    pub fn select_worker(&self, text: &str) -> Result<WorkerId, EngineError> {
        let none = || EngineError::NoWorkerFits {
            selector: shorten(text),
            hint: String::new(),
        };
        self.store.read(|tx| {
            let workers = tx.workers()?;
            let named = workers.iter().filter(|worker| worker.name == text);
            let found =
                named.max_by_key(|worker| (worker.state == WorkerState::Active, worker.worker_id));
            if let Some(worker) = found {
                return Ok(worker.worker_id);
            }
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| is_number);
            number.map(WorkerId).ok_or_else(none)
        })
    }
}

/// Whether a job with the given number exists is told by whoever looks at it.
pub(super) fn select(tx: &Tx, selector: &JobSelector) -> Result<JobId, EngineError> {
    let found = match selector {
        JobSelector::Id(job_id) => Some(*job_id),
        JobSelector::Latest => tx.latest_job()?,
        JobSelector::LatestOf { task, state } => {
            let states = match state {
                Some(state) => std::slice::from_ref(state),
                None => JobState::ALL,
            };
            let mut latest = None;
            for &state in states {
                latest = latest.max(tx.latest_of_task(task, state)?);
            }
            latest
        }
    };
    found.ok_or_else(|| EngineError::NoJobFits {
        selector: shorten(&selector.to_string()),
    })
}
