//! `stepward worker`: a worker, in the foreground, until it is told to stop.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use crossbeam_channel::{Receiver, select};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::exit::Exit;
use super::files::{WORKER_CONFIG, config_file};
use super::fleet::{self, FleetVerb};
use super::process;
use super::say::say;
use crate::config::WorkerConfig;
use crate::worker::Worker;

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    before_help = "Examples:\n  stepward worker --server http://127.0.0.1:7717 --tags gpu --slots 4\n  stepward worker ls\n  stepward worker drain edge-1"
)]
pub struct WorkerArgs {
    #[command(subcommand)]
    fleet: Option<FleetVerb>,
    /// The settings file; `worker-config.example.yaml` shows every key.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server, such as http://127.0.0.1:7717.
    #[arg(long, value_name = "URL", env = "STEPWARD_SERVER_URL")]
    server: Option<String>,
    /// The server's token. Others on this machine can see arguments: the environment is better, a file best.
    #[arg(long, env = "STEPWARD_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// What to call it.
    #[arg(long, env = "STEPWARD_NAME")]
    name: Option<String>,
    /// What it offers.
    #[arg(long, value_delimiter = ',', env = "STEPWARD_TAGS")]
    tags: Option<Vec<String>>,
    /// How many steps it runs at a time.
    #[arg(long, env = "STEPWARD_SLOTS")]
    slots: Option<u32>,
    /// Its folder.
    #[arg(long, value_name = "FOLDER", env = "STEPWARD_DATA_DIR")]
    data_dir: Option<PathBuf>,
}

pub fn run(mut args: WorkerArgs) -> anyhow::Result<Exit> {
    if let Some(verb) = args.fleet.take() {
        return fleet::run(verb);
    }
    let file = config_file(args.config.as_deref(), WORKER_CONFIG);
    let token = args.token.clone();
    let config = WorkerConfig::load_with(file.as_deref(), |config| args.put_over(config))?;
    process::begin();
    // Its environment may hold the token, and steps run as the same user.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        log::warn!("steps can look into this worker's environment: {error}");
    }
    let signals = process::signals()?;
    let worker = Worker::start(&config, token)?;
    introduce(&worker, &config.server_url);
    wait(worker, &signals)
}

impl WorkerArgs {
    pub fn put_over(self, config: &mut WorkerConfig) {
        fn put<T>(given: Option<T>, setting: &mut T) {
            if let Some(given) = given {
                *setting = given;
            }
        }
        put(self.server, &mut config.server_url);
        put(self.name, &mut config.name);
        put(self.tags, &mut config.tags);
        put(self.slots, &mut config.slots);
        put(self.data_dir, &mut config.data_dir);
    }
}

pub fn introduce(worker: &Worker, server_url: &str) {
    let (name, slots, tags) = (&worker.name, worker.slots, worker.offer.tags.join(", "));
    say(format!(
        "worker {name} offers {tags} with {slots} slots to {server_url}"
    ));
    for remark in &worker.offer.remarks {
        say(remark);
    }
}

/// The first signal drains, the second ends what runs, the third ends everything.
fn wait(worker: Worker, signals: &Receiver<()>) -> anyhow::Result<Exit> {
    let mut signalled = 0;
    loop {
        select! {
            recv(worker.done()) -> _ => break,
            recv(signals) -> _ => {
                signalled += 1;
                match signalled {
                    1 => {
                        say("finishing what runs; once more to stop it");
                        worker.drain();
                    }
                    2 => {
                        say("stopping what runs");
                        worker.shut_down();
                    }
                    _ => return Ok(Exit::Interrupted),
                }
            }
        }
    }
    worker.wait().map_err(|why| anyhow!(why))?;
    Ok(Exit::Success)
}
