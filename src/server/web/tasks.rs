//! Tasks: what can be run, how it went the last times, when it runs next, and what is wrong with the files.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::frame::{Here, Live, View};
use super::{links, outcomes, parts, source};
use crate::domain::ScheduleId;
use crate::domain::task::Task;
use crate::engine::EngineError;
use crate::server::App;
use crate::server::api::show;
use crate::server::catalogue::Loaded;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request};
use crate::store::PastJob;
use crate::wire::api::ScheduleJson;

const PAGE: usize = 100;
const OUTCOMES: u32 = 12;
const SCHEDULES: u32 = 1_000;

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["q", "after", "said"])?;
    let view = View::begin(app, request)?;
    let loaded = app.workflows.current();
    let sought = request.query("q").unwrap_or_default().to_lowercase();
    let after = request.query("after").unwrap_or_default();
    let fits = |task: &&Task| {
        let description = task.draft.description.as_deref().unwrap_or_default();
        task.draft.name.to_lowercase().contains(&sought)
            || description.to_lowercase().contains(&sought)
    };
    let tasks = loaded
        .tasks_after(after)
        .map(|frozen| frozen.definition.root());
    // One more tells whether there are more.
    let mut tasks: Vec<&Task> = tasks.filter(fits).take(PAGE + 1).collect();
    let is_full = tasks.len() > PAGE;
    tasks.truncate(PAGE);
    let names: Vec<&str> = tasks.iter().map(|task| task.draft.name.as_str()).collect();
    let past = app.engine.last_of_tasks(&names, OUTCOMES)?;
    let next_fires = next_fires(app)?;
    let next = names.last().filter(|_| is_full).copied();
    let main = html! {
        div.title { h1 { "Tasks " span.count { (loaded.tasks.len()) } } }
        (problems(&loaded))
        form.filter role="search" method="get" action="/tasks" {
            label.hidden for="q" { "Filter" }
            input #q type="search" name="q" value=(sought) data-filter placeholder="part of a name or a description" autocomplete="off";
            button { "Filter" }
        }
        section.box aria-label="Tasks" {
            @if tasks.is_empty() { (nothing(app, &loaded, &sought)) }
            @else { (table(&tasks, &past, &next_fires, &loaded, &view)) }
            (parts::paging(
                (!after.is_empty()).then(|| ("first", "/tasks".to_string())),
                next.map(|next| ("more", links::with_query("/tasks", &[("q", request.query("q")), ("after", Some(next))]))),
            ))
        }
    };
    view.page("Tasks", Here::Tasks).live(Live::All).show(main)
}

/// By task, the soonest.
fn next_fires(app: &App) -> Result<BTreeMap<String, ScheduleJson>, EngineError> {
    let mut soonest: BTreeMap<String, ScheduleJson> = BTreeMap::new();
    for schedule in app.engine.schedules(ScheduleId(0), SCHEDULES)? {
        let schedule = show::schedule(&schedule);
        let at = |schedule: &ScheduleJson| schedule.next_at.map(|at| at.0.0);
        let is_sooner = soonest
            .get(&schedule.task)
            .is_none_or(|known| at(&schedule) < at(known));
        if schedule.is_due() && is_sooner {
            soonest.insert(schedule.task.clone(), schedule);
        }
    }
    Ok(soonest)
}

fn problems(loaded: &Loaded) -> Markup {
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    for problem in loaded.problems.iter().filter(|problem| problem.is_error()) {
        *files.entry(&problem.at.file).or_insert(0) += 1;
    }
    html! {
        @if !files.is_empty() {
            section.box #broken aria-labelledby="broken-title" {
                header { h2 #broken-title { (parts::count(files.len(), "file")) " with errors" } }
                @for (file, errors) in &files {
                    div.problem {
                        (parts::sign("problem"))
                        div {
                            p.wrap { a href=(source::address(file)) { (file) } ": " (parts::count(*errors, "error")) ", " (standing(loaded, file)) }
                            @for problem in loaded.problems.iter().filter(|problem| problem.at.file == *file && problem.is_error()).take(3) {
                                p.note { "line " (problem.at.line) ": " (problem.message) " [" (problem.code) "]" }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What becomes of a file that does not load.
pub fn standing(loaded: &Loaded, file: &str) -> &'static str {
    match (
        loaded.stale.iter().any(|known| known == file),
        loaded.left_out.iter().any(|known| known == file),
    ) {
        (true, _) => "served as it was when it was last good",
        (false, true) => "not served",
        (false, false) => "served",
    }
}

fn nothing(app: &App, loaded: &Loaded, sought: &str) -> Markup {
    match (sought, &app.workflows_dir) {
        ("", None) => parts::empty(
            "This server serves no workflows. Write an example, and start it with the folder:",
            &[
                "stepward init",
                "stepward server --workflows-dir workflows --embedded-worker",
            ],
        ),
        ("", Some(folder)) if loaded.tasks.is_empty() => html! {
            div.empty {
                p { "There is no task in " code { (folder.display()) } " that loads. A file is loaded as soon as it is saved there:" }
                p { (parts::command("stepward init")) }
            }
        },
        _ => html! { div.empty { "No task fits." } },
    }
}

fn table(
    tasks: &[&Task],
    past: &[Vec<PastJob>],
    next_fires: &BTreeMap<String, ScheduleJson>,
    loaded: &Loaded,
    view: &View,
) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Tasks" {
            table {
                caption.hidden { "Tasks, how their last jobs went, and when they run next" }
                thead { tr { th scope="col" { "task" } th scope="col" { "last jobs" } th scope="col" { "last" } th.number scope="col" { "usually" } th.wide scope="col" { "next" } th.wide scope="col" { "written in" } th scope="col" { span.hidden { "actions" } } } }
                tbody {
                    @for (task, past) in tasks.iter().zip(past) {
                        @let name = &task.draft.name;
                        tr id={ "task-" (name) } {
                            th.wrap scope="row" {
                                a data-open href=(links::task(name)) { (name) }
                                @if loaded.places.get(name).is_some_and(|place| loaded.stale.contains(&place.file)) { " " span.state.state-warning { (parts::sign("problem")) "its file is broken" } }
                                @if let Some(description) = &task.draft.description { br; span.count { (description) } }
                            }
                            td { (outcomes::strip(past)) }
                            td { @if let Some(last) = past.first() { (parts::state(last.state.as_str())) " " (parts::ago(last.ended_at.unwrap_or(last.created_at).into(), view.now)) } @else { "never" } }
                            td.number { @if let Some((half, _)) = outcomes::usual_ms(past) { (parts::duration(half)) } @else { (parts::none()) } }
                            td.wide { @if let Some(at) = next_fires.get(name).and_then(|next| next.next_at) { (parts::until(at, view.now)) } @else { (parts::none()) } }
                            td.wide.wrap { @if let Some(place) = loaded.places.get(name) { a href={ (links::task(name)) "#L" (place.line) } { (short(&place.file)) ":" (place.line) } } }
                            td { a.button href={ (links::task(name)) "#run" } aria-label={ "Run " (name) } { "Run…" } }
                        }
                    }
                }
            }
        }
    }
}

/// Without the folders.
fn short(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}
