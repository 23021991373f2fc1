//! Where some of a log's lines begin, near enough to each other that any line is near one of them.
//!
//! Marks are set by bytes, not by lines: whatever the lines are like, the way from a mark to a line is about as long as the
//! distance between marks, and the marks of the longest log fit into a few pages of memory.

use super::lines::{Lines, Whole};

/// From one mark at least this far to the next.
pub(super) const MARK_DISTANCE: u64 = 64 << 10;

/// Here begins this line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub offset: u64,
    pub line: u64,
}

impl Mark {
    /// Every log has this one; it is not kept.
    pub const FIRST: Mark = Mark { offset: 0, line: 1 };
}

#[derive(Clone)]
pub(super) struct Index {
    marks: Vec<Mark>,
    lines: Lines,
}

impl Index {
    /// What follows the last mark is still to be fed.
    pub fn from_marks(marks: Vec<Mark>) -> Index {
        let last = marks.last().copied().unwrap_or(Mark::FIRST);
        Index {
            marks,
            lines: Lines::from(last),
        }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        let marks = &mut self.marks;
        self.lines.feed(bytes, |piece| {
            let last = marks.last().copied().unwrap_or(Mark::FIRST);
            if let Some(begin) = piece.begin
                && begin.offset >= last.offset + MARK_DISTANCE
            {
                marks.push(Mark {
                    offset: begin.offset,
                    line: piece.n,
                });
            }
        });
    }

    /// How far into the log it has been fed.
    pub fn bytes(&self) -> u64 {
        self.lines.offset()
    }

    pub fn whole(&self) -> Whole {
        self.lines.whole()
    }

    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The last mark that does not lie behind the beginning of this line.
    pub fn mark_before_line(&self, line: u64) -> Mark {
        self.last_mark(|mark| mark.line <= line)
    }

    pub fn mark_before_offset(&self, offset: u64) -> Mark {
        self.last_mark(|mark| mark.offset <= offset)
    }

    fn last_mark(&self, not_behind: impl Fn(&Mark) -> bool) -> Mark {
        let count = self.marks.partition_point(not_behind);
        match count {
            0 => Mark::FIRST,
            count => self.marks[count - 1],
        }
    }
}
