//! What changed, one line for each: for people where there is no terminal, as JSON for programs.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use super::block::{is_instance, lasted};
use super::looker::{Seen, Waits};
use crate::cli::exit::Exit;
use crate::cli::look::Look;
use crate::cli::say::answer_json_line;
use crate::cli::words::{duration, printable, shell_word, time_of_day};
use crate::clock::wall_time;
use crate::wire::api::{EventJson, JobJson, ParentJson, StepJson};
use crate::wire::{Raw, Time};

/// One line on stderr, as it is.
pub fn put(line: &str) {
    // Nobody reads it; the job goes on.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// What was told last, to know what is new.
#[derive(Default)]
pub struct Changes {
    job: Option<String>,
    steps: BTreeMap<i64, (String, u32)>,
    /// Why each step waits, by its code; `None` is the job.
    whys: BTreeMap<Option<i64>, String>,
}

/// `10:04:05Z`
fn utc(at: Time) -> String {
    format!("{}Z", &time_of_day(at)[..8])
}

pub enum Change {
    Job,
    /// Where it is in the list of steps.
    Step(usize),
}

impl Changes {
    pub fn since_last(&mut self, job: &JobJson) -> Vec<Change> {
        let mut changes = Vec::new();
        let is_over = job.ended_at.is_some();
        let is_new = self.job.as_ref() != Some(&job.status);
        // A job begins before its steps do, and ends after them.
        if is_new && !is_over {
            changes.push(Change::Job);
        }
        for (at, step) in job.steps.iter().flatten().enumerate() {
            let state = (step.status.clone(), step.attempt);
            if self.steps.get(&step.id) != Some(&state) {
                self.steps.insert(step.id, state);
                changes.push(Change::Step(at));
            }
        }
        // In the order in which it happened. Of what happened at once: ends before beginnings, a loop around its instances.
        changes.sort_by_key(|change| match change.step(job) {
            None => (i64::MIN, 0),
            Some(step) => {
                let rank = match (step.ended_at.is_some(), is_instance(&step.name)) {
                    (true, true) => 0,
                    (true, false) => 1,
                    (false, false) => 2,
                    (false, true) => 3,
                };
                (change.at(job).0.0, rank)
            }
        });
        if is_new && is_over {
            changes.push(Change::Job);
        }
        self.job = Some(job.status.clone());
        changes
    }

    /// A line for whatever waits for a while, and for another reason than was told: `10:04:05Z step fit  ● ready  no worker offers
    /// gpu; recovery phase 4 fails it in 28s`.
    pub fn new_whys(&mut self, seen: &Seen, look: &Look) -> Vec<String> {
        let now = utc(Time(wall_time()));
        let (job, mut lines) = (&seen.job, Vec::new());
        let mut tell = |id: Option<i64>, waits: &Waits, what: String| {
            if self.whys.get(&id) == Some(&waits.code) {
                return;
            }
            self.whys.insert(id, waits.code.clone());
            let outcome = waits.outcome.as_ref().map(|outcome| format!("; {outcome}"));
            let why = printable(&(waits.sentence.clone() + &outcome.unwrap_or_default()));
            lines.push(format!("{now} {what}  {why}"));
        };
        if let Some(waits) = seen.job_why.as_ref().filter(|_| job.status == "pending") {
            tell(
                None,
                waits,
                format!("job {}  {}", job.id, look.status("pending")),
            );
        }
        for step in job.steps.iter().flatten() {
            let is_ready = step.status == "ready";
            if let Some(waits) = seen.whys.get(&step.name).filter(|_| is_ready) {
                let (name, status) = (printable(&step.name), look.status("ready"));
                tell(Some(step.id), waits, format!("step {name}  {status}"));
            }
        }
        lines
    }
}

impl Change {
    fn step<'j>(&self, job: &'j JobJson) -> Option<&'j StepJson> {
        match self {
            Change::Job => None,
            Change::Step(at) => job.steps.as_ref().map(|steps| &steps[*at]),
        }
    }

    /// What only prepares something is not.
    pub fn is_worth_a_line(&self, job: &JobJson) -> bool {
        match self.step(job) {
            None => job.ended_at.is_none() && job.status != "pending",
            Some(step) => match step.status.as_str() {
                "pending" | "assigned" => false,
                // Again, after a try that failed.
                "ready" => step.attempt > 0,
                _ => true,
            },
        }
    }

    /// `10:04:05Z step build  ✔ completed  0.4s`
    pub fn line(&self, job: &JobJson, look: &Look) -> String {
        let at = utc(self.at(job));
        let Some(step) = self.step(job) else {
            return format!("{at} job {}  {}", job.id, look.status(&job.status));
        };
        let took = match (step.ended_at, lasted(step, 0)) {
            (Some(_), Some(ms)) => format!("  {}", duration(ms)),
            _ => String::new(),
        };
        let tries = match step.attempt > 1 && step.status != "ready" {
            true => format!("  try {} of {}", step.attempt, step.max_attempts),
            false => String::new(),
        };
        let told = match (step.status.as_str(), &step.worker, &step.message) {
            ("completed", ..) => String::new(),
            ("ready", ..) => {
                let (attempt, max) = (step.attempt, step.max_attempts);
                let last = step.attempts.last().and_then(|last| last.message.clone());
                let why = last.map(|last| format!(": {}", printable(&last)));
                format!("  after try {attempt} of {max}{}", why.unwrap_or_default())
            }
            ("running", Some(worker), _) => format!("  on {}", printable(worker)),
            ("running", None, _) => match step.child_job_id {
                Some(child) => format!("  as job {child}"),
                None => String::new(),
            },
            (_, _, Some(message)) => format!("  {}", printable(message)),
            _ => String::new(),
        };
        let (name, status) = (printable(&step.name), look.status(&step.status));
        format!("{at} step {name}  {status}{took}{tries}{told}")
    }

    fn at(&self, job: &JobJson) -> Time {
        let at = match self.step(job) {
            None => job.ended_at.or(job.started_at),
            Some(step) => match step.status.as_str() {
                "running" => step.started_at,
                "ready" => step.ready_at,
                "assigned" => step.assigned_at,
                _ => step.ended_at,
            },
        };
        at.unwrap_or_else(|| Time(wall_time()))
    }

    /// The words that say which step a person has to decide about.
    pub fn decision(&self, job: &JobJson) -> Option<String> {
        let step = self.step(job).filter(|step| step.status == "suspended")?;
        Some(format!("{} {}", job.id, shell_word(&step.name)))
    }

    /// As soon as nobody reads it any more, it is for nobody; the job goes on.
    pub fn tell_json(&self, job: &JobJson) {
        let (at, job_id) = (self.at(job), job.id);
        let _ = match self.step(job) {
            None => answer_json_line(&Told {
                kind: "job",
                at,
                job_id,
                of: OfJob {
                    job: Brief::of(job),
                },
            }),
            Some(step) => answer_json_line(&Told {
                kind: "step",
                at,
                job_id,
                of: OfStep { step },
            }),
        };
    }
}

