//! `stepward worker`: a worker, in the foreground, until it is told to stop.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use crossbeam_channel::{Receiver, select};

use super::announce::TokenUse;
use super::exit::{Exit, Fault};
use super::files::{WORKER_CONFIG, config_file};
use super::fleet::{self, FleetVerb};
use super::own_log::say;
use super::process;
use super::reach::{TOKEN_FILE_VARIABLE, announced, here, is_same_url, is_typed, token_word};
use super::words::count;
use crate::config::environment::unknown_worker_variables;
use crate::config::{LogFormat, WorkerConfig, read_token};
use crate::domain::token::TokenText;
use crate::service::ServiceManager;
use crate::store::DATABASE_FILE;
use crate::worker::enrol::{self, EnrolError};
use crate::worker::{EndError, Worker};

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
    /// The server, such as http://127.0.0.1:7717; else that of the settings, or of the `.stepward` folder here or above.
    #[arg(long, value_name = "URL", env = "STEPWARD_SERVER_URL")]
    server: Option<String>,
    /// Its token, or an enrolment, which is exchanged for one. Others on this machine can see arguments: the environment is better, a file best.
    #[arg(long, env = "STEPWARD_TOKEN", hide_env_values = true, value_parser = token_word)]
    token: Option<String>,
    /// A file with its token, or with an enrolment, which is exchanged for one.
    #[arg(long, value_name = "FILE", env = "STEPWARD_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// A file with the server's certificate, or with the one that signed it; else those of public authorities.
    #[arg(long, value_name = "FILE", env = "STEPWARD_CA_FILE")]
    ca_file: Option<PathBuf>,
    /// What to call it.
    #[arg(long, env = "STEPWARD_WORKER_NAME")]
    name: Option<String>,
    /// What it offers.
    #[arg(long, value_delimiter = ',', env = "STEPWARD_WORKER_TAGS")]
    tags: Option<Vec<String>>,
    /// How many steps it runs at a time.
    #[arg(long, env = "STEPWARD_WORKER_SLOTS")]
    slots: Option<u32>,
    /// Its folder.
    #[arg(long, value_name = "FOLDER", env = "STEPWARD_WORKER_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// How the lines of its own log look.
    #[arg(long, env = "STEPWARD_WORKER_LOG_FORMAT", value_enum)]
    log_format: Option<LogFormat>,
}

pub fn run(mut args: WorkerArgs) -> anyhow::Result<Exit> {
    if let Some(verb) = args.fleet.take() {
        return fleet::run(verb);
    }
    let file = config_file(args.config.as_deref(), WORKER_CONFIG);
    process::begin_by(file.as_deref(), args.log_format);
    let given = GivenToken::of(&args)?;
    let config = WorkerConfig::load_with(file.as_deref(), |config| args.put_over(config))?;
    for unknown in unknown_worker_variables() {
        log::warn!("{unknown}");
    }
    if config.data_dir.join(DATABASE_FILE).exists() {
        log::warn!(
            "{} is the data folder of a server: give the worker a folder of its own with --data-dir or STEPWARD_WORKER_DATA_DIR",
            config.data_dir.display()
        );
    }
    let (config, mut token) = with_server(config, given)?;
    if let Some(folder) = &token.server_folder {
        say(steps_read(folder));
    }
    let signals = process::signals()?;
    let manager = ServiceManager::of_process();
    // Whether its server is there now or not: it waits for one that is away, as it does at any other time.
    manager.ready();
    let own = match enrol::token_for(&config, token.word.as_deref(), &signals) {
        Ok(own) => own,
        Err(EnrolError::Interrupted) => return Ok(Exit::Interrupted),
        Err(error @ EnrolError::Refused(_)) => {
            return Err(Fault::new(Exit::NotAllowed, error.to_string()).into());
        }
        Err(error @ EnrolError::TooOld(_)) => {
            return Err(Fault::new(Exit::TooOld, error.to_string()).into());
        }
        Err(error) => return Err(error.into()),
    };
    if token.word.is_none() && own.is_some() {
        token.from = TokenFrom::File(config.data_dir.join(enrol::FILE));
    }
    let worker = Worker::start_watched(&config, own, manager.clone())?;
    let url = config.server_url.as_deref().unwrap_or_default();
    introduce(&worker, url);
    match wait(worker, &signals, &manager) {
        Ok(exit) => Ok(exit),
        Err(EndError::NotAllowed) => {
            Err(Fault::new(Exit::NotAllowed, token.refused_by(url)).into())
        }
        Err(EndError::OfAnotherRole(why)) => {
            let fault = format!("the server at {url} says: {why}; {ASK_FOR_ENROLMENT}");
            Err(Fault::new(Exit::NotAllowed, fault).into())
        }
        Err(EndError::ShutOut { untold }) => {
            Err(Fault::new(Exit::NotAllowed, shut_out_by(url, untold)).into())
        }
        Err(EndError::TooOld(why)) => {
            let fault = format!("the server at {url} says: {why}");
            Err(Fault::new(Exit::TooOld, fault).into())
        }
        Err(EndError::Other(why)) => Err(Fault::new(Exit::Error, why).into()),
    }
}

