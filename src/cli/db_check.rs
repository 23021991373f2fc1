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
use crate::domain::audit::{ChainFault, ChainLink};
use crate::store::{
    Breach, CopyError, DATABASE_FILE, FileSize, OpenError, Opening, SCHEMA_VERSION, Stopped, Store,
    StoreError, StoreOptions, mark_fault,
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
    /// Rows of the audit log, each of which fits the one before; `null`: the log was not looked at, or does not fit together.
    audit_rows: Option<u64>,
}

#[derive(Serialize)]
struct BreachJson {
    rule: &'static str,
    what: String,
}

/// Findings of the check of a database.
#[derive(Default)]
struct Findings {
    size: Option<FileSize>,
    breaches: Vec<Breach>,
    audit: Option<Result<(ChainLink, u64), ChainFault>>,
}

fn look(opened: Result<Store, OpenError>) -> anyhow::Result<Findings> {
    match opened {
        Ok(store) => Ok(store.read(|tx| {
            let mut breaches = tx.page_breaches()?;
            breaches.extend(tx.rule_breaches()?);
            Ok::<_, StoreError>(Findings {
                size: Some(tx.file_size()?),
                breaches,
                audit: Some(tx.walk_audit(None, |_| ())?),
            })
        })?),
        Err(OpenError::Corrupt { detail, .. }) => Ok(Findings {
            breaches: vec![Breach::of_pages(detail)],
            ..Findings::default()
        }),
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
fn findings_of_copy(folder: &Path) -> anyhow::Result<Findings> {
    let stopped = Stopped::take(folder)?;
    let aside = TemporaryFolder::create("check");
    let aside = aside.context("there is no room for a copy, name another folder with TMPDIR")?;
    let file = aside.path().join(DATABASE_FILE);
    if let Err(error) = stopped.copy_to(&file, &(Arc::new(|| true) as _)) {
        return match error {
            CopyError::Corrupt(detail) => Ok(Findings {
                breaches: vec![Breach::of_pages(detail)],
                ..Findings::default()
            }),
            error => Err(error.into()),
        };
    }
    let findings = look(Store::open(aside.path(), StoreOptions::of_copy()))?;
    Ok(Findings {
        size: None,
        ..findings
    })
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
    let Findings {
        size,
        mut breaches,
        audit,
    } = match opened {
        Err(OpenError::Older { found, .. }) => {
            schema_version = found;
            findings_of_copy(&folder)?
        }
        opened => look(opened)?,
    };
    // A backup does not mend the audit log, so it is not advised because of that alone.
    let is_restore_advised = !breaches.is_empty();
    let audit_rows = match audit {
        Some(Ok((_, rows))) => Some(rows),
        Some(Err(fault)) => {
            breaches.push(Breach::of_audit(fault));
            None
        }
        None => None,
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
            audit_rows,
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
        let audit = match audit_rows {
            Some(rows @ 1..) => {
                let rows = count(rows as usize, "row");
                format!("; audit log: {rows}, every row fits")
            }
            _ => String::new(),
        };
        answer(format!("{}: every rule holds{audit}", shown_path(&folder)));
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
    if !is_restore_advised {
        say(format!(
            "the audit log was changed; keep this folder as evidence, and find out since when: stepward audit verify --data-dir {} \
             --expect SEQ:HASH, with heads from the server's log and from backups",
            shell_path(&folder)
        ));
        return Ok(exit);
    }
    say(format!(
        "broken in {}; put the last good backup in its place: stepward restore FILE --data-dir {} --force",
        count(breaches.len(), "place"),
        shell_path(&folder)
    ));
    Ok(exit)
}
