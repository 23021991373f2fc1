//! What is believed of a backup: nothing that was not checked. Every name is one of ours, every file has its size and its sum,
//! the manifest comes last and knows them all.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::make::number;
use super::restore::AuditState;
use super::{
    BackupError, DATA, FORMAT, FORMAT_VERSION, LOGS_FOLDER, LogSums, MANIFEST, Manifest,
    ManifestFile, ROOT, SETTINGS, WORKFLOWS, WORKFLOWS_FILE, hex, tar,
};
use crate::disk::free_bytes;
use crate::domain::AttemptRef;
use crate::domain::lineage::LogTag;
use crate::logs::parse_log_file_name;
use crate::sealer::KEY_FILE;
use crate::store::{DATABASE_FILE, SCHEMA_VERSION};
use crate::words;

const MANIFEST_BYTES_MAX: u64 = 256 << 20;
const TEXT_BYTES_MAX: u64 = 64 << 20;
const LOG_BYTES_MAX: u64 = 8 << 30;
/// Of files that are no logs: those are as many as there are.
const FILES_MAX: usize = 20_000;
/// Left free on the disk that it is unpacked to.
const RESERVED_BYTES: u64 = 16 << 20;
const DEPTH_MAX: usize = 32;
const PIECE_BYTES: usize = 64 << 10;

/// What becomes of the files while they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Nothing,
    Database,
    Everything,
}

/// A backup that is whole: every file has the size and the sum that the manifest says, and there is no other.
#[derive(Debug)]
pub struct Contents {
    pub manifest: Manifest,
    /// Of all files, as they are when they are unpacked.
    pub bytes: u64,
    /// State of the audit log in the backup. `None` if the database was not examined.
    pub audit: AuditState,
}

/// Reads all of it, and writes nothing.
pub fn look(source: impl Read) -> Result<Contents, BackupError> {
    unpack(source, Path::new("/"), Keep::Nothing)
}

/// Reads all of it, and puts into the folder what is to be kept: with the name that it has in the backup, without the first folder.
/// What was written is on disk when this returns.
pub fn unpack(source: impl Read, folder: &Path, keep: Keep) -> Result<Contents, BackupError> {
    let mut source = plain(source)?;
    let mut files: HashMap<String, ManifestFile> = HashMap::new();
    let mut logs = LogSums::default();
    let mut last_log = None;
    let mut bytes_all: u64 = 0;
    loop {
        let Some(entry) = tar::next_entry(&mut source)? else {
            return Err(BackupError::Damaged("it has no manifest".to_string()));
        };
        if entry.name == MANIFEST {
            let manifest = read_manifest(&mut source, entry.bytes)?;
            if tar::next_entry(&mut source)?.is_some() {
                let what = "something follows its manifest";
                return Err(BackupError::Damaged(what.to_string()));
            }
            compare(&manifest, files, &logs)?;
            return Ok(Contents {
                manifest,
                bytes: bytes_all,
                audit: AuditState::Unknown,
            });
        }
        check_name(&entry)?;
        let log = log_of(&entry.name);
        if files.contains_key(&entry.name) || (log.is_some() && log == last_log) {
            return Err(foreign(&entry.name, "it is there twice"));
        }
        if log.is_some() && log < last_log {
            return Err(foreign(
                &entry.name,
                "one that comes after it was there before",
            ));
        }
        if log.is_none() && files.len() >= FILES_MAX {
            return Err(foreign(&entry.name, "there are too many"));
        }
        let is_kept = match keep {
            Keep::Nothing => false,
            Keep::Database => entry.name == format!("{DATA}{DATABASE_FILE}"),
            Keep::Everything => true,
        };
        let place = folder.join(&entry.name[ROOT.len()..]);
        let target = match is_kept {
            true => Some((make_file(folder, &place, entry.bytes)?, place)),
            false => None,
        };
        let sha256 = take_file(&mut source, entry.bytes, target)?;
        tar::skip_padding(&mut source, entry.bytes)?;
        bytes_all += entry.bytes;
        let file = ManifestFile {
            name: entry.name.clone(),
            bytes: entry.bytes,
            sha256,
        };
        match log {
            Some(_) => {
                logs.add(&file);
                last_log = log;
            }
            None => drop(files.insert(entry.name, file)),
        }
    }
}

/// Second line of a file that `age` encrypted with a passphrase.
const SCRYPT: &[u8] = b"\n-> scrypt ";

/// Whether this is the beginning of a file that `age` encrypted, as bytes or as text.
pub fn is_of_age(begin: &[u8]) -> bool {
    begin.starts_with(b"age-encryption.org/") || begin.starts_with(b"-----BEGIN AGE ENCRYPTED FILE")
}

