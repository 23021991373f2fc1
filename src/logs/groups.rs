//! The sections of a log, as the programs that wrote it have marked them.

use std::io;
use std::ops::ControlFlow;

use super::Logs;
use super::headings::{Heading, Neighbours, Shape};
use super::heads::{Head, for_each_head};
use crate::domain::log::LogStream;
use crate::domain::{AttemptRef, JobId};

const GROUPS_MAX: usize = 1_000;

/// Lines that belong together. Groups follow each other; there is none within another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogGroup {
    /// In one line: no escapes, no control characters, of a long one the beginning.
    pub title: String,
    /// The line with the title.
    pub first_line: u64,
    pub last_line: u64,
    /// Whoever wrote it wants it to be shown open.
    pub is_open: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogGroups {
    pub groups: Vec<LogGroup>,
    pub total_lines: u64,
    /// There are more groups. Lines behind the last of these are in none.
    pub truncated: bool,
}

impl Logs {
    /// Reads the whole log.
    pub fn groups(&self, job_id: JobId, attempt: AttemptRef) -> io::Result<LogGroups> {
        let Some(log) = self.snapshot(job_id, attempt)? else {
            return Ok(LogGroups::default());
        };
        let total_lines = log.total_lines();
        let mut outline = Outline::default();
        for_each_head(log, |head| outline.take(head))?;
        // What a line is depends on the two behind it, and behind the last there are none.
        for n in [total_lines + 1, total_lines + 2] {
            if !outline.truncated {
                let _ = outline.next(n, Shape::Text);
            }
        }
        outline.end_group(total_lines);
        Ok(LogGroups {
            groups: outline.groups,
            total_lines,
            truncated: outline.truncated,
        })
    }
}

#[derive(Default)]
struct Outline {
    groups: Vec<LogGroup>,
    /// The last of `groups` goes on.
    within: Within,
    near: Neighbours,
    truncated: bool,
}

#[derive(Default, PartialEq)]
enum Within {
    #[default]
    Nothing,
    /// It says itself where it ends, so what looks like a heading in it is text.
    Group,
    Section,
}

impl Outline {
    fn take(&mut self, head: Head<'_>) -> ControlFlow<()> {
        let shape = match head.stream {
            // It writes no headings.
            LogStream::Worker => Shape::Text,
            stream => Shape::of(head.text, stream),
        };
        self.next(head.n, shape)
    }

    /// One line further. The line that is looked at is the second before it.
    fn next(&mut self, n: u64, shape: Shape) -> ControlFlow<()> {
        let near = &mut self.near;
        near.before = std::mem::take(&mut near.line);
        near.line = std::mem::take(&mut near.behind);
        near.behind = std::mem::replace(&mut near.second_behind, shape);
        match near.line {
            Shape::Text => ControlFlow::Continue(()),
            _ => match near.heading() {
                Some(heading) => self.heading(n - 2, heading),
                None => ControlFlow::Continue(()),
            },
        }
    }

    fn heading(&mut self, n: u64, heading: Heading) -> ControlFlow<()> {
        let is_text = self.within == Within::Group && matches!(heading, Heading::Section { .. });
        if is_text {
            return ControlFlow::Continue(());
        }
        match heading {
            Heading::Group(title) => self.begin_group(n, title, false, Within::Group),
            Heading::Section { title, is_open } => {
                self.begin_group(n, title, is_open, Within::Section)
            }
            Heading::EndGroup => {
                if self.within == Within::Group {
                    self.end_group(n);
                }
                ControlFlow::Continue(())
            }
            Heading::Open => {
                if self.within == Within::Section
                    && let Some(group) = self.groups.last_mut()
                {
                    group.is_open = true;
                }
                ControlFlow::Continue(())
            }
        }
    }

    fn begin_group(
        &mut self,
        n: u64,
        title: String,
        is_open: bool,
        within: Within,
    ) -> ControlFlow<()> {
        self.end_group(n - 1);
        if self.groups.len() == GROUPS_MAX {
            self.truncated = true;
            return ControlFlow::Break(());
        }
        self.within = within;
        self.groups.push(LogGroup {
            title,
            first_line: n,
            last_line: n,
            is_open,
        });
        ControlFlow::Continue(())
    }

    fn end_group(&mut self, last_line: u64) {
        if std::mem::take(&mut self.within) != Within::Nothing
            && let Some(group) = self.groups.last_mut()
        {
            group.last_line = last_line;
        }
    }
}
