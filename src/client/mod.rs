//! Our own API from the other side: how workers and the command line reach a server.

mod tls;

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use rustls::CertificateError;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use ureq::http::{Response, StatusCode, Uri};
use ureq::{Agent, Body, RequestBuilder, Timeout};

use crate::certificate::Trust;
use crate::domain::lineage::{Epoch, LINEAGE_HEADER};
use crate::domain::peer::{Features, PROTOCOL_HEADER, Peer};
use crate::domain::token::TokenText;
use crate::wire::api::Health;
use crate::wire::{ErrorBody, ErrorDetail};

/// An answer larger than this is not ours.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The server closes a connection that is idle for longer: it is not used again shortly before.
const IDLE_MAX: Duration = Duration::from_secs(7);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no answer to work with.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("{0}")]
    Unreachable(Silence),
    /// Its code is `UNKNOWN` if something else sits at this address.
    #[error("{status}: {}", .error.message)]
    Refused {
        status: u16,
        error: ErrorDetail,
        /// When the server wants to be asked again (`Retry-After`), if it says so.
        retry_after: Option<Duration>,
    },
}

impl CallError {
    /// Whoever waits tries again: nothing came, the server is too busy, starting or stopping, or whoever sits in front of it says
    /// that it is not there.
    pub fn passes(&self) -> bool {
        match self {
            CallError::Unreachable(_) => true,
            CallError::Refused { .. } if self.is_about_token() => false,
            CallError::Refused { status, .. } => matches!(status, 429 | 502..=504),
        }
    }

    /// How long the server wants us to wait, if it refused the call because this token or address went over a limit. Such a call was
    /// not carried out and can be repeated.
    pub fn limited_for(&self) -> Option<Duration> {
        match self {
            CallError::Refused {
                status: 429,
                retry_after: Some(wait),
                ..
            } if !self.is_about_token() => Some(*wait),
            _ => None,
        }
    }

    /// Whether the token is missing or wrong. Whoever shows a right one is let in, however many wrong ones came from the same address.
    pub fn is_about_token(&self) -> bool {
        match self {
            CallError::Unreachable(_) => false,
            CallError::Refused { status, error, .. } => {
                *status == 401 || error.code == TOO_MANY_GUESSES
            }
        }
    }
}

/// Why nothing came.
#[derive(Debug, thiserror::Error)]
pub enum Silence {
    #[error("no answer within {} s", .0.as_secs())]
    TooLong(Duration),
    #[error("it does not speak TLS")]
    NoTls,
    /// What is wrong with the certificate that it shows, and what to do.
    #[error("{0}")]
    NotBelieved(String),
    #[error("{0}")]
    Other(String),
}

/// The code of a 401 for whom it was said too often.
const TOO_MANY_GUESSES: &str = "too_many_guesses";

const BEARER: &str = "Bearer ";

/// The code of a refusal that is not in our words.
pub const UNKNOWN: &str = "unknown";

/// One connection at a time. Whoever must not wait for another's call has a client of its own.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    url: String,
    authorization: Option<String>,
    epochs: Option<Arc<dyn EpochMemory>>,
    /// The protocol and features that a worker announces with each call; see `domain/peer.rs`.
    announcement: Option<String>,
    /// Called before the client waits because the server refused a call for being over a limit. `None`: the client does not wait.
    on_limit: Option<OnLimit>,
}

/// Told what the server said, and how long the client waits before it calls again.
pub type OnLimit = fn(&CallError, Duration);

/// Time for which a waiting client repeats a call that the server refuses for being over a limit.
const LIMIT_WAIT_MAX: Duration = Duration::from_secs(30);

/// The epoch of the last server that answered, as the worker remembers it; see `domain/lineage.rs`.
pub trait EpochMemory: Send + Sync {
    /// The last epoch that the worker has seen, which it sends with each call.
    fn seen(&self) -> Option<Epoch>;

    /// A server with this epoch did what the worker asked for.
    fn learn(&self, epoch: Epoch);
}

impl Client {
    /// Believes whom everybody believes.
    pub fn new(url: &str, token: Option<&str>) -> Client {
        Client::trusting(url, token, None)
    }

