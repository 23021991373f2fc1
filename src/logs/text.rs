//! The text of a log or of some of its lines, for a download: no times, no streams, a newline after each line.

use std::io::{self, Read};
use std::ops::Range;

use super::Logs;
use super::index::Mark;
use super::scan::{Scan, Snapshot};
use crate::domain::log::LogStream;
use crate::domain::{AttemptRef, JobId};

/// Reads the text of a log as it was when asked for. Holds a block of it at a time, however long its lines.
pub struct LogText {
    /// `None`: there is no log, or no more of it.
    scan: Option<Scan>,
    /// Numbers of the lines that were asked for and are there.
    lines: Range<u64>,
    /// Without what the worker itself said.
    only_printed: bool,
    /// The line that goes on is left out.
    is_left_out: bool,
    /// A line that is not left out has begun.
    is_begun: bool,
    text: Vec<u8>,
    /// Of `text`, what has been read.
    bytes_given: usize,
}

impl Logs {
    pub fn text(&self, job_id: JobId, attempt: AttemptRef) -> io::Result<LogText> {
        self.text_range(job_id, attempt, Mark::FIRST.line, usize::MAX)
    }

    /// Of `n` lines from this one on.
    pub fn text_range(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        from_line: u64,
        n: usize,
    ) -> io::Result<LogText> {
        let log = self.snapshot(job_id, attempt)?;
        let from_line = from_line.max(Mark::FIRST.line);
        Ok(LogText::new(log, from_line, n))
    }

    /// Of the last `n` lines.
    pub fn text_tail(&self, job_id: JobId, attempt: AttemptRef, n: usize) -> io::Result<LogText> {
        let log = self.snapshot(job_id, attempt)?;
        let total_lines = log.as_ref().map_or(0, Snapshot::total_lines);
        let from_line = total_lines.saturating_sub(n as u64) + 1;
        Ok(LogText::new(log, from_line, n))
    }
}

impl LogText {
    fn new(log: Option<Snapshot>, from_line: u64, n: usize) -> LogText {
        let total_lines = log.as_ref().map_or(0, Snapshot::total_lines);
        let end = from_line.saturating_add(n as u64).min(total_lines + 1);
        let lines = from_line..end;
        let log = log.filter(|_| !lines.is_empty());
        LogText {
            scan: log.map(|log| {
                let nearest = log.index.mark_before_line(from_line);
                log.scan(nearest)
            }),
            lines,
            only_printed: false,
            is_left_out: false,
            is_begun: false,
            text: Vec::new(),
            bytes_given: 0,
        }
    }

    pub fn only_printed(self) -> LogText {
        LogText {
            only_printed: true,
            ..self
        }
    }

    /// Puts the text of the next block in place of what has been read. It may have none.
    fn next_block(&mut self) -> io::Result<()> {
        self.text.clear();
        self.bytes_given = 0;
        let Some(scan) = &mut self.scan else {
            return Ok(());
        };
        let (text, lines) = (&mut self.text, &self.lines);
        let (only_printed, is_left_out) = (self.only_printed, &mut self.is_left_out);
        let is_begun = &mut self.is_begun;
        let mut behind = false;
        let more = scan.next_block(|piece| {
            behind |= piece.n >= lines.end;
            if !lines.contains(&piece.n) {
                return;
            }
            if let Some(begin) = &piece.begin {
                *is_left_out =
                    only_printed && begin.at.is_some() && begin.stream == LogStream::Worker;
            }
            if *is_left_out {
                return;
            }
            // A line has ended when the next begins: only then is it known that nothing more is joined to it.
            if piece.begin.is_some() && std::mem::replace(is_begun, true) {
                text.push(b'\n');
            }
            text.extend_from_slice(piece.text);
        })?;
        if behind || !more {
            if *is_begun {
                text.push(b'\n');
            }
            self.scan = None;
        }
        Ok(())
    }
}

impl Read for LogText {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.bytes_given == self.text.len() && self.scan.is_some() {
            self.next_block()?;
        }
        let bytes = (&self.text[self.bytes_given..]).read(buffer)?;
        self.bytes_given += bytes;
        Ok(bytes)
    }
}
