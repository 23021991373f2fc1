//! What a terminal is told about how characters look, as classes.

use std::fmt::Write;

/// What a terminal was told about the characters that follow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Style {
    bold: bool,
    dim: bool,
    italic: bool,
    underlined: bool,
    inverse: bool,
    /// One of 16 colours.
    front: Option<u8>,
    back: Option<u8>,
}

impl Style {
    /// `1;31`, `38;5;208`, `38:2::255:0:0`. What we do not show, we do not know; nothing hides text.
    pub fn apply(&mut self, params: &[u8]) {
        let is_known = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b';' | b':');
        if !params.iter().all(is_known) {
            return;
        }
        let mut fields = params.split(|byte| *byte == b';');
        while let Some(field) = fields.next() {
            if field.contains(&b':') {
                let parts = field.split(|byte| *byte == b':').map(number);
                self.apply_parts(&parts.collect::<Vec<_>>());
                continue;
            }
            let mut next = || fields.next().map_or(0, number);
            match number(field) {
                code @ (38 | 48) => {
                    let colour = match next() {
                        5 => Some(of_256(next())),
                        2 => Some(nearest([next(), next(), next()])),
                        _ => None,
                    };
                    self.set_colour(code, colour);
                }
                code => self.apply_code(code),
            }
        }
    }

    fn apply_parts(&mut self, parts: &[u16]) {
        match *parts {
            [code @ (38 | 48), 5, n, ..] => self.set_colour(code, Some(of_256(n))),
            [code @ (38 | 48), 2, r, g, b] | [code @ (38 | 48), 2, _, r, g, b, ..] => {
                self.set_colour(code, Some(nearest([r, g, b])));
            }
            [4, kind, ..] => self.underlined = kind != 0,
            _ => {}
        }
    }

    fn set_colour(&mut self, code: u16, colour: Option<u8>) {
        match (code, colour) {
            (38, Some(_)) => self.front = colour,
            (48, Some(_)) => self.back = colour,
            _ => {}
        }
    }

    fn apply_code(&mut self, code: u16) {
        match code {
            0 => *self = Style::default(),
            1 => self.bold = true,
            2 => self.dim = true,
            3 => self.italic = true,
            4 | 21 => self.underlined = true,
            7 => self.inverse = true,
            22 => (self.bold, self.dim) = (false, false),
            23 => self.italic = false,
            24 => self.underlined = false,
            27 => self.inverse = false,
            30..=37 => self.front = Some((code - 30) as u8),
            39 => self.front = None,
            40..=47 => self.back = Some((code - 40) as u8),
            49 => self.back = None,
            90..=97 => self.front = Some((code - 90 + 8) as u8),
            100..=107 => self.back = Some((code - 100 + 8) as u8),
            _ => {}
        }
    }

    /// Each with a space behind it.
    pub fn push_classes(&self, out: &mut String) {
        let flags = [
            (self.bold, "a-b "),
            (self.dim, "a-d "),
            (self.italic, "a-i "),
            (self.underlined, "a-u "),
            (self.inverse, "a-v "),
        ];
        for (_, class) in flags.into_iter().filter(|(is_set, _)| *is_set) {
            out.push_str(class);
        }
        let (front, back) = match self.inverse {
            true => (self.back, self.front),
            false => (self.front, self.back),
        };
        for (letter, colour) in [('f', front), ('g', back)] {
            if let Some(colour) = colour {
                // A String takes everything.
                let _ = write!(out, "a-{letter}{colour} ");
            }
        }
    }
}

/// Too large a number is none that means anything.
fn number(digits: &[u8]) -> u16 {
    let add = |number: u16, digit: &u8| {
        let digit = u16::from(digit - b'0');
        number.saturating_mul(10).saturating_add(digit)
    };
    digits.iter().fold(0, add)
}

/// 16 colours, a cube of 6 × 6 × 6, and 24 greys.
fn of_256(n: u16) -> u8 {
    let level = |n: u16| if n == 0 { 0 } else { 55 + 40 * n };
    match n {
        0..=15 => n as u8,
        16..=231 => {
            let n = n - 16;
            nearest([level(n / 36), level(n / 6 % 6), level(n % 6)])
        }
        n => nearest([8 + 10 * n.saturating_sub(232).min(23); 3]),
    }
}

/// The one of 16 with the same hue. Both themes have these so that they can be read; what a program has chosen for the
/// background of its author, they cannot know.
fn nearest(rgb: [u16; 3]) -> u8 {
    let [r, g, b] = rgb.map(|value| value.min(255));
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most - least < 48 {
        return match most {
            0..64 => 0,
            64..160 => 8,
            160..232 => 7,
            _ => 15,
        };
    }
    let is_strong = |value: u16| u8::from(2 * value > most + least);
    let hue = is_strong(r) | is_strong(g) << 1 | is_strong(b) << 2;
    hue + if most >= 224 { 8 } else { 0 }
}
