//! The steps of a job: all of them in a table, one of them in full.

use maud::{Markup, html};

use super::frame::View;
use super::job::by_step;
use super::{links, parts};
use crate::graph::loop_of;
use crate::server::exchange::Request;
use crate::wire::api::{AttemptHistory, JobJson, JobWhyJson, StepJson, StepWhyJson};

/// Rows at a time.
const ROWS: usize = 200;

/// What can be looked at: (the word in the address, the word on the page, which states).
const SHOWN: &[(&str, &str, &[&str])] = &[
    ("", "all", &[]),
    ("failed", "failed", &["failed"]),
    (
        "open",
        "not ended",
        &["pending", "ready", "assigned", "running", "suspended"],
    ),
    ("running", "running", &["assigned", "running"]),
    ("completed", "completed", &["completed"]),
    ("other", "skipped or cancelled", &["skipped", "cancelled"]),
];

pub fn table(
    job: &JobJson,
    all: &[StepJson],
    selected: Option<&StepJson>,
    why: &JobWhyJson,
    request: &Request,
    view: &View,
) -> Markup {
    let explained = by_step(why);
    let word = request.query("show").unwrap_or_default();
    let states = SHOWN.iter().find(|(known, _, _)| *known == word);
    let states = states.map_or(&[] as &[&str], |(_, _, states)| states);
    let fits = |step: &&StepJson| states.is_empty() || states.contains(&step.status.as_str());
    let fitting = all.iter().filter(fits).count();
    let after = request.query("after").and_then(|after| after.parse().ok());
    // One that is chosen is seen, wherever it is.
    let at_selected = || {
        let chosen = selected.filter(|_| request.query("step").is_some())?;
        let at = all
            .iter()
            .filter(fits)
            .position(|step| step.id == chosen.id)?;
        Some(at / ROWS * ROWS)
    };
    let after: usize = after.or_else(at_selected).unwrap_or(0).min(fitting);
    let shown: Vec<&StepJson> = all.iter().filter(fits).skip(after).take(ROWS).collect();
    let to = |after: usize| {
        let after = (after > 0).then(|| after.to_string());
        let word = Some(word).filter(|word| !word.is_empty());
        let address = links::with_query(
            &links::job(job.id),
            &[("show", word), ("after", after.as_deref())],
        );
        format!("{address}#steps")
    };
    html! {
        section.box #steps aria-labelledby="steps-title" {
            header {
                h2 #steps-title { "Steps " span.count { (all.len()) } }
                @if all.len() > 10 {
                    nav.chips aria-label="Which steps" {
                        @for (known, name, states) in SHOWN {
                            @let n = all.iter().filter(|step| states.is_empty() || states.contains(&step.status.as_str())).count();
                            @if n > 0 {
                                a href={ (links::with_query(&links::job(job.id), &[("show", Some(*known).filter(|known| !known.is_empty()))])) "#steps" }
                                    aria-current=[(*known == word).then_some("true")] { (name) " " (n) }
                            }
                        }
                    }
                }
            }
            div.scroll.tall tabindex="0" role="group" aria-label="Steps" {
                table {
                    caption.hidden { "Steps of the job" }
                    thead { tr { th scope="col" { "step" } th scope="col" { "state" } th scope="col" { "why" } th.wide scope="col" { "worker" } th.number.wide scope="col" { "waited" } th.number scope="col" { "ran" } th.number scope="col" { "attempt" } } }
                    tbody { @for step in &shown { (row(job, step, selected, explained.get(step.name.as_str()).copied(), view)) } }
                }
            }
            @if fitting > ROWS {
                nav.paging aria-label="More steps" {
                    @if after > 0 { a href=(to(after.saturating_sub(ROWS))) { "before" } }
                    span.note { (after + 1) " to " (after + shown.len()) " of " (fitting) }
                    @if after + shown.len() < fitting { a href=(to(after + ROWS)) { "more" } }
                }
            }
        }
    }
}

fn row(
    job: &JobJson,
    step: &StepJson,
    selected: Option<&StepJson>,
    explained: Option<&StepWhyJson>,
    view: &View,
) -> Markup {
    // One that ran in the job that this one retries.
    let is_taken_over = step.status == "completed" && step.attempt == 0 && job.retry_of.is_some();
    let is_selected = selected.is_some_and(|selected| selected.id == step.id);
    html! {
        tr id={ "step-" (step.id) } class=[is_selected.then_some("chosen")] {
            th.wrap scope="row" { a data-open href={ (links::step(job.id, &step.name)) "#log" } aria-current=[is_selected.then_some("true")] { (step.name) } " " span.count { (step.kind) } }
            td { (parts::state(&step.status)) }
            td.wrap {
                @if let Some(reason) = &step.reason { b { (reason) } " " }
                @if let Some(message) = &step.message { (message) }
                @else if let (Some(explained), None) = (explained, step.ended_at) { (explained.why.sentence) }
                @else if is_taken_over && step.kind != "approval" { span.note { "done in an earlier job" } }
                @if let Some(child) = step.child_job_id { " " a href=(links::job(child)) { "job " (child) } }
            }
            td.wide.wrap { @if let Some(worker) = &step.worker { (worker) } @else { (parts::none()) } }
            td.number.wide { (waited(step, view)) }
            td.number { (parts::took(step.started_at, step.ended_at, view.now)) }
            td.number { @if step.attempt > 0 { (step.attempt) "/" (step.max_attempts.max(step.attempt)) } @else { (parts::none()) } }
        }
    }
}

