//! Schedules: list, look at, what became of their times, pause, resume, fire now. One is named by its number or as `TASK.NAME`.

use super::jobs::answer_made;
use super::{PAGE, PAGE_MAX, show};
use crate::domain::{Now, ScheduleId, Timestamp};
use crate::engine::{Engine, EngineError};
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::List;

pub fn list(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["limit", "after"])?;
    let after = ScheduleId(request.query_number("after")?.unwrap_or(0));
    let limit = request.limit(PAGE, PAGE_MAX)?;
    let schedules = app.engine.schedules(after, limit)?;
    let is_full = schedules.len() == limit as usize;
    let last = schedules
        .last()
        .map(|last| last.schedule.schedule_id.to_string());
    let list = List {
        items: schedules.iter().map(show::schedule).collect(),
        next: last.filter(|_| is_full),
    };
    Ok(Response::json(200, &list).into())
}

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    answer(app, selected(app, request)?)
}

/// The newest first.
pub fn fires(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["limit", "before"])?;
    let limit = request.limit(PAGE, PAGE_MAX)?;
    let before = request.query("before").map(read_place).transpose()?;
    let schedule_id = selected(app, request)?;
    let fires = app.engine.fires(schedule_id, before, limit)?;
    let is_full = fires.len() == limit as usize;
    let last = fires.last().map(|last| place(last.due_at, last.manual));
    let list = List {
        items: fires.iter().map(show::fire).collect(),
        next: last.filter(|_| is_full),
    };
    Ok(Response::json(200, &list).into())
}

pub fn why(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let schedule_id = selected(app, request)?;
    let explained = app.engine.why_schedule(schedule_id, app.clock.now())?;
    Ok(Response::json(200, &show::schedule_why(&explained)).into())
}

pub fn pause(app: &App, request: &Request) -> Result<Reply, ApiError> {
    change(app, request, Engine::pause_schedule)
}

pub fn resume(app: &App, request: &Request) -> Result<Reply, ApiError> {
    change(app, request, Engine::resume_schedule)
}

fn change(
    app: &App,
    request: &Request,
    verb: fn(&Engine, ScheduleId, &str, Now) -> Result<(), EngineError>,
) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let schedule_id = selected(app, request)?;
    verb(
        &app.engine_for(request),
        schedule_id,
        request.who(),
        app.clock.now(),
    )?;
    app.scheduler.wake();
    answer(app, schedule_id)
}

pub fn fire(app: &App, request: &Request) -> Result<Reply, ApiError> {
    app.count_submissions(request, 1)?;
    request.says_no_more()?;
    let schedule_id = selected(app, request)?;
    let key = request.headers.idempotency_key.clone();
    let loaded = app.workflows.current();
    let task = |name: &str| loaded.tasks.get(name).cloned();
    let engine = app.engine_for(request);
    let fired = engine.fire_schedule(schedule_id, key, app.clock.now(), &task)?;
    answer_made(app, fired)
}

fn answer(app: &App, schedule_id: ScheduleId) -> Result<Reply, ApiError> {
    let schedule = app.engine.schedule(schedule_id)?;
    Ok(Response::json(200, &show::schedule(&schedule)).into())
}

fn selected(app: &App, request: &Request) -> Result<ScheduleId, ApiError> {
    Ok(app.engine.select_schedule(request.param(0))?)
}

/// A place in the ledger, as `next` tells it: milliseconds, and `m` for what was fired by hand.
fn place(due_at: Timestamp, manual: bool) -> String {
    format!("{}{}", due_at.0, if manual { "m" } else { "" })
}

fn read_place(text: &str) -> Result<(Timestamp, bool), ApiError> {
    let (number, manual) = match text.strip_suffix('m') {
        Some(number) => (number, true),
        None => (text, false),
    };
    match number.parse() {
        Ok(due_at) => Ok((Timestamp(due_at), manual)),
        Err(_) => Err(ApiError::invalid(
            "before is not a place in the ledger; take it from next",
        )),
    }
}
