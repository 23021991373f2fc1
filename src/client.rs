//! Our own API from the other side: how workers and the command line reach a server.

use std::io::Read;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

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
    Unreachable(String),
    #[error("{status}: {}", .error.message)]
    Refused { status: u16, error: ErrorDetail },
}

/// One connection at a time. Whoever must not wait for another's call has a client of its own.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    url: String,
    authorization: Option<String>,
}

impl Client {
    pub fn new(url: &str, token: Option<&str>) -> Client {
        let url = url.trim_end_matches('/').to_string();
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .max_idle_age(IDLE_MAX)
            .max_redirects(0)
            .user_agent(concat!("stepward/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&url) {
            // What the environment says of proxies is not meant for this machine itself.
            config = config.proxy(None);
        }
        Client {
            agent: config.build().new_agent(),
            url,
            authorization: token.map(|token| format!("Bearer {token}")),
        }
    }

    pub fn get<A: DeserializeOwned>(&self, path: &str, timeout: Duration) -> Result<A, CallError> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let request = request.config().timeout_global(Some(timeout)).build();
        answer(request.call())
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
        let url = format!("{}{path}", self.url);
        let request = match method {
            "PUT" => self.agent.put(url),
            _ => self.agent.post(url),
        };
        let mut request = request.header("content-type", content_type);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let request = request.config().timeout_global(Some(timeout)).build();
        answer(request.send(body))
    }
}

fn is_loopback(url: &str) -> bool {
    let host = url.split("://").nth(1).unwrap_or_default();
    ["127.", "localhost", "[::1]"]
        .iter()
        .any(|name| host.starts_with(name))
}

fn answer<A: DeserializeOwned>(
    called: Result<Response<Body>, ureq::Error>,
) -> Result<A, CallError> {
    let unreachable = |what: String| CallError::Unreachable(what);
    let mut response = called.map_err(|error| unreachable(error.to_string()))?;
    let status = response.status();
    let reader = response.body_mut().as_reader();
    let mut body = Vec::new();
    let read = reader.take(ANSWER_BYTES_MAX).read_to_end(&mut body);
    read.map_err(|error| unreachable(format!("the answer broke off: {error}")))?;
    if status.is_success() {
        return serde_json::from_slice(&body)
            .map_err(|error| unreachable(format!("the answer is not understood: {error}")));
    }
    Err(CallError::Refused {
        status: status.as_u16(),
        error: refusal(status, &body),
    })
}

/// What the server said, or at least its status: something else may sit at this address.
fn refusal(status: StatusCode, body: &[u8]) -> ErrorDetail {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => body.error,
        Err(_) => ErrorDetail {
            code: "unknown".to_string(),
            message: format!("the server answered {status}"),
            details: Vec::new(),
        },
    }
}
