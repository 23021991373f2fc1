//! Tokens on the settings page: who can come in, a new one, which is shown once, and one less.

use maud::{Markup, html};

use super::ask::Question;
use super::form::Form;
use super::frame::{Here, View};
use super::parts;
use crate::domain::TokenId;
use crate::domain::token::Role;
use crate::language::duration;
use crate::problems::start_worker;
use crate::server::App;
use crate::server::api::{show, tokens as api};
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::{NewTokenRequest, TokenJson};

/// Those that are shown; the API has them all.
const SHOWN: usize = 200;

/// Of those that let nobody in any more, only the last ones.
pub fn boxed(view: &View) -> Result<Markup, ApiError> {
    let app = view.app;
    if !view.request.caller.may(Role::Admin) {
        return Ok(html! {});
    }
    let all = app.engine.tokens(TokenId(0), u32::MAX)?;
    let mut tokens: Vec<TokenJson> = all
        .iter()
        .map(|token| show::token(token, view.now))
        .collect();
    tokens.sort_by_key(|token| (token.status != "good", std::cmp::Reverse(token.id)));
    let more = tokens.len().saturating_sub(SHOWN);
    tokens.truncate(SHOWN);
    let file = app.config.auth.token_file.as_deref();
    Ok(html! {
        section.box #tokens aria-labelledby="tokens-title" {
            header { h2 #tokens-title { "Tokens" } span.note { "kept as hashes; each is shown once, when it is made" } }
            div.in {
                @if !app.gate.asks_for_token() {
                    p { "Nobody is asked for one: this server listens on " code { (app.config.listen) } ", which only this machine reaches. Tokens count as soon as it listens elsewhere, or with " code { "auth.required: true" } ". Tokens that are made now are then listed as a problem, because anybody on this machine could have made them." }
                }
                @if let Some(file) = file {
                    p { "The text in " code { (file.display()) } " opens everything, as " code { "auth.token_file" } " of the settings says." }
                }
                p.actions { a.button data-dialog href="/settings/tokens/new" { "Make a token" } " " a.button href="/settings/audit" { "Audit log" } }
            }
            @if !tokens.is_empty() { (table(&tokens, view)) }
            @if more > 0 { div.in { p.note { "and " (more) " more that let nobody in any more" } } }
        }
    })
}

fn table(tokens: &[TokenJson], view: &View) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Tokens" {
            table {
                caption.hidden { "Tokens, what they let do, and when they were last used" }
                thead { tr { th scope="col" { "token" } th scope="col" { "name" } th scope="col" { "role" } th scope="col" { "state" } th.wide scope="col" { "tags" } th.number scope="col" { "last used" } th.number.wide scope="col" { "made" } th.wide scope="col" { "by" } th scope="col" { span.hidden { "actions" } } } }
                tbody {
                    @for token in tokens {
                        tr id={ "token-" (token.id) } {
                            td { (token.id) } td.wrap { (token.name) } td { (token.role) }
                            td { (state(token, view)) }
                            td.wide.wrap { @if let Some(tags) = &token.tags { (tags.join(", ")) } @else { (parts::none()) } }
                            td.number { @if let Some(at) = token.used_at { (parts::ago(at, view.now)) } @else { span.note { "never" } } }
                            td.number.wide { (parts::ago(token.created_at, view.now)) }
                            td.wide.wrap { (token.made_by) }
                            td { @if token.status == "good" { a.button data-dialog href={ "/settings/tokens/" (token.id) "/revoke" } { "Revoke" span.hidden { " token " (token.id) } } } }
                        }
                    }
                }
            }
        }
    }
}

fn state(token: &TokenJson, view: &View) -> Markup {
    html! {
        (token.status)
        @if token.status == "good" && let Some(at) = token.expires_at { span.note { ", ends " (parts::until(at, view.now)) } }
        @if token.unasked { span.note { ", made while nobody was asked" } }
    }
}

/// Role, and what it lets do.
const ROLES: &[(Role, &str)] = &[
    (Role::Viewer, "looks at everything but tokens"),
    (Role::Operator, "and runs, cancels, retries, approves"),
    (Role::Admin, "and makes tokens, deletes workers"),
    (Role::Worker, "runs steps, and nothing else"),
    (
        Role::Enrolment,
        "lets one worker make its own token, once, within an hour",
    ),
];

