//! How durations, ages, sizes and texts of others are written.

use std::path::Path;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::domain::Timestamp;
use crate::domain::span::span;
use crate::wire::Time;

/// `0.4s`, `12s`, `2m 14s`, `3h 5m`, `2d 4h`.
pub fn duration(ms: i64) -> String {
    span(ms)
}

pub fn secs(secs: f64) -> String {
    duration((secs * 1_000.0) as i64)
}

/// The time for a calendar. A time that no calendar can print becomes the nearest one that it can: a clock that is set to the
/// year 20,000 must not make anybody panic.
pub fn calendar_time(at: Timestamp) -> jiff::Timestamp {
    let time = jiff::Timestamp::from_millisecond(at.printable().0);
    time.expect("every printable time is within the range of the library")
}

/// RFC 3339 in UTC, without fractions.
pub fn moment(at: Time) -> String {
    format!("{:.0}", calendar_time(at.0))
}

/// RFC 3339 in UTC, with milliseconds.
pub fn moment_ms(at: Time) -> String {
    rfc3339_ms(at.0)
}

/// RFC 3339 in UTC, with milliseconds.
pub fn rfc3339_ms(at: Timestamp) -> String {
    format!("{:.3}", calendar_time(at))
}

/// As the header `Date` of HTTP wants it: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn http_date(at: Timestamp) -> String {
    let date = calendar_time(at).strftime("%a, %d %b %Y %H:%M:%S GMT");
    date.to_string()
}

/// `23:04:05.123`, in UTC.
pub fn time_of_day(at: Time) -> String {
    let ms = at.0.0.rem_euclid(86_400_000);
    let (secs, ms) = (ms / 1_000, ms % 1_000);
    let (h, m, s) = (secs / 3_600, secs / 60 % 60, secs % 60);
    format!("{h:02}:{m:02}:{s:02}.{ms:03}")
}

pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1_024.0 && unit + 1 < UNITS.len() {
        size /= 1_024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if size < 10.0 => format!("{size:.1} {}", UNITS[unit]),
        _ => format!("{size:.0} {}", UNITS[unit]),
    }
}

/// `1 job`, `2 jobs`.
pub fn count(n: usize, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        _ => format!("{n} {noun}s"),
    }
}

/// Turns the direction of reading, so that what is read is not what is there.
pub fn turns_reading(c: char) -> bool {
    matches!(
        c,
        '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
    )
}

/// Returns whether a character has no width, so that two texts with and without it look the same. The two joiners are not among them:
/// some scripts and many emoji need them.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{00AD}' | '\u{180E}' | '\u{200B}' | '\u{2060}'..='\u{2064}' | '\u{FEFF}' | '\u{E0000}'..='\u{E007F}'
    )
}

/// Returns whether a character may not be shown: control characters, those that turn the direction of reading, and invisible ones.
fn is_unprintable(c: char) -> bool {
    c.is_control() || turns_reading(c) || is_invisible(c)
}

/// Returns whether a name with this character could be taken for another name.
pub fn is_deceitful(c: char) -> bool {
    is_unprintable(c) || matches!(c, '\u{200C}' | '\u{200D}')
}

