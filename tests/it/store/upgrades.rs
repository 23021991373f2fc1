//! A database of every version that was ever released opens, keeps every row, and leaves a copy of what it was.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::Value;
use stepward::store::{SCHEMA_VERSION, Store, StoreOptions};

/// (version, a database as a server of that version left it). Releasing a version adds a line.
const RELEASED: &[(i64, &str)] = &[
    (1, include_str!("released/version-1.sql")),
    (2, include_str!("released/version-2.sql")),
    (3, include_str!("released/version-3.sql")),
];

type Rows = BTreeMap<String, Vec<BTreeMap<String, String>>>;

fn make(folder: &Path, sql: &str) {
    let database = Connection::open(folder.join("stepward.db")).unwrap();
    database.execute_batch(sql).unwrap();
}

fn version(file: &Path) -> i64 {
    let sql = Connection::open(file).unwrap();
    sql.pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap()
}

/// Every row of every table, by the names of its columns.
fn rows(file: &Path) -> Rows {
    let sql = Connection::open(file).unwrap();
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut tables = sql.prepare(tables).unwrap();
    let tables: Vec<String> = tables
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let mut all = Rows::new();
    for table in tables {
        let mut statement = sql.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let names: Vec<String> = statement
            .column_names()
            .iter()
            .map(|it| it.to_string())
            .collect();
        let found = statement.query_map([], |row| {
            let value = |(at, name): (usize, &String)| {
                let value: Value = row.get(at)?;
                Ok((name.clone(), format!("{value:?}")))
            };
            names.iter().enumerate().map(value).collect()
        });
        let mut found: Vec<BTreeMap<String, String>> =
            found.unwrap().collect::<Result<_, _>>().unwrap();
        found.sort();
        all.insert(table, found);
    }
    all
}

/// A later version may add columns and tables; what was there is there as it was.
fn assert_kept(before: &Rows, after: &Rows, version: i64) {
    for (table, rows) in before {
        let mut kept = after[table].clone();
        if let Some(first) = rows.first() {
            kept.iter_mut()
                .for_each(|row| row.retain(|name, _| first.contains_key(name)));
        }
        kept.sort();
        assert_eq!(&kept, rows, "version {version}, table {table}");
    }
}

/// It has secret inputs, and is not opened without one.
fn lay_key(folder: &Path) {
    let file = folder.join("secret.key");
    std::fs::write(&file, [7; 32]).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_database_of_every_released_version_opens_and_keeps_every_row() {
    for &(old, sql) in RELEASED {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), sql);
        lay_key(folder.path());
        let file = folder.path().join("stepward.db");
        assert_eq!(version(&file), old);
        let before = rows(&file);
        let empty: Vec<&String> = (before.iter().filter(|(_, rows)| rows.is_empty()))
            .map(|(table, _)| table)
            .collect();
        assert_eq!(
            empty,
            Vec::<&String>::new(),
            "version {old} has rows everywhere"
        );

        let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
        let breaches = store.read(|tx| tx.breaches()).unwrap();
        assert_eq!(breaches, [], "version {old}");
        drop(store);
        assert_eq!(version(&file), SCHEMA_VERSION);
        assert_kept(&before, &rows(&file), old);

        let copy = folder.path().join(format!("stepward.db.version-{old}"));
        assert_eq!(copy.exists(), old < SCHEMA_VERSION, "version {old}");
        if copy.exists() {
            assert_eq!(version(&copy), old);
            assert_eq!(rows(&copy), before, "version {old}");
            let mode = std::fs::metadata(&copy).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "it holds what the database holds");
        }
        // And again: there is nothing left to do.
        drop(Store::open(folder.path(), StoreOptions::default()).unwrap());
    }
}

#[test]
fn whoever_only_looks_upgrades_nothing() {
    for &(old, sql) in RELEASED {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), sql);
        let file = folder.path().join("stepward.db");
        let opened = Store::open(folder.path(), StoreOptions::looking());
        if old == SCHEMA_VERSION {
            drop(opened.unwrap());
            continue;
        }
        let refused = opened.err().expect("it must be refused").to_string();
        let told = format!("has schema version {old}, which a start of the server upgrades");
        assert!(refused.contains(&told), "{refused}");
        assert_eq!(refused.lines().count(), 1, "{refused}");
        assert_eq!(version(&file), old);
    }
}

/// The version before the one in the making is always among them.
#[test]
fn every_version_but_the_one_in_the_making_has_its_database_here() {
    let known: Vec<i64> = RELEASED.iter().map(|(version, _)| *version).collect();
    let released: Vec<i64> = (1..=known.len() as i64).collect();
    assert_eq!(known, released);
    assert!(SCHEMA_VERSION <= known.len() as i64 + 1, "{SCHEMA_VERSION}");
}
