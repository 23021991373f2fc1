//! The audit log: rows are appended at the end of their chain, and removed from its beginning.
//!
//! A row is written by the transaction of the change that it records. Transactions that share a commit run one after another, so
//! each finds the row of the one before it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, Row, named_params};

use super::invariants::Breach;
use super::{StoreError, Tx};
use crate::domain::audit::{
    Actor, AnchorFault, AuditAction, AuditEntry, AuditHash, AuditRow, ChainFault, ChainLink,
    ChainWalk, NAME_BYTES_MAX,
};
use crate::domain::limits::clip;
use crate::domain::{Now, Timestamp};

pub const STATEMENTS: &[&str] = &[
    LAST_LINK,
    ANCHOR,
    HAS_ADDITIONAL_ANCHOR,
    APPEND,
    ROWS_FROM,
    ROWS_BEFORE,
    LINK_AT,
    LAST_UP_TO,
    REMOVE_UP_TO,
    SET_ANCHOR,
    KNOWN,
    SET_KNOWN,
    NOTED_SEQ,
];

const LAST_LINK: &str = "
    SELECT seq, hash FROM audit WHERE seq > 0 ORDER BY seq DESC LIMIT 1
";

const ANCHOR: &str = "
    SELECT seq, hash FROM audit_anchor WHERE only_row = 1
";

const HAS_ADDITIONAL_ANCHOR: &str = "
    SELECT EXISTS (SELECT 1 FROM audit_anchor WHERE only_row < 1)
        OR EXISTS (SELECT 1 FROM audit_anchor WHERE only_row > 1)
";

const APPEND: &str = "
    INSERT INTO audit (seq, at, actor, token_id, address, action, object, outcome, detail, hash)
    VALUES (:seq, :at, :actor, :token_id, :address, :action, :object, :outcome, :detail, :hash)
";

const ROWS_FROM: &str = "
    SELECT seq, at, actor, token_id, address, action, object, outcome, detail, hash
      FROM audit
     WHERE seq >= :from
     ORDER BY seq
     LIMIT :limit
";

const ROWS_BEFORE: &str = "
    SELECT seq, at, actor, token_id, address, action, object, outcome, detail, hash
      FROM audit
     WHERE seq < :before
     ORDER BY seq DESC
     LIMIT :limit
";

const LINK_AT: &str = "
    SELECT seq, hash FROM audit WHERE seq = :seq
";

const LAST_UP_TO: &str = "
    SELECT max(seq)
      FROM (SELECT seq FROM audit WHERE seq <= :up_to ORDER BY seq LIMIT :limit)
";

const REMOVE_UP_TO: &str = "
    DELETE FROM audit WHERE seq <= :up_to
";

const SET_ANCHOR: &str = "
    INSERT INTO audit_anchor (only_row, seq, hash) VALUES (1, :seq, :hash)
    ON CONFLICT (only_row) DO UPDATE SET seq = excluded.seq, hash = excluded.hash
";

const KNOWN: &str = "
    SELECT value FROM audit_known WHERE subject = :subject
";

const SET_KNOWN: &str = "
    INSERT INTO audit_known (subject, value) VALUES (:subject, :value)
    ON CONFLICT (subject) DO UPDATE SET value = excluded.value
";

const NOTED_SEQ: &str = "
    SELECT coalesce(max(audit_seq), 0) FROM milestone
";

/// Rows that one page of a filtered list looks at. A page with fewer matches than asked for may have a successor.
pub const AUDIT_SCAN_MAX: u32 = 20_000;

/// Which rows a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub actor: Option<String>,
    pub action: Option<AuditAction>,
    pub since: Option<Timestamp>,
}

impl AuditFilter {
    pub fn matches(&self, row: &AuditRow) -> bool {
        self.actor.as_ref().is_none_or(|actor| row.actor == *actor)
            && self
                .action
                .is_none_or(|action| row.action == action.as_str())
            && self.since.is_none_or(|since| row.at >= since)
    }
}

