//! Lines of headers from texts that anybody may have written, such as the name of a task.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::domain::limits::clip;

const LINE_BYTES_MAX: usize = 200;
/// An encoded word may have 75 characters: 12 of them frame it, 4 stand for 3 bytes.
const WORD_BYTES_MAX: usize = 45;

/// One line: no control character is left of it, and it is not too long.
pub fn one_line(text: &str) -> String {
    let line: String = text
        .chars()
        .map(
            |c| match c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
                true => ' ',
                false => c,
            },
        )
        .collect();
    clip(line.trim(), LINE_BYTES_MAX)
}

/// The words of a header: the text itself if it is plain ASCII, otherwise encoded as RFC 2047 has it.
pub fn words(text: &str) -> Vec<String> {
    let line = one_line(text);
    // What looks like an encoded word would be decoded by whoever reads it.
    if line.is_ascii() && !line.contains("=?") {
        return vec![line];
    }
    let mut words = Vec::new();
    let mut piece = String::new();
    for c in line.chars() {
        if piece.len() + c.len_utf8() > WORD_BYTES_MAX {
            words.push(encoded(&piece));
            piece.clear();
        }
        piece.push(c);
    }
    words.push(encoded(&piece));
    words
}

fn encoded(piece: &str) -> String {
    format!("=?UTF-8?B?{}?=", STANDARD.encode(piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_breaks_out_of_its_line() {
        assert_eq!(words("backup failed"), ["backup failed"]);
        let hostile = words("x\r\nBcc: eve@example.org\0\u{85}\u{2028}y").join("\r\n ");
        assert!(!hostile.contains("\nBcc"), "{hostile}");
        assert!(hostile.is_ascii());
        assert_eq!(
            words("=?UTF-8?B?eA==?="),
            ["=?UTF-8?B?PT9VVEYtOD9CP2VBPT0/PQ==?="]
        );
        let long = words(&"ä".repeat(5_000));
        assert!(long.iter().all(|word| word.len() <= 75), "{long:?}");
        assert!(long.len() <= 6, "{}", long.len());
    }
}
