//! As much of JSON schema draft-07 as our schema uses. A word that it does not know is a bug, not a pass.

use regex_lite::Regex;
use serde_json::{Map, Value};

/// What is wrong, with its place; empty if all is well.
pub fn faults(root: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check(root, root, value, "", &mut faults);
    faults
}

fn holds(root: &Value, schema: &Value, value: &Value) -> bool {
    let mut faults = Vec::new();
    check(root, schema, value, "", &mut faults);
    faults.is_empty()
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    let schema = match schema {
        Value::Bool(true) => return,
        Value::Bool(false) => return faults.push(format!("{at}: nothing may be here")),
        Value::Object(schema) => schema,
        other => panic!("{other} is no schema"),
    };
    if let Some(pointer) = schema.get("$ref") {
        let path = pointer.as_str().unwrap().strip_prefix('#').unwrap();
        let target = root
            .pointer(path)
            .unwrap_or_else(|| panic!("{path} is not in the schema"));
        return check(root, target, value, at, faults);
    }
    for (word, rule) in schema {
        let fault = match word.as_str() {
            "$schema" | "title" | "description" | "examples" | "default" | "definitions"
            | "defaultSnippets" => None,
            "type" => {
                let types = rule
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![rule.clone()]);
                let fits = types
                    .iter()
                    .any(|name| is_of(value, name.as_str().unwrap()));
                (!fits).then(|| format!("is not of type {rule}"))
            }
            "enum" => {
                (!rule.as_array().unwrap().contains(value)).then(|| format!("is none of {rule}"))
            }
            "const" => (rule != value).then(|| format!("is not {rule}")),
            "pattern" => text_fault(value, |text| {
                let found = Regex::new(rule.as_str().unwrap()).unwrap().is_match(text);
                (!found).then(|| format!("does not match {rule}"))
            }),
            "minLength" => text_fault(value, |text| {
                let short = text.chars().count() < rule.as_u64().unwrap() as usize;
                short.then(|| "is too short".to_string())
            }),
            "minimum" => number_fault(value, |number| number < rule.as_f64().unwrap()),
            "maximum" => number_fault(value, |number| number > rule.as_f64().unwrap()),
            "minItems" => list_fault(value, |list| list.len() < rule.as_u64().unwrap() as usize),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{at}/{index}"), faults);
                }
                None
            }
            "required" => value.as_object().and_then(|object| {
                let names = rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|name| name.as_str().unwrap());
                let missing: Vec<&str> = names.filter(|name| !object.contains_key(*name)).collect();
                (!missing.is_empty()).then(|| format!("lacks {}", missing.join(", ")))
            }),
            "properties" => {
                for (name, inner) in entries(value) {
                    if let Some(rule) = rule.get(name) {
                        check(root, rule, inner, &format!("{at}/{name}"), faults);
                    }
                }
                None
            }
            "additionalProperties" => {
                let known = schema.get("properties");
                let others = entries(value)
                    .filter(|(name, _)| known.is_none_or(|known| known.get(name).is_none()));
                for (name, inner) in others {
                    check(root, rule, inner, &format!("{at}/{name}"), faults);
                }
                None
            }
            "propertyNames" => {
                for (name, _) in entries(value) {
                    check(
                        root,
                        rule,
                        &Value::from(name.as_str()),
                        &format!("{at}/{name}"),
                        faults,
                    );
                }
                None
            }
            "dependencies" => value.as_object().and_then(|object| {
                let rules = rule.as_object().unwrap().iter();
                let mut rules = rules.filter(|(key, _)| object.contains_key(*key));
                let lacks = |needs: &Value| {
                    let mut needs = needs.as_array().unwrap().iter();
                    needs.any(|need| !object.contains_key(need.as_str().unwrap()))
                };
                let found = rules.find(|(_, needs)| lacks(needs));
                found.map(|(key, needs)| format!("has {key} without {needs}"))
            }),
            "minProperties" => object_fault(value, |object| {
                object.len() < rule.as_u64().unwrap() as usize
            }),
            "maxProperties" => object_fault(value, |object| {
                object.len() > rule.as_u64().unwrap() as usize
            }),
            "allOf" => {
                for rule in rule.as_array().unwrap() {
                    check(root, rule, value, at, faults);
                }
                None
            }
            "anyOf" => {
                let fits = rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|rule| holds(root, rule, value));
                (!fits).then(|| "is none of what it may be".to_string())
            }
            "oneOf" => {
                let fitting = rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|rule| holds(root, rule, value));
                let count = fitting.count();
                (count != 1).then(|| format!("is {count} of what it may be one of"))
            }
            "not" => holds(root, rule, value).then(|| "is what it must not be".to_string()),
            "if" => {
                if holds(root, rule, value)
                    && let Some(then) = schema.get("then")
                {
                    check(root, then, value, at, faults);
                }
                None
            }
            "then" => None,
            other => panic!("the validator does not know {other}"),
        };
        faults.extend(fault.map(|fault| format!("{at}: {fault}")));
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other} is no type"),
    }
}

fn text_fault(value: &Value, fault: impl Fn(&str) -> Option<String>) -> Option<String> {
    value.as_str().and_then(fault)
}

fn number_fault(value: &Value, is_out: impl Fn(f64) -> bool) -> Option<String> {
    let out = value.as_f64().is_some_and(is_out);
    out.then(|| "is out of bounds".to_string())
}

fn list_fault(value: &Value, is_bad: impl Fn(&Vec<Value>) -> bool) -> Option<String> {
    let bad = value.as_array().is_some_and(is_bad);
    bad.then(|| "has the wrong number of items".to_string())
}

fn object_fault(value: &Value, is_bad: impl Fn(&Map<String, Value>) -> bool) -> Option<String> {
    let bad = value.as_object().is_some_and(is_bad);
    bad.then(|| "has the wrong number of keys".to_string())
}
