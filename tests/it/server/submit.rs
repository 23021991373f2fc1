//! Submitting: one request, one job; and of a request that is not understood nothing is left behind.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ServerHouse, word};

const HELLO: &str = "/api/tasks/hello/jobs";

fn keyed(house: &ServerHouse, key: &str, body: &Value) -> super::Answer {
    let headers = format!("idempotency-key: {key}\r\n");
    house.ask("POST", HELLO, &headers, body.to_string().as_bytes())
}

#[test]
fn a_job_is_made_as_it_was_asked_for() {
    let house = ServerHouse::new();
    let body = json!({
        "input": { "name": "world", "deep": [[{}]] }, "priority": -7,
        "not_before": "2999-01-01T00:00:00+01:00", "labels": { "team": "red", "empty": "" },
    });
    let job = house.post(HELLO, &body).expect(201);
    assert_eq!((&job["id"], &job["priority"]), (&json!(1), &json!(-7)));
    assert_eq!(job["input"], body["input"]);
    assert_eq!(job["labels"], body["labels"]);
    assert_eq!(job["source"], "submit");
    let ann = house.worker("ann", &[], 1);
    assert_eq!(
        ann.poll(1, &[]).expect(200)["assignments"],
        json!([]),
        "it is not time yet"
    );
    // Nothing at all, null, and an empty object say the same.
    for body in [
        Value::Null,
        json!({}),
        json!({ "input": null, "priority": null }),
    ] {
        let job = house.post(HELLO, &body).expect(201);
        assert_eq!((&job["input"], &job["priority"]), (&json!({}), &json!(0)));
    }
}

#[test]
fn a_more_important_job_is_given_first() {
    let house = ServerHouse::new();
    house.post(HELLO, &json!({ "priority": 1 })).expect(201);
    house.post(HELLO, &json!({ "priority": 9 })).expect(201);
    let ann = house.worker("ann", &[], 1);
    let given = ann.poll(1, &[]).expect(200);
    assert_eq!(given["assignments"][0]["job_id"], 2);
}

#[test]
fn a_key_makes_a_repetition_harmless() {
    let house = ServerHouse::new();
    let body = json!({ "input": { "n": 1 } });
    let first = keyed(&house, "order-17", &body);
    assert_eq!(first.expect(201)["id"], 1);
    let again = keyed(&house, "order-17", &body);
    assert_eq!(again.expect(200)["id"], 1);
    let other = keyed(&house, "order-17", &json!({ "input": { "n": 2 } }));
    assert_eq!(other.refused(422), "idempotency_mismatch");
    assert_eq!(keyed(&house, "order-18", &body).expect(201)["id"], 2);
    assert_eq!(house.jobs(), 2);
}

#[test]
fn fifty_repetitions_at_once_make_one_job() {
    let house = ServerHouse::new();
    let ids: Vec<i64> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..50)
            .map(|_| scope.spawn(|| keyed(&house, "once", &json!({}))))
            .collect();
        let answers = calls.into_iter().map(|call| call.join().unwrap());
        answers
            .map(|answer| answer.json()["id"].as_i64().unwrap())
            .collect()
    });
    assert_eq!(ids, [1; 50]);
    assert_eq!(house.jobs(), 1);
}

#[test]
fn a_key_that_is_there_and_makes_no_sense_is_not_taken_for_absent() {
    let house = ServerHouse::new();
    let long = "k".repeat(257);
    for key in ["", long.as_str()] {
        assert_eq!(
            keyed(&house, key, &json!({})).refused(422),
            "invalid",
            "{key}"
        );
    }
    for key in ["schlüssel", "a\tb\u{80}"] {
        assert_eq!(
            keyed(&house, key, &json!({})).refused(400),
            "bad_request",
            "{key}"
        );
    }
    let two = "idempotency-key: a\r\nidempotency-key: b\r\n";
    assert_eq!(
        house.ask("POST", HELLO, two, b"").refused(400),
        "bad_request"
    );
    assert_eq!(house.jobs(), 0);
}

