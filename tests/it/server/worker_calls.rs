//! The worker protocol over HTTP: the life of a step, and what becomes of words that are late, wrong or not one's own.

use std::time::Duration;

use serde_json::{Value, json};
use stepward::client::CallError;
use stepward::server::Limits;

use super::{ServerHouse, attempts, item, session_request, word};

#[test]
fn a_step_lives_from_its_assignment_to_its_result() {
    let house = ServerHouse::new();
    house
        .post(
            "/api/tasks/hello/jobs",
            &json!({ "input": { "to": "all" } }),
        )
        .expect(201);
    let ann = house.worker("ann", &[], 2);
    let answer = ann.poll(2, &[]).expect(200);
    assert_eq!(
        (&answer["abort"], &answer["draining"]),
        (&json!([]), &json!(false))
    );
    let given = &answer["assignments"][0];
    assert_eq!(
        (word(&given["task"]), word(&given["step"])),
        ("hello".into(), "greet".into())
    );
    assert_eq!(given["action"]["type"], "script");
    assert_eq!(given["input"], json!({ "to": "all" }));
    assert_eq!(
        (&given["attempt"], &given["ack_timeout_ms"]),
        (&json!(1), &json!(60_000))
    );
    let greet = super::attempt(given);
    assert_eq!(word(&house.job(1)["steps"][0]["status"]), "assigned");

    // The answer was lost: what it should hold and does not comes again, the same attempt.
    let again = attempts(&ann.poll(2, &[]).expect(200));
    assert_eq!(again, std::slice::from_ref(&greet));
    assert_eq!(
        attempts(&ann.poll(2, std::slice::from_ref(&greet)).expect(200)),
        [] as [Value; 0]
    );

    assert_eq!(ann.report(&greet, "keepalive", json!({})), "accepted");
    assert_eq!(ann.report(&greet, "started", json!({})), "accepted");
    let started_at = house.job(1)["steps"][0]["started_at"].clone();
    assert_eq!(ann.report(&greet, "started", json!({})), "accepted");
    assert_eq!(house.job(1)["steps"][0]["started_at"], started_at);
    let mut held = greet.clone();
    held["phase"] = "running".into();
    let beat = ann.heartbeat(1, &json!([held])).expect(200);
    assert_eq!(beat, json!({ "abort": [], "draining": false }));

    assert_eq!(ann.complete(&greet), "accepted");
    let ended = house.job(1);
    assert_eq!(ann.complete(&greet), "abort", "it is over, be it by itself");
    assert_eq!(house.job(1), ended);
    assert_eq!(word(&ended["status"]), "completed");
}

#[test]
fn the_second_of_two_results_changes_nothing() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.begin();
    assert_eq!(ann.complete(&greet), "accepted");
    let failed =
        json!({ "finished": { "outcome": "failed", "reason": "exit_code", "exit_code": 1 } });
    ann.report(&greet, "finished", failed);
    assert_eq!(house.status(1), "completed");
}

#[test]
fn a_heartbeat_says_what_is_held_even_if_that_is_nothing() {
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 1);
    let without = json!({ "session": ann.session, "seq": 1 });
    let answer = house.post("/api/worker/heartbeat", &without);
    assert_eq!(answer.refused(422), "invalid");
    assert!(answer.message().contains("`held`"), "{}", answer.message());
    assert_eq!(ann.heartbeat(1, &Value::Null).refused(422), "invalid");
    ann.heartbeat(1, &json!([])).expect(200);
    // What is not in its hands is to be given up.
    let strange = json!([{ "step_id": 77, "attempt": 1, "phase": "running" }]);
    let answer = ann.heartbeat(2, &strange).expect(200);
    assert_eq!(answer["abort"], json!([{ "step_id": 77, "attempt": 1 }]));
}

