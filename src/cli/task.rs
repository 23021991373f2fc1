//! `stepward task`: what can be run, by a server or by the files of this folder.

use clap::{Args, Subcommand};
use serde::Deserialize;

use super::columns::Columns;
use super::columns::Room::{Any, Wide};
use super::exit::{Exit, Fault};
use super::files::{server_config, workflows_folder};
use super::job;
use super::look::{Look, Show};
use super::reach::{Reach, Remote, in_url, name};
use super::say::{answer_json, answer_json_list, print, say};
use super::sheet::{NOTHING, Sheet, joined, plain};
use super::table::Cell;
use super::words::{count, duration, printable, shell_word};
use crate::language;
use crate::language::words::did_you_mean;
use crate::wire::api::{JobJson, TaskJson, ValueJson};

/// How many of its latest jobs are shown with a task.
const LATEST: usize = 5;

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward task ls\n  stepward task show release\n  stepward task show release --json"
)]
pub struct TaskArgs {
    #[command(subcommand)]
    verb: TaskVerb,
}

#[derive(Subcommand)]
enum TaskVerb {
    /// Lists what can be run.
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Shows what a task wants, what it does and how it went.
    Show(ShowArgs),
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward task ls\n  stepward task ls --json",
    after_help = "Columns: task, steps, inputs, description"
)]
struct LsArgs {
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward task show release\n  stepward task show release --json"
)]
struct ShowArgs {
    #[arg(value_parser = name)]
    task: String,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

pub fn run(args: TaskArgs) -> anyhow::Result<Exit> {
    match args.verb {
        TaskVerb::Ls(args) => list(args),
        TaskVerb::Show(args) => show(args),
    }
}

fn list(args: LsArgs) -> anyhow::Result<Exit> {
    let remote = args.reach.find()?;
    let tasks = match &remote {
        Some(remote) => remote.all("/api/tasks?limit=500", "after", usize::MAX)?,
        None => of_this_folder(&args.reach)?,
    };
    if args.show.json {
        answer_json_list(tasks);
        return Ok(Exit::Success);
    }
    if tasks.is_empty() {
        say(match &remote {
            Some(remote) => none_served(remote)?,
            None => "there are no tasks; `stepward init` writes some to begin with".to_string(),
        });
        return Ok(Exit::Success);
    }
    let look = &args.show.look();
    let mut table = Columns::new(
        look,
        &[
            ("TASK", Any),
            ("STEPS", Any),
            ("INPUTS", Wide),
            ("DESCRIPTION", Any),
        ],
    );
    for task in &tasks {
        let inputs = task.inputs.iter().map(|input| match input.required {
            true => input.name.clone(),
            false => format!("[{}]", input.name),
        });
        let inputs: Vec<String> = inputs.collect();
        table.row(vec![
            Cell::new(&task.name),
            Cell::number(task.steps.len()),
            Cell::new(joined(&inputs)),
            Cell::new(task.description.as_deref().unwrap_or(NOTHING)),
        ]);
    }
    print(&table.text(look));
    Ok(Exit::Success)
}

/// Where they would be.
fn none_served(remote: &Remote) -> anyhow::Result<String> {
    #[derive(Deserialize)]
    struct Workflows {
        folder: Option<String>,
    }
    let url = &remote.url;
    let workflows: Workflows = remote.get("/api/workflows")?;
    Ok(match workflows.folder {
        Some(folder) => {
            let folder = printable(&folder);
            format!("the server at {url} has no tasks: it looks for them in {folder}")
        }
        None => format!(
            "the server at {url} has no tasks: it serves no folder, start it with --workflows-dir FOLDER or write \
             workflows_dir in its settings"
        ),
    })
}

/// The tasks of its workflow files, as a server would have them.
fn of_this_folder(reach: &Reach) -> anyhow::Result<Vec<TaskJson>> {
    let Some(folder) = workflows_folder(&server_config(None)?) else {
        return reach.server().map(|_| Vec::new());
    };
    let checked = language::load(&folder);
    say(format!(
        "no server is known here: these are the workflow files of {}",
        folder.display()
    ));
    let errors = checked.errors();
    if errors > 0 {
        say(format!(
            "{} in these files, and what has one is left out; `stepward validate` tells which",
            count(errors, "error")
        ));
    }
    let tasks = checked.workflows.tasks();
    Ok(tasks.map(|(_, task)| TaskJson::from(task.root())).collect())
}

fn show(args: ShowArgs) -> anyhow::Result<Exit> {
    let name = &args.task;
    let remote = args.reach.find()?;
    let task = match &remote {
        Some(remote) => remote.get(&format!("/api/tasks/{}", in_url(name)))?,
        None => one_of(of_this_folder(&args.reach)?, name)?,
    };
    if args.show.json {
        answer_json(&task);
        return Ok(Exit::Success);
    }
    let look = args.show.look();
    let mut text = head(&task).text(&look);
    if !task.inputs.is_empty() {
        text.push('\n');
        text.push_str(&inputs_table(&task.inputs, &look).text(&look));
    }
    text.push('\n');
    text.push_str(&steps_table(&task, &look).text(&look));
    if let Some(remote) = &remote {
        text.push_str(&latest_jobs(remote, name, &look)?);
    }
    print(&text);
    say(format!("run it: {}", command(&task)));
    Ok(Exit::Success)
}

fn one_of(tasks: Vec<TaskJson>, name: &str) -> anyhow::Result<TaskJson> {
    let hint = did_you_mean(name, tasks.iter().map(|task| task.name.as_str()));
    let found = tasks.into_iter().find(|task| task.name == name);
    found.ok_or_else(|| Fault::not_found(format!("task {name:?} does not exist{hint}")))
}

fn head(task: &TaskJson) -> Sheet {
    let mut sheet = Sheet::default();
    sheet.line("task", &task.name);
    sheet.line_of("description", task.description.as_ref());
    let secs = |secs: i64| duration(secs.saturating_mul(1_000));
    sheet.line_of("timeout", task.timeout_secs.map(secs));
    sheet.line_of("queue timeout", task.queue_timeout_secs.map(secs));
    sheet.line_of(
        "priority",
        (task.priority != 0).then(|| task.priority.to_string()),
    );
    sheet
}

fn inputs_table(inputs: &[ValueJson], look: &Look) -> Columns {
    let mut table = Columns::new(
        look,
        &[
            ("INPUT", Any),
            ("TYPE", Any),
            ("REQUIRED", Any),
            ("DEFAULT", Wide),
            ("OPTIONS", Wide),
            ("DESCRIPTION", Wide),
        ],
    );
    for input in inputs {
        let value_type = match (input.multiple, input.secret) {
            (false, false) => input.value_type.clone(),
            (true, false) => format!("{}, several", input.value_type),
            (false, true) => format!("{}, secret", input.value_type),
            (true, true) => format!("{}, several, secret", input.value_type),
        };
        let default = match (&input.default, input.secret) {
            (None, _) => NOTHING.to_string(),
            (Some(_), true) => "***".to_string(),
            (Some(default), false) => plain(default),
        };
        let options: Vec<String> = input.options.iter().map(plain).collect();
        table.row(vec![
            Cell::new(&input.name),
            Cell::new(value_type),
            Cell::new(if input.required { "yes" } else { "no" }),
            Cell::new(default),
            Cell::new(joined(&options)),
            Cell::new(input.description.as_deref().unwrap_or(NOTHING)),
        ]);
    }
    table
}

fn steps_table(task: &TaskJson, look: &Look) -> Columns {
    let mut table = Columns::new(
        look,
        &[("STEP", Any), ("TYPE", Any), ("AFTER", Any), ("NEEDS", Any)],
    );
    for step in &task.steps {
        table.row(vec![
            Cell::new(&step.name),
            Cell::new(&step.kind),
            Cell::new(joined(&step.depends_on)),
            Cell::new(joined(&step.required_tags)),
        ]);
    }
    table
}

fn latest_jobs(remote: &Remote, task: &str, look: &Look) -> anyhow::Result<String> {
    let query = in_url(&format!("task:{task}"));
    let path = format!("/api/jobs?limit={LATEST}&q={query}");
    // The server looks at so many jobs at a time: a page may end before it is full.
    let jobs: Vec<JobJson> = remote.all(&path, "after", LATEST)?;
    Ok(match jobs.is_empty() {
        true => String::new(),
        false => format!("\n{}", job::table(&jobs, look).text(look)),
    })
}

/// As somebody would type it, with something for each input that must be given.
fn command(task: &TaskJson) -> String {
    let mut words = vec!["stepward run".to_string(), shell_word(&task.name)];
    for input in task.inputs.iter().filter(|input| input.required) {
        let value = match (&input.default, input.options.first()) {
            (Some(default), _) if !input.secret => plain(default),
            (_, Some(option)) => plain(option),
            _ => input.value_type.to_uppercase(),
        };
        words.push("-i".to_string());
        words.push(shell_word(&format!("{}={value}", input.name)));
    }
    printable(&words.join(" "))
}
