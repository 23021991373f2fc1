//! The log of an attempt against a plain vector of bytes: sent in pieces, again, with gaps, with other bytes, through restarts,
//! power cuts and a spoilt index; and whatever is asked of it is what the bytes say.

use std::io::Read;
use std::path::PathBuf;

use stepward::domain::{AttemptRef, JobId, StepId};
use stepward::logs::{
    AppendError, LogFilter, LogLimits, LogLine, Logs, Needle, Streams, without_escapes,
};
use tempfile::TempDir;

use super::dice::Dice;
use super::plain::{lines_of, record};
use super::watch::Tried;
use super::{mutate, site};

const JOB: JobId = JobId(7);
const ATTEMPT: AttemptRef = AttemptRef {
    step_id: StepId(42),
    attempt: 1,
};

/// Small, so that they are met; but every line is shown whole.
const LIMITS: LogLimits = LogLimits {
    attempt_bytes_max: 4 << 20,
    line_bytes_max: 1 << 20,
    lines_max: 40,
    page_bytes_max: 8_000,
    open_logs_max: 2,
};

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "error: it broke", "ERROR", "::error::here", "##[error]", "::group::a", "::endgroup::", "+ set -x", "Traceback",
    "\x1b[31mer\x1b[0mror", "\x1b]0;title\x07", "\x1b[", "panicked at", "warning", "needle", "nee\x1b[1mdle",
    "\r50%\r100%", "", "  at main.rs:1", "### heading", "=====", "123 o not a record", "\u{1b}", "ü", "🚀",
];

struct Room {
    folder: TempDir,
    logs: Logs,
    /// What the log must be.
    model: Vec<u8>,
}

pub fn play(dice: &mut Dice, tried: &Tried) {
    let folder = tempfile::tempdir_in(site::memory()).expect("a folder");
    let logs = Logs::open(folder.path(), LIMITS).expect("logs");
    let mut room = Room {
        folder,
        logs,
        model: Vec::new(),
    };
    // What the worker has printed; the log has some of it.
    let bytes_about = [300, 5_000, 60_000, 400_000][dice.roll(4) as usize];
    let printed = printed(dice, bytes_about);
    for _ in 0..60 {
        let act = dice.roll(12);
        tried.also(&format!(
            "act {act} at {} of {} bytes",
            room.model.len(),
            printed.len()
        ));
        match act {
            0..5 => room.send(dice, &printed),
            5 => room.send_wrongly(dice, &printed),
            6 => room.restart(),
            7 if dice.chance(30) => room.cut_power(dice, &printed),
            8 if dice.chance(50) => {
                room.spoil_index(dice);
                room.restart();
            }
            _ => room.ask(dice),
        }
    }
    room.ask(dice);
    room.looks_the_same_elsewhere();
}

/// Records of all kinds, and now and then something that is none.
fn printed(dice: &mut Dice, bytes_about: usize) -> Vec<u8> {
    let mut log = Vec::new();
    while log.len() < bytes_about {
        let text = match dice.roll(20) {
            0 => "x"
                .repeat(dice.roll(bytes_about as u64 / 4 + 1) as usize)
                .into_bytes(),
            1 => mutate::noise(dice, 40).into_bytes(),
            2 => mutate::bytes(dice, 40),
            3..9 => dice
                .pick(TEXTS)
                .expect("there are some")
                .as_bytes()
                .to_vec(),
            _ => {
                let letters = b"abcAB \xc3\xbc";
                let length = dice.roll(60);
                (0..length)
                    .map(|_| letters[dice.roll(8) as usize])
                    .collect()
            }
        };
        let text: Vec<u8> = text.into_iter().filter(|byte| *byte != b'\n').collect();
        match dice.roll(14) {
            0 => log.extend([&text[..], b"\n"].concat()),
            1 => log.extend(format!("{}\n", mutate::noise(dice, 6)).bytes()),
            _ => {
                let stream = ['o', 'o', 'O', 'O', 'e', 'E', 'w'][dice.roll(7) as usize];
                log.extend(record(dice.between(0, 1 << 41), stream, text));
            }
        }
    }
    log
}

