//! Steps: explain, decide, what they gave.

use super::jobs::{answer, job_id};
use super::show;
use crate::engine::Decision;
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::{ApproveRequest, FailRequest, RejectRequest};

pub fn why(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let step = app
        .engine
        .step_named(job_id(app, request)?, request.param(1))?;
    let now = app.clock.now();
    let explained = app.engine.why_step(step.step_id, now)?;
    Ok(Response::json(200, &show::one_step_why(&explained, now)).into())
}

pub fn output(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let output = app.engine.output(job_id(app, request)?, request.param(1))?;
    let raw = output.as_ref().map(show::masked);
    Ok(Response::json(200, &raw).into())
}

pub fn approve(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let asked: ApproveRequest = request.json()?;
    let output = asked.output.map(Into::into);
    decide(app, request, Decision::Approve { output })
}

pub fn reject(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let asked: RejectRequest = request.json()?;
    let why = asked.why.unwrap_or_else(|| "rejected".to_string());
    decide(app, request, Decision::Reject { why })
}

/// Puts an assigned or running step back in the queue.
pub fn requeue(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let job_id = job_id(app, request)?;
    let step = app.engine.step_named(job_id, request.param(1))?;
    let (who, now) = (request.who(), app.clock.now());
    app.engine_for(request)
        .requeue_step(step.step_id, who, now)?;
    answer(app, 200, job_id)
}

/// Fails a step that has not ended.
pub fn fail(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&[])?;
    let asked: FailRequest = request.json()?;
    let job_id = job_id(app, request)?;
    let step = app.engine.step_named(job_id, request.param(1))?;
    let (who, now) = (request.who(), app.clock.now());
    app.engine_for(request)
        .fail_step(step.step_id, who, &asked.why, now)?;
    answer(app, 200, job_id)
}

fn decide(app: &App, request: &Request, decision: Decision) -> Result<Reply, ApiError> {
    request.check_query(&[])?;
    let job_id = job_id(app, request)?;
    let step = app.engine.step_named(job_id, request.param(1))?;
    let now = app.clock.now();
    app.engine_for(request)
        .decide(step.step_id, decision, request.who(), now)?;
    answer(app, 200, job_id)
}
