//! Input that is nearly right: real texts and values, with pieces cut out, doubled, moved, exchanged and put in.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::dice::Dice;

/// Every file below these folders of the project that has this ending, in order.
pub fn files(folders: &[&str], ending: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    let mut folders: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder is there") {
            let path = entry.expect("it can be read").path();
            match path.is_dir() {
                true => folders.push(path),
                false => paths.push(path),
            }
        }
    }
    paths.retain(|path| path.to_string_lossy().ends_with(ending));
    paths.sort();
    // What is no text is another target's.
    let texts = paths.iter();
    let texts: Vec<String> = texts
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .collect();
    assert!(!texts.is_empty(), "there are files {ending}");
    texts
}

/// What means something somewhere: to YAML, templates, shells, terminals, browsers, or nobody.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "\n", " ", "  ", "\t", ": ", ":", "- ", "[", "]", "{", "}", ",", "\"", "'", "|", "|-", ">", "&a ", "*a", "!t ",
    "!!int ", "#", " # ", "é", "🚀", "{{", "}}", "{{ }}", "{%", "%}", "{% if %}", "{%#", "#%}", "{% raw %}", "\r\n",
    "\r", "\u{feff}", "---\n", "...\n", "? ", "<<: ", "~", "null", "no", "012", "0x1F", ".inf", "-.nan", "1e999",
    "9223372036854775808", "-1", "18446744073709551616", "1_000", "\\x41", "\\u0000", "\u{0}", "\u{7f}", "\u{85}",
    "\u{2028}", "\u{202e}", "\u{10ffff}", "e\u{301}", "%", "%zz", "%00", "&", "=", "+", "../", "//", "\\", "$(", "`",
    "$", "${", "<", ">", "&lt;", "\u{1b}[31m", "\u{1b}]8;;", "*/0", "L", "W", "60s", "1h30m", "P1D",
];

const CHARACTERS: &[char] = &[
    'a', 'Z', '0', '9', ' ', '\n', '\t', '_', '-', '.', '/', ':', '"', '\'', '{', '}', '[', ']',
    '*', '#', '|', '&', '\\', '%', '$', '\0', '\r', '\u{1b}', 'é', 'ß', '日', '\u{200d}',
    '\u{feff}', '\u{e000}', '🚀',
];

/// At most so many characters of any kind.
pub fn noise(dice: &mut Dice, characters_max: u64) -> String {
    let length = dice.roll(characters_max + 1);
    let mut character = || match dice.roll(4) {
        0 => char::from_u32(dice.roll(0x11_0000) as u32).unwrap_or('\u{fffd}'),
        1 => char::from(dice.roll(128) as u8),
        _ => *dice.pick(CHARACTERS).expect("there are some"),
    };
    (0..length).map(|_| character()).collect()
}

pub fn bytes(dice: &mut Dice, bytes_max: u64) -> Vec<u8> {
    let length = dice.roll(bytes_max + 1);
    (0..length).map(|_| dice.roll(256) as u8).collect()
}

/// One of the texts, changed in a few places.
pub fn text(dice: &mut Dice, seeds: &[String], more: &[&str]) -> String {
    let mut text = dice.pick(seeds).expect("there is a seed").clone();
    for _ in 0..dice.roll(6) + 1 {
        text = match dice.roll(12) {
            0..7 => changed(dice, &text, more),
            7 => line_moved(dice, &text),
            8 => indented(dice, &text),
            9 => scalar_exchanged(dice, &text, more),
            10 => {
                let other = dice.pick(seeds).expect("there is a seed");
                joined(dice, &text, other)
            }
            _ => repeated(dice, &text, more),
        };
    }
    text
}

fn piece(dice: &mut Dice, more: &[&str]) -> String {
    match dice.roll(10) {
        0 => noise(dice, 8),
        1..4 if !more.is_empty() => dice.pick(more).expect("not empty").to_string(),
        _ => dice.pick(PIECES).expect("not empty").to_string(),
    }
}

/// Between two characters.
fn place(dice: &mut Dice, text: &str) -> usize {
    let mut at = dice.roll(text.len() as u64 + 1) as usize;
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn changed(dice: &mut Dice, text: &str, more: &[&str]) -> String {
    let at = place(dice, text);
    let (before, rest) = text.split_at(at);
    let end = rest.char_indices().nth(dice.roll(12) as usize);
    let (cut, after) = rest.split_at(end.map_or(rest.len(), |(end, _)| end));
    let piece = match dice.roll(4) {
        0 => String::new(),
        1 => [cut, cut].concat(),
        2 => [cut, &piece(dice, more)].concat(),
        _ => piece(dice, more),
    };
    [before, &piece, after].concat()
}

fn line_moved(dice: &mut Dice, text: &str) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    if lines.is_empty() {
        return String::new();
    }
    let from = dice.roll(lines.len() as u64) as usize;
    let line = match dice.chance(50) {
        true => lines.remove(from),
        false => lines[from],
    };
    if dice.chance(80) {
        lines.insert(dice.roll(lines.len() as u64 + 1) as usize, line);
    }
    lines.concat()
}

fn indented(dice: &mut Dice, text: &str) -> String {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_string).collect();
    if let Some(at) = lines.len().checked_sub(1) {
        let at = dice.roll(at as u64 + 1) as usize;
        lines[at] = match dice.chance(50) {
            true => format!("{}{}", " ".repeat(dice.roll(5) as usize), lines[at]),
            false => lines[at]
                .strip_prefix("  ")
                .unwrap_or(&lines[at])
                .to_string(),
        };
    }
    lines.concat()
}

