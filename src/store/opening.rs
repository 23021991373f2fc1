//! Opens a data folder in two steps: first every check that can refuse it, which changes nothing, then the writes.
//!
//! A start that is refused leaves every file of the folder as it was. So `Opening::check` reads the database without taking in
//! its write-ahead log, and `Opening::finish` does what changes the folder: it creates or upgrades the database.

use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, named_params};

use super::examine::in_uri;
use super::mark::{CommitPosition, MarkFile};
use super::schema::{self, DATABASE_FILE, FolderLock, OpenError, SCHEMA_VERSION, WAL_FILE};
use super::{StoreOptions, lineage, tokens};
use crate::domain::token::FolderDoor;
use crate::domain::{Timestamp, TokenId};
use crate::sealer::{KEY_FILE, Sealer};

/// Checking every page takes longer the larger the file is; above these sizes it is left to `stepward db check`.
const CHECKED_BYTES_MAX: u64 = 64 << 20;
const CHECKED_BYTES_MAX_AFTER_CRASH: u64 = 256 << 20;

/// The first schema version with tokens.
const TOKENS_SINCE: i64 = 3;
/// The first schema version that records whether the server asks for tokens by default.
const DOOR_SINCE: i64 = 5;
/// The first schema version with a lineage and a commit number.
const LINEAGE_SINCE: i64 = 4;

/// A data folder that was checked and locked, and that is not changed yet. Dropping it leaves the folder as it was.
pub struct Opening {
    folder: PathBuf,
    options: StoreOptions,
    /// `None` if the folder does not exist yet.
    lock: Option<FolderLock>,
    /// Reads the database. `None` if there is no database yet.
    connection: Option<Connection>,
    /// 0 if there is no database yet.
    version: i64,
    /// Set if a person gave `--accept-older-database`: a new lineage begins.
    accepted_at: Option<Timestamp>,
}

/// The database of a folder, ready to be written.
pub struct OpenedDatabase {
    pub lock: FolderLock,
    pub connection: Connection,
    pub mark: MarkFile,
    /// A person accepted an older database: the first transaction must begin a new lineage, and writes the mark.
    pub accepted_at: Option<Timestamp>,
}

impl Opening {
    /// Takes the folder and makes every check that can refuse it.
    pub fn check(folder: &Path, options: StoreOptions) -> Result<Opening, OpenError> {
        schema::refuse_no_folder(folder)?;
        schema::refuse_network_filesystem(folder)?;
        let mut opening = Opening {
            folder: folder.into(),
            options,
            lock: None,
            connection: None,
            version: 0,
            accepted_at: None,
        };
        match folder.exists() {
            true => opening.check_folder()?,
            false => schema::refuse_full_disk(folder, 0)?,
        }
        Ok(opening)
    }

    fn check_folder(&mut self) -> Result<(), OpenError> {
        let folder = self.folder.as_path();
        schema::refuse_unwritable(folder)?;
        self.lock = Some(FolderLock::take(folder)?);
        let lock_shows_use = self.lock.as_ref().is_some_and(FolderLock::shows_use);
        schema::refuse_half_restored(folder)?;
        schema::refuse_full_disk(folder, 0)?;
        let file = folder.join(DATABASE_FILE);
        schema::refuse_no_file(&file)?;
        schema::refuse_folder_beside(&file)?;
        schema::refuse_unusable_mark(folder)?;
        schema::refuse_lost(folder, &file, lock_shows_use)?;
        check_key(folder)?;
        schema::inspect_file(folder, &file)?;
        let Some(connection) = open_unchanged(folder, &file)? else {
            return Ok(());
        };
        self.check_database(&connection, &file)?;
        self.connection = Some(connection);
        Ok(())
    }

    fn check_database(&mut self, connection: &Connection, file: &Path) -> Result<(), OpenError> {
        let folder = self.folder.as_path();
        let refuse = |source| schema::sqlite_refusal(folder, file, source);
        schema::refuse_strangers(connection, file)?;
        self.version = schema::user_version(connection).map_err(refuse)?;
        if self.version == 0 {
            return schema::refuse_lost_tables(folder, file);
        }
        let bytes = file.metadata().map_or(0, |found| found.len());
        let checked_bytes_max = match wal_bytes(folder) {
            0 => CHECKED_BYTES_MAX,
            _ => CHECKED_BYTES_MAX_AFTER_CRASH,
        };
        if bytes <= checked_bytes_max {
            schema::quick_check(connection, file)?;
        }
        schema::refuse_incomplete(connection, folder, file)?;
        let is_behind = refuse_behind(connection, folder, self.version);
        match self.options.accepted_older_at {
            Some(wall) => {
                let loss = self.accepted_loss(connection, file, is_behind)?;
                log::warn!(
                    "{loss}; a new lineage begins because --accept-older-database was given; leave the flag out from now on"
                );
                self.accepted_at = Some(wall);
            }
            None => is_behind?,
        }
        if !self.options.upgrades {
            schema::refuse_older(connection, folder, file)?;
        }
        if self.options.is_whole_folder {
            schema::refuse_lost_jobs(connection, folder)?;
            schema::refuse_lost_key(connection, folder)?;
        }
        if self.version < SCHEMA_VERSION {
            schema::refuse_upgrade_without_copy(folder, self.version)?;
            schema::refuse_upgrade_without_room(folder, self.version, bytes + wal_bytes(folder))?;
        }
        Ok(())
    }

