//! Messages to the outside, delivered after the commit that posted them: at least once, under an id that stays.
//!
//! Each target of the settings has a thread, `outbox-NAME`. It asks the engine for its next message, has it delivered by a
//! thread that knows nothing but the message, and writes down how that went. So a dead target holds up nobody but itself,
//! its own messages go out in order as far as retries allow, and a server that stops waits for no hung connection: what was
//! not written down is sent again by the next life, under the same id.
//!
//! One file per kind of target. Deliberately not here: which event is for whom (`domain/outbox.rs`), when to try again (the
//! same), SQL. A target is named by whoever owns the server, so its address may be any, also one within a private network;
//! redirects are not followed.

mod command;
mod header;
mod http;
mod mail;
mod message;
mod ntfy;
mod program;
mod secret;
mod signature;
mod slack;
mod webhook;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, never, select};

use crate::clock::{SystemClock, monotonic_ms, wall_time};
use crate::config::{Means, Notify};
use crate::domain::outbox::{MessageState, Sent, Target};
use crate::engine::{Due, Engine, Outgoing};
use crate::essential::{catch_and_count, spawn_essential};
use crate::metrics::PanicPlace;
use message::Letter;

pub use message::{Sender as Origin, message_id};
pub use signature::{decoded_secret, signature};

/// Nobody rang: a look all the same, now and then.
const LOOK_MS: i64 = 60_000;
/// What could not be read or written is tried again after this.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long a delivery that is under way may take once the server stops.
const STOP_MAX: Duration = Duration::from_secs(1);

const DELIVERY_PANICKED: &str = "the delivery met a bug, the server's log says which";

/// Rings for the threads when messages were posted. Made before the store, which rings it.
#[derive(Clone)]
pub struct Bell {
    ends: Vec<(String, Sender<()>, Receiver<()>)>,
}

impl Bell {
    pub fn new(notify: &Notify) -> Bell {
        let ends = notify.keys().map(|name| {
            let (ring_tx, ring_rx) = bounded(1);
            (name.clone(), ring_tx, ring_rx)
        });
        Bell {
            ends: ends.collect(),
        }
    }

    /// Does not wait. One that was rung and not heard yet need not be rung again.
    pub fn ring(&self) {
        for (_, ring_tx, _) in &self.ends {
            let _ = ring_tx.try_send(());
        }
    }

    fn of(&self, name: &str) -> Receiver<()> {
        let found = self.ends.iter().find(|(known, ..)| known == name);
        found.map_or_else(never, |(_, _, ring_rx)| ring_rx.clone())
    }
}

/// What a test message came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tested {
    pub sent: Sent,
    pub duration_ms: i64,
}

/// Why no test message was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTested {
    Unknown,
    /// Another one is under way.
    Busy,
}

/// Delivers until it is dropped.
pub struct Outbox {
    targets: BTreeMap<String, Arc<Means>>,
    origin: Origin,
    stop: Option<Sender<()>>,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    testing: Mutex<()>,
}

impl Outbox {
    /// The settings were checked.
    pub fn start(
        engine: &Engine,
        clock: &Arc<SystemClock>,
        notify: &Notify,
        origin: Origin,
        bell: &Bell,
    ) -> io::Result<Outbox> {
        let understood = notify.iter().map(|(name, target)| {
            let understood = target.understood(name).map_err(io::Error::other);
            understood.map(|(target, means)| (target, Arc::new(means)))
        });
        let targets: Vec<(Target, Arc<Means>)> = understood.collect::<io::Result<_>>()?;
        engine.set_targets(targets.iter().map(|(target, _)| target.clone()).collect());
        if let Err(error) = engine.give_up_strangers(clock.now()) {
            log::error!("messages to targets that are gone could not be given up: {error}");
        }
        let (stop_tx, stop_rx) = bounded(0);
        let mut outbox = Outbox {
            targets: BTreeMap::new(),
            origin: origin.clone(),
            stop: Some(stop_tx),
            stopping: Arc::default(),
            threads: Vec::new(),
            testing: Mutex::default(),
        };
        for (target, means) in targets {
            let name = target.name;
            let courier = Courier {
                engine: engine.clone(),
                clock: clock.clone(),
                target: name.clone(),
                means: means.clone(),
                origin: origin.clone(),
                bell: bell.of(&name),
                stop: stop_rx.clone(),
                stopping: outbox.stopping.clone(),
            };
            let thread = spawn_essential(format!("outbox-{name}"), move || courier.run())?;
            outbox.threads.push(thread);
            outbox.targets.insert(name, means);
        }
        Ok(outbox)
    }

    /// Sends a message that tells nothing, the way all others go, and waits for it.
    pub fn test(&self, target: &str) -> Result<Tested, NotTested> {
        let means = self.targets.get(target).ok_or(NotTested::Unknown)?;
        let _only_one = lock_test(&self.testing)?;
        let letter = Letter::test(target, &self.origin, wall_time());
        let begun_ms = monotonic_ms();
        let sent = deliver(means, &letter, &self.stopping);
        Ok(Tested {
            sent,
            duration_ms: monotonic_ms() - begun_ms,
        })
    }
}

/// One test at a time. A test that met a bug leaves a poisoned lock, which guards no data, so the next test may go ahead.
fn lock_test(testing: &Mutex<()>) -> Result<MutexGuard<'_, ()>, NotTested> {
    match testing.try_lock() {
        Ok(only_one) => Ok(only_one),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(NotTested::Busy),
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.stop = None;
        for thread in self.threads.drain(..) {
            thread
                .join()
                .expect("a panic of these threads ends the process");
        }
    }
}

