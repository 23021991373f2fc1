//! The job or the worker that somebody means.

use super::{Engine, EngineError};
use crate::domain::job::JobState;
use crate::domain::limits::shorten;
use crate::domain::selector::JobSelector;
use crate::domain::worker::{Worker, WorkerState};
use crate::domain::{JobId, WorkerId};
use crate::language::words::did_you_mean;
use crate::store::Tx;

impl Engine {
    pub fn select(&self, selector: &JobSelector) -> Result<JobId, EngineError> {
        self.store.read(|tx| select(tx, selector))
    }

    /// By its number or its name. Of those with one name the active one is meant; if none is, the newest.
    pub fn select_worker(&self, text: &str) -> Result<WorkerId, EngineError> {
        self.store.read(|tx| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| is_number).map(WorkerId);
            if let Some(worker_id) = number
                && let Some(worker) = tx.worker(worker_id)?
                && worker.deleted_at.is_none()
            {
                return Ok(worker_id);
            }
            let workers = tx.workers()?;
            match named(&workers, text)? {
                Some(worker_id) => Ok(worker_id),
                None => Err(match number {
                    Some(worker_id) => EngineError::WorkerNotFound { worker_id },
                    None => EngineError::NoWorkerFits {
                        selector: shorten(text),
                        hint: did_you_mean(text, workers.iter().map(|worker| worker.name.as_str())),
                    },
                }),
            }
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

fn named(workers: &[Worker], name: &str) -> Result<Option<WorkerId>, EngineError> {
    let namesakes = || workers.iter().filter(|worker| worker.name == name);
    let active = namesakes().filter(|worker| worker.state == WorkerState::Active);
    let active: Vec<WorkerId> = active.map(|worker| worker.worker_id).collect();
    match active[..] {
        [] => Ok(namesakes().map(|worker| worker.worker_id).max()),
        [only] => Ok(Some(only)),
        _ => Err(EngineError::WorkerAmbiguous {
            name: shorten(name),
            numbers: active,
        }),
    }
}
