//! A worker opens a session: it is new, or it restarted and what its former life held is settled here and now.

use super::cascade::{Cascade, Failure};
use super::check::{check_count, check_text};
use super::decline::Returned;
use super::facts::Facts;
use super::heartbeat::sign_of_life;
use super::report::Together;
use super::{Engine, EngineError, Settings};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::limits;
use crate::domain::peer::Features;
use crate::domain::protocol::{OpenedSession, Registration, Spooled, Verdict, process_key};
use crate::domain::reason::Reason;
use crate::domain::step::StepState;
use crate::domain::token::{OWN_WORKER, Owner};
use crate::domain::worker::{Worker, WorkerState, offer_fault};
use crate::domain::{Now, TokenId, WorkerId};
use crate::planted::{Bug, planted};
use crate::store::{SessionView, StoreError, Tx};
use crate::words::{is_deceitful, printable};

/// Workers that one token may speak for: whoever has more machines makes more tokens.
const WORKERS_MAX: usize = 256;

impl Engine {
    /// Where nobody is asked who they are.
    pub fn open_session(
        &self,
        registration: Registration,
        spooled: Vec<Spooled>,
        now: Now,
    ) -> Result<OpenedSession, EngineError> {
        self.open_session_of(None, registration, spooled, now)
    }

    /// Spooled results come first; then the former session's running steps are lost and its assigned ones go back.
    pub fn open_session_of(
        &self,
        owner: Option<Owner>,
        mut registration: Registration,
        spooled: Vec<Spooled>,
        now: Now,
    ) -> Result<OpenedSession, EngineError> {
        registration.tags.sort();
        registration.tags.dedup();
        check(&registration)?;
        // They are only shown, so a worker is not refused because of them.
        for shown in [&mut registration.version, &mut registration.platform] {
            *shown = printable(shown);
        }
        check_count("spooled results", spooled.len())?;
        let withheld = withhold(&mut registration, owner.as_ref());
        let told = withheld.clone();
        let owner = owner.map(|owner| owner.token_id);
        let (settings, has_own_worker) = (self.settings, self.has_own_worker);
        let name = registration.name.clone();
        let opened = self.write_contact(registration.session_key.clone(), now, move |tx| {
            if let Some(session) = tx.session(&registration.session_key)? {
                let known = tx.worker_by_instance(&registration.instance_key)?;
                let Some(worker) = known.filter(|known| known.worker_id == session.worker_id)
                else {
                    return Err(EngineError::SessionReplaced);
                };
                if let Some(owner) = owner {
                    check_owner(tx, &worker, owner, now)?;
                }
                return reopen(tx, &session, &settings, &spooled, now).map(Some);
            }
            let mut cascade = Cascade::new(tx, &settings, now);
            let known = tx.worker_by_instance(&registration.instance_key)?;
            if let Some((worker, owner)) = known.as_ref().zip(owner) {
                check_owner(tx, worker, owner, now)?;
            }
            if let Some(worker) = &known
                && has_a_copy(tx, worker, &registration.session_key)?
            {
                tell_of_copy(tx, worker, now)?;
                return Ok(None);
            }
            if let Some(owner) = owner
                && tx.is_name_of_another(
                    &registration.name,
                    &registration.instance_key,
                    owner,
                    has_own_worker,
                    now,
                )?
            {
                return Err(EngineError::WorkerNameTaken {
                    name: registration.name.clone(),
                    is_embedded: owner == OWN_WORKER,
                });
            }
            let worker_id = match (&known, owner) {
                (Some(worker), _) => worker.worker_id,
                (None, Some(owner)) if tx.workers_of_token(owner)?.len() >= WORKERS_MAX => {
                    return Err(EngineError::TooManyWorkers {
                        token_id: owner,
                        max: WORKERS_MAX,
                    });
                }
                (None, _) => tx.insert_worker(&registration, now)?,
            };
            let verdicts = accept_spooled(&mut cascade, worker_id, &spooled)?;
            if let Some(worker) = &known
                && !planted(Bug::RestartNotNoticed)
            {
                cascade.close_session(worker, Reason::WorkerRestarted)?;
            }
            let features = registration.features;
            if known.as_ref().is_none_or(|worker| {
                worker.tags != registration.tags || worker.features != features
            }) {
                tx.match_worker(worker_id, &registration.tags, features, now)?;
            }
            let session_id = tx.begin_session(worker_id, &registration, now)?;
            if let Some(owner) = owner {
                tx.own_worker(worker_id, owner)?;
            }
            if !withheld.is_empty() {
                tx.record(
                    &restricted_event(worker_id, &registration.name, &withheld),
                    now,
                )?;
            }
            tx.record(
                &opened_event(worker_id, &registration, known.is_some()),
                now,
            )?;
            cascade.settle()?;
            Ok(Some(OpenedSession {
                worker_id,
                session_id,
                settings,
                spooled: verdicts,
                withheld: Vec::new(),
                server_features: Features::OF_SERVER,
            }))
        })?;
        let opened = opened.ok_or(EngineError::WorkerDuplicated { name })?;
        Ok(OpenedSession {
            withheld: told,
            ..opened
        })
    }
}

