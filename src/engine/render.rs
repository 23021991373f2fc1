//! What a worker is given, made from what the definition says: templates rendered, secrets looked up. After the commit and
//! outside of any transaction, since a secret may be in a file on a slow disk and a template may take its time.
//!
//! Secrets are in the assignment and nowhere else. An assignment that cannot be made fails its step.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::cascade::{Cascade, Failure};
use super::inputs::sentence;
use super::scope::{Names, context_of, declared, of_item, of_job, parsed, texts_in};
use super::sealed::{Secrecy, opened_input};
use super::{Engine, EngineError};
use crate::domain::check::{Fault, image_fault};
use crate::domain::limits;
use crate::domain::protocol::{Assignment, PollAnswer, Unrendered};
use crate::domain::reason::Reason;
use crate::domain::step::StepState;
use crate::domain::task::{Action, Rules, StepDraft, Task, TaskDraft, is_template};
use crate::domain::value::ValueSpec;
use crate::domain::{AttemptRef, Json, Now};
use crate::language::arguments;
use crate::language::manifest;
use crate::language::shell::Program;
use crate::language::template::{self, Context, TemplateFault};
use crate::language::values::{Violation, check_values};
use crate::sealer::Sealer;
use crate::secret_policy::SecretPolicy;
use crate::store::{Claim, Ending, Tx};

/// What a step says that has to be made before a worker can see it. `None`: nothing, as it stands it is what it is.
pub(super) fn unrendered(
    tx: &Tx,
    task: &Task,
    draft: &StepDraft,
    claim: &Claim,
    attempt: u32,
    input: &Json,
) -> Result<Option<Box<Unrendered>>, EngineError> {
    // Version 0.1 could leave sealed values in inputs that are not secret. Such a step fails when its input is opened.
    if !task.is_unrendered(claim.position) && Sealer::with_reserved_key(&input.0).is_none() {
        return Ok(None);
    }
    let texts = texts_of(&task.draft, draft);
    let job_id = claim.job_id;
    let job = tx.job(job_id)?.ok_or(EngineError::JobNotFound { job_id })?;
    // One that cannot be read says nothing here, and the same fault when it is rendered.
    let names = Names::of(texts.iter().map(|text| &**text)).unwrap_or_default();
    let mut scope = of_job(&job, attempt);
    let mut secrecy = Secrecy::Opened(Vec::new());
    let (steps, fault) = match names.steps(tx, task, job_id, &mut secrecy)? {
        Ok(steps) => (steps, None),
        Err(failure) => (Value::Null, Some(failure.message)),
    };
    scope.insert("steps".to_string(), steps);
    // What is asked for and not given is known to templates, and absent from what the step is given.
    let asked = declared(&task.draft.inputs, &Value::Null);
    scope.insert("input".to_string(), asked);
    if let (Some(index), Some(item)) = (claim.item, &claim.item_value) {
        scope.insert("each".to_string(), of_item(index, item));
    }
    let masks = match &secrecy {
        Secrecy::Opened(opened) => opened.iter().flat_map(shown_in).collect(),
        Secrecy::Masked => Vec::new(),
    };
    let secret_inputs = task.draft.inputs.iter().filter(|spec| spec.secret);
    let secrets = names.secrets.iter().filter_map(|name| {
        let secret = task.draft.secrets.get(name)?;
        Some((name.clone(), secret.clone()))
    });
    Ok(Some(Box::new(Unrendered {
        rules: draft.rules,
        task_env: task.draft.env.clone(),
        named_action: draft.named_action.clone(),
        input: draft.input.clone(),
        secrets: secrets.collect(),
        scope: Json(Value::Object(scope).to_string()),
        secret_inputs: secret_inputs.map(|spec| spec.name.clone()).collect(),
        seal_id: job.seal_id,
        masks,
        fault,
    })))
}

