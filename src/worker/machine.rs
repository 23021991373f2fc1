//! A worker's side of the protocol as a pure state machine: events in, orders out, time as an argument.
//!
//! What it holds to:
//! - Nothing of the user's runs before the server has said yes to `started`.
//! - A result is kept on disk before it is first sent, and until the server has answered for it, over restarts.
//! - Whatever the server calls nobody's is killed and forgotten. A session that was replaced takes everything with it.
//! - What may be tried elsewhere after this worker's loss is ended here before the server would give the worker up.
//! - Everything is known by (step, attempt): two attempts of one step are two things.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::AttemptRef;
use crate::domain::protocol::{
    Assignment, Beat, BeatAnswer, Finished, HeldAttempt, HeldPhase, News, OpenedSession, Poll,
    PollAnswer, Registration, Reports, ReportsAnswer, Spooled, StartDetails, Verdict,
};
use crate::domain::reason::Reason;
use crate::domain::settings::Settings;
use crate::planted::{Bug, planted};

/// Milliseconds on the worker's own clock, which never goes back.
pub type Moment = i64;

pub type SessionKey = String;

/// What happens to a worker. Every call that it orders is answered exactly once: by the server, or by `Unreachable`.
///
/// Answers name the session that had asked: one that comes late must not be taken for an answer to the next session.
#[derive(Debug, Clone)]
pub enum Event {
    /// Time has passed.
    Tick,
    Opened(Result<OpenedSession, Trouble>),
    Beaten(SessionKey, Result<BeatAnswer, Trouble>),
    Polled(SessionKey, Result<PollAnswer, Trouble>),
    Reported(SessionKey, Result<ReportsAnswer, Trouble>),
    Drained(SessionKey, Result<(), Trouble>),
    Prepared(AttemptRef),
    Unprepared {
        attempt: AttemptRef,
        why: String,
    },
    /// What was running has ended, by itself or because it was killed.
    Ended {
        attempt: AttemptRef,
        finished: Finished,
    },
    /// The server answered a piece of the attempt's log: the attempt does not belong to this session any more.
    Aborted(SessionKey, AttemptRef),
    /// Somebody wants the process to end, once what it runs has.
    Drain,
    /// Somebody wants it to end now.
    Shutdown,
}

/// Why a call has no answer to work with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// No answer, or one that says nothing: try again.
    Unreachable,
    /// The server opens no more sessions for this token before so many milliseconds are over.
    Limited {
        wait_ms: i64,
    },
    SessionUnknown,
    SessionReplaced,
    /// Its token lets nobody in any more.
    ShutOut,
}

/// What the process around it does, in this order.
#[derive(Debug, Clone)]
pub enum Order {
    Open {
        registration: Registration,
        spooled: Vec<Spooled>,
    },
    Beat(Beat),
    Poll(Poll),
    Report(Reports),
    /// The server is told that this session takes nothing new.
    Drain {
        session_key: String,
    },
    Prepare {
        assignment: Assignment,
        session_key: SessionKey,
    },
    Run(Assignment),
    /// Ends whatever there is of it. If it was running, its end is still an event.
    Kill {
        attempt: AttemptRef,
        how: Kill,
    },
    /// On disk, before the next order is carried out.
    Keep(Spooled),
    /// The server has answered for it: off the disk.
    Forget(AttemptRef),
    /// Everything is told: the process may end.
    Leave,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// It is asked to end, and gets its grace.
    Gently,
    /// Another worker may be given the step at any moment.
    AtOnce,
}

/// A worker in one life of its process.
#[derive(Debug)]
pub struct Machine {
    /// As it opens each of its sessions, but for the session's key.
    offer: Registration,
    session: Session,
    /// Sessions begun so far. The first is the process's own key, the next ones are made from it.
    sessions: u32,
    attempts: BTreeMap<AttemptRef, Attempt>,
    /// Told to end and nobody's any more, but still in their grace: each has its slot until its end is heard.
    ending: BTreeSet<AttemptRef>,
    /// Results that the server has not answered for, of this session and of former ones.
    spool: BTreeMap<AttemptRef, Spooled>,
    declining: BTreeMap<AttemptRef, String>,
    /// Ended before the server would give this worker up. A late answer that still speaks of them must not bring them back.
    fenced_off: BTreeSet<AttemptRef>,
    opening: Call,
    beating: Call,
    polling: Call,
    reporting: Call,
    leaving: Call,
    /// What the report that is under way says, in order.
    told: Vec<(AttemptRef, News)>,
    /// How many free slots the server was last told of.
    told_free: u32,
    seq: i64,
    /// When the last call that was answered had been sent: since then the server may believe it silent.
    heard: Moment,
    draining: bool,
    /// What runs is not waited for.
    shutting_down: bool,
    /// Whether the server knows.
    drain_is_known: bool,
    /// Nobody listens any more. What runs may end, but how it ended stays on disk.
    shut_out: bool,
    left: bool,
}

