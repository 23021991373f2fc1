//! Who has a port that is taken: its process, by name and folder, as the kernel tells.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::words::{fit, printable};
use crate::server::StartError;

const COMMAND_COLUMNS: usize = 60;
/// The state of a socket that waits for connections, as the kernel writes it.
const LISTENING: &str = "0A";

pub enum PortOwner {
    Process {
        pid: u32,
        command: String,
        folder: Option<PathBuf>,
    },
    /// A process of this user whose files cannot be read: servers and workers of ours hide theirs from steps.
    Hidden {
        /// Processes of this user that may own the port.
        candidates: Vec<(u32, String)>,
    },
    /// It is there, and nobody may look at it.
    OtherUser,
}

impl PortOwner {
    /// `None`: nobody listens there any more, or the kernel does not tell.
    pub fn of(port: u16) -> Option<PortOwner> {
        let mut sockets = Vec::new();
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let text = fs::read_to_string(table).unwrap_or_default();
            sockets.extend(listeners(&text, port));
        }
        if sockets.is_empty() {
            return None;
        }
        let own = rustix::process::geteuid().as_raw();
        Some(process_with(&sockets).unwrap_or_else(|| {
            match sockets.iter().any(|socket| socket.user == own) {
                true => PortOwner::Hidden {
                    candidates: hidden_processes(own),
                },
                false => PortOwner::OtherUser,
            }
        }))
    }
}

impl fmt::Display for PortOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortOwner::OtherUser => f.write_str("another user's process"),
            PortOwner::Hidden { candidates } => match candidates.as_slice() {
                [] => f.write_str("a process of yours that hides its files"),
                [(pid, command)] => write!(f, "process {pid} ({command})"),
                several => {
                    let pids: Vec<String> =
                        several.iter().map(|(pid, _)| pid.to_string()).collect();
                    write!(f, "one of the processes {}", pids.join(", "))
                }
            },
            PortOwner::Process {
                pid,
                command,
                folder,
            } => {
                write!(f, "process {pid} ({command}")?;
                if let Some(folder) = folder {
                    write!(f, " in {}", printable(&from_home(folder)))?;
                }
                f.write_str(")")
            }
        }
    }
}

/// The error of a start, with whoever has the port. `other` says how to choose another.
pub fn named(error: StartError, other: &str) -> anyhow::Error {
    let StartError::Listen { address, source } = &error else {
        return error.into();
    };
    match owner_of(*address, source) {
        Some(owner) => anyhow::anyhow!(
            "cannot listen on {address}: port {} is in use by {owner}; stop it, or {other}",
            address.port()
        ),
        None => error.into(),
    }
}

fn owner_of(address: SocketAddr, error: &io::Error) -> Option<PortOwner> {
    match error.kind() == io::ErrorKind::AddrInUse {
        true => PortOwner::of(address.port()),
        false => None,
    }
}

/// A socket that waits for connections.
#[derive(Debug, PartialEq, Eq)]
struct ListeningSocket {
    inode: u64,
    user: u32,
}

/// The sockets that listen at this port, in a table of the kernel.
fn listeners(table: &str, port: u16) -> Vec<ListeningSocket> {
    let lines = table.lines().skip(1);
    let found = lines.filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let local = fields.nth(1)?;
        let state = fields.nth(1)?;
        let user = fields.nth(3)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        let (_, local_port) = local.rsplit_once(':')?;
        let is_it = u16::from_str_radix(local_port, 16) == Ok(port) && state == LISTENING;
        is_it.then_some(ListeningSocket { inode, user })
    });
    found.collect()
}

/// The number and the folder in `/proc` of every process that can be seen.
fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, entry.path()))
    })
}

/// Programs of ours that belong to this user and hide their open files.
fn hidden_processes(user: u32) -> Vec<(u32, String)> {
    let own_program = std::env::args_os().next().unwrap_or_default();
    let own_program = Path::new(&own_program).file_name().unwrap_or_default();
    let mut found = Vec::new();
    for (pid, process) in processes() {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let uid = uid.and_then(|uids| uids.split_ascii_whitespace().next()?.parse().ok());
        let hides = fs::read_dir(process.join("fd"))
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        let cmdline = fs::read(process.join("cmdline")).unwrap_or_default();
        let program = cmdline.split(|byte| *byte == 0).next().unwrap_or_default();
        let program = program
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default();
        if uid == Some(user) && hides && program == own_program.as_encoded_bytes() {
            found.push((pid, command(&cmdline)));
        }
    }
    found
}

fn process_with(sockets: &[ListeningSocket]) -> Option<PortOwner> {
    let links: Vec<String> = sockets
        .iter()
        .map(|socket| format!("socket:[{}]", socket.inode))
        .collect();
    let has = |process: &Path| {
        let descriptors = fs::read_dir(process.join("fd")).ok();
        let targets = descriptors.into_iter().flatten().flatten();
        let mut targets = targets.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        targets.any(|target| links.iter().any(|link| target == Path::new(link)))
    };
    for (pid, process) in processes() {
        if has(&process) {
            return Some(PortOwner::Process {
                pid,
                command: command(&fs::read(process.join("cmdline")).unwrap_or_default()),
                folder: fs::read_link(process.join("cwd")).ok(),
            });
        }
    }
    None
}

/// Its name and its verb. What comes behind a flag may be nobody's business.
fn command(cmdline: &[u8]) -> String {
    let text = String::from_utf8_lossy(cmdline);
    let mut words = text.split('\0').filter(|word| !word.is_empty());
    let program = words.next().unwrap_or("unknown");
    let program = program.rsplit('/').next().unwrap_or(program);
    let rest = words.take_while(|word| !word.starts_with('-'));
    let all: Vec<&str> = std::iter::once(program).chain(rest).collect();
    fit(&printable(&all.join(" ")), COMMAND_COLUMNS, "...")
}

fn from_home(folder: &Path) -> String {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let below = home.and_then(|home| folder.strip_prefix(home).ok());
    match below {
        Some(below) if below == Path::new("") => "~".to_string(),
        Some(below) => format!("~/{}", below.display()),
        None => folder.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_listens_has_a_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:1E25 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0\n   \
             1: 0100007F:1E25 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0 20 4 30 10 -1\n   \
             2: 0100007F:1E26 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 10 0\n";
        let socket = |inode, user| ListeningSocket { inode, user };
        assert_eq!(listeners(table, 7717), [socket(4711, 1000)]);
        assert_eq!(listeners(table, 7718), [socket(4713, 0)]);
        assert_eq!(listeners("rubbish\nmore\n", 7717), []);
    }

    #[test]
    fn a_command_is_told_up_to_its_flags() {
        let told = command(b"/usr/bin/stepward\0server\0--token\0hunter2\0");
        assert_eq!(told, "stepward server");
        assert_eq!(command(b""), "unknown");
        assert_eq!(command(b"a\x1b[2J\0b\0"), "a\u{fffd}[2J b");
    }
}
