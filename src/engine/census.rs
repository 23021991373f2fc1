//! How much there is right now, out of one snapshot: what has not ended, what it waits for, who could do it.

use super::why::Explainer;
use super::{Engine, EngineError};
use crate::domain::Now;
use crate::domain::reason::Waiting;
use crate::domain::step::StepState;
use crate::domain::worker::WorkerState;

/// More than so many of a kind are not counted: nobody who looks at a million asks how many they are.
const MOST: u32 = 1_000_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    pub jobs_pending: u64,
    pub jobs_running: u64,
    /// Those that have not ended.
    pub steps: [u64; StepState::ALL.len()],
    /// The same steps once more, by what they wait for.
    pub waiting: [u64; Waiting::ALL.len()],
    /// How long the oldest step waits for a worker, by why no worker has it yet. 0: no step does.
    pub oldest_ms: [i64; Waiting::ALL.len()],
    pub workers_active: u64,
    pub workers_inactive: u64,
    /// Of active workers.
    pub slots_used: u64,
    /// Of those that take steps.
    pub slots_free: u64,
    pub messages_pending: u64,
    /// How late the schedule is that is due for longest; 0: none is.
    pub schedule_late_ms: i64,
}

impl Engine {
    pub fn census(&self, now: Now) -> Result<Census, EngineError> {
        self.store.read(|tx| {
            let rows = tx.open_rows(MOST)?;
            let mut census = Census {
                jobs_pending: rows.jobs_pending,
                jobs_running: rows.jobs_running,
                messages_pending: rows.messages,
                ..Census::default()
            };
            let looked_at = tx.earliest_look()?;
            census.schedule_late_ms = looked_at.map_or(0, |at| (now.wall.0 - at.0).max(0));

            let explainer = Explainer::new(self, tx, now);
            let mut ready = rows.delayed_retries + rows.delayed_others;
            census.wait(Waiting::RetryBackoff, rows.delayed_retries);
            census.wait(Waiting::Claimable, rows.delayed_others);
            for claimable in &rows.claimable {
                ready += claimable.steps;
                let waiting = explainer.taken_by(claimable.requirement_id)?;
                census.wait(waiting, claimable.steps);
                if let Some(oldest_up) = claimable.oldest_up {
                    let oldest_ms = &mut census.oldest_ms[waiting as usize];
                    *oldest_ms = (*oldest_ms).max(now.up.0 - oldest_up.0);
                }
            }
            let running = rows.held - rows.assigned;
            let served = rows.child_jobs + rows.loops;
            let suspended = rows.approvals + rows.suspended_others;
            let elsewhere = ready + rows.assigned + running + served + suspended;
            // Counts stop at a bound, so they need not fit.
            let pending = rows.steps.saturating_sub(elsewhere);
            let for_turn = rows.steps_concurrency + rows.instances;
            census.wait(Waiting::NotBefore, rows.steps_not_before);
            census.wait(Waiting::Concurrency, for_turn);
            let dependencies = pending.saturating_sub(rows.steps_not_before + for_turn);
            census.wait(Waiting::Dependencies, dependencies);
            census.wait(Waiting::Preparing, rows.assigned);
            census.wait(Waiting::Running, running);
            census.wait(Waiting::ChildJob, rows.child_jobs);
            census.wait(Waiting::Instances, rows.loops);
            census.wait(Waiting::Approval, rows.approvals);
            census.wait(Waiting::Held, rows.suspended_others);
            for (state, count) in [
                (StepState::Pending, pending),
                (StepState::Ready, ready),
                (StepState::Assigned, rows.assigned),
                (StepState::Running, running + served),
                (StepState::Suspended, suspended),
            ] {
                census.steps[state as usize] = count;
            }

            for worker in tx.live_workers(MOST)? {
                let is_active = worker.state == WorkerState::Active;
                match is_active {
                    true => census.workers_active += 1,
                    false => census.workers_inactive += 1,
                }
                let used = match worker.session_id {
                    Some(session_id) if is_active => explainer.slots_used(session_id)?,
                    _ => 0,
                };
                census.slots_used += u64::from(used);
                if is_active && worker.takes_work() {
                    census.slots_free += u64::from(worker.slots.saturating_sub(used));
                }
            }
            Ok(census)
        })
    }
}

impl Census {
    fn wait(&mut self, waiting: Waiting, steps: u64) {
        self.waiting[waiting as usize] += steps;
    }
}
