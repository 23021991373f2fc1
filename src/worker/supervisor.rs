//! The small parent of each attempt: this binary once more, as `stepward supervise`. It starts the step, and when the step
//! ends, when the worker says so, or when the worker is dead, it kills whatever is below it until nothing is.
//!
//! It is a child subreaper: who loses its parent, by a double fork or `setsid`, becomes its child. So "no children" means
//! that nothing of the step is left. It hears from the worker over a socket that no step has; its end of file is the
//! worker's death, however it died. It opens nothing, and knows nothing of servers, jobs or settings.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitStatus, getpid, waitid};
use serde::{Deserialize, Serialize};

use super::descriptors;
use super::marked::MARK;
use super::processes::count;
use super::tree::Tree;
use crate::clock::wall_time;
use crate::domain::limits::clip;
use crate::domain::log::{LogRecord, LogStream};

/// Between two looks for orphans that have ended while the step runs.
const REAP_EVERY: Duration = Duration::from_secs(1);
/// What a step leaves behind may still end by itself: `tee` at the end of its log, for instance.
const LULL: Duration = Duration::from_millis(100);
/// How long a command may be in the middle of making something before it is killed all the same.
const SETTLE_MAX: Duration = Duration::from_secs(10);
const CLEANUP_MAX: Duration = Duration::from_secs(30);
const WORDS_BYTES_MAX: usize = 300;
/// Far more than a command line may be.
const ORDER_BYTES_MAX: u64 = 64 << 20;

/// The variable that tells a supervisor the process group of its worker. The step does not inherit it.
pub(super) const WORKER_GROUP_VARIABLE: &str = "STEPWARD_GROUP_OF_WORKER";

/// The first line that the worker says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Charge {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
    pub settled: Option<PathBuf>,
    pub cleanup: Vec<Vec<String>>,
    pub grace_ms: u64,
    pub log: PathBuf,
}

/// Every other line that it may say.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StopOrder {
    pub stop: Stop,
}

/// How a step is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It is asked, and killed if it has not ended within the grace.
    Gently,
    AtOnce,
}

/// The lines that the worker hears.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    Started,
    SpawnFailed(String),
    Ended(Report),
}

/// The last line.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// One of the two, unless it could not be started.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub killed: u32,
    pub left: u32,
    /// What cleaning up met, a sentence each.
    pub unclean: Vec<String>,
}

enum Heard {
    StepEnded,
    Stop(Stop),
    WorkerDied,
}

/// `stepward supervise`.
pub fn supervise() -> ExitCode {
    match Supervisor::new() {
        Ok((supervisor, pipes)) => supervisor.run(pipes),
        Err(error) => {
            eprintln!("stepward: {error}");
            ExitCode::from(1)
        }
    }
}

struct Supervisor {
    worker: UnixStream,
    heard_tx: Sender<Heard>,
    heard_rx: Receiver<Heard>,
    charge: Charge,
}

