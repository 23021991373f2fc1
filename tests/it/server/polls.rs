//! Long polls: a worker that waits is told what there is the moment there is something, and costs nothing until then.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::line::Line;
use super::{ServerHouse, attempts, item, until, word};

/// Generous: what takes this long waited for a timer instead of being woken.
const SOON: Duration = Duration::from_secs(5);

/// The answer of a poll that was woken by what was just done.
fn woken(line: &mut Line) -> super::Answer {
    let begun = Instant::now();
    let answer = line.answer();
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    answer
}

#[test]
fn an_idle_poll_is_answered_when_a_step_is_submitted() {
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 1);
    for _ in 0..20 {
        let mut poll = ann.wait(1, &[]);
        let begun = Instant::now();
        let job_id = house.submit("hello");
        let answer = poll.answer().expect(200);
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert_eq!(answer["assignments"][0]["job_id"], job_id);
        let greet = &attempts(&answer)[0];
        ann.report(greet, "started", json!({}));
        ann.complete(greet);
    }
}

#[test]
fn a_poll_ends_by_itself_with_nothing() {
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 1);
    let begun = Instant::now();
    let mut poll = ann.begin_poll(1, &[], Duration::from_millis(200));
    let answer = poll.answer().expect(200);
    assert_eq!(
        answer,
        json!({ "assignments": [], "abort": [], "draining": false })
    );
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(200) && took < SOON,
        "{took:?}"
    );
}

#[test]
fn only_who_can_run_a_step_is_woken_by_it() {
    let house = ServerHouse::new();
    let (ann, bob) = (
        house.worker("ann", &[], 1),
        house.worker("bob", &["gpu"], 1),
    );
    let _waits_on = ann.wait(1, &[]);
    let mut poll = bob.wait(1, &[]);
    house.submit("gpu");
    assert_eq!(attempts(&woken(&mut poll).expect(200)).len(), 1);
    house.await_polls(1);
}

#[test]
fn a_cancel_reaches_a_worker_without_free_slots() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.begin();
    let mut poll = ann.wait(0, std::slice::from_ref(&greet));
    house.submit("hello");
    house.post("/api/jobs/1/cancel", &Value::Null).expect(200);
    let answer = woken(&mut poll).expect(200);
    assert_eq!(
        (&answer["abort"], &answer["assignments"]),
        (&json!([greet]), &json!([]))
    );
}

#[test]
fn what_people_do_to_a_worker_reaches_its_poll() {
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 1);
    let mut poll = ann.wait(1, &[]);
    ann.change("pause");
    house.submit("hello");
    // Paused: it goes on waiting, and gets nothing.
    until("the step waits for it", || {
        let why = house.get("/api/jobs/1/steps/greet/why").expect(200);
        word(&why["code"]) != "claimable"
    });
    house.await_polls(1);
    ann.change("resume");
    let answer = woken(&mut poll).expect(200);
    assert_eq!(answer["assignments"][0]["job_id"], 1);
    let greet = attempts(&answer);

    let mut poll = ann.wait(0, &greet);
    ann.change("drain");
    assert_eq!(woken(&mut poll).expect(200)["draining"], true);

    let bob = house.worker("bob", &[], 1);
    let mut poll = bob.wait(1, &[]);
    let path = format!("/api/workers/{}", bob.worker_id);
    house.ask("DELETE", &path, "", b"").expect(200);
    assert_eq!(woken(&mut poll).status, 410);

    let cid = house.life("cid", 1, &[], 1);
    let mut poll = cid.wait(1, &[]);
    house.life("cid", 2, &[], 1);
    assert_eq!(woken(&mut poll).refused(410), "session_replaced");
}

#[test]
fn a_second_poll_takes_the_place_of_the_first() {
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 1);
    let mut first = ann.wait(1, &[]);
    let mut second = ann.begin_poll(1, &[], super::PATIENCE);
    assert_eq!(woken(&mut first).expect(200)["assignments"], json!([]));
    house.await_polls(1);
    house.submit("hello");
    assert_eq!(attempts(&woken(&mut second).expect(200)).len(), 1);
}

