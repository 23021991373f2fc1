//! A worker's folder: who it is, and what it has not delivered yet. One process at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::executor::Place;
use crate::domain::protocol::Spooled;
use crate::domain::{AttemptRef, StepId};
use crate::lock::Lock;
use crate::wire::worker::SpooledJson;

/// Why a folder is not taken. One line: what is wrong, what to do.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error(
        "{folder} is used by another worker, stop it or name another folder with data_dir or --data-dir"
    )]
    Taken { folder: PathBuf },
    #[error("{path} cannot be used: {source}")]
    Unusable { path: PathBuf, source: io::Error },
    #[error(
        "{file} says that this worker belongs to another server: give it a folder of its own, or remove the file"
    )]
    OtherInstallation { file: PathBuf },
}

pub struct Folder {
    path: PathBuf,
    /// The same over all lives of the worker.
    pub instance_key: String,
    _lock: Lock,
}

impl Folder {
    pub fn open(path: &Path) -> Result<Folder, FolderError> {
        let unusable = |path: &Path| {
            let path = path.to_path_buf();
            |source| FolderError::Unusable { path, source }
        };
        // Commands run elsewhere, so it must be a path that means the same everywhere.
        let path = std::path::absolute(path).map_err(unusable(path))?;
        for folder in [path.clone(), path.join(SPOOL), path.join(ATTEMPTS)] {
            let mut builder = fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(&folder);
            made.map_err(unusable(&folder))?;
        }
        let lock_file = path.join("lock");
        let lock = private(OpenOptions::new().write(true).create(true)).open(&lock_file);
        let lock = lock.map_err(unusable(&lock_file))?;
        let lock = Lock::take(lock).map_err(|error| match error {
            Errno::WOULDBLOCK => FolderError::Taken {
                folder: path.clone(),
            },
            error => unusable(&lock_file)(error.into()),
        })?;
        let instance_file = path.join("instance");
        let instance_key = instance_key(&instance_file).map_err(unusable(&instance_file))?;
        Ok(Folder {
            path,
            instance_key,
            _lock: lock,
        })
    }

    /// A file of its own in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Pins the worker to the first installation that it meets.
    pub fn belongs_to(&self, installation: &str) -> Result<(), FolderError> {
        if self.may_belong_to(installation)? {
            return Ok(());
        }
        let path = self.installation_file();
        let written = write_whole(&path, installation.as_bytes());
        written.map_err(|source| FolderError::Unusable { path, source })
    }

    /// Fails if the worker belongs to another installation. Returns whether it belongs to this one already: a worker that belongs to
    /// none may belong to any.
    pub fn may_belong_to(&self, installation: &str) -> Result<bool, FolderError> {
        let file = self.installation_file();
        match fs::read_to_string(&file) {
            Ok(known) if known.trim() == installation => Ok(true),
            Ok(_) => Err(FolderError::OtherInstallation { file }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(FolderError::Unusable { path: file, source }),
        }
    }

    fn installation_file(&self) -> PathBuf {
        self.path.join("installation")
    }

    pub fn place(&self, attempt: AttemptRef) -> Place {
        let folder = self.path.join(ATTEMPTS).join(file_name(attempt));
        Place { folder }
    }

    /// Remembers whose log it is, for the next life.
    pub fn note_session(&self, attempt: AttemptRef, session_key: &str) -> io::Result<()> {
        let place = self.place(attempt);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&place.folder)?;
        write_whole(&place.folder.join(SESSION), session_key.as_bytes())
    }

    /// Nothing of the attempt is needed any more.
    pub fn clear(&self, attempt: AttemptRef) {
        let folder = self.place(attempt).folder;
        match fs::remove_dir_all(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A container may have left files of another user.
            Err(error) => log::warn!("{} cannot be removed: {error}", folder.display()),
        }
    }

    /// Attempts of former lives, with the sessions that they belonged to.
    pub fn leftovers(&self) -> Vec<(AttemptRef, String)> {
        let Ok(entries) = fs::read_dir(self.path.join(ATTEMPTS)) else {
            return Vec::new();
        };
        let names = entries.flatten().filter_map(|entry| {
            let attempt = attempt_of(entry.file_name().to_str()?)?;
            let session = fs::read_to_string(entry.path().join(SESSION)).unwrap_or_default();
            Some((attempt, session))
        });
        names.collect()
    }

    /// On disk when it returns.
    pub fn keep(&self, result: &Spooled) -> io::Result<()> {
        let json = serde_json::to_vec(&SpooledJson::from(result)).expect("plain data");
        write_whole(&self.spool_file(result.attempt), &json)
    }

