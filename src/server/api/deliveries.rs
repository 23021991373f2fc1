//! Messages to the outside: which there are, how their deliveries went, once more, and a test.

use super::{PAGE, PAGE_MAX, jobs, show};
use crate::domain::OutboxId;
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::limits::shorten;
use crate::domain::outbox::MessageState;
use crate::outbox::NotTested;
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::store::MessageFilter;
use crate::wire::api::{List, TestedJson};

/// Newest first.
pub fn list(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["state", "target", "job", "limit", "after"])?;
    let filter = MessageFilter {
        state: request.query("state").map(state).transpose()?,
        target: request.query("target").map(str::to_string),
        job_id: match request.query("job") {
            Some(job) => Some(jobs::selected(app, job)?),
            None => None,
        },
    };
    let before = request.query_number("after")?.map(OutboxId);
    let limit = request.limit(PAGE, PAGE_MAX)?;
    let (messages, next) = app.engine.messages(before, &filter, limit)?;
    let now = app.clock.now();
    let list = List {
        items: (messages.iter())
            .map(|message| show::delivery(message, &app.origin, now))
            .collect(),
        next: next.map(|outbox_id| outbox_id.to_string()),
    };
    Ok(Response::json(200, &list).into())
}

fn state(word: &str) -> Result<MessageState, ApiError> {
    MessageState::from_word(word).ok_or_else(|| {
        let known: Vec<&str> = MessageState::ALL
            .iter()
            .map(|state| state.as_str())
            .collect();
        let known = known.join(", ");
        ApiError::invalid(format!("state {word:?} is not known, known are: {known}"))
    })
}

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    answer(app, OutboxId(request.id(0)?))
}

/// Under the same id, at once.
pub fn redeliver(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let outbox_id = OutboxId(request.id(0)?);
    app.engine_for(request)
        .redeliver(outbox_id, app.clock.now())?;
    answer(app, outbox_id)
}

fn answer(app: &App, outbox_id: OutboxId) -> Result<Reply, ApiError> {
    let detail = app.engine.message(outbox_id)?;
    let json = show::delivery_detail(detail, &app.origin, app.clock.now());
    Ok(Response::json(200, &json).into())
}

/// Sends a message that tells nothing, and answers how it went.
pub fn test(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    Ok(Response::json(200, &try_target(app, request)?).into())
}

pub fn try_target(app: &App, request: &Request) -> Result<TestedJson, ApiError> {
    let target = request.param(0);
    let tested = app.outbox.test(target).map_err(|why| match why {
        NotTested::Unknown => {
            let target = shorten(target);
            ApiError::not_found(format!("the settings have no target {target} under notify"))
        }
        NotTested::Busy => {
            let message = "another test is under way, wait for its end";
            ApiError::new(409, "conflict", message)
        }
    })?;
    let text = format!(
        "a test message was sent to {target}: {}",
        tested.sent.message
    );
    let event = NewEvent::new(EventKind::NotifyTested, text);
    let entry = AuditEntry::of(AuditAction::NotifyTested).object("target", target);
    app.engine_for(request)
        .tell_audited(event, entry, app.clock.now())?;
    Ok(TestedJson {
        target: target.to_string(),
        ok: tested.sent.is_ok,
        status: tested.sent.status,
        message: tested.sent.message,
        duration_ms: tested.duration_ms,
    })
}
