//! Workers: list, look at, explain, drain, pause, resume, delete. One is named by its number or its name.

use super::{PAGE, PAGE_MAX, show};
use crate::domain::{Now, WorkerId};
use crate::engine::{Engine, EngineError};
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::List;

pub fn list(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["limit", "after"])?;
    let after = WorkerId(request.query_number("after")?.unwrap_or(0));
    let limit = request.limit(PAGE, PAGE_MAX)?;
    let workers = app.engine.workers(after, limit, app.clock.now())?;
    let is_full = workers.len() == limit as usize;
    let last = workers.last().map(|last| last.worker.worker_id.to_string());
    let list = List {
        items: workers.iter().map(show::worker).collect(),
        next: last.filter(|_| is_full),
    };
    Ok(Response::json(200, &list).into())
}

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    answer(app, selected(app, request)?)
}

pub fn why(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let worker_id = app.engine.select_worker(request.param(0))?;
    let explained = app.engine.why_worker(worker_id, app.clock.now())?;
    Ok(Response::json(200, &show::worker_why(&explained)).into())
}

pub fn drain(app: &App, request: &Request) -> Result<Reply, ApiError> {
    change(app, request, Engine::drain)
}

pub fn pause(app: &App, request: &Request) -> Result<Reply, ApiError> {
    change(app, request, Engine::pause)
}

pub fn resume(app: &App, request: &Request) -> Result<Reply, ApiError> {
    change(app, request, Engine::resume)
}

fn change(
    app: &App,
    request: &Request,
    verb: fn(&Engine, WorkerId, Now) -> Result<(), EngineError>,
) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let worker_id = selected(app, request)?;
    verb(&app.engine_for(request), worker_id, app.clock.now())?;
    answer(app, worker_id)
}

fn answer(app: &App, worker_id: WorkerId) -> Result<Reply, ApiError> {
    let worker = app.engine.worker(worker_id, app.clock.now())?;
    Ok(Response::json(200, &show::worker(&worker)).into())
}

fn selected(app: &App, request: &Request) -> Result<WorkerId, ApiError> {
    Ok(app.engine.select_worker(request.param(0))?)
}

/// Refused while it holds steps, unless `force=true`.
pub fn delete(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["force"])?;
    let force = match request.query("force") {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            let message = format!("force is {other:?}, expected true or false");
            return Err(ApiError::invalid(message));
        }
    };
    let worker_id = selected(app, request)?;
    app.engine_for(request)
        .delete_worker(worker_id, force, app.clock.now())?;
    Ok(Response::json(200, &serde_json::json!({})).into())
}
