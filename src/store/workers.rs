//! Workers and their sessions.

use rusqlite::named_params;

use super::rows::{self, session_columns, worker_columns};
use super::{StoreError, Tx};
use crate::domain::peer::Features;
use crate::domain::protocol::Registration;
use crate::domain::worker::{Worker, WorkerState};
use crate::domain::{Now, RequirementId, SessionId, Uptime, WorkerId};

pub const STATEMENTS: &[&str] = &[
    WORKER,
    WORKER_BY_INSTANCE,
    WORKERS_AFTER,
    LIVE_WORKERS,
    INSERT_WORKER,
    UPDATE_WORKER,
    INSERT_SESSION,
    CLOSE_SESSIONS,
    SESSION,
    SESSION_BY_ID,
    WORKER_SPEAKS,
    HEARTBEAT,
    SILENCE_WORKER,
    DRAIN_WORKER,
    SET_PAUSED,
    DELETE_WORKER,
    FORGET_WORKER_AVOIDANCES,
    WORKERS_ABLE_TO,
    SLOTS_USED,
];

/// A session and what its verbs must know of its worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    pub session_id: SessionId,
    pub worker_id: WorkerId,
    pub worker_name: String,
    pub worker_state: WorkerState,
    pub draining: bool,
    pub paused: bool,
    pub slots: u32,
    pub heartbeat_seq: i64,
    pub seen_up: Uptime,
    /// False once the worker opened another session or was deleted.
    pub current: bool,
    /// What its worker announced when it opened the session.
    pub features: Features,
}

const WORKER: &str = concat!(
    "SELECT ",
    worker_columns!(),
    " FROM worker AS w LEFT JOIN session AS n ON n.session_id = w.session_id
      WHERE w.worker_id = :worker_id"
);

const WORKER_BY_INSTANCE: &str = concat!(
    "SELECT ",
    worker_columns!(),
    " FROM worker AS w LEFT JOIN session AS n ON n.session_id = w.session_id
      WHERE w.instance_key = :instance_key AND w.deleted_at IS NULL"
);

const WORKERS_AFTER: &str = concat!(
    "SELECT ",
    worker_columns!(),
    " FROM worker AS w LEFT JOIN session AS n ON n.session_id = w.session_id
      WHERE w.deleted_at IS NULL AND w.worker_id > :after
      ORDER BY w.worker_id
      LIMIT :limit"
);

const LIVE_WORKERS: &str = concat!(
    "SELECT ",
    worker_columns!(),
    " FROM worker AS w LEFT JOIN session AS n ON n.session_id = w.session_id
      WHERE w.deleted_at IS NULL AND w.instance_key >= ''
      ORDER BY w.instance_key
      LIMIT :limit"
);

const INSERT_WORKER: &str = "
    INSERT INTO worker (instance_key, name, state, tags, slots, version, platform, seen_at, seen_up, created_at)
    VALUES (:instance_key, :name, 'active', :tags, :slots, :version, :platform, :wall, :up, :wall)
";

/// A new session clears `draining`; `paused` stays until somebody resumes.
const UPDATE_WORKER: &str = "
    UPDATE worker
       SET name = :name, state = 'active', draining = 0, tags = :tags, slots = :slots, version = :version,
           platform = :platform, session_id = :session_id, heartbeat_seq = -1, seen_at = :wall, seen_up = :up
     WHERE worker_id = :worker_id
       AND deleted_at IS NULL
";

const INSERT_SESSION: &str = "
    INSERT INTO session (worker_id, session_key, opened_at, features)
    VALUES (:worker_id, :session_key, :wall, :features)
";

const CLOSE_SESSIONS: &str = "
    UPDATE session SET closed_at = :wall WHERE worker_id = :worker_id AND closed_at IS NULL
";

const SESSION: &str = concat!(
    "SELECT ",
    session_columns!(),
    " FROM session AS n
      JOIN worker AS w ON w.worker_id = n.worker_id
      WHERE n.session_key = :session_key"
);

const SESSION_BY_ID: &str = concat!(
    "SELECT ",
    session_columns!(),
    " FROM session AS n
      JOIN worker AS w ON w.worker_id = n.worker_id
      WHERE n.session_id = :session_id"
);

const WORKER_SPEAKS: &str = "
    UPDATE worker
       SET state = 'active', seen_at = :wall, seen_up = :up
     WHERE worker_id  = :worker_id
       AND session_id = :session_id
       AND deleted_at IS NULL
";

const HEARTBEAT: &str = "
    UPDATE worker
       SET state = 'active', seen_at = :wall, seen_up = :up, heartbeat_seq = max(heartbeat_seq, :seq)
     WHERE worker_id  = :worker_id
       AND session_id = :session_id
       AND deleted_at IS NULL
";

