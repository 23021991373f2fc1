//! Addresses: what is not in the table does not exist, and what is there answers to its methods and words alone.

use serde_json::{Value, json};

use super::ServerHouse;

/// Every route with its method and the words that it knows after a `?`.
const ROUTES: &[(&str, &str, &[&str])] = &[
    ("GET", "/healthz", &[]),
    ("GET", "/readyz", &[]),
    ("GET", "/api/tasks", &["limit", "after"]),
    ("GET", "/api/tasks/hello", &[]),
    ("POST", "/api/tasks/hello/jobs", &[]),
    ("GET", "/api/jobs", &["q", "limit", "after"]),
    ("GET", "/api/failures", &["limit"]),
    ("GET", "/api/jobs/1", &[]),
    ("POST", "/api/jobs/1/cancel", &[]),
    ("POST", "/api/jobs/1/retry", &[]),
    ("GET", "/api/jobs/1/why", &[]),
    ("GET", "/api/jobs/1/events", &["limit", "after"]),
    ("GET", "/api/jobs/1/logs", &["tail", "limit", "after"]),
    (
        "GET",
        "/api/jobs/1/steps/greet/logs",
        &["tail", "from", "n", "grep", "ignore_case", "raw", "attempt"],
    ),
    ("GET", "/api/jobs/1/steps/greet/why", &[]),
    ("GET", "/api/jobs/1/steps/greet/output", &[]),
    ("POST", "/api/jobs/1/steps/greet/approve", &[]),
    ("POST", "/api/jobs/1/steps/greet/reject", &[]),
    ("POST", "/api/jobs/1/steps/greet/requeue", &[]),
    ("POST", "/api/jobs/1/steps/greet/fail", &[]),
    ("GET", "/api/schedules", &["limit", "after"]),
    ("GET", "/api/schedules/1", &[]),
    ("GET", "/api/schedules/1/fires", &["limit", "before"]),
    ("GET", "/api/schedules/1/why", &[]),
    ("POST", "/api/schedules/1/pause", &[]),
    ("POST", "/api/schedules/1/resume", &[]),
    ("POST", "/api/schedules/1/fire", &[]),
    ("GET", "/api/queue", &["limit", "after"]),
    ("GET", "/api/workers", &["limit", "after"]),
    ("GET", "/api/workers/1", &[]),
    ("GET", "/api/workers/1/why", &[]),
    ("POST", "/api/workers/1/drain", &[]),
    ("POST", "/api/workers/1/pause", &[]),
    ("POST", "/api/workers/1/resume", &[]),
    ("DELETE", "/api/workers/1", &["force"]),
    (
        "GET",
        "/api/events",
        &["after", "before", "limit", "recovery"],
    ),
    ("GET", "/api/recovery", &[]),
    ("POST", "/api/recovery/sweep", &[]),
    (
        "GET",
        "/api/deliveries",
        &["state", "target", "job", "limit", "after"],
    ),
    ("GET", "/api/deliveries/1", &[]),
    ("POST", "/api/deliveries/1/redeliver", &[]),
    ("POST", "/api/notify/ops/test", &[]),
    ("POST", "/api/worker/sessions", &[]),
    ("POST", "/api/worker/heartbeat", &[]),
    ("POST", "/api/worker/poll", &[]),
    ("POST", "/api/worker/reports", &[]),
    ("POST", "/api/worker/drain", &[]),
    (
        "PUT",
        "/api/worker/steps/1/attempts/1/log",
        &["session", "offset"],
    ),
];

/// Workers of other versions may say more than this server knows: their routes ignore it. See `protocol.rs`.
fn is_for_people(path: &str) -> bool {
    !path.starts_with("/api/worker/")
}

#[test]
fn a_word_that_nobody_would_look_at_is_refused_by_its_name() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let before = (house.job(1), ann.shown()["paused"].clone(), house.jobs());
    for (method, path, known) in ROUTES.iter().filter(|route| is_for_people(route.1)) {
        let answer = house.ask(method, &format!("{path}?limt=5"), "", b"");
        assert_eq!(answer.refused(422), "invalid", "{method} {path}");
        let message = answer.message();
        assert!(message.contains("\"limt\""), "{method} {path}: {message}");
        for word in *known {
            assert!(message.contains(word), "{method} {path}: {message}");
        }
    }
    let after = (house.job(1), ann.shown()["paused"].clone(), house.jobs());
    assert_eq!(before, after, "nothing was done");
}

