//! The job that somebody means.

use super::{Engine, EngineError};
use crate::domain::JobId;
use crate::domain::job::JobState;
use crate::domain::limits::shorten;
use crate::domain::selector::JobSelector;
use crate::store::Tx;

impl Engine {
    pub fn select(&self, selector: &JobSelector) -> Result<JobId, EngineError> {
        self.store.read(|tx| select(tx, selector))
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
