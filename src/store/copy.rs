//! A copy of the database while it is in use, and what a copy must be before it takes the place of one.
//!
//! The copy is made page by page from a connection of its own that holds one snapshot from the first page to the last. So it
//! is the database of one instant, nobody's write waits for it and no write makes it begin anew. What it costs: for as long
//! as it takes, the write-ahead log cannot be begun anew and grows by what is written meanwhile.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, named_params};

use super::invariants::Breach;
use super::opening;
use super::schema::{self, DATABASE_FILE, FolderLock, OpenError};
use super::{Store, StoreError, StoreOptions, Tx, audit, lineage};
use crate::domain::audit::{Actor, AuditAction, AuditEntry, ChainFault, ChainLink};
use crate::domain::event::NewEvent;
use crate::domain::lineage::{Lineages, LogTag};
use crate::domain::token::CONSOLE;
use crate::domain::{AttemptRef, JobId, Now, Timestamp};

pub const STATEMENTS: &[&str] = &[ATTEMPTS_OF_JOB, INSTALLATION];

/// 4 MiB: between two of these others may use the disk, and whoever waits for the copy may give it up.
const PAGES_AT_ONCE: i32 = 1_000;
const PAUSE: Duration = Duration::from_millis(2);

/// The same between two looks at the copy: of so many steps of the library.
const STEPS_AT_ONCE: i32 = 1_000;

/// Asked again and again while something long is done. `false`: it is given up.
pub type GoOn = Arc<dyn Fn() -> bool + Send + Sync>;

/// Why there is no copy. One line each.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("{0}")]
    Open(OpenError),
    #[error("the copy of the database cannot be written: {0}")]
    Unwritten(String),
    #[error("the database is corrupt ({0}), so there is nothing to back up; run: stepward doctor")]
    Corrupt(String),
    #[error("the server stops")]
    GivenUp,
}

/// A database that is nobody's yet.
pub struct Copy {
    connection: Connection,
    /// Empty if the copy is of a version that knew no lineages.
    lineages: Lineages,
    pub schema_version: i64,
    /// Which installation it is of.
    pub installation: String,
    /// The head of the audit log. `None`: the copy is of a version that had none.
    pub audit_head: Option<ChainLink>,
}

/// The schema version that added the audit log.
const AUDIT_SINCE_VERSION: i64 = 5;

const AUDIT_HEAD: &str = "
    SELECT seq, hash FROM audit
     UNION ALL
    SELECT seq, hash FROM audit_anchor
     ORDER BY seq DESC
     LIMIT 1
";

/// The schema version that added the table of lineages.
const LINEAGES_SINCE_VERSION: i64 = 4;

const INSTALLATION: &str = "SELECT installation_key FROM server WHERE only_row = 1";

const ATTEMPTS_OF_JOB: &str = "SELECT step_id, attempt FROM step WHERE job_id = :job_id";

impl Copy {
    /// Steps of a job and the last attempt of each.
    pub fn attempts(&self, job_id: JobId) -> Result<Vec<(i64, u32)>, StoreError> {
        let mut statement = self.connection.prepare_cached(ATTEMPTS_OF_JOB)?;
        let rows = statement.query_map(named_params! { ":job_id": job_id.0 }, |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Whether a log file with this tag in its name holds the log of the attempt. Otherwise it is of another lineage that
    /// used the same numbers, or of an attempt that the copy does not know.
    pub fn is_log_of(&self, attempt: AttemptRef, tag: Option<LogTag>) -> Result<bool, StoreError> {
        let Some(current) = self.lineages.current() else {
            return Ok(tag.is_none());
        };
        if tag == Some(current) {
            return Ok(true);
        }
        let session_id = lineage::session_of_attempt(&self.connection, attempt)?;
        Ok(tag == self.lineages.log_tag(session_id))
    }
}

impl Store {
    /// Copies what is committed now to a new file.
    pub fn copy_to(&self, file: &Path, go_on: &GoOn) -> Result<Copy, CopyError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        copy(&self.folder().join(DATABASE_FILE), flags, file, go_on)
    }
}

/// A data folder whose server is stopped, and stays so for as long as this lives.
pub struct Stopped {
    folder: PathBuf,
    _lock: FolderLock,
}

impl Stopped {
    /// Changes nothing but who holds the folder.
    pub fn take(folder: &Path) -> Result<Stopped, OpenError> {
        let lock = schema::lock_existing(folder)?;
        opening::refuse_behind_in(folder)?;
        Ok(Stopped {
            folder: folder.into(),
            _lock: lock,
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The server may have been killed: what its log holds is taken in first, as its next start would.
    pub fn copy_to(&self, file: &Path, go_on: &GoOn) -> Result<Copy, CopyError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        copy(&self.folder.join(DATABASE_FILE), flags, file, go_on)
    }
}

fn copy(from: &Path, flags: OpenFlags, to: &Path, go_on: &GoOn) -> Result<Copy, CopyError> {
    let folder = from.parent().unwrap_or(from);
    let refuse = |source| match schema::sqlite_refusal(folder, from, source) {
        OpenError::Corrupt { detail, .. } => CopyError::Corrupt(detail),
        refusal => CopyError::Open(refusal),
    };
    let unwritten = |error: rusqlite::Error| CopyError::Unwritten(super::in_one_line(&error));
    let source = Connection::open_with_flags(from, flags).map_err(refuse)?;
    schema::configure(&source).map_err(refuse)?;
    schema::refuse_strangers(&source, from).map_err(CopyError::Open)?;
    let snapshot = source.unchecked_transaction().map_err(refuse)?;
    // A transaction has its snapshot from its first look on.
    schema::user_version(&snapshot).map_err(refuse)?;

    let mut target = Connection::open(to).map_err(unwritten)?;
    // Nobody knows of this file yet: whoever is killed now leaves one that is thrown away.
    (|| {
        target.pragma_update(None, "synchronous", "OFF")?;
        target.query_row("PRAGMA journal_mode = OFF", [], |_| Ok(()))
    })()
    .map_err(unwritten)?;
    {
        let backup = Backup::new(&snapshot, &mut target).map_err(unwritten)?;
        loop {
            if !go_on() {
                return Err(CopyError::GivenUp);
            }
            match backup.step(PAGES_AT_ONCE).map_err(unwritten)? {
                StepResult::Done => break,
                _ => std::thread::sleep(PAUSE),
            }
        }
    }
    drop(snapshot);
    // It came with a write-ahead log of its own, in files beside it that nobody would take along.
    let plain = target.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()));
    plain.map_err(unwritten)?;
    let found = sound(&target, go_on).map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => CopyError::GivenUp,
        _ => CopyError::Corrupt(super::in_one_line(&error)),
    })?;
    if found != "ok" {
        return Err(CopyError::Corrupt(Breach::of_pages(found).what));
    }
    let schema_version = schema::user_version(&target).map_err(unwritten)?;
    let installation = target.query_row(INSTALLATION, [], |row| row.get(0));
    let lineages = match schema_version < LINEAGES_SINCE_VERSION {
        true => Lineages::default(),
        false => lineage::read_lineages(&target).map_err(unwritten)?,
    };
    let audit_head = match schema_version < AUDIT_SINCE_VERSION {
        true => None,
        false => Some(read_audit_head(&target).map_err(unwritten)?),
    };
    Ok(Copy {
        audit_head,
        lineages,
        installation: installation.map_err(unwritten)?,
        connection: target,
        schema_version,
    })
}

