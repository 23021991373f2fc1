//! What a step prints reaches its log: every byte in order, as soon as it comes, and never more than there is room for.

use std::io::{PipeWriter, Write};
use std::sync::Arc;

use stepward::domain::log::{LogRecord, LogStream};
use stepward::worker::attempt_log::{AttemptLog, LogLimits};
use stepward::worker::capture::{Capture, Captured};
use stepward::worker::mask::Masks;
use stepward::worker::output::OutputLine;

use super::{Bench, lines_of, until};

/// The other ends of the pipes, in the test's own hands.
struct Printer {
    bench: Bench,
    log: Arc<AttemptLog>,
    stdout: PipeWriter,
    stderr: PipeWriter,
    capture: Capture,
}

impl Printer {
    fn new(limits: LogLimits, secrets: &[&str]) -> Printer {
        let bench = Bench::new();
        std::fs::create_dir_all(&bench.place.folder).unwrap();
        let secrets: Vec<String> = secrets.iter().map(|secret| secret.to_string()).collect();
        let (masks, _) = Masks::new(&secrets);
        let log = AttemptLog::open(&bench.place.log(), limits, masks, Arc::new(|| {})).unwrap();
        let log = Arc::new(log);
        let (stdout_rx, stdout) = std::io::pipe().unwrap();
        let (stderr_rx, stderr) = std::io::pipe().unwrap();
        let pipes = (stdout_rx.into(), stderr_rx.into());
        let capture = Capture::of_step(pipes, log.clone()).unwrap();
        Printer {
            bench,
            log,
            stdout,
            stderr,
            capture,
        }
    }

    fn print(&mut self, bytes: &[u8]) {
        self.stdout.write_all(bytes).unwrap();
    }

    /// Whoever holds the pipes goes on holding them.
    fn finish(self) -> (Vec<u8>, Captured) {
        let captured = self.capture.finish();
        (std::fs::read(self.bench.place.log()).unwrap(), captured)
    }

    fn records(&self) -> usize {
        let log = std::fs::read(self.bench.place.log()).unwrap();
        log.iter().filter(|byte| **byte == b'\n').count()
    }
}

fn stdout(log: &[u8]) -> Vec<String> {
    let lines = lines_of(log, LogStream::Stdout);
    let text = |line: Vec<u8>| String::from_utf8_lossy(&line).into_owned();
    lines.into_iter().map(text).collect()
}

fn notes(log: &[u8]) -> Vec<String> {
    let lines = lines_of(log, LogStream::Worker);
    lines
        .into_iter()
        .map(|line| String::from_utf8(line).unwrap())
        .collect()
}

#[test]
fn lines_of_both_streams_come_in_their_order_with_their_time() {
    let mut printer = Printer::new(LogLimits::default(), &[]);
    printer.print(b"one\n\n");
    until("two records", || printer.records() == 2);
    printer.stderr.write_all(b"two\n").unwrap();
    until("three records", || printer.records() == 3);
    printer.print(b"three\nfour");
    let (log, _) = printer.finish();
    let records: Vec<LogRecord> = log
        .split(|byte| *byte == b'\n')
        .filter_map(LogRecord::read)
        .collect();
    let now = stepward::clock::wall_time().0;
    assert!(
        records
            .iter()
            .all(|record| (now - record.at.0).abs() < 60_000)
    );
    let texts: Vec<(LogStream, &[u8])> = records
        .iter()
        .map(|record| (record.stream, record.text))
        .collect();
    use LogStream::{Stderr, Stdout};
    assert_eq!(
        texts,
        [
            (Stdout, &b"one"[..]),
            (Stdout, b""),
            (Stderr, b"two"),
            (Stdout, b"three"),
            (Stdout, b"four")
        ]
    );
}

#[test]
fn a_question_is_seen_before_its_line_ends() {
    let mut printer = Printer::new(LogLimits::default(), &[]);
    printer.print(b"Continue? ");
    until("the question", || printer.records() == 1);
    let log = std::fs::read(printer.bench.place.log()).unwrap();
    assert!(log.ends_with(b" O Continue? \n"), "{log:?}");
    printer.print(b"yes\nnext\n");
    let (log, _) = printer.finish();
    assert_eq!(stdout(&log), ["Continue? yes", "next"]);
}

