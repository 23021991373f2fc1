//! Counts wrong tokens and wrong webhook secrets by address, and refuses more of them once there were too many. A right token or
//! signature is never counted, delayed or refused, so nobody can lock others out, and nobody can try for long.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use super::refusals::{ADDRESS_ROWS_MAX, ROW_INTERVAL_MS, Untold};
use crate::metrics::Counter;
use crate::server::error::ApiError;
use crate::server::shares::network;

/// A person mistypes, a program guesses.
const GUESSES_MAX: u32 = 10;
const WITHIN_MS: i64 = 300_000;
/// More addresses than these share a count.
const ADDRESSES_MAX: usize = 4_096;

#[derive(Default)]
pub struct Guesses {
    state: Mutex<State>,
    /// Number of wrong tokens that were refused with status 429.
    refused: Counter,
}

#[derive(Default)]
struct State {
    by_address: HashMap<IpAddr, Count>,
    /// Addresses that went too far since somebody last asked.
    alarms: Vec<IpAddr>,
    rows: RecentRows,
}

/// Rows of the audit log about single addresses. The count begins anew after a minute without any.
#[derive(Default)]
struct RecentRows {
    count: usize,
    last_ms: i64,
}

struct Count {
    since_ms: i64,
    guesses: u32,
    /// Wrong tokens that are not in the audit log yet.
    untold: Untold,
}

/// Wrong tokens of one address, for the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongTokens {
    /// The address that the last of them came from.
    pub peer: IpAddr,
    pub attempts: u64,
}

impl Guesses {
    /// One more wrong token. An error says that there were too many.
    pub fn count(&self, peer: IpAddr, now_ms: i64) -> Result<(), ApiError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let address = network(peer);
        let is_new = !state.by_address.contains_key(&address);
        if is_new && state.by_address.len() >= ADDRESSES_MAX {
            let is_over = |count: &Count| now_ms - count.since_ms > WITHIN_MS;
            (state.by_address).retain(|_, count| !is_over(count) || count.untold.is_pending());
        }
        let address = match is_new && state.by_address.len() >= ADDRESSES_MAX {
            true => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            false => address,
        };
        let count = state.by_address.entry(address).or_insert(Count {
            since_ms: now_ms,
            guesses: 0,
            untold: Untold::default(),
        });
        if now_ms - count.since_ms > WITHIN_MS {
            (count.since_ms, count.guesses) = (now_ms, 0);
        }
        count.guesses = count.guesses.saturating_add(1);
        count.untold.add(peer);
        let (guesses, since_ms) = (count.guesses, count.since_ms);
        if guesses <= GUESSES_MAX {
            return Ok(());
        }
        if guesses == GUESSES_MAX + 1 && state.alarms.len() < ADDRESSES_MAX {
            state.alarms.push(peer);
        }
        let secs = (since_ms + WITHIN_MS - now_ms).max(0) / 1_000 + 1;
        let message = format!(
            "too many wrong tokens or webhook secrets came from this address, wait {secs} s or show a right one"
        );
        self.refused.add(1);
        Err(ApiError {
            retry_after_secs: Some(secs as u64),
            ..ApiError::new(429, "too_many_guesses", message)
        })
    }

    pub fn refused(&self) -> u64 {
        self.refused.count()
    }

    /// Returns the addresses that the audit log is to be told about now: each at most once a minute, with everything since then. If
    /// there are more addresses than a minute has rows for, all of them wait until the minute is over, so that the rows name those
    /// that tried most. The last round before the server stops waits for nothing.
    pub fn take_untold(&self, now_ms: i64, is_last: bool) -> Vec<WrongTokens> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State {
            by_address, rows, ..
        } = &mut *state;
        let due = by_address.values_mut().map(|count| &mut count.untold);
        let due: Vec<&mut Untold> = due.filter(|it| it.is_due(now_ms, is_last)).collect();
        if due.is_empty() {
            return Vec::new();
        }
        if now_ms - rows.last_ms >= ROW_INTERVAL_MS {
            rows.count = 0;
        }
        if !is_last && rows.count > 0 && rows.count + due.len() > ADDRESS_ROWS_MAX {
            return Vec::new();
        }
        *rows = RecentRows {
            count: rows.count + due.len(),
            last_ms: now_ms,
        };
        let told = due.into_iter();
        told.filter_map(|untold| untold.take(now_ms, is_last))
            .collect()
    }

    /// Each is told once.
    pub fn take_alarms(&self) -> Vec<IpAddr> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.alarms)
    }
}

