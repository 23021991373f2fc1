//! The thread of the sweeper: it wakes at the next moment at which something may be due, and at the latest after the
//! sweep interval.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use log::kv::Value;

use super::deadline::next_deadline;
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

/// Of one round; all of them are in the events.
const LOGGED_MAX: usize = 100;

/// What could not be ended is tried again after this.
const AFTER_FAILURE_MS: i64 = 5_000;

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
    if let Err(error) = engine.try_to_write(now) {
        log::error!("the store cannot write, so nobody is given up: {error}");
        return Round {
            report: None,
            again_ms: LOOK_MS,
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
    let again_ms = match released {
        None | Some(Err(_)) => AFTER_FAILURE_MS,
        Some(Ok(_)) if !report.failures.is_empty() => AFTER_FAILURE_MS,
        Some(Ok(released)) if report.more || released > 0 => 0,
        Some(Ok(_)) => LOOK_MS,
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

    /// `None`: there was none yet.
    pub fn last_sweep(&self) -> Option<LastSweep> {
        *self.last.lock().expect("no panic while it is held")
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

/// When the next round is due, and before when it is not.
struct Plan {
    due_up: Uptime,
    floor_up: Uptime,
    /// How many there were at the last look: as long as there are no more, no deadline is new.
    commits: Option<u64>,
    /// Whom the store turned away: it is tried at once.
    refusals: u64,
}

struct Rounds {
    engine: Engine,
    clock: Arc<SystemClock>,
    last: Arc<Mutex<Option<LastSweep>>>,
}

impl Rounds {
    fn run(&self, stop: &Receiver<()>, mut pulse: Pulse) {
        let mut plan = Plan {
            due_up: self.clock.now().up,
            floor_up: Uptime(i64::MIN),
            commits: None,
            refusals: 0,
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

    /// A round if one is due, and when to look again.
    fn look(&self, plan: &mut Plan) -> i64 {
        let now = self.clock.now();
        self.engine.was_absent_until(self.clock.undisturbed_since());
        let (commits, _) = self.engine.store.groups();
        let refusals = self.engine.store.refusals();
        let refused = std::mem::replace(&mut plan.refusals, refusals) != refusals;
        if plan.due_up <= now.up || refused {
            plan.floor_up = now.up.plus_ms(self.round(now));
            plan.due_up = self.next_due(now).max(plan.floor_up);
            // While nobody can be heard, no time passes for anybody.
            self.clock.hold(self.engine.is_failing());
        } else if plan.commits != Some(commits) {
            plan.due_up = plan.due_up.min(self.next_due(now).max(plan.floor_up));
        }
        plan.commits = Some(commits);
        if self.engine.is_failing() {
            plan.due_up = now.up;
            return LOOK_MS;
        }
        (plan.due_up.0 - now.up.0).clamp(0, LOOK_MS)
    }

    /// Everything that is due. Returns how soon the next round may come.
    fn round(&self, now: Now) -> i64 {
        let watch = Stopwatch::start();
        let round = round(&self.engine, now);
        if let Some(report) = &round.report {
            let metrics = self.engine.store.metrics();
            metrics.recovery_sweep_seconds.observe(watch.secs());
            log_recoveries(&report.recoveries);
            let last = LastSweep {
                at: now.wall,
                monotonic_ms: monotonic_ms(),
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
