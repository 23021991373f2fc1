//! A worker's folder: who it is, and what it has not delivered yet. One process at a time.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;

use super::executor::Place;
use crate::domain::protocol::{LogDigest, Spooled};
use crate::domain::{AttemptRef, StepId};
use crate::lock::Lock;
use crate::whole_file;
use crate::wire::worker::{LogDigestJson, SpooledJson};

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
        "this worker belongs to another installation ({file}): use another --data-dir, or remove the file to move the worker"
    )]
    OtherInstallation { file: PathBuf },
}

pub struct Folder {
    path: PathBuf,
    /// The same over all lives of the worker.
    pub instance_key: String,
    lock: Mutex<Lock>,
    /// The installation that this worker belongs to, once it is known.
    installation: Mutex<Option<String>>,
    lineage: LineageFile,
    /// Held while the folder of an attempt is made or moved away, so that no attempt loses its folder to the removal of an earlier
    /// attempt with the same number.
    attempt_folders: Mutex<()>,
}

/// The file with the last epoch of the server that the worker has seen, and its text. Clones share the text.
#[derive(Clone)]
pub struct LineageFile {
    pub path: PathBuf,
    /// `None` until the text is known.
    text: Arc<Mutex<Option<String>>>,
}

impl LineageFile {
    /// Notes what the file says, to write the file again if somebody deletes the folder.
    pub fn remember(&self, text: String) {
        *self.lock() = Some(text);
    }

    /// Replaces the file. The text is remembered also if the file cannot be written now.
    pub fn write(&self, text: String) -> io::Result<()> {
        let mut known = self.lock();
        write_whole(&self.path, known.insert(text).as_bytes())
    }

    fn write_again(&self) -> io::Result<()> {
        match self.lock().as_deref() {
            Some(text) => write_whole(&self.path, text.as_bytes()),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.text.lock().expect("no panic while it is held")
    }
}

impl Folder {
    pub fn open(path: &Path) -> Result<Folder, FolderError> {
        let unusable = |path: &Path| {
            let path = path.to_path_buf();
            |source| FolderError::Unusable { path, source }
        };
        // Commands run elsewhere, so it must be a path that means the same everywhere.
        let path = std::path::absolute(path).map_err(unusable(path))?;
        make_folders(&path)?;
        let lock = take_lock(&path)?;
        remove_drafts(&path);
        remove_lone_digests(&path.join(SPOOL));
        let instance_file = path.join(INSTANCE);
        let instance_key = instance_key(&instance_file).map_err(unusable(&instance_file))?;
        let lineage = LineageFile {
            path: path.join(LINEAGE),
            text: Arc::default(),
        };
        Ok(Folder {
            path,
            instance_key,
            lock: Mutex::new(lock),
            installation: Mutex::default(),
            lineage,
            attempt_folders: Mutex::default(),
        })
    }

    /// Makes the folder again if somebody deleted it while the worker runs, such as a step that ran `rm -rf` on it. An error
    /// means that the worker cannot keep anything there now, or that another worker uses the folder by now.
    fn restore(&self) -> Result<(), FolderError> {
        let mut lock = self.lock.lock().expect("no panic while it is held");
        if lock.is_at(&self.path.join(LOCK)) {
            return make_folders(&self.path);
        }
        make_folders(&self.path)?;
        *lock = take_lock(&self.path)?;
        let unusable = |source| FolderError::Unusable {
            path: self.path.clone(),
            source,
        };
        let instance_key = self.instance_key.as_bytes();
        write_whole(&self.path.join(INSTANCE), instance_key).map_err(unusable)?;
        let installation = self.installation.lock().expect("no panic while it is held");
        if let Some(installation) = installation.as_deref() {
            write_whole(&self.path.join(INSTALLATION), installation.as_bytes())
                .map_err(unusable)?;
        }
        self.lineage.write_again().map_err(unusable)?;
        log::error!(
            "the worker's folder {} was deleted while the worker ran, and was made again: results that were not reported yet \
             may be lost if the worker ends now, and an enrolled worker has to be enrolled again",
            self.path.display()
        );
        Ok(())
    }

    /// The path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn lineage_file(&self) -> LineageFile {
        self.lineage.clone()
    }

    /// Pins the worker to the first installation that it meets.
    pub fn belongs_to(&self, installation: &str) -> Result<(), FolderError> {
        if !self.may_belong_to(installation)? {
            let path = self.installation_file();
            let written = write_whole(&path, installation.as_bytes());
            written.map_err(|source| FolderError::Unusable { path, source })?;
        }
        let mut known = self.installation.lock().expect("no panic while it is held");
        *known = Some(installation.to_string());
        Ok(())
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
        self.path.join(INSTALLATION)
    }

