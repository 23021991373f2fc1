//! The pages: what runs, why it waits, what recovery did. HTML made on the server, one file per page.
//!
//! A page is a function from what the engine tells to markup. Whatever others wrote is escaped by `maud`; what is markup already is made
//! by `graph`, `timeline` and `ansi`, which escape by themselves. A page knows what it is fetched again for (`frame::Live`); the modules in
//! `assets/` listen to the one stream of events, fetch the page's own address again and put what is new in place. Without them every
//! page can be read and every form sent.
//!
//! What a person does is a form (`form.rs`): its page says first what will happen, the same address carries it out, and the page
//! that shows the result says what was done (`said.rs`).
//!
//! Deliberately not here: JSON (`api`), decisions (`engine`), inline scripts and styles (the policy in `http.rs` would refuse them).

pub mod ansi;
mod ask;
pub mod assets;
pub mod audit;
mod form;
mod frame;
pub mod gzip;
mod inputs;
mod links;
mod outcomes;
mod parts;
mod said;

pub mod acts;
pub mod events;
pub mod job;
pub mod jobs;
pub mod log;
pub mod login;
pub mod overview;
pub mod queue;
pub mod recovery;
pub mod schedules;
pub mod settings;
pub mod source;
mod steps;
pub mod task;
pub mod tasks;
mod timeline;
pub mod tokens;
pub mod workers;

use maud::html;

use super::error::ApiError;
use super::exchange::{Headers, Response};

/// Whether whoever asks for an address that nothing is at is a person with a browser.
pub fn wants_page(path: &[String], headers: &Headers) -> bool {
    let is_program = matches!(path.first().map(String::as_str), Some("api" | "hooks"));
    let accept = headers.accept.as_deref().unwrap_or_default();
    !is_program && accept.contains("text/html")
}

/// Where the token is asked for, and where to go on afterwards.
pub fn login_address(target: &str) -> String {
    match target {
        "/" => "/login".to_string(),
        target if target.len() > login::NEXT_BYTES_MAX => "/login".to_string(),
        target => format!("/login?next={}", links::escaped(target)),
    }
}

/// What went wrong, as a page.
pub fn refusal(error: &ApiError) -> Response {
    let title = match error.status {
        404 => "Not found",
        403 | 421 => "Not allowed",
        429 => "Too many attempts",
        409 => "Not possible now",
        422 | 400 | 415 => "Not understood",
        503 => "Try again",
        _ => "Something went wrong",
    };
    let main = html! {
        h1 { (title) }
        p.refused { (error.message) }
        @if !error.details.is_empty() {
            ul { @for detail in &error.details { li { (detail) } } }
        }
        p { a href="/" { "To the overview" } " · " a href="/jobs" { "to the jobs" } }
    };
    let mut response = frame::bare(title, error.status, &main);
    // `allow`, `retry-after`: what goes with the status whoever reads it.
    response.headers = error.response().headers;
    response
}
