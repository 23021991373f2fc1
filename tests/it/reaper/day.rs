//! A day of load, with bounds of hours where others have days: what is kept stays as much as the bounds say, and no more.

use std::fs;

use stepward::domain::event::EventKind;
use stepward::domain::outbox::{Sent, Target};
use stepward::domain::retention::Retention;
use stepward::domain::retry::RetryPolicy;
use stepward::domain::schedule::{Overlap, ScheduleDraft};
use stepward::domain::task::{StepDraft, TaskDraft};
use stepward::domain::{AttemptRef, JobId};
use stepward::engine::{Due, Finished, News, Reports, Retry, RetryScope, Submission, Verdict};
use stepward::store::{Frozen, StoreError};

use super::{Attic, HOUR};
use crate::house::{TestHouse, TestWorker, frozen, script};
use crate::scheduler::schedule;

/// The day is played in so many pieces, of ten minutes each.
const PIECES: i64 = 24 * 6;
const PIECE_MS: i64 = 10 * 60_000;
/// Roots; each has a child, and some are retried.
const JOBS_A_PIECE: i64 = 28;

const BOUNDS: Retention = Retention {
    job_ms: 2 * HOUR,
    log_ms: HOUR,
    event_ms: 2 * HOUR,
    audit_ms: 2 * HOUR,
    message_ms: HOUR,
    key_ms: 2 * HOUR,
    fire_ms: 2 * HOUR,
    worker_ms: HOUR,
};

/// What may be there at a time: a bound, an hour between milestones, and the time between rounds.
const KEPT_PIECES: i64 = (2 + 1) * 6 + 1;

#[test]
fn a_day_of_load_leaves_no_more_than_the_bounds_say() {
    let attic = Attic::keeping(BOUNDS);
    let house = &attic.house;
    let tell = Target {
        on: vec![EventKind::JobFailed],
        ..Target::of_hooks("tell")
    };
    house.engine.set_targets(vec![tell]);
    let timer = ScheduleDraft {
        overlap: Overlap::Allow,
        ..schedule("* * * * *")
    };
    house
        .engine
        .set_schedules(&[timer], true, house.now())
        .unwrap();
    let task = frozen(tasks("main"));
    let scheduled = |name: &str| Some(&task).filter(|_| name == "main").cloned();

    let mut sizes: Vec<u64> = Vec::new();
    for piece in 0..PIECES {
        house.clock.advance_ms(PIECE_MS);
        house.engine.fire_due(house.now(), &scheduled).unwrap();
        std::thread::scope(|scope| {
            for some in 0..7 {
                let (attic, task) = (&attic.house, &task);
                scope.spawn(move || {
                    let numbers = (0..JOBS_A_PIECE).filter(|number| number % 7 == some);
                    numbers.for_each(|number| submit(attic, task, piece, number));
                });
            }
        });
        // A worker that is new every hour, and restarts all the time.
        let name = format!("worker-{}", piece / 6);
        let (worker, _) = house.session(&name, &[], 1_000, Vec::new());
        run_all(&worker);
        if piece % 7 == 0 {
            let last = house.engine.store.read(|tx| tx.latest_job());
            let last: JobId = last.map_err(|error: StoreError| error).unwrap().unwrap();
            let retry = Retry::of(last, RetryScope::All);
            house.engine.retry(retry, house.now()).unwrap();
            run_all(&worker);
        }
        while let Due::Now(due) = house.engine.next_message("tell", house.now()).unwrap() {
            let sent = Sent::delivered(200, "told");
            (house.engine)
                .tell_delivery(due.message, sent, 1, house.now())
                .unwrap();
        }
        house.sweep();
        attic.reap();
        if piece % 6 == 5 {
            sizes.push(fs::metadata(house.database()).unwrap().len());
        }
    }
    attic.reap();

    // A child and perhaps a retry each, of which the former must stay as long.
    let jobs_max = KEPT_PIECES * (JOBS_A_PIECE + 2) * 2;
    let within = |table: &str, most: i64| {
        let count = attic.count(table);
        assert!(count <= most, "{count} rows of {table}, at most {most}");
    };
    within("job", jobs_max);
    within("step", jobs_max * 2);
    within("event", jobs_max * 4);
    within("former_attempt", jobs_max);
    within("idempotency", KEPT_PIECES * JOBS_A_PIECE);
    within("outbox", KEPT_PIECES * (JOBS_A_PIECE + 2));
    within("delivery", KEPT_PIECES * (JOBS_A_PIECE + 2));
    within("schedule_fire", KEPT_PIECES * 11);
    within("worker", KEPT_PIECES / 6 + 3);
    within("session", KEPT_PIECES * 2);
    within("milestone", 5);
    within("definition", KEPT_PIECES / 6 + 3);
    let made = "SELECT seq FROM sqlite_sequence WHERE name = 'job'";
    let made: i64 = attic.sql().query_row(made, [], |row| row.get(0)).unwrap();
    assert!(made >= PIECES * JOBS_A_PIECE * 2, "{made} jobs were made");

    // Of the file nothing is left of the day: as large as after the first hours.
    let (early, late) = (sizes[5], *sizes.last().unwrap());
    assert!(
        late <= early + early / 2,
        "{early} bytes, then {late}: {sizes:?}"
    );
    let log = house.database().with_extension("db-wal");
    let log_bytes = fs::metadata(log).map_or(0, |found| found.len());
    assert!(log_bytes <= 64 << 20, "{log_bytes}");
}

fn tasks(name: &str) -> Vec<TaskDraft> {
    let flaky = StepDraft {
        retry: RetryPolicy::times(2),
        ..script("flaky").after(&["a"])
    };
    vec![
        TaskDraft::new(
            name,
            vec![script("a"), flaky, StepDraft::task("go", "inner")],
        ),
        TaskDraft::new("inner", vec![script("b")]),
    ]
}

/// Every hour somebody has edited the file.
fn submit(house: &TestHouse, task: &Frozen, piece: i64, number: i64) {
    let edited = || frozen(tasks(&format!("edited-{}", piece / 6)));
    let task = match number {
        0 => &edited(),
        _ => task,
    };
    let submission = Submission {
        idempotency_key: (number % 2 == 0).then(|| format!("{piece}-{number}")),
        ..Submission::of(task)
    };
    house.submission(submission).unwrap();
}

/// All that is there to do, in few calls. The first attempt of a flaky step fails.
fn run_all(worker: &TestWorker) {
    let report = |items: Vec<(AttemptRef, News)>| {
        let reports = Reports {
            session_key: worker.key.clone(),
            items,
            poll: None,
        };
        let answer = worker.house.engine.report(reports, worker.house.now());
        let verdicts = answer.unwrap().verdicts;
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted));
    };
    loop {
        let given = worker.poll(1_000, &[]).assignments;
        if given.is_empty() {
            return;
        }
        let started = given.iter().map(|one| (one.attempt, News::Started));
        report(started.collect());
        let finished = given.iter().map(|one| {
            let finished = match one.step.as_str() {
                "flaky" if one.attempt.step_id.0 % 10 == 0 => Finished::exited(1),
                _ => Finished::completed(),
            };
            (one.attempt, News::Finished(finished))
        });
        report(finished.collect());
        // Those that are tried again wait for a moment.
        worker.house.clock.advance_ms(1_000);
        worker.house.engine.release_due(worker.house.now()).unwrap();
    }
}
