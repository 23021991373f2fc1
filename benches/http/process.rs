//! The server as a process of its own, and what it takes of the machine.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::callers::{CHAIN, JOB_STEPS};
use super::line::Line;

/// A server that needs longer to start or to stop has failed.
const TIME_MAX: Duration = Duration::from_secs(30);

/// What /proc counts processor time in.
const TICKS_PER_S: f64 = 100.0;

/// A folder on disk with settings, workflows and the server's data.
pub struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    pub fn new() -> Site {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let workflows = folder.path().join("workflows");
        fs::create_dir(&workflows).unwrap();
        fs::write(workflows.join("bench.yaml"), tasks()).unwrap();
        let data = folder.path().join("data");
        // JSON strings are YAML strings.
        let config = format!("data_dir: {data:?}\nworkflows_dir: {workflows:?}\n");
        fs::write(folder.path().join("server.yaml"), config).unwrap();
        Site { folder }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("server.yaml")
    }
}

/// Steps of the job whose page is looked at, in chains.
pub const PAGE_STEPS: usize = 200;
const PAGE_CHAIN: usize = 10;

/// The same chains that the engine's callers carry out, a task of one step, and one that fits on a page.
fn tasks() -> String {
    let mut yaml = String::from("tasks:\n  one:\n    flow:\n      only: {script: 'true'}\n");
    for (name, steps, chain) in [
        ("chains", JOB_STEPS, CHAIN),
        ("page", PAGE_STEPS, PAGE_CHAIN),
    ] {
        writeln!(yaml, "  {name}:\n    flow:").unwrap();
        for at in 0..steps {
            let depends = match at.is_multiple_of(chain) {
                true => String::new(),
                false => format!(", depends_on: s{}", at - 1),
            };
            writeln!(yaml, "      s{at}: {{script: 'true'{depends}}}").unwrap();
        }
    }
    yaml
}

pub struct ServerProcess {
    child: Child,
    pub address: SocketAddr,
    /// From its start until it said that it is ready.
    pub started_in: Duration,
}

impl ServerProcess {
    pub fn start(site: &Site) -> ServerProcess {
        let begun = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_stepward"))
            .args(["server", "--no-auth", "--listen", "127.0.0.1:0", "--config"])
            .arg(site.config())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            let address = line.strip_prefix("stepward: listening on http://");
            if address.is_none() {
                eprintln!("server: {line}");
            }
            address.map(|address| address.parse().unwrap())
        });
        let address = address.expect("the server did not start");
        // Whatever it has to complain about is seen, and its pipe never full.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.contains("WARN") || line.contains("ERROR") || line.contains("panicked") {
                    eprintln!("server: {line}");
                }
            }
        });
        let mut line = Line::new(address);
        while line.call("GET", "/readyz", b"").status != 200 {
            assert!(begun.elapsed() < TIME_MAX, "the server does not get ready");
            std::thread::sleep(Duration::from_millis(1));
        }
        ServerProcess {
            child,
            address,
            started_in: begun.elapsed(),
        }
    }

    pub fn stop(mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < TIME_MAX, "the server does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn usage(&self) -> Usage {
        Usage::of(self.child.id())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It has ended already, unless something went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process takes, at one moment.
#[derive(Clone, Copy)]
pub struct Usage {
    pub memory_mb: f64,
    pub threads: f64,
    pub cpu_s: f64,
}

impl Usage {
    pub fn of(pid: u32) -> Usage {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| -> f64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.unwrap().split_whitespace().next();
            number.unwrap().parse().unwrap()
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        // The name in parentheses may hold anything.
        let after_name = stat.rsplit(')').next().unwrap();
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let ticks = |index: usize| -> f64 { fields[index].parse().unwrap() };
        Usage {
            memory_mb: field("VmRSS:") / 1024.0,
            threads: field("Threads:"),
            cpu_s: (ticks(11) + ticks(12)) / TICKS_PER_S,
        }
    }
}
