//! Who is let in, and to what: tokens, roles, workers that keep to their own, sessions of browsers; and who is named for what was done.

use std::collections::BTreeMap;

use stepward::clock::SystemClock;
use stepward::domain::token::{NewToken, Role, TokenText};
use stepward::engine::{Engine, Settings};
use stepward::secrets::{hash_hex, random_secret};
use stepward::server::every_route;
use stepward::store::{Store, StoreOptions};

use super::*;

/// Every route and who may use it, once more: a route that is added or opened must be written down here as well.
const WHO_MAY: &str = "
    GET    /healthz                                        everyone
    GET    /readyz                                         everyone
    GET    /metrics                                        people viewer
    GET    /api/tasks                                      people viewer
    GET    /api/tasks/{task}                               people viewer
    POST   /api/tasks/{task}/jobs                          people operator
    GET    /api/jobs                                       people viewer
    GET    /api/failures                                   people viewer
    GET    /api/jobs/{job}                                 people viewer
    POST   /api/jobs/{job}/cancel                          people operator
    POST   /api/jobs/{job}/retry                           people operator
    POST   /api/jobs/{job}/keep                            people operator
    POST   /api/jobs/{job}/release                         people operator
    GET    /api/jobs/{job}/why                             people viewer
    GET    /api/jobs/{job}/events                          people viewer
    GET    /api/jobs/{job}/logs                            people viewer
    GET    /api/jobs/{job}/steps/{step}/logs               people viewer
    GET    /api/jobs/{job}/steps/{step}/why                people viewer
    GET    /api/jobs/{job}/steps/{step}/output             people viewer
    POST   /api/jobs/{job}/steps/{step}/approve            people operator
    POST   /api/jobs/{job}/steps/{step}/reject             people operator
    POST   /api/jobs/{job}/steps/{step}/requeue            people admin
    POST   /api/jobs/{job}/steps/{step}/fail               people admin
    GET    /api/schedules                                  people viewer
    GET    /api/schedules/{schedule}                       people viewer
    GET    /api/schedules/{schedule}/fires                 people viewer
    GET    /api/schedules/{schedule}/why                   people viewer
    POST   /api/schedules/{schedule}/pause                 people operator
    POST   /api/schedules/{schedule}/resume                people operator
    POST   /api/schedules/{schedule}/fire                  people operator
    GET    /api/workflows                                  people viewer
    POST   /api/validate                                   people viewer
    GET    /api/queue                                      people viewer
    GET    /api/workers                                    people viewer
    GET    /api/workers/{worker}                           people viewer
    GET    /api/workers/{worker}/why                       people viewer
    POST   /api/workers/{worker}/drain                     people operator
    POST   /api/workers/{worker}/pause                     people operator
    POST   /api/workers/{worker}/resume                    people operator
    DELETE /api/workers/{worker}                           people admin
    GET    /api/events                                     people viewer
    GET    /api/audit                                      people admin
    GET    /api/audit/head                                 people admin
    GET    /api/recovery                                   people viewer
    POST   /api/recovery/sweep                             people admin
    GET    /api/deliveries                                 people viewer
    GET    /api/deliveries/{delivery}                      people viewer
    POST   /api/deliveries/{delivery}/redeliver            people operator
    POST   /api/notify/{target}/test                       people admin
    POST   /api/backup                                     people admin
    GET    /api/backup                                     people admin
    GET    /api/backups                                    people viewer
    GET    /api/retention                                  people viewer
    POST   /api/prune                                      people admin
    GET    /api/openapi.json                               people viewer
    GET    /api/me                                         people viewer
    GET    /api/tokens                                     people admin
    POST   /api/tokens                                     people admin
    DELETE /api/tokens/{token}                             people admin
    GET    /                                               pages viewer
    GET    /tasks                                          pages viewer
    GET    /tasks/{task}                                   pages viewer
    GET    /tasks/{task}/run                               pages viewer
    POST   /tasks/{task}/run                               pages operator
    GET    /files                                          pages viewer
    GET    /jobs                                           pages viewer
    GET    /jobs/bulk                                      pages operator
    POST   /jobs/bulk                                      pages operator
    GET    /jobs/{job}                                     pages viewer
    GET    /jobs/{job}/graph.svg                           pages viewer
    GET    /jobs/{job}/cancel                              pages operator
    POST   /jobs/{job}/cancel                              pages operator
    GET    /jobs/{job}/retry                               pages operator
    POST   /jobs/{job}/retry                               pages operator
    GET    /jobs/{job}/steps/{step}/approve                pages operator
    POST   /jobs/{job}/steps/{step}/approve                pages operator
    GET    /jobs/{job}/steps/{step}/reject                 pages operator
    POST   /jobs/{job}/steps/{step}/reject                 pages operator
    GET    /jobs/{job}/steps/{step}/log                    pages viewer
    GET    /jobs/{job}/steps/{step}/log/marks              pages viewer
    GET    /jobs/{job}/steps/{step}/log/find               pages viewer
    GET    /jobs/{job}/steps/{step}/log/place              pages viewer
    GET    /jobs/{job}/steps/{step}/log/groups             pages viewer
    GET    /jobs/{job}/steps/{step}/log/error              pages viewer
    GET    /queue                                          pages viewer
    GET    /workers                                        pages viewer
    GET    /workers/{worker}/delete                        pages admin
    POST   /workers/{worker}/delete                        pages admin
    GET    /workers/{worker}/{verb}                        pages operator
    POST   /workers/{worker}/{verb}                        pages operator
    GET    /schedules                                      pages viewer
    GET    /schedules/{schedule}/{verb}                    pages operator
    POST   /schedules/{schedule}/{verb}                    pages operator
    GET    /events                                         pages viewer
    GET    /recovery                                       pages viewer
    GET    /settings                                       pages viewer
    GET    /settings/audit                                 pages admin
    GET    /settings/tokens/new                            pages admin
    POST   /settings/tokens/new                            pages admin
    GET    /settings/tokens/{token}/revoke                 pages admin
    POST   /settings/tokens/{token}/revoke                 pages admin
    GET    /settings/notify/{target}/test                  pages admin
    POST   /settings/notify/{target}/test                  pages admin
    GET    /settings/deliveries/{delivery}/redeliver       pages operator
    POST   /settings/deliveries/{delivery}/redeliver       pages operator
    GET    /login                                          public
    POST   /login                                          public
    POST   /logout                                         public
    GET    /assets/{version}/{file}                        public
    POST   /hooks/{name}                                   signed
    GET    /api/worker/enrol                               enrolment
    POST   /api/worker/enrol                               enrolment
    GET    /api/worker/server                              workers
    POST   /api/worker/sessions                            workers
    POST   /api/worker/heartbeat                           workers
    POST   /api/worker/poll                                workers
    POST   /api/worker/reports                             workers
    POST   /api/worker/drain                               workers
    PUT    /api/worker/steps/{step}/attempts/{attempt}/log workers
