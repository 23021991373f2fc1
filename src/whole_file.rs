//! Replaces a file as a whole: a reader sees the former content or the new content, never a part of it.
//!
//! The content is written to a draft beside the file, whose name ends with `.new`, and the draft is renamed. A write that fails,
//! for example on a full disk, removes its draft. A process that is killed leaves its draft behind: whoever owns the folder
//! removes drafts at its start with `remove_drafts`.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const DRAFT_EXTENSION: &str = "new";

/// Replaces the file. Its content may be lost if the machine loses power soon after.
pub fn write(file: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    write_draft(file, mode, bytes, |_| Ok(()))
}

/// Replaces the file. The content and the name are durable on disk when this returns.
pub fn write_durably(file: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    write_draft(file, mode, bytes, File::sync_all)?;
    match file.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Replaces the file with a secret that only its owner may read. The content and the name are durable on disk when this returns.
///
/// The draft is always a new file: one that somebody else left may be open to others, or a link to somewhere else.
pub fn write_secret_durably(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = draft_of(file);
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let opened = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    finish_draft(opened, &draft, file, bytes, File::sync_all)?;
    match file.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn write_draft(
    file: &Path,
    mode: u32,
    bytes: &[u8],
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let draft = draft_of(file);
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(mode);
    let opened = options.open(&draft)?;
    finish_draft(opened, &draft, file, bytes, sync)
}

fn finish_draft(
    mut opened: File,
    draft: &Path,
    file: &Path,
    bytes: &[u8],
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let written = opened
        .write_all(bytes)
        .and_then(|()| sync(&opened))
        .and_then(|()| fs::rename(draft, file));
    if written.is_err() {
        // The caller gets the first error. If the draft stays as well, the next start removes it.
        let _ = fs::remove_file(draft);
    }
    written
}

/// The name under which the next content of the file is written.
fn draft_of(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".");
    name.push(DRAFT_EXTENSION);
    PathBuf::from(name)
}

/// Removes the draft that a process left which was killed while it wrote this file. Nobody else may be writing the file.
pub fn remove_draft(file: &Path) {
    remove(&draft_of(file));
}

/// Removes every draft in a folder that belongs to the caller alone.
pub fn remove_drafts(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let path = entry.path();
        let is_draft = path.extension().is_some_and(|end| end == DRAFT_EXTENSION);
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_draft && is_file {
            remove(&path);
        }
    }
}

fn remove(draft: &Path) {
    match fs::remove_file(draft) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => log::warn!("{} cannot be removed: {error}", draft.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_write_replaces_the_file_and_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("session");
        write_durably(&file, 0o600, b"first").unwrap();
        write(&file, 0o600, b"second").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["session"]);
    }

    #[test]
    fn a_write_that_fails_leaves_no_draft_and_keeps_the_former_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("session");
        // A folder cannot be replaced by a file, so the rename fails as it would on a broken disk.
        fs::create_dir(&file).unwrap();
        write(&file, 0o600, b"new").unwrap_err();
        assert_eq!(names(folder.path()), ["session"]);
        assert!(file.is_dir());
    }

    #[test]
    fn a_secret_goes_into_a_file_of_its_own() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // Somebody waits for the secret with a draft that leads elsewhere.
        std::os::unix::fs::symlink(path("elsewhere"), path("secret.new")).unwrap();
        write_secret_durably(&path("secret"), b"hunter2").unwrap();
        assert_eq!(fs::read(path("secret")).unwrap(), b"hunter2");
        let mode = fs::metadata(path("secret")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(names(folder.path()), ["secret"]);
    }

    #[test]
    fn only_drafts_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["session.new", "7.2.json.new", "instance", "newer"] {
            fs::write(path(name), "x").unwrap();
        }
        fs::create_dir(path("folder.new")).unwrap();
        std::os::unix::fs::symlink(path("instance"), path("link.new")).unwrap();
        remove_drafts(folder.path());
        assert_eq!(
            names(folder.path()),
            ["folder.new", "instance", "link.new", "newer"]
        );
    }
}
