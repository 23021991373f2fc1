//! `stepward run`: a task at a server, or here and now where there is none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use crossbeam_channel::{Receiver, after, select};

use super::exit::{Exit, Fault};
use super::files::{server_config, workflows_folder};
use super::inputs::Given;
use super::local::{Local, LocalOptions, slots};
use super::process;
use super::progress::{FollowArgs, Here, Place, Watched, watch};
use super::reach::{NamedBy, Reach, Remote, in_url};
use super::say::{answer, answer_json, say};
use super::validate::{MISSING, folder_of};
use super::words::printable;
use crate::client::CallError;
use crate::config::ServerConfig;
use crate::domain::task::{Definition, HookDoes};
use crate::language::words::{listed, nearest};
use crate::language::{self, CheckOptions, Checked, Workflows, render};
use crate::wire::api::{JobJson, List, SubmitRequest, TaskJson, ValueJson};

/// An answer that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at the jobs of hooks.
const HOOKS_LOOK: Duration = Duration::from_millis(50);

#[derive(Args)]
#[command(before_help = "Examples:
  stepward run hello.yaml                         a file, in this process
  stepward run release -i version=1.10            a task of the server here, or of the folder `workflows`
  stepward run release -i @inputs.json --detach   prints the job's number
  pass show deploy | stepward run deploy -i @-    inputs as JSON from stdin: good for secrets")]
pub struct RunArgs {
    /// A task of the server or of the workflows here; or a workflow file, which always runs in this process.
    #[arg(value_name = "TASK|FILE")]
    target: String,
    /// What the task is given: key=value, again and again; @FILE for a JSON object, @- for one on stdin.
    #[arg(short, long = "input", value_name = "KEY=VALUE")]
    inputs: Vec<String>,
    /// Shows how it goes and exits with the job's outcome, as without it.
    #[arg(long, conflicts_with = "detach")]
    watch: bool,
    /// Prints the job's number and leaves it to the server.
    #[arg(long)]
    detach: bool,
    /// A word to find the job by, such as team=data.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Higher ones are taken first.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// The same key makes no second job, it names the first.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Runs it in this process though there is a server.
    #[arg(long, help_heading = "In this process")]
    local: bool,
    /// Keeps database and logs in this folder; else they go with the run.
    #[arg(long, value_name = "DIR", help_heading = "In this process")]
    data: Option<PathBuf>,
    /// What this machine offers besides `script`, and besides docker and kubernetes where a step needs them.
    #[arg(
        long,
        value_name = "TAGS",
        value_delimiter = ',',
        help_heading = "In this process"
    )]
    tags: Vec<String>,
    /// How many steps run at a time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000), help_heading = "In this process")]
    slots: Option<u32>,
    /// Which task of the file.
    #[arg(long, value_name = "NAME", help_heading = "In this process")]
    task: Option<String>,
    /// The folder of the file's neighbours: their tasks and actions are known then.
    #[arg(long, value_name = "DIR", help_heading = "In this process")]
    root: Option<PathBuf>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    follow: FollowArgs,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_string(), value.to_string())),
        _ => Err("write KEY=VALUE".to_string()),
    }
}

pub fn run(args: RunArgs) -> anyhow::Result<Exit> {
    process::begin_quietly();
    let path = PathBuf::from(&args.target);
    let is_file = path.is_file()
        || args.target.contains('/')
        || matches!(
            path.extension().and_then(|end| end.to_str()),
            Some("yaml" | "yml")
        );
    if is_file {
        return run_file(args, &path);
    }
    for (given, flag) in [
        (args.task.is_some(), "--task"),
        (args.root.is_some(), "--root"),
    ] {
        if given {
            let task = printable(&args.target);
            return Err(Fault::usage(format!(
                "{flag} goes with a file, and {task} is a task"
            )));
        }
    }
    let wants_here =
        args.local || args.data.is_some() || args.slots.is_some() || !args.tags.is_empty();
    if !wants_here && let Some(remote) = args.reach.find()? {
        match find_task(&remote, &args.target)? {
            Found::Task(task) => return run_at(args, &remote, &task.inputs),
            Found::NoServer => say(format!(
                "no server answers at {} any more, so it runs in this process",
                remote.url
            )),
        }
    }
    run_task_here(args)
}

enum Found {
    Task(Box<TaskJson>),
    /// The one that this folder had is gone.
    NoServer,
}

fn find_task(remote: &Remote, name: &str) -> anyhow::Result<Found> {
    let path = format!("/api/tasks/{}", in_url(name));
    match remote.client.get::<TaskJson>(&path, PATIENCE) {
        Ok(task) => Ok(Found::Task(Box::new(task))),
        Err(CallError::Unreachable(_)) if matches!(remote.named_by, NamedBy::Folder(..)) => {
            Ok(Found::NoServer)
        }
        Err(CallError::Refused { status: 404, error }) if error.code != "unknown" => {
            let tasks: Vec<TaskJson> = remote.all("/api/tasks?limit=500", "after", 10_000)?;
            let names = tasks.iter().map(|task| task.name.as_str());
            let place = format!("the server at {}", remote.url);
            Err(unknown_task(name, names, &place))
        }
        Err(error) => Err(remote.heard::<()>(Err(error)).unwrap_err()),
    }
}