/// Where the step prints. Nobody but the step may hold them: whoever reads would wait for the others as well.
struct Pipes {
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Supervisor {
    fn new() -> io::Result<(Supervisor, Pipes)> {
        let kind = rustix::fs::fstat(io::stdin())?.st_mode;
        if rustix::fs::FileType::from_raw_mode(kind) != rustix::fs::FileType::Socket {
            let why = "supervise is how a worker starts a step, nothing for people to type";
            return Err(io::Error::other(why));
        }
        outlive_the_worker()?;
        descriptors::keep_from_steps()?;
        // Its own ends of everything: the step gets its pipes, and never the socket.
        let worker = UnixStream::from(own(io::stdin())?);
        let stdout = own(io::stdout())?;
        let stderr = own(io::stderr())?;
        let nothing = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        rustix::stdio::dup2_stdout(&nothing)?;
        rustix::stdio::dup2_stderr(&nothing)?;

        let mut lines = BufReader::new(worker.try_clone()?);
        let mut line = String::new();
        (&mut lines).take(ORDER_BYTES_MAX).read_line(&mut line)?;
        let charge = serde_json::from_str(&line)?;
        let (heard_tx, heard_rx) = unbounded();
        let orders_tx = heard_tx.clone();
        std::thread::Builder::new()
            .name("orders".to_string())
            .spawn(move || listen(lines, &orders_tx))?;
        let supervisor = Supervisor {
            worker,
            heard_tx,
            heard_rx,
            charge,
        };
        Ok((supervisor, Pipes { stdout, stderr }))
    }

    fn run(self, pipes: Pipes) -> ExitCode {
        let step = self.spawn(pipes);
        let mut report = match step {
            Ok(step) => {
                self.say(&Said::Started);
                self.attend(step)
            }
            Err(sentence) => {
                self.say(&Said::SpawnFailed(sentence));
                Report::default()
            }
        };
        let death = format!("the worker died: {}", remains(report.killed, report.left));
        let is_alone = self.worker_has_died();
        if is_alone {
            self.note_in_log(&death);
        }
        report.unclean = self.clean_up();
        let unclean = report.unclean.clone();
        let is_heard = self.say(&Said::Ended(report));
        if !is_heard && !is_alone {
            self.note_in_log(&death);
        }
        for why in unclean.iter().filter(|_| !is_heard) {
            self.note_in_log(&not_cleaned_up(why));
        }
        ExitCode::SUCCESS
    }

    fn spawn(&self, pipes: Pipes) -> Result<Child, String> {
        let charge = &self.charge;
        let Some((program, arguments)) = charge.argv.split_first() else {
            return Err("there is nothing to run".to_string());
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(&charge.env)
            .current_dir(&charge.cwd)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(pipes.stdout)
            .stderr(pipes.stderr);
        let spawned = spawn_when_written(&mut command);
        spawned.map_err(|error| why_not(program, &charge.cwd, &error))
    }

    /// From the step's start to the end of everything below.
    fn attend(&self, step: Child) -> Report {
        let pid = Pid::from_child(&step);
        let mut tree = Tree::new(pid);
        let ended_tx = self.heard_tx.clone();
        let waiter = std::thread::Builder::new().name("waiter".to_string());
        // Without this thread the step's end is noticed a little later.
        let _ = waiter.spawn(move || {
            // Only a look: until the step is reaped, its number and its group stay its own.
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while waitid(WaitId::Pid(pid), look).is_err_and(|error| error == Errno::INTR) {}
            // Nobody listens any more if everything has ended.
            let _ = ended_tx.send(Heard::StepEnded);
        });

        let ending = self.next_ending(&mut tree);
        if !matches!(ending, Heard::StepEnded) {
            let_settle(self.charge.settled.as_deref(), || tree.reap());
        }
        match ending {
            Heard::StepEnded => tree.wait_for_end(LULL, || false),
            Heard::Stop(Stop::Gently) => {
                tree.ask_to_end();
                let grace = Duration::from_millis(self.charge.grace_ms);
                tree.wait_for_end(grace, || self.is_urgent());
            }
            Heard::Stop(Stop::AtOnce) | Heard::WorkerDied => {}
        }
        let left = tree.kill();
        Report {
            exit_code: tree.status.and_then(WaitStatus::exit_status),
            signal: match tree.status {
                Some(status) => status.terminating_signal(),
                None => Some(Signal::KILL.as_raw()),
            },
            killed: tree.killed(),
            left,
            unclean: Vec::new(),
        }
    }

    fn next_ending(&self, tree: &mut Tree) -> Heard {
        loop {
            match self.heard_rx.recv_timeout(REAP_EVERY) {
                Ok(ending) => return ending,
                Err(RecvTimeoutError::Timeout) => {
                    tree.reap();
                    if tree.status.is_some() {
                        return Heard::StepEnded;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Heard::WorkerDied,
            }
        }
    }

    /// Whether somebody cannot wait for the grace to be over.
    fn is_urgent(&self) -> bool {
        self.heard_rx.try_iter().any(|heard| match heard {
            Heard::WorkerDied | Heard::Stop(Stop::AtOnce) => true,
            Heard::StepEnded | Heard::Stop(Stop::Gently) => false,
        })
    }

    /// Asks the socket itself: what was heard of it may have been passed over in the ending.
    fn worker_has_died(&self) -> bool {
        let mut byte = [0];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.worker, &mut byte, flags) {
            Ok((_, length)) => length == 0,
            Err(error) => error != Errno::AGAIN,
        }
    }

    /// `false`: nobody is there to hear it.
    fn say(&self, said: &Said) -> bool {
        let mut line = serde_json::to_vec(said).expect("plain values are JSON");
        line.push(b'\n');
        (&self.worker).write_all(&line).is_ok()
    }

    fn clean_up(&self) -> Vec<String> {
        let charge = &self.charge;
        let troubles = clean_up(&charge.cleanup, &charge.env);
        // What the commands have left themselves, and who has no number to wait for.
        Tree::new(getpid()).kill();
        troubles
    }

    fn note_in_log(&self, text: &str) {
        let record = LogRecord {
            at: wall_time(),
            stream: LogStream::Worker,
            continues: false,
            text: text.as_bytes(),
        };
        // A log that is gone or full has nobody left to read it.
        let _ = append(&self.charge.log, &record);
    }
}

/// `3 processes were killed, none is left`.
pub(super) fn remains(killed: u32, left: u32) -> String {
    let killed = match killed {
        1 => "1 process was killed".to_string(),
        n => format!("{} were killed", count(n)),
    };
    match left {
        0 => format!("{killed}, none is left"),
        n => format!("{killed}, {n} cannot be killed: they hang in a device or are another user's"),
    }
}

/// For the log.
pub(super) fn not_cleaned_up(why: &str) -> String {
    format!("not cleaned up: {why}")
}

/// Waits for the moment from which a command may be killed: a file that is not empty. Or for its end.
pub(super) fn let_settle(settled: Option<&Path>, mut has_ended: impl FnMut() -> bool) {
    let Some(file) = settled else { return };
    let begun = Instant::now();
    let is_settled = || file.metadata().is_ok_and(|file| file.len() > 0);
    while !is_settled() && !has_ended() && begun.elapsed() < SETTLE_MAX {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs commands one after the other, each within its time, whatever they print. Says what went wrong with them.
pub(super) fn clean_up(commands: &[Vec<String>], env: &BTreeMap<String, String>) -> Vec<String> {
    let mut troubles = Vec::new();
    for argv in commands {
        let Some((program, arguments)) = argv.split_first() else {
            continue;
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(env)
            // Whoever kills what a former life of the worker left must not end the cleaning up.
            .env_remove(MARK)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let ended = command.spawn().and_then(|mut child| {
            let last_words = last_words(child.stderr.take());
            let status = wait_within(child, CLEANUP_MAX)?;
            Ok((status, last_words))
        });
        let secs = CLEANUP_MAX.as_secs();
        let trouble = match ended {
            Ok((Some(status), _)) if status.success() => continue,
            // What it has left running may hold the pipe open: then there are no words.
            Ok((Some(status), words)) => match words.recv_timeout(LULL) {
                Ok(words) if !words.is_empty() => format!("{status}: {words}"),
                _ => status.to_string(),
            },
            Ok((None, _)) => format!("it took longer than {secs} s and was killed"),
            Err(error) => error.to_string(),
        };
        troubles.push(format!("{}: {trouble}", argv.join(" ")));
    }
    troubles
}

/// `None`: it did not end in time, and was killed.
fn wait_within(mut child: Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // It may have ended in this moment; either way it is waited for.
    let _ = child.kill();
    let _ = child.wait();
    Ok(None)
}

/// The last line that comes, once no more does. Whatever comes is taken, so that nobody has to wait for us.
fn last_words(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (words_tx, words_rx) = unbounded();
    // Without the thread there are no words.
    let _ = std::thread::Builder::new().spawn(move || {
        let Some(mut pipe) = pipe else { return };
        let (mut tail, mut chunk) = (Vec::new(), [0; 4 << 10]);
        // A pipe that breaks has said all it will.
        while let Ok(count @ 1..) = pipe.read(&mut chunk) {
            tail.extend_from_slice(&chunk[..count]);
            tail.drain(..tail.len().saturating_sub(chunk.len()));
        }
        let text = String::from_utf8_lossy(&tail);
        let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        // Nobody listens any more if it took too long.
        let _ = words_tx.send(clip(last.unwrap_or_default(), WORDS_BYTES_MAX));
    });
    words_rx
}

fn listen(lines: BufReader<UnixStream>, heard_tx: &Sender<Heard>) {
    for line in lines.lines() {
        let Ok(line) = line else { break };
        // A line that is no order is from another version of the worker, and cannot be followed.
        if let Ok(order) = serde_json::from_str::<StopOrder>(&line)
            && heard_tx.send(Heard::Stop(order.stop)).is_err()
        {
            return;
        }
    }
    // Nobody listens any more if everything has ended.
    let _ = heard_tx.send(Heard::WorkerDied);
}

/// What is meant for the worker, or for the terminal that it was started from, must not reach the supervisor: it goes when
/// the worker says so, or is gone.
#[cfg(target_os = "linux")]
fn outlive_the_worker() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    use rustix::process::{Resource, Rlimit, setpgid};
    // A handler and not "ignore": the step would inherit the latter.
    ctrlc::set_handler(|| {}).map_err(io::Error::other)?;
    // In a session of its own a step has no terminal, where it would wait for ever for a password, and whatever it leaves behind is
    // told from the worker's own processes. The leader of a group cannot begin a session, so it joins the worker's group first.
    if rustix::process::setsid().is_err() {
        let group = std::env::var(WORKER_GROUP_VARIABLE).ok();
        let group = group.and_then(|group| Pid::from_raw(group.parse().ok()?));
        if let Some(group) = group {
            setpgid(None, Some(group))?;
        }
        rustix::process::setsid()?;
    }
    rustix::process::set_child_subreaper(Some(getpid()))?;
    // The step runs as the same user: this keeps its hands off the socket. It is a bonus where the kernel grants it.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // Nice to have: no core dumps, and as many descriptors as programs expect, also below a server that took all it could.
    for (resource, most) in [(Resource::Core, 0), (Resource::Nofile, 1_024)] {
        let limit = rustix::process::getrlimit(resource);
        let lowered = Rlimit {
            current: Some(limit.current.map_or(most, |current| current.min(most))),
            ..limit
        };
        let _ = rustix::process::setrlimit(resource, lowered);
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn outlive_the_worker() -> io::Result<()> {
    let why = "steps run on Linux only: elsewhere their processes could not be ended for certain";
    Err(io::Error::other(why))
}

fn own(end: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(end, 3)?)
}

/// A script that was just written may still be open for writing in a child of the worker that has not yet become another
/// program; that passes.
fn spawn_when_written(command: &mut Command) -> io::Result<Child> {
    let begun = Instant::now();
    loop {
        match command.spawn() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && begun.elapsed() < Duration::from_secs(2) =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            spawned => return spawned,
        }
    }
}

fn why_not(program: &str, cwd: &Path, error: &io::Error) -> String {
    match error.kind() {
        _ if !cwd.is_dir() => format!("the working directory {} does not exist", cwd.display()),
        io::ErrorKind::NotFound => match first_line(program) {
            Some(line) if line.starts_with("#!") => {
                format!("the program that the script's first line names does not exist: {line}")
            }
            _ => format!("{program} was not found on this worker"),
        },
        io::ErrorKind::PermissionDenied => {
            format!("{program} may not be executed by the worker's user: {error}")
        }
        io::ErrorKind::ArgumentListTooLong => {
            "its arguments and its environment are more than the system hands to a program"
                .to_string()
        }
        _ => format!("{program}: {error}"),
    }
}

fn first_line(program: &str) -> Option<String> {
    let mut start = Vec::new();
    let file = File::open(program).ok()?;
    file.take(256).read_to_end(&mut start).ok()?;
    let line = start.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

/// On a line of its own, also after a record that was cut off.
fn append(log: &Path, record: &LogRecord) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).append(true).open(log)?;
    let mut bytes = Vec::new();
    if file.metadata()?.len() > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != [b'\n'] {
            bytes.push(b'\n');
        }
    }
    record.write(&mut bytes);
    file.write_all(&bytes)
}
