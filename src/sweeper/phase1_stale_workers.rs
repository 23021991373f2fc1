//! Phase 1: workers that were silent for too long become inactive; what is in hands that will not end it is taken from them.

use super::{Find, Look};
use crate::domain::Uptime;
use crate::domain::recovery::Bounds;
use crate::engine::{EngineError, Suspect, together_silent};
use crate::planted::{Bug, planted};

/// In this order: what a worker held is taken from it in the sweep in which it becomes inactive.
pub const FIND: &[Find] = &[
    silent_workers,
    abandoned_steps,
    forgotten_steps,
    unacknowledged_steps,
];

/// All whose time comes; or none of them, if so many fell silent together that the fault is probably ours.
///
/// Looking ahead, every worker would be silent one day: only those whose heartbeat is late are looked at.
fn silent_workers(look: &Look, until_up: Uptime) -> Result<Vec<Suspect>, EngineError> {
    let bounds = &look.bounds;
    let seen_up = match planted(Bug::WallClockLiveness) {
        true => Some(Uptime(i64::MAX)),
        false => bounds.silent_since(until_up),
    };
    let Some(seen_up) = seen_up else {
        return Ok(Vec::new());
    };
    let seen_up = seen_up.min(bounds.late_since(look.now.up));
    let silent = look.tx.silent_workers(seen_up, look.limit)?;
    let Some(&(_, first_seen_up)) = silent.first() else {
        return Ok(Vec::new());
    };
    if bounds.patient_until.is_none() && !planted(Bug::MassSilenceNotSuspected) {
        // Not when the sweep comes, which may be late, but when the first one's time was up.
        let at_up = bounds.silent_at(first_seen_up);
        let (together, active) = together_silent(look.tx, bounds, at_up, look.now)?;
        if Bounds::is_mass_silence(together, active) {
            return Ok(vec![Suspect::ManyWorkers { at_up }]);
        }
    }
    let workers = silent.into_iter().map(|(worker_id, _)| worker_id);
    Ok(workers.map(Suspect::Worker).collect())
}

/// In the hands of inactive or deleted workers or of former sessions, whenever they got there.
fn abandoned_steps(look: &Look, _: Uptime) -> Result<Vec<Suspect>, EngineError> {
    if planted(Bug::AbandonedNotSwept) {
        return Ok(Vec::new());
    }
    let steps = look.tx.abandoned_steps(look.limit)?;
    Ok(steps.into_iter().map(Suspect::HeldStep).collect())
}

/// A worker that is there does not speak of them any more.
fn forgotten_steps(look: &Look, until_up: Uptime) -> Result<Vec<Suspect>, EngineError> {
    let since_up = until_up.plus_ms(-look.bounds.settings.report_grace_ms);
    let steps = look.tx.forgotten_steps(since_up, look.limit)?;
    let steps = steps.into_iter().map(|(step_id, _)| step_id);
    Ok(steps.map(Suspect::HeldStep).collect())
}

fn unacknowledged_steps(look: &Look, until_up: Uptime) -> Result<Vec<Suspect>, EngineError> {
    if planted(Bug::AssignedNotSwept) {
        return Ok(Vec::new());
    }
    let steps = look.tx.unacknowledged_steps(until_up, look.limit)?;
    let steps = steps.into_iter().map(|(step_id, _)| step_id);
    Ok(steps.map(Suspect::HeldStep).collect())
}
