//! A request and its reply, as handlers see them: plain values, no HTTP library.

use std::net::IpAddr;

use bytes::Bytes;
use regex_lite::Regex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::auth::Caller;
use super::download::Download;
use super::error::ApiError;
use super::streams::Subscription;
use super::waiting::WaitingPoll;
use crate::domain::audit::Actor;
use crate::domain::peer::Peer;
use crate::wire::{ErrorBody, ErrorDetail};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    /// As `Get`, of which the head alone is sent.
    Head,
    Post,
    Put,
    Delete,
    /// Known to nobody here.
    Other,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Other => "another method",
        }
    }

    /// It only looks.
    pub fn is_safe(self) -> bool {
        matches!(self, Method::Get | Method::Head)
    }
}

#[derive(Debug)]
pub struct Request {
    pub method: Method,
    /// Decoded, in order.
    pub query: Vec<(String, String)>,
    pub headers: Headers,
    pub body: Bytes,
    /// What stands in the route's braces, in order.
    pub params: Vec<String>,
    pub caller: Caller,
    /// How a worker announced itself. On all other routes nobody does.
    pub announced: Peer,
}

/// The headers that somebody looks at, and who sends them.
#[derive(Debug)]
pub struct Headers {
    /// Where the connection comes from; what a proxy says of others is not looked at.
    pub peer: IpAddr,
    pub authorization: Option<String>,
    pub content_type: Option<String>,
    pub idempotency_key: Option<String>,
    pub accept: Option<String>,
    pub accept_encoding: Option<String>,
    pub last_event_id: Option<String>,
    pub host: Option<String>,
    /// Who sent a browser here: `same-origin`, `cross-site`, …
    pub fetch_site: Option<String>,
    /// What for: `navigate`, `cors`, …
    pub fetch_mode: Option<String>,
    pub origin: Option<String>,
    pub referer: Option<String>,
    pub cookie: Option<String>,
    /// `Stepward-Lineage`: the last epoch that a worker has seen, see `domain/lineage.rs`.
    pub lineage: Option<String>,
    /// `Stepward-Protocol`, see `domain/peer.rs`.
    pub protocol: Option<String>,
    /// All of them, with names in lower case; only for routes that are open to whoever signs.
    pub all: Vec<(String, String)>,
}

impl Request {
    /// What events call whoever asks.
    pub fn who(&self) -> &str {
        &self.caller.name
    }

    /// The caller as the audit log names them.
    pub fn actor(&self) -> Actor {
        self.caller.actor(self.headers.peer)
    }

    pub fn param(&self, index: usize) -> &str {
        &self.params[index]
    }

    /// An id in the path. What is no id names nothing.
    pub fn id(&self, index: usize) -> Result<i64, ApiError> {
        let text = self.param(index);
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let id = is_plain.then(|| text.parse().ok()).flatten();
        id.ok_or_else(|| ApiError::not_found(format!("{text:?} is not the id of anything")))
    }

    /// The body as JSON. An empty body stands for an empty object.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let body: &[u8] = match self.body.is_empty() {
            true => b"{}",
            false => &self.body,
        };
        if let Some(content_type) = &self.headers.content_type
            && !self.body.is_empty()
        {
            let media = content_type.split(';').next().unwrap_or_default().trim();
            if !media.eq_ignore_ascii_case("application/json") {
                return Err(ApiError::new(
                    415,
                    "unsupported_media_type",
                    format!("the body is {media:?}, send application/json"),
                ));
            }
        }
        // A list would be read as the fields in their order, which nobody means.
        if body
            .trim_ascii_start()
            .first()
            .is_some_and(|&byte| byte == b'[')
        {
            return Err(ApiError::invalid("the body is a list, expected an object"));
        }
        serde_json::from_slice(body).map_err(|error| {
            let message = format!(
                "the body is not understood: {}",
                in_plain_words(&error, body)
            );
            match error.is_data() {
                true => ApiError::invalid(message),
                false => ApiError::new(400, "invalid_json", message),
            }
        })
    }

    /// For requests that say it all with their address: any word more is one that nobody would look at.
    pub fn says_no_more(&self) -> Result<(), ApiError> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        self.check_query(&[])?;
        self.json::<Nothing>().map(|_| ())
    }

    /// Refuses what nobody would look at: a mistyped name must not be passed over.
    pub fn check_query(&self, known: &[&str]) -> Result<(), ApiError> {
        let unknown = |(key, _): &&(String, String)| !known.contains(&key.as_str());
        match self.query.iter().find(unknown) {
            None => Ok(()),
            Some((key, _)) if known.is_empty() => Err(ApiError::invalid(format!(
                "{key:?} is not known here, nothing can be asked for after a ?"
            ))),
            Some((key, _)) => Err(ApiError::invalid(format!(
                "{key:?} is not known here, known are: {}",
                known.join(", ")
            ))),
        }
    }

    pub fn query(&self, key: &str) -> Option<&str> {
        let mut found = self.query.iter().filter(|(known, _)| known == key);
        found.next_back().map(|(_, value)| value.as_str())
    }

    pub fn query_number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, ApiError> {
        let Some(text) = self.query(key) else {
            return Ok(None);
        };
        let number = text.parse().ok();
        let fault = || ApiError::invalid(format!("{key} is {text:?}, expected a number"));
        number.map(Some).ok_or_else(fault)
    }

    /// How many a page may hold.
    pub fn limit(&self, default: u32, max: u32) -> Result<u32, ApiError> {
        match self.query_number("limit")? {
            None => Ok(default),
            Some(limit) if (1..=max).contains(&limit) => Ok(limit),
            Some(limit) => Err(ApiError::invalid(format!(
                "limit is {limit}, expected 1 to {max}"
            ))),
        }
    }
}

