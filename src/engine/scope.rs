//! What templates may speak of, as far as the database knows it: the job, its inputs, the steps that they name, the item of a loop.
//!
//! What is secret is sealed in all of it, since what is rendered here is kept; it is open only for what is not kept (`when`) and for
//! what is sealed again. What a worker is given is rendered elsewhere, in `render.rs`, where it is open.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::EngineError;
use super::cascade::{Cascade, Failure, JobContext};
use super::queries::step_output;
use crate::domain::job::Job;
use crate::domain::limits::LOOP_ITEMS_MAX;
use crate::domain::reason::Reason;
use crate::domain::step::{Step, StepHead};
use crate::domain::task::{Items, Task, is_template};
use crate::domain::value::ValueSpec;
use crate::domain::{JobId, Json, Timestamp};
use crate::language::template::{self, Context, TemplateFault};
use crate::language::values::kind;
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
        let value = self.render(context, step, "when", &when, Seals::Opened)?;
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
        let value = match self.render(context, step, "for_each", &list, Seals::Closed)? {
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

    /// What a child job is given. What it keeps sealed is made of what is open, everything else of what is sealed.
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
        let scope = match self.scope(context, step, each, "input", &values)? {
            Ok(scope) => scope,
            Err(failure) => return Ok(Err(failure)),
        };
        Ok(render_input(self.tx, scope, values, specs))
    }

    fn scope(
        &mut self,
        context: &JobContext,
        step: &StepHead,
        each: Option<&Json>,
        key: &str,
        values: &Map<String, Value>,
    ) -> Rendered<Map<String, Value>> {
        let job = self.job_of(context)?;
        let texts: Vec<String> = values.values().flat_map(texts_in).collect();
        let names = match Names::of(texts.iter().map(String::as_str)) {
            Ok(names) => names,
            Err(fault) => return Ok(Err(in_key(key, fault))),
        };
        let mut scope = of_job(&job, step.attempt + 1);
        let steps = match names.steps(self.tx, context.task(), job.job_id)? {
            Ok(steps) => steps,
            Err(failure) => return Ok(Err(failure)),
        };
        let input = declared(&context.task().draft.inputs, &parsed(&job.input));
        scope.insert("input".to_string(), input);
        scope.insert("steps".to_string(), steps);
        if let (Some(index), Some(item)) = (step.item, each) {
            scope.insert("each".to_string(), of_item(index, item));
        }
        Ok(Ok(scope))
    }

    fn render(
        &mut self,
        context: &JobContext,
        step: &StepHead,
        key: &str,
        value: &Json,
        seals: Seals,
    ) -> Rendered<Value> {
        if !is_template(&value.0) {
            return Ok(Ok(parsed(value)));
        }
        let values = Map::from_iter([(key.to_string(), parsed(value))]);
        let scope = match self.scope(context, step, None, key, &values)? {
            Ok(scope) => scope,
            Err(failure) => return Ok(Err(failure)),
        };
        let scope = match seals {
            Seals::Closed => scope,
            Seals::Opened => match opened(self.tx, scope) {
                Ok(scope) => scope,
                Err(failure) => return Ok(Err(failure)),
            },
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
        let rendered = self.render(context, step, key, &value, Seals::Closed)?;
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

/// Whether templates see what is sealed as it is.
#[derive(Clone, Copy)]
enum Seals {
    Closed,
    /// For what is not kept, or sealed again.
    Opened,
}

fn opened(tx: &Tx, scope: Map<String, Value>) -> Result<Map<String, Value>, Failure> {
    let failure = |why| Failure::new(Reason::PayloadError, why);
    match tx.opened(&Value::Object(scope)).map_err(failure)? {
        Value::Object(scope) => Ok(scope),
        _ => unreachable!("an object opens to an object"),
    }
}

/// The input of a job that another one makes, as templates say. What the job keeps sealed is made of what is open.
pub(super) fn render_input(
    tx: &Tx,
    scope: Map<String, Value>,
    values: Map<String, Value>,
    specs: &[ValueSpec],
) -> Result<Value, Failure> {
    let is_secret = |name: &str| specs.iter().any(|spec| spec.secret && spec.name == name);
    let open = match values.keys().any(|name| is_secret(name)) {
        true => Some(context_of(opened(tx, scope.clone())?)),
        false => None,
    };
    let closed = context_of(scope);
    let mut rendered = Map::new();
    for (name, value) in values {
        let context = open.as_ref().filter(|_| is_secret(&name));
        let value = Json(value.to_string());
        let value = template::render_value(&value, context.unwrap_or(&closed));
        let value = value.map_err(|fault| in_key(&format!("input, {name}"), fault))?;
        rendered.insert(name, value);
    }
    Ok(Value::Object(rendered))
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
    pub fn steps(&self, tx: &Tx, task: &Task, job_id: JobId) -> Rendered<Value> {
        let mut steps = Map::new();
        for name in &self.steps {
            let Some(position) = task.position(name) else {
                continue;
            };
            let Some(step) = tx.step_at(job_id, position, None)? else {
                continue;
            };
            let output = match step_output(tx, &step) {
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
    json!({"index": index, "item": parsed(item)})
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
