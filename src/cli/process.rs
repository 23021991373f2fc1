//! What a process that stays does first: its log, its limits, its signals.

use crossbeam_channel::{Receiver, unbounded};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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
    ctrlc::set_handler(move || {
        // Nobody listens any more: the process is ending already.
        let _ = sender.send(());
    })?;
    Ok(signals)
}
