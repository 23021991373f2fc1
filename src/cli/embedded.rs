//! The worker in a server's own process. It speaks the same protocol, over the same port, as every other.
//!
//! Whatever happens to it, the server goes on: one that cannot start or that ended with an error is tried again, later and later;
//! one that somebody drained stays away. Each is said in a line.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use crossbeam_channel::{Receiver, after, bounded, select};

use super::announce::Announced;
use super::own_log::say;
use crate::config::{ServerConfig, WorkerConfig};
use crate::worker::Worker;

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

pub struct Embedded {
    config: WorkerConfig,
    token: Option<String>,
    manner: Manner,
    stage: Stage,
    /// How often it had to be tried again.
    troubles: u32,
    /// Why it did not start the last time: the same is not said again.
    told: String,
}

/// What is particular to whoever has it.
pub struct Manner {
    /// Before each start, where it may take seconds. What it returns is said of the worker.
    pub prepare: Prepare,
    /// Says that it has started: with which settings, and what the preparation said.
    pub introduce: Introduce,
}

pub type Introduce = Box<dyn Fn(&Worker, &WorkerConfig, &[String])>;
pub type Prepare = fn(&mut WorkerConfig) -> Vec<String>;

type Started = Result<(Worker, Vec<String>), String>;

enum Stage {
    /// On a thread of its own: it asks docker and kubectl, which may take seconds.
    Starting(Receiver<Started>),
    Running(Worker),
    /// Until it is tried again.
    Resting(Receiver<Instant>),
    Gone,
}

/// Its settings, if the server is to have one.
pub fn settings(server: &ServerConfig) -> anyhow::Result<Option<WorkerConfig>> {
    let Some(mut config) = server.embedded_worker.clone() else {
        return Ok(None);
    };
    if let Some(folder) = folder(server) {
        config.data_dir = folder;
    } else {
        let usable = Worker::check_folder(&config.data_dir);
        usable.map_err(|fault| anyhow!("embedded_worker: {fault}"))?;
    }
    Ok(Some(config))
}

/// Its folder, unless its settings name one: in the server's own, which the server itself looks at.
pub fn folder(server: &ServerConfig) -> Option<PathBuf> {
    let worker = server.embedded_worker.as_ref()?;
    let is_open = worker.data_dir == WorkerConfig::default().data_dir;
    is_open.then(|| server.data_dir.join("worker"))
}

impl Embedded {
    pub fn start(
        mut config: WorkerConfig,
        token: Option<String>,
        server: &Announced,
        manner: Manner,
    ) -> Embedded {
        config.server_url = Some(server.url.clone());
        // It believes the very certificate that the server shows, whatever names that has.
        config.ca_file = server.cert_file.clone();
        Embedded {
            stage: begin(&config, &token, manner.prepare),
            manner,
            config,
            token,
            troubles: 0,
            told: String::new(),
        }
    }

    /// `None`: it does not run.
    pub fn name(&self) -> Option<&str> {
        match &self.stage {
            Stage::Running(worker) => Some(&worker.name),
            _ => None,
        }
    }

    /// Returns at the first signal.
    pub fn look_after(&mut self, signals: &Receiver<()>) {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Gone) {
                Stage::Starting(started) => select! {
                    recv(signals) -> _ => return self.stage = Stage::Starting(started),
                    recv(started) -> outcome => match outcome {
                        Ok(outcome) => self.started(outcome),
                        Err(_) => self.started(Err("it met a bug".to_string())),
                    },
                },
                Stage::Running(worker) => select! {
                    recv(signals) -> _ => return self.stage = Stage::Running(worker),
                    recv(worker.done()) -> _ => self.ended(worker),
                },
                Stage::Resting(pause) => select! {
                    recv(signals) -> _ => return self.stage = Stage::Resting(pause),
                    recv(pause) -> _ => self.stage = begin(&self.config, &self.token, self.manner.prepare),
                },
                Stage::Gone => {
                    // Either a signal, or nobody is left who could send one.
                    let _ = signals.recv();
                    return;
                }
            }
        }
    }

    fn started(&mut self, outcome: Started) {
        match outcome {
            Ok((worker, said)) => {
                (self.manner.introduce)(&worker, &self.config, &said);
                self.told.clear();
                self.stage = Stage::Running(worker);
            }
            Err(why) => {
                if why != self.told {
                    say(format!(
                        "the embedded worker does not start, the server tries again and again: {why}"
                    ));
                    self.told = why;
                }
                self.rest();
            }
        }
    }

    /// Nobody here told it to.
    fn ended(&mut self, worker: Worker) {
        match worker.wait() {
            Ok(()) => say(
                "the embedded worker was drained and has left, restart the server to have it back",
            ),
            Err(why) => {
                let secs = self.rest().as_secs();
                say(format!(
                    "the embedded worker ended and is started again in {secs} s: {why}"
                ));
            }
        }
    }

    fn rest(&mut self) -> Duration {
        let pause = PAUSE_MAX.min(PAUSE_MIN * (1 << self.troubles.min(10)));
        self.troubles += 1;
        self.stage = Stage::Resting(after(pause));
        pause
    }

    /// The server goes: what its own worker runs goes with it, and is reported before that. `false`: somebody could not wait.
    pub fn end(self, signals: &Receiver<()>) -> bool {
        // Before it has started it runs nothing.
        let Stage::Running(worker) = self.stage else {
            return true;
        };
        worker.shut_down();
        select! {
            recv(worker.done()) -> _ => {
                if let Err(why) = worker.wait() {
                    log::error!("the embedded worker: {why}");
                }
                true
            }
            recv(signals) -> _ => false,
        }
    }
}

fn begin(config: &WorkerConfig, token: &Option<String>, prepare: Prepare) -> Stage {
    let (sender, started) = bounded(1);
    let (mut config, token) = (config.clone(), token.clone());
    let thread = std::thread::Builder::new().name("embedded-worker-start".to_string());
    let begun = thread.spawn(move || {
        let said = prepare(&mut config);
        // A reason is one line.
        let outcome = Worker::start(&config, token).map(|worker| (worker, said));
        let outcome = outcome.map_err(|error| error.to_string().replace('\n', " "));
        // The server is stopping: the worker goes with the process.
        let _ = sender.send(outcome);
    });
    if let Err(error) = begun {
        log::error!("a thread could not be started: {error}");
    }
    Stage::Starting(started)
}

/// Where the server can be reached from its own process.
pub fn from_here(listening: SocketAddr) -> SocketAddr {
    let ip = match listening {
        SocketAddr::V4(address) if address.ip().is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(address) if address.ip().is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        _ => listening.ip(),
    };
    SocketAddr::new(ip, listening.port())
}
