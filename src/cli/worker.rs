//! `stepward worker`: a worker, in the foreground, until it is told to stop. And the one inside a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use crossbeam_channel::{Receiver, select};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::process;
use crate::config::{ServerConfig, WorkerConfig};
use crate::worker::Worker;

#[derive(Args)]
pub struct WorkerArgs {
    /// The settings file; `worker-config.example.yaml` shows every key.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server, such as http://127.0.0.1:7717.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The server's token. Others on this machine can see arguments: the environment is better, a file best.
    #[arg(long, env = "STEPWARD_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// What to call it.
    #[arg(long)]
    name: Option<String>,
    /// What it offers.
    #[arg(long, value_delimiter = ',')]
    tags: Option<Vec<String>>,
    /// How many steps it runs at a time.
    #[arg(long)]
    slots: Option<u32>,
    /// Its folder.
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
}

pub fn run(args: WorkerArgs) -> anyhow::Result<ExitCode> {
    let mut config = WorkerConfig::load(args.config.as_deref())?;
    config.server_url = args.server.unwrap_or(config.server_url);
    config.name = args.name.unwrap_or(config.name);
    config.tags = args.tags.unwrap_or(config.tags);
    config.slots = args.slots.unwrap_or(config.slots);
    config.data_dir = args.data_dir.unwrap_or(config.data_dir);
    if let Err(fault) = config.check() {
        bail!(fault);
    }
    process::begin();
    // Its environment may hold the token, and steps run as the same user.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        log::warn!("steps can look into this worker's environment: {error}");
    }
    let signals = process::signals()?;
    let worker = Worker::start(&config, args.token)?;
    introduce(&worker, &config.server_url);
    wait(worker, &signals)
}

fn introduce(worker: &Worker, server_url: &str) {
    let (name, slots, tags) = (&worker.name, worker.slots, worker.offer.tags.join(", "));
    eprintln!("stepward: worker {name} offers {tags} with {slots} slots to {server_url}");
    for remark in &worker.offer.remarks {
        eprintln!("stepward: {remark}");
    }
}

/// The first signal drains, the second ends what runs, the third ends everything.
fn wait(worker: Worker, signals: &Receiver<()>) -> anyhow::Result<ExitCode> {
    let mut signalled = 0;
    loop {
        select! {
            recv(worker.done()) -> _ => break,
            recv(signals) -> _ => {
                signalled += 1;
                match signalled {
                    1 => {
                        eprintln!("stepward: finishing what runs; once more to stop it");
                        worker.drain();
                    }
                    2 => {
                        eprintln!("stepward: stopping what runs");
                        worker.shut_down();
                    }
                    _ => return Ok(ExitCode::from(130)),
                }
            }
        }
    }
    worker.wait().map_err(|why| anyhow!(why))?;
    Ok(ExitCode::SUCCESS)
}

/// A worker in the server's own process. It speaks the same protocol, over the same port, as every other.
pub fn embedded(
    mut config: WorkerConfig,
    address: SocketAddr,
    server: &ServerConfig,
) -> anyhow::Result<Worker> {
    config.server_url = format!("http://{address}");
    if config.data_dir == WorkerConfig::default().data_dir {
        config.data_dir = server.data_dir.join("worker");
    }
    let worker = Worker::start(&config, server.token()?)?;
    introduce(&worker, &config.server_url);
    Ok(worker)
}

/// The server goes: what its own worker runs goes with it, and is reported before that.
pub fn end(worker: Worker, signals: &Receiver<()>) {
    worker.shut_down();
    select! {
        recv(worker.done()) -> _ => {
            if let Err(why) = worker.wait() {
                log::error!("the embedded worker: {why}");
            }
        }
        recv(signals) -> _ => {}
    }
}
