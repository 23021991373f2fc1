//! Workers without a network: threads that carry steps through their lives by calling the engine.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stepward::clock::SystemClock;
use stepward::domain::Uptime;
use stepward::domain::protocol::Registration;
use stepward::domain::task::{Definition, StepDraft, TaskDraft};
use stepward::engine::{Engine, Finished, News, Reports, Settings, Submission, Verdict};
use stepward::store::{Frozen, Store, StoreOptions};

pub const CHAIN: usize = 10;
pub const JOB_STEPS: usize = 1_000;

/// Every caller of every round is a worker of its own.
static LIVES: AtomicUsize = AtomicUsize::new(0);

pub struct Run {
    pub per_s: f64,
    pub p50: Duration,
    pub p99: Duration,
    pub calls_per_commit: f64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "{:.0} steps/s, a call p50 {:?}, p99 {:?}, {:.1} calls a commit",
            self.per_s, self.p50, self.p99, self.calls_per_commit
        )
    }
}

pub fn open(folder: &Path) -> Engine {
    Engine::new(
        Store::open(folder, StoreOptions::default()).unwrap(),
        Settings::default(),
    )
}

/// Chains side by side, so that nearly every end releases a step.
pub fn chains(steps: usize) -> Frozen {
    let step = |at: usize| {
        let draft = StepDraft::script(&format!("s{at}"), "true");
        if at.is_multiple_of(CHAIN) {
            draft
        } else {
            draft.after(&[&format!("s{}", at - 1)])
        }
    };
    let task = TaskDraft::new("chains", (0..steps).map(step).collect());
    Frozen::new(Arc::new(Definition::check("chains", vec![task]).unwrap()))
}

/// Workers that call the engine themselves, until all steps of the jobs have ended.
pub fn run_callers(engine: &Engine, callers: usize, slots: u32, jobs: usize) -> Run {
    let clock = SystemClock::continuing(Uptime(0), &Settings::default());
    let frozen = chains(JOB_STEPS);
    for _ in 0..jobs {
        engine.submit(Submission::of(&frozen), clock.now()).unwrap();
    }
    let sessions: Vec<String> = (0..callers)
        .map(|n| {
            format!(
                "{}-{callers}-{slots}-{n}",
                LIVES.fetch_add(1, Ordering::Relaxed)
            )
        })
        .collect();
    for key in &sessions {
        let registration = registration(key, slots);
        engine
            .open_session(registration, Vec::new(), clock.now())
            .unwrap();
    }
    let steps = jobs * JOB_STEPS;
    let finished = AtomicUsize::new(0);
    let (groups_before, calls_before) = engine.store.groups();
    let begun = Instant::now();
    let latencies: Vec<Vec<Duration>> = std::thread::scope(|scope| {
        let threads: Vec<_> = sessions
            .iter()
            .map(|key| scope.spawn(|| call(engine, &clock, key, slots, &finished, steps)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let elapsed = begun.elapsed();
    let (groups, calls) = engine.store.groups();
    let mut latencies: Vec<Duration> = latencies.concat();
    latencies.sort();
    Run {
        per_s: steps as f64 / elapsed.as_secs_f64(),
        p50: latencies[latencies.len() / 2],
        p99: latencies[latencies.len() * 99 / 100],
        calls_per_commit: (calls - calls_before) as f64 / (groups - groups_before) as f64,
    }
}

pub fn registration(key: &str, slots: u32) -> Registration {
    Registration {
        instance_key: key.to_string(),
        session_key: key.to_string(),
        name: key.to_string(),
        tags: vec!["script".to_string()],
        slots,
        version: String::new(),
        platform: String::new(),
        features: stepward::domain::peer::Features::NONE,
    }
}

/// One caller, a worker: it reports what it finished and asks for more in one call, as the protocol does, then reports
/// what it started; until all steps have ended.
fn call(
    engine: &Engine,
    clock: &SystemClock,
    key: &str,
    slots: u32,
    finished: &AtomicUsize,
    steps: usize,
) -> Vec<Duration> {
    let mut latencies = Vec::new();
    let mut report = |items, poll| {
        let begun = Instant::now();
        let reports = Reports {
            session_key: key.to_string(),
            items,
            poll,
        };
        let answer = engine.report(reports, clock.now()).unwrap();
        latencies.push(begun.elapsed());
        assert!(
            answer
                .verdicts
                .iter()
                .all(|verdict| *verdict == Verdict::Accepted)
        );
        answer
    };
    let mut done = Vec::new();
    while finished.load(Ordering::Relaxed) < steps {
        let count = done.len();
        let answer = report(std::mem::take(&mut done), Some((slots, Vec::new())));
        finished.fetch_add(count, Ordering::Relaxed);
        let assignments = answer.poll.unwrap().assignments;
        if assignments.is_empty() {
            continue;
        }
        let started = assignments
            .iter()
            .map(|found| (found.attempt, News::Started))
            .collect();
        report(started, None);
        let ended = |attempt| (attempt, News::Finished(Finished::completed()));
        done = assignments
            .iter()
            .map(|found| ended(found.attempt))
            .collect();
    }
    latencies
}
