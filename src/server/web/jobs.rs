//! Jobs: those that fit a filter, newest first, page by page; several cancelled or retried at once.

use maud::{Markup, html};

use super::ask::Question;
use super::form::Form;
use super::frame::{Here, Live, View};
use super::{links, parts};
use crate::domain::JobId;
use crate::domain::job::{JobState, Source};
use crate::domain::reason::Reason;
use crate::engine::{EngineError, Retry, RetryScope};
use crate::server::App;
use crate::server::api::{jobs, show};
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::JobJson;

const PAGE: u32 = 50;
/// Names of tasks that are suggested.
const TASKS: usize = 300;
/// More than a page holds cannot be ticked.
const BULK_MAX: usize = 100;

/// Filters that many people want.
const USUAL: &[(&str, &str)] = &[
    ("all", ""),
    ("running", "status:running"),
    ("pending", "status:pending"),
    ("failed", "status:failed"),
    ("failed today", "status:failed since:24h"),
    ("cancelled", "status:cancelled"),
    ("scheduled", "source:schedule"),
];

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["q", "after", "said"])?;
    let query = request.query("q").unwrap_or_default();
    let after = request.query_number("after")?.map(JobId);
    // What people type first: a number, or the name of a task.
    let meant = query.trim();
    if !meant.is_empty() && meant.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Response::see_other(format!("/jobs/{meant}")).into());
    }
    if app.workflows.current().tasks.contains_key(meant) {
        let to = links::jobs(&format!("task:{meant}"));
        return Ok(Response::see_other(to).into());
    }
    let view = View::begin(app, request)?;
    let found = jobs::parse(query, view.now.wall).and_then(|filter| {
        let (jobs, next) = app.engine.jobs(after, &filter, PAGE)?;
        let jobs = jobs.iter();
        let jobs = jobs.map(|listed| show::job(&listed.job, listed.parent.as_ref()));
        Ok((jobs.collect::<Vec<JobJson>>(), next))
    });
    let fault = found.as_ref().err().map(|error| error.message.clone());
    let status = found.as_ref().err().map_or(200, |error| error.status);
    let (found, next) = found.unwrap_or_default();
    let live = match after.is_some() || fault.is_some() {
        true => Live::No,
        false => Live::All,
    };
    let main = html! {
        div.title { h1 { "Jobs" } }
        (filter(app, query, fault.as_deref()))
        form.box data-jobs method="get" action="/jobs/bulk" aria-label="Jobs" {
            input type="hidden" name="q" value=(query);
            header {
                div.actions {
                    button name="do" value="cancel" data-bulk="Cancel" { "Cancel" }
                    button name="do" value="retry" data-bulk="Retry" { "Retry" }
                    button #new-jobs type="button" hidden {}
                }
            }
            @if found.is_empty() && fault.is_none() { (nothing(query, next.is_some())) }
            @else if !found.is_empty() { (table(&found, &view)) }
            (parts::paging(
                after.map(|_| ("newest", links::jobs(query))),
                next.map(|next| ("older", links::with_query("/jobs", &[("q", request.query("q")), ("after", Some(&next.to_string()))]))),
            ))
        }
    };
    view.page("Jobs", Here::Jobs)
        .live(live)
        .status(status)
        .show(main)
}

fn filter(app: &App, query: &str, fault: Option<&str>) -> Markup {
    let words = serde_json::to_string(&words(app)).unwrap_or_default();
    html! {
        form.filter role="search" method="get" action="/jobs" {
            label.hidden for="q" { "Filter" }
            input #q type="search" name="q" value=(query) list="words" data-filter data-words=(words) autocomplete="off" spellcheck="false"
                placeholder="status:failed task:release since:2d" aria-invalid=[fault.map(|_| "true")] aria-describedby="q-fault";
            datalist #words data-keep="words" {}
            button { "Filter" }
        }
        p #q-fault .fault role="alert" { @if let Some(fault) = fault { (fault) } }
        nav.chips aria-label="Usual filters" {
            @for (name, usual) in USUAL {
                a href=(links::jobs(usual)) aria-current=[(*usual == query).then_some("true")] { (name) }
            }
        }
    }
}

/// Everything that can stand in a filter.
fn words(app: &App) -> Vec<String> {
    let with = |key: &'static str| move |word: &str| format!("{key}:{word}");
    let states = JobState::ALL.iter().map(|state| state.as_str());
    let sources = Source::ALL.iter().map(|source| source.as_str());
    let reasons = Reason::ALL.iter().map(|reason| reason.as_str());
    let loaded = app.workflows.current();
    let tasks = loaded.tasks.keys().map(String::as_str).take(TASKS);
    let since = ["1h", "24h", "7d"].into_iter();
    let mut words: Vec<String> = states.map(with("status")).collect();
    words.extend(since.map(with("since")));
    words.extend(sources.map(with("source")));
    words.extend(tasks.map(with("task")));
    words.extend(reasons.map(with("reason")));
    words
}

fn nothing(query: &str, there_is_more: bool) -> Markup {
    html! {
        div.empty {
            @if there_is_more { "No job fits this filter so far; older jobs may fit." }
            @else if query.is_empty() { "No job yet. " a href="/tasks" { "Run a task" } "." }
            @else { "No job fits this filter." }
        }
    }
}

fn table(jobs: &[JobJson], view: &View) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Jobs" {
            table {
                caption.hidden { "Jobs, newest first" }
                thead { tr {
                    th scope="col" { input #all-jobs type="checkbox" aria-label="All jobs of this page"; }
                    th scope="col" { "job" } th scope="col" { "task" } th scope="col" { "state" } th.wide scope="col" { "what happened" }
                    th.wide scope="col" { "by" } th.number scope="col" { "took" } th.number scope="col" { "made" }
                } }
                tbody data-hold { @for job in jobs { (row(job, view)) } }
            }
        }
    }
}

