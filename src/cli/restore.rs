//! `stepward restore`: a data folder out of a backup.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::backup::{HeldJson, opened, refused, tell_audit};
use super::exit::{Exit, Fault};
use super::files::become_owner;
use super::look::Show;
use super::say::{answer, answer_json, say};
use super::words::{shell_path, shown_path};
use crate::backup::{self, Restore};
use crate::clock::wall_time;
use crate::token_files::keep_out_of_repositories;

#[derive(Args)]
#[command(before_help = "Examples:
  stepward restore nightly.tar.gz --data-dir /var/lib/stepward
  stepward restore nightly.tar.gz --data-dir .stepward --force     what is there is moved aside, never removed
  ssh elsewhere cat jobs.tar | stepward restore - --data-dir .stepward --workflows-dir workflows
  age -d -i key.txt nightly.tar.gz.age | stepward restore - --data-dir .stepward      an encrypted one
  stepward restore nightly.tar.gz --dry-run                         looks at everything, writes nothing")]
pub struct RestoreArgs {
    /// The backup; `-` for stdin.
    file: PathBuf,
    /// The data folder that it becomes. It must not be there yet, or be empty.
    #[arg(long, value_name = "FOLDER", required_unless_present = "dry_run")]
    data_dir: Option<PathBuf>,
    /// Where the workflow files go; `workflows` in the data folder if left out. What is there is never written over.
    #[arg(long, value_name = "FOLDER")]
    workflows_dir: Option<PathBuf>,
    /// Moves what is in the way aside, to FOLDER/before-restore-TIME.
    #[arg(long)]
    force: bool,
    /// Looks at everything as if it were restored, and says what is in it.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    show: Show,
}

#[derive(Serialize)]
struct RestoredJson {
    data_dir: Option<PathBuf>,
    workflows_dir: Option<PathBuf>,
    settings_file: Option<PathBuf>,
    moved_aside: Option<PathBuf>,
    dry_run: bool,
    backup: HeldJson,
}

pub fn run(args: RestoreArgs) -> anyhow::Result<Exit> {
    let source = opened(&args.file)?;
    let now = wall_time();
    let Some(data_dir) = args.data_dir.as_deref().filter(|_| !args.dry_run) else {
        let contents = backup::verify(source, now).map_err(refused)?;
        let held = HeldJson::verified(&args.file, &contents);
        tell_audit(&contents);
        let state = match contents.audit.fault() {
            None => "whole, every rule holds",
            Some(_) => "whole, but for its audit log",
        };
        let text = format!(
            "{}: {state}, nothing was written; backup {}",
            held.file,
            held.in_words()
        );
        let json = RestoredJson {
            data_dir: args.data_dir,
            workflows_dir: None,
            settings_file: None,
            moved_aside: None,
            dry_run: true,
            backup: held,
        };
        match args.show.json {
            true => answer_json(&json),
            false => answer(text),
        };
        return Ok(Exit::Success);
    };
    if data_dir.as_os_str().is_empty() {
        return Err(Fault::usage("--data-dir is empty, name a folder"));
    }
    become_owner(data_dir)?;
    let asked = Restore {
        data_dir,
        workflows_dir: args.workflows_dir.as_deref(),
        force: args.force,
        now,
    };
    let restored = backup::restore(source, &asked).map_err(refused)?;
    keep_out_of_repositories(data_dir);
    let held = HeldJson::verified(&args.file, &restored.contents);
    tell_audit(&restored.contents);
    if args.show.json {
        answer_json(&RestoredJson {
            data_dir: Some(data_dir.to_path_buf()),
            workflows_dir: restored.workflows_dir,
            settings_file: restored.settings_file,
            moved_aside: restored.moved_aside,
            dry_run: false,
            backup: held,
        });
        return Ok(Exit::Success);
    }
    let but = match restored.contents.audit.fault() {
        None => "",
        Some(_) => " with an audit log that was changed or is not whole",
    };
    answer(format!(
        "{}: restored{but}, backup {}",
        shown_path(data_dir),
        held.in_words()
    ));
    if let Some(aside) = &restored.moved_aside {
        answer(format!("what was there is in {}", shown_path(aside)));
    }
    if let Some(file) = &restored.settings_file {
        answer(format!(
            "its settings are in {}, for you to look at: paths in them are those of the former machine",
            shown_path(file)
        ));
    }
    say(
        "tokens and enrolments are as they were then: those revoked or used since are good again, see `stepward token ls`",
    );
    let workflows = restored.workflows_dir.as_deref();
    answer(format!("start it: {}", start(data_dir, workflows)));
    Ok(Exit::Success)
}

fn start(data_dir: &Path, workflows_dir: Option<&Path>) -> String {
    let data = format!("stepward server --data-dir {}", shell_path(data_dir));
    match workflows_dir {
        Some(folder) => format!("{data} --workflows-dir {}", shell_path(folder)),
        None => data,
    }
}
