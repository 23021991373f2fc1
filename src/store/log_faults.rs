//! Logs that are not what their worker said of them when their attempt ended.

use rusqlite::named_params;

use super::rows::word;
use super::{StoreError, Tx};
use crate::domain::AttemptRef;
use crate::domain::log::LogFault;
use crate::domain::protocol::LogDigest;

pub const STATEMENTS: &[&str] = &[LOG_FAULT, NOTE_LOG_FAULT, FORGET_LOG_FAULT];

/// What is wrong with a log, and what its worker wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultyLog {
    pub fault: LogFault,
    pub written: LogDigest,
}

const LOG_FAULT: &str = "
    SELECT fault, length, crc32 FROM log_fault WHERE step_id = :step_id AND attempt = :attempt
";

const NOTE_LOG_FAULT: &str = "
    INSERT INTO log_fault (step_id, attempt, fault, length, crc32)
    VALUES (:step_id, :attempt, :fault, :length, :crc32)
    ON CONFLICT (step_id, attempt)
    DO UPDATE SET fault = excluded.fault, length = excluded.length, crc32 = excluded.crc32
";

const FORGET_LOG_FAULT: &str = "
    DELETE FROM log_fault WHERE step_id = :step_id AND attempt = :attempt
";

impl Tx<'_> {
    /// `None`: the log is what its worker wrote, or the worker did not say what it wrote.
    pub fn log_fault(&self, attempt: AttemptRef) -> Result<Option<FaultyLog>, StoreError> {
        let mut statement = self.sql(LOG_FAULT)?;
        let mut rows = statement
            .query(named_params! {":step_id": attempt.step_id.0, ":attempt": attempt.attempt})?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let length: i64 = row.get(1)?;
        Ok(Some(FaultyLog {
            fault: word(row, 0, LogFault::from_word, "the fault of a log")?,
            written: LogDigest {
                length: u64::try_from(length).unwrap_or(0),
                crc32: row.get(2)?,
            },
        }))
    }

    pub fn note_log_fault(&self, attempt: AttemptRef, log: &FaultyLog) -> Result<(), StoreError> {
        self.sql(NOTE_LOG_FAULT)?.execute(named_params! {
            ":step_id": attempt.step_id.0,
            ":attempt": attempt.attempt,
            ":fault": log.fault.as_str(),
            ":length": i64::try_from(log.written.length).unwrap_or(i64::MAX),
            ":crc32": log.written.crc32,
        })?;
        Ok(())
    }

    pub fn forget_log_fault(&self, attempt: AttemptRef) -> Result<(), StoreError> {
        self.sql(FORGET_LOG_FAULT)?
            .execute(named_params! {":step_id": attempt.step_id.0, ":attempt": attempt.attempt})?;
        Ok(())
    }
}
