//! The calls that a worker makes. Each kind has a thread and a connection of its own: a poll that is held, a slow report, a busy
//! machine do not silence its heartbeats.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::folder::Folder;
use super::machine::{Event, Trouble};
use super::shipping::Shipping;
use super::{EndError, WorkerEvent};
use crate::client::{CallError, Client};
use crate::clock::monotonic_ms;
use crate::domain::AttemptRef;
use crate::domain::peer::{Feature, Features, Peer};
use crate::domain::protocol::{Beat, LogDigest, Poll, Registration, Reports, Spooled};
use crate::essential::spawn_essential;
use crate::wire::worker::{
    DrainRequest, HeartbeatAnswer, HeartbeatRequest, PollAnswerJson, PollRequest,
    ReportsAnswerJson, ReportsRequest, SERVER_ROLLED_BACK, ServerAnswer, SessionAnswer,
    SessionRequest, VerdictJson, WORKER_TOO_OLD,
};

/// How long the server may hold a poll.
const POLL_WAIT: Duration = Duration::from_secs(30);

const TIMEOUT: Duration = Duration::from_secs(10);

/// How long a session waits for the logs of the results that are sent with it. What is not sent by then is asked for again.
const LOG_WAIT_MS: i64 = 1_000;

/// However long the server wants a worker to wait before it opens a session, the worker waits no longer than this.
const LIMIT_WAIT_MAX: Duration = Duration::from_secs(60);
/// Reason in the log line about a server that limits session opens.
const LIMITED: &str = "over a limit";

/// Where all calls of workers begin.
const CALLS: &str = "/api/worker/";

pub enum Call {
    Open {
        registration: Registration,
        spooled: Vec<Spooled>,
    },
    /// With how long its answer is waited for.
    Beat(Beat, Duration),
    Poll(Poll),
    /// With the logs of attempts that have ended, for a server that compares them.
    Report(Reports, HashMap<AttemptRef, LogDigest>),
    Drain {
        session_key: String,
    },
}

/// Where calls are left. Dropping it ends the threads, each after the call that it is in.
pub struct Calls {
    beats: Sender<Call>,
    polls: Sender<Call>,
    reports: Sender<Call>,
    /// Whoever makes a call holds the other end: no answer is missed once nobody waits for one.
    _waits: Arc<()>,
}

impl Calls {
    pub fn start(
        new_client: impl Fn() -> Client,
        folder: &Arc<Folder>,
        shipping: &Shipping,
        events: &Sender<WorkerEvent>,
    ) -> std::io::Result<Calls> {
        let waits = Arc::new(());
        let line = |name: &str| {
            let (sender, calls) = unbounded();
            let caller = Caller {
                client: new_client(),
                folder: folder.clone(),
                shipping: shipping.clone(),
                events: events.clone(),
                trouble: None,
                sent_away: None,
                was_welcome: false,
                waits: Arc::downgrade(&waits),
            };
            spawn_essential(format!("worker-{name}"), move || caller.run(&calls))?;
            Ok::<_, std::io::Error>(sender)
        };
        Ok(Calls {
            beats: line("heartbeat")?,
            polls: line("poll")?,
            reports: line("report")?,
            _waits: waits,
        })
    }

    pub fn make(&self, call: Call) {
        let line = match &call {
            Call::Beat(..) => &self.beats,
            Call::Poll(_) => &self.polls,
            Call::Open { .. } | Call::Report(..) | Call::Drain { .. } => &self.reports,
        };
        line.send(call).expect("a caller ends after us");
    }
}

struct Caller {
    client: Client,
    folder: Arc<Folder>,
    shipping: Shipping,
    events: Sender<WorkerEvent>,
    /// What was said of it the last time, unless it is over.
    trouble: Option<&'static str>,
    /// The server does not want this process, and says why.
    sent_away: Option<EndError>,
    /// A session was opened in the life of this process.
    was_welcome: bool,
    waits: Weak<()>,
}

impl Caller {
    fn run(mut self, calls: &Receiver<Call>) {
        for call in calls {
            let event = self.make(call);
            // The loop is gone: so is whoever would listen.
            if self.events.send(event).is_err() {
                return;
            }
        }
    }

