//! Lists of jobs find what fits, page by page, however long the history is.

use rusqlite::Connection;
use stepward::domain::job::{JobFilter, JobState, Source};
use stepward::domain::outbox::MessageState;
use stepward::domain::reason::Reason;
use stepward::domain::{JobId, OutboxId, Timestamp};
use stepward::store::{MessageFilter, Store};
use tempfile::TempDir;

/// Inserts jobs past all guards. `columns` selects task, state, reason and source of job `n`, counted from 0.
pub fn fill(sql: &Connection, count: u32, columns: &str) {
    sql.execute_batch(&format!(
        "INSERT INTO definition (hash, body) VALUES ('listed', '[]') ON CONFLICT DO NOTHING;
         WITH RECURSIVE
             number (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n < {count} - 1),
             made (n, task, state, reason, source) AS (SELECT n, {columns} FROM number)
         INSERT INTO job (definition_id, task_index, task, state, reason, message, source, input, labels, priority, depth,
                          steps_open, change_seq, created_at, started_at, ended_at, since_up)
         SELECT (SELECT definition_id FROM definition WHERE hash = 'listed'), 0, task, state, reason,
                iif(reason IS NULL, NULL, 'because'), source, '{{}}', '{{}}', 0, 0, 0, 1, 1000 + n,
                iif(state IN ('pending', 'skipped'), NULL, 1000 + n), iif(state IN ('pending', 'running'), NULL, 1000 + n), 0
           FROM made ORDER BY n"
    ))
    .unwrap();
}

fn filled(count: u32, columns: &str) -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(folder.path(), Default::default()).unwrap());
    let sql = Connection::open(folder.path().join("stepward.db")).unwrap();
    fill(&sql, count, columns);
    drop(sql);
    let store = Store::open(folder.path(), Default::default()).unwrap();
    (folder, store)
}

/// The ids of one page, and where the next one begins.
fn page(store: &Store, before: i64, filter: &JobFilter, limit: u32) -> (Vec<i64>, Option<i64>) {
    let page = store.read(|tx| tx.jobs_before(JobId(before), filter, limit));
    let (jobs, next) = page.unwrap();
    let ids = jobs.iter().map(|job| job.job_id.0).collect();
    (ids, next.map(|next| next.0))
}

#[test]
fn a_state_is_found_behind_a_long_history() {
    let columns = "'main', iif(n = 7, 'running', 'completed'), NULL, 'submit'";
    let (_folder, store) = filled(10_500, columns);
    let running = JobFilter {
        state: Some(JobState::Running),
        ..JobFilter::default()
    };
    assert_eq!(page(&store, i64::MAX, &running, 50), (vec![8], None));
    let pending = JobFilter {
        state: Some(JobState::Pending),
        ..JobFilter::default()
    };
    assert_eq!(page(&store, i64::MAX, &pending, 50), (vec![], None));
}

/// Every combination of conditions gives what a look at each job gives, on full pages.
#[test]
fn every_filter_finds_all_that_fits_on_full_pages() {
    let columns = "
        CASE n % 7 WHEN 0 THEN 'rare' ELSE 'main' END,
        CASE n % 5 WHEN 0 THEN 'failed' WHEN 1 THEN 'cancelled' WHEN 2 THEN 'running' ELSE 'completed' END,
        CASE n % 5 WHEN 0 THEN iif(n % 3 = 0, 'worker_lost', 'exit_code') WHEN 1 THEN 'cancelled_by_user' END,
        CASE n % 11 WHEN 0 THEN 'schedule' WHEN 1 THEN 'webhook' ELSE 'submit' END";
    let (_folder, store) = filled(1_000, columns);
    let (everything, none) = store
        .read(|tx| tx.jobs_before(JobId(i64::MAX), &JobFilter::default(), 1_000))
        .unwrap();
    assert_eq!((everything.len(), none), (1_000, None));
    let states = [None, Some(JobState::Failed), Some(JobState::Completed)];
    let tasks = [None, Some("rare"), Some("main"), Some("nothing")];
    let reasons = [None, Some(Reason::WorkerLost), Some(Reason::StepTimeout)];
    let sources = [None, Some(Source::Schedule), Some(Source::Submit)];
    let sinces = [None, Some(Timestamp(1_000 + 400))];
    let mut filters = Vec::new();
    for state in states {
        for task in tasks {
            for reason in reasons {
                for source in sources {
                    filters.extend(sinces.iter().map(|&since| JobFilter {
                        state,
                        task: task.map(str::to_string),
                        reason,
                        source,
                        since,
                    }));
                }
            }
        }
    }
    for filter in filters {
        let fits = everything.iter().filter(|job| {
            filter.state.is_none_or(|state| job.state == state)
                && filter.task.as_ref().is_none_or(|task| job.task == *task)
                && (filter.reason.is_none() || job.reason == filter.reason)
                && filter.source.is_none_or(|source| job.source == source)
                && filter.since.is_none_or(|since| job.created_at >= since)
        });
        let expected: Vec<i64> = fits.map(|job| job.job_id.0).collect();
        let (mut found, mut before) = (Vec::new(), Some(i64::MAX));
        while let Some(begin) = before {
            let (ids, next) = page(&store, begin, &filter, 10);
            assert_eq!(
                next.is_some(),
                expected.len() > found.len() + 10,
                "{filter:?}"
            );
            assert!(next.is_none() || ids.len() == 10, "{filter:?}");
            found.extend(ids);
            before = next;
        }
        assert_eq!(found, expected, "{filter:?}");
    }
}

/// The same for messages: 12,000 newer ones that were delivered do not hide the few that were given up.
#[test]
fn messages_are_found_behind_a_long_history_on_full_pages() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(folder.path(), Default::default()).unwrap());
    let sql = Connection::open(folder.path().join("stepward.db")).unwrap();
    sql.execute_batch(
        "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 12000)
         INSERT INTO outbox (outbox_id, event_seq, target, state, attempts, created_at, delivered_at, last_error)
         SELECT n, n, iif(n % 3, 'ops', 'mail'), iif(n < 8, 'given_up', 'delivered'), 1, 0, iif(n < 8, NULL, 1), 'no'
           FROM number",
    )
    .unwrap();
    drop(sql);
    let store = Store::open(folder.path(), Default::default()).unwrap();
    let list = |state: Option<MessageState>, target: Option<&str>, before: i64, limit: u32| {
        let filter = MessageFilter {
            state,
            target: target.map(str::to_string),
            job_id: None,
        };
        let page = store.read(|tx| tx.messages_before(OutboxId(before), &filter, limit));
        let (messages, next) = page.unwrap();
        let ids: Vec<i64> = messages.iter().map(|it| it.outbox_id.0).collect();
        (ids, next.map(|next| next.0))
    };
    let given_up = Some(MessageState::GivenUp);
    assert_eq!(
        list(given_up, None, i64::MAX, 4),
        (vec![7, 6, 5, 4], Some(4))
    );
    assert_eq!(list(given_up, None, 4, 3), (vec![3, 2, 1], None));
    assert_eq!(
        list(given_up, Some("mail"), i64::MAX, 5),
        (vec![6, 3], None)
    );
    assert_eq!(list(None, Some("mail"), 10, 2), (vec![9, 6], Some(6)));
    assert_eq!(list(None, Some("mail"), 6, 2), (vec![3], None));
    assert_eq!(list(None, Some("nobody"), i64::MAX, 2), (vec![], None));
    assert_eq!(list(None, None, 4, 2), (vec![3, 2], Some(2)));
    let pending = Some(MessageState::Pending);
    assert_eq!(list(pending, None, i64::MAX, 4), (vec![], None));
}
