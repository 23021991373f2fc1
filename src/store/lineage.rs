//! The lineage of the database: which history it continues, and how far this history has come.
//!
//! Two databases with the same lineage are states of the same history, and the one with the higher commit number is the newer
//! one. Whoever goes on from an older state on purpose (a restored backup) begins a new lineage.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, named_params};

use super::{StoreError, Tx};
use crate::domain::lineage::{EpochHistory, Lineage, LineageStart, Lineages, ServerStart};
use crate::domain::{AttemptRef, SessionId};

pub const STATEMENTS: &[&str] = &[
    LINEAGE,
    BEGIN_NEW_LINEAGE,
    BEGIN_EPOCH,
    ADD_EPOCH,
    FORGET_EPOCHS,
    SESSION_OF_ATTEMPT,
    HAS_JUST_LEFT,
    NUMBER_COMMIT,
    NUMBER_COMMIT_AFTER_OTHERS,
    NOTE_ROLLBACK,
    ROLLBACK_NOTICED,
];

const LINEAGE: &str = "SELECT lineage, epoch FROM server WHERE only_row = 1";

const BEGIN_NEW_LINEAGE: &str = "
    UPDATE server SET lineage = lower(hex(randomblob(16))), epoch = 0, rollback_noticed = 0
     WHERE only_row = 1
 RETURNING lineage
";

/// Runs once at the beginning of a lineage. The ids of removed sessions count, too: `sqlite_sequence` holds the highest id that
/// was ever used.
const ADD_LINEAGE: &str = "
    INSERT INTO lineage (key, first_session_id)
    SELECT lineage, 1 + coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'session'), 0)
      FROM server
     WHERE only_row = 1 AND NOT EXISTS (SELECT 1 FROM lineage WHERE key = server.lineage)
";

const NOTE_ROLLBACK: &str = "UPDATE server SET rollback_noticed = 1 WHERE only_row = 1";

const ROLLBACK_NOTICED: &str = "SELECT rollback_noticed FROM server WHERE only_row = 1";

const BEGIN_EPOCH: &str = "
    UPDATE server SET epoch = epoch + 1 WHERE only_row = 1 RETURNING lineage, epoch
";

const ADD_EPOCH: &str = "
    INSERT INTO epoch (epoch, start_key, commits_before)
    SELECT :epoch, lower(hex(randomblob(8))), commit_number FROM server WHERE only_row = 1
";

/// Starts that are kept: a worker that was away for longer is not told from one that has seen the same history.
const EPOCHS_MAX: i64 = 1_000;

const FORGET_EPOCHS: &str = "DELETE FROM epoch WHERE epoch <= :until";

/// Runs once at a start, and reads every row: at most `EPOCHS_MAX`.
const EPOCHS: &str = "SELECT epoch, start_key, commits_before FROM epoch ORDER BY epoch";

/// Runs once at a start, and reads every row: an installation has a handful of lineages.
const LINEAGES: &str = "SELECT key, first_session_id FROM lineage ORDER BY lineage_no";

const HAS_JUST_LEFT: &str = "
    SELECT EXISTS (SELECT 1 FROM lineage WHERE key = :key) AND EXISTS (SELECT 1 FROM server WHERE only_row = 1 AND epoch <= 1)
";

/// The last attempt of a step is in the step's own row.
const SESSION_OF_ATTEMPT: &str = "
    SELECT session_id FROM step WHERE step_id = :step_id AND attempt = :attempt AND session_id IS NOT NULL
     UNION ALL
    SELECT session_id FROM former_attempt WHERE step_id = :step_id AND attempt = :attempt AND session_id IS NOT NULL
     LIMIT 1
";

/// Adds the row of the current lineage to the table of lineages if a new or upgraded database does not have it yet.
pub fn record_first_lineage(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute(ADD_LINEAGE, []).map(|_| ())
}

/// Whether a worker has noticed that the database was rolled back, and no person has accepted it since.
pub fn is_rollback_noticed(connection: &Connection) -> rusqlite::Result<bool> {
    let noticed = connection.query_row(ROLLBACK_NOTICED, [], |row| row.get(0));
    Ok(noticed.optional()?.unwrap_or(false))
}

/// Whether the database continues this lineage in a new one, and at most one server was started in the new one.
pub fn has_just_left(connection: &Connection, key: &str) -> rusqlite::Result<bool> {
    connection.query_row(HAS_JUST_LEFT, named_params! {":key": key}, |row| row.get(0))
}

/// Reads the lineages of a database, the oldest first.
pub fn read_lineages(connection: &Connection) -> rusqlite::Result<Lineages> {
    let mut statement = connection.prepare_cached(LINEAGES)?;
    let starts = statement.query_map([], lineage_start)?;
    Ok(Lineages::new(starts.collect::<Result<_, _>>()?))
}

