//! What spoke of jobs: keys, messages, events, fires, workers and their sessions; and whose tokens did it.

use super::{BATCH_ROWS, LOOKED_AT_MAX, Look, ReapError, Reaping, Taken};
use crate::domain::{EventSeq, OutboxId, SessionId, WorkerId};

/// Steps of jobs that stayed beyond their time. If there are more, workers and sessions stay as well.
const NAMED_MAX: u32 = 20_000;

/// Workers are deleted one by one, each with an event.
const WORKERS_MAX: u32 = 20;

pub(super) fn reap_keys(reaping: &mut Reaping, look: &Look) -> Result<Taken, ReapError> {
    let Some(milestone) = look.keys else {
        return Ok(Taken::default());
    };
    let keys = reaping.read(|tx| tx.old_keys(milestone.job_id, BATCH_ROWS as u32))?;
    if keys.is_empty() {
        return Ok(Taken::default());
    }
    let more = keys.len() == BATCH_ROWS;
    let count = reaping.write(look.now, move |tx| tx.remove_keys(&keys))?;
    Ok(Taken { count, more })
}

pub(super) fn reap_messages(reaping: &mut Reaping, look: &Look) -> Result<Taken, ReapError> {
    let due = |walk: &super::Walk<_>| look.messages.filter(|messages| walk.is_due(messages));
    let Some(milestone) = due(&reaping.walks.messages) else {
        return Ok(Taken::default());
    };
    let after = reaping.walks.messages.after.unwrap_or(OutboxId(0));
    let seen = reaping.read(|tx| tx.old_messages(after, milestone.outbox_id, LOOKED_AT_MAX))?;
    let (last, old) = first_of(seen);
    let more = last.is_some();
    let count = reaping.write_some(old, look, |tx, old| tx.remove_messages(old))?;
    reaping.walks.messages.went_to(last, &milestone);
    Ok(Taken { count, more })
}

pub(super) fn reap_events(reaping: &mut Reaping, look: &Look) -> Result<Taken, ReapError> {
    let due = |walk: &super::Walk<_>| look.events.filter(|events| walk.is_due(events));
    let Some(milestone) = due(&reaping.walks.events) else {
        return Ok(Taken::default());
    };
    // After the jobs, so that it need not come by again when these are gone.
    if look
        .jobs
        .is_some_and(|jobs| reaping.walks.jobs.is_due(&jobs))
    {
        return Ok(Taken::default());
    }
    let after = reaping.walks.events.after.unwrap_or(EventSeq(0));
    let seen = reaping.read(|tx| tx.old_events(after, milestone.event_seq, LOOKED_AT_MAX))?;
    let (last, old) = first_of(seen);
    let more = last.is_some();
    let count = reaping.write_some(old, look, |tx, old| tx.remove_events(old))?;
    reaping.walks.events.went_to(last, &milestone);
    Ok(Taken { count, more })
}

pub(super) fn reap_fires(reaping: &mut Reaping, look: &Look) -> Result<Taken, ReapError> {
    let Some(milestone) = look.fires else {
        return Ok(Taken::default());
    };
    let fires = reaping.read(|tx| tx.old_fires(milestone.clock.at, BATCH_ROWS as u32))?;
    let more = fires.len() == BATCH_ROWS;
    let count = reaping.write_some(fires, look, |tx, fires| tx.remove_fires(fires))?;
    Ok(Taken { count, more })
}

/// They are not listed any more and can come back as new ones. Their names stay for the jobs that have them.
pub(super) fn forget_absent_workers(
    reaping: &mut Reaping,
    look: &Look,
) -> Result<Taken, ReapError> {
    let Some(milestone) = look.workers else {
        return Ok(Taken::default());
    };
    let absent_since = milestone.clock.up;
    let workers = reaping.read(|tx| tx.absent_workers(absent_since, WORKERS_MAX))?;
    let mut count = 0;
    for worker_id in &workers {
        let forgotten = (reaping.engine).forget_worker(*worker_id, absent_since, look.now)?;
        count += usize::from(forgotten);
    }
    let more = count > 0 && workers.len() == WORKERS_MAX as usize;
    Ok(Taken { count, more })
}

