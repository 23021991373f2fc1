//! What waits, and why.

use super::{PAGE_MAX, show};
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::store::QueuePlace;
use crate::wire::api::List;

pub const PAGE: u32 = 100;

/// What waits for a worker, kind by kind in the order in which they will be taken; then for a person, for the time of the
/// next try, for its turn.
pub fn list(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["limit", "after"])?;
    let after = request.query("after").map(place).transpose()?;
    let limit = request.limit(PAGE, PAGE_MAX)?;
    let (waiting, next) = app.engine.queue(after, limit, app.clock.now())?;
    let list = List {
        items: waiting.iter().map(show::waiting).collect(),
        next: next.map(cursor),
    };
    Ok(Response::json(200, &list).into())
}

/// Nothing that anybody should read or make up.
pub fn cursor(place: QueuePlace) -> String {
    let [a, b, c, d] = place.key;
    format!("{}.{a}.{b}.{c}.{d}", place.line)
}

pub fn place(cursor: &str) -> Result<QueuePlace, ApiError> {
    let (line, key) = cursor.split_once('.').unwrap_or((cursor, ""));
    let line = line.parse().ok().filter(|line| *line < QueuePlace::LINES);
    let key: Result<Vec<i64>, _> = key.split('.').map(str::parse).collect();
    let key = key.ok().and_then(|key| key.try_into().ok());
    let fault = || ApiError::invalid(format!("after is {cursor:?}, expected the next of a page"));
    let (line, key) = line.zip(key).ok_or_else(fault)?;
    Ok(QueuePlace { line, key })
}
