//! `stepward init`: a small project in a folder. It asks nothing, and what is there already stays as it is.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::json;

use super::exit::Exit;
use super::files::{SERVER_CONFIG, WORKER_CONFIG, WORKFLOWS};
use super::look::{Ink, Show};
use super::say::{answer, answer_json, print, tell};
use super::table::{Cell, Table};
use super::words::{printable, shell_path, width};
use crate::language;

/// What the server keeps, and what nobody checks in.
const DATA: &str = ".stepward";
const SCHEMA: &str = ".stepward/workflow.schema.json";

const SERVER_SETTINGS: &str = include_str!("../../server-config.example.yaml");
const WORKER_SETTINGS: &str = include_str!("../../worker-config.example.yaml");

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward init                            in this folder\n  \
                   stepward init backups --template backup\n  stepward init --list-templates"
)]
pub struct InitArgs {
    /// The project's folder, made if it is not there.
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Which workflows it begins with.
    #[arg(long, value_enum, default_value_t = Template::Minimal)]
    template: Template,
    /// Lists the templates, and writes nothing.
    #[arg(long)]
    list_templates: bool,
    /// Says what would be written, and writes nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    show: Show,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Template {
    Minimal,
    Backup,
    Etl,
    Ci,
    Edge,
}

/// What a template brings.
struct Kit {
    template: Template,
    file: &'static str,
    text: &'static str,
    tasks: &'static [&'static str],
    about: &'static str,
    next: &'static str,
}

#[rustfmt::skip]
const KITS: [Kit; 5] = [
    Kit { template: Template::Minimal, file: "hello.yaml",  text: include_str!("init/hello.yaml"),  tasks: &["hello", "checks"],
          about: "an input, steps that wait for one another, a failure", next: "stepward run hello" },
    Kit { template: Template::Backup,  file: "backup.yaml", text: include_str!("init/backup.yaml"), tasks: &["backup"],
          about: "one at a time, verified, old archives removed, a schedule", next: "stepward run backup" },
    Kit { template: Template::Etl,     file: "etl.yaml",    text: include_str!("init/etl.yaml"),    tasks: &["etl"],
          about: "a loop over what an earlier step found, typed outputs", next: "stepward run etl" },
    Kit { template: Template::Ci,      file: "ci.yaml",     text: include_str!("init/ci.yaml"),     tasks: &["ship"],
          about: "build, tests side by side, an approval, a deployment", next: "stepward run ship" },
    Kit { template: Template::Edge,    file: "edge.yaml",   text: include_str!("init/edge.yaml"),   tasks: &["rollout"],
          about: "steps that go to machines by their tags", next: "stepward dev --tags script,edge,site-north,site-south" },
];

/// A file of the project.
struct Draft {
    path: PathBuf,
    text: String,
    what: String,
}

/// What became of one.
#[derive(Serialize)]
struct Written {
    path: String,
    /// `created`, `kept` as it was, `left_out`, or `would_create`.
    state: &'static str,
    what: String,
}

pub fn run(args: InitArgs) -> anyhow::Result<Exit> {
    if args.list_templates {
        return Ok(list(&args.show));
    }
    let folder = args.folder.as_path();
    if folder.exists() && !folder.is_dir() {
        bail!("{} is no folder, name one", folder.display());
    }
    let kit = &KITS[args.template as usize];
    let mut written = Vec::new();
    for draft in drafts(kit) {
        let is_workflow = draft.path.ends_with(kit.file);
        let clash = is_workflow
            .then(|| clash(folder, &draft, kit.tasks))
            .flatten();
        written.push(match clash {
            Some(what) => Written::new(&draft, "left_out", what),
            None => put(folder, draft, args.dry_run)?,
        });
    }
    let next = match folder == Path::new(".") {
        true => kit.next.to_string(),
        false => format!("cd {} && {}", shell_path(folder), kit.next),
    };
    match args.show.json {
        true => {
            answer_json(&json!({
                "folder": folder.display().to_string(),
                "template": name(args.template),
                "dry_run": args.dry_run,
                "files": written,
                "next": next,
            }));
        }
        false => show(&written, &args.show),
    }
    if !args.dry_run {
        tell(format!("Next: {}", printable(&next)));
    }
    Ok(Exit::Success)
}

