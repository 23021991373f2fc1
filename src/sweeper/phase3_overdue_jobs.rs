//! Phase 3: jobs that run longer than their timeout or wait longer than their queue_timeout, with all their child jobs.

use super::{Find, Look};
use crate::domain::Uptime;
use crate::engine::{EngineError, Suspect};

pub const FIND: &[Find] = &[overdue_jobs];

fn overdue_jobs(look: &Look, until_up: Uptime) -> Result<Vec<Suspect>, EngineError> {
    let jobs = look.tx.overdue_jobs(until_up, look.limit)?;
    let jobs = jobs.into_iter();
    Ok(jobs
        .map(|(job_id, _, steps_open)| Suspect::OverdueJob(job_id, steps_open))
        .collect())
}
