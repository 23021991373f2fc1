//! `stepward server`: the server, in the foreground, until it is told to stop.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::BoolishValueParser;

use super::announce::{self, Announcement};
use super::embedded::{self, Embedded, Manner};
use super::exit::{Exit, Fault};
use super::files::{SERVER_CONFIG, config_file, unserved};
use super::own_log::say;
use super::port_owner;
use super::process;
use super::reach;
use super::settings;
use super::worker::introduce;
use crate::config::environment::unknown_server_variables;
use crate::config::{LogFormat, Origin, ServerConfig, Setting, listen_address};
use crate::language::render;
use crate::server::Server;
use crate::service::ServiceManager;
use crate::store::DATABASE_FILE;
use crate::token_files::{ADMIN_TOKEN_FILE, WORKER_TOKEN_FILE, keep_out_of_repositories};
use crate::words::{count, shell_path};

#[derive(Args)]
#[command(before_help = "Examples:
  stepward server --config /etc/stepward/server-config.yaml
  stepward server --workflows-dir workflows --embedded-worker
  stepward server --listen 127.0.0.1:8080 --data-dir /var/lib/stepward")]
pub struct ServerArgs {
    /// The settings file; `server-config.example.yaml` shows every key.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen; port 0 takes any that is free.
    #[arg(long, value_name = "ADDRESS", env = "STEPWARD_LISTEN", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// The data folder.
    #[arg(long, value_name = "FOLDER", env = "STEPWARD_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The folder of workflow files.
    #[arg(long, value_name = "FOLDER", env = "STEPWARD_WORKFLOWS_DIR")]
    workflows_dir: Option<PathBuf>,
    /// Runs a worker in the same process, as `embedded_worker` in the settings does; `=false`: none, whatever the settings say.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "STEPWARD_EMBEDDED_WORKER",
        value_parser = BoolishValueParser::new()
    )]
    embedded_worker: Option<bool>,
    /// How the lines of its own log look.
    #[arg(long, env = "STEPWARD_LOG_FORMAT", value_enum)]
    log_format: Option<LogFormat>,
    /// Goes on from a database that has lost its last commits, after the server refused to start with it or workers noticed that
    /// it was rolled back. Use it once: each start with this flag begins a new lineage, every worker opens a new session, and
    /// results that workers have not reported yet are dropped.
    #[arg(long)]
    accept_older_database: bool,
    /// Asks nobody for a token, as `auth: { required: false }` in the settings does. Only for an address of this machine.
    #[arg(long)]
    no_auth: bool,
}