/// Keeps what the worker's token does not let it offer out of its offer.
fn withhold(registration: &mut Registration, owner: Option<&Owner>) -> Vec<String> {
    let Some(allowed) = owner.and_then(|owner| owner.tags.as_ref()) else {
        return Vec::new();
    };
    let (kept, withheld) =
        (registration.tags.drain(..)).partition(|tag: &String| allowed.contains(tag));
    registration.tags = kept;
    withheld
}

fn restricted_event(worker_id: WorkerId, name: &str, withheld: &[String]) -> NewEvent {
    let text = format!(
        "worker {name} offered {}, which its token does not let it offer",
        withheld.join(", ")
    );
    let facts = Facts::none().and("withheld", withheld);
    let event = NewEvent::new(EventKind::WorkerRestricted, text).worker(worker_id);
    event.data(facts.data())
}

/// A worker is the token's that it came with. One that came with none, or with a token that lets nobody in any more, is whose token
/// shows the key in its folder.
fn check_owner(tx: &Tx, worker: &Worker, owner: TokenId, now: Now) -> Result<(), EngineError> {
    let Some(known) = tx.owner_of_worker(worker.worker_id)? else {
        return Ok(());
    };
    // The server's own worker stays its own, and can have it back.
    if known == owner || owner == OWN_WORKER {
        return Ok(());
    }
    if known == OWN_WORKER {
        return Err(EngineError::WorkerOfAnother {
            name: worker.name.clone(),
        });
    }
    match tx.token(known)? {
        Some(token) if token.is_good(now.wall) => Err(EngineError::WorkerOfAnother {
            name: worker.name.clone(),
        }),
        _ => Ok(()),
    }
}

/// A process that was replaced comes back while the one that replaced it is there: two processes share one worker's folder, or
/// each has a copy of it. The newer one stays.
///
/// That it is there its heartbeats say. A session may also have been opened by the last call of a process that had died, which
/// came late: nobody is sent away for that.
fn has_a_copy(tx: &Tx, worker: &Worker, session_key: &str) -> Result<bool, EngineError> {
    let process = process_key(session_key);
    let Some(current) = worker.session_key.as_deref() else {
        return Ok(false);
    };
    let is_first = process == session_key;
    if is_first || process_key(current) == process || worker.state != WorkerState::Active {
        return Ok(false);
    }
    // Processes by their first sessions, which are numbered in the order in which they came.
    let met = tx.session(process)?.zip(tx.session(process_key(current))?);
    let Some((older, newer)) = met else {
        return Ok(false);
    };
    if older.session_id >= newer.session_id {
        return Ok(false);
    }
    // A worker that was deleted while its process ran is another one since; the folder is the same.
    let owner = tx.worker(older.worker_id)?;
    let is_same_folder = owner.is_some_and(|owner| owner.instance_key == worker.instance_key);
    let current = tx.session(current)?;
    Ok(is_same_folder && current.is_some_and(|current| current.heartbeat_seq >= 0))
}

fn tell_of_copy(tx: &Tx, worker: &Worker, now: Now) -> Result<(), EngineError> {
    let text = format!(
        "worker {} runs twice, from copies of one folder: the older process was sent away",
        worker.name
    );
    let event = NewEvent::new(EventKind::WorkerDuplicated, text).worker(worker.worker_id);
    Ok(tx.record(&event, now)?)
}

/// The answer to an earlier call was lost: the same session again.
fn reopen(
    tx: &Tx,
    session: &SessionView,
    settings: &Settings,
    spooled: &[Spooled],
    now: Now,
) -> Result<OpenedSession, EngineError> {
    if !session.current {
        return Err(EngineError::SessionReplaced);
    }
    sign_of_life(tx, session, now)?;
    let mut cascade = Cascade::new(tx, settings, now);
    let verdicts = accept_spooled(&mut cascade, session.worker_id, spooled)?;
    cascade.settle()?;
    Ok(OpenedSession {
        worker_id: session.worker_id,
        session_id: session.session_id,
        settings: *settings,
        spooled: verdicts,
        withheld: Vec::new(),
        server_features: Features::OF_SERVER,
    })
}

