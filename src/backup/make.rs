//! How a backup is made: a copy of the database first, then one file after the other as it is read, the manifest last.
//!
//! It is read like a file, so whoever wants it decides where it goes and how fast. Nothing but the copy of the database is ever
//! held, and that file has no name any more once it is there.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::open::log_of;
use super::{
    ANOTHER_DISK, BackupError, DATA, FORMAT, FORMAT_VERSION, LOGS_FOLDER, LogSums, MANIFEST,
    Manifest, ManifestFile, ROOT, SETTINGS, WORKFLOWS, WORKFLOWS_FILE, hex, tar,
};
use crate::disk::{free_bytes, reserve_bytes};
use crate::domain::lineage::LogTag;
use crate::domain::{AttemptRef, JobId, Timestamp};
use crate::logs::{log_file_name, parse_log_file_name};
use crate::sealer::KEY_FILE;
use crate::secret_policy::{OpenFault, SecretPolicy, SourceOpener, SourcePlace};
use crate::store::{Copy, DATABASE_FILE, GoOn, Stopped, Store};
use crate::temporary;
use crate::wire::Time;
use crate::words;

/// Of the workflows folder: what is larger, deeper or more is no workflow.
const FILE_BYTES_MAX: u64 = 1 << 20;
const FILES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 16;

const ABOUT: &str = "A backup of a Stepward installation. `stepward restore FILE --data-dir FOLDER` makes a data folder of it; \
                     by hand, data/ is one. Whoever reads data/secret.key can read the secrets in the database.";

