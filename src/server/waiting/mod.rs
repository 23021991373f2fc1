//! Polls that wait. One thread looks after them all: a waiting poll owns a place in a room, and no thread, transaction or
//! connection.
//!
//! A commit that makes steps claimable first looks into the room, and those who are there and able take them in that very
//! commit: from a submission to its assignment the disk is synced once. Whatever that misses, since the thread was at work in
//! the room, or a poll on its way into it, the commit's notice tells this thread afterwards. Then it looks what there is, and
//! asks the engine on behalf of those alone for whom there is something. No wake-up is lost: a poll carries the number of the
//! last notice before it was evaluated, and one that came after it makes this thread look again.
//!
//! All of that is a hint. Without it every poll ends by itself, and the next one finds what there is.

mod room;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::error::ApiError;
use super::exchange::Response;
use super::http::Answer;
use super::mailbox::{Mail, Mailbox};
use crate::clock::SystemClock;
use crate::domain::protocol::{Poll, PollAnswer};
use crate::domain::{AttemptRef, WorkerId};
use crate::engine::{AskedOnTheWay, Engine, EngineError, Look, Offer};
use crate::essential::{catch_and_count, spawn_essential};
use crate::metrics::PanicPlace;
use crate::wire::worker::PollAnswerJson;
use room::{LOOK, Room};

/// Pause after a caught panic.
const AFTER_PANIC_PAUSE: Duration = Duration::from_millis(100);

/// When a call came, to be asked for before it is evaluated.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    moment: u64,
    /// The last notice before it.
    noticed: u64,
}

/// A poll with nothing to say to it yet.
pub struct WaitingPoll {
    pub poll: Poll,
    pub offer: Offer,
    pub wait: Duration,
    pub arrival: Arrival,
}

/// A session has spoken otherwise: this is what it has free and holds now. It counts for the poll that waits, and for one
/// that is on its way to wait and came before the session was answered.
pub struct Update {
    pub session_key: String,
    pub free_slots: u32,
    pub held: Vec<AttemptRef>,
    pub arrival: Arrival,
}

pub enum Message {
    Wait(WaitingPoll, Answer),
    /// With the moment at which the session is answered.
    Update(Update, u64),
    /// What the poll with this ticket, of this worker, was given by the commit that it shared.
    Asked(u64, WorkerId, Result<PollAnswer, EngineError>),
    Stop,
}

/// The handlers' side.
pub struct Waiting {
    mailbox: Arc<Mailbox<Message>>,
    moments: AtomicU64,
    count: Arc<AtomicUsize>,
    /// The renderer ends after the one that sends to it.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Waiting {
    pub fn start(
        engine: Engine,
        clock: Arc<SystemClock>,
        mailbox: Arc<Mailbox<Message>>,
    ) -> std::io::Result<Waiting> {
        let room = Arc::<Mutex<Room>>::default();
        let count = room.lock().expect("it is new").count();
        share_commits(&engine, &clock, &mailbox, &room);
        let (rendering, to_render) = crossbeam_channel::unbounded();
        let renderer = {
            let (engine, clock) = (engine.clone(), clock.clone());
            spawn_essential("assignments", move || {
                render_all(&engine, &clock, &to_render)
            })?
        };
        let host = Host {
            engine,
            clock,
            mailbox: mailbox.clone(),
            room,
            rendering,
        };
        let thread = spawn_essential("waiting-polls", move || host.run())?;
        Ok(Waiting {
            mailbox,
            moments: AtomicU64::new(0),
            count,
            threads: Mutex::new(vec![thread, renderer]),
        })
    }

    /// How many polls wait now.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// To be asked before a poll is evaluated.
    pub fn arrival(&self) -> Arrival {
        Arrival {
            moment: self.moments.fetch_add(1, Ordering::SeqCst),
            noticed: self.mailbox.number(),
        }
    }

    pub fn wait(&self, poll: WaitingPoll, answer: Answer) {
        self.mailbox.send(Message::Wait(poll, answer));
    }

    /// To be called before the session is answered.
    pub fn update(&self, update: Update) {
        let moment = self.moments.fetch_add(1, Ordering::SeqCst);
        self.mailbox.send(Message::Update(update, moment));
    }