    /// Believes whom it is told to, and nobody else.
    pub fn trusting(url: &str, token: Option<&str>, trust: Option<&Trust>) -> Client {
        let url = url.trim_end_matches('/').to_string();
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .max_idle_age(IDLE_MAX)
            .max_redirects(0)
            .user_agent(concat!("stepward/", env!("CARGO_PKG_VERSION")));
        if is_here(&url) {
            // What the environment says of proxies is not meant for this machine itself.
            config = config.proxy(None);
        }
        let config = config.build();
        let agent = match trust {
            Some(trust) => tls::agent(config, trust),
            None => config.new_agent(),
        };
        Client {
            agent,
            url,
            authorization: token.map(|token| format!("{BEARER}{token}")),
            epochs: None,
            announcement: None,
            on_limit: None,
        }
    }

    /// Returns this client with waiting turned on: it repeats a call that the server refuses for being over a limit.
    pub fn waiting_at_limits(self, on_limit: OnLimit) -> Client {
        Client {
            on_limit: Some(on_limit),
            ..self
        }
    }

    fn within_limits<A>(&self, call: impl Fn() -> Result<A, CallError>) -> Result<A, CallError> {
        let mut left = LIMIT_WAIT_MAX;
        loop {
            let answer = call();
            let Err(error) = &answer else {
                return answer;
            };
            match (self.on_limit, error.limited_for()) {
                (Some(on_limit), Some(wait)) if wait <= left => {
                    on_limit(error, wait);
                    std::thread::sleep(wait);
                    left -= wait;
                }
                _ => return answer,
            }
        }
    }

    /// The same client for a worker that remembers the last epoch of its server.
    pub fn remembering(self, epochs: Arc<dyn EpochMemory>) -> Client {
        Client {
            epochs: Some(epochs),
            ..self
        }
    }

    /// The same client for a worker, which announces with every call what it understands.
    pub fn announcing(self, features: Features) -> Client {
        Client {
            announcement: Some(Peer::of_this_version(features).to_string()),
            ..self
        }
    }

    pub fn get<A: DeserializeOwned>(&self, path: &str, timeout: Duration) -> Result<A, CallError> {
        self.within_limits(|| {
            let request = self.authorized(self.agent.get(format!("{}{path}", self.url)));
            let request = request.config().timeout_global(Some(timeout)).build();
            answer(request.call(), timeout)
        })
    }

    /// Sends a GET request. Also returns the protocol and features of the server, even if the server refused the request.
    pub fn get_from_peer<A: DeserializeOwned>(
        &self,
        path: &str,
        timeout: Duration,
    ) -> (Peer, Result<A, CallError>) {
        let request = self.authorized(self.agent.get(format!("{}{path}", self.url)));
        let request = request.config().timeout_global(Some(timeout)).build();
        let called = request.call();
        (announced_by(&called), answer(called, timeout))
    }

