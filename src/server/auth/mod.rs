//! Who may come in, and as what.
//!
//! Every request but those about health, those to webhooks, which have secrets of their own, and the page that asks for a token must
//! show one: programs with each request, browsers once, for a cookie. On loopback, settings and data folders of version 0.1 may say
//! that nobody is asked (`ServerConfig::asks_for_token`). A token is looked up (`keyring.rs`), the one who shows it becomes a
//! `Caller`, and the caller's role is compared with that of the route. Wrong tokens are counted (`guesses.rs`).
//!
//! A browser also carries requests that no person at it meant to make: `origin.rs` refuses them, and what a page of ours sends shows a
//! proof that only a page of ours can have.

mod caller;
mod guesses;
mod keyring;
mod origin;
mod refusals;
mod session;
mod session_key;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::hmac;

use super::error::ApiError;
use super::exchange::{Headers, Method};
use crate::clock::{monotonic_ms, wall_time};
use crate::domain::token::{OWN_WORKER, Role, Token, TokenText};
use crate::domain::{Timestamp, TokenId};
use crate::engine::{Engine, EngineError, Refusal};
use crate::secrets::{hash_hex, random_secret};
use guesses::Guesses;
use keyring::Keyring;
use origin::{OwnNames, host_name, is_local};
use refusals::RefusedCallers;
use session::{RENEWED_MS, SESSION_MS, Session};

pub use caller::{Caller, From as CallerSource};
pub use keyring::same;
pub use session_key::load_or_create as load_or_create_session_key;

/// What a browser shows instead of a token. Over TLS its name keeps others from setting one in our place.
const COOKIE: &str = "stepward_session";
const SECURE_COOKIE: &str = "__Host-stepward_session";

/// Sessions of workers whose owner is remembered.
const OWNERS_MAX: usize = 16_384;

/// What the gate is made of.
pub struct GateOptions<'a> {
    /// The token of the settings, which opens everything.
    pub token: Option<&'a str>,
    /// Whether anybody is asked at all.
    pub asks: bool,
    pub listen: SocketAddr,
    pub public_url: Option<&'a str>,
    /// Whether this server itself speaks TLS.
    pub speaks_tls: bool,
    /// The key that signs cookies and forms.
    pub key: &'a str,
}

pub struct Gate {
    asks: bool,
    /// As a hash: the text itself is not kept.
    settings_hash: Option<String>,
    keyring: Keyring,
    /// For the worker in this process, in this life of the server.
    own_worker: (Token, String),
    names: OwnNames,
    is_https: bool,
    key: hmac::Key,
    guesses: Guesses,
    refused_callers: RefusedCallers,
    logged_out: RwLock<HashSet<String>>,
    owners: Mutex<HashMap<String, TokenId>>,
}

impl Gate {
    pub fn new(options: &GateOptions) -> Result<Gate, getrandom::Error> {
        let public = options.public_url.unwrap_or_default();
        Ok(Gate {
            asks: options.asks,
            settings_hash: options.token.map(hash_hex),
            keyring: Keyring::default(),
            own_worker: own_worker()?,
            names: OwnNames::new(options.listen, public, options.asks),
            is_https: options.speaks_tls || public.starts_with("https://"),
            key: hmac::Key::new(hmac::HMAC_SHA256, options.key.as_bytes()),
            guesses: Guesses::default(),
            refused_callers: RefusedCallers::default(),
            logged_out: RwLock::default(),
            owners: Mutex::default(),
        })
    }

