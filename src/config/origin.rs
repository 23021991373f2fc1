//! Every setting as it is in force, and where it comes from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use saphyr_parser::{Event, Parser};
use serde::Serialize;
use serde_json::Value;

use super::server::FOLLOWING;
use super::{ConfigError, read};
use crate::language::{looks_secret, names_secret};

/// One setting: `recovery.sweep_interval_secs`.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    pub key: String,
    pub value: Value,
    pub default: Value,
    pub origin: Origin,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Default,
    File(PathBuf, usize),
    Variable(String),
    Flag(String),
}

/// What a flag or a variable said of a key, and of all below it that nobody else speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub key: String,
    pub by: Origin,
}

/// The settings, as they came of the file and of what was given, by key.
pub fn in_force<T: Serialize + Default>(
    settings: &T,
    file: Option<&Path>,
    given: &[Given],
) -> Result<Vec<Setting>, ConfigError> {
    let lines = match file {
        Some(file) => lines(&read(file)?),
        None => BTreeMap::new(),
    };
    let values = leaves(settings);
    let defaults: BTreeMap<String, Value> = leaves(&T::default()).into_iter().collect();
    let setting = |(key, value): (String, Value)| {
        let said = |key: &str| given.iter().find(|given| given.key == key);
        let written = lines.get(&key).zip(file);
        let above = || key.match_indices('.').map(|(at, _)| &key[..at]).rev();
        // What no default has is there because of whoever wrote the key above it.
        let made_by = || match defaults.contains_key(&key) {
            true => None,
            false => above().find_map(|above| lines.get(above)).zip(file),
        };
        let in_file = |(line, file): (&usize, &Path)| Origin::File(file.to_path_buf(), *line);
        let origin = match (said(&key), written) {
            (Some(given), _) => given.by.clone(),
            (None, Some(written)) => in_file(written),
            (None, None) => match above().find_map(said) {
                Some(given) => given.by.clone(),
                None => made_by().map_or(Origin::Default, in_file),
            },
        };
        Setting {
            default: defaults.get(&key).cloned().unwrap_or(Value::Null),
            key,
            value,
            origin,
        }
    };
    let mut settings: Vec<Setting> = values.into_iter().map(setting).collect();
    name_origin_of_following(&mut settings);
    Ok(settings)
}

/// A setting that nobody set and that follows from another one comes from where the other one was set.
fn name_origin_of_following(settings: &mut [Setting]) {
    for (key, from) in FOLLOWING {
        let source = settings.iter().find(|setting| setting.key == from);
        let Some(origin) = source.map(|source| source.origin.clone()) else {
            continue;
        };
        let follows = |setting: &&mut Setting| {
            setting.key == key && setting.is_changed() && setting.origin == Origin::Default
        };
        if let Some(setting) = settings.iter_mut().find(follows) {
            setting.origin = origin;
        }
    }
}

impl Setting {
    pub fn is_changed(&self) -> bool {
        self.value != self.default
    }

    /// What nobody should read over somebody's shoulder: passwords of steps, addresses that are as good as a password.
    pub fn is_secret(&self) -> bool {
        let name = self.key.rsplit('.').next().unwrap_or_default();
        if self.key == "token" {
            return true;
        }
        let is_address = self.key.starts_with("notify.") && name == "url";
        let texts: Vec<&str> = match &self.value {
            Value::String(text) => vec![text],
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let holds_password = |text: &&str| {
            let authority = text.split("://").nth(1).unwrap_or_default();
            let authority = authority.split('/').next().unwrap_or_default();
            authority.contains('@')
        };
        (names_secret(name) && texts.iter().any(|text| !text.is_empty()))
            || texts.iter().any(|text| looks_secret(name, text))
            || texts.iter().any(holds_password)
            || (is_address && !texts.is_empty())
    }
}

impl Setting {
    /// Its value, unless nobody should read it.
    pub fn in_words(&self) -> String {
        match &self.value {
            _ if self.is_secret() => "(not shown)".to_string(),
            Value::String(text) if text.is_empty() => "\"\"".to_string(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(file, line) => write!(f, "{}:{line}", file.display()),
            Origin::Variable(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// Every value that is not made of others, by its keys with dots between. A list is one value, and so is what is empty.
fn leaves(settings: &impl Serialize) -> Vec<(String, Value)> {
    fn collect(value: Value, key: &str, found: &mut Vec<(String, Value)>) {
        match value {
            // Where a secret is found is one value.
            Value::Object(members) if !members.is_empty() && !is_reference(&members) => {
                for (name, value) in members {
                    let key = match key {
                        "" => name,
                        key => format!("{key}.{name}"),
                    };
                    collect(value, &key, found);
                }
            }
            value => found.push((key.to_string(), value)),
        }
    }
    let value = serde_json::to_value(settings).expect("settings have a JSON form");
    let mut found = Vec::new();
    collect(value, "", &mut found);
    found
}

fn is_reference(members: &serde_json::Map<String, Value>) -> bool {
    let is_text = |key: &str| members.get(key).is_some_and(Value::is_string);
    members.len() == 1 && (is_text("env") || is_text("file"))
}

/// On which line of the file each key is. The file was read before, so nothing is said of what is wrong with it.
fn lines(text: &str) -> BTreeMap<String, usize> {
    /// A list, or a map whose key is read or not.
    enum Open {
        List,
        Map(Option<String>),
    }
    let mut found = BTreeMap::new();
    let mut open: Vec<Open> = Vec::new();
    let mut parser = Parser::new_from_str(text);
    while let Some(Ok((event, span))) = parser.next_event() {
        let is_end = matches!(event, Event::SequenceEnd | Event::MappingEnd);
        match event {
            Event::Scalar(key, ..) if matches!(open.last(), Some(Open::Map(None))) => {
                let within_list = open.iter().any(|open| matches!(open, Open::List));
                if let Some(Open::Map(waiting)) = open.last_mut() {
                    *waiting = Some(key.to_string());
                }
                let path = open.iter().filter_map(|open| match open {
                    Open::Map(key) => key.as_deref(),
                    Open::List => None,
                });
                if !within_list {
                    let path: Vec<&str> = path.collect();
                    found.insert(path.join("."), span.start.line());
                }
                continue;
            }
            Event::SequenceStart(..) => open.push(Open::List),
            Event::MappingStart(..) => open.push(Open::Map(None)),
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
            }
            Event::Scalar(..) | Event::Alias(_) => {}
            _ => continue,
        }
        let is_value = is_end || matches!(event, Event::Scalar(..) | Event::Alias(_));
        if let (true, Some(Open::Map(key))) = (is_value, open.last_mut()) {
            *key = None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_knows_its_line() {
        let text = "\
# settings
listen: 127.0.0.1:1
recovery:
  ack_timeout_secs: 7
  sweep_interval_secs: 2
embedded_worker: { tags: [a, b], env: {A: b} }
notify:
  chat:
    on:
      - job_failed
    url: x
";
        let found: Vec<(String, usize)> = lines(text).into_iter().collect();
        let of = |key: &str| {
            found
                .iter()
                .find(|(known, _)| known == key)
                .map(|found| found.1)
        };
        assert_eq!(of("listen"), Some(2));
        assert_eq!(of("recovery.ack_timeout_secs"), Some(4));
        assert_eq!(of("recovery.sweep_interval_secs"), Some(5));
        assert_eq!(of("embedded_worker.tags"), Some(6));
        assert_eq!(of("embedded_worker.env.A"), Some(6));
        assert_eq!(of("notify.chat.on"), Some(9));
        assert_eq!(of("notify.chat.url"), Some(11));
    }
}
