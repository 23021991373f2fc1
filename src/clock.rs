//! The only place that asks the time. Everything else gets it as an argument.

use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::domain::{Now, Timestamp, Uptime};
use crate::planted::{Bug, planted};

/// A gap between two readings that is longer than this is an absence of ours: stopped, suspended, starved.
const ABSENCE_MS: i64 = 10_000;

/// The service clock: the time that the server was there. It never jumps and never goes back.
///
/// It is read all the time, by whoever handles a request and at least every second by the sweeper. So a long gap between
/// two readings means that nobody was there, and of such a gap next to nothing counts.
#[derive(Debug)]
pub struct ServiceClock {
    read_ms: i64,
    read_up: Uptime,
    undisturbed_since: Uptime,
}

impl ServiceClock {
    /// Goes on from where the last life of the server left it. `ms` is any time that never goes back.
    pub fn continuing(up: Uptime, ms: i64) -> ServiceClock {
        ServiceClock {
            read_ms: ms,
            read_up: up,
            undisturbed_since: up,
        }
    }

    pub fn read(&mut self, ms: i64) -> Uptime {
        // Two threads may come here in another order than they looked at the time.
        let gap_ms = (ms - self.read_ms).max(0);
        self.read_ms = self.read_ms.max(ms);
        if planted(Bug::StallCountsAsSilence) {
            self.read_up = self.read_up.plus_ms(gap_ms);
            return self.read_up;
        }
        self.read_up = self.read_up.plus_ms(gap_ms.min(ABSENCE_MS));
        if gap_ms > ABSENCE_MS {
            self.undisturbed_since = self.read_up;
        }
        self.read_up
    }

    /// When the server last came back from an absence, its start included.
    pub fn undisturbed_since(&self) -> Uptime {
        self.undisturbed_since
    }
}

/// The two clocks of a running server.
pub struct SystemClock {
    service: Mutex<ServiceClock>,
    begun: Instant,
}

impl SystemClock {
    /// Continues the service clock where the last life of the server left it.
    pub fn continuing(service_clock: Uptime) -> SystemClock {
        let begun = Instant::now();
        let service = ServiceClock::continuing(service_clock, ms_since(begun));
        SystemClock {
            service: Mutex::new(service),
            begun,
        }
    }

    pub fn now(&self) -> Now {
        let wall_ms = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_millis() as i64,
            Err(before) => -(before.duration().as_millis() as i64),
        };
        let mut service = self.service.lock().expect("no panic while it is held");
        Now {
            wall: Timestamp(wall_ms),
            up: service.read(ms_since(self.begun)),
        }
    }

    pub fn undisturbed_since(&self) -> Uptime {
        let service = self.service.lock().expect("no panic while it is held");
        service.undisturbed_since()
    }
}

/// A time that never goes back and that goes on while the machine sleeps, so that sleep is seen as the absence it is.
#[cfg(target_os = "linux")]
fn ms_since(_: Instant) -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
}

/// Elsewhere sleep is not seen; it does not count as service either.
#[cfg(not(target_os = "linux"))]
fn ms_since(begun: Instant) -> i64 {
    begun.elapsed().as_millis() as i64
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_clock_counts_the_time_that_the_server_was_there() {
        let mut clock = ServiceClock::continuing(Uptime(5_000), 1_000_000);
        assert_eq!(clock.read(1_000_000), Uptime(5_000));
        assert_eq!(clock.read(1_001_000), Uptime(6_000));
        assert_eq!(clock.undisturbed_since(), Uptime(5_000));
        // Ten seconds may pass between two readings on a busy machine.
        assert_eq!(clock.read(1_011_000), Uptime(16_000));
        assert_eq!(clock.undisturbed_since(), Uptime(5_000));
    }

    #[test]
    fn an_hour_asleep_is_no_hour_of_service() {
        let mut clock = ServiceClock::continuing(Uptime(0), 0);
        clock.read(1_000);
        assert_eq!(clock.read(3_601_000), Uptime(11_000));
        assert_eq!(clock.undisturbed_since(), Uptime(11_000));
        assert_eq!(clock.read(3_602_000), Uptime(12_000));
    }

    #[test]
    fn it_never_goes_back() {
        let mut clock = ServiceClock::continuing(Uptime(0), 0);
        clock.read(5_000);
        assert_eq!(clock.read(4_000), Uptime(5_000));
        assert_eq!(clock.read(5_001), Uptime(5_001));
    }
}
