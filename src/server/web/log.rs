//! The log of a step: a window of lines at a time, whatever its length; where to look in it.
//!
//! The page holds the last lines, and links to all others. `assets/log.js` makes a viewer of it that asks here for the window that
//! somebody has scrolled to, and for what only the whole log tells: how many lines fit, where the next match is, which sections
//! there are, where it went wrong.

use std::io;
use std::ops::RangeInclusive;

use maud::{Markup, PreEscaped, html};
use serde_json::json;

use super::frame::View;
use super::{ansi, links, parts};
use crate::domain::log::LogStream;
use crate::domain::step::StepState;
use crate::domain::{AttemptRef, JobId};
use crate::logs::{LogFilter, LogLine, LogView, Needle, Streams};
use crate::server::App;
use crate::server::api::jobs;
use crate::server::api::logs::{attempt, unreadable};
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::{JobJson, StepJson};

/// Lines of a window.
const LINES: usize = 200;
const LINES_MAX: usize = 1_000;
/// Of a longer line, the beginning is shown; all of it is in the download.
const LINE_BYTES_MAX: usize = 8 << 10;
/// Ranges that one request may leave out.
const LEFT_OUT_MAX: usize = 500;

/// The part of a job's page that shows it. A server that is asked without scripts shows it window by window.
pub fn panel(
    job: &JobJson,
    step: &StepJson,
    request: &Request,
    view: &View,
) -> Result<Markup, ApiError> {
    if step.attempt == 0 || matches!(step.kind.as_str(), "approval" | "task") {
        let text = match step.kind.as_str() {
            "approval" => "An approval prints nothing.",
            "task" => "Its child job has the logs.",
            _ => "Nothing has run yet.",
        };
        return Ok(html! {
            section.box #log aria-labelledby="log-title" {
                header { h2 #log-title { "Log of " (step.name) } }
                div.empty {
                    (text)
                    @if let Some(child) = step.child_job_id { " " a href=(links::job(child)) { "To job " (child) } }
                }
            }
        });
    }
    let asked = request.query_number("attempt")?;
    let asked = asked.filter(|n| (1..=step.attempt).contains(n));
    let number: u32 = asked.unwrap_or(step.attempt);
    let place = Place {
        job_id: JobId(job.id),
        attempt: AttemptRef {
            step_id: crate::domain::StepId(step.id),
            attempt: number,
        },
    };
    let line = request.query_number("line")?;
    let everything = LogFilter::default();
    let end = place.view(view.app, &everything, u64::MAX, 0)?.total_lines;
    let from = line
        .unwrap_or_else(|| end.saturating_sub(LINES as u64 - 1))
        .max(1);
    // A page that is there already keeps its viewer, and needs none of it.
    let accept = view.request.headers.accept.as_deref();
    let shown = match accept.is_some_and(|accept| accept.contains("live=1")) {
        true => 0,
        false => LINES,
    };
    let window = place.view(view.app, &everything, from, shown)?;
    let is_open = number == step.attempt && step.ended_at.is_none();
    let opens_at = match step.status.as_str() {
        "failed" if number == step.attempt => "error",
        _ if is_open => "follow",
        _ => "end",
    };
    let base = format!("/jobs/{}/steps/{}/log", job.id, links::escaped(&step.name));
    let raw = format!(
        "/api/jobs/{}/steps/{}/logs?raw=1&attempt={number}",
        job.id,
        links::escaped(&step.name)
    );
    let to = |line: u64| {
        format!(
            "{}&attempt={number}&line={line}#log",
            links::step(job.id, &step.name)
        )
    };
    Ok(html! {
        section.box.log #log tabindex="-1" aria-labelledby="log-title" data-log=(base) data-keep={ "log " (step.id) "." (number) }
            data-attempt=(number) data-step=(step.name) data-total=(end) data-opens-at=(opens_at) {
            header {
                h2 #log-title { "Log of " (step.name) @if step.attempts.len() > 1 { " " span.count { "attempt " (number) } } }
                span.note { span data-log-count { (parts::count(end as usize, "line")) } @if let Some(worker) = &step.worker { " from " (worker) } }
                (tools(&raw, &step.name))
            }
            div.pane role="log" aria-live="off" aria-labelledby="log-title" tabindex="0" {
                @if end == 0 { div.empty data-log-empty { @if let Some(at) = job.logs_removed_at { "What it printed was removed on " (parts::moment(at)) ": logs are kept for as many days as retention.log_days says." } @else if is_open { "Nothing was printed yet." } @else { "It printed nothing." } } }
                (lines(&window, None))
            }
            nav.paging data-log-paging aria-label="Lines" {
                @if from > 1 { a href=(to(1)) { "first" } a href=(to(from.saturating_sub(LINES as u64).max(1))) { "earlier" } }
                @if window.next_line <= end { a href=(to(window.next_line)) { "later" } a href=(to(end.saturating_sub(LINES as u64 - 1).max(1))) { "last" } }
            }
        }
    })
}

