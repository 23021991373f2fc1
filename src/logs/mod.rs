//! Where what steps print is kept: one append-only file per attempt, and beside it a sparse index of its lines.
//!
//! `<folder>/<job_id>/<step_id>.<attempt>.<lineage>.log` holds the bytes exactly as the worker sent them, records of
//! `domain/log.rs`. Logs that version 0.1 began have no lineage in their names. See `names.rs`.
//! `.idx` says where some of the lines begin, so that the first line, the last, and any in between are equally near. The
//! index is an aid: whatever is wrong with it is found when the log is opened, and made good from the log itself.
//!
//! # How it is read
//! `lines.rs` for what a line is, `append.rs` for how a log grows, `read.rs` and `search.rs` for what is shown of it, `filter.rs`,
//! `view.rs`, `marks.rs` and `matches.rs` for a viewer that shows some of it, `groups.rs` and `first_error.rs` for what its lines
//! mean, `sync.rs` and `mend.rs` for what a power cut may take.
//!
//! # Who waits for whom
//! Callers of one attempt's log wait for each other while one of them opens it or appends to it; those of different attempts
//! never do. A reader takes a snapshot and reads without a lock: what is in an append-only file stays as it is.
//!
//! Deliberately not here: whether an attempt may still write (`engine`), what colours look like (they are kept raw and rendered
//! late; `escapes.rs` only knows what is none of the text), the time.

mod append;
mod compare;
mod error_words;
mod escapes;
mod file;
mod filter;
mod first_error;
mod folders;
mod groups;
mod headings;
mod heads;
mod index;
mod index_file;
mod lines;
mod marks;
mod matches;
mod measure;
mod mend;
mod names;
mod open;
mod page;
mod read;
mod scan;
mod search;
mod shelf;
mod sift;
mod sync;
mod text;
mod view;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::domain::{AttemptRef, JobId};
use mend::Sound;
use names::LogName;
use open::OpenLog;
use scan::Snapshot;
use shelf::{Shelf, Use};
use sync::Unsynced;

pub use append::{AppendError, Appended};
pub use compare::Comparison;
pub use escapes::{Escapes, Part, without_escapes};
pub use filter::{LogFilter, Streams};
pub use first_error::{ErrorSign, FirstError};
pub use folders::JobFolders;
pub use groups::{LogGroup, LogGroups};
pub use marks::LogMarks;
pub use matches::{LogMatch, MatchFound};
pub use measure::Measure;
pub use names::{FindLogTag, LogNames, log_file_name, parse_log_file_name};
pub use page::{LogLine, LogPage, bytes_in_answer};
pub use search::{LogMatches, Needle};
pub use sync::SyncReport;
pub use text::LogText;
pub use view::LogView;

/// What an attempt's log may be longer than `attempt_bytes_max`: the worker stops there, and still has to say that it did.
pub const MARKER_BYTES_MAX: u64 = 64 << 10;

const NOT_MEASURED: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    pub attempt_bytes_max: u64,
    /// Of a longer line, its first part is shown.
    pub line_bytes_max: usize,
    /// Lines in one answer.
    pub lines_max: usize,
    /// Of one answer, roughly as it is written. A single line may be longer: `line_bytes_max` bounds it.
    pub page_bytes_max: usize,
    /// Logs that are kept open, a file descriptor each. One more closes the one that was not used for longest.
    pub open_logs_max: usize,
}

impl LogLimits {
    pub const DEFAULT: LogLimits = LogLimits {
        attempt_bytes_max: 64 << 20,
        line_bytes_max: 1 << 20,
        lines_max: 1_000,
        page_bytes_max: 1 << 20,
        open_logs_max: 256,
    };
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits::DEFAULT
    }
}

/// The logs in one folder. Clones share what is open.
#[derive(Clone)]
pub struct Logs {
    inner: Arc<Inner>,
}

struct Inner {
    folder: PathBuf,
    /// `None`: names have no lineage, as in version 0.1.
    names: Option<LogNames>,
    limits: LogLimits,
    shelf: Shelf,
    sound: Sound,
    unsynced: Unsynced,
    bytes_read: Arc<AtomicU64>,
    /// What all of them take, as it was last measured.
    bytes_kept: AtomicU64,
}

/// Which log: that of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct LogKey {
    job_id: JobId,
    attempt: AttemptRef,
}

fn job_folder(folder: &Path, job_id: JobId) -> PathBuf {
    folder.join(job_id.to_string())
}

