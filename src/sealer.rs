//! Seals the values of secret inputs, which must survive a restart but must not be readable where they are kept.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use serde_json::{Value, json};

use crate::domain::SealId;

/// Seals values that must survive a restart but must not be readable where they are kept.
pub struct Sealer {
    key: LessSafeKey,
    fingerprints: hmac::Key,
    /// `None`: the key is in memory alone.
    file: Option<PathBuf>,
}

pub const KEY_FILE: &str = "secret.key";
const KEY_BYTES: usize = 32;
/// The one key of an object that stands for a sealed value. Nobody but the server may write an object with this key.
pub const SEALED_KEY: &str = "$sealed";
/// Text that is shown in place of a sealed value.
pub const MASK: &str = "***";
/// Values sealed by version 0.1, which are bound to no job.
const UNBOUND: &str = "v1.";
const UNBOUND_PURPOSE: &[u8] = b"stepward input v1";
/// Values that open only at the place that they were sealed for.
const BOUND: &str = "v2.";
const BOUND_PURPOSE: &str = "stepward input v2";
/// Prefix of fingerprinted texts, so that no text is signed for two purposes.
const FINGERPRINT: &[u8] = b"fingerprint\n";

/// The job and input, or approval value, that a sealed value belongs to. The seal authenticates it: a value that is copied elsewhere does not open.
#[derive(Debug, Clone, Copy)]
pub struct SealPlace<'a> {
    /// `None` for a job that was made before jobs had such ids: its values are sealed as version 0.1 sealed them.
    pub seal_id: Option<SealId>,
    pub value: SealedValue<'a>,
}

#[derive(Debug, Clone, Copy)]
pub enum SealedValue<'a> {
    /// The job's input of this name.
    Input(&'a str),
    /// A value that a person entered at an approval.
    Entered { step: &'a str, name: &'a str },
}

impl SealPlace<'_> {
    /// The version of the seal, and what it authenticates besides the value. JSON keeps the parts apart whatever they contain.
    fn binding(&self) -> (&'static str, Vec<u8>) {
        let Some(SealId(seal_id)) = self.seal_id else {
            return (UNBOUND, UNBOUND_PURPOSE.to_vec());
        };
        let parts = match self.value {
            SealedValue::Input(name) => json!([BOUND_PURPOSE, seal_id, "input", name]),
            SealedValue::Entered { step, name } => {
                json!([BOUND_PURPOSE, seal_id, "entered", step, name])
            }
        };
        (BOUND, parts.to_string().into_bytes())
    }
}

impl SealId {
    pub fn random() -> SealId {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the system gives random bytes");
        SealId(bytes)
    }
}