/// What the viewer offers; of use only with it.
fn tools(raw: &str, step: &str) -> Markup {
    html! {
        div.actions.more {
            span.log-tools data-log-tools hidden {
                label.hidden for="log-find" { "Find in the log" }
                input #log-find type="search" placeholder="find in all of it, Enter" autocomplete="off" spellcheck="false";
                button.quiet type="button" data-log-do="previous" title="Previous match (N)" { "previous" }
                button.quiet type="button" data-log-do="next" title="Next match (n)" { "next" }
                span.number data-log-found role="status" {}
                label { input type="checkbox" data-log-do="only"; " only these" }
                label { input type="checkbox" data-log-do="case"; " exact case" }
                label.hidden for="log-stream" { "Which stream" }
                select #log-stream { option value="" { "all streams" } option value="stdout" { "stdout" } option value="stderr" { "stderr" } option value="worker" { "worker" } }
                label.hidden for="log-groups" { "Sections" }
                select #log-groups hidden {}
                label { input type="checkbox" data-log-do="wrap"; " wrap" }
                label { input type="checkbox" data-log-do="times"; " times" }
                label { input type="checkbox" data-log-do="follow"; " follow" }
                label title="A screen reader reads new lines" { input type="checkbox" data-log-do="read"; " read aloud" }
                button.quiet type="button" data-log-do="error" { "first error" }
                button.quiet type="button" data-log-do="top" { "top" }
                button.quiet type="button" data-log-do="end" { "end" }
            }
            a.button href=(raw) download={ (step) ".log" } { "Download" }
        }
    }
}

/// Which log.
struct Place {
    job_id: JobId,
    attempt: AttemptRef,
}

impl Place {
    fn view(
        &self,
        app: &App,
        filter: &LogFilter,
        from: u64,
        n: usize,
    ) -> Result<LogView, ApiError> {
        let view = app.logs.view(self.job_id, self.attempt, filter, from, n);
        view.map_err(unreadable)
    }
}

/// A window, as the viewer puts it in place.
fn lines(window: &LogView, needle: Option<Needle>) -> Markup {
    html! {
        div.lines data-total=(window.total_lines) data-next=(window.next_line) data-partial[window.partial] {
            @for line in &window.lines { (one(line, needle)) }
        }
    }
}

fn one(line: &LogLine, needle: Option<Needle>) -> Markup {
    // What steps say to whoever shows their log; the title of a section is shown without the word.
    let text = line.text.strip_prefix(b"::group::").unwrap_or(&line.text);
    let class = match line.stream {
        _ if line.text.starts_with(b"::error") => "l bad",
        _ if line.text.starts_with(b"::warning") => "l warn",
        _ if line.text.starts_with(b"::endgroup::") => "l wrk",
        LogStream::Stdout => "l",
        LogStream::Stderr => "l err",
        LogStream::Worker => "l wrk",
    };
    let shown = &text[..text.len().min(LINE_BYTES_MAX)];
    let more = text.len() - shown.len();
    html! {
        div class=(class) id={ "L" (line.n) } {
            a.n href={ "#L" (line.n) } aria-label={ "line " (line.n) } { (line.n) }
            @if let Some(at) = line.at { time { (time_of_day(at.0)) } } @else { time {} }
            @if line.stream == LogStream::Stderr { span.hidden { "stderr: " } }
            span { (PreEscaped(ansi::html(shown, needle))) @if more > 0 { i.more { " … " (more) " more bytes, in the download" } } }
        }
    }
}

