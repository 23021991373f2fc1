//! Backups: handed to whoever asks, and made by themselves as the settings say. One at a time of either kind: each copies the
//! database, and whoever reads slowly keeps nobody but others who ask from theirs.
//!
//! When the next one is due is told by the files that are there, so a restart changes nothing. One that could not be made is
//! told once, stays a problem until there is another, and is tried again. A backup never makes anything else wait, and leaves a
//! disk that is nearly full alone.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::backup::{self, Backup, BackupError, Noted, Pipe, Shelf, Shelved, Sources, Staging};
use crate::clock::SystemClock;
use crate::config::{Origin, ServerConfig, Setting};
use crate::domain::Timestamp;
use crate::domain::event::{EventKind, NewEvent};
use crate::engine::Engine;
use crate::essential::{catch_and_count, spawn_essential};
use crate::metrics::PanicPlace;
use crate::secret_policy::SecretPolicy;
use crate::store::GoOn;
use crate::wire::api::{BackupFailureJson, BackupJson, BackupsJson};
use crate::words;

const HOUR_MS: i64 = 3_600_000;
/// After one that failed.
const AGAIN_MS: i64 = 10 * 60_000;
/// The clock on the wall may be set meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(30);

pub struct Backups {
    maker: Arc<Maker>,
    /// Its end ends the thread. `None`: the settings ask for none.
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Maker {
    engine: Engine,
    clock: Arc<SystemClock>,
    config: ServerConfig,
    settings_file: Option<PathBuf>,
    shelf: Option<Shelf>,
    is_busy: Arc<AtomicBool>,
    is_stopping: Arc<AtomicBool>,
    /// Since when, and why.
    failed: Mutex<Option<(Timestamp, String)>>,
}

/// The one who is handed a backup, for as long as this lives.
struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Why nobody is handed a backup.
pub enum Refusal {
    Busy,
    Failed(BackupError),
}

/// A backup on its way out.
pub struct Handed {
    backup: Backup,
    maker: Arc<Maker>,
    is_noted: bool,
    _turn: Turn,
}

impl Read for Handed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.backup.read(buffer)?;
        if bytes == 0 && !buffer.is_empty() && !self.is_noted {
            self.is_noted = true;
            self.maker.note(&self.backup);
        }
        Ok(bytes)
    }
}

impl Backups {
    pub fn start(
        engine: &Engine,
        clock: &Arc<SystemClock>,
        config: &ServerConfig,
        settings: &[Setting],
        installation: &str,
    ) -> io::Result<Backups> {
        let keep = usize::try_from(config.backup.keep).unwrap_or(usize::MAX);
        let shelf = config.backup.dir.as_deref();
        let pipe = Pipe::new(&config.backup.pipe, &config.data_dir);
        let shelf = shelf.map(|folder| Shelf::new(folder, installation, keep).through(pipe));
        let settings_file = settings.iter().find_map(|setting| match &setting.origin {
            Origin::File(file, _) => Some(file.clone()),
            _ => None,
        });
        let maker = Arc::new(Maker {
            engine: engine.clone(),
            clock: clock.clone(),
            config: config.clone(),
            settings_file,
            shelf,
            is_busy: Arc::default(),
            is_stopping: Arc::default(),
            failed: Mutex::new(None),
        });
        let mut backups = Backups {
            maker,
            wake: None,
            thread: None,
        };
        if backups.maker.shelf.is_some() {
            let (wake, stopped) = bounded(0);
            let maker = backups.maker.clone();
            let thread = spawn_essential("backup", move || maker.run(&stopped))?;
            backups.wake = Some(wake);
            backups.thread = Some(thread);
        }
        Ok(backups)
    }

    /// Copies the database, which takes seconds; the rest is read as it is sent.
    pub fn begin(&self) -> Result<Handed, Refusal> {
        let turn = self.maker.turn().ok_or(Refusal::Busy)?;
        let staging = Staging::in_data(&self.maker.config.data_dir);
        let backup = self.maker.make(staging).map_err(Refusal::Failed)?;
        Ok(Handed {
            backup,
            maker: self.maker.clone(),
            is_noted: false,
            _turn: turn,
        })
    }

