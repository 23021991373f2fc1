//! Tokens, and sessions of browsers that were ended.

use rusqlite::{Row, named_params};

use super::rows;
use super::{StoreError, Tx};
use crate::domain::token::{FolderDoor, NewToken, Role, Token};
use crate::domain::{Now, Timestamp, TokenId, WorkerId};

pub const STATEMENTS: &[&str] = &[
    INSERT_TOKEN,
    TOKEN,
    TOKENS_AFTER,
    OTHER_ADMIN,
    END_TOKEN,
    USE_ENROLMENT,
    TOUCH_TOKEN,
    OLD_TOKENS,
    REMOVE_TOKEN,
    OWN_WORKER,
    OWNER_OF_WORKER,
    OWNER_OF_SESSION,
    IS_NAME_OF_ANOTHER,
    WORKERS_OF_TOKEN,
    INSERT_LOGOUT,
    FORGET_LOGOUTS,
    LOGOUTS,
    UNASKED_TOKENS,
    FOLDER_DOOR,
    RECORD_FIRST_START,
];

const INSERT_TOKEN: &str = "
    INSERT INTO token (name, role, hash, tags, made_by, created_at, expires_at, is_unasked)
    VALUES (:name, :role, :hash, :tags, :made_by, :wall, :expires_at, :is_unasked)
";

/// In the order in which `token` reads them.
macro_rules! token_columns {
    () => {
        "SELECT token_id, name, role, hash, tags, made_by, created_at, expires_at, used_at, ended_at, made_token_id, is_unasked FROM token "
    };
}

const TOKEN: &str = concat!(token_columns!(), "WHERE token_id = :token_id");

const TOKENS_AFTER: &str = concat!(
    token_columns!(),
    "WHERE token_id > :after ORDER BY token_id LIMIT :limit"
);

pub const OTHER_ADMIN: &str = "
    SELECT 1 FROM token
     WHERE role = 'admin' AND ended_at IS NULL AND token_id <> :token_id AND (expires_at IS NULL OR expires_at > :wall)
     LIMIT 1
";

const END_TOKEN: &str = "
    UPDATE token SET ended_at = :wall WHERE token_id = :token_id AND ended_at IS NULL
";

const USE_ENROLMENT: &str = "
    UPDATE token
       SET ended_at = :wall, used_at = :wall, made_token_id = :made_token_id
     WHERE token_id = :token_id
       AND role     = 'enrolment'
       AND ended_at IS NULL
";

const TOUCH_TOKEN: &str = "
    UPDATE token SET used_at = max(coalesce(used_at, 0), :wall) WHERE token_id = :token_id
";

const OLD_TOKENS: &str = "
    SELECT token_id
      FROM token AS t
     WHERE coalesce(ended_at, expires_at) <= :until
       AND NOT EXISTS (SELECT 1 FROM token AS e WHERE e.made_token_id = t.token_id)
     ORDER BY coalesce(ended_at, expires_at)
     LIMIT :limit
";

const REMOVE_TOKEN: &str = "
    DELETE FROM token WHERE token_id = :token_id
";

const OWN_WORKER: &str = "
    UPDATE worker SET token_id = :token_id WHERE worker_id = :worker_id AND deleted_at IS NULL
";

const OWNER_OF_WORKER: &str = "
    SELECT token_id FROM worker WHERE worker_id = :worker_id
";

const OWNER_OF_SESSION: &str = "
    SELECT w.token_id
      FROM session AS n
      JOIN worker AS w ON w.worker_id = n.worker_id
     WHERE n.session_key = :session_key
";

const IS_NAME_OF_ANOTHER: &str = "
    SELECT 1
      FROM worker AS w
     WHERE w.name = :name AND w.state = 'active' AND w.token_id IS NOT NULL
       AND w.token_id <> :token_id
       AND w.instance_key <> :instance_key
       AND (w.draining = 0 OR EXISTS (SELECT 1 FROM step AS s WHERE s.session_id = w.session_id AND s.ended_at IS NULL))
       AND (w.token_id = 0 AND :has_own_worker OR EXISTS (SELECT 1 FROM token AS t
                                       WHERE t.token_id = w.token_id AND t.ended_at IS NULL
                                         AND (t.expires_at IS NULL OR t.expires_at > :wall)))
";

const WORKERS_OF_TOKEN: &str = "
    SELECT worker_id FROM worker WHERE token_id = :token_id AND deleted_at IS NULL ORDER BY worker_id
";

const INSERT_LOGOUT: &str = "
    INSERT INTO logout (session, until_at) VALUES (:session, :until_at) ON CONFLICT (session) DO NOTHING
";

const FORGET_LOGOUTS: &str = "
    DELETE FROM logout WHERE until_at <= :wall