/// As it is under its gzip, if it has one.
fn plain<'a>(mut source: impl Read + 'a) -> Result<Box<dyn Read + 'a>, BackupError> {
    let mut begin = Vec::new();
    (&mut source)
        .take(64)
        .read_to_end(&mut begin)
        .map_err(tar::ended)?;
    if begin.is_empty() {
        return Err(BackupError::Empty);
    }
    if is_of_age(&begin) {
        let by_passphrase = begin.windows(SCRYPT.len()).any(|part| part == SCRYPT);
        return Err(BackupError::Encrypted { by_passphrase });
    }
    let is_squeezed = begin.starts_with(&[0x1f, 0x8b]);
    let whole = io::Cursor::new(begin).chain(source);
    let whole = BufReader::with_capacity(PIECE_BYTES, whole);
    Ok(match is_squeezed {
        true => Box::new(BufReader::with_capacity(
            PIECE_BYTES,
            MultiGzDecoder::new(whole),
        )),
        false => Box::new(whole),
    })
}

fn foreign(name: &str, why: &str) -> BackupError {
    BackupError::Foreign {
        name: words::fit(&words::printable(name), 200, "..."),
        why: why.to_string(),
    }
}

/// One of the names that we give, and no larger than such a file is.
fn check_name(entry: &tar::Entry) -> Result<(), BackupError> {
    let name = entry.name.as_str();
    let bytes_max = match name.strip_prefix(DATA) {
        Some(DATABASE_FILE) => u64::MAX,
        Some(KEY_FILE) => 64,
        Some(WORKFLOWS_FILE) => TEXT_BYTES_MAX,
        Some(_) if log_of(name).is_some() => LOG_BYTES_MAX,
        Some(_) => return Err(foreign(name, "no file of a data folder is called so")),
        None if name == SETTINGS => TEXT_BYTES_MAX,
        None => match name.strip_prefix(WORKFLOWS) {
            Some(file) if is_file_name(file) => TEXT_BYTES_MAX,
            _ => return Err(foreign(name, "we give no such name")),
        },
    };
    match entry.bytes > bytes_max {
        true => Err(foreign(name, "it is too large for what it is")),
        false => Ok(()),
    }
}

/// `logs/7/42.1.0123456789ab.log` or `logs/7/42.1.log` of the data folder: the job, the attempt and the lineage of a log. Logs
/// are in this order.
pub fn log_of(name: &str) -> Option<(i64, AttemptRef, Option<LogTag>)> {
    let below = name.strip_prefix(DATA)?.strip_prefix(LOGS_FOLDER)?;
    let (job_id, file) = below.strip_prefix('/')?.split_once('/')?;
    let (attempt, tag) = parse_log_file_name(file)?;
    Some((number(job_id)?, attempt, tag))
}

/// A path that stays below where it begins, of visible files that any system can hold.
pub fn is_file_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_plain = part.chars().all(|c| !c.is_control() && c != '\\');
        !part.is_empty() && !part.starts_with('.') && part.len() <= 255 && is_plain
    };
    name.split('/').count() <= DEPTH_MAX && name.split('/').all(is_part)
}

fn make_file(folder: &Path, place: &Path, bytes: u64) -> Result<File, BackupError> {
    let target = |error| BackupError::Target(place.into(), error);
    let free = free_bytes(folder).map_err(target)?;
    if free < bytes.saturating_add(RESERVED_BYTES) {
        return Err(BackupError::NoRoom {
            folder: folder.into(),
            free: words::bytes(free),
            needed: words::bytes(bytes.saturating_add(RESERVED_BYTES)),
            instead: super::ANOTHER_DISK,
        });
    }
    if let Some(above) = place.parent() {
        let mut options = fs::DirBuilder::new();
        let made = options.recursive(true).mode(0o700).create(above);
        made.map_err(target)?;
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    options.open(place).map_err(target)
}

/// Its sum, once all of it was read and is on disk.
fn take_file(
    source: &mut impl Read,
    bytes: u64,
    mut target: Option<(File, PathBuf)>,
) -> Result<String, BackupError> {
    let mut sum = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let wanted = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        source
            .read_exact(&mut piece[..wanted])
            .map_err(tar::ended)?;
        sum.update(&piece[..wanted]);
        if let Some((file, place)) = &mut target {
            let written = file.write_all(&piece[..wanted]);
            written.map_err(|error| BackupError::Target(place.clone(), error))?;
        }
        left -= wanted as u64;
    }
    if let Some((file, place)) = target {
        let synced = file.sync_all();
        synced.map_err(|error| BackupError::Target(place, error))?;
    }
    Ok(hex(sum))
}

