//! How long things are kept: what was removed, and what is to go before its time.

use crate::domain::event::{EventKind, NewEvent};
use crate::domain::{EventSeq, JobId, Now, Timestamp};
use crate::reaper::{ReapError, prune_events, prune_jobs};
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::Time;
use crate::wire::api::{PruneRequest, PrunedJson, RetentionJson};
use crate::words::count;

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let stats = app.reaper.stats();
    let size = app.engine.file_size()?;
    let removed = stats.removed();
    let removed = removed.map(|(kind, count)| (kind.as_str().to_string(), count));
    let json = RetentionJson {
        rounds: stats.rounds,
        removed: removed.collect(),
        last_round_at: stats.last.as_ref().map(|last| Time(last.at)),
        last_error: stats.last.and_then(|last| last.failure),
        database_bytes: size.pages * size.page_bytes,
        database_free_bytes: size.free_bytes(),
        database_shrinks: size.shrinks,
    };
    Ok(Response::json(200, &json).into())
}

/// One piece of it: whoever wants all asks again, after what the answer says.
pub fn prune(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&[])?;
    let asked: PruneRequest = request.json()?;
    let bounds = app.config.retention.bounds();
    let older_ms = match asked.jobs_older_secs {
        None => bounds.job_ms,
        Some(secs) if secs >= 1 => secs.saturating_mul(1_000),
        Some(secs) => {
            let fault = format!("jobs_older_secs is {secs}, it must be at least 1");
            return Err(ApiError::invalid(fault));
        }
    };
    let now = app.clock.now();
    if asked.events {
        if asked.jobs_older_secs.is_some() {
            let fault = "events and jobs_older_secs are both set, ask for one after the other";
            return Err(ApiError::invalid(fault.to_string()));
        }
        return events(app, request, &asked, now);
    }
    let pruned = prune_jobs(
        &app.engine_for(request),
        &app.logs,
        bounds,
        Timestamp(now.wall.0.saturating_sub(older_ms)),
        JobId(asked.after.unwrap_or(0)),
        asked.dry_run,
        now,
    );
    let pruned = pruned.map_err(refused)?;
    if !asked.dry_run && pruned.jobs > 0 {
        let jobs = count(pruned.jobs as usize, "job");
        let text = format!("removed before their time: {jobs}");
        let event = NewEvent::new(EventKind::JobsPruned, text);
        app.engine_for(request).tell_quietly(event, now)?;
    }
    let json = PrunedJson {
        dry_run: asked.dry_run,
        jobs: pruned.jobs,
        log_bytes: pruned.log_bytes,
        events: 0,
        needed: pruned.needed,
        next: pruned.next,
    };
    Ok(Response::json(200, &json).into())
}

/// One piece of the events of jobs that are gone.
fn events(app: &App, request: &Request, asked: &PruneRequest, now: Now) -> Result<Reply, ApiError> {
    let pruned = prune_events(
        &app.engine_for(request),
        &app.logs,
        app.config.retention.bounds(),
        EventSeq(asked.after.unwrap_or(0)),
        asked.dry_run,
        now,
    );
    let pruned = pruned.map_err(refused)?;
    if !asked.dry_run && pruned.events > 0 {
        let events = count(pruned.events as usize, "event");
        let text = format!("removed {events} of jobs that are gone");
        let event = NewEvent::new(EventKind::JobsPruned, text);
        app.engine_for(request).tell_quietly(event, now)?;
    }
    let json = PrunedJson {
        dry_run: asked.dry_run,
        events: pruned.events,
        next: pruned.next.map(|next| next.0),
        ..PrunedJson::default()
    };
    Ok(Response::json(200, &json).into())
}

fn refused(error: ReapError) -> ApiError {
    match error {
        ReapError::Engine(error) => error.into(),
        other => {
            log::error!("{other}");
            ApiError::new(500, "internal", other.to_string())
        }
    }
}
