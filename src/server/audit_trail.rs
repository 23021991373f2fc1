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
                self.write_refusals();
                if is_last || self.next_head.is_over() {
                    self.log_head();
                    self.next_head = Deadline::after(HEAD_INTERVAL);
                }
            });
            if is_last {
                return;
            }
        }
    }

    fn write_refusals(&self) {
        let refusals = self.gate.take_refusals();
        if refusals.is_empty() {
            return;
        }
        let count = refusals.len();
        if let Err(error) = self.engine.note_refusals(refusals, self.clock.now()) {
            log::warn!("{count} refused requests could not be written to the audit log: {error}");
        }
    }

    fn log_head(&self) {
        match self.engine.audit_head() {
            // An empty log has nothing that a copy could tell.
            Ok(head) if head.seq == 0 => {}
            Ok(head) => {
                let hash = head.hash.to_string();
                log::info!(target: "stepward", seq = head.seq, hash = hash.as_str(); "audit head");
            }
            Err(error) => log::warn!("the head of the audit log could not be read: {error}"),
        }
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
