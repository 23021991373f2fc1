//! The values of secret inputs: where they are opened, where they are sealed, and what stands for them elsewhere.
//!
//! Only what a definition declares `secret: true` is opened: inputs of the job's task, and what an approval asks for. Anything else
//! that looks like a sealed value is data of somebody else, and is masked.

use serde_json::{Map, Value};

use super::EngineError;
use super::queries::load;
use super::scope::parsed;
use crate::domain::step::{Step, StepKind};
use crate::domain::task::{Action, StepDraft};
use crate::domain::value::ValueSpec;
use crate::domain::{Json, SealId};
use crate::language::values::Violation;
use crate::sealer::{MASK, SealPlace, SealedValue, Sealer};
use crate::store::Tx;

/// How sealed values appear in a rendered text.
pub(super) enum Secrecy {
    /// Sealed values appear as `***`. Used for every text that is stored or shown.
    Masked,
    /// Sealed values are opened. The list collects the opened values, so that logs can mask them.
    Opened(Vec<Value>),
}

/// The job's input as templates of stored texts see it.
pub(super) fn masked_input(specs: &[ValueSpec], input: &Value) -> Value {
    let mut masked = Sealer::masked(input);
    if let Value::Object(values) = &mut masked {
        for (_, value) in declared_secrets(specs, values) {
            *value = Value::from(MASK);
        }
    }
    masked
}

/// The job's input with its declared secrets open, which are added to the list. `unseal` opens one value, in or outside of a transaction.
pub(super) fn opened_input<'s>(
    unseal: impl Fn(SealPlace<'_>, &Value) -> Result<Value, String>,
    seal_id: Option<SealId>,
    secrets: impl IntoIterator<Item = &'s str>,
    mut values: Map<String, Value>,
    opened: &mut Vec<Value>,
) -> Result<Map<String, Value>, String> {
    let mut open_names = Vec::new();
    for name in secrets {
        let Some(value) = values.get_mut(name).filter(|value| !value.is_null()) else {
            continue;
        };
        if Sealer::is_sealed(value) {
            let value_at = SealedValue::Input(name);
            let place = SealPlace {
                seal_id,
                value: value_at,
            };
            *value = unseal(place, value)?;
        }
        opened.push(value.clone());
        open_names.push(name);
    }
    refuse_sealed_members(&values, |name| open_names.contains(&name)).map_err(|(_, why)| why)?;
    Ok(values)
}

/// Refuses sealed values in inputs that are not secret, with the name of the first such input. Version 0.1 let a job hand them on. A
/// step must not run with `***` or with a ciphertext for a value.
fn refuse_sealed_members(
    values: &Map<String, Value>,
    is_secret: impl Fn(&str) -> bool,
) -> Result<(), (String, String)> {
    for (name, value) in values.iter().filter(|(name, _)| !is_secret(name)) {
        if let Some(path) = Sealer::reserved_key_path(name, value) {
            return Err((
                name.clone(),
                format!(
                    "input {path} holds a sealed value, and {name} is not a secret input; add `secret: true` to {name} and submit the job again"
                ),
            ));
        }
    }
    Ok(())
}

/// The values as they may be kept: secret ones sealed for this job.
pub(super) fn sealed_input(
    tx: &Tx,
    seal_id: SealId,
    specs: &[ValueSpec],
    mut values: Map<String, Value>,
) -> Map<String, Value> {
    for (name, value) in declared_secrets(specs, &mut values) {
        let place = SealPlace {
            seal_id: Some(seal_id),
            value: SealedValue::Input(name),
        };
        *value = tx.seal_value(place, value);
    }
    values
}

/// The input of a job that is retried, sealed anew for the job that retries it. What is sealed for nobody stays as it is.
pub(super) fn resealed_input(
    tx: &Tx,
    from: Option<SealId>,
    to: SealId,
    specs: &[ValueSpec],
    input: &Json,
) -> Result<Json, (String, String)> {
    let is_secret = |name: &str| specs.iter().any(|spec| spec.secret && spec.name == name);
    if !specs.iter().any(|spec| spec.secret) && Sealer::with_reserved_key(&input.0).is_none() {
        return Ok(input.clone());
    }
    let Value::Object(mut values) = parsed(input) else {
        return Ok(input.clone());
    };
    refuse_sealed_members(&values, is_secret)?;
    for (name, value) in declared_secrets(specs, &mut values) {
        let at = |seal_id| SealPlace {
            seal_id,
            value: SealedValue::Input(name),
        };
        let open = match Sealer::is_sealed(value) {
            true => tx
                .unseal(at(from), value)
                .map_err(|why| (name.to_string(), why))?,
            false => value.clone(),
        };
        *value = tx.seal_value(at(Some(to)), &open);
    }
    Ok(Json(Value::Object(values).to_string()))
}

