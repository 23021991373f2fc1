//! What `stepward why` prints of every code, from real states, at 80 and at 40 columns. `STEPWARD_GOLDEN=write` writes the
//! expected texts anew; read the difference as somebody who has just been told it.

mod schedules;
mod steps;
mod workers;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use stepward::cli::look::Look;
use stepward::cli::why_text;
use stepward::domain::JobId;
use stepward::domain::reason::{Reason, Waiting};
use stepward::domain::schedule::ScheduleStanding;
use stepward::domain::worker::WorkerStanding;
use stepward::server::api::show;

use crate::house::TestHouse;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/why")
}

fn look(width: usize) -> Look {
    Look {
        colour: false,
        unicode: true,
        is_terminal: true,
        width: Some(width),
    }
}

/// Compares what is shown with what was written down under this name.
fn golden(name: &str, shown: &str) {
    for line in shown.lines() {
        assert!(!line.contains('\t'), "{name}: {line}");
        assert_eq!(line.trim_end(), line, "{name}");
    }
    let path = folder().join(format!("{name}.txt"));
    if std::env::var("STEPWARD_GOLDEN").is_ok_and(|word| word == "write") {
        fs::write(&path, shown).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, expected, "{name}");
}

/// A job and one of its steps, which has this code.
fn check_step(code: &str, name: &str, house: &TestHouse, job: JobId, step: &str) {
    let now = house.now();
    let whole = house.engine.why_job(job, now).unwrap();
    let whole = show::job_why(&whole, now);
    let step_id = house.step(job, step).step_id;
    let one = house.engine.why_step(step_id, now).unwrap();
    let one = show::one_step_why(&one, now);
    assert_eq!(one.step.why.code, code);
    let shown = format!(
        "$ stepward why {job}\n{}\n$ stepward why {job} {step}\n{}\n$ stepward why {job}  # 40 columns\n{}",
        why_text::job(&whole, &look(80)),
        why_text::step(&one, &look(80)),
        why_text::job(&whole, &look(40)),
    );
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{name}: {line}");
    }
    golden(name, &shown);
}

/// A job that as a whole has this code.
fn check_job(code: &str, house: &TestHouse, job: JobId) {
    let now = house.now();
    let whole = house.engine.why_job(job, now).unwrap();
    let whole = show::job_why(&whole, now);
    assert_eq!(whole.why.code, code);
    let shown = format!(
        "$ stepward why {job}\n{}\n$ stepward why {job}  # 40 columns\n{}",
        why_text::job(&whole, &look(80)),
        why_text::job(&whole, &look(40)),
    );
    golden(code, &shown);
}

/// Every code that is ever told has a text that somebody has read, and no text is left of a code that is gone.
#[test]
fn every_code_has_its_golden_file() {
    let mut expected: BTreeSet<String> = BTreeSet::new();
    expected.extend(Reason::ALL.iter().map(|code| code.to_string()));
    // The word is the name of two codes; this one has the file with the other name.
    let waiting = Waiting::ALL.iter().map(|code| code.to_string());
    expected.extend(waiting.map(|code| format!("waiting_{code}")));
    let workers = WorkerStanding::ALL.iter();
    expected.extend(workers.map(|code| format!("worker_is_{code}")));
    let schedules = ScheduleStanding::ALL.iter();
    expected.extend(schedules.map(|code| format!("schedule_is_{code}")));
    expected.insert("completed".to_string());
    let entries = fs::read_dir(folder()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter_map(|name| name.strip_suffix(".txt").map(str::to_string));
    let names: BTreeSet<String> = names.collect();
    let missing: Vec<&String> = expected.difference(&names).collect();
    assert_eq!(missing, Vec::<&String>::new());
    // `exit_code-127` is another one of `exit_code`.
    let found: BTreeSet<String> = names
        .iter()
        .map(|name| name.split('-').next().unwrap().to_string())
        .collect();
    assert_eq!(found, expected);
}
