//! The mark that every process of a step carries in its environment, and the end of those whose supervisor is gone.
//!
//! A process can only lose it by clearing its environment, and then only matters if the supervisor was killed as well; as
//! long as the worker lives, `orphans.rs` finds it even so.

use std::path::PathBuf;

use rustix::process::getpid;

use super::processes::{self, Process, kill_all};
use crate::domain::AttemptRef;

pub const MARK: &str = "STEPWARD_ATTEMPT_KEY";

/// What the mark of one attempt says.
pub fn key(instance_key: &str, attempt: AttemptRef) -> String {
    format!("{instance_key}/{}.{}", attempt.step_id, attempt.attempt)
}

/// Kills what carries the mark, until nothing does: of one attempt by its whole key, of all that this worker ever ran by the
/// `instance_key`. Says how many there were.
pub fn kill_marked(key: &str) -> u32 {
    kill_all(|| marked(key))
}

/// Whatever lives and carries the mark, but never this process or one above it.
pub fn marked(key: &str) -> Vec<Process> {
    let spared = processes::with_ancestors(getpid());
    let others = processes::all().into_iter();
    let others = others.filter(|process| !process.ended && !spared.contains(&process.pid));
    others.filter(|process| carries(process, key)).collect()
}

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
