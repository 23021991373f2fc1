//! Steps in a worker's hands: what it may claim, what it was given, what it holds, whom it is passed over for.

use rusqlite::{OptionalExtension, Row, named_params, params};

use super::rows;
use super::steps::after;
use super::{StoreError, Tx};
use crate::domain::step::{StepHead, StepMove, StepState};
use crate::domain::{
    AttemptRef, DefinitionId, JobId, Json, Now, RequirementId, SessionId, StepId, Timestamp,
    Uptime, WorkerId,
};
use crate::metrics::{Assignment, Fact};

pub const STATEMENTS: &[&str] = &[
    DEMAND,
    JOB_PAYLOAD,
    GIVEN,
    AVOIDED_UNTIL,
    NEXT_CLAIM,
    CLAIM_CANDIDATES,
    ASSIGN_STEP,
    START_STEP,
    KEEP_ALIVE,
    HELD_STEPS,
    NOTE_ABSENCE,
    CONFIRM_DELIVERY,
    IS_UNCONFIRMED,
    AVOID,
    FORGET_AVOIDANCES,
];

/// What all assignments of a job's steps have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPayload {
    pub definition_id: DefinitionId,
    pub task_index: u32,
    pub input: Json,
    pub scheduled_for: Option<Timestamp>,
}

/// A step that a worker may be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub step_id: StepId,
    pub attempt: u32,
    pub priority: i32,
    pub queued_up: Uptime,
    pub job_id: JobId,
    pub position: u32,
    pub item: Option<u32>,
    pub item_value: Option<Json>,
}

/// Claimable steps that need the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Tags, and features as a requirement names them.
    pub words: Vec<String>,
    pub steps: u32,
}

/// The first claimable step of the next requirement that has any.
pub struct NextClaim {
    pub requirement_id: RequirementId,
    /// Whether the asking worker has all its tags.
    pub able: bool,
    /// It came back from some worker: whether it is avoided must be looked up.
    pub returned: bool,
    /// Whether a further requirement has claimable steps.
    pub more: bool,
    pub claim: Claim,
}

/// A step in the hands of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub step_id: StepId,
    pub attempt: u32,
    pub state: StepState,
    pub since_up: Uptime,
    pub absent_beats: u32,
    /// The attempt started on delivery, and its worker has not listed it yet: the answer may have been lost.
    pub unconfirmed: bool,
}

impl Held {
    pub fn attempt_ref(&self) -> AttemptRef {
        AttemptRef {
            step_id: self.step_id,
            attempt: self.attempt,
        }
    }
}

/// In the order in which `claim` reads them.
macro_rules! claim_columns {
    () => {
        "s.step_id, s.attempt, s.priority, s.queued_up, s.job_id, s.position, s.item, s.item_value"
    };
}

/// The requirements that claimable steps have, one after the other: it costs as much as they are, however many steps wait.
macro_rules! wanted {
    () => {
        "
    WITH RECURSIVE wanted (requirement_id) AS (
        SELECT min(requirement_id)
          FROM step
         WHERE state = 'ready' AND not_before_up IS NULL AND requirement_id IS NOT NULL
        UNION ALL
        SELECT (SELECT min(s.requirement_id)
                  FROM step AS s
                 WHERE s.state = 'ready' AND s.not_before_up IS NULL AND s.requirement_id > d.requirement_id)
          FROM wanted AS d
         WHERE d.requirement_id IS NOT NULL)"
    };
}
pub(super) use wanted;

const DEMAND: &str = concat!(
    wanted!(),
    "
    SELECT r.tags,
           (SELECT count(*)
              FROM (SELECT 1 FROM step AS s
                     WHERE s.state = 'ready' AND s.not_before_up IS NULL AND s.requirement_id = r.requirement_id
                     LIMIT :steps_max))
      FROM wanted AS d
      CROSS JOIN requirement AS r ON r.requirement_id = d.requirement_id
     LIMIT :limit"
);

const JOB_PAYLOAD: &str = "
    SELECT definition_id, task_index, input, scheduled_for FROM job WHERE job_id = :job_id
";

/// What was given to a session once, for another delivery.
const GIVEN: &str = concat!(
    "SELECT ",
    claim_columns!(),
    " FROM step AS s WHERE s.step_id = :step_id"
);

const CLAIM_COLUMNS: usize = 8;

