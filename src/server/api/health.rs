//! Whether the process lives, and whether it can work.

use crate::clock::monotonic_ms;
use crate::disk::free_bytes;
use crate::domain::Timestamp;
use crate::domain::token::Role;
use crate::problems::{DISK_BYTES_LOW, DISK_NEARLY_FULL, certificate_ends, certificate_refused};
use crate::server::App;
use crate::server::door;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::{Health, NoticeJson};
use crate::words::count;

pub fn healthz(_: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    Ok(Response::json(200, &one_word("ok")).into())
}

/// The store can write, and recovery is awake. Whoever shows no token where one is asked for learns that and no more.
pub fn readyz(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let health = look(app);
    let status = if health.problems.is_empty() { 200 } else { 503 };
    let told = match app.gate.identify(&request.headers, true) {
        Ok(caller) => Health {
            notices: match caller.may(Role::Viewer) {
                true => notices(app, caller.may(Role::Admin)),
                false => Vec::new(),
            },
            ..health
        },
        Err(_) => one_word(&health.status),
    };
    Ok(Response::json(status, &told).into())
}

fn one_word(status: &str) -> Health {
    Health {
        status: status.to_string(),
        problems: Vec::new(),
        warnings: Vec::new(),
        rollback: None,
        notices: Vec::new(),
        version: None,
        now: None,
    }
}

/// Notices about authentication and about secrets of webhooks. Names of tokens are included only for callers that may list tokens.
pub fn notices(app: &App, may_list_tokens: bool) -> Vec<NoticeJson> {
    let mut notices = door::notices(app, may_list_tokens);
    notices.extend(app.hook_secrets.notices(app));
    notices
}

/// What keeps it from working. Without notices, which depend on who asks.
pub fn look(app: &App) -> Health {
    let now = app.clock.now();
    let mut problems = Vec::new();
    if !app.engine.can_write(now) {
        problems.push("the store cannot write".to_string());
    }
    let last = app.sweeper.last_sweep();
    let age_ms = last.map(|last| monotonic_ms() - last.monotonic_ms);
    let interval_ms = app.engine.settings.sweep_interval_ms;
    problems.extend(sweeper_problem(age_ms, interval_ms).map(str::to_string));
    let word = match problems.is_empty() {
        true => "ready",
        false => "not ready",
    };
    Health {
        status: word.to_string(),
        problems,
        warnings: (workflows_warning(app).into_iter())
            .chain(disk_warning(app))
            .chain(certificate_warning(app, now.wall))
            .chain(refused_certificate_warning(app))
            .collect(),
        rollback: app.rollback.to_json(app.epochs.current),
        notices: Vec::new(),
        version: Some(env!("CARGO_PKG_VERSION").to_string()),
        now: Some(now.wall.into()),
    }
}

/// Files that do not load keep no job from running, but somebody should know.
fn workflows_warning(app: &App) -> Option<String> {
    match app.workflows.current().errors() {
        0 => None,
        errors => Some(format!(
            "workflow files have {}, see /api/workflows",
            count(errors, "error")
        )),
    }
}

fn disk_warning(app: &App) -> Option<String> {
    let free = free_bytes(app.engine.store.folder()).ok()?;
    (free < DISK_BYTES_LOW).then(|| DISK_NEARLY_FULL.to_string())
}

fn certificate_warning(app: &App, now: Timestamp) -> Option<String> {
    let (_, ends) = app.certificate.as_ref()?.holds()?;
    certificate_ends(ends, now)
}

fn refused_certificate_warning(app: &App) -> Option<String> {
    let fault = app.certificate.as_ref()?.refused()?;
    Some(certificate_refused(&fault))
}

/// What is wrong with a sweeper whose last sweep is so old.
fn sweeper_problem(age_ms: Option<i64>, interval_ms: i64) -> Option<&'static str> {
    /// A sweep is due after the interval at the latest; one that is this late does not come.
    const LATE_MS: i64 = 30_000;
    match age_ms {
        None => Some("the sweeper has not begun"),
        Some(age_ms) if age_ms > interval_ms + LATE_MS => Some("the sweeper is late"),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweeper_that_does_not_come_is_told() {
        assert_eq!(
            sweeper_problem(None, 60_000),
            Some("the sweeper has not begun")
        );
        assert_eq!(sweeper_problem(Some(90_000), 60_000), None);
        assert_eq!(
            sweeper_problem(Some(90_001), 60_000),
            Some("the sweeper is late")
        );
    }
}
