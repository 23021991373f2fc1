//! Secrets on command lines, which every user of the worker's machine can read with `ps`.
//!
//! Scripts and variables are safe: a script reaches its container as a file or in a variable, and variables reach it in a file or
//! through the environment of the container engine's client.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Deref;
use std::rc::Rc;

use super::super::decode::{
    ActionParts, Document, Does, ManifestParts, Place, SpecParts, StepParts, TaskParts, Text,
};
use super::super::manifest;
use super::super::source::Span;
use super::super::template;
use super::super::tree::{Entry, Kind, Node};
use super::Checker;
use super::untrusted::{ActionUses, Origins, TaskAnswers};
use crate::domain::task::{Action, Runner, is_template};

/// The names that hold secrets in the templates of one step or action.
#[derive(Default, Clone)]
struct SecretNames<'s> {
    inputs: HashSet<&'s str>,
    env: HashSet<&'s str>,
    /// What approvals ask for, by the name of the step.
    approvals: Rc<HashMap<&'s str, HashSet<&'s str>>>,
}

/// The values of a using step that a named action puts on a command line.
#[derive(Default)]
pub struct CommandValues {
    /// Inputs that the action does not declare secret.
    inputs: NameSet,
    /// Variables that the step may set.
    step_env: NameSet,
    /// Variables that the task of the step may set.
    task_env: NameSet,
}

/// `CommandValues` by the name of the action.
pub type ActionCommandValues<'t> = HashMap<&'t str, CommandValues>;

#[derive(Default)]
struct NameSet {
    /// The set contains every name.
    is_all: bool,
    names: HashSet<String>,
}

impl NameSet {
    fn insert(&mut self, name: Option<&String>) {
        match name {
            Some(name) => {
                self.names.insert(name.clone());
            }
            None => self.is_all = true,
        }
    }

    fn contains(&self, name: &str) -> bool {
        self.is_all || self.names.contains(name)
    }
}

impl<'t> Checker<'_, 't> {
    /// Finds what each named action puts on a command line.
    pub fn action_command_values<'d>(
        &mut self,
        documents: &'d [Document<'t>],
        uses: &'d ActionUses<'d, 't>,
    ) -> ActionCommandValues<'t> {
        let mut by_action = ActionCommandValues::new();
        for action in documents.iter().flat_map(|document| &document.actions) {
            let Some(body) = &action.action else {
                continue;
            };
            let origins = Origins::of_action(action, uses, self.problems.budget());
            let words = command_words(body, &action.texts, action.manifest.as_ref(), &origins);
            let mut values = CommandValues::default();
            for word in words {
                if self.problems.is_out_of_time() {
                    return by_action;
                }
                values.add_word(&word.text, action);
            }
            by_action.insert(action.key.text.as_str(), values);
        }
        by_action
    }

    pub fn secrets_in_action_command<'d>(
        &mut self,
        action: &'d ActionParts<'t>,
        uses: &'d ActionUses<'d, 't>,
    ) {
        let Some(body) = &action.action else {
            return;
        };
        let mut names = SecretNames {
            inputs: secret_inputs(&action.inputs),
            ..SecretNames::default()
        };
        names.add_env(&action.policies.env);
        let origins = Origins::of_action(action, uses, self.problems.budget());
        let words = command_words(body, &action.texts, action.manifest.as_ref(), &origins);
        self.secrets_in_words(words, &names);
    }

    pub fn secrets_in_commands<'d>(
        &mut self,
        task: &'d TaskParts<'t>,
        of_actions: &ActionCommandValues<'_>,
        answers: &'d TaskAnswers<'d>,
    ) {
        let mut of_task = SecretNames {
            inputs: secret_inputs(&task.inputs),
            approvals: Rc::new(secret_answers(&task.steps)),
            ..SecretNames::default()
        };
        of_task.add_env(&task.draft.env);
        let origins = Origins::of_task(task, answers, self.problems.budget());
        for step in &task.steps {
            if self.problems.is_out_of_time() {
                return;
            }
            let mut names = of_task.clone();
            names.add_env(&step.policies.env);
            match &step.does {
                Does::Own { action, .. } => {
                    names.add_given(step);
                    let origins = origins.of_step(step);
                    let manifest = step.manifest.as_ref();
                    let words = command_words(action, &step.texts, manifest, &origins);
                    self.secrets_in_words(words, &names);
                }
                // What the action says of its own secrets is checked with the action.
                Does::Uses { action, span } => {
                    if let Some(values) = of_actions.get(action) {
                        self.secrets_given_to_command(step, values, &names);
                        self.secrets_of_task_in_command(task, step, *span, values, &names);
                    }
                }
                Does::Calls { .. } | Does::Unknown => {}
            }
        }
    }

    fn secrets_in_words(&mut self, words: Vec<CommandWord<'_, 't>>, names: &SecretNames<'_>) {
        let mut seen = HashSet::new();
        for word in &words {
            if self.problems.is_out_of_time() {
                return;
            }
            // Aliases may repeat the same word of a manifest thousands of times.
            let is_repeated = word.part.is_some() && !seen.insert(&word.text);
            if is_repeated || (names.is_empty() && !word.text.contains("secret")) {
                continue;
            }
            if let Some(secret) = names.first_in(&word.text) {
                let span = match &word.part {
                    Some(part) => self.in_manifest(word, part, 0..word.text.len()),
                    None => word.node.span,
                };
                self.secret_on_command_line(&secret, span);
            }
        }
    }

    /// Secrets that a step puts on the command line of a named action, through inputs and variables.
    fn secrets_given_to_command(
        &mut self,
        step: &StepParts<'t>,
        values: &CommandValues,
        names: &SecretNames<'_>,
    ) {
        for entry in step.input_entries() {
            if values.inputs.contains(&entry.key.text)
                && let Some(secret) = names.first_below(&entry.value)
            {
                self.secret_on_command_line(&secret, entry.value.span);
            }
        }
        let texts = step.texts.iter();
        let texts: Vec<&Text<'_>> = texts.filter(|text| text.place == Place::StepEnv).collect();
        for (name, value) in &step.policies.env {
            if values.step_env.contains(name)
                && let Some(secret) = names.first_in(value)
            {
                let text = texts.iter().find(|text| *text.text == *value);
                let span = text.map_or(step.key.span, |text| text.node.span);
                self.secret_on_command_line(&secret, span);
            }
        }
    }

    /// Secrets in variables of the task that a named action puts on its command line. They are reported at the step that uses the action.
    fn secrets_of_task_in_command(
        &mut self,
        task: &TaskParts<'t>,
        step: &StepParts<'t>,
        span: Span,
        values: &CommandValues,
        names: &SecretNames<'_>,
    ) {
        let mut variables = task.draft.env.keys().filter(|name| {
            let is_replaced = step.policies.env.contains_key(*name);
            values.task_env.contains(name) && !is_replaced && names.env.contains(name.as_str())
        });
        if let Some(name) = variables.next() {
            self.secret_on_command_line(&format!("env.{name}"), span);
        }
    }

    fn secret_on_command_line(&mut self, secret: &str, span: Span) {
        let message = format!("the secret `{secret}` would be on a command line");
        self.problems
            .error("W115", span, message)
            .label("every user of the worker's machine can see it with `ps`")
            .help("pass it by `env`, and let the program read the variable");
    }
}

