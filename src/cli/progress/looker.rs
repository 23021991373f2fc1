//! Looks at a job whenever something happened to it, and at least once a second, on a thread of its own: whoever shows it is
//! never kept waiting by a server that does not answer.

use std::collections::BTreeMap;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};

use crate::cli::follow::follow;
use crate::cli::reach::{Remote, in_url};
use crate::cli::words::secs;
use crate::client::CallError;
use crate::clock::{monotonic_ms, wall_time};
use crate::wire::api::{
    EventJson, JobJson, JobWhyJson, List, LogsJson, StepJson, StepLogsJson, WhyJson,
};

const REST: Duration = Duration::from_secs(1);
/// While the last lines of running steps are shown.
const REST_LIVE: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(10);
/// A look that takes no longer is nothing to a server.
const CHEAP_MS: i64 = 5;
/// Lines, of which the last may be the worker's own.
const TAIL: usize = 2;
/// Of steps whose last line is shown: more are asked for all at once.
const SINGLE_TAILS_MAX: usize = 2;
/// A step that is ready for longer deserves an explanation.
const READY_MS: i64 = 1_000;
const HEALTH_MS: i64 = 1_000;

/// What whoever shows it needs besides the job itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wants {
    /// The last line of each step.
    pub details: bool,
    /// Why steps wait.
    pub whys: bool,
    pub events: bool,
    /// Whether the server can work at all.
    pub health: bool,
}

pub enum Sight {
    Seen(Box<Seen>),
    /// The server does not answer. It is tried again and again.
    Lost,
    /// It answers, and will not tell of this job. Nothing follows.
    Refused(CallError),
}

pub struct Seen {
    pub job: JobJson,
    /// Those that were not told before.
    pub events: Vec<EventJson>,
    pub tails: BTreeMap<String, String>,
    pub whys: BTreeMap<String, Waits>,
    /// Why the job itself waits.
    pub job_why: Option<Waits>,
    /// Why the server cannot write.
    pub problem: Option<String>,
}

/// Why something waits.
#[derive(Clone)]
pub struct Waits {
    pub code: String,
    pub sentence: String,
    /// What recovery will do, and when.
    pub outcome: Option<String>,
}

impl From<WhyJson> for Waits {
    fn from(why: WhyJson) -> Waits {
        let outcome = why.outcome.map(|outcome| {
            let deed = match outcome.code.as_str() {
                "fail" => "fails it",
                "requeue" => "puts it back into the queue",
                "retry" => "has it tried again",
                "hold" => "holds it until a person decides",
                "cancel_job" => "cancels its job",
                // A newer server knows more.
                _ => outcome.action.as_str(),
            };
            let when = match outcome.in_secs > 0.0 {
                true => format!("in {}", secs(outcome.in_secs)),
                false => "with its next sweep".to_string(),
            };
            format!("recovery phase {} {deed} {when}", outcome.phase)
        });
        Waits {
            code: why.code,
            sentence: why.sentence,
            outcome,
        }
    }
}

/// Until the job has ended, or nobody listens.
pub fn look_at(remote: &Remote, job_id: i64, wants: Wants) -> std::io::Result<Receiver<Sight>> {
    let (sights, seen) = unbounded();
    let news = follow(remote, Some(job_id), None);
    let mut eye = Eye {
        remote: remote.clone(),
        job_id,
        wants,
        last_event: 0,
        tails: BTreeMap::new(),
        told: BTreeMap::new(),
        whys: BTreeMap::new(),
        job_why: None,
        whys_at: None,
        health_at: monotonic_ms(),
        problem: None,
    };
    let look = move || {
        loop {
            let begun = monotonic_ms();
            let (sight, is_last) = match eye.look() {
                Ok(seen) => {
                    let ended = seen.job.ended_at.is_some();
                    (Sight::Seen(Box::new(seen)), ended)
                }
                Err(error) if error.passes() => (Sight::Lost, false),
                Err(refused) => (Sight::Refused(refused), true),
            };
            if sights.send(sight).is_err() || is_last {
                return;
            }
            // Half of the time is the server's for others, where a look takes long.
            let cost = (monotonic_ms() - begun).clamp(0, 1_000);
            if cost > CHEAP_MS {
                std::thread::sleep(Duration::from_millis(cost as u64));
            }
            let rest = if wants.details { REST_LIVE } else { REST };
            match news.recv_timeout(rest) {
                Ok(_) => while news.try_recv().is_ok() {},
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(rest),
            }
        }
    };
    std::thread::Builder::new()
        .name("look".to_string())
        .spawn(look)?;
    Ok(seen)
}

struct Eye {
    remote: Remote,
    job_id: i64,
    wants: Wants,
    last_event: i64,
    tails: BTreeMap<String, String>,
    /// The attempt of each ended step whose last line is known for good.
    told: BTreeMap<String, u32>,
    whys: BTreeMap<String, Waits>,
    job_why: Option<Waits>,
    whys_at: Option<i64>,
    health_at: i64,
    /// What it was when it was last asked for.
    problem: Option<String>,
}

