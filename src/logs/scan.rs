//! Reading through a log as it was at one moment, block by block, from any mark on.

use std::io;
use std::sync::Arc;

use super::file::LogFile;
use super::index::{Index, Mark};
use super::lines::{Lines, Piece};
use super::open::block_at;

pub(super) const BLOCK_BYTES: usize = 64 << 10;

/// A log up to its last whole record. It may grow meanwhile; this does not change.
pub(super) struct Snapshot {
    pub file: Arc<LogFile>,
    pub index: Arc<Index>,
}

impl Snapshot {
    pub fn total_lines(&self) -> u64 {
        self.index.whole().lines
    }

    pub fn scan(self, from: Mark) -> Scan {
        Scan {
            lines: Lines::from(from),
            snapshot: self,
            block: vec![0; BLOCK_BYTES],
        }
    }
}

pub(super) struct Scan {
    snapshot: Snapshot,
    lines: Lines,
    block: Vec<u8>,
}

impl Scan {
    pub fn total_lines(&self) -> u64 {
        self.snapshot.total_lines()
    }

    /// Shows what is in the next block. `false`: there was none.
    pub fn next_block(&mut self, visit: impl FnMut(Piece<'_>)) -> io::Result<bool> {
        let (offset, end) = (self.lines.offset(), self.snapshot.index.whole().bytes);
        if offset >= end {
            return Ok(false);
        }
        let block = block_at(&mut self.block, offset, end);
        self.snapshot.file.read_at(offset, block)?;
        self.lines.feed(block, visit);
        Ok(true)
    }
}
