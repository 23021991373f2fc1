//! Somebody wants room now: jobs that ended before a time that he names, by the clock that he sees, and events of jobs that
//! are gone.

use super::jobs::{Ended, take};
use super::{BATCH_ROWS, LOOKED_AT_MAX, ReapError, Reaping};
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::retention::Retention;
use crate::domain::{EventSeq, JobId, Now, Timestamp};
use crate::engine::Engine;
use crate::logs::Logs;

/// The events that one call reads, whether they may go or not.
const EVENTS_READ_MAX: u32 = 20 * LOOKED_AT_MAX;

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

/// Looks at so many jobs and no more. The audit log names the actor of `engine`. What a retention would keep for its sake, this keeps too; but for keys of submissions, which
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
        if pruned.jobs > 0 {
            // Before the first job goes: nothing is removed on request without a row that says so.
            let detail = format!(
                "{{\"jobs\":{},\"ended_until\":{}}}",
                pruned.jobs, ended_until.0
            );
            let entry = AuditEntry::of(AuditAction::JobsPruned).detail(Some(detail));
            engine.record_audit(entry, now)?;
        }
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

/// The events that went or would go, and the event after which to continue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrunedEvents {
    pub events: u64,
    /// `None`: there are no more events.
    pub next: Option<EventSeq>,
}

/// Removes the events of jobs that are gone, after an event: some of them, since one call must not take for ever.
pub fn prune_events(
    engine: &Engine,
    logs: &Logs,
    retention: Retention,
    after: EventSeq,
    dry_run: bool,
    now: Now,
) -> Result<PrunedEvents, ReapError> {
    let reaping = Reaping::new(engine.clone(), logs.clone(), retention);
    let (mut pruned, mut after, mut read) = (PrunedEvents::default(), after, 0);
    while read < EVENTS_READ_MAX {
        let seen = reaping.read(|tx| tx.events_of_gone_jobs(after, LOOKED_AT_MAX))?;
        let Some((last, _)) = seen.last() else {
            return Ok(pruned);
        };
        after = *last;
        read += LOOKED_AT_MAX;
        let gone = seen.iter().filter(|(_, is_gone)| *is_gone);
        let gone: Vec<EventSeq> = gone.map(|(seq, _)| *seq).collect();
        if dry_run {
            pruned.events += gone.len() as u64;
            continue;
        }
        if !gone.is_empty() && pruned.events == 0 {
            engine.record_audit(AuditEntry::of(AuditAction::EventsPruned), now)?;
        }
        for batch in gone.chunks(BATCH_ROWS) {
            let batch = batch.to_vec();
            let removed = reaping.write(now, move |tx| tx.remove_events(&batch))?;
            pruned.events += removed as u64;
        }
    }
    pruned.next = Some(after);
    Ok(pruned)
}
