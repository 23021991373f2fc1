//! The command that a finished and verified backup goes through before it is kept, such as `age`, which encrypts it.
//!
//! What is encrypted cannot be verified any more by whoever has no key, so the order is fixed: the backup is written to a file
//! without a name, read back and checked, and only then sent through the command. The file without a name is gone when the process
//! ends, however it ends.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::open::is_of_age;
use super::{BackupError, Staging};
use crate::program::{self, FeedError, Input, Program, ProgramEnd};
use crate::store::GoOn;
use crate::temporary;
use crate::words;

const COMPLAINT_CHARS_MAX: usize = 300;
/// A command that neither reads nor writes anything for this time is killed: without an end to it there would be no further backup.
const STALL_LIMIT_MS: u64 = 600_000;
const NO_SUCH_PROGRAM: &str =
    "there is no such program; install it, or correct `backup.pipe` in the settings";

/// Suffixes of a backup that went through a command: `.age` if `age` wrote it, else `.piped`.
const AGE: &str = ".age";
const PIPED: &str = ".piped";
pub(super) const SUFFIXES: [&str; 2] = [AGE, PIPED];

#[derive(Debug, Clone)]
pub struct Pipe {
    /// The program and its arguments, one at least.
    words: Vec<String>,
    /// Folder for the backup before it is encrypted. The folder for encrypted backups may be on another machine.
    data_dir: PathBuf,
    stall_limit_ms: u64,
}

impl Pipe {
    /// `None`: the settings name no command.
    pub fn new(words: &[String], data_dir: &Path) -> Option<Pipe> {
        (!words.is_empty()).then(|| Pipe {
            words: words.to_vec(),
            data_dir: data_dir.into(),
            stall_limit_ms: STALL_LIMIT_MS,
        })
    }

    pub fn program(&self) -> &str {
        &self.words[0]
    }

    /// Says why the program cannot be run, without running it.
    pub fn check(&self) -> Result<(), BackupError> {
        program::check(self.program()).map_err(|kind| BackupError::Pipe {
            program: words::printable(self.program()),
            why: match kind {
                io::ErrorKind::NotFound => NO_SUCH_PROGRAM.to_string(),
                _ => "the server may not run it; make it executable, or correct `backup.pipe` in the settings".to_string(),
            },
        })
    }

    /// Staging area in the data folder. Its name differs from copies that the API hands out, because both may exist at a time.
    pub fn staging(&self) -> Staging {
        Staging {
            folder: self.data_dir.clone(),
            prefix: "scheduled-backup-copy.".to_string(),
            instead: Some(std::env::temp_dir()),
        }
    }

    /// The folder for `plain_file`.
    pub fn plain_folder(&self) -> &Path {
        &self.data_dir
    }

    /// A file for the backup before it is encrypted.
    pub fn plain_file(&self) -> Result<File, BackupError> {
        let file = unnamed_file(&self.data_dir, "scheduled-backup-plain.");
        file.map_err(|error| BackupError::Target(self.data_dir.clone(), error))
    }

