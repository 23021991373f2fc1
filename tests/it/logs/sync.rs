//! What was appended is synced soon after, by someone else than who appends.

use stepward::domain::{AttemptRef, StepId};
use stepward::logs::LogLimits;

use super::{JOB, LogRoom, numbered, open_files, record};

#[test]
fn what_has_grown_is_synced_once_and_a_new_file_with_its_folders() {
    let room = LogRoom::new();
    assert_eq!(room.logs.unsynced(), 0);
    room.send(&numbered(10));
    room.send(&numbered(10));
    assert_eq!(room.logs.unsynced(), 1, "however often it grew");
    let report = room.logs.sync_once();
    assert_eq!((report.logs, report.folders), (1, 2), "{report:?}");
    let report = room.logs.sync_once();
    assert_eq!((report.logs, report.folders), (0, 0), "{report:?}");

    room.send(&numbered(10));
    room.tail(10);
    let report = room.logs.sync_once();
    assert_eq!((report.logs, report.folders), (1, 0), "{report:?}");
    assert!(report.failures.is_empty());
}

#[test]
fn logs_that_wait_for_their_sync_are_not_kept_open() {
    let room = LogRoom::with(LogLimits {
        open_logs_max: 3,
        ..LogLimits::default()
    });
    for step_id in 0..10 {
        let attempt = AttemptRef {
            step_id: StepId(step_id),
            attempt: 1,
        };
        let text = record(1, 'o', "one");
        room.logs.append(JOB, attempt, 0, &text).unwrap();
        assert!(open_files(&room.path()) <= 3);
    }
    let report = room.logs.sync_once();
    assert_eq!((report.logs, report.folders), (10, 2));
    assert!(open_files(&room.path()) <= 3);
}

#[test]
fn a_sync_that_fails_is_told_and_tried_again() {
    let room = LogRoom::new();
    std::fs::create_dir(room.path().join("7")).unwrap();
    // It takes everything, and cannot be synced.
    std::os::unix::fs::symlink("/dev/null", room.file("log")).unwrap();
    room.append(0, b"1 o one\n").unwrap();
    for _ in 0..2 {
        let report = room.logs.sync_once();
        assert_eq!((report.logs, report.failures.len()), (0, 1));
        let told = report.failures[0].to_string();
        assert!(told.contains("7/42.1.log: Invalid argument"), "{told}");
    }
    assert_eq!(room.logs.unsynced(), 1);
}

#[test]
fn a_log_that_is_gone_needs_no_sync() {
    let room = LogRoom::holding(&numbered(5));
    room.logs.remove_job(JOB).unwrap();
    let report = room.logs.sync_once();
    assert_eq!(report.logs, 0);
    assert!(report.failures.is_empty(), "{report:?}");
    assert_eq!(room.logs.unsynced(), 0);
}
