//! The audit log: what people and tokens did, as a chain of rows in which each row contains the hash of the row before it.
//!
//! The hash of a row is SHA-256 over the hash of the previous row (32 bytes) followed by the fields of the row in the order `seq`,
//! `at`, `actor`, `token_id`, `address`, `action`, `object`, `outcome`, `detail`. Every field is encoded as its length in bytes (four
//! bytes, big endian) followed by its UTF-8 text; numbers are written in decimal. A field that is NULL is encoded as the length
//! 0xFFFFFFFF without text. The row before the first one has number 0 and a hash of 32 zero bytes.
//!
//! The encoding is part of the product: `docs/security.md` and `schema.sql` describe it for people who verify an export with their
//! own tools.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{JobId, Timestamp, TokenId, words};

/// The name under which the server itself acts, for example when it loads changed workflow files.
pub const SERVER: &str = "server";
/// The target of the log lines that name the head of the chain. They are written at every level of the log but `off`, so that a
/// copy of the head is somewhere else.
pub const HEAD_LOG_TARGET: &str = "stepward::audit_head";
/// The name of a caller who showed no valid token.
pub const UNKNOWN: &str = "unknown";
/// The beginning of the name under which a webhook makes jobs.
pub const WEBHOOK_PREFIX: &str = "webhook:";

/// Length limit of the field `detail`.
pub const DETAIL_BYTES_MAX: usize = 2_048;
/// Length limit of a text that a person wrote, such as the reason of a rejection, within `detail`.
pub const AUDIT_TEXT_BYTES_MAX: usize = 500;
/// Length limit of `actor` and `object`.
pub const NAME_BYTES_MAX: usize = 512;

words! {
    /// The action that was done, or that was tried and refused.
    pub enum AuditAction {
        /// The first row of a chain. It names the installation.
        AuditBegun = "audit_begun",
        LoggedIn = "logged_in",
        LoggedOut = "logged_out",
        /// Wrong tokens or wrong webhook secrets came from an address.
        LoginRefused = "login_refused",
        /// The role of a token did not allow a request.
        PermissionRefused = "permission_refused",
        TokenMade = "token_made",
        TokenRevoked = "token_revoked",
        WorkerEnrolled = "worker_enrolled",
        /// An enrolment was shown a second time.
        EnrolmentRefused = "enrolment_refused",
        /// A worker's token was shown for a session of another worker.
        ScopeViolated = "scope_violated",
        JobSubmitted = "job_submitted",
        JobCancelled = "job_cancelled",
        JobRetried = "job_retried",
        JobKept = "job_kept",
        JobReleased = "job_released",
        StepApproved = "step_approved",
        StepRejected = "step_rejected",
        StepRequeued = "step_requeued",
        StepFailed = "step_failed",
        SchedulePaused = "schedule_paused",
        ScheduleResumed = "schedule_resumed",
        ScheduleFired = "schedule_fired",
        WorkerPaused = "worker_paused",
        WorkerResumed = "worker_resumed",
        WorkerDrained = "worker_drained",
        WorkerDeleted = "worker_deleted",
        JobsPruned = "jobs_pruned",
        EventsPruned = "events_pruned",
        RecoverySwept = "recovery_swept",
        NotifyTested = "notify_tested",
        MessageRedelivered = "message_redelivered",
        BackupTaken = "backup_taken",
        BackupRestored = "backup_restored",
        OlderDatabaseAccepted = "older_database_accepted",
        /// Since this start the server asks for tokens.
        AuthenticationEnabled = "authentication_enabled",
        /// Since this start the server asks nobody for a token.
        AuthenticationDisabled = "authentication_disabled",
        SettingsChanged = "settings_changed",
        WorkflowsChanged = "workflows_changed",
    }
}

words! {
    pub enum AuditOutcome {
        Allowed = "allowed",
        Refused = "refused",
    }
}

/// The caller of an operation, as the audit log names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name of the token, or one of the names that stand for no token, such as `local`.
    pub name: Arc<str>,
    pub token_id: Option<TokenId>,
    /// The IP address that the request came from. Behind a proxy this is the proxy.
    pub address: Option<String>,
    /// Whether events name the actor too. Events name people and tokens only.
    pub is_named_in_events: bool,
}

impl Actor {
    pub fn named(name: &str) -> Actor {
        Actor {
            name: name.into(),
            token_id: None,
            address: None,
            is_named_in_events: true,
        }
    }

    /// The server acting by itself.
    pub fn server() -> Actor {
        Actor {
            is_named_in_events: false,
            ..Actor::named(SERVER)
        }
    }

