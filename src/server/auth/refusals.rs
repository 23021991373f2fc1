//! Requests that were refused, counted until the audit log is told about them. Each address and each token gets at most one row a
//! minute, and all addresses together at most `ADDRESS_ROWS_MAX` rows and one for the rest, so that nobody can fill the disk with
//! refused requests.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use super::caller::Caller;
use super::guesses::WrongTokens;
use crate::domain::audit::{Actor, AuditAction, UNKNOWN};
use crate::engine::Refusal;

/// The least time between two rows about the same address or the same token.
pub const ROW_INTERVAL_MS: i64 = 60_000;
/// Tokens whose refused requests are counted apart. Those of more tokens are not recorded until some are told.
const CALLERS_MAX: usize = 1_024;
/// Different requests of a token that one row names.
const REQUESTS_MAX: usize = 5;
/// Rows about single addresses that are written within a minute. More addresses share one row.
pub const ADDRESS_ROWS_MAX: usize = 20;

/// Refused attempts of one address or token that no row tells of yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Untold {
    attempts: u64,
    peer: Option<IpAddr>,
    told_ms: Option<i64>,
}

impl Untold {
    pub fn add(&mut self, peer: IpAddr) {
        self.attempts += 1;
        self.peer = Some(peer);
    }

    /// Whether there is something to tell, whether or not it is time to tell it.
    pub fn is_pending(&self) -> bool {
        self.peer.is_some()
    }

    /// Whether there is something to tell and the last row was long enough ago. The last round before the server stops tells
    /// everything.
    pub fn is_due(&self, now_ms: i64, is_last: bool) -> bool {
        let is_early = (self.told_ms).is_some_and(|told_ms| now_ms - told_ms < ROW_INTERVAL_MS);
        self.is_pending() && (is_last || !is_early)
    }

    /// Returns what the next row tells, if it is due.
    pub fn take(&mut self, now_ms: i64, is_last: bool) -> Option<WrongTokens> {
        let is_due = self.is_due(now_ms, is_last);
        let peer = self.peer.filter(|_| is_due)?;
        let attempts = std::mem::take(&mut self.attempts);
        (self.peer, self.told_ms) = (None, Some(now_ms));
        Some(WrongTokens { peer, attempts })
    }

    fn is_idle(&self, now_ms: i64) -> bool {
        self.peer.is_none()
            && (self.told_ms).is_none_or(|told_ms| now_ms - told_ms >= ROW_INTERVAL_MS)
    }
}

/// Requests that the role of a token did not allow.
#[derive(Default)]
pub struct RefusedCallers {
    by_name: Mutex<HashMap<String, RefusedCaller>>,
}

struct RefusedCaller {
    caller: Caller,
    /// The first different requests that were refused since the last row.
    requests: Vec<String>,
    untold: Untold,
}

impl RefusedCallers {
    pub fn add(&self, caller: &Caller, peer: IpAddr, request: String) {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("{:?} {}", caller.token_id(), caller.name);
        if by_name.len() >= CALLERS_MAX && !by_name.contains_key(&key) {
            return;
        }
        let refused = by_name.entry(key).or_insert_with(|| RefusedCaller {
            caller: caller.clone(),
            requests: Vec::new(),
            untold: Untold::default(),
        });
        if refused.requests.len() < REQUESTS_MAX && !refused.requests.contains(&request) {
            refused.requests.push(request);
        }
        refused.untold.add(peer);
    }

    pub fn take_untold(&self, now_ms: i64, is_last: bool) -> Vec<Refusal> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let refusals = by_name.values_mut().filter_map(|refused| {
            let told = refused.untold.take(now_ms, is_last)?;
            let requests = std::mem::take(&mut refused.requests);
            Some(Refusal {
                actor: refused.caller.actor(told.peer),
                action: AuditAction::PermissionRefused,
                object: requests.first().cloned(),
                attempts: told.attempts,
                addresses: None,
                requests: if requests.len() > 1 {
                    requests
                } else {
                    Vec::new()
                },
            })
        });
        let refusals = refusals.collect();
        by_name.retain(|_, refused| !refused.untold.is_idle(now_ms));
        refusals
    }
}

