//! The worker's side of a supervisor: a command that runs below one, and the certainty that nothing of it is left.

use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use rustix::process::{Pid, Signal};

use super::executor::{Invocation, Tools};
use super::marked::{self, MARK, marked};
use super::orphans;
use super::processes::{Process, describe_signal, kill_all};
use super::supervisor::{
    Charge, Report, Said, Stop, StopOrder, WORKER_GROUP_VARIABLE, clean_up, let_settle,
};
use crate::domain::AttemptRef;

/// How a supervised command ended, and all that it had started with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub exit: Exit,
    /// Processes that had to be told to end.
    pub killed: u32,
    /// Processes that cannot be killed: they hang in a device, or are another user's.
    pub left: u32,
    /// What cleaning up met, a sentence each.
    pub unclean: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// Nothing ran; the sentence says why.
    SpawnFailed(String),
    /// Somebody ended the supervisor, so nobody knows how the command itself would have ended.
    Unsupervised(String),
}

#[derive(Debug)]
pub struct Supervised {
    supervisor: UnixStream,
    process: Option<Process>,
    pipes: Option<(OwnedFd, OwnedFd)>,
    end_rx: Receiver<End>,
}

impl Supervised {
    /// Its records, should the worker die, go to `log`.
    pub fn start(
        tools: &Tools,
        invocation: &Invocation,
        attempt: AttemptRef,
        grace_ms: u64,
        log: &Path,
    ) -> io::Result<Supervised> {
        let key = marked::key(&tools.instance_key, attempt);
        let mut env = invocation.env.clone();
        env.insert(MARK.to_string(), key.clone());
        let charge = Charge {
            argv: invocation.argv.clone(),
            env,
            cwd: invocation.cwd.clone(),
            settled: invocation.settled.clone(),
            cleanup: invocation.cleanup.clone(),
            grace_ms,
            log: log.to_path_buf(),
        };
        let (supervisor, theirs) = UnixStream::pair()?;
        let listener = supervisor.try_clone()?;
        let mut command = Command::new(&tools.stepward);
        command
            .arg("supervise")
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // A group of its own, so that no signal to the worker's group reaches the supervisor before it begins a session. The leader of
        // a group cannot begin a session, so the supervisor joins the worker's group again first. It could not do so if that group is
        // outside of the worker's PID namespace, where its number is 0, or if its number cannot be read.
        // The supervisor is told the number, because `/proc` may hide the worker from it.
        if let Some(worker) = Process::own().filter(|worker| worker.group != 0) {
            command.process_group(0);
            command.env(WORKER_GROUP_VARIABLE, worker.group.to_string());
        }
        let mut child = orphans::start_supervisor(&mut command)?;
        // Its end of the socket must be its own alone: it is how its death is noticed.
        drop(command);
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        let process = Process::seen(Pid::from_child(&child));
        let (end_tx, end_rx) = bounded(1);
        let mut charge_line = serde_json::to_vec(&charge)?;
        charge_line.push(b'\n');
        std::thread::Builder::new()
            .name(format!("supervised-{}", attempt.step_id))
            .spawn(move || {
                let said = listen(listener);
                let status = orphans::wait_for_supervisor(child);
                let end = match said.report {
                    Some(report) => end_of(report, said.spawn_failure),
                    None => unsupervised(status, process, &key, &charge),
                };
                // Whoever has let go of it does not want to know.
                let _ = end_tx.send(end);
            })?;
        // If it does not take it, its end is noticed by whoever listens.
        let _ = (&supervisor).write_all(&charge_line);
        Ok(Supervised {
            supervisor,
            process,
            pipes: stdout.zip(stderr),
            end_rx,
        })
    }

    /// What the command prints, on both ways. Once.
    pub fn take_pipes(&mut self) -> (OwnedFd, OwnedFd) {
        self.pipes.take().expect("the pipes are taken once")
    }

