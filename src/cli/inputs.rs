//! What somebody gives a task or an approval at the prompt: `-i key=value`, `-i @file.json`, `-i @-`.

use std::io::Read;

use anyhow::Context;
use serde_json::{Map, Value};

use super::exit::{Exit, Fault};
use crate::wire::Strict;
use crate::wire::api::ValueJson;

/// More than any request may hold.
const BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, Default)]
pub struct Given {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    One(String, String),
    Many(Map<String, Value>),
}

impl Given {
    /// Files and stdin are read here.
    pub fn read(words: &[String]) -> anyhow::Result<Given> {
        let mut given = Given::default();
        let mut stdin_is_read = false;
        for word in words {
            let part = match (word.strip_prefix('@'), word.split_once('=')) {
                (Some("-"), _) if stdin_is_read => {
                    return Err(Fault::usage("-i @- reads stdin, which there is only once"));
                }
                (Some("-"), _) => {
                    stdin_is_read = true;
                    Part::Many(object("stdin", std::io::stdin().lock())?)
                }
                (Some(file), _) => {
                    let opened = std::fs::File::open(file).map_err(|error| {
                        let message = format!("-i @{file}: {file} cannot be read: {error}");
                        Fault::new(Exit::NotFound, message)
                    })?;
                    Part::Many(object(file, opened)?)
                }
                (None, Some((name, value))) if !name.is_empty() => {
                    Part::One(name.to_string(), value.to_string())
                }
                (None, _) => {
                    let message = format!(
                        "-i {word:?} is not understood, write -i key=value, -i @file.json or -i @-"
                    );
                    return Err(Fault::usage(message));
                }
            };
            given.parts.push(part);
        }
        Ok(given)
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// As whoever asks wants them: what is a text there stays one. Everything else about them is for the server to judge, all at once.
    pub fn typed(self, specs: &[ValueJson]) -> anyhow::Result<Map<String, Value>> {
        let mut values = Map::new();
        let mut typed_here: Vec<String> = Vec::new();
        let mut faults = Vec::new();
        for part in self.parts {
            let (name, text) = match part {
                Part::Many(many) => {
                    values.extend(many);
                    continue;
                }
                Part::One(name, text) => (name, text),
            };
            let spec = specs.iter().find(|spec| spec.name == name);
            let is_again = typed_here.contains(&name);
            let value = match read(spec, &text) {
                Ok(value) => value,
                Err(fault) => {
                    faults.push(format!("input {name}: {fault}"));
                    continue;
                }
            };
            match (values.get_mut(&name), value) {
                (Some(Value::Array(items)), Value::Array(more))
                    if is_again && is_multiple(spec) =>
                {
                    items.extend(more);
                }
                (Some(_), _) if is_again => {
                    faults.push(format!("input {name}: is given twice"));
                }
                (_, value) => {
                    values.insert(name.clone(), value);
                }
            }
            typed_here.push(name);
        }
        match faults.is_empty() {
            true => Ok(values),
            false => Err(Fault::new(Exit::Invalid, faults.join("\n  ")).into()),
        }
    }
}

fn is_multiple(spec: Option<&ValueJson>) -> bool {
    spec.is_some_and(|spec| spec.multiple)
}

/// Numbers, dates and the like are read from their text by whoever checks them.
fn read(spec: Option<&ValueJson>, text: &str) -> Result<Value, String> {
    let Some(spec) = spec else {
        return Ok(Value::String(text.to_string()));
    };
    let json = || {
        serde_json::from_str::<Value>(text).map_err(|_| match spec.secret {
            true => "expected JSON".to_string(),
            false => "expected JSON; a text is written as '\"text\"'".to_string(),
        })
    };
    let one = || match spec.value_type.as_str() {
        "json" => json(),
        _ => Ok(Value::String(text.to_string())),
    };
    match spec.multiple {
        false => one(),
        true if text.trim_start().starts_with('[') => json(),
        true => Ok(Value::Array(vec![one()?])),
    }
}

fn object(name: &str, from: impl Read) -> anyhow::Result<Map<String, Value>> {
    let mut text = String::new();
    let read = from.take(BYTES_MAX).read_to_string(&mut text);
    read.with_context(|| format!("{name} cannot be read"))?;
    // What it is about may be a secret: nothing of it is quoted.
    let wrong = |why: String| Fault::new(Exit::Invalid, format!("{name}: {why}"));
    let fault = |error: serde_json::Error| {
        let (line, column) = (error.line(), error.column());
        wrong(format!(
            "expected one JSON object of inputs by name, line {line} column {column} is not understood"
        ))
    };
    if text.trim().is_empty() {
        let why = "it is empty, expected one JSON object of inputs by name";
        return Err(wrong(why.to_string()).into());
    }
    serde_json::from_str::<Value>(&text).map_err(fault)?;
    serde_json::from_str::<Strict>(&text).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str::<Map<String, Value>>(&text)
        .map_err(|_| wrong("expected one JSON object of inputs by name".to_string()).into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(name: &str, value_type: &str, multiple: bool) -> ValueJson {
        ValueJson {
            name: name.to_string(),
            value_type: value_type.to_string(),
            required: false,
            default: None,
            options: Vec::new(),
            pattern: None,
            min: None,
            max: None,
            multiple,
            secret: false,
            description: None,
        }
    }

    fn typed(words: &[&str]) -> Result<Value, String> {
        let specs = [
            spec("version", "string", false),
            spec("hosts", "string", true),
            spec("any", "json", false),
        ];
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        let given = Given::read(&words).map_err(|error| error.to_string())?;
        let typed = given.typed(&specs).map_err(|error| error.to_string())?;
        Ok(Value::Object(typed))
    }

    #[test]
    fn what_is_typed_becomes_what_is_asked_for() {
        assert_eq!(typed(&["version=1.10"]), Ok(json!({"version": "1.10"})));
        assert_eq!(typed(&["version=a=b"]), Ok(json!({"version": "a=b"})));
        assert_eq!(
            typed(&["hosts=a", "hosts=b"]),
            Ok(json!({"hosts": ["a", "b"]}))
        );
        assert_eq!(
            typed(&["hosts=[\"a\", \"b\"]", "any={\"n\": 1}"]),
            Ok(json!({"hosts": ["a", "b"], "any": {"n": 1}}))
        );
        // Whether it is known is for the server to say, with all that is wrong besides.
        assert_eq!(typed(&["verzion=1"]), Ok(json!({"verzion": "1"})));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let fault = |words: &[&str]| typed(words).unwrap_err();
        assert!(fault(&["version"]).contains("write -i key=value"));
        assert!(fault(&["=1"]).contains("write -i key=value"));
        assert_eq!(
            fault(&["version=1", "version=2"]),
            "input version: is given twice"
        );
        assert!(fault(&["any=abc"]).starts_with("input any: expected JSON"));
    }
}
