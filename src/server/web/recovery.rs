//! Recovery: what it will do, what it did, by which settings.

use maud::{Markup, html};

use super::events::{PHASES, table};
use super::frame::{Here, Live, View};
use super::{links, parts};
use crate::server::App;
use crate::server::api::recovery;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request};
use crate::wire::api::{ForecastJson, LastSweepJson, RecoverySettingsJson};

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["said"])?;
    let view = View::begin(app, request)?;
    let look = recovery::look(app)?;
    let main = html! {
        div.title { h1 { "Recovery" } span.note { "always on: nothing here ever hangs" } }
        section.box aria-labelledby="forecast-title" {
            header {
                h2 #forecast-title { "What it will do, if nothing changes " span.count { (look.forecast.len()) @if look.forecast_more { "+" } } }
                (last_sweep(look.last_sweep.as_ref(), &view))
            }
            @if look.forecast.is_empty() {
                div.empty { "Nothing is due soon: no worker is about to be given up, no timeout is near, and no step is about to fail for want of a worker." }
            } @else { (forecast(&look.forecast, &view)) }
        }
        section.box aria-labelledby="history-title" {
            header { h2 #history-title { "What it did" } a.more href="/events?phase=any" { "all" } }
            @if look.history.is_empty() { div.empty { "It has had nothing to do yet." } }
            @else { (table(&look.history, view.now, true)) }
        }
        section.box aria-labelledby="rules-title" {
            header { h2 #rules-title { "By which rules" } a.more href="/settings" { "settings" } }
            div.in { (rules(&look.settings)) }
        }
    };
    view.page("Recovery", Here::Recovery)
        .live(Live::All)
        .refresh_secs(5)
        .show(main)
}

fn last_sweep(last: Option<&LastSweepJson>, view: &View) -> Markup {
    html! {
        span.more.note {
            @match last {
                None => "it has not swept yet",
                Some(last) => {
                    "last sweep " (parts::ago(last.at, view.now)) ", " (parts::count(last.recoveries, "action"))
                    @if last.failures > 0 { span.fault { ", " (parts::count(last.failures, "fault")) } }
                }
            }
        }
    }
}

fn forecast(forecast: &[ForecastJson], view: &View) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Forecast" {
            table {
                caption.hidden { "What recovery will do, the soonest first" }
                thead { tr { th scope="col" { "when" } th scope="col" { "phase" } th scope="col" { "action" } th scope="col" { "reason" } th scope="col" { "job" } th scope="col" { "step" } th scope="col" { "worker" } } }
                tbody {
                    @for foreseen in forecast {
                        tr {
                            td { (parts::countdown(foreseen.in_secs, view.now)) }
                            td { (foreseen.phase) ": " (PHASES[usize::from(foreseen.phase.clamp(1, 4)) - 1].1) }
                            td { (foreseen.action) }
                            td { @if let Some(reason) = &foreseen.reason { (reason) } @else { (parts::none()) } }
                            td.wrap { @if let Some(job) = foreseen.job_id { a data-open href=(links::job(job)) { (job) " " (foreseen.task.as_deref().unwrap_or_default()) } } @else { (parts::none()) } }
                            td.wrap { @match (&foreseen.step, foreseen.job_id) { (Some(step), Some(job)) => a href=(links::step(job, step)) { (step) }, _ => (parts::none()) } }
                            td.wrap { @match (&foreseen.worker, foreseen.worker_id) { (Some(worker), Some(id)) => a href=(links::worker(id)) { (worker) }, _ => (parts::none()) } }
                        }
                    }
                }
            }
        }
    }
}

/// In words, phase by phase, with the numbers that are in force.
fn rules(settings: &RecoverySettingsJson) -> Markup {
    html! {
        ol {
            li { b { "Stale workers. " } "A worker that is silent for " b { (settings.heartbeat_timeout_secs) " s" }
                " is inactive; workers beat every " (settings.heartbeat_interval_secs) " s. Its running steps fail, because they may have had effects; what it had not started goes to another."
                " An assignment that is not acknowledged within " (settings.ack_timeout_secs) " s, or not prepared within " (settings.prepare_timeout_secs) " s, goes back too." }
            li { b { "Step timeouts. " } "A step that runs longer than its timeout fails, and so does an approval that nobody gave. Workers enforce the same; this waits "
                (settings.report_grace_secs) " s longer for their report." }
            li { b { "Job timeouts. " } "A job that runs longer than its timeout is cancelled with all that belongs to it; a worker has "
                (settings.cancel_grace_secs) " s to end what it runs." }
            li { b { "Unmatched steps. " } "A step that is ready for " b { (settings.unmatched_step_timeout_secs) " s" }
                " while no active worker has its tags fails, and says which tags are missing." }
        }
        p.note { "It looks every " (settings.sweep_interval_secs) " s, and whenever a deadline that it knows is due. Time during which the server was away counts for nobody." }
    }
}
