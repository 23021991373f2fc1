//! Secret values in texts that are stored and shown.
//!
//! A value is followed by where it comes from, not by where it ends up: a stored text may not speak of a secret value at all, nor of
//! an object that holds one. So `input` as a whole, `input[name]`, `input | items` and anything bound to them are refused as soon as
//! one input is secret, whatever happens to the value afterwards. `input.other` stays allowed if `other` is declared and not secret.

use std::collections::{HashMap, HashSet};

use super::super::decode::{Does, Place, SpecParts, StepParts, Text};
use super::super::diagnostic::Problem;
use super::super::source::Span;
use super::super::template::Mention;
use super::Checker;
use crate::domain::task::Action;

/// Sources of secret values in one task or action: the job's input, and approvals that ask for secret values.
pub struct SecretHolders<'s> {
    inputs: SecretNames<'s>,
    /// Secret values that an approval asks for, at least one, by the name of its step.
    approvals: HashMap<&'s str, SecretNames<'s>>,
}

/// Names of declared values that are secret.
struct SecretNames<'s> {
    first: Option<&'s str>,
    all: HashSet<&'s str>,
}

impl<'s> SecretNames<'s> {
    fn of(specs: &'s [SpecParts]) -> SecretNames<'s> {
        let specs = specs.iter().map(|parts| &parts.spec);
        let mut names = specs
            .filter(|spec| spec.secret)
            .map(|spec| spec.name.as_str());
        let first = names.next();
        SecretNames {
            first,
            all: first.into_iter().chain(names).collect(),
        }
    }
}

/// A secret value that a template speaks of.
pub enum SecretLeak {
    /// A secret input by its name. Version 0.1 refused it as well.
    Input(String),
    /// The whole input, or a part that is not known before the template is rendered; with one of the secret inputs in it.
    WholeInput(String),
    /// Values that a person enters at an approval: the mentioned path, and the name of a secret value in it.
    Entered { path: String, name: String },
}

impl<'s> SecretHolders<'s> {
    /// `steps` is empty for an action.
    pub fn of(inputs: &'s [SpecParts], steps: &'s [StepParts<'_>]) -> SecretHolders<'s> {
        let approvals = steps.iter().filter_map(|step| {
            let Does::Own {
                action: Action::Approval { .. },
                asks,
            } = &step.does
            else {
                return None;
            };
            let names = SecretNames::of(asks);
            (names.first.is_some()).then_some((step.key.text.as_str(), names))
        });
        SecretHolders {
            inputs: SecretNames::of(inputs),
            approvals: approvals.collect(),
        }
    }

    pub fn leak(&self, mention: &Mention) -> Option<SecretLeak> {
        let path: Vec<&str> = mention.path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["input", name, ..] => {
                let is_secret = self.inputs.all.contains(name);
                is_secret.then(|| SecretLeak::Input(name.to_string()))
            }
            ["input"] => {
                let first = self.inputs.first?;
                Some(SecretLeak::WholeInput(first.to_string()))
            }
            ["steps", step, rest @ ..] => {
                let secrets = self.approvals.get(step)?;
                let name = match rest {
                    ["output", name, ..] => *secrets.all.get(name)?,
                    [] | ["output"] => secrets.first?,
                    _ => return None,
                };
                Some(SecretLeak::Entered {
                    path: path.join("."),
                    name: name.to_string(),
                })
            }
            _ => None,
        }
    }
}

impl Checker<'_, '_> {
    /// Refuses secret values in a text that is stored. Inputs of other tasks are stored as well, but may be secret: see `calls.rs`.
    pub(super) fn stored_secrets(
        &mut self,
        text: &Text<'_>,
        mentions: &[Mention],
        holders: &SecretHolders<'_>,
    ) {
        let label = match text.place {
            Place::Message => "the message of an approval is kept and shown",
            Place::Concurrency => "the name of a group is kept and shown",
            Place::ForEach => "the items of a loop are kept and shown",
            _ => return,
        };
        for mention in mentions {
            let Some(leak) = holders.leak(mention) else {
                continue;
            };
            let span = self.at(text, mention.span.clone());
            self.secret_leak(text, span, &leak, label)
                .help("use it in `script` or `env` only");
        }
    }

    pub(super) fn secret_leak(
        &mut self,
        text: &Text<'_>,
        span: Span,
        leak: &SecretLeak,
        label: impl Into<String>,
    ) -> &mut Problem {
        let message = match leak {
            SecretLeak::Input(name) => format!("the secret input `{name}` would be stored"),
            SecretLeak::WholeInput(name) => {
                format!("`input` holds the secret input `{name}`, which would be stored")
            }
            SecretLeak::Entered { path, name } => {
                format!("`{path}` holds the secret value `{name}`, which would be stored")
            }
        };
        let problem = match leak {
            SecretLeak::Input(_) => self.problems.error("E046", span, message),
            _ => self.new_rule("E046", text, span, message),
        };
        problem.label(label);
        if let SecretLeak::WholeInput(_) = leak {
            problem.help("name the inputs that are needed one by one, such as `input.NAME`");
        }
        problem
    }
}
