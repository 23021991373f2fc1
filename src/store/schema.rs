//! The schema of the database, its upgrades, and the checks of a data folder and of the database in it.
//!
//! `opening.rs` decides in which order they are made.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::limits::Limit;
use rusqlite::{Batch, Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, AtFlags, CWD, accessat, statfs};
use rustix::io::Errno;

use super::mark::{self, CommitPosition, MARK_FILE};
use super::opening::Opening;
use super::{StatementObserver, StoreOptions, in_one_line};
use crate::disk;
use crate::lock::Lock;
use crate::sealer::KEY_FILE;
use crate::words::count;

const SCHEMA: &str = include_str!("../../schema.sql");

/// "STPW": marks a SQLite file as ours.
const APPLICATION_ID: i32 = 0x5354_5057;

/// What brings a database of version n+1 to version n+2: entry n. Forward only; `schema.sql` is the sum of all.
pub const UPGRADES: &[&str] = &[
    "
    CREATE INDEX job_open ON job (job_id) WHERE ended_at IS NULL;
    CREATE INDEX job_in_trouble ON job (ended_at)
        WHERE parent_step_id IS NULL AND (state = 'failed' OR (state = 'cancelled' AND reason IN ('job_timeout', 'queue_timeout')));
    CREATE INDEX event_of_phase ON event (phase, seq) WHERE phase IS NOT NULL;
", "
    ALTER TABLE worker ADD COLUMN token_id INTEGER;
    CREATE INDEX worker_of_token ON worker (token_id) WHERE token_id IS NOT NULL;
    CREATE INDEX worker_by_name ON worker (name) WHERE state = 'active' AND token_id IS NOT NULL;
    ALTER TABLE event ADD COLUMN actor TEXT;
    CREATE TABLE token (
        token_id      INTEGER PRIMARY KEY AUTOINCREMENT,
        name          TEXT    NOT NULL,
        role          TEXT    NOT NULL,
        hash          TEXT    NOT NULL,
        tags          TEXT,
        made_by       TEXT    NOT NULL,
        created_at    INTEGER NOT NULL,
        expires_at    INTEGER,
        used_at       INTEGER,
        ended_at      INTEGER,
        made_token_id INTEGER REFERENCES token (token_id),
        CHECK (CASE role
            WHEN 'viewer'    THEN tags IS NULL AND made_token_id IS NULL
            WHEN 'operator'  THEN tags IS NULL AND made_token_id IS NULL
            WHEN 'admin'     THEN tags IS NULL AND made_token_id IS NULL
            WHEN 'worker'    THEN made_token_id IS NULL
            WHEN 'enrolment' THEN expires_at IS NOT NULL AND (made_token_id IS NULL OR ended_at IS NOT NULL)
            ELSE 0 END)
    ) STRICT;
    CREATE INDEX token_that_holds ON token (role, token_id) WHERE ended_at IS NULL;
    CREATE INDEX token_by_end ON token (coalesce(ended_at, expires_at));
    CREATE INDEX token_of_enrolment ON token (made_token_id) WHERE made_token_id IS NOT NULL;
    CREATE TABLE logout (
        session  TEXT    PRIMARY KEY,
        until_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX logout_by_until ON logout (until_at);
    CREATE INDEX step_served ON step (kind) WHERE state = 'running' AND session_id IS NULL;
    ALTER TABLE server ADD COLUMN change_seq INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE milestone (
        age_ms     INTEGER PRIMARY KEY,
        at         INTEGER NOT NULL,
        up         INTEGER NOT NULL,
        owed_ms    INTEGER NOT NULL,
        job_id     INTEGER NOT NULL,
        event_seq  INTEGER NOT NULL,
        outbox_id  INTEGER NOT NULL,
        session_id INTEGER NOT NULL
    ) STRICT;
    ALTER TABLE job ADD COLUMN logs_removed_at INTEGER;
    ALTER TABLE job ADD COLUMN kept INTEGER NOT NULL DEFAULT 0 CHECK (kept IN (0, 1));
    ALTER TABLE job ADD COLUMN leaving INTEGER NOT NULL DEFAULT 0 CHECK (leaving IN (0, 1));
    CREATE INDEX job_with_logs ON job (job_id) WHERE logs_removed_at IS NULL AND ended_at IS NOT NULL;
    CREATE INDEX job_of_definition ON job (definition_id);
    CREATE INDEX job_leaving ON job (job_id) WHERE leaving = 1;
    CREATE INDEX job_by_failed_step ON job (failed_step_id) WHERE failed_step_id IS NOT NULL;
    CREATE INDEX step_by_child ON step (child_job_id) WHERE child_job_id IS NOT NULL;
    CREATE INDEX step_by_origin ON step (origin_step_id) WHERE origin_step_id IS NOT NULL;
    CREATE INDEX worker_by_absence ON worker (seen_up) WHERE state = 'inactive' AND deleted_at IS NULL;
    CREATE INDEX worker_deleted ON worker (worker_id) WHERE deleted_at IS NOT NULL;
    CREATE INDEX worker_by_session ON worker (session_id) WHERE session_id IS NOT NULL;
    CREATE INDEX session_of_worker ON session (worker_id);
    CREATE INDEX idempotency_by_job ON idempotency (job_id);
    CREATE INDEX schedule_fire_by_age ON schedule_fire (at) WHERE job_id IS NULL AND outcome <> 'queued';
", "
    ALTER TABLE server ADD COLUMN lineage TEXT NOT NULL DEFAULT '';
    ALTER TABLE server ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE server ADD COLUMN commit_number INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE schedule ADD COLUMN away_from INTEGER;
    ALTER TABLE schedule ADD COLUMN away_until INTEGER;
    CREATE INDEX schedule_with_backlog ON schedule (schedule_id) WHERE away_until IS NOT NULL AND loaded = 1;
    CREATE TABLE presence (
        only_row        INTEGER PRIMARY KEY CHECK (only_row = 1),
        boot_id         TEXT    NOT NULL,
        boot_ms         INTEGER NOT NULL,
        wall_at         INTEGER NOT NULL,
        up              INTEGER NOT NULL,
        behind_at       INTEGER,
        behind_since_ms INTEGER,
        CHECK ((behind_at IS NULL) = (behind_since_ms IS NULL))
    ) STRICT;
    INSERT INTO former_attempt (step_id, attempt, worker_id, outcome, reason, message, assigned_at, started_at, ended_at)
    SELECT s.step_id, s.attempt, s.worker_id, 'failed',
           coalesce(e.reason, iif(s.state = 'suspended', s.reason, NULL), 'worker_lost'),
           coalesce(iif(s.state = 'suspended', s.message, e.message), 'the worker was lost while it ran the step'),
           s.assigned_at, s.started_at, coalesce(s.ready_at, s.started_at)
      FROM step AS s
      LEFT JOIN event AS e ON e.step_id = s.step_id AND e.attempt = s.attempt AND e.kind = 'step_held'
     WHERE s.kind = 'work' AND s.attempt > 0 AND s.started_at IS NOT NULL AND s.session_id IS NULL
       AND s.worker_id IS NOT NULL;
    DROP INDEX job_open;
    CREATE INDEX job_by_state ON job (state, job_id);
    CREATE INDEX job_by_source ON job (source, job_id);
    CREATE INDEX job_by_reason ON job (reason, job_id) WHERE reason IS NOT NULL;
    CREATE INDEX worker_not_deleted ON worker (worker_id) WHERE deleted_at IS NULL;
    CREATE INDEX outbox_by_state ON outbox (state, outbox_id);
    CREATE INDEX outbox_by_target ON outbox (target, state, outbox_id);
    ALTER TABLE server ADD COLUMN rollback_noticed INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE lineage (
        lineage_no       INTEGER PRIMARY KEY,
        key              TEXT    NOT NULL UNIQUE,
        first_session_id INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE epoch (
        epoch          INTEGER PRIMARY KEY,
        start_key      TEXT    NOT NULL,
        commits_before INTEGER NOT NULL
    ) STRICT;
    ALTER TABLE session ADD COLUMN features TEXT NOT NULL DEFAULT '';
    ALTER TABLE step ADD COLUMN unconfirmed INTEGER NOT NULL DEFAULT 0 CHECK (unconfirmed IN (0, 1));
    CREATE TABLE log_fault (
        step_id INTEGER NOT NULL REFERENCES step (step_id),
        attempt INTEGER NOT NULL,
        fault   TEXT    NOT NULL CHECK (fault = 'missing' OR fault = 'differs'),
        length  INTEGER NOT NULL,
        crc32   INTEGER NOT NULL,
        PRIMARY KEY (step_id, attempt)
    ) STRICT, WITHOUT ROWID;
", "
    -- Secret inputs.
    ALTER TABLE job ADD COLUMN seal_id BLOB CHECK (length(seal_id) = 16);

    -- Idempotency keys and webhook deliveries.
    ALTER TABLE idempotency RENAME TO idempotency_without_owner;
    DROP INDEX idempotency_by_job;
    CREATE TABLE idempotency (
        idempotency_key TEXT    NOT NULL,
        owner           TEXT    NOT NULL,
        request_hash    TEXT    NOT NULL,
        job_id          INTEGER NOT NULL REFERENCES job (job_id),
        created_at      INTEGER NOT NULL,
        PRIMARY KEY (idempotency_key, owner)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO idempotency (idempotency_key, owner, request_hash, job_id, created_at)
        SELECT idempotency_key, 'any', request_hash, job_id, created_at FROM idempotency_without_owner;
    DROP TABLE idempotency_without_owner;
    CREATE INDEX idempotency_by_job ON idempotency (job_id);

    -- Tokens.
    ALTER TABLE server ADD COLUMN asks_by_default INTEGER NOT NULL DEFAULT 0 CHECK (asks_by_default IN (0, 1));
    ALTER TABLE server ADD COLUMN first_start_at INTEGER;
    ALTER TABLE token ADD COLUMN is_unasked INTEGER NOT NULL DEFAULT 0 CHECK (is_unasked IN (0, 1));
    CREATE INDEX token_unasked ON token (token_id) WHERE ended_at IS NULL AND is_unasked = 1;
    -- Two tokens may have had the same name, one after the other: only the one that was good at the time has made a token.
    WITH RECURSIVE unasked (token_id, name, role, made_token_id, good_until) AS (
        SELECT token_id, name, role, made_token_id, min(coalesce(ended_at, 9223372036854775807), coalesce(expires_at, 9223372036854775807))
          FROM token WHERE made_by = 'local'
        UNION
        SELECT t.token_id, t.name, t.role, t.made_token_id, min(coalesce(t.ended_at, 9223372036854775807), coalesce(t.expires_at, 9223372036854775807))
          FROM unasked AS u JOIN token AS t ON t.made_by = u.name AND t.token_id > u.token_id AND t.created_at <= u.good_until
         WHERE u.role = 'admin'
        UNION
        SELECT t.token_id, t.name, t.role, t.made_token_id, min(coalesce(t.ended_at, 9223372036854775807), coalesce(t.expires_at, 9223372036854775807))
          FROM unasked AS u JOIN token AS t ON t.token_id = u.made_token_id
    )
    UPDATE token SET is_unasked = 1 WHERE token_id IN (SELECT token_id FROM unasked);

    -- Audit log.
    CREATE TABLE audit (
        seq      INTEGER PRIMARY KEY,
        at       INTEGER NOT NULL,
        actor    TEXT    NOT NULL,
        token_id INTEGER,
        address  TEXT,
        action   TEXT    NOT NULL,
        object   TEXT,
        outcome  TEXT    NOT NULL CHECK (outcome = 'allowed' OR outcome = 'refused'),
        detail   TEXT,
        hash     BLOB    NOT NULL CHECK (length(hash) = 32)
    ) STRICT;
    CREATE TABLE audit_anchor (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
        seq      INTEGER NOT NULL,
        hash     BLOB    NOT NULL CHECK (length(hash) = 32)
    ) STRICT;
    CREATE TABLE audit_known (
        subject TEXT PRIMARY KEY,
        value   TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    ALTER TABLE milestone ADD COLUMN audit_seq INTEGER NOT NULL DEFAULT 0;
"];
pub const SCHEMA_VERSION: i64 = 1 + UPGRADES.len() as i64;

pub const DATABASE_FILE: &str = "stepward.db";
pub const WAL_FILE: &str = "stepward.db-wal";
pub const LOCK_FILE: &str = "LOCK";
/// Is there while one database takes the place of another.
pub const RESTORING_FILE: &str = "RESTORING";
/// While a backup is unpacked, before anything of it comes into the folder itself.
pub const UNPACKING_FOLDER: &str = ".stepward-restoring";

/// An upgrade rewrites a file that is no larger, so that it can shrink from then on; a larger one is left to `stepward db compact`.
const REWRITTEN_BYTES_MAX: u64 = 64 << 20;

/// Less than this is a full disk: not even the write-ahead log could grow.
const FREE_BYTES_MIN: u64 = 1 << 20;

const WRITER_CACHE_KIB: i64 = 64 << 10;
const STATEMENT_CACHE: usize = 256;
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a data folder is not opened. One line each: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "data folder {folder} is in use by another server{owner}, stop it or choose another data_dir"
    )]
    InUse { folder: PathBuf, owner: String },
    #[error(
        "data folder {folder} cannot be written: {cause}, make it writable or choose another data_dir"
    )]
    Unwritable { folder: PathBuf, cause: String },
    #[error(
        "{file} cannot be written: {cause}, make it readable and writable for the user that runs the server"
    )]
    UnwritableFile { file: PathBuf, cause: String },
    #[error(
        "the disk of data folder {folder} is full ({free_bytes} bytes free), make room and try again"
    )]
    Full { folder: PathBuf, free_bytes: u64 },
    #[error(
        "the upgrade of the database needs {needed_bytes} bytes of free disk space in data folder {folder}, and {free_bytes} bytes are \
         free; make room and try again"
    )]
    NoRoomForUpgrade {
        folder: PathBuf,
        free_bytes: u64,
        needed_bytes: u64,
    },
    #[error(
        "data folder {folder} is on a network filesystem ({kind}), where SQLite loses data; choose a local data_dir"
    )]
    NetworkFilesystem { folder: PathBuf, kind: &'static str },
    #[error(
        "{file} is {kind}, the database must be a file of the data folder itself: move it there, or let data_dir name the folder \
         that it is in"
    )]
    NoFile { file: PathBuf, kind: PathKind },
    #[error(
        "{path} is a folder, and the database needs a file of this name: move the folder away and start again"
    )]
    FolderBesideDatabase { path: PathBuf },
    #[error("{path} is {kind}, and the server needs a regular file of this name: {}", kind.advice())]
    NotRegular { path: PathBuf, kind: PathKind },
    #[error("{file} is not a database{}", not_a_database_advice(file, *sign))]
    NotADatabase {
        file: PathBuf,
        /// What shows that the folder had a database.
        sign: Option<&'static str>,
    },
    #[error("{file} is a database of another program, choose another data_dir")]
    Foreign { file: PathBuf },
    #[error(
        "{file} has schema version {found}, this program knows up to {known}; use a newer stepward"
    )]
    NewerSchema {
        file: PathBuf,
        found: i64,
        known: i64,
    },
    #[error(
        "{file} has schema version {found}, which a start of the server upgrades to {known}: until then this command, which changes \
         nothing, cannot look into it"
    )]
    Older {
        file: PathBuf,
        found: i64,
        known: i64,
    },
    #[error(
        "{file} is corrupt ({detail}), restore it from a backup: stepward restore FILE --data-dir {} --force",
        crate::words::shell_path(file.parent().unwrap_or(file))
    )]
    Corrupt { file: PathBuf, detail: String },
    #[error(
        "{file} is {state}, and {sign} beside it shows that a server used this folder: restore a backup: stepward restore FILE \
         --data-dir {} --force; or choose an empty data_dir",
        crate::words::shell_path(file.parent().unwrap_or(file))
    )]
    Lost {
        file: PathBuf,
        state: &'static str,
        sign: &'static str,
    },
    #[error(
        "{file} is at commit {found}, and {MARK_FILE} says that it was at commit {marked}: its write-ahead log was removed or damaged, \
         an older copy was put in its place, or the folder was copied while its server ran; restore a backup: stepward restore FILE --data-dir {} --force; or go on without the \
         later commits, with one start: {}",
        crate::words::shell_path(file.parent().unwrap_or(file)),
        accepting_command(file.parent().unwrap_or(file))
    )]
    Behind {
        file: PathBuf,
        found: i64,
        marked: i64,
    },
    #[error(
        "{file} is not the database that this folder had before ({MARK_FILE} names another lineage); restore a backup: stepward \
         restore FILE --data-dir {} --force; or go on with this one, with one start: {}",
        crate::words::shell_path(file.parent().unwrap_or(file)),
        accepting_command(file.parent().unwrap_or(file))
    )]
    OtherLineage { file: PathBuf },
    #[error(
        "{file} has {what} in it, which is none of ours and could change what is written: take it out, or restore a backup"
    )]
    Crafted { file: PathBuf, what: String },
    #[error(
        "{} is missing, without which {sealed} cannot be opened: put it back, a backup of the folder has it if the folder had it; \
         or make another and do without them: head -c 32 /dev/urandom > {0} && chmod 600 {0}",
        crate::words::shell_path(file)
    )]
    KeyLost { file: PathBuf, sealed: String },
    #[error(
        "data folder {} is half restored, do it again: stepward restore FILE --data-dir {} --force (what was there before, if anything, \
         is in its folder before-restore-TIME)",
        folder.display(), folder.display()
    )]
    HalfRestored { folder: PathBuf },
    #[error(
        "{file} cannot have a write-ahead log (its journal mode stays {mode}), choose a local data_dir"
    )]
    NoWal { file: PathBuf, mode: String },
    #[error("data folder {folder} cannot be used: {source}")]
    Folder { folder: PathBuf, source: io::Error },
    #[error("{file} cannot be used: {source}")]
    File { file: PathBuf, source: io::Error },
    #[error("{file} cannot be opened: {}", in_one_line(source))]
    Sqlite {
        file: PathBuf,
        source: rusqlite::Error,
    },
}

