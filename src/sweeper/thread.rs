//! The thread of the sweeper: it wakes at the next moment at which something may be due, and at the latest after the
//! sweep interval.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::deadline::next_deadline;
use super::{SweepReport, sweep_once};
use crate::clock::SystemClock;
use crate::domain::{Now, Timestamp, Uptime};
use crate::engine::Engine;

/// New deadlines are learnt this often, and the clock is read: a long gap would be an absence.
const LOOK_MS: i64 = 1_000;

/// What could not be ended is tried again after this.
const AFTER_FAILURE_MS: i64 = 5_000;

/// With nothing written for so long, the clock is written by itself.
const SAVE_CLOCK_MS: i64 = 10_000;

/// What a round of the sweeper did.
#[derive(Debug)]
pub struct Round {
    /// `None`: it could not write, so it gave nobody up.
    pub report: Option<SweepReport>,
    /// The next round comes no sooner.
    pub again_ms: i64,
}

/// Does everything that is due: what time releases, then the four phases.
pub fn round(engine: &Engine, now: Now) -> Round {
    if now.up.0 - engine.store.saved_up().0 >= SAVE_CLOCK_MS
        && let Err(error) = engine.save_clock(now)
    {
        log::error!("a sweep was put off: {error}");
        return Round {
            report: None,
            again_ms: AFTER_FAILURE_MS,
        };
    }
    // What cannot be released has been logged there, and keeps nobody from being recovered.
    let released = engine.release_due(now);
    let report = sweep_once(engine, now);
    let again_ms = match released {
        Err(_) => AFTER_FAILURE_MS,
        Ok(_) if !report.failures.is_empty() => AFTER_FAILURE_MS,
        Ok(released) if report.more || released > 0 => 0,
        Ok(_) => LOOK_MS,
    };
    Round {
        report: Some(report),
        again_ms,
    }
}

/// When the last sweep was and what it did, for people who ask whether recovery is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastSweep {
    pub at: Timestamp,
    pub recoveries: usize,
    pub failures: usize,
}

/// Runs until it is dropped.
pub struct Sweeper {
    last: Arc<Mutex<Option<LastSweep>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    pub fn start(engine: Engine, clock: Arc<SystemClock>) -> std::io::Result<Sweeper> {
        let (stop_tx, stop_rx) = bounded(0);
        let last = Arc::new(Mutex::new(None));
        let shown = last.clone();
        let thread = std::thread::Builder::new()
            .name("sweeper".to_string())
            .spawn(move || {
                let rounds = Rounds {
                    engine,
                    clock,
                    last: shown,
                };
                rounds.run(&stop_rx);
            })?;
        Ok(Sweeper {
            last,
            stop: Some(stop_tx),
            thread: Some(thread),
        })
    }

    /// `None`: there was none yet.
    pub fn last_sweep(&self) -> Option<LastSweep> {
        *self.last.lock().expect("no panic while it is held")
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a panic in a sweep is caught there");
        }
    }
}

struct Rounds {
    engine: Engine,
    clock: Arc<SystemClock>,
    last: Arc<Mutex<Option<LastSweep>>>,
}

impl Rounds {
    fn run(&self, stop: &Receiver<()>) {
        let mut due_up = self.clock.now().up;
        let mut commits_seen = None;
        let mut pause_ms = 0;
        loop {
            match stop.recv_timeout(Duration::from_millis(pause_ms)) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = self.clock.now();
            self.engine.was_absent_until(self.clock.undisturbed_since());
            let (commits, _) = self.engine.store.groups();
            if due_up <= now.up {
                let again_ms = self.round(now);
                due_up = self.next_due(now).max(now.up.plus_ms(again_ms));
            } else if commits_seen != Some(commits) {
                due_up = due_up.min(self.next_due(now));
            }
            commits_seen = Some(commits);
            pause_ms = (due_up.0 - now.up.0).clamp(0, LOOK_MS) as u64;
        }
    }

    /// Everything that is due. Returns how soon the next round may come.
    fn round(&self, now: Now) -> i64 {
        let round = catch_unwind(AssertUnwindSafe(|| round(&self.engine, now)));
        let Ok(round) = round else {
            log::error!("a sweep met a bug and was given up; the next one comes");
            return AFTER_FAILURE_MS;
        };
        if let Some(report) = &round.report {
            let last = LastSweep {
                at: now.wall,
                recoveries: report.recoveries.len(),
                failures: report.failures.len(),
            };
            *self.last.lock().expect("no panic while it is held") = Some(last);
        }
        round.again_ms
    }

    /// At the latest after the sweep interval.
    fn next_due(&self, now: Now) -> Uptime {
        let interval_up = now.up.plus_ms(self.engine.settings.sweep_interval_ms);
        match next_deadline(&self.engine, now) {
            Ok(deadline_up) => deadline_up.map_or(interval_up, |up| up.min(interval_up)),
            Err(error) => {
                log::error!("the next deadline is not known: {error}");
                interval_up
            }
        }
    }
}
