//! A program that is fed and waited for, but not for ever: it ends with all that it started.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::header::one_line;
use crate::domain::outbox::Sent;
use crate::program::{self, Input, Program, ProgramEnd};

const PATIENCE: Duration = Duration::from_secs(30);

pub fn run(
    command: &[String],
    variables: &[(&str, String)],
    input: &[u8],
    stopping: &AtomicBool,
) -> Sent {
    run_for(command, variables, input, stopping, PATIENCE)
}

fn run_for(
    command: &[String],
    variables: &[(&str, String)],
    input: &[u8],
    stopping: &AtomicBool,
    patience: Duration,
) -> Sent {
    let name = &command[0];
    let is_stopping = || stopping.load(Ordering::Relaxed);
    let program = Program {
        words: command,
        variables,
        stdin: Input::Bytes(input.to_vec()),
        stdout: Stdio::null(),
    };
    let ended = program::run(program, &mut |waited| waited < patience && !is_stopping());
    let (status, stderr) = match ended {
        ProgramEnd::NotStarted(error) => {
            return Sent::failed(format!("{name} cannot be started: {error}"));
        }
        ProgramEnd::Killed if is_stopping() => {
            return Sent::failed(format!("{name} was ended with the server"));
        }
        ProgramEnd::Killed => {
            return Sent::failed(format!(
                "{name} was killed: it ran for longer than {} s",
                patience.as_secs()
            ));
        }
        ProgramEnd::Unknown(error) => {
            return Sent::failed(format!("{name} cannot be waited for: {error}"));
        }
        ProgramEnd::Exited { status, stderr, .. } => (status, stderr),
    };
    if status.success() {
        return Sent::delivered(0, "delivered");
    }
    let said = last_line(&stderr);
    let message = match said.is_empty() {
        true => format!("{name} ended with {status} and said nothing"),
        false => format!("{name} ended with {status}: {said}"),
    };
    Sent {
        status: status.code(),
        ..Sent::failed(message)
    }
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().map(one_line);
    lines.rfind(|line| !line.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn sh(script: &str, patience_ms: u64) -> Sent {
        let command = ["/bin/sh", "-c", script].map(str::to_string);
        let patience = Duration::from_millis(patience_ms);
        run_for(&command, &[], b"fed", &AtomicBool::new(false), patience)
    }

    #[test]
    fn a_program_is_fed_and_how_it_ends_is_how_it_went() {
        assert_eq!(
            sh("test \"$(cat)\" = fed", 5_000),
            Sent::delivered(0, "delivered")
        );
        let failed = sh("echo first >&2; echo 'the reason' >&2; exit 75", 5_000);
        assert_eq!(failed.status, Some(75));
        assert_eq!(
            failed.message,
            "/bin/sh ended with exit status: 75: the reason"
        );
        let silent = sh("exit 1", 5_000).message;
        assert_eq!(silent, "/bin/sh ended with exit status: 1 and said nothing");
        // One that closes its ears may succeed.
        assert!(sh("exec <&-; sleep 0.05; exit 0", 5_000).is_ok);
        let missing = ["/no/such/program".to_string()];
        let missing = run(&missing, &[], b"", &AtomicBool::new(false)).message;
        assert!(
            missing.starts_with("/no/such/program cannot be started: "),
            "{missing}"
        );
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", pid_file.display());
        let sent = sh(&script, 1_000);
        assert_eq!(
            sent.message,
            "/bin/sh was killed: it ran for longer than 1 s"
        );
        let pid = std::fs::read_to_string(pid_file).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        // A process that was killed takes a moment to go.
        let gone = (0..500).any(|_| {
            thread::sleep(Duration::from_millis(10));
            std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
        });
        assert!(gone, "the sleep still runs");
    }

    #[test]
    fn a_server_that_stops_waits_for_no_program() {
        let command = ["/bin/sleep", "600"].map(str::to_string);
        let sent = run(&command, &[], b"", &AtomicBool::new(true));
        assert_eq!(sent.message, "/bin/sleep was ended with the server");
    }

    #[test]
    fn a_program_sees_nothing_of_the_servers_secrets() {
        // Cargo sets it, and it is not among what is passed on.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let sent = sh(
            "test -z \"$CARGO_MANIFEST_DIR\" && test -n \"$PATH\"",
            5_000,
        );
        assert!(sent.is_ok, "{sent:?}");
    }
}
