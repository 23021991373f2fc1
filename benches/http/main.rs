//! The server over its real protocol: the binary in one process, the load in another, on loopback.
//!
//! `cargo bench --bench http` prints one JSON line on stdout; progress is on stderr. `-- --quick` is a short run that
//! shows that the benchmark works, not how fast anything is.
//!
//! What must be near a limit stands next to that limit, measured in the same run: the engine called by threads, one sync
//! of the disk, plain writing of files. `goals` says of each whether it is met. Load and server share the processors:
//! `load_cores` is what the load took of them.

#[path = "../callers/mod.rs"]
mod callers;
mod crew;
mod history;
mod line;
mod load;
mod pages;
mod process;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use callers::{JOB_STEPS, open, run_callers};
use line::Line;
use load::{Kind, Load};
use process::{ServerProcess, Site, Usage};

/// The engine's own benchmark at its best: so many callers with so many slots.
const ENGINE_CALLERS: (usize, u32) = (512, 8);

/// Workers and their slots.
const SHAPES: [(usize, u32); 2] = [(8, 8), (64, 16)];

const LOG_STREAMS: usize = 4;

struct Sizes {
    rounds: usize,
    engine_jobs: usize,
    /// For each shape.
    jobs: [usize; 2],
    submits: usize,
    waiting_workers: usize,
    waiting_secs: u64,
    log_bytes_each: usize,
    idle_secs: u64,
    starts: usize,
    looks: usize,
    /// In two installations that are compared.
    finished_jobs: [usize; 2],
}

fn main() {
    let mut args = std::env::args().skip_while(|arg| arg != "--load");
    if let Some(load) = args.nth(1) {
        let load: Load = serde_json::from_str(&load).unwrap();
        return load.run();
    }
    let quick = std::env::args().any(|arg| arg == "--quick");
    let sizes = if quick {
        Sizes {
            rounds: 1,
            engine_jobs: 2,
            jobs: [1, 2],
            submits: 20,
            waiting_workers: 100,
            waiting_secs: 1,
            log_bytes_each: 4 << 20,
            idle_secs: 1,
            starts: 3,
            looks: 20,
            finished_jobs: [10_000, 100_000],
        }
    } else {
        Sizes {
            rounds: 5,
            engine_jobs: 60,
            jobs: [15, 60],
            submits: 100,
            waiting_workers: 1_000,
            waiting_secs: 40,
            log_bytes_each: 24 << 20,
            idle_secs: 5,
            starts: 9,
            looks: 200,
            finished_jobs: [10_000, 1_000_000],
        }
    };
    let args: Vec<String> = std::env::args().collect();
    let named = |(name, _): &&(&str, Part)| args.iter().any(|arg| arg == name);
    let all = !PARTS.iter().any(|part| named(&part));
    let mut line = json!({"bench": "http", "quick": quick});
    for (name, measure) in PARTS.iter().filter(|part| all || named(part)) {
        line[name] = measure(&sizes);
    }
    line["goals"] = goals(&line);
    println!("{line}");
}

type Part = fn(&Sizes) -> Value;

/// What is measured; all of it, unless some are named on the command line.
const PARTS: [(&str, Part); 7] = [
    ("lives", lives),
    ("latency", latency),
    ("waiting", waiting),
    ("logs", logs),
    ("idle", idle),
    ("pages", pages::pages),
    ("history", history::history),
];

#[rustfmt::skip]
fn goals(line: &Value) -> Value {
    let at_least = |found: &Value, goal: f64| goal_json(found, goal, |found| found >= goal);
    let below = |found: &Value, goal: f64| goal_json(found, goal, |found| found < goal);
    json!({
        "lives_to_engine":    at_least(&line["lives"]["64x16"]["to_engine"], 0.25),
        "assigned_to_fsync":  below(&line["latency"]["p50_to_fsync"], 3.0),
        "waiting_memory_mb":  below(&line["waiting"]["memory_mb"], 100.0),
        "logs_to_plain":      at_least(&line["logs"]["to_plain"], 0.3),
        "idle_memory_mb":     below(&line["idle"]["memory_mb"], 25.0),
        "start_ms":           below(&line["idle"]["start_ms"], 150.0),
        "job_page_ms":        below(&line["pages"]["job_ended_p50_ms"], 10.0),
        "first_load_kb":      below(&line["pages"]["job_first_load_kb"], 120.0),
        "many_to_few_jobs":   below(&line["history"]["worst_ratio"], 1.2),
    })
}

fn goal_json(found: &Value, goal: f64, is_met: impl Fn(f64) -> bool) -> Value {
    let found = found.as_f64();
    json!({"found": found, "goal": goal, "met": found.map(is_met)})
}

