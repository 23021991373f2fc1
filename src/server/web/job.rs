//! A job: why it is where it is, what waits for what, how time went, its steps with their attempts and logs, what the server did about
//! it, where it comes from and what came of it.

use std::collections::HashMap;

use maud::{Markup, PreEscaped, html};

use super::frame::{Here, Live, View};
use super::jobs::by;
use super::{events, links, log, parts, steps, timeline};
use crate::domain::{EventSeq, JobId};
use crate::graph;
use crate::server::App;
use crate::server::api::{jobs, show};
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::store::RelatedJob;
use crate::wire::api::{EventJson, JobJson, JobWhyJson, StepJson, StepWhyJson};

const EVENTS: u32 = 200;
const RELATED: u32 = 20;
/// Steps whose waiting or ending the banner tells one by one.
const EXPLAINED: usize = 5;

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["step", "attempt", "line", "show", "after", "graph", "said"])?;
    let view = View::begin(app, request)?;
    let job_id = jobs::selected(app, request.param(0))?;
    // A name for whichever is the latest must not become another page under somebody's eyes.
    if request.param(0) != job_id.to_string() {
        return Ok(Response::see_other(links::job(job_id.0)).into());
    }
    let detail = app.engine.job_detail(job_id)?;
    let why = show::job_why(&app.engine.why_job(job_id, view.now)?, view.now);
    let job = show::job_detail(&detail, view.now);
    let mut story = app
        .engine
        .story_before(job_id, EventSeq(i64::MAX), EVENTS)?;
    story.reverse();
    let first = app.engine.story(job_id, EventSeq(0), 1)?;
    let made_by = first.into_iter().next().and_then(|told| told.event.actor);
    let related = app.engine.descendants(job_id, RELATED)?;
    let all = job.steps.as_deref().unwrap_or_default();
    let selected = selected(request, &why, all)?;
    let story: Vec<EventJson> = story.into_iter().map(show::event).collect();
    let main = html! {
        (head(&job, made_by.as_deref(), &view))
        (banner(&job, &why, &view))
        (decisions(&job, all))
        div.pictures #pictures {
            @if all.len() > 1 { (graph_box(&job, request, selected)) }
            (timeline::section(&job, &why, selected, &view))
        }
        (steps::table(&job, all, selected, &why, request, &view))
        @if let Some(step) = selected { (steps::panel(&job, step, &why, request, &view)) (log::panel(&job, step, request, &view)?) }
        (server_events(&job, &story, &view))
        div.columns { (facts(&job, &view)) (lineage(&job, all, &related)) }
    };
    let page = view
        .page(format!("{} {}", job.task, job.id), Here::Jobs)
        .live(Live::Jobs(concerned(&job, all)));
    match (job.ended_at, request.query("graph")) {
        // Thousands of steps are not drawn again and again.
        (_, Some(_)) => page.live(Live::No).show(main),
        (None, None) => page.refresh_secs(3).show(main),
        (Some(_), None) => page.show(main),
    }
}

/// The job itself and those that its state depends on.
fn concerned(job: &JobJson, all: &[StepJson]) -> Vec<i64> {
    const JOBS_MAX: usize = 100;
    let children = all.iter().filter_map(|step| step.child_job_id);
    let mut jobs: Vec<i64> = vec![job.id];
    jobs.extend(children.take(JOBS_MAX));
    jobs
}

/// The step that is asked for; else the one that somebody most probably wants to see.
fn selected<'s>(
    request: &Request,
    why: &JobWhyJson,
    all: &'s [StepJson],
) -> Result<Option<&'s StepJson>, ApiError> {
    let named = |name: &str| all.iter().find(|step| step.name == name);
    if let Some(name) = request.query("step") {
        let fault = || ApiError::not_found(format!("the job has no step {name:?}"));
        return named(name).ok_or_else(fault).map(Some);
    }
    let is = |state: &'static str| move |step: &&StepJson| step.status == state && step.attempt > 0;
    let root = why.why.root_cause.as_ref();
    let root = root
        .filter(|root| root.job_id == why.job_id)
        .and_then(|root| named(&root.step));
    // What the banner speaks of first.
    let waits = || why.steps.first().and_then(|step| named(&step.step));
    Ok(root
        .or_else(|| all.iter().find(is("failed")))
        .or_else(|| all.iter().find(is("running")))
        .or_else(waits)
        .or_else(|| all.iter().find(is("cancelled")))
        .or_else(|| all.iter().rfind(is("completed"))))
}

/// `made_by`: who asked for it, if somebody did.
fn head(job: &JobJson, made_by: Option<&str>, view: &View) -> Markup {
    let is_open = job.ended_at.is_none();
    html! {
        div.title {
            h1 { a href=(links::task(&job.task)) { (job.task) } " " span.count { "job " (job.id) } }
            (parts::state(&job.status))
            span { (parts::took(job.started_at, job.ended_at, view.now)) }
            span.note { "made " (parts::ago(job.created_at, view.now)) " by " (by(job)) @if let Some(actor) = made_by { " (" (actor) ")" } }
            div.actions {
                @if is_open { a.button data-dialog href={ (links::job(job.id)) "/cancel" } { "Cancel…" } }
                @else {
                    a.button data-dialog href={ (links::job(job.id)) "/retry" } { "Retry…" }
                    a.button href={ (links::task(&job.task)) "?from=" (job.id) "#run" } { "Run again with other input…" }
                }
            }
        }
    }
}

