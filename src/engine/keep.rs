//! Somebody keeps a job: it does not grow too old, nor do its logs and what is below it, until it is released.

use super::{Engine, EngineError};
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::{JobId, Now, Timestamp};
use crate::store::FileSize;

impl Engine {
    /// A child is kept with the job that it is of. `false`: it was so before.
    pub fn keep(&self, job_id: JobId, kept: bool, now: Now) -> Result<bool, EngineError> {
        self.write(now, move |tx| {
            let not_found = EngineError::JobNotFound { job_id };
            match tx.root_of_job(job_id)?.filter(|root| !root.leaving) {
                Some(root) => {
                    let is_changed = tx.keep_job(root.job_id, kept)?;
                    if is_changed {
                        let action = match kept {
                            true => AuditAction::JobKept,
                            false => AuditAction::JobReleased,
                        };
                        tx.audit(&AuditEntry::of(action).job(root.job_id), now)?;
                        tx.record_quietly(&kept_event(root.job_id, kept), now)?;
                    }
                    Ok(is_changed)
                }
                None => Err(not_found),
            }
        })
    }

    /// Of the database.
    pub fn file_size(&self) -> Result<FileSize, EngineError> {
        self.store.read(|tx| Ok(tx.file_size()?))
    }

    /// Since when what the job printed is not kept any more.
    pub fn logs_removed_at(&self, job_id: JobId) -> Result<Option<Timestamp>, EngineError> {
        let job = self
            .store
            .read(|tx| Ok::<_, EngineError>(tx.job(job_id)?))?;
        let job = job.ok_or(EngineError::JobNotFound { job_id })?;
        Ok(job.logs_removed_at)
    }
}

fn kept_event(job_id: JobId, kept: bool) -> NewEvent {
    let (kind, text) = match kept {
        true => (EventKind::JobKept, "is kept until somebody releases it"),
        false => (EventKind::JobUnkept, "is kept no longer than others"),
    };
    NewEvent::new(kind, format!("job {job_id} {text}")).job(job_id)
}
