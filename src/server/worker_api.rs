//! What workers ask for. Parse, one verb, answer.
//!
//! Fields and query parameters that this version does not know are ignored: the worker may be newer.

use std::collections::BTreeMap;
use std::time::Duration;

use super::App;
use super::error::ApiError;
use super::exchange::{Reply, Request, Response};
use super::rollback::{CallingWorker, refuse_if_rolled_back};
use super::waiting::{Update, WaitingPoll, says_nothing};
use crate::disk::has_room_for_log;
use crate::domain::audit::{Actor, AuditAction, AuditEntry};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::log::LogFault;
use crate::domain::protocol::{LogDigest, Poll, Spooled, Verdict};
use crate::domain::{AttemptRef, JobId, StepId};
use crate::engine::EngineError;
use crate::logs::{AppendError, Comparison};
use crate::store::FaultyLog;
use crate::wire::worker::{
    DrainRequest, EnrolAnswer, EnrolRequest, HeartbeatAnswer, HeartbeatRequest, LOG_NOT_WRITTEN,
    LogAnswer, PollAnswerJson, PollRequest, Readable, ReportsAnswerJson, ReportsRequest,
    ServerAnswer, SessionAnswer, SessionRequest,
};

/// No proxy in between should take a waiting poll for a dead one.
const WAIT_MAX: Duration = Duration::from_secs(50);

/// Which installation this is. A worker asks before it opens a session: a server of another installation must not register it.
pub fn show_server(app: &App, _request: &Request) -> Result<Reply, ApiError> {
    let answer = ServerAnswer {
        installation: app.installation.clone(),
        version: env!("CARGO_PKG_VERSION").to_string(),
    };
    Ok(Response::json(200, &answer).into())
}

/// Which installation this is, for a worker that has an enrolment and no token yet. The enrolment is not used up.
pub fn show_server_to_enrolment(app: &App, request: &Request) -> Result<Reply, ApiError> {
    app.gate.enrolment(&request.headers)?;
    show_server(app, request)
}

/// A worker exchanges its enrolment for a token of its own.
pub fn enrol(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let enrolment = app.gate.enrolment(&request.headers)?;
    let asked: EnrolRequest = request.json()?;
    let is_hash = asked.secret_hash.len() == 64
        && asked
            .secret_hash
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hash {
        return Err(ApiError::invalid("secret_hash is no SHA-256 in hex"));
    }
    let token_id = enrolment.token_id().expect("an enrolment is a token");
    let now = app.clock.now();
    // Events do not name a worker as somebody who acts; the audit log names the enrolment.
    let actor = Actor {
        is_named_in_events: false,
        ..enrolment.actor(request.headers.peer)
    };
    let engine = app.engine.acting(actor);
    let enrolled = engine.enrol(token_id, asked.secret_hash, asked.name, now)?;
    app.gate.load(&app.engine)?;
    let answer = EnrolAnswer {
        token_id: enrolled.token_id.0,
    };
    Ok(Response::json(200, &answer).into())
}

/// A token speaks for its own sessions alone. Another's is answered as one that does not exist, so that nothing is learnt of it.
fn check_owner(app: &App, request: &Request, session_key: &str) -> Result<(), ApiError> {
    match is_owner(app, request, session_key)? {
        true => Ok(()),
        false => Err(EngineError::SessionUnknown.into()),
    }
}

/// That it cannot be known is an error, and never a no: whoever is told no throws away what it has.
fn is_owner(app: &App, request: &Request, session_key: &str) -> Result<bool, ApiError> {
    let Some(token_id) = request.caller.token_id() else {
        return Ok(true);
    };
    if app.gate.owns_session(&app.engine, token_id, session_key)? {
        return Ok(true);
    }
    if app.gate.is_trespass_to_be_told(token_id) {
        let name = &request.caller.name;
        let text = format!(
            "token {token_id} ({name}) was shown for a session of another worker: it was refused; revoke it if nobody knows why"
        );
        let event = NewEvent::new(EventKind::ScopeViolated, text);
        let actor = Actor {
            is_named_in_events: false,
            ..request.actor()
        };
        let entry = AuditEntry::refused(AuditAction::ScopeViolated).object("token", token_id);
        let engine = app.engine.acting(actor);
        engine.tell_audited_loudly(event, entry, app.clock.now())?;
    }
    Ok(false)
}

