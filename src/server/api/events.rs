//! What happened: a page of it, or all of it from now on.

use super::jobs::selected;
use super::{PAGE, PAGE_MAX, show};
use crate::domain::EventSeq;
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::server::streams::{Place, Subscription};
use crate::wire::api::List;

/// Whoever accepts `text/event-stream` gets a stream, all others a page: the newest first, or oldest first after a number;
/// with `recovery=true` only what recovery did.
pub fn list_or_stream(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let accept = request.headers.accept.as_deref().unwrap_or_default();
    match accept.contains("text/event-stream") {
        true => stream(app, request),
        false => list(app, request),
    }
}

fn stream(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["after", "job"])?;
    let job_id = match request.query("job") {
        Some(job) => Some(selected(app, job)?),
        None => None,
    };
    let resumed = request.headers.last_event_id.as_deref();
    let (event, change) = app.engine.present()?;
    let present = Place { event, change };
    let from = match resumed.or(request.query("after")) {
        Some(place) => Place::parse(place)?.at_most(present),
        None => present,
    };
    if let Some(job_id) = job_id {
        // One that does not exist is better told now than never.
        app.engine.story(job_id, EventSeq(0), 1)?;
    }
    Ok(Reply::Stream(Subscription {
        from,
        job_id,
        pass: app.gate.pass(&request.caller, &request.headers),
        owner: app.share_owner(request),
    }))
}

fn list(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["after", "before", "limit", "recovery"])?;
    let limit = request.limit(PAGE, PAGE_MAX)?;
    let of_recovery = match request.query("recovery") {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            let message = format!("recovery is {other:?}, expected true or false");
            return Err(ApiError::invalid(message));
        }
    };
    let before = EventSeq(request.query_number("before")?.unwrap_or(i64::MAX));
    let events = match request.query_number("after")?.map(EventSeq) {
        Some(_) if request.query("before").is_some() => {
            return Err(ApiError::invalid("ask for after, or for before, not both"));
        }
        Some(_) if of_recovery => {
            let message = "what recovery did is told newest first, ask for before";
            return Err(ApiError::invalid(message));
        }
        Some(after) => app.engine.events_after(after, limit)?,
        None if of_recovery => app.engine.recoveries_before(before, limit)?,
        None => app.engine.events_before(before, limit)?,
    };
    let is_full = events.len() == limit as usize;
    let last = events.last().map(|named| named.event.seq.to_string());
    let list = List {
        next: last.filter(|_| is_full),
        items: events.into_iter().map(show::event).collect(),
    };
    Ok(Response::json(200, &list).into())
}
