//! Which files a command means when none is named: the settings of this folder, its workflows.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use super::exit::Fault;
use crate::config::{ConfigError, ServerConfig};
use crate::server::StartError;
use crate::store::DATABASE_FILE;

pub const SERVER_CONFIG: &str = "server-config.yaml";
pub const WORKER_CONFIG: &str = "worker-config.yaml";
pub const WORKFLOWS: &str = "workflows";

/// The file that was named, else that of this folder, if it is there. A link to nowhere is there: reading it says what is wrong.
pub fn config_file(named: Option<&Path>, usual: &str) -> Option<PathBuf> {
    let usual = Path::new(usual);
    let is_here = usual.symlink_metadata().is_ok();
    named.or(is_here.then_some(usual)).map(Path::to_path_buf)
}

/// The server's settings, from the file that was named or that of this folder, and from the environment.
pub fn server_config(named: Option<&Path>) -> Result<ServerConfig, ConfigError> {
    ServerConfig::load_with(config_file(named, SERVER_CONFIG).as_deref(), |_| ())
}

/// Refuses a folder without a database, for commands that must not create one.
pub fn refuse_no_database(folder: &Path) -> anyhow::Result<()> {
    if folder.join(DATABASE_FILE).exists() {
        return Ok(());
    }
    Err(Fault::not_found(format!(
        "{} holds no database ({DATABASE_FILE} is missing), name the data folder",
        folder.display()
    )))
}

/// What root makes in a folder of somebody else, that somebody cannot use.
pub fn refuse_anothers(folder: &Path) -> anyhow::Result<()> {
    let owner = folder.metadata().map(|found| found.uid()).ok();
    let is_root = rustix::process::geteuid().is_root();
    match owner.filter(|owner| is_root && *owner != 0) {
        None => Ok(()),
        Some(owner) => Err(Fault::usage(format!(
            "{} belongs to user {owner}, and files of root would lock that user out: run this with sudo -u '#{owner}'",
            folder.display()
        ))),
    }
}

/// Root goes on as whoever owns the folder: what it makes there is the owner's, and it is led nowhere by links that the owner may
/// put there. To be called before there is a second thread.
pub fn become_owner(folder: &Path) -> anyhow::Result<()> {
    let found = folder.metadata().ok();
    let is_root = rustix::process::geteuid().is_root();
    let Some(found) = found.filter(|found| is_root && found.uid() != 0) else {
        return Ok(());
    };
    let became = set_thread_groups(&[])
        .and_then(|()| set_thread_gid(Gid::from_raw(found.gid())))
        .and_then(|()| set_thread_uid(Uid::from_raw(found.uid())));
    match became {
        Ok(()) => Ok(()),
        // A root that may not do so.
        Err(_) => refuse_anothers(folder),
    }
}

/// The usual folder, if it is here and a server with these settings does not serve it.
pub fn unserved(config: &ServerConfig) -> Option<&'static str> {
    let is_here = Path::new(WORKFLOWS).is_dir();
    (is_here && config.workflows_dir.is_none()).then_some(WORKFLOWS)
}

/// The folder of workflow files: as the settings say, else the usual one if it is there.
pub fn workflows_folder(config: &ServerConfig) -> Option<PathBuf> {
    let usual = Path::new(WORKFLOWS);
    let usual = usual.is_dir().then(|| usual.to_path_buf());
    config.workflows_dir.clone().or(usual)
}

/// The error of a start, for whoever names the data folder by a flag.
pub fn with_flag(error: anyhow::Error, flag: &str) -> anyhow::Error {
    let text = match error.downcast_ref::<StartError>() {
        Some(StartError::Store(error)) => error.to_string(),
        _ => return error,
    };
    match text.strip_suffix("data_dir") {
        Some(before) => anyhow::anyhow!("{before}folder with {flag}"),
        None => error,
    }
}
