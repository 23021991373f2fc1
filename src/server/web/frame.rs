//! What every page has around it: the head, the ways to the others, the state of the connection, what was just done.

use std::cell::Cell;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::assets;
use super::form::PROOF;
use super::gzip::squeezed;
use super::said;
use crate::domain::Now;
use crate::engine::EngineError;
use crate::problems::start_worker;
use crate::server::App;
use crate::server::auth::{Caller, cookie};
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::server::streams::Place;

/// Which way a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Here {
    Overview,
    Tasks,
    Jobs,
    Queue,
    Workers,
    Schedules,
    Events,
    Recovery,
    Settings,
}

/// (the way, its address, its word, the letter after `g`)
const WAYS: &[(Here, &str, &str, &str)] = &[
    (Here::Overview, "/", "Overview", "o"),
    (Here::Tasks, "/tasks", "Tasks", "t"),
    (Here::Jobs, "/jobs", "Jobs", "j"),
    (Here::Queue, "/queue", "Queue", "q"),
    (Here::Workers, "/workers", "Workers", "w"),
    (Here::Schedules, "/schedules", "Schedules", "s"),
    (Here::Events, "/events", "Events", "e"),
    (Here::Recovery, "/recovery", "Recovery", "r"),
    (Here::Settings, "/settings", "Settings", "x"),
];

/// What a page is fetched again for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Live {
    /// Nothing: it is a form, or does not change.
    No,
    /// Whatever happens.
    All,
    /// What happens to these jobs, or to no job.
    Jobs(Vec<i64>),
    /// What happens to jobs of this task, or to no job.
    Task(String),
}

/// Somebody looks: at a time, from a place in what happened. Whatever the page shows is read after that place was noted, so that
/// nothing happens unseen in between.
pub struct View<'a> {
    pub app: &'a App,
    pub request: &'a Request,
    pub now: Now,
    place: Place,
    /// A form of it holds what only it may know.
    has_proof: Cell<bool>,
}

impl<'a> View<'a> {
    pub fn begin(app: &'a App, request: &'a Request) -> Result<View<'a>, EngineError> {
        let (event, change) = app.engine.present()?;
        Ok(View {
            app,
            request,
            now: app.clock.now(),
            place: Place { event, change },
            has_proof: Cell::new(false),
        })
    }

    /// The hidden field without which no form is taken.
    pub fn proof(&self) -> Markup {
        self.has_proof.set(true);
        let proof = self.app.gate.proof_of_page(&self.request.headers);
        html! { input type="hidden" name=(PROOF) value=(proof); }
    }

    /// How whoever looks reaches this server.
    pub fn address(&self) -> String {
        let host = self.request.headers.host.as_deref();
        let scheme = self.app.config.tls.scheme();
        let here = || format!("{scheme}://{}", host.unwrap_or("localhost:7717"));
        self.app.config.public_url.clone().unwrap_or_else(here)
    }

    pub fn start_worker(&self) -> String {
        start_worker(&self.address(), self.app.gate.asks_for_token())
    }

    pub fn page(&self, title: impl Into<String>, here: Here) -> Page<'_> {
        Page {
            view: self,
            title: title.into(),
            here,
            live: Live::No,
            refresh_secs: None,
            status: 200,
        }
    }
}

pub struct Page<'v> {
    view: &'v View<'v>,
    title: String,
    here: Here,
    live: Live,
    refresh_secs: Option<u32>,
    status: u16,
}

