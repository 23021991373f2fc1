//! Old and new versions on the worker routes: who announces what, who is told what, who is too old.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{HttpWorker, ServerHouse, item, session_request, word};

const ANNOUNCED: &str = "stepward-protocol: 2; features=start_details,log_checksum\r\n";

#[test]
fn the_server_announces_itself_on_the_routes_of_workers_and_nowhere_else() {
    let house = ServerHouse::new();
    let announced = "2; features=lineage,log_checksum,one_phase,start_details";
    let request = session_request("ann", "life", &[], 1);
    let opened = house.post("/api/worker/sessions", &request);
    assert_eq!(opened.header("stepward-protocol"), Some(announced));
    let refused = house.post("/api/worker/poll", &json!({}));
    assert_eq!(refused.status, 422);
    assert_eq!(refused.header("stepward-protocol"), Some(announced));
    let people = house.get("/api/workers");
    assert_eq!(people.header("stepward-protocol"), None);
}

#[test]
fn a_worker_below_the_oldest_protocol_is_told_what_to_install() {
    let house = ServerHouse::new();
    let request = session_request("ann", "life", &[], 1);
    let too_old = "stepward-protocol: 0\r\n";
    let answer = house.post_as(too_old, "/api/worker/sessions", &request);
    assert_eq!(answer.refused(426), "worker_too_old");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(answer.json()["error"]["details"], json!([version]));
    assert_eq!(
        answer.message(),
        format!(
            "this worker is too old for the server: it speaks protocol 0, the oldest that the server understands is 1; \
             install version {version} on the worker"
        )
    );
    assert_eq!(house.get("/api/workers").expect(200)["items"], json!([]));
    // What is no announcement at all is a mistake of whoever wrote it.
    let unreadable = "stepward-protocol: two\r\n";
    let answer = house.post_as(unreadable, "/api/worker/sessions", &request);
    assert_eq!(answer.refused(400), "bad_request");
    // A newer one is welcome: it sends nothing that this server did not announce.
    let newer = "stepward-protocol: 99; features=teleport; and=more\r\n";
    house
        .post_as(newer, "/api/worker/sessions", &request)
        .expect(200);
}

#[test]
fn what_a_newer_worker_says_besides_is_ignored_and_what_a_person_does_is_not() {
    let house = ServerHouse::new();
    let mut request = session_request("ann", "life", &[], 1);
    request["hat"] = json!("green");
    let opened = house.post_as(ANNOUNCED, "/api/worker/sessions?and=more", &request);
    opened.expect(200);
    let beat = json!({ "session": "life", "seq": 1, "held": [], "mood": { "is": "good" } });
    house.post("/api/worker/heartbeat", &beat).expect(200);
    house.submit("hello");
    let poll = json!({ "session": "life", "free_slots": 1, "held": [], "wait_ms": 0, "hurry": 1 });
    let given = house.post("/api/worker/poll", &poll).expect(200);
    let mut item = super::attempt(&given["assignments"][0]);
    item["news"] = "started".into();
    item["weather"] = "fine".into();
    let reports = json!({ "session": "life", "items": [item] });
    let results = house.post("/api/worker/reports", &reports).expect(200);
    assert_eq!(word(&results["results"][0]["result"]), "accepted");
    let person: Value = json!({ "input": {}, "hat": "green" });
    let answer = house.post("/api/tasks/hello/jobs", &person);
    assert_eq!(answer.refused(422), "invalid");
}

#[test]
fn a_worker_learns_which_installation_it_would_join_before_it_registers() {
    let house = ServerHouse::new();
    let server = house.get("/api/worker/server").expect(200);
    assert_eq!(house.get("/api/workers").expect(200)["items"], json!([]));
    let request = session_request("ann", "life", &[], 1);
    let opened = house.post("/api/worker/sessions", &request).expect(200);
    assert_eq!(server["installation"], opened["installation"]);
}

/// A worker that announces all that the worker of this version does.
fn announcing<'a>(house: &'a ServerHouse, name: &str) -> HttpWorker<'a> {
    let session = format!("{name} 1");
    let request = session_request(name, &session, &[], 1);
    let opened = house
        .post_as(ANNOUNCED, "/api/worker/sessions", &request)
        .expect(200);
    HttpWorker {
        house,
        worker_id: opened["worker_id"].as_i64().unwrap(),
        session,
    }
}

