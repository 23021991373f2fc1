//! A terminal that is none: what somebody at a keyboard would see.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const ROWS: u16 = 24;

/// The side that sees and types, and the path of the other.
pub fn open(columns: u16, rows: u16) -> (OwnedFd, String) {
    let seen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&seen).unwrap();
    unlockpt(&seen).unwrap();
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&seen, size).unwrap();
    let path = ptsname(&seen, Vec::new()).unwrap();
    (seen, path.into_string().unwrap())
}

/// One side of it, and the process at the other.
pub struct Terminal {
    pub child: Child,
    screen: File,
}

impl Terminal {
    /// Stdout and stderr are the terminal.
    pub fn start(mut command: Command, columns: u16) -> Terminal {
        let (screen, name) = open(columns, ROWS);
        let other = || -> OwnedFd {
            let flags = OFlags::RDWR | OFlags::NOCTTY;
            rustix::fs::open(&name, flags, Mode::empty()).unwrap()
        };
        command
            .env("TERM", "xterm")
            .stdout(Stdio::from(other()))
            .stderr(Stdio::from(other()));
        Terminal {
            child: command.spawn().unwrap(),
            screen: File::from(screen),
        }
    }

    /// Waits for some more to be shown.
    pub fn read(&mut self) -> String {
        let mut block = [0; 4096];
        // Its end is an error where the last process has closed the other side.
        let read = self.screen.read(&mut block).unwrap_or(0);
        String::from_utf8_lossy(&block[..read]).into_owned()
    }

    /// All that is shown, and how it ended.
    pub fn ends(mut self, mut shown: String) -> (Option<i32>, String) {
        loop {
            match self.read() {
                more if more.is_empty() => break,
                more => shown.push_str(&more),
            }
        }
        (self.child.wait().unwrap().code(), shown)
    }
}

/// What is shown on a terminal of so many columns.
pub fn shown(command: Command, columns: u16) -> (Option<i32>, String) {
    Terminal::start(command, columns).ends(String::new())
}

/// Without colours.
pub fn plain(shown: &str) -> String {
    let mut text = String::new();
    let mut chars = shown.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => while !chars.next().is_none_or(|c| c.is_ascii_alphabetic()) {},
            '\r' => {}
            c => text.push(c),
        }
    }
    text
}

/// Every line of the answer fits; what is said besides is a sentence.
pub fn fits(shown: &str, columns: usize) {
    let shown = plain(shown);
    let answer = shown.lines().filter(|line| !line.starts_with("stepward: "));
    for line in answer {
        assert!(line.chars().count() <= columns, "{columns}: {line:?}");
    }
}