";

/// A server that asks everybody, and a token of each role.
pub struct Guarded {
    pub house: ServerHouse,
    pub tokens: BTreeMap<&'static str, String>,
}

impl Guarded {
    fn new() -> Guarded {
        Guarded::with(Limits::default(), |_| ())
    }

    pub fn with(limits: Limits, set: impl FnOnce(&mut ServerConfig)) -> Guarded {
        let mut tokens = BTreeMap::new();
        let house = ServerHouse::with(limits, |config| {
            config.auth.required = Some(true);
            set(config);
            let store = Store::open(&config.data_dir, StoreOptions::default()).unwrap();
            let settings = Settings::default();
            let clock = SystemClock::continuing(store.begun_up(), &settings);
            let engine = Engine::new(store, settings);
            for role in Role::ALL {
                let now = clock.now();
                let hour_on = stepward::domain::Timestamp(now.wall.0 + 3_600_000);
                let secret = random_secret().unwrap();
                let token = NewToken {
                    name: format!("the {role}"),
                    role: *role,
                    hash: hash_hex(&secret),
                    tags: None,
                    made_by: "story".to_string(),
                    expires_at: (*role == Role::Enrolment).then_some(hour_on),
                    is_unasked: false,
                };
                let made = engine.make_token(token, now).unwrap();
                let text = TokenText {
                    token_id: made.token_id,
                    secret: &secret,
                    is_enrolment: *role == Role::Enrolment,
                };
                tokens.insert(role.as_str(), text.write());
            }
        });
        Guarded { house, tokens }
    }

    pub fn ask(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        let headers =
            format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        self.house.ask(method, path, &headers, body.as_bytes())
    }

    pub fn as_role(&self, role: &str, method: &str, path: &str, body: &Value) -> Answer {
        self.ask(&self.tokens[role], method, path, body)
    }

    pub fn admin(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.as_role("admin", method, path, body)
    }

    /// Its number and its text.
    pub fn make(&self, token: Value) -> (i64, String) {
        let made = self.admin("POST", "/api/tokens", &token).expect(201);
        (made["token"]["id"].as_i64().unwrap(), word(&made["text"]))
    }

    pub fn events(&self, kind: &str) -> Vec<Value> {
        let list = self.admin("GET", "/api/events?limit=500", &Value::Null);
        let list = list.expect(200);
        let events = list["items"].as_array().unwrap().iter();
        events
            .filter(|event| event["kind"] == kind)
            .cloned()
            .collect()
    }

    /// The cookie of whoever logged in with this.
    pub fn log_in(&self, token: &str) -> String {
        let form = format!("token={token}&next=/jobs");
        let answer = self.house.ask("POST", "/login", FORM, form.as_bytes());
        assert_eq!(answer.status, 303, "{}", answer.text());
        let cookie = answer.header("set-cookie").expect("a cookie");
        format!("cookie: {}\r\n", cookie.split(';').next().unwrap())
    }
}

pub const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";

