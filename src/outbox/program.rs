//! A program that is fed and waited for, but not for ever: it ends with all that it started.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::header::one_line;
use crate::domain::outbox::Sent;

const PATIENCE: Duration = Duration::from_secs(30);
const NAP_MAX: Duration = Duration::from_millis(100);
const COMPLAINT_BYTES_MAX: u64 = 4 << 10;

/// What of the server's environment a program may see. Secrets are in the rest of it.
const PASSED_ON: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR",
];

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
    let program = &command[0];
    let passed_on = PASSED_ON
        .iter()
        .filter_map(|name| std::env::var_os(name).map(|value| (*name, value)));
    let spawned = Command::new(program)
        .args(&command[1..])
        .env_clear()
        .envs(passed_on)
        .envs(variables.iter().map(|(name, value)| (*name, value)))
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return Sent::failed(format!("{program} cannot be started: {error}")),
    };
    feed(&mut child, input.to_vec());
    let complaint = listen(&mut child);
    let has_ended = await_end(&child, patience, stopping);
    let group = Pid::from_child(&child);
    // Before the child is waited for, so that its number is nobody else's. If nobody is left of the group, all the better.
    let _ = kill_process_group(group, Signal::KILL);
    let ended = child.wait();
    if !has_ended {
        return match stopping.load(Ordering::Relaxed) {
            true => Sent::failed(format!("{program} was ended with the server")),
            false => Sent::failed(format!(
                "{program} was killed: it ran for longer than {} s",
                patience.as_secs()
            )),
        };
    }
    let status = match ended {
        Ok(status) => status,
        Err(error) => return Sent::failed(format!("{program} cannot be waited for: {error}")),
    };
    if status.success() {
        return Sent::delivered(0, "delivered");
    }
    // What it started may hold the pipe open, though it was killed: a moment is enough for what was said.
    let said = complaint.recv_timeout(Duration::from_millis(500));
    let said = said.map_or_else(|_| String::new(), |bytes| last_line(&bytes));
    let message = match said.is_empty() {
        true => format!("{program} ended with {status} and said nothing"),
        false => format!("{program} ended with {status}: {said}"),
    };
    Sent {
        status: status.code(),
        ..Sent::failed(message)
    }
}

fn feed(child: &mut Child, input: Vec<u8>) {
    let mut stdin = child.stdin.take().expect("it is piped");
    thread::spawn(move || {
        // A program that does not want to know is told nothing; how it ends says whether that was right.
        let _ = stdin.write_all(&input);
    });
}

/// What it says on stderr, when it has said everything. The pipe is read to its end, so that nobody hangs on a full one.
fn listen(child: &mut Child) -> Receiver<Vec<u8>> {
    let mut stderr = child.stderr.take().expect("it is piped");
    let (said_tx, said_rx) = bounded(1);
    thread::spawn(move || {
        let mut said = Vec::new();
        // A pipe that breaks has said all it will.
        let _ = (&mut stderr)
            .take(COMPLAINT_BYTES_MAX)
            .read_to_end(&mut said);
        let _ = std::io::copy(&mut stderr, &mut std::io::sink());
        let _ = said_tx.send(said);
    });
    said_rx
}

/// The naps add up to the patience, so no clock is needed. The child stays to be waited for. `false`: it still runs.
fn await_end(child: &Child, patience: Duration, stopping: &AtomicBool) -> bool {
    let pid = Pid::from_child(child);
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let (mut waited, mut nap) = (Duration::ZERO, Duration::from_millis(1));
    loop {
        if let Ok(Some(_)) = waitid(WaitId::Pid(pid), look) {
            return true;
        }
        if waited >= patience || stopping.load(Ordering::Relaxed) {
            return false;
        }
        thread::sleep(nap);
        waited += nap;
        nap = (nap * 2).min(NAP_MAX);
    }
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().map(one_line);
    lines.rfind(|line| !line.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
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
