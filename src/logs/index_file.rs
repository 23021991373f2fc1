//! The marks of an index on disk: `<step_id>.<attempt>.<lineage>.idx`, three numbers each, offset, line and seal.
//!
//! Nothing here is trusted. The seal of a mark is made of the mark, the seal before it, and the bytes of the log before the
//! line. So a torn write, a bad disk, the index of another log, or one that knows more than a power cut has left of the log,
//! all look the same: from the first mark whose seal is wrong, the index is worth nothing, and the log is read instead.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::LogKey;
use super::file::LogFile;
use super::index::{MARK_DISTANCE, Mark};

const MARK_BYTES: usize = 24;

/// So much of the log before a mark goes into its seal: a record or two, with their times.
const SEALED_BYTES: u64 = 64;

type Seal = [u8; 8];

pub(super) struct IndexFile {
    path: PathBuf,
    marks_saved: usize,
    /// That of the last mark saved.
    seal: Seal,
}

impl IndexFile {
    /// Reads the marks that hold for this log, up to the first that does not.
    pub fn load(
        path: PathBuf,
        key: LogKey,
        log: &LogFile,
        log_bytes: u64,
    ) -> io::Result<(IndexFile, Vec<Mark>)> {
        let mut file = IndexFile {
            path,
            marks_saved: 0,
            seal: first_seal(key),
        };
        let mut marks: Vec<Mark> = Vec::new();
        // An index that cannot be read is as good as none.
        let bytes = file.read(log_bytes / MARK_DISTANCE).unwrap_or_default();
        for bytes in bytes.chunks_exact(MARK_BYTES) {
            let mark = Mark {
                offset: number(&bytes[..8]),
                line: number(&bytes[8..16]),
            };
            let last = marks.last().copied().unwrap_or(Mark::FIRST);
            let follows = mark.offset >= last.offset.saturating_add(MARK_DISTANCE)
                && mark.offset <= log_bytes
                && mark.line > last.line;
            if !follows {
                break;
            }
            let seal = seal(file.seal, mark, log)?;
            if seal != bytes[16..] {
                break;
            }
            file.seal = seal;
            marks.push(mark);
        }
        file.marks_saved = marks.len();
        Ok((file, marks))
    }

    /// Adds what is not yet on disk, in place of whatever is there instead.
    pub fn save(&mut self, marks: &[Mark], log: &LogFile) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut last_seal = self.seal;
        for mark in &marks[self.marks_saved..] {
            last_seal = seal(last_seal, *mark, log)?;
            bytes.extend_from_slice(&mark.offset.to_le_bytes());
            bytes.extend_from_slice(&mark.line.to_le_bytes());
            bytes.extend_from_slice(&last_seal);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        // Opened each time: a mark is rare, and a second descriptor for every open log is not.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)?;
        let end = (self.marks_saved * MARK_BYTES) as u64;
        file.set_len(end)?;
        file.write_all_at(&bytes, end)?;
        self.marks_saved = marks.len();
        self.seal = last_seal;
        Ok(())
    }

    /// A log of this length has no more marks than this; whatever else the file holds is not read.
    fn read(&self, marks_max: u64) -> io::Result<Vec<u8>> {
        let file = OpenOptions::new().read(true).open(&self.path)?;
        let mut bytes = Vec::new();
        file.take(marks_max * MARK_BYTES as u64)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

fn first_seal(key: LogKey) -> Seal {
    let LogKey { job_id, attempt } = key;
    shorten(Sha256::new().chain_update(format!(
        "index 1, a mark every {MARK_DISTANCE} bytes, job {job_id} {attempt}"
    )))
}

fn seal(last: Seal, mark: Mark, log: &LogFile) -> io::Result<Seal> {
    let mut before = [0; SEALED_BYTES as usize];
    // Marks are far from the beginning, so there is as much before each of them.
    log.read_at(mark.offset - SEALED_BYTES, &mut before)?;
    Ok(shorten(
        Sha256::new()
            .chain_update(last)
            .chain_update(mark.offset.to_le_bytes())
            .chain_update(mark.line.to_le_bytes())
            .chain_update(before),
    ))
}

fn shorten(hash: Sha256) -> Seal {
    let hash = hash.finalize();
    std::array::from_fn(|at| hash[at])
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|at| bytes[at]))
}
