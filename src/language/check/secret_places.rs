//! The places that secrets come from, checked against what the server allows.
//!
//! A secret that cannot be found is no error here: it may be put there before a step needs it.

use std::collections::HashMap;
use std::path::PathBuf;

use super::super::decode::{Document, Text};
use super::super::diagnostic::Problems;
use super::super::source::Span;
use super::super::template;
use crate::domain::secret::SecretRef;
use crate::domain::task::Rules;
use crate::secret_policy::{SecretFault, SecretFaultKind, SecretPolicy};

/// Reports every secret that the server would refuse to a step or a webhook. Returns the files to be watched: a change of one of them
/// may mend a fault, or make one.
pub fn check_secret_places(
    documents: &[Document<'_>],
    policy: &SecretPolicy,
    problems: &mut Problems,
) -> Vec<PathBuf> {
    let mut files = Vec::new();
    // Secrets that only tasks of files that version 0.1 had accepted may use.
    let mut former: HashMap<&str, SecretFault> = HashMap::new();
    for document in documents {
        for secret in &document.secrets {
            let Some(reference) = &secret.reference else {
                continue;
            };
            let (name, span) = (secret.key.text.as_str(), secret.key.span);
            let found = check(reference, policy, &mut files);
            if let Some(fault) = found {
                report(&format!("secret `{name}`"), span, &fault, problems);
                if problems.is_accepted_by_0_1(span.file) {
                    former.insert(name, fault);
                }
            }
        }
        for webhook in document.tasks.iter().flat_map(|task| &task.webhooks) {
            let Some(draft) = &webhook.draft else {
                continue;
            };
            if let Some(fault) = check(&draft.secret, policy, &mut files) {
                let what = format!("the secret of webhook `{}`", draft.name);
                report(&what, webhook.key.span, &fault, problems);
            }
        }
    }
    if !former.is_empty() {
        for text in documents.iter().flat_map(texts) {
            report_former(text, &former, problems);
        }
    }
    files
}

fn check(
    reference: &SecretRef,
    policy: &SecretPolicy,
    files: &mut Vec<PathBuf>,
) -> Option<SecretFault> {
    let fault = policy.resolve(reference, Rules::V2).err();
    // Files of the server itself change all the time, and stay refused.
    let is_refused = |fault: &SecretFault| fault.kind == SecretFaultKind::Refused;
    if let SecretRef::File(path) = reference
        && !fault.as_ref().is_some_and(is_refused)
    {
        files.push(PathBuf::from(path));
    }
    fault.filter(|fault| fault.kind != SecretFaultKind::Unreadable)
}

fn report(what: &str, span: Span, fault: &SecretFault, problems: &mut Problems) {
    let message = format!("{what}: {fault}");
    let (code, label) = match fault.kind {
        SecretFaultKind::TooShort => ("E073", "too short"),
        _ => ("E072", "not an allowed place"),
    };
    problems.new_rule(code, span, message).label(label);
}

/// Texts that become part of what a worker is given.
fn texts<'d, 't>(document: &'d Document<'t>) -> impl Iterator<Item = &'d Text<'t>> {
    let of_actions = document.actions.iter().flat_map(|action| &action.texts);
    let of_tasks = document.tasks.iter().flat_map(|task| {
        let of_steps = task.steps.iter().flat_map(|step| &step.texts);
        task.texts.iter().chain(of_steps)
    });
    of_actions.chain(of_tasks)
}

/// A file that is new or changed does not get a secret because an old file still names it.
fn report_former(text: &Text<'_>, former: &HashMap<&str, SecretFault>, problems: &mut Problems) {
    let span = text.node.span;
    if problems.is_accepted_by_0_1(span.file) || !text.text.contains("secret") {
        return;
    }
    for mention in template::mentions(&text.text).unwrap_or_default() {
        let [root, name, ..] = mention.path.as_slice() else {
            continue;
        };
        if root == "secret"
            && let Some(fault) = former.get(name.as_str())
        {
            report(&format!("secret `{name}`"), span, fault, problems);
        }
    }
}
