//! Everybody who waits, and who of them is asked to take what. Deliberately not here: the engine, threads, commits.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Update, WaitingPoll, nothing};
use crate::domain::WorkerId;
use crate::domain::protocol::Poll;
use crate::engine::Offer;
use crate::server::error::ApiError;
use crate::server::exchange::Response;
use crate::server::http::Answer;
use crate::store::Demand;

/// How often those who went away are looked for, and how long nobody is asked again who was asked in vain.
pub const LOOK: Duration = Duration::from_secs(1);

/// How long a poll may be on its way from its evaluation to here.
const ON_ITS_WAY_MAX: Duration = Duration::from_secs(30);

/// Notices about workers that are remembered for polls that were on their way.
const TAKEN_FROM_MAX: usize = 4_096;

#[derive(Default)]
pub struct Room {
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
    /// It shares a commit that is on its way.
    is_being_asked: bool,
}

impl Guest {
    fn can_be_asked(&self, now: Instant) -> bool {
        let asked_too_often = self.passed_over_until.is_some_and(|until| until > now);
        let is_busy = self.is_being_asked || self.offer.is_held_back;
        self.poll.free_slots > 0 && !asked_too_often && !is_busy
    }

    fn busy(&self) -> f64 {
        let slots = f64::from(self.offer.slots.max(1));
        1.0 - f64::from(self.poll.free_slots) / slots
    }

    fn can_take(&self, words: &[String]) -> bool {
        let offered = |word: &String| self.offer.words.binary_search(word).is_ok();
        words.iter().all(offered)
    }

    fn learn(&mut self, update: &Update) {
        self.poll.free_slots = update.free_slots;
        self.poll.held.clone_from(&update.held);
    }
}

impl Room {
    /// How many wait, for others to look at.
    pub fn count(&self) -> Arc<AtomicUsize> {
        self.count.clone()
    }

    /// When somebody's time is up, or something is to be looked at again.
    pub fn next_moment(&self) -> Option<Instant> {
        let ends = self.polls.values().map(|guest| guest.until);
        ends.chain(self.look_at).min()
    }

    /// Looks for claimable steps again at this moment, or earlier if that was asked for already.
    pub fn look_again_at(&mut self, moment: Instant) {
        self.look_at = self.look_at.into_iter().chain([moment]).min();
    }

    /// Whether it is time to look again.
    pub fn is_to_look(&mut self, now: Instant) -> bool {
        self.look_at.take_if(|at| *at <= now).is_some()
    }

