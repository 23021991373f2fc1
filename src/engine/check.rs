//! What several verbs ask of the values that they are given, before anything is written.

use super::EngineError;
use crate::domain::{Json, limits};
use crate::words::printable_lines;

/// A sentence that a worker sent, fit to be kept: it is shown in terminals and on pages, so nothing in it may control a terminal or turn
/// the direction of reading.
pub(super) fn workers_sentence(text: &str, if_empty: &str) -> String {
    limits::sentence(&printable_lines(text), if_empty)
}

pub(super) fn check_text(
    place: &'static str,
    text: &str,
    bytes_max: usize,
) -> Result<(), EngineError> {
    let fault = match text {
        "" => "is empty".to_string(),
        text if text.len() > bytes_max => {
            format!(
                "is {} bytes long, at most {bytes_max} are allowed",
                text.len()
            )
        }
        text if text.contains('\0') => "holds a NUL byte".to_string(),
        _ => return Ok(()),
    };
    Err(EngineError::Invalid { place, fault })
}

pub(super) fn check_json(
    place: &'static str,
    json: &Json,
    bytes_max: usize,
) -> Result<(), EngineError> {
    check_text(place, &json.0, bytes_max)?;
    // Into a value, not into nothing: what is nested too deeply to be read again is refused here.
    match serde_json::from_str::<serde_json::Value>(&json.0) {
        Ok(_) => Ok(()),
        Err(error) => Err(EngineError::Invalid {
            place,
            fault: format!("is not JSON: {error}"),
        }),
    }
}

/// A worker speaks of no more attempts than it may have slots.
pub(super) fn check_count(place: &'static str, count: usize) -> Result<(), EngineError> {
    let max = limits::SLOTS_MAX as usize;
    if count <= max {
        return Ok(());
    }
    let fault = format!("are {count}, at most {max} are allowed in one request");
    Err(EngineError::Invalid { place, fault })
}
