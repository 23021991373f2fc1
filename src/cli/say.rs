//! What is said to whoever started the process. They may be gone, and their disk may be full: nothing ends because of that.

use std::fmt::Display;
use std::io::Write;

/// One line on stderr.
pub fn say(line: impl Display) {
    // Nobody hears it; what it is about happens all the same.
    let _ = std::io::stderr().write_all(format!("stepward: {line}\n").as_bytes());
}

/// One line of what was asked for, on stdout.
pub fn answer(line: impl Display) {
    // Whoever asked has read enough, such as `head`; the exit code still tells the rest.
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}
