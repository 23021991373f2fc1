//! The only place that asks the time. Everything else gets it as an argument.

use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::domain::{Now, Timestamp, Uptime};

/// The two clocks of a running server.
pub struct SystemClock {
    begun: Instant,
    begun_up: Uptime,
}

impl SystemClock {
    /// Continues the service clock where the last life of the server left it.
    pub fn continuing(service_clock: Uptime) -> SystemClock {
        SystemClock {
            begun: Instant::now(),
            begun_up: service_clock,
        }
    }

    pub fn now(&self) -> Now {
        let wall_ms = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_millis() as i64,
            Err(before) => -(before.duration().as_millis() as i64),
        };
        let up_ms = self.begun.elapsed().as_millis() as i64;
        Now {
            wall: Timestamp(wall_ms),
            up: self.begun_up.plus_ms(up_ms),
        }
    }
}

/// Time that tests move by hand.
pub struct ManualClock {
    now: Mutex<Now>,
}

impl Default for ManualClock {
    /// Starts at a wall time that is easy to recognise, and at the first moment of service.
    fn default() -> ManualClock {
        let now = Now {
            wall: Timestamp(1_700_000_000_000),
            up: Uptime(0),
        };
        ManualClock {
            now: Mutex::new(now),
        }
    }
}

impl ManualClock {
    pub fn now(&self) -> Now {
        *self.now.lock().expect("no panic while it is held")
    }

    pub fn advance_ms(&self, ms: i64) {
        let mut now = self.now.lock().expect("no panic while it is held");
        *now = Now {
            wall: Timestamp(now.wall.0 + ms),
            up: now.up.plus_ms(ms),
        };
    }

    /// The wall clock is stepped; the service clock does not notice.
    pub fn step_wall_ms(&self, ms: i64) {
        let mut now = self.now.lock().expect("no panic while it is held");
        now.wall = Timestamp(now.wall.0 + ms);
    }
}
