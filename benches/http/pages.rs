//! What a page costs: the time until it is there, over the wire and all, and the bytes of a first visit.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};

use super::line::Line;
use super::load::Kind;
use super::process::{PAGE_STEPS, ServerProcess, Site};
use super::{LoadProcess, Sizes, median, quantile, rounded};

/// The pages that everybody looks at, and the page of a job with 200 steps, before any has run and when all have.
pub fn pages(sizes: &Sizes) -> Value {
    let site = Site::new();
    let server = ServerProcess::start(&site);
    let mut line = Line::new(server.address);
    let submit = |line: &mut Line| {
        let answer = line.call("POST", "/api/tasks/page/jobs", b"");
        assert_eq!(answer.status, 201);
    };
    submit(&mut line);
    let kind = Kind::Lives {
        workers: 1,
        slots: 16,
        steps: PAGE_STEPS,
    };
    LoadProcess::start(&site, &server, kind).found();
    submit(&mut line);
    let mut shown = json!({"steps": PAGE_STEPS});
    for (name, path) in [
        ("job_ended", "/jobs/1"),
        ("job_open", "/jobs/2"),
        ("overview", "/"),
        ("jobs", "/jobs"),
        ("queue", "/queue"),
        ("workers", "/workers"),
    ] {
        let (took, bytes) = look(&mut line, path, sizes.looks);
        shown[format!("{name}_p50_ms")] = json!(median(took.clone()));
        shown[format!("{name}_p99_ms")] = json!(quantile(took, 0.99));
        shown[format!("{name}_kb")] = json!(rounded(bytes as f64 / 1e3));
    }
    for (name, path) in [("first_load_kb", "/"), ("job_first_load_kb", "/jobs/1")] {
        let bytes = first_load(&mut line, path);
        shown[name] = json!(rounded(bytes as f64 / 1e3));
    }
    server.stop();
    eprintln!("pages: {shown}");
    shown
}

fn look(line: &mut Line, path: &str, times: usize) -> (Vec<f64>, usize) {
    let mut bytes = 0;
    let took = (0..times).map(|_| {
        let begun = Instant::now();
        bytes = line.weigh(path);
        begun.elapsed().as_secs_f64() * 1e3
    });
    (took.collect(), bytes)
}

/// The page with every file that it names, and that those name: what a browser with an empty cache fetches.
fn first_load(line: &mut Line, path: &str) -> usize {
    let mut fetched = BTreeSet::new();
    let mut wanted = vec![path.to_string()];
    let mut bytes = 0;
    while let Some(path) = wanted.pop() {
        if !fetched.insert(path.clone()) {
            continue;
        }
        let answer = line.call("GET", &path, b"");
        assert_eq!(answer.status, 200, "{path}");
        bytes += line.weigh(&path);
        let text = String::from_utf8(answer.body).unwrap();
        // In pages as `"/assets/VERSION/NAME"`, in modules as `'./NAME'`.
        let assets = text.split('"').filter(|word| word.starts_with("/assets/"));
        wanted.extend(assets.map(str::to_string));
        if let Some((folder, _)) = path.rsplit_once('/').filter(|_| path.ends_with(".js")) {
            let modules = text.split('\'').filter_map(|word| word.strip_prefix("./"));
            wanted.extend(modules.map(|module| format!("{folder}/{module}")));
        }
    }
    bytes
}
