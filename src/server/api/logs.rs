//! What steps printed, and what the server said about the job: always bounded, the end of it unless asked otherwise.

use std::collections::VecDeque;
use std::io::{self, Read};

use super::jobs::job_id;
use crate::domain::step::Step;
use crate::domain::{AttemptRef, EventSeq, JobId, Timestamp};
use crate::engine::{self, Engine, EngineError};
use crate::logs::{LogLimits, LogLine, LogMatches, LogPage, Needle, bytes_in_answer};
use crate::server::App;
use crate::server::download::Download;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::Time;
use crate::wire::api::{List, LogFaultJson, LogLineJson, LogsJson, StepLogsJson};

/// The virtual step whose log is what the server did about the job.
pub const SERVER_STEP: &str = "_server";

/// Unless another number is asked for.
const LINES: usize = 400;
/// Of each step, when a whole job is asked for.
const LINES_OF_EACH: usize = 20;
pub const STEPS_MAX: u32 = 100;
/// Of the answer for a whole job, roughly as it is written. Steps share it: what one does not need is left to those after it.
const JOB_BYTES_MAX: usize = 4 << 20;
/// Events that are read at a time.
const EVENTS_MAX: u32 = 10_000;

/// `tail=N` (the default), `from=LINE&n=N`; `grep=TEXT` with `ignore_case=true` for the lines that hold it, the first or with
/// `tail` the last; `raw=1` for the bare text, of all of it or of what `tail` or `from` say, with `printed=true` without what the
/// worker itself said; `attempt=N` for another attempt than the last.
pub fn of_step(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&[
        "tail",
        "from",
        "n",
        "grep",
        "ignore_case",
        "raw",
        "printed",
        "attempt",
    ])?;
    let asked = Asked::parse(request)?;
    let job_id = job_id(app, request)?;
    if request.param(1) == SERVER_STEP {
        return of_server(app, request, job_id, &asked);
    }
    let step = app.engine.step_named(job_id, request.param(1))?;
    let attempt = attempt(request, &step)?;
    let removed_at = app.engine.logs_removed_at(job_id)?;
    if asked.raw
        && let Some(at) = removed_at
    {
        return Err(removed(job_id, at));
    }
    if asked.raw {
        let text = match (asked.from, asked.tail.or(asked.n)) {
            (None, None) => app.logs.text(job_id, attempt),
            (None, Some(n)) => app.logs.text_tail(job_id, attempt, n),
            (Some(from), n) => {
                let n = n.unwrap_or(usize::MAX);
                app.logs.text_range(job_id, attempt, from, n)
            }
        };
        let text = text.map_err(unreadable)?;
        let text = match asked.printed {
            true => text.only_printed(),
            false => text,
        };
        return Ok(Reply::Download(Download::new(text)));
    }
    let mut logs = match &asked.grep {
        Some(grep) => {
            let needle = Needle {
                bytes: grep.as_bytes(),
                ignore_case: asked.ignore_case,
            };
            matches(match asked.tail {
                Some(n) => app.logs.search_tail(job_id, attempt, needle, n),
                None => {
                    let from = asked.from.unwrap_or(1);
                    (app.logs).search(job_id, attempt, needle, from, asked.lines())
                }
            })?
        }
        None => page(match asked.from {
            Some(from) => app.logs.range(job_id, attempt, from, asked.lines()),
            None => app.logs.tail(job_id, attempt, asked.lines()),
        })?,
    };
    logs.attempt = Some(attempt.attempt);
    logs.removed_at = removed_at.map(Time);
    logs.fault = fault_of(app, job_id, attempt)?;
    Ok(Response::json(200, &logs).into())
}

