//! A terminal: what a program draws on it, and what somebody types.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::termios::{Winsize, tcsetwinsize};

use crate::house::{BINARY, await_that};
use crate::pseudo_terminal;

const ROWS: u16 = 30;
const SCROLLBACK: usize = 200;

pub struct Terminal {
    child: Child,
    keyboard: File,
    seen: Arc<Mutex<Seen>>,
}

struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
    /// A line that did not fit, if there ever was one.
    wrapped: Option<String>,
}

impl Terminal {
    /// A shell that says something, and then is `stepward` with these words. Its Ctrl-C is that of the terminal.
    pub fn run(
        folder: &Path,
        columns: u16,
        variables: &[(&str, &str)],
        words: &[&str],
    ) -> Terminal {
        let (master, name) = pseudo_terminal::open(columns, ROWS);
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .open(name)
            .unwrap();
        let says = "echo one before; echo another before; exec \"$@\"";
        let child = Command::new("setsid")
            .args(["--ctty", "sh", "-c", says, "sh", BINARY])
            .args(words)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm")
            .envs(variables.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        let seen = Arc::new(Mutex::new(Seen {
            parser: vt100::Parser::new(ROWS, columns, SCROLLBACK),
            bytes: Vec::new(),
            wrapped: None,
        }));
        let keyboard = File::from(master.try_clone().unwrap());
        let screen = seen.clone();
        std::thread::spawn(move || look(master, &screen));
        Terminal {
            child,
            keyboard,
            seen,
        }
    }

    pub fn screen(&self) -> String {
        self.seen.lock().unwrap().parser.screen().contents()
    }

    /// Everything that was written to it, escapes and all.
    pub fn written(&self) -> String {
        let seen = self.seen.lock().unwrap();
        String::from_utf8_lossy(&seen.bytes).into_owned()
    }

    pub fn await_text(&self, text: &str) {
        let what = format!("{text:?} on the screen");
        let begun = std::time::Instant::now();
        await_that(&what, || {
            let screen = self.screen();
            assert!(begun.elapsed().as_secs() < 55, "{what}:\n{screen}");
            screen.contains(text).then_some(())
        });
    }

    pub fn press_ctrl_c(&mut self) {
        self.keyboard.write_all(b"\x03").unwrap();
    }

    /// Somebody makes the window narrower or wider.
    pub fn resize(&self, columns: u16) {
        let mut seen = self.seen.lock().unwrap();
        seen.parser.screen_mut().set_size(ROWS, columns);
        let size = Winsize {
            ws_row: ROWS,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.keyboard, size).unwrap();
    }

    /// Waits for its end: the exit code, and the screen that is left.
    pub fn end(&mut self) -> (Option<i32>, String) {
        let status = await_that("the program ends", || self.child.try_wait().unwrap());
        // The last of what it wrote may still be on its way.
        let mut last = String::new();
        let screen = await_that("the screen stands still", || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let screen = self.screen();
            let still = screen == last;
            last = screen;
            still.then(|| last.clone())
        });
        (status.code(), screen)
    }

    pub fn wrapped(&self) -> Option<String> {
        self.seen.lock().unwrap().wrapped.clone()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn look(master: OwnedFd, seen: &Mutex<Seen>) {
    let mut master = File::from(master);
    let mut bytes = [0; 4096];
    // An error is the end: nobody has the other side open any more.
    while let Ok(count @ 1..) = master.read(&mut bytes) {
        let mut seen = seen.lock().unwrap();
        seen.bytes.extend(&bytes[..count]);
        seen.parser.process(&bytes[..count]);
        let screen = seen.parser.screen();
        let wrapped = (0..ROWS).find(|row| screen.row_wrapped(*row));
        if wrapped.is_some() && seen.wrapped.is_none() {
            seen.wrapped = Some(screen.contents());
        }
    }
}
