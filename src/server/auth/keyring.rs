//! Every token that lets somebody in, in memory: each request is checked before anything more of it is read, on a thread that must not
//! wait for the disk. What is here is what the database says; whoever changes that has it read again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use subtle::ConstantTimeEq;

use super::caller::Caller;
use crate::domain::token::{Role, Token, TokenText};
use crate::domain::{Timestamp, TokenId};
use crate::engine::{Engine, EngineError};
use crate::secrets::hash_hex;

/// How often it is written down that a token was used.
const NOTED_MS: i64 = 60_000;
/// How often it is told that a token was shown for what is another's.
const TOLD_MS: i64 = 300_000;

#[derive(Default)]
pub struct Keyring {
    keys: RwLock<HashMap<TokenId, Arc<Key>>>,
    /// Held while the database is read, so that an older reading never comes after a newer one.
    loading: Mutex<()>,
}

pub struct Key {
    token: Token,
    noted_ms: AtomicI64,
    told_ms: AtomicI64,
}

impl Keyring {
    /// With what the server itself has for the worker in its own process, which no table has.
    pub fn load(&self, engine: &Engine, own: Option<&Token>) -> Result<(), EngineError> {
        let _loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let tokens = engine.tokens(TokenId(0), u32::MAX)?;
        // An enrolment that was used is still recognised, by the worker that was not told so.
        let counts = |token: &Token| token.ended_at.is_none() || token.role == Role::Enrolment;
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let former = std::mem::take(&mut *keys);
        let tokens = tokens.into_iter().filter(counts).chain(own.cloned());
        keys.extend(tokens.map(|token| {
            let known = former.get(&token.token_id);
            let or_never = |noted: Option<&AtomicI64>| {
                AtomicI64::new(noted.map_or(i64::MIN / 2, |ms| ms.load(Ordering::Relaxed)))
            };
            let key = Key {
                noted_ms: or_never(known.map(|key| &key.noted_ms)),
                told_ms: or_never(known.map(|key| &key.told_ms)),
                token,
            };
            (key.token.token_id, Arc::new(key))
        }));
        Ok(())
    }

    /// Whose token this is, used up or not.
    fn find(&self, text: &str) -> Option<Arc<Key>> {
        let shown = TokenText::read(text)?;
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let key = keys.get(&shown.token_id)?.clone();
        let is_same = same(&hash_hex(shown.secret), &key.token.hash);
        (is_same && shown.is_enrolment == (key.token.role == Role::Enrolment)).then_some(key)
    }

    /// Whoever shows this, if it lets them in.
    pub fn known(&self, text: &str, now: Timestamp) -> Option<Caller> {
        let key = self.find(text)?;
        let is_good = key.token.role != Role::Enrolment && key.token.is_good(now);
        is_good.then(|| Caller::of_token(&key.token))
    }

    /// Which enrolment this is. That it was used already is for the exchange to say.
    pub fn enrolment(&self, text: &str, now: Timestamp) -> Option<Caller> {
        let key = self.find(text)?;
        let is_good = key.token.role == Role::Enrolment && !key.token.has_expired(now);
        is_good.then(|| Caller::of_token(&key.token))
    }

    /// Whether it lets anybody in now, whatever it lets do.
    pub fn is_good(&self, token_id: TokenId, now: Timestamp) -> bool {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(&token_id)
            .is_some_and(|key| key.token.is_good(now))
    }

    /// Of a session that was begun with this token: whether it still lets in, and its hash.
    pub fn standing(&self, token_id: TokenId, now: Timestamp) -> Option<(Caller, String)> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let token = &keys.get(&token_id)?.token;
        let is_good = token.role.is_for_people() && token.is_good(now);
        is_good.then(|| (Caller::of_token(token), token.hash.clone()))
    }

    /// Whether it is time to write down that it was used: told to one of all who ask at a time.
    pub fn is_to_be_noted(&self, token_id: TokenId, now: Timestamp) -> bool {
        self.is_time(token_id, now, NOTED_MS, |key| &key.noted_ms)
    }

    /// The same of telling that it was shown for what is another's.
    pub fn is_to_be_told(&self, token_id: TokenId, now: Timestamp) -> bool {
        self.is_time(token_id, now, TOLD_MS, |key| &key.told_ms)
    }

    fn is_time(
        &self,
        token_id: TokenId,
        now: Timestamp,
        every_ms: i64,
        of: fn(&Key) -> &AtomicI64,
    ) -> bool {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let Some(key) = keys.get(&token_id) else {
            return false;
        };
        let last = of(key).load(Ordering::Relaxed);
        let is_due = now.0.saturating_sub(last) >= every_ms || now.0 < last;
        let exchange =
            || of(key).compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed);
        is_due && exchange().is_ok()
    }
}

/// Takes as long wherever they differ.
pub fn same(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}
