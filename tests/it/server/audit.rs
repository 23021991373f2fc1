//! The audit log of a real server: every route that changes something writes one row that names who did it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;

use ring::hmac;
use rusqlite::Connection;
use serde_json::{Value, json};
use stepward::config::NotifyTarget;
use stepward::server::{Access, Limits, every_route};

use super::{Answer, ServerHouse, session_request, until, word};
use crate::outbox::receiver::Receiver;

const SETTINGS_TOKEN: &str = "a-token-that-is-long-enough";
const HOOK_SECRET: &str = "a secret that is long enough";
const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";

const WORKFLOWS: &str = "
tasks:
  nightly:
    flow:
      clean: { script: echo clean }
    schedules:
      yearly: { cron: '0 0 1 1 *' }
    webhooks:
      push: { secret: { file: SECRET_FILE } }
";

/// Routes that change nothing, with the reason.
const CHANGES_NOTHING: &[(&str, &str)] = &[("/api/validate", "it only looks at a text")];

/// A server that asks for tokens, and somebody called ada with a token of role admin.
struct Audited {
    house: ServerHouse,
    ada: String,
    ada_id: i64,
    /// Rows that were looked at.
    seen: Cell<i64>,
    /// Routes that were called.
    called: RefCell<BTreeSet<(&'static str, &'static str)>>,
    _receiver: Receiver,
}

impl Audited {
    fn new() -> Audited {
        let receiver = Receiver::start();
        let target =
            json!({ "type": "slack", "url": receiver.url("/hook"), "on": ["job_submitted"] });
        let target: NotifyTarget = serde_json::from_value(target).unwrap();
        let house = ServerHouse::with(Limits::default(), |config| {
            let folder = config.workflows_dir.clone().unwrap();
            let secret = folder.with_file_name("push.secret");
            fs::write(&secret, HOOK_SECRET).unwrap();
            config.secrets.allow_files.push(secret.clone());
            let text = WORKFLOWS.replace("SECRET_FILE", &secret.display().to_string());
            fs::write(folder.join("nightly.yaml"), text).unwrap();
            let token = folder.with_file_name("token");
            fs::write(&token, SETTINGS_TOKEN).unwrap();
            config.auth.token_file = Some(token);
            config.auth.required = Some(true);
            config.notify = [("chat".to_string(), target)].into();
        });
        let mut audited = Audited {
            house,
            ada: SETTINGS_TOKEN.to_string(),
            ada_id: 0,
            seen: Cell::new(0),
            called: RefCell::default(),
            _receiver: receiver,
        };
        let (ada_id, ada) = audited.make("ada", "admin");
        (audited.ada_id, audited.ada) = (ada_id, ada);
        audited
    }

    fn ask_as(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        let headers =
            format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        self.house.ask(method, path, &headers, body.as_bytes())
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.ask_as(&self.ada, method, path, body)
    }

    fn make(&self, name: &str, role: &str) -> (i64, String) {
        let made = self.ask("POST", "/api/tokens", &json!({"name": name, "role": role}));
        let made = made.expect(201);
        (made["token"]["id"].as_i64().unwrap(), word(&made["text"]))
    }

    /// All rows, oldest first.
    fn rows(&self) -> Vec<Value> {
        let list = self.ask("GET", "/api/audit?after=0&limit=500", &Value::Null);
        list.expect(200)["items"].as_array().unwrap().clone()
    }

    /// Rows that were written since somebody last looked.
    fn new_rows(&self) -> Vec<Value> {
        let rows = self.rows();
        let seen = self.seen.replace(rows.len() as i64);
        rows.into_iter().skip(seen as usize).collect()
    }

    /// The route as the server knows it. It counts as called.
    fn route(&self, method: &'static str, pattern: &'static str) {
        let is_known = every_route().any(|(known, path, _)| (known, path) == (method, pattern));
        assert!(is_known, "{method} {pattern}");
        self.called.borrow_mut().insert((method, pattern));
    }