impl Sealer {
    /// The key is in the folder; it is made on first use.
    pub fn open(folder: &Path) -> io::Result<Sealer> {
        let file = folder.join(KEY_FILE);
        let key = match read_key(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_key(folder, &file)?;
                // Another process may have made the key first.
                read_key(&file)?
            }
            known => known?,
        };
        let mut sealer = Sealer::with_key(&key);
        sealer.file = Some(file);
        Ok(sealer)
    }

    /// A sealer without the real key, for commands that only read. It opens no sealed value.
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

    /// Returns `{"$sealed": "v2.…"}`, which opens at this place alone.
    pub fn seal(&self, place: SealPlace<'_>, value: &Value) -> Value {
        let (version, binding) = place.binding();
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).expect("the system gives random bytes");
        let mut bytes = value.to_string().into_bytes();
        self.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(binding),
                &mut bytes,
            )
            .expect("a value is far below the cipher's limit");
        let sealed = [nonce.as_slice(), &bytes].concat();
        json!({ SEALED_KEY: format!("{version}{}", BASE64.encode(sealed)) })
    }

    pub fn unseal(&self, place: SealPlace<'_>, value: &Value) -> Result<Value, String> {
        let text = sealed_text(value).ok_or("the value is not sealed")?;
        let damaged = || "the sealed value is damaged; submit the job again".to_string();
        let (version, binding) = place.binding();
        let Some(text) = text.strip_prefix(version) else {
            return Err(match text.starts_with(UNBOUND) || text.starts_with(BOUND) {
                true => "the value was sealed for another job; submit the job again".to_string(),
                false => "the value was sealed by a newer version of this program".to_string(),
            });
        };
        let mut bytes = BASE64.decode(text).map_err(|_| damaged())?;
        if bytes.len() < NONCE_LEN + CHACHA20_POLY1305.tag_len() {
            return Err(damaged());
        }
        let mut sealed = bytes.split_off(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(&bytes).map_err(|_| damaged())?;
        let opened = self
            .key
            .open_in_place(nonce, Aad::from(binding), &mut sealed);
        let opened = opened.map_err(|_| self.wrong_key())?;
        serde_json::from_slice(opened).map_err(|_| damaged())
    }

    fn wrong_key(&self) -> String {
        let key = match &self.file {
            Some(file) => format!("the key in {}", file.display()),
            None => "the key in memory".to_string(),
        };
        format!(
            "a secret input cannot be opened: {key} is not the one that sealed it, or it was sealed for another job; \
             put the former key file back, or submit the job again"
        )
    }

    /// Equal texts have equal fingerprints. Without the key nobody can test a guess.
    pub fn fingerprint(&self, text: &str) -> String {
        let tag = hmac::sign(&self.fingerprints, &[FINGERPRINT, text.as_bytes()].concat());
        BASE64.encode(tag)
    }

    pub fn is_sealed(value: &Value) -> bool {
        sealed_text(value).is_some()
    }

    /// The value as it may be shown: `***` in the place of every object that has the reserved key.
    pub fn masked(value: &Value) -> Value {
        match value {
            Value::Object(map) if map.contains_key(SEALED_KEY) => Value::from(MASK),
            Value::Array(items) => items.iter().map(Sealer::masked).collect(),
            Value::Object(map) => {
                let entries = map.iter();
                let entries = entries.map(|(key, value)| (key.clone(), Sealer::masked(value)));
                Value::Object(entries.collect())
            }
            plain => plain.clone(),
        }
    }

    /// A JSON text as it may be shown, or `None` if the text may be shown as it is.
    pub fn masked_text(json: &str) -> Option<String> {
        let value = Sealer::with_reserved_key(json)?;
        Some(Sealer::masked(&value).to_string())
    }

    /// The value of a JSON text, if the reserved key is anywhere in it. Texts that cannot have the key are not parsed.
    pub fn with_reserved_key(json: &str) -> Option<Value> {
        if !Sealer::may_have_reserved_key(json) {
            return None;
        }
        let value = serde_json::from_str(json).ok()?;
        Sealer::reserved_key_path("", &value).map(|_| value)
    }

    /// Whether a JSON text may have the reserved key. If an object has a member twice, the key may be in the text and not in the parsed
    /// value, which holds the last member of the name only.
    pub fn may_have_reserved_key(json: &str) -> bool {
        // Letters of a key may be escaped.
        const ESCAPED_LETTERS: [&str; 7] = ["24", "61", "64", "65", "6c", "6C", "73"];
        let is_letter_of_key = |(at, escape): (usize, &str)| {
            json.get(at + escape.len()..at + escape.len() + 2)
                .is_some_and(|digits| ESCAPED_LETTERS.contains(&digits))
        };
        json.contains(SEALED_KEY) || json.match_indices("\\u00").any(is_letter_of_key)
    }

    /// Returns the path of the first object with the reserved key, such as `config.users[2]`, or `None` if there is none.
    pub fn reserved_key_path(name: &str, value: &Value) -> Option<String> {
        match value {
            Value::Object(map) if map.contains_key(SEALED_KEY) => Some(name.to_string()),
            Value::Object(map) => map.iter().find_map(|(key, value)| {
                Sealer::reserved_key_path(&format!("{name}.{key}"), value)
            }),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .find_map(|(at, item)| Sealer::reserved_key_path(&format!("{name}[{at}]"), item)),
            _ => None,
        }
    }
}

