//! The thread of the sweeper: it wakes at the next moment at which something may be due, and at the latest after the
//! sweep interval.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use log::kv::Value;

use super::deadline::{LastRound, OUTSTANDING_RETRY_MS, ROUND_GAP_MS};
use super::pulse::Pulse;
use super::{SweepReport, sweep_once};
use crate::clock::{Stopwatch, SystemClock, monotonic_ms};
use crate::domain::reason::Reason;
use crate::domain::recovery::{Deed, Recovery};
use crate::domain::{Now, Timestamp, Uptime};
use crate::engine::Engine;
use crate::essential::{catch_and_count, spawn_essential};
use crate::metrics::PanicPlace;
use crate::service::ServiceManager;

/// New deadlines are learnt this often, and the clock is read: a long gap would be an absence.
const LOOK_MS: i64 = 1_000;

/// Signs of life that are only in memory are written this often at most, all in one commit.
const CONTACTS_INTERVAL_MS: i64 = 1_000;

/// Of one round; all of them are in the events.
const LOGGED_MAX: usize = 100;

/// What could not be ended is tried again after this.
const AFTER_FAILURE_MS: i64 = 5_000;

/// What a round of the sweeper did.
#[derive(Debug)]
pub struct Round {
    /// `None`: it could not write, so it gave nobody up.
    pub report: Option<SweepReport>,
    /// The round must be repeated after this: it left something undone. `None`: it did everything that was due.
    pub retry_ms: Option<i64>,
}

/// Does everything that is due: what time releases, then the four phases.
pub fn round(engine: &Engine, now: Now) -> Round {
    if let Err(error) = engine.try_to_write(now) {
        log::error!("recovery is paused: the database cannot be written: {error}; retrying");
        return Round {
            report: None,
            retry_ms: Some(OUTSTANDING_RETRY_MS),
        };
    }
    // What cannot be released has been logged there, and keeps nobody from being recovered.
    let metrics = engine.store.metrics();
    let released = catch_and_count(
        metrics,
        PanicPlace::Sweeper,
        "the release of what is due",
        || engine.release_due(now),
    );
    let report = sweep_once(engine, now);
    let retry_ms = match released {
        None | Some(Err(_)) => Some(AFTER_FAILURE_MS),
        Some(Ok(_)) if !report.failures.is_empty() => Some(AFTER_FAILURE_MS),
        Some(Ok(released)) if report.more || released > 0 => Some(0),
        Some(Ok(_)) => None,
    };
    Round {
        report: Some(report),
        retry_ms,
    }
}

/// When the last sweep was and what it did, for people who ask whether recovery is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastSweep {
    pub at: Timestamp,
    /// On a clock that nobody sets.
    pub monotonic_ms: i64,
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
        Sweeper::start_watched(engine, clock, ServiceManager::default())
    }

    /// The service manager hears from it, and only from it, that the server lives.
    pub fn start_watched(
        engine: Engine,
        clock: Arc<SystemClock>,
        manager: ServiceManager,
    ) -> std::io::Result<Sweeper> {
        let (stop_tx, stop_rx) = bounded(0);
        let last = Arc::new(Mutex::new(None));
        let shown = last.clone();
        let thread = spawn_essential("sweeper", move || {
            let rounds = Rounds {
                engine,
                clock,
                last: shown,
            };
            rounds.run(&stop_rx, Pulse::new(manager));
        })?;
        Ok(Sweeper {
            last,
            stop: Some(stop_tx),
            thread: Some(thread),
        })
    }

    /// Makes one round now, on the thread of the caller. Each suspect is checked again in its own transaction, so a round of the
    /// sweeper's thread at the same time does no harm. `None`: the store cannot write.
    pub fn sweep_now(&self, engine: &Engine, now: Now) -> Option<SweepReport> {
        observed_round(engine, &self.last, now).report
    }

    /// `None`: there was none yet.
    pub fn last_sweep(&self) -> Option<LastSweep> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread
                .join()
                .expect("a panic of this thread ends the process");
        }
    }
}

/// Makes a round, and writes what it did into the log, the metrics and the last sweep.
fn observed_round(engine: &Engine, last: &Mutex<Option<LastSweep>>, now: Now) -> Round {
    let watch = Stopwatch::start();
    let round = round(engine, now);
    if let Some(report) = &round.report {
        let metrics = engine.store.metrics();
        metrics.recovery_sweep_seconds.observe(watch.secs());
        log_recoveries(&report.recoveries);
        let swept = LastSweep {
            at: now.wall,
            monotonic_ms: monotonic_ms(),
            recoveries: report.recoveries.len(),
            failures: report.failures.len(),
        };
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(swept);
    }
    round
}

