//! The only place that asks the time. Everything else gets it as an argument.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::domain::presence::ClockReading;
use crate::domain::settings::Settings;
use crate::domain::{Now, Timestamp, Uptime};
use crate::planted::{Bug, planted};

/// The service clock: the time that the server was there. It never jumps and never goes back.
///
/// It is read all the time, by whoever handles a request and at least every second by the sweeper. So a long gap between
/// two readings means that nobody was there, stopped, suspended or starved, and of such a gap next to nothing counts. While
/// the store cannot write, it is held.
#[derive(Debug)]
pub struct ServiceClock {
    read_ms: i64,
    read_up: Uptime,
    undisturbed_since: Uptime,
    absence_ms: i64,
    held: bool,
}

impl ServiceClock {
    /// Goes on from where the last life of the server left it. `ms` is any time that never goes back.
    pub fn continuing(up: Uptime, ms: i64, absence_ms: i64) -> ServiceClock {
        ServiceClock {
            read_ms: ms,
            read_up: up,
            undisturbed_since: up,
            absence_ms,
            held: false,
        }
    }

    /// From the last reading on no time passes, until it is let go.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    pub fn read(&mut self, ms: i64) -> Uptime {
        // Two threads may come here in another order than they looked at the time.
        let gap_ms = (ms - self.read_ms).max(0);
        self.read_ms = self.read_ms.max(ms);
        if self.held {
            return self.read_up;
        }
        if planted(Bug::StallCountsAsSilence) {
            self.read_up = self.read_up.plus_ms(gap_ms);
            return self.read_up;
        }
        self.read_up = self.read_up.plus_ms(gap_ms.min(self.absence_ms));
        if gap_ms > self.absence_ms {
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
    pub fn continuing(service_clock: Uptime, settings: &Settings) -> SystemClock {
        let begun = Instant::now();
        let absence_ms = settings.absence_ms();
        let service = ServiceClock::continuing(service_clock, ms_since(begun), absence_ms);
        SystemClock {
            service: Mutex::new(service),
            begun,
        }
    }

    pub fn now(&self) -> Now {
        // The clocks of the machine are read without the lock, because reading them may panic.
        let (wall, ms) = (wall_time(), ms_since(self.begun));
        Now {
            wall,
            up: self.service().read(ms),
        }
    }

    /// Each change of the service clock is a few assignments that leave a valid clock at any point. So one panic that poisons the
    /// lock must not take the time from the whole server.
    fn service(&self) -> MutexGuard<'_, ServiceClock> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reading that tells an absence from a wall clock that was set, at this moment.
    pub fn reading(&self, now: Now) -> ClockReading {
        ClockReading {
            boot_id: boot_id().to_string(),
            boot_ms: ms_since(self.begun),
            wall: now.wall,
            up: now.up,
        }
    }

    pub fn hold(&self, held: bool) {
        self.service().hold(held);
    }

    pub fn undisturbed_since(&self) -> Uptime {
        self.service().undisturbed_since()
    }
}

/// The wall clock. A clock that is set beyond all calendars reads as the first or last time that can be printed.
pub fn wall_time() -> Timestamp {
    timestamp_of(SystemTime::now())
}

fn timestamp_of(time: SystemTime) -> Timestamp {
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    let timestamp = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp(ms(since)),
        Err(before) => Timestamp(-ms(before.duration())),
    };
    timestamp.printable()
}

/// How long something takes, for whoever counts it. It decides nothing.
pub struct Stopwatch(Instant);

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    pub fn secs(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// The moment at which something that costs others time has to end, whether it is done or not.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    pub fn after(time: Duration) -> Deadline {
        Deadline(Instant::now() + time)
    }

    pub fn is_over(self) -> bool {
        Instant::now() >= self.0
    }
}

/// Milliseconds that never go back, for whoever has no service clock. They go on while the machine sleeps.
pub fn monotonic_ms() -> i64 {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    ms_since(*BEGUN.get_or_init(Instant::now))
}