/// A worker that was not heard of since the milestone had steps of jobs before it alone, and of these few are left.
pub(super) fn reap_workers(reaping: &mut Reaping, look: &Look) -> Result<Taken, ReapError> {
    // After the jobs, so that it is known which of them stay.
    let due = |walk: &super::Walk<_>| look.jobs.filter(|jobs| walk.is_due(jobs));
    let Some(milestone) = due(&reaping.walks.workers) else {
        return Ok(Taken::default());
    };
    if reaping.walks.jobs.is_due(&milestone) {
        return Ok(Taken::default());
    }
    let after = reaping.walks.workers.after.unwrap_or(WorkerId(0));
    let (seen, named) = reaping.read(|tx| {
        let seen = tx.deleted_workers(after, milestone.clock.up, BATCH_ROWS as u32)?;
        Ok((seen, tx.named_by_jobs(milestone.job_id, NAMED_MAX)?))
    })?;
    let last = seen.last().map(|(worker_id, _)| *worker_id);
    let old = seen.into_iter().filter(|(worker_id, is_old)| {
        let named = named.as_ref();
        *is_old && named.is_some_and(|named| !named.workers.contains(worker_id))
    });
    let old: Vec<WorkerId> = old.map(|(worker_id, _)| worker_id).collect();
    let (count, unfinished) = match old.is_empty() {
        true => (0, None),
        false => reaping.write(look.now, move |tx| {
            let (mut count, mut rows_left) = (0, BATCH_ROWS);
            for &worker_id in &old {
                let removed = tx.remove_worker(worker_id, rows_left as u32)?;
                rows_left = rows_left.saturating_sub(removed.rows);
                if !removed.done || rows_left == 0 {
                    return Ok((count, Some(worker_id)));
                }
                count += 1;
            }
            Ok((count, None))
        })?,
    };
    match unfinished {
        Some(WorkerId(number)) => reaping.walks.workers.after = Some(WorkerId(number - 1)),
        None => reaping.walks.workers.went_to(last, &milestone),
    }
    let more = last.is_some();
    Ok(Taken { count, more })
}

pub(super) fn reap_sessions(reaping: &mut Reaping, look: &Look) -> Result<Taken, ReapError> {
    let due = |walk: &super::Walk<_>| look.jobs.filter(|jobs| walk.is_due(jobs));
    let Some(milestone) = due(&reaping.walks.sessions) else {
        return Ok(Taken::default());
    };
    if reaping.walks.jobs.is_due(&milestone) {
        return Ok(Taken::default());
    }
    let after = reaping.walks.sessions.after.unwrap_or(SessionId(0));
    let (mut seen, named) = reaping.read(|tx| {
        let seen = tx.old_sessions(after, milestone.session_id, LOOKED_AT_MAX)?;
        Ok((seen, tx.named_by_jobs(milestone.job_id, NAMED_MAX)?))
    })?;
    for (session_id, is_old) in &mut seen {
        let named = named.as_ref();
        *is_old &= named.is_some_and(|named| !named.sessions.contains(session_id));
    }
    let (last, old) = first_of(seen);
    let more = last.is_some();
    let count = reaping.write_some(old, look, |tx, old| tx.remove_sessions(old))?;
    reaping.walks.sessions.went_to(last, &milestone);
    Ok(Taken { count, more })
}

/// As long after their end as events are kept: until then it can be told whose they were.
pub(super) fn reap_tokens(reaping: &mut Reaping, look: &Look) -> Result<Taken, ReapError> {
    let Some(milestone) = look.events else {
        return Ok(Taken::default());
    };
    let tokens = reaping.read(|tx| tx.old_tokens(milestone.clock.at, BATCH_ROWS as u32))?;
    // What stood behind an enrolment is found when that is gone.
    let more = !tokens.is_empty();
    let count = reaping.write_some(tokens, look, |tx, tokens| tx.remove_tokens(tokens))?;
    Ok(Taken { count, more })
}

/// Only from the beginning of the chain, so that what stays can be verified. Which rows are old enough is told by their numbers,
/// so a clock that was wrong when a row was written makes no row go early or stay for ever.
pub(super) fn reap_audit(reaping: &mut Reaping, look: &Look) -> Result<Taken, ReapError> {
    let Some(milestone) = look.audit else {
        return Ok(Taken::default());
    };
    let up_to = milestone.audit_seq;
    let is_due = reaping.read(|tx| Ok(tx.audit_anchor()?.seq < up_to))?;
    if !is_due {
        return Ok(Taken::default());
    }
    let removed = reaping.write(look.now, move |tx| {
        tx.remove_audit(up_to, BATCH_ROWS as u32)
    })?;
    Ok(Taken {
        count: removed,
        more: removed == BATCH_ROWS,
    })
}

/// Of what was seen, as many as may go with one transaction; and the last that need not be seen again.
fn first_of<T: Copy>(seen: Vec<(T, bool)>) -> (Option<T>, Vec<T>) {
    let (mut last, mut old) = (None, Vec::new());
    for (number, may_go) in seen {
        if may_go && old.len() == BATCH_ROWS {
            break;
        }
        if may_go {
            old.push(number);
        }
        last = Some(number);
    }
    (last, old)
}

impl Reaping {
    fn write_some<T, F>(&self, some: Vec<T>, look: &Look, remove: F) -> Result<usize, ReapError>
    where
        T: Send + 'static,
        F: Fn(&crate::store::Tx, &[T]) -> Result<usize, crate::store::StoreError> + Send + 'static,
    {
        if some.is_empty() {
            return Ok(0);
        }
        Ok(self.write(look.now, move |tx| remove(tx, &some))?)
    }
}
