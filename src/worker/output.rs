//! What a step gave: the file that `STEPWARD_OUTPUT` names, and the last `OUTPUT: {…}` line that it printed. Both are JSON
//! objects in the end; where both have a key, the file wins, since nothing prints to it by accident.
//!
//! The server keeps it and shows it, so secrets are hidden in it as they are in the log, before anybody else has it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use serde_json::{Map, Value};

use super::mask::Masks;
use crate::domain::Json;
use crate::domain::limits::{NAME_BYTES_MAX, OUTPUT_BYTES_MAX, shorten};

const MARKER: &[u8] = b"OUTPUT:";
/// How much of a line is looked at before it is known not to be one.
const BEGINNING_BYTES_MAX: usize = 64;

/// What followed `OUTPUT:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputLine {
    Text(Vec<u8>),
    TooLong,
}

/// Finds the last line on standard output that begins with `OUTPUT: {`. Any other `OUTPUT:` is what some program says.
#[derive(Debug, Default)]
pub struct OutputWatch {
    line: Watched,
    last: Option<OutputLine>,
}

#[derive(Debug)]
enum Watched {
    Beginning(Vec<u8>),
    Output(Vec<u8>),
    TooLong,
    Other,
}

impl Default for Watched {
    fn default() -> Watched {
        Watched::Beginning(Vec::new())
    }
}

impl OutputWatch {
    pub fn push(&mut self, text: &[u8]) {
        match &mut self.line {
            Watched::Beginning(beginning) => {
                let room = BEGINNING_BYTES_MAX.saturating_sub(beginning.len());
                let (text, rest) = text.split_at(text.len().min(room));
                beginning.extend_from_slice(text);
                self.line = judge(std::mem::take(beginning));
                if !rest.is_empty() {
                    if matches!(self.line, Watched::Beginning(_)) {
                        self.line = Watched::Other;
                    }
                    self.push(rest);
                }
            }
            Watched::Output(output) if output.len() + text.len() > OUTPUT_BYTES_MAX => {
                self.line = Watched::TooLong;
            }
            Watched::Output(output) => output.extend_from_slice(text),
            Watched::TooLong | Watched::Other => {}
        }
    }

    pub fn end_line(&mut self) {
        match std::mem::take(&mut self.line) {
            Watched::Output(text) => self.last = Some(OutputLine::Text(text)),
            Watched::TooLong => self.last = Some(OutputLine::TooLong),
            Watched::Beginning(_) | Watched::Other => {}
        }
    }

    pub fn into_last(self) -> Option<OutputLine> {
        self.last
    }
}

fn judge(beginning: Vec<u8>) -> Watched {
    let Some(rest) = beginning.strip_prefix(MARKER) else {
        return match MARKER.starts_with(&beginning) {
            true => Watched::Beginning(beginning),
            false => Watched::Other,
        };
    };
    match rest.trim_ascii_start() {
        [] => Watched::Beginning(beginning),
        text @ [b'{', ..] => Watched::Output(text.to_vec()),
        _ => Watched::Other,
    }
}

/// Everything that the step gave, `None` if nothing. An error is one sentence that says which line is wrong and how.
pub fn read(file: &Path, line: Option<OutputLine>, masks: &Masks) -> Result<Option<Json>, String> {
    let mut output = match line {
        None => None,
        Some(OutputLine::TooLong) => return Err(too_big("the OUTPUT: line")),
        Some(OutputLine::Text(text)) => Some(object(&text).map_err(|(_, fault)| {
            format!("the last OUTPUT: line on standard output is not a JSON object: {fault}")
        })?),
    };
    if let Some(text) = read_file(file)? {
        let given = parse_file(&text, masks)?;
        if !given.is_empty() {
            output.get_or_insert_default().extend(given);
        }
    }
    let Some(output) = output else {
        return Ok(None);
    };
    let text = hidden(Value::Object(output), masks).to_string();
    match text.len() > OUTPUT_BYTES_MAX {
        true => Err(too_big("what it gave")),
        false => Ok(Some(Json(text))),
    }
}

