//! `GET /api/openapi.json`: the API as OpenAPI 3.1, for programs that write clients and for people who look things up.
//!
//! Which routes there are and who may use them says the table of routes; `paths.rs` says what each of them takes and answers,
//! `schemas.rs` what things look like. A test holds all of it against what the server answers.
//!
//! Deliberately not here: pages, which are for browsers.

mod notation;
mod operation;
mod paths;
mod schemas;

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::App;
use super::error::ApiError;
use super::exchange::{Reply, Request, Response};
use super::routes::every_route;
use super::web::gzip;
use notation::reference;

const ABOUT: &str = "A worker orchestrator: tasks become jobs, workers run their steps, recovery gives up what is stuck.\n\n\
    Times are RFC 3339, UTC, with milliseconds. Fields of answers are a promise, more may be added; a field or a parameter that is not \
    known is refused. `HEAD` is answered like `GET`. A server that only this machine reaches may ask for no token.";

pub fn show(_: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    static DOCUMENT: OnceLock<Response> = OnceLock::new();
    let response = DOCUMENT.get_or_init(|| Response::json(200, &document()));
    Ok(gzip::squeezed(response.clone(), &request.headers).into())
}

fn document() -> Value {
    let mut paths = json!({});
    let mut tags = Vec::new();
    for (tag, about, operations) in paths::TAGS {
        tags.push(json!({ "name": tag, "description": about }));
        for operation in operations() {
            let method = operation.method.as_str();
            let mut routes = every_route();
            let route = routes.find(|(known, path, _)| *known == method && *path == operation.path);
            let (_, path, access) = route.expect("what is described is a route");
            let verb = method.to_lowercase();
            paths[path][verb] = operation.written(tag, access);
        }
    }
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Stepward",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
        },
        "servers": [{ "url": "/" }],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "responses": { "Error": {
                "description": "Why it was not done. With 429 the caller went over one of its limits, and with 503 the server cannot do it now: `Retry-After` says in how many seconds to try again.",
                "content": { "application/json": { "schema": reference("Error") } },
            } },
            "securitySchemes": security_schemes(),
        },
    })
}

fn security_schemes() -> Value {
    let header = |name: &str, about: &str| json!({ "type": "apiKey", "in": "header", "name": name, "description": about });
    let bearer = |about: &str| json!({ "type": "http", "scheme": "bearer", "description": about });
    json!({
        "token": bearer("A token of `stepward token new`, of the role that `x-stepward-role` names or of one that may do more."),
        "standard": header("webhook-signature", "Standard Webhooks, with `webhook-id` and `webhook-timestamp`."),
        "github": header("x-hub-signature-256", "HMAC-SHA256 of the body, as GitHub signs it."),
        "secret": bearer("The secret of the webhook itself."),
    })
}
