//! The thread, in real time: it wakes when something is due, learns of new deadlines, and never needs to be asked.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepward::clock::SystemClock;
use stepward::domain::JobId;
use stepward::domain::job::JobState;
use stepward::domain::retry::RetryPolicy;
use stepward::domain::task::{StepDraft, TaskDraft};
use stepward::engine::{Engine, Finished, Poll, Settings, Submission};
use stepward::service::ServiceManager;
use stepward::store::{Store, StoreOptions};
use stepward::sweeper::Sweeper;

use super::Stuck;
use crate::house::{frozen, registration, script};

struct Live {
    engine: Engine,
    clock: Arc<SystemClock>,
    sweeper: Sweeper,
    _folder: tempfile::TempDir,
}

fn live(settings: Settings) -> Live {
    live_with(settings, StoreOptions::default())
}

fn live_with(settings: Settings, options: StoreOptions) -> Live {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), options).unwrap();
    let clock = Arc::new(SystemClock::continuing(store.begun_up(), &settings));
    let engine = Engine::new(store, settings);
    let sweeper = Sweeper::start(engine.clone(), clock.clone()).unwrap();
    Live {
        engine,
        clock,
        sweeper,
        _folder: folder,
    }
}

impl Live {
    fn submit(&self, step: StepDraft) -> JobId {
        let task = frozen(vec![TaskDraft::new("main", vec![step])]);
        let submission = Submission::of(&task);
        let submitted = self.engine.submit(submission, self.clock.now());
        submitted.unwrap().job_id
    }

    fn state(&self, job_id: JobId) -> JobState {
        self.engine.job(job_id).unwrap().job.state
    }
}

fn await_that(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn it_acts_at_deadlines_long_before_its_interval_is_over() {
    let live = live(Settings {
        sweep_interval_ms: 3_600_000,
        unmatched_step_timeout_ms: 50,
        heartbeat_interval_ms: 20,
        heartbeat_timeout_ms: 100,
        ..Settings::default()
    });
    await_that("a first sweep", || live.sweeper.last_sweep().is_some());

    let unmatched = live.submit(script("a"));
    await_that("phase 4", || live.state(unmatched) == JobState::Failed);

    let key = "its only life".to_string();
    let ann = registration("ann", &key, &[], 1);
    live.engine
        .open_session(ann, Vec::new(), live.clock.now())
        .unwrap();
    let retried = live.submit(StepDraft {
        retry: RetryPolicy {
            delay_ms: 30,
            ..RetryPolicy::times(2)
        },
        ..script("a")
    });
    let claim = || {
        let poll = Poll {
            session_key: key.clone(),
            free_slots: 1,
            held: Vec::new(),
        };
        let answer = live.engine.poll(poll, live.clock.now()).unwrap();
        let attempt = answer.assignments.first()?.attempt;
        live.engine.start(&key, attempt, live.clock.now()).unwrap();
        Some(attempt)
    };
    let first = claim().unwrap();
    let failed = Finished::exited(1);
    live.engine
        .finish(&key, first, failed, live.clock.now())
        .unwrap();
    await_that("the retry's delay is over", || claim().is_some());

    // Now the worker says nothing any more.
    await_that("phase 1", || live.state(retried) == JobState::Failed);
    let step = live.engine.job(retried).unwrap().steps.remove(0).1;
    assert_eq!(step.reason.unwrap().as_str(), "worker_lost");
    let last = live.sweeper.last_sweep().unwrap();
    assert_eq!(last.failures, 0);
}

#[test]
fn while_the_store_cannot_write_the_clock_stands_still() {
    let options = StoreOptions {
        write_deadline: Duration::from_millis(500),
        ..StoreOptions::default()
    };
    let live = live_with(Settings::default(), options);
    await_that("a first sweep", || live.sweeper.last_sweep().is_some());
    let stuck = Stuck::new(&live.engine);
    live.engine.save_clock(live.clock.now()).unwrap_err();
    await_that("it is noticed", || live.engine.is_failing());
    let stands_still = || {
        let before = live.clock.now().up;
        std::thread::park_timeout(Duration::from_millis(20));
        live.clock.now().up == before
    };
    await_that("the clock is held", stands_still);
    let held_up = live.clock.now().up;
    drop(stuck);
    await_that("it is over", || !live.engine.is_failing());
    await_that("the clock goes on", || live.clock.now().up > held_up);
    assert!(live.engine.bounds().undisturbed_since >= held_up);
}

#[test]
fn it_ends_when_it_is_dropped() {
    let live = live(Settings::default());
    await_that("a first sweep", || live.sweeper.last_sweep().is_some());
    drop(live.sweeper);
    // The thread held the store; opening it again needs it gone.
    let folder = live.engine.store.folder().to_path_buf();
    drop(live.engine);
    Store::open(&folder, StoreOptions::default()).unwrap();
}

/// Whoever watches over the server hears nothing while the store hangs, and hears of it again once it goes on.
#[test]
fn a_store_that_hangs_silences_the_sign_of_life() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let watchdog = Duration::from_millis(300);
    let manager = ServiceManager::at(path.as_os_str(), Some(watchdog)).unwrap();
    let settings = Settings::default();
    let store = Store::open(&folder.path().join("data"), StoreOptions::default()).unwrap();
    let clock = Arc::new(SystemClock::continuing(store.begun_up(), &settings));
    let engine = Engine::new(store.clone(), settings);
    let _sweeper = Sweeper::start_watched(engine, clock, manager).unwrap();
    // `None`: nothing came in four times the time that was asked for.
    let hear = || {
        socket.set_read_timeout(Some(watchdog * 4)).unwrap();
        loop {
            let mut datagram = [0; 200];
            let Ok(length) = socket.recv(&mut datagram) else {
                return None;
            };
            if datagram[..length] == *b"WATCHDOG=1" {
                return Some(());
            }
        }
    };
    assert_eq!((hear(), hear(), hear()), (Some(()), Some(()), Some(())));
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let hanging = std::thread::spawn(move || {
        let wait = std::sync::Mutex::new(wait);
        store.write(move |_| {
            let _ = wait.lock().unwrap().recv();
            Ok::<_, stepward::store::StoreError>(())
        })
    });
    // Within the second in which the store had last written it still counts as writing.
    await_that("it is silent", || hear().is_none());
    drop(go_on);
    hanging.join().unwrap().unwrap();
    await_that("it is heard again", || hear().is_some());
}