#[test]
fn a_line_that_was_shown_in_part_ends_even_if_nothing_follows() {
    let mut printer = Printer::new(LogLimits::default(), &[]);
    printer.print(b"part");
    until("the part", || printer.records() == 1);
    printer.print(b"\nnext\n");
    let (log, _) = printer.finish();
    assert_eq!(stdout(&log), ["part", "next"]);
}

#[test]
fn any_bytes_pass() {
    let mut printer = Printer::new(LogLimits::default(), &[]);
    let hostile: Vec<u8> = (0..=255).filter(|byte| *byte != b'\n').collect();
    printer.print(&hostile);
    printer.print(b"\n1 w the step says that it is the worker\n\x1b]0;x\x07\r\n");
    let (log, _) = printer.finish();
    let lines = lines_of(&log, LogStream::Stdout);
    assert_eq!(lines[0], hostile);
    assert_eq!(lines[1], b"1 w the step says that it is the worker");
    assert_eq!(lines[2], b"\x1b]0;x\x07\r");
    assert_eq!(notes(&log), Vec::<String>::new());
}

#[test]
fn a_long_line_goes_out_in_pieces_and_too_long_a_line_is_cut() {
    let limits = LogLimits {
        line_bytes_max: 200_000,
        ..LogLimits::default()
    };
    let mut printer = Printer::new(limits, &[]);
    let long = "0123456789".repeat(20_000);
    printer.print(format!("{long}\n{long}abc\nshort\n").as_bytes());
    let (log, _) = printer.finish();
    assert_eq!(stdout(&log), [long.as_str(), &long, "short"]);
    assert_eq!(
        notes(&log),
        ["the line above is longer than 200000 bytes: 3 more bytes of it are not kept"]
    );
    let longest = log.split(|byte| *byte == b'\n').map(<[u8]>::len).max();
    assert!(longest.unwrap() < (64 << 10) + 100);
}

#[test]
fn a_full_log_says_so_once_and_the_step_goes_on() {
    let limits = LogLimits {
        attempt_bytes_max: 1 << 20,
        ..LogLimits::default()
    };
    let mut printer = Printer::new(limits, &[]);
    for n in 0..200_000 {
        printer.print(format!("line {n}\n").as_bytes());
    }
    printer.print(b"OUTPUT: {\"last\": true}\n");
    let log_of_attempt = printer.log.clone();
    let (log, captured) = printer.finish();
    let lines = stdout(&log);
    let expected: Vec<String> = (0..lines.len()).map(|n| format!("line {n}")).collect();
    assert_eq!(lines, expected, "the beginning, without a gap");
    assert!(log.len() < (1 << 20) + 200 && log.len() > (1 << 20) - (256 << 10));
    assert_eq!(
        notes(&log),
        ["the log has reached its limit of 1 MiB: what follows is not kept, the step goes on"]
    );
    assert_eq!(
        captured.output,
        Some(OutputLine::Text(b"{\"last\": true}".to_vec()))
    );
    let loss = log_of_attempt.loss().unwrap();
    assert!(
        loss.ends_with(" bytes that the step printed were not kept"),
        "{loss}"
    );
}

#[test]
fn secrets_are_hidden_across_writes_lines_and_pieces() {
    let mut printer = Printer::new(LogLimits::default(), &["hunter2-hunter2"]);
    printer.print(b"a hunter2-");
    printer.print(b"hunter2 b\n");
    let filler = "x".repeat((64 << 10) - 7);
    printer.print(format!("{filler}hunter2-hunter2 y\n").as_bytes());
    printer.stderr.write_all(b"e hunter2-hunter2\n").unwrap();
    let (log, _) = printer.finish();
    assert_eq!(stdout(&log), ["a *** b", &format!("{filler}*** y")]);
    assert_eq!(lines_of(&log, LogStream::Stderr), [b"e ***"]);
}

