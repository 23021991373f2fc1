//! A worker asks for work: it gets up to its free slots, the oldest of the highest priority that its tags allow, and once
//! more whatever it should hold and does not.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::cascade::Cascade;
use super::check::check_count;
use super::heartbeat::{ack_due_up, current_session, sign_of_life, to_abort};
use super::render::unrendered;
use super::start::start_details;
use super::{Engine, EngineError, Settings};
use crate::domain::peer::Feature;
use crate::domain::protocol::{Assignment, Poll, PollAnswer};
use crate::domain::retry::may_retry_loss;
use crate::domain::step::StepState;
use crate::domain::{AttemptRef, JobId, Json, Now, RequirementId, Timestamp, Uptime, WorkerId};
use crate::planted::{Bug, planted};
use crate::sealer::Sealer;
use crate::store::{Claim, JobPayload, SessionView, Tx};

/// How long a worker is passed over for a step that it gave back: while others could take it, and when none can.
pub(super) const AVOID_MS: i64 = 300_000;
const AVOID_ALONE_MS: i64 = 10_000;

/// Returns when a worker is asked again for a step that it gave back, if every other worker that could take the step gave it back too.
/// `until_up`: the time until which another worker is preferred.
pub(super) fn asked_again_alone_up(until_up: Uptime) -> Uptime {
    until_up.plus_ms(AVOID_ALONE_MS - AVOID_MS)
}

/// Inputs in one answer; the last one may go over it.
const ANSWER_BYTES_MAX: usize = 4 << 20;

impl Engine {
    pub fn poll(&self, poll: Poll, now: Now) -> Result<PollAnswer, EngineError> {
        check_count("held attempts", poll.held.len())?;
        let settings = self.settings;
        let answer = self.write_contact(poll.session_key.clone(), now, move |tx| {
            let session = asking_session(tx, &poll.session_key)?;
            sign_of_life(tx, &session, now)?;
            answer_poll(tx, &settings, &session, poll.free_slots, &poll.held, now)
        })?;
        self.render(answer, now)
    }
}

/// The session, if it is its worker's current one. Who is drained since the token was revoked hears of that instead: it was let in
/// before, and may have waited since.
pub(super) fn asking_session(tx: &Tx, session_key: &str) -> Result<SessionView, EngineError> {
    let session = current_session(tx, session_key)?;
    if session.draining
        && let Some(token_id) = tx.owner_of_worker(session.worker_id)?
        && let Some(token) = tx.token(token_id)?
        && token.ended_at.is_some()
    {
        let name = session.worker_name;
        return Err(EngineError::TokenRevoked { name });
    }
    Ok(session)
}

/// For a session that is its worker's current one and has given its sign of life.
pub(super) fn answer_poll(
    tx: &Tx,
    settings: &Settings,
    session: &SessionView,
    free_slots: u32,
    held: &[AttemptRef],
    now: Now,
) -> Result<PollAnswer, EngineError> {
    let believed = tx.held_steps(session.session_id)?;
    let mentioned: HashSet<AttemptRef> = held.iter().copied().collect();
    let mut parcel = Parcel::default();
    for step in &believed {
        let is_mentioned = mentioned.contains(&step.attempt_ref());
        let is_lost = match step.state {
            StepState::Assigned => !is_mentioned,
            _ if step.unconfirmed && is_mentioned => {
                tx.confirm_delivery(step, session.session_id)?;
                false
            }
            // From the first heartbeat that counts against the step on, recovery may end it at any moment.
            _ => step.unconfirmed && step.absent_beats == 0,
        };
        if !is_lost || parcel.is_full() {
            continue;
        }
        parcel.add(tx, settings, step.attempt, &tx.given(step.step_id)?)?;
        if step.unconfirmed {
            // The same attempt, which keeps the time at which it started. Heartbeats that leave it out count from `ack_timeout_secs`
            // after that time on, however often it was delivered again: a worker that no answer reaches must not hold the step.
            let started_at = tx.step(step.step_id)?.and_then(|step| step.started_at);
            parcel.tell_start(session, started_at.unwrap_or(now.wall));
        }
    }
    if !session.draining && !session.paused {
        let free = session
            .slots
            .saturating_sub(believed.len() as u32)
            .min(free_slots);
        let due_up = ack_due_up(settings, now.up, now);
        if planted(Bug::ClaimTakesAssigned) {
            for (step_id, _) in tx.unacknowledged_steps(Uptime(i64::MAX), free)? {
                let taken = tx.step(step_id)?.expect("just found");
                tx.requeue_step(&taken, now)?;
            }
        }
        let starts_on_delivery = session.features.contains(Feature::OnePhase);
        let mut claims = best_claims(tx, session.worker_id, free, now)?;
        let mut fitting = 0;
        for claim in &claims {
            if parcel.is_full() {
                break;
            }
            parcel.add(tx, settings, claim.attempt + 1, claim)?;
            if starts_on_delivery {
                parcel.tell_start(session, now.wall);
            }
            fitting += 1;
        }
        claims.truncate(fitting);
        if !claims.is_empty() {
            let assigned =
                tx.assign_steps(&claims, session.worker_id, session.session_id, due_up, now)?;
            assert!(assigned, "nobody claims within our transaction");
            if starts_on_delivery {
                let mut cascade = Cascade::new(tx, settings, now);
                cascade.start_on_delivery(&claims)?;
                cascade.settle()?;
            }
        }
    }
    let abort = to_abort(&believed, held.iter().copied());
    Ok(PollAnswer {
        assignments: parcel.assignments,
        abort,
        draining: session.draining,
        unreadable: Vec::new(),
    })
}

