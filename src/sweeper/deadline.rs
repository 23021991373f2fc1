//! When something may be due next, so that recovery comes within a second of its bound.

use crate::domain::{Now, Uptime};
use crate::engine::{Engine, EngineError};

/// One look at the front of each queue. It may be too early, for what has a grace, and never too late.
pub fn next_deadline(engine: &Engine, now: Now) -> Result<Option<Uptime>, EngineError> {
    let bounds = engine.bounds();
    let end = Uptime(i64::MAX);
    engine.store.read(|tx| {
        let silent = tx.silent_workers(end, 1)?.into_iter();
        let silent = silent.map(|(_, seen_up)| bounds.silent_at(seen_up));
        let abandoned = tx.abandoned_steps(1)?.into_iter().map(|_| now.up);
        let forgotten = tx.forgotten_steps(end, 1)?.into_iter();
        let grace_ms = bounds.settings.report_grace_ms;
        let forgotten = forgotten.map(|(_, since_up)| since_up.plus_ms(grace_ms));
        let unacknowledged = tx.unacknowledged_steps(end, 1)?.into_iter();
        let unacknowledged = unacknowledged.map(|(_, due_up)| due_up);
        let steps = tx.overdue_steps(end, 1)?.into_iter();
        let steps = steps.map(|(_, due_up)| due_up);
        let jobs = tx.overdue_jobs(end, 1)?.into_iter();
        let jobs = jobs.map(|(_, due_up, _)| due_up);
        let unmatched = tx.next_unmatched()?.into_iter();
        let unmatched = unmatched.map(|since_up| bounds.unmatched_at(since_up, since_up));
        let delayed = tx.next_delayed()?.into_iter();
        let not_before = tx.next_not_before()?.into_iter();
        let not_before =
            not_before.map(|at| now.up.plus_ms(at.0.saturating_sub(now.wall.0).max(0)));
        Ok(silent
            .chain(abandoned)
            .chain(forgotten)
            .chain(unacknowledged)
            .chain(steps)
            .chain(jobs)
            .chain(unmatched)
            .chain(delayed)
            .chain(not_before)
            .min())
    })
}
