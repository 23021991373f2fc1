//! How a backup becomes a data folder: unpacked inside its place, looked at from the first page to the last rule, and put there
//! by renames. Until then nothing of what was there has been touched; afterwards it is still there, in a folder of its own.
//!
//! The place is held as a server holds it, from before the first byte is read until after the last rename: none starts meanwhile.
//! The folder around it is not touched: it may be another's, or the place may be where a disk is. Who is killed between the
//! renames leaves a mark, and who is killed while it unpacks the folder that it unpacks to: no server begins anew there.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::open::{Contents, Keep, newer_schema, unpack};
use super::{BackupError, DATA, Manifest, ROOT, SETTINGS, WORKFLOWS, stamp};
use crate::domain::Timestamp;
use crate::domain::audit::{ChainFault, ChainLink};
use crate::domain::event::{EventKind, NewEvent};
use crate::store::{
    CopyError, DATABASE_FILE, FolderLock, LOCK_FILE, OpenError, RESTORING_FILE, Taken,
    UNPACKING_FOLDER, hold_folder, take_copy,
};
use crate::temporary::TemporaryFolder;
use crate::words;

/// In the place: what was there before, and when it ceased to be.
const ASIDE: &str = "before-restore-";

pub struct Restore<'a> {
    pub data_dir: &'a Path,
    /// Where the workflow files go; `workflows` in the data folder if nobody says.
    pub workflows_dir: Option<&'a Path>,
    /// What is in the way is moved aside.
    pub force: bool,
    pub now: Timestamp,
}

#[derive(Debug)]
pub struct Restored {
    pub contents: Contents,
    /// `None`: the backup holds none.
    pub workflows_dir: Option<PathBuf>,
    pub settings_file: Option<PathBuf>,
    /// What was there before.
    pub moved_aside: Option<PathBuf>,
}

/// Everything that `restore` looks at, in a folder that goes away.
pub fn verify(source: impl Read, now: Timestamp) -> Result<Contents, BackupError> {
    let folder = TemporaryFolder::create("verify");
    let target = |error| BackupError::Target(std::env::temp_dir(), error);
    let folder = folder.map_err(target)?;
    let contents = unpack(source, folder.path(), Keep::Database)?;
    let audit = take(&contents, &folder.path().join(below(DATA)), now)?;
    Ok(Contents { audit, ..contents })
}

pub fn restore(source: impl Read, asked: &Restore) -> Result<Restored, BackupError> {
    let place = std::path::absolute(asked.data_dir);
    let place = place.map_err(|error| BackupError::Target(asked.data_dir.into(), error))?;
    let target = |error| BackupError::Target(place.clone(), error);
    if place.parent().is_none() {
        return Err(refused("the root of the file system is no data folder"));
    }
    if let Some(folder) = asked.workflows_dir
        && std::path::absolute(folder).is_ok_and(|folder| folder.starts_with(&place))
    {
        return Err(refused(format!(
            "--workflows-dir lies below {}, leave it out: they come to `workflows` there by themselves",
            words::shown_path(&place)
        )));
    }
    refuse_in_the_way(&place, asked)?;
    let mut held = Held::take(&place)?;
    let staging = place.join(UNPACKING_FOLDER);
    if staging.exists() {
        // Of one who was killed: whoever unpacks here holds the folder.
        fs::remove_dir_all(&staging).map_err(target)?;
    }
    let beside = tempfile::Builder::new()
        .prefix(UNPACKING_FOLDER)
        .rand_bytes(0)
        .tempdir_in(&place)
        .map_err(target)?;
    let mut contents = unpack(source, beside.path(), Keep::Everything)?;
    let data = beside.path().join(below(DATA));
    contents.audit = take(&contents, &data, asked.now)?;

    // That took its time, and not only servers write files.
    refuse_in_the_way(&place, asked)?;
    let has_settings = contents.has(SETTINGS);
    if has_settings {
        let file = below(SETTINGS);
        fs::rename(beside.path().join(file), data.join(file)).map_err(target)?;
    }
    let has_workflows = contents.manifest.workflows() > 0;
    let mut workflows_dir = None;
    if has_workflows {
        let from = beside.path().join(below(WORKFLOWS));
        let to = match asked.workflows_dir {
            Some(folder) => folder.to_path_buf(),
            None => data.join(below(WORKFLOWS)),
        };
        sync_below(&from).map_err(target)?;
        put(&from, &to).map_err(|error| BackupError::Target(to.clone(), error))?;
        workflows_dir = Some(match asked.workflows_dir {
            Some(folder) => folder.to_path_buf(),
            None => asked.data_dir.join(below(WORKFLOWS)),
        });
    }
    sync_below(&data).map_err(target)?;
    let moved_aside = swap(&data, &place, asked.now).map_err(target)?;
    held.is_new = false;
    Ok(Restored {
        settings_file: has_settings.then(|| asked.data_dir.join(below(SETTINGS))),
        contents,
        workflows_dir,
        moved_aside,
    })
}