fn name(template: Template) -> String {
    let value = template.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_string())
}

fn list(show: &Show) -> Exit {
    if show.json {
        let items: Vec<_> = KITS
            .iter()
            .map(|kit| {
                json!({
                    "name": name(kit.template),
                    "file": format!("{WORKFLOWS}/{}", kit.file),
                    "tasks": kit.tasks,
                    "description": kit.about,
                    "next": kit.next,
                })
            })
            .collect();
        answer_json(&json!({"items": items, "next": null}));
        return Exit::Success;
    }
    let mut table = Table::new(&["TEMPLATE", "TASKS", "WHAT IT SHOWS"]);
    for kit in &KITS {
        let cells = [
            name(kit.template),
            kit.tasks.join(", "),
            kit.about.to_string(),
        ];
        table.row(cells.into_iter().map(Cell::new).collect());
    }
    print(&table.text(&show.look()));
    Exit::Success
}

fn drafts(kit: &Kit) -> Vec<Draft> {
    let draft = |path: String, text: String, what: String| Draft {
        path: PathBuf::from(path),
        text,
        what,
    };
    let tasks = match kit.tasks {
        [task] => format!("task: {task}"),
        tasks => format!("tasks: {}", tasks.join(", ")),
    };
    let schema = serde_json::to_string_pretty(&language::schema::workflow());
    let schema = schema.expect("a schema is plain values") + "\n";
    vec![
        draft(
            format!("{WORKFLOWS}/{}", kit.file),
            kit.text.to_string(),
            tasks,
        ),
        draft(
            SERVER_CONFIG.to_string(),
            server_settings(),
            "every setting with its default, commented out".to_string(),
        ),
        draft(
            WORKER_CONFIG.to_string(),
            commented_out(WORKER_SETTINGS),
            "for a worker on a second machine; not needed here".to_string(),
        ),
        draft(
            SCHEMA.to_string(),
            schema,
            "what editors complete and check workflow files with".to_string(),
        ),
        draft(
            format!("{DATA}/.gitignore"),
            "*\n".to_string(),
            "keeps the server's data out of repositories".to_string(),
        ),
    ]
}

fn server_settings() -> String {
    let settings = commented_out(SERVER_SETTINGS);
    let line = settings
        .lines()
        .find(|line| line.starts_with("#workflows_dir: null"))
        .expect("the example shows every key");
    let set = line.replacen("#workflows_dir: null     ", "workflows_dir: workflows ", 1);
    settings.replacen(line, &set, 1)
}

/// Prose begins with `# `, settings with `#` alone.
fn commented_out(example: &str) -> String {
    let mut text = String::new();
    for line in example.lines() {
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        let mark = match rest.is_empty() || rest.starts_with('#') {
            true => "",
            false => "#",
        };
        let rest = rest.replace("-config.example.yaml", "-config.yaml");
        text.push_str(&format!("{indent}{mark}{rest}"));
        text.push('\n');
    }
    text.replacen(
        "\n\n",
        "\n# A # without a space behind it comments a setting out: take it away to set one, and from the line of its section.\n\n",
        1,
    )
}

/// Another file has a task of one of these names: two would be a mistake.
fn clash(folder: &Path, draft: &Draft, tasks: &[&str]) -> Option<String> {
    let workflows = folder.join(WORKFLOWS);
    if !workflows.is_dir() || folder.join(&draft.path).exists() {
        return None;
    }
    let there = language::load(&workflows).workflows;
    let mut names = there.tasks().map(|(name, _)| name.as_str());
    let twice = names.find(|name| tasks.contains(name))?;
    Some(format!("not written: there is a task {twice} already"))
}