impl Room {
    fn file(&self, extension: &str) -> PathBuf {
        self.folder.path().join(format!("7/42.1.{extension}"))
    }

    fn append(&self, offset: usize, bytes: &[u8]) -> Result<u64, AppendError> {
        let appended = self.logs.append(JOB, ATTEMPT, offset as u64, bytes)?;
        Ok(appended.length)
    }

    /// The next piece, and perhaps some of what was sent before.
    fn send(&mut self, dice: &mut Dice, printed: &[u8]) {
        let known = self.model.len();
        let from = match dice.chance(60) {
            true => known,
            false => known - dice.roll(known as u64 + 1).min(3_000) as usize,
        };
        let longest = [1, 30, 2_000, 100_000][dice.roll(4) as usize];
        let to = (known + dice.roll(longest) as usize).min(printed.len());
        // What was sent is sent again as it was.
        let length = self
            .append(from, &printed[from..to.max(from)])
            .expect("it is taken");
        if to > known {
            self.model.extend_from_slice(&printed[known..to]);
        }
        assert_eq!(length, self.model.len() as u64);
    }

    /// With a gap, or other bytes than there are: nothing changes.
    fn send_wrongly(&mut self, dice: &mut Dice, printed: &[u8]) {
        let known = self.model.len();
        let gap = known + 1 + dice.roll(100) as usize;
        match self.append(gap, b"x") {
            Err(AppendError::Gap { length }) => assert_eq!(length, known as u64),
            other => panic!("{other:?}"),
        }
        if known > 0 {
            let at = known - 1 - dice.roll(known as u64).min(5_000) as usize;
            let mut other = printed[at..known].to_vec();
            let wrong = dice.roll(other.len() as u64) as usize;
            other[wrong] ^= 1 + dice.roll(255) as u8;
            match self.append(at, &other) {
                Err(AppendError::Differs { length }) => assert_eq!(length, known as u64),
                other => panic!("{other:?}"),
            }
        }
        let full = (LIMITS.attempt_bytes_max + (64 << 10)) as usize + 1 - known;
        let refused = self.append(known, &vec![b'x'; full]);
        assert!(
            matches!(refused, Err(AppendError::TooLong { .. })),
            "{refused:?}"
        );
        assert_eq!(
            self.logs.length(JOB, ATTEMPT).expect("a length"),
            known as u64
        );
    }

    /// The next life of the server. What is no whole record may be asked for again, whole ones stay.
    fn restart(&mut self) {
        self.logs = Logs::open(self.folder.path(), LIMITS).expect("logs");
        self.is_mended(whole(&self.model));
    }

    /// The log ends earlier now, or not; what is there is what was there.
    fn is_mended(&mut self, at_least: usize) {
        let length = self.logs.length(JOB, ATTEMPT).expect("a length") as usize;
        assert!(
            length <= self.model.len(),
            "{length} of {}",
            self.model.len()
        );
        assert!(
            length >= at_least,
            "{length} bytes are left, {at_least} were sound"
        );
        self.model.truncate(length);
        if self.file("log").exists() {
            let kept = std::fs::read(self.file("log")).expect("it can be read");
            assert!(
                kept[..length] == self.model[..],
                "the first {length} bytes are others"
            );
        }
    }

    /// Some of what was written last has not reached the disk: it is missing, or zeros.
    fn cut_power(&mut self, dice: &mut Dice, printed: &[u8]) {
        let Ok(mut kept) = std::fs::read(self.file("log")) else {
            return;
        };
        let lost_from = kept.len() - dice.roll(kept.len() as u64 + 1).min(20_000) as usize;
        match dice.chance(50) {
            true => kept.truncate(lost_from),
            false => kept[lost_from..].fill(0),
        }
        std::fs::write(self.file("log"), &kept).expect("it is written");
        if dice.chance(50) {
            self.spoil_index(dice);
        }
        self.logs = Logs::open(self.folder.path(), LIMITS).expect("logs");
        let sound = whole(&self.model[..lost_from]);
        // Zeros are of no use to anybody; but a hole is told from zeros that were printed only by its size.
        if kept.len() > lost_from {
            self.model[lost_from..].fill(0);
        } else {
            self.model.truncate(lost_from);
        }
        self.is_mended(sound);
        assert!(
            printed.starts_with(&self.model),
            "what was lost is sent again"
        );
    }