/// Returns the values that a person entered at an approval in the form in which they are stored: secret ones sealed.
pub(super) fn sealed_entries(
    tx: &Tx,
    seal_id: Option<SealId>,
    step: &str,
    specs: &[ValueSpec],
    mut values: Map<String, Value>,
) -> Map<String, Value> {
    for (name, value) in declared_secrets(specs, &mut values) {
        let place = SealPlace {
            seal_id,
            value: SealedValue::Entered { step, name },
        };
        *value = tx.seal_value(place, value);
    }
    values
}

/// The stored output of a step that has no parts: what its worker reported, or what a person entered.
pub(super) fn stored_output(
    tx: &Tx,
    step: &Step,
    secrecy: &mut Secrecy,
) -> Result<Option<Json>, EngineError> {
    let Some(output) = &step.output else {
        return Ok(None);
    };
    let Some(stored) = Sealer::with_reserved_key(&output.0) else {
        return Ok(Some(output.clone()));
    };
    let opened = match secrecy {
        Secrecy::Opened(opened) if step.kind == StepKind::Approval => opened,
        _ => return Ok(Some(Json(Sealer::masked(&stored).to_string()))),
    };
    let (job, context) = load(tx, step.job_id)?;
    let draft = context.draft(step);
    let mut shown = Sealer::masked(&stored);
    if let (Action::Approval { inputs, .. }, Value::Object(values)) = (&draft.action, &mut shown) {
        for (name, value) in declared_secrets(inputs, values) {
            let place = SealPlace {
                seal_id: job.seal_id,
                value: SealedValue::Entered {
                    step: &draft.name,
                    name,
                },
            };
            let unsealed = tx.unseal(place, &stored[name]);
            *value = unsealed.map_err(|why| EngineError::Invalid {
                place: "output",
                fault: format!("cannot be opened: {why}"),
            })?;
            opened.push(value.clone());
        }
    }
    Ok(Some(Json(shown.to_string())))
}

/// Seals what was entered at a completed approval for the job that takes the step over.
pub(super) fn reseal_step(
    tx: &Tx,
    task: &str,
    draft: &StepDraft,
    step: &mut Step,
    to: SealId,
) -> Result<(), EngineError> {
    let (Action::Approval { inputs, .. }, Some(output)) = (&draft.action, &step.output) else {
        return Ok(());
    };
    if !inputs.iter().any(|spec| spec.secret) {
        return Ok(());
    }
    let Value::Object(mut values) = parsed(output) else {
        return Ok(());
    };
    let (former, _) = load(tx, step.job_id)?;
    for (name, value) in declared_secrets(inputs, &mut values) {
        let at = |seal_id| SealPlace {
            seal_id,
            value: SealedValue::Entered {
                step: &draft.name,
                name,
            },
        };
        let open = tx.unseal(at(former.seal_id), value);
        let open = open.map_err(|message| EngineError::InputInvalid {
            place: format!("task {task}"),
            violations: vec![Violation {
                name: format!("{} of step {}", name, draft.name),
                message,
            }],
        })?;
        *value = tx.seal_value(at(Some(to)), &open);
    }
    step.output = Some(Json(Value::Object(values).to_string()));
    Ok(())
}

/// The values of those that are declared secret and were given.
fn declared_secrets<'s, 'v>(
    specs: &'s [ValueSpec],
    values: &'v mut Map<String, Value>,
) -> impl Iterator<Item = (&'s str, &'v mut Value)> + use<'s, 'v> {
    values.iter_mut().filter_map(|(name, value)| {
        let mut secrets = specs.iter().filter(|spec| spec.secret);
        let spec = secrets.find(|spec| spec.name == *name)?;
        (!value.is_null()).then_some((spec.name.as_str(), value))
    })
}
