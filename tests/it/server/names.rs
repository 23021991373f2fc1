//! Names: a worker has one besides its number, and whoever mistypes a name is asked what they meant.

use serde_json::{Value, json};

use super::{ServerHouse, session_request, word};

/// Another one of this name, with a folder of its own.
fn namesake(house: &ServerHouse, name: &str, instance: &str) -> i64 {
    let mut request = session_request(name, instance, &[], 1);
    request["instance"] = json!(instance);
    let opened = house.post("/api/worker/sessions", &request).expect(200);
    opened["worker_id"].as_i64().unwrap()
}

#[test]
fn a_worker_is_named_by_its_name_or_its_number() {
    let house = ServerHouse::new();
    let ann = house.worker("edge 1", &[], 1);
    for name in ["1", "edge%201"] {
        let path = format!("/api/workers/{name}");
        assert_eq!(house.get(&path).expect(200)["id"], ann.worker_id);
        for (verb, paused) in [("pause", true), ("resume", false)] {
            let changed = house.post(&format!("{path}/{verb}"), &Value::Null);
            assert_eq!(changed.expect(200)["paused"], paused, "{name}");
        }
    }
    let gone = house.ask("DELETE", "/api/workers/edge%201", "", b"");
    gone.expect(200);
    assert_eq!(house.get("/api/workers/1").refused(404), "not_found");
    // A number is a number, unless nobody has it.
    let seven = house.worker("7", &[], 1);
    assert_eq!(
        house.get("/api/workers/7").expect(200)["id"],
        seven.worker_id
    );
}

#[test]
fn of_several_with_one_name_the_active_one_is_meant() {
    let house = ServerHouse::new();
    let (old, new) = (namesake(&house, "edge", "a"), namesake(&house, "edge", "b"));
    let answer = house.get("/api/workers/edge");
    assert_eq!(answer.refused(409), "conflict");
    assert_eq!(
        answer.message(),
        "several active workers are called \"edge\", name one by its number: 1, 2"
    );
    let gone = house.ask("DELETE", &format!("/api/workers/{new}"), "", b"");
    gone.expect(200);
    assert_eq!(house.get("/api/workers/edge").expect(200)["id"], old);
}

#[test]
fn a_worker_that_was_drained_cannot_be_resumed() {
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 1);
    ann.change("resume");
    ann.change("drain");
    let answer = house.post("/api/workers/ann/resume", &Value::Null);
    assert_eq!(answer.refused(409), "conflict");
    assert_eq!(
        answer.message(),
        "worker ann was drained: it finishes what it has and leaves; start it again to have it back"
    );
    // A pause is another thing: it would outlast the next start.
    ann.change("pause");
    ann.change("resume");
    assert_eq!(ann.shown()["paused"], false);
    let ann = house.life("ann", 2, &[], 1);
    ann.change("resume");
    assert_eq!(ann.shown()["draining"], false);
}

#[test]
fn whoever_mistypes_a_name_is_asked_what_they_meant() {
    let house = ServerHouse::new();
    house.worker("edge-1", &[], 1);
    house.submit("wide");
    for (path, message) in [
        (
            "/api/tasks/helo",
            "task \"helo\" does not exist; did you mean hello?",
        ),
        ("/api/tasks/rubbish", "task \"rubbish\" does not exist"),
        (
            "/api/workers/edge1",
            "there is no worker \"edge1\"; did you mean edge-1?",
        ),
        ("/api/workers/rubbish", "there is no worker \"rubbish\""),
        ("/api/workers/9", "worker 9 does not exist"),
        (
            "/api/jobs/1/steps/eech/why",
            "job 1 has no step \"eech\"; did you mean each?",
        ),
        (
            "/api/jobs/1/steps/eech[2]/logs",
            "job 1 has no step \"eech[2]\"; did you mean each?",
        ),
        (
            "/api/jobs/1/steps/rubbish/output",
            "job 1 has no step \"rubbish\"",
        ),
    ] {
        let answer = house.get(path);
        assert_eq!(answer.refused(404), "not_found", "{path}");
        assert_eq!(answer.message(), message);
    }
    let submitted = house.post("/api/tasks/gpuu/jobs", &Value::Null);
    assert_eq!(submitted.refused(404), "not_found");
    assert_eq!(
        submitted.message(),
        "task \"gpuu\" does not exist; did you mean gpu?"
    );
    house.post("/api/jobs/1/cancel", &Value::Null).expect(200);
    let retried = house.post("/api/jobs/1/retry", &json!({ "from": "eech" }));
    assert_eq!(retried.refused(404), "not_found");
    assert!(retried.message().ends_with("; did you mean each?"));
}

#[test]
fn jobs_are_found_by_why_they_ended_where_they_came_from_and_when() {
    let house = ServerHouse::new();
    let ann = house.worker("ann", &[], 9);
    house.submit("hello");
    ann.complete(&ann.begin());
    house.submit("hello");
    let failed = json!({ "finished": { "outcome": "failed", "reason": "exit_code", "message": "exit code 2", "exit_code": 2 } });
    ann.report(&ann.begin(), "finished", failed);
    house.submit("outer");
    let found = |query: &str| -> Vec<i64> {
        let list = house.get(&format!("/api/jobs?q={query}")).expect(200);
        let items = list["items"].as_array().unwrap().iter();
        items.map(|job| job["id"].as_i64().unwrap()).collect()
    };
    assert_eq!(found("reason:exit_code"), [2]);
    assert_eq!(found("source:task"), [4]);
    assert_eq!(found("source:submit%20task:hello"), [2, 1]);
    assert_eq!(found("since:1h"), [4, 3, 2, 1]);
    assert_eq!(found("since:2999-01-01T00:00:00Z"), [0_i64; 0]);
    for (query, meant) in [
        ("stauts:failed", "; did you mean status?"),
        ("status:faild", "; did you mean failed?"),
        ("reason:workerlost", "; did you mean worker_lost?"),
        ("source:schedules", "; did you mean schedule?"),
        ("since:soon", "or a time such as 2026-01-31T08:00:00Z"),
    ] {
        let answer = house.get(&format!("/api/jobs?q={query}"));
        assert_eq!(answer.refused(422), "invalid", "{query}");
        let message = answer.message();
        assert!(message.ends_with(meant), "{message}");
    }
    assert_eq!(word(&house.job(2)["reason"]), "exit_code");
}
