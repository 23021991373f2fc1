//! What is too old goes, what is needed stays, and the rest of the house does not notice.

mod clock;
mod day;
mod jobs;
mod others;
mod space;

use std::cell::RefCell;
use std::collections::BTreeMap;

use rusqlite::Connection;
use stepward::domain::retention::Retention;
use stepward::domain::{AttemptRef, JobId};
use stepward::logs::{LogLimits, Logs};
use stepward::reaper::{Kind, Reaping, Round};
use tempfile::TempDir;

use crate::house::{TestHouse, script};

pub const HOUR: i64 = 3_600_000;
pub const DAY: i64 = 24 * HOUR;

/// A house in which things grow old.
pub struct Attic {
    /// Holds the engine too, so it is dropped before the house removes the database.
    pub reaping: RefCell<Reaping>,
    pub house: TestHouse,
    pub logs: Logs,
    folder: TempDir,
    retention: Retention,
}

impl Attic {
    pub fn new() -> Attic {
        Attic::keeping(Retention::default())
    }

    pub fn keeping(retention: Retention) -> Attic {
        Attic::of(TestHouse::new(), retention)
    }

    pub fn of(house: TestHouse, retention: Retention) -> Attic {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::open(folder.path(), LogLimits::default()).unwrap();
        let reaping = Reaping::new(house.engine.clone(), logs.clone(), retention);
        let attic = Attic {
            reaping: RefCell::new(reaping),
            house,
            logs,
            folder,
            retention,
        };
        attic.reap();
        attic
    }

    /// As after a start: it knows nothing of what it did.
    pub fn restart(&self) {
        let (engine, logs) = (self.house.engine.clone(), self.logs.clone());
        *self.reaping.borrow_mut() = Reaping::new(engine, logs, self.retention);
    }

    pub fn reap_once(&self) -> Round {
        let round = self.reaping.borrow_mut().reap_once(self.house.now());
        let round = round.unwrap();
        assert!(round.failures.is_empty(), "{:?}", round.failures);
        round
    }

    /// Until there is nothing more to do. How many of each kind went.
    pub fn reap(&self) -> BTreeMap<Kind, usize> {
        let mut removed = BTreeMap::new();
        for _ in 0..100_000 {
            let round = self.reap_once();
            for (kind, count) in &round.removed {
                *removed.entry(*kind).or_default() += count;
            }
            if !round.more {
                return removed;
            }
        }
        panic!("it does not end");
    }

    /// Time passes, and the reaper does what it does.
    pub fn pass(&self, ms: i64) -> BTreeMap<Kind, usize> {
        let mut removed = BTreeMap::new();
        let mut left = ms;
        while left > 0 {
            let some = left.min(6 * HOUR);
            self.house.clock.advance_ms(some);
            left -= some;
            for (kind, count) in self.reap() {
                *removed.entry(kind).or_default() += count;
            }
        }
        removed
    }

    pub fn exists(&self, job_id: JobId) -> bool {
        self.house.engine.job(job_id).is_ok()
    }

    /// A job of one step that ran and printed something.
    pub fn done_job(&self) -> JobId {
        let job_id = self.house.submit(vec![script("a")]);
        self.house.run_all(&[]);
        self.print(job_id);
        job_id
    }

    pub fn print(&self, job_id: JobId) {
        let attempt = self.attempt(job_id);
        (self.logs)
            .append(job_id, attempt, 0, b"1 o hello\n")
            .unwrap();
    }

    pub fn has_log(&self, job_id: JobId) -> bool {
        self.folder.path().join(job_id.to_string()).exists()
    }

    fn attempt(&self, job_id: JobId) -> AttemptRef {
        self.house.step(job_id, "a").attempt_ref()
    }

    pub fn sql(&self) -> Connection {
        Connection::open(self.house.database()).unwrap()
    }

    pub fn count(&self, table: &str) -> i64 {
        let query = format!("SELECT count(*) FROM {table}");
        self.sql().query_row(&query, [], |row| row.get(0)).unwrap()
    }
}
