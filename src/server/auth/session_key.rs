//! The key that signs the cookies of browsers and the forms of pages.
//!
//! A cookie is signed with this key and with the hash of the token that began the session. The hashes are in the database, so the key
//! is in a file of its own that no backup contains: otherwise whoever has a backup could make the cookie of an admin.

use std::path::Path;

use crate::secrets::random_secret;
use crate::token_files;

/// The file in the data folder.
const SESSION_KEY_FILE: &str = "session.key";

/// Digits of the key in hexadecimal.
const KEY_LENGTH: usize = 64;

/// Reads the key. Makes a new one if there is none, or if somebody else can have written or read the file.
pub fn load_or_create(data_dir: &Path) -> Result<String, getrandom::Error> {
    let file = data_dir.join(SESSION_KEY_FILE);
    if let Some(key) = read(&file) {
        return Ok(key);
    }
    let key = random_secret()?;
    // The server works all the same: its next start makes another key.
    if let Err(error) = token_files::write(&file, &key) {
        log::warn!(
            "{} cannot be written: {error}; people have to log in again after the next start",
            file.display()
        );
    }
    Ok(key)
}

fn read(file: &Path) -> Option<String> {
    let bytes = token_files::read_private(file)?;
    let key = std::str::from_utf8(&bytes).ok()?.trim();
    let is_key = key.len() == KEY_LENGTH && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_key.then(|| key.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn the_key_stays_the_same_and_is_for_the_server_alone() {
        let folder = tempfile::tempdir().unwrap();
        let key = load_or_create(folder.path()).unwrap();
        assert_eq!(load_or_create(folder.path()).unwrap(), key);
        let found = fs::metadata(folder.path().join(SESSION_KEY_FILE)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_key_that_others_may_know_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(SESSION_KEY_FILE);
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "a".repeat(KEY_LENGTH)).unwrap();
        fs::set_permissions(&elsewhere, Permissions::from_mode(0o600)).unwrap();
        symlink(&elsewhere, &file).unwrap();
        let key = load_or_create(folder.path()).unwrap();
        assert_ne!(key, "a".repeat(KEY_LENGTH));
        assert!(fs::symlink_metadata(&file).unwrap().is_file());

        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let next = load_or_create(folder.path()).unwrap();
        assert_ne!(next, key);
        for broken in ["", "too short", &"x".repeat(KEY_LENGTH)] {
            fs::write(&file, broken).unwrap();
            assert_eq!(load_or_create(folder.path()).unwrap().len(), KEY_LENGTH);
            assert!(read(&file).is_some(), "{broken}");
        }
    }
}
