//! One record of a step's log, as it is written by the worker, sent, and stored: `1763312345678 o text`, then a newline.
//!
//! The time is the worker's own, in milliseconds since 1970: for display, never compared. The letter is the stream; a capital
//! one means that the line goes on in the next record, if that is of the same stream. So a line of any length passes in pieces.

use super::{Timestamp, words};

words! {
    pub enum LogStream {
        Stdout = "stdout",
        Stderr = "stderr",
        /// What the worker itself has to say about the attempt.
        Worker = "worker",
    }
}

impl LogStream {
    fn letter(self) -> u8 {
        match self {
            LogStream::Stdout => b'o',
            LogStream::Stderr => b'e',
            LogStream::Worker => b'w',
        }
    }

    fn of_letter(letter: u8) -> Option<LogStream> {
        let known = |stream: &&LogStream| stream.letter() == letter.to_ascii_lowercase();
        LogStream::ALL.iter().find(known).copied()
    }
}

words! {
    /// What is wrong with the log of an attempt that has ended.
    pub enum LogFault {
        /// Bytes at its end have not come.
        Missing = "missing",
        /// The log is not the text that the worker wrote.
        Differs = "differs",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord<'a> {
    pub at: Timestamp,
    pub stream: LogStream,
    /// The line goes on in the next record, if that is of the same stream.
    pub continues: bool,
    /// Any bytes but newlines.
    pub text: &'a [u8],
}

impl LogRecord<'_> {
    /// Appends the record with its newline. A newline inside the text is written as a space.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.at.0.to_string().as_bytes());
        let letter = self.stream.letter();
        let letter = match self.continues {
            true => letter.to_ascii_uppercase(),
            false => letter,
        };
        out.extend_from_slice(&[b' ', letter, b' ']);
        let start = out.len();
        out.extend_from_slice(self.text);
        for byte in &mut out[start..] {
            if *byte == b'\n' {
                *byte = b' ';
            }
        }
        out.push(b'\n');
    }
}

impl<'a> LogRecord<'a> {
    /// Reads a record without its newline. `None`: no worker of ours wrote this.
    pub fn read(line: &'a [u8]) -> Option<LogRecord<'a>> {
        let (at, digits) = leading_number(line)?;
        let [b' ', letter, b' ', text @ ..] = &line[digits..] else {
            return None;
        };
        Some(LogRecord {
            at: Timestamp(at),
            stream: LogStream::of_letter(*letter)?,
            continues: letter.is_ascii_uppercase(),
            text,
        })
    }
}

/// The number and how many digits it has. By hand, since every line of every log passes here.
fn leading_number(line: &[u8]) -> Option<(i64, usize)> {
    let mut number: i64 = 0;
    let mut digits = 0;
    while let Some(byte) = line.get(digits).filter(|byte| byte.is_ascii_digit()) {
        number = number
            .checked_mul(10)?
            .checked_add(i64::from(byte - b'0'))?;
        digits += 1;
    }
    (digits > 0).then_some((number, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for stream in LogStream::ALL.iter().copied() {
            for continues in [false, true] {
                let record = LogRecord {
                    at: Timestamp(1_763_312_345_678),
                    stream,
                    continues,
                    text: b"\xff\0 b",
                };
                let mut bytes = Vec::new();
                record.write(&mut bytes);
                let (newline, line) = bytes.split_last().unwrap();
                assert_eq!(*newline, b'\n');
                assert_eq!(LogRecord::read(line), Some(record));
            }
        }
    }

    #[test]
    fn what_is_no_record_is_not_taken_for_one() {
        for line in [
            "",
            "x",
            "12",
            "12 o",
            "12 q text",
            " o text",
            "99999999999999999999 o x",
        ] {
            assert_eq!(LogRecord::read(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn a_text_cannot_forge_a_second_record() {
        let record = LogRecord {
            at: Timestamp(1),
            stream: LogStream::Stdout,
            continues: false,
            text: b"a\n2 w forged",
        };
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        assert_eq!(bytes, b"1 o a 2 w forged\n");
    }
}
