//! Whether a line tells of an error, by its words. A guess, made for people who look for the cause of a failure.
//!
//! Lines that tell of none are the rule, in logs of a million lines: each byte is looked at once, and nothing is copied.

use std::ops::Range;

/// How sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sureness {
    /// It speaks of an error.
    Weak,
    /// It says that here is one: `error: …`, `ERROR`, `ValueError: …`, `command not found`.
    Strong,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// An error, if nothing around it says otherwise.
    Error,
    /// Errors that may have been counted: there may be none.
    Count,
    /// Nobody writes it but of an error.
    Certain,
    /// An error only behind the word that is meant here.
    Behind(&'static str),
    /// What follows is less than an error, or somebody has dealt with it.
    Soft,
}

/// `FAIL` and `ERR!` are signs, other spellings of them are not.
#[rustfmt::skip]
fn kind(word: &[u8]) -> Kind {
    use Kind::*;
    let known: &[(&str, Kind)] = match word[0].to_ascii_lowercase() {
        b'd' => &[("debug", Soft), ("denied", Behind("permission"))],
        b'e' => &[("error", Error), ("errors", Count), ("exception", Error), ("exceptions", Count), ("expected", Soft)],
        b'f' => &[("failed", Count), ("failure", Error), ("failures", Count), ("failing", Count), ("fatal", Error),
                  ("found", Behind("not")), ("fault", Behind("segmentation"))],
        b'h' => &[("hint", Soft)],
        b'i' => &[("info", Soft), ("ignored", Soft), ("ignoring", Soft)],
        b'n' => &[("note", Soft), ("notice", Soft)],
        b'p' => &[("panic", Error), ("panicked", Certain)],
        b'r' => &[("refused", Behind("connection")), ("retry", Soft), ("retrying", Soft)],
        b's' => &[("such", Behind("no"))],
        b't' => &[("traceback", Error), ("trace", Soft)],
        b'w' => &[("warn", Soft), ("warning", Soft), ("warnings", Soft)],
        _ => &[],
    };
    let same = |known: &&(&str, Kind)| word.eq_ignore_ascii_case(known.0.as_bytes());
    match known.iter().find(same) {
        Some((_, kind)) => *kind,
        None if matches!(word, b"FAIL" | b"ERR") => Error,
        None if word.ends_with(b"Error") || word.ends_with(b"Exception") => Error,
        None => Plain,
    }
}

pub(super) fn names_error(text: &[u8]) -> Option<Sureness> {
    let text = text.trim_ascii();
    if is_trace(text) {
        return None;
    }
    let mut near = Near::default();
    let (mut is_first, mut is_soft) = (true, false);
    let (mut at, mut found) = (0, None);
    while let Some(place) = next_word(text, at) {
        // Behind a comma, another thought begins.
        if text[at..place.start].iter().any(|byte| *byte != b' ') {
            near = Near::default();
        }
        at = place.end;
        let word = &text[place.clone()];
        match kind(word) {
            Kind::Plain => {}
            Kind::Soft => is_soft = true,
            kind => {
                if found.is_none() && tells_of_success(text) {
                    return None;
                }
                let sureness = match (sureness(text, &place, kind, &near, is_first), is_soft) {
                    (Some(Sureness::Weak), true) | (None, _) => None,
                    (Some(Sureness::Strong), true) => Some(Sureness::Weak),
                    (sureness, false) => sureness,
                };
                found = found.max(sureness);
                if found == Some(Sureness::Strong) {
                    return found;
                }
            }
        }
        // A time or a number may come before the first word.
        is_first &= word[0].is_ascii_digit();
        near = Near {
            second_before: near.before,
            before: word,
        };
    }
    found
}

/// `+ command`: a shell tells what it does. What it does may be to print the word.
pub(super) fn is_trace(text: &[u8]) -> bool {
    let signs = text.iter().take_while(|byte| **byte == b'+').count();
    signs > 0 && text.get(signs) == Some(&b' ')
}

/// The words before a word, with nothing but spaces between them.
#[derive(Default)]
struct Near<'a> {
    second_before: &'a [u8],
    before: &'a [u8],
}

impl Near<'_> {
    /// `0 errors`, `no new errors`, `without any error`.
    fn is_nothing(&self) -> bool {
        let is_nothing = |word: &[u8]| matches_any(word, &["0", "no", "zero", "without", "any"]);
        let is_number = self.before.first().is_some_and(u8::is_ascii_digit);
        is_nothing(self.before) || !is_number && is_nothing(self.second_before)
    }
}

