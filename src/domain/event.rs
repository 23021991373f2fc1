//! Every fact we record, once. Ordinary progress is told by the rows' own times; events are what a person must be told.

use super::reason::Reason;
use super::{EventSeq, JobId, Json, StepId, Timestamp, WorkerId, words};

words! {
    /// Past tense, the noun in front.
    pub enum EventKind {
        JobSubmitted = "job_submitted",
        JobHeld = "job_held",
        JobReleased = "job_released",
        JobCompleted = "job_completed",
        JobFailed = "job_failed",
        JobCancelled = "job_cancelled",
        JobSkipped = "job_skipped",
        StepFailed = "step_failed",
        StepRequeued = "step_requeued",
        StepRetried = "step_retried",
        StepSuspended = "step_suspended",
        StepHeld = "step_held",
        StepApproved = "step_approved",
        StepRejected = "step_rejected",
        StepResumed = "step_resumed",
        /// A hook could not be carried out.
        HookFailed = "hook_failed",
        ReportFenced = "report_fenced",
        /// An attempt ended before all of its log had come: its worker is asked for the rest.
        LogIncomplete = "log_incomplete",
        /// The log of an attempt is not the text that its worker wrote.
        LogDiffers = "log_differs",
        /// Due instants passed that nothing will be made of.
        ScheduleMissed = "schedule_missed",
        /// An earlier job was in its way: the first time in a row.
        ScheduleSkipped = "schedule_skipped",
        /// Its task is gone or does not take its input: the first time in a row.
        ScheduleRefused = "schedule_refused",
        SchedulePaused = "schedule_paused",
        ScheduleResumed = "schedule_resumed",
        WorkerRegistered = "worker_registered",
        WorkerRestarted = "worker_restarted",
        WorkerActive = "worker_active",
        WorkerInactive = "worker_inactive",
        /// So many at once that recovery waits.
        WorkersSilent = "workers_silent",
        WorkerDraining = "worker_draining",
        WorkerPaused = "worker_paused",
        WorkerResumed = "worker_resumed",
        WorkerDeleted = "worker_deleted",
        /// Two processes say that they are this worker.
        WorkerDuplicated = "worker_duplicated",
        /// Workflow files do not load; what was good stays in force.
        WorkflowsBroken = "workflows_broken",
        WorkflowsLoaded = "workflows_loaded",
        /// A message could not be delivered for days.
        DeliveryGivenUp = "delivery_given_up",
        /// A person asked for it once more.
        MessageRedelivered = "message_redelivered",
        NotifyTested = "notify_tested",
        TokenMade = "token_made",
        TokenRevoked = "token_revoked",
        /// A worker exchanged an enrolment for a token of its own.
        WorkerEnrolled = "worker_enrolled",
        /// An enrolment was shown again by somebody else: it may have been stolen.
        EnrolmentRefused = "enrolment_refused",
        /// A worker offered tags that its token does not let it offer.
        WorkerRestricted = "worker_restricted",
        /// A token was shown for what is another's.
        ScopeViolated = "scope_violated",
        LoggedIn = "logged_in",
        LoggedOut = "logged_out",
        /// Too many wrong tokens came from one address.
        LoginRefused = "login_refused",
        /// A person wants it to stay.
        JobKept = "job_kept",
        JobUnkept = "job_unkept",
        /// A person had old ones removed.
        JobsPruned = "jobs_pruned",
        BackupMade = "backup_made",
        /// A backup that the settings ask for could not be made: the first time in a row.
        BackupFailed = "backup_failed",
        /// The server goes on from a backup.
        BackupRestored = "backup_restored",
        /// A worker has worked for a later state of the database than the server has.
        RollbackNoticed = "rollback_noticed",
        /// A person started the server with `--accept-older-database`.
        OlderDatabaseAccepted = "older_database_accepted",
    }
}

/// An event about to be recorded. Everything but its kind and its sentence is optional.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub kind: EventKind,
    pub message: String,
    pub job_id: Option<JobId>,
    pub step_id: Option<StepId>,
    pub worker_id: Option<WorkerId>,
    pub attempt: Option<u32>,
    pub reason: Option<Reason>,
    /// The recovery phase that acted, 1 to 4.
    pub phase: Option<u8>,
    /// A JSON object: what the sentence says, for programs.
    pub data: Option<Json>,
}

impl NewEvent {
    pub fn new(kind: EventKind, message: impl Into<String>) -> NewEvent {
        NewEvent {
            kind,
            message: message.into(),
            job_id: None,
            step_id: None,
            worker_id: None,
            attempt: None,
            reason: None,
            phase: None,
            data: None,
        }
    }

    pub fn job(self, job_id: JobId) -> NewEvent {
        NewEvent {
            job_id: Some(job_id),
            ..self
        }
    }

    pub fn step(self, step: &super::step::StepHead) -> NewEvent {
        NewEvent {
            job_id: Some(step.job_id),
            step_id: Some(step.step_id),
            attempt: Some(step.attempt),
            worker_id: step.worker_id,
            ..self
        }
    }

    pub fn worker(self, worker_id: WorkerId) -> NewEvent {
        NewEvent {
            worker_id: Some(worker_id),
            ..self
        }
    }

    pub fn reason(self, reason: Reason) -> NewEvent {
        NewEvent {
            reason: Some(reason),
            ..self
        }
    }

    pub fn data(self, data: Option<Json>) -> NewEvent {
        NewEvent { data, ..self }
    }
}

/// An event as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub seq: EventSeq,
    pub at: Timestamp,
    /// The person by whose call it happened.
    pub actor: Option<String>,
    pub fact: NewEvent,
}