/// The kind of a path that must be a regular file and is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    SymbolicLink,
    DanglingLink,
    Folder,
    Device,
}

impl PathKind {
    /// Returns `None` for a regular file, and for a path that does not exist.
    fn of(path: &Path) -> Option<PathKind> {
        let found = path.symlink_metadata().ok()?.file_type();
        if found.is_symlink() {
            Some(match path.exists() {
                true => PathKind::SymbolicLink,
                false => PathKind::DanglingLink,
            })
        } else if found.is_dir() {
            Some(PathKind::Folder)
        } else if found.is_file() {
            None
        } else {
            Some(PathKind::Device)
        }
    }

    fn advice(self) -> &'static str {
        match self {
            PathKind::SymbolicLink => "put the file itself into the data folder",
            PathKind::DanglingLink => {
                "put the file itself into the data folder, or remove the link if there is no such file"
            }
            PathKind::Folder | PathKind::Device => "move it away and start again",
        }
    }
}

impl std::fmt::Display for PathKind {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            PathKind::SymbolicLink => "a symbolic link",
            PathKind::DanglingLink => "a symbolic link to a file that does not exist",
            PathKind::Folder => "a folder",
            PathKind::Device => "a device or a pipe",
        })
    }
}

/// What a person types to go on from an older database. `stepward dev` has no such flag, so the command names the server.
pub fn accepting_command(folder: &Path) -> String {
    let folder = crate::words::shell_path(folder);
    format!("stepward server --data-dir {folder} --accept-older-database")
}