/// In words, first of all.
fn banner(job: &JobJson, why: &JobWhyJson, view: &View) -> Markup {
    let told: Vec<&StepWhyJson> = why.steps.iter().take(EXPLAINED).collect();
    let more = why.steps.len() + why.more_steps - told.len();
    let waits = why
        .steps
        .iter()
        .any(|step| step.status == "ready" || step.status == "suspended");
    let shade = match job.status.as_str() {
        "running" if waits => "waits",
        status => status,
    };
    let counts: Vec<String> = why
        .counts
        .iter()
        .map(|(state, n)| format!("{n} {state}"))
        .collect();
    html! {
        section #why class={ "why why-" (shade) } aria-label="Why" {
            p { (why.why.sentence) }
            p.note { (counts.join(", ")) }
            // What the steps tell one by one is not told twice.
            @if job.ended_at.is_some() || told.is_empty() { (parts::why_details(&why.why, view.now)) }
            @for step in &told {
                details open[told.len() == 1 && job.ended_at.is_none()] id={ "why-" (step.step) } {
                    summary { b { (step.step) } " " (parts::state(&step.status)) " " (step.why.sentence)
                        @if let Some(outcome) = step.why.outcome.as_ref().filter(|outcome| parts::is_soon(outcome)) { " " (parts::outcome(outcome, view.now)) }
                    }
                    (parts::why_reasons(&step.why))
                    p { a href=(links::step(job.id, &step.step)) { "To step " (step.step) } }
                }
            }
            @if more > 0 { p.note { "and " (parts::count(more, "more step")) } }
        }
    }
}

/// What a person must decide, where nobody can miss it.
fn decisions(job: &JobJson, all: &[StepJson]) -> Markup {
    let waiting = all.iter().filter(|step| step.status == "suspended");
    let waiting: Vec<&StepJson> = waiting.take(EXPLAINED).collect();
    html! {
        @for step in &waiting {
            section.box.decision id={ "decide-" (step.id) } aria-label={ "Decision about " (step.name) } {
                div.in.title {
                    span { (parts::sign("suspended")) " " b { (step.name) } " waits for a person: " (step.message.as_deref().unwrap_or("go on?")) }
                    div.actions {
                        a.button data-dialog href=(steps::decide_address(job.id, &step.name, "approve")) { @if step.kind == "approval" { "Approve…" } @else { "Run it again…" } }
                        a.button data-dialog href=(steps::decide_address(job.id, &step.name, "reject")) { @if step.kind == "approval" { "Reject…" } @else { "Fail it…" } }
                    }
                }
            }
        }
    }
}

fn graph_box(job: &JobJson, request: &Request, selected: Option<&StepJson>) -> Markup {
    let whole = graph::of_job(job);
    let count = whole.nodes.len();
    let is_large = count > graph::SHOWN_MAX;
    let shows_all = request.query("graph") == Some("all");
    let shown_max = if shows_all {
        usize::MAX
    } else {
        graph::SHOWN_MAX
    };
    html! {
        details.box #graph open {
            summary { h2 { "What waits for what " span.count { (parts::count(count, "step")) } } }
            // Not in what opens and closes it: a link within a button is reached by nobody who needs a reader.
            p.paging {
                @if is_large && !shows_all { a href={ (links::job(job.id)) "?graph=all#graph" } { "draw every step" } }
                a href={ (links::job(job.id)) "/graph.svg" } download={ "job-" (job.id) ".svg" } { "download" }
            }
            div.graph-box.in tabindex="0" role="group" aria-label="Graph" { (drawn(&whole, shown_max, job.id, selected)) }
        }
    }
}

fn drawn(
    whole: &graph::Graph,
    shown_max: usize,
    job_id: i64,
    selected: Option<&StepJson>,
) -> Markup {
    let collapsed = graph::collapsed(whole, shown_max);
    let layout = graph::layout(&collapsed.graph);
    // The instance of a loop is told with the loop.
    let name = selected.map(|step| step.name.split('[').next().unwrap_or(&step.name));
    let picture = graph::Picture {
        prefix: "job-",
        href: &|at| {
            let first = collapsed.members.get(at)?.first()?;
            Some(format!("{}#steps", links::step(job_id, first)))
        },
        selected: name.and_then(|name| collapsed.holding(name)),
    };
    PreEscaped(graph::svg_linked(&collapsed.graph, &layout, &picture))
}

/// The picture as a file.
pub fn graph_file(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let job_id = jobs::selected(app, request.param(0))?;
    let detail = app.engine.job_detail(job_id)?;
    let graph = graph::of_job(&show::job_detail(&detail, app.clock.now()));
    let mut response = Response::text(graph::svg(&graph, &graph::layout(&graph)).into_bytes());
    response.content_type = "image/svg+xml";
    Ok(response.into())
}

