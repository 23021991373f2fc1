//! A program that the server runs and waits for. It ends together with everything that it started.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

const POLL_INTERVAL_MAX: Duration = Duration::from_millis(100);
const STDERR_BYTES_MAX: u64 = 4 << 10;
/// How long to wait for the rest of stderr after the program has ended. A process that it started may still hold the pipe open.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);

/// The variables of the server's environment that a program may see. The others may hold secrets.
const PASSED_ON: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR",
];

pub struct Program<'a> {
    /// The program and its arguments. No shell reads them.
    pub words: &'a [String],
    /// Added to the environment.
    pub variables: &'a [(&'a str, String)],
    pub stdin: Input,
    pub stdout: Stdio,
}

pub enum Input {
    Bytes(Vec<u8>),
    File(std::fs::File),
}

pub enum ProgramEnd {
    NotStarted(io::Error),
    /// The caller did not want to wait any longer, so the program was killed.
    Killed,
    /// The program ended, and its exit status could not be read.
    Unknown(io::Error),
    Exited {
        status: ExitStatus,
        /// The beginning of what it wrote to stderr. Empty if it succeeded.
        stderr: Vec<u8>,
    },
}

/// Runs a program in the folder `/` until it ends, or until `keep_waiting` says no. That is asked again and again with the time
/// that was waited so far.
pub fn run(program: Program, keep_waiting: &mut dyn FnMut(Duration) -> bool) -> ProgramEnd {
    let passed_on = PASSED_ON
        .iter()
        .filter_map(|name| std::env::var_os(name).map(|value| (*name, value)));
    let (stdin, input) = match program.stdin {
        Input::Bytes(bytes) => (Stdio::piped(), Some(bytes)),
        Input::File(file) => (Stdio::from(file), None),
    };
    let spawned = Command::new(&program.words[0])
        .args(&program.words[1..])
        .env_clear()
        .envs(passed_on)
        .envs(program.variables.iter().map(|(name, value)| (*name, value)))
        .current_dir("/")
        .stdin(stdin)
        .stdout(program.stdout)
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return ProgramEnd::NotStarted(error),
    };
    if let Some(input) = input {
        feed(&mut child, input);
    }
    let stderr = listen(&mut child);
    let has_ended = await_end(&child, keep_waiting);
    let group = Pid::from_child(&child);
    // Before the child is waited for, so that its number is nobody else's. If nobody is left of the group, all the better.
    let _ = kill_process_group(group, Signal::KILL);
    let ended = child.wait();
    if !has_ended {
        return ProgramEnd::Killed;
    }
    match ended {
        Ok(status) if status.success() => ProgramEnd::Exited {
            status,
            stderr: Vec::new(),
        },
        Ok(status) => ProgramEnd::Exited {
            status,
            stderr: stderr.recv_timeout(STDERR_TIMEOUT).unwrap_or_default(),
        },
        Err(error) => ProgramEnd::Unknown(error),
    }
}

fn feed(child: &mut Child, input: Vec<u8>) {
    let mut stdin = child.stdin.take().expect("it is piped");
    thread::spawn(move || {
        // A program that does not want to know is told nothing; how it ends says whether that was right.
        let _ = stdin.write_all(&input);
    });
}

/// Collects everything that the program writes to stderr. The pipe is read to its end, so that the program never blocks on a full one.
fn listen(child: &mut Child) -> Receiver<Vec<u8>> {
    let mut stderr = child.stderr.take().expect("it is piped");
    let (said_tx, said_rx) = bounded(1);
    thread::spawn(move || {
        let mut said = Vec::new();
        // A pipe that breaks has said all it will.
        let _ = (&mut stderr).take(STDERR_BYTES_MAX).read_to_end(&mut said);
        let _ = io::copy(&mut stderr, &mut io::sink());
        let _ = said_tx.send(said);
    });
    said_rx
}

/// The naps add up to the time that was waited, so no clock is needed. The child stays to be waited for. `false`: it still runs.
fn await_end(child: &Child, keep_waiting: &mut dyn FnMut(Duration) -> bool) -> bool {
    let pid = Pid::from_child(child);
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let (mut waited, mut nap) = (Duration::ZERO, Duration::from_millis(1));
    loop {
        if let Ok(Some(_)) = waitid(WaitId::Pid(pid), look) {
            return true;
        }
        if !keep_waiting(waited) {
            return false;
        }
        thread::sleep(nap);
        waited += nap;
        nap = (nap * 2).min(POLL_INTERVAL_MAX);
    }
}
