//! A server and a worker in this very process, for whoever has no server: the same engine, the same protocol, on a port of its own
//! that wants a token only this process knows.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use crossbeam_channel::{Receiver, after, never, select};

use super::reach::{NamedBy, Remote};
use super::say::say;
use super::words::printable;
use crate::config::{ServerConfig, WorkerConfig};
use crate::language::Workflows;
use crate::server::Server;
use crate::temporary::TemporaryFolder;
use crate::wire::api::JobJson;
use crate::worker::{Worker, marked};

/// What a worker is given to report the end of what it runs, after the time that it gives those.
const GOODBYE: Duration = Duration::from_secs(5);
/// What takes longer is told.
const PATIENCE: Duration = Duration::from_millis(500);
/// Of what is waited for; more would be a list.
const NAMES_MAX: usize = 3;

/// Nobody else will come and offer what is missing.
const UNMATCHED_SECS: u32 = 1;

pub struct LocalOptions<'a> {
    pub workflows: &'a Workflows,
    /// What this machine offers.
    pub tags: Vec<String>,
    pub slots: u32,
    /// Where the database stays. `None`: it goes with this process.
    pub data: Option<&'a Path>,
    /// For what tasks and steps leave open.
    pub settings: ServerConfig,
}

pub struct Local {
    server: Server,
    worker: Option<Worker>,
    pub remote: Remote,
    /// For whoever else is to reach it.
    pub token_file: PathBuf,
    pub worker_dir: PathBuf,
    /// Where its database is.
    pub data_dir: PathBuf,
    /// What a step gets to end by itself.
    grace: Duration,
    /// For its end alone; last, when nobody uses it any more.
    _folder: TemporaryFolder,
}

impl Local {
    pub fn start(options: LocalOptions) -> anyhow::Result<Local> {
        let folder = TemporaryFolder::create("run").context("no temporary folder can be made")?;
        let token_file = folder.path().join("token");
        let token = new_token();
        write_secret(&token_file, &token)?;
        let data_dir = match options.data {
            Some(data) => data.to_path_buf(),
            None => folder.path().join("data"),
        };
        let mut config = ServerConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data_dir: data_dir.clone(),
            workflows_dir: None,
            embedded_worker: None,
            // Nobody else comes here.
            tls: Default::default(),
            // Whoever tries something out tells nobody.
            notify: Default::default(),
            ..options.settings
        };
        config.auth.token_file = Some(token_file.clone());
        config.recovery.unmatched_step_timeout_secs = UNMATCHED_SECS;
        let grace = Duration::from_secs(config.recovery.cancel_grace_secs.into());
        let server = Server::start_serving(&config, options.workflows)?;
        let url = format!("http://{}", server.address());
        let remote = Remote::new(&url, Some(&token), NamedBy::Here);
        let worker_dir = data_dir.join("worker");
        let worker = WorkerConfig {
            server_url: Some(url),
            name: "local".to_string(),
            tags: options.tags,
            slots: options.slots,
            data_dir: worker_dir.clone(),
            ..WorkerConfig::default()
        };
        let worker = Worker::start(&worker, Some(token))?;
        Ok(Local {
            server,
            worker: Some(worker),
            remote,
            token_file,
            worker_dir,
            data_dir,
            grace,
            _folder: folder,
        })
    }

    /// What it could not offer, in sentences.
    pub fn remarks(&self) -> &[String] {
        self.worker
            .as_ref()
            .map_or(&[], |worker| &worker.offer.remarks)
    }

    /// Ends what still runs, gently unless there is a signal meanwhile, and everything else. Who waits is told for what: for
    /// steps of this job.
    pub fn end_unless(mut self, job_id: Option<i64>, signals: &Receiver<()>) {
        if let Some(worker) = self.worker.take() {
            worker.shut_down();
            let mut soon = after(PATIENCE);
            let goodbye = after(self.grace + GOODBYE);
            loop {
                select! {
                    recv(worker.done()) -> _ => break,
                    recv(signals) -> _ => return self.abandon(),
                    recv(goodbye) -> _ => return self.abandon(),
                    recv(soon) -> _ => {
                        soon = never();
                        let (what, grace) = (self.what_ends(job_id), self.grace.as_secs());
                        say(format!("waiting up to {grace} s for {what} to end; once more to stop at once"));
                    }
                }
            }
        }
        self.server.stop();
    }

    /// `step fit`, `steps a, b and others`: what was told to end while it ran.
    fn what_ends(&self, job_id: Option<i64>) -> String {
        let path = job_id.map(|job_id| format!("/api/jobs/{job_id}"));
        let job = path.and_then(|path| self.remote.get::<JobJson>(&path).ok());
        let steps = job.and_then(|job| job.steps).unwrap_or_default();
        let mut names: Vec<String> = (steps.iter())
            .filter(|step| step.status == "cancelled" && step.worker.is_some())
            .map(|step| printable(&step.name))
            .collect();
        if names.len() > NAMES_MAX {
            names.truncate(NAMES_MAX);
            names.push("others".to_string());
        }
        match names.as_slice() {
            [] => "what still runs".to_string(),
            [one] => format!("step {one}"),
            several => format!("steps {}", several.join(", ")),
        }
    }

    /// Kills what still runs. The process is about to end: the server and the worker are not waited for.
    pub fn abandon(self) {
        let key = std::fs::read_to_string(self.worker_dir.join("instance"));
        if let Ok(key) = key {
            marked::kill_marked(key.trim());
        }
        std::mem::forget((self.server, self.worker));
    }
}

/// As many as this machine has processors, but never one after another.
pub fn slots() -> u32 {
    let processors = std::thread::available_parallelism();
    processors.map_or(2, |n| n.get().clamp(2, 64) as u32)
}

/// That nobody can guess.
pub fn new_token() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file that only its owner reads, and that was not there before.
pub fn write_secret(file: &PathBuf, text: &str) -> anyhow::Result<()> {
    let opened = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    let mut opened = opened.with_context(|| format!("{} cannot be written", file.display()))?;
    opened.write_all(text.as_bytes())?;
    opened.write_all(b"\n")?;
    Ok(())
}