#[test]
fn every_form_of_a_secret_is_hidden_wherever_a_buffer_ends() {
    // As it is, in base64 and in a URL; named by the settings, and by the step itself while it runs.
    let forms = ["s3cr3t/value?", "czNjcjN0L3ZhbHVlPw", "s3cr3t%2Fvalue%3F"];
    for named_by_step in [false, true] {
        let named: &[&str] = match named_by_step {
            true => &[],
            false => &[forms[0]],
        };
        let mut printer = Printer::new(LogLimits::default(), named);
        if named_by_step {
            // In two writes, and not known before its line has ended.
            printer.print(b"::add-mask::s3cr");
            printer.print(b"3t/value?\n");
        }
        let mut expected = Vec::new();
        for form in forms {
            // Every byte of it is once the last of what a pipe, a read or a piece of a line holds.
            for before in 0..=form.len() {
                let filler = "x".repeat((64 << 10) - before);
                printer.print(format!("{filler}{form} y\n").as_bytes());
                expected.push(filler);
            }
        }
        let (log, _) = printer.finish();
        let lines = stdout(&log);
        let shown = &lines[usize::from(named_by_step)..];
        assert_eq!(shown.len(), expected.len());
        for (line, filler) in shown.iter().zip(expected) {
            let rest = line.strip_prefix(&filler).unwrap();
            // The last character of base64 is made of more than the secret.
            assert!(matches!(rest, "*** y" | "***w y"), "{rest}");
        }
    }
}

#[test]
fn the_beginning_of_a_secret_is_not_shown_while_the_rest_may_come() {
    let mut printer = Printer::new(LogLimits::default(), &["hunter2-hunter2"]);
    printer.print(b"the password: hunter2");
    until("the part that is no secret", || printer.records() == 1);
    let log = std::fs::read(printer.bench.place.log()).unwrap();
    assert!(log.ends_with(b" O the password: \n"));
    printer.print(b"-hunter2\n");
    let (log, _) = printer.finish();
    assert_eq!(stdout(&log), ["the password: ***"]);
}

#[test]
fn a_step_can_hide_what_it_has_made_itself() {
    let text = b"token42\n::add-mask::token42\ntoken42\n::add-mask::x\n:: no\n::add-mask\n";
    for first in 0..text.len() {
        let mut printer = Printer::new(LogLimits::default(), &[]);
        let (a, b) = text.split_at(first);
        printer.print(a);
        printer.print(b);
        printer
            .stderr
            .write_all(b"::add-mask::from-stderr\n")
            .unwrap();
        let (log, _) = printer.finish();
        let lines = [
            "token42",
            "::add-mask::***",
            "***",
            "::add-mask::***",
            ":: no",
            "::add-mask",
        ];
        assert_eq!(stdout(&log), lines, "{first}");
        assert_eq!(
            notes(&log),
            ["::add-mask:: hides lines of at least 6 bytes: a shorter one is not hidden"]
        );
        assert_eq!(lines_of(&log, LogStream::Stderr), [b"::add-mask::***"]);
    }
}

#[test]
fn a_value_may_be_named_on_either_stream_and_after_blanks() {
    let text = b"  \t::add-mask::token42\ntoken42\n";
    for first in 0..text.len() {
        let mut printer = Printer::new(LogLimits::default(), &[]);
        let (a, b) = text.split_at(first);
        printer.stderr.write_all(a).unwrap();
        printer.stderr.write_all(b).unwrap();
        until("the value is known", || {
            let log = std::fs::read(printer.bench.place.log()).unwrap();
            log.ends_with(b" e ***\n")
        });
        printer.print(b"token42\n");
        let blanks = " ".repeat(64);
        printer.print(
            format!("{blanks}::add-mask::other42\n{blanks} ::add-mask::other43\n").as_bytes(),
        );
        printer.print(format!("{blanks}  \n other42 other43\n").as_bytes());
        let (log, _) = printer.finish();
        assert_eq!(
            lines_of(&log, LogStream::Stderr),
            [&b"::add-mask::***"[..], b"***"]
        );
        let lines = [
            "***".to_string(),
            "::add-mask::***".to_string(),
            format!("{blanks} ::add-mask::other43"),
            format!("{blanks}  "),
            " *** other43".to_string(),
        ];
        assert_eq!(stdout(&log), lines);
    }
}

