//! Who carries requests out: plain threads, one request at a time each, and the queue in front of them.
//!
//! The queue is no channel. A channel's receivers spin before they sleep, and those of many idle threads take the processor from
//! the few that have something to do. It also wakes the thread that slept longest, so that each request meets cold memory;
//! here it is the one that worked last.

use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{JoinHandle, Thread};

use super::App;
use super::auth::{self, Caller, Gate};
use super::error::{ApiError, ERROR_BYTES_MAX, STRANGERS_ERROR_BYTES_MAX};
use super::exchange::{Headers, Method, Reply, Request, Response};
use super::fair_queue::FairQueue;
use super::http::Exchange;
use super::meter::Meter;
use super::routes::{self, Access, CostlyWork, Route};
use super::shares::{Limit, ShareOwner, Shares};
use super::web;
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::lineage::{Epoch, EpochHistory};
use crate::domain::peer::{PROTOCOL, PROTOCOL_HEADER, PROTOCOL_MIN, Peer};
use crate::domain::token::Role;
use crate::essential::{catch_and_count, spawn_essential};
use crate::metrics::{PanicCounts, PanicPlace};
use crate::wire::worker::WORKER_TOO_OLD;

/// As many writes can share a commit as there are threads that wait for it. Workers have threads of their own: however much
/// people read and search, nobody is given up because its heartbeat stood behind them.
const WORKERS_HANDLERS: usize = 64;
const PEOPLES_HANDLERS: usize = 16;
/// Checking the files of one request can take seconds of a processor. Such requests have a few threads of their own and a short queue,
/// so that no number of them makes anybody else wait. One caller has at most one of these threads at a time.
const VALIDATION_HANDLERS: usize = 2;
const VALIDATIONS_QUEUED_MAX: usize = 32;
/// Threads for searches in logs. A search reads the whole log, which may have a gigabyte.
const SEARCH_HANDLERS: usize = 4;

pub struct Handlers {
    pub door: Arc<Door>,
    threads: Vec<JoinHandle<()>>,
}

impl Handlers {
    /// So many requests may wait for each crew.
    pub fn start(app: &Arc<App>, queued_max: usize) -> std::io::Result<Handlers> {
        let queue = |queued_max: usize| Arc::new(Queue::new(queued_max));
        let door = Arc::new(Door {
            gate: app.gate.clone(),
            epochs: app.epochs.clone(),
            commit_number: app.engine.store.commit_number(),
            meter: app.meter.clone(),
            shares: app.shares.clone(),
            panics: app.engine.store.metrics().panics.clone(),
            workers: queue(queued_max),
            people: queue(queued_max),
            validations: Arc::new(Queue {
                handlers_per_caller: VALIDATION_HANDLERS / 2,
                ..Queue::new(VALIDATIONS_QUEUED_MAX.min(queued_max))
            }),
            searches: Arc::new(Queue {
                handlers_per_caller: SEARCH_HANDLERS / 2,
                ..Queue::new(queued_max)
            }),
        });
        let crews = [
            ("workers", door.workers.clone(), WORKERS_HANDLERS),
            ("people", door.people.clone(), PEOPLES_HANDLERS),
            ("checks", door.validations.clone(), VALIDATION_HANDLERS),
            ("searches", door.searches.clone(), SEARCH_HANDLERS),
        ];
        let threads: usize = crews.iter().map(|(_, _, count)| count).sum();
        let mut handlers = Handlers {
            door,
            threads: Vec::with_capacity(threads),
        };
        for (name, queue, count) in crews {
            for number in 1..=count {
                let (app, queue) = (app.clone(), queue.clone());
                let thread = spawn_essential(format!("{name}-{number}"), move || {
                    while let Some((owner, exchange)) = queue.take() {
                        // An exchange that is dropped without an answer is answered with 500.
                        catch_request(&app, exchange.route, || serve(&app, exchange));
                        queue.finish(owner);
                    }
                })?;
                handlers.threads.push(thread);
            }
        }
        Ok(handlers)
    }

    /// Carries out what is queued and takes nothing more.
    pub fn stop(&mut self) {
        self.door.close();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!("a handler met a bug while it stopped");
            }
        }
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A request that may be read.
pub struct Admitted {
    pub route: &'static Route,
    pub params: Vec<String>,
    pub caller: Caller,
    pub announced: Peer,
}