/// Whose backup it is.
pub enum From<'a> {
    Running(&'a Store),
    Stopped(&'a Stopped),
}

pub struct Sources {
    pub data_dir: PathBuf,
    pub workflows_dir: Option<PathBuf>,
    pub settings_file: Option<PathBuf>,
    pub staging: Staging,
    /// Folders that are not looked into, should they be below that of the workflows.
    pub apart: Vec<PathBuf>,
    /// Knows the files of the server itself. Tokens and keys are not part of a backup, under no name.
    pub policy: SecretPolicy,
}

/// Where the database is copied to for a while.
pub struct Staging {
    pub folder: PathBuf,
    /// The beginning of the copy's name. Copies that killed processes left are found by it.
    pub prefix: String,
    /// Where else, should there be no room.
    pub instead: Option<PathBuf>,
}

impl Staging {
    /// The data folder itself, which nobody shares. One whose disk is nearly full is what somebody may want a backup of.
    pub fn in_data(folder: &Path) -> Staging {
        Staging {
            folder: folder.into(),
            prefix: "backup-copy.".to_string(),
            instead: Some(std::env::temp_dir()),
        }
    }

    /// A file for so many bytes. Half of what logs leave free is left to the server.
    fn file(&self, bytes: u64) -> Result<NamedTempFile, BackupError> {
        remove_leftovers(&self.folder, &self.prefix);
        if let Some(shared) = &self.instead {
            temporary::remove_abandoned_files(shared, &self.prefix);
        }
        let mut refused = None;
        for folder in [&self.folder].into_iter().chain(&self.instead) {
            let target = |error| BackupError::Target(folder.clone(), error);
            let free = free_bytes(folder).map_err(target)?;
            let needed = bytes + reserve_bytes(folder).map_err(target)? / 2;
            if free >= needed {
                let made = temporary::create_file_in(folder, &self.prefix);
                return made.map_err(target);
            }
            refused.get_or_insert(BackupError::NoRoom {
                folder: folder.clone(),
                free: words::bytes(free),
                needed: words::bytes(needed),
                instead: match self.instead {
                    Some(_) => "let TMPDIR name a folder that has more",
                    None => ANOTHER_DISK,
                },
            });
        }
        Err(refused.expect("there was one at least"))
    }
}

/// A backup that is being made, to be read to its end: before that it is none.
pub struct Backup {
    sources: Sources,
    copy: Copy,
    manifest: Manifest,
    logs: LogSums,
    /// What comes next, in order; then the logs, a job at a time; then the manifest.
    planned: VecDeque<(String, Planned)>,
    /// Opens the files of the workflows folder. `None`: the server has no such folder.
    workflow_opener: Option<SourceOpener>,
    jobs: VecDeque<i64>,
    reading: Option<Reading>,
    /// Bytes that are to be handed out before anything else, and how far they are.
    ready: (Vec<u8>, usize),
    is_over: bool,
    bytes: u64,
}

enum Planned {
    Open(File),
    Path(PathBuf),
    Workflow(PathBuf),
}

struct Reading {
    name: String,
    path: PathBuf,
    file: io::Take<File>,
    bytes: u64,
    sum: Sha256,
}

/// Copies the database; everything else is read when it is asked for.
pub fn begin(
    from: From,
    sources: Sources,
    now: Timestamp,
    go_on: &GoOn,
) -> Result<Backup, BackupError> {
    let database = sources.data_dir.join(DATABASE_FILE);
    let bytes = length(&database) + length(&database.with_extension("db-wal"));
    let staged = sources.staging.file(bytes)?;
    let target = |error| BackupError::Target(sources.staging.folder.clone(), error);
    let copy = match from {
        From::Running(store) => store.copy_to(staged.path(), go_on),
        From::Stopped(stopped) => stopped.copy_to(staged.path(), go_on),
    }?;
    let database = staged.reopen().map_err(target)?;
    // It goes with whoever has it open; a server that is killed leaves nothing.
    staged.close().map_err(target)?;

    let mut planned = VecDeque::from([(format!("{DATA}{DATABASE_FILE}"), Planned::Open(database))]);
    for name in [KEY_FILE, WORKFLOWS_FILE] {
        let path = sources.data_dir.join(name);
        if path.exists() {
            planned.push_back((format!("{DATA}{name}"), Planned::Path(path)));
        }
    }
    if let Some(file) = &sources.settings_file {
        planned.push_back((SETTINGS.to_string(), Planned::Path(file.clone())));
    }
    let mut left_out = Vec::new();
    if let Some(folder) = &sources.workflows_dir {
        let mut found = Vec::new();
        let mut apart = vec![real(&sources.data_dir)];
        apart.extend(sources.apart.iter().map(|folder| real(folder)));
        collect(folder, "", 0, &apart, &mut found, &mut left_out);
        let named = found.into_iter();
        planned.extend(
            named.map(|(name, path)| (format!("{WORKFLOWS}{name}"), Planned::Workflow(path))),
        );
    }
    let folder = sources.workflows_dir.as_ref();
    let workflow_opener = folder.map(|folder| sources.policy.source_opener(folder));
    let jobs = job_folders(&sources.data_dir.join(LOGS_FOLDER))?;
    Ok(Backup {
        manifest: Manifest {
            format: FORMAT.to_string(),
            format_version: FORMAT_VERSION,
            about: ABOUT.to_string(),
            made_at: Time(now),
            made_by: concat!("stepward ", env!("CARGO_PKG_VERSION")).to_string(),
            schema_version: copy.schema_version,
            installation: copy.installation.clone(),
            files: Vec::new(),
            logs: LogSums::default().all(),
            left_out,
            audit_head: copy.audit_head.map(Into::into),
        },
        logs: LogSums::default(),
        sources,
        copy,
        planned,
        workflow_opener,
        jobs,
        reading: None,
        ready: (Vec::new(), 0),
        is_over: false,
        bytes: 0,
    })
}

fn length(file: &Path) -> u64 {
    file.metadata().map_or(0, |found| found.len())
}

/// Removes copies that killed processes left in a folder where nobody else copies under such a name.
fn remove_leftovers(folder: &Path, prefix: &str) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            // A copy that stays only takes room, and is tried again next time.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or(path.to_path_buf())
}

