//! What was appended reaches the disk a little later, all at once: whoever appends does not wait for it. When, the server says.
//!
//! Noted is which logs have grown, not their descriptors: a sync through any descriptor is one of the file, and logs that were
//! closed meanwhile need not stay open for it. There is one note for each log that grows, however often it does.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use super::job_folder;
use super::names::LogName;

/// The logs that have grown since they were last synced.
pub(super) struct Unsynced {
    folder: PathBuf,
    /// Held only to note and to take notes, never during I/O. `true`: the file is new, so its folder has to be synced too.
    grown: Mutex<HashMap<LogName, bool>>,
}

/// What one round did.
#[derive(Debug, Default)]
pub struct SyncReport {
    pub logs: usize,
    pub folders: usize,
    /// These are tried again in the next round.
    pub failures: Vec<io::Error>,
}

impl Unsynced {
    pub fn new(folder: &Path) -> Unsynced {
        Unsynced {
            folder: folder.to_path_buf(),
            grown: Mutex::default(),
        }
    }

    pub fn note(&self, name: LogName, is_new: bool) {
        *self.lock().entry(name).or_default() |= is_new;
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Syncs everything that was noted before.
    pub fn sync_once(&self) -> SyncReport {
        let grown = std::mem::take(&mut *self.lock());
        let mut report = SyncReport::default();
        let mut new = Vec::new();
        for (name, is_new) in grown {
            match sync(&name.path(&self.folder, "log"), File::sync_data) {
                Ok(synced) => report.logs += usize::from(synced),
                Err(error) => {
                    self.note(name, is_new);
                    report.failures.push(error);
                    continue;
                }
            }
            if is_new {
                new.push(name);
            }
        }
        self.sync_folders(&new, &mut report);
        if let Some(first) = report.failures.first() {
            let count = report.failures.len();
            log::error!("{count} logs could not be synced to disk, the first: {first}");
        }
        report
    }

    /// That the files have names. The folders of their jobs may be new as well.
    fn sync_folders(&self, new: &[LogName], report: &mut SyncReport) {
        let jobs: BTreeSet<_> = new.iter().map(|name| name.key.job_id).collect();
        let mut folders: Vec<PathBuf> = jobs
            .iter()
            .map(|job_id| job_folder(&self.folder, *job_id))
            .collect();
        if !folders.is_empty() {
            folders.push(self.folder.clone());
        }
        for folder in folders {
            match sync(&folder, File::sync_all) {
                Ok(synced) => report.folders += usize::from(synced),
                Err(error) => {
                    let within =
                        |name: &&LogName| name.path(&self.folder, "log").starts_with(&folder);
                    for name in new.iter().filter(within) {
                        self.note(*name, true);
                    }
                    report.failures.push(error);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LogName, bool>> {
        self.grown.lock().expect("no panic while it is held")
    }
}

/// `false`: it is gone, and needs no sync.
fn sync(path: &Path, how: fn(&File) -> io::Result<()>) -> io::Result<bool> {
    let told =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    match File::open(path) {
        Ok(file) => how(&file).map(|()| true).map_err(told),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(told(error)),
    }
}
