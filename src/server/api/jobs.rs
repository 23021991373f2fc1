//! Jobs: find, list, look at, cancel, retry, explain.

use std::iter::once;

use super::{PAGE, PAGE_MAX, show};
use crate::domain::job::{JobFilter, JobState, Source};
use crate::domain::limits::shorten;
use crate::domain::reason::Reason;
use crate::domain::selector::JobSelector;
use crate::domain::{EventSeq, JobId, Timestamp};
use crate::engine::{EngineError, Retry, RetryScope, Submitted};
use crate::language::duration;
use crate::language::words::{did_you_mean, nearest};
use crate::problems::RECENT_MS;
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::{CancelRequest, List, RetryRequest};

/// The newest job, whatever it is.
const LATEST: &str = "latest";

/// The job of the path.
pub fn job_id(app: &App, request: &Request) -> Result<JobId, ApiError> {
    selected(app, request.param(0))
}

/// The job that somebody means.
pub fn selected(app: &App, text: &str) -> Result<JobId, ApiError> {
    let selected = app.engine.select(&selector(app, text)?);
    selected.map_err(|error| with_hint(app, text, error))
}

fn selector(app: &App, text: &str) -> Result<JobSelector, ApiError> {
    JobSelector::parse(text).ok_or_else(|| {
        let hint = meant(app, text).map_or_else(String::new, in_words);
        ApiError::not_found(format!(
            "{} names no job, write its number, latest, TASK@latest or TASK@failed{hint}",
            shorten(text)
        ))
    })
}

/// No job fits: perhaps because no task is called so.
fn with_hint(app: &App, text: &str, error: EngineError) -> ApiError {
    let is_unfit = matches!(error, EngineError::NoJobFits { .. });
    let mut error = ApiError::from(error);
    if is_unfit && let Some(meant) = meant(app, text).filter(|meant| meant != text) {
        error.message.push_str(&in_words(meant));
    }
    error
}

fn in_words(meant: String) -> String {
    format!("; did you mean {meant}?")
}

/// The selector that somebody probably meant: each half of it, as it is or the nearest that there is.
fn meant(app: &App, text: &str) -> Option<String> {
    const WORDS: usize = 1_000;
    let loaded = app.workflows.current();
    let task = |word: &str| match loaded.tasks.contains_key(word) {
        true => Some(word.to_string()),
        false => {
            let known = loaded.tasks.keys().map(String::as_str).take(WORDS);
            nearest(word, known).map(str::to_string)
        }
    };
    let states = JobState::ALL.iter().map(|state| state.as_str());
    let mut known = states.chain(once(LATEST));
    let whole = match text.rsplit_once('@') {
        Some((word, which)) => {
            let which = match which {
                "" => Some(LATEST),
                which if known.clone().any(|known| known == which) => Some(which),
                which => {
                    let begun = known.clone().find(|known| known.starts_with(which));
                    nearest(which, &mut known).or(begun)
                }
            };
            task(word)
                .zip(which)
                .map(|(task, which)| format!("{task}@{which}"))
        }
        None => None,
    };
    let latest = || nearest(text, [LATEST]).map(str::to_string);
    let of_task = || task(text).map(|task| format!("{task}@{LATEST}"));
    whole.or_else(latest).or_else(of_task)
}

/// Newest first. `q` narrows it: `status:failed task:release since:2d reason:worker_lost source:schedule`.
pub fn list(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["q", "limit", "after"])?;
    let filter = parse(request.query("q").unwrap_or_default(), app.clock.now().wall)?;
    let before = request.query_number("after")?.map(JobId);
    let limit = request.limit(PAGE, PAGE_MAX)?;
    let (jobs, next) = app.engine.jobs(before, &filter, limit)?;
    let list = List {
        items: (jobs.iter())
            .map(|listed| show::job(&listed.job, listed.parent.as_ref()))
            .collect(),
        next: next.map(|job_id| job_id.to_string()),
    };
    Ok(Response::json(200, &list).into())
}

/// Jobs that failed or ran out of time within the last day and that no other job started, the last ended first.
pub fn failures(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["limit"])?;
    let limit = request.limit(PAGE, PAGE_MAX)?;
    let since = Timestamp(app.clock.now().wall.0 - RECENT_MS);
    let jobs = app.engine.jobs_in_trouble(since, limit)?;
    let list = List {
        items: (jobs.iter())
            .map(|listed| show::job(&listed.job, listed.parent.as_ref()))
            .collect(),
        next: None,
    };
    Ok(Response::json(200, &list).into())
}

const KEYS: [&str; 5] = ["status", "task", "reason", "source", "since"];

pub fn parse(text: &str, now: Timestamp) -> Result<JobFilter, ApiError> {
    let mut filter = JobFilter::default();
    for term in text.split_whitespace() {
        let (key, word) = term.split_once(':').unwrap_or((term, ""));
        let is_said = match key {
            _ if !term.contains(':') => return Err(not_understood(term, key)),
            "status" => {
                let states = JobState::ALL.iter().map(|state| state.as_str());
                let state = known(key, word, JobState::from_word(word), states)?;
                filter.state.replace(state).is_some()
            }
            "task" => filter.task.replace(word.to_string()).is_some(),
            "reason" => {
                let reasons = Reason::ALL.iter().map(|reason| reason.as_str());
                let reason = known(key, word, Reason::from_word(word), reasons)?;
                filter.reason.replace(reason).is_some()
            }
            "source" => {
                let sources = Source::ALL.iter().map(|source| source.as_str());
                let source = known(key, word, Source::from_word(word), sources)?;
                filter.source.replace(source).is_some()
            }
            "since" => filter.since.replace(since(word, now)?).is_some(),
            _ => return Err(not_understood(term, key)),
        };
        if is_said {
            let message = format!("{} is one too many, each is said once", shorten(term));
            return Err(ApiError::invalid(message));
        }
    }
    Ok(filter)
}

