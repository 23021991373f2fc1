//! Hides secrets in what a step prints, before anything of it is written: as they are, in base64, in hexadecimal, URL-encoded,
//! escaped for JSON and HTML, and each line of a secret that has several.
//!
//! Not hidden, because it cannot be known: a secret that was reversed, encrypted, printed one character per line, or as hexadecimal
//! with blanks between the bytes. Values of fewer than six bytes are not hidden either: they would hide half of every log and protect
//! nothing. `docs/security.md` has the whole list.

use std::collections::BTreeSet;

/// Shorter values are not hidden.
pub use crate::domain::limits::SECRET_BYTES_MIN;
use crate::domain::limits::can_be_masked;

/// All forms of the values that a step adds while it runs: it might add values without end. Forms of the secrets that it was given do
/// not count.
const ADDED_FORMS_BYTES_MAX: usize = 1 << 20;
/// Further secrets are hidden as they are, but not encoded: a secret JSON value may hold more than 100,000 texts.
const ENCODED_SECRETS_MAX: usize = 10_000;
/// Lines of one secret, and of all secrets, that are hidden encoded each by itself: a step may read a key or a password file line by
/// line. Further lines are hidden as they are, and in the encoded forms of the whole secret.
const ENCODED_LINES_MAX: usize = 200;
const ENCODED_LINES_OF_ALL_MAX: usize = 2_000;
/// What stands for a secret.
const HIDDEN: &[u8] = b"***";
/// Line lengths of `openssl base64` and of `base64` by default.
const BASE64_LINE_BYTES: [usize; 2] = [64, 76];
/// Line length of `xxd -p` by default.
const HEX_LINE_BYTES: usize = 60;

/// Everything that must not be seen.
#[derive(Debug, Clone)]
pub struct Masks {
    /// Sorted, once each.
    forms: Vec<Vec<u8>>,
    /// For each form the index of the longest other form that it begins with.
    shorter: Vec<Option<usize>>,
    /// Which first two bytes any form has: most of a text is dismissed by them.
    pairs: Box<[bool]>,
    longest: usize,
    /// How many were added one by one.
    added: usize,
    added_forms_bytes: usize,
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
            shorter: Vec::new(),
            pairs: vec![false; 1 << 16].into(),
            longest: 0,
            added: 0,
            added_forms_bytes: 0,
        }
    }
}

impl Masks {
    /// With how many of the values are too short to be hidden.
    pub fn new(secrets: &[String]) -> (Masks, usize) {
        let mut all: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut lines_left = ENCODED_LINES_OF_ALL_MAX;
        for (index, secret) in secrets.iter().enumerate() {
            if index < ENCODED_SECRETS_MAX {
                let lines = encoded_lines(secret, lines_left);
                lines_left -= lines.len();
                all.extend(forms(secret, &lines));
            } else {
                all.extend(plain_forms(secret));
            }
        }
        let mut masks = Masks::default();
        masks.set(all.into_iter().collect());
        let shorter = secrets
            .iter()
            .filter(|secret| !secret.is_empty() && !can_be_masked(secret));
        (masks, shorter.count())
    }

    pub fn add(&mut self, secret: &str) -> Added {
        // Each one is looked for in every line, and adding it costs as much as all before it.
        if self.added == ADDED_MAX {
            return Added::TooMany;
        }
        let mut new = forms(secret, &encoded_lines(secret, ENCODED_LINES_MAX));
        new.retain(|form| self.forms.binary_search(form).is_err());
        let bytes = self.added_forms_bytes + new.iter().map(Vec::len).sum::<usize>();
        if bytes > ADDED_FORMS_BYTES_MAX {
            return Added::TooMany;
        }
        if !new.is_empty() {
            self.added += 1;
            self.added_forms_bytes = bytes;
            let mut all = std::mem::take(&mut self.forms);
            all.extend(new);
            all.sort();
            self.set(all);
        }
        match can_be_masked(secret) {
            true => Added::Hidden,
            false => Added::TooShort,
        }
    }

