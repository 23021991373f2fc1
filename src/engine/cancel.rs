//! Somebody cancels a job: all its open steps and child jobs end with it, at once; workers hear of it and stop.

use super::cascade::Cascade;
use super::check::check_text;
use super::facts::Facts;
use super::{Engine, EngineError};
use crate::domain::audit::{AUDIT_TEXT_BYTES_MAX, AuditAction, AuditEntry};
use crate::domain::limits;
use crate::domain::reason::Reason;
use crate::domain::token::LOCAL;
use crate::domain::{JobId, Now};

impl Engine {
    pub fn cancel(&self, job_id: JobId, who: &str, now: Now) -> Result<(), EngineError> {
        self.cancel_because(job_id, who, None, now)
    }

    pub fn cancel_because(
        &self,
        job_id: JobId,
        who: &str,
        why: Option<&str>,
        now: Now,
    ) -> Result<(), EngineError> {
        check_text("name", who, limits::NAME_BYTES_MAX)?;
        if let Some(why) = why {
            check_text("why", why, limits::MESSAGE_BYTES_MAX)?;
        }
        let settings = self.settings;
        // Whoever typed a command or called by themselves: nobody can tell them apart.
        let message = match (who, why) {
            (LOCAL, None) => "cancelled by a person, over the API".to_string(),
            (LOCAL, Some(why)) => format!("cancelled: {why}"),
            (who, None) => format!("cancelled by {who}"),
            (who, Some(why)) => format!("cancelled by {who}: {why}"),
        };
        let facts = Facts::none().and("by", who);
        let facts = match why {
            Some(why) => facts.and("why", why),
            None => facts,
        };
        let detail =
            why.map(|why| Facts::none().and("why", limits::clip(why, AUDIT_TEXT_BYTES_MAX)));
        let detail = detail.and_then(|detail| detail.detail());
        self.write(now, move |tx| {
            let job = tx.job(job_id)?.ok_or(EngineError::JobNotFound { job_id })?;
            if job.state.is_terminal() {
                return Err(EngineError::JobEnded {
                    job_id,
                    state: job.state,
                });
            }
            let cancelled = AuditEntry::of(AuditAction::JobCancelled).job(job_id);
            tx.audit(&cancelled.detail(detail.clone()), now)?;
            let mut cascade = Cascade::new(tx, &settings, now);
            cascade.cancel_job(job_id, Reason::CancelledByUser, &message, facts.clone())?;
            cascade.settle()
        })
    }
}
