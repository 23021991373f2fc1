//! The names of log files.
//!
//! Ids and attempt numbers repeat after a backup was restored or an older database was accepted, and files of the life before
//! may still be in the folder. So a name contains the lineage in which the attempt ran, and a log is only shown if its attempt
//! ran in that lineage.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{LogKey, job_folder};
use crate::domain::lineage::LogTag;
use crate::domain::{AttemptRef, StepId};

/// Looks up in which lineage an attempt ran. `None`: version 0.1 ran the attempt, and the name of its log has no lineage.
pub type FindLogTag = Arc<dyn Fn(AttemptRef) -> io::Result<Option<LogTag>> + Send + Sync>;

/// How the logs of an installation are named.
pub struct LogNames {
    /// The tag of the current lineage.
    pub current: LogTag,
    /// For attempts that may have run before the current lineage began. `None`: there are no such attempts.
    pub find_tag: Option<FindLogTag>,
}

/// The name of one log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LogName {
    pub key: LogKey,
    pub tag: Option<LogTag>,
}

impl LogName {
    /// Made of numbers only, so that no name that a person chose ever becomes a path.
    pub fn path(&self, folder: &Path, extension: &str) -> PathBuf {
        let name = file_name(self.key.attempt, self.tag, extension);
        job_folder(folder, self.key.job_id).join(name)
    }
}

impl LogNames {
    pub(super) fn find(&self, folder: &Path, key: LogKey) -> io::Result<LogName> {
        let current = LogName {
            key,
            tag: Some(self.current),
        };
        let Some(find_tag) = &self.find_tag else {
            return Ok(current);
        };
        // Only an attempt of the current lineage can have written such a file.
        if current.path(folder, LOG).try_exists()? {
            return Ok(current);
        }
        let tag = find_tag(key.attempt)?;
        Ok(LogName { key, tag })
    }

    /// Whether a file is a log of the current lineage, or the index of one.
    pub(super) fn is_current(&self, file_name: &OsStr) -> bool {
        let tag = format!(".{}.", self.current);
        file_name.to_string_lossy().contains(&tag)
    }
}

const LOG: &str = "log";

fn file_name(attempt: AttemptRef, tag: Option<LogTag>, extension: &str) -> String {
    let AttemptRef { step_id, attempt } = attempt;
    match tag {
        Some(tag) => format!("{step_id}.{attempt}.{tag}.{extension}"),
        None => format!("{step_id}.{attempt}.{extension}"),
    }
}

/// `42.1.0123456789ab.log`, or `42.1.log` for an attempt of version 0.1.
pub fn log_file_name(attempt: AttemptRef, tag: Option<LogTag>) -> String {
    file_name(attempt, tag, LOG)
}

/// Reads a name as `log_file_name` writes it, and no other spelling of the same numbers.
pub fn parse_log_file_name(name: &str) -> Option<(AttemptRef, Option<LogTag>)> {
    let mut parts = name.split('.');
    let step_id = StepId(parts.next()?.parse().ok()?);
    let attempt = parts.next()?.parse().ok()?;
    let attempt = AttemptRef { step_id, attempt };
    let tag = match parts.next()? {
        LOG => None,
        digits => Some(LogTag::parse(digits)?),
    };
    let is_ours = step_id.0 >= 0 && log_file_name(attempt, tag) == name;
    is_ours.then_some((attempt, tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written_and_in_no_other_spelling() {
        for name in ["42.1.log", "42.1.0123456789ab.log", "0.4294967295.log"] {
            let (attempt, tag) = parse_log_file_name(name).unwrap();
            assert_eq!(log_file_name(attempt, tag), name);
        }
        for name in [
            "",
            "42.log",
            "42.1",
            "42.01.log",
            "+42.1.log",
            "-42.1.log",
            "42.1.idx",
            "42.1.0123456789AB.log",
            "42.1.0123456789.log",
            "42.1.0123456789ab",
            "42.1.0123456789ab.idx",
            "42.1.0123456789ab.log.log",
            "42.1.log.log",
            "42.1./.log",
        ] {
            assert_eq!(parse_log_file_name(name), None, "{name:?}");
        }
    }
}
