//! The task that somebody named: of a workflow file, of the folder of workflows, or at a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::exit::{Exit, Fault};
use super::files::{server_config, workflows_folder};
use super::look::LookArgs;
use super::reach::{Remote, in_url};
use super::say::{say, tell};
use super::words::{count, printable, shell_path, shown_path};
use crate::config::ServerConfig;
use crate::domain::task::Definition;
use crate::language::words::{listed, nearest};
use crate::language::{self, CheckOptions, Checked, Library, Workflows, render};
use crate::wire::api::TaskJson;

/// What is missing may be elsewhere: a script, a task, an action, a secret.
pub const MISSING: [&str; 4] = ["E028", "E033", "E037", "E043"];

pub struct Wanted<'a> {
    /// A file, or a task of the workflows folder.
    pub word: &'a str,
    /// Which task of the file.
    pub task: Option<&'a str>,
    /// The folder of the file's neighbours.
    pub root: Option<&'a Path>,
    /// The settings file of the server.
    pub config: Option<&'a Path>,
    pub look: &'a LookArgs,
}

pub struct Found {
    pub definition: Arc<Definition>,
    /// It, and what it may call.
    pub workflows: Arc<Workflows>,
    pub settings: ServerConfig,
}

/// Whether this names a file rather than a task: it looks like one. What is in the folder does not change what a word means.
pub fn is_file(word: &str) -> bool {
    word.contains('/') || word.ends_with(".yaml") || word.ends_with(".yml")
}

/// Here, in files. No server is asked.
pub fn here(wanted: &Wanted) -> anyhow::Result<Found> {
    let settings = server_config(wanted.config)?;
    let (checked, place) = match is_file(wanted.word) {
        true => in_file(wanted, &settings)?,
        false => in_folder(wanted, &settings)?,
    };
    let workflows = match beside_broken_ones(&checked, wanted, &settings) {
        Some(workflows) => workflows,
        None => {
            refuse_faults(&checked, wanted)?;
            Arc::new(checked.workflows)
        }
    };
    let name = match (is_file(wanted.word), wanted.task) {
        (false, _) => wanted.word.to_string(),
        (true, Some(task)) => task.to_string(),
        (true, None) => obvious(&workflows, Path::new(wanted.word), &place)?,
    };
    Ok(Found {
        definition: named(&workflows, &name, &place)?,
        workflows,
        settings,
    })
}

/// A task of the folder whose own file loads, with all that it needs, runs although others do not: a server does the same.
fn beside_broken_ones(
    checked: &Checked,
    wanted: &Wanted,
    settings: &ServerConfig,
) -> Option<Arc<Workflows>> {
    // Which of two with one name is meant, nobody knows.
    let is_ambiguous = checked.diagnostics.iter().any(|found| found.code == "E060");
    if checked.errors() == 0 || is_file(wanted.word) || is_ambiguous {
        return None;
    }
    let folder = workflows_folder(settings)?;
    let loaded = Library::new(&folder).reload();
    let is_good = |word: &str| loaded.workflows.tasks().any(|(known, _)| known == word);
    if !is_good(wanted.word) {
        return None;
    }
    let broken = loaded.left_out.iter().map(|file| shown_path(file));
    say(format!(
        "{} left out, `stepward validate {}` says why",
        match broken.collect::<Vec<_>>().as_slice() {
            [one] => format!("{one} does not load and is"),
            [one, more @ ..] => format!("{one} and {} more do not load and are", more.len()),
            [] => return None,
        },
        shell_path(&folder)
    ));
    Some(loaded.workflows)
}

/// What the server knows. One that does not answer is no reason to do it elsewhere.
pub fn at_server(remote: &Remote, name: &str) -> anyhow::Result<TaskJson> {
    let found = remote.get(&format!("/api/tasks/{}", in_url(name)));
    found.map_err(|error| match (Exit::of(&error), namesake(name)) {
        (Exit::NotFound, Some(file)) => Fault::not_found(format!("{error:#}; {file}")),
        _ => error,
    })
}

/// For whoever meant a file by what is no task.
fn namesake(name: &str) -> Option<String> {
    let is_there = Path::new(name).is_file();
    is_there.then(|| format!("the file is ./{}", printable(name)))
}

fn in_file(wanted: &Wanted, settings: &ServerConfig) -> anyhow::Result<(Checked, String)> {
    let file = Path::new(wanted.word);
    let shown = printable(wanted.word);
    if file.is_dir() {
        let message = format!("{shown} is a folder, name a file or a task");
        return Err(Fault::usage(message));
    }
    match file.try_exists() {
        Ok(true) => {}
        Ok(false) => return Err(missing_file(file, &shown)),
        Err(error) => return Err(Fault::not_found(format!("{shown} cannot be read: {error}"))),
    }
    if let Some(root) = wanted.root.filter(|root| !root.is_dir()) {
        return Err(Fault::usage(format!("{} is not a folder", root.display())));
    }
    let load = |root: Option<&Path>| {
        let paths = [file.to_path_buf()];
        let folder = root.map_or_else(|| folder_of(file), Path::to_path_buf);
        language::load_files(&paths, &folder, root, &CheckOptions::default())
    };
    let checked = load(wanted.root);
    // One of the workflows folder may call what the others have.
    let own = workflows_folder(settings).filter(|folder| is_below(file, folder));
    let checked = match &own {
        Some(own) if wanted.root.is_none() && checked.errors() > 0 => load(Some(own)),
        _ => checked,
    };
    Ok((checked, shown))
}

