//! The process that runs steps.
//!
//! One thread owns all state (`WorkerLoop`): it asks `machine.rs`, the worker's mind, what to do, and has it done. Everything else
//! only does as it is told and says how it went: `calls.rs` speaks to the server, `slot.rs` runs one attempt, `shipping.rs` sends
//! logs, `folder.rs` keeps what must survive. Nothing is shared, so nothing is locked.
//!
//! | thread | what it does |
//! |---|---|
//! | `worker` | the loop |
//! | `worker-heartbeat`, `worker-poll`, `worker-report` | one call at a time each, on connections of their own |
//! | `worker-logs` | sends logs |
//! | one per attempt, one for what it prints | `slot.rs`, `capture.rs` |
//!
//! Deliberately not here: `engine` and `store`. A worker knows the server only by what it is answered, also in the same process.

pub mod attempt_log;
mod calls;
pub mod capture;
mod descriptors;
pub mod enrol;
pub mod executor;
mod folder;
mod machine;
pub mod marked;
pub mod mask;
pub mod orphans;
pub mod output;
pub mod processes;
mod seen;
mod shipping;
pub mod slot;
pub mod supervised;
pub mod supervisor;
mod tree;

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, select, unbounded};

use crate::client::Client;
use crate::clock::monotonic_ms;
use crate::config::{ConfigError, WorkerConfig};
use crate::domain::AttemptRef;
use crate::domain::peer::{Feature, Features};
use crate::domain::protocol::{
    Assignment, Finished, LogDigest, Registration, Reports, ReportsAnswer, Spooled, Verdict,
};
use crate::domain::settings::Settings;
use crate::essential::spawn_essential;
use crate::service::ServiceManager;
use calls::{Call, Calls};
use executor::Tools;
use folder::{Folder, FolderError};
use seen::SeenEpoch;
use shipping::Shipping;
use slot::{Listeners, Slot, SlotNews, SlotSettings, Stop};

pub use attempt_log::LogLimits;
pub use executor::Offer;
pub use machine::{Event, Kill, Machine, Moment, Order, SessionKey, Trouble};

/// How long a result waits for its log to be sent before it.
const LOG_WAIT: Duration = Duration::from_secs(5);
/// While it drains, the service manager may miss it for so long.
const DRAIN_SIGN: Duration = Duration::from_secs(60);

/// Why a worker does not start. One line: what is wrong, what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Settings(String),
    #[error("this very program cannot be found again, which is needed to run steps: {0}")]
    OwnPath(std::io::Error),
    #[error("this system does not let a worker keep hold of what its steps start: {0}")]
    Orphans(std::io::Error),
    #[error("a thread could not be started: {0}")]
    Thread(std::io::Error),
    #[error("no server is named")]
    NoServer,
    #[error("none of its tags can be offered:\n{}", .0.join("\n"))]
    NothingToOffer(Vec<String>),
}

/// What the loop hears.
pub enum WorkerEvent {
    Mind(Event),
    /// The server has the log of this attempt only up to this offset.
    ResendLog(AttemptRef, u64),
    /// The server takes no more calls of this version of the worker, and says which version to install.
    TooOld(String),
    /// It cannot go on, and a person must know.
    Fatal(EndError),
}

/// Why a worker ended that nobody told to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndError {
    /// At the very first call: it never was this server's.
    #[error("the server does not take its token")]
    NotAllowed,
    /// The same with a token that is good for something else, in the server's words.
    #[error("{0}")]
    OfAnotherRole(String),
    /// With how many results that could not be told.
    #[error("the server does not take its token any more")]
    ShutOut { untold: usize },
    /// The server does not understand this version of the worker any more, in the server's words.
    #[error("{0}")]
    TooOld(String),
    #[error("{0}")]
    Other(String),
}

/// A worker that runs until it has drained.
pub struct Worker {
    pub name: String,
    pub slots: u32,
    pub offer: Offer,
    events: Sender<WorkerEvent>,
    thread: JoinHandle<Result<(), EndError>>,
    done: Receiver<()>,
}