fn texts_of<'a>(task: &'a TaskDraft, draft: &'a StepDraft) -> Vec<Cow<'a, str>> {
    let named = draft
        .named_action
        .iter()
        .flat_map(|named| named.env.values());
    let variables = task.env.values().chain(draft.env.values()).chain(named);
    let texts = variables.chain(&draft.workdir).map(String::as_str);
    let mut texts: Vec<Cow<str>> = texts.map(Cow::from).collect();
    for (_, text) in draft.action.texts() {
        match &draft.action {
            Action::Pod { .. } if is_template(text) => match tree_of(text) {
                Some(tree) => texts.extend(texts_in(&tree).into_iter().map(Cow::from)),
                None => texts.push(text.into()),
            },
            _ => texts.push(text.into()),
        }
    }
    if is_template(&draft.input.0) {
        texts.extend(texts_in(&parsed(&draft.input)).into_iter().map(Cow::from));
    }
    texts
}

/// A manifest that was written as a tree, and not as text.
fn tree_of(manifest: &str) -> Option<Value> {
    serde_json::from_str(manifest).ok().filter(Value::is_object)
}

/// What the secret ones among the given inputs hold, as the step will see it.
fn masks_of(specs: &[ValueSpec], input: &Map<String, Value>) -> Vec<String> {
    let secret = specs.iter().filter(|spec| spec.secret);
    let values = secret.filter_map(|spec| input.get(&spec.name));
    values.flat_map(shown_in).collect()
}

/// Returns the texts and numbers anywhere inside a secret value: printing one of them would show a part of the secret. The keys of an
/// object are names and stay readable.
fn shown_in(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Number(number) => vec![number.to_string()],
        Value::Array(list) => list.iter().flat_map(shown_in).collect(),
        Value::Object(map) => map.values().flat_map(shown_in).collect(),
        Value::Null | Value::Bool(_) => Vec::new(),
    }
}

impl Engine {
    /// The answer as a worker may see it. Steps whose assignment cannot be made have failed, and are not in it.
    pub fn render(&self, answer: PollAnswer, now: Now) -> Result<PollAnswer, EngineError> {
        if answer
            .assignments
            .iter()
            .all(|given| given.unrendered.is_none())
        {
            return Ok(answer);
        }
        let mut assignments = Vec::with_capacity(answer.assignments.len());
        for mut assignment in answer.assignments {
            let Some(unrendered) = assignment.unrendered.take() else {
                assignments.push(assignment);
                continue;
            };
            let attempt = assignment.attempt;
            match self.make(assignment, *unrendered) {
                Ok(assignment) => assignments.push(assignment),
                Err(failure) => self.fail_assignment(attempt, failure, now)?,
            }
        }
        Ok(PollAnswer {
            assignments,
            ..answer
        })
    }

    fn make(
        &self,
        mut assignment: Assignment,
        unrendered: Unrendered,
    ) -> Result<Assignment, Failure> {
        let mut masks = unrendered.masks.clone();
        let made = self
            .open_input(&assignment.input, &unrendered, &mut masks)
            .and_then(|input| {
                let scope = object(parsed(&unrendered.scope));
                assignment.action = make(
                    &mut assignment,
                    input,
                    scope,
                    unrendered,
                    &self.secret_policy,
                    &mut masks,
                )?;
                Ok(())
            });
        assignment.masks = masks;
        match made {
            Ok(()) => Ok(assignment),
            // What went wrong with a value may have been said with the value.
            Err(failure) => Err(Failure {
                message: masked(failure.message, &assignment.masks),
                ..failure
            }),
        }
    }

    /// The job's input with its secret values open, which must be masked wherever they are shown.
    fn open_input(
        &self,
        input: &Json,
        unrendered: &Unrendered,
        masks: &mut Vec<String>,
    ) -> Result<Map<String, Value>, Failure> {
        let mut opened = Vec::new();
        let open = opened_input(
            |place, value| self.store.unseal(place, value),
            unrendered.seal_id,
            unrendered.secret_inputs.iter().map(String::as_str),
            object(parsed(input)),
            &mut opened,
        );
        masks.extend(opened.iter().flat_map(shown_in));
        open.map_err(|why| Failure::new(Reason::PayloadError, why))
    }

