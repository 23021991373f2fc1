//! The last epoch of the server that this worker has seen, kept in its folder: by it the server notices that its database was
//! rolled back.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use super::folder::{Folder, LineageFile};
use crate::client::EpochMemory;
use crate::domain::lineage::Epoch;

/// Shared by all calls of a worker.
pub struct SeenEpoch {
    file: LineageFile,
    seen: Mutex<Option<Epoch>>,
}

impl SeenEpoch {
    pub fn load(folder: &Folder) -> SeenEpoch {
        let file = folder.lineage_file();
        let seen = read(&file.path);
        if let Some(epoch) = &seen {
            file.remember(epoch.to_string());
        }
        let seen = Mutex::new(seen);
        SeenEpoch { file, seen }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Epoch>> {
        self.seen.lock().expect("no panic while it is held")
    }
}

/// A file that cannot be read only weakens the check: the worker goes on as one that has seen nothing yet.
fn read(file: &Path) -> Option<Epoch> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            log::warn!("{} cannot be read: {error}", file.display());
            return None;
        }
    };
    let epoch = Epoch::parse(&text);
    if epoch.is_none() {
        log::warn!("{} is not understood and is written anew", file.display());
    }
    epoch
}

impl EpochMemory for SeenEpoch {
    fn seen(&self) -> Option<Epoch> {
        self.lock().clone()
    }

    fn learn(&self, epoch: Epoch) {
        let mut seen = self.lock();
        if let Some(known) = &mut *seen
            && known.lineage == epoch.lineage
            && known.number >= epoch.number
        {
            // The file has the commit at which the epoch was first seen: writing it with each answer would cost too much.
            if known.start_key == epoch.start_key {
                known.commit = known.commit.max(epoch.commit);
            }
            return;
        }
        if seen
            .as_ref()
            .is_some_and(|known| known.lineage != epoch.lineage)
        {
            log::warn!(
                "the server goes on in a new lineage: a backup was restored, or an older database was accepted; it does not take \
                 results and logs of steps that this worker ran before"
            );
        }
        if let Err(error) = self.file.write(epoch.to_string()) {
            log::warn!("{} cannot be written: {error}", self.file.path.display());
        }
        *seen = Some(epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{AttemptRef, StepId};

    fn epoch(lineage: &str, number: i64, commit: i64) -> Epoch {
        Epoch {
            lineage: lineage.to_string(),
            number,
            start_key: format!("{number:02x}"),
            commit,
        }
    }

    #[test]
    fn the_last_epoch_is_remembered_over_restarts_and_a_late_answer_does_not_turn_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let load = || SeenEpoch::load(&Folder::open(folder.path()).unwrap());
        assert_eq!(load().seen(), None);
        let memory = load();
        memory.learn(epoch("a", 5, 50));
        memory.learn(epoch("a", 6, 60));
        memory.learn(epoch("a", 5, 59));
        assert_eq!(load().seen(), Some(epoch("a", 6, 60)));
        memory.learn(epoch("a", 6, 62));
        memory.learn(epoch("a", 6, 61));
        assert_eq!(memory.seen(), Some(epoch("a", 6, 62)));
        memory.learn(epoch("b", 1, 3));
        assert_eq!(load().seen(), Some(epoch("b", 1, 3)), "a new lineage");

        fs::write(folder.path().join("lineage"), "torn").unwrap();
        assert_eq!(load().seen(), None);
    }

    #[test]
    fn the_last_epoch_is_written_again_after_the_folder_was_deleted() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("worker");
        let attempt = AttemptRef {
            step_id: StepId(7),
            attempt: 2,
        };
        let folder = Folder::open(&path).unwrap();
        SeenEpoch::load(&folder).learn(epoch("a", 5, 50));
        fs::remove_dir_all(&path).unwrap();
        folder.begin(attempt, "life").unwrap();
        drop(folder);
        // A worker that has only read the epoch from the file remembers it as well.
        let folder = Folder::open(&path).unwrap();
        assert_eq!(SeenEpoch::load(&folder).seen(), Some(epoch("a", 5, 50)));
        fs::remove_dir_all(&path).unwrap();
        folder.begin(attempt, "life").unwrap();
        assert_eq!(SeenEpoch::load(&folder).seen(), Some(epoch("a", 5, 50)));
    }
}
