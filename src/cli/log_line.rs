//! One line of a log, as it is shown: to a program, through a pipe, or on a terminal that nothing in it may take over.

use std::iter::Peekable;
use std::str::Chars;

use serde::Serialize;

use super::look::{Ink, Look};
use super::words::{moment_ms, printable, time_of_day, width};
use crate::wire::Time;
use crate::wire::api::LogLineJson;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    /// As it was printed.
    Plain,
    Terminal,
}

impl Form {
    pub fn for_people(look: &Look) -> Form {
        match look.is_terminal {
            true => Form::Terminal,
            false => Form::Plain,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct LineStyle {
    pub form: Form,
    pub look: Look,
    pub timestamps: bool,
    /// Nothing is put before what was printed.
    pub raw: bool,
}

/// Whose line it is.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    pub step: &'a str,
    /// `None`: the server itself says it.
    pub attempt: Option<u32>,
    /// Lines of several steps are shown: each says whose it is, in so many columns.
    pub columns: Option<usize>,
}

#[derive(Serialize)]
struct LineJson<'a> {
    step: &'a str,
    attempt: Option<u32>,
    n: u64,
    at: Option<Time>,
    stream: &'a str,
    text: &'a str,
}

impl LineStyle {
    /// Appends the line, with its newline.
    pub fn write(&self, out: &mut String, origin: Origin<'_>, line: &LogLineJson) {
        if self.form == Form::Json {
            let json = LineJson {
                step: origin.step,
                attempt: origin.attempt,
                n: line.n,
                at: line.at,
                stream: &line.stream,
                text: &line.text,
            };
            out.push_str(&serde_json::to_string(&json).expect("plain data"));
            out.push('\n');
            return;
        }
        out.push_str(&self.prefix(origin));
        if self.timestamps {
            // Whoever reads along knows the day.
            let shown = |at: Time| match self.form {
                Form::Terminal => format!("{}Z", time_of_day(at)),
                _ => moment_ms(at),
            };
            let at = line.at.map_or("-".to_string(), shown);
            out.push_str(&self.look.paint(Ink::Faint, &at));
            out.push(' ');
        }
        match self.form {
            Form::Terminal => {
                let is_error = line.stream == "stderr";
                out.push_str(&match is_error {
                    true => self.look.paint(Ink::Bad, "! "),
                    false => "  ".to_string(),
                });
                out.push_str(&match line.stream.as_str() {
                    "worker" => {
                        let text = harmless(&line.text, false, self.look.unicode);
                        self.look.paint(Ink::Faint, &text)
                    }
                    _ => harmless(&line.text, self.look.colour, self.look.unicode),
                });
            }
            _ => out.push_str(&line.text),
        }
        out.push('\n');
    }

    /// What stands before each line if there are several steps.
    pub fn prefix(&self, origin: Origin<'_>) -> String {
        let Some(columns) = origin.columns.filter(|_| !self.raw) else {
            return String::new();
        };
        let name = printable(origin.step);
        let pad = match self.form {
            Form::Terminal => " ".repeat(columns.saturating_sub(width(&name))),
            _ => String::new(),
        };
        format!("{}{pad} | ", self.look.paint(Ink::Busy, &name))
    }
}

/// For a terminal: the colours of the text stay if there are to be any, and whatever else would do something to the terminal does
/// not. The next line begins without any colour.
pub fn harmless(text: &str, colour: bool, unicode: bool) -> String {
    let strange = if unicode { '\u{fffd}' } else { '?' };
    let mut shown = String::with_capacity(text.len());
    let mut is_painted = false;
    let mut chars = text.trim_end_matches('\r').chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => {
                if let Some(paint) = escape(&mut chars).filter(|_| colour) {
                    shown.push_str(&paint);
                    is_painted = true;
                }
            }
            '\t' => shown.push('\t'),
            '\r' => shown.push(' '),
            c if c.is_control() => shown.push(strange),
            c => match printable(c.encode_utf8(&mut [0; 4])).as_str() {
                "\u{fffd}" => shown.push(strange),
                same => shown.push_str(same),
            },
        }
    }
    if is_painted {
        shown.push_str("\x1b[0m");
    }
    shown
}

/// Takes the rest of an escape sequence. Returns it if all it does is to choose a colour.
fn escape(chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    match chars.peek()? {
        '[' => {
            chars.next();
            let params = take_while(chars, |c| ('\x20'..='\x3f').contains(&c));
            let last = chars.next_if(|c| ('\x40'..='\x7e').contains(c))?;
            let is_colour = last == 'm'
                && params
                    .chars()
                    .all(|c| c.is_ascii_digit() || matches!(c, ';' | ':'));
            is_colour.then(|| format!("\x1b[{params}m"))
        }
        // A title, a link, a palette: up to its end, if it has one.
        ']' | 'P' | 'X' | '^' | '_' => {
            chars.next();
            let mut rest = chars.clone();
            while let Some(c) = rest.next() {
                let is_end = c == '\x07' || c == '\u{9c}';
                if is_end || (c == '\x1b' && rest.next_if_eq(&'\\').is_some()) {
                    *chars = rest;
                    break;
                }
            }
            None
        }
        _ => {
            take_while(chars, |c| ('\x20'..='\x2f').contains(&c));
            chars.next_if(|c| ('\x30'..='\x7e').contains(c));
            None
        }
    }
}

fn take_while(chars: &mut Peekable<Chars<'_>>, is_part: impl Fn(char) -> bool) -> String {
    let mut taken = String::new();
    while let Some(c) = chars.next_if(|c| is_part(*c)) {
        taken.push(c);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_stay_and_nothing_else_reaches_the_terminal() {
        for (printed, shown) in [
            ("plain\ttext", "plain\ttext"),
            ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m\x1b[0m"),
            ("\x1b[38:5:4mblue", "\x1b[38:5:4mblue\x1b[0m"),
            ("\x1b[2J\x1b[Hgone?", "gone?"),
            ("\x1b[?1049hother screen", "other screen"),
            ("\x1b[>4;1mkeys", "keys"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1b]0;no end", "0;no end"),
            ("\x1bPq#0\x1b\\text", "text"),
            ("\x1bcreset\x1b(0lines", "resetlines"),
            ("\x1b[", ""),
            ("\x1b", ""),
            ("10%\r20%\r", "10% 20%"),
            ("bell\x07 back\x08", "bell\u{fffd} back\u{fffd}"),
            ("\u{9b}2J", "\u{fffd}2J"),
            ("a\u{202e}b", "a\u{fffd}b"),
        ] {
            assert_eq!(harmless(printed, true, true), shown, "{printed:?}");
        }
    }

    #[test]
    fn without_colour_the_words_stay() {
        assert_eq!(harmless("\x1b[31mred\x1b[m!", false, true), "red!");
        assert_eq!(harmless("bell\x07", false, false), "bell?");
    }
}
