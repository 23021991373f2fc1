//! What steps print, kept and shown: real files in a temporary folder.

mod append;
mod cost;
mod first_error;
mod groups;
mod index;
mod matches;
mod mend;
mod plain;
mod read;
mod search;
mod sync;
mod view;

use std::io::Read;
use std::path::{Path, PathBuf};

use stepward::domain::{AttemptRef, JobId, StepId};
use stepward::logs::{AppendError, LogLimits, LogLine, LogPage, Logs};
use tempfile::TempDir;

use plain::{lines_of, record};

const JOB: JobId = JobId(7);

const BUILD: AttemptRef = AttemptRef {
    step_id: StepId(42),
    attempt: 1,
};

/// A folder of logs, and the log of one attempt in it that most stories are about.
struct LogRoom {
    folder: TempDir,
    limits: LogLimits,
    logs: Logs,
}

impl LogRoom {
    fn new() -> LogRoom {
        LogRoom::with(LogLimits::default())
    }

    fn with(limits: LogLimits) -> LogRoom {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::open(&folder.path().join("logs"), limits).unwrap();
        LogRoom {
            folder,
            limits,
            logs,
        }
    }

    fn holding(bytes: &[u8]) -> LogRoom {
        let room = LogRoom::new();
        room.send(bytes);
        room
    }

    /// The next life of the server.
    fn restart(&mut self) {
        self.logs = Logs::open(&self.path(), self.limits).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("logs")
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.path().join(format!("7/42.1.{extension}"))
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.file("log")).unwrap()
    }

    /// The worker goes on where the log ends.
    fn send(&self, bytes: &[u8]) {
        let offset = self.length();
        let appended = self.append(offset, bytes).unwrap();
        assert_eq!(appended, offset + bytes.len() as u64);
    }

    fn append(&self, offset: u64, bytes: &[u8]) -> Result<u64, AppendError> {
        let appended = self.logs.append(JOB, BUILD, offset, bytes)?;
        Ok(appended.length)
    }

    fn length(&self) -> u64 {
        self.logs.length(JOB, BUILD).unwrap()
    }

    fn tail(&self, n: usize) -> LogPage {
        self.logs.tail(JOB, BUILD, n).unwrap()
    }

    fn range(&self, from_line: u64, n: usize) -> LogPage {
        self.logs.range(JOB, BUILD, from_line, n).unwrap()
    }

    fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let mut reader = self.logs.text(JOB, BUILD).unwrap();
        reader.read_to_end(&mut text).unwrap();
        text
    }

    /// Everything that can be seen of the log, page by page.
    fn seen(&self) -> Vec<LogLine> {
        let mut lines: Vec<LogLine> = Vec::new();
        loop {
            let page = self.range(lines.len() as u64 + 1, 1_000);
            if page.lines.is_empty() {
                assert_eq!(page.total_lines, lines.len() as u64);
                return lines;
            }
            lines.extend(page.lines);
        }
    }
}

/// Lines of standard output with a number each, from 1 to `count`.
fn numbered(count: u64) -> Vec<u8> {
    let line = |n: u64| record(1_763_312_345_678 + n as i64, 'o', format!("line {n}"));
    (1..=count).flat_map(line).collect()
}

/// `3 stdout: text`, without the time.
fn shown(lines: &[LogLine]) -> Vec<String> {
    let show = |line: &LogLine| {
        let text = String::from_utf8_lossy(&line.text);
        format!("{} {}: {text}", line.n, line.stream)
    };
    lines.iter().map(show).collect()
}

/// Files below a folder that this process has open.
fn open_files(folder: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    // A descriptor of another test may be gone by now.
    let links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|path| path.starts_with(folder)).count()
}

/// Chance that can be replayed.
struct Dice(u64);

impl Dice {
    /// 0 to `sides` - 1.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    /// Records of all kinds, and now and then something that is none. About as many bytes as asked for.
    fn log(&mut self, bytes_about: usize) -> Vec<u8> {
        let mut log = Vec::new();
        while log.len() < bytes_about {
            let length = match self.roll(20) {
                0 => self.roll(bytes_about as u64 / 4 + 1),
                1..4 => 0,
                _ => self.roll(80),
            };
            // Few letters, so that there is something to find.
            let text: Vec<u8> = (0..length)
                .map(|_| b"abcAB \xc3\xbc\0"[self.roll(9) as usize])
                .collect();
            match self.roll(12) {
                0 => log.extend_from_slice(&[text.as_slice(), b"\n"].concat()),
                _ => {
                    let stream = ['o', 'O', 'O', 'e', 'E', 'w'][self.roll(6) as usize];
                    log.extend(record(self.roll(1 << 40) as i64, stream, text));
                }
            }
        }
        log
    }
}