fn row(job: &JobJson, view: &View) -> Markup {
    html! {
        tr id={ "job-" (job.id) } {
            td { input type="checkbox" name="job" value=(job.id) id={ "tick-" (job.id) } aria-label={ "Job " (job.id) }; }
            td { a data-open href=(links::job(job.id)) { (job.id) } }
            td.wrap { a href=(links::task(&job.task)) { (job.task) } }
            td { (parts::state(&job.status)) }
            td.wide.wrap { (what(job)) }
            td.wide { (by(job)) }
            td.number { (parts::took(job.started_at, job.ended_at, view.now)) }
            td.number { (parts::ago(job.created_at, view.now)) }
        }
    }
}

fn what(job: &JobJson) -> Markup {
    html! {
        @if let Some(reason) = &job.reason { a href=(links::jobs(&format!("reason:{reason}"))) { (reason) } ": " }
        @if let Some(message) = &job.message { (message) }
    }
}

/// Who or what made it.
pub fn by(job: &JobJson) -> Markup {
    html! {
        @if let Some(parent) = &job.parent { a href=(links::step(parent.job_id, &parent.step)) { "job " (parent.job_id) ", " (parent.step) } }
        @else if let Some(of) = job.retry_of { "retry of " a href=(links::job(of)) { (of) } }
        @else if let Some(of) = job.hook_of { "hook of " a href=(links::job(of)) { (of) } }
        @else { (job.source) }
    }
}

/// Which jobs are meant.
fn chosen<'w>(words: impl Iterator<Item = &'w str>) -> Result<Vec<JobId>, ApiError> {
    let mut jobs: Vec<JobId> = Vec::new();
    for word in words {
        let id = word
            .parse()
            .map_err(|_| ApiError::invalid(format!("{word:?} is not the number of a job")))?;
        jobs.push(JobId(id));
    }
    jobs.sort();
    jobs.dedup();
    match jobs.len() {
        0 => Err(ApiError::invalid("no job is ticked: go back and tick some")),
        1..=BULK_MAX => Ok(jobs),
        n => Err(ApiError::invalid(format!(
            "{n} jobs are too many at once, at most {BULK_MAX} are taken"
        ))),
    }
}

pub fn ask_bulk(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let view = View::begin(app, request)?;
    let words = request.query.iter().filter(|(key, _)| key == "job");
    let jobs = chosen(words.map(|(_, value)| value.as_str()))?;
    let (verb, button, text) = match request.query("do") {
        Some("cancel") => (
            "Cancel",
            "Cancel them",
            "Steps that run are ended by their workers, those that wait never run. Jobs that have ended already stay as they are.",
        ),
        Some("retry") => (
            "Retry",
            "Retry them",
            "Each gets a new job, in which what completed is not done again. What did not may have had effects: check them first. Jobs that have not ended stay as they are.",
        ),
        _ => return Err(ApiError::invalid("say cancel or retry")),
    };
    let act = request.query("do").unwrap_or_default();
    // Those that it can be done to.
    let states = app.engine.states_of(&jobs)?;
    let concerned = states.iter().flatten().filter(|state| match act {
        "cancel" => !state.is_terminal(),
        _ => state.is_terminal() && **state != JobState::Completed,
    });
    let concerned = concerned.count();
    let count = match concerned == jobs.len() {
        true => parts::count(jobs.len(), "job"),
        false => format!("{concerned} of {}", parts::count(jobs.len(), "job")),
    };
    Question {
        title: format!("{verb} {count}?"),
        text: html! {
            p { (text) }
            p.wrap { @for job_id in &jobs { a href=(links::job(job_id.0)) { (job_id) } " " } }
            input type="hidden" name="do" value=(act);
            input type="hidden" name="q" value=(request.query("q").unwrap_or_default());
            @for job_id in &jobs { input type="hidden" name="job" value=(job_id); }
        },
        action: "/jobs/bulk".to_string(),
        button,
        is_grave: act == "cancel",
        back: links::jobs(request.query("q").unwrap_or_default()),
        here: Here::Jobs,
    }
    .show(&view)
}

pub fn bulk(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let form = Form::read(app, request)?;
    let jobs = chosen(form.all("job"))?;
    let now = app.clock.now();
    let act = |job_id: JobId| -> Result<(), EngineError> {
        match form.text("do") {
            Some("retry") => {
                let retry = Retry::of(job_id, RetryScope::Failed);
                app.engine_for(request).retry(retry, now).map(|_| ())
            }
            _ => app.engine_for(request).cancel(job_id, request.who(), now),
        }
    };
    let verb = match form.text("do") {
        Some("cancel") => "cancelled",
        Some("retry") => "retried",
        _ => return Err(ApiError::invalid("say cancel or retry")),
    };
    if verb == "retried" {
        app.count_submissions(request, jobs.len())?;
    }
    let mut done = 0;
    for &job_id in &jobs {
        match act(job_id) {
            Ok(()) => done += 1,
            // The store says the same to each of them.
            Err(error @ EngineError::Store(_)) => return Err(error.into()),
            Err(_) => {}
        }
    }
    let all = jobs.len();
    let said = format!("{verb}-{done}-of-{all}");
    let to = links::with_query("/jobs", &[("q", form.said("q")), ("said", Some(&said))]);
    Ok(Response::see_other(to).into())
}
