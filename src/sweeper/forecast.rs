//! What the next sweeps will do, to whom, and in how many seconds, if nothing happens until then.

use super::{Look, PHASES};
use crate::domain::Now;
use crate::domain::recovery::{Foreseen, Phase};
use crate::engine::{Engine, EngineError};

/// How far ahead it looks; the deadline of a single step is told by `why`, however far away.
const HORIZON_MS: i64 = 600_000;

/// Of each kind. Somebody will read it.
const FORESEEN_MAX: u32 = 1_000;

#[derive(Debug, Default)]
pub struct Forecast {
    /// Soonest first. A worker is in it once its heartbeat is late.
    pub foreseen: Vec<Foreseen>,
    /// What could not be looked at. A sweep will not be able to either.
    pub failures: Vec<(Phase, EngineError)>,
    /// There is more of some kind than is told.
    pub more: bool,
}

pub fn recovery_forecast(engine: &Engine, now: Now) -> Result<Forecast, EngineError> {
    let horizon_up = now.up.plus_ms(HORIZON_MS);
    engine.store.read(|tx| {
        let look = Look {
            tx,
            bounds: engine.bounds(),
            now,
            limit: FORESEEN_MAX,
        };
        let mut forecast = Forecast::default();
        for (phase, searches) in PHASES {
            for find in searches {
                let suspects = find(&look, horizon_up).unwrap_or_else(|error| {
                    forecast.failures.push((phase, error));
                    Vec::new()
                });
                forecast.more |= suspects.len() >= FORESEEN_MAX as usize;
                for suspect in suspects {
                    match engine.foresee(tx, suspect, now) {
                        Ok(foreseen) => forecast.foreseen.extend(foreseen),
                        Err(error) => forecast.failures.push((phase, error)),
                    }
                }
            }
        }
        forecast
            .foreseen
            .retain(|foreseen| foreseen.at_up <= horizon_up);
        forecast.foreseen.sort_by_key(|foreseen| foreseen.at_up);
        Ok(forecast)
    })
}