pub fn run(args: ServerArgs) -> anyhow::Result<Exit> {
    let file = config_file(args.config.as_deref(), SERVER_CONFIG);
    let (accepts_older, no_auth) = (args.accept_older_database, args.no_auth);
    process::begin_by(file.as_deref(), args.log_format);
    let config = ServerConfig::load_with(file.as_deref(), |config| args.put_over(config))?;
    if no_auth {
        check_no_auth(&config)?;
    }
    for unknown in unknown_server_variables() {
        log::warn!("{unknown}");
    }
    if let Some(folder) = &config.workflows_dir {
        check_workflows_dir(folder)?;
    }
    let signals = process::signals()?;
    let worker = embedded::settings(&config)?;
    let known = settings::of_running::<ServerArgs>("server", &config, file.as_deref());
    let forgotten = has_forgotten_dir(&known);
    let manager = ServiceManager::of_process();
    manager.status("opening the database");
    let is_new = !config.data_dir.join(DATABASE_FILE).exists();
    let server = Server::start_watched(&config, known, manager.clone(), accepts_older);
    let mut server = server
        .map_err(|error| port_owner::named(error, "choose another with listen or --listen"))?;
    if is_new {
        keep_out_of_repositories(&config.data_dir);
    }
    let address = server.address();
    let announcement = Announcement::write(&config, address, server.asks_for_token());
    say(format!("listening on {}", config.own_url(address)));
    if let Some(file) = &file {
        say(format!("settings of {}", file.display()));
    }
    say(format!(
        "data in {}, {}, a worker is marked inactive after {} s of silence",
        config.data_dir.display(),
        count(server.tasks(), "task"),
        config.recovery.heartbeat_timeout_secs
    ));
    if let Some(file) = config
        .auth
        .token_file
        .as_deref()
        .filter(|file| is_open(file))
    {
        let file = file.display();
        say(format!(
            "every user of this machine can read {file}, which opens everything here: chmod o= {file}"
        ));
    }
    let is_open_by_choice = no_auth || config.auth.required == Some(false);
    if is_open_by_choice && !server.asks_for_token() {
        say(open_to_everybody(&announcement.announced().url, no_auth));
    }
    for line in about_tokens(&server, &config, &announcement) {
        say(line);
    }
    if forgotten {
        say(
            "no backups are made: the settings say how, and not where; name a folder with backup.dir",
        );
    }
    if let Some(folder) = unserved(&config) {
        say(format!(
            "the folder {folder} here is not served: start with --workflows-dir {folder}, or write workflows_dir: {folder} in the settings"
        ));
    }
    let problems = server.problems();
    if !problems.is_empty() {
        say(render::human(&problems, false));
    }
    // It listens, its store is open, its recovery runs.
    manager.ready();
    match worker.map(|worker| {
        Embedded::start(
            worker,
            server.own_worker_token(),
            announcement.announced(),
            manner(),
        )
    }) {
        Some(mut worker) => {
            worker.look_after(&signals);
            stopping(&manager);
            worker.end(&signals);
        }
        None => {
            signals.recv()?;
            stopping(&manager);
        }
    }
    // Before the folder is free: the next server of it announces itself by the same file.
    drop(announcement);
    server.stop();
    Ok(Exit::Success)
}

/// Refuses settings that `--no-auth` cannot be combined with.
fn check_no_auth(config: &ServerConfig) -> anyhow::Result<()> {
    if !config.listen.ip().is_loopback() {
        return Err(Fault::usage(format!(
            "--no-auth and listen {} contradict each other: everybody who can reach that address could do everything; listen on \
             127.0.0.1, or leave --no-auth out",
            config.listen
        )));
    }
    if let Some(file) = &config.auth.token_file {
        return Err(Fault::usage(format!(
            "--no-auth and auth.token_file ({}) contradict each other: leave out one of them",
            file.display()
        )));
    }
    Ok(())
}

/// The start message about authentication: who is let in, and which files have the tokens. It never has the text of a token.
fn about_tokens(
    server: &Server,
    config: &ServerConfig,
    announcement: &Announcement,
) -> Vec<String> {
    let file = |name: &str| shell_path(&config.data_dir.join(name));
    let (admin, worker) = (file(ADMIN_TOKEN_FILE), file(WORKER_TOKEN_FILE));
    let mut lines = Vec::new();
    let takes_first_tokens = server.asks_for_token() && config.auth.token_file.is_none();
    match server.first_tokens() {
        Some(tokens) => {
            lines.push(format!(
                "every request needs a token. This start wrote two: {admin} (role admin, named {}) and {worker} (role worker, named {})",
                tokens.admin, tokens.worker
            ));
            lines.push(format!(
                "{}; to log in to the pages, use the token in {admin}",
                how_tokens_are_found(announcement)
            ));
        }
        None if takes_first_tokens => lines.push(match config.data_dir.join(ADMIN_TOKEN_FILE).exists() {
            true => format!(
                "every request needs a token; {}",
                how_tokens_are_found(announcement)
            ),
            false => format!(
                "every request needs a token, and {admin} does not exist. If you have no token, stop the server and run: {}",
                config.first_token()
            ),
        }),
        None => {}
    }
    let notices = server.notices();
    lines.extend(
        notices
            .into_iter()
            .map(|notice| format!("{}; {}", notice.message, notice.fix)),
    );
    lines
}

