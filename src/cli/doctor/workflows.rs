//! Workflow files that do not load, and secrets that they name and that are not there.

use std::collections::BTreeMap;
use std::path::Path;

use super::case::{Case, Found};
use super::{Finding, Looked, or_well};
use crate::cli::files;
use crate::cli::words::{count, shell_path};
use crate::config::{NotifyTarget, ServerConfig, Text};
use crate::domain::secret::SecretRef;
use crate::domain::task::Rules;
use crate::language::{render, rules};
use crate::problems::SEE_SECRETS;
use crate::secret_policy::{SecretFault, SecretFaultKind, SecretPolicy};
use crate::secrets::Secrets;
use crate::wire::api::{ServedProblem, ServedWorkflows};

/// The server's own view, which is the one that counts; else that of this folder.
pub fn look(case: &Case) -> Looked {
    match case.found() {
        Found::Answering(server) if server.refusal.is_none() => {
            let loaded: ServedWorkflows = server.get("/api/workflows")?;
            Ok(of_server(case, loaded))
        }
        _ => of_folder(case),
    }
}

fn of_server(case: &Case, loaded: ServedWorkflows) -> Vec<Finding> {
    let folder = case.workflows_folder().filter(|folder| folder.is_dir());
    let see = match folder {
        Some(folder) => format!(
            "see what is wrong: stepward validate {}",
            shell_path(&folder)
        ),
        None => "see what is wrong, on the server's machine: stepward validate FOLDER".to_string(),
    };
    let errors = loaded.errors().map(|told| {
        let ServedProblem {
            code,
            message,
            file,
            line,
            ..
        } = told;
        let message = format!("{file}:{line}: {message} [{code}]");
        (file.clone(), BrokenFile::new(message, code))
    });
    let mut broken = by_file(errors);
    let so = [
        (&loaded.stale, "is served as it was when it last loaded"),
        (&loaded.left_out, "is not served at all"),
    ];
    for (files, how) in so {
        for file in files {
            match broken.get_mut(file) {
                Some(broken) => broken.message.push_str(&format!("; it {how}")),
                None => {
                    let message = format!("{file} {how}");
                    broken.insert(file.clone(), BrokenFile::new(message, ""));
                }
            }
        }
    }
    let broken = broken.into_values();
    let mut found: Vec<Finding> = broken.map(|broken| broken.finding(&see)).collect();
    if loaded.folder.is_none() && loaded.loaded_at.is_none() {
        found.extend(unserved(case));
    }
    or_well(found, || {
        format!(
            "the server has {}, every file loads",
            count(loaded.tasks, "task")
        )
    })
}

/// A workflow file that does not load.
struct BrokenFile {
    message: String,
    /// Only a server knows whether its settings allow a secret: `stepward validate` finds nothing wrong.
    is_about_secrets: bool,
}

impl BrokenFile {
    /// `code`: the rule that the first error is about.
    fn new(message: String, code: &str) -> BrokenFile {
        BrokenFile {
            message,
            is_about_secrets: rules::CHECKED_BY_SERVER.contains(&code),
        }
    }

    /// `see`: the command that shows errors which are not about secrets.
    fn finding(self, see: &str) -> Finding {
        Finding::problem(self.message).fix(match self.is_about_secrets {
            true => SEE_SECRETS,
            false => see,
        })
    }
}

/// Returns each file with its first error and the number of further ones.
fn by_file(errors: impl Iterator<Item = (String, BrokenFile)>) -> BTreeMap<String, BrokenFile> {
    let mut files: BTreeMap<String, (BrokenFile, usize)> = BTreeMap::new();
    for (file, broken) in errors {
        files.entry(file).or_insert((broken, 0)).1 += 1;
    }
    let files = files.into_iter().map(|(file, (mut broken, errors))| {
        if errors > 1 {
            let more = count(errors - 1, "error");
            broken
                .message
                .push_str(&format!(", and {more} more in this file"));
        }
        (file, broken)
    });
    files.collect()
}

/// `validate`, `run` and `dev` take this folder; a server has to be told.
fn unserved(case: &Case) -> Option<Finding> {
    let known = case.server.as_ref().ok()?;
    let folder = files::unserved(&known.config)?;
    let message = format!("the folder {folder} here is not served by `stepward server`");
    Some(
        Finding::warning(message)
            .fix(format!("write in the settings: workflows_dir: {folder}"))
            .fix(format!(
                "or start it with: stepward server --workflows-dir {folder}"
            )),
    )
}

fn of_folder(case: &Case) -> Looked {
    let Some(folder) = case.workflows_folder() else {
        let message = "no folder of workflow files is set";
        return Err(Finding::skipped(message).fix("name it in the settings: workflows_dir: FOLDER"));
    };
    let shown = folder.display();
    let Some(checked) = case.workflows() else {
        let problem = Finding::problem(format!("workflows_dir is {shown}, which is no folder"));
        return Err(problem.fix("make it, or name another in the settings: workflows_dir: FOLDER"));
    };
    let see = format!(
        "see what is wrong: stepward validate {}",
        shell_path(&folder)
    );
    let errors = checked.diagnostics.iter().filter(|found| found.is_error());
    let errors = errors.map(|error| {
        let broken = BrokenFile::new(render::short(error), error.code);
        (error.at.file.clone(), broken)
    });
    let broken = by_file(errors).into_values();
    let found = broken.map(|broken| broken.finding(&see));
    let mut found = or_well(found.collect(), || {
        let tasks = count(checked.workflows.tasks().count(), "task");
        format!(
            "{shown}: {}, {tasks}, every file loads",
            count(checked.files, "file")
        )
    });
    found.extend(unserved(case));
    Ok(found)
}