#[test]
fn every_route_lets_in_whom_it_is_for_and_nobody_else() {
    let guarded = Guarded::new();
    let written: BTreeMap<(&str, &str), &str> = WHO_MAY
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (method, rest) = line.trim().split_once(' ').unwrap();
            let (path, who) = rest.trim().split_once(' ').unwrap();
            ((method, path), who.trim())
        })
        .collect();
    let routes: Vec<(&str, &str)> = every_route()
        .map(|(method, path, _)| (method, path))
        .collect();
    for route in &routes {
        assert!(
            written.contains_key(route),
            "{route:?} is not written down here"
        );
    }
    assert_eq!(
        routes.len(),
        written.len(),
        "a route is written down that does not exist"
    );
    for ((method, pattern), who) in &written {
        // What does not exist, so that nothing happens.
        let path: Vec<&str> = pattern
            .split('/')
            .map(|part| {
                if part.starts_with('{') {
                    "999999"
                } else {
                    part
                }
            })
            .collect();
        let path = path.join("/");
        let by_nobody = guarded.house.ask(method, &path, "", b"").status;
        let roles = Role::ALL.iter().map(|role| role.as_str());
        let by_role: BTreeMap<&str, u16> = roles
            .map(|role| {
                let answer = guarded.as_role(role, method, &path, &Value::Null);
                // A page may lead to another one; to that of the login only whoever is not let in.
                let is_led = answer
                    .header("location")
                    .is_some_and(|to| to.contains("login"));
                (role, if is_led { 401 } else { answer.status })
            })
            .collect();
        let kept_out = |status: u16| matches!(status, 401 | 403);
        let welcome = |role: &str| !kept_out(by_role[role]);
        let place = format!("{method} {pattern}, {who}: {by_nobody} {by_role:?}");
        let expected: &[&str] = match *who {
            "everyone" | "public" => {
                assert!(by_nobody != 401, "{place}");
                continue;
            }
            // No token of ours opens it: the request must be signed.
            "signed" => {
                assert!(by_role.values().all(|status| *status == 401), "{place}");
                continue;
            }
            "people viewer" | "pages viewer" => &["viewer", "operator", "admin"],
            "people operator" | "pages operator" => &["operator", "admin"],
            "people admin" | "pages admin" => &["admin"],
            "workers" => &["worker"],
            "enrolment" => &["enrolment"],
            other => panic!("{other} is nobody"),
        };
        let is_page = who.starts_with("pages");
        // A browser is led to the page that asks for a token.
        let turned_away = match (is_page, (*method, *pattern)) {
            (true, _) => 303,
            // It is refused without a bearer token before anybody is asked who they are.
            (false, ("GET", "/api/backup")) => 405,
            (false, _) => 401,
        };
        assert_eq!(by_nobody, turned_away, "{place}");
        for role in Role::ALL.iter().map(|role| role.as_str()) {
            // A form that is none is refused for that, once its sender may send it.
            let is_form = is_page && *method == "POST";
            let is_in = match is_form {
                true => by_role[role] == 415,
                false => welcome(role),
            };
            assert_eq!(is_in, expected.contains(&role), "{role}: {place}");
            let refused = if *who == "enrolment" { 401 } else { 403 };
            assert!(is_in || by_role[role] == refused, "{role}: {place}");
        }
    }
}

#[test]
fn what_only_looks_like_a_token_opens_nothing() {
    let guarded = Guarded::new();
    let good = &guarded.tokens["admin"];
    let (body, checksum) = good.rsplit_once('_').unwrap();
    let mut parts = body.split('_');
    let (word, _, secret) = (parts.next().unwrap(), parts.next(), parts.next().unwrap());
    let another = |token_id: i64, secret: &str| {
        let token_id = stepward::domain::TokenId(token_id);
        let text = TokenText {
            token_id,
            secret,
            is_enrolment: false,
        };
        text.write()
    };
    for odd in [
        String::new(),
        "x".to_string(),
        body.to_string(),
        good[..good.len() - 1].to_string(),
        good.to_uppercase(),
        format!("{good}x"),
        format!("{word}_-1_{secret}_{checksum}"),
        another(0, secret),
        another(1, secret),
        another(99, secret),
        another(i64::MAX, secret),
        another(3, &"0".repeat(64)),
        hash_hex(secret),
    ] {
        let answer = guarded.ask(&odd, "GET", "/api/jobs", &Value::Null);
        assert!(
            matches!(answer.status, 401 | 429),
            "{odd}: {}",
            answer.status
        );
    }
    for header in [
        format!("authorization: Basic {good}\r\n"),
        format!("authorization: {good}\r\n"),
        format!("x-authorization: Bearer {good}\r\n"),
        format!("cookie: stepward_session={good}\r\n"),
    ] {
        let answer = guarded.house.ask("GET", "/api/jobs", &header, b"");
        assert_eq!(answer.refused(401), "unauthorized", "{header}");
    }
    let in_address = format!("/api/jobs?token={good}");
    assert_eq!(guarded.house.get(&in_address).refused(401), "unauthorized");
    // Whoever knows one is never made to wait for those who do not.
    guarded.admin("GET", "/api/jobs", &Value::Null).expect(200);
}

