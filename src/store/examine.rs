//! A look at a data folder that changes nothing in it, whether its server runs, has stopped or was killed.
//!
//! SQLite makes files beside a database in WAL mode, even for those who only read. So one without a write-ahead log, which a
//! server that stopped leaves, is read as a file that nobody changes; one with a log is read beside whoever has it open, without
//! writing to what they share (`readonly_shm`). If the server comes or goes meanwhile, the look is repeated.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI64;
use std::sync::{Mutex, OnceLock, RwLock};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use rustix::fs::{FlockOperation, flock};

use super::invariants::Breach;
use super::opening;
use super::schema::{self, DATABASE_FILE, LOCK_FILE, OpenError, SCHEMA_VERSION};
use super::{Shared, Stats, StoreError, StoreOptions, Tx};
use crate::domain::Timestamp;
use crate::sealer::Sealer;

/// Whoever reads keeps a running server's log from shrinking: of a larger database it is not worth it.
const BYTES_MAX_RUNNING: u64 = 64 << 20;
/// And of a larger one nobody waits for it; `stepward db check` has no such limit.
const BYTES_MAX: u64 = 1 << 30;
/// A server does not come and go more often than this while somebody looks.
const LOOKS_MAX: usize = 4;

#[derive(Debug)]
pub struct Examined {
    pub file: PathBuf,
    pub bytes: u64,
    pub wal_bytes: u64,
    /// In the file, used for nothing, and not given back by itself.
    pub stuck_bytes: u64,
    pub standing: Standing,
    pub schema_version: i64,
    /// `false`: the next start of the server upgrades it.
    pub is_current: bool,
    pub depth: Depth,
    pub breaches: Vec<Breach>,
    /// When the oldest job was made that is still there.
    pub oldest_job_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    Stopped,
    /// Its process, if it says so.
    Running(Option<u32>),
    /// It was killed, and has not been started since.
    Killed,
}

/// How much was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Every page and every rule.
    Rules,
    /// Every page.
    Pages,
    /// It is too large.
    Header,
}

/// Why there is nothing to say about a database. One line each.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    #[error("{file} does not exist")]
    Missing { file: PathBuf },
    #[error("{file} cannot be read: {source}")]
    Unreadable { file: PathBuf, source: io::Error },
    #[error(
        "{file} has a write-ahead log that only a start of the server, or `stepward db check`, takes in"
    )]
    Unrecovered { file: PathBuf },
    #[error("a server comes and goes, {file} was not the same for long enough")]
    Restless { file: PathBuf },
    #[error("{0}")]
    Refused(OpenError),
}

/// What tells whether somebody was here in between.
#[derive(PartialEq, Eq)]
struct Trace {
    bytes: u64,
    modified: (i64, i64),
    has_wal: bool,
    has_shm: bool,
}

pub fn examine(folder: &Path) -> Result<Examined, ExamineError> {
    schema::refuse_half_restored(folder).map_err(ExamineError::Refused)?;
    let file = folder.join(DATABASE_FILE);
    schema::refuse_folder_beside(&file).map_err(ExamineError::Refused)?;
    let lock_shows_use = schema::has_lock_of_use(folder);
    schema::refuse_lost(folder, &file, lock_shows_use).map_err(ExamineError::Refused)?;
    for _ in 0..LOOKS_MAX {
        let trace = trace(&file)?;
        let looked = look(folder, &file, &trace);
        let after = self::trace(&file)?;
        let is_undisturbed = match trace.has_wal {
            // A server that runs writes; the snapshot stays as it is.
            true => after.has_wal && after.has_shm == trace.has_shm,
            false => after == trace,
        };
        if is_undisturbed {
            return looked;
        }
    }
    Err(ExamineError::Restless { file })
}

fn trace(file: &Path) -> Result<Trace, ExamineError> {
    let found = file.metadata().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ExamineError::Missing { file: file.into() },
        _ => unreadable(file, source),
    })?;
    Ok(Trace {
        bytes: found.len(),
        modified: (found.mtime(), found.mtime_nsec()),
        has_wal: beside(file, "-wal").exists(),
        has_shm: beside(file, "-shm").exists(),
    })
}