    pub fn forget(&self, attempt: AttemptRef) {
        let file = self.spool_file(attempt);
        match fs::remove_file(&file) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => log::warn!("{} cannot be removed: {error}", file.display()),
        }
    }

    /// Results that former lives could not deliver.
    pub fn spooled(&self) -> Vec<Spooled> {
        let Ok(entries) = fs::read_dir(self.path.join(SPOOL)) else {
            return Vec::new();
        };
        let files = entries.flatten().map(|entry| entry.path());
        let files = files.filter(|file| file.extension().is_some_and(|kind| kind == "json"));
        files.filter_map(|file| read_spooled(&file)).collect()
    }

    fn spool_file(&self, attempt: AttemptRef) -> PathBuf {
        let name = format!("{}.json", file_name(attempt));
        self.path.join(SPOOL).join(name)
    }
}

const SPOOL: &str = "spool";
const ATTEMPTS: &str = "attempts";
const SESSION: &str = "session";

fn file_name(attempt: AttemptRef) -> String {
    format!("{}.{}", attempt.step_id, attempt.attempt)
}

fn attempt_of(name: &str) -> Option<AttemptRef> {
    let (step_id, attempt) = name.split_once('.')?;
    Some(AttemptRef {
        step_id: StepId(step_id.parse().ok()?),
        attempt: attempt.parse().ok()?,
    })
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

fn instance_key(file: &Path) -> io::Result<String> {
    match fs::read_to_string(file) {
        Ok(key) if !key.trim().is_empty() => Ok(key.trim().to_string()),
        Ok(_) => Err(io::Error::other("it is empty, remove it")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = random_key()?;
            write_whole(file, key.as_bytes())?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

/// 128 random bits, as text.
pub fn random_key() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// All of it is on disk under that name, or nothing is.
pub(super) fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = file.with_extension("new");
    let mut options = OpenOptions::new();
    let mut written = private(options.write(true).create(true).truncate(true)).open(&draft)?;
    written.write_all(bytes)?;
    written.sync_all()?;
    fs::rename(&draft, file)?;
    match file.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn read_spooled(file: &Path) -> Option<Spooled> {
    // No result of ours is longer, and one that is would keep all others from being taken.
    const RESULT_BYTES_MAX: u64 = 1 << 20;
    if file.metadata().ok()?.len() > RESULT_BYTES_MAX {
        log::error!("{} is no result and is left alone", file.display());
        return None;
    }
    let text = fs::read(file).ok()?;
    let result = serde_json::from_slice::<SpooledJson>(&text)
        .map_err(|error| error.to_string())
        .and_then(Spooled::try_from);
    match result {
        Ok(result) => Some(result),
        Err(fault) => {
            log::error!("{} is no result and is left alone: {fault}", file.display());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::protocol::Finished;

    fn attempt() -> AttemptRef {
        AttemptRef {
            step_id: StepId(7),
            attempt: 2,
        }
    }

    #[test]
    fn one_process_uses_a_folder_at_a_time_and_the_next_is_the_same_worker() {
        let folder = tempfile::tempdir().unwrap();
        let first = Folder::open(folder.path()).unwrap();
        let key = first.instance_key.clone();
        let second = Folder::open(folder.path());
        assert!(matches!(second, Err(FolderError::Taken { .. })));
        drop(first);
        assert_eq!(Folder::open(folder.path()).unwrap().instance_key, key);
    }

    #[test]
    fn a_result_is_kept_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Folder::open(folder.path()).unwrap();
        let result = Spooled {
            attempt: attempt(),
            session_key: "life".to_string(),
            finished: Finished::exited(3),
        };
        open().keep(&result).unwrap();
        fs::write(folder.path().join("spool/9.1.json"), "torn").unwrap();
        let kept = open().spooled();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].finished, result.finished);
        assert_eq!(
            (kept[0].attempt, kept[0].session_key.as_str()),
            (attempt(), "life")
        );
        open().forget(attempt());
        assert!(open().spooled().is_empty());
    }

    #[test]
    fn a_worker_stays_with_the_installation_that_it_met_first() {
        let folder = tempfile::tempdir().unwrap();
        let worker = Folder::open(folder.path()).unwrap();
        worker.belongs_to("one").unwrap();
        worker.belongs_to("one").unwrap();
        let other = worker.belongs_to("two");
        assert!(matches!(other, Err(FolderError::OtherInstallation { .. })));
    }

    #[test]
    fn what_a_former_life_left_is_known_with_its_session() {
        let folder = tempfile::tempdir().unwrap();
        let worker = Folder::open(folder.path()).unwrap();
        worker.note_session(attempt(), "life").unwrap();
        assert_eq!(worker.leftovers(), [(attempt(), "life".to_string())]);
        worker.clear(attempt());
        assert!(worker.leftovers().is_empty());
    }
}
