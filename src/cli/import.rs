//! `stepward import`: workflows of others, written as ours, with a table of what became of each line.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use jiff::tz::TimeZone;
use serde::Serialize;

use super::exit::{Exit, Fault};
use super::look::{Look, Show};
use super::say::{answer, answer_json, say, tell};
use super::words::{fit, printable, shown_path, wrap};
use crate::import::{
    CrontabSource, DaguFile, Imported, Report, StroemFile, import_crontab, import_dagu,
    import_stroem,
};

#[derive(Subcommand)]
#[command(before_help = "Examples:
  stepward import crontab --dry-run
  stepward import stroem ../workspace --output workflows
  stepward import dagu ~/.config/dagu/dags --dry-run")]
pub enum ImportVerb {
    /// Writes a task with a schedule for each line of a crontab.
    ///
    /// Without FILE it asks `crontab -l`. Files below a folder named cron.d, and /etc/crontab, name a user in each line.
    Crontab(CrontabArgs),
    /// Writes the tasks, actions, secrets and triggers of a Strøm workspace.
    Stroem(StroemArgs),
    /// Writes a task for each DAG of Dagu.
    ///
    /// Name all files at once: a DAG may run a DAG of another file.
    Dagu(DaguArgs),
}

#[derive(Args)]
#[command(before_help = "Examples:
  stepward import crontab --dry-run
  stepward import crontab /etc/crontab --timezone Europe/Oslo
  crontab -l | stepward import crontab -")]
pub struct CrontabArgs {
    /// Crontabs, or folders of them; - is standard input.
    #[arg(value_name = "FILE|-")]
    files: Vec<PathBuf>,
    /// Each line names a user before its command.
    #[arg(long)]
    system: bool,
    /// The time zone that cron runs in; this machine's if left out.
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    #[command(flatten)]
    to: Destination,
}

#[derive(Args)]
#[command(before_help = "Examples:
  stepward import stroem ../workspace --dry-run
  stepward import stroem ../workspace --output workflows")]
pub struct StroemArgs {
    /// The workspace, or its .workflows folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The image for scripts with runner: docker or pod, which Strøm's workers choose.
    #[arg(long, value_name = "IMAGE")]
    runner_image: Option<String>,
    #[command(flatten)]
    to: Destination,
}

#[derive(Args)]
#[command(before_help = "Examples:
  stepward import dagu ~/.config/dagu/dags --dry-run
  stepward import dagu etl.yaml report.yaml --timezone Europe/Oslo --output workflows")]
pub struct DaguArgs {
    /// DAG files, or folders of them.
    #[arg(value_name = "FILE|DIR", required = true)]
    files: Vec<PathBuf>,
    /// The time zone of Dagu's scheduler; this machine's if left out.
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    #[command(flatten)]
    to: Destination,
}

#[derive(Args)]
struct Destination {
    /// The folder to write to. What is there already is never overwritten.
    #[arg(long, value_name = "DIR", default_value = "workflows")]
    output: PathBuf,
    /// Prints the files instead of writing them.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    show: Show,
}

#[derive(Serialize)]
struct ImportJson<'a> {
    dry_run: bool,
    /// What was written, or would be.
    files: Vec<FileJson<'a>>,
    /// What became of each line or key.
    rows: Vec<RowJson<'a>>,
}

#[derive(Serialize)]
struct FileJson<'a> {
    path: PathBuf,
    text: &'a str,
}

#[derive(Serialize)]
struct RowJson<'a> {
    place: &'a str,
    outcome: &'static str,
    what: &'a str,
    note: &'a str,
}

/// Nobody writes more than this by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;
const FILES_MAX: usize = 1_000;

pub fn run(verb: ImportVerb) -> anyhow::Result<Exit> {
    // The whole chain in one line: what cannot be done, and why.
    import(verb).map_err(|error| {
        let exit = match error.downcast_ref::<io::Error>() {
            Some(cause) if cause.kind() == io::ErrorKind::NotFound => Exit::NotFound,
            _ => Exit::of(&error),
        };
        Fault::new(exit, format!("{error:#}")).into()
    })
}

fn import(verb: ImportVerb) -> anyhow::Result<Exit> {
    match verb {
        ImportVerb::Crontab(args) => {
            let sources = crontabs(&args)?;
            deliver(import_crontab(&sources), &args.to)
        }
        ImportVerb::Stroem(args) => {
            let (workspace, files) = stroem_files(&args.folder)?;
            let source = |path: &str| {
                let path = workspace.join(path);
                read_bounded(&path)
                    .map_err(|error| format!("cannot be read: {}", error.root_cause()))
            };
            let name = workspace_name(&workspace);
            let imported = import_stroem(&name, &files, &source, args.runner_image.as_deref());
            deliver(imported, &args.to)
        }
        ImportVerb::Dagu(args) => {
            let timezone = named_zone(args.timezone.as_deref())?;
            let files = dagu_files(&args.files)?;
            deliver(import_dagu(&files, &timezone), &args.to)
        }
    }
}