/// Only where they are is said, never what they are.
pub fn secrets(case: &Case) -> Looked {
    let mut of_settings = BTreeMap::new();
    let mut of_workflows = BTreeMap::new();
    let known = case.server.as_ref().ok();
    for (target, settings) in known.iter().flat_map(|known| &known.config.notify) {
        for reference in references(settings) {
            let user = format!("notify.{target}");
            add_user(&mut of_settings, reference, Rules::V2, user);
        }
    }
    let checked = case.workflows();
    if let Some(checked) = checked {
        for (_, definition) in checked.workflows.tasks() {
            for task in definition.tasks() {
                for secret in task.draft.secrets.values() {
                    let user = format!("task {}", task.draft.name);
                    add_user(&mut of_workflows, &secret.reference, secret.rules, user);
                }
            }
        }
        for webhook in checked.workflows.webhooks() {
            let user = format!("webhook {}", webhook.name);
            add_user(&mut of_workflows, &webhook.secret, webhook.rules, user);
        }
    }
    let mut found = Vec::new();
    let all = of_settings.len() + of_workflows.len();
    for (reference, _, users) in of_settings.values() {
        if let Err(why) = Secrets::resolve(reference) {
            found.push(not_there(reference, users, &why));
        }
    }
    let defaults = ServerConfig::default();
    let policy = SecretPolicy::of_server(known.map_or(&defaults, |known| &known.config));
    for (reference, rules, users) in of_workflows.values() {
        if let Err(fault) = policy.resolve(reference, *rules) {
            found.extend(refused(reference, users, &fault));
        }
    }
    if checked.is_some_and(|checked| checked.errors() > 0) {
        let message = "the workflow files do not load, so not all secrets are known";
        found.push(Finding::skipped(message).fix("see why: stepward doctor workflows"));
    }
    if checked.is_none() && found.is_empty() && all == 0 {
        return Err(Finding::skipped(
            "no workflow files are here, and no target names one",
        ));
    }
    Ok(or_well(found, || format!("{} found", count(all, "secret"))))
}

/// References to secrets, each with the strictest rules that a user of it was accepted under, and the names of its users.
type UsersByReference = BTreeMap<String, (SecretRef, Rules, Vec<String>)>;

fn add_user(named: &mut UsersByReference, reference: &SecretRef, rules: Rules, user: String) {
    let entry = named.entry(format!("{reference:?}"));
    let (_, strictest, users) = entry.or_insert_with(|| (reference.clone(), rules, Vec::new()));
    *strictest = (*strictest).max(rules);
    if !users.contains(&user) {
        users.push(user);
    }
}

fn not_there(reference: &SecretRef, users: &[String], why: &str) -> Finding {
    let users = users.join(", ");
    match reference {
        SecretRef::File(path) => {
            let fix = match Path::new(path).is_dir() {
                true => format!("name a file, {path} is a folder"),
                false => format!("write it into {path}, readable for the server alone"),
            };
            Finding::problem(format!("a secret of {users} is not there: {why}")).fix(fix)
        }
        // Whoever looks may have another environment than the server.
        SecretRef::Env(variable) => Finding::warning(format!(
            "a secret of {users} is not in this environment: {variable}"
        ))
        .fix(format!(
            "see that the server has {variable} where it is started"
        )),
    }
}

/// A secret of a workflow file that `stepward server` would not use. `None`: only the server itself can tell.
fn refused(reference: &SecretRef, users: &[String], fault: &SecretFault) -> Option<Finding> {
    let message = || format!("a secret of {}: {fault}", users.join(", "));
    Some(match fault.kind {
        SecretFaultKind::Unreadable => not_there(reference, users, &fault.message),
        // The credentials of a service are in its own environment.
        SecretFaultKind::NotAllowed if is_credential(reference) => return None,
        // `stepward dev` and a local run allow it.
        SecretFaultKind::NotAllowed => Finding::warning(message()).fix(
            "correct it as the message says; `stepward dev` and a local run are not restricted. A credential that systemd gives to \
             the server is allowed, but this command knows of it only where CREDENTIALS_DIRECTORY is set as for the server",
        ),
        SecretFaultKind::Refused | SecretFaultKind::TooShort => {
            Finding::problem(message()).fix("correct it as the message says")
        }
    })
}

fn is_credential(reference: &SecretRef) -> bool {
    match reference {
        SecretRef::File(path) => Path::new(path).starts_with("/run/credentials"),
        SecretRef::Env(_) => false,
    }
}

fn references(target: &NotifyTarget) -> Vec<&SecretRef> {
    let url = match &target.url {
        Some(Text::Reference(reference)) => Some(reference),
        _ => None,
    };
    let all = [url, target.secret.as_ref(), target.token.as_ref()];
    all.into_iter()
        .flatten()
        .map(|reference| &reference.0)
        .collect()
}
