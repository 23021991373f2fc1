//! HTTP in front of the engine.
//!
//! # Threads
//! | name | what it does | ends |
//! |---|---|---|
//! | `http` | turns bytes into requests and back; the only one with a runtime | when the front stops |
//! | `workers-1` … `workers-64` | carry out what workers ask, one request at a time each | when `http` has ended |
//! | `people-1` … `people-16` | the same for everybody else | when `http` has ended |
//! | `waiting-polls` | holds the polls of idle workers | when it is told |
//! | `assignments` | renders what idle workers are given | after `waiting-polls` |
//! | `event-streams` | tells all streams what happened | when it is told |
//! | `download` | sends one long log | with it |
//! | `sweeper` | recovery | when it is dropped |
//! | `reaper` | removes what is too old | when it is dropped |
//! | `workflows` | loads workflow files when they change | when it is dropped |
//! | `scheduler` | has schedules fire when it is time | when it is dropped |
//! | `outbox-NAME` | delivers messages to one target, each by a thread `outbox-send` | when it is dropped |
//! | `certificate` | looks whether the files of TLS have changed | when it is dropped |
//! | `log-sync` | syncs what was appended to logs, once a second | when it is dropped, after a last sync |
//! | `backup` | makes backups when they are due | when it is dropped, which gives up the one that it is making |
//! | `audit` | tells the audit log about refused requests, and logs its head once an hour | when it is dropped |
//! | `writer`, `answers` | the store's | when the last handle of the store goes |
//!
//! # How it stops
//! Waiting polls are let go, requests that were begun are answered, everything else is told to come back; then the sweeper ends,
//! and the store closes with its log moved into the database. Running steps know nothing of it: they report to the next life.

pub mod api;
mod audit_trail;
mod auth;
mod backups;
mod catalogue;
mod door;
mod download;
pub mod error;
mod exchange;
mod fair_queue;
mod first_start;
mod framing;
mod handlers;
mod http;
mod log_sync;
mod mailbox;
mod meter;
mod metrics;
mod openapi;
mod places;
mod reload;
mod rollback;
mod routes;
mod shares;
mod signed;
mod streams;
pub mod tls;
mod unread_answers;
mod waiting;
pub mod web;
mod worker_api;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backup::{LOGS_FOLDER, WORKFLOWS_FILE};
use crate::clock::{SystemClock, wall_time};
use crate::config::{self, ConfigError, ServerConfig, Setting};
use crate::domain::Timestamp;
use crate::domain::lineage::EpochHistory;
use crate::engine::{Engine, EngineError};
use crate::language::{Diagnostic, Library, Workflows};
use crate::logs::{FindLogTag, LogLimits, LogNames, Logs};
use crate::outbox::{Bell, Origin, Outbox};
use crate::reaper::Reaper;
use crate::scheduler::Scheduler;
use crate::secret_policy::SecretPolicy;
use crate::service::ServiceManager;
use crate::store::{AuditSubject, OpenError, Opening, Store, StoreOptions, hex_sha256};
use crate::sweeper::Sweeper;
use crate::wire::api::NoticeJson;
use api::hooks::{HookLog, HookSecrets};
use audit_trail::AuditTrail;
use auth::{Gate, GateOptions};
use backups::Backups;
use catalogue::{Catalogue, Loaded};
use door::Door;
use download::Downloads;
use handlers::Handlers;
use http::Front;
use log_sync::LogSync;
use mailbox::Mailbox;
use meter::Meter;
use metrics::Scrape;
use reload::{Reload, Watch};
use rollback::Rollback;
use shares::{ShareOwner, Shares};
use streams::Streams;
use tls::{Identity, Watching};
use waiting::Waiting;

pub use first_start::FirstTokens;
pub use http::Limits;
pub use reload::OnReload;
pub use routes::{Access, every_route};

