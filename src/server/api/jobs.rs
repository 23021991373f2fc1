//! Jobs: find, list, look at, cancel, retry, explain.

use super::{PAGE, PAGE_MAX, SOMEBODY, show};
use crate::domain::job::JobState;
use crate::domain::limits::shorten;
use crate::domain::selector::JobSelector;
use crate::domain::{EventSeq, JobId};
use crate::engine::{Retry, RetryScope, Submitted};
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::{List, RetryRequest};

/// The job of the path.
pub fn job_id(app: &App, request: &Request) -> Result<JobId, ApiError> {
    selected(app, request.param(0))
}

/// The job that somebody means.
pub fn selected(app: &App, text: &str) -> Result<JobId, ApiError> {
    Ok(app.engine.select(&selector(text)?)?)
}

fn selector(text: &str) -> Result<JobSelector, ApiError> {
    JobSelector::parse(text).ok_or_else(|| {
        ApiError::not_found(format!(
            "{} names no job, write its number, latest, TASK@latest or TASK@failed",
            shorten(text)
        ))
    })
}

/// Newest first. `q` narrows it: `status:failed task:release`.
pub fn list(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["q", "limit", "after"])?;
    let filter = Filter::parse(request.query("q").unwrap_or_default())?;
    let before = request.query_number("after")?.map(JobId);
    let limit = request.limit(PAGE, PAGE_MAX)?;
    let task = filter.task.as_deref();
    let (jobs, next) = app.engine.jobs(before, filter.state, task, limit)?;
    let list = List {
        items: (jobs.iter())
            .map(|listed| show::job(&listed.job, listed.parent.as_ref()))
            .collect(),
        next: next.map(|job_id| job_id.to_string()),
    };
    Ok(Response::json(200, &list).into())
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Filter {
    state: Option<JobState>,
    task: Option<String>,
}

impl Filter {
    fn parse(text: &str) -> Result<Filter, ApiError> {
        let mut filter = Filter::default();
        for term in text.split_whitespace() {
            let is_said = match term.split_once(':') {
                Some(("status", word)) => filter.state.replace(state(word)?).is_some(),
                Some(("task", name)) => filter.task.replace(name.to_string()).is_some(),
                _ => {
                    return Err(ApiError::invalid(format!(
                        "{term:?} is not understood, write status:failed or task:NAME"
                    )));
                }
            };
            if is_said {
                let message = format!("{term:?} is one too many, each is said once");
                return Err(ApiError::invalid(message));
            }
        }
        Ok(filter)
    }
}

fn state(word: &str) -> Result<JobState, ApiError> {
    JobState::from_word(word).ok_or_else(|| {
        let known: Vec<&str> = JobState::ALL.iter().map(|state| state.as_str()).collect();
        let known = known.join(", ");
        ApiError::invalid(format!("status {word:?} is not known, known are: {known}"))
    })
}

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    answer(app, 200, job_id(app, request)?)
}

pub fn cancel(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let job_id = job_id(app, request)?;
    app.engine.cancel(job_id, SOMEBODY, app.clock.now())?;
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
        of: selector(request.param(0))?,
        scope,
        idempotency_key: request.headers.idempotency_key.clone(),
    };
    answer_made(app, app.engine.retry(retry, app.clock.now())?)
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
        let filter = Filter::parse("status:failed  task:release").unwrap();
        assert_eq!(filter.state, Some(JobState::Failed));
        assert_eq!(filter.task.as_deref(), Some("release"));
        assert_eq!(Filter::parse("").unwrap(), Filter::default());
        let odd = Filter::parse("status:broken").unwrap_err();
        assert!(odd.message.contains("completed"), "{}", odd.message);
        assert!(Filter::parse("release").is_err());
        assert!(Filter::parse("status:failed status:completed").is_err());
    }
}