pub fn make_folder(folder: &Path) -> Result<(), OpenError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|cause| match cause.kind() {
            // What exists there is no folder, and that is what to say.
            io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
            _ => cause,
        })
        .map_err(|cause| refusal(folder, cause))
}

/// Refuses a folder that is no folder. One that does not exist is made later.
pub fn refuse_no_folder(folder: &Path) -> Result<(), OpenError> {
    match folder.metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(refusal(folder, io::ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refusal(folder, error)),
    }
}

/// Returns the folder, or the nearest folder above it that exists.
fn nearest_existing(folder: &Path) -> &Path {
    let found = folder.ancestors().find(|above| above.is_dir());
    found.unwrap_or(Path::new("."))
}

/// Refuses a folder in which this process may not create files.
pub fn refuse_unwritable(folder: &Path) -> Result<(), OpenError> {
    may_write(folder).map_err(|cause| refusal(folder, cause))
}

fn may_write(path: &Path) -> io::Result<()> {
    Ok(accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)
}

fn may_read_and_write(path: &Path) -> io::Result<()> {
    let access = Access::READ_OK | Access::WRITE_OK;
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

pub fn refuse_network_filesystem(folder: &Path) -> Result<(), OpenError> {
    let found = statfs(nearest_existing(folder)).map_err(|cause| refusal(folder, cause.into()))?;
    let kind = match found.f_type as u32 {
        0x6969 => "nfs",
        0x517B => "smb",
        0xFF53_4D42 => "cifs",
        0xFE53_4D42 => "smb2",
        0x0102_1997 => "9p",
        _ => return Ok(()),
    };
    Err(OpenError::NetworkFilesystem {
        folder: folder.into(),
        kind,
    })
}

/// Refuses a folder whose disk has no room for this many bytes and a little more.
pub fn refuse_full_disk(folder: &Path, needed_bytes: u64) -> Result<(), OpenError> {
    let free_bytes =
        disk::free_bytes(nearest_existing(folder)).map_err(|cause| refusal(folder, cause))?;
    if free_bytes < FREE_BYTES_MIN.saturating_add(needed_bytes) {
        return Err(OpenError::Full {
            folder: folder.into(),
            free_bytes,
        });
    }
    Ok(())
}

/// Refuses an upgrade of a database of this size if its disk has too little room.
///
/// The upgrade first makes a copy of the database. Its changes are then added to the write-ahead log: new indexes, and all pages if
/// the database is small enough to be rewritten.
///
/// A copy that an earlier upgrade from this version left behind is replaced, so its bytes count as free.
pub fn refuse_upgrade_without_room(
    folder: &Path,
    version: i64,
    database_bytes: u64,
) -> Result<(), OpenError> {
    let logged_bytes = match database_bytes <= REWRITTEN_BYTES_MAX {
        true => database_bytes,
        false => database_bytes / 2,
    };
    let needed_bytes = FREE_BYTES_MIN + database_bytes + logged_bytes;
    let former_copy = upgrade_copy(folder, version).metadata();
    let former_bytes = former_copy.map_or(0, |copy| copy.blocks() * 512);
    let free_bytes =
        disk::free_bytes(nearest_existing(folder)).map_err(|cause| refusal(folder, cause))?;
    let free_bytes = free_bytes.saturating_add(former_bytes);
    if free_bytes < needed_bytes {
        return Err(OpenError::NoRoomForUpgrade {
            folder: folder.into(),
            free_bytes,
            needed_bytes,
        });
    }
    Ok(())
}

/// The copy that an upgrade makes of a database of this version.
fn upgrade_copy(folder: &Path, version: i64) -> PathBuf {
    folder.join(format!("{DATABASE_FILE}.version-{version}"))
}

/// Refuses an upgrade whose copy cannot be made because a folder, a link or a device has its name.
pub fn refuse_upgrade_without_copy(folder: &Path, version: i64) -> Result<(), OpenError> {
    refuse_not_regular(&upgrade_copy(folder, version))
}

/// Takes a folder that holds a database.
pub fn lock_existing(folder: &Path) -> Result<FolderLock, OpenError> {
    let file = folder.join(DATABASE_FILE);
    file.metadata().map_err(|cause| refusal(folder, cause))?;
    refuse_no_file(&file)?;
    refuse_folder_beside(&file)?;
    let lock = FolderLock::take(folder)?;
    refuse_half_restored(folder)?;
    Ok(lock)
}

/// For whoever fills a folder, whatever is in it by now. One that is not there is made.
pub fn hold_folder(folder: &Path) -> Result<FolderLock, OpenError> {
    make_folder(folder)?;
    let mut lock = FolderLock::take(folder)?;
    lock.is_kept = true;
    Ok(lock)
}

/// Without its database it would be taken for a new one.
pub fn refuse_half_restored(folder: &Path) -> Result<(), OpenError> {
    let is_there = |name: &str| folder.join(name).exists();
    let is_half =
        is_there(RESTORING_FILE) || (is_there(UNPACKING_FOLDER) && !is_there(DATABASE_FILE));
    match is_half {
        true => Err(OpenError::HalfRestored {
            folder: folder.into(),
        }),
        false => Ok(()),
    }
}

/// The lock on a data folder, with the number of this process in its file.
///
/// Dropped before `keep` was called, it leaves the lock file as it was before. If the process is killed before that, `NEW_FOLDER`
/// behind the number tells that no server has used the folder yet.
#[derive(Debug)]
pub struct FolderLock {
    path: PathBuf,
    /// What the lock file held before. `None` if there was no lock file.
    former: Option<Vec<u8>>,
    is_kept: bool,
    lock: Lock,
}

/// Ends the content of a lock file in a folder that no server has used yet.
const NEW_FOLDER: &[u8] = b" new\n";

/// Whether a lock file with this content shows that a server used its folder. An empty one was left by a process that was killed, or
/// whose disk was full, before it could write.
fn lock_shows_use(content: &[u8]) -> bool {
    !content.is_empty() && !content.ends_with(NEW_FOLDER)
}

/// Whether the lock file of a folder shows that a server used the folder.
pub fn has_lock_of_use(folder: &Path) -> bool {
    let path = folder.join(LOCK_FILE);
    PathKind::of(&path).is_none()
        && std::fs::read(path).is_ok_and(|content| lock_shows_use(&content))
}

/// Reads the number of the process from the content of a lock file.
pub fn lock_owner(content: &str) -> Option<u32> {
    content.split_whitespace().next()?.parse().ok()
}

impl FolderLock {
    pub fn take(folder: &Path) -> Result<FolderLock, OpenError> {
        let path = folder.join(LOCK_FILE);
        refuse_not_regular(&path)?;
        let refuse = |cause| file_refusal(folder, &path, cause);
        loop {
            let was_there = path.exists();
            let file = open_private(&path).map_err(|cause| file_refusal(folder, &path, cause))?;
            let mut lock = Lock::take(file).map_err(|cause| match cause {
                Errno::WOULDBLOCK => OpenError::InUse {
                    folder: folder.into(),
                    owner: owner(&path),
                },
                cause => refuse(cause.into()),
            })?;
            let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
            let locked = lock.file().metadata().map(identity).map_err(refuse)?;
            if path.metadata().map(identity).ok() != Some(locked) {
                // Its former holder has just removed the file: this lock would keep nobody out.
                continue;
            }
            let mut former = Vec::new();
            lock.file().read_to_end(&mut former).map_err(refuse)?;
            let mut lock = FolderLock {
                path: path.clone(),
                former: was_there.then_some(former),
                is_kept: false,
                lock,
            };
            // If that fails, dropping the lock leaves no file that was not there before.
            let ending = match lock.shows_use() {
                true => b"\n",
                false => NEW_FOLDER,
            };
            lock.write_owner(ending).map_err(refuse)?;
            return Ok(lock);
        }
    }

    /// Returns whether the folder had a lock file of a server that used it.
    pub fn shows_use(&self) -> bool {
        self.former.as_deref().is_some_and(lock_shows_use)
    }

    /// The folder has a database from now on: the lock file stays.
    pub fn keep(&mut self) {
        self.is_kept = true;
        if !self.shows_use() {
            // If this fails, the lock file does not show that the folder is used, but the files beside it do.
            let _ = self.write_owner(b"\n");
        }
    }

    fn write_owner(&mut self, ending: &[u8]) -> io::Result<()> {
        let mut content = std::process::id().to_string().into_bytes();
        content.extend_from_slice(ending);
        replace_content(self.lock.file(), &content)
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // If this fails, a lock file with the number of a process that has ended is left. Nobody minds.
        let _ = match &self.former {
            Some(former) => replace_content(self.lock.file(), former),
            None => std::fs::remove_file(&self.path),
        };
    }
}

/// Writes before it truncates: on a full disk the former content stays.
fn replace_content(file: &mut File, content: &[u8]) -> io::Result<()> {
    file.rewind()?;
    file.write_all(content)?;
    file.set_len(content.len() as u64)
}

/// Who holds it is a courtesy; that it is held is the message.
fn owner(lock_file: &Path) -> String {
    let content = std::fs::read_to_string(lock_file).unwrap_or_default();
    match lock_owner(&content) {
        None => String::new(),
        Some(pid) => format!(" (process {pid})"),
    }
}

/// By a link two folders could have one database, each with a lock of its own.
pub fn refuse_no_file(file: &Path) -> Result<(), OpenError> {
    match PathKind::of(file) {
        None => Ok(()),
        Some(kind) => Err(OpenError::NoFile {
            file: file.into(),
            kind,
        }),
    }
}

/// Refuses a path that exists and is no regular file.
fn refuse_not_regular(path: &Path) -> Result<(), OpenError> {
    match PathKind::of(path) {
        None => Ok(()),
        Some(kind) => Err(OpenError::NotRegular {
            path: path.into(),
            kind,
        }),
    }
}

/// Refuses a folder, a link or a device in the place of a file that SQLite makes beside the database.
pub fn refuse_folder_beside(file: &Path) -> Result<(), OpenError> {
    for path in files_beside(file) {
        if path.is_dir() && !path.is_symlink() {
            return Err(OpenError::FolderBesideDatabase { path });
        }
        refuse_not_regular(&path)?;
    }
    Ok(())
}

/// Reads the mark of a folder, and refuses a mark that cannot be read: without it nobody would notice that commits were lost.
pub fn read_mark(folder: &Path) -> Result<Option<CommitPosition>, OpenError> {
    let path = folder.join(MARK_FILE);
    refuse_not_regular(&path)?;
    mark::read(folder).map_err(|cause| file_refusal(folder, &path, cause))
}

/// Refuses a mark that this process may not read and write. A folder without a mark is not refused.
pub fn refuse_unusable_mark(folder: &Path) -> Result<(), OpenError> {
    let path = folder.join(MARK_FILE);
    refuse_not_regular(&path)?;
    match may_read_and_write(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(file_refusal(folder, &path, error))
        }
        _ => Ok(()),
    }
}

