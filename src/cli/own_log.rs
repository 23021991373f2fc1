//! What a process that stays writes of itself to stderr: lines for people, for collectors, for the journal.
//!
//! A line is one line whatever is in it: what others named cannot begin a new one, nor turn it. Nobody waits for who reads it: if
//! they are gone, that is that; if they are slow, lines are left out and it is said how many.

use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use env_logger::fmt::Formatter;
use env_logger::{Target, WriteStyle};
use log::kv::{self, Key, Value, VisitSource};
use log::{Level, LevelFilter, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::say::{self, spoken};
use crate::clock::wall_time;
use crate::config::LogFormat;
use crate::domain::audit::HEAD_LOG_TARGET;
use crate::domain::limits::clip;
use crate::wire::Time;
use crate::words::{moment, rfc3339_ms, turns_reading};

/// As much as a pipe takes without waiting, once it takes anything.
const AT_ONCE_BYTES: usize = 4_096;

/// Whoever reads is given so much time for the first line that does not fit, and none for the next ones.
const PATIENCE_NS: i64 = 100_000_000;

/// Of a message, and of each value beside it.
const TEXT_BYTES_MAX: usize = 4_000;

/// How lines look in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    format: LogFormat,
    /// The journal knows the time, and wants to know how bad it is.
    to_journal: bool,
}

static SHAPE: OnceLock<Shape> = OnceLock::new();

/// `filter`: what is written, unless the environment says otherwise.
pub fn begin(format: LogFormat, filter: &str) {
    let to_journal = is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref());
    let shape = Shape { format, to_journal };
    // Somebody who runs two of them in one process has set it up already, here and below.
    let _ = SHAPE.set(shape);
    let said = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let filter = said("STEPWARD_LOG")
        .or(said("RUST_LOG"))
        .unwrap_or(filter.to_string());
    let is_coloured = shape.is_plain() && io::stderr().is_terminal() && said("NO_COLOR").is_none();
    let style = match is_coloured {
        true => WriteStyle::Always,
        false => WriteStyle::Never,
    };
    let mut builder = env_logger::Builder::new();
    builder.parse_filters(&filter);
    if filter != "off" {
        builder.filter_module(HEAD_LOG_TARGET, LevelFilter::Info);
    }
    let _ = builder
        .format(move |out, record| write_record(out, record, shape))
        .write_style(style)
        .target(Target::Pipe(Box::new(Stderr)))
        .try_init();
}

/// What the process says of itself: as every command does to whoever typed it, or as a line of the log where that is for programs.
pub fn say(line: impl Display) {
    match SHAPE.get() {
        Some(shape) if !shape.is_plain() => {
            let text = line.to_string();
            text.lines()
                .for_each(|line| log::info!(target: "stepward", "{line}"));
        }
        // Nobody hears it; what it is about happens all the same.
        _ => drop(Stderr.write_all(spoken(line).as_bytes())),
    }
}

/// The last line: why it ends. As everything before it, and as whatever went wrong where nothing was set up.
pub fn say_fault(line: impl Display) {
    match SHAPE.get() {
        Some(shape) if !shape.is_plain() && log::log_enabled!(target: "stepward", Level::Error) => {
            let text = line.to_string();
            text.lines()
                .for_each(|line| log::error!(target: "stepward", "{line}"));
        }
        _ => say::say(line),
    }
}

impl Shape {
    fn is_plain(self) -> bool {
        self.format == LogFormat::Text && !self.to_journal
    }
}

/// Whether stderr leads to where systemd says that its journal listens, and to nobody who came between.
fn is_journal(stream: Option<&str>) -> bool {
    let Some((device, inode)) = stream.and_then(|stream| stream.split_once(':')) else {
        return false;
    };
    let Ok(found) = std::fs::metadata("/proc/self/fd/2") else {
        return false;
    };
    (device.parse(), inode.parse()) == (Ok(found.dev()), Ok(found.ino()))
}

