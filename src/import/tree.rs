//! Reads YAML of other tools without knowing all of it.

use serde_yaml::{Mapping, Value};

use super::yaml::key_text;

pub fn get<'a>(body: &'a Mapping, key: &str) -> Option<&'a Value> {
    body.get(Value::from(key))
}

pub fn text<'a>(body: &'a Mapping, key: &str) -> Option<&'a str> {
    get(body, key).and_then(Value::as_str)
}

/// The entries of a mapping; none for anything else.
pub fn mapping(value: &Value) -> Vec<(String, Value)> {
    let pairs = value.as_mapping().into_iter().flatten();
    pairs
        .map(|(key, value)| (key_text(key), value.clone()))
        .collect()
}

/// A scalar as text; empty for anything else.
pub fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}
