//! A docker daemon of this program's own, in a folder of its own. No registry and no network: its images are made from a busybox.

use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub const IMAGE: &str = "stepward-test:1";
/// The same, with a command and a working directory of its own.
pub const SPEAKING: &str = "stepward-test:speaking";

static DAEMON: OnceLock<Daemon> = OnceLock::new();

pub fn start() {
    assert!(DAEMON.set(Daemon::start()).is_ok(), "there is one");
}

pub struct Daemon {
    folder: TempDir,
    process: Pid,
}

pub fn daemon() -> &'static Daemon {
    DAEMON.get().expect("it was started")
}

impl Daemon {
    fn start() -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let below = |name: &str| folder.path().join(name).display().to_string();
        let log = std::fs::File::create(below("log")).unwrap();
        // It ends with this program, also when that is killed.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "dockerd", "--storage-driver=vfs"])
            .args(["--iptables=false", "--ip6tables=false", "--bridge=none"])
            .args(["--data-root", &below("data"), "--exec-root", &below("exec")])
            .args(["--pidfile", &below("pid")])
            .args(["--host", &format!("unix://{}", below("socket"))])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        let mut process = process.expect("setpriv (util-linux) is there");
        let daemon = Daemon {
            process: Pid::from_child(&process),
            folder,
        };
        let mut answers = || {
            let ended = process.try_wait().unwrap();
            assert!(ended.is_none(), "dockerd ended: {}", daemon.log());
            daemon.docker(&["version"]).status.success()
        };
        assert!(
            until(60, &mut answers),
            "dockerd is silent: {}",
            daemon.log()
        );
        daemon.import(IMAGE, &[]);
        daemon.import(
            SPEAKING,
            &[
                "CMD [\"sh\",\"-c\",\"echo I speak in $(pwd)\"]",
                "WORKDIR /speech",
            ],
        );
        daemon
    }

    /// An image of one static busybox, which is every command that it is called by.
    fn import(&self, image: &str, changes: &[&str]) {
        let root = self.folder.path().join("root");
        let bin = root.join("bin");
        if !bin.exists() {
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::copy("/bin/busybox", bin.join("busybox")).expect("busybox-static is there");
            for command in [
                "sh", "cat", "echo", "env", "id", "pwd", "sleep", "touch", "awk",
            ] {
                std::os::unix::fs::symlink("busybox", bin.join(command)).unwrap();
            }
        }
        let mut tar = Command::new("tar")
            .args(["--create", "--directory", root.to_str().unwrap(), "."])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let changes = changes.iter().map(|change| format!("--change={change}"));
        let imported = self
            .command()
            .arg("import")
            .args(changes)
            .args(["-", image])
            .stdin(tar.stdout.take().unwrap())
            .output()
            .unwrap();
        assert!(imported.status.success(), "{imported:?}");
        assert!(tar.wait().unwrap().success());
    }

    fn command(&self) -> Command {
        let mut command = Command::new("docker");
        for (name, value) in self.settings() {
            command.env(name, value);
        }
        command
    }

    pub fn settings(&self) -> [(&'static str, String); 2] {
        let folder = self.folder.path().display();
        [
            ("DOCKER_HOST", format!("unix://{folder}/socket")),
            ("DOCKER_CONFIG", format!("{folder}/config")),
        ]
    }

    pub fn docker(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// The states of the containers that bear this worker's mark.
    pub fn containers(&self, instance_key: &str) -> Vec<String> {
        let label = format!("--filter=label=stepward.instance={instance_key}");
        let listed = self.docker(&["ps", "--all", "--format={{.State}}", &label]);
        assert!(listed.status.success(), "{listed:?}");
        let states = String::from_utf8(listed.stdout).unwrap();
        states.lines().map(str::to_string).collect()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// It is told to end, not killed: killed, it would leave its own helpers running.
    pub fn end(&self) {
        kill_process(self.process, Signal::TERM).unwrap();
        let ended = || {
            let status =
                rustix::process::waitpid(Some(self.process), rustix::process::WaitOptions::NOHANG);
            status.map_or(true, |status| status.is_some())
        };
        assert!(until(60, ended), "dockerd does not end: {}", self.log());
        // A static is never dropped. Whatever docker keeps busy in it, the next restart of the machine takes.
        let _ = std::fs::remove_dir_all(self.folder.path());
    }
}

/// What happens in another process cannot be waited for otherwise.
pub fn until(secs: u32, mut happened: impl FnMut() -> bool) -> bool {
    (0..secs * 10).any(|_| {
        let happened = happened();
        if !happened {
            thread::sleep(Duration::from_millis(100));
        }
        happened
    })
}