fn write_record(out: &mut Formatter, record: &Record, shape: Shape) -> io::Result<()> {
    if shape.to_journal {
        write!(out, "<{}>", priority(record.level()))?;
    }
    let message = record.args().to_string();
    let message = clip(&message, TEXT_BYTES_MAX);
    let target = record.target();
    match shape.format {
        LogFormat::Json => {
            let at = rfc3339_ms(wall_time());
            let level = record.level().as_str().to_lowercase();
            let (target, message) = (quoted(target), quoted(&message));
            let mut line = match shape.to_journal {
                true => String::from("{"),
                false => format!("{{\"at\":\"{at}\","),
            };
            // A String takes everything, here and below.
            let _ = write!(
                line,
                "\"level\":\"{level}\",\"target\":{target},\"message\":{message}"
            );
            let seen = record.key_values().visit(&mut AsJson(&mut line));
            seen.map_err(io::Error::other)?;
            writeln!(out, "{line}}}")
        }
        LogFormat::Text => {
            let mut line = in_one_line(&message);
            let seen = record.key_values().visit(&mut AsWords(&mut line));
            seen.map_err(io::Error::other)?;
            if shape.to_journal {
                return writeln!(out, "{target}: {line}");
            }
            let (at, level) = (moment(Time(wall_time())), record.level());
            let style = out.default_level_style(level);
            writeln!(out, "[{at} {style}{level:<5}{style:#} {target}] {line}")
        }
    }
}

/// As syslog counts.
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// What begins a line or turns its direction is shown, not done.
fn in_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter.is_control() || turns_reading(letter) {
            true => line.extend(letter.escape_default()),
            false => line.push(letter),
        }
    }
    line
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// ` job=7 task="a b"`
struct AsWords<'a>(&'a mut String);

impl<'kvs> VisitSource<'kvs> for AsWords<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        let text = value.to_string();
        let text = clip(&text, TEXT_BYTES_MAX);
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.:/@".contains(c);
        let _ = match !text.is_empty() && text.chars().all(is_word) {
            true => write!(self.0, " {key}={text}"),
            false => write!(self.0, " {key}={}", in_one_line(&quoted(&text))),
        };
        Ok(())
    }
}

/// `,"job":7,"task":"a b"`
struct AsJson<'a>(&'a mut String);

impl<'kvs> VisitSource<'kvs> for AsJson<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        let key = quoted(key.as_str());
        let _ = match value.to_i64() {
            Some(number) => write!(self.0, ",{key}:{number}"),
            None => {
                let text = value.to_string();
                let text = clip(&text, TEXT_BYTES_MAX);
                write!(self.0, ",{key}:{}", quoted(&text))
            }
        };
        Ok(())
    }
}

/// What became of the lines before.
struct Lines {
    /// Left out since the last one that got through.
    lost: u64,
    is_stalled: bool,
    /// One was cut off in its middle.
    is_torn: bool,
}

static LINES: Mutex<Lines> = Mutex::new(Lines {
    lost: 0,
    is_stalled: false,
    is_torn: false,
});