#[test]
fn a_worker_touches_nothing_but_its_own_sessions_and_attempts() {
    let guarded = Guarded::new();
    let (_, ann) = guarded.make(json!({"name": "ann", "role": "worker"}));
    let (_, eve) = guarded.make(json!({"name": "eve", "role": "worker"}));
    let open = |token: &str, name: &str, session: &str| {
        let request = session_request(name, session, &[], 2);
        guarded.ask(token, "POST", "/api/worker/sessions", &request)
    };
    open(&ann, "ann", "ann 1").expect(200);
    open(&eve, "eve", "eve 1").expect(200);
    let submitted = guarded.as_role("operator", "POST", "/api/tasks/hello/jobs", &Value::Null);
    let job_id = submitted.expect(201)["id"].as_i64().unwrap();
    let poll = json!({"session": "ann 1", "free_slots": 1, "held": [], "wait_ms": 0});
    let given = guarded
        .ask(&ann, "POST", "/api/worker/poll", &poll)
        .expect(200);
    let held = attempt(&given["assignments"][0]);
    let started = json!({"session": "ann 1", "items": [item(&held, "started", json!({}))]});
    guarded
        .ask(&ann, "POST", "/api/worker/reports", &started)
        .expect(200);

    let finished = json!({"finished": {"outcome": "completed", "exit_code": 0}});
    let log = format!(
        "/api/worker/steps/{}/attempts/{}/log?session=ann%201&offset=0",
        held["step_id"], held["attempt"]
    );
    for (method, path, body) in [
        ("POST", "/api/worker/poll", poll.clone()),
        (
            "POST",
            "/api/worker/heartbeat",
            json!({"session": "ann 1", "seq": 1, "held": []}),
        ),
        (
            "POST",
            "/api/worker/reports",
            json!({"session": "ann 1", "items": [item(&held, "finished", finished.clone())]}),
        ),
        ("POST", "/api/worker/drain", json!({"session": "ann 1"})),
        ("PUT", &log, json!("another's words")),
    ] {
        let refused = guarded.ask(&eve, method, path, &body);
        let is_report = path == "/api/worker/reports";
        match is_report {
            true => assert_eq!(refused.expect(200)["results"][0]["result"], "abort"),
            false => assert_eq!(refused.refused(410), "session_unknown", "{path}"),
        }
        // As if there were none.
        let unknown = serde_json::to_string(&body)
            .unwrap()
            .replace("ann 1", "nobody 1");
        let unknown: Value = serde_json::from_str(&unknown).unwrap();
        let path = path.replace("ann%201", "nobody%201");
        let nobody = guarded.ask(&eve, method, &path, &unknown);
        assert_eq!(
            (nobody.status, nobody.text()),
            (refused.status, refused.text()),
            "{path}"
        );
    }
    // Nor with its own session, and not by being it.
    let mine = json!({"session": "eve 1", "items": [item(&held, "finished", finished)]});
    let answer = guarded
        .ask(&eve, "POST", "/api/worker/reports", &mine)
        .expect(200);
    assert_eq!(answer["results"][0]["result"], "abort");
    let request = session_request("ann", "ann 2", &[], 2);
    let posing = guarded.ask(&eve, "POST", "/api/worker/sessions", &request);
    assert_eq!(posing.refused(403), "forbidden");
    let mut namesake = session_request("another", "another 1", &[], 2);
    namesake["name"] = json!("ann");
    let posing = guarded.ask(&eve, "POST", "/api/worker/sessions", &namesake);
    assert_eq!(posing.refused(409), "name_taken");
    // A worker that drains keeps its name while it has a step.
    let drain = json!({"session": "ann 1"});
    guarded
        .ask(&ann, "POST", "/api/worker/drain", &drain)
        .expect(200);
    let posing = guarded.ask(&eve, "POST", "/api/worker/sessions", &namesake);
    assert_eq!(posing.refused(409), "name_taken");

    let job = guarded
        .admin("GET", &format!("/api/jobs/{job_id}"), &Value::Null)
        .expect(200);
    assert_eq!(job["steps"][0]["status"], "running");
    let told = guarded.events("scope_violated");
    assert_eq!(told.len(), 1, "told once, however often it is tried");
    assert!(word(&told[0]["message"]).contains("(eve)"));
    let beat = json!({"session": "ann 1", "seq": 1, "held": [{"step_id": held["step_id"], "attempt": held["attempt"], "phase": "running"}]});
    let beat = guarded
        .ask(&ann, "POST", "/api/worker/heartbeat", &beat)
        .expect(200);
    assert_eq!(beat["abort"], json!([]));
}

#[test]
fn a_worker_offers_no_more_than_its_token_lets_it() {
    let guarded = Guarded::new();
    let (_, token) = guarded.make(json!({"name": "edge", "role": "worker", "tags": ["script"]}));
    let request = session_request("edge", "edge 1", &["gpu", "prod"], 2);
    let opened = guarded
        .ask(&token, "POST", "/api/worker/sessions", &request)
        .expect(200);
    let path = format!("/api/workers/{}", opened["worker_id"]);
    let shown = guarded.admin("GET", &path, &Value::Null).expect(200);
    assert_eq!(shown["tags"], json!(["script"]));
    let told = guarded.events("worker_restricted");
    assert_eq!(told[0]["data"]["withheld"], json!(["gpu", "prod"]));
}

