//! What waits, page by page. Each page costs what it holds, however much waits.
//!
//! There are four lines: for a worker, for a person, for the time of a next try, for a turn (a place in a group, the job's own
//! time, `max_parallel`). Each has an index of its own, so a page goes through one line after the other.

use rusqlite::params;

use super::{StoreError, Tx};
use crate::domain::StepId;

pub const STATEMENTS: &[&str] = &[
    EQUALLY_OLD,
    EQUALLY_URGENT,
    LESS_URGENT,
    OF_THE_NEXT_KIND,
    FOR_A_PERSON,
    FOR_THE_SAME_MOMENT,
    FOR_A_LATER_MOMENT,
    FOR_THEIR_TURN,
];

/// Where in the queue a page ended: the line, and the order within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePlace {
    pub line: usize,
    pub key: [i64; 4],
}

/// In the order in which the queue is told.
const LINES: [&[&str]; 4] = [
    &[EQUALLY_OLD, EQUALLY_URGENT, LESS_URGENT, OF_THE_NEXT_KIND],
    &[FOR_A_PERSON],
    &[FOR_THE_SAME_MOMENT, FOR_A_LATER_MOMENT],
    &[FOR_THEIR_TURN],
];

impl QueuePlace {
    pub const LINES: usize = LINES.len();

    fn beginning_of(line: usize) -> QueuePlace {
        let key = [i64::MIN; 4];
        QueuePlace { line, key }
    }
}

// All are bound to the four numbers of a place and a limit, and give the four numbers of each step's own place, the last of
// which is its id. Those that wait for a worker stand in the order in which they will be taken, one kind after the other;
// what is behind a place is found in parts, since SQLite seeks by no more than one inequality here.

const EQUALLY_OLD: &str = "
    SELECT requirement_id, priority, queued_up, step_id
      FROM step
     WHERE state = 'ready' AND not_before_up IS NULL AND requirement_id = ?1 AND priority = ?2 AND queued_up = ?3
       AND step_id > ?4
     ORDER BY step_id
     LIMIT ?5
";

const EQUALLY_URGENT: &str = "
    SELECT requirement_id, priority, queued_up, step_id
      FROM step
     WHERE state = 'ready' AND not_before_up IS NULL AND requirement_id = ?1 AND priority = ?2 AND queued_up > ?3
     ORDER BY queued_up, step_id
     LIMIT ?5
";

const LESS_URGENT: &str = "
    SELECT requirement_id, priority, queued_up, step_id
      FROM step
     WHERE state = 'ready' AND not_before_up IS NULL AND requirement_id = ?1 AND priority < ?2
     ORDER BY priority DESC, queued_up, step_id
     LIMIT ?5
";

const OF_THE_NEXT_KIND: &str = "
    SELECT requirement_id, priority, queued_up, step_id
      FROM step
     WHERE state = 'ready' AND not_before_up IS NULL AND requirement_id > ?1
     ORDER BY requirement_id, priority DESC, queued_up, step_id
     LIMIT ?5
";

const FOR_A_PERSON: &str = "
    SELECT 0, 0, 0, step_id FROM step WHERE state = 'suspended' AND step_id > ?4 ORDER BY step_id LIMIT ?5
";

const FOR_THE_SAME_MOMENT: &str = "
    SELECT not_before_up, 0, 0, step_id
      FROM step
     WHERE not_before_up = ?1 AND step_id > ?4
     ORDER BY step_id
     LIMIT ?5
";

const FOR_A_LATER_MOMENT: &str = "
    SELECT not_before_up, 0, 0, step_id
      FROM step
     WHERE not_before_up > ?1
     ORDER BY not_before_up, step_id
     LIMIT ?5
";

const FOR_THEIR_TURN: &str = "
    SELECT job_id, position, item, step_id
      FROM step
     WHERE state = 'pending' AND waiting_on = 0 AND (job_id, position, item) > (?1, ?2, ?3)
     ORDER BY job_id, position, item
     LIMIT ?5
";

impl Tx<'_> {
    /// Steps that wait, with the place of each.
    pub fn waiting_steps(
        &self,
        after: Option<QueuePlace>,
        limit: u32,
    ) -> Result<Vec<(QueuePlace, StepId)>, StoreError> {
        let mut waiting = Vec::new();
        let first = after.map_or(0, |place| place.line);
        for (line, statements) in LINES.iter().enumerate().skip(first) {
            let after = after.filter(|place| place.line == line);
            let [a, b, c, d] = after.unwrap_or(QueuePlace::beginning_of(line)).key;
            for statement in *statements {
                let room = limit - waiting.len() as u32;
                let mut statement = self.sql(statement)?;
                let found = statement.query_map(params![a, b, c, d, room], |row| {
                    let key = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
                    Ok((QueuePlace { line, key }, StepId(key[3])))
                })?;
                for step in found {
                    waiting.push(step?);
                }
            }
        }
        Ok(waiting)
    }
}