impl Worker {
    /// What a start would say of its folder.
    pub fn check_folder(data_dir: &Path) -> Result<(), StartError> {
        Folder::open(data_dir)?;
        Ok(())
    }

    /// `token` comes before the file that the settings name.
    pub fn start(config: &WorkerConfig, token: Option<String>) -> Result<Worker, StartError> {
        Worker::start_watched(config, token, ServiceManager::default())
    }

    /// The service manager hears from its loop that it lives.
    pub fn start_watched(
        config: &WorkerConfig,
        token: Option<String>,
        manager: ServiceManager,
    ) -> Result<Worker, StartError> {
        let token = match token {
            Some(token) => Some(token),
            None => config.token()?,
        };
        let server_url = config.server_url.as_deref().ok_or(StartError::NoServer)?;
        let folder = Arc::new(Folder::open(&config.data_dir)?);
        let name = match config.name.is_empty() {
            true => machine_name(),
            false => config.name.clone(),
        };
        let tools = Arc::new(tools(config, server_url, &folder, &name)?);
        let offer = executor::offer(&config.tags, &tools);
        if offer.tags.is_empty() && !config.tags.is_empty() {
            return Err(StartError::NothingToOffer(offer.remarks));
        }
        orphans::adopt().map_err(StartError::Orphans)?;
        end_former_life(&folder, &tools, &config.tags, &offer);
        let registration = Registration {
            instance_key: folder.instance_key.clone(),
            session_key: folder::random_key().map_err(StartError::Thread)?,
            name: name.clone(),
            tags: offer.tags.clone(),
            slots: config.slots,
            version: env!("CARGO_PKG_VERSION").to_string(),
            platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
            features: Features::OF_WORKER,
        };
        let (events, inbox) = unbounded();
        let trust = config.trust()?;
        let seen = Arc::new(SeenEpoch::load(&folder));
        let new_client = || {
            let client = Client::trusting(server_url, token.as_deref(), trust.as_ref());
            let client = client.announcing(Features::OF_WORKER);
            client.remembering(seen.clone())
        };
        let thread = StartError::Thread;
        let shipping = Shipping::start(new_client(), folder.clone(), events.clone());
        let (shipping, _) = shipping.map_err(thread)?;
        let calls = Calls::start(new_client, &folder, &shipping, &events).map_err(thread)?;
        let spooled = folder.spooled();
        folder.remove_discarded();
        for (attempt, session_key) in folder.leftovers() {
            let file = folder.place(attempt).log();
            shipping.begin(attempt, session_key, file);
            // The server may ask for some of the log again when it hears of the result.
            match spooled.iter().any(|result| result.attempt == attempt) {
                true => shipping.over_and_held(attempt),
                false => shipping.over(attempt),
            }
        }
        let machine = Machine::new(registration, spooled, monotonic_ms());
        let (news, slot_news) = unbounded();
        let worker = WorkerLoop {
            machine,
            calls,
            shipping,
            folder,
            tools,
            log_limits: LogLimits {
                line_bytes_max: config.limits.log_line_bytes,
                attempt_bytes_max: config.limits.log_attempt_bytes,
            },
            drain_timeout_ms: i64::from(config.drain_timeout_secs) * 1_000,
            drain_until: None,
            settings: Settings::default(),
            slots: HashMap::new(),
            news,
            manager,
            told_at: Moment::MIN,
            server_features: Features::NONE,
            reported: Vec::new(),
            closed_logs: HashMap::new(),
            too_old: None,
        };
        let (done_tx, done) = crossbeam_channel::bounded(1);
        let thread = spawn_essential("worker", move || {
            let ended = worker.run(&inbox, &slot_news);
            // The receiver is gone if nobody waits for the end.
            let _ = done_tx.send(());
            ended
        })
        .map_err(thread)?;
        Ok(Worker {
            name,
            slots: config.slots,
            offer,
            events,
            thread,
            done,
        })
    }