/// State of the audit log in a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditState {
    /// The backup was made by a version that had no audit log, or did not note its head.
    Unknown,
    /// Every row fits, and the last one is the one that the manifest names.
    Fits(ChainLink),
    /// The rows do not fit together, or they end otherwise than the manifest says.
    Faulty(String),
}

impl AuditState {
    fn of(manifest: &Manifest, found: Result<ChainLink, ChainFault>) -> AuditState {
        let Some(noted) = &manifest.audit_head else {
            return match found {
                Ok(_) => AuditState::Unknown,
                Err(fault) => AuditState::Faulty(fault.to_string()),
            };
        };
        match found {
            Ok(head) if noted.link() == Some(head) => AuditState::Fits(head),
            Ok(head) => AuditState::Faulty(format!(
                "its last row is {head}, and the backup's manifest names {}:{}",
                noted.seq, noted.hash
            )),
            Err(fault) => AuditState::Faulty(fault.to_string()),
        }
    }

    /// The state as a sentence for people.
    pub fn in_words(&self) -> Option<String> {
        match self {
            AuditState::Unknown => None,
            AuditState::Fits(head) => Some(format!(
                "the audit log fits together and ends as the backup says: {head}"
            )),
            AuditState::Faulty(fault) => Some(format!(
                "warning: the audit log in the backup was changed, or is not whole: {fault}; compare it with logged heads: \
                 stepward audit verify --expect SEQ:HASH"
            )),
        }
    }

    /// Returns why the audit log in the backup is not whole. `None`: the log is whole, or nobody has looked at it.
    pub fn fault(&self) -> Option<&str> {
        match self {
            AuditState::Unknown | AuditState::Fits(_) => None,
            AuditState::Faulty(fault) => Some(fault),
        }
    }

    /// The state as a JSON value for programs: `null` if nothing is known.
    pub fn fits(&self) -> Option<bool> {
        match self {
            AuditState::Unknown => None,
            AuditState::Fits(_) => Some(true),
            AuditState::Faulty(_) => Some(false),
        }
    }
}

/// The place. One that was made for this goes again, unless it becomes a data folder.
struct Held {
    place: PathBuf,
    is_new: bool,
    _lock: FolderLock,
}

