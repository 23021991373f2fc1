//! What waits: for whom or what, how long, who could take it, what becomes of it; and what is asked for against what there is.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::frame::{Here, Live, View};
use super::{links, parts};
use crate::domain::WorkerId;
use crate::server::App;
use crate::server::api::{queue, show};
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request};
use crate::wire::api::{QueuedJson, WorkerJson};

const PAGE: u32 = 200;
const WORKERS: u32 = 500;

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["after", "said"])?;
    let after = request.query("after").map(queue::place).transpose()?;
    let view = View::begin(app, request)?;
    let (waiting, next) = app.engine.queue(after, PAGE, view.now)?;
    let waiting: Vec<QueuedJson> = waiting.iter().map(show::waiting).collect();
    let workers = app.engine.workers(WorkerId(0), WORKERS, view.now)?;
    let workers: Vec<WorkerJson> = workers.iter().map(show::worker).collect();
    let mut groups: Vec<(&str, Vec<&QueuedJson>)> = Vec::new();
    for step in &waiting {
        let code = step.why.code.as_str();
        match groups.iter_mut().find(|(known, _)| *known == code) {
            Some((_, steps)) => steps.push(step),
            None => groups.push((code, vec![step])),
        }
    }
    let next = next.map(queue::cursor);
    let more = if next.is_some() { "+" } else { "" };
    let main = html! {
        div.title { h1 { "Queue " @if request.query("after").is_none() { span.count { (waiting.len()) (more) " waiting" } } } }
        @if waiting.is_empty() {
            section.box aria-label="Queue" { div.empty {
                "No step waits for a worker, a person or its turn."
                @if request.query("after").is_some() { " " a href="/queue" { "To the beginning" } }
            } }
        }
        @for (code, steps) in &groups { (group(code, steps, &view)) }
        (parts::paging(
            request.query("after").map(|_| ("from the beginning", "/queue".to_string())),
            next.as_deref().map(|next| ("more", links::with_query("/queue", &[("after", Some(next))]))),
        ))
        (demand(&waiting, &workers))
    };
    view.page("Queue", Here::Queue)
        .live(Live::All)
        .refresh_secs(5)
        .show(main)
}

fn group(code: &str, steps: &[&QueuedJson], view: &View) -> Markup {
    html! {
        section.box id=(code) aria-labelledby={ "title-" (code) } {
            header { h2 id={ "title-" (code) } { (code) " " span.count { (steps.len()) } } span.note { (steps[0].why.sentence) } }
            div.scroll tabindex="0" role="group" aria-label=(code) {
                table {
                    caption.hidden { "Steps that wait: " (code) }
                    thead { tr { th scope="col" { "job" } th scope="col" { "step" } th.number scope="col" { "age" } th scope="col" { "what will happen" } th scope="col" { "needs" } th scope="col" { "who could take it" } th.wide scope="col" { "state" } th.number.wide scope="col" { "priority" } } }
                    tbody {
                        @for step in steps {
                            tr id={ "queued-" (step.step_id) } {
                                td.wrap { a href=(links::job(step.job_id)) { (step.job_id) " " (step.task) } }
                                td.wrap { a data-open href=(links::step(step.job_id, &step.step)) { (step.step) } }
                                td.number { (parts::since_secs(step.age_secs, view.now)) }
                                td.wrap {
                                    @if let Some(outcome) = &step.why.outcome { (parts::outcome(outcome, view.now)) }
                                    @else { span.note { "nothing: it waits" } }
                                }
                                td { (parts::tags(&step.required_tags)) }
                                td.wrap { (candidates(step)) }
                                td.wide { (parts::state(&step.status)) }
                                td.number.wide { (step.priority) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Who has all that it needs, and who nearly.
fn candidates(step: &QueuedJson) -> Markup {
    const SHOWN: usize = 3;
    let workers = &step.why.workers;
    let fitting: Vec<&str> = workers
        .iter()
        .filter(|worker| worker.missing().is_empty())
        .map(|worker| worker.name.as_str())
        .collect();
    html! {
        @if !fitting.is_empty() {
            (fitting.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", "))
            @if fitting.len() > SHOWN { " and " (fitting.len() - SHOWN) " more" }
        } @else if !workers.is_empty() {
            "nobody"
            @for worker in workers.iter().take(SHOWN) { "; " (worker.name) " lacks " (worker.missing().join(", ")) }
            @if workers.len() > SHOWN { " and " (workers.len() - SHOWN) " more" }
        } @else { (parts::none()) }
    }
}

/// What is asked for, tag by tag, against the slots of those that offer it.
fn demand(waiting: &[QueuedJson], workers: &[WorkerJson]) -> Markup {
    let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
    let offered = workers.iter().filter(|worker| worker.takes_steps());
    let is_offered = |tag: &String| offered.clone().any(|worker| worker.tags.contains(tag));
    for step in waiting.iter().filter(|step| step.status == "ready") {
        // A step that lacks one thing asks for nothing else: more of that would not help it.
        let lacks_one = step.required_tags.iter().any(|tag| !is_offered(tag));
        let tags = step.required_tags.iter();
        for tag in tags.filter(|tag| !lacks_one || !is_offered(tag)) {
            *asked.entry(tag).or_insert(0) += 1;
        }
    }
    for tag in offered.clone().flat_map(|worker| &worker.tags) {
        asked.entry(tag).or_insert(0);
    }
    html! {
        section.box aria-labelledby="demand-title" {
            header { h2 #demand-title { "Demand against capacity" } span.note { "ready steps on this page, and slots of workers that take steps" } }
            @if asked.is_empty() { div.empty { "Nothing is asked for, and nobody offers anything." } }
            @else {
                div.scroll tabindex="0" role="group" aria-label="Demand against capacity" {
                    table {
                        caption.hidden { "Tags: steps that ask for them, slots that offer them" }
                        thead { tr { th scope="col" { "tag" } th.number scope="col" { "waiting steps" } th.number scope="col" { "workers" } th.number scope="col" { "slots" } th.number scope="col" { "free" } th scope="col" { "enough?" } } }
                        tbody {
                            @for (tag, steps) in &asked {
                                @let who: Vec<&WorkerJson> = offered.clone().filter(|worker| worker.tags.iter().any(|known| known == tag)).collect();
                                @let slots: u32 = who.iter().map(|worker| worker.slots).sum();
                                @let used: u32 = who.iter().map(|worker| worker.slots_used).sum();
                                @let free = slots.saturating_sub(used);
                                tr {
                                    th scope="row" { span.tag { (tag) } }
                                    td.number { (steps) } td.number { (who.len()) } td.number { (slots) } td.number { (free) }
                                    td {
                                        @if *steps > 0 && slots == 0 { span.state.state-failed { (parts::sign("problem")) "nobody offers it" } }
                                        @else if *steps > free as usize { span.state.state-suspended { (parts::sign("ready")) "more asked for than free" } }
                                        @else { span.state.state-completed { (parts::sign("completed")) "enough" } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