    /// A webhook whose sender proved to know the secret.
    pub fn webhook(name: &str, address: String) -> Actor {
        Actor {
            address: Some(address),
            is_named_in_events: false,
            ..Actor::named(&format!("{WEBHOOK_PREFIX}{name}"))
        }
    }

    /// The name that events show, if they show one.
    pub fn event_name(&self) -> Option<&str> {
        self.is_named_in_events.then_some(&*self.name)
    }
}

/// Whether the audit log uses the name for somebody who is not a token.
pub fn is_reserved_name(name: &str) -> bool {
    [SERVER, UNKNOWN].contains(&name) || name.starts_with(WEBHOOK_PREFIX)
}

/// A row about to be written. The store adds the time, the actor and the place in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub action: AuditAction,
    pub object: Option<String>,
    pub outcome: AuditOutcome,
    /// A JSON object as text.
    pub detail: Option<String>,
}

impl AuditEntry {
    pub fn of(action: AuditAction) -> AuditEntry {
        AuditEntry {
            action,
            object: None,
            outcome: AuditOutcome::Allowed,
            detail: None,
        }
    }

    pub fn refused(action: AuditAction) -> AuditEntry {
        AuditEntry {
            outcome: AuditOutcome::Refused,
            ..AuditEntry::of(action)
        }
    }

    /// Names the object as `KIND/ID`.
    pub fn object(self, kind: &str, id: impl fmt::Display) -> AuditEntry {
        AuditEntry {
            object: Some(format!("{kind}/{id}")),
            ..self
        }
    }

    pub fn job(self, job_id: JobId) -> AuditEntry {
        self.object("job", job_id)
    }

    /// Names a step by its job and its name, as `job/12/step/build`.
    pub fn step(self, job_id: JobId, step: &str) -> AuditEntry {
        self.object("job", format_args!("{job_id}/step/{step}"))
    }

    /// A JSON object as text. An empty object is left out, and one that is too long says so instead.
    pub fn detail(self, detail: Option<String>) -> AuditEntry {
        let detail = detail.filter(|detail| detail != "{}");
        let detail = detail.map(|detail| match detail.len() <= DETAIL_BYTES_MAX {
            true => detail,
            false => format!("{{\"left_out_bytes\":{}}}", detail.len()),
        });
        AuditEntry { detail, ..self }
    }
}

/// SHA-256 of a row and of everything before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditHash(pub [u8; 32]);

impl AuditHash {
    /// The hash before the first row of a chain.
    pub const GENESIS: AuditHash = AuditHash([0; 32]);

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<AuditHash> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = (digit(0)? * 16 + digit(1)?) as u8;
        }
        Some(AuditHash(bytes))
    }
}

impl fmt::Display for AuditHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A row's number and hash: enough to continue the chain after this row, and to recognise it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainLink {
    pub seq: i64,
    pub hash: AuditHash,
}

impl ChainLink {
    /// The link before the first row.
    pub const GENESIS: ChainLink = ChainLink {
        seq: 0,
        hash: AuditHash::GENESIS,
    };

    /// Reads `SEQ:HASH`.
    pub fn parse(text: &str) -> Option<ChainLink> {
        let (seq, hash) = text.split_once(':')?;
        Some(ChainLink {
            seq: seq.parse().ok().filter(|seq| *seq >= 0)?,
            hash: AuditHash::parse(hash)?,
        })
    }
}

impl fmt::Display for ChainLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

/// A row as it is stored. The words are texts, so that a row that was tampered with can be read and reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub seq: i64,
    pub at: Timestamp,
    pub actor: String,
    pub token_id: Option<i64>,
    pub address: Option<String>,
    pub action: String,
    pub object: Option<String>,
    pub outcome: String,
    pub detail: Option<String>,
    pub hash: AuditHash,
}

impl AuditRow {
    /// The hash that the row must have after this one.
    pub fn expected_hash(&self, previous: &AuditHash) -> AuditHash {
        let mut encoded = Vec::with_capacity(256);
        encoded.extend_from_slice(&previous.0);
        let mut put = |field: Option<&str>| match field {
            Some(text) => {
                encoded.extend_from_slice(&(text.len() as u32).to_be_bytes());
                encoded.extend_from_slice(text.as_bytes());
            }
            None => encoded.extend_from_slice(&u32::MAX.to_be_bytes()),
        };
        put(Some(&self.seq.to_string()));
        put(Some(&self.at.0.to_string()));
        put(Some(&self.actor));
        put(self.token_id.map(|id| id.to_string()).as_deref());
        put(self.address.as_deref());
        put(Some(&self.action));
        put(self.object.as_deref());
        put(Some(&self.outcome));
        put(self.detail.as_deref());
        AuditHash(Sha256::digest(&encoded).into())
    }

