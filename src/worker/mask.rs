//! Hides secrets in what a step prints, before anything of it is written: as they are, in base64, in hexadecimal, URL-encoded,
//! escaped for JSON and HTML, and each line of a secret that has several.
//!
//! Not hidden, because it cannot be known: a secret that was reversed, encrypted, printed one character per line, or as hexadecimal
//! with blanks between the bytes. Values of fewer than six bytes are not hidden either: they would hide half of every log and protect
//! nothing. `docs/security.md` has the whole list.

use std::collections::{BTreeSet, HashMap};

/// Shorter values are not hidden.
pub use crate::domain::limits::SECRET_BYTES_MIN;

/// All forms of all secrets, once a step adds its own: it might do so without end.
const FORMS_BYTES_MAX: usize = 1 << 20;
/// What stands for a secret.
const HIDDEN: &[u8] = b"***";
/// Every form is longer, so this much of its beginning can be looked up.
const START_BYTES: usize = 4;
/// Where `base64` breaks its lines unless it is told otherwise.
const BASE64_LINE_BYTES: usize = 76;
/// Line length of `xxd -p` by default.
const HEX_LINE_BYTES: usize = 60;

/// Everything that must not be seen.
#[derive(Debug, Clone)]
pub struct Masks {
    /// Sorted, once each.
    forms: Vec<Vec<u8>>,
    /// The forms that begin so, the longest first.
    by_start: HashMap<[u8; START_BYTES], Vec<usize>>,
    /// Which first two bytes any form has: most of a text is dismissed by them.
    pairs: Box<[bool]>,
    longest: usize,
    /// How many were added one by one.
    added: usize,
}

/// Secrets that a step may name while it runs.
const ADDED_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    Hidden,
    TooShort,
    /// There are too many already.
    TooMany,
}

impl Default for Masks {
    fn default() -> Masks {
        Masks {
            forms: Vec::new(),
            by_start: HashMap::new(),
            pairs: vec![false; 1 << 16].into(),
            longest: 0,
            added: 0,
        }
    }
}

impl Masks {
    /// With how many of the values are too short to be hidden.
    pub fn new(secrets: &[String]) -> (Masks, usize) {
        let mut masks = Masks::default();
        let long_enough = |secret: &&String| is_long_enough(secret);
        let forms = secrets.iter().filter(long_enough).flat_map(|s| forms(s));
        masks.set(forms.collect());
        let shorter = secrets
            .iter()
            .filter(|s| !s.is_empty() && !is_long_enough(s));
        (masks, shorter.count())
    }

    pub fn add(&mut self, secret: &str) -> Added {
        if !is_long_enough(secret) {
            return Added::TooShort;
        }
        // Each one is looked for in every line, and adding it costs as much as all before it.
        if self.added == ADDED_MAX {
            return Added::TooMany;
        }
        self.added += 1;
        let mut all: BTreeSet<Vec<u8>> = self.forms.drain(..).collect();
        let before = all.clone();
        all.extend(forms(secret));
        let fits = all.iter().map(Vec::len).sum::<usize>() <= FORMS_BYTES_MAX;
        self.set(if fits { all } else { before });
        match fits {
            true => Added::Hidden,
            false => Added::TooMany,
        }
    }

    fn set(&mut self, forms: BTreeSet<Vec<u8>>) {
        self.forms = forms.into_iter().collect();
        self.longest = self.forms.iter().map(Vec::len).max().unwrap_or(0);
        self.by_start.clear();
        self.pairs.fill(false);
        for (index, form) in self.forms.iter().enumerate() {
            let start = *form.first_chunk().expect("a form is longer than its start");
            self.by_start.entry(start).or_default().push(index);
            self.pairs[pair(form)] = true;
        }
        for indexes in self.by_start.values_mut() {
            indexes.sort_by_key(|index| std::cmp::Reverse(self.forms[*index].len()));
        }
    }

    /// A whole text at once.
    pub fn hide(&self, text: &str) -> String {
        let mut hidden = Vec::new();
        for (at, line) in text.split('\n').enumerate() {
            if at > 0 {
                hidden.push(b'\n');
            }
            let mut masker = Masker::default();
            masker.push(self, line.as_bytes(), &mut hidden);
            masker.end_line(self, &mut hidden);
        }
        String::from_utf8_lossy(&hidden).into_owned()
    }

    /// The length of the longest form that the text begins with.
    fn longest_at(&self, text: &[u8]) -> Option<usize> {
        let candidates = self.by_start.get(text.first_chunk::<START_BYTES>()?)?;
        let mut forms = candidates.iter().map(|index| &self.forms[*index]);
        forms.find(|form| text.starts_with(form)).map(Vec::len)
    }

