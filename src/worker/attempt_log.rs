//! The log of one attempt on the worker's disk: records as in `domain/log.rs`, until they were sent.
//!
//! It may fill up, and so may the disk: then what the step prints is dropped, and the step goes on. What the worker itself
//! has to say still fits.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flate2::Crc;

use super::mask::Masks;
use crate::clock::wall_time;
use crate::disk::has_room_for_log;
use crate::domain::log::{LogRecord, LogStream};
use crate::domain::protocol::LogDigest;

/// How much of what a step prints is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    pub line_bytes_max: usize,
    pub attempt_bytes_max: u64,
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits {
            line_bytes_max: 1 << 20,
            attempt_bytes_max: 64 << 20,
        }
    }
}

const NOWHERE: &str = "/dev/null";

/// Whoever sends the log is told through this that there is more. It is called often and must be quick.
pub type OnMore = Arc<dyn Fn() + Send + Sync>;

pub struct AttemptLog {
    pub limits: LogLimits,
    path: PathBuf,
    kept: Mutex<Kept>,
    on_more: OnMore,
}

struct Kept {
    file: File,
    /// Whole records only.
    bytes: u64,
    dropped_bytes: u64,
    is_full: bool,
    masks: Masks,
    /// Of all bytes that were written here. `None`: the file had some before.
    crc: Option<Crc>,
}

impl AttemptLog {
    /// With what must not be seen in it.
    pub fn open(
        path: &Path,
        limits: LogLimits,
        masks: Masks,
        on_more: OnMore,
    ) -> io::Result<AttemptLog> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        let bytes = file.metadata()?.len();
        Ok(AttemptLog {
            limits,
            path: path.to_path_buf(),
            kept: Mutex::new(Kept {
                file,
                bytes,
                dropped_bytes: 0,
                is_full: false,
                masks,
                crc: (bytes == 0).then(Crc::new),
            }),
            on_more,
        })
    }

    /// One that takes everything and keeps nothing.
    pub fn unread(&self) -> io::Result<AttemptLog> {
        AttemptLog::open(
            Path::new(NOWHERE),
            self.limits,
            self.masks(),
            Arc::new(|| {}),
        )
    }

    fn is_unread(&self) -> bool {
        self.path == Path::new(NOWHERE)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the worker itself has to say, in one sentence.
    pub fn note(&self, sentence: &str) {
        let mut kept = self.kept();
        let sentence = kept.masks.hide(sentence);
        let mut record = Vec::new();
        write_note(&sentence, &mut record);
        // A disk that takes nothing cannot be told so either.
        let _ = kept.write(&record);
        drop(kept);
        (self.on_more)();
    }

    /// Whole records, and how many bytes of text are in them.
    pub(super) fn append(&self, records: &[u8], text_bytes: u64) {
        if records.is_empty() {
            return;
        }
        let mut kept = self.kept();
        let bytes_max = self.limits.attempt_bytes_max;
        let fits = kept.bytes + records.len() as u64 <= bytes_max;
        if fits && !kept.is_full {
            let folder = self.path.parent().unwrap_or(&self.path);
            let has_room = self.is_unread() || has_room_for_log(folder, records.len());
            if !has_room || kept.write(records).is_err() {
                kept.dropped_bytes += text_bytes;
            }
        } else {
            if !kept.is_full {
                kept.is_full = true;
                let mut marker = Vec::new();
                let sentence = format!(
                    "the log has reached its limit of {}: what follows is not kept, the step goes on",
                    size(bytes_max)
                );
                write_note(&sentence, &mut marker);
                // As with any note.
                let _ = kept.write(&marker);
            }
            kept.dropped_bytes += text_bytes;
        }
        drop(kept);
        (self.on_more)();
    }

    /// What was written, for the server to compare. The step can change the file: then the server has another text than this.
    pub fn digest(&self) -> Option<LogDigest> {
        let kept = self.kept();
        let crc = kept.crc.as_ref()?;
        Some(LogDigest {
            length: kept.bytes,
            crc32: crc.sum(),
        })
    }

    /// Bytes that the step printed and nobody will see.
    pub fn dropped_bytes(&self) -> u64 {
        self.kept().dropped_bytes
    }

    pub fn masks(&self) -> Masks {
        self.kept().masks.clone()
    }

    pub(super) fn set_masks(&self, masks: &Masks) {
        self.kept().masks = masks.clone();
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().expect("no panic while it is held")
    }
}

impl Kept {
    fn write(&mut self, records: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(records);
        match written {
            Ok(()) => {
                self.bytes += records.len() as u64;
                if let Some(crc) = &mut self.crc {
                    crc.update(records);
                }
            }
            // Half a record would make the next one unreadable. If that fails too, the next one is lost with it.
            Err(_) => drop(self.file.set_len(self.bytes)),
        }
        written
    }
}

/// What the worker has to say between what the step prints.
pub(super) fn write_note(sentence: &str, records: &mut Vec<u8>) {
    let record = LogRecord {
        at: wall_time(),
        stream: LogStream::Worker,
        continues: false,
        text: sentence.as_bytes(),
    };
    record.write(records);
}

/// `64 MiB`, or in bytes if it is not a round number of them.
fn size(bytes: u64) -> String {
    match bytes {
        n if n > 0 && n % (1 << 20) == 0 => format!("{} MiB", n >> 20),
        n => format!("{n} bytes"),
    }
}
