//! The lineage of the database: which history it continues, and how far this history has come.
//!
//! Two databases with the same lineage are states of the same history, and the one with the higher commit number is the newer
//! one. Whoever goes on from an older state on purpose (a restored backup) begins a new lineage.

use rusqlite::named_params;

use super::{StoreError, Tx};

pub const STATEMENTS: &[&str] = &[LINEAGE, BEGIN_NEW_LINEAGE, NUMBER_COMMIT];

/// Which history a database continues, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// A random key: 32 hexadecimal digits.
    pub key: String,
    /// How many times a server was started in this lineage.
    pub epoch: i64,
}

const LINEAGE: &str = "SELECT lineage, epoch FROM server WHERE only_row = 1";

const BEGIN_NEW_LINEAGE: &str = "
    UPDATE server SET lineage = lower(hex(randomblob(16))), epoch = 0 WHERE only_row = 1 RETURNING lineage
";

const NUMBER_COMMIT: &str = "UPDATE server SET commit_number = :number WHERE only_row = 1";

impl Tx<'_> {
    /// Gives the commit of this transaction its number. The writer does that once for each group.
    pub(super) fn number_commit(&self, number: i64) -> Result<(), StoreError> {
        self.sql(NUMBER_COMMIT)?
            .execute(named_params! {":number": number})?;
        Ok(())
    }

    pub fn lineage(&self) -> Result<Lineage, StoreError> {
        let mut statement = self.sql(LINEAGE)?;
        Ok(statement.query_row([], |row| {
            Ok(Lineage {
                key: row.get(0)?,
                epoch: row.get(1)?,
            })
        })?)
    }

    /// Gives the database a new random lineage with epoch 0, and returns its key.
    ///
    /// For a database that goes on from an older state on purpose. Workers accept a new lineage and drop what they still
    /// have to report to the former one.
    pub fn begin_new_lineage(&self) -> Result<String, StoreError> {
        let mut statement = self.sql(BEGIN_NEW_LINEAGE)?;
        let key: String = statement.query_row([], |row| row.get(0))?;
        self.changes.borrow_mut().begins_lineage = true;
        Ok(key)
    }
}
