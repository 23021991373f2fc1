//! Whether a value fits its spec: for inputs at submission, for outputs, for approvals, and for defaults at load.
//!
//! What is taken: the JSON type itself; for integers, numbers and booleans also a text that reads as one, because forms,
//! the command line and templates give text (`"3"`, `"true"`). An integer may be written `3.0`; it is kept as `3`. A
//! `string` is one line and a `text` any number of them; neither takes a number or a boolean, because `1.10` as a number
//! is no version any more. Dates and times are checked and kept as they were given. `required` means there, not null,
//! and not empty. An optional value that is null counts as not given.
//!
//! No sentence about a secret holds its value.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use regex_lite::RegexBuilder;
use serde_json::{Map, Number, Value};

use crate::domain::Json;
use crate::domain::limits::{NAME_BYTES_MAX, clip, shorten};
use crate::domain::value::{ValueSpec, ValueType};
use crate::language::words::nearest;
use crate::sealer::Sealer;

/// Of one string or text.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
const ITEMS_MAX: usize = 10_000;
const PATTERN_BYTES_MAX: usize = 1 << 10;
/// Of a compiled pattern: what it costs to look for it is this times the length of the text.
const PATTERN_SIZE_MAX: usize = 16 << 10;
const NAMES_SHOWN_MAX: usize = 12;
const UNKNOWN_TOLD_MAX: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub name: String,
    pub message: String,
}

/// All violations at once, or the values with defaults filled in and types made right.
pub fn check_values(
    specs: &[ValueSpec],
    given: &Value,
) -> Result<Map<String, Value>, Vec<Violation>> {
    let none = Map::new();
    let given = match given {
        Value::Object(map) => map,
        Value::Null => &none,
        other => {
            let message = format!(
                "expected an object of values by name, found {}",
                kind(other)
            );
            let name = String::new();
            return Err(vec![Violation { name, message }]);
        }
    };
    let mut values = Map::new();
    let mut violations = Vec::new();
    for spec in specs {
        let checked = match given.get(&spec.name) {
            None | Some(Value::Null) => missing(spec),
            Some(value) => check_value(spec, value).map(Some),
        };
        match checked {
            Ok(None) => {}
            Ok(Some(value)) => {
                values.insert(spec.name.clone(), value);
            }
            Err(message) => violations.push(Violation {
                name: spec.name.clone(),
                message,
            }),
        }
    }
    let known: HashSet<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    let strange = given.keys().filter(|name| !known.contains(name.as_str()));
    for name in strange.take(UNKNOWN_TOLD_MAX) {
        violations.push(Violation {
            name: clip(name, NAME_BYTES_MAX),
            message: unknown(name, specs),
        });
    }
    match violations.is_empty() {
        true => Ok(values),
        false => Err(violations),
    }
}

fn missing(spec: &ValueSpec) -> Result<Option<Value>, String> {
    match &spec.default {
        Some(default) => {
            let value = decoded(default).ok_or("the default is not JSON")?;
            match value.is_null() && !spec.required {
                true => Ok(None),
                false => check_value(spec, &value).map(Some),
            }
        }
        None if spec.required => Err("is required".to_string()),
        None => Ok(None),
    }
}

fn unknown(name: &str, specs: &[ValueSpec]) -> String {
    let names = || specs.iter().map(|spec| spec.name.as_str());
    if specs.is_empty() {
        return "is not known; nothing is asked for".to_string();
    }
    let near = nearest(name, names());
    let close = near.map_or(String::new(), |close| format!(" did you mean {close}?"));
    let mut listed = names().take(NAMES_SHOWN_MAX).collect::<Vec<_>>().join(", ");
    if specs.len() > NAMES_SHOWN_MAX {
        listed.push_str(", …");
    }
    format!("is not known;{close} known: {listed}")
}

/// The value as it is kept.
pub fn check_value(spec: &ValueSpec, value: &Value) -> Result<Value, String> {
    check_value_until(spec, value, &mut || false)
}

