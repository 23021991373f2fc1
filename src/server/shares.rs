//! Fair shares: how much of the server one caller may take, and how often it may do what costs the server most.
//!
//! A caller is a token, or an address where no token is asked for. Whoever comes over loopback to a server that asks nobody for a
//! token is exempt, and so are all worker routes but the one that opens a session. Every refusal is a 429 that names the setting and
//! says when to come back.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::auth::{Caller, CallerSource};
use super::error::ApiError;
use crate::clock::monotonic_ms;
use crate::config::ServerLimits;
use crate::domain::TokenId;
use crate::metrics::Counter;
use crate::metrics::text::{Kind, Page};

/// The caller that a share or a rate belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShareOwner {
    Token(TokenId),
    /// The token that `auth.token_file` names.
    Settings,
    /// An address that shows no token, see `network`.
    Address(IpAddr),
}

impl ShareOwner {
    /// `None`: the caller is exempt. `asks_for_token`: whether the server asks callers for a token at all.
    pub fn of(caller: &Caller, peer: IpAddr, asks_for_token: bool) -> Option<ShareOwner> {
        match caller.is_from {
            CallerSource::Token { token_id, .. } => Some(ShareOwner::Token(token_id)),
            CallerSource::Settings => Some(ShareOwner::Settings),
            CallerSource::Here => ShareOwner::of_address(peer, asks_for_token),
        }
    }

    /// Returns the owner of a caller that showed no token, or a wrong one.
    pub fn of_address(peer: IpAddr, asks_for_token: bool) -> Option<ShareOwner> {
        let is_exempt = peer.is_loopback() && !asks_for_token;
        (!is_exempt).then(|| ShareOwner::Address(network(peer)))
    }

    /// Name of the caller in messages.
    fn name(self) -> &'static str {
        match self {
            ShareOwner::Token(_) | ShareOwner::Settings => "this token",
            ShareOwner::Address(_) => "this address",
        }
    }
}

/// An IPv6 client has a whole /64 network of addresses, so that network counts as one address.
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

/// The limits that a caller can exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    EventStreams,
    Downloads,
    QueuedRequests,
    /// Bytes of request bodies that are on their way or not dealt with yet.
    BodyBytes,
    /// Bytes of long answers that the caller has not read yet.
    AnswerBytes,
    Submissions,
    Logins,
    SessionOpens,
}

impl Limit {
    const ALL: [Limit; 8] = [
        Limit::EventStreams,
        Limit::Downloads,
        Limit::QueuedRequests,
        Limit::BodyBytes,
        Limit::AnswerBytes,
        Limit::Submissions,
        Limit::Logins,
        Limit::SessionOpens,
    ];

    /// The label of the metric.
    fn label(self) -> &'static str {
        match self {
            Limit::EventStreams => "event_streams",
            Limit::Downloads => "downloads",
            Limit::QueuedRequests => "queued_requests",
            Limit::BodyBytes => "body_bytes",
            Limit::AnswerBytes => "answer_bytes",
            Limit::Submissions => "submissions",
            Limit::Logins => "logins",
            Limit::SessionOpens => "session_opens",
        }
    }

    /// The code of the refusal.
    fn code(self) -> &'static str {
        match self {
            Limit::EventStreams => "too_many_event_streams",
            Limit::Downloads => "too_many_downloads",
            Limit::QueuedRequests => "too_many_queued_requests",
            Limit::BodyBytes => "too_many_body_bytes",
            Limit::AnswerBytes => "too_many_answer_bytes",
            Limit::Submissions => "too_many_submissions",
            Limit::Logins => "too_many_logins",
            Limit::SessionOpens => "too_many_session_opens",
        }
    }
}

/// Maximum number of callers that each rate limit remembers. Idle callers are forgotten first and lose nothing by it.
const OWNERS_MAX: usize = 4_096;

