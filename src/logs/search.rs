//! The lines of a log that contain given bytes. The whole log is read, and hardly any of it kept.

use std::borrow::Cow;
use std::io;
use std::ops::Range;

use memchr::memmem::{self, Finder};

use super::Logs;
use super::index::Mark;
use super::lines::Piece;
use super::page::{Draft, Gathered, Keep, LogLine};
use crate::domain::{AttemptRef, JobId};

/// What to look for, literally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needle<'a> {
    pub bytes: &'a [u8],
    /// Of the letters of ASCII: a log is bytes, and need not be text in any language.
    pub ignore_case: bool,
}

impl Needle<'_> {
    /// Where it is in this text, without overlaps, at most so many times. An empty one is nowhere.
    pub fn places(&self, text: &[u8], places_max: usize) -> Vec<Range<usize>> {
        if self.bytes.is_empty() {
            return Vec::new();
        }
        let (sought, text) = (self.folded(self.bytes), self.folded(text));
        let found = memmem::find_iter(&text, &sought).take(places_max);
        found.map(|at| at..at + sought.len()).collect()
    }

    fn folded<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match self.ignore_case {
            true => bytes.to_ascii_lowercase().into(),
            false => bytes.into(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogMatches {
    pub lines: Vec<LogLine>,
    /// Lines that match in the whole log, wherever the search was to begin.
    pub total_matches: u64,
    pub total_lines: u64,
    /// There is more from where the search was to begin: more lines that match, or more of one of these.
    pub truncated: bool,
}

impl Logs {
    /// The first `n` lines from `from_line` on that contain the needle, also where they are too long to be shown.
    pub fn search(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        needle: Needle<'_>,
        from_line: u64,
        n: usize,
    ) -> io::Result<LogMatches> {
        self.find(job_id, attempt, needle, from_line, n, Keep::First)
    }

    /// The last `n` lines that contain the needle.
    pub fn search_tail(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        needle: Needle<'_>,
        n: usize,
    ) -> io::Result<LogMatches> {
        let from_line = Mark::FIRST.line;
        self.find(job_id, attempt, needle, from_line, n, Keep::Last)
    }

    fn find(
        &self,
        job_id: JobId,
        attempt: AttemptRef,
        needle: Needle<'_>,
        from_line: u64,
        n: usize,
        keep: Keep,
    ) -> io::Result<LogMatches> {
        let Some(log) = self.snapshot(job_id, attempt)? else {
            return Ok(LogMatches::default());
        };
        let total_lines = log.total_lines();
        let mut search = Search {
            from_line,
            seeker: Seeker::new(needle),
            draft: None,
            line: 0,
            gathered: Gathered::new(self.inner.limits, n, keep),
            total_matches: 0,
            matches_asked: 0,
        };
        let mut scan = log.scan(Mark::FIRST);
        while scan.next_block(|piece| search.take(piece))? {}
        search.end_line();
        Ok(LogMatches {
            truncated: search.gathered.shortened
                || (search.gathered.len() as u64) < search.matches_asked,
            lines: search.gathered.into_lines(),
            total_matches: search.total_matches,
            total_lines,
        })
    }
}

struct Search {
    from_line: u64,
    seeker: Seeker,
    /// The line being looked at, if it would be shown.
    draft: Option<Draft>,
    line: u64,
    gathered: Gathered,
    total_matches: u64,
    /// From where the search was to begin.
    matches_asked: u64,
}

impl Search {
    fn take(&mut self, piece: Piece<'_>) {
        if let Some(begin) = piece.begin {
            self.end_line();
            self.line = piece.n;
            self.seeker.begin_line();
            if piece.n >= self.from_line && !self.gathered.is_full() {
                self.draft = Some(Draft::new(piece.n, begin));
            }
        }
        self.seeker.look_at(piece.text);
        if let Some(draft) = &mut self.draft {
            draft.add(piece.text, self.gathered.line_bytes_max());
        }
    }

    fn end_line(&mut self) {
        let draft = self.draft.take();
        if !self.seeker.found {
            return;
        }
        self.total_matches += 1;
        if self.line >= self.from_line {
            self.matches_asked += 1;
            if let Some(draft) = draft {
                self.gathered.push(draft);
            }
        }
    }
}

/// Looks for the needle in one line after the other, each in pieces.
pub(super) struct Seeker {
    finder: Finder<'static>,
    ignore_case: bool,
    pub found: bool,
    /// The end of the line so far: the needle may begin there and end in the next piece.
    before: Vec<u8>,
    lower: Vec<u8>,
}

impl Seeker {
    pub fn new(needle: Needle<'_>) -> Seeker {
        Seeker {
            finder: Finder::new(&needle.folded(needle.bytes)).into_owned(),
            ignore_case: needle.ignore_case,
            found: false,
            before: Vec::new(),
            lower: Vec::new(),
        }
    }

    pub fn begin_line(&mut self) {
        self.found = false;
        self.before.clear();
    }

    pub fn look_at(&mut self, text: &[u8]) {
        if self.found {
            return;
        }
        let mut lower = std::mem::take(&mut self.lower);
        let text = match self.ignore_case {
            true => {
                lower.clear();
                lower.extend_from_slice(text);
                lower.make_ascii_lowercase();
                &lower
            }
            false => text,
        };
        self.found = self.finder.find(text).is_some() || self.across(text);
        self.lower = lower;
    }

    /// Whether it begins before this piece and ends in it. Remembers what the next piece needs to know.
    fn across(&mut self, text: &[u8]) -> bool {
        let reach = self.finder.needle().len().saturating_sub(1);
        let had_before = !self.before.is_empty();
        let first = &text[..text.len().min(reach)];
        self.before.extend_from_slice(first);
        if had_before && self.finder.find(&self.before).is_some() {
            return true;
        }
        if text.len() > reach {
            self.before.clear();
            self.before.extend_from_slice(&text[text.len() - reach..]);
        } else {
            let too_much = self.before.len().saturating_sub(reach);
            self.before.drain(..too_much);
        }
        false
    }
}
