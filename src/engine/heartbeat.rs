//! A worker says that it lives and what it holds; it is told what to abort.

use std::collections::{BTreeSet, HashMap};

use super::check::check_count;
use super::facts::Facts;
use super::{Engine, EngineError, Settings};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::protocol::{Beat, BeatAnswer, HeldPhase};
use crate::domain::recovery::SIGN_OF_LIFE_MS;
use crate::domain::step::StepState;
use crate::domain::worker::{WorkerMove, WorkerState};
use crate::domain::{AttemptRef, Now, Uptime};
use crate::store::{Held, SessionView, Tx};

impl Engine {
    pub fn heartbeat(&self, beat: Beat, now: Now) -> Result<BeatAnswer, EngineError> {
        check_count("held attempts", beat.held.len())?;
        let settings = self.settings;
        self.write_contact(beat.session_key.clone(), now, move |tx| {
            let session = current_session(tx, &beat.session_key)?;
            let believed = tx.held_steps(session.session_id)?;
            tell_if_back(tx, &session, now)?;
            tx.heartbeat(&session, beat.seq, now)?;
            if beat.seq > session.heartbeat_seq {
                let held = beat
                    .held
                    .iter()
                    .map(|held| (held.attempt, held.phase))
                    .collect();
                note_absences(tx, &session, &settings, &believed, &held, now)?;
                keep_preparing_alive(tx, &session, &settings, &believed, &held, now)?;
            }
            let held = beat.held.iter().map(|held| held.attempt);
            Ok(BeatAnswer {
                abort: to_abort(&believed, held),
                draining: session.draining,
            })
        })
    }
}

/// The session, if it is its worker's current one.
pub(super) fn current_session(tx: &Tx, session_key: &str) -> Result<SessionView, EngineError> {
    let session = tx
        .session(session_key)?
        .ok_or(EngineError::SessionUnknown)?;
    if !session.current {
        return Err(EngineError::SessionReplaced);
    }
    tx.called_by(session.worker_id);
    Ok(session)
}

/// Any contact of a current session is a sign of life; written down now and then.
pub(super) fn sign_of_life(tx: &Tx, session: &SessionView, now: Now) -> Result<(), EngineError> {
    tell_if_back(tx, session, now)?;
    if is_due(session, now) {
        tx.worker_speaks(session, now)?;
    }
    Ok(())
}

/// Whether a sign of life is worth writing down.
pub(super) fn is_due(session: &SessionView, now: Now) -> bool {
    let silent_ms = now.up.0 - session.seen_up.0;
    session.worker_state == WorkerState::Inactive || silent_ms >= SIGN_OF_LIFE_MS
}

fn tell_if_back(tx: &Tx, session: &SessionView, now: Now) -> Result<(), EngineError> {
    if session.worker_state.after(WorkerMove::Speak).is_some() {
        let text = format!(
            "worker {} is back and may claim steps again",
            session.worker_name
        );
        let silent_ms = now.up.0 - session.seen_up.0;
        let facts = Facts::none().and_secs("silent_secs", silent_ms);
        let event = NewEvent::new(EventKind::WorkerActive, text).worker(session.worker_id);
        tx.record(&event.data(facts.data()), now)?;
    }
    Ok(())
}

/// What the worker says it holds and the server does not believe it holds, each once.
pub(super) fn to_abort(
    believed: &[Held],
    held: impl Iterator<Item = AttemptRef>,
) -> Vec<AttemptRef> {
    let believed: HashMap<_, _> = believed
        .iter()
        .map(|step| (step.step_id, step.attempt))
        .collect();
    let strange: BTreeSet<AttemptRef> = held
        .filter(|held| believed.get(&held.step_id) != Some(&held.attempt))
        .collect();
    strange.into_iter().collect()
}

/// Counts for each running step the heartbeats in a row that left it out. Recovery draws the conclusion.
///
/// An attempt that started on delivery may not have reached its worker: it is delivered again with the next poll. Heartbeats that
/// leave it out count only after the time that an assignment has to be acknowledged.
fn note_absences(
    tx: &Tx,
    session: &SessionView,
    settings: &Settings,
    believed: &[Held],
    held: &HashMap<AttemptRef, HeldPhase>,
    now: Now,
) -> Result<(), EngineError> {
    for step in believed
        .iter()
        .filter(|step| step.state == StepState::Running)
    {
        let mentioned = held.contains_key(&step.attempt_ref());
        if step.unconfirmed && mentioned {
            tx.confirm_delivery(step, session.session_id)?;
        }
        let confirm_by = step.since_up.plus_ms(settings.ack_timeout_ms);
        if step.unconfirmed && !mentioned && now.up < confirm_by {
            continue;
        }
        let absent_beats = if mentioned {
            0
        } else {
            step.absent_beats.saturating_add(1)
        };
        if absent_beats != step.absent_beats {
            tx.note_absence(step, session.session_id, absent_beats)?;
        }
    }
    Ok(())
}

/// A heartbeat that lists an attempt as preparing keeps its assignment alive.
fn keep_preparing_alive(
    tx: &Tx,
    session: &SessionView,
    settings: &Settings,
    believed: &[Held],
    held: &HashMap<AttemptRef, HeldPhase>,
    now: Now,
) -> Result<(), EngineError> {
    for step in believed
        .iter()
        .filter(|step| step.state == StepState::Assigned)
    {
        if held.get(&step.attempt_ref()) == Some(&HeldPhase::Preparing) {
            let due_up = ack_due_up(settings, step.since_up, now);
            tx.keep_alive(step.step_id, step.attempt, session.session_id, due_up)?;
        }
    }
    Ok(())
}

/// The next acknowledgement deadline: never past the cap on preparation.
pub(super) fn ack_due_up(settings: &Settings, assigned_up: Uptime, now: Now) -> Uptime {
    let cap = assigned_up.plus_ms(settings.prepare_timeout_ms);
    now.up.plus_ms(settings.ack_timeout_ms).min(cap)
}
