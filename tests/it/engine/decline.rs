//! Assignments that come back: the place in the queue is kept, others are preferred, and it ends.

use stepward::domain::event::EventKind;
use stepward::domain::reason::Reason;
use stepward::domain::step::StepState;
use stepward::engine::Verdict;

use crate::house::{TestHouse, script};

#[test]
fn a_declined_step_keeps_its_place_and_goes_to_another_worker() {
    let house = TestHouse::new();
    let first = house.submit(vec![script("first")]);
    house.clock.advance_ms(1);
    house.submit(vec![script("second"), script("third")]);
    let (ann, bob) = (house.worker("ann", &[], 2), house.worker("bob", &[], 2));
    let claimed = ann.claim();
    assert_eq!(claimed.step, "first");
    house.clock.advance_ms(1_000);
    assert_eq!(ann.decline(claimed.attempt, "no disk"), Verdict::Accepted);
    assert_eq!(house.step_state(first, "first"), StepState::Ready);
    assert_eq!(house.count_events(first, EventKind::StepRequeued), 1);
    // Ann is passed over for it, bob gets it before what came later.
    assert_eq!(ann.claim_names(1), ["second"]);
    assert_eq!(bob.claim_names(2), ["first", "third"]);
    assert_eq!(house.step(first, "first").attempt, 2);
}

#[test]
fn the_only_able_worker_gets_it_again_after_a_moment() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    ann.decline(ann.claim().attempt, "busy");
    house.clock.advance_ms(9_999);
    assert_eq!(ann.claim_names(1), Vec::<String>::new());
    house.clock.advance_ms(1);
    assert_eq!(ann.claim_names(1), ["a"]);
}

#[test]
fn with_a_choice_it_is_passed_over_for_five_minutes() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    let bob = house.worker("bob", &[], 1);
    ann.decline(ann.claim().attempt, "busy");
    house.clock.advance_ms(299_999);
    assert_eq!(ann.claim_names(1), Vec::<String>::new());
    house.clock.advance_ms(1);
    assert_eq!(ann.claim_names(1), ["a"]);
    assert_eq!(bob.claim_names(1), Vec::<String>::new());
}

#[test]
fn five_returns_without_a_start_fail_the_step_with_the_list() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b").after(&["a"])]);
    let ann = house.worker("ann", &[], 1);
    for n in 1..=5 {
        ann.decline(ann.claim().attempt, &format!("excuse {n}"));
        house.clock.advance_ms(10_000);
    }
    assert_eq!(house.summary(job), "a failed, b skipped → failed");
    let step = house.step(job, "a");
    assert_eq!(step.reason, Some(Reason::AssignmentExhausted));
    assert_eq!(
        step.message.clone().unwrap(),
        "it was assigned 5 times and never started: attempt 1: worker ann declined: excuse 1; \
         attempt 2: worker ann declined: excuse 2; attempt 3: worker ann declined: excuse 3; \
         attempt 4: worker ann declined: excuse 4; attempt 5: worker ann declined: excuse 5"
    );
    assert_eq!(step.tries, 0);
}

#[test]
fn cancelling_a_step_that_came_back_forgets_who_gave_it_back() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    ann.decline(ann.claim().attempt, "busy");
    house.engine.cancel(job, "eve", house.now()).unwrap();
    assert_eq!(house.summary(job), "a cancelled → cancelled");
    // The end of the test looks for what was left behind.
}

#[test]
fn a_start_forgives_earlier_returns() {
    let house = TestHouse::new();
    let mut step = script("a");
    step.retry = stepward::domain::retry::RetryPolicy::times(2);
    let job = house.submit(vec![step]);
    let ann = house.worker("ann", &[], 1);
    for _ in 0..4 {
        ann.decline(ann.claim().attempt, "not yet");
        house.clock.advance_ms(10_000);
    }
    let claimed = ann.begin();
    assert_eq!(house.step(job, "a").returns, 0);
    assert_eq!(house.breaches(), Vec::<String>::new());
    ann.fail(claimed.attempt);
    ann.decline(ann.claim().attempt, "once more");
    assert_eq!(house.step_state(job, "a"), StepState::Ready);
}

#[test]
fn when_all_have_declined_nobody_waits_for_the_others() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let (ann, bob) = (house.worker("ann", &[], 1), house.worker("bob", &[], 1));
    ann.decline(ann.claim().attempt, "busy");
    bob.decline(bob.claim().attempt, "busy too");
    let why = house.why(job, "a");
    assert_eq!(why.code.to_string(), "claimable");
    assert_eq!(
        why.sentence,
        "worker ann gave it back and is asked again within 10s"
    );
    assert_eq!(why.facts, ["attempt 2: worker bob declined: busy too"]);
    house.clock.advance_ms(10_000);
    assert_eq!(ann.claim_names(1), ["a"]);
}

#[test]
fn a_paused_worker_is_no_alternative() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let (ann, bob) = (house.worker("ann", &[], 1), house.worker("bob", &[], 1));
    house.engine.pause(bob.worker_id, house.now()).unwrap();
    ann.decline(ann.claim().attempt, "busy");
    house.clock.advance_ms(10_000);
    assert_eq!(ann.claim_names(1), ["a"]);
}

#[test]
fn why_names_what_an_assignment_was_declined_with_until_the_step_starts() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    let ann = house.worker("ann", &[], 1);
    ann.decline(ann.claim().attempt, "No space left on device");
    let fact = "attempt 1: worker ann declined: No space left on device";
    // Ready, while its worker is passed over and later; with a worker and without; and assigned once more.
    assert_eq!(house.why(job, "a").facts, [fact]);
    house.clock.advance_ms(10_000);
    assert_eq!(house.why(job, "a").facts, [fact]);
    house.engine.pause(ann.worker_id, house.now()).unwrap();
    let facts = house.why(job, "a").facts;
    assert_eq!(facts[0], fact);
    house.engine.resume(ann.worker_id, house.now()).unwrap();
    let claimed = ann.claim();
    assert_eq!(house.why(job, "a").facts, [fact]);
    ann.start(claimed.attempt);
    assert_eq!(house.why(job, "a").facts, [] as [&str; 0]);
}