/// The same for whoever has little time: each item of a list may be a long text with a costly pattern. A value that was not checked to its
/// end because `is_over` said so is refused.
pub fn check_value_until(
    spec: &ValueSpec,
    value: &Value,
    is_over: &mut dyn FnMut() -> bool,
) -> Result<Value, String> {
    if value.is_null() && spec.value_type != ValueType::Json {
        return Err(match spec.required {
            true => "is required".to_string(),
            false => format!("expected {}, found null", described(spec)),
        });
    }
    if !spec.multiple {
        return SpecRules::new(spec).check(value);
    }
    let Value::Array(items) = value else {
        return Err(format!(
            "expected {}, found {}",
            described(spec),
            kind(value)
        ));
    };
    if spec.required && items.is_empty() {
        return Err("is required, and the list is empty".to_string());
    }
    if items.len() > ITEMS_MAX {
        return Err(format!(
            "is a list of {}, at most {ITEMS_MAX} are taken",
            items.len()
        ));
    }
    let rules = SpecRules::new(spec);
    let checked = items.iter().enumerate().map(|(at, item)| {
        if is_over() {
            return Err("it was not checked: the time is over".to_string());
        }
        let value = rules.check(item);
        value.map_err(|message| format!("item {at}: {message}"))
    });
    checked.collect::<Result<_, _>>().map(Value::Array)
}

fn decoded(json: &Json) -> Option<Value> {
    serde_json::from_str(&json.0).ok()
}

/// What a value is, in words.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn described(spec: &ValueSpec) -> String {
    let (one, many) = match spec.value_type {
        ValueType::String => ("one line of text", "lines of text"),
        ValueType::Text => ("a text", "texts"),
        ValueType::Integer => ("an integer", "integers"),
        ValueType::Number => ("a number", "numbers"),
        ValueType::Boolean => ("true or false", "true or false"),
        ValueType::Date => ("a date like 2026-11-16", "dates like 2026-11-16"),
        ValueType::Datetime => (
            "a time like 2026-11-16T02:00:00Z",
            "times like 2026-11-16T02:00:00Z",
        ),
        ValueType::Json => ("JSON", "JSON values"),
    };
    match spec.multiple {
        true => format!("a list of {many}"),
        false => one.to_string(),
    }
}

/// What was found, and of what is no secret and short also the value.
fn found(spec: &ValueSpec, value: &Value) -> String {
    match value {
        Value::String(text) if !spec.secret => shorten(text),
        Value::Number(_) | Value::Bool(_) if !spec.secret => format!("{} ({value})", kind(value)),
        other => kind(other).to_string(),
    }
}

fn typed(spec: &ValueSpec, value: &Value) -> Result<Value, String> {
    let mismatch = || {
        let one = ValueSpec::new("", spec.value_type);
        format!("expected {}, found {}", described(&one), found(spec, value))
    };
    match spec.value_type {
        ValueType::Json => Ok(value.clone()),
        ValueType::String | ValueType::Text => {
            let Value::String(text) = value else {
                let hint = match value {
                    Value::Number(_) | Value::Bool(_) => "; put it in quotes",
                    _ => "",
                };
                return Err(mismatch() + hint);
            };
            let bytes = text.len();
            if bytes > VALUE_BYTES_MAX {
                return Err(format!(
                    "is {bytes} bytes long, at most {VALUE_BYTES_MAX} are taken"
                ));
            }
            if text.contains('\0') {
                return Err("has a NUL byte in it, which no environment can hold".to_string());
            }
            if spec.value_type == ValueType::String && text.contains(['\n', '\r']) {
                return Err(
                    "expected one line of text, found several; the type text takes them"
                        .to_string(),
                );
            }
            match spec.required && text.is_empty() {
                true => Err("is required, and the text is empty".to_string()),
                false => Ok(value.clone()),
            }
        }
        ValueType::Integer => whole(value).map(Value::Number).ok_or_else(mismatch),
        ValueType::Number => number(value).map(Value::Number).ok_or_else(mismatch),
        ValueType::Boolean => match value {
            Value::Bool(_) => Ok(value.clone()),
            Value::String(text) if text.trim().eq_ignore_ascii_case("true") => {
                Ok(Value::Bool(true))
            }
            Value::String(text) if text.trim().eq_ignore_ascii_case("false") => {
                Ok(Value::Bool(false))
            }
            _ => Err(mismatch()),
        },
        ValueType::Date => match value.as_str().and_then(date) {
            Some(_) => Ok(value.clone()),
            None => Err(mismatch()),
        },
        ValueType::Datetime => match value.as_str().and_then(datetime) {
            Some(_) => Ok(value.clone()),
            None => Err(mismatch()),
        },
    }
}

