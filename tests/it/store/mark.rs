//! A database that has lost commits is noticed: `stepward.mark` remembers how far it had come.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use stepward::domain::event::{EventKind, NewEvent};
use stepward::domain::{EventSeq, Now, Timestamp, Uptime};
use stepward::store::{
    MARK_FILE, OpenError, Stopped, Store, StoreError, StoreOptions, examine, mark_fault,
};
use tempfile::TempDir;

const NOW: Now = Now {
    wall: Timestamp(1_000),
    up: Uptime(0),
};

fn open(folder: &Path) -> Result<Store, OpenError> {
    Store::open(folder, StoreOptions::default())
}

fn record(store: &Store, text: &'static str) {
    let event = NewEvent::new(EventKind::WorkerActive, text);
    let recorded: Result<(), StoreError> = store.write(move |tx| tx.record(&event, NOW));
    recorded.unwrap();
}

fn recorded(store: &Store) -> Vec<String> {
    let events = store.read(|tx| tx.events_after(EventSeq(0), 100)).unwrap();
    events.into_iter().map(|event| event.fact.message).collect()
}

/// A data folder as a server that was killed leaves it: three events in its write-ahead log.
fn killed() -> TempDir {
    let running = tempfile::tempdir().unwrap();
    let store = open(running.path()).unwrap();
    for text in ["one", "two", "three"] {
        record(&store, text);
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["stepward.db", "stepward.db-wal", MARK_FILE, "secret.key"] {
        fs::copy(running.path().join(name), folder.path().join(name)).unwrap();
    }
    folder
}

fn log(folder: &TempDir) -> PathBuf {
    folder.path().join("stepward.db-wal")
}

/// Every file of the folder with its content.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Each way to open the folder is refused in one line, and none of them changes a file.
fn refused(folder: &TempDir) -> String {
    let before = files(folder.path());
    let refused = open(folder.path()).err().expect("a start is refused");
    let looked = Store::open(folder.path(), StoreOptions::looking()).err();
    assert_eq!(looked.unwrap().to_string(), refused.to_string());
    let stopped = Stopped::take(folder.path()).err();
    assert_eq!(stopped.unwrap().to_string(), refused.to_string());
    let compacted = stepward::store::compact(folder.path()).unwrap_err();
    assert_eq!(compacted.to_string(), refused.to_string());
    assert!(before == files(folder.path()), "a file was changed");
    assert_eq!(refused.to_string().lines().count(), 1, "{refused}");
    refused.to_string()
}

#[test]
fn a_killed_server_leaves_a_mark_that_fits() {
    let folder = killed();
    let store = open(folder.path()).unwrap();
    assert_eq!(recorded(&store), ["one", "two", "three"]);
    drop(store);
    // After a clean stop too.
    assert_eq!(
        recorded(&open(folder.path()).unwrap()),
        ["one", "two", "three"]
    );
}

#[test]
fn a_database_without_its_write_ahead_log_is_refused() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 4] = [
        ("removed", |log| fs::remove_file(log).unwrap()),
        ("emptied", |log| fs::write(log, "").unwrap()),
        ("cut off", |log| {
            let bytes = fs::read(log).unwrap();
            fs::write(log, &bytes[..bytes.len() - 1]).unwrap();
        }),
        ("damaged", |log| {
            let mut bytes = fs::read(log).unwrap();
            bytes[100] ^= 1;
            fs::write(log, bytes).unwrap();
        }),
    ];
    for (what, harm) in harms {
        let folder = killed();
        harm(&log(&folder));
        let said = refused(&folder);
        assert!(
            said.contains("and stepward.mark says that it was at commit 3"),
            "{what}: {said}"
        );
        assert!(said.contains("stepward restore FILE --data-dir"), "{said}");
        let command = format!(
            "stepward server --data-dir {} --accept-older-database",
            folder.path().display()
        );
        assert!(said.ends_with(&command), "{said}");
    }
}

#[test]
fn doctor_sees_a_database_that_lost_commits() {
    let folder = killed();
    fs::remove_file(log(&folder)).unwrap();
    let said = examine(folder.path()).unwrap_err().to_string();
    assert!(said.contains("is at commit 0, and stepward.mark"), "{said}");
    fs::remove_file(folder.path().join("stepward.db")).unwrap();
    let said = examine(folder.path()).unwrap_err().to_string();
    assert!(
        said.contains("is missing, and stepward.mark beside it"),
        "{said}"
    );
}

