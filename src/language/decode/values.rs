//! Named values and their rules: inputs of tasks, actions and approvals, outputs of steps.

use std::collections::HashMap;

use super::{Decoder, Owner, Place, find};
use crate::domain::Json;
use crate::domain::value::{ValueSpec, ValueType, input_variable};
use crate::language::scalar;
use crate::language::tree::{Entry, Key, Kind, Node, Style};
use crate::language::values;
use crate::language::words::Where;

const KEYS: &[&str] = &[
    "type",
    "required",
    "default",
    "options",
    "pattern",
    "min",
    "max",
    "multiple",
    "secret",
    "description",
];

const TYPES: &[&str] = &[
    "string", "text", "integer", "number", "boolean", "date", "datetime", "json",
];

/// Of one task, action, approval or step.
const SPECS_MAX: usize = 1_000;

#[derive(Debug)]
pub struct SpecParts {
    pub spec: ValueSpec,
    pub whole: bool,
}

impl Decoder<'_> {
    pub fn specs(&mut self, entry: &Entry, owner: &Owner, key: &'static str) -> Vec<SpecParts> {
        let below = owner.below(key, &entry.key);
        let Some(entries) = self.map(&entry.value, &below) else {
            return Vec::new();
        };
        let count = entries.len();
        if count > SPECS_MAX {
            let message = format!(
                "{} has {count} values, at most {SPECS_MAX} are allowed",
                below.what
            );
            let problem = self.problems.error("E062", entry.key.span, message);
            problem.label("too many values");
        }
        let entries = &entries[..count.min(SPECS_MAX)];
        let mut specs = Vec::with_capacity(entries.len());
        let mut variables: HashMap<String, &Key> = HashMap::new();
        for entry in entries {
            let errors_before = self.problems.errors();
            self.value_name(&entry.key, key);
            // What is entered at an approval is in no environment.
            if key == "input" && owner.kind != "step" {
                let variable = input_variable(&entry.key.text);
                match variables.get(&variable) {
                    Some(first) => self.same_variable(first, &entry.key, &variable),
                    None => drop(variables.insert(variable, &entry.key)),
                }
            }
            let spec = self.spec(&entry.key, &entry.value, key);
            specs.push(SpecParts {
                spec,
                whole: self.problems.errors() == errors_before && count <= SPECS_MAX,
            });
        }
        specs
    }

    fn same_variable(&mut self, first: &Key, second: &Key, variable: &str) {
        let message = format!(
            "`{}` and `{}` are the same variable, {variable}",
            first.text, second.text
        );
        self.problems
            .error("E060", second.span, message)
            .label("only one of them would be in the environment")
            .also(first.span, "the other one")
            .help("give one of them another name");
    }

    /// They become `INPUT_NAME` in an environment, and templates speak of them.
    fn value_name(&mut self, key: &Key, kind: &str) {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let first_is_good = |first: char| first.is_ascii_alphabetic() || first == '_';
        let name = &key.text;
        if !name.starts_with(first_is_good) || !name.chars().all(good) || name.len() > 64 {
            let message = format!("`{name}` cannot be the name of an {kind}");
            self.problems
                .error("E020", key.span, message)
                .label("not a name")
                .help("use letters, digits, `_` and `-`, a letter first, at most 64");
        }
    }

    fn spec(&mut self, key: &Key, node: &Node, kind: &'static str) -> ValueSpec {
        let errors_before = self.problems.errors();
        let mut spec = ValueSpec::new(&key.text, ValueType::String);
        let owner = Owner::new(kind, key, Where::Other);
        if let Kind::Scalar(scalar) = &node.kind
            && ValueType::from_word(&scalar.text).is_some()
        {
            let fix = format!("{{ type: {} }}", scalar.text);
            let message = format!("{} is text, expected a map with its type", owner.what);
            self.problems
                .error("E011", node.span, message)
                .label("expected a map")
                .help(format!("write `{fix}`"))
                .fix(node.span, fix);
            return spec;
        }
        let Some(entries) = self.map(node, &owner) else {
            return spec;
        };
        self.known_keys(entries, &owner, KEYS);
        for entry in entries {
            match entry.key.text.as_str() {
                "type" => {
                    let found =
                        self.word(&entry.value, "type", &owner, ValueType::from_word, TYPES);
                    spec.value_type = found.unwrap_or(ValueType::String);
                }
                "required" => spec.required = self.flag(entry, &owner).unwrap_or(false),
                "multiple" => spec.multiple = self.flag(entry, &owner).unwrap_or(false),
                "secret" => spec.secret = self.flag(entry, &owner).unwrap_or(false),
                "default" if entry.value.is_null() => {
                    let message = format!("the default of {} is nothing", owner.what);
                    self.problems
                        .error("E011", entry.value.span, message)
                        .label("the same as no default")
                        .help("give it a default, or `required: true`, or let templates say `| default('')`");
                }
                "default" => spec.default = self.default_json(&entry.value, entries),
                "min" => spec.min = self.plain_json(&entry.value),
                "max" => spec.max = self.plain_json(&entry.value),
                "options" => match &entry.value.kind {
                    Kind::List(members) if !members.is_empty() => {
                        let options = members.iter();
                        spec.options = options.filter_map(|node| self.plain_json(node)).collect();
                    }
                    _ => {
                        let what = format!("`options` of {}", owner.what);
                        self.wrong_type(&entry.value, &what, "a list of at least one value");
                    }
                },
                "pattern" => spec.pattern = self.pattern(entry, &owner),
                "description" => {
                    spec.description = self.text(entry, &owner).map(str::to_string);
                }
                _ => {}
            }
        }
        if let Some(entry) = find(entries, "default")
            && spec.secret
        {
            self.problems
                .error(
                    "W105",
                    entry.value.span,
                    format!("{} is secret and has a default", owner.what),
                )
                .label("everybody who sees this file can read it")
                .help("leave the default out, or name it under `secrets:`");
        }
        if self.problems.errors() == errors_before {
            let faults = values::spec_faults(&spec, &mut || self.problems.is_out_of_time());
            for (fault_key, fault) in faults {
                if self.problems.is_out_of_time() {
                    break;
                }
                let at = find(entries, fault_key).map_or(key.span, |entry| entry.value.span);
                let message = format!("{}: {fault}", owner.what);
                self.problems
                    .error("E050", at, message)
                    .label("does not fit")
                    .also(key.span, format!("this {kind}"));
            }
        }
        spec
    }

    fn pattern(&mut self, entry: &Entry, owner: &Owner) -> Option<String> {
        let text = self.text(entry, owner)?;
        if let Err(error) = regex_lite::Regex::new(text) {
            let message = format!("`pattern` of {} is not a regular expression", owner.what);
            self.problems
                .error("E027", entry.value.span, message)
                .label(error.to_string())
                .help("put it in single quotes, so that `\\` stays as it is");
            return None;
        }
        Some(text.to_string())
    }

    /// Quotes would make a text of it, which does not fit: what is meant is said here, and once.
    fn default_json(&mut self, node: &Node, entries: &[Entry]) -> Option<Json> {
        let kind = find(entries, "type").and_then(|entry| match &entry.value.kind {
            Kind::Scalar(scalar) => Some(scalar.text.as_str()),
            _ => None,
        });
        let Kind::Scalar(scalar) = &node.kind else {
            return self.plain_json(node);
        };
        if scalar.style != Style::Plain {
            return self.plain_json(node);
        }
        let text = scalar.text.as_str();
        let is_number = matches!(kind, Some("integer" | "number"));
        if is_number && scalar::has_leading_zero(text) {
            let decimal = text.trim_start_matches('0');
            let message =
                format!("`{text}` begins with a zero, which readers of YAML take differently");
            let problem = self.problems.error("W107", node.span, message);
            problem.label("not the same number to all of them");
            match i64::from_str_radix(text, 8) {
                Ok(octal) => {
                    problem.help(format!("write `{decimal}`, or `{octal}` if it is octal"))
                }
                Err(_) => problem.help(format!("write `{decimal}`")),
            };
            return scalar::json(text).map(|value| Json(value.to_string()));
        }
        if kind == Some("boolean")
            && let Some(meant) = scalar::old_boolean(text)
        {
            let message = format!("`{text}` is a text, and the type is boolean");
            self.problems
                .error("E050", node.span, message)
                .label("does not fit")
                .help(format!("write `{meant}`"))
                .fix(node.span, meant.to_string());
            return None;
        }
        self.plain_json(node)
    }

    /// A value that is not rendered.
    fn plain_json(&mut self, node: &Node) -> Option<Json> {
        let value = self.json(node, Place::WorkInput, &mut Vec::new())?;
        Some(Json(value.to_string()))
    }
}
