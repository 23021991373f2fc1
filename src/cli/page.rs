//! Text with indents and labels, wrapped to the terminal's width.

use super::look::{Ink, Look};
use super::words::{fit, printable, width};

/// On less there is no room for columns.
const NARROW: usize = 60;
/// However narrow, a word has this much room.
const ROOM_MIN: usize = 12;

pub struct Page<'a> {
    look: &'a Look,
    text: String,
}

impl<'a> Page<'a> {
    pub fn new(look: &'a Look) -> Page<'a> {
        Page {
            look,
            text: String::new(),
        }
    }

    pub fn is_narrow(look: &Look) -> bool {
        look.width.is_some_and(|columns| columns < NARROW)
    }

    pub fn has_room(&self, columns: usize) -> bool {
        self.look.width.is_none_or(|room| columns <= room) && !Page::is_narrow(self.look)
    }

    pub fn finish(self) -> String {
        self.text
    }

    /// An empty line, unless there is one.
    pub fn gap(&mut self) {
        if !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    pub fn head(&mut self, text: &str) {
        self.hang("", 0, 2, text, Some(Ink::Bold));
    }

    pub fn text(&mut self, indent: usize, text: &str, ink: Option<Ink>) {
        self.hang(&" ".repeat(indent), indent, indent, text, ink);
    }

    /// A name in a column, and what is said of it; below each other where there is no room.
    pub fn named(
        &mut self,
        indent: usize,
        column: usize,
        then: usize,
        name: &str,
        text: &str,
        ink: Option<Ink>,
    ) {
        let name = printable(name);
        let pad = " ".repeat(indent);
        if Page::is_narrow(self.look) || width(&name) > column {
            self.text
                .push_str(&format!("{pad}{}\n", self.look.paint(Ink::Bold, &name)));
            return self.text(then, text, ink);
        }
        let gap = " ".repeat(then.saturating_sub(indent + width(&name)));
        let first = format!("{pad}{}{gap}", self.look.paint(Ink::Bold, &name));
        self.hang(&first, then, then, text, ink);
    }

    pub fn row(&mut self, indent: usize, column: usize, label: &str, text: &str) {
        let label = printable(label);
        let pad = " ".repeat(indent);
        if Page::is_narrow(self.look) {
            let label = match label.is_empty() {
                true => label,
                false => format!("{label}: "),
            };
            let used = indent + width(&label);
            let first = format!("{pad}{}", self.look.paint(Ink::Faint, &label));
            return self.hang(&first, used, indent + 2, text, None);
        }
        let then = indent + column + 3;
        let painted = self.look.paint(Ink::Faint, &label);
        if width(&label) > column {
            self.text.push_str(&format!("{pad}{painted}\n"));
            return self.text(then, text, None);
        }
        let gap = " ".repeat(column - width(&label) + 3);
        self.hang(&format!("{pad}{painted}{gap}"), then, then, text, None);
    }

    /// A first line of which so much is used, and the others below each other.
    fn hang(&mut self, first: &str, used: usize, then: usize, text: &str, ink: Option<Ink>) {
        let text = printable(text);
        let room = |used: usize| match self.look.width {
            Some(columns) => columns.saturating_sub(used).max(ROOM_MIN),
            None => usize::MAX,
        };
        let lines = wrap(text.trim(), room(used), room(then));
        for (at, line) in lines.iter().enumerate() {
            let painted = match ink {
                Some(ink) => self.look.paint(ink, line),
                None => line.clone(),
            };
            let line = match at {
                0 => format!("{first}{painted}"),
                _ => format!("{}{painted}", " ".repeat(then)),
            };
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }
}

/// Between words if it can be, and within a word that is longer than a line. A first line may have another length.
fn wrap(text: &str, first: usize, rest: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut room) = (String::new(), first);
    let mut unwrapped = text;
    if width(text) <= first {
        return vec![text.to_string()];
    }
    while !unwrapped.is_empty() {
        let end = unwrapped.find(' ').map_or(unwrapped.len(), |at| at + 1);
        let (word, after) = unwrapped.split_at(end);
        if width(&line) + width(word.trim_end()) <= room {
            line.push_str(word);
            unwrapped = after;
            continue;
        }
        if line.is_empty() {
            let piece = fit(word, room, "");
            unwrapped = &unwrapped[piece.len()..];
            line = piece;
        }
        lines.push(std::mem::take(&mut line).trim_end().to_string());
        room = rest;
    }
    lines.push(line.trim_end().to_string());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_wrapped_between_words_and_a_long_word_within() {
        assert_eq!(wrap("one two three", 7, 5), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 3, 4), ["abc", "defg", "h ij"]);
        assert_eq!(wrap("", 3, 3), [""]);
        assert_eq!(wrap("日本語 x", 4, 4), ["日本", "語 x"]);
    }
}
