//! The first page: what is wrong, what runs, what comes next. An installation that has done nothing yet teaches what to do.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::frame::{Here, Live, View};
use super::{links, parts};
use crate::domain::job::{JobFilter, JobState};
use crate::domain::token::Role;
use crate::domain::{ScheduleId, Timestamp, WorkerId};
use crate::engine::{EngineError, ListedJob};
use crate::problems::{Problem, RECENT_MS, Told, problems};
use crate::server::App;
use crate::server::api::{health, recovery, show, workflows};
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request};
use crate::wire::api::{JobJson, QueuedJson, ScheduleJson, ServedWorkflows, WorkerJson};

/// The page counts jobs, waiting steps and schedules up to this number. It counts all workers.
const LOOKED_AT: u32 = 500;
/// On the page.
const ROWS: usize = 12;
const NEXT: usize = 5;

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["said"])?;
    let view = View::begin(app, request)?;
    let found = Found::look(&view)?;
    let problems = found.problems(&view)?;
    let main = html! {
        div.title { h1 { "Overview" } }
        (problems_box(&problems, found.is_new()))
        @if found.is_new() { (first_steps(&found.workflows)) }
        div.columns {
            (running(&found, &view))
            (waiting(&found))
            (workers(&found, &view))
            (next(&found, &view))
        }
        (last(&found, &view))
    };
    view.page("Overview", Here::Overview)
        .live(Live::All)
        .refresh_secs(10)
        .show(main)
}

/// What the page is made of.
struct Found {
    workflows: ServedWorkflows,
    workers: Vec<WorkerJson>,
    queued: Vec<QueuedJson>,
    queued_more: bool,
    running: Vec<JobJson>,
    failed: Vec<JobJson>,
    last: Vec<JobJson>,
    schedules: Vec<ScheduleJson>,
}

impl Found {
    fn look(view: &View) -> Result<Found, ApiError> {
        let (app, now) = (view.app, view.now);
        let workers = app.engine.workers(WorkerId(0), u32::MAX, now)?;
        let (queued, next) = app.engine.queue(None, LOOKED_AT, now)?;
        let shown = |jobs: Vec<ListedJob>| -> Vec<JobJson> {
            let jobs = jobs.iter();
            jobs.map(|listed| show::job(&listed.job, listed.parent.as_ref()))
                .collect()
        };
        let engine = &app.engine;
        let since = Timestamp(now.wall.0 - RECENT_MS);
        let (last, _) = engine.jobs(None, &JobFilter::default(), ROWS as u32)?;
        Ok(Found {
            workflows: workflows::look(app),
            workers: workers.iter().map(show::worker).collect(),
            queued: queued.iter().map(show::waiting).collect(),
            queued_more: next.is_some(),
            running: shown(engine.open_jobs(JobState::Running, LOOKED_AT)?),
            failed: shown(engine.jobs_in_trouble(since, LOOKED_AT)?),
            last: shown(last),
            schedules: upcoming(app)?,
        })
    }

    fn problems(&self, view: &View) -> Result<Vec<Problem>, ApiError> {
        let app = view.app;
        let (mut health, recovery) = (health::look(app), recovery::look(app)?);
        health.notices = health::notices(app, view.request.caller.may(Role::Admin));
        let backups = app.backups.look();
        Ok(problems(&Told {
            backups: Some(&backups),
            health: &health,
            workflows: &self.workflows,
            recovery: &recovery,
            workers: &self.workers,
            queued: &self.queued,
            queued_more: self.queued_more,
            failed: &self.failed,
            failed_more: self.failed.len() >= LOOKED_AT as usize,
            start_worker: &view.start_worker(),
            now: view.now.wall,
        }))
    }

    /// Nobody has ever run anything here.
    fn is_new(&self) -> bool {
        self.last.is_empty()
    }
}