#[test]
fn a_field_that_nobody_would_look_at_is_refused_by_its_name() {
    let house = ServerHouse::new();
    house.submit("hello");
    house.worker("ann", &[], 1);
    let for_people = ROUTES.iter().filter(|route| is_for_people(route.1));
    for (method, path, _) in for_people.filter(|(method, ..)| *method == "POST") {
        let answer = house.post(path, &json!({ "timout": 5 }));
        assert_eq!(answer.refused(422), "invalid", "{method} {path}");
        assert!(answer.message().contains("`timout`"), "{method} {path}");
    }
    assert_eq!((house.status(1), house.jobs()), ("pending".to_string(), 1));
}

#[test]
fn a_method_that_an_address_does_not_know_is_told_those_that_it_knows() {
    let house = ServerHouse::new();
    for (known, path, _) in ROUTES {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
            let also = ROUTES
                .iter()
                .any(|route| (route.0, route.1) == (method, *path));
            if also {
                continue;
            }
            let answer = house.ask(method, path, "", b"");
            assert_eq!(answer.refused(405), "method_not_allowed", "{method} {path}");
            let allow = answer.header("allow").expect("what is allowed");
            assert!(
                allow.split(", ").any(|allowed| allowed == *known),
                "{allow}"
            );
        }
    }
}

#[test]
fn whoever_asks_for_the_head_alone_gets_no_more() {
    let house = ServerHouse::new();
    house.submit("hello");
    house.worker("ann", &[], 1);
    let mut line = house.line();
    for (_, path, _) in ROUTES {
        line.ask("HEAD", path, "", b"");
        let head = line.bare_head();
        let mut same = ROUTES.iter().filter(|route| route.1 == *path);
        if same.any(|route| route.0 == "GET") {
            // What comes next on the line is the answer to the next question, so nothing was sent after the head.
            line.ask("GET", path, "", b"");
            let whole = line.answer();
            assert_eq!(head.status, whole.status, "{path}");
            for name in ["content-type", "cache-control"] {
                assert_eq!(head.header(name), whole.header(name), "{path}");
            }
            // Ages and countdowns go on between the two.
            assert!(head.header("content-length").is_some(), "{path}");
        } else {
            assert_eq!(head.status, 405, "{path}");
        }
    }
    for (path, headers) in [
        ("/api/events", "accept: text/event-stream\r\n"),
        ("/api/jobs/1/steps/greet/logs?raw=1", ""),
        ("/api/backup", "authorization: Bearer any\r\n"),
        ("/api/jobs/7", ""),
    ] {
        let mut line = house.line();
        line.ask("HEAD", path, headers, b"");
        let status = line.bare_head().status;
        assert_eq!(status, if path.ends_with('7') { 404 } else { 200 });
        line.ask("GET", "/healthz", "", b"");
        assert_eq!(line.answer().status, 200, "{path}");
    }
    let events = String::from_utf8(house.get("/api/events").body).unwrap();
    assert!(!events.contains("backup_made"), "{events}");
    house.submit("hello");
    super::until("the stream is given up", || {
        house.submit("hello");
        house.server.event_streams() == 0
    });
    let answer = house.ask("POST", "/api/jobs", "", b"");
    assert_eq!(answer.header("allow"), Some("GET, HEAD"));
}

#[test]
fn every_error_has_the_same_members() {
    let house = ServerHouse::new();
    for answer in [
        house.get("/api/jobs/7"),
        house.get("/nowhere"),
        house.get("/api/jobs?limit=0"),
        house.ask("PUT", "/api/jobs", "", b""),
        house.ask("POST", "/api/tasks/hello/jobs", "", b"{"),
    ] {
        let error = answer.json()["error"].clone();
        let members: Vec<&String> = error.as_object().unwrap().keys().collect();
        assert_eq!(members, ["code", "details", "message"]);
        assert_eq!(error["details"], json!([]));
    }
}