    /// The index is an aid: whatever is wrong with it, nobody sees it.
    fn spoil_index(&self, dice: &mut Dice) {
        let file = self.file("idx");
        let Ok(mut index) = std::fs::read(&file) else {
            return;
        };
        match dice.roll(4) {
            0 => index.clear(),
            1 => index.truncate(dice.roll(index.len() as u64 + 1) as usize),
            2 => index.extend(mutate::bytes(dice, 100)),
            _ => {
                for _ in 0..3 {
                    let at = dice.roll(index.len().max(1) as u64) as usize;
                    if let Some(byte) = index.get_mut(at) {
                        *byte ^= 1 << dice.roll(8);
                    }
                }
            }
        }
        match dice.chance(20) {
            true => std::fs::remove_file(&file).expect("it is removed"),
            false => std::fs::write(&file, index).expect("it is written"),
        }
    }

    fn ask(&self, dice: &mut Dice) {
        let lines = lines_of(&self.model);
        let total = lines.len() as u64;
        let from = dice.roll(total + 3);
        let first = (from.max(1) as usize - 1).min(lines.len());
        let n = dice.roll(60) as usize;

        let page = self.logs.range(JOB, ATTEMPT, from, n).expect("a page");
        let asked = &lines[first..lines.len().min(first + n)];
        is_some_of(&page.lines, asked, true);
        assert_eq!(page.total_lines, total);
        assert_eq!(page.truncated, page.lines.len() < asked.len());
        let page = self.logs.tail(JOB, ATTEMPT, n).expect("a page");
        is_some_of(
            &page.lines,
            &lines[lines.len() - n.min(lines.len())..],
            false,
        );

        let mut text = Vec::new();
        let reader = self.logs.text_range(JOB, ATTEMPT, from, n);
        reader
            .expect("a text")
            .read_to_end(&mut text)
            .expect("it is read");
        let expected: Vec<u8> = asked
            .iter()
            .flat_map(|line| [&line.text[..], b"\n"].concat())
            .collect();
        assert!(text == expected, "the text of lines {from} and {n} more");

        self.search(dice, &lines, from, n);
        let groups = self.logs.groups(JOB, ATTEMPT).expect("groups");
        let mut last = 0;
        for group in &groups.groups {
            assert!(
                group.first_line > last && group.last_line >= group.first_line,
                "{group:?}"
            );
            last = group.last_line;
        }
        assert!(last <= total);
        let error = self.logs.first_error(JOB, ATTEMPT).expect("an answer");
        assert!(error.is_none_or(|error| (1..=total).contains(&error.line)));
    }

