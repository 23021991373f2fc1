//! Schedules under a hostile wall clock: it is set to 1970, by ten years, beyond the year 10,000 and back, while the server is
//! killed, suspended and started again. What passes in reality is known here, and the engine is only shown its clocks.
//!
//! Two promises. A schedule makes no more jobs than it has instants in the time that really passed, of an absence no more than its
//! `catch_up` allows, and one or two for each time that the clock was set. And after each look it has a next time, as long as its
//! cron can count that far.
//!
//! Left out is what nobody can know: a machine that boots with a clock that is ahead, or that is set ahead after it booted in
//! 1970, looks like one that was off for as long.

use std::collections::BTreeMap;
use std::sync::Arc;

use stepward::clock::ServiceClock;
use stepward::domain::presence::{ClockReading, Presence};
use stepward::domain::schedule::{CatchUp, Overlap, ScheduleDraft};
use stepward::domain::task::{Definition, StepDraft, TaskDraft};
use stepward::domain::{Json, Now, ScheduleId, Timestamp, Uptime};
use stepward::engine::{Engine, Settings};
use stepward::store::{Frozen, Store, StoreOptions};
use tempfile::TempDir;

use crate::dice::Dice;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const YEAR: i64 = 365 * 24 * HOUR;

/// 14 November 2023.
const BEGIN: i64 = 1_700_000_000_000;

/// More than a step of the clock may ever add.
const MADE_UP_MAX: u32 = 15;

/// What is found within ten seconds is on time.
const ON_TIME_MS: i64 = 10 * SECOND;

/// The longest step forward that counts as a correction: the last instant that it jumped over is found late.
const CORRECTION_MAX_MS: i64 = 120 * SECOND;

/// With nothing else to write, the service clock is saved this often.
const SAVE_CLOCK_MS: i64 = 10 * SECOND;

/// No cron counts further than the year 5000.
const CRON_END: i64 = 95_617_584_000_000;

/// A schedule, the time between two of its instants, and what it may have made.
struct Timer {
    draft: ScheduleDraft,
    period_ms: i64,
    jobs: usize,
    /// Real time that passed, as far as jobs may be made for it, and what each step of the clock may add, in milliseconds of
    /// instants.
    allowed_ms: i64,
}

impl Timer {
    fn new(name: &str, cron: &str, period_ms: i64, catch_up: CatchUp, overlap: Overlap) -> Timer {
        Timer {
            draft: ScheduleDraft {
                task: "main".to_string(),
                name: name.to_string(),
                cron: cron.to_string(),
                timezone: "UTC".to_string(),
                input: Json::empty_object(),
                overlap,
                catch_up,
                enabled: true,
            },
            period_ms,
            jobs: 0,
            allowed_ms: period_ms,
        }
    }

    /// The `catch_up` of the schedule wants only the last instants of an absence. Instants of the last ten seconds are on time.
    fn allow_absence(&mut self, away_ms: i64) {
        let late = match self.draft.catch_up {
            CatchUp::None => 0,
            CatchUp::Latest { .. } => 1,
            CatchUp::All { max } => i64::from(max),
        };
        self.allowed_ms += away_ms.min((late + 1) * self.period_ms + ON_TIME_MS);
    }

    /// A job that was not made by now will not be made any more, unless it waits for another one to end.
    fn forget_unused(&mut self) {
        if self.draft.overlap == Overlap::Allow {
            let used_ms = self.jobs as i64 * self.period_ms;
            self.allowed_ms = self.allowed_ms.min(used_ms + self.period_ms);
        }
    }
}

struct World {
    dice: Dice,
    engine: Option<Engine>,
    service: ServiceClock,
    seen: Option<Presence>,
    task: Frozen,
    timers: Vec<Timer>,
    /// Real time since the beginning.
    real_ms: i64,
    /// How wrong the wall clock is.
    wrong_by_ms: i64,
    boots: u32,
    boot_begun_ms: i64,
    /// The machine booted with a clock that is behind the last look, and the clock was not set since.
    is_behind: bool,
    /// The wall clock at the last look.
    last_look: Timestamp,
    /// What the first schedule has to make up for once the clock is right.
    owed: usize,
    told: BTreeMap<&'static str, u64>,
    print: bool,
    /// Last, so that the engine is closed before its database is removed.
    folder: TempDir,
}