    pub fn stop(&self, stop: Stop) {
        let mut line = serde_json::to_vec(&StopOrder { stop }).expect("plain values are JSON");
        line.push(b'\n');
        // If nobody takes it, it has ended already.
        let _ = (&self.supervisor).write_all(&line);
        self.resume();
    }

    /// Whether somebody, such as its step, has made the supervisor stand still: then it hears nothing.
    pub fn is_suspended(&self) -> bool {
        let supervisor = self.process.and_then(|process| process.seen_again());
        supervisor.is_some_and(|supervisor| supervisor.suspended)
    }

    /// Whether a signal such as SIGSTOP has stopped the supervisor, so that it notices nothing, not even the end of its step.
    pub fn is_stopped_by_signal(&self) -> bool {
        let supervisor = self.process.and_then(|process| process.seen_again());
        supervisor.is_some_and(|supervisor| supervisor.stopped_by_signal)
    }

    pub fn resume(&self) {
        if let Some(process) = &self.process {
            process.signal(Signal::CONT);
        }
    }

    /// For a supervisor that does not do as it is told. What it leaves is killed all the same.
    pub fn kill_supervisor(&self) {
        if let Some(process) = &self.process {
            process.signal(Signal::KILL);
        }
    }

    /// Where the end is told, once.
    pub fn end(&self) -> &Receiver<End> {
        &self.end_rx
    }

    pub fn wait(self) -> End {
        let end = self.end_rx.recv();
        end.expect("the thread that attends tells an end")
    }
}

/// Whoever lets go of it ends it, as the worker's death would.
impl Drop for Supervised {
    fn drop(&mut self) {
        // Already closed is what is wanted.
        let _ = self.supervisor.shutdown(Shutdown::Write);
        self.resume();
        // The thread that attends waits on; nobody else needs to for ever.
        let _ = self.end_rx.recv_timeout(Duration::from_secs(10));
    }
}

/// What a supervisor said until it was gone.
#[derive(Default)]
struct LastWords {
    spawn_failure: Option<String>,
    /// `None`: it was ended before it could end its command.
    report: Option<Report>,
}

fn listen(supervisor: UnixStream) -> LastWords {
    let mut said = LastWords::default();
    for line in BufReader::new(supervisor).lines() {
        let Ok(line) = line else { break };
        match serde_json::from_str(&line) {
            Ok(Said::SpawnFailed(sentence)) => said.spawn_failure = Some(sentence),
            Ok(Said::Ended(report)) => {
                said.report = Some(report);
                break;
            }
            Ok(Said::Started) | Err(_) => {}
        }
    }
    said
}

/// Does what the supervisor would have done.
fn unsupervised(
    status: io::Result<ExitStatus>,
    supervisor: Option<Process>,
    key: &str,
    charge: &Charge,
) -> End {
    let living = || {
        let mut living = marked(key);
        living.extend(supervisor.iter().flat_map(orphans::left_by));
        living
    };
    let_settle(charge.settled.as_deref(), || living().is_empty());
    let killed = kill_all(living);
    End {
        exit: Exit::Unsupervised(what_ended_it(status)),
        killed,
        left: 0,
        unclean: clean_up(&charge.cleanup, &charge.env),
    }
}

fn end_of(report: Report, spawn_failure: Option<String>) -> End {
    let exit = match (spawn_failure, report.exit_code, report.signal) {
        (Some(sentence), ..) => Exit::SpawnFailed(sentence),
        (None, Some(code), _) => Exit::Code(code),
        (None, None, signal) => Exit::Signal(signal.unwrap_or(Signal::KILL.as_raw())),
    };
    End {
        exit,
        killed: report.killed,
        left: report.left,
        unclean: report.unclean,
    }
}

fn what_ended_it(status: io::Result<ExitStatus>) -> String {
    let Ok(status) = status else {
        return "its supervisor is gone".to_string();
    };
    match status.signal() {
        Some(signal) => format!("its supervisor was killed by {}", describe_signal(signal)),
        None => format!("its supervisor ended with {status}"),
    }
}
