//! The thread that tells the audit log about refused requests, and the server's own log about the head of the audit log.
//!
//! Who can write the database can rebuild the chain of the audit log. A copy of its head that is somewhere else, such as in the
//! journal of the machine, tells.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::auth::Gate;
use crate::clock::{Deadline, SystemClock};
use crate::domain::audit::{ChainFault, ChainLink, HEAD_LOG_TARGET};
use crate::engine::Engine;
use crate::essential::{catch_and_count, spawn_essential};
use crate::metrics::PanicPlace;

/// Interval at which refused requests are written to the audit log.
const REFUSALS_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the head of the audit log is logged.
const HEAD_INTERVAL: Duration = Duration::from_secs(3_600);

/// Runs until it is dropped.
pub struct AuditTrail {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Trail {
    engine: Engine,
    clock: Arc<SystemClock>,
    gate: Arc<Gate>,
    next_head: Deadline,
}

impl AuditTrail {
    pub fn start(
        engine: Engine,
        clock: Arc<SystemClock>,
        gate: Arc<Gate>,
    ) -> io::Result<AuditTrail> {
        let (stop, stopped) = bounded(0);
        let trail = Trail {
            engine,
            clock,
            gate,
            // In the first round: the first line of a server says where it listens.
            next_head: Deadline::after(Duration::ZERO),
        };
        let thread = spawn_essential("audit", move || trail.run(&stopped))?;
        Ok(AuditTrail {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Trail {
    fn run(mut self, stopped: &Receiver<()>) {
        loop {
            let is_last = stopped.recv_timeout(REFUSALS_INTERVAL) != Err(RecvTimeoutError::Timeout);
            let engine = self.engine.clone();
            let item = "a round of the audit log";
            catch_and_count(engine.store.metrics(), PanicPlace::Audit, item, || {
                self.round(is_last)
            });
            if is_last {
                return;
            }
        }
    }

    /// Returns the head of the audit log if it was logged.
    fn round(&mut self, is_last: bool) -> Option<ChainLink> {
        self.write_refusals(is_last);
        if !is_last && !self.next_head.is_over() {
            return None;
        }
        self.next_head = Deadline::after(HEAD_INTERVAL);
        self.log_head()
    }

    fn write_refusals(&self, is_last: bool) {
        let refusals = self.gate.take_refusals(is_last);
        if refusals.is_empty() {
            return;
        }
        let count = refusals.len();
        if let Err(error) = self.engine.note_refusals(refusals, self.clock.now()) {
            log::warn!("{count} refused requests could not be written to the audit log: {error}");
        }
    }

    fn log_head(&self) -> Option<ChainLink> {
        let ends = self.engine.audit_ends().map_err(|error| {
            log::warn!("the head of the audit log could not be read: {error}");
        });
        let ends = ends.ok()?;
        if let Some(fault) = ends.anchor_fault {
            log::warn!(
                "the audit log was changed: {}; compare the audit log with a backup or an export",
                ChainFault::Anchor(fault)
            );
        }
        if ends.noted_seq > ends.head.seq {
            log::warn!(
                "rows were removed from the end of the audit log: its last row is {}, and the database has noted row {}; compare the \
                 audit log with a backup or an export",
                ends.head.seq,
                ends.noted_seq
            );
        }
        // An empty log has nothing that a copy could tell.
        let head = Some(ends.head).filter(|head| head.seq > 0)?;
        let hash = head.hash.to_string();
        log::info!(target: HEAD_LOG_TARGET, seq = head.seq, hash = hash.as_str(); "audit head");
        Some(head)
    }
}

impl Drop for AuditTrail {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread of the audit log met a bug");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::audit::{Actor, AuditAction, AuditEntry};
    use crate::domain::settings::Settings;
    use crate::server::auth::{Caller, GateOptions};
    use crate::store::{Store, StoreOptions};

    #[test]
    fn the_head_is_logged_at_the_start_once_an_hour_and_at_the_stop() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
        let settings = Settings::default();
        let clock = Arc::new(SystemClock::continuing(store.begun_up(), &settings));
        let engine = Engine::new(store, settings);
        let options = GateOptions {
            asks: true,
            token: None,
            listen: "127.0.0.1:0".parse().unwrap(),
            public_url: None,
            speaks_tls: false,
            key: "key",
        };
        let mut trail = Trail {
            engine: engine.clone(),
            clock: clock.clone(),
            gate: Arc::new(Gate::new(&options).unwrap()),
            next_head: Deadline::after(Duration::ZERO),
        };
        assert_eq!(trail.round(true), None, "the log is empty");
        let now = clock.now();
        let entry = AuditEntry::of(AuditAction::JobKept);
        let written =
            (engine.store).write(move |tx| tx.audit_as(&Actor::named("ada"), &entry, now));
        written.unwrap();
        let head = Some(engine.audit_head().unwrap());
        trail.next_head = Deadline::after(Duration::ZERO);
        assert_eq!(trail.round(false), head, "an hour is over");
        assert_eq!(trail.round(false), None, "the next hour has begun");
        assert_eq!(trail.round(true), head, "the server stops");

        // What was refused shortly before the stop is recorded, too.
        let refuse = |gate: &Gate| {
            let peer = [127, 0, 0, 1].into();
            gate.note_refused_role(&Caller::of_settings(), peer, "GET /x".to_string());
        };
        let rows = || engine.audit_head().unwrap().seq;
        let before = rows();
        refuse(&trail.gate);
        trail.round(false);
        assert_eq!(rows(), before + 1);
        refuse(&trail.gate);
        trail.round(false);
        assert_eq!(rows(), before + 1, "at most one row a minute");
        trail.round(true);
        assert_eq!(rows(), before + 2);
    }
}
