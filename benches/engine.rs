//! The full life of a step through the engine, next to a bare SQLite loop that does the same updates, in the same run.
//!
//! `cargo bench --bench engine` prints one JSON line on stdout; progress is on stderr. `-- --quick` is a short run that
//! shows that the benchmark works, not how fast anything is.

mod callers;

use std::path::Path;
use std::time::Instant;

use callers::{CHAIN, JOB_STEPS, Run, chains, open, registration, run_callers};

use rusqlite::Connection;
use serde_json::{Value, json};
use stepward::clock::SystemClock;
use stepward::domain::Uptime;
use stepward::engine::{Engine, Settings, Submission};

const CALLERS: [usize; 3] = [1, 64, 512];
/// Steps that one caller, a worker, carries out at a time.
const SLOTS: u32 = 8;
const ROUNDS: usize = 5;

const BARE_PER_COMMIT: usize = 256;

struct Sizes {
    finished_steps: usize,
    jobs: [usize; 3],
    bare_steps: usize,
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let sizes = if quick {
        Sizes {
            finished_steps: 10_000,
            jobs: [1, 1, 2],
            bare_steps: 10_000,
        }
    } else {
        Sizes {
            finished_steps: 1_000_000,
            jobs: [2, 40, 100],
            bare_steps: 100_000,
        }
    };

    let full_folder = tempfile::tempdir_in(target_folder()).unwrap();
    drop(open(full_folder.path()));
    eprintln!(
        "filling a table with {} finished steps",
        sizes.finished_steps
    );
    fill(
        &full_folder.path().join("stepward.db"),
        sizes.finished_steps,
    );
    let full_engine = open(full_folder.path());

    let mut by_callers = serde_json::Map::new();
    for (&callers, jobs) in CALLERS.iter().zip(sizes.jobs) {
        let rounds: Vec<Round> = (0..ROUNDS)
            .map(|_| round(&full_engine, callers, SLOTS, jobs, sizes.bare_steps))
            .collect();
        by_callers.insert(callers.to_string(), summary(&rounds));
    }
    let one_slot = [round(&full_engine, 512, 1, sizes.jobs[2], sizes.bare_steps)];
    let submit_cpu_s = submit_cpu();
    eprintln!("submit of 10,000 steps: {submit_cpu_s:.3} s of CPU");

    let line = json!({
        "bench": "engine",
        "quick": quick,
        "finished_steps": sizes.finished_steps,
        "slots": SLOTS,
        "callers": by_callers,
        "one_slot": {"512": summary(&one_slot)},
        "submit_10000_steps_cpu_s": rounded(submit_cpu_s),
    });
    println!("{line}");
}

/// How the bare loop shares commits among 256 steps.
#[derive(Clone, Copy, PartialEq)]
enum Commits {
    /// One for their whole lives: the yardstick, though no worker could have seen an assignment before its start.
    PerLife,
    /// One for each of the three moves, as the engine must: an assignment is on disk before it is answered.
    PerMove,
}

/// One comparison, all in a row, since the machine may be busier a minute later.
struct Round {
    bare_per_s: f64,
    bare_per_move_per_s: f64,
    empty: Run,
    full: Run,
}

fn round(full: &Engine, callers: usize, slots: u32, jobs: usize, bare_steps: usize) -> Round {
    let bare_per_s = bare_loop(bare_steps, Commits::PerLife);
    let bare_per_move_per_s = bare_loop(bare_steps, Commits::PerMove);
    eprintln!(
        "bare SQLite, {BARE_PER_COMMIT} to a commit: {bare_per_s:.0} steps/s with whole lives in one commit, \
         {bare_per_move_per_s:.0} with a commit for each move"
    );
    let folder = tempfile::tempdir_in(target_folder()).unwrap();
    let tell = |name: &str, run: &Run| {
        let to_bare = run.per_s / bare_per_s;
        eprintln!("{name}, {callers} callers with {slots} slots: {to_bare:.2} of bare, {run}");
    };
    let empty = run_callers(&open(folder.path()), callers, slots, jobs);
    tell("empty table", &empty);
    let full = run_callers(full, callers, slots, jobs);
    tell("full table", &full);
    Round {
        bare_per_s,
        bare_per_move_per_s,
        empty,
        full,
    }
}

