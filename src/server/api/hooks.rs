//! Webhooks in: a signed request of somebody else makes a job.
//!
//! Everybody who reaches the port may send a request; the webhook's own secret decides. An unknown name is answered like a wrong
//! signature, and so is a webhook whose secret cannot be read; the log and an event say why. Wrong signatures and secrets are
//! counted like wrong tokens, for all names together.
//!
//! A delivery that comes again, under the same id, is answered with the job that it made; what it says the second time is not looked
//! at. The same signed text under another id is the same delivery too.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::clock::monotonic_ms;
use crate::domain::Json;
use crate::domain::audit::Actor;
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::job::Source;
use crate::domain::limits::{self, shorten};
use crate::domain::task::Rules;
use crate::domain::webhook::WebhookDraft;
use crate::engine::Submission;
use crate::language::template::{Context, render_value};
use crate::outbox::decoded_secret;
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::server::signed::Evidence;
use crate::store::hex_sha256;
use crate::wire::api::{HookedJson, NoticeJson, Severity};

/// Headers whose names have one of these in them show who somebody is, and are none of a job's business.
const NOT_TOLD: &[&str] = &[
    "authorization",
    "cookie",
    "signature",
    "token",
    "secret",
    "api-key",
];

/// Stands for a secret that there is not, so that the answer takes as long.
const NOBODY_KNOWS: &str = "no such webhook";

pub fn receive(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&[])?;
    let name = request.param(0);
    let evidence = Evidence {
        headers: &request.headers.all,
        body: &request.body,
    };
    let loaded = app.workflows.current();
    let now = app.clock.now();
    let Some(webhook) = loaded.webhooks.get(name) else {
        // As much work as with one that exists.
        evidence.shows(None, NOBODY_KNOWS, now.wall);
        let sentence = format!("a request to webhook {} was refused", shorten(name));
        app.hook_log.say(Refusal::Unknown, "", &sentence);
        return Err(refused(app, request, &evidence));
    };
    let secret = match secret(app, webhook) {
        Ok(secret) => secret,
        Err(fault) => {
            evidence.shows(webhook.scheme, NOBODY_KNOWS, now.wall);
            tell_fault(app, name, &fault);
            return Err(refused(app, request, &evidence));
        }
    };
    if !evidence.shows(webhook.scheme, &secret, now.wall) {
        let sentence = format!("a request to webhook {name} was refused");
        app.hook_log.say(Refusal::NotShown, name, &sentence);
        return Err(refused(app, request, &evidence));
    }
    let id_key = evidence.delivery_id().map(|id| key(name, id));
    let digest = evidence.signed_digest(webhook.scheme);
    let delivery_key = digest.map(|digest| format!("webhook\n{name}\nsigned\n{digest}"));
    if let Some(job_id) = (app.engine).job_of_delivery(id_key.iter().chain(&delivery_key))? {
        let json = HookedJson {
            job_id: job_id.0,
            repeated: true,
        };
        return Ok(Response::json(200, &json).into());
    }
    // Callers without limits have none on webhooks either.
    if app.share_owner(request).is_some() {
        app.shares.count_delivery(name)?;
    }
    let input = input(webhook, &evidence, request)?;
    let frozen = loaded.tasks.get(&webhook.task).ok_or_else(|| {
        let task = &webhook.task;
        let sentence = format!("webhook {name} is for task {task}, which does not exist");
        app.hook_log.say(Refusal::NoTask, name, &sentence);
        let message = "the webhook has no task, the server's log says which";
        ApiError::new(503, "not_ready", message)
    })?;
    let submission = Submission {
        source: Source::Webhook,
        input,
        idempotency_key: id_key,
        delivery_key,
        ..Submission::of(frozen)
    };
    let address = request.headers.peer.to_canonical().to_string();
    let engine = app.engine.acting(Actor::webhook(name, address));
    let made = engine.submit(submission, app.clock.now())?;
    let json = HookedJson {
        job_id: made.job_id.0,
        repeated: made.repeated,
    };
    let status = if made.repeated { 200 } else { 201 };
    Ok(Response::json(status, &json).into())
}

/// The secret that a webhook is served with, or why it is not served.
fn secret(app: &App, webhook: &WebhookDraft) -> Result<String, String> {
    let secret = (app.engine.secret_policy())
        .resolve(&webhook.secret, webhook.rules)
        .map_err(|fault| fault.message)?;
    if secret.trim().is_empty() {
        return Err("its secret is nothing but blanks".to_string());
    }
    match short_secret(&secret) {
        Some(fault) if !allows_short_secret(webhook) => {
            Err(format!("{fault}; {MAKE_LONGER_SECRET}"))
        }
        _ => Ok(secret),
    }
}