fn sealed_text(value: &Value) -> Option<&str> {
    match value.as_object() {
        Some(map) if map.len() == 1 => map.get(SEALED_KEY)?.as_str(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer() -> Sealer {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).expect("the system gives random bytes");
        Sealer::with_key(&key)
    }

    fn at(seal_id: Option<SealId>, name: &str) -> SealPlace<'_> {
        SealPlace {
            seal_id,
            value: SealedValue::Input(name),
        }
    }

    #[test]
    fn what_is_sealed_opens_as_it_was_and_shows_nothing() {
        let sealer = sealer();
        for (seal_id, version) in [(None, "v1."), (Some(SealId::random()), "v2.")] {
            let place = at(seal_id, "pin");
            for value in [
                json!("hunter2"),
                json!(42),
                json!(null),
                json!(["a", {"b": "hunter2"}]),
                json!(""),
            ] {
                let sealed = sealer.seal(place, &value);
                assert!(Sealer::is_sealed(&sealed));
                assert!(!Sealer::is_sealed(&value));
                assert!(!sealed.to_string().contains("hunter2"));
                assert!(sealed[SEALED_KEY].as_str().unwrap().starts_with(version));
                assert_ne!(sealed, sealer.seal(place, &value), "a nonce is used once");
                assert_eq!(sealer.unseal(place, &sealed), Ok(value));
            }
        }
    }

    #[test]
    fn a_value_opens_at_the_place_that_it_was_sealed_for_and_at_no_other() {
        let sealer = sealer();
        let (one, other) = (SealId::random(), SealId::random());
        let entered = |step, name| SealPlace {
            seal_id: Some(one),
            value: SealedValue::Entered { step, name },
        };
        let places = [
            at(Some(one), "pin"),
            at(Some(other), "pin"),
            at(Some(one), "pins"),
            at(None, "pin"),
            entered("ask", "pin"),
            entered("asks", "pin"),
            entered("ask", "pins"),
            entered("pin", "ask"),
        ];
        for (sealed_at, place) in places.iter().enumerate() {
            let sealed = sealer.seal(*place, &json!("hunter2"));
            for (opened_at, place) in places.iter().enumerate() {
                let opened = sealer.unseal(*place, &sealed);
                assert_eq!(opened.is_ok(), sealed_at == opened_at, "{place:?}");
            }
        }
    }

    #[test]
    fn what_was_changed_does_not_open() {
        let sealer = sealer();
        let place = at(Some(SealId::random()), "pin");
        let sealed = sealer.seal(place, &json!("hunter2"));
        let text = sealed[SEALED_KEY].as_str().unwrap();
        let last = if text.ends_with('A') { "Q" } else { "A" };
        let bent = format!("{}{last}", &text[..text.len() - 1]);
        for (changed, why) in [
            (json!({ SEALED_KEY: bent }), ""),
            (json!({ SEALED_KEY: "v2.AAAA" }), "damaged"),
            (json!({ SEALED_KEY: "v2.?" }), "damaged"),
            (json!({ SEALED_KEY: "v1.AAAA" }), "for another job"),
            (json!({ SEALED_KEY: "v3.AAAA" }), "newer version"),
            (json!({ SEALED_KEY: 1 }), "not sealed"),
            (json!("x"), "not sealed"),
        ] {
            let sentence = sealer.unseal(place, &changed).unwrap_err();
            assert!(sentence.contains(why), "{sentence}");
            assert!(!sentence.contains("hunter2"));
        }
    }

    #[test]
    fn the_reserved_key_is_found_and_masked_at_any_depth() {
        for (json, path, masked) in [
            (r#"{"a": 1, "b": ["$sealed"]}"#, None, None),
            (r#"{"a": "\u0041"}"#, None, None),
            (
                r#"{"a": {"$s\u0065\u0061\u006C\u0065d": 1}}"#,
                Some("input.a"),
                Some(r#"{"a":"***"}"#),
            ),
            (r#"{"$sealed": "x"}"#, Some("input"), Some(r#""***""#)),
            (
                r#"{"a": [0, {"b": {"$sealed": "x", "more": 1}}]}"#,
                Some("input.a[1].b"),
                Some(r#"{"a":[0,{"b":"***"}]}"#),
            ),
            (
                r#"{"a": {"\u0024seale\u0064": null}}"#,
                Some("input.a"),
                Some(r#"{"a":"***"}"#),
            ),
        ] {
            let value: Value = serde_json::from_str(json).unwrap();
            let found = Sealer::reserved_key_path("input", &value);
            assert_eq!(found.as_deref(), path, "{json}");
            assert_eq!(Sealer::masked_text(json).as_deref(), masked, "{json}");
        }
    }

    #[test]
    fn the_key_is_made_once_and_kept_private() {
        let folder = tempfile::tempdir().unwrap();
        let sealed = Sealer::open(folder.path())
            .unwrap()
            .seal(at(None, "pin"), &json!("x"));
        let file = folder.path().join(KEY_FILE);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = Sealer::open(folder.path()).unwrap();
        assert_eq!(again.unseal(at(None, "pin"), &sealed), Ok(json!("x")));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

        std::fs::remove_file(&file).unwrap();
        let sentence = Sealer::open(folder.path())
            .unwrap()
            .unseal(at(None, "pin"), &sealed)
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
        let sealed = sealers[0].seal(at(None, "pin"), &json!(1));
        assert!(
            sealers
                .iter()
                .all(|sealer| sealer.unseal(at(None, "pin"), &sealed) == Ok(json!(1)))
        );
    }
}