#[test]
fn one_bad_item_among_ten_does_not_touch_the_others() {
    let house = ServerHouse::new();
    house.submit("wide");
    let ann = house.worker("ann", &[], 8);
    let given = attempts(&ann.poll(8, &[]).expect(200));
    assert_eq!(given.len(), 8);
    let started = |attempt: &Value| item(attempt, "started", json!({}));
    let spoilt = [
        item(&given[0], "dancing", json!({})),
        item(
            &json!({ "step_id": given[0]["step_id"], "attempt": -1 }),
            "started",
            json!({}),
        ),
        item(&given[0], "finished", json!({})),
        item(
            &given[0],
            "finished",
            json!({ "finished": { "outcome": "failed", "reason": "bad_luck" } }),
        ),
        item(
            &given[0],
            "finished",
            json!({ "finished": { "outcome": "vanished" } }),
        ),
        json!("started"),
        Value::Null,
    ];
    let results = ann.report_all(spoilt.to_vec());
    assert_eq!(results, ["refused"; 7]);
    for (at, bad) in spoilt.into_iter().take(7).enumerate() {
        let mut items = vec![started(&given[at + 1])];
        items.insert(at % 2, bad);
        let results = ann.report_all(items);
        let expected = if at % 2 == 0 {
            ["refused", "accepted"]
        } else {
            ["accepted", "refused"]
        };
        assert_eq!(results, expected);
    }
    let mut ten: Vec<Value> = given[1..]
        .iter()
        .map(|attempt| {
            item(
                attempt,
                "finished",
                json!({ "finished": { "outcome": "completed" } }),
            )
        })
        .collect();
    ten.insert(3, json!({ "step_id": "x" }));
    ten.push(started(&given[0]));
    ten.push(started(&json!({ "step_id": 999, "attempt": 1 })));
    let results = ann.report_all(ten);
    let mut expected = vec!["accepted"; 9];
    expected.insert(3, "refused");
    expected[9] = "abort";
    assert_eq!(results, expected);
}

#[test]
fn whoever_reports_about_what_is_not_its_own_is_told_to_stop() {
    let house = ServerHouse::new();
    house.submit("hello");
    let (ann, bob) = (house.worker("ann", &[], 1), house.worker("bob", &[], 1));
    let greet = ann.begin();
    for (step_id, attempt) in [(1, 1), (1, 2), (1, 0), (1, u32::MAX), (99, 1)] {
        let strange = json!({ "step_id": step_id, "attempt": attempt });
        assert_eq!(bob.complete(&strange), "abort", "{strange}");
    }
    let next = json!({ "step_id": greet["step_id"], "attempt": 2 });
    assert_eq!(ann.complete(&next), "abort");
    assert_eq!(house.status(1), "running");
    let request = json!({ "session": "nobody", "items": [item(&greet, "started", json!({}))] });
    let answer = house.post("/api/worker/reports", &request).expect(200);
    assert_eq!(answer["results"][0]["result"], "abort");
    assert_eq!(ann.complete(&greet), "accepted");
}

#[test]
fn a_declined_step_goes_to_another() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.claim();
    let bob = house.worker("bob", &[], 1);
    assert_eq!(
        ann.report(&greet, "declined", json!({ "why": "no disk" })),
        "accepted"
    );
    assert_eq!(attempts(&ann.poll(1, &[]).expect(200)), [] as [Value; 0]);
    let again = bob.claim();
    assert_eq!(again["attempt"], 2);
    let former = house.job(1)["steps"][0]["attempts"][0].clone();
    assert_eq!(word(&former["outcome"]), "returned");
    assert!(word(&former["message"]).contains("no disk"));
}

#[test]
fn sessions_that_are_over_hear_it_in_every_answer() {
    let house = ServerHouse::new();
    let old = house.life("ann", 1, &[], 1);
    let new = house.life("ann", 2, &[], 1);
    assert_eq!(old.worker_id, new.worker_id);
    let calls = |session: &str| {
        let poll = json!({ "session": session, "free_slots": 1, "held": [], "wait_ms": 0 });
        let beat = json!({ "session": session, "seq": 1, "held": [] });
        let reports = json!({ "session": session, "items": [] });
        [
            house.post("/api/worker/poll", &poll),
            house.post("/api/worker/heartbeat", &beat),
            house.post("/api/worker/reports", &reports),
            house.post("/api/worker/drain", &json!({ "session": session })),
        ]
    };
    for answer in calls(&old.session) {
        assert_eq!(answer.refused(410), "session_replaced");
    }
    for answer in calls("of nobody") {
        assert_eq!(answer.refused(410), "session_unknown");
    }
    for answer in calls(&new.session) {
        answer.expect(200);
    }
    assert_eq!(new.shown()["draining"], true);
}