pub struct Shares {
    settings: ServerLimits,
    submissions: Rate<ShareOwner>,
    /// Submission rates by the name of the webhook.
    deliveries: Rate<String>,
    logins: Rate<ShareOwner>,
    session_opens: Rate<ShareOwner>,
    downloads: Arc<HeldShares>,
    body_bytes: Arc<HeldShares>,
    answer_bytes: Arc<HeldShares>,
    refused: [Counter; Limit::ALL.len()],
}

impl Shares {
    pub fn new(settings: ServerLimits) -> Shares {
        let ServerLimits {
            submissions_per_sec,
            submissions_burst,
            logins_per_minute,
            session_opens_per_sec,
            ..
        } = settings;
        Shares {
            settings,
            submissions: Rate::new(submissions_per_sec, 1_000, submissions_burst),
            deliveries: Rate::new(submissions_per_sec, 1_000, submissions_burst),
            logins: Rate::new(logins_per_minute, 60_000, logins_per_minute),
            session_opens: Rate::new(session_opens_per_sec, 1_000, session_opens_per_sec),
            downloads: Arc::default(),
            body_bytes: Arc::default(),
            answer_bytes: Arc::default(),
            refused: Default::default(),
        }
    }

    /// The share of one caller, of so many for all.
    pub fn share_of(&self, total: usize) -> usize {
        let percent = self.settings.share_percent as usize;
        (total.saturating_mul(percent) / 100).max(1)
    }

    /// Counts `count` new jobs. An error says that the caller makes too many.
    pub fn count_submissions(&self, owner: Option<ShareOwner>, count: u32) -> Result<(), ApiError> {
        let Some(owner) = owner else {
            return Ok(());
        };
        let taken = self.submissions.take(owner, count, monotonic_ms());
        taken.map_err(|wait_ms| self.too_many_submissions(owner.name(), wait_ms))
    }

    /// Counts a new job of a webhook. Webhooks have the rate of a token each.
    pub fn count_delivery(&self, webhook: &str) -> Result<(), ApiError> {
        let taken = (self.deliveries).take(webhook.to_string(), 1, monotonic_ms());
        taken.map_err(|wait_ms| self.too_many_submissions("this webhook", wait_ms))
    }

    fn too_many_submissions(&self, owner: &str, wait_ms: i64) -> ApiError {
        let ServerLimits {
            submissions_per_sec: rate,
            submissions_burst: burst,
            ..
        } = self.settings;
        let message = format!(
            "too many jobs are submitted by {owner}: at most {rate} per second after a burst of {burst} \
             (limits.submissions_per_sec, limits.submissions_burst)"
        );
        self.refuse(
            Limit::Submissions,
            "limits.submissions_per_sec",
            message,
            wait_ms,
        )
    }

    pub fn count_login(&self, owner: Option<ShareOwner>) -> Result<(), ApiError> {
        let Some(owner) = owner else {
            return Ok(());
        };
        self.logins
            .take(owner, 1, monotonic_ms())
            .map_err(|wait_ms| {
                let (name, max) = (owner.name(), self.settings.logins_per_minute);
                let message = format!(
                    "too many logins by {name}: at most {max} per minute (limits.logins_per_minute)"
                );
                self.refuse(Limit::Logins, "limits.logins_per_minute", message, wait_ms)
            })
    }

    pub fn count_session_open(&self, owner: Option<ShareOwner>) -> Result<(), ApiError> {
        let Some(owner) = owner else {
            return Ok(());
        };
        let taken = self.session_opens.take(owner, 1, monotonic_ms());
        taken.map_err(|wait_ms| {
            let (name, max) = (owner.name(), self.settings.session_opens_per_sec);
            let message = format!(
                "too many worker sessions are opened by {name}: at most {max} per second (limits.session_opens_per_sec)"
            );
            let setting = "limits.session_opens_per_sec";
            self.refuse(Limit::SessionOpens, setting, message, wait_ms)
        })
    }

    /// Begins a download of this caller. All callers together may have `total` downloads.
    pub fn begin_download(
        &self,
        owner: Option<ShareOwner>,
        total: usize,
    ) -> Result<Option<HeldShare>, ApiError> {
        let Some(owner) = owner else {
            return Ok(None);
        };
        let mut held = HeldShare::new(&self.downloads, owner);
        match held.grow(1, self.share_of(total)) {
            true => Ok(Some(held)),
            false => Err(self.over_share(Limit::Downloads, owner, total)),
        }
    }