/// Without secrets, in keys and in values, at any depth. A number that has one in it is a text then.
fn hidden(value: Value, masks: &Masks) -> Value {
    match value {
        Value::String(text) => Value::String(masks.hide(&text)),
        Value::Number(number) => {
            let text = number.to_string();
            let shown = masks.hide(&text);
            match shown == text {
                true => Value::Number(number),
                false => Value::String(shown),
            }
        }
        Value::Array(items) => {
            let items = items.into_iter().map(|item| hidden(item, masks));
            Value::Array(items.collect())
        }
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields = fields.map(|(key, value)| (masks.hide(&key), hidden(value, masks)));
            Value::Object(fields.collect())
        }
        Value::Null | Value::Bool(_) => value,
    }
}

fn too_big(what: &str) -> String {
    let kib = OUTPUT_BYTES_MAX >> 10;
    format!("{what} is longer than the {kib} KiB that an output may have: give the name of a file")
}

/// The step may have put anything in its place: whatever is not a file is not waited for and not followed.
fn read_file(file: &Path) -> Result<Option<String>, String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let is_no_file = || Err("the output file is not a file any more".to_string());
    let opened = match openat(CWD, file, flags | OFlags::NOCTTY, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NXIO) => return is_no_file(),
        Err(error) => return Err(format!("the output file cannot be read: {error}")),
    };
    let kind = fstat(&opened).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if kind != Ok(FileType::RegularFile) {
        return is_no_file();
    }
    let mut bytes = Vec::new();
    let limit = OUTPUT_BYTES_MAX as u64 + 1;
    let read = File::from(opened).take(limit).read_to_end(&mut bytes);
    if let Err(error) = read {
        return Err(format!("the output file cannot be read: {error}"));
    }
    if bytes.len() > OUTPUT_BYTES_MAX {
        return Err(too_big("the output file"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + memchr::memchr_iter(b'\n', before).count();
            Err(format!("line {line} of the output file is not UTF-8"))
        }
    }
}

/// What a fault quotes is hidden before it is shortened: the beginning of a secret would not be known any more.
fn parse_file(text: &str, masks: &Masks) -> Result<Map<String, Value>, String> {
    if text.trim_start().starts_with('{') {
        return object(text.as_bytes()).map_err(|(line, fault)| {
            format!("line {line} of the output file: it begins as a JSON object, but {fault}")
        });
    }
    let mut output = Map::new();
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        if line.trim().is_empty() {
            continue;
        }
        let equals = line.find('=');
        let marker = line.find("<<");
        let (key, value) = match (equals, marker) {
            (Some(equals), marker) if marker.is_none_or(|marker| equals < marker) => {
                (&line[..equals], line[equals + 1..].to_string())
            }
            (_, Some(marker)) => {
                let end = line[marker + 2..].trim();
                let value = block(&mut lines, end).ok_or_else(|| {
                    let end = shorten(&masks.hide(end));
                    format!("line {number} of the output file begins a block that never ends: there is no line {end}")
                })?;
                (&line[..marker], value)
            }
            _ => {
                return Err(format!(
                    "line {number} of the output file is neither key=value nor key<<END"
                ));
            }
        };
        let key = key.trim();
        if !is_key(key) {
            return Err(format!(
                "line {number} of the output file: {} is no key: letters, digits, '_', '-' and '.', at most {NAME_BYTES_MAX}",
                shorten(&masks.hide(key))
            ));
        }
        output.insert(key.to_string(), Value::String(value));
    }
    Ok(output)
}

/// The lines up to the one that says `end`. `None`: there is none, or no word to look for.
fn block<'a>(lines: &mut impl Iterator<Item = (&'a str, usize)>, end: &str) -> Option<String> {
    if end.is_empty() {
        return None;
    }
    let mut value: Vec<&str> = Vec::new();
    for (line, _) in lines {
        if line == end {
            return Some(value.join("\n"));
        }
        value.push(line);
    }
    None
}

fn is_key(key: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !key.is_empty() && key.len() <= NAME_BYTES_MAX && key.bytes().all(is_letter)
}

/// The line and what is wrong there: never the text itself, it may be a secret.
fn object(text: &[u8]) -> Result<Map<String, Value>, (usize, String)> {
    serde_json::from_slice(text).map_err(|error| {
        let fault = match error.classify() {
            serde_json::error::Category::Eof => "it ends too early".to_string(),
            serde_json::error::Category::Data => "it is something else".to_string(),
            _ => format!("column {} is not JSON", error.column()),
        };
        (error.line(), fault)
    })
}