fn sureness(
    text: &[u8],
    place: &Range<usize>,
    kind: Kind,
    near: &Near<'_>,
    is_first: bool,
) -> Option<Sureness> {
    let word = &text[place.clone()];
    let (before, behind) = (&text[..place.start], &text[place.end..]);
    if let Kind::Behind(expected) = kind {
        if !near.before.eq_ignore_ascii_case(expected.as_bytes()) {
            return None;
        }
        let is_strong = match expected {
            "not" => {
                let is_command = near.second_before.eq_ignore_ascii_case(b"command");
                is_command || before.ends_with(b": not ")
            }
            "no" => starts_with(behind, b" file"),
            _ => true,
        };
        return Some(match is_strong {
            true => Sureness::Strong,
            false => Sureness::Weak,
        });
    }
    let class = word.len() > "Exception".len() || word.ends_with(b"Error") && word.len() > 5;
    // The name of a class has its package before it; other words with such a neighbour are part of a name.
    let joins: &[u8] = if class { b"-/\\@$" } else { b"-/\\@$." };
    let is_part = |byte: &u8| joins.contains(byte);
    let is_call = behind.first() == Some(&b'(') && !behind.starts_with(b"(s)");
    let is_name = before.last().is_some_and(is_part)
        || behind.first().is_some_and(|byte| b"-/\\@".contains(byte))
        || before.ends_with(b"::")
        || behind.starts_with(b"::")
        || behind.first() == Some(&b'.') && behind.get(1).is_some_and(u8::is_ascii_alphanumeric);
    if is_name || is_call || near.is_nothing() || is_nothing(behind, kind) {
        return None;
    }
    let is_said = behind.starts_with(b"!")
        || behind.starts_with(b"[")
        || behind == b":"
        || behind.starts_with(b": ")
        || behind.starts_with(b":\t");
    if class {
        return (is_said || behind.is_empty()).then_some(Sureness::Strong);
    }
    if word == b"ERR" {
        return behind.starts_with(b"!").then_some(Sureness::Strong);
    }
    let is_value = before.ends_with(b"=") || before.ends_with(b"=\"") || before.ends_with(b":\"");
    let is_loud = word.iter().all(u8::is_ascii_uppercase);
    let is_level = before.ends_with(b"[") && behind.starts_with(b"]");
    let is_sure = kind == Kind::Certain || is_said && kind == Kind::Error;
    let is_strong =
        is_sure || is_value || is_loud || is_level || is_first || before.ends_with(b": ");
    // How many there were is told at the end, after each of them.
    let is_summary = kind == Kind::Count && near.before.first().is_some_and(u8::is_ascii_digit);
    Some(match is_strong && !is_summary {
        true => Sureness::Strong,
        false => Sureness::Weak,
    })
}

/// `errors: 0`, `failed=0`, `error: none`, `"error":null`.
fn is_nothing(behind: &[u8], kind: Kind) -> bool {
    let value = behind.strip_prefix(b"(s)").unwrap_or(behind);
    let signs = value.iter().take_while(|byte| b"\": =".contains(byte));
    let (signs, value) = value.split_at(signs.count());
    if signs.is_empty() {
        return false;
    }
    let Some(place) = next_word(value, 0).filter(|place| place.start <= 1) else {
        // `error=""`
        return signs.ends_with(b"\"\"");
    };
    let (word, rest) = (&value[place.clone()], &value[place.end..]);
    match word {
        // `error: 0 tests were found` is one.
        b"0" => kind == Kind::Count || !rest.starts_with(b" ") && !rest.starts_with(b"."),
        word => matches_any(word, &["none", "null", "nil", "false"]),
    }
}

/// A test that passed may speak of errors in its name.
fn tells_of_success(text: &[u8]) -> bool {
    let begins = ["ok ", "PASS", "✓", "✔", "√", "✅"];
    let ends = ["... ok", " PASSED", " PASS"];
    begins.iter().any(|sign| text.starts_with(sign.as_bytes()))
        || ends.iter().any(|sign| text.ends_with(sign.as_bytes()))
        || text.windows(8).any(|part| part == b" PASSED ")
}

/// Letters, digits, underscores, and whatever is no ASCII.
fn next_word(text: &[u8], at: usize) -> Option<Range<usize>> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
    let start = at + text[at..].iter().position(is_word)?;
    let end = text[start..].iter().position(|byte| !is_word(byte));
    Some(start..end.map_or(text.len(), |length| start + length))
}

fn starts_with(text: &[u8], lower: &[u8]) -> bool {
    text.get(..lower.len())
        .is_some_and(|begin| begin.eq_ignore_ascii_case(lower))
}

fn matches_any(word: &[u8], lower: &[&str]) -> bool {
    lower
        .iter()
        .any(|other| word.eq_ignore_ascii_case(other.as_bytes()))
}
