//! A folder that one process at a time has, by a lock on a file in it.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, Result};

/// Held for as long as this lives, and by no process that outlives it.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// `Errno::WOULDBLOCK` if another has it. Whoever was just killed may take a moment to be gone, and a command that it was
    /// starting that very moment another one.
    pub fn take(file: File) -> Result<Lock> {
        const TRIES: u32 = 20;
        const PAUSE: Duration = Duration::from_millis(50);
        for _ in 0..TRIES {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
                taken => return taken.map(|()| Lock { file }),
            }
        }
        Err(Errno::WOULDBLOCK)
    }

    /// Whether a process has the lock of this file now. A file that cannot be read is not held.
    pub fn is_held(path: &Path) -> bool {
        let Ok(file) = File::open(path) else {
            return false;
        };
        // Released at once, when the file is closed. Whoever takes the lock at this very moment tries again.
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    }

    /// Whether the locked file is still the file at this path. It is not if somebody deleted or replaced the file.
    pub fn is_at(&self, path: &Path) -> bool {
        let held = self.file.metadata();
        let found = path.symlink_metadata();
        let identity = |file: &Metadata| (file.dev(), file.ino());
        matches!((held, found), (Ok(held), Ok(found)) if identity(&held) == identity(&found))
    }

    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file would leave it to a command that another thread is about to start: until it runs it has this file open
        // too. If this fails, closing is what is left.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_just_started_does_not_keep_what_was_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let file = File::create(&path).unwrap();
        // As a command has it between its birth and its first instruction.
        let inherited = file.try_clone().unwrap();
        assert!(!Lock::is_held(&path));
        let lock = Lock::take(file).unwrap();
        assert!(Lock::is_held(&path));
        let refused = Lock::take(File::open(&path).unwrap()).unwrap_err();
        assert_eq!(refused, Errno::WOULDBLOCK);
        drop(lock);
        assert!(!Lock::is_held(&path));
        assert!(Lock::take(File::open(&path).unwrap()).is_ok());
        drop(inherited);
    }
}