impl CommandValues {
    /// Adds the values that one word of a command line of the action mentions.
    fn add_word(&mut self, word: &str, action: &ActionParts<'_>) {
        let env = &action.policies.env;
        for mention in template::mentions(word).unwrap_or_default() {
            match mention.path.as_slice() {
                [root, rest @ ..] if root == "input" => self.add_input(rest.first(), action),
                [root, rest @ ..] if root == "env" => {
                    let name = rest.first();
                    self.step_env.insert(name);
                    let of_action: Vec<&String> = match name {
                        Some(name) => env.get(name).into_iter().collect(),
                        None => env.values().collect(),
                    };
                    if name.is_none() || of_action.is_empty() {
                        self.task_env.insert(name);
                    }
                    for text in of_action {
                        self.add_variable(text, action);
                    }
                }
                _ => {}
            }
        }
    }

    /// Adds the values that a variable of the action is made of. Its text sees the variables of the task, but not those of the step.
    fn add_variable(&mut self, text: &str, action: &ActionParts<'_>) {
        for mention in template::mentions(text).unwrap_or_default() {
            match mention.path.as_slice() {
                [root, rest @ ..] if root == "input" => self.add_input(rest.first(), action),
                [root, rest @ ..] if root == "env" => self.task_env.insert(rest.first()),
                _ => {}
            }
        }
    }

    /// Adds an input, or all of them. Inputs that the action itself declares secret are reported at the action.
    fn add_input(&mut self, name: Option<&String>, action: &ActionParts<'_>) {
        let secret = secret_inputs(&action.inputs);
        match name {
            Some(name) if secret.contains(name.as_str()) => {}
            Some(name) => self.inputs.insert(Some(name)),
            None => {
                let declared = action.inputs.iter().map(|input| &input.spec.name);
                for name in declared.filter(|name| !secret.contains(name.as_str())) {
                    self.inputs.insert(Some(name));
                }
            }
        }
    }
}

impl<'t> StepParts<'t> {
    fn input_entries(&self) -> &'t [Entry] {
        match self.input_entry.map(|entry| &entry.value.kind) {
            Some(Kind::Map(entries)) => entries,
            _ => &[],
        }
    }
}