fn unknown_task<'n>(
    name: &str,
    known: impl Iterator<Item = &'n str> + Clone,
    place: &str,
) -> anyhow::Error {
    let help = match nearest(name, known.clone()) {
        Some(meant) => format!("did you mean {meant}?"),
        None if known.clone().next().is_none() => "it has none at all".to_string(),
        None => format!("it has {}", listed(known)),
    };
    Fault::not_found(format!("{place} has no task {:?}; {help}", printable(name)))
}

fn submission(args: &RunArgs, inputs: &[ValueJson]) -> anyhow::Result<SubmitRequest> {
    let input = Given::read(&args.inputs)?.typed(inputs)?;
    let input = serde_json::Value::Object(input).to_string();
    Ok(SubmitRequest {
        input: Some(serde_json::from_str(&input)?),
        priority: args.priority,
        not_before: None,
        labels: args.labels.iter().cloned().collect(),
    })
}

fn submit(
    remote: &Remote,
    task: &str,
    request: &SubmitRequest,
    key: Option<&str>,
) -> anyhow::Result<JobJson> {
    let path = format!("/api/tasks/{}/jobs", in_url(task));
    remote.heard(match key {
        Some(key) => remote.client.post_once(&path, request, key, PATIENCE),
        None => remote.client.post(&path, request, PATIENCE),
    })
}

fn run_at(args: RunArgs, remote: &Remote, inputs: &[ValueJson]) -> anyhow::Result<Exit> {
    let request = submission(&args, inputs)?;
    let signals = process::signals()?;
    let key = args.idempotency_key.as_deref();
    let job = submit(remote, &args.target, &request, key)?;
    follow_at(
        remote,
        &job,
        args.detach,
        &args.reach,
        &args.follow,
        &signals,
    )
}

/// A job that was just made at a server: shown to its end, or named and left to itself.
pub fn follow_at(
    remote: &Remote,
    job: &JobJson,
    detach: bool,
    reach: &Reach,
    args: &FollowArgs,
    signals: &Receiver<()>,
) -> anyhow::Result<Exit> {
    if detach {
        // Whoever does not read it has made it all the same.
        let _ = match args.show.json {
            true => answer_json(job),
            false => answer(job.id),
        };
        return Ok(Exit::Success);
    }
    let place = Place::at_server(reach);
    Ok(watch(remote, job, &place, args, signals)?.exit)
}

fn run_task_here(args: RunArgs) -> anyhow::Result<Exit> {
    let settings = server_config(None)?;
    let target = printable(&args.target);
    let Some(folder) = workflows_folder(&settings) else {
        return Err(Fault::not_found(format!(
            "there is no task {target:?} here: no server is known and there is no folder `workflows`; \
             run a file with `stepward run FILE`, or begin with `stepward init`"
        )));
    };
    let checked = language::load(&folder);
    if checked.errors() > 0 {
        return Ok(refuse(&checked, &args));
    }
    let found = checked
        .workflows
        .tasks()
        .find(|(name, _)| **name == args.target);
    let Some((_, definition)) = found else {
        let names = checked.workflows.tasks().map(|(name, _)| name.as_str());
        let names: Vec<&str> = names.collect();
        let folder = format!("the folder {}", folder.display());
        return Err(unknown_task(&args.target, names.into_iter(), &folder));
    };
    run_here(&args, &checked.workflows, definition, settings)
}

fn run_file(args: RunArgs, path: &Path) -> anyhow::Result<Exit> {
    let by_flag = |url: &String| std::env::var("STEPWARD_SERVER_URL").as_ref() != Ok(url);
    if args.reach.server.as_ref().is_some_and(by_flag) {
        return Err(Fault::usage(format!(
            "{} is a file, which runs in this process; at a server name one of its tasks: stepward run TASK --server URL",
            path.display()
        )));
    }
    if !path.is_file() {
        return Err(missing_file(path));
    }
    if let Some(root) = args.root.as_ref().filter(|root| !root.is_dir()) {
        return Err(Fault::usage(format!("{} is not a folder", root.display())));
    }
    let settings = server_config(None)?;
    let paths = [path.to_path_buf()];
    let root = args.root.as_deref();
    let options = CheckOptions::default();
    let checked = language::load_files(&paths, &folder_of(&paths), root, &options);
    if checked.errors() > 0 {
        return Ok(refuse(&checked, &args));
    }
    let name = task_of(&checked.workflows, path, args.task.as_deref())?;
    let definition = checked.workflows.tasks().find(|(known, _)| **known == name);
    let (_, definition) = definition.expect("it was chosen among them");
    run_here(&args, &checked.workflows, definition, settings)
}

/// Says what is wrong, as `validate` does.
fn refuse(checked: &Checked, args: &RunArgs) -> Exit {
    let colour = args.follow.show.look.stderr().colour;
    let rendered = render::human(&checked.diagnostics, colour);
    say(format!(
        "the workflow is not run, it has errors\n{}",
        rendered.trim_end()
    ));
    let misses = checked
        .diagnostics
        .iter()
        .any(|found| MISSING.contains(&found.code));
    if misses && args.root.is_none() {
        say("only this file was looked at; with --root DIR the others of the folder are known");
    }
    Exit::Invalid
}