    fn search(&self, dice: &mut Dice, lines: &[LogLine], from: u64, n: usize) {
        let sought = match dice.pick(lines) {
            Some(line) if dice.chance(70) => {
                let at = dice.roll(line.text.len() as u64 + 1) as usize;
                let end = (at + 1 + dice.roll(5) as usize).min(line.text.len());
                line.text[at..end.max(at)].to_vec()
            }
            _ => b"error".to_vec(),
        };
        let needle = Needle {
            bytes: &sought,
            ignore_case: dice.chance(50),
        };
        let is_in = |text: &[u8]| {
            let fold = |bytes: &[u8]| match needle.ignore_case {
                true => bytes.to_ascii_lowercase(),
                false => bytes.to_vec(),
            };
            let (text, sought) = (fold(text), fold(&sought));
            sought.is_empty() || text.windows(sought.len()).any(|found| found == sought)
        };
        let found = self
            .logs
            .search(JOB, ATTEMPT, needle, from, n)
            .expect("an answer");
        let all: Vec<LogLine> = lines
            .iter()
            .filter(|line| is_in(&line.text))
            .cloned()
            .collect();
        let asked: Vec<LogLine> = all.iter().filter(|line| line.n >= from).cloned().collect();
        assert_eq!(found.total_matches, all.len() as u64, "{sought:?}");
        is_some_of(&found.lines, &asked[..n.min(asked.len())], true);
        let found = self
            .logs
            .search_tail(JOB, ATTEMPT, needle, n)
            .expect("an answer");
        is_some_of(&found.lines, &all[all.len() - n.min(all.len())..], false);

        let left_out = [from..=from + dice.roll(20), 3..=3];
        let filter = LogFilter {
            streams: Streams {
                stdout: dice.chance(80),
                stderr: dice.chance(80),
                worker: dice.chance(80),
            },
            needle: dice.chance(50).then_some(needle),
            left_out: if dice.chance(50) { &left_out } else { &[] },
        };
        let passes = |line: &&LogLine| {
            filter.streams.contains(line.stream)
                && !filter.left_out.iter().any(|lines| lines.contains(&line.n))
                && (filter.needle.is_none() || is_in(&without_escapes(&line.text)))
        };
        let passing: Vec<LogLine> = lines.iter().filter(passes).cloned().collect();
        let asked: Vec<LogLine> = passing
            .iter()
            .filter(|line| line.n >= from)
            .cloned()
            .collect();
        let view = self
            .logs
            .view(JOB, ATTEMPT, &filter, from, n)
            .expect("a view");
        is_some_of(&view.lines, &asked[..n.min(asked.len())], true);
        let marks = self
            .logs
            .marks(JOB, ATTEMPT, &filter, from, 10)
            .expect("marks");
        assert_eq!(marks.matching, asked.len() as u64);
        let expected: Vec<u64> = asked.iter().step_by(10).map(|line| line.n).collect();
        assert_eq!(marks.marks, expected);

        let matching = passing
            .iter()
            .filter(|line| is_in(&without_escapes(&line.text)));
        let numbers: Vec<u64> = matching.map(|line| line.n).collect();
        let after = self
            .logs
            .match_after(JOB, ATTEMPT, needle, &filter, from)
            .expect("a match");
        let expected = numbers
            .iter()
            .find(|line| **line > from)
            .or(numbers.first());
        assert_eq!(after.found.map(|found| found.line), expected.copied());
        let before = self
            .logs
            .match_before(JOB, ATTEMPT, needle, &filter, from)
            .expect("a match");
        let expected = numbers
            .iter()
            .rev()
            .find(|line| **line < from)
            .or(numbers.last());
        assert_eq!(before.found.map(|found| found.line), expected.copied());
        assert_eq!(before.total_matches, numbers.len() as u64);
    }

    /// However it came here, it is the log that comes of its bytes sent at once.
    fn looks_the_same_elsewhere(&self) {
        let folder = tempfile::tempdir_in(site::memory()).expect("a folder");
        let logs = Logs::open(folder.path(), LIMITS).expect("logs");
        if !self.model.is_empty() {
            logs.append(JOB, ATTEMPT, 0, &self.model)
                .expect("it is taken");
        }
        let same = |a: &Logs, b: &Logs| {
            let error = a.first_error(JOB, ATTEMPT).expect("an answer")
                == b.first_error(JOB, ATTEMPT).expect("an answer");
            let groups =
                a.groups(JOB, ATTEMPT).expect("groups") == b.groups(JOB, ATTEMPT).expect("groups");
            error && groups
        };
        assert!(same(&self.logs, &logs), "its errors or groups are others");
    }
}

/// How much of it is whole records.
fn whole(bytes: &[u8]) -> usize {
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    end.map_or(0, |end| end + 1)
}

/// The first of those that were asked for, or the last of them; and some, if there are any.
#[track_caller]
fn is_some_of(lines: &[LogLine], asked: &[LogLine], is_first: bool) {
    let is_piece = match is_first {
        true => asked.starts_with(lines),
        false => asked.ends_with(lines),
    };
    assert!(
        is_piece,
        "{} lines are not of the {} asked for",
        lines.len(),
        asked.len()
    );
    assert_eq!(lines.is_empty(), asked.is_empty());
}
