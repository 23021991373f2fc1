//! `stepward demo`: a job that goes well, then each phase of recovery as it happens, with real processes that really die.

mod stage;

use std::io::Write;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::exit::Exit;
use super::look::{Ink, Look, Show};
use super::process;
use super::reach::Remote;
use super::say::{answer, answer_json_line, say, tell};
use super::words::{duration, fit, printable, secs};
use crate::config::Recovery;
use crate::wire::api::{EventJson, JobJson, JobWhyJson, List};
use stage::Stage;

/// More than any part takes.
const PART_MS: i64 = 30_000;

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward demo\n  stepward demo --json | jq -r .message\n\nNothing is left behind: it plays in a \
                   temporary folder, on a port of its own."
)]
pub struct DemoArgs {
    #[command(flatten)]
    show: Show,
}

struct Part {
    title: &'static str,
    task: &'static str,
    /// How its job ends, why, and which phase sees to that.
    status: &'static str,
    reason: Option<&'static str>,
    phase: Option<u8>,
}

#[rustfmt::skip]
const PARTS: [Part; 5] = [
    Part { title: "a healthy run",         task: "hello",       status: "completed", reason: None,                 phase: None },
    Part { title: "a worker dies mid-step", task: "backup",      status: "failed",    reason: Some("worker_lost"),  phase: Some(1) },
    Part { title: "a step takes too long",  task: "slow-report", status: "failed",    reason: Some("step_timeout"), phase: Some(2) },
    Part { title: "a job takes too long",   task: "nightly",     status: "cancelled", reason: Some("job_timeout"),  phase: Some(3) },
    Part { title: "nobody can run a step",  task: "train",       status: "failed",    reason: Some("unmatched"),    phase: Some(4) },
];

/// How a part went, by what the server says.
#[derive(Serialize)]
struct Outcome {
    part: usize,
    title: &'static str,
    task: &'static str,
    job_id: i64,
    status: String,
    reason: Option<String>,
    phase: Option<u8>,
    message: String,
    duration_secs: Option<f64>,
    as_expected: bool,
}

pub fn run(args: DemoArgs) -> anyhow::Result<Exit> {
    let signals = process::signals()?;
    let tour = Tour {
        out: args.show.look(),
        err: args.show.look.stderr(),
        json: args.show.json,
        stage: Stage::build(signals)?,
    };
    let played = tour.play();
    let outcomes = played?;
    let mut differs = outcomes.iter().filter(|outcome| !outcome.as_expected);
    if let Some(first) = differs.next() {
        let part = &PARTS[first.part - 1];
        let ending = |status: &str, reason: Option<&str>, phase: Option<u8>| {
            let phase = phase.map_or("no recovery".to_string(), |n| format!("phase {n}"));
            format!("{status} ({}, {phase})", reason.unwrap_or("no reason"))
        };
        say(format!(
            "part {} differs: its job is {}, where {} was expected",
            first.part,
            ending(&first.status, first.reason.as_deref(), first.phase),
            ending(part.status, part.reason, part.phase),
        ));
        return Ok(Exit::Error);
    }
    tell(NEXT);
    Ok(Exit::Success)
}

const NEXT: &str = "
All of it is gone again. Next:
  stepward init          a small project in this folder
  stepward run hello     its first task, no server needed
  stepward dev           a server for it, until Ctrl-C
  stepward why latest    why a job waits, or ended as it did";

struct Tour {
    out: Look,
    err: Look,
    json: bool,
    stage: Stage,
}

impl Tour {
    /// Everything that it started has ended when it returns.
    fn play(mut self) -> anyhow::Result<Vec<Outcome>> {
        self.begin();
        let played = self.all_parts();
        self.clear();
        self.doing_last("cleaning up");
        let (err, Tour { stage, .. }) = (self.err, self);
        drop(stage);
        if err.is_terminal {
            clear();
        }
        played
    }