    /// Sends the backup through the command to a file, which is on disk when this returns. `check`: is asked again and again
    /// whether there is still room.
    pub fn send(
        &self,
        mut plain: File,
        out: &File,
        go_on: &GoOn,
        check: impl Fn() -> Result<(), BackupError>,
    ) -> Result<(), BackupError> {
        let failed = |why: String| BackupError::Pipe {
            program: words::printable(self.program()),
            why,
        };
        let unready = |error: io::Error| failed(error.to_string());
        plain.rewind().map_err(unready)?;
        // Shares its position with the file that the command is fed from.
        let mut fed_from = plain.try_clone().map_err(unready)?;
        let program = Program {
            words: &self.words,
            variables: &[],
            stdin: Input::File(plain),
            stdout: Stdio::from(out.try_clone().map_err(unready)?),
        };
        let mut refused = None;
        let (mut progress, mut progress_ms) = ((0, 0), 0);
        let ended = program::run(program, &mut |waited| {
            let waited_ms = waited.as_millis() as u64;
            refused = check().err();
            let read = fed_from.stream_position().unwrap_or_default();
            let written = out.metadata().map_or(0, |found| found.len());
            if (read, written) != progress {
                (progress, progress_ms) = ((read, written), waited_ms);
            }
            let is_stalled = waited_ms - progress_ms >= self.stall_limit_ms;
            go_on() && refused.is_none() && !is_stalled
        });
        let (status, stderr, fed) = match ended {
            ProgramEnd::NotStarted(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(failed(NO_SUCH_PROGRAM.to_string()));
            }
            ProgramEnd::NotStarted(error) | ProgramEnd::Unknown(error) => {
                return Err(unready(error));
            }
            ProgramEnd::Killed if !go_on() => {
                return Err(crate::store::CopyError::GivenUp.into());
            }
            ProgramEnd::Killed => {
                let limit = words::duration(self.stall_limit_ms as i64);
                return Err(refused.unwrap_or_else(|| {
                    failed(format!(
                        "it hung: it read and wrote nothing for {limit} and was killed; run it by hand to see what it waits for"
                    ))
                }));
            }
            ProgramEnd::Exited {
                status,
                stderr,
                fed,
            } => (status, stderr, fed),
        };
        if !status.success() {
            let said = String::from_utf8_lossy(&stderr);
            // All of it: `age` says what is wrong first, and where to report bugs last.
            let lines = said.lines().filter(|line| !line.trim().is_empty());
            let said = lines.collect::<Vec<&str>>().join("; ");
            let said = words::fit(&words::printable(&said), COMPLAINT_CHARS_MAX, "...");
            return Err(failed(match said.is_empty() {
                true => format!("it ended with {status} and said nothing"),
                false => format!("it ended with {status}: {said}"),
            }));
        }
        out.sync_all().map_err(unready)?;
        if out.metadata().map_err(unready)?.len() == 0 {
            return Err(failed("it wrote nothing".to_string()));
        }
        fed.map_err(|error| match error {
            FeedError::Unread => failed(
                "it ended without an error before it had read the whole backup, so what it wrote is no backup; correct \
                 `backup.pipe` in the settings"
                    .to_string(),
            ),
            FeedError::Io(error) => unready(error),
        })
    }
}

/// Returns the suffix for the name of a backup that went through a command.
pub(super) fn suffix_of(piped: &mut File) -> io::Result<&'static str> {
    let mut begin = Vec::new();
    piped.rewind()?;
    piped.take(64).read_to_end(&mut begin)?;
    Ok(match is_of_age(&begin) {
        true => AGE,
        false => PIPED,
    })
}

/// A file that only this user can read, and that has no name any more: it is gone when the process ends.
pub fn unnamed_file(folder: &Path, prefix: &str) -> io::Result<File> {
    let named = temporary::create_file_in(folder, prefix)?;
    let file = named.reopen()?;
    named.close()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::*;

    /// Sends a megabyte through a shell script. Returns the length of what came out.
    fn sent(script: &str, stall_limit_ms: u64) -> Result<u64, String> {
        let folder = tempfile::tempdir().unwrap();
        let pipe = Pipe {
            words: ["sh", "-c", script].map(str::to_string).to_vec(),
            data_dir: folder.path().into(),
            stall_limit_ms,
        };
        let mut plain = pipe.plain_file().unwrap();
        plain.write_all(&vec![b'.'; 1_000_000]).unwrap();
        let out = tempfile::tempfile().unwrap();
        let sent = pipe.send(plain, &out, &(Arc::new(|| true) as GoOn), || Ok(()));
        sent.map_err(|error| error.to_string())?;
        Ok(out.metadata().unwrap().len())
    }

    #[test]
    fn a_command_that_hangs_is_killed_and_told() {
        for script in ["sleep 600", "head -c 100; sleep 600", "cat; sleep 600"] {
            let why = sent(script, 300).unwrap_err();
            assert!(
                why.contains("through sh: it hung: it read and wrote nothing for"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_command_that_is_slow_is_not_killed() {
        // It takes longer than the limit as a whole, and never so long without reading something.
        let slow = "for i in 1 2 3 4 5 6 7 8 9 10; do dd bs=100000 count=1 iflag=fullblock status=none; sleep 0.2; done";
        assert_eq!(sent(slow, 1_500), Ok(1_000_000));
    }
}