    /// Whatever is being copied is given up, and nothing is begun any more.
    pub fn stop(&self) {
        self.maker.is_stopping.store(true, Ordering::Relaxed);
    }

    /// As it is now.
    pub fn look(&self) -> BackupsJson {
        let maker = &self.maker;
        let settings = &maker.config.backup;
        let now = maker.clock.now().wall;
        let shelved = maker.shelf.as_ref().map(|shelf| shelf.list(now));
        let shelved = shelved.unwrap_or_default();
        let last = shelved.last().filter(|last| !last.is_ahead(now));
        let ahead = shelved.iter().rfind(|shelved| shelved.is_ahead(now));
        let shown = |shelved: &Shelved| BackupJson {
            file: words::shown_path(&shelved.file),
            made_at: shelved.made_at.into(),
            bytes: shelved.bytes,
        };
        let failed = maker.failed.lock().unwrap_or_else(PoisonError::into_inner);
        BackupsJson {
            dir: settings.dir.as_deref().map(words::shown_path),
            every_hours: settings.every_hours,
            keep: settings.keep,
            pipe: settings.pipe.first().cloned(),
            last_taken_at: backup::noted(&maker.config.data_dir).map(|noted| noted.made_at),
            last: last.map(shown),
            ahead: ahead.map(shown),
            next_at: (maker.shelf.as_ref()).map(|shelf| maker.due(shelf, now).into()),
            failed: failed.as_ref().map(|(since, message)| BackupFailureJson {
                since: (*since).into(),
                message: message.clone(),
            }),
        }
    }
}

impl Drop for Backups {
    fn drop(&mut self) {
        self.stop();
        self.wake = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the making of backups met a bug");
        }
    }
}

impl Maker {
    fn turn(&self) -> Option<Turn> {
        let was_busy = self.is_busy.swap(true, Ordering::Acquire);
        (!was_busy).then(|| Turn(self.is_busy.clone()))
    }

    fn go_on(&self) -> GoOn {
        let is_stopping = self.is_stopping.clone();
        Arc::new(move || !is_stopping.load(Ordering::Relaxed))
    }

    fn make(&self, staging: Staging) -> Result<Backup, BackupError> {
        let sources = Sources {
            data_dir: self.config.data_dir.clone(),
            workflows_dir: self.config.workflows_dir.clone(),
            settings_file: self.settings_file.clone(),
            staging,
            apart: self.config.backup.dir.iter().cloned().collect(),
            policy: SecretPolicy::of_user(&self.config),
        };
        let from = backup::From::Running(&self.engine.store);
        backup::begin(from, sources, self.clock.now().wall, &self.go_on())
    }

    fn note(&self, backup: &Backup) {
        let noted = Noted {
            made_at: backup.manifest().made_at,
            bytes: backup.bytes_read(),
        };
        backup::note(&self.config.data_dir, noted);
    }

    /// When the next backup is due. A backup dated in the future does not count, or none would be made until then. An unencrypted
    /// backup does not count once `backup.pipe` is set, so that an encrypted one is made at once.
    fn due(&self, shelf: &Shelf, now: Timestamp) -> Timestamp {
        let every_ms = i64::from(self.config.backup.every_hours) * HOUR_MS;
        let counts = |last: &Shelved| {
            let is_as_asked = shelf.pipe().is_none() || last.is_piped;
            !last.is_ahead(now) && is_as_asked
        };
        let last = shelf.list(now).pop().filter(counts);
        Timestamp(last.map_or(now.0, |last| last.made_at.0 + every_ms))
    }