/// Schedules that will fire, the soonest first.
fn upcoming(app: &App) -> Result<Vec<ScheduleJson>, EngineError> {
    let schedules = app.engine.schedules(ScheduleId(0), LOOKED_AT)?;
    let mut next: Vec<ScheduleJson> = schedules.iter().map(show::schedule).collect();
    next.retain(|schedule| schedule.is_due());
    next.sort_by_key(|schedule| schedule.next_at.map(|at| at.0.0));
    next.truncate(NEXT);
    Ok(next)
}

fn problems_box(problems: &[Problem], is_new: bool) -> Markup {
    html! {
        @if problems.is_empty() && !is_new {
            p.well #well { (parts::sign("completed")) "All is well: no failed job within a day, no lost worker, no step that nobody can run." }
        } @else if !problems.is_empty() {
            section.box #problems aria-labelledby="problems-title" {
                header { h2 #problems-title { (parts::count(problems.len(), "problem")) } }
                @for problem in problems {
                    div.problem {
                        (parts::sign("problem"))
                        div {
                            p.wrap { a href=(problem.page) { (problem.code) } ": " (problem.message) }
                            p.note { (parts::fix_text(&problem.fix)) }
                        }
                    }
                }
            }
        }
    }
}

/// What to do next, by what is there already.
fn first_steps(workflows: &ServedWorkflows) -> Markup {
    html! {
        section.box #first-steps aria-labelledby="first-title" {
            header { h2 #first-title { "Begin here" } }
            div.in {
                p { "No job has run on this server yet." }
                @if workflows.tasks > 0 {
                    p { "It has " a href="/tasks" { (parts::count(workflows.tasks, "task")) } ". Open one and run it there, or at the prompt:" }
                    p { (parts::command("stepward task ls")) }
                    p { (parts::command("stepward run TASK --watch")) }
                } @else if workflows.folder.is_some() {
                    p { "Its folder of workflows, " code { (workflows.folder.as_deref().unwrap_or_default()) } ", is empty. A file is loaded as soon as it is saved there; this writes an example into the folder " code { "workflows" } " where it is typed:" }
                    p { (parts::command("stepward init")) }
                } @else {
                    p { "It serves no workflows. Have an example written, and start it with the folder:" }
                    p { (parts::command("stepward init")) }
                    p { (parts::command("stepward server --workflows-dir workflows --embedded-worker")) }
                }
                p { "See what recovery does about workers that die and steps that hang, in twenty seconds and a folder of its own:" }
                p { (parts::command("stepward demo")) }
            }
        }
    }
}

/// Behind a count that may be larger.
fn more(n: usize) -> &'static str {
    match n >= LOOKED_AT as usize {
        true => "+",
        false => "",
    }
}

