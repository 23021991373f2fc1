//! Schedules, and the ledger of what became of each instant at which one was due.

use rusqlite::{OptionalExtension, Row, named_params};

use super::rows::{self, word};
use super::{StoreError, Tx};
use crate::domain::limits::{self, clip};
use crate::domain::presence::{ClockBehind, ClockReading, Presence};
use crate::domain::schedule::{CatchUp, Fire, FireOutcome, Overlap, Schedule, ScheduleDraft};
use crate::domain::{JobId, Json, Now, ScheduleId, Timestamp, Uptime};
use crate::metrics::Fact;

pub const STATEMENTS: &[&str] = &[
    INSERT_SCHEDULE,
    UPDATE_SCHEDULE,
    REMOVE_SCHEDULE,
    LOSE_SCHEDULE,
    PAUSE_SCHEDULE,
    MOVE_NEXT,
    SET_TIMES,
    MOVE_BACKLOG,
    SCHEDULE,
    SCHEDULE_NAMED,
    ALL_SCHEDULES,
    SCHEDULES_AFTER,
    DUE_SCHEDULES,
    RELEASED_SCHEDULES,
    BACKLOG_SCHEDULES,
    EARLIEST_LOOK,
    PRESENCE,
    SAVE_PRESENCE,
    INSERT_FIRE,
    HAS_FIRE,
    WITHDRAW_FIRES,
    QUEUED_FIRE,
    RELEASED_FIRES,
    SETTLE_QUEUED,
    LAST_FIRE,
    FIRES_BEFORE,
    LIVE_JOBS_OF_SCHEDULE,
];

macro_rules! schedule_columns {
    () => {
        "c.schedule_id, c.task, c.name, c.cron, c.timezone, c.input, c.overlap, c.catch_up, c.catch_up_limit, c.enabled,
         c.paused, c.loaded, c.next_at, c.look_at, c.created_at, c.removed_at, c.away_from, c.away_until"
    };
}

macro_rules! fire_columns {
    () => {
        "f.schedule_id, f.due_at, f.manual, f.outcome, f.job_id, f.until_at, f.at, f.message"
    };
}

const INSERT_SCHEDULE: &str = "
    INSERT INTO schedule (task, name, cron, timezone, input, overlap, catch_up, catch_up_limit, enabled, next_at, look_at,
                          created_at)
    VALUES (:task, :name, :cron, :timezone, :input, :overlap, :catch_up, :catch_up_limit, :enabled, :next_at, :next_at,
            :wall)
";

const UPDATE_SCHEDULE: &str = "
    UPDATE schedule
       SET cron = :cron, timezone = :timezone, input = :input, overlap = :overlap, catch_up = :catch_up,
           catch_up_limit = :catch_up_limit, enabled = :enabled, loaded = 1, next_at = :next_at, look_at = :next_at,
           removed_at = NULL, away_from = iif(:begins_anew, NULL, away_from), away_until = iif(:begins_anew, NULL, away_until)
     WHERE schedule_id = :schedule_id
";

const REMOVE_SCHEDULE: &str = "
    UPDATE schedule
       SET next_at = NULL, look_at = NULL, loaded = 0, removed_at = :wall, away_from = NULL, away_until = NULL
     WHERE schedule_id = :schedule_id
       AND removed_at IS NULL
";

const LOSE_SCHEDULE: &str = "
    UPDATE schedule
       SET loaded = 0
     WHERE schedule_id = :schedule_id
       AND loaded      = 1
";

const PAUSE_SCHEDULE: &str = "
    UPDATE schedule
       SET paused = :paused, look_at = next_at
     WHERE schedule_id = :schedule_id
       AND paused <> :paused
";

const MOVE_NEXT: &str = "
    UPDATE schedule
       SET next_at = :next_at, look_at = :look_at
     WHERE schedule_id = :schedule_id
       AND next_at     = :was
       AND removed_at IS NULL
";

const SET_TIMES: &str = "
    UPDATE schedule
       SET next_at = :next_at, look_at = :next_at, away_from = :away_from, away_until = :away_until
     WHERE schedule_id = :schedule_id
       AND removed_at IS NULL
";

const MOVE_BACKLOG: &str = "
    UPDATE schedule
       SET away_from = :away_from, away_until = iif(:away_from IS NULL, NULL, away_until)
     WHERE schedule_id = :schedule_id
       AND away_from   = :was
       AND away_until IS NOT NULL
