//! One attempt, from its assignment to its end, on a thread of its own. Whatever happens, it ends with one word: `Unprepared`
//! if nothing of the user's has run, `Ended` otherwise.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, never, select, tick, unbounded};

use super::attempt_log::{AttemptLog, LogLimits, OnMore};
use super::capture::Capture;
use super::executor::{self, Aside, Fault, Invocation, Place, Tools, environment};
use super::mask::{Masks, SECRET_BYTES_MIN};
use super::output::{self, OutputLine};
use super::processes::{count, describe_signal};
use super::supervised::{End, Exit, Supervised};
use super::supervisor::{not_cleaned_up, remains};
use crate::domain::AttemptRef;
use crate::domain::limits::{MESSAGE_BYTES_MAX, clip};
use crate::domain::protocol::{Assignment, Finished, LogDigest};
use crate::domain::reason::Reason;

pub use super::supervisor::Stop;

/// What a supervisor that was told to stop may take beyond the grace, and for each command that cleans up.
const STOP_MAX: Duration = Duration::from_secs(60);
/// Between two looks whether one that was told to stop can hear it.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long after the grace it may be made to stand still before it is done without.
const SUSPENDED_MAX: Duration = Duration::from_millis(500);

/// Interval at which the worker checks that no signal has stopped the supervisor of a running step.
const STOPPED_SUPERVISOR_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the worker resumes the supervisor of one command. After that something stops it on purpose, and the worker kills it.
const SUPERVISOR_RESUMES_MAX: u32 = 3;

#[derive(Debug, Clone, Copy)]
pub struct SlotSettings {
    /// Between asking a step to end and killing it.
    pub grace_ms: u64,
    pub log: LogLimits,
}

pub type BeforeEnd = Box<dyn FnOnce(&Finished, Option<LogDigest>) + Send>;

/// Who is told what.
pub struct Listeners {
    /// The log has more to send.
    pub on_log: OnMore,
    /// Called with how it ended, and with the log that was written, before that is told.
    pub before_end: BeforeEnd,
    pub news: Sender<SlotNews>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotNews {
    /// It waits for `run`.
    Prepared(AttemptRef),
    /// Nothing of the user's has run, and nothing will.
    Unprepared { attempt: AttemptRef, why: String },
    /// Nothing of it runs any more.
    Ended {
        attempt: AttemptRef,
        finished: Finished,
    },
    /// Nothing more will be written to its log, which is this.
    LogClosed { attempt: AttemptRef, log: LogDigest },
}

enum Order {
    /// With variables that are added to the environment of the step.
    Run(BTreeMap<String, String>),
    Stop(Stop),
}

/// Whoever lets go of it ends the attempt at once.
#[derive(Debug)]
pub struct Slot {
    orders_tx: Sender<Order>,
}

impl Slot {
    /// Prepares the attempt, and then waits.
    pub fn start(
        assignment: Assignment,
        place: Place,
        tools: Arc<Tools>,
        settings: SlotSettings,
        listeners: Listeners,
    ) -> Slot {
        let (orders_tx, orders_rx) = unbounded();
        let attempt = assignment.attempt;
        let news_tx = listeners.news.clone();
        let thread = std::thread::Builder::new().name(format!("slot-{}", attempt.step_id));
        let started = thread.spawn(move || {
            let slot = Attempt {
                assignment,
                place,
                tools,
                settings,
                orders_rx,
                news_tx: listeners.news,
                has_begun: Cell::new(false),
            };
            slot.live(listeners.on_log, listeners.before_end);
        });
        if let Err(error) = started {
            let why = format!("the worker has no thread for it: {error}");
            // The worker's loop is gone only when the process is going.
            let _ = news_tx.send(SlotNews::Unprepared { attempt, why });
        }
        Slot { orders_tx }
    }

    /// The server has said yes.
    pub fn run(&self) {
        self.run_with(BTreeMap::new());
    }

    /// The same, with variables that the server gave with its yes.
    pub fn run_with(&self, added_env: BTreeMap<String, String>) {
        self.order(Order::Run(added_env));
    }

    /// It may be told so at any time. Before it runs, that is its end.
    pub fn stop(&self, stop: Stop) {
        self.order(Order::Stop(stop));
    }

