//! What templates may speak of, as far as the database knows it: the job, its inputs, the steps that they name, the item of a loop.
//!
//! Secret inputs are sealed in all of it, since whatever is rendered here is kept. What a worker is given is rendered elsewhere,
//! in `render.rs`, where they are open.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::EngineError;
use super::cascade::{Cascade, Failure, JobContext};
use super::queries::step_output;
use crate::domain::job::Job;
use crate::domain::limits::LOOP_ITEMS_MAX;
use crate::domain::reason::Reason;
use crate::domain::step::StepHead;
use crate::domain::task::{Items, Task, is_template};
use crate::domain::{JobId, Json, Timestamp};
use crate::language::template::{self, Context, TemplateFault};
use crate::language::values::kind;
use crate::store::Tx;

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
        let value = self.render_kept(context, step, None, "when", &when)?;
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
        let value = match self.render_kept(context, step, None, "for_each", &list)? {
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

    /// Renders a value that will be kept in the database.
    pub(super) fn render_kept(
        &mut self,
        context: &JobContext,
        step: &StepHead,
        each: Option<&Json>,
        key: &str,
        value: &Json,
    ) -> Rendered<Value> {
        if !is_template(&value.0) {
            return Ok(Ok(parsed(value)));
        }
        let job = self.job_of(context)?;
        let names = match Names::of(texts_in(&parsed(value)).iter().map(String::as_str)) {
            Ok(names) => names,
            Err(fault) => return Ok(Err(in_key(key, fault))),
        };
        let mut scope = of_job(&job, step.attempt + 1);
        let steps = match names.steps(self.tx, context.task(), job.job_id)? {
            Ok(steps) => steps,
            Err(failure) => return Ok(Err(failure)),
        };
        scope.insert("input".to_string(), parsed(&job.input));
        scope.insert("steps".to_string(), steps);
        if let (Some(index), Some(item)) = (step.item, each) {
            scope.insert("each".to_string(), of_item(index, item));
        }
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
        let rendered = self.render_kept(context, step, None, key, &value)?;
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
    let at = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    format!("{at:.3}")
}