    /// Whether there may be something for it already. `number` is that of the last notice.
    pub fn seat(
        &mut self,
        waiting: WaitingPoll,
        answer: Answer,
        number: u64,
        concerned: &mut HashSet<WorkerId>,
        now: Instant,
    ) -> bool {
        let key = waiting.poll.session_key.clone();
        // One poll of a session waits at a time. The former was given up by its worker, or its answer is not wanted.
        if let Some(former) = self.tickets.get(&key).copied() {
            self.answer(former, &nothing());
        }
        let noticed = waiting.arrival.noticed;
        let stale = number != noticed;
        let worker_id = waiting.offer.worker_id;
        if stale && self.may_have_been_taken_from(worker_id, noticed) {
            concerned.insert(worker_id);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let mut guest = Guest {
            poll: waiting.poll,
            offer: waiting.offer,
            answer,
            until: now + waiting.wait,
            passed_over_until: None,
            is_being_asked: false,
        };
        if let Some(last) = self.updates.get(&key)
            && last.moment > waiting.arrival.moment
        {
            guest.learn(&last.update);
        }
        let has_free_slots = guest.poll.free_slots > 0;
        if has_free_slots {
            // A step that this worker gave back is withheld from it for some seconds, and no notice tells when they are over.
            self.look_again_at(now + LOOK);
        }
        let looks = stale && has_free_slots;
        self.tickets.insert(key, ticket);
        self.polls.insert(ticket, guest);
        self.note_count();
        looks
    }

    /// Whether a notice about this worker came after the given one, as far as that is remembered.
    fn may_have_been_taken_from(&self, worker_id: WorkerId, noticed: u64) -> bool {
        let oldest = self.taken_from.front().map_or(0, |(number, _)| *number);
        let is_forgotten = self.taken_from.len() == TAKEN_FROM_MAX && oldest > noticed;
        let mut taken_from = self.taken_from.iter();
        is_forgotten || taken_from.any(|(number, known)| *number > noticed && *known == worker_id)
    }

    /// Whether there may be something for it already. `number` is that of the last notice.
    pub fn update(&mut self, update: Update, moment: u64, number: u64, now: Instant) -> bool {
        let stale = number != update.arrival.noticed;
        let ticket = self.tickets.get(&update.session_key);
        let guest = ticket.and_then(|ticket| self.polls.get_mut(ticket));
        let looks = guest.is_some_and(|guest| {
            guest.learn(&update);
            stale && guest.poll.free_slots > 0
        });
        let last = LastWord {
            moment,
            kept_until: now + ON_ITS_WAY_MAX,
            update,
        };
        self.updates.insert(last.update.session_key.clone(), last);
        looks
    }

    /// There was something to tell this worker with the notice of this number.
    pub fn remember(&mut self, number: u64, worker_id: WorkerId) {
        if self.taken_from.len() == TAKEN_FROM_MAX {
            self.taken_from.pop_front();
        }
        self.taken_from.push_back((number, worker_id));
    }

    pub fn end_those_whose_time_is_up(&mut self, now: Instant) {
        let over = self.polls.iter().filter(|(_, guest)| guest.until <= now);
        let over: Vec<u64> = over.map(|(ticket, _)| *ticket).collect();
        for ticket in over {
            self.answer(ticket, &nothing());
        }
    }

    pub fn dismiss_those_who_left(&mut self, now: Instant) {
        let tickets = &mut self.tickets;
        self.polls.retain(|_, guest| {
            let is_gone = guest.answer.is_gone();
            if is_gone {
                tickets.remove(&guest.poll.session_key);
            }
            !is_gone
        });
        self.updates.retain(|_, last| last.kept_until > now);
        self.note_count();
    }

    pub fn learn_offer(&mut self, ticket: u64, offer: Offer) {
        if let Some(guest) = self.polls.get_mut(&ticket) {
            guest.offer = offer;
        }
    }

    /// Polls of these workers.
    pub fn polls_of(&self, workers: &HashSet<WorkerId>) -> Vec<(u64, Poll)> {
        let polls = self.polls.iter().filter_map(|(ticket, guest)| {
            let concerned = workers.contains(&guest.offer.worker_id) && !guest.answer.is_gone();
            concerned.then(|| (*ticket, guest.poll.clone()))
        });
        polls.collect()
    }

    /// Slots that could be filled now, as many as it makes sense to count.
    pub fn free_slots(&self, now: Instant) -> u32 {
        const COUNTED_MAX: u64 = 100_000;
        let free = self.polls.values().filter(|guest| guest.can_be_asked(now));
        let slots: u64 = free.map(|guest| u64::from(guest.poll.free_slots)).sum();
        slots.min(COUNTED_MAX) as u32
    }

    /// Whoever was asked in vain, and there still is what its tags allow, is not asked again for a while.
    pub fn pass_over(&mut self, in_vain: &HashSet<u64>, demands: &[Demand], now: Instant) {
        let mut is_passed_over = false;
        for ticket in in_vain {
            if let Some(guest) = self.polls.get_mut(ticket)
                && demands.iter().any(|demand| guest.can_take(&demand.words))
            {
                guest.passed_over_until = Some(now + LOOK);
                is_passed_over = true;
            }
        }
        if is_passed_over {
            self.look_again_at(now + LOOK);
        }
    }

    /// Who is asked, each for its share: as many workers as there are steps, the least busy first.
    pub fn share_out(
        &self,
        demands: &[Demand],
        in_vain: &HashSet<u64>,
        now: Instant,
    ) -> Vec<(u64, Poll)> {
        let mut guests: Vec<(u64, &Guest)> = self
            .polls
            .iter()
            .filter(|(ticket, guest)| {
                let was_asked = !guest.can_be_asked(now) || in_vain.contains(ticket);
                !was_asked && !guest.answer.is_gone()
            })
            .map(|(ticket, guest)| (*ticket, guest))
            .collect();
        // Whoever was asked in vain before comes last, so that it does not stand in others' way for ever.
        guests.sort_by(|(_, a), (_, b)| {
            let patience = a.passed_over_until.cmp(&b.passed_over_until);
            patience.then(a.busy().total_cmp(&b.busy()))
        });
        let mut shares: BTreeMap<u64, u32> = BTreeMap::new();
        for demand in demands {
            let able: Vec<&(u64, &Guest)> = guests
                .iter()
                .filter(|(_, guest)| guest.can_take(&demand.words))
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
        let shares = shares.into_iter().filter(|(_, share)| *share > 0);
        let asked = shares.map(|(ticket, free_slots)| {
            let poll = self.polls[&ticket].poll.clone();
            (ticket, Poll { free_slots, ..poll })
        });
        asked.collect()
    }

    /// One of those who were just chosen shares a commit.
    pub fn begin_asking(&mut self, ticket: u64) -> WorkerId {
        let guest = self.polls.get_mut(&ticket).expect("it was just chosen");
        guest.is_being_asked = true;
        guest.offer.worker_id
    }

    /// That commit is made. Returns whether it still waits.
    pub fn end_asking(&mut self, ticket: u64) -> bool {
        let guest = self.polls.get_mut(&ticket);
        guest.map(|guest| guest.is_being_asked = false).is_some()
    }

    pub fn answer(&mut self, ticket: u64, answer: &Result<Response, ApiError>) {
        if let Some(waiting) = self.take(ticket) {
            waiting.give(match answer {
                Ok(response) => response.clone(),
                Err(error) => error.response(),
            });
        }
    }

    /// Takes a poll out that somebody else will answer.
    pub fn take(&mut self, ticket: u64) -> Option<Answer> {
        let guest = self.polls.remove(&ticket)?;
        self.tickets.remove(&guest.poll.session_key);
        self.note_count();
        Some(guest.answer)
    }

    pub fn answer_all(&mut self, answer: &Result<Response, ApiError>) {
        let tickets: Vec<u64> = self.polls.keys().copied().collect();
        for ticket in tickets {
            self.answer(ticket, answer);
        }
    }

    fn note_count(&self) {
        self.count.store(self.polls.len(), Ordering::Relaxed);
    }
}