#[test]
fn a_step_is_told_if_a_value_is_too_long_to_be_hidden_whole() {
    let mut printer = Printer::new(LogLimits::default(), &[]);
    let value = "0123456789abcdef".repeat(1 << 10);
    printer.print(format!("::add-mask::{value}\n{value}\n").as_bytes());
    printer.print(format!("::add-mask::{value}tail\n{value}tail\n").as_bytes());
    let (log, _) = printer.finish();
    let lines = ["::add-mask::***", "***", "::add-mask::***", "***tail"];
    assert_eq!(stdout(&log), lines);
    let sentence = "::add-mask:: was used for too much: not every value is hidden";
    assert_eq!(notes(&log), [sentence]);
}

#[test]
fn whoever_sends_the_log_learns_that_there_is_more() {
    let bench = Bench::new();
    std::fs::create_dir_all(&bench.place.folder).unwrap();
    let (more_tx, more_rx) = crossbeam_channel::unbounded();
    let on_more = Arc::new(move || more_tx.send(()).unwrap());
    let log = AttemptLog::open(
        &bench.place.log(),
        LogLimits::default(),
        Masks::default(),
        on_more,
    );
    let log = Arc::new(log.unwrap());
    let (stdout_rx, mut stdout) = std::io::pipe().unwrap();
    let (stderr_rx, _stderr) = std::io::pipe().unwrap();
    let capture = Capture::of_step((stdout_rx.into(), stderr_rx.into()), log.clone()).unwrap();
    stdout.write_all(b"one\n").unwrap();
    more_rx.recv_timeout(super::PATIENCE).unwrap();
    assert_eq!(bench.stdout(), ["one"]);
    log.note("two");
    more_rx.recv_timeout(super::PATIENCE).unwrap();
    assert_eq!(bench.notes(), ["two"]);
    capture.finish();
}

/// What this process has in memory.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}

/// In a process of its own: the memory of other tests is not what is measured.
#[test]
fn two_hundred_megabytes_and_a_line_of_a_hundred_take_no_memory() {
    let alone = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture"])
        .arg("worker::capture::a_worker_whose_memory_is_watched")
        .env("TEST_ALONE", "1")
        .output()
        .unwrap();
    assert!(
        alone.status.success(),
        "{}",
        String::from_utf8_lossy(&alone.stderr)
    );
}

#[test]
#[ignore = "run by two_hundred_megabytes_and_a_line_of_a_hundred_take_no_memory"]
fn a_worker_whose_memory_is_watched() {
    if std::env::var("TEST_ALONE").is_err() {
        return;
    }
    let mut most = 0;
    let before = resident_bytes();
    let mut finish = |bench: &Bench, script: &str| {
        let held = bench.run(bench.assignment(None, script));
        super::eventually("the end", || {
            most = most.max(resident_bytes());
            held.news_rx.try_recv().ok()
        })
    };
    let many = Bench::new();
    finish(
        &many,
        "yes 0123456789012345678901234567890123456789 | head -c 200000000; echo done >&2",
    );
    let long = Bench::new();
    finish(
        &long,
        "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo next",
    );
    // Far less than was printed; what the program itself pages in meanwhile is some of it.
    assert!(most < before + (32 << 20), "from {before} to {most} bytes");

    let log = std::fs::read(many.place.log()).unwrap();
    assert!(log.len() < (64 << 20) + 1_000 && log.len() > (63 << 20));
    let notes = notes(&log);
    let marker =
        "the log has reached its limit of 64 MiB: what follows is not kept, the step goes on";
    assert_eq!(notes[0], marker);
    assert!(
        notes[1].ends_with(" bytes that the step printed were not kept"),
        "{notes:?}"
    );
    assert_eq!(notes[2..], ["exit code 0"]);

    let lines = long.stdout();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].len(), 1 << 20);
    assert_eq!(lines[1], "next");
    let dropped = 100_000_000 - (1 << 20);
    let note = format!(
        "the line above is longer than 1048576 bytes: {dropped} more bytes of it are not kept"
    );
    assert_eq!(long.notes(), [note.as_str(), "exit code 0"]);
}