/// Exactly: what JSON reads as a fraction is one unless it has none, and is small enough to be sure.
fn whole(value: &Value) -> Option<Number> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.clone()),
        Value::Number(number) => {
            let float = number.as_f64()?;
            let exact = float.fract() == 0.0 && float.abs() < EXACT_MAX;
            exact.then(|| Number::from(float as i64))
        }
        Value::String(text) => {
            let text = text.trim();
            let negative = text.parse::<i64>().map(Number::from);
            negative
                .or_else(|_| text.parse::<u64>().map(Number::from))
                .ok()
        }
        _ => None,
    }
}

fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) => Some(number.clone()),
        Value::String(_) if whole(value).is_some() => whole(value),
        // The rules of JSON: no `inf`, no `0x`, no `1.`.
        Value::String(text) if text.len() <= 64 => serde_json::from_str(text.trim()).ok(),
        _ => None,
    }
}

/// `2026-11-16` and nothing else.
fn date(text: &str) -> Option<jiff::civil::Date> {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    shape.then(|| text.parse().ok()).flatten()
}

/// RFC 3339, so with a zone.
fn datetime(text: &str) -> Option<jiff::Timestamp> {
    let written = text.len() <= 64
        && text
            .as_bytes()
            .get(10)
            .is_some_and(|sign| b"Tt ".contains(sign));
    written.then(|| text.parse().ok()).flatten()
}

/// The rules of a spec, read once for all values that are checked against them: there may be ten thousand values and as many
/// options.
struct SpecRules<'s> {
    spec: &'s ValueSpec,
    /// The options as they are shown.
    options: Vec<Value>,
    /// The options with their types made right, by a key that equal values share.
    options_by_key: HashMap<String, Vec<Value>>,
    pattern: Option<Result<regex_lite::Regex, String>>,
}

impl<'s> SpecRules<'s> {
    fn new(spec: &'s ValueSpec) -> SpecRules<'s> {
        let options: Vec<Value> = spec.options.iter().filter_map(decoded).collect();
        let mut options_by_key: HashMap<String, Vec<Value>> = HashMap::new();
        for option in options.iter().filter_map(|option| typed(spec, option).ok()) {
            let same = options_by_key.entry(option_key(spec, &option)).or_default();
            if !same.contains(&option) {
                same.push(option);
            }
        }
        SpecRules {
            spec,
            options,
            options_by_key,
            pattern: spec.pattern.as_deref().map(compiled),
        }
    }

    /// The value as it is kept.
    fn check(&self, value: &Value) -> Result<Value, String> {
        let value = typed(self.spec, value)?;
        check_rules(self, &value)?;
        Ok(value)
    }

    fn is_option(&self, value: &Value) -> bool {
        let spec = self.spec;
        let same = self.options_by_key.get(&option_key(spec, value));
        same.is_some_and(|options| {
            options.iter().any(|option| {
                option == value || compared(spec, option, value) == Some(Ordering::Equal)
            })
        })
    }
}

/// A text that is the same for all values that count as equal, and for few others.
fn option_key(spec: &ValueSpec, value: &Value) -> String {
    match (spec.value_type, value) {
        (ValueType::Datetime, Value::String(text)) => {
            datetime(text).map_or_else(String::new, |time| time.as_nanosecond().to_string())
        }
        // Fractions and large numbers are compared as far as they are exact. The sum turns -0 into 0.
        (ValueType::Number | ValueType::Integer, Value::Number(number)) => {
            let float = number.as_f64().unwrap_or_default() + 0.0;
            float.to_bits().to_string()
        }
        _ => value.to_string(),
    }
}

fn check_rules(rules: &SpecRules<'_>, value: &Value) -> Result<(), String> {
    let spec = rules.spec;
    let shown = found(spec, value);
    if !spec.options.is_empty() && !rules.is_option(value) {
        let listed: Vec<String> = rules
            .options
            .iter()
            .take(NAMES_SHOWN_MAX)
            .map(Value::to_string)
            .collect();
        return Err(match spec.secret {
            true => "is none of the options".to_string(),
            false => format!("is {shown}, which is none of {}", listed.join(", ")),
        });
    }
    if let (Some(pattern), Some(regex), Value::String(text)) =
        (&spec.pattern, &rules.pattern, value)
    {
        let regex = regex.as_ref().map_err(String::clone)?;
        if !regex.is_match(text) {
            return Err(match spec.secret {
                true => format!("does not match {pattern}"),
                false => format!("is {shown}, which does not match {pattern}"),
            });
        }
    }
    for (limit, wrong, words) in [
        (&spec.min, Ordering::Less, "at least"),
        (&spec.max, Ordering::Greater, "at most"),
    ] {
        let Some(limit) = limit.as_ref().and_then(decoded) else {
            continue;
        };
        let (order, what) = match (spec.value_type, value) {
            (ValueType::String | ValueType::Text, Value::String(text)) => {
                let characters = Value::from(text.chars().count() as u64);
                let shown = format!("has {characters} characters, expected {words} {limit}");
                (compared_numbers(&characters, &limit), shown)
            }
            _ if spec.secret => (
                compared(spec, value, &limit),
                format!("expected {words} {limit}"),
            ),
            _ => {
                let shown = value.as_str().map_or_else(|| value.to_string(), shorten);
                (
                    compared(spec, value, &limit),
                    format!("is {shown}, expected {words} {limit}"),
                )
            }
        };
        if order == Some(wrong) {
            return Err(what);
        }
    }
    Ok(())
}

fn compiled(pattern: &str) -> Result<regex_lite::Regex, String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!(
            "the pattern is {} bytes long, at most {PATTERN_BYTES_MAX} are taken",
            pattern.len()
        ));
    }
    let regex = RegexBuilder::new(pattern)
        .size_limit(PATTERN_SIZE_MAX)
        .nest_limit(50)
        .build();
    regex.map_err(|error| format!("the pattern cannot be read: {error}"))
}