/// What stands behind a colon.
fn scalar_exchanged(dice: &mut Dice, text: &str, more: &[&str]) -> String {
    let places: Vec<usize> = text.match_indices(": ").map(|(at, _)| at + 2).collect();
    let Some(at) = dice.pick(&places).copied() else {
        return text.to_string();
    };
    let end = text[at..]
        .find(['\n', ',', '}'])
        .map_or(text.len(), |end| at + end);
    [&text[..at], &piece(dice, more), &text[end..]].concat()
}

fn joined(dice: &mut Dice, text: &str, other: &str) -> String {
    let (from, to) = (place(dice, other), place(dice, text));
    let length = dice.roll(200) as usize;
    let mut end = (from + length).min(other.len());
    while !other.is_char_boundary(end) {
        end -= 1;
    }
    [&text[..to], &other[from..end.max(from)], &text[to..]].concat()
}

/// What is harmless once need not be so a thousand times.
fn repeated(dice: &mut Dice, text: &str, more: &[&str]) -> String {
    let at = place(dice, text);
    let times = [10, 100, 2_000][dice.roll(3) as usize];
    [&text[..at], &piece(dice, more).repeat(times), &text[at..]].concat()
}

/// A value that nobody expects there.
pub fn value(dice: &mut Dice, depth: u32) -> Value {
    match dice.roll(if depth == 0 { 8 } else { 10 }) {
        0 => Value::Null,
        1 => Value::Bool(dice.chance(50)),
        2 => json!(dice.between(-3, 300)),
        3 => bound(dice),
        4 => json!(""),
        5..8 => json!(noise(dice, 12)),
        8 => {
            let length = dice.roll(4);
            (0..length).map(|_| value(dice, depth - 1)).collect()
        }
        _ => {
            let length = dice.roll(4);
            let pairs = (0..length).map(|_| (noise(dice, 6), value(dice, depth - 1)));
            Value::Object(pairs.collect())
        }
    }
}

/// A number at which something ends, or that is none of the usual ones.
fn bound(dice: &mut Dice) -> Value {
    let bounds = [
        json!(255),
        json!(65_536),
        json!(i32::MAX),
        json!(u32::MAX),
        json!(u64::from(u32::MAX) + 1),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(-0.0),
        json!(1e300),
        json!(0.1),
    ];
    dice.pick(&bounds).expect("there are some").clone()
}

/// Changes one place of it: something is missing, of another type, out of its bounds, or more than there should be.
pub fn json(dice: &mut Dice, root: &mut Value) {
    let places = count(root);
    let mut at = dice.roll(places);
    let place = find(root, &mut at).expect("there are so many places");
    match (dice.roll(6), place) {
        (0, Value::Object(map)) => drop(any_key(dice, map).and_then(|key| map.remove(&key))),
        (1, Value::Object(map)) => drop(map.insert(noise(dice, 6), value(dice, 2))),
        (2, Value::Object(map)) => {
            if let Some(key) = any_key(dice, map) {
                let moved = map.remove(&key).expect("it is there");
                map.insert(format!("{key}{}", noise(dice, 2)), moved);
            }
        }
        (0, Value::Array(items)) => drop(items.pop()),
        (1 | 2, Value::Array(items)) => {
            if let Some(item) = dice.pick(items).cloned() {
                let times = [1, 3, 300][dice.roll(3) as usize];
                items.extend(std::iter::repeat_n(item, times));
            }
        }
        (3, place) => {
            let inner = place.take();
            *place = (0..dice.roll(200)).fold(inner, |inner, _| json!([inner]));
        }
        (4 | 5, Value::Number(number)) => {
            let bound = bound(dice);
            *number = bound.as_number().expect("it is one").clone();
        }
        (_, place) => *place = value(dice, 3),
    }
}

fn any_key(dice: &mut Dice, map: &Map<String, Value>) -> Option<String> {
    let keys: Vec<&String> = map.keys().collect();
    dice.pick(&keys).map(|key| key.to_string())
}

fn count(value: &Value) -> u64 {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

fn find<'a>(value: &'a mut Value, at: &mut u64) -> Option<&'a mut Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| find(item, at)),
        Value::Object(map) => map.values_mut().find_map(|item| find(item, at)),
        _ => None,
    }
}

/// The text of a value, and now and then with a key twice, a number without end, half of it, or more behind it.
pub fn written(dice: &mut Dice, value: &Value) -> Vec<u8> {
    let text = value.to_string();
    match dice.roll(40) {
        0 => bytes(dice, 60),
        1 => text.as_bytes()[..dice.roll(text.len() as u64 + 1) as usize].to_vec(),
        2 => changed(dice, &text, &[]).into_bytes(),
        3 => text
            .replacen(':', &format!(":{}", "[".repeat(2_000)), 1)
            .into_bytes(),
        4 => text
            .replacen(":1", &format!(":{}", "9".repeat(400)), 1)
            .into_bytes(),
        5 => {
            let first = text.find(',').map_or("", |end| &text[1..end]).to_string();
            text.replacen('{', &format!("{{{first},"), 1).into_bytes()
        }
        6 => [text.as_bytes(), b" {}"].concat(),
        7 => {
            let mut bytes = text.into_bytes();
            let at = dice.roll(bytes.len() as u64) as usize;
            bytes[at] = dice.roll(256) as u8;
            bytes
        }
        _ => text.into_bytes(),
    }
}
