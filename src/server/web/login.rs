//! Who has the token shows it once; the browser keeps a cookie.

use std::net::IpAddr;

use maud::html;

use super::form::Form;
use super::frame::bare;
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::event::{EventKind, NewEvent};
use crate::server::App;
use crate::server::auth::Caller;
use crate::server::error::ApiError;
use crate::server::exchange::{Method, Reply, Request, Response};
use crate::server::http::decode_path;
use crate::server::routes;
use crate::server::shares::ShareOwner;
use crate::token_files::ADMIN_TOKEN_FILE;

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    if !app.gate.asks_for_token() {
        return Ok(Response::see_other("/").into());
    }
    let next = request.query("next").unwrap_or_default();
    Ok(page(200, next, None).into())
}

pub fn log_in(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let form = Form::read_unproven(request)?;
    let next = form.text("next").unwrap_or_default();
    let token = form.text("token").unwrap_or_default();
    Ok(match admit(app, token, request.headers.peer) {
        Ok((cookie, caller)) => {
            let text = format!("{} logged in to the pages", caller.name);
            let event = NewEvent::new(EventKind::LoggedIn, text);
            let told = app.engine.acting(caller.actor(request.headers.peer));
            told.tell_audited(
                event,
                AuditEntry::of(AuditAction::LoggedIn),
                app.clock.now(),
            )?;
            Response::see_other(page_address(next).unwrap_or("/")).header("set-cookie", cookie)
        }
        Err(error) => {
            let refused = page(error.status, next, Some(&error.message));
            match error.retry_after_secs {
                Some(secs) => refused.header("retry-after", secs.to_string()),
                None => refused,
            }
        }
    }
    .into())
}

/// Logs in, and counts it. A right token counts for itself and a wrong one for its address, so that wrong tokens never delay a right
/// one.
fn admit(app: &App, token: &str, peer: IpAddr) -> Result<(String, Caller), ApiError> {
    let asks = app.gate.asks_for_token();
    let logged_in = app.gate.log_in(token, peer);
    let owner = match &logged_in {
        Ok((_, caller)) => ShareOwner::of(caller, peer, asks),
        Err(_) => ShareOwner::of_address(peer, asks),
    };
    match logged_in {
        Err(error) if error.status == 429 => Err(error),
        logged_in => app.shares.count_login(owner).and(logged_in),
    }
}

pub fn log_out(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let (cookie, ended) = app.gate.log_out(&request.headers);
    if let Some((session, until, caller)) = ended {
        let engine = app.engine.acting(caller.actor(request.headers.peer));
        engine.log_out(session, until, app.clock.now())?;
        app.streams.look();
    }
    Ok(Response::see_other("/login")
        .header("set-cookie", cookie)
        .into())
}

/// Length of an address to go on to after the login. Strangers choose the address, and the page repeats it.
pub const NEXT_BYTES_MAX: usize = 2 << 10;

/// The address, if it is one of this server and not too long: it begins with one slash, and with nothing that a browser takes for
/// another slash.
fn local_address(next: &str) -> Option<&str> {
    let mut letters = next.chars();
    let is_ours = letters.next() == Some('/') && !matches!(letters.next(), Some('/' | '\\'));
    let is_plain = next.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    (is_ours && is_plain && next.len() <= NEXT_BYTES_MAX).then_some(next)
}

/// The address, if a page of this server is there. A link on another site may lead to the login, and from there to pages alone, as
/// such a link may without a login (`Gate::check_origin`).
fn page_address(next: &str) -> Option<&str> {
    let address = local_address(next)?;
    let path = address.split(['?', '#']).next()?;
    let (route, _) = routes::find(Method::Get, &decode_path(path)?).ok()?;
    route.is_linkable.then_some(address)
}

fn page(status: u16, next: &str, fault: Option<&str>) -> Response {
    let next = page_address(next).unwrap_or_default();
    let main = html! {
        form.login method="post" action="/login" {
            h1 { "Log in" }
            input type="hidden" name="next" value=(next);
            label for="token" { "Token" }
            input #token type="password" name="token" required autofocus autocomplete="current-password"
                aria-invalid=[fault.map(|_| "true")] aria-describedby="token-help token-fault";
            p #token-fault .fault role="alert" { @if let Some(fault) = fault { (fault) } }
            p #token-help .note { "Whoever runs this server makes one for you: " code { "stepward token new NAME --role viewer" } ". The token of the first start is in the file " code { (ADMIN_TOKEN_FILE) } " of the server's data folder." }
            button.primary { "Log in" }
        }
    };
    bare("Log in", status, &main)
}

#[cfg(test)]
mod tests {
    use super::{NEXT_BYTES_MAX, local_address, page, page_address};

    #[test]
    fn nobody_is_sent_elsewhere_after_logging_in() {
        let address = "/jobs/4?step=unit";
        assert_eq!(local_address(address), Some(address));
        for odd in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "/\t/evil.example",
            "jobs",
        ] {
            assert_eq!(local_address(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn the_login_leads_to_pages_alone() {
        for address in ["/", "/jobs", "/jobs/4?step=unit", "/tasks/a%20b"] {
            assert_eq!(page_address(address), Some(address));
        }
        for file in [
            "/metrics",
            "/api/jobs",
            "/%61pi/jobs",
            "/jobs/4/graph.svg",
            "/nowhere/at/all",
        ] {
            assert_eq!(page_address(file), None, "{file}");
        }
    }

    #[test]
    fn the_page_repeats_no_long_address() {
        let longest = format!("/jobs?{}", "\"".repeat(NEXT_BYTES_MAX - 6));
        assert_eq!(local_address(&longest), Some(longest.as_str()));
        let repeated = page(200, &longest, None).body;
        assert!((10 << 10..32 << 10).contains(&repeated.len()));
        let too_long = format!("{longest}x");
        assert_eq!(local_address(&too_long), None);
        let page = page(200, &too_long, None);
        let page = String::from_utf8_lossy(&page.body);
        assert!(page.contains("name=\"next\" value=\"\""), "{page}");
    }
}
