//! What of a line is text, and what is said to a terminal. A line may come in pieces that end anywhere.
//!
//! Whoever hides text may not do so by an escape that never ends: it is text then, as is one that another begins within.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

const ESC: u8 = 0x1B;
const BEL: u8 = 0x07;

/// Longer parameters belong to nothing that we obey.
const PARAMS_BYTES_MAX: usize = 256;
/// A title, a link, a picture. What is longer is shown.
const STRING_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    Text(&'a [u8]),
    /// `ESC [ params last`: a colour, a move of the cursor.
    Control {
        params: &'a [u8],
        last: u8,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Within {
    #[default]
    Text,
    /// Right behind an escape character.
    Escape,
    /// An escape whose last character is still to come.
    Short,
    Control,
    /// Up to its end, whatever it says.
    String,
    /// Right behind an escape character in a string, perhaps its end.
    StringEscape,
}

/// Follows the escapes of one line after the other.
#[derive(Debug, Default)]
pub struct Escapes {
    within: Within,
    /// Parameters, or what a string has said so far.
    held: Vec<u8>,
}

impl Escapes {
    /// All of this is text: no escape has begun, and none begins.
    pub fn none_in(&self, bytes: &[u8]) -> bool {
        self.within == Within::Text && memchr(ESC, bytes).is_none()
    }

    pub fn feed(&mut self, mut bytes: &[u8], mut visit: impl FnMut(Part<'_>)) {
        while let Some(byte) = bytes.first() {
            let taken = match self.within {
                Within::Text => {
                    let end = memchr(ESC, bytes);
                    if end.is_some() {
                        self.within = Within::Escape;
                    }
                    let text = &bytes[..end.unwrap_or(bytes.len())];
                    if !text.is_empty() {
                        visit(Part::Text(text));
                    }
                    text.len() + usize::from(end.is_some())
                }
                Within::String => self.feed_string(bytes, &mut visit),
                _ => usize::from(self.takes(*byte, &mut visit)),
            };
            bytes = &bytes[taken..];
        }
    }

    /// The line ends, and the next one begins as if there had been none before it.
    pub fn end_line(&mut self, mut visit: impl FnMut(Part<'_>)) {
        if matches!(self.within, Within::String | Within::StringEscape) {
            self.show_string(&mut visit);
        }
        self.within = Within::Text;
    }

    fn feed_string(&mut self, bytes: &[u8], visit: &mut impl FnMut(Part<'_>)) -> usize {
        let end = memchr2(BEL, ESC, bytes);
        let said = &bytes[..end.unwrap_or(bytes.len())];
        self.held.extend_from_slice(said);
        if self.held.len() > STRING_BYTES_MAX {
            self.show_string(visit);
            self.within = Within::Text;
            return said.len();
        }
        if let Some(end) = end {
            self.within = match bytes[end] {
                BEL => Within::Text,
                _ => Within::StringEscape,
            };
        }
        said.len() + usize::from(end.is_some())
    }

    fn show_string(&self, visit: &mut impl FnMut(Part<'_>)) {
        if !self.held.is_empty() {
            visit(Part::Text(&self.held));
        }
    }

    /// `false`: the byte is no part of the escape, which is over.
    fn takes(&mut self, byte: u8, visit: &mut impl FnMut(Part<'_>)) -> bool {
        let (within, taken) = match (self.within, byte) {
            (Within::Escape, b'[') => {
                self.held.clear();
                (Within::Control, true)
            }
            (Within::Escape, b']' | b'P' | b'X' | b'^' | b'_') => {
                self.held.clear();
                (Within::String, true)
            }
            (Within::Escape, ESC) => (Within::Escape, true),
            (Within::Escape | Within::Short, 0x20..=0x2F) => (Within::Short, true),
            (Within::Escape | Within::Short, 0x30..=0x7E) => (Within::Text, true),
            (Within::Control, 0x20..=0x3F) => {
                if self.held.len() <= PARAMS_BYTES_MAX {
                    self.held.push(byte);
                }
                (Within::Control, true)
            }
            (Within::Control, 0x40..=0x7E) => {
                if self.held.len() <= PARAMS_BYTES_MAX {
                    let (params, last) = (self.held.as_slice(), byte);
                    visit(Part::Control { params, last });
                }
                (Within::Text, true)
            }
            (Within::StringEscape, b'\\') => (Within::Text, true),
            (Within::StringEscape, _) => {
                self.show_string(visit);
                (Within::Escape, false)
            }
            _ => (Within::Text, false),
        };
        self.within = within;
        taken
    }
}

/// The text of a whole line.
pub fn without_escapes(line: &[u8]) -> Cow<'_, [u8]> {
    let mut escapes = Escapes::default();
    if escapes.none_in(line) {
        return line.into();
    }
    let mut text = Vec::with_capacity(line.len());
    let mut add = |part: Part<'_>| {
        if let Part::Text(more) = part {
            text.extend_from_slice(more);
        }
    };
    escapes.feed(line, &mut add);
    escapes.end_line(&mut add);
    text.into()
}
