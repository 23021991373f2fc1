//! The log of one attempt on the worker's disk: records as in `domain/log.rs`, until they were sent.
//!
//! It may fill up, and so may the disk: then what the step prints is dropped, and the step goes on. What the worker itself
//! has to say still fits.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
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

/// How much of what the worker's own commands print while they prepare an attempt is kept, such as the pull of an image.
const PREPARATION_BYTES_MAX: u64 = 64 << 10;

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
    /// Whether some bytes were dropped because the disk had no room.
    is_disk_full: bool,
    is_full: bool,
    preparation_bytes: u64,
    preparation_is_full: bool,
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
        let file = open(OpenOptions::new().create(true), path)?;
        let bytes = file.metadata()?.len();
        Ok(AttemptLog {
            limits,
            path: path.to_path_buf(),
            kept: Mutex::new(Kept {
                file,
                bytes,
                dropped_bytes: 0,
                is_disk_full: false,
                is_full: false,
                preparation_bytes: 0,
                preparation_is_full: false,
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

    /// Writes the log to its path again, if the file there was deleted or replaced: whoever sends the log reads it by its path.
    /// What was there instead is removed. Says whether that was necessary.
    pub fn restore(&self) -> io::Result<bool> {
        let mut kept = self.kept();
        let held = kept.file.metadata()?;
        let found = self.path.symlink_metadata();
        let identity = |file: &Metadata| (file.dev(), file.ino());
        if found.is_ok_and(|found| identity(&found) == identity(&held)) {
            return Ok(false);
        }
        if let Some(folder) = self.path.parent() {
            let is_folder = |found: Metadata| found.is_dir();
            if !folder.symlink_metadata().is_ok_and(is_folder) {
                // Nothing is there, or something that is no folder. Making the folder says what is wrong with it.
                let _ = fs::remove_file(folder);
            }
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        if self
            .path
            .symlink_metadata()
            .is_ok_and(|found| found.is_dir())
        {
            fs::remove_dir_all(&self.path)?;
        }
        let draft = self.path.with_extension("new");
        let copied = kept.copy_to(&draft).and_then(|copy| {
            fs::rename(&draft, &self.path)?;
            Ok(copy)
        });
        match copied {
            Ok(copy) => kept.file = copy,
            Err(error) => {
                // The caller gets the first error.
                let _ = fs::remove_file(&draft);
                return Err(error);
            }
        }
        drop(kept);
        (self.on_more)();
        Ok(true)
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
            let written = match has_room {
                true => kept.write(records),
                false => Err(io::ErrorKind::StorageFull.into()),
            };
            if let Err(error) = written {
                use io::ErrorKind::{QuotaExceeded, StorageFull};
                kept.is_disk_full |= matches!(error.kind(), StorageFull | QuotaExceeded);
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

    /// The same for what a command of the worker's own prints before the step runs. What goes beyond the limit of the preparation
    /// is not kept; a line of the worker says so.
    pub(super) fn append_preparation(&self, records: &[u8], text_bytes: u64) {
        let mut kept = self.kept();
        let room = PREPARATION_BYTES_MAX - kept.preparation_bytes;
        let fits = match kept.preparation_is_full {
            true => 0,
            false if records.len() as u64 <= room => records.len(),
            false => whole_records(records, room as usize),
        };
        let is_cut = fits < records.len();
        let reaches_limit = is_cut && !kept.preparation_is_full;
        kept.preparation_bytes += fits as u64;
        kept.preparation_is_full |= is_cut;
        drop(kept);
        self.append(&records[..fits], text_bytes);
        if reaches_limit {
            self.note(&format!(
                "preparing the step printed more than {} KiB: the rest is not kept",
                PREPARATION_BYTES_MAX >> 10
            ));
        }
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

    /// Says how many bytes that the step printed were not kept, and why. `None` if all were.
    pub fn loss(&self) -> Option<String> {
        let kept = self.kept();
        let bytes = kept.dropped_bytes;
        match kept.is_disk_full {
            _ if bytes == 0 => None,
            true => Some(format!(
                "the worker's disk is nearly full: {bytes} bytes that the step printed were not kept"
            )),
            false => Some(format!("{bytes} bytes that the step printed were not kept")),
        }
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

fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.read(true).append(true).mode(0o600).open(path)
}

impl Kept {
    fn copy_to(&self, path: &Path) -> io::Result<File> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut copy = open(OpenOptions::new().create_new(true), path)?;
        let mut chunk = vec![0; 64 << 10];
        let mut offset = 0;
        while offset < self.bytes {
            let wanted = chunk.len().min((self.bytes - offset) as usize);
            let count = self.file.read_at(&mut chunk[..wanted], offset)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            copy.write_all(&chunk[..count])?;
            offset += count as u64;
        }
        Ok(copy)
    }

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

/// The length of the records that fit into so many bytes.
fn whole_records(records: &[u8], bytes_max: usize) -> usize {
    memchr::memrchr(b'\n', &records[..bytes_max]).map_or(0, |end| end + 1)
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