    pub fn link(&self) -> ChainLink {
        ChainLink {
            seq: self.seq,
            hash: self.hash,
        }
    }
}

words! {
    /// Why no row can be verified from the anchor of a chain.
    pub enum AnchorFault {
        /// Its number or its hash is something that the server never writes.
        Unreadable = "unreadable",
        /// There is another row where the server writes at most one.
        Additional = "additional",
    }
}

/// The first place at which a chain does not fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainFault {
    /// The anchor, from which the first row is verified, was changed.
    Anchor(AnchorFault),
    /// The number of a row is not one higher than that of the row before.
    Gap { expected: i64, found: i64 },
    /// The row, or its hash, was changed.
    Changed { seq: i64 },
    /// A field of the row holds something that the server never writes, such as a text that is not UTF-8.
    Unreadable { seq: i64 },
    /// The chain has the expected row, with another hash.
    Differs {
        expected: ChainLink,
        found: AuditHash,
    },
    /// The chain ends before the expected row.
    TooShort { expected: ChainLink, last: i64 },
    /// The chain begins after the expected row, so nothing can be said about that row.
    Removed { expected: ChainLink, first: i64 },
    /// The chain ends before a row that the database itself noted outside of the chain.
    EndRemoved { noted: i64, last: i64 },
}

impl fmt::Display for ChainFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChainFault::Anchor(AnchorFault::Unreadable) => write!(
                f,
                "the anchor of the chain cannot be read: its number or its hash is something that the server never writes"
            ),
            ChainFault::Anchor(AnchorFault::Additional) => write!(
                f,
                "the chain has an additional anchor: the server writes at most one, and another row was added"
            ),
            ChainFault::Gap { expected, found } => write!(
                f,
                "row {expected} is missing: row {found} follows row {}",
                expected - 1
            ),
            ChainFault::Changed { seq } => write!(
                f,
                "row {seq} does not fit its hash: the row or its hash was changed"
            ),
            ChainFault::Unreadable { seq } => write!(
                f,
                "row {seq} cannot be read: a field holds something that the server never writes"
            ),
            ChainFault::Differs { expected, found } => write!(
                f,
                "row {} has the hash {found}, expected was {}: the chain was rebuilt since that hash was noted",
                expected.seq, expected.hash
            ),
            ChainFault::TooShort { expected, last } => write!(
                f,
                "row {} is missing: the chain ends with row {last}; rows were removed from its end, or an older database was restored",
                expected.seq
            ),
            ChainFault::Removed { expected, first } => write!(
                f,
                "row {} cannot be compared: retention removed it, the chain begins with row {first}; compare with a newer hash",
                expected.seq
            ),
            ChainFault::EndRemoved { noted, last } => write!(
                f,
                "row {noted} is missing: the database has noted it, and the chain ends with row {last}; rows were removed from its end"
            ),
        }
    }
}

/// A walk along a chain, row by row, from the anchor to the head.
#[derive(Debug, Clone)]
pub struct ChainWalk {
    last: ChainLink,
    rows: u64,
    anchor: ChainLink,
    /// Links that the chain must contain, until they are found.
    expected: Vec<ChainLink>,
}

impl ChainWalk {
    pub fn from(anchor: ChainLink) -> ChainWalk {
        ChainWalk {
            last: anchor,
            rows: 0,
            anchor,
            expected: Vec::new(),
        }
    }

    /// The chain must contain these links, such as one that was logged or exported before.
    pub fn expecting(mut self, expected: impl IntoIterator<Item = ChainLink>) -> ChainWalk {
        self.expected.extend(expected);
        self
    }

    pub fn step(&mut self, row: &AuditRow) -> Result<(), ChainFault> {
        if self.last.seq.checked_add(1) != Some(row.seq) {
            return Err(ChainFault::Gap {
                expected: self.last.seq.saturating_add(1),
                found: row.seq,
            });
        }
        if row.expected_hash(&self.last.hash) != row.hash {
            return Err(ChainFault::Changed { seq: row.seq });
        }
        self.last = row.link();
        self.rows += 1;
        self.compare(self.last)
    }