/// One message, one way. It takes no longer than its kind allows, and panics for nothing that a target answers.
fn deliver(means: &Means, letter: &Letter, stopping: &AtomicBool) -> Sent {
    match means {
        Means::Webhook { url, secret } => webhook::deliver(url, secret, letter),
        Means::Slack { url } => slack::deliver(url, letter),
        Means::Ntfy {
            url,
            token,
            priority,
        } => ntfy::deliver(url, token.as_ref(), priority.as_deref(), letter),
        Means::Email { to, from, sendmail } => {
            mail::deliver(to, from.as_deref(), sendmail, letter, stopping)
        }
        Means::Command { command } => command::deliver(command, letter, stopping),
    }
}

/// The thread of one target.
struct Courier {
    engine: Engine,
    clock: Arc<SystemClock>,
    target: String,
    means: Arc<Means>,
    origin: Origin,
    bell: Receiver<()>,
    stop: Receiver<()>,
    stopping: Arc<AtomicBool>,
}

/// The server stops.
struct Stopped;

impl Courier {
    fn run(&self) {
        loop {
            let item = format_args!("a message to {}", self.target);
            let round = self
                .catch(item, || self.round())
                .unwrap_or_else(|| self.pause());
            if round.is_err() {
                return;
            }
        }
    }

    /// `None`: the work for this item panicked.
    fn catch<T>(&self, item: impl Display, work: impl FnOnce() -> T) -> Option<T> {
        let metrics = self.engine.store.metrics();
        catch_and_count(metrics, PanicPlace::Outbox, item, work)
    }

    fn round(&self) -> Result<(), Stopped> {
        match self.engine.next_message(&self.target, self.clock.now()) {
            Ok(Due::Now(outgoing)) => self.carry(&outgoing),
            Ok(Due::In { ms }) => self.wait(ms.min(LOOK_MS)),
            Ok(Due::Nothing) => self.wait(LOOK_MS),
            Err(error) => {
                log::error!("the next message to {} is not known: {error}", self.target);
                self.pause()
            }
        }
    }

    fn wait(&self, ms: i64) -> Result<(), Stopped> {
        let pause = Duration::from_millis(ms.max(0) as u64);
        select! {
            recv(self.stop) -> _ => Err(Stopped),
            recv(self.bell) -> _ => Ok(()),
            default(pause) => Ok(()),
        }
    }

    fn pause(&self) -> Result<(), Stopped> {
        match self.stop.recv_timeout(AFTER_FAILURE) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(Stopped),
        }
    }

    fn carry(&self, outgoing: &Outgoing) -> Result<(), Stopped> {
        let begun_ms = monotonic_ms();
        let item = format!("message {} to {}", outgoing.message.outbox_id, self.target);
        let letter = self.catch(&item, || Letter::new(outgoing, &self.origin, wall_time()));
        let Some(letter) = letter else {
            // It counts as a try that failed, so that the messages behind it have their turn.
            return self.write_down(outgoing, &Sent::failed(DELIVERY_PANICKED), 0);
        };
        let (sent_tx, sent_rx) = bounded(1);
        let (means, stopping) = (self.means.clone(), self.stopping.clone());
        let engine = self.engine.clone();
        let carrier = std::thread::Builder::new()
            .name("outbox-send".to_string())
            .spawn(move || {
                let metrics = engine.store.metrics();
                let sent = catch_and_count(metrics, PanicPlace::Outbox, item, || {
                    deliver(&means, &letter, &stopping)
                });
                // Nobody waits any more if the server stopped meanwhile.
                let _ = sent_tx.send(sent.unwrap_or_else(|| Sent::failed(DELIVERY_PANICKED)));
            });
        if let Err(error) = carrier {
            log::error!("no thread to deliver a message with: {error}");
            return self.pause();
        }
        let sent = select! {
            recv(sent_rx) -> sent => sent.ok(),
            recv(self.stop) -> _ => sent_rx.recv_timeout(STOP_MAX).ok(),
        };
        let is_stopping = self.stopping.load(Ordering::Relaxed);
        let sent = match sent {
            // What a program was stopped in counts as not tried.
            Some(sent) if sent.is_ok || !is_stopping => sent,
            Some(_) => return Err(Stopped),
            None if is_stopping => return Err(Stopped),
            None => Sent::failed(DELIVERY_PANICKED),
        };
        self.write_down(outgoing, &sent, monotonic_ms() - begun_ms)
    }

    /// Once it was sent, that must be remembered, or it is sent again.
    fn write_down(
        &self,
        outgoing: &Outgoing,
        sent: &Sent,
        duration_ms: i64,
    ) -> Result<(), Stopped> {
        let message = &outgoing.message;
        let (outbox_id, target) = (message.outbox_id, &self.target);
        loop {
            let now = self.clock.now();
            let told = self
                .engine
                .tell_delivery(message.clone(), sent.clone(), duration_ms, now);
            match told {
                Ok(Some(MessageState::GivenUp)) => {
                    let why = &sent.message;
                    log::error!("message {outbox_id} to {target} was given up: {why}");
                    return Ok(());
                }
                Ok(Some(MessageState::Pending)) => {
                    let why = &sent.message;
                    log::warn!("message {outbox_id} to {target} was not delivered: {why}");
                    return Ok(());
                }
                Ok(_) => return Ok(()),
                Err(error) => {
                    log::error!("how message {outbox_id} went could not be written down: {error}");
                    self.pause()?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_meets_a_bug_does_not_keep_the_next_one_waiting_for_ever() {
        let testing = Mutex::new(());
        let held = lock_test(&testing).ok();
        assert!(matches!(lock_test(&testing), Err(NotTested::Busy)));
        drop(held);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _only_one = lock_test(&testing).ok();
            panic!("a bug");
        }));
        assert!(panicked.is_err());
        assert!(lock_test(&testing).is_ok());
    }
}