fn server_events(job: &JobJson, story: &[EventJson], view: &View) -> Markup {
    let recoveries = story.iter().filter(|event| event.phase.is_some()).count();
    html! {
        section.box #server-events aria-labelledby="events-title" {
            header {
                h2 #events-title { "Server events " span.count { (story.len()) @if story.len() == EVENTS as usize { "+" } } }
                @if recoveries > 0 { span.state.state-failed { (parts::sign("problem")) (parts::count(recoveries, "recovery action")) } }
                @if story.len() == EVENTS as usize { a href={ "/events?job=" (job.id) } { "older ones" } }
                a.more href={ "/api/jobs/" (job.id) "/steps/_server/logs?raw=1" } { "as text" }
            }
            @if story.is_empty() { div.empty { "Nothing had to be told." } }
            @else { (events::table(story, view.now, false)) }
        }
    }
}

fn facts(job: &JobJson, view: &View) -> Markup {
    html! {
        section.box aria-labelledby="facts-title" {
            header { h2 #facts-title { "About it" } }
            div.in {
                dl.pairs {
                    dt { "input" } dd { (parts::json(&job.input)) }
                    dt { "output" } dd { @if let Some(output) = &job.output { (parts::json(output)) } @else { (parts::none()) } }
                    dt { "labels" } dd { (parts::json(&job.labels)) }
                    dt { "priority" } dd { (job.priority) }
                    dt { "made" } dd { (parts::ago(job.created_at, view.now)) " by " (job.source) }
                    @if let Some(at) = job.scheduled_for { dt { "for the time" } dd { (parts::moment(at)) } }
                    dt { "started" } dd { (parts::ago_or_never(job.started_at, view.now)) }
                    dt { "ended" } dd { (parts::ago_or_never(job.ended_at, view.now)) }
                    dt { "at the prompt" } dd { (parts::command(&format!("stepward why {}", job.id))) " " (parts::command(&format!("stepward logs {}", job.id))) }
                }
            }
        }
    }
}

/// Where it comes from and what came of it, both ways.
fn lineage(
    job: &JobJson,
    all: &[StepJson],
    (retries, hooks): &(Vec<RelatedJob>, Vec<RelatedJob>),
) -> Markup {
    const CHILDREN: usize = 50;
    let children = all
        .iter()
        .filter_map(|step| Some((step, step.child_job_id?)));
    let children: Vec<(&StepJson, i64)> = children.collect();
    let is_alone = job.parent.is_none()
        && job.retry_of.is_none()
        && job.hook_of.is_none()
        && job.schedule_id.is_none()
        && children.is_empty()
        && retries.is_empty()
        && hooks.is_empty();
    html! {
        section.box aria-labelledby="lineage-title" {
            header { h2 #lineage-title { "Where it comes from, and what came of it" } }
            @if is_alone { div.empty { "Nobody's child, no retry, no hook; and no other job came of it." } }
            @else {
                div.in {
                    dl.pairs {
                        @if let Some(parent) = &job.parent { dt { "child of" } dd { a href=(links::step(parent.job_id, &parent.step)) { "job " (parent.job_id) ", step " (parent.step) } } }
                        @if let Some(of) = job.retry_of { dt { "retry of" } dd { a href=(links::job(of)) { "job " (of) } } }
                        @if let Some(of) = job.hook_of { dt { "hook of" } dd { a href=(links::job(of)) { "job " (of) } } }
                        @if let Some(schedule) = job.schedule_id { dt { "schedule" } dd { a href={ "/schedules#schedule-" (schedule) } { (schedule) } } }
                        @if !children.is_empty() {
                            dt { "child jobs" }
                            dd {
                                ul.plain {
                                    @for (step, child) in children.iter().take(CHILDREN) { li { a href=(links::job(*child)) { "job " (child) } " of step " (step.name) " " (parts::state(&step.status)) } }
                                    @if children.len() > CHILDREN { li { "and " (children.len() - CHILDREN) " more" } }
                                }
                            }
                        }
                        @if !retries.is_empty() { dt { "retried as" } dd { (others(retries)) } }
                        @if !hooks.is_empty() { dt { "its hooks" } dd { (others(hooks)) } }
                    }
                }
            }
        }
    }
}

fn others(jobs: &[RelatedJob]) -> Markup {
    html! {
        ul.plain {
            @for job in jobs { li { a href=(links::job(job.job_id.0)) { "job " (job.job_id) " " (job.task) } " " (parts::state(job.state.as_str())) } }
        }
    }
}

/// Why each step is as it is, as far as that was explained.
pub fn by_step(why: &JobWhyJson) -> HashMap<&str, &StepWhyJson> {
    let steps = why.steps.iter();
    steps.map(|step| (step.step.as_str(), step)).collect()
}

/// The job that a form is about.
pub fn of(app: &App, request: &Request) -> Result<JobId, ApiError> {
    jobs::selected(app, request.param(0))
}