/// The paths of the files that SQLite makes beside a database: its write-ahead log, the index of the log, and a rollback journal.
fn files_beside(file: &Path) -> [PathBuf; 3] {
    ["-wal", "-shm", "-journal"].map(|suffix| {
        let mut path = file.as_os_str().to_os_string();
        path.push(suffix);
        path.into()
    })
}

/// Refuses a folder whose database is missing or empty although other files show that there was one: creating a new database would
/// hide the loss, and the logs would belong to no job.
pub fn refuse_lost(folder: &Path, file: &Path, lock_shows_use: bool) -> Result<(), OpenError> {
    let state = match file.metadata() {
        Ok(found) if found.len() > 0 => return Ok(()),
        Ok(_) => "empty",
        Err(_) => "missing",
    };
    let has_log = (folder.join(WAL_FILE).metadata()).is_ok_and(|found| found.len() > 0);
    let sign = match sign_of_use(folder) {
        Some(sign) => sign,
        // SQLite writes the first page into the file itself before it creates the log.
        None if has_log => WAL_FILE,
        // Somebody may have put a key there before the first start.
        None if state == "missing" && lock_shows_use && folder.join(KEY_FILE).exists() => KEY_FILE,
        None => return Ok(()),
    };
    Err(OpenError::Lost {
        file: file.into(),
        state,
        sign,
    })
}

