//! A worker that knows no preparation: what it is given has started, and is given again until the worker lists it.

use stepward::domain::peer::{Feature, Features};
use stepward::domain::reason::Reason;
use stepward::domain::step::StepState;
use stepward::domain::task::StepDraft;
use stepward::domain::{AttemptRef, Timestamp};
use stepward::engine::{Assignment, Finished, HeldPhase, Verdict};

use crate::house::{TestHouse, TestWorker, script};

fn one_phase(house: &TestHouse, slots: u32) -> TestWorker<'_> {
    let features = Features::of(&[Feature::OnePhase, Feature::StartDetails]);
    house
        .session_announcing("ann", &[], slots, Vec::new(), features)
        .0
}

fn started_at(assignment: &Assignment) -> Option<Timestamp> {
    assignment.start.as_ref().map(|start| start.started_at)
}

#[test]
fn what_a_one_phase_worker_is_given_has_started() {
    let house = TestHouse::new();
    let job_id = house.submit(vec![script("a")]);
    let ann = one_phase(&house, 1);
    let given = ann.claim();
    let step = house.step(job_id, "a");
    assert_eq!(step.state, StepState::Running);
    assert_eq!(step.started_at, Some(house.now().wall));
    assert_eq!(step.tries, 1);
    let start = given.start.clone().expect("it announced start_details");
    assert_eq!(start.started_at, house.now().wall);
    assert_eq!(start.timeout_ms, given.timeout_ms);
    assert!(start.env.contains_key("STEPWARD_STARTED_AT"));
    // A worker that says so all the same is not contradicted.
    assert_eq!(ann.start(given.attempt), Verdict::Accepted);
    assert_eq!(ann.complete(given.attempt), Verdict::Accepted);
    assert_eq!(house.summary(job_id), "a completed → completed");
}

#[test]
fn what_has_started_on_delivery_cannot_be_declined() {
    let house = TestHouse::new();
    let job_id = house.submit(vec![script("a")]);
    let ann = one_phase(&house, 1);
    let given = ann.claim();
    assert_eq!(
        ann.decline(given.attempt, "no room"),
        Verdict::Refused {
            why: "a step that has started on delivery (feature one_phase) cannot be declined: report it as finished, with how it failed"
                .to_string()
        }
    );
    assert_eq!(house.step_state(job_id, "a"), StepState::Running);
}

#[test]
fn an_attempt_that_no_poll_listed_is_delivered_again_and_one_that_was_listed_is_not() {
    let house = TestHouse::new();
    let job_id = house.submit(vec![script("a")]);
    let ann = one_phase(&house, 1);
    let first = ann.claim();
    house.clock.advance_ms(5_000);
    // The answer was lost. The same attempt comes again, and keeps the time at which it started.
    let again = ann.claim();
    assert_eq!(again.attempt, first.attempt);
    assert_eq!(started_at(&again), started_at(&first));
    assert_eq!(house.step(job_id, "a").tries, 1);
    // A worker with no free slot gets it again too: it may have thought that the slot was taken.
    assert_eq!(ann.poll(0, &[]).assignments.len(), 1);

    assert!(ann.poll(0, &[first.attempt]).assignments.is_empty());
    assert!(ann.poll(0, &[]).assignments.is_empty(), "it had it");
    assert_eq!(ann.complete(first.attempt), Verdict::Accepted);
    assert!(ann.poll(1, &[]).assignments.is_empty());
}

#[test]
fn a_heartbeat_that_lists_an_attempt_confirms_it_too() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let ann = one_phase(&house, 1);
    let given = ann.claim();
    ann.heartbeat(1, &[(given.attempt, HeldPhase::Running)]);
    assert!(ann.poll(0, &[]).assignments.is_empty());
}

#[test]
fn a_worker_that_never_gets_the_delivery_does_not_hold_the_step_for_ever() {
    let house = TestHouse::new();
    let job_id = house.submit(vec![script("a")]);
    let ann = one_phase(&house, 1);
    ann.claim();
    let settings = house.engine.settings;
    // It polls and beats, and no answer to its polls arrives.
    let mut beats = 0;
    for seq in 1..=settings.ack_timeout_ms / 5_000 + 3 {
        if house.step_state(job_id, "a") != StepState::Running {
            break;
        }
        beats = seq;
        house.clock.advance_ms(5_000);
        ann.poll(1, &[]);
        ann.heartbeat(seq, &[]);
        house.sweep();
    }
    assert!(beats * 5_000 >= settings.ack_timeout_ms, "{beats}");
    let step = house.step(job_id, "a");
    assert_eq!(step.reason, Some(Reason::WorkerForgot), "{step:?}");
}