/// Plain files below a folder by their names, in order. Hidden ones are not ours.
fn collect(
    folder: &Path,
    below: &str,
    depth: usize,
    apart: &[PathBuf],
    found: &mut Vec<(String, PathBuf)>,
    left_out: &mut Vec<String>,
) {
    if apart.contains(&real(folder)) {
        return;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        let name = format!("{below}{name}");
        let is_text = path.to_str().is_some();
        match path.metadata() {
            Ok(found_there) if found_there.is_dir() && !path.is_symlink() && depth < DEPTH_MAX => {
                collect(
                    &path,
                    &format!("{name}/"),
                    depth + 1,
                    apart,
                    found,
                    left_out,
                )
            }
            Ok(found_there)
                if found_there.is_file()
                    && is_text
                    && found_there.len() <= FILE_BYTES_MAX
                    && found.len() < FILES_MAX
                    && super::open::is_file_name(&name)
                    && tar::header(&format!("{WORKFLOWS}{name}"), 0, 0, 0).is_some() =>
            {
                found.push((name, path))
            }
            _ if left_out.len() < FILES_MAX => left_out.push(name),
            _ => {}
        }
    }
}

/// Jobs that have logs, the oldest first.
fn job_folders(folder: &Path) -> Result<VecDeque<i64>, BackupError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(VecDeque::new()),
        Err(error) => return Err(BackupError::Source(folder.into(), error)),
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut jobs: Vec<i64> = names.filter_map(|name| number(name.to_str()?)).collect();
    jobs.sort();
    Ok(jobs.into())
}

impl Backup {
    /// What it says of itself: all of it once it was read to its end.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// It was read to its end.
    pub fn is_whole(&self) -> bool {
        self.is_over && self.ready.1 == self.ready.0.len()
    }