    fn begin(&self) {
        let (short, real) = (stage::timings(), Recovery::default());
        let dot = self.err.dot();
        let told = |timings: &Recovery| {
            format!(
                "heartbeat {}s {dot} worker timeout {}s {dot} sweep {}s {dot} unmatched {}s",
                timings.heartbeat_interval_secs,
                timings.heartbeat_timeout_secs,
                timings.sweep_interval_secs,
                timings.unmatched_step_timeout_secs
            )
        };
        let folder = printable(&self.stage.folder().display().to_string());
        tell(format!(
            "A server and two workers in {folder}, gone at the end; Ctrl-C ends it.\n\
             timings here   {}\nreal defaults  {}\n",
            told(&short),
            told(&real)
        ));
    }

    fn all_parts(&mut self) -> anyhow::Result<Vec<Outcome>> {
        self.doing("starting a server and the workers demo-a and demo-b");
        let remote = self.stage.start_server()?;
        self.stage.start_worker("demo-a", &remote)?;
        self.stage.start_worker("demo-b", &remote)?;
        let mut outcomes = Vec::new();
        // One after the other, so that each can be watched.
        for (part, shown) in PARTS.iter().enumerate() {
            let job_id = self.submit(part, &remote)?;
            if shown.reason == Some("worker_lost") {
                self.kill_mid_step(job_id, &remote)?;
            }
            outcomes.push(self.watch(part, job_id, &remote)?);
        }
        Ok(outcomes)
    }

    fn kill_mid_step(&mut self, job_id: i64, remote: &Remote) -> anyhow::Result<()> {
        self.stage.await_that(PART_MS, "a step to start", |_| {
            let steps = job(remote, job_id)?.steps.unwrap_or_default();
            let runs = steps.iter().any(|step| step.status == "running");
            Ok(runs.then_some(()))
        })?;
        let pid = self.stage.pid("demo-b").unwrap_or_default();
        self.doing(&format!("killing worker demo-b (pid {pid}) with SIGKILL"));
        self.stage.kill("demo-b");
        Ok(())
    }

    fn submit(&self, part: usize, remote: &Remote) -> anyhow::Result<i64> {
        let task = PARTS[part].task;
        let path = format!("/api/tasks/{task}/jobs");
        let job: JobJson = remote.post(&path, &json!({"input": {}}))?;
        self.doing(&format!("job {} of task {task} is submitted", job.id));
        Ok(job.id)
    }

    /// Until its end, or until nobody waits for that any more.
    fn watch(&mut self, part: usize, job_id: i64, remote: &Remote) -> anyhow::Result<Outcome> {
        let (err, title) = (self.err, PARTS[part].title);
        let ended = self.stage.await_that(PART_MS, title, |_| {
            let job = job(remote, job_id)?;
            if job.ended_at.is_some() {
                return Ok(Some(job));
            }
            if err.is_terminal {
                // It may have ended just now.
                let why = remote.get::<JobWhyJson>(&format!("/api/jobs/{job_id}/why"));
                if let Ok(why) = why {
                    show_now(&err, &waiting(&why, PARTS[part].phase));
                }
            }
            Ok(None)
        });
        let job = match ended {
            Ok(job) => job,
            Err(error) if Exit::of(&error) == Exit::Interrupted => return Err(error),
            // It is told as it is: something else than was expected.
            Err(error) => job(remote, job_id).map_err(|_| error)?,
        };
        let path = format!("/api/jobs/{job_id}/events");
        let events: List<EventJson> = remote.get(&path)?;
        let outcome = outcome(part, &job, &events.items);
        self.clear();
        match self.json {
            true => answer_json_line(&outcome),
            false => answer(outcome.text(&self.out)),
        };
        Ok(outcome)
    }

    /// On a terminal the last of these is seen, elsewhere each has its line.
    fn doing(&self, what: &str) {
        match self.err.is_terminal {
            true => show_now(&self.err, what),
            false => tell(format!("  {what}")),
        }
    }

