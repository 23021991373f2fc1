//! Parses the arguments, runs the verb, turns its outcome into an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    stepward::cli::run()
}