    fn one_row(&self, place: &str, action: &str, actor: &str) -> Value {
        let rows = self.new_rows();
        assert_eq!(rows.len(), 1, "{place}: {rows:#?}");
        assert_eq!(rows[0]["action"], action, "{place}");
        assert_eq!(rows[0]["actor"], actor, "{place}");
        assert_eq!(rows[0]["outcome"], "allowed", "{place}");
        assert_eq!(rows[0]["address"], "127.0.0.1", "{place}");
        rows[0].clone()
    }

    /// Ada calls a route of the API. It writes one row, which is returned with the answer.
    fn act(
        &self,
        method: &'static str,
        pattern: &'static str,
        params: &[&str],
        body: &Value,
        action: &str,
    ) -> (Value, Value) {
        self.route(method, pattern);
        self.new_rows();
        let answer = self.ask(method, &filled(pattern, params), body);
        assert!(answer.status < 300, "{pattern}: {}", answer.text());
        let row = self.one_row(pattern, action, "ada");
        assert_eq!(row["token_id"], self.ada_id, "{pattern}");
        (answer.json(), row)
    }

    /// Ada sends a form of a page. It writes one row.
    fn send(
        &self,
        cookie: &str,
        pattern: &'static str,
        params: &[&str],
        fields: &str,
        action: &str,
    ) -> Value {
        self.route("POST", pattern);
        self.new_rows();
        let page = self.house.ask("GET", "/settings/tokens/new", cookie, b"");
        let page = page.text();
        let proof = page.split("name=\"page\" value=\"").nth(1).unwrap();
        let proof = proof.split('"').next().unwrap();
        let form = format!("page={proof}&{fields}");
        let headers = format!("{FORM}{cookie}");
        let path = filled(pattern, params);
        let answer = self.house.ask("POST", &path, &headers, form.as_bytes());
        assert!(answer.status < 400, "{pattern}: {}", answer.text());
        let row = self.one_row(pattern, action, "ada");
        assert_eq!(row["token_id"], self.ada_id, "{pattern}");
        row
    }

    fn submit(&self, task: &str) -> String {
        let job = self.ask("POST", &format!("/api/tasks/{task}/jobs"), &Value::Null);
        job.expect(201)["id"].to_string()
    }

    fn log_in(&self, token: &str) -> Answer {
        let form = format!("token={token}&next=/jobs");
        self.house.ask("POST", "/login", FORM, form.as_bytes())
    }

    /// A worker of this token, by its number.
    fn worker(&self, token: &str, name: &str) -> String {
        let request = session_request(name, &format!("{name} 1"), &[], 1);
        let opened = self.ask_as(token, "POST", "/api/worker/sessions", &request);
        opened.expect(200)["worker_id"].to_string()
    }

    fn verify(&self) {
        let sql = Connection::open(self.house.database()).unwrap();
        assert_eq!(chain_faults(&sql), Vec::<String>::new());
    }
}