/// Where requests come in.
pub struct Door {
    gate: Arc<Gate>,
    epochs: Arc<EpochHistory>,
    commit_number: Arc<AtomicI64>,
    pub meter: Arc<Meter>,
    pub shares: Arc<Shares>,
    pub panics: Arc<PanicCounts>,
    workers: Arc<Queue>,
    people: Arc<Queue>,
    validations: Arc<Queue>,
    searches: Arc<Queue>,
}

impl Door {
    /// The state of the database that the answers to workers announce, see `domain/lineage.rs`.
    pub fn epoch(&self) -> Epoch {
        let commit_number = self.commit_number.load(Ordering::Acquire);
        self.epochs.epoch(commit_number)
    }

    /// What is asked for, what stands in its path, and who asks; if it exists, and if the caller may. Nothing more is read of a
    /// request before that. `target`: the address as it was asked for.
    pub fn admit(
        &self,
        method: Method,
        path: &[String],
        target: &str,
        headers: &Headers,
    ) -> Result<Admitted, Response> {
        let found = routes::find(method, path);
        let access = found
            .as_ref()
            .map_or(Access::People(Role::Viewer), |(route, _)| route.access);
        let is_page = access.is_page() || (found.is_err() && web::wants_page(path, headers));
        let refused = |error: ApiError| {
            let error = error.clipped(STRANGERS_ERROR_BYTES_MAX);
            match is_page {
                // What was sent cannot be sent again from there.
                true if error.status == 401 && !method.is_safe() => {
                    Response::see_other(web::login_address("/"))
                }
                true if error.status == 401 => Response::see_other(web::login_address(target)),
                true => web::refusal(&error),
                false => error.response(),
            }
        };
        if !matches!(access, Access::Everyone | Access::Signed) {
            let is_linkable = found.as_ref().map_or(true, |(route, _)| route.is_linkable);
            let checked = self.gate.check_origin(method, headers, is_linkable);
            checked.map_err(refused)?;
        }
        if let Ok((route, _)) = &found
            && route.needs_bearer
            && !auth::has_bearer(headers)
        {
            return Err(refused(bearer_missing(route)));
        }
        let caller = match access.needed_role() {
            None => Caller::local(),
            Some(needed) => {
                // Whoever may not come in does not learn what there is.
                let takes_cookie = method.is_safe() || is_page;
                let caller = self.gate.identify(headers, takes_cookie);
                let caller = caller.map_err(refused)?;
                caller.check(needed).map_err(|error| {
                    let address = found
                        .as_ref()
                        .map_or("an unknown address", |(route, _)| route.path);
                    let request = format!("{} {address}", method.as_str());
                    self.gate.note_refused_role(&caller, headers.peer, request);
                    refused(error)
                })?;
                caller
            }
        };
        let (route, params) = found.map_err(refused)?;
        let announced = match route.access.is_for_workers() {
            true => announced(headers).map_err(refused)?,
            false => Peer::UNANNOUNCED,
        };
        Ok(Admitted {
            route,
            params,
            caller,
            announced,
        })
    }

    pub fn put(&self, exchange: Exchange) -> Result<(), NotQueued> {
        let queue = match exchange.route.costly_work(&exchange.request) {
            Some(CostlyWork::Validation) => &self.validations,
            Some(CostlyWork::LogSearch) => &self.searches,
            None => match exchange.route.access {
                Access::Everyone | Access::Workers => &self.workers,
                Access::People(_)
                | Access::Pages(_)
                | Access::Public
                | Access::Signed
                | Access::Enrolment => &self.people,
            },
        };
        let owner = self.share_owner(exchange.route, &exchange.request);
        let share = self.shares.share_of(queue.queued_max);
        queue.put(exchange, owner, share)
    }

    /// Returns the caller whose share of the queue and of the memory a request takes. `None`: the request is exempt.
    pub fn share_owner(&self, route: &Route, request: &Request) -> Option<ShareOwner> {
        match route.access {
            // A fleet of workers often has one token, and its heartbeats must not be refused.
            Access::Everyone | Access::Workers => None,
            _ => self.share_owner_of(&request.caller, request.headers.peer),
        }
    }

    /// Returns the caller whose share is taken by a request that is not read yet, to a route that is not exempt.
    pub fn share_owner_of(&self, caller: &Caller, peer: IpAddr) -> Option<ShareOwner> {
        ShareOwner::of(caller, peer, self.gate.asks_for_token())
    }

