//! Webhooks in: a signed request of somebody else makes a job.
//!
//! Whoever reaches the port may ask, and is let in by the webhook's own secret. A name that does not exist is answered as a
//! wrong signature is. A delivery that comes again, under the same id, is answered with the job that it made; what it says
//! the second time is not looked at.

use std::sync::Mutex;

use serde_json::{Map, Value};

use crate::clock::monotonic_ms;
use crate::domain::Json;
use crate::domain::job::Source;
use crate::domain::limits::{self, shorten};
use crate::domain::webhook::WebhookDraft;
use crate::engine::Submission;
use crate::language::template::{Context, render_value};
use crate::secrets::Secrets;
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::server::signed::Evidence;
use crate::store::hex_sha256;
use crate::wire::api::HookedJson;

/// Headers whose names have one of these in them show who somebody is, and are none of a job's business.
const NOT_TOLD: &[&str] = &[
    "authorization",
    "cookie",
    "signature",
    "token",
    "secret",
    "api-key",
];

pub fn receive(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&[])?;
    let name = request.param(0);
    let evidence = Evidence {
        headers: &request.headers.all,
        body: &request.body,
    };
    let loaded = app.workflows.current();
    let Some(webhook) = loaded.webhooks.get(name) else {
        // As much work as with one that exists.
        evidence.shows(None, "no such webhook", app.clock.now().wall);
        return Err(refused(app, name));
    };
    let secret = Secrets::resolve(&webhook.secret).map_err(|fault| {
        let sentence = format!("webhook {name} cannot be checked: {fault}");
        app.hook_log.say(&sentence);
        let message = "the webhook cannot be checked, the server's log says why";
        ApiError::new(503, "not_ready", message)
    })?;
    if !evidence.shows(webhook.scheme, &secret, app.clock.now().wall) {
        return Err(refused(app, name));
    }
    let key = evidence.delivery_id().map(|id| key(name, id));
    if let Some(key) = &key
        && let Some(job_id) = app.engine.job_of_key(key)?
    {
        let json = HookedJson {
            job_id: job_id.0,
            repeated: true,
        };
        return Ok(Response::json(200, &json).into());
    }
    let input = input(webhook, &evidence, request)?;
    let frozen = loaded.tasks.get(&webhook.task).ok_or_else(|| {
        let task = &webhook.task;
        app.hook_log.say(&format!(
            "webhook {name} is for task {task}, which does not exist"
        ));
        let message = "the webhook has no task, the server's log says which";
        ApiError::new(503, "not_ready", message)
    })?;
    let submission = Submission {
        source: Source::Webhook,
        input,
        idempotency_key: key,
        ..Submission::of(frozen)
    };
    let made = app.engine.submit(submission, app.clock.now())?;
    let json = HookedJson {
        job_id: made.job_id.0,
        repeated: made.repeated,
    };
    let status = if made.repeated { 200 } else { 201 };
    Ok(Response::json(status, &json).into())
}

/// One same answer, whatever is wrong.
fn refused(app: &App, name: &str) -> ApiError {
    let sentence = format!("a request to webhook {} was refused", shorten(name));
    app.hook_log.say(&sentence);
    let message = "there is no such webhook, or the request does not show that it knows its secret";
    ApiError::new(401, "unauthorized", message)
}

/// An id may be as long as a header.
fn key(name: &str, id: &str) -> String {
    let key = format!("webhook:{name}:{id}");
    let is_plain = !id.contains(char::is_control);
    match key.len() <= limits::KEY_BYTES_MAX && is_plain {
        true => key,
        false => format!("webhook:{name}:sha256:{}", hex_sha256(id.as_bytes())),
    }
}

/// What the job is given, or everything that is wrong with it.
fn input(webhook: &WebhookDraft, evidence: &Evidence, request: &Request) -> Result<Json, ApiError> {
    let context = Context::new()
        .with("body", body(request)?)
        .with("headers", headers(evidence));
    let templates: Map<String, Value> = serde_json::from_str(&webhook.input.0).unwrap_or_default();
    let mut rendered = Map::new();
    let mut faults = Vec::new();
    for (name, template) in templates {
        match render_value(&Json(template.to_string()), &context) {
            Ok(value) => {
                rendered.insert(name, value);
            }
            Err(fault) => faults.push(format!("input {name}: {fault}")),
        }
    }
    match faults.first() {
        None => Ok(Json(Value::from(rendered).to_string())),
        Some(first) => Err(ApiError {
            details: faults.clone(),
            ..ApiError::invalid(format!("the request does not fit the webhook: {first}"))
        }),
    }
}

