//! Opening a session: a restart is settled at once, spooled results first.

use stepward::domain::Json;
use stepward::domain::event::EventKind;
use stepward::domain::reason::Reason;
use stepward::domain::retry::{OnWorkerLoss, RetryPolicy};
use stepward::domain::step::StepState;
use stepward::domain::task::StepDraft;
use stepward::engine::{Beat, EngineError, Finished, HeldPhase, Spooled, Verdict};

use crate::house::{TestHouse, registration, script};

#[test]
fn a_restart_fails_what_ran_and_requeues_what_had_not_started() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b"), script("c").after(&["a"])]);
    let former = house.worker("ann", &[], 2);
    former.begin();
    former.claim_names(1);
    let next = house.worker("ann", &[], 2);
    assert_eq!(former.worker_id, next.worker_id);
    assert_eq!(house.summary(job), "a failed, b ready, c skipped → running");
    let step = house.step(job, "a");
    assert_eq!(step.reason, Some(Reason::WorkerRestarted));
    assert_eq!(
        step.message.unwrap(),
        "worker ann restarted while it ran attempt 1; the step may have run partly"
    );
    // The same worker may take the other one at once.
    assert_eq!(next.claim_names(1), ["b"]);
}

#[test]
fn a_spooled_result_counts_before_the_restart_does() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b"), script("c").after(&["a"])]);
    let former = house.worker("ann", &[], 2);
    let (a, b) = (former.begin(), former.begin());
    let spool = |attempt, finished| Spooled {
        attempt,
        session_key: former.key.clone(),
        finished,
    };
    let (next, verdicts) = house.session(
        "ann",
        &[],
        2,
        vec![
            spool(a.attempt, Finished::completed()),
            spool(a.attempt, Finished::exited(1)),
        ],
    );
    assert_eq!(verdicts[0], Verdict::Accepted);
    assert!(matches!(verdicts[1], Verdict::Abort { .. }));
    assert_eq!(
        house.summary(job),
        "a completed, b failed, c ready → running"
    );
    assert_eq!(house.step(job, "b").reason, Some(Reason::WorkerRestarted));
    assert_eq!(
        former.complete(b.attempt),
        Verdict::Abort {
            why: "the step is failed already".into()
        }
    );
    next.run_all(&[]);
}

#[test]
fn a_spooled_result_of_somebody_else_is_turned_away() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let claimed = ann.begin();
    let forged = Spooled {
        attempt: claimed.attempt,
        session_key: ann.key.clone(),
        finished: Finished::completed(),
    };
    let (_, verdicts) = house.session("eve", &[], 1, vec![forged]);
    assert!(matches!(verdicts[..], [Verdict::Abort { .. }]));
    assert_eq!(house.step_state(job, "a"), StepState::Running);
}

#[test]
fn a_repeated_opening_answers_the_same_session() {
    let house = TestHouse::new();
    let open = || {
        house
            .engine
            .open_session(registration("ann", "k1", &[], 1), vec![], house.now())
    };
    let (first, second) = (open().unwrap(), open().unwrap());
    assert_eq!(first.session_id, second.session_id);
    house
        .engine
        .open_session(registration("ann", "k2", &[], 1), vec![], house.now())
        .unwrap();
    assert!(matches!(open(), Err(EngineError::SessionReplaced)));
}

#[test]
fn reports_of_a_former_life_are_aborted() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let former = house.worker("ann", &[], 1);
    let claimed = former.claim();
    let next = house.worker("ann", &[], 1);
    assert!(matches!(
        former.start(claimed.attempt),
        Verdict::Abort { .. }
    ));
    assert_eq!(house.count_events(job, EventKind::ReportFenced), 1);
    let again = next.begin();
    assert_eq!(again.attempt.attempt, 2);
    assert!(matches!(
        former.complete(again.attempt),
        Verdict::Abort { .. }
    ));
    assert_eq!(next.complete(again.attempt), Verdict::Accepted);
}

