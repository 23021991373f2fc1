//! Workers: how long since each was heard, against how long it may be silent; what is in its slots; drain, pause, delete.

use maud::{Markup, html};

use super::ask::Question;
use super::form::Form;
use super::frame::{Here, Live, View};
use super::{links, parts};
use crate::domain::{Now, WorkerId};
use crate::engine::{Engine, EngineError};
use crate::server::App;
use crate::server::api::show;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::WorkerJson;

const PAGE: u32 = 100;
/// Shown one by one; of more, the number.
const SLOTS_MAX: u32 = 32;

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["after", "said"])?;
    let after = WorkerId(request.query_number("after")?.unwrap_or(0));
    let view = View::begin(app, request)?;
    // One more tells whether there are more.
    let found = app.engine.workers(after, PAGE + 1, view.now)?;
    let shown = found.iter().take(PAGE as usize);
    let workers: Vec<WorkerJson> = shown.map(show::worker).collect();
    let next = workers.last().filter(|_| found.len() > workers.len());
    let next = next.map(|last| last.id.to_string());
    let is_first = request.query("after").is_none();
    let more = if next.is_some() { "+" } else { "" };
    let main = html! {
        div.title { h1 { "Workers " @if is_first { span.count { (workers.len()) (more) } } } }
        section.box aria-label="Workers" {
            @if workers.is_empty() && !is_first { div.empty { "No more workers." } }
            @else if workers.is_empty() {
                (parts::empty("No worker is connected. Start one on this machine or another:",
                    &[&view.start_worker(), &format!("{} --tags script,docker --slots 4", view.start_worker())]))
            } @else { (table(&workers, &view)) }
            (parts::paging(
                (!is_first).then(|| ("first", "/workers".to_string())),
                next.as_deref().map(|next| ("more", links::with_query("/workers", &[("after", Some(next))]))),
            ))
        }
    };
    view.page("Workers", Here::Workers)
        .live(Live::All)
        .refresh_secs(10)
        .show(main)
}

fn table(workers: &[WorkerJson], view: &View) -> Markup {
    let timeout_ms = view.app.engine.settings.heartbeat_timeout_ms;
    html! {
        div.scroll tabindex="0" role="group" aria-label="Workers" {
            table {
                caption.hidden { "Workers, how long since each was heard, and what is in its slots" }
                thead { tr { th scope="col" { "worker" } th scope="col" { "state" } th scope="col" { "heard" } th scope="col" { "slots" } th.wide scope="col" { "tags" } th.wide scope="col" { "version" } th scope="col" { span.hidden { "actions" } } } }
                tbody {
                    @for worker in workers {
                        tr id={ "worker-" (worker.id) } {
                            th.wrap scope="row" { (worker.name) " " span.count { "#" (worker.id) } }
                            td { (parts::state(worker.standing())) }
                            td { (heard(worker, timeout_ms, view.now)) }
                            td { (slots(worker)) }
                            td.wide { (parts::tags(&worker.tags)) }
                            td.wide { (version(worker)) }
                            td { (actions(worker)) }
                        }
                    }
                }
            }
        }
    }
}

/// The age of the last sign of life as a bar that is full when the worker is given up.
fn heard(worker: &WorkerJson, timeout_ms: i64, now: Now) -> Markup {
    let age_ms = (worker.heartbeat_age_secs * 1_000.0) as i64;
    let heard_ms = now.wall.0 - age_ms;
    let share = (age_ms * 100 / timeout_ms.max(1)).clamp(0, 100);
    let class = match (worker.status.as_str(), share) {
        ("inactive", _) => "beat lost",
        (_, 51..) => "beat late",
        _ => "beat",
    };
    let is_active = worker.status == "active";
    html! {
        @if is_active {
            svg class=(class) viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"
                data-beat=(heard_ms) data-limit=(timeout_ms) {
                rect.ground x="0" y="0" width="100" height="6" {}
                rect.age x="0" y="0" width=(share) height="6" {}
            }
        }
        span.number { span data-ago=(heard_ms) { (crate::domain::span::span(age_ms)) " ago" } }
        @if is_active {
            span.note { " of " (timeout_ms / 1_000) " s" }
            @if share > 50 && let Some(in_secs) = worker.inactive_in_secs {
                br; span.outcome { "inactive " (parts::countdown(in_secs, now)) }
            }
        }
    }
}

fn slots(worker: &WorkerJson) -> Markup {
    let is_there = worker.status == "active";
    let free = worker.slots.saturating_sub(worker.slots_used);
    let free = if is_there { free } else { 0 };
    html! {
        ul.slots aria-label={ (worker.slots_used) " of " (worker.slots) " slots used" } {
            @for held in &worker.running {
                li.used.wrap { a href=(links::step(held.job_id, &held.step)) { (held.job_id) "/" (held.step) } " " span.hidden { (held.status) } }
            }
            @for _ in 0..free.min(SLOTS_MAX) { li title="free" { span.hidden { "free" } } }
            @if free > SLOTS_MAX { li { "and " (free - SLOTS_MAX) " free" } }
        }
    }
}

