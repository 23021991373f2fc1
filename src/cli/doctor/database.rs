//! Whether the database is sound, and how large it is.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::backup;
use super::case::Case;
use super::{Finding, Looked};
use crate::cli::words::{bytes, shell_path};
use crate::store::{Depth, ExamineError, Examined, OpenError, Standing};

/// A log that has grown so far was not taken in for a long time.
const WAL_BYTES_MAX: u64 = 256 << 20;
/// Made before files could shrink, and much was removed since.
const STUCK_BYTES_MAX: u64 = 64 << 20;
/// The rest is for `stepward db check`.
const BREACHES_MAX: usize = 5;

pub fn look(case: &Case) -> Looked {
    let folder = case.some_data_dir()?;
    let examined = match case.examined(folder) {
        Ok(examined) => examined,
        Err(error) => return Err(unseen(error, folder, case.is_data_dir_named())),
    };
    let mut found = breaches(examined, folder);
    let is_sound = found.is_empty();
    if is_sound {
        found.push(seen(examined, folder));
    }
    if examined.standing == Standing::Killed {
        let message = format!("the server of {} was killed", folder.display());
        let fix = "start it again, it takes in what it had written: stepward server";
        found.push(Finding::warning(message).fix(fix));
    }
    if examined.wal_bytes > WAL_BYTES_MAX {
        let size = bytes(examined.wal_bytes);
        let message = format!("the write-ahead log has grown to {size}: somebody reads for long");
        let fix = "end programs that have the database open, or restart the server";
        found.push(Finding::warning(message).fix(fix));
    }
    if examined.stuck_bytes > STUCK_BYTES_MAX {
        let size = bytes(examined.stuck_bytes);
        let message =
            format!("{size} of the database are free, and the file does not shrink by itself");
        let fix = format!(
            "stop the server, and: stepward db compact {}",
            shell_path(folder)
        );
        found.push(Finding::warning(message).fix(fix));
    }
    // Whoever has a broken one is told above to put the last good one back.
    if is_sound {
        found.extend(backup::look(case, folder));
    }
    Ok(found)
}

/// What nobody could look at is not called sound.
fn seen(examined: &Examined, folder: &Path) -> Finding {
    let summary = summary(examined);
    match examined.depth {
        Depth::Rules | Depth::Pages => Finding::ok(summary),
        Depth::Header => Finding::skipped(summary).fix(format!(
            "stop the server, and look at all of it: stepward db check {}",
            shell_path(folder)
        )),
    }
}

fn summary(examined: &Examined) -> String {
    let seen = match examined.depth {
        Depth::Rules => "every page is sound, every rule holds",
        Depth::Pages => "every page is sound",
        Depth::Header => "it opens, and is too large to look at every page here",
    };
    let version = match examined.is_current {
        true => format!("schema version {}", examined.schema_version),
        false => format!(
            "schema version {}, which the next start of the server upgrades",
            examined.schema_version
        ),
    };
    let server = match examined.standing {
        Standing::Stopped | Standing::Killed => "its server does not run".to_string(),
        Standing::Running(None) => "its server runs".to_string(),
        Standing::Running(Some(pid)) => format!("its server runs (process {pid})"),
    };
    let (file, size) = (examined.file.display(), bytes(examined.bytes));
    let log = bytes(examined.wal_bytes);
    format!("{file}: {seen}, {version}, {size} and {log} of log; {server}")
}

fn breaches(examined: &Examined, folder: &Path) -> Vec<Finding> {
    let folder = shell_path(folder);
    let told = |message: String| {
        Finding::problem(message)
            .fix(format!(
                "stop the server, and see all: stepward db check {folder}"
            ))
            .fix(format!(
                "put the last good backup in its place: stepward restore FILE --data-dir {folder} --force"
            ))
    };
    let all = examined.breaches.iter();
    let all = all.map(ToString::to_string);
    let more = examined.breaches.len().saturating_sub(BREACHES_MAX);
    let more = (more > 0).then(|| format!("and {more} more"));
    all.take(BREACHES_MAX).chain(more).map(told).collect()
}

fn unseen(error: &ExamineError, folder: &Path, is_named: bool) -> Finding {
    let problem = Finding::problem(error.to_string());
    let shown = shell_path(folder);
    match error {
        ExamineError::Missing { .. } if is_named => {
            problem.fix("name the folder that has the database: --data-dir FOLDER")
        }
        ExamineError::Missing { .. } => {
            Finding::skipped(format!("no server has run with the data folder {shown}"))
                .fix("start one: stepward server, or name its folder: --data-dir FOLDER")
        }
        // The folder that is no folder, say, is no matter of who looks.
        ExamineError::Unreadable { source, .. } if source.kind() != ErrorKind::PermissionDenied => {
            problem.fix("name the folder that has the database: --data-dir FOLDER")
        }
        ExamineError::Unreadable { .. } => match owner(folder) {
            Some(owner) => problem.fix(format!(
                "look as the user it belongs to: sudo -u '#{owner}' stepward doctor --data-dir {shown}"
            )),
            None => problem.fix("look as the user that runs the server"),
        },
        ExamineError::Unrecovered { .. } => Finding::warning(error.to_string())
            .fix(format!("start the server, or: stepward db check {shown}")),
        ExamineError::Restless { .. } => {
            problem.fix("look into the log of the server why it does not stay")
        }
        ExamineError::Refused(OpenError::Corrupt { .. } | OpenError::NotADatabase { .. }) => {
            problem
                .fix(format!("stop the server, and keep a copy of {shown} as it is"))
                .fix(format!("put the last backup in its place: stepward restore FILE --data-dir {shown} --force"))
        }
        ExamineError::Refused(
            OpenError::Behind { .. } | OpenError::OtherLineage { .. } | OpenError::Lost { .. },
        ) => problem
            .fix(format!("keep a copy of {shown} as it is"))
            .fix(format!("restore a backup: stepward restore FILE --data-dir {shown} --force")),
        ExamineError::Refused(OpenError::HalfRestored { .. }) => {
            problem.fix(format!("stepward restore FILE --data-dir {shown} --force"))
        }
        ExamineError::Refused(OpenError::NewerSchema { .. }) => {
            problem.fix("use the program that last ran with this folder, or a newer one")
        }
        ExamineError::Refused(OpenError::Foreign { .. }) => {
            problem.fix("name the folder of the server: --data-dir FOLDER")
        }
        ExamineError::Refused(OpenError::FolderBesideDatabase { path }) => {
            problem.fix(format!("move the folder away: {}", shell_path(path)))
        }
        ExamineError::Refused(OpenError::NotRegular { path, .. }) => {
            problem.fix(format!("move it away, or put a regular file there: {}", shell_path(path)))
        }
        ExamineError::Refused(OpenError::NoRoomForUpgrade { .. } | OpenError::Full { .. }) => {
            problem.fix(format!("make room on the disk of {shown}"))
        }
        ExamineError::Refused(_) => problem.fix("look as the user that runs the server"),
    }
}

/// Of the folder, or of what is above it where it cannot be seen itself.
fn owner(folder: &Path) -> Option<u32> {
    let found = folder.ancestors().find_map(|folder| folder.metadata().ok());
    found.map(|found| found.uid())
}