#[derive(Serialize)]
struct Told<T> {
    kind: &'static str,
    at: Time,
    job_id: i64,
    #[serde(flatten)]
    of: T,
}

#[derive(Serialize)]
struct OfJob<'a> {
    job: Brief<'a>,
}

/// A job as in lists, without its steps: those have lines of their own.
#[derive(Serialize)]
struct Brief<'a> {
    id: i64,
    task: &'a str,
    status: &'a str,
    reason: &'a Option<String>,
    message: &'a Option<String>,
    source: &'a str,
    input: &'a Raw,
    output: &'a Option<Raw>,
    labels: &'a Raw,
    priority: i32,
    parent: &'a Option<ParentJson>,
    retry_of: Option<i64>,
    hook_of: Option<i64>,
    schedule_id: Option<i64>,
    scheduled_for: Option<Time>,
    created_at: Time,
    started_at: Option<Time>,
    ended_at: Option<Time>,
}

impl<'a> Brief<'a> {
    fn of(job: &'a JobJson) -> Brief<'a> {
        Brief {
            id: job.id,
            task: &job.task,
            status: &job.status,
            reason: &job.reason,
            message: &job.message,
            source: &job.source,
            input: &job.input,
            output: &job.output,
            labels: &job.labels,
            priority: job.priority,
            parent: &job.parent,
            retry_of: job.retry_of,
            hook_of: job.hook_of,
            schedule_id: job.schedule_id,
            scheduled_for: job.scheduled_for,
            created_at: job.created_at,
            started_at: job.started_at,
            ended_at: job.ended_at,
        }
    }
}

#[derive(Serialize)]
struct OfStep<'a> {
    step: &'a StepJson,
}

#[derive(Serialize)]
struct OfEvent {
    event: EventJson,
}

#[derive(Serialize)]
struct OfEnd<'a> {
    exit_code: u8,
    job: Option<&'a JobJson>,
}

pub fn tell_events(job_id: i64, events: Vec<EventJson>) {
    for event in events {
        // As above: nobody has to read it.
        let _ = answer_json_line(&Told {
            kind: "event",
            at: event.at,
            job_id,
            of: OfEvent { event },
        });
    }
}

/// The last line.
pub fn tell_end(exit: Exit, job_id: i64, job: Option<&JobJson>) {
    // As above: nobody has to read it.
    let _ = answer_json_line(&Told {
        kind: "end",
        at: job
            .and_then(|job| job.ended_at)
            .unwrap_or_else(|| Time(wall_time())),
        job_id,
        of: OfEnd {
            exit_code: exit.code(),
            job,
        },
    });
}
