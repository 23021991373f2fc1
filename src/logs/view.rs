//! What is seen of a log through a filter, some lines at a time.

use std::io;

use super::Logs;
use super::filter::{LogFilter, Sieve};
use super::index::Mark;
use super::lines::Begin;
use super::page::{Draft, Gathered, Keep, LogLine};
use super::sift::{Taker, sift};
use crate::domain::{AttemptRef, JobId};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogView {
    pub lines: Vec<LogLine>,
    /// Of the whole log, whether they pass or not.
    pub total_lines: u64,
    /// The next view begins here. Behind the end of the log: that was all of it. A last line that still grows is looked at
    /// again, since what comes may let it pass.
    pub next_line: u64,
    /// One of these lines is too long to be shown whole.
    pub shortened: bool,
    /// The last of these lines is the last of the log, and its end was not written yet.
    pub partial: bool,
}

impl Logs {
    /// The first `n` lines from `from_line` on that pass, or as many of them as fit into one answer.
    pub fn view(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        filter: &LogFilter<'_>,
        from_line: u64,
        n: usize,
    ) -> io::Result<LogView> {
        let from_line = from_line.max(Mark::FIRST.line);
        let Some(log) = self.snapshot(job_id, attempt)? else {
            return Ok(LogView {
                next_line: Mark::FIRST.line,
                ..LogView::default()
            });
        };
        let total_lines = log.total_lines();
        let mut page = Page {
            gathered: Gathered::new(self.inner.limits, n, Keep::First),
            draft: None,
        };
        let goes_on = sift(log, from_line, Sieve::new(filter), &mut page)?;
        let (is_full, shortened) = (page.gathered.is_full(), page.gathered.shortened);
        let lines = page.gathered.into_lines();
        let last = lines.last().map_or(from_line - 1, |last| last.n);
        let partial = goes_on && last == total_lines;
        Ok(LogView {
            next_line: match is_full {
                true if !partial => last + 1,
                true => last,
                false if goes_on => total_lines,
                false => from_line.max(total_lines + 1),
            },
            lines,
            total_lines,
            shortened,
            partial,
        })
    }
}

struct Page {
    gathered: Gathered,
    /// The line being read. One that does not pass leaves its memory to the next.
    draft: Option<Draft>,
}

impl Taker for Page {
    fn begin(&mut self, n: u64, begin: Begin) {
        match &mut self.draft {
            Some(draft) => draft.begin_again(n, begin),
            None => self.draft = Some(Draft::new(n, begin)),
        }
    }

    fn add(&mut self, text: &[u8]) {
        if let Some(draft) = &mut self.draft {
            draft.add(text, self.gathered.line_bytes_max());
        }
    }

    fn end(&mut self, _n: u64, passes: bool) {
        if passes && let Some(draft) = self.draft.take() {
            self.gathered.push(draft);
        }
    }

    fn has_enough(&self) -> bool {
        self.gathered.is_full()
    }
}