/// The last lines of each step that has run; `after=STEP` for those that come after it.
pub fn of_job(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["tail", "limit", "after"])?;
    let limit = request.limit(STEPS_MAX, STEPS_MAX)? as usize;
    let tail = request.query_number("tail")?.unwrap_or(LINES_OF_EACH);
    let job_id = job_id(app, request)?;
    let view = app.engine.job(job_id)?;
    let begin = match request.query("after") {
        None => 0,
        Some(after) => {
            let last = view.steps.iter().position(|(name, _)| name == after);
            let unknown = || ApiError::invalid(format!("after is {after:?}, expected a step"));
            last.ok_or_else(unknown)? + 1
        }
    };
    let steps = view.steps[begin..].iter();
    let ran: Vec<&(String, Step)> = steps.filter(|(_, step)| step.attempt > 0).collect();
    let shown = &ran[..ran.len().min(limit)];
    let mut bytes_left = JOB_BYTES_MAX;
    let mut items = Vec::new();
    for (place, (name, step)) in shown.iter().enumerate() {
        let attempt = step.attempt_ref();
        let share = bytes_left / (shown.len() - place);
        let tail = app.logs.tail_within(job_id, attempt, tail, share);
        let tail = tail.map_err(unreadable)?;
        let lines = tail.lines.iter();
        let bytes: usize = lines.map(|line| bytes_in_answer(&line.text)).sum();
        bytes_left = bytes_left.saturating_sub(bytes);
        items.push(StepLogsJson {
            step: name.clone(),
            attempt: attempt.attempt,
            logs: LogsJson {
                removed_at: view.job.logs_removed_at.map(Time),
                fault: fault_of(app, job_id, attempt)?,
                ..page(Ok(tail))?
            },
        });
    }
    let last = shown.last().map(|(name, _)| name.clone());
    let next = last.filter(|_| shown.len() < ran.len());
    Ok(Response::json(200, &List { items, next }).into())
}

fn of_server(
    app: &App,
    request: &Request,
    job_id: JobId,
    asked: &Asked,
) -> Result<Reply, ApiError> {
    if let Some(attempt) = request.query_number::<u32>("attempt")? {
        let message =
            format!("{SERVER_STEP} is no step that is tried, it has no attempt {attempt}");
        return Err(ApiError::not_found(message));
    }
    let lines = || ServerLines::open(&app.engine, job_id);
    if asked.raw {
        let mut from = asked.from.unwrap_or(1);
        if let (None, Some(n)) = (asked.from, asked.tail.or(asked.n)) {
            from = (lines()?.count()? + 1).saturating_sub(n as u64).max(1);
        }
        let text = ServerText {
            from,
            lines_left: asked.tail.or(asked.n).unwrap_or(usize::MAX),
            lines: lines()?,
            line: VecDeque::new(),
        };
        return Ok(Reply::Download(Download::new(text)));
    }
    let fold = |text: &str| match asked.ignore_case {
        true => text.to_ascii_lowercase(),
        false => text.to_string(),
    };
    let needle = asked.grep.as_deref().map(fold);
    let from = asked.from.unwrap_or(1);
    let keep_last = asked.tail.is_some() || (asked.from.is_none() && needle.is_none());
    let mut picked = Picked::new(asked.lines(), keep_last);
    let (mut lines, mut total_lines) = (lines()?, 0);
    let (mut total_matches, mut from_there) = (0, 0);
    while let Some(line) = lines.next_line()? {
        total_lines = line.n;
        let matches = (needle.as_ref()).is_none_or(|needle| fold(&line.text).contains(needle));
        total_matches += u64::from(matches);
        if matches && line.n >= from {
            from_there += 1;
            picked.push(line);
        }
    }
    let lines_asked = match needle {
        // As in the log of a step: whoever searches is told that there are more.
        Some(_) => from_there,
        None => from_there.min(asked.lines()),
    };
    let logs = LogsJson {
        truncated: picked.lines.len() < lines_asked,
        lines: picked.lines.into(),
        total_lines,
        total_matches: needle.map(|_| total_matches),
        partial: false,
        attempt: None,
        removed_at: None,
        fault: None,
    };
    Ok(Response::json(200, &logs).into())
}