/// Why a server does not start. One line: what is wrong, what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{folder} cannot be used for logs: {source}")]
    Logs {
        folder: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot listen on {address}: {source}; choose another with listen or --listen")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error(
        "{why}, and there is no valid token of role admin: make one with `{make}` and start again{or_else}"
    )]
    NoToken {
        why: String,
        make: String,
        or_else: &'static str,
    },
    #[error("the token of the first start cannot be written to {file}: {source}")]
    TokenFile {
        file: PathBuf,
        source: std::io::Error,
    },
    #[error("there is no randomness to be had: {0}")]
    Randomness(getrandom::Error),
    #[error("a thread could not be started: {0}")]
    Thread(std::io::Error),
    #[error("the database cannot be read: {0}")]
    Engine(#[from] EngineError),
}

/// What handlers work with.
pub struct App {
    engine: Engine,
    clock: Arc<SystemClock>,
    workflows: Arc<Catalogue>,
    /// Where they are read. `None`: nowhere.
    workflows_dir: Option<PathBuf>,
    logs: Logs,
    /// Kept so that the thread ends with the server.
    _log_sync: LogSync,
    /// What is shown. `None`: plain HTTP is spoken.
    certificate: Option<Arc<Identity>>,
    waiting: Waiting,
    streams: Streams,
    downloads: Downloads,
    sweeper: Sweeper,
    reaper: Reaper,
    /// To be woken when schedules have changed.
    scheduler: Arc<Scheduler>,
    /// For its end alone.
    _reload: Option<Reload>,
    outbox: Outbox,
    backups: Backups,
    installation: String,
    /// The starts of a server that the database knows, this one included.
    epochs: Arc<EpochHistory>,
    /// Workers that have seen a later state of the database.
    rollback: Rollback,
    /// Who messages are from.
    origin: Origin,
    hook_log: HookLog,
    hook_secrets: HookSecrets,
    gate: Arc<Gate>,
    /// Whether and why the server asks for a token.
    door: Door,
    /// For its end alone.
    _audit_trail: AuditTrail,
    meter: Arc<Meter>,
    shares: Arc<Shares>,
    scrape: Scrape,
    begun_at: Timestamp,
    config: ServerConfig,
    /// As they are in force, and where each comes from.
    settings: Vec<Setting>,
}

/// Where everybody must show a token, somebody must have one that opens everything, or the first start must be about to write it.
fn refuse_without_token(
    config: &ServerConfig,
    has_token: bool,
    writes_tokens: bool,
    opening: &Opening,
) -> Result<(), StartError> {
    if has_token || writes_tokens || opening.has_admin(wall_time())? {
        return Ok(());
    }
    let is_loopback = config.listen.ip().is_loopback();
    Err(StartError::NoToken {
        why: match (is_loopback, config.auth.required) {
            (true, Some(true)) => "auth.required is true".to_string(),
            (true, _) => "the server asks everybody for a token".to_string(),
            (false, _) => format!("listen is {}, which others can reach", config.listen),
        },
        make: config.first_token(),
        or_else: match is_loopback {
            true => "",
            false => ", or listen on 127.0.0.1",
        },
    })
}

/// Options of a start that are not settings.
struct StartOptions<'a> {
    /// The settings as they are in force, and where each comes from.
    settings: Vec<Setting>,
    /// The tasks to serve instead of those of the workflows folder.
    fixed: Option<&'a Workflows>,
    limits: Limits,
    on_reload: Option<OnReload>,
    manager: ServiceManager,
    accepts_older: bool,
    /// Whether this is `stepward server`, which others than the person who started it may reach. `dev`, `run` and `demo` stay open on
    /// loopback.
    is_for_others: bool,
}

impl StartOptions<'_> {
    fn new(settings: Vec<Setting>) -> StartOptions<'static> {
        StartOptions {
            settings,
            fixed: None,
            limits: Limits::default(),
            on_reload: None,
            manager: ServiceManager::default(),
            accepts_older: false,
            is_for_others: false,
        }
    }
}

