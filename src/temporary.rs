//! Temporary folders and files that a killed process does not leave behind for ever.
//!
//! A process holds a lock on each of its temporary files, and on a file in each of its temporary folders. The kernel releases the
//! lock when the process ends, however it ends. Each time a process makes a temporary folder or file, it removes those whose lock
//! nobody holds: they belonged to processes that were killed. A lock cannot be mistaken for another process's, as a process id can.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::NamedTempFile;

/// Every temporary folder of ours has a name that starts with this.
const NAME_PREFIX: &str = "stepward-";
/// The file in each folder whose lock says that the folder is in use. A folder without this file was not made here.
const LOCK_FILE: &str = ".in-use";
const CREATE_TRIES_MAX: u32 = 100;

/// A folder that only this user can enter. It is removed with everything in it when the value is dropped.
#[derive(Debug)]
pub struct TemporaryFolder {
    path: PathBuf,
    _lock: File,
}

impl TemporaryFolder {
    /// Makes `stepward-PURPOSE-RANDOM` in the system's folder for temporary files, and removes what killed processes left there.
    pub fn create(purpose: &str) -> io::Result<TemporaryFolder> {
        TemporaryFolder::create_in(&std::env::temp_dir(), purpose)
    }

    pub fn create_in(parent: &Path, purpose: &str) -> io::Result<TemporaryFolder> {
        let parent = std::path::absolute(parent)?;
        remove_abandoned(&parent);
        for _ in 0..CREATE_TRIES_MAX {
            let name = format!("{NAME_PREFIX}{purpose}-{}", random_name()?);
            let path = parent.join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            match lock_new(&path) {
                Ok(Some(_lock)) => return Ok(TemporaryFolder { path, _lock }),
                // Another process took the folder for an abandoned one before it was locked.
                Ok(None) => {}
                Err(error) => {
                    // Nobody uses it yet. The caller gets the first error.
                    let _ = fs::remove_dir_all(&path);
                    return Err(error);
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = remove_contents_first(&self.path) {
            log::warn!("{} cannot be removed: {error}", self.path.display());
        }
    }
}

/// Makes a file that only this user can read, whose name starts with the prefix, and removes what killed processes left there under
/// such a name. The file is removed when the value is dropped.
pub fn create_file_in(folder: &Path, prefix: &str) -> io::Result<NamedTempFile> {
    remove_abandoned_files(folder, prefix);
    for _ in 0..CREATE_TRIES_MAX {
        let file = (tempfile::Builder::new().prefix(prefix)).tempfile_in(folder)?;
        match flock(file.as_file(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(file.as_file(), file.path())? => return Ok(file),
            // Another process took the file for an abandoned one before it was locked.
            Ok(()) | Err(Errno::WOULDBLOCK) => {}
            // A file system without locks: nobody can take the file for an abandoned one there.
            Err(_) => return Ok(file),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Removes files with such a name whose processes have ended.
pub fn remove_abandoned_files(folder: &Path, prefix: &str) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        if !name.as_encoded_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        let path = entry.path();
        if let Some(_lock) = lock_abandoned_file(&path) {
            match fs::remove_file(&path) {
                Ok(()) => log::info!("removed {}, left by a killed process", path.display()),
                Err(error) => log::warn!(
                    "{} was left by a killed process and cannot be removed: {error}",
                    path.display()
                ),
            }
        }
    }
}

/// The lock of a file of this user whose process has ended. `None` for anything else: a link, another user's, readable by others, or
/// in use.
fn lock_abandoned_file(path: &Path) -> Option<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let found = path.symlink_metadata().ok()?;
    if !found.is_file() || found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return None;
    }
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    is_at(&file, path).ok()?.then_some(file)
}

/// Whether this open file is still the file at the path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    let found = path.symlink_metadata();
    Ok(found.is_ok_and(|found| (found.dev(), found.ino()) == (held.dev(), held.ino())))
}

fn random_name() -> io::Result<String> {
    let mut bytes = [0; 6];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `None`: another process removes the folder, or has removed it.
fn lock_new(folder: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let lock_file = folder.join(LOCK_FILE);
    let file = match options.open(&lock_file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        // A file system without locks: nobody can take the folder for an abandoned one there.
        Err(_) => return Ok(Some(file)),
    }
    // A process that removes an abandoned folder holds this lock while it does so. Now that the lock is ours, the folder stays.
    Ok(is_at(&file, &lock_file)?.then_some(file))
}

/// Removes the temporary folders of processes that have ended. A folder that cannot be removed stays, and is tried again next time.
fn remove_abandoned(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        if !name.as_encoded_bytes().starts_with(NAME_PREFIX.as_bytes()) {
            continue;
        }
        let path = entry.path();
        if let Some(_lock) = lock_abandoned(&path) {
            match remove_contents_first(&path) {
                Ok(()) => log::info!("removed {}, left by a killed process", path.display()),
                Err(error) => log::warn!(
                    "{} was left by a killed process and cannot be removed: {error}",
                    path.display()
                ),
            }
        }
    }
}

/// The lock of a folder that was made here by this user and whose process has ended. `None` for anything else: nothing is removed
/// that is a link, another user's, open to others, without our lock file, or in use.
fn lock_abandoned(folder: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, Mode::empty()).ok()?;
    let found = rustix::fs::fstat(&opened).ok()?;
    if found.st_uid != geteuid().as_raw() || found.st_mode & 0o077 != 0 {
        return None;
    }
    let lock = statat(&opened, LOCK_FILE, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let kind = rustix::fs::FileType::from_raw_mode(lock.st_mode);
    if kind != rustix::fs::FileType::RegularFile || lock.st_uid != found.st_uid {
        return None;
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let lock = File::from(openat(&opened, LOCK_FILE, flags, Mode::empty()).ok()?);
    flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(lock)
}

/// Removes the lock file last: if the removal is interrupted, the next start can still recognise the folder. No link is followed.
fn remove_contents_first(folder: &Path) -> io::Result<()> {
    // A thread of the process that is about to end may still write to the folder.
    const TRIES_MAX: u32 = 5;
    for _ in 1..TRIES_MAX {
        if try_remove(folder).is_ok() {
            return Ok(());
        }
    }
    try_remove(folder)
}

fn try_remove(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == LOCK_FILE {
            continue;
        }
        let removed = match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let lock_file = folder.join(LOCK_FILE);
    fs::remove_file(&lock_file)?;
    let removed = fs::remove_dir(folder);
    if removed.is_err() {
        // Without this file the folder would stay for ever. The caller gets the first error.
        let _ = File::create(&lock_file);
    }
    removed
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A folder as a killed process leaves it.
    fn abandoned(parent: &Path) -> PathBuf {
        let folder = TemporaryFolder::create_in(parent, "run").unwrap();
        fs::create_dir_all(folder.path().join("data/worker")).unwrap();
        fs::write(folder.path().join("data/worker/log"), "x").unwrap();
        let path = folder.path().to_path_buf();
        let TemporaryFolder { _lock, .. } = &folder;
        flock(_lock, FlockOperation::Unlock).unwrap();
        std::mem::forget(folder);
        path
    }

    #[test]
    fn a_folder_goes_with_its_owner() {
        let parent = tempfile::tempdir().unwrap();
        let folder = TemporaryFolder::create_in(parent.path(), "run").unwrap();
        let path = folder.path().to_path_buf();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(path.join("file"), "x").unwrap();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn the_folder_of_a_killed_process_is_removed_and_the_folder_of_a_living_one_stays() {
        let parent = tempfile::tempdir().unwrap();
        let living = TemporaryFolder::create_in(parent.path(), "demo").unwrap();
        let killed = abandoned(parent.path());
        assert!(killed.exists());
        let next = TemporaryFolder::create_in(parent.path(), "run").unwrap();
        assert!(!killed.exists());
        assert!(living.path().exists() && next.path().exists());
    }

    #[test]
    fn what_was_not_made_here_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let path = |name: &str| parent.path().join(name);
        // A folder of a person, with a name like ours.
        fs::create_dir(path("stepward-notes")).unwrap();
        // A link to a folder that looks like ours.
        let target = abandoned(elsewhere.path());
        symlink(&target, path("stepward-link")).unwrap();
        // A folder whose lock is a link to a file of somebody else.
        fs::create_dir(path("stepward-lock-link")).unwrap();
        fs::set_permissions(
            path("stepward-lock-link"),
            fs::Permissions::from_mode(0o700),
        )
        .unwrap();
        symlink(target.join(LOCK_FILE), path("stepward-lock-link/.in-use")).unwrap();
        // A folder that others can enter.
        let open = abandoned(parent.path());
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        // One that has another name.
        let renamed = abandoned(parent.path());
        fs::rename(&renamed, path("mine")).unwrap();
        TemporaryFolder::create_in(parent.path(), "run").unwrap();
        for name in [
            "stepward-notes",
            "stepward-link",
            "stepward-lock-link",
            "mine",
        ] {
            assert!(path(name).symlink_metadata().is_ok(), "{name}");
        }
        assert!(open.exists() && target.exists());
    }

    #[test]
    fn the_file_of_a_killed_process_is_removed_and_no_other() {
        let parent = tempfile::tempdir().unwrap();
        let path = |name: &str| parent.path().join(name);
        let living = create_file_in(parent.path(), "copy.").unwrap();
        let killed = create_file_in(parent.path(), "copy.").unwrap();
        flock(killed.as_file(), FlockOperation::Unlock).unwrap();
        let killed = killed.keep().unwrap().1;
        fs::write(path("copy.of-a-person"), "x").unwrap();
        fs::set_permissions(path("copy.of-a-person"), fs::Permissions::from_mode(0o644)).unwrap();
        symlink(path("copy.of-a-person"), path("copy.link")).unwrap();
        let next = create_file_in(parent.path(), "copy.").unwrap();
        assert!(!killed.exists());
        assert!(living.path().exists() && next.path().exists());
        assert!(path("copy.of-a-person").exists() && path("copy.link").exists());
    }

    #[test]
    fn a_link_inside_an_abandoned_folder_is_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("precious"), "x").unwrap();
        let killed = abandoned(parent.path());
        symlink(elsewhere.path(), killed.join("link")).unwrap();
        symlink(elsewhere.path(), killed.join("data/link")).unwrap();
        TemporaryFolder::create_in(parent.path(), "run").unwrap();
        assert!(!killed.exists());
        assert!(elsewhere.path().join("precious").exists());
    }
}