    fn order(&self, order: Order) {
        // Nobody takes it if the attempt is over, which was told.
        let _ = self.orders_tx.send(order);
    }
}

/// How a command ended, and what the worker had to do for that.
struct Attended {
    end: End,
    /// The command was ordered to stop.
    stopped: bool,
    /// How often the worker resumed the supervisor because a signal had stopped it.
    resumes: u32,
}

enum Outcome {
    Unprepared(String),
    /// With the log that was written.
    Ended(Finished, Option<LogDigest>),
}

struct Attempt {
    assignment: Assignment,
    place: Place,
    tools: Arc<Tools>,
    settings: SlotSettings,
    orders_rx: Receiver<Order>,
    news_tx: Sender<SlotNews>,
    /// Whether anything of the user's may have run.
    has_begun: Cell<bool>,
}

impl Attempt {
    fn live(self, on_log: OnMore, before_end: BeforeEnd) {
        let attempt = self.assignment.attempt;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.pass(on_log)));
        let outcome = outcome.unwrap_or_else(|panic| {
            let message = format!("the worker met a bug: {}", words_of(&*panic));
            match self.has_begun.get() {
                true => Outcome::Ended(failed(Reason::SpawnError, message), None),
                false => Outcome::Unprepared(message),
            }
        });
        let news = match outcome {
            Outcome::Unprepared(why) => SlotNews::Unprepared { attempt, why },
            Outcome::Ended(finished, log) => {
                // Whatever the listener does, the end is told.
                let _ = catch_unwind(AssertUnwindSafe(|| before_end(&finished, log)));
                SlotNews::Ended { attempt, finished }
            }
        };
        // The worker's loop is gone only when the process is going.
        let _ = self.news_tx.send(news);
    }

    fn pass(&self, on_log: OnMore) -> Outcome {
        let log = match self.open_log(on_log) {
            Ok(log) => Arc::new(log),
            Err(error) => {
                let folder = self.place.folder.display();
                let why = format!("its log cannot be written in {folder}: {error}");
                return Outcome::Unprepared(why);
            }
        };
        let prepared = self.prepare(&log);
        if let Err(Fault::Here(why)) = prepared {
            let why = clip(&log.masks().hide(&why), MESSAGE_BYTES_MAX);
            log.note(&format!("not prepared: {why}"));
            return Outcome::Unprepared(why);
        }
        // A step that cannot run fails when it would have run, not before it was asked for.
        let prepared_news = SlotNews::Prepared(self.assignment.attempt);
        // As with all news.
        let _ = self.news_tx.send(prepared_news);
        let Ok(Order::Run(added_env)) = self.orders_rx.recv() else {
            return Outcome::Unprepared(STOPPED.to_string());
        };
        self.has_begun.set(true);
        let prepared = prepared.and_then(|mut invocation| {
            let action = &self.assignment.action;
            executor::add_environment(&mut invocation, action, &self.place, &added_env)?;
            Ok(invocation)
        });
        let finished = match prepared {
            Ok(invocation) => self.execute(&invocation, &log),
            Err(Fault::Step { reason, message }) => failed(reason, message),
            // It is too late to decline: the server has started the attempt.
            Err(Fault::Here(message)) => failed(Reason::SpawnError, message),
        };
        let finished = hide(finished, &log);
        log.note(&last_words(&finished));
        Outcome::Ended(finished, log.digest())
    }

    fn open_log(&self, on_log: OnMore) -> io::Result<AttemptLog> {
        environment::make_folder(&self.place.folder)?;
        let (masks, short) = Masks::new(&self.assignment.masks);
        let log = AttemptLog::open(&self.place.log(), self.settings.log, masks, on_log)?;
        if short > 0 {
            log.note(&format!(
                "secrets without a line of at least {SECRET_BYTES_MIN} bytes are not hidden in this log: there {}",
                match short {
                    1 => "is 1".to_string(),
                    n => format!("are {n}"),
                }
            ));
        }
        Ok(log)
    }

    fn prepare(&self, log: &Arc<AttemptLog>) -> Result<Invocation, Fault> {
        let mut is_stopped = false;
        let mut run_aside = |aside, argv: &[String]| match is_stopped {
            true => Err(STOPPED.to_string()),
            false => self.run_aside(aside, argv, log, &mut is_stopped),
        };
        let assignment = &self.assignment;
        let prepared = executor::prepare(assignment, &self.place, &self.tools, &mut run_aside);
        match is_stopped {
            true => Err(Fault::Here(STOPPED.to_string())),
            false => prepared,
        }
    }

    /// A command of the worker's own, below a supervisor like any other.
    fn run_aside(
        &self,
        aside: Aside,
        argv: &[String],
        log: &Arc<AttemptLog>,
        is_stopped: &mut bool,
    ) -> Result<(), String> {
        let command = argv.join(" ");
        let invocation = Invocation {
            argv: argv.to_vec(),
            env: environment::of_worker(),
            cwd: self.place.folder.clone(),
            settled: None,
            cleanup: Vec::new(),
        };
        let explain = |error: io::Error| format!("{command}: {error}");
        let heard = match aside {
            Aside::Told => log.clone(),
            Aside::Quiet => Arc::new(log.unread().map_err(explain)?),
        };
        let mut supervised = self.supervise(&invocation, log).map_err(explain)?;
        let capture = Capture::of_worker(supervised.take_pipes(), heard).map_err(explain)?;
        let attended = self.attend(&supervised, 0);
        let captured = capture.finish();
        *is_stopped = attended.stopped;
        let why = match attended.end.exit {
            Exit::Code(0) => return Ok(()),
            Exit::Code(code) => format!("exit code {code}"),
            Exit::Signal(signal) => format!("killed by {}", describe_signal(signal)),
            Exit::SpawnFailed(sentence) | Exit::Unsupervised(sentence) => sentence,
        };
        match captured.last_words {
            Some(words) => Err(format!("{command}: {why}: {words}")),
            None => Err(format!("{command}: {why}")),
        }
    }

    fn execute(&self, invocation: &Invocation, log: &Arc<AttemptLog>) -> Finished {
        let no_start = |error: io::Error| {
            let message = format!("its supervisor could not be started: {error}");
            failed(Reason::SpawnError, message)
        };
        let mut supervised = match self.supervise(invocation, log) {
            Ok(supervised) => supervised,
            Err(error) => return no_start(error),
        };
        let capture = match Capture::of_step(supervised.take_pipes(), log.clone()) {
            Ok(capture) => capture,
            Err(error) => return no_start(error),
        };
        let attended = self.attend(&supervised, invocation.cleanup.len() as u32);
        let captured = capture.finish();
        let damage = self.repair_folder(log);
        for sentence in notes(&attended) {
            log.note(&sentence);
        }
        if let Some(loss) = log.loss() {
            log.note(&loss);
        }
        // With what the step itself named to be hidden.
        let finished = self.finished(attended.end.exit, captured.output, &log.masks());
        match (finished, damage) {
            (Finished::Completed { exit_code, .. }, Some(message)) => Finished::Failed {
                reason: Reason::OutputInvalid,
                message,
                exit_code,
            },
            (finished, Some(message)) => {
                log.note(&message);
                finished
            }
            (finished, None) => finished,
        }
    }

    /// Writes the log again if the step, or somebody else, deleted the attempt's folder while the step ran. Returns a sentence if
    /// the output or the log of the step is lost: then nobody can say that the step completed.
    fn repair_folder(&self, log: &AttemptLog) -> Option<String> {
        let folder = self.place.folder.display();
        let advice =
            "let steps write only to $STEPWARD_WORKSPACE, $STEPWARD_TMP and $STEPWARD_OUTPUT";
        match log.restore() {
            Ok(false) => None,
            Ok(true) if self.place.output().symlink_metadata().is_ok() => {
                log.note("the log file on the worker was deleted while the step ran: the worker wrote it again");
                None
            }
            Ok(true) => Some(format!(
                "the attempt's folder on the worker was deleted while the step ran, and the step's output with it: {folder}; {advice}"
            )),
            Err(error) => Some(format!(
                "the attempt's folder on the worker was deleted while the step ran, and its log cannot be written again: {folder}: {error}; {advice}"
            )),
        }
    }

    fn supervise(&self, invocation: &Invocation, log: &AttemptLog) -> io::Result<Supervised> {
        Supervised::start(
            &self.tools,
            invocation,
            self.assignment.attempt,
            self.settings.grace_ms,
            log.path(),
        )
    }

    /// Waits for the end of the command, and stops the command if that is ordered.
    fn attend(&self, supervised: &Supervised, cleanups: u32) -> Attended {
        let mut stopped = false;
        let mut resumes = 0;
        let mut was_given_up = false;
        let mut orders_rx = self.orders_rx.clone();
        let mut looks = tick(STOPPED_SUPERVISOR_CHECK_INTERVAL);
        let (mut grace_over, mut too_late) = (never(), never());
        let mut may_be_suspended = true;
        loop {
            let stop = select! {
                recv(orders_rx) -> order => match order {
                    Ok(Order::Run(_)) => continue,
                    Ok(Order::Stop(stop)) => stop,
                    Err(_) => {
                        orders_rx = never();
                        Stop::AtOnce
                    }
                },
                recv(supervised.end()) -> end => {
                    let mut end = end.expect("an end is always told");
                    if let Exit::Unsupervised(why) = &mut end.exit
                        && was_given_up
                    {
                        why.push_str(" after a signal (SIGSTOP) had stopped it again and again");
                    }
                    return Attended { end, stopped, resumes };
                }
                recv(too_late) -> _ => {
                    supervised.kill_supervisor();
                    continue;
                }
                recv(looks) -> _ => {
                    let may_resume = match stopped {
                        true => supervised.is_suspended().then_some(may_be_suspended),
                        false => (supervised.is_stopped_by_signal())
                            .then_some(resumes < SUPERVISOR_RESUMES_MAX),
                    };
                    match may_resume {
                        None => {}
                        Some(true) => {
                            supervised.resume();
                            resumes += 1;
                        }
                        // A step can stop its supervisor again and again, and must not live longer by doing so.
                        Some(false) => {
                            was_given_up = !stopped;
                            supervised.kill_supervisor();
                        }
                    }
                    continue;
                }
                recv(grace_over) -> _ => {
                    may_be_suspended = false;
                    continue;
                }
            };
            supervised.stop(stop);
            stopped = true;
            let grace = match stop {
                Stop::Gently => Duration::from_millis(self.settings.grace_ms),
                Stop::AtOnce => Duration::ZERO,
            };
            looks = tick(LOOK_EVERY);
            grace_over = after(grace + SUSPENDED_MAX);
            too_late = after(grace + STOP_MAX * (1 + cleanups));
        }
    }

    fn finished(&self, exit: Exit, line: Option<OutputLine>, masks: &Masks) -> Finished {
        match exit {
            Exit::Code(0) => match output::read(&self.place.output(), line, masks) {
                Ok(output) => Finished::Completed {
                    output,
                    exit_code: Some(0),
                },
                Err(message) => Finished::Failed {
                    reason: Reason::OutputInvalid,
                    message,
                    exit_code: Some(0),
                },
            },
            Exit::Code(code) => match executor::tool_failure(&self.assignment, &self.place, code) {
                Some(message) => Finished::Failed {
                    reason: Reason::SpawnError,
                    message,
                    exit_code: Some(code),
                },
                None => Finished::exited(code),
            },
            Exit::Signal(signal) => {
                let message = format!("killed by {}", describe_signal(signal));
                failed(Reason::Signal, message)
            }
            Exit::SpawnFailed(sentence) => failed(Reason::SpawnError, sentence),
            Exit::Unsupervised(sentence) => {
                failed(Reason::Signal, format!("{sentence}, and the step with it"))
            }
        }
    }
}

