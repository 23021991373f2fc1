//! What is said to whoever started the process. They may be gone, and their disk may be full: nothing ends because of that.

use std::fmt::Display;
use std::io::{ErrorKind, Result, Write};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::words::fit;
use crate::wire::api::List;

/// Nobody reads more of a sentence: what is longer has in it what somebody typed.
const LINE_COLUMNS_MAX: usize = 4_000;

/// One line on stderr.
pub fn say(line: impl Display) {
    // Nobody hears it; what it is about happens all the same.
    let _ = std::io::stderr().write_all(spoken(line).as_bytes());
}

/// A line as it is said.
pub fn spoken(line: impl Display) -> String {
    let text = format!("stepward: {line}");
    let lines = text.lines().map(|line| fit(line, LINE_COLUMNS_MAX, "..."));
    lines.map(|line| format!("{line}\n")).collect()
}

/// A line on stderr without our name in front: of what somebody reads as a whole, such as a banner.
pub fn tell(line: impl Display) {
    // As above.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Why not all that was asked for could be written. Nothing for those who have read enough.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// What was asked for, as it is, on stdout. `false`: nobody reads it any more, such as `head` that has had enough, or it cannot be
/// written; whoever goes on and on stops then.
pub fn print(text: &str) -> bool {
    print_bytes(text.as_bytes())
}

pub fn print_bytes(bytes: &[u8]) -> bool {
    let mut out = std::io::stdout().lock();
    is_written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// What came of writing to stdout: a fault is remembered until the end.
pub fn is_written(written: Result<()>) -> bool {
    let Err(error) = written else {
        return true;
    };
    if error.kind() != ErrorKind::BrokenPipe {
        UNWRITTEN.get_or_init(|| error.to_string());
    }
    false
}

/// What went wrong with our answer, in a sentence.
pub fn unwritten() -> Option<String> {
    let why = UNWRITTEN.get()?;
    Some(format!("the output cannot be written: {why}"))
}

/// Whoever read our answer has closed it: that is noticed though there is nothing to write.
pub fn nobody_reads() -> bool {
    let out = std::io::stdout();
    let mut watched = [PollFd::new(&out, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let is_asked = poll(&mut watched, Some(&at_once)).is_ok();
    let gone = PollFlags::ERR | PollFlags::HUP;
    is_asked && watched[0].revents().intersects(gone)
}

/// One line of what was asked for.
pub fn answer(line: impl Display) -> bool {
    print(&format!("{line}\n"))
}

/// Something for programs, as it will look for ever.
pub fn answer_json(value: &impl Serialize) -> bool {
    let json = serde_json::to_string_pretty(value).expect("what we show has a JSON form");
    answer(json)
}

/// All of many, as one page of the API's.
pub fn answer_json_list<T: Serialize>(items: Vec<T>) -> bool {
    answer_json(&List { items, next: None })
}

/// One of many, in a line of its own.
pub fn answer_json_line(value: &impl Serialize) -> bool {
    let json = serde_json::to_string(value).expect("what we show has a JSON form");
    answer(json)
}

/// An error and what caused it. Some name their cause in their own words already.
pub fn in_words(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        match text.as_str() {
            "" => text = cause,
            said if said.contains(&cause) => {}
            _ => text.push_str(&format!(": {cause}")),
        }
    }
    text
}
