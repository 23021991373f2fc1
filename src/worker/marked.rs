//! The mark that every process of a step carries in its environment, and the end of those whose supervisor is gone.
//!
//! A process can only lose it by clearing its environment, and then only matters if the supervisor was killed as well.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid};

use super::processes::{self, Process};
use crate::domain::AttemptRef;

pub const MARK: &str = "STEPWARD_ATTEMPT_KEY";

/// What the mark of one attempt says.
pub fn key(instance_key: &str, attempt: AttemptRef) -> String {
    format!("{instance_key}/{}.{}", attempt.step_id, attempt.attempt)
}

/// Kills what carries the mark, until nothing does: of one attempt by its whole key, of all that this worker ever ran by the
/// `instance_key`. Never this process or one above it. Says how many there were.
pub fn kill_marked(key: &str) -> u32 {
    let spared: HashSet<Pid> = processes::with_ancestors(getpid()).into_iter().collect();
    let mut killed = HashSet::new();
    // A process that hangs in a device cannot be killed by anybody; it is not worth a worker.
    for _ in 0..ROUNDS_MAX {
        let mut found = 0;
        for process in living(key).filter(|process| !spared.contains(&process.pid)) {
            found += 1;
            if process.signal(Signal::KILL) {
                killed.insert(process.identity());
            }
        }
        if found == 0 {
            break;
        }
        std::thread::sleep(ROUND_PAUSE);
    }
    killed.len() as u32
}

/// Whether anything carries the mark.
pub fn is_any_marked(key: &str) -> bool {
    living(key).next().is_some()
}

fn living(key: &str) -> impl Iterator<Item = Process> {
    let living = processes::all().into_iter();
    living.filter(move |process| !process.ended && carries(process, key))
}

const ROUNDS_MAX: u32 = 1_000;
const ROUND_PAUSE: Duration = Duration::from_millis(5);

fn carries(process: &Process, key: &str) -> bool {
    let file = PathBuf::from(format!("/proc/{}/environ", process.pid.as_raw_nonzero()));
    // Another user's, or gone: not ours.
    let Ok(environment) = std::fs::read(file) else {
        return false;
    };
    let marks = environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| variable.strip_prefix(MARK.as_bytes()))
        .filter_map(|rest| rest.strip_prefix(b"="));
    let is_meant = |mark: &[u8]| {
        let rest = mark.strip_prefix(key.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    marks.into_iter().any(is_meant)
}
