//! Fair shares: one token over its limits is told to come back, and nobody else notices.

use std::sync::atomic::{AtomicUsize, Ordering};

use stepward::client::CallError;

use super::gate::field;
use super::tokens::{FORM, Guarded};
use super::*;

const SUBMIT: &str = "/api/tasks/hello/jobs";

fn submit(guarded: &Guarded, role: &str) -> Answer {
    guarded.as_role(role, "POST", SUBMIT, &Value::Null)
}

/// What every refusal for a limit has.
fn assert_limited(answer: &Answer, code: &str, setting: &str) {
    assert_eq!(answer.refused(429), code);
    let secs: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!(secs >= 1, "{secs}");
    let message = answer.message();
    assert!(message.contains(setting), "{message}");
    assert_eq!(answer.json()["error"]["details"][0], setting);
}

/// How often this limit refused a request.
fn refused(guarded: &Guarded, limit: &str) -> u64 {
    let headers = format!("authorization: Bearer {}\r\n", guarded.tokens["viewer"]);
    let page = guarded.house.ask("GET", "/metrics", &headers, b"").text();
    let series = format!("stepward_limited_requests_total{{limit=\"{limit}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&series));
    line.expect("it is always there").parse().unwrap()
}

#[test]
fn a_token_that_submits_too_much_is_told_to_come_back_and_others_are_not() {
    let guarded = Guarded::with(Limits::default(), |config| {
        config.limits.submissions_per_sec = 1;
        config.limits.submissions_burst = 3;
    });
    let worker = &guarded.tokens["worker"];
    let session = session_request("ann", "ann 1", &[], 1);
    let opened = guarded.ask(worker, "POST", "/api/worker/sessions", &session);
    opened.expect(200);
    for _ in 0..3 {
        submit(&guarded, "operator").expect(201);
    }
    until("it is too much", || {
        submit(&guarded, "operator").status == 429
    });
    // Every other way to make a job counts too.
    for path in [SUBMIT, "/api/jobs/1/retry", "/api/schedules/1/fire"] {
        until("it counts too", || {
            let answer = guarded.as_role("operator", "POST", path, &Value::Null);
            if answer.status == 429 {
                assert_limited(
                    &answer,
                    "too_many_submissions",
                    "limits.submissions_per_sec",
                );
            }
            answer.status == 429
        });
    }
    submit(&guarded, "admin").expect(201);
    guarded
        .as_role("operator", "GET", "/api/jobs", &Value::Null)
        .expect(200);
    for seq in 1..=50 {
        let beat = json!({ "session": "ann 1", "seq": seq, "held": [] });
        guarded
            .ask(worker, "POST", "/api/worker/heartbeat", &beat)
            .expect(200);
        let poll = json!({ "session": "ann 1", "free_slots": 0, "held": [], "wait_ms": 0 });
        guarded
            .ask(worker, "POST", "/api/worker/poll", &poll)
            .expect(200);
    }
    assert!(refused(&guarded, "submissions") >= 4);
    // Some time later it can go on.
    until("its time has come", || {
        submit(&guarded, "operator").status == 201
    });
}

#[test]
fn retrying_many_jobs_on_a_page_counts_each_of_them() {
    let guarded = Guarded::with(Limits::default(), |config| {
        config.limits.submissions_per_sec = 1;
        config.limits.submissions_burst = 4;
    });
    let cookie = guarded.log_in(&guarded.tokens["operator"]);
    let page = guarded.house.ask("GET", "/tasks/hello", &cookie, b"");
    let proof = field(&page, "page");
    let retry = |jobs: &str| {
        let form = format!("page={proof}&do=retry&{jobs}");
        let headers = format!("{FORM}{cookie}");
        guarded
            .house
            .ask("POST", "/jobs/bulk", &headers, form.as_bytes())
    };
    assert_eq!(
        retry("job=1&job=2&job=3&job=4&job=5").status,
        303,
        "a burst can be used as a whole"
    );
    until("there is nothing left of it", || {
        let answer = retry("job=1&job=2&job=3&job=4");
        let is_refused = answer.status == 429;
        assert!(!is_refused || answer.text().contains("limits.submissions_burst"));
        is_refused
    });
    let run = format!("page={proof}&once={}", field(&page, "once"));
    let headers = format!("{FORM}{cookie}");
    until("a form that runs a task counts too", || {
        let answer = guarded
            .house
            .ask("POST", "/tasks/hello/run", &headers, run.as_bytes());
        answer.status == 429
    });
}

#[test]
fn whoever_comes_over_loopback_to_an_open_server_has_no_limit() {
    let limits = Limits {
        streams_max: 4,
        ..Limits::default()
    };
    let house = ServerHouse::with(limits, |config| {
        config.limits.submissions_per_sec = 1;
        config.limits.submissions_burst = 1;
        config.limits.session_opens_per_sec = 1;
        config.limits.share_percent = 1;
    });
    for life in 1..=20 {
        house.submit("hello");
        house.life("ann", life, &[], 1);
    }
    let _streams: Vec<Listener> = (0..4).map(|_| house.stream("", "")).collect();
}

#[test]
fn logins_of_a_token_and_wrong_logins_of_an_address_are_limited_apart() {
    let guarded = Guarded::with(Limits::default(), |config| {
        config.limits.logins_per_minute = 2;
    });
    let log_in = |token: &str| {
        let form = format!("token={token}");
        guarded.house.ask("POST", "/login", FORM, form.as_bytes())
    };
    let viewer = &guarded.tokens["viewer"];
    until("there are too many", || log_in(viewer).status == 429);
    let refused = log_in(viewer);
    assert!(
        refused.text().contains("limits.logins_per_minute"),
        "{}",
        refused.text()
    );
    let secs: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&secs), "{secs}");
    guarded.log_in(&guarded.tokens["admin"]);
    // What the token may do without logging in is not concerned.
    guarded
        .as_role("viewer", "GET", "/api/jobs", &Value::Null)
        .expect(200);
    until("there are too many wrong ones", || {
        log_in("wrong").status == 429
    });
    guarded.log_in(&guarded.tokens["operator"]);
}

