//! Panics: which of them the process survives.
//!
//! A panic is a bug. If the bug concerns one item (one request, one suspect of the sweeper, one schedule, one message), the
//! item is logged, counted in `stepward_panics_total` and skipped, and the thread goes on with the next item: see
//! [`catch_and_count`]. If the panic would end a thread that the process cannot do without, the process aborts, because a
//! process that looks alive while nobody sweeps, answers or reports is worse than one that a service manager restarts. Everything
//! that was acknowledged is on disk, so the next start recovers.
//!
//! # The essential threads
//!
//! | thread | started in | its items |
//! |---|---|---|
//! | `writer`, `answers` | `store/writer.rs` | one call |
//! | `sweeper` | `sweeper/thread.rs` | one suspect, one search of a phase |
//! | `scheduler` | `scheduler/mod.rs` | one schedule |
//! | `reaper` | `reaper/thread.rs` | one round |
//! | `outbox-NAME` | `outbox/mod.rs` | one message |
//! | `http` | `server/http.rs` | one request |
//! | `workers-N`, `people-N` | `server/handlers.rs` | one request |
//! | `waiting-polls`, `assignments` | `server/waiting/mod.rs` | one turn, one answer |
//! | `event-streams` | `server/streams.rs` | one turn |
//! | `log-sync` | `server/log_sync.rs` | none |
//! | `workflows` | `server/reload.rs` | one reload |
//! | `backup` | `server/backups.rs` | one backup |
//! | `certificate` | `server/tls.rs` | none |
//! | `worker` | `worker/mod.rs` | none |
//! | `worker-heartbeat`, `worker-poll`, `worker-report` | `worker/calls.rs` | none |
//! | `worker-logs` | `worker/shipping.rs` | none |
//!
//! Threads that serve one attempt, one download or one command of the CLI are not essential: their owner notices their end.
//!
//! All of this needs panics that unwind: no profile may set `panic = "abort"`.

use std::any::Any;
use std::fmt::Display;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use crate::metrics::{Metrics, PanicPlace};

/// Starts a thread whose panic aborts the process.
pub fn spawn_essential<T, F>(name: impl Into<String>, work: F) -> io::Result<JoinHandle<T>>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let name = name.into();
    let thread = std::thread::Builder::new().name(name.clone());
    thread.spawn(move || {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let cause = panic_text(&*panic);
            abort_process(&format!("thread {name} panicked: {cause}"))
        })
    })
}

/// Runs the work for one item. If the work panics, the panic is logged and counted, and the answer is `None`.
///
/// `item` names the item in the log, such as `schedule 7`.
pub fn catch_and_count<T>(
    metrics: &Metrics,
    place: PanicPlace,
    item: impl Display,
    work: impl FnOnce() -> T,
) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => Some(outcome),
        Err(panic) => {
            metrics.panics.add(place);
            let cause = panic_text(&*panic);
            log::error!("{item} met a bug in the server and is skipped: {cause}");
            None
        }
    }
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic".to_string())
}

/// Aborts when the scope is left, also when that is by a panic.
struct AbortOnDrop;

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        std::process::abort()
    }
}

/// Ends the process at once. Used when going on would do harm: a commit has an unknown outcome, or an essential thread is gone.
pub fn abort_process(what: &str) -> ! {
    abort_with(&format!(
        "stepward: {what}; stopping at once, the next start recovers what is on disk"
    ))
}

/// Ends the process at once when its next start may be refused. `advice` says what to do before that start.
pub fn abort_with_advice(what: &str, advice: &str) -> ! {
    abort_with(&format!("stepward: {what}; stopping at once; {advice}"))
}

fn abort_with(message: &str) -> ! {
    // A logger that panics, or a stderr that cannot be written to, must not keep the process alive.
    let _abort = AbortOnDrop;
    print_last_words(message);
    std::process::abort()
}

/// Writes the message to the log and to stderr, because the logger may be off or buffered.
pub fn print_last_words(message: &str) {
    log::error!("{message}");
    // If stderr cannot be written to, there is nobody left to tell.
    let _ = writeln!(io::stderr(), "{message}");
}