#[derive(Debug)]
enum Session {
    Closed,
    Open { key: String, settings: Settings },
}

/// Calls of one kind: one at a time, later and later while there is trouble.
#[derive(Debug, Default)]
struct Call {
    sent: Option<Moment>,
    due: Moment,
    troubles: u32,
}

#[derive(Debug)]
struct Attempt {
    assignment: Assignment,
    phase: Phase,
    /// When the server was last told that it is being prepared.
    kept_alive: Moment,
}

#[derive(Debug)]
enum Phase {
    Preparing,
    /// Waits for the server's yes.
    Starting,
    Running {
        until: Moment,
    },
    /// Its time was up: told to end, and this is what will be said of it.
    Stopping(Finished),
}

/// Why the worker declines an attempt while an attempt with the same number still ends. Step and attempt numbers repeat after the
/// server has restored an older database, and the processes, the folder and the log of an attempt are found by its number.
pub(super) const STILL_ENDING: &str = "the worker is still ending an earlier attempt with the same number, from before the \
    server's database was restored";

/// Between two tries of a call that met trouble.
const PAUSE_MIN_MS: i64 = 500;
const PAUSE_MAX_MS: i64 = 30_000;

/// A poll that was answered sooner than this, and with nothing, was not held.
const EMPTY_ANSWER_MS: i64 = 200;

/// What one call carries at most: half of what the server takes.
const CALL_BYTES_MAX: usize = 8 << 20;
const CALL_ITEMS_MAX: usize = 1_000;

impl Call {
    fn due(due: Moment) -> Call {
        Call {
            due,
            ..Call::default()
        }
    }

    fn is_due(&self, now: Moment) -> bool {
        self.sent.is_none() && self.due <= now
    }

    fn send(&mut self, now: Moment) {
        self.sent = Some(now);
    }

    /// When the answered call had been sent.
    fn answered(&mut self, next: Moment) -> Option<Moment> {
        self.due = next;
        self.troubles = 0;
        self.sent.take()
    }

    fn met_trouble(&mut self, now: Moment, spread: u64) {
        self.sent = None;
        let pause_ms = PAUSE_MAX_MS.min(PAUSE_MIN_MS << self.troubles.min(10));
        // Between half and the whole of it, so that not all workers come back at once.
        let spread = spread.wrapping_add(u64::from(self.troubles)) % 8;
        self.due = now + pause_ms / 2 + pause_ms * spread as i64 / 16;
        self.troubles += 1;
    }

    /// The server said when to try again. The pause does not grow: the server is there, and has others to serve first.
    fn told_to_wait(&mut self, now: Moment, wait_ms: i64, spread: u64) {
        self.sent = None;
        // Between once and twice that time, so that not all workers come back at once.
        let spread = spread.wrapping_add(u64::from(self.troubles)) % 8;
        self.due = now + wait_ms + wait_ms * spread as i64 / 8;
        self.troubles += 1;
    }

    fn wakes_at(&self) -> Option<Moment> {
        self.sent.is_none().then_some(self.due)
    }
}

impl Machine {
    /// A new life: with a fresh session key in the offer, and what former lives could not deliver.
    pub fn new(offer: Registration, spool: Vec<Spooled>, now: Moment) -> Machine {
        let spool = spool.into_iter().map(|result| (result.attempt, result));
        Machine {
            offer,
            session: Session::Closed,
            sessions: 1,
            attempts: BTreeMap::new(),
            ending: BTreeSet::new(),
            spool: spool.collect(),
            declining: BTreeMap::new(),
            fenced_off: BTreeSet::new(),
            opening: Call::due(now),
            beating: Call::default(),
            polling: Call::default(),
            reporting: Call::default(),
            leaving: Call::default(),
            told: Vec::new(),
            told_free: 0,
            seq: 0,
            heard: now,
            draining: false,
            shutting_down: false,
            drain_is_known: false,
            shut_out: false,
            left: false,
        }
    }