impl Held {
    fn take(place: &Path) -> Result<Held, BackupError> {
        let is_new = !place.exists();
        let lock = hold_folder(place).map_err(|error| match error {
            OpenError::InUse { .. } => refused(format!(
                "{}; a backup is restored while its server is stopped",
                error
                    .to_string()
                    .trim_end_matches(" or choose another data_dir")
                    .trim_end_matches(',')
            )),
            error => CopyError::Open(error).into(),
        })?;
        Ok(Held {
            place: place.into(),
            is_new,
            _lock: lock,
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_new {
            // If anything else came there meanwhile, it stays.
            let _ = fs::remove_file(self.place.join(LOCK_FILE));
            let _ = fs::remove_dir(&self.place);
        }
    }
}

impl Contents {
    fn has(&self, name: &str) -> bool {
        self.manifest.files.iter().any(|file| file.name == name)
    }
}

/// A name in the folder that a backup is unpacked to.
fn below(name: &str) -> &str {
    name[ROOT.len()..].trim_end_matches('/')
}

fn refused(message: impl Into<String>) -> BackupError {
    BackupError::Refused(message.into())
}

/// Every page and every rule; and from here on it is the database of a server that goes on.
fn take(contents: &Contents, data: &Path, now: Timestamp) -> Result<AuditState, BackupError> {
    let made_at = contents.manifest.made_at;
    let text = format!(
        "the server goes on from a backup of {}: what happened since is not known here, and every worker opens a new session",
        words::moment(made_at)
    );
    let event = NewEvent::new(EventKind::BackupRestored, text);
    let detail = format!(
        "{{\"backup_made_at\":\"{}\"}}",
        words::rfc3339_ms(made_at.0)
    );
    let taken = take_copy(data, event, Some(detail), now).map_err(|error| match error {
        CopyError::Open(OpenError::NewerSchema { found, .. }) => newer_schema(found),
        CopyError::Open(OpenError::Corrupt { detail, .. }) | CopyError::Corrupt(detail) => {
            BackupError::Damaged(format!("its database is corrupt ({detail})"))
        }
        CopyError::Open(OpenError::Foreign { .. } | OpenError::NotADatabase { .. }) => {
            BackupError::Damaged(format!("{DATABASE_FILE} in it is no database of ours"))
        }
        error => error.into(),
    })?;
    let Taken {
        schema_version,
        installation,
        breaches,
        audit,
    } = taken;
    if let Some(first) = breaches.first() {
        return Err(BackupError::Broken {
            count: breaches.len(),
            first: words::printable(&first.to_string()),
        });
    }
    let manifest = &contents.manifest;
    match manifest.schema_version == schema_version && manifest.installation == installation {
        true => Ok(AuditState::of(manifest, audit)),
        false => Err(BackupError::Damaged(
            "its manifest speaks of another database".to_string(),
        )),
    }
}

fn refuse_in_the_way(place: &Path, asked: &Restore) -> Result<(), BackupError> {
    let is_empty = |folder: &Path| match in_the_way(folder) {
        Ok(names) => Ok(names.is_empty()),
        Err(error) => Err(BackupError::Target(folder.into(), error)),
    };
    if !is_empty(place)? && !asked.force {
        return Err(refused(format!(
            "{} is not empty: name a new folder, or say --force to move it aside",
            words::shown_path(place)
        )));
    }
    match asked.workflows_dir {
        Some(folder) if !is_empty(folder)? => Err(refused(format!(
            "{} is not empty: name a new folder with --workflows-dir, nothing of yours is written over",
            words::shown_path(folder)
        ))),
        _ => Ok(()),
    }
}

/// What is there already, besides what is made and left there by a restore itself.
fn in_the_way(folder: &Path) -> io::Result<Vec<OsString>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names = names.collect::<io::Result<Vec<OsString>>>()?;
    names.retain(|name| {
        let is_ours = |ours| name == ours;
        let is_ours = [LOCK_FILE, RESTORING_FILE, UNPACKING_FOLDER]
            .into_iter()
            .any(is_ours);
        !is_ours && !name.to_string_lossy().starts_with(ASIDE)
    });
    Ok(names)
}

/// What was unpacked comes into the place; what is there goes into a folder of its own, whose name is returned. If one thing
/// cannot be moved, the others go back.
fn swap(data: &Path, place: &Path, now: Timestamp) -> io::Result<Option<PathBuf>> {
    let (old, new) = (in_the_way(place)?, in_the_way(data)?);
    let aside = (!old.is_empty()).then(|| free_name(place, now));
    let mut moves: Vec<(PathBuf, PathBuf)> = Vec::new();
    if let Some(aside) = &aside {
        DirBuilder::new().mode(0o700).create(aside)?;
        moves.extend(old.iter().map(|name| (place.join(name), aside.join(name))));
    }
    moves.extend(new.iter().map(|name| (data.join(name), place.join(name))));

    let mark = place.join(RESTORING_FILE);
    let was_marked = mark.exists();
    File::create(&mark)?;
    sync(place)?;
    for (done, (from, to)) in moves.iter().enumerate() {
        let Err(error) = fs::rename(from, to) else {
            continue;
        };
        let back = |(from, to): &(PathBuf, PathBuf)| fs::rename(to, from);
        moves[..done].iter().rev().try_for_each(back)?;
        if !was_marked {
            fs::remove_file(&mark)?;
        }
        if let Some(aside) = &aside {
            // It is empty: in nobody's way.
            let _ = fs::remove_dir(aside);
        }
        return Err(error);
    }
    if let Some(aside) = &aside {
        sync(aside)?;
    }
    sync(place)?;
    fs::remove_file(&mark)?;
    sync(place)?;
    Ok(aside)
}

/// `before-restore-20261117T143000Z`.
fn free_name(place: &Path, now: Timestamp) -> PathBuf {
    let named = |n: u32| match n {
        0 => place.join(format!("{ASIDE}{}", stamp(now))),
        n => place.join(format!("{ASIDE}{}-{n}", stamp(now))),
    };
    let free = (0..)
        .map(named)
        .find(|name| name.symlink_metadata().is_err());
    free.expect("there is a number that nobody took")
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// To another disk if it must be.
fn put(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(parent) = to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
        done => return done,
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => put(&entry.path(), &place)?,
            false => {
                fs::copy(entry.path(), &place)?;
                File::open(&place)?.sync_all()?;
            }
        }
    }
    sync_below(to)
}

/// Every folder; files are on disk since they were written.
fn sync_below(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_below(&entry.path())?;
        }
    }
    sync(folder)
}
