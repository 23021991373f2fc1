//! What a power cut has spoilt of a log: found when the log is opened, cut off before the first append of a life.
//!
//! A file may come back longer than what reached the disk of it. What did not is zeros: up to the end, or up to the block from
//! which on it did. Whoever appends has what it sent before, is told where the log ends now, and sends the rest again.

use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, MutexGuard};

use super::LogKey;
use super::index::Mark;
use super::open::{OpenLog, block_at};
use super::scan::BLOCK_BYTES;

/// What did not reach the disk ends with a block, and the smallest are of this size.
const DISK_BLOCK_BYTES: u64 = 512;

/// A step may print zeros itself. So many that end where a block does, it hardly ever does; and should it, they are sent again.
const HOLE_BYTES_MIN: u64 = 32;

/// More are forgotten: they are looked at again.
const LOGS_MAX: usize = 1 << 16;

/// The logs that were looked at in this life: what is wrong with a log after that, no power cut has done.
#[derive(Default)]
pub(super) struct Sound {
    logs: Mutex<HashSet<LogKey>>,
}

impl Sound {
    pub fn contains(&self, key: LogKey) -> bool {
        self.lock().contains(&key)
    }

    pub fn add(&self, key: LogKey) {
        let mut logs = self.lock();
        if logs.len() >= LOGS_MAX {
            logs.clear();
        }
        logs.insert(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<LogKey>> {
        self.logs.lock().expect("no panic while it is held")
    }
}

impl OpenLog {
    /// How much of it is whole records, up to the first that has a hole. Looked at is what follows the last mark: those before
    /// have a seal each.
    pub fn sound_length(&self) -> io::Result<u64> {
        let last_mark = self.index.marks().last().copied().unwrap_or(Mark::FIRST);
        let mut holes = Holes {
            offset: last_mark.offset,
            record_offset: last_mark.offset,
            zeros: 0,
        };
        let mut block = vec![0; BLOCK_BYTES];
        let end = self.index.whole().bytes;
        while holes.offset < end {
            let block = block_at(&mut block, holes.offset, end);
            self.file.read_at(holes.offset, block)?;
            if holes.found_in(block) {
                return Ok(holes.record_offset);
            }
        }
        Ok(end)
    }

    /// Notes what readers are to be told: the end of this log is zeros, so it is lost unless it is sent again.
    pub fn look_for_loss(&mut self) -> io::Result<()> {
        let whole = self.index.whole().bytes;
        if self.length > whole {
            let mut last = [0];
            self.file.read_at(self.length - 1, &mut last)?;
            if last == [0] {
                self.lost_bytes = self.length - whole;
            }
        }
        Ok(())
    }
}

struct Holes {
    offset: u64,
    record_offset: u64,
    /// Right before the offset.
    zeros: u64,
}

impl Holes {
    fn found_in(&mut self, block: &[u8]) -> bool {
        for byte in block {
            if *byte == 0 {
                self.zeros += 1;
            } else {
                let ends_block = self.offset.is_multiple_of(DISK_BLOCK_BYTES);
                if self.zeros >= HOLE_BYTES_MIN && ends_block {
                    return true;
                }
                self.zeros = 0;
            }
            self.offset += 1;
            if *byte == b'\n' {
                self.record_offset = self.offset;
            }
        }
        false
    }
}