    /// Handed out so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes
    }

    fn go_on(&mut self) -> Result<(), BackupError> {
        while self.planned.is_empty() {
            let Some(job_id) = self.jobs.pop_front() else {
                return self.end();
            };
            self.plan_logs(job_id)?;
        }
        if let Some((name, planned)) = self.planned.pop_front() {
            self.begin_file(name, planned)?;
        }
        Ok(())
    }

    /// Plans the logs of attempts that the copy knows. A log of an attempt that began later is left out, because its number is
    /// given again after a restore. So is a log of another lineage that used the same number.
    fn plan_logs(&mut self, job_id: i64) -> Result<(), BackupError> {
        let known = self.copy.attempts(JobId(job_id));
        let known = known.map_err(|error| BackupError::Damaged(error.to_string()))?;
        let known: HashMap<i64, u32> = known.into_iter().collect();
        let folder = self
            .sources
            .data_dir
            .join(LOGS_FOLDER)
            .join(job_id.to_string());
        // A job whose logs are gone by now has none.
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut found: Vec<(AttemptRef, Option<LogTag>)> = entries
            .filter_map(|entry| parse_log_file_name(entry.file_name().to_str()?))
            .filter(|(log, _)| {
                known
                    .get(&log.step_id.0)
                    .is_some_and(|&last| log.attempt <= last)
            })
            .collect();
        found.sort();
        for (attempt, tag) in found {
            let is_ours = self.copy.is_log_of(attempt, tag);
            if !is_ours.map_err(|error| BackupError::Damaged(error.to_string()))? {
                continue;
            }
            let file = log_file_name(attempt, tag);
            let name = format!("{DATA}{LOGS_FOLDER}/{job_id}/{file}");
            self.planned
                .push_back((name, Planned::Path(folder.join(file))));
        }
        Ok(())
    }

    fn begin_file(&mut self, name: String, planned: Planned) -> Result<(), BackupError> {
        let (file, path) = match planned {
            Planned::Open(file) => (file, PathBuf::from(&name)),
            Planned::Path(path) => match File::open(&path) {
                Ok(file) => (file, path),
                // Removed since: as if it had been before.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(BackupError::Source(path, error)),
            },
            Planned::Workflow(path) => match self.open_workflow(&path)? {
                Some(file) => (file, path),
                None => {
                    let left_out = name.strip_prefix(WORKFLOWS).unwrap_or(&name);
                    self.manifest.left_out.push(left_out.to_string());
                    return Ok(());
                }
            },
        };
        let unreadable = |error| BackupError::Source(path.clone(), error);
        let found = file.metadata().map_err(unreadable)?;
        // It may grow while it is read: what comes now is not of it.
        let bytes = found.len();
        let header = tar::header(&name, bytes, 0o600, found.mtime());
        let header = header.ok_or_else(|| BackupError::TooLarge(name.clone()))?;
        self.ready = (header.to_vec(), 0);
        self.reading = Some(Reading {
            name,
            path,
            file: file.take(bytes),
            bytes,
            sum: Sha256::new(),
        });
        Ok(())
    }

    /// Opens a file of the workflows folder. `None`: it is a file of the server itself, such as a token, or is no plain file any more.
    fn open_workflow(&self, path: &Path) -> Result<Option<File>, BackupError> {
        let opener = self.workflow_opener.as_ref();
        let opener = opener.expect("a folder with a file was looked into");
        match opener.open(path) {
            Ok(opened) if opened.place == SourcePlace::OfServer => Ok(None),
            Ok(opened) => Ok(Some(opened.file)),
            Err(OpenFault::Unreadable(error)) if error.kind() != io::ErrorKind::NotFound => {
                Err(BackupError::Source(path.into(), error))
            }
            Err(_) => Ok(None),
        }
    }

    fn end_file(&mut self, reading: Reading) -> Result<(), BackupError> {
        if reading.file.limit() > 0 {
            return Err(BackupError::Changed(reading.path));
        }
        self.ready = (vec![0; tar::padding(reading.bytes)], 0);
        let file = ManifestFile {
            name: reading.name,
            bytes: reading.bytes,
            sha256: hex(reading.sum),
        };
        match log_of(&file.name) {
            Some(_) => self.logs.add(&file),
            None => self.manifest.files.push(file),
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), BackupError> {
        debug_assert!(self.names_are_ours());
        self.manifest.logs = self.logs.all();
        let json = serde_json::to_vec_pretty(&self.manifest).expect("a manifest has a JSON form");
        let bytes = json.len() as u64;
        let secs = self.manifest.made_at.0.0 / 1_000;
        let header = tar::header(MANIFEST, bytes, 0o600, secs);
        let header = header.ok_or_else(|| BackupError::TooLarge(MANIFEST.to_string()))?;
        let padding = vec![0; tar::padding(bytes)];
        self.ready = ([&header[..], &json, &padding, &tar::END].concat(), 0);
        self.is_over = true;
        Ok(())
    }

    fn names_are_ours(&self) -> bool {
        let names: HashSet<&str> = (self.manifest.files.iter())
            .map(|file| &*file.name)
            .collect();
        names.len() == self.manifest.files.len() && names.iter().all(|name| name.starts_with(ROOT))
    }
}

/// As we write it: no sign, no zero before it.
pub fn number(digits: &str) -> Option<i64> {
    let number: i64 = digits.parse().ok()?;
    (number >= 0 && number.to_string() == digits).then_some(number)
}

impl Read for Backup {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let (ready, at) = &mut self.ready;
            if *at < ready.len() {
                let bytes = buffer.len().min(ready.len() - *at);
                buffer[..bytes].copy_from_slice(&ready[*at..*at + bytes]);
                *at += bytes;
                self.bytes += bytes as u64;
                return Ok(bytes);
            }
            if let Some(mut reading) = self.reading.take() {
                let bytes = reading.file.read(buffer)?;
                if bytes > 0 {
                    reading.sum.update(&buffer[..bytes]);
                    self.reading = Some(reading);
                    self.bytes += bytes as u64;
                    return Ok(bytes);
                }
                self.end_file(reading).map_err(io::Error::other)?;
                continue;
            }
            if self.is_over {
                return Ok(0);
            }
            self.go_on().map_err(io::Error::other)?;
        }
    }
}