    fn doing_last(&self, what: &str) {
        if self.err.is_terminal {
            show_now(&self.err, what);
        }
    }

    fn clear(&self) {
        if self.err.is_terminal {
            clear();
        }
    }
}

fn job(remote: &Remote, job_id: i64) -> anyhow::Result<JobJson> {
    remote.get(&format!("/api/jobs/{job_id}"))
}

/// In the line where the cursor is, which the next one takes.
fn show_now(look: &Look, what: &str) {
    let columns = look.width.unwrap_or(80).saturating_sub(4);
    let what = look.paint(Ink::Faint, &fit(&printable(what), columns, look.ellipsis()));
    // Nobody sees it; what it is about happens all the same.
    let _ = std::io::stderr().write_all(format!("\r\x1b[K  {what}").as_bytes());
}

fn clear() {
    let _ = std::io::stderr().write_all(b"\r\x1b[K");
}

/// What the server says of a job that has not ended, with what this phase of recovery will do about it.
fn waiting(why: &JobWhyJson, phase: Option<u8>) -> String {
    let step = why.steps.first();
    let outcome = step.and_then(|step| step.why.outcome.as_ref());
    let outcome = outcome.or(why.why.outcome.as_ref());
    let sentence = step.map_or(&why.why.sentence, |step| &step.why.sentence);
    let outcome = outcome.filter(|outcome| Some(outcome.phase) == phase);
    let foreseen = outcome.map_or_else(String::new, |outcome| {
        let (phase, in_secs) = (outcome.phase, secs(outcome.in_secs));
        format!("recovery phase {phase} acts in {in_secs}; ")
    });
    format!("job {} {}: {foreseen}{sentence}", why.job_id, why.task)
}

fn outcome(at: usize, job: &JobJson, events: &[EventJson]) -> Outcome {
    let part = &PARTS[at];
    let recovery = events.iter().find(|event| event.phase.is_some());
    let message = match recovery {
        Some(event) => event.message.clone(),
        None => went_well(job),
    };
    let ended = job.ended_at.map(|ended| ended.0.0 - job.created_at.0.0);
    let phase = recovery.and_then(|event| event.phase);
    Outcome {
        part: at + 1,
        title: part.title,
        task: part.task,
        job_id: job.id,
        status: job.status.clone(),
        reason: job.reason.clone(),
        phase,
        message: message.trim_start_matches("[recovery] ").to_string(),
        duration_secs: ended.map(|ms| ms as f64 / 1_000.0),
        as_expected: job.status == part.status
            && job.reason.as_deref() == part.reason
            && phase == part.phase,
    }
}

fn went_well(job: &JobJson) -> String {
    let steps = job.steps.as_deref().unwrap_or_default();
    let done = steps
        .iter()
        .filter(|step| step.status == "completed")
        .count();
    let mut workers: Vec<&str> = steps
        .iter()
        .filter_map(|step| step.worker.as_deref())
        .collect();
    workers.sort_unstable();
    workers.dedup();
    format!(
        "{done} of {} steps completed, by {}",
        steps.len(),
        workers.join(" and ")
    )
}

impl Outcome {
    fn text(&self, look: &Look) -> String {
        let took = self.duration_secs.map(|secs| (secs * 1_000.0) as i64);
        let took = took.map_or_else(String::new, duration);
        let status = format!("{} {}", look.sign(&self.status), self.status);
        let status = look.paint(Look::ink(&self.status), &format!("{status:<12}"));
        let phase = self.phase.map(|phase| format!("  recovery phase {phase}"));
        format!(
            "[{}/{}] {:<24}{:<13}{status}{took:>5}{}\n      {}",
            self.part,
            PARTS.len(),
            self.title,
            self.task,
            phase.unwrap_or_default(),
            printable(&self.message)
        )
    }
}
