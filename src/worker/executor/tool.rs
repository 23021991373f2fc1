//! Asks a command of the operator's something short, such as docker, and never waits for its answer for ever.

use std::fs::{OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};

use crate::domain::limits::clip;

/// What we keep of an answer; the rest is read and dropped, so that the command does not block on it.
const ANSWER_BYTES_MAX: usize = 4 << 20;
const COMPLAINT_BYTES_MAX: usize = 600;
const NAP_MAX: Duration = Duration::from_millis(50);

/// Runs the command in the worker's own environment and answers with what it printed. An error is one sentence.
pub(super) fn ask(argv: &[String], stdin: &[u8], patience: Duration) -> Result<String, String> {
    let (program, arguments) = argv.split_first().expect("a command has a name");
    // A group of its own: a command that is given up goes with whatever it started.
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = spawned.map_err(|error| format!("{program} cannot be started: {error}"))?;
    feed(&mut child, stdin);
    let answer = collect(child.stdout.take());
    let complaint = collect(child.stderr.take());
    let Some(status) = wait(&mut child, patience) else {
        give_up(&mut child);
        let secs = patience.as_secs();
        return Err(format!("{program} did not answer within {secs} s"));
    };
    if status.success() {
        return Ok(text_of(&answer));
    }
    Err(match last_line(&text_of(&complaint)) {
        Some(line) => format!("{program} said: {line}"),
        None => format!("{program} ended with {status} and said nothing"),
    })
}

fn feed(child: &mut Child, bytes: &[u8]) {
    let mut pipe = child.stdin.take().expect("it is piped");
    let bytes = bytes.to_vec();
    thread::spawn(move || {
        // A command that does not read to the end says why by its exit.
        let _ = pipe.write_all(&bytes);
    });
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let mut pipe = pipe.expect("it is piped");
    let (chunk_tx, chunk_rx) = unbounded();
    thread::spawn(move || {
        let mut chunk = vec![0; 64 << 10];
        let mut kept = 0;
        // A pipe that breaks has said all it will.
        while let Ok(count @ 1..) = pipe.read(&mut chunk) {
            let room = ANSWER_BYTES_MAX - kept;
            kept += count.min(room);
            // Nobody listens any more once the command was given up.
            let _ = chunk_tx.send(chunk[..count.min(room)].to_vec());
        }
    });
    chunk_rx
}

/// All that an ended command printed. What it left running may hold the pipe open: a silence is an end as well.
fn text_of(chunks: &Receiver<Vec<u8>>) -> String {
    let mut bytes = Vec::new();
    while let Ok(chunk) = chunks.recv_timeout(Duration::from_millis(500)) {
        bytes.extend(chunk);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The naps add up to the patience, so no clock is needed. `None`: it still runs.
fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let (mut waited, mut nap) = (Duration::ZERO, Duration::from_millis(2));
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if waited >= patience {
            return None;
        }
        thread::sleep(nap);
        waited += nap;
        nap = (nap * 2).min(NAP_MAX);
    }
}

fn give_up(child: &mut Child) {
    let group = rustix::process::Pid::from_child(child);
    // It may have ended just now; then there is nobody to kill, and the wait returns at once.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.kill();
    let _ = child.wait();
}

/// Tools explain themselves in their last line that is not a hint at their help.
fn last_line(complaint: &str) -> Option<String> {
    let lines = complaint.lines().map(str::trim);
    let mut said = lines.filter(|line| {
        let hint = line.starts_with("Run '") || line.starts_with("See '");
        !line.is_empty() && !hint
    });
    Some(clip(said.next_back()?, COMPLAINT_BYTES_MAX))
}

/// Writes a file for a tool. Until it is whole nobody else may read it.
pub(super) fn write(path: &Path, mode: u32, bytes: &[u8]) -> Result<(), String> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let written = options.mode(mode & 0o700).open(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.set_permissions(Permissions::from_mode(mode))
    });
    written.map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

/// A command line from words of ours and of others.
pub(super) fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_string).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, patience_ms: u64) -> Result<String, String> {
        let argv = words(["sh", "-c", script]);
        ask(&argv, b"fed", Duration::from_millis(patience_ms))
    }

    #[test]
    fn a_command_is_fed_and_answers() {
        assert_eq!(
            sh("cat; echo ' and done'", 5_000).unwrap(),
            "fed and done\n"
        );
    }

    #[test]
    fn a_command_that_fails_is_quoted() {
        let said = sh("echo first >&2; echo 'the reason' >&2; exit 3", 5_000);
        assert_eq!(said.unwrap_err(), "sh said: the reason");
        let silent = sh("exit 3", 5_000).unwrap_err();
        assert_eq!(silent, "sh ended with exit status: 3 and said nothing");
        let hint = sh(
            "echo why >&2; echo >&2; echo \"Run 'x --help'\" >&2; exit 1",
            5_000,
        );
        assert_eq!(hint.unwrap_err(), "sh said: why");
        let missing = ask(&words(["/no/such/tool"]), b"", NAP_MAX).unwrap_err();
        assert!(
            missing.starts_with("/no/such/tool cannot be started: "),
            "{missing}"
        );
    }

    #[test]
    fn a_command_that_hangs_is_given_up_with_all_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", pid_file.display());
        assert_eq!(
            sh(&script, 1_000).unwrap_err(),
            "sh did not answer within 1 s"
        );
        let pid = std::fs::read_to_string(pid_file).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        // A process that was killed takes a moment to go.
        let gone = (0..500).any(|_| {
            thread::sleep(Duration::from_millis(10));
            std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
        });
        assert!(gone, "the sleep of a command that was given up still runs");
    }

    #[test]
    fn an_answer_without_end_is_cut_and_does_not_block() {
        let answer = sh("head -c 6000000 /dev/zero", 20_000).unwrap();
        assert_eq!(answer.len(), 4 << 20);
    }

    #[test]
    fn what_a_command_leaves_running_does_not_hold_us() {
        let answer = sh("sleep 30 & echo $!", 20_000).unwrap();
        let pid = rustix::process::Pid::from_raw(answer.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}