#[test]
fn a_token_that_opens_many_sessions_is_told_to_come_back_and_its_workers_go_on() {
    let guarded = Guarded::with(Limits::default(), |config| {
        config.limits.session_opens_per_sec = 1;
    });
    let worker = guarded.tokens["worker"].clone();
    let (_, other) = guarded.make(json!({ "name": "another fleet", "role": "worker" }));
    let open = |token: &str, name: &str, key: &str| {
        let session = session_request(name, key, &[], 1);
        guarded.ask(token, "POST", "/api/worker/sessions", &session)
    };
    open(&worker, "ann", "ann 1").expect(200);
    until("there are too many", || {
        let answer = open(&worker, "bob", "bob 1");
        if answer.status == 429 {
            assert_limited(
                &answer,
                "too_many_session_opens",
                "limits.session_opens_per_sec",
            );
        }
        answer.status == 429
    });
    open(&other, "cleo", "cleo 1").expect(200);
    for seq in 1..=20 {
        let beat = json!({ "session": "ann 1", "seq": seq, "held": [] });
        guarded
            .ask(&worker, "POST", "/api/worker/heartbeat", &beat)
            .expect(200);
    }
    until("its time has come", || {
        open(&worker, "dan", "dan 1").status == 200
    });
}

#[test]
fn a_token_has_a_quarter_of_the_event_streams() {
    let limits = Limits {
        streams_max: 8,
        ..Limits::default()
    };
    let guarded = Guarded::with(limits, |_| ());
    let authorization = |role: &str| format!("authorization: Bearer {}\r\n", guarded.tokens[role]);
    let viewer = authorization("viewer");
    let mut streams: Vec<Listener> = (0..2).map(|_| guarded.house.stream("", &viewer)).collect();
    let headers = format!("accept: text/event-stream\r\n{viewer}");
    let refused = guarded.house.ask("GET", "/api/events", &headers, b"");
    assert_limited(&refused, "too_many_event_streams", "limits.share_percent");
    assert!(refused.message().contains("at most 2, which is 25 % of 8"));
    let _admins = guarded.house.stream("", &authorization("admin"));
    streams.pop();
    until("there is room again", || {
        let mut line = guarded.house.line();
        line.ask("GET", "/api/events", &headers, b"");
        line.bare_head().status == 200
    });
}

