//! What a job is given must fit what its task asks for, whoever gives it: people, schedules, webhooks, hooks, other jobs.

use serde_json::{Map, Value};

use super::EngineError;
use super::scope::parsed;
use super::sealed::{resealed_input, sealed_input};
use crate::domain::limits::shorten;
use crate::domain::task::TaskDraft;
use crate::domain::value::ValueSpec;
use crate::domain::{Json, SealId};
use crate::language::values::{Violation, check_values};
use crate::sealer::{SEALED_KEY, Sealer};
use crate::store::Tx;

/// What a job about to be made is given.
#[derive(Debug, Clone)]
pub(super) enum JobInput {
    /// Given by a person, a webhook or another job. The input has to be validated.
    Given(Json),
    /// Copied from another job: the input was validated there, and its secret values are sealed for that job.
    Kept {
        input: Json,
        seal_id: Option<SealId>,
    },
}

impl JobInput {
    /// With defaults filled in and secrets sealed for the job with this id: as it is kept.
    pub fn fit(&self, tx: &Tx, task: &TaskDraft, seal_id: SealId) -> Result<Json, EngineError> {
        let place = format!("task {}", task.name);
        let given = match self {
            JobInput::Kept {
                input,
                seal_id: former,
            } => {
                let resealed = resealed_input(tx, *former, seal_id, &task.inputs, input);
                return resealed.map_err(|(name, message)| EngineError::InputInvalid {
                    place,
                    violations: vec![Violation { name, message }],
                });
            }
            JobInput::Given(input) => input,
        };
        // The usual small task: nothing asked, nothing given.
        if task.inputs.is_empty() && *given == Json::empty_object() {
            return Ok(given.clone());
        }
        let given = parsed(given);
        refuse_reserved_key(&place, &given)?;
        let values = fit(&place, &task.inputs, &given)?;
        // A default of a workflow file that version 0.1 had accepted may have the key as well.
        refuse_reserved_key_in(&place, &values)?;
        let values = sealed_input(tx, seal_id, &task.inputs, values);
        Ok(Json(Value::Object(values).to_string()))
    }
}

/// Refuses values that look as if the server had sealed them, at any depth: they could only have been taken from another job.
pub(super) fn refuse_reserved_key(place: &str, given: &Value) -> Result<(), EngineError> {
    match given {
        Value::Object(values) => refuse_reserved_key_in(place, values),
        other => match Sealer::reserved_key_path("", other) {
            None => Ok(()),
            Some(path) => refused(place, vec![reserved(&path, &path)]),
        },
    }
}

fn refuse_reserved_key_in(place: &str, values: &Map<String, Value>) -> Result<(), EngineError> {
    let mut violations: Vec<Violation> = values
        .iter()
        .filter_map(|(name, value)| {
            let path = Sealer::reserved_key_path(name, value)?;
            Some(reserved(name, &path))
        })
        .collect();
    if values.contains_key(SEALED_KEY) {
        violations.push(reserved(SEALED_KEY, SEALED_KEY));
    }
    match violations.is_empty() {
        true => Ok(()),
        false => refused(place, violations),
    }
}

fn refused(place: &str, violations: Vec<Violation>) -> Result<(), EngineError> {
    Err(EngineError::InputInvalid {
        place: place.to_string(),
        violations,
    })
}

fn reserved(name: &str, path: &str) -> Violation {
    Violation {
        name: shorten(name),
        message: format!(
            "has the key `{SEALED_KEY}` at {}, which marks encrypted values of the server and is not allowed here; give the value \
             itself, or use another key",
            shorten(path)
        ),
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