    /// Says what a person accepts with `--accept-older-database`.
    ///
    /// The flag always takes effect. A copy of the whole folder has its own mark, so only workers can notice that it is older, and
    /// on the first start after the copy was put in place they have not called yet.
    fn accepted_loss(
        &self,
        connection: &Connection,
        file: &Path,
        is_behind: Result<(), OpenError>,
    ) -> Result<String, OpenError> {
        match is_behind {
            Err(OpenError::Behind { found, marked, .. }) if found + 1 == marked => {
                Ok(format!("commit {marked} is lost"))
            }
            Err(OpenError::Behind { found, marked, .. }) => {
                Ok(format!("commits {} to {marked} are lost", found + 1))
            }
            Err(OpenError::OtherLineage { .. }) => Ok(format!(
                "{} is not the database that this folder had before",
                file.display()
            )),
            Err(refusal) => Err(refusal),
            Ok(()) if self.is_rollback_noticed(connection, file)? => {
                Ok("workers have worked for a later state of this database".to_string())
            }
            Ok(()) => Ok("nothing in this folder shows a loss".to_string()),
        }
    }

    /// Returns whether workers noticed that the database was rolled back.
    fn is_rollback_noticed(&self, connection: &Connection, file: &Path) -> Result<bool, OpenError> {
        if self.version < LINEAGE_SINCE {
            return Ok(false);
        }
        lineage::is_rollback_noticed(connection)
            .map_err(|source| schema::sqlite_refusal(&self.folder, file, source))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether there is no database in the folder yet.
    pub fn is_new(&self) -> bool {
        self.version == 0
    }

    /// Returns whether the database has a valid token of role admin.
    pub fn has_admin(&self, wall: Timestamp) -> Result<bool, OpenError> {
        let Some(connection) = &self.connection else {
            return Ok(false);
        };
        if self.version < TOKENS_SINCE {
            return Ok(false);
        }
        let params = named_params! {":token_id": TokenId(0).0, ":wall": wall.0};
        let found = || connection.prepare(tokens::OTHER_ADMIN)?.exists(params);
        found().map_err(|source| {
            schema::sqlite_refusal(&self.folder, &self.folder.join(DATABASE_FILE), source)
        })
    }

    /// Returns what the database says about asking for tokens, as it will be once it is created or upgraded.
    pub fn door(&self) -> Result<FolderDoor, OpenError> {
        let of_former_version = FolderDoor {
            is_closed: false,
            has_had_first_start: false,
        };
        let Some(connection) = &self.connection else {
            return Ok(FolderDoor {
                is_closed: true,
                ..of_former_version
            });
        };
        match self.version {
            0 => Ok(FolderDoor {
                is_closed: true,
                ..of_former_version
            }),
            1..DOOR_SINCE => Ok(of_former_version),
            _ => {
                let found = connection.query_row(tokens::FOLDER_DOOR, [], tokens::folder_door);
                found.map_err(|source| {
                    schema::sqlite_refusal(&self.folder, &self.folder.join(DATABASE_FILE), source)
                })
            }
        }
    }

    /// Creates or upgrades the database. From here on the folder changes.
    pub fn finish(mut self) -> Result<(OpenedDatabase, StoreOptions), OpenError> {
        if self.lock.is_none() {
            schema::make_folder(&self.folder)?;
            // Another process may have filled it meanwhile.
            self.check_folder()?;
        }
        // The connection that writes must be the only one, or closing the other would release its locks.
        self.connection = None;
        let folder = self.folder.as_path();
        let file = folder.join(DATABASE_FILE);
        schema::make_file(folder, &file)?;
        let connection = schema::open_writer(folder, &file)?;
        let observer = self.options.on_statement.as_ref();
        schema::bring_up_to_date(&connection, folder, &file, schema::UPGRADES, observer)?;
        schema::refuse_incomplete(&connection, folder, &file)?;
        schema::prove_writable(&connection, folder, &file)?;
        if self.version < SCHEMA_VERSION {
            // Without its write-ahead log the file would not even have the new tables.
            schema::checkpoint(&connection, folder, &file)?;
        }
        if self.options.upgrades {
            // Left by a restore that was killed while it unpacked. If it cannot be removed, it only takes room.
            let _ = std::fs::remove_dir_all(folder.join(schema::UNPACKING_FOLDER));
        }
        let mut mark = MarkFile::new(folder, position(&connection, folder)?);
        if self.accepted_at.is_none() {
            mark.write();
        }
        let mut lock = self.lock.take().expect("it was taken above");
        lock.keep();
        let opened = OpenedDatabase {
            lock,
            connection,
            mark,
            accepted_at: self.accepted_at,
        };
        Ok((opened, self.options))
    }
}

/// A key that exists must be usable. A missing key is made later, unless something was sealed with it. A link to a file that does not
/// exist is no missing key: no key can be made in its place.
fn check_key(folder: &Path) -> Result<(), OpenError> {
    if folder.join(KEY_FILE).symlink_metadata().is_err() {
        return Ok(());
    }
    let opened = Sealer::open(folder).map(|_| ());
    opened.map_err(|source| OpenError::Folder {
        folder: folder.into(),
        source,
    })
}

fn wal_bytes(folder: &Path) -> u64 {
    let found = folder.join(WAL_FILE).metadata();
    found.map_or(0, |found| found.len())
}

/// Opens the database to read it, and changes no file. Returns `None` if the file does not exist or is empty.
///
/// SQLite creates files beside a database in WAL mode, even for a connection that only reads. A database without a write-ahead log
/// is therefore opened as a file that nobody changes. One with a write-ahead log is opened in exclusive mode, which keeps the index
/// of the log in memory instead of a file, and the log is not moved into the database when the connection closes.
fn open_unchanged(folder: &Path, file: &Path) -> Result<Option<Connection>, OpenError> {
    let refuse = |source| schema::sqlite_refusal(folder, file, source);
    if file.metadata().map_or(0, |found| found.len()) == 0 {
        return Ok(None);
    }
    let has_log = wal_bytes(folder) > 0;
    // A server that was killed while it created the database leaves one. SQLite must take it in before anything can be read.
    let has_journal = folder.join(format!("{DATABASE_FILE}-journal")).exists();
    let connect = |is_exclusive: bool| -> rusqlite::Result<Connection> {
        let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let uri = match has_log || has_journal {
            true => {
                flags |= OpenFlags::SQLITE_OPEN_READ_WRITE;
                format!("file:{}?mode=rw", in_uri(file.as_os_str()))
            }
            false => {
                flags |= OpenFlags::SQLITE_OPEN_READ_ONLY;
                format!("file:{}?mode=ro&immutable=1", in_uri(file.as_os_str()))
            }
        };
        let connection = Connection::open_with_flags(uri, flags)?;
        schema::configure(&connection)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.pragma_update(None, "query_only", true)?;
        if is_exclusive {
            connection.busy_timeout(std::time::Duration::ZERO)?;
            connection.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
        }
        // The first look at the file.
        schema::user_version(&connection)?;
        Ok(connection)
    };
    match connect(has_log) {
        // Somebody looks into it with another program.
        Err(error)
            if has_log && error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) =>
        {
            connect(false)
        }
        connected => connected,
    }
    .map(Some)
    .map_err(refuse)
}

