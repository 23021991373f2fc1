//! What is counted, from 0 when the process began: instruments that many threads move at once, and the facts that move them.
//!
//! A fact comes out of a transaction and is counted once that is committed, and not before: so nothing is counted that did not
//! happen, nothing twice that was tried twice. What there is at a moment is not kept here but read when somebody asks.
//!
//! Our own instruments: a counter is an atomic number and the format is lines of text, so a crate would bring a second way to say
//! both, and no check of either.

pub mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::event::EventKind;
use crate::domain::job::{JobState, Source};
use crate::domain::reason::Reason;
use crate::domain::recovery::Phase;
use crate::domain::schedule::FireOutcome;
use crate::domain::step::StepState;
use crate::domain::words;
use text::{Kind, Labels, Page};

words! {
    /// What became of the assignment of a step to a worker.
    pub enum Assignment {
        /// It was made.
        Assigned = "assigned",
        Started = "started",
        /// From here on it came back unstarted.
        Declined = "declined",
        WorkerLost = "worker_lost",
        WorkerRestarted = "worker_restarted",
        WorkerDeleted = "worker_deleted",
        AckTimeout = "ack_timeout",
        PrepareTimeout = "prepare_timeout",
        RequeuedByUser = "requeued_by_user",
        /// Once too often: its step has failed.
        Exhausted = "exhausted",
    }
}

words! {
    /// Where a panic was caught that cost one item and not the process. See `essential.rs`.
    pub enum PanicPlace {
        /// A call of the store, whoever made it: it was rolled back alone.
        Transaction = "transaction",
        Request = "request",
        Sweeper = "sweeper",
        Scheduler = "scheduler",
        Reaper = "reaper",
        Outbox = "outbox",
        /// Long polls of workers, and what they are answered.
        Polls = "polls",
        EventStreams = "event_streams",
        Workflows = "workflows",
        Backup = "backup",
        Audit = "audit",
    }
}

words! {
    /// What kind of error the store gave to a caller.
    pub enum StoreErrorKind {
        /// The writer was busy for too long.
        Busy = "busy",
        /// The disk is full.
        Full = "full",
        /// Nobody knows whether the change was written.
        OutcomeUnknown = "outcome_unknown",
        /// SQLite gave the transaction up.
        Lost = "lost",
        Stopped = "stopped",
        /// A bug was met and its change undone.
        Panicked = "panicked",
        /// A row holds a value that does not belong there.
        Unreadable = "unreadable",
        /// Any other error of SQLite.
        Sqlite = "sqlite",
        /// No connection to read with was free.
        Pool = "pool",
    }
}

/// What a transaction has done, as far as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    JobCreated(Source),
    JobFinished(JobState, Option<Reason>),
    StepsFinished(StepState, Option<Reason>, u32),
    Assignment(Assignment),
    /// Its first attempt started, so long after it became ready.
    StepWaited {
        ms: i64,
    },
    /// An attempt has ended that a worker had started.
    AttemptRan {
        ms: i64,
    },
    Fired(FireOutcome),
    /// An event was recorded.
    Recorded {
        kind: EventKind,
        phase: Option<u8>,
        reason: Option<Reason>,
    },
}

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn counters(count: usize) -> Box<[Counter]> {
    (0..count).map(|_| Counter::default()).collect()
}

/// How often something was how large.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds: what is above the last.
    buckets: Box<[Counter]>,
    /// Of a sum of seconds, microseconds.
    sum_millionths: Counter,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Histogram {
        Histogram {
            bounds,
            buckets: counters(bounds.len() + 1),
            sum_millionths: Counter::default(),
        }
    }

    pub fn observe(&self, value: f64) {
        let value = value.max(0.0);
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].add(1);
        self.sum_millionths.add((value * 1e6).round() as u64);
    }

    fn observe_ms(&self, ms: i64) {
        self.observe(ms as f64 / 1e3);
    }

    fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::count).sum()
    }

    /// Each bucket was read once, so that the last and the count agree whatever happens meanwhile.
    pub fn write(&self, page: &mut Page, labels: Labels) {
        let mut count = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            count += bucket.count();
            let bound = self.bounds.get(index);
            let bound = bound.map_or("+Inf".to_string(), f64::to_string);
            let labels = [labels, &[("le", bound.as_str())]].concat();
            page.named("_bucket", &labels, count);
        }
        page.named("_sum", labels, self.sum_millionths.count() as f64 / 1e6);
        page.named("_count", labels, count);
    }
}