/// The median of each figure over the rounds: a busy moment of the machine is no finding. The ratio that counts is listed
/// round by round as well.
fn summary(rounds: &[Round]) -> Value {
    let median = |figure: fn(&Round) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        rounded(figures[figures.len() / 2])
    };
    let ratios: Vec<f64> = rounds
        .iter()
        .map(|round| rounded(round.empty.per_s / round.bare_per_s))
        .collect();
    json!({
        "bare_steps_per_s": median(|round| round.bare_per_s.round()),
        "bare_per_move_steps_per_s": median(|round| round.bare_per_move_per_s.round()),
        "empty": {
            "steps_per_s": median(|round| round.empty.per_s.round()),
            "to_bare": median(|round| round.empty.per_s / round.bare_per_s),
            "to_bare_by_round": ratios,
            "to_bare_per_move": median(|round| round.empty.per_s / round.bare_per_move_per_s),
            "call_p50_us": median(|round| round.empty.p50.as_micros() as f64),
            "call_p99_us": median(|round| round.empty.p99.as_micros() as f64),
            "calls_per_commit": median(|round| round.empty.calls_per_commit),
        },
        "full": {
            "steps_per_s": median(|round| round.full.per_s.round()),
            "to_bare": median(|round| round.full.per_s / round.bare_per_s),
            "to_bare_per_move": median(|round| round.full.per_s / round.bare_per_move_per_s),
            "call_p50_us": median(|round| round.full.p50.as_micros() as f64),
            "call_p99_us": median(|round| round.full.p99.as_micros() as f64),
            "calls_per_commit": median(|round| round.full.calls_per_commit),
        },
        "full_to_empty": median(|round| round.full.per_s / round.empty.per_s),
    })
}