    pub fn handle(&mut self, event: Event, now: Moment) -> Vec<Order> {
        let mut orders = Vec::new();
        match event {
            Event::Beaten(key, _)
            | Event::Polled(key, _)
            | Event::Reported(key, _)
            | Event::Drained(key, _)
            | Event::Aborted(key, _)
                if !self.is_current(&key) => {}
            Event::Opened(Err(Trouble::ShutOut))
            | Event::Beaten(_, Err(Trouble::ShutOut))
            | Event::Polled(_, Err(Trouble::ShutOut))
            | Event::Reported(_, Err(Trouble::ShutOut))
            | Event::Drained(_, Err(Trouble::ShutOut)) => self.end_all_calls(&mut orders),
            Event::Tick => {}
            Event::Opened(answer) => self.opened(answer, now, &mut orders),
            Event::Beaten(_, answer) => self.beaten(answer, now, &mut orders),
            Event::Polled(_, answer) => self.polled(answer, now, &mut orders),
            Event::Reported(_, answer) => self.reported(answer, now, &mut orders),
            Event::Drained(_, answer) => self.drained(answer, now, &mut orders),
            Event::Prepared(attempt) => {
                if let Some(held) = self.attempts.get_mut(&attempt)
                    && matches!(held.phase, Phase::Preparing)
                {
                    held.phase = Phase::Starting;
                    if planted(Bug::RunBeforeYes) {
                        orders.push(Order::Run(held.assignment.clone()));
                    }
                }
            }
            Event::Unprepared { attempt, why } => {
                let held = self.attempts.get(&attempt);
                if held.is_some_and(|held| matches!(held.phase, Phase::Preparing)) {
                    self.attempts.remove(&attempt);
                    self.declining.insert(attempt, why);
                }
            }
            Event::Ended { attempt, finished } => self.ended(attempt, finished, &mut orders),
            Event::Aborted(_, attempt) => self.abort(&[attempt], &mut orders),
            Event::Drain => self.drain(&mut orders),
            Event::Shutdown => self.shut_down(&mut orders),
        }
        self.go_on(now, &mut orders);
        orders
    }

    /// Whether it has a session.
    pub fn is_connected(&self) -> bool {
        matches!(self.session, Session::Open { .. })
    }

    /// Whether its token lets nobody in any more; and with how many results that nobody has heard.
    pub fn is_shut_out(&self) -> Option<usize> {
        self.shut_out.then_some(self.spool.len())
    }

    fn is_current(&self, session_key: &str) -> bool {
        matches!(&self.session, Session::Open { key, .. } if key == session_key)
    }

    /// When it wants to be told that time has passed, if nothing happens before.
    pub fn wakes_at(&self) -> Moment {
        let calls = match &self.session {
            _ if self.shut_out => Vec::new(),
            Session::Closed if self.draining => Vec::new(),
            Session::Closed => vec![self.opening.wakes_at()],
            Session::Open { .. } => {
                let polls = self.wants_to_poll().then(|| self.polling.wakes_at());
                let reports = self.next_news().zip(self.reporting.wakes_at());
                let drains = self.has_drain_to_tell().then(|| self.leaving.wakes_at());
                vec![
                    self.beating.wakes_at(),
                    polls.flatten(),
                    drains.flatten(),
                    reports.map(|(news, report)| news.max(report)),
                ]
            }
        };
        let attempts = self.attempts.values().filter_map(|held| match held.phase {
            Phase::Running { until } => Some(until.min(self.fence(&held.assignment))),
            Phase::Preparing | Phase::Starting | Phase::Stopping(_) => None,
        });
        let soonest = calls.into_iter().flatten().chain(attempts).min();
        soonest.unwrap_or(Moment::MAX)
    }

    fn opened(
        &mut self,
        answer: Result<OpenedSession, Trouble>,
        now: Moment,
        orders: &mut Vec<Order>,
    ) {
        match answer {
            Ok(opened) => {
                let sent = self.opening.answered(now);
                self.hear(sent, now);
                // In the order in which they were handed over: the spool's own.
                let handed_over: Vec<AttemptRef> = self.spool.keys().copied().collect();
                for attempt in handed_over.into_iter().take(opened.spooled.len()) {
                    self.forget(attempt, orders);
                }
                let key = self.session_key();
                self.session = Session::Open {
                    key,
                    settings: opened.settings,
                };
                self.seq = 0;
                self.drain_is_known = false;
                let calls = [&mut self.beating, &mut self.polling, &mut self.reporting];
                for call in calls.into_iter().chain([&mut self.leaving]) {
                    *call = Call::due(now);
                }
            }
            Err(Trouble::Unreachable) => self.opening.met_trouble(now, self.spread()),
            Err(Trouble::Limited { wait_ms }) => {
                self.opening.told_to_wait(now, wait_ms, self.spread());
            }
            Err(Trouble::SessionReplaced | Trouble::SessionUnknown | Trouble::ShutOut) => {
                self.sessions += 1;
                self.opening.met_trouble(now, self.spread());
            }
        }
    }

