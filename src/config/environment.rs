//! Environment variables that set one setting each, besides those of flags.
//!
//! The name of a variable follows from the key of its setting: `recovery.ack_timeout_secs` is `STEPWARD_RECOVERY_ACK_TIMEOUT_SECS`.
//! Variables of a worker begin with `STEPWARD_WORKER_`, so that a server and a worker can share one environment.

use std::collections::BTreeSet;
use std::ffi::OsString;

use serde_yaml::{Mapping, Value};

use super::schema::{self, Shape};
use crate::language::words::did_you_mean;

/// A variable, and the setting that it sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub key: &'static str,
    shape: Shape,
}

/// A variable that is set, with its value as the settings file would have it.
#[derive(Debug, Clone, PartialEq)]
pub struct SetVariable {
    pub name: String,
    pub key: &'static str,
    pub value: Value,
}

/// Reads one variable. Tests pass their own, so that they do not change the environment of their process.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Reads variables of this process.
pub fn of_process(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Settings whose variable belongs to a flag of `stepward server`, and `log.level`, which STEPWARD_LOG sets.
const SERVER_FLAGS: &[&str] = &[
    "listen",
    "data_dir",
    "workflows_dir",
    "log.format",
    "log.level",
];

/// The variables of `stepward worker`.
const WORKER_FLAGS: &[&str] = &[
    "server_url",
    "token_file",
    "ca_file",
    "name",
    "data_dir",
    "slots",
    "log.format",
    "log.level",
];

/// One sentence for each variable of this process that looks like a setting of a server and is none.
pub fn unknown_server_variables() -> Vec<String> {
    let sections = schema::SERVER.iter();
    let sections = sections.filter_map(|(key, _)| key.split_once('.'));
    let prefixes = sections.map(|(section, _)| variable_name("STEPWARD_", section) + "_");
    let known = server_variables().into_iter().map(|variable| variable.name);
    let known = known.chain(["STEPWARD_LOG_FORMAT".to_string()]);
    unknown(&prefixes.collect(), &known.collect())
}

/// One sentence for each variable of this process that looks like a setting of a worker and is none.
pub fn unknown_worker_variables() -> Vec<String> {
    const PREFIX: &str = "STEPWARD_WORKER_";
    let flags = ["name", "tags", "slots", "data_dir", "log.format"];
    let flags = flags.map(|key| variable_name(PREFIX, key));
    let known = worker_variables().into_iter().map(|variable| variable.name);
    let known = known.chain(flags);
    unknown(&BTreeSet::from([PREFIX.to_string()]), &known.collect())
}

fn unknown(prefixes: &BTreeSet<String>, known: &BTreeSet<String>) -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_unknown = |name: &String| {
        prefixes.iter().any(|prefix| name.starts_with(prefix)) && !known.contains(name)
    };
    let unknown: BTreeSet<String> = names.filter(is_unknown).collect();
    let sentence = |name: String| {
        let meant = match name.ends_with("_LOG_LEVEL") {
            true => "; did you mean STEPWARD_LOG?".to_string(),
            false => did_you_mean(&name, known.iter().map(String::as_str)),
        };
        format!("the environment variable {name} is no setting and is ignored{meant}")
    };
    unknown.into_iter().map(sentence).collect()
}

fn variable_name(prefix: &str, key: &str) -> String {
    format!("{prefix}{}", key.replace('.', "_").to_ascii_uppercase())
}

pub fn server_variables() -> Vec<Variable> {
    variables("STEPWARD_", schema::SERVER, SERVER_FLAGS)
}

pub fn worker_variables() -> Vec<Variable> {
    variables("STEPWARD_WORKER_", schema::WORKER, WORKER_FLAGS)
}

fn variables(
    prefix: &str,
    keys: &'static [(&'static str, Shape)],
    of_flags: &[&str],
) -> Vec<Variable> {
    let has_own = |(key, shape): &&(&'static str, Shape)| {
        // A list or a mapping has no one text that everybody would write it as.
        let is_scalar = matches!(
            shape,
            Shape::Text
                | Shape::TextOrNone
                | Shape::Boolean
                | Shape::BooleanOrNone
                | Shape::Number(_)
        );
        is_scalar && !of_flags.contains(key)
    };
    let variable = |(key, shape): &(&'static str, Shape)| Variable {
        name: variable_name(prefix, key),
        key,
        shape: *shape,
    };
    keys.iter().filter(has_own).map(variable).collect()
}

/// Reads the variables that are set. An empty variable counts as not set. An error names the variable.
pub(super) fn find_set(
    variables: Vec<Variable>,
    lookup: Lookup,
) -> Result<Vec<SetVariable>, String> {
    let mut found = Vec::new();
    for Variable { name, key, shape } in variables {
        let Some(text) = lookup(&name).filter(|text| !text.is_empty()) else {
            continue;
        };
        let text = text
            .into_string()
            .map_err(|_| format!("{name} is not text in UTF-8"))?;
        let value = parse(&text, shape)
            .map_err(|expected| format!("{name} is {text:?}, expected {expected}"))?;
        found.push(SetVariable { name, key, value });
    }
    Ok(found)
}

/// The value, or what is expected instead.
fn parse(text: &str, shape: Shape) -> Result<Value, &'static str> {
    match shape {
        Shape::Number(_) => match text.trim().parse::<u64>() {
            Ok(number) => Ok(Value::from(number)),
            Err(_) => Err("a whole number, 0 or more"),
        },
        // The same words as flags that are true or false.
        Shape::Boolean | Shape::BooleanOrNone => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "y" | "on" | "t" | "1" => Ok(Value::from(true)),
            "false" | "no" | "n" | "off" | "f" | "0" => Ok(Value::from(false)),
            _ => Err("true or false"),
        },
        _ => Ok(Value::from(text)),
    }
}

/// The contents of a settings file with these variables put over it.
pub(super) fn merge<'a>(file: &Value, set: impl Iterator<Item = &'a SetVariable>) -> Value {
    let mut merged = match file {
        Value::Mapping(mapping) => mapping.clone(),
        _ => Mapping::new(),
    };
    for SetVariable { key, value, .. } in set {
        match key.split_once('.') {
            None => {
                merged.insert((*key).into(), value.clone());
            }
            Some((section, key)) => {
                let section = merged.entry(section.into()).or_insert(Value::Null);
                if !section.is_mapping() {
                    *section = Value::Mapping(Mapping::new());
                }
                if let Value::Mapping(section) = section {
                    section.insert(key.into(), value.clone());
                }
            }
        }
    }
    Value::Mapping(merged)
}

#[cfg(test)]
mod tests {

    use super::*;

    /// A list, a mapping and the settings of flags have no variable here; every other key has one of its own.
    #[test]
    fn every_setting_of_recovery_and_retention_has_a_variable() {
        let names = |all: Vec<Variable>| -> BTreeSet<String> {
            all.into_iter().map(|variable| variable.name).collect()
        };
        let (server, worker) = (names(server_variables()), names(worker_variables()));
        for (key, _) in schema::SERVER {
            if key.starts_with("recovery.") || key.starts_with("retention.") {
                let name = format!("STEPWARD_{}", key.replace('.', "_").to_ascii_uppercase());
                assert!(server.contains(&name), "{name}");
            }
        }
        assert_eq!(server.intersection(&worker).next(), None);
        assert!(worker.contains("STEPWARD_WORKER_DRAIN_TIMEOUT_SECS"));
        assert!(server.contains("STEPWARD_TLS_CERT_FILE"));
        assert!(!server.contains("STEPWARD_NOTIFY"));
    }
}
