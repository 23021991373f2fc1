//! Polls that wait. One thread holds them all: a waiting poll owns a place in a map, and no thread, transaction or connection.
//!
//! A commit that made steps claimable, or took something from a worker, rings a bell. Then this thread looks what there is,
//! and asks the engine on behalf of those alone for whom there is something: as many workers as there are steps, the least
//! busy first, so that one does not take everything. No wake-up is lost: a poll carries the number of the last notice before
//! it was evaluated, and one that came after it makes this thread look again.
//!
//! The bell is a hint. Without it every poll ends by itself, and the next one finds what there is.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::error::ApiError;
use super::exchange::Response;
use super::http::Answer;
use super::mailbox::{Mail, Mailbox};
use crate::clock::SystemClock;
use crate::domain::protocol::{Poll, PollAnswer};
use crate::domain::{AttemptRef, WorkerId};
use crate::engine::{Engine, EngineError, Offer};
use crate::store::{Demand, Notice};
use crate::wire::worker::PollAnswerJson;

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
    Stop,
}

/// The handlers' side.
pub struct Waiting {
    mailbox: Arc<Mailbox<Message>>,
    moments: AtomicU64,
    count: Arc<AtomicUsize>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Waiting {
    pub fn start(
        engine: Engine,
        clock: Arc<SystemClock>,
        mailbox: Arc<Mailbox<Message>>,
    ) -> std::io::Result<Waiting> {
        let count = Arc::<AtomicUsize>::default();
        let room = Room {
            engine,
            clock,
            mailbox: mailbox.clone(),
            polls: BTreeMap::new(),
            tickets: HashMap::new(),
            next_ticket: 0,
            taken_from: VecDeque::new(),
            updates: HashMap::new(),
            look_at: None,
            count: count.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("waiting-polls".to_string())
            .spawn(move || room.run())?;
        Ok(Waiting {
            mailbox,
            moments: AtomicU64::new(0),
            count,
            thread: Mutex::new(Some(thread)),
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
        let thread = self
            .thread
            .lock()
            .expect("no panic while it is held")
            .take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            log::error!("the thread of waiting polls met a bug");
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Everybody who waits.
struct Room {
    engine: Engine,
    clock: Arc<SystemClock>,
    mailbox: Arc<Mailbox<Message>>,
    /// In the order in which they came.
    polls: BTreeMap<u64, Guest>,
    tickets: HashMap<String, u64>,
    next_ticket: u64,
    /// Workers of the last notices, with their numbers.
    taken_from: VecDeque<(u64, WorkerId)>,
    /// The last word of each session that spoke lately: its poll may still be on its way here.
    updates: HashMap<String, LastWord>,
    /// Something was there that nobody was given: look again then.
    look_at: Option<Instant>,
    count: Arc<AtomicUsize>,
}

struct LastWord {
    update: Update,
    moment: u64,
    kept_until: Instant,
}

struct Guest {
    poll: Poll,
    offer: Offer,
    answer: Answer,
    until: Instant,
    /// It was not given what its tags promised, as a worker that is paused: it is not asked again before.
    passed_over_until: Option<Instant>,
    /// It was asked without a look at what there is, and there was nothing for it.
    asked_in_vain: bool,
}

impl Guest {
    fn can_be_asked(&self, now: Instant) -> bool {
        let asked_too_often = self.passed_over_until.is_some_and(|until| until > now);
        self.poll.free_slots > 0 && !asked_too_often
    }

    fn busy(&self) -> f64 {
        let slots = f64::from(self.offer.slots.max(1));
        1.0 - f64::from(self.poll.free_slots) / slots
    }

    fn can_take(&self, tags: &[String]) -> bool {
        let offered = |tag: &String| self.offer.tags.binary_search(tag).is_ok();
        tags.iter().all(offered)
    }

    fn learn(&mut self, update: &Update) {
        self.poll.free_slots = update.free_slots;
        self.poll.held.clone_from(&update.held);
    }
}

/// How often those who went away are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// How long a poll may be on its way from its evaluation to here.
const ON_ITS_WAY_MAX: Duration = Duration::from_secs(30);

/// Notices about workers that are remembered for polls that were on their way.
const TAKEN_FROM_MAX: usize = 4_096;

impl Room {
    fn run(mut self) {
        let mut swept = Instant::now();
        loop {
            let turn = catch_unwind(AssertUnwindSafe(|| self.turn(&mut swept)));
            match turn {
                Ok(false) => {}
                Ok(true) => return self.let_go(),
                // Whoever was lost by it is told so, and asks again.
                Err(_) => log::error!("the thread of waiting polls met a bug; it goes on"),
            }
        }
    }

    /// Does what there is to do. `true`: it is told to stop.
    fn turn(&mut self, swept: &mut Instant) -> bool {
        let now = Instant::now();
        let ends = self.polls.values().map(|guest| guest.until);
        let soonest = ends.chain(self.look_at).chain([*swept + LOOK]).min();
        let pause = soonest.unwrap_or(now).saturating_duration_since(now);
        let Mail {
            messages,
            notice,
            number,
            ..
        } = self.mailbox.wait(pause);
        let mut look = notice.steps_ready;
        let mut concerned: HashSet<WorkerId> = notice.workers.iter().copied().collect();
        for message in messages {
            match message {
                Message::Stop => return true,
                Message::Wait(poll, answer) => {
                    look |= self.seat(poll, answer, &mut concerned);
                }
                Message::Update(update, moment) => look |= self.update(update, moment),
            }
        }
        self.remember(number, &notice);
        let now = Instant::now();
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            look = true;
        }
        self.end_those_whose_time_is_up(now);
        if *swept + LOOK <= now {
            *swept = now;
            self.dismiss_those_who_left();
            self.updates.retain(|_, last| last.kept_until > now);
        }
        if !concerned.is_empty() {
            self.ask_for_workers(&concerned);
        }
        if look {
            self.hand_out();
        }
        self.count.store(self.polls.len(), Ordering::Relaxed);
        false
    }

    /// Whether there may be something for it already.
    fn seat(
        &mut self,
        waiting: WaitingPoll,
        answer: Answer,
        concerned: &mut HashSet<WorkerId>,
    ) -> bool {
        let key = waiting.poll.session_key.clone();
        // One poll of a session waits at a time. The former was given up by its worker, or its answer is not wanted.
        if let Some(former) = self.tickets.get(&key).copied() {
            self.answer(former, &nothing());
        }
        let noticed = waiting.arrival.noticed;
        let stale = self.mailbox.number() != noticed;
        let worker_id = waiting.offer.worker_id;
        let oldest = self.taken_from.front().map_or(0, |(number, _)| *number);
        let mut later = self.taken_from.iter();
        let unknown = stale && self.taken_from.len() == TAKEN_FROM_MAX && oldest > noticed;
        let was_taken =
            |(number, known): &(u64, WorkerId)| *number > noticed && *known == worker_id;
        if unknown || later.any(was_taken) {
            concerned.insert(worker_id);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let mut guest = Guest {
            poll: waiting.poll,
            offer: waiting.offer,
            answer,
            until: Instant::now() + waiting.wait,
            passed_over_until: None,
            asked_in_vain: false,
        };
        if let Some(last) = self.updates.get(&key)
            && last.moment > waiting.arrival.moment
        {
            guest.learn(&last.update);
        }
        let looks = stale && guest.poll.free_slots > 0;
        self.tickets.insert(key, ticket);
        self.polls.insert(ticket, guest);
        looks
    }

    /// Whether there may be something for it already.
    fn update(&mut self, update: Update, moment: u64) -> bool {
        let stale = self.mailbox.number() != update.arrival.noticed;
        let ticket = self.tickets.get(&update.session_key);
        let guest = ticket.and_then(|ticket| self.polls.get_mut(ticket));
        let looks = guest.is_some_and(|guest| {
            guest.learn(&update);
            stale && guest.poll.free_slots > 0
        });
        let last = LastWord {
            moment,
            kept_until: Instant::now() + ON_ITS_WAY_MAX,
            update,
        };
        self.updates.insert(last.update.session_key.clone(), last);
        looks
    }

    fn remember(&mut self, number: u64, notice: &Notice) {
        for worker_id in &notice.workers {
            if self.taken_from.len() == TAKEN_FROM_MAX {
                self.taken_from.pop_front();
            }
            self.taken_from.push_back((number, *worker_id));
        }
    }

    fn end_those_whose_time_is_up(&mut self, now: Instant) {
        let over = self.polls.iter().filter(|(_, guest)| guest.until <= now);
        let over: Vec<u64> = over.map(|(ticket, _)| *ticket).collect();
        for ticket in over {
            self.answer(ticket, &nothing());
        }
    }

    fn dismiss_those_who_left(&mut self) {
        let tickets = &mut self.tickets;
        self.polls.retain(|_, guest| {
            let is_gone = guest.answer.is_gone();
            if is_gone {
                tickets.remove(&guest.poll.session_key);
            }
            !is_gone
        });
    }

    /// Something was taken from these workers, or said about them: whoever of them waits is told.
    fn ask_for_workers(&mut self, workers: &HashSet<WorkerId>) {
        let asked = self.polls.iter().filter_map(|(ticket, guest)| {
            let concerned = workers.contains(&guest.offer.worker_id) && !guest.answer.is_gone();
            concerned.then(|| (*ticket, guest.poll.clone()))
        });
        let asked = asked.collect();
        self.ask(asked);
    }

    /// Gives what there is to those who wait for it, in rounds: as many workers as there are steps.
    fn hand_out(&mut self) {
        const ROUNDS_MAX: usize = 4;
        self.ask_the_only_one();
        let now = Instant::now();
        let mut in_vain = HashSet::new();
        for _ in 0..ROUNDS_MAX {
            let free = self.polls.values().filter(|guest| guest.can_be_asked(now));
            let slots: u64 = free.map(|guest| u64::from(guest.poll.free_slots)).sum();
            if slots == 0 {
                return;
            }
            let demands = match self.engine.demand(slots.min(100_000) as u32) {
                Ok(demands) if demands.is_empty() => return,
                Ok(demands) => demands,
                Err(error) => {
                    log::warn!("what waits is not known: {error}");
                    break;
                }
            };
            self.pass_over(&in_vain, &demands, now);
            let plan = self.plan(&demands, &in_vain, now);
            if plan.is_empty() {
                return;
            }
            let asked = plan.into_iter().filter_map(|(ticket, free_slots)| {
                let poll = self.polls.get(&ticket)?.poll.clone();
                Some((ticket, Poll { free_slots, ..poll }))
            });
            let asked: Vec<(u64, Poll)> = asked.collect();
            in_vain.extend(self.ask(asked));
        }
        self.look_at = Some(now + LOOK);
    }

    /// Whoever was asked in vain, and there still is what its tags allow, is not asked again for a while.
    fn pass_over(&mut self, in_vain: &HashSet<u64>, demands: &[Demand], now: Instant) {
        for ticket in in_vain {
            if let Some(guest) = self.polls.get_mut(ticket)
                && demands.iter().any(|demand| guest.can_take(&demand.tags))
            {
                guest.passed_over_until = Some(now + LOOK);
                self.look_at = Some(now + LOOK);
            }
        }
    }

    /// Whoever waits alone has nobody to share with: it is asked at once, since a look at what there is would only cost it time.
    /// Asking in vain costs a commit, so that happens once to a poll.
    fn ask_the_only_one(&mut self) {
        let now = Instant::now();
        let mut free = self
            .polls
            .iter()
            .filter(|(_, guest)| guest.can_be_asked(now));
        let (Some((&ticket, guest)), None) = (free.next(), free.next()) else {
            return;
        };
        if guest.asked_in_vain || guest.answer.is_gone() {
            return;
        }
        let poll = guest.poll.clone();
        self.ask(vec![(ticket, poll)]);
        if let Some(guest) = self.polls.get_mut(&ticket) {
            guest.asked_in_vain = true;
        }
    }

    /// Who is asked to take how many.
    fn plan(&self, demands: &[Demand], in_vain: &HashSet<u64>, now: Instant) -> BTreeMap<u64, u32> {
        let mut guests: Vec<(u64, &Guest)> = self
            .polls
            .iter()
            .filter(|(ticket, guest)| {
                let was_asked = !guest.can_be_asked(now) || in_vain.contains(ticket);
                !was_asked && !guest.answer.is_gone()
            })
            .map(|(ticket, guest)| (*ticket, guest))
            .collect();
        guests.sort_by(|(_, a), (_, b)| a.busy().total_cmp(&b.busy()));
        let mut shares: BTreeMap<u64, u32> = BTreeMap::new();
        for demand in demands {
            let able: Vec<&(u64, &Guest)> = guests
                .iter()
                .filter(|(_, guest)| guest.can_take(&demand.tags))
                .collect();
            let mut left = demand.steps;
            let share = left.div_ceil(able.len().max(1) as u32);
            for (ticket, guest) in able {
                let taken = shares.entry(*ticket).or_default();
                let takes = share.min(left).min(guest.poll.free_slots - *taken);
                *taken += takes;
                left -= takes;
            }
        }
        shares.retain(|_, share| *share > 0);
        shares
    }

    /// Evaluates the polls and answers those for which there is something. Returns those for which there was not.
    fn ask(&mut self, asked: Vec<(u64, Poll)>) -> Vec<u64> {
        let (tickets, polls): (Vec<u64>, Vec<Poll>) = asked.into_iter().unzip();
        let answers = self.engine.answer_waiting(polls, self.clock.now());
        let mut left = Vec::new();
        for (ticket, answer) in tickets.into_iter().zip(answers) {
            match answer {
                Ok(answer) if says_nothing(&answer, true) => left.push(ticket),
                Ok(answer) => {
                    let json = PollAnswerJson::from(&answer);
                    self.answer(ticket, &Ok(Response::json(200, &json)));
                }
                Err(EngineError::Store(error)) => {
                    log::warn!("a waiting poll could not be looked at: {error}");
                    self.look_at = Some(Instant::now() + LOOK);
                    left.push(ticket);
                }
                Err(error) => self.answer(ticket, &Err(error.into())),
            }
        }
        left
    }

    fn answer(&mut self, ticket: u64, answer: &Result<Response, ApiError>) {
        if let Some(guest) = self.polls.remove(&ticket) {
            self.tickets.remove(&guest.poll.session_key);
            self.count.store(self.polls.len(), Ordering::Relaxed);
            guest.answer.give(match answer {
                Ok(response) => response.clone(),
                Err(error) => error.response(),
            });
        }
    }

    fn let_go(mut self) {
        self.mailbox.close();
        let message = "the server is stopping, try again";
        let stopping = Err(ApiError::new(503, "stopping", message));
        let tickets: Vec<u64> = self.polls.keys().copied().collect();
        for ticket in tickets {
            self.answer(ticket, &stopping);
        }
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
