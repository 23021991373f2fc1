//! What templates may speak of, as far as the database knows it: the job, its inputs, the steps that they name, the item of a loop.
//!
//! Secret values are masked in all of it, since what is rendered here is stored. They are open only for what is not stored (`when`)
//! and for what is sealed again. What a worker is given is rendered elsewhere, in `render.rs`, where they are open.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::EngineError;
use super::cascade::{Cascade, Failure, JobContext};
use super::queries::step_output;
use super::sealed::{Secrecy, masked_input, opened_input};
use crate::domain::job::Job;
use crate::domain::limits::LOOP_ITEMS_MAX;
use crate::domain::reason::Reason;
use crate::domain::step::{Step, StepHead};
use crate::domain::task::{Items, Task, is_template};
use crate::domain::value::ValueSpec;
use crate::domain::{JobId, Json, Timestamp};
use crate::language::template::{self, Context, TemplateFault};
use crate::language::values::kind;
use crate::sealer::{SealPlace, Sealer};
use crate::store::Tx;
use crate::words::rfc3339_ms;

impl From<TemplateFault> for Failure {
    fn from(fault: TemplateFault) -> Failure {
        Failure::new(Reason::TemplateError, fault.message)
    }
}

/// A value that was rendered, or why the step that asked for it cannot go on.
pub(super) type Rendered<T> = Result<Result<T, Failure>, EngineError>;

