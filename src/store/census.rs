//! How much there is that has not ended: counted on the indexes of live rows, so that history costs nothing.

use rusqlite::{Params, named_params};

use super::assignments::wanted;
use super::{StoreError, Tx};
use crate::domain::{RequirementId, Uptime};

pub const STATEMENTS: &[&str] = &[
    OPEN_JOBS,
    CLAIMABLE_STEPS,
    DELAYED_STEPS,
    ASSIGNED_STEPS,
    HELD_STEPS,
    SERVED_STEPS,
    SUSPENDED_STEPS,
    HELD_BACK_INSTANCES,
    PENDING_MESSAGES,
];

/// Steps that are ready for a worker and need the same tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimableSteps {
    pub requirement_id: RequirementId,
    pub steps: u64,
    /// When the oldest of them became ready.
    pub oldest_up: Option<Uptime>,
}

/// Rows that have not ended. What is more than `most` of a kind is not counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenRows {
    pub jobs_pending: u64,
    pub jobs_running: u64,
    /// All steps of these jobs that have not ended.
    pub steps: u64,
    /// Of these, those of jobs that wait for their time, and for a place in their group.
    pub steps_not_before: u64,
    pub steps_concurrency: u64,
    /// Ready for a worker, by what they need.
    pub claimable: Vec<ClaimableSteps>,
    /// Ready, but not before a time: after a try that failed, and for the server itself.
    pub delayed_retries: u64,
    pub delayed_others: u64,
    pub assigned: u64,
    /// Assigned to a worker or running on one.
    pub held: u64,
    pub child_jobs: u64,
    pub loops: u64,
    pub approvals: u64,
    /// Suspended, and no approval.
    pub suspended_others: u64,
    /// Pending because their loop runs as many as it may.
    pub instances: u64,
    pub messages: u64,
}

const OPEN_JOBS: &str = "
    SELECT coalesce(sum(state = 'pending'), 0), coalesce(sum(state = 'running'), 0), coalesce(sum(steps_open), 0),
           coalesce(sum(iif(hold = 'not_before', steps_open, 0)), 0),
           coalesce(sum(iif(hold = 'concurrency', steps_open, 0)), 0)
      FROM (SELECT state, hold, steps_open FROM job WHERE state IN ('pending', 'running') LIMIT :most)
";

const CLAIMABLE_STEPS: &str = concat!(
    wanted!(),
    "
    SELECT d.requirement_id,
           (SELECT count(*)
              FROM (SELECT 1 FROM step AS s
                     WHERE s.state = 'ready' AND s.not_before_up IS NULL AND s.requirement_id = d.requirement_id
                     LIMIT :most)),
           (SELECT min(queued_up)
              FROM (SELECT s.queued_up FROM step AS s
                     WHERE s.state = 'ready' AND s.not_before_up IS NULL AND s.requirement_id = d.requirement_id
                     LIMIT :most))
      FROM wanted AS d
     WHERE d.requirement_id IS NOT NULL
     LIMIT :most"
);

const DELAYED_STEPS: &str = "
    SELECT coalesce(sum(tries > 0), 0), coalesce(sum(tries = 0), 0)
      FROM (SELECT tries FROM step WHERE not_before_up IS NOT NULL LIMIT :most)
";

const ASSIGNED_STEPS: &str = "
    SELECT count(*) FROM (SELECT 1 FROM step WHERE state = 'assigned' AND due_up IS NOT NULL LIMIT :most)
";

const HELD_STEPS: &str = "
    SELECT count(*) FROM (SELECT 1 FROM step WHERE ended_at IS NULL AND session_id IS NOT NULL LIMIT :most)
";

const SERVED_STEPS: &str = "
    SELECT coalesce(sum(kind = 'task'), 0), coalesce(sum(kind = 'loop'), 0)
      FROM (SELECT kind FROM step WHERE state = 'running' AND session_id IS NULL LIMIT :most)
";

const SUSPENDED_STEPS: &str = "
    SELECT coalesce(sum(kind = 'approval'), 0), coalesce(sum(kind <> 'approval'), 0)
      FROM (SELECT kind FROM step WHERE state = 'suspended' LIMIT :most)
";

const HELD_BACK_INSTANCES: &str = "
    SELECT coalesce(sum(item >= 0), 0)
      FROM (SELECT item FROM step WHERE state = 'pending' AND waiting_on = 0 LIMIT :most)
";

const PENDING_MESSAGES: &str = "
    SELECT count(*) FROM (SELECT 1 FROM outbox WHERE state = 'pending' LIMIT :most)
";

impl Tx<'_> {
    /// Counts each kind of open row up to a bound.
    pub fn open_rows(&self, most: u32) -> Result<OpenRows, StoreError> {
        let params = named_params! {":most": most};
        let [
            jobs_pending,
            jobs_running,
            steps,
            steps_not_before,
            steps_concurrency,
        ] = self.counts(OPEN_JOBS, params)?;
        let [delayed_retries, delayed_others] = self.counts(DELAYED_STEPS, params)?;
        let [assigned] = self.counts(ASSIGNED_STEPS, params)?;
        let [held] = self.counts(HELD_STEPS, params)?;
        let [child_jobs, loops] = self.counts(SERVED_STEPS, params)?;
        let [approvals, suspended_others] = self.counts(SUSPENDED_STEPS, params)?;
        let [instances] = self.counts(HELD_BACK_INSTANCES, params)?;
        let [messages] = self.counts(PENDING_MESSAGES, params)?;
        let mut statement = self.sql(CLAIMABLE_STEPS)?;
        let claimable = statement.query_map(params, |row| {
            Ok(ClaimableSteps {
                requirement_id: RequirementId(row.get(0)?),
                steps: row.get::<_, i64>(1)? as u64,
                oldest_up: row.get::<_, Option<i64>>(2)?.map(Uptime),
            })
        })?;
        Ok(OpenRows {
            jobs_pending,
            jobs_running,
            steps,
            steps_not_before,
            steps_concurrency,
            claimable: claimable.collect::<Result<_, _>>()?,
            delayed_retries,
            delayed_others,
            assigned,
            held,
            child_jobs,
            loops,
            approvals,
            suspended_others,
            instances,
            messages,
        })
    }

    fn counts<const N: usize>(
        &self,
        statement: &'static str,
        params: impl Params,
    ) -> Result<[u64; N], StoreError> {
        let counts = self.sql(statement)?.query_row(params, |row| {
            let mut counts = [0; N];
            for (column, count) in counts.iter_mut().enumerate() {
                *count = row.get::<_, i64>(column)? as u64;
            }
            Ok(counts)
        });
        Ok(counts?)
    }
}