/// From when it could have begun until it did.
fn waited(step: &StepJson, view: &View) -> Markup {
    match step.ready_at {
        Some(ready) => parts::took(Some(ready), step.started_at.or(step.ended_at), view.now),
        None => parts::none(),
    }
}

pub fn decide_address(job_id: i64, step: &str, verb: &str) -> String {
    format!("/jobs/{job_id}/steps/{}/{verb}", links::escaped(step))
}

/// All that is known of one step, but for its log.
pub fn panel(
    job: &JobJson,
    step: &StepJson,
    why: &JobWhyJson,
    request: &Request,
    view: &View,
) -> Markup {
    let explained = by_step(why).get(step.name.as_str()).copied();
    let has_ended = job.ended_at.is_some();
    html! {
        section.box #step aria-labelledby="step-title" {
            header {
                h2 #step-title { "Step " (step.name) }
                (parts::state(&step.status))
                @if let Some(worker) = &step.worker { span.note { "on " (worker) } }
                @if has_ended {
                    div.actions.more { a.button data-dialog href={ (links::job(job.id)) "/retry?from=" (links::escaped(loop_of(&step.name).unwrap_or(&step.name))) } { "Retry from here…" } }
                }
            }
            div.in {
                @if let Some(explained) = explained {
                    p { b { (explained.why.code) } ": " (explained.why.sentence) }
                    (parts::why_details(&explained.why, view.now))
                } @else if let Some(message) = &step.message {
                    p { @if let Some(reason) = &step.reason { b { (reason) } ": " } (message) }
                }
                dl.pairs {
                    dt { "waits for" } dd { @if step.depends_on.is_empty() { "nothing" } @for name in &step.depends_on { a href=(links::step(job.id, name)) { (name) } " " } }
                    dt { "needs" } dd { (parts::tags(&step.required_tags)) }
                    @if let Some(code) = step.exit_code { dt { "exit code" } dd { (code) } }
                    @if let Some(child) = step.child_job_id { dt { "child job" } dd { a href=(links::job(child)) { "job " (child) } } }
                    @if let Some(at) = step.not_before { dt { "not before" } dd { (parts::until(at, view.now)) } }
                    dt { "output" } dd { @if let Some(output) = &step.output { (parts::json(output)) } @else { (parts::none()) } }
                }
            }
            // A single attempt that ended with the step says nothing that the lines above do not say.
            @if step.attempts.len() > 1 || step.attempts.iter().any(|attempt| attempt.outcome == "returned" || attempt.ended_at != step.ended_at) {
                (attempts(job, step, request, view))
            }
        }
    }
}

fn attempts(job: &JobJson, step: &StepJson, request: &Request, view: &View) -> Markup {
    let shown = request.query("attempt").and_then(|n| n.parse().ok());
    let shown: u32 = shown.unwrap_or(step.attempt);
    let to = |attempt: &AttemptHistory| {
        format!(
            "{}&attempt={}#log",
            links::step(job.id, &step.name),
            attempt.attempt
        )
    };
    html! {
        div.scroll tabindex="0" role="group" aria-label="Attempts" {
            table {
                caption.hidden { "Attempts of this step" }
                thead { tr { th scope="col" { "attempt" } th scope="col" { "outcome" } th scope="col" { "worker" } th.number scope="col" { "ran" } th scope="col" { "why" } } }
                tbody {
                    @for attempt in &step.attempts {
                        tr class=[(attempt.attempt == shown).then_some("chosen")] {
                            td { a href=(to(attempt)) { (attempt.attempt) } }
                            td { (parts::state(&attempt.outcome)) }
                            td.wrap { @if let Some(worker) = &attempt.worker { (worker) } @else { (parts::none()) } }
                            td.number { (parts::took(attempt.started_at, attempt.ended_at, view.now)) }
                            td.wrap { @if let Some(reason) = &attempt.reason { b { (reason) } " " } @if let Some(message) = &attempt.message { (message) } }
                        }
                    }
                }
            }
        }
    }
}