    fn make(&mut self, call: Call) -> WorkerEvent {
        let event = self.carry_out(call);
        match self.sent_away.take() {
            Some(why) => WorkerEvent::Fatal(why),
            None => event,
        }
    }

    fn carry_out(&mut self, call: Call) -> WorkerEvent {
        WorkerEvent::Mind(match call {
            Call::Open {
                registration,
                spooled,
            } => return self.open(&registration, &spooled),
            Call::Beat(beat, timeout) => {
                let request = HeartbeatRequest::from(&beat);
                let answer = self.post("heartbeat", &request, timeout);
                let answer = answer.map(|answer: HeartbeatAnswer| answer.into());
                Event::Beaten(beat.session_key, answer)
            }
            Call::Poll(poll) => {
                let request = PollRequest::new(&poll, POLL_WAIT.as_millis() as u64);
                let answer = self.post("poll", &request, POLL_WAIT + TIMEOUT);
                let answer = answer.map(|answer: PollAnswerJson| answer.into());
                Event::Polled(poll.session_key, answer)
            }
            Call::Report(reports, logs) => {
                let request = ReportsRequest::new(&reports, &logs);
                let answer = self.post("reports", &request, TIMEOUT);
                let answer = answer.map(|answer: ReportsAnswerJson| answer.into());
                Event::Reported(reports.session_key, answer)
            }
            Call::Drain { session_key } => {
                let request = DrainRequest {
                    session: session_key.clone(),
                };
                let answer = self.post("drain", &request, TIMEOUT);
                Event::Drained(session_key, answer.map(|_: serde_json::Value| ()))
            }
        })
    }

    fn open(&mut self, registration: &Registration, spooled: &[Spooled]) -> WorkerEvent {
        let features = match self.check_installation() {
            Ok(features) => features,
            Err(trouble) => return WorkerEvent::Mind(Event::Opened(Err(trouble))),
        };
        let logs = match features.contains(Feature::LogChecksum) {
            true => self.logs_of(spooled),
            false => HashMap::new(),
        };
        // The server compares the logs of the results that it gets with the session.
        let until_ms = monotonic_ms() + LOG_WAIT_MS;
        for attempt in logs.keys() {
            let left_ms = (until_ms - monotonic_ms()).max(0);
            let wait = Duration::from_millis(left_ms as u64);
            self.shipping.over_and_wait(*attempt, true, wait);
        }
        let request = SessionRequest::new(registration, spooled, &logs);
        let path = format!("{CALLS}sessions");
        let (server, answer) = self.client.post_to_peer(&path, &request, TIMEOUT);
        let answer: Result<SessionAnswer, Trouble> = self.judged("sessions", answer);
        if let Ok(opened) = &answer {
            if let Err(error) = self.folder.belongs_to(&opened.installation) {
                return WorkerEvent::Fatal(EndError::Other(error.to_string()));
            }
            self.was_welcome = true;
            log::info!("session opened as worker {}", opened.worker_id);
            warn_of_results_not_taken(spooled, &opened.spooled);
            self.resend_logs(spooled, &opened.spooled);
            if !opened.withheld.is_empty() {
                log::warn!(
                    "its token does not let it offer {}, so no step comes to it by that",
                    opened.withheld.join(", ")
                );
            }
        }
        WorkerEvent::Mind(Event::Opened(
            answer.map(|answer| answer.into_session(server.features)),
        ))
    }

    /// What was written of the logs of these attempts, as far as it is known.
    fn logs_of(&self, spooled: &[Spooled]) -> HashMap<AttemptRef, LogDigest> {
        let attempts = spooled.iter().map(|result| result.attempt);
        attempts
            .filter_map(|attempt| Some((attempt, self.folder.log_digest(attempt)?)))
            .collect()
    }

    /// The server lacks the ends of some logs. The loop hears this before it hears of the session, which releases the logs.
    fn resend_logs(&self, spooled: &[Spooled], verdicts: &[VerdictJson]) {
        for (result, verdict) in spooled.iter().zip(verdicts) {
            if let VerdictJson::Accepted {
                log_from: Some(offset),
                ..
            } = verdict
            {
                let attempt = result.attempt;
                // The loop is gone only when the process is going.
                let _ = self.events.send(WorkerEvent::ResendLog(attempt, *offset));
            }
        }
    }