/// Nobody knows where these come from.
fn unsaid(config: &ServerConfig) -> Vec<Setting> {
    // Without a file there is nothing that could not be read.
    config::in_force(config, None, &[]).unwrap_or_default()
}

/// A hash for each setting, so that the audit log can name those that changed since the last start. Values are not kept.
fn hashes_of_settings(settings: &[Setting]) -> BTreeMap<String, String> {
    let hashed = settings.iter().map(|setting| {
        let value = serde_json::to_string(&setting.value).unwrap_or_default();
        (setting.key.to_string(), hex_sha256(value.as_bytes()))
    });
    hashed.collect()
}

/// The logs of this installation. Their names contain the lineage of the attempt.
fn open_logs(folder: &Path, engine: &Engine) -> Result<Logs, StartError> {
    let lineages = engine.lineages()?;
    let limits = LogLimits::default();
    let logs = match lineages.current() {
        Some(current) => {
            let engine = engine.clone();
            let find_tag: Option<FindLogTag> = match lineages.is_only_one() {
                true => None,
                false => Some(Arc::new(move |attempt| {
                    let tag = engine.log_tag(attempt, &lineages);
                    tag.map_err(std::io::Error::other)
                })),
            };
            Logs::open_named(folder, limits, LogNames { current, find_tag })
        }
        None => Logs::open(folder, limits),
    };
    logs.map_err(|source| StartError::Logs {
        folder: folder.into(),
        source,
    })
}

/// A server that runs until it is stopped or dropped.
pub struct Server {
    front: Front,
    /// For its end alone.
    _certificate: Option<Watching>,
    app: Option<Arc<App>>,
    handlers: Handlers,
}

impl App {
    /// The engine's verbs as calls of the caller: events and the audit log say so.
    fn engine_for(&self, request: &exchange::Request) -> Engine {
        let engine = self.engine.acting(request.actor());
        engine.with_keys_of(request.caller.key_owner())
    }

    /// Returns the caller whose share of the server a request takes. `None`: the caller is exempt.
    fn share_owner(&self, request: &exchange::Request) -> Option<ShareOwner> {
        let asks = self.gate.asks_for_token();
        ShareOwner::of(&request.caller, request.headers.peer, asks)
    }

    /// Counts jobs that a request is about to make. An error says that its caller makes too many.
    fn count_submissions(
        &self,
        request: &exchange::Request,
        count: usize,
    ) -> Result<(), error::ApiError> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.shares
            .count_submissions(self.share_owner(request), count)
    }
}

impl Server {
    pub fn start(config: &ServerConfig) -> Result<Server, StartError> {
        Server::start_knowing(config, unsaid(config), None)
    }

    /// With where each setting comes from, for whoever looks at them; and somebody may be told whenever workflow files were loaded.
    pub fn start_knowing(
        config: &ServerConfig,
        settings: Vec<Setting>,
        on_reload: Option<OnReload>,
    ) -> Result<Server, StartError> {
        let options = StartOptions {
            on_reload,
            ..StartOptions::new(settings)
        };
        Server::begin(config, options)
    }

    /// Starts the server of `stepward server`.
    ///
    /// It asks for a token on loopback, too, if the data folder was created by version 0.2 or newer and the settings do not say
    /// otherwise. The first start that asks writes tokens for commands and workers of the same user into the data folder.
    ///
    /// `manager` hears from recovery that the server lives. A database that is older than its mark is refused, unless
    /// `accepts_older`.
    pub fn start_watched(
        config: &ServerConfig,
        settings: Vec<Setting>,
        manager: ServiceManager,
        accepts_older: bool,
    ) -> Result<Server, StartError> {
        let options = StartOptions {
            manager,
            accepts_older,
            is_for_others: true,
            ..StartOptions::new(settings)
        };
        Server::begin(config, options)
    }

    /// With other limits than the usual ones to what a client may cost.
    pub fn start_with(config: &ServerConfig, limits: Limits) -> Result<Server, StartError> {
        let options = StartOptions {
            limits,
            ..StartOptions::new(unsaid(config))
        };
        Server::begin(config, options)
    }

