//! Who carries requests out: plain threads, one request at a time each, and the queue in front of them.
//!
//! The queue is no channel. A channel's receivers spin before they sleep, and those of many idle threads take the processor from
//! the few that have something to do. It also wakes the thread that slept longest, so that each request meets cold memory;
//! here it is the one that worked last.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{JoinHandle, Thread};

use super::App;
use super::auth::Gate;
use super::error::ApiError;
use super::exchange::{Headers, Method, Reply, Response};
use super::http::Exchange;
use super::meter::Meter;
use super::routes::{self, Access, Route};
use super::web;

/// As many writes can share a commit as there are threads that wait for it. Workers have threads of their own: however much
/// people read and search, nobody is given up because its heartbeat stood behind them.
const WORKERS_HANDLERS: usize = 64;
const PEOPLES_HANDLERS: usize = 16;

/// Requests that wait for a handler.
const QUEUED_MAX: usize = 4_096;

pub struct Handlers {
    pub door: Arc<Door>,
    threads: Vec<JoinHandle<()>>,
}

impl Handlers {
    pub fn start(app: &Arc<App>) -> std::io::Result<Handlers> {
        let door = Arc::new(Door {
            gate: app.gate.clone(),
            meter: app.meter.clone(),
            workers: Arc::default(),
            people: Arc::default(),
        });
        let crews = [
            ("workers", door.workers.clone(), WORKERS_HANDLERS),
            ("people", door.people.clone(), PEOPLES_HANDLERS),
        ];
        let mut handlers = Handlers {
            door,
            threads: Vec::with_capacity(WORKERS_HANDLERS + PEOPLES_HANDLERS),
        };
        for (name, queue, count) in crews {
            for number in 1..=count {
                let (app, queue) = (app.clone(), queue.clone());
                let thread = std::thread::Builder::new()
                    .name(format!("{name}-{number}"))
                    .spawn(move || {
                        while let Some(exchange) = queue.take() {
                            serve(&app, exchange);
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

/// Where requests come in.
pub struct Door {
    gate: Arc<Gate>,
    pub meter: Arc<Meter>,
    workers: Arc<Queue>,
    people: Arc<Queue>,
}

impl Door {
    /// What is asked for, and what stands in its path; if it exists, and if the caller may. Nothing more is read of a request
    /// before that. `target`: the address as it was asked for.
    pub fn admit(
        &self,
        method: Method,
        path: &[String],
        target: &str,
        headers: &Headers,
    ) -> Result<(&'static Route, Vec<String>), Response> {
        let found = routes::find(method, path);
        let access = found
            .as_ref()
            .map_or(Access::People, |(route, _)| route.access);
        let is_page = matches!(access, Access::Pages | Access::Public)
            || (found.is_err() && web::wants_page(path, headers));
        let refused = |error: ApiError| match is_page {
            // What was sent cannot be sent again from there.
            true if error.status == 401 && !method.is_safe() => {
                Response::see_other(web::login_address("/"))
            }
            true if error.status == 401 => Response::see_other(web::login_address(target)),
            true => web::refusal(&error),
            false => error.response(),
        };
        if !matches!(access, Access::Everyone | Access::Signed) {
            self.gate.check_origin(method, headers).map_err(refused)?;
        }
        if !matches!(access, Access::Everyone | Access::Signed | Access::Public) {
            // Whoever may not come in does not learn what there is.
            let takes_cookie = method.is_safe() || is_page;
            self.gate.check(headers, takes_cookie).map_err(refused)?;
        }
        found.map_err(refused)
    }

    pub fn put(&self, exchange: Exchange) -> Result<(), NotQueued> {
        match exchange.route.access {
            Access::Everyone | Access::Workers => self.workers.put(exchange),
            Access::People | Access::Pages | Access::Public | Access::Signed => {
                self.people.put(exchange)
            }
        }
    }

    fn close(&self) {
        self.workers.close();
        self.people.close();
    }
}

/// Requests on their way to a handler, in the order in which they came.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    exchanges: VecDeque<Exchange>,
    /// Who sleeps here; the last of them worked last.
    idle: Vec<Thread>,
    is_closed: bool,
}

/// Why a request is not taken.
pub enum NotQueued {
    Full,
    Closed,
}

impl Queue {
    fn put(&self, exchange: Exchange) -> Result<(), NotQueued> {
        let mut state = self.state();
        if state.is_closed {
            return Err(NotQueued::Closed);
        }
        if state.exchanges.len() >= QUEUED_MAX {
            return Err(NotQueued::Full);
        }
        state.exchanges.push_back(exchange);
        let handler = state.idle.pop();
        drop(state);
        if let Some(handler) = handler {
            handler.unpark();
        }
        Ok(())
    }

    /// `None`: it is closed, and everything in it was taken.
    fn take(&self) -> Option<Exchange> {
        let thread = std::thread::current();
        let mut state = self.state();
        loop {
            if let Some(exchange) = state.exchanges.pop_front() {
                // It may have been woken by something else, or have been faster than who was.
                state.idle.retain(|idle| idle.id() != thread.id());
                return Some(exchange);
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

    fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.idle.drain(..).for_each(|idle| idle.unpark());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }
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
    let handled = catch_unwind(AssertUnwindSafe(|| (route.handler)(app, request)));
    let handled = handled.unwrap_or_else(|_| {
        let path = route.path;
        log::error!("a bug was met at {path}; the server goes on");
        let message = "the server met a fault of its own, its log says which";
        Err(ApiError::new(500, "internal", message))
    });
    let (answer, route_access) = (exchange.answer, exchange.route.access);
    match handled {
        Ok(Reply::Now(response)) => answer.give(response),
        Ok(Reply::Wait(poll)) => app.waiting.wait(poll, answer),
        Ok(Reply::Stream(subscription)) => app.streams.open(subscription, answer),
        Ok(Reply::Download(download)) => app.downloads.begin(download, answer),
        Err(error) if matches!(route_access, Access::Pages | Access::Public) => {
            answer.give(web::refusal(&error));
        }
        Err(error) => answer.give(error.response()),
    }
}
