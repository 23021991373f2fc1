//! A worker asks for work: it gets up to its free slots, the oldest of the highest priority that its tags allow, and once
//! more whatever it should hold and does not.

use std::collections::HashSet;

use super::heartbeat::{ack_due_up, current_holdings, sign_of_life, to_abort};
use super::{Engine, EngineError, Settings};
use crate::domain::step::StepState;
use crate::domain::task::Action;
use crate::domain::{AttemptRef, JobId, Json, Now, RequirementId, Uptime, WorkerId};
use crate::store::{Claim, Holdings, Payload, Tx};

/// How long a worker is passed over for a step that it gave back: while others could take it, and when none can.
pub(super) const AVOID_MS: i64 = 300_000;
const AVOID_ALONE_MS: i64 = 10_000;

#[derive(Debug, Clone)]
pub struct Poll {
    pub session_key: String,
    /// May be 0: then only aborts and redeliveries are answered.
    pub free_slots: u32,
    pub held: Vec<AttemptRef>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollAnswer {
    pub assignments: Vec<Assignment>,
    pub abort: Vec<AttemptRef>,
    pub draining: bool,
}

/// A promise, not a start: nothing of the user's runs before `start` was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub attempt: AttemptRef,
    pub job_id: JobId,
    pub task: String,
    pub step: String,
    pub action: Action,
    pub input: Json,
    pub item: Option<u32>,
    pub item_value: Option<Json>,
    pub ack_timeout_ms: i64,
    pub prepare_timeout_ms: i64,
    pub timeout_ms: i64,
}

impl Engine {
    pub fn poll(&self, poll: Poll, now: Now) -> Result<PollAnswer, EngineError> {
        let settings = self.settings;
        self.store
            .write(move |tx| answer_poll(tx, &settings, &poll, now))
    }
}

pub(super) fn answer_poll(
    tx: &Tx,
    settings: &Settings,
    poll: &Poll,
    now: Now,
) -> Result<PollAnswer, EngineError> {
    let holdings = current_holdings(tx, &poll.session_key, now)?;
    let (session, believed) = (&holdings.session, &holdings.held);
    sign_of_life(tx, session, now)?;
    let held: HashSet<AttemptRef> = poll.held.iter().copied().collect();
    let mut assignments = Vec::new();
    for step in believed
        .iter()
        .filter(|step| step.state == StepState::Assigned)
    {
        if !held.contains(&step.attempt_ref()) {
            let payload = tx.payload(step.step_id)?;
            assignments.push(assignment(tx, settings, step.attempt_ref(), payload)?);
        }
    }
    if !session.draining && !session.paused {
        let free = session
            .slots
            .saturating_sub(believed.len() as u32)
            .min(poll.free_slots);
        let due_up = ack_due_up(settings, now.up, now);
        for claim in best_claims(tx, &holdings, free, now)? {
            if tx.assign_step(&claim, session.worker_id, session.session_id, due_up, now)? {
                let attempt = AttemptRef {
                    step_id: claim.step_id,
                    attempt: claim.attempt + 1,
                };
                assignments.push(assignment(tx, settings, attempt, claim.payload)?);
            }
        }
    }
    let abort = to_abort(believed, poll.held.iter().copied());
    Ok(PollAnswer {
        assignments,
        abort,
        draining: session.draining,
    })
}

/// The oldest claimable steps of the highest priority, over all requirements that the worker satisfies.
fn best_claims(
    tx: &Tx,
    holdings: &Holdings,
    free: u32,
    now: Now,
) -> Result<Vec<Claim>, EngineError> {
    let worker_id = holdings.session.worker_id;
    let mut claims: Vec<Claim> = Vec::new();
    let mut after = RequirementId(0);
    let mut more = free > 0;
    while more && let Some(next) = tx.next_claim(after, worker_id)? {
        (after, more) = (next.requirement_id, next.more);
        if !next.able {
            continue;
        }
        if free == 1 && !next.returned {
            claims.push(next.claim);
            continue;
        }
        let avoided_until = match holdings.avoided {
            true => avoided_until(tx, worker_id, next.requirement_id, now)?,
            false => now.up,
        };
        claims.extend(tx.claim_candidates(next.requirement_id, worker_id, avoided_until, free)?);
    }
    claims.sort_by_key(|claim| (-i64::from(claim.priority), claim.queued_up, claim.step_id));
    claims.truncate(free as usize);
    Ok(claims)
}

/// Avoidances that end later than this count. A worker that is the only one able is passed over for a moment only.
fn avoided_until(
    tx: &Tx,
    worker_id: WorkerId,
    requirement_id: RequirementId,
    now: Now,
) -> Result<Uptime, EngineError> {
    let others = tx.has_other_able_worker(requirement_id, worker_id)?;
    Ok(if others {
        now.up
    } else {
        now.up.plus_ms(AVOID_MS - AVOID_ALONE_MS)
    })
}

fn assignment(
    tx: &Tx,
    settings: &Settings,
    attempt: AttemptRef,
    payload: Payload,
) -> Result<Assignment, EngineError> {
    let definition = tx.definition(payload.definition_id)?;
    let task = definition.task(payload.task_index);
    let draft = task.step(payload.position);
    Ok(Assignment {
        attempt,
        job_id: payload.job_id,
        task: task.draft.name.clone(),
        step: task.step_name(payload.position, payload.item),
        action: draft.action.clone(),
        input: payload.input,
        item: payload.item,
        item_value: payload.item_value,
        ack_timeout_ms: settings.ack_timeout_ms,
        prepare_timeout_ms: settings.prepare_timeout_ms,
        timeout_ms: draft.timeout_ms.unwrap_or(settings.step_timeout_ms),
    })
}