    /// With these tasks and no others, whatever becomes of their files. Nothing of them happens by itself: no schedule fires.
    pub fn start_serving(
        config: &ServerConfig,
        workflows: &Workflows,
    ) -> Result<Server, StartError> {
        let options = StartOptions {
            fixed: Some(workflows),
            ..StartOptions::new(unsaid(config))
        };
        Server::begin(config, options)
    }

    fn begin(config: &ServerConfig, options: StartOptions) -> Result<Server, StartError> {
        let StartOptions {
            settings: settings_known,
            fixed,
            limits,
            on_reload,
            manager,
            accepts_older,
            is_for_others,
        } = options;
        // Everything that can refuse a start comes first, and changes no file: see `store::Opening`.
        let token = config.token()?;
        let identity = match config.tls.files() {
            Some((cert_file, key_file)) => Some(Arc::new(Identity::load(cert_file, key_file)?)),
            None => None,
        };
        let polls_mailbox = Arc::<Mailbox<waiting::Message>>::default();
        let streams_mailbox = Arc::<Mailbox<streams::Message>>::default();
        let bell = Bell::new(&config.notify);
        let on_commit = {
            let (polls, streams) = (polls_mailbox.clone(), streams_mailbox.clone());
            let bell = bell.clone();
            move |notice: crate::store::Notice| {
                let (news, posted) = (notice.news, notice.posted);
                // Work first: whoever watches can wait.
                if notice.steps_ready || !notice.workers.is_empty() {
                    polls.put(notice);
                }
                if news {
                    streams.put(crate::store::Notice::default());
                }
                if posted {
                    bell.ring();
                }
            }
        };
        let public_url = config.public_url.as_deref().unwrap_or_default();
        let options = StoreOptions {
            on_commit: Some(Arc::new(on_commit)),
            public_url: public_url.trim_end_matches('/').to_string(),
            accepted_older_at: accepts_older.then(wall_time),
            ..StoreOptions::default()
        };
        let opening = Opening::check(&config.data_dir, options)?;
        let logs_folder = config.data_dir.join(LOGS_FOLDER);
        let in_logs = |source| StartError::Logs {
            folder: logs_folder.clone(),
            source,
        };
        Logs::check(&logs_folder).map_err(in_logs)?;
        let folder_door = opening.door()?;
        let asks = config.asks_for_token(is_for_others && folder_door.is_closed);
        let is_first_start =
            is_for_others && asks && token.is_none() && !folder_door.has_had_first_start;
        if asks {
            refuse_without_token(config, token.is_some(), is_first_start, &opening)?;
        }
        let address = config.listen;
        let in_listen = |source| StartError::Listen { address, source };
        let socket = http::bind(address).map_err(in_listen)?;
        let address = socket.local_addr().map_err(in_listen)?;

        let store = Store::finish(opening)?;
        if let Some(identity) = &identity {
            identity.tell_in(&config.data_dir);
        }
        let public_url = config.public_url.as_deref();
        let key = auth::load_or_create_session_key(&config.data_dir);
        let key = key.map_err(StartError::Randomness)?;
        let gate = Gate::new(&GateOptions {
            token: token.as_deref(),
            asks,
            listen: config.listen,
            public_url,
            speaks_tls: identity.is_some(),
            key: &key,
        });
        let gate = gate.map_err(StartError::Randomness)?;
        let settings = config.settings();
        let clock = Arc::new(SystemClock::continuing(store.begun_up(), &settings));
        let begun_at = clock.now().wall;
        // Only `stepward dev` is told of reloads, and only `stepward run` has fixed workflows: there the files are the user's own.
        let secret_policy = Arc::new(match on_reload.is_some() || fixed.is_some() {
            true => SecretPolicy::of_user(config),
            false => SecretPolicy::of_server(config),
        });
        let engine = Engine::new(store, settings)
            .with_secret_policy(secret_policy.clone())
            .with_own_worker(config.embedded_worker.is_some());
        let written = match is_first_start {
            true => first_start::write_tokens(&engine, &config.data_dir, clock.now())?,
            false => None,
        };
        let door = Door {
            is_for_others,
            is_folder_closed: folder_door.is_closed,
            first_tokens: written,
            address,
        };
        gate.load(&engine)?;
        let gate = Arc::new(gate);
        // The first commit of this start: the epoch records how many commits came before it.
        let epochs = Arc::new(engine.begin_epoch(clock.now())?);
        engine.note_authentication(asks, clock.now())?;
        let settings_hashes = hashes_of_settings(&settings_known);
        engine.note_known(AuditSubject::Settings, settings_hashes, clock.now())?;
        // Before the schedules are loaded: their times are to be on the clock of now.
        let now = clock.now();
        engine.follow_clock(None, clock.reading(now), now)?;
        let logs = open_logs(&logs_folder, &engine)?;
        let installation = engine.installation_key()?;
        let origin = Origin::new(&installation, config.public_url.as_deref());
        let thread = StartError::Thread;
        let catalogue = Arc::<Catalogue>::default();
        if let Some(workflows) = fixed {
            let loaded = Loaded::of_tasks(workflows, clock.now().wall);
            catalogue.replace(Arc::new(loaded));
        }
        let folder = config.workflows_dir.as_ref().filter(|_| fixed.is_none());
        let watch = match folder {
            Some(folder) => {
                let (catalogue, engine) = (catalogue.clone(), engine.clone());
                let memory = config.data_dir.join(WORKFLOWS_FILE);
                // Only `stepward dev` wants to hear of reloads, and there every new rule is an error.
                let library = match on_reload.is_some() {
                    true => Library::remembering_strictly(folder, &memory),
                    false => Library::remembering(folder, &memory),
                };
                let library = library.checking_secrets(secret_policy);
                let watch = Watch::new(library, catalogue, engine, clock.clone());
                let mut watch = watch.telling(on_reload);
                watch.load()?;
                Some(watch)
            }
            None => {
                engine.set_schedules(&[], true, clock.now())?;
                None
            }
        };
        let tasks = {
            let catalogue = catalogue.clone();
            move |name: &str| catalogue.current().tasks.get(name).cloned()
        };
        let scheduler = Scheduler::start(engine.clone(), clock.clone(), Arc::new(tasks));
        let scheduler = Arc::new(scheduler.map_err(thread)?);
        let reload = watch.map(|watch| watch.start(scheduler.clone()));
        // Before anything can happen: what happens is for those that it knows.
        let outbox = Outbox::start(&engine, &clock, &config.notify, origin.clone(), &bell);
        let outbox = outbox.map_err(thread)?;
        let waiting = Waiting::start(engine.clone(), clock.clone(), polls_mailbox);
        let shares = Arc::new(Shares::new(config.limits));
        let streams_max = limits.streams_max;
        let streams = Streams::start(engine.clone(), streams_mailbox, streams_max, shares.clone());
        let sweeper = Sweeper::start_watched(engine.clone(), clock.clone(), manager);
        let backups = Backups::start(&engine, &clock, config, &settings_known, &installation);
        let bounds = config.retention.bounds();
        let reaper = Reaper::start(engine.clone(), logs.clone(), bounds, clock.clone());
        let audit_trail = AuditTrail::start(engine.clone(), clock.clone(), gate.clone());
        let app = Arc::new(App {
            waiting: waiting.map_err(thread)?,
            streams: streams.map_err(thread)?,
            sweeper: sweeper.map_err(thread)?,
            reaper: reaper.map_err(thread)?,
            outbox,
            backups: backups.map_err(thread)?,
            origin,
            hook_log: HookLog::default(),
            hook_secrets: HookSecrets::default(),
            _log_sync: LogSync::start(logs.clone()).map_err(thread)?,
            scheduler,
            _reload: reload.transpose().map_err(thread)?,
            workflows: catalogue,
            workflows_dir: folder.map(|folder| folder.canonicalize().unwrap_or(folder.clone())),
            downloads: Downloads::new(shares.clone()),
            certificate: identity.clone(),
            engine,
            clock,
            logs,
            installation,
            epochs,
            rollback: Rollback::default(),
            _audit_trail: audit_trail.map_err(thread)?,
            gate,
            door,
            meter: Arc::default(),
            shares,
            scrape: Scrape::default(),
            begun_at,
            config: config.clone(),
            settings: settings_known,
        });
        let handlers = Handlers::start(&app, limits.queued_max).map_err(thread)?;
        let watching = identity.clone().map(Watching::start).transpose();
        let certificate = watching.map_err(thread)?;
        let front = Front::start(socket, handlers.door.clone(), identity, limits);
        Ok(Server {
            _certificate: certificate,
            front: front.map_err(in_listen)?,
            app: Some(app),
            handlers,
        })
    }

