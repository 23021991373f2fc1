//! Which lines of a log are to be seen: of these streams, with this text, and not those that somebody has folded away.

use std::ops::RangeInclusive;

use super::escapes::{Escapes, Part};
use super::search::{Needle, Seeker};
use crate::domain::log::LogStream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    pub stdout: bool,
    pub stderr: bool,
    /// What the worker itself said, and what no worker wrote.
    pub worker: bool,
}

impl Streams {
    pub const ALL: Streams = Streams {
        stdout: true,
        stderr: true,
        worker: true,
    };

    pub fn contains(self, stream: LogStream) -> bool {
        match stream {
            LogStream::Stdout => self.stdout,
            LogStream::Stderr => self.stderr,
            LogStream::Worker => self.worker,
        }
    }
}

impl Default for Streams {
    fn default() -> Streams {
        Streams::ALL
    }
}

/// What passes. By default, everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogFilter<'a> {
    pub streams: Streams,
    /// Looked for in what is seen of a line: colours do not count, neither for it nor between its letters.
    pub needle: Option<Needle<'a>>,
    /// Numbers of lines that do not pass, in any order.
    pub left_out: &'a [RangeInclusive<u64>],
}

/// A filter at work: lines come in their order, each in pieces.
pub(super) struct Sieve {
    streams: Streams,
    /// In order, none of them empty.
    left_out: Vec<RangeInclusive<u64>>,
    /// Of `left_out`, those that have begun.
    begun: usize,
    /// Those that have begun end before this line.
    left_until: u64,
    /// All of them have to find something.
    seekers: Vec<Seeker>,
    escapes: Escapes,
    text: Vec<u8>,
    may_pass: bool,
}

impl Sieve {
    pub fn new(filter: &LogFilter<'_>) -> Sieve {
        let there = filter.left_out.iter().filter(|lines| !lines.is_empty());
        let mut left_out: Vec<_> = there.cloned().collect();
        left_out.sort_by_key(|lines| (*lines.start(), *lines.end()));
        let sieve = Sieve {
            streams: filter.streams,
            left_out,
            begun: 0,
            left_until: 0,
            seekers: Vec::new(),
            escapes: Escapes::default(),
            text: Vec::new(),
            may_pass: false,
        };
        match filter.needle {
            Some(needle) => sieve.with(needle),
            None => sieve,
        }
    }

    /// Only what holds this too.
    pub fn with(mut self, needle: Needle<'_>) -> Sieve {
        // An empty one is in every line.
        if !needle.bytes.is_empty() {
            self.seekers.push(Seeker::new(needle));
        }
        self
    }

    /// The first line from this one on that is not left out. Never asked of a line before the last.
    pub fn not_left_out(&mut self, line: u64) -> u64 {
        while let Some(lines) = self.left_out.get(self.begun)
            && *lines.start() <= line.max(self.left_until)
        {
            self.left_until = self.left_until.max(lines.end().saturating_add(1));
            self.begun += 1;
        }
        line.max(self.left_until)
    }

    /// `false`: whatever the line says, it does not pass, and need not be looked at.
    pub fn begin_line(&mut self, n: u64, stream: LogStream) -> bool {
        self.may_pass = self.streams.contains(stream) && self.not_left_out(n) == n;
        if self.may_pass {
            self.seekers.iter_mut().for_each(Seeker::begin_line);
        }
        self.may_pass
    }

    pub fn look_at(&mut self, text: &[u8]) {
        if !self.may_pass || self.seekers.is_empty() {
            return;
        }
        if self.escapes.none_in(text) {
            return self.seek(text);
        }
        let mut seen = std::mem::take(&mut self.text);
        self.escapes.feed(text, |part| keep_text(&mut seen, part));
        self.seek(&seen);
        seen.clear();
        self.text = seen;
    }

    /// Whether the line that has been looked at passes.
    pub fn end_line(&mut self) -> bool {
        if !std::mem::take(&mut self.may_pass) {
            return false;
        }
        let mut seen = std::mem::take(&mut self.text);
        self.escapes.end_line(|part| keep_text(&mut seen, part));
        if !seen.is_empty() {
            self.seek(&seen);
        }
        seen.clear();
        self.text = seen;
        self.seekers.iter().all(|seeker| seeker.found)
    }

    fn seek(&mut self, text: &[u8]) {
        for seeker in &mut self.seekers {
            seeker.look_at(text);
        }
    }
}

fn keep_text(seen: &mut Vec<u8>, part: Part<'_>) {
    if let Part::Text(text) = part {
        seen.extend_from_slice(text);
    }
}
