//! Where the demo plays: a temporary folder, a server and its workers as processes. Nothing of it is left when it is dropped.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow};
use crossbeam_channel::Receiver;
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::cli::announce;
use crate::cli::exit::{Exit, Fault};
use crate::cli::local::{new_token, write_secret};
use crate::cli::process::ENDS_WITH;
use crate::cli::reach::{NamedBy, Remote};
use crate::clock::monotonic_ms;
use crate::config::{Recovery, ServerConfig};
use crate::temporary::TemporaryFolder;
use crate::wire::api::{Health, List, WorkerJson};
use crate::worker::{orphans, own_path, processes};

const TASKS: &str = include_str!("tasks.yaml");

const START_MS: i64 = 20_000;
/// Between two looks.
const NAP: Duration = Duration::from_millis(100);
/// What the server is given to stop by itself, in naps.
const GOODBYE_NAPS: u32 = 30;
/// What those that were left are given to end, in naps.
const ORPHAN_NAPS: u32 = 100;

pub struct Stage {
    folder: TemporaryFolder,
    token: String,
    children: Vec<(&'static str, Child)>,
    signals: Receiver<()>,
}

/// Short enough to see something happen.
pub fn timings() -> Recovery {
    Recovery {
        heartbeat_interval_secs: 1,
        heartbeat_timeout_secs: 4,
        sweep_interval_secs: 1,
        unmatched_step_timeout_secs: 3,
        ack_timeout_secs: 5,
        prepare_timeout_secs: 10,
        report_grace_secs: 1,
        // Longer than a sweep takes to come: a step that its worker cannot end yet is recovery's.
        cancel_grace_secs: 3,
    }
}

impl Stage {
    pub fn build(signals: Receiver<()>) -> anyhow::Result<Stage> {
        let folder = TemporaryFolder::create("demo").context("no temporary folder can be made")?;
        // What a killed worker leaves becomes ours, so that its end can be waited for.
        orphans::adopt()
            .context("this system does not let the demo keep hold of what it starts")?;
        Ok(Stage {
            folder,
            token: new_token(),
            children: Vec::new(),
            signals,
        })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn start_server(&mut self) -> anyhow::Result<Remote> {
        let folder = self.folder().to_path_buf();
        fs::create_dir(folder.join("workflows"))?;
        fs::write(folder.join("workflows/demo.yaml"), TASKS)?;
        let token_file = folder.join("token");
        write_secret(&token_file, &self.token)?;
        let data_dir = folder.join("data");
        let mut config = ServerConfig {
            // Nobody else on this machine has work done by us: hence the token as well.
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data_dir: data_dir.clone(),
            workflows_dir: Some(folder.join("workflows")),
            recovery: timings(),
            ..ServerConfig::default()
        };
        config.auth.token_file = Some(token_file);
        fs::write(folder.join("server.yaml"), serde_yaml::to_string(&config)?)?;
        self.spawn("server", &["server", "--config", "server.yaml"])?;
        self.await_that(START_MS, "the server to listen", |stage| {
            let Some((there, _)) = announce::of_folder(&data_dir) else {
                return Ok(None);
            };
            let remote = Remote::new(&there.url, Some(&stage.token), NamedBy::Here);
            let health: Result<Health, _> = remote.get("/readyz");
            Ok(health.is_ok().then_some(remote))
        })
    }

    /// Returns when it is active. It offers its own name as a tag.
    pub fn start_worker(&mut self, name: &'static str, remote: &Remote) -> anyhow::Result<()> {
        let tags = format!("script,{name}");
        let words = [
            "worker",
            "--server",
            &remote.url,
            "--name",
            name,
            "--tags",
            &tags,
            "--slots",
            "4",
            "--data-dir",
            name,
        ];
        self.spawn(name, &words)?;
        self.await_that(START_MS, &format!("worker {name}"), |_| {
            let workers: List<WorkerJson> = remote.get("/api/workers")?;
            let found = workers.items.iter().find(|worker| worker.name == name);
            Ok(found.filter(|worker| worker.status == "active").map(|_| ()))
        })
    }

    fn spawn(&mut self, name: &'static str, words: &[&str]) -> anyhow::Result<()> {
        let log = File::create(self.folder().join(format!("{name}.log")))?;
        let mut command = Command::new(own_path()?);
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("STEPWARD_") {
                command.env_remove(variable);
            }
        }
        if name != "server" {
            command.env("STEPWARD_TOKEN", &self.token);
        }
        command
            .arg0("stepward")
            .args(words)
            .current_dir(self.folder())
            .env("STEPWARD_LOG", "warn")
            .env(ENDS_WITH, std::process::id().to_string())
            // Ctrl-C is for the demo, which then ends them.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn();
        let child = child.with_context(|| format!("{name} cannot be started"))?;
        self.children.push((name, child));
        Ok(())
    }

    pub fn pid(&self, name: &str) -> Option<u32> {
        let child = self.children.iter().find(|(known, _)| *known == name);
        child.map(|(_, child)| child.id())
    }

    /// As the world does it: at once, without a word.
    pub fn kill(&mut self, name: &str) {
        for (_, child) in self.children.iter_mut().filter(|(known, _)| *known == name) {
            end(child);
        }
        self.children.retain(|(known, _)| *known != name);
    }

    /// Looks again and again. An error: somebody pressed Ctrl-C, one of its processes ended, or it took too long.
    pub fn await_that<T>(
        &mut self,
        patience_ms: i64,
        what: &str,
        mut look: impl FnMut(&Stage) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let begun_ms = monotonic_ms();
        loop {
            self.missing()?;
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            if monotonic_ms() - begun_ms > patience_ms {
                return Err(anyhow!(
                    "{} s were not enough for {what}",
                    patience_ms / 1_000
                ));
            }
            if self.signals.recv_timeout(NAP).is_ok() {
                let message = "interrupted; nothing is left behind";
                return Err(Fault::new(Exit::Interrupted, message).into());
            }
        }
    }

    fn missing(&mut self) -> anyhow::Result<()> {
        for (name, child) in &mut self.children {
            if let Ok(Some(status)) = child.try_wait() {
                let log = self.folder.path().join(format!("{name}.log"));
                let said = fs::read_to_string(log).unwrap_or_default();
                let said = said
                    .lines()
                    .last()
                    .unwrap_or("and said nothing")
                    .to_string();
                return Err(anyhow!("{name} of the demo ended ({status}): {said}"));
            }
        }
        Ok(())
    }
}

fn end(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Without their workers, supervisors end what they run.
        for (_, worker) in self
            .children
            .iter_mut()
            .filter(|(name, _)| *name != "server")
        {
            end(worker);
        }
        for (_, server) in self
            .children
            .iter_mut()
            .filter(|(name, _)| *name == "server")
        {
            // It has ended already.
            let _ = kill_process(Pid::from_child(server), Signal::TERM);
            let mut naps = 0;
            while matches!(server.try_wait(), Ok(None)) && naps < GOODBYE_NAPS {
                std::thread::sleep(NAP);
                naps += 1;
            }
            end(server);
        }
        let mut naps = 0;
        while !processes::living_below(getpid()).is_empty() && naps < ORPHAN_NAPS {
            std::thread::sleep(NAP);
            naps += 1;
        }
        for orphan in processes::living_below(getpid()) {
            orphan.signal(Signal::KILL);
        }
        // The folder goes with its field, now that nobody writes to it.
    }
}
