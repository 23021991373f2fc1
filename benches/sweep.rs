//! What a sweep costs: with nothing to do, over a small and a large history; and with ten thousand victims of each phase,
//! next to a bare SQLite loop that makes a victim's writes and nothing else, in the same run.
//!
//! `cargo bench --bench sweep` prints one JSON line on stdout; progress is on stderr. `-- --quick` is a short run that
//! shows that the benchmark works, not how fast anything is.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rusqlite::Connection;
use serde_json::{Value, json};
use stepward::domain::protocol::Registration;
use stepward::domain::recovery::Phase;
use stepward::domain::task::{Definition, StepDraft, TaskDraft};
use stepward::domain::{AttemptRef, Now, Timestamp, Uptime};
use stepward::engine::{
    Beat, Engine, HeldAttempt, HeldPhase, News, Poll, Reports, Settings, Submission,
};
use stepward::store::{Frozen, Store, StoreOptions};
use stepward::sweeper::sweep_once;

const IDLE_ROUNDS: usize = 21;
const CALLERS: usize = 32;
/// As many as a sweep queues at a time.
const BARE_PER_COMMIT: usize = 256;

struct Sizes {
    finished: usize,
    live: usize,
    workers: usize,
    victims: usize,
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let sizes = if quick {
        Sizes {
            finished: 10_000,
            live: 1_000,
            workers: 100,
            victims: 200,
        }
    } else {
        Sizes {
            finished: 1_000_000,
            live: 100_000,
            workers: 10_000,
            victims: 10_000,
        }
    };
    let without = Idle::new(0, sizes.live, sizes.workers);
    let with = Idle::new(sizes.finished, sizes.live, sizes.workers);
    let few = Idle::new(0, sizes.live / 100, sizes.workers / 100);
    let idle = idle(&without, &with, &few);
    let bare_per_s = bare_loop(sizes.victims);
    eprintln!("bare loop: {bare_per_s:.0} victims a second");
    let victims: Vec<Value> = Phase::ALL
        .iter()
        .map(|phase| sweep_victims(*phase, sizes.victims, bare_per_s))
        .collect();
    println!("{}", json!({"idle": idle, "victims": victims}));
}

// --- nothing to do ---

struct Idle {
    engine: Engine,
    _folder: tempfile::TempDir,
}

impl Idle {
    fn new(finished: usize, live: usize, workers: usize) -> Idle {
        eprintln!("filling: {finished} finished steps, {live} live ones, {workers} workers");
        let folder = tempfile::tempdir_in(target_folder()).unwrap();
        drop(open(folder.path()));
        fill(&folder.path().join("stepward.db"), finished, live, workers);
        Idle {
            engine: open(folder.path()),
            _folder: folder,
        }
    }

    /// Milliseconds, and statements.
    fn sweep(&self) -> (f64, u64) {
        let statements = self.engine.store.statements();
        let begun = Instant::now();
        // Everybody was seen a minute ago, and every ready step waits for that long.
        let report = sweep_once(&self.engine, at(1_060_000));
        let ms = begun.elapsed().as_secs_f64() * 1_000.0;
        assert!(report.recoveries.is_empty(), "nothing to do");
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        (ms, self.engine.store.statements() - statements)
    }
}

/// In turns, so that whatever else the machine does falls on all of them.
fn idle(without: &Idle, with: &Idle, few: &Idle) -> Value {
    let mut times: [Vec<f64>; 3] = Default::default();
    let mut statements = [0; 3];
    for _ in 0..IDLE_ROUNDS {
        for (n, idle) in [without, with, few].into_iter().enumerate() {
            let (ms, count) = idle.sweep();
            times[n].push(ms);
            statements[n] = count;
        }
    }
    let [without_ms, with_ms, few_ms] = times.map(median);
    eprintln!("idle: {without_ms:.2} ms, with history {with_ms:.2} ms, a hundredth {few_ms:.2} ms");
    json!({
        "without_finished_ms": rounded(without_ms),
        "with_finished_ms": rounded(with_ms),
        "ratio": rounded(with_ms / without_ms),
        "statements": statements[1],
        "statements_of_a_hundredth": statements[2],
        "a_hundredth_ms": rounded(few_ms),
    })
}

