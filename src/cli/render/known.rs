//! What templates speak of that is known before a job runs, and what is not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::exit::{Exit, Fault};
use super::{Part, StepRendering};
use crate::domain::Json;
use crate::domain::task::{Action, Items, Rules, StepDraft, TaskDraft, is_template};
use crate::domain::value::ValueSpec;
use crate::language::arguments;
use crate::language::manifest;
use crate::language::shell::Program;
use crate::language::template::{self, Context, TemplateFault};
use crate::language::values::check_values;

/// Instead of what nobody may see.
pub const HIDDEN: &str = "***";

/// When the rest of something is known.
type Unknown = BTreeSet<String>;

#[derive(Clone)]
pub struct Scope<'t> {
    task: &'t TaskDraft,
    context: Context,
    env: BTreeMap<String, String>,
    /// By name: what depends on the job.
    unknown_env: BTreeMap<String, Unknown>,
    unknown_input: BTreeMap<String, Unknown>,
    knows_item: bool,
}

impl<'t> Scope<'t> {
    pub fn new(task: &'t TaskDraft, input: &Map<String, Value>) -> Scope<'t> {
        let secrets = task.secrets.keys();
        let secrets: Map<String, Value> = secrets
            .map(|name| (name.clone(), Value::from(HIDDEN)))
            .collect();
        let context = Context::new()
            .with("input", declared(&task.inputs, input))
            .with("secret", Value::Object(secrets))
            .with("steps", json!({}))
            .with("job", json!({ "task": task.name }));
        Scope {
            task,
            context,
            env: BTreeMap::new(),
            unknown_env: BTreeMap::new(),
            unknown_input: BTreeMap::new(),
            knows_item: false,
        }
    }

    /// Once; of a loop whose list is known, once for each item.
    pub fn render(&self, step: &StepDraft) -> anyhow::Result<Vec<StepRendering>> {
        let Some(for_each) = &step.for_each else {
            return Ok(vec![self.clone().instance(
                step,
                step.name.clone(),
                None,
            )?]);
        };
        let list = match &for_each.items {
            Items::List(items) => {
                let texts: Vec<&str> = items.iter().map(|item| item.0.as_str()).collect();
                Json(format!("[{}]", texts.join(",")))
            }
            Items::Template(text) => Json(Value::from(text.as_str()).to_string()),
        };
        let part = self.part(step, "for_each", &list)?;
        let Value::Array(items) = part.value.clone() else {
            if part.unknown.is_empty() {
                let fault = "gives no list".to_string();
                return Err(refused(step, "for_each", &fault));
            }
            return Ok(vec![self.clone().instance(
                step,
                step.name.clone(),
                Some(part),
            )?]);
        };
        if !part.unknown.is_empty() {
            return Ok(vec![self.clone().instance(
                step,
                step.name.clone(),
                Some(part),
            )?]);
        }
        let instances = items.into_iter().enumerate().map(|(index, item)| {
            let mut scope = self.clone();
            scope.knows_item = true;
            let each = json!({ "index": index, "item": item });
            scope.context.set("each", each.clone());
            let part = Part {
                key: "each.item".to_string(),
                value: item,
                unknown: Vec::new(),
            };
            scope.instance(step, format!("{}[{index}]", step.name), Some(part))
        });
        instances.collect()
    }

    /// The same steps in the same order as the engine takes when it makes an assignment.
    fn instance(
        mut self,
        step: &StepDraft,
        name: String,
        of_loop: Option<Part>,
    ) -> anyhow::Result<StepRendering> {
        let mut parts: Vec<Part> = of_loop.into_iter().collect();
        if let Some(when) = &step.when {
            // It is asked before the step has an item.
            let mut part = self.part(step, "when", when)?;
            if part.unknown.is_empty() {
                part.value = Value::from(!template::means_no(&part.value));
            }
            parts.push(part);
        }
        let is_work = !matches!(step.action, Action::Task { .. } | Action::Approval { .. });
        if is_work {
            self.set_env(step, &self.task.env.clone())?;
        }
        let own_env = self.variables(step, &step.env)?;
        let given = self.input_of(step)?;
        parts.extend(given);
        if let Some(named) = step.named_action.as_ref().filter(|_| is_work) {
            self.set_env(step, &named.env.clone())?;
        }
        for (name, value, unknown) in own_env {
            self.set_variable(name, value, unknown);
        }
        if is_work {
            self.context.set("env", json!(self.env));
            parts.extend(self.env.iter().map(|(name, value)| {
                Part {
                    key: format!("env.{name}"),
                    value: Value::from(value.as_str()),
                    unknown: self
                        .unknown_env
                        .get(name)
                        .into_iter()
                        .flatten()
                        .cloned()
                        .collect(),
                }
            }));
        }
        parts.extend(self.action(step)?);
        if let Some(workdir) = &step.workdir {
            parts.push(self.text(step, "workdir", workdir)?);
        }
        Ok(StepRendering {
            name,
            kind: step.action.word().to_string(),
            parts,
        })
    }

    fn action(&self, step: &StepDraft) -> anyhow::Result<Vec<Part>> {
        let mut parts = Vec::new();
        match &step.action {
            Action::Script {
                image,
                language,
                script,
                ..
            } => {
                if let Some(image) = image {
                    parts.push(self.text(step, "image", image)?);
                }
                let mut program = Program::of(language.as_deref(), script);
                if let Some(language) = language {
                    let part = self.text(step, "language", language)?;
                    program = Program::of(part.value.as_str(), script);
                    parts.push(part);
                }
                let faults = template::script_faults(script, program);
                if let Err(fault) = faults {
                    return Err(refused(step, "script", &fault.message));
                }
                parts.push(self.text(step, "script", script)?);
            }
            Action::Docker {
                image,
                entrypoint,
                command,
            } => {
                parts.push(self.text(step, "image", image)?);
                for (key, words) in [("entrypoint", entrypoint), ("command", command)] {
                    for (at, word) in words.iter().enumerate() {
                        parts.push(self.text(step, &format!("{key}[{at}]"), word)?);
                    }
                }
                // The server checks again what it has rendered. What is not known yet, it will check when the job runs.
                let made = parts.iter().map(|part| part.value.as_str());
                let made = made.map(|text| text.unwrap_or_default().to_string());
                let made: Vec<String> = made.collect();
                let (made_image, made_words) = (&made[0], &made[1..]);
                let made_words = made_words.split_at(entrypoint.len());
                if step.rules >= Rules::V2 {
                    arguments::check_rendered(made_image, (entrypoint, command), made_words)
                        .map_err(|(key, fault)| refused(step, key, &fault.message))?;
                }
            }
            Action::Pod { manifest } => {
                // As the server does: what has templates is read first and rendered scalar by scalar.
                let is_tree = is_template(manifest) || manifest.starts_with('{');
                let tree = manifest::read(manifest).ok().filter(|_| is_tree);
                parts.push(match tree.filter(Value::is_object) {
                    Some(tree) => {
                        let mut part = self.part(step, "manifest", &Json(tree.to_string()))?;
                        if step.rules >= Rules::V2 && part.unknown.is_empty() {
                            let named = step.named_action.iter().map(|named| &named.env);
                            let envs = std::iter::once(&self.task.env).chain(named);
                            let envs = envs.chain([&step.env]);
                            part.value = manifest::render(&tree, envs, &self.context)
                                .map_err(|fault| refused(step, "manifest", &fault.message))?;
                        }
                        part
                    }
                    None => self.text(step, "manifest", manifest)?,
                });
            }
            Action::Task { task, input } => {
                parts.push(Part {
                    key: "task".to_string(),
                    value: Value::from(task.as_str()),
                    unknown: Vec::new(),
                });
                for (name, value) in object(input) {
                    let value = Json(value.to_string());
                    parts.push(self.part(step, &format!("input.{name}"), &value)?);
                }
            }
            Action::Approval { message, .. } => parts.push(self.text(step, "message", message)?),
        }
        Ok(parts)
    }

    /// What the step itself says about `input`: added to the job's, or all that a named action sees.
    fn input_of(&mut self, step: &StepDraft) -> anyhow::Result<Vec<Part>> {
        let mut parts = Vec::new();
        let mut known = Map::new();
        let mut unknown = BTreeMap::new();
        for (name, value) in object(&step.input) {
            let part = self.part(step, &format!("input.{name}"), &Json(value.to_string()))?;
            match part.unknown.is_empty() {
                true => {
                    known.insert(name, part.value.clone());
                }
                false => {
                    unknown.insert(name, part.unknown.iter().cloned().collect());
                }
            }
            parts.push(part);
        }
        match &step.named_action {
            Some(named) => {
                let is_known = |spec: &&ValueSpec| !unknown.contains_key(&spec.name);
                let specs: Vec<ValueSpec> = named.inputs.iter().filter(is_known).cloned().collect();
                let given = Value::Object(known);
                let mut values = check_values(&specs, &given).map_err(|violations| {
                    let told = violations.iter();
                    let told = told.map(|found| format!("{} {}", found.name, found.message));
                    let told = told.collect::<Vec<String>>().join("; ");
                    let fault = format!("does not fit action {}: {told}", named.name);
                    refused(step, "input", &fault)
                })?;
                for spec in named.inputs.iter().filter(|spec| spec.secret) {
                    if let Some(value) = values.get_mut(&spec.name) {
                        *value = Value::from(HIDDEN);
                    }
                }
                for part in &mut parts {
                    let name = part.key.trim_start_matches("input.");
                    if let Some(value) = values.get(name) {
                        part.value = value.clone();
                    }
                }
                self.context.set("input", declared(&named.inputs, &values));
                self.unknown_input = unknown;
            }
            None => {
                let mut seen = match self.context.get("input") {
                    Some(Value::Object(seen)) => seen.clone(),
                    _ => Map::new(),
                };
                unknown.keys().for_each(|name: &String| {
                    seen.insert(name.clone(), Value::Null);
                });
                known.keys().for_each(|name| {
                    self.unknown_input.remove(name);
                });
                seen.extend(known);
                self.context.set("input", Value::Object(seen));
                self.unknown_input.extend(unknown);
            }
        }
        Ok(parts)
    }

    fn set_env(&mut self, step: &StepDraft, env: &BTreeMap<String, String>) -> anyhow::Result<()> {
        for (name, value, unknown) in self.variables(step, env)? {
            self.set_variable(name, value, unknown);
        }
        self.context.set("env", json!(self.env));
        Ok(())
    }

    fn set_variable(&mut self, name: String, value: String, unknown: Unknown) {
        match unknown.is_empty() {
            true => self.unknown_env.remove(&name),
            false => self.unknown_env.insert(name.clone(), unknown),
        };
        self.env.insert(name, value);
    }

    fn variables(
        &self,
        step: &StepDraft,
        env: &BTreeMap<String, String>,
    ) -> anyhow::Result<Vec<(String, String, Unknown)>> {
        let rendered = env.iter().map(|(name, text)| {
            let value = Json(Value::from(text.as_str()).to_string());
            let part = self.part(step, &format!("env.{name}"), &value)?;
            let text = match part.value {
                Value::Null => String::new(),
                Value::String(text) => text,
                other => other.to_string(),
            };
            Ok((name.clone(), text, part.unknown.into_iter().collect()))
        });
        rendered.collect()
    }

    /// As text, whatever it gives.
    fn text(&self, step: &StepDraft, key: &str, text: &str) -> anyhow::Result<Part> {
        let mut unknown = Unknown::new();
        let rendered = self.pieces(text, &mut unknown);
        let rendered = rendered.map_err(|fault| refused(step, key, &fault.message))?;
        Ok(Part {
            key: key.to_string(),
            value: Value::from(rendered),
            unknown: unknown.into_iter().collect(),
        })
    }

    /// With every text in it rendered; one that is a single expression keeps its type.
    fn part(&self, step: &StepDraft, key: &str, json: &Json) -> anyhow::Result<Part> {
        let mut unknown = Unknown::new();
        let value: Value = serde_json::from_str(&json.0).unwrap_or(Value::Null);
        let value = self.tree(value, &mut unknown);
        let value = value.map_err(|fault| refused(step, key, &fault.message))?;
        Ok(Part {
            key: key.to_string(),
            value,
            unknown: unknown.into_iter().collect(),
        })
    }

    fn tree(&self, value: Value, unknown: &mut Unknown) -> Result<Value, TemplateFault> {
        Ok(match value {
            Value::String(text) => {
                let why = self.why_unknown(&text)?;
                match why.is_empty() {
                    true => template::evaluate(&text, &self.context)?,
                    false => Value::from(self.pieces(&text, unknown)?),
                }
            }
            Value::Array(items) => {
                let items = items.into_iter().map(|item| self.tree(item, unknown));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Value::Object(map) => {
                let rendered = map
                    .into_iter()
                    .map(|(key, value)| Ok((key, self.tree(value, unknown)?)));
                Value::Object(rendered.collect::<Result<_, TemplateFault>>()?)
            }
            plain => plain,
        })
    }

    /// Each `{{ … }}` by itself: those that are known are rendered, the others stay. Where statements connect them, all or none.
    fn pieces(&self, text: &str, unknown: &mut Unknown) -> Result<String, TemplateFault> {
        let why = self.why_unknown(text)?;
        if why.is_empty() {
            return template::render_text(text, &self.context);
        }
        unknown.extend(why);
        if ["{%", "{{-", "-}}"]
            .iter()
            .any(|joint| text.contains(joint))
        {
            return Ok(text.to_string());
        }
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("{{") {
            let ends = rest[start..].match_indices("}}");
            let mut ends = ends.map(|(at, _)| start + at + 2);
            let Some(end) = ends.find(|&end| template::is_single_expression(&rest[start..end]))
            else {
                break;
            };
            out.push_str(&rest[..start]);
            let piece = &rest[start..end];
            match self.why_unknown(piece)?.is_empty() {
                true => out.push_str(&template::render_text(piece, &self.context)?),
                false => out.push_str(piece),
            }
            rest = &rest[end..];
        }
        Ok(out + rest)
    }

    /// When all that a text speaks of is known. Empty: it is now.
    fn why_unknown(&self, text: &str) -> Result<Unknown, TemplateFault> {
        let mut unknown = Unknown::new();
        if !is_template(text) {
            return Ok(unknown);
        }
        let of = |known: &BTreeMap<String, Unknown>, name: Option<&str>| -> Unknown {
            let found = known
                .iter()
                .filter(|(known, _)| name.is_none_or(|name| *known == name));
            found.flat_map(|(_, why)| why.clone()).collect()
        };
        for mention in template::mentions(text)? {
            let name = mention.path.get(1).map(String::as_str);
            match (mention.path.first().map(String::as_str), name) {
                (Some("steps"), Some(step)) => {
                    unknown.insert(format!("when {step} has ended"));
                }
                (Some("steps"), None) => {
                    unknown.insert("when the steps before have ended".to_string());
                }
                (Some("job"), Some("task")) => {}
                (Some("job"), _) => {
                    unknown.insert("when the job runs".to_string());
                }
                (Some("each"), _) if !self.knows_item => {
                    unknown.insert("when the loop begins".to_string());
                }
                (Some("env"), name) => unknown.extend(of(&self.unknown_env, name)),
                (Some("input"), name) => unknown.extend(of(&self.unknown_input, name)),
                _ => {}
            }
        }
        Ok(unknown)
    }
}

fn refused(step: &StepDraft, key: &str, fault: &str) -> anyhow::Error {
    let message = format!("step {}, {key}: {fault}", step.name);
    Fault::new(Exit::Invalid, message).into()
}

/// What is asked for and was not given is null, and not unknown.
fn declared(specs: &[ValueSpec], given: &Map<String, Value>) -> Value {
    let nulls = specs.iter().map(|spec| (spec.name.clone(), Value::Null));
    let mut values: Map<String, Value> = nulls.collect();
    values.extend(given.clone());
    Value::Object(values)
}

fn object(json: &Json) -> Map<String, Value> {
    match serde_json::from_str(&json.0) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}
