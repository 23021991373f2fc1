//! Somebody wants room now: jobs that ended before a time that he names, by the clock that he sees.

use super::jobs::{Ended, take};
use super::{LOOKED_AT_MAX, ReapError, Reaping};
use crate::domain::retention::Retention;
use crate::domain::{JobId, Now, Timestamp};
use crate::engine::Engine;
use crate::logs::Logs;

/// What went, or would go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// With those below them.
    pub jobs: u64,
    pub log_bytes: u64,
    /// Ended early enough, and needed: kept by somebody, retried, or a hook's.
    pub needed: u64,
    /// Go on from here: a call does not take for ever. None: that was all.
    pub next: Option<i64>,
}

/// Looks at so many jobs and no more. What a retention would keep for its sake, this keeps too; but for keys of submissions, which
/// every command sends: whoever wants room now does not wait for them.
pub fn prune_jobs(
    engine: &Engine,
    logs: &Logs,
    retention: Retention,
    ended_until: Timestamp,
    after: JobId,
    dry_run: bool,
    now: Now,
) -> Result<Pruned, ReapError> {
    let reaping = Reaping::new(engine.clone(), logs.clone(), retention);
    let keys_until = JobId(i64::MAX);
    let over = Ended::At(ended_until);
    let all = JobId(i64::MAX);
    let mut pruned = Pruned::default();
    let roots = reaping.read(|tx| tx.root_jobs(after, all, LOOKED_AT_MAX))?;
    let last = roots.last().map(|root| root.job_id);
    for root in roots.iter().filter(|root| over.is_over(root)) {
        let (may_go, tree) = reaping.read(|tx| {
            let may_go = super::jobs::may_go(tx, root, over, keys_until)?;
            Ok((may_go, tx.job_tree(root.job_id)?))
        })?;
        if !may_go {
            pruned.needed += 1;
            continue;
        }
        pruned.jobs += tree.len() as u64;
        for (job_id, _) in &tree {
            let bytes = logs.bytes_of_job(*job_id);
            let source = |source| ReapError::Logs {
                job_id: *job_id,
                source,
            };
            pruned.log_bytes += bytes.map_err(source)?;
        }
    }
    if !dry_run && let Some(last) = last {
        let mut after = after;
        // What really went: somebody may have kept one meanwhile.
        pruned.jobs = 0;
        while after < last {
            let piece = take(&reaping, after, last, over, keys_until, now)?;
            pruned.jobs += piece.jobs as u64;
            after = match (piece.again, piece.last) {
                (Some(JobId(again)), _) => JobId(again - 1),
                (None, Some(last)) => last,
                (None, None) => last,
            };
        }
    }
    pruned.next = last.map(|last| last.0);
    Ok(pruned)
}
