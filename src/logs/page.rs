//! What is shown of a log at a time: some lines, never more than fit into one answer.

use std::collections::VecDeque;

use super::LogLimits;
use super::lines::{Begin, Piece};
use crate::domain::Timestamp;
use crate::domain::log::LogStream;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The first line is 1.
    pub n: u64,
    /// When the worker read its beginning, by the worker's clock. `None`: no worker of ours wrote this line.
    pub at: Option<Timestamp>,
    pub stream: LogStream,
    /// Any bytes but newlines. A line that is too long ends with how much of it is not shown.
    pub text: Vec<u8>,
}

/// Some lines of a log that follow each other. The last line of a log may still grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogPage {
    pub lines: Vec<LogLine>,
    pub total_lines: u64,
    /// The log has more of what was asked for: more lines, or more of one of these.
    pub truncated: bool,
    /// The last of these lines is the last of the log, and its end was not written yet.
    pub partial: bool,
}

/// One line in the making: its first part, and how much more there is.
pub(super) struct Draft {
    line: LogLine,
    bytes_more: u64,
}

impl Draft {
    pub fn new(n: u64, begin: Begin) -> Draft {
        Draft {
            line: LogLine {
                n,
                at: begin.at,
                stream: begin.stream,
                text: Vec::new(),
            },
            bytes_more: 0,
        }
    }

    /// Another line instead, in the same memory.
    pub fn begin_again(&mut self, n: u64, begin: Begin) {
        let mut text = std::mem::take(&mut self.line.text);
        text.clear();
        *self = Draft::new(n, begin);
        self.line.text = text;
    }

    pub fn add(&mut self, text: &[u8], line_bytes_max: usize) {
        let room = line_bytes_max.saturating_sub(self.line.text.len());
        let (shown, more) = text.split_at(text.len().min(room));
        self.line.text.extend_from_slice(shown);
        self.bytes_more += more.len() as u64;
    }

    fn finish(mut self) -> (LogLine, bool) {
        let shortened = self.bytes_more > 0;
        if shortened {
            let text = &mut self.line.text;
            let torn = bytes_of_torn_character(text);
            text.truncate(text.len() - torn);
            let bytes_more = self.bytes_more + torn as u64;
            text.extend_from_slice(format!(" … [{bytes_more} more bytes]").as_bytes());
        }
        (self.line, shortened)
    }
}

/// Bytes at the end that begin a UTF-8 character and do not finish it.
fn bytes_of_torn_character(text: &[u8]) -> usize {
    let last = &text[text.len().saturating_sub(3)..];
    let begun = last.iter().rev().position(|byte| *byte >= 0xC0);
    begun.map_or(0, |after| {
        let present = after + 1;
        let needed = match last[last.len() - present] {
            0xF0.. => 4,
            0xE0.. => 3,
            _ => 2,
        };
        if present < needed { present } else { 0 }
    })
}

/// What is said of a line beside its text.
const LINE_BYTES: usize = 80;

/// Roughly what a line makes of an answer. One of bytes that have to be escaped is several times as long there.
pub fn bytes_in_answer(text: &[u8]) -> usize {
    let of_high_byte = match std::str::from_utf8(text) {
        Ok(_) => 1,
        // Each that is no text is shown as a character that says so.
        Err(_) => 3,
    };
    let of_byte = |byte: &u8| match byte {
        b'"' | b'\\' | b'\t' | b'\r' => 2,
        0..0x20 => BYTES_OF_ESCAPED,
        0x80.. => of_high_byte,
        _ => 1,
    };
    LINE_BYTES + text.iter().map(of_byte).sum::<usize>()
}

/// The most that one byte can become: `\u0000`.
pub(super) const BYTES_OF_ESCAPED: usize = 6;

/// Which lines stay when not all fit.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Keep {
    First,
    Last,
}

/// Lines gathered for one answer.
pub(super) struct Gathered {
    limits: LogLimits,
    keep: Keep,
    lines_max: usize,
    lines: VecDeque<LogLine>,
    bytes: usize,
    full: bool,
    pub shortened: bool,
}

impl Gathered {
    pub fn new(limits: LogLimits, n: usize, keep: Keep) -> Gathered {
        let lines_max = n.min(limits.lines_max);
        Gathered {
            limits,
            keep,
            lines_max,
            lines: VecDeque::new(),
            bytes: 0,
            full: lines_max == 0,
            shortened: false,
        }
    }

    /// It takes no more lines.
    pub fn is_full(&self) -> bool {
        self.full
    }

    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn line_bytes_max(&self) -> usize {
        self.limits.line_bytes_max
    }

    /// Without room for it, there is none for any later one either.
    pub fn push(&mut self, draft: Draft) {
        let (line, shortened) = draft.finish();
        let bytes = self.bytes + bytes_in_answer(&line.text);
        if self.keep == Keep::First {
            let fits = self.lines.is_empty() || bytes <= self.limits.page_bytes_max;
            self.full = self.full || !fits;
            if self.full {
                return;
            }
        }
        self.lines.push_back(line);
        self.bytes = bytes;
        self.shortened |= shortened;
        match self.keep {
            Keep::First => self.full = self.lines.len() == self.lines_max,
            Keep::Last => self.forget_what_does_not_fit(),
        }
    }

    /// The last line always stays.
    fn forget_what_does_not_fit(&mut self) {
        while (self.lines.len() > self.lines_max
            || self.lines.len() > 1 && self.bytes > self.limits.page_bytes_max)
            && let Some(line) = self.lines.pop_front()
        {
            self.bytes -= bytes_in_answer(&line.text);
        }
    }

    pub fn into_lines(self) -> Vec<LogLine> {
        self.lines.into()
    }
}

/// Puts a page together from the pieces of a log, from one line on.
pub(super) struct PageBuilder {
    from_line: u64,
    gathered: Gathered,
    draft: Option<Draft>,
}

impl PageBuilder {
    pub fn new(from_line: u64, gathered: Gathered) -> PageBuilder {
        PageBuilder {
            from_line,
            gathered,
            draft: None,
        }
    }

    pub fn is_full(&self) -> bool {
        self.gathered.is_full()
    }

    pub fn take(&mut self, piece: Piece<'_>) {
        if let Some(begin) = piece.begin {
            self.end_line();
            if piece.n >= self.from_line && !self.is_full() {
                self.draft = Some(Draft::new(piece.n, begin));
            }
        }
        if let Some(draft) = &mut self.draft {
            draft.add(piece.text, self.gathered.line_bytes_max());
        }
    }

    /// `lines_asked`: as many as were asked for and are there.
    pub fn finish(mut self, lines_asked: u64, total_lines: u64) -> LogPage {
        self.end_line();
        let gathered = self.gathered;
        LogPage {
            truncated: gathered.shortened || (gathered.len() as u64) < lines_asked,
            lines: gathered.into_lines(),
            total_lines,
            partial: false,
        }
    }

    fn end_line(&mut self) {
        if let Some(draft) = self.draft.take() {
            self.gathered.push(draft);
        }
    }
}