pub fn open_session(app: &App, request: &Request) -> Result<Reply, ApiError> {
    app.shares.count_session_open(app.share_owner(request))?;
    let asked: SessionRequest = request.json()?;
    refuse_if_rolled_back(app, request, CallingWorker::Named(&asked.name))?;
    let features = request.announced.features;
    let (registration, Readable { items, faults }) = asked.into_parts(features);
    let (items, logs): (Vec<Spooled>, Vec<Option<LogDigest>>) = items.into_iter().unzip();
    let ran: Vec<(String, AttemptRef)> = items
        .iter()
        .map(|result| (result.session_key.clone(), result.attempt))
        .collect();
    let opened =
        app.engine
            .open_session_of(request.caller.owner(), registration, items, app.clock.now())?;
    let mut log_gaps = Vec::new();
    for (index, ((session_key, attempt), log)) in ran.iter().zip(logs).enumerate() {
        if let Some(written) = log
            && opened.spooled.get(index) == Some(&Verdict::Accepted)
            && let Some(offset) = missing_from_spooled(app, session_key, *attempt, written)
        {
            log_gaps.push((index, offset));
        }
    }
    let answer = SessionAnswer::new(opened, &log_gaps, &faults, &app.installation);
    Ok(Response::json(200, &answer).into())
}

/// Returns the offset from which on the log of an attempt lacks bytes, for a result that a former session of the worker left. The
/// worker waits up to a second for such a log to be sent before it opens its session, so a long log may still be on its way.
fn missing_from_spooled(
    app: &App,
    session_key: &str,
    attempt: AttemptRef,
    written: LogDigest,
) -> Option<u64> {
    match app.engine.log_owner(session_key, attempt, app.clock.now()) {
        Ok(owner) => missing_from(app, owner.job_id, attempt, written),
        Err(error) => {
            log::error!("the log of {attempt} cannot be compared: its job is not known: {error}");
            None
        }
    }
}

pub fn heartbeat(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let beat: HeartbeatRequest = request.json()?;
    refuse_if_rolled_back(app, request, CallingWorker::InSession(&beat.session))?;
    check_owner(app, request, &beat.session)?;
    let answer = app.engine.heartbeat(beat.into(), app.clock.now())?;
    Ok(Response::json(200, &HeartbeatAnswer::from(answer)).into())
}

pub fn poll(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let asked: PollRequest = request.json()?;
    refuse_if_rolled_back(app, request, CallingWorker::InSession(&asked.session))?;
    check_owner(app, request, &asked.session)?;
    let wait = Duration::from_millis(asked.wait_ms).min(WAIT_MAX);
    let arrival = app.waiting.arrival();
    let poll = Poll::from(asked);
    let answer = app.engine.poll(poll.clone(), app.clock.now())?;
    if wait.is_zero() || !says_nothing(&answer, poll.free_slots > 0) {
        let json = PollAnswerJson::from(&answer);
        return Ok(Response::json(200, &json).into());
    }
    let offer = app.engine.offer(&poll.session_key)?;
    Ok(Reply::Wait(WaitingPoll {
        poll,
        offer,
        wait,
        arrival,
    }))
}

pub fn report(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let asked: ReportsRequest = request.json()?;
    refuse_if_rolled_back(app, request, CallingWorker::InSession(&asked.session))?;
    let (mut reports, faults, logs) = asked.into_parts();
    let arrival = app.waiting.arrival();
    if !is_owner(app, request, &reports.session_key)? {
        // Reports of a session that is not known are answered one by one, so those of another's are too.
        reports.session_key.insert_str(0, "not of this token: ");
    }
    let session_key = reports.session_key.clone();
    let asks = reports.poll.clone();
    let still_held: Vec<AttemptRef> = reports.held().collect();
    let logs: BTreeMap<usize, (AttemptRef, LogDigest)> = logs
        .into_iter()
        .map(|(index, log)| (index, (reports.items[index].0, log)))
        .collect();
    let mut answer = app.engine.report(reports, app.clock.now())?;
    for (index, job_id) in &answer.ended {
        if let Some((attempt, written)) = logs.get(index)
            && let Some(offset) = missing_from(app, *job_id, *attempt, *written)
        {
            answer.log_gaps.push((*index, offset));
        }
    }
    if let (Some((free_slots, held)), Some(poll)) = (asks, &answer.poll) {
        let given = poll.assignments.iter().map(|given| given.attempt);
        app.waiting.update(Update {
            session_key,
            free_slots: free_slots.saturating_sub(given.len() as u32),
            held: held.into_iter().chain(still_held).chain(given).collect(),
            arrival,
        });
    }
    let json = ReportsAnswerJson::new(&answer, &faults);
    Ok(Response::json(200, &json).into())
}

/// Where the log of an attempt that has just ended lacks bytes. Whatever is wrong with the log is noted. What cannot be found out, or
/// noted, must not keep the result of the step from being answered: then nothing is asked for.
fn missing_from(app: &App, job_id: JobId, attempt: AttemptRef, written: LogDigest) -> Option<u64> {
    let (fault, length) = match app.logs.compare(job_id, attempt, written) {
        Ok(Comparison::Same) => return None,
        Ok(Comparison::Cut { length }) => {
            note_cut_log(app, attempt, written, length);
            return None;
        }
        Ok(Comparison::Short { length }) => (LogFault::Missing, length),
        Ok(Comparison::Differs { length }) => (LogFault::Differs, length),
        Err(error) => {
            log::error!(
                "the log of {attempt} cannot be compared to what its worker wrote: {error}"
            );
            return None;
        }
    };
    note_log_fault(app, attempt, FaultyLog { fault, written }, length);
    (fault == LogFault::Missing).then_some(length)
}