    /// Sends a POST request. Also returns the protocol and features of the server, even if the server refused the request.
    pub fn post_to_peer<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        body: &Q,
        timeout: Duration,
    ) -> (Peer, Result<A, CallError>) {
        let body = serde_json::to_vec(body).expect("what we send has a JSON form");
        let called = self.call("POST", path, "application/json", &body, timeout);
        (announced_by(&called), answer(called, timeout))
    }

    /// Whether it can work: it says why not with an error of HTTP, which is an answer all the same.
    pub fn ready(&self, timeout: Duration) -> Result<Health, CallError> {
        let request = self.authorized(self.agent.get(format!("{}/readyz", self.url)));
        let request = request.config().timeout_global(Some(timeout)).build();
        let (head, body) = heard(request.call(), timeout)?;
        let health = serde_json::from_slice(&body);
        health.map_err(|_| head.refused(refusal(head.status, &body)))
    }

    /// The same, for whoever shows none.
    pub fn without_token(&self) -> Client {
        Client {
            authorization: None,
            ..self.clone()
        }
    }

    /// Whether the token is refused for good: one of the table was revoked or has expired, while a word that the settings name may be
    /// put right.
    pub fn is_shut_out(&self, error: &CallError) -> bool {
        let shown = self.authorization.as_deref().unwrap_or_default();
        let is_kept = TokenText::read(shown.trim_start_matches(BEARER)).is_some();
        is_kept && error.is_about_token()
    }

    /// Whether calls carry one.
    pub fn has_token(&self) -> bool {
        self.authorization.is_some()
    }

    pub fn post<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        body: &Q,
        timeout: Duration,
    ) -> Result<A, CallError> {
        let body = serde_json::to_vec(body).expect("what we send has a JSON form");
        self.send("POST", path, "application/json", &body, timeout)
    }

    /// As `post`; repeated with the same key it changes nothing and is answered as before.
    pub fn post_once<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        body: &Q,
        key: &str,
        timeout: Duration,
    ) -> Result<A, CallError> {
        let body = serde_json::to_vec(body).expect("what we send has a JSON form");
        self.within_limits(|| {
            let request = self.agent.post(format!("{}{path}", self.url));
            let request = request.header("content-type", "application/json");
            let request = self.authorized(request.header("idempotency-key", key));
            let request = request.config().timeout_global(Some(timeout)).build();
            answer(request.send(&body), timeout)
        })
    }

    pub fn delete<A: DeserializeOwned>(
        &self,
        path: &str,
        timeout: Duration,
    ) -> Result<A, CallError> {
        self.within_limits(|| {
            let request = self.authorized(self.agent.delete(format!("{}{path}", self.url)));
            let request = request.config().timeout_global(Some(timeout)).build();
            answer(request.call(), timeout)
        })
    }

    /// Bare text, however long, as it comes.
    pub fn text(&self, path: &str, timeout: Duration) -> Result<impl Read + use<>, CallError> {
        self.within_limits(|| {
            let request = self.authorized(self.agent.get(format!("{}{path}", self.url)));
            let config = request.config().timeout_recv_response(Some(timeout));
            opened(config.build().call(), timeout)
        })
    }

    /// Sends a POST request without a body and returns the response as `text` does.
    pub fn text_by_post(
        &self,
        path: &str,
        timeout: Duration,
    ) -> Result<impl Read + use<>, CallError> {
        let request = self.authorized(self.agent.post(format!("{}{path}", self.url)));
        let config = request.config().timeout_recv_response(Some(timeout));
        opened(config.build().send_empty(), timeout)
    }

    /// What happens from now on, or since the place that was last told.
    pub fn stream(&self, job_id: Option<i64>, after: Option<&str>) -> Result<Stream, CallError> {
        let query = job_id.map_or_else(String::new, |job_id| format!("?job={job_id}"));
        let request = self.agent.get(format!("{}/api/events{query}", self.url));
        let mut request = request.header("accept", "text/event-stream");
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let request = self.authorized(request).config();
        // The server gives a sign of life more often than this.
        let request = request.timeout_recv_response(Some(CONNECT_TIMEOUT));
        let body = opened(request.build().call(), CONNECT_TIMEOUT)?;
        Ok(Stream {
            lines: BufReader::new(Box::new(body)),
        })
    }

    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        let seen = self.epochs.as_ref().and_then(|epochs| epochs.seen());
        let request = match seen {
            Some(seen) => request.header(LINEAGE_HEADER, seen.to_string()),
            None => request,
        };
        let request = match &self.announcement {
            Some(announcement) => request.header(PROTOCOL_HEADER, announcement),
            None => request,
        };
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    pub fn put<A: DeserializeOwned>(
        &self,
        path: &str,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<A, CallError> {
        self.send("PUT", path, "application/octet-stream", bytes, timeout)
    }

    fn send<A: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
        timeout: Duration,
    ) -> Result<A, CallError> {
        self.within_limits(|| {
            let called = self.call(method, path, content_type, body, timeout);
            answer(called, timeout)
        })
    }

    fn call(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
        timeout: Duration,
    ) -> Result<Response<Body>, ureq::Error> {
        let url = format!("{}{path}", self.url);
        let request = match method {
            "PUT" => self.agent.put(url),
            _ => self.agent.post(url),
        };
        let request = self.authorized(request.header("content-type", content_type));
        let request = request.config().timeout_global(Some(timeout)).build();
        let called = request.send(body);
        self.learn_epoch(&called);
        called
    }

    /// Remembers the epoch of a server that did what it was asked for. A refusal says nothing about the state of its database.
    fn learn_epoch(&self, called: &Result<Response<Body>, ureq::Error>) {
        let (Some(epochs), Ok(response)) = (&self.epochs, called) else {
            return;
        };
        let header = response.headers().get(LINEAGE_HEADER);
        let epoch = header.and_then(|header| Epoch::parse(header.to_str().ok()?));
        if let Some(epoch) = epoch.filter(|_| response.status().is_success()) {
            epochs.learn(epoch);
        }
    }
}