/// Logs hold what users print: nobody else on the machine may read them.
fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl Logs {
    /// Finds out whether `open` would fail, and changes nothing.
    pub fn check(folder: &Path) -> io::Result<()> {
        match folder.metadata() {
            Ok(found) if found.is_dir() => {
                Ok(accessat(CWD, folder, Access::WRITE_OK, AtFlags::EACCESS)?)
            }
            Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
            // `open` creates a folder that does not exist, but not in the place of a link.
            Err(error) if error.kind() == io::ErrorKind::NotFound => match folder.is_symlink() {
                true => Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "it is a symbolic link to a folder that does not exist; mount or create that folder",
                )),
                false => Ok(()),
            },
            Err(error) => Err(error),
        }
    }

    /// Logs whose names have no lineage.
    pub fn open(folder: &Path, limits: LogLimits) -> io::Result<Logs> {
        Logs::open_with(folder, limits, None)
    }

    /// Logs of an installation, whose names contain the lineage in which the attempt ran.
    pub fn open_named(folder: &Path, limits: LogLimits, names: LogNames) -> io::Result<Logs> {
        Logs::open_with(folder, limits, Some(names))
    }

    fn open_with(folder: &Path, limits: LogLimits, names: Option<LogNames>) -> io::Result<Logs> {
        make_private_folder(folder)?;
        Ok(Logs {
            inner: Arc::new(Inner {
                folder: folder.to_path_buf(),
                names,
                limits,
                shelf: Shelf::new(limits.open_logs_max),
                sound: Sound::default(),
                unsynced: Unsynced::new(folder),
                bytes_read: Arc::default(),
                bytes_kept: AtomicU64::new(NOT_MEASURED),
            }),
        })
    }

    /// Bytes of the attempt's log, whole records or not: the offset at which the worker goes on. 0 if there is no log.
    pub fn length(&self, job_id: JobId, attempt: AttemptRef) -> io::Result<u64> {
        let key = LogKey { job_id, attempt };
        let slot = self.inner.shelf.slot(key, Use::Read);
        let mut held = shelf::lock(&slot);
        let log = self.mended(&mut held, key)?;
        Ok(log.map_or(0, |log| log.length))
    }

    /// Removes all logs of a job. It is no error if there are none.
    pub fn remove_job(&self, job_id: JobId) -> io::Result<()> {
        match fs::remove_dir_all(job_folder(&self.inner.folder, job_id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Whoever still had one open must not go on with a file that has no name any more.
        for slot in self.inner.shelf.slots_of(job_id) {
            *shelf::lock(&slot) = None;
        }
        Ok(())
    }

    /// Removes the files of a job that are not of the current lineage. Without lineages in the names, that is all of them.
    pub fn remove_other_lineages(&self, job_id: JobId) -> io::Result<()> {
        let Some(names) = &self.inner.names else {
            return self.remove_job(job_id);
        };
        let folder = job_folder(&self.inner.folder, job_id);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let mut is_empty = true;
        for entry in entries {
            let entry = entry?;
            if names.is_current(&entry.file_name()) {
                is_empty = false;
                continue;
            }
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if is_empty {
            // A log that was created meanwhile keeps its folder.
            let _ = fs::remove_dir(folder);
        }
        Ok(())
    }

    /// Logs that have grown and were not synced since.
    pub fn unsynced(&self) -> usize {
        self.inner.unsynced.count()
    }

    /// Syncs what has grown so far. To be called again and again: what was appended since the last time, a power cut may take.
    pub fn sync_once(&self) -> SyncReport {
        self.inner.unsynced.sync_once()
    }

    /// Looks at some more files, to know what all of them take. To be called again and again.
    pub fn measure(&self, measure: &mut Measure) -> io::Result<()> {
        if let Some(bytes) = measure.go_on(&self.inner.folder)? {
            self.inner.bytes_kept.store(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// What all logs took when they were last measured. `None`: they are so many that nobody knows yet.
    pub fn bytes_kept(&self) -> Option<u64> {
        let bytes = self.inner.bytes_kept.load(Ordering::Relaxed);
        Some(bytes).filter(|bytes| *bytes != NOT_MEASURED)
    }

    /// Bytes read from log files since these logs were opened: what pages, searches and repairs cost.
    pub fn bytes_read(&self) -> u64 {
        self.inner.bytes_read.load(Ordering::Relaxed)
    }

    fn snapshot(&self, job_id: JobId, attempt: AttemptRef) -> io::Result<Option<Snapshot>> {
        let key = LogKey { job_id, attempt };
        let slot = self.inner.shelf.slot(key, Use::Read);
        let mut held = shelf::lock(&slot);
        let log = self.opened(&mut held, key)?;
        Ok(log.map(|log| log.snapshot()))
    }

    /// The name of the file that holds the log of an attempt, or will hold it.
    fn name(&self, key: LogKey) -> io::Result<LogName> {
        match &self.inner.names {
            Some(names) => names.find(&self.inner.folder, key),
            None => Ok(LogName { key, tag: None }),
        }
    }

    /// The log in this slot, opened if it is not. `None`: it does not exist.
    fn opened<'a>(
        &self,
        held: &'a mut Option<OpenLog>,
        key: LogKey,
    ) -> io::Result<Option<&'a mut OpenLog>> {
        if held.is_none() {
            let name = self.name(key)?;
            let mut opened = OpenLog::open(&self.inner.folder, name, &self.inner.bytes_read)?;
            if let Some(log) = &mut opened
                && !self.inner.sound.contains(key)
            {
                log.look_for_loss()?;
            }
            *held = opened;
        }
        Ok(held.as_mut())
    }

    /// The same, for whoever goes on with it: once in each life, what a power cut may have spoilt is cut off.
    fn mended<'a>(
        &self,
        held: &'a mut Option<OpenLog>,
        key: LogKey,
    ) -> io::Result<Option<&'a mut OpenLog>> {
        if let Some(log) = self.opened(held, key)?
            && !self.inner.sound.contains(key)
        {
            let (name, length, sound_length) = (log.name, log.length, log.sound_length()?);
            if sound_length < length {
                log.cut(sound_length)?;
                *held = None;
                self.inner.unsynced.note(name, false);
                let LogKey { job_id, attempt } = key;
                log::info!(
                    "the log of {attempt} of job {job_id} has {sound_length} whole bytes of {length}: \
                     the worker is asked for the rest again"
                );
            }
            self.inner.sound.add(key);
        }
        self.opened(held, key)
    }
}
