//! The workflows folder, loaded and watched. What loads replaces what was there, all at once; what does not load stays as it was, and
//! everybody is told.
//!
//! The thread looks rather than being notified: that works on every filesystem, and a thousand files cost a millisecond.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::catalogue::{Catalogue, Loaded};
use crate::clock::SystemClock;
use crate::domain::Json;
use crate::domain::event::{EventKind, NewEvent};
use crate::engine::{Engine, EngineError};
use crate::essential::{catch_and_count, spawn_essential};
use crate::language::{Library, Reloaded, render};
use crate::metrics::PanicPlace;
use crate::scheduler::Scheduler;
use crate::store::AuditSubject;
use crate::words::count;

/// A change is taken when two looks in a row agree on it.
const INTERVAL: Duration = Duration::from_millis(500);
/// Files that one event names.
const NAMES_MAX: usize = 20;

/// Runs until it is dropped.
pub struct Reload {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Who loads, and who has to know.
pub struct Watch {
    library: Library,
    catalogue: Arc<Catalogue>,
    engine: Engine,
    clock: Arc<SystemClock>,
    /// The schedules of what is loaded have not been written yet.
    schedules_due: bool,
    on_reload: Option<OnReload>,
}

/// Told of every look at the folder, the first one included, on the thread that looked.
pub type OnReload = Box<dyn FnMut(&Reloaded) + Send>;

impl Watch {
    pub fn new(
        library: Library,
        catalogue: Arc<Catalogue>,
        engine: Engine,
        clock: Arc<SystemClock>,
    ) -> Watch {
        Watch {
            library,
            catalogue,
            engine,
            clock,
            schedules_due: false,
            on_reload: None,
        }
    }

    pub fn telling(self, on_reload: Option<OnReload>) -> Watch {
        Watch { on_reload, ..self }
    }

    /// Loads the folder as it is now.
    pub fn load(&mut self) -> Result<(), EngineError> {
        let reloaded = self.library.reload();
        let former = self.catalogue.current();
        let loaded = Arc::new(Loaded::new(&reloaded, self.clock.now().wall));
        self.catalogue.replace(loaded.clone());
        self.schedules_due = true;
        if let Some(on_reload) = &mut self.on_reload {
            on_reload(&reloaded);
        }
        if loaded.problems != former.problems {
            let tolerated = reloaded.diagnostics.iter();
            for found in tolerated.filter(|found| found.is_tolerated()) {
                log::warn!(
                    "{}; the file loads because version 0.1 had accepted it",
                    render::short(found)
                );
            }
            match loaded.errors() {
                0 if former.errors() > 0 => self.tell_mended(&loaded)?,
                0 => {}
                _ => self.tell_broken(&reloaded)?,
            }
        }
        self.note_changed_tasks(&loaded)?;
        self.set_schedules()
    }

    /// The audit log names the tasks that were added, changed or removed since the server last loaded them, in this life or before.
    fn note_changed_tasks(&self, loaded: &Loaded) -> Result<(), EngineError> {
        let tasks = loaded.tasks.iter();
        let hashes = tasks.map(|(name, task)| (name.clone(), task.hash().to_string()));
        let now = self.clock.now();
        self.engine
            .note_known(AuditSubject::Workflows, hashes.collect(), now)
    }

    fn set_schedules(&mut self) -> Result<(), EngineError> {
        let loaded = self.catalogue.current();
        let whole = loaded.errors() == 0;
        self.engine
            .set_schedules(&loaded.schedules, whole, self.clock.now())?;
        self.schedules_due = false;
        Ok(())
    }

    pub fn start(self, scheduler: Arc<Scheduler>) -> io::Result<Reload> {
        let (stop, stopped) = bounded(0);
        let thread = spawn_essential("workflows", move || self.run(&scheduler, &stopped))?;
        Ok(Reload {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    fn run(mut self, scheduler: &Scheduler, stopped: &Receiver<()>) {
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(INTERVAL) {
            let engine = self.engine.clone();
            let (metrics, item) = (engine.store.metrics(), "a reload of workflows");
            let turn = catch_and_count(metrics, PanicPlace::Workflows, item, || self.turn());
            match turn {
                None | Some(Ok(false)) => {}
                Some(Ok(true)) => scheduler.wake(),
                Some(Err(error)) => {
                    log::warn!("changed workflows could not be written down: {error}")
                }
            }
        }
    }

    /// `true`: other schedules are in force.
    fn turn(&mut self) -> Result<bool, EngineError> {
        match self.library.has_settled_change() {
            true => self.load()?,
            false if self.schedules_due => self.set_schedules()?,
            false => return Ok(false),
        }
        Ok(true)
    }

    fn tell_broken(&self, reloaded: &Reloaded) -> Result<(), EngineError> {
        let shown = reloaded.diagnostics.iter().filter(|found| found.is_error());
        let shown: Vec<String> = shown.map(render::short).collect();
        for error in &shown {
            log::warn!("{error}");
        }
        let first = shown.first().cloned().unwrap_or_default();
        let more = match reloaded.errors {
            0 | 1 => String::new(),
            more => format!(" (and {} more)", more - 1),
        };
        let so = match (reloaded.stale.is_empty(), reloaded.left_out.is_empty()) {
            (true, true) => "",
            (false, true) => ", what was good stays in force",
            (true, false) => " and are left out",
            (false, false) => ", what was good stays in force, what never was is left out",
        };
        let text = format!("workflow files do not load{so}: {first}{more}");
        let names = |files: &[PathBuf]| {
            let names = files.iter().map(|file| file.to_string_lossy().into_owned());
            names.take(NAMES_MAX).collect::<Vec<_>>()
        };
        let data = serde_json::json!({
            "errors": reloaded.errors,
            "first": first,
            "stale": names(&reloaded.stale),
            "left_out": names(&reloaded.left_out),
        });
        self.tell(EventKind::WorkflowsBroken, text, &data)
    }

    fn tell_mended(&self, loaded: &Loaded) -> Result<(), EngineError> {
        let tasks = loaded.tasks.len();
        let text = format!("all workflow files load again, {}", count(tasks, "task"));
        let data = serde_json::json!({"tasks": tasks});
        self.tell(EventKind::WorkflowsLoaded, text, &data)
    }

    fn tell(
        &self,
        kind: EventKind,
        text: String,
        data: &serde_json::Value,
    ) -> Result<(), EngineError> {
        let event = NewEvent::new(kind, text).data(Some(Json(data.to_string())));
        self.engine.tell(event, self.clock.now())
    }
}

impl Drop for Reload {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread that loads workflows met a bug");
        }
    }
}
