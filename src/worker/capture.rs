//! Reads what a step prints, as it comes, and writes it to the attempt's log: line by line, with the time and the stream,
//! secrets hidden. One thread per attempt; whatever a step prints, it takes little memory and never makes the step wait long.
//!
//! A process in the background may hold the pipes open, so the end of the file is not waited for: once told that the step
//! is over, it takes what is there and ends.

use std::fs::File;
use std::io::{self, PipeWriter, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::attempt_log::{AttemptLog, write_note};
use super::mask::{Added, Masker, Masks, SECRET_BYTES_MIN};
use super::output::{OutputLine, OutputWatch};
use crate::clock::wall_time;
use crate::domain::limits::clip;
use crate::domain::log::{LogRecord, LogStream};

const READ_BYTES_MAX: usize = 64 << 10;
/// A longer line is written in pieces.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// After this a line that has not ended is shown as far as it has come: it may be a question.
const PARTIAL_AFTER: Duration = Duration::from_millis(500);
/// What is still taken from each pipe after the end, should somebody go on writing.
const DRAIN_BYTES_MAX: usize = 4 << 20;
const LAST_WORDS_BYTES_MAX: usize = 300;
const ADD_MASK: &[u8] = b"::add-mask::";
/// Blanks that may stand before `::add-mask::`.
const ADD_MASK_INDENT_BYTES_MAX: usize = 64;
/// Of a longer value only the beginning is hidden.
const ADDED_MASK_BYTES_MAX: usize = 16 << 10;

/// What is remembered of what was read.
#[derive(Debug, Default)]
pub struct Captured {
    /// The last `OUTPUT:` line of a step.
    pub output: Option<OutputLine>,
    /// The last line of a command of the worker's own: it often says what went wrong.
    pub last_words: Option<String>,
}

#[derive(Debug)]
pub struct Capture {
    thread: JoinHandle<Captured>,
    /// Closed when the step is over.
    over: PipeWriter,
}

impl Capture {
    /// Of a step: its standard output and its standard error.
    pub fn of_step(
        (stdout, stderr): (OwnedFd, OwnedFd),
        log: Arc<AttemptLog>,
    ) -> io::Result<Capture> {
        let stdout = Stream::new(stdout, LogStream::Stdout)?;
        let stderr = Stream::new(stderr, LogStream::Stderr)?;
        Capture::start([stdout, stderr], log, AttemptLog::append)
    }

    /// Of a command of the worker's own while it prepares a step: all that the command prints is the worker's word.
    pub fn of_worker(
        (stdout, stderr): (OwnedFd, OwnedFd),
        log: Arc<AttemptLog>,
    ) -> io::Result<Capture> {
        let stdout = Stream::new(stdout, LogStream::Worker)?;
        let stderr = Stream::new(stderr, LogStream::Worker)?;
        Capture::start([stdout, stderr], log, AttemptLog::append_preparation)
    }

    fn start(streams: [Stream; 2], log: Arc<AttemptLog>, append: Append) -> io::Result<Capture> {
        let (over_rx, over) = io::pipe()?;
        let reader = Reader {
            streams,
            masks: log.masks(),
            log,
            append,
            output: OutputWatch::default(),
            last_words: None,
            short_mask_noted: false,
            buffer: vec![0; READ_BYTES_MAX],
            records: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("capture".to_string())
            .spawn(move || reader.run(&over_rx.into()))?;
        Ok(Capture { thread, over })
    }

    /// The step is over: takes what is there, and ends.
    pub fn finish(self) -> Captured {
        drop(self.over);
        match self.thread.join() {
            Ok(captured) => captured,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Appends whole records to the log, within the limit for whoever printed them. The number is the bytes of text in them.
type Append = fn(&AttemptLog, &[u8], u64);

struct Reader {
    streams: [Stream; 2],
    masks: Masks,
    log: Arc<AttemptLog>,
    append: Append,
    output: OutputWatch,
    last_words: Option<String>,
    short_mask_noted: bool,
    buffer: Vec<u8>,
    /// What this round has to write.
    records: Vec<u8>,
}

impl Reader {
    fn run(mut self, over: &OwnedFd) -> Captured {
        while !self.wait(over) {
            for at in 0..self.streams.len() {
                if self.streams[at].is_ready {
                    self.read(at);
                }
            }
            self.show_partial_lines();
        }
        for at in 0..self.streams.len() {
            let mut drained = 0;
            while drained < DRAIN_BYTES_MAX {
                match self.read(at) {
                    0 => break,
                    n => drained += n,
                }
            }
            self.end_stream(at);
        }
        Captured {
            output: self.output.into_last(),
            last_words: self.last_words,
        }
    }

    /// Until there is something to read, or a partial line to show. `true`: the step is over.
    fn wait(&mut self, over: &OwnedFd) -> bool {
        let now = Instant::now();
        let due = self.streams.iter().filter_map(|stream| stream.partial_due);
        let timeout = due.min().map(|due| due.saturating_duration_since(now));
        let timeout = timeout.map(|wait| Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        let mut watched = vec![PollFd::new(over, PollFlags::IN)];
        let open = |stream: &&Stream| stream.source.is_some();
        for stream in self.streams.iter().filter(open) {
            let source = stream.source.as_ref().expect("only those that are open");
            watched.push(PollFd::new(source, PollFlags::IN));
        }
        // An interrupted wait is one that was short.
        let _ = poll(&mut watched, timeout.as_ref());
        let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        let is_over = ready.next().unwrap_or(true);
        for stream in &mut self.streams {
            stream.is_ready = stream.source.is_some() && ready.next().unwrap_or(false);
        }
        is_over
    }

    /// How many bytes there were; 0 if there is nothing now, or never again.
    fn read(&mut self, at: usize) -> usize {
        let stream = &mut self.streams[at];
        let Some(source) = &mut stream.source else {
            return 0;
        };
        match source.read(&mut self.buffer) {
            Ok(0) => {
                self.end_stream(at);
                0
            }
            Ok(length) => {
                let buffer = std::mem::take(&mut self.buffer);
                self.take(at, &buffer[..length]);
                self.buffer = buffer;
                self.write_records(length as u64);
                length
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.read(at),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.end_stream(at);
                0
            }
        }
    }

    fn take(&mut self, at: usize, mut bytes: &[u8]) {
        let is_stdout = self.streams[at].label == LogStream::Stdout;
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if is_stdout {
                self.output.push(line);
                self.output.end_line();
            }
            self.push(at, line);
            self.end_line(at);
        }
        if !bytes.is_empty() {
            if is_stdout {
                self.output.push(bytes);
            }
            self.push(at, bytes);
        }
    }

    /// Part of a line.
    fn push(&mut self, at: usize, text: &[u8]) {
        let stream = &mut self.streams[at];
        match &mut stream.line {
            Line::Text => stream.push(&self.masks, text),
            Line::Beginning(_) if stream.label == LogStream::Worker => {
                stream.line = Line::Text;
                stream.push(&self.masks, text);
            }
            Line::Beginning(beginning) => {
                beginning.extend_from_slice(text);
                let command = beginning.trim_ascii_start();
                let is_indented_far = beginning.len() - command.len() > ADD_MASK_INDENT_BYTES_MAX;
                match command.strip_prefix(ADD_MASK) {
                    Some(mask) if !is_indented_far => {
                        let length = mask.len().min(ADDED_MASK_BYTES_MAX + 1);
                        stream.line = Line::Mask(mask[..length].to_vec());
                    }
                    None if !is_indented_far && ADD_MASK.starts_with(command) => {}
                    _ => {
                        let beginning = std::mem::take(beginning);
                        stream.line = Line::Text;
                        stream.push(&self.masks, &beginning);
                    }
                }
            }
            Line::Mask(mask) => {
                let room = ADDED_MASK_BYTES_MAX + 1 - mask.len();
                mask.extend_from_slice(&text[..text.len().min(room)]);
            }
        }
        stream.write_long_line(self.log.limits.line_bytes_max, &mut self.records);
    }

    fn end_line(&mut self, at: usize) {
        let stream = &mut self.streams[at];
        match std::mem::replace(&mut stream.line, Line::Beginning(Vec::new())) {
            Line::Text => {}
            Line::Beginning(text) => stream.push(&self.masks, &text),
            Line::Mask(mask) => {
                stream.piece.extend_from_slice(ADD_MASK);
                stream.piece.extend_from_slice(b"***");
                self.add_mask(&mask);
            }
        }
        let stream = &mut self.streams[at];
        stream.masker.end_line(&self.masks, &mut stream.piece);
        if stream.label == LogStream::Worker && !stream.piece.trim_ascii().is_empty() {
            let words = String::from_utf8_lossy(&stream.piece);
            self.last_words = Some(clip(words.trim(), LAST_WORDS_BYTES_MAX));
        }
        stream.end_line(self.log.limits.line_bytes_max, &mut self.records);
    }

    /// For the rest of the attempt, on both streams.
    fn add_mask(&mut self, mask: &[u8]) {
        let is_cut = mask.len() > ADDED_MASK_BYTES_MAX;
        let mask = String::from_utf8_lossy(&mask[..mask.len().min(ADDED_MASK_BYTES_MAX)]);
        let mask = match is_cut {
            // Half of a character.
            true => mask.trim_end_matches(char::REPLACEMENT_CHARACTER),
            false => mask.strip_suffix('\r').unwrap_or(&mask),
        };
        // As other systems write several lines in one.
        let decoded = mask.replace("%0D", "\r").replace("%0A", "\n");
        let decoded = decoded.replace("%25", "%");
        let mut added = self.masks.add(mask);
        if decoded != mask {
            added = self.masks.add(&decoded);
        }
        if is_cut {
            added = Added::TooMany;
        }
        self.log.set_masks(&self.masks);
        if added != Added::Hidden && !self.short_mask_noted {
            self.short_mask_noted = true;
            let sentence = match added {
                Added::TooMany => "::add-mask:: was used for too much: not every value is hidden",
                _ => &format!(
                    "::add-mask:: hides lines of at least {SECRET_BYTES_MIN} bytes: a shorter one is not hidden"
                ),
            };
            write_note(sentence, &mut self.records);
        }
    }

    fn show_partial_lines(&mut self) {
        let now = Instant::now();
        for stream in &mut self.streams {
            if stream.partial_due.is_some_and(|due| due <= now) {
                stream.write_piece(true, &mut self.records);
            }
        }
        self.write_records(self.records.len() as u64);
    }

    fn write_records(&mut self, text_bytes: u64) {
        (self.append)(&self.log, &self.records, text_bytes);
        self.records.clear();
    }

    /// Nothing more comes from it: a last line without a newline is a line.
    fn end_stream(&mut self, at: usize) {
        let stream = &mut self.streams[at];
        if stream.source.take().is_none() {
            return;
        }
        if stream.has_unfinished_line() {
            if stream.label == LogStream::Stdout {
                self.output.end_line();
            }
            self.end_line(at);
        }
        self.write_records(self.records.len() as u64);
    }
}

/// One of the two pipes, and the line that is coming out of it.
struct Stream {
    source: Option<File>,
    is_ready: bool,
    label: LogStream,
    line: Line,
    masker: Masker,
    /// What of the line may be seen and is not yet written.
    piece: Vec<u8>,
    /// What of the line is written, in records that say that it goes on.
    written: usize,
    dropped: usize,
    /// When the piece is shown even if its line has not ended.
    partial_due: Option<Instant>,
}

enum Line {
    /// So far it could be the beginning of `::add-mask::`, perhaps after blanks, and is not shown.
    Beginning(Vec<u8>),
    Text,
    /// A value to hide. One byte more than is taken of a value says that the value is longer.
    Mask(Vec<u8>),
}

impl Stream {
    fn new(source: OwnedFd, label: LogStream) -> io::Result<Stream> {
        let flags = fcntl_getfl(&source)?;
        fcntl_setfl(&source, flags | OFlags::NONBLOCK)?;
        Ok(Stream {
            source: Some(source.into()),
            is_ready: false,
            label,
            line: Line::Beginning(Vec::new()),
            masker: Masker::default(),
            piece: Vec::new(),
            written: 0,
            dropped: 0,
            partial_due: None,
        })
    }

    fn has_unfinished_line(&self) -> bool {
        let is_new = matches!(&self.line, Line::Beginning(text) if text.is_empty());
        !is_new
    }

    fn push(&mut self, masks: &Masks, text: &[u8]) {
        self.masker.push(masks, text, &mut self.piece);
        if self.partial_due.is_none() && !self.piece.is_empty() {
            self.partial_due = Some(Instant::now() + PARTIAL_AFTER);
        }
    }

    /// All of it that goes beyond a piece.
    fn write_long_line(&mut self, line_bytes_max: usize, records: &mut Vec<u8>) {
        let room = line_bytes_max.saturating_sub(self.written);
        if self.piece.len() > room {
            self.dropped += self.piece.len() - room;
            self.piece.truncate(room);
        }
        while self.piece.len() > PIECE_BYTES_MAX {
            let rest = self.piece.split_off(PIECE_BYTES_MAX);
            self.write_piece(true, records);
            self.piece = rest;
        }
        if self.piece.is_empty() {
            self.partial_due = None;
        }
    }

    fn end_line(&mut self, line_bytes_max: usize, records: &mut Vec<u8>) {
        self.write_long_line(line_bytes_max, records);
        self.write_piece(false, records);
        if self.dropped > 0 {
            let sentence = format!(
                "the line above is longer than {line_bytes_max} bytes: {} more bytes of it are not kept",
                self.dropped
            );
            write_note(&sentence, records);
        }
        self.written = 0;
        self.dropped = 0;
    }

    fn write_piece(&mut self, continues: bool, records: &mut Vec<u8>) {
        let record = LogRecord {
            at: wall_time(),
            stream: self.label,
            continues,
            text: &self.piece,
        };
        record.write(records);
        self.written += self.piece.len();
        self.piece.clear();
        self.partial_due = None;
    }
}
