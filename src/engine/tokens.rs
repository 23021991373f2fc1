//! Who is let in: tokens are made and revoked, a worker exchanges its enrolment for a token of its own, browsers log in and out.
//!
//! Secrets are drawn and hashed by the caller: nothing here, and nothing that is kept, knows one.

use super::check::check_text;
use super::facts::Facts;
use super::{Engine, EngineError};
use crate::domain::audit::{AuditAction, AuditEntry, is_reserved_name};
use crate::domain::check::bad_tag;
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::limits::{self, shorten};
use crate::domain::token::{
    CONSOLE, FIRST_START, FolderDoor, LOCAL, NewToken, OF_SETTINGS, Role, Token,
};
use crate::domain::{Now, Timestamp, TokenId};
use crate::store::Tx;
use crate::words::is_deceitful;

/// How often it is told that a used enrolment is shown again.
const TOLD_AGAIN_MS: i64 = 300_000;

/// A token of a worker's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enrolled {
    pub token_id: TokenId,
}

impl Engine {
    pub fn make_token(&self, mut token: NewToken, now: Now) -> Result<Token, EngineError> {
        check(&mut token, now)?;
        self.write(now, move |tx| {
            // Events name people by it.
            if let [taken, ..] = named(tx, &token.name, now)?.good.as_slice() {
                let (name, token_id) = (shorten(&token.name), *taken);
                return Err(EngineError::TokenNameTaken { name, token_id });
            }
            insert(tx, &token, now)
        })
    }

    /// Makes the tokens that the first start of a server writes into its data folder, and returns them in the same order. A name
    /// that is taken gets a number. Tokens that an interrupted first start made are revoked: nobody has their text.
    pub fn make_first_tokens(
        &self,
        tokens: Vec<NewToken>,
        now: Now,
    ) -> Result<Vec<Token>, EngineError> {
        self.write(now, move |tx| {
            let all = tx.tokens_after(TokenId(0), u32::MAX)?;
            let (abandoned, others): (Vec<Token>, Vec<Token>) = (all.into_iter())
                .filter(|token| token.is_good(now.wall))
                .partition(|token| token.made_by == FIRST_START);
            for token in &abandoned {
                tx.end_token(token.token_id, now)?;
                tx.audit(&about_token(AuditAction::TokenRevoked, token), now)?;
            }
            let make = |token: &NewToken| {
                let is_free = |name: &String| others.iter().all(|other| other.name != *name);
                let numbered = (2..).map(|number| format!("{}-{number}", token.name));
                let mut names = std::iter::once(token.name.clone()).chain(numbered);
                let name = names
                    .find(is_free)
                    .expect("there are more names than tokens");
                insert(
                    tx,
                    &NewToken {
                        name,
                        ..token.clone()
                    },
                    now,
                )
            };
            tokens.iter().map(make).collect()
        })
    }

    /// Whether somebody other than the first start of a server has a valid token of role admin. A token that was made while the server
    /// asked nobody for a token does not count: anybody could have made it.
    pub fn has_admin_of_somebody(&self, now: Now) -> Result<bool, EngineError> {
        self.store.read(|tx| {
            let tokens = tx.tokens_after(TokenId(0), u32::MAX)?;
            let is_admin =
                |token: &Token| is_trusted_admin(token, now.wall) && token.made_by != FIRST_START;
            Ok(tokens.iter().any(is_admin))
        })
    }

    /// Whether there is a valid token of role admin that was made while the server asked for a token.
    pub fn has_trusted_admin(&self, now: Timestamp) -> Result<bool, EngineError> {
        self.store.read(|tx| {
            let tokens = tx.tokens_after(TokenId(0), u32::MAX)?;
            Ok(tokens.iter().any(|token| is_trusted_admin(token, now)))
        })
    }

    pub fn folder_door(&self) -> Result<FolderDoor, EngineError> {
        self.store.read(|tx| Ok(tx.folder_door()?))
    }

