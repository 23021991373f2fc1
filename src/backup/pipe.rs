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
}

impl Pipe {
    /// `None`: the settings name no command.
    pub fn new(words: &[String], data_dir: &Path) -> Option<Pipe> {
        (!words.is_empty()).then(|| Pipe {
            words: words.to_vec(),
            data_dir: data_dir.into(),
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
        let program = Program {
            words: &self.words,
            variables: &[],
            stdin: Input::File(plain),
            stdout: Stdio::from(out.try_clone().map_err(unready)?),
        };
        let mut refused = None;
        let ended = program::run(program, &mut |_| {
            refused = check().err();
            go_on() && refused.is_none()
        });
        let (status, stderr, fed) = match ended {
            ProgramEnd::NotStarted(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(failed(NO_SUCH_PROGRAM.to_string()));
            }
            ProgramEnd::NotStarted(error) | ProgramEnd::Unknown(error) => {
                return Err(unready(error));
            }
            ProgramEnd::Killed => {
                let stopped = crate::store::CopyError::GivenUp.into();
                return Err(refused.unwrap_or(stopped));
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
