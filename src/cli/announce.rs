//! `server.json` in a data folder: where the server of that folder listens, for whoever stands in the folder above.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::embedded::from_here;
use crate::certificate::Trust;
use crate::config::{ConfigError, ServerConfig};
use crate::lock::Lock;
use crate::server::tls::SHOWN_FILE;
use crate::store::LOCK_FILE;
use crate::token_files::{self, ADMIN_TOKEN_FILE, WORKER_TOKEN_FILE};
use crate::whole_file;
use crate::worker::processes::Process;

const FILE: &str = "server.json";
/// The data folder of a project, in the project's own folder.
const FOLDER: &str = ".stepward";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    pub url: String,
    pub pid: u32,
    /// When that process began, as the kernel counts: its number may be another's by now. `None` where the kernel does not tell.
    #[serde(default)]
    pub started_ticks: Option<u64>,
    /// Where the token is that this server wants, if it wants one.
    pub token_file: Option<PathBuf>,
    /// Where the certificate is that it shows, if it speaks TLS.
    #[serde(default)]
    pub cert_file: Option<PathBuf>,
    /// Whether the server asks for a token, and `admin.token` and `worker.token` of its data folder are for it.
    #[serde(default)]
    pub takes_first_tokens: bool,
}

/// Which of the two tokens of a data folder a caller needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenUse {
    Command,
    Worker,
}

/// It is gone when this is dropped. A server that was killed leaves it, and nobody believes it any more.
pub struct Announcement {
    file: PathBuf,
    announced: Announced,
}

impl Announcement {
    /// A server that cannot announce itself is a server all the same: the fault is logged.
    pub fn write(config: &ServerConfig, address: SocketAddr, asks_for_token: bool) -> Announcement {
        let token_file = config.auth.token_file.as_deref();
        let cert_file = (config.tls.files()).map(|_| config.data_dir.join(SHOWN_FILE));
        let announced = Announced {
            url: config.own_url(from_here(address)),
            pid: std::process::id(),
            started_ticks: start_of(std::process::id()),
            token_file: token_file.map(|file| fs::canonicalize(file).unwrap_or(file.to_path_buf())),
            cert_file: cert_file.map(|file| fs::canonicalize(&file).unwrap_or(file)),
            takes_first_tokens: asks_for_token && token_file.is_none(),
        };
        let file = config.data_dir.join(FILE);
        if let Err(error) = put(&file, &announced) {
            log::warn!(
                "{} cannot be written, commands need --server: {error}",
                file.display()
            );
        }
        Announcement { file, announced }
    }

    /// What it says.
    pub fn announced(&self) -> &Announced {
        &self.announced
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if read(&self.file).as_ref() == Some(&self.announced) {
            // Somebody was faster.
            let _ = fs::remove_file(&self.file);
        }
    }
}

/// A command that reads the file at the same time sees all of it or the former one.
fn put(file: &Path, announced: &Announced) -> std::io::Result<()> {
    whole_file::write(file, 0o600, &serde_json::to_vec_pretty(announced)?)
}

/// The server that was announced in this folder or the nearest one above, and by which file. Those that have ended do not count:
/// whoever has their port now is not to get our token.
pub fn find(folder: &Path) -> Option<(Announced, PathBuf)> {
    above(folder).find(|(announced, _)| announced.is_alive())
}

/// The nearest that has ended without a word.
pub fn ended(folder: &Path) -> Option<(Announced, PathBuf)> {
    above(folder).find(|(announced, _)| !announced.is_alive())
}

/// That of this project alone.
pub fn of_project(folder: &Path) -> Option<(Announced, PathBuf)> {
    of_folder(&folder.join(FOLDER))
}

/// The server of this very data folder, and by which file.
pub fn of_folder(data_dir: &Path) -> Option<(Announced, PathBuf)> {
    let file = data_dir.join(FILE);
    let announced = read(&file).filter(Announced::is_alive)?;
    Some((announced, file))
}

/// The one of this very data folder that has ended without a word.
pub fn ended_in(data_dir: &Path) -> Option<(Announced, PathBuf)> {
    let file = data_dir.join(FILE);
    let announced = read(&file).filter(|announced| !announced.is_alive())?;
    Some((announced, file))
}

fn above(folder: &Path) -> impl Iterator<Item = (Announced, PathBuf)> {
    folder.ancestors().filter_map(|folder| {
        let file = folder.join(FOLDER).join(FILE);
        read(&file).map(|announced| (announced, file))
    })
}

impl Announced {
    /// The very certificate that it shows, if it speaks TLS.
    pub fn trust(&self) -> Result<Option<Trust>, ConfigError> {
        self.cert_file.as_deref().map(Trust::of_file).transpose()
    }

    /// The token that the first start of this server wrote into the data folder, if the file is there and belongs to this user, and
    /// where it is. `file` is the file that announced the server.
    ///
    /// The token opens everything, so it goes to nobody but that server: only to an address of this machine, and only while a process
    /// holds the data folder. Another process that took the port of a server that has ended gets nothing.
    pub fn first_token(&self, file: &Path, token_use: TokenUse) -> Option<(String, PathBuf)> {
        let folder = file.parent()?;
        let is_for_us = self.takes_first_tokens && is_on_loopback(&self.url);
        if !is_for_us || !Lock::is_held(&folder.join(LOCK_FILE)) || !self.is_alive() {
            return None;
        }
        let token_file = folder.join(match token_use {
            TokenUse::Command => ADMIN_TOKEN_FILE,
            TokenUse::Worker => WORKER_TOKEN_FILE,
        });
        Some((token_files::read_own(&token_file)?, token_file))
    }

    /// Whether the process that wrote it is there. Where the kernel does not tell, it is.
    fn is_alive(&self) -> bool {
        let can_tell = start_of(std::process::id()).is_some();
        !can_tell || (self.started_ticks.is_some() && start_of(self.pid) == self.started_ticks)
    }
}

/// Whether this address leads to this machine, whatever name servers say: names are not looked up.
fn is_on_loopback(url: &str) -> bool {
    let authority = url.split("://").nth(1).unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    let address = authority.parse::<SocketAddr>();
    address.is_ok_and(|address| address.ip().is_loopback())
}

/// `None`: it has ended, or the kernel does not tell.
fn start_of(pid: u32) -> Option<u64> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let process = Process::seen(pid).filter(|process| !process.ended)?;
    Some(process.identity().1)
}

/// What another user wrote would send our token to wherever they like.
fn read(file: &Path) -> Option<Announced> {
    let owner = file.metadata().ok()?.uid();
    let is_trusted = owner == 0 || owner == rustix::process::geteuid().as_raw();
    let text = fs::read(file).ok().filter(|_| is_trusted)?;
    serde_json::from_slice(&text).ok()
}
