//! What steps require of a worker, interned, and which worker satisfies which requirement.
//!
//! A requirement is a set of tags and of features of the worker's program. Its text names both, features as `Feature::in_requirement`
//! writes them: so both are matched alike, and a set that was seen before needs no further column to be found again.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, named_params};

use super::rows::{self, split_tags};
use super::{StoreError, Tx};
use crate::domain::peer::{Feature, Features};
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
    SELECT w.worker_id, w.tags, n.features
      FROM worker AS w
      LEFT JOIN session AS n ON n.session_id = w.session_id
     WHERE w.deleted_at IS NULL
     ORDER BY w.worker_id
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

/// What a step requires of a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// Sorted, once each.
    pub tags: Vec<String>,
    pub features: Features,
}

impl Requirement {
    /// The tags and the features, as one list of words.
    pub fn words(&self) -> Vec<String> {
        requirement_words(&self.tags, self.features)
    }

    fn of_words(words: Vec<String>) -> Requirement {
        let (features, tags): (Vec<String>, Vec<String>) = words
            .into_iter()
            .partition(|word| Feature::of_requirement(word).is_some());
        let features: Vec<Feature> = features
            .iter()
            .filter_map(|word| Feature::of_requirement(word))
            .collect();
        let features = Features::of(&features);
        Requirement { tags, features }
    }
}

/// Tags and features as a requirement names them, or as a worker offers them.
pub fn requirement_words(tags: &[String], features: Features) -> Vec<String> {
    let features = features.iter().map(Feature::in_requirement);
    features.chain(tags.iter().cloned()).collect()
}

impl Tx<'_> {
    /// The id of this requirement. A new one is matched against every worker at once.
    pub fn intern_requirement(
        &self,
        requirement: &Requirement,
        unmatched: Unmatched,
        now: Now,
    ) -> Result<RequirementId, StoreError> {
        let words = requirement.words();
        let text = words.join(" ");
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
        let required: BTreeSet<String> = words.into_iter().collect();
        for (worker_id, offered) in self.word_sets(ALL_WORKER_TAGS, true)? {
            if required.is_subset(&offered) {
                self.add_capability(WorkerId(worker_id), requirement_id)?;
            }
        }
        Ok(requirement_id)
    }

    /// Computes anew what a worker with these tags and features satisfies.
    pub fn match_worker(
        &self,
        worker_id: WorkerId,
        tags: &[String],
        features: Features,
        now: Now,
    ) -> Result<(), StoreError> {
        self.forget_capabilities(worker_id, now)?;
        let offered: BTreeSet<String> = requirement_words(tags, features).into_iter().collect();
        for (requirement_id, required) in self.word_sets(ALL_REQUIREMENTS, false)? {
            if required.is_subset(&offered) {
                self.add_capability(worker_id, RequirementId(requirement_id))?;
            }
        }
        Ok(())
    }

    pub fn requirement(&self, requirement_id: RequirementId) -> Result<Requirement, StoreError> {
        let tags: String = self
            .sql(REQUIREMENT_TAGS)?
            .query_row(named_params! {":requirement_id": requirement_id.0}, |row| {
                row.get(0)
            })?;
        Ok(Requirement::of_words(split_tags(&tags)))
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

    /// The words of each row: those of a requirement, or what a worker offers.
    fn word_sets(
        &self,
        statement: &'static str,
        has_features: bool,
    ) -> Result<Vec<(i64, BTreeSet<String>)>, StoreError> {
        let mut statement = self.sql(statement)?;
        let mut rows = statement.query([])?;
        let mut sets = Vec::new();
        while let Some(row) = rows.next()? {
            let tags: String = row.get(1)?;
            let features = match has_features {
                true => rows::features(row, 2)?,
                false => Features::NONE,
            };
            let words = requirement_words(&split_tags(&tags), features);
            sets.push((row.get(0)?, words.into_iter().collect()));
        }
        Ok(sets)
    }
}