#[test]
fn a_person_can_accept_an_older_database_once_and_it_begins_a_new_lineage() {
    let folder = killed();
    let lineage = |store: &Store| store.read(|tx| tx.lineage()).unwrap().key;
    let mark = fs::read_to_string(folder.path().join(MARK_FILE)).unwrap();
    fs::remove_file(log(&folder)).unwrap();
    let options = StoreOptions {
        accepted_older_at: Some(Timestamp(5_000)),
        ..StoreOptions::default()
    };
    let store = Store::open(folder.path(), options.clone()).unwrap();
    let events = store.read(|tx| tx.events_after(EventSeq(0), 100)).unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.fact.kind).collect();
    assert_eq!(kinds, [EventKind::OlderDatabaseAccepted]);
    let accepted = lineage(&store);
    assert!(!mark.contains(&accepted), "{mark}");
    drop(store);
    assert_eq!(lineage(&open(folder.path()).unwrap()), accepted);
    // An older copy of the whole folder has its own mark, so nothing in it shows a loss. The flag takes effect all the same.
    let store = Store::open(folder.path(), options).unwrap();
    let events = store.read(|tx| tx.events_after(EventSeq(0), 100)).unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.fact.kind).collect();
    assert_eq!(kinds, [EventKind::OlderDatabaseAccepted; 2]);
    let accepted_again = lineage(&store);
    assert_ne!(accepted_again, accepted);
    let mark = fs::read_to_string(folder.path().join(MARK_FILE)).unwrap();
    assert!(mark.contains(&accepted_again), "{mark}");
}

/// The mark is synced when a lineage begins, but the power may fail, or the process be killed, just before that.
#[test]
fn a_mark_of_a_lineage_that_the_database_continues_keeps_nobody_out() {
    let folder = killed();
    let mark = folder.path().join(MARK_FILE);
    let former = fs::read(&mark).unwrap();
    fs::remove_file(log(&folder)).unwrap();
    for time in 0..2 {
        let options = StoreOptions {
            accepted_older_at: Some(Timestamp(5_000)),
            ..StoreOptions::default()
        };
        let store = Store::open(folder.path(), options).unwrap();
        record(&store, "accepted and acknowledged");
        drop(store);
        fs::write(&mark, &former).unwrap();
        drop(Stopped::take(folder.path()).unwrap());
        examine(folder.path()).unwrap();
        let store = open(folder.path()).unwrap();
        assert_eq!(recorded(&store).len(), 2 * (time + 1));
        assert_ne!(fs::read(&mark).unwrap(), former, "it is written again");
    }
}

#[test]
fn another_database_in_the_place_of_the_former_is_refused() {
    let (folder, other) = (killed(), killed());
    fs::remove_file(log(&folder)).unwrap();
    drop(open(other.path()).unwrap());
    fs::copy(
        other.path().join("stepward.db"),
        folder.path().join("stepward.db"),
    )
    .unwrap();
    let said = refused(&folder);
    assert!(
        said.contains("stepward.mark names another lineage"),
        "{said}"
    );
    // The same for a database that is older than lineages: the copy that an upgrade made.
    let old = tempfile::tempdir().unwrap();
    let database = Connection::open(old.path().join("stepward.db")).unwrap();
    let version_2 = include_str!("released/version-2.sql");
    database.execute_batch(version_2).unwrap();
    drop(database);
    for name in [MARK_FILE, "secret.key"] {
        fs::copy(folder.path().join(name), old.path().join(name)).unwrap();
    }
    let said = refused(&old);
    assert!(
        said.contains("stepward.mark names another lineage"),
        "{said}"
    );
}

#[test]
fn a_missing_or_torn_mark_keeps_nobody_out_and_is_written_again() {
    let damaged: [(Option<&[u8]>, &str); 5] = [
        (None, ""),
        (Some(b""), "stepward.mark is empty and is ignored; "),
        (
            Some(b"stepward-mark 1 torn"),
            "stepward.mark is damaged and",
        ),
        (Some(b"\0\0"), "stepward.mark is damaged and is ignored; "),
        (
            Some(b"\xFF\xFE"),
            "stepward.mark is damaged and is ignored;",
        ),
    ];
    for (content, told) in damaged {
        let folder = killed();
        let mark = folder.path().join(MARK_FILE);
        let whole = fs::read_to_string(&mark).unwrap();
        match content {
            None => fs::remove_file(&mark).unwrap(),
            Some(content) => fs::write(&mark, content).unwrap(),
        }
        let fault = mark_fault(folder.path());
        assert_eq!(fault.is_some(), content.is_some(), "{fault:?}");
        let fault = fault.unwrap_or_default();
        assert!(fault.contains(told), "{fault}");
        drop(open(folder.path()).unwrap());
        assert_eq!(fs::read_to_string(&mark).unwrap(), whole, "{content:?}");
        assert_eq!(mark_fault(folder.path()), None);
    }
}

