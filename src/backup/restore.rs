//! How a backup becomes a data folder: unpacked beside its place, looked at from the first page to the last rule, and put there
//! by one rename. Until then nothing of what was there has been touched; afterwards it is still there, under another name.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::open::{Contents, Keep, newer_schema, unpack};
use super::{BackupError, DATA, ROOT, SETTINGS, WORKFLOWS, stamp};
use crate::domain::Timestamp;
use crate::domain::event::{EventKind, NewEvent};
use crate::store::{CopyError, DATABASE_FILE, OpenError, Stopped, Taken, take_copy};
use crate::words;

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
    let folder = tempfile::Builder::new()
        .prefix("stepward-verify.")
        .tempdir();
    let target = |error| BackupError::Target(std::env::temp_dir(), error);
    let folder = folder.map_err(target)?;
    let contents = unpack(source, folder.path(), Keep::Database)?;
    take(&contents, &folder.path().join(below(DATA)), now)?;
    Ok(contents)
}

pub fn restore(source: impl Read, asked: &Restore) -> Result<Restored, BackupError> {
    // A name, whatever a path begins or ends with: the folder beside it needs one.
    let place = std::path::absolute(asked.data_dir);
    let place = place.map_err(|error| BackupError::Target(asked.data_dir.into(), error))?;
    let target = |error| BackupError::Target(place.clone(), error);
    let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else {
        return Err(refused("the root of the file system is no data folder"));
    };
    let in_the_way = is_in_the_way(&place)?;
    if in_the_way && !asked.force {
        return Err(refused(format!(
            "{} is not empty: name a new folder, or say --force to move it aside",
            words::shown_path(&place)
        )));
    }
    if in_the_way {
        refuse_running(&place)?;
    }
    if let Some(folder) = asked.workflows_dir
        && std::path::absolute(folder).is_ok_and(|folder| folder.starts_with(&place))
    {
        return Err(refused(format!(
            "--workflows-dir lies below {}, leave it out: they come to `workflows` there by themselves",
            words::shown_path(&place)
        )));
    }
    if let Some(folder) = asked.workflows_dir
        && is_in_the_way(folder)?
    {
        return Err(refused(format!(
            "{} is not empty: name a new folder with --workflows-dir, nothing of yours is written over",
            words::shown_path(folder)
        )));
    }
    // A folder that is there and empty may be where a disk is, or all that its user may write to: it stays, and is filled.
    let is_there = place.is_dir() && !in_the_way;
    let workshop = if is_there { place.as_path() } else { parent };
    fs::create_dir_all(workshop).map_err(target)?;
    let beside = tempfile::Builder::new()
        .prefix(&format!(".{}.restoring-", name.to_string_lossy()))
        .tempdir_in(workshop)
        .map_err(target)?;
    let contents = unpack(source, beside.path(), Keep::Everything)?;
    let data = beside.path().join(below(DATA));
    take(&contents, &data, asked.now)?;

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
    let mut moved_aside = None;
    if in_the_way {
        let aside = free_name(&place, asked.now);
        fs::rename(&place, &aside).map_err(target)?;
        moved_aside = Some(aside);
    }
    if is_there {
        fill(&data, &place).map_err(target)?;
    } else if let Err(error) = fs::rename(&data, &place) {
        if let Some(aside) = &moved_aside {
            // As it was: what cannot be put back is still where we say that it is.
            let _ = fs::rename(aside, &place);
        }
        return Err(BackupError::Target(place, error));
    }
    let synced = File::open(workshop).and_then(|folder| folder.sync_all());
    synced.map_err(target)?;
    Ok(Restored {
        settings_file: has_settings.then(|| asked.data_dir.join(below(SETTINGS))),
        contents,
        workflows_dir,
        moved_aside,
    })
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
fn take(contents: &Contents, data: &Path, now: Timestamp) -> Result<(), BackupError> {
    let made_at = contents.manifest.made_at;
    let text = format!(
        "the server goes on from a backup of {}: what happened since is not known here, and every worker opens a new session",
        words::moment(made_at)
    );
    let event = NewEvent::new(EventKind::BackupRestored, text);
    let taken = take_copy(data, event, now).map_err(|error| match error {
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
    } = taken;
    if let Some(first) = breaches.first() {
        return Err(BackupError::Broken {
            count: breaches.len(),
            first: words::printable(&first.to_string()),
        });
    }
    let manifest = &contents.manifest;
    match manifest.schema_version == schema_version && manifest.installation == installation {
        true => Ok(()),
        false => Err(BackupError::Damaged(
            "its manifest speaks of another database".to_string(),
        )),
    }
}

/// Something is there already.
fn is_in_the_way(folder: &Path) -> Result<bool, BackupError> {
    match fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(BackupError::Target(folder.into(), error)),
    }
}

/// A server that runs on would go on with files that have another name by then.
fn refuse_running(folder: &Path) -> Result<(), BackupError> {
    if !folder.join(DATABASE_FILE).exists() {
        return Ok(());
    }
    match Stopped::take(folder) {
        Err(error @ OpenError::InUse { .. }) => Err(refused(format!(
            "{}; a backup is restored while its server is stopped",
            error
                .to_string()
                .trim_end_matches(" or choose another data_dir")
                .trim_end_matches(',')
        ))),
        // What cannot be taken for another reason may be why somebody restores.
        _ => Ok(()),
    }
}

/// `data.before-restore-20261117T143000Z`.
fn free_name(place: &Path, now: Timestamp) -> PathBuf {
    let named = |n: u32| {
        let mut name = place.as_os_str().to_os_string();
        name.push(format!(".before-restore-{}", stamp(now)));
        if n > 0 {
            name.push(format!("-{n}"));
        }
        PathBuf::from(name)
    };
    let free = (0..)
        .map(named)
        .find(|name| name.symlink_metadata().is_err());
    free.expect("there is a number that nobody took")
}

/// What is in one folder comes into the other; the database last, so that half of it is never taken for all.
fn fill(from: &Path, to: &Path) -> io::Result<()> {
    let names = fs::read_dir(from)?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort_by_key(|name| name == DATABASE_FILE);
    for name in names {
        fs::rename(from.join(&name), to.join(&name))?;
    }
    Ok(())
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
    File::open(folder)?.sync_all()
}