/// What the server did about a job, from the first line on. A job may have many, so they are read some at a time.
struct ServerLines {
    engine: Engine,
    job_id: JobId,
    /// `None`: these were the last.
    after: Option<EventSeq>,
    read: std::vec::IntoIter<engine::LogLine>,
    n: u64,
}

impl ServerLines {
    /// Reads the first, so that it is known whether there is such a job.
    fn open(engine: &Engine, job_id: JobId) -> Result<ServerLines, EngineError> {
        let mut lines = ServerLines {
            engine: engine.clone(),
            job_id,
            after: Some(EventSeq(0)),
            read: Vec::new().into_iter(),
            n: 0,
        };
        lines.read_more()?;
        Ok(lines)
    }

    fn read_more(&mut self) -> Result<(), EngineError> {
        if let Some(after) = self.after {
            let read = self.engine.server_log(self.job_id, after, EVENTS_MAX)?;
            let is_full = read.len() == EVENTS_MAX as usize;
            self.after = read.last().map(|line| line.seq).filter(|_| is_full);
            self.read = read.into_iter();
        }
        Ok(())
    }

    fn next_line(&mut self) -> Result<Option<LogLineJson>, EngineError> {
        if self.read.as_slice().is_empty() {
            self.read_more()?;
        }
        let Some(line) = self.read.next() else {
            return Ok(None);
        };
        self.n += 1;
        Ok(Some(LogLineJson {
            n: self.n,
            at: Some(line.at.into()),
            stream: "server".to_string(),
            text: line.text,
        }))
    }

    fn count(mut self) -> Result<u64, EngineError> {
        while self.next_line()?.is_some() {}
        Ok(self.n)
    }
}

/// Lines of the server as bare text.
struct ServerText {
    lines: ServerLines,
    from: u64,
    lines_left: usize,
    /// Of the line that is being given, what has not been read.
    line: VecDeque<u8>,
}

impl Read for ServerText {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.line.is_empty() && self.lines_left > 0 {
            let Some(line) = self.lines.next_line().map_err(io::Error::other)? else {
                self.lines_left = 0;
                break;
            };
            if line.n >= self.from {
                self.lines_left -= 1;
                self.line.extend(line.text.bytes().chain([b'\n']));
            }
        }
        self.line.read(buffer)
    }
}

/// As many lines as fit into one answer, the first or the last of those that come: the rules of a step's log.
struct Picked {
    keep_last: bool,
    lines_max: usize,
    bytes_max: usize,
    lines: VecDeque<LogLineJson>,
    bytes: usize,
    is_full: bool,
}

impl Picked {
    fn new(n: usize, keep_last: bool) -> Picked {
        let limits = LogLimits::default();
        Picked {
            keep_last,
            lines_max: n.min(limits.lines_max),
            bytes_max: limits.page_bytes_max,
            lines: VecDeque::new(),
            bytes: 0,
            is_full: false,
        }
    }

    fn push(&mut self, line: LogLineJson) {
        if self.is_full {
            return;
        }
        self.bytes += bytes_in_answer(line.text.as_bytes());
        self.lines.push_back(line);
        while self.lines.len() > self.lines_max || self.bytes > self.bytes_max {
            let dropped = match self.keep_last {
                true => self.lines.pop_front(),
                false => {
                    self.is_full = true;
                    self.lines.pop_back()
                }
            };
            let Some(dropped) = dropped else {
                return;
            };
            self.bytes -= bytes_in_answer(dropped.text.as_bytes());
        }
    }
}

/// What of a log is asked for.
struct Asked {
    tail: Option<usize>,
    from: Option<u64>,
    n: Option<usize>,
    grep: Option<String>,
    ignore_case: bool,
    raw: bool,
    printed: bool,
}

