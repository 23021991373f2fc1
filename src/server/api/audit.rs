//! The audit log, for admins.

use super::{PAGE, PAGE_MAX};
use crate::domain::Timestamp;
use crate::domain::audit::AuditAction;
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::store::{AuditFilter, AuditPage};
use crate::wire::api::{AuditEndsJson, AuditJson, List};

/// A page: the newest first, or oldest first after a number. A filtered page may have fewer rows than asked for, or none, and
/// still have a successor.
pub fn list(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["after", "before", "limit", "actor", "action", "since"])?;
    let limit = request.limit(PAGE, PAGE_MAX)?;
    let filter = filter(request)?;
    let before = request.query_number("before")?.unwrap_or(i64::MAX);
    let page = match request.query_number::<i64>("after")? {
        None => app.engine.audit_before(before, &filter, limit)?,
        Some(_) if request.query("before").is_some() => {
            return Err(ApiError::invalid("after and before cannot be combined"));
        }
        Some(_) if filter != AuditFilter::default() => {
            let message = "actor, action and since cannot be combined with after; use before, which lists the newest rows first";
            return Err(ApiError::invalid(message));
        }
        Some(after) => {
            let rows = app.engine.audit_after(after, limit)?;
            let is_full = rows.len() == limit as usize;
            let next = rows.last().map(|last| last.seq).filter(|_| is_full);
            AuditPage { rows, next }
        }
    };
    let list = List {
        next: page.next.map(|next| next.to_string()),
        items: page.rows.into_iter().map(AuditJson::from).collect(),
    };
    Ok(Response::json(200, &list).into())
}

pub fn filter(request: &Request) -> Result<AuditFilter, ApiError> {
    let given = |key: &str| request.query(key).filter(|value| !value.is_empty());
    let action = given("action").map(|word| {
        AuditAction::from_word(word).ok_or_else(|| {
            ApiError::invalid(format!(
                "unknown action {word:?}; an action is a word such as token_made"
            ))
        })
    });
    let since = given("since").map(|text| {
        let time = text.parse::<jiff::Timestamp>();
        let time = time.map(|time| Timestamp(time.as_millisecond()));
        let message = format!("since is {text:?}, expected a time such as 2026-01-31T08:00:00Z");
        time.map_err(|_| ApiError::invalid(message))
    });
    Ok(AuditFilter {
        actor: given("actor").map(str::to_string),
        action: action.transpose()?,
        since: since.transpose()?,
    })
}

/// Both ends of the chain: whoever verifies it begins with the anchor.
pub fn ends(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let ends = app.engine.audit_ends()?;
    let json = AuditEndsJson {
        anchor: ends.anchor.into(),
        anchor_fault: ends.anchor_fault.map(|fault| fault.to_string()),
        head: ends.head.into(),
        noted_seq: ends.noted_seq,
    };
    Ok(Response::json(200, &json).into())
}
