//! What a process that stays does first: its log, its limits, its signals.

use std::path::Path;

use crossbeam_channel::{Receiver, unbounded};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::own_log;
use crate::clock::monotonic_ms;
use crate::config::{Log, LogFormat};

/// Names the process without which another of ours is not to live. The demo sets it for what it starts.
pub const ENDS_WITH: &str = "STEPWARD_ENDS_WITH";

pub fn begin(log: Log) {
    begin_logging(log.format, log.level.as_str());
}

/// Before its settings are checked, so that what is wrong with them is told as everything else.
pub fn begin_by(file: Option<&Path>, format: Option<LogFormat>) {
    let log = Log::of_file(file);
    begin(Log {
        format: format.unwrap_or(log.format),
        ..log
    });
}

/// `filter` is what the log holds unless the environment says otherwise.
pub fn begin_logging(format: LogFormat, filter: &str) {
    own_log::begin(format, filter);
    raise_descriptors();
    end_with_parent();
}

/// Keeps steps, which run as the same user, from reading the memory and the environment of this process: both may hold tokens and
/// secrets. The kernel then also writes no core dump of it. Programs that it starts can be read as usual.
#[cfg(target_os = "linux")]
pub fn hide_from_steps() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        log::warn!("steps of the same user can read the memory of this process: {error}");
    }
}

#[cfg(not(target_os = "linux"))]
pub fn hide_from_steps() {}

#[cfg(target_os = "linux")]
fn end_with_parent() {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
    let named = std::env::var(ENDS_WITH).ok();
    let Some(parent) = named.and_then(|pid| Pid::from_raw(pid.parse().ok()?)) else {
        return;
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        log::warn!("it may outlive whoever started it: {error}");
    }
    // It may have gone before it was asked to tell.
    if getppid() != Some(parent) {
        std::process::exit(1);
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent() {}

/// For a process that people watch: its log is nothing for them, unless they ask for it.
pub fn begin_quietly() {
    if std::env::var_os("STEPWARD_LOG").is_some() {
        begin(Log::default());
    }
}

/// Every connection is a descriptor, and what a shell allows by default is few.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::warn!("the limit of open files stays as it is: {error}");
    }
}

/// Whoever sends one to a process and then to its group, as `timeout` does, means one. The quickest finger is slower.
const SAME_SIGNAL_MS: i64 = 30;

/// Returns a channel that gets one message for each SIGTERM, SIGINT or SIGHUP. To be called once in a process.
///
/// `ctrlc` handles the signals. It handles all three, so it cannot be used by a process that was started with SIGHUP ignored, as
/// `nohup` does: that process has to stay when its terminal goes. Only there `signal-hook` handles the other two.
pub fn signals() -> anyhow::Result<Receiver<()>> {
    let (sender, signals) = unbounded();
    let mut sent_ms: Option<i64> = None;
    let mut notify = move || {
        let now_ms = monotonic_ms();
        if sent_ms.is_some_and(|sent_ms| now_ms - sent_ms < SAME_SIGNAL_MS) {
            return;
        }
        sent_ms = Some(now_ms);
        // Nobody listens any more: the process is ending already.
        let _ = sender.send(());
    };
    if is_ignored(SIGHUP) {
        let mut taken = Signals::new([SIGINT, SIGTERM])?;
        std::thread::Builder::new()
            .name("signals".to_string())
            .spawn(move || taken.forever().for_each(|_| notify()))?;
    } else {
        ctrlc::set_handler(notify)?;
    }
    Ok(signals)
}

/// Whether the process was started with this signal ignored. Where the kernel does not tell, it was not.
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
