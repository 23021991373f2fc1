//! Selectors: a job is named by its number, or as the latest of its kind, wherever a job is asked for.

use serde_json::{Value, json};

use super::{ServerHouse, word};

/// Job 1 of `hello` completed, 2 failed, 3 cancelled, 4 running; 5 of `pair` waits; 6 of `outer` has child 7 of `hello`.
fn some_of_each() -> ServerHouse {
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 9);
    house.submit("hello");
    assert_eq!(ann.complete(&ann.begin()), "accepted");
    house.submit("hello");
    let failed = json!({ "finished": { "outcome": "failed", "reason": "exit_code", "message": "exit code 2", "exit_code": 2 } });
    ann.report(&ann.begin(), "finished", failed);
    house.submit("hello");
    house.post("/api/jobs/3/cancel", &Value::Null).expect(200);
    house.submit("hello");
    ann.begin();
    house.submit("pair");
    house.submit("outer");
    house
}

fn selected(house: &ServerHouse, selector: &str) -> i64 {
    let job = house.get(&format!("/api/jobs/{selector}")).expect(200);
    job["id"].as_i64().unwrap()
}

#[test]
fn the_latest_of_its_kind_is_found() {
    let house = some_of_each();
    for (selector, job_id) in [
        ("3", 3),
        ("003", 3),
        ("latest", 6),
        ("hello@latest", 7),
        ("hello%40latest", 7),
        ("hello@pending", 7),
        ("hello@running", 4),
        ("hello@cancelled", 3),
        ("hello@failed", 2),
        ("hello@completed", 1),
        ("pair@latest", 5),
    ] {
        assert_eq!(selected(&house, selector), job_id, "{selector}");
    }
}

#[test]
fn what_fits_no_job_is_told_in_one_sentence() {
    let house = ServerHouse::new();
    for selector in ["latest", "hello@latest", "hello@failed", "nobody@latest"] {
        let answer = house.get(&format!("/api/jobs/{selector}"));
        assert_eq!(answer.refused(404), "not_found");
        let expected = format!("there is no job \"{selector}\"");
        assert_eq!(answer.message(), expected);
    }
    house.submit("hello");
    for (odd, meant) in [
        ("hello", "hello@latest"),
        ("helo", "hello@latest"),
        ("hello@", "hello@latest"),
        ("hello@broken", ""),
        ("hello@faild", "hello@failed"),
        ("helo@faild", "hello@failed"),
        ("nobody@faild", ""),
        ("@", ""),
        ("latest@", "latest"),
        ("LATEST", "latest"),
        ("latst", "latest"),
        ("rubbish", ""),
    ] {
        let answer = house.get(&format!("/api/jobs/{odd}"));
        assert_eq!(answer.refused(404), "not_found", "{odd}");
        let mut expected =
            format!("\"{odd}\" names no job, write its number, latest, TASK@latest or TASK@failed");
        if !meant.is_empty() {
            expected += &format!("; did you mean {meant}?");
        }
        assert_eq!(answer.message(), expected);
    }
    for (path, answer) in [
        ("", house.get("/api/jobs/helo@latest")),
        (
            "/cancel",
            house.post("/api/jobs/helo@latest/cancel", &Value::Null),
        ),
        (
            "/retry",
            house.post("/api/jobs/helo@latest/retry", &Value::Null),
        ),
    ] {
        assert_eq!(answer.refused(404), "not_found", "{path}");
        let expected = "there is no job \"helo@latest\"; did you mean hello@latest?";
        assert_eq!(answer.message(), expected, "{path}");
    }
    assert_eq!(house.get("/api/jobs/@latest").refused(404), "not_found");
}

/// Without how long something is as it is, which goes on between two questions.
fn timeless(mut answer: Value) -> Value {
    fn forget(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.remove("since_secs");
                members.values_mut().for_each(forget);
            }
            Value::Array(items) => items.iter_mut().for_each(forget),
            _ => {}
        }
    }
    forget(&mut answer);
    answer
}