    /// The bytes that the body of one request of this caller takes, none yet.
    pub fn begin_body(&self, owner: Option<ShareOwner>) -> Option<HeldShare> {
        owner.map(|owner| HeldShare::new(&self.body_bytes, owner))
    }

    /// Begins counting the bytes of one answer of this caller.
    pub fn begin_answer(&self, owner: Option<ShareOwner>) -> Option<HeldShare> {
        owner.map(|owner| HeldShare::new(&self.answer_bytes, owner))
    }

    /// Whether this caller may still make requests whose answers have to be sent, of whatever length: it holds less than its share of
    /// the `total` bytes of unread answers.
    pub fn check_answers(&self, owner: Option<ShareOwner>, total: usize) -> Result<(), ApiError> {
        match owner {
            Some(owner) if self.answer_bytes.held_by(owner) >= self.share_of(total) => {
                Err(self.over_share(Limit::AnswerBytes, owner, total))
            }
            _ => Ok(()),
        }
    }

    /// Counts the bytes of an answer that has to be sent, even if its caller then holds more than its share.
    pub fn hold_answer(&self, owner: Option<ShareOwner>, bytes: usize) -> Option<HeldShare> {
        let mut held = self.begin_answer(owner)?;
        held.grow(bytes, usize::MAX);
        Some(held)
    }

    /// Takes more bytes of `total` that all callers together may have. `largest`: so many are allowed in any case, since one request
    /// may need them.
    pub fn grow(
        &self,
        limit: Limit,
        held: &mut Option<HeldShare>,
        bytes: usize,
        total: usize,
        largest: usize,
    ) -> Result<(), ApiError> {
        let Some(held) = held else {
            return Ok(());
        };
        let share = self.share_of(total).max(largest);
        match held.grow(bytes, share) {
            true => Ok(()),
            false => Err(self.over(limit, held.owner, share, total)),
        }
    }

    /// The refusal for a caller that has its whole share already.
    pub fn over_share(&self, limit: Limit, owner: ShareOwner, total: usize) -> ApiError {
        self.over(limit, owner, self.share_of(total), total)
    }

    /// The refusal for a caller that may have `share` of `total`.
    fn over(&self, limit: Limit, owner: ShareOwner, share: usize, total: usize) -> ApiError {
        const WAIT_MS: i64 = 1_000;
        let what = match limit {
            Limit::EventStreams => "event streams are open",
            Limit::Downloads => "downloads are under way",
            Limit::BodyBytes => "bytes of request bodies are under way",
            Limit::AnswerBytes => "bytes of answers are unread",
            _ => "requests are waiting",
        };
        let (name, percent) = (owner.name(), self.settings.share_percent);
        let share = match share == self.share_of(total) {
            true => format!("{share}, which is {percent} % of {total}"),
            false => format!("{share} of {total}"),
        };
        let message = format!("too many {what} for {name}: at most {share} (limits.share_percent)");
        self.refuse(limit, "limits.share_percent", message, WAIT_MS)
    }

    fn refuse(&self, limit: Limit, setting: &str, message: String, wait_ms: i64) -> ApiError {
        self.refused[limit as usize].add(1);
        let secs = (wait_ms.max(1) as u64).div_ceil(1_000);
        ApiError {
            details: vec![setting.to_string()],
            retry_after_secs: Some(secs),
            ..ApiError::new(
                429,
                limit.code(),
                format!("{message}; try again in {secs} s"),
            )
        }
    }

    /// `wrong_tokens`: requests that were refused because too many wrong tokens came from their address.
    pub fn write(&self, page: &mut Page, wrong_tokens: u64) {
        let help = "Requests that were refused with 429 because a token or an address went over one of its limits.";
        page.family("stepward_limited_requests_total", Kind::Counter, help);
        for limit in Limit::ALL {
            let count = self.refused[limit as usize].count();
            page.sample(&[("limit", limit.label())], count);
        }
        page.sample(&[("limit", "wrong_tokens")], wrong_tokens);
    }
}

