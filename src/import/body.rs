//! A mapping of another tool that remembers which of its keys were read, so that every other key can be reported.

use std::cell::{Cell, OnceCell};

use serde_yaml::{Mapping, Value};

use super::tree::plain_text;
use super::yaml::key_text;

#[derive(Clone)]
pub struct Body {
    entries: Vec<Entry>,
}

#[derive(Clone)]
struct Entry {
    /// The key as it is written.
    written: String,
    /// The key in snake case.
    key: String,
    value: Value,
    is_read: Cell<bool>,
    /// The type that the reader of the key expected, if the value has another type.
    expected: Cell<Option<&'static str>>,
    /// The value as a mapping with a memory of its own, once a reader asked for it.
    inner: OnceCell<Body>,
}

/// A key that was not imported.
pub struct Leftover {
    /// The path of the key below the outermost mapping, its last part as it is written.
    pub path: String,
    /// The key of the mapping that holds it in snake case. Empty: the outermost mapping.
    pub parent: String,
    /// The key in snake case.
    pub key: String,
    /// `None`: nothing reads this key. `Some`: the importer expected this, and `found` is there instead.
    pub expected: Option<&'static str>,
    pub found: String,
}

impl Leftover {
    /// The row of the report for a key that has no note of its own.
    pub fn note(&self) -> String {
        match self.expected {
            Some(expected) => format!("expected {expected}, found {}; not imported", self.found),
            None => no_equivalent(self.path.rsplit('.').next().unwrap_or(&self.path)),
        }
    }
}

pub fn no_equivalent(key: &str) -> String {
    format!("Stepward has no equivalent of `{key}`; not imported")
}

/// The value in a few words, for a message.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Sequence(_) => "a list".to_string(),
        Value::Mapping(_) => "a mapping".to_string(),
        Value::Null => "nothing".to_string(),
        scalar => format!("`{}`", plain_text(scalar)),
    }
}

/// A flag, which may be written as text.
pub fn as_flag(value: &Value) -> Option<bool> {
    match plain_text(value).trim() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

impl Body {
    pub fn new(mapping: &Mapping) -> Body {
        let entry = |(key, value): (&Value, &Value)| {
            let written = key_text(key);
            Entry {
                key: snake_case(&written),
                written,
                value: value.clone(),
                is_read: Cell::new(false),
                expected: Cell::new(None),
                inner: OnceCell::new(),
            }
        };
        Body {
            entries: mapping.iter().map(entry).collect(),
        }
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        entry.is_read.set(true);
        Some(entry).filter(|entry| !entry.value.is_null())
    }

    /// The value of a key, which counts as read. Null is no value.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// Notes that the value of this key is not what its reader expected.
    pub fn expect(&self, key: &str, expected: &'static str) {
        if let Some(entry) = self.entry(key) {
            entry.expected.set(Some(expected));
        }
    }

    /// The value if `read` understands it. Otherwise the key is left over, with what was expected.
    fn typed<T>(
        &self,
        key: &str,
        expected: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let found = read(self.get(key)?);
        if found.is_none() {
            self.expect(key, expected);
        }
        found
    }

    pub fn text(&self, key: &str) -> Option<String> {
        let scalar = |value: &Value| {
            let is_scalar = !value.is_sequence() && !value.is_mapping();
            is_scalar.then(|| plain_text(value))
        };
        let text = self.typed(key, "a text", scalar);
        text.filter(|text| !text.is_empty())
    }

    /// A whole number, which may be written as text.
    pub fn number(&self, key: &str) -> Option<i64> {
        self.typed(key, "a whole number", |value| {
            plain_text(value).trim().parse().ok()
        })
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        self.typed(key, "true or false", as_flag)
    }

    pub fn list(&self, key: &str) -> Option<&[Value]> {
        let list = self.get(key)?.as_sequence();
        if list.is_none() {
            self.expect(key, "a list");
        }
        list.map(Vec::as_slice)
    }

    /// The mapping below a key. Those of its keys that nothing reads are left over, too.
    pub fn map(&self, key: &str) -> Option<&Body> {
        let entry = self.entry(key)?;
        let Value::Mapping(mapping) = &entry.value else {
            self.expect(key, "a mapping");
            return None;
        };
        Some(entry.inner.get_or_init(|| Body::new(mapping)))
    }

    /// The first of these keys that is there.
    pub fn any(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().find_map(|key| self.get(key))
    }

    pub fn has(&self, key: &str) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.key == key && !entry.value.is_null())
    }

    /// Counts everything as read, because a row of the report covers all of it.
    pub fn dismiss(&self) {
        for entry in &self.entries {
            entry.is_read.set(true);
            entry.expected.set(None);
            if let Some(inner) = entry.inner.get() {
                inner.dismiss();
            }
        }
    }

    /// Every key that was not imported, at any depth that a reader reached.
    pub fn leftovers(&self) -> Vec<Leftover> {
        let mut found = Vec::new();
        for entry in &self.entries {
            let expected = entry.expected.get();
            if !entry.is_read.get() || expected.is_some() {
                found.push(Leftover {
                    path: entry.written.clone(),
                    parent: String::new(),
                    key: entry.key.clone(),
                    expected,
                    found: shown(&entry.value),
                });
            } else if let Some(inner) = entry.inner.get() {
                found.extend(inner.leftovers().into_iter().map(|mut left| {
                    left.path = format!("{}.{}", entry.key, left.path);
                    if left.parent.is_empty() {
                        left.parent = entry.key.clone();
                    }
                    left
                }));
            }
        }
        found
    }
}

/// `retryPolicy` as `retry_policy`.
fn snake_case(key: &str) -> String {
    let mut snake = String::new();
    for c in key.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() && !snake.ends_with('_') {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Body {
        Body::new(&serde_yaml::from_str(text).unwrap())
    }

    #[test]
    fn keys_are_read_in_both_spellings() {
        for (written, key) in [
            ("retryPolicy", "retry_policy"),
            ("retry_policy", "retry_policy"),
            ("maxActiveRuns", "max_active_runs"),
            ("timeoutSec", "timeout_sec"),
            ("name", "name"),
        ] {
            assert_eq!(snake_case(written), key);
        }
    }

    #[test]
    fn a_key_that_was_not_understood_is_left_over() {
        let body =
            body("{ a: '5', b: soon, c: { d: 1, eF: 2 }, g: x, h: [1], i: 'true', k: null }");
        assert_eq!(body.number("a"), Some(5));
        assert_eq!(body.number("b"), None);
        assert_eq!(body.map("c").unwrap().number("d"), Some(1));
        assert!(body.map("g").is_none());
        assert_eq!(body.text("h"), None);
        assert_eq!(body.flag("i"), Some(true));
        assert_eq!(body.flag("k"), None);
        let left: Vec<(String, String)> = body
            .leftovers()
            .iter()
            .map(|left| (left.path.clone(), left.note()))
            .collect();
        let expected = |path: &str, note: &str| (path.to_string(), note.to_string());
        assert_eq!(
            left,
            [
                expected("b", "expected a whole number, found `soon`; not imported"),
                expected("c.eF", "Stepward has no equivalent of `eF`; not imported"),
                expected("g", "expected a mapping, found `x`; not imported"),
                expected("h", "expected a text, found a list; not imported"),
            ]
        );
        body.dismiss();
        assert!(body.leftovers().is_empty());
    }
}