/// A page of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPage {
    pub rows: Vec<AuditRow>,
    /// Position at which the next page continues. `None`: there are no more rows.
    pub next: Option<i64>,
}

/// Kinds of facts that the server remembers from one start to the next, to record changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditSubject {
    /// Whether the server asks for tokens.
    Authentication,
    /// A hash of each setting.
    Settings,
    /// A hash of each task.
    Workflows,
}

impl AuditSubject {
    fn as_str(self) -> &'static str {
        match self {
            AuditSubject::Authentication => "authentication",
            AuditSubject::Settings => "settings",
            AuditSubject::Workflows => "workflows",
        }
    }
}

impl Tx<'_> {
    /// Appends a row if somebody is named who makes this call. What the server does by itself is not recorded.
    pub fn audit(&self, entry: &AuditEntry, now: Now) -> Result<(), StoreError> {
        let actor = self.changes.borrow().actor.clone();
        match actor {
            Some(actor) => self.audit_as(&actor, entry, now),
            None => Ok(()),
        }
    }

    /// Appends a row that names this actor.
    pub fn audit_as(&self, actor: &Actor, entry: &AuditEntry, now: Now) -> Result<(), StoreError> {
        let mut last = self.audit_head()?;
        if last == ChainLink::GENESIS {
            let installation = self.installation_key()?;
            let begun =
                AuditEntry::of(AuditAction::AuditBegun).object("installation", installation);
            last = self.append_audit(&Actor::server(), &begun, last, now)?;
        }
        self.append_audit(actor, entry, last, now)?;
        Ok(())
    }

    fn append_audit(
        &self,
        actor: &Actor,
        entry: &AuditEntry,
        last: ChainLink,
        now: Now,
    ) -> Result<ChainLink, StoreError> {
        // The server never comes to the highest number there is. Somebody who added such a row is told of.
        let seq = last.seq.checked_add(1);
        let seq = seq.ok_or_else(|| StoreError::Unreadable {
            expected: "the number of the last row of the audit log, which is not the highest number there is,",
            found: last.seq.to_string(),
        })?;
        let mut row = AuditRow {
            seq,
            at: now.wall,
            actor: clip(&actor.name, NAME_BYTES_MAX),
            token_id: actor.token_id.map(|id| id.0),
            address: actor.address.clone(),
            action: entry.action.as_str().to_string(),
            object: entry.object.as_deref().map(|it| clip(it, NAME_BYTES_MAX)),
            outcome: entry.outcome.as_str().to_string(),
            detail: entry.detail.clone(),
            hash: AuditHash::GENESIS,
        };
        row.hash = row.expected_hash(&last.hash);
        self.sql(APPEND)?.execute(named_params! {
            ":seq": row.seq,
            ":at": row.at.0,
            ":actor": row.actor,
            ":token_id": row.token_id,
            ":address": row.address,
            ":action": row.action,
            ":object": row.object,
            ":outcome": row.outcome,
            ":detail": row.detail,
            ":hash": row.hash.0,
        })?;
        Ok(row.link())
    }

    /// The last row, or what stands for it if there is none.
    pub fn audit_head(&self) -> Result<ChainLink, StoreError> {
        let last = self.sql(LAST_LINK)?.query_row([], link).optional()?;
        match last {
            Some(last) => Ok(last),
            None => self.audit_anchor(),
        }
    }

    /// The last row that retention has removed, as far as it can be read.
    pub fn audit_anchor(&self) -> Result<ChainLink, StoreError> {
        Ok(self.checked_audit_anchor()?.0)
    }

    /// The last row that retention has removed, as far as it can be read, and what is wrong with it.
    pub fn checked_audit_anchor(&self) -> Result<(ChainLink, Option<AnchorFault>), StoreError> {
        let has_additional = (self.sql(HAS_ADDITIONAL_ANCHOR)?).query_row([], |row| row.get(0))?;
        let mut statement = self.sql(ANCHOR)?;
        let mut rows = statement.query([])?;
        let (anchor, is_readable) = match rows.next()? {
            None => (ChainLink::GENESIS, true),
            Some(row) => {
                let seq = row.get_ref(0)?.as_i64().ok().filter(|seq| *seq > 0);
                let hash = hash(row.get_ref(1)?);
                let anchor = ChainLink {
                    seq: seq.unwrap_or(ChainLink::GENESIS.seq),
                    hash: hash.unwrap_or(ChainLink::GENESIS.hash),
                };
                (anchor, seq.is_some() && hash.is_some())
            }
        };
        let fault = match has_additional {
            true => Some(AnchorFault::Additional),
            false if !is_readable => Some(AnchorFault::Unreadable),
            false => None,
        };
        Ok((anchor, fault))
    }

    /// Oldest first. `i64::MIN` stands for the beginning: a row with this number is returned, too.
    pub fn audit_after(&self, after: i64, limit: u32) -> Result<Vec<AuditRow>, StoreError> {
        let from = match after {
            i64::MIN => after,
            i64::MAX => return Ok(Vec::new()),
            after => after + 1,
        };
        let mut statement = self.sql(ROWS_FROM)?;
        let params = named_params! {":from": from, ":limit": limit};
        let rows = statement.query_map(params, audit_row)?;
        rows.map(|found| Ok(found?.row)).collect()
    }

    /// The highest number of a row that the database has noted outside of the audit log. The chain never ends before it.
    pub fn audit_noted(&self) -> Result<i64, StoreError> {
        Ok(self.sql(NOTED_SEQ)?.query_row([], |row| row.get(0))?)
    }

    /// Newest first. At most `AUDIT_SCAN_MAX` rows are looked at, whether they match or not.
    pub fn audit_before(
        &self,
        before: i64,
        filter: &AuditFilter,
        limit: u32,
    ) -> Result<AuditPage, StoreError> {
        let mut statement = self.sql(ROWS_BEFORE)?;
        let params = named_params! {":before": before, ":limit": AUDIT_SCAN_MAX};
        let mut found = statement.query(params)?;
        let mut page = AuditPage {
            rows: Vec::new(),
            next: None,
        };
        let mut looked_at = 0;
        while let Some(row) = found.next()? {
            let row = audit_row(row)?.row;
            looked_at += 1;
            let seq = row.seq;
            if filter.matches(&row) {
                page.rows.push(row);
            }
            if page.rows.len() == limit as usize || looked_at == AUDIT_SCAN_MAX {
                page.next = Some(seq);
                break;
            }
        }
        Ok(page)
    }

    /// Walks the whole chain, one row in memory at a time. Returns the head and the number of rows, or the first fault.
    pub fn walk_audit(
        &self,
        expected: Option<ChainLink>,
        mut each: impl FnMut(&AuditRow),
    ) -> Result<Result<(ChainLink, u64), ChainFault>, StoreError> {
        let (anchor, fault) = self.checked_audit_anchor()?;
        if let Some(fault) = fault {
            return Ok(Err(ChainFault::Anchor(fault)));
        }
        let mut walk = ChainWalk::from(anchor).expecting(expected);
        let mut statement = self.sql(ROWS_FROM)?;
        // From the very beginning: a row before the anchor does not belong there.
        let mut rows = statement.query(named_params! {":from": i64::MIN, ":limit": -1})?;
        while let Some(row) = rows.next()? {
            let FoundRow { row, is_readable } = audit_row(row)?;
            if !is_readable {
                return Ok(Err(ChainFault::Unreadable { seq: row.seq }));
            }
            if let Err(fault) = walk.step(&row) {
                return Ok(Err(fault));
            }
            each(&row);
        }
        Ok(walk.end_with_noted(self.audit_noted()?))
    }

    /// Returns the faults of the chain, for `db check`.
    pub(super) fn audit_breaches(&self) -> Result<Vec<Breach>, StoreError> {
        let walked = self.walk_audit(None, |_| ())?;
        Ok(walked.err().map(Breach::of_audit).into_iter().collect())
    }

    /// Removes rows from the beginning of the chain, `up_to` the last one that may go, at most `limit` of them. The last removed
    /// row becomes the anchor.
    pub fn remove_audit(&self, up_to: i64, limit: u32) -> Result<usize, StoreError> {
        let params = named_params! {":up_to": up_to, ":limit": limit};
        let last: Option<i64> = self.sql(LAST_UP_TO)?.query_row(params, |row| row.get(0))?;
        let Some(last) = last else {
            return Ok(0);
        };
        let anchor = self
            .sql(LINK_AT)?
            .query_row(named_params! {":seq": last}, link)?;
        self.sql(SET_ANCHOR)?.execute(named_params! {
            ":seq": anchor.seq, ":hash": anchor.hash.0,
        })?;
        let removed = self
            .sql(REMOVE_UP_TO)?
            .execute(named_params! {":up_to": last})?;
        Ok(removed)
    }

    /// Returns what the server last recorded about this subject, or `None` if it never did.
    pub fn audit_known(
        &self,
        subject: AuditSubject,
    ) -> Result<Option<BTreeMap<String, String>>, StoreError> {
        let params = named_params! {":subject": subject.as_str()};
        let text: Option<String> = self
            .sql(KNOWN)?
            .query_row(params, |row| row.get(0))
            .optional()?;
        // A note that cannot be read is replaced by the next one, as if it had never been there.
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    pub fn set_audit_known(
        &self,
        subject: AuditSubject,
        known: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let value = serde_json::to_string(known).expect("a map of texts has a JSON form");
        let params = named_params! {":subject": subject.as_str(), ":value": value};
        self.sql(SET_KNOWN)?.execute(params)?;
        Ok(())
    }
}