#[test]
fn a_report_that_frees_a_slot_lets_the_waiting_poll_have_the_next_step() {
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 1);
    house.submit("hello");
    let mut held = ann.begin();
    for _ in 0..20 {
        let mut poll = ann.wait(0, std::slice::from_ref(&held));
        let done = item(
            &held,
            "finished",
            json!({ "finished": { "outcome": "completed" } }),
        );
        let request = json!({
            "session": ann.session, "items": [done], "poll": { "free_slots": 1, "held": [] },
        });
        let answer = house.post("/api/worker/reports", &request).expect(200);
        assert_eq!(answer["poll"]["assignments"], json!([]));
        house.submit("hello");
        held = attempts(&woken(&mut poll).expect(200))[0].clone();
        assert_eq!(ann.report(&held, "started", json!({})), "accepted");
    }
}

#[test]
fn a_report_and_a_poll_that_cross_leave_no_slot_unused() {
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 1);
    house.submit("hello");
    let mut held = ann.begin();
    for _ in 0..100 {
        // Both at once: whichever the server looks at first, it knows of the free slot in the end.
        let done = item(
            &held,
            "finished",
            json!({ "finished": { "outcome": "completed" } }),
        );
        let request = json!({
            "session": ann.session, "items": [done], "poll": { "free_slots": 1, "held": [] },
        });
        let mut reports = house.line();
        let mut poll = ann.begin_poll(0, std::slice::from_ref(&held), super::PATIENCE);
        reports.ask(
            "POST",
            "/api/worker/reports",
            "",
            request.to_string().as_bytes(),
        );
        reports.answer().expect(200);
        house.submit("hello");
        let mut answer = woken(&mut poll).expect(200);
        if attempts(&answer).is_empty() {
            // It was evaluated after the report: what it says to hold is over.
            assert_eq!(answer["abort"], json!([held]));
            answer = ann.poll(1, &[]).expect(200);
        }
        held = attempts(&answer)[0].clone();
        assert_eq!(ann.report(&held, "started", json!({})), "accepted");
    }
}

#[test]
fn a_step_taken_by_another_does_not_make_a_worker_late_for_the_next() {
    let house = ServerHouse::new();
    let (ann, bob) = (house.worker("ann", &[], 1), house.worker("bob", &[], 100));
    let mut held = Vec::new();
    let mut poll = ann.wait(1, &[]);
    for _ in 0..30 {
        // Ann waits; bob asks at the very moment at which the step comes.
        let mut other = bob.begin_poll(100, &held, Duration::ZERO);
        house.submit("hello");
        held.extend(attempts(&other.answer().expect(200)));
        let begun = Instant::now();
        let next = house.submit("hello");
        let answer = poll.answer().expect(200);
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        for given in attempts(&answer) {
            ann.report(&given, "started", json!({}));
            ann.complete(&given);
        }
        // Whatever she did not get is bob's.
        held.extend(attempts(&bob.poll(100, &held).expect(200)));
        assert!(!held.is_empty() || next > 0);
        poll = ann.wait(1, &[]);
    }
}

#[test]
fn steps_are_spread_over_those_who_wait() {
    let house = ServerHouse::new();
    let names: Vec<String> = (0..8).map(|n| format!("worker {n}")).collect();
    let workers: Vec<_> = names
        .iter()
        .map(|name| house.worker(name, &[], 8))
        .collect();
    let mut polls: Vec<Line> = workers.iter().map(|worker| worker.wait(8, &[])).collect();
    house.submit("wide");
    for poll in &mut polls {
        assert_eq!(attempts(&woken(poll).expect(200)).len(), 1);
    }
}

