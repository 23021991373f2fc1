//! Jobs and their logs.

use super::{BATCH_ROWS, LOOKED_AT_MAX, Look, ReapError, Reaping, Taken};
use crate::domain::{JobId, Now, Timestamp, Uptime};
use crate::store::{RootJob, StoreError, Tx};

/// Steps have former attempts, which are not counted beforehand: at the latest after so many rows a transaction ends.
const ROWS_MAX: usize = 1_000;

/// Since when a job must have ended to go.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ended {
    /// By its age.
    Up(Uptime),
    /// By the time that stands beside it: somebody asked for that.
    At(Timestamp),
}

impl Ended {
    pub(super) fn is_over(self, job: &RootJob) -> bool {
        let Some((ended_at, ended_up)) = job.ended else {
            return false;
        };
        match self {
            Ended::Up(until) => ended_up <= until,
            Ended::At(until) => ended_at <= until,
        }
    }
}

/// Of jobs that are kept themselves. A child's logs are as old as the job that it is of.
pub(super) fn reap_logs(reaping: &mut Reaping, look: &Look) -> Result<Taken, ReapError> {
    let Some(milestone) = look.logs.filter(|logs| reaping.walks.logs.is_due(logs)) else {
        return Ok(Taken::default());
    };
    let after = reaping.walks.logs.after.unwrap_or(JobId(0));
    let over = Ended::Up(milestone.clock.up);
    let (last, jobs) = reaping.read(|tx| {
        let jobs = tx.jobs_with_logs(after, milestone.job_id, BATCH_ROWS as u32)?;
        let mut old = Vec::new();
        for &job_id in &jobs {
            let root = tx.root_of_job(job_id)?;
            if root.is_some_and(|root| over.is_over(&root) && !root.kept) {
                old.push(job_id);
            }
        }
        Ok((jobs.last().copied(), old))
    })?;
    let now = look.now;
    let removed = reaping.write(now, move |tx| {
        let mut still_old = Vec::new();
        for &job_id in &jobs {
            // Somebody may have kept it meanwhile.
            let root = tx.root_of_job(job_id)?;
            if root.is_some_and(|root| over.is_over(&root) && !root.kept) {
                still_old.push(job_id);
            }
        }
        tx.mark_logs_removed(&still_old, now.wall)?;
        Ok(still_old)
    })?;
    // First it was said, now it is so.
    remove_files(reaping, &removed)?;
    reaping.walks.logs.went_to(last, &milestone);
    Ok(Taken {
        count: removed.len(),
        more: last.is_some(),
    })
}

pub(super) fn remove_files(reaping: &Reaping, jobs: &[JobId]) -> Result<(), ReapError> {
    for &job_id in jobs {
        let removed = reaping.logs.remove_job(job_id);
        removed.map_err(|source| ReapError::Logs { job_id, source })?;
    }
    Ok(())
}

/// Whole trees: a job that is nobody's child, with all that is below it.
pub(super) fn reap_jobs(reaping: &mut Reaping, look: &Look) -> Result<Taken, ReapError> {
    let Some(milestone) = look.jobs.filter(|jobs| reaping.walks.jobs.is_due(jobs)) else {
        return Ok(Taken::default());
    };
    let over = Ended::Up(milestone.clock.up);
    let keys_until = look.keys.map_or(JobId(0), |keys| keys.job_id);
    let after = reaping.walks.jobs.after.unwrap_or(JobId(0));
    let piece = take(reaping, after, milestone.job_id, over, keys_until, look.now)?;
    match piece.again {
        Some(JobId(job_id)) => reaping.walks.jobs.after = Some(JobId(job_id - 1)),
        None => reaping.walks.jobs.went_to(piece.last, &milestone),
    }
    Ok(Taken {
        count: piece.jobs,
        more: piece.again.is_some() || piece.last.is_some(),
    })
}

/// What one look at jobs came to.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub jobs: usize,
    /// The last that was looked at; none: there was none.
    pub last: Option<JobId>,
    /// This one is not done yet.
    pub again: Option<JobId>,
}