    /// Ends the walk. Returns the head and the number of rows.
    pub fn end(mut self) -> Result<(ChainLink, u64), ChainFault> {
        self.compare(self.anchor)?;
        let anchor_seq = self.anchor.seq;
        let mut expected = self.expected.iter().copied();
        // That a row cannot be compared says nothing about the chain, so a fault of the chain comes first.
        if let Some(expected) = expected.clone().find(|it| it.seq > anchor_seq) {
            return Err(ChainFault::TooShort {
                expected,
                last: self.last.seq,
            });
        }
        match expected.next() {
            None => Ok((self.last, self.rows)),
            Some(expected) => Err(ChainFault::Removed {
                expected,
                first: anchor_seq.saturating_add(1),
            }),
        }
    }

    /// Ends the walk. The database has noted, outside of the chain, that the chain had a row with the number `noted`.
    pub fn end_with_noted(self, noted: i64) -> Result<(ChainLink, u64), ChainFault> {
        let last = self.last.seq;
        match self.end() {
            Ok(_) | Err(ChainFault::Removed { .. }) if noted > last => {
                Err(ChainFault::EndRemoved { noted, last })
            }
            end => end,
        }
    }

    /// The last link that fits.
    pub fn last(&self) -> ChainLink {
        self.last
    }

    /// Number of rows that fit.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    fn compare(&mut self, link: ChainLink) -> Result<(), ChainFault> {
        let expected = self.expected.iter().copied();
        let expected: Vec<ChainLink> = expected.filter(|it| it.seq == link.seq).collect();
        self.expected.retain(|it| it.seq != link.seq);
        match expected.into_iter().find(|it| it.hash != link.hash) {
            None => Ok(()),
            Some(expected) => Err(ChainFault::Differs {
                expected,
                found: link.hash,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seq: i64, previous: &AuditHash) -> AuditRow {
        let mut row = AuditRow {
            seq,
            at: Timestamp(1_800_000_000_000 + seq),
            actor: "ada".to_string(),
            token_id: Some(7),
            address: Some("127.0.0.1".to_string()),
            action: "job_cancelled".to_string(),
            object: Some("job/12".to_string()),
            outcome: "allowed".to_string(),
            detail: None,
            hash: AuditHash::GENESIS,
        };
        row.hash = row.expected_hash(previous);
        row
    }

    fn chain(rows: i64) -> Vec<AuditRow> {
        let mut all: Vec<AuditRow> = Vec::new();
        for seq in 1..=rows {
            let previous = all.last().map_or(AuditHash::GENESIS, |last| last.hash);
            all.push(row(seq, &previous));
        }
        all
    }

    fn verify(rows: &[AuditRow], expected: Option<ChainLink>) -> Result<ChainLink, ChainFault> {
        let mut walk = ChainWalk::from(ChainLink::GENESIS).expecting(expected);
        for row in rows {
            walk.step(row)?;
        }
        walk.end().map(|(head, _)| head)
    }

    /// The value was computed by a program in another language, from the description of the encoding alone.
    #[test]
    fn the_encoding_is_the_documented_one() {
        let row = row(1, &AuditHash::GENESIS);
        assert_eq!(
            row.hash.to_string(),
            "547833d3e42c6e3d8f549f36bc681783a267cf52e84de824c8057e1195dda039"
        );
    }

    #[test]
    fn every_change_of_any_field_is_found() {
        type Change = fn(&mut AuditRow);
        let changes: [(&str, Change); 10] = [
            ("at", |row| row.at.0 += 1),
            ("actor", |row| row.actor = "eve".to_string()),
            ("token_id", |row| row.token_id = Some(8)),
            ("no token_id", |row| row.token_id = None),
            ("address", |row| row.address = None),
            ("action", |row| row.action = "job_kept".to_string()),
            ("object", |row| row.object = Some(String::new())),
            ("outcome", |row| row.outcome = "refused".to_string()),
            ("detail", |row| row.detail = Some(String::new())),
            ("hash", |row| row.hash.0[31] ^= 1),
        ];
        for at in 0..5 {
            for (what, change) in changes {
                let mut rows = chain(5);
                change(&mut rows[at]);
                let seq = at as i64 + 1;
                let found = verify(&rows, None);
                assert_eq!(found, Err(ChainFault::Changed { seq }), "{what}");
            }
        }
    }

    #[test]
    fn text_that_moves_from_one_field_to_the_next_is_found() {
        let mut rows = chain(2);
        rows[0].action = "job_cancelledjob".to_string();
        rows[0].object = Some("/12".to_string());
        assert_eq!(verify(&rows, None), Err(ChainFault::Changed { seq: 1 }));
    }

    #[test]
    fn removed_and_reordered_rows_are_found() {
        for at in 0..4 {
            let mut rows = chain(5);
            rows.remove(at);
            let (expected, found) = (at as i64 + 1, at as i64 + 2);
            let gap = ChainFault::Gap { expected, found };
            assert_eq!(verify(&rows, None), Err(gap));
        }
        let mut rows = chain(5);
        rows.swap(1, 2);
        assert!(verify(&rows, None).is_err());
        // Rows whose numbers were changed as well, so that there is no gap.
        let mut rows = chain(5);
        rows.remove(2);
        rows[2].seq = 3;
        rows[3].seq = 4;
        assert_eq!(verify(&rows, None), Err(ChainFault::Changed { seq: 3 }));
    }

    #[test]
    fn a_noted_head_tells_of_a_shortened_and_of_a_rebuilt_chain() {
        let rows = chain(5);
        let head = rows[4].link();
        assert_eq!(verify(&rows, Some(head)), Ok(head));
        assert_eq!(verify(&rows, Some(rows[1].link())), Ok(head));
        assert_eq!(verify(&rows, Some(ChainLink::GENESIS)), Ok(head));
        let short = ChainFault::TooShort {
            expected: head,
            last: 4,
        };
        assert_eq!(verify(&rows[..4], Some(head)), Err(short));
        let mut rebuilt: Vec<AuditRow> = Vec::new();
        for mut row in rows {
            row.actor = "eve".to_string();
            let previous = rebuilt.last().map_or(AuditHash::GENESIS, |last| last.hash);
            row.hash = row.expected_hash(&previous);
            rebuilt.push(row);
        }
        assert!(verify(&rebuilt, None).is_ok());
        let differs = ChainFault::Differs {
            expected: head,
            found: rebuilt[4].hash,
        };
        assert_eq!(verify(&rebuilt, Some(head)), Err(differs));
    }

    #[test]
    fn a_chain_without_its_oldest_rows_is_verified_from_the_anchor() {
        let rows = chain(5);
        let mut walk = ChainWalk::from(rows[1].link()).expecting(Some(rows[0].link()));
        for row in &rows[2..] {
            walk.step(row).unwrap();
        }
        let removed = ChainFault::Removed {
            expected: rows[0].link(),
            first: 3,
        };
        assert_eq!(walk.clone().end(), Err(removed.clone()));
        assert_eq!(walk.clone().end_with_noted(5), Err(removed));
        // A fault of the chain is more than a row that cannot be compared.
        let end_removed = ChainFault::EndRemoved { noted: 6, last: 5 };
        assert_eq!(walk.clone().end_with_noted(6), Err(end_removed));
        let expected = ChainLink {
            seq: 6,
            ..rows[4].link()
        };
        let too_short = ChainFault::TooShort { expected, last: 5 };
        assert_eq!(walk.expecting([expected]).end(), Err(too_short));
    }

    #[test]
    fn a_chain_is_compared_with_every_link_that_is_expected() {
        let rows = chain(3);
        let other = ChainLink {
            hash: AuditHash::GENESIS,
            ..rows[2].link()
        };
        let walked = |expected: [ChainLink; 2]| {
            let mut walk = ChainWalk::from(ChainLink::GENESIS).expecting(expected);
            rows.iter().try_for_each(|row| walk.step(row))?;
            walk.end()
        };
        let (one, last) = (rows[0].link(), rows[2].link());
        assert_eq!(walked([one, last]), Ok((last, 3)));
        for expected in [[last, other], [other, last], [one, other]] {
            let differs = ChainFault::Differs {
                expected: other,
                found: last.hash,
            };
            assert_eq!(walked(expected), Err(differs));
        }
    }

    #[test]
    fn no_row_follows_the_last_number_there_is() {
        let last = ChainLink {
            seq: i64::MAX,
            hash: AuditHash::GENESIS,
        };
        let gap = ChainFault::Gap {
            expected: i64::MAX,
            found: 1,
        };
        let first = row(1, &AuditHash::GENESIS);
        assert_eq!(ChainWalk::from(last).step(&first), Err(gap));
    }

    #[test]
    fn a_link_is_read_as_it_is_written() {
        let link = chain(3)[2].link();
        assert_eq!(ChainLink::parse(&link.to_string()), Some(link));
        for odd in ["", "3", "3:", "-3:00", "x:y", &format!("{link}0")] {
            assert_eq!(ChainLink::parse(odd), None, "{odd}");
        }
    }
}
