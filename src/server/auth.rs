//! Who may come in. Without a token the server listens on loopback alone; with one, every request but those about health, those to
//! webhooks, which have secrets of their own, and the page that asks for the token must show it: programs with each request,
//! browsers once, for a cookie.
//!
//! A browser also carries requests that no person at it meant to make. What other sites make it send is told by `Host`, `Origin` and
//! `Sec-Fetch-Site`, and refused here; what a page of ours sends shows a proof that only a page of ours can have.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::hmac;
use sha2::{Digest, Sha256};

use super::error::ApiError;
use super::exchange::{Headers, Method};
use crate::clock::{monotonic_ms, wall_time};

/// What a browser shows instead of the token.
const COOKIE: &str = "stepward_session";
/// How long a browser that is not used stays let in.
const SESSION_MS: i64 = 12 * 3_600_000;
/// A session that is used gets a new cookie when the one it has is this old.
const RENEWED_MS: i64 = 3_600_000;
/// However much it is used, somebody shows the token again.
const SESSION_MS_MAX: i64 = 7 * 24 * 3_600_000;

/// Wrong tokens that may be tried at the login page within a minute, by all together: a person mistypes, a program guesses.
const GUESSES_MAX: u32 = 20;
const GUESSES_WITHIN_MS: i64 = 60_000;

/// The token of this installation, as a hash: the text itself is not kept.
pub struct Gate {
    token_hash: Option<[u8; 32]>,
    /// Names that this server goes by; a browser that was led here under another one serves somebody else.
    hosts: Vec<String>,
    is_https: bool,
    /// What only this installation can sign with.
    key: hmac::Key,
    guesses: Mutex<Guesses>,
}

/// What a browser that was let in shows.
struct Session {
    /// The same however often its cookie is renewed.
    id: String,
    begun_ms: i64,
    issued_ms: i64,
}

impl Session {
    fn words(&self) -> String {
        let Session {
            id,
            begun_ms,
            issued_ms,
        } = self;
        format!("{id}.{begun_ms}.{issued_ms}")
    }

    fn read(words: &str) -> Option<Session> {
        let mut words = words.split('.');
        Some(Session {
            id: words.next()?.to_string(),
            begun_ms: words.next()?.parse().ok()?,
            issued_ms: words.next()?.parse().ok()?,
        })
    }
}

#[derive(Default)]
struct Guesses {
    since_ms: i64,
    count: u32,
}

