//! Whether the process lives, and whether it can work.

use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::Health;

pub fn healthz(_: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let health = Health {
        status: "ok".to_string(),
        problems: Vec::new(),
    };
    Ok(Response::json(200, &health).into())
}

/// The store can write, and recovery is awake.
pub fn readyz(app: &App, request: &Request) -> Result<Reply, ApiError> {
    /// A sweep is due after the interval at the latest; one that is this late does not come.
    const LATE_MS: i64 = 30_000;
    request.says_no_more()?;
    let now = app.clock.now();
    let mut problems = Vec::new();
    if app.engine.is_failing() || app.engine.save_clock(now).is_err() {
        problems.push("the store cannot write".to_string());
    }
    let late_ms = app.engine.settings.sweep_interval_ms + LATE_MS;
    match app.sweeper.last_sweep() {
        Some(last) if now.wall.0 - last.at.0 <= late_ms => {}
        Some(_) => problems.push("the sweeper is late".to_string()),
        None => problems.push("the sweeper has not begun".to_string()),
    }
    let (status, word) = match problems.is_empty() {
        true => (200, "ready"),
        false => (503, "not ready"),
    };
    let health = Health {
        status: word.to_string(),
        problems,
    };
    Ok(Response::json(status, &health).into())
}
