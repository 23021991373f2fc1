//! `stepward db compact`: gives back what the database file does not need.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::exit::{Exit, Fault};
use super::files::server_config;
use super::look::Show;
use super::say::{answer, answer_json};
use super::words::shown_path;
use crate::store::{DATABASE_FILE, compact};
use crate::words::bytes;

#[derive(Args)]
#[command(before_help = "Examples:
  stepward db compact
  stepward db compact /var/lib/stepward --json")]
pub struct DbCompactArgs {
    /// The data folder; taken from the settings file if left out.
    #[arg(env = "STEPWARD_DATA_DIR")]
    folder: Option<PathBuf>,
    /// The settings file of the server.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    show: Show,
}

#[derive(Serialize)]
struct CompactedJson {
    folder: PathBuf,
    bytes_before: u64,
    bytes_after: u64,
}

pub fn run(args: DbCompactArgs) -> anyhow::Result<Exit> {
    let folder = match args.folder {
        Some(folder) => folder,
        None => server_config(args.config.as_deref())?.data_dir,
    };
    // Opening would make one.
    if !folder.join(DATABASE_FILE).exists() {
        let message = format!(
            "{} holds no database ({DATABASE_FILE} is missing), name the data folder: stepward db compact FOLDER",
            folder.display()
        );
        return Err(Fault::not_found(message));
    }
    let (bytes_before, bytes_after) = compact(&folder)?;
    if args.show.json {
        answer_json(&CompactedJson {
            folder,
            bytes_before,
            bytes_after,
        });
        return Ok(Exit::Success);
    }
    answer(format!(
        "{}: {} before, {} now",
        shown_path(&folder),
        bytes(bytes_before),
        bytes(bytes_after)
    ));
    Ok(Exit::Success)
}