pub fn ask_new(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let view = View::begin(app, request)?;
    Question {
        title: "Make a token".to_string(),
        text: html! {
            div.field { label for="token-name" { "Name " span.note { "(events call whoever shows it so)" } } input #token-name name="name" required maxlength="128" autocomplete="off"; }
            fieldset {
                legend { b { "Role" } }
                @for (role, what) in ROLES {
                    p { label { input type="radio" name="role" value=(role) checked[*role == Role::Viewer]; " " b { (role) } span.note { " " (what) } } }
                }
            }
            div.field { label for="token-tags" { "Tags " span.note { "(workers: all that it may offer, with commas; empty: anything)" } } input #token-tags name="tags" autocomplete="off"; }
            div.field { label for="token-expires" { "Ends after " span.note { "(such as 90d; empty: never, or within an hour for an enrolment)" } } input #token-expires name="expires" autocomplete="off"; }
        },
        action: "/settings/tokens/new".to_string(),
        button: "Make it",
        is_grave: false,
        back: "/settings#tokens".to_string(),
        here: Here::Settings,
    }
    .show(&view)
}

/// Not a way to another page, for once: what it shows is nowhere else.
pub fn make(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let form = Form::read(app, request)?;
    let expires_in_secs = match form.said("expires") {
        None => None,
        Some(text) => Some(expiry_secs(text).map_err(ApiError::invalid)?),
    };
    let tags = form.said("tags").map(|tags| {
        let tags = tags.split([',', ' ']).filter(|tag| !tag.is_empty());
        tags.map(str::to_string).collect()
    });
    let asked = NewTokenRequest {
        name: form.said("name").unwrap_or_default().to_string(),
        role: form.text("role").unwrap_or_default().to_string(),
        tags,
        expires_in_secs,
    };
    let view = View::begin(app, request)?;
    let made = api::made(app, request, asked);
    let (token, text) = made.map_err(|error| match error.status {
        // A page that is loaded again sends its form again.
        409 => ApiError {
            message: format!(
                "{}. If this very form made it: its text was shown once, and cannot be shown again",
                error.message
            ),
            ..error
        },
        _ => error,
    })?;
    let how = match token.role {
        Role::Worker | Role::Enrolment => start_worker(&view.address(), true),
        _ => format!(
            "stepward status --server {} --token-file FILE",
            view.address()
        ),
    };
    let main = html! {
        div.title { h1 { "Token " (token.token_id) " of " (token.name) } }
        section.box {
            div.in {
                p { "This is its text. It is shown now and never again: keep it in a file that nobody else can read." }
                p { (parts::command(&text)) }
                p { "Then:" }
                p { (parts::command(&how)) }
                p.actions { a.button href="/settings#tokens" { "To the tokens" } }
            }
        }
    };
    view.page(format!("Token {}", token.token_id), Here::Settings)
        .show(main)
}

/// Whole seconds of a duration such as `90d`.
fn expiry_secs(text: &str) -> Result<u32, String> {
    let ms = duration::parse(text).map_err(|_| format!("{text:?} is no duration, such as 90d"))?;
    u32::try_from(ms / 1_000).map_err(|_| format!("{text:?} is too long"))
}

pub fn ask_revoke(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let view = View::begin(app, request)?;
    let token = find(app, request)?;
    let is_own = request.caller.token_id() == Some(token.token_id);
    let role = token.role;
    Question {
        title: format!("Revoke token {} of {}?", token.token_id, token.name),
        text: html! {
            p { "It lets nobody in from this moment on; that cannot be taken back." }
            @if role == Role::Worker { p { "Workers that came with it are given nothing more, cannot report what they run, and are given up by recovery when their time is up." } }
            @if role.is_for_people() { p { "Browsers that logged in with it are logged out." } }
            @if is_own { p.fault { "It is the one that you came in with." } }
        },
        action: format!("/settings/tokens/{}/revoke", token.token_id),
        button: "Revoke",
        is_grave: true,
        back: "/settings#tokens".to_string(),
        here: Here::Settings,
    }
    .show(&view)
}

pub fn revoke(app: &App, request: &Request) -> Result<Reply, ApiError> {
    Form::read(app, request)?;
    let token = find(app, request)?;
    api::revoked(app, request, token.token_id)?;
    Ok(Response::see_other("/settings?said=token-revoked#tokens").into())
}

fn find(app: &App, request: &Request) -> Result<crate::domain::token::Token, ApiError> {
    let token_id = TokenId(request.id(0)?);
    let found = app.engine.tokens(TokenId(token_id.0 - 1), 1)?;
    let found = found.into_iter().find(|token| token.token_id == token_id);
    found.ok_or_else(|| ApiError::not_found(format!("there is no token {token_id}")))
}