    /// The answer to a caller whose whole share of the queue is waiting already.
    pub fn over_queue_share(&self, owner: ShareOwner, queued_max: usize) -> Response {
        let error = (self.shares).over_share(Limit::QueuedRequests, owner, queued_max);
        error.response()
    }

    fn close(&self) {
        self.workers.close();
        self.people.close();
        self.validations.close();
        self.searches.close();
    }
}

/// The answer to a request that may only be made with a bearer token, and was made without.
fn bearer_missing(route: &Route) -> ApiError {
    let (method, path) = (route.method.as_str(), route.path);
    let message = format!(
        "{method} {path} takes a bearer token, which no browser sends by itself: use POST, as stepward 0.2 and newer do; \
         for the command line of 0.1, upgrade it or name a token with --token-file"
    );
    ApiError {
        allow: Some(Method::Post.as_str().to_string()),
        ..ApiError::new(405, "method_not_allowed", message)
    }
}

/// How the caller of a worker route announced itself, if this server still understands it.
fn announced(headers: &Headers) -> Result<Peer, ApiError> {
    let Some(header) = &headers.protocol else {
        return Ok(Peer::UNANNOUNCED);
    };
    let peer = Peer::parse(header).ok_or_else(|| {
        let message = format!(
            "the header {PROTOCOL_HEADER} must begin with a protocol number, as in `{PROTOCOL}; features=start_details`"
        );
        ApiError::new(400, "bad_request", message)
    })?;
    if peer.is_too_old() {
        let version = env!("CARGO_PKG_VERSION");
        let message = format!(
            "this worker is too old for the server: it speaks protocol {}, the oldest that the server understands is {PROTOCOL_MIN}; \
             install version {version} on the worker",
            peer.protocol
        );
        return Err(ApiError {
            details: vec![version.to_string()],
            ..ApiError::new(426, WORKER_TOO_OLD, message)
        });
    }
    Ok(peer)
}

/// Requests on their way to a handler. Callers take turns; the requests of one caller keep their order.
struct Queue<T = Exchange> {
    queued_max: usize,
    /// So many requests of one caller are handled at a time, however many handlers are idle.
    handlers_per_caller: usize,
    state: Mutex<State<T>>,
}

struct State<T> {
    exchanges: FairQueue<T>,
    /// The caller of each request that is being handled, if callers may not have all handlers.
    busy: Vec<ShareOwner>,
    /// Who sleeps here; the last of them worked last.
    idle: Vec<Thread>,
    is_closed: bool,
}

/// Why a request is not taken.
pub enum NotQueued {
    Full,
    /// The caller already has its whole share of this queue waiting.
    OverShare {
        owner: ShareOwner,
        queued_max: usize,
    },
    Closed,
}

impl<T> Queue<T> {
    fn new(queued_max: usize) -> Queue<T> {
        let state = State {
            exchanges: FairQueue::default(),
            busy: Vec::new(),
            idle: Vec::new(),
            is_closed: false,
        };
        Queue {
            queued_max,
            handlers_per_caller: usize::MAX,
            state: Mutex::new(state),
        }
    }

    /// `share`: how many requests of one owner may wait.
    fn put(&self, exchange: T, owner: Option<ShareOwner>, share: usize) -> Result<(), NotQueued> {
        let mut state = self.state();
        if state.is_closed {
            return Err(NotQueued::Closed);
        }
        if let Some(owner) = owner
            && state.exchanges.len_of(owner) >= share
        {
            return Err(NotQueued::OverShare {
                owner,
                queued_max: self.queued_max,
            });
        }
        if state.exchanges.len() >= self.queued_max {
            return Err(NotQueued::Full);
        }
        state.exchanges.push(owner, exchange);
        let handler = state.idle.pop();
        drop(state);
        if let Some(handler) = handler {
            handler.unpark();
        }
        Ok(())
    }

    /// The next request and its caller, who is to be told to `finish`. `None`: it is closed, and everything in it was taken, or is left
    /// to the handler of the same caller.
    fn take(&self) -> Option<(Option<ShareOwner>, T)> {
        let thread = std::thread::current();
        let mut state = self.state();
        loop {
            let State {
                exchanges, busy, ..
            } = &mut *state;
            let handlers_of = |owner| busy.iter().filter(|busy| **busy == owner).count();
            let is_free = |owner| handlers_of(owner) < self.handlers_per_caller;
            if let Some((owner, exchange)) = exchanges.pop(is_free) {
                if self.handlers_per_caller < usize::MAX {
                    busy.extend(owner);
                }
                // It may have been woken by something else, or have been faster than who was.
                state.idle.retain(|idle| idle.id() != thread.id());
                return Some((owner, exchange));
            }
            if state.is_closed {
                return None;
            }
            if !state.idle.iter().any(|idle| idle.id() == thread.id()) {
                state.idle.push(thread.clone());
            }
            drop(state);
            std::thread::park();
            state = self.state();
        }
    }