/// The DAG files that were named, and those of the folders that were named.
fn dagu_files(paths: &[PathBuf]) -> anyhow::Result<Vec<DaguFile>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => found.extend(yaml_files(path)?),
            false => found.push(path.clone()),
        }
    }
    let mut files: Vec<DaguFile> = Vec::new();
    for path in found {
        let text =
            read_bounded(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let stem = path
            .file_stem()
            .map_or("dag".into(), |name| name.to_string_lossy());
        let mut wanted = stem.to_string();
        let mut number = 2;
        while files.iter().any(|file| file.stem == wanted) {
            wanted = format!("{stem}-{number}");
            number += 1;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_taken = files.iter().any(|file| file.name == name);
        files.push(DaguFile {
            name: match is_taken {
                true => path.display().to_string(),
                false => name.into_owned(),
            },
            stem: wanted,
            text,
        });
    }
    Ok(files)
}

fn deliver(imported: Imported, to: &Destination) -> anyhow::Result<Exit> {
    if !to.show.json {
        tell_report(&imported.report, &to.show.look.stderr());
    }
    let is_empty = imported.files.is_empty();
    if !to.dry_run {
        write_all(&imported, to)?;
    }
    if to.show.json {
        let files = imported.files.iter().map(|file| FileJson {
            path: to.output.join(&file.name),
            text: &file.text,
        });
        let rows = imported.report.rows.iter().map(|row| RowJson {
            place: &row.place,
            outcome: row.outcome.as_str(),
            what: &row.what,
            note: &row.note,
        });
        answer_json(&ImportJson {
            dry_run: to.dry_run,
            files: files.collect(),
            rows: rows.collect(),
        });
    }
    if is_empty {
        bail!("nothing was found that could be written");
    }
    if to.show.json {
        return Ok(Exit::Success);
    }
    for file in &imported.files {
        let path = shown_path(&to.output.join(&file.name));
        match to.dry_run {
            true => answer(format!("# {path}\n{}", file.text)),
            false => answer(format!("wrote {path}")),
        };
    }
    Ok(Exit::Success)
}

/// The table is for whoever reads along. On a terminal a note has lines of its own, as wide as that is.
fn tell_report(report: &Report, look: &Look) {
    const INDENT: usize = 4;
    let Some(width) = look.width else {
        report
            .to_string()
            .lines()
            .for_each(|line| tell(printable(line)));
        return;
    };
    for row in &report.rows {
        let head = [&row.place, row.outcome.as_str(), &row.what]
            .map(printable)
            .join("  ");
        tell(fit(head.trim_end(), width, look.ellipsis()));
        for line in wrap(&printable(&row.note), width.saturating_sub(INDENT)) {
            tell(format!("{:INDENT$}{line}", ""));
        }
    }
    tell(report.summary());
}

fn write_all(imported: &Imported, to: &Destination) -> anyhow::Result<()> {
    let paths = imported.files.iter().map(|file| to.output.join(&file.name));
    let taken: Vec<String> = paths
        .filter(|path| path.symlink_metadata().is_ok())
        .map(|path| shown_path(&path))
        .collect();
    if !taken.is_empty() {
        let message = format!(
            "{} {} there already, nothing was written; move {} away or name another folder with --output",
            taken.join(", "),
            if taken.len() == 1 { "is" } else { "are" },
            if taken.len() == 1 { "it" } else { "them" },
        );
        return Err(Fault::new(Exit::Conflict, message).into());
    }
    for file in &imported.files {
        let path = to.output.join(&file.name);
        write_new(&path, &file.text)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}

fn read_bounded(path: &Path) -> anyhow::Result<String> {
    let file = fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        bail!("it is not a file");
    }
    read_text(file)
}

fn read_text(from: impl Read) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    from.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        bail!("it is longer than {FILE_BYTES_MAX} bytes");
    }
    String::from_utf8(bytes).context("it is not UTF-8")
}