    pub fn place(&self, attempt: AttemptRef) -> Place {
        let folder = self.path.join(ATTEMPTS).join(file_name(attempt));
        Place { folder }
    }

    /// Makes the attempt's folder and writes there which session the attempt belongs to: after a restart the worker sends the
    /// attempt's log under that session. If that fails, nothing is left behind.
    ///
    /// A folder that an attempt of another session left under the same number is removed first. Numbers repeat only after the
    /// server has restored an older database, and the server does not take the log of that session any more.
    pub fn begin(&self, attempt: AttemptRef, session_key: &str) -> io::Result<()> {
        self.restore().map_err(io::Error::other)?;
        let _guard = self.lock_attempt_folders();
        let folder = self.place(attempt).folder;
        if fs::symlink_metadata(&folder).is_ok()
            && session_of(&folder).as_deref() != Some(session_key)
        {
            log::warn!(
                "{} belongs to an attempt of a former session with the same number and is removed: the rest of that attempt's log \
                 cannot be delivered any more",
                folder.display()
            );
            self.discard(attempt)?;
        }
        self.make_attempt_folder(attempt, session_key)
    }

    fn make_attempt_folder(&self, attempt: AttemptRef, session_key: &str) -> io::Result<()> {
        let made = self.note_session(attempt, session_key);
        if made.is_err()
            && let Err(error) = self.discard(attempt)
        {
            let folder = self.place(attempt).folder;
            log::warn!("{} cannot be removed: {error}", folder.display());
        }
        made
    }

    fn lock_attempt_folders(&self) -> MutexGuard<'_, ()> {
        let lock = self.attempt_folders.lock();
        lock.expect("no panic while it is held")
    }

    fn note_session(&self, attempt: AttemptRef, session_key: &str) -> io::Result<()> {
        let place = self.place(attempt);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&place.folder)?;
        write_whole(&place.folder.join(SESSION), session_key.as_bytes())
    }

    /// Removes the folder of an attempt of this session. A folder that belongs to a later attempt with the same number stays.
    pub fn clear(&self, attempt: AttemptRef, session_key: &str) {
        let _guard = self.lock_attempt_folders();
        let folder = self.place(attempt).folder;
        if session_of(&folder).is_some_and(|owner| owner != session_key) {
            return;
        }
        if let Err(error) = self.discard(attempt) {
            log::warn!("{} cannot be removed: {error}", folder.display());
        }
    }

    /// Gives the attempt's folder another name, so that its place is free at once, and then removes it in the background.
    fn discard(&self, attempt: AttemptRef) -> io::Result<()> {
        let name = format!("{}{DISCARDED}{}", file_name(attempt), random_key()?);
        let discarded = self.path.join(ATTEMPTS).join(name);
        match fs::rename(self.place(attempt).folder, &discarded) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        remove_in_background(vec![discarded]);
        Ok(())
    }

    /// Removes the discarded folders that a former life of the worker had no time to remove.
    pub fn remove_discarded(&self) {
        let entries = fs::read_dir(self.path.join(ATTEMPTS)).into_iter().flatten();
        let names = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| name.contains(DISCARDED))
        });
        let folders: Vec<PathBuf> = names.map(|entry| entry.path()).collect();
        if !folders.is_empty() {
            remove_in_background(folders);
        }
    }

    /// Attempts of former lives, with the sessions that they belonged to.
    pub fn leftovers(&self) -> Vec<(AttemptRef, String)> {
        let Ok(entries) = fs::read_dir(self.path.join(ATTEMPTS)) else {
            return Vec::new();
        };
        let names = entries.flatten().filter_map(|entry| {
            let attempt = attempt_of(entry.file_name().to_str()?)?;
            Some((attempt, session_of(&entry.path()).unwrap_or_default()))
        });
        names.collect()
    }

    /// On disk when it returns.
    pub fn keep(&self, result: &Spooled) -> io::Result<()> {
        self.restore().map_err(io::Error::other)?;
        let json = serde_json::to_vec(&SpooledJson::from(result)).expect("plain data");
        write_whole(&self.spool_file(result.attempt), &json)
    }

    /// Notes what was written of the attempt's log, for a result that the next life of the worker has to deliver. A file of its own:
    /// a worker of version 0.1 reads the result, and takes no field in it that it does not know. Without the note the server does
    /// not compare the log, so it need not survive a loss of power.
    pub fn keep_log_digest(&self, attempt: AttemptRef, log: LogDigest) -> io::Result<()> {
        let json = serde_json::to_vec(&LogDigestJson::from(log)).expect("plain data");
        whole_file::write(&self.log_digest_file(attempt), 0o600, &json)
    }

    /// `None`: it was not noted, or cannot be read.
    pub fn log_digest(&self, attempt: AttemptRef) -> Option<LogDigest> {
        let text = fs::read(self.log_digest_file(attempt)).ok()?;
        let json: LogDigestJson = serde_json::from_slice(&text).ok()?;
        Some(json.into())
    }

    /// Forgets the result, and what was written of the log.
    pub fn forget(&self, attempt: AttemptRef) {
        // In this order: a note without a result is removed at the next start.
        remove(&self.spool_file(attempt));
        remove(&self.log_digest_file(attempt));
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

    fn log_digest_file(&self, attempt: AttemptRef) -> PathBuf {
        self.spool_file(attempt).with_extension(LOG_DIGEST)
    }
}

