//! Whether a log is what its worker says it wrote.
//!
//! The checksum grows with the log while it is open, so comparing costs nothing then. A log that was opened again, after a restart of
//! the server or because more than `open_logs_max` grew at a time, has none: it is read once. Only of a log that is longer than the
//! default limit of a log, nothing but the length is compared then.

use std::io;

use flate2::Crc;

use super::open::{OpenLog, block_at};
use super::scan::BLOCK_BYTES;
use super::shelf::Use;
use super::{LogKey, Logs, shelf};
use crate::domain::protocol::LogDigest;
use crate::domain::{AttemptRef, JobId};

/// Of a longer log that was opened again, only the length is compared. Reading this much takes about a tenth of a second.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Workers send no longer pieces. A piece that would make a log too long is refused as a whole, so a log that was cut lacks less than
/// this to its limit.
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// How a log compares to what its worker wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Same,
    /// Bytes are missing from here on.
    Short {
        length: u64,
    },
    /// The worker wrote more than the server keeps of one log, and no more of it is taken.
    Cut {
        length: u64,
    },
    Differs {
        length: u64,
    },
}

impl Logs {
    pub fn compare(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        written: LogDigest,
    ) -> io::Result<Comparison> {
        let key = LogKey { job_id, attempt };
        let slot = self.inner.shelf.slot(key, Use::Read);
        let mut held = shelf::lock(&slot);
        let log = self.mended(&mut held, key)?;
        let length = log.as_ref().map_or(0, |log| log.length);
        if length < written.length {
            let length_max = self.length_max();
            let is_cut = written.length > length_max && length + PIECE_BYTES_MAX > length_max;
            return Ok(match is_cut {
                true => Comparison::Cut { length },
                false => Comparison::Short { length },
            });
        }
        let crc32 = match log {
            Some(log) => log.crc32()?,
            None => Some(Crc::new().sum()),
        };
        let is_same = length == written.length && crc32.is_none_or(|sum| sum == written.crc32);
        Ok(match is_same {
            true => Comparison::Same,
            false => Comparison::Differs { length },
        })
    }
}

impl OpenLog {
    /// `None`: it is not known, and the log is too long to be read for it.
    fn crc32(&mut self) -> io::Result<Option<u32>> {
        if self.crc.is_none() && self.length <= READ_BYTES_MAX {
            let mut crc = Crc::new();
            let (mut block, mut offset) = (vec![0; BLOCK_BYTES], 0);
            while offset < self.length {
                let block = block_at(&mut block, offset, self.length);
                self.file.read_at(offset, block)?;
                crc.update(block);
                offset += block.len() as u64;
            }
            self.crc = Some(crc);
        }
        Ok(self.crc.as_ref().map(Crc::sum))
    }
}
