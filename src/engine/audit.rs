//! The audit log as a whole: what was refused, what changed between two starts of the server, and what admins read.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::{Engine, EngineError};
use crate::domain::Now;
use crate::domain::audit::{Actor, AnchorFault, AuditAction, AuditEntry, AuditRow, ChainLink};
use crate::store::{AuditFilter, AuditPage, AuditSubject};

/// Names that one row lists. Of more, the row tells how many there are.
const NAMES_MAX: usize = 20;

/// The key under which the server remembers whether it asks for tokens.
const ASKS: &str = "asks_for_token";

/// A request, or several of the same kind, that the server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub actor: Actor,
    pub action: AuditAction,
    pub object: Option<String>,
    /// Number of refused requests that this entry stands for.
    pub attempts: u64,
    /// Number of addresses that the requests came from, if addresses are not listed one by one.
    pub addresses: Option<u64>,
    /// The different requests, if there is more than one.
    pub requests: Vec<String>,
}

/// Both ends of the audit log, as the database says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditEnds {
    /// The last row that retention has removed.
    pub anchor: ChainLink,
    /// Why no row can be verified from the anchor. `None`: rows can.
    pub anchor_fault: Option<AnchorFault>,
    /// The last row.
    pub head: ChainLink,
    /// The highest number of a row that the database has noted outside of the audit log.
    pub noted_seq: i64,
}

impl Engine {
    /// Records refused requests, each as one row.
    pub fn note_refusals(&self, refusals: Vec<Refusal>, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| {
            for refusal in &refusals {
                let facts = match refusal.attempts {
                    0 | 1 => Facts::none(),
                    attempts => Facts::none().and("attempts", attempts),
                };
                let facts = match refusal.addresses {
                    Some(addresses) => facts.and("addresses", addresses),
                    None => facts,
                };
                let facts = match refusal.requests.as_slice() {
                    [] => facts,
                    requests => facts.and("requests", requests),
                };
                let entry = AuditEntry {
                    object: refusal.object.clone(),
                    ..AuditEntry::refused(refusal.action).detail(facts.detail())
                };
                tx.audit_as(&refusal.actor, &entry, now)?;
            }
            Ok(())
        })
    }

    /// Records what the actor of this engine is about to do, where that takes more than one transaction.
    pub fn record_audit(&self, entry: AuditEntry, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| Ok(tx.audit(&entry, now)?))
    }

    /// Records that the server asks for tokens from this start on, or that it does not any more.
    pub fn note_authentication(&self, asks: bool, now: Now) -> Result<(), EngineError> {
        let known = BTreeMap::from([(ASKS.to_string(), asks.to_string())]);
        self.write(now, move |tx| {
            let former = tx.audit_known(AuditSubject::Authentication)?;
            if former.as_ref() == Some(&known) {
                return Ok(());
            }
            tx.set_audit_known(AuditSubject::Authentication, &known)?;
            let action = match asks {
                true => AuditAction::AuthenticationEnabled,
                false => AuditAction::AuthenticationDisabled,
            };
            match former {
                Some(_) => Ok(tx.audit_as(&Actor::server(), &AuditEntry::of(action), now)?),
                None => Ok(()),
            }
        })
    }

    /// Records which names were added, changed or removed since the server last looked. `known` has a hash for each name.
    pub fn note_known(
        &self,
        subject: AuditSubject,
        known: BTreeMap<String, String>,
        now: Now,
    ) -> Result<(), EngineError> {
        let action = match subject {
            AuditSubject::Settings => AuditAction::SettingsChanged,
            AuditSubject::Workflows => AuditAction::WorkflowsChanged,
            AuditSubject::Authentication => return Ok(()),
        };
        // A look costs no commit if nothing has changed.
        let former = self.store.read(|tx| tx.audit_known(subject))?;
        if former.as_ref() == Some(&known) {
            return Ok(());
        }
        self.write(now, move |tx| {
            tx.set_audit_known(subject, &known)?;
            match &former {
                Some(former) => {
                    let entry = AuditEntry::of(action).detail(differences(former, &known).detail());
                    Ok(tx.audit_as(&Actor::server(), &entry, now)?)
                }
                None => Ok(()),
            }
        })
    }

    /// The last row of the audit log.
    pub fn audit_head(&self) -> Result<ChainLink, EngineError> {
        self.store.read(|tx| Ok(tx.audit_head()?))
    }

    pub fn audit_ends(&self) -> Result<AuditEnds, EngineError> {
        self.store.read(|tx| {
            let (anchor, anchor_fault) = tx.checked_audit_anchor()?;
            Ok(AuditEnds {
                anchor,
                anchor_fault,
                head: tx.audit_head()?,
                noted_seq: tx.audit_noted()?,
            })
        })
    }

    /// Oldest first.
    pub fn audit_after(&self, after: i64, limit: u32) -> Result<Vec<AuditRow>, EngineError> {
        self.store.read(|tx| Ok(tx.audit_after(after, limit)?))
    }

    /// Newest first.
    pub fn audit_before(
        &self,
        before: i64,
        filter: &AuditFilter,
        limit: u32,
    ) -> Result<AuditPage, EngineError> {
        self.store
            .read(|tx| Ok(tx.audit_before(before, filter, limit)?))
    }
}

/// The names that differ, and how many they are.
fn differences(former: &BTreeMap<String, String>, known: &BTreeMap<String, String>) -> Facts {
    let absent_from = |other: &BTreeMap<String, String>, name: &str| !other.contains_key(name);
    let added = known.keys().filter(|name| absent_from(former, name));
    let removed = former.keys().filter(|name| absent_from(known, name));
    let changed = known
        .iter()
        .filter(|(name, hash)| former.get(*name).is_some_and(|other| other != *hash));
    let facts = Facts::none();
    let facts = listed(facts, "added", added.cloned().collect());
    let facts = listed(
        facts,
        "changed",
        changed.map(|(name, _)| name.clone()).collect(),
    );
    listed(facts, "removed", removed.cloned().collect())
}

fn listed(facts: Facts, what: &str, mut names: Vec<String>) -> Facts {
    match names.len() {
        0 => facts,
        count if count > NAMES_MAX => {
            names.truncate(NAMES_MAX);
            facts.and(what, names).and(&format!("{what}_count"), count)
        }
        _ => facts.and(what, names),
    }
}