/// Refuses a database without tables in a folder that had a server: the tables were in a write-ahead log that is gone.
pub fn refuse_lost_tables(folder: &Path, file: &Path) -> Result<(), OpenError> {
    match sign_of_use(folder) {
        None => Ok(()),
        Some(sign) => Err(OpenError::Lost {
            file: file.into(),
            state: "a database without tables",
            sign,
        }),
    }
}

/// The same for a database without a mark, as version 0.1 left it: logs are of jobs, so there was one.
pub fn refuse_lost_jobs(connection: &Connection, folder: &Path) -> Result<(), OpenError> {
    if mark::exists(folder) || !has_logs(folder) {
        return Ok(());
    }
    let file = folder.join(DATABASE_FILE);
    let had_jobs: bool = connection
        .query_row(HAD_JOBS, [], |row| row.get(0))
        .map_err(|source| sqlite_refusal(folder, &file, source))?;
    match had_jobs {
        true => Ok(()),
        false => Err(OpenError::Lost {
            file,
            state: "a database in which there never was a job",
            sign: "logs",
        }),
    }
}

const HAD_JOBS: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'job')";

/// Returns the name of a file or folder that only a server that had a database leaves.
fn sign_of_use(folder: &Path) -> Option<&'static str> {
    if has_logs(folder) {
        Some("logs")
    } else if folder.join("workflows.good.json").exists() {
        Some("workflows.good.json")
    } else if mark::exists(folder) {
        Some(MARK_FILE)
    } else {
        None
    }
}