    fn fail_assignment(
        &self,
        attempt: AttemptRef,
        failure: Failure,
        now: Now,
    ) -> Result<(), EngineError> {
        let settings = self.settings;
        let message = limits::clip(&failure.message, limits::MESSAGE_BYTES_MAX);
        self.write(now, move |tx| {
            let step_id = attempt.step_id;
            let step = tx
                .step(step_id)?
                .ok_or(EngineError::StepNotFound { step_id })?;
            // An attempt that started on delivery, and that its worker has not listed, was not delivered either.
            let is_undelivered = match step.state {
                StepState::Assigned => true,
                _ => tx.is_unconfirmed(attempt)?,
            };
            if !is_undelivered || step.attempt != attempt.attempt {
                return Ok(());
            }
            let mut cascade = Cascade::new(tx, &settings, now);
            let ending = Ending::failed(failure.reason, message.clone());
            cascade.finish_step(&step, ending)?;
            cascade.settle()
        })
    }
}

fn masked(message: String, masks: &[String]) -> String {
    // The longest first: one may be part of another.
    let mut masks: Vec<&String> = masks.iter().filter(|mask| !mask.is_empty()).collect();
    masks.sort_by_key(|mask| std::cmp::Reverse(mask.len()));
    masks.into_iter().fold(message, |message, mask| {
        message.replace(mask.as_str(), "***")
    })
}

/// Makes all of the assignment but its action, which it returns. What must not be seen is added to the masks, also if it fails.
fn make(
    assignment: &mut Assignment,
    of_the_job: Map<String, Value>,
    scope: Map<String, Value>,
    unrendered: Unrendered,
    policy: &SecretPolicy,
    masks: &mut Vec<String>,
) -> Result<Action, Failure> {
    if let Some(fault) = unrendered.fault {
        return Err(Failure::new(Reason::PayloadError, fault));
    }
    let mut context = context_of(scope);
    let mut secrets = Map::new();
    for (name, secret) in &unrendered.secrets {
        let value = policy
            .resolve(&secret.reference, secret.rules)
            .map_err(|why| Failure::new(Reason::PayloadError, format!("secret {name}: {why}")))?;
        // First, because the worker does not hide encoded forms of the last ones if there are very many.
        masks.insert(0, value.clone());
        secrets.insert(name.clone(), Value::String(value));
    }
    context.set("secret", Value::Object(secrets));
    let asked = context.get("input").cloned().unwrap_or_default();
    let seen = |input: &Map<String, Value>| {
        let mut seen = object(asked.clone());
        seen.extend(input.clone());
        Value::Object(seen)
    };
    context.set("input", seen(&of_the_job));

    let mut env = variables(&unrendered.task_env, &context, "env of the task")?;
    context.set("env", json!(env));
    let own_env = variables(&assignment.env, &context, "env")?;
    let given = template::render_value(&unrendered.input, &context).map_err(in_key("input"))?;
    let input = match &unrendered.named_action {
        Some(named) => {
            let place = format!("action {}", named.name);
            let input = check_values(&named.inputs, &given).map_err(|violations| {
                let told = match masks.is_empty() {
                    true => sentence(&violations),
                    // A value may be made of a secret, and be quoted in part.
                    false => names_of(&violations),
                };
                let message = format!("{place} does not take its input: {told}");
                Failure::new(Reason::PayloadError, message)
            })?;
            masks.extend(masks_of(&named.inputs, &input));
            context.set("input", declared(&named.inputs, &json!(input)));
            env.extend(variables(&named.env, &context, "env of the action")?);
            input
        }
        None => {
            let mut input = of_the_job;
            input.extend(object(given));
            context.set("input", seen(&input));
            input
        }
    };
    env.extend(own_env);
    context.set("env", json!(env));
    let text =
        |key: &'static str, text: &str| template::render_text(text, &context).map_err(in_key(key));
    let texts = |key: &'static str, words: &[String]| {
        let rendered = words.iter().map(|word| text(key, word));
        rendered.collect::<Result<Vec<String>, Failure>>()
    };
    let action = match assignment.action.clone() {
        Action::Script {
            runner,
            image,
            language,
            script,
        } => {
            let language = language.map(|word| text("language", &word)).transpose()?;
            let program = Program::of(language.as_deref(), &script);
            Action::Script {
                runner,
                image: image.map(|image| text("image", &image)).transpose()?,
                language,
                script: match unrendered.rules {
                    Rules::V1 => template::render_script_as_0_1(&script, program, &context),
                    Rules::V2 => template::render_script(&script, program, &context),
                }
                .map_err(in_key("script"))?,
            }
        }
        Action::Docker {
            image,
            entrypoint,
            command,
        } => {
            let image = text("image", &image)?;
            let made_entrypoint = texts("entrypoint", &entrypoint)?;
            let made_command = texts("command", &command)?;
            if unrendered.rules >= Rules::V2 {
                let made = (made_entrypoint.as_slice(), made_command.as_slice());
                arguments::check_rendered(&image, (&entrypoint, &command), made)
                    .map_err(|(key, fault)| in_key(key)(fault))?;
            }
            Action::Docker {
                image,
                entrypoint: made_entrypoint,
                command: made_command,
            }
        }
        Action::Pod { manifest } => Action::Pod {
            manifest: match unrendered.rules {
                Rules::V1 => match tree_of(&manifest) {
                    Some(_) => template::render_value(&Json(manifest), &context)
                        .map_err(in_key("manifest"))?
                        .to_string(),
                    None => text("manifest", &manifest)?,
                },
                Rules::V2 if is_template(&manifest) => {
                    let tree = manifest::read(&manifest)
                        .map_err(|why| Failure::new(Reason::TemplateError, why))?;
                    let named = unrendered.named_action.iter().map(|named| &named.env);
                    let envs = std::iter::once(&unrendered.task_env).chain(named);
                    let envs = envs.chain([&assignment.env]);
                    let made =
                        manifest::render(&tree, envs, &context).map_err(in_key("manifest"))?;
                    made.to_string()
                }
                Rules::V2 => manifest,
            },
        },
        other @ (Action::Task { .. } | Action::Approval { .. }) => other,
    };
    let workdir = assignment.workdir.as_deref();
    assignment.workdir = workdir.map(|dir| text("workdir", dir)).transpose()?;
    assignment.input = Json(Value::Object(input).to_string());
    assignment.env = env;
    check(&action)?;
    Ok(action)
}

