//! `stepward server`: the server, in the foreground, until it is told to stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::process;
use crate::config::ServerConfig;
use crate::server::Server;

#[derive(Args)]
pub struct ServerArgs {
    /// The settings file; `server-config.example.yaml` shows every key.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen; port 0 takes any that is free.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The data folder.
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// The folder of workflow files.
    #[arg(long, value_name = "FOLDER")]
    workflows_dir: Option<PathBuf>,
    /// Runs a worker in the same process, as `embedded_worker` in the settings does.
    #[arg(long)]
    embedded_worker: bool,
}

pub fn run(args: ServerArgs) -> anyhow::Result<ExitCode> {
    let mut config = ServerConfig::load(args.config.as_deref())?;
    config.listen = args.listen.unwrap_or(config.listen);
    config.data_dir = args.data_dir.unwrap_or(config.data_dir);
    config.workflows_dir = args.workflows_dir.or(config.workflows_dir);
    if args.embedded_worker {
        config.embedded_worker.get_or_insert_default();
    }
    if let Err(fault) = config.check() {
        bail!(fault);
    }
    process::begin();
    let signals = process::signals()?;
    let mut server = Server::start(&config)?;
    let address = server.address();
    eprintln!("stepward: listening on http://{address}");
    eprintln!(
        "stepward: data in {}, {} tasks, a worker is given up after {} s of silence",
        config.data_dir.display(),
        server.tasks(),
        config.recovery.heartbeat_timeout_secs
    );
    let worker = match &config.embedded_worker {
        Some(worker) => Some(super::worker::embedded(worker.clone(), address, &config)?),
        None => None,
    };
    signals.recv()?;
    eprintln!("stepward: stopping");
    if let Some(worker) = worker {
        super::worker::end(worker, &signals);
    }
    server.stop();
    Ok(ExitCode::SUCCESS)
}
