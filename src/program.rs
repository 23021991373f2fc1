//! A program that the server runs and waits for. It ends together with everything that it started.

use std::fmt;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

const POLL_INTERVAL_MAX: Duration = Duration::from_millis(100);
const STDERR_BYTES_MAX: u64 = 4 << 10;
/// How long to wait for the rest of stderr after the program has ended. A process that it started may still hold the pipe open.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);
const FEED_BYTES: usize = 64 << 10;
/// How long the thread that feeds a program waits for room in the pipe before it looks whether the program has ended.
const FEED_POLL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

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
    /// The program may end without reading these bytes.
    Bytes(Vec<u8>),
    /// From its current position. The program has to read the file to its end.
    File(File),
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
        /// Whether the program has read all of an `Input::File`.
        fed: Result<(), FeedError>,
    },
}

/// Why a program has not got all of its input.
#[derive(Debug)]
pub enum FeedError {
    /// The program ended before it had read everything.
    Unread,
    /// The input could not be read, or the pipe could not be written.
    Io(io::Error),
}

impl fmt::Display for FeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FeedError::Unread => f.write_str("it ended before it had read all of its input"),
            FeedError::Io(error) => write!(f, "its input could not be sent: {error}"),
        }
    }
}

/// Sends a file through a pipe to the stdin of a program, and knows whether the program has read all of it.
///
/// A program whose stdin is the file itself could stop reading at any place and nobody would know.
pub struct Feeder {
    file: File,
    writer: PipeWriter,
    /// Kept to see whether anything is left in the pipe when the program has ended.
    reader: PipeReader,
}

/// A feeder at work.
pub struct Feeding {
    thread: JoinHandle<io::Result<()>>,
    reader: PipeReader,
    has_ended: Arc<AtomicBool>,
}

impl Feeder {
    /// Returns the feeder and the stdin for the program.
    pub fn new(file: File) -> io::Result<(Feeder, Stdio)> {
        let (reader, writer) = io::pipe()?;
        // Only this end: the program reads the other one as it is used to.
        fcntl_setfl(&writer, fcntl_getfl(&writer)? | OFlags::NONBLOCK)?;
        let stdin = Stdio::from(reader.try_clone()?);
        let feeder = Feeder {
            file,
            writer,
            reader,
        };
        Ok((feeder, stdin))
    }

    /// Begins to send the file, once the program was started.
    pub fn start(mut self) -> Feeding {
        let has_ended = Arc::new(AtomicBool::new(false));
        let seen = has_ended.clone();
        let thread = thread::spawn(move || copy(&mut self.file, self.writer, &seen));
        Feeding {
            thread,
            reader: self.reader,
            has_ended,
        }
    }
}