#[test]
fn by_policy_a_lost_step_is_held_or_retried() {
    let house = TestHouse::new();
    let on = |name, on_worker_loss| StepDraft {
        on_worker_loss,
        ..script(name)
    };
    let job = house.submit(vec![
        on("held", OnWorkerLoss::Hold),
        on("again", OnWorkerLoss::Retry),
    ]);
    let former = house.worker("ann", &[], 2);
    former.begin();
    former.begin();
    house.worker("ann", &[], 2);
    assert_eq!(house.summary(job), "held suspended, again ready → running");
    assert_eq!(house.count_events(job, EventKind::StepHeld), 1);
    assert_eq!(house.count_events(job, EventKind::StepRetried), 1);
}

#[test]
fn new_tags_are_matched_anew() {
    let house = TestHouse::new();
    let mut step = script("a");
    step.tags = vec!["gpu".to_string()];
    house.submit(vec![step]);
    assert_eq!(
        house.worker("ann", &[], 1).claim_names(1),
        Vec::<String>::new()
    );
    assert_eq!(house.worker("ann", &["gpu"], 1).claim_names(1), ["a"]);
}

#[test]
fn a_heartbeat_says_what_to_abort_and_counts_what_it_left_out() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    let worker = house.worker("ann", &[], 2);
    let (a, b) = (worker.begin(), worker.begin());
    let held = [(a.attempt, HeldPhase::Running)];
    assert_eq!(worker.heartbeat(1, &held).abort, []);
    assert_eq!(house.step(job, "b").absent_beats, 1);
    // One that was overtaken says nothing about now.
    worker.heartbeat(1, &held);
    assert_eq!(house.step(job, "b").absent_beats, 1);
    worker.heartbeat(2, &held);
    assert_eq!(house.step(job, "b").absent_beats, 2);
    worker.heartbeat(3, &[held[0], (b.attempt, HeldPhase::Running)]);
    assert_eq!(house.step(job, "b").absent_beats, 0);
    house.engine.cancel(job, "eve", house.now()).unwrap();
    assert_eq!(worker.heartbeat(4, &held).abort, [a.attempt]);
}

#[test]
fn a_second_try_does_not_answer_for_the_absences_of_the_first() {
    let house = TestHouse::new();
    let job = house.submit(vec![StepDraft {
        retry: RetryPolicy::times(2),
        ..script("a")
    }]);
    let worker = house.worker("ann", &[], 1);
    let first = worker.begin();
    worker.heartbeat(1, &[]);
    assert_eq!(house.step(job, "a").absent_beats, 1);
    worker.fail(first.attempt);
    worker.begin();
    assert_eq!(house.step(job, "a").absent_beats, 0);
}

#[test]
fn any_contact_is_a_sign_of_life_and_wakes_an_inactive_worker() {
    let house = TestHouse::new();
    let worker = house.worker("ann", &[], 1);
    let seen = || {
        let workers = house.engine.store.read(|tx| tx.workers()).unwrap();
        (workers[0].state.as_str(), workers[0].seen_up)
    };
    house.clock.advance_ms(1);
    worker.poll(1, &[]);
    assert_eq!(seen().1, house.now().up);
    house.clock.advance_ms(121_000);
    house.sweep();
    assert_eq!(seen().0, "inactive");
    worker.poll(1, &[]);
    assert_eq!(seen().0, "active");
    let back = house
        .events()
        .into_iter()
        .filter(|event| event.fact.kind == EventKind::WorkerActive);
    assert_eq!(back.count(), 1);
}

#[test]
fn one_bad_result_in_the_spool_does_not_bar_the_others() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    let former = house.worker("ann", &[], 2);
    let (a, b) = (former.begin(), former.begin());
    let spool = |attempt, finished| Spooled {
        attempt,
        session_key: former.key.clone(),
        finished,
    };
    let broken = Finished::Completed {
        output: Some(Json("{nope".to_string())),
        exit_code: Some(0),
    };
    let (_, verdicts) = house.session(
        "ann",
        &[],
        2,
        vec![
            spool(a.attempt, broken),
            spool(b.attempt, Finished::completed()),
        ],
    );
    assert_eq!(verdicts, [Verdict::Accepted, Verdict::Accepted]);
    assert_eq!(house.summary(job), "a failed, b completed → failed");
    assert_eq!(house.step(job, "a").reason, Some(Reason::OutputInvalid));
}

