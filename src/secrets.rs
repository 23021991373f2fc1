//! Secrets, found where a reference says.
//!
//! No sentence in here holds a value. What is wrong is told by the name of the variable or the file.

use std::fs::File;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::domain::secret::SecretRef;

pub const SECRET_BYTES_MAX: usize = 64 << 10;

/// Resolves references of the server's own settings, which may name any place. References in workflow files go through
/// `SecretPolicy`. Each one is resolved anew: a secret may be changed without a restart.
pub struct Secrets;

impl Secrets {
    pub fn resolve(reference: &SecretRef) -> Result<String, String> {
        match reference {
            SecretRef::Env(name) => from_environment(name),
            SecretRef::File(path) => from_file(Path::new(path)),
        }
    }
}

pub(crate) fn from_environment(name: &str) -> Result<String, String> {
    let variable = format!("the variable {name:?} of the server's environment");
    // `var_os` panics on names that no variable can have.
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(format!("{variable} cannot exist"));
    }
    let value = std::env::var_os(name).ok_or_else(|| format!("{variable} is not set"))?;
    let value = value
        .into_string()
        .map_err(|_| format!("{variable} is not UTF-8"))?;
    fits(&variable, value)
}

fn from_file(path: &Path) -> Result<String, String> {
    let file = format!("the file {}", path.display());
    // A FIFO would block until somebody writes, so it is opened without waiting and then refused.
    let no_wait = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(no_wait.bits() as i32)
        .open(path);
    let opened = opened.map_err(|error| format!("{file} cannot be read: {error}"))?;
    from_opened(&file, opened)
}

/// Reads the secret from a file that is open. `file` is how messages call it.
pub(crate) fn from_opened(file: &str, opened: File) -> Result<String, String> {
    let found = opened.metadata();
    let found = found.map_err(|error| format!("{file} cannot be read: {error}"))?;
    if !found.is_file() {
        return Err(format!("{file} is not a regular file"));
    }
    let mut bytes = Vec::new();
    // One line end may follow the longest secret, and one byte more tells that it is longer.
    let read = opened
        .take(SECRET_BYTES_MAX as u64 + 3)
        .read_to_end(&mut bytes);
    read.map_err(|error| format!("{file} cannot be read: {error}"))?;
    let mut value = String::from_utf8(bytes).map_err(|_| format!("{file} is not UTF-8"))?;
    if value.ends_with('\n') {
        value.pop();
        if value.ends_with('\r') {
            value.pop();
        }
    }
    fits(file, value)
}

fn fits(place: &str, value: String) -> Result<String, String> {
    if value.is_empty() {
        return Err(format!("{place} is empty"));
    }
    if value.len() > SECRET_BYTES_MAX {
        return Err(format!(
            "{place} is longer than {SECRET_BYTES_MAX} bytes, which is the most that a secret may have"
        ));
    }
    match value.contains('\0') {
        true => Err(format!("{place} has a NUL byte in it")),
        false => Ok(value),
    }
}

/// 256 bits that nobody can guess, in hex: what a token is made of.
pub fn random_secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(in_hex(&bytes))
}

/// SHA-256 in hex: what is kept of a token. A secret that cannot be guessed needs no slow hash.
pub fn hash_hex(text: &str) -> String {
    in_hex(&Sha256::digest(text.as_bytes()))
}

fn in_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_with(bytes: &[u8]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, bytes).unwrap();
        let found = Secrets::resolve(&SecretRef::File(path.display().to_string()));
        found.map_err(|sentence| sentence.replace(&format!("{}/", folder.path().display()), ""))
    }

    #[test]
    fn a_file_gives_its_text_without_one_line_end() {
        let longest = "x".repeat(SECRET_BYTES_MAX);
        for (bytes, expected) in [
            ("hunter2", "hunter2"),
            ("hunter2\n", "hunter2"),
            ("hunter2\r\n", "hunter2"),
            ("two\nlines\n\n", "two\nlines\n"),
            (" spaced ", " spaced "),
            ("Grüße", "Grüße"),
            (longest.as_str(), longest.as_str()),
            (&format!("{longest}\n"), longest.as_str()),
        ] {
            assert_eq!(file_with(bytes.as_bytes()).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn what_is_no_secret_is_told_without_its_value() {
        let long = "x".repeat(SECRET_BYTES_MAX + 1);
        for (bytes, sentence) in [
            (b"".as_slice(), "the file token is empty"),
            (b"\n", "the file token is empty"),
            (b"hunter2\xff", "the file token is not UTF-8"),
            (b"hunter2\0", "the file token has a NUL byte in it"),
            (
                long.as_bytes(),
                "the file token is longer than 65536 bytes, which is the most that a secret may have",
            ),
        ] {
            assert_eq!(file_with(bytes).unwrap_err(), sentence);
        }
    }

    #[test]
    fn a_pipe_a_folder_a_device_and_nothing_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for (path, why) in [
            (pipe.as_path(), "is not a regular file"),
            (folder.path(), "is not a regular file"),
            (Path::new("/dev/zero"), "is not a regular file"),
            (Path::new("/nowhere/at/all"), "cannot be read: "),
        ] {
            let sentence = from_file(path).unwrap_err();
            assert!(sentence.contains(why), "{sentence}");
        }
    }

    #[test]
    fn a_variable_gives_its_value() {
        let path = std::env::var("PATH").unwrap();
        assert_eq!(
            Secrets::resolve(&SecretRef::Env("PATH".to_string())),
            Ok(path)
        );
        for (name, why) in [
            ("STEPWARD_NEVER_SET", "is not set"),
            ("", "cannot exist"),
            ("A=B", "cannot exist"),
        ] {
            let sentence = Secrets::resolve(&SecretRef::Env(name.to_string())).unwrap_err();
            assert!(sentence.ends_with(why), "{sentence}");
            assert!(sentence.contains(name), "{sentence}");
        }
    }
}
