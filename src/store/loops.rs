//! The instances of a `for_each`.

use rusqlite::{OptionalExtension, named_params};

use super::rows::step_columns;
use super::{StoreError, Tx};
use crate::domain::cascade::Instances;
use crate::domain::step::Step;
use crate::domain::{JobId, StepId};

pub const STATEMENTS: &[&str] = &[
    NEXT_INSTANCE,
    INSTANCE_ENDED,
    INSTANCES,
    FIRST_FAILED_INSTANCES,
    CARRIED_INSTANCES,
];

const NEXT_INSTANCE: &str = concat!(
    "SELECT ",
    step_columns!(),
    " FROM step AS s
      WHERE s.job_id = :job_id AND s.position = :position AND s.item >= 0 AND s.state = 'pending' AND s.waiting_on = 0
      ORDER BY s.item
      LIMIT 1"
);

const INSTANCE_ENDED: &str = "
    UPDATE step
       SET waiting_on = waiting_on - 1
     WHERE job_id = :job_id AND position = :position AND item = -1
       AND kind   = 'loop'
       AND state  = 'running'
 RETURNING waiting_on
";

const INSTANCES: &str = "
    SELECT sum(state = 'completed'), sum(state = 'failed'), sum(state = 'cancelled')
      FROM step
     WHERE job_id = :job_id AND position = :position AND item >= 0
";

const FIRST_FAILED_INSTANCES: &str = "
    SELECT item
      FROM step
     WHERE job_id = :job_id AND position = :position AND item >= 0 AND state = 'failed'
     ORDER BY item
     LIMIT 3
";

/// Instances of a former job's loop that need not run again. Bounded by the limit on loop items.
const CARRIED_INSTANCES: &str = concat!(
    "SELECT ",
    step_columns!(),
    " FROM step AS o
      JOIN step AS s ON s.job_id = o.job_id AND s.position = o.position AND s.item >= 0
      WHERE o.step_id = :origin_step_id AND s.state = 'completed'
      ORDER BY s.item"
);

impl Tx<'_> {
    /// The first instance that `max_parallel` still holds back.
    pub fn next_instance(&self, job_id: JobId, position: u32) -> Result<Option<Step>, StoreError> {
        self.one_step(
            NEXT_INSTANCE,
            named_params! {":job_id": job_id.0, ":position": position},
        )
    }

    /// One instance less to wait for; how many are left. `None`: the loop is not running any more.
    pub fn instance_ended(&self, job_id: JobId, position: u32) -> Result<Option<u32>, StoreError> {
        Ok(self
            .sql(INSTANCE_ENDED)?
            .query_row(
                named_params! {":job_id": job_id.0, ":position": position},
                |row| row.get(0),
            )
            .optional()?)
    }

    pub fn instances(&self, job_id: JobId, position: u32) -> Result<Instances, StoreError> {
        Ok(self.sql(INSTANCES)?.query_row(
            named_params! {":job_id": job_id.0, ":position": position},
            |row| {
                Ok(Instances {
                    completed: row.get(0)?,
                    failed: row.get(1)?,
                    cancelled: row.get(2)?,
                })
            },
        )?)
    }

    /// A few of those that failed, for the sentence.
    pub fn first_failed_instances(
        &self,
        job_id: JobId,
        position: u32,
    ) -> Result<Vec<u32>, StoreError> {
        let mut statement = self.sql(FIRST_FAILED_INSTANCES)?;
        let items = statement.query_map(
            named_params! {":job_id": job_id.0, ":position": position},
            |row| row.get(0),
        )?;
        Ok(items.collect::<Result<_, _>>()?)
    }

    /// The completed instances of a former job's loop.
    pub fn carried_instances(&self, origin_step_id: StepId) -> Result<Vec<Step>, StoreError> {
        self.many_steps(
            CARRIED_INSTANCES,
            named_params! {":origin_step_id": origin_step_id.0},
        )
    }
}