    /// Whether more text could make a form of it that is longer than the text.
    fn may_become_one(&self, text: &[u8]) -> bool {
        if text.len() >= self.longest {
            return false;
        }
        let from = self.forms.partition_point(|form| form.as_slice() < text);
        let mut following = self.forms[from..].iter().take(2);
        following.any(|form| form.len() > text.len() && form.starts_with(text))
    }

    /// How many bytes at the beginning of a text are certainly not the beginning of a form.
    fn dismissed(&self, text: &[u8]) -> usize {
        let pairs = text.windows(2);
        let first = pairs
            .into_iter()
            .position(|window| self.pairs[pair(window)]);
        // The last byte has no pair yet.
        first.unwrap_or(text.len().saturating_sub(1))
    }
}

/// Hides what must not be seen in one stream of text that comes in pieces of any size.
#[derive(Debug, Default)]
pub struct Masker {
    /// The end of what came, if it could be the beginning of a secret.
    held: Vec<u8>,
    /// How many bytes at the beginning of `held` belong to a secret that was already replaced.
    covered: usize,
}

impl Masker {
    /// Text without newlines. Whatever cannot be part of a secret comes out at once.
    pub fn push(&mut self, masks: &Masks, text: &[u8], out: &mut Vec<u8>) {
        if masks.longest == 0 && self.held.is_empty() {
            out.extend_from_slice(text);
        } else if self.held.is_empty() {
            let consumed = self.consume(masks, text, false, out);
            self.held = text[consumed..].to_vec();
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(text);
            let consumed = self.consume(masks, &held, false, out);
            held.drain(..consumed);
            self.held = held;
        }
    }

    /// Nothing more comes in this line: what was held back comes out.
    pub fn end_line(&mut self, masks: &Masks, out: &mut Vec<u8>) {
        let held = std::mem::take(&mut self.held);
        self.consume(masks, &held, true, out);
        self.covered = 0;
    }

    fn consume(&mut self, masks: &Masks, text: &[u8], ends: bool, out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while at < text.len() {
            if self.covered == 0 {
                let plain = masks.dismissed(&text[at..]);
                out.extend_from_slice(&text[at..at + plain]);
                at += plain;
            }
            let rest = &text[at..];
            if !ends && masks.may_become_one(rest) {
                break;
            }
            if let Some(length) = masks.longest_at(rest) {
                if self.covered == 0 {
                    out.extend_from_slice(HIDDEN);
                }
                // Secrets may overlap: the later one goes on hiding.
                self.covered = self.covered.max(length);
            }
            match self.covered {
                0 => out.push(rest[0]),
                _ => self.covered -= 1,
            }
            at += 1;
        }
        at
    }
}

fn is_long_enough(secret: &str) -> bool {
    secret.trim().len() >= SECRET_BYTES_MIN
}

fn pair(text: &[u8]) -> usize {
    usize::from(text[0]) << 8 | usize::from(text[1])
}

/// How a secret may be printed, line by line.
fn forms(secret: &str) -> BTreeSet<Vec<u8>> {
    let mut forms = BTreeSet::new();
    for secret in [secret, secret.trim()] {
        forms.extend(secret.lines().map(|line| line.as_bytes().to_vec()));
        forms.extend(secret.lines().map(|line| line.trim().as_bytes().to_vec()));
        forms.extend(base64_forms(secret.as_bytes()));
        forms.extend(hex_forms(secret.as_bytes()));
        forms.extend(url_forms(secret));
        forms.extend(json_forms(secret));
        forms.extend(html_forms(secret));
    }
    forms.retain(|form| form.len() >= SECRET_BYTES_MIN && !form.contains(&b'\n'));
    forms
}

/// What any text that holds the secret has in its base64, wherever in it the secret stands: the characters that are made of the
/// secret alone. And the lines that a long one is broken into.
fn base64_forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for alphabet in [b"+/", b"-_"] {
        for before in 0..3 {
            let mut text = vec![0; before];
            text.extend_from_slice(secret);
            let encoded = base64(&text, alphabet);
            let first = (before * 8).div_ceil(6);
            let end = text.len() * 8 / 6;
            forms.push(encoded[first..end].to_vec());
        }
        let whole = base64(secret, alphabet);
        // Its last character depends on what follows, such as the newline that `echo` adds.
        let certain = &whole[..secret.len() * 8 / 6];
        for text in [&whole[..], certain] {
            if whole.len() > BASE64_LINE_BYTES {
                forms.extend(text.chunks(BASE64_LINE_BYTES).map(<[u8]>::to_vec));
            }
        }
    }
    forms
}