#[test]
fn odd_addresses_name_nothing() {
    let house = ServerHouse::new();
    house.submit("hello");
    for path in [
        "/api",
        "/api/",
        "/api/jobs/",
        "/api/jobs/configs",
        "/api/jobs;.css",
        "/api/jobs.json",
        "//api/jobs",
        "/API/jobs",
        "/api/./jobs",
        "/api/../api/jobs",
        "/api/%2e/jobs",
        "/api%2fjobs",
        "/api%2Fjobs",
        "/api\\jobs",
        "/%61pi/%zz",
        "/api/jobs/..",
        "/api/jobs/%2e%2e%2f",
        "/api/jobs%2F1",
        "/api/jobs/1%2Fwhy",
        "/api/jobs/latest%2F..",
        "/api/jobs/1%252Fwhy",
        "/api/jobs/1/steps/greet%2Fwhy",
        "/api/jobs/1/steps/..%2F..%2F1/logs",
        "/api/tasks/..%2Fhello",
        "/api/tasks/%2Fetc%2Fpasswd",
        "/api/workers/a%252Fb",
        "/api/workers/%2F",
        "/api/jobs/1%00",
        "/api/jobs/1;drop",
        "/api/jobs/1'or'1'='1",
        "/api/jobs/99999999999999999999",
        "/api/jobs/-1",
        "/api/jobs/+1",
        "/api/jobs/0x10",
        "/api/jobs/1.0",
        "/api/jobs/%31%20",
        "/api/jobs/1/steps/../why",
        "/api/jobs/1/steps/nobody/why",
        "/api/jobs/1/steps/greet[0]/why",
        "/api/jobs/1/steps/_server/why",
        "/api/jobs/2",
        "/api/tasks/..",
        "/api/tasks/hello%00",
        "/api/tasks/HELLO",
        "/api/workers/1",
        "/favicon.ico",
        "*",
    ] {
        let answer = house.ask("GET", path, "", b"");
        let code = answer.refused(404);
        assert!(
            ["not_found", "no_route"].contains(&code.as_str()),
            "{path}: {code}"
        );
    }
    // A digit may be written as people please.
    assert_eq!(house.get("/api/jobs/%31").status, 200);
    // And what is no text at all is no request.
    let answer = house.ask("GET", "/api/jobs?q=%ff", "", b"");
    assert_eq!(answer.refused(400), "bad_request");
    assert_eq!(house.ask("GET", "/api/jobs/\u{fffd}", "", b"").status, 404);
}

#[test]
fn with_a_token_only_health_is_everyones() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "a-token-of-some-length\n").unwrap();
    let house = ServerHouse::with(Default::default(), |config| {
        config.auth.token_file = Some(file);
    });
    let mut refusals = Vec::new();
    for (method, path, _) in ROUTES {
        if *path == "/healthz" || *path == "/readyz" {
            let answer = house.ask(method, path, "", b"");
            assert_ne!(answer.status, 401);
            // What it is, and how it is, is for those who are let in.
            let told: Vec<String> = answer.json().as_object().unwrap().keys().cloned().collect();
            assert_eq!(told, ["status"], "{path}");
            continue;
        }
        for headers in [
            "",
            "authorization: Bearer a-token-of-some-lengt\r\n",
            "authorization: a-token-of-some-length\r\n",
            "authorization: Bearer\r\n",
        ] {
            let answer = house.ask(method, path, headers, b"");
            // Whoever shows too many wrong ones is told to wait.
            if answer.status == 429 {
                continue;
            }
            assert_eq!(answer.refused(401), "unauthorized", "{method} {path}");
            refusals.push(answer.text());
        }
        let in_query = format!("{path}?token=a-token-of-some-length");
        assert_eq!(house.ask(method, &in_query, "", b"").status, 401);
    }
    refusals.dedup();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    let headers = "authorization: Bearer a-token-of-some-length\r\n";
    assert_eq!(house.ask("GET", "/api/jobs", headers, b"").status, 200);
    let ready = house.ask("GET", "/readyz", headers, b"").json();
    assert_eq!(ready["version"], env!("CARGO_PKG_VERSION"));
    let stream = "accept: text/event-stream\r\n";
    assert_eq!(house.ask("GET", "/api/events", stream, b"").status, 401);
}

#[test]
fn bodies_that_are_no_json_are_refused_before_anybody_looks_at_them() {
    let house = ServerHouse::new();
    let headers = "content-type: text/plain\r\n";
    let answer = house.ask("POST", "/api/tasks/hello/jobs", headers, b"{}");
    assert_eq!(answer.refused(415), "unsupported_media_type");
    let headers = "content-type: application/json; charset=utf-8\r\n";
    let answer = house.ask("POST", "/api/tasks/hello/jobs", headers, b"{}");
    assert_eq!(
        answer.expect(201)["input"],
        Value::Object(Default::default())
    );
}