fn has_logs(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder.join("logs"));
    entries.is_ok_and(|mut entries| entries.next().is_some())
}

/// Sealed inputs and no key: a new one would open none of them, and nobody would know until a retry fails.
pub fn refuse_lost_key(connection: &Connection, folder: &Path) -> Result<(), OpenError> {
    let file = folder.join(KEY_FILE);
    if file.exists() {
        return Ok(());
    }
    let jobs: i64 = connection
        .query_row(SEALED_JOBS, [], |row| row.get(0))
        .map_err(|source| sqlite_refusal(folder, &folder.join(DATABASE_FILE), source))?;
    match jobs {
        0 => Ok(()),
        jobs => Err(OpenError::KeyLost {
            file,
            sealed: format!("secret inputs of {}", count(jobs as usize, "job")),
        }),
    }
}

/// Looks at every job, when a key is lost: at its input, and at what people entered at its approvals.
const SEALED_JOBS: &str = "
    SELECT count(*) FROM job AS j
    WHERE instr(j.input, '\"$sealed\"') > 0
       OR EXISTS (SELECT 1 FROM step AS s
                  WHERE s.job_id = j.job_id AND s.kind = 'approval' AND instr(s.output, '\"$sealed\"') > 0)
";

/// Looks at the header of a database file, if there is one. Plain I/O is safe only before SQLite holds locks on the file.
pub fn inspect_file(folder: &Path, path: &Path) -> Result<(), OpenError> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let mut file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(|cause| file_refusal(folder, path, cause))?,
    };
    for beside in files_beside(path).iter().filter(|path| path.exists()) {
        may_read_and_write(beside).map_err(|cause| file_refusal(folder, beside, cause))?;
    }
    let bytes = file
        .metadata()
        .map_err(|cause| refusal(folder, cause))?
        .len();
    if bytes > 0 {
        let mut header = [0; 16];
        let read = file.read_exact(&mut header);
        if read.is_err() || header != *b"SQLite format 3\0" {
            return Err(not_a_database(folder, path));
        }
    }
    Ok(())
}

/// Makes an empty file if there is none, so that nobody else can read the database that SQLite writes into it.
pub fn make_file(folder: &Path, path: &Path) -> Result<(), OpenError> {
    if path.exists() {
        return Ok(());
    }
    let made = open_private(path).map(|_| ());
    made.map_err(|cause| refusal(folder, cause))
}

/// A file that nobody else may read, made if it is not there.
fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn refusal(folder: &Path, source: io::Error) -> OpenError {
    let folder = folder.to_path_buf();
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            OpenError::Unwritable {
                folder,
                cause: source.to_string(),
            }
        }
        io::ErrorKind::StorageFull => OpenError::Full {
            folder,
            free_bytes: 0,
        },
        _ => OpenError::Folder { folder, source },
    }
}

/// Converts an I/O error of one file. The message names the file if this file alone cannot be used.
fn file_refusal(folder: &Path, file: &Path, source: io::Error) -> OpenError {
    if source.kind() == io::ErrorKind::PermissionDenied && file.exists() {
        return OpenError::UnwritableFile {
            file: file.into(),
            cause: source.to_string(),
        };
    }
    match refusal(folder, source) {
        OpenError::Folder { source, .. } => OpenError::File {
            file: file.into(),
            source,
        },
        refusal => refusal,
    }
}

/// The connection that writes. It checkpoints by itself only when told to.
pub fn open_writer(folder: &Path, file: &Path) -> Result<Connection, OpenError> {
    let refuse = |source| sqlite_refusal(folder, file, source);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(refuse)?;
    configure(&connection).map_err(refuse)?;
    // Before anything is in it: a file that cannot shrink stays as large as it ever was.
    if page_bytes(&connection).map_err(refuse)? == 0 {
        connection
            .pragma_update(None, "auto_vacuum", "INCREMENTAL")
            .map_err(refuse)?;
    }
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .map_err(refuse)?;
    if mode != "wal" {
        return Err(OpenError::NoWal {
            file: file.into(),
            mode,
        });
    }
    (|| {
        connection.pragma_update(None, "synchronous", "FULL")?;
        // The live part of the tables: without it a group of calls reads and spills the same pages again and again.
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        // What a statement or a savepoint may have to undo is kept in memory, not in a file that is thrown away at once.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
        connection.pragma_update(None, "secure_delete", "FAST")
    })()
    .map_err(refuse)?;
    Ok(connection)
}