    /// Where it listens: the port that was chosen, if none was given.
    pub fn address(&self) -> SocketAddr {
        self.front.address
    }

    /// What the worker in the server's own process shows, in this life of the server.
    pub fn own_worker_token(&self) -> Option<String> {
        let app = self.app.as_ref().filter(|app| app.gate.asks_for_token())?;
        Some(app.gate.own_worker_token().to_string())
    }

    /// Whether whoever comes must show a token.
    pub fn asks_for_token(&self) -> bool {
        (self.app.as_ref()).is_some_and(|app| app.gate.asks_for_token())
    }

    /// The names of the tokens that this start has written into the data folder. `None`: an earlier start wrote them, or none did.
    pub fn first_tokens(&self) -> Option<&FirstTokens> {
        self.app.as_ref()?.door.first_tokens.as_ref()
    }

    /// Returns the problems with authentication and with secrets of webhooks, for the start message.
    pub fn notices(&self) -> Vec<NoticeJson> {
        let app = self.app.as_ref();
        app.map_or_else(Vec::new, |app| api::health::notices(app, true))
    }

    /// How many tasks can be submitted.
    pub fn tasks(&self) -> usize {
        self.app
            .as_ref()
            .map_or(0, |app| app.workflows.current().tasks.len())
    }

    /// What some task needs of a worker.
    pub fn needed_tags(&self) -> BTreeSet<String> {
        let Some(app) = &self.app else {
            return BTreeSet::new();
        };
        let loaded = app.workflows.current();
        let definitions = loaded.tasks.values().map(|task| &task.definition);
        let tasks = definitions.flat_map(|definition| definition.tasks());
        let steps = tasks.flat_map(|task| &task.draft.steps);
        steps.flat_map(|step| step.required_tags()).collect()
    }

    /// What is wrong with the workflow files.
    pub fn problems(&self) -> Vec<Diagnostic> {
        let app = self.app.as_ref();
        app.map_or_else(Vec::new, |app| app.workflows.current().problems.clone())
    }

    /// Polls that wait for something to do.
    pub fn long_polls(&self) -> usize {
        self.app.as_ref().map_or(0, |app| app.waiting.count())
    }

    /// Streams of events that somebody listens to.
    pub fn event_streams(&self) -> usize {
        self.app.as_ref().map_or(0, |app| app.streams.count())
    }

    /// Ends in seconds, whoever is connected.
    pub fn stop(&mut self) {
        let Some(app) = self.app.take() else {
            return;
        };
        // First of all, so that whoever comes while the others end is told why there is no answer.
        self.front.close();
        // Whoever waits for a copy of the database is answered, and lets go of his thread.
        app.backups.stop();
        app.waiting.stop();
        app.streams.stop();
        self.front.stop();
        self.handlers.stop();
        let saved = app.engine.save_clock(app.clock.now());
        if let Err(error) = saved {
            log::warn!("the service clock could not be saved: {error}");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