#[test]
fn a_restart_hands_over_what_was_finished_and_loses_the_rest() {
    let house = ServerHouse::new();
    house.submit("hello");
    house.submit("hello");
    let ann = house.worker("ann", &[], 2);
    let (first, second) = (ann.begin(), ann.begin());
    let spooled = |attempt: &Value, finished: Value| {
        let mut spooled = attempt.clone();
        spooled["session"] = ann.session.clone().into();
        spooled["finished"] = finished;
        spooled
    };
    let mut request = session_request("ann", "ann 2", &[], 2);
    request["spooled"] = json!([
        // Written by a version that knows more reasons: it does not keep the worker out.
        spooled(&second, json!({ "outcome": "failed", "reason": "solar_flare" })),
        spooled(&first, json!({ "outcome": "completed", "exit_code": 0 })),
        { "what": "is this" },
    ]);
    let opened = house.post("/api/worker/sessions", &request).expect(200);
    let results = opened["spooled"].as_array().unwrap().iter();
    let results: Vec<String> = results.map(|result| word(&result["result"])).collect();
    assert_eq!(results, ["refused", "accepted", "refused"]);
    assert_eq!(house.status(1), "completed");
    assert_eq!(
        word(&house.job(2)["steps"][0]["reason"]),
        "worker_restarted"
    );
}

#[test]
fn a_registration_that_makes_no_sense_is_refused() {
    let house = ServerHouse::new();
    let good = session_request("ann", "life", &[], 1);
    let bad = |key: &str, value: Value| {
        let mut request = good.clone();
        request[key] = value;
        let answer = house.post("/api/worker/sessions", &request);
        assert_eq!(answer.refused(422), "invalid", "{request}");
    };
    bad("name", json!(""));
    bad("session", json!("\0"));
    bad("instance", json!("x".repeat(300)));
    bad("slots", json!(-1));
    bad("slots", json!(1_000_000));
    bad("tags", json!(["a b"]));
    bad("tags", json!("script"));
    bad("spooled", Value::Null);
    assert_eq!(house.get("/api/workers").expect(200)["items"], json!([]));
}

#[test]
fn a_list_without_end_is_refused() {
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 1);
    let held: Vec<Value> = (0..10_001)
        .map(|id| json!({ "step_id": id, "attempt": 1, "phase": "running" }))
        .collect();
    assert_eq!(ann.heartbeat(1, &json!(held)).refused(422), "invalid");
    let many: Vec<Value> = (0..40_000)
        .map(|id| json!({ "step_id": id, "attempt": 1, "phase": "running" }))
        .collect();
    assert_eq!(ann.heartbeat(1, &json!(many)).refused(422), "invalid");
}

