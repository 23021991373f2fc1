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
    // However it came to be hidden, and by whom: it is finished before another is begun.
    let hidden = reaping.read(|tx| tx.leaving_jobs(1))?;
    if let [job_id] = hidden[..] {
        remove_logs_of_trees(reaping, &[job_id], look.now)?;
        let (count, _) = remove_hidden(reaping, &[job_id], BATCH_ROWS, look.now)?;
        return Ok(Taken { count, more: true });
    }
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
    let rows_max = if rows > BATCH_ROWS {
        BATCH_ROWS
    } else {
        ROWS_MAX
    };
    (piece.jobs, piece.again) = remove_hidden(reaping, &batch, rows_max, now)?;
    Ok(piece)
}

/// So many rows of jobs that are hidden: how many jobs went, and which of them is not done yet.
fn remove_hidden(
    reaping: &Reaping,
    hidden: &[JobId],
    rows_max: usize,
    now: Now,
) -> Result<(usize, Option<JobId>), StoreError> {
    let hidden = hidden.to_vec();
    reaping.write(now, move |tx| {
        let (mut jobs, mut rows_left) = (0, rows_max);
        for &job_id in &hidden {
            // Somebody else may have finished it.
            if tx.root_of_job(job_id)?.is_none() {
                continue;
            }
            let removed = tx.remove_job(job_id, rows_left)?;
            jobs += removed.jobs;
            rows_left = rows_left.saturating_sub(removed.rows);
            if !removed.done {
                return Ok((jobs, Some(job_id)));
            }
        }
        Ok((jobs, None))
    })
}

/// Those that may still go. From here on there is no way back, or somebody could come to keep or need one of which a part is gone.
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
                tx.hide_job(job_id)?;
                hidden.push(job_id);
            }
        }
        Ok(hidden)
    })
}

pub(super) fn may_go(
    tx: &Tx,
    root: &RootJob,
    over: Ended,
    keys_until: JobId,
) -> Result<bool, StoreError> {
    if root.leaving {
        return Ok(true);
    }
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
