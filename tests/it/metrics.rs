//! What is counted, story by story, in exact numbers. Every other story of the engine is held against the database when it ends.

use stepward::domain::JobId;
use stepward::domain::reason::Waiting;
use stepward::domain::retry::RetryPolicy;
use stepward::domain::step::StepState;
use stepward::engine::{HeldPhase, Verdict};
use stepward::logs::{LogLimits, Logs, Measure};
use stepward::metrics::text::Page;
use stepward::store::StoreError;

use crate::exposition::Exposition;
use crate::house::counted::written;
use crate::house::{TestHouse, script};
use crate::scheduler::{Timetable, schedule};

fn told(house: &TestHouse, family: &str) -> Vec<String> {
    written(house).told(&format!("stepward_{family}"))
}

#[test]
fn a_job_that_completes_counts_once_with_its_steps() {
    let house = TestHouse::new();
    house.submit(vec![script("a"), script("b").after(&["a"])]);
    house.run_all(&[]);
    assert_eq!(
        told(&house, "jobs_created_total"),
        ["{source=\"submit\"} 1"]
    );
    let completed = "{status=\"completed\",reason=\"none\"}";
    assert_eq!(
        told(&house, "jobs_finished_total"),
        [format!("{completed} 1")]
    );
    assert_eq!(
        told(&house, "steps_finished_total"),
        [format!("{completed} 2")]
    );
    assert_eq!(
        told(&house, "assignments_total"),
        ["{result=\"assigned\"} 2", "{result=\"started\"} 2"]
    );
}

#[test]
fn a_job_that_fails_counts_why_it_did_and_what_was_skipped() {
    let house = TestHouse::new();
    house.submit(vec![script("a"), script("b").after(&["a"])]);
    house.run_all(&["a"]);
    assert_eq!(
        told(&house, "jobs_finished_total"),
        ["{status=\"failed\",reason=\"exit_code\"} 1"]
    );
    assert_eq!(
        told(&house, "steps_finished_total"),
        [
            "{status=\"failed\",reason=\"exit_code\"} 1",
            "{status=\"skipped\",reason=\"dependency_not_accepted\"} 1"
        ]
    );
}

#[test]
fn waits_and_runs_are_measured_on_the_service_clock() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    house.clock.advance_ms(3_000);
    let worker = house.worker("w", &[], 1);
    let assignment = worker.begin();
    house.clock.advance_ms(20_000);
    worker.complete(assignment.attempt);
    let written = written(&house);
    assert_eq!(written.value("stepward_step_wait_seconds_sum"), 3.0);
    assert_eq!(
        written.value("stepward_step_wait_seconds_bucket{le=\"1\"}"),
        0.0
    );
    assert_eq!(
        written.value("stepward_step_wait_seconds_bucket{le=\"5\"}"),
        1.0
    );
    assert_eq!(written.value("stepward_step_duration_seconds_sum"), 20.0);
    assert_eq!(
        written.value("stepward_step_duration_seconds_bucket{le=\"15\"}"),
        0.0
    );
    assert_eq!(
        written.value("stepward_step_duration_seconds_bucket{le=\"60\"}"),
        1.0
    );
}

#[test]
fn a_retried_step_ends_once_and_runs_twice() {
    let house = TestHouse::new();
    let step = stepward::domain::task::StepDraft {
        retry: RetryPolicy {
            delay_ms: 60_000,
            ..RetryPolicy::times(2)
        },
        ..script("a")
    };
    house.submit(vec![step]);
    let worker = house.worker("w", &[], 1);
    worker.fail(worker.begin().attempt);
    house.clock.advance_ms(3_600_000);
    house.engine.release_due(house.now()).unwrap();
    worker.complete(worker.begin().attempt);
    let completed = "{status=\"completed\",reason=\"none\"} 1";
    assert_eq!(told(&house, "steps_finished_total"), [completed]);
    assert_eq!(told(&house, "step_duration_seconds_count"), ["2"]);
    // Its backoff is no waiting for a worker.
    assert_eq!(told(&house, "step_wait_seconds_count"), ["1"]);
}

#[test]
fn a_lost_worker_an_unmatched_step_and_a_late_report_count_once_each() {
    let house = TestHouse::new();
    let lost = house.submit(vec![script("a")]);
    let worker = house.worker("w", &[], 1);
    let assignment = worker.begin();
    house.submit(vec![stepward::domain::task::StepDraft {
        tags: vec!["gpu".to_string()],
        ..script("b")
    }]);
    house.clock.advance_ms(200_000);
    house.sweep();
    house.sweep();
    assert_eq!(house.step_state(lost, "a"), StepState::Failed);
    for _ in 0..2 {
        let late = worker.complete(assignment.attempt);
        assert!(!matches!(late, Verdict::Accepted), "{late:?}");
    }
    assert_eq!(
        told(&house, "recovery_actions_total"),
        [
            "{phase=\"1\",reason=\"worker_inactive\"} 1",
            "{phase=\"1\",reason=\"worker_lost\"} 1",
            "{phase=\"4\",reason=\"unmatched\"} 1"
        ]
    );
    let census = house.engine.census(house.now()).unwrap();
    assert_eq!(
        (census.workers_active, census.workers_inactive),
        (1, 0),
        "it spoke"
    );
}

