//! What a person does to a job: cancel, retry, approve, reject. Each is asked first, with what it means.

use maud::{Markup, html};
use serde_json::Value;

use super::ask::Question;
use super::form::Form;
use super::frame::{Here, View};
use super::inputs::{self, Typed};
use super::job::of;
use super::{links, parts, steps};
use crate::domain::Json;
use crate::domain::job::JobState;
use crate::domain::value::ValueSpec;
use crate::engine::{Decision, EngineError, Retry, RetryScope, StepDetail};
use crate::graph::loop_of;
use crate::language::values::Violation;
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};

pub fn ask_cancel(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let view = View::begin(app, request)?;
    let job_id = of(app, request)?;
    let job = app.engine.job(job_id)?;
    let grace_secs = app.engine.settings.cancel_grace_ms / 1_000;
    let running = job
        .steps
        .iter()
        .filter(|(_, step)| step.state.as_str() == "running");
    let running: Vec<&str> = running.map(|(name, _)| name.as_str()).take(10).collect();
    let back = links::job(job_id.0);
    Question {
        title: format!("Cancel job {job_id} {}?", job.job.task),
        text: html! {
            p { "Steps that wait never run. Those that run are told to end, and ended after " (grace_secs) " s; its child jobs too." }
            @if !running.is_empty() { p { "Running now: " (running.join(", ")) } }
            div.field { label for="act-why" { "Why " span.note { "(is written down)" } } input #act-why name="why" autocomplete="off"; }
        },
        action: format!("{back}/cancel"),
        button: "Cancel the job",
        is_grave: true,
        back,
        here: Here::Jobs,
    }
    .show(&view)
}

pub fn cancel(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let form = Form::read(app, request)?;
    let job_id = of(app, request)?;
    let now = app.clock.now();
    app.engine_for(request)
        .cancel_because(job_id, request.who(), form.said("why"), now)?;
    Ok(Response::see_other(format!("{}?said=cancelled", links::job(job_id.0))).into())
}

pub fn ask_retry(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let view = View::begin(app, request)?;
    let job_id = of(app, request)?;
    let job = app.engine.job(job_id)?;
    let from = request.query("from");
    let names = job.steps.iter().map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.filter(|name| loop_of(name).is_none()).collect();
    if let Some(from) = from.filter(|from| !names.contains(from)) {
        let message = format!("the job has no step {from:?} to begin from");
        return Err(ApiError::not_found(message));
    }
    let completed = job
        .steps
        .iter()
        .filter(|(_, step)| step.state.as_str() == "completed");
    let completed = completed.count();
    let back = links::job(job_id.0);
    // Of a job that completed there is nothing else to do again.
    let is_whole = job.job.state == JobState::Completed;
    Question {
        title: format!("Retry job {job_id} {}?", job.job.task),
        text: html! {
            p { "A new job is made with the same input and the same definition. What did not complete may have had effects: check them first." }
            fieldset {
                legend.hidden { "What is done again" }
                @if !is_whole { p { label { input type="radio" name="scope" value="failed" checked[from.is_none()]; " what did not complete; not again what did (" (parts::count(completed, "step")) ")" } } }
                p { label { input type="radio" name="scope" value="from" checked[from.is_some()]; " from this step on, and what did not complete: " }
                    select name="from" aria-label="From which step" { @for name in &names { option selected[from == Some(*name)] { (name) } } } }
                p { label { input type="radio" name="scope" value="all" checked[is_whole && from.is_none()]; " everything once more" } }
            }
        },
        action: format!("{back}/retry"),
        button: "Retry",
        is_grave: false,
        back,
        here: Here::Jobs,
    }
    .show(&view)
}

pub fn retry(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let form = Form::read(app, request)?;
    let scope = match (form.text("scope"), form.said("from")) {
        (Some("all"), _) => RetryScope::All,
        (Some("from"), Some(step)) => RetryScope::From(step.to_string()),
        (Some("from"), None) => return Err(ApiError::invalid("name the step to begin from")),
        _ => RetryScope::Failed,
    };
    let said = match &scope {
        RetryScope::Failed => "retried",
        RetryScope::From(_) => "retried-from",
        RetryScope::All => "retried-all",
    };
    app.count_submissions(request, 1)?;
    let retry = Retry::of(of(app, request)?, scope);
    let retried = app.engine_for(request).retry(retry, app.clock.now())?;
    Ok(Response::see_other(format!("{}?said={said}", links::job(retried.job_id.0))).into())
}

pub fn ask_approve(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let typed = Typed::of_query(&request.query);
    approval(app, request, &typed, &[], 200)
}

fn approval(
    app: &App,
    request: &Request,
    typed: &Typed,
    faults: &[Violation],
    status: u16,
) -> Result<Reply, ApiError> {
    let view = View::begin(app, request)?;
    let (job_id, step) = suspended(app, request)?;
    let is_approval = step.kind == "approval";
    let asks: &[ValueSpec] = &step.asks;
    let (title, button) = match is_approval {
        true => (format!("Approve {}?", step.name), "Approve"),
        false => (format!("Run {} again?", step.name), "Run it again"),
    };
    let question = Question {
        title,
        text: html! {
            (message(&step))
            @if !is_approval { p { "It is held because its worker was lost while it ran. It may have had effects: check them first." } }
            @for spec in asks { (inputs::field(spec, typed, faults)) }
            @for fault in faults.iter().filter(|fault| !asks.iter().any(|spec| spec.name == fault.name)) { p.fault { (fault.name) " " (fault.message) } }
        },
        action: steps::decide_address(job_id, &step.name, "approve"),
        button,
        is_grave: false,
        back: links::job(job_id),
        here: Here::Jobs,
    };
    question.show_with(&view, status)
}

pub fn approve(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let form = Form::read(app, request)?;
    let (job_id, step) = suspended(app, request)?;
    let (values, unread) = inputs::read(&form, &step.asks);
    let decide = || {
        let output = (!step.asks.is_empty()).then(|| Json(Value::Object(values).to_string()));
        let decision = Decision::Approve { output };
        app.engine_for(request)
            .decide(step.step.step_id, decision, request.who(), app.clock.now())
    };
    let decided = match unread.is_empty() {
        true => Ok(decide()),
        false => Err(unread),
    };
    let faults = match decided {
        Ok(Ok(())) => {
            let said = if step.kind == "approval" {
                "approved"
            } else {
                "resumed"
            };
            return Ok(Response::see_other(format!("{}?said={said}", links::job(job_id))).into());
        }
        Ok(Err(EngineError::InputInvalid { violations, .. })) | Err(violations) => violations,
        Ok(Err(error)) => return Err(error.into()),
    };
    let typed = Typed::of_form(&form, &step.asks);
    approval(app, request, &typed, &faults, 422)
}

pub fn ask_reject(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let view = View::begin(app, request)?;
    let (job_id, step) = suspended(app, request)?;
    Question {
        title: format!("Reject {}?", step.name),
        text: html! {
            (message(&step))
            p { "The step fails, what depends on it is skipped, and its job fails with it, unless they say otherwise." }
            div.field { label for="act-why" { "Why " span.note { "(is written down)" } } input #act-why name="why" autocomplete="off"; }
        },
        action: steps::decide_address(job_id, &step.name, "reject"),
        button: "Reject",
        is_grave: true,
        back: links::job(job_id),
        here: Here::Jobs,
    }
    .show(&view)
}

pub fn reject(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let form = Form::read(app, request)?;
    let (job_id, step) = suspended(app, request)?;
    let why = form.said("why").unwrap_or("rejected").to_string();
    let now = app.clock.now();
    let decision = Decision::Reject { why };
    app.engine_for(request)
        .decide(step.step.step_id, decision, request.who(), now)?;
    Ok(Response::see_other(format!("{}?said=rejected", links::job(job_id))).into())
}

fn message(step: &StepDetail) -> Markup {
    html! { @if let Some(message) = &step.step.message { p { (message) } } }
}

/// The step of the path, which waits for a decision.
fn suspended(app: &App, request: &Request) -> Result<(i64, StepDetail), ApiError> {
    let job_id = of(app, request)?;
    let found = app.engine.step_detail(job_id, request.param(1))?;
    match found.step.state.as_str() {
        "suspended" => Ok((job_id.0, found)),
        state => {
            let message = format!(
                "step {} is {state}, it does not wait for a decision",
                found.name
            );
            Err(ApiError::new(409, "conflict", message))
        }
    }
}