#[test]
fn a_lost_delivery_is_not_called_forgotten_before_it_could_be_delivered_again() {
    let house = TestHouse::new();
    let job_id = house.submit(vec![script("a")]);
    let ann = one_phase(&house, 1);
    let given = ann.claim();
    let settings = house.engine.settings;
    let mut seq = 0;
    let mut beat_for = |ms: i64, held: &[(AttemptRef, HeldPhase)]| {
        for _ in 0..ms / 5_000 {
            house.clock.advance_ms(5_000);
            seq += 1;
            ann.heartbeat(seq, held);
            house.sweep();
        }
    };
    // A poll may be held for long, and its answer be lost: heartbeats alone do not end the attempt meanwhile.
    beat_for(settings.ack_timeout_ms - 5_000, &[]);
    assert_eq!(house.step_state(job_id, "a"), StepState::Running);
    let again = ann.claim();
    assert_eq!(again.attempt, given.attempt);
    beat_for(
        2 * settings.ack_timeout_ms,
        &[(given.attempt, HeldPhase::Running)],
    );
    assert_eq!(house.step_state(job_id, "a"), StepState::Running);
    // From now on it is like any other: a worker that leaves it out has forgotten it.
    beat_for(
        settings.ack_timeout_ms.min(settings.report_grace_ms) + 10_000,
        &[],
    );
    assert_eq!(house.step_state(job_id, "a"), StepState::Failed);
    assert_eq!(
        house.step(job_id, "a").reason.unwrap().as_str(),
        "worker_forgot"
    );
}

#[test]
fn a_worker_that_never_asks_again_does_not_keep_its_attempt_for_ever() {
    let house = TestHouse::new();
    let job_id = house.submit(vec![script("a")]);
    let ann = one_phase(&house, 1);
    ann.claim();
    let settings = house.engine.settings;
    let beats = settings.ack_timeout_ms / settings.heartbeat_interval_ms + 3;
    for seq in 0..beats {
        house.clock.advance_ms(settings.heartbeat_interval_ms);
        ann.heartbeat(seq, &[]);
        house.sweep();
    }
    assert_eq!(
        house.step(job_id, "a").reason.unwrap().as_str(),
        "worker_forgot"
    );
}

#[test]
fn a_retry_of_a_one_phase_attempt_is_a_new_attempt_of_any_worker() {
    let house = TestHouse::new();
    let mut draft = StepDraft::script("a", "true");
    draft.retry.max_attempts = 3;
    let job_id = house.submit(vec![draft]);
    let ann = one_phase(&house, 1);
    let first = ann.claim();
    // It ends before any poll has listed it.
    let failed = Finished::exited(1);
    assert_eq!(ann.finish(first.attempt, failed), Verdict::Accepted);
    house.clock.advance_ms(600_000);
    house.sweep();
    let bob = house.worker("bob", &[], 1);
    let second = bob.begin();
    assert_eq!(second.attempt.attempt, 2);
    assert_eq!(second.start, None, "bob announced nothing");
    assert!(bob.poll(0, &[]).assignments.is_empty());
    assert_eq!(bob.complete(second.attempt), Verdict::Accepted);
    assert_eq!(house.summary(job_id), "a completed → completed");
}

#[test]
fn only_a_session_that_asks_is_told_the_details_of_a_start() {
    let house = TestHouse::new();
    house.submit(vec![script("a"), script("b")]);
    let report = |worker: &TestWorker, attempt| {
        let reports = stepward::domain::protocol::Reports {
            session_key: worker.key.clone(),
            items: vec![(attempt, stepward::domain::protocol::News::Started)],
            poll: None,
        };
        house.engine.report(reports, house.now()).unwrap()
    };
    let old = house.worker("old", &[], 1);
    let given = old.claim();
    assert!(report(&old, given.attempt).starts.is_empty());

    let features = Features::of(&[Feature::StartDetails]);
    let (new, _) = house.session_announcing("new", &[], 1, Vec::new(), features);
    let given = new.claim();
    assert_eq!(given.start, None, "it has not started");
    let first = report(&new, given.attempt).starts;
    assert_eq!(first[0].1.started_at, house.now().wall);
    house.clock.advance_ms(9_000);
    // The answer was lost: told again, it is the same start.
    assert_eq!(report(&new, given.attempt).starts, first);
}
