//! The folder of backups that are made by themselves: when the next is due, how one gets there, and which ones go.
//!
//! A file has its name only once it is whole and was read back. If it goes through a command that encrypts it, it is read back before.
//! Older ones go after that, and only those of the same installation.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::pipe::{self, Pipe};
use super::{Backup, BackupError, Staging, look, stamp};
use crate::disk::free_bytes;
use crate::domain::Timestamp;
use crate::store::{CopyError, GoOn};
use crate::words;

const SUFFIX: &str = ".tar.gz";
const PART: &str = ".part";
/// Left on a disk that may be the server's own.
const RESERVED_BYTES: u64 = 64 << 20;
/// How often that is looked at.
const LOOK_BYTES: u64 = 4 << 20;
const PIECE_BYTES: usize = 64 << 10;

pub struct Shelf {
    folder: PathBuf,
    /// `stepward-1a2b3c4d-`: another installation may use the same folder.
    prefix: String,
    keep: usize,
    /// The command that every backup is sent through. `None`: backups are kept unencrypted.
    pipe: Option<Pipe>,
}

/// One that is there and whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shelved {
    pub file: PathBuf,
    pub made_at: Timestamp,
    pub bytes: u64,
    /// Whether the backup went through a command.
    pub is_piped: bool,
}

impl Shelved {
    /// It bears a time that is still to come: a clock was wrong then, or is now.
    pub fn is_ahead(&self, now: Timestamp) -> bool {
        self.made_at.0 > now.0
    }
}

impl Shelf {
    pub fn new(folder: &Path, installation: &str, keep: usize) -> Shelf {
        let short: String = installation.chars().take(8).collect();
        Shelf {
            folder: folder.into(),
            prefix: format!("stepward-{short}-"),
            keep: keep.max(1),
            pipe: None,
        }
    }

    pub fn through(self, pipe: Option<Pipe>) -> Shelf {
        Shelf { pipe, ..self }
    }

    pub fn pipe(&self) -> Option<&Pipe> {
        self.pipe.as_ref()
    }

    /// Another installation may copy into the same folder at the same time.
    pub fn staging(&self) -> Staging {
        if let Some(pipe) = &self.pipe {
            return pipe.staging();
        }
        Staging {
            folder: self.folder.clone(),
            prefix: format!("{}copy.", self.prefix),
            instead: None,
        }
    }

    /// Whoever is not there yet is made, for nobody else to look into.
    pub fn open(&self) -> Result<(), BackupError> {
        let mut options = fs::DirBuilder::new();
        let made = options.recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| BackupError::Target(self.folder.clone(), error))
    }

    /// In the order in which they were made, the newest last. What bears a time that is still to come was made before somebody
    /// set the clock back, so it is older than all the others.
    pub fn list(&self, now: Timestamp) -> Vec<Shelved> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let shelved = entries.filter_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str()?.strip_prefix(&self.prefix)?;
            let mut suffixes = pipe::SUFFIXES.iter();
            let piped = suffixes.find_map(|suffix| name.strip_suffix(suffix));
            let stamp = piped.unwrap_or(name).strip_suffix(SUFFIX)?;
            let found = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some(Shelved {
                file: entry.path(),
                made_at: read_stamp(stamp)?,
                bytes: found.len(),
                is_piped: piped.is_some(),
            })
        });
        let mut shelved: Vec<Shelved> = shelved.collect();
        shelved.sort_by_key(|shelved| {
            // Of two of the same second the encrypted one is the newer one: encryption was turned on in between.
            (!shelved.is_ahead(now), shelved.made_at.0, shelved.is_piped)
        });
        shelved
    }

    /// Takes a backup in: all of it, or nothing.
    pub fn put(&self, mut backup: Backup, go_on: &GoOn) -> Result<Shelved, BackupError> {
        let made_at = backup.manifest().made_at.0;
        let name = format!("{}{}{SUFFIX}", self.prefix, stamp(made_at));
        let part = self.folder.join(format!("{name}{PART}"));
        self.remove_parts();
        let put = self.write_part(&mut backup, &part, go_on);
        let put = put.and_then(|suffix| {
            let file = self.folder.join(format!("{name}{suffix}"));
            let target = |error| BackupError::Target(file.clone(), error);
            fs::rename(&part, &file).map_err(target)?;
            let folder = File::open(&self.folder).and_then(|folder| folder.sync_all());
            folder.map_err(target)?;
            let bytes = file.metadata().map_err(target)?.len();
            Ok(Shelved {
                is_piped: !suffix.is_empty(),
                file,
                made_at,
                bytes,
            })
        });
        if put.is_err() {
            // What is left of it is in nobody's way, and goes with the next one.
            let _ = fs::remove_file(&part);
        }
        put
    }

    /// Writes and verifies the backup, and sends it through the command, if there is one. Returns how its name ends besides.
    fn write_part(
        &self,
        backup: &mut Backup,
        part: &Path,
        go_on: &GoOn,
    ) -> Result<&'static str, BackupError> {
        let target = |error| BackupError::Target(part.into(), error);
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).read(true).mode(0o600);
        let mut out = options.open(part).map_err(target)?;
        let Some(pipe) = &self.pipe else {
            self.write(backup, out, go_on, &self.folder)?;
            return Ok("");
        };
        let plain = self.write(backup, pipe.plain_file()?, go_on, pipe.plain_folder())?;
        pipe.send(plain, &out, go_on, || refuse_full(&self.folder))?;
        pipe::suffix_of(&mut out).map_err(target)
    }

    /// Writes the backup to a file of this folder, and reads it back.
    fn write(
        &self,
        backup: &mut Backup,
        out: File,
        go_on: &GoOn,
        folder: &Path,
    ) -> Result<File, BackupError> {
        let target = |error| BackupError::Target(folder.into(), error);
        let mut out = GzEncoder::new(out, Compression::fast());
        let mut piece = vec![0; PIECE_BYTES];
        let mut until_look = 0;
        loop {
            let bytes = backup.read(&mut piece).map_err(cause)?;
            if bytes == 0 {
                break;
            }
            if !go_on() {
                return Err(CopyError::GivenUp.into());
            }
            if until_look < bytes as u64 {
                refuse_full(folder)?;
                until_look = LOOK_BYTES;
            }
            until_look -= bytes as u64;
            out.write_all(&piece[..bytes]).map_err(target)?;
        }
        let mut out = out.finish().map_err(target)?;
        out.sync_all().map_err(target)?;
        // What the disk gives back is what counts.
        out.rewind().map_err(target)?;
        let read = out.try_clone().map_err(target)?;
        let read = GivenUp { read, go_on };
        look(BufReader::new(read))?;
        Ok(out)
    }

    /// Of those that somebody was killed over.
    fn remove_parts(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&self.prefix) && name.ends_with(PART) {
                // In nobody's way but the disk's.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Removes all but the newest. Called when one more is there, with when it was made: never before.
    pub fn rotate(&self, made_at: Timestamp) -> Vec<PathBuf> {
        let list = self.list(made_at);
        let old = list.len().saturating_sub(self.keep);
        let mut removed = Vec::new();
        for shelved in &list[..old] {
            match fs::remove_file(&shelved.file) {
                Ok(()) => removed.push(shelved.file.clone()),
                Err(error) => {
                    log::warn!("{} cannot be removed: {error}", shelved.file.display())
                }
            }
        }
        removed
    }
}

