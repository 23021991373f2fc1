//! Signs of life of workers that are in memory and not yet in the database.
//!
//! A worker that only says that it is alive changes nothing else, so its contact is kept here, exact to the millisecond, and one
//! commit writes the contacts of all workers about once a second. Every read of a worker or a session adds the contact that is
//! kept here. A server that is killed loses at most the contacts of the last second. This delays recovery and never makes it too
//! early, because every worker has a full heartbeat timeout after a start of the server.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use super::{SessionView, Store, Tx};
use crate::domain::worker::Worker;
use crate::domain::{Now, SessionId, Uptime, WorkerId};

/// The last time that a session of a worker was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contact {
    pub worker_id: WorkerId,
    pub session_id: SessionId,
    /// The number of the last heartbeat. Other contacts repeat the number that was known before.
    pub heartbeat_seq: i64,
    pub at: Now,
}

impl Contact {
    pub fn of(session: &SessionView, heartbeat_seq: i64, at: Now) -> Contact {
        Contact {
            worker_id: session.worker_id,
            session_id: session.session_id,
            heartbeat_seq,
            at,
        }
    }
}

/// The contacts that no commit has written yet: at most one for each worker.
#[derive(Default)]
pub(super) struct UnwrittenContacts {
    by_worker: Mutex<HashMap<WorkerId, Contact>>,
}

impl UnwrittenContacts {
    fn lock(&self) -> MutexGuard<'_, HashMap<WorkerId, Contact>> {
        self.by_worker.lock().expect("no panic while it is held")
    }

    /// Keeps the later of two contacts of one session, and the contact of the later of two sessions.
    fn record(&self, contact: Contact) {
        let mut by_worker = self.lock();
        let known = by_worker.entry(contact.worker_id).or_insert(contact);
        if contact.session_id > known.session_id {
            *known = contact;
        } else if contact.session_id == known.session_id {
            known.heartbeat_seq = known.heartbeat_seq.max(contact.heartbeat_seq);
            if contact.at.up > known.at.up {
                known.at = contact.at;
            }
        }
    }

    fn of_worker(&self, worker_id: WorkerId) -> Option<Contact> {
        self.lock().get(&worker_id).copied()
    }

    pub(super) fn all(&self) -> Vec<Contact> {
        self.lock().values().copied().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Removes the contacts that a commit has written, unless the worker was heard again meanwhile.
    pub(super) fn remove_written(&self, written: &[Contact]) {
        let mut by_worker = self.lock();
        for contact in written {
            if by_worker.get(&contact.worker_id) == Some(contact) {
                by_worker.remove(&contact.worker_id);
            }
        }
    }
}

impl Store {
    /// Records a sign of life of a current session in memory. `has_unwritten_contacts` is true from now on.
    pub fn record_contact(&self, contact: Contact) {
        self.inner.shared.contacts.record(contact);
    }

    pub fn has_unwritten_contacts(&self) -> bool {
        !self.inner.shared.contacts.is_empty()
    }
}

impl Tx<'_> {
    /// Records a sign of life in memory, at once. It stays recorded if this transaction is undone: the worker was heard anyway.
    pub fn record_contact(&self, contact: Contact) {
        self.shared.contacts.record(contact);
    }

    pub fn unwritten_contacts(&self) -> Vec<Contact> {
        self.shared.contacts.all()
    }

    /// The contact is in the rows of this transaction, or the rows know more: it leaves the memory after the commit.
    pub fn contact_is_written(&self, contact: Contact) {
        let mut changes = self.changes.borrow_mut();
        let rare = changes.rare.get_or_insert_default();
        rare.contacts.push(contact);
    }

    /// Whether the worker was heard after the given time, as far as the memory knows.
    pub(super) fn was_heard_after(&self, worker_id: WorkerId, seen_up: Uptime) -> bool {
        let contact = self.shared.contacts.of_worker(worker_id);
        contact.is_some_and(|contact| contact.at.up > seen_up)
    }

    pub(super) fn add_contact_to_worker(&self, worker: &mut Worker) {
        if let Some(contact) = self.shared.contacts.of_worker(worker.worker_id)
            && worker.session_id == Some(contact.session_id)
        {
            worker.heartbeat_seq = worker.heartbeat_seq.max(contact.heartbeat_seq);
            if contact.at.up > worker.seen_up {
                (worker.seen_at, worker.seen_up) = (contact.at.wall, contact.at.up);
            }
        }
    }

    pub(super) fn add_contact_to_session(&self, session: &mut SessionView) {
        if let Some(contact) = self.shared.contacts.of_worker(session.worker_id)
            && session.session_id == contact.session_id
        {
            session.heartbeat_seq = session.heartbeat_seq.max(contact.heartbeat_seq);
            session.seen_up = session.seen_up.max(contact.at.up);
        }
    }
}
