//! A day of load, with bounds of hours where others have days: what is kept stays as much as the bounds say, and no more.

use std::fs;

use stepward::domain::event::EventKind;
use stepward::domain::outbox::{Sent, Target};
use stepward::domain::retention::Retention;
use stepward::domain::retry::RetryPolicy;
use stepward::domain::schedule::{Overlap, ScheduleDraft};
use stepward::domain::task::{StepDraft, TaskDraft};
use stepward::engine::{Due, Retry, RetryScope, Submission};
use stepward::store::Frozen;

use super::{Attic, HOUR};
use crate::house::{frozen, script};
use crate::scheduler::schedule;

/// Of simulated minutes.
const MINUTES: i64 = 24 * 60;
const JOBS_A_MINUTE: i64 = 12;

const BOUNDS: Retention = Retention {
    job_ms: 2 * HOUR,
    log_ms: HOUR,
    event_ms: 2 * HOUR,
    message_ms: HOUR,
    key_ms: 2 * HOUR,
    fire_ms: 2 * HOUR,
    worker_ms: HOUR,
};

/// What may be there at a time: a bound, an hour between milestones, and the minutes between rounds.
const KEPT_MINUTES: i64 = (2 + 1) * 60 + 10;

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
    for minute in 0..MINUTES {
        house.clock.advance_ms(60_000);
        house.engine.fire_due(house.now(), &scheduled).unwrap();
        for number in 1..JOBS_A_MINUTE {
            submit(&attic, &task, minute, number);
        }
        // A worker that is new every hour, and restarts every ten minutes.
        let worker = format!("worker-{}", minute / 60);
        let (worker, _) = house.session(&worker, &[], 200, Vec::new());
        worker.run_all(&["flaky"]);
        if minute % 7 == 0 {
            let last = house.engine.store.read(|tx| tx.latest_job()).unwrap();
            let retry = Retry::of(last.unwrap(), RetryScope::All);
            house.engine.retry(retry, house.now()).unwrap();
            worker.run_all(&[]);
        }
        while let Due::Now(due) = house.engine.next_message("tell", house.now()).unwrap() {
            let sent = Sent::delivered(200, "told");
            (house.engine)
                .tell_delivery(due.message, sent, 1, house.now())
                .unwrap();
        }
        if minute % 5 == 0 {
            house.sweep();
            attic.reap();
        }
        if minute % 60 == 59 {
            sizes.push(fs::metadata(house.database()).unwrap().len());
        }
    }
    attic.reap();

    let jobs_max = KEPT_MINUTES * (JOBS_A_MINUTE + 1) * 2;
    let within = |table: &str, most: i64| {
        let count = attic.count(table);
        assert!(count <= most, "{count} rows of {table}, at most {most}");
    };
    within("job", jobs_max);
    within("step", jobs_max * 3);
    within("event", jobs_max * 12);
    within("idempotency", KEPT_MINUTES * JOBS_A_MINUTE);
    within("outbox", KEPT_MINUTES * JOBS_A_MINUTE);
    within("schedule_fire", KEPT_MINUTES * 2);
    within("worker", 24);
    within("session", KEPT_MINUTES * 2);
    within("milestone", 5);
    within("definition", KEPT_MINUTES / 60 + 4);
    let made: i64 = attic
        .sql()
        .query_row(
            "SELECT seq FROM sqlite_sequence WHERE name = 'job'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(made > MINUTES * JOBS_A_MINUTE, "{made} jobs were made");

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
fn submit(attic: &Attic, task: &Frozen, minute: i64, number: i64) {
    let edited;
    let task = match number {
        1 => {
            edited = frozen(tasks(&format!("edited-{}", minute / 60)));
            &edited
        }
        _ => task,
    };
    let key = (number % 2 == 0).then(|| format!("{minute}-{number}"));
    attic
        .house
        .submission(Submission {
            idempotency_key: key,
            ..Submission::of(task)
        })
        .unwrap();
}
