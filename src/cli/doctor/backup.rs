//! Whether there is another copy of the database: a backup that somebody took or the server made, or a copy of the whole folder.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Finding;
use super::case::Case;
use crate::backup;
use crate::cli::words::{ago, moment, shell_path};
use crate::clock::wall_time;
use crate::domain::Timestamp;
use crate::store::DATABASE_FILE;
use crate::wire::Time;
use crate::wire::api::BackupsJson;

/// What happened since is lost with the disk.
const BEHIND_MS_MAX: i64 = 7 * 86_400_000;
/// Nobody makes more of them in a day.
const NAMES_MAX: u32 = 1_000;

/// The last one, and why the server makes no newer one, if it is to and cannot.
pub fn look(case: &Case, folder: &Path) -> Vec<Finding> {
    let mut found = vec![last(folder)];
    let Ok(server) = case.answering() else {
        return found;
    };
    let Ok(backups) = server.get::<BackupsJson>("/api/backups") else {
        return found;
    };
    if let Some(failed) = &backups.failed {
        let since = ago(failed.since);
        let message = format!(
            "the server could make no backup, first {since}: {}",
            failed.message
        );
        let fix = "correct what the message says: the server tries again every ten minutes";
        found.push(Finding::problem(message).fix(fix));
    }
    if let Some(ahead) = &backups.ahead {
        let message = format!(
            "backup {} is of {}, which is still to come",
            ahead.file,
            moment(ahead.made_at)
        );
        let fix = "set the clock right; if it is, move that file away";
        found.push(Finding::warning(message).fix(fix));
    }
    found
}

/// As `stepward backup` and the server note it in the folder. A folder beside the data folder, called like it and then `.backup-` and
/// whatever, counts too.
fn last(folder: &Path) -> Finding {
    // `.` has no name that a copy could be called by.
    let folder = &folder.canonicalize().unwrap_or(folder.to_path_buf());
    let with_advice = |finding: Finding| {
        let file = free_name(folder);
        let (file, data) = (shell_path(&file), shell_path(folder));
        finding
            .fix(format!(
                "make one: stepward backup {file} --data-dir {data}"
            ))
            .fix("have the server make them: set backup.dir in its settings")
    };
    let taken = backup::noted(folder).map(|noted| (None, noted.made_at));
    let copied = last_copy(folder).map(|(copy, at)| (Some(copy), at));
    let Some((copy, at)) = taken.into_iter().chain(copied).max_by_key(|(_, at)| at.0.0) else {
        return with_advice(Finding::warning("no backup is known"));
    };
    let written_at = [DATABASE_FILE.to_string(), format!("{DATABASE_FILE}-wal")];
    let written_at = written_at
        .iter()
        .filter_map(|name| written(&folder.join(name)));
    let behind_ms = written_at.map(|it| it.0.0 - at.0.0).max().unwrap_or(0);
    let message = match copy {
        Some(copy) => format!("the last backup is {}, of {}", copy.display(), ago(at)),
        None => format!("the last backup is of {}", ago(at)),
    };
    match behind_ms > BEHIND_MS_MAX {
        true => with_advice(Finding::warning(message)),
        false => Finding::ok(message),
    }
}

fn last_copy(folder: &Path) -> Option<(PathBuf, Time)> {
    let prefix = backup_prefix(folder);
    let beside = fs::read_dir(parent(folder)).ok()?.flatten();
    let copies = beside.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    let dated = copies.filter_map(|entry| {
        let at = written(&entry.path().join(DATABASE_FILE))?;
        Some((entry.path(), at))
    });
    dated.max_by_key(|(_, at)| at.0.0)
}

fn written(file: &Path) -> Option<Time> {
    let found = file.metadata().ok()?;
    let ms = found.mtime() * 1_000 + found.mtime_nsec() / 1_000_000;
    Some(Time(Timestamp(ms)))
}

fn free_name(folder: &Path) -> PathBuf {
    let name = parent(folder).join(backup_prefix(folder) + &today());
    let numbered = |n: u32| match n {
        1 => PathBuf::from(format!("{}.tar.gz", name.display())),
        n => PathBuf::from(format!("{}-{n}.tar.gz", name.display())),
    };
    let mut names = (1..NAMES_MAX).map(numbered);
    names.find(|name| !name.exists()).unwrap_or(name.clone())
}

fn backup_prefix(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default();
    format!("{}.backup-", name.to_string_lossy())
}

/// It is an absolute path by now.
fn parent(folder: &Path) -> &Path {
    folder.parent().unwrap_or(Path::new("/"))
}

/// `2026-03-01`, in UTC.
fn today() -> String {
    moment(Time(wall_time())).chars().take(10).collect()
}
