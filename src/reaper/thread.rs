//! The thread of the reaper: a round a minute, and while there is more, one after another with pauses as long as the rounds.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::{Kind, Reaping};
use crate::clock::{Stopwatch, SystemClock};
use crate::domain::Timestamp;
use crate::domain::retention::Retention;
use crate::engine::Engine;
use crate::essential::{catch_and_count, spawn_essential};
use crate::logs::Logs;
use crate::metrics::PanicPlace;

const INTERVAL: Duration = Duration::from_secs(60);
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// When it last looked, and what went wrong then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRound {
    pub at: Timestamp,
    pub failure: Option<String>,
}

/// Since the server started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReaperStats {
    pub rounds: u64,
    pub last: Option<LastRound>,
    removed: [u64; Kind::ALL.len()],
}

impl ReaperStats {
    /// What was removed, by kind.
    pub fn removed(&self) -> impl Iterator<Item = (Kind, u64)> {
        Kind::ALL.into_iter().zip(self.removed)
    }
}

/// Runs until it is dropped.
pub struct Reaper {
    stats: Arc<Mutex<ReaperStats>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    pub fn start(
        engine: Engine,
        logs: Logs,
        retention: Retention,
        clock: Arc<SystemClock>,
    ) -> std::io::Result<Reaper> {
        let (stop, stopped) = bounded(0);
        let stats = Arc::<Mutex<ReaperStats>>::default();
        let mut rounds = Rounds {
            engine: engine.clone(),
            reaping: Reaping::new(engine, logs, retention),
            clock,
            stats: stats.clone(),
        };
        let thread = spawn_essential("reaper", move || rounds.run(&stopped))?;
        Ok(Reaper {
            stats,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub fn stats(&self) -> ReaperStats {
        let stats = self.stats.lock();
        stats.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread
                .join()
                .expect("a panic of this thread ends the process");
        }
    }
}

struct Rounds {
    engine: Engine,
    reaping: Reaping,
    clock: Arc<SystemClock>,
    stats: Arc<Mutex<ReaperStats>>,
}

impl Rounds {
    fn run(&mut self, stopped: &Receiver<()>) {
        loop {
            let begun = Stopwatch::start();
            let engine = self.engine.clone();
            let (metrics, item) = (engine.store.metrics(), "a round of the reaper");
            let more = catch_and_count(metrics, PanicPlace::Reaper, item, || self.round());
            let more = more.unwrap_or(false);
            // At most half of the time is its own, however much there is to do.
            let pause = match more {
                true => Duration::from_secs_f64(begun.secs()).clamp(PAUSE_MIN, INTERVAL),
                false => INTERVAL,
            };
            match stopped.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Whether there is more to do.
    fn round(&mut self) -> bool {
        let now = self.clock.now();
        let outcome = self.reaping.reap_once(now);
        let (removed, more, failure) = match outcome {
            Err(error) => (Vec::new(), false, Some(error.to_string())),
            Ok(round) => {
                let first = round.failures.first();
                let failure = first.map(|(kind, error)| format!("{}: {error}", kind.as_str()));
                // What failed would be met again at once.
                let more = round.more && failure.is_none();
                (round.removed, more, failure)
            }
        };
        if let Some(failure) = &failure {
            log::error!("what is too old could not be removed, it is tried again: {failure}");
        }
        // Nothing in here may panic: people read the numbers under the same lock.
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.rounds += 1;
        for (kind, count) in &removed {
            let place = Kind::ALL.iter().position(|found| found == kind);
            stats.removed[place.unwrap_or_default()] += *count as u64;
        }
        stats.last = Some(LastRound {
            at: now.wall,
            failure,
        });
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_in_one_round_does_not_hide_the_numbers_for_ever() {
        let stats = Arc::<Mutex<ReaperStats>>::default();
        let reaper = Reaper {
            stats: stats.clone(),
            stop: None,
            thread: None,
        };
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            stats.lock().unwrap().rounds = 7;
            let _held = stats.lock().unwrap();
            panic!("a bug");
        }));
        assert!(panicked.is_err());
        assert_eq!(reaper.stats().rounds, 7);
    }
}
