//! Whether there is another copy of the database. Nothing of ours makes one yet: what is known are copies of the whole folder.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Finding;
use crate::cli::words::{ago, moment, shell_path};
use crate::clock::wall_time;
use crate::domain::Timestamp;
use crate::store::DATABASE_FILE;
use crate::wire::Time;

/// What happened since is lost with the disk.
const BEHIND_MS_MAX: i64 = 7 * 86_400_000;
/// Nobody makes more of them in a day.
const NAMES_MAX: u32 = 1_000;

/// A folder beside the data folder, called like it and then `.backup-` and whatever: as the advice has it.
pub fn last(folder: &Path) -> Finding {
    // `.` has no name that a copy could be called by.
    let folder = &folder.canonicalize().unwrap_or(folder.to_path_buf());
    let advice = || {
        format!(
            "while the server is stopped, copy the folder: cp -a {} {}",
            shell_path(folder),
            shell_path(&free_name(folder))
        )
    };
    let Some((copy, at)) = last_backup(folder) else {
        return Finding::warning("no backup is known").fix(advice());
    };
    let written_at = [DATABASE_FILE.to_string(), format!("{DATABASE_FILE}-wal")];
    let written_at = written_at
        .iter()
        .filter_map(|name| written(&folder.join(name)));
    let behind_ms = written_at.map(|it| it.0.0 - at.0.0).max().unwrap_or(0);
    let message = format!("the last backup is {}, of {}", copy.display(), ago(at));
    match behind_ms > BEHIND_MS_MAX {
        true => Finding::warning(message).fix(advice()),
        false => Finding::ok(message),
    }
}

fn last_backup(folder: &Path) -> Option<(PathBuf, Time)> {
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

/// What is there already would take the copy in.
fn free_name(folder: &Path) -> PathBuf {
    let name = parent(folder).join(backup_prefix(folder) + &today());
    let numbered = |n: u32| match n {
        1 => name.clone(),
        n => PathBuf::from(format!("{}-{n}", name.display())),
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
