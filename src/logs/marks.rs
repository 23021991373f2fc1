//! Where the windows of a filtered view begin, so that a viewer can jump to any of them.

use std::io;

use super::Logs;
use super::filter::{LogFilter, Sieve};
use super::sift::{Taker, sift};
use crate::domain::{AttemptRef, JobId};

/// However long the log: what fits into one answer, and into a viewer.
const MARKS_MAX: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogMarks {
    /// Of the whole log, whether they pass or not.
    pub total_lines: u64,
    /// Lines that pass, from where it was to begin.
    pub matching: u64,
    /// As asked for, or a multiple of it if there would be too many marks.
    pub every: u64,
    /// Numbers of the first line that passes, and of each `every`-th after it.
    pub marks: Vec<u64>,
}

impl Logs {
    /// Reads all of the log from `from_line` on. To jump to the `k`-th window, have a view begin at `marks[k]`.
    pub fn marks(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        filter: &LogFilter<'_>,
        from_line: u64,
        every: u64,
    ) -> io::Result<LogMarks> {
        let mut marks = LogMarks {
            every: every.max(1),
            ..LogMarks::default()
        };
        if let Some(log) = self.snapshot(job_id, attempt)? {
            marks.total_lines = log.total_lines();
            sift(log, from_line, Sieve::new(filter), &mut marks)?;
        }
        Ok(marks)
    }
}

impl Taker for LogMarks {
    fn end(&mut self, n: u64, passes: bool) {
        if !passes {
            return;
        }
        if self.matching.is_multiple_of(self.every) {
            if self.marks.len() == MARKS_MAX {
                self.thin_out();
            }
            self.marks.push(n);
        }
        self.matching += 1;
    }
}

impl LogMarks {
    /// Every other one stays. There is an even number of them, so the next would have stayed too.
    fn thin_out(&mut self) {
        let mut place = 0;
        self.marks.retain(|_| {
            place += 1;
            place % 2 == 1
        });
        self.every *= 2;
    }
}
