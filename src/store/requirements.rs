//! Required tags, interned, and which worker satisfies which set.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, named_params};

use super::rows::split_tags;
use super::{StoreError, Tx};
use crate::domain::task::Unmatched;
use crate::domain::{Now, RequirementId, WorkerId};

pub const STATEMENTS: &[&str] = &[
    REQUIREMENT_BY_TAGS,
    INSERT_REQUIREMENT,
    REQUIREMENT_TAGS,
    FORGET_CAPABILITIES,
    ADD_CAPABILITY,
    NOTE_LOSS,
];

/// Read whole: bounded by the distinct sets of tags, not by jobs.
const ALL_REQUIREMENTS: &str = "
    SELECT requirement_id, tags FROM requirement ORDER BY requirement_id
";

/// Read whole, only when a set of tags is seen for the first time.
const ALL_WORKER_TAGS: &str = "
    SELECT worker_id, tags FROM worker WHERE deleted_at IS NULL ORDER BY worker_id
";

const REQUIREMENT_BY_TAGS: &str = "
    SELECT requirement_id FROM requirement WHERE tags = :tags AND unmatched = :unmatched
";

const INSERT_REQUIREMENT: &str = "
    INSERT INTO requirement (tags, unmatched, lost_up) VALUES (:tags, :unmatched, :up)
";

const REQUIREMENT_TAGS: &str = "
    SELECT tags FROM requirement WHERE requirement_id = :requirement_id
";

const FORGET_CAPABILITIES: &str = "
    DELETE FROM capability WHERE worker_id = :worker_id
";

const ADD_CAPABILITY: &str = "
    INSERT INTO capability (worker_id, requirement_id) VALUES (:worker_id, :requirement_id)
";

const NOTE_LOSS: &str = "
    UPDATE requirement
       SET lost_up = :up
     WHERE requirement_id IN (SELECT c.requirement_id
                                FROM worker AS w
                                CROSS JOIN capability AS c ON c.worker_id = w.worker_id
                               WHERE w.worker_id = :worker_id
                                 AND w.state = 'active' AND w.draining = 0 AND w.paused = 0)
";

impl Tx<'_> {
    /// The id of this set of tags (sorted, once each). A new one is matched against every worker at once.
    pub fn intern_requirement(
        &self,
        tags: &[String],
        unmatched: Unmatched,
        now: Now,
    ) -> Result<RequirementId, StoreError> {
        let text = tags.join(" ");
        let known: Option<i64> = self
            .sql(REQUIREMENT_BY_TAGS)?
            .query_row(
                named_params! {":tags": text, ":unmatched": unmatched.as_str()},
                |row| row.get(0),
            )
            .optional()?;
        if let Some(requirement_id) = known {
            return Ok(RequirementId(requirement_id));
        }
        self.sql(INSERT_REQUIREMENT)?.execute(named_params! {
            ":tags": text, ":unmatched": unmatched.as_str(), ":up": now.up.0,
        })?;
        let requirement_id = RequirementId(self.connection.last_insert_rowid());
        let required: BTreeSet<String> = tags.iter().cloned().collect();
        for (worker_id, offered) in self.tag_sets(ALL_WORKER_TAGS)? {
            if required.is_subset(&offered) {
                self.add_capability(WorkerId(worker_id), requirement_id)?;
            }
        }
        Ok(requirement_id)
    }

    /// Computes anew what a worker with these tags satisfies.
    pub fn match_worker(
        &self,
        worker_id: WorkerId,
        tags: &[String],
        now: Now,
    ) -> Result<(), StoreError> {
        self.forget_capabilities(worker_id, now)?;
        let offered: BTreeSet<String> = tags.iter().cloned().collect();
        for (requirement_id, required) in self.tag_sets(ALL_REQUIREMENTS)? {
            if required.is_subset(&offered) {
                self.add_capability(worker_id, RequirementId(requirement_id))?;
            }
        }
        Ok(())
    }

    pub fn requirement_tags(
        &self,
        requirement_id: RequirementId,
    ) -> Result<Vec<String>, StoreError> {
        let tags: String = self
            .sql(REQUIREMENT_TAGS)?
            .query_row(named_params! {":requirement_id": requirement_id.0}, |row| {
                row.get(0)
            })?;
        Ok(split_tags(&tags))
    }

    /// A worker is about to stop taking steps, if it takes any: whoever waits for its tags waits for others from now on.
    pub(super) fn note_loss(&self, worker_id: WorkerId, now: Now) -> Result<(), StoreError> {
        self.sql(NOTE_LOSS)?
            .execute(named_params! {":worker_id": worker_id.0, ":up": now.up.0})?;
        Ok(())
    }

    pub(super) fn forget_capabilities(
        &self,
        worker_id: WorkerId,
        now: Now,
    ) -> Result<(), StoreError> {
        self.note_loss(worker_id, now)?;
        self.sql(FORGET_CAPABILITIES)?
            .execute(named_params! {":worker_id": worker_id.0})?;
        Ok(())
    }

    fn add_capability(
        &self,
        worker_id: WorkerId,
        requirement_id: RequirementId,
    ) -> Result<(), StoreError> {
        self.sql(ADD_CAPABILITY)?.execute(
            named_params! {":worker_id": worker_id.0, ":requirement_id": requirement_id.0},
        )?;
        Ok(())
    }

    fn tag_sets(
        &self,
        statement: &'static str,
    ) -> Result<Vec<(i64, BTreeSet<String>)>, StoreError> {
        let mut statement = self.sql(statement)?;
        let mut rows = statement.query([])?;
        let mut sets = Vec::new();
        while let Some(row) = rows.next()? {
            let tags: String = row.get(1)?;
            sets.push((row.get(0)?, split_tags(&tags).into_iter().collect()));
        }
        Ok(sets)
    }
}
