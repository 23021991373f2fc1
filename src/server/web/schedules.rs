//! Schedules: when they fire next, in words and in their own time zone; what became of the last time; pause, resume, fire now.

use maud::{Markup, html};

use super::ask::Question;
use super::form::Form;
use super::frame::{Here, Live, View};
use super::{links, parts};
use crate::cron::Cron;
use crate::domain::ScheduleId;
use crate::server::App;
use crate::server::api::show;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::Time;
use crate::wire::api::{FireJson, ScheduleJson};
use crate::words::calendar_time;

const PAGE: u32 = 100;

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["after", "said"])?;
    let after = ScheduleId(request.query_number("after")?.unwrap_or(0));
    let view = View::begin(app, request)?;
    // One more tells whether there are more.
    let found = app.engine.schedules(after, PAGE + 1)?;
    let shown = found.iter().take(PAGE as usize);
    let schedules: Vec<ScheduleJson> = shown.map(show::schedule).collect();
    let is_first = request.query("after").is_none();
    let next = schedules.last().filter(|_| found.len() > schedules.len());
    let next = next.map(|last| last.id.to_string());
    let main = html! {
        div.title { h1 { "Schedules " @if is_first { span.count { (schedules.len()) @if next.is_some() { "+" } } } } }
        section.box aria-label="Schedules" {
            @if schedules.is_empty() && !is_first { div.empty { "No more schedules." } }
            @else if schedules.is_empty() {
                div.empty {
                    p { "No task has a schedule. A task gets one in its file:" }
                    pre.json { "tasks:\n  backup:\n    timeout: 1h\n    schedules:\n      nightly: { cron: \"0 2 * * *\", timezone: Europe/Oslo }\n    flow: …" }
                }
            } @else { (table(&schedules, &view)) }
            (parts::paging(
                (!is_first).then(|| ("first", "/schedules".to_string())),
                next.as_deref().map(|next| ("more", links::with_query("/schedules", &[("after", Some(next))]))),
            ))
        }
    };
    view.page("Schedules", Here::Schedules)
        .live(Live::All)
        .refresh_secs(30)
        .show(main)
}

pub fn table(schedules: &[ScheduleJson], view: &View) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Schedules" {
            table {
                caption.hidden { "Schedules, when they fire next, and what became of the last time" }
                thead { tr { th scope="col" { "schedule" } th scope="col" { "next" } th.wide scope="col" { "when" } th.wide scope="col" { "last time" } th.wide scope="col" { "overlap, catch-up" } th scope="col" { span.hidden { "actions" } } } }
                tbody { @for schedule in schedules { (row(schedule, view)) } }
            }
        }
    }
}

fn row(schedule: &ScheduleJson, view: &View) -> Markup {
    html! {
        tr id={ "schedule-" (schedule.id) } {
            th.wrap scope="row" { a data-open href=(links::task(&schedule.task)) { (schedule.task) } "." (schedule.name) }
            td { (next(schedule, view)) }
            td.wide { (in_words(schedule)) br; code { (schedule.cron) } " " span.note { (schedule.timezone) } }
            td.wide.wrap { @if let Some(last) = &schedule.last { (fire(last, view)) } @else { (parts::none()) } }
            td.wide { (schedule.overlap) br; span.note { (catch_up(schedule)) } }
            td { (actions(schedule)) }
        }
    }
}

/// `At 02:00 every day`, as far as it can be said.
fn in_words(schedule: &ScheduleJson) -> String {
    let cron = Cron::parse(&schedule.cron, &schedule.timezone);
    cron.map_or_else(|_| "not understood".to_string(), |cron| cron.in_words())
}

/// The times as they are at its place.
fn next(schedule: &ScheduleJson, view: &View) -> Markup {
    html! {
        @if !schedule.loaded { span.state.state-warning { "in no file that loads" } }
        @else if schedule.paused { (parts::state("paused")) }
        @else if !schedule.enabled { span.state.state-pending { "turned off in its file" } }
        @else if let Some(at) = schedule.next_at {
            (parts::until(at, view.now)) br;
            details {
                summary.note { (there(at, &schedule.timezone)) }
                ol { @for at in &schedule.following { li { (there(*at, &schedule.timezone)) } } }
            }
        } @else { "never again" }
    }
}

