//! Server-sent events: told as it happens, resumed where it broke off, and nobody waits for a listener who does not read.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Listener, ServerHouse, Told, until, word};

#[test]
fn an_event_and_a_change_are_told_as_they_happen() {
    let house = ServerHouse::new();
    house.submit("hello");
    let mut listener = house.stream("", "");
    let begun = Instant::now();
    let job_id = house.submit("hello");
    let event = listener.next_where("event", |event| event["kind"] == "job_submitted");
    assert_eq!(event.data["job_id"], job_id, "what was before is not told");
    let change = listener.next_where("job", |_| true);
    assert_eq!(change.data["job_id"], job_id);
    assert_eq!(
        (&change.data["task"], &change.data["status"]),
        (&"hello".into(), &"pending".into())
    );
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );

    let ann = house.worker("ann", &[], 2);
    let greet = ann.begin();
    ann.complete(&greet);
    let done = listener.next_where("job", |job| job["status"] == "completed");
    assert_eq!(done.data["job_id"], 1);
}

/// The numbers of all events up to the one of this job.
fn events_until(listener: &mut Listener, job_id: i64) -> Vec<Told> {
    let mut told = Vec::new();
    loop {
        let next = listener.next();
        let is_last = next.kind == "event" && next.data["job_id"] == job_id;
        told.push(next);
        if is_last {
            return told;
        }
    }
}

fn seqs(told: &[Told]) -> Vec<i64> {
    let events = told.iter().filter(|told| told.kind == "event");
    events
        .map(|told| told.data["seq"].as_i64().unwrap())
        .collect()
}

#[test]
fn who_resumes_misses_nothing_and_hears_no_event_twice() {
    let house = ServerHouse::new();
    let mut listener = house.stream("", "");
    let (mut heard, mut jobs) = (Vec::new(), BTreeSet::new());
    let mut hear = |told: &[Told]| {
        heard.extend(seqs(told));
        let changes = told.iter().filter(|told| told.kind == "job");
        jobs.extend(changes.map(|told| told.data["job_id"].as_i64().unwrap()));
    };
    let mut last = 0;
    for round in 0..30 {
        for _ in 0..(round % 4) + 1 {
            last = house.submit("hello");
        }
        if round % 3 == 0 {
            let told = events_until(&mut listener, last);
            let place = told.last().unwrap().id.clone();
            hear(&told);
            drop(listener);
            if round % 2 == 0 {
                last = house.submit("hello");
            }
            listener = house.stream("", &format!("last-event-id: {place}\r\n"));
        }
    }
    last = house.submit("hello");
    hear(&events_until(&mut listener, last));
    let all = house.get("/api/events?limit=500&after=0").expect(200);
    let all = all["items"].as_array().unwrap().iter();
    let all: Vec<i64> = all.map(|event| event["seq"].as_i64().unwrap()).collect();
    assert_eq!(heard, all);
    while !(1..=last).all(|job_id| jobs.contains(&job_id)) {
        let change = listener.next_where("job", |_| true);
        jobs.insert(change.data["job_id"].as_i64().unwrap());
    }
}

#[test]
fn a_long_absence_is_caught_up_with() {
    let house = ServerHouse::new();
    let first = house.stream("", "");
    drop(first);
    for _ in 0..350 {
        house.submit("hello");
    }
    let mut listener = house.stream("?after=0.0", "");
    let told = events_until(&mut listener, 350);
    assert_eq!(seqs(&told).len(), 350);
    // A single number is an event's; of jobs it is told from now on.
    let mut listener = house.stream("?after=348", "");
    let event = listener.next();
    assert_eq!(
        (event.kind.as_str(), &event.data["seq"]),
        ("event", &349.into())
    );
    let place = event.id.clone();
    assert_eq!(listener.next().data["seq"], 350);
    drop(listener);
    let job_id = house.submit("hello");
    let mut listener = house.stream("", &format!("last-event-id: {place}\r\n"));
    assert_eq!(seqs(&events_until(&mut listener, job_id)), [350, 351]);
    assert_eq!(listener.next_where("job", |_| true).data["job_id"], job_id);
}

