//! A worker sends a piece of an attempt's log: whose it is, and that its worker lives.

use super::facts::Facts;
use super::heartbeat::sign_of_life;
use super::queries::load;
use super::{Engine, EngineError};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::log::LogFault;
use crate::domain::protocol::LogDigest;
use crate::domain::worker::WorkerState;
use crate::domain::{AttemptRef, JobId, Now};
use crate::store::{Contact, FaultyLog, FormerAttempt, SessionView, Tx};

/// Whose log is sent, and whether the attempt is still in that session's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOwner {
    pub job_id: JobId,
    pub live: bool,
    /// Set for an attempt that ended before all of its log had arrived: the length and checksum that its worker reported.
    pub faulty: Option<FaultyLog>,
}

impl Engine {
    /// Whether this session ran the attempt, now or before: then the log that it sends is the attempt's.
    ///
    /// Pieces come by the hundred a second, so this only reads, and keeps the sign of life in memory.
    pub fn log_owner(
        &self,
        session_key: &str,
        attempt: AttemptRef,
        now: Now,
    ) -> Result<LogOwner, EngineError> {
        let (session, owner) = self.store.read(|tx| {
            let session = tx.session(session_key)?;
            let session = session.ok_or(EngineError::SessionUnknown)?;
            let owner = owner(tx, &session, attempt);
            Ok::<_, EngineError>((session, owner))
        })?;
        // What was printed before the worker was given up may come later, and from its next life: that says nothing of this one.
        let is_live = owner.as_ref().is_ok_and(|owner| owner.live);
        if is_live && session.current {
            if session.worker_state == WorkerState::Inactive {
                self.note_sign_of_life(session_key, now);
            } else {
                let contact = Contact::of(&session, session.heartbeat_seq, now);
                self.store.record_contact(contact);
            }
        }
        owner
    }

    /// What is wrong with the log of an attempt, as far as its worker said what it wrote.
    pub fn log_fault(&self, attempt: AttemptRef) -> Result<Option<FaultyLog>, EngineError> {
        self.store.read(|tx| Ok(tx.log_fault(attempt)?))
    }

    /// The log of an attempt that has ended is not what its worker wrote. `length`: what the server has of it.
    pub fn note_log_fault(
        &self,
        attempt: AttemptRef,
        log: FaultyLog,
        length: u64,
        now: Now,
    ) -> Result<(), EngineError> {
        self.write(now, move |tx| {
            let Some(step) = tx.step(attempt.step_id)? else {
                // Its job was removed meanwhile.
                return Ok(());
            };
            if tx.log_fault(attempt)? == Some(log) {
                return Ok(());
            }
            tx.note_log_fault(attempt, &log)?;
            let written = log.written.length;
            let (_, context) = load(tx, step.job_id)?;
            let named = format!(
                "the log of step `{}` of job {}, attempt {},",
                context.name(&step),
                step.job_id,
                attempt.attempt
            );
            let (kind, text) = match log.fault {
                LogFault::Missing => (
                    EventKind::LogIncomplete,
                    format!(
                        "{named} has {length} of {written} bytes: its worker was asked for the rest"
                    ),
                ),
                LogFault::Differs => (
                    EventKind::LogDiffers,
                    format!(
                        "{named} is not what its worker wrote: it has {length} bytes, the worker wrote {written} with \
                         another checksum; the log may have been changed by the step, or damaged on the way"
                    ),
                ),
            };
            let facts = Facts::none()
                .and("log_bytes", length)
                .and("written_bytes", written);
            let mut event = NewEvent::new(kind, text).step(&step).data(facts.data());
            event.attempt = Some(attempt.attempt);
            Ok(tx.record(&event, now)?)
        })
    }

    /// The log of an attempt that has ended has `length` of the bytes that its worker wrote, because the server keeps at most
    /// `bytes_max` of one log.
    pub fn note_cut_log(
        &self,
        attempt: AttemptRef,
        written: LogDigest,
        length: u64,
        bytes_max: u64,
        now: Now,
    ) -> Result<(), EngineError> {
        self.write(now, move |tx| {
            let Some(step) = tx.step(attempt.step_id)? else {
                // Its job was removed meanwhile.
                return Ok(());
            };
            let written = written.length;
            let text = format!(
                "the log of {attempt} is cut, it has {length} of {written} bytes: the server keeps at most {} MiB of an attempt's log",
                bytes_max >> 20
            );
            let facts = Facts::none()
                .and("log_bytes", length)
                .and("written_bytes", written);
            let event = NewEvent::new(EventKind::LogIncomplete, text);
            let mut event = event.step(&step).data(facts.data());
            event.attempt = Some(attempt.attempt);
            Ok(tx.record(&event, now)?)
        })
    }

    /// Nothing of it is missing any more.
    pub fn forget_log_fault(&self, attempt: AttemptRef, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| Ok(tx.forget_log_fault(attempt)?))
    }

    /// Writes that an inactive worker is back. Only one piece of each session at a time does that; others do not wait for the
    /// disk.
    fn note_sign_of_life(&self, session_key: &str, now: Now) {
        if !self.watch.begin_noting(session_key) {
            return;
        }
        let key = session_key.to_string();
        let noted = self.write_contact(key.clone(), now, move |tx| match tx.session(&key)? {
            Some(session) if session.current => {
                tx.called_by(session.worker_id);
                sign_of_life(tx, &session, now)
            }
            _ => Ok(()),
        });
        self.watch.end_noting(session_key);
        // The piece is not lost for it, and the next one tries again.
        if let Err(error) = noted {
            log::warn!("a sign of life could not be written down: {error}");
        }
    }
}

fn owner(tx: &Tx, session: &SessionView, attempt: AttemptRef) -> Result<LogOwner, EngineError> {
    let unknown = || EngineError::AttemptNotFound { attempt };
    let session_id = Some(session.session_id);
    let step = tx.step(attempt.step_id)?.ok_or_else(unknown)?;
    let job_id = step.job_id;
    if step.attempt == attempt.attempt && step.session_id == session_id {
        let live = !step.state.is_terminal();
        let faulty = match live {
            true => None,
            false => tx.log_fault(attempt)?,
        };
        return Ok(LogOwner {
            job_id,
            live,
            faulty,
        });
    }
    let mut former = tx.former_attempts(attempt.step_id)?.into_iter();
    let its_own = |former: &FormerAttempt| {
        former.attempt == attempt.attempt && former.session_id == session_id
    };
    former.find(its_own).ok_or_else(unknown)?;
    Ok(LogOwner {
        job_id,
        live: false,
        faulty: tx.log_fault(attempt)?,
    })
}
