//! A database of every version that was ever released opens, keeps every row, and leaves a copy of what it was.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::Value;
use stepward::domain::audit::ChainLink;
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
        let head = store.read(|tx| tx.audit_head()).unwrap();
        assert_eq!(head, ChainLink::GENESIS, "version {old} had no audit log");
        drop(store);
        assert_eq!(version(&file), SCHEMA_VERSION);
        let after = rows(&file);
        assert_kept(&before, &after, old);
        // Keys of former versions answer whoever repeats them.
        let owners = after["idempotency"].iter().map(|row| row["owner"].as_str());
        assert!(
            owners.clone().count() > 0 && owners.clone().all(|owner| owner == r#"Text("any")"#)
        );

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

/// Up to version 3 a step whose worker was lost and that waited for a person had no record of its attempt.
#[test]
fn an_upgrade_records_the_lost_attempts_of_held_steps() {
    let (_, sql) = RELEASED[1];
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), sql);
    lay_key(folder.path());
    let database = Connection::open(folder.path().join("stepward.db")).unwrap();
    database
        .execute_batch(
            "UPDATE step SET state = 'suspended', reason = 'worker_restarted', message = 'worker w1 restarted',
                    session_id = NULL, due_up = NULL, ready_at = started_at + 7
              WHERE step_id = 14;
             UPDATE step SET state = 'failed', reason = 'worker_lost', message = 'rejected by eve: no',
                    session_id = NULL, due_up = NULL, ready_at = started_at + 8, ended_at = started_at + 9
              WHERE step_id = 17;
             INSERT INTO event (at, kind, job_id, step_id, worker_id, attempt, reason, message)
             VALUES (1, 'step_held', 9, 17, 1, 1, 'worker_lost', 'step wait is held: worker w1 was lost');",
        )
        .unwrap();
    drop(database);
    drop(Store::open(folder.path(), StoreOptions::default()).unwrap());
    let database = Connection::open(folder.path().join("stepward.db")).unwrap();
    let recorded: Vec<(i64, i64, String, String, i64)> = database
        .prepare(
            "SELECT step_id, attempt, outcome || ' ' || reason, message, ended_at - started_at
               FROM former_attempt WHERE step_id IN (14, 17) ORDER BY step_id",
        )
        .unwrap()
        .query_map([], |row| {
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
                row.get(4)?,
            ))
        })
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let lost = |step_id, what: &str, message: &str, ms| {
        (step_id, 1, what.to_string(), message.to_string(), ms)
    };
    assert_eq!(
        recorded,
        [
            lost(14, "failed worker_restarted", "worker w1 restarted", 7),
            lost(
                17,
                "failed worker_lost",
                "step wait is held: worker w1 was lost",
                8
            ),
        ]
    );
}

/// A folder of version 0.1 stays open, and tokens that anybody could have made there are marked, with all that was made with them.
#[test]
fn an_upgrade_leaves_the_door_open_and_marks_tokens_that_nobody_was_asked_for() {
    let (_, sql) = RELEASED[2];
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), sql);
    lay_key(folder.path());
    let file = folder.path().join("stepward.db");
    let database = Connection::open(&file).unwrap();
    database
        .execute_batch(
            "INSERT INTO token (token_id, name, role, hash, made_by, created_at) VALUES (101, 'eve', 'admin', 'h1', 'local', 1);
             INSERT INTO token (token_id, name, role, hash, made_by, created_at) VALUES (102, 'edge', 'worker', 'h2', 'enrolment 103', 1);
             INSERT INTO token (token_id, name, role, hash, made_by, created_at, expires_at, ended_at, made_token_id)
             VALUES (103, 'edge', 'enrolment', 'h3', 'local', 1, 2, 2, 102);
             INSERT INTO token (token_id, name, role, hash, made_by, created_at) VALUES (104, 'ada', 'admin', 'h4', 'console', 1);
             INSERT INTO token (token_id, name, role, hash, made_by, created_at) VALUES
               (105, 'mallory', 'admin', 'h5', 'eve', 1), (106, 'w', 'worker', 'h6', 'mallory', 1),
               (108, 'grafana', 'viewer', 'h8', 'ada', 1);
             INSERT INTO token (token_id, name, role, hash, made_by, created_at) VALUES (109, 'gate', 'worker', 'h9', 'enrolment 107', 1);
             INSERT INTO token (token_id, name, role, hash, made_by, created_at, expires_at, ended_at, made_token_id)
             VALUES (107, 'gate', 'enrolment', 'h7', 'mallory', 1, 2, 2, 109);
             INSERT INTO token (token_id, name, role, hash, made_by, created_at, ended_at) VALUES (110, 'cy', 'admin', 'h10', 'local', 1, 2);
             INSERT INTO token (token_id, name, role, hash, made_by, created_at) VALUES
               (111, 'cy', 'admin', 'h11', 'settings', 3), (112, 'ci', 'operator', 'h12', 'cy', 4);",
        )
        .unwrap();
    drop(database);
    drop(Store::open(folder.path(), StoreOptions::default()).unwrap());
    let database = Connection::open(&file).unwrap();
    let marked: Vec<i64> = database
        .prepare(
            "SELECT token_id FROM token WHERE is_unasked = 1 AND token_id > 100 ORDER BY token_id",
        )
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    // Token 112 was made by the second cy: the first one had ended.
    assert_eq!(marked, [101, 102, 103, 105, 106, 107, 109, 110]);
    let door = "SELECT asks_by_default, first_start_at IS NULL FROM server";
    let door = database.query_row(door, [], |row| Ok((row.get(0)?, row.get(1)?)));
    assert_eq!(door, Ok((false, true)));

    let new = tempfile::tempdir().unwrap();
    drop(Store::open(new.path(), StoreOptions::default()).unwrap());
    let database = Connection::open(new.path().join("stepward.db")).unwrap();
    let door = "SELECT asks_by_default FROM server";
    assert_eq!(database.query_row(door, [], |row| row.get(0)), Ok(true));
}

/// The version before the one in the making is always among them.
#[test]
fn every_version_but_the_one_in_the_making_has_its_database_here() {
    let known: Vec<i64> = RELEASED.iter().map(|(version, _)| *version).collect();
    let released: Vec<i64> = (1..=known.len() as i64).collect();
    assert_eq!(known, released);
    // Version 4 was never released: no server of it left a database.
    let in_the_making = SCHEMA_VERSION - i64::from(SCHEMA_VERSION > 4);
    assert!(in_the_making <= known.len() as i64 + 1, "{SCHEMA_VERSION}");
}