const NEXT_CLAIM: &str = concat!(
    "SELECT ",
    claim_columns!(),
    ", s.requirement_id, s.returns > 0,
       EXISTS (SELECT 1 FROM capability AS c
                WHERE c.worker_id = :worker_id AND c.requirement_id = s.requirement_id),
       EXISTS (SELECT 1 FROM step AS t
                WHERE t.state = 'ready' AND t.not_before_up IS NULL AND t.requirement_id > s.requirement_id)
       FROM step AS s
      WHERE s.state = 'ready' AND s.not_before_up IS NULL AND s.requirement_id > :after
      ORDER BY s.requirement_id, s.priority DESC, s.queued_up, s.step_id
      LIMIT 1"
);

/// A worker that gave the step back is passed over for a moment, and for longer while another could take it that did not.
const CLAIM_CANDIDATES: &str = concat!(
    "SELECT ",
    claim_columns!(),
    " FROM step AS s
      WHERE s.state = 'ready' AND s.not_before_up IS NULL AND s.requirement_id = :requirement_id
        AND (s.returns = 0 OR NOT EXISTS (
             SELECT 1
               FROM avoidance AS a
              WHERE a.step_id = s.step_id AND a.worker_id = :worker_id
                AND (a.until_up > :moment_up
                     OR (a.until_up > :up AND EXISTS (
                         SELECT 1
                           FROM capability AS c
                           CROSS JOIN worker AS w ON w.worker_id = c.worker_id
                          WHERE c.requirement_id = :requirement_id AND c.worker_id <> :worker_id
                            AND w.state = 'active' AND w.draining = 0 AND w.paused = 0
                            AND NOT EXISTS (SELECT 1 FROM avoidance AS b
                                             WHERE b.step_id = s.step_id AND b.worker_id = c.worker_id
                                               AND b.until_up > :up))))))
      ORDER BY s.priority DESC, s.queued_up, s.step_id
      LIMIT :limit"
);

// The statements of every step's life bind by position: looking names up is a tenth of their cost.

const ASSIGN_STEP: &str = "
    UPDATE step
       SET state = 'assigned', attempt = attempt + 1, worker_id = ?3, session_id = ?4, assigned_at = ?5,
           started_at = NULL, since_up = ?6, due_up = ?7
     WHERE step_id = ?1
       AND state   = 'ready'
       AND attempt = ?2
";

const START_STEP: &str = "
    UPDATE step
       SET state = 'running', started_at = ?4, since_up = ?5, due_up = ?6, tries = tries + 1, returns = 0,
           absent_beats = 0, unconfirmed = ?7
     WHERE step_id    = ?1
       AND state      = 'assigned'
       AND attempt    = ?2
       AND session_id = ?3
";

const KEEP_ALIVE: &str = "
    UPDATE step
       SET due_up = :due_up
     WHERE step_id    = :step_id
       AND state      = 'assigned'
       AND attempt    = :attempt
       AND session_id = :session_id
";

/// At most as many as the worker has slots.
const HELD_STEPS: &str = "
    SELECT step_id, attempt, state, since_up, absent_beats, unconfirmed
      FROM step
     WHERE session_id = :session_id AND ended_at IS NULL
     ORDER BY step_id
";

const NOTE_ABSENCE: &str = "
    UPDATE step
       SET absent_beats = :absent_beats
     WHERE step_id    = :step_id
       AND state      = 'running'
       AND attempt    = :attempt
       AND session_id = :session_id
";

const CONFIRM_DELIVERY: &str = "
    UPDATE step
       SET unconfirmed = 0
     WHERE step_id    = :step_id
       AND state      = 'running'
       AND attempt    = :attempt
       AND session_id = :session_id
";

const IS_UNCONFIRMED: &str = "
    SELECT unconfirmed FROM step WHERE step_id = :step_id AND attempt = :attempt AND state = 'running'
";

const AVOID: &str = "
    INSERT INTO avoidance (step_id, worker_id, until_up) VALUES (:step_id, :worker_id, :until_up)
    ON CONFLICT (step_id, worker_id) DO UPDATE SET until_up = excluded.until_up
";

const AVOIDED_UNTIL: &str = "
    SELECT until_up FROM avoidance WHERE step_id = :step_id AND worker_id = :worker_id
";

const FORGET_AVOIDANCES: &str = "
    DELETE FROM avoidance WHERE step_id = :step_id
";

