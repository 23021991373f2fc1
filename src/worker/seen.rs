//! The last epoch of the server that this worker has seen, kept in its folder: by it the server notices that its database was
//! rolled back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use super::folder::{Folder, write_whole};
use crate::client::EpochMemory;
use crate::domain::lineage::Epoch;

/// In the folder of the worker, beside `installation`.
const FILE: &str = "lineage";

/// Shared by all calls of a worker.
pub struct SeenEpoch {
    file: PathBuf,
    seen: Mutex<Option<Epoch>>,
}

impl SeenEpoch {
    pub fn load(folder: &Folder) -> SeenEpoch {
        let file = folder.file(FILE);
        let seen = Mutex::new(read(&file));
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
        if let Err(error) = write_whole(&self.file, epoch.to_string().as_bytes()) {
            log::warn!("{} cannot be written: {error}", self.file.display());
        }
        *seen = Some(epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

        fs::write(folder.path().join(FILE), "torn").unwrap();
        assert_eq!(load().seen(), None);
    }
}