#[test]
fn an_enrolment_makes_one_token_once() {
    let guarded = Guarded::new();
    let (enrolment_id, enrolment) =
        guarded.make(json!({"name": "edge-1", "role": "enrolment", "tags": ["script"]}));
    let enrol = |secret: &str| {
        let request = json!({"name": "edge-1", "secret_hash": hash_hex(secret)});
        guarded.ask(&enrolment, "POST", "/api/worker/enrol", &request)
    };
    let secret = random_secret().unwrap();
    let first = enrol(&secret).expect(200);
    // The answer was lost: the same again.
    assert_eq!(enrol(&secret).expect(200), first);
    let token = TokenText {
        token_id: stepward::domain::TokenId(first["token_id"].as_i64().unwrap()),
        secret: &secret,
        is_enrolment: false,
    };
    let request = session_request("edge-1", "edge-1 1", &["gpu"], 1);
    let opened = guarded
        .ask(&token.write(), "POST", "/api/worker/sessions", &request)
        .expect(200);
    let path = format!("/api/workers/{}", opened["worker_id"]);
    let shown = guarded.admin("GET", &path, &Value::Null).expect(200);
    assert_eq!(
        shown["tags"],
        json!(["script"]),
        "the enrolment's tags are its token's"
    );

    let thief = enrol(&random_secret().unwrap());
    assert_eq!(thief.refused(401), "unauthorized");
    assert_eq!(guarded.events("enrolment_refused").len(), 1);
    let tokens = guarded
        .admin("GET", "/api/tokens", &Value::Null)
        .expect(200);
    let tokens = tokens["items"].as_array().unwrap();
    let of = |id: i64| tokens.iter().find(|token| token["id"] == id).unwrap();
    assert_eq!(of(enrolment_id)["status"], "used");
    assert_eq!(of(enrolment_id)["made_token_id"], first["token_id"]);
    for odd in ["", "abc", &"g".repeat(64)] {
        let request = json!({"name": "edge-1", "secret_hash": odd});
        let refused = guarded.ask(&enrolment, "POST", "/api/worker/enrol", &request);
        assert_eq!(refused.status, 422, "{odd}");
    }
}

#[test]
fn an_enrolment_that_has_expired_makes_none() {
    let guarded = Guarded::new();
    let (_, enrolment) =
        guarded.make(json!({"name": "late", "role": "enrolment", "expires_in_secs": 1}));
    let request = |secret: &str| json!({"name": "late", "secret_hash": hash_hex(secret)});
    until("it has expired", || {
        let tokens = guarded
            .admin("GET", "/api/tokens", &Value::Null)
            .expect(200);
        let tokens = tokens["items"].as_array().unwrap();
        tokens.last().unwrap()["status"] == "expired"
    });
    let late = guarded.ask(&enrolment, "POST", "/api/worker/enrol", &request("late"));
    assert_eq!(late.refused(401), "unauthorized");
}

#[test]
fn a_revoked_token_lets_nobody_in_from_that_moment_on() {
    let guarded = Guarded::new();
    let (id, token) = guarded.make(json!({"name": "bob", "role": "operator"}));
    let cookie = guarded.log_in(&token);
    assert_eq!(guarded.house.ask("GET", "/jobs", &cookie, b"").status, 200);
    let mut listener = guarded
        .house
        .stream("", &format!("authorization: Bearer {token}\r\n"));
    let (worker_token_id, worker_token) = guarded.make(json!({"name": "edge", "role": "worker"}));
    let request = session_request("edge", "edge 1", &[], 1);
    let opened = guarded
        .ask(&worker_token, "POST", "/api/worker/sessions", &request)
        .expect(200);

    for id in [id, worker_token_id] {
        let gone = guarded
            .admin("DELETE", &format!("/api/tokens/{id}"), &Value::Null)
            .expect(200);
        assert_eq!(gone["status"], "revoked");
    }
    assert_eq!(
        guarded
            .ask(&token, "GET", "/api/jobs", &Value::Null)
            .refused(401),
        "unauthorized"
    );
    assert_eq!(guarded.house.ask("GET", "/jobs", &cookie, b"").status, 303);
    while listener.frame().is_some() {}
    let beat = json!({"session": "edge 1", "seq": 1, "held": []});
    let beat = guarded.ask(&worker_token, "POST", "/api/worker/heartbeat", &beat);
    assert_eq!(beat.refused(401), "unauthorized");
    let path = format!("/api/workers/{}", opened["worker_id"]);
    let shown = guarded.admin("GET", &path, &Value::Null).expect(200);
    assert_eq!(shown["draining"], true, "it is given nothing more");
    assert_eq!(guarded.events("token_revoked").len(), 2);
}

/// Whoever has a backup has the database and `secret.key`, but not the key that cookies are signed with.
#[test]
fn a_cookie_outlives_a_restart_but_is_nothing_that_a_backup_could_make() {
    let mut guarded = Guarded::new();
    let (_, token) = guarded.make(json!({"name": "ada", "role": "admin"}));
    let cookie = guarded.log_in(&token);
    guarded.house.restart();
    assert_eq!(guarded.house.ask("GET", "/jobs", &cookie, b"").status, 200);

    guarded.house.server.stop();
    let key = guarded.house.config.data_dir.join("session.key");
    let former = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    guarded.house.restart();
    assert_ne!(std::fs::read(&key).unwrap(), former);
    assert_eq!(guarded.house.ask("GET", "/jobs", &cookie, b"").status, 303);
}