impl Cascade<'_> {
    /// Whether a step's `when` lets it run.
    pub(super) fn agrees(&mut self, context: &JobContext, step: &StepHead) -> Rendered<bool> {
        let when = context.draft(step).when.clone();
        let Some(when) = when else {
            return Ok(Ok(true));
        };
        // What it gives is not kept, so it may look at secrets.
        let value = self.render(context, step, "when", &when, opened())?;
        Ok(value.map(|value| !template::means_no(&value)))
    }

    /// What a loop goes over.
    pub(super) fn items_of(
        &mut self,
        context: &JobContext,
        step: &StepHead,
    ) -> Rendered<Vec<Json>> {
        let for_each = context.draft(step).for_each.clone();
        let list = match for_each.expect("a loop has its list").items {
            // The usual list needs no rendering, and may be long.
            Items::List(items) if !items.iter().any(|item| is_template(&item.0)) => {
                return Ok(Ok(items));
            }
            Items::List(items) => {
                let texts: Vec<String> = items.into_iter().map(|item| item.0).collect();
                Json(format!("[{}]", texts.join(",")))
            }
            Items::Template(text) => Json(Value::from(text).to_string()),
        };
        let value = match self.render(context, step, "for_each", &list, Secrecy::Masked)? {
            Ok(value) => value,
            Err(failure) => return Ok(Err(failure)),
        };
        let wrong = |message: String| Ok(Err(Failure::new(Reason::TemplateError, message)));
        match value {
            Value::Array(items) if items.len() > LOOP_ITEMS_MAX => wrong(format!(
                "for_each: has {} items, at most {LOOP_ITEMS_MAX} are allowed",
                items.len()
            )),
            Value::Array(items) => Ok(Ok(items
                .iter()
                .map(|item| Json(item.to_string()))
                .collect())),
            other => wrong(format!("for_each: gives {}, not a list", kind(&other))),
        }
    }

    /// Renders the input of a child job. Its secret inputs are rendered with open values, all others with masked ones.
    pub(super) fn input_of_child(
        &mut self,
        context: &JobContext,
        step: &Step,
        input: &Json,
        specs: &[ValueSpec],
    ) -> Rendered<Value> {
        let Value::Object(values) = parsed(input) else {
            return Ok(Ok(parsed(input)));
        };
        let each = step.item_value.as_ref();
        let mut scope_for =
            |secrecy: Secrecy| self.scope(context, step, each, "input", &values, secrecy);
        render_input(&mut scope_for, values.clone(), specs)
    }

    fn scope(
        &mut self,
        context: &JobContext,
        step: &StepHead,
        each: Option<&Json>,
        key: &str,
        values: &Map<String, Value>,
        mut secrecy: Secrecy,
    ) -> Rendered<Map<String, Value>> {
        let job = self.job_of(context)?;
        let texts: Vec<String> = values.values().flat_map(texts_in).collect();
        let names = match Names::of(texts.iter().map(String::as_str)) {
            Ok(names) => names,
            Err(fault) => return Ok(Err(in_key(key, fault))),
        };
        let attempt = step.attempt + 1;
        let scope = self.values_of_job(context, &job, attempt, &names, &mut secrecy)?;
        Ok(scope.map(|mut scope| {
            if let (Some(index), Some(item)) = (step.item, each) {
                scope.insert("each".to_string(), of_item(index, item));
            }
            scope
        }))
    }

    /// The job, its input and the steps that templates name.
    pub(super) fn values_of_job(
        &self,
        context: &JobContext,
        job: &Job,
        attempt: u32,
        names: &Names,
        secrecy: &mut Secrecy,
    ) -> Rendered<Map<String, Value>> {
        let specs = &context.task().draft.inputs;
        let mut scope = of_job(job, attempt);
        let steps = match names.steps(self.tx, context.task(), job.job_id, secrecy)? {
            Ok(steps) => steps,
            Err(failure) => return Ok(Err(failure)),
        };
        let input = match (secrecy, parsed(&job.input)) {
            (Secrecy::Opened(opened), Value::Object(values)) => {
                let secrets = specs.iter().filter(|spec| spec.secret);
                let secrets = secrets.map(|spec| spec.name.as_str());
                let unseal = |place: SealPlace<'_>, value: &Value| self.tx.unseal(place, value);
                match opened_input(unseal, job.seal_id, secrets, values, opened) {
                    Ok(values) => Value::Object(values),
                    Err(why) => return Ok(Err(Failure::new(Reason::PayloadError, why))),
                }
            }
            (_, input) => masked_input(specs, &input),
        };
        scope.insert("input".to_string(), declared(specs, &input));
        scope.insert("steps".to_string(), steps);
        Ok(Ok(scope))
    }

    fn render(
        &mut self,
        context: &JobContext,
        step: &StepHead,
        key: &str,
        value: &Json,
        secrecy: Secrecy,
    ) -> Rendered<Value> {
        if !is_template(&value.0) {
            return Ok(Ok(parsed(value)));
        }
        let values = Map::from_iter([(key.to_string(), parsed(value))]);
        let scope = match self.scope(context, step, None, key, &values, secrecy)? {
            Ok(scope) => scope,
            Err(failure) => return Ok(Err(failure)),
        };
        let rendered = template::render_value(value, &context_of(scope));
        Ok(rendered.map_err(|fault| in_key(key, fault)))
    }

    /// As text, whatever it gives.
    pub(super) fn render_kept_text(
        &mut self,
        context: &JobContext,
        step: &StepHead,
        key: &str,
        text: &str,
    ) -> Rendered<String> {
        if !is_template(text) {
            return Ok(Ok(text.to_string()));
        }
        let value = Json(Value::from(text).to_string());
        let rendered = self.render(context, step, key, &value, Secrecy::Masked)?;
        Ok(rendered.map(|value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        }))
    }

    pub(super) fn job_of(&self, context: &JobContext) -> Result<Job, EngineError> {
        let job_id = context.job_id;
        let job = self.tx.job(job_id)?;
        job.ok_or(EngineError::JobNotFound { job_id })
    }
}

/// Open values of which nobody asks for a list.
fn opened() -> Secrecy {
    Secrecy::Opened(Vec::new())
}

/// The input of a job that another one makes, as templates say. Only what the new job keeps sealed is made of open values.
pub(super) fn render_input(
    scope_for: &mut dyn FnMut(Secrecy) -> Rendered<Map<String, Value>>,
    values: Map<String, Value>,
    specs: &[ValueSpec],
) -> Rendered<Value> {
    let is_secret = |name: &str| specs.iter().any(|spec| spec.secret && spec.name == name);
    let masked = match scope_for(Secrecy::Masked)? {
        Ok(scope) => context_of(scope),
        Err(failure) => return Ok(Err(failure)),
    };
    let open = match values.keys().any(|name| is_secret(name)) {
        false => None,
        true => match scope_for(opened())? {
            Ok(scope) => Some(context_of(scope)),
            Err(failure) => return Ok(Err(failure)),
        },
    };
    let mut rendered = Map::new();
    for (name, value) in values {
        let context = open.as_ref().filter(|_| is_secret(&name));
        let value = Json(value.to_string());
        match template::render_value(&value, context.unwrap_or(&masked)) {
            Ok(value) => rendered.insert(name, value),
            Err(fault) => return Ok(Err(in_key(&format!("input, {name}"), fault))),
        };
    }
    Ok(Ok(Value::Object(rendered)))
}

