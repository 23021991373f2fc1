//! The thread, in real time: it looks when the next one is due, is woken for a new one, and outlives a store that cannot write.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stepward::clock::SystemClock;
use stepward::domain::schedule::{Fire, ScheduleDraft};
use stepward::domain::task::TaskDraft;
use stepward::domain::{ScheduleId, Timestamp};
use stepward::engine::{Engine, Settings};
use stepward::metrics::PanicPlace;
use stepward::scheduler::{Scheduler, Tasks};
use stepward::store::{Store, StoreOptions};

use super::{SECOND, schedule};
use crate::house::{frozen, script};

struct Live {
    engine: Engine,
    clock: Arc<SystemClock>,
    scheduler: Scheduler,
    _folder: tempfile::TempDir,
}

fn live(options: StoreOptions, tasks: Tasks) -> Live {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), options).unwrap();
    let settings = Settings::default();
    let clock = Arc::new(SystemClock::continuing(store.begun_up(), &settings));
    let engine = Engine::new(store, settings);
    let scheduler = Scheduler::start(engine.clone(), clock.clone(), tasks).unwrap();
    Live {
        engine,
        clock,
        scheduler,
        _folder: folder,
    }
}

fn main_task() -> Tasks {
    let task = frozen(vec![TaskDraft::new("main", vec![script("a")])]);
    Arc::new(move |name: &str| (name == "main").then(|| task.clone()))
}

impl Live {
    fn load(&self, drafts: &[ScheduleDraft]) {
        let now = self.clock.now();
        self.engine.set_schedules(drafts, true, now).unwrap();
        self.scheduler.wake();
    }

    fn fires(&self) -> Vec<Fire> {
        let mut fires = self.engine.fires(ScheduleId(1), None, 1_000).unwrap();
        fires.reverse();
        fires
    }

    /// Until there are so many.
    fn await_fires(&self, count: usize) -> Vec<Fire> {
        let begun = Instant::now();
        loop {
            let fires = self.fires();
            if fires.len() >= count {
                return fires;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{fires:?}");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// One each second, each with a job.
fn assert_complete(fires: &[Fire]) {
    let first = fires[0].due_at;
    for (index, fire) in fires.iter().enumerate() {
        assert_eq!(fire.due_at, Timestamp(first.0 + index as i64 * SECOND));
        assert!(fire.job_id.is_some(), "{fire:?}");
    }
}

#[test]
fn every_second_is_met_and_not_before_its_time() {
    let live = live(StoreOptions::default(), main_task());
    live.load(&[schedule("* * * * * *")]);
    let fires = live.await_fires(3);
    assert_complete(&fires);
    for fire in &fires {
        assert!(fire.at >= fire.due_at, "{fire:?}");
    }
}

#[test]
fn a_task_that_makes_it_panic_does_not_end_it() {
    let calls = Arc::new(AtomicUsize::new(0));
    let (counted, tasks) = (calls.clone(), main_task());
    let panics_once = move |name: &str| {
        assert!(
            counted.fetch_add(1, Ordering::Relaxed) > 0,
            "the first time"
        );
        tasks(name)
    };
    let live = live(StoreOptions::default(), Arc::new(panics_once));
    live.load(&[schedule("* * * * * *")]);
    assert_complete(&live.await_fires(3));
    assert!(calls.load(Ordering::Relaxed) > 3);
}

#[test]
fn a_schedule_that_always_panics_holds_up_no_other_and_is_counted() {
    let tasks = main_task();
    let panics_for_bad = move |name: &str| {
        assert!(name != "bad", "a bug over one schedule");
        tasks(name)
    };
    let live = live(StoreOptions::default(), Arc::new(panics_for_bad));
    let bad = ScheduleDraft {
        task: "bad".to_string(),
        ..schedule("* * * * * *")
    };
    // Of two that are due at once the older one comes first: it is the bad one.
    live.load(std::slice::from_ref(&bad));
    live.load(&[bad, schedule("* * * * * *")]);
    let begun = Instant::now();
    loop {
        let good = live.engine.fires(ScheduleId(2), None, 10).unwrap();
        if good.len() >= 3 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{good:?}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert!(live.fires().is_empty(), "the bad one made no job");
    let panics = &live.engine.store.metrics().panics;
    assert!(panics.count(PanicPlace::Scheduler) >= 1);
}

#[test]
fn what_cannot_be_written_is_written_later() {
    // The writer is stuck for longer than a call may wait, again and again.
    let stuck = Arc::new(AtomicUsize::new(0));
    let seen = stuck.clone();
    let on_statement = move |_: u64, text: &'static str| {
        if text.contains("INSERT INTO schedule_fire") && seen.fetch_add(1, Ordering::Relaxed) < 3 {
            std::thread::sleep(Duration::from_millis(300));
        }
    };
    let options = StoreOptions {
        write_deadline: Duration::from_millis(100),
        on_statement: Some(Arc::new(on_statement)),
        ..StoreOptions::default()
    };
    let live = live(options, main_task());
    live.load(&[schedule("* * * * * *")]);
    let fires = live.await_fires(5);
    assert_complete(&fires);
    let jobs: BTreeSet<_> = fires.iter().filter_map(|fire| fire.job_id).collect();
    assert_eq!(jobs.len(), fires.len(), "a job each");
    assert!(stuck.load(Ordering::Relaxed) >= 3);
}

#[test]
fn it_ends_at_once_however_far_away_the_next_one_is() {
    let live = live(StoreOptions::default(), main_task());
    live.load(&[schedule("0 0 29 2 *")]);
    let begun = Instant::now();
    drop(live);
    assert!(begun.elapsed() < Duration::from_secs(5));
}
