//! Workers that have worked for a later state of the database: somebody put an older copy of it in place.
//!
//! A worker tells with each call the last epoch that it has seen. If the database does not know that epoch, the call is refused
//! before it changes anything. The worker keeps its results and tries again until a person has decided which state counts.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

use super::App;
use super::error::ApiError;
use super::exchange::Request;
use crate::domain::Timestamp;
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::lineage::{Epoch, Seen};
use crate::store::accepting_command;
use crate::wire::api::RollbackJson;
use crate::wire::worker::SERVER_ROLLED_BACK;
use crate::words::printable;

/// More workers than this are refused without an event of their own.
const WORKERS_MAX: usize = 100;

/// The workers that were refused since the server started.
#[derive(Default)]
pub struct Rollback {
    noticed: Mutex<Option<Noticed>>,
}

struct Noticed {
    since: Timestamp,
    /// The highest epoch that one of the workers has seen.
    seen_epoch: i64,
    workers: BTreeSet<String>,
}

impl Rollback {
    /// Returns whether the worker is a new one.
    fn note(&self, worker: &str, seen_epoch: i64, now: Timestamp) -> bool {
        let mut noticed = self.lock();
        let noticed = noticed.get_or_insert_with(|| Noticed {
            since: now,
            seen_epoch,
            workers: BTreeSet::new(),
        });
        noticed.seen_epoch = noticed.seen_epoch.max(seen_epoch);
        noticed.workers.len() < WORKERS_MAX && noticed.workers.insert(worker.to_string())
    }

    /// A description of the rollback for people.
    pub fn to_json(&self, epoch: i64) -> Option<RollbackJson> {
        self.lock().as_ref().map(|noticed| RollbackJson {
            since: noticed.since.into(),
            epoch,
            seen_epoch: noticed.seen_epoch,
            workers: noticed.workers.iter().cloned().collect(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Noticed>> {
        self.noticed.lock().expect("no panic while it is held")
    }
}

/// The worker that makes the call.
pub enum CallingWorker<'a> {
    Named(&'a str),
    InSession(&'a str),
}

/// Refuses a worker that has seen a later state of this database than the server has.
///
/// To be called before anything else is looked up: the database may not know the worker or its session, and a worker that is
/// told so gives its results up.
pub fn refuse_if_rolled_back(
    app: &App,
    request: &Request,
    worker: CallingWorker,
) -> Result<(), ApiError> {
    let seen = request.headers.lineage.as_deref().and_then(Epoch::parse);
    let commit = app.engine.store.commit_number().load(Ordering::Acquire);
    let is_lost = |seen: &Epoch| app.epochs.relation_to(seen, commit) == Seen::RolledBack;
    let Some(seen) = seen.filter(is_lost) else {
        return Ok(());
    };
    let name = match worker {
        CallingWorker::Named(name) => Some(name.to_string()),
        CallingWorker::InSession(session_key) => app.engine.worker_of_session(session_key)?,
    };
    let worker = match name {
        Some(name) => format!("worker {}", printable(&name)),
        None => format!("a worker at {}", request.headers.peer),
    };
    let now = app.clock.now();
    if app.rollback.note(&worker, seen.number, now.wall) {
        let text = format!(
            "{worker} is refused: it has worked for a later state of this database (start {} and commit {} there, start {} and \
             commit {commit} here), so an older copy of the database was put in place; {}",
            seen.number,
            seen.commit,
            app.epochs.current,
            way_out(&app.config.data_dir)
        );
        log::error!("{text}");
        let event = NewEvent::new(EventKind::RollbackNoticed, text);
        app.engine.note_rollback(event, now)?;
    }
    let message = format!(
        "the database of the server is older than the one that this worker has worked for, so the server does not take calls of \
         the worker; {}",
        // The worker may run on another machine, and need not know the folders of the server.
        way_out(Path::new("FOLDER"))
    );
    Err(ApiError::new(503, SERVER_ROLLED_BACK, message))
}

/// What a person can do about it. `folder` is the data folder of the server, as the reader can name it.
fn way_out(folder: &Path) -> String {
    format!(
        "put the later data folder back, or stop the server and go on with this one, with one start: {}",
        accepting_command(folder)
    )
}