    /// From now on no start writes tokens into the data folder.
    pub fn record_first_start(&self, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| Ok(tx.record_first_start(now)?))
    }

    /// Valid tokens that were made while the server asked nobody for a token.
    pub fn unasked_tokens(&self, now: Timestamp) -> Result<Vec<Token>, EngineError> {
        self.store.read(|tx| Ok(tx.unasked_tokens(now)?))
    }

    /// Whether this token was made while the server asked nobody for a token.
    pub fn is_unasked(&self, token_id: TokenId) -> Result<bool, EngineError> {
        let token = self.store.read(|tx| tx.token(token_id))?;
        Ok(token.is_some_and(|token| token.is_unasked))
    }

    /// From now on it lets nobody in. Workers that came with it are given nothing more. `keeps_admin`: not the last one of an admin, or
    /// nobody could make another.
    pub fn revoke_token(
        &self,
        token_id: TokenId,
        keeps_admin: bool,
        now: Now,
    ) -> Result<Token, EngineError> {
        self.write(now, move |tx| {
            let token = existing(tx, token_id)?;
            if token.ended_at.is_some() {
                return Ok(token);
            }
            let is_admin = token.role == Role::Admin;
            if keeps_admin && is_admin && !tx.has_other_admin(token_id, now)? {
                return Err(EngineError::LastAdmin { token_id });
            }
            tx.end_token(token_id, now)?;
            for worker_id in tx.workers_of_token(token_id)? {
                tx.drain_worker(worker_id, now)?;
            }
            tx.audit(&about_token(AuditAction::TokenRevoked, &token), now)?;
            let text = format!(
                "token {token_id} was revoked: {}, {}",
                token.name, token.role
            );
            let event = NewEvent::new(EventKind::TokenRevoked, text);
            tx.record(&event.data(facts(&token).data()), now)?;
            existing(tx, token_id)
        })
    }

    /// A worker that was let in by an enrolment names the hash of the secret that it drew. Asking again with the same hash is answered
    /// as before, since an answer may be lost; with another one somebody else has the enrolment too.
    pub fn enrol(
        &self,
        enrolment: TokenId,
        hash: String,
        name: String,
        now: Now,
    ) -> Result<Enrolled, EngineError> {
        check_text("worker name", &name, limits::NAME_BYTES_MAX)?;
        if name.contains(is_deceitful) {
            let fault = "is not one line of plain text".to_string();
            return Err(EngineError::Invalid {
                place: "worker name",
                fault,
            });
        }
        let enrolled = self.write(now, move |tx| {
            let token = existing(tx, enrolment)?;
            if token.role != Role::Enrolment {
                return Ok(None);
            }
            if let Some(made) = token.made_token_id {
                if existing(tx, made)?.hash == hash {
                    return Ok(Some(Enrolled { token_id: made }));
                }
                let text = format!(
                    "enrolment {enrolment} ({}) was shown again, by a worker that calls itself {}: if that is none of yours, \
                     revoke token {made} and make a new enrolment",
                    token.name,
                    shorten(&name)
                );
                // Whoever tries it again and again does not fill the events with that.
                let tried = token.used_at.zip(token.ended_at);
                let is_told = tried.is_some_and(|(last, used)| {
                    last > used && now.wall.0.saturating_sub(last.0) < TOLD_AGAIN_MS
                });
                if !is_told {
                    let refused = AuditEntry::refused(AuditAction::EnrolmentRefused);
                    let refused = refused.object("enrolment", enrolment);
                    let detail = Facts::none().and("worker", name.as_str()).detail();
                    tx.audit(&refused.detail(detail), now)?;
                    let event = NewEvent::new(EventKind::EnrolmentRefused, text);
                    tx.record(&event.data(facts(&token).data()), now)?;
                    tx.touch_token(enrolment, now)?;
                }
                return Ok(None);
            }
            if !token.is_good(now.wall) {
                return Ok(None);
            }
            let token_id = tx.insert_token(
                &NewToken {
                    name: token.name.clone(),
                    role: Role::Worker,
                    hash: hash.clone(),
                    tags: token.tags.clone(),
                    made_by: format!("enrolment {enrolment}"),
                    expires_at: None,
                    is_unasked: token.is_unasked,
                },
                now,
            )?;
            let used = tx.use_enrolment(enrolment, token_id, now)?;
            assert!(used, "it was good a moment ago, in this transaction");
            let enrolled = AuditEntry::of(AuditAction::WorkerEnrolled).object("token", token_id);
            let detail = Facts::none()
                .and("enrolment", enrolment.0)
                .and("worker", name.as_str());
            tx.audit(&enrolled.detail(detail.detail()), now)?;
            let text = format!(
                "worker {} was enrolled with enrolment {enrolment} ({}), its token is {token_id}",
                shorten(&name),
                token.name
            );
            let event = NewEvent::new(EventKind::WorkerEnrolled, text);
            tx.record(&event.data(facts(&token).data()), now)?;
            Ok::<_, EngineError>(Some(Enrolled { token_id }))
        })?;
        enrolled.ok_or(EngineError::EnrolmentRefused)
    }

    pub fn note_token_use(&self, token_id: TokenId, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| Ok(tx.touch_token(token_id, now)?))
    }

    /// The cookie of the session opens nothing from now on.
    pub fn log_out(
        &self,
        session: String,
        until_at: Timestamp,
        now: Now,
    ) -> Result<(), EngineError> {
        check_text("session", &session, limits::KEY_BYTES_MAX)?;
        self.write(now, move |tx| {
            tx.insert_logout(&session, until_at, now)?;
            tx.audit(&AuditEntry::of(AuditAction::LoggedOut), now)?;
            let text = "somebody logged out of the pages".to_string();
            Ok(tx.record_quietly(&NewEvent::new(EventKind::LoggedOut, text), now)?)
        })
    }

    /// In the order in which they were made, ended ones too.
    pub fn tokens(&self, after: TokenId, limit: u32) -> Result<Vec<Token>, EngineError> {
        self.store.read(|tx| Ok(tx.tokens_after(after, limit)?))
    }

    /// Sessions of browsers that were ended before their time.
    pub fn logouts(&self, now: Timestamp) -> Result<Vec<String>, EngineError> {
        self.store.read(|tx| Ok(tx.logouts(now)?))
    }

    /// By its number, or by its name: the good one, or else the last one that was.
    pub fn select_token(&self, selector: &str, now: Now) -> Result<TokenId, EngineError> {
        let fits_none = || EngineError::NoTokenFits {
            selector: shorten(selector),
        };
        self.store.read(|tx| {
            if let Ok(number) = selector.parse() {
                let found = tx.token(TokenId(number))?;
                return Ok(found.ok_or_else(fits_none)?.token_id);
            }
            let Named { good, ended } = named(tx, selector, now)?;
            match good.as_slice() {
                [] => ended.last().copied().ok_or_else(fits_none),
                [one] => Ok(*one),
                many => Err(EngineError::TokenAmbiguous {
                    name: shorten(selector),
                    numbers: many.iter().map(ToString::to_string).collect(),
                }),
            }
        })
    }

    /// Whose session it is. `None`: it is not known. `Some(None)`: nobody's.
    pub fn owner_of_session(
        &self,
        session_key: &str,
    ) -> Result<Option<Option<TokenId>>, EngineError> {
        self.store.read(|tx| Ok(tx.owner_of_session(session_key)?))
    }
}

