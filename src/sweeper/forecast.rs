//! What the next sweeps will do, to whom, and in how many seconds, if nothing happens until then.

use super::{Look, PHASES};
use crate::domain::recovery::Foreseen;
use crate::domain::{Now, Uptime};
use crate::engine::{Engine, EngineError, Suspect};
use crate::store::Tx;

/// How far ahead it looks; the deadline of a single step is told by `why`, however far away.
const HORIZON_MS: i64 = 600_000;

/// Of each kind. Somebody will read it.
const FORESEEN_MAX: u32 = 1_000;

/// Soonest first. A worker is in it once it is late.
pub fn recovery_forecast(engine: &Engine, now: Now) -> Result<Vec<Foreseen>, EngineError> {
    let bounds = engine.bounds(now);
    let horizon_up = now.up.plus_ms(HORIZON_MS);
    engine.store.read(|tx| {
        let look = Look {
            tx,
            bounds,
            now,
            limit: FORESEEN_MAX,
        };
        let mut forecast = Vec::new();
        for (_, searches) in PHASES {
            for find in searches {
                for suspect in find(&look, horizon_up)? {
                    if !is_in_time(&look, suspect)? {
                        forecast.extend(engine.foresee(tx, suspect, now)?);
                    }
                }
            }
        }
        forecast.retain(|foreseen| foreseen.at_up <= horizon_up);
        forecast.sort_by_key(|foreseen| foreseen.at_up);
        Ok(forecast)
    })
}

/// Every worker would be silent one day if nothing happened. Nothing is wrong before its heartbeat is late.
fn is_in_time(look: &Look, suspect: Suspect) -> Result<bool, EngineError> {
    let seen_up = match suspect {
        Suspect::Worker(worker_id) => look.tx.worker(worker_id)?.map(|worker| worker.seen_up),
        Suspect::ManyWorkers { .. } => first_seen(look.tx)?,
        _ => None,
    };
    Ok(seen_up.is_some_and(|seen_up| !look.bounds.is_late(seen_up, look.now.up)))
}

fn first_seen(tx: &Tx) -> Result<Option<Uptime>, EngineError> {
    let first = tx.silent_workers(Uptime(i64::MAX), 1)?;
    Ok(first.first().map(|(_, seen_up)| *seen_up))
}