impl Page<'_> {
    pub fn live(self, live: Live) -> Self {
        Page { live, ..self }
    }

    /// Fetched again after so long, though nothing happened: it shows how time goes by.
    pub fn refresh_secs(self, secs: u32) -> Self {
        Page {
            refresh_secs: Some(secs),
            ..self
        }
    }

    /// Of a form that was refused.
    pub fn status(self, status: u16) -> Self {
        Page { status, ..self }
    }

    pub fn show(self, main: Markup) -> Result<Reply, ApiError> {
        let View {
            app, request, now, ..
        } = self.view;
        let live = match &self.live {
            Live::No => None,
            Live::All => Some("all".to_string()),
            Live::Jobs(jobs) => {
                let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
                Some(jobs.join(" "))
            }
            Live::Task(task) => Some(format!("task:{task}")),
        };
        let Place { event, change } = self.view.place;
        let theme = cookie(&request.headers, "stepward_theme");
        let theme = theme.filter(|theme| matches!(*theme, "light" | "dark"));
        let body = html! {
            body data-now=(now.wall.0) data-place={ (event) "." (change) } data-live=[live]
                data-refresh=[self.refresh_secs] data-role=(request.caller.role()) {
                (head_of_page(self.here, app.gate.asks_for_token().then_some(&request.caller)))
                // Not part of what is fetched again: it is said once.
                @if let Some(said) = request.query("said").and_then(said::sentence) {
                    p.said role="status" { (said) }
                }
                main id="main" tabindex="-1" { (main) }
                (foot_of_page())
            }
        };
        let text = straight(document(&self.title, theme, &body).into_string());
        let response = match self.view.has_proof.get() {
            true => Response::html(self.status, text),
            false => squeezed(Response::html(self.status, text), &request.headers),
        };
        // Elsewhere browsers complain of it.
        let response = match app.gate.is_secure(&request.headers) {
            true => response.header("cross-origin-opener-policy", "same-origin"),
            false => response,
        };
        Ok(match app.gate.renewed(&request.headers) {
            Some(cookie) => response.header("set-cookie", cookie),
            None => response,
        }
        .into())
    }
}

/// A page for whoever could not be shown another one. Nothing is known of them or of the server.
pub fn bare(title: &str, status: u16, main: &Markup) -> Response {
    let body = html! {
        body {
            a.skip href="#main" { "Skip to the content" }
            (PreEscaped(SIGNS))
            header.top { a.brand href="/" { svg.sign aria-hidden="true" { use href="#sign-brand" {} } "stepward" } }
            main id="main" tabindex="-1" { (main) }
        }
    };
    Response::html(status, straight(document(title, None, &body).into_string()))
}

/// Nothing of ours turns the direction of reading in the middle of a page; what others wrote must not either, or a name could show
/// parts of itself behind what follows it.
fn straight(text: String) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    match text.contains(turns) {
        true => text.replace(turns, "\u{fffd}"),
        false => text,
    }
}

fn document(title: &str, theme: Option<&str>, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-theme=[theme] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · stepward" }
                link rel="icon" type="image/svg+xml" href=(assets::address("icon.svg"));
                link rel="stylesheet" href=(assets::address("style.css"));
                script type="module" src=(assets::address("app.js")) {}
            }
            (body)
        }
    }
}

fn head_of_page(here: Here, known: Option<&Caller>) -> Markup {
    html! {
        a.skip href="#main" { "Skip to the content" }
        (PreEscaped(SIGNS))
        header.top {
            a.brand href="/" { svg.sign aria-hidden="true" { use href="#sign-brand" {} } "stepward" }
            nav aria-label="Pages" {
                @for (way, address, word, letter) in WAYS {
                    a href=(address) data-go=(letter) aria-current=[(*way == here).then_some("page")] { (word) }
                }
            }
            div.tools {
                span #live role="status" { }
                button.quiet type="button" #theme hidden title="Light or dark" { "theme" }
                button.quiet type="button" #help-open hidden title="Keys (?)" { "keys" }
                @if let Some(caller) = known {
                    span.note title={ "Your role is " (caller.role()) } { (caller.name) }
                    form method="post" action="/logout" { button.quiet { "log out" } }
                }
            }
        }
    }
}