/// Half of the live steps are ready, half are running, spread over all workers.
fn fill(file: &Path, finished: usize, live: usize, workers: usize) {
    let sql = Connection::open(file).unwrap();
    sql.execute_batch("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; BEGIN")
        .unwrap();
    let body = json!([{"name": "old", "steps": []}]).to_string();
    let insert = |text: &str, n: usize| {
        let n = n as i64;
        sql.execute(text, [n]).unwrap();
    };
    sql.execute(
        "INSERT INTO definition (hash, body) VALUES ('old', ?1)",
        [body],
    )
    .unwrap();
    sql.execute_batch(
        "INSERT INTO requirement (tags, unmatched, lost_up) VALUES ('script', 'fail', 0)",
    )
    .unwrap();
    insert(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
         INSERT INTO worker (instance_key, name, state, tags, slots, version, platform, session_id, seen_at, seen_up,
                             created_at)
         SELECT 'i' || n, 'w' || n, 'active', 'script', 100, '', '', n, 0, 1000000, 0 FROM n",
        workers,
    );
    sql.execute_batch(
        "INSERT INTO session (worker_id, session_key, opened_at) SELECT worker_id, 's' || worker_id, 0 FROM worker;
         INSERT INTO capability (worker_id, requirement_id) SELECT worker_id, 1 FROM worker",
    )
    .unwrap();
    let total = finished + live;
    insert(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
         INSERT INTO job (definition_id, task_index, task, state, source, input, labels, priority, depth, steps_open,
                          change_seq, created_at, started_at, since_up, due_up)
         SELECT 1, 0, 'old', 'running', 'submit', '{}', '{}', 0, 0, 10000, n, 0, 0, 0, 1000000000 FROM n",
        total.div_ceil(10_000),
    );
    if finished > 0 {
        insert(
            "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < ?1 - 1)
             INSERT INTO step (job_id, position, kind, state, requirement_id, priority, attempt, tries, waiting_on,
                               worker_id, session_id, exit_code, ready_at, assigned_at, started_at, ended_at, queued_up,
                               since_up)
             SELECT n / 10000 + 1, n % 10000, 'work', 'completed', 1, 0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0 FROM n",
            finished,
        );
    }
    sql.execute(
        "WITH RECURSIVE n (n) AS (SELECT ?2 UNION ALL SELECT n + 1 FROM n WHERE n < ?1 - 1)
         INSERT INTO step (job_id, position, kind, state, requirement_id, priority, attempt, tries, waiting_on, worker_id,
                           session_id, ready_at, assigned_at, started_at, queued_up, since_up, due_up)
         SELECT n / 10000 + 1, n % 10000, 'work', iif(n % 2, 'running', 'ready'), 1, 0, n % 2, n % 2, 0,
                iif(n % 2, n / 2 % ?3 + 1, NULL), iif(n % 2, n / 2 % ?3 + 1, NULL), 0, iif(n % 2, 0, NULL),
                iif(n % 2, 0, NULL), 0, 1000000, iif(n % 2, 1000000000, NULL)
           FROM n",
        [total as i64, finished as i64, workers as i64],
    )
    .unwrap();
    sql.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
}

// --- ten thousand victims ---

/// Real jobs, workers and reports, and then time passes.
fn sweep_victims(phase: Phase, victims: usize, bare_per_s: f64) -> Value {
    let folder = tempfile::tempdir_in(target_folder()).unwrap();
    let engine = open(folder.path());
    let mut step = StepDraft::script("s", "true");
    let sweep_ms = match phase {
        Phase::StaleWorkers => 121_000,
        Phase::OverdueSteps => {
            step.timeout_ms = Some(60_000);
            60_000
        }
        Phase::OverdueJobs => 60_000,
        Phase::UnmatchedSteps => {
            step.tags = vec!["gpu".to_string()];
            30_000
        }
    };
    let holders = victims / 10;
    match phase {
        Phase::StaleWorkers | Phase::OverdueSteps => {
            submit(&engine, victims / 100, 100, &step, None);
            let held = workers(&engine, "holder", holders);
            // Enough others that the silence of these is theirs.
            workers(&engine, "other", holders * 2);
            let alive_ms = sweep_ms - 1_000;
            beat(&engine, "other", holders * 2, &[], alive_ms);
            if phase == Phase::OverdueSteps {
                beat(&engine, "holder", holders, &held, alive_ms);
            }
        }
        Phase::OverdueJobs => {
            submit(&engine, victims, 1, &step, Some(60_000));
            engine
                .open_session(offer("able", 0), Vec::new(), at(0))
                .unwrap();
        }
        Phase::UnmatchedSteps => {
            submit(&engine, victims / 100, 100, &step, None);
            workers(&engine, "other", 30);
        }
    }
    let begun = Instant::now();
    let report = sweep_once(&engine, at(sweep_ms));
    let secs = begun.elapsed().as_secs_f64();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    let recoveries = report.of_phase(phase).count();
    let expected = match phase {
        Phase::StaleWorkers => victims + holders,
        _ => victims,
    };
    assert_eq!(recoveries, expected);
    assert_eq!(report.recoveries.len(), expected, "of this phase alone");
    let per_s = recoveries as f64 / secs;
    eprintln!(
        "{phase}: {per_s:.0} recoveries a second, {:.2} of the bare loop",
        per_s / bare_per_s
    );
    json!({
        "phase": phase.number(),
        "recoveries": recoveries,
        "per_s": per_s.round(),
        "to_bare": rounded(per_s / bare_per_s),
    })
}