/// What every connection has, readers too.
pub fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    // With STAT4 compiled in, a cached statement is parsed again whenever a bound value meets an indexed column.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, 32 << 20)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 1)?; // VACUUM INTO needs one
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    let foreign_keys: bool =
        connection.pragma_query_value(None, "foreign_keys", |row| row.get(0))?;
    assert!(foreign_keys, "the bundled SQLite has foreign keys");
    Ok(())
}

pub fn refuse_strangers(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let file = path.to_path_buf();
    let refuse = |source| sqlite_refusal(path.parent().unwrap_or(path), path, source);
    let application_id: i32 = connection
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .map_err(refuse)?;
    let found = user_version(connection).map_err(refuse)?;
    match (application_id, found) {
        (APPLICATION_ID, found) if found > SCHEMA_VERSION => Err(OpenError::NewerSchema {
            file,
            found,
            known: SCHEMA_VERSION,
        }),
        // Both numbers come with the tables, in one transaction.
        (APPLICATION_ID, 0) => Err(OpenError::Corrupt {
            file,
            detail: "its schema version is lost".to_string(),
        }),
        (APPLICATION_ID, _) => Ok(()),
        // Made a moment ago by us, or by a start that was killed before its first commit.
        (0, 0) if is_empty(connection).map_err(refuse)? => Ok(()),
        _ => Err(OpenError::Foreign { file }),
    }
}

pub fn refuse_older(connection: &Connection, folder: &Path, path: &Path) -> Result<(), OpenError> {
    let found = user_version(connection).map_err(|source| sqlite_refusal(folder, path, source))?;
    match (1..SCHEMA_VERSION).contains(&found) {
        true => Err(OpenError::Older {
            file: path.into(),
            found,
            known: SCHEMA_VERSION,
        }),
        false => Ok(()),
    }
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)",
        [],
        |row| row.get(0),
    )
}

/// Somebody may have taken a table or an index away, which only its use would show; or put in what acts by itself.
pub fn refuse_incomplete(
    connection: &Connection,
    folder: &Path,
    path: &Path,
) -> Result<(), OpenError> {
    let names = || -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare("SELECT type || ' ' || name FROM sqlite_schema")?;
        statement.query_map([], |row| row.get(0))?.collect()
    };
    let found = names().map_err(|source| sqlite_refusal(folder, path, source))?;
    let acts = |name: &&String| name.starts_with("trigger ") || name.starts_with("view ");
    if let Some(what) = found.iter().find(acts) {
        return Err(OpenError::Crafted {
            file: path.into(),
            what: crate::words::printable(what),
        });
    }
    let version =
        user_version(connection).map_err(|source| sqlite_refusal(folder, path, source))?;
    let upgrades = UPGRADES.iter().skip(version.max(1) as usize - 1);
    let later: Vec<String> = upgrades
        .flat_map(|upgrade| upgrade.lines().filter_map(created))
        .collect();
    let is_missing = |name: &String| !found.contains(name) && !later.contains(name);
    match SCHEMA.lines().filter_map(created).find(is_missing) {
        None => Ok(()),
        Some(missing) => Err(OpenError::Corrupt {
            file: path.into(),
            detail: format!("{missing} is missing"),
        }),
    }
}

/// `table step`, if that is what a line of the schema begins.
fn created(line: &str) -> Option<String> {
    let what = line.trim_start().strip_prefix("CREATE ")?;
    let what = what.strip_prefix("UNIQUE ").unwrap_or(what);
    let (kind, name) = what.split_once(' ')?;
    let name = name.split_whitespace().next()?;
    Some(format!("{} {name}", kind.to_lowercase()))
}

pub fn user_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

pub fn quick_check(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let found = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
        .map_err(|source| sqlite_refusal(path.parent().unwrap_or(path), path, source))?;
    if found != "ok" {
        let detail = found.lines().last().unwrap_or("damaged").to_string();
        return Err(OpenError::Corrupt {
            file: path.into(),
            detail,
        });
    }
    Ok(())
}

/// Makes the schema, or upgrades it one version at a time, each in its own transaction, after a copy was made.
pub fn bring_up_to_date(
    connection: &Connection,
    folder: &Path,
    path: &Path,
    upgrades: &[&'static str],
    observer: Option<&StatementObserver>,
) -> Result<(), OpenError> {
    let mut statements = 0;
    let mut begin = |text: &'static str| {
        statements += 1;
        if let Some(observer) = observer {
            observer(statements, text);
        }
    };
    let refuse = |source| sqlite_refusal(folder, path, source);
    let target = 1 + upgrades.len() as i64;
    let version = user_version(connection).map_err(refuse)?;
    if version == 0 {
        return in_one_transaction(connection, SCHEMA, target, |_| ()).map_err(refuse);
    }
    if version < target {
        let copy = upgrade_copy(folder, version);
        // A copy that a killed upgrade left behind may be half of one.
        if copy.exists() {
            std::fs::remove_file(&copy).map_err(|cause| file_refusal(folder, &copy, cause))?;
        }
        // Empty, and nobody else's to read: what SQLite makes itself, others may.
        open_private(&copy).map_err(|cause| file_refusal(folder, &copy, cause))?;
        let copy_name = copy.to_string_lossy();
        begin("VACUUM INTO");
        let copied = connection.execute("VACUUM INTO ?1", [&copy_name]);
        if let Err(error) = copied {
            // Half a copy only takes room, which may be what is missing.
            let _ = std::fs::remove_file(&copy);
            return Err(refuse(error));
        }
        log::info!(
            "upgrading the database from version {version} to {target}, copy in {copy_name}"
        );
    }
    for step in version..target {
        let upgrade = upgrades[step as usize - 1];
        in_one_transaction(connection, upgrade, step + 1, &mut begin).map_err(refuse)?;
    }
    if version < target {
        let bytes = page_bytes(connection).map_err(refuse)?;
        if bytes <= REWRITTEN_BYTES_MAX {
            // The rewrite adds every page to the log. If it runs out of room, an empty log can be truncated again.
            let rewritten = checkpoint(connection, folder, path)
                .and_then(|()| rewrite(connection).map_err(refuse));
            match rewritten {
                // The upgrade itself is complete, and a database that was not rewritten can be used.
                Err(OpenError::Full { .. }) => log::warn!(
                    "the database was upgraded but not rewritten, because the disk is full; make room, stop the server and run: \
                     stepward db compact {}",
                    crate::words::shell_path(folder)
                ),
                rewritten => rewritten?,
            }
        }
    }
    Ok(())
}