impl HttpWorker<'_> {
    /// The result of an item, whole.
    fn result(&self, attempt: &Value, news: &str, more: Value) -> Value {
        let request = json!({ "session": self.session, "items": [item(attempt, news, more)] });
        let answer = self.house.post("/api/worker/reports", &request).expect(200);
        answer["results"][0].clone()
    }

    /// Completes, and says what it wrote.
    fn complete_with_log(&self, attempt: &Value, log: &[u8]) -> Value {
        let mut crc = flate2::Crc::new();
        crc.update(log);
        let log = json!({ "length": log.len(), "crc32": crc.sum() });
        let finished = json!({ "outcome": "completed", "exit_code": 0 });
        self.result(
            attempt,
            "finished",
            json!({ "finished": finished, "log": log }),
        )
    }

    fn append(&self, attempt: &Value, offset: usize, bytes: &[u8]) {
        let (step, n) = (&attempt["step_id"], &attempt["attempt"]);
        let session = self.session.replace(' ', "%20");
        let path =
            format!("/api/worker/steps/{step}/attempts/{n}/log?session={session}&offset={offset}");
        self.house.ask("PUT", &path, "", bytes).expect(200);
    }
}

fn kinds_of_events(house: &ServerHouse) -> Vec<String> {
    let events = house.get("/api/jobs/1/events").expect(200);
    let events = events["items"].as_array().unwrap().iter();
    events.map(|event| word(&event["kind"])).collect()
}

const LOG: &[u8] = b"1763312345678 o one\n1763312345679 o two\n";

#[test]
fn the_start_is_told_to_a_worker_that_announced_it_and_to_no_other() {
    let house = ServerHouse::new();
    house.submit("hello");
    house.submit("hello");
    let (new, old) = (announcing(&house, "new"), house.worker("old", &[], 1));
    let result = new.result(&new.claim(), "started", json!({}));
    let started_at = house.job(1)["steps"][0]["started_at"].clone();
    assert_eq!(result["start"]["started_at"], started_at);
    assert_eq!(
        result["start"]["env"],
        json!({ "STEPWARD_STARTED_AT": started_at })
    );
    assert!(result["start"]["timeout_ms"].as_i64().unwrap() > 0);
    let result = old.result(&old.claim(), "started", json!({}));
    assert_eq!(result, json!({ "result": "accepted" }));
}

#[test]
fn bytes_that_are_missing_when_a_step_ends_are_asked_for_and_told_until_they_come() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = announcing(&house, "ann");
    let greet = ann.begin();
    ann.append(&greet, 0, &LOG[..20]);
    let result = ann.complete_with_log(&greet, LOG);
    assert_eq!(result, json!({ "result": "accepted", "log_from": 20 }));
    assert_eq!(house.status(1), "completed", "the result does not wait");
    let logs = || house.get("/api/jobs/1/steps/greet/logs").expect(200);
    let fault = json!({ "kind": "missing", "written_bytes": LOG.len(), "kept_bytes": 20 });
    assert_eq!(logs()["fault"], fault);
    let of_job = house.get("/api/jobs/1/logs").expect(200);
    assert_eq!(of_job["items"][0]["fault"], fault);
    assert!(kinds_of_events(&house).contains(&"log_incomplete".to_string()));
    // The answer was lost: who reports the same again is asked for the same again.
    let again = ann.complete_with_log(&greet, LOG);
    assert_eq!(again, result);

    ann.append(&greet, 20, &LOG[20..]);
    assert_eq!(logs()["fault"], Value::Null);
    assert_eq!(logs()["total_lines"], 2);
    let again = ann.complete_with_log(&greet, LOG);
    assert_eq!(again["result"], "abort", "nothing is missing any more");
}

#[test]
fn bytes_that_are_missing_when_a_worker_comes_back_with_a_result_are_asked_for_and_told() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = announcing(&house, "ann");
    let greet = ann.begin();
    ann.append(&greet, 0, &LOG[..20]);
    let mut crc = flate2::Crc::new();
    crc.update(LOG);
    let mut request = session_request("ann", "ann 2", &[], 1);
    request["spooled"] = json!([{
        "step_id": greet["step_id"],
        "attempt": greet["attempt"],
        "session": ann.session,
        "finished": { "outcome": "completed", "exit_code": 0 },
        "log": { "length": LOG.len(), "crc32": crc.sum() },
    }]);
    let opened = house
        .post_as(ANNOUNCED, "/api/worker/sessions", &request)
        .expect(200);
    assert_eq!(
        opened["spooled"],
        json!([{ "result": "accepted", "log_from": 20 }])
    );
    assert_eq!(house.status(1), "completed");
    let logs = || house.get("/api/jobs/1/steps/greet/logs").expect(200);
    let fault = json!({ "kind": "missing", "written_bytes": LOG.len(), "kept_bytes": 20 });
    assert_eq!(logs()["fault"], fault);
    // The log is sent under the session that ran the attempt.
    ann.append(&greet, 20, &LOG[20..]);
    assert_eq!(logs()["fault"], Value::Null);
}