pub(super) fn take(
    reaping: &Reaping,
    after: JobId,
    until: JobId,
    over: Ended,
    keys_until: JobId,
    now: Now,
) -> Result<Piece, ReapError> {
    let mut piece = Piece::default();
    let mut batch: Vec<JobId> = Vec::new();
    let mut rows = 0;
    let roots = reaping.read(|tx| tx.root_jobs(after, until, LOOKED_AT_MAX))?;
    for root in roots {
        let size = reaping.read(|tx| match may_go(tx, &root, over, keys_until)? {
            true => Ok(Some(
                1 + tx.tree_size(root.job_id, BATCH_ROWS as u32 + 1)? as usize,
            )),
            false => Ok(None),
        })?;
        // What is on its way and needed again: somebody retried it before that was seen.
        if size.is_none() && root.leaving {
            let job_id = root.job_id;
            reaping.write(now, move |tx| tx.set_leaving(job_id, false))?;
        }
        if let Some(size) = size {
            if rows + size > BATCH_ROWS && !batch.is_empty() {
                break;
            }
            rows += size;
            batch.push(root.job_id);
        }
        piece.last = Some(root.job_id);
        if rows >= BATCH_ROWS {
            break;
        }
    }
    if batch.is_empty() {
        return Ok(piece);
    }
    let batch = hide(reaping, batch, over, keys_until, now)?;
    remove_logs_of_trees(reaping, &batch, now)?;
    let is_large = rows > BATCH_ROWS;
    (piece.jobs, piece.again) = match batch[..] {
        [large] if is_large => remove_in_pieces(reaping, large, over, keys_until, now)?,
        _ => reaping.write(now, move |tx| {
            let (mut jobs, mut rows_left) = (0, ROWS_MAX);
            for &job_id in &batch {
                // Somebody may have retried or kept it meanwhile.
                let root = tx.root_of_job(job_id)?;
                if let Some(root) = root
                    && may_go(tx, &root, over, keys_until)?
                {
                    let removed = tx.remove_job(job_id, rows_left)?;
                    jobs += removed.jobs;
                    rows_left = rows_left.saturating_sub(removed.rows);
                    if !removed.done {
                        return Ok((jobs, Some(job_id)));
                    }
                }
            }
            Ok((jobs, None))
        })?,
    };
    Ok(piece)
}

/// Those that may still go. From here on nobody sees them, so nobody can come to keep or need one whose logs are gone.
fn hide(
    reaping: &Reaping,
    roots: Vec<JobId>,
    over: Ended,
    keys_until: JobId,
    now: Now,
) -> Result<Vec<JobId>, StoreError> {
    reaping.write(now, move |tx| {
        let mut hidden = Vec::new();
        for &job_id in &roots {
            let Some(root) = tx.root_of_job(job_id)? else {
                continue;
            };
            if may_go(tx, &root, over, keys_until)? {
                tx.set_leaving(job_id, true)?;
                hidden.push(job_id);
            }
        }
        Ok(hidden)
    })
}

/// One piece of it: how many jobs went, and whether there is more of it. From the first on nobody sees it, so nobody can come to
/// need it.
fn remove_in_pieces(
    reaping: &Reaping,
    job_id: JobId,
    over: Ended,
    keys_until: JobId,
    now: Now,
) -> Result<(usize, Option<JobId>), StoreError> {
    let root = reaping.read(|tx| tx.root_of_job(job_id))?;
    if !root.is_some_and(|root| root.leaving) {
        reaping.write(now, move |tx| tx.set_leaving(job_id, true))?;
    }
    // Who was first, the flag or somebody who needs it?
    let may_go = reaping.read(|tx| match tx.root_of_job(job_id)? {
        Some(root) => may_go(tx, &root, over, keys_until),
        None => Ok(false),
    })?;
    if !may_go {
        return Ok((0, Some(job_id)));
    }
    let removed = reaping.write(now, move |tx| tx.remove_job(job_id, BATCH_ROWS))?;
    Ok((removed.jobs, Some(job_id).filter(|_| !removed.done)))
}

pub(super) fn may_go(
    tx: &Tx,
    root: &RootJob,
    over: Ended,
    keys_until: JobId,
) -> Result<bool, StoreError> {
    let is_promised = || Ok::<_, StoreError>(root.job_id > keys_until && tx.has_key(root.job_id)?);
    Ok(over.is_over(root) && !root.kept && !is_promised()? && !tx.is_needed(root.job_id)?)
}

/// As a rule they went long ago.
fn remove_logs_of_trees(reaping: &Reaping, roots: &[JobId], now: Now) -> Result<(), ReapError> {
    let trees = reaping.read(|tx| {
        let trees = roots.iter().map(|&root| tx.job_tree(root));
        Ok(trees.collect::<Result<Vec<_>, _>>()?.concat())
    })?;
    let with_logs = trees.iter().filter(|(_, has_logs)| *has_logs);
    let with_logs: Vec<JobId> = with_logs.map(|(job_id, _)| *job_id).collect();
    for some in with_logs.chunks(BATCH_ROWS) {
        let marked = some.to_vec();
        reaping.write(now, move |tx| tx.mark_logs_removed(&marked, now.wall))?;
    }
    let jobs: Vec<JobId> = trees.iter().map(|(job_id, _)| *job_id).collect();
    remove_files(reaping, &jobs)
}
