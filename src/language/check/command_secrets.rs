//! Secrets on command lines, which every user of the worker's machine can read with `ps`.
//!
//! Scripts and variables are safe: a script reaches its container as a file or in a variable, and variables reach it in a file or
//! through the environment of the container engine's client.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use serde_json::Value;

use super::super::decode::{
    ActionParts, Document, Does, Place, SpecParts, StepParts, TaskParts, Text,
};
use super::super::manifest;
use super::super::source::Span;
use super::super::template;
use super::super::tree::{Entry, Kind, Node};
use super::Checker;
use crate::domain::task::{Action, Runner, is_template};

/// The names that hold secrets in the templates of one step or action.
#[derive(Default, Clone)]
struct SecretNames<'s> {
    inputs: HashSet<&'s str>,
    env: HashSet<&'s str>,
    /// What approvals ask for, by the name of the step.
    approvals: Rc<HashMap<&'s str, HashSet<&'s str>>>,
}

/// The inputs that are not secret themselves and that a named action puts on a command line, by the name of the action.
pub type CommandInputs<'t> = HashMap<&'t str, HashSet<String>>;

impl<'t> Checker<'_, 't> {
    /// Finds the inputs of named actions that become words of a command line.
    pub fn command_inputs(&mut self, documents: &[Document<'t>]) -> CommandInputs<'t> {
        let mut with_inputs = CommandInputs::new();
        for action in documents.iter().flat_map(|document| &document.actions) {
            let Some(body) = &action.action else {
                continue;
            };
            let secret = secret_inputs(&action.inputs);
            let words = CommandWords::of(body);
            let mut inputs = HashSet::new();
            for text in &action.texts {
                if self.problems.is_out_of_time() {
                    return with_inputs;
                }
                let words = words.of_text(text).into_iter();
                let mentions = words.flat_map(|word| template::mentions(word).unwrap_or_default());
                inputs.extend(
                    mentions.filter_map(|mention| match mention.path.as_slice() {
                        [root, name, ..] if root == "input" && !secret.contains(name.as_str()) => {
                            Some(name.clone())
                        }
                        _ => None,
                    }),
                );
            }
            with_inputs.insert(action.key.text.as_str(), inputs);
        }
        with_inputs
    }

    pub fn secrets_in_action_command(&mut self, action: &ActionParts<'t>) {
        let Some(body) = &action.action else {
            return;
        };
        let mut names = SecretNames {
            inputs: secret_inputs(&action.inputs),
            ..SecretNames::default()
        };
        names.add_env(&action.policies.env);
        self.secrets_in_command(body, &action.texts, &names);
    }

    pub fn secrets_in_commands(&mut self, task: &TaskParts<'t>, of_actions: &CommandInputs<'_>) {
        let mut of_task = SecretNames {
            inputs: secret_inputs(&task.inputs),
            approvals: Rc::new(secret_answers(&task.steps)),
            ..SecretNames::default()
        };
        of_task.add_env(&task.draft.env);
        for step in &task.steps {
            if self.problems.is_out_of_time() {
                return;
            }
            let mut names = of_task.clone();
            names.add_env(&step.policies.env);
            match &step.does {
                Does::Own { action, .. } => {
                    names.add_given(step);
                    self.secrets_in_command(action, &step.texts, &names);
                }
                // What the action says of its own secrets is checked with the action.
                Does::Uses { action, .. } => {
                    if let Some(inputs) = of_actions.get(action) {
                        self.secrets_given_to_command(step, inputs, &names);
                    }
                }
                Does::Calls { .. } | Does::Unknown => {}
            }
        }
    }

    fn secrets_in_command(&mut self, action: &Action, texts: &[Text<'t>], names: &SecretNames<'_>) {
        let words = CommandWords::of(action);
        for text in texts {
            if self.problems.is_out_of_time() {
                return;
            }
            if names.is_empty() && !text.text.contains("secret") {
                continue;
            }
            let mut words = words.of_text(text).into_iter();
            if let Some(secret) = words.find_map(|word| names.first_in(word)) {
                self.secret_on_command_line(&secret, text.node.span);
            }
        }
    }

    /// Secrets that a step gives to inputs that a named action puts on a command line.
    fn secrets_given_to_command(
        &mut self,
        step: &StepParts<'t>,
        inputs: &HashSet<String>,
        names: &SecretNames<'_>,
    ) {
        for entry in step.input_entries() {
            if inputs.contains(&entry.key.text)
                && let Some(secret) = names.first_below(&entry.value)
            {
                self.secret_on_command_line(&secret, entry.value.span);
            }
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

/// The texts of an action that become words of a command line, on the worker's machine or in a container.
enum CommandWords<'a> {
    None,
    /// The image, the working directory, the entry point and the command are words of `docker run`.
    All,
    /// The words of a manifest.
    Pod {
        manifest: &'a str,
        words: BTreeSet<String>,
    },
}

impl<'a> CommandWords<'a> {
    fn of(action: &'a Action) -> CommandWords<'a> {
        match action {
            Action::Docker { .. } => CommandWords::All,
            Action::Script { runner, .. } if *runner != Runner::Local => CommandWords::All,
            Action::Pod { manifest } => {
                let mut words = Vec::new();
                // Aliases may multiply what a manifest says, so only the bounded reader may read it.
                if let Ok(tree) = manifest::read(manifest) {
                    command_words(&tree, false, &mut words);
                }
                CommandWords::Pod {
                    manifest,
                    words: words.into_iter().collect(),
                }
            }
            Action::Script { .. } | Action::Task { .. } | Action::Approval { .. } => {
                CommandWords::None
            }
        }
    }

    fn of_text<'x>(&'x self, text: &'x Text<'_>) -> Vec<&'x str> {
        let is_for_worker = !matches!(
            text.place,
            Place::Script
                | Place::StepEnv
                | Place::TaskEnv
                | Place::When
                | Place::ForEach
                | Place::WorkInput
                | Place::CallInput
                | Place::Message
                | Place::Concurrency
                | Place::HookInput
                | Place::ScheduleInput
                | Place::WebhookInput
        );
        if !is_for_worker || !is_template(&text.text) {
            return Vec::new();
        }
        let whole: &str = &text.text;
        match self {
            CommandWords::None => Vec::new(),
            CommandWords::All => vec![whole],
            CommandWords::Pod { manifest, words } if *manifest == whole => {
                words.iter().map(String::as_str).collect()
            }
            // A manifest that was written as a tree is JSON by now, and each text of it stands alone.
            CommandWords::Pod { words, .. } => {
                words.get(whole).map(String::as_str).into_iter().collect()
            }
        }
    }
}

/// The words of the commands of all containers of a pod, with the values of the variables that they name.
fn command_words(value: &Value, is_command: bool, words: &mut Vec<String>) {
    match value {
        Value::String(word) if is_command => words.push(word.clone()),
        Value::Array(items) => items
            .iter()
            .for_each(|item| command_words(item, is_command, words)),
        Value::Object(entries) => {
            let others = words.len();
            for (key, value) in entries {
                let is_command = matches!(key.as_str(), "command" | "args" | "workingDir");
                command_words(value, is_command, words);
            }
            let named: HashSet<&str> = words[others..]
                .iter()
                .flat_map(|word| named_in(word))
                .collect();
            let variables = entries.get("env").and_then(Value::as_array);
            let variables = variables.into_iter().flatten().filter(|variable| {
                let name = variable.get("name").and_then(Value::as_str);
                name.is_some_and(|name| named.contains(name))
            });
            let values = variables.filter_map(|variable| variable.get("value")?.as_str());
            let values: Vec<String> = values.map(str::to_string).collect();
            words.extend(values);
        }
        _ => {}
    }
}

/// The variables that Kubernetes puts into this word in the place of `$(NAME)`. `$$` is a sign and begins no reference.
fn named_in(word: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('$') {
            rest = behind;
        } else if let Some(reference) = rest.strip_prefix('(')
            && let Some((name, behind)) = reference.split_once(')')
        {
            names.push(name);
            rest = behind;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_words_of_a_pod_are_looked_at_once() {
        let container = "{args: ['{{ input.x }}', plain], image: '{{ input.y }}'}";
        let containers = [container; 1_000].join(",");
        let manifest = format!("{{spec: {{containers: [{containers}]}}}}");
        let pod = Action::Pod { manifest };
        let CommandWords::Pod { words, .. } = CommandWords::of(&pod) else {
            panic!("a pod has words");
        };
        assert!(words.len() <= 2, "{words:?}");
    }
}