#[test]
fn a_token_has_a_quarter_of_the_downloads() {
    let guarded = Guarded::with(Limits::default(), |_| ());
    submit(&guarded, "operator").expect(201);
    // More than lies between the server and whoever does not read.
    let sql = rusqlite::Connection::open(guarded.house.database()).unwrap();
    let insert = "
        WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 4000)
        INSERT INTO event (at, kind, job_id, message)
        SELECT 1, 'job_submitted', 1, hex(zeroblob(5000)) FROM number
    ";
    sql.execute(insert, []).unwrap();
    let begin = |role: &str| {
        let headers = format!("authorization: Bearer {}\r\n", guarded.tokens[role]);
        let mut line = guarded.house.line();
        line.ask("GET", "/api/jobs/1/steps/_server/logs?raw=1", &headers, b"");
        let head = line.bare_head();
        (head.status, line)
    };
    let mut held: Vec<Line> = Vec::new();
    for _ in 0..4 {
        let (status, line) = begin("viewer");
        assert_eq!(status, 200);
        held.push(line);
    }
    assert_eq!(begin("viewer").0, 429);
    assert_eq!(begin("admin").0, 200);
    assert_eq!(refused(&guarded, "downloads"), 1);
    held.pop();
    until("there is room again", || begin("viewer").0 == 200);

    // A backup that is refused for this reason was not taken, and the audit log does not say so.
    let mut of_admin: Vec<Line> = Vec::new();
    until("the admin has its share", || {
        let (status, line) = begin("admin");
        of_admin.extend((status == 200).then_some(line));
        of_admin.len() == 4
    });
    for _ in 0..2 {
        let refused = guarded.as_role("admin", "POST", "/api/backup", &Value::Null);
        assert_eq!(refused.refused(429), "too_many_downloads");
    }
    let taken = "SELECT count(*) FROM audit WHERE action = 'backup_taken'";
    let taken: i64 = sql.query_row(taken, [], |row| row.get(0)).unwrap();
    assert_eq!(taken, 0);
}

