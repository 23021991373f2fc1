//! Opening a data folder: what is refused, in one clear line each. Full and read-only disks are in `tests/faults.rs`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rusqlite::Connection;
use stepward::domain::Uptime;
use stepward::store::{OpenError, Store, StoreOptions, Tx};
use tempfile::TempDir;

fn open(folder: &TempDir) -> Result<Store, OpenError> {
    Store::open(folder.path(), StoreOptions::default())
}

fn refusal(folder: &TempDir) -> String {
    let refused = open(folder).err().expect("it must be refused").to_string();
    assert_eq!(refused.lines().count(), 1, "{refused}");
    refused
}

fn database(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("stepward.db")
}

#[test]
fn a_new_folder_is_made_with_nobody_elses_eyes_in_it() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/b/data");
    let store = Store::open(&folder, StoreOptions::default()).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for file in ["stepward.db", "stepward.db-wal", "LOCK"] {
        assert_eq!(mode(&folder.join(file)), 0o600, "{file}");
    }
    drop(store);
    assert!(
        !folder.join("stepward.db-wal").exists(),
        "a clean stop leaves no log behind"
    );
}

#[test]
fn one_process_per_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).unwrap();
    assert_eq!(
        refusal(&folder),
        format!(
            "data folder {} is in use by another server (process {}), stop it or choose another data_dir",
            folder.path().display(),
            std::process::id()
        )
    );
    drop(store);
    open(&folder).unwrap();
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder).unwrap());
    let sql = Connection::open(database(&folder)).unwrap();
    sql.pragma_update(None, "user_version", 99).unwrap();
    drop(sql);
    let before = fs::read(database(&folder)).unwrap();
    assert_eq!(
        refusal(&folder),
        format!(
            "{} has schema version 99, this program knows up to {}; use a newer stepward",
            database(&folder).display(),
            stepward::store::SCHEMA_VERSION
        )
    );
    assert_eq!(fs::read(database(&folder)).unwrap(), before);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    for content in [
        &b"hello"[..],
        &[0u8; 100],
        b"SQLite format 3 but not really, only a text file",
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(database(&folder), content).unwrap();
        assert_eq!(
            refusal(&folder),
            format!(
                "{} is not a database, move it away or choose another data_dir",
                database(&folder).display()
            )
        );
        assert_eq!(fs::read(database(&folder)).unwrap(), content);
    }
}

#[test]
fn a_file_that_is_no_database_in_a_folder_that_a_server_used_is_to_be_restored() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder).unwrap());
    fs::write(database(&folder), [7; 9_000]).unwrap();
    assert_eq!(
        refusal(&folder),
        format!(
            "{} is not a database, and stepward.mark beside it shows that a server used this folder: restore a backup: stepward \
             restore FILE --data-dir {} --force; or choose an empty data_dir",
            database(&folder).display(),
            folder.path().display()
        )
    );
}

#[test]
fn a_folder_in_the_place_of_the_write_ahead_log_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder).unwrap());
    let log = folder.path().join("stepward.db-wal");
    fs::create_dir(&log).unwrap();
    let told = format!(
        "{} is a folder, and the database needs a file of this name: move the folder away and start again",
        log.display()
    );
    assert_eq!(refusal(&folder), told);
    let examined = stepward::store::examine(folder.path()).unwrap_err();
    assert_eq!(examined.to_string(), told);
    fs::remove_dir(&log).unwrap();
    open(&folder).unwrap();
}

#[test]
fn a_link_in_the_place_of_the_write_ahead_log_and_a_folder_in_the_place_of_the_lock_are_named() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder).unwrap());
    let log = folder.path().join("stepward.db-wal");
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, "").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &log).unwrap();
    let told = format!(
        "{} is a symbolic link, and the server needs a regular file of this name: put the file itself into the data folder",
        log.display()
    );
    assert_eq!(refusal(&folder), told);
    fs::remove_file(&log).unwrap();
    let lock = folder.path().join("LOCK");
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    let told = format!(
        "{} is a folder, and the server needs a regular file of this name: move it away and start again",
        lock.display()
    );
    assert_eq!(refusal(&folder), told);
    fs::remove_dir(&lock).unwrap();
    open(&folder).unwrap();
}

