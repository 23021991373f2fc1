//! What can be done. One verb per file, one transaction per verb, always in the order
//! load → check → move → record → cascade → settle → outbox.
//!
//! | verb | file | who |
//! |---|---|---|
//! | submit | `submit.rs` | people, schedules, webhooks |
//! | open_session, heartbeat, poll | `session.rs` `heartbeat.rs` `poll.rs`, polls that wait: `wait.rs` | workers |
//! | report: start, keep_alive, decline, finish | `report.rs` `start.rs` `decline.rs` `finish.rs` | workers |
//! | log_owner | `log.rs` | workers |
//! | cancel, retry, approve, reject | `cancel.rs` `retry.rs` `approve.rs` | people |
//! | requeue_step, fail_step | `requeue.rs` `force_fail.rs` | admins |
//! | drain, pause, resume, delete_worker | `drain.rs` | people, workers |
//! | keep | `keep.rs` | people |
//! | forget_worker | `drain.rs` | time, through the reaper |
//! | tell | `tell.rs` | the server |
//! | begin_epoch | `lineage.rs` | the server, at its start |
//! | set_schedules, pause_schedule, resume_schedule, fire_schedule | `schedule.rs` `fire.rs` | the loader, people |
//! | fire_due, follow_clock | `fire.rs` `follow_clock.rs` | time, through the scheduler |
//! | release_due, recover | `release.rs` `recover.rs` | time, through the sweeper |
//! | make_token, revoke_token, enrol, note_token_use, log_in, log_out | `tokens.rs` | people, workers |
//! | set_targets, next_message, tell_delivery, redeliver | `outbox.rs` | time, through the outbox; people |
//! | note_refusals, note_known, audit, audit_head | `audit.rs` | the server, admins |
//! | select, select_worker | `select.rs` | everyone, read-only |
//! | why, why_step, why_job, why_worker, why_schedule | `why.rs` `why_ended.rs` `why_job.rs` `why_worker.rs` `why_schedule.rs` | everyone, read-only |
//! | job, output, queue, lists | `queries.rs` `queue.rs` `views.rs` | everyone, read-only |
//!
//! What follows from a verb is in `cascade.rs` (dependents, loops), `create.rs` (jobs, instances), `group.rs` (concurrency)
//! `settle.rs` (the end of a job, its parent) and `hooks.rs`; what templates give is in `scope.rs` (kept) and `render.rs` (for
//! workers), what a job is given in `inputs.rs`; what is told about it in `facts.rs` and `lacks.rs`; what goes before it in `check.rs` and
//! `once.rs`; what the server knows of
//! its own absences in `watch.rs`. Deliberately not here: SQL, HTTP, processes, the time.

mod approve;
mod audit;
mod cancel;
mod cascade;
mod census;
mod check;
mod create;
mod decline;
mod drain;
mod facts;
mod finish;
mod fire;
mod follow_clock;
mod force_fail;
mod group;
mod heartbeat;
mod hooks;
mod inputs;
mod keep;
mod lacks;
mod lineage;
mod log;
mod once;
mod outbox;
mod poll;
mod queries;
mod queue;
mod recover;
mod release;
mod render;
mod report;
mod requeue;
mod retry;
mod schedule;
mod scope;
mod sealed;
mod select;
mod session;
mod settle;
mod start;
mod submit;
mod tell;
mod tokens;
mod views;
mod wait;
mod watch;
mod why;
mod why_ended;
mod why_job;
mod why_schedule;
mod why_worker;

use std::sync::Arc;

use crate::domain::audit::Actor;
use crate::domain::check::Problems;
use crate::domain::idempotency::KeyOwner;
use crate::domain::job::JobState;
use crate::domain::step::StepState;
use crate::domain::{AttemptRef, JobId, Now, OutboxId, StepId, TokenId, WorkerId};
use crate::language::values::Violation;
use crate::secret_policy::SecretPolicy;
use crate::store::{Contact, Store, StoreError, StoreFailure, Tx};
use watch::Watch;

pub use crate::domain::protocol::{
    Assignment, Beat, BeatAnswer, Finished, HeldAttempt, HeldPhase, News, OpenedSession, Poll,
    PollAnswer, Registration, Reports, ReportsAnswer, Spooled, Verdict,
};
pub use crate::domain::settings::Settings;
pub use approve::Decision;
pub use audit::{AuditEnds, Refusal};
pub use census::Census;
pub use fire::FireRound;
pub use log::LogOwner;
pub use outbox::{Due, MessageDetail, Outgoing};
pub use queries::{JobView, LogLine};
pub use queue::WaitingStep;
pub use recover::{Suspect, together_silent};
pub use retry::{Retry, RetryScope};
pub use schedule::ScheduleView;
pub use submit::{Submission, Submitted};
pub use tokens::Enrolled;
pub use views::{
    HeldStep, JobDetail, ListedJob, NamedEvent, Parent, RecoveryNames, StepDetail, WorkerDetail,
};
pub use wait::{AskedOnTheWay, Look, Offer};
pub use why::{Code, Fact, FactKind, Outlook, RootCause, StepWhy, Why, WhyOutcome, WhyWorker};
pub use why_job::JobWhy;
pub use why_schedule::ScheduleWhy;
pub use why_worker::WorkerWhy;