fn names_of(violations: &[Violation]) -> String {
    let names: Vec<&str> = violations.iter().map(|found| found.name.as_str()).collect();
    format!(
        "{} (values are not shown, there are secrets)",
        names.join(", ")
    )
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn in_key(key: &'static str) -> impl Fn(TemplateFault) -> Failure {
    move |fault| Failure::new(Reason::TemplateError, format!("{key}: {}", fault.message))
}

fn variables(
    env: &BTreeMap<String, String>,
    context: &Context,
    place: &str,
) -> Result<BTreeMap<String, String>, Failure> {
    let rendered = env.iter().map(|(name, text)| {
        let value = template::evaluate(text, context).map_err(|fault| {
            let message = format!("{place}, {name}: {}", fault.message);
            Failure::new(Reason::TemplateError, message)
        })?;
        // Nothing is an empty variable, and a text is itself.
        let value = match value {
            Value::Null => String::new(),
            Value::String(text) => text,
            other => other.to_string(),
        };
        Ok((name.clone(), value))
    });
    rendered.collect()
}

/// What was checked as it was written is checked again as it was made.
fn check(action: &Action) -> Result<(), Failure> {
    let fault = |key: &str, fault: &str| {
        let message = format!("{key}, as it was rendered, {fault}");
        Err(Failure::new(Reason::PayloadError, message))
    };
    for (key, text) in action.texts() {
        if text.len() > limits::SCRIPT_BYTES_MAX {
            return fault(key, "is too long");
        }
        if text.contains('\0') {
            return fault(key, "holds a NUL byte");
        }
    }
    let image = match action {
        Action::Script { image, .. } => image.as_deref(),
        Action::Docker { image, .. } => Some(image.as_str()),
        _ => None,
    };
    match image.and_then(image_fault) {
        None => Ok(()),
        Some(Fault::BadCharacter { character }) => fault(
            "image",
            &format!("holds {character:?}, which is not allowed"),
        ),
        Some(_) => fault("image", "is not the name of an image"),
    }
}