";

const SCHEDULE: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedule AS c WHERE c.schedule_id = :schedule_id"
);

const SCHEDULE_NAMED: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedule AS c WHERE c.task = :task AND c.name = :name"
);

/// As many as all files ever had; read when they are loaded.
const ALL_SCHEDULES: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedule AS c WHERE c.schedule_id > 0 ORDER BY c.schedule_id"
);

const SCHEDULES_AFTER: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedule AS c
      WHERE c.schedule_id > :after AND c.removed_at IS NULL
      ORDER BY c.schedule_id
      LIMIT :limit"
);

const DUE_SCHEDULES: &str = "
    SELECT schedule_id
      FROM schedule
     WHERE look_at <= :wall
       AND loaded = 1
     ORDER BY look_at, schedule_id
     LIMIT :limit
";

/// What is to be made up for waited for a job that has ended.
const RELEASED_SCHEDULES: &str = "
    SELECT c.schedule_id
      FROM schedule AS c
     WHERE c.look_at IS NOT c.next_at
       AND c.loaded = 1
       AND NOT EXISTS (SELECT 1 FROM job AS j WHERE j.schedule_id = c.schedule_id AND j.ended_at IS NULL)
     ORDER BY c.schedule_id
     LIMIT :limit
";

/// One that is made up for one after another waits for the job of an earlier fire, unless it makes no jobs.
const BACKLOG_SCHEDULES: &str = "
    SELECT c.schedule_id
      FROM schedule AS c
     WHERE c.away_until IS NOT NULL
       AND c.loaded = 1
       AND (c.catch_up <> 'all' OR c.overlap = 'allow' OR c.overlap = 'cancel_previous' OR c.paused = 1 OR c.enabled = 0
            OR NOT EXISTS (SELECT 1 FROM job AS j WHERE j.schedule_id = c.schedule_id AND j.ended_at IS NULL))
     ORDER BY c.schedule_id
     LIMIT :limit
";

const PRESENCE: &str = "
    SELECT boot_id, boot_ms, wall_at, up, behind_at, behind_since_ms FROM presence WHERE only_row = 1
";

const SAVE_PRESENCE: &str = "
    INSERT INTO presence (only_row, boot_id, boot_ms, wall_at, up, behind_at, behind_since_ms)
    VALUES (1, :boot_id, :boot_ms, :wall, :up, :behind_at, :behind_since_ms)
    ON CONFLICT (only_row) DO UPDATE
       SET boot_id = excluded.boot_id, boot_ms = excluded.boot_ms, wall_at = excluded.wall_at, up = excluded.up,
           behind_at = excluded.behind_at, behind_since_ms = excluded.behind_since_ms
";

const EARLIEST_LOOK: &str = "
    SELECT min(look_at) FROM schedule WHERE look_at IS NOT NULL AND loaded = 1
";

const INSERT_FIRE: &str = "
    INSERT INTO schedule_fire (schedule_id, due_at, manual, outcome, job_id, until_at, at, message)
    VALUES (:schedule_id, :due_at, :manual, :outcome, :job_id, :until_at, :wall, :message)
";

const HAS_FIRE: &str = "
    SELECT EXISTS (
        SELECT 1 FROM schedule_fire WHERE schedule_id = :schedule_id AND due_at = :due_at AND manual = :manual)
";

const WITHDRAW_FIRES: &str = "
    DELETE FROM schedule_fire
     WHERE schedule_id = :schedule_id
       AND at          > :wall
       AND job_id IS NULL
       AND outcome <> 'queued'
";

const QUEUED_FIRE: &str = concat!(
    "SELECT ",
    fire_columns!(),
    " FROM schedule_fire AS f WHERE f.schedule_id = :schedule_id AND f.outcome = 'queued'"
);

/// What waited for a job that has ended.
const RELEASED_FIRES: &str = "
    SELECT f.schedule_id
      FROM schedule_fire AS f JOIN schedule AS c ON c.schedule_id = f.schedule_id
     WHERE f.outcome = 'queued'
       AND c.loaded = 1
       AND NOT EXISTS (SELECT 1 FROM job AS j WHERE j.schedule_id = f.schedule_id AND j.ended_at IS NULL)
     ORDER BY f.schedule_id
     LIMIT :limit
