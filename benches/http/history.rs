//! What a long history costs those who look: the same lists and pages with few finished jobs and with very many.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::line::Line;
use super::process::{ServerProcess, Site};
use super::{Sizes, median, rounded};

/// Jobs that have not ended, in both installations.
const OPEN_JOBS: usize = 40;
/// Of these, jobs that run.
const RUNNING_JOBS: usize = 8;

/// What people and programs look at. `stepward status` reads the first four.
const PATHS: [(&str, &str); 10] = [
    ("api_running", "/api/jobs?q=status:running&limit=500"),
    ("api_failures", "/api/failures?limit=500"),
    ("api_queue", "/api/queue?limit=500"),
    ("api_workers", "/api/workers?limit=500"),
    ("overview", "/"),
    ("queue", "/queue"),
    ("jobs_running", "/jobs?q=status:running"),
    ("jobs_failed", "/jobs?q=status:failed"),
    ("jobs_completed", "/jobs?q=status:completed"),
    (
        "jobs_combined",
        "/jobs?q=status:completed+source:schedule+task:task-5",
    ),
];

/// The median time of each look, with `finished_jobs[0]` and with `finished_jobs[1]`, and what the second costs of the first.
pub fn history(sizes: &Sizes) -> Value {
    let [mut few, mut many] = sizes.finished_jobs.map(Installation::new);
    let mut shown = json!({"finished_jobs": sizes.finished_jobs});
    let mut worst: f64 = 0.0;
    let mut compare = |name: &str, times: usize, look: &dyn Fn(&mut Installation)| {
        let (mut with_few, mut with_many) = (Vec::new(), Vec::new());
        // In turn, since the machine may be busier a moment later.
        for _ in 0..times {
            for (installation, took) in [(&mut few, &mut with_few), (&mut many, &mut with_many)] {
                let begun = Instant::now();
                look(installation);
                took.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
        let (with_few, with_many) = (median(with_few), median(with_many));
        let ratio = rounded(with_many / with_few);
        worst = worst.max(ratio);
        shown[name] = json!({"few_ms": with_few, "many_ms": with_many, "ratio": ratio});
        eprintln!("history, {name}: {}", shown[name]);
    };
    compare("status", sizes.looks.div_ceil(4), &|installation| {
        installation.status()
    });
    for (name, path) in PATHS {
        compare(name, sizes.looks, &|installation| {
            installation.line.weigh(path);
        });
    }
    shown["worst_ratio"] = json!(worst);
    few.server.stop();
    many.server.stop();
    shown
}

/// A server with a history.
struct Installation {
    server: ServerProcess,
    line: Line,
    _site: Site,
}

impl Installation {
    fn new(finished_jobs: usize) -> Installation {
        let site = Site::new();
        // The first start makes the database.
        ServerProcess::start(&site).stop();
        eprintln!("filling a database with {finished_jobs} finished jobs");
        fill(&site.folder().join("data/stepward.db"), finished_jobs);
        let server = ServerProcess::start(&site);
        let mut line = Line::new(server.address);
        for _ in 0..OPEN_JOBS {
            let answer = line.call("POST", "/api/tasks/one/jobs", b"");
            assert_eq!(answer.status, 201);
        }
        let mut call = |path: &str, request: Value| -> Value {
            let request = request.to_string();
            line.call("POST", path, request.as_bytes()).json()
        };
        call(
            "/api/worker/sessions",
            json!({
                "name": "ann", "instance": "ann", "session": "ann 1", "tags": ["script"], "slots": RUNNING_JOBS,
                "version": "0.1.0", "platform": "linux", "spooled": [],
            }),
        );
        let poll =
            json!({"session": "ann 1", "free_slots": RUNNING_JOBS, "held": [], "wait_ms": 0});
        let given = call("/api/worker/poll", poll);
        let started = given["assignments"].as_array().unwrap().iter();
        let started = started.map(|given| {
            json!({"step_id": given["step_id"], "attempt": given["attempt"], "news": "started"})
        });
        let started: Vec<Value> = started.collect();
        assert_eq!(started.len(), RUNNING_JOBS);
        let report = json!({"session": "ann 1", "items": started});
        call("/api/worker/reports", report);
        Installation {
            server,
            line,
            _site: site,
        }
    }

    /// The command, from its start to its end.
    fn status(&self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stepward"));
        let url = format!("http://{}", self.server.address);
        command.args(["status", "--json", "--server", &url]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.status().unwrap();
        assert!(status.success(), "stepward status ended with {status}");
    }
}

/// Jobs of twenty tasks that ended days ago, most of them well, each with a step and the event of its end.
fn fill(file: &Path, jobs: usize) {
    let sql = Connection::open(file).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ended_before = now.unwrap().as_millis() as i64 - 2 * 86_400_000;
    let frozen = json!([{"name": "old", "steps": [
        {"name": "only", "action": {"type": "script", "runner": "local", "script": "true"},
         "on_worker_loss": "fail", "unmatched": "fail"}]}]);
    sql.execute_batch("PRAGMA synchronous = OFF; BEGIN")
        .unwrap();
    sql.execute(
        "INSERT INTO definition (definition_id, hash, body) VALUES (1, 'old', ?1)",
        [frozen.to_string()],
    )
    .unwrap();
    sql.execute_batch(
        "INSERT INTO requirement (requirement_id, tags, unmatched, lost_up) VALUES (1, 'script', 'fail', 0)",
    )
    .unwrap();
    sql.execute(
        "WITH RECURSIVE
             number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?1),
             made (n, state, at) AS (
                 SELECT n, CASE WHEN n % 50 = 0 THEN 'failed' WHEN n % 51 = 0 THEN 'cancelled' ELSE 'completed' END,
                        ?2 - (?1 - n) * 1000
                   FROM number)
         INSERT INTO job (job_id, definition_id, task_index, task, state, reason, message, source, input, labels, priority,
                          depth, steps_open, steps_failed, steps_cancelled, change_seq, created_at, started_at, ended_at,
                          since_up)
         SELECT n, 1, 0, 'task-' || (n % 20), state,
                CASE state WHEN 'failed' THEN 'exit_code' WHEN 'cancelled' THEN 'cancelled_by_user' END,
                CASE state WHEN 'completed' THEN NULL ELSE 'the job did not complete' END,
                CASE n % 7 WHEN 0 THEN 'webhook' WHEN 1 THEN 'submit' ELSE 'schedule' END,
                '{\"n\":1}', '{}', 0, 0, 0, state = 'failed', state = 'cancelled', n, at, at, at + 900, 0
           FROM made",
        (jobs as i64, ended_before),
    )
    .unwrap();
    sql.execute_batch(
        "INSERT INTO step (job_id, position, kind, state, reason, message, requirement_id, priority, attempt, tries,
                           waiting_on, exit_code, ready_at, assigned_at, started_at, ended_at, queued_up, since_up)
         SELECT job_id, 0, 'work', state, reason, message, 1, 0, 1, 1, 0, 0, created_at, created_at, created_at, ended_at,
                0, 0
           FROM job ORDER BY job_id;
         INSERT INTO event (at, kind, job_id, reason, message)
         SELECT ended_at, 'job_' || state, job_id, reason, 'job ' || job_id || ' ended' FROM job ORDER BY job_id;
         COMMIT;
         PRAGMA wal_checkpoint(TRUNCATE)",
    )
    .unwrap();
}
