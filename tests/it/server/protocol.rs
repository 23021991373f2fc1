//! Old and new versions on the worker routes: who announces what, who is told what, who is too old.

use serde_json::{Value, json};

use super::{ServerHouse, session_request, word};

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
