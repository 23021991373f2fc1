//! The text of a whole log, for a download: no times, no streams, a newline after each line.

use std::io::{self, Read};

use super::Logs;
use super::index::Mark;
use super::scan::Scan;
use crate::domain::{AttemptRef, JobId};

/// Reads the text of a log as it was when asked for. Holds a block of it at a time, however long its lines.
pub struct LogText {
    /// `None`: there is no log, or no more of it.
    scan: Option<Scan>,
    text: Vec<u8>,
    /// Of `text`, what has been read.
    bytes_given: usize,
}

impl Logs {
    pub fn text(&self, job_id: JobId, attempt: AttemptRef) -> io::Result<LogText> {
        let log = self.snapshot(job_id, attempt)?;
        Ok(LogText {
            scan: log.map(|log| log.scan(Mark::FIRST)),
            text: Vec::new(),
            bytes_given: 0,
        })
    }
}

impl LogText {
    /// Puts the text of the next block in place of what has been read. It may have none.
    fn next_block(&mut self) -> io::Result<()> {
        self.text.clear();
        self.bytes_given = 0;
        let Some(scan) = &mut self.scan else {
            return Ok(());
        };
        let text = &mut self.text;
        let more = scan.next_block(|piece| {
            // A line has ended when the next begins: only then is it known that nothing more is joined to it.
            if piece.begin.is_some() && piece.n > Mark::FIRST.line {
                text.push(b'\n');
            }
            text.extend_from_slice(piece.text);
        })?;
        if !more {
            if scan.total_lines() > 0 {
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
