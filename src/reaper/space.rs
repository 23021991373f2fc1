//! What the disk gets back: folders of logs that are no job's, and pages of the database file.

use super::{Look, ReapError, Reaping, Taken, jobs};

/// Folders that are looked at in one piece.
const FOLDERS_MAX: usize = 500;

/// The folder of logs is walked through this often: what a killed server left there is no more than that.
const FOLDERS_EVERY_MS: i64 = 24 * 3_600_000;

/// Free pages that are kept for what comes next: a twentieth of the file, and a few.
const FREE_PAGES_MIN: i64 = 1_000;
const FREE_SHARE: i64 = 20;

pub(super) fn reap_stray_logs(reaping: &mut Reaping, look: &Look) -> Result<Taken, ReapError> {
    let age_ms = look.clock.age_ms;
    let since_ms = reaping.walks.folders_since_ms;
    let is_due = since_ms.is_none_or(|since| age_ms >= since + FOLDERS_EVERY_MS);
    if reaping.walks.folders.is_none() {
        if !is_due {
            return Ok(Taken::default());
        }
        let folders = reaping.logs.job_folders().map_err(ReapError::Folder)?;
        reaping.walks.folders = Some(folders);
        reaping.walks.folders_since_ms = Some(age_ms);
    }
    let Some(folders) = &mut reaping.walks.folders else {
        return Ok(Taken::default());
    };
    let some: Vec<_> = folders.take(FOLDERS_MAX).collect();
    let more = some.len() == FOLDERS_MAX;
    if !more {
        reaping.walks.folders = None;
    }
    let (stray, ahead) = reaping.read(|tx| {
        let (mut stray, mut ahead) = (Vec::new(), Vec::new());
        let last_job_id = tx.last_job_id()?;
        for &job_id in &some {
            match tx.has_logs(job_id)? {
                true => {}
                false if job_id > last_job_id => ahead.push(job_id),
                false => stray.push(job_id),
            }
        }
        Ok((stray, ahead))
    })?;
    jobs::remove_files(reaping, &stray)?;
    // The database went on from an older state, and its next jobs get these numbers, perhaps at this moment. Whatever they
    // write has the current lineage in its name.
    for &job_id in &ahead {
        let removed = reaping.logs.remove_other_lineages(job_id);
        removed.map_err(|source| ReapError::Logs { job_id, source })?;
    }
    Ok(Taken {
        count: stray.len() + ahead.len(),
        more,
    })
}

/// A file that was made before it could shrink keeps its free pages for later; `stepward db compact` gives them back.
pub(super) fn give_pages_back(reaping: &mut Reaping, look: &Look) -> Result<Taken, ReapError> {
    let size = reaping.read(|tx| tx.file_size())?;
    let enough = FREE_PAGES_MIN.max(size.pages / FREE_SHARE);
    if !size.shrinks || size.free_pages <= enough {
        return Ok(Taken::default());
    }
    reaping.write(look.now, |tx| tx.give_pages_back())?;
    let left = reaping.read(|tx| tx.file_size())?;
    let count = (size.pages - left.pages).max(0) as usize;
    Ok(Taken {
        count,
        more: count > 0,
    })
}
