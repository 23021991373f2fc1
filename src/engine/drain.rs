//! Workers are put out of use: drained, paused, deleted.

use super::cascade::Cascade;
use super::facts::Facts;
use super::heartbeat::{current_session, sign_of_life};
use super::{Engine, EngineError};
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::reason::Reason;
use crate::domain::worker::{Worker, WorkerState};
use crate::domain::{Now, Uptime, WorkerId};
use crate::store::Tx;

impl Engine {
    /// The worker's own goodbye: it takes nothing new, finishes what it has and leaves.
    pub fn drain_session(&self, session_key: &str, now: Now) -> Result<(), EngineError> {
        let session_key = session_key.to_string();
        self.write_contact(session_key.clone(), now, move |tx| {
            let session = current_session(tx, &session_key)?;
            // Before it counts as alive: a worker that was given up takes nothing that it could stop taking now.
            drain(
                tx,
                session.worker_id,
                session.draining,
                &session.worker_name,
                now,
            )?;
            sign_of_life(tx, &session, now)
        })
    }

    /// Lasts until the worker opens its next session.
    pub fn drain(&self, worker_id: WorkerId, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| {
            let worker = existing(tx, worker_id)?;
            drain(tx, worker_id, worker.draining, &worker.name, now)
        })
    }

    /// Lasts until somebody resumes, over restarts of the worker.
    pub fn pause(&self, worker_id: WorkerId, now: Now) -> Result<(), EngineError> {
        self.set_paused(worker_id, true, now)
    }

    pub fn resume(&self, worker_id: WorkerId, now: Now) -> Result<(), EngineError> {
        self.set_paused(worker_id, false, now)
    }

    fn set_paused(&self, worker_id: WorkerId, paused: bool, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| {
            let worker = existing(tx, worker_id)?;
            if worker.paused == paused {
                // Whoever wants it back is not told that it is.
                return match !paused && worker.draining {
                    true => Err(EngineError::WorkerDrained { name: worker.name }),
                    false => Ok(()),
                };
            }
            tx.set_paused(worker_id, paused, now)?;
            let (kind, what) = match paused {
                true => (EventKind::WorkerPaused, "was paused and takes no new steps"),
                false => (EventKind::WorkerResumed, "was resumed"),
            };
            let action = match paused {
                true => AuditAction::WorkerPaused,
                false => AuditAction::WorkerResumed,
            };
            tx.audit(&about_worker(action, worker_id, &worker.name), now)?;
            let text = format!("worker {} {what}", worker.name);
            Ok(tx.record(&NewEvent::new(kind, text).worker(worker_id), now)?)
        })
    }

    /// Refused while it holds steps, unless forced: then what it runs is lost and the rest goes back to the queue.
    pub fn delete_worker(
        &self,
        worker_id: WorkerId,
        force: bool,
        now: Now,
    ) -> Result<(), EngineError> {
        let settings = self.settings;
        self.write(now, move |tx| {
            let worker = existing(tx, worker_id)?;
            let held = match worker.session_id {
                Some(session_id) => tx.held_steps(session_id)?.len(),
                None => 0,
            };
            if held > 0 && !force {
                return Err(EngineError::WorkerHolds { worker_id, held });
            }
            let mut cascade = Cascade::new(tx, &settings, now);
            tx.delete_worker(worker_id, now)?;
            let steps = match held {
                1 => "1 step".to_string(),
                held => format!("{held} steps"),
            };
            let text = format!("worker {} was deleted while it held {steps}", worker.name);
            tx.audit(
                &about_worker(AuditAction::WorkerDeleted, worker_id, &worker.name),
                now,
            )?;
            let facts = Facts::none().and("held", held);
            let event = NewEvent::new(EventKind::WorkerDeleted, text).worker(worker_id);
            tx.record(&event.data(facts.data()), now)?;
            cascade.close_session(&worker, Reason::WorkerDeleted)?;
            cascade.settle()
        })
    }

    /// Nobody has heard of it since then: it is deleted, unless it holds something or has spoken meanwhile. `false`: it was not.
    pub fn forget_worker(
        &self,
        worker_id: WorkerId,
        absent_since: Uptime,
        now: Now,
    ) -> Result<bool, EngineError> {
        let settings = self.settings;
        self.write(now, move |tx| {
            let Some(worker) = tx.worker(worker_id)?.filter(|worker| {
                let is_absent = worker.state == WorkerState::Inactive;
                worker.deleted_at.is_none() && is_absent && worker.seen_up <= absent_since
            }) else {
                return Ok(false);
            };
            if let Some(session_id) = worker.session_id
                && !tx.held_steps(session_id)?.is_empty()
            {
                return Ok(false);
            }
            let mut cascade = Cascade::new(tx, &settings, now);
            tx.delete_worker(worker_id, now)?;
            let text = format!(
                "worker {} was not heard of for too long and is not kept any more",
                worker.name
            );
            let event = NewEvent::new(EventKind::WorkerDeleted, text).worker(worker_id);
            tx.record(&event, now)?;
            cascade.close_session(&worker, Reason::WorkerDeleted)?;
            cascade.settle()?;
            Ok(true)
        })
    }
}

fn existing(tx: &Tx, worker_id: WorkerId) -> Result<Worker, EngineError> {
    let worker = tx
        .worker(worker_id)?
        .filter(|worker| worker.deleted_at.is_none());
    worker.ok_or(EngineError::WorkerNotFound { worker_id })
}

/// The row names the worker by its number, and by the name that people know.
fn about_worker(action: AuditAction, worker_id: WorkerId, name: &str) -> AuditEntry {
    let detail = Facts::none().and("name", name).detail();
    AuditEntry::of(action)
        .object("worker", worker_id)
        .detail(detail)
}

fn drain(
    tx: &Tx,
    worker_id: WorkerId,
    draining: bool,
    name: &str,
    now: Now,
) -> Result<(), EngineError> {
    if draining {
        return Ok(());
    }
    tx.drain_worker(worker_id, now)?;
    tx.audit(
        &about_worker(AuditAction::WorkerDrained, worker_id, name),
        now,
    )?;
    let text = format!("worker {name} drains: it finishes what it has and takes no new steps");
    Ok(tx.record(
        &NewEvent::new(EventKind::WorkerDraining, text).worker(worker_id),
        now,
    )?)
}