fn running(found: &Found, view: &View) -> Markup {
    let jobs = &found.running;
    html! {
        section.box aria-labelledby="running-title" {
            header { h2 #running-title { "Running now " span.count { (jobs.len()) (more(jobs.len())) } } a.more href=(links::jobs("status:running")) { "all" } }
            @if jobs.is_empty() { div.empty { "Nothing runs." } }
            @else {
                table {
                    caption.hidden { "Jobs that run" }
                    thead { tr { th scope="col" { "job" } th scope="col" { "task" } th.number scope="col" { "for" } } }
                    tbody {
                        @for job in jobs.iter().take(ROWS) {
                            tr id={ "running-" (job.id) } {
                                td { a data-open href=(links::job(job.id)) { (job.id) } }
                                td.wrap { (job.task) }
                                td.number { (parts::since(job.started_at.unwrap_or(job.created_at), view.now)) }
                            }
                        }
                    }
                }
                @if jobs.len() > ROWS { div.paging { a href=(links::jobs("status:running")) { "and " (jobs.len() - ROWS) (more(jobs.len())) " more" } } }
            }
        }
    }
}

fn waiting(found: &Found) -> Markup {
    let mut by_reason: BTreeMap<&str, usize> = BTreeMap::new();
    for step in &found.queued {
        *by_reason.entry(&step.why.code).or_insert(0) += 1;
    }
    let more = if found.queued_more { "+" } else { "" };
    html! {
        section.box aria-labelledby="waiting-title" {
            header { h2 #waiting-title { "Waiting steps " span.count { (found.queued.len()) (more) } } a.more href="/queue" { "queue" } }
            @if by_reason.is_empty() { div.empty { "No step waits for a worker, a person or its turn." } }
            @else {
                table {
                    caption.hidden { "Steps that wait, by reason" }
                    thead { tr { th scope="col" { "reason" } th.number scope="col" { "steps" } } }
                    tbody {
                        @for (reason, n) in &by_reason {
                            tr { td { a data-open href={ "/queue#" (reason) } { (reason) } } td.number { (n) } }
                        }
                    }
                }
            }
        }
    }
}

fn workers(found: &Found, view: &View) -> Markup {
    let there = found
        .workers
        .iter()
        .filter(|worker| worker.status == "active");
    let slots: u32 = there.clone().map(|worker| worker.slots).sum();
    let used: u32 = there.map(|worker| worker.slots_used).sum();
    html! {
        section.box aria-labelledby="workers-title" {
            header { h2 #workers-title { "Workers " span.count { (found.workers.len()) } } a.more href="/workers" { (used) " of " (slots) " slots used" } }
            @if found.workers.is_empty() {
                (parts::empty("No worker has ever connected. Start one on this machine or another:", &[&view.start_worker()]))
            } @else {
                table {
                    caption.hidden { "Workers" }
                    thead { tr { th scope="col" { "worker" } th scope="col" { "state" } th.number scope="col" { "slots" } } }
                    tbody {
                        @for worker in found.workers.iter().take(ROWS) {
                            tr id={ "overview-worker-" (worker.id) } {
                                td.wrap { a data-open href=(links::worker(worker.id)) { (worker.name) } }
                                td { (parts::state(worker.standing())) }
                                td.number { (worker.slots_used) "/" (worker.slots) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn next(found: &Found, view: &View) -> Markup {
    html! {
        section.box aria-labelledby="next-title" {
            header { h2 #next-title { "Next schedules" } a.more href="/schedules" { "all" } }
            @if found.schedules.is_empty() { div.empty { "No schedule will fire." } }
            @else {
                table {
                    caption.hidden { "Schedules that fire next" }
                    thead { tr { th scope="col" { "schedule" } th scope="col" { "next" } } }
                    tbody {
                        @for schedule in &found.schedules {
                            tr {
                                td.wrap { a data-open href=(links::task(&schedule.task)) { (schedule.task) "." (schedule.name) } }
                                td { @if let Some(at) = schedule.next_at { (parts::until(at, view.now)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn last(found: &Found, view: &View) -> Markup {
    html! {
        @if !found.last.is_empty() {
            section.box aria-labelledby="last-title" {
                header { h2 #last-title { "Last jobs" } a.more href="/jobs" { "all" } }
                div.scroll tabindex="0" role="group" aria-label="Last jobs" { table {
                    caption.hidden { "The newest jobs" }
                    thead { tr { th scope="col" { "job" } th scope="col" { "task" } th scope="col" { "state" } th.wide scope="col" { "what happened" } th.number scope="col" { "took" } th.number scope="col" { "made" } } }
                    tbody {
                        @for job in &found.last {
                            tr id={ "last-" (job.id) } {
                                td { a data-open href=(links::job(job.id)) { (job.id) } }
                                td.wrap { a href=(links::task(&job.task)) { (job.task) } }
                                td { (parts::state(&job.status)) }
                                td.wide.wrap { @if let Some(message) = &job.message { (message) } }
                                td.number { (parts::took(job.started_at, job.ended_at, view.now)) }
                                td.number { (parts::ago(job.created_at, view.now)) }
                            }
                        }
                    }
                } }
            }
        }
    }
}