const SILENCE_WORKER: &str = "
    UPDATE worker
       SET state = 'inactive', seen_at = :seen_at, seen_up = :seen_up
     WHERE worker_id = :worker_id
       AND state     = 'active'
       AND seen_up  <= :seen_up
";

const DRAIN_WORKER: &str = "
    UPDATE worker SET draining = 1 WHERE worker_id = :worker_id AND deleted_at IS NULL
";

const SET_PAUSED: &str = "
    UPDATE worker SET paused = :paused WHERE worker_id = :worker_id AND deleted_at IS NULL
";

const DELETE_WORKER: &str = "
    UPDATE worker
       SET state = 'inactive', deleted_at = :wall
     WHERE worker_id = :worker_id
       AND deleted_at IS NULL
";

const FORGET_WORKER_AVOIDANCES: &str = "
    DELETE FROM avoidance WHERE worker_id = :worker_id
";

const WORKERS_ABLE_TO: &str = concat!(
    "SELECT ",
    worker_columns!(),
    " FROM capability AS c
      JOIN worker AS w ON w.worker_id = c.worker_id
      LEFT JOIN session AS n ON n.session_id = w.session_id
      WHERE c.requirement_id = :requirement_id AND w.deleted_at IS NULL
      ORDER BY c.worker_id
      LIMIT :limit"
);

const SLOTS_USED: &str = "
    SELECT count(*) FROM step WHERE session_id = :session_id AND ended_at IS NULL
";