/// From a cache's answer to a disk that stalls.
const WRITE_SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5];
const BATCH_CALLS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
const SWEEP_SECONDS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];
/// Around the default heartbeat interval (30 s) and timeout (120 s).
const HEARTBEAT_SECONDS: &[f64] = &[1.0, 5.0, 15.0, 30.0, 45.0, 60.0, 90.0, 120.0, 300.0];
/// From at once to longer than `unmatched_step_timeout_secs`, and to a queue of hours.
const WAIT_SECONDS: &[f64] = &[0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0];
/// From a script of one line to a build of a day.
const RUN_SECONDS: &[f64] = &[
    0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0, 86400.0,
];

/// What ends what. All reasons: which of them fits which state is decided elsewhere.
const REASONS: usize = Reason::ALL.len() + 1;

/// What recovery does that ends nothing has no reason: then it is told by what happened.
const DEEDS: [EventKind; 3] = [
    EventKind::WorkerInactive,
    EventKind::WorkersSilent,
    EventKind::StepRequeued,
];

/// What each phase may do, so that it is there before it happens.
#[rustfmt::skip]
const ACTIONS: [(Phase, &[Reason], &[EventKind]); 4] = [
    (Phase::StaleWorkers,   &[Reason::WorkerLost, Reason::WorkerRestarted, Reason::WorkerDeleted, Reason::WorkerForgot,
                              Reason::AssignmentExhausted],                &DEEDS),
    (Phase::OverdueSteps,   &[Reason::StepTimeout, Reason::ApprovalTimeout], &[]),
    (Phase::OverdueJobs,    &[Reason::JobTimeout, Reason::QueueTimeout],     &[]),
    (Phase::UnmatchedSteps, &[Reason::Unmatched],                            &[]),
];
const ACTION_COLUMNS: usize = Reason::ALL.len() + EventKind::ALL.len();

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    jobs_created: Box<[Counter]>,
    jobs_finished: Box<[Counter]>,
    steps_finished: Box<[Counter]>,
    assignments: Box<[Counter]>,
    fires: Box<[Counter]>,
    fenced_reports: Counter,
    pub panics: Arc<PanicCounts>,
    /// Moved by whoever makes them: only the first of several in a row is an event.
    pub backup_failures: Counter,
    recovery_actions: Box<[Counter]>,
    step_wait_seconds: Histogram,
    step_duration_seconds: Histogram,
    pub recovery_sweep_seconds: Histogram,
    pub store_write_seconds: Histogram,
    pub store_batch_size: Histogram,
    store_errors: Box<[Counter]>,
    heartbeat_age_seconds: Histogram,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            jobs_created: counters(Source::ALL.len()),
            jobs_finished: counters(JobState::ALL.len() * REASONS),
            steps_finished: counters(StepState::ALL.len() * REASONS),
            assignments: counters(Assignment::ALL.len()),
            fires: counters(FireOutcome::ALL.len()),
            fenced_reports: Counter::default(),
            panics: Arc::default(),
            backup_failures: Counter::default(),
            recovery_actions: counters(Phase::ALL.len() * ACTION_COLUMNS),
            step_wait_seconds: Histogram::new(WAIT_SECONDS),
            step_duration_seconds: Histogram::new(RUN_SECONDS),
            recovery_sweep_seconds: Histogram::new(SWEEP_SECONDS),
            store_write_seconds: Histogram::new(WRITE_SECONDS),
            store_batch_size: Histogram::new(BATCH_CALLS),
            store_errors: counters(StoreErrorKind::ALL.len()),
            heartbeat_age_seconds: Histogram::new(HEARTBEAT_SECONDS),
        }
    }
}

/// Panics that were caught, by place. Shared with threads that must not keep the store open.
#[derive(Debug)]
pub struct PanicCounts(Box<[Counter]>);