/// What one seed was like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub jobs: usize,
    pub counts: BTreeMap<&'static str, u64>,
}

/// Plays one seed to its end. Panics at the first breach.
pub fn play(seed: u64, print: bool) -> Told {
    let mut world = World::new(seed, print);
    for _ in 0..10 {
        world.something_happens();
    }
    world.set_clock(0, "clock right");
    world.is_behind = false;
    world.be_there(65 * SECOND);
    let engine = world.engine.as_ref().unwrap();
    let now = world.wall();
    for view in engine.schedules(ScheduleId(0), 10).unwrap() {
        // What is made up for one after another may still wait for a job.
        let next_at = view.schedule.look_at.expect("it has a next time again");
        assert!(next_at > now, "{view:?}");
    }
    let breaches = engine.store.read(|tx| tx.breaches()).unwrap();
    assert_eq!(breaches, []);
    Told {
        jobs: world.timers.iter().map(|timer| timer.jobs).sum(),
        counts: world.told,
    }
}

impl World {
    fn new(seed: u64, print: bool) -> World {
        let all = CatchUp::All { max: MADE_UP_MAX };
        let latest = CatchUp::Latest { within_ms: HOUR };
        let (seconds, minutes) = ("*/10 * * * * *", "* * * * *");
        let timers = vec![
            Timer::new("all", minutes, MINUTE, all, Overlap::Allow),
            Timer::new("short", "*/2 * * * * *", 2 * SECOND, all, Overlap::Allow),
            Timer::new("seconds", seconds, 10 * SECOND, latest, Overlap::Allow),
            Timer::new("none", minutes, MINUTE, CatchUp::None, Overlap::Allow),
            Timer::new("apart", minutes, MINUTE, all, Overlap::Skip),
            Timer::new("queue", minutes, MINUTE, all, Overlap::Queue),
        ];
        let memory = std::path::Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let main = TaskDraft::new("main", vec![StepDraft::script("a", "true")]);
        let checked = Definition::check("main", vec![main]).unwrap();
        let mut world = World {
            dice: Dice::new(seed ^ 0x5C4E_D01E),
            folder,
            engine: None,
            service: ServiceClock::continuing(Uptime(0), 0, 10_000),
            seen: None,
            task: Frozen::new(Arc::new(checked)),
            timers,
            real_ms: 0,
            wrong_by_ms: 0,
            boots: 0,
            boot_begun_ms: 0,
            is_behind: false,
            last_look: Timestamp(0),
            owed: 0,
            told: BTreeMap::new(),
            print,
        };
        if world.dice.chance(30) {
            // A new installation on a machine without a battery: nothing was there before.
            world.boot(-BEGIN, "new in 1970");
            world.be_there(4 * SECOND);
            world.set_clock(0, "clock right");
            world.is_behind = false;
        } else {
            world.boot(0, "booted");
        }
        world
    }

    fn wall(&self) -> Timestamp {
        Timestamp(BEGIN + self.real_ms + self.wrong_by_ms).printable()
    }

    fn count(&mut self, what: &'static str) {
        *self.told.entry(what).or_default() += 1;
        if self.print {
            let secs = self.real_ms / SECOND;
            println!("{secs:>9} {what}, the clock is at {:?}", self.wall());
        }
    }

