//! `stepward run`: a task at a server, or here and now where there is none.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use crossbeam_channel::{Receiver, after, select};

use super::exit::{Exit, Fault};
use super::files::with_flag;
use super::found::{self, Found, Wanted};
use super::inputs::Given;
use super::local::{Local, LocalOptions, new_token, slots};
use super::process;
use super::progress::{FollowArgs, Here, Place, Watched, watch};
use super::reach::{Reach, Remote, in_url, last_words, name};
use super::say::{answer, answer_json, say};
use super::words::printable;
use crate::client::CallError;
use crate::domain::task::{Definition, HookDoes};
use crate::wire::api::{JobJson, List, ServedWorkflows, SubmitRequest, ValueJson};

/// An answer that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Files that do not load, and are told of.
const STALE_MAX: usize = 3;
/// Between two looks at the jobs of hooks.
const HOOKS_LOOK: Duration = Duration::from_millis(50);

#[derive(Args)]
#[command(before_help = "Examples:
  stepward run hello.yaml                       a file, in this process
  stepward run hello.yaml --logs                the same, with all that its steps print
  stepward run release -i version=1.10          a task of the server, or of ./workflows
  stepward run release -i @in.json --detach     prints the job's number
  pass show deploy | stepward run deploy -i @-  inputs as JSON from stdin: good for secrets")]
pub struct RunArgs {
    /// A task of the server or of the workflows here; or a workflow file, which always runs in this process.
    #[arg(value_name = "TASK|FILE", value_parser = name)]
    target: String,
    /// What the task is given: key=value, again and again; @FILE for a JSON object of inputs, @- for one on stdin.
    ///
    /// A value is what the task's input is: `version=1.10` stays a text where a text is asked for. A list is given item by item, or
    /// as JSON. Others on this machine can see arguments: secrets better come by -i @-.
    #[arg(short, long = "input", value_name = "KEY=VALUE")]
    inputs: Vec<String>,
    /// Shows how it goes and exits with the job's outcome, as without it.
    #[arg(long, conflicts_with = "detach")]
    watch: bool,
    /// Prints the job's number and leaves it to the server.
    #[arg(long, conflicts_with = "logs")]
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
    let is_file = found::is_file(&args.target);
    if is_file {
        refuse_server(&args)?;
    }
    let wants_here =
        args.local || args.data.is_some() || args.slots.is_some() || !args.tags.is_empty();
    let of_file = args.task.is_some() || args.root.is_some();
    if !is_file
        && !wants_here
        && !of_file
        && let Some(remote) = args.reach.find()?
    {
        let task = found::at_server(&remote, &args.target)?;
        say_what_is_stale(&remote);
        return run_at(args, &remote, &task.inputs);
    }
    // Whoever had a server a moment ago expects it to do this.
    let ended = (!is_file && !args.local).then(last_words).flatten();
    if let Some(ended) = ended {
        if args.detach {
            return Err(Fault::new(Exit::Unreachable, ended).into());
        }
        let kept = match args.data {
            Some(_) => "",
            None => ", and nothing of it is kept",
        };
        say(format!("{ended}; this runs here{kept}"));
    }
    let found = found::here(&Wanted {
        word: &args.target,
        task: args.task.as_deref(),
        root: args.root.as_deref(),
        config: None,
        look: &args.follow.show.look,
    })?;
    run_here(&args, found)
}

/// Somebody who has just saved a file that does not load would take the former one for it. It runs all the same.
fn say_what_is_stale(remote: &Remote) {
    let Ok(loaded) = remote.get::<ServedWorkflows>("/api/workflows") else {
        return;
    };
    for file in loaded.stale.iter().take(STALE_MAX) {
        let why = loaded.errors().find(|error| error.file == *file);
        let why = why.map(|error| {
            let (line, message) = (error.line, printable(&error.message));
            format!(" (line {line}: {message})")
        });
        say(format!(
            "{} does not load{}; what it had when it last did is served",
            printable(file),
            why.unwrap_or_default()
        ));
    }
}

