//! A request that makes a job may carry a key: under the same key the same request is answered with the job that it made.

use super::EngineError;
use super::check::check_text;
use crate::domain::limits::{self, shorten};
use crate::domain::{JobId, Now};
use crate::planted::{Bug, planted};
use crate::store::Tx;

/// Without a key, every request is a new one.
pub(super) struct Once {
    key: Option<String>,
    request: String,
}

impl Once {
    /// `request` is what a repetition must agree in.
    pub fn new(key: Option<String>, request: &serde_json::Value) -> Result<Once, EngineError> {
        if let Some(key) = &key {
            check_text("idempotency key", key, limits::KEY_BYTES_MAX)?;
        }
        Ok(Once {
            key: key.filter(|_| !planted(Bug::SubmitNotIdempotent)),
            request: request.to_string(),
        })
    }

    /// The job that this very request made before. Another request under the same key is refused.
    pub fn made_before(&self, tx: &Tx) -> Result<Option<JobId>, EngineError> {
        let Some(key) = &self.key else {
            return Ok(None);
        };
        match tx.idempotent_job(key)? {
            Some((_, first_hash)) if first_hash != tx.fingerprint(&self.request) => {
                Err(EngineError::IdempotencyMismatch { key: shorten(key) })
            }
            made => Ok(made.map(|(job_id, _)| job_id)),
        }
    }

    pub fn remember(&self, tx: &Tx, job_id: JobId, now: Now) -> Result<(), EngineError> {
        match &self.key {
            Some(key) => Ok(tx.remember_key(key, &tx.fingerprint(&self.request), job_id, now)?),
            None => Ok(()),
        }
    }
}
