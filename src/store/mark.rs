//! The file `stepward.mark`: how far the database of this folder had come, kept outside of the database.
//!
//! A database whose write-ahead log was removed, emptied or damaged is still a whole database, only an older one. Nothing in it
//! shows what is missing. The mark does: it names the lineage and the number of a commit that was durable. A database of the same
//! lineage with a lower number has lost commits.
//!
//! The mark is written after each group commit, when the commit is durable, in place and without fsync. After a power failure it
//! may be older than the database, which only weakens the check. It is never newer than what was durable. When a new lineage
//! begins, the mark is synced: the old mark says nothing about the commits of the new lineage.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

pub const MARK_FILE: &str = "stepward.mark";

/// The first words of the file: what it is, and the version of its format.
const HEAD: &str = "stepward-mark 1";

/// No version of the format is longer.
const BYTES_MAX: u64 = 4096;

/// A point in the history of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitPosition {
    /// The key of the lineage.
    pub lineage: String,
    /// The number of the last group commit.
    pub number: i64,
}

impl CommitPosition {
    /// One line that always has the same length, so that writing it in place replaces all of the former line.
    fn to_line(&self) -> String {
        let content = format!("{HEAD} {:32} {:020}", self.lineage, self.number);
        format!("{content} {}\n", checksum(&content))
    }

    /// Returns `None` for a line that was torn, or that another version of the program wrote.
    fn parse(line: &str) -> Option<CommitPosition> {
        let (content, sum) = line.strip_suffix('\n')?.rsplit_once(' ')?;
        let (lineage, number) = content.strip_prefix(HEAD)?.trim().split_once(' ')?;
        let is_whole = sum == checksum(content) && !lineage.is_empty();
        let number = number.trim().parse().ok()?;
        is_whole.then(|| CommitPosition {
            lineage: lineage.to_string(),
            number,
        })
    }
}

/// Recognises a torn write. It is no protection against somebody who forges a mark.
fn checksum(content: &str) -> String {
    let sum = Sha256::digest(content.as_bytes());
    let first = sum.first_chunk().expect("it has 32 bytes");
    format!("{:016x}", u64::from_be_bytes(*first))
}