";

const SETTLE_QUEUED: &str = "
    UPDATE schedule_fire
       SET outcome = :outcome, job_id = :job_id, at = :wall, message = :message
     WHERE schedule_id = :schedule_id
       AND due_at      = :due_at
       AND manual      = 0
       AND outcome     = 'queued'
";

const LAST_FIRE: &str = concat!(
    "SELECT ",
    fire_columns!(),
    " FROM schedule_fire AS f
      WHERE f.schedule_id = :schedule_id
      ORDER BY f.due_at DESC, f.manual DESC
      LIMIT 1"
);

const FIRES_BEFORE: &str = concat!(
    "SELECT ",
    fire_columns!(),
    " FROM schedule_fire AS f
      WHERE f.schedule_id = :schedule_id AND (f.due_at, f.manual) < (:due_at, :manual)
      ORDER BY f.due_at DESC, f.manual DESC
      LIMIT :limit"
);

/// Bounded by its `overlap`, or by what the person who chose `allow` lets run.
const LIVE_JOBS_OF_SCHEDULE: &str = "
    SELECT job_id FROM job WHERE schedule_id = :schedule_id AND ended_at IS NULL ORDER BY job_id LIMIT :limit
";

/// `allow` may leave any number of jobs; nobody needs to know more of them.
const LIVE_JOBS_MAX: u32 = 1_000;

