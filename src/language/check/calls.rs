//! What tasks and actions are given: by steps, hooks, schedules and webhooks.

use serde_json::Value;

use super::super::decode::{Does, HookTarget, Owner, Place, StepParts, TaskParts, Text};
use super::super::scalar;
use super::super::source::Span;
use super::super::template;
use super::super::tree::{Entry, Kind, Node, Style};
use super::super::values;
use super::super::words::{listed, nearest};
use super::Checker;
use super::inside::inside;
use super::names::Takes;
use crate::domain::task::is_template;

/// Who is given something.
#[derive(Clone, Copy, PartialEq)]
enum Target {
    Task,
    Action,
}

impl Target {
    fn word(self) -> &'static str {
        match self {
            Target::Task => "task",
            Target::Action => "action",
        }
    }
}

impl<'t> Checker<'_, 't> {
    pub fn calls(&mut self, task: &TaskParts<'t>) {
        for step in &task.steps {
            self.step_calls(step, task);
        }
        for hook in &task.hooks {
            let (target, name, span) = match hook.does {
                HookTarget::Action { name, span } => (Target::Action, name, span),
                HookTarget::Task { name, span } => (Target::Task, name, span),
                HookTarget::Notify { .. } => continue,
            };
            self.call(target, name, span, &hook.owner, hook.input_entry);
            self.kept(target, name, &hook.texts, hook.input_entry, task);
        }
        let own = |names: &super::Names<'t>| {
            names
                .tasks
                .get(task.key.text.as_str())
                .is_some_and(|takes| takes.span == task.key.span)
        };
        // A second task of this name was told so, and its inputs are not those that are known.
        if !own(&self.names) {
            return;
        }
        for schedule in &task.schedules {
            self.given(
                Target::Task,
                &task.key.text,
                &schedule.owner,
                schedule.input_entry,
            );
        }
        for webhook in &task.webhooks {
            self.given(
                Target::Task,
                &task.key.text,
                &webhook.owner,
                webhook.input_entry,
            );
        }
    }

    fn step_calls(&mut self, step: &StepParts<'t>, task: &TaskParts<'t>) {
        match &step.does {
            Does::Calls { task: name, span } => {
                self.call(Target::Task, name, *span, &step.owner, step.input_entry);
                self.kept(Target::Task, name, &step.texts, step.input_entry, task);
            }
            Does::Uses { action, span } => {
                self.call(Target::Action, action, *span, &step.owner, step.input_entry);
            }
            Does::Own { .. } | Does::Unknown => {}
        }
    }

    fn call(
        &mut self,
        target: Target,
        name: &str,
        span: Span,
        owner: &Owner,
        input: Option<&'t Entry>,
    ) {
        let known = match target {
            Target::Task => &self.names.tasks,
            Target::Action => &self.names.actions,
        };
        if known.contains_key(name) {
            self.given(target, name, owner, input);
            return;
        }
        if !self.names.all_known {
            return;
        }
        let (code, other) = match target {
            Target::Task => ("E033", self.names.actions.contains_key(name)),
            Target::Action => ("E037", self.names.tasks.contains_key(name)),
        };
        let near = match self.may_suggest() {
            true => nearest(name, known.keys().copied()),
            false => None,
        };
        let word = target.word();
        let message = format!("there is no {word} `{name}`");
        let problem = self.problems.error(code, span, message);
        problem
            .label(format!("no such {word}"))
            .also(owner.span, format!("in this {}", owner.kind));
        match near {
            _ if other && target == Target::Task => {
                problem.help(format!("`{name}` is an action: write `action: {name}`"));
            }
            _ if other => {
                problem.help(format!(
                    "`{name}` is a task: write `type: task` and `task: {name}`"
                ));
            }
            Some(near) => {
                problem
                    .help(format!("did you mean `{near}`?"))
                    .fix(span, near);
            }
            None => {
                problem.help(format!(
                    "define it under `{word}s:`; if it is in another file, validate the whole folder"
                ));
            }
        }
    }

    /// What is given, against what is taken.
    fn given(&mut self, target: Target, name: &str, owner: &Owner, input: Option<&'t Entry>) {
        let known = match target {
            Target::Task => &self.names.tasks,
            Target::Action => &self.names.actions,
        };
        let Some(takes) = known.get(name).filter(|takes| takes.whole) else {
            return;
        };
        let entries: &[Entry] = match input.map(|entry| &entry.value.kind) {
            Some(Kind::Map(entries)) => entries,
            Some(Kind::Broken) => return,
            _ => &[],
        };
        let word = target.word();
        let mut found = Vec::new();
        for entry in entries {
            let key = &entry.key;
            let Some(spec) = takes.inputs.iter().find(|spec| spec.name == key.text) else {
                let names: Vec<&str> = takes.inputs.iter().map(|spec| spec.name.as_str()).collect();
                let near = match found.len() < SUGGESTIONS_MAX {
                    true => nearest(&key.text, names.iter().copied()),
                    false => None,
                };
                let help = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if names.is_empty() => "it takes no inputs".to_string(),
                    None => format!("it takes {}", listed(names)),
                };
                let fix = near.map(str::to_string);
                found.push(Fault {
                    code: "E051",
                    span: key.span,
                    message: format!("{word} `{name}` takes no input `{}`", key.text),
                    label: "not an input of it".to_string(),
                    help: Some(help),
                    fix,
                    also: takes.span,
                });
                continue;
            };
            if let Some(value) = literal(&entry.value)
                && let Err(fault) = values::check_value(spec, &value)
            {
                found.push(Fault {
                    code: "E053",
                    span: entry.value.span,
                    message: format!(
                        "`{}` does not fit what {word} `{name}` takes: {fault}",
                        key.text
                    ),
                    label: "does not fit".to_string(),
                    help: None,
                    fix: None,
                    also: takes.span,
                });
            }
        }
        let given = |name: &str| entries.iter().any(|entry| entry.key.text == name);
        for spec in &takes.inputs {
            if spec.required && spec.default.is_none() && !given(&spec.name) {
                let at = input.map_or(owner.span, |entry| entry.key.span);
                found.push(Fault {
                    code: "E052",
                    span: at,
                    message: format!("{word} `{name}` needs the input `{}`", spec.name),
                    label: format!("`{}` is not given", spec.name),
                    help: Some(format!("add it: `input: {{ {}: … }}`", spec.name)),
                    fix: None,
                    also: takes.span,
                });
            }
        }
        for fault in found {
            let problem = self.problems.error(fault.code, fault.span, fault.message);
            problem.label(fault.label);
            if fault.also != owner.span {
                problem.also(fault.also, format!("this {word}"));
            }
            if let Some(help) = fault.help {
                problem.help(help);
            }
            if let Some(fix) = fault.fix {
                problem.fix(fault.span, fix);
            }
        }
    }

    /// A secret input is given on only to an input that is secret too: all others are kept as they are.
    fn kept(
        &mut self,
        target: Target,
        name: &str,
        texts: &[Text<'t>],
        input: Option<&'t Entry>,
        task: &TaskParts<'t>,
    ) {
        let known: &Takes = match target {
            Target::Task => match self.names.tasks.get(name) {
                Some(takes) => takes,
                None => return,
            },
            Target::Action => match self.names.actions.get(name) {
                Some(takes) => takes,
                None => return,
            },
        };
        let Some(Kind::Map(entries)) = input.map(|entry| &entry.value.kind) else {
            return;
        };
        let secret_of = |name: &str| {
            task.inputs
                .iter()
                .any(|input| input.spec.name == name && input.spec.secret)
        };
        let mut found = Vec::new();
        for text in texts {
            if !matches!(text.place, Place::CallInput | Place::HookInput) {
                continue;
            }
            // Entries stand in the order of the file.
            let start = text.node.span.start;
            let behind = entries.partition_point(|entry| entry.value.span.start <= start);
            let Some(entry) = behind.checked_sub(1).map(|at| &entries[at]) else {
                continue;
            };
            let spec = known.inputs.iter().find(|spec| spec.name == entry.key.text);
            if spec.is_none_or(|spec| spec.secret) {
                continue;
            }
            for mention in template::mentions(&text.text).unwrap_or_default() {
                if let [root, input, ..] = mention.path.as_slice()
                    && root == "input"
                    && secret_of(input)
                {
                    let span = inside(self.sources, text, mention.span.clone());
                    found.push((span, input.clone(), entry.key.text.clone()));
                }
            }
        }
        for (span, secret, given) in found {
            let message = format!("the secret input `{secret}` would be stored");
            self.problems
                .error("E046", span, message)
                .label(format!(
                    "`{given}` of {} `{name}` is not secret",
                    target.word()
                ))
                .help(format!("add `secret: true` to `{given}` there"));
        }
    }
}

/// Of one call: looking for what was meant costs as much as there are names.
const SUGGESTIONS_MAX: usize = 100;

struct Fault {
    code: &'static str,
    span: Span,
    message: String,
    label: String,
    help: Option<String>,
    fix: Option<String>,
    also: Span,
}

/// The value, if nothing in it has to be rendered.
fn literal(node: &Node) -> Option<Value> {
    Some(match &node.kind {
        Kind::Broken => return None,
        Kind::Scalar(scalar) if is_template(&scalar.text) => return None,
        Kind::Scalar(scalar) if scalar.style == Style::Plain => scalar::json(&scalar.text)?,
        Kind::Scalar(scalar) => Value::String(scalar.text.clone()),
        Kind::List(members) => members.iter().map(literal).collect::<Option<_>>()?,
        Kind::Map(entries) => {
            let entries = entries.iter();
            let entries =
                entries.map(|entry| Some((entry.key.text.clone(), literal(&entry.value)?)));
            Value::Object(entries.collect::<Option<_>>()?)
        }
    })
}
