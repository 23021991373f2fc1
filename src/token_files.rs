//! The files in a data folder that hold the text of the tokens of the first start: `admin.token` for commands and `worker.token` for
//! workers of the same user on the same machine.
//!
//! Whoever can read such a file is let in, so the files have mode 0600, are not part of a backup, and are read only if they belong
//! to the user who asks.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::domain::token::TokenText;
use crate::whole_file;
use crate::words::shell_path;

/// The file of the token that the commands of the server's user find.
pub const ADMIN_TOKEN_FILE: &str = "admin.token";
/// The file of the token that workers of the server's user find.
pub const WORKER_TOKEN_FILE: &str = "worker.token";

/// A token has less than 100 bytes. A longer file is something else.
const FILE_BYTES_MAX: u64 = 1_000;
/// The permissions of the group and of everybody else.
const OTHERS: u32 = 0o077;
/// The permissions of the group and of everybody else to write.
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// Writes the file. It is durable on disk when this returns, and at no time could another user read it.
pub fn write(file: &Path, text: &str) -> io::Result<()> {
    whole_file::write_secret_durably(file, format!("{text}\n").as_bytes())
}

/// Keeps a new data folder out of version control: it holds tokens and secrets. A file that is there stays as it is. Whoever wants the
/// folder in a repository removes the file.
pub fn keep_out_of_repositories(data_dir: &Path) {
    let file = data_dir.join(".gitignore");
    let made = OpenOptions::new().write(true).create_new(true).open(&file);
    let written = made.and_then(|mut file| file.write_all(b"*\n"));
    if let Err(error) = written
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        log::warn!("{} cannot be written: {error}", file.display());
    }
}

/// Reads the token, if the file is one that this user's server wrote.
///
/// `None`: the file is not there, belongs to another user, can be read by others, is a link, or holds no whole token. Then somebody
/// else may have put it there, or may know its content, and nothing is sent.
pub fn read_own(file: &Path) -> Option<String> {
    let bytes = read_private(file)?;
    let token = std::str::from_utf8(&bytes).ok()?.trim();
    TokenText::read(token).map(|_| token.to_string())
}

/// Reads a short file that only this user can have written and can read.
pub fn read_private(file: &Path) -> Option<Vec<u8>> {
    let is_trusted = |found: &Metadata| {
        found.uid() == rustix::process::geteuid().as_raw() && found.mode() & OTHERS == 0
    };
    read_trusted(file, FILE_BYTES_MAX, is_trusted)
}

/// Why `read_own` does not read a file that is there, and what to do. `None`: it reads the file, or there is none.
pub fn why_ignored(file: &Path) -> Option<String> {
    let found = file.symlink_metadata().ok()?;
    let shown = file.display();
    if found.is_file() && found.uid() != rustix::process::geteuid().as_raw() {
        return Some(format!(
            "{shown} is ignored, because it belongs to another user"
        ));
    }
    if found.is_file() && found.mode() & OTHERS != 0 {
        let quoted = shell_path(file);
        return Some(format!(
            "{shown} is ignored, because its permissions let other users read it: chmod 600 {quoted}"
        ));
    }
    match read_own(file) {
        Some(_) => None,
        None => Some(format!(
            "{shown} is ignored, because it is not a file with one whole token"
        )),
    }
}

/// Reads a file that says where a token is sent to, if only this user or root can have written it.
///
/// `None`: the file is not there, belongs to another user, can be written by others, is a link, or is longer than `bytes_max`.
pub fn read_written_by_own(file: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let is_trusted = |found: &Metadata| {
        let owner = found.uid();
        let is_own = owner == 0 || owner == rustix::process::geteuid().as_raw();
        is_own && found.mode() & WRITTEN_BY_OTHERS == 0
    };
    read_trusted(file, bytes_max, is_trusted)
}

/// Reads a regular file if `is_trusted` accepts its owner and its mode.
///
/// The path is looked up once. Another user who can write in a folder above may replace what the path leads to at any time, so the
/// file that is checked has to be the file that is read.
fn read_trusted(
    file: &Path,
    bytes_max: u64,
    is_trusted: impl Fn(&Metadata) -> bool,
) -> Option<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(flags.bits() as i32);
    let opened: File = options.open(file).ok()?;
    let found = opened.metadata().ok()?;
    if !found.is_file() || found.len() > bytes_max || !is_trusted(&found) {
        return None;
    }
    let mut bytes = Vec::new();
    opened.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
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
        assert_eq!(why_ignored(&file), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(read_own(&file), None);
        let why = why_ignored(&file).unwrap();
        assert!(why.contains("chmod 600"), "{why}");
    }

    #[test]
    fn a_folder_is_kept_out_of_repositories_and_what_somebody_wrote_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(".gitignore");
        keep_out_of_repositories(folder.path());
        assert_eq!(fs::read_to_string(&file).unwrap(), "*\n");
        fs::write(&file, "mine").unwrap();
        keep_out_of_repositories(folder.path());
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    }

    #[test]
    fn a_file_that_others_can_write_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let set_mode = |mode: u32| {
            fs::set_permissions(path("real"), fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::write(path("real"), "{}").unwrap();
        set_mode(0o644);
        assert_eq!(read_written_by_own(&path("real"), 2), Some(b"{}".to_vec()));
        assert_eq!(read_written_by_own(&path("real"), 1), None);
        symlink(path("real"), path("link")).unwrap();
        assert_eq!(read_written_by_own(&path("link"), 2), None);
        for mode in [0o664, 0o646] {
            set_mode(mode);
            assert_eq!(read_written_by_own(&path("real"), 2), None);
        }
        if rustix::process::geteuid().is_root() {
            set_mode(0o644);
            std::os::unix::fs::chown(path("real"), Some(0), Some(1)).unwrap();
            assert!(read_written_by_own(&path("real"), 2).is_some());
            assert_eq!(read_own(&path("real")), None);
            std::os::unix::fs::chown(path("real"), Some(1), Some(1)).unwrap();
            assert_eq!(read_written_by_own(&path("real"), 2), None);
        }
    }

    #[test]
    fn a_link_a_pipe_and_half_a_token_are_no_token_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write(&path("real"), &token()).unwrap();
        symlink(path("real"), path("link")).unwrap();
        assert_eq!(read_own(&path("link")), None);
        assert!(why_ignored(&path("link")).is_some());
        assert_eq!(why_ignored(&path("missing")), None);
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
