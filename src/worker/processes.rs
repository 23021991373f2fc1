//! The processes of this machine: who is below whom, and a signal that reaches the one it is meant for.
//!
//! A process group is not enough to end a step: `setsid` and a double fork leave it. What is below the supervisor does not,
//! since it is a subreaper: whoever loses its parent becomes its child.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal};

/// One process as it was seen. Its number alone may soon be another's; with the time of its start it is not.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pub pid: Pid,
    pub parent: i32,
    /// 0: one of processes that cannot be seen from here.
    pub group: i32,
    /// Nobody can enter a session that is there: one leaves its own by beginning another.
    pub session: i32,
    /// It has ended, and its parent has not asked how.
    pub ended: bool,
    /// It stands still, by a SIGSTOP or for a debugger.
    pub suspended: bool,
    /// A signal such as SIGSTOP stopped it. A process that only a debugger holds is not counted.
    pub stopped_by_signal: bool,
    /// In ticks since the machine started.
    started: u64,
}

impl Process {
    /// Reads `/proc/[pid]/stat`. `None`: not there any more.
    #[cfg(target_os = "linux")]
    pub fn seen(pid: Pid) -> Option<Process> {
        let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Process::of_stat(pid, &stat)
    }

    #[cfg(not(target_os = "linux"))]
    pub fn seen(_: Pid) -> Option<Process> {
        None
    }

    /// The process that asks. `None`: `/proc` belongs to another PID namespace, as after `unshare --pid` without `--mount-proc`, or is
    /// not there.
    #[cfg(target_os = "linux")]
    pub fn own() -> Option<Process> {
        let stat = std::fs::read("/proc/self/stat").ok()?;
        let pid = rustix::process::getpid();
        let number = format!("{} ", pid.as_raw_nonzero());
        let is_own = stat.starts_with(number.as_bytes());
        is_own.then(|| Process::of_stat(pid, &stat)).flatten()
    }

    #[cfg(not(target_os = "linux"))]
    pub fn own() -> Option<Process> {
        None
    }

    /// The name of the program stands in parentheses and may itself hold any of them: the last one counts.
    #[cfg(target_os = "linux")]
    fn of_stat(pid: Pid, stat: &[u8]) -> Option<Process> {
        let name_end = memchr::memrchr(b')', stat)?;
        let fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        // The 22nd field of the file, and the seventh is next.
        let started = fields.nth(15)?.parse().ok()?;
        Some(Process {
            pid,
            parent,
            group,
            session,
            ended: matches!(state, "Z" | "X" | "x"),
            suspended: matches!(state, "T" | "t"),
            stopped_by_signal: state == "T",
            started,
        })
    }

    /// The same for one process whenever it is seen, and no other's.
    pub fn identity(&self) -> (Pid, u64) {
        (self.pid, self.started)
    }

    /// Sends a signal, unless the number has become another process's. `false`: it is gone.
    pub fn signal(&self, signal: Signal) -> bool {
        send(self, signal).is_ok()
    }

    pub fn is_older_than(&self, other: &Process) -> bool {
        self.started < other.started
    }

    /// As it is now. `None`: it is gone, and its number may be another's.
    pub fn seen_again(&self) -> Option<Process> {
        Process::seen(self.pid).filter(|now| now.started == self.started)
    }

    fn is_still_itself(&self) -> bool {
        self.seen_again().is_some()
    }
}

/// Once the descriptor is open it can only mean one process, so the look after the opening settles which.
#[cfg(target_os = "linux")]
fn send(process: &Process, signal: Signal) -> Result<(), Errno> {
    use rustix::process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};
    match pidfd_open(process.pid, PidfdFlags::empty()) {
        Ok(_) if !process.is_still_itself() => Err(Errno::SRCH),
        Ok(descriptor) => pidfd_send_signal(&descriptor, signal),
        // A kernel or a sandbox without such descriptors: then the number must do.
        Err(Errno::NOSYS | Errno::PERM | Errno::MFILE | Errno::NFILE)
            if process.is_still_itself() =>
        {
            kill_process(process.pid, signal)
        }
        Err(error) => Err(error),
    }
}

#[cfg(not(target_os = "linux"))]
fn send(process: &Process, _: Signal) -> Result<(), Errno> {
    let _known = process.is_still_itself();
    Err(Errno::NOSYS)
}

/// Everything that runs on this machine and may be seen. It is read one after the other: not a picture of one moment.
pub fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pids = names.filter_map(|name| Pid::from_raw(name.parse().ok()?));
    pids.filter_map(Process::seen).collect()
}

/// Whatever lives below a process, at any depth.
pub fn living_below(ancestor: Pid) -> Vec<Process> {
    let below = below(&all(), ancestor);
    below.into_iter().filter(|process| !process.ended).collect()
}

/// Whatever is below a process among those that were seen.
pub fn below(all: &[Process], ancestor: Pid) -> Vec<Process> {
    let mut by_parent: HashMap<i32, Vec<&Process>> = HashMap::new();
    for process in all {
        by_parent.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut unvisited = vec![ancestor.as_raw_nonzero().get()];
    // Each list is taken once: what was read in different moments might be a circle.
    while let Some(parent) = unvisited.pop() {
        for process in by_parent.remove(&parent).unwrap_or_default() {
            unvisited.push(process.pid.as_raw_nonzero().get());
            found.push(*process);
        }
    }
    found
}

/// Kills whoever is found, again and again, until nobody is. Says how many there were.
pub fn kill_all(find: impl Fn() -> Vec<Process>) -> u32 {
    // A process that hangs in a device cannot be killed by anybody; it is not worth a worker.
    const ROUNDS_MAX: u32 = 1_000;
    const ROUND_PAUSE: Duration = Duration::from_millis(5);
    let mut killed = HashSet::new();
    for _ in 0..ROUNDS_MAX {
        let found = find();
        if found.is_empty() {
            break;
        }
        for process in found {
            if process.signal(Signal::KILL) {
                killed.insert(process.identity());
            }
        }
        std::thread::sleep(ROUND_PAUSE);
    }
    killed.len() as u32
}

/// A process and all that are above it.
pub fn with_ancestors(pid: Pid) -> Vec<Pid> {
    let mut found = vec![pid];
    let mut next = Process::seen(pid);
    while let Some(parent) = next.and_then(|process| Pid::from_raw(process.parent)) {
        if found.contains(&parent) {
            break;
        }
        found.push(parent);
        next = Process::seen(parent);
    }
    found
}

/// `9` is `signal 9 (SIGKILL)`.
pub fn describe_signal(number: i32) -> String {
    const NAMES: &[(Signal, &str)] = &[
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::VTALARM, "SIGVTALRM"),
        (Signal::PROF, "SIGPROF"),
        (Signal::SYS, "SIGSYS"),
    ];
    match NAMES.iter().find(|(signal, _)| signal.as_raw() == number) {
        Some((_, name)) => format!("signal {number} ({name})"),
        None => format!("signal {number}"),
    }
}

/// `1 process`, `3 processes`.
pub fn count(processes: u32) -> String {
    match processes {
        1 => "1 process".to_string(),
        n => format!("{n} processes"),
    }
}
