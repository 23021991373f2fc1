//! How much room the logs take: measured a few files at a time, since there may be millions of them.

use std::fs::{self, ReadDir};
use std::io;
use std::path::{Path, PathBuf};

/// Files that are looked at in one go.
pub const FILES_AT_ONCE: usize = 256;

/// After a look at all of them it rests three times as long as that took.
const REST: usize = 3;

/// A walk through all logs that goes on where it stopped.
#[derive(Default)]
pub struct Measure {
    /// The folder of all jobs, then the folder of one.
    open: Vec<ReadDir>,
    bytes: u64,
    goes: usize,
    rest: usize,
}

impl Measure {
    /// Looks at the next few. Returns what all take, once all were seen.
    pub fn go_on(&mut self, folder: &Path) -> io::Result<Option<u64>> {
        if self.rest > 0 {
            self.rest -= 1;
            return Ok(None);
        }
        if self.open.is_empty() {
            (self.bytes, self.goes) = (0, 0);
            self.open.push(fs::read_dir(folder)?);
        }
        self.goes += 1;
        for _ in 0..FILES_AT_ONCE {
            let Some(current) = self.open.last_mut() else {
                break;
            };
            match current.next() {
                // Whatever was removed meanwhile takes no room.
                Some(entry) => {
                    if let Some(below) = self.see(entry?.path()) {
                        self.open.push(below);
                    }
                }
                None => {
                    self.open.pop();
                }
            }
        }
        if !self.open.is_empty() {
            return Ok(None);
        }
        self.rest = self.goes * REST;
        Ok(Some(self.bytes))
    }

    /// The folder's entries, if it is one.
    fn see(&mut self, path: PathBuf) -> Option<ReadDir> {
        let found = fs::symlink_metadata(&path).ok()?;
        if found.is_dir() {
            return fs::read_dir(path).ok();
        }
        self.bytes += found.len();
        None
    }
}
