//! What is said to whoever started the process. They may be gone, and their disk may be full: nothing ends because of that.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

/// One line on stderr.
pub fn say(line: impl Display) {
    // Nobody hears it; what it is about happens all the same.
    let _ = std::io::stderr().write_all(format!("stepward: {line}\n").as_bytes());
}

/// What was asked for, as it is, on stdout. `false`: nobody reads it any more, such as `head` that has had enough; whoever goes on
/// and on stops then.
pub fn print(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_ok()
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

/// One of many, in a line of its own.
pub fn answer_json_line(value: &impl Serialize) -> bool {
    let json = serde_json::to_string(value).expect("what we show has a JSON form");
    answer(json)
}