    fn beaten(
        &mut self,
        answer: Result<BeatAnswer, Trouble>,
        now: Moment,
        orders: &mut Vec<Order>,
    ) {
        match answer {
            Ok(answer) => {
                let interval_ms = self.settings().map_or(0, |s| s.heartbeat_interval_ms);
                let sent = self.beating.answered(now + interval_ms);
                self.hear(sent, now);
                self.abort(&answer.abort, orders);
                self.server_drains(answer.draining, orders);
            }
            Err(Trouble::Unreachable) => {
                self.beating.met_trouble(now, self.spread());
                // It must be heard again before its timeout, whatever it had to wait for others.
                let interval_ms = self.settings().map_or(0, |s| s.heartbeat_interval_ms);
                self.beating.due = self.beating.due.min(now + interval_ms / 2);
            }
            Err(_) => self.lose_session(now, orders),
        }
    }

    fn polled(
        &mut self,
        answer: Result<PollAnswer, Trouble>,
        now: Moment,
        orders: &mut Vec<Order>,
    ) {
        match answer {
            Ok(answer) => {
                let says_nothing = answer.assignments.is_empty() && answer.abort.is_empty();
                let sent = self.polling.answered(now);
                // A server that does not keep the answer back is not to be asked without a pause.
                if says_nothing && now - sent.unwrap_or(now) < EMPTY_ANSWER_MS {
                    self.polling.due = now + EMPTY_ANSWER_MS;
                }
                self.hear(sent, now);
                self.take(answer, now, orders);
            }
            Err(Trouble::Unreachable) => self.polling.met_trouble(now, self.spread()),
            Err(_) => self.lose_session(now, orders),
        }
    }

    fn take(&mut self, answer: PollAnswer, now: Moment, orders: &mut Vec<Order>) {
        let Session::Open { key, .. } = &self.session else {
            return;
        };
        let key = key.clone();
        self.abort(&answer.abort, orders);
        for (attempt, why) in answer.unreadable {
            self.declining.insert(attempt, why);
        }
        for assignment in answer.assignments {
            let attempt = assignment.attempt;
            let spooled = self.spool.get(&attempt);
            if spooled.is_some_and(|result| result.session_key != key) {
                // The server has restored an older database and assigns the number again: the result belongs to an attempt that
                // the server does not know any more.
                self.forget(attempt, orders);
            }
            let known = self.attempts.contains_key(&attempt) || self.spool.contains_key(&attempt);
            let given_up =
                self.declining.contains_key(&attempt) || self.fenced_off.contains(&attempt);
            if known || given_up {
                continue;
            }
            if self.draining {
                let why = "the worker drains".to_string();
                self.declining.insert(attempt, why);
                continue;
            }
            if self.ending.contains(&attempt) {
                self.declining.insert(attempt, STILL_ENDING.to_string());
                continue;
            }
            orders.push(Order::Prepare {
                assignment: assignment.clone(),
                session_key: key.clone(),
            });
            let held = Attempt {
                assignment,
                phase: Phase::Preparing,
                kept_alive: now,
            };
            self.attempts.insert(attempt, held);
        }
        self.server_drains(answer.draining, orders);
    }

    fn reported(
        &mut self,
        answer: Result<ReportsAnswer, Trouble>,
        now: Moment,
        orders: &mut Vec<Order>,
    ) {
        let told = std::mem::take(&mut self.told);
        match answer {
            Ok(answer) if answer.verdicts.len() == told.len() => {
                let sent = self.reporting.answered(now);
                self.hear(sent, now);
                let mut starts: BTreeMap<usize, StartDetails> = answer.starts.into_iter().collect();
                let items = told.into_iter().zip(answer.verdicts).enumerate();
                for (index, ((attempt, news), verdict)) in items {
                    if let Some(held) = self.attempts.get_mut(&attempt)
                        && let Some(start) = starts.remove(&index)
                    {
                        held.assignment.timeout_ms = start.timeout_ms;
                        held.assignment.start = Some(start);
                    }
                    self.judged(attempt, &news, &verdict, sent.unwrap_or(now), now, orders);
                }
                if let Some(poll) = answer.poll {
                    self.take(poll, now, orders);
                }
            }
            Ok(_) | Err(Trouble::Unreachable) => {
                self.reporting.met_trouble(now, self.spread());
                self.told_free = 0;
            }
            Err(_) => self.lose_session(now, orders),
        }
    }