fn note_log_fault(app: &App, attempt: AttemptRef, log: FaultyLog, length: u64) {
    let now = app.clock.now();
    if let Err(error) = app.engine.note_log_fault(attempt, log, length, now) {
        log::error!("what is wrong with the log of {attempt} cannot be written down: {error}");
    }
}

/// The worker wrote more than the server keeps of one log: nothing is wrong, and nothing more is asked for.
fn note_cut_log(app: &App, attempt: AttemptRef, written: LogDigest, length: u64) {
    let bytes_max = app.logs.attempt_bytes_max();
    let now = app.clock.now();
    if let Err(error) = (app.engine).note_cut_log(attempt, written, length, bytes_max, now) {
        log::error!("that the log of {attempt} is cut cannot be written down: {error}");
    }
}

fn forget_log_fault(app: &App, attempt: AttemptRef) {
    if let Err(error) = app.engine.forget_log_fault(attempt, app.clock.now()) {
        log::error!(
            "that no more is missing of the log of {attempt} cannot be written down: {error}"
        );
    }
}

/// Bytes that were missing when the attempt ended have come: once all are there, they are compared.
fn check_late_log(app: &App, job_id: JobId, attempt: AttemptRef, faulty: FaultyLog) {
    match app.logs.compare(job_id, attempt, faulty.written) {
        Ok(Comparison::Same) => forget_log_fault(app, attempt),
        Ok(Comparison::Cut { length }) => {
            forget_log_fault(app, attempt);
            note_cut_log(app, attempt, faulty.written, length);
        }
        Ok(Comparison::Differs { length }) => {
            let fault = LogFault::Differs;
            note_log_fault(app, attempt, FaultyLog { fault, ..faulty }, length);
        }
        // More has to come, or it is not known: it stays as it was noted.
        Ok(Comparison::Short { .. }) | Err(_) => {}
    }
}

pub fn drain(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let asked: DrainRequest = request.json()?;
    refuse_if_rolled_back(app, request, CallingWorker::InSession(&asked.session))?;
    check_owner(app, request, &asked.session)?;
    app.engine.drain_session(&asked.session, app.clock.now())?;
    Ok(Response::json(200, &serde_json::json!({})).into())
}

/// A piece of an attempt's log, at its offset: sending it again is harmless, and a wrong offset is answered with the right one.
pub fn append_log(app: &App, request: &Request) -> Result<Reply, ApiError> {
    let attempt = AttemptRef {
        step_id: StepId(request.id(0)?),
        attempt: u32::try_from(request.id(1)?).map_err(|_| {
            ApiError::not_found(format!("{:?} is not an attempt", request.param(1)))
        })?,
    };
    let missing = |key: &str| ApiError::invalid(format!("{key} is missing"));
    let session = request.query("session").ok_or_else(|| missing("session"))?;
    refuse_if_rolled_back(app, request, CallingWorker::InSession(session))?;
    check_owner(app, request, session)?;
    let offset = request.query_number("offset")?;
    let offset: u64 = offset.ok_or_else(|| missing("offset"))?;
    let owner = app.engine.log_owner(session, attempt, app.clock.now())?;
    // Whoever sends it keeps it meanwhile.
    if !has_room_for_log(app.engine.store.folder(), request.body.len()) {
        let message = "the disk of the data folder is nearly full, and what is left is not for logs: make room there";
        return Err(ApiError::new(503, LOG_NOT_WRITTEN, message));
    }
    let appended = (app.logs).append(owner.job_id, attempt, offset, &request.body);
    let (length, full) = match appended {
        Ok(appended) => (appended.length, false),
        Err(AppendError::Gap { length }) => (length, false),
        Err(AppendError::TooLong { length }) => (length, true),
        Err(AppendError::Differs { .. }) => {
            let message = "another text was sent for these bytes before";
            return Err(ApiError::new(409, "log_differs", message));
        }
        Err(AppendError::Io(error)) => {
            log::error!("a log could not be written: {error}");
            let message = "the log could not be written, send it again later";
            return Err(ApiError::new(503, LOG_NOT_WRITTEN, message));
        }
    };
    if let Some(faulty) = owner.faulty.filter(|log| log.fault == LogFault::Missing) {
        check_late_log(app, owner.job_id, attempt, faulty);
    }
    let abort = !owner.live;
    let answer = LogAnswer {
        length,
        abort,
        full,
    };
    Ok(Response::json(200, &answer).into())
}