    /// Takes forms that are sorted and different.
    fn set(&mut self, forms: Vec<Vec<u8>>) {
        self.longest = forms.iter().map(Vec::len).max().unwrap_or(0);
        self.shorter.clear();
        self.pairs.fill(false);
        // The forms that the current one begins with. Sorted forms that begin alike follow each other, the shortest first.
        let mut beginnings: Vec<usize> = Vec::new();
        for (index, form) in forms.iter().enumerate() {
            while let Some(&last) = beginnings.last()
                && !form.starts_with(&forms[last])
            {
                beginnings.pop();
            }
            self.shorter.push(beginnings.last().copied());
            beginnings.push(index);
            self.pairs[pair(form)] = true;
        }
        self.forms = forms;
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

    /// The length of the longest form that the text begins with. `position` is that of the text.
    fn longest_at(&self, text: &[u8], position: usize) -> Option<usize> {
        // Every form that the text begins with is also a beginning of the last form that is not sorted after the text.
        let last = match self.forms.get(position) {
            Some(form) if form == text => position,
            _ => position.checked_sub(1)?,
        };
        let pairs = self.forms[last].iter().zip(text);
        let common = pairs.take_while(|(form, text)| form == text).count();
        std::iter::successors(Some(last), |&form| self.shorter[form])
            .map(|form| self.forms[form].len())
            .find(|length| *length <= common)
    }

    /// Whether more text could make a form of it that is longer than the text. `position` is that of the text.
    fn may_become_one(&self, text: &[u8], position: usize) -> bool {
        let mut following = self.forms[position..].iter().take(2);
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
            let position = position(&masks.forms, rest);
            if !ends && masks.may_become_one(rest, position) {
                break;
            }
            if let Some(length) = masks.longest_at(rest, position) {
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

/// The index of the first of the sorted forms that is not sorted before the text.
fn position(forms: &[impl AsRef<[u8]>], text: &[u8]) -> usize {
    forms.partition_point(|form| form.as_ref() < text)
}

fn pair(text: &[u8]) -> usize {
    usize::from(text[0]) << 8 | usize::from(text[1])
}

/// The lines of a secret of several lines that are hidden in encoded forms as well, at most `max`.
fn encoded_lines(secret: &str, max: usize) -> Vec<&str> {
    let lines = secret.trim().lines().map(str::trim);
    let lines = lines.filter(|line| line.len() >= SECRET_BYTES_MIN && *line != secret.trim());
    lines.take(max.min(ENCODED_LINES_MAX)).collect()
}

/// How a secret may be printed, line by line.
fn forms(secret: &str, lines: &[&str]) -> BTreeSet<Vec<u8>> {
    let mut forms = plain_forms(secret);
    if is_too_short(secret) {
        return forms;
    }
    for text in [secret, secret.trim()].iter().chain(lines) {
        forms.extend(base64_forms(text.as_bytes()));
        forms.extend(hex_forms(text.as_bytes()));
        forms.extend(url_forms(text));
        forms.extend(json_forms(text));
        forms.extend(html_forms(text));
    }
    forms.retain(|form| form.len() >= SECRET_BYTES_MIN && !form.contains(&b'\n'));
    forms
}

/// The lines of a secret that are long enough, with and without the blanks around them.
fn plain_forms(secret: &str) -> BTreeSet<Vec<u8>> {
    if is_too_short(secret) {
        return BTreeSet::new();
    }
    let lines = secret.lines().chain(secret.trim().lines());
    let lines = lines.flat_map(|line| [line, line.trim()]);
    let long_enough = lines.filter(|line| line.len() >= SECRET_BYTES_MIN);
    long_enough.map(|line| line.as_bytes().to_vec()).collect()
}

fn is_too_short(secret: &str) -> bool {
    secret.trim().len() < SECRET_BYTES_MIN
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
        for line_bytes in BASE64_LINE_BYTES {
            if whole.len() > line_bytes {
                let lines = whole.chunks(line_bytes).chain(certain.chunks(line_bytes));
                forms.extend(lines.map(<[u8]>::to_vec));
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

/// What writers of URLs leave as it is, besides letters and digits.
const URL_SPARED: [&str; 8] = [
    // RFC 3986, `rawurlencode` of PHP, `url.QueryEscape` of Go, and the `quote` of Python, which spares the slash
    "-_.~",
    "-_.~/",
    // `encodeURIComponent` and `encodeURI` of JavaScript
    "-_.!~*'()",
    "-_.!~*'();,/?:@&=+$#",
    // Forms in browsers and `URLEncoder` of Java
    "-_.*",
    // `url.UserPassword` and `url.PathEscape` of Go
    "-_.~$&+,;=",
    "-_.~$&+=:@",
    // A segment of a path in RFC 3986
    "-_.~!$&'()*+,;=:@",
];

/// As different languages do it: they disagree about a few characters and about the case of the digits.
fn url_forms(secret: &str) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for spared in URL_SPARED {
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
/// escaped, `<`, `>`, `&`, `'` and `=` may be escaped so that the text is safe in HTML, the digits of an escape have either case, and a
/// slash may have a backslash before it.
fn json_forms(secret: &str) -> Vec<Vec<u8>> {
    let quoted = serde_json::to_string(secret).expect("a text is JSON");
    let plain = &quoted[1..quoted.len() - 1];
    let mut forms = Vec::new();
    for escapes_html in ["", "<>&", "<>&'", "<>&'="] {
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

/// Writers of HTML that escape more than `&`, `<`, `>` and quotes, with what they make of quotes and of the other characters.
const HTML_ESCAPES_MORE: [&[(char, &str)]; 6] = [
    // `html/template` of Go
    &[('"', "&#34;"), ('\'', "&#39;"), ('+', "&#43;")],
    // Mustache
    &[
        ('"', "&quot;"),
        ('\'', "&#39;"),
        ('/', "&#x2F;"),
        ('`', "&#x60;"),
        ('=', "&#x3D;"),
    ],
    // Handlebars
    &[
        ('"', "&quot;"),
        ('\'', "&#x27;"),
        ('`', "&#x60;"),
        ('=', "&#x3D;"),
    ],
    // Underscore
    &[('"', "&quot;"), ('\'', "&#x27;"), ('`', "&#x60;")],
    // OWASP's rules and Tera
    &[('"', "&quot;"), ('\'', "&#x27;"), ('/', "&#x2F;")],
    // MiniJinja
    &[('"', "&quot;"), ('\'', "&#x27;"), ('/', "&#x2f;")],
];

/// The forms of a secret inside HTML or XML. Writers differ in how they escape quotes, and some escape more characters.
fn html_forms(secret: &str) -> Vec<Vec<u8>> {
    let base = secret
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let mut forms = Vec::new();
    for double in ["\"", "&quot;", "&#34;", "&#x22;"] {
        for single in ["'", "&#39;", "&#x27;", "&apos;", "&#039;"] {
            let form = base.replace('"', double).replace('\'', single);
            forms.push(form.into_bytes());
        }
    }
    for escapes in HTML_ESCAPES_MORE {
        let mut form = String::with_capacity(base.len());
        for character in base.chars() {
            match escapes.iter().find(|(escaped, _)| *escaped == character) {
                Some((_, escape)) => form.push_str(escape),
                None => form.push(character),
            }
        }
        forms.push(form.into_bytes());
    }
    forms
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A form that counts how often it is compared.
    struct Counted<'a>(&'a [u8], &'a Cell<u32>);

    impl AsRef<[u8]> for Counted<'_> {
        fn as_ref(&self) -> &[u8] {
            self.1.set(self.1.get() + 1);
            self.0
        }
    }

    #[test]
    fn many_secrets_that_begin_alike_cost_few_comparisons() {
        let secrets: Vec<String> = (0..8_000).map(|n| format!("token-{n:06}")).collect();
        let (masks, _) = Masks::new(&secrets);
        let line = "a token-999999 and token-00799 are none, token-007999 is one, token-";
        assert_eq!(masks.hide(line), line.replace("token-007999", "***"));
        let compared = Cell::new(0);
        let forms = masks.forms.iter().map(|form| Counted(form, &compared));
        let forms: Vec<Counted> = forms.collect();
        let found = position(&forms, b"token-007999 is one");
        assert_eq!(forms[found - 1].0, b"token-007999");
        assert!(
            compared.get() <= masks.forms.len().ilog2() + 2,
            "{compared:?}"
        );
        // Besides these comparisons only forms that one form begins with are looked at.
        assert!(masks.shorter.iter().all(Option::is_none));
    }

    #[test]
    fn the_longest_form_is_found_among_those_that_begin_alike() {
        let forms = ["abcdef", "abcdefgh", "abcdefghij", "abcdefgz", "abcdeg"];
        let mut masks = Masks::default();
        masks.set(forms.map(|form| form.as_bytes().to_vec()).to_vec());
        assert_eq!(masks.shorter, [None, Some(0), Some(1), Some(0), None]);
        for (text, length) in [
            ("abcdef", Some(6)),
            ("abcdefg", Some(6)),
            ("abcdefgh", Some(8)),
            ("abcdefghi", Some(8)),
            ("abcdefghiz", Some(8)),
            ("abcdefghij!", Some(10)),
            ("abcdefgx", Some(6)),
            ("abcdefgz", Some(8)),
            ("abcdefz", Some(6)),
            ("abcdez", None),
            ("abc", None),
            ("zzz", None),
            ("", None),
        ] {
            let position = position(&masks.forms, text.as_bytes());
            assert_eq!(
                masks.longest_at(text.as_bytes(), position),
                length,
                "{text}"
            );
        }
    }

    #[test]
    fn after_many_secrets_the_rest_is_hidden_as_it_is() {
        let secrets: Vec<String> = (0..=ENCODED_SECRETS_MAX)
            .map(|n| format!("secret-{n:06}"))
            .collect();
        let (masks, _) = Masks::new(&secrets);
        let (first, last) = (&secrets[0], &secrets[ENCODED_SECRETS_MAX]);
        let hex =
            |text: &str| -> String { text.bytes().map(|byte| format!("{byte:02x}")).collect() };
        assert_eq!(masks.hide(&format!("{first} {last}")), "*** ***");
        assert_eq!(masks.hide(&hex(first)), "***");
        assert_eq!(masks.hide(&hex(last)), hex(last));
    }
}