/// The verbs, on one store.
#[derive(Clone)]
pub struct Engine {
    pub store: Store,
    pub settings: Settings,
    watch: Arc<Watch>,
    /// The actor who makes these calls, if it is not the server itself.
    actor: Option<Arc<Actor>>,
    secret_policy: Arc<SecretPolicy>,
    /// Owner of the idempotency keys that the calls use.
    key_owner: KeyOwner,
    /// Whether this process may run a worker of its own. Otherwise such a worker of an earlier process has ended.
    has_own_worker: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{0}")]
    InvalidTask(#[from] Problems),
    /// Something in a request, outside of a task definition.
    #[error("{place} {fault}")]
    Invalid { place: &'static str, fault: String },
    /// What was given does not fit what is asked for: all of it at once.
    #[error("{place} does not take this input: {}", inputs::sentence(violations))]
    InputInvalid {
        place: String,
        violations: Vec<Violation>,
    },
    #[error("job {job_id} does not exist")]
    JobNotFound { job_id: JobId },
    #[error("there is no job {selector}")]
    NoJobFits { selector: String },
    #[error("step {step_id} does not exist")]
    StepNotFound { step_id: StepId },
    #[error("job {job_id} has no step {step}{hint}")]
    NoSuchStep {
        job_id: JobId,
        step: String,
        hint: String,
    },
    #[error("{attempt} was never this session's")]
    AttemptNotFound { attempt: AttemptRef },
    #[error("delivery {outbox_id} does not exist")]
    MessageNotFound { outbox_id: OutboxId },
    #[error("worker {worker_id} does not exist")]
    WorkerNotFound { worker_id: WorkerId },
    #[error("there is no worker {selector}{hint}")]
    NoWorkerFits { selector: String, hint: String },
    #[error(
        "several active workers are called {name}, name one by its number: {}",
        listed(numbers)
    )]
    WorkerAmbiguous {
        name: String,
        numbers: Vec<WorkerId>,
    },
    #[error("there is no schedule {selector}{hint}")]
    NoScheduleFits { selector: String, hint: String },
    #[error("schedule {name} of task {task} is in no file any more")]
    ScheduleRemoved { task: String, name: String },
    #[error("job {job_id} is {state} already")]
    JobEnded { job_id: JobId, state: JobState },
    #[error("job {job_id} is {state}, only a job that has ended can be retried; cancel it first")]
    JobNotEnded { job_id: JobId, state: JobState },
    #[error(
        "job {job_id} has no step to retry: all completed; retry all (--all), or from a step (--from STEP)"
    )]
    NothingToRetry { job_id: JobId },
    #[error("step `{step}` of job {job_id} is {state}, it does not wait for a decision")]
    NotSuspended {
        job_id: JobId,
        step: String,
        state: StepState,
    },
    #[error("cannot requeue step `{step}` of job {job_id}: the step is {state}, {hint}")]
    NotRequeueable {
        job_id: JobId,
        step: String,
        state: StepState,
        hint: &'static str,
    },
    #[error("cannot fail step `{step}` of job {job_id}: the step is {state}, {hint}")]
    NotFailable {
        job_id: JobId,
        step: String,
        state: StepState,
        hint: &'static str,
    },
    #[error("there is no token {selector}")]
    NoTokenFits { selector: String },
    #[error("several tokens are called {name}, name one by its number: {}", .numbers.join(", "))]
    TokenAmbiguous { name: String, numbers: Vec<String> },
    #[error(
        "token {token_id} is called {name} and lets somebody in: revoke it first, or take another name"
    )]
    TokenNameTaken { name: String, token_id: TokenId },
    #[error("token {token_id} is the last one of an admin: make another before it goes")]
    LastAdmin { token_id: TokenId },
    #[error("the enrolment is not known, was used, was revoked or has expired: ask for a new one")]
    EnrolmentRefused,
    #[error("the token of worker {name} was revoked: it is given nothing more")]
    TokenRevoked { name: String },
    #[error(
        "worker {name} is another token's: give this machine a folder of its own, or revoke that token first"
    )]
    WorkerOfAnother { name: String },
    #[error(
        "token {token_id} has {max} workers, the most that one token may have; delete workers that are gone with `stepward worker rm`, \
         or make another token"
    )]
    TooManyWorkers { token_id: TokenId, max: usize },
    #[error("idempotency key {key} was used for another request, take a new one")]
    IdempotencyMismatch { key: String },
    #[error("the session is not known here, open a new one")]
    SessionUnknown,
    #[error("the session was replaced or its worker deleted: stop everything, then open a new one")]
    SessionReplaced,
    #[error(
        "another process is connected as worker {name}, from a copy of this folder: give each worker a folder of its own"
    )]
    WorkerDuplicated { name: String },
    #[error(
        "a worker {name} is there already, with another token: call this one otherwise, with {}",
        match is_embedded {
            true => "`embedded_worker: { name: ... }` in the server's settings",
            false => "--name or name in its settings",
        }
    )]
    WorkerNameTaken { name: String, is_embedded: bool },
    #[error(
        "worker {worker_id} holds {held} steps: drain it first, or delete it with ?force=true, which fails them"
    )]
    WorkerHolds { worker_id: WorkerId, held: usize },
    #[error(
        "worker {name} was drained: it finishes what it has and leaves; start it again to have it back"
    )]
    WorkerDrained { name: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StoreFailure for EngineError {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            EngineError::Store(error) => Some(error),
            _ => None,
        }
    }
}

