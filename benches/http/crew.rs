//! Workers that run nothing: each has the mind of a real one and three connections, and a step that may start has ended.
//! One thread drives them all.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use stepward::clock::monotonic_ms;
use stepward::domain::AttemptRef;
use stepward::domain::protocol::{Finished, PollAnswer, Registration, Verdict};
use stepward::wire::worker::{
    HeartbeatAnswer, HeartbeatRequest, PollAnswerJson, PollRequest, ReportsAnswerJson,
    ReportsRequest, SessionAnswer, SessionRequest, VerdictJson,
};
use stepward::worker::{Event, Machine, Moment, Order};

use super::line::{Answer, Line};

/// As long as real workers let it be held.
const POLL_WAIT: Duration = Duration::from_secs(30);

/// How often the minds are told that time has passed.
const TICK: Duration = Duration::from_millis(50);

/// Before any call is due. What happens then is told later, together with more.
const EARLIER: Moment = -1;

/// A load that takes longer has failed.
const TIME_MAX: Duration = Duration::from_secs(300);

const LINES: usize = 3;
const REPORTS: usize = 0;
const POLLS: usize = 1;
const BEATS: usize = 2;

pub struct Crew {
    epoll: Arc<OwnedFd>,
    members: Vec<Member>,
    begun: Instant,
    ticked: Instant,
    /// Whether a step ends once it has started.
    ends_steps: bool,
    pub seen: Seen,
}

/// What the server has said to all of them.
#[derive(Default)]
pub struct Seen {
    pub assigned: usize,
    /// The last one.
    pub assigned_at: Option<Instant>,
    pub running: BTreeSet<AttemptRef>,
    pub finished: usize,
    pub polls: usize,
    pub reports: usize,
    /// Polls that were answered with nothing before their time: they were not held.
    pub polls_cut_short: usize,
}

struct Member {
    machine: Machine,
    lines: [Line; LINES],
    session_key: String,
    is_opening: bool,
    polled_at: Instant,
}

impl Crew {
    /// Opens all sessions; nobody asks for anything before `begin`.
    pub fn open(address: SocketAddr, workers: usize, slots: u32) -> (Crew, Vec<Event>) {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let epoll = Arc::new(epoll);
        let now = monotonic_ms();
        let members = (0..workers).map(|member| {
            let key = format!("{}-{now}-{member}", std::process::id());
            let line = |line: usize| Line::watched(address, &epoll, (member * LINES + line) as u64);
            Member {
                machine: Machine::new(registration(&key, slots), Vec::new(), now),
                lines: std::array::from_fn(line),
                session_key: key,
                is_opening: true,
                polled_at: Instant::now(),
            }
        });
        let mut crew = Crew {
            members: members.collect(),
            epoll: epoll.clone(),
            begun: Instant::now(),
            ticked: Instant::now(),
            ends_steps: true,
            seen: Seen::default(),
        };
        let opened = crew.members.iter_mut().map(|member| {
            for order in member.machine.handle(Event::Tick, now) {
                carry_out(member, order, &mut crew.seen);
            }
            loop {
                if let Some(answer) = member.lines[REPORTS].receive() {
                    return Event::Opened(Ok(answer
                        .json::<SessionAnswer>()
                        .into_session(stepward::domain::peer::Features::NONE)));
                }
            }
        });
        let opened = opened.collect();
        (crew, opened)
    }

    pub fn begin(&mut self, opened: Vec<Event>) {
        self.begun = Instant::now();
        for (index, event) in opened.into_iter().enumerate() {
            self.members[index].is_opening = false;
            self.handle(index, event);
        }
    }

    /// Steps that start go on for ever.
    pub fn keep_running(&mut self) {
        self.ends_steps = false;
    }

    pub fn run_until(&mut self, is_over: impl Fn(&Seen) -> bool) {
        while !is_over(&self.seen) {
            self.go_on();
        }
    }