    /// Takes nothing new, finishes what it has, and ends.
    pub fn drain(&self) {
        self.tell(Event::Drain);
    }

    /// Ends what it runs, reports that, and ends.
    pub fn shut_down(&self) {
        self.tell(Event::Shutdown);
    }

    fn tell(&self, event: Event) {
        // It has ended already.
        let _ = self.events.send(WorkerEvent::Mind(event));
    }

    /// Rings once it has ended.
    pub fn done(&self) -> &Receiver<()> {
        &self.done
    }

    /// Waits for its end. `Err`: what a person must know.
    pub fn wait(self) -> Result<(), EndError> {
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(EndError::Other("the worker met a bug".to_string())))
    }
}

fn tools(
    config: &WorkerConfig,
    server_url: &str,
    folder: &Folder,
    name: &str,
) -> Result<Tools, StartError> {
    Ok(Tools {
        stepward: own_path().map_err(StartError::OwnPath)?,
        instance_key: folder.instance_key.clone(),
        worker_name: name.to_string(),
        server_url: server_url.to_string(),
        env: config.env.clone(),
        docker: config.docker.command.clone(),
        docker_hardened: config.docker.hardened,
        docker_args: config.docker.args.clone(),
        kubectl: config.kubernetes.command.clone(),
        namespace: config.kubernetes.namespace.clone(),
        allow_privileged: config.kubernetes.allow_privileged,
    })
}

/// This program, as it was started: an upgrade may put another file at its path meanwhile. Whoever starts it is still this
/// program, so the link means the same there.
pub fn own_path() -> std::io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    match running.exists() {
        true => Ok(running),
        false => std::env::current_exe(),
    }
}

fn machine_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Nothing that a former life of this worker ran goes on. `wanted_tags`: those that it was told to offer. A docker or a cluster that
/// has just been asked for the offer and did not answer is not asked again: that would hold up the start for another minute.
fn end_former_life(folder: &Folder, tools: &Tools, wanted_tags: &[String], offer: &Offer) {
    let killed = marked::kill_marked(&folder.instance_key);
    if killed > 0 {
        let killed = processes::count(killed);
        log::warn!("a former life of this worker had left {killed}, killed now");
    }
    let has_leftovers = !folder.leftovers().is_empty();
    let leftovers = executor::remove_leftovers(wanted_tags, offer, has_leftovers, tools);
    if leftovers.removed > 0 {
        let removed = match leftovers.removed {
            1 => "1 container or pod".to_string(),
            n => format!("{n} containers or pods"),
        };
        log::warn!("a former life of this worker had left {removed}, removed now");
    }
    for remark in leftovers.remarks {
        log::warn!("{remark}");
    }
}

/// A slot, and whether it was told to stop.
struct Held {
    slot: Slot,
    stopped: Arc<AtomicBool>,
}

/// What became of an order.
enum Carried {
    Out,
    /// The worker declines the attempt that it was ordered to prepare.
    Unprepared {
        attempt: AttemptRef,
        why: String,
    },
    /// Everything is told, the process may end.
    Left,
}

/// The thread that owns the worker's state.
struct WorkerLoop {
    machine: Machine,
    calls: Calls,
    shipping: Shipping,
    folder: Arc<Folder>,
    tools: Arc<Tools>,
    log_limits: LogLimits,
    drain_timeout_ms: i64,
    /// When it stops waiting for what it runs.
    drain_until: Option<Moment>,
    /// As the server wants them.
    settings: Settings,
    slots: HashMap<AttemptRef, Held>,
    news: Sender<SlotNews>,
    manager: ServiceManager,
    /// When the service manager last heard of it.
    told_at: Moment,
    /// What the server announced with the current session.
    server_features: Features,
    /// The attempts in the report that is under way, in order.
    reported: Vec<AttemptRef>,
    /// Logs of attempts that have ended and that the server has not answered for.
    closed_logs: HashMap<AttemptRef, LogDigest>,
    /// Set once the server refused this version of the worker.
    too_old: Option<String>,
}