/// The rows for wrong tokens of many addresses.
pub fn of_wrong_tokens(mut wrong: Vec<WrongTokens>) -> Vec<Refusal> {
    // Whoever tried most is named.
    wrong.sort_by_key(|wrong| (std::cmp::Reverse(wrong.attempts), wrong.peer));
    let others = wrong.split_off(wrong.len().min(ADDRESS_ROWS_MAX));
    let unknown = |address: Option<String>| Actor {
        address,
        is_named_in_events: false,
        ..Actor::named(UNKNOWN)
    };
    let refusal = |actor, attempts, addresses| Refusal {
        actor,
        action: AuditAction::LoginRefused,
        object: None,
        attempts,
        addresses,
        requests: Vec::new(),
    };
    let named = wrong.iter().map(|wrong| {
        let address = wrong.peer.to_canonical().to_string();
        refusal(unknown(Some(address)), wrong.attempts, None)
    });
    let attempts = others.iter().map(|wrong| wrong.attempts).sum();
    let rest =
        (!others.is_empty()).then(|| refusal(unknown(None), attempts, Some(others.len() as u64)));
    named.chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn an_address_gets_one_row_a_minute_and_every_attempt_is_counted() {
        let mut untold = Untold::default();
        assert_eq!(untold.take(0, false), None);
        untold.add(peer(1));
        let told = |attempts| {
            Some(WrongTokens {
                peer: peer(1),
                attempts,
            })
        };
        assert_eq!(untold.take(0, false), told(1));
        for _ in 0..7 {
            untold.add(peer(1));
            assert_eq!(untold.take(ROW_INTERVAL_MS - 1, false), None);
        }
        assert_eq!(untold.take(ROW_INTERVAL_MS, false), told(7));
        assert_eq!(untold.take(3 * ROW_INTERVAL_MS, false), None);
    }

    #[test]
    fn the_last_round_tells_what_was_refused_since_the_last_row() {
        let refused = RefusedCallers::default();
        let caller = Caller::of_settings();
        refused.add(&caller, peer(1), "GET /x".to_string());
        assert_eq!(refused.take_untold(0, false).len(), 1);
        refused.add(&caller, peer(1), "GET /y".to_string());
        assert!(refused.take_untold(1_000, false).is_empty());
        let told = refused.take_untold(2_000, true);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].object.as_deref(), Some("GET /y"));
        assert!(refused.take_untold(3_000, true).is_empty());
    }

    #[test]
    fn a_row_names_several_requests_and_not_only_the_last_one() {
        let refused = RefusedCallers::default();
        let ask = |path: &str| refused.add(&Caller::of_settings(), peer(1), path.to_string());
        for path in ["POST /a", "GET /b", "POST /a", "GET /c"] {
            ask(path);
        }
        let told = refused.take_untold(0, false);
        assert_eq!(told[0].object.as_deref(), Some("POST /a"));
        assert_eq!(told[0].requests, ["POST /a", "GET /b", "GET /c"]);
        assert_eq!(told[0].attempts, 4);
        for number in 0..100 {
            ask(&format!("GET /{number}"));
        }
        let told = refused.take_untold(ROW_INTERVAL_MS, false);
        assert_eq!(told[0].requests.len(), REQUESTS_MAX);
        assert_eq!(told[0].attempts, 100);
    }

    #[test]
    fn a_flood_from_many_addresses_makes_a_bounded_number_of_rows() {
        let wrong = (0..4_000).map(|number| WrongTokens {
            peer: peer(number),
            attempts: u64::from(number % 7) + 1,
        });
        let rows = of_wrong_tokens(wrong.collect());
        assert_eq!(rows.len(), ADDRESS_ROWS_MAX + 1);
        let rest = rows.last().unwrap();
        assert_eq!(rest.addresses, Some(4_000 - ADDRESS_ROWS_MAX as u64));
        assert_eq!(rest.actor.address, None);
        let attempts: u64 = rows.iter().map(|row| row.attempts).sum();
        let all: u64 = (0..4_000_u64).map(|number| number % 7 + 1).sum();
        assert_eq!(attempts, all);
    }

    #[test]
    fn callers_that_were_told_about_are_forgotten() {
        let refused = RefusedCallers::default();
        refused.add(&Caller::of_settings(), peer(1), "GET /x".to_string());
        refused.add(&Caller::of_settings(), peer(2), "GET /x".to_string());
        let told = refused.take_untold(0, false);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].object.as_deref(), Some("GET /x"));
        assert!(told[0].requests.is_empty());
        assert_eq!(told[0].attempts, 2);
        assert!(refused.take_untold(ROW_INTERVAL_MS, false).is_empty());
        assert!(refused.by_name.lock().unwrap().is_empty());
    }
}
