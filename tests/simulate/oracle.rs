//! What must hold, seen with eyes of its own: it reads the database past the store and remembers what was promised.
//!
//! A breach is a panic whose message begins with the promise that was broken.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use stepward::domain::recovery::{Deed, Foreseen, Phase, Recovery};
use stepward::domain::{AttemptRef, Now, StepId};
use stepward::engine::{Engine, Finished, News, Settings, Verdict};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRow {
    pub job_id: i64,
    pub kind: String,
    pub state: String,
    pub attempt: u32,
    pub tries: u32,
    pub worker_id: Option<i64>,
    pub session_id: Option<i64>,
    pub reason: Option<String>,
    pub since_up: i64,
    pub due_up: Option<i64>,
    pub delayed: bool,
    pub absent_beats: u32,
    pub requirement: Option<(i64, String, bool)>,
    pub position: usize,
    pub returns: u32,
    /// Its place in the queue: priority first, then the time, then the id.
    pub place: (i64, Option<i64>, i64),
}

impl StepRow {
    pub fn has_ended(&self) -> bool {
        matches!(
            self.state.as_str(),
            "completed" | "failed" | "skipped" | "cancelled"
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    pub definition_id: i64,
    pub task_index: usize,
    pub state: String,
    pub reason: Option<String>,
    pub since_up: i64,
    pub due_up: Option<i64>,
}

impl JobRow {
    pub fn has_ended(&self) -> bool {
        !matches!(self.state.as_str(), "pending" | "running")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    pub state: String,
    pub takes: bool,
    pub deleted: bool,
    pub session_id: Option<i64>,
    pub tags: Vec<String>,
    pub seen_up: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    pub seq: i64,
    pub kind: String,
    pub phase: Option<u8>,
    pub job_id: Option<i64>,
    pub step_id: Option<i64>,
    pub worker_id: Option<i64>,
    pub attempt: Option<u32>,
}

/// The database as it was at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sight {
    pub steps: BTreeMap<i64, StepRow>,
    pub jobs: BTreeMap<i64, JobRow>,
    pub workers: BTreeMap<i64, WorkerRow>,
    /// Since when nobody takes steps of a requirement.
    without_taker_up: BTreeMap<i64, i64>,
}

impl Sight {
    fn has_taker(&self, tags: &str) -> bool {
        let mut takers = self.workers.values().filter(|worker| worker.takes);
        takers.any(|worker| {
            let mut tags = tags.split_whitespace();
            tags.all(|tag| worker.tags.iter().any(|offered| offered == tag))
        })
    }
}

pub struct Oracle {
    sql: Connection,
    settings: Settings,
    pub sight: Sight,
    events_seen: i64,
    /// Which session an attempt was given to.
    owners: BTreeMap<(i64, u32), i64>,
    /// Results that the server has said yes to.
    accepted: BTreeMap<AttemptRef, bool>,
    /// Starts that the server has said yes to.
    started: BTreeSet<AttemptRef>,
    ran: BTreeSet<AttemptRef>,
    submitted: BTreeMap<String, i64>,
    /// When each worker was last heard, and since when the server is there: in true time.
    contact: BTreeMap<i64, i64>,
    pub undisturbed: i64,
    /// What the definitions say, by their id.
    definitions: BTreeMap<i64, Value>,
    /// The same on the service clock.
    pub undisturbed_up: i64,
    /// When recovery last said that it waits for many silent workers.
    waits_since_up: Option<i64>,
    pub recoveries: u64,
    /// Of the database, when it was last read.
    version: Option<i64>,
    /// Whether anything has happened that the rules of the database speak of, since somebody asked.
    pub changed: bool,
}

impl Oracle {
    pub fn new(folder: &Path, settings: Settings) -> Oracle {
        let file = folder.join("stepward.db");
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let sql = Connection::open_with_flags(file, flags).unwrap();
        Oracle {
            sql,
            settings,
            sight: Sight::default(),
            events_seen: 0,
            owners: BTreeMap::new(),
            accepted: BTreeMap::new(),
            started: BTreeSet::new(),
            ran: BTreeSet::new(),
            submitted: BTreeMap::new(),
            contact: BTreeMap::new(),
            undisturbed: 0,
            definitions: BTreeMap::new(),
            undisturbed_up: 0,
            waits_since_up: None,
            recoveries: 0,
            version: None,
            changed: true,
        }
    }

    /// Looks again after something happened, and compares. Returns what was told meanwhile.
    pub fn look(&mut self, up: i64) -> Vec<EventRow> {
        let version: i64 = self
            .sql
            .pragma_query_value(None, "data_version", |row| row.get(0))
            .unwrap();
        if self.version.replace(version) == Some(version) {
            return Vec::new(); // nobody has written anything since
        }
        let mut sight = self.read();
        for (id, was) in &self.sight.steps {
            let Some(is) = sight.steps.get(id) else {
                panic!("I4: step {id} vanished");
            };
            assert!(
                !was.has_ended() || was == is,
                "I4: step {id} left its end: {was:?} → {is:?}"
            );
            assert!(was.attempt <= is.attempt, "I2: step {id} went back");
        }
        for (id, was) in &self.sight.jobs {
            let Some(is) = sight.jobs.get(id) else {
                panic!("I24: job {id} vanished");
            };
            assert!(
                !was.has_ended() || was == is,
                "I4: job {id} left its end: {was:?} → {is:?}"
            );
        }
        for (id, step) in &sight.steps {
            self.check_owner(&sight, *id, step);
            self.check_deadline(&sight, *id, step, up);
        }
        self.check_queue(&sight);
        for (id, job) in &sight.jobs {
            self.check_job_deadline(*id, job, up);
        }
        self.check_promises(&sight);
        self.note_takers(&mut sight, up);
        let told = self.read_events();
        let heard_only = self.sight.steps == sight.steps
            && self.sight.jobs == sight.jobs
            && self.sight.workers.len() == sight.workers.len()
            && told.is_empty();
        self.changed |= !heard_only;
        self.sight = sight;
        told
    }

    /// Adds the signs of life that the server has in memory only.
    pub fn add_contacts(&mut self, engine: &Engine) {
        let workers = engine.store.read(|tx| tx.workers()).unwrap();
        for worker in workers {
            if let Some(row) = self.sight.workers.get_mut(&worker.worker_id.0) {
                row.seen_up = row.seen_up.max(worker.seen_up.0);
            }
        }
    }

    fn check_owner(&mut self, sight: &Sight, id: i64, step: &StepRow) {
        let (Some(session_id), false) = (step.session_id, step.has_ended()) else {
            return;
        };
        let owner = *self.owners.entry((id, step.attempt)).or_insert(session_id);
        assert_eq!(
            owner, session_id,
            "I1: step {id} attempt {} has two owners",
            step.attempt
        );
        let known = self.sight.steps.get(&id);
        let just_given = known.is_none_or(|was| was.attempt < step.attempt);
        if let (true, Some((_, tags, _)), Some(worker_id)) =
            (just_given, &step.requirement, step.worker_id)
        {
            let worker = &sight.workers[&worker_id];
            let able = tags
                .split_whitespace()
                .all(|tag| worker.tags.iter().any(|offered| offered == tag));
            assert!(
                able,
                "I10: step {id} needs {tags}, worker has {:?}",
                worker.tags
            );
            assert!(worker.takes, "I11: step {id} was given to {worker:?}");
        }
    }

    /// What a definition says of a task, or of one of its steps.
    fn definition(&mut self, job: &JobRow) -> &Value {
        let sql = &self.sql;
        let body = self
            .definitions
            .entry(job.definition_id)
            .or_insert_with(|| {
                let body: String = sql
                    .query_row(
                        "SELECT body FROM definition WHERE definition_id = ?1",
                        [job.definition_id],
                        |row| row.get(0),
                    )
                    .unwrap();
                serde_json::from_str(&body).unwrap()
            });
        &body[job.task_index]
    }

    /// A step that has just moved has the deadline that its definition and the settings give it, no other.
    fn check_deadline(&mut self, sight: &Sight, id: i64, step: &StepRow, up: i64) {
        let was = self.sight.steps.get(&id).cloned();
        let was = was.as_ref();
        let moved = was.is_none_or(|was| (&was.state, was.attempt) != (&step.state, step.attempt));
        let settings = self.settings;
        if !moved {
            let kept_alive = was.is_some_and(|was| was.due_up != step.due_up);
            if kept_alive && step.state == "assigned" {
                let cap_up = step.since_up + settings.prepare_timeout_ms;
                let due_up = cap_up.min(up + settings.ack_timeout_ms);
                assert_eq!(step.due_up, Some(due_up), "R35: step {id}: {step:?}");
            }
            return;
        }
        let definition = self.definition(&sight.jobs[&step.job_id]);
        let draft = &definition["steps"][step.position];
        let timeout_ms = draft["timeout_ms"].as_i64();
        let tries_max = draft["retry"]["max_attempts"].as_u64().unwrap_or(1);
        let retried_loss = draft["on_worker_loss"] == "retry";
        if !step.has_ended() {
            assert_eq!(step.since_up, up, "step {id} has just moved: {step:?}");
        }
        let expected = match (step.state.as_str(), step.kind.as_str()) {
            ("assigned", _) => Some(up + settings.ack_timeout_ms.min(settings.prepare_timeout_ms)),
            ("running", "work") => Some(up + timeout_ms.unwrap_or(settings.step_timeout_ms)),
            ("running", "task") | ("suspended", "approval") => timeout_ms.map(|ms| up + ms),
            _ => None,
        };
        assert_eq!(
            step.due_up, expected,
            "I35: the deadline of step {id}: {step:?}"
        );
        if let Some(was) = was.filter(|was| was.state == "assigned" && step.state == "ready") {
            assert_eq!(was.place, step.place, "R41: step {id} lost its place");
            assert_eq!(step.returns, was.returns + 1, "R40: step {id}");
        }
        assert!(
            step.returns < 5,
            "R40: step {id} came back too often: {step:?}"
        );
        // By policy or by a person: a held step that is resumed may be tried again.
        let held = draft["on_worker_loss"] == "hold";
        let most = if retried_loss {
            tries_max.max(3)
        } else {
            tries_max
        };
        assert!(
            held || u64::from(step.tries) <= most,
            "R13: step {id} is tried too often: {step:?}"
        );
    }

    fn check_job_deadline(&mut self, id: i64, job: &JobRow, up: i64) {
        let was = self.sight.jobs.get(&id);
        if job.state != "running" || was.is_some_and(|was| was.state == "running") {
            return;
        }
        let default_ms = self.settings.job_timeout_ms;
        let timeout_ms = self.definition(job)["timeout_ms"].as_i64();
        let due_up = up + timeout_ms.unwrap_or(default_ms);
        assert_eq!(
            job.due_up,
            Some(due_up),
            "I36: the deadline of job {id}: {job:?}"
        );
    }

    /// Whoever was just given something was given the first of what it could take.
    fn check_queue(&self, sight: &Sight) {
        let given = sight.steps.iter().filter(|(id, step)| {
            let was = self.sight.steps.get(id);
            step.state == "assigned" && was.is_none_or(|was| was.attempt < step.attempt)
        });
        for (id, step) in given {
            let worker = &sight.workers[&step.worker_id.unwrap()];
            let passed_over = sight.steps.iter().find(|(_, other)| {
                // One that came back may be kept from this worker.
                let claimable = other.state == "ready" && !other.delayed && other.returns == 0;
                let fits = other.requirement.as_ref().is_some_and(|(_, tags, _)| {
                    let mut tags = tags.split_whitespace();
                    tags.all(|tag| worker.tags.iter().any(|offered| offered == tag))
                });
                claimable && fits && other.place < step.place
            });
            assert!(
                passed_over.is_none(),
                "I13: step {id} was given out before {passed_over:?}: {step:?}"
            );
        }
    }

    fn check_promises(&self, sight: &Sight) {
        for (attempt, completed) in &self.accepted {
            let step = &sight.steps[&attempt.step_id.0];
            if step.attempt == attempt.attempt && *completed {
                assert_eq!(step.state, "completed", "I26: {attempt} was accepted");
            }
            if step.attempt == attempt.attempt && !*completed {
                let gone_on = ["failed", "ready", "cancelled"].contains(&step.state.as_str());
                assert!(gone_on, "I26: {attempt} was accepted, it is {}", step.state);
            }
            assert!(step.attempt >= attempt.attempt, "I26: {attempt} was undone");
        }
        for (key, job_id) in &self.submitted {
            assert!(sight.jobs.contains_key(job_id), "I24: {key} is lost");
        }
    }

    fn note_takers(&self, sight: &mut Sight, up: i64) {
        let needed = |step: &StepRow| step.requirement.clone();
        for (id, tags, _) in sight
            .steps
            .values()
            .filter_map(needed)
            .collect::<BTreeSet<_>>()
        {
            if !sight.has_taker(&tags) {
                let known_up = self.sight.without_taker_up.get(&id).copied();
                sight.without_taker_up.insert(id, known_up.unwrap_or(up));
            }
        }
    }

    pub fn submitted(&mut self, key: &str, job_id: i64) {
        let first = *self.submitted.entry(key.to_string()).or_insert(job_id);
        assert_eq!(first, job_id, "I27: key {key} stands for two jobs");
        let same = self.submitted.values().filter(|id| **id == job_id);
        assert_eq!(same.count(), 1, "I27: two keys stand for job {job_id}");
    }

    /// A request of this session was carried out.
    pub fn heard(&mut self, session_key: &str, mono: i64) {
        if let Some((session_id, worker_id)) = self.session(session_key) {
            let worker = self.sight.workers.get(&worker_id);
            if worker.is_some_and(|worker| worker.session_id == Some(session_id)) {
                self.contact.insert(worker_id, mono);
            }
        }
    }

    fn session(&self, session_key: &str) -> Option<(i64, i64)> {
        let sql = "SELECT session_id, worker_id FROM session WHERE session_key = ?1";
        let mut statement = self.sql.prepare_cached(sql).unwrap();
        let mut rows = statement.query([session_key]).unwrap();
        let row = rows.next().unwrap()?;
        Some((row.get(0).unwrap(), row.get(1).unwrap()))
    }

    /// Whether the server's answer to one item of a report was right, by what the database held before it.
    pub fn judged(
        &mut self,
        before: &Sight,
        session_key: &str,
        attempt: AttemptRef,
        news: &News,
        verdict: &Verdict,
    ) {
        let session_id = self.session(session_key).map(|(session_id, _)| session_id);
        let step = before.steps.get(&attempt.step_id.0);
        let held = step.filter(|step| {
            step.attempt == attempt.attempt
                && step.session_id.is_some()
                && step.session_id == session_id
        });
        let state = held.map_or("", |step| step.state.as_str());
        let rightful = match news {
            News::Started | News::KeepAlive => matches!(state, "assigned" | "running"),
            News::Declined { .. } => state == "assigned",
            News::Finished(_) => state == "running",
        };
        assert_eq!(
            *verdict == Verdict::Accepted,
            rightful,
            "I3: {news:?} of {attempt} by {session_key} was answered {verdict:?}, the step was {step:?}"
        );
        if !rightful {
            return;
        }
        match news {
            News::Started => {
                self.started.insert(attempt);
            }
            News::Finished(finished) => {
                // One with an output that is none fails its step.
                let completed = matches!(finished, Finished::Completed { output: None, .. });
                let again = self.accepted.insert(attempt, completed);
                assert_eq!(again, None, "I26: {attempt} ended twice");
            }
            News::KeepAlive | News::Declined { .. } => {}
        }
    }

    /// A worker begins to run something of a user's.
    pub fn runs(&mut self, attempt: AttemptRef) {
        assert!(
            self.started.contains(&attempt),
            "R36: {attempt} runs without the server's yes"
        );
        assert!(self.ran.insert(attempt), "R36: {attempt} runs twice");
    }

    /// One sweep, held against what was there before it.
    pub fn swept(
        &mut self,
        before: &Sight,
        done: &[Recovery],
        told: &[EventRow],
        forecast: &[Foreseen],
        now: Now,
        mono: i64,
    ) {
        let told: Vec<&EventRow> = told.iter().filter(|event| event.phase.is_some()).collect();
        assert_eq!(
            told.len(),
            done.len(),
            "I15: recoveries and their events differ: {done:?} {told:?}"
        );
        for (done, told) in done.iter().zip(&told) {
            assert_eq!(
                told.phase,
                Some(done.phase.number()),
                "I15: {done:?} {told:?}"
            );
            let same = told.step_id == done.step_id.map(|id| id.0)
                && told.job_id == done.job_id.map(|id| id.0)
                && (told.worker_id == done.worker_id.map(|id| id.0) || done.step_id.is_some());
            assert!(same, "I15: {done:?} is told as {told:?}");
            let foreseen = forecast
                .iter()
                .any(|foreseen| foreseen.recovery == *done && foreseen.at_up <= now.up);
            assert!(
                foreseen,
                "forecast: {done:?} was not foreseen in {forecast:?}"
            );
        }
        let marked = done.iter().filter(|done| done.deed == Deed::MarkInactive);
        let marked: Vec<i64> = marked.map(|done| done.worker_id.unwrap().0).collect();
        for worker_id in &marked {
            // One whose only words were lost in a crash was never heard.
            let contact = self.contact.get(worker_id).copied().unwrap_or(0);
            let timeout_ms = self.settings.heartbeat_timeout_ms;
            assert!(
                mono - contact >= timeout_ms,
                "I18: worker {worker_id} was heard {} ms ago",
                mono - contact
            );
            assert!(
                mono - self.undisturbed >= timeout_ms,
                "I19: worker {worker_id} is given up {} ms after an absence of the server",
                mono - self.undisturbed
            );
        }
        if !marked.is_empty() {
            self.check_mass_silence(before, now.up.0);
        }
        for done in done {
            self.check_not_early(before, done, now.up.0);
            match done.reason.map(|reason| reason.as_str()) {
                Some("unmatched") => self.check_unmatched(before, done.step_id.unwrap(), now.up.0),
                Some("worker_lost") if done.deed == Deed::Fail => {
                    let worker = &before.workers[&done.worker_id.unwrap().0];
                    let lost =
                        worker.state == "inactive" || marked.contains(&done.worker_id.unwrap().0);
                    assert!(lost, "I39: {done:?}, the worker was {worker:?}");
                }
                _ => {}
            }
            if done.deed == Deed::WaitLonger {
                self.waits_since_up = Some(now.up.0);
            }
        }
        self.recoveries += done.len() as u64;
    }

    /// A deadline has passed, and nobody is held to one that ran out while the server was absent.
    fn check_not_early(&self, before: &Sight, done: &Recovery, up: i64) {
        let settings = &self.settings;
        let (since_up, due_up, grace_ms) = match (done.phase, done.deed) {
            (Phase::OverdueSteps, _) => {
                let step = &before.steps[&done.step_id.unwrap().0];
                (step.since_up, step.due_up, settings.heartbeat_interval_ms)
            }
            (Phase::OverdueJobs, _) => {
                let job = &before.jobs[&done.job_id.unwrap().0];
                (job.since_up, job.due_up, settings.heartbeat_interval_ms)
            }
            (Phase::StaleWorkers, Deed::Requeue) => {
                let step = &before.steps[&done.step_id.unwrap().0];
                let worker = &before.workers[&done.worker_id.unwrap().0];
                let silent_up =
                    worker.seen_up.max(self.undisturbed_up) + settings.heartbeat_timeout_ms;
                if worker.state != "active" || silent_up <= up {
                    return;
                }
                (step.since_up, step.due_up, settings.ack_timeout_ms)
            }
            _ => return,
        };
        assert!(
            due_up.is_some_and(|due_up| due_up <= up),
            "I35: {done:?} is early"
        );
        let in_grace = since_up < self.undisturbed_up && up < self.undisturbed_up + grace_ms;
        assert!(
            !in_grace,
            "I19: {done:?} right after an absence of the server"
        );
    }

    fn check_mass_silence(&self, before: &Sight, up: i64) {
        let settings = &self.settings;
        let active = before.workers.values().filter(|w| w.state == "active");
        let seen: Vec<i64> = active.map(|worker| worker.seen_up).collect();
        let first_up = seen.iter().min().copied().unwrap_or(up);
        let together_up = first_up.max(self.undisturbed_up) + settings.heartbeat_interval_ms;
        let silent = seen.iter().filter(|seen| **seen <= together_up).count();
        let all = seen.len();
        let waited = self
            .waits_since_up
            .is_some_and(|since_up| up - since_up >= settings.heartbeat_timeout_ms);
        assert!(
            silent < 3 || silent * 2 <= all || waited,
            "I20: {silent} of {all} workers are silent and nobody waited"
        );
    }

    fn check_unmatched(&self, before: &Sight, step_id: StepId, up: i64) {
        let step = &before.steps[&step_id.0];
        assert_ne!(step.kind, "task", "I22");
        assert_ne!(step.kind, "approval", "I22");
        let (id, tags, may_wait) = step.requirement.as_ref().unwrap();
        assert!(!may_wait, "I22: step {step_id} may wait");
        assert!(
            !before.has_taker(tags),
            "I22: somebody could take step {step_id}"
        );
        let since_up = step.since_up.max(self.undisturbed_up);
        let since_up = since_up.max(before.without_taker_up.get(id).copied().unwrap_or(up));
        assert!(
            up - since_up >= self.settings.unmatched_step_timeout_ms,
            "I22: step {step_id} was given up after {} ms",
            up - since_up
        );
    }

    /// Nothing is overdue by more than this. A clean sweep leaves nothing overdue at all.
    pub fn nothing_is_overdue(&self, now: Now, slack_ms: i64) {
        let settings = &self.settings;
        let up = now.up.0 - slack_ms;
        let is_over = |since_up: i64, due_up: Option<i64>, grace_ms: i64| {
            let in_grace = since_up < self.undisturbed_up && up < self.undisturbed_up + grace_ms;
            due_up.is_some_and(|due_up| due_up <= up) && !in_grace
        };
        for (id, step) in &self.sight.steps {
            let worker = step.worker_id.and_then(|id| self.sight.workers.get(&id));
            let held = step.kind == "work" && matches!(step.state.as_str(), "assigned" | "running");
            if held && slack_ms == 0 {
                let present = worker.is_some_and(|worker| {
                    worker.state == "active" && worker.session_id == step.session_id
                });
                assert!(present, "I39: step {id} is left with {worker:?}: {step:?}");
            }
            match step.state.as_str() {
                "assigned" => assert!(
                    !is_over(step.since_up, step.due_up, settings.ack_timeout_ms),
                    "I34: step {id} is not acknowledged: {step:?}"
                ),
                "running" | "suspended" => {
                    assert!(
                        !is_over(step.since_up, step.due_up, settings.heartbeat_interval_ms),
                        "I35: step {id} runs too long: {step:?}"
                    );
                    let forgotten = step.state == "running"
                        && step.absent_beats >= 2
                        && step.since_up + settings.report_grace_ms <= up;
                    assert!(
                        !forgotten || slack_ms > 0,
                        "R23: step {id} was forgotten: {step:?}"
                    );
                }
                "ready" if !step.delayed => self.check_taken(*id, step, up),
                _ => {}
            }
        }
        for (id, job) in &self.sight.jobs {
            assert!(
                !is_over(job.since_up, job.due_up, settings.heartbeat_interval_ms),
                "I36: job {id} takes too long: {job:?}"
            );
        }
        let waits = self
            .waits_since_up
            .is_some_and(|since_up| up - since_up < settings.heartbeat_timeout_ms);
        for (id, worker) in &self.sight.workers {
            let heard_up = worker.seen_up.max(self.undisturbed_up);
            let silent = heard_up + settings.heartbeat_timeout_ms <= up;
            assert!(
                worker.state != "active" || !silent || waits,
                "I39: worker {id} is silent: {worker:?}"
            );
        }
    }

    fn check_taken(&self, id: i64, step: &StepRow, up: i64) {
        let Some((requirement_id, _, false)) = &step.requirement else {
            return;
        };
        if let Some(without_up) = self.sight.without_taker_up.get(requirement_id) {
            let since_up = (*without_up).max(step.since_up).max(self.undisturbed_up);
            assert!(
                up - since_up < self.settings.unmatched_step_timeout_ms,
                "I37: nobody takes step {id} since {since_up}: {step:?}"
            );
        }
    }

    /// What workers run, by the database, and in which session.
    pub fn running(&self) -> Vec<(AttemptRef, String)> {
        let sql = "SELECT s.step_id, s.attempt, n.session_key
                     FROM step AS s JOIN session AS n ON n.session_id = s.session_id
                    WHERE s.state = 'running' AND s.kind = 'work'
                    ORDER BY s.step_id";
        let mut statement = self.sql.prepare_cached(sql).unwrap();
        let rows = statement.query_map([], |row| {
            let attempt = AttemptRef {
                step_id: StepId(row.get(0)?),
                attempt: row.get(1)?,
            };
            Ok((attempt, row.get(2)?))
        });
        rows.unwrap().collect::<Result<_, _>>().unwrap()
    }

    pub fn unended(&self) -> Vec<i64> {
        let jobs = self.sight.jobs.iter().filter(|(_, job)| !job.has_ended());
        jobs.map(|(id, _)| *id).collect()
    }

    pub fn open_steps(&self) -> Vec<(&i64, &StepRow)> {
        let steps = self.sight.steps.iter();
        steps.filter(|(_, step)| !step.has_ended()).collect()
    }

    /// Every rule of the database itself.
    pub fn check_rules(&self, engine: &Engine) {
        let breaches = engine.rule_breaches().unwrap();
        assert!(breaches.is_empty(), "rules: {breaches:#?}");
    }

    fn read(&self) -> Sight {
        let mut sight = Sight::default();
        let mut statement = self
            .sql
            .prepare_cached(
                "SELECT s.step_id, s.job_id, s.kind, s.state, s.attempt, s.tries, s.worker_id, s.session_id, s.reason,
                        s.since_up, s.due_up, s.not_before_up IS NOT NULL, s.absent_beats, s.requirement_id, r.tags,
                        r.unmatched = 'wait', s.position, s.returns, s.priority, s.queued_up
                   FROM step AS s LEFT JOIN requirement AS r ON r.requirement_id = s.requirement_id",
            )
            .unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let requirement: Option<i64> = row.get(13).unwrap();
            let step = StepRow {
                job_id: row.get(1).unwrap(),
                kind: row.get(2).unwrap(),
                state: row.get(3).unwrap(),
                attempt: row.get(4).unwrap(),
                tries: row.get(5).unwrap(),
                worker_id: row.get(6).unwrap(),
                session_id: row.get(7).unwrap(),
                reason: row.get(8).unwrap(),
                since_up: row.get(9).unwrap(),
                due_up: row.get(10).unwrap(),
                delayed: row.get(11).unwrap(),
                absent_beats: row.get(12).unwrap(),
                requirement: requirement.map(|id| (id, row.get(14).unwrap(), row.get(15).unwrap())),
                position: row.get::<_, u32>(16).unwrap() as usize,
                returns: row.get(17).unwrap(),
                place: (
                    -row.get::<_, i64>(18).unwrap(),
                    row.get(19).unwrap(),
                    row.get(0).unwrap(),
                ),
            };
            sight.steps.insert(row.get(0).unwrap(), step);
        }
        let mut statement = self
            .sql
            .prepare_cached(
                "SELECT job_id, state, reason, since_up, due_up, definition_id, task_index FROM job",
            )
            .unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let job = JobRow {
                state: row.get(1).unwrap(),
                reason: row.get(2).unwrap(),
                since_up: row.get(3).unwrap(),
                due_up: row.get(4).unwrap(),
                definition_id: row.get(5).unwrap(),
                task_index: row.get::<_, u32>(6).unwrap() as usize,
            };
            sight.jobs.insert(row.get(0).unwrap(), job);
        }
        let mut statement = self
            .sql
            .prepare_cached(
                "SELECT worker_id, state, draining, paused, deleted_at IS NOT NULL, session_id, tags, seen_up FROM worker",
            )
            .unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let state: String = row.get(1).unwrap();
            let (draining, paused): (bool, bool) = (row.get(2).unwrap(), row.get(3).unwrap());
            let deleted: bool = row.get(4).unwrap();
            let tags: String = row.get(6).unwrap();
            let worker = WorkerRow {
                takes: state == "active" && !draining && !paused && !deleted,
                state,
                deleted,
                session_id: row.get(5).unwrap(),
                tags: tags.split_whitespace().map(str::to_string).collect(),
                seen_up: row.get(7).unwrap(),
            };
            sight.workers.insert(row.get(0).unwrap(), worker);
        }
        sight
    }

    fn read_events(&mut self) -> Vec<EventRow> {
        let mut statement = self
            .sql
            .prepare_cached(
                "SELECT seq, kind, phase, job_id, step_id, worker_id, attempt FROM event WHERE seq > ?1 ORDER BY seq",
            )
            .unwrap();
        let rows = statement.query_map([self.events_seen], |row| {
            Ok(EventRow {
                seq: row.get(0)?,
                kind: row.get(1)?,
                phase: row.get(2)?,
                job_id: row.get(3)?,
                step_id: row.get(4)?,
                worker_id: row.get(5)?,
                attempt: row.get(6)?,
            })
        });
        let events: Vec<EventRow> = rows.unwrap().collect::<Result<_, _>>().unwrap();
        if let Some(last) = events.last() {
            self.events_seen = last.seq;
        }
        events
    }
}
