//! Who is told what happens: the targets under `notify`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_yaml::Value;

use crate::domain::event::EventKind;
use crate::domain::outbox::Target;
use crate::domain::secret::SecretRef;
use crate::language::words::nearest;

/// Each has a thread.
const TARGETS_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 64;

pub type Notify = BTreeMap<String, NotifyTarget>;

/// One target, as it is written. Which keys it needs follows from its type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct NotifyTarget {
    #[serde(rename = "type")]
    pub kind: String,
    pub on: Vec<String>,
    pub tasks: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sendmail: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
}

/// Written out, or found elsewhere when it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    Plain(String),
    Reference(Reference),
}

/// A secret is never written out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference(pub SecretRef);

/// How a target is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Means {
    Webhook {
        url: Text,
        secret: SecretRef,
    },
    Slack {
        url: Text,
    },
    Ntfy {
        url: Text,
        token: Option<SecretRef>,
        priority: Option<String>,
    },
    Email {
        to: Vec<String>,
        from: Option<String>,
        sendmail: PathBuf,
    },
    Command {
        command: Vec<String>,
    },
}

/// (type, keys that it needs, keys that it may have)
pub(super) const TYPES: &[(&str, &[&str], &[&str])] = &[
    ("webhook", &["url", "secret"], &[]),
    ("slack", &["url"], &[]),
    ("ntfy", &["url"], &["token", "priority"]),
    ("email", &["to"], &["from", "sendmail"]),
    ("command", &["command"], &[]),
];

pub(super) const PRIORITIES: &[&str] = &["min", "low", "default", "high", "max", "urgent"];

pub fn check(targets: &Notify) -> Result<(), String> {
    if targets.len() > TARGETS_MAX {
        let count = targets.len();
        return Err(format!(
            "notify has {count} targets, at most {TARGETS_MAX} are allowed"
        ));
    }
    for (name, target) in targets {
        target.understood(name)?;
    }
    Ok(())
}

impl NotifyTarget {
    /// What it wants to be told, and how it is reached; or what is wrong with it.
    pub fn understood(&self, name: &str) -> Result<(Target, Means), String> {
        check_name(name)?;
        let fault = |key: &str, fault: String| format!("notify.{name}{key} {fault}");
        let mut on = Vec::new();
        for word in &self.on {
            let kind = kind(word).map_err(|unknown| fault(".on", unknown))?;
            if !on.contains(&kind) {
                on.push(kind);
            }
        }
        if self.tasks.as_ref().is_some_and(Vec::is_empty) {
            let empty = "is an empty list: name tasks, or leave it out for all of them";
            return Err(fault(".tasks", empty.to_string()));
        }
        let target = Target {
            name: name.to_string(),
            on,
            tasks: self.tasks.clone(),
        };
        let means = self.means().map_err(|(key, found)| fault(&key, found))?;
        Ok((target, means))
    }

    /// Or the key, with a dot in front, and what is wrong with it.
    fn means(&self) -> Result<Means, (String, String)> {
        let known = TYPES.iter().find(|(kind, ..)| *kind == self.kind);
        let Some((kind, needed, allowed)) = known else {
            let types: Vec<&str> = TYPES.iter().map(|(kind, ..)| *kind).collect();
            let fault = format!("is {:?}, expected one of {}", self.kind, types.join(", "));
            return Err((".type".to_string(), fault));
        };
        let written = self.written();
        for (key, is_written) in &written {
            let fits = needed.contains(key) || allowed.contains(key);
            if *is_written && !fits {
                let fault = format!("does not belong to a target of type {kind}, leave it out");
                return Err((format!(".{key}"), fault));
            }
            if !*is_written && needed.contains(key) {
                let fault = format!("is missing, a target of type {kind} needs it");
                return Err((format!(".{key}"), fault));
            }
        }
        let url = || {
            let url = self.url.clone().expect("it is needed");
            if let Text::Plain(text) = &url {
                check_url(text).map_err(|fault| (".url".to_string(), fault))?;
            }
            Ok::<_, (String, String)>(url)
        };
        Ok(match *kind {
            "webhook" => Means::Webhook {
                url: url()?,
                secret: self.secret.clone().expect("it is needed").0,
            },
            "slack" => Means::Slack { url: url()? },
            "ntfy" => {
                if let Some(priority) = &self.priority
                    && !PRIORITIES.contains(&priority.as_str())
                {
                    let fault = format!("is {priority:?}, expected min, low, default, high or max");
                    return Err((".priority".to_string(), fault));
                }
                Means::Ntfy {
                    url: url()?,
                    token: self.token.clone().map(|token| token.0),
                    priority: self.priority.clone(),
                }
            }
            "email" => self.email()?,
            _ => {
                let command = self.command.clone().expect("it is needed");
                let is_absolute = command.first().is_some_and(|path| path.starts_with('/'));
                if !is_absolute || command.iter().any(|word| word.contains('\0')) {
                    let fault = "must be a list that begins with the path of a program, such as \
                                 [/usr/local/bin/tell, --now]";
                    return Err((".command".to_string(), fault.to_string()));
                }
                Means::Command { command }
            }
        })
    }

