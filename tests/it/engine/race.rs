//! Many at once: one winner, one cascade, one event, one outbox row.

use std::sync::Barrier;

use stepward::domain::event::EventKind;
use stepward::domain::task::{Hook, HookDoes, HookOn, TaskDraft};
use stepward::engine::{Finished, Verdict};

use crate::house::{TestHouse, script};

#[test]
fn two_racing_terminal_reports_have_one_winner() {
    let house = TestHouse::new();
    let worker = house.worker("ann", &[], 1);
    for _ in 0..100 {
        let hook = |on| Hook {
            on,
            does: HookDoes::Notify {
                target: "tell".to_string(),
            },
        };
        let job = house.submit_tasks(vec![TaskDraft {
            hooks: vec![hook(HookOn::Success), hook(HookOn::Error)],
            ..TaskDraft::new("main", vec![script("a"), script("b").after(&["a"])])
        }]);
        let claimed = worker.begin();
        let barrier = Barrier::new(2);
        let report = |finished: Finished| {
            barrier.wait();
            worker.finish(claimed.attempt, finished)
        };
        let (good, bad) = std::thread::scope(|scope| {
            let good = scope.spawn(|| report(Finished::completed()));
            let bad = scope.spawn(|| report(Finished::exited(1)));
            (good.join().unwrap(), bad.join().unwrap())
        });
        let accepted = [&good, &bad]
            .into_iter()
            .filter(|verdict| **verdict == Verdict::Accepted)
            .count();
        assert_eq!(accepted, 1, "{good:?} {bad:?}");
        let outbox = || {
            house
                .outbox()
                .into_iter()
                .filter(|message| message.job_id == Some(job))
                .count()
        };
        if good == Verdict::Accepted {
            assert_eq!(house.summary(job), "a completed, b ready → running");
            assert_eq!(outbox(), 0);
            worker.run_all(&[]);
            assert_eq!(house.count_events(job, EventKind::JobCompleted), 1);
        } else {
            assert_eq!(house.summary(job), "a failed, b skipped → failed");
            assert_eq!(house.count_events(job, EventKind::StepFailed), 1);
            assert_eq!(house.count_events(job, EventKind::JobFailed), 1);
        }
        assert_eq!(outbox(), 1);
    }
}

#[test]
fn a_cancel_and_a_completion_race_to_one_end() {
    let house = TestHouse::new();
    let worker = house.worker("ann", &[], 1);
    for _ in 0..50 {
        let job = house.submit(vec![script("a")]);
        let claimed = worker.begin();
        let barrier = Barrier::new(2);
        let (done, cancelled) = std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                barrier.wait();
                worker.complete(claimed.attempt)
            });
            let cancelled = scope.spawn(|| {
                barrier.wait();
                house.engine.cancel(job, "eve", house.now())
            });
            (done.join().unwrap(), cancelled.join().unwrap())
        });
        assert_ne!(done == Verdict::Accepted, cancelled.is_ok());
        let expected = if cancelled.is_ok() {
            "a cancelled → cancelled"
        } else {
            "a completed → completed"
        };
        assert_eq!(house.summary(job), expected);
        let ends = house.count_events(job, EventKind::JobCompleted)
            + house.count_events(job, EventKind::JobCancelled);
        assert_eq!(ends, 1);
    }
}

#[test]
fn many_workers_finish_a_job_of_many_steps_exactly_once() {
    let house = TestHouse::new();
    let mut steps: Vec<_> = (0..200).map(|n| script(&format!("s{n}"))).collect();
    let names: Vec<String> = (0..200).map(|n| format!("s{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    steps.push(script("join").after(&names));
    let job = house.submit(steps);
    std::thread::scope(|scope| {
        for n in 0..16 {
            let house = &house;
            scope.spawn(move || house.worker(&format!("w{n}"), &[], 4).run_all(&[]));
        }
    });
    house.run_all(&[]);
    assert_eq!(house.job(job).job.state.as_str(), "completed");
    assert_eq!(house.count_events(job, EventKind::JobCompleted), 1);
    assert!(
        house
            .job(job)
            .steps
            .iter()
            .all(|(_, step)| step.attempt == 1)
    );
}