    /// Lets everybody go.
    pub fn stop(&self) {
        self.mailbox.send(Message::Stop);
        let mut threads = self.threads.lock().expect("no panic while it is held");
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                log::error!("the thread of waiting polls met a bug");
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Lets commits look into the room. What they find out there comes back as a message.
fn share_commits(
    engine: &Engine,
    clock: &Arc<SystemClock>,
    mailbox: &Arc<Mailbox<Message>>,
    room: &Arc<Mutex<Room>>,
) {
    let (clock, mailbox, room) = (clock.clone(), mailbox.clone(), room.clone());
    let choose = move |look: Look| {
        // Its thread is at work there, and looks for itself afterwards: it may be waiting for this very commit.
        let Ok(mut room) = room.try_lock() else {
            return Vec::new();
        };
        let now = Instant::now();
        let free_slots = room.free_slots(now);
        if free_slots == 0 {
            return Vec::new();
        }
        let demands = look(free_slots).unwrap_or_else(|error| {
            log::warn!("what waits is not known: {error}");
            Vec::new()
        });
        let asked = room.share_out(&demands, &HashSet::new(), now);
        let asked = asked.into_iter().map(|(ticket, poll)| {
            let worker_id = room.begin_asking(ticket);
            let mailbox = mailbox.clone();
            let hand_on = move |given| mailbox.send(Message::Asked(ticket, worker_id, given));
            AskedOnTheWay {
                poll,
                hand_on: Box::new(hand_on),
            }
        });
        asked.collect()
    };
    engine.hand_out_on_the_way(move || clock.now(), choose);
}

/// The thread that looks after the room.
struct Host {
    engine: Engine,
    clock: Arc<SystemClock>,
    mailbox: Arc<Mailbox<Message>>,
    room: Arc<Mutex<Room>>,
    /// To the thread that makes assignments of templates: they take their time, and nobody else waits for it.
    rendering: Sender<(PollAnswer, Answer)>,
}

/// Answers polls whose assignments have to be made first, until nobody sends any more.
fn render_all(engine: &Engine, clock: &SystemClock, polls: &Receiver<(PollAnswer, Answer)>) {
    for (given, answer) in polls {
        let (metrics, item) = (engine.store.metrics(), "the answer to a poll");
        let rendered = catch_and_count(metrics, PanicPlace::Polls, item, || {
            engine.render(given, clock.now())
        });
        answer.give(match rendered {
            Some(Ok(given)) => Response::json(200, &PollAnswerJson::from(&given)),
            Some(Err(error)) => ApiError::from(error).response(),
            // What the worker was assigned comes again with its next poll.
            None => ApiError::new(500, "internal", "the server met a fault of its own").response(),
        });
    }
}

impl Host {
    fn run(self) {
        let mut swept = Instant::now();
        loop {
            let (metrics, item) = (self.engine.store.metrics(), "a turn of the waiting polls");
            let turn = catch_and_count(metrics, PanicPlace::Polls, item, || self.turn(&mut swept));
            match turn {
                Some(false) => {}
                Some(true) => return self.let_go(),
                // The polls that were lost are answered with an error, and ask again. If the panic repeats, as over a poll that
                // stays overdue, the pause keeps the thread from spinning.
                None => {
                    self.room.clear_poison();
                    std::thread::sleep(AFTER_PANIC_PAUSE);
                }
            }
        }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().expect("cleared after each bug")
    }

    /// Does what there is to do. `true`: it is told to stop.
    fn turn(&self, swept: &mut Instant) -> bool {
        let next = self.room().next_moment();
        let soonest = next.into_iter().chain([*swept + LOOK]).min();
        let now = Instant::now();
        let pause = soonest.unwrap_or(now).saturating_duration_since(now);
        let mail = self.mailbox.wait(pause);
        let Mail { notice, number, .. } = &mail;
        let mut look = notice.steps_ready;
        let mut concerned: HashSet<WorkerId> = notice.workers.iter().copied().collect();
        let now = Instant::now();
        let mut room = self.room();
        for worker_id in &notice.workers {
            room.remember(*number, *worker_id);
        }
        for message in mail.messages {
            match message {
                Message::Stop => return true,
                Message::Wait(poll, answer) => {
                    let number = self.mailbox.number();
                    look |= room.seat(poll, answer, number, &mut concerned, now);
                }
                Message::Update(update, moment) => {
                    look |= room.update(update, moment, self.mailbox.number(), now);
                }
                Message::Asked(ticket, worker_id, given) => {
                    let gives = given
                        .as_ref()
                        .is_ok_and(|given| !given.assignments.is_empty());
                    if room.end_asking(ticket) {
                        if self.conclude(&mut room, ticket, given) {
                            // The step may be withheld from this worker because it gave the step back.
                            room.look_again_at(now + LOOK);
                        }
                    } else if gives {
                        // Another poll of this worker has taken its place, or is about to: that one is to hear of it.
                        room.remember(self.mailbox.number() + 1, worker_id);
                        concerned.insert(worker_id);
                    }
                }
            }
        }
        look |= room.is_to_look(now);
        room.end_those_whose_time_is_up(now);
        if *swept + LOOK <= now {
            *swept = now;
            room.dismiss_those_who_left(now);
        }
        if !concerned.is_empty() {
            // Something was taken from these workers, or said about them: whoever of them waits is told.
            let asked = room.polls_of(&concerned);
            for (ticket, poll) in &asked {
                match self.engine.offer(&poll.session_key) {
                    Ok(offer) => room.learn_offer(*ticket, offer),
                    Err(error) => log::debug!("what a waiting worker offers is not known: {error}"),
                }
            }
            self.ask(&mut room, asked);
        }
        if look {
            self.hand_out(&mut room);
        }
        false
    }

    /// Gives what there is to those who wait for it, in rounds: as many workers as there are steps.
    fn hand_out(&self, room: &mut Room) {
        const ROUNDS_MAX: usize = 4;
        let now = Instant::now();
        let mut in_vain = HashSet::new();
        for _ in 0..ROUNDS_MAX {
            let free_slots = room.free_slots(now);
            if free_slots == 0 {
                return;
            }
            let demands = match self.engine.demand(free_slots) {
                Ok(demands) if demands.is_empty() => return,
                Ok(demands) => demands,
                Err(error) => {
                    log::warn!("what waits is not known: {error}");
                    break;
                }
            };
            room.pass_over(&in_vain, &demands, now);
            let asked = room.share_out(&demands, &in_vain, now);
            if asked.is_empty() {
                return;
            }
            in_vain.extend(self.ask(room, asked));
        }
        room.look_again_at(now + LOOK);
    }

    /// Evaluates the polls and answers those for which there is something. Returns those for which there was not.
    fn ask(&self, room: &mut Room, asked: Vec<(u64, Poll)>) -> Vec<u64> {
        let (tickets, polls): (Vec<u64>, Vec<Poll>) = asked.into_iter().unzip();
        let given = self.engine.answer_waiting(polls, self.clock.now());
        let given = tickets.into_iter().zip(given);
        let in_vain = given.filter_map(|(ticket, given)| {
            let waits_on = self.conclude(room, ticket, given);
            waits_on.then_some(ticket)
        });
        in_vain.collect()
    }

    /// Answers the poll if there is something to say to it. Returns whether it waits on.
    fn conclude(
        &self,
        room: &mut Room,
        ticket: u64,
        given: Result<PollAnswer, EngineError>,
    ) -> bool {
        let answer = match given {
            Ok(given) if says_nothing(&given, true) => return true,
            Ok(given) if (given.assignments.iter()).any(|given| given.unrendered.is_some()) => {
                if let Some(answer) = room.take(ticket) {
                    // Its end is the end of everything here.
                    let _ = self.rendering.send((given, answer));
                }
                return false;
            }
            Ok(given) => Ok(Response::json(200, &PollAnswerJson::from(&given))),
            Err(EngineError::Store(error)) => {
                log::warn!("a waiting poll could not be looked at: {error}");
                room.look_again_at(Instant::now() + LOOK);
                return true;
            }
            Err(error) => Err(error.into()),
        };
        room.answer(ticket, &answer);
        false
    }

    fn let_go(self) {
        self.mailbox.close();
        let message = "the server is stopping, try again";
        let stopping = Err(ApiError::new(503, "stopping", message));
        self.room().answer_all(&stopping);
    }
}

/// Whether it is worth waking a worker for.
///
/// That it drains is no news to one that asks with no slot free: it knows, or is told by its heartbeats, and waits to hear of
/// what is cancelled.
pub fn says_nothing(answer: &PollAnswer, drain_is_news: bool) -> bool {
    let drains = answer.draining && drain_is_news;
    answer.assignments.is_empty() && answer.abort.is_empty() && !drains
}

fn nothing() -> Result<Response, ApiError> {
    let answer = PollAnswerJson {
        assignments: Vec::new(),
        abort: Vec::new(),
        draining: false,
    };
    Ok(Response::json(200, &answer))
}
