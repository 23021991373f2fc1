//! A request that makes a job may carry a key: under the same key the same request is answered with the job that it made.

use super::EngineError;
use super::check::check_text;
use crate::domain::idempotency::KeyOwner;
use crate::domain::limits::{self, shorten};
use crate::domain::{JobId, Now};
use crate::planted::{Bug, planted};
use crate::store::Tx;

/// Without a key, every request is a new one. With several keys, a request that repeats any of them is a repetition.
pub(super) struct Once {
    owner: KeyOwner,
    keys: Vec<String>,
    request: String,
}

impl Once {
    /// `request` is what a repetition must agree in.
    pub fn new(
        owner: KeyOwner,
        keys: impl IntoIterator<Item = String>,
        request: &serde_json::Value,
    ) -> Result<Once, EngineError> {
        let mut keys: Vec<String> = keys.into_iter().collect();
        for key in &keys {
            check_text("idempotency key", key, limits::KEY_BYTES_MAX)?;
        }
        if planted(Bug::SubmitNotIdempotent) {
            keys.clear();
        }
        Ok(Once {
            owner,
            keys,
            request: request.to_string(),
        })
    }

    /// The job that this very request made before. Another request under the same key is refused.
    pub fn made_before(&self, tx: &Tx) -> Result<Option<JobId>, EngineError> {
        for key in &self.keys {
            match tx.idempotent_job(self.owner, key)? {
                None => {}
                Some((job_id, first_hash)) if first_hash == tx.fingerprint(&self.request) => {
                    return Ok(Some(job_id));
                }
                Some(_) => return Err(EngineError::IdempotencyMismatch { key: shorten(key) }),
            }
        }
        Ok(None)
    }

    pub fn remember(&self, tx: &Tx, job_id: JobId, now: Now) -> Result<(), EngineError> {
        for key in &self.keys {
            let request_hash = tx.fingerprint(&self.request);
            tx.remember_key(self.owner, key, &request_hash, job_id, now)?;
        }
        Ok(())
    }
}