fn claim(row: &Row) -> rusqlite::Result<Claim> {
    Ok(Claim {
        step_id: StepId(row.get(0)?),
        attempt: row.get(1)?,
        priority: row.get(2)?,
        queued_up: Uptime(row.get(3)?),
        job_id: JobId(row.get(4)?),
        position: row.get(5)?,
        item: u32::try_from(row.get::<_, i64>(6)?).ok(),
        item_value: row.get::<_, Option<String>>(7)?.map(Json),
    })
}

impl Tx<'_> {
    /// What claimable steps need, and how many there are of each kind, counted up to a bound.
    pub fn demand(&self, steps_max: u32, limit: u32) -> Result<Vec<Demand>, StoreError> {
        let mut statement = self.sql(DEMAND)?;
        let params = named_params! {":steps_max": steps_max, ":limit": limit};
        let demands = statement.query_map(params, |row| {
            let tags: String = row.get(0)?;
            Ok(Demand {
                words: tags.split_whitespace().map(str::to_string).collect(),
                steps: row.get(1)?,
            })
        })?;
        Ok(demands.collect::<Result<_, _>>()?)
    }

    pub fn job_payload(&self, job_id: JobId) -> Result<JobPayload, StoreError> {
        let mut statement = self.sql(JOB_PAYLOAD)?;
        Ok(
            statement.query_row(named_params! {":job_id": job_id.0}, |row| {
                Ok(JobPayload {
                    definition_id: DefinitionId(row.get(0)?),
                    task_index: row.get(1)?,
                    input: Json(row.get(2)?),
                    scheduled_for: row.get::<_, Option<i64>>(3)?.map(Timestamp),
                })
            })?,
        )
    }

    /// A step that was given to a worker, to be given again.
    pub fn given(&self, step_id: StepId) -> Result<Claim, StoreError> {
        Ok(self
            .sql(GIVEN)?
            .query_row(named_params! {":step_id": step_id.0}, claim)?)
    }

    /// The first claimable step of the next requirement, in order of id, that has any.
    pub fn next_claim(
        &self,
        after: RequirementId,
        worker_id: WorkerId,
    ) -> Result<Option<NextClaim>, StoreError> {
        Ok(self
            .sql(NEXT_CLAIM)?
            .query_row(
                named_params! {":after": after.0, ":worker_id": worker_id.0},
                |row| {
                    Ok(NextClaim {
                        claim: claim(row)?,
                        requirement_id: RequirementId(row.get(CLAIM_COLUMNS)?),
                        returned: row.get(CLAIM_COLUMNS + 1)?,
                        able: row.get(CLAIM_COLUMNS + 2)?,
                        more: row.get(CLAIM_COLUMNS + 3)?,
                    })
                },
            )
            .optional()?)
    }

    /// What this worker could be given of one requirement, best first. That it has the tags is known; avoidances that end
    /// after `moment_up` are fresh.
    pub fn claim_candidates(
        &self,
        requirement_id: RequirementId,
        worker_id: WorkerId,
        moment_up: Uptime,
        limit: u32,
        now: Now,
    ) -> Result<Vec<Claim>, StoreError> {
        let mut statement = self.sql(CLAIM_CANDIDATES)?;
        let claims = statement.query_map(
            named_params! {
                ":requirement_id": requirement_id.0,
                ":worker_id": worker_id.0,
                ":moment_up": moment_up.0,
                ":up": now.up.0,
                ":limit": limit,
            },
            claim,
        )?;
        Ok(claims.collect::<Result<_, _>>()?)
    }

    /// Gives a session what it may claim, all at once; `false` if one of them was not ready.
    pub fn assign_steps(
        &self,
        claims: &[Claim],
        worker_id: WorkerId,
        session_id: SessionId,
        due_up: Uptime,
        now: Now,
    ) -> Result<bool, StoreError> {
        let mut statement = self.sql_repeated(ASSIGN_STEP)?;
        for claim in claims {
            let changed = statement.execute(params![
                claim.step_id.0,
                claim.attempt,
                worker_id.0,
                session_id.0,
                now.wall.0,
                now.up.0,
                due_up.0,
            ])?;
            if changed == 0 {
                return Ok(false);
            }
            self.note(Fact::Assignment(Assignment::Assigned));
            self.touch_job(claim.job_id);
        }
        Ok(true)
    }

    /// A session runs what it was assigned, each until its time is up; `false` if one was not where it was read any more.
    /// `unconfirmed`: they start because they are delivered, and not because their worker said so.
    pub fn start_steps(
        &self,
        steps: &[(StepHead, Uptime)],
        unconfirmed: bool,
        now: Now,
    ) -> Result<bool, StoreError> {
        let mut statement = self.sql_repeated(START_STEP)?;
        for (step, due_up) in steps {
            assert_eq!(after(step, StepMove::Start), StepState::Running);
            let changed = statement.execute(params![
                step.step_id.0,
                step.attempt,
                step.session_id.map(|id| id.0),
                now.wall.0,
                now.up.0,
                due_up.0,
                unconfirmed,
            ])?;
            if changed == 0 {
                return Ok(false);
            }
            self.note(Fact::Assignment(Assignment::Started));
            if let (0, Some(queued_up)) = (step.tries, step.queued_up) {
                let ms = now.up.0 - queued_up.0;
                self.note(Fact::StepWaited { ms });
            }
            self.touch_job(step.job_id);
        }
        Ok(true)
    }

    /// Moves the acknowledgement deadline of an assigned step.
    pub fn keep_alive(
        &self,
        step_id: StepId,
        attempt: u32,
        session_id: SessionId,
        due_up: Uptime,
    ) -> Result<bool, StoreError> {
        let changed = self.sql(KEEP_ALIVE)?.execute(named_params! {
            ":step_id": step_id.0,
            ":attempt": attempt,
            ":session_id": session_id.0,
            ":due_up": due_up.0,
        })?;
        Ok(changed == 1)
    }

    /// What the server believes to be in the hands of a session.
    pub fn held_steps(&self, session_id: SessionId) -> Result<Vec<Held>, StoreError> {
        let mut statement = self.sql(HELD_STEPS)?;
        let mut rows = statement.query(named_params! {":session_id": session_id.0})?;
        let mut held = Vec::new();
        while let Some(row) = rows.next()? {
            held.push(rows::held(row)?);
        }
        Ok(held)
    }

    /// The worker has listed an attempt that started on delivery: the answer that delivered it was not lost.
    pub fn confirm_delivery(&self, held: &Held, session_id: SessionId) -> Result<(), StoreError> {
        self.sql(CONFIRM_DELIVERY)?.execute(named_params! {
            ":step_id": held.step_id.0,
            ":attempt": held.attempt,
            ":session_id": session_id.0,
        })?;
        Ok(())
    }

    /// Whether an attempt started on delivery and has not been listed by its worker since.
    pub fn is_unconfirmed(&self, attempt: AttemptRef) -> Result<bool, StoreError> {
        let params = named_params! {":step_id": attempt.step_id.0, ":attempt": attempt.attempt};
        let found: Option<bool> = self
            .sql(IS_UNCONFIRMED)?
            .query_row(params, |row| row.get(0))
            .optional()?;
        Ok(found.unwrap_or(false))
    }

    /// Notes for how many heartbeats in a row a running step was not mentioned.
    pub fn note_absence(
        &self,
        held: &Held,
        session_id: SessionId,
        absent_beats: u32,
    ) -> Result<bool, StoreError> {
        let changed = self.sql(NOTE_ABSENCE)?.execute(named_params! {
            ":step_id": held.step_id.0,
            ":attempt": held.attempt,
            ":session_id": session_id.0,
            ":absent_beats": absent_beats,
        })?;
        Ok(changed == 1)
    }

    /// Passes a worker over for a step until the given time.
    pub fn avoid(
        &self,
        step_id: StepId,
        worker_id: WorkerId,
        until_up: Uptime,
    ) -> Result<(), StoreError> {
        self.sql(AVOID)?.execute(named_params! {
            ":step_id": step_id.0,
            ":worker_id": worker_id.0,
            ":until_up": until_up.0,
        })?;
        Ok(())
    }

    /// Until when a worker is passed over for a step, if it ever gave it back.
    pub fn avoided_until(
        &self,
        step_id: StepId,
        worker_id: WorkerId,
    ) -> Result<Option<Uptime>, StoreError> {
        let params = named_params! {":step_id": step_id.0, ":worker_id": worker_id.0};
        let until: Option<i64> = self
            .sql(AVOIDED_UNTIL)?
            .query_row(params, |row| row.get(0))
            .optional()?;
        Ok(until.map(Uptime))
    }

    pub fn forget_avoidances(&self, step_id: StepId) -> Result<(), StoreError> {
        self.sql(FORGET_AVOIDANCES)?
            .execute(named_params! {":step_id": step_id.0})?;
        Ok(())
    }
}