/// `23:04:05.123`, in UTC.
fn time_of_day(ms: i64) -> String {
    let ms = ms.rem_euclid(86_400_000);
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{h:02}:{m:02}:{s:02}.{:03}", ms % 1_000)
}

/// What the viewer wants to see, as it stands in the address.
struct Asked<'r> {
    place: Place,
    /// More may come.
    is_open: bool,
    streams: Streams,
    only: Option<Needle<'r>>,
    sought: Option<Needle<'r>>,
    left_out: Vec<RangeInclusive<u64>>,
}

impl<'r> Asked<'r> {
    fn parse(app: &App, request: &'r Request, more: &[&str]) -> Result<Asked<'r>, ApiError> {
        let mut known = vec!["attempt", "stream", "only", "find", "case", "skip"];
        known.extend(more);
        request.check_query(&known)?;
        let job_id = jobs::selected(app, request.param(0))?;
        let step = app.engine.step_named(job_id, request.param(1))?;
        let streams = match request.query("stream").unwrap_or_default() {
            "" => Streams::ALL,
            word => {
                let none = Streams {
                    stdout: false,
                    stderr: false,
                    worker: false,
                };
                match word {
                    "stdout" => Streams {
                        stdout: true,
                        ..none
                    },
                    "stderr" => Streams {
                        stderr: true,
                        ..none
                    },
                    "worker" => Streams {
                        worker: true,
                        ..none
                    },
                    _ => return Err(ApiError::invalid("stream is stdout, stderr or worker")),
                }
            }
        };
        let ignore_case = request.query("case") != Some("1");
        let needle = |key: &str| {
            let text = request.query(key).filter(|text| !text.is_empty())?;
            Some(Needle {
                bytes: text.as_bytes(),
                ignore_case,
            })
        };
        let at = attempt(request, &step)?;
        let is_last = at.attempt == step.attempt;
        let is_held = matches!(step.state, StepState::Assigned | StepState::Running);
        Ok(Asked {
            place: Place {
                job_id,
                attempt: at,
            },
            is_open: is_last && is_held,
            streams,
            only: needle("only"),
            sought: needle("find"),
            left_out: left_out(request.query("skip").unwrap_or_default())?,
        })
    }

    fn filter(&self) -> LogFilter<'_> {
        LogFilter {
            streams: self.streams,
            needle: self.only,
            left_out: &self.left_out,
        }
    }
}

/// `10-20,31-40`
fn left_out(text: &str) -> Result<Vec<RangeInclusive<u64>>, ApiError> {
    let fault = || ApiError::invalid("skip is not a list of ranges such as 10-20,31-40");
    let ranges = text.split(',').filter(|range| !range.is_empty());
    let ranges = ranges.map(|range| {
        let (from, to) = range.split_once('-').ok_or_else(fault)?;
        let from: u64 = from.parse().map_err(|_| fault())?;
        Ok(from..=to.parse().map_err(|_| fault())?)
    });
    let ranges: Vec<RangeInclusive<u64>> = ranges.collect::<Result<_, ApiError>>()?;
    match ranges.len() <= LEFT_OUT_MAX {
        true => Ok(ranges),
        false => Err(fault()),
    }
}

