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
    /// At the end, spoilt by a power cut: told in a line of its own, until the worker has sent them again.
    pub lost_bytes: u64,
}

impl Snapshot {
    pub fn total_lines(&self) -> u64 {
        self.index.whole().lines + u64::from(self.lost_bytes > 0)
    }

    pub fn scan(self, from: Mark) -> Scan {
        Scan {
            lines: Lines::from(from),
            snapshot: self,
            block: vec![0; BLOCK_BYTES],
            loss_told: false,
        }
    }
}

pub(super) struct Scan {
    snapshot: Snapshot,
    lines: Lines,
    block: Vec<u8>,
    loss_told: bool,
}

impl Scan {
    /// Shows what is in the next block. `false`: there was none.
    pub fn next_block(&mut self, visit: impl FnMut(Piece<'_>)) -> io::Result<bool> {
        let lost_bytes = self.snapshot.lost_bytes;
        let (offset, end) = (self.lines.offset(), self.snapshot.index.whole().bytes);
        if offset >= end {
            if lost_bytes > 0 && !self.loss_told {
                self.loss_told = true;
                self.lines.feed(loss(lost_bytes).as_bytes(), visit);
                return Ok(true);
            }
            return Ok(false);
        }
        let block = block_at(&mut self.block, offset, end);
        self.snapshot.file.read_at(offset, block)?;
        self.lines.feed(block, visit);
        Ok(true)
    }

    /// What lies before this line need not be shown. It goes on there, or nearer; never back.
    pub fn skip_to(&mut self, line: u64) {
        let mark = self.snapshot.index.mark_before_line(line);
        if mark.offset > self.lines.offset() {
            self.lines = Lines::from(mark);
        }
    }

    /// Whether the line that was shown last waits for the rest of it.
    pub fn goes_on(&self) -> bool {
        self.lines.goes_on()
    }
}

/// No record, so it is a line of its own.
fn loss(bytes: u64) -> String {
    format!(
        "[the last {bytes} bytes of this log were lost when the server's machine stopped; a worker that still has them sends \
         them again]\n"
    )
}
