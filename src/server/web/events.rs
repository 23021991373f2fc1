//! What happened: everything, or what recovery did, newest first.

use maud::{Markup, html};

use super::frame::{Here, Live, View};
use super::{links, parts};
use crate::domain::event::EventKind;
use crate::domain::{EventSeq, JobId, Now};
use crate::server::App;
use crate::server::api::show;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request};
use crate::wire::api::EventJson;

const PAGE: u32 = 100;

/// What each phase of recovery looks for.
pub const PHASES: [(u8, &str); 4] = [
    (1, "stale workers"),
    (2, "step timeouts"),
    (3, "job timeouts"),
    (4, "unmatched steps"),
];

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["phase", "job", "before", "said"])?;
    let job = request.query_number("job")?.map(JobId);
    let phase = request.query("phase").unwrap_or_default();
    let chosen = match phase {
        "" => None,
        "any" => Some(None),
        phase => match phase.parse::<u8>() {
            Ok(phase @ 1..=4) => Some(Some(phase)),
            _ => return Err(ApiError::invalid("phase is 1, 2, 3, 4 or any")),
        },
    };
    let before = EventSeq(request.query_number("before")?.unwrap_or(i64::MAX));
    let view = View::begin(app, request)?;
    // One more tells whether there are more.
    let limit = PAGE + 1;
    let events = match (chosen, job) {
        (_, Some(job_id)) => app.engine.story_before(job_id, before, limit)?,
        (None, None) => app.engine.events_before(before, limit)?,
        (Some(None), None) => app.engine.recoveries_before(before, limit)?,
        (Some(Some(phase)), None) => app.engine.recoveries_of(phase, before, limit)?,
    };
    let is_full = events.len() > PAGE as usize;
    let events = events.into_iter().take(PAGE as usize);
    let events: Vec<EventJson> = events.map(show::event).collect();
    let next = events
        .last()
        .map(|last| last.seq.to_string())
        .filter(|_| is_full);
    let main = html! {
        div.title { h1 { "Events" } @if let Some(job) = job { span.note { "of " a href=(links::job(job.0)) { "job " (job) } } } }
        nav.chips aria-label="Which events" {
            a href="/events" aria-current=[(phase.is_empty() && job.is_none()).then_some("true")] { "everything" }
            a href="/events?phase=any" aria-current=[(phase == "any").then_some("true")] { "recovery" }
            @for (number, words) in PHASES {
                a href={ "/events?phase=" (number) } aria-current=[(chosen == Some(Some(number))).then_some("true")] {
                    "phase " (number) ": " (words)
                }
            }
        }
        section.box aria-label="Events" {
            @if events.is_empty() {
                div.empty { @if chosen.is_some() { "Recovery has had nothing to do here." } @else { "Nothing has happened yet." } }
            } @else { (table(&events, view.now, true)) }
            @let own = [("phase", request.query("phase")), ("job", request.query("job"))];
            (parts::paging(
                request.query("before").map(|_| ("newest", links::with_query("/events", &own))),
                next.as_deref().map(|next| ("older", links::with_query("/events", &[own[0], own[1], ("before", Some(next))]))),
            ))
        }
    };
    // Older pages stay as they are: what is written down does not change.
    let live = match request.query("before") {
        Some(_) => Live::No,
        None => Live::All,
    };
    view.page("Events", Here::Events).live(live).show(main)
}

/// Rows of events. `with_job`: they are not all of one job.
pub fn table(events: &[EventJson], now: Now, with_job: bool) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Events" {
            table.events {
                caption.hidden { "What happened, and when" }
                thead { tr {
                    th scope="col" { "when" } th scope="col" { "what" } th scope="col" { "in words" } th scope="col" { "by" }
                    @if with_job { th scope="col" { "job" } }
                    th.wide scope="col" { "step" } th.wide scope="col" { "worker" } th scope="col" { "phase" }
                } }
                tbody {
                    @for event in events { (row(event, now, with_job)) }
                }
            }
        }
    }
}

fn row(event: &EventJson, now: Now, with_job: bool) -> Markup {
    html! {
        tr id={ "event-" (event.seq) } class=[event.phase.map(|_| "recovery")] {
            td.number { (parts::ago(event.at, now)) }
            td { span class={ "state state-" (shade(&event.kind)) } { (event.kind) } }
            td.wrap { (event.message) }
            td { @if let Some(actor) = &event.actor { (actor) } @else { (parts::none()) } }
            @if with_job {
                td { @if let Some(job) = event.job_id { a data-open href=(links::job(job)) { (job) } } @else { (parts::none()) } }
            }
            td.wide.wrap {
                @match (&event.step, event.job_id) {
                    (Some(step), Some(job)) => a href=(links::step(job, step)) { (step) },
                    _ => (parts::none()),
                }
            }
            td.wide.wrap {
                @match (&event.worker, event.worker_id) {
                    (Some(worker), Some(id)) => a href=(links::worker(id)) { (worker) },
                    _ => (parts::none()),
                }
            }
            td { @if let Some(phase) = event.phase { a href={ "/events?phase=" (phase) } { (phase) } } @else { (parts::none()) } }
        }
    }
}

/// Which colour goes with it; the word beside says the same.
fn shade(kind: &str) -> &'static str {
    use EventKind::*;
    match EventKind::from_word(kind) {
        Some(
            JobFailed | StepFailed | HookFailed | WorkerInactive | WorkersSilent | WorkflowsBroken
            | DeliveryGivenUp | ScheduleMissed | ScheduleRefused | WorkerDuplicated | StepRejected
            | BackupFailed | RollbackNoticed,
        ) => "failed",
        Some(
            JobCompleted | WorkerActive | WorkflowsLoaded | StepApproved | WorkerRegistered
            | BackupMade,
        ) => "completed",
        Some(
            StepRequeued
            | StepRetried
            | StepSuspended
            | StepHeld
            | JobHeld
            | WorkerDraining
            | WorkerPaused
            | SchedulePaused
            | ReportFenced
            | WorkerRestarted
            | BackupRestored
            | OlderDatabaseAccepted,
        ) => "suspended",
        _ => "pending",
    }
}