    fn judged(
        &mut self,
        attempt: AttemptRef,
        news: &News,
        verdict: &Verdict,
        sent: Moment,
        now: Moment,
        orders: &mut Vec<Order>,
    ) {
        match (news, verdict) {
            (News::Started, Verdict::Accepted) => {
                let fence = self.fence_of(attempt);
                if let Some(held) = self.attempts.get_mut(&attempt)
                    && matches!(held.phase, Phase::Starting)
                {
                    if self.shutting_down {
                        self.attempts.remove(&attempt);
                        orders.push(gently(attempt));
                        return self.keep(attempt, shut_down_result(), orders);
                    }
                    if fence <= now {
                        // The yes is so old that the server may have given this worker up since.
                        return self.fence_off(attempt, orders);
                    }
                    // The server's own clock for it began to run after this was sent, so it is the later one.
                    let until = sent.saturating_add(held.assignment.timeout_ms);
                    held.phase = Phase::Running { until };
                    orders.push(Order::Run(held.assignment.clone()));
                }
            }
            (News::KeepAlive, Verdict::Accepted) => {
                if let Some(held) = self.attempts.get_mut(&attempt) {
                    held.kept_alive = sent;
                }
            }
            (News::Started | News::KeepAlive, _) => self.abort(&[attempt], orders),
            (News::Declined { .. }, _) => {
                self.declining.remove(&attempt);
            }
            // Taken, or not wanted any more: either way the server has answered for it.
            (News::Finished(_), _) => self.forget(attempt, orders),
        }
    }

    fn drained(&mut self, answer: Result<(), Trouble>, now: Moment, orders: &mut Vec<Order>) {
        match answer {
            Ok(()) => {
                let sent = self.leaving.answered(now);
                self.hear(sent, now);
                self.drain_is_known = true;
            }
            Err(Trouble::Unreachable) => self.leaving.met_trouble(now, self.spread()),
            Err(_) => self.lose_session(now, orders),
        }
    }

    /// Somebody may have told the server to drain this worker.
    fn server_drains(&mut self, draining: bool, orders: &mut Vec<Order>) {
        self.drain_is_known |= draining;
        if draining && !self.draining {
            self.drain(orders);
        }
    }

    fn has_drain_to_tell(&self) -> bool {
        self.draining && !self.drain_is_known
    }

    /// Nothing is left to do or to tell. That it leaves is worth one call, not the waiting for its answer.
    fn may_leave(&self) -> bool {
        // What has not begun goes back by itself if the server cannot be told.
        let cut_off = self.reporting.troubles > 0;
        let begun = |held: &Attempt| !matches!(held.phase, Phase::Preparing | Phase::Starting);
        let idle = match cut_off {
            true => !self.attempts.values().any(begun),
            false => self.attempts.is_empty() && self.declining.is_empty(),
        };
        // What is kept on disk is told by the next life if the server cannot be reached now.
        let told = self.spool.is_empty() || cut_off;
        // What was told to end keeps its grace.
        idle && told && self.ending.is_empty() && (self.drain_is_known || self.leaving.troubles > 0)
    }

    fn leave(&mut self, orders: &mut Vec<Order>) {
        if !self.left {
            self.left = true;
            orders.push(Order::Leave);
        }
    }

    fn ended(&mut self, attempt: AttemptRef, finished: Finished, orders: &mut Vec<Order>) {
        self.ending.remove(&attempt);
        let finished = match self.attempts.get(&attempt).map(|held| &held.phase) {
            Some(Phase::Running { .. }) => finished,
            Some(Phase::Stopping(instead)) => instead.clone(),
            Some(Phase::Preparing | Phase::Starting) | None => return,
        };
        self.attempts.remove(&attempt);
        self.keep(attempt, finished, orders);
    }

    fn keep(&mut self, attempt: AttemptRef, finished: Finished, orders: &mut Vec<Order>) {
        let Session::Open { key, .. } = &self.session else {
            return;
        };
        let result = Spooled {
            attempt,
            session_key: key.clone(),
            finished,
        };
        if !planted(Bug::ResultNotKept) {
            orders.push(Order::Keep(result.clone()));
        }
        self.spool.insert(attempt, result);
    }

