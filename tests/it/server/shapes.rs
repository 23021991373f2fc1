//! What things look like: the fields that are promised, times that any program reads, ids that people can type.

use serde_json::{Value, json};

use super::{ServerHouse, word};

/// Checks that all of these fields are there, be they null.
fn has(value: &Value, fields: &str) {
    let members = value.as_object().unwrap_or_else(|| panic!("{value}"));
    for field in fields.split_whitespace() {
        assert!(members.contains_key(field), "{field} is missing: {value}");
    }
}

/// `2026-01-31T08:00:00.000Z`
fn is_time(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    let shape: String = text
        .chars()
        .map(|char| if char.is_ascii_digit() { '0' } else { char })
        .collect();
    shape == "0000-00-00T00:00:00.000Z"
}

const JOB: &str = "id task status reason message source input output priority parent created_at \
                   started_at ended_at labels retry_of";
const STEP: &str = "id name status reason message type depends_on required_tags attempt \
                    max_attempts worker exit_code output ready_at assigned_at started_at ended_at \
                    not_before attempts";
const ATTEMPT: &str = "attempt worker session started_at ended_at outcome reason message";
const WORKER: &str = "id name status tags slots slots_used session version last_heartbeat_at \
                      heartbeat_age_secs inactive_in_secs draining paused running";
const EVENT: &str = "seq at kind phase job_id step worker attempt reason message data";
const WHY: &str = "code sentence facts needs workers root_cause outcome skips fix";

#[test]
fn tasks_are_shown_with_their_steps() {
    let house = ServerHouse::new();
    let list = house.get("/api/tasks").expect(200);
    has(&list, "items next");
    let names: Vec<String> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| word(&task["name"]))
        .collect();
    assert_eq!(names, ["ask", "gpu", "hello", "outer", "pair", "wide"]);
    let pair = house.get("/api/tasks/pair").expect(200);
    has(&pair, "name steps priority timeout_secs queue_timeout_secs");
    assert_eq!(
        pair["steps"],
        json!([
            { "name": "build", "type": "script", "depends_on": [], "required_tags": ["script"] },
            { "name": "test", "type": "script", "depends_on": ["build"], "required_tags": ["script"] },
        ])
    );
}