#[test]
fn a_log_that_the_server_cuts_is_not_taken_for_one_that_the_worker_failed_to_send() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = announcing(&house, "ann");
    let greet = ann.begin();
    let line = [
        b"1763312345678 o ",
        [b'x'; (1 << 10) - 17].as_slice(),
        b"\n",
    ]
    .concat();
    let log = line.repeat(65 << 10);
    // The pieces of a worker: the last one that does not fit is refused as a whole.
    let mut sent = 0;
    for piece in log.chunks(4 << 20) {
        ann.append(&greet, sent, piece);
        sent += piece.len();
    }
    let result = ann.complete_with_log(&greet, &log);
    assert_eq!(
        result,
        json!({ "result": "accepted" }),
        "nothing is asked for"
    );
    let logs = house.get("/api/jobs/1/steps/greet/logs").expect(200);
    assert_eq!(logs["fault"], Value::Null);
    let events = house.get("/api/jobs/1/events").expect(200);
    let events = events["items"].as_array().unwrap().iter();
    let texts: Vec<String> = events.map(|event| word(&event["message"])).collect();
    let is_told = |text: &String| text.contains("the server keeps at most 64 MiB");
    assert!(texts.iter().any(is_told), "{texts:?}");
}

#[test]
fn a_log_that_came_whole_needs_no_word_and_one_that_differs_is_told() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = announcing(&house, "ann");
    let greet = ann.begin();
    ann.append(&greet, 0, LOG);
    assert_eq!(
        ann.complete_with_log(&greet, LOG),
        json!({ "result": "accepted" })
    );
    assert!(
        !kinds_of_events(&house)
            .iter()
            .any(|kind| kind.starts_with("log_"))
    );

    house.submit("hello");
    let greet = ann.begin();
    ann.append(&greet, 0, b"1763312345678 o one\n1763312345679 o TWO\n");
    let result = ann.complete_with_log(&greet, LOG);
    assert_eq!(
        result,
        json!({ "result": "accepted" }),
        "nothing is missing"
    );
    let logs = house.get("/api/jobs/2/steps/greet/logs").expect(200);
    assert_eq!(logs["fault"]["kind"], "differs");
    let events = house.get("/api/jobs/2/events").expect(200);
    let events = events["items"].as_array().unwrap().iter();
    let mut kinds = events.map(|event| word(&event["kind"]));
    assert!(kinds.any(|kind| kind == "log_differs"));
}

#[test]
fn a_log_is_compared_also_after_the_server_has_started_again() {
    let mut house = ServerHouse::new();
    house.submit("hello");
    let greet = {
        let ann = announcing(&house, "ann");
        let greet = ann.begin();
        ann.append(&greet, 0, &LOG[..20]);
        greet
    };
    house.restart();
    let ann = HttpWorker {
        house: &house,
        worker_id: 1,
        session: "ann 1".to_string(),
    };
    ann.append(&greet, 20, &LOG[20..]);
    let other = [&LOG[..39], b"!"].concat();
    let result = ann.complete_with_log(&greet, &other);
    assert_eq!(result, json!({ "result": "accepted" }));
    let logs = house.get("/api/jobs/1/steps/greet/logs").expect(200);
    assert_eq!(logs["fault"]["kind"], "differs");
}

/// The names of all fields in it, with those that they are in. What a person wrote is not looked into.
fn fields(value: &Value, place: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let place = format!("{place}.{name}");
                found.insert(place.clone());
                if !["input", "output", "env"].contains(&name.as_str()) {
                    fields(member, &place, found);
                }
            }
        }
        Value::Array(list) => {
            for one in list {
                fields(one, &format!("{place}[]"), found);
            }
        }
        _ => {}
    }
}