/// An empty body stands for an empty object.
fn body(request: &Request) -> Result<Value, ApiError> {
    if request.body.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    if let Some(content_type) = &request.headers.content_type {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        let media = media.to_ascii_lowercase();
        if media != "application/json" && !media.ends_with("+json") {
            let message = format!("the body is {media:?}, send application/json");
            return Err(ApiError::new(415, "unsupported_media_type", message));
        }
    }
    serde_json::from_slice(&request.body).map_err(|error| {
        let message = format!("the body is not understood: {error}");
        ApiError::new(400, "invalid_json", message)
    })
}

/// By name; of several of the same name, all.
fn headers(evidence: &Evidence) -> Value {
    let mut told: Map<String, Value> = Map::new();
    let is_told = |name: &str| !NOT_TOLD.iter().any(|word| name.contains(word));
    for (name, value) in evidence.headers.iter().filter(|(name, _)| is_told(name)) {
        match told.get_mut(name) {
            Some(Value::String(text)) => {
                text.push_str(", ");
                text.push_str(value);
            }
            _ => {
                told.insert(name.clone(), Value::String(value.clone()));
            }
        }
    }
    Value::Object(told)
}

/// Anybody can have himself refused a million times; the log has a line now and then.
#[derive(Default)]
pub struct HookLog {
    /// When the last line was, and how many were not said since.
    state: Mutex<(Option<i64>, u64)>,
}

impl HookLog {
    fn say(&self, sentence: &str) {
        if let Some(line) = self.line(sentence, monotonic_ms()) {
            log::warn!("{line}");
        }
    }

    fn line(&self, sentence: &str, now_ms: i64) -> Option<String> {
        const PAUSE_MS: i64 = 10_000;
        let mut state = self.state.lock().expect("no panic while it is held");
        let (last_ms, unsaid) = &mut *state;
        if last_ms.is_some_and(|last_ms| now_ms - last_ms < PAUSE_MS) {
            *unsaid += 1;
            return None;
        }
        *last_ms = Some(now_ms);
        let unsaid = std::mem::take(unsaid);
        Some(match unsaid {
            0 => sentence.to_string(),
            unsaid => format!("{sentence}; {unsaid} more such lines were left out"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_a_line_now_and_then() {
        let log = HookLog::default();
        assert_eq!(log.line("no", 0).as_deref(), Some("no"));
        assert_eq!(log.line("no", 1), None);
        assert_eq!(log.line("no", 9_999), None);
        let line = log.line("no", 10_000).unwrap();
        assert_eq!(line, "no; 2 more such lines were left out");
        assert_eq!(log.line("no", 20_000).as_deref(), Some("no"));
    }

    #[test]
    fn a_job_is_not_told_who_somebody_is() {
        let all = [
            ("authorization", "Bearer x"),
            ("cookie", "x"),
            ("x-hub-signature-256", "x"),
            ("webhook-signature", "x"),
            ("x-gitlab-token", "x"),
            ("x-github-event", "push"),
            ("accept", "a"),
            ("accept", "b"),
        ];
        let all = all.map(|(name, value)| (name.to_string(), value.to_string()));
        let evidence = Evidence {
            headers: &all,
            body: b"",
        };
        let expected = serde_json::json!({ "x-github-event": "push", "accept": "a, b" });
        assert_eq!(headers(&evidence), expected);
    }

    #[test]
    fn a_long_id_is_a_key_all_the_same() {
        assert_eq!(key("push", "1"), "webhook:push:1");
        let long = key("push", &"x".repeat(10_000));
        assert!(long.len() <= limits::KEY_BYTES_MAX, "{long}");
        assert_ne!(long, key("push", &"x".repeat(10_001)));
    }
}
