//! A worker says that it lives and what it holds; it is told what to abort.

use std::collections::{BTreeSet, HashMap};

use super::check::check_count;
use super::facts::Facts;
use super::{Engine, EngineError, Settings};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::protocol::{Beat, BeatAnswer, HeldPhase};
use crate::domain::step::StepState;
use crate::domain::worker::{WorkerMove, WorkerState};
use crate::domain::{AttemptRef, Now, Uptime};
use crate::essential::catch_and_count;
use crate::metrics::PanicPlace;
use crate::store::{Contact, Held, SessionView, Tx};

impl Engine {
    /// A heartbeat that only says that the worker is alive is kept in memory and answered at once; one commit writes many of
    /// them. A heartbeat that changes anything else is answered when the change is on disk.
    pub fn heartbeat(&self, beat: Beat, now: Now) -> Result<BeatAnswer, EngineError> {
        check_count("held attempts", beat.held.len())?;
        let held: HashMap<AttemptRef, HeldPhase> = beat
            .held
            .iter()
            .map(|held| (held.attempt, held.phase))
            .collect();
        let only_alive = self.store.read(|tx| {
            let session = current_session(tx, &beat.session_key)?;
            let believed = tx.held_steps(session.session_id)?;
            if changes_more_than_liveness(&session, beat.seq, &believed, &held, &self.settings, now)
            {
                return Ok(None);
            }
            let answer = BeatAnswer {
                abort: to_abort(&believed, beat.held.iter().map(|held| held.attempt)),
                draining: session.draining,
            };
            Ok(Some((session, answer)))
        });
        match only_alive {
            Ok(Some((session, answer))) => {
                let metrics = self.store.metrics();
                metrics.observe_heartbeat(now.up.0 - session.seen_up.0);
                let seq = session.heartbeat_seq.max(beat.seq);
                self.store.record_contact(Contact::of(&session, seq, now));
                return Ok(answer);
            }
            // What cannot be read is left to the transaction that writes.
            Ok(None) | Err(EngineError::Store(_)) => {}
            Err(error) => return Err(error),
        }
        let settings = self.settings;
        let answered = self.write_contact(beat.session_key.clone(), now, move |tx| {
            let session = current_session(tx, &beat.session_key)?;
            let believed = tx.held_steps(session.session_id)?;
            record_return(tx, &session, now)?;
            tx.heartbeat(&session, beat.seq, now)?;
            if beat.seq > session.heartbeat_seq {
                note_absences(tx, &session, &settings, &believed, &held, now)?;
                keep_preparing_alive(tx, &session, &settings, &believed, &held, now)?;
            }
            let held = beat.held.iter().map(|held| held.attempt);
            let answer = BeatAnswer {
                abort: to_abort(&believed, held),
                draining: session.draining,
            };
            Ok((answer, session.seen_up))
        });
        let (answer, seen_up) = answered?;
        let metrics = self.store.metrics();
        metrics.observe_heartbeat(now.up.0 - seen_up.0);
        Ok(answer)
    }

    /// Writes the signs of life that are only in memory, all in one transaction. Nothing happens if there are none.
    pub fn write_contacts(&self, now: Now) -> Result<(), EngineError> {
        if !self.store.has_unwritten_contacts() {
            return Ok(());
        }
        self.write(now, move |tx| write_contacts(tx, now))
    }
}

/// Writes the signs of life that are only in memory. A worker that was marked inactive at the very moment at which it was heard
/// becomes active again.
pub(super) fn write_contacts(tx: &Tx, now: Now) -> Result<(), EngineError> {
    for contact in tx.unwritten_contacts() {
        let (metrics, session_id) = (tx.metrics(), contact.session_id);
        let item = format_args!("the last contact of session {session_id}");
        // A contact that panics stays in memory, where it counts as well, and the others are written: recovery goes on.
        let written = catch_and_count(metrics, PanicPlace::Sweeper, item, || {
            write_contact(tx, &contact, now)
        });
        if written.transpose()?.is_some() {
            tx.contact_is_written(contact);
        }
    }
    Ok(())
}

fn write_contact(tx: &Tx, contact: &Contact, now: Now) -> Result<(), EngineError> {
    let Some(session) = tx.session_as_written(contact.session_id)? else {
        return Ok(());
    };
    let is_later = contact.at.up > session.seen_up;
    let is_active = session.worker_state == WorkerState::Active;
    let is_known = !is_later && contact.heartbeat_seq <= session.heartbeat_seq;
    if session.current && (is_later || (is_active && !is_known)) {
        record_return(tx, &session, now)?;
        tx.heartbeat(&session, contact.heartbeat_seq, contact.at)?;
        // The service clock on disk is never behind a time that is written.
        tx.happens_at(contact.at.up);
    }
    Ok(())
}

/// Whether a heartbeat must be written at once: the worker comes back, a running step is left out or mentioned again, the delivery
/// of a step is confirmed, or an assignment gets more time because it is being prepared.
fn changes_more_than_liveness(
    session: &SessionView,
    seq: i64,
    believed: &[Held],
    held: &HashMap<AttemptRef, HeldPhase>,
    settings: &Settings,
    now: Now,
) -> bool {
    if session.worker_state == WorkerState::Inactive {
        return true;
    }
    if seq <= session.heartbeat_seq {
        return false;
    }
    believed.iter().any(|step| {
        let phase = held.get(&step.attempt_ref());
        match step.state {
            StepState::Running => {
                let is_mentioned = phase.is_some();
                (step.unconfirmed && is_mentioned)
                    || absent_beats_after(step, is_mentioned, settings, now) != step.absent_beats
            }
            StepState::Assigned => phase == Some(&HeldPhase::Preparing),
            _ => false,
        }
    })
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

/// Any contact of a current session is a sign of life. It is kept in memory, unless it brings an inactive worker back.
pub(super) fn sign_of_life(tx: &Tx, session: &SessionView, now: Now) -> Result<(), EngineError> {
    if session.worker_state == WorkerState::Inactive {
        record_return(tx, session, now)?;
        tx.worker_speaks(session, now)?;
    } else {
        tx.record_contact(Contact::of(session, session.heartbeat_seq, now));
    }
    Ok(())
}

/// Records an event if the worker was inactive until this contact.
fn record_return(tx: &Tx, session: &SessionView, now: Now) -> Result<(), EngineError> {
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
        let is_mentioned = held.contains_key(&step.attempt_ref());
        if step.unconfirmed && is_mentioned {
            tx.confirm_delivery(step, session.session_id)?;
        }
        let absent_beats = absent_beats_after(step, is_mentioned, settings, now);
        if absent_beats != step.absent_beats {
            tx.note_absence(step, session.session_id, absent_beats)?;
        }
    }
    Ok(())
}

/// The number of heartbeats in a row that left the running step out, after one more heartbeat.
fn absent_beats_after(step: &Held, is_mentioned: bool, settings: &Settings, now: Now) -> u32 {
    let confirm_by = step.since_up.plus_ms(settings.ack_timeout_ms);
    if is_mentioned {
        0
    } else if step.unconfirmed && now.up < confirm_by {
        step.absent_beats
    } else {
        step.absent_beats.saturating_add(1)
    }
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
