//! What steps printed, and what the server said about the job: always bounded, the end of it unless asked otherwise.

use std::io;

use super::jobs::job_id;
use crate::domain::step::Step;
use crate::domain::{AttemptRef, EventSeq, JobId};
use crate::logs::{LogLine, LogPage, Needle};
use crate::server::App;
use crate::server::download::Download;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::Time;
use crate::wire::api::{List, LogLineJson, LogsJson, StepLogsJson};

/// The virtual step whose log is what the server did about the job.
const SERVER: &str = "_server";

const LINES: usize = 400;
const LINES_MAX: usize = 1_000;
/// Of each step, when a whole job is asked for.
const LINES_OF_EACH: usize = 20;
const STEPS_MAX: u32 = 100;
/// Events are few; a job with more has a page of them at `/events`.
const SERVER_LINES_MAX: u32 = 10_000;

/// `tail=N` (the default), `from=LINE&n=N`, `grep=TEXT` with `ignore_case=true`, `raw=1` for the bare text of all of it;
/// `attempt=N` for another attempt than the last.
pub fn of_step(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["tail", "from", "n", "grep", "ignore_case", "raw", "attempt"])?;
    let asked = Asked::parse(request)?;
    let job_id = job_id(app, request)?;
    if request.param(1) == SERVER {
        return of_server(app, job_id, &asked);
    }
    let step = app.engine.step_named(job_id, request.param(1))?;
    let attempt = attempt(request, &step)?;
    if asked.raw {
        let text = app.logs.text(job_id, attempt).map_err(unreadable)?;
        return Ok(Reply::Download(Download::new(text)));
    }
    let mut logs = match &asked.grep {
        Some(grep) => {
            let needle = Needle {
                bytes: grep.as_bytes(),
                ignore_case: asked.ignore_case,
            };
            let from = asked.from.unwrap_or(1);
            let found = (app.logs).search(job_id, attempt, needle, from, asked.n);
            let found = found.map_err(unreadable)?;
            LogsJson {
                lines: found.lines.into_iter().map(line).collect(),
                total_lines: found.total_lines,
                total_matches: Some(found.total_matches),
                truncated: found.truncated,
                attempt: None,
            }
        }
        None => page(match asked.from {
            Some(from) => app.logs.range(job_id, attempt, from, asked.n),
            None => app.logs.tail(job_id, attempt, asked.n),
        })?,
    };
    logs.attempt = Some(attempt.attempt);
    Ok(Response::json(200, &logs).into())
}

/// The last lines of each step that has run; `after=STEP` for those that come after it.
pub fn of_job(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["tail", "limit", "after"])?;
    let limit = request.limit(STEPS_MAX, STEPS_MAX)? as usize;
    let tail = request.query_number("tail")?.unwrap_or(LINES_OF_EACH);
    let job_id = job_id(app, request)?;
    let view = app.engine.job(job_id)?;
    let mut items = Vec::new();
    let begin = match request.query("after") {
        None => 0,
        Some(after) => {
            let last = view.steps.iter().position(|(name, _)| name == after);
            let unknown = || ApiError::invalid(format!("after is {after:?}, expected a step"));
            last.ok_or_else(unknown)? + 1
        }
    };
    let steps = view.steps[begin..].iter();
    for (name, step) in steps.filter(|(_, step)| step.attempt > 0).take(limit) {
        let attempt = step.attempt_ref();
        let tail = app.logs.tail(job_id, attempt, tail.min(LINES_MAX));
        items.push(StepLogsJson {
            step: name.clone(),
            attempt: attempt.attempt,
            logs: page(tail)?,
        });
    }
    let last = items.last().map(|last| last.step.clone());
    let next = last.filter(|_| items.len() == limit);
    Ok(Response::json(200, &List { items, next }).into())
}

fn of_server(app: &App, job_id: JobId, asked: &Asked) -> Result<Reply, ApiError> {
    let events = app
        .engine
        .server_log(job_id, EventSeq(0), SERVER_LINES_MAX)?;
    let numbered = events.into_iter().enumerate();
    let mut lines: Vec<LogLineJson> = numbered
        .map(|(index, event)| LogLineJson {
            n: index as u64 + 1,
            at: Some(event.at.into()),
            stream: "server".to_string(),
            text: event.text,
        })
        .collect();
    let total_lines = lines.len() as u64;
    if asked.raw {
        let text: String = lines
            .iter()
            .map(|line| format!("{}\n", line.text))
            .collect();
        return Ok(Response::text(text.into_bytes()).into());
    }
    let mut total_matches = None;
    if let Some(grep) = &asked.grep {
        let fold = |text: &str| match asked.ignore_case {
            true => text.to_lowercase(),
            false => text.to_string(),
        };
        let needle = fold(grep);
        lines.retain(|line| fold(&line.text).contains(&needle));
        total_matches = Some(lines.len() as u64);
    }
    let from = asked.from.unwrap_or(1);
    lines.retain(|line| line.n >= from);
    let truncated = lines.len() > asked.n;
    if asked.from.is_none() && asked.grep.is_none() {
        lines.drain(..lines.len().saturating_sub(asked.n));
    }
    lines.truncate(asked.n);
    let logs = LogsJson {
        lines,
        total_lines,
        total_matches,
        truncated,
        attempt: None,
    };
    Ok(Response::json(200, &logs).into())
}

/// What of a log is asked for.
struct Asked {
    from: Option<u64>,
    n: usize,
    grep: Option<String>,
    ignore_case: bool,
    raw: bool,
}

impl Asked {
    fn parse(request: &Request) -> Result<Asked, ApiError> {
        let tail: Option<usize> = request.query_number("tail")?;
        let n: Option<usize> = request.query_number("n")?;
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
        Ok(Asked {
            from,
            n: tail.or(n).unwrap_or(LINES).min(LINES_MAX),
            grep: request.query("grep").map(str::to_string),
            ignore_case: flag("ignore_case")?,
            raw: flag("raw")?,
        })
    }
}

fn attempt(request: &Request, step: &Step) -> Result<AttemptRef, ApiError> {
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

fn page(page: io::Result<LogPage>) -> Result<LogsJson, ApiError> {
    let page = page.map_err(unreadable)?;
    Ok(LogsJson {
        lines: page.lines.into_iter().map(line).collect(),
        total_lines: page.total_lines,
        total_matches: None,
        truncated: page.truncated,
        attempt: None,
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

fn unreadable(error: io::Error) -> ApiError {
    log::error!("a log could not be read: {error}");
    ApiError::new(
        500,
        "internal",
        "the log could not be read, the server's log says why",
    )
}
