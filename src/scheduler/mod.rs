//! Schedules fire: the thread that looks when the next one is due, and has the engine deal with it.
//!
//! Due is what the wall clock says, and that may be set forward and back at any time, so it is looked at once a second even if
//! nothing is due for days. A clock that was set is no absence: how the two are told apart is in `domain/presence.rs`.
//!
//! Deliberately not here: what becomes of a due instant (`engine/fire.rs`), when one is (`cron.rs`).

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};

use crate::clock::SystemClock;
use crate::domain::presence::Presence;
use crate::engine::Engine;
use crate::essential::{catch_and_count, spawn_essential};
use crate::metrics::PanicPlace;
use crate::store::Frozen;

/// At the latest after this the clock is read again, and whether a fire that waits for a job may go ahead.
const LOOK_MS: i64 = 1_000;

/// What could not be written is tried again after this.
const AFTER_FAILURE_MS: i64 = 1_000;

/// The task of this name as it is now.
pub type Tasks = Arc<dyn Fn(&str) -> Option<Frozen> + Send + Sync>;

/// Runs until it is dropped.
pub struct Scheduler {
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Scheduler {
    pub fn start(
        engine: Engine,
        clock: Arc<SystemClock>,
        tasks: Tasks,
    ) -> std::io::Result<Scheduler> {
        let (wake_tx, wake_rx) = bounded(1);
        let thread = spawn_essential("scheduler", move || {
            let mut looks = Looks {
                engine,
                clock,
                tasks,
                seen: None,
            };
            looks.run(&wake_rx);
        })?;
        Ok(Scheduler {
            wake: Some(wake_tx),
            thread: Some(thread),
        })
    }

    /// Schedules have changed: it looks at once when the next one is due.
    pub fn wake(&self) {
        match self.wake.as_ref().map(|wake| wake.try_send(())) {
            None | Some(Ok(())) => {}
            // It is about to look anyway.
            Some(Err(TrySendError::Full(()))) => {}
            Some(Err(TrySendError::Disconnected(()))) => {
                log::error!("the scheduler is gone; no schedule fires");
            }
        }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            thread
                .join()
                .expect("a panic of this thread ends the process");
        }
    }
}

struct Looks {
    engine: Engine,
    clock: Arc<SystemClock>,
    tasks: Tasks,
    /// Both clocks at the last look. `None`: it was in a former life.
    seen: Option<Presence>,
}

impl Looks {
    fn run(&mut self, wake: &Receiver<()>) {
        loop {
            let engine = self.engine.clone();
            let (metrics, item) = (engine.store.metrics(), "a look of the scheduler");
            let looked = catch_and_count(metrics, PanicPlace::Scheduler, item, || self.look());
            let pause_ms = looked.unwrap_or(AFTER_FAILURE_MS);
            match wake.recv_timeout(Duration::from_millis(pause_ms as u64)) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Deals with all that is due. Returns when to look again.
    fn look(&mut self) -> i64 {
        let now = self.clock.now();
        let reading = self.clock.reading(now);
        match self.engine.follow_clock(self.seen.clone(), reading, now) {
            Ok(seen) => self.seen = Some(seen),
            Err(error) => {
                log::error!("schedules cannot follow the clock, they are tried again: {error}");
                return AFTER_FAILURE_MS;
            }
        }
        match self.engine.fire_due(now, self.tasks.as_ref()) {
            Ok(round) => {
                let now = self.clock.now();
                let next_in = round.next_at.map(|next_at| next_at.0 - now.wall.0);
                next_in.map_or(LOOK_MS, |next_in| next_in.clamp(0, LOOK_MS))
            }
            Err(error) => {
                log::error!("a schedule could not be dealt with, it is tried again: {error}");
                AFTER_FAILURE_MS
            }
        }
    }
}