#[test]
fn a_place_that_is_yet_to_come_is_the_present() {
    let house = ServerHouse::new();
    house.submit("hello");
    let mut listener = house.stream("", "last-event-id: 99999.99999\r\n");
    let job_id = house.submit("hello");
    assert_eq!(
        listener.next_where("event", |_| true).data["job_id"],
        job_id
    );
    assert_eq!(listener.next_where("job", |_| true).data["job_id"], job_id);
}

#[test]
fn a_place_that_is_none_is_refused() {
    let house = ServerHouse::new();
    for place in ["x", "1.x", "1.2.3", "99999999999999999999", "-", ""] {
        let headers = format!("accept: text/event-stream\r\nlast-event-id: {place}\r\n");
        let answer = house.ask("GET", "/api/events", &headers, b"");
        assert_eq!(answer.refused(422), "invalid", "{place:?}");
    }
    let headers = "accept: text/event-stream\r\n";
    assert_eq!(
        house
            .ask("GET", "/api/events?job=7", headers, b"")
            .refused(404),
        "not_found"
    );
    assert_eq!(
        house
            .ask("GET", "/api/events?limit=7", headers, b"")
            .refused(422),
        "invalid"
    );
}

#[test]
fn of_one_job_only_what_concerns_it_is_told() {
    let house = ServerHouse::new();
    for _ in 0..3 {
        house.submit("hello");
    }
    let mut listener = house.stream("?job=2", "");
    for job_id in [1, 2, 3] {
        house
            .post(&format!("/api/jobs/{job_id}/cancel"), &Value::Null)
            .expect(200);
    }
    loop {
        let told = listener.next();
        assert_eq!(told.data["job_id"], 2, "{told:?}");
        if told.kind == "job" && word(&told.data["status"]) == "cancelled" {
            break;
        }
    }
}

#[test]
fn many_listen_and_all_hear_the_same() {
    let house = ServerHouse::new();
    let mut listeners: Vec<Listener> = (0..100).map(|_| house.stream("", "")).collect();
    assert_eq!(house.server.event_streams(), 100);
    let job_id = house.submit("hello");
    for listener in &mut listeners {
        let told = listener.next_where("event", |_| true);
        assert_eq!(told.data["job_id"], job_id);
    }
    listeners.truncate(10);
    until("those who left are forgotten", || {
        house.submit("hello");
        house.server.event_streams() == 10
    });
}

#[test]
fn who_does_not_read_is_nobodys_burden() {
    const EVENTS: i64 = 1_600;
    let house = ServerHouse::new();
    let mut reader = house.stream("", "");
    let mut lazy = house.stream("?after=0.0", "");
    // Far more than fits on the way to somebody who does not take it.
    let why = "x".repeat(4_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EVENTS / 8 {
                    let job_id = house.submit("ask");
                    let path = format!("/api/jobs/{job_id}/steps/sure/reject");
                    house.post(&path, &json!({ "why": why })).expect(200);
                }
            });
        }
        let mut heard = 0;
        while heard < EVENTS {
            let told = reader.next_where("event", |_| true);
            assert!(told.data["seq"].as_i64().unwrap() > heard);
            heard += 1;
        }
    });
    let last = house.submit("hello");
    assert_eq!(
        seqs(&events_until(&mut reader, last)).len() as i64,
        told_later(&house, EVENTS)
    );
    // And when it reads on, all of it is there.
    let heard = seqs(&events_until(&mut lazy, last));
    let all = house.get("/api/events?limit=1").expect(200)["items"][0]["seq"]
        .as_i64()
        .unwrap();
    assert_eq!(heard, (1..=all).collect::<Vec<i64>>());
}

/// Events after so many.
fn told_later(house: &ServerHouse, events: i64) -> i64 {
    let all = house.get("/api/events?limit=1").expect(200);
    all["items"][0]["seq"].as_i64().unwrap() - events
}
