//! What a job is given must fit what its task asks for, whoever gives it: people, schedules, webhooks, hooks, other jobs.

use serde_json::{Map, Value};

use super::EngineError;
use super::scope::parsed;
use crate::domain::Json;
use crate::domain::task::TaskDraft;
use crate::domain::value::ValueSpec;
use crate::language::values::{Violation, check_values};
use crate::secrets::Sealer;
use crate::store::Tx;

/// What a job about to be made is given.
#[derive(Debug, Clone)]
pub(super) enum JobInput {
    /// By somebody: it may not fit.
    Given(Json),
    /// By another job, which may hand on what was sealed for it.
    HandedOn(Json),
    /// It was another job's: it did fit, and what is secret in it is sealed.
    Kept(Json),
}

impl JobInput {
    /// With defaults filled in and secrets sealed: as it is kept.
    pub fn fit(&self, tx: &Tx, task: &TaskDraft) -> Result<Json, EngineError> {
        let given = match self {
            JobInput::Kept(input) => return Ok(input.clone()),
            JobInput::Given(input) | JobInput::HandedOn(input) => input,
        };
        // The usual small task: nothing asked, nothing given.
        if task.inputs.is_empty() && *given == Json::empty_object() {
            return Ok(given.clone());
        }
        let place = format!("task {}", task.name);
        let given = parsed(given);
        if let (JobInput::Given(_), Value::Object(values)) = (self, &given) {
            refuse_sealed(&place, values)?;
        }
        let values = fit(&place, &task.inputs, &given)?;
        let values = seal(tx, &task.inputs, values);
        Ok(Json(Value::Object(values).to_string()))
    }
}

/// The values as they may be kept: secret ones sealed.
pub(super) fn seal(
    tx: &Tx,
    specs: &[ValueSpec],
    mut values: Map<String, Value>,
) -> Map<String, Value> {
    for spec in specs.iter().filter(|spec| spec.secret) {
        if let Some(value) = values.get_mut(&spec.name)
            && !value.is_null()
        {
            *value = tx.sealed(value);
        }
    }
    values
}

/// What is sealed was sealed here, for somebody else.
fn refuse_sealed(place: &str, values: &Map<String, Value>) -> Result<(), EngineError> {
    let sealed = values.iter().filter(|(_, value)| Sealer::is_sealed(value));
    let violations: Vec<Violation> = sealed
        .map(|(name, _)| Violation {
            name: name.clone(),
            message: "is a sealed value, give the value itself".to_string(),
        })
        .collect();
    match violations.is_empty() {
        true => Ok(()),
        false => Err(EngineError::InputInvalid {
            place: place.to_string(),
            violations,
        }),
    }
}

/// All violations at once, or the values with defaults filled in.
pub(super) fn fit(
    place: &str,
    specs: &[ValueSpec],
    given: &Value,
) -> Result<Map<String, Value>, EngineError> {
    check_values(specs, given).map_err(|violations| EngineError::InputInvalid {
        place: place.to_string(),
        violations,
    })
}

/// In one sentence, however many there are.
pub(super) fn sentence(violations: &[Violation]) -> String {
    const SHOWN_MAX: usize = 10;
    let shown = violations.iter().take(SHOWN_MAX);
    let shown: Vec<String> = shown
        .map(|violation| format!("{} {}", violation.name, violation.message))
        .collect();
    match violations.len().saturating_sub(SHOWN_MAX) {
        0 => shown.join("; "),
        more => format!("{}; and {more} more", shown.join("; ")),
    }
}
