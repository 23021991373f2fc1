//! The line at which somebody who looks at a failed step wants to begin.

use std::io;
use std::ops::ControlFlow;

use super::Logs;
use super::error_words::{Sureness, is_trace, names_error};
use super::heads::{Head, for_each_head};
use crate::domain::log::LogStream;
use crate::domain::{AttemptRef, JobId};

/// Why this line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorSign {
    /// It is marked as an error: `::error`.
    Marked,
    /// Its words say so.
    Named,
    /// Nothing else was found, and this went to stderr.
    Stderr,
    /// Nothing else was found, and the worker says so.
    Worker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstError {
    pub line: u64,
    pub sign: ErrorSign,
}

impl Logs {
    /// Reads the whole log, unless a line is marked. `None`: no line is more likely than any other.
    pub fn first_error(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
    ) -> io::Result<Option<FirstError>> {
        let Some(log) = self.snapshot(job_id, attempt)? else {
            return Ok(None);
        };
        let mut signs = Signs::default();
        for_each_head(log, |head| signs.take(&head))?;
        Ok(signs.first_error())
    }
}

/// Numbers of the first lines with each sign.
#[derive(Default)]
struct Signs {
    marked: Option<u64>,
    strong: Option<u64>,
    weak: Option<u64>,
    stderr: Option<u64>,
    /// The last of them: what a shell did when it ended.
    trace: Option<u64>,
    worker: Option<u64>,
}

impl Signs {
    fn take(&mut self, head: &Head<'_>) -> ControlFlow<()> {
        let n = head.n;
        if is_marked(head.text) && head.stream != LogStream::Worker {
            self.marked = Some(n);
            return ControlFlow::Break(());
        }
        if self.strong.is_some() {
            return ControlFlow::Continue(());
        }
        let named = names_error(head.text);
        match (head.stream, named) {
            // What it says of the end, everybody knows already. What it says of the beginning comes first anyway.
            (LogStream::Worker, Some(_)) => self.worker = self.worker.or(Some(n)),
            (LogStream::Worker, None) => {}
            (_, Some(Sureness::Strong)) => self.strong = Some(n),
            (_, Some(Sureness::Weak)) => self.weak = self.weak.or(Some(n)),
            (LogStream::Stderr, None) if is_trace(head.text) => self.trace = Some(n),
            (LogStream::Stderr, None) if !head.text.trim_ascii().is_empty() => {
                self.stderr = self.stderr.or(Some(n));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn first_error(&self) -> Option<FirstError> {
        let signs = [
            (self.marked, ErrorSign::Marked),
            (self.strong, ErrorSign::Named),
            (self.weak, ErrorSign::Named),
            (self.stderr, ErrorSign::Stderr),
            (self.trace, ErrorSign::Stderr),
            (self.worker, ErrorSign::Worker),
        ];
        let found = signs.into_iter();
        let mut found = found.filter_map(|(line, sign)| line.map(|line| FirstError { line, sign }));
        found.next()
    }
}

/// `::error::`, `::error file=…::`, and how Azure writes it.
fn is_marked(text: &[u8]) -> bool {
    let text = match text.first() {
        Some(b':' | b'#' | b' ' | b'\t') => text.trim_ascii_start(),
        _ => return false,
    };
    let is_command = |rest: &[u8]| rest.starts_with(b"::") || rest.starts_with(b" ");
    text.strip_prefix(b"::error").is_some_and(is_command) || text.starts_with(b"##[error]")
}
