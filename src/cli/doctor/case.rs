//! The installation that is looked at: its settings, its folder, its server. Each is asked for once, and only if a check needs it.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Finding;
use crate::backup::WORKFLOWS_FILE;
use crate::cli::announce;
use crate::cli::exit::Exit;
use crate::cli::files::{WORKER_CONFIG, config_file, workflows_folder};
use crate::cli::reach::{NamedBy, Reach, Remote, first_token, token_variable};
use crate::cli::settings::{self, Known};
use crate::client::CallError;
use crate::clock::{monotonic_ms, wall_time};
use crate::config::{ServerConfig, WorkerConfig, read_token};
use crate::domain::Timestamp;
use crate::language::{self, AcceptedTexts, Checked};
use crate::store::{DATABASE_FILE, ExamineError, Examined, examine};
use crate::wire::NO_ROUTE;
use crate::wire::api::{Health, List, RecoveryJson, ScheduleJson, TaskJson, WorkerJson};

/// Whoever takes longer to say that he is there has a problem.
const PATIENCE: Duration = Duration::from_secs(10);
/// More of a list nobody has.
const LIST_MAX: usize = 100_000;

pub struct Case {
    /// The server's settings file, named by whoever asks.
    pub config: Option<PathBuf>,
    pub server: anyhow::Result<Known<ServerConfig>>,
    /// `None`: there is no file for one here.
    pub worker: Option<anyhow::Result<Known<WorkerConfig>>>,
    /// Named by whoever asks.
    named_data_dir: Option<PathBuf>,
    reach: Reach,
    found: OnceCell<Found>,
    examined: OnceCell<Result<Examined, ExamineError>>,
    checked: OnceCell<Option<Checked>>,
}

pub enum Found {
    Nobody,
    /// What was said of it makes no sense.
    Misnamed(String),
    /// It was killed.
    Ended(String),
    Silent(Box<Remote>, String),
    Answering(Box<Answering>),
}

pub struct Answering {
    pub remote: Remote,
    pub health: Health,
    pub ms: i64,
    /// By this machine's clock, in the middle of asking.
    pub asked_at: Timestamp,
    /// Why it lets us look no further.
    pub refusal: Option<String>,
}

impl Case {
    pub fn new(config: Option<PathBuf>, data_dir: Option<PathBuf>, reach: Reach) -> Case {
        let has_worker = config_file(None, WORKER_CONFIG).is_some();
        Case {
            server: settings::server(config.as_deref(), &[]),
            config,
            worker: has_worker.then(|| settings::worker(None, &[])),
            named_data_dir: data_dir,
            reach,
            found: OnceCell::new(),
            examined: OnceCell::new(),
            checked: OnceCell::new(),
        }
    }

    /// The server's, if it is known.
    pub fn data_dir(&self) -> Option<&Path> {
        let of_settings = self.server.as_ref().ok();
        let of_settings = of_settings.map(|known| known.config.data_dir.as_path());
        self.named_data_dir.as_deref().or(of_settings)
    }

    /// Somebody says that it is there.
    pub fn is_data_dir_named(&self) -> bool {
        self.named_data_dir.is_some()
    }

    /// For checks that need it.
    pub fn some_data_dir(&self) -> Result<&Path, Finding> {
        self.data_dir().ok_or_else(|| {
            Finding::skipped("the settings do not load, so the data folder is not known")
                .fix("name it: stepward doctor --data-dir FOLDER")
        })
    }

    /// Settings of workers of this machine: its own file's, the server's own worker's.
    pub fn worker_configs(&self) -> Vec<&WorkerConfig> {
        let own = self.worker.as_ref().and_then(|known| known.as_ref().ok());
        let server = self.server.as_ref().ok();
        let embedded = server.and_then(|known| known.config.embedded_worker.as_ref());
        own.map(|known| &known.config)
            .into_iter()
            .chain(embedded)
            .collect()
    }

    pub fn examined(&self, folder: &Path) -> &Result<Examined, ExamineError> {
        self.examined.get_or_init(|| examine(folder))
    }

    pub fn workflows_folder(&self) -> Option<PathBuf> {
        workflows_folder(&self.server.as_ref().ok()?.config)
    }

    /// The workflow files of this machine.
    pub fn workflows(&self) -> Option<&Checked> {
        let load = || {
            let folder = self.workflows_folder().filter(|folder| folder.is_dir())?;
            let data_dir = &self.server.as_ref().ok()?.config.data_dir;
            let accepted = AcceptedTexts::read(&folder, &data_dir.join(WORKFLOWS_FILE));
            Some(language::load_accepting(&folder, accepted))
        };
        self.checked.get_or_init(load).as_ref()
    }

    pub fn found(&self) -> &Found {
        self.found.get_or_init(|| self.find())
    }