    /// Takes nothing new, gives back what has not started, ends when the rest is told.
    fn drain(&mut self, orders: &mut Vec<Order>) {
        self.draining = true;
        // One that waits for the server's yes may have it already: it is not given back.
        let declining = &mut self.declining;
        self.attempts.retain(|attempt, held| {
            let unstarted = matches!(held.phase, Phase::Preparing);
            if unstarted {
                orders.push(gently(*attempt));
                declining.insert(*attempt, "the worker drains".to_string());
            }
            !unstarted
        });
    }

    /// What waits for the server's yes never has it.
    fn end_all_calls(&mut self, orders: &mut Vec<Order>) {
        self.shut_out = true;
        self.drain(orders);
        self.declining.clear();
        self.attempts.retain(|attempt, held| {
            let unstarted = matches!(held.phase, Phase::Starting);
            if unstarted {
                orders.push(gently(*attempt));
            }
            !unstarted
        });
    }

    /// What still runs is ended, and reported so; a second word of this kind is none.
    fn shut_down(&mut self, orders: &mut Vec<Order>) {
        self.drain(orders);
        self.shutting_down = true;
        for (attempt, held) in &mut self.attempts {
            if matches!(held.phase, Phase::Running { .. }) {
                held.phase = Phase::Stopping(shut_down_result());
                orders.push(gently(*attempt));
            }
        }
    }

    /// The server says that these are nobody's, or somebody else's.
    fn abort(&mut self, attempts: &[AttemptRef], orders: &mut Vec<Order>) {
        for attempt in attempts {
            if planted(Bug::AbortWithoutKill) {
                self.attempts.remove(attempt);
            }
            self.kill(*attempt, Kill::Gently, orders);
            self.declining.remove(attempt);
            self.fenced_off.remove(attempt);
            self.forget(*attempt, orders);
        }
    }

    /// Lets go of it, if it is held: the server does not hear of it again.
    fn kill(&mut self, attempt: AttemptRef, how: Kill, orders: &mut Vec<Order>) {
        let Some(held) = self.attempts.remove(&attempt) else {
            return;
        };
        // Nothing of one that has not begun is left to wait for.
        if matches!(held.phase, Phase::Running { .. } | Phase::Stopping(_)) {
            self.ending.insert(attempt);
        }
        orders.push(Order::Kill { attempt, how });
    }

    fn forget(&mut self, attempt: AttemptRef, orders: &mut Vec<Order>) {
        if self.spool.remove(&attempt).is_some() {
            orders.push(Order::Forget(attempt));
        }
    }

    /// Nothing that it holds is its own any more. Results are handed over to the next session.
    fn lose_session(&mut self, now: Moment, orders: &mut Vec<Order>) {
        if matches!(self.session, Session::Closed) {
            return;
        }
        let held = self.attempts.iter();
        let held: Vec<_> = held
            .map(|(attempt, held)| (*attempt, held.assignment.fenced))
            .collect();
        for (attempt, fenced) in held {
            let how = match fenced {
                true => Kill::AtOnce,
                false => Kill::Gently,
            };
            self.kill(attempt, how, orders);
        }
        self.declining.clear();
        self.fenced_off.clear();
        self.told.clear();
        self.session = Session::Closed;
        self.sessions += 1;
        self.opening = Call::due(now);
    }

    /// Whatever is due now.
    fn go_on(&mut self, now: Moment, orders: &mut Vec<Order>) {
        let Session::Open { key, .. } = &self.session else {
            if self.draining {
                // Without a session nothing runs but what was told to end.
                if self.ending.is_empty() {
                    self.leave(orders);
                }
            } else if self.opening.is_due(now) {
                self.opening.send(now);
                orders.push(Order::Open {
                    registration: Registration {
                        session_key: self.session_key(),
                        ..self.offer.clone()
                    },
                    spooled: fitting(self.spool.values().cloned(), |kept| weight(&kept.finished)),
                });
            }
            return;
        };
        let key = key.clone();
        self.end_what_is_over(now, orders);
        if self.shut_out {
            if self.attempts.is_empty() && self.ending.is_empty() {
                self.leave(orders);
            }
            return;
        }
        if self.beating.is_due(now) {
            self.beating.send(now);
            self.seq += 1;
            orders.push(Order::Beat(Beat {
                session_key: key.clone(),
                seq: self.seq,
                held: self.held(),
            }));
        }
        if self.reporting.is_due(now) {
            self.told = self.news(now);
            if !self.told.is_empty() || self.has_slots_to_tell() {
                self.reporting.send(now);
                self.told_free = self.free_slots();
                let held = self.held_attempts();
                orders.push(Order::Report(Reports {
                    session_key: key.clone(),
                    items: self.told.clone(),
                    poll: Some((self.free_slots(), held)),
                }));
            }
        }
        if self.has_drain_to_tell() && self.leaving.is_due(now) {
            self.leaving.send(now);
            let session_key = key.clone();
            orders.push(Order::Drain { session_key });
        }
        if self.draining && self.may_leave() {
            self.leave(orders);
        } else if self.wants_to_poll() && self.polling.is_due(now) {
            self.polling.send(now);
            self.told_free = self.free_slots();
            orders.push(Order::Poll(Poll {
                session_key: key,
                free_slots: self.free_slots(),
                held: self.held_attempts(),
            }));
        }
    }

