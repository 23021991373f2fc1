//! What happens when nobody acts: four phases, always in this order, always on.
//!
//! A phase finds suspects through the store; the engine looks at each again and acts, in a transaction of its own. So a
//! phase that fails does not stop the next, a row that cannot be read does not stop its phase, and a second sweep right
//! after the first changes nothing. `recovery_forecast` looks with the same eyes, further ahead, and touches nothing.
//!
//! Deliberately not here: SQL, decisions (`domain/recovery.rs`), the time.

mod deadline;
mod forecast;
mod phase1_stale_workers;
mod phase2_overdue_steps;
mod phase3_overdue_jobs;
mod phase4_unmatched_steps;
mod pulse;
mod thread;

use crate::domain::recovery::{Bounds, Phase, Recovery};
use crate::domain::{Now, Uptime};
use crate::engine::{Engine, EngineError, Suspect};
use crate::essential::catch_and_count;
use crate::metrics::PanicPlace;
use crate::store::{StoreError, Tx};

pub use deadline::LastRound;
pub use forecast::{Forecast, recovery_forecast};
pub use thread::{LastSweep, Round, Sweeper, round};

/// Looks for suspects whose time comes by the given moment.
type Find = fn(&Look, Uptime) -> Result<Vec<Suspect>, EngineError>;

#[rustfmt::skip]
const PHASES: [(Phase, &[Find]); 4] = [
    (Phase::StaleWorkers,   phase1_stale_workers::FIND),
    (Phase::OverdueSteps,   phase2_overdue_steps::FIND),
    (Phase::OverdueJobs,    phase3_overdue_jobs::FIND),
    (Phase::UnmatchedSteps, phase4_unmatched_steps::FIND),
];

/// One search of a phase takes this many; the rest comes with the next sweep, at once.
const BATCH_MAX: u32 = 10_000;

/// What a search looks at.
struct Look<'a> {
    tx: &'a Tx<'a>,
    bounds: Bounds,
    now: Now,
    limit: u32,
}

/// What one sweep did, phase by phase.
#[derive(Debug, Default)]
pub struct SweepReport {
    pub recoveries: Vec<Recovery>,
    /// What could not be looked at or ended, and why. It is tried again with the next sweep.
    pub failures: Vec<(Phase, EngineError)>,
    /// A batch was full: there may be more.
    pub more: bool,
}

impl SweepReport {
    pub fn of_phase(&self, phase: Phase) -> impl Iterator<Item = &Recovery> {
        self.recoveries
            .iter()
            .filter(move |recovery| recovery.phase == phase)
    }
}

/// Goes through all four phases once.
pub fn sweep_once(engine: &Engine, now: Now) -> SweepReport {
    let mut report = SweepReport::default();
    for (phase, searches) in PHASES {
        for find in searches {
            sweep_search(engine, phase, *find, now, &mut report);
        }
    }
    end_patience(engine, now, &mut report);
    engine.note_failures(report.failures.len());
    report
}

/// The many that were silent have spoken, or their time was up and whoever could be given up was: the next time is another
/// story.
fn end_patience(engine: &Engine, now: Now, report: &mut SweepReport) {
    let bounds = engine.bounds();
    let Some(until_up) = bounds.patient_until else {
        return;
    };
    let impatient = Bounds {
        patient_until: None,
        ..bounds
    };
    let silent = engine
        .store
        .read(|tx| match impatient.silent_since(now.up) {
            Some(seen_up) => Ok(!tx.silent_workers(seen_up, 1)?.is_empty()),
            None => Ok(false),
        });
    match silent {
        Ok(true) if until_up > now.up || report.more => {}
        Ok(_) => engine.end_patience(),
        Err(error) => report.failures.push((Phase::StaleWorkers, error)),
    }
}

fn sweep_search(engine: &Engine, phase: Phase, find: Find, now: Now, report: &mut SweepReport) {
    // What could not be ended last time stands in front again; the others must have their turn behind it.
    let limit = BATCH_MAX.saturating_add(engine.failures_of_last_sweep());
    let search = || {
        engine.store.read(|tx| {
            let look = Look {
                tx,
                bounds: engine.bounds(),
                now,
                limit,
            };
            find(&look, now.up)
        })
    };
    let metrics = engine.store.metrics();
    let item = format_args!("a search of recovery phase {}", phase.number());
    let found = catch_and_count(metrics, PanicPlace::Sweeper, item, search).unwrap_or_else(|| {
        let message = "the search of a phase".to_string();
        Err(StoreError::Panicked { message }.into())
    });
    let failures_before = report.failures.len();
    let (mut suspects, mut recovered) = (0, false);
    match found {
        Err(error) => report.failures.push((phase, error)),
        Ok(found) => {
            suspects = found.len();
            for outcome in engine.recover(&found, now) {
                match outcome {
                    Ok(recovery) => {
                        recovered |= recovery.is_some();
                        report.recoveries.extend(recovery);
                    }
                    Err(error) => report.failures.push((phase, error)),
                }
            }
        }
    }
    let failures = &report.failures[failures_before..];
    if let Some((_, first)) = failures.first() {
        let (phase, count) = (phase.number(), failures.len());
        log::error!("recovery phase {phase}: {count} could not be ended, the first: {first}");
    }
    // A full batch of which nothing could be ended would be met again.
    report.more |= suspects >= limit as usize && recovered;
}