    fn find(&self) -> Found {
        let remote = match self.reach.find() {
            Err(error) => return Found::Misnamed(format!("{error:#}")),
            Ok(Some(remote)) => remote,
            Ok(None) => match self.announced() {
                None => return self.ended().unwrap_or(Found::Nobody),
                Some(Err(fault)) => return Found::Misnamed(fault),
                Some(Ok(remote)) => remote,
            },
        };
        let (asked_ms, asked_at) = (monotonic_ms(), wall_time());
        let health = remote.client.ready(PATIENCE);
        let (ms, heard_at) = (monotonic_ms() - asked_ms, wall_time());
        let has_nothing =
            matches!(&health, Err(CallError::Refused { error, .. }) if error.code == NO_ROUTE);
        let health = match remote.heard(health) {
            Err(error) if has_nothing => return Found::Misnamed(format!("{error:#}")),
            Err(error) if Exit::of(&error) == Exit::Unreachable => {
                return Found::Silent(Box::new(remote), format!("{error:#}"));
            }
            health => health,
        };
        let why = health.as_ref().err().map(|error| format!("{error:#}"));
        Found::Answering(Box::new(Answering {
            ms,
            asked_at: Timestamp((asked_at.0 + heard_at.0) / 2),
            refusal: why.or_else(|| refusal(&remote)),
            health: health.unwrap_or_else(|_| nothing_known()),
            remote,
        }))
    }

    /// The server of the data folder, which need not be below this one.
    fn announced(&self) -> Option<Result<Remote, String>> {
        let (announced, file) = announce::of_folder(self.data_dir()?)?;
        let token = match &announced.token_file {
            None => match token_variable() {
                Ok(Some(token)) => Some(token),
                Ok(None) => first_token(&announced, &file).map(|(token, _)| token),
                Err(fault) => return Some(Err(fault.to_string())),
            },
            Some(file) => match read_token(file) {
                Ok(token) => Some(token),
                Err(fault) => return Some(Err(fault.to_string())),
            },
        };
        let trust = match announced.trust() {
            Ok(trust) => trust,
            Err(fault) => return Some(Err(fault.to_string())),
        };
        let (url, token) = (&announced.url, token.as_deref());
        let named_by = NamedBy::Folder(file, announced.pid);
        Some(Ok(Remote::trusting(url, token, trust.as_ref(), named_by)))
    }

    /// The server of the data folder, if it was killed. Nobody is asked: somebody else may have its port.
    fn ended(&self) -> Option<Found> {
        let (announced, file) = announce::ended_in(self.data_dir()?)?;
        Some(Found::Ended(format!(
            "the server of {} (process {}) has ended",
            file.parent()?.display(),
            announced.pid
        )))
    }

    /// For checks that need one.
    pub fn answering(&self) -> Result<&Answering, Finding> {
        match self.found() {
            Found::Nobody => Err(self.nobody()),
            Found::Misnamed(_) | Found::Ended(_) | Found::Silent(..) => {
                Err(Finding::skipped("the server does not answer"))
            }
            Found::Answering(server) => match server.refusal {
                Some(_) => Err(Finding::skipped("the server lets nobody look")),
                None => Ok(server),
            },
        }
    }

    pub fn has_database(&self) -> bool {
        let folder = self.data_dir();
        folder.is_some_and(|folder| folder.join(DATABASE_FILE).exists())
    }

    pub fn nobody(&self) -> Finding {
        match self.data_dir().filter(|_| self.has_database()) {
            Some(folder) => Finding::skipped(format!(
                "no server runs with {}, and none is named",
                folder.display()
            ))
            .fix("start it: stepward server, or stepward dev; or name another: --server URL"),
            None => Finding::skipped("no server is named")
                .fix("name one: stepward doctor --server URL, or set STEPWARD_SERVER_URL"),
        }
    }
}

fn nothing_known() -> Health {
    Health {
        status: String::new(),
        problems: Vec::new(),
        warnings: Vec::new(),
        rollback: None,
        notices: Vec::new(),
        version: None,
        now: None,
    }
}

/// Anybody may ask for its health; the rest is for those who are let in.
fn refusal(remote: &Remote) -> Option<String> {
    let asked: anyhow::Result<List<ScheduleJson>> = remote.get("/api/schedules?limit=1");
    asked.err().map(|error| format!("{error:#}"))
}

impl Answering {
    pub fn get<A: serde::de::DeserializeOwned>(&self, path: &str) -> Result<A, Finding> {
        told(self.remote.get(path))
    }

    pub fn all<A: serde::de::DeserializeOwned>(&self, path: &str) -> Result<Vec<A>, Finding> {
        told(self.remote.all(path, "after", LIST_MAX))
    }

    pub fn workers(&self) -> Result<Vec<WorkerJson>, Finding> {
        self.all("/api/workers?limit=500")
    }

    pub fn tasks(&self) -> Result<Vec<TaskJson>, Finding> {
        self.all("/api/tasks?limit=500")
    }

    pub fn recovery(&self) -> Result<RecoveryJson, Finding> {
        self.get("/api/recovery")
    }

    /// Its own clock, if it tells.
    pub fn now(&self) -> Timestamp {
        self.health.now.map_or(self.asked_at, |now| now.0)
    }
}

fn told<A>(answer: anyhow::Result<A>) -> Result<A, Finding> {
    let problem = |error| Finding::problem(format!("{error:#}"));
    answer.map_err(|error: anyhow::Error| problem(error).fix("look into the log of the server"))
}
