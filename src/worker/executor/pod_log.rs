//! The log of a pod, each line once: a stream that breaks is taken up again where it was, by the time in front of each line.

use std::io::{self, BufRead, Write};

/// `2026-11-16T17:42:17.916057569Z` is 30 bytes, with a zone at most 35.
const STAMP_BYTES_MAX: usize = 40;

/// How far a log was passed on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PassedOn {
    last_stamp: Option<String>,
}

impl PassedOn {
    /// From when kubectl is asked to go on. It knows whole seconds only, so some lines come twice.
    pub(super) fn since(&self) -> Option<&str> {
        self.last_stamp.as_deref()
    }

    /// Passes the lines on without their stamps, and without those that were passed on before.
    pub(super) fn pass_on(
        &mut self,
        log: &mut impl BufRead,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let before = self.last_stamp.clone();
        loop {
            let head = read_head(log)?;
            if head.is_empty() {
                return Ok(());
            }
            let Some(stamp) = stamp_of(&head) else {
                // Words of kubectl's own.
                out.write_all(&head)?;
                if !head.ends_with(b"\n") {
                    copy_line(log, out)?;
                }
                continue;
            };
            if before
                .as_deref()
                .is_some_and(|before| order(before) >= order(stamp))
            {
                copy_line(log, &mut io::sink())?;
            } else {
                copy_line(log, out)?;
                self.last_stamp = Some(stamp.to_string());
            }
        }
    }
}

/// The first word of a line with the space after it, or as much as a stamp may have.
fn read_head(log: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while head.len() < STAMP_BYTES_MAX {
        let Some(&byte) = log.fill_buf()?.first() else {
            break;
        };
        log.consume(1);
        head.push(byte);
        if byte == b' ' || byte == b'\n' {
            break;
        }
    }
    Ok(head)
}

/// The rest of a line, in pieces: it may be of any length.
fn copy_line(log: &mut impl BufRead, out: &mut impl Write) -> io::Result<()> {
    loop {
        let piece = log.fill_buf()?;
        if piece.is_empty() {
            return Ok(());
        }
        let newline = memchr::memchr(b'\n', piece);
        let count = newline.map_or(piece.len(), |at| at + 1);
        out.write_all(&piece[..count])?;
        log.consume(count);
        if newline.is_some() {
            return Ok(());
        }
    }
}

fn stamp_of(head: &[u8]) -> Option<&str> {
    let stamp = std::str::from_utf8(head).ok()?.strip_suffix(' ')?;
    let shape = stamp
        .get(..19)?
        .bytes()
        .enumerate()
        .all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            10 => byte == b'T',
            13 | 16 => byte == b':',
            _ => byte.is_ascii_digit(),
        });
    shape.then_some(stamp)
}

/// Fractions come with and without zeros at their end; all stamps of one log are of one zone.
fn order(stamp: &str) -> (&str, String) {
    let (seconds, rest) = stamp.split_at(19);
    let digits = rest.trim_start_matches('.');
    let fraction: String = digits.chars().take_while(char::is_ascii_digit).collect();
    (seconds, format!("{fraction:0<9}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass_on(passed_on: &mut PassedOn, log: &str) -> String {
        let mut out = Vec::new();
        passed_on.pass_on(&mut log.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_stream_that_broke_goes_on_without_a_line_twice_or_lost() {
        let mut passed_on = PassedOn::default();
        let first =
            "2026-11-16T17:00:00.1Z a\n2026-11-16T17:00:00.12Z \n2026-11-16T17:00:01.5Z b c\n";
        assert_eq!(pass_on(&mut passed_on, first), "a\n\nb c\n");
        assert_eq!(passed_on.since(), Some("2026-11-16T17:00:01.5Z"));
        let again =
            "2026-11-16T17:00:01.5Z b c\n2026-11-16T17:00:01.500000001Z d\n2026-11-16T17:00:02Z e";
        assert_eq!(pass_on(&mut passed_on, again), "d\ne");
        assert_eq!(pass_on(&mut passed_on, again), "");
    }

    #[test]
    fn lines_of_one_moment_are_all_passed_on() {
        let mut passed_on = PassedOn::default();
        let log = "2026-11-16T17:00:00Z a\n2026-11-16T17:00:00Z b\n";
        assert_eq!(pass_on(&mut passed_on, log), "a\nb\n");
    }

    #[test]
    fn what_has_no_stamp_is_passed_on_as_it_is() {
        let text = "unable to retrieve container logs\n\nx\n2026-11-16 17:00:00 a\nno end";
        assert_eq!(pass_on(&mut PassedOn::default(), text), text);
        let long = format!("{}\n", "y".repeat(100_000));
        assert_eq!(pass_on(&mut PassedOn::default(), &long), long);
        let stamped = format!("2026-11-16T17:00:00Z {long}");
        assert_eq!(pass_on(&mut PassedOn::default(), &stamped), long);
    }
}
