//! Records and lines of a log, told once more and as plainly as can be: what the real ones are held against.

use stepward::domain::Timestamp;
use stepward::domain::log::{LogRecord, LogStream};
use stepward::logs::LogLine;

/// `stream` as in a log: `o`, `e`, `w`, a capital letter if the line goes on.
pub fn record(at: i64, stream: char, text: impl AsRef<[u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    LogRecord {
        at: Timestamp(at),
        stream: match stream.to_ascii_lowercase() {
            'o' => LogStream::Stdout,
            'e' => LogStream::Stderr,
            _ => LogStream::Worker,
        },
        continues: stream.is_ascii_uppercase(),
        text: text.as_ref(),
    }
    .write(&mut bytes);
    bytes
}

/// What the lines of a log are, told once more and as plainly as can be.
pub fn lines_of(bytes: &[u8]) -> Vec<LogLine> {
    let mut lines: Vec<LogLine> = Vec::new();
    let mut goes_on = None;
    let whole = bytes.split_inclusive(|byte| *byte == b'\n');
    for line in whole.filter_map(|line| line.strip_suffix(b"\n")) {
        let record = LogRecord::read(line);
        match (record, lines.last_mut()) {
            (Some(record), Some(last)) if goes_on == Some(record.stream) => {
                last.text.extend_from_slice(record.text);
            }
            _ => lines.push(LogLine {
                n: lines.len() as u64 + 1,
                at: record.map(|record| record.at),
                stream: record.map_or(LogStream::Worker, |record| record.stream),
                text: record.map_or(line, |record| record.text).to_vec(),
            }),
        }
        goes_on = record
            .filter(|record| record.continues)
            .map(|record| record.stream);
    }
    lines
}
