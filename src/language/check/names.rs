//! Who is called what: one name, one thing, over all files.

use std::collections::HashMap;

use super::super::decode::{ActionParts, Document, SpecParts};
use super::super::diagnostic::Problems;
use super::super::source::Span;
use super::super::tree::Key;
use crate::domain::secret::SecretRef;
use crate::domain::value::ValueSpec;

/// What others may speak of.
pub struct Names<'t> {
    pub tasks: HashMap<&'t str, Takes>,
    pub actions: HashMap<&'t str, Takes>,
    pub secrets: HashMap<&'t str, DeclaredSecret>,
    /// `false`: a file could not be read, and what is missing may be in it.
    pub all_known: bool,
}

/// An entry under `secrets:`.
pub struct DeclaredSecret {
    pub span: Span,
    /// `None`: the entry is not well-formed.
    pub reference: Option<SecretRef>,
}

/// What a task or action takes.
pub struct Takes {
    pub span: Span,
    pub inputs: Vec<ValueSpec>,
    /// The positions of the inputs, by name.
    positions: HashMap<String, usize>,
    /// The positions of the inputs that every call must give.
    pub needed: Vec<usize>,
    /// Its inputs are known well enough to say what is wrong with what it is given.
    pub whole: bool,
}

impl Takes {
    fn new(key: &Key, inputs: &[SpecParts]) -> Takes {
        let whole = inputs.iter().all(|input| input.whole);
        let inputs: Vec<ValueSpec> = inputs.iter().map(|input| input.spec.clone()).collect();
        let positions = inputs.iter().enumerate();
        let needed = positions.clone();
        let needed = needed.filter(|(_, spec)| spec.required && spec.default.is_none());
        Takes {
            span: key.span,
            positions: positions
                .rev()
                .map(|(at, spec)| (spec.name.clone(), at))
                .collect(),
            needed: needed.map(|(at, _)| at).collect(),
            inputs,
            whole,
        }
    }

    pub fn input(&self, name: &str) -> Option<&ValueSpec> {
        self.positions.get(name).map(|&at| &self.inputs[at])
    }
}

impl<'t> Names<'t> {
    pub fn collect(
        documents: &mut [Document<'t>],
        all_known: bool,
        problems: &mut Problems,
    ) -> Names<'t> {
        let mut names = Names {
            tasks: HashMap::new(),
            actions: HashMap::new(),
            secrets: HashMap::new(),
            all_known,
        };
        let mut webhooks: HashMap<&str, Span> = HashMap::new();
        for document in documents {
            for task in &mut document.tasks {
                if let Some(first) = names.tasks.get(task.key.text.as_str()) {
                    taken(problems, "task", task.key, first.span);
                    task.whole = false;
                } else {
                    let mut takes = Takes::new(task.key, &task.inputs);
                    takes.whole &= task.whole || !task.inputs.is_empty();
                    names.tasks.insert(&task.key.text, takes);
                }
                for webhook in &task.webhooks {
                    if let Some(&first) = webhooks.get(webhook.key.text.as_str()) {
                        taken(problems, "webhook", webhook.key, first);
                    } else {
                        webhooks.insert(&webhook.key.text, webhook.key.span);
                    }
                }
            }
            for action in &document.actions {
                if let Some(first) = names.actions.get(action.key.text.as_str()) {
                    taken(problems, "action", action.key, first.span);
                } else {
                    names.add_action(action);
                }
            }
            for secret in &document.secrets {
                if let Some(first) = names.secrets.get(secret.key.text.as_str()) {
                    taken(problems, "secret", secret.key, first.span);
                } else {
                    let declared = DeclaredSecret {
                        span: secret.key.span,
                        reference: secret.reference.clone(),
                    };
                    names.secrets.insert(&secret.key.text, declared);
                }
            }
        }
        names
    }

    fn add_action(&mut self, action: &ActionParts<'t>) {
        let mut takes = Takes::new(action.key, &action.inputs);
        takes.whole &= action.whole || !action.inputs.is_empty();
        self.actions.insert(&action.key.text, takes);
    }
}

fn taken(problems: &mut Problems, kind: &str, key: &Key, first: Span) {
    let message = format!("there are two {kind}s called `{}`", key.text);
    problems
        .error("E060", key.span, message)
        .label("the name is taken")
        .also(first, "first here")
        .help("give each its own name; all files of the folder are read together");
}
