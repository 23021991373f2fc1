//! Polling: who gets what, in which order, and never more than fits.

use stepward::domain::AttemptRef;
use stepward::domain::task::{Action, Runner, StepDraft, TaskDraft};
use stepward::engine::{EngineError, Submission};

use crate::house::{TestHouse, frozen, script, taking};

fn tagged(name: &str, tags: &[&str]) -> StepDraft {
    StepDraft {
        tags: tags.iter().map(|tag| tag.to_string()).collect(),
        ..script(name)
    }
}

#[test]
fn the_oldest_of_the_highest_priority_comes_first() {
    let house = TestHouse::new();
    for (name, priority) in [
        ("old", 0),
        ("urgent", 5),
        ("young", 0),
        ("idle", -5),
        ("next", 5),
    ] {
        let frozen = frozen(vec![TaskDraft::new("main", vec![script(name)])]);
        let submission = Submission {
            priority: Some(priority),
            ..Submission::of(&frozen)
        };
        house.submission(submission).unwrap();
        house.clock.advance_ms(1);
    }
    let worker = house.worker("ann", &[], 10);
    assert_eq!(worker.claim_names(2), ["urgent", "next"]);
    let held: Vec<_> = worker
        .poll(0, &[])
        .assignments
        .iter()
        .map(|found| found.attempt)
        .collect();
    let more: Vec<_> = worker
        .poll(10, &held)
        .assignments
        .into_iter()
        .map(|found| found.step)
        .collect();
    assert_eq!(more, ["old", "young", "idle"]);
}

#[test]
fn order_holds_across_requirements() {
    let house = TestHouse::new();
    for (name, tags) in [
        ("1", vec!["gpu"]),
        ("2", vec![]),
        ("3", vec!["gpu"]),
        ("4", vec!["big"]),
    ] {
        house.submit(vec![tagged(name, &tags)]);
        house.clock.advance_ms(1);
    }
    let worker = house.worker("ann", &["gpu", "big"], 10);
    assert_eq!(worker.claim_names(3), ["1", "2", "3"]);
}

#[test]
fn what_became_ready_first_comes_first_whatever_was_made_first() {
    let house = TestHouse::new();
    house.submit(vec![
        script("first"),
        tagged("made early, ready late", &["gpu"]).after(&["first"]),
    ]);
    let worker = house.worker("ann", &["gpu"], 3);
    let first = worker.begin();
    house.clock.advance_ms(1);
    house.submit(vec![script("made late, ready early")]);
    house.clock.advance_ms(1);
    worker.complete(first.attempt);
    assert_eq!(
        worker.claim_names(2),
        ["made late, ready early", "made early, ready late"]
    );
}

#[test]
fn a_step_is_given_only_to_a_worker_with_all_its_tags() {
    let house = TestHouse::new();
    house.submit(vec![tagged("a", &["gpu", "big"])]);
    assert_eq!(
        house.worker("plain", &[], 1).claim_names(1),
        Vec::<String>::new()
    );
    assert_eq!(
        house.worker("half", &["gpu"], 1).claim_names(1),
        Vec::<String>::new()
    );
    assert_eq!(
        house
            .worker("able", &["gpu", "big", "more"], 1)
            .claim_names(1),
        ["a"]
    );
}

#[test]
fn what_a_step_does_implies_its_tags() {
    let on = |runner, image: Option<&str>| {
        let script = "true".to_string();
        Action::Script {
            runner,
            image: image.map(str::to_string),
            language: None,
            script,
        }
    };
    for (action, expected) in [
        (on(Runner::Local, None), vec!["script"]),
        (
            on(Runner::Docker, Some("busybox")),
            vec!["docker", "script"],
        ),
        (on(Runner::Pod, None), vec!["kubernetes", "script"]),
        (
            Action::Docker {
                image: "busybox".into(),
                entrypoint: vec![],
                command: vec![],
            },
            vec!["docker"],
        ),
        (
            Action::Pod {
                manifest: "{}".into(),
            },
            vec!["kubernetes"],
        ),
        (
            Action::Approval {
                message: "go?".into(),
                inputs: Vec::new(),
            },
            vec![],
        ),
    ] {
        assert_eq!(StepDraft::new("a", action).required_tags(), expected);
    }
}