/// A window: `from=LINE&n=N`.
pub fn window(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let asked = Asked::parse(app, request, &["from", "n"])?;
    let from = request.query_number("from")?.unwrap_or(1);
    let n = request.query_number("n")?.unwrap_or(LINES).min(LINES_MAX);
    let window = asked.place.view(app, &asked.filter(), from, n)?;
    let sought = asked.sought.or(asked.only);
    let markup = html! {
        main data-open[asked.is_open] { (lines(&window, sought)) }
    };
    Ok(Response::html(200, markup.into_string()).into())
}

/// How many lines fit in all, and where each window of `every` of them begins.
pub fn marks(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let asked = Asked::parse(app, request, &["every", "from"])?;
    let from = request.query_number("from")?.unwrap_or(1);
    let every = request.query_number("every")?.unwrap_or(LINES as u64);
    let Place { job_id, attempt } = asked.place;
    let marks = app
        .logs
        .marks(job_id, attempt, &asked.filter(), from, every);
    let marks = marks.map_err(unreadable)?;
    let json = json!({
        "total_lines": marks.total_lines,
        "matching": marks.matching,
        "every": marks.every,
        "marks": marks.marks,
        "open": asked.is_open,
    });
    Ok(Response::json(200, &json).into())
}

/// The nearest match after a line, or before it with `back=1`; and which of how many it is.
pub fn find(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let asked = Asked::parse(app, request, &["line", "back"])?;
    let line = request.query_number("line")?.unwrap_or(0);
    let fault = || ApiError::invalid("say what to find");
    let needle = asked.sought.ok_or_else(fault)?;
    let Place { job_id, attempt } = asked.place;
    let (logs, filter) = (&app.logs, asked.filter());
    let found = match request.query("back") {
        Some("1") => logs.match_before(job_id, attempt, needle, &filter, line),
        _ => logs.match_after(job_id, attempt, needle, &filter, line),
    };
    let found: io::Result<_> = found;
    let found = found.map_err(unreadable)?;
    let json = json!({
        "line": found.found.map(|found| found.line),
        "ordinal": found.found.map(|found| found.ordinal),
        "total": found.total_matches,
        // Where it is in the view: as many lines that fit are before it.
        "index": match found.found {
            Some(found) => Some(index(app, &asked, found.line)?),
            None => None,
        },
    });
    Ok(Response::json(200, &json).into())
}

/// How many lines that fit are before this one.
fn index(app: &App, asked: &Asked, line: u64) -> Result<u64, ApiError> {
    let filter = asked.filter();
    let is_whole = filter == LogFilter::default();
    if is_whole {
        return Ok(line.saturating_sub(1));
    }
    let mut left_out = asked.left_out.clone();
    left_out.push(line..=u64::MAX);
    let before = LogFilter {
        left_out: &left_out,
        ..filter
    };
    let Place { job_id, attempt } = asked.place;
    let marks = app.logs.marks(job_id, attempt, &before, 1, u64::MAX);
    Ok(marks.map_err(unreadable)?.matching)
}

/// Where a line is in the view, or where it would be.
pub fn place_of(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let asked = Asked::parse(app, request, &["line"])?;
    let line = request.query_number("line")?.unwrap_or(1);
    let json = json!({"index": index(app, &asked, line)?});
    Ok(Response::json(200, &json).into())
}

/// Its sections.
pub fn groups(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let asked = Asked::parse(app, request, &[])?;
    let Place { job_id, attempt } = asked.place;
    let groups = app.logs.groups(job_id, attempt).map_err(unreadable)?;
    let groups = groups.groups.iter().map(
        |group| json!({"title": group.title, "first": group.first_line, "last": group.last_line}),
    );
    let json = json!({"groups": groups.collect::<Vec<_>>()});
    Ok(Response::json(200, &json).into())
}

/// Where somebody who looks at a failure wants to begin.
pub fn first_error(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let asked = Asked::parse(app, request, &[])?;
    let Place { job_id, attempt } = asked.place;
    let found = app.logs.first_error(job_id, attempt).map_err(unreadable)?;
    Ok(Response::json(200, &json!({"line": found.map(|found| found.line)})).into())
}