fn filled(pattern: &str, params: &[&str]) -> String {
    let mut params = params.iter();
    let parts = pattern.split('/').map(|part| match part.starts_with('{') {
        true => params.next().expect("a parameter"),
        false => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// The documented way to compute the hashes, written once more here.
fn chain_faults(sql: &Connection) -> Vec<String> {
    let mut statement = sql
        .prepare(
            "SELECT seq, at, actor, token_id, address, action, object, outcome, detail, hash FROM audit ORDER BY seq",
        )
        .unwrap();
    let mut rows = statement.query([]).unwrap();
    let (mut previous, mut expected, mut faults) = (vec![0_u8; 32], 1_i64, Vec::new());
    while let Some(row) = rows.next().unwrap() {
        let mut encoded = previous.clone();
        for column in 0..9 {
            let text = match row.get_ref(column).unwrap() {
                rusqlite::types::ValueRef::Null => None,
                rusqlite::types::ValueRef::Integer(number) => Some(number.to_string()),
                other => Some(other.as_str().unwrap().to_string()),
            };
            match text {
                None => encoded.extend([0xFF; 4]),
                Some(text) => {
                    encoded.extend((text.len() as u32).to_be_bytes());
                    encoded.extend(text.as_bytes());
                }
            }
        }
        let hash: Vec<u8> = row.get(9).unwrap();
        let digest = ring::digest::digest(&ring::digest::SHA256, &encoded);
        let seq: i64 = row.get(0).unwrap();
        if seq != expected || digest.as_ref() != hash {
            faults.push(format!("row {seq}"));
        }
        (previous, expected) = (hash, seq + 1);
    }
    assert!(expected > 1, "there are rows");
    faults
}

#[test]
fn every_route_that_changes_something_writes_one_row_that_names_who_did_it() {
    let audited = Audited::new();
    let first = audited.rows();
    assert_eq!(first[0]["action"], "audit_begun");
    assert_eq!(first[1]["action"], "token_made");
    assert_eq!(first[1]["actor"], "settings");
    assert_eq!(first[1]["token_id"], Value::Null);
    let nothing = &Value::Null;

    // Jobs and steps.
    let (job, row) = audited.act(
        "POST",
        "/api/tasks/{task}/jobs",
        &["hello"],
        nothing,
        "job_submitted",
    );
    let job = job["id"].to_string();
    assert_eq!(row["object"], format!("job/{job}"));
    assert_eq!(row["detail"], r#"{"task":"hello"}"#);
    let why = json!({ "why": "wrong branch" });
    let cancel = "/api/jobs/{job}/cancel";
    let (_, row) = audited.act("POST", cancel, &[&job], &why, "job_cancelled");
    assert_eq!(row["detail"], r#"{"why":"wrong branch"}"#);
    for (pattern, action) in [
        ("/api/jobs/{job}/keep", "job_kept"),
        ("/api/jobs/{job}/release", "job_released"),
        ("/api/jobs/{job}/retry", "job_retried"),
    ] {
        let (_, row) = audited.act("POST", pattern, &[&job], nothing, action);
        assert_eq!(row["object"], format!("job/{job}"), "{pattern}");
    }
    let ask = audited.submit("ask");
    let (_, row) = audited.act(
        "POST",
        "/api/jobs/{job}/steps/{step}/approve",
        &[&ask, "sure"],
        nothing,
        "step_approved",
    );
    assert_eq!(row["object"], format!("job/{ask}/step/sure"));
    let ask = audited.submit("ask");
    let why = json!({ "why": "not today" });
    let reject = "/api/jobs/{job}/steps/{step}/reject";
    audited.act("POST", reject, &[&ask, "sure"], &why, "step_rejected");
    let gpu = audited.submit("gpu");
    let fail = "/api/jobs/{job}/steps/{step}/fail";
    audited.act("POST", fail, &[&gpu, "train"], &why, "step_failed");

    // Tokens, workers, enrolments.
    let new = json!({ "name": "edge", "role": "worker" });
    let (made, row) = audited.act("POST", "/api/tokens", &[], &new, "token_made");
    assert_eq!(row["detail"], r#"{"name":"edge","role":"worker"}"#);
    assert!(!row.to_string().contains(&word(&made["text"])));
    let edge = word(&made["text"]);
    let worker = audited.worker(&edge, "edge");
    assert!(
        audited.new_rows().is_empty(),
        "a worker's own calls write none"
    );
    for job in audited
        .ask("GET", "/api/jobs?limit=100", nothing)
        .expect(200)["items"]
        .as_array()
        .unwrap()
    {
        let path = format!("/api/jobs/{}/cancel", job["id"]);
        audited.ask("POST", &path, nothing);
    }
    let job = audited.submit("hello");
    let poll = json!({ "session": "edge 1", "free_slots": 1, "held": [], "wait_ms": 0 });
    let poll = audited.ask_as(&edge, "POST", "/api/worker/poll", &poll);
    assert_eq!(poll.expect(200)["assignments"].as_array().unwrap().len(), 1);
    let requeue = "/api/jobs/{job}/steps/{step}/requeue";
    audited.act("POST", requeue, &[&job, "greet"], nothing, "step_requeued");
    for (verb, action) in [
        ("/api/workers/{worker}/pause", "worker_paused"),
        ("/api/workers/{worker}/resume", "worker_resumed"),
        ("/api/workers/{worker}/drain", "worker_drained"),
    ] {
        let (_, row) = audited.act("POST", verb, &[&worker], nothing, action);
        assert_eq!(row["object"], format!("worker/{worker}"));
        // Once more changes nothing, and writes nothing.
        if verb.ends_with("drain") {
            audited
                .ask("POST", &filled(verb, &[&worker]), nothing)
                .expect(200);
            assert!(audited.new_rows().is_empty());
        }
    }
    let delete = "/api/workers/{worker}";
    audited.act("DELETE", delete, &[&worker], nothing, "worker_deleted");
    let revoke = "/api/tokens/{token}";
    audited.act("DELETE", revoke, &["edge"], nothing, "token_revoked");

    let (enrolment_id, enrolment) = audited.make("edge-2", "enrolment");
    audited.new_rows();
    audited.route("POST", "/api/worker/enrol");
    let enrol = |hash: &str| {
        let request = json!({ "name": "edge-2", "secret_hash": hash.repeat(64) });
        audited.ask_as(&enrolment, "POST", "/api/worker/enrol", &request)
    };
    enrol("0").expect(200);
    let row = audited.one_row("enrol", "worker_enrolled", "edge-2");
    assert_eq!(row["token_id"], enrolment_id);
    enrol("0").expect(200);
    assert!(audited.new_rows().is_empty(), "an answer may be lost");
    assert!(enrol("1").status >= 400);
    let rows = audited.new_rows();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["action"], "enrolment_refused");
    assert_eq!(rows[0]["outcome"], "refused");
    assert_eq!(rows[0]["object"], format!("enrolment/{enrolment_id}"));

    // Schedules.
    let yearly = "nightly.yearly";
    for (verb, action) in [
        ("/api/schedules/{schedule}/pause", "schedule_paused"),
        ("/api/schedules/{schedule}/resume", "schedule_resumed"),
        ("/api/schedules/{schedule}/fire", "schedule_fired"),
    ] {
        let (_, row) = audited.act("POST", verb, &[yearly], nothing, action);
        assert_eq!(row["object"], "schedule/nightly.yearly");
    }

    // The server itself.
    audited.act(
        "POST",
        "/api/recovery/sweep",
        &[],
        nothing,
        "recovery_swept",
    );
    let test = "/api/notify/{target}/test";
    let (_, row) = audited.act("POST", test, &["chat"], nothing, "notify_tested");
    assert_eq!(row["object"], "target/chat");
    let redeliver = "/api/deliveries/{delivery}/redeliver";
    audited.act("POST", redeliver, &["1"], nothing, "message_redelivered");
    audited.route("POST", "/api/backup");
    for method in ["POST", "GET"] {
        let header = format!("authorization: Bearer {}\r\n", audited.ada);
        // One backup is handed out at a time.
        until("the backup is handed out", || {
            let backup = audited.house.ask(method, "/api/backup", &header, b"");
            backup.status == 200
        });
        audited.one_row("backup", "backup_taken", "ada");
    }
    audited.route("POST", "/api/prune");
    let prune = |asked: Value| audited.ask("POST", "/api/prune", &asked).expect(200);
    until("a job is old enough to be pruned", || {
        prune(json!({ "jobs_older_secs": 1 }))["jobs"] != 0
    });
    audited.one_row("prune", "jobs_pruned", "ada");
    prune(json!({ "jobs_older_secs": 1, "dry_run": true }));
    assert!(audited.new_rows().is_empty());
    assert_ne!(prune(json!({ "events": true }))["events"], 0);
    audited.one_row("prune events", "events_pruned", "ada");

    // A webhook.
    audited.route("POST", "/hooks/{name}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, HOOK_SECRET.as_bytes());
    let signature = hmac::sign(&key, b"{}");
    let hex: String = signature
        .as_ref()
        .iter()
        .map(|it| format!("{it:02x}"))
        .collect();
    let headers = format!(
        "content-type: application/json\r\nx-github-delivery: 1\r\nx-hub-signature-256: sha256={hex}\r\n"
    );
    let hooked = audited.house.ask("POST", "/hooks/push", &headers, b"{}");
    assert_eq!(hooked.status, 201, "{}", hooked.text());
    let row = audited.one_row("a webhook", "job_submitted", "webhook:push");
    assert_eq!(row["token_id"], Value::Null);

    // The pages.
    audited.route("POST", "/login");
    let answer = audited.log_in(&audited.ada);
    assert_eq!(answer.status, 303);
    audited.one_row("login", "logged_in", "ada");
    let cookie = answer.header("set-cookie").unwrap();
    let cookie = &format!("cookie: {}\r\n", cookie.split(';').next().unwrap());
    audited.send(
        cookie,
        "/tasks/{task}/run",
        &["hello"],
        "once=1",
        "job_submitted",
    );
    let job = audited.submit("hello");
    audited.send(
        cookie,
        "/jobs/{job}/cancel",
        &[&job],
        "why=x",
        "job_cancelled",
    );
    audited.send(
        cookie,
        "/jobs/{job}/retry",
        &[&job],
        "scope=all",
        "job_retried",
    );
    let job = audited.submit("hello");
    let fields = format!("do=cancel&job={job}");
    audited.send(cookie, "/jobs/bulk", &[], &fields, "job_cancelled");
    let (yes, no) = (audited.submit("ask"), audited.submit("ask"));
    let approve = "/jobs/{job}/steps/{step}/approve";
    audited.send(cookie, approve, &[&yes, "sure"], "", "step_approved");
    let reject = "/jobs/{job}/steps/{step}/reject";
    audited.send(cookie, reject, &[&no, "sure"], "why=x", "step_rejected");
    let act = "/schedules/{schedule}/{verb}";
    audited.send(cookie, act, &[yearly, "pause"], "", "schedule_paused");
    let (_, edge) = audited.make("edge-3", "worker");
    let worker = audited.worker(&edge, "edge-3");
    let act = "/workers/{worker}/{verb}";
    audited.send(cookie, act, &[&worker, "pause"], "", "worker_paused");
    let delete = "/workers/{worker}/delete";
    audited.send(cookie, delete, &[&worker], "", "worker_deleted");
    let new = "/settings/tokens/new";
    audited.send(cookie, new, &[], "name=bob&role=viewer", "token_made");
    let revoke = "/settings/tokens/{token}/revoke";
    let bob = audited.rows().last().unwrap()["object"].clone();
    let bob = word(&bob);
    let bob = bob.strip_prefix("token/").unwrap();
    audited.send(cookie, revoke, &[bob], "", "token_revoked");
    let test = "/settings/notify/{target}/test";
    audited.send(cookie, test, &["chat"], "", "notify_tested");
    let again = "/settings/deliveries/{delivery}/redeliver";
    audited.send(cookie, again, &["1"], "", "message_redelivered");
    audited.route("POST", "/logout");
    let out = audited
        .house
        .ask("POST", "/logout", &format!("{FORM}{cookie}"), b"");
    assert_eq!(out.status, 303);
    audited.one_row("logout", "logged_out", "ada");

    // Whoever adds a route that changes something adds it above, with its action.
    let called = audited.called.borrow();
    let acting = every_route().filter(|(method, path, access)| {
        let is_for_workers = matches!(access, Access::Workers);
        let is_exempt = CHANGES_NOTHING.iter().any(|(known, _)| known == path);
        *method != "GET" && !is_for_workers && !is_exempt
    });
    for (method, path, _) in acting {
        assert!(
            called.contains(&(method, path)),
            "{method} {path} has no row in the audit log"
        );
    }
    audited.verify();
}

#[test]
fn refused_requests_are_recorded_once_a_minute_with_their_number() {
    let audited = Audited::new();
    let (viewer_id, viewer) = audited.make("vera", "viewer");
    audited.new_rows();
    for _ in 0..5 {
        assert_eq!(audited.log_in("wrong").status, 401);
    }
    let refused = audited.ask_as(&viewer, "POST", "/api/tasks/hello/jobs", &Value::Null);
    refused.expect(403);
    let of = |action: &str| -> Vec<Value> {
        let rows = audited.rows().into_iter();
        rows.filter(|row| row["action"] == action).collect()
    };
    until("the refused requests are recorded", || {
        !of("login_refused").is_empty() && !of("permission_refused").is_empty()
    });
    let wrong = &of("login_refused")[0];
    assert_eq!(wrong["actor"], "unknown");
    assert_eq!(wrong["outcome"], "refused");
    assert_eq!(wrong["address"], "127.0.0.1");
    let denied = &of("permission_refused")[0];
    assert_eq!(denied["actor"], "vera");
    assert_eq!(denied["token_id"], viewer_id);
    assert_eq!(denied["object"], "POST /api/tasks/{task}/jobs");
    // A right token and a second row of somebody else show that a round has passed meanwhile.
    for _ in 0..5 {
        audited.log_in("wrong");
    }
    let (_, bob) = audited.make("bob", "viewer");
    audited
        .ask_as(&bob, "GET", "/api/audit", &Value::Null)
        .expect(403);
    until("the next round", || of("permission_refused").len() == 2);
    assert_eq!(
        of("login_refused").len(),
        1,
        "one row for each address and minute"
    );
    audited.verify();
}

#[test]
fn a_worker_that_shows_anothers_session_is_recorded() {
    let audited = Audited::new();
    let (_, one) = audited.make("one", "worker");
    let (other_id, other) = audited.make("other", "worker");
    audited.worker(&one, "one");
    audited.new_rows();
    let beat = json!({ "session": "one 1", "seq": 1, "held": [] });
    let answer = audited.ask_as(&other, "POST", "/api/worker/heartbeat", &beat);
    assert!(answer.status >= 400);
    let rows = audited.new_rows();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["action"], "scope_violated");
    assert_eq!(rows[0]["actor"], "other");
    assert_eq!(rows[0]["token_id"], other_id);
    assert_eq!(rows[0]["outcome"], "refused");
}

#[test]
fn what_changes_between_two_starts_and_at_a_reload_is_recorded_as_the_server() {
    let mut house = ServerHouse::new();
    let rows = |house: &ServerHouse| -> Vec<(String, Value)> {
        let list = house.get("/api/audit?after=0&limit=500").expect(200);
        let rows = list["items"].as_array().unwrap().iter();
        rows.map(|row| (word(&row["action"]), row.clone()))
            .collect()
    };
    assert!(rows(&house).is_empty(), "a first start changes nothing");
    house.submit("hello");
    let all = house.path().join("workflows/all.yaml");
    let text = fs::read_to_string(&all).unwrap();
    let text = text
        .replace("echo hello", "echo hallo")
        .replace("  gpu:", "  tpu:");
    fs::write(&all, text).unwrap();
    until("the changed file is recorded", || {
        rows(&house)
            .iter()
            .any(|(action, _)| action == "workflows_changed")
    });
    let (_, row) = rows(&house).pop().unwrap();
    assert_eq!(row["actor"], "server");
    let detail: Value = serde_json::from_str(row["detail"].as_str().unwrap()).unwrap();
    assert_eq!(detail["added"], json!(["tpu"]));
    assert_eq!(detail["removed"], json!(["gpu"]));
    assert_eq!(detail["changed"], json!(["hello", "outer"]));

    let before = rows(&house).len();
    house.restart();
    assert_eq!(rows(&house).len(), before, "nothing has changed");
    let token = house.path().join("token");
    fs::write(&token, SETTINGS_TOKEN).unwrap();
    house.config.auth.required = Some(true);
    house.config.auth.token_file = Some(token);
    house.config.retention.job_days = 80;
    house.restart();
    let headers = format!("authorization: Bearer {SETTINGS_TOKEN}\r\n");
    let list = house
        .ask("GET", "/api/audit?limit=2", &headers, b"")
        .expect(200);
    let (changed, enabled) = (&list["items"][0], &list["items"][1]);
    assert_eq!(enabled["action"], "authentication_enabled");
    assert_eq!(changed["action"], "settings_changed");
    let detail: Value = serde_json::from_str(changed["detail"].as_str().unwrap()).unwrap();
    let changed = detail["changed"].as_array().unwrap();
    assert!(
        changed.contains(&json!("retention.job_days")),
        "{changed:?}"
    );
    assert!(
        !detail.to_string().contains("80"),
        "values are not recorded"
    );
    house.config.auth.required = Some(false);
    house.config.auth.token_file = None;
    house.restart();
    let disabled = "/api/audit?action=authentication_disabled";
    let list = house.get(disabled).expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_page_that_searched_only_a_part_of_the_log_says_so() {
    let house = ServerHouse::new();
    let sql = Connection::open(house.database()).unwrap();
    let insert = "
        WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 20010)
        INSERT INTO audit (seq, at, actor, action, outcome, hash)
        SELECT n, 1, 'ada', 'job_submitted', 'allowed', zeroblob(32) FROM number
    ";
    sql.execute(insert, []).unwrap();
    let shown = |query: &str| {
        let path = format!("/settings/audit?action=job_kept{query}");
        house.get(&path).text()
    };
    let part = "No row from number 11 on matches. Older rows have not been searched yet.";
    let first = shown("");
    assert!(first.contains(part) && first.contains("older"), "{first}");
    assert!(shown("&before=11").contains("No rows match."));
}

#[test]
fn the_list_is_filtered_and_comes_in_pages() {
    let house = ServerHouse::new();
    for _ in 0..7 {
        house.submit("hello");
    }
    let job = house.submit("pair");
    house
        .post(&format!("/api/jobs/{job}/cancel"), &Value::Null)
        .expect(200);
    let page = |query: &str| house.get(&format!("/api/audit{query}")).expect(200);
    let seqs = |page: &Value| -> Vec<i64> {
        let rows = page["items"].as_array().unwrap().iter();
        rows.map(|row| row["seq"].as_i64().unwrap()).collect()
    };
    assert_eq!(seqs(&page("")), (1..=10).rev().collect::<Vec<_>>());
    let first = page("?limit=4");
    assert_eq!(seqs(&first), [10, 9, 8, 7]);
    let next = format!("?limit=4&before={}", word(&first["next"]));
    assert_eq!(seqs(&page(&next)), [6, 5, 4, 3]);
    assert_eq!(seqs(&page("?after=8")), [9, 10]);
    assert_eq!(seqs(&page("?action=job_cancelled")), [10]);
    assert_eq!(seqs(&page("?actor=server")), [1]);
    assert_eq!(
        seqs(&page("?since=2999-01-01T00:00:00Z")),
        Vec::<i64>::new()
    );
    assert_eq!(
        seqs(&page("?actor=local&action=job_submitted&limit=2")),
        [9, 8]
    );
    for odd in [
        "?action=nothing",
        "?since=yesterday",
        "?after=1&before=2",
        "?after=1&actor=x",
    ] {
        house.get(&format!("/api/audit{odd}")).expect(422);
    }
    let ends = house.get("/api/audit/head").expect(200);
    assert_eq!(ends["anchor"], json!({ "seq": 0, "hash": "0".repeat(64) }));
    assert_eq!(ends["head"]["hash"], page("?limit=1")["items"][0]["hash"]);
    let shown = house.get("/settings/audit").text();
    assert!(
        shown.contains("job_cancelled") && shown.contains("Audit log"),
        "{shown}"
    );
}