/// What is in the environment is for tasks; who names a server next to a file expects what does not happen.
fn refuse_server(args: &RunArgs) -> anyhow::Result<()> {
    let by_flag = |url: &String| std::env::var("STEPWARD_SERVER_URL").as_ref() != Ok(url);
    if !args.reach.server.as_ref().is_some_and(by_flag) {
        return Ok(());
    }
    let file = printable(&args.target);
    Err(Fault::usage(format!(
        "{file} is a file, which runs in this process; at a server name one of its tasks: stepward run TASK --server URL"
    )))
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

/// Whose answer got lost is asked for once more: the key makes no second job of it.
fn submit(
    remote: &Remote,
    task: &str,
    request: &SubmitRequest,
    key: Option<&str>,
) -> anyhow::Result<JobJson> {
    let path = format!("/api/tasks/{}/jobs", in_url(task));
    let key = key.map_or_else(new_token, str::to_string);
    let post = || remote.client.post_once(&path, request, &key, PATIENCE);
    let answer = match post() {
        Err(CallError::Unreachable(_)) => post(),
        answered => answered,
    };
    remote
        .heard(answer)
        .map_err(|error| match Exit::of(&error) {
            Exit::Invalid if error.to_string().contains("this input") => {
                let message = format!("{error:#}\n  inputs are given with -i NAME=VALUE");
                Fault::new(Exit::Invalid, message).into()
            }
            _ => error,
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

fn run_here(args: &RunArgs, found: Found) -> anyhow::Result<Exit> {
    if args.detach {
        let message = "a run in this process cannot be detached: it would end with it; start a server with `stepward dev`";
        return Err(Fault::usage(message));
    }
    let definition = &*found.definition;
    let task = &definition.root().draft;
    let inputs: Vec<ValueJson> = task.inputs.iter().map(ValueJson::from).collect();
    let request = submission(args, &inputs)?;
    let signals = process::signals()?;
    let local = Local::start(LocalOptions {
        workflows: &found.workflows,
        tags: tags(definition, &args.tags),
        slots: args.slots.unwrap_or_else(slots),
        data: args.data.as_deref(),
        settings: found.settings,
    })
    .map_err(|error| with_flag(error, "--data"))?;
    for remark in local.remarks() {
        say(remark);
    }
    let watched = follow_here(args, &local, &task.name, &request, &signals);
    let outcome = match watched {
        Ok((
            _,
            Watched {
                exit,
                at_once: true,
            },
        )) => {
            local.abandon();
            return Ok(exit);
        }
        Ok((job_id, watched)) => {
            if watched.exit != Exit::Interrupted && has_hooks(definition) {
                await_hooks(&local.remote, job_id, definition, &signals);
            }
            local.end_unless(Some(job_id), &signals);
            return Ok(watched.exit);
        }
        Err(error) => Err(error),
    };
    local.end_unless(None, &signals);
    outcome
}

fn follow_here(
    args: &RunArgs,
    local: &Local,
    task: &str,
    request: &SubmitRequest,
    signals: &Receiver<()>,
) -> anyhow::Result<(i64, Watched)> {
    let remote = &local.remote;
    let job = submit(remote, task, request, args.idempotency_key.as_deref())?;
    let (url, token) = (&remote.url, local.token_file.display());
    let place = Place {
        suffix: format!(" --server {url} --token-file {token}"),
        here: Some(Here {
            data: args.data.clone(),
            folder: local.data_dir.clone(),
            worker_dir: local.worker_dir.clone(),
            remarks: local.remarks().to_vec(),
        }),
    };
    let watched = watch(remote, &job, &place, &args.follow, signals)?;
    Ok((job.id, watched))
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

/// The end of the process would be that of what the job's end has started. What else a kept folder holds is for another time.
fn await_hooks(remote: &Remote, job_id: i64, definition: &Definition, signals: &Receiver<()>) {
    let mut told = BTreeSet::new();
    loop {
        let hooks = hooks_of(remote, job_id);
        for hook in hooks.iter().filter(|hook| hook.ended_at.is_some()) {
            if hook.status != "completed" && told.insert(hook.id) {
                say(hook_failure(hook, definition));
            }
        }
        if hooks.iter().all(|hook| hook.ended_at.is_some()) {
            return;
        }
        select! {
            recv(signals) -> _ => return,
            recv(after(HOOKS_LOOK)) -> _ => {}
        }
    }
}

/// The jobs that hooks of this one made, or hooks of those that it called. All of them are younger than it is.
fn hooks_of(remote: &Remote, job_id: i64) -> Vec<JobJson> {
    let made = remote.get::<List<JobJson>>("/api/jobs?limit=100&q=source:hook");
    let made = made.map_or_else(|_| Vec::new(), |made| made.items);
    let hooks = made.into_iter().filter(|hook| {
        let of = hook.hook_of.filter(|of| *of >= job_id);
        of.is_some_and(|of| is_within(remote, of, job_id))
    });
    hooks.collect()
}

/// Whether a job is this one, or was called by it, however indirectly.
fn is_within(remote: &Remote, mut one: i64, job_id: i64) -> bool {
    while one > job_id {
        let job = remote.get::<JobJson>(&format!("/api/jobs/{one}"));
        match job.ok().and_then(|job| job.parent) {
            Some(parent) => one = parent.job_id,
            None => return false,
        }
    }
    one == job_id
}

/// `the hook on_success failed: job 3 of task notify: step tell failed: exit code 1`
fn hook_failure(hook: &JobJson, definition: &Definition) -> String {
    let hooks = definition.tasks().iter().flat_map(|task| &task.draft.hooks);
    let makes_it =
        |does: &HookDoes| matches!(does, HookDoes::Job { task, .. } if *task == hook.task);
    let on: BTreeSet<&str> = hooks
        .filter(|hook| makes_it(&hook.does))
        .map(|hook| hook.on.as_str())
        .collect();
    let which = match on.first() {
        Some(on_one) if on.len() == 1 => format!("the hook {on_one}"),
        _ => "a hook".to_string(),
    };
    let (status, task) = (&hook.status, printable(&hook.task));
    let status = if status == "failed" {
        "failed"
    } else {
        "did not complete"
    };
    let message = hook.message.as_deref().map(printable);
    let message = message.map_or_else(String::new, |message| format!(": {message}"));
    format!("{which} {status}: job {} of task {task}{message}", hook.id)
}