#[cfg(test)]
mod tests {
    use super::super::refusals::of_wrong_tokens;
    use super::*;

    #[test]
    fn one_address_is_slowed_down_and_no_other() {
        let guesses = Guesses::default();
        let bad: IpAddr = "10.0.0.1".parse().unwrap();
        for _ in 0..GUESSES_MAX {
            guesses.count(bad, 0).unwrap();
        }
        let refused = guesses.count(bad, 1_000).unwrap_err();
        assert_eq!((refused.status, refused.retry_after_secs), (429, Some(300)));
        guesses.count("10.0.0.2".parse().unwrap(), 1_000).unwrap();
        assert_eq!(guesses.take_alarms(), [bad]);
        guesses.count(bad, 2_000).unwrap_err();
        assert!(guesses.take_alarms().is_empty(), "it is told once");
        guesses.count(bad, WITHIN_MS + 1).unwrap();
    }

    #[test]
    fn a_machine_with_many_addresses_counts_as_one() {
        let guesses = Guesses::default();
        for number in 0..GUESSES_MAX {
            let peer = format!("2001:db8::{number}").parse().unwrap();
            guesses.count(peer, 0).unwrap();
        }
        guesses
            .count("2001:db8::ffff".parse().unwrap(), 0)
            .unwrap_err();
        guesses
            .count("2001:db8:0:1::1".parse().unwrap(), 0)
            .unwrap();
    }

    #[test]
    fn a_flood_from_many_addresses_makes_a_bounded_number_of_rows_a_minute() {
        let guesses = Guesses::default();
        let peer = |number: u32| IpAddr::from(number.to_be_bytes());
        let loud = peer(u32::MAX);
        let (mut attempts, mut told) = (0, Vec::new());
        // Ten minutes, a round a second. Every second five addresses that nobody has seen before, and one that comes again and again.
        for second in 0..600_u32 {
            let now_ms = i64::from(second) * 1_000;
            for number in 0..5 {
                let _ = guesses.count(peer(second * 5 + number), now_ms);
            }
            let _ = guesses.count(loud, now_ms);
            attempts += 6;
            let rows = of_wrong_tokens(guesses.take_untold(now_ms, second == 599));
            told.extend(rows.into_iter().map(|row| (now_ms, row)));
        }
        for (begin_ms, _) in &told {
            let minute = *begin_ms..begin_ms + ROW_INTERVAL_MS;
            let rows = told.iter().filter(|(at_ms, _)| minute.contains(at_ms));
            let is_last = minute.end > 599_000;
            let most = (ADDRESS_ROWS_MAX + 1) * if is_last { 2 } else { 1 };
            assert!(rows.count() <= most, "from {begin_ms} ms on");
        }
        assert_eq!(
            told.iter().map(|(_, row)| row.attempts).sum::<u64>(),
            attempts
        );
        let loud = Some(loud.to_string());
        let named = told.iter().filter(|(_, row)| row.actor.address == loud);
        assert!(named.count() >= 5, "who tries most is named");
    }

    #[test]
    fn single_addresses_are_told_at_once() {
        let guesses = Guesses::default();
        for number in 0..3_u32 {
            let now_ms = i64::from(number) * 1_000;
            guesses
                .count(IpAddr::from(number.to_be_bytes()), now_ms)
                .unwrap();
            assert_eq!(guesses.take_untold(now_ms, false).len(), 1);
        }
    }

    #[test]
    fn a_flood_of_addresses_takes_no_more_memory() {
        let guesses = Guesses::default();
        for number in 0..20_000_u32 {
            // Whether it is refused is not the question here.
            let _ = guesses.count(IpAddr::from(number.to_be_bytes()), 0);
        }
        let state = guesses.state.lock().unwrap();
        assert!(state.by_address.len() <= ADDRESSES_MAX + 1);
    }
}
