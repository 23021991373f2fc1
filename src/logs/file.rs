//! The file of a log. It knows where it reads and writes: no cursor, so that many can read while one appends.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) struct LogFile {
    file: File,
    bytes_read: Arc<AtomicU64>,
}

impl LogFile {
    /// `None`: there is no such file.
    pub fn open(path: &Path, bytes_read: &Arc<AtomicU64>) -> io::Result<Option<LogFile>> {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => Ok(Some(LogFile {
                file,
                bytes_read: bytes_read.clone(),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// There must be no such file yet.
    pub fn create(path: &Path, bytes_read: &Arc<AtomicU64>) -> io::Result<LogFile> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(LogFile {
            file,
            bytes_read: bytes_read.clone(),
        })
    }

    pub fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Fills the buffer. Less is an error: somebody else has shortened the file.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)?;
        self.bytes_read
            .fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    pub fn cut(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }
}
