//! `stepward run-pod`: what a worker runs for a step in a pod. Not for people.

use std::path::Path;
use std::process::ExitCode;

use crate::worker::executor::run_pod;

pub fn run(plan: &Path) -> anyhow::Result<ExitCode> {
    let exit_code = run_pod(plan).map_err(anyhow::Error::msg)?;
    // Kubernetes knows no other codes than those that a process can have.
    Ok(ExitCode::from(exit_code as u8))
}