fn compared(spec: &ValueSpec, left: &Value, right: &Value) -> Option<Ordering> {
    match spec.value_type {
        ValueType::Integer | ValueType::Number => compared_numbers(left, right),
        ValueType::Date => Some(date(left.as_str()?)?.cmp(&date(right.as_str()?)?)),
        ValueType::Datetime => Some(datetime(left.as_str()?)?.cmp(&datetime(right.as_str()?)?)),
        _ => None,
    }
}

/// Whole numbers exactly; fractions as far as they are exact.
fn compared_numbers(left: &Value, right: &Value) -> Option<Ordering> {
    let exact = |value: &Value| {
        let signed = value.as_i64().map(i128::from);
        signed.or_else(|| value.as_u64().map(i128::from))
    };
    match (exact(left), exact(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

/// What is wrong with the spec itself, with the key that says it; nothing more once `is_over` says that the time is over.
pub fn spec_faults(
    spec: &ValueSpec,
    is_over: &mut dyn FnMut() -> bool,
) -> Vec<(&'static str, String)> {
    let mut faults = Vec::new();
    let word = spec.value_type.as_str();
    let is_text = matches!(spec.value_type, ValueType::String | ValueType::Text);
    let ordered = !matches!(spec.value_type, ValueType::Boolean | ValueType::Json);
    if let Some(pattern) = &spec.pattern {
        match compiled(pattern) {
            _ if !is_text => faults.push((
                "pattern",
                format!("the type {word} has no pattern; string and text have"),
            )),
            Err(message) => faults.push(("pattern", message)),
            Ok(_) => {}
        }
    }
    let mut limits = Vec::new();
    for (key, limit) in [("min", &spec.min), ("max", &spec.max)] {
        let Some(limit) = limit else { continue };
        let value = decoded(limit).unwrap_or_default();
        let fits = match is_text {
            true => value.as_u64().is_some(),
            false => {
                value.is_number()
                    == matches!(spec.value_type, ValueType::Integer | ValueType::Number)
                    && typed(&ValueSpec::new("", spec.value_type), &value).is_ok()
            }
        };
        match (ordered, fits, is_text) {
            (false, ..) => faults.push((key, format!("the type {word} has no {key}"))),
            (_, false, true) => faults.push((
                key,
                format!("{key} of a {word} counts characters, so it is an integer from 0"),
            )),
            (_, false, false) => {
                let expected = described(&ValueSpec::new("", spec.value_type));
                faults.push((key, format!("{key} is {value}, expected {expected}")));
            }
            (true, true, _) => limits.push(value),
        }
    }
    if let [min, max] = limits.as_slice() {
        let order = match is_text {
            true => compared_numbers(min, max),
            false => compared(spec, min, max),
        };
        if order == Some(Ordering::Greater) {
            faults.push((
                "min",
                format!("min is {min}, which is more than max, {max}"),
            ));
        }
    }
    // A broken rule would be told again by each value that is checked against it.
    if !faults.is_empty() {
        return faults;
    }
    let alone = ValueSpec {
        options: Vec::new(),
        multiple: false,
        ..spec.clone()
    };
    let rules = SpecRules::new(&alone);
    for option in &spec.options {
        if is_over() {
            return faults;
        }
        let option = decoded(option).unwrap_or_default();
        if let Err(message) = rules.check(&option) {
            faults.push((
                "options",
                format!("an option breaks the rules of its own: {message}"),
            ));
        }
    }
    if let (true, Some(default)) = (faults.is_empty(), &spec.default) {
        let value = decoded(default).unwrap_or_default();
        if value.is_null() && !spec.required {
            return faults;
        }
        // Version 0.1 took such a default for a value that it had sealed itself. A rule of its own (E056) speaks of it.
        if Sealer::reserved_key_path("", &value).is_some() {
            return faults;
        }
        if let Err(message) = check_value_until(spec, &value, is_over) {
            faults.push(("default", format!("the default does not fit: {message}")));
        }
    }
    faults
}

/// A value that somebody typed: `3` for an integer, `true` for a boolean, JSON for JSON. A list is JSON, or the text is
/// its one item.
pub fn from_text(spec: &ValueSpec, text: &str) -> Result<Value, String> {
    let json = || {
        serde_json::from_str::<Value>(text).map_err(|error| match spec.secret {
            true => "expected JSON".to_string(),
            false => format!("expected JSON: {error}"),
        })
    };
    let value = match (spec.multiple, spec.value_type) {
        (true, _) if text.trim_start().starts_with('[') => json()?,
        (true, _) => {
            let one = ValueSpec {
                multiple: false,
                ..spec.clone()
            };
            return Ok(Value::Array(vec![from_text(&one, text)?]));
        }
        (false, ValueType::Json) => json()?,
        (false, _) => Value::String(text.to_string()),
    };
    check_value(spec, &value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value_type: ValueType) -> ValueSpec {
        ValueSpec::new("x", value_type)
    }

    fn json_of(value: Value) -> Json {
        Json(value.to_string())
    }

    use ValueType::{Boolean, Date, Datetime, Integer, Number, String, Text};

    const JSON: ValueType = ValueType::Json;

    #[test]
    fn values_that_fit_are_made_right() {
        for (value_type, given, kept) in [
            (String, json!("a b"), json!("a b")),
            (String, json!(""), json!("")),
            (Text, json!("a\nb"), json!("a\nb")),
            (Integer, json!(3), json!(3)),
            (Integer, json!("3"), json!(3)),
            (Integer, json!(" -3 "), json!(-3)),
            (Integer, json!(3.0), json!(3)),
            (Integer, json!(u64::MAX), json!(u64::MAX)),
            (Integer, json!("18446744073709551615"), json!(u64::MAX)),
            (Integer, json!(i64::MIN), json!(i64::MIN)),
            (Number, json!(3), json!(3)),
            (Number, json!(1.5), json!(1.5)),
            (Number, json!("1.5"), json!(1.5)),
            (Number, json!("7"), json!(7)),
            (Number, json!("1e3"), json!(1000.0)),
            (Boolean, json!(true), json!(true)),
            (Boolean, json!("False"), json!(false)),
            (Date, json!("2024-02-29"), json!("2024-02-29")),
            (
                Datetime,
                json!("2026-11-16T02:00:00Z"),
                json!("2026-11-16T02:00:00Z"),
            ),
            (
                Datetime,
                json!("2026-11-16T02:00:00.5+01:00"),
                json!("2026-11-16T02:00:00.5+01:00"),
            ),
            (JSON, json!(null), json!(null)),
            (JSON, json!({"a": [1]}), json!({"a": [1]})),
        ] {
            assert_eq!(check_value(&spec(value_type), &given), Ok(kept), "{given}");
        }
    }

    #[test]
    fn values_that_do_not_fit_are_told_why() {
        for (value_type, given, sentence) in [
            (
                String,
                json!(3),
                "expected one line of text, found a number (3); put it in quotes",
            ),
            (
                String,
                json!(true),
                "expected one line of text, found a boolean (true); put it in quotes",
            ),
            (
                String,
                json!(["a"]),
                "expected one line of text, found a list",
            ),
            (
                String,
                json!("a\nb"),
                "expected one line of text, found several; the type text takes them",
            ),
            (
                String,
                json!("a\0"),
                "has a NUL byte in it, which no environment can hold",
            ),
            (
                Text,
                json!("x".repeat(VALUE_BYTES_MAX + 1)),
                "is 65537 bytes long, at most 65536 are taken",
            ),
            (
                Integer,
                json!(3.5),
                "expected an integer, found a number (3.5)",
            ),
            (Integer, json!("3.0"), "expected an integer, found \"3.0\""),
            (
                Integer,
                json!(1e300),
                "expected an integer, found a number (1e+300)",
            ),
            (
                Integer,
                json!("18446744073709551616"),
                "expected an integer, found \"18446744073709551616\"",
            ),
            (
                Integer,
                json!(true),
                "expected an integer, found a boolean (true)",
            ),
            (Number, json!("inf"), "expected a number, found \"inf\""),
            (Number, json!("NaN"), "expected a number, found \"NaN\""),
            (Number, json!("0x10"), "expected a number, found \"0x10\""),
            (
                Boolean,
                json!("yes"),
                "expected true or false, found \"yes\"",
            ),
            (
                Boolean,
                json!(1),
                "expected true or false, found a number (1)",
            ),
            (
                Date,
                json!("2026-02-30"),
                "expected a date like 2026-11-16, found \"2026-02-30\"",
            ),
            (
                Date,
                json!("2026-11-16T00:00:00Z"),
                "expected a date like 2026-11-16, found \"2026-11-16T00:00:00Z\"",
            ),
            (
                Date,
                json!("20261116"),
                "expected a date like 2026-11-16, found \"20261116\"",
            ),
            (
                Datetime,
                json!("2026-11-16 25:00:00Z"),
                "expected a time like 2026-11-16T02:00:00Z, found \"2026-11-16 25:00:00Z\"",
            ),
            (
                Datetime,
                json!("2026-11-16T02:00:00"),
                "expected a time like 2026-11-16T02:00:00Z, found \"2026-11-16T02:00:00\"",
            ),
            (Integer, json!(null), "expected an integer, found null"),
        ] {
            let told = check_value(&spec(value_type), &given).unwrap_err();
            assert_eq!(told, sentence, "{given}");
        }
    }

    #[test]
    fn rules_hold() {
        let mut options = spec(String);
        options.options = vec![json_of(json!("dev")), json_of(json!("prod"))];
        let mut pattern = spec(String);
        pattern.pattern = Some("^v[0-9]+$".to_string());
        let mut characters = spec(String);
        (characters.min, characters.max) = (Some(json_of(json!(2))), Some(json_of(json!(3))));
        let mut between = spec(Integer);
        (between.min, between.max) = (
            Some(json_of(json!(1))),
            Some(json_of(json!(9_007_199_254_740_993_i64))),
        );
        let mut since = spec(Date);
        since.min = Some(json_of(json!("2026-01-01")));
        let mut until = spec(Datetime);
        until.max = Some(json_of(json!("2026-01-01T00:00:00Z")));
        let mut many = options.clone();
        many.multiple = true;
        many.required = true;
        let mut numbers = spec(Integer);
        numbers.options = vec![json_of(json!(1)), json_of(json!(2))];
        for (spec, given, expected) in [
            (&options, json!("dev"), Ok(json!("dev"))),
            (
                &options,
                json!("test"),
                Err("is \"test\", which is none of \"dev\", \"prod\""),
            ),
            (&numbers, json!("2"), Ok(json!(2))),
            (
                &numbers,
                json!(3),
                Err("is a number (3), which is none of 1, 2"),
            ),
            (&pattern, json!("v12"), Ok(json!("v12"))),
            (
                &pattern,
                json!("12"),
                Err("is \"12\", which does not match ^v[0-9]+$"),
            ),
            (&characters, json!("äöü"), Ok(json!("äöü"))),
            (
                &characters,
                json!("a"),
                Err("has 1 characters, expected at least 2"),
            ),
            (
                &characters,
                json!("abcd"),
                Err("has 4 characters, expected at most 3"),
            ),
            (&between, json!(0), Err("is 0, expected at least 1")),
            (
                &between,
                json!(9_007_199_254_740_993_i64),
                Ok(json!(9_007_199_254_740_993_i64)),
            ),
            (
                &between,
                json!(9_007_199_254_740_994_i64),
                Err("is 9007199254740994, expected at most 9007199254740993"),
            ),
            (
                &since,
                json!("2025-12-31"),
                Err("is \"2025-12-31\", expected at least \"2026-01-01\""),
            ),
            (
                &until,
                json!("2026-01-01T00:30:00+01:00"),
                Ok(json!("2026-01-01T00:30:00+01:00")),
            ),
            (
                &until,
                json!("2026-01-01T00:00:01Z"),
                Err("is \"2026-01-01T00:00:01Z\", expected at most \"2026-01-01T00:00:00Z\""),
            ),
            (&many, json!(["dev", "prod"]), Ok(json!(["dev", "prod"]))),
            (
                &many,
                json!(["dev", "x"]),
                Err("item 1: is \"x\", which is none of \"dev\", \"prod\""),
            ),
            (&many, json!([]), Err("is required, and the list is empty")),
            (
                &many,
                json!("dev"),
                Err("expected a list of lines of text, found a text"),
            ),
        ] {
            assert_eq!(
                check_value(spec, &given),
                expected.map_err(str::to_string),
                "{given}"
            );
        }
    }

    #[test]
    fn all_violations_are_told_at_once_and_defaults_are_filled_in() {
        let mut version = ValueSpec::new("version", String);
        version.required = true;
        let mut channel = ValueSpec::new("channel", String);
        channel.default = Some(json_of(json!("stable")));
        let mut count = ValueSpec::new("count", Integer);
        count.default = Some(json_of(json!("3")));
        let note = ValueSpec::new("note", Text);
        let specs = [version, channel, count, note];

        let kept = check_values(&specs, &json!({"version": "1", "note": null})).unwrap();
        assert_eq!(
            Value::Object(kept),
            json!({"version": "1", "channel": "stable", "count": 3})
        );

        let told =
            check_values(&specs, &json!({"verison": "1", "count": "x", "other": 1})).unwrap_err();
        let told: Vec<_> = told
            .iter()
            .map(|violation| format!("{} {}", violation.name, violation.message))
            .collect();
        assert_eq!(
            told,
            [
                "version is required",
                "count expected an integer, found \"x\"",
                "other is not known; known: version, channel, count, note",
                "verison is not known; did you mean version? known: version, channel, count, note",
            ]
        );
        for (given, message) in [
            (json!(null), "is required"),
            (json!({"version": null}), "is required"),
            (json!({"version": ""}), "is required, and the text is empty"),
            (
                json!([1]),
                "expected an object of values by name, found a list",
            ),
        ] {
            assert_eq!(
                check_values(&specs, &given).unwrap_err()[0].message,
                message
            );
        }
        let told = check_values(&[], &json!({"a": 1})).unwrap_err();
        assert_eq!(told[0].message, "is not known; nothing is asked for");
    }

    #[test]
    fn of_a_secret_no_value_is_told() {
        let mut secrets = Vec::new();
        for value_type in ValueType::ALL {
            let mut secret = spec(*value_type);
            secret.secret = true;
            secrets.push(secret.clone());
            secret.options = vec![json_of(json!("other"))];
            secret.min = Some(json_of(json!(99)));
            secret.pattern = Some("^z$".to_string());
            secrets.push(secret.clone());
            secret.options.clear();
            secrets.push(secret.clone());
            secret.multiple = true;
            secrets.push(secret);
        }
        for secret in &secrets {
            for value in [
                json!("hunter2"),
                json!(777_333),
                json!("hunter2\nx"),
                json!(["hunter2"]),
                json!({"hunter2": 1}),
            ] {
                let told = check_value(secret, &value).err().unwrap_or_default();
                let typed = from_text(secret, "hunter2").err().unwrap_or_default();
                for sentence in [told, typed] {
                    assert!(
                        !sentence.contains("hunter2") && !sentence.contains("777333"),
                        "{sentence}"
                    );
                }
            }
        }
        assert!(check_value(&spec(String), &json!({"$sealed": "v1.AAAA"})).is_err());
    }

    #[test]
    fn typed_texts_become_values() {
        let mut many = spec(Integer);
        many.multiple = true;
        for (spec, text, expected) in [
            (&spec(String), "3", Ok(json!("3"))),
            (&spec(Integer), "3", Ok(json!(3))),
            (&spec(Integer), "x", Err("expected an integer, found \"x\"")),
            (&spec(Number), "2.5", Ok(json!(2.5))),
            (&spec(Boolean), "true", Ok(json!(true))),
            (&spec(Date), "2026-11-16", Ok(json!("2026-11-16"))),
            (&spec(JSON), "{\"a\": [1]}", Ok(json!({"a": [1]}))),
            (
                &spec(JSON),
                "{",
                Err("expected JSON: EOF while parsing an object at line 1 column 1"),
            ),
            (&many, "[1, \"2\"]", Ok(json!([1, 2]))),
            (&many, "7", Ok(json!([7]))),
        ] {
            assert_eq!(
                from_text(spec, text),
                expected.map_err(str::to_string),
                "{text}"
            );
        }
    }

    #[test]
    fn a_spec_that_contradicts_itself_is_told() {
        let change = |value_type, change: fn(&mut ValueSpec)| {
            let mut spec = spec(value_type);
            change(&mut spec);
            spec_faults(&spec, &mut || false)
        };
        for (faults, expected) in [
            (change(String, |_| {}), vec![]),
            (
                change(String, |s| s.default = Some(json_of(json!(1)))),
                vec![(
                    "default",
                    "the default does not fit: expected one line of text, found a number (1); put it in quotes",
                )],
            ),
            (
                change(String, |s| s.default = Some(json_of(json!(null)))),
                vec![],
            ),
            (
                change(String, |s| s.pattern = Some("(".into())),
                vec![("pattern", "the pattern cannot be read: ")],
            ),
            (
                change(String, |s| s.pattern = Some("(a{1000}){1000}".into())),
                vec![("pattern", "the pattern cannot be read: ")],
            ),
            (
                change(Integer, |s| s.pattern = Some("a".into())),
                vec![("pattern", "the type integer has no pattern")],
            ),
            (
                change(Boolean, |s| s.min = Some(json_of(json!(1)))),
                vec![("min", "the type boolean has no min")],
            ),
            (
                change(String, |s| s.max = Some(json_of(json!("a")))),
                vec![("max", "max of a string counts characters")],
            ),
            (
                change(Integer, |s| s.max = Some(json_of(json!("9")))),
                vec![("max", "max is \"9\", expected an integer")],
            ),
            (
                change(Date, |s| s.min = Some(json_of(json!("soon")))),
                vec![("min", "min is \"soon\", expected a date")],
            ),
            (
                change(Integer, |s| {
                    s.min = Some(json_of(json!(2)));
                    s.max = Some(json_of(json!(1)));
                }),
                vec![("min", "min is 2, which is more than max, 1")],
            ),
            (
                change(Integer, |s| s.options = vec![json_of(json!("a"))]),
                vec![("options", "an option breaks the rules")],
            ),
            (
                change(String, |s| {
                    s.options = vec![json_of(json!("a"))];
                    s.default = Some(json_of(json!("b")));
                }),
                vec![(
                    "default",
                    "the default does not fit: is \"b\", which is none of \"a\"",
                )],
            ),
            (
                change(Integer, |s| {
                    s.multiple = true;
                    s.default = Some(json_of(json!([1])));
                    s.options = vec![json_of(json!(1))];
                }),
                vec![],
            ),
        ] {
            assert_eq!(faults.len(), expected.len(), "{faults:?}");
            for ((key, sentence), (expected_key, start)) in faults.iter().zip(expected) {
                assert_eq!(*key, expected_key);
                assert!(sentence.starts_with(start), "{sentence}");
            }
        }
    }
}
