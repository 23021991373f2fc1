//! What tasks and actions are given: by steps, hooks, schedules and webhooks.

use std::collections::HashSet;

use serde_json::Value;

use super::super::decode::{Does, HookTarget, Owner, Place, StepParts, TaskParts, Text};
use super::super::scalar;
use super::super::source::Span;
use super::super::template;
use super::super::tree::{Entry, Kind, Node, Style};
use super::super::values;
use super::super::words::listed;
use super::Checker;
use super::inside::inside;
use super::names::Takes;
use super::secret_inputs::SecretHolders;
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
        let holders = SecretHolders::of(&task.inputs, &task.steps);
        for step in &task.steps {
            if self.problems.is_out_of_time() {
                return;
            }
            self.step_calls(step, &holders);
        }
        for hook in &task.hooks {
            if self.problems.is_out_of_time() {
                return;
            }
            let (target, name, span) = match hook.does {
                HookTarget::Action { name, span } => (Target::Action, name, span),
                HookTarget::Task { name, span } => (Target::Task, name, span),
                HookTarget::Notify { .. } => continue,
            };
            self.call(target, name, span, &hook.owner, hook.input_entry);
            self.kept(target, name, &hook.texts, hook.input_entry, &holders);
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
            if self.problems.is_out_of_time() {
                return;
            }
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

    fn step_calls(&mut self, step: &StepParts<'t>, holders: &SecretHolders<'_>) {
        match &step.does {
            Does::Calls { task: name, span } => {
                self.call(Target::Task, name, *span, &step.owner, step.input_entry);
                self.kept(Target::Task, name, &step.texts, step.input_entry, holders);
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
            true => self.suggestions.nearest(name, known.keys().copied()),
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
            let Some(spec) = takes.input(&key.text) else {
                let may_suggest =
                    found.len() < SUGGESTIONS_MAX && !self.suggestions.are_exhausted();
                let names = || takes.inputs.iter().map(|spec| spec.name.as_str());
                let near = match may_suggest {
                    true => self.suggestions.nearest(&key.text, names()),
                    false => None,
                };
                let help = match near {
                    Some(near) => Some(format!("did you mean `{near}`?")),
                    None if takes.inputs.is_empty() => Some("it takes no inputs".to_string()),
                    None if may_suggest => Some(format!("it takes {}", listed(names()))),
                    None => None,
                };
                let fix = near.map(str::to_string);
                found.push(Fault {
                    code: "E051",
                    span: key.span,
                    message: format!("{word} `{name}` takes no input `{}`", key.text),
                    label: "not an input of it".to_string(),
                    help,
                    fix,
                    also: takes.span,
                });
                continue;
            };
            if let Some(value) = literal(&entry.value)
                && let Err(fault) =
                    values::check_value_until(spec, &value, &mut || self.problems.is_out_of_time())
                && !self.problems.is_out_of_time()
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
        let given: HashSet<&str> = entries
            .iter()
            .map(|entry| entry.key.text.as_str())
            .collect();
        let is_given = |at: &usize| given.contains(takes.inputs[*at].name.as_str());
        let mut missing = takes.needed.iter().filter(|at| !is_given(at));
        for &at in missing.by_ref().take(MISSING_TOLD_MAX) {
            let spec = &takes.inputs[at];
            found.push(Fault {
                code: "E052",
                span: input.map_or(owner.span, |entry| entry.key.span),
                message: format!("{word} `{name}` needs the input `{}`", spec.name),
                label: format!("`{}` is not given", spec.name),
                help: Some(format!("add it: `input: {{ {}: … }}`", spec.name)),
                fix: None,
                also: takes.span,
            });
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
        holders: &SecretHolders<'_>,
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
            let spec = known.input(&entry.key.text);
            if spec.is_none_or(|spec| spec.secret) {
                continue;
            }
            for mention in template::mentions(&text.text).unwrap_or_default() {
                if let Some(leak) = holders.leak(&mention) {
                    let span = inside(self.sources, text, mention.span.clone());
                    found.push((text, span, leak, entry.key.text.as_str()));
                }
            }
        }
        for (text, span, leak, given) in found {
            let label = format!("`{given}` of {} `{name}` is not secret", target.word());
            let problem = self.secret_leak(text, span, &leak, label);
            problem.help(format!("add `secret: true` to `{given}` there"));
        }
    }
}

/// Inputs that one call does not give and that are told one by one. A task with thousands of inputs may be called thousands of times.
const MISSING_TOLD_MAX: usize = 50;
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