    fn something_happens(&mut self) {
        let for_ms = self.dice.between(1, 25) * SECOND;
        self.be_there(for_ms);
        if self.is_behind && self.wrong_by_ms > -HOUR {
            // A small correction sets the clock right, though not to the second. Any later step is an ordinary one.
            self.is_behind = false;
            let off_by_ms = self.dice.between(0, 5) * SECOND;
            self.set_clock(-off_by_ms, "clock corrected after the boot");
            if self.dice.chance(50) {
                self.be_there(5 * SECOND);
                self.set_clock(10 * YEAR, "clock ten years ahead");
            }
            return;
        }
        if self.is_behind {
            // Until it is set right, a step that leaves it behind must not be taken for the right time.
            if self.dice.chance(30) {
                return self.set_clock(-10 * YEAR, "clock ten years behind");
            }
            self.is_behind = false;
            let before = self.timers[0].jobs;
            self.set_clock(0, "clock right");
            let (made, owed) = (self.timers[0].jobs - before, self.owed.saturating_sub(1));
            assert!(made >= owed, "{made} of {owed} were made up for");
            return;
        }
        self.timers.iter_mut().for_each(Timer::forget_unused);
        match self.dice.roll(13) {
            0 => self.set_clock(-BEGIN - self.real_ms, "clock in 1970"),
            1 => self.set_clock(10 * YEAR, "clock ten years ahead"),
            2 => self.set_clock(-10 * YEAR, "clock ten years behind"),
            3 => self.set_clock(4_000 * YEAR, "clock in the year 6000"),
            4 => self.set_clock(9_000 * YEAR, "clock beyond the year 10000"),
            5 | 6 => self.set_clock(0, "clock right"),
            7 => {
                let by_ms = self.dice.between(-40, 40) * SECOND;
                self.set_clock(self.wrong_by_ms + by_ms, "clock corrected");
            }
            8 => self.away("suspended", |_| {}),
            9 => self.away("killed", World::start),
            10 => self.away("killed and its clock set", |world| {
                let by_ms = world.dice.between(-10, 10) * YEAR;
                world.allow_step(by_ms - world.wrong_by_ms);
                world.wrong_by_ms = by_ms;
                world.start();
            }),
            // A clock that was wrong before the boot tells nothing about the time between.
            _ if self.wrong_by_ms != 0 => self.set_clock(0, "clock right"),
            _ => self.away("rebooted", |world| match world.dice.roll(5) {
                0 | 1 => world.boot(-BEGIN - world.real_ms, "booted in 1970"),
                2 | 3 => {
                    let behind_ms = world.dice.between(20, 120) * SECOND;
                    world.boot(-behind_ms, "booted slightly behind");
                }
                _ => world.boot(0, "booted"),
            }),
        }
    }

    /// Nobody looks for a while, and then somebody does. What was due is made up for.
    fn away(&mut self, what: &'static str, come_back: impl FnOnce(&mut World)) {
        self.count(what);
        self.be_there(SECOND);
        let away_max_secs = if self.dice.chance(50) { 20 } else { 1_200 };
        let away_ms = self.dice.between(0, away_max_secs) * SECOND;
        let before: Vec<usize> = self.timers.iter().map(|timer| timer.jobs).collect();
        let wrong_before_ms = self.wrong_by_ms;
        self.real_ms += away_ms;
        // With a clock that shows times again, or none that any cron counts, nothing fires, and only the service clock is saved.
        for timer in &mut self.timers {
            timer.allow_absence(away_ms + SAVE_CLOCK_MS);
        }
        come_back(self);
        self.look();
        let timer = &self.timers[0];
        let due = (away_ms / timer.period_ms).min(MADE_UP_MAX.into()) as usize;
        if self.is_behind {
            self.owed = due;
        } else if what == "rebooted" && self.wrong_by_ms != 0 {
            // The clock is slow and yet later than before: nobody can know how long the server was away.
        } else if self.wrong_by_ms == 0 && wrong_before_ms == 0 {
            // A wrong clock may show times that it has shown before, and those had their jobs.
            let made = timer.jobs - before[0];
            let due = due.saturating_sub(1);
            assert!(made >= due, "{what}: {made} of {due} were made up for");
        }
    }

    fn boot(&mut self, wrong_by_ms: i64, what: &'static str) {
        self.boots += 1;
        self.boot_begun_ms = self.real_ms;
        self.allow_step(wrong_by_ms - self.wrong_by_ms);
        self.wrong_by_ms = wrong_by_ms;
        self.is_behind = self.wall().0 < self.last_look.0 - ON_TIME_MS;
        self.count(what);
        self.start();
    }

    fn start(&mut self) {
        self.engine = None;
        self.seen = None;
        let options = StoreOptions {
            readers_max: 1,
            ..StoreOptions::default()
        };
        let store = Store::open(self.folder.path(), options).unwrap();
        self.service = ServiceClock::continuing(store.begun_up(), self.real_ms, 10_000);
        let engine = Engine::new(store, Settings::default());
        self.engine = Some(engine);
        self.follow_clock();
        let drafts: Vec<ScheduleDraft> = self.timers.iter().map(|it| it.draft.clone()).collect();
        let now = self.now();
        let engine = self.engine.as_ref().unwrap();
        engine.set_schedules(&drafts, true, now).unwrap();
    }