fn refuse_full(folder: &Path) -> Result<(), BackupError> {
    let free = free_bytes(folder);
    let free = free.map_err(|error| BackupError::Target(folder.into(), error))?;
    match free < RESERVED_BYTES {
        true => Err(BackupError::NoRoom {
            folder: folder.into(),
            free: words::bytes(free),
            needed: words::bytes(RESERVED_BYTES),
            instead: super::ANOTHER_DISK,
        }),
        false => Ok(()),
    }
}

/// A file that is read until nobody wants it any more.
struct GivenUp<'a> {
    read: File,
    go_on: &'a GoOn,
}

impl Read for GivenUp<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match (self.go_on)() {
            true => self.read.read(buffer),
            false => Err(io::Error::other(CopyError::GivenUp)),
        }
    }
}

/// Reading a backup that is being made fails with what kept it from being made.
fn cause(error: io::Error) -> BackupError {
    match error.downcast::<BackupError>() {
        Ok(cause) => cause,
        Err(error) => BackupError::Unreadable(error),
    }
}

fn read_stamp(text: &str) -> Option<Timestamp> {
    let at = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", text).ok()?;
    let at = at.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Timestamp(at.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_and_those_of_others_too() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(folder.path(), "1a2b3c4d5e6f", 2);
        for name in [
            "stepward-1a2b3c4d-20260101T000000Z.tar.gz",
            "stepward-1a2b3c4d-20260102T000000Z.tar.gz",
            "stepward-1a2b3c4d-20251231T235959Z.tar.gz",
            "stepward-1a2b3c4d-20260103T000000Z.tar.gz.part",
            "stepward-ffffffff-20250101T000000Z.tar.gz",
            "stepward-1a2b3c4d-mine.tar.gz",
            "photos.tar.gz",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let now = read_stamp("20260102T000000Z").unwrap();
        assert_eq!(shelf.list(now).last().unwrap().made_at, now);
        let removed = shelf.rotate(now);
        assert_eq!(
            removed,
            [folder
                .path()
                .join("stepward-1a2b3c4d-20251231T235959Z.tar.gz")]
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6);
        assert!(shelf.rotate(now).is_empty());
    }

    #[test]
    fn what_a_clock_ahead_of_time_left_goes_before_what_was_made_since() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(folder.path(), "1a2b3c4d5e6f", 2);
        let file = |at: &str| folder.path().join(format!("stepward-1a2b3c4d-{at}.tar.gz"));
        let [first, second, later] = ["20260101T000000Z", "20260102T000000Z", "20990101T000000Z"];
        for at in [first, second, later] {
            fs::write(file(at), "").unwrap();
        }
        assert_eq!(shelf.rotate(read_stamp(second).unwrap()), [file(later)]);
        // With room for one alone it is the one that was just made.
        fs::write(file(later), "").unwrap();
        let shelf = Shelf::new(folder.path(), "1a2b3c4d5e6f", 1);
        let removed = shelf.rotate(read_stamp(first).unwrap());
        assert_eq!(removed, [file(second), file(later)]);
        assert!(file(first).exists());
    }
}
