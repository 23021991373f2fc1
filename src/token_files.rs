//! The files in a data folder that hold the text of the tokens of the first start: `admin.token` for commands and `worker.token` for
//! workers of the same user on the same machine.
//!
//! Whoever can read such a file is let in, so the files have mode 0600, are not part of a backup, and are read only if they belong
//! to the user who asks.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::domain::token::TokenText;
use crate::whole_file;

/// The file of the token that the commands of the server's user find.
pub const ADMIN_TOKEN_FILE: &str = "admin.token";
/// The file of the token that workers of the server's user find.
pub const WORKER_TOKEN_FILE: &str = "worker.token";

/// A token has less than 100 bytes. A longer file is something else.
const FILE_BYTES_MAX: u64 = 1_000;
/// The permissions of the group and of everybody else.
const OTHERS: u32 = 0o077;

/// Writes the file. It is durable on disk when this returns, and at no time could another user read it.
pub fn write(file: &Path, text: &str) -> io::Result<()> {
    whole_file::write_secret_durably(file, format!("{text}\n").as_bytes())
}

/// Reads the token, if the file is one that this user's server wrote.
///
/// `None`: the file is not there, belongs to another user, can be read by others, is a link, or holds no whole token. Then somebody
/// else may have put it there, or may know its content, and nothing is sent.
pub fn read_own(file: &Path) -> Option<String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(flags.bits() as i32);
    let opened: File = options.open(file).ok()?;
    let found = opened.metadata().ok()?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_file() || !is_own || found.mode() & OTHERS != 0 {
        return None;
    }
    let mut text = String::new();
    opened.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let token = text.trim();
    TokenText::read(token).map(|_| token.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::domain::TokenId;

    fn token() -> String {
        let secret = "0123456789abcdef".repeat(4);
        let text = TokenText {
            token_id: TokenId(1),
            secret: &secret,
            is_enrolment: false,
        };
        text.write()
    }

    #[test]
    fn a_token_file_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(ADMIN_TOKEN_FILE);
        write(&file, &token()).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read_own(&file), Some(token()));
        // Once others can read it, somebody else may have it.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(read_own(&file), None);
    }

    #[test]
    fn a_link_a_pipe_and_half_a_token_are_no_token_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write(&path("real"), &token()).unwrap();
        symlink(path("real"), path("link")).unwrap();
        assert_eq!(read_own(&path("link")), None);
        write(&path("half"), &token()[..40]).unwrap();
        assert_eq!(read_own(&path("half")), None);
        assert_eq!(read_own(&path("missing")), None);
        assert_eq!(read_own(folder.path()), None);
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            mknodat(CWD, path("pipe"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
            assert_eq!(read_own(&path("pipe")), None);
        }
    }
}