fn unreadable(file: &Path, source: io::Error) -> ExamineError {
    let file = file.into();
    ExamineError::Unreadable { file, source }
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

fn look(folder: &Path, file: &Path, trace: &Trace) -> Result<Examined, ExamineError> {
    let standing = standing(folder, trace.has_wal);
    if trace.bytes == 0 && !trace.has_wal {
        return Err(ExamineError::Missing { file: file.into() });
    }
    inspect_header(folder, file, trace.bytes)?;
    if trace.has_wal && !trace.has_shm {
        return Err(ExamineError::Unrecovered { file: file.into() });
    }
    let refuse = |source| ExamineError::Refused(schema::sqlite_refusal(folder, file, source));
    let connection = open(file, trace.has_wal).map_err(refuse)?;
    schema::refuse_strangers(&connection, file).map_err(ExamineError::Refused)?;
    let schema_version = schema::user_version(&connection).map_err(refuse)?;
    if schema_version == 0 {
        schema::refuse_lost_tables(folder, file).map_err(ExamineError::Refused)?;
    }
    opening::refuse_behind(&connection, folder, schema_version).map_err(ExamineError::Refused)?;
    let is_current = schema_version == SCHEMA_VERSION;
    if is_current {
        schema::refuse_incomplete(&connection, folder, file).map_err(ExamineError::Refused)?;
    }
    let depth = match standing {
        Standing::Running(_) if trace.bytes > BYTES_MAX_RUNNING => Depth::Header,
        Standing::Running(_) => Depth::Pages,
        _ if trace.bytes > BYTES_MAX => Depth::Header,
        // The rules are those of today's tables.
        _ if !is_current => Depth::Pages,
        _ => Depth::Rules,
    };
    let snapshot = connection.unchecked_transaction().map_err(refuse)?;
    let breaches = breaches(&snapshot, depth);
    let oldest = "SELECT created_at FROM job ORDER BY job_id LIMIT 1";
    let oldest_job_at = match breaches.is_empty() && is_current {
        true => snapshot.query_row(oldest, [], |row| row.get(0)).optional(),
        false => Ok(None),
    };
    Ok(Examined {
        file: file.into(),
        bytes: trace.bytes,
        wal_bytes: beside(file, "-wal")
            .metadata()
            .map_or(0, |found| found.len()),
        stuck_bytes: stuck_bytes(&snapshot).map_err(refuse)?,
        standing,
        schema_version,
        is_current,
        depth,
        breaches,
        oldest_job_at: oldest_job_at.map_err(refuse)?.map(Timestamp),
    })
}

fn stuck_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |pragma| -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, pragma, |row| row.get(0))
    };
    Ok(match number("auto_vacuum")? {
        0 => (number("freelist_count")? * number("page_size")?) as u64,
        _ => 0,
    })
}

/// Without a log nobody has it open: a server writes to it first of all.
fn standing(folder: &Path, has_wal: bool) -> Standing {
    if !has_wal {
        return Standing::Stopped;
    }
    let Ok(mut lock) = File::open(folder.join(LOCK_FILE)) else {
        return Standing::Killed;
    };
    // Let go at once, when `lock` goes; a server that starts this very moment would take it for another one.
    if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
        return Standing::Killed;
    }
    let mut content = String::new();
    // Who holds it is a courtesy.
    let _ = lock.read_to_string(&mut content);
    Standing::Running(schema::lock_owner(&content))
}

/// Before SQLite has it open: closing a file lets go of all the locks that this process has on it.
fn inspect_header(folder: &Path, file: &Path, bytes: u64) -> Result<(), ExamineError> {
    let mut opened = File::open(file).map_err(|source| unreadable(file, source))?;
    let mut header = [0; 16];
    let read = opened.read_exact(&mut header);
    match bytes == 0 || (read.is_ok() && header == *b"SQLite format 3\0") {
        true => Ok(()),
        false => Err(ExamineError::Refused(schema::not_a_database(folder, file))),
    }
}

fn open(file: &Path, has_wal: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let way = match has_wal {
        true => "readonly_shm=1",
        false => "immutable=1",
    };
    let uri = format!("file:{}?mode=ro&{way}", in_uri(file.as_os_str()));
    let connection = Connection::open_with_flags(uri, flags)?;
    schema::configure(&connection)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

pub fn in_uri(path: &OsStr) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(byte);
    let shown = |byte: &u8| match plain(byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    path.as_bytes().iter().map(shown).collect()
}

/// What keeps it from being looked at any further is a breach as well.
fn breaches(snapshot: &Connection, depth: Depth) -> Vec<Breach> {
    let shared = Shared {
        options: StoreOptions::default(),
        definitions: Mutex::new(HashMap::new()),
        change_seq: AtomicI64::new(0),
        service_clock_up: AtomicI64::new(0),
        commit_number: Default::default(),
        corruption: OnceLock::new(),
        joiners: OnceLock::new(),
        sealer: Sealer::of_nothing(),
        targets: RwLock::default(),
        stats: Stats::default(),
        metrics: Default::default(),
        contacts: Default::default(),
    };
    let tx = Tx::new(snapshot, &shared);
    let found = || -> Result<Vec<Breach>, StoreError> {
        if depth == Depth::Header {
            return Ok(Vec::new());
        }
        let unsound = tx.page_breaches()?;
        // What the rules would find in broken pages is the same once more.
        match unsound.is_empty() && depth == Depth::Rules {
            true => tx.rule_breaches(),
            false => Ok(unsound),
        }
    };
    found().unwrap_or_else(|error| vec![Breach::of_pages(error.to_string())])
}
