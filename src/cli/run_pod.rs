//! `stepward run-pod`: what a worker runs for a step in a pod. Not for people.

use std::path::Path;
use std::process::ExitCode;

use super::say::say;
use crate::worker::executor::run_pod;

pub fn run(plan: &Path) -> ExitCode {
    match run_pod(plan) {
        // Kubernetes knows no other codes than those that a process can have.
        Ok(exit_code) => ExitCode::from(exit_code as u8),
        Err(why) => {
            say(why);
            ExitCode::from(1)
        }
    }
}
