//! Phase 4: ready steps that no worker could take for too long. Steps that the server itself runs need no worker.

use super::{Find, Look};
use crate::domain::{StepId, Uptime};
use crate::engine::{EngineError, Suspect};
use crate::planted::{Bug, planted};

pub const FIND: &[Find] = &[unmatched_steps];

fn unmatched_steps(look: &Look, until_up: Uptime) -> Result<Vec<Suspect>, EngineError> {
    let timeout_ms = look.bounds.settings.unmatched_step_timeout_ms;
    if look.bounds.undisturbed_since.plus_ms(timeout_ms) > until_up {
        return Ok(Vec::new());
    }
    let since_up = until_up.plus_ms(-timeout_ms);
    let steps = match planted(Bug::UnmatchedIgnoresTags) {
        true => (1..500).map(StepId).collect(),
        false => look.tx.unmatched_steps(since_up, look.limit)?,
    };
    Ok(steps.into_iter().map(Suspect::UnmatchedStep).collect())
}