impl WorkerLoop {
    fn run(
        mut self,
        inbox: &Receiver<WorkerEvent>,
        slot_news: &Receiver<SlotNews>,
    ) -> Result<(), EndError> {
        loop {
            let wakes_at = self.machine.wakes_at();
            let wakes_at = wakes_at.min(self.drain_until.unwrap_or(Moment::MAX));
            let wakes_at = wakes_at.min(self.tell_manager(monotonic_ms()));
            let pause_ms = (wakes_at.saturating_sub(monotonic_ms())).clamp(0, 60_000);
            let waited = Duration::from_millis(pause_ms as u64);
            let event = select! {
                recv(inbox) -> event => match event.expect("the handle is not dropped before") {
                    WorkerEvent::Mind(event) => event,
                    WorkerEvent::ResendLog(attempt, offset) => {
                        self.resend_log(attempt, offset);
                        Event::Tick
                    }
                    WorkerEvent::TooOld(message) => {
                        self.too_old.get_or_insert(message);
                        Event::Tick
                    }
                    WorkerEvent::Fatal(why) => return Err(why),
                },
                recv(slot_news) -> news => self.heard_of_slot(news.expect("we hold a sender")),
                default(waited) => Event::Tick,
            };
            let now = monotonic_ms();
            let event = self.note(event, now);
            let ended = match &event {
                Event::Ended { attempt, .. } => Some(*attempt),
                _ => None,
            };
            let was_shut_out = self.machine.is_shut_out().is_some();
            let orders = self.machine.handle(event, now);
            if self.machine.is_shut_out().is_some() && !was_shut_out {
                match &self.too_old {
                    Some(message) => log::error!(
                        "the server refuses this version of the worker: {message}; running steps may end, and the new version reports \
                         their results"
                    ),
                    None => log::error!(
                        "the server does not take this worker's token any more: what runs may end, its result cannot be told"
                    ),
                }
            }
            let kept = |order: &Order| matches!(order, Order::Keep(_));
            if let Some(attempt) = ended.filter(|_| !orders.iter().any(kept)) {
                // Nobody wants to know how it ended.
                self.folder.forget(attempt);
                self.release_log(attempt);
            }
            let mut orders = VecDeque::from(orders);
            while let Some(order) = orders.pop_front() {
                match self.carry_out(order) {
                    Carried::Out => {}
                    // The machine hears of it before it hears anything else: an earlier attempt with the same number may have
                    // sent news that waits already.
                    Carried::Unprepared { attempt, why } => {
                        log::warn!("{attempt} is declined: {why}");
                        let unprepared = Event::Unprepared { attempt, why };
                        orders.extend(self.machine.handle(unprepared, now));
                    }
                    Carried::Left => {
                        return match (self.machine.is_shut_out(), self.too_old) {
                            (Some(_), Some(message)) => Err(EndError::TooOld(message)),
                            (Some(untold), None) => Err(EndError::ShutOut { untold }),
                            (None, _) => Ok(()),
                        };
                    }
                }
            }
        }
    }

    /// That it lives and how it goes, if it is time. Returns when it is time again.
    fn tell_manager(&mut self, now: Moment) -> Moment {
        let Some(every) = self.manager.told_every() else {
            return Moment::MAX;
        };
        let every_ms = every.as_millis() as Moment;
        if self.told_at.saturating_add(every_ms) <= now {
            self.told_at = now;
            self.manager.alive();
            if self.drain_until.is_some() {
                // Its end has a bound of its own. Who stops it must only know that it is on its way.
                self.manager.needs(DRAIN_SIGN.max(every * 3));
            }
            self.manager.status(&self.in_words());
        }
        self.told_at.saturating_add(every_ms)
    }

