//! `stepward dev`: a server with a worker for this folder, on this machine alone, until Ctrl-C.

mod reloads;

use std::fmt::Write;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use crossbeam_channel::{Receiver, bounded, select};

use super::announce::{self, Announcement};
use super::embedded::{self, Embedded, Manner};
use super::exit::Exit;
use super::files::{SERVER_CONFIG, config_file, with_flag, workflows_folder};
use super::local;
use super::look::{Ink, Look, LookArgs};
use super::port_owner::{self, PortOwner};
use super::process;
use super::say::tell;
use super::server::check_workflows_dir;
use super::settings;
use super::words::{bytes, count, printable, shell_path, wrap};
use crate::client::Client;
use crate::clock::monotonic_ms;
use crate::config::{ServerConfig, WorkerConfig};
use crate::language::{Diagnostic, rules};
use crate::server::{Server, StartError};
use crate::store::{DATABASE_FILE, OpenError};
use crate::token_files::keep_out_of_repositories;
use crate::wire::api::{Health, List, WorkerJson};
use crate::worker::Worker;
use crate::worker::executor::{ask_cluster, ask_docker};
use reloads::Reloads;

/// An answer of this very process.
const READY: Duration = Duration::from_secs(1);

const PORT: u16 = 7717;
/// The ports after it that are tried.
const PORTS_MORE: u16 = 10;

/// What a machine may be able to do; what it cannot is left out, and said.
const TAGS: [&str; 3] = ["script", "docker", "kubernetes"];

/// kubectl would go wherever its own settings lead, with whatever they have it start.
const NO_CLUSTER: &str =
    "no task needs it, and no cluster is asked unasked; --tags script,kubernetes offers it";

/// Files that do not load are told in a line of their own.
const LOG: &str = "warn,stepward::server::reload=error";

#[derive(Args)]
#[command(
    before_help = "Examples:\n  stepward dev\n  stepward dev --port 8080 --slots 2\n  \
                   stepward dev --tags script,gpu"
)]
pub struct DevArgs {
    /// The port on this machine; else that of the settings, or 7717, or the next one up to 7727 that is free.
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// The settings file; else server-config.yaml, if it is there.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder of workflow files; else that of the settings, or `workflows`.
    #[arg(long, value_name = "DIR", env = "STEPWARD_WORKFLOWS_DIR")]
    workflows_dir: Option<PathBuf>,
    /// The data folder; else that of the settings, or `.stepward`.
    #[arg(long, value_name = "DIR", env = "STEPWARD_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// How many steps its worker runs at a time; else one for each processor, two at least.
    #[arg(long, value_name = "N", env = "STEPWARD_WORKER_SLOTS")]
    slots: Option<u32>,
    /// What its worker offers; else script, docker if it answers, kubernetes if it does and a task needs it.
    #[arg(long, value_delimiter = ',', env = "STEPWARD_WORKER_TAGS")]
    tags: Option<Vec<String>>,
    /// Without a worker: others must come.
    #[arg(long, conflicts_with_all = ["slots", "tags"])]
    no_worker: bool,
    #[command(flatten)]
    look: LookArgs,
}

