//! Secrets on command lines, which every user of the worker's machine can read with `ps`.
//!
//! Scripts and variables are safe: a script reaches its container as a file or in a variable, and variables reach it in a file or
//! through the environment of the container engine's client.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::Value;

use super::super::decode::{ActionParts, Does, Place, SpecParts, StepParts, TaskParts, Text};
use super::super::manifest;
use super::super::template;
use super::super::tree::{Entry, Kind, Node};
use super::Checker;
use crate::domain::task::{Action, Runner, is_template};

/// The names that hold secrets in the templates of one step or action.
#[derive(Default, Clone)]
struct SecretNames<'s> {
    inputs: HashSet<&'s str>,
    env: HashSet<&'s str>,
}

impl<'t> Checker<'_, 't> {
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

    pub fn secrets_in_commands(&mut self, task: &TaskParts<'t>) {
        let mut of_task = SecretNames {
            inputs: secret_inputs(&task.inputs),
            ..SecretNames::default()
        };
        of_task.add_env(&task.draft.env);
        for step in &task.steps {
            // What a named action says is checked with the action.
            if let Does::Own { action, .. } = &step.does {
                if self.problems.is_out_of_time() {
                    return;
                }
                let mut names = of_task.clone();
                names.add_env(&step.policies.env);
                names.add_given(step);
                self.secrets_in_command(action, &step.texts, &names);
            }
        }
    }

    fn secrets_in_command(&mut self, action: &Action, texts: &[Text<'t>], names: &SecretNames<'_>) {
        let pod_words = pod_command_words(action);
        for text in texts {
            if self.problems.is_out_of_time() {
                return;
            }
            if names.is_empty() && !text.text.contains("secret") {
                continue;
            }
            let words = words_of_command_line(action, &pod_words, text);
            let mut mentions = words
                .iter()
                .flat_map(|word| template::mentions(word).unwrap_or_default());
            let Some(mention) = mentions.find(|mention| names.holds(&mention.path)) else {
                continue;
            };
            let message = format!(
                "the secret `{}` would be on a command line",
                mention.path.join(".")
            );
            self.problems
                .error("W115", text.node.span, message)
                .label("every user of the worker's machine can see it with `ps`")
                .help("pass it by `env`, and let the program read the variable");
        }
    }
}

impl<'s> SecretNames<'s> {
    /// The variables that are made of a secret, also by way of other variables.
    fn add_env(&mut self, env: &'s BTreeMap<String, String>) {
        let secret: Vec<&str> = env
            .iter()
            .filter(|(_, text)| self.is_in(text))
            .map(|(name, _)| name.as_str())
            .collect();
        self.env.extend(secret);
    }

    /// Inputs that the step adds to those of its job.
    fn add_given(&mut self, step: &StepParts<'s>) {
        if let Some(entry) = step.input_entry
            && let Kind::Map(entries) = &entry.value.kind
        {
            let is_secret = |entry: &&Entry| self.is_below(&entry.value);
            let given = entries.iter().filter(is_secret);
            let given: Vec<&str> = given.map(|entry| entry.key.text.as_str()).collect();
            self.inputs.extend(given);
        }
    }

    fn is_below(&self, node: &Node) -> bool {
        match &node.kind {
            Kind::Scalar(scalar) => self.is_in(&scalar.text),
            Kind::List(items) => items.iter().any(|item| self.is_below(item)),
            Kind::Map(entries) => entries.iter().any(|entry| self.is_below(&entry.value)),
            Kind::Broken => false,
        }
    }

    fn is_in(&self, text: &str) -> bool {
        let mentions = template::mentions(text).unwrap_or_default();
        mentions.iter().any(|mention| self.holds(&mention.path))
    }

    /// Only `secret` itself can be secret then.
    fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.env.is_empty()
    }

    /// A whole `input` or `env` holds a secret if one of its members does.
    fn holds(&self, path: &[String]) -> bool {
        let names = match path.first().map(String::as_str) {
            Some("secret") => return true,
            Some("input") => &self.inputs,
            Some("env") => &self.env,
            _ => return false,
        };
        match path.get(1) {
            Some(name) => names.contains(name.as_str()),
            None => !names.is_empty(),
        }
    }
}

fn secret_inputs(inputs: &[SpecParts]) -> HashSet<&str> {
    let secret = inputs.iter().filter(|input| input.spec.secret);
    secret.map(|input| input.spec.name.as_str()).collect()
}

/// The templates in this text that become words of a command line, on the worker's machine or in a container. `pod_words`: those of
/// the commands of the pod, if the action is one.
fn words_of_command_line<'x>(
    action: &Action,
    pod_words: &'x BTreeSet<String>,
    text: &'x Text<'_>,
) -> Vec<&'x str> {
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
    let whole = || vec![&*text.text];
    match action {
        // The image, the working directory, the entry point and the command are words of `docker run`.
        Action::Docker { .. } => whole(),
        Action::Script { runner, .. } if *runner != Runner::Local => whole(),
        Action::Pod { manifest } if *manifest == text.text => {
            pod_words.iter().map(String::as_str).collect()
        }
        // A manifest that was written as a tree is JSON by now, and each text of it stands alone.
        Action::Pod { .. } if pod_words.contains(&*text.text) => whole(),
        Action::Pod { .. } => Vec::new(),
        Action::Script { .. } | Action::Task { .. } | Action::Approval { .. } => Vec::new(),
    }
}

/// The templates in the commands of all containers of a pod. Many words may be the same, and each is looked at once.
fn pod_command_words(action: &Action) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    // Aliases may multiply what a manifest says, so only the bounded reader may read it.
    if let Action::Pod { manifest } = action
        && let Ok(tree) = manifest::read(manifest)
    {
        command_words(&tree, false, &mut words);
    }
    words
}

fn command_words(value: &Value, is_command: bool, words: &mut BTreeSet<String>) {
    match value {
        Value::String(word) if is_command && is_template(word) => {
            words.insert(word.clone());
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| command_words(item, is_command, words)),
        Value::Object(entries) => {
            for (key, value) in entries {
                let is_command = matches!(key.as_str(), "command" | "args" | "workingDir");
                command_words(value, is_command, words);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_words_of_a_pod_are_looked_at_once() {
        let container = "{args: ['{{ input.x }}', plain], image: '{{ input.y }}'}";
        let containers = [container; 1_000].join(",");
        let manifest = format!("{{spec: {{containers: [{containers}]}}}}");
        let words = pod_command_words(&Action::Pod { manifest });
        assert_eq!(words, BTreeSet::from(["{{ input.x }}".to_string()]));
    }
}