fn crontabs(args: &CrontabArgs) -> anyhow::Result<Vec<CrontabSource>> {
    let timezone = named_zone(args.timezone.as_deref())?;
    let source = |name: &str, stem: &str, text: String, system: bool| CrontabSource {
        name: name.to_string(),
        stem: stem.to_string(),
        text,
        system: system || args.system,
        timezone: timezone.clone(),
    };
    if args.files.is_empty() {
        let asked = Command::new("crontab")
            .arg("-l")
            .output()
            .context("crontab -l cannot be run, name a file or - for standard input")?;
        if !asked.status.success() {
            let said = String::from_utf8_lossy(&asked.stderr);
            bail!("crontab -l gives no crontab: {}", said.trim());
        }
        let text = String::from_utf8(asked.stdout).context("the crontab is not UTF-8")?;
        return Ok(vec![source("crontab", "crontab", text, false)]);
    }
    let mut sources: Vec<CrontabSource> = Vec::new();
    for path in &args.files {
        let shown = path.display().to_string();
        if shown == "-" {
            let text = read_text(std::io::stdin()).context("standard input cannot be read")?;
            sources.push(source("stdin", "crontab", text, false));
            continue;
        }
        let files = if path.is_dir() {
            files_of(path)?
        } else {
            vec![path.clone()]
        };
        for file in files {
            let text = read_bounded(&file)
                .with_context(|| format!("{} cannot be read", file.display()))?;
            let folder = file.parent().and_then(Path::file_name);
            let is_system =
                file == Path::new("/etc/crontab") || folder.is_some_and(|name| name == "cron.d");
            let stem = file
                .file_stem()
                .map_or("crontab".into(), |name| name.to_string_lossy());
            let mut wanted = stem.to_string();
            let mut number = 2;
            while sources.iter().any(|source| source.stem == wanted) {
                wanted = format!("{stem}-{number}");
                number += 1;
            }
            sources.push(source(
                &file.display().to_string(),
                &wanted,
                text,
                is_system,
            ));
        }
    }
    Ok(sources)
}

/// The time zone that was named, else that of this machine.
fn named_zone(named: Option<&str>) -> anyhow::Result<String> {
    match named {
        Some(zone) if TimeZone::get(zone).is_err() => Err(Fault::usage(format!(
            "--timezone is {zone:?}, expected an IANA name such as Europe/Oslo"
        ))),
        Some(zone) => Ok(zone.to_string()),
        None => Ok(zone_of_machine().unwrap_or_else(|| "UTC".to_string())),
    }
}

/// The crontabs of a folder. Cron itself passes over names that an editor or a package manager leaves behind.
fn files_of(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        match path.is_file() {
            true if name.chars().all(good) => files.push(path),
            true => say(format!(
                "{} is passed over, as cron does because of its name",
                path.display()
            )),
            false => {}
        }
        if files.len() > FILES_MAX {
            bail!("{} holds more than {FILES_MAX} files", folder.display());
        }
    }
    files.sort();
    Ok(files)
}

/// The link that says so on nearly every Linux.
fn zone_of_machine() -> Option<String> {
    let link = fs::read_link("/etc/localtime").ok()?;
    let (_, zone) = link.to_str()?.split_once("zoneinfo/")?;
    TimeZone::get(zone).ok().map(|_| zone.to_string())
}

/// A workspace is called like its folder.
fn workspace_name(workspace: &Path) -> String {
    let real = workspace.canonicalize();
    let folder = real.as_deref().unwrap_or(workspace).file_name();
    folder.map_or_else(
        || "default".to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// The workspace, and its workflow files.
fn stroem_files(folder: &Path) -> anyhow::Result<(PathBuf, Vec<StroemFile>)> {
    let inner = folder.join(".workflows");
    let (workspace, workflows) = match (inner.is_dir(), folder.file_name()) {
        (true, _) => (folder.to_path_buf(), inner),
        (false, Some(name)) if name == ".workflows" => {
            let workspace = folder.parent().unwrap_or(folder).to_path_buf();
            (workspace, folder.to_path_buf())
        }
        (false, _) => (folder.to_path_buf(), folder.to_path_buf()),
    };
    // The folder that was named is what cannot be read.
    let found = yaml_files(&workflows).with_context(|| {
        format!(
            "{} cannot be read, name a Strøm workspace",
            workflows.display()
        )
    })?;
    let mut files = Vec::new();
    for path in found {
        let text =
            read_bounded(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        files.push(StroemFile { name, text });
    }
    if files.is_empty() {
        bail!(
            "{} holds no workflow files (*.yaml, *.yml)",
            workflows.display()
        );
    }
    Ok((workspace, files))
}

/// The YAML files of a folder, by name.
fn yaml_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_yaml = matches!(
            path.extension().and_then(|ending| ending.to_str()),
            Some("yaml" | "yml")
        );
        if !is_yaml || !path.is_file() {
            continue;
        }
        files.push(path);
        if files.len() > FILES_MAX {
            bail!("it holds more than {FILES_MAX} files");
        }
    }
    files.sort();
    Ok(files)
}
