//! Secrets: found where a reference says, and sealed where a value must be kept.
//!
//! No sentence in here holds a value. What is wrong is told by the name of the variable or the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::domain::secret::SecretRef;

pub const SECRET_BYTES_MAX: usize = 64 << 10;

/// Resolves references, each time anew: a secret may be changed without a restart.
pub struct Secrets;

impl Secrets {
    pub fn resolve(reference: &SecretRef) -> Result<String, String> {
        match reference {
            SecretRef::Env(name) => from_environment(name),
            SecretRef::File(path) => from_file(Path::new(path)),
        }
    }
}

fn from_environment(name: &str) -> Result<String, String> {
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
    fits(&file, value)
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

/// Seals values that must survive a restart but must not be readable where they are kept.
pub struct Sealer {
    key: LessSafeKey,
    fingerprints: hmac::Key,
    /// `None`: the key is in memory alone.
    file: Option<PathBuf>,
}

pub const KEY_FILE: &str = "secret.key";
const KEY_BYTES: usize = 32;
const SEALED: &str = "$sealed";
const VERSION: &str = "v1.";
/// What the seal is for: nothing that this key sealed for something else opens as an input.
const PURPOSE: &[u8] = b"stepward input v1";
/// So that no text is signed for two purposes.
const FINGERPRINT: &[u8] = b"fingerprint\n";

impl Sealer {
    /// The key is in the folder; it is made on first use.
    pub fn open(folder: &Path) -> io::Result<Sealer> {
        let file = folder.join(KEY_FILE);
        let key = match read_key(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_key(folder, &file)?;
                // Whoever came first has made it.
                read_key(&file)?
            }
            known => known?,
        };
        let mut sealer = Sealer::with_key(&key);
        sealer.file = Some(file);
        Ok(sealer)
    }

    /// Opens nothing that others sealed, and touches no file: for whoever only looks.
    pub fn of_nothing() -> Sealer {
        Sealer::with_key(&[0; KEY_BYTES])
    }

    fn with_key(key: &[u8; KEY_BYTES]) -> Sealer {
        let fingerprints = hmac::Key::new(hmac::HMAC_SHA256, key);
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has its length");
        Sealer {
            key: LessSafeKey::new(key),
            fingerprints,
            file: None,
        }
    }

    /// `{"$sealed": "v1.…"}`. What is sealed already stays as it is.
    pub fn seal(&self, value: &Value) -> Value {
        if Sealer::is_sealed(value) {
            return value.clone();
        }
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).expect("the system gives random bytes");
        let mut bytes = value.to_string().into_bytes();
        self.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(PURPOSE),
                &mut bytes,
            )
            .expect("a value is far below the cipher's limit");
        let sealed = [nonce.as_slice(), &bytes].concat();
        json!({ SEALED: format!("{VERSION}{}", BASE64.encode(sealed)) })
    }

    pub fn unseal(&self, value: &Value) -> Result<Value, String> {
        let text = sealed_text(value).ok_or("the value is not sealed")?;
        let damaged = || "the sealed value is damaged; submit it again".to_string();
        let text = text
            .strip_prefix(VERSION)
            .ok_or("the value was sealed by a newer version of this program")?;
        let mut bytes = BASE64.decode(text).map_err(|_| damaged())?;
        if bytes.len() < NONCE_LEN + CHACHA20_POLY1305.tag_len() {
            return Err(damaged());
        }
        let mut sealed = bytes.split_off(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(&bytes).map_err(|_| damaged())?;
        let opened = self
            .key
            .open_in_place(nonce, Aad::from(PURPOSE), &mut sealed);
        let opened = opened.map_err(|_| self.wrong_key())?;
        serde_json::from_slice(opened).map_err(|_| damaged())
    }

    fn wrong_key(&self) -> String {
        let key = match &self.file {
            Some(file) => format!("the key in {}", file.display()),
            None => "the key in memory".to_string(),
        };
        format!(
            "a secret input cannot be opened: {key} is not the one that sealed it; put the former key file back, \
             or submit the job again"
        )
    }

    /// The value with everything open that is sealed in it, however deep; what was opened is added to the list.
    pub fn open_all(&self, value: &Value, opened: &mut Vec<Value>) -> Result<Value, String> {
        if Sealer::is_sealed(value) {
            let open = self.unseal(value)?;
            opened.push(open.clone());
            return Ok(open);
        }
        Ok(match value {
            Value::Array(items) => {
                let items = items.iter().map(|item| self.open_all(item, opened));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Value::Object(map) => {
                let entries = map
                    .iter()
                    .map(|(key, value)| Ok((key.clone(), self.open_all(value, opened)?)));
                Value::Object(entries.collect::<Result<_, String>>()?)
            }
            plain => plain.clone(),
        })
    }

    /// Two texts have the same one if they are the same; without the key nobody can try which text it is of.
    pub fn fingerprint(&self, text: &str) -> String {
        let tag = hmac::sign(&self.fingerprints, &[FINGERPRINT, text.as_bytes()].concat());
        BASE64.encode(tag)
    }

    pub fn is_sealed(value: &Value) -> bool {
        sealed_text(value).is_some()
    }

    /// The value as it may be shown: `***` in the place of everything that is sealed in it.
    pub fn veiled(value: &Value) -> Value {
        match value {
            sealed if Sealer::is_sealed(sealed) => Value::from("***"),
            Value::Array(items) => items.iter().map(Sealer::veiled).collect(),
            Value::Object(map) => {
                let entries = map.iter();
                let entries = entries.map(|(key, value)| (key.clone(), Sealer::veiled(value)));
                Value::Object(entries.collect())
            }
            plain => plain.clone(),
        }
    }
}

fn sealed_text(value: &Value) -> Option<&str> {
    match value.as_object() {
        Some(map) if map.len() == 1 => map.get(SEALED)?.as_str(),
        _ => None,
    }
}

fn read_key(file: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let mut bytes = Vec::new();
    let odd = |what: &str| {
        let message = format!("{} {what}", file.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    // A pipe would block until somebody writes, so it is opened without waiting and then refused.
    let no_wait = rustix::fs::OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(no_wait.bits() as i32);
    let opened = options.open(file).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound && file.is_symlink() {
            return odd(
                "is a symbolic link to a file that does not exist; mount or create that file, or remove the link to have a new key made",
            );
        }
        let file = file.display();
        let message = format!(
            "{file} cannot be read: {error}; make it readable for the user that runs the server"
        );
        io::Error::new(error.kind(), message)
    })?;
    let found = opened.metadata()?;
    if !found.is_file() {
        return Err(odd("is not a regular file"));
    }
    if found.permissions().mode() & 0o077 != 0 {
        return Err(odd("can be read by others; run chmod 600 on it"));
    }
    opened.take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let key = <[u8; KEY_BYTES]>::try_from(bytes);
    key.map_err(|_| odd("is not a key of 32 bytes; put the former file back, or remove it to have a new one made"))
}

/// Whole or not at all: written aside, on disk, and then linked to its name, unless that exists by then.
fn make_key(folder: &Path, file: &Path) -> io::Result<()> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
    let mut suffix = [0; 8];
    getrandom::fill(&mut suffix).map_err(|error| io::Error::other(error.to_string()))?;
    let aside = folder.join(format!("{KEY_FILE}.{:016x}", u64::from_ne_bytes(suffix)));
    let written = (|| {
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&aside)?;
        out.write_all(&key)?;
        out.sync_all()?;
        match std::fs::hard_link(&aside, file) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => File::open(folder)?.sync_all(),
        }
    })();
    // It has its name by now, or none is needed; what may stay behind is a file that nobody reads.
    let _ = std::fs::remove_file(&aside);
    written
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

    fn sealer() -> Sealer {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).expect("the system gives random bytes");
        Sealer::with_key(&key)
    }

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

    #[test]
    fn what_is_sealed_opens_as_it_was_and_shows_nothing() {
        let sealer = sealer();
        for value in [
            json!("hunter2"),
            json!(42),
            json!(null),
            json!(["a", {"b": "hunter2"}]),
            json!(""),
        ] {
            let sealed = sealer.seal(&value);
            assert!(Sealer::is_sealed(&sealed));
            assert!(!Sealer::is_sealed(&value));
            assert!(!sealed.to_string().contains("hunter2"));
            assert_ne!(sealed, sealer.seal(&value), "a nonce is used once");
            assert_eq!(sealer.seal(&sealed), sealed);
            assert_eq!(sealer.unseal(&sealed), Ok(value));
        }
    }

    #[test]
    fn what_was_changed_does_not_open() {
        let sealer = sealer();
        let sealed = sealer.seal(&json!("hunter2"));
        let text = sealed[SEALED].as_str().unwrap();
        let last = if text.ends_with('A') { "Q" } else { "A" };
        let bent = format!("{}{last}", &text[..text.len() - 1]);
        for (changed, why) in [
            (json!({ SEALED: bent }), ""),
            (json!({ SEALED: "v1.AAAA" }), "damaged"),
            (json!({ SEALED: "v1.?" }), "damaged"),
            (json!({ SEALED: "v2.AAAA" }), "newer version"),
            (json!({ SEALED: 1 }), "not sealed"),
            (json!("x"), "not sealed"),
        ] {
            let sentence = sealer.unseal(&changed).unwrap_err();
            assert!(sentence.contains(why), "{sentence}");
            assert!(!sentence.contains("hunter2"));
        }
    }

    #[test]
    fn the_key_is_made_once_and_kept_private() {
        let folder = tempfile::tempdir().unwrap();
        let sealed = Sealer::open(folder.path()).unwrap().seal(&json!("x"));
        let file = folder.path().join(KEY_FILE);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = Sealer::open(folder.path()).unwrap();
        assert_eq!(again.unseal(&sealed), Ok(json!("x")));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

        std::fs::remove_file(&file).unwrap();
        let sentence = Sealer::open(folder.path())
            .unwrap()
            .unseal(&sealed)
            .unwrap_err();
        assert!(sentence.contains(&file.display().to_string()), "{sentence}");
        assert!(
            sentence.contains("put the former key file back"),
            "{sentence}"
        );

        std::fs::write(&file, "short").unwrap();
        assert!(Sealer::open(folder.path()).is_err());
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        let open = Sealer::open(folder.path()).map(|_| ()).unwrap_err();
        assert!(open.to_string().contains("chmod 600"), "{open}");
    }

    #[test]
    fn all_who_open_at_once_have_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let sealers: Vec<Sealer> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| Sealer::open(folder.path()).unwrap()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let sealed = sealers[0].seal(&json!(1));
        assert!(
            sealers
                .iter()
                .all(|sealer| sealer.unseal(&sealed) == Ok(json!(1)))
        );
    }
}
