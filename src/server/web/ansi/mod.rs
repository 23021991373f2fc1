//! One line of a log as HTML: colours become classes, everything else is text that does nothing.
//!
//! # Classes
//! | class | what |
//! |---|---|
//! | `a-b` `a-d` `a-i` `a-u` | bold, dim, italic, underlined |
//! | `a-f0` … `a-f15` | colour of the text |
//! | `a-g0` … `a-g15` | colour behind it |
//! | `a-v` | inverse: text and background of the page exchanged, where no `a-f` or `a-g` says otherwise |
//! | `a-c` | stands for a character that would not be seen, or would do something |
//! | `a-r` | stands for earlier versions of the line |
//!
//! What was sought is in `<mark>`. There are no other tags, and no attributes but `class` and, of our own words, `title`.

mod line;
mod style;

use std::fmt::Write;

use crate::logs::Needle;
use crate::words::turns_reading;
use line::Line;
use style::Style;

/// Of one line, in which every letter may have a colour. What comes after them has none.
const SPANS_MAX: usize = 5_000;

pub fn html(line: &[u8], needle: Option<Needle<'_>>) -> String {
    let line = Line::read(line);
    let places_of = |text: &[u8]| match &needle {
        Some(needle) => needle.places(text, SPANS_MAX),
        None => Vec::new(),
    };
    let mut page = Page::with_capacity(line.shown.len());
    if line.earlier > 0 {
        let is_found = !places_of(&line.text[..line.shown.start]).is_empty();
        page.earlier(line.earlier, is_found);
    }
    let places = places_of(&line.text[line.shown.clone()]);
    let (mut runs, mut places) = (line.runs.iter().peekable(), places.iter().peekable());
    let mut style = Style::default();
    for_each_sign(&line.text[line.shown.clone()], |at, sign| {
        while let Some(run) = runs.next_if(|run| run.at <= line.shown.start + at) {
            style = run.style;
        }
        while places.next_if(|place| place.end <= at).is_some() {}
        let is_marked = places.peek().is_some_and(|place| place.start <= at);
        page.sign(sign, style, is_marked);
    });
    page.finish()
}

/// The text that is seen of it.
pub fn plain(line: &[u8]) -> String {
    let line = Line::read(line);
    let mut text = String::with_capacity(line.shown.len());
    for_each_sign(&line.text[line.shown], |_, sign| match sign {
        Sign::Letter(c) | Sign::Picture(c) => text.push(c),
        Sign::Code(code) => push_code(&mut text, code),
    });
    text
}

/// How one character is seen.
enum Sign {
    Letter(char),
    /// There is a character that depicts it.
    Picture(char),
    /// Nothing depicts it: it is called by its number.
    Code(u32),
}

/// Each with its place in the text. What is no UTF-8 is one that says so.
fn for_each_sign(text: &[u8], mut visit: impl FnMut(usize, Sign)) {
    let mut at = 0;
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            visit(at, sign(c));
            at += c.len_utf8();
        }
        if !chunk.invalid().is_empty() {
            visit(at, Sign::Letter(char::REPLACEMENT_CHARACTER));
            at += chunk.invalid().len();
        }
    }
}

fn sign(c: char) -> Sign {
    let code = u32::from(c);
    let depicted = |code: u32| char::from_u32(code).map_or(Sign::Code(code), Sign::Picture);
    match c {
        '\t' => Sign::Letter(c),
        '\0'..='\x1f' => depicted(0x2400 + code),
        '\x7f' => depicted(0x2421),
        // Some take these for the end of a line.
        '\u{2028}' | '\u{2029}' => Sign::Code(code),
        c if c.is_control() || turns_reading(c) => Sign::Code(code),
        c => Sign::Letter(c),
    }
}

fn push_code(out: &mut String, code: u32) {
    // A String takes everything.
    let _ = write!(out, "U+{code:04X}");
}

/// HTML in the making.
struct Page {
    out: String,
    spans: usize,
    open: Tags,
}

/// What is around a character.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tags {
    style: Style,
    is_depicted: bool,
    is_marked: bool,
}

impl Tags {
    fn has_span(&self) -> bool {
        self.is_depicted || self.style != Style::default()
    }
}

impl Page {
    fn with_capacity(bytes: usize) -> Page {
        Page {
            out: String::with_capacity(bytes + bytes / 8),
            spans: 0,
            open: Tags::default(),
        }
    }

    fn earlier(&mut self, count: usize, is_found: bool) {
        let versions = match count {
            1 => "1 earlier version".to_string(),
            count => format!("{count} earlier versions"),
        };
        let (begin, end) = match is_found {
            true => ("<mark>", "</mark>"),
            false => ("", ""),
        };
        let title = format!("{versions} of this line");
        let span = format!(r#"{begin}<span class="a-r" title="{title}">↩</span>{end}"#);
        self.out.push_str(&span);
    }

    fn sign(&mut self, sign: Sign, style: Style, is_marked: bool) {
        self.put_into(Tags {
            style,
            is_depicted: !matches!(sign, Sign::Letter(_)),
            is_marked,
        });
        match sign {
            Sign::Letter('&') => self.out.push_str("&amp;"),
            Sign::Letter('<') => self.out.push_str("&lt;"),
            Sign::Letter('>') => self.out.push_str("&gt;"),
            Sign::Letter('"') => self.out.push_str("&quot;"),
            Sign::Letter('\'') => self.out.push_str("&#39;"),
            Sign::Letter(c) | Sign::Picture(c) => self.out.push(c),
            Sign::Code(code) => push_code(&mut self.out, code),
        }
    }

    fn put_into(&mut self, tags: Tags) {
        if tags == self.open {
            return;
        }
        self.close();
        let spans = usize::from(tags.has_span()) + usize::from(tags.is_marked);
        if self.spans + spans > SPANS_MAX {
            // Nothing opens any more, not even what would still fit: the rest looks the same.
            self.spans = SPANS_MAX;
            return;
        }
        self.spans += spans;
        self.open = tags;
        if tags.has_span() {
            self.out.push_str("<span class=\"");
            tags.style.push_classes(&mut self.out);
            if tags.is_depicted {
                self.out.push_str("a-c ");
            }
            // The space behind the last class.
            self.out.pop();
            self.out.push_str("\">");
        }
        if tags.is_marked {
            self.out.push_str("<mark>");
        }
    }

    fn close(&mut self) {
        let tags = std::mem::take(&mut self.open);
        if tags.is_marked {
            self.out.push_str("</mark>");
        }
        if tags.has_span() {
            self.out.push_str("</span>");
        }
    }

    fn finish(mut self) -> String {
        self.close();
        self.out
    }
}
