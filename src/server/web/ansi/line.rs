//! What of a line a terminal would show in the end, and in which style.

use std::ops::Range;

use super::style::Style;
use crate::logs::{Escapes, Part};

/// A line without its escapes.
#[derive(Default)]
pub(super) struct Line {
    /// All versions of it, one behind the other.
    pub text: Vec<u8>,
    /// Where another style begins.
    pub runs: Vec<Run>,
    /// The version that a terminal would show in the end.
    pub shown: Range<usize>,
    /// How many versions there were before it.
    pub earlier: usize,
}

pub(super) struct Run {
    pub at: usize,
    pub style: Style,
}

impl Line {
    pub fn read(bytes: &[u8]) -> Line {
        let mut line = Line {
            text: Vec::with_capacity(bytes.len()),
            ..Line::default()
        };
        let mut style = Style::default();
        let mut take = |part: Part<'_>| match part {
            Part::Text(text) => {
                let last = line.runs.last().map(|run| run.style);
                if last.unwrap_or_default() != style {
                    let at = line.text.len();
                    line.runs.push(Run { at, style });
                }
                line.text.extend_from_slice(text);
            }
            Part::Control { params, last: b'm' } => style.apply(params),
            // To the first column: another way to begin again.
            Part::Control {
                params: b"" | b"1",
                last: b'G',
            } => line.text.push(b'\r'),
            Part::Control { .. } => {}
        };
        let mut escapes = Escapes::default();
        escapes.feed(bytes, &mut take);
        escapes.end_line(&mut take);
        line.choose_version();
        line
    }

    /// The last that is not blank. Programs that draw their progress end by beginning again, or by wiping with spaces.
    fn choose_version(&mut self) {
        let mut start = 0;
        for version in self.text.split(|byte| *byte == b'\r') {
            let place = start..start + version.len();
            start = place.end + 1;
            let is_blank = |text: &[u8]| text.trim_ascii().is_empty();
            if !is_blank(version) {
                self.earlier += usize::from(!is_blank(&self.text[self.shown.clone()]));
                self.shown = place;
            } else if is_blank(&self.text[self.shown.clone()]) && !version.is_empty() {
                self.shown = place;
            }
        }
    }
}