/// The oldest claimable steps of the highest priority, over all requirements that the worker satisfies.
fn best_claims(
    tx: &Tx,
    worker_id: WorkerId,
    free: u32,
    now: Now,
) -> Result<Vec<Claim>, EngineError> {
    let moment_up = now.up.plus_ms(AVOID_MS - AVOID_ALONE_MS);
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
        } else {
            claims.extend(tx.claim_candidates(after, worker_id, moment_up, free, now)?);
        }
    }
    claims.sort_by_key(|claim| (-i64::from(claim.priority), claim.queued_up, claim.step_id));
    claims.truncate(free as usize);
    Ok(claims)
}

/// The assignments of one answer. A job's input may be large, so an answer has a bound; the rest comes with the next poll.
#[derive(Default)]
struct Parcel {
    assignments: Vec<Assignment>,
    bytes: usize,
    jobs: HashMap<JobId, JobPayload>,
}

impl Parcel {
    fn is_full(&self) -> bool {
        self.bytes > ANSWER_BYTES_MAX
    }

    fn add(
        &mut self,
        tx: &Tx,
        settings: &Settings,
        attempt: u32,
        claim: &Claim,
    ) -> Result<(), EngineError> {
        let job = match self.jobs.entry(claim.job_id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(tx.job_payload(claim.job_id)?),
        };
        let definition = tx.definition(job.definition_id)?;
        let task = definition.task(job.task_index);
        let draft = task.step(claim.position);
        self.bytes +=
            job.input.0.len() + claim.item_value.as_ref().map_or(0, |value| value.0.len());
        let unrendered = unrendered(tx, task, draft, claim, attempt, &job.input)?;
        let mut env = draft.env.clone();
        if unrendered.is_none() && !task.draft.env.is_empty() {
            env = task.draft.env.clone();
            env.extend(draft.env.clone());
        }
        self.assignments.push(Assignment {
            attempt: AttemptRef {
                step_id: claim.step_id,
                attempt,
            },
            job_id: claim.job_id,
            task: task.draft.name.clone(),
            step: task.step_name(claim.position, claim.item),
            action: draft.action.clone(),
            env,
            workdir: draft.workdir.clone(),
            masks: Vec::new(),
            input: job.input.clone(),
            item: claim.item,
            item_value: claim.item_value.as_ref().map(masked_item),
            unrendered,
            scheduled_at: job.scheduled_for,
            ack_timeout_ms: settings.ack_timeout_ms,
            prepare_timeout_ms: settings.prepare_timeout_ms,
            timeout_ms: draft.timeout_ms.unwrap_or(settings.step_timeout_ms),
            fenced: may_retry_loss(&draft.retry, draft.on_worker_loss),
            start: None,
        });
        Ok(())
    }

    /// Adds to the last assignment when it started, for a session that asks for it.
    fn tell_start(&mut self, session: &SessionView, started_at: Timestamp) {
        let last = self.assignments.last_mut();
        if let Some(last) = last.filter(|_| session.features.contains(Feature::StartDetails)) {
            last.start = Some(start_details(started_at, last.timeout_ms));
        }
    }
}

/// An item as a worker is given it. Version 0.1 could store sealed values as items of a loop.
fn masked_item(item: &Json) -> Json {
    Sealer::masked_text(&item.0).map_or_else(|| item.clone(), Json)
}
