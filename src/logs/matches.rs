//! From one place where a text occurs to the next or the one before, and which of how many it is.

use std::io;

use super::Logs;
use super::filter::{LogFilter, Sieve};
use super::search::Needle;
use super::sift::{Taker, sift};
use crate::domain::{AttemptRef, JobId};

/// A line that holds what is sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogMatch {
    pub line: u64,
    /// The first is 1.
    pub ordinal: u64,
    /// There was none on the way to the end of the log: this is the first from the other end.
    pub wrapped: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MatchFound {
    /// `None`: there is none at all.
    pub found: Option<LogMatch>,
    /// Lines of the whole log that pass and hold what is sought.
    pub total_matches: u64,
    pub total_lines: u64,
}

impl Logs {
    /// The nearest after this line, of the lines that pass the filter and hold the needle.
    pub fn match_after(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        needle: Needle<'_>,
        filter: &LogFilter<'_>,
        line: u64,
    ) -> io::Result<MatchFound> {
        let (around, total_lines) = self.around(job_id, attempt, needle, filter, line)?;
        Ok(MatchFound {
            found: around.after.or_else(|| wrapped(around.first)),
            total_matches: around.count,
            total_lines,
        })
    }

    /// The nearest before this line.
    pub fn match_before(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        needle: Needle<'_>,
        filter: &LogFilter<'_>,
        line: u64,
    ) -> io::Result<MatchFound> {
        let (around, total_lines) = self.around(job_id, attempt, needle, filter, line)?;
        Ok(MatchFound {
            found: around.before.or_else(|| wrapped(around.last)),
            total_matches: around.count,
            total_lines,
        })
    }

    fn around(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        needle: Needle<'_>,
        filter: &LogFilter<'_>,
        line: u64,
    ) -> io::Result<(Around, u64)> {
        let mut around = Around {
            line,
            ..Around::default()
        };
        let Some(log) = self.snapshot(job_id, attempt)? else {
            return Ok((around, 0));
        };
        let total_lines = log.total_lines();
        let sieve = Sieve::new(filter).with(needle);
        sift(log, 0, sieve, &mut around)?;
        Ok((around, total_lines))
    }
}

fn wrapped(found: Option<LogMatch>) -> Option<LogMatch> {
    found.map(|found| LogMatch {
        wrapped: true,
        ..found
    })
}

/// Of all matches, those that somebody at this line may go to next.
#[derive(Default)]
struct Around {
    line: u64,
    first: Option<LogMatch>,
    before: Option<LogMatch>,
    after: Option<LogMatch>,
    last: Option<LogMatch>,
    count: u64,
}

impl Taker for Around {
    fn end(&mut self, n: u64, passes: bool) {
        if !passes {
            return;
        }
        self.count += 1;
        let found = Some(LogMatch {
            line: n,
            ordinal: self.count,
            wrapped: false,
        });
        self.first = self.first.or(found);
        self.last = found;
        if n < self.line {
            self.before = found;
        } else if n > self.line {
            self.after = self.after.or(found);
        }
    }
}
