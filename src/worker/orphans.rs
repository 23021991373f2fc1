//! What a supervisor that was killed leaves behind, found whatever it has done to its environment.
//!
//! The worker is a child subreaper like each of its supervisors, so whoever loses its supervisor becomes a child of the worker.
//! There its session tells it from the worker's own: a supervisor begins a session, whatever is below is in that one or in a
//! later one, and nobody enters the worker's. The commands that the worker starts for itself stay in the worker's session;
//! supervisors are known by their numbers.
//!
//! Only orphans are waited for here: whoever was started here is waited for by who started it.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard};

use rustix::process::{Pid, getpid};

use super::processes::{self, Process};

/// The children of a process are one set for all of its threads, so this is one as well. While it is held no supervisor is
/// being started, and no orphan's number becomes another's.
static SUPERVISORS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn supervisors() -> MutexGuard<'static, Vec<Pid>> {
    SUPERVISORS.lock().expect("no panic while it is held")
}

/// From now on this process is the parent of whoever loses its supervisor.
#[cfg(target_os = "linux")]
pub fn adopt() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(getpid()))?)
}

#[cfg(not(target_os = "linux"))]
pub fn adopt() -> io::Result<()> {
    Ok(())
}

/// Starts a supervisor, which is known as one before anybody could take it for an orphan.
pub fn start_supervisor(command: &mut Command) -> io::Result<Child> {
    let mut supervisors = supervisors();
    let supervisor = command.spawn()?;
    supervisors.push(Pid::from_child(&supervisor));
    Ok(supervisor)
}

/// Waits for the end of a supervisor. Afterwards its number may be anybody's.
pub fn wait_for_supervisor(mut supervisor: Child) -> io::Result<ExitStatus> {
    let pid = Pid::from_child(&supervisor);
    let status = supervisor.wait();
    supervisors().retain(|known| *known != pid);
    status
}

/// Whatever lives of what this supervisor left, once it has ended. Orphans that have ended are buried.
///
/// It may be another's that was killed in the same moment: nobody below a dead supervisor is to live.
pub fn left_by(supervisor: &Process) -> Vec<Process> {
    let Some(this) = Process::seen(getpid()) else {
        return Vec::new();
    };
    let supervisors = supervisors();
    let all = processes::all();
    let is_orphan = |process: &&Process| {
        process.parent == this.pid.as_raw_nonzero().get()
            && process.session != this.session
            && !process.is_older_than(supervisor)
            && !supervisors.contains(&process.pid)
    };
    let mut left = Vec::new();
    for orphan in all.iter().filter(is_orphan) {
        match orphan.ended {
            true => bury(orphan.pid),
            false => left.push(*orphan),
        }
        left.extend(processes::below(&all, orphan.pid));
    }
    left.retain(|process| !process.ended);
    left
}

fn bury(orphan: Pid) {
    use rustix::process::{WaitOptions, waitpid};
    // How it ended is nobody's concern.
    let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
}