#[test]
fn a_report_for_an_attempt_that_the_step_has_left_is_fenced_once() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let worker = house.worker("w", &[], 1);
    let first = worker.claim();
    worker.decline(first.attempt, "no room");
    house.clock.advance_ms(120_000);
    worker.heartbeat(1, &[]);
    let second = worker.begin();
    for _ in 0..2 {
        worker.complete(first.attempt);
    }
    worker.heartbeat(2, &[(second.attempt, HeldPhase::Running)]);
    assert_eq!(told(&house, "fenced_reports_total"), ["1"]);
    assert_eq!(
        told(&house, "assignments_total"),
        [
            "{result=\"assigned\"} 2",
            "{result=\"declined\"} 1",
            "{result=\"started\"} 1"
        ]
    );
    let census = house.engine.census(house.now()).unwrap();
    assert_eq!((census.slots_used, census.slots_free), (1, 0));
}

#[test]
fn what_is_undone_is_not_counted() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let undone: Result<(), stepward::engine::EngineError> = house.engine.store.write({
        let now = house.now();
        move |tx| {
            let job = tx
                .job(stepward::domain::JobId(1))?
                .expect("it was submitted");
            tx.cancel_steps(
                job.job_id,
                stepward::domain::reason::Reason::CancelledByUser,
                "no",
                now,
            )?;
            Err(stepward::store::StoreError::Lost.into())
        }
    });
    assert!(undone.is_err());
    assert_eq!(told(&house, "steps_finished_total"), Vec::<String>::new());
    house.run_all(&[]);
}

#[test]
fn due_times_of_a_schedule_count_by_what_became_of_them() {
    let table = Timetable::with(schedule("*/5 * * * *"));
    table.run(60_000, 11 * 60_000);
    let mut page = Page::default();
    table.house.engine.store.metrics().write(&mut page);
    let page = Exposition::read(&page.into_text());
    let fires = table.fires();
    assert!(fires.len() >= 2, "{}", fires.len());
    let made = page.value("stepward_jobs_created_total{source=\"schedule\"}");
    let fired = page.value("stepward_schedule_fires_total{result=\"fired\"}");
    let jobs = fires.iter().filter(|fire| fire.job_id.is_some()).count();
    assert_eq!((made, fired), (jobs as f64, jobs as f64));
    let told = page.told("stepward_schedule_fires_total");
    let counts = told
        .iter()
        .filter_map(|told| told.rsplit(' ').next()?.parse::<usize>().ok());
    assert_eq!(counts.sum::<usize>(), fires.len(), "{told:?}");
}

#[test]
fn logs_are_measured_a_few_files_at_a_time_and_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let logs = Logs::open(folder.path(), LogLimits::default()).unwrap();
    let mut measure = Measure::default();
    assert_eq!(logs.bytes_kept(), None, "nobody has looked");
    logs.measure(&mut measure).unwrap();
    assert_eq!(logs.bytes_kept(), Some(0));
    for job in 0..300 {
        let job = folder.path().join(job.to_string());
        std::fs::create_dir(&job).unwrap();
        std::fs::write(job.join("1.1.log"), "seven..").unwrap();
    }
    // It rests, then it goes through 600 names and as many ends of folders.
    let looks = (1..100).find(|_| {
        logs.measure(&mut measure).unwrap();
        logs.bytes_kept() != Some(0)
    });
    assert!(looks.is_some_and(|looks| looks > 4), "{looks:?}");
    assert_eq!(logs.bytes_kept(), Some(2_100));
    std::fs::remove_dir_all(folder.path().join("7")).unwrap();
    let shrunk = (1..100).any(|_| {
        logs.measure(&mut measure).unwrap();
        logs.bytes_kept() == Some(2_093)
    });
    assert!(shrunk);
}

#[test]
fn the_oldest_step_of_the_queue_is_told_by_why_it_waits() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    house.clock.advance_ms(5_000);
    house.submit(vec![script("b")]);
    house.clock.advance_ms(2_000);
    let oldest = |waiting: Waiting| {
        let census = house.engine.census(house.now()).unwrap();
        census.oldest_ms[waiting as usize]
    };
    assert_eq!(oldest(Waiting::NoMatchingWorker), 7_000);
    let ann = house.worker("ann", &[], 1);
    assert_eq!(oldest(Waiting::NoMatchingWorker), 0);
    assert_eq!(oldest(Waiting::Claimable), 7_000);
    ann.begin();
    assert_eq!(oldest(Waiting::Claimable), 0);
    assert_eq!(oldest(Waiting::WorkersBusy), 2_000);
}

#[test]
fn heartbeats_are_measured_by_how_long_the_worker_was_not_heard() {
    let house = TestHouse::new();
    let ann = house.worker("ann", &[], 1);
    for (seq, ms) in [(1, 20_000), (2, 40_000)] {
        house.clock.advance_ms(ms);
        ann.heartbeat(seq, &[]);
    }
    house.clock.advance_ms(120_000);
    house.sweep();
    ann.heartbeat(3, &[]);
    let written = written(&house);
    let upto = |le: &str| {
        written.value(&format!(
            "stepward_heartbeat_age_seconds_bucket{{le=\"{le}\"}}"
        ))
    };
    assert_eq!(
        (upto("15"), upto("30"), upto("45"), upto("120")),
        (0.0, 1.0, 2.0, 3.0)
    );
}

#[test]
fn errors_of_the_store_are_counted_by_kind() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let sql = rusqlite::Connection::open(house.database()).unwrap();
    let poison = |word: Option<&str>| {
        sql.execute("UPDATE step SET reason = ?1", [word]).unwrap();
    };
    poison(Some("rubbish"));
    house.engine.job(job).unwrap_err();
    poison(None);
    let bug = house
        .engine
        .store
        .write(|_| -> Result<(), StoreError> { panic!("planted") });
    bug.unwrap_err();
    // What a caller did wrong is no error of the store.
    house.engine.job(JobId(77)).unwrap_err();
    assert_eq!(
        told(&house, "store_errors_total"),
        ["{kind=\"panicked\"} 1", "{kind=\"unreadable\"} 1"]
    );
}