#[test]
fn a_job_tells_its_whole_life() {
    let house = ServerHouse::new();
    let job_id = house.submit("pair");
    let ann = house.worker("ann", &[], 2);
    let job = house.job(job_id);
    has(&job, JOB);
    assert_eq!(
        (&job["id"], word(&job["status"])),
        (&json!(1), "pending".to_string())
    );
    assert!(is_time(&job["created_at"]) && job["ended_at"].is_null());
    let steps = job["steps"].as_array().unwrap();
    steps.iter().for_each(|step| has(step, STEP));
    assert_eq!(word(&steps[0]["status"]), "ready");
    assert!(is_time(&steps[0]["ready_at"]) && steps[0]["started_at"].is_null());
    assert_eq!(word(&steps[1]["status"]), "pending");

    let build = ann.begin();
    let running = house.job(job_id);
    let step = &running["steps"][0];
    assert_eq!(
        (word(&step["status"]), word(&step["worker"])),
        ("running".into(), "ann".into())
    );
    assert!(is_time(&step["assigned_at"]) && is_time(&step["started_at"]));
    let shown = ann.shown();
    has(&shown, WORKER);
    assert_eq!(shown["slots_used"], 1);
    assert_eq!(
        shown["running"],
        json!([{ "job_id": 1, "step": "build", "attempt": 1, "status": "running" }])
    );
    assert!(is_time(&shown["last_heartbeat_at"]));
    assert!(shown["heartbeat_age_secs"].as_f64().unwrap() < 60.0);
    assert!(shown["inactive_in_secs"].as_f64().unwrap() > 60.0);
    assert_eq!(
        house.get("/api/workers").expect(200)["items"][0]["running"],
        shown["running"]
    );

    let output =
        json!({ "finished": { "outcome": "completed", "exit_code": 0, "output": { "size": 7 } } });
    assert_eq!(ann.report(&build, "finished", output), "accepted");
    let test = ann.begin();
    let failed = json!({ "finished": { "outcome": "failed", "reason": "exit_code", "message": "exit code 2", "exit_code": 2 } });
    assert_eq!(ann.report(&test, "finished", failed), "accepted");
    let ended = house.job(job_id);
    assert_eq!(word(&ended["status"]), "failed");
    assert!(is_time(&ended["started_at"]) && is_time(&ended["ended_at"]));
    let (build, test) = (&ended["steps"][0], &ended["steps"][1]);
    assert_eq!(
        (&build["output"], &build["exit_code"]),
        (&json!({ "size": 7 }), &json!(0))
    );
    assert_eq!(
        (word(&test["reason"]), &test["exit_code"]),
        ("exit_code".into(), &json!(2))
    );
    has(&test["attempts"][0], ATTEMPT);
    assert_eq!(word(&test["attempts"][0]["outcome"]), "failed");
    assert!(test["attempts"][0]["session"].is_i64());
    let output = house.get("/api/jobs/1/steps/build/output").expect(200);
    assert_eq!(output, json!({ "size": 7 }));

    let why = house.get("/api/jobs/1/why").expect(200);
    has(
        &why,
        "job_id task status since_secs ran_secs steps more counts",
    );
    has(&why["root_cause"], "job_id step status code sentence");
    has(
        &why["steps"][0],
        "step status since_secs attempt max_attempts worker",
    );
    has(&why, WHY);
    assert_eq!(word(&why["code"]), "exit_code");
    has(&why["steps"][0], WHY);
    assert_eq!(word(&why["steps"][0]["code"]), "exit_code");
    let retried = house
        .post("/api/jobs/1/retry", &json!({ "from": "test" }))
        .expect(201);
    assert_eq!(
        (&retried["id"], &retried["retry_of"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(
        house.post("/api/jobs/2/retry", &Value::Null).refused(409),
        "conflict"
    );
    let both = json!({ "from": "test", "all": true });
    assert_eq!(
        house.post("/api/jobs/1/retry", &both).refused(422),
        "invalid"
    );
}

#[test]
fn events_and_recovery_are_told_in_the_same_words() {
    let house = ServerHouse::new();
    house.submit("hello");
    let event = &house.get("/api/events").expect(200)["items"][0];
    has(event, EVENT);
    assert!(is_time(&event["at"]) && event["seq"].is_i64());
    assert_eq!(
        (word(&event["kind"]), &event["job_id"]),
        ("job_submitted".into(), &json!(1))
    );

    super::until("the first sweep", || {
        house.get("/api/recovery").expect(200)["last_sweep"].is_object()
    });
    let recovery = house.get("/api/recovery").expect(200);
    has(
        &recovery,
        "settings last_sweep forecast forecast_more history",
    );
    has(&recovery["last_sweep"], "at recoveries failures");
    assert!(is_time(&recovery["last_sweep"]["at"]));
    assert_eq!(recovery["settings"]["heartbeat_timeout_secs"], 120);
    // Nobody can run it, and that has an end.
    let forecast = &recovery["forecast"][0];
    has(
        forecast,
        "phase action reason job_id task step_id step worker_id worker in_secs",
    );
    assert_eq!(
        (&forecast["phase"], word(&forecast["reason"])),
        (&json!(4), "unmatched".into())
    );
}

#[test]
fn the_queue_says_what_each_step_waits_for() {
    let house = ServerHouse::new();
    house.submit("gpu");
    house.submit("ask");
    house.worker("ann", &[], 1);
    let queue = house.get("/api/queue").expect(200);
    let items = queue["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{queue}");
    for item in items {
        has(
            item,
            "job_id task step_id step status priority ready_at age_secs required_tags why",
        );
        has(&item["why"], WHY);
    }
    let train = items.iter().find(|item| item["step"] == "train").unwrap();
    assert_eq!(word(&train["why"]["code"]), "no_matching_worker");
    assert_eq!(train["why"]["outcome"]["phase"], 4);
    let why = house.get("/api/jobs/1/steps/train/why").expect(200);
    has(&why, WHY);
    assert_eq!(why["code"], train["why"]["code"]);
    // The job as a whole says what its steps do.
    let whole = house.get("/api/jobs/1/why").expect(200);
    has(&whole, WHY);
    assert_eq!(whole["code"], why["code"]);
    assert_eq!(whole["outcome"]["phase"], 4);
    assert_eq!(whole["fix"], why["fix"]);
    let sentence = word(&whole["sentence"]);
    assert_eq!(
        sentence,
        "job 1 is pending; step train: no worker offers gpu + script"
    );
    has(&why, "job_id task job_status step status since_secs");
    has(
        &why["workers"][0],
        "name offers lacks state seen_secs_ago slots_used slots",
    );

    // A worker is known by its name as well.
    for name in ["1", "ann"] {
        let worker = house.get(&format!("/api/workers/{name}/why")).expect(200);
        has(&worker, WHY);
        has(&worker, "worker could_take");
        assert_eq!(word(&worker["code"]), "active");
        assert_eq!(word(&worker["worker"]["name"]), "ann");
    }
    house.get("/api/workers/bob/why").refused(404);
}

#[test]
fn people_decide_over_http() {
    let house = ServerHouse::new();
    for _ in 0..2 {
        house.submit("ask");
    }
    let approved = house.post(
        "/api/jobs/1/steps/sure/approve",
        &json!({ "output": { "by": "me" } }),
    );
    assert_eq!(word(&approved.expect(200)["status"]), "completed");
    let rejected = house.post(
        "/api/jobs/2/steps/sure/reject",
        &json!({ "why": "not today" }),
    );
    let rejected = rejected.expect(200);
    assert_eq!(word(&rejected["status"]), "failed");
    assert_eq!(word(&rejected["steps"][0]["reason"]), "approval_rejected");
    assert!(word(&rejected["steps"][0]["message"]).contains("not today"));
    let late = house.post("/api/jobs/1/steps/sure/approve", &Value::Null);
    assert_eq!(late.refused(409), "conflict");
    let output = house.get("/api/jobs/1/steps/sure/output").expect(200);
    assert_eq!(output, json!({ "by": "me" }));
}

#[test]
fn a_child_names_its_parent() {
    let house = ServerHouse::new();
    let outer = house.submit("outer");
    let child = house.job(outer)["steps"][0]["child_job_id"]
        .as_i64()
        .unwrap();
    assert_eq!(
        house.job(child)["parent"],
        json!({ "job_id": outer, "step": "call" })
    );
    assert_eq!(house.job(outer)["parent"], Value::Null);
}

#[test]
fn cancelling_twice_is_once_and_after_the_end_too_late() {
    let house = ServerHouse::new();
    house.submit("hello");
    let cancel = || house.post("/api/jobs/1/cancel", &Value::Null);
    assert_eq!(word(&cancel().expect(200)["status"]), "cancelled");
    let again = cancel().status;
    assert!([200, 409].contains(&again), "{again}");
    assert_eq!(
        house.post("/api/jobs/7/cancel", &Value::Null).refused(404),
        "not_found"
    );
}

#[test]
fn a_worker_is_deleted_only_when_it_is_idle_or_by_force() {
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    ann.begin();
    for verb in ["drain", "pause", "resume"] {
        ann.change(verb);
    }
    assert_eq!(
        house.ask("DELETE", "/api/workers/1", "", b"").refused(409),
        "conflict"
    );
    assert_eq!(
        house
            .ask("DELETE", "/api/workers/1?force=1", "", b"")
            .refused(422),
        "invalid"
    );
    house
        .ask("DELETE", "/api/workers/1?force=true", "", b"")
        .expect(200);
    assert_eq!(house.get("/api/workers/1").refused(404), "not_found");
    assert_eq!(word(&house.job(1)["steps"][0]["reason"]), "worker_deleted");
}
