//! What a line is, for bytes that come in pieces of any size. All who look at a log look through this.
//!
//! A record begins a line, unless the record right before it goes on and is of the same stream: then it is more of that
//! record's line. What is no record is a line of its own. Nothing is kept of a record but its first few bytes, so its length
//! costs no memory.

use memchr::memchr;

use super::index::Mark;
use crate::domain::Timestamp;
use crate::domain::log::{LogRecord, LogStream};

/// What comes before the text of a record is no longer than this: 19 digits, a space, a letter, a space.
const HEAD_BYTES_MAX: usize = 22;

/// Some of a line's text. A line comes in one piece or in many.
pub(super) struct Piece<'a> {
    /// Number of the line; the first is 1.
    pub n: u64,
    /// Only on the first piece of a line.
    pub begin: Option<Begin>,
    pub text: &'a [u8],
}

#[derive(Clone, Copy)]
pub(super) struct Begin {
    pub offset: u64,
    /// `None`: no worker of ours wrote this line.
    pub at: Option<Timestamp>,
    pub stream: LogStream,
}

/// What has been fed so far, up to the last newline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole {
    pub bytes: u64,
    pub lines: u64,
}

/// Follows the lines of a log, byte by byte, from a place where one begins.
#[derive(Clone)]
pub(super) struct Lines {
    offset: u64,
    record_offset: u64,
    /// The beginning of the record, while there is too little of it to know what it is.
    head: Vec<u8>,
    head_known: bool,
    /// The stream whose line goes on, should the next record be of it.
    continued: Option<LogStream>,
    n: u64,
    whole: Whole,
}

impl Lines {
    pub fn from(mark: Mark) -> Lines {
        Lines {
            offset: mark.offset,
            record_offset: mark.offset,
            head: Vec::new(),
            head_known: false,
            continued: None,
            n: mark.line - 1,
            whole: Whole {
                bytes: mark.offset,
                lines: mark.line - 1,
            },
        }
    }

    /// Where the next byte that is fed lies in the log.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// A record without its newline is not counted: it may be anything yet.
    pub fn whole(&self) -> Whole {
        self.whole
    }

    /// Whether more of the last line is to come.
    pub fn goes_on(&self) -> bool {
        self.continued.is_some()
    }

    pub fn feed(&mut self, mut bytes: &[u8], mut visit: impl FnMut(Piece<'_>)) {
        while !bytes.is_empty() {
            let newline = memchr(b'\n', bytes);
            let (part, rest) = bytes.split_at(newline.unwrap_or(bytes.len()));
            self.feed_record(part, newline.is_some(), &mut visit);
            self.offset += part.len() as u64;
            bytes = rest;
            if newline.is_some() {
                self.offset += 1;
                bytes = &rest[1..];
                self.end_record();
            }
        }
    }

    /// More of one record, without its newline. `ends`: there is no more of it.
    fn feed_record(&mut self, part: &[u8], ends: bool, visit: &mut impl FnMut(Piece<'_>)) {
        if self.head_known {
            return visit(self.piece(None, part));
        }
        // A record's head is nearly always in one piece with the rest of it; then nothing is copied.
        if self.head.is_empty() && (ends || part.len() >= HEAD_BYTES_MAX) {
            let head = &part[..part.len().min(HEAD_BYTES_MAX)];
            let (begin, head_bytes) = self.begin_record(head);
            return visit(self.piece(begin, &part[head_bytes..]));
        }
        let missing = HEAD_BYTES_MAX - self.head.len();
        let (more, text) = part.split_at(part.len().min(missing));
        self.head.extend_from_slice(more);
        if ends || self.head.len() == HEAD_BYTES_MAX {
            let head = std::mem::take(&mut self.head);
            let (begin, head_bytes) = self.begin_record(&head);
            visit(self.piece(begin, &head[head_bytes..]));
            if !text.is_empty() {
                visit(self.piece(None, text));
            }
        }
    }

    /// What begins with it, if it is not joined to the line before, and how many bytes come before its text.
    fn begin_record(&mut self, head: &[u8]) -> (Option<Begin>, usize) {
        self.head_known = true;
        let record = LogRecord::read(head);
        let joined = record.is_some_and(|record| self.continued == Some(record.stream));
        self.continued = record
            .filter(|record| record.continues)
            .map(|record| record.stream);
        let begin = (!joined).then(|| Begin {
            offset: self.record_offset,
            at: record.map(|record| record.at),
            stream: record.map_or(LogStream::Worker, |record| record.stream),
        });
        self.n += u64::from(begin.is_some());
        let head_bytes = record.map_or(0, |record| head.len() - record.text.len());
        (begin, head_bytes)
    }

    fn end_record(&mut self) {
        self.head_known = false;
        self.record_offset = self.offset;
        self.whole = Whole {
            bytes: self.offset,
            lines: self.n,
        };
    }

    fn piece<'a>(&self, begin: Option<Begin>, text: &'a [u8]) -> Piece<'a> {
        let n = self.n;
        Piece { n, begin, text }
    }
}