/// Returns a text from elsewhere in one line. Control characters, characters that turn the direction of reading and invisible ones are
/// replaced.
pub fn printable(text: &str) -> String {
    let show = |c: char| match c {
        '\t' | '\n' | '\r' => ' ',
        c if is_unprintable(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(show).collect()
}

/// Returns a text from elsewhere with its line breaks and tabs. All other characters that may not be shown are replaced.
pub fn printable_lines(text: &str) -> String {
    let show = |c: char| match c {
        '\t' | '\n' => c,
        c if is_unprintable(c) => '\u{fffd}',
        c => c,
    };
    text.replace("\r\n", "\n").chars().map(show).collect()
}

/// A path in one line, without control characters.
pub fn shown_path(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// As somebody types it to a shell, to be copied from the terminal.
pub fn shell_word(word: &str) -> String {
    let word = printable(word);
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:@=,+%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The same of a path, which is no option either.
pub fn shell_path(path: &Path) -> String {
    let path = path.display().to_string();
    match path.starts_with('-') {
        true => shell_word(&format!("./{path}")),
        false => shell_word(&path),
    }
}

pub fn width(text: &str) -> usize {
    text.width()
}

/// As much of the beginning as fits.
pub fn fit(text: &str, columns: usize, ellipsis: &str) -> String {
    if text.width() <= columns {
        return text.to_string();
    }
    let room = columns.saturating_sub(ellipsis.width());
    let mut used = 0;
    let taken = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= room
    });
    let mut fitted: String = taken.collect();
    if columns >= ellipsis.width() {
        fitted.push_str(ellipsis);
    }
    fitted
}

/// In lines of so many columns, broken between words, and within one only if it is longer than a line.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= columns => {
                line.push(' ');
                line.push_str(word);
                continue;
            }
            _ => lines.push(String::new()),
        }
        for c in word.chars() {
            let line = lines.last_mut().expect("one was begun");
            match line.width() + c.width().unwrap_or(0) <= columns || line.is_empty() {
                true => line.push(c),
                false => lines.push(c.to_string()),
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_can_be_printed() {
        let last = Timestamp::LAST_PRINTABLE.0;
        for ms in [last, last + 1, 400_000_000_000_000, i64::MAX] {
            let at = Timestamp(ms);
            assert_eq!(rfc3339_ms(at), "9999-12-30T22:00:00.000Z");
            assert_eq!(moment(Time(at)), "9999-12-30T22:00:00Z");
            assert_eq!(http_date(at), "Thu, 30 Dec 9999 22:00:00 GMT");
            assert!(calendar_time(at).in_tz("Pacific/Kiritimati").is_ok());
        }
        let first = Timestamp::FIRST_PRINTABLE.0;
        for ms in [first, first - 1, i64::MIN] {
            let at = Timestamp(ms);
            assert_eq!(rfc3339_ms(at), "0001-01-01T00:00:00.000Z");
            assert!(calendar_time(at).in_tz("Pacific/Pago_Pago").is_ok());
        }
    }

    #[test]
    fn a_date_of_http_is_written_as_its_standard_has_it() {
        let known = Timestamp(784_111_777_000);
        assert_eq!(http_date(known), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let told: Vec<String> = [
            -5,
            0,
            449,
            9_999,
            10_000,
            59_999,
            60_000,
            134_000,
            3_600_000,
            11_100_000,
            187_200_000,
        ]
        .map(duration)
        .to_vec();
        assert_eq!(
            told,
            [
                "0.0s", "0.0s", "0.4s", "9.9s", "10s", "59s", "1m", "2m 14s", "1h", "3h 5m",
                "2d 4h"
            ]
        );
    }

    #[test]
    fn nothing_that_others_wrote_moves_the_cursor() {
        assert_eq!(
            printable("a\x1b[2Jb\nc\u{202e}d"),
            "a\u{fffd}[2Jb c\u{fffd}d"
        );
        assert_eq!(fit("日本語の名前", 7, "…"), "日本語…");
        assert_eq!(fit("short", 5, "…"), "short");
        assert_eq!(fit("longer", 5, "..."), "lo...");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(
            wrap("no worker offers gpu", 10),
            ["no worker", "offers gpu"]
        );
        assert_eq!(wrap("a long-one b", 4), ["a", "long", "-one", "b"]);
    }

    #[test]
    fn a_word_for_a_shell_stays_one_word() {
        for (word, typed) in [
            ("unit", "unit"),
            ("http://127.0.0.1:1", "http://127.0.0.1:1"),
            ("test[2]", "'test[2]'"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(word), typed);
        }
        assert_eq!(shell_path(Path::new("-rf")), "./-rf");
        assert_eq!(shell_path(Path::new("~x")), "'~x'");
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(bytes(50 << 20), "50 MiB");
    }
}