    fn run(&self, stopped: &Receiver<()>) {
        let shelf = self.shelf.as_ref().expect("there is one, or no thread");
        let mut not_before = self.clock.now().up;
        // A program that cannot be run is told now, not when the next backup is due, and tried again like a backup that failed.
        let mut is_overdue = false;
        if let Some(Err(error)) = shelf.pipe().map(Pipe::check) {
            is_overdue = true;
            not_before = not_before.plus_ms(AGAIN_MS);
            self.tell(Err(error));
        }
        loop {
            let now = self.clock.now();
            let is_due = is_overdue || self.due(shelf, now.wall).0 <= now.wall.0;
            if is_due && not_before <= now.up {
                let (metrics, item) = (self.engine.store.metrics(), "a backup");
                let shelved =
                    catch_and_count(metrics, PanicPlace::Backup, item, || self.shelve(shelf));
                if self.is_stopping.load(Ordering::Relaxed) {
                    return;
                }
                is_overdue = !matches!(shelved, Some(Ok(_)));
                if is_overdue {
                    not_before = now.up.plus_ms(AGAIN_MS);
                }
                match shelved {
                    Some(shelved) => self.tell(shelved),
                    None => metrics.backup_failures.add(1),
                }
            }
            match stopped.recv_timeout(LOOK_EVERY) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn shelve(&self, shelf: &Shelf) -> Result<Shelved, BackupError> {
        shelf.open()?;
        let backup = self.make(shelf.staging())?;
        let shelved = shelf.put(backup, &self.go_on())?;
        shelf.rotate(shelved.made_at);
        Ok(shelved)
    }

    fn tell(&self, shelved: Result<Shelved, BackupError>) {
        let now = self.clock.now();
        let event = match shelved {
            Ok(shelved) => {
                let noted = Noted {
                    made_at: shelved.made_at.into(),
                    bytes: shelved.bytes,
                };
                backup::note(&self.config.data_dir, noted);
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = None;
                let (file, size) = (
                    words::shown_path(&shelved.file),
                    words::bytes(shelved.bytes),
                );
                NewEvent::new(EventKind::BackupMade, format!("backup {file} made, {size}"))
            }
            Err(error) => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                let since = failed.as_ref().map(|(since, _)| *since);
                *failed = Some((since.unwrap_or(now.wall), error.to_string()));
                log::error!("no backup could be made: {error}");
                self.engine.store.metrics().backup_failures.add(1);
                if since.is_some() {
                    return;
                }
                let text = format!("no backup could be made: {error}");
                NewEvent::new(EventKind::BackupFailed, text)
            }
        };
        if let Err(error) = self.engine.tell(event, now) {
            log::warn!("what became of a backup could not be recorded: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::settings::Settings;
    use crate::store::{Store, StoreOptions};

    #[test]
    fn whoever_reads_a_backup_slowly_keeps_none_from_being_made() {
        let folder = tempfile::tempdir().unwrap();
        let (data, shelf) = (folder.path().join("data"), folder.path().join("shelf"));
        let store = Store::open(&data, StoreOptions::default()).unwrap();
        let settings = Settings::default();
        let clock = Arc::new(SystemClock::continuing(store.begun_up(), &settings));
        let maker = Arc::new(Maker {
            engine: Engine::new(store, settings),
            clock,
            config: ServerConfig {
                data_dir: data,
                ..ServerConfig::default()
            },
            settings_file: None,
            shelf: Some(Shelf::new(&shelf, "1a2b3c4d", 1)),
            is_busy: Arc::default(),
            is_stopping: Arc::default(),
            failed: Mutex::new(None),
        });
        let backups = Backups {
            maker: maker.clone(),
            wake: None,
            thread: None,
        };
        let unread = backups.begin().ok().unwrap();
        assert!(matches!(backups.begin(), Err(Refusal::Busy)));

        let (wake, stopped) = bounded(0);
        let thread = std::thread::spawn(move || maker.run(&stopped));
        let is_made = || backups.look().last.is_some();
        let made = (0..1_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            is_made()
        });
        drop(wake);
        thread.join().unwrap();
        assert!(made);
        drop(unread);
    }
}
