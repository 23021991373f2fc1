//! How a command ends. Every exit code has one meaning, in every command.

use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;

use crate::client::{CallError, UNKNOWN};
use crate::config::ConfigError;
use crate::wire::NO_ROUTE;
use crate::wire::api::JobJson;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Success,
    Error,
    Usage,
    Invalid,
    NotAllowed,
    NotFound,
    Unreachable,
    Conflict,
    TooOld,
    JobFailed,
    JobCancelled,
    JobTimedOut,
    NoWorker,
    WaitedTooLong,
    Interrupted,
}
use Exit::*;

/// (exit, code, what it means)
#[rustfmt::skip]
pub const EXITS: [(Exit, u8, &str); 15] = [
    (Success,         0, "success; the job completed"),
    (Error,           1, "error; `doctor` found a problem"),
    (Usage,           2, "wrong usage"),
    (Invalid,         3, "validation failed"),
    (NotAllowed,      4, "not authenticated, or not allowed"),
    (NotFound,        5, "not found"),
    (Unreachable,     6, "the server cannot be reached"),
    (Conflict,        7, "conflict: it is not in a state for that"),
    (TooOld,          8, "this version is too old for the server, install a newer one"),
    (JobFailed,      10, "the job failed"),
    (JobCancelled,   11, "the job was cancelled"),
    (JobTimedOut,    12, "the job timed out"),
    (NoWorker,       13, "no worker could run a step"),
    (WaitedTooLong, 124, "the waiting timed out, the job goes on"),
    (Interrupted,   130, "interrupted"),
];

impl Exit {
    pub fn code(self) -> u8 {
        let found = EXITS.iter().find(|(exit, ..)| *exit == self);
        found.map_or(1, |(_, code, _)| *code)
    }

    /// `None`: it has not ended.
    pub fn of_job(job: &JobJson) -> Option<Exit> {
        let reason = job.reason.as_deref().unwrap_or_default();
        Some(match (job.status.as_str(), reason) {
            ("pending" | "running", _) => return None,
            ("completed", _) => Success,
            (_, "job_timeout" | "queue_timeout") => JobTimedOut,
            (_, "unmatched") => NoWorker,
            ("cancelled" | "skipped", _) => JobCancelled,
            _ => JobFailed,
        })
    }

    pub fn of_call(error: &CallError) -> Exit {
        match error {
            CallError::Unreachable(_) => Unreachable,
            CallError::Refused { .. } if error.is_about_token() => NotAllowed,
            // Something else sits at this address.
            CallError::Refused { error, .. } if [UNKNOWN, NO_ROUTE].contains(&&*error.code) => {
                Unreachable
            }
            CallError::Refused { status, .. } => Exit::of_status(*status),
        }
    }

    /// As the API says no.
    pub fn of_status(status: u16) -> Exit {
        match status {
            401 | 403 => NotAllowed,
            404 => NotFound,
            409 => Conflict,
            400 | 413 | 415 | 422 => Invalid,
            426 => TooOld,
            _ => Error,
        }
    }

    /// What whatever went wrong means for whoever called.
    pub fn of(error: &anyhow::Error) -> Exit {
        if let Some(fault) = error.downcast_ref::<Fault>() {
            return fault.exit;
        }
        if let Some(fault) = error.downcast_ref::<ConfigError>() {
            return Exit::of_settings(fault);
        }
        if is_about_settings(error) {
            return Invalid;
        }
        error
            .downcast_ref::<CallError>()
            .map_or(Error, Exit::of_call)
    }

    pub fn of_settings(fault: &ConfigError) -> Exit {
        match fault {
            ConfigError::Unreadable { source, .. } if source.kind() == ErrorKind::NotFound => {
                NotFound
            }
            ConfigError::Unreadable { .. }
            | ConfigError::Invalid { .. }
            | ConfigError::Refused(_) => Invalid,
        }
    }
}

/// Settings that were read, and with which nothing can start: starting again would not help.
fn is_about_settings(error: &anyhow::Error) -> bool {
    let of_server = error.downcast_ref().is_some_and(|error| {
        use crate::server::StartError::*;
        matches!(error, Config(_) | NoToken { .. })
    });
    let of_worker = error.downcast_ref().is_some_and(|error| {
        use crate::worker::StartError::*;
        matches!(error, Config(_) | Settings(_) | NoServer)
    });
    let of_enrolment = error.downcast_ref().is_some_and(|error| {
        use crate::worker::enrol::EnrolError::*;
        matches!(error, Config(_) | NoServer)
    });
    of_server || of_worker || of_enrolment
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// What is wrong, in a sentence, and how the command ends because of it.
#[derive(Debug)]
pub struct Fault {
    pub exit: Exit,
    message: String,
}

impl Fault {
    pub fn new(exit: Exit, message: impl Into<String>) -> Fault {
        let message = message.into();
        Fault { exit, message }
    }

    /// What was typed makes no sense.
    pub fn usage(message: impl Into<String>) -> anyhow::Error {
        Fault::new(Usage, message).into()
    }

    pub fn not_found(message: impl Into<String>) -> anyhow::Error {
        Fault::new(NotFound, message).into()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}
