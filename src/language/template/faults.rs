//! What is wrong with a template, in words that hold names and never values.
//!
//! The engine's own details may quote values, so only those pass whose words are fixed.

use std::ops::Range;

use minijinja::machinery::Span;
use minijinja::{Error, ErrorKind};
use serde_json::Value;

use super::mentions::{ScriptFault, Why, mentions};
use super::{Context, TemplateFault, engine};
use crate::domain::limits::shorten;
use crate::language::values::kind;
use crate::language::words::nearest;

const LITERALLY: &str = "to keep it as it is, write {% raw %}…{% endraw %} around it";

const GITHUB: &str =
    "${{ … }} is an expression of GitHub Actions, here it is {{ … }} without the $";

pub(super) fn bytes(text: &str, span: Span) -> Range<usize> {
    inside(text, span.start_offset as usize..span.end_offset as usize)
}

/// The range, on characters of the text.
fn inside(text: &str, range: Range<usize>) -> Range<usize> {
    let snap = |mut at: usize| {
        at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = snap(range.start);
    start..snap(range.end).max(start)
}

fn fault(message: impl Into<String>, span: Range<usize>) -> TemplateFault {
    let message = message.into();
    TemplateFault { message, span }
}

pub(super) fn syntax(text: &str, error: Error) -> TemplateFault {
    let span = error.range().map_or_else(
        || line(text, error.line().unwrap_or(1)),
        |range| inside(text, range),
    );
    let detail = error.detail().unwrap_or("it cannot be read").to_string();
    let message = match foreign(text, &span) {
        Some(hint) => hint,
        None => format!("the template cannot be read: {detail}"),
    };
    fault(message, span)
}

fn line(text: &str, line: usize) -> Range<usize> {
    let mut start = 0;
    for (at, content) in text.split('\n').enumerate() {
        if at + 1 == line {
            return start..start + content.len();
        }
        start += content.len() + 1;
    }
    0..text.len()
}

/// What looks like the braces of another language: the tag that the fault is in, or the last one before it.
fn foreign(text: &str, span: &Range<usize>) -> Option<String> {
    let before = inside(text, 0..span.start.saturating_add(2)).end;
    let start = ["{{", "{%"]
        .iter()
        .filter_map(|mark| text[..before].rfind(mark))
        .max()?;
    let tag = &text[start..];
    let inner = tag[2..].trim_start();
    let what = if text[..start].ends_with('$') && tag.starts_with("{{") {
        GITHUB.to_string()
    } else if tag.starts_with("{{") && inner.starts_with(['.', '$'])
        || ["range ", "end ", "end}", "json .", "printf "]
            .iter()
            .any(|word| tag.starts_with("{{") && inner.starts_with(word))
    {
        "this looks like a Go template, as docker --format takes".to_string()
    } else if tag.starts_with("{%")
        && text[..start].ends_with(['"', '\'', ' '])
        && !inner.starts_with(char::is_alphabetic)
    {
        "{% begins a tag of the template here".to_string()
    } else {
        return None;
    };
    Some(format!("{what}; {LITERALLY}"))
}

pub(super) fn too_large(text: &str) -> TemplateFault {
    let bytes = engine::TEXT_BYTES_MAX;
    fault(
        format!("the template makes more than {bytes} bytes"),
        0..text.len(),
    )
}

pub(super) fn in_script(found: &ScriptFault) -> TemplateFault {
    let path = shown_path(&found.mention.path);
    let message = match found.why {
        Why::Unfiltered => format!(
            "{path} would become code that is run; read it from the environment, write {{{{ {path} | sh }}}} for one \
             quoted word of a shell, | json for JSON in other languages, or | unsafe, if it is meant to be code"
        ),
        Why::Place => format!(
            "{path} | sh is one quoted word, and here stands {}, where its quotes do not hold",
            found.around.words()
        ),
        Why::NoShell => format!("{path} | sh quotes for a shell, and no shell runs this program"),
        Why::NoJson => {
            format!(
                "{path} | json is no word: this program is read by a language that runs what stands in double quotes"
            )
        }
        Why::JsonPlace => format!(
            "{path} | json is one literal, and it stands {}, where its quotes do not hold; read it from the environment, or write it where \
             nothing is around it",
            found.around.words()
        ),
    };
    fault(message, found.mention.span.clone())
}

/// Beginnings of the engine's details that name kinds and never values.
const HARMLESS: &[&str] = &[
    "cannot calculate length of value of type ",
    "cannot convert ",
    "cannot join value of type ",
    "cannot recurse ",
    "cannot reverse values of type ",
    "cannot round value ",
    "can only sum numbers, got ",
    "invalid digit found in string",
    "invalid float literal",
    "recursion limit exceeded",
    "tried to use ",
    "value is not a string",
    "value of type ",
];

pub(super) fn running(
    text: &str,
    context: &Context,
    error: Error,
    span: Option<Range<usize>>,
) -> TemplateFault {
    let span = span
        .or_else(|| error.range().map(|range| inside(text, range)))
        .unwrap_or_else(|| line(text, error.line().unwrap_or(1)));
    let detail = error.detail().unwrap_or_default();
    let what = || shorten(text[span.clone()].trim());
    if let Some(ours) = detail.strip_prefix(engine::OURS) {
        return fault(ours, span);
    }
    let message = match error.kind() {
        ErrorKind::UndefinedError => return undefined(text, context, span),
        ErrorKind::OutOfFuel => "the template does too much work".to_string(),
        ErrorKind::WriteFailure => return too_large(text),
        ErrorKind::TooManyArguments => format!("{} is given too much", what()),
        ErrorKind::MissingArgument => format!("{} is given too little", what()),
        ErrorKind::UnknownFilter => format!("a filter in {} does not exist", what()),
        ErrorKind::UnknownTest => format!("a test in {} does not exist", what()),
        ErrorKind::UnknownFunction => format!("a function in {} does not exist", what()),
        ErrorKind::UnknownMethod => format!("a method in {} does not exist; use a filter", what()),
        ErrorKind::CannotUnpack => format!("{} cannot be unpacked", what()),
        _ if HARMLESS.iter().any(|words| detail.starts_with(words)) => {
            format!("{} cannot be evaluated: {detail}", what())
        }
        _ => format!("{} cannot be evaluated", what()),
    };
    fault(message, span)
}

/// Names the first mention there that leads nowhere.
fn undefined(text: &str, context: &Context, span: Range<usize>) -> TemplateFault {
    let mentioned = mentions(text).unwrap_or_default();
    let lost = mentioned.iter().filter_map(|mention| {
        let near = mention.span.start < span.end && span.start < mention.span.end;
        let reason = missing(&mention.path, context)?;
        Some((!near, mention.has_default, mention, reason))
    });
    match lost.min_by_key(|(far, protected, ..)| (*far, *protected)) {
        Some((.., mention, reason)) => {
            let of_github = text[..mention.span.start].trim_end().ends_with("${{");
            let unknown_root = context.get(&mention.path[0]).is_none();
            let message = match of_github && unknown_root {
                true => format!("{reason}; {GITHUB}; {LITERALLY}"),
                false => reason,
            };
            fault(message, mention.span.clone())
        }
        None => {
            let what = shorten(text[span.clone()].trim());
            fault(format!("something in {what} is not defined"), span)
        }
    }
}

fn shown_path(path: &[String]) -> String {
    let mut shown = String::new();
    for (at, part) in path.iter().enumerate() {
        let name = part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_');
        match (at, name) {
            (0, _) => shown.push_str(part),
            (_, true) => shown.extend([".", part]),
            (_, false) if part.parse::<i64>().is_ok() => shown.extend(["[", part, "]"]),
            (_, false) => shown.push_str(&format!("[{}]", shorten(part))),
        }
    }
    shown
}

/// Whether workflow files declare the names of the members at this path, or viewers see them anyway. Below, the members may be those of a
/// secret JSON value, and a fault is stored and shown.
fn may_list_members(path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    matches!(
        path[..],
        ["input" | "steps" | "secret" | "env" | "job" | "each" | "hook" | "headers" | "schedule"]
            | ["steps", _]
            | ["steps", _, "output"]
    )
}

/// Why the path leads nowhere, if it does.
fn missing(path: &[String], context: &Context) -> Option<String> {
    let (root, rest) = path.split_first()?;
    let Some(mut value) = context.get(root) else {
        let names = context.values.keys().map(String::as_str);
        return Some(absent(root.clone(), root, "here", names));
    };
    for (at, part) in rest.iter().enumerate() {
        let (parent, shown) = (shown_path(&path[..=at]), shown_path(&path[..=at + 1]));
        let found = match value {
            Value::Object(map) => map.get(part),
            Value::Array(items) => part.parse::<i64>().ok().and_then(|index| {
                let from_end = items.len() as i64 + index;
                items.get(if index < 0 { from_end } else { index } as usize)
            }),
            _ => None,
        };
        value = match (found, value) {
            (Some(found), _) => found,
            (None, _) if !may_list_members(&path[..=at]) => {
                return Some(format!("{shown} is not defined"));
            }
            (None, Value::Object(map)) => {
                let names = map.keys().map(String::as_str);
                return Some(absent(shown, part, &parent, names));
            }
            (None, Value::Array(items)) => {
                let count = items.len();
                return Some(format!(
                    "{shown} is not defined; {parent} is a list of {count}"
                ));
            }
            (None, plain) => {
                return Some(format!(
                    "{shown} is not defined; {parent} is {}",
                    kind(plain)
                ));
            }
        };
    }
    None
}

fn absent<'a>(
    shown: String,
    name: &str,
    parent: &str,
    names: impl Iterator<Item = &'a str>,
) -> String {
    const NAMES_MAX: usize = 12;
    let names: Vec<&str> = names.collect();
    let close = nearest(name, names.iter().copied());
    let close = close.map_or(String::new(), |close| format!(" did you mean {close}?"));
    let listed = names.iter().take(NAMES_MAX).map(|name| plain(name));
    let mut listed = listed.collect::<Vec<_>>().join(", ");
    if names.len() > NAMES_MAX {
        listed.push_str(", …");
    }
    let has = match (names.is_empty(), parent) {
        (true, "here") => "nothing is defined here".to_string(),
        (true, parent) => format!("{parent} is empty"),
        (false, "here") => format!("defined here: {listed}"),
        (false, parent) => format!("{parent} has: {listed}"),
    };
    format!("{shown} is not defined;{close} {has}")
}

/// A name as it is, unless it is long or odd.
fn plain(name: &str) -> String {
    match name.len() <= 60 && !name.contains(char::is_control) {
        true => name.to_string(),
        false => shorten(name),
    }
}

pub(super) fn unknown(
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'static str>,
    span: Range<usize>,
) -> TemplateFault {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    let message = match nearest(name, known.iter().copied()) {
        Some(close) => format!(
            "{what} {} does not exist; did you mean {close}?",
            plain(name)
        ),
        None => format!(
            "{what} {} does not exist; there are: {}",
            plain(name),
            known.join(", ")
        ),
    };
    fault(message, span)
}

pub(super) fn refused(message: &str, span: Range<usize>) -> TemplateFault {
    fault(message, span)
}