#[test]
fn a_client_that_goes_away_frees_its_place_and_swallows_no_step() {
    let house = ServerHouse::new();
    let (ann, bob) = (house.worker("ann", &[], 1), house.worker("bob", &[], 1));
    let gone = ann.wait(1, &[]);
    drop(gone);
    house.await_polls(0);
    let mut poll = bob.wait(1, &[]);
    house.submit("hello");
    assert_eq!(attempts(&woken(&mut poll).expect(200)).len(), 1);

    // In the very moment: it may be given to her, and then comes again with her next poll.
    for spin in 0..30 {
        let gone = ann.begin_poll(1, &[], super::PATIENCE);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(spin * 300) {
            std::hint::spin_loop();
        }
        let mut submitting = house.line();
        submitting.ask("POST", "/api/tasks/hello/jobs", "", b"");
        drop(gone);
        submitting.answer().expect(201);
        let given = ann.begin_poll(1, &[], super::PATIENCE).answer().expect(200);
        let given = attempts(&given);
        assert_eq!((given.len(), &given[0]["attempt"]), (1, &json!(1)));
        ann.report(&given[0], "started", json!({}));
        ann.complete(&given[0]);
    }
}

#[test]
fn a_poll_that_waits_is_no_sign_of_life() {
    let house = ServerHouse::with(Default::default(), |config| {
        config.recovery.heartbeat_interval_secs = 1;
        config.recovery.heartbeat_timeout_secs = 1;
    });
    let ann = house.worker("ann", &[], 2);
    let _poll = ann.wait(1, &[]);
    until("she is given up", || {
        word(&ann.shown()["status"]) == "inactive"
    });
    assert_eq!(house.server.long_polls(), 1);
    // And the next word of hers brings her back.
    ann.heartbeat(1, &json!([])).expect(200);
    assert_eq!(word(&ann.shown()["status"]), "active");
}

#[test]
fn many_wait_and_others_are_served() {
    let house = ServerHouse::new();
    let names: Vec<String> = (0..200).map(|n| format!("worker {n}")).collect();
    let workers: Vec<_> = names
        .iter()
        .map(|name| house.worker(name, &[], 1))
        .collect();
    let mut polls: Vec<Line> = (workers.iter())
        .map(|worker| worker.begin_poll(1, &[], super::PATIENCE))
        .collect();
    house.await_polls(200);
    // Others are served meanwhile, more of them than there are threads.
    house.get("/api/jobs").expect(200);
    for _ in 0..25 {
        house.submit("wide");
    }
    let given: usize = polls
        .iter_mut()
        .map(|poll| attempts(&woken(poll).expect(200)).len())
        .sum();
    assert_eq!(given, 200);
}

#[test]
fn workers_that_are_paused_do_not_stand_in_the_way_of_one_that_is_not() {
    let house = ServerHouse::new();
    let names: Vec<String> = (0..8).map(|number| format!("paused {number}")).collect();
    let paused: Vec<_> = names
        .iter()
        .map(|name| house.worker(name, &[], 1))
        .collect();
    // Some are paused before they wait, some while they do.
    let (before, meanwhile) = paused.split_at(4);
    before.iter().for_each(|worker| worker.change("pause"));
    let _polls: Vec<_> = paused.iter().map(|worker| worker.wait(1, &[])).collect();
    meanwhile.iter().for_each(|worker| worker.change("pause"));
    let ann = house.worker("ann", &[], 1);
    let mut poll = ann.wait(1, &[]);
    house.submit("hello");
    assert_eq!(attempts(&woken(&mut poll).expect(200)).len(), 1);
}

/// The worker declines and waits again, and nothing happens that could wake its poll. It gets the step back after ten seconds, as `why`
/// says, and not only when the poll ends by itself.
#[test]
fn a_step_that_its_only_worker_declined_comes_back_to_the_poll_that_waits() {
    let house = ServerHouse::new();
    let job_id = house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.claim();
    let declined = ann.report(&greet, "declined", json!({ "why": "the disk is full" }));
    assert_eq!(declined, "accepted");
    let why = house.get(&format!("/api/jobs/{job_id}/why")).text();
    let promise = regex_lite::Regex::new(r"asked again within (9|10)").unwrap();
    assert!(promise.is_match(&why), "{why}");
    let begun = Instant::now();
    let answer = ann.wait(1, &[]).answer().expect(200);
    assert_eq!(answer["assignments"][0]["attempt"], 2);
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(20), "{waited:?}");
}
