//! What waits, and why.

use super::{PAGE_MAX, show};
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::List;

/// The first of those that wait for a worker, for a person, for their next try.
pub fn list(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["limit"])?;
    let limit = request.limit(100, PAGE_MAX)?;
    let waiting = app.engine.queue(limit, app.clock.now())?;
    let list = List {
        items: waiting.iter().map(show::waiting).collect(),
        next: None,
    };
    Ok(Response::json(200, &list).into())
}