fn read_manifest(source: &mut impl Read, bytes: u64) -> Result<Manifest, BackupError> {
    let damaged = |what: String| BackupError::Damaged(what);
    if bytes > MANIFEST_BYTES_MAX {
        return Err(damaged("its manifest is too large".to_string()));
    }
    let mut json = Vec::new();
    let read = source.take(bytes).read_to_end(&mut json);
    let read = read.map_err(tar::ended)?;
    if read as u64 != bytes {
        return Err(BackupError::Truncated);
    }
    tar::skip_padding(source, bytes)?;
    /// What every version of it says: one of a newer form may be read no further.
    #[derive(serde::Deserialize)]
    struct Head {
        format: String,
        format_version: u32,
    }
    let head: Head = serde_json::from_slice(&json)
        .map_err(|error| damaged(format!("its manifest is not understood: {error}")))?;
    if head.format != FORMAT {
        return Err(damaged("its manifest is of something else".to_string()));
    }
    if head.format_version > FORMAT_VERSION {
        return Err(BackupError::Newer {
            found: format!("format {}", head.format_version),
            known: FORMAT_VERSION.to_string(),
        });
    }
    let manifest: Manifest = serde_json::from_slice(&json)
        .map_err(|error| damaged(format!("its manifest is not understood: {error}")))?;
    if manifest.schema_version > SCHEMA_VERSION {
        return Err(newer_schema(manifest.schema_version));
    }
    Ok(manifest)
}

pub fn newer_schema(found: i64) -> BackupError {
    BackupError::Newer {
        found: format!("schema {found}"),
        known: SCHEMA_VERSION.to_string(),
    }
}

/// The manifest and what was found say the same.
fn compare(
    manifest: &Manifest,
    mut files: HashMap<String, ManifestFile>,
    logs: &LogSums,
) -> Result<(), BackupError> {
    let damaged = |what: String| Err(BackupError::Damaged(what));
    for said in &manifest.files {
        let name = words::printable(&said.name);
        match files.remove(&said.name) {
            None => return damaged(format!("{name} is missing")),
            Some(found) if found.bytes != said.bytes || found.sha256 != said.sha256 => {
                return damaged(format!("{name} is not as it was when it was backed up"));
            }
            Some(_) => {}
        }
    }
    if let Some(name) = files.into_keys().next() {
        return Err(foreign(&name, "the manifest does not know it"));
    }
    if logs.all() != manifest.logs {
        let said = manifest.logs.count;
        return damaged(match logs.count == said {
            true => "its logs are not as they were when they were backed up".to_string(),
            false => format!(
                "it holds {} logs, and its manifest knows {said}",
                logs.count
            ),
        });
    }
    let database = format!("{DATA}{DATABASE_FILE}");
    match manifest.files.iter().any(|file| file.name == database) {
        true => Ok(()),
        false => damaged("it holds no database".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_we_give_are_taken() {
        let with = |name: &str, bytes| {
            check_name(&tar::Entry {
                name: name.to_string(),
                bytes,
            })
        };
        for name in [
            "stepward-backup/data/stepward.db",
            "stepward-backup/data/logs/7/42.1.log",
            "stepward-backup/data/logs/7/42.1.0123456789ab.log",
            "stepward-backup/workflows/a/b.yaml",
            "stepward-backup/server-config.yaml",
        ] {
            assert!(with(name, 10).is_ok(), "{name}");
        }
        for name in [
            "",
            "/etc/passwd",
            "../x",
            "stepward-backup/../x",
            "stepward-backup/data/../../x",
            "stepward-backup/data/LOCK",
            "stepward-backup/data/stepward.db-wal",
            "stepward-backup/data/logs/7/../../x.log",
            "stepward-backup/data/logs/07/42.1.log",
            "stepward-backup/data/logs/7/42.01.log",
            "stepward-backup/data/logs/7/42.1.idx",
            "stepward-backup/data/logs/7/42.1.0123456789ab.idx",
            "stepward-backup/data/logs/7/42.1.0123456789.log",
            "stepward-backup/data/logs/+7/42.1.log",
            "stepward-backup/workflows/",
            "stepward-backup/workflows//x",
            "stepward-backup/workflows/../x",
            "stepward-backup/workflows/.hidden",
            "stepward-backup/workflows/a/./x",
            "stepward-backup/workflows/new\nline",
            "elsewhere/data/stepward.db",
        ] {
            assert!(with(name, 10).is_err(), "{name:?}");
        }
        assert!(with("stepward-backup/data/secret.key", 65).is_err());
    }
}
