//! Polls that wait: what there is for whom, and what a commit tells those who wait.

use std::sync::{Arc, Mutex, mpsc};

use stepward::domain::task::StepDraft;
use stepward::engine::{AskedOnTheWay, Look, Poll, PollAnswer};
use stepward::store::{Demand, Notice, StoreOptions};

use crate::house::{TestHouse, TestWorker, script};

fn waiting(worker: &TestWorker, free_slots: u32) -> PollAnswer {
    let poll = Poll {
        session_key: worker.key.clone(),
        free_slots,
        held: Vec::new(),
    };
    let house = worker.house;
    let mut answers = house.engine.answer_waiting(vec![poll], house.now());
    answers.remove(0).unwrap()
}

#[test]
fn the_demand_is_counted_by_what_steps_need_and_up_to_a_bound() {
    let house = TestHouse::new();
    assert!(house.engine.demand(10).unwrap().is_empty());
    let gpu = |name: &str| StepDraft {
        tags: vec!["gpu".to_string()],
        ..script(name)
    };
    house.submit(vec![
        script("a"),
        script("b"),
        script("c"),
        gpu("d"),
        gpu("e").after(&["d"]),
    ]);
    let demand = |tags: &[&str], steps| Demand {
        words: tags.iter().map(|tag| tag.to_string()).collect(),
        steps,
    };
    let all = [demand(&["script"], 3), demand(&["gpu", "script"], 1)];
    assert_eq!(house.engine.demand(10).unwrap(), all);
    assert_eq!(house.engine.demand(2).unwrap()[0].steps, 2);
}

#[test]
fn looking_at_a_waiting_poll_is_no_sign_of_life_and_gives_nothing_to_whoever_was_given_up() {
    let house = TestHouse::new();
    let ann = house.worker("ann", &[], 1);
    house.worker("bob", &["other"], 1);
    house.clock.advance_ms(100_000);
    assert!(waiting(&ann, 1).assignments.is_empty());
    house.clock.advance_ms(22_000);
    house.sweep();
    let state = |house: &TestHouse| {
        house
            .engine
            .worker(ann.worker_id, house.now())
            .unwrap()
            .worker
            .state
    };
    assert_eq!(state(&house).as_str(), "inactive");
    house.submit(vec![script("a")]);
    assert!(waiting(&ann, 1).assignments.is_empty());
    assert_eq!(state(&house).as_str(), "inactive");
    assert_eq!(
        ann.claim_names(1),
        ["a"],
        "a poll of its own brings it back"
    );
}

#[test]
fn a_commit_tells_what_it_means_to_others_and_not_what_a_caller_did_itself() {
    let told: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let heard = told.clone();
    let options = StoreOptions {
        on_commit: Some(Arc::new(move |notice| heard.lock().unwrap().push(notice))),
        ..StoreOptions::default()
    };
    let house = TestHouse::with_options(options);
    let take = || {
        let mut all = Notice::default();
        told.lock()
            .unwrap()
            .drain(..)
            .for_each(|notice| all.absorb(notice));
        all
    };
    let ann = house.worker("ann", &[], 2);
    take();
    let job = house.submit(vec![script("a"), script("b").after(&["a"])]);
    let notice = take();
    assert!(notice.steps_ready && notice.news && notice.workers.is_empty());
    let a = ann.begin();
    let notice = take();
    assert!(
        !notice.steps_ready && notice.workers.is_empty(),
        "{notice:?}"
    );
    ann.complete(a.attempt);
    let notice = take();
    assert!(notice.steps_ready, "b can be claimed");
    assert!(notice.workers.is_empty(), "it knows what it said itself");
    let b = ann.begin();
    ann.heartbeat(1, &[(b.attempt, stepward::engine::HeldPhase::Running)]);
    take();
    house.engine.cancel(job, "somebody", house.now()).unwrap();
    assert_eq!(
        take().workers.into_iter().collect::<Vec<_>>(),
        [ann.worker_id]
    );
    for verb in [
        stepward::engine::Engine::pause,
        stepward::engine::Engine::resume,
        stepward::engine::Engine::drain,
    ] {
        verb(&house.engine, ann.worker_id, house.now()).unwrap();
        assert!(take().workers.contains(&ann.worker_id));
    }
}

#[test]
fn a_waiting_poll_shares_the_commit_that_makes_a_step_claimable() {
    let house = TestHouse::new();
    let ann = house.worker("ann", &[], 2);
    let (given_tx, given_rx) = mpsc::channel();
    let poll = Poll {
        session_key: ann.key.clone(),
        free_slots: 2,
        held: Vec::new(),
    };
    let now = house.now();
    let looked: Arc<Mutex<Vec<Demand>>> = Arc::default();
    let seen = looked.clone();
    let choose = move |look: Look| {
        seen.lock().unwrap().extend(look(10).unwrap());
        let given_tx = given_tx.clone();
        vec![AskedOnTheWay {
            poll: poll.clone(),
            hand_on: Box::new(move |given| given_tx.send(given).unwrap()),
        }]
    };
    house.engine.hand_out_on_the_way(move || now, choose);

    let (groups, _) = house.engine.store.groups();
    let job = house.submit(vec![
        script("a"),
        script("b").after(&["a"]),
        script("c").after(&["b"]),
    ]);
    assert_eq!(house.engine.store.groups().0, groups + 1, "one commit");
    assert_eq!(
        looked.lock().unwrap().pop().unwrap().steps,
        1,
        "it saw what was about to be"
    );
    let given = given_rx.try_recv().unwrap().unwrap().assignments;
    assert_eq!((given.len(), given[0].step.as_str()), (1, "a"));
    assert_eq!(house.step(job, "a").state.as_str(), "assigned");

    // A report that releases the next step does the same.
    ann.start(given[0].attempt);
    ann.complete(given[0].attempt);
    let given = given_rx.try_recv().unwrap().unwrap().assignments;
    assert_eq!(given[0].step, "b");

    // What makes nothing claimable asks nobody.
    ann.start(given[0].attempt);
    assert!(given_rx.try_recv().is_err());
}