/// Every page anew, without those that are free; and from then on the file can shrink while it is in use.
fn rewrite(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.execute_batch("VACUUM")
}

fn page_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |pragma| -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, pragma, |row| row.get(0))
    };
    Ok((number("page_count")? * number("page_size")?) as u64)
}

/// Rewrites the database of a folder that nobody else uses. Returns its bytes before and after.
pub fn compact(folder: &Path) -> Result<(u64, u64), OpenError> {
    let (opened, _) = Opening::check(folder, StoreOptions::of_copy())?.finish()?;
    let connection = opened.connection;
    let file = folder.join(DATABASE_FILE);
    let refuse = |source| sqlite_refusal(folder, &file, source);
    let before = page_bytes(&connection).map_err(refuse)?;
    rewrite(&connection).map_err(refuse)?;
    let after = page_bytes(&connection).map_err(refuse)?;
    // The new pages are in the log; the file shrinks when they are moved.
    checkpoint(&connection, folder, &file)?;
    Ok((before, after))
}

/// Moves all of the write-ahead log into the database file.
pub fn checkpoint(connection: &Connection, folder: &Path, file: &Path) -> Result<(), OpenError> {
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .map_err(|source| sqlite_refusal(folder, file, source))
}

fn in_one_transaction(
    connection: &Connection,
    ddl: &'static str,
    version: i64,
    mut begin: impl FnMut(&'static str),
) -> rusqlite::Result<()> {
    let tx = connection.unchecked_transaction()?;
    let mut batch = Batch::new(&tx, ddl);
    while let Some(mut statement) = batch.next()? {
        begin(ddl);
        // Some of them answer with a row, which nobody asked for.
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
    }
    begin("PRAGMA user_version");
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", version)?;
    begin("COMMIT");
    tx.commit()
}

/// Writes the row of the installation, because some full or read-only disks are noticed only by a write.
///
/// A new database gets its installation key and its lineage here, and records that its server asks for tokens by default. A database
/// of schema version 3 or older gets its lineage; its server asks only where the settings say so, as version 0.1 did.
pub fn prove_writable(
    connection: &Connection,
    folder: &Path,
    path: &Path,
) -> Result<(), OpenError> {
    let refuse = |cause: getrandom::Error| OpenError::Folder {
        folder: folder.into(),
        source: io::Error::other(cause.to_string()),
    };
    let installation_key = random_key().map_err(refuse)?;
    let lineage = random_key().map_err(refuse)?;
    connection
        .execute(
            "INSERT INTO server (only_row, installation_key, service_clock_up, lineage, asks_by_default) VALUES (1, ?1, 0, ?2, 1)
             ON CONFLICT (only_row) DO UPDATE SET lineage = CASE lineage WHEN '' THEN excluded.lineage ELSE lineage END",
            [installation_key, lineage],
        )
        .and_then(|_| super::lineage::record_first_lineage(connection))
        .map_err(|source| sqlite_refusal(folder, path, source))
}

/// Returns 128 random bits in hexadecimal.
pub fn random_key() -> Result<String, getrandom::Error> {
    let mut key = [0; 16];
    getrandom::fill(&mut key)?;
    Ok(key.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub fn sqlite_refusal(folder: &Path, file: &Path, source: rusqlite::Error) -> OpenError {
    let (folder, file) = (folder.to_path_buf(), file.to_path_buf());
    match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => not_a_database(&folder, &file),
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Corrupt {
            file,
            detail: in_one_line(&source),
        },
        Some(ErrorCode::DiskFull) => OpenError::Full {
            folder,
            free_bytes: 0,
        },
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            unwritable(&folder, &file, &source)
        }
        _ => OpenError::Sqlite { file, source },
    }
}

/// SQLite has one code for a read-only filesystem, for missing permissions and for a file that was moved: the system knows which.
fn unwritable(folder: &Path, file: &Path, source: &rusqlite::Error) -> OpenError {
    if let Err(cause) = may_write(folder) {
        return refusal(folder, cause);
    }
    if let Err(cause) = may_write(file) {
        return file_refusal(folder, file, cause);
    }
    OpenError::Unwritable {
        folder: folder.into(),
        cause: in_one_line(source),
    }
}

/// Returns the refusal of a file that has no header of a database.
pub fn not_a_database(folder: &Path, file: &Path) -> OpenError {
    OpenError::NotADatabase {
        file: file.into(),
        sign: sign_of_use(folder),
    }
}

fn not_a_database_advice(file: &Path, sign: Option<&str>) -> String {
    let folder = crate::words::shell_path(file.parent().unwrap_or(file));
    match sign {
        Some(sign) => format!(
            ", and {sign} beside it shows that a server used this folder: restore a backup: stepward restore FILE --data-dir {folder} \
             --force; or choose an empty data_dir"
        ),
        None => ", move it away or choose another data_dir".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mechanism, on upgrades of its own; `tests/it/store/upgrades.rs` has the real ones.
    #[test]
    fn an_upgrade_is_all_or_nothing_and_leaves_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(DATABASE_FILE);
        let connection = Connection::open(&path).unwrap();
        configure(&connection).unwrap();
        bring_up_to_date(&connection, folder.path(), &path, &[], None).unwrap();
        assert_eq!(user_version(&connection).unwrap(), 1);

        let broken = ["CREATE TABLE added (a INTEGER) STRICT; CREATE TABLE added (a INTEGER);"];
        bring_up_to_date(&connection, folder.path(), &path, &broken, None).unwrap_err();
        assert_eq!(user_version(&connection).unwrap(), 1);
        assert!(connection.prepare("SELECT a FROM added").is_err());

        let upgrades = [
            "CREATE TABLE added (a INTEGER) STRICT",
            "ALTER TABLE added ADD b TEXT",
        ];
        bring_up_to_date(&connection, folder.path(), &path, &upgrades, None).unwrap();
        assert_eq!(user_version(&connection).unwrap(), 3);
        connection.prepare("SELECT a, b FROM added").unwrap();
        let copy = Connection::open(folder.path().join("stepward.db.version-1")).unwrap();
        assert_eq!(user_version(&copy).unwrap(), 1);
        assert!(copy.prepare("SELECT a FROM added").is_err());
    }
}
