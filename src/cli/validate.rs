//! `stepward validate`: what is wrong with workflow files, before anybody runs them.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::exit::Exit;
use super::files::{server_config, workflows_folder};
use super::found::{self, MISSING};
use super::look::LookArgs;
use super::reach::Reach;
use super::say::{print, say};
use super::words::{count, shown_path};
use crate::language::{self, CheckOptions, Checked, SourceFile, render};
use crate::wire::api::WorkerJson;

#[derive(Args)]
#[command(before_help = "Examples:
  stepward validate
  stepward validate workflows/release.yaml --root workflows
  stepward validate - --stdin-filename release.yaml --format short < release.yaml")]
pub struct ValidateArgs {
    /// Files or folders, or `-` for what comes in; else the folder of the settings, or `workflows`, or this one.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Warnings count as errors.
    #[arg(long)]
    deny_warnings: bool,
    /// What to call what comes in.
    #[arg(long, value_name = "NAME", default_value = "stdin")]
    stdin_filename: PathBuf,
    /// The folder of the workflows: `file:` is looked for in it, and its other files are known, though only the named ones are told about.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// The settings file of the server, for its workflows folder.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Also what only this server knows: tags that no worker offers. Without it nothing is connected to.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// A file with the server's token; else STEPWARD_TOKEN.
    #[arg(long, value_name = "FILE", requires = "server")]
    token_file: Option<PathBuf>,
    /// A file with the server's certificate, or with the one that signed it.
    #[arg(long, value_name = "FILE", requires = "server")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    look: LookArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// With the source and a caret.
    Human,
    /// `file:line:col: error: message [E012]`
    Short,
    /// One JSON array.
    Json,
    /// Annotations of GitHub Actions.
    Github,
}

pub fn run(args: ValidateArgs) -> anyhow::Result<Exit> {
    let from_stdin = args.paths.iter().any(|path| path == Path::new("-"));
    if from_stdin && args.paths.len() > 1 {
        say("`-` reads what comes in, and stands alone");
        return Ok(Exit::Usage);
    }
    if let Some(root) = args.root.as_ref().filter(|root| !root.is_dir()) {
        say(format!("{} is not a folder", shown_path(root)));
        return Ok(Exit::Usage);
    }
    let options = CheckOptions {
        offered_tags: offered_tags(args.server, args.token_file, args.ca_file)?,
        ..CheckOptions::default()
    };
    let root = args.root.as_deref();
    let mut is_alone = root.is_none();
    let mut looked_in: Vec<String> = Vec::new();
    let checked = match from_stdin {
        true => from_input(args.stdin_filename, root, &options)?,
        false => {
            let paths = match args.paths.is_empty() {
                true => vec![default_folder(args.config.as_deref())?],
                false => args.paths,
            };
            if let Some(missing) = paths.iter().find(|path| !path.exists()) {
                say(format!("{} does not exist", shown_path(missing)));
                return Ok(Exit::NotFound);
            }
            looked_in = paths.iter().map(|path| shown_path(path)).collect();
            is_alone &= !paths.iter().any(|path| path.is_dir());
            let folder = folder_of(&paths);
            language::load_files(&paths, &folder, root, &options)
        }
    };
    let format = if args.json { Format::Json } else { args.format };
    print(&shown(&checked, format, &args.look));
    let (errors, warnings) = (checked.errors(), checked.warnings());
    match checked.files == 0 && checked.diagnostics.is_empty() {
        true => say(format!(
            "warning: no workflow files found in {}",
            looked_in.join(", ")
        )),
        false => summary(&checked, errors, warnings, root.is_some()),
    }
    let misses = |code: &str| MISSING.contains(&code);
    if is_alone && checked.diagnostics.iter().any(|found| misses(found.code)) {
        say("only these files were looked at; with --root DIR the others of the folder are known");
    }
    Ok(match errors > 0 || (args.deny_warnings && warnings > 0) {
        true => Exit::Invalid,
        false => Exit::Success,
    })
}

fn shown(checked: &Checked, format: Format, look: &LookArgs) -> String {
    let found = &checked.diagnostics;
    match format {
        Format::Human => {
            let look = look.stdout();
            look.own(render::human(found, look.colour))
        }
        Format::Short => found.iter().map(|one| render::short(one) + "\n").collect(),
        Format::Github => found.iter().map(|one| render::github(one) + "\n").collect(),
        Format::Json => match serde_json::to_string_pretty(found) {
            Ok(json) => json + "\n",
            Err(error) => unreachable!("diagnostics are plain values: {error}"),
        },
    }
}

/// Those of the active workers of a server that was named here and now: a file of this folder, or the environment, would not do.
/// `None`: nobody knows.
fn offered_tags(
    server: Option<String>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
) -> anyhow::Result<Option<BTreeSet<String>>> {
    const WORKERS_MAX: usize = 10_000;
    if server.is_none() {
        return Ok(None);
    }
    let reach = Reach {
        server,
        token_file,
        ca_file,
    };
    let remote = reach.server()?;
    let workers: Vec<WorkerJson> = remote.all("/api/workers", "after", WORKERS_MAX)?;
    let active = workers
        .into_iter()
        .filter(|worker| worker.status == "active");
    let tags: BTreeSet<String> = active.flat_map(|worker| worker.tags).collect();
    // Nobody there says nothing about who will be.
    Ok(Some(tags).filter(|tags| !tags.is_empty()))
}

fn summary(checked: &Checked, errors: usize, warnings: usize, among_others: bool) {
    let files = count(checked.files, "file");
    let mut found = checked.diagnostics.iter();
    let first = found.clone().find(|one| one.is_error()).or(found.next());
    let first = first.map(|found| found.code);
    let line = match (errors, warnings) {
        // The tasks are those of the others as well.
        (0, 0) if among_others => format!("{files}: nothing is wrong"),
        (0, 0) => {
            let tasks = checked.workflows.tasks().count();
            format!("{files}, {}: nothing is wrong", count(tasks, "task"))
        }
        _ => {
            let (errors, warnings) = (count(errors, "error"), count(warnings, "warning"));
            let unshown = match checked.unshown() {
                0 => String::new(),
                unshown => format!(", {unshown} of them are not shown"),
            };
            format!("{errors}, {warnings} in {files}{unshown}")
        }
    };
    match first {
        Some(code) => say(format!("{line}; `stepward explain {code}` says more")),
        None => say(line),
    }
}

fn from_input(
    name: PathBuf,
    root: Option<&Path>,
    options: &CheckOptions,
) -> anyhow::Result<Checked> {
    let mut bytes = Vec::new();
    // One byte more than is allowed is enough to know.
    let input = std::io::stdin().lock();
    input
        .take(language::FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    let text = match language::text_of(bytes, &name) {
        Ok(text) => text,
        Err(fault) => return Ok(Checked::from(*fault)),
    };
    let files = vec![SourceFile { path: name, text }];
    Ok(match root {
        Some(root) => language::check_among(files.into(), root, options),
        None => language::check_sources(files, options),
    })
}

fn default_folder(config: Option<&Path>) -> anyhow::Result<PathBuf> {
    let folder = workflows_folder(&server_config(config)?);
    Ok(folder.unwrap_or_else(|| PathBuf::from(".")))
}

/// Where `file:` is looked for: the one folder that was named, or that of the first file.
fn folder_of(paths: &[PathBuf]) -> PathBuf {
    match paths {
        [folder, ..] if folder.is_dir() => folder.clone(),
        [file, ..] => found::folder_of(file),
        [] => PathBuf::from("."),
    }
}
