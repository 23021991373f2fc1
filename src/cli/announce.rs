//! `server.json` in a data folder: where the server of that folder listens, for whoever stands in the folder above.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::embedded::from_here;

const FILE: &str = "server.json";
/// The data folder of a project, in the project's own folder.
const FOLDER: &str = ".stepward";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Announced {
    pub url: String,
    pub pid: u32,
    /// Where the token is that this server wants, if it wants one.
    pub token_file: Option<PathBuf>,
}

/// It is gone when this is dropped. A server that was killed leaves it; whoever believes it finds nobody there.
pub struct Announcement {
    file: PathBuf,
}

impl Announcement {
    /// A server that cannot announce itself is a server all the same: the fault is logged.
    pub fn write(data_dir: &Path, address: SocketAddr, token_file: Option<&Path>) -> Announcement {
        let announced = Announced {
            url: format!("http://{}", from_here(address)),
            pid: std::process::id(),
            token_file: token_file.map(|file| fs::canonicalize(file).unwrap_or(file.to_path_buf())),
        };
        let file = data_dir.join(FILE);
        if let Err(error) = put(&file, &announced) {
            log::warn!(
                "{} cannot be written, commands need --server: {error}",
                file.display()
            );
        }
        Announcement { file }
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // It was never written, or somebody was faster.
        let _ = fs::remove_file(&self.file);
    }
}

/// Whoever reads at the same time sees all of it or the former one.
fn put(file: &Path, announced: &Announced) -> std::io::Result<()> {
    let new = file.with_extension("json.new");
    let mut out = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    out.write_all(&serde_json::to_vec_pretty(announced)?)?;
    fs::rename(new, file)
}

/// The server that was announced in this folder or the nearest one above, and by which file.
pub fn find(folder: &Path) -> Option<(Announced, PathBuf)> {
    folder.ancestors().find_map(of_project)
}

/// That of this project alone.
pub fn of_project(folder: &Path) -> Option<(Announced, PathBuf)> {
    of_folder(&folder.join(FOLDER))
}

/// The server of this very data folder, and by which file.
pub fn of_folder(data_dir: &Path) -> Option<(Announced, PathBuf)> {
    let file = data_dir.join(FILE);
    read(&file).map(|announced| (announced, file))
}

/// What another user wrote would send our token to wherever they like.
fn read(file: &Path) -> Option<Announced> {
    let owner = file.metadata().ok()?.uid();
    let is_trusted = owner == 0 || owner == rustix::process::geteuid().as_raw();
    let text = fs::read(file).ok().filter(|_| is_trusted)?;
    serde_json::from_slice(&text).ok()
}