    /// Steps whose time is up, and those that the server may give to others soon.
    fn end_what_is_over(&mut self, now: Moment, orders: &mut Vec<Order>) {
        let running = self.attempts.iter();
        let running = running.filter(|(_, held)| matches!(held.phase, Phase::Running { .. }));
        let over = running.filter(|(_, held)| self.fence(&held.assignment) <= now);
        let over: Vec<AttemptRef> = over.map(|(attempt, _)| *attempt).collect();
        for attempt in over {
            self.fence_off(attempt, orders);
        }
        for (attempt, held) in &mut self.attempts {
            let Phase::Running { until } = held.phase else {
                continue;
            };
            if until <= now {
                let secs = held.assignment.timeout_ms / 1_000;
                held.phase = Phase::Stopping(Finished::Failed {
                    reason: Reason::StepTimeout,
                    message: format!("it ran for longer than {secs} s"),
                    exit_code: None,
                });
                orders.push(gently(*attempt));
            }
        }
    }

    /// Nothing is said of it: by its policy the server tries it again, here or elsewhere.
    fn fence_off(&mut self, attempt: AttemptRef, orders: &mut Vec<Order>) {
        self.kill(attempt, Kill::AtOnce, orders);
        self.fenced_off.insert(attempt);
    }

    /// When there is something to report, if anything.
    fn next_news(&self) -> Option<Moment> {
        if !self.spool.is_empty() || !self.declining.is_empty() || self.has_slots_to_tell() {
            return Some(Moment::MIN);
        }
        let held = self.attempts.values().filter_map(|held| match held.phase {
            Phase::Starting => Some(Moment::MIN),
            Phase::Preparing => Some(held.kept_alive + keep_alive_ms(&held.assignment)),
            Phase::Running { .. } | Phase::Stopping(_) => None,
        });
        held.min()
    }

    /// As much as fits into one call; the rest comes with the next.
    fn news(&self, now: Moment) -> Vec<(AttemptRef, News)> {
        let results = self.spool.values();
        let results = results.map(|kept| (kept.attempt, News::Finished(kept.finished.clone())));
        let declined = self.declining.iter();
        let declined =
            declined.map(|(attempt, why)| (*attempt, News::Declined { why: why.clone() }));
        let held = self
            .attempts
            .iter()
            .filter_map(|(attempt, held)| match held.phase {
                Phase::Starting => Some((*attempt, News::Started)),
                Phase::Preparing => {
                    let due = held.kept_alive + keep_alive_ms(&held.assignment);
                    (due <= now).then_some((*attempt, News::KeepAlive))
                }
                Phase::Running { .. } | Phase::Stopping(_) => None,
            });
        fitting(
            results.chain(declined).chain(held),
            |(_, news)| match news {
                News::Finished(finished) => weight(finished),
                News::Declined { why } => why.len(),
                News::Started | News::KeepAlive => 0,
            },
        )
    }

    /// Everything that the server must not miss: also what has ended and is not told.
    fn held(&self) -> Vec<HeldAttempt> {
        let held = self.attempts.iter().map(|(attempt, held)| HeldAttempt {
            attempt: *attempt,
            phase: match held.phase {
                Phase::Preparing | Phase::Starting => HeldPhase::Preparing,
                Phase::Running { .. } | Phase::Stopping(_) => HeldPhase::Running,
            },
        });
        let ended = self.spool.keys().map(|attempt| HeldAttempt {
            attempt: *attempt,
            phase: HeldPhase::Running,
        });
        held.chain(ended).collect()
    }

