//! `stepward db check`: every rule that the database must keep.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;

use super::say::{answer, say};
use crate::config::ServerConfig;
use crate::store::{DATABASE_FILE, Store, StoreOptions};

pub fn run(folder: Option<PathBuf>, config: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let folder = match folder {
        Some(folder) => folder,
        None => ServerConfig::load(config.as_deref())?.data_dir,
    };
    // Opening would make one, or fill an empty file; a check must not.
    let holds_none = match folder.join(DATABASE_FILE).metadata() {
        Ok(found) => found.len() == 0,
        // Whatever else keeps it from being looked at, opening it says better.
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    if holds_none {
        bail!(
            "{} holds no database ({DATABASE_FILE} is missing or empty), name the data folder: stepward db check FOLDER",
            folder.display()
        );
    }
    let store = Store::open(&folder, StoreOptions::default())?;
    let breaches = store.read(|tx| tx.breaches())?;
    for breach in &breaches {
        answer(format!("{}: {}", breach.rule, breach.what));
    }
    if breaches.is_empty() {
        answer(format!("{}: every rule holds", folder.display()));
        return Ok(ExitCode::SUCCESS);
    }
    say(format!("{} breaches", breaches.len()));
    Ok(ExitCode::from(1))
}
