//! Settings: every value that is in force and where it comes from; tokens; messages to the outside and how they went.

use maud::{Markup, html};

use super::ask::Question;
use super::form::Form;
use super::frame::{Here, View};
use super::{links, parts, tokens};
use crate::config::{Origin, Setting};
use crate::domain::OutboxId;
use crate::server::App;
use crate::server::api::show;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::store::MessageFilter;
use crate::wire::api::DeliveryJson;

const DELIVERIES: u32 = 30;

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["said"])?;
    let view = View::begin(app, request)?;
    let filter = MessageFilter::default();
    let (messages, _) = app.engine.messages(None, &filter, DELIVERIES)?;
    let deliveries: Vec<DeliveryJson> = messages
        .iter()
        .map(|message| show::delivery(message, &app.origin, view.now))
        .collect();
    let changed = app.settings.iter().filter(|setting| setting.is_changed());
    let main = html! {
        div.title { h1 { "Settings" } span.note { (parts::count(changed.count(), "value")) " not as by default" } }
        (tokens::boxed(&view)?)
        section.box aria-labelledby="values-title" {
            header { h2 #values-title { "In force" } span.note { "a flag wins over a variable, a variable over the file, the file over the default; they are read at the start" } }
            (values(&app.settings))
        }
        (messages_box(&deliveries, app, &view))
        section.box aria-labelledby="about-title" {
            header { h2 #about-title { "This server" } }
            div.in {
                dl.pairs {
                    dt { "version" } dd { (env!("CARGO_PKG_VERSION")) }
                    dt { "installation" } dd { code { (app.installation) } }
                    dt { "data" } dd { code { (app.config.data_dir.display()) } }
                    dt { "workflows" } dd {
                        @if let Some(folder) = &app.workflows_dir { code { (folder.display()) } } @else { "none are served" }
                    }
                    dt { "interfaces" } dd { "JSON under " code { "/api" } ", health at " a href="/healthz" { "/healthz" } " and " a href="/readyz" { "/readyz" } }
                    dt { "connections" } dd { "None that these settings do not name. No telemetry, no look for updates, no file from elsewhere." }
                }
            }
        }
    };
    view.page("Settings", Here::Settings).show(main)
}

fn values(settings: &[Setting]) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Settings in force" {
            table {
                caption.hidden { "Settings, their values, and where each comes from" }
                thead { tr { th scope="col" { "key" } th scope="col" { "value" } th scope="col" { "origin" } th.wide scope="col" { "default" } } }
                tbody {
                    @for setting in settings {
                        tr class=[setting.is_changed().then_some("changed")] {
                            th scope="row" { code { (setting.key) } }
                            td.wrap { @if setting.is_changed() { b { (setting.in_words()) } } @else { (setting.in_words()) } }
                            td.wrap { @match &setting.origin { Origin::Default => span.note { "default" }, origin => code { (origin) } } }
                            td.wide.wrap { span.note { (setting.default) } }
                        }
                    }
                }
            }
        }
    }
}

fn messages_box(deliveries: &[DeliveryJson], app: &App, view: &View) -> Markup {
    let targets = &app.config.notify;
    html! {
        section.box #messages aria-labelledby="messages-title" {
            header { h2 #messages-title { "Messages to the outside" } }
            @if targets.is_empty() && deliveries.is_empty() {
                div.empty { "The settings name nobody under " code { "notify" } "." }
            } @else {
                div.in { div.actions {
                    @for name in targets.keys() {
                        a.button data-dialog href={ "/settings/notify/" (links::escaped(name)) "/test" } { "Test " (name) }
                    }
                } }
            }
            @if !deliveries.is_empty() {
                div.scroll tabindex="0" role="group" aria-label="Messages" {
                    table {
                        caption.hidden { "Messages and how their delivery went" }
                        thead { tr { th scope="col" { "message" } th scope="col" { "to" } th scope="col" { "state" } th scope="col" { "about" } th.number scope="col" { "tries" } th scope="col" { "last fault" } th.number scope="col" { "made" } th scope="col" { span.hidden { "actions" } } } }
                        tbody {
                            @for delivery in deliveries {
                                tr id={ "delivery-" (delivery.id) } {
                                    td { (delivery.id) } td.wrap { (delivery.target) }
                                    td { (parts::state(&delivery.state)) }
                                    td { @if let Some(job) = delivery.job_id { a href=(links::job(job)) { "job " (job) } } @else { (parts::none()) } }
                                    td.number { (delivery.attempts) }
                                    td.wrap { @if let Some(fault) = &delivery.last_error { (fault) } @else { (parts::none()) } }
                                    td.number { (parts::ago(delivery.created_at, view.now)) }
                                    td { a.button data-dialog href={ "/settings/deliveries/" (delivery.id) "/redeliver" } { "Send again" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

pub fn ask_redeliver(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let view = View::begin(app, request)?;
    let detail = app.engine.message(OutboxId(request.id(0)?))?;
    let delivery = show::delivery_detail(detail, &app.origin, view.now);
    let text = html! {
        p { "It goes to " b { (delivery.target) } " under the same id, so that whoever has it already can tell." }
        @if let Some(event) = &delivery.event { p { "It says: " (event.message) } }
        @if let Some(log) = &delivery.log && !log.is_empty() {
            p { "So far:" }
            ul { @for tried in log { li { (parts::ago(tried.at, view.now)) ": " (tried.message) } } }
        }
    };
    Question {
        title: format!("Send message {} again?", delivery.id),
        text,
        action: format!("/settings/deliveries/{}/redeliver", delivery.id),
        button: "Send again",
        is_grave: false,
        back: "/settings#messages".to_string(),
        here: Here::Settings,
    }
    .show(&view)
}

pub fn redeliver(app: &App, request: &Request) -> Result<Reply, ApiError> {
    Form::read(app, request)?;
    let outbox_id = OutboxId(request.id(0)?);
    app.engine_for(request)
        .redeliver(outbox_id, app.clock.now())?;
    Ok(Response::see_other("/settings?said=redelivered#messages").into())
}

pub fn ask_test(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let view = View::begin(app, request)?;
    let target = request.param(0);
    if !app.config.notify.contains_key(target) {
        return Err(ApiError::not_found("the settings have no such target"));
    }
    Question {
        title: format!("Send a test message to {target}?"),
        text: html! { p { "It tells nothing, and says that it is a test." } },
        action: format!("/settings/notify/{}/test", links::escaped(target)),
        button: "Send it",
        is_grave: false,
        back: "/settings#messages".to_string(),
        here: Here::Settings,
    }
    .show(&view)
}

pub fn test(app: &App, request: &Request) -> Result<Reply, ApiError> {
    Form::read(app, request)?;
    let tested = crate::server::api::deliveries::try_target(app, request)?;
    if !tested.ok {
        let message = format!("the test message was not delivered: {}", tested.message);
        return Err(ApiError::new(409, "conflict", message));
    }
    Ok(Response::see_other("/settings?said=test-sent#messages").into())
}
