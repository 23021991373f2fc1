//! What is said to whoever started the process. They may be gone, and their disk may be full: nothing ends because of that.

use std::fmt::Display;
use std::io::Write;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::wire::api::List;

/// One line on stderr.
pub fn say(line: impl Display) {
    // Nobody hears it; what it is about happens all the same.
    let _ = std::io::stderr().write_all(format!("stepward: {line}\n").as_bytes());
}

/// A line on stderr without our name in front: of what somebody reads as a whole, such as a banner.
pub fn tell(line: impl Display) {
    // As above.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// What was asked for, as it is, on stdout. `false`: nobody reads it any more, such as `head` that has had enough; whoever goes on
/// and on stops then.
pub fn print(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_ok()
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