pub fn run(args: DevArgs) -> anyhow::Result<Exit> {
    let begun_ms = monotonic_ms();
    let look = args.look.stderr();
    let (port_is_named, tags_are_named) = (args.port.is_some(), args.tags.is_some());
    let file = config_file(args.config.as_deref(), SERVER_CONFIG);
    let mut has_settings = false;
    let mut config = ServerConfig::load_with(file.as_deref(), |config| {
        has_settings = config.embedded_worker.is_some();
        args.put_over(config);
    })?;
    config.workflows_dir = workflows_folder(&config);
    if let Some(folder) = &config.workflows_dir {
        check_workflows_dir(folder)?;
    }
    process::begin_logging(config.log.format, LOG);
    let signals = process::signals()?;
    let token = config.token()?;
    let worker = embedded::settings(&config)?;
    let is_new = !config.data_dir.join(DATABASE_FILE).exists();
    let (server, moved) = start(&mut config, file.as_deref(), port_is_named)?;
    if is_new {
        keep_out_of_repositories(&config.data_dir);
    }
    let address = server.address();
    let announcement = Announcement::write(&config, address, server.asks_for_token());
    let announced = announcement.announced().clone();
    let trust = announced.trust()?;
    let client = Client::trusting(&announced.url, token.as_deref(), trust.as_ref());
    await_ready(&client);
    let ready_ms = monotonic_ms() - begun_ms;
    let banner = Banner {
        look,
        config: &config,
        file: file.as_deref(),
        server: &server,
        has_worker: worker.is_some(),
    };
    tell(banner.text(moved.as_deref(), ready_ms));
    let manner = Manner {
        prepare: match server.needed_tags().contains("kubernetes") {
            _ if tags_are_named || has_settings => |_| Vec::new(),
            true => leave_out_what_does_not_answer,
            false => |config| {
                let cluster = leave_out(config, "kubernetes", NO_CLUSTER);
                let mut said = leave_out_what_does_not_answer(config);
                said.push(cluster);
                said
            },
        },
        introduce: Box::new(move |worker, _, said| introduce(&look, worker, said)),
    };
    let worker =
        worker.map(|worker| Embedded::start(worker, server.own_worker_token(), &announced, manner));
    let is_over = match worker {
        Some(mut worker) => {
            worker.look_after(&signals);
            tell_stopping(&client, &worker, &config);
            worker.end(&signals)
        }
        None => signals.recv().is_ok(),
    };
    // Before the folder is free: the next server of it announces itself by the same file.
    drop(announcement);
    if !is_over {
        // It would end in seconds, and nobody wants to wait. A crash is no other end for the database.
        std::mem::forget(server);
        return Ok(Exit::Interrupted);
    }
    if !stop(server, &signals) {
        return Ok(Exit::Interrupted);
    }
    let data = printable(&config.data_dir.display().to_string());
    tell(format!("stopped; jobs and logs are kept in {data}"));
    Ok(Exit::Success)
}