fn read_audit_head(target: &Connection) -> rusqlite::Result<ChainLink> {
    let head = target.query_row(AUDIT_HEAD, [], audit::link).optional()?;
    Ok(head.unwrap_or(ChainLink::GENESIS))
}

/// `ok`, or what is wrong with its pages.
fn sound(target: &Connection, go_on: &GoOn) -> rusqlite::Result<String> {
    let go_on = go_on.clone();
    target.progress_handler(STEPS_AT_ONCE, Some(move || !go_on()))?;
    let found = target.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    target.progress_handler(0, None::<fn() -> bool>)?;
    found
}

/// What was found in a copy that is to be used again.
pub struct Taken {
    /// As it was in the copy; it is the current one by now.
    pub schema_version: i64,
    pub installation: String,
    pub breaches: Vec<Breach>,
    /// The head of the audit log as it was in the copy, or why the log does not fit together.
    pub audit: Result<ChainLink, ChainFault>,
}

/// Looks at everything in a folder that holds a copy: every page, every rule. One of an older version is brought up to date.
///
/// Workers may have gone on since the copy was made, with attempts that this database does not know and will number anew. So
/// the copy begins a new lineage, which also ends every session. `event` tells people, `detail` is for the audit log, which goes on
/// from its last row in the copy.
pub fn take_copy(
    folder: &Path,
    event: NewEvent,
    detail: Option<String>,
    wall: Timestamp,
) -> Result<Taken, CopyError> {
    let file = folder.join(DATABASE_FILE);
    let refuse = |source| CopyError::Open(schema::sqlite_refusal(folder, &file, source));
    let schema_version = {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&file, flags).map_err(refuse)?;
        schema::configure(&connection).map_err(refuse)?;
        schema::refuse_strangers(&connection, &file).map_err(CopyError::Open)?;
        let found = connection.query_row("PRAGMA integrity_check(1)", [], |row| {
            row.get::<_, String>(0)
        });
        let found = found.map_err(refuse)?;
        if found != "ok" {
            return Err(CopyError::Corrupt(Breach::of_pages(found).what));
        }
        schema::user_version(&connection).map_err(refuse)?
    };
    let store = Store::open(folder, StoreOptions::of_copy()).map_err(CopyError::Open)?;
    let failed = |error: StoreError| CopyError::Unwritten(error.to_string());
    let breaches = store.read(|tx| tx.rule_breaches()).map_err(failed)?;
    let installation = store.read(|tx| tx.installation_key()).map_err(failed)?;
    let walked = store.read(|tx| tx.walk_audit(None, |_| ()));
    let audit = walked.map_err(failed)?.map(|(head, _)| head);
    if breaches.is_empty() {
        let now = Now {
            wall,
            up: store.begun_up(),
        };
        let begin = move |tx: &Tx| {
            tx.begin_new_lineage()?;
            let restored = AuditEntry::of(AuditAction::BackupRestored);
            tx.audit_as(
                &Actor::named(CONSOLE),
                &restored.detail(detail.clone()),
                now,
            )?;
            tx.record(&event, now)
        };
        store.write(begin).map_err(failed)?;
    }
    Ok(Taken {
        schema_version,
        installation,
        breaches,
        audit,
    })
}

// Runs once at the beginning of a lineage, over every row.
const FORGET_SESSION_KEYS: &str =
    "UPDATE session SET session_key = 'restored.' || session_id || '.' || hex(randomblob(8))";

impl Tx<'_> {
    /// Gives every session a key that no worker has, so that every worker opens a new session.
    pub(super) fn forget_session_keys(&self) -> Result<(), StoreError> {
        self.sql(FORGET_SESSION_KEYS)?.execute([])?;
        Ok(())
    }
}
