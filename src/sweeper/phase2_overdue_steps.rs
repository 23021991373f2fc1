//! Phase 2: steps that run longer than their timeout, approvals that nobody gave in time.

use super::{Find, Look};
use crate::domain::Uptime;
use crate::engine::{EngineError, Suspect};

pub const FIND: &[Find] = &[overdue_steps];

fn overdue_steps(look: &Look, until_up: Uptime) -> Result<Vec<Suspect>, EngineError> {
    let steps = look.tx.overdue_steps(until_up, look.limit)?;
    let steps = steps.into_iter().map(|(step_id, _)| step_id);
    Ok(steps.map(Suspect::OverdueStep).collect())
}