/// Steps through their whole lives, by workers that hold a poll, report in batches and ask for more in the same call. Next to
/// each rate that of the engine alone, with the callers of its own benchmark and with as many as there are workers here.
fn lives(sizes: &Sizes) -> Value {
    let mut rounds: Vec<(f64, Vec<Value>)> = Vec::new();
    for _ in 0..sizes.rounds {
        let (callers, slots) = ENGINE_CALLERS;
        let engine_per_s = engine(callers, slots, sizes.engine_jobs);
        let shapes = SHAPES.iter().zip(sizes.jobs);
        let found = shapes.map(|(&(workers, slots), jobs)| {
            let mut found = lives_over_http(workers, slots, jobs);
            let per_s = found["steps_per_s"].as_f64().unwrap();
            let alone_per_s = engine(workers, slots, jobs);
            found["to_engine"] = json!(per_s / engine_per_s);
            found["engine_of_this_shape_steps_per_s"] = json!(alone_per_s);
            eprintln!(
                "{workers} workers with {slots} slots: {per_s:.0} steps/s, {:.3} of the engine's best, {found}",
                per_s / engine_per_s
            );
            found
        });
        rounds.push((engine_per_s, found.collect()));
    }
    let engine_per_s = rounds.iter().map(|(per_s, _)| *per_s);
    let mut summary = json!({"engine_steps_per_s": median(engine_per_s.collect())});
    for (shape, (workers, slots)) in SHAPES.into_iter().enumerate() {
        let figures = rounds[0].1[shape].as_object().unwrap().keys();
        let by_round = |figure: &str| -> Vec<f64> {
            let rounds = rounds.iter();
            rounds
                .map(|(_, found)| found[shape][figure].as_f64().unwrap())
                .collect()
        };
        let mut shown: Value = figures
            .map(|figure| (figure.clone(), json!(median(by_round(figure)))))
            .collect();
        let ratios = by_round("to_engine").into_iter().map(rounded);
        shown["to_engine_by_round"] = ratios.collect();
        summary[format!("{workers}x{slots}")] = shown;
    }
    summary
}

fn engine(callers: usize, slots: u32, jobs: usize) -> f64 {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = run_callers(&open(folder.path()), callers, slots, jobs);
    eprintln!("engine, {callers} callers with {slots} slots: {run}");
    run.per_s
}

fn lives_over_http(workers: usize, slots: u32, jobs: usize) -> Value {
    let site = Site::new();
    let server = ServerProcess::start(&site);
    let mut line = Line::new(server.address);
    for _ in 0..jobs {
        let answer = line.call("POST", "/api/tasks/chains/jobs", b"");
        assert_eq!(answer.status, 201);
    }
    let steps = jobs * JOB_STEPS;
    let before = server.usage();
    let kind = Kind::Lives {
        workers,
        slots,
        steps,
    };
    let mut found = LoadProcess::start(&site, &server, kind).found();
    let after = server.usage();
    let secs = found["secs"].as_f64().unwrap();
    found["server_cores"] = json!((after.cpu_s - before.cpu_s) / secs);
    found["server_memory_mb"] = json!(after.memory_mb);
    let completed = line.call("GET", "/api/jobs?q=status:completed&limit=500", b"");
    let completed: Value = completed.json();
    assert_eq!(completed["items"].as_array().unwrap().len(), jobs);
    server.stop();
    found
}

/// From the request that submits a step until a worker that waits has it: at least one commit. Next to it one sync of
/// pages that are new to a file, as the write-ahead log makes them in this run; and of pages that the file had, which are
/// what a log sees that has been through a checkpoint.
fn latency(sizes: &Sizes) -> Value {
    let rounds: Vec<Value> = (0..sizes.rounds).map(|_| latency_once(sizes)).collect();
    let by_round = |figure: &str| -> Vec<f64> {
        let figures = rounds.iter().map(|round| &round[figure]);
        figures.map(|figure| figure.as_f64().unwrap()).collect()
    };
    let figures = rounds[0].as_object().unwrap().keys();
    let mut shown: Value = figures
        .map(|figure| (figure.clone(), json!(median(by_round(figure)))))
        .collect();
    shown["p50_to_fsync_by_round"] = json!(by_round("p50_to_fsync"));
    shown
}

fn latency_once(sizes: &Sizes) -> Value {
    let site = Site::new();
    let server = ServerProcess::start(&site);
    let submits = sizes.submits;
    let found = LoadProcess::start(&site, &server, Kind::Latency { submits }).found();
    server.stop();
    let assigned = numbers(&found["assigned_us"]);
    let p50 = median(assigned.clone());
    let fsync = median(numbers(&found["fsync_us"]));
    let in_place = median(numbers(&found["fsync_in_place_us"]));
    let shown = json!({
        "assigned_p50_us": p50,
        "assigned_p99_us": quantile(assigned, 0.99),
        "fsync_p50_us": fsync,
        "p50_to_fsync": rounded(p50 / fsync),
        "fsync_in_place_p50_us": in_place,
        "p50_to_fsync_in_place": rounded(p50 / in_place),
    });
    eprintln!("latency: {shown}");
    shown
}

