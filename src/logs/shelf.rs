//! The logs that are open: a bounded number, each behind a lock of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use super::LogKey;
use super::open::OpenLog;
use crate::domain::JobId;

/// A log's place, empty until somebody opens it and after it was closed.
pub(super) type Slot = Arc<Mutex<Option<OpenLog>>>;

pub(super) struct Shelf {
    open_logs_max: usize,
    /// Held only to find a slot, never during I/O.
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    by_key: HashMap<LogKey, Placed>,
    /// Counts how often a slot was asked for; stands in for the time.
    uses: u64,
}

struct Placed {
    slot: Slot,
    last_use: u64,
    /// Somebody has appended to it, and may go on.
    appended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Append,
    Read,
}

impl Shelf {
    pub fn new(open_logs_max: usize) -> Shelf {
        Shelf {
            open_logs_max,
            slots: Mutex::default(),
        }
    }

    pub fn slot(&self, key: LogKey, used_to: Use) -> Slot {
        let mut slots = self.slots.lock().expect("no panic while it is held");
        slots.uses += 1;
        let last_use = slots.uses;
        if let Some(placed) = slots.by_key.get_mut(&key) {
            placed.last_use = last_use;
            placed.appended |= used_to == Use::Append;
            return placed.slot.clone();
        }
        let closed = match slots.by_key.len() < self.open_logs_max {
            true => None,
            false => slots.take_least_used(self.readers_share(), used_to),
        };
        let slot = Slot::default();
        let placed = Placed {
            slot: slot.clone(),
            last_use,
            appended: used_to == Use::Append,
        };
        slots.by_key.insert(key, placed);
        drop(slots);
        // Closing a file is I/O: nobody else waits for it.
        drop(closed);
        slot
    }

    /// Logs that are only read: whoever looks through many of them closes no more of those that grow.
    fn readers_share(&self) -> usize {
        self.open_logs_max / 8
    }

    pub fn slots_of(&self, job_id: JobId) -> Vec<Slot> {
        let slots = self.slots.lock().expect("no panic while it is held");
        let of_job = slots.by_key.iter().filter(|(key, _)| key.job_id == job_id);
        of_job.map(|(_, placed)| placed.slot.clone()).collect()
    }
}

impl Slots {
    /// `None`: all are in use, by as many threads; the shelf is larger for a while.
    fn take_least_used(&mut self, readers_share: usize, used_to: Use) -> Option<Placed> {
        // A log must never be open twice, or two would append at the same place. Slots are only handed out under the lock
        // that is held here, so one that nobody has now, nobody gets.
        let unused = self
            .by_key
            .iter()
            .filter(|(_, placed)| Arc::strong_count(&placed.slot) == 1);
        let read_only = self.by_key.values().filter(|placed| !placed.appended);
        let readers = read_only.count() + usize::from(used_to == Use::Read);
        let too_many_readers = readers > readers_share;
        let least = unused.min_by_key(|(_, placed)| {
            let other_kind = placed.appended == too_many_readers;
            (other_kind, placed.last_use)
        });
        let key = *least?.0;
        self.by_key.remove(&key)
    }
}

/// The log in a slot. After a panic it is closed: opening it again makes it good.
pub(super) fn lock(slot: &Slot) -> MutexGuard<'_, Option<OpenLog>> {
    slot.lock().unwrap_or_else(|poisoned| {
        slot.clear_poison();
        let mut log = poisoned.into_inner();
        *log = None;
        log
    })
}
