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
use super::error::ApiError;
use super::exchange::{Reply, Request, Response};
use super::http::Exchange;
use super::routes::{self, Access};

/// As many writes can share a commit as there are threads that wait for it.
const HANDLERS: usize = 64;

/// Requests that wait for a handler.
const QUEUED_MAX: usize = 4_096;

pub struct Handlers {
    pub queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl Handlers {
    pub fn start(app: &Arc<App>) -> std::io::Result<Handlers> {
        let mut handlers = Handlers {
            queue: Arc::default(),
            threads: Vec::with_capacity(HANDLERS),
        };
        for number in 1..=HANDLERS {
            let (app, queue) = (app.clone(), handlers.queue.clone());
            let thread = std::thread::Builder::new()
                .name(format!("http-{number}"))
                .spawn(move || {
                    while let Some(exchange) = queue.take() {
                        serve(&app, exchange);
                    }
                })?;
            handlers.threads.push(thread);
        }
        Ok(handlers)
    }

    /// Carries out what is queued and takes nothing more.
    pub fn stop(&mut self) {
        self.queue.close();
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

/// Requests on their way to a handler, in the order in which they came.
#[derive(Default)]
pub struct Queue {
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
    pub fn put(&self, exchange: Exchange) -> Result<(), NotQueued> {
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
        mut request,
        answer,
    } = exchange;
    // Whoever left while the request was queued wants no answer; a worker repeats what it had to say.
    if answer.is_gone() {
        return;
    }
    let handled = catch_unwind(AssertUnwindSafe(|| handle(app, &mut request)));
    match handled {
        Ok(Ok(Reply::Now(response))) => answer.give(response),
        Ok(Ok(Reply::Wait(poll))) => app.waiting.wait(poll, answer),
        Ok(Ok(Reply::Stream(subscription))) => app.streams.open(subscription, answer),
        Ok(Ok(Reply::Download(download))) => app.downloads.begin(download, answer),
        Ok(Err(error)) => answer.give(error.response()),
        Err(_) => {
            let path = request.path.join("/");
            log::error!("a bug was met at /{path}; the server goes on");
            let message = "the server met a fault of its own, its log says which";
            answer.give(Response::error(500, "internal", message, Vec::new()));
        }
    }
}

fn handle(app: &App, request: &mut Request) -> Result<Reply, ApiError> {
    let route = routes::find(request)?;
    match route.access {
        Access::Everyone => {}
        Access::Token => app.gate.check(request)?,
    }
    (route.handler)(app, request)
}