fn submit(
    engine: &Engine,
    jobs: usize,
    steps: usize,
    step: &StepDraft,
    queue_timeout_ms: Option<i64>,
) {
    let steps = (0..steps).map(|n| StepDraft {
        name: format!("s{n}"),
        ..step.clone()
    });
    let task = TaskDraft {
        queue_timeout_ms,
        ..TaskDraft::new("main", steps.collect())
    };
    let definition = Definition::check("main", vec![task]).unwrap();
    let frozen = Frozen::new(Arc::new(definition));
    together(jobs, |_| {
        engine.submit(Submission::of(&frozen), at(0)).unwrap();
    });
}

/// So many calls, by several callers so that they share commits.
fn together(calls: usize, call: impl Fn(usize) + Sync) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if n >= calls {
                        return;
                    }
                    call(n);
                }
            });
        }
    });
}

/// Each opens a session, and runs what it is given.
fn workers(engine: &Engine, name: &str, count: usize) -> Vec<Vec<AttemptRef>> {
    let held: Vec<_> = (0..count)
        .map(|_| std::sync::Mutex::new(Vec::new()))
        .collect();
    together(count, |n| {
        engine
            .open_session(offer(name, n), Vec::new(), at(0))
            .unwrap();
        let poll = Poll {
            session_key: key(name, n),
            free_slots: 10,
            held: Vec::new(),
        };
        let given = engine.poll(poll, at(0)).unwrap().assignments;
        let given: Vec<AttemptRef> = given.iter().map(|given| given.attempt).collect();
        if given.is_empty() {
            return;
        }
        let items = given.iter().map(|attempt| (*attempt, News::Started));
        let reports = Reports {
            session_key: key(name, n),
            items: items.collect(),
            poll: None,
        };
        engine.report(reports, at(0)).unwrap();
        *held[n].lock().unwrap() = given;
    });
    held.into_iter()
        .map(|held| held.into_inner().unwrap())
        .collect()
}

fn beat(engine: &Engine, name: &str, count: usize, held: &[Vec<AttemptRef>], ms: i64) {
    together(count, |n| {
        let held = held
            .get(n)
            .into_iter()
            .flatten()
            .map(|attempt| HeldAttempt {
                attempt: *attempt,
                phase: HeldPhase::Running,
            });
        let beat = Beat {
            session_key: key(name, n),
            seq: 1,
            held: held.collect(),
        };
        engine.heartbeat(beat, at(ms)).unwrap();
    });
}

fn key(name: &str, n: usize) -> String {
    format!("life of {name} {n}")
}

fn offer(name: &str, n: usize) -> Registration {
    Registration {
        instance_key: format!("{name} {n}"),
        session_key: key(name, n),
        name: format!("{name}-{n}"),
        tags: vec!["script".to_string()],
        slots: 10,
        version: String::new(),
        platform: String::new(),
        features: stepward::domain::peer::Features::NONE,
    }
}

/// The least that a victim takes: its end, one event, its job's counter. Durable, as many to a commit as a sweep has.
fn bare_loop(victims: usize) -> f64 {
    let folder = tempfile::tempdir_in(target_folder()).unwrap();
    drop(open(folder.path()));
    let file = folder.path().join("stepward.db");
    fill(&file, 0, victims * 2, 100);
    let sql = Connection::open(&file).unwrap();
    sql.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON",
    )
    .unwrap();
    let mut end = sql
        .prepare(
            "UPDATE step SET state = 'failed', reason = 'step_timeout', message = ?2, ended_at = 1, due_up = NULL
              WHERE step_id = ?1 AND state = 'running'",
        )
        .unwrap();
    let mut tell = sql
        .prepare(
            "INSERT INTO event (at, kind, phase, job_id, step_id, worker_id, attempt, reason, message, data)
             VALUES (0, 'step_failed', 2, 1, ?1, 1, 1, 'step_timeout', ?2, ?3)",
        )
        .unwrap();
    let mut count = sql
        .prepare("UPDATE job SET steps_open = steps_open - 1, steps_failed = steps_failed + 1 WHERE job_id = 1")
        .unwrap();
    let message = "it ran for 60 s, the limit is 60 s";
    let data = "{\"ran_secs\":60.0,\"timeout_secs\":60.0}";
    let begun = Instant::now();
    let steps: Vec<i64> = (1..=victims as i64).map(|n| n * 2).collect();
    for commit in steps.chunks(BARE_PER_COMMIT) {
        sql.execute_batch("BEGIN IMMEDIATE").unwrap();
        for step_id in commit {
            assert_eq!(end.execute((step_id, message)).unwrap(), 1);
            tell.execute((step_id, message, data)).unwrap();
            count.execute([]).unwrap();
        }
        sql.execute_batch("COMMIT").unwrap();
    }
    victims as f64 / begun.elapsed().as_secs_f64()
}

// --- what all of it needs ---

fn open(folder: &Path) -> Engine {
    let options = StoreOptions {
        write_deadline: std::time::Duration::from_secs(60),
        ..StoreOptions::default()
    };
    Engine::new(Store::open(folder, options).unwrap(), Settings::default())
}

/// On the same disk as the code, not in memory.
fn target_folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn at(up_ms: i64) -> Now {
    Now {
        wall: Timestamp(1_700_000_000_000 + up_ms),
        up: Uptime(up_ms),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}
