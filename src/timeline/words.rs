//! What segments and rows say, in words.

use super::{By, Part, Row};
use crate::domain::limits::clip;
use crate::domain::reason::Waiting;
use crate::domain::span::span;
use crate::graph::clean;

/// In the past: for a worker, nobody knows any more why.
pub const QUEUED: &str = "queued";
/// An assignment came back, and it waited for the next.
pub const REQUEUED: &str = "requeued";
/// Of a server that knows more than we do.
pub const OTHER: &str = "other";

/// Of what others wrote, as much as fits into a tooltip.
const DETAIL_BYTES_MAX: usize = 300;

/// Every code that a wait can have.
pub fn codes() -> impl Iterator<Item = &'static str> {
    let now = Waiting::ALL.iter().map(|waiting| waiting.as_str());
    now.chain([QUEUED, REQUEUED, OTHER])
}

pub fn known(code: &str) -> &'static str {
    codes().find(|known| *known == code).unwrap_or(OTHER)
}

/// Behind `waited 12s`.
fn awaited(code: &str) -> &'static str {
    match Waiting::from_word(code) {
        Some(Waiting::Dependencies) => "for dependencies",
        Some(Waiting::NotBefore) => "for its time",
        Some(Waiting::RetryBackoff) => "to be tried again",
        Some(Waiting::Concurrency) => "for a free place",
        Some(Waiting::Approval) => "for an approval",
        Some(Waiting::Held) => "for someone to decide",
        Some(Waiting::ChildJob) => "for its job",
        Some(Waiting::Instances) => "for its instances",
        Some(Waiting::Preparing) => "while it was prepared",
        Some(
            Waiting::Paused
            | Waiting::NoMatchingWorker
            | Waiting::MatchingWorkersSilent
            | Waiting::WorkersBusy
            | Waiting::Claimable,
        ) => "for a worker",
        Some(Waiting::Running) => "to end",
        None if code == QUEUED => "for a worker",
        None if code == REQUEUED => "for another worker",
        None => "for something else",
    }
}

/// `1ms`, `0.4s`, `2m 14s`.
pub fn took(ms: i64) -> String {
    match ms {
        1..100 => format!("{ms}ms"),
        _ => span(ms),
    }
}

/// `: no active worker has gpu`
fn because(detail: Option<&str>) -> String {
    match detail.map(str::trim) {
        None | Some("") => String::new(),
        Some(detail) => format!(": {}", clip(&clean(detail), DETAIL_BYTES_MAX)),
    }
}

/// `waited 12s for a worker: no active worker has gpu`
pub fn waited(code: &str, ms: i64, is_open: bool, detail: Option<&str>) -> String {
    let waited = if is_open { "has waited" } else { "waited" };
    let (took, awaited) = (took(ms), awaited(code));
    format!("{waited} {took} {awaited}{}", because(detail))
}

/// `attempt 2 ran 3.1s on edge-1, failed: exit_code`
pub fn ran(run: &Ran, ms: i64, is_open: bool) -> String {
    let who = match (run.by, run.child_job_id, run.attempt) {
        (By::ChildJob, Some(child), _) => format!("job {child} "),
        (By::Instances, _, _) => "its instances ".to_string(),
        (_, _, Some(attempt)) => format!("attempt {attempt} "),
        _ => String::new(),
    };
    let worker = run.worker.map_or(String::new(), |worker| {
        format!(" on {}", clip(&clean(worker), DETAIL_BYTES_MAX))
    });
    let took = took(ms);
    match is_open {
        true => format!("{who}has run {took}{worker}"),
        false => {
            let (outcome, because) = (clean(run.outcome), because(run.reason));
            format!("{who}ran {took}{worker}, {outcome}{because}")
        }
    }
}

/// What is to say about a run.
pub struct Ran<'r> {
    pub by: By,
    /// Where there were several.
    pub attempt: Option<u32>,
    pub child_job_id: Option<i64>,
    pub worker: Option<&'r str>,
    pub outcome: &'r str,
    pub reason: Option<&'r str>,
}

pub fn said(row: &Row) -> String {
    let mut waits: Vec<(&str, i64)> = Vec::new();
    let (mut runs, mut earlier) = (0, 0);
    for segment in &row.segments {
        match &segment.part {
            Part::Wait { code } => {
                let awaited = awaited(code);
                match waits.iter_mut().find(|(known, _)| *known == awaited) {
                    Some((_, ms)) => *ms += segment.ms(),
                    None => waits.push((awaited, segment.ms())),
                }
            }
            Part::Run { .. } => runs += 1,
            Part::Earlier { attempts } => earlier += attempts,
        }
    }
    let mut parts: Vec<String> = waits
        .iter()
        .map(|(awaited, ms)| format!("{} {awaited}", took(*ms)))
        .collect();
    if let Some(first) = parts.first_mut() {
        first.insert_str(0, "waited ");
    }
    if earlier > 0 {
        parts.push(format!("{earlier} earlier attempts"));
    }
    match runs {
        0 => {}
        1 => parts.push(format!("ran {}", took(row.run_ms()))),
        _ => parts.push(format!("ran {} in {runs} attempts", took(row.run_ms()))),
    }
    parts.push(row.state.clone());
    parts.extend(row.note.clone());
    let because = because(row.why.as_deref());
    format!("{}: {}{because}", row.name, parts.join(", "))
}

/// `7 earlier attempts in 3m 2s`
pub fn earlier(attempts: usize, segment_ms: i64) -> String {
    format!("{attempts} earlier attempts in {}", took(segment_ms))
}