/// Without padding.
fn base64(text: &[u8], last_two: &[u8; 2]) -> Vec<u8> {
    let letter = |six: u32| match six {
        0..26 => b'A' + six as u8,
        26..52 => b'a' + (six - 26) as u8,
        52..62 => b'0' + (six - 52) as u8,
        62 => last_two[0],
        _ => last_two[1],
    };
    let mut encoded = Vec::with_capacity(text.len().div_ceil(3) * 4);
    for three in text.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..=three.len() as u32 {
            encoded.push(letter(bits >> (18 - 6 * at) & 63));
        }
    }
    encoded
}

/// The hexadecimal forms of a secret: in lower and in upper case, whole and in the lines that a long one is broken into.
/// Every byte becomes two digits wherever it stands,
/// so the digits of the secret are the same in whatever text holds it.
fn hex_forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for digits in HEX_DIGITS {
        let mut form = Vec::with_capacity(secret.len() * 2);
        for byte in secret {
            form.extend_from_slice(&hex_of(*byte, digits));
        }
        if form.len() > HEX_LINE_BYTES {
            forms.extend(form.chunks(HEX_LINE_BYTES).map(<[u8]>::to_vec));
        }
        forms.push(form);
    }
    forms
}

const HEX_DIGITS: [&[u8; 16]; 2] = [b"0123456789ABCDEF", b"0123456789abcdef"];

fn hex_of(byte: u8, digits: &[u8; 16]) -> [u8; 2] {
    [
        digits[usize::from(byte >> 4)],
        digits[usize::from(byte & 15)],
    ]
}

/// As different languages do it: they disagree about a few characters and about the case of the digits.
fn url_forms(secret: &str) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for spared in ["-_.~", "-_.~/", "-_.!~*'()", "-_.*"] {
        for digits in HEX_DIGITS {
            for space in [&b"%20"[..], b"+"] {
                let mut form = Vec::new();
                for byte in secret.bytes() {
                    if byte == b' ' {
                        form.extend_from_slice(space);
                    } else if byte.is_ascii_alphanumeric() || spared.as_bytes().contains(&byte) {
                        form.push(byte);
                    } else {
                        form.push(b'%');
                        form.extend_from_slice(&hex_of(byte, digits));
                    }
                }
                forms.push(form);
            }
        }
    }
    forms
}

/// The forms of a secret inside a JSON text, without the quotes. Writers of JSON differ in four ways: characters other than ASCII may be
/// escaped, `<`, `>`, `&` and `'` may be escaped so that the text is safe in HTML, the digits of an escape have either case, and a
/// slash may have a backslash before it.
fn json_forms(secret: &str) -> Vec<Vec<u8>> {
    let quoted = serde_json::to_string(secret).expect("a text is JSON");
    let plain = &quoted[1..quoted.len() - 1];
    let mut forms = Vec::new();
    for escapes_html in ["", "<>&", "<>&'"] {
        for escapes_other_than_ascii in [false, true] {
            let lower = json_form(plain, escapes_html, escapes_other_than_ascii, false);
            let upper = json_form(plain, escapes_html, escapes_other_than_ascii, true);
            forms.extend([
                lower.replace('/', "\\/"),
                upper.replace('/', "\\/"),
                lower,
                upper,
            ]);
        }
    }
    forms.into_iter().map(String::into_bytes).collect()
}

/// Escapes more characters of a text that is escaped for JSON already.
fn json_form(
    escaped: &str,
    escapes_html: &str,
    escapes_other_than_ascii: bool,
    has_upper_digits: bool,
) -> String {
    let mut form = String::with_capacity(escaped.len());
    let mut units = [0; 2];
    // The four digits of an escape that the text has already.
    let mut digits_left = 0;
    let mut follows_backslash = false;
    for character in escaped.chars() {
        if digits_left > 0 {
            digits_left -= 1;
            form.push(if has_upper_digits {
                character.to_ascii_uppercase()
            } else {
                character
            });
        } else if escapes_html.contains(character)
            || (escapes_other_than_ascii && !character.is_ascii())
        {
            for unit in character.encode_utf16(&mut units) {
                match has_upper_digits {
                    true => form.push_str(&format!("\\u{unit:04X}")),
                    false => form.push_str(&format!("\\u{unit:04x}")),
                }
            }
        } else {
            if follows_backslash && character == 'u' {
                digits_left = 4;
            }
            form.push(character);
        }
        follows_backslash = character == '\\' && !follows_backslash;
    }
    form
}

/// The forms of a secret inside HTML or XML. Writers differ in how they escape quotes.
fn html_forms(secret: &str) -> Vec<Vec<u8>> {
    let base = secret
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let mut forms = Vec::new();
    for double in ["\"", "&quot;", "&#34;", "&#x22;"] {
        for single in ["'", "&#39;", "&#x27;", "&apos;"] {
            let form = base.replace('"', double).replace('\'', single);
            forms.push(form.into_bytes());
        }
    }
    forms
}
