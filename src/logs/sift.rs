//! Reading a log through a filter: from one line on, past what is left out, until whoever reads has enough.

use std::io;

use super::filter::Sieve;
use super::index::Mark;
use super::lines::{Begin, Piece};
use super::scan::Snapshot;

/// Who reads what passes.
pub(super) trait Taker {
    /// A line begins that may pass.
    fn begin(&mut self, _n: u64, _begin: Begin) {}
    fn add(&mut self, _text: &[u8]) {}
    /// The line has ended, and passes or does not.
    fn end(&mut self, n: u64, passes: bool);
    fn has_enough(&self) -> bool {
        false
    }
}

/// Whether the last line that was read waits for the rest of it.
pub(super) fn sift(
    log: Snapshot,
    from_line: u64,
    mut sieve: Sieve,
    taker: &mut impl Taker,
) -> io::Result<bool> {
    let from_line = sieve.not_left_out(from_line.max(Mark::FIRST.line));
    if from_line > log.total_lines() {
        return Ok(false);
    }
    let nearest = log.index.mark_before_line(from_line);
    let mut scan = log.scan(nearest);
    let mut sifting = Sifting {
        from_line,
        sieve,
        taker,
        line: None,
        last: 0,
    };
    while !sifting.taker.has_enough() && scan.next_block(|piece| sifting.take(piece))? {
        // A folded group may be most of a log: nobody reads it.
        let next = sifting.sieve.not_left_out(sifting.last);
        if next > sifting.last {
            scan.skip_to(next);
        }
    }
    sifting.end_line();
    Ok(scan.goes_on())
}

struct Sifting<'a, T> {
    from_line: u64,
    sieve: Sieve,
    taker: &'a mut T,
    /// The line being read, if it may pass.
    line: Option<u64>,
    /// The last line of which anything was read.
    last: u64,
}

impl<T: Taker> Sifting<'_, T> {
    fn take(&mut self, piece: Piece<'_>) {
        if let Some(begin) = piece.begin {
            self.end_line();
            self.last = piece.n;
            let is_asked = piece.n >= self.from_line && !self.taker.has_enough();
            if is_asked && self.sieve.begin_line(piece.n, begin.stream) {
                self.line = Some(piece.n);
                self.taker.begin(piece.n, begin);
            }
        }
        if self.line.is_some() {
            self.sieve.look_at(piece.text);
            self.taker.add(piece.text);
        }
    }

    fn end_line(&mut self) {
        if let Some(n) = self.line.take() {
            let passes = self.sieve.end_line();
            self.taker.end(n, passes);
        }
    }
}