#[test]
fn whoever_listens_is_sent_away_when_the_token_has_expired() {
    let guarded = Guarded::new();
    let (_, token) = guarded.make(json!({"name": "guest", "role": "viewer", "expires_in_secs": 1}));
    let mut listener = guarded
        .house
        .stream("", &format!("authorization: Bearer {token}\r\n"));
    until("it lets nobody in", || {
        guarded.ask(&token, "GET", "/api/me", &Value::Null).status == 401
    });
    // What happens then is told to others alone.
    let path = "/api/tasks/hello/jobs";
    let job_id = guarded
        .as_role("operator", "POST", path, &Value::Null)
        .expect(201)["id"]
        .clone();
    while let Some(frame) = listener.frame() {
        assert!(!frame.contains(&format!("\"job_id\":{job_id},")), "{frame}");
    }
}

#[test]
fn the_servers_own_worker_is_nobody_elses() {
    let guarded = Guarded::new();
    let own = guarded
        .house
        .server
        .own_worker_token()
        .expect("it asks everybody");
    let request = session_request("inside", "inside 1", &[], 1);
    guarded
        .ask(&own, "POST", "/api/worker/sessions", &request)
        .expect(200);
    let (_, eve) = guarded.make(json!({"name": "eve", "role": "worker"}));
    let request = session_request("inside", "inside 2", &[], 1);
    let posing = guarded.ask(&eve, "POST", "/api/worker/sessions", &request);
    assert_eq!(posing.refused(403), "forbidden");
    guarded
        .ask(&own, "POST", "/api/worker/sessions", &request)
        .expect(200);
}

#[test]
fn the_last_admin_stays() {
    let guarded = Guarded::new();
    let kept = guarded.admin("DELETE", "/api/tokens/the%20admin", &Value::Null);
    assert_eq!(kept.refused(409), "conflict");
    guarded.make(json!({"name": "another", "role": "admin"}));
    guarded
        .admin("DELETE", "/api/tokens/the%20admin", &Value::Null)
        .expect(200);
}

#[test]
fn a_token_is_shown_once_and_its_secret_is_nowhere() {
    let guarded = Guarded::new();
    let (_, token) = guarded.make(json!({"name": "once", "role": "viewer"}));
    let secret = TokenText::read(&token).unwrap().secret;
    let listed = guarded.admin("GET", "/api/tokens", &Value::Null);
    let events = guarded.admin("GET", "/api/events?limit=500", &Value::Null);
    for text in [listed.text(), events.text()] {
        assert!(
            !text.contains(secret) && !text.contains(&hash_hex(secret)),
            "{text}"
        );
    }
    for file in ["stepward.db", "stepward.db-wal"] {
        let bytes =
            std::fs::read(guarded.house.database().with_file_name(file)).unwrap_or_default();
        let found = bytes
            .windows(secret.len())
            .any(|window| window == secret.as_bytes());
        assert!(!found, "{file} holds the secret");
    }
}

#[test]
fn what_a_token_may_not_be_is_told() {
    let guarded = Guarded::new();
    for (asked, fault) in [
        (json!({"name": "", "role": "viewer"}), "name is empty"),
        (json!({"name": "7", "role": "viewer"}), "is a number"),
        (json!({"name": "a\nb", "role": "viewer"}), "one plain line"),
        (
            json!({"name": "a\u{202e}nimda", "role": "viewer"}),
            "one plain line",
        ),
        (
            json!({"name": "a", "role": "king"}),
            "expected one of viewer",
        ),
        (
            json!({"name": "a", "role": "viewer", "tags": ["gpu"]}),
            "are for workers",
        ),
        (
            json!({"name": "a", "role": "worker", "tags": ["not a tag"]}),
            "is not allowed",
        ),
        (json!({"name": "a", "role": "worker", "tags": []}), "are 0"),
        (
            json!({"name": "a", "role": "worker", "expires_in_secs": 0}),
            "is in the past",
        ),
        (
            json!({"name": "a", "role": "viewer", "admin": true}),
            "unknown field",
        ),
        (json!({"role": "viewer"}), "name"),
    ] {
        let refused = guarded.admin("POST", "/api/tokens", &asked);
        assert_eq!(refused.status, 422, "{asked}: {}", refused.text());
        assert!(
            refused.text().contains(fault),
            "{asked}: {}",
            refused.text()
        );
    }
    let listed = guarded
        .admin("GET", "/api/tokens", &Value::Null)
        .expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), Role::ALL.len());
}