    /// Reads what the database says of tokens and sessions: at the start, and whenever that has changed.
    pub fn load(&self, engine: &Engine) -> Result<(), EngineError> {
        self.keyring.load(engine, Some(&self.own_worker.0))?;
        let logged_out = engine.logouts(wall_time())?;
        let mut kept = self.logged_out.write();
        let kept = kept.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut());
        kept.extend(logged_out);
        Ok(())
    }

    pub fn asks_for_token(&self) -> bool {
        self.asks
    }

    /// Whether somebody can come in as an admin with no token of the table.
    pub fn has_another_way_in(&self) -> bool {
        !self.asks || self.settings_hash.is_some()
    }

    /// What the worker in this very process shows.
    pub fn own_worker_token(&self) -> &str {
        &self.own_worker.1
    }

    /// Refuses what another site makes a browser send. `is_linkable`: a link on another site may lead to this route.
    pub fn check_origin(
        &self,
        method: Method,
        headers: &Headers,
        is_linkable: bool,
    ) -> Result<(), ApiError> {
        self.names.check(method, headers, is_linkable)
    }

    /// Whether the browser takes the connection for one that nobody else can read or change.
    pub fn is_secure(&self, headers: &Headers) -> bool {
        let host = headers.host.as_deref().unwrap_or_default();
        self.is_https || is_local(host_name(host))
    }

    /// Who asks. A cookie lets look everywhere, and act where a page of ours proves itself (`takes_cookie`).
    pub fn identify(&self, headers: &Headers, takes_cookie: bool) -> Result<Caller, ApiError> {
        if !self.asks {
            return Ok(Caller::local());
        }
        let shown = bearer(headers);
        let found = match shown {
            // What is shown at the wrong place is no guess, and told as what it is.
            Some(text) => (self.known(text)).or_else(|| self.keyring.enrolment(text, wall_time())),
            None if takes_cookie => self.session(headers).map(|(_, caller)| caller),
            None => None,
        };
        if let Some(caller) = found {
            return Ok(caller);
        }
        if shown.is_some() {
            self.guesses.count(headers.peer, monotonic_ms())?;
        }
        Err(unauthorized())
    }

    fn known(&self, text: &str) -> Option<Caller> {
        let is_of_settings =
            (self.settings_hash.as_deref()).is_some_and(|expected| same(&hash_hex(text), expected));
        match is_of_settings {
            true => Some(Caller::of_settings()),
            false => self.keyring.known(text, wall_time()),
        }
    }

    /// Which enrolment is shown, also where nobody else is asked who they are.
    pub fn enrolment(&self, headers: &Headers) -> Result<Caller, ApiError> {
        let shown = bearer(headers);
        let found = shown.and_then(|text| self.keyring.enrolment(text, wall_time()));
        if found.is_none() && shown.is_some_and(|text| self.known(text).is_none()) {
            self.guesses.count(headers.peer, monotonic_ms())?;
        }
        found.ok_or_else(|| EngineError::EnrolmentRefused.into())
    }

    /// What whoever listens for long came in with.
    pub fn pass(self: &Arc<Gate>, caller: &Caller, headers: &Headers) -> Pass {
        let by_cookie = bearer(headers).is_none();
        let session = by_cookie.then(|| self.session(headers)).flatten();
        Pass {
            gate: self.clone(),
            token_id: caller.token_id(),
            session: session.map(|(session, _)| session.id),
        }
    }

    /// Whether it is to be written down now that this token was used.
    pub fn is_use_to_be_noted(&self, token_id: TokenId) -> bool {
        token_id != OWN_WORKER && self.keyring.is_to_be_noted(token_id, wall_time())
    }

    /// The same of its being shown for what is another's.
    pub fn is_trespass_to_be_told(&self, token_id: TokenId) -> bool {
        self.keyring.is_to_be_told(token_id, wall_time())
    }

    /// A request showed a wrong secret or signature of a webhook, which counts like a wrong token. An error says that there were too
    /// many from this address.
    pub fn count_wrong_webhook_secret(&self, peer: IpAddr) -> Result<(), ApiError> {
        self.guesses.count(peer, monotonic_ms())
    }

    /// Returns the number of requests that were refused because too many wrong tokens came from their address.
    pub fn refused_guesses(&self) -> u64 {
        self.guesses.refused()
    }

    /// Notes, for the audit log, that the role of the caller did not allow a request.
    pub fn note_refused_role(&self, caller: &Caller, peer: IpAddr, request: String) {
        self.refused_callers.add(caller, peer, request);
    }

    /// Refused requests that the audit log is to be told about now. `is_last`: the server stops, so all of them.
    pub fn take_refusals(&self, is_last: bool) -> Vec<Refusal> {
        let now_ms = monotonic_ms();
        let mut refusals = refusals::of_wrong_tokens(self.guesses.take_untold(now_ms, is_last));
        refusals.extend(self.refused_callers.take_untold(now_ms, is_last));
        refusals
    }

    /// Addresses that showed too many wrong tokens, each told once.
    pub fn take_alarms(&self) -> Vec<IpAddr> {
        self.guesses.take_alarms()
    }

    /// Whether the session is this token's. One that is not known is nobody's, and the engine says so.
    pub fn owns_session(
        &self,
        engine: &Engine,
        token_id: TokenId,
        session_key: &str,
    ) -> Result<bool, EngineError> {
        let owners = || self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = owners().get(session_key) {
            return Ok(*owner == token_id);
        }
        let owner = match engine.owner_of_session(session_key)? {
            None => return Ok(true),
            Some(owner) => owner,
        };
        if let Some(owner) = owner {
            let mut owners = owners();
            if owners.len() >= OWNERS_MAX {
                // Those in use come back at the price of one read each.
                owners.clear();
            }
            owners.insert(session_key.to_string(), owner);
        }
        Ok(owner == Some(token_id))
    }

    /// The cookie for whoever has a token. Whoever guesses is slowed down.
    pub fn log_in(&self, text: &str, peer: IpAddr) -> Result<(String, Caller), ApiError> {
        let Some(caller) = self.known(text.trim()) else {
            self.guesses.count(peer, monotonic_ms())?;
            let message = match TokenText::is_broken(text.trim()) {
                true => "this token is cut off or mistyped",
                false => "this is no token of this server, or one that lets nobody in any more",
            };
            return Err(ApiError::new(401, "unauthorized", message));
        };
        if !caller.may(Role::Viewer) {
            self.note_refused_role(&caller, peer, "POST /login".to_string());
            let message = format!("a token of role {} opens no pages", caller.role());
            return Err(ApiError::new(403, "forbidden", message));
        }
        let now_ms = wall_time().0;
        let session = Session {
            id: random_text()?,
            token_id: caller.token_id(),
            begun_ms: now_ms,
            issued_ms: now_ms,
        };
        let cookie = self.cookie_of(&session);
        cookie
            .map(|cookie| (cookie, caller))
            .ok_or_else(unauthorized)
    }

    /// The cookie that ends a session; and which one it ends, with when that would have been over.
    pub fn log_out(&self, headers: &Headers) -> (String, Option<(String, Timestamp, Caller)>) {
        let ended = self.session(headers).map(|(session, caller)| {
            let mut logged_out = self.logged_out.write();
            let logged_out = logged_out
                .as_mut()
                .unwrap_or_else(|poisoned| poisoned.get_mut());
            logged_out.insert(session.id.clone());
            let until = Timestamp(session.ends_ms());
            (session.id, until, caller)
        });
        let (name, secure) = self.cookie_name();
        let cookie = format!("{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax{secure}");
        (cookie, ended)
    }

    fn cookie_name(&self) -> (&'static str, &'static str) {
        match self.is_https {
            true => (SECURE_COOKIE, "; Secure"),
            false => (COOKIE, ""),
        }
    }

    /// A cookie in the place of one that has become old. The session, and what it proved its pages with, stay the same.
    pub fn renewed(&self, headers: &Headers) -> Option<String> {
        let now_ms = wall_time().0;
        let (session, _) = self.session(headers)?;
        if now_ms - session.issued_ms <= RENEWED_MS {
            return None;
        }
        self.cookie_of(&Session {
            issued_ms: now_ms,
            ..session
        })
    }

    /// `None`: its token lets nobody in any more.
    fn cookie_of(&self, session: &Session) -> Option<String> {
        let (name, secure) = self.cookie_name();
        let (words, age_secs) = (session.words(), SESSION_MS / 1_000);
        let (_, hash) = self.token_of(session)?;
        let proof = self.signed_for_token(&words, &hash);
        Some(format!(
            "{name}={words}.{proof}; Path=/; Max-Age={age_secs}; HttpOnly; SameSite=Lax{secure}"
        ))
    }

    /// The session that the browser shows, if it is one of ours and not over. It ends with the token that began it.
    fn session(&self, headers: &Headers) -> Option<(Session, Caller)> {
        let (name, _) = self.cookie_name();
        let (words, proof) = cookie(headers, name)?.rsplit_once('.')?;
        let session = Session::read(words)?;
        let (caller, hash) = self.token_of(&session)?;
        if !same(proof, &self.signed_for_token(words, &hash)) || session.is_over(wall_time().0) {
            return None;
        }
        let logged_out = self.logged_out.read();
        let logged_out = logged_out.unwrap_or_else(PoisonError::into_inner);
        (!logged_out.contains(&session.id)).then_some((session, caller))
    }

    /// Whose session it is, and the hash of the token that began it.
    fn token_of(&self, session: &Session) -> Option<(Caller, String)> {
        match session.token_id {
            None => Some((Caller::of_settings(), self.settings_hash.clone()?)),
            Some(token_id) => self.keyring.standing(token_id, wall_time()),
        }
    }

    fn signed_for_token(&self, words: &str, hash: &str) -> String {
        self.signed(&format!("session {words} {hash}"))
    }

    /// What only a page that was made for this browser has.
    pub fn proof_of_page(&self, headers: &Headers) -> String {
        let session = match self.asks {
            true => self.session(headers).map(|(session, _)| session.id),
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
}

/// The right to go on listening. It ends with its token and with its session.
pub struct Pass {
    gate: Arc<Gate>,
    pub token_id: Option<TokenId>,
    session: Option<String>,
}

impl Pass {
    pub fn is_good(&self) -> bool {
        let gate = &self.gate;
        let logged_out = gate.logged_out.read();
        let logged_out = logged_out.unwrap_or_else(PoisonError::into_inner);
        let has_left = self
            .session
            .as_ref()
            .is_some_and(|id| logged_out.contains(id));
        let token_is_good =
            (self.token_id).is_none_or(|token_id| gate.keyring.is_good(token_id, wall_time()));
        !has_left && token_is_good
    }
}

/// The same for everybody who is not let in: it tells nothing of what there is.
fn unauthorized() -> ApiError {
    let message = "the token is missing or wrong, send it as: Authorization: Bearer TOKEN";
    ApiError::new(401, "unauthorized", message)
}

/// Whether the request shows a bearer token, good or not.
pub fn has_bearer(headers: &Headers) -> bool {
    bearer(headers).is_some_and(|token| !token.is_empty())
}

/// The token that a program shows.
fn bearer(headers: &Headers) -> Option<&str> {
    let (scheme, token) = headers.authorization.as_deref()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

/// A token that is nowhere but in this process.
fn own_worker() -> Result<(Token, String), getrandom::Error> {
    let secret = random_secret()?;
    let token = Token {
        token_id: OWN_WORKER,
        name: "embedded worker".to_string(),
        role: Role::Worker,
        hash: hash_hex(&secret),
        tags: None,
        made_by: "server".to_string(),
        created_at: wall_time(),
        expires_at: None,
        used_at: None,
        ended_at: None,
        made_token_id: None,
        is_unasked: false,
    };
    let text = TokenText {
        token_id: OWN_WORKER,
        secret: &secret,
        is_enrolment: false,
    };
    Ok((token, text.write()))
}

/// What a browser was told to remember.
pub fn cookie<'h>(headers: &'h Headers, name: &str) -> Option<&'h str> {
    let cookies = headers.cookie.as_deref()?.split(';');
    let mut pairs = cookies.filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

/// A text that nobody can guess.
pub fn random_text() -> Result<String, ApiError> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|error| no_randomness(&error))?;
    Ok(BASE64.encode(bytes))
}

pub fn no_randomness(error: &getrandom::Error) -> ApiError {
    log::error!("there is no randomness to be had: {error}");
    let message = "the server met a fault of its own, its log says which";
    ApiError::new(500, "internal", message)
}