    /// `2 steps, connected`.
    fn in_words(&self) -> String {
        let steps = match self.slots.len() {
            1 => "1 step".to_string(),
            n => format!("{n} steps"),
        };
        match (self.machine.is_connected(), self.drain_until) {
            (_, Some(_)) => format!("finishing {steps} before it ends"),
            (true, None) => format!("{steps}, connected"),
            (false, None) => format!("{steps}, the server does not answer yet"),
        }
    }

    /// What the loop itself must know of an event.
    fn note(&mut self, event: Event, now: Moment) -> Event {
        match &event {
            Event::Opened(Ok(opened)) => {
                self.settings = opened.settings;
                self.server_features = opened.server_features;
                // A server of version 0.1 says only with its session which installation it is.
                self.shipping.server_known();
            }
            Event::Reported(_, Ok(answer)) => {
                self.warn_of_refusals(answer);
                self.resend_logs(answer);
            }
            Event::Drain if self.drain_until.is_none() => {
                self.drain_until = Some(now.saturating_add(self.drain_timeout_ms));
                self.told_at = Moment::MIN;
            }
            Event::Tick if self.drain_until.is_some_and(|until| until <= now) => {
                self.drain_until = Some(Moment::MAX);
                log::warn!("what still runs is stopped, it took longer than drain_timeout_secs");
                return Event::Shutdown;
            }
            _ => {}
        }
        event
    }

    /// The server lacks the ends of some logs. Asked before the machine hears of the answer, which releases the logs.
    fn resend_logs(&self, answer: &ReportsAnswer) {
        for (index, offset) in &answer.log_gaps {
            if let Some(attempt) = self.reported.get(*index) {
                self.resend_log(*attempt, *offset);
            }
        }
    }

    /// The machine forgets an attempt whose report the server refuses, so the reason must be in the log.
    fn warn_of_refusals(&self, answer: &ReportsAnswer) {
        for (attempt, verdict) in self.reported.iter().zip(&answer.verdicts) {
            if let Verdict::Refused { why } = verdict {
                log::warn!("the server refuses the report of {attempt}: {why}");
            }
        }
    }

    fn resend_log(&self, attempt: AttemptRef, offset: u64) {
        log::info!("the server asks for the log of {attempt} from byte {offset} on");
        self.shipping.resend(attempt, offset);
    }

    fn release_log(&mut self, attempt: AttemptRef) {
        self.closed_logs.remove(&attempt);
        self.shipping.release(attempt);
    }

    fn heard_of_slot(&mut self, news: SlotNews) -> Event {
        match news {
            SlotNews::LogClosed { attempt, log } => {
                self.closed_logs.insert(attempt, log);
                Event::Tick
            }
            SlotNews::Prepared(attempt) => Event::Prepared(attempt),
            SlotNews::Unprepared { attempt, why } => {
                log::warn!("{attempt} is declined: {why}");
                self.slots.remove(&attempt);
                self.shipping.over(attempt);
                Event::Unprepared { attempt, why }
            }
            SlotNews::Ended { attempt, finished } => {
                self.slots.remove(&attempt);
                self.shipping.over(attempt);
                Event::Ended { attempt, finished }
            }
        }
    }

