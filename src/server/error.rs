//! From an error to a status: the only such place.

use super::exchange::Response;
use crate::domain::limits::clip;
use crate::engine::EngineError;
use crate::store::StoreError;
use crate::wire::INVALID;

/// Bytes of text in an error for a caller that may use the route.
pub const ERROR_BYTES_MAX: usize = 64 << 10;
/// Bytes of text in an error for a stranger. Escaped for JSON or HTML, which makes a text up to six times as long, the answer is still
/// short enough that it takes no room of others, see `unread_answers.rs`.
pub const STRANGERS_ERROR_BYTES_MAX: usize = 8 << 10;
/// Bytes that the detail takes which says how many others are left out.
const MORE_DETAILS_BYTES_MAX: usize = 32;

/// Why a request is not carried out. One clear sentence: what is wrong, where, what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub status: u16,
    pub code: &'static str,
    pub message: String,
    pub details: Vec<String>,
    /// Of a method that is not known at this address: those that are.
    pub allow: Option<String>,
    /// When to try again, where that is known.
    pub retry_after_secs: Option<u64>,
}

impl ApiError {
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            code,
            message: message.into(),
            details: Vec::new(),
            allow: None,
            retry_after_secs: None,
        }
    }

    pub fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(404, "not_found", message)
    }

    /// Something in a request that breaks a rule.
    pub fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(422, INVALID, message)
    }

    /// The server cannot take the request now. Nothing was done.
    pub fn busy() -> ApiError {
        let message = "the server has more to do than it can take, try again";
        ApiError::new(503, "busy", message)
    }

    /// The same error with at most so many bytes of text: a message can repeat what was sent, which may be long.
    pub fn clipped(self, bytes_max: usize) -> ApiError {
        let message = clip(&self.message, bytes_max / 2);
        let mut left = bytes_max - message.len();
        let all = self.details.len();
        let mut details = Vec::new();
        for detail in self.details {
            if detail.len() + MORE_DETAILS_BYTES_MAX > left {
                details.push(format!("… {} more", all - details.len()));
                break;
            }
            left -= detail.len();
            details.push(detail);
        }
        ApiError {
            message,
            details,
            ..self
        }
    }

    pub fn response(&self) -> Response {
        let response = Response::error(self.status, self.code, &self.message, self.details.clone());
        let response = match (self.retry_after_secs, self.status) {
            (Some(secs), _) => response.header("retry-after", secs.to_string()),
            (None, 503) => response.header("retry-after", "1"),
            (None, _) => response,
        };
        match &self.allow {
            Some(methods) => response.header("allow", methods),
            None => response,
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> ApiError {
        use EngineError::*;
        let (status, code) = match &error {
            InvalidTask(problems) => {
                let mut invalid = ApiError::new(422, "invalid_task", error.to_string());
                let shown = problems.0.iter().take(100);
                invalid.details = shown.map(ToString::to_string).collect();
                return invalid;
            }
            InputInvalid { violations, .. } => {
                let mut invalid = ApiError::new(422, "invalid_input", error.to_string());
                let shown = violations.iter().take(100);
                invalid.details = shown
                    .map(|violation| format!("{} {}", violation.name, violation.message))
                    .collect();
                return invalid;
            }
            Invalid { .. } => (422, INVALID),
            JobNotFound { .. }
            | NoJobFits { .. }
            | NoScheduleFits { .. }
            | NoWorkerFits { .. }
            | StepNotFound { .. }
            | NoSuchStep { .. }
            | MessageNotFound { .. }
            | NoTokenFits { .. }
            | WorkerNotFound { .. } => (404, "not_found"),
            JobEnded { .. }
            | ScheduleRemoved { .. }
            | JobNotEnded { .. }
            | NothingToRetry { .. }
            | NotSuspended { .. }
            | NotRequeueable { .. }
            | NotFailable { .. }
            | WorkerAmbiguous { .. }
            | WorkerDrained { .. }
            | TokenAmbiguous { .. }
            | TokenNameTaken { .. }
            | LastAdmin { .. }
            | WorkerHolds { .. } => (409, "conflict"),
            IdempotencyMismatch { .. } => (422, "idempotency_mismatch"),
            AttemptNotFound { .. } => (410, "abort"),
            WorkerDuplicated { .. } => (409, "instance_conflict"),
            WorkerNameTaken { .. } => (409, "name_taken"),
            EnrolmentRefused | TokenRevoked { .. } => (401, "unauthorized"),
            WorkerOfAnother { .. } => (403, "forbidden"),
            TooManyWorkers { .. } => (429, "too_many_workers"),
            SessionUnknown => (410, "session_unknown"),
            SessionReplaced => (410, "session_replaced"),
            Store(error) => return store_error(error),
        };
        ApiError::new(status, code, error.to_string())
    }
}

fn store_error(error: &StoreError) -> ApiError {
    use StoreError::*;
    let (status, code) = match error {
        Busy { .. } => (503, "busy"),
        Full => (503, "disk_full"),
        OutcomeUnknown => (503, "outcome_unknown"),
        Lost => (503, "lost"),
        Stopped => (503, "stopping"),
        Pool(_) => (503, "busy"),
        Panicked { .. } | Unreadable { .. } | Sqlite(_) => {
            // What the database says is for the log; the caller learns that it is our fault.
            log::error!("a request failed: {error}");
            let message = "the server met a fault of its own, its log says which";
            return ApiError::new(500, "internal", message);
        }
    };
    ApiError::new(status, code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_is_cut_and_says_how_much_is_left_out() {
        let error = ApiError {
            details: vec!["d".repeat(100); 100],
            ..ApiError::invalid("é".repeat(10_000))
        };
        let cut = error.clone().clipped(1_000);
        let bytes = cut.message.len() + cut.details.iter().map(String::len).sum::<usize>();
        assert!(bytes <= 1_000, "{bytes}");
        assert!(cut.message.ends_with('…'), "{}", cut.message);
        assert_eq!(cut.details.last().unwrap(), "… 96 more");
        assert_eq!(cut.details.len(), 5);
        let short = ApiError {
            details: vec!["one".to_string(); 5],
            ..ApiError::invalid("short")
        };
        assert_eq!(short.clone().clipped(1_000), short);
    }
}
