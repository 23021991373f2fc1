//! A log that is open: its file, how long it is, and its index, which opening has made good.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flate2::Crc;

use super::file::LogFile;
use super::index::Index;
use super::index_file::IndexFile;
use super::names::LogName;
use super::scan::{BLOCK_BYTES, Snapshot};
use super::{job_folder, make_private_folder};

pub(super) struct OpenLog {
    pub name: LogName,
    pub length: u64,
    /// At the end, spoilt by a power cut, and not sent again yet.
    pub lost_bytes: u64,
    pub(super) file: Arc<LogFile>,
    /// Shared with the snapshots of readers, and copied when it changes while one of them still looks.
    pub(super) index: Arc<Index>,
    index_file: IndexFile,
    /// Checksum of all bytes of the log. `None` if the file had bytes when it was opened and no comparison has read them yet.
    pub(super) crc: Option<Crc>,
}

impl OpenLog {
    /// `None`: there is no such log. Reading must not make one.
    pub fn open(
        folder: &Path,
        name: LogName,
        bytes_read: &Arc<AtomicU64>,
    ) -> io::Result<Option<OpenLog>> {
        match LogFile::open(&name.path(folder, "log"), bytes_read)? {
            Some(file) => Ok(Some(OpenLog::of(file, folder, name)?)),
            None => Ok(None),
        }
    }

    pub fn create(
        folder: &Path,
        name: LogName,
        bytes_read: &Arc<AtomicU64>,
    ) -> io::Result<OpenLog> {
        make_private_folder(&job_folder(folder, name.key.job_id))?;
        let file = LogFile::create(&name.path(folder, "log"), bytes_read)?;
        OpenLog::of(file, folder, name)
    }

    fn of(file: LogFile, folder: &Path, name: LogName) -> io::Result<OpenLog> {
        let length = file.length()?;
        let index_path = name.path(folder, "idx");
        let (index_file, marks) = IndexFile::load(index_path, name.key, &file, length)?;
        let mut index = Index::from_marks(marks);
        let mut block = vec![0; BLOCK_BYTES];
        while index.bytes() < length {
            let block = block_at(&mut block, index.bytes(), length);
            file.read_at(index.bytes(), block)?;
            index.feed(block);
        }
        let mut log = OpenLog {
            name,
            length,
            lost_bytes: 0,
            file: Arc::new(file),
            index: Arc::new(index),
            index_file,
            crc: (length == 0).then(Crc::new),
        };
        log.save_index();
        Ok(log)
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            file: self.file.clone(),
            index: self.index.clone(),
            lost_bytes: self.lost_bytes,
        }
    }

    /// Whether these bytes are what the log has there. They must not reach beyond its end.
    pub fn holds(&self, mut offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let mut block = vec![0; BLOCK_BYTES.min(bytes.len())];
        for sent in bytes.chunks(BLOCK_BYTES) {
            let kept = &mut block[..sent.len()];
            self.file.read_at(offset, kept)?;
            if kept != sent {
                return Ok(false);
            }
            offset += sent.len() as u64;
        }
        Ok(true)
    }

    /// Appends all of these bytes or, as far as the disk lets us, none.
    ///
    /// After an error this must be closed unless `Torn::Mended`: only opening it tells how long the file is then.
    ///
    /// There is no sync here: one for every piece of every log would cost the disk more than all that the database asks of
    /// it. `sync.rs` does it a little later, and should a power cut come sooner, the worker sends again what it still has.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), (io::Error, Torn)> {
        if let Err(error) = self.file.write_at(self.length, bytes) {
            let torn = match self.file.cut(self.length) {
                Ok(()) => Torn::Mended,
                Err(_) => Torn::Unknown,
            };
            return Err((error, torn));
        }
        self.length += bytes.len() as u64;
        if let Some(crc) = &mut self.crc {
            crc.update(bytes);
        }
        Arc::make_mut(&mut self.index).feed(bytes);
        self.save_index();
        Ok(())
    }

    pub fn cut(&self, length: u64) -> io::Result<()> {
        self.file.cut(length)
    }

    fn save_index(&mut self) {
        // The log itself is safe. What is missing is saved with the next mark, or found missing when the log is opened.
        let _ = self.index_file.save(self.index.marks(), &self.file);
    }
}

/// What a failed write has left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Torn {
    /// Nothing.
    Mended,
    /// Perhaps some of its bytes.
    Unknown,
}

/// As much of the buffer as there is to read from here.
pub(super) fn block_at(buffer: &mut [u8], offset: u64, end: u64) -> &mut [u8] {
    let bytes = (end - offset).min(buffer.len() as u64);
    &mut buffer[..bytes as usize]
}