#[test]
fn whoever_changes_something_is_named_in_what_is_recorded() {
    let guarded = Guarded::new();
    let (_, ada) = guarded.make(json!({"name": "ada", "role": "admin"}));
    let act = |method: &str, path: &str, body: Value| {
        let answer = guarded.ask(&ada, method, path, &body);
        assert!(answer.status < 300, "{path}: {}", answer.text());
    };
    let (_, worker) = guarded.make(json!({"name": "edge", "role": "worker"}));
    let request = session_request("edge", "edge 1", &[], 1);
    guarded
        .ask(&worker, "POST", "/api/worker/sessions", &request)
        .expect(200);
    act("POST", "/api/tasks/gpu/jobs", json!({}));
    act("POST", "/api/jobs/1/cancel", json!({}));
    act("POST", "/api/jobs/1/retry", json!({}));
    act("POST", "/api/tasks/ask/jobs", json!({}));
    act("POST", "/api/jobs/3/steps/sure/approve", json!({}));
    act("POST", "/api/tasks/ask/jobs", json!({}));
    act("POST", "/api/jobs/4/steps/sure/reject", json!({}));
    act("POST", "/api/workers/edge/pause", Value::Null);
    act("POST", "/api/workers/edge/resume", Value::Null);
    act("POST", "/api/workers/edge/drain", Value::Null);
    act("DELETE", "/api/workers/edge", Value::Null);
    act(
        "POST",
        "/api/tokens",
        json!({"name": "more", "role": "viewer"}),
    );
    act("DELETE", "/api/tokens/more", Value::Null);
    for (kind, count) in [
        ("job_submitted", 4),
        ("job_cancelled", 1),
        ("step_approved", 1),
        ("step_rejected", 1),
        ("worker_paused", 1),
        ("worker_resumed", 1),
        ("worker_draining", 1),
        ("worker_deleted", 1),
        ("token_made", 1),
        ("token_revoked", 1),
    ] {
        let by_ada = guarded.events(kind);
        let by_ada = by_ada.iter().filter(|event| event["actor"] == "ada");
        assert_eq!(by_ada.count(), count, "{kind}");
    }
    let cookie = guarded.log_in(&guarded.tokens["viewer"]);
    for (page, shown) in [("/events", "<td>ada</td>"), ("/jobs/1", "by submit (ada)")] {
        let page = guarded.house.ask("GET", page, &cookie, b"").text();
        let page = page.replace("</span>", "");
        assert!(page.contains(shown), "{shown}: {page}");
    }
    // What nobody did by hand bears no name.
    assert!(
        guarded
            .events("worker_registered")
            .iter()
            .all(|event| event["actor"].is_null())
    );
    let job = guarded
        .admin("GET", "/api/jobs/1", &Value::Null)
        .expect(200);
    assert_eq!(job["message"], "cancelled by ada");
}

#[test]
fn when_a_token_was_last_used_is_known() {
    let guarded = Guarded::new();
    let (id, token) = guarded.make(json!({"name": "grafana", "role": "viewer"}));
    let used = || {
        let listed = guarded
            .admin("GET", "/api/tokens", &Value::Null)
            .expect(200);
        let listed = listed["items"].as_array().unwrap();
        let token = listed.iter().find(|token| token["id"] == id).unwrap();
        token["used_at"].clone()
    };
    assert!(used().is_null());
    guarded
        .ask(&token, "GET", "/api/jobs", &Value::Null)
        .expect(200);
    assert!(used().is_string());
}

#[test]
fn logging_out_ends_the_session_for_good() {
    let mut guarded = Guarded::new();
    let cookie = guarded.log_in(&guarded.tokens["viewer"]);
    let looks = |guarded: &Guarded| guarded.house.ask("GET", "/jobs", &cookie, b"").status;
    assert_eq!(looks(&guarded), 200);
    let mut listener = guarded.house.stream("", &cookie);
    let out = guarded
        .house
        .ask("POST", "/logout", &format!("{FORM}{cookie}"), b"");
    assert_eq!(out.status, 303);
    while listener.frame().is_some() {}
    // Whoever kept the cookie has nothing of it, also not from the server's next life.
    assert_eq!(looks(&guarded), 303);
    guarded.house.restart();
    assert_eq!(looks(&guarded), 303);
    assert_eq!(guarded.events("logged_in")[0]["actor"], "the viewer");
    assert_eq!(guarded.events("logged_out")[0]["actor"], "the viewer");
}

#[test]
fn pages_are_for_people_and_offer_what_a_role_may() {
    let guarded = Guarded::new();
    let form = format!("token={}", guarded.tokens["worker"]);
    let refused = guarded.house.ask("POST", "/login", FORM, form.as_bytes());
    assert_eq!(refused.status, 403);
    assert!(
        refused.text().contains("opens no pages"),
        "{}",
        refused.text()
    );
    let page = |role: &str, path: &str| {
        let cookie = guarded.log_in(&guarded.tokens[role]);
        guarded.house.ask("GET", path, &cookie, b"")
    };
    assert!(
        page("admin", "/settings")
            .text()
            .contains("/settings/tokens/new")
    );
    assert!(
        !page("operator", "/settings")
            .text()
            .contains("/settings/tokens/new")
    );
    assert!(
        page("viewer", "/jobs")
            .text()
            .contains("data-role=\"viewer\"")
    );
    let refused = page("viewer", "/workers/1/drain");
    assert_eq!(refused.status, 403);
    let text = refused.text();
    assert!(text.contains("takes a token of role operator"), "{text}");
}