/// A shorter secret can be guessed offline by whoever has seen one signature.
const SECRET_BYTES_MIN: usize = 16;

const MAKE_LONGER_SECRET: &str =
    "make a longer secret with `openssl rand -hex 32`, for the webhook and for its sender";

/// Returns what is wrong with a secret that is too short, or `None` if it is long enough.
fn short_secret(secret: &str) -> Option<String> {
    // Of a secret in base64 the decoded bytes are the key.
    let bytes = decoded_secret(secret).map_or(secret.trim().len(), |key| key.len());
    (bytes < SECRET_BYTES_MIN)
        .then(|| format!("its secret has {bytes} bytes, at least {SECRET_BYTES_MIN} are needed"))
}

/// Version 0.1 had no minimum. A file that it had accepted keeps its webhooks, and they are listed as problems.
fn allows_short_secret(webhook: &WebhookDraft) -> bool {
    webhook.rules == Rules::V1
}

/// A notice for each webhook whose secret is too short. A secret that cannot be read is reported when the webhook is called.
fn short_secrets(app: &App) -> Vec<NoticeJson> {
    let loaded = app.workflows.current();
    let fault_of = |webhook: &WebhookDraft| {
        let policy = app.engine.secret_policy();
        let secret = policy.resolve(&webhook.secret, webhook.rules).ok()?;
        let fault = short_secret(&secret)?;
        let name = &webhook.name;
        let message = match allows_short_secret(webhook) {
            true => format!(
                "webhook {name} should have a longer secret: {fault}. The webhook is still served because version 0.1 had accepted its \
                 file"
            ),
            false => format!("webhook {name} refuses all requests: {fault}"),
        };
        Some(NoticeJson {
            code: "short_webhook_secret".to_string(),
            severity: Severity::Problem,
            message,
            fix: MAKE_LONGER_SECRET.to_string(),
            page: "/settings".to_string(),
        })
    };
    loaded.webhooks.values().filter_map(fault_of).collect()
}

/// A webhook that nobody can use is for whoever owns the server to know, and not for whoever asks.
fn tell_fault(app: &App, name: &str, fault: &str) {
    let sentence =
        format!("webhook {name} cannot be checked, all its requests are refused: {fault}");
    app.hook_log.say(Refusal::NoSecret, name, &sentence);
    if !app.hook_log.is_event_due(name, monotonic_ms()) {
        return;
    }
    let data = Json(serde_json::json!({ "webhook": name }).to_string());
    let event = NewEvent::new(EventKind::HookFailed, sentence).data(Some(data));
    if let Err(error) = app.engine.tell(event, app.clock.now()) {
        log::error!("that webhook {name} cannot be checked could not be written down: {error}");
    }
}

/// The same response for every refused request. A wrong secret or signature counts as a wrong token; after too many the response is 429.
fn refused(app: &App, request: &Request, evidence: &Evidence) -> ApiError {
    if evidence.is_shown()
        && let Err(too_many) = app.gate.count_wrong_webhook_secret(request.headers.peer)
    {
        return too_many;
    }
    let message = "there is no such webhook, or the request does not show that it knows its secret";
    ApiError::new(401, "unauthorized", message)
}

/// The line end keeps it apart from the keys of the API, which come in a header and cannot have one. An id may be as long as a
/// header.
fn key(name: &str, id: &str) -> String {
    let key = format!("webhook\n{name}\n{id}");
    let is_plain = !id.contains(char::is_control);
    match key.len() <= limits::KEY_BYTES_MAX && is_plain {
        true => key,
        false => format!("webhook\n{name}\nsha256\n{}", hex_sha256(id.as_bytes())),
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

/// The webhooks with short secrets, as they were found last. Whoever may ask for the health of the server may ask often, and each
/// look reads the secrets of all webhooks.
#[derive(Default)]
pub struct HookSecrets {
    found: Mutex<Option<(i64, Vec<NoticeJson>)>>,
}

impl HookSecrets {
    const LOOK_INTERVAL_MS: i64 = 5_000;

    pub fn notices(&self, app: &App) -> Vec<NoticeJson> {
        let now_ms = monotonic_ms();
        let found = || self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at_ms, notices)) = &mut *found() {
            if now_ms - *at_ms < Self::LOOK_INTERVAL_MS {
                return notices.clone();
            }
            // Requests that come while the secrets are read get the former answer: reading may take long on a slow disk.
            *at_ms = now_ms;
        }
        let notices = short_secrets(app);
        *found() = Some((now_ms, notices.clone()));
        notices
    }
}

/// Why a request is refused; each kind is told by itself, so that strangers who knock hide no fault of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    /// Strangers make up the names, so all of them are one.
    Unknown,
    NotShown,
    NoSecret,
    NoTask,
}