#[test]
fn what_is_not_understood_makes_nothing() {
    let house = ServerHouse::new();
    let deep = |open: &str, close: &str| {
        let (open, close) = (open.repeat(100_000), close.repeat(100_000));
        format!("{{\"input\": {{\"a\": {open}{close}}}}}").into_bytes()
    };
    let utf_16: Vec<u8> = "{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let bodies: Vec<Vec<u8>> = vec![
        "[".repeat(100_000).into_bytes(),
        "{\"a\":".repeat(50_000).into_bytes(),
        deep("[", "]"),
        b"{\"priority\": 1, \"priority\": 2}".to_vec(),
        b"{\"labels\": {\"a\": \"1\", \"a\": \"2\"}}".to_vec(),
        b"{\"input\": {\"name\": \"a\", \"name\": \"b\"}}".to_vec(),
        b"{\"input\": {\"a\": [{\"b\": 1, \"b\": 2}]}}".to_vec(),
        b"{\"input\": {\"a\": NaN}}".to_vec(),
        b"{\"input\": {\"a\": 1e999}}".to_vec(),
        b"{\"input\": {\"a\": 00}}".to_vec(),
        b"{\"input\": {\"a\": 1,}}".to_vec(),
        b"\xef\xbb\xbf{}".to_vec(),
        utf_16,
        b"{\"input\": {\"a\": \"\\ud800\"}}".to_vec(),
        b"{\"input\": {\"a\": \"\xff\"}}".to_vec(),
        b"{\"input\": {\"\xc0\x80\": 1}}".to_vec(),
        b"{\"timout\": 5}".to_vec(),
        b"{\"state\": \"completed\", \"id\": 1, \"owner\": \"admin\"}".to_vec(),
        b"{} {}".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"\"hello\"".to_vec(),
        b"{\"input\": [1]}".to_vec(),
        b"{\"input\": \"text\"}".to_vec(),
        b"{\"priority\": 1.5}".to_vec(),
        b"{\"priority\": 99999999999}".to_vec(),
        b"{\"priority\": \"high\"}".to_vec(),
        b"{\"not_before\": \"tomorrow\"}".to_vec(),
        b"{\"not_before\": 5}".to_vec(),
        b"{\"labels\": {\"a\": 1}}".to_vec(),
        b"{\"labels\": {\"\": \"x\"}}".to_vec(),
        b"{\"labels\": {\"a\": \"\\u0000\"}}".to_vec(),
        b"{\"labels\": []}".to_vec(),
    ];
    for body in bodies {
        let begun = Instant::now();
        let answer = house.ask("POST", HELLO, "", &body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert!(
            [400, 422].contains(&answer.status),
            "{shown}: {}",
            answer.text()
        );
        answer.refused(answer.status);
        assert!(answer.message().len() < 2_000, "{shown}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{shown}");
    }
    assert_eq!(house.jobs(), 0);
    let unknown = house.post("/api/tasks/helo/jobs", &json!({}));
    assert_eq!(unknown.refused(404), "not_found");
}

#[test]
fn what_is_wrong_is_named() {
    let house = ServerHouse::new();
    for (body, name) in [
        (json!({ "timout": 5 }), "`timout`"),
        (json!({ "state": "completed" }), "`state`"),
        (json!({ "not_before": "soon" }), "2026-01-31T08:00:00Z"),
        (json!({ "input": 5 }), "input"),
    ] {
        let answer = house.post(HELLO, &body);
        assert_eq!(answer.refused(422), "invalid");
        assert!(answer.message().contains(name), "{}", answer.message());
    }
}

#[test]
fn large_inputs_pass_and_larger_ones_are_told_so() {
    let house = ServerHouse::new();
    let of = |bytes: usize| {
        let frame = json!({ "input": { "a": "" } }).to_string().len();
        json!({ "input": { "a": "x".repeat(bytes - frame) } })
    };
    let job = house.post(HELLO, &of(1 << 20)).expect(201);
    assert_eq!(word(&job["input"]["a"]).len(), (1 << 20) - 18);
    // Sent whole, although nobody reads it: the client still gets to hear why.
    for bytes in [(1 << 20) + 1, 8 << 20] {
        let answer = house.post(HELLO, &of(bytes));
        assert_eq!(answer.refused(413), "too_large", "{bytes}");
    }
    // In pieces, without saying how much it will be.
    let mut line = house.line();
    line.send(format!(
        "POST {HELLO} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    ));
    let piece = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for _ in 0..20 {
        line.send(&piece);
    }
    line.send("0\r\n\r\n");
    assert_eq!(line.answer().refused(413), "too_large");
    assert_eq!(house.jobs(), 1);
}

#[test]
fn ten_gigabytes_are_refused_before_the_first_byte() {
    let house = ServerHouse::new();
    let mut line = house.line();
    line.send(format!(
        "POST {HELLO} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000000000\r\n\r\n"
    ));
    assert_eq!(line.answer().refused(413), "too_large");
    let mut line = house.line();
    line.send(format!(
        "POST {HELLO} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 10000000000\r\n\r\n"
    ));
    assert_eq!(
        line.answer().refused(413),
        "too_large",
        "nobody was told to go on"
    );
}