impl Asked {
    fn parse(request: &Request) -> Result<Asked, ApiError> {
        let tail = request.query_number("tail")?;
        let n = request.query_number("n")?;
        let from = request.query_number("from")?;
        if tail.is_some() && (from.is_some() || n.is_some()) {
            return Err(ApiError::invalid(
                "ask for tail, or for from and n, not both",
            ));
        }
        let flag = |key: &str| match request.query(key) {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true" | "") => Ok(true),
            Some(other) => Err(ApiError::invalid(format!(
                "{key} is {other:?}, expected true or false"
            ))),
        };
        let asked = Asked {
            tail,
            from,
            n,
            grep: request.query("grep").map(str::to_string),
            ignore_case: flag("ignore_case")?,
            raw: flag("raw")?,
            printed: flag("printed")?,
        };
        if asked.raw && asked.grep.is_some() {
            return Err(ApiError::invalid(
                "ask for grep, or for raw, not both: what was found has line numbers",
            ));
        }
        Ok(asked)
    }

    /// How many lines.
    fn lines(&self) -> usize {
        self.tail.or(self.n).unwrap_or(LINES)
    }
}

pub fn attempt(request: &Request, step: &Step) -> Result<AttemptRef, ApiError> {
    let last = step.attempt_ref();
    match request.query_number("attempt")? {
        None => Ok(last),
        Some(attempt) if (1..=last.attempt).contains(&attempt) => {
            Ok(AttemptRef { attempt, ..last })
        }
        Some(attempt) => Err(ApiError::not_found(format!(
            "the step has no attempt {attempt}, it is at attempt {}",
            last.attempt
        ))),
    }
}

/// What is wrong with the log of an attempt, as far as its worker said what it wrote.
fn fault_of(
    app: &App,
    job_id: JobId,
    attempt: AttemptRef,
) -> Result<Option<LogFaultJson>, ApiError> {
    let Some(faulty) = app.engine.log_fault(attempt)? else {
        return Ok(None);
    };
    Ok(Some(LogFaultJson {
        kind: faulty.fault.to_string(),
        written_bytes: faulty.written.length,
        kept_bytes: app.logs.length(job_id, attempt).map_err(unreadable)?,
    }))
}

fn page(page: io::Result<LogPage>) -> Result<LogsJson, ApiError> {
    let page = page.map_err(unreadable)?;
    Ok(LogsJson {
        lines: page.lines.into_iter().map(line).collect(),
        total_lines: page.total_lines,
        total_matches: None,
        truncated: page.truncated,
        partial: page.partial,
        attempt: None,
        removed_at: None,
        fault: None,
    })
}

fn matches(found: io::Result<LogMatches>) -> Result<LogsJson, ApiError> {
    let found = found.map_err(unreadable)?;
    Ok(LogsJson {
        lines: found.lines.into_iter().map(line).collect(),
        total_lines: found.total_lines,
        total_matches: Some(found.total_matches),
        truncated: found.truncated,
        partial: false,
        attempt: None,
        removed_at: None,
        fault: None,
    })
}

fn line(line: LogLine) -> LogLineJson {
    LogLineJson {
        n: line.n,
        at: line.at.map(Time),
        stream: line.stream.to_string(),
        text: String::from_utf8_lossy(&line.text).into_owned(),
    }
}

/// Rather than nothing, which would look as if nothing had been printed.
fn removed(job_id: JobId, at: Timestamp) -> ApiError {
    let at = serde_json::json!(Time(at));
    let at = at.as_str().unwrap_or_default();
    ApiError::new(
        410,
        "logs_removed",
        format!(
            "what job {job_id} printed was removed at {at}: retention.log_days says how long logs are kept"
        ),
    )
}

pub fn unreadable(error: io::Error) -> ApiError {
    log::error!("a log could not be read: {error}");
    ApiError::new(
        500,
        "internal",
        "the log could not be read, the server's log says why",
    )
}