/// Takes what a former session of this worker finished, if the attempt is still its.
fn accept_spooled(
    cascade: &mut Cascade,
    worker_id: WorkerId,
    spooled: &[Spooled],
) -> Result<Vec<Verdict>, EngineError> {
    let mut verdicts = Vec::with_capacity(spooled.len());
    let mut together = Together::default();
    for result in spooled {
        let step = cascade.tx.step(result.attempt.step_id)?;
        let session = cascade.tx.session(&result.session_key)?;
        verdicts.push(match step.zip(session) {
            Some((step, session))
                if session.worker_id == worker_id || planted(Bug::SpoolOfAnotherAccepted) =>
            {
                match cascade.fence(&session, &step, result.attempt)? {
                    None => cascade.finish_attempt(&step, &result.finished, &mut together)?,
                    Some(_) if cascade.still_lacks_log(&session, &step, result.attempt)? => {
                        Verdict::Accepted
                    }
                    Some(verdict) => verdict,
                }
            }
            _ => Verdict::abort("the step or the session is not this worker's"),
        });
        // At once: the next result may be of the same step.
        cascade.carry_out(&mut together)?;
    }
    Ok(verdicts)
}

impl Cascade<'_> {
    /// A session ends with its worker's restart or deletion: what it was running is lost, the rest goes back.
    pub(super) fn close_session(
        &mut self,
        worker: &Worker,
        reason: Reason,
    ) -> Result<(), EngineError> {
        let Some(session_id) = worker.session_id else {
            return Ok(());
        };
        for held in self.tx.held_steps(session_id)? {
            let step = match self.tx.step(held.step_id) {
                // The worker is not to be locked out because of it; what is wrong is told by every sweep.
                Err(StoreError::Unreadable { expected, found }) => {
                    let step_id = held.step_id;
                    log::error!("step {step_id} has {found:?} where {expected} belongs");
                    continue;
                }
                step => &step?.expect("it was just listed"),
            };
            let context = self.context(step.job_id)?;
            let what = match reason {
                Reason::WorkerDeleted => "was deleted",
                _ => "restarted",
            };
            match step.state {
                StepState::Running => {
                    let text = format!(
                        "worker {} {what} while it ran attempt {}; the step may have run partly",
                        worker.name, step.attempt
                    );
                    self.fail_or_retry(&context, step, Failure::new(reason, text))?;
                }
                StepState::Assigned => {
                    let text = format!("worker {} {what} before it started the step", worker.name);
                    let returned = Returned {
                        what: reason.as_str(),
                        text,
                        avoid: None,
                        facts: Facts::none(),
                    };
                    self.return_step(&context, step, returned)?;
                }
                other => unreachable!("a session holds no {other} step"),
            }
        }
        Ok(())
    }
}

fn opened_event(worker_id: WorkerId, registration: &Registration, restarted: bool) -> NewEvent {
    let name = &registration.name;
    let (kind, what) = match restarted {
        true => (EventKind::WorkerRestarted, "is back with a new session"),
        false => (EventKind::WorkerRegistered, "registered"),
    };
    let text = format!("worker {name} {what}: {}", registration.tags.join(", "));
    let facts = Facts::none()
        .and("tags", registration.tags.as_slice())
        .and("slots", registration.slots)
        .and("version", registration.version.as_str())
        .and("platform", registration.platform.as_str());
    let event = NewEvent::new(kind, text).worker(worker_id);
    event.data(facts.data())
}

fn check(registration: &Registration) -> Result<(), EngineError> {
    check_text("worker name", &registration.name, limits::NAME_BYTES_MAX)?;
    check_text(
        "instance key",
        &registration.instance_key,
        limits::KEY_BYTES_MAX,
    )?;
    check_text(
        "session key",
        &registration.session_key,
        limits::KEY_BYTES_MAX,
    )?;
    let invalid = |place, fault| Err(EngineError::Invalid { place, fault });
    // It stands in sentences, each of which is one line.
    if registration.name.contains(is_deceitful) {
        return invalid("worker name", "is not one line of plain text".to_string());
    }
    for (place, text) in [
        ("version", &registration.version),
        ("platform", &registration.platform),
    ] {
        if text.len() > limits::NAME_BYTES_MAX || text.contains('\0') {
            return invalid(place, "is too long or holds a NUL byte".to_string());
        }
    }
    match offer_fault(registration.slots, &registration.tags) {
        None => Ok(()),
        Some((place, fault)) => invalid(place, fault),
    }
}
