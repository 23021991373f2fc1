//! Fields for values that are asked for, made from what they may be; and what was typed into them, read back.
//!
//! A task's inputs and what an approval asks for are the same kind of thing, and have the same fields.

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::form::Form;
use crate::domain::value::{ValueSpec, ValueType};
use crate::language::values::{VALUE_BYTES_MAX, Violation};

/// Before the name of every field, so that no input can be called as something else that a form has.
const PREFIX: &str = "input.";

/// A longer text in a field is not shown again when its form is refused. No single value may be longer.
pub const SHOWN_AGAIN_BYTES_MAX: usize = VALUE_BYTES_MAX;
/// All texts of a refused form together that are shown again.
const ALL_SHOWN_AGAIN_BYTES_MAX: usize = 4 * SHOWN_AGAIN_BYTES_MAX;

/// Options up to this many are all shown.
const CHOICES_MAX: usize = 6;

/// What stands in the fields: texts by name, as somebody typed them or would.
#[derive(Debug, Default)]
pub struct Typed {
    texts: Vec<(String, String)>,
    /// Fields that are empty because what was typed into them is too long to be shown again.
    too_long: Vec<String>,
}

impl Typed {
    /// From an address: `?input.name=Ada`.
    pub fn of_query(query: &[(String, String)]) -> Typed {
        let pairs = query.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix(PREFIX)?;
            Some((name.to_string(), value.clone()))
        });
        Typed {
            texts: pairs.collect(),
            too_long: Vec::new(),
        }
    }

    /// Takes the texts of a refused form, to show them again beside the reasons. Long texts are left out, because the page is several
    /// times as long as the texts that it shows.
    pub fn of_form(form: &Form, specs: &[ValueSpec]) -> Typed {
        let mut typed = Typed::default();
        let mut left = ALL_SHOWN_AGAIN_BYTES_MAX;
        for spec in specs {
            let field = format!("{PREFIX}{}", spec.name);
            // One byte more for each text: the page repeats its markup for each.
            let bytes: usize = form.all(&field).map(|text| text.len() + 1).sum();
            if bytes > left.min(SHOWN_AGAIN_BYTES_MAX + 1) {
                typed.too_long.push(spec.name.clone());
                // Without any text the field would show its default.
                typed.texts.push((spec.name.clone(), String::new()));
                continue;
            }
            left -= bytes;
            for text in form.all(&field) {
                typed.texts.push((spec.name.clone(), text.to_string()));
            }
        }
        typed
    }

    /// What an earlier job was given. What was secret is not known here.
    pub fn of_input(input: &Value, specs: &[ValueSpec]) -> Typed {
        let mut texts = Vec::new();
        for spec in specs.iter().filter(|spec| !spec.secret) {
            match input.get(&spec.name) {
                None | Some(Value::Null) => {}
                Some(Value::Array(items)) if spec.multiple => {
                    let items = items
                        .iter()
                        .map(|item| (spec.name.clone(), in_field(spec, item)));
                    texts.extend(items);
                }
                Some(value) => texts.push((spec.name.clone(), in_field(spec, value))),
            }
        }
        Typed {
            texts,
            too_long: Vec::new(),
        }
    }

    fn all<'t>(&'t self, name: &'t str) -> impl Iterator<Item = &'t str> {
        let texts = self.texts.iter();
        texts
            .filter(move |(known, _)| known == name)
            .map(|(_, text)| text.as_str())
    }

    /// Names that nobody asks for.
    pub fn unknown(&self, specs: &[ValueSpec]) -> Vec<&str> {
        let names = self.texts.iter().map(|(name, _)| name.as_str());
        names
            .filter(|name| !specs.iter().any(|spec| spec.name == *name))
            .collect()
    }

    fn has(&self, name: &str) -> bool {
        self.texts.iter().any(|(known, _)| known == name)
    }
}

/// As it stands in a field, from which it can be read again.
fn in_field(spec: &ValueSpec, value: &Value) -> String {
    match spec.value_type {
        ValueType::Json => value.to_string(),
        _ => shown(value),
    }
}

/// A text without its quotes, everything else as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

fn parsed(json: &crate::domain::Json) -> Value {
    serde_json::from_str(&json.0).unwrap_or_default()
}