#[test]
fn a_repeated_opening_takes_what_was_spooled_and_is_a_sign_of_life() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let claimed = ann.begin();
    house.clock.advance_ms(60_000);
    let again = |name: &str| {
        let spooled = Spooled {
            attempt: claimed.attempt,
            session_key: ann.key.clone(),
            finished: Finished::completed(),
        };
        house.engine.open_session(
            registration(name, &ann.key, &[], 1),
            vec![spooled],
            house.now(),
        )
    };
    // Somebody else with the same key gets nothing.
    assert!(matches!(again("bob"), Err(EngineError::SessionReplaced)));
    assert_eq!(house.step_state(job, "a"), StepState::Running);
    assert_eq!(again("ann").unwrap().spooled, [Verdict::Accepted]);
    assert_eq!(house.summary(job), "a completed → completed");
    let worker = house
        .engine
        .store
        .read(|tx| tx.worker(ann.worker_id))
        .unwrap()
        .unwrap();
    assert_eq!(worker.seen_up, house.now().up);
}

#[test]
fn the_older_of_two_processes_that_share_a_worker_is_sent_away() {
    let house = TestHouse::new();
    let open = |key: &str| {
        let registration = registration("ann", key, &[], 1);
        house
            .engine
            .open_session(registration, Vec::new(), house.now())
    };
    open("one").unwrap();
    open("two").unwrap();
    let beat = Beat {
        session_key: "two".to_string(),
        seq: 1,
        held: Vec::new(),
    };
    house.engine.heartbeat(beat, house.now()).unwrap();
    let refused = open("one-2").unwrap_err();
    assert!(
        matches!(refused, EngineError::WorkerDuplicated { .. }),
        "{refused}"
    );
    let kinds: Vec<EventKind> = house.events().iter().map(|event| event.fact.kind).collect();
    assert_eq!(kinds.last(), Some(&EventKind::WorkerDuplicated));
    // The newer one is not disturbed, and may open another session of its own.
    open("two-2").unwrap();
    // Nor is a process that nobody has met before: a restart.
    open("three").unwrap();
    open("three-2").unwrap();
}

#[test]
fn copies_of_a_folder_are_told_apart_although_its_worker_was_deleted_meanwhile() {
    let house = TestHouse::new();
    let open = |key: &str| {
        let registration = registration("ann", key, &[], 1);
        house
            .engine
            .open_session(registration, Vec::new(), house.now())
    };
    let beat = |key: &str| {
        let beat = Beat {
            session_key: key.to_string(),
            seq: 1,
            held: Vec::new(),
        };
        house.engine.heartbeat(beat, house.now()).unwrap();
    };
    let first = open("one").unwrap();
    beat("one");
    house
        .engine
        .delete_worker(first.worker_id, true, house.now())
        .unwrap();
    // It is there all the same, and comes back as another worker.
    let second = open("one-2").unwrap();
    assert_ne!(second.worker_id, first.worker_id);
    beat("one-2");
    open("two").unwrap();
    beat("two");
    let refused = open("one-3").unwrap_err();
    assert!(
        matches!(refused, EngineError::WorkerDuplicated { .. }),
        "{refused}"
    );
    open("two-2").unwrap();
}

#[test]
fn nobody_is_sent_away_for_the_last_call_of_a_process_that_had_died() {
    let house = TestHouse::new();
    let open = |key: &str| {
        let registration = registration("ann", key, &[], 1);
        house
            .engine
            .open_session(registration, Vec::new(), house.now())
    };
    // The first was killed while its call was on its way, which came after that of its next life.
    open("second life").unwrap();
    open("first life").unwrap();
    open("second life-2").unwrap();
    // If it had not died, it is the older one that goes, once the newer one was heard.
    let beat = Beat {
        session_key: "second life-2".to_string(),
        seq: 1,
        held: Vec::new(),
    };
    house.engine.heartbeat(beat, house.now()).unwrap();
    open("first life-2").unwrap();
    let kinds = house.events().into_iter().map(|event| event.fact.kind);
    assert!(
        kinds
            .into_iter()
            .all(|kind| kind != EventKind::WorkerDuplicated)
    );
}
