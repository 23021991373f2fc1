//! `stepward graph`: the steps of a task, or of a job, as a picture.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::exit::Exit;
use super::found::{self, Wanted};
use super::look::{Ink, Look, LookArgs};
use super::reach::{Reach, in_url, name};
use super::say::{answer_json, print};
use crate::graph::{self, Graph, Node, Style};
use crate::wire::api::{JobJson, TaskJson};

#[derive(Args)]
#[command(before_help = "Examples:
  stepward graph release
  stepward graph workflows/release.yaml --format svg -o release.svg
  stepward graph --job release@latest")]
pub struct GraphArgs {
    /// A task of the server or of this folder, or a workflow file.
    #[arg(value_name = "TASK|FILE", required_unless_present = "job", value_parser = name)]
    task: Option<String>,
    /// The task, if the file has several.
    #[arg(long = "task", value_name = "NAME")]
    task_of_file: Option<String>,
    /// A job of the server, such as 42 or release@latest, with the states of its steps.
    #[arg(long, value_name = "JOB", conflicts_with_all = ["task", "task_of_file"], value_parser = name)]
    job: Option<String>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Into this file instead of onto the terminal.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// For programs: {title, nodes, edges}; the same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The folder of the file's neighbours: their tasks and actions are known then.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// The settings file of the server, for its workflows folder.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    look: LookArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For terminals: one line per step.
    Text,
    /// For Markdown, as GitHub and others draw it.
    Mermaid,
    /// For Graphviz.
    Dot,
    /// A picture.
    Svg,
    /// {title, nodes, edges}
    Json,
}

pub fn run(args: GraphArgs) -> anyhow::Result<Exit> {
    let graph = match &args.job {
        Some(job) => {
            let job: JobJson = args
                .reach
                .server()?
                .get(&format!("/api/jobs/{}", in_url(job)))?;
            graph::of_job(&job)
        }
        None => graph::of_task(&task(&args)?),
    };
    let format = if args.json { Format::Json } else { args.format };
    if format == Format::Json && args.output.is_none() {
        answer_json(&graph);
        return Ok(Exit::Success);
    }
    let drawn = draw(&graph, format, &args);
    match &args.output {
        Some(file) => {
            let cannot = || format!("{} cannot be written", file.display());
            std::fs::write(file, drawn).with_context(cannot)?;
        }
        None => {
            print(&drawn);
        }
    }
    Ok(Exit::Success)
}

fn draw(graph: &Graph, format: Format, args: &GraphArgs) -> String {
    match format {
        Format::Mermaid => graph::mermaid(graph),
        Format::Dot => graph::dot(graph),
        Format::Svg => graph::svg(graph, &graph::layout(graph)),
        Format::Json => {
            serde_json::to_string_pretty(graph).expect("a graph is plain values") + "\n"
        }
        Format::Text => {
            let mut look = args.look.stdout();
            if args.output.is_some() {
                (look.colour, look.width) = (false, None);
            }
            in_text(graph, &look)
        }
    }
}

fn in_text(graph: &Graph, look: &Look) -> String {
    let sign = |node: &Node| match &node.state {
        Some(state) => look.paint(Look::ink(state), look.sign(state)),
        None if look.unicode => "○".to_string(),
        None => "o".to_string(),
    };
    let style = Style {
        unicode: look.unicode,
        width: look.width,
        sign: &sign,
        faint: &|text| look.paint(Ink::Faint, text),
    };
    graph::text(graph, &style)
}

/// A file, else a task of the server if one is known, else one of this folder.
fn task(args: &GraphArgs) -> anyhow::Result<TaskJson> {
    let word = args.task.as_deref().unwrap_or_default();
    if !found::is_file(word)
        && args.task_of_file.is_none()
        && let Some(remote) = args.reach.find()?
    {
        return found::at_server(&remote, word);
    }
    let found = found::here(&Wanted {
        word,
        task: args.task_of_file.as_deref(),
        root: args.root.as_deref(),
        config: args.config.as_deref(),
        look: &args.look,
    })?;
    Ok(TaskJson::from(found.definition.root()))
}