    fn held_attempts(&self) -> Vec<AttemptRef> {
        let declining = self.declining.keys().copied();
        let held = self.held().into_iter().map(|held| held.attempt);
        held.chain(declining).collect()
    }

    /// Also while it drains, as long as it holds something: that may be cancelled.
    fn wants_to_poll(&self) -> bool {
        !self.draining || !self.attempts.is_empty()
    }

    fn free_slots(&self) -> u32 {
        let taken = self.attempts.len() + self.ending.len();
        match self.draining {
            true => 0,
            false => (self.offer.slots).saturating_sub(taken as u32),
        }
    }

    /// A slot has become free with nothing to report, and the poll that waits does not say so.
    fn has_slots_to_tell(&self) -> bool {
        self.polling.sent.is_some() && self.free_slots() > self.told_free
    }

    fn settings(&self) -> Option<Settings> {
        match &self.session {
            Session::Open { settings, .. } => Some(*settings),
            Session::Closed => None,
        }
    }

    fn fence_of(&self, attempt: AttemptRef) -> Moment {
        let held = self.attempts.get(&attempt);
        held.map_or(Moment::MAX, |held| self.fence(&held.assignment))
    }

    /// When what may be tried elsewhere must have ended here.
    fn fence(&self, assignment: &Assignment) -> Moment {
        match self.settings() {
            Some(settings) if assignment.fenced && !planted(Bug::NoSelfFence) => {
                fence(&settings, self.heard)
            }
            _ => Moment::MAX,
        }
    }

    /// The server has answered: what had to wait because it did not is tried at once.
    fn hear(&mut self, sent: Option<Moment>, now: Moment) {
        self.heard = self.heard.max(sent.unwrap_or(self.heard));
        let calls = [&mut self.beating, &mut self.polling, &mut self.reporting];
        for call in calls.into_iter().chain([&mut self.leaving]) {
            if call.troubles > 0 {
                call.due = call.due.min(now);
            }
        }
    }

    fn session_key(&self) -> String {
        match self.sessions {
            1 => self.offer.session_key.clone(),
            n => format!("{}-{n}", self.offer.session_key),
        }
    }

    /// The same for this worker every time, another for others.
    fn spread(&self) -> u64 {
        let bytes = self.offer.session_key.bytes();
        bytes.fold(0, |spread: u64, byte| {
            spread.wrapping_mul(31).wrapping_add(u64::from(byte))
        })
    }
}

/// The first of them, as many as one call may carry. The first alone always does.
fn fitting<T>(items: impl Iterator<Item = T>, weight: impl Fn(&T) -> usize) -> Vec<T> {
    let mut bytes = 0;
    let fits = |item: &T| {
        let fits = bytes == 0 || bytes + weight(item) <= CALL_BYTES_MAX;
        bytes += weight(item);
        fits
    };
    items.take(CALL_ITEMS_MAX).take_while(fits).collect()
}

/// About as long as it is on the wire.
fn weight(finished: &Finished) -> usize {
    const FRAME: usize = 200;
    FRAME
        + match finished {
            Finished::Completed { output, .. } => output.as_ref().map_or(0, |json| json.0.len()),
            Finished::Failed { message, .. } => message.len(),
        }
}

fn shut_down_result() -> Finished {
    Finished::Failed {
        reason: Reason::WorkerShutdown,
        message: "its worker was told to stop at once".to_string(),
        exit_code: None,
    }
}

fn gently(attempt: AttemptRef) -> Order {
    let how = Kill::Gently;
    Order::Kill { attempt, how }
}

/// Two of three may be lost.
fn keep_alive_ms(assignment: &Assignment) -> i64 {
    assignment.ack_timeout_ms / 3
}

/// How long a heartbeat waits for its answer. From when it is sent to the fence there is the timeout but for two intervals: one
/// answer that never comes takes half of it, so that the next heartbeat is still in time.
pub(super) fn beat_timeout_ms(settings: &Settings) -> i64 {
    const TIMEOUT_MS_MAX: i64 = 5_000;
    const TIMEOUT_MS_MIN: i64 = 100;
    let room_ms = settings.heartbeat_timeout_ms - 2 * settings.heartbeat_interval_ms;
    (room_ms / 2).clamp(TIMEOUT_MS_MIN, TIMEOUT_MS_MAX)
}

/// The server gives a worker up a heartbeat's timeout after it last heard it; an interval before that, the worker gives up.
fn fence(settings: &Settings, heard: Moment) -> Moment {
    heard + settings.heartbeat_timeout_ms - settings.heartbeat_interval_ms
}