/// The content of a mark file.
enum MarkContent {
    Whole(CommitPosition),
    /// A power failure can leave an empty or torn mark. The text says which of them.
    Damaged(&'static str),
}

/// Returns the mark of a folder, or `None` if there is none or it is damaged, which is logged. An error says that the file exists
/// and cannot be read.
pub fn read(folder: &Path) -> io::Result<Option<CommitPosition>> {
    Ok(match load(folder)? {
        Some(MarkContent::Whole(position)) => Some(position),
        Some(MarkContent::Damaged(how)) => {
            log::warn!("{}", damage_message(folder, how));
            None
        }
        None => None,
    })
}

/// Says in one line that the mark of a folder is damaged. `None`: the mark is whole, the folder has none, or the mark cannot be read,
/// which keeps the database from being opened.
pub fn mark_fault(folder: &Path) -> Option<String> {
    match load(folder) {
        Ok(Some(MarkContent::Damaged(how))) => Some(damage_message(folder, how)),
        _ => None,
    }
}

fn damage_message(folder: &Path, how: &str) -> String {
    let path = folder.join(MARK_FILE);
    format!(
        "{} is {how} and is ignored; whether the database lost commits cannot be checked",
        path.display()
    )
}

fn load(folder: &Path) -> io::Result<Option<MarkContent>> {
    let file = match open_regular(OpenOptions::new().read(true), &folder.join(MARK_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    if bytes.is_empty() {
        return Ok(Some(MarkContent::Damaged("empty")));
    }
    let text = std::str::from_utf8(&bytes).ok();
    Ok(Some(match text.and_then(CommitPosition::parse) {
        Some(position) => MarkContent::Whole(position),
        None => MarkContent::Damaged("damaged"),
    }))
}

/// Opens a regular file. A symbolic link is not followed, because its target may be a file of somebody else, and a pipe is not waited for.
fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Returns whether the folder has a mark, whole or not.
pub fn exists(folder: &Path) -> bool {
    let found = folder.join(MARK_FILE).metadata();
    found.is_ok_and(|found| found.len() > 0)
}

/// The mark of a database that is in use, kept open by the process that writes the database.
pub struct MarkFile {
    path: PathBuf,
    /// `None` if it could not be opened.
    file: Option<File>,
    position: CommitPosition,
    /// Set once a failure was logged, so that each commit on a full disk does not log it again.
    is_failure_logged: bool,
}

impl MarkFile {
    /// Writes nothing yet.
    pub fn new(folder: &Path, position: CommitPosition) -> MarkFile {
        MarkFile {
            path: folder.join(MARK_FILE),
            file: None,
            position,
            is_failure_logged: false,
        }
    }

    pub fn number(&self) -> i64 {
        self.position.number
    }

    /// Call it when the commit of this number is durable, and before anybody is told of the commit.
    pub fn advance(&mut self, number: i64, new_lineage: Option<String>) {
        self.position.number = number;
        match new_lineage {
            Some(lineage) => {
                self.position.lineage = lineage;
                self.write();
                self.sync();
            }
            None => self.write(),
        }
    }

    /// Makes the mark durable. A failure is logged and otherwise ignored, as in `write`.
    fn sync(&self) {
        let Some(file) = &self.file else {
            return;
        };
        let folder = self.path.parent().unwrap_or(&self.path);
        let synced = file
            .sync_all()
            .and_then(|()| File::open(folder)?.sync_all());
        if let Err(error) = synced {
            log::warn!("{} cannot be synced: {error}", self.path.display());
        }
    }

    /// Writes the mark. A failure is logged and otherwise ignored: an old mark only weakens the check.
    pub fn write(&mut self) {
        match self.try_write() {
            Ok(()) => self.is_failure_logged = false,
            Err(error) => {
                if !self.is_failure_logged {
                    let path = self.path.display();
                    log::warn!(
                        "{path} cannot be written: {error}; it is tried again with the next commit"
                    );
                }
                self.is_failure_logged = true;
                self.file = None;
            }
        }
    }

    fn try_write(&mut self) -> io::Result<()> {
        let line = self.position.to_line();
        if let Some(file) = &self.file {
            return file.write_all_at(line.as_bytes(), 0);
        }
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let file = open_regular(options, &self.path)?;
        file.write_all_at(line.as_bytes(), 0)?;
        file.set_len(line.len() as u64)?;
        self.file = Some(file);
        Ok(())
    }

    /// Writes the mark again if its file was removed or replaced.
    pub fn restore_if_removed(&mut self) {
        let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
        let there = self.path.symlink_metadata().map(identity);
        let held = self.file.as_ref().map(|file| file.metadata().map(identity));
        let is_same = matches!((&there, &held), (Ok(there), Some(Ok(held))) if there == held);
        if !is_same {
            self.file = None;
            self.write();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(number: i64) -> CommitPosition {
        CommitPosition {
            lineage: "0123456789abcdef0123456789abcdef".to_string(),
            number,
        }
    }

    #[test]
    fn a_mark_reads_as_it_was_written_and_keeps_its_length() {
        for number in [0, 7, 4_000_000_000, i64::MAX] {
            let line = position(number).to_line();
            assert_eq!(CommitPosition::parse(&line), Some(position(number)));
            assert_eq!(line.len(), position(0).to_line().len());
        }
    }

    #[test]
    fn a_torn_mark_is_ignored() {
        let (old, new) = (position(12_345).to_line(), position(98_760).to_line());
        for torn_at in 0..=new.len() {
            let torn = format!("{}{}", &new[..torn_at], &old[torn_at..]);
            let read = CommitPosition::parse(&torn);
            let is_whole = torn == old || torn == new;
            assert_eq!(read.is_some(), is_whole, "{torn}");
            assert!(CommitPosition::parse(&new[..torn_at]).is_none() || torn_at == new.len());
        }
        assert_eq!(CommitPosition::parse(""), None);
        assert_eq!(CommitPosition::parse(&"\0".repeat(83)), None);
    }

    #[test]
    fn a_mark_that_was_removed_or_replaced_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MARK_FILE);
        let mut mark = MarkFile::new(folder.path(), position(1));
        let read = || read(folder.path()).unwrap();
        assert_eq!(read(), None);
        mark.write();
        std::fs::remove_file(&path).unwrap();
        mark.restore_if_removed();
        assert_eq!(read(), Some(position(1)));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "somebody else's, and longer than a mark".repeat(9)).unwrap();
        mark.advance(2, None);
        mark.restore_if_removed();
        assert_eq!(read(), Some(position(2)));
        mark.advance(3, Some("another".to_string()));
        assert_eq!(read().unwrap().lineage, "another");
        // A link is never written through: what it names is no mark.
        let (victim, text) = (folder.path().join("victim"), "somebody else's");
        std::fs::write(&victim, text).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        mark.restore_if_removed();
        mark.advance(4, None);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), text);
        std::fs::remove_file(&path).unwrap();
        mark.restore_if_removed();
        assert_eq!(read().unwrap().number, 4);
    }
}