/// Weekday, date and time in the schedule's own zone.
fn there(at: Time, timezone: &str) -> String {
    let zoned = calendar_time(at.0).in_tz(timezone);
    zoned.map_or_else(
        |_| parts::moment(at),
        |zoned| zoned.strftime("%a %Y-%m-%d %H:%M %Z").to_string(),
    )
}

fn fire(fire: &FireJson, view: &View) -> Markup {
    html! {
        (parts::state(&fire.outcome)) " "
        @if let Some(job) = fire.job_id { a href=(links::job(job)) { "job " (job) } " " }
        (parts::ago(fire.at, view.now))
        @if fire.manual { " " span.note { "by hand" } }
        @if fire.job_id.is_none() { br; span.note { (fire.message) } }
    }
}

fn catch_up(schedule: &ScheduleJson) -> String {
    let catch_up = &schedule.catch_up;
    match (&catch_up.within_secs, &catch_up.max) {
        (Some(secs), _) => format!(
            "{} within {}",
            catch_up.policy,
            crate::domain::span::span(secs * 1_000)
        ),
        (None, Some(max)) => format!("{}, at most {max}", catch_up.policy),
        (None, None) => catch_up.policy.clone(),
    }
}

fn actions(schedule: &ScheduleJson) -> Markup {
    let to = |verb: &str| format!("/schedules/{}/{verb}", schedule.id);
    let name = format!("{}.{}", schedule.task, schedule.name);
    let button = |word: &str, address: &str, name: &str| html! { a.button data-dialog href=(address) aria-label={ (word) " " (name) } { (word) } };
    html! {
        div.actions {
            @if schedule.paused { (button("Resume", &to("resume"), &name)) }
            @else if schedule.loaded && schedule.enabled { (button("Pause", &to("pause"), &name)) }
            @if schedule.loaded { (button("Fire now", &to("fire"), &name)) }
        }
    }
}

pub fn ask(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let view = View::begin(app, request)?;
    let schedule_id = app.engine.select_schedule(request.param(0))?;
    let schedule = show::schedule(&app.engine.schedule(schedule_id)?);
    let name = format!("{}.{}", schedule.task, schedule.name);
    let (title, text, button) = match request.param(1) {
        "pause" => (
            format!("Pause schedule {name}?"),
            "It makes no jobs until it is resumed, also over restarts and changes of its file.",
            "Pause",
        ),
        "resume" => (
            format!("Resume schedule {name}?"),
            "It fires again from its next time on; times that passed meanwhile are not made up for.",
            "Resume",
        ),
        "fire" => (
            format!("Fire {name} now?"),
            "A job is made at once, as if its time had come. Its next time stays as it is.",
            "Fire now",
        ),
        _ => return Err(unknown()),
    };
    Question {
        title,
        text: html! { p { (text) } },
        action: format!("/schedules/{}/{}", schedule.id, request.param(1)),
        button,
        is_grave: false,
        back: "/schedules".to_string(),
        here: Here::Schedules,
    }
    .show(&view)
}

pub fn act(app: &App, request: &Request) -> Result<Reply, ApiError> {
    Form::read(app, request)?;
    let schedule_id = app.engine.select_schedule(request.param(0))?;
    let now = app.clock.now();
    let to = match request.param(1) {
        "pause" => {
            app.engine_for(request)
                .pause_schedule(schedule_id, request.who(), now)?;
            "/schedules?said=schedule-paused".to_string()
        }
        "resume" => {
            app.engine_for(request)
                .resume_schedule(schedule_id, request.who(), now)?;
            "/schedules?said=schedule-resumed".to_string()
        }
        "fire" => {
            app.count_submissions(request, 1)?;
            let loaded = app.workflows.current();
            let task = |name: &str| loaded.tasks.get(name).cloned();
            let fired = app
                .engine_for(request)
                .fire_schedule(schedule_id, None, now, &task)?;
            format!("/jobs/{}?said=submitted", fired.job_id)
        }
        _ => return Err(unknown()),
    };
    app.scheduler.wake();
    Ok(Response::see_other(to).into())
}

fn unknown() -> ApiError {
    ApiError::not_found("a schedule can be paused, resumed and fired")
}