/// Whether this is a valid token of role admin that was made while the server asked for a token.
fn is_trusted_admin(token: &Token, now: Timestamp) -> bool {
    token.role == Role::Admin && token.is_good(now) && !token.is_unasked
}

fn insert(tx: &Tx, token: &NewToken, now: Now) -> Result<Token, EngineError> {
    let token_id = tx.insert_token(token, now)?;
    let made = existing(tx, token_id)?;
    tx.audit(&about_token(AuditAction::TokenMade, &made), now)?;
    let text = format!("token {token_id} was made: {}, {}", made.name, made.role);
    let event = NewEvent::new(EventKind::TokenMade, text);
    tx.record(&event.data(facts(&made).data()), now)?;
    Ok(made)
}

fn existing(tx: &Tx, token_id: TokenId) -> Result<Token, EngineError> {
    let token = tx.token(token_id)?;
    token.ok_or_else(|| EngineError::NoTokenFits {
        selector: token_id.to_string(),
    })
}

/// Tokens of one name, each in the order in which they were made.
struct Named {
    good: Vec<TokenId>,
    ended: Vec<TokenId>,
}

fn named(tx: &Tx, name: &str, now: Now) -> Result<Named, EngineError> {
    let mut tokens = tx.tokens_after(TokenId(0), u32::MAX)?;
    tokens.retain(|token| token.name == name);
    let (good, ended): (Vec<Token>, Vec<Token>) = tokens
        .into_iter()
        .partition(|token| token.is_good(now.wall));
    let ids = |tokens: Vec<Token>| tokens.iter().map(|token| token.token_id).collect();
    Ok(Named {
        good: ids(good),
        ended: ids(ended),
    })
}

fn about_token(action: AuditAction, token: &Token) -> AuditEntry {
    let detail = Facts::none()
        .and("name", token.name.as_str())
        .and("role", token.role.as_str());
    AuditEntry::of(action)
        .object("token", token.token_id)
        .detail(detail.detail())
}

fn facts(token: &Token) -> Facts {
    let facts = Facts::none()
        .and("token_id", token.token_id.0)
        .and("name", token.name.as_str())
        .and("role", token.role.as_str());
    match &token.tags {
        Some(tags) => facts.and("tags", tags.as_slice()),
        None => facts,
    }
}

fn check(token: &mut NewToken, now: Now) -> Result<(), EngineError> {
    let invalid = |place, fault: String| Err(EngineError::Invalid { place, fault });
    check_text("name", &token.name, limits::NAME_BYTES_MAX)?;
    if token.name.contains(is_deceitful) || token.name.trim() != token.name {
        return invalid("name", "is not one plain line".to_string());
    }
    if [LOCAL, OF_SETTINGS, CONSOLE, FIRST_START].contains(&token.name.as_str())
        || is_reserved_name(&token.name)
    {
        let fault = format!(
            "`{}` is reserved, because events and the audit log use this name; choose another one",
            token.name
        );
        return invalid("name", fault);
    }
    if token.name.parse::<i64>().is_ok() {
        return invalid(
            "name",
            "is a number, which would name another token".to_string(),
        );
    }
    if let Some(tags) = &mut token.tags {
        if token.role.is_for_people() {
            let fault = format!(
                "are for workers, and a token of role {} is for people",
                token.role
            );
            return invalid("tags", fault);
        }
        tags.sort();
        tags.dedup();
        if let Some(fault) = bad_tag(tags) {
            return invalid("tag", fault);
        }
        if tags.is_empty() || tags.len() > limits::STEP_TAGS_MAX {
            let max = limits::STEP_TAGS_MAX;
            return invalid("tags", format!("are {}, expected 1 to {max}", tags.len()));
        }
    }
    match token.expires_at {
        None if token.role == Role::Enrolment => invalid(
            "expires",
            "is missing, an enrolment needs an end".to_string(),
        ),
        Some(at) if at <= now.wall => invalid("expires", "is in the past".to_string()),
        _ => Ok(()),
    }
}