/// The lineage and the number of the last commit. `None`: the database is older than both.
fn known_position(
    connection: &Connection,
    version: i64,
) -> rusqlite::Result<Option<CommitPosition>> {
    if version < LINEAGE_SINCE {
        return Ok(None);
    }
    let found = connection
        .query_row(
            "SELECT lineage, commit_number FROM server WHERE only_row = 1",
            [],
            |row| {
                Ok(CommitPosition {
                    lineage: row.get(0)?,
                    number: row.get(1)?,
                })
            },
        )
        .optional()?;
    Ok(found.filter(|position| !position.lineage.is_empty()))
}

fn position(connection: &Connection, folder: &Path) -> Result<CommitPosition, OpenError> {
    let file = folder.join(DATABASE_FILE);
    let found = known_position(connection, SCHEMA_VERSION)
        .map_err(|source| schema::sqlite_refusal(folder, &file, source))?;
    found.ok_or_else(|| OpenError::Corrupt {
        file,
        detail: "its row of the server is missing".to_string(),
    })
}

/// Refuses a database that has lost commits, or that is another one than the folder had.
pub fn refuse_behind(
    connection: &Connection,
    folder: &Path,
    version: i64,
) -> Result<(), OpenError> {
    // Before the look into the database: a server that runs meanwhile only moves the database ahead of it.
    let Some(marked) = schema::read_mark(folder)? else {
        return Ok(());
    };
    let file = folder.join(DATABASE_FILE);
    let refuse = |source| schema::sqlite_refusal(folder, &file, source);
    let found = known_position(connection, version).map_err(refuse)?;
    match found {
        Some(found) if found.lineage == marked.lineage => match found.number < marked.number {
            true => Err(OpenError::Behind {
                file,
                found: found.number,
                marked: marked.number,
            }),
            false => Ok(()),
        },
        // The process was killed, or the power failed, after the database began a new lineage and before the mark of that was on disk.
        Some(_) if lineage::has_just_left(connection, &marked.lineage).map_err(refuse)? => Ok(()),
        _ => Err(OpenError::OtherLineage { file }),
    }
}

/// The same for a folder that this process has locked, and whose database it has not opened.
pub fn refuse_behind_in(folder: &Path) -> Result<(), OpenError> {
    let file = folder.join(DATABASE_FILE);
    let Some(connection) = open_unchanged(folder, &file)? else {
        return Ok(());
    };
    schema::refuse_strangers(&connection, &file)?;
    let version = schema::user_version(&connection)
        .map_err(|source| schema::sqlite_refusal(folder, &file, source))?;
    refuse_behind(&connection, folder, version)
}