    fn carry_out(&mut self, order: Order) -> Carried {
        match order {
            Order::Open {
                registration,
                spooled,
            } => self.calls.make(Call::Open {
                registration,
                spooled,
            }),
            Order::Beat(beat) => {
                let timeout_ms = machine::beat_timeout_ms(&self.settings);
                let timeout = Duration::from_millis(timeout_ms as u64);
                self.calls.make(Call::Beat(beat, timeout));
            }
            Order::Poll(poll) => self.calls.make(Call::Poll(poll)),
            Order::Report(reports) => self.report(reports),
            Order::Drain { session_key } => self.calls.make(Call::Drain { session_key }),
            Order::Prepare {
                assignment,
                session_key,
            } => {
                let attempt = assignment.attempt;
                if let Err(why) = self.prepare(assignment, session_key) {
                    return Carried::Unprepared { attempt, why };
                }
            }
            Order::Run(assignment) => {
                if let Some(held) = self.slots.get(&assignment.attempt) {
                    let added = assignment.start.map(|start| start.env);
                    held.slot.run_with(added.unwrap_or_default());
                }
            }
            Order::Kill { attempt, how } => {
                if let Some(held) = self.slots.get(&attempt) {
                    held.stopped.store(true, Ordering::Relaxed);
                    held.slot.stop(match how {
                        Kill::Gently => Stop::Gently,
                        Kill::AtOnce => Stop::AtOnce,
                    });
                }
            }
            Order::Keep(result) => keep(&self.folder, &result),
            Order::Forget(attempt) => {
                self.folder.forget(attempt);
                self.release_log(attempt);
            }
            Order::Leave => return Carried::Left,
        }
        Carried::Out
    }

    fn report(&mut self, reports: Reports) {
        self.reported = reports.items.iter().map(|(attempt, _)| *attempt).collect();
        let logs = match self.server_features.contains(Feature::LogChecksum) {
            true => self.closed_logs.clone(),
            false => HashMap::new(),
        };
        self.calls.make(Call::Report(reports, logs));
    }

    /// Starts the slot of an attempt, or returns why the worker declines the attempt.
    fn prepare(&mut self, assignment: Assignment, session_key: SessionKey) -> Result<(), String> {
        let attempt = assignment.attempt;
        if self.slots.contains_key(&attempt) {
            return Err(machine::STILL_ENDING.to_string());
        }
        let place = self.folder.place(attempt);
        self.folder.begin(attempt, &session_key).map_err(|error| {
            let folder = place.folder.display();
            format!("the worker cannot write the attempt's folder {folder}: {error}")
        })?;
        let shipping = &self.shipping;
        shipping.begin(attempt, session_key.clone(), place.log());
        let on_log = {
            let shipping = shipping.clone();
            Arc::new(move || shipping.more(attempt))
        };
        let stopped = Arc::new(AtomicBool::new(false));
        let before_end = {
            let (shipping, folder) = (shipping.clone(), self.folder.clone());
            let (stopped, news) = (stopped.clone(), self.news.clone());
            let is_compared = self.server_features.contains(Feature::LogChecksum);
            move |finished: &Finished, log: Option<LogDigest>| {
                let finished = finished.clone();
                let result = Spooled {
                    attempt,
                    session_key,
                    finished,
                };
                // How it ended because we ended it is not for a next life to report: why we did is not in it.
                if !stopped.load(Ordering::Relaxed) {
                    keep(&folder, &result);
                }
                if let Some(log) = log {
                    if let Err(error) = folder.keep_log_digest(attempt, log) {
                        log::warn!("the checksum of the log of {attempt} cannot be kept: {error}");
                    }
                    // As with all news: the loop is gone only when the process is going.
                    let _ = news.send(SlotNews::LogClosed { attempt, log });
                }
                shipping.over_and_wait(attempt, is_compared, LOG_WAIT);
            }
        };
        let settings = SlotSettings {
            grace_ms: self.settings.cancel_grace_ms.max(0) as u64,
            log: self.log_limits,
        };
        let listeners = Listeners {
            on_log,
            before_end: Box::new(before_end),
            news: self.news.clone(),
        };
        let slot = Slot::start(assignment, place, self.tools.clone(), settings, listeners);
        self.slots.insert(attempt, Held { slot, stopped });
        Ok(())
    }
}

/// A result that cannot be kept is sent all the same; only a crash before that would lose it.
fn keep(folder: &Folder, result: &Spooled) {
    if let Err(error) = folder.keep(result) {
        log::error!("the result of {} cannot be kept: {error}", result.attempt);
    }
}