";

/// As many as people logged out of within a week.
const LOGOUTS: &str = "
    SELECT session FROM logout WHERE until_at > :wall ORDER BY until_at
";

const UNASKED_TOKENS: &str = concat!(
    token_columns!(),
    "INDEXED BY token_unasked WHERE ended_at IS NULL AND is_unasked = 1 AND token_id > 0 AND (expires_at IS NULL OR expires_at > :wall)
     ORDER BY token_id"
);

pub const FOLDER_DOOR: &str = "
    SELECT asks_by_default, first_start_at IS NOT NULL FROM server WHERE only_row = 1
";

const RECORD_FIRST_START: &str = "
    UPDATE server SET first_start_at = :wall WHERE only_row = 1 AND first_start_at IS NULL
";

/// Reads the row of `FOLDER_DOOR`.
pub fn folder_door(row: &Row) -> rusqlite::Result<FolderDoor> {
    Ok(FolderDoor {
        is_closed: row.get(0)?,
        has_had_first_start: row.get(1)?,
    })
}

impl Tx<'_> {
    pub fn folder_door(&self) -> Result<FolderDoor, StoreError> {
        Ok(self.sql(FOLDER_DOOR)?.query_row([], folder_door)?)
    }

    /// From now on no start writes tokens into the data folder.
    pub fn record_first_start(&self, now: Now) -> Result<(), StoreError> {
        self.sql(RECORD_FIRST_START)?
            .execute(named_params! {":wall": now.wall.0})?;
        Ok(())
    }

    /// Valid tokens that were made while the server asked nobody for a token.
    pub fn unasked_tokens(&self, now: Timestamp) -> Result<Vec<Token>, StoreError> {
        let mut statement = self.sql(UNASKED_TOKENS)?;
        let mut rows = statement.query(named_params! {":wall": now.0})?;
        let mut tokens = Vec::new();
        while let Some(row) = rows.next()? {
            tokens.push(token(row)?);
        }
        Ok(tokens)
    }

    pub fn insert_token(&self, token: &NewToken, now: Now) -> Result<TokenId, StoreError> {
        self.sql(INSERT_TOKEN)?.execute(named_params! {
            ":name": token.name,
            ":role": token.role.as_str(),
            ":hash": token.hash,
            ":tags": token.tags.as_ref().map(|tags| tags.join(" ")),
            ":made_by": token.made_by,
            ":wall": now.wall.0,
            ":expires_at": token.expires_at.map(|at| at.0),
            ":is_unasked": token.is_unasked,
        })?;
        Ok(TokenId(self.connection.last_insert_rowid()))
    }

    pub fn token(&self, token_id: TokenId) -> Result<Option<Token>, StoreError> {
        let mut statement = self.sql(TOKEN)?;
        let mut rows = statement.query(named_params! {":token_id": token_id.0})?;
        rows.next()?.map(token).transpose()
    }

    /// In the order in which they were made, ended ones too.
    pub fn tokens_after(&self, after: TokenId, limit: u32) -> Result<Vec<Token>, StoreError> {
        let mut statement = self.sql(TOKENS_AFTER)?;
        let mut rows = statement.query(named_params! {":after": after.0, ":limit": limit})?;
        let mut tokens = Vec::new();
        while let Some(row) = rows.next()? {
            tokens.push(token(row)?);
        }
        Ok(tokens)
    }

    /// Another worker of that name is there, and came with another token that is good. One that was drained and holds no step has
    /// left, or is about to.
    pub fn is_name_of_another(
        &self,
        name: &str,
        instance_key: &str,
        token_id: TokenId,
        has_own_worker: bool,
        now: Now,
    ) -> Result<bool, StoreError> {
        Ok(self.sql(IS_NAME_OF_ANOTHER)?.exists(named_params! {
            ":name": name,
            ":instance_key": instance_key,
            ":token_id": token_id.0,
            ":has_own_worker": has_own_worker,
            ":wall": now.wall.0,
        })?)
    }

    /// Whether anybody but this token has the role of an admin.
    pub fn has_other_admin(&self, token_id: TokenId, now: Now) -> Result<bool, StoreError> {
        let params = named_params! {":token_id": token_id.0, ":wall": now.wall.0};
        Ok(self.sql(OTHER_ADMIN)?.exists(params)?)
    }

    /// Those that let nobody in since then. What an enrolment was exchanged for comes after it.
    pub fn old_tokens(&self, until: Timestamp, limit: u32) -> Result<Vec<TokenId>, StoreError> {
        let mut statement = self.sql(OLD_TOKENS)?;
        let params = named_params! {":until": until.0, ":limit": limit};
        let tokens = statement.query_map(params, |row| row.get(0).map(TokenId))?;
        Ok(tokens.collect::<Result<_, _>>()?)
    }

    pub fn remove_tokens(&self, tokens: &[TokenId]) -> Result<usize, StoreError> {
        let mut statement = self.sql_repeated(REMOVE_TOKEN)?;
        let mut removed = 0;
        for token_id in tokens {
            removed += statement.execute(named_params! {":token_id": token_id.0})?;
        }
        Ok(removed)
    }

    /// `false`: it had ended.
    pub fn end_token(&self, token_id: TokenId, now: Now) -> Result<bool, StoreError> {
        let params = named_params! {":token_id": token_id.0, ":wall": now.wall.0};
        Ok(self.sql(END_TOKEN)?.execute(params)? == 1)
    }

    /// An enrolment ends with what it was exchanged for. `false`: somebody was faster.
    pub fn use_enrolment(
        &self,
        token_id: TokenId,
        made: TokenId,
        now: Now,
    ) -> Result<bool, StoreError> {
        let used = self.sql(USE_ENROLMENT)?.execute(named_params! {
            ":token_id": token_id.0,
            ":made_token_id": made.0,
            ":wall": now.wall.0,
        })?;
        Ok(used == 1)
    }

    pub fn touch_token(&self, token_id: TokenId, now: Now) -> Result<(), StoreError> {
        let params = named_params! {":token_id": token_id.0, ":wall": now.wall.0};
        self.sql(TOUCH_TOKEN)?.execute(params)?;
        Ok(())
    }

    pub fn own_worker(&self, worker_id: WorkerId, token_id: TokenId) -> Result<(), StoreError> {
        let params = named_params! {":worker_id": worker_id.0, ":token_id": token_id.0};
        self.sql(OWN_WORKER)?.execute(params)?;
        Ok(())
    }

    pub fn owner_of_worker(&self, worker_id: WorkerId) -> Result<Option<TokenId>, StoreError> {
        let mut statement = self.sql(OWNER_OF_WORKER)?;
        let mut rows = statement.query(named_params! {":worker_id": worker_id.0})?;
        let owner = rows.next()?.map(|row| rows::id(row, 0, TokenId));
        Ok(owner.transpose()?.flatten())
    }

    /// `None`: no such session. `Some(None)`: nobody's.
    pub fn owner_of_session(
        &self,
        session_key: &str,
    ) -> Result<Option<Option<TokenId>>, StoreError> {
        let mut statement = self.sql(OWNER_OF_SESSION)?;
        let mut rows = statement.query(named_params! {":session_key": session_key})?;
        Ok(rows
            .next()?
            .map(|row| rows::id(row, 0, TokenId))
            .transpose()?)
    }

    pub fn workers_of_token(&self, token_id: TokenId) -> Result<Vec<WorkerId>, StoreError> {
        let mut statement = self.sql(WORKERS_OF_TOKEN)?;
        let found = statement.query_map(named_params! {":token_id": token_id.0}, |row| {
            Ok(WorkerId(row.get(0)?))
        })?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// What is over anyway is forgotten with it.
    pub fn insert_logout(
        &self,
        session: &str,
        until_at: Timestamp,
        now: Now,
    ) -> Result<(), StoreError> {
        self.sql(FORGET_LOGOUTS)?
            .execute(named_params! {":wall": now.wall.0})?;
        self.sql(INSERT_LOGOUT)?
            .execute(named_params! {":session": session, ":until_at": until_at.0})?;
        Ok(())
    }

    /// Of sessions that would not be over yet.
    pub fn logouts(&self, now: Timestamp) -> Result<Vec<String>, StoreError> {
        let mut statement = self.sql(LOGOUTS)?;
        let found = statement.query_map(named_params! {":wall": now.0}, |row| row.get(0))?;
        Ok(found.collect::<Result<_, _>>()?)
    }
}

fn token(row: &Row) -> Result<Token, StoreError> {
    let tags: Option<String> = row.get(4)?;
    let words = |tags: String| tags.split_whitespace().map(str::to_string).collect();
    Ok(Token {
        token_id: TokenId(row.get(0)?),
        name: row.get(1)?,
        role: rows::word(row, 2, Role::from_word, "the role of a token")?,
        hash: row.get(3)?,
        tags: tags.map(words),
        made_by: row.get(5)?,
        created_at: Timestamp(row.get(6)?),
        expires_at: rows::id(row, 7, Timestamp)?,
        used_at: rows::id(row, 8, Timestamp)?,
        ended_at: rows::id(row, 9, Timestamp)?,
        made_token_id: rows::id(row, 10, TokenId)?,
        is_unasked: row.get(11)?,
    })
}
