//! One thing, told line by line: what is known of it, by name. Where no terminal is, a tab stands between the two.

use super::look::{Ink, Look};
use super::words::{printable, width};
use crate::wire::Raw;

/// Where there is nothing to tell.
pub const NOTHING: &str = "-";

#[derive(Default)]
pub struct Sheet {
    lines: Vec<(&'static str, String)>,
}

impl Sheet {
    pub fn line(&mut self, name: &'static str, text: impl Into<String>) {
        self.lines.push((name, printable(&text.into())));
    }

    /// A line, if there is anything to tell.
    pub fn line_of(&mut self, name: &'static str, text: Option<impl Into<String>>) {
        if let Some(text) = text {
            self.line(name, text);
        }
    }

    pub fn text(&self, look: &Look) -> String {
        let names = self.lines.iter().map(|(name, _)| width(name));
        let columns = names.max().unwrap_or(0);
        let line = |(name, text): &(&str, String)| match look.is_terminal {
            true => {
                let name = look.paint(Ink::Faint, &format!("{name:columns$}"));
                format!("{name}  {text}\n")
            }
            false => format!("{name}\t{text}\n"),
        };
        self.lines.iter().map(line).collect()
    }
}

/// A value as people write it: a text as it is, everything else as JSON.
pub fn plain(value: &Raw) -> String {
    let json = crate::domain::Json::from(value.clone()).0;
    serde_json::from_str::<String>(&json).unwrap_or(json)
}

/// Each of them, or that there is none.
pub fn joined(words: &[String]) -> String {
    match words.is_empty() {
        true => NOTHING.to_string(),
        false => words.join(", "),
    }
}