impl DevArgs {
    fn put_over(self, config: &mut ServerConfig) {
        // Whatever the settings say: nobody else is to reach what somebody is working at.
        if !config.listen.ip().is_loopback() {
            config.listen.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        if let Some(port) = self.port {
            config.listen.set_port(port);
        }
        config.workflows_dir = self.workflows_dir.or(config.workflows_dir.take());
        if let Some(data_dir) = self.data_dir {
            config.data_dir = data_dir;
        }
        if self.no_worker {
            config.embedded_worker = None;
            return;
        }
        let worker = config.embedded_worker.get_or_insert_with(|| WorkerConfig {
            slots: local::slots(),
            tags: TAGS.map(str::to_string).to_vec(),
            ..WorkerConfig::default()
        });
        worker.slots = self.slots.unwrap_or(worker.slots);
        if let Some(tags) = self.tags {
            worker.tags = tags;
        }
    }
}

/// A server, and who has the port that it should have had.
fn start(
    config: &mut ServerConfig,
    file: Option<&Path>,
    port_is_named: bool,
) -> anyhow::Result<(Server, Option<String>)> {
    let first = config.listen.port();
    let may_move = !port_is_named && first == PORT;
    let last = if may_move { PORT + PORTS_MORE } else { first };
    let mut moved = None;
    for port in first..=last {
        config.listen.set_port(port);
        let mut is_taken = may_move && is_taken(config.listen);
        if !is_taken {
            let known = settings::of_running::<DevArgs>("dev", config, file);
            match Server::start_knowing(config, known, Some(Reloads::telling())) {
                Ok(server) => return Ok((server, moved)),
                // Somebody was faster.
                Err(StartError::Listen { source, .. })
                    if may_move && source.kind() == io::ErrorKind::AddrInUse =>
                {
                    is_taken = true;
                }
                Err(error) => return Err(refusal(error, config)),
            }
        }
        if is_taken && moved.is_none() {
            let owner = PortOwner::of(port);
            let owner = owner.map_or("somebody".to_string(), |owner| owner.to_string());
            moved = Some(format!("port {port} is in use by {owner}"));
        }
    }
    bail!(
        "{}, and so are all others up to {last}; choose one with --port",
        moved.unwrap_or_default()
    )
}

fn is_taken(address: SocketAddr) -> bool {
    let bound = TcpListener::bind(address);
    bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

fn refusal(error: StartError, config: &ServerConfig) -> anyhow::Error {
    let StartError::Store(OpenError::InUse { folder, owner }) = &error else {
        let error = port_owner::named(error, "choose another with --port");
        return with_flag(error, "--data-dir");
    };
    let who = match announce::of_folder(&config.data_dir) {
        Some((there, _)) => format!(" (process {} at {})", there.pid, printable(&there.url)),
        None => owner.clone(),
    };
    anyhow!(
        "data folder {} is in use by another server{who}: use that one, stop it, or name another folder with --data-dir",
        folder.display()
    )
}

/// Recovery has begun, and whoever asks is told so. It takes a moment, and if it does not come `/readyz` says why.
fn await_ready(client: &Client) {
    for _ in 0..500 {
        if client.get::<Health>("/readyz", READY).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

struct Banner<'a> {
    look: Look,
    config: &'a ServerConfig,
    file: Option<&'a Path>,
    server: &'a Server,
    has_worker: bool,
}

impl Banner<'_> {
    fn text(&self, moved: Option<&str>, ready_ms: i64) -> String {
        let (look, config) = (&self.look, self.config);
        let dot = look.dot();
        let address = self.server.address();
        let mut text = format!(
            "stepward {} {dot} dev {dot} this machine only\n",
            env!("CARGO_PKG_VERSION")
        );
        if let Some(moved) = moved {
            text.push_str(&format!("{moved}; using {}\n", address.port()));
        }
        text.push('\n');
        let mut line = |label: &str, value: &str| {
            let label = look.paint(Ink::Bold, &format!("{label:<10}"));
            // A string takes everything.
            let _ = writeln!(text, "  {label} {value}");
        };
        let login = match &config.auth.token_file {
            Some(file) => format!(" {dot} with the token of {}", shown(file)),
            None => String::new(),
        };
        let url = config.own_url(address);
        line("Pages", &format!("{url}/{login}"));
        line("API", &format!("{url}/api"));
        if let Some(file) = self.file {
            line("Settings", &shown(file));
        }
        let files = ["", "-wal"].map(|end| config.data_dir.join(format!("{DATABASE_FILE}{end}")));
        let sizes = files.iter().filter_map(|file| file.metadata().ok());
        let size = sizes.map(|found| found.len()).sum();
        line(
            "Data",
            &format!(
                "{} {dot} kept between runs {dot} {}",
                shown(&config.data_dir),
                bytes(size)
            ),
        );
        line("Workflows", &self.workflows());
        if !self.has_worker {
            line("Worker", "none, as you said: steps wait for others");
        }
        let recovery = &config.recovery;
        line(
            "Recovery",
            &format!(
                "always on {dot} sweep {}s {dot} worker timeout {}s {dot} unmatched {}s",
                recovery.sweep_interval_secs,
                recovery.heartbeat_timeout_secs,
                recovery.unmatched_step_timeout_secs
            ),
        );
        let _ = write!(
            text,
            "\nready in {ready_ms} ms {dot} Ctrl-C stops, twice at once"
        );
        text
    }

    fn workflows(&self) -> String {
        let dot = self.look.dot();
        let Some(folder) = &self.config.workflows_dir else {
            return format!("none {dot} `stepward init` writes some; then start this again");
        };
        let tasks = count(self.server.tasks(), "task");
        let found = self.server.problems();
        let only_here = |found: &Diagnostic| rules::CHECKED_BY_SERVER.contains(&found.code);
        let problems = match found.len() {
            0 => "0 problems".to_string(),
            n if found.iter().any(only_here) => {
                format!("{}, `stepward status` shows them", count(n, "problem"))
            }
            n => format!(
                "{}, `stepward validate {}` shows them",
                count(n, "problem"),
                shell_path(folder)
            ),
        };
        format!(
            "{} {dot} {tasks}, {problems} {dot} reloads on save",
            shown(folder)
        )
    }
}

fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// Nobody asked for these two: where they do not answer, nothing is wrong.
fn leave_out_what_does_not_answer(config: &mut WorkerConfig) -> Vec<String> {
    let (docker, kubectl) = (&config.docker.command, &config.kubernetes.command);
    let wants_cluster = config.tags.iter().any(|tag| tag == "kubernetes");
    // Both at once: each may take seconds.
    let answers = std::thread::scope(|scope| {
        let cluster = wants_cluster.then(|| scope.spawn(|| ask_cluster(kubectl)));
        let docker = ask_docker(docker);
        let bug = |_| Err("asking met a bug".to_string());
        let cluster = cluster.map(|asked| asked.join().unwrap_or_else(bug));
        [("docker", Some(docker)), ("kubernetes", cluster)]
    });
    let mut said = Vec::new();
    for (tag, answer) in answers {
        if let Some(Err(why)) = answer {
            said.push(leave_out(config, tag, &why));
        }
    }
    said
}

fn leave_out(config: &mut WorkerConfig, tag: &str, why: &str) -> String {
    config.tags.retain(|wanted| wanted != tag);
    format!("{tag} is not offered: {why}")
}

/// The last lines of the banner, which come when docker and kubectl have been asked.
fn introduce(look: &Look, worker: &Worker, said: &[String]) {
    let dot = look.dot();
    let (name, slots, tags) = (&worker.name, worker.slots, worker.offer.tags.join(", "));
    let label = look.paint(Ink::Bold, "Worker    ");
    let slots = count(slots as usize, "slot");
    tell(format!(
        "  {label} {} {dot} {slots} {dot} tags {tags}",
        printable(name)
    ));
    let remarks = worker.offer.remarks.iter();
    let remarks = remarks.map(|remark| remark.strip_prefix("tag ").unwrap_or(remark));
    const INDENT: usize = 13;
    let room = look.width.unwrap_or(usize::MAX).saturating_sub(INDENT);
    for remark in said.iter().map(String::as_str).chain(remarks) {
        for line in wrap(&printable(remark), room) {
            tell(format!("{:INDENT$}{line}", ""));
        }
    }
}

fn tell_stopping(client: &Client, worker: &Embedded, config: &ServerConfig) {
    let workers = client.get::<List<WorkerJson>>("/api/workers", Duration::from_secs(1));
    let workers = workers.map_or_else(|_| Vec::new(), |list| list.items);
    let own = workers
        .iter()
        .filter(|one| Some(one.name.as_str()) == worker.name());
    let running: Vec<String> = own
        .flat_map(|worker| &worker.running)
        .map(|held| format!("{} of job {}", held.step, held.job_id))
        .collect();
    let grace = config.recovery.cancel_grace_secs;
    tell(match running.as_slice() {
        [] => "stopping".to_string(),
        [step] => format!(
            "stopping: step {step} is ended, it gets {grace} s for that; Ctrl-C again ends it at once"
        ),
        [first, more @ ..] => format!(
            "stopping: step {first} and {} more are ended, they get {grace} s for that; Ctrl-C again ends them at once",
            more.len()
        ),
    });
}

/// `false`: somebody could not wait.
fn stop(mut server: Server, signals: &Receiver<()>) -> bool {
    let (done, stopped) = bounded::<()>(0);
    let thread = std::thread::Builder::new().name("stop".to_string());
    let spawned = thread.spawn(move || {
        server.stop();
        drop(done);
    });
    if let Err(error) = spawned {
        log::error!("a thread could not be started: {error}");
    }
    select! {
        recv(stopped) -> _ => true,
        recv(signals) -> _ => false,
    }
}