const ASK_FOR_ENROLMENT: &str =
    "ask there for an enrolment, which `stepward token new NAME --role enrolment` makes";

/// A token, and who named it.
struct Token {
    word: Option<String>,
    from: TokenFrom,
    /// The data folder of the server, if this user can read it.
    server_folder: Option<PathBuf>,
    /// Why the token file of the server's data folder is ignored though it is there.
    ignored: Option<String>,
}

enum TokenFrom {
    Nobody,
    Flag,
    Variable,
    File(PathBuf),
}

/// What flags and variables say of it, before the settings and the folder are asked.
enum GivenToken {
    Word(String, TokenFrom),
    /// The settings have its name by now, if there is one.
    InFile,
}

impl GivenToken {
    /// A flag comes before a variable. Of two variables the file comes first, as in every other command.
    fn of(args: &WorkerArgs) -> anyhow::Result<GivenToken> {
        let word = args.token.as_deref().map(OsStr::new);
        let file = args.token_file.as_deref().map(Path::as_os_str);
        let by_flag = (
            is_typed(word, "STEPWARD_TOKEN"),
            is_typed(file, TOKEN_FILE_VARIABLE),
        );
        if by_flag == (true, true) {
            let fault = "--token and --token-file both name a token, give one of them";
            return Err(Fault::usage(fault));
        }
        Ok(match &args.token {
            Some(word) if by_flag.0 => GivenToken::Word(word.clone(), TokenFrom::Flag),
            Some(word) if file.is_none() => GivenToken::Word(word.clone(), TokenFrom::Variable),
            _ => GivenToken::InFile,
        })
    }
}

/// Whether the worker was enrolled before.
fn has_own_token(config: &WorkerConfig) -> bool {
    config.data_dir.join(enrol::FILE).exists()
}

/// Flags and variables, then the settings file, then whoever announced itself in this folder or above: nobody else is spoken to.
fn with_server(
    mut config: WorkerConfig,
    given: GivenToken,
) -> anyhow::Result<(WorkerConfig, Token)> {
    let found_token;
    let mut ignored = None;
    // The data folder of a server that asks for tokens, if it is this machine's.
    let mut server_folder = None;
    if let Some(url) = &config.server_url {
        let found = std::env::current_dir()
            .ok()
            .and_then(|here| announced(&here));
        let found = found.filter(|(announced, _)| is_same_url(&announced.url, url));
        found_token = found.and_then(|(announced, file)| {
            server_folder = announced.closed_folder(&file);
            if has_own_token(&config) {
                return None;
            }
            ignored = announced.why_first_token_ignored(&file, TokenUse::Worker);
            announced.first_token(&file, TokenUse::Worker)
        });
    } else {
        let Some((announced, file)) = announced(&here()?) else {
            let message = "no server is known here: name one with --server URL, STEPWARD_SERVER_URL or server_url in the \
                           worker's settings file, or go to a folder that has one";
            return Err(Fault::new(Exit::Unreachable, message).into());
        };
        let is_needed = matches!(given, GivenToken::InFile) && config.token_file.is_none();
        // A worker that was enrolled keeps the token that is its own, unless one token opens everything.
        let is_enrolled = announced.token_file.is_none() && has_own_token(&config);
        found_token = match is_needed && !is_enrolled {
            true => announced.token(&file, TokenUse::Worker)?,
            false => None,
        };
        server_folder = announced.closed_folder(&file);
        ignored = announced.why_first_token_ignored(&file, TokenUse::Worker);
        config.server_url = Some(announced.url);
        config.ca_file = config.ca_file.or(announced.cert_file);
    }
    let (word, from) = match given {
        GivenToken::Word(word, from) => (Some(word), from),
        GivenToken::InFile => match (&config.token_file, found_token) {
            (Some(file), _) => (Some(read_token(file)?), TokenFrom::File(file.clone())),
            (None, Some((token, file))) => (Some(token), TokenFrom::File(file)),
            (None, None) => (None, TokenFrom::Nobody),
        },
    };
    if word.as_deref().is_some_and(TokenText::is_broken) {
        let from = match &from {
            TokenFrom::File(file) => format!(" in {}", file.display()),
            _ => String::new(),
        };
        let fault = format!("the token{from} is cut off or mistyped, copy it once more");
        return Err(Fault::usage(fault));
    }
    let token_folder = match &from {
        TokenFrom::File(file) => file.parent().map(Path::to_path_buf),
        TokenFrom::Nobody | TokenFrom::Flag | TokenFrom::Variable => None,
    };
    let mut folders = server_folder.into_iter().chain(token_folder);
    let token = Token {
        word,
        from,
        server_folder: folders.find(|folder| is_readable_server(folder)),
        ignored,
    };
    Ok((config, token))
}

