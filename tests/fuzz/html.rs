//! Lines of a log in a browser: of whatever bytes, only our own tags come out, closed in order, and the text that is seen.

use stepward::logs::Needle;
use stepward::server::web::ansi::{html, plain};

use super::dice::Dice;
use super::mutate;
use super::watch::Tried;

#[rustfmt::skip]
const PIECES: &[&[u8]] = &[
    b"<", b">", b"&", b"\"", b"'", b"<script>", b"</span>", b"&lt;", b"<img src=x onerror=alert(1)>", b"\x1b[",
    b"\x1b[31m", b"\x1b[0m", b"\x1b[1;38;5;", b"\x1b[48;2;1;2;3m", b"\x1b]8;;http://x\x07", b"\x1b\\", b"\x1b]",
    b"\x1b[K", b"\x1b[2J", b"\x1b[5G", b"\x9b31m", b"m", b";", b"38;5;", b"\r", b"\x08", b"\x07", b"\0", b"\t",
    b"\x7f", b"\xff", b"\xe2\x80\xae", b"\xe2\x80\xa8", b"\xc2\x9b", b"\xf0\x9f\x9a\x80", b"\xe6\x97", b"error",
    b"abc", b"a", b" ", b"\x1bP", b"\x1b_", b"\x1b(B", b"\x1b[99999999999999m", b"\xed\xa0\x80", b"\xef\xbf\xbe",
];

pub fn play(dice: &mut Dice, tried: &Tried) {
    for _ in 0..50 {
        let mut line = Vec::new();
        for _ in 0..dice.roll(40) {
            match dice.roll(8) {
                0 => line.extend(mutate::bytes(dice, 8)),
                1 => line.extend(mutate::noise(dice, 8).bytes()),
                _ => line.extend_from_slice(dice.pick(PIECES).expect("there are some")),
            }
        }
        line.retain(|byte| *byte != b'\n');
        if dice.chance(2) {
            line = line.repeat(300);
        }
        let from = dice.roll(line.len() as u64 + 1) as usize;
        let length = dice.roll(5) as usize;
        let sought = &line[from..(from + length).min(line.len())];
        examine(&line, &[], tried);
        examine(&line, sought, tried);
    }
}

pub fn again(bytes: &[u8], tried: &Tried) {
    for line in bytes.split(|byte| *byte == b'\n') {
        examine(line, &[], tried);
        examine(line, line, tried);
    }
}

fn examine(line: &[u8], sought: &[u8], tried: &Tried) {
    tried.now(line);
    let needle = Needle {
        bytes: sought,
        ignore_case: true,
    };
    let page = html(line, (!sought.is_empty()).then_some(needle));
    let seen = read(&page);
    let expected = plain(line);
    assert!(
        seen.ends_with(&expected),
        "seen {seen:?}, printed {expected:?}"
    );
    let does_something = |c: char| {
        c.is_control() && c != '\t'
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!page.contains(does_something), "{page:?}");
}

/// The text between our own tags. Any other tag, attribute or entity is a fault.
fn read(page: &str) -> String {
    let mut seen = String::new();
    let mut open = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find(['<', '&']) {
        let (text, marked) = rest.split_at(at);
        assert!(!text.contains(['>', '"', '\'']), "unescaped: {text:?}");
        seen += text;
        let end = marked.find(if marked.starts_with('<') { '>' } else { ';' });
        let (mark, after) =
            marked.split_at(end.unwrap_or_else(|| panic!("no end: {marked:?}")) + 1);
        rest = after;
        match mark {
            "&lt;" => seen.push('<'),
            "&gt;" => seen.push('>'),
            "&amp;" => seen.push('&'),
            "&quot;" => seen.push('"'),
            "&#39;" => seen.push('\''),
            "<mark>" => open.push("</mark>"),
            "</mark>" | "</span>" => assert_eq!(open.pop(), Some(mark), "{page:?}"),
            _ => {
                assert!(is_span(mark), "not ours: {mark:?}");
                open.push("</span>");
            }
        }
    }
    assert!(!rest.contains(['>', '"', '\'']), "unescaped: {rest:?}");
    assert!(open.is_empty(), "not closed: {page:?}");
    seen + rest
}

fn is_span(mark: &str) -> bool {
    let classes = mark.strip_prefix("<span class=\"");
    let Some((classes, more)) = classes.and_then(|rest| rest.split_once('"')) else {
        return false;
    };
    let is_class = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == ' ';
    let title = more
        .strip_prefix(" title=\"")
        .and_then(|rest| rest.strip_suffix("\">"));
    let is_title = title.is_some_and(|title| !title.contains(['"', '<', '&']));
    classes.chars().all(is_class) && (more == ">" || is_title)
}