const SPOOL: &str = "spool";
/// How the name of a file ends that says what was written of a log.
const LOG_DIGEST: &str = "log";
const ATTEMPTS: &str = "attempts";
const SESSION: &str = "session";
const LOCK: &str = "lock";
const INSTANCE: &str = "instance";
const INSTALLATION: &str = "installation";
const LINEAGE: &str = "lineage";
/// In the name of a folder of an attempt that is being removed, between the attempt and a random key.
const DISCARDED: &str = ".discarded-";

/// The session that the folder of an attempt belongs to. `None`: the folder does not say.
fn session_of(folder: &Path) -> Option<String> {
    fs::read_to_string(folder.join(SESSION)).ok()
}

/// On a thread of its own: a step may have left a million files.
fn remove_in_background(folders: Vec<PathBuf>) {
    let remove = move || {
        for folder in folders {
            match fs::remove_dir_all(&folder) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // A container may have left files of another user.
                Err(error) => log::warn!("{} cannot be removed: {error}", folder.display()),
            }
        }
    };
    let thread = std::thread::Builder::new().name("worker-clear".to_string());
    if let Err(error) = thread.spawn(remove) {
        log::warn!("folders of ended attempts stay until the worker's next start: {error}");
    }
}

fn make_folders(path: &Path) -> Result<(), FolderError> {
    for folder in [path.to_path_buf(), path.join(SPOOL), path.join(ATTEMPTS)] {
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&folder);
        made.map_err(|source| FolderError::Unusable {
            path: folder,
            source,
        })?;
    }
    Ok(())
}

fn take_lock(path: &Path) -> Result<Lock, FolderError> {
    let file = path.join(LOCK);
    let unusable = |source| FolderError::Unusable {
        path: file.clone(),
        source,
    };
    let opened = private(OpenOptions::new().write(true).create(true)).open(&file);
    Lock::take(opened.map_err(unusable)?).map_err(|error| match error {
        Errno::WOULDBLOCK => FolderError::Taken {
            folder: path.to_path_buf(),
        },
        error => unusable(error.into()),
    })
}

/// Removes what a killed worker left half written. Nobody else may use the folder.
fn remove_drafts(path: &Path) {
    let attempts = fs::read_dir(path.join(ATTEMPTS)).into_iter().flatten();
    let attempts = attempts.flatten().map(|entry| entry.path());
    let folders = [path.to_path_buf(), path.join(SPOOL)].into_iter();
    for folder in folders.chain(attempts) {
        whole_file::remove_drafts(&folder);
    }
}

/// Removes what is noted of logs whose results are gone: the worker was killed in between, or a worker of version 0.1 delivered
/// them.
fn remove_lone_digests(spool: &Path) {
    for entry in fs::read_dir(spool).into_iter().flatten().flatten() {
        let file = entry.path();
        let is_digest = file.extension().is_some_and(|end| end == LOG_DIGEST);
        if is_digest && !file.with_extension("json").exists() {
            remove(&file);
        }
    }
}

fn remove(file: &Path) {
    match fs::remove_file(file) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => log::warn!("{} cannot be removed: {error}", file.display()),
    }
}

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

