//! Tasks: list, look at, submit.

use super::jobs::answer_made;
use super::{PAGE, PAGE_MAX};
use crate::domain::Json;
use crate::domain::limits::shorten;
use crate::domain::task::Task;
use crate::engine::Submission;
use crate::language::words::did_you_mean;
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::store::Frozen;
use crate::wire::api::{List, SubmitRequest, TaskJson};

/// By name.
pub fn list(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["limit", "after"])?;
    let limit = request.limit(PAGE, PAGE_MAX)? as usize;
    let after = request.query("after").unwrap_or_default();
    let loaded = app.workflows.current();
    let frozen = loaded.tasks_after(after).take(limit);
    let tasks: Vec<&Task> = frozen.map(|frozen| frozen.definition.root()).collect();
    let is_full = tasks.len() == limit;
    let last = tasks.last().map(|task| task.draft.name.clone());
    let list = List {
        next: last.filter(|_| is_full),
        items: tasks.into_iter().map(TaskJson::from).collect(),
    };
    Ok(Response::json(200, &list).into())
}

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let frozen = find(app, request.param(0))?;
    Ok(Response::json(200, &TaskJson::from(frozen.definition.root())).into())
}

pub fn submit(app: &App, request: &Request) -> Result<Reply, ApiError> {
    app.count_submissions(request, 1)?;
    request.check_query(&[])?;
    let frozen = find(app, request.param(0))?;
    let asked: SubmitRequest = request.json()?;
    let submission = Submission {
        input: asked.input.map_or_else(Json::empty_object, Json::from),
        priority: asked.priority,
        not_before: asked.not_before.map(|time| time.0),
        labels: asked.labels,
        idempotency_key: request.headers.idempotency_key.clone(),
        ..Submission::of(&frozen)
    };
    answer_made(
        app,
        app.engine_for(request)
            .submit(submission, app.clock.now())?,
    )
}

/// The task of this name, as it is served now.
pub fn find(app: &App, name: &str) -> Result<Frozen, ApiError> {
    let loaded = app.workflows.current();
    loaded.tasks.get(name).cloned().ok_or_else(|| {
        let hint = did_you_mean(name, loaded.tasks.keys().map(String::as_str));
        let broken = match loaded.stale.len() + loaded.left_out.len() {
            0 => String::new(),
            1 => "; 1 workflow file does not load, see `stepward status` or /api/workflows"
                .to_string(),
            n => {
                format!("; {n} workflow files do not load, see `stepward status` or /api/workflows")
            }
        };
        let name = shorten(name);
        ApiError::not_found(format!("task {name} does not exist{hint}{broken}"))
    })
}