/// Where lines are written, each as a whole.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.put(rustix::stdio::stderr(), line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn put(&mut self, out: BorrowedFd, line: &[u8]) {
        if !self.put_what_was_missed(out) {
            self.lost += 1;
            return;
        }
        for (index, piece) in line.chunks(AT_ONCE_BYTES).enumerate() {
            if !self.put_bytes(out, piece) {
                self.is_torn = index > 0;
                self.lost += 1;
                return;
            }
        }
    }

    fn put_what_was_missed(&mut self, out: BorrowedFd) -> bool {
        if self.lost == 0 {
            return true;
        }
        let end = if self.is_torn { "\n" } else { "" };
        let lost = self.lost;
        let note = format!("{end}stepward: lines missing here, nobody read them in time: {lost}\n");
        let is_put = self.put_bytes(out, note.as_bytes());
        if is_put {
            (self.lost, self.is_torn) = (0, false);
        }
        is_put
    }

    /// `false`: they are not there, because whoever reads takes no more for now.
    fn put_bytes(&mut self, out: BorrowedFd, mut bytes: &[u8]) -> bool {
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: if self.is_stalled { 0 } else { PATIENCE_NS },
        };
        let mut watched = [PollFd::new(&out, PollFlags::OUT)];
        // A signal must not pass for room.
        let found = retry_on_intr(|| poll(&mut watched, Some(&patience)));
        self.is_stalled = !matches!(found, Ok(1..));
        if self.is_stalled {
            return false;
        }
        while !bytes.is_empty() {
            match retry_on_intr(|| rustix::io::write(out, bytes)) {
                Ok(written) => bytes = &bytes[written..],
                // Nobody hears it any more, or the disk is full: nothing to be done, and nobody to be told.
                Err(_) => break,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::*;

    #[test]
    fn what_others_named_stays_in_its_line() {
        let named = "x\n[2026-01-01T00:00:00Z ERROR stepward] forged\u{202e}\u{1b}[2J";
        let shown = "x\\n[2026-01-01T00:00:00Z ERROR stepward] forged\\u{202e}\\u{1b}[2J";
        assert_eq!(in_one_line(named), shown);
        let mut line = String::new();
        let pairs = [("task", named), ("job", "7"), ("none", "")];
        let seen = kv::Source::visit(&pairs[..], &mut AsWords(&mut line));
        assert!(seen.is_ok() && !line.contains('\n'), "{line}");
        assert!(line.ends_with(" job=7 none=\"\""), "{line}");
        let mut line = String::from("{\"a\":1");
        let seen = kv::Source::visit(&pairs[..], &mut AsJson(&mut line));
        assert!(seen.is_ok() && !line.contains('\n'), "{line}");
        let object: serde_json::Value = serde_json::from_str(&format!("{line}}}")).unwrap();
        assert_eq!(object["task"], named);
    }

    #[test]
    fn only_the_journal_is_taken_for_the_journal() {
        for other in ["", "1", "1:2", "x:y"] {
            assert!(!is_journal(Some(other)), "{other}");
        }
        assert!(!is_journal(None));
        let found = std::fs::metadata("/proc/self/fd/2").unwrap();
        assert!(is_journal(Some(&format!(
            "{}:{}",
            found.dev(),
            found.ino()
        ))));
    }

    /// Until not a byte more fits in. Returns how many did.
    fn fill(pipe: &mut io::PipeWriter) -> usize {
        let flags = fcntl_getfl(&pipe).unwrap();
        fcntl_setfl(&pipe, flags | OFlags::NONBLOCK).unwrap();
        let mut filled = 0;
        for piece in [AT_ONCE_BYTES, 1] {
            while let Ok(written) = pipe.write(&vec![b'.'; piece]) {
                filled += written;
            }
        }
        fcntl_setfl(&pipe, flags).unwrap();
        filled
    }

    #[test]
    fn lines_that_nobody_read_in_time_are_counted_and_the_next_ones_are_there() {
        let (mut said, mut out) = io::pipe().unwrap();
        let filled = fill(&mut out);
        let mut lines = Lines {
            lost: 0,
            is_stalled: false,
            is_torn: false,
        };
        for line in ["one\n", "two\n", "three\n"] {
            lines.put(out.as_fd(), line.as_bytes());
        }
        said.read_exact(&mut vec![0; filled]).unwrap();
        lines.put(out.as_fd(), b"four\n");
        lines.put(out.as_fd(), b"five\n");
        drop(out);
        let mut text = String::new();
        said.read_to_string(&mut text).unwrap();
        let missing = "stepward: lines missing here, nobody read them in time: 3\n";
        assert_eq!(text, format!("{missing}four\nfive\n"));
    }

    #[test]
    fn a_line_that_was_cut_off_is_ended_before_the_next_one() {
        let (mut said, mut out) = io::pipe().unwrap();
        let filled = fill(&mut out);
        let mut lines = Lines {
            lost: 0,
            is_stalled: false,
            is_torn: false,
        };
        // There is room for its first part.
        said.read_exact(&mut vec![0; AT_ONCE_BYTES]).unwrap();
        let long = "x".repeat(AT_ONCE_BYTES) + "rest\n";
        lines.put(out.as_fd(), long.as_bytes());
        said.read_exact(&mut vec![0; filled - AT_ONCE_BYTES])
            .unwrap();
        lines.put(out.as_fd(), b"next\n");
        drop(out);
        let mut text = String::new();
        said.read_to_string(&mut text).unwrap();
        let told: Vec<&str> = text
            .lines()
            .map(|line| line.trim_start_matches('x'))
            .collect();
        assert_eq!(
            told,
            [
                "",
                "stepward: lines missing here, nobody read them in time: 1",
                "next"
            ]
        );
    }
}
