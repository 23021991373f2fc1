//! All of an installation in one file, made while it runs; and an installation out of that file.
//!
//! A backup is a tar, squeezed by gzip or not (`tar.rs`), of one folder `stepward-backup/`:
//!
//! | name | what |
//! |---|---|
//! | `data/stepward.db` | the database of one instant |
//! | `data/secret.key` | without it no sealed input opens: whoever has the file has the secrets |
//! | `data/workflows.good.json` | the workflows that were last good |
//! | `data/logs/JOB/STEP.ATTEMPT.log` | what steps printed; indexes are left out, they are made anew |
//! | `server-config.yaml` | the settings file, if the server has one |
//! | `workflows/…` | the workflow files, and what lies beside them |
//! | `manifest.json` | comes last: who made it, when, of what, every file with its size and SHA-256, and one for all logs together |
//!
//! # The promise
//! The database is that of one instant. A log may be longer than it was then, by what was printed until it was read, or a second
//! shorter after a power cut; only attempts that the database knows have one, so that no attempt to come finds a stranger's.
//! An archive that ends before its manifest is no backup.
//!
//! # How it is read
//! `make.rs` for how one is made, `open.rs` for what is believed of one, `restore.rs` for how it becomes a data folder, `shelf.rs`
//! for those that are made by themselves, `pipe.rs` for the command that encrypts those. Time is an argument; threads and HTTP are the server's.

mod make;
mod open;
mod pipe;
mod restore;
mod shelf;
mod tar;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::domain::Timestamp;
use crate::sealer::KEY_FILE;
use crate::store::CopyError;
use crate::whole_file;
use crate::wire::Time;
use crate::wire::api::AuditLinkJson;
use crate::words::calendar_time;

pub use make::{Backup, From, Sources, Staging, begin};
pub use open::{Contents, look};
pub use pipe::{Pipe, unnamed_file};
pub use restore::{AuditState, Restore, Restored, restore, verify};
pub use shelf::{Shelf, Shelved};

/// Where the logs of steps are, in the data folder.
pub const LOGS_FOLDER: &str = "logs";
/// The workflows that were last good, in the data folder.
pub const WORKFLOWS_FILE: &str = "workflows.good.json";

const ROOT: &str = "stepward-backup/";
const DATA: &str = "stepward-backup/data/";
const WORKFLOWS: &str = "stepward-backup/workflows/";
const SETTINGS: &str = "stepward-backup/server-config.yaml";
const MANIFEST: &str = "stepward-backup/manifest.json";

const FORMAT: &str = "stepward-backup";
const FORMAT_VERSION: u32 = 1;

const ANOTHER_DISK: &str = "choose another disk";

/// Why there is no backup, or none that is believed. One line each: what is wrong, what to do.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{0}")]
    Copy(#[from] CopyError),
    #[error("{0} cannot be read: {1}")]
    Source(PathBuf, io::Error),
    #[error("{0} cannot be written: {1}")]
    Target(PathBuf, io::Error),
    #[error("{folder} has {free} free, and {needed} are needed: make room, or {instead}")]
    NoRoom {
        folder: PathBuf,
        free: String,
        needed: String,
        instead: &'static str,
    },
    #[error("{0} is too large, or its name too long, for a tar")]
    TooLarge(String),
    #[error("{0} has changed while it was read, try again")]
    Changed(PathBuf),
    #[error("the backup ends too soon: it is not whole, take another one")]
    Truncated,
    #[error("this is no backup, or it is damaged: {0}")]
    Damaged(String),
    #[error("{name:?} does not belong into a backup: {why}")]
    Foreign { name: String, why: String },
    #[error("the backup cannot be read: {0}")]
    Unreadable(io::Error),
    #[error(
        "the backup was made by a newer stepward ({found}), this one knows up to {known}; use a newer stepward"
    )]
    Newer { found: String, known: String },
    #[error("the database in the backup breaks {count} of its rules: {first}")]
    Broken { count: usize, first: String },
    #[error(
        "there is nothing to read; if another command writes the backup, such as `age -d`, its own message says why it wrote nothing"
    )]
    Empty,
    #[error(
        "the backup is encrypted with age: decrypt it first, as in `age -d {key}FILE | stepward restore - --data-dir FOLDER`",
        key = match .by_passphrase { true => "", false => "-i KEY_FILE " },
    )]
    Encrypted { by_passphrase: bool },
    #[error("the backup cannot be sent through {program}: {why}; nothing was kept of it")]
    Pipe { program: String, why: String },
    #[error("{0}")]
    Refused(String),
}

/// What a backup says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: String,
    pub format_version: u32,
    /// For whoever finds it in ten years.
    #[serde(default)]
    pub about: String,
    pub made_at: Time,
    pub made_by: String,
    pub schema_version: i64,
    pub installation: String,
    /// All but the logs.
    pub files: Vec<ManifestFile>,
    pub logs: ManifestLogs,
    /// Files of the workflows folder that it does not hold.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// The head of the audit log in the database. `None`: the database is of a version that had no audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_head: Option<AuditLinkJson>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

/// One for all, so that it is no larger after years.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestLogs {
    pub count: usize,
    pub bytes: u64,
    /// Of what `sha256sum` says about them, in their order.
    pub sha256: String,
}

/// What is known of the logs so far.
#[derive(Default)]
struct LogSums {
    count: usize,
    bytes: u64,
    sums: Sha256,
}

impl LogSums {
    fn add(&mut self, log: &ManifestFile) {
        self.count += 1;
        self.bytes += log.bytes;
        self.sums.update(format!("{}  {}\n", log.sha256, log.name));
    }

    fn all(&self) -> ManifestLogs {
        ManifestLogs {
            count: self.count,
            bytes: self.bytes,
            sha256: hex(self.sums.clone()),
        }
    }
}

fn hex(sum: Sha256) -> String {
    let sum = sum.finalize();
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Manifest {
    pub fn bytes(&self) -> u64 {
        let files = self.files.iter().map(|file| file.bytes);
        files.sum::<u64>() + self.logs.bytes
    }

    /// Of all files, logs too.
    pub fn count(&self) -> usize {
        self.files.len() + self.logs.count
    }

    pub fn has_key(&self) -> bool {
        let key = format!("{DATA}{KEY_FILE}");
        self.files.iter().any(|file| file.name == key)
    }

    pub fn workflows(&self) -> usize {
        let files = self.files.iter();
        files
            .filter(|file| file.name.starts_with(WORKFLOWS))
            .count()
    }
}

/// In the data folder: when a whole backup of it was last handed out.
const NOTE: &str = "last-backup.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    pub made_at: Time,
    pub bytes: u64,
}

/// For whoever asks when the last one was made; a data folder that does not take the note is backed up all the same.
pub fn note(data_dir: &Path, noted: Noted) {
    let file = data_dir.join(NOTE);
    let json = serde_json::to_vec(&noted).expect("what we note has a JSON form");
    if let Err(error) = whole_file::write(&file, 0o666, &json) {
        log::warn!("{} cannot be written: {error}", file.display());
    }
}

pub fn noted(data_dir: &Path) -> Option<Noted> {
    let json = fs::read(data_dir.join(NOTE)).ok()?;
    serde_json::from_slice(&json).ok()
}

/// `20261117T143000Z`.
fn stamp(at: Timestamp) -> String {
    let at = calendar_time(at).strftime("%Y%m%dT%H%M%SZ");
    at.to_string()
}