    /// The request of this caller was handled. If another one waits, the handler that calls this takes it next.
    fn finish(&self, owner: Option<ShareOwner>) {
        if self.handlers_per_caller < usize::MAX {
            let busy = &mut self.state().busy;
            if let Some(at) = busy.iter().position(|busy| Some(*busy) == owner) {
                busy.swap_remove(at);
            }
        }
    }

    fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.idle.drain(..).for_each(|idle| idle.unpark());
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no panic while it is held")
    }
}

/// `None`: the work for this request panicked.
fn catch_request<T>(app: &App, route: &Route, work: impl FnOnce() -> T) -> Option<T> {
    let item = format_args!("the request to {}", route.path);
    catch_and_count(app.engine.store.metrics(), PanicPlace::Request, item, work)
}

fn serve(app: &App, exchange: Exchange) {
    let Exchange {
        request,
        route,
        answer,
        ..
    } = &exchange;
    // Whoever left while the request was queued wants no answer; a worker repeats what it had to say.
    if answer.is_gone() {
        return;
    }
    note_who_came(app, &request.caller);
    let handled = answer.check_budget().and_then(|()| {
        let handled = catch_request(app, route, || (route.handler)(app, request));
        handled.unwrap_or_else(|| {
            let message = "the server met a fault of its own, its log says which";
            Err(ApiError::new(500, "internal", message))
        })
    });
    let handled = handled.map_err(|error| {
        error.clipped(match route.access.is_checked() {
            true => ERROR_BYTES_MAX,
            false => STRANGERS_ERROR_BYTES_MAX,
        })
    });
    let share_owner = app.share_owner(request);
    let (answer, route_access) = (exchange.answer, exchange.route.access);
    match handled {
        Ok(Reply::Now(response)) => answer.give(response),
        Ok(Reply::Wait(poll)) => app.waiting.wait(poll, answer),
        Ok(Reply::Stream(subscription)) => app.streams.open(subscription, answer),
        Ok(Reply::Download(download)) => app.downloads.begin(download, share_owner, answer),
        Err(error) if route_access.is_page() => {
            answer.give(web::refusal(&error));
        }
        Err(error) => answer.give(error.response()),
    }
}

/// What is to be remembered of whoever knocks. A request is not refused because it could not be.
fn note_who_came(app: &App, caller: &Caller) {
    let now = app.clock.now();
    if let Some(token_id) = caller.token_id()
        && app.gate.is_use_to_be_noted(token_id)
        && let Err(error) = app.engine.note_token_use(token_id, now)
    {
        log::warn!("the use of token {token_id} could not be written down: {error}");
    }
    for address in app.gate.take_alarms() {
        let text = format!(
            "too many wrong tokens or webhook secrets came from {address}: more of them are refused for a while"
        );
        log::warn!("{text}");
        let event = NewEvent::new(EventKind::LoginRefused, text);
        if let Err(error) = app.engine.tell(event, now) {
            log::warn!("it could not be written down: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::TokenId;

    #[test]
    fn one_caller_has_a_part_of_the_handlers() {
        let ann = Some(ShareOwner::Token(TokenId(1)));
        let bob = Some(ShareOwner::Token(TokenId(2)));
        let queue = Queue {
            handlers_per_caller: 2,
            ..Queue::new(8)
        };
        for (owner, item) in [(ann, 1), (ann, 2), (ann, 3), (bob, 4), (None, 5), (None, 6)] {
            assert!(queue.put(item, owner, 8).is_ok());
        }
        let next = || queue.take().map(|(_, item)| item);
        // Callers that are exempt from shares may have all handlers.
        assert_eq!(
            [next(), next(), next(), next(), next()],
            [1, 4, 5, 2, 6].map(Some)
        );
        queue.close();
        // What waits for its turn is left to the handler that finishes before it.
        assert_eq!(queue.take(), None);
        queue.finish(ann);
        assert_eq!(queue.take(), Some((ann, 3)));
    }
}
