//! The task that somebody named, from a workflow file or from the folder of workflows. No server is asked.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::exit::{Exit, Fault};
use super::files::{server_config, workflows_folder};
use super::look::LookArgs;
use super::words::{count, printable};
use crate::domain::task::Definition;
use crate::language::words::{listed, nearest};
use crate::language::{self, CheckOptions, Checked, render};

/// Whether this names a file rather than a task: it is there, or looks like a path.
pub fn is_file(word: &str) -> bool {
    let is_path = word.contains('/') || word.ends_with(".yaml") || word.ends_with(".yml");
    is_path || Path::new(word).is_file()
}

/// `word` is a file, of which `task` names one if it has several; or a task of the workflows folder.
pub fn task(
    word: &str,
    task: Option<&str>,
    config: Option<&Path>,
    look: &LookArgs,
) -> anyhow::Result<Arc<Definition>> {
    match is_file(word) {
        true => in_file(Path::new(word), task, config, look),
        false => in_folder(word, task, config, look),
    }
}

fn in_file(
    file: &Path,
    task: Option<&str>,
    config: Option<&Path>,
    look: &LookArgs,
) -> anyhow::Result<Arc<Definition>> {
    if !file.exists() {
        let message = format!("{} does not exist", file.display());
        return Err(Fault::not_found(message));
    }
    if file.is_dir() {
        let message = format!("{} is a folder, name a file or a task", file.display());
        return Err(Fault::usage(message));
    }
    // One of the workflows folder may call what the others have.
    let root = workflows_folder(&server_config(config)?).filter(|folder| is_below(file, folder));
    let folder = match &root {
        Some(root) => root.clone(),
        None => folder_of(file),
    };
    let paths = [file.to_path_buf()];
    let options = CheckOptions::default();
    let alone = language::load_files(&paths, &folder, None, &options);
    let checked = match &root {
        Some(root) if alone.errors() > 0 => {
            language::load_files(&paths, &folder, Some(root), &options)
        }
        _ => alone,
    };
    refuse_faults(&checked, look)?;
    let name = file.display().to_string();
    match task {
        Some(task) => named(&checked, task, &name),
        None => only(&checked, &name),
    }
}

fn in_folder(
    name: &str,
    task: Option<&str>,
    config: Option<&Path>,
    look: &LookArgs,
) -> anyhow::Result<Arc<Definition>> {
    if task.is_some() {
        let message = format!("{name} is no file: --task names a task of a file");
        return Err(Fault::usage(message));
    }
    let Some(folder) = workflows_folder(&server_config(config)?) else {
        let message = format!(
            "there is no task {name:?}: this folder has no `workflows`; name a file, or go to a folder that has some"
        );
        return Err(Fault::not_found(message));
    };
    let options = CheckOptions::default();
    let checked = language::load_files(std::slice::from_ref(&folder), &folder, None, &options);
    refuse_faults(&checked, look)?;
    named(&checked, name, &folder.display().to_string())
}

fn named(checked: &Checked, name: &str, place: &str) -> anyhow::Result<Arc<Definition>> {
    let mut tasks = checked.workflows.tasks();
    if let Some((_, definition)) = tasks.find(|(known, _)| *known == name) {
        return Ok(definition.clone());
    }
    let names = || checked.workflows.tasks().map(|(known, _)| known.as_str());
    let hint = match nearest(name, names()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("there are {}", listed(names())),
    };
    let name = printable(name);
    let message = format!("there is no task {name:?} in {place}; {hint}");
    Err(Fault::not_found(message))
}

fn only(checked: &Checked, place: &str) -> anyhow::Result<Arc<Definition>> {
    let mut tasks = checked.workflows.tasks();
    match (tasks.next(), tasks.next()) {
        (Some((_, definition)), None) => Ok(definition.clone()),
        (None, _) => Err(Fault::not_found(format!("{place} has no task"))),
        (Some(_), Some(_)) => {
            let names = checked.workflows.tasks().map(|(name, _)| name.as_str());
            let message = format!(
                "{place} has several tasks, say which one: --task {}",
                listed(names)
            );
            Err(Fault::usage(message))
        }
    }
}

/// What is wrong is shown as `validate` shows it, and ends the command.
fn refuse_faults(checked: &Checked, look: &LookArgs) -> anyhow::Result<()> {
    let errors = checked.errors();
    if errors == 0 {
        return Ok(());
    }
    let mut found = checked.diagnostics.clone();
    found.retain(|found| found.is_error());
    let shown = render::human(&found, look.stderr().colour);
    // Nobody hears it; the exit code tells the rest.
    let _ = std::io::stderr().write_all(shown.as_bytes());
    let message = format!("{} in what was written", count(errors, "error"));
    Err(Fault::new(Exit::Invalid, message).into())
}

fn is_below(file: &Path, folder: &Path) -> bool {
    match (file.canonicalize(), folder.canonicalize()) {
        (Ok(file), Ok(folder)) => file.starts_with(folder),
        _ => false,
    }
}

/// Where `file:` is looked for.
fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