    fn set_clock(&mut self, wrong_by_ms: i64, what: &'static str) {
        self.allow_step(wrong_by_ms - self.wrong_by_ms);
        self.wrong_by_ms = wrong_by_ms;
        self.count(what);
        self.look();
    }

    /// After each step an instant may come sooner than a period after the last one. A short step forward finds what it jumped over
    /// on time, a longer correction the last of it late. A step back may return to times that a step forward had jumped over: the last ten seconds are on time.
    fn allow_step(&mut self, step_ms: i64) {
        for timer in &mut self.timers {
            timer.allowed_ms += timer.period_ms;
            if step_ms < 0 {
                timer.allowed_ms += ON_TIME_MS;
            } else if (0..=ON_TIME_MS).contains(&step_ms) {
                timer.allowed_ms += step_ms;
            } else if (0..=CORRECTION_MAX_MS).contains(&step_ms) {
                timer.allowed_ms += timer.period_ms;
            }
        }
    }

    fn pass(&mut self, ms: i64) {
        self.real_ms += ms;
        self.timers
            .iter_mut()
            .for_each(|timer| timer.allowed_ms += ms);
    }

    fn be_there(&mut self, for_ms: i64) {
        for _ in 0..for_ms / SECOND {
            self.pass(SECOND);
            self.look();
        }
    }

    fn now(&mut self) -> Now {
        Now {
            wall: self.wall(),
            up: self.service.read(self.real_ms),
        }
    }

    fn follow_clock(&mut self) {
        let now = self.now();
        let reading = ClockReading {
            boot_id: format!("boot {}", self.boots),
            boot_ms: self.real_ms - self.boot_begun_ms,
            wall: now.wall,
            up: now.up,
        };
        let engine = self.engine.as_ref().unwrap();
        let seen = engine.follow_clock(self.seen.take(), reading, now);
        self.seen = Some(seen.unwrap());
    }

    /// One look of the scheduler. Jobs end now and then, so that those who wait for them have their turn.
    fn look(&mut self) {
        self.follow_clock();
        let now = self.now();
        self.last_look = now.wall;
        let engine = self.engine.as_ref().unwrap();
        // As the sweeper does: the service clock is saved at least every ten seconds.
        engine.try_to_write(now).unwrap();
        let round = engine.fire_due(now, &|_| Some(self.task.clone()));
        let has_fired = round.unwrap().fired > 0;
        if self.dice.chance(20) {
            for at in 1..=self.timers.len() as i64 {
                let schedule_id = ScheduleId(at);
                let live = engine
                    .store
                    .read(|tx| tx.live_jobs_of_schedule(schedule_id));
                for job_id in live.unwrap() {
                    engine.cancel(job_id, "its time is over", now).unwrap();
                }
            }
        }
        self.check(has_fired, now);
    }

    fn check(&mut self, has_fired: bool, now: Now) {
        let engine = self.engine.as_ref().unwrap();
        let views = engine.schedules(ScheduleId(0), 10);
        for view in views.unwrap() {
            let mut timers = self.timers.iter_mut();
            let timer = timers.find(|timer| timer.draft.name == view.schedule.draft.name);
            let timer = timer.expect("no other was loaded");
            let schedule_id = view.schedule.schedule_id;
            if has_fired {
                let fires = engine.fires(schedule_id, None, 10_000).unwrap();
                timer.jobs = fires.iter().filter(|fire| fire.job_id.is_some()).count();
            }
            let made_ms = timer.jobs as i64 * timer.period_ms;
            assert!(
                made_ms <= timer.allowed_ms,
                "{}: {} jobs, {} at most",
                timer.draft.name,
                timer.jobs,
                timer.allowed_ms / timer.period_ms
            );
            let has_next = view.schedule.next_at.is_some();
            assert!(
                has_next || now.wall.0 >= CRON_END - YEAR,
                "{} has no next time",
                timer.draft.name
            );
        }
    }
}
