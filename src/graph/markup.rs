//! What every picture writes: lines, texts that stay texts, and words that are safe as a class.

use std::fmt::{Arguments, Write};

pub(crate) fn line(out: &mut String, line: Arguments) {
    // A String takes everything.
    let _ = out.write_fmt(line);
    out.push('\n');
}

pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// As part of a class or an id: one word, whatever it was.
pub(crate) fn class(word: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    word.chars().filter(is_plain).collect()
}