#[test]
fn a_token_that_fills_its_share_of_the_queue_keeps_nobody_else_out() {
    let limits = Limits {
        queued_max: 8,
        ..Limits::default()
    };
    let guarded = Guarded::with(limits, |_| ());
    submit(&guarded, "operator").expect(201);
    // That these tokens are used is written down now, and not again within a minute.
    let list_jobs = || guarded.admin("GET", "/api/jobs", &Value::Null).status;
    let ask_server = || guarded.as_role("worker", "GET", "/api/worker/server", &Value::Null);
    assert_eq!((list_jobs(), ask_server().status), (200, 200));
    // Another process holds the database: whoever writes waits, and holds a handler meanwhile.
    let other = rusqlite::Connection::open(guarded.house.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let over_share = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // Sixteen of them are carried out, two wait.
        for _ in 0..30 {
            scope.spawn(|| {
                let answer = submit(&guarded, "operator");
                if answer.status == 429 {
                    assert_limited(&answer, "too_many_queued_requests", "limits.share_percent");
                    over_share.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        until("the share is used", || {
            over_share.load(Ordering::SeqCst) > 0
        });
        // There is room for the admin in the queue, and a handler as soon as one of them is free.
        let admin = scope.spawn(list_jobs);
        assert_eq!(ask_server().status, 200);
        other.execute_batch("ROLLBACK").unwrap();
        assert_eq!(admin.join().unwrap(), 200);
    });
    assert!(refused(&guarded, "queued_requests") > 0);
}

#[test]
fn bodies_of_one_token_take_a_quarter_of_the_room() {
    let limits = Limits {
        // A quarter of it is for the bodies of people.
        bodies_bytes_max: 4_000_000,
        body_bytes_max: 100_000,
        ..Limits::default()
    };
    let guarded = Guarded::with(limits, |_| ());
    let send = |role: &str| {
        let token = &guarded.tokens[role];
        let mut line = guarded.house.line();
        line.send(format!(
            "POST /api/validate HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: 90001\r\n\r\n"
        ));
        line.send([b' '; 90_000]);
        line
    };
    let mut held: Vec<Line> = (0..2).map(|_| send("viewer")).collect();
    let ask = |role: &str| {
        let mut line = send(role);
        line.send(b" ");
        line.answer()
    };
    until("there is no more for it", || {
        let answer = ask("viewer");
        if answer.status == 429 {
            assert_limited(&answer, "too_many_body_bytes", "limits.share_percent");
        }
        held.push(send("viewer"));
        answer.status == 429
    });
    assert_eq!(ask("admin").refused(400), "invalid_json");
    // Whoever hangs up gives the room back.
    held.clear();
    until("there is room again", || ask("viewer").status == 400);
}

#[test]
fn a_right_token_is_never_delayed_whatever_comes_from_its_address() {
    let guarded = Guarded::with(Limits::default(), |_| ());
    let guess = || guarded.ask("guess", "GET", "/api/jobs", &Value::Null);
    until("there were too many", || guess().status == 429);
    for _ in 0..100 {
        assert_eq!(guess().refused(429), "too_many_guesses");
    }
    for role in ["viewer", "operator", "admin"] {
        guarded
            .as_role(role, "GET", "/api/jobs", &Value::Null)
            .expect(200);
        guarded.log_in(&guarded.tokens[role]);
    }
    let server = guarded.as_role("worker", "GET", "/api/worker/server", &Value::Null);
    server.expect(200);
    let enrolment = guarded.as_role("enrolment", "GET", "/api/worker/enrol", &Value::Null);
    enrolment.expect(200);
    assert!(refused(&guarded, "wrong_tokens") >= 100);
}

#[test]
fn two_tokens_can_use_one_idempotency_key_for_different_requests() {
    let guarded = Guarded::with(Limits::default(), |_| ());
    let submit = |role: &str, task: &str| {
        let headers = format!(
            "authorization: Bearer {}\r\nidempotency-key: nightly\r\n",
            guarded.tokens[role]
        );
        guarded
            .house
            .ask("POST", &format!("/api/tasks/{task}/jobs"), &headers, b"")
    };
    let first = submit("operator", "hello").expect(201)["id"].clone();
    let second = submit("admin", "pair").expect(201)["id"].clone();
    assert_ne!(first, second);
    assert_eq!(submit("operator", "hello").expect(200)["id"], first);
    assert_eq!(submit("admin", "pair").expect(200)["id"], second);
    assert_eq!(
        submit("operator", "pair").refused(422),
        "idempotency_mismatch"
    );
    // A key of version 0.1 answers every token.
    let sql = rusqlite::Connection::open(guarded.house.database()).unwrap();
    let changed = sql.execute(
        "UPDATE idempotency SET owner = 'any' WHERE job_id = ?1",
        [first.as_i64()],
    );
    assert_eq!(changed.unwrap(), 1);
    assert_eq!(submit("operator", "hello").expect(200)["id"], first);
    assert_eq!(
        submit("admin", "pair").expect(200)["id"],
        second,
        "its own comes first"
    );
}

#[test]
fn a_key_that_was_made_while_nobody_was_asked_answers_every_token() {
    let mut house = ServerHouse::new();
    let headers = "idempotency-key: before\r\n";
    let made = house.post_as(headers, SUBMIT, &Value::Null).expect(201)["id"].clone();
    let token = house.path().join("token");
    std::fs::write(&token, "a-token-that-is-long-enough").unwrap();
    house.config.auth.token_file = Some(token);
    house.restart();
    let headers = format!("authorization: Bearer a-token-that-is-long-enough\r\n{headers}");
    let again = house.post_as(&headers, SUBMIT, &Value::Null).expect(200);
    assert_eq!(again["id"], made);
}

#[test]
fn a_client_that_waits_at_limits_comes_back_when_it_is_told_to() {
    static WAITS: AtomicUsize = AtomicUsize::new(0);
    let guarded = Guarded::with(Limits::default(), |config| {
        config.limits.submissions_per_sec = 1;
        config.limits.submissions_burst = 1;
    });
    let token = guarded.tokens["operator"].as_str();
    let url = format!("http://{}", guarded.house.server.address());
    let hasty = Client::new(&url, Some(token));
    until("the server says how long to wait", || {
        match hasty.post::<_, Value>(SUBMIT, &json!({}), PATIENCE) {
            Ok(_) => false,
            Err(error @ CallError::Refused { status: 429, .. }) => {
                assert_eq!(error.limited_for(), Some(Duration::from_secs(1)));
                assert!(error.passes() && !error.is_about_token());
                true
            }
            Err(error) => panic!("{error}"),
        }
    });
    let patient = Client::new(&url, Some(token)).waiting_at_limits(|error, wait| {
        assert!(
            error.to_string().contains("limits.submissions_per_sec"),
            "{error}"
        );
        assert!(wait >= Duration::from_secs(1));
        WAITS.fetch_add(1, Ordering::SeqCst);
    });
    for _ in 0..2 {
        patient
            .post::<_, Value>(SUBMIT, &json!({}), PATIENCE)
            .unwrap();
    }
    assert!(WAITS.load(Ordering::SeqCst) >= 1);
    // A wrong token does not become right by waiting.
    let wrong = Client::new(&url, Some("wrong")).waiting_at_limits(|_, _| panic!("it waits"));
    for _ in 0..20 {
        let refused = wrong.get::<Value>("/api/jobs", PATIENCE).unwrap_err();
        assert!(refused.is_about_token() && refused.limited_for().is_none());
    }
}

/// A body for `POST /api/validate` whose answer is several times as long.
fn faulty_files() -> Value {
    let key = "k".repeat(150);
    let tasks =
        (0..50).map(|n| format!("  t{n}: {{ flow: {{ a: {{ script: x, {key}: 1 }} }} }}\n"));
    let text = format!("tasks:\n{}", tasks.collect::<String>());
    let files = (0..80).map(|n| json!({ "path": format!("f{n}.yaml"), "text": text }));
    json!({ "files": files.collect::<Vec<Value>>() })
}

#[test]
fn unread_answers_of_one_token_take_a_quarter_of_the_room_whatever_it_asked_for() {
    let limits = Limits {
        answers_bytes_max: 8_000_000,
        ..Limits::default()
    };
    let guarded = Guarded::with(limits, |_| ());
    let body = faulty_files().to_string();
    let begin = || {
        let token = &guarded.tokens["operator"];
        let headers =
            format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
        let mut line = guarded.house.line();
        line.narrow();
        // The first answer may fit into what lies between; the second one does not.
        for _ in 0..2 {
            line.ask("POST", "/api/validate", &headers, body.as_bytes());
        }
        line
    };
    let mut held = Vec::new();
    let refused_answer = loop {
        let mut line = begin();
        let head = line.bare_head();
        match head.status {
            200 => held.push(line),
            _ => break (head, line),
        }
        assert!(held.len() < 8, "it holds more than its share");
    };
    assert_eq!(refused_answer.0.status, 429);
    assert_eq!(refused_answer.0.header("retry-after"), Some("1"));
    // The token may not change anything either, and nothing was changed when it is told so.
    let not_made = submit(&guarded, "operator");
    assert_limited(&not_made, "too_many_answer_bytes", "limits.share_percent");
    let sql = rusqlite::Connection::open(guarded.house.database()).unwrap();
    let jobs = || -> i64 {
        let count = "SELECT count(*) FROM job";
        sql.query_row(count, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(jobs(), 0);
    // Short answers to requests that change nothing are not limited, and neither is anybody else.
    let me = guarded.as_role("operator", "GET", "/api/me", &Value::Null);
    me.expect(200);
    submit(&guarded, "admin").expect(201);
    let checked = guarded.as_role("viewer", "POST", "/api/validate", &faulty_files());
    checked.expect(200);
    assert!(refused(&guarded, "answer_bytes") >= 2);
    held.clear();
    until("its answers are gone", || {
        submit(&guarded, "operator").status == 201
    });
}

#[test]
fn a_job_that_was_made_is_answered_also_without_room_for_the_answer() {
    let limits = Limits {
        answers_bytes_max: 1_000,
        ..Limits::default()
    };
    let guarded = Guarded::with(limits, |config| {
        let steps = (0..700).map(|n| format!("      step{n}: {{ script: echo }}\n"));
        let big = format!("tasks:\n  big:\n    flow:\n{}", steps.collect::<String>());
        let folder = config.workflows_dir.as_ref().unwrap();
        std::fs::write(folder.join("big.yaml"), big).unwrap();
    });
    let made = guarded.as_role("operator", "POST", "/api/tasks/big/jobs", &Value::Null);
    assert!(made.body.len() > 64 << 10, "{}", made.body.len());
    let job = made.expect(201)["id"].clone();
    let path = format!("/api/jobs/{job}");
    // The same to look at is refused, because nothing is lost by that.
    let shown = guarded.as_role("operator", "GET", &path, &Value::Null);
    assert_eq!(shown.refused(503), "busy");
    let cancelled = guarded.as_role("operator", "POST", &format!("{path}/cancel"), &Value::Null);
    assert_eq!(cancelled.status, 200, "{}", cancelled.text());
}

#[test]
fn a_page_does_not_repeat_a_long_text_that_it_refuses() {
    let guarded = Guarded::with(Limits::default(), |_| ());
    let cookie = guarded.log_in(&guarded.tokens["operator"]);
    let headers = format!("{FORM}{cookie}");
    let page = guarded.house.ask("GET", "/tasks/hello", &cookie, b"");
    let proof = field(&page, "page");
    let run = |fields: &str| {
        let form = format!("page={proof}&{fields}");
        let answer = (guarded.house).ask("POST", "/tasks/hello/run", &headers, form.as_bytes());
        assert_eq!(answer.status, 422, "{}", answer.text());
        answer
    };
    let usual = run("input.name=x").body.len();
    let long = "\"".repeat(900_000);
    for field in ["input.name", "labels", "priority", "not_before"] {
        let page = run(&format!("input.n=x&{field}={long}"));
        assert!(
            page.body.len() < usual + 8_000,
            "{field}: {}",
            page.body.len()
        );
        assert!(
            page.text().contains("too long to be shown again"),
            "{field}"
        );
    }
    // Many lines that each are a fault.
    let page = run(&format!("labels={}", "a%0A".repeat(200_000)));
    assert!(page.body.len() < usual + 8_000, "{}", page.body.len());
    assert!(page.text().contains("199990 more labels have no value"));
    // What fits is shown again, as long as all of it is not too long.
    let short = "x".repeat(60_000);
    let names = ["name", "deep", "n", "a", "to"];
    let all = names.map(|name| format!("input.{name}={short}")).join("&");
    let page = run(&all).text();
    assert_eq!(page.matches(&short).count(), 4);
    assert_eq!(page.matches("too long to be shown again").count(), 1);
}