impl<'s> SecretNames<'s> {
    /// The variables that are made of a secret, also by way of other variables.
    fn add_env(&mut self, env: &'s BTreeMap<String, String>) {
        let secret: Vec<&str> = env
            .iter()
            .filter(|(_, text)| self.first_in(text).is_some())
            .map(|(name, _)| name.as_str())
            .collect();
        self.env.extend(secret);
    }

    /// Inputs that the step adds to those of its job.
    fn add_given(&mut self, step: &StepParts<'s>) {
        let is_secret = |entry: &&Entry| self.first_below(&entry.value).is_some();
        let given = step.input_entries().iter().filter(is_secret);
        let given: Vec<&str> = given.map(|entry| entry.key.text.as_str()).collect();
        self.inputs.extend(given);
    }

    /// The first secret that a template in this value speaks of.
    fn first_below(&self, node: &Node) -> Option<String> {
        match &node.kind {
            Kind::Scalar(scalar) => self.first_in(&scalar.text),
            Kind::List(items) => items.iter().find_map(|item| self.first_below(item)),
            Kind::Map(entries) => entries
                .iter()
                .find_map(|entry| self.first_below(&entry.value)),
            Kind::Broken => None,
        }
    }

    fn first_in(&self, text: &str) -> Option<String> {
        let mentions = template::mentions(text).unwrap_or_default();
        let secret = mentions.iter().find(|mention| self.holds(&mention.path));
        secret.map(|mention| mention.path.join("."))
    }

    /// Only `secret` itself can be secret then.
    fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.env.is_empty() && self.approvals.is_empty()
    }

    /// A whole `input` or `env` holds a secret if one of its members does.
    fn holds(&self, path: &[String]) -> bool {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["secret", ..] => true,
            ["input"] => !self.inputs.is_empty(),
            ["input", name, ..] => self.inputs.contains(name),
            ["env"] => !self.env.is_empty(),
            ["env", name, ..] => self.env.contains(name),
            ["steps"] => !self.approvals.is_empty(),
            ["steps", step] | ["steps", step, "output"] => self.approvals.contains_key(step),
            ["steps", step, "output", name, ..] => {
                let asked = self.approvals.get(step);
                asked.is_some_and(|asked| asked.contains(name))
            }
            _ => false,
        }
    }
}

/// What the approvals of a task ask for in secret, by the name of the step.
fn secret_answers<'s>(steps: &'s [StepParts<'_>]) -> HashMap<&'s str, HashSet<&'s str>> {
    let secret = steps.iter().filter_map(|step| {
        let Does::Own { asks, .. } = &step.does else {
            return None;
        };
        let asked = secret_inputs(asks);
        (!asked.is_empty()).then_some((step.key.text.as_str(), asked))
    });
    secret.collect()
}

fn secret_inputs(inputs: &[SpecParts]) -> HashSet<&str> {
    let secret = inputs.iter().filter(|input| input.spec.secret);
    secret.map(|input| input.spec.name.as_str()).collect()
}

/// A text that becomes a word of a command line, on the worker's machine or in a container.
enum CommandWord<'x, 't> {
    Written(&'x Text<'t>),
    /// A text of a pod's manifest in which references `$(NAME)` are replaced by what they stand for.
    OfManifest(Text<'t>),
}

impl<'t> Deref for CommandWord<'_, 't> {
    type Target = Text<'t>;

    fn deref(&self) -> &Text<'t> {
        match self {
            CommandWord::Written(text) => text,
            CommandWord::OfManifest(text) => text,
        }
    }
}

/// Lists the templates that become words of a command line. The image, the working directory, the entrypoint and the command of a
/// container are words of `docker run`.
fn command_words<'x, 't>(
    action: &Action,
    texts: &'x [Text<'t>],
    manifest: Option<&ManifestParts<'t>>,
    origins: &Origins<'_, '_>,
) -> Vec<CommandWord<'x, 't>> {
    let is_container = match action {
        Action::Docker { .. } => true,
        Action::Script { runner, .. } => *runner != Runner::Local,
        Action::Pod { .. } | Action::Task { .. } | Action::Approval { .. } => false,
    };
    if is_container {
        let words = texts
            .iter()
            .filter(|text| matches!(text.place, Place::Worker) && is_template(&text.text));
        return words.map(CommandWord::Written).collect();
    }
    let texts = manifest.map(|manifest| manifest.texts(origins));
    let words = texts.into_iter().flatten().filter(|text| {
        let part = text.part.as_ref();
        part.is_some_and(|part| manifest::is_on_command_line(&part.place))
    });
    words.map(CommandWord::OfManifest).collect()
}