#[test]
fn the_client_brings_refusals_back_as_what_they_are() {
    let house = ServerHouse::new();
    let client = house.client();
    let timeout = Duration::from_secs(10);
    let tasks: Value = client.get("/api/tasks", timeout).unwrap();
    assert_eq!(tasks["items"][2]["name"], "hello");
    let refused = client.get::<Value>("/api/jobs/7", timeout).unwrap_err();
    let CallError::Refused { status, error, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!((status, error.code.as_str()), (404, "not_found"));
    let large = json!({ "input": { "a": "x".repeat(3 << 20) } });
    let refused = client
        .post::<_, Value>("/api/tasks/hello/jobs", &large, timeout)
        .unwrap_err();
    assert!(
        matches!(refused, CallError::Refused { status: 413, .. }),
        "{refused}"
    );
    let job: Value = client
        .post("/api/tasks/hello/jobs", &json!({}), timeout)
        .unwrap();
    assert_eq!(job["id"], 1);
}

#[test]
fn the_job_lists_every_started_attempt_with_its_outcome() {
    let house = ServerHouse::with(Limits::default(), |config| {
        let careful =
            "tasks: { careful: { flow: { migrate: { script: echo, on_worker_loss: hold } } } }";
        let workflows = config.workflows_dir.as_ref().unwrap();
        std::fs::write(workflows.join("careful.yaml"), careful).unwrap();
    });
    let job = house.submit("careful");
    house.life("ann", 1, &[], 1).begin();
    house.life("ann", 2, &[], 1);
    let held = house.job(job)["steps"][0].clone();
    assert_eq!(word(&held["status"]), "suspended");
    let attempts = held["attempts"].clone();
    assert_eq!(attempts.as_array().unwrap().len(), 1, "{attempts}");
    assert_eq!(attempts[0]["outcome"], "failed");
    assert_eq!(attempts[0]["reason"], "worker_restarted");
    assert_eq!(attempts[0]["worker"], "ann");
    assert_eq!(attempts[0]["session"], 1);
    let told = word(&attempts[0]["message"]);
    assert!(told.contains("worker ann restarted"), "{told}");

    let path = format!("/api/jobs/{job}/steps/migrate/reject");
    house.post(&path, &json!({ "why": "no" })).expect(200);
    let rejected = house.job(job)["steps"][0].clone();
    assert_eq!(word(&rejected["status"]), "failed");
    assert_eq!(rejected["attempts"], attempts);

    // A child job is an attempt of the step that calls it.
    let outer = house.submit("outer");
    let calls = house.job(outer)["steps"][0]["attempts"].clone();
    assert_eq!(calls.as_array().unwrap().len(), 1, "{calls}");
    assert_eq!(calls[0]["outcome"], "running");
}

/// What a worker says of itself is shown in terminals and on pages: it may neither paint there nor read backwards.
#[test]
fn what_a_worker_says_of_itself_controls_no_terminal() {
    let house = ServerHouse::new();
    house.submit("hello");
    let mut request = session_request("ann", "first", &[], 1);
    request["version"] = "1.0\u{1b}[31m\u{9b}2J\u{202e}".into();
    request["platform"] = "linux\r\n\u{7}x86\u{2066}\u{200f}".into();
    house.post("/api/worker/sessions", &request).expect(200);
    let worker = &house.get("/api/workers").expect(200)["items"][0];
    assert_eq!(worker["version"], "1.0\u{fffd}[31m\u{fffd}2J\u{fffd}");
    assert_eq!(worker["platform"], "linux  \u{fffd}x86\u{fffd}\u{fffd}");
    for name in ["a\u{1b}[2J", "a\u{202e}b", "a\u{85}b"] {
        request["name"] = name.into();
        request["instance"] = "another".into();
        request["session"] = "another".into();
        house.post("/api/worker/sessions", &request).refused(422);
    }
    let bob = house.worker("bob", &[], 1);
    let greet = bob.claim();
    let why = "no\u{1b}[1m disk\u{2069}\nhere";
    bob.report(&greet, "declined", json!({ "why": why }));
    let former = house.job(1)["steps"][0]["attempts"][0].clone();
    assert!(
        word(&former["message"]).ends_with("no\u{fffd}[1m disk\u{fffd}\nhere"),
        "{former}"
    );
    let cyd = house.worker("cyd", &[], 1);
    let again = cyd.claim();
    cyd.report(&again, "started", json!({}));
    let message = "it\u{1b}]0;title\u{7} failed";
    let failed = json!({ "finished": { "outcome": "failed", "reason": "exit_code", "exit_code": 1, "message": message } });
    cyd.report(&again, "finished", failed);
    let shown = house.get("/api/jobs/1").text()
        + &house.get("/api/events").text()
        + &house.get("/jobs/1").text();
    assert!(
        shown.contains("]0;title") && !shown.contains(['\u{1b}', '\u{7}', '\u{202e}']),
        "{shown}"
    );
    assert!(
        !shown.contains("\\u001b") && !shown.contains("\\u0007"),
        "{shown}"
    );
}