/// The route of a recorded request.
fn route(exchange: &Value) -> String {
    let path = word(&exchange["path"]);
    match path.starts_with("/api/worker/steps/") {
        true => "log".to_string(),
        false => path,
    }
}

/// Attempts as the recorded server numbered them, and as this one does.
type Attempts = BTreeMap<(i64, i64), Value>;

fn numbers(attempt: &Value) -> (i64, i64) {
    let number = |name: &str| attempt[name].as_i64().unwrap();
    (number("step_id"), number("attempt"))
}

/// The recorded value with this server's numbers in it.
fn renumbered(value: &Value, attempts: &Attempts) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: serde_json::Map<String, Value> = members
                .iter()
                .map(|(name, member)| (name.clone(), renumbered(member, attempts)))
                .collect();
            if members.contains_key("step_id")
                && let Some(here) = attempts.get(&numbers(value))
            {
                for name in ["step_id", "attempt"] {
                    members.insert(name.to_string(), here[name].clone());
                }
            }
            Value::Object(members)
        }
        Value::Array(list) => list.iter().map(|one| renumbered(one, attempts)).collect(),
        other => other.clone(),
    }
}

#[test]
fn a_recorded_worker_of_version_0_1_is_served_and_told_nothing_new() {
    let lines = include_str!("../../fixtures/v0.1/exchange-worker.jsonl").lines();
    let recorded: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut known = BTreeSet::new();
    for exchange in &recorded {
        fields(&exchange["response"], &route(exchange), &mut known);
    }
    let house = ServerHouse::new();
    let mut attempts = Attempts::new();
    let (mut given, mut accepted) = (0, 0);
    for exchange in &recorded {
        let (there, path) = (&exchange["response"], word(&exchange["path"]));
        let polled = match &there["poll"] {
            Value::Object(_) => &there["poll"],
            _ => there,
        };
        let assignments = polled["assignments"].as_array().cloned();
        let new = assignments.unwrap_or_default().into_iter();
        let new: Vec<Value> = new
            .filter(|one| !attempts.contains_key(&numbers(one)))
            .collect();
        for _ in &new {
            house.submit("hello");
        }
        let mut request = renumbered(&exchange["request"], &attempts);
        // Whatever was given then is given now, and nothing else: answers came in another order than requests.
        if request.get("wait_ms").is_some() {
            request["wait_ms"] = 0.into();
            request["free_slots"] = new.len().into();
        }
        if request["poll"].is_object() {
            request["poll"]["free_slots"] = new.len().into();
        }
        if request.get("slots").is_some() {
            request["slots"] = 100.into();
        }
        let answer = match word(&exchange["method"]).as_str() {
            "PUT" => {
                let mut words = path.split(['/', '?']);
                let of = (words.nth(4).unwrap(), words.nth(1).unwrap());
                let of = (of.0.parse().unwrap(), of.1.parse().unwrap());
                let here = &attempts[&of];
                let query = path.split('?').nth(1).unwrap();
                let path = format!(
                    "/api/worker/steps/{}/attempts/{}/log?{query}",
                    here["step_id"], here["attempt"]
                );
                let body = word(&exchange["request"]);
                house.ask("PUT", &path, "", body.as_bytes())
            }
            _ => house.post(&path, &request),
        };
        assert_eq!(
            u64::from(answer.status),
            exchange["status"],
            "{exchange}: {}",
            answer.text()
        );
        let here = answer.json();
        let mut told = BTreeSet::new();
        fields(&here, &route(exchange), &mut told);
        let unknown: Vec<&String> = told.difference(&known).collect();
        assert!(unknown.is_empty(), "version 0.1 does not know {unknown:?}");
        let polled = match &here["poll"] {
            Value::Object(_) => &here["poll"],
            _ => &here,
        };
        let mut coming = super::attempts_or_none(polled);
        coming.retain(|one| !attempts.values().any(|known| known == one));
        let mut coming = coming.into_iter();
        for one in new {
            let one_here = coming.next().expect("as many as were given then");
            attempts.insert(numbers(&one), one_here);
            given += 1;
        }
        let results = |answer: &Value| answer["results"].as_array().cloned().unwrap_or_default();
        for (then, now) in results(there).iter().zip(results(&here)) {
            if then["result"] == "accepted" {
                assert_eq!(now, json!({ "result": "accepted" }), "{exchange}");
                accepted += 1;
            }
        }
    }
    assert!(given > 5 && accepted > 10, "{given} {accepted}");
}