impl Gate {
    pub fn new(
        token: Option<&str>,
        listen: SocketAddr,
        public_url: Option<&str>,
        key: &str,
    ) -> Gate {
        let public = public_url.unwrap_or_default();
        let authority = public.split("://").nth(1).unwrap_or_default();
        let authority = authority.split('/').next().unwrap_or_default();
        let names = [authority, &listen.to_string()].map(|name| host_name(name).to_string());
        Gate {
            token_hash: token.map(hash),
            hosts: names.into_iter().filter(|name| !name.is_empty()).collect(),
            is_https: public.starts_with("https://"),
            key: hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()),
            guesses: Mutex::default(),
        }
    }

    pub fn asks_for_token(&self) -> bool {
        self.token_hash.is_some()
    }

    /// What is to be kept from browsers that were led here by somebody else.
    pub fn check_origin(&self, method: Method, headers: &Headers) -> Result<(), ApiError> {
        let host = headers.host.as_deref().unwrap_or_default();
        // Every browser says which name it followed. Where a token is asked for, there is none for a name that is not ours: a
        // cookie belongs to a name.
        let is_led = headers.host.is_some() && !self.is_ours(host_name(host));
        if is_led && !self.asks_for_token() {
            let message = format!(
                "this server is not called {host:?}; reach it as localhost, or set public_url to its address"
            );
            return Err(ApiError::new(421, "misdirected", message));
        }
        // Whoever follows a link from elsewhere comes by itself; what another page fetches here it could not read, but it would
        // cost us.
        let is_visit = headers.fetch_mode.as_deref() == Some("navigate");
        if method.is_safe() && (is_visit || headers.fetch_site.is_none()) {
            return Ok(());
        }
        let is_own = match (&headers.fetch_site, &headers.origin) {
            (Some(site), _) => matches!(site.as_str(), "same-origin" | "none"),
            (None, Some(origin)) => origin.split("://").nth(1) == Some(host),
            // No browser.
            (None, None) => true,
        };
        if is_own {
            return Ok(());
        }
        let message = "this request was made by a page of another site";
        Err(ApiError::new(403, "cross_site", message))
    }

    fn is_ours(&self, name: &str) -> bool {
        is_local(name) || (self.hosts.iter()).any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Whether the browser takes the connection for one that nobody else can read or change.
    pub fn is_secure(&self, headers: &Headers) -> bool {
        let host = headers.host.as_deref().unwrap_or_default();
        self.is_https || is_local(host_name(host))
    }

    /// A cookie lets look everywhere, and act where a page of ours proves itself (`takes_cookie`).
    pub fn check(&self, headers: &Headers, takes_cookie: bool) -> Result<(), ApiError> {
        let Some(expected) = &self.token_hash else {
            return Ok(());
        };
        let header = headers.authorization.as_deref().unwrap_or_default();
        let (scheme, token) = header.split_once(' ').unwrap_or_default();
        let token = match scheme.eq_ignore_ascii_case("bearer") {
            true => token.trim(),
            false => "",
        };
        // Hashes of a secret that cannot be guessed tell nothing by the time that comparing them takes.
        if hash(token) == *expected || (takes_cookie && self.session(headers).is_some()) {
            return Ok(());
        }
        let message = "the token is missing or wrong, send it as: Authorization: Bearer TOKEN";
        Err(ApiError::new(401, "unauthorized", message))
    }

    /// The cookie for whoever knows the token. Whoever guesses is slowed down; whoever knows it never is.
    pub fn log_in(&self, token: &str) -> Result<String, ApiError> {
        if self.token_hash != Some(hash(token.trim())) {
            self.count_guess()?;
            let message = "this is not the token of this server";
            return Err(ApiError::new(401, "unauthorized", message));
        }
        let now_ms = wall_time().0;
        Ok(self.cookie_of(&Session {
            id: random_text()?,
            begun_ms: now_ms,
            issued_ms: now_ms,
        }))
    }

    /// The cookie that ends a session.
    pub fn log_out(&self) -> String {
        format!("{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax")
    }

    /// A cookie in the place of one that has become old. The session, and what it proved its pages with, stay the same.
    pub fn renewed(&self, headers: &Headers) -> Option<String> {
        let now_ms = wall_time().0;
        let session = self.session(headers)?;
        (now_ms - session.issued_ms > RENEWED_MS).then(|| {
            self.cookie_of(&Session {
                issued_ms: now_ms,
                ..session
            })
        })
    }

    fn cookie_of(&self, session: &Session) -> String {
        let secure = if self.is_https { "; Secure" } else { "" };
        let (words, age_secs) = (session.words(), SESSION_MS / 1_000);
        let proof = self.signed_for_token(&words);
        format!(
            "{COOKIE}={words}.{proof}; Path=/; Max-Age={age_secs}; HttpOnly; SameSite=Lax{secure}"
        )
    }

    /// The session that the browser shows, if it is one of ours and not over. It ends with the token that began it.
    fn session(&self, headers: &Headers) -> Option<Session> {
        let (words, proof) = cookie(headers, COOKIE)?.rsplit_once('.')?;
        // Before anything else is made of what somebody sent.
        if !same(proof, &self.signed_for_token(words)) {
            return None;
        }
        let session = Session::read(words)?;
        let now_ms = wall_time().0;
        let is_over = now_ms.saturating_sub(session.issued_ms) >= SESSION_MS
            || now_ms.saturating_sub(session.begun_ms) >= SESSION_MS_MAX;
        (!is_over).then_some(session)
    }

    fn signed_for_token(&self, words: &str) -> String {
        let token = self.token_hash.unwrap_or_default();
        self.signed(&format!("session {words} {token:02x?}"))
    }

    /// What only a page that was made for this browser has.
    pub fn proof_of_page(&self, headers: &Headers) -> String {
        let session = match self.asks_for_token() {
            true => self.session(headers).map(|session| session.id),
            false => None,
        };
        self.signed(&format!("form {}", session.unwrap_or_default()))
    }

    fn signed(&self, text: &str) -> String {
        BASE64.encode(hmac::sign(&self.key, text.as_bytes()))
    }

    pub fn check_proof(&self, headers: &Headers, proof: &str) -> Result<(), ApiError> {
        if same(proof, &self.proof_of_page(headers)) {
            return Ok(());
        }
        let message =
            "the page that sent this is too old: go back, load it again, and repeat what you did";
        Err(ApiError::new(403, "stale_page", message))
    }

    fn count_guess(&self) -> Result<(), ApiError> {
        let mut guesses = self.guesses();
        let now_ms = monotonic_ms();
        if now_ms - guesses.since_ms > GUESSES_WITHIN_MS {
            *guesses = Guesses {
                since_ms: now_ms,
                count: 0,
            };
        }
        guesses.count += 1;
        if guesses.count > GUESSES_MAX {
            let message = "too many wrong tokens were tried, wait a minute";
            return Err(ApiError::new(429, "too_many_guesses", message));
        }
        Ok(())
    }

    fn guesses(&self) -> std::sync::MutexGuard<'_, Guesses> {
        self.guesses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a browser was told to remember.
pub fn cookie<'h>(headers: &'h Headers, name: &str) -> Option<&'h str> {
    let cookies = headers.cookie.as_deref()?.split(';');
    let mut pairs = cookies.filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

/// A name of this machine, to itself.
fn is_local(name: &str) -> bool {
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<IpAddr>();
    address.is_ok_and(|address| address.is_loopback())
        || name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
}

/// A text that nobody can guess.
pub fn random_text() -> Result<String, ApiError> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|error| {
        log::error!("there is no randomness to be had: {error}");
        let message = "the server met a fault of its own, its log says which";
        ApiError::new(500, "internal", message)
    })?;
    Ok(BASE64.encode(bytes))
}

/// Takes as long wherever they differ.
fn same(a: &str, b: &str) -> bool {
    hash(a) == hash(b)
}

/// Without the port.
fn host_name(authority: &str) -> &str {
    match (authority.rfind(':'), authority.rfind(']')) {
        (Some(colon), Some(bracket)) if colon < bracket => authority,
        (Some(colon), _) => &authority[..colon],
        (None, _) => authority,
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