pub(super) fn link(row: &Row) -> rusqlite::Result<ChainLink> {
    Ok(ChainLink {
        seq: row.get(0)?,
        hash: hash(row.get_ref(1)?).unwrap_or(AuditHash::GENESIS),
    })
}

/// A row as far as it can be read. A row that was tampered with must not keep people from reading the others.
struct FoundRow {
    row: AuditRow,
    /// Whether `row` is exactly what is stored.
    is_readable: bool,
}

fn audit_row(row: &Row) -> rusqlite::Result<FoundRow> {
    let mut is_readable = true;
    let mut text = |column: usize| -> rusqlite::Result<Option<String>> {
        let bytes = match row.get_ref(column)? {
            ValueRef::Null => return Ok(None),
            ValueRef::Text(bytes) => bytes,
            _ => b"\xff",
        };
        let text = String::from_utf8_lossy(bytes);
        is_readable &= matches!(text, Cow::Borrowed(_));
        Ok(Some(text.into_owned()))
    };
    let actor = text(2)?;
    let (address, action, object) = (text(4)?, text(5)?, text(6)?);
    let (outcome, detail) = (text(7)?, text(8)?);
    let hash = hash(row.get_ref(9)?);
    let is_whole = actor.is_some() && action.is_some() && outcome.is_some() && hash.is_some();
    Ok(FoundRow {
        is_readable: is_readable && is_whole,
        row: AuditRow {
            seq: row.get(0)?,
            at: Timestamp(row.get(1)?),
            actor: actor.unwrap_or_default(),
            token_id: row.get(3)?,
            address,
            action: action.unwrap_or_default(),
            object,
            outcome: outcome.unwrap_or_default(),
            detail,
            hash: hash.unwrap_or(AuditHash::GENESIS),
        },
    })
}

fn hash(value: ValueRef) -> Option<AuditHash> {
    Some(AuditHash(value.as_blob().ok()?.try_into().ok()?))
}