/// Reads the protocol and features of the server. A server whose header is missing or unreadable speaks protocol 1.
fn announced_by(called: &Result<Response<Body>, ureq::Error>) -> Peer {
    let response = called.as_ref().ok();
    let header = response.and_then(|response| response.headers().get(PROTOCOL_HEADER));
    let peer = header.and_then(|header| Peer::parse(header.to_str().ok()?));
    peer.unwrap_or(Peer::UNANNOUNCED)
}

/// Server-sent events, as they come. A sign of life comes at least every 15 seconds, so whoever reads is never stuck for long
/// with a server that is there.
pub struct Stream {
    lines: BufReader<Box<dyn Read + Send>>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// `event` or `job`; empty for a sign of life.
    pub kind: String,
    /// Where to go on after it.
    pub place: Option<String>,
    pub data: String,
}

impl Iterator for Stream {
    type Item = Told;

    /// `None`: it broke off, or the server has ended.
    fn next(&mut self) -> Option<Told> {
        let mut told = Told {
            kind: String::new(),
            place: None,
            data: String::new(),
        };
        let mut line = String::new();
        loop {
            line.clear();
            match self.lines.read_line(&mut line) {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
            match line.trim_end_matches(['\r', '\n']).split_once(':') {
                None => return Some(told),
                Some(("event", kind)) => told.kind = kind.trim_start().to_string(),
                Some(("id", place)) => told.place = Some(place.trim_start().to_string()),
                Some(("data", data)) => told.data.push_str(data.trim_start()),
                Some(_) => {}
            }
        }
    }
}

/// Whether it leads to this very machine.
pub fn is_here(url: &str) -> bool {
    let uri = url.parse::<Uri>().unwrap_or_default();
    let host = uri.host().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback() || is_own(ip).unwrap_or(false),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

/// The way to one of our own addresses begins there. Nothing is sent.
fn is_own(ip: IpAddr) -> std::io::Result<bool> {
    const ANY_PORT: u16 = 9;
    let anywhere: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((anywhere, 0))?;
    socket.connect((ip, ANY_PORT))?;
    Ok(socket.local_addr()?.ip() == ip)
}

/// The body of an answer that is a good one.
fn opened(
    called: Result<Response<Body>, ureq::Error>,
    timeout: Duration,
) -> Result<impl Read + Send + use<>, CallError> {
    let response = called.map_err(|error| silent(&error, timeout))?;
    let head = AnswerHead::of(&response);
    let mut body = response.into_body().into_reader();
    if head.status.is_success() {
        return Ok(body);
    }
    let mut said = Vec::new();
    let read = (&mut body).take(ANSWER_BYTES_MAX).read_to_end(&mut said);
    read.map_err(|error| broken_off(&error, timeout))?;
    Err(head.refused(refusal(head.status, &said)))
}

/// Status and headers of a response.
#[derive(Clone, Copy)]
struct AnswerHead {
    status: StatusCode,
    retry_after: Option<Duration>,
}

impl AnswerHead {
    fn of(response: &Response<Body>) -> AnswerHead {
        let retry_after = response.headers().get("retry-after");
        // Our server always sends seconds. A date, which a proxy may send, is not worth a calendar here.
        let secs = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        AnswerHead {
            status: response.status(),
            retry_after: secs.map(Duration::from_secs),
        }
    }

    fn refused(self, error: ErrorDetail) -> CallError {
        CallError::Refused {
            status: self.status.as_u16(),
            error,
            retry_after: self.retry_after,
        }
    }
}

fn answer<A: DeserializeOwned>(
    called: Result<Response<Body>, ureq::Error>,
    timeout: Duration,
) -> Result<A, CallError> {
    let (head, body) = heard(called, timeout)?;
    let status = head.status;
    let refused = |error| head.refused(error);
    match status.is_success() {
        true => serde_json::from_slice(&body).map_err(|error| {
            let what = match serde_json::from_slice::<IgnoredAny>(&body) {
                Ok(_) => format!("with JSON that is not understood: {error}"),
                Err(_) => "with what is no JSON".to_string(),
            };
            refused(unknown(format!("it answered {status} {what}")))
        }),
        false => Err(refused(refusal(status, &body))),
    }
}

/// All of the answer, whatever it is.
fn heard(
    called: Result<Response<Body>, ureq::Error>,
    timeout: Duration,
) -> Result<(AnswerHead, Vec<u8>), CallError> {
    let mut response = called.map_err(|error| silent(&error, timeout))?;
    let reader = response.body_mut().as_reader();
    let mut body = Vec::new();
    let read = reader.take(ANSWER_BYTES_MAX).read_to_end(&mut body);
    read.map_err(|error| broken_off(&error, timeout))?;
    Ok((AnswerHead::of(&response), body))
}

fn silent(error: &ureq::Error, timeout: Duration) -> CallError {
    let told = error.to_string();
    CallError::Unreachable(match error {
        ureq::Error::Timeout(Timeout::Connect) => Silence::TooLong(CONNECT_TIMEOUT),
        ureq::Error::Timeout(_) => Silence::TooLong(timeout),
        // What came is no record of TLS.
        _ if told.contains("InvalidContentType") => Silence::NoTls,
        _ => match of_certificate(error) {
            Some(fault) => Silence::NotBelieved(not_believed(fault)),
            None => Silence::Other(told),
        },
    })
}

/// What was wrong with a certificate, if it was that.
fn of_certificate(error: &ureq::Error) -> Option<&CertificateError> {
    let error = match error {
        ureq::Error::Rustls(error) => error,
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref::<rustls::Error>()?,
        _ => return None,
    };
    match error {
        rustls::Error::InvalidCertificate(fault) => Some(fault),
        _ => None,
    }
}

fn not_believed(fault: &CertificateError) -> String {
    let how = "name a file with it, or with the one that signed it, by ca_file, --ca-file or STEPWARD_CA_FILE";
    match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired: renew it there, and look whether the clocks are right"
                .to_string()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate does not hold yet: look whether the clocks are right".to_string()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "its certificate is for other names than this address: reach it by a name of the certificate, or {how}"
            )
        }
        _ => format!("its certificate is signed by nobody who is known here: {how}"),
    }
}