fn not_understood(term: &str, key: &str) -> ApiError {
    let hint = did_you_mean(key, KEYS);
    ApiError::invalid(format!(
        "{} is not understood, write status:failed, task:NAME, reason:worker_lost, source:schedule or since:2d{hint}",
        shorten(term)
    ))
}

fn known<'w, T>(
    key: &str,
    word: &str,
    found: Option<T>,
    words: impl Iterator<Item = &'w str> + Clone,
) -> Result<T, ApiError> {
    found.ok_or_else(|| {
        let hint = did_you_mean(word, words.clone());
        let (word, words) = (shorten(word), words.collect::<Vec<_>>().join(", "));
        ApiError::invalid(format!(
            "{key} {word} is not known, known are: {words}{hint}"
        ))
    })
}

/// `2d`: so long ago; or a time.
fn since(word: &str, now: Timestamp) -> Result<Timestamp, ApiError> {
    if let Ok(ms) = duration::parse(word) {
        return Ok(Timestamp(now.0.saturating_sub(ms)));
    }
    let at = word.parse::<jiff::Timestamp>();
    at.map(|at| Timestamp(at.as_millisecond())).map_err(|_| {
        ApiError::invalid(format!(
            "since is {}, expected how long ago, such as 2d or 90m, or a time such as 2026-01-31T08:00:00Z",
            shorten(word)
        ))
    })
}

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    answer(app, 200, job_id(app, request)?)
}

pub fn cancel(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&[])?;
    let asked: CancelRequest = request.json()?;
    let job_id = job_id(app, request)?;
    let (why, now) = (asked.why.as_deref(), app.clock.now());
    app.engine_for(request)
        .cancel_because(job_id, request.who(), why, now)?;
    answer(app, 200, job_id)
}

pub fn keep(app: &App, request: &Request) -> Result<Reply, ApiError> {
    set_kept(app, request, true)
}

pub fn release(app: &App, request: &Request) -> Result<Reply, ApiError> {
    set_kept(app, request, false)
}

fn set_kept(app: &App, request: &Request, kept: bool) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let job_id = job_id(app, request)?;
    app.engine_for(request)
        .keep(job_id, kept, app.clock.now())?;
    answer(app, 200, job_id)
}

/// The job as it is now.
pub fn answer(app: &App, status: u16, job_id: JobId) -> Result<Reply, ApiError> {
    let detail = app.engine.job_detail(job_id)?;
    let json = show::job_detail(&detail, app.clock.now());
    Ok(Response::json(status, &json).into())
}

/// Answers a request that makes a job: with the one that it made before, if it was repeated.
pub fn answer_made(app: &App, made: Submitted) -> Result<Reply, ApiError> {
    let status = if made.repeated { 200 } else { 201 };
    answer(app, status, made.job_id)
}

/// A new job, in which what completed is not done again.
pub fn retry(app: &App, request: &Request) -> Result<Reply, ApiError> {
    app.count_submissions(request, 1)?;
    request.check_query(&[])?;
    let asked: RetryRequest = request.json()?;
    let scope = match (asked.from, asked.all) {
        (Some(_), true) => {
            return Err(ApiError::invalid(
                "name a step in from, or say all, not both",
            ));
        }
        (Some(step), false) => RetryScope::From(step),
        (None, true) => RetryScope::All,
        (None, false) => RetryScope::Failed,
    };
    let retry = Retry {
        of: selector(app, request.param(0))?,
        scope,
        idempotency_key: request.headers.idempotency_key.clone(),
    };
    let retried = app.engine_for(request).retry(retry, app.clock.now());
    let retried = retried.map_err(|error| with_hint(app, request.param(0), error))?;
    answer_made(app, retried)
}

pub fn why(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let now = app.clock.now();
    let explained = app.engine.why_job(job_id(app, request)?, now)?;
    Ok(Response::json(200, &show::job_why(&explained, now)).into())
}

/// The job's story, oldest first.
pub fn events(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["limit", "after"])?;
    let after = EventSeq(request.query_number("after")?.unwrap_or(0));
    let limit = request.limit(PAGE_MAX, PAGE_MAX)?;
    let events = app.engine.story(job_id(app, request)?, after, limit)?;
    let is_full = events.len() == limit as usize;
    let last = events.last().map(|named| named.event.seq.to_string());
    let list = List {
        next: last.filter(|_| is_full),
        items: events.into_iter().map(show::event).collect(),
    };
    Ok(Response::json(200, &list).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_what_it_does_not_understand() {
        let now = Timestamp(100_000_000);
        let parse = |text: &str| parse(text, now);
        let filter = parse("status:failed  task:release since:1h source:schedule").unwrap();
        let expected = JobFilter {
            state: Some(JobState::Failed),
            task: Some("release".to_string()),
            source: Some(Source::Schedule),
            since: Some(Timestamp(96_400_000)),
            reason: None,
        };
        assert_eq!(filter, expected);
        assert_eq!(parse("").unwrap(), JobFilter::default());
        let odd = parse("status:broken").unwrap_err();
        assert!(odd.message.contains("completed"), "{}", odd.message);
        for (odd, hint) in [
            ("status:faild", "; did you mean failed?"),
            ("reason:worker-lost", "; did you mean worker_lost?"),
            ("stats:failed", "; did you mean status?"),
            ("since", "; did you mean since?"),
        ] {
            let message = parse(odd).unwrap_err().message;
            assert!(message.ends_with(hint), "{message}");
        }
        for odd in [
            "release",
            "since:yesterday",
            "status:failed status:completed",
        ] {
            assert!(parse(odd).is_err(), "{odd}");
        }
    }
}
