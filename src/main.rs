//! Parses the arguments, runs the verb, turns its outcome into an exit code.

use std::process::ExitCode;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    stepward::cli::run()
}