fn listed(numbers: &[WorkerId]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(", ")
}

impl Engine {
    /// A new life of the server: whoever was silent meanwhile could not be heard.
    pub fn new(store: Store, settings: Settings) -> Engine {
        let watch = Arc::new(Watch::new(store.begun_up()));
        Engine {
            store,
            settings,
            watch,
            actor: None,
            secret_policy: Arc::new(SecretPolicy::nothing()),
            key_owner: KeyOwner::Anyone,
            has_own_worker: true,
        }
    }

    pub fn with_own_worker(self, has_own_worker: bool) -> Engine {
        Engine {
            has_own_worker,
            ..self
        }
    }

    /// With the places that secrets of workflow files may come from. Without this none may be used.
    pub fn with_secret_policy(self, policy: Arc<SecretPolicy>) -> Engine {
        Engine {
            secret_policy: policy,
            ..self
        }
    }

    pub fn secret_policy(&self) -> &SecretPolicy {
        &self.secret_policy
    }

    /// Returns an engine whose calls are made by this person: events and the audit log show the name.
    pub fn by(&self, name: &str) -> Engine {
        self.acting(Actor::named(name))
    }

    /// Returns an engine whose calls are made by this actor: events and the audit log show it.
    pub fn acting(&self, actor: Actor) -> Engine {
        Engine {
            actor: Some(Arc::new(actor)),
            ..self.clone()
        }
    }

    /// Returns an engine whose calls use the idempotency keys of this owner.
    pub fn with_keys_of(self, key_owner: KeyOwner) -> Engine {
        Engine { key_owner, ..self }
    }

    /// A verb of a session: one that the store turns away is a sign of life all the same.
    fn write_contact<T, F>(&self, session_key: String, now: Now, work: F) -> Result<T, EngineError>
    where
        F: Fn(&Tx) -> Result<T, EngineError> + Send + 'static,
        T: Send + 'static,
    {
        let result = self.write(now, work);
        if let Err(EngineError::Store(error)) = &result
            && error.is_refusal()
        {
            self.record_refused_contact(&session_key, now);
        }
        result
    }

    /// The store turned a call of this session away: the worker was heard all the same.
    fn record_refused_contact(&self, session_key: &str, now: Now) {
        let found = self.store.read(|tx| {
            let session = tx.session(session_key)?;
            Ok::<_, EngineError>(session.filter(|session| session.current))
        });
        match found {
            Ok(Some(session)) => {
                let contact = Contact::of(&session, session.heartbeat_seq, now);
                self.store.record_contact(contact);
            }
            Ok(None) => {}
            // Nobody knows which worker it was, so the silence of all workers counts from now.
            Err(_) => self.was_absent_until(now.up),
        }
    }

    /// One verb, one transaction, at one time.
    fn write<T, F>(&self, now: Now, work: F) -> Result<T, EngineError>
    where
        F: Fn(&Tx) -> Result<T, EngineError> + Send + 'static,
        T: Send + 'static,
    {
        self.write_as(now, work)
    }

    /// Runs a write transaction whose closure returns errors of its own type.
    fn write_as<T, E, F>(&self, now: Now, work: F) -> Result<T, E>
    where
        F: Fn(&Tx) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: StoreFailure + Send + 'static,
    {
        let actor = self.actor.clone();
        self.store.write(move |tx| {
            tx.happens_at(now.up);
            if let Some(actor) = &actor {
                tx.acted_by(actor);
            }
            work(tx)
        })
    }
}