    fn email(&self) -> Result<Means, (String, String)> {
        let to = self.to.clone().expect("it is needed");
        if to.is_empty() {
            let fault = "is an empty list, name somebody".to_string();
            return Err((".to".to_string(), fault));
        }
        let addresses = to.iter().map(|address| (".to", address));
        let from = self.from.iter().map(|address| (".from", address));
        for (key, address) in addresses.chain(from) {
            if !is_address(address) {
                let fault = format!("has {address:?}, expected an address such as ops@example.org");
                return Err((key.to_string(), fault));
            }
        }
        let sendmail = self.sendmail.clone();
        let sendmail = sendmail.unwrap_or_else(|| PathBuf::from("/usr/sbin/sendmail"));
        if !sendmail.is_absolute() {
            let fault = "must be the path of a program, such as /usr/sbin/sendmail".to_string();
            return Err((".sendmail".to_string(), fault));
        }
        Ok(Means::Email {
            to,
            from: self.from.clone(),
            sendmail,
        })
    }

    fn written(&self) -> [(&'static str, bool); 8] {
        [
            ("url", self.url.is_some()),
            ("secret", self.secret.is_some()),
            ("token", self.token.is_some()),
            ("priority", self.priority.is_some()),
            ("to", self.to.is_some()),
            ("from", self.from.is_some()),
            ("sendmail", self.sendmail.is_some()),
            ("command", self.command.is_some()),
        ]
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain);
    match fits {
        true => Ok(()),
        false => Err(format!(
            "notify has a target {name:?}, names are letters, digits, -, _ and ., at most {NAME_BYTES_MAX} of them"
        )),
    }
}

fn kind(word: &str) -> Result<EventKind, String> {
    EventKind::from_word(word).ok_or_else(|| {
        let words = EventKind::ALL.iter().map(|kind| kind.as_str());
        match nearest(word, words) {
            Some(known) => {
                format!("has {word:?}, which is no kind of event, did you mean {known}?")
            }
            None => {
                let words: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
                let known = words.join(", ");
                format!("has {word:?}, which is no kind of event, known are: {known}")
            }
        }
    })
}

pub fn check_url(text: &str) -> Result<(), String> {
    let uri = text.parse::<ureq::http::Uri>().ok();
    let fits = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
    });
    match fits {
        true => Ok(()),
        false => Err("is no address, write one such as https://example.org/hook".to_string()),
    }
}

/// No more than mail needs everywhere: what could be read as another header or another receiver is not one.
fn is_address(text: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.@".contains(&byte);
    let mut parts = text.split('@');
    let is_split = parts.next().is_some_and(|local| !local.is_empty())
        && parts.next().is_some_and(|host| !host.is_empty())
        && parts.next().is_none();
    is_split && text.len() <= 254 && text.bytes().all(is_plain) && !text.starts_with('-')
}

const WRITE_REFERENCE: &str = "{ env: NAME } or { file: PATH }";

/// `None`: it is none.
fn reference(value: &Value) -> Option<Reference> {
    let map = value.as_mapping().filter(|map| map.len() == 1)?;
    let (key, value) = map.iter().next()?;
    let value = value
        .as_str()
        .filter(|value| !value.is_empty())?
        .to_string();
    match key.as_str()? {
        "env" => Some(Reference(SecretRef::Env(value))),
        "file" => Some(Reference(SecretRef::File(value))),
        _ => None,
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(written: D) -> Result<Text, D::Error> {
        let value = Value::deserialize(written)?;
        if let Value::String(text) = &value {
            return Ok(Text::Plain(text.clone()));
        }
        let found = reference(&value).map(Text::Reference);
        found.ok_or_else(|| D::Error::custom(format!("expected text, {WRITE_REFERENCE}")))
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(written: D) -> Result<Reference, D::Error> {
        let found = reference(&Value::deserialize(written)?);
        found.ok_or_else(|| {
            let fault = format!("a secret is not written out here, write {WRITE_REFERENCE}");
            D::Error::custom(fault)
        })
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Text::Plain(text) => serializer.serialize_str(text),
            Text::Reference(reference) => reference.serialize(serializer),
        }
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (key, value) = match &self.0 {
            SecretRef::Env(name) => ("env", name),
            SecretRef::File(path) => ("file", path),
        };
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(key, value)?;
        map.end()
    }
}