impl Tx<'_> {
    pub fn insert_schedule(
        &self,
        draft: &ScheduleDraft,
        next_at: Option<Timestamp>,
        now: Now,
    ) -> Result<ScheduleId, StoreError> {
        self.sql(INSERT_SCHEDULE)?.execute(named_params! {
            ":task": draft.task,
            ":name": draft.name,
            ":cron": draft.cron,
            ":timezone": draft.timezone,
            ":input": draft.input.0,
            ":overlap": draft.overlap.as_str(),
            ":catch_up": draft.catch_up.as_str(),
            ":catch_up_limit": catch_up_limit(draft.catch_up),
            ":enabled": draft.enabled,
            ":next_at": next_at.map(|at| at.0),
            ":wall": now.wall.0,
        })?;
        Ok(ScheduleId(self.connection.last_insert_rowid()))
    }

    /// As its file has it now. Whether a person paused it is left as it is. One that begins anew has no backlog.
    pub fn update_schedule(
        &self,
        schedule_id: ScheduleId,
        draft: &ScheduleDraft,
        next_at: Option<Timestamp>,
        begins_anew: bool,
    ) -> Result<(), StoreError> {
        self.sql(UPDATE_SCHEDULE)?.execute(named_params! {
            ":schedule_id": schedule_id.0,
            ":cron": draft.cron,
            ":timezone": draft.timezone,
            ":input": draft.input.0,
            ":overlap": draft.overlap.as_str(),
            ":catch_up": draft.catch_up.as_str(),
            ":catch_up_limit": catch_up_limit(draft.catch_up),
            ":enabled": draft.enabled,
            ":next_at": next_at.map(|at| at.0),
            ":begins_anew": begins_anew,
        })?;
        Ok(())
    }

    pub fn remove_schedule(&self, schedule_id: ScheduleId, now: Now) -> Result<(), StoreError> {
        self.sql(REMOVE_SCHEDULE)?
            .execute(named_params! {":schedule_id": schedule_id.0, ":wall": now.wall.0})?;
        Ok(())
    }

    /// Its file does not load: it is neither there nor gone.
    pub fn lose_schedule(&self, schedule_id: ScheduleId) -> Result<(), StoreError> {
        let params = named_params! {":schedule_id": schedule_id.0};
        self.sql(LOSE_SCHEDULE)?.execute(params)?;
        Ok(())
    }

    /// `false`: it was so already. What waited to be made up for is looked at again.
    pub fn pause_schedule(
        &self,
        schedule_id: ScheduleId,
        paused: bool,
    ) -> Result<bool, StoreError> {
        let params = named_params! {":schedule_id": schedule_id.0, ":paused": paused};
        Ok(self.sql(PAUSE_SCHEDULE)?.execute(params)? == 1)
    }

    /// `false`: somebody else moved it first.
    pub fn move_next(
        &self,
        schedule_id: ScheduleId,
        was: Timestamp,
        next_at: Option<Timestamp>,
        look_at: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let moved = self.sql(MOVE_NEXT)?.execute(named_params! {
            ":schedule_id": schedule_id.0,
            ":was": was.0,
            ":next_at": next_at.map(|at| at.0),
            ":look_at": look_at.map(|at| at.0),
        })?;
        Ok(moved == 1)
    }

    /// After the clock was set: its next time, and its backlog.
    pub fn set_times(
        &self,
        schedule_id: ScheduleId,
        next_at: Option<Timestamp>,
        away_from: Option<Timestamp>,
        away_until: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        self.sql(SET_TIMES)?.execute(named_params! {
            ":schedule_id": schedule_id.0,
            ":next_at": next_at.map(|at| at.0),
            ":away_from": away_from.map(|at| at.0),
            ":away_until": away_until.map(|at| at.0),
        })?;
        Ok(())
    }

    /// The backlog begins later now. `None`: it is dealt with. Returns false if somebody else moved it first.
    pub fn move_backlog(
        &self,
        schedule_id: ScheduleId,
        was: Timestamp,
        away_from: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let moved = self.sql(MOVE_BACKLOG)?.execute(named_params! {
            ":schedule_id": schedule_id.0,
            ":was": was.0,
            ":away_from": away_from.map(|at| at.0),
        })?;
        Ok(moved == 1)
    }

    /// The last reading of the clocks that was saved. `None`: no scheduler has run on this database.
    pub fn presence(&self) -> Result<Option<Presence>, StoreError> {
        let mut statement = self.sql(PRESENCE)?;
        let found = statement.query_row([], |row| {
            let reading = ClockReading {
                boot_id: row.get(0)?,
                boot_ms: row.get(1)?,
                wall: Timestamp(row.get(2)?),
                up: Uptime(row.get(3)?),
            };
            let behind_at: Option<i64> = row.get(4)?;
            let behind_since_ms: Option<i64> = row.get(5)?;
            let behind = behind_at.zip(behind_since_ms);
            let behind = behind.map(|(last_wall, since_ms)| ClockBehind {
                last_wall: Timestamp(last_wall),
                since_ms,
            });
            Ok(Presence::saved(reading, behind))
        });
        Ok(found.optional()?)
    }

    pub fn save_presence(&self, presence: &Presence) -> Result<(), StoreError> {
        let Presence {
            reading, behind, ..
        } = presence;
        self.sql(SAVE_PRESENCE)?.execute(named_params! {
            ":boot_id": reading.boot_id,
            ":boot_ms": reading.boot_ms,
            ":wall": reading.wall.0,
            ":up": reading.up.0,
            ":behind_at": behind.map(|behind| behind.last_wall.0),
            ":behind_since_ms": behind.map(|behind| behind.since_ms),
        })?;
        Ok(())
    }

    pub fn schedule(&self, schedule_id: ScheduleId) -> Result<Option<Schedule>, StoreError> {
        let params = named_params! {":schedule_id": schedule_id.0};
        Ok(self.many_schedules(SCHEDULE, params)?.pop())
    }

    pub fn schedule_named(&self, task: &str, name: &str) -> Result<Option<Schedule>, StoreError> {
        let params = named_params! {":task": task, ":name": name};
        Ok(self.many_schedules(SCHEDULE_NAMED, params)?.pop())
    }

    /// Those that are gone as well.
    pub fn all_schedules(&self) -> Result<Vec<Schedule>, StoreError> {
        self.many_schedules(ALL_SCHEDULES, &[])
    }

    pub fn schedules_after(
        &self,
        after: ScheduleId,
        limit: u32,
    ) -> Result<Vec<Schedule>, StoreError> {
        let params = named_params! {":after": after.0, ":limit": limit};
        self.many_schedules(SCHEDULES_AFTER, params)
    }

    pub fn due_schedules(&self, now: Now, limit: u32) -> Result<Vec<ScheduleId>, StoreError> {
        let mut statement = self.sql(DUE_SCHEDULES)?;
        let params = named_params! {":wall": now.wall.0, ":limit": limit};
        let due = statement.query_map(params, |row| row.get(0).map(ScheduleId))?;
        Ok(due.collect::<Result<_, _>>()?)
    }

    /// Whose next instant waits for nothing any more.
    pub fn released_schedules(&self, limit: u32) -> Result<Vec<ScheduleId>, StoreError> {
        let mut statement = self.sql(RELEASED_SCHEDULES)?;
        let params = named_params! {":limit": limit};
        let released = statement.query_map(params, |row| row.get(0).map(ScheduleId))?;
        Ok(released.collect::<Result<_, _>>()?)
    }

    /// Returns the schedules whose backlog can be worked on now.
    pub fn backlog_schedules(&self, limit: u32) -> Result<Vec<ScheduleId>, StoreError> {
        let mut statement = self.sql(BACKLOG_SCHEDULES)?;
        let params = named_params! {":limit": limit};
        let found = statement.query_map(params, |row| row.get(0).map(ScheduleId))?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// When something is to be done for one of them all.
    pub fn earliest_look(&self) -> Result<Option<Timestamp>, StoreError> {
        let mut statement = self.sql(EARLIEST_LOOK)?;
        let next: Option<i64> = statement.query_row([], |row| row.get(0))?;
        Ok(next.map(Timestamp))
    }

    pub fn insert_fire(&self, fire: &Fire) -> Result<(), StoreError> {
        self.sql(INSERT_FIRE)?.execute(named_params! {
            ":schedule_id": fire.schedule_id.0,
            ":due_at": fire.due_at.0,
            ":manual": fire.manual,
            ":outcome": fire.outcome.as_str(),
            ":job_id": fire.job_id.map(|job_id| job_id.0),
            ":until_at": fire.until_at.map(|at| at.0),
            ":wall": fire.at.0,
            ":message": clip(&fire.message, limits::MESSAGE_BYTES_MAX),
        })?;
        self.note(Fact::Fired(fire.outcome));
        Ok(())
    }

    /// Does the ledger have this instant?
    pub fn has_fire(
        &self,
        schedule_id: ScheduleId,
        due_at: Timestamp,
        manual: bool,
    ) -> Result<bool, StoreError> {
        let params = named_params! {
            ":schedule_id": schedule_id.0,
            ":due_at": due_at.0,
            ":manual": manual,
        };
        Ok(self.sql(HAS_FIRE)?.query_row(params, |row| row.get(0))?)
    }

    /// Removes the rows without a job that were written later than now: the clock was ahead, and their instants come again. A
    /// fire that is queued stays: it waits for a job and not for a time.
    pub fn withdraw_fires(&self, schedule_id: ScheduleId, now: Now) -> Result<(), StoreError> {
        let params = named_params! {":schedule_id": schedule_id.0, ":wall": now.wall.0};
        self.sql(WITHDRAW_FIRES)?.execute(params)?;
        Ok(())
    }

    /// The one that waits for the job of an earlier one.
    pub fn queued_fire(&self, schedule_id: ScheduleId) -> Result<Option<Fire>, StoreError> {
        let params = named_params! {":schedule_id": schedule_id.0};
        self.one_fire(QUEUED_FIRE, params)
    }

    /// Whose queued fire waits for nothing any more.
    pub fn released_fires(&self, limit: u32) -> Result<Vec<ScheduleId>, StoreError> {
        let mut statement = self.sql(RELEASED_FIRES)?;
        let params = named_params! {":limit": limit};
        let released = statement.query_map(params, |row| row.get(0).map(ScheduleId))?;
        Ok(released.collect::<Result<_, _>>()?)
    }

    /// What became of the one that waited. `false`: it does not wait any more.
    pub fn settle_queued(
        &self,
        queued: &Fire,
        outcome: FireOutcome,
        job_id: Option<JobId>,
        message: &str,
        now: Now,
    ) -> Result<bool, StoreError> {
        let settled = self.sql(SETTLE_QUEUED)?.execute(named_params! {
            ":schedule_id": queued.schedule_id.0,
            ":due_at": queued.due_at.0,
            ":outcome": outcome.as_str(),
            ":job_id": job_id.map(|job_id| job_id.0),
            ":wall": now.wall.0,
            ":message": clip(message, limits::MESSAGE_BYTES_MAX),
        })?;
        if settled == 1 {
            self.note(Fact::Fired(outcome));
        }
        Ok(settled == 1)
    }

    pub fn last_fire(&self, schedule_id: ScheduleId) -> Result<Option<Fire>, StoreError> {
        self.one_fire(LAST_FIRE, named_params! {":schedule_id": schedule_id.0})
    }

    /// The newest first, from before this one on.
    pub fn fires_before(
        &self,
        schedule_id: ScheduleId,
        before: (Timestamp, bool),
        limit: u32,
    ) -> Result<Vec<Fire>, StoreError> {
        let mut statement = self.sql(FIRES_BEFORE)?;
        let mut rows = statement.query(named_params! {
            ":schedule_id": schedule_id.0,
            ":due_at": before.0.0,
            ":manual": before.1,
            ":limit": limit,
        })?;
        let mut fires = Vec::new();
        while let Some(row) = rows.next()? {
            fires.push(fire(row)?);
        }
        Ok(fires)
    }

    /// Its jobs that have not ended, the oldest first.
    pub fn live_jobs_of_schedule(&self, schedule_id: ScheduleId) -> Result<Vec<JobId>, StoreError> {
        let mut statement = self.sql(LIVE_JOBS_OF_SCHEDULE)?;
        let params = named_params! {":schedule_id": schedule_id.0, ":limit": LIVE_JOBS_MAX};
        let jobs = statement.query_map(params, |row| row.get(0).map(JobId))?;
        Ok(jobs.collect::<Result<_, _>>()?)
    }

    fn many_schedules(
        &self,
        statement: &'static str,
        params: &[(&str, &dyn rusqlite::ToSql)],
    ) -> Result<Vec<Schedule>, StoreError> {
        let mut statement = self.sql(statement)?;
        let mut rows = statement.query(params)?;
        let mut schedules = Vec::new();
        while let Some(row) = rows.next()? {
            schedules.push(schedule(row)?);
        }
        Ok(schedules)
    }

    fn one_fire(
        &self,
        statement: &'static str,
        params: &[(&str, &dyn rusqlite::ToSql)],
    ) -> Result<Option<Fire>, StoreError> {
        let mut statement = self.sql(statement)?;
        let found = statement
            .query_row(params, |row| Ok(fire(row)))
            .optional()?;
        found.transpose()
    }
}