/// Copies until the file ends, nobody can read the pipe any more, or the program has ended. A process that the program started may
/// hold the pipe open without reading it, so the end of the readers alone is not enough.
fn copy(file: &mut File, mut writer: PipeWriter, has_ended: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; FEED_BYTES];
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut left = &buffer[..read];
        while !left.is_empty() {
            if has_ended.load(Ordering::Acquire) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match writer.write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Whether there is room or not is told by the next write.
                    let _ = poll(
                        &mut [PollFd::new(&writer, PollFlags::OUT)],
                        Some(&FEED_POLL),
                    );
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Feeding {
    /// Says whether the program has read everything. To be called when the program has ended.
    pub fn finish(self) -> Result<(), FeedError> {
        // Either the pipe has something left, or it gets more from the thread, or the thread has closed it and everything was read.
        let left = (&self.reader).read(&mut [0]);
        self.has_ended.store(true, Ordering::Release);
        drop(self.reader);
        let sent = self.thread.join().expect("copying does not panic");
        match (left, sent) {
            (Ok(0), Ok(_)) => Ok(()),
            (Ok(0), Err(error)) | (Err(error), _) => Err(FeedError::Io(error)),
            (Ok(_), _) => Err(FeedError::Unread),
        }
    }
}

/// Says whether `run` finds this program and may run it: else `NotFound` or `PermissionDenied`.
pub fn check(program: &str) -> Result<(), io::ErrorKind> {
    let is_executable = |file: &Path| {
        let is_file = file.metadata().is_ok_and(|found| found.is_file());
        is_file && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
    };
    let candidates: Vec<PathBuf> = match program.contains('/') {
        true => vec![Path::new("/").join(program)],
        false => {
            let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
            let folders = std::env::split_paths(&path);
            folders
                .map(|folder| Path::new("/").join(folder).join(program))
                .collect()
        }
    };
    match candidates.iter().any(|file| is_executable(file)) {
        true => Ok(()),
        false if candidates.iter().any(|file| file.exists()) => {
            Err(io::ErrorKind::PermissionDenied)
        }
        false => Err(io::ErrorKind::NotFound),
    }
}

/// Runs a program in the folder `/` until it ends, or until `keep_waiting` says no. That is asked again and again with the time
/// that was waited so far.
pub fn run(program: Program, keep_waiting: &mut dyn FnMut(Duration) -> bool) -> ProgramEnd {
    let passed_on = PASSED_ON
        .iter()
        .filter_map(|name| std::env::var_os(name).map(|value| (*name, value)));
    let (stdin, input, feeder) = match program.stdin {
        Input::Bytes(bytes) => (Stdio::piped(), Some(bytes), None),
        Input::File(file) => match Feeder::new(file) {
            Ok((feeder, stdin)) => (stdin, None, Some(feeder)),
            Err(error) => return ProgramEnd::NotStarted(error),
        },
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
    let feeding = feeder.map(Feeder::start);
    let stderr = listen(&mut child);
    let has_ended = await_end(&child, keep_waiting);
    let group = Pid::from_child(&child);
    // Kill the group before reaping the child: until then its process id cannot be reused. The group may be empty already.
    let _ = kill_process_group(group, Signal::KILL);
    let ended = child.wait();
    let fed = feeding.map_or(Ok(()), Feeding::finish);
    if !has_ended {
        return ProgramEnd::Killed;
    }
    match ended {
        Ok(status) if status.success() => ProgramEnd::Exited {
            status,
            stderr: Vec::new(),
            fed,
        },
        Ok(status) => ProgramEnd::Exited {
            status,
            stderr: stderr.recv_timeout(STDERR_TIMEOUT).unwrap_or_default(),
            fed,
        },
        Err(error) => ProgramEnd::Unknown(error),
    }
}

fn feed(child: &mut Child, input: Vec<u8>) {
    let mut stdin = child.stdin.take().expect("it is piped");
    thread::spawn(move || {
        // A program may ignore its input; its exit status decides.
        let _ = stdin.write_all(&input);
    });
}

/// Collects everything that the program writes to stderr. The pipe is read to its end, so that the program never blocks on a full one.
fn listen(child: &mut Child) -> Receiver<Vec<u8>> {
    let mut stderr = child.stderr.take().expect("it is piped");
    let (said_tx, said_rx) = bounded(1);
    thread::spawn(move || {
        let mut said = Vec::new();
        // If the pipe breaks, keep what was read.
        let _ = (&mut stderr).take(STDERR_BYTES_MAX).read_to_end(&mut said);
        let _ = io::copy(&mut stderr, &mut io::sink());
        let _ = said_tx.send(said);
    });
    said_rx
}

/// Waits until the child has ended, without reaping it. Returns false if `keep_waiting` said no. Adds up the sleeps instead of
/// reading a clock.
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Seek;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn fed(script: &str, bytes: usize) -> (bool, Result<(), FeedError>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'.'; bytes]).unwrap();
        file.rewind().unwrap();
        let words = ["sh", "-c", script].map(str::to_string);
        let program = Program {
            words: &words,
            variables: &[],
            stdin: Input::File(file),
            stdout: Stdio::null(),
        };
        match run(program, &mut |_| true) {
            ProgramEnd::Exited { status, fed, .. } => (status.success(), fed),
            _ => panic!("{script}: it was not run to its end"),
        }
    }

    /// One size fits into the buffer of a pipe, the other does not.
    const SIZES: [usize; 2] = [10_000, 1_000_000];

    #[test]
    fn a_program_that_reads_a_part_has_not_got_its_input() {
        for bytes in SIZES {
            for script in ["head -c 100", "exec <&-; sleep 0.1", "exit 0"] {
                let (is_success, fed) = fed(script, bytes);
                assert!(is_success, "{script}");
                assert!(matches!(fed, Err(FeedError::Unread)), "{script}: {fed:?}");
            }
        }
    }

    #[test]
    fn a_program_may_read_its_input_in_any_way() {
        for bytes in SIZES {
            for script in ["cat", "cat /dev/stdin", "cat | cat", "sleep 0.1; cat"] {
                let (is_success, fed) = fed(script, bytes);
                assert!(is_success && fed.is_ok(), "{script}: {fed:?}");
            }
        }
    }

    /// The process that keeps stdin open is in another session, so it is not killed with the program.
    #[test]
    fn a_process_that_keeps_stdin_open_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        let script = format!(
            "exec 3<&0; setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600' <&3 >/dev/null 2>&1 & \
             while ! test -e {0}; do sleep 0.01; done; exit 1",
            pid_file.display()
        );
        let (is_success, fed) = fed(&script, 1_000_000);
        assert!(
            !is_success && matches!(fed, Err(FeedError::Unread)),
            "{fed:?}"
        );
        let pid: i32 = fs::read_to_string(pid_file)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).expect("it still held stdin");
    }

    #[test]
    fn a_program_that_cannot_run_is_known_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("program");
        let name = file.to_str().unwrap();
        assert_eq!(check("sh"), Ok(()));
        assert_eq!(check("bin/sh"), Ok(()));
        assert_eq!(check("no-such-program"), Err(io::ErrorKind::NotFound));
        assert_eq!(check(name), Err(io::ErrorKind::NotFound));
        std::fs::write(&file, "#!/bin/sh").unwrap();
        assert_eq!(check(name), Err(io::ErrorKind::PermissionDenied));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(check(name), Ok(()));
    }
}