/// What was sent, as the engine takes it; and what cannot even be read. Whether it fits is for the engine to say.
pub fn read(form: &Form, specs: &[ValueSpec]) -> (Map<String, Value>, Vec<Violation>) {
    let (mut values, mut faults) = (Map::new(), Vec::new());
    for spec in specs {
        let field = format!("{PREFIX}{}", spec.name);
        let mut texts: Vec<&str> = form.all(&field).collect();
        if spec.multiple && spec.options.is_empty() {
            // One per line, as the field says.
            texts = texts.into_iter().flat_map(str::lines).collect();
        }
        let one = |text: &str| match spec.value_type {
            ValueType::Json => serde_json::from_str(text)
                .map_err(|_| "is not JSON; a text is written in quotes".to_string()),
            // Browsers send two characters for a new line.
            ValueType::Text => Ok(Value::from(text.replace("\r\n", "\n"))),
            ValueType::Datetime => Ok(Value::from(whole_time(text))),
            ValueType::Boolean => Ok(Value::from(text == "true" || text == "on")),
            _ => Ok(Value::from(text)),
        };
        let is_said = |text: &&str| !text.is_empty();
        let read: Result<Vec<Value>, String> = texts.into_iter().filter(is_said).map(one).collect();
        match read {
            Err(message) => faults.push(Violation {
                name: spec.name.clone(),
                message,
            }),
            // What is not ticked is not sent; the field was there all the same.
            Ok(read) if spec.value_type == ValueType::Boolean && !spec.multiple => {
                let is_ticked = read.iter().any(|value| value == &Value::Bool(true));
                values.insert(spec.name.clone(), Value::Bool(is_ticked));
            }
            Ok(read) if spec.multiple => {
                values.insert(spec.name.clone(), Value::Array(read));
            }
            Ok(read) => {
                if let Some(value) = read.into_iter().next() {
                    values.insert(spec.name.clone(), value);
                }
            }
        }
    }
    (values, faults)
}

/// A browser's field for a time says neither seconds nor a zone; whoever leaves it out means UTC, as the field says.
pub fn whole_time(text: &str) -> String {
    let has_zone =
        text.ends_with('Z') || text.get(11..).is_some_and(|time| time.contains(['+', '-']));
    match (has_zone, text.len()) {
        (true, _) => text.to_string(),
        (false, 16) => format!("{text}:00Z"),
        (false, 19) => format!("{text}Z"),
        // Not a time: told as it was typed.
        (false, _) => text.to_string(),
    }
}

/// A field with its label, what it is for, and what was wrong with what stood in it.
pub fn field(spec: &ValueSpec, typed: &Typed, faults: &[Violation]) -> Markup {
    let faults = faults.iter().filter(|fault| fault.name == spec.name);
    let faults: Vec<&str> = faults.map(|fault| fault.message.as_str()).collect();
    let id = format!("{PREFIX}{}", spec.name);
    let described = format!("{id}-help {id}-fault");
    let is_tick = spec.value_type == ValueType::Boolean && !spec.multiple;
    html! {
        div.field {
            @if is_tick {
                label for=(id) { (tick(spec, typed, &id, &described)) " " (spec.name) }
            } @else {
                label for=(id) { (spec.name) @if spec.required { " " span.note { "(required)" } } }
                (control(spec, typed, &id, &described, !faults.is_empty()))
            }
            div.note id={ (id) "-help" } { (help(spec)) }
            div.fault id={ (id) "-fault" } role="alert" {
                @for fault in &faults { div { (fault) } }
                @if typed.too_long.contains(&spec.name) { div { "What you entered is too long to be shown again. Enter it again." } }
            }
        }
    }
}

fn tick(spec: &ValueSpec, typed: &Typed, id: &str, described: &str) -> Markup {
    let default = spec.default.as_ref().is_some_and(|json| json.0 == "true");
    let said = typed.all(&spec.name).last();
    let is_on = said.map_or(default, |text| text == "true" || text == "on");
    html! {
        // Sent in any case: of what is not ticked, nothing else would say that it was asked.
        input type="hidden" name=(id) value="false";
        input id=(id) type="checkbox" name=(id) value="true" checked[is_on] data-default=(default) aria-describedby=(described);
    }
}