fn foot_of_page() -> Markup {
    html! {
        footer {
            span { "stepward " (env!("CARGO_PKG_VERSION")) }
            span { "nothing on this page comes from or goes to anywhere else" }
        }
        dialog #dialog aria-labelledby="dialog-title" {}
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keys" }
            dl.keys {
                dt { kbd { "/" } } dd { "to the filter, or to the jobs" }
                dt { kbd { "?" } } dd { "this help" }
                @for (_, _, word, letter) in WAYS {
                    dt { kbd { "g" } " " kbd { (letter) } } dd { "go to " (word) }
                }
                dt { kbd { "j" } " " kbd { "k" } } dd { "next and previous row" }
                dt { kbd { "Enter" } } dd { "open the row" }
                dt { kbd { "l" } } dd { "to the log" }
                dt { kbd { "f" } } dd { "follow the log, or stop" }
                dt { kbd { "n" } " " kbd { "N" } } dd { "next and previous match in the log" }
                dt { kbd { "p" } } dd { "pause or resume live updates" }
                dt { kbd { "t" } } dd { "light, dark, or as the system" }
                dt { kbd { "Esc" } } dd { "close" }
            }
            p { label { input type="checkbox" #keys-off; " Turn single keys off in this browser" } }
            form method="dialog" { button { "Close" } }
        }
    }
}

/// One picture per state, so that none depends on a font.
const SIGNS: &str = concat!(
    r##"<svg class="signs" width="0" height="0" aria-hidden="true" focusable="false">"##,
    r##"<symbol id="sign-brand" viewBox="0 0 16 16"><path d="M1 13h4V9h4V5h6" fill="none" stroke="currentColor" stroke-width="2.4"/></symbol>"##,
    r##"<symbol id="sign-completed" viewBox="0 0 16 16"><path d="M3 8.5l3.2 3.2L13 5" fill="none" stroke="currentColor" stroke-width="2.2"/></symbol>"##,
    r##"<symbol id="sign-failed" viewBox="0 0 16 16"><path d="M4 4l8 8M12 4l-8 8" fill="none" stroke="currentColor" stroke-width="2.2"/></symbol>"##,
    r##"<symbol id="sign-running" viewBox="0 0 16 16"><path d="M5 3l8 5-8 5z" fill="currentColor"/></symbol>"##,
    r##"<symbol id="sign-assigned" viewBox="0 0 16 16"><circle cx="8" cy="8" r="5" fill="none" stroke="currentColor" stroke-width="1.8"/><path d="M8 3a5 5 0 0 1 0 10z" fill="currentColor"/></symbol>"##,
    r##"<symbol id="sign-ready" viewBox="0 0 16 16"><circle cx="8" cy="8" r="5.2" fill="none" stroke="currentColor" stroke-width="1.8"/><path d="M8 5v3l2 1.4" fill="none" stroke="currentColor" stroke-width="1.6"/></symbol>"##,
    r##"<symbol id="sign-pending" viewBox="0 0 16 16"><circle cx="8" cy="8" r="5" fill="none" stroke="currentColor" stroke-width="1.8" stroke-dasharray="2.6 2.2"/></symbol>"##,
    r##"<symbol id="sign-suspended" viewBox="0 0 16 16"><path d="M5.5 4v8M10.5 4v8" stroke="currentColor" stroke-width="2.4"/></symbol>"##,
    r##"<symbol id="sign-skipped" viewBox="0 0 16 16"><path d="M3 11c0-6 8-7 9-1M12.6 6v4.4H8.4" fill="none" stroke="currentColor" stroke-width="1.8"/></symbol>"##,
    r##"<symbol id="sign-cancelled" viewBox="0 0 16 16"><circle cx="8" cy="8" r="5" fill="none" stroke="currentColor" stroke-width="1.8"/><path d="M4.6 11.4l6.8-6.8" stroke="currentColor" stroke-width="1.8"/></symbol>"##,
    r##"<symbol id="sign-active" viewBox="0 0 16 16"><circle cx="8" cy="8" r="4.2" fill="currentColor"/></symbol>"##,
    r##"<symbol id="sign-inactive" viewBox="0 0 16 16"><circle cx="8" cy="8" r="4.2" fill="none" stroke="currentColor" stroke-width="1.8"/></symbol>"##,
    r##"<symbol id="sign-problem" viewBox="0 0 16 16"><path d="M8 2l6.5 11.5h-13z" fill="none" stroke="currentColor" stroke-width="1.7"/><path d="M8 6.4v3.4M8 11v1.4" stroke="currentColor" stroke-width="1.7"/></symbol>"##,
    r##"</svg>"##
);