fn put(folder: &Path, draft: Draft, dry_run: bool) -> anyhow::Result<Written> {
    let path = folder.join(&draft.path);
    let fault = |error: io::Error| anyhow!("{} cannot be written: {error}", path.display());
    if path.symlink_metadata().is_ok() {
        return Ok(Written::new(&draft, "kept", kept(&path, &draft)));
    }
    if dry_run {
        return Ok(Written::new(&draft, "would_create", draft.what.clone()));
    }
    if let Some(parent) = path.parent() {
        make(parent)?;
    }
    let opened = OpenOptions::new().write(true).create_new(true).open(&path);
    let mut file = match opened {
        Ok(file) => file,
        // Somebody was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Ok(Written::new(&draft, "kept", kept(&path, &draft)));
        }
        Err(error) => return Err(fault(error)),
    };
    if let Err(error) = file.write_all(draft.text.as_bytes()) {
        // Half of it would be taken for what somebody wrote.
        let _ = fs::remove_file(&path);
        return Err(fault(error));
    }
    Ok(Written::new(&draft, "created", draft.what.clone()))
}

/// Nobody but its owner looks into the data folder.
fn make(folder: &Path) -> anyhow::Result<()> {
    let mode = if folder.ends_with(DATA) { 0o700 } else { 0o777 };
    let made = DirBuilder::new().recursive(true).mode(mode).create(folder);
    made.map_err(|error| {
        let why = match error.kind() {
            // Something is there, and it is none.
            io::ErrorKind::AlreadyExists => "something else has its name".to_string(),
            _ => error.to_string(),
        };
        anyhow!("the folder {} cannot be made: {why}", folder.display())
    })
}

fn kept(path: &Path, draft: &Draft) -> String {
    // What we wrote is ours to tell apart, what a person wrote is not.
    let is_other = draft.path == Path::new(SCHEMA)
        && fs::read(path).is_ok_and(|found| found != draft.text.as_bytes());
    match is_other {
        true => "left as it is; it is of another version, remove it to have this one's",
        false => "there already, left as it is",
    }
    .to_string()
}

impl Written {
    fn new(draft: &Draft, state: &'static str, what: String) -> Written {
        Written {
            path: draft.path.display().to_string(),
            state,
            what,
        }
    }
}

fn show(written: &[Written], show: &Show) {
    let look = show.look();
    let word = |state: &str| {
        match state {
            "would_create" => "would create",
            "left_out" => "left out",
            other => other,
        }
        .to_string()
    };
    let columns = |of: fn(&Written) -> usize| written.iter().map(of).max().unwrap_or(0);
    let states = written.iter().map(|file| word(file.state).len());
    let (states, paths) = (states.max().unwrap_or(0), columns(|file| width(&file.path)));
    for file in written {
        let state = format!("{:states$}", word(file.state));
        let ink = match file.state {
            "created" => Ink::Good,
            "left_out" => Ink::Bad,
            _ => Ink::Faint,
        };
        let (state, path) = (look.paint(ink, &state), printable(&file.path));
        answer(format!("{state}  {path:paths$}  {}", file.what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServerConfig, WorkerConfig};

    fn uncommented(text: &str) -> String {
        let lines = text.lines().map(|line| {
            let setting = line.trim_start().strip_prefix('#');
            match setting.is_some_and(|setting| !setting.starts_with(' ')) {
                true => line.replacen('#', "", 1),
                false => line.to_string(),
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_settings_are_the_defaults_whether_commented_out_or_not() {
        let wanted = ServerConfig {
            workflows_dir: Some(PathBuf::from("workflows")),
            ..ServerConfig::default()
        };
        let server = server_settings();
        for text in [server.clone(), uncommented(&server)] {
            assert_eq!(serde_yaml::from_str::<ServerConfig>(&text).unwrap(), wanted);
        }
        let worker = uncommented(&commented_out(WORKER_SETTINGS));
        assert_eq!(
            serde_yaml::from_str::<WorkerConfig>(&worker).unwrap(),
            WorkerConfig::default()
        );
        assert_eq!(
            server
                .lines()
                .filter(|line| !line.trim_start().starts_with('#') && !line.is_empty())
                .count(),
            1
        );
    }

    #[test]
    fn the_table_of_templates_is_in_the_order_of_their_names() {
        for (at, kit) in KITS.iter().enumerate() {
            assert_eq!(kit.template as usize, at);
        }
    }
}