fn in_folder(wanted: &Wanted, settings: &ServerConfig) -> anyhow::Result<(Checked, String)> {
    let name = printable(wanted.word);
    let flags = [
        (wanted.task.is_some(), "--task"),
        (wanted.root.is_some(), "--root"),
    ];
    if let Some((_, flag)) = flags.into_iter().find(|(given, _)| *given) {
        let message = format!("{flag} goes with a file, and {name} is a task");
        return Err(Fault::usage(message));
    }
    let Some(folder) = workflows_folder(settings) else {
        let hint = namesake(wanted.word);
        let hint = hint.unwrap_or(
            "`stepward run FILE` takes a file, `stepward init` begins a project".to_string(),
        );
        return Err(Fault::not_found(format!(
            "there is no task {name:?} here: no server is known and there is no folder `workflows`; {hint}"
        )));
    };
    let shown = format!("the folder {}", folder.display());
    Ok((language::load(&folder), shown))
}

fn named(workflows: &Workflows, name: &str, place: &str) -> anyhow::Result<Arc<Definition>> {
    let mut tasks = workflows.tasks();
    if let Some((_, definition)) = tasks.find(|(known, _)| *known == name) {
        return Ok(definition.clone());
    }
    let names = || workflows.tasks().map(|(known, _)| known.as_str());
    let hint = namesake(name).unwrap_or_else(|| match nearest(name, names()) {
        Some(near) => format!("did you mean {near}?"),
        None if names().next().is_none() => "it has none at all".to_string(),
        None => format!("it has {}", listed(names())),
    });
    let message = format!("{place} has no task {:?}; {hint}", printable(name));
    Err(Fault::not_found(message))
}

/// The only one, else the one that is called like the file.
fn obvious(workflows: &Workflows, file: &Path, place: &str) -> anyhow::Result<String> {
    let tasks = workflows.tasks();
    let names: Vec<&str> = tasks.map(|(name, _)| name.as_str()).collect();
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    match names.as_slice() {
        [] => Err(Fault::not_found(format!("{place} has no task"))),
        [only] => Ok(only.to_string()),
        _ => match stem.filter(|stem| names.contains(stem)) {
            Some(stem) => Ok(stem.to_string()),
            None => Err(Fault::usage(format!(
                "{place} has several tasks, choose with --task: {}",
                listed(names.iter().copied())
            ))),
        },
    }
}

/// What is wrong is shown as `validate` shows it, and ends the command.
fn refuse_faults(checked: &Checked, wanted: &Wanted) -> anyhow::Result<()> {
    let errors = checked.errors();
    if errors == 0 {
        return Ok(());
    }
    let mut found = checked.diagnostics.clone();
    found.retain(|found| found.is_error());
    let look = wanted.look.stderr();
    let shown = look.own(render::human(&found, look.colour));
    let misses = found.iter().any(|found| MISSING.contains(&found.code));
    let hint = match misses && is_file(wanted.word) && wanted.root.is_none() {
        true => {
            "; only this file was looked at, with --root DIR the others of the folder are known"
        }
        false => "",
    };
    let errors = count(errors, "error");
    // Before the error: whatever an error says is shown without colours.
    tell(shown.trim_end());
    Err(Fault::new(Exit::Invalid, format!("the workflow has {errors}{hint}")).into())
}

fn missing_file(file: &Path, shown: &str) -> anyhow::Error {
    // Whatever cannot be listed has no name to suggest.
    let entries = std::fs::read_dir(folder_of(file)).into_iter().flatten();
    let names = entries.flatten().map(|entry| entry.file_name());
    let names: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.ends_with(".yaml") || name.ends_with(".yml"))
        .collect();
    let wanted = file.file_name().and_then(|name| name.to_str());
    let wanted = wanted.unwrap_or_default();
    // What is there and cannot be followed is no suggestion.
    let others = names
        .iter()
        .map(String::as_str)
        .filter(|name| *name != wanted);
    let near = nearest(wanted, others);
    let hint = near.map(|near| format!("; did you mean {}?", printable(near)));
    let hint = hint.unwrap_or_default();
    Fault::not_found(format!("the file {shown} does not exist{hint}"))
}

fn is_below(file: &Path, folder: &Path) -> bool {
    match (file.canonicalize(), folder.canonicalize()) {
        (Ok(file), Ok(folder)) => file.starts_with(folder),
        _ => false,
    }
}

/// Where `file:` is looked for.
pub fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