fn in_key(key: &str, fault: TemplateFault) -> Failure {
    Failure::new(Reason::TemplateError, format!("{key}: {}", fault.message))
}

/// The names that templates speak of, as far as they stand there plainly.
#[derive(Default)]
pub(super) struct Names {
    steps: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
}

impl Names {
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Names, TemplateFault> {
        let mut names = Names::default();
        for text in texts.into_iter().filter(|text| is_template(text)) {
            for mention in template::mentions(text)? {
                match (
                    mention.path.first().map(String::as_str),
                    mention.path.get(1),
                ) {
                    (Some("steps"), Some(step)) => names.steps.insert(step.clone()),
                    (Some("secret"), Some(secret)) => names.secrets.insert(secret.clone()),
                    _ => false,
                };
            }
        }
        Ok(names)
    }

    /// How the named steps ended and what they gave.
    pub fn steps(
        &self,
        tx: &Tx,
        task: &Task,
        job_id: JobId,
        secrecy: &mut Secrecy,
    ) -> Rendered<Value> {
        let mut steps = Map::new();
        for name in &self.steps {
            let Some(position) = task.position(name) else {
                continue;
            };
            let Some(step) = tx.step_at(job_id, position, None)? else {
                continue;
            };
            let output = match step_output(tx, &step, secrecy) {
                Ok(output) => output,
                Err(EngineError::Invalid { place, fault }) => {
                    let message = format!("the {place} of step {name} {fault}");
                    return Ok(Err(Failure::new(Reason::PayloadError, message)));
                }
                Err(error) => return Err(error),
            };
            let facts = json!({
                "status": step.state.as_str(),
                "output": output.as_ref().map_or(Value::Null, parsed),
                "error": step.message,
            });
            steps.insert(name.clone(), facts);
        }
        Ok(Ok(Value::Object(steps)))
    }
}

pub(super) fn of_item(index: u32, item: &Json) -> Value {
    // Version 0.1 could store sealed values as items.
    json!({"index": index, "item": Sealer::masked(&parsed(item))})
}

/// What everything of a job may speak of.
pub(super) fn of_job(job: &Job, attempt: u32) -> Map<String, Value> {
    let facts = json!({
        "id": job.job_id.0,
        "task": job.task,
        "attempt": attempt,
        "started_at": rfc3339(job.started_at.unwrap_or(job.created_at)),
        "scheduled_at": job.scheduled_for.map(rfc3339),
    });
    Map::from_iter([("job".to_string(), facts)])
}

pub(super) fn context_of(scope: Map<String, Value>) -> Context {
    let mut context = Context::new();
    for (name, value) in scope {
        context.set(&name, value);
    }
    context
}

/// Inputs as templates see them: what is asked for and was not given is null, and not unknown.
pub(super) fn declared(specs: &[ValueSpec], given: &Value) -> Value {
    let nulls = specs.iter().map(|spec| (spec.name.clone(), Value::Null));
    let mut values: Map<String, Value> = nulls.collect();
    if let Value::Object(given) = given {
        values.extend(given.clone());
    }
    Value::Object(values)
}

/// Text from our own tables: what is no JSON any more is nothing.
pub(super) fn parsed(json: &Json) -> Value {
    serde_json::from_str(&json.0).unwrap_or(Value::Null)
}

/// Every text that a value holds.
pub(super) fn texts_in(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) => list.iter().flat_map(texts_in).collect(),
        Value::Object(map) => map.values().flat_map(texts_in).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

pub(super) fn rfc3339(at: Timestamp) -> String {
    rfc3339_ms(at)
}