/// Workers that have nothing to do.
fn waiting(sizes: &Sizes) -> Value {
    let site = Site::new();
    let server = ServerProcess::start(&site);
    let workers = sizes.waiting_workers;
    let secs = sizes.waiting_secs;
    let mut load = LoadProcess::start(&site, &server, Kind::Waiting { workers, secs });
    assert_eq!(load.found()["waiting"], workers);
    let (begun, first) = (Instant::now(), server.usage());
    let is_over = AtomicBool::new(false);
    let (found, usages) = std::thread::scope(|scope| {
        let watched = scope.spawn(|| {
            let mut usages: Vec<Usage> = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                usages.push(server.usage());
                std::thread::sleep(Duration::from_millis(100));
            }
            usages
        });
        let found = load.found();
        is_over.store(true, Ordering::Relaxed);
        (found, watched.join().unwrap())
    });
    let cpu_s = server.usage().cpu_s - first.cpu_s;
    let percent = 100.0 * cpu_s / begun.elapsed().as_secs_f64();
    server.stop();
    let most = |figure: fn(&Usage) -> f64| quantile(usages.iter().map(figure).collect(), 1.0);
    let shown = json!({
        "workers": workers,
        "memory_mb": most(|usage| usage.memory_mb),
        "threads": most(|usage| usage.threads),
        "cpu_percent": rounded(percent),
        "polls_answered": found["polls"],
        "assigned_p50_us": found["assigned_p50_us"],
        "assigned_max_us": found["assigned_max_us"],
    });
    eprintln!("waiting workers: {shown}");
    shown
}

/// What steps print, in pieces as workers send them, next to the same pieces written to files: by one thread, which is the
/// limit that counts, and by as many as there are streams, which take all processors where load and server must share.
fn logs(sizes: &Sizes) -> Value {
    let site = Site::new();
    let server = ServerProcess::start(&site);
    let kind = Kind::Logs {
        streams: LOG_STREAMS,
        bytes_each: sizes.log_bytes_each,
        rounds: sizes.rounds,
    };
    let found = LoadProcess::start(&site, &server, kind).found();
    server.stop();
    let ingest = numbers(&found["ingest_mb_per_s"]);
    let plain = numbers(&found["plain_mb_per_s"]);
    let at_once = numbers(&found["plain_at_once_mb_per_s"]);
    let ratios = |limits: &[f64]| -> Vec<f64> {
        let pairs = ingest.iter().zip(limits);
        pairs
            .map(|(ingest, limit)| rounded(ingest / limit))
            .collect()
    };
    let shown = json!({
        "streams": LOG_STREAMS,
        "ingest_mb_per_s": median(ingest.clone()),
        "load_cores": rounded(found["load_cores"].as_f64().unwrap()),
        "plain_mb_per_s": median(plain.clone()),
        "to_plain": median(ratios(&plain)),
        "to_plain_by_round": ratios(&plain),
        "plain_at_once_mb_per_s": median(at_once.clone()),
        "to_plain_at_once": median(ratios(&at_once)),
    });
    eprintln!("logs: {shown}");
    shown
}

/// A server that starts on the data of a former life, and then has nothing to do.
fn idle(sizes: &Sizes) -> Value {
    let site = Site::new();
    let server = ServerProcess::start(&site);
    let mut line = Line::new(server.address);
    for _ in 0..sizes.engine_jobs {
        line.call("POST", "/api/tasks/chains/jobs", b"");
    }
    server.stop();
    let (mut start_ms, mut memory_mb, mut threads, mut percent) = (vec![], vec![], vec![], vec![]);
    for _ in 0..sizes.starts {
        let server = ServerProcess::start(&site);
        start_ms.push(server.started_in.as_secs_f64() * 1e3);
        let (begun, first) = (Instant::now(), server.usage());
        std::thread::sleep(Duration::from_secs(sizes.idle_secs));
        let last = server.usage();
        percent.push(100.0 * (last.cpu_s - first.cpu_s) / begun.elapsed().as_secs_f64());
        memory_mb.push(last.memory_mb);
        threads.push(last.threads);
        server.stop();
    }
    let shown = json!({
        "steps": sizes.engine_jobs * JOB_STEPS,
        "start_ms": median(start_ms.clone()),
        "start_max_ms": quantile(start_ms, 1.0),
        "memory_mb": median(memory_mb),
        "threads": median(threads),
        "cpu_percent": median(percent),
    });
    eprintln!("idle: {shown}");
    shown
}

/// This program once more, as the load.
struct LoadProcess {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl LoadProcess {
    fn start(site: &Site, server: &ServerProcess, kind: Kind) -> LoadProcess {
        let load = Load {
            address: server.address,
            folder: site.folder().to_path_buf(),
            kind,
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("--load")
            .arg(serde_json::to_string(&load).unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        LoadProcess { child, lines }
    }

    /// Waits for its next line.
    fn found(&mut self) -> Value {
        let line = self.lines.next().expect("the load failed").unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for LoadProcess {
    fn drop(&mut self) {
        // It has said everything; it ends by itself unless something went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn numbers(list: &Value) -> Vec<f64> {
    let list = list.as_array().unwrap().iter();
    list.map(|number| number.as_f64().unwrap()).collect()
}

fn median(figures: Vec<f64>) -> f64 {
    quantile(figures, 0.5)
}

fn quantile(mut figures: Vec<f64>, part: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    let index = (figures.len() as f64 * part) as usize;
    rounded(figures[index.min(figures.len() - 1)])
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
