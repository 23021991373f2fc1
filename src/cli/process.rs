//! What a process that stays does first: its log, its limits, its signals.

use crossbeam_channel::{Receiver, unbounded};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub fn begin() {
    let filter = env_logger::Env::new().filter_or("STEPWARD_LOG", "info");
    // Somebody who runs two of them in one process has set it up already.
    let _ = env_logger::Builder::from_env(filter).try_init();
    raise_descriptors();
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

/// One message for each SIGTERM, SIGINT or SIGHUP.
pub fn signals() -> anyhow::Result<Receiver<()>> {
    let (sender, signals) = unbounded();
    let mut taken = vec![SIGINT, SIGTERM];
    // Whoever starts it with nohup wants it to stay when the terminal goes. `ctrlc` takes all three or SIGINT alone.
    if !is_ignored(SIGHUP) {
        taken.push(SIGHUP);
    }
    let mut taken = Signals::new(taken)?;
    std::thread::Builder::new()
        .name("signals".to_string())
        .spawn(move || {
            for _ in taken.forever() {
                // Nobody listens any more: the process is ending already.
                let _ = sender.send(());
            }
        })?;
    Ok(signals)
}

/// Whether the process was started so. Where the kernel does not tell, it was not.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