/// The start message of a server that was told to ask nobody for a token.
fn open_to_everybody(url: &str, no_auth: bool) -> String {
    let why = match no_auth {
        true => "--no-auth",
        false => "auth.required: false in the settings",
    };
    format!(
        "everybody who can reach {url} has the role admin, every user and every step of this machine included, because of {why}"
    )
}

/// Says where commands and workers have to be started to find the token files without a flag, or which flags they need.
fn how_tokens_are_found(announcement: &Announcement) -> String {
    let file = announcement.file();
    let file = file.canonicalize().unwrap_or(file.to_path_buf());
    let folder = file.parent().unwrap_or(Path::new("/"));
    if let (Some(name), Some(project)) = (folder.file_name(), folder.parent())
        && name == announce::FOLDER
    {
        return format!(
            "commands and workers that this user starts in {} or below find the token files without a flag",
            shell_path(project)
        );
    }
    let here = std::env::current_dir().ok();
    let found = here.as_deref().and_then(reach::announced);
    let is_found_here =
        found.is_some_and(|(_, found)| found.canonicalize().is_ok_and(|found| found == file));
    if let Some(here) = here.filter(|_| is_found_here) {
        return format!(
            "commands and workers that this user starts in {} find the token files without a flag",
            shell_path(&here)
        );
    }
    let announced = announcement.announced();
    let ca_file = announced.cert_file.as_deref();
    let ca_file = ca_file.map_or_else(String::new, |file| {
        format!(" --ca-file {}", shell_path(file))
    });
    let flags = |token_file: &str| {
        let token_file = shell_path(&folder.join(token_file));
        format!(
            "--server {} --token-file {token_file}{ca_file}",
            announced.url
        )
    };
    format!(
        "commands of this user need: {}; workers of this user need: {}",
        flags(ADMIN_TOKEN_FILE),
        flags(WORKER_TOKEN_FILE)
    )
}

/// Others than its owner and its group can read it.
fn is_open(file: &Path) -> bool {
    const READ_BY_OTHERS: u32 = 0o004;
    file.metadata()
        .is_ok_and(|found| found.permissions().mode() & READ_BY_OTHERS != 0)
}

/// Whoever says how often wants some.
fn has_forgotten_dir(settings: &[Setting]) -> bool {
    let is_written = |key: &str| {
        let of_file = |known: &&Setting| matches!(known.origin, Origin::File(..));
        settings
            .iter()
            .filter(of_file)
            .any(|known| known.key == key)
    };
    !is_written("backup.dir") && (is_written("backup.every_hours") || is_written("backup.keep"))
}

fn stopping(manager: &ServiceManager) {
    manager.stopping();
    say("stopping");
}

fn manner() -> Manner {
    Manner {
        prepare: |_| Vec::new(),
        introduce: Box::new(|worker, config, _| {
            introduce(worker, config.server_url.as_deref().unwrap_or_default());
        }),
    }
}

impl ServerArgs {
    pub fn put_over(self, config: &mut ServerConfig) {
        config.listen = self.listen.unwrap_or(config.listen);
        config.log.format = self.log_format.unwrap_or(config.log.format);
        if self.no_auth {
            config.auth.required = Some(false);
        }
        config.workflows_dir = self.workflows_dir.or(config.workflows_dir.take());
        if let Some(data_dir) = self.data_dir {
            config.data_dir = data_dir;
        }
        match self.embedded_worker {
            Some(true) => {
                config.embedded_worker.get_or_insert_default();
            }
            Some(false) => config.embedded_worker = None,
            None => {}
        }
    }
}

/// What is wrong inside is said file by file; that there is none has to do with the setting.
pub fn check_workflows_dir(folder: &Path) -> anyhow::Result<()> {
    let why = match folder.metadata() {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "it is no folder".to_string(),
        Err(error) => error.to_string(),
    };
    let folder = folder.display();
    Err(Fault::not_found(format!(
        "workflows_dir is {folder}, which cannot be read: {why}; name the folder of workflow files"
    )))
}