fn target_folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The limit: exactly the engine's writes of a step's life (its three updates, its dependent's counter, its job's
/// counter), in the order in which first in first out makes them, and nothing else: no reads, no decisions, one thread.
fn bare_loop(steps: usize, commits: Commits) -> f64 {
    let folder = tempfile::tempdir_in(target_folder()).unwrap();
    {
        // Submitted through the engine, so that the rows are the same.
        let engine = open(folder.path());
        let clock = SystemClock::continuing(Uptime(0), &Settings::default());
        let frozen = chains(JOB_STEPS);
        for _ in 0..steps.div_ceil(JOB_STEPS) {
            engine.submit(Submission::of(&frozen), clock.now()).unwrap();
        }
        let registration = registration("bare", 1);
        engine
            .open_session(registration, Vec::new(), clock.now())
            .unwrap();
    }
    let sql = Connection::open(folder.path().join("stepward.db")).unwrap();
    sql.set_db_config(
        rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG,
        true,
    )
    .unwrap();
    sql.pragma_update(None, "synchronous", "FULL").unwrap();
    sql.pragma_update(None, "foreign_keys", true).unwrap();
    sql.pragma_update(None, "cache_size", -(64 << 10)).unwrap();
    sql.pragma_update(None, "wal_autocheckpoint", 4_000)
        .unwrap();
    // The heads of all chains, then all second steps, and so on: each is ready when its turn comes, since there are more
    // chains than go into one commit.
    let rows: Vec<(i64, i64, i64)> = sql
        .prepare("SELECT step_id, job_id, position FROM step ORDER BY position % ?1, step_id")
        .unwrap()
        .query_map([CHAIN as i64], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let mut assign = sql
        .prepare(
            "UPDATE step SET state = 'assigned', attempt = attempt + 1, worker_id = 1, session_id = 1, assigned_at = ?1,
                    started_at = NULL, since_up = ?1, due_up = ?1 + 60000
              WHERE step_id = ?2 AND state = 'ready' AND attempt = 0",
        )
        .unwrap();
    let mut start = sql
        .prepare(
            "UPDATE step SET state = 'running', started_at = ?1, since_up = ?1, due_up = ?1 + 86400000,
                    tries = tries + 1
              WHERE step_id = ?2 AND state = 'assigned' AND attempt = 1 AND session_id = 1",
        )
        .unwrap();
    let mut finish = sql
        .prepare(
            "UPDATE step SET state = 'completed', exit_code = 0, ended_at = ?1, since_up = ?1, due_up = NULL
              WHERE step_id = ?2 AND state = 'running' AND attempt = 1",
        )
        .unwrap();
    let mut count_dependent = sql
        .prepare(
            "UPDATE step SET state = 'ready', waiting_on = 0, ready_at = ?1, queued_up = ?1, since_up = ?1
              WHERE job_id = ?2 AND position = ?3 AND item = -1 AND state = 'pending' AND waiting_on = 1",
        )
        .unwrap();
    let mut count_job = sql
        .prepare("UPDATE job SET steps_open = steps_open - 1 WHERE job_id = ?1")
        .unwrap();

    let begun = Instant::now();
    for (group, rows) in rows.chunks(BARE_PER_COMMIT).enumerate() {
        let now = group as i64;
        let between = || {
            if commits == Commits::PerMove {
                sql.execute_batch("COMMIT; BEGIN IMMEDIATE").unwrap();
            }
        };
        sql.execute_batch("BEGIN IMMEDIATE").unwrap();
        for update in [&mut assign, &mut start] {
            for &(step_id, _, _) in rows {
                move_one(update, step_id, now);
            }
            between();
        }
        for &(step_id, job_id, position) in rows {
            move_one(&mut finish, step_id, now);
            if (position + 1) % CHAIN as i64 != 0 {
                let next = (now, job_id, position + 1);
                assert_eq!(count_dependent.execute(next).unwrap(), 1);
            }
            assert_eq!(count_job.execute([job_id]).unwrap(), 1);
        }
        sql.execute_batch("COMMIT").unwrap();
    }
    rows.len() as f64 / begun.elapsed().as_secs_f64()
}

fn move_one(update: &mut rusqlite::Statement, step_id: i64, now: i64) {
    let changed = update.execute((now, step_id)).unwrap();
    assert_eq!(changed, 1);
}

/// A million finished steps, as if a hundred jobs had run.
fn fill(file: &Path, steps: usize) {
    let sql = Connection::open(file).unwrap();
    sql.execute_batch("PRAGMA synchronous = OFF; BEGIN")
        .unwrap();
    let frozen = json!([{"name": "old", "steps": []}]).to_string();
    sql.execute(
        "INSERT INTO definition (hash, body) VALUES ('old', ?1)",
        [frozen],
    )
    .unwrap();
    sql.execute_batch(
        "INSERT INTO requirement (tags, unmatched, lost_up) VALUES ('script', 'fail', 0)",
    )
    .unwrap();
    let jobs = steps.div_ceil(10_000);
    sql.execute(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
         INSERT INTO job (definition_id, task_index, task, state, source, input, labels, priority, depth, steps_open,
                          change_seq, created_at, started_at, ended_at, since_up)
         SELECT 1, 0, 'old', 'completed', 'submit', '{}', '{}', 0, 0, 0, n, 0, 0, 0, 0 FROM n",
        [jobs as i64],
    )
    .unwrap();
    sql.execute(
        "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < ?1 - 1)
         INSERT INTO step (job_id, position, kind, state, requirement_id, priority, attempt, tries, waiting_on,
                           exit_code, ready_at, assigned_at, started_at, ended_at, queued_up, since_up)
         SELECT n / 10000 + 1, n % 10000, 'work', 'completed', 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0 FROM n",
        [steps as i64],
    )
    .unwrap();
    sql.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
}

/// The whole process's CPU time, so that work moved to another thread is counted as well.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn submit_cpu() -> f64 {
    let folder = tempfile::tempdir_in(target_folder()).unwrap();
    let engine = open(folder.path());
    let clock = SystemClock::continuing(Uptime(0), &Settings::default());
    let begun = cpu_s();
    let frozen = chains(10_000);
    engine.submit(Submission::of(&frozen), clock.now()).unwrap();
    cpu_s() - begun
}