/// Somebody puts a key into an empty folder. What a start leaves that was killed, or met a full disk, is no sign of a database.
#[test]
fn a_lock_file_of_a_start_that_never_made_a_database_is_no_sign_of_use() {
    for content in ["", "4711 new\n"] {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("secret.key");
        fs::write(&key, [7; 32]).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let lock = folder.path().join("LOCK");
        fs::write(&lock, content).unwrap();
        let examined = stepward::store::examine(folder.path()).unwrap_err();
        assert!(examined.to_string().ends_with("stepward.db does not exist"));
        let checked = stepward::store::Opening::check(folder.path(), StoreOptions::default());
        let held = fs::read_to_string(&lock).unwrap();
        assert_eq!(held, format!("{} new\n", std::process::id()));
        let owner = refusal(&folder);
        assert!(
            owner.contains(&format!("(process {})", std::process::id())),
            "{owner}"
        );
        drop(checked.unwrap());
        assert_eq!(fs::read_to_string(&lock).unwrap(), content);
        drop(open(&folder).unwrap());
        let kept = fs::read_to_string(&lock).unwrap();
        assert_eq!(kept, format!("{}\n", std::process::id()));
    }
}

/// Root may read and write every file unless it gives this privilege up, so a child of this test opens the folder.
#[test]
fn a_file_that_may_not_be_used_is_named() {
    const CHILD: &str = "STEPWARD_TEST_UNUSABLE_FILE";
    if let Some(folder) = std::env::var_os(CHILD) {
        let refused = Store::open(folder.as_ref(), StoreOptions::default()).err();
        println!("refused: {}", refused.expect("it must be refused"));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder).unwrap());
    let told = |name: &str, mode: u32| {
        let file = folder.path().join(name);
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let mut child = match rustix::process::geteuid().is_root() {
            true => Command::new("setpriv"),
            false => Command::new("env"),
        };
        if rustix::process::geteuid().is_root() {
            child.arg("--bounding-set=-dac_override,-dac_read_search");
        }
        let told = child
            .arg(std::env::current_exe().unwrap())
            .args([
                "store::open::a_file_that_may_not_be_used_is_named",
                "--exact",
            ])
            .arg("--nocapture")
            .env(CHILD, folder.path())
            .output()
            .unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        (
            file.display().to_string(),
            String::from_utf8_lossy(&told.stdout).into_owned(),
        )
    };
    for name in ["stepward.db", "LOCK", "stepward.mark"] {
        let (file, said) = told(name, 0o400);
        let told =
            format!("refused: {file} cannot be written: Permission denied (os error 13), make it");
        assert!(said.contains(&told), "{said}");
    }
    // The write-ahead log of a server that was killed, and a mark that nobody may read.
    fs::write(folder.path().join("stepward.db-wal"), "").unwrap();
    for (name, mode) in [
        ("stepward.db-wal", 0o200),
        ("stepward.mark", 0o200),
        ("stepward.mark", 0o000),
    ] {
        let (file, said) = told(name, mode);
        let told =
            format!("refused: {file} cannot be written: Permission denied (os error 13), make it");
        assert!(said.contains(&told), "{said}");
    }
    let (file, said) = told("secret.key", 0o000);
    let told = format!("{file} cannot be read: Permission denied (os error 13); make it readable");
    assert!(said.contains(&told), "{said}");
    open(&folder).unwrap();
}

#[test]
fn a_database_that_is_no_file_of_the_folder_is_refused() {
    let other = tempfile::tempdir().unwrap();
    drop(open(&other).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let refused = |kind: &str| {
        let told = refusal(&folder);
        let said = format!(
            "{} is {kind}, the database must be a file",
            database(&folder).display()
        );
        assert!(told.starts_with(&said), "{told}");
    };
    // Two servers would have it, each with a lock of its own.
    std::os::unix::fs::symlink(database(&other), database(&folder)).unwrap();
    refused("a symbolic link");
    fs::remove_file(database(&folder)).unwrap();
    fs::create_dir(database(&folder)).unwrap();
    refused("a folder");
    fs::remove_dir(database(&folder)).unwrap();
    let made = Command::new("mkfifo").arg(database(&folder)).status();
    assert!(made.unwrap().success());
    refused("a device or a pipe");
}

#[test]
fn a_database_of_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sql = Connection::open(database(&folder)).unwrap();
    sql.execute_batch("CREATE TABLE theirs (a)").unwrap();
    drop(sql);
    assert!(
        refusal(&folder).ends_with("is a database of another program, choose another data_dir")
    );
}

#[test]
fn a_corrupt_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).unwrap();
    happens_at(&store, 5);
    drop(store);
    let mut bytes = fs::read(database(&folder)).unwrap();
    // Every page but the first, which holds the header and the schema.
    bytes[4096..].fill(0xAA);
    fs::write(database(&folder), bytes).unwrap();
    let refused = refusal(&folder);
    assert!(refused.contains("is corrupt"), "{refused}");
    let folder = folder.path().display();
    let restore =
        format!("restore it from a backup: stepward restore FILE --data-dir {folder} --force");
    assert!(refused.ends_with(&restore), "{refused}");
}

