//! `stepward db check`: every rule that the database must keep.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::exit::{Exit, Fault};
use super::files::server_config;
use super::look::Show;
use super::say::{answer, answer_json, say};
use super::words::{bytes, count, printable, shell_path, shown_path};
use crate::store::{
    Breach, CopyError, DATABASE_FILE, FileSize, OpenError, Opening, SCHEMA_VERSION, Stopped, Store,
    StoreOptions, mark_fault,
};
use crate::temporary::TemporaryFolder;

#[derive(Args)]
#[command(before_help = "\
Examples:
  stepward db check
  stepward db check /var/lib/stepward --json")]
pub struct DbCheckArgs {
    /// The data folder; taken from the settings file if left out.
    #[arg(env = "STEPWARD_DATA_DIR")]
    folder: Option<PathBuf>,
    /// The settings file of the server.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    show: Show,
}

/// Less is not worth a word.
const FREE_BYTES_TOLD: i64 = 16 << 20;

#[derive(Serialize)]
struct CheckedJson {
    folder: PathBuf,
    ok: bool,
    schema_version: i64,
    /// In the file, and used for nothing.
    free_bytes: Option<i64>,
    breaches: Vec<BreachJson>,
}

#[derive(Serialize)]
struct BreachJson {
    rule: &'static str,
    what: String,
}

fn look(opened: Result<Store, OpenError>) -> anyhow::Result<(Option<FileSize>, Vec<Breach>)> {
    match opened {
        Ok(store) => {
            let size = store.read(|tx| tx.file_size())?;
            Ok((Some(size), store.read(|tx| tx.breaches())?))
        }
        Err(OpenError::Corrupt { detail, .. }) => Ok((None, vec![Breach::of_pages(detail)])),
        Err(error) => Err(error.into()),
    }
}

/// Opens the database of a folder, and creates none: a check must not.
fn open(folder: &Path) -> anyhow::Result<Result<Store, OpenError>> {
    let is_missing = folder
        .metadata()
        .is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if !is_missing {
        match Opening::check(folder, StoreOptions::looking()) {
            Ok(opening) if !opening.is_new() => return Ok(Store::finish(opening)),
            Ok(_) => {}
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    Err(Fault::not_found(format!(
        "{} holds no database ({DATABASE_FILE} is missing or empty), name the data folder: stepward db check FOLDER",
        folder.display()
    )))
}

/// The rules are those of today's tables, and a check must not upgrade what an older server may go on with.
fn breaches_of_copy(folder: &Path) -> anyhow::Result<Vec<Breach>> {
    let stopped = Stopped::take(folder)?;
    let aside = TemporaryFolder::create("check");
    let aside = aside.context("there is no room for a copy, name another folder with TMPDIR")?;
    let file = aside.path().join(DATABASE_FILE);
    if let Err(error) = stopped.copy_to(&file, &(Arc::new(|| true) as _)) {
        return match error {
            CopyError::Corrupt(detail) => Ok(vec![Breach::of_pages(detail)]),
            error => Err(error.into()),
        };
    }
    let (_, breaches) = look(Store::open(aside.path(), StoreOptions::of_copy()))?;
    Ok(breaches)
}

pub fn run(args: DbCheckArgs) -> anyhow::Result<Exit> {
    let folder = match args.folder {
        Some(folder) => folder,
        None => server_config(args.config.as_deref())?.data_dir,
    };
    let mut schema_version = SCHEMA_VERSION;
    // Opening the database writes the mark again.
    let mark_fault = mark_fault(&folder);
    let opened = open(&folder)?;
    if let Some(fault) = mark_fault
        && !matches!(opened, Err(OpenError::InUse { .. }))
    {
        say(format!("warning: {fault}"));
    }
    let (size, breaches) = match opened {
        Err(OpenError::Older { found, .. }) => {
            schema_version = found;
            (None, breaches_of_copy(&folder)?)
        }
        opened => look(opened)?,
    };
    let exit = match breaches.is_empty() {
        true => Exit::Success,
        false => Exit::Error,
    };
    if args.show.json {
        let breaches = breaches.into_iter().map(|breach| BreachJson {
            rule: breach.rule,
            what: breach.what,
        });
        answer_json(&CheckedJson {
            folder,
            ok: exit == Exit::Success,
            schema_version,
            free_bytes: size.map(|size| size.free_bytes()),
            breaches: breaches.collect(),
        });
        return Ok(exit);
    }
    if schema_version < SCHEMA_VERSION {
        say(format!(
            "it has schema version {schema_version}, which the next start of the server upgrades to {SCHEMA_VERSION}: \
             a copy was upgraded and looked at"
        ));
    }
    for breach in &breaches {
        answer(printable(&breach.to_string()));
    }
    if breaches.is_empty() {
        answer(format!("{}: every rule holds", shown_path(&folder)));
        if let Some(size) = size.filter(|size| !size.shrinks && size.free_bytes() > FREE_BYTES_TOLD)
        {
            say(format!(
                "{} of the file are free and stay so, give them back: stepward db compact {}",
                bytes(size.free_bytes() as u64),
                shell_path(&folder)
            ));
        }
        return Ok(exit);
    }
    say(format!(
        "broken in {}; put the last good backup in its place: stepward restore FILE --data-dir {} --force",
        count(breaches.len(), "place"),
        shell_path(&folder)
    ));
    Ok(exit)
}