fn catch_up_limit(catch_up: CatchUp) -> Option<i64> {
    match catch_up {
        CatchUp::None => None,
        CatchUp::Latest { within_ms } => Some(within_ms),
        CatchUp::All { max } => Some(max.into()),
    }
}

fn schedule(row: &Row) -> Result<Schedule, StoreError> {
    Ok(Schedule {
        schedule_id: ScheduleId(row.get(0)?),
        draft: ScheduleDraft {
            task: row.get(1)?,
            name: row.get(2)?,
            cron: row.get(3)?,
            timezone: row.get(4)?,
            input: Json(row.get(5)?),
            overlap: word(
                row,
                6,
                Overlap::from_word,
                "what a fire does that finds a job",
            )?,
            catch_up: catch_up(row)?,
            enabled: row.get(9)?,
        },
        paused: row.get(10)?,
        loaded: row.get(11)?,
        next_at: rows::id(row, 12, Timestamp)?,
        look_at: rows::id(row, 13, Timestamp)?,
        created_at: Timestamp(row.get(14)?),
        removed_at: rows::id(row, 15, Timestamp)?,
        away_from: rows::id(row, 16, Timestamp)?,
        away_until: rows::id(row, 17, Timestamp)?,
    })
}

fn catch_up(row: &Row) -> Result<CatchUp, StoreError> {
    let policy: String = row.get(7)?;
    let limit: Option<i64> = row.get(8)?;
    match (policy.as_str(), limit) {
        ("none", None) => Ok(CatchUp::None),
        ("latest", Some(within_ms)) => Ok(CatchUp::Latest { within_ms }),
        ("all", Some(max)) => Ok(CatchUp::All {
            max: u32::try_from(max).unwrap_or(u32::MAX),
        }),
        _ => Err(StoreError::Unreadable {
            expected: "what becomes of late fires",
            found: policy,
        }),
    }
}

fn fire(row: &Row) -> Result<Fire, StoreError> {
    Ok(Fire {
        schedule_id: ScheduleId(row.get(0)?),
        due_at: Timestamp(row.get(1)?),
        manual: row.get(2)?,
        outcome: word(row, 3, FireOutcome::from_word, "what became of a fire")?,
        job_id: rows::id(row, 4, JobId)?,
        until_at: rows::id(row, 5, Timestamp)?,
        at: Timestamp(row.get(6)?),
        message: row.get(7)?,
    })
}