impl Default for PanicCounts {
    fn default() -> PanicCounts {
        PanicCounts(counters(PanicPlace::ALL.len()))
    }
}

impl PanicCounts {
    pub fn add(&self, place: PanicPlace) {
        self.0[place as usize].add(1);
    }

    pub fn count(&self, place: PanicPlace) -> u64 {
        self.0[place as usize].count()
    }
}

/// Where a pair is counted. No reason stands before all others.
fn ended(state: usize, reason: Option<Reason>) -> usize {
    state * REASONS + reason.map_or(0, |reason| 1 + reason as usize)
}

fn action(phase: usize, column: usize) -> usize {
    phase * ACTION_COLUMNS + column
}

fn deed_column(kind: EventKind) -> usize {
    Reason::ALL.len() + kind as usize
}

impl Metrics {
    /// What has just been committed.
    pub fn count(&self, facts: &[Fact]) {
        for fact in facts {
            self.count_one(*fact);
        }
    }

    /// The store gave an error to a caller.
    pub fn count_store_error(&self, kind: StoreErrorKind) {
        self.store_errors[kind as usize].add(1);
    }

    /// A heartbeat came so long after the worker was last heard.
    pub fn observe_heartbeat(&self, age_ms: i64) {
        self.heartbeat_age_seconds.observe_ms(age_ms);
    }

    fn count_one(&self, fact: Fact) {
        match fact {
            Fact::JobCreated(source) => self.jobs_created[source as usize].add(1),
            Fact::JobFinished(state, reason) => {
                self.jobs_finished[ended(state as usize, reason)].add(1);
            }
            Fact::StepsFinished(state, reason, count) => {
                self.steps_finished[ended(state as usize, reason)].add(count.into());
            }
            Fact::Assignment(assignment) => self.assignments[assignment as usize].add(1),
            Fact::StepWaited { ms } => self.step_wait_seconds.observe_ms(ms),
            Fact::AttemptRan { ms } => self.step_duration_seconds.observe_ms(ms),
            Fact::Fired(outcome) => self.fires[outcome as usize].add(1),
            Fact::Recorded {
                kind,
                phase,
                reason,
            } => {
                if kind == EventKind::ReportFenced {
                    self.fenced_reports.add(1);
                }
                if let Some(phase) = phase {
                    let column = reason.map_or(deed_column(kind), |reason| reason as usize);
                    self.recovery_actions[action(usize::from(phase) - 1, column)].add(1);
                }
            }
        }
    }