/// All of it is on disk under that name, for this user alone, or nothing is.
pub(super) fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    whole_file::write_durably(file, 0o600, bytes)
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
    fn what_was_written_of_a_log_is_kept_beside_the_result_and_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = LogDigest {
            length: 40,
            crc32: 7,
        };
        let result = Spooled {
            attempt: attempt(),
            session_key: "life".to_string(),
            finished: Finished::exited(3),
        };
        let worker = Folder::open(folder.path()).unwrap();
        worker.keep_log_digest(attempt(), log).unwrap();
        worker.keep(&result).unwrap();
        drop(worker);
        let kept = fs::read_to_string(folder.path().join("spool/7.2.json")).unwrap();
        let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
        let fields: Vec<&String> = kept.as_object().unwrap().keys().collect();
        let of_0_1 = ["attempt", "finished", "session", "step_id"];
        assert_eq!(fields, of_0_1, "version 0.1 takes no other field");
        let worker = Folder::open(folder.path()).unwrap();
        assert_eq!(worker.log_digest(attempt()), Some(log));
        worker.forget(attempt());
        assert_eq!(worker.log_digest(attempt()), None);
        // The worker is killed before the result is kept.
        worker.keep_log_digest(attempt(), log).unwrap();
        drop(worker);
        let worker = Folder::open(folder.path()).unwrap();
        assert_eq!(worker.log_digest(attempt()), None);
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
        worker.begin(attempt(), "life").unwrap();
        assert_eq!(worker.leftovers(), [(attempt(), "life".to_string())]);
        worker.clear(attempt(), "life");
        assert!(worker.leftovers().is_empty());
    }

    #[test]
    fn an_attempt_whose_folder_cannot_be_written_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let worker = Folder::open(folder.path()).unwrap();
        let place = worker.place(attempt()).folder;
        // A file cannot replace a folder, so the write fails at its last step, with everything before it on disk.
        fs::create_dir_all(place.join("session")).unwrap();
        worker.make_attempt_folder(attempt(), "life").unwrap_err();
        assert!(!place.exists());
    }

    #[test]
    fn an_attempt_does_not_start_in_the_folder_of_another_sessions_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let worker = Folder::open(folder.path()).unwrap();
        let log = worker.place(attempt()).log();
        worker.begin(attempt(), "before").unwrap();
        fs::write(&log, "old").unwrap();
        worker.begin(attempt(), "before").unwrap();
        assert!(log.exists(), "the same session finds its folder again");

        worker.begin(attempt(), "after").unwrap();
        assert!(!log.exists());
        assert_eq!(worker.leftovers(), [(attempt(), "after".to_string())]);
        // The earlier attempt's log is given up only now.
        worker.clear(attempt(), "before");
        assert_eq!(worker.leftovers(), [(attempt(), "after".to_string())]);
        worker.clear(attempt(), "after");
        assert!(worker.leftovers().is_empty());
    }

    #[test]
    fn discarded_folders_are_removed_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let worker = Folder::open(folder.path()).unwrap();
        let discarded = folder.path().join("attempts/7.2.discarded-0123");
        fs::create_dir_all(discarded.join("workspace")).unwrap();
        assert!(worker.leftovers().is_empty());
        worker.remove_discarded();
        while discarded.exists() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_a_killed_worker_left_half_written_goes_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let worker = Folder::open(folder.path()).unwrap();
        worker.begin(attempt(), "life").unwrap();
        drop(worker);
        let drafts = ["instance.new", "spool/7.2.new", "attempts/7.2/session.new"];
        for draft in drafts {
            fs::write(folder.path().join(draft), "half").unwrap();
        }
        let worker = Folder::open(folder.path()).unwrap();
        for draft in drafts {
            assert!(!folder.path().join(draft).exists(), "{draft}");
        }
        assert_eq!(worker.leftovers(), [(attempt(), "life".to_string())]);
    }

    #[test]
    fn a_folder_that_was_deleted_is_made_again_for_the_same_worker() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("worker");
        let worker = Folder::open(&path).unwrap();
        worker.belongs_to("one").unwrap();
        fs::remove_dir_all(&path).unwrap();
        worker.begin(attempt(), "life").unwrap();
        assert_eq!(worker.leftovers(), [(attempt(), "life".to_string())]);
        assert!(matches!(
            Folder::open(&path),
            Err(FolderError::Taken { .. })
        ));
        let key = worker.instance_key.clone();
        drop(worker);
        let next = Folder::open(&path).unwrap();
        assert_eq!(next.instance_key, key);
        next.belongs_to("one").unwrap();
        assert!(next.belongs_to("two").is_err());
    }
}