/// What a handler has to say.
pub enum Reply {
    Now(Response),
    /// There is nothing to do for this worker now: it is answered when there is.
    Wait(WaitingPoll),
    /// Everything that happens from now on.
    Stream(Subscription),
    /// Too long for one piece.
    Download(Download),
}

#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
}

impl Response {
    pub fn json<T: Serialize>(status: u16, value: &T) -> Response {
        let body = serde_json::to_vec(value).expect("what we show has a JSON form");
        Response {
            status,
            content_type: "application/json",
            headers: Vec::new(),
            body: body.into(),
        }
    }

    pub fn text(body: Vec<u8>) -> Response {
        Response {
            status: 200,
            content_type: "text/plain; charset=utf-8",
            headers: Vec::new(),
            body: body.into(),
        }
    }

    pub fn html(status: u16, body: String) -> Response {
        Response {
            status,
            content_type: "text/html; charset=utf-8",
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// Go and look there.
    pub fn see_other(address: impl Into<String>) -> Response {
        Response::html(303, String::new()).header("location", address)
    }

    pub fn error(status: u16, code: &str, message: &str, details: Vec<String>) -> Response {
        let error = ErrorDetail {
            code: code.to_string(),
            message: message.to_string(),
            details,
        };
        Response::json(status, &ErrorBody { error })
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.headers.push((name, value.into()));
        self
    }
}

impl From<Response> for Reply {
    fn from(response: Response) -> Reply {
        Reply::Now(response)
    }
}

/// Serde speaks of Rust's types, and of a value without the field that has it.
fn in_plain_words(error: &serde_json::Error, body: &[u8]) -> String {
    const WORDS: [(&str, &str); 6] = [
        (r"invalid (type|value): ", "found "),
        (
            r"expected i32\b",
            "expected a whole number, -2147483648 to 2147483647",
        ),
        (
            r"expected u32\b",
            "expected a whole number, 0 to 4294967295",
        ),
        (
            r"expected [iu](8|16|32|64|size)\b",
            "expected a whole number",
        ),
        (
            r"expected (struct \w+|a map)( with \d+ elements?)?",
            "expected an object",
        ),
        (r"expected a sequence", "expected a list"),
    ];
    let replaced = |said: String, (serde, ours): (&str, &str)| {
        let serde = Regex::new(serde).expect("it is tried by a test");
        serde.replace_all(&said, ours).into_owned()
    };
    let said = error.to_string();
    let names_field = !said.starts_with("invalid ");
    let said = WORDS.into_iter().fold(said, replaced);
    match field_before(error, body) {
        Some(field) if !names_field => format!("field {field}: {said}"),
        _ => said,
    }
}

/// The last field that begins before the place of a fault.
fn field_before(error: &serde_json::Error, body: &[u8]) -> Option<String> {
    let lines = body.split_inclusive(|byte| *byte == b'\n');
    let above: usize = lines
        .take(error.line().checked_sub(1)?)
        .map(<[u8]>::len)
        .sum();
    let before = body.get(..above + error.column())?;
    let before = String::from_utf8_lossy(before);
    let field = Regex::new(r#""([^"\\]+)"\s*:"#).expect("it is tried by a test");
    let last = field.captures_iter(&before).last()?;
    Some(last[1].to_string())
}
