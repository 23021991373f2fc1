//! A worker sends more of an attempt's log, or sends some of it again.

use std::io;

use super::open::{OpenLog, Torn};
use super::shelf::Use;
use super::{LogKey, Logs, MARKER_BYTES_MAX, shelf};
use crate::domain::{AttemptRef, JobId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Of the log: the offset of what comes next.
    pub length: u64,
}

/// Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("the log ends at {length}, what was sent begins further on: send from there")]
    Gap { length: u64 },
    #[error("the log has other bytes than those sent again, before its end at {length}")]
    Differs { length: u64 },
    #[error("the log has {length} bytes, with what was sent it would be longer than it may be")]
    TooLong { length: u64 },
    #[error("the log cannot be written: {0}")]
    Io(#[from] io::Error),
}

impl Logs {
    /// Appends what the log does not have yet of these bytes, the first of which lies at `offset`.
    ///
    /// Bytes may end anywhere, within a record or within a character. Sending them again is harmless.
    pub fn append(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Appended, AppendError> {
        let key = LogKey { job_id, attempt };
        let slot = self.inner.shelf.slot(key, Use::Append);
        let mut held = shelf::lock(&slot);
        let log = self.mended(&mut held, key)?;
        let length = log.as_ref().map_or(0, |log| log.length);
        if offset > length {
            return Err(AppendError::Gap { length });
        }
        let bytes_known = (length - offset).min(bytes.len() as u64) as usize;
        let (again, new) = bytes.split_at(bytes_known);
        if let Some(log) = log
            && !log.holds(offset, again)?
        {
            return Err(AppendError::Differs { length });
        }
        if new.is_empty() {
            return Ok(Appended { length });
        }
        if length + new.len() as u64 > self.length_max() {
            return Err(AppendError::TooLong { length });
        }
        self.grow(&mut held, key, new)
    }

    /// What the server keeps of one attempt's log, but for a few lines.
    pub fn attempt_bytes_max(&self) -> u64 {
        self.inner.limits.attempt_bytes_max
    }

    /// Maximum size of a log in bytes.
    pub(super) fn length_max(&self) -> u64 {
        self.attempt_bytes_max().saturating_add(MARKER_BYTES_MAX)
    }

    fn grow(
        &self,
        held: &mut Option<OpenLog>,
        key: LogKey,
        bytes: &[u8],
    ) -> Result<Appended, AppendError> {
        let log = match held {
            Some(log) => log,
            // Only now: what was refused has made no file.
            None => {
                let name = self.name(key)?;
                let created = OpenLog::create(&self.inner.folder, name, &self.inner.bytes_read)?;
                self.inner.sound.add(key);
                self.inner.unsynced.note(name, true);
                held.insert(created)
            }
        };
        match log.append(bytes) {
            Ok(()) => {
                // Only now: a sync that comes before the bytes is none of them.
                self.inner.unsynced.note(log.name, false);
                Ok(Appended { length: log.length })
            }
            Err((error, torn)) => {
                if torn == Torn::Unknown {
                    *held = None;
                }
                Err(error.into())
            }
        }
    }
}
