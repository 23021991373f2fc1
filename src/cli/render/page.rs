//! A rendering as people read it: close to the file that it came from, as YAML.

use serde_json::Value;

use super::{Part, Rendering, StepRendering};

pub fn page(rendering: &Rendering) -> String {
    let mut out = format!("# task {}\n", rendering.task);
    for (name, value) in &rendering.input {
        out.push_str(&format!("#   {name}: {}\n", one_line(value)));
    }
    for step in &rendering.steps {
        out.push('\n');
        write_step(&mut out, step);
    }
    out
}

fn write_step(out: &mut String, step: &StepRendering) {
    out.push_str(&format!("{}:\n  type: {}\n", step.name, step.kind));
    // `env.NAME` and `command[0]` are written below `env:` and `command:`.
    let mut group = "";
    for part in &step.parts {
        let (own, key, joint) = match (part.key.split_once('.'), part.key.split_once('[')) {
            (Some((own, key)), _) if own != "each" => (own, key, ": "),
            (_, Some((own, _))) => (own, "-", " "),
            _ => ("", part.key.as_str(), ": "),
        };
        if own != group && !own.is_empty() {
            out.push_str(&format!("  {own}:\n"));
        }
        group = own;
        let indent = if own.is_empty() { "  " } else { "    " };
        write_part(out, part, key, joint, indent);
    }
}

fn write_part(out: &mut String, part: &Part, key: &str, joint: &str, indent: &str) {
    if !part.unknown.is_empty() {
        out.push_str(&format!("{indent}# known {}\n", part.unknown.join(", ")));
    }
    let is_skipped = key == "when" && part.value == Value::Bool(false);
    let behind = if is_skipped {
        "   # the step is skipped"
    } else {
        ""
    };
    match &part.value {
        Value::String(text) if is_block(text) => {
            out.push_str(&format!("{indent}{key}{joint}|{}\n", chomping(text)));
            for line in text.trim_end_matches('\n').split('\n') {
                out.push_str(format!("{indent}  {line}").trim_end_matches(' '));
                out.push('\n');
            }
        }
        // A tree: JSON is YAML.
        value @ (Value::Object(_) | Value::Array(_)) => {
            let json = serde_json::to_string_pretty(value).unwrap_or_default();
            let json = escaped(&json).replace('\n', &format!("\n{indent}"));
            out.push_str(&format!("{indent}{key}{joint}{json}\n"));
        }
        value => out.push_str(&format!(
            "{indent}{key}{joint}{}{behind}\n",
            one_line(value)
        )),
    }
}

/// As it is, in lines of its own: several lines, or what quotes would make hard to read; and nothing that a terminal would obey.
fn is_block(text: &str) -> bool {
    let is_plain = |c: char| c == '\n' || !(c.is_control() || turns(c));
    let begins_plainly = !text.starts_with([' ', '\n']);
    let is_hard = text.contains(['\n', '"', '\\']);
    is_hard && begins_plainly && text.chars().all(is_plain)
}

fn chomping(text: &str) -> &'static str {
    match (text.ends_with('\n'), text.ends_with("\n\n")) {
        (false, _) => "-",
        (true, true) => "+",
        (true, false) => "",
    }
}

/// Turns the direction of reading.
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn one_line(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain_word(text) => text.clone(),
        other => escaped(&other.to_string()),
    }
}

/// YAML would read it as the same text.
fn is_plain_word(text: &str) -> bool {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let goes_on = |c: char| c.is_ascii_alphanumeric() || " -_./+@".contains(c);
    let means_more = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    begins
        && text.chars().all(goes_on)
        && !text.ends_with(' ')
        && !means_more.contains(&text.to_ascii_lowercase().as_str())
}

/// JSON leaves some of what turns or hides text as it is.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match turns(c) || (c.is_control() && c != '\n') {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    out
}
