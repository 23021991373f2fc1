//! `stepward render`: a task as its steps will see it, as far as that is known before it runs. Nothing is asked but the files.
//!
//! What is secret is shown as `***` and never looked up. What only the job will know stays as the template that it is, with a
//! line that says when it is known.

mod known;
mod page;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::exit::{Exit, Fault};
use super::found::{self, Wanted};
use super::inputs::Given;
use super::look::Show;
use super::say::{answer_json, print};
use super::words::printable;
use crate::domain::task::{StepDraft, TaskDraft};
use crate::domain::value::ValueSpec;
use crate::language::values::check_values;
use crate::language::words::{listed, nearest};
use crate::wire::api::ValueJson;
use known::{HIDDEN, Scope};

#[derive(Args)]
#[command(before_help = "Examples:
  stepward render release -i version=1.4.0
  stepward render workflows/release.yaml --step publish
  stepward render release -i version=1.4.0 --json")]
pub struct RenderArgs {
    /// A task of this folder's workflows, or a workflow file.
    #[arg(value_name = "TASK|FILE")]
    task: String,
    /// The task, if the file has several.
    #[arg(long = "task", value_name = "NAME")]
    task_of_file: Option<String>,
    /// An input of the job, as for `run`: key=value, @FILE or @-.
    #[arg(short, long = "input", value_name = "KEY=VALUE")]
    inputs: Vec<String>,
    /// This step alone.
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// The folder of the file's neighbours: their tasks and actions are known then.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// The settings file of the server, for its workflows folder.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    show: Show,
}

/// What is printed with --json.
#[derive(Debug, Serialize)]
struct Rendering {
    task: String,
    /// With defaults filled in.
    input: Map<String, Value>,
    steps: Vec<StepRendering>,
}

/// A step, or an instance of a loop.
#[derive(Debug, Serialize)]
struct StepRendering {
    /// `test`, or `test[2]` where the list is known.
    name: String,
    #[serde(rename = "type")]
    kind: String,
    /// What was written, by key, in the order in which it is shown.
    parts: Vec<Part>,
}

#[derive(Debug, Serialize)]
struct Part {
    /// `script`, `image`, `env.NAME`, `input.NAME`, `command[0]`, …
    key: String,
    /// Rendered as far as it can be.
    value: Value,
    /// When the rest of it is known. Empty: all of it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
}

pub fn run(args: RenderArgs) -> anyhow::Result<Exit> {
    let found = found::here(&Wanted {
        word: &args.task,
        task: args.task_of_file.as_deref(),
        root: args.root.as_deref(),
        config: args.config.as_deref(),
        look: &args.show.look,
    })?;
    let draft = &found.definition.root().draft;
    let input = given(draft, &args.inputs)?;
    let chosen = chosen(draft, args.step.as_deref())?;
    let scope = Scope::new(draft, &input);
    let mut steps = Vec::new();
    for step in chosen {
        steps.extend(scope.render(step)?);
    }
    let rendering = Rendering {
        task: draft.name.clone(),
        input,
        steps,
    };
    match args.show.json {
        true => answer_json(&rendering),
        false => print(&page::page(&rendering)),
    };
    Ok(Exit::Success)
}

fn chosen<'t>(task: &'t TaskDraft, step: Option<&str>) -> anyhow::Result<Vec<&'t StepDraft>> {
    let Some(step) = step else {
        return Ok(task.steps.iter().collect());
    };
    if let Some(found) = task.steps.iter().find(|known| known.name == step) {
        return Ok(vec![found]);
    }
    let names = || task.steps.iter().map(|known| known.name.as_str());
    let hint = match nearest(step, names()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("there are {}", listed(names())),
    };
    let step = printable(step);
    let message = format!("task {} has no step {step:?}; {hint}", task.name);
    Err(Fault::not_found(message))
}

/// Typed, checked and filled up as a submission does it. Secret ones need not be given: nobody would see them.
fn given(task: &TaskDraft, inputs: &[String]) -> anyhow::Result<Map<String, Value>> {
    let invalid = |faults: Vec<String>| -> anyhow::Error {
        let message = format!(
            "task {} does not take this input:\n  {}",
            task.name,
            faults.join("\n  ")
        );
        Fault::new(Exit::Invalid, message).into()
    };
    let asked: Vec<ValueJson> = task.inputs.iter().map(ValueJson::from).collect();
    let values = Given::read(inputs)?.typed(&asked)?;
    let is_asked = |spec: &&ValueSpec| !spec.secret || values.contains_key(&spec.name);
    let specs: Vec<ValueSpec> = task.inputs.iter().filter(is_asked).cloned().collect();
    let mut values = check_values(&specs, &Value::Object(values)).map_err(|violations| {
        let told = violations.iter();
        invalid(
            told.map(|found| format!("{} {}", printable(&found.name), found.message))
                .collect(),
        )
    })?;
    for secret in task.inputs.iter().filter(|spec| spec.secret) {
        values.insert(secret.name.clone(), Value::from(HIDDEN));
    }
    Ok(values)
}
