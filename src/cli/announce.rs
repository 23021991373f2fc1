//! `server.json` in a data folder: where the server of that folder listens, for whoever stands in the folder above.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::embedded::from_here;
use crate::certificate::Trust;
use crate::config::{ConfigError, ServerConfig, read_token};
use crate::lock::Lock;
use crate::server::tls::SHOWN_FILE;
use crate::store::LOCK_FILE;
use crate::token_files::{self, ADMIN_TOKEN_FILE, WORKER_TOKEN_FILE};
use crate::whole_file;
use crate::worker::processes::Process;

const FILE: &str = "server.json";
/// The data folder of a project, in the project's own folder.
pub const FOLDER: &str = ".stepward";
const FILE_BYTES_MAX: u64 = 64 << 10;

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

impl TokenUse {
    /// The file of the token, next to the file that announced the server.
    fn file(self, announced_by: &Path) -> Option<PathBuf> {
        let name = match self {
            TokenUse::Command => ADMIN_TOKEN_FILE,
            TokenUse::Worker => WORKER_TOKEN_FILE,
        };
        Some(announced_by.parent()?.join(name))
    }
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

    /// The file that announces the server.
    pub fn file(&self) -> &Path {
        &self.file
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

    /// The token for this server that the folder leads to, and where it is: that of `auth.token_file`, else that of the first start.
    /// `file` is the file that announced the server.
    pub fn token(
        &self,
        file: &Path,
        token_use: TokenUse,
    ) -> Result<Option<(String, PathBuf)>, ConfigError> {
        match &self.token_file {
            Some(_) if !self.may_get_token(file) => Ok(None),
            Some(token_file) => Ok(Some((read_token(token_file)?, token_file.clone()))),
            None => Ok(self.first_token(file, token_use)),
        }
    }

    /// The token that the first start of this server wrote into the data folder, if the file is there and belongs to this user, and
    /// where it is. `file` is the file that announced the server.
    pub fn first_token(&self, file: &Path, token_use: TokenUse) -> Option<(String, PathBuf)> {
        if !self.takes_first_tokens || !self.may_get_token(file) {
            return None;
        }
        let token_file = token_use.file(file)?;
        Some((token_files::read_own(&token_file)?, token_file))
    }

    /// Why the file of `first_token` is ignored though it is there. `file` is the file that announced the server.
    pub fn why_first_token_ignored(&self, file: &Path, token_use: TokenUse) -> Option<String> {
        let is_sought = self.takes_first_tokens && self.may_get_token(file);
        token_files::why_ignored(&token_use.file(file).filter(|_| is_sought)?)
    }

    /// The data folder of this server, if the server asks for a token. `file` is the file that announced the server.
    pub fn closed_folder(&self, file: &Path) -> Option<PathBuf> {
        let asks = self.takes_first_tokens || self.token_file.is_some();
        file.parent().filter(|_| asks).map(Path::to_path_buf)
    }

    /// Whether a token that nobody named may be sent to this server. `file` is the file that announced the server.
    ///
    /// The token opens everything, so it goes to nobody but that server: only while a process holds the data folder. Another process
    /// that took the port of a server that has ended gets nothing.
    fn may_get_token(&self, file: &Path) -> bool {
        let lock = file.parent().map(|folder| folder.join(LOCK_FILE));
        lock.is_some_and(|lock| Lock::is_held(&lock)) && self.is_alive()
    }

    /// Whether the process that wrote it is there. Where the kernel does not tell, it is.
    fn is_alive(&self) -> bool {
        let can_tell = start_of(std::process::id()).is_some();
        !can_tell || (self.started_ticks.is_some() && start_of(self.pid) == self.started_ticks)
    }
}

/// Whether this address leads to this machine, whatever name servers say: names are not looked up.
fn is_on_this_machine(url: &str) -> bool {
    let authority = url.split("://").nth(1).unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    let address = authority.parse::<SocketAddr>();
    address.is_ok_and(|address| address.ip().is_loopback() || is_own_address(address))
}

/// Whether an interface of this machine has this address. The kernel reaches an address of its own from that same address. Connecting
/// a datagram socket sends nothing.
fn is_own_address(address: SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address.ip())
}