    /// Asks the server which installation it is, before a session registers this worker there. The server of another installation is
    /// left alone. A server of version 0.1 cannot be asked: there the answer to the session says it. Returns what the server
    /// announced.
    fn check_installation(&mut self) -> Result<Features, Trouble> {
        let path = format!("{CALLS}server");
        let (server, answer) = self.client.get_from_peer::<ServerAnswer>(&path, TIMEOUT);
        let is_unknown_route = matches!(
            answer,
            Err(CallError::Refused {
                status: 403 | 404,
                ..
            })
        );
        if server == Peer::UNANNOUNCED && is_unknown_route {
            return Ok(Features::NONE);
        }
        // An answer here does not end a time of trouble: the server may still refuse the session that is opened next.
        let answer = answer.map_err(|error| self.trouble_of("sessions", error))?;
        if let Err(error) = self.folder.may_belong_to(&answer.installation) {
            self.sent_away = Some(EndError::Other(error.to_string()));
            return Err(Trouble::Unreachable);
        }
        self.shipping.server_known();
        Ok(server.features)
    }

    fn post<Q: serde::Serialize, A: serde::de::DeserializeOwned>(
        &mut self,
        what: &str,
        request: &Q,
        timeout: Duration,
    ) -> Result<A, Trouble> {
        let path = format!("{CALLS}{what}");
        let answer = self.client.post(&path, request, timeout);
        self.judged(what, answer)
    }

    /// What an answer to this call means for the worker.
    fn judged<A>(&mut self, what: &str, answer: Result<A, CallError>) -> Result<A, Trouble> {
        match answer {
            Ok(answer) => {
                if self.trouble.take().is_some() {
                    log::info!("{}: the server answers again", name_of(what));
                }
                Ok(answer)
            }
            Err(error) => Err(self.trouble_of(what, error)),
        }
    }

    /// What a call without an answer, or with a refusal, means for the worker.
    fn trouble_of(&mut self, what: &str, error: CallError) -> Trouble {
        let trouble = match error {
            CallError::Refused {
                status: 410, error, ..
            } if error.code == "session_unknown" => Trouble::SessionUnknown,
            CallError::Refused {
                status: 410, error, ..
            } if error.code == "session_replaced" => Trouble::SessionReplaced,
            CallError::Refused { error, .. } if error.code == WORKER_TOO_OLD => {
                let has_no_session = what == "sessions" && !self.was_welcome;
                if has_no_session {
                    self.sent_away = Some(EndError::TooOld(error.message));
                    return Trouble::Unreachable;
                }
                // Running steps may end first. The loop hears of this before it hears that it is shut out; it is gone only when
                // the process is going.
                let _ = self.events.send(WorkerEvent::TooOld(error.message));
                return Trouble::ShutOut;
            }
            // Only an open session can be refused so, and asking again would not help.
            CallError::Refused {
                status: 409 | 422,
                error,
                ..
            } if what == "sessions" => {
                self.sent_away = Some(EndError::Other(error.message));
                return Trouble::Unreachable;
            }
            // A word that was good once may be so again: only who never had one must ask a person.
            error if what == "sessions" && !self.was_welcome && error.is_about_token() => {
                self.sent_away = Some(EndError::NotAllowed);
                return Trouble::Unreachable;
            }
            CallError::Refused {
                status: 403, error, ..
            } if what == "sessions" && !self.was_welcome => {
                self.sent_away = Some(EndError::OfAnotherRole(error.message));
                return Trouble::Unreachable;
            }
            error if self.client.is_shut_out(&error) => return Trouble::ShutOut,
            _ if self.waits.strong_count() == 0 => return Trouble::Unreachable,
            error if what == "sessions" && error.limited_for().is_some() => {
                let wait = error.limited_for().unwrap_or_default().min(LIMIT_WAIT_MAX);
                let secs = wait.as_secs();
                if self.trouble.replace(LIMITED) != Some(LIMITED) {
                    log::warn!("session: not opened yet, trying again in {secs} s: {error}");
                }
                let wait_ms = wait.as_millis() as i64;
                return Trouble::Limited { wait_ms };
            }
            error => {
                let trouble = match &error {
                    CallError::Unreachable(_) => "no answer",
                    CallError::Refused { error, .. } if error.code == SERVER_ROLLED_BACK => {
                        "refused because the server's database was rolled back, results are kept here"
                    }
                    CallError::Refused { .. } => "refused",
                };
                // Once for each time of trouble: it may last for hours.
                if self.trouble.replace(trouble) != Some(trouble) {
                    log::warn!(
                        "{}: {trouble}, trying again and again: {error}",
                        name_of(what)
                    );
                }
                return Trouble::Unreachable;
            }
        };
        log::warn!("{}: the session is over: {trouble:?}", name_of(what));
        trouble
    }
}