#[test]
fn a_database_that_somebody_took_something_from_is_refused() {
    for (taken, told) in [
        ("DROP TABLE outbox", "table outbox is missing"),
        ("DROP INDEX event_once", "index event_once is missing"),
        (
            "DROP INDEX step_claimable",
            "index step_claimable is missing",
        ),
        ("PRAGMA user_version = 0", "its schema version is lost"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        drop(open(&folder).unwrap());
        let sql = Connection::open(database(&folder)).unwrap();
        sql.execute_batch(taken).unwrap();
        drop(sql);
        let file = database(&folder).display().to_string();
        assert_eq!(
            refusal(&folder),
            format!(
                "{file} is corrupt ({told}), restore it from a backup: stepward restore FILE --data-dir {} --force",
                folder.path().display()
            )
        );
    }
}

#[test]
fn a_truncated_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder).unwrap());
    let bytes = fs::read(database(&folder)).unwrap();
    fs::write(database(&folder), &bytes[..bytes.len() / 2]).unwrap();
    let refused = refusal(&folder);
    assert!(refused.contains("is corrupt"), "{refused}");
}

#[test]
fn a_folder_that_is_a_file_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("data");
    fs::write(&file, "").unwrap();
    let refused = Store::open(&file, StoreOptions::default())
        .err()
        .unwrap()
        .to_string();
    let file = file.display();
    assert_eq!(
        refused,
        format!("data folder {file} cannot be used: not a directory")
    );
}

#[test]
fn the_service_clock_goes_on_where_it_was_and_never_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).unwrap();
    happens_at(&store, 7_000);
    happens_at(&store, 5_000);
    assert_eq!(store.saved_up(), Uptime(7_000));
    drop(store);
    let store = open(&folder).unwrap();
    assert_eq!(store.begun_up(), Uptime(7_000));
}

fn happens_at(store: &Store, up: i64) {
    let change = move |tx: &Tx| {
        tx.happens_at(Uptime(up));
        // Any change: a transaction that only reads does not save the clock.
        tx.save_service_clock(Uptime(0))
    };
    store.write(change).unwrap();
}

#[test]
fn a_database_that_is_gone_is_not_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder).unwrap());
    let log = folder.path().join("logs/1/1.log");
    fs::create_dir_all(log.parent().unwrap()).unwrap();
    fs::write(&log, "what a step printed").unwrap();
    let whole = fs::read(database(&folder)).unwrap();
    fs::write(database(&folder), "").unwrap();
    let refused = refusal(&folder);
    assert!(refused.contains("stepward.db is empty, and logs beside it"));
    assert!(refused.contains("stepward restore FILE --data-dir"));
    fs::remove_file(database(&folder)).unwrap();
    assert!(refusal(&folder).contains("stepward.db is missing, and logs beside it"));
    fs::remove_dir_all(folder.path().join("logs")).unwrap();
    assert!(refusal(&folder).contains("stepward.db is missing, and stepward.mark beside it"));
    fs::remove_file(folder.path().join("stepward.mark")).unwrap();
    assert!(refusal(&folder).contains("stepward.db is missing, and secret.key beside it"));
    assert!(!database(&folder).exists(), "it is left as it was");
    fs::write(database(&folder), whole).unwrap();
    open(&folder).unwrap();
}

#[test]
fn sealed_inputs_without_their_key_are_told_before_anybody_needs_them() {
    let house = crate::house::TestHouse::new();
    let job = house.submit(vec![crate::house::script("a")]);
    let sealed = r#"{"password": {"$sealed": "v1.x"}}"#;
    let update = format!("UPDATE job SET input = '{sealed}' WHERE job_id = {job}");
    let folder = tempfile::tempdir().unwrap();
    let copy = format!("VACUUM INTO '{}'", database(&folder).display());
    let connection = Connection::open(house.database()).unwrap();
    connection.execute(&update, []).unwrap();
    connection.execute(&copy, []).unwrap();
    let key = folder.path().join("secret.key");
    fs::copy(house.database().with_file_name("secret.key"), &key).unwrap();
    drop(open(&folder).unwrap());
    fs::remove_file(&key).unwrap();
    let refused = refusal(&folder);
    assert!(
        refused.contains("without which secret inputs of 1 job cannot be opened"),
        "{refused}"
    );
    assert!(!key.exists(), "no other is made");
}

#[test]
fn what_acts_by_itself_in_a_database_is_none_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder).unwrap());
    let run = |sql: &str| {
        let connection = Connection::open(database(&folder)).unwrap();
        connection.execute_batch(sql).unwrap();
    };
    run("CREATE TRIGGER evil AFTER INSERT ON job BEGIN DELETE FROM event; END");
    assert!(refusal(&folder).contains("has trigger evil in it"));
    run("DROP TRIGGER evil; CREATE VIEW seen AS SELECT 1");
    assert!(refusal(&folder).contains("has view seen in it"));
    run("DROP VIEW seen");
    open(&folder).unwrap();
}