/// Number of shared things that each caller holds now. Callers that hold none are not in the map.
#[derive(Default)]
struct HeldShares {
    by_owner: Mutex<HashMap<ShareOwner, usize>>,
}

/// A part of a share that one request holds until this value is dropped.
pub struct HeldShare {
    shares: Arc<HeldShares>,
    owner: ShareOwner,
    count: usize,
}

impl HeldShare {
    fn new(shares: &Arc<HeldShares>, owner: ShareOwner) -> HeldShare {
        HeldShare {
            shares: shares.clone(),
            owner,
            count: 0,
        }
    }

    /// Takes more. `false`: nothing was taken, because the caller would have more than `max` in all.
    fn grow(&mut self, count: usize, max: usize) -> bool {
        let mut by_owner = self.shares.by_owner();
        let held = by_owner.get(&self.owner).copied().unwrap_or(0);
        if held + count > max {
            return false;
        }
        by_owner.insert(self.owner, held + count);
        self.count += count;
        true
    }
}

impl HeldShares {
    fn held_by(&self, owner: ShareOwner) -> usize {
        self.by_owner().get(&owner).copied().unwrap_or(0)
    }

    fn by_owner(&self) -> MutexGuard<'_, HashMap<ShareOwner, usize>> {
        self.by_owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        let mut by_owner = self.shares.by_owner();
        if let Some(held) = by_owner.get_mut(&self.owner) {
            *held -= self.count;
            if *held == 0 {
                by_owner.remove(&self.owner);
            }
        }
    }
}

/// A rate with a burst, for each of many owners.
///
/// Of each owner one time is kept: when its burst will be whole again. An owner for whom that time is past has its whole burst, the
/// same as an owner that is not known, so it can be forgotten.
struct Rate<K> {
    /// The time after which an owner may do one more, in nanoseconds.
    interval_ns: u64,
    burst: u64,
    hasher: RandomState,
    /// Several, so that callers rarely wait for each other.
    shards: [Mutex<RateShard<K>>; RATE_SHARDS],
}

const RATE_SHARDS: usize = 16;

struct RateShard<K> {
    /// When the burst of each owner will be whole again, in nanoseconds of the monotonic clock.
    whole_at_ns: HashMap<K, u64>,
    /// The same of all owners together that there was no room for.
    others_whole_at_ns: u64,
}

impl<K: Hash + Eq> Rate<K> {
    /// `count` in each period, after a burst.
    fn new(count: u32, period_ms: u64, burst: u32) -> Rate<K> {
        let shard = |_| {
            Mutex::new(RateShard {
                whole_at_ns: HashMap::new(),
                others_whole_at_ns: 0,
            })
        };
        Rate {
            interval_ns: period_ms * 1_000_000 / u64::from(count.max(1)),
            burst: u64::from(burst.max(1)),
            hasher: RandomState::new(),
            shards: std::array::from_fn(shard),
        }
    }