fn broken_off(error: &std::io::Error, timeout: Duration) -> CallError {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<ureq::Error>());
    CallError::Unreachable(match inner {
        Some(ureq::Error::Timeout(_)) => Silence::TooLong(timeout),
        _ => Silence::Other(format!("the answer broke off: {error}")),
    })
}

/// What the server said, or at least its status: something else may sit at this address.
fn refusal(status: StatusCode, body: &[u8]) -> ErrorDetail {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => body.error,
        Err(_) => unknown(format!("it answered {status}")),
    }
}

fn unknown(message: String) -> ErrorDetail {
    ErrorDetail {
        code: UNKNOWN.to_string(),
        message,
        details: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known_by_its_addresses_and_not_by_how_a_name_begins() {
        for here in [
            "http://127.0.0.1:7717",
            "http://127.8.9.10",
            "https://[::1]:7717/below",
            "http://LocalHost:7717",
        ] {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in [
            "http://192.0.2.1:7717",
            "http://127.example.com:7717",
            "http://localhost.example.com",
            "http://example.com/127.0.0.1",
            "",
        ] {
            assert!(!is_here(elsewhere), "{elsewhere}");
        }
        let way_out = UdpSocket::bind("0.0.0.0:0").unwrap();
        // A machine without any network has no other address to try.
        if way_out.connect("192.0.2.1:9").is_ok() {
            let own = way_out.local_addr().unwrap().ip();
            assert!(is_here(&format!("http://{own}:7717")), "{own}");
        }
    }
}