#[test]
fn whoever_guesses_is_made_to_wait_and_it_is_told_once() {
    let guarded = Guarded::new();
    let guess = || guarded.ask("guess", "GET", "/api/jobs", &Value::Null);
    until("there were too many", || guess().status == 429);
    let secs: u64 = guess().header("retry-after").unwrap().parse().unwrap();
    assert!((1..=301).contains(&secs), "{secs}");
    // The login page and enrolment count with the rest.
    let login = guarded.house.ask("POST", "/login", FORM, b"token=guess");
    assert_eq!(login.status, 429);
    let enrol = guarded.ask("ste_guess", "POST", "/api/worker/enrol", &Value::Null);
    assert_eq!(enrol.status, 429);
    guarded.admin("GET", "/api/jobs", &Value::Null).expect(200);
    assert_eq!(guarded.events("login_refused").len(), 1);
}

#[test]
fn a_server_that_others_reach_does_not_start_before_somebody_has_a_token() {
    let folder = fast_folder();
    let start = |set: &dyn Fn(&mut ServerConfig)| {
        let mut config = ServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: folder.path().join("data"),
            ..ServerConfig::default()
        };
        set(&mut config);
        Server::start_with(&config, Limits::default())
    };
    let refused = start(&|config| config.auth.required = Some(true));
    let why = refused.err().expect("nobody could come in").to_string();
    assert!(
        why.contains("stepward token new NAME --role admin --data-dir"),
        "{why}"
    );
    assert!(start(&|_| ()).is_ok(), "on loopback nobody is asked");
}

#[test]
fn a_request_that_is_not_understood_is_told_which_field_in_plain_words() {
    let guarded = Guarded::new();
    for (body, told) in [
        (
            json!({"name": "x", "role": "viewer", "expires_in_secs": "soon"}),
            "field expires_in_secs: found string \"soon\", expected a whole number, 0 to 4294967295 at line 1",
        ),
        (
            json!({"name": ["x"], "role": "viewer"}),
            "field name: found sequence, expected a string at line 1",
        ),
        (
            json!("x"),
            "found string \"x\", expected an object at line 1",
        ),
        (json!({"name": "x"}), "missing field `role` at line 1"),
    ] {
        let refused = guarded.admin("POST", "/api/tokens", &body);
        assert_eq!(refused.status, 422);
        let text = refused.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_string();
        assert!(text.contains(told), "{told}: {text}");
    }
}

#[test]
fn a_form_that_is_sent_twice_makes_one_token() {
    let guarded = Guarded::new();
    let cookie = guarded.log_in(&guarded.tokens["admin"]);
    let asked = guarded
        .house
        .ask("GET", "/settings/tokens/new", &cookie, b"")
        .text();
    assert!(
        asked.contains("or within an hour for an enrolment"),
        "{asked}"
    );
    let proof = asked.split("name=\"page\" value=\"").nth(1).unwrap();
    let proof = proof.split('"').next().unwrap();
    let form = format!("page={proof}&name=bob&role=viewer");
    let head = format!("{FORM}{cookie}");
    let send = || (guarded.house).ask("POST", "/settings/tokens/new", &head, form.as_bytes());
    assert_eq!(send().status, 200);
    let again = send();
    assert_eq!(again.status, 409);
    assert!(
        again.text().contains("its text was shown once"),
        "{}",
        again.text()
    );
    assert_eq!(
        guarded
            .events("token_made")
            .iter()
            .filter(|made| made["message"].as_str().unwrap().contains("bob"))
            .count(),
        1
    );
}

#[test]
fn a_form_that_guesses_is_told_when_to_come_again() {
    let guarded = Guarded::new();
    let guess = || (guarded.house).ask("POST", "/login", FORM, b"token=wrongwrongwrongwrong");
    let slowed = (0..100)
        .map(|_| guess())
        .find(|answer| answer.status == 429)
        .unwrap();
    let secs: u64 = slowed.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=300).contains(&secs), "{secs}");
}

#[test]
fn a_backup_is_for_whoever_shows_an_admins_token_and_never_for_a_cookie() {
    let guarded = Guarded::new();
    let cookie = guarded.log_in(&guarded.tokens["admin"]);
    let asked = |method: &str, headers: &str| {
        let answer = guarded.house.take_backup(method, headers, b"");
        (
            answer.status,
            answer.header("content-disposition").is_some(),
        )
    };
    assert_eq!(asked("GET", &cookie), (405, false));
    assert_eq!(asked("POST", &cookie), (401, false));
    let own = format!("{cookie}sec-fetch-site: same-origin\r\nsec-fetch-mode: navigate\r\n");
    assert_eq!(asked("GET", &own), (405, false));
    assert_eq!(asked("GET", ""), (405, false));
    assert_eq!(asked("POST", ""), (401, false));
    assert_eq!(
        asked("GET", "authorization: Bearer wrong\r\n"),
        (401, false)
    );
    for role in ["viewer", "operator", "worker"] {
        for method in ["GET", "POST"] {
            let bearer = format!("authorization: Bearer {}\r\n", guarded.tokens[role]);
            assert_eq!(asked(method, &bearer), (403, false), "{role} {method}");
        }
    }
    for method in ["GET", "POST"] {
        let bearer = format!("authorization: Bearer {}\r\n", guarded.tokens["admin"]);
        assert_eq!(asked(method, &bearer), (200, true), "{method}");
    }
    assert_eq!(guarded.events("backup_made").len(), 2);
}