    pub fn run_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.go_on();
        }
    }

    /// Polls that the server has and has not answered.
    pub fn waiting(&self) -> usize {
        let waiting = |member: &&Member| member.lines[POLLS].is_busy();
        self.members.iter().filter(waiting).count()
    }

    pub fn session_key(&self, index: usize) -> &str {
        &self.members[index].session_key
    }

    fn go_on(&mut self) {
        assert!(self.begun.elapsed() < TIME_MAX, "the load takes too long");
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(256);
        let tick = Timespec::try_from(TICK).unwrap();
        epoll::wait(&self.epoll, spare_capacity(&mut ready), Some(&tick)).unwrap();
        for event in ready {
            let number = event.data.u64() as usize;
            let (index, line) = (number / LINES, number % LINES);
            if let Some(answer) = self.members[index].lines[line].receive() {
                let event = self.understand(index, line, &answer);
                self.handle(index, event);
            }
        }
        if self.ticked.elapsed() >= TICK {
            self.ticked = Instant::now();
            for index in 0..self.members.len() {
                self.handle(index, Event::Tick);
            }
        }
    }

    fn understand(&mut self, index: usize, line: usize, answer: &Answer) -> Event {
        let member = &self.members[index];
        assert!(!member.is_opening, "sessions are opened one by one");
        let key = member.session_key.clone();
        match line {
            BEATS => Event::Beaten(key, Ok(answer.json::<HeartbeatAnswer>().into())),
            POLLS => {
                let polled: PollAnswer = answer.json::<PollAnswerJson>().into();
                self.seen.polls += 1;
                let soon = member.polled_at.elapsed() + Duration::from_secs(1) < POLL_WAIT;
                if polled.assignments.is_empty() && polled.abort.is_empty() && soon {
                    self.seen.polls_cut_short += 1;
                }
                Event::Polled(key, Ok(polled))
            }
            _ => {
                let reported: ReportsAnswerJson = answer.json();
                self.seen.reports += 1;
                let refused =
                    |verdict: &&VerdictJson| !matches!(verdict, VerdictJson::Accepted { .. });
                let refused = reported.results.iter().find(refused);
                assert!(
                    refused.is_none(),
                    "{:?}",
                    refused.cloned().map(Verdict::from)
                );
                Event::Reported(key, Ok(reported.into()))
            }
        }
    }

    fn handle(&mut self, index: usize, event: Event) {
        let member = &mut self.members[index];
        let now = monotonic_ms();
        let mut orders = member.machine.handle(event, now);
        while !orders.is_empty() {
            let news = orders.into_iter().filter_map(|order| {
                let news = carry_out(member, order, &mut self.seen);
                news.filter(|news| self.ends_steps || !matches!(news, Event::Ended { .. }))
            });
            let news: Vec<Event> = news.collect();
            // What happens at once is reported at once, in one call.
            let last = news.len().saturating_sub(1);
            let told = news.into_iter().enumerate().flat_map(|(place, news)| {
                let at = if place == last { now } else { EARLIER };
                member.machine.handle(news, at)
            });
            orders = told.collect();
        }
    }
}

/// What happens because of it, right now.
fn carry_out(member: &mut Member, order: Order, seen: &mut Seen) -> Option<Event> {
    let mut send = |line: usize, what: &str, body: Vec<u8>| {
        member.lines[line].send("POST", &format!("/api/worker/{what}"), &body);
    };
    match order {
        Order::Open {
            registration,
            spooled,
        } => send(
            REPORTS,
            "sessions",
            json(&SessionRequest::new(
                &registration,
                &spooled,
                &HashMap::new(),
            )),
        ),
        Order::Beat(beat) => send(BEATS, "heartbeat", json(&HeartbeatRequest::from(&beat))),
        Order::Poll(poll) => {
            let wait_ms = POLL_WAIT.as_millis() as u64;
            send(POLLS, "poll", json(&PollRequest::new(&poll, wait_ms)));
            member.polled_at = Instant::now();
        }
        Order::Report(reports) => send(
            REPORTS,
            "reports",
            json(&ReportsRequest::new(&reports, &Default::default())),
        ),
        Order::Prepare { assignment, .. } => {
            seen.assigned += 1;
            seen.assigned_at = Some(Instant::now());
            return Some(Event::Prepared(assignment.attempt));
        }
        Order::Run(assignment) => {
            let attempt = assignment.attempt;
            seen.running.insert(attempt);
            let finished = Finished::completed();
            return Some(Event::Ended { attempt, finished });
        }
        Order::Forget(attempt) => {
            seen.running.remove(&attempt);
            seen.finished += 1;
        }
        // There is no crash to survive.
        Order::Keep(_) => {}
        Order::Kill { .. } | Order::Drain { .. } | Order::Leave => {
            panic!("nobody ends anything here: {order:?}")
        }
    }
    None
}

fn json(message: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap()
}

fn registration(key: &str, slots: u32) -> Registration {
    Registration {
        instance_key: key.to_string(),
        session_key: key.to_string(),
        name: key.to_string(),
        tags: vec!["script".to_string()],
        slots,
        version: String::new(),
        platform: String::new(),
        features: stepward::domain::peer::Features::NONE,
    }
}