fn missing_file(path: &Path) -> anyhow::Error {
    let shown = printable(&path.display().to_string());
    if path.is_dir() {
        let message = format!("{shown} is a folder, name one of its files");
        return Fault::usage(message);
    }
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".yaml") || name.ends_with(".yml"))
        .collect();
    let wanted = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let help = match nearest(wanted, names.iter().map(String::as_str)) {
        Some(meant) => format!("; did you mean {}?", printable(meant)),
        None => String::new(),
    };
    Fault::not_found(format!("the file {shown} does not exist{help}"))
}

/// The one that is named; else the only one; else the one that is called like the file.
fn task_of(workflows: &Workflows, path: &Path, named: Option<&str>) -> anyhow::Result<String> {
    let names: Vec<&str> = workflows.tasks().map(|(name, _)| name.as_str()).collect();
    let shown = printable(&path.display().to_string());
    let stem = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    match (named, names.as_slice()) {
        (Some(named), _) if names.contains(&named) => Ok(named.to_string()),
        (Some(named), _) => Err(unknown_task(named, names.iter().copied(), &shown)),
        (None, []) => Err(Fault::usage(format!("{shown} has no task"))),
        (None, [only]) => Ok(only.to_string()),
        (None, _) if names.contains(&stem) => Ok(stem.to_string()),
        (None, _) => Err(Fault::usage(format!(
            "{shown} has several tasks, choose with --task: {}",
            listed(names.iter().copied())
        ))),
    }
}

fn run_here(
    args: &RunArgs,
    workflows: &Workflows,
    definition: &Definition,
    settings: ServerConfig,
) -> anyhow::Result<Exit> {
    if args.detach {
        let message = "a run in this process cannot be detached: it would end with it; start a server with `stepward dev`";
        return Err(Fault::usage(message));
    }
    let task = &definition.root().draft;
    let inputs: Vec<ValueJson> = task.inputs.iter().map(ValueJson::from).collect();
    let request = submission(args, &inputs)?;
    let signals = process::signals()?;
    let local = Local::start(LocalOptions {
        workflows,
        tags: tags(definition, &args.tags),
        slots: args.slots.unwrap_or_else(slots),
        data: args.data.as_deref(),
        settings,
    })?;
    for remark in local.remarks() {
        say(remark);
    }
    let watched = follow_here(args, &local, &task.name, &request, &signals);
    let outcome = match watched {
        Ok(Watched {
            exit,
            at_once: true,
        }) => {
            local.abandon();
            return Ok(exit);
        }
        Ok(watched) => {
            if watched.exit != Exit::Interrupted && has_hooks(definition) {
                await_hooks(&local.remote, &signals);
            }
            Ok(watched.exit)
        }
        Err(error) => Err(error),
    };
    local.end_unless(&signals);
    outcome
}

fn follow_here(
    args: &RunArgs,
    local: &Local,
    task: &str,
    request: &SubmitRequest,
    signals: &Receiver<()>,
) -> anyhow::Result<Watched> {
    let remote = &local.remote;
    let job = submit(remote, task, request, args.idempotency_key.as_deref())?;
    let (url, token) = (&remote.url, local.token_file.display());
    let place = Place {
        suffix: format!(" --server {url} --token-file {token}"),
        here: Some(Here {
            data: args.data.clone(),
        }),
    };
    watch(remote, &job, &place, &args.follow, signals)
}

/// What its steps need and this machine may have, and what somebody says that it has. Docker is asked only where it is needed.
fn tags(definition: &Definition, said: &[String]) -> Vec<String> {
    let needed = definition.tasks().iter().flat_map(|task| &task.draft.steps);
    let needed = needed.flat_map(|step| step.required_tags());
    let needed = needed.filter(|tag| tag == "docker" || tag == "kubernetes");
    let said = said.iter().filter(|tag| !tag.is_empty()).cloned();
    let all = std::iter::once("script".to_string())
        .chain(needed)
        .chain(said);
    let all: BTreeSet<String> = all.collect();
    all.into_iter().collect()
}

fn has_hooks(definition: &Definition) -> bool {
    let tasks = definition.tasks().iter();
    let mut hooks = tasks.flat_map(|task| &task.draft.hooks);
    hooks.any(|hook| matches!(hook.does, HookDoes::Job { .. }))
}

/// The end of the process would be that of what the job's end has started.
fn await_hooks(remote: &Remote, signals: &Receiver<()>) {
    loop {
        let open = ["pending", "running"].map(|status| {
            let path = format!("/api/jobs?limit=1&q=status:{status}");
            let jobs = remote.get::<List<JobJson>>(&path);
            jobs.is_ok_and(|jobs| !jobs.items.is_empty())
        });
        if open == [false, false] {
            return;
        }
        select! {
            recv(signals) -> _ => return,
            recv(after(HOOKS_LOOK)) -> _ => {}
        }
    }
}