/// How the log names a call.
fn name_of(what: &str) -> &str {
    match what {
        "sessions" => "session",
        "reports" => "report",
        what => what,
    }
}

/// Says which results of former sessions are lost. The server gives its verdicts in the order of the results.
fn warn_of_results_not_taken(spooled: &[Spooled], verdicts: &[VerdictJson]) {
    for (result, verdict) in spooled.iter().zip(verdicts) {
        match verdict {
            VerdictJson::Accepted { .. } | VerdictJson::Unknown => {}
            VerdictJson::Abort { why } | VerdictJson::Refused { why } => log::warn!(
                "the server does not take the result of {}: {why}",
                result.attempt
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::domain::peer::Features;
    use crate::wire::{ErrorBody, ErrorDetail};

    /// Answers which installation it is, and refuses every session because its database was rolled back.
    fn serve_rolled_back(listener: &TcpListener) -> std::io::Result<()> {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream?);
            let mut request = String::new();
            reader.read_line(&mut request)?;
            let mut body_bytes = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                let line = line.trim().to_lowercase();
                if line.is_empty() {
                    break;
                }
                if let Some(length) = line.strip_prefix("content-length:") {
                    body_bytes = length.trim().parse().expect("a number");
                }
            }
            let mut body = vec![0; body_bytes];
            reader.read_exact(&mut body)?;
            let (status, body) = match request.starts_with("GET") {
                true => {
                    let answer = ServerAnswer {
                        installation: "here".to_string(),
                        version: "0.2.0".to_string(),
                    };
                    ("200 OK", serde_json::to_string(&answer)?)
                }
                false => {
                    let error = ErrorDetail {
                        code: SERVER_ROLLED_BACK.to_string(),
                        message: "the database is older".to_string(),
                        details: Vec::new(),
                    };
                    let answer = serde_json::to_string(&ErrorBody { error })?;
                    ("503 Service Unavailable", answer)
                }
            };
            let length = body.len();
            let stream = reader.get_mut();
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            )?;
        }
        Ok(())
    }

    #[test]
    fn the_question_for_the_installation_does_not_end_the_trouble_with_sessions() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || serve_rolled_back(&listener));
        let place = tempfile::tempdir().unwrap();
        let waits = Arc::new(());
        let folder = Arc::new(Folder::open(place.path()).unwrap());
        let mut caller = Caller {
            client: Client::new(&url, None),
            shipping: Shipping::start(Client::new(&url, None), folder.clone(), unbounded().0)
                .unwrap()
                .0,
            folder,
            events: unbounded().0,
            trouble: None,
            sent_away: None,
            was_welcome: false,
            waits: Arc::downgrade(&waits),
        };
        let registration = Registration {
            instance_key: "i".to_string(),
            session_key: "s".to_string(),
            name: "ann".to_string(),
            tags: Vec::new(),
            slots: 1,
            version: "0.2.0".to_string(),
            platform: "linux".to_string(),
            features: Features::NONE,
        };
        caller.open(&registration, &[]);
        let trouble = caller.trouble;
        assert!(trouble.is_some(), "the session was refused");
        // While it asks again, it neither announces that the server answers nor forgets what it said.
        caller.check_installation().unwrap();
        assert_eq!(caller.trouble, trouble);
        assert_eq!(name_of("sessions"), "session");
    }
}