    pub fn write(&self, page: &mut Page) {
        let help = "Jobs that were made, by what made them. Child jobs count too.";
        page.family("stepward_jobs_created_total", Kind::Counter, help);
        for (source, counter) in Source::ALL.iter().zip(&self.jobs_created) {
            page.sample(&[("source", source.as_str())], counter.count());
        }
        let help = "Jobs that ended, by how and why. A job that completed has the reason none.";
        page.family("stepward_jobs_finished_total", Kind::Counter, help);
        for &state in JobState::ALL.iter().filter(|state| state.is_terminal()) {
            let is_good = state == JobState::Completed;
            self.write_ended(
                page,
                &self.jobs_finished,
                state as usize,
                state.as_str(),
                is_good,
            );
        }
        let help = "Steps that ended, by how and why. A step that completed has the reason none; one that a retried job takes over does not end again.";
        page.family("stepward_steps_finished_total", Kind::Counter, help);
        for &state in StepState::ALL.iter().filter(|state| state.is_terminal()) {
            let is_good = state == StepState::Completed;
            self.write_ended(
                page,
                &self.steps_finished,
                state as usize,
                state.as_str(),
                is_good,
            );
        }
        let help = "Assignments of steps to workers: that they were made, started, or why they came back unstarted.";
        page.family("stepward_assignments_total", Kind::Counter, help);
        for (assignment, counter) in Assignment::ALL.iter().zip(&self.assignments) {
            page.sample(&[("result", assignment.as_str())], counter.count());
        }
        let help =
            "Attempts whose report was turned away, because the step had gone on without them.";
        let fenced = self.fenced_reports.count();
        page.alone("stepward_fenced_reports_total", Kind::Counter, help, fenced);
        let help = "Backups into backup.dir that could not be made, each try by itself.";
        let failures = self.backup_failures.count();
        page.alone(
            "stepward_backup_failures_total",
            Kind::Counter,
            help,
            failures,
        );
        let help = "Bugs (panics) of the server that cost one request, one transaction or one other item and not the process, by where they were met.";
        page.family("stepward_panics_total", Kind::Counter, help);
        for (place, counter) in PanicPlace::ALL.iter().zip(&self.panics.0) {
            page.sample(&[("place", place.as_str())], counter.count());
        }
        self.write_recovery(page);
        let help = "Calls of the store that ended with an error, by kind of error.";
        page.family("stepward_store_errors_total", Kind::Counter, help);
        for (kind, counter) in StoreErrorKind::ALL.iter().zip(&self.store_errors) {
            page.sample(&[("kind", kind.as_str())], counter.count());
        }
        let help = "Due times of schedules, by what became of each. Many that were missed at once count once; one that was queued counts again when it is settled.";
        page.family("stepward_schedule_fires_total", Kind::Counter, help);
        for (outcome, counter) in FireOutcome::ALL.iter().zip(&self.fires) {
            page.sample(&[("result", outcome.as_str())], counter.count());
        }
        let histograms = [
            (
                "stepward_step_wait_seconds",
                "Time from when a step became ready until a worker started it for the first time.",
                &self.step_wait_seconds,
            ),
            (
                "stepward_step_duration_seconds",
                "Time that attempts ran on workers until they completed, failed or were given up. Cancelled ones are not in it.",
                &self.step_duration_seconds,
            ),
            (
                "stepward_store_write_seconds",
                "Time from the begin of a transaction until its commit was on disk.",
                &self.store_write_seconds,
            ),
            (
                "stepward_store_batch_size",
                "Calls that shared one transaction.",
                &self.store_batch_size,
            ),
            (
                "stepward_heartbeat_age_seconds",
                "Time from when a worker was last heard until its next heartbeat arrived. Polls, reports and log uploads are heard too.",
                &self.heartbeat_age_seconds,
            ),
        ];
        for (name, help, histogram) in histograms {
            page.family(name, Kind::Histogram, help);
            histogram.write(page, &[]);
        }
    }

    fn write_ended(
        &self,
        page: &mut Page,
        counters: &[Counter],
        state: usize,
        status: &str,
        is_good: bool,
    ) {
        let reasons = Reason::ALL.iter().filter(|_| !is_good).copied().map(Some);
        let none = is_good.then_some(None);
        for reason in none.into_iter().chain(reasons) {
            let word = reason.map_or("none", Reason::as_str);
            let count = counters[ended(state, reason)].count();
            page.sample(&[("status", status), ("reason", word)], count);
        }
    }

    fn write_recovery(&self, page: &mut Page) {
        let help = "What recovery did, by phase and why. What ended nothing is told by what happened: worker_inactive, workers_silent, step_requeued.";
        page.family("stepward_recovery_actions_total", Kind::Counter, help);
        for (phase, reasons, deeds) in ACTIONS {
            let number = phase.number().to_string();
            let reasons = reasons
                .iter()
                .map(|reason| (*reason as usize, reason.as_str()));
            let deeds = deeds.iter().map(|kind| (deed_column(*kind), kind.as_str()));
            for (column, word) in reasons.chain(deeds) {
                let count = self.recovery_actions[action(phase as usize, column)].count();
                page.sample(&[("phase", &number), ("reason", word)], count);
            }
        }
        let help = "Sweeps of recovery that went through all its phases.";
        let name = "stepward_recovery_sweeps_total";
        page.alone(
            name,
            Kind::Counter,
            help,
            self.recovery_sweep_seconds.count(),
        );
        let help = "Time that a sweep of recovery took.";
        page.family("stepward_recovery_sweep_seconds", Kind::Histogram, help);
        self.recovery_sweep_seconds.write(page, &[]);
    }
}