impl Tx<'_> {
    pub fn worker(&self, worker_id: WorkerId) -> Result<Option<Worker>, StoreError> {
        self.one_worker(WORKER, named_params! {":worker_id": worker_id.0})
    }

    /// The worker that keeps this key in its folder, unless it was deleted.
    pub fn worker_by_instance(&self, instance_key: &str) -> Result<Option<Worker>, StoreError> {
        self.one_worker(
            WORKER_BY_INSTANCE,
            named_params! {":instance_key": instance_key},
        )
    }

    pub fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.first_workers(u32::MAX)
    }

    /// In no order that means anything: those that were deleted cost nothing.
    pub fn live_workers(&self, limit: u32) -> Result<Vec<Worker>, StoreError> {
        self.many_workers(LIVE_WORKERS, named_params! {":limit": limit})
    }

    /// In the order in which they registered.
    pub fn first_workers(&self, limit: u32) -> Result<Vec<Worker>, StoreError> {
        self.workers_after(WorkerId(0), limit)
    }

    pub fn workers_after(&self, after: WorkerId, limit: u32) -> Result<Vec<Worker>, StoreError> {
        let params = named_params! {":after": after.0, ":limit": limit};
        self.many_workers(WORKERS_AFTER, params)
    }

    /// The workers whose tags contain these, in whatever state they are.
    pub fn workers_able_to(
        &self,
        requirement_id: RequirementId,
        limit: u32,
    ) -> Result<Vec<Worker>, StoreError> {
        self.many_workers(
            WORKERS_ABLE_TO,
            named_params! {":requirement_id": requirement_id.0, ":limit": limit},
        )
    }

    pub fn insert_worker(
        &self,
        registration: &Registration,
        now: Now,
    ) -> Result<WorkerId, StoreError> {
        self.sql(INSERT_WORKER)?.execute(named_params! {
            ":instance_key": registration.instance_key,
            ":name": registration.name,
            ":tags": registration.tags.join(" "),
            ":slots": registration.slots,
            ":version": registration.version,
            ":platform": registration.platform,
            ":wall": now.wall.0,
            ":up": now.up.0,
        })?;
        Ok(WorkerId(self.connection.last_insert_rowid()))
    }

    /// Makes the session the worker's current one. Former ones are closed.
    pub fn begin_session(
        &self,
        worker_id: WorkerId,
        registration: &Registration,
        now: Now,
    ) -> Result<SessionId, StoreError> {
        self.note_worker(worker_id);
        self.sql(CLOSE_SESSIONS)?
            .execute(named_params! {":worker_id": worker_id.0, ":wall": now.wall.0})?;
        self.sql(INSERT_SESSION)?.execute(named_params! {
            ":worker_id": worker_id.0,
            ":session_key": registration.session_key,
            ":wall": now.wall.0,
            ":features": registration.features.to_string(),
        })?;
        let session_id = SessionId(self.connection.last_insert_rowid());
        self.sql(UPDATE_WORKER)?.execute(named_params! {
            ":worker_id": worker_id.0,
            ":name": registration.name,
            ":tags": registration.tags.join(" "),
            ":slots": registration.slots,
            ":version": registration.version,
            ":platform": registration.platform,
            ":session_id": session_id.0,
            ":wall": now.wall.0,
            ":up": now.up.0,
        })?;
        Ok(session_id)
    }

    pub fn session(&self, session_key: &str) -> Result<Option<SessionView>, StoreError> {
        let mut statement = self.sql(SESSION)?;
        let mut rows = statement.query(named_params! {":session_key": session_key})?;
        let mut session = rows.next()?.map(rows::session).transpose()?;
        if let Some(session) = &mut session {
            self.add_contact_to_session(session);
        }
        Ok(session)
    }

    /// The session as its rows have it, without the contact that is only in memory.
    pub fn session_as_written(
        &self,
        session_id: SessionId,
    ) -> Result<Option<SessionView>, StoreError> {
        let mut statement = self.sql(SESSION_BY_ID)?;
        let mut rows = statement.query(named_params! {":session_id": session_id.0})?;
        rows.next()?.map(rows::session).transpose()
    }

    /// A sign of life of the current session.
    pub fn worker_speaks(&self, session: &SessionView, now: Now) -> Result<bool, StoreError> {
        let changed = self.sql(WORKER_SPEAKS)?.execute(named_params! {
            ":worker_id": session.worker_id.0,
            ":session_id": session.session_id.0,
            ":wall": now.wall.0,
            ":up": now.up.0,
        })?;
        Ok(changed == 1)
    }

    pub fn heartbeat(&self, session: &SessionView, seq: i64, now: Now) -> Result<bool, StoreError> {
        let changed = self.sql(HEARTBEAT)?.execute(named_params! {
            ":worker_id": session.worker_id.0,
            ":session_id": session.session_id.0,
            ":seq": seq,
            ":wall": now.wall.0,
            ":up": now.up.0,
        })?;
        Ok(changed == 1)
    }

    /// Marks a worker inactive, unless it has spoken since it was read.
    pub fn silence_worker(&self, worker: &Worker, now: Now) -> Result<bool, StoreError> {
        if self.was_heard_after(worker.worker_id, worker.seen_up) {
            return Ok(false);
        }
        self.note_loss(worker.worker_id, now)?;
        let changed = self.sql(SILENCE_WORKER)?.execute(named_params! {
            ":worker_id": worker.worker_id.0,
            ":seen_at": worker.seen_at.0,
            ":seen_up": worker.seen_up.0,
        })?;
        Ok(changed == 1)
    }

    /// Lasts until the worker's next session.
    pub fn drain_worker(&self, worker_id: WorkerId, now: Now) -> Result<bool, StoreError> {
        self.note_worker(worker_id);
        self.note_loss(worker_id, now)?;
        let changed = self
            .sql(DRAIN_WORKER)?
            .execute(named_params! {":worker_id": worker_id.0})?;
        Ok(changed == 1)
    }

    pub fn set_paused(
        &self,
        worker_id: WorkerId,
        paused: bool,
        now: Now,
    ) -> Result<bool, StoreError> {
        self.note_worker(worker_id);
        if paused {
            self.note_loss(worker_id, now)?;
        }
        let changed = self
            .sql(SET_PAUSED)?
            .execute(named_params! {":worker_id": worker_id.0, ":paused": paused})?;
        Ok(changed == 1)
    }

    /// The row stays, for the history that names it; its session and its capabilities end.
    pub fn delete_worker(&self, worker_id: WorkerId, now: Now) -> Result<bool, StoreError> {
        let id = worker_id.0;
        self.note_worker(worker_id);
        self.forget_capabilities(worker_id, now)?;
        let changed = self
            .sql(DELETE_WORKER)?
            .execute(named_params! {":worker_id": id, ":wall": now.wall.0})?;
        self.sql(FORGET_WORKER_AVOIDANCES)?
            .execute(named_params! {":worker_id": id})?;
        self.sql(CLOSE_SESSIONS)?
            .execute(named_params! {":worker_id": id, ":wall": now.wall.0})?;
        Ok(changed == 1)
    }

    pub fn slots_used(&self, session_id: SessionId) -> Result<u32, StoreError> {
        Ok(self
            .sql(SLOTS_USED)?
            .query_row(named_params! {":session_id": session_id.0}, |row| {
                row.get(0)
            })?)
    }

    fn one_worker(
        &self,
        statement: &'static str,
        params: &[(&str, &dyn rusqlite::ToSql)],
    ) -> Result<Option<Worker>, StoreError> {
        let mut statement = self.sql(statement)?;
        let mut rows = statement.query(params)?;
        let mut worker = rows.next()?.map(rows::worker).transpose()?;
        if let Some(worker) = &mut worker {
            self.add_contact_to_worker(worker);
        }
        Ok(worker)
    }

    fn many_workers(
        &self,
        statement: &'static str,
        params: &[(&str, &dyn rusqlite::ToSql)],
    ) -> Result<Vec<Worker>, StoreError> {
        let mut statement = self.sql(statement)?;
        let mut rows = statement.query(params)?;
        let mut workers = Vec::new();
        while let Some(row) = rows.next()? {
            let mut worker = rows::worker(row)?;
            self.add_contact_to_worker(&mut worker);
            workers.push(worker);
        }
        Ok(workers)
    }
}