/// Names the boot of the machine. Where the kernel does not tell it, each process counts as a boot.
fn boot_id() -> &'static str {
    static BOOT_ID: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    BOOT_ID.get_or_init(|| {
        let told = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let told = told.map(|id| id.trim().to_string()).unwrap_or_default();
        if !told.is_empty() {
            return told;
        }
        let begun = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = begun.map_or(0, |since| since.as_nanos());
        format!("process {} of {nanos}", std::process::id())
    })
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
        let mut clock = ServiceClock::continuing(Uptime(5_000), 1_000_000, 10_000);
        assert_eq!(clock.read(1_000_000), Uptime(5_000));
        assert_eq!(clock.read(1_001_000), Uptime(6_000));
        assert_eq!(clock.undisturbed_since(), Uptime(5_000));
        // Ten seconds may pass between two readings on a busy machine.
        assert_eq!(clock.read(1_011_000), Uptime(16_000));
        assert_eq!(clock.undisturbed_since(), Uptime(5_000));
    }

    #[test]
    fn an_hour_asleep_is_no_hour_of_service() {
        let mut clock = ServiceClock::continuing(Uptime(0), 0, 10_000);
        clock.read(1_000);
        assert_eq!(clock.read(3_601_000), Uptime(11_000));
        assert_eq!(clock.undisturbed_since(), Uptime(11_000));
        assert_eq!(clock.read(3_602_000), Uptime(12_000));
    }

    #[test]
    fn while_it_is_held_no_time_passes() {
        let mut clock = ServiceClock::continuing(Uptime(0), 0, 10_000);
        clock.read(1_000);
        clock.hold(true);
        assert_eq!(clock.read(5_000), Uptime(1_000));
        assert_eq!(clock.read(500_000), Uptime(1_000));
        clock.hold(false);
        assert_eq!(clock.read(501_000), Uptime(2_000));
        assert_eq!(
            clock.undisturbed_since(),
            Uptime(0),
            "whoever held it says that"
        );
    }

    #[test]
    fn short_timeouts_make_short_absences() {
        let demo = Settings {
            heartbeat_interval_ms: 1_000,
            heartbeat_timeout_ms: 6_000,
            ..Settings::default()
        };
        assert_eq!(demo.absence_ms(), 2_500);
        assert_eq!(Settings::default().absence_ms(), 10_000);
    }

    #[test]
    fn a_clock_beyond_all_calendars_reads_as_the_nearest_printable_time() {
        let after_1970 = |secs: u64| timestamp_of(UNIX_EPOCH + Duration::from_secs(secs));
        assert_eq!(after_1970(1_700_000_000), Timestamp(1_700_000_000_000));
        for secs in [253_402_300_800, 4_000_000_000_000, i64::MAX as u64] {
            assert_eq!(after_1970(secs), Timestamp::LAST_PRINTABLE, "{secs}");
        }
        let before_1970 = |secs: u64| timestamp_of(UNIX_EPOCH - Duration::from_secs(secs));
        assert_eq!(before_1970(1), Timestamp(-1_000));
        for secs in [70_000_000_000, i64::MAX as u64] {
            assert_eq!(before_1970(secs), Timestamp::FIRST_PRINTABLE, "{secs}");
        }
    }

    #[test]
    fn a_panic_with_the_clock_in_hand_stops_no_clock() {
        let clock = SystemClock::continuing(Uptime(5_000), &Settings::default());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = clock.service();
            panic!("a bug");
        }));
        assert!(panicked.is_err());
        assert!(clock.now().up >= Uptime(5_000));
        clock.hold(true);
        assert_eq!(clock.undisturbed_since(), Uptime(5_000));
    }

    #[test]
    fn it_never_goes_back() {
        let mut clock = ServiceClock::continuing(Uptime(0), 0, 10_000);
        clock.read(5_000);
        assert_eq!(clock.read(4_000), Uptime(5_000));
        assert_eq!(clock.read(5_001), Uptime(5_001));
    }
}
