//! Pages of a log: its end, or what follows a line.

use std::io;

use super::index::Mark;
use super::page::{BYTES_OF_ESCAPED, Gathered, Keep, LogPage, PageBuilder};
use super::scan::Snapshot;
use super::{LogLimits, Logs};
use crate::domain::{AttemptRef, JobId};

impl Logs {
    /// The last `n` lines. If they do not all fit, the last of them.
    pub fn tail(&self, job_id: JobId, attempt: AttemptRef, n: usize) -> io::Result<LogPage> {
        self.tail_of(job_id, attempt, n, self.inner.limits)
    }

    /// The same, and whatever is in these lines, they make no more of an answer than this.
    pub fn tail_within(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        n: usize,
        bytes_max: usize,
    ) -> io::Result<LogPage> {
        let limits = self.inner.limits;
        let limits = LogLimits {
            page_bytes_max: bytes_max.min(limits.page_bytes_max),
            // One long line leaves room for others.
            line_bytes_max: (bytes_max / 2 / BYTES_OF_ESCAPED).min(limits.line_bytes_max),
            ..limits
        };
        self.tail_of(job_id, attempt, n, limits)
    }

    fn tail_of(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        n: usize,
        limits: LogLimits,
    ) -> io::Result<LogPage> {
        let Some(log) = self.snapshot(job_id, attempt)? else {
            return Ok(LogPage::default());
        };
        let total_lines = log.total_lines();
        let lines_asked = total_lines.min(n as u64);
        let lines_max = lines_asked.min(limits.lines_max as u64);
        // Further back than this there is too much text after it for a line to be on the page.
        let reach = 2 * limits.page_bytes_max as u64;
        let whole_bytes = log.index.whole().bytes;
        let farthest = log
            .index
            .mark_before_offset(whole_bytes.saturating_sub(reach));
        let from_line = (total_lines - lines_max + 1).max(farthest.line);
        let gathered = Gathered::new(limits, n, Keep::Last);
        page(log, from_line, lines_asked, gathered)
    }

    /// `n` lines from this one on. If they do not all fit, the first of them.
    pub fn range(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        from_line: u64,
        n: usize,
    ) -> io::Result<LogPage> {
        let Some(log) = self.snapshot(job_id, attempt)? else {
            return Ok(LogPage::default());
        };
        let from_line = from_line.max(Mark::FIRST.line);
        let lines_there = (log.total_lines() + 1).saturating_sub(from_line);
        let gathered = Gathered::new(self.inner.limits, n, Keep::First);
        page(log, from_line, lines_there.min(n as u64), gathered)
    }
}

fn page(
    log: Snapshot,
    from_line: u64,
    lines_asked: u64,
    gathered: Gathered,
) -> io::Result<LogPage> {
    let total_lines = log.total_lines();
    let mut page = PageBuilder::new(from_line, gathered);
    let mut goes_on = false;
    if lines_asked > 0 {
        let nearest = log.index.mark_before_line(from_line);
        let mut scan = log.scan(nearest);
        while !page.is_full() && scan.next_block(|piece| page.take(piece))? {}
        goes_on = scan.goes_on();
    }
    let page = page.finish(lines_asked, total_lines);
    let is_end = page.lines.last().is_some_and(|last| last.n == total_lines);
    Ok(LogPage {
        partial: is_end && goes_on,
        ..page
    })
}
