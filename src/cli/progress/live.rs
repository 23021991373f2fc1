//! The few lines at the bottom of a terminal that are drawn again and again. What is above them stays as it is.

use std::io::Write;

use rustix::termios::tcgetwinsize;

use super::block::Line;
use crate::cli::look::{Look, LookArgs};

/// Where the terminal does not tell.
const WIDTH: usize = 80;
const HEIGHT: usize = 24;

pub struct Live {
    args: LookArgs,
    /// What is there now.
    drawn: Vec<String>,
    room: usize,
}

impl Live {
    pub fn new(args: LookArgs) -> Live {
        Live {
            args,
            drawn: Vec::new(),
            room: 0,
        }
    }

    pub fn look(&self) -> Look {
        self.args.stderr()
    }

    /// Columns of one line; the very last one stays free, since terminals do not agree on what happens there.
    pub fn room(look: &Look) -> usize {
        look.width.unwrap_or(WIDTH).saturating_sub(1).max(1)
    }

    /// Lines that the screen has.
    pub fn height() -> usize {
        let size = tcgetwinsize(std::io::stderr());
        let rows = size.map_or(0, |size| usize::from(size.ws_row));
        if rows == 0 { HEIGHT } else { rows }
    }

    pub fn draw(&mut self, lines: &[Line], look: &Look) {
        let room = Live::room(look);
        let texts: Vec<String> = lines.iter().map(|line| line.text(look, room)).collect();
        if texts == self.drawn && self.room == room {
            return;
        }
        let mut out = self.to_its_beginning();
        for text in &texts {
            out.push_str(text);
            // What was there before may have been longer.
            out.push_str("\x1b[K\r\n");
        }
        out.push_str("\x1b[J");
        put(&out);
        self.drawn = texts;
        self.room = room;
    }

    /// Something that stays, above the block.
    pub fn put_above(&mut self, text: &str) {
        let mut out = self.to_its_beginning();
        out.push_str("\x1b[J");
        out.push_str(text);
        out.push_str("\r\n");
        put(&out);
        self.drawn.clear();
    }

    /// What is there now stays; but for the `^C` that the terminal may have put below it.
    pub fn leave(&mut self) {
        put("\r\x1b[K");
        self.drawn.clear();
    }

    /// A terminal that became narrower may have broken our lines into several, or may not: what was never ours stays untouched
    /// in any case.
    fn to_its_beginning(&self) -> String {
        match self.drawn.len() {
            0 => "\r".to_string(),
            up => format!("\r\x1b[{up}A"),
        }
    }
}

fn put(text: &str) {
    // Nobody sees it; the job goes on.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