/// What recovery did, for whoever reads the log of the server; all of it is in the events.
fn log_recoveries(recoveries: &[Recovery]) {
    for recovery in recoveries.iter().take(LOGGED_MAX) {
        let did = match recovery.deed {
            Deed::MarkInactive => "marked a silent worker inactive",
            Deed::WaitLonger => "waits longer: too many workers are silent at once",
            Deed::Requeue => "took an unstarted step back",
            Deed::Fail => "failed a step",
            Deed::Retry => "has a step tried again",
            Deed::Hold => "holds a step until somebody decides",
            Deed::Cancel => "cancelled a job",
        };
        let level = match recovery.deed {
            Deed::Requeue | Deed::Retry => log::Level::Info,
            _ => log::Level::Warn,
        };
        let phase = recovery.phase.number();
        let pairs = [
            ("job", recovery.job_id.map(|id| id.0)),
            ("step", recovery.step_id.map(|id| id.0)),
            ("attempt", recovery.attempt.map(i64::from)),
            ("worker", recovery.worker_id.map(|id| id.0)),
        ];
        let known = pairs
            .into_iter()
            .filter_map(|(key, id)| Some((key, Value::from(id?))));
        let reason = recovery.reason.map(Reason::as_str);
        let reason = reason.map(|reason| ("reason", Value::from(reason)));
        let known: Vec<(&str, Value)> = known.chain(reason).collect();
        // The macros know their keys beforehand.
        log::logger().log(
            &log::Record::builder()
                .level(level)
                .target(module_path!())
                .key_values(&known.as_slice())
                .args(format_args!("recovery phase {phase} {did}"))
                .build(),
        );
    }
    if recoveries.len() > LOGGED_MAX {
        let more = recoveries.len() - LOGGED_MAX;
        log::warn!("recovery did {more} more like these: stepward recovery history");
    }
}

/// What the thread remembers from one look to the next.
struct Plan {
    /// When the next round is due.
    due_up: Uptime,
    last_round: LastRound,
    /// Commits at the last look that had changed the database: as long as there are no more, no deadline is new.
    commits: Option<u64>,
    /// Calls that the store had refused at the last look. A new one is followed by a round at once.
    refusals: u64,
    /// Signs of life are not written before this.
    contacts_due_up: Uptime,
}

struct Rounds {
    engine: Engine,
    clock: Arc<SystemClock>,
    last: Arc<Mutex<Option<LastSweep>>>,
}

impl Rounds {
    fn run(&self, stop: &Receiver<()>, mut pulse: Pulse) {
        let begun_up = self.clock.now().up;
        let mut plan = Plan {
            due_up: begun_up,
            last_round: LastRound {
                at_up: begun_up,
                retry_ms: None,
                gap_ms: 0,
            },
            commits: None,
            refusals: 0,
            contacts_due_up: begun_up,
        };
        loop {
            let metrics = self.engine.store.metrics();
            let item = "a round of the sweeper";
            let looked = catch_and_count(metrics, PanicPlace::Sweeper, item, || {
                let pause_ms = self.look(&mut plan);
                pulse.beat(&self.engine, self.clock.now());
                pause_ms
            });
            let pause_ms = looked.unwrap_or(AFTER_FAILURE_MS);
            let pause = Duration::from_millis(pause_ms as u64).min(pulse.wait());
            match stop.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Makes a round if one is due. Returns in how many milliseconds to look again.
    fn look(&self, plan: &mut Plan) -> i64 {
        let now = self.clock.now();
        self.engine.was_absent_until(self.clock.undisturbed_since());
        self.write_contacts(plan, now);
        let commits = self.engine.store.durable_commits();
        let refusals = self.engine.store.refusals();
        let refused = std::mem::replace(&mut plan.refusals, refusals) != refusals;
        if plan.due_up <= now.up || refused {
            let watch = Stopwatch::start();
            let retry_ms = observed_round(&self.engine, &self.last, now).retry_ms;
            let took_ms = (watch.secs() * 1e3) as i64;
            plan.last_round = LastRound {
                at_up: now.up,
                retry_ms,
                // A slow round is followed by a pause that is as long.
                gap_ms: ROUND_GAP_MS.max(2 * took_ms),
            };
            plan.due_up = self.next_due(plan);
            // While nobody can be heard, no time passes for anybody.
            self.clock.hold(self.engine.is_failing());
        } else if plan.commits != Some(commits) {
            plan.due_up = plan.due_up.min(self.next_due(plan));
        }
        plan.commits = Some(commits);
        let now = self.clock.now();
        if self.engine.is_failing() {
            plan.due_up = now.up;
            return LOOK_MS;
        }
        let contacts_due_up = match self.engine.store.has_unwritten_contacts() {
            true => plan.contacts_due_up,
            false => Uptime(i64::MAX),
        };
        let next_up = plan.due_up.min(contacts_due_up);
        next_up.0.saturating_sub(now.up.0).clamp(0, LOOK_MS)
    }

    /// Writes the signs of life that are only in memory, if that is due.
    fn write_contacts(&self, plan: &mut Plan, now: Now) {
        if now.up < plan.contacts_due_up || !self.engine.store.has_unwritten_contacts() {
            return;
        }
        plan.contacts_due_up = now.up.plus_ms(CONTACTS_INTERVAL_MS);
        if let Err(error) = self.engine.write_contacts(now) {
            // The contacts stay in memory. A store that refuses them is tried by the next round.
            log::warn!("cannot write when workers were last heard: {error}; retrying");
        }
    }

    fn next_due(&self, plan: &Plan) -> Uptime {
        let now = self.clock.now();
        plan.last_round
            .next_due(&self.engine, now)
            .unwrap_or_else(|error| {
                log::error!("cannot read the next deadline: {error}; retrying");
                plan.last_round.at_up.plus_ms(AFTER_FAILURE_MS)
            })
    }
}
