//! What a task, an action or an approval is given and what a step gives back: names, types, rules.
//!
//! Deliberately not here: whether a value fits. That reads JSON, which `language::values` does.

use super::{Json, words};

words! {
    pub enum ValueType {
        /// One line.
        String = "string",
        /// Any number of lines.
        Text = "text",
        Integer = "integer",
        Number = "number",
        Boolean = "boolean",
        /// `2026-11-16`
        Date = "date",
        /// RFC 3339: `2026-11-16T02:00:00Z`
        Datetime = "datetime",
        /// Anything.
        Json = "json",
    }
}

/// The name of the environment variable in which a step finds an input.
pub fn input_variable(input: &str) -> String {
    let upper = input.chars().map(|character| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' => character.to_ascii_uppercase(),
        _ => '_',
    });
    "INPUT_".chars().chain(upper).collect()
}

/// One named value and what it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueSpec {
    pub name: String,
    pub value_type: ValueType,
    pub required: bool,
    pub default: Option<Json>,
    /// Empty: any.
    pub options: Vec<Json>,
    /// A regular expression that is found in it.
    pub pattern: Option<String>,
    /// Of numbers and times the value, of texts the characters.
    pub min: Option<Json>,
    pub max: Option<Json>,
    /// A list of such values.
    pub multiple: bool,
    /// Never shown, and sealed where it is kept.
    pub secret: bool,
    pub description: Option<String>,
}

impl ValueSpec {
    pub fn new(name: &str, value_type: ValueType) -> ValueSpec {
        ValueSpec {
            name: name.to_string(),
            value_type,
            required: false,
            default: None,
            options: Vec::new(),
            pattern: None,
            min: None,
            max: None,
            multiple: false,
            secret: false,
            description: None,
        }
    }
}