/// `None`: it has ended, or the kernel does not tell.
fn start_of(pid: u32) -> Option<u64> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let process = Process::seen(pid).filter(|process| !process.ended)?;
    Some(process.identity().1)
}

/// Reads an announcement. One that another user may have written, or that names another machine, counts as none: it would send the
/// token of this user to wherever the other user likes.
fn read(file: &Path) -> Option<Announced> {
    let text = token_files::read_written_by_own(file, FILE_BYTES_MAX)?;
    let announced: Announced = serde_json::from_slice(&text).ok()?;
    is_on_this_machine(&announced.url).then_some(announced)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    fn announced(url: &str) -> Announced {
        Announced {
            url: url.to_string(),
            pid: std::process::id(),
            started_ticks: start_of(std::process::id()),
            token_file: Some("/somewhere/token".into()),
            cert_file: None,
            takes_first_tokens: false,
        }
    }

    #[test]
    fn only_a_server_of_this_machine_is_believed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        for (url, is_believed) in [
            ("http://127.0.0.1:7717", true),
            ("https://127.0.0.1:7717", true),
            ("http://[::1]:7717", true),
            ("http://192.0.2.1:7717", false),
            ("https://192.0.2.1:7717", false),
            ("http://[2001:db8::1]:7717", false),
            ("http://localhost:7717", false),
            ("http://127.0.0.1:7717@192.0.2.1:80", false),
            ("127.0.0.1:7717", false),
        ] {
            put(&file, &announced(url)).unwrap();
            assert_eq!(read(&file).is_some(), is_believed, "{url}");
        }
    }

    /// Whoever owns the link decides at any time which file of this user it leads to.
    #[test]
    fn a_link_announces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        put(&real, &announced("http://127.0.0.1:7717")).unwrap();
        symlink(&real, folder.path().join(FILE)).unwrap();
        assert_eq!(read(&folder.path().join(FILE)), None);
    }

    #[test]
    fn a_token_goes_only_to_a_server_that_holds_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        let token_file = folder.path().join("token");
        fs::write(&token_file, "0123456789abcdef").unwrap();
        let announced = Announced {
            token_file: Some(token_file.clone()),
            ..announced("http://127.0.0.1:7717")
        };
        let found = || announced.token(&file, TokenUse::Worker).unwrap();
        assert_eq!(found(), None);
        let lock = Lock::take(fs::File::create(folder.path().join(LOCK_FILE)).unwrap()).unwrap();
        assert_eq!(found(), Some(("0123456789abcdef".to_string(), token_file)));
        drop(lock);
    }

    /// Somebody who can write in the folder above exchanges the data folder again and again, so that the check of a path and its
    /// reading may meet two files.
    #[test]
    fn the_file_that_is_read_is_the_file_that_was_checked() {
        let above = tempfile::tempdir().unwrap();
        let path = |name: &str| above.path().join(name);
        let (own, forged) = ("http://127.0.0.1:1", "http://127.0.0.1:2");
        for (folder, url) in [("own", own), ("forged", forged)] {
            fs::create_dir(path(folder)).unwrap();
            put(&path(folder).join(FILE), &announced(url)).unwrap();
        }
        let forged_file = path("forged").join(FILE);
        // Only root can make a file of another user. For others, a file that everybody may write is as little to be trusted.
        match rustix::process::geteuid().is_root() {
            true => chown(&forged_file, Some(65_534), Some(65_534)).unwrap(),
            false => {
                fs::set_permissions(&forged_file, fs::Permissions::from_mode(0o666)).unwrap();
            }
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for target in ["own", "forged"].into_iter().cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    symlink(path(target), path("next")).unwrap();
                    fs::rename(path("next"), path(FOLDER)).unwrap();
                }
            });
            let path = path(FOLDER).join(FILE);
            // On a busy machine the other thread may not run for a while.
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut believed: Vec<String> = Vec::new();
            for count in 0.. {
                believed.extend(read(&path).map(|found| found.url));
                let is_enough = count >= 20_000 && !believed.is_empty();
                if is_enough || Instant::now() > deadline {
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(
                !believed.is_empty(),
                "the exchange never showed the file of this user"
            );
            assert!(!believed.iter().any(|url| url == forged));
        });
    }
}