#[test]
fn a_requirement_that_is_new_is_matched_with_workers_that_are_there() {
    let house = TestHouse::new();
    let worker = house.worker("ann", &["gpu"], 1);
    house.submit(vec![tagged("a", &["gpu"])]);
    assert_eq!(worker.claim_names(1), ["a"]);
}

#[test]
fn a_worker_never_gets_more_than_its_slots() {
    let house = TestHouse::new();
    house.submit((0..10).map(|n| script(&format!("s{n}"))).collect());
    let worker = house.worker("ann", &[], 3);
    let first = worker.poll(100, &[]).assignments;
    assert_eq!(first.len(), 3);
    let held: Vec<AttemptRef> = first.iter().map(|found| found.attempt).collect();
    assert_eq!(worker.poll(100, &held).assignments, []);
    worker.start(held[0]);
    worker.complete(held[0]);
    assert_eq!(worker.poll(100, &held[1..]).assignments.len(), 1);
}

#[test]
fn an_assignment_whose_answer_was_lost_comes_again_with_the_same_number() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    let lost = worker.claim();
    let again = worker.claim();
    assert_eq!(lost, again);
    assert_eq!(again.attempt.attempt, 1);
    assert_eq!(worker.poll(1, &[again.attempt]).assignments, []);
}

#[test]
fn what_a_worker_should_not_hold_is_aborted() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    let held = worker.begin().attempt;
    assert_eq!(worker.poll(0, &[held]).abort, []);
    house.engine.cancel(job, "eve", house.now()).unwrap();
    let stranger = AttemptRef { attempt: 7, ..held };
    let told_twice = [held, stranger, held];
    assert_eq!(worker.poll(0, &told_twice).abort, [held, stranger]);
}

#[test]
fn paused_and_draining_workers_get_nothing_new() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let worker = house.worker("ann", &[], 1);
    house.engine.pause(worker.worker_id, house.now()).unwrap();
    assert_eq!(worker.claim_names(1), Vec::<String>::new());
    house.engine.resume(worker.worker_id, house.now()).unwrap();
    house.engine.drain(worker.worker_id, house.now()).unwrap();
    let answer = worker.poll(1, &[]);
    assert_eq!((answer.assignments.len(), answer.draining), (0, true));
}

#[test]
fn an_unknown_session_must_open_a_new_one() {
    let house = TestHouse::new();
    let former = house.worker("ann", &[], 1);
    house.worker("ann", &[], 1);
    assert!(matches!(
        former.try_poll(1, &[]),
        Err(EngineError::SessionReplaced)
    ));
    let stranger = crate::house::TestWorker {
        key: "nobody".to_string(),
        ..former
    };
    assert!(matches!(
        stranger.try_poll(1, &[]),
        Err(EngineError::SessionUnknown)
    ));
}

#[test]
fn fifty_workers_at_once_never_get_the_same_step_twice() {
    let house = TestHouse::new();
    house.submit((0..500).map(|n| script(&format!("s{n}"))).collect());
    let workers: Vec<_> = (0..50)
        .map(|n| house.worker(&format!("w{n}"), &[], 10))
        .collect();
    let mut given: Vec<AttemptRef> = std::thread::scope(|scope| {
        let claim = |worker: &'_ crate::house::TestWorker<'_>| {
            let found = worker.poll(10, &[]).assignments;
            found
                .into_iter()
                .map(|found| found.attempt)
                .collect::<Vec<_>>()
        };
        let threads: Vec<_> = workers
            .iter()
            .map(|worker| scope.spawn(move || claim(worker)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(given.len(), 500);
    given.sort();
    given.dedup();
    assert_eq!(given.len(), 500);
}

#[test]
fn an_answer_carries_a_bounded_amount_of_input() {
    let house = TestHouse::new();
    let steps = (0..20).map(|n| script(&format!("s{n}"))).collect();
    let task = frozen(vec![taking(&["a"], steps)]);
    let mut submission = Submission::of(&task);
    submission.input = stepward::domain::Json(format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 19)));
    house.submission(submission).unwrap();
    let worker = house.worker("ann", &[], 20);
    let first = worker.poll(20, &[]).assignments;
    assert_eq!(first.len(), 8, "the eighth goes over 4 MiB");
    let held: Vec<_> = first.iter().map(|found| found.attempt).collect();
    assert_eq!(worker.poll(20, &held).assignments.len(), 8);
    let again = worker.poll(20, &[]).assignments;
    assert_eq!(again.len(), 8, "what is given again is bounded as well");
}