fn control(spec: &ValueSpec, typed: &Typed, id: &str, described: &str, is_wrong: bool) -> Markup {
    let invalid = is_wrong.then_some("true");
    let default = spec.default.as_ref().map(parsed);
    let texts: Vec<String> = match (typed.has(&spec.name), &default) {
        (true, _) => typed.all(&spec.name).map(str::to_string).collect(),
        (false, Some(Value::Array(items))) if spec.multiple => {
            items.iter().map(|item| in_field(spec, item)).collect()
        }
        (false, Some(value)) => vec![in_field(spec, value)],
        (false, None) => Vec::new(),
    };
    // What need not be said at the prompt.
    let default = default.map(|value| match &value {
        Value::Array(items) if spec.multiple => {
            let items: Vec<String> = items.iter().map(|item| in_field(spec, item)).collect();
            items.join("\n")
        }
        value => in_field(spec, value),
    });
    let first = texts.first().map(String::as_str).unwrap_or_default();
    // A page that shows it again must not hold it.
    if spec.secret {
        return html! {
            input id=(id) type="password" name=(id) autocomplete="new-password" required[spec.required] aria-describedby=(described) aria-invalid=[invalid];
        };
    }
    if !spec.options.is_empty() {
        return options(spec, &texts, default.as_deref(), id, described, invalid);
    }
    if spec.multiple {
        let lines = texts.join("\n");
        return html! {
            textarea id=(id) name=(id) rows="4" data-lines data-default=[default] aria-describedby=(described) aria-invalid=[invalid] { "\n" (lines) }
        };
    }
    let kind = match spec.value_type {
        ValueType::Text | ValueType::Json => {
            return html! {
                textarea id=(id) name=(id) rows="4" required[spec.required] data-default=[default] aria-describedby=(described) aria-invalid=[invalid] spellcheck="false" { "\n" (first) }
            };
        }
        ValueType::Date => "date",
        // Those for numbers and times drop what they do not understand, and nobody would learn what was typed.
        _ => "text",
    };
    let mode = match spec.value_type {
        ValueType::Integer => Some("numeric"),
        ValueType::Number => Some("decimal"),
        _ => None,
    };
    html! {
        input id=(id) type=(kind) name=(id) value=(first) required[spec.required] inputmode=[mode] data-default=[default]
            aria-describedby=(described) aria-invalid=[invalid] autocomplete="off" spellcheck="false";
    }
}

fn options(
    spec: &ValueSpec,
    texts: &[String],
    default: Option<&str>,
    id: &str,
    described: &str,
    invalid: Option<&str>,
) -> Markup {
    let options: Vec<String> = spec
        .options
        .iter()
        .map(|json| in_field(spec, &parsed(json)))
        .collect();
    let size = spec.multiple.then_some(options.len().clamp(2, CHOICES_MAX));
    html! {
        select id=(id) name=(id) required[spec.required] multiple[spec.multiple] size=[size] data-default=[default] aria-describedby=(described) aria-invalid=[invalid] {
            // Nobody is to send what stood first by chance.
            @if !spec.multiple && (!spec.required || texts.is_empty()) { option value="" { "–" } }
            @for option in &options { option value=(option) selected[texts.contains(option)] { (option) } }
        }
    }
}

/// What it is for and what it may be, in a line.
fn help(spec: &ValueSpec) -> Markup {
    let mut rules: Vec<String> = vec![match spec.multiple {
        true if spec.options.is_empty() => format!("{}, one per line", spec.value_type),
        true => format!("any of {}", spec.value_type),
        false => spec.value_type.to_string(),
    }];
    if let Some(min) = &spec.min {
        rules.push(format!("at least {}", shown(&parsed(min))));
    }
    if let Some(max) = &spec.max {
        rules.push(format!("at most {}", shown(&parsed(max))));
    }
    if let Some(pattern) = &spec.pattern {
        rules.push(format!("fits {pattern}"));
    }
    if spec.value_type == ValueType::Datetime {
        rules.push("such as 2026-01-31T08:00:00Z".to_string());
    }
    if spec.secret {
        rules.push("secret: kept sealed, never shown".to_string());
    }
    if let Some(default) = spec.default.as_ref().filter(|_| !spec.secret) {
        rules.push(format!("default {}", shown(&parsed(default))));
    }
    html! {
        @if let Some(description) = &spec.description { (description) " · " }
        (rules.join(" · "))
    }
}