    /// Counts `count`, or says in how many milliseconds there is room for that many. More than the burst count as the burst.
    fn take(&self, owner: K, count: u32, now_ms: i64) -> Result<(), i64> {
        let now_ns = now_ms.max(0) as u64 * 1_000_000;
        let shard = self.hasher.hash_one(&owner) as usize % RATE_SHARDS;
        let mut shard = self.shards[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let RateShard {
            whole_at_ns,
            others_whole_at_ns,
        } = &mut *shard;
        if whole_at_ns.len() >= OWNERS_MAX / RATE_SHARDS && !whole_at_ns.contains_key(&owner) {
            whole_at_ns.retain(|_, whole_at| *whole_at > now_ns);
        }
        let has_room = whole_at_ns.len() < OWNERS_MAX / RATE_SHARDS;
        let whole_at = match has_room || whole_at_ns.contains_key(&owner) {
            true => whole_at_ns.entry(owner).or_insert(0),
            false => others_whole_at_ns,
        };
        let count = u64::from(count).min(self.burst);
        let next = (*whole_at).max(now_ns) + count * self.interval_ns;
        let latest = now_ns + self.burst * self.interval_ns;
        if next <= latest {
            *whole_at = next;
            return Ok(());
        }
        Err((next - latest).div_ceil(1_000_000) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_lets_a_burst_through_and_then_so_many_in_each_period() {
        let rate = Rate::new(10, 1_000, 3);
        let take = |at_ms: i64| rate.take("ann", 1, at_ms);
        assert_eq!([take(0), take(0), take(0)], [Ok(()); 3]);
        assert_eq!(take(0), Err(100));
        assert_eq!(take(99), Err(1));
        assert_eq!(take(100), Ok(()));
        assert_eq!(take(100), Err(100));
        assert_eq!(
            rate.take("bob", 1, 100),
            Ok(()),
            "another owner has its own"
        );
        // After a pause the burst is whole again, and no larger.
        assert_eq!([take(9_000), take(9_000), take(9_000)], [Ok(()); 3]);
        assert_eq!(take(9_000), Err(100));
    }

    #[test]
    fn many_at_once_count_as_many_and_never_more_than_the_burst() {
        let rate = Rate::new(10, 1_000, 3);
        assert_eq!(rate.take("ann", 2, 0), Ok(()));
        assert_eq!(rate.take("ann", 2, 0), Err(100));
        assert_eq!(rate.take("ann", 1, 0), Ok(()), "a refusal counts nothing");
        assert_eq!(
            rate.take("bob", 100, 0),
            Ok(()),
            "else it could never be done"
        );
        assert_eq!(rate.take("bob", 1, 0), Err(100));
    }

    #[test]
    fn a_flood_of_addresses_takes_no_more_memory_and_spares_who_is_known() {
        let rate = Rate::new(1, 1_000, 2);
        assert_eq!(rate.take(u32::MAX, 1, 0), Ok(()));
        for address in 0..50_000_u32 {
            // Whether it is refused is not the question here.
            let _ = rate.take(address, 1, 0);
        }
        let known = |rate: &Rate<u32>| -> usize {
            let shards = rate.shards.iter();
            shards
                .map(|shard| shard.lock().unwrap().whole_at_ns.len())
                .sum()
        };
        assert!(known(&rate) <= OWNERS_MAX);
        assert_eq!(rate.take(u32::MAX, 1, 0), Ok(()), "it has its own count");
        // Whoever is idle makes room for the next one.
        assert_eq!(rate.take(60_000, 1, 10_000), Ok(()));
        assert!(known(&rate) < OWNERS_MAX);
    }

    #[test]
    fn only_loopback_without_tokens_is_exempt() {
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let away: IpAddr = "2001:db8::1".parse().unwrap();
        let local = Caller::local();
        assert_eq!(ShareOwner::of(&local, here, false), None);
        assert!(ShareOwner::of(&local, here, true).is_some());
        assert_eq!(
            ShareOwner::of(&local, away, false),
            Some(ShareOwner::Address("2001:db8::".parse().unwrap()))
        );
        let settings = Caller::of_settings();
        assert_eq!(
            ShareOwner::of(&settings, here, true),
            Some(ShareOwner::Settings)
        );
    }

    #[test]
    fn a_held_share_is_given_back_when_it_is_dropped() {
        let shares = Shares::new(ServerLimits::default());
        let owner = Some(ShareOwner::Settings);
        let held: Vec<_> = (0..4)
            .map(|_| shares.begin_download(owner, 16).unwrap())
            .collect();
        let refused = shares.begin_download(owner, 16).err().unwrap();
        assert_eq!((refused.status, refused.code), (429, "too_many_downloads"));
        assert!(shares.begin_download(None, 16).unwrap().is_none());
        drop(held);
        assert!(shares.begin_download(owner, 16).is_ok());
        assert!(shares.downloads.by_owner.lock().unwrap().is_empty());
    }
}