impl Eye {
    fn look(&mut self) -> Result<Seen, CallError> {
        let client = &self.remote.client;
        let job: JobJson = client.get(&format!("/api/jobs/{}", self.job_id), PATIENCE)?;
        if self.wants.details {
            self.look_at_tails(job.steps.as_deref().unwrap_or_default());
        }
        if self.wants.whys {
            self.look_at_whys(&job);
        }
        let events = match self.wants.events {
            true => self.new_events()?,
            false => Vec::new(),
        };
        self.look_at_health();
        Ok(Seen {
            job,
            events,
            problem: self.problem.clone(),
            tails: self.tails.clone(),
            whys: self.whys.clone(),
            job_why: self.job_why.clone(),
        })
    }

    /// From time to time.
    fn look_at_health(&mut self) {
        let ms = monotonic_ms();
        if !self.wants.health || ms - self.health_at < HEALTH_MS {
            return;
        }
        self.health_at = ms;
        let is_disk = |problem: &String| problem.contains("cannot write");
        if let Ok(health) = self.remote.client.ready(PATIENCE) {
            self.problem = health.problems.into_iter().find(is_disk);
        }
    }

    fn new_events(&mut self) -> Result<Vec<EventJson>, CallError> {
        let mut events = Vec::new();
        loop {
            let path = format!("/api/jobs/{}/events?after={}", self.job_id, self.last_event);
            let page: List<EventJson> = self.remote.client.get(&path, PATIENCE)?;
            self.last_event = page.items.last().map_or(self.last_event, |last| last.seq);
            events.extend(page.items);
            if page.next.is_none() {
                return Ok(events);
            }
        }
    }

    /// A line that cannot be had is not shown: the job itself is what counts.
    fn look_at_tails(&mut self, steps: &[StepJson]) {
        let prints = |step: &&StepJson| {
            step.attempt > 0
                && matches!(step.kind.as_str(), "script" | "docker" | "pod")
                && !super::block::is_instance(&step.name)
                && self.told.get(&step.name) != Some(&step.attempt)
                && step.started_at.is_some()
        };
        let wanted: Vec<(&str, u32, bool)> = (steps.iter().filter(prints))
            .map(|step| (step.name.as_str(), step.attempt, step.ended_at.is_some()))
            .collect();
        let (client, job_id) = (&self.remote.client, self.job_id);
        if wanted.len() <= SINGLE_TAILS_MAX {
            for (name, ..) in &wanted {
                let path = format!("/api/jobs/{job_id}/steps/{}/logs?tail={TAIL}", in_url(name));
                if let Ok(logs) = client.get::<LogsJson>(&path, PATIENCE) {
                    keep_tail(&mut self.tails, name, logs);
                }
            }
        } else {
            let path = format!("/api/jobs/{job_id}/logs?tail={TAIL}");
            let logs = client.get::<List<StepLogsJson>>(&path, PATIENCE);
            for of_step in logs.into_iter().flat_map(|list| list.items) {
                keep_tail(&mut self.tails, &of_step.step, of_step.logs);
            }
        }
        for (name, attempt, _) in wanted.iter().filter(|(.., ended)| *ended) {
            self.told.insert(name.to_string(), *attempt);
        }
    }

    fn look_at_whys(&mut self, job: &JobJson) {
        let steps = job.steps.as_deref().unwrap_or_default();
        let now = wall_time().0;
        let waits = |step: &StepJson| match step.status.as_str() {
            "ready" => step.ready_at.is_some_and(|at| now - at.0.0 > READY_MS),
            "suspended" => true,
            _ => false,
        };
        let is_step = steps.iter().any(|step| step.status == "ready");
        let is_old = now - job.created_at.0.0 > READY_MS;
        let job_waits = job.status == "pending" && is_old && !is_step;
        if !job_waits && !steps.iter().any(waits) {
            self.whys.clear();
            self.job_why = None;
            return;
        }
        let ms = monotonic_ms();
        if self.whys_at.is_some_and(|at| ms - at < READY_MS) {
            return;
        }
        self.whys_at = Some(ms);
        let path = format!("/api/jobs/{}/why", self.job_id);
        if let Ok(why) = self.remote.client.get::<JobWhyJson>(&path, PATIENCE) {
            self.job_why = job_waits.then(|| why.why.into());
            let is_waiting = |name: &str| steps.iter().any(|it| it.name == name && waits(it));
            let whys = why.steps.into_iter();
            let whys = whys.filter(|step| is_waiting(&step.step));
            self.whys = whys.map(|step| (step.step, step.why.into())).collect();
        }
    }
}

fn keep_tail(tails: &mut BTreeMap<String, String>, step: &str, logs: LogsJson) {
    let mut lines = logs.lines.into_iter().rev();
    if let Some(line) = lines.find(|line| line.stream == "stdout" || line.stream == "stderr") {
        tails.insert(step.to_string(), line.text);
    }
}