/// Anybody can have himself refused a million times; the log has a line now and then, for each webhook and each kind.
#[derive(Default)]
pub struct HookLog {
    lines: Mutex<BTreeMap<(Refusal, String), Said>>,
    /// When there was an event of a webhook.
    events: Mutex<BTreeMap<String, i64>>,
}

struct Said {
    last_ms: i64,
    /// How many were not said since.
    unsaid: u64,
}

impl HookLog {
    /// Between two lines of one kind about one webhook.
    const PAUSE_MS: i64 = 10_000;
    /// Events are kept, and sent to people.
    const EVENT_PAUSE_MS: i64 = 3_600_000;
    /// Only webhooks that exist are in it, but those may come and go.
    const KNOWN_MAX: usize = 10_000;

    fn say(&self, refusal: Refusal, name: &str, sentence: &str) {
        if let Some(line) = self.line(refusal, name, sentence, monotonic_ms()) {
            match refusal {
                Refusal::Unknown | Refusal::NotShown => log::warn!("{line}"),
                Refusal::NoSecret | Refusal::NoTask => log::error!("{line}"),
            }
        }
    }

    fn line(&self, refusal: Refusal, name: &str, sentence: &str, now_ms: i64) -> Option<String> {
        let mut lines = self.lines.lock().expect("no panic while it is held");
        let key = (refusal, name.to_string());
        let unsaid = match lines.get_mut(&key) {
            Some(said) if now_ms - said.last_ms < Self::PAUSE_MS => {
                said.unsaid += 1;
                return None;
            }
            Some(said) => said.unsaid,
            None => 0,
        };
        if lines.len() >= Self::KNOWN_MAX {
            lines.retain(|_, said| now_ms - said.last_ms < Self::PAUSE_MS);
        }
        let said = Said {
            last_ms: now_ms,
            unsaid: 0,
        };
        lines.insert(key, said);
        Some(match unsaid {
            0 => sentence.to_string(),
            unsaid => format!("{sentence}; {unsaid} more such lines were left out"),
        })
    }

    /// If so, the next one is not due for a while.
    fn is_event_due(&self, name: &str, now_ms: i64) -> bool {
        let mut events = self.events.lock().expect("no panic while it is held");
        let is_recent = |last_ms: &i64| now_ms - last_ms < Self::EVENT_PAUSE_MS;
        if events.get(name).is_some_and(is_recent) {
            return false;
        }
        events.retain(|_, last_ms| is_recent(last_ms));
        events.insert(name.to_string(), now_ms);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_a_line_now_and_then() {
        let log = HookLog::default();
        let line = |at_ms| log.line(Refusal::NotShown, "push", "no", at_ms);
        assert_eq!(line(0).as_deref(), Some("no"));
        assert_eq!(line(1), None);
        assert_eq!(line(9_999), None);
        let said = line(10_000).unwrap();
        assert_eq!(said, "no; 2 more such lines were left out");
        assert_eq!(line(20_000).as_deref(), Some("no"));
    }

    #[test]
    fn strangers_who_knock_hide_no_fault_of_ours() {
        let log = HookLog::default();
        for at_ms in 0..100 {
            log.line(Refusal::Unknown, "", "no", at_ms);
            log.line(Refusal::NotShown, "push", "no", at_ms);
            log.line(Refusal::NotShown, "pull", "no", at_ms);
        }
        for name in ["push", "pull"] {
            for refusal in [Refusal::NoSecret, Refusal::NoTask] {
                let line = log.line(refusal, name, "not set", 100);
                assert_eq!(line.as_deref(), Some("not set"), "{refusal:?} {name}");
            }
        }
        assert_eq!(log.line(Refusal::NoSecret, "push", "not set", 101), None);
    }

    #[test]
    fn what_is_remembered_of_lines_does_not_grow_without_end() {
        let log = HookLog::default();
        for at in 0..3 * HookLog::KNOWN_MAX {
            let at_ms = at as i64 * 10;
            assert!(
                log.line(Refusal::NoTask, &at.to_string(), "no", at_ms)
                    .is_some()
            );
        }
        assert!(log.lines.lock().unwrap().len() <= HookLog::KNOWN_MAX);
    }

    #[test]
    fn there_is_an_event_of_a_webhook_once_in_an_hour() {
        let log = HookLog::default();
        assert!(log.is_event_due("push", 0));
        assert!(!log.is_event_due("push", 3_599_999));
        assert!(log.is_event_due("pull", 3_599_999));
        assert!(log.is_event_due("push", 3_600_000));
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
        assert_eq!(key("push", "1"), "webhook\npush\n1");
        let long = key("push", &"x".repeat(10_000));
        assert!(long.len() <= limits::KEY_BYTES_MAX, "{long}");
        assert_ne!(long, key("push", &"x".repeat(10_001)));
    }
}