#[test]
fn a_selector_stands_wherever_a_job_does() {
    let house = some_of_each();
    for path in ["", "/why", "/events", "/logs"] {
        let named = house.get(&format!("/api/jobs/hello@failed{path}"));
        let numbered = house.get(&format!("/api/jobs/2{path}"));
        let (named, numbered) = (named.expect(200), numbered.expect(200));
        assert_eq!(timeless(named), timeless(numbered), "{path}");
    }
    for path in ["logs", "why", "output"] {
        let named = house.get(&format!("/api/jobs/hello@failed/steps/greet/{path}"));
        let numbered = house.get(&format!("/api/jobs/2/steps/greet/{path}"));
        let (named, numbered) = (named.expect(200), numbered.expect(200));
        assert_eq!(timeless(named), timeless(numbered), "{path}");
    }
    let mut listener = house.stream("?job=hello@running&after=0", "");
    assert_eq!(listener.next().data["job_id"], 4);

    // It is the job that was meant that is shown, although the name fits another one, or none, afterwards.
    let cancel = || house.post("/api/jobs/hello@running/cancel", &Value::Null);
    let cancelled = cancel().expect(200);
    assert_eq!(
        (&cancelled["id"], word(&cancelled["status"])),
        (&json!(4), "cancelled".to_string())
    );
    assert_eq!(cancel().refused(404), "not_found");
    house.submit("ask");
    let approved = house.post("/api/jobs/ask@running/steps/sure/approve", &Value::Null);
    assert_eq!(word(&approved.expect(200)["status"]), "completed");
    let retried = house.post("/api/jobs/hello@failed/retry", &Value::Null);
    assert_eq!(retried.expect(201)["retry_of"], 2);
}

#[test]
fn a_key_makes_a_repeated_retry_harmless() {
    let house = some_of_each();
    let retry = |selector: &str, key: &str, body: Value| {
        let path = format!("/api/jobs/{selector}/retry");
        let headers = format!("idempotency-key: {key}\r\n");
        house.ask("POST", &path, &headers, body.to_string().as_bytes())
    };
    let first = retry("hello@cancelled", "again-1", json!({})).expect(201);
    assert_eq!((&first["id"], &first["retry_of"]), (&json!(8), &json!(3)));
    // By now the name fits another job; the request is the same.
    house.post("/api/jobs/8/cancel", &Value::Null).expect(200);
    let again = retry("hello@cancelled", "again-1", json!({})).expect(200);
    assert_eq!((&again["id"], &again["retry_of"]), (&json!(8), &json!(3)));
    for other in [
        retry("hello@cancelled", "again-1", json!({ "all": true })),
        retry("hello@cancelled", "again-1", json!({ "from": "greet" })),
        retry("3", "again-1", json!({})),
        retry("2", "again-1", json!({})),
    ] {
        assert_eq!(other.refused(422), "idempotency_mismatch");
    }
    // A key is a key, whatever it was used for.
    let headers = "idempotency-key: again-1\r\n";
    let submitted = house.ask("POST", "/api/tasks/hello/jobs", headers, b"");
    assert_eq!(submitted.refused(422), "idempotency_mismatch");
    assert_eq!(
        retry("hello@cancelled", "", json!({})).refused(422),
        "invalid"
    );
    assert_eq!(house.jobs(), 8);

    let ids: Vec<i64> = std::thread::scope(|scope| {
        let retry = &retry;
        let calls: Vec<_> = (0..20)
            .map(|_| scope.spawn(move || retry("2", "again-2", json!({}))))
            .collect();
        let answers = calls.into_iter().map(|call| call.join().unwrap());
        answers
            .map(|answer| answer.json()["id"].as_i64().unwrap())
            .collect()
    });
    assert_eq!(ids, [9; 20]);
}