/// Whether this is the data folder of a server whose database this user can read.
fn is_readable_server(folder: &Path) -> bool {
    File::open(folder.join(DATABASE_FILE)).is_ok()
}

/// What steps of a worker can read that runs as the user of its server.
fn steps_read(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "steps of this worker run as the user of the server: they can read its tokens, its database and its secret key in {folder}; \
         run a worker for steps that you do not trust as another user: stepward token new NAME --role enrolment --to FILE, then \
         as that user: stepward worker --name NAME --server URL --token-file FILE"
    )
}

impl Token {
    fn refused_by(&self, url: &str) -> String {
        let sent = match &self.from {
            TokenFrom::Nobody => "and was sent none".to_string(),
            TokenFrom::Flag => "and refuses that of --token".to_string(),
            TokenFrom::Variable => "and refuses that of STEPWARD_TOKEN".to_string(),
            TokenFrom::File(file) => format!("and refuses that of {}", file.display()),
        };
        let ignored = self
            .ignored
            .as_ref()
            .map_or_else(String::new, |why| format!("{why}; or "));
        format!(
            "the server at {url} wants a token {sent}: {ignored}name the file that has the right one with --token-file or \
             token_file in the worker's settings, or set STEPWARD_TOKEN; the user that runs the server finds one in worker.token of \
             its data folder, everybody else should {ASK_FOR_ENROLMENT}"
        )
    }
}

/// It was let in before: its token was revoked since, or has expired.
fn shut_out_by(url: &str, untold: usize) -> String {
    let results = match untold {
        0 => String::new(),
        untold => format!(", and {} could not be told to it", count(untold, "result")),
    };
    format!(
        "the server at {url} does not take this worker's token any more{results}: {ASK_FOR_ENROLMENT}"
    )
}

impl WorkerArgs {
    pub fn put_over(self, config: &mut WorkerConfig) {
        fn put<T>(given: Option<T>, setting: &mut T) {
            if let Some(given) = given {
                *setting = given;
            }
        }
        config.server_url = self.server.or(config.server_url.take());
        config.token_file = self.token_file.or(config.token_file.take());
        config.ca_file = self.ca_file.or(config.ca_file.take());
        put(self.name, &mut config.name);
        put(self.tags, &mut config.tags);
        put(self.slots, &mut config.slots);
        put(self.data_dir, &mut config.data_dir);
        put(self.log_format, &mut config.log.format);
    }
}

pub fn introduce(worker: &Worker, server_url: &str) {
    let (name, tags) = (&worker.name, worker.offer.tags.join(", "));
    let slots = count(worker.slots as usize, "slot");
    say(format!(
        "worker {name} offers {tags} with {slots} to {server_url}"
    ));
    for remark in &worker.offer.remarks {
        say(remark);
    }
}

/// The first signal drains, the second ends what runs, the third ends everything.
fn wait(
    worker: Worker,
    signals: &Receiver<()>,
    manager: &ServiceManager,
) -> Result<Exit, EndError> {
    let mut signalled = 0;
    loop {
        select! {
            recv(worker.done()) -> _ => break,
            recv(signals) -> _ => {
                signalled += 1;
                match signalled {
                    1 => {
                        manager.stopping();
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
    worker.wait()?;
    if signalled == 0 {
        say("somebody had it drained; it has left");
    }
    Ok(Exit::Success)
}
