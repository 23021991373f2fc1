//! The disk gets back what is not needed: the file shrinks, its log stays short, and removing costs no look at everything.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::{Connection, StatementStatus};
use stepward::domain::Json;
use stepward::domain::task::TaskDraft;
use stepward::engine::{EngineError, Submission};
use stepward::reaper::Kind;
use stepward::store::{Store, StoreOptions, compact};

use super::{Attic, DAY};
use crate::house::{frozen, script, taking};

/// Jobs whose inputs take room.
fn fill(attic: &Attic, jobs: usize) {
    let task = frozen(vec![taking(&["text"], vec![script("a")])]);
    for _ in 0..jobs {
        let input = serde_json::json!({ "text": "x".repeat(60_000) });
        let submission = Submission {
            input: Json(input.to_string()),
            ..Submission::of(&task)
        };
        attic.house.submission(submission).unwrap();
    }
    attic.house.run_all(&[]);
}

#[test]
fn the_file_shrinks_when_its_jobs_are_gone() {
    let attic = Attic::new();
    fill(&attic, 400);
    let size = || {
        let store = &attic.house.engine.store;
        store.read(|tx| tx.file_size()).unwrap()
    };
    let full = size();
    assert!(full.pages > 4_000, "{full:?}");
    let removed = attic.pass(91 * DAY);
    assert_eq!(removed.get(&Kind::Jobs), Some(&400));
    let left = size();
    assert!(left.pages < full.pages / 3, "{left:?} of {full:?}");
    assert!(left.free_pages <= 1_000, "{left:?}");
}

#[test]
fn a_file_that_was_made_before_it_could_shrink_is_rewritten_when_somebody_asks() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(folder.path(), StoreOptions::default()).unwrap());
    let file = folder.path().join("stepward.db");
    let sql = Connection::open(&file).unwrap();
    // As the first versions made it, and with free pages in it.
    sql.pragma_update(None, "journal_mode", "DELETE").unwrap();
    sql.pragma_update(None, "auto_vacuum", "NONE").unwrap();
    sql.execute_batch(
        "VACUUM;
         INSERT INTO definition (hash, body)
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
         SELECT i, hex(zeroblob(2000)) FROM n;
         DELETE FROM definition;",
    )
    .unwrap();
    drop(sql);
    let before = fs::metadata(&file).unwrap().len();
    let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
    let size = store.read(|tx| tx.file_size()).unwrap();
    assert!(!size.shrinks && size.free_bytes() > 4_000_000, "{size:?}");
    drop(store);
    compact(folder.path()).unwrap();
    assert!(fs::metadata(&file).unwrap().len() < before / 4);
    let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
    let size = store.read(|tx| tx.file_size()).unwrap();
    assert!(size.shrinks && size.free_pages == 0, "{size:?}");
}

/// Readers that overlap each other: without care the log never begins anew, and grows for ever.
#[test]
fn the_log_of_the_database_stays_short_though_somebody_always_reads() {
    let attic = Attic::new();
    let stop = AtomicBool::new(false);
    let store = attic.house.engine.store.clone();
    let bytes = || {
        let log = attic.house.database().with_extension("db-wal");
        fs::metadata(log).map_or(0, |found| found.len())
    };
    let mut most = 0;
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                // One after another, so that there is always one who began long ago.
                std::thread::sleep(Duration::from_millis(number * 65));
                while !stop.load(Ordering::Relaxed) {
                    let read = store.read(|tx| {
                        tx.last_change()?;
                        std::thread::sleep(Duration::from_millis(200));
                        Ok::<_, EngineError>(())
                    });
                    read.unwrap();
                }
            });
        }
        let task = frozen(vec![taking(&["text"], vec![script("a")])]);
        let input = serde_json::json!({ "text": "x".repeat(900_000) }).to_string();
        for _ in 0..250 {
            let submission = Submission {
                input: Json(input.clone()),
                ..Submission::of(&task)
            };
            attic.house.submission(submission).unwrap();
            most = most.max(bytes());
        }
        stop.store(true, Ordering::Relaxed);
    });
    // 64 MB, what comes until the next look, and as much again for a machine that is busy.
    assert!(
        most <= 150 << 20,
        "{most} bytes of more than 200 MB that were written"
    );
}

/// References are looked up by an index when what they point to goes; no plan tells of it.
#[test]
fn removing_a_row_looks_through_no_table_for_those_that_refer_to_it() {
    let attic = Attic::new();
    let inner = TaskDraft::new("inner", vec![script("b")]);
    for _ in 0..30 {
        let go = stepward::domain::task::StepDraft::task("go", "inner");
        attic
            .house
            .submit_tasks(vec![TaskDraft::new("main", vec![go]), inner.clone()]);
    }
    attic.house.run_all(&[]);
    let sql = attic.sql();
    sql.pragma_update(None, "foreign_keys", true).unwrap();
    // Of the group commit none is left over: what is asked here is the cost, and nothing of it is kept.
    sql.execute_batch("BEGIN; DELETE FROM former_attempt; UPDATE job SET failed_step_id = NULL; UPDATE step SET child_job_id = NULL; UPDATE worker SET session_id = NULL; DELETE FROM capability;").unwrap();
    for statement in [
        "DELETE FROM job WHERE job_id = (SELECT max(job_id) + 1 FROM job)",
        "DELETE FROM step WHERE step_id = (SELECT max(step_id) FROM step)",
        "DELETE FROM job WHERE job_id = (SELECT max(job_id) FROM job)",
        "DELETE FROM session WHERE session_id = (SELECT max(session_id) FROM session)",
        "DELETE FROM worker WHERE worker_id = (SELECT max(worker_id) FROM worker)",
        "DELETE FROM definition WHERE definition_id = (SELECT max(definition_id) + 1 FROM definition)",
        "DELETE FROM outbox WHERE outbox_id = 1",
    ] {
        let mut statement_run = sql.prepare(statement).unwrap();
        let ran = statement_run.execute([]);
        let scanned = statement_run.get_status(StatementStatus::FullscanStep);
        assert_eq!(scanned, 0, "{statement}: {ran:?}");
    }
    sql.execute_batch("ROLLBACK").unwrap();
}