/// The session that ran an attempt. `None`: version 0.1 recorded none, or the attempt does not exist.
pub fn session_of_attempt(
    connection: &Connection,
    attempt: AttemptRef,
) -> rusqlite::Result<Option<SessionId>> {
    let mut statement = connection.prepare_cached(SESSION_OF_ATTEMPT)?;
    let params = named_params! {":step_id": attempt.step_id.0, ":attempt": attempt.attempt};
    let found = statement.query_row(params, |row| row.get(0).map(SessionId));
    found.optional()
}

fn lineage_start(row: &Row) -> rusqlite::Result<LineageStart> {
    Ok(LineageStart {
        key: row.get(0)?,
        first_session_id: SessionId(row.get(1)?),
    })
}

fn lineage(row: &Row) -> rusqlite::Result<Lineage> {
    Ok(Lineage {
        key: row.get(0)?,
        epoch: row.get(1)?,
    })
}

/// Changes nothing if another process has committed since the last commit of this one. The condition costs nothing, unlike
/// `RETURNING`, which takes three times as long.
const NUMBER_COMMIT: &str = "
    UPDATE server SET commit_number = :number WHERE only_row = 1 AND commit_number = :number - 1
";

/// Runs only if another process has committed.
const NUMBER_COMMIT_AFTER_OTHERS: &str = "
    UPDATE server SET commit_number = commit_number + 1 WHERE only_row = 1 RETURNING commit_number
";

impl Tx<'_> {
    /// Gives the commit of this transaction its number, and returns the number. The writer does that once for each group.
    ///
    /// `expected` follows the last commit of this process. The number in the database decides: if another process writes the
    /// same database, no number is used twice.
    pub(super) fn number_commit(&self, expected: i64) -> Result<i64, StoreError> {
        let params = named_params! {":number": expected};
        if self.sql(NUMBER_COMMIT)?.execute(params)? == 1 {
            return Ok(expected);
        }
        let mut statement = self.sql(NUMBER_COMMIT_AFTER_OTHERS)?;
        Ok(statement.query_row([], |row| row.get(0))?)
    }

    pub fn lineage(&self) -> Result<Lineage, StoreError> {
        Ok(self.sql(LINEAGE)?.query_row([], lineage)?)
    }

    /// Gives the database a new random lineage with epoch 0, and returns its key.
    ///
    /// For a database that goes on from an older state on purpose. Workers accept a new lineage and drop what they still
    /// have to report to the former one: every session gets a key that no worker has, so each worker opens a new session,
    /// and a result or a log of a former session is never taken for one of a step with the same id and attempt.
    pub fn begin_new_lineage(&self) -> Result<String, StoreError> {
        let mut statement = self.sql(BEGIN_NEW_LINEAGE)?;
        let key: String = statement.query_row([], |row| row.get(0))?;
        self.sql(ADD_LINEAGE)?.execute([])?;
        self.forget_epochs(i64::MAX)?;
        self.forget_session_keys()?;
        let mut changes = self.changes.borrow_mut();
        changes.rare.get_or_insert_default().begins_lineage = true;
        Ok(key)
    }

    /// Remembers that a worker has worked for a later state of this database, until a new lineage begins.
    pub fn note_rollback(&self) -> Result<(), StoreError> {
        self.sql(NOTE_ROLLBACK)?.execute([])?;
        Ok(())
    }

    /// Counts one more start of a server, and returns the starts that the database knows.
    pub fn begin_epoch(&self) -> Result<EpochHistory, StoreError> {
        let Lineage { key, epoch } = self.sql(BEGIN_EPOCH)?.query_row([], lineage)?;
        self.sql(ADD_EPOCH)?
            .execute(named_params! {":epoch": epoch})?;
        self.forget_epochs(epoch - EPOCHS_MAX)?;
        let mut statement = self.sql(EPOCHS)?;
        let rows = statement.query_map([], |row| {
            let start = ServerStart {
                key: row.get(1)?,
                commits_before: row.get(2)?,
            };
            Ok((row.get(0)?, start))
        })?;
        Ok(EpochHistory {
            lineage: key,
            current: epoch,
            starts: rows.collect::<Result<BTreeMap<_, _>, _>>()?,
        })
    }

    fn forget_epochs(&self, until: i64) -> Result<(), StoreError> {
        self.sql(FORGET_EPOCHS)?
            .execute(named_params! {":until": until})?;
        Ok(())
    }

    /// All lineages of this installation, the oldest first.
    pub fn lineages(&self) -> Result<Lineages, StoreError> {
        let mut statement = self.sql(LINEAGES)?;
        let starts = statement.query_map([], lineage_start)?;
        Ok(Lineages::new(starts.collect::<Result<_, _>>()?))
    }

    /// The session that ran an attempt. `None`: version 0.1 recorded none, or the attempt does not exist.
    pub fn session_of_attempt(&self, attempt: AttemptRef) -> Result<Option<SessionId>, StoreError> {
        let mut statement = self.sql(SESSION_OF_ATTEMPT)?;
        let params = named_params! {":step_id": attempt.step_id.0, ":attempt": attempt.attempt};
        let found = statement.query_row(params, |row| row.get(0).map(SessionId));
        Ok(found.optional()?)
    }
}
