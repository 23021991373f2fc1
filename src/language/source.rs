//! The text of workflow files, and places in it.

use std::path::PathBuf;
use std::sync::Arc;

/// One file as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// As it is shown.
    pub path: PathBuf,
    pub text: String,
}

/// Bytes of one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub file: u32,
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub fn new(file: u32, start: usize, end: usize) -> Span {
        Span {
            file,
            start: start as u32,
            end: end as u32,
        }
    }
}

/// A file ready to be pointed into.
#[derive(Debug, Clone)]
pub struct Source {
    pub name: Arc<str>,
    /// Without a byte order mark.
    pub text: Arc<str>,
    line_starts: Vec<u32>,
    /// The characters before every `CHARACTERS_EVERY`th byte, so that a place in a line of a megabyte is found without reading the line.
    characters: Vec<u32>,
}

const CHARACTERS_EVERY: usize = 4096;

/// Both count from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

impl Source {
    pub fn new(file: &SourceFile) -> Source {
        let text = file.text.strip_prefix('\u{feff}').unwrap_or(&file.text);
        let breaks = memchr::memchr_iter(b'\n', text.as_bytes());
        let line_starts = std::iter::once(0).chain(breaks.map(|at| at as u32 + 1));
        Source {
            name: file.path.display().to_string().into(),
            line_starts: line_starts.collect(),
            characters: characters_before(text),
            text: text.into(),
        }
    }

    /// Counts from 0.
    pub fn line_of(&self, byte: u32) -> usize {
        self.line_starts.partition_point(|&start| start <= byte) - 1
    }

    pub fn line_start(&self, line: usize) -> Option<u32> {
        self.line_starts.get(line).copied()
    }

    /// Without its end.
    pub fn line(&self, line: usize) -> &str {
        let Some(start) = self.line_start(line) else {
            return "";
        };
        let end = self
            .line_start(line + 1)
            .map_or(self.text.len(), |end| end as usize);
        let text = &self.text[start as usize..end];
        text.trim_end_matches(['\n', '\r'])
    }

    pub fn position(&self, byte: u32) -> Position {
        let line = self.line_of(byte);
        let start = self.line_starts[line];
        Position {
            line: line as u32 + 1,
            column: self.character_of(byte) - self.character_of(start) + 1,
        }
    }

    /// Returns the number of characters that begin before this byte.
    fn character_of(&self, byte: u32) -> u32 {
        let block = byte as usize / CHARACTERS_EVERY;
        let rest = &self.text.as_bytes()[block * CHARACTERS_EVERY..byte as usize];
        self.characters[block] + beginnings(rest)
    }

    /// Within the text, and between its characters: a place that was reckoned may be off, what is shown must not be.
    pub fn whole_characters(&self, span: Span) -> Span {
        let floor = |byte: u32| {
            let mut byte = (byte as usize).min(self.text.len());
            while !self.text.is_char_boundary(byte) {
                byte -= 1;
            }
            byte as u32
        };
        let start = floor(span.start);
        Span {
            start,
            end: floor(span.end).max(start),
            ..span
        }
    }

    pub fn slice(&self, span: Span) -> &str {
        let span = self.whole_characters(span);
        &self.text[span.start as usize..span.end as usize]
    }
}

fn characters_before(text: &str) -> Vec<u32> {
    let mut all = vec![0];
    let mut count = 0;
    for block in text.as_bytes().chunks(CHARACTERS_EVERY) {
        count += beginnings(block);
        all.push(count);
    }
    all
}

/// The characters that begin in these bytes of UTF-8.
fn beginnings(bytes: &[u8]) -> u32 {
    let continues = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    (bytes.len() - bytes.iter().filter(continues).count()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let source = Source::new(&SourceFile {
            path: "a.yaml".into(),
            text: "\u{feff}æ: b\r\nc".to_string(),
        });
        let at = |line, column| Position { line, column };
        assert_eq!(source.position(0), at(1, 1));
        assert_eq!(source.position(2), at(1, 2));
        assert_eq!(source.position(7), at(2, 1));
        assert_eq!((source.line(0), source.line(1)), ("æ: b", "c"));
    }
}
