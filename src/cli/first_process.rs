//! The first process of a container or of another process namespace (process id 1).
//!
//! The kernel makes process 1 the parent of every process there that loses its parent, and process 1 has to collect their exit
//! statuses: otherwise they stay as zombies until the container runs out of process ids. No other process can be collected safely
//! by a program that also waits for commands of its own. So process 1 only starts the same command again as its child, passes
//! signals on to it, collects whoever ends, and ends with the exit code of its child. The kernel then ends everything else.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process,
    set_dumpable_behavior, wait,
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

use super::process::is_ignored;
use crate::worker::own_path;

const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
/// Says in the details of a signal that the kernel sent it by itself (`SI_KERNEL`), such as Ctrl-C on a terminal.
const SENT_BY_KERNEL: i32 = 0x80;

type Signals = SignalsInfo<WithRawSiginfo>;

/// Runs this command in a child if this is process 1. `None`: it is not, or no child can be started, so this process runs the command.
pub fn run() -> Option<ExitCode> {
    if !getpid().is_init() {
        return None;
    }
    match start() {
        Ok((child, signals)) => Some(attend(child, signals)),
        Err(error) => {
            eprintln!("stepward: processes that lose their parent stay as zombies: {error}");
            None
        }
    }
}

fn start() -> anyhow::Result<(Pid, Signals)> {
    // A handled signal is reset to its default in the child. An ignored one, as by nohup, has to stay ignored there.
    let handled = FORWARDED.into_iter().filter(|signal| !is_ignored(*signal));
    let signals = Signals::new(handled.chain([SIGCHLD]))?;
    // The environment may hold a token, and steps run as the same user. Without this protection everything works as well.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let mut words = std::env::args_os();
    // By its own path, so that the list of processes shows its name. The other path works even if the file is gone.
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(program.map_or_else(own_path, Ok)?);
    command.arg0(words.next().unwrap_or_else(|| "stepward".into()));
    let child = command.args(words).spawn()?;
    Ok((Pid::from_child(&child), signals))
}

fn attend(child: Pid, mut signals: Signals) -> ExitCode {
    for received in signals.forever() {
        if received.si_signo == SIGCHLD {
            if let Some(status) = collect(child) {
                return exit_code(status);
            }
        } else if received.si_code == SENT_BY_KERNEL {
            // A terminal sends its signals to all processes of the group, so the child has received this one as well.
        } else if let Some(signal) = Signal::from_named_raw(received.si_signo) {
            // The child was not collected yet, so its process id is still its own. If it has ended just now, nobody needs the signal.
            let _ = kill_process(child, signal);
        }
    }
    ExitCode::FAILURE
}

/// Collects every process that has ended. Returns how the child ended, if it did.
fn collect(child: Pid) -> Option<WaitStatus> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == child => return Some(status),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Returns the exit code as a shell reports it: 128 plus the signal number if a signal killed the process.
fn exit_code(status: WaitStatus) -> ExitCode {
    let killed = status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or(killed).unwrap_or(1);
    ExitCode::from(code as u8)
}