/// A worker of another version is told apart: it works, but nobody should forget it.
fn version(worker: &WorkerJson) -> Markup {
    let is_other = worker.version != env!("CARGO_PKG_VERSION");
    html! {
        (worker.version) @if is_other { " " span.state.state-warning { "not the server's" } }
        br; span.note { (worker.platform) }
    }
}

fn actions(worker: &WorkerJson) -> Markup {
    let to = |verb: &str| format!("/workers/{}/{verb}", worker.id);
    html! {
        div.actions {
            @if worker.status == "active" && !worker.draining {
                @if worker.paused { (button("Resume", &to("resume"), &worker.name)) }
                @else { (button("Pause", &to("pause"), &worker.name)) }
                (button("Drain", &to("drain"), &worker.name))
            }
            (button("Delete", &to("delete"), &worker.name))
        }
    }
}

/// Of what it is, for those who do not see its row.
fn button(word: &str, address: &str, name: &str) -> Markup {
    html! { a.button data-dialog href=(address) aria-label={ (word) " worker " (name) } { (word) } }
}

/// What can be done to a worker: (verb, title, button, what it means, what is said afterwards).
type Verb = fn(&Engine, WorkerId, Now) -> Result<(), EngineError>;

#[rustfmt::skip]
const VERBS: &[(&str, &str, &str, Verb, &str)] = &[
    ("drain",  "It finishes what runs on it, gives back what it has not started, and leaves. Start it again to have it back.", "Drain",  Engine::drain,  "drained"),
    ("pause",  "What runs on it goes on. It takes nothing more until it is resumed. Recovery does not count on it meanwhile: a step that only it could take fails when its time is up.", "Pause", Engine::pause, "paused"),
    ("resume", "It takes steps again.", "Resume", Engine::resume, "worker-resumed"),
    ("delete", "", "Delete", |engine, worker_id, now| engine.delete_worker(worker_id, true, now), "deleted"),
];

/// Says what would happen.
pub fn ask(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let view = View::begin(app, request)?;
    let (verb, text, button, _, _) = find(request)?;
    let worker_id = app.engine.select_worker(request.param(0))?;
    let worker = show::worker(&app.engine.worker(worker_id, view.now)?);
    let text = match *verb {
        "delete" => deleted(&worker),
        _ => html! { p { (text) } (held(&worker)) },
    };
    Question {
        title: format!("{button} worker {}?", worker.name),
        text,
        action: format!("/workers/{}/{verb}", worker.id),
        button,
        is_grave: *verb == "delete",
        back: "/workers".to_string(),
        here: Here::Workers,
    }
    .show(&view)
}

pub fn act(app: &App, request: &Request) -> Result<Reply, ApiError> {
    Form::read(app, request)?;
    let (_, _, _, act, said) = find(request)?;
    let worker_id = app.engine.select_worker(request.param(0))?;
    act(&app.engine_for(request), worker_id, app.clock.now())?;
    Ok(Response::see_other(format!("/workers?said={said}")).into())
}

fn find(
    request: &Request,
) -> Result<&'static (&'static str, &'static str, &'static str, Verb, &'static str), ApiError> {
    // Deleting has an address of its own, for it takes another role.
    let verb = request.params.get(1).map_or("delete", String::as_str);
    let found = VERBS.iter().find(|(known, ..)| *known == verb);
    found.ok_or_else(|| ApiError::not_found("a worker can be drained, paused, resumed and deleted"))
}

fn held(worker: &WorkerJson) -> Markup {
    html! {
        @if !worker.running.is_empty() {
            p { "It has " (parts::count(worker.running.len(), "step")) " now:" }
            ul { @for held in &worker.running { li { "job " (held.job_id) ", step " (held.step) ", " (held.status) } } }
        }
    }
}

fn deleted(worker: &WorkerJson) -> Markup {
    let started = worker
        .running
        .iter()
        .filter(|held| held.status == "running");
    let started = started.count();
    let waiting = worker.running.len() - started;
    html! {
        p { "The server forgets it. Nothing of its folder is touched." }
        @if worker.running.is_empty() { p { "It holds no step." } }
        @if started > 0 { p.fault { (parts::count(started, "running step")) " of it will fail (worker_deleted), what depends on them is skipped, and their jobs fail with them, unless they say otherwise." } }
        @if waiting > 0 { p { (parts::count(waiting, "step")) " that it has not started go back to the queue." } }
        @if worker.status == "active" { p { "It is connected: if its process still runs, it stops what it has and comes back as a new worker. Drain it to have it leave in peace." } }
        (held(worker))
    }
}
