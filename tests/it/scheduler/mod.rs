//! Schedules: when they are due, and what becomes of each time at which they were.

mod cron;
mod files;
mod fire;
mod hostile_clock;
mod late;
mod overlap;
mod thread;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use stepward::domain::event::EventKind;
use stepward::domain::job::Job;
use stepward::domain::presence::{ClockReading, Presence};
use stepward::domain::schedule::{CatchUp, Fire, Overlap, ScheduleDraft};
use stepward::domain::task::TaskDraft;
use stepward::domain::{Json, ScheduleId, Timestamp};
use stepward::store::Frozen;

use crate::house::{TestHouse, frozen, script};

pub const SECOND: i64 = 1_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;

/// A house with one task, `main`, and a scheduler that looks when it is told to.
pub struct Timetable {
    pub house: TestHouse,
    pub tasks: BTreeMap<String, Frozen>,
    seen: RefCell<Option<Presence>>,
    stalled_ms: Cell<i64>,
}

impl Timetable {
    /// At half past nine in the evening of 14 November 2023, UTC.
    pub fn new() -> Timetable {
        Timetable::in_house(TestHouse::new())
    }

    pub fn in_house(house: TestHouse) -> Timetable {
        house.clock.step_wall_ms(-(43 * MINUTE + 20 * SECOND));
        let main = frozen(vec![TaskDraft::new("main", vec![script("a")])]);
        let timetable = Timetable {
            seen: RefCell::default(),
            stalled_ms: Cell::default(),
            tasks: BTreeMap::from([("main".to_string(), main)]),
            house,
        };
        timetable.follow_clock("first boot");
        timetable
    }

    /// Time passes in which the server hardly runs, as on a machine that sleeps: the service clock counts none of it.
    pub fn stall(&self, ms: i64) {
        self.house.clock.step_wall_ms(ms);
        self.stalled_ms.set(self.stalled_ms.get() + ms);
    }

    fn follow_clock(&self, boot: &str) {
        let now = self.house.now();
        let reading = ClockReading {
            boot_id: boot.to_string(),
            boot_ms: now.up.0 + self.stalled_ms.get(),
            wall: now.wall,
            up: now.up,
        };
        let last = self.seen.take();
        let seen = self.house.engine.follow_clock(last, reading, now);
        self.seen.replace(Some(seen.unwrap()));
    }

    /// The server is killed and started again, in the same boot of the machine.
    pub fn restart(&self, drafts: &[ScheduleDraft]) {
        let boot = self.boot();
        self.seen.take();
        self.follow_clock(&boot);
        self.load(drafts);
    }

    /// The machine is started again, with this wall clock.
    pub fn reboot(&self, wall: Timestamp, drafts: &[ScheduleDraft]) {
        let boot = format!("{}, and another", self.boot());
        self.seen.take();
        let step_ms = wall.0 - self.house.now().wall.0;
        self.house.clock.step_wall_ms(step_ms);
        self.follow_clock(&boot);
        self.load(drafts);
    }

    fn boot(&self) -> String {
        let seen = self.seen.borrow();
        seen.as_ref().unwrap().reading.boot_id.clone()
    }

    /// With this schedule.
    pub fn with(draft: ScheduleDraft) -> Timetable {
        let timetable = Timetable::new();
        timetable.load(&[draft]);
        timetable
    }

    pub fn load(&self, drafts: &[ScheduleDraft]) {
        let now = self.house.now();
        self.house.engine.set_schedules(drafts, true, now).unwrap();
    }

    /// As `load`, while some file does not load.
    pub fn load_in_part(&self, drafts: &[ScheduleDraft]) {
        let now = self.house.now();
        self.house.engine.set_schedules(drafts, false, now).unwrap();
    }

    pub fn advance(&self, ms: i64) {
        self.house.clock.advance_ms(ms);
    }

    /// One look of the scheduler, as its thread does it. Returns how many jobs it made.
    pub fn look(&self) -> usize {
        self.follow_clock(&self.boot());
        let now = self.house.now();
        let task = |name: &str| self.tasks.get(name).cloned();
        self.house.engine.fire_due(now, &task).unwrap().fired
    }

    /// When the scheduler would look again by itself, once it has looked.
    pub fn looks_again_at(&self) -> Option<String> {
        let task = |name: &str| self.tasks.get(name).cloned();
        let round = self.house.engine.fire_due(self.house.now(), &task).unwrap();
        round.next_at.map(clock_of)
    }

    /// Looks every so often, for so long.
    pub fn run(&self, every_ms: i64, for_ms: i64) -> usize {
        let looks = 0..for_ms / every_ms;
        looks
            .map(|_| {
                self.advance(every_ms);
                self.look()
            })
            .sum()
    }

    pub fn fires(&self) -> Vec<Fire> {
        let fires = self.house.engine.fires(ScheduleId(1), None, 100_000);
        let mut fires = fires.unwrap();
        fires.reverse();
        fires
    }

    /// `22:00 fired`, the oldest first.
    pub fn ledger(&self) -> Vec<String> {
        let fires = self.fires().into_iter();
        fires
            .map(|fire| format!("{} {}", clock_of(fire.due_at), fire.outcome))
            .collect()
    }

    pub fn jobs(&self) -> Vec<Job> {
        let fires = self.fires().into_iter();
        let jobs = fires.filter_map(|fire| fire.job_id);
        jobs.map(|job_id| self.house.job(job_id).job).collect()
    }

    pub fn next_at(&self) -> Option<String> {
        let view = self.house.engine.schedule(ScheduleId(1)).unwrap();
        view.schedule.next_at.map(clock_of)
    }

    /// What was told of schedules.
    pub fn told(&self) -> Vec<String> {
        let events = self.house.events().into_iter();
        let of_schedules = events.filter(|event| {
            use EventKind::*;
            matches!(
                event.fact.kind,
                ScheduleMissed
                    | ScheduleSkipped
                    | ScheduleRefused
                    | SchedulePaused
                    | ScheduleResumed
            )
        });
        of_schedules.map(|event| event.fact.message).collect()
    }
}

pub fn clock_of(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_millisecond(at.0).unwrap();
    let shown = at.strftime("%H:%M:%S").to_string();
    shown.strip_suffix(":00").unwrap_or(&shown).to_string()
}

/// The schedule `often` of task `main`.
pub fn schedule(cron: &str) -> ScheduleDraft {
    ScheduleDraft {
        task: "main".to_string(),
        name: "often".to_string(),
        cron: cron.to_string(),
        timezone: "UTC".to_string(),
        input: Json::empty_object(),
        overlap: Overlap::Allow,
        catch_up: CatchUp::Latest {
            within_ms: CatchUp::LATEST_WITHIN_MS,
        },
        enabled: true,
    }
}