const STOPPED: &str = "it was stopped before it ran";

fn failed(reason: Reason, message: String) -> Finished {
    Finished::Failed {
        reason,
        message,
        exit_code: None,
    }
}

/// What there is to say about processes that did not end by themselves, and about a supervisor that was stopped.
fn notes(attended: &Attended) -> Vec<String> {
    let Attended {
        end,
        stopped,
        resumes,
    } = attended;
    let mut notes = Vec::new();
    match resumes {
        0 => {}
        1 => notes.push("a signal (SIGSTOP) stopped the supervisor of the step: the worker resumed it".to_string()),
        n => notes.push(format!(
            "a signal (SIGSTOP) stopped the supervisor of the step {n} times: the worker resumed it each time"
        )),
    }
    let left = match end.left {
        0 => "none left".to_string(),
        n => format!("{n} cannot be killed: they hang in a device or are another user's"),
    };
    let killed = count(end.killed);
    if *stopped {
        notes.push(format!("stopped: {killed} killed, {left}"));
    } else if let Exit::Unsupervised(sentence) = &end.exit {
        notes.push(format!("{sentence}: {killed} killed, {left}"));
    } else if end.killed + end.left > 0 {
        let what = remains(end.killed, end.left);
        let what = what.replacen(" w", " that the step left behind w", 1);
        notes.push(what);
    }
    notes.extend(end.unclean.iter().map(|why| not_cleaned_up(why)));
    notes
}

/// What it gave was hidden when it was read.
fn hide(finished: Finished, log: &AttemptLog) -> Finished {
    match finished {
        Finished::Completed { .. } => finished,
        Finished::Failed {
            reason,
            message,
            exit_code,
        } => Finished::Failed {
            reason,
            message: clip(&log.masks().hide(&message), MESSAGE_BYTES_MAX),
            exit_code,
        },
    }
}

fn last_words(finished: &Finished) -> String {
    match finished {
        Finished::Completed { .. } => "exit code 0".to_string(),
        Finished::Failed { message, .. } => message.clone(),
    }
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it left no words")
}