/// No power failure leaves these, and without a mark nobody would notice that commits are lost.
#[test]
fn a_mark_that_is_no_regular_file_is_refused_and_nothing_waits_for_it() {
    type Harm = fn(&Path);
    let harms: [(Harm, &str); 4] = [
        (|mark| fs::create_dir(mark).unwrap(), "a folder"),
        (
            |mark| {
                let made = std::process::Command::new("mkfifo").arg(mark).status();
                assert!(made.unwrap().success());
            },
            "a device or a pipe",
        ),
        (
            |mark| std::os::unix::fs::symlink("nowhere", mark).unwrap(),
            "a symbolic link to a file that does not exist",
        ),
        (
            |mark| std::os::unix::fs::symlink("secret.key", mark).unwrap(),
            "a symbolic link",
        ),
    ];
    for (harm, kind) in harms {
        let folder = killed();
        let key = fs::read(folder.path().join("secret.key")).unwrap();
        let mark = folder.path().join(MARK_FILE);
        fs::remove_file(&mark).unwrap();
        harm(&mark);
        let told = format!(
            "{} is {kind}, and the server needs a regular file of this name: ",
            mark.display()
        );
        let said = open(folder.path()).err().unwrap().to_string();
        assert!(said.starts_with(&told), "{said}");
        assert_eq!(mark_fault(folder.path()), None);
        let stopped = Stopped::take(folder.path()).err().unwrap().to_string();
        assert_eq!(stopped, said);
        assert_eq!(fs::read(folder.path().join("secret.key")).unwrap(), key);
        match mark.is_symlink() || !mark.is_dir() {
            true => fs::remove_file(&mark).unwrap(),
            false => fs::remove_dir(&mark).unwrap(),
        }
        drop(open(folder.path()).unwrap());
    }
}

#[test]
fn each_commit_counts_on_from_the_number_that_is_in_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    record(&store, "one");
    // Another process has written the same database.
    let sql = Connection::open(folder.path().join("stepward.db")).unwrap();
    sql.execute("UPDATE server SET commit_number = 41", [])
        .unwrap();
    record(&store, "two");
    let kept: i64 = sql
        .query_row("SELECT commit_number FROM server", [], |row| row.get(0))
        .unwrap();
    let mark = fs::read_to_string(folder.path().join(MARK_FILE)).unwrap();
    let marked: i64 = mark.split_whitespace().nth(3).unwrap().parse().unwrap();
    let told = store
        .commit_number()
        .load(std::sync::atomic::Ordering::Acquire);
    assert_eq!((kept, marked, told), (42, 42, 42));
}

#[test]
fn the_mark_moves_with_every_commit_and_with_no_other_call() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    let mark = || fs::read_to_string(folder.path().join(MARK_FILE)).unwrap();
    let number = || -> i64 { mark().split_whitespace().nth(3).unwrap().parse().unwrap() };
    assert_eq!(number(), 0);
    record(&store, "one");
    assert_eq!(number(), 1);
    let nothing: Result<(), StoreError> = store.write(|_| Ok(()));
    nothing.unwrap();
    let failed: Result<(), StoreError> = store.write(|tx| {
        tx.record(&NewEvent::new(EventKind::WorkerActive, "undone"), NOW)?;
        Err(StoreError::Stopped)
    });
    failed.unwrap_err();
    record(&store, "two");
    let marked = number();
    let sql = Connection::open(folder.path().join("stepward.db")).unwrap();
    let kept: i64 = sql
        .query_row("SELECT commit_number FROM server", [], |row| row.get(0))
        .unwrap();
    assert_eq!((marked, kept), (2, 2));
}

#[test]
fn a_new_database_has_its_tables_without_its_write_ahead_log() {
    let folder = tempfile::tempdir().unwrap();
    let _store = open(folder.path()).unwrap();
    let copy = tempfile::tempdir().unwrap();
    let file = copy.path().join("stepward.db");
    fs::copy(folder.path().join("stepward.db"), &file).unwrap();
    let sql = Connection::open(&file).unwrap();
    let rows: i64 = sql
        .query_row("SELECT count(*) FROM server", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 1);
}

/// As version 0.1 left it when it was killed before its first checkpoint, or after a clean stop, and the log was removed.
#[test]
fn an_empty_database_beside_signs_of_a_server_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stepward.db");
    let sql = Connection::open(&file).unwrap();
    sql.pragma_update(None, "journal_mode", "WAL").unwrap();
    drop(sql);
    assert!(fs::metadata(&file).unwrap().len() > 0);
    let good = folder.path().join("workflows.good.json");
    fs::write(&good, "{}").unwrap();
    let said = open(folder.path()).err().unwrap().to_string();
    let told = "stepward.db is a database without tables, and workflows.good.json beside it";
    assert!(said.contains(told), "{said}");
    fs::remove_file(good).unwrap();
    drop(open(folder.path()).unwrap());
    fs::remove_file(folder.path().join(MARK_FILE)).unwrap();
    fs::create_dir_all(folder.path().join("logs/1")).unwrap();
    let said = open(folder.path()).err().unwrap().to_string();
    assert!(
        said.contains("in which there never was a job, and logs"),
        "{said}"
    );
    fs::remove_dir_all(folder.path().join("logs")).unwrap();
    // An empty file with a write-ahead log that holds something: SQLite would remove the log.
    let killed = killed();
    fs::remove_file(killed.path().join(MARK_FILE)).unwrap();
    fs::write(killed.path().join("stepward.db"), "").unwrap();
    let said = open(killed.path()).err().unwrap().to_string();
    assert!(
        said.contains("is empty, and stepward.db-wal beside it"),
        "{said}"
    );
    assert!(log(&killed).exists());
}
