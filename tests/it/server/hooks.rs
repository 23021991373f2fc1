//! Webhooks in: who knows the secret makes a job, once per delivery; who does not learns nothing.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::{Value, json};
use stepward::clock::wall_time;
use stepward::config::ServerConfig;
use stepward::server::Limits;
use stepward::store::{Store, StoreOptions};

use super::{Answer, ServerHouse, until, word};

const SECRET: &str = "the secret of push";

const WEBHOOKS: &str = r#"
tasks:
  deploy:
    input:
      tag: { type: string }
      count: { type: integer, default: 0 }
      event: { type: string, default: none }
    flow:
      go: { script: echo go }
    webhooks:
      push:
        secret: { file: SECRET_FILE }
        input:
          tag: "{{ body.tag }}"
          count: "{{ body.count | default(0) }}"
          event: "{{ headers['x-github-event'] | default('none') }}"
      strict: { secret: { file: SECRET_FILE }, scheme: standard, input: { tag: strict } }
      broken: { secret: { env: STEPWARD_SECRET_NEVER_SET }, input: { tag: broken } }
"#;

fn house() -> ServerHouse {
    house_with(|_| {})
}

fn house_with(more_settings: impl FnOnce(&mut ServerConfig)) -> ServerHouse {
    ServerHouse::with(Limits::default(), |config| {
        more_settings(config);
        let folder = config.workflows_dir.clone().unwrap();
        let secret = folder.with_file_name("push.secret");
        fs::write(&secret, format!("{SECRET}\n")).unwrap();
        let text = WEBHOOKS.replace("SECRET_FILE", &secret.display().to_string());
        fs::write(folder.join("webhooks.yaml"), text).unwrap();
        // Whoever calls a webhook has no token.
        let token = folder.with_file_name("token");
        fs::write(&token, "a-token-that-is-long-enough").unwrap();
        config.auth.token_file = Some(token);
        config.secrets.allow_files.push(secret);
    })
}

fn now_secs() -> i64 {
    wall_time().0 / 1_000
}

fn tag(secret: &str, text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), text)
}

fn standard(id: &str, secs: i64, body: &[u8]) -> String {
    let mut signed = format!("{id}.{secs}.").into_bytes();
    signed.extend_from_slice(body);
    let signature = STANDARD.encode(tag(SECRET, &signed));
    format!(
        "content-type: application/json\r\nwebhook-id: {id}\r\nwebhook-timestamp: {secs}\r\n\
         webhook-signature: v1,{signature}\r\n"
    )
}

fn github(id: &str, body: &[u8]) -> String {
    let signature = tag(SECRET, body);
    let hex: String = signature
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!(
        "content-type: application/json\r\nx-github-delivery: {id}\r\nx-github-event: push\r\n\
         x-hub-signature-256: sha256={hex}\r\n"
    )
}

fn bearer(more: &str) -> String {
    format!("content-type: application/json\r\nauthorization: Bearer {SECRET}\r\n{more}")
}

fn hook(house: &ServerHouse, name: &str, headers: &str, body: &[u8]) -> Answer {
    house.ask("POST", &format!("/hooks/{name}"), headers, body)
}

fn get(house: &ServerHouse, path: &str) -> Value {
    let headers = "authorization: Bearer a-token-that-is-long-enough\r\n";
    house.ask("GET", path, headers, b"").expect(200)
}

fn jobs(house: &ServerHouse) -> usize {
    get(house, "/api/jobs?limit=500")["items"]
        .as_array()
        .unwrap()
        .len()
}

#[test]
fn each_of_the_three_ways_makes_a_job_of_what_was_sent() {
    let house = house();
    let body = br#"{ "tag": "v1.2", "count": 7, "more": [1] }"#;
    let ways = [
        (standard("msg_1", now_secs(), body), "none"),
        (github("d-1", body), "push"),
        (bearer(""), "none"),
    ];
    for (at, (headers, event)) in ways.iter().enumerate() {
        let made = hook(&house, "push", headers, body).expect(201);
        assert_eq!(made, json!({ "job_id": at + 1, "repeated": false }));
        let job = get(&house, &format!("/api/jobs/{}", made["job_id"]));
        assert_eq!(
            (word(&job["task"]), word(&job["source"])),
            ("deploy".into(), "webhook".into())
        );
        assert_eq!(
            job["input"],
            json!({ "tag": "v1.2", "count": 7, "event": event })
        );
    }
}

#[test]
fn a_delivery_that_comes_again_makes_no_second_job_whatever_it_says() {
    let house = house();
    let (body, other) = (
        br#"{ "tag": "a" }"#.as_slice(),
        b"{ no JSON at all".as_slice(),
    );
    let again = json!({ "job_id": 1, "repeated": true });
    assert_eq!(
        hook(&house, "push", &github("d-1", body), body).expect(201)["job_id"],
        1
    );
    assert_eq!(
        hook(&house, "push", &github("d-1", body), body).expect(200),
        again
    );
    assert_eq!(
        hook(&house, "push", &github("d-1", other), other).expect(200),
        again
    );
    let signed = standard("msg_1", now_secs(), body);
    assert_eq!(hook(&house, "push", &signed, body).expect(201)["job_id"], 2);
    assert_eq!(hook(&house, "push", &signed, body).expect(200)["job_id"], 2);
    let keyed = bearer("idempotency-key: k\r\n");
    assert_eq!(hook(&house, "push", &keyed, body).expect(201)["job_id"], 3);
    assert_eq!(hook(&house, "push", &keyed, body).expect(200)["job_id"], 3);
    // Another webhook has ids of its own.
    assert_eq!(
        hook(&house, "strict", &signed, body).expect(201)["job_id"],
        4
    );
    assert_eq!(jobs(&house), 4);
}

#[test]
fn many_deliveries_of_one_id_at_once_make_one_job() {
    let house = house();
    let body = br#"{ "tag": "a" }"#;
    let headers = github("once", body);
    let ids: Vec<Value> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..20)
            .map(|_| scope.spawn(|| hook(&house, "push", &headers, body)))
            .collect();
        let answers = calls.into_iter().map(|call| call.join().unwrap());
        answers
            .map(|answer| answer.json()["job_id"].clone())
            .collect()
    });
    assert!(ids.iter().all(|id| *id == 1), "{ids:?}");
    assert_eq!(jobs(&house), 1);
}

#[test]
fn whoever_does_not_know_the_secret_gets_one_same_answer() {
    let body = br#"{ "tag": "a" }"#;
    let old = standard("msg_1", now_secs() - 400, body);
    let early = standard("msg_1", now_secs() + 400, body);
    let good = standard("msg_1", now_secs(), body);
    let cases = [
        ("push", String::new()),
        ("push", "content-type: application/json\r\n".to_string()),
        ("push", "authorization: Bearer wrong\r\n".to_string()),
        (
            "push",
            "authorization: Bearer a-token-that-is-long-enough\r\n".to_string(),
        ),
        ("push", github("d", b"{ another body }")),
        ("push", standard("msg_1", now_secs(), b"{ another body }")),
        ("push", good.replace("msg_1", "msg_2")),
        ("push", good.replace("v1,", "v2,")),
        ("push", old),
        ("push", early),
        ("push", format!("{good}webhook-id: msg_2\r\n")),
        (
            "push",
            "x-hub-signature-256: sha256=\u{0}\r\n".replace('\u{0}', "%00"),
        ),
        (
            "push",
            format!("webhook-signature: {}\r\n", "v1,AAAA ".repeat(900)),
        ),
        ("strict", bearer("")),
        ("strict", github("d", body)),
        ("nobody", good),
        ("nobody", bearer("")),
        ("%F0%9F%A6%80", String::new()),
    ];
    let mut answers = Vec::new();
    // After ten wrong signatures one address is told to wait, so not all of them go to one server.
    for cases in cases.chunks(9) {
        let house = house();
        for (name, headers) in cases {
            let answer = hook(&house, name, headers, body);
            assert_eq!(answer.refused(401), "unauthorized", "{name}: {headers}");
            answers.push(answer.text());
        }
        assert_eq!(jobs(&house), 0);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(!answers[0].contains("secret of"), "{answers:?}");
}

#[test]
fn wrong_secrets_are_counted_like_wrong_tokens_and_a_right_one_is_never_delayed() {
    let house = house();
    let body = br#"{ "tag": "a" }"#;
    let wrong = "authorization: Bearer a wrong secret\r\n";
    // A request that shows nothing is no guess.
    for _ in 0..20 {
        assert_eq!(hook(&house, "push", "", body).refused(401), "unauthorized");
    }
    for _ in 0..10 {
        assert_eq!(
            hook(&house, "push", wrong, body).refused(401),
            "unauthorized"
        );
    }
    // Names that exist, names that do not and names whose secret is missing are refused alike.
    for name in ["push", "strict", "broken", "nobody"] {
        for headers in [wrong.to_string(), github("d-1", b"{ another body }")] {
            let refused = hook(&house, name, &headers, body);
            assert_eq!(refused.refused(429), "too_many_guesses", "{name}");
            assert!(refused.header("retry-after").is_some());
        }
    }
    let guess = house.ask("GET", "/api/jobs", "authorization: Bearer guess\r\n", b"");
    assert_eq!(guess.refused(429), "too_many_guesses");
    for headers in [
        github("d-2", body),
        standard("msg_1", now_secs(), body),
        bearer(""),
    ] {
        hook(&house, "push", &headers, body).expect(201);
    }
    let events = get(&house, "/api/events?limit=500");
    let events = events["items"].as_array().unwrap().iter();
    let told = events.filter(|event| event["kind"] == "login_refused");
    assert_eq!(told.count(), 1);
}

#[test]
fn a_signed_body_that_is_replayed_under_another_id_makes_no_second_job() {
    let house = house();
    let body = br#"{ "tag": "a" }"#.as_slice();
    let made = hook(&house, "push", &github("d-1", body), body).expect(201);
    assert_eq!(made["job_id"], 1);
    let again = json!({ "job_id": 1, "repeated": true });
    let without_id = github("d-1", body).replace("x-github-delivery: d-1\r\n", "");
    let other_header = format!("{without_id}webhook-id: d-9\r\nidempotency-key: k\r\n");
    for replayed in [github("d-2", body), without_id, other_header] {
        assert_eq!(hook(&house, "push", &replayed, body).expect(200), again);
    }
    // Another webhook and another body are other deliveries.
    let other = br#"{ "tag": "b" }"#;
    let made = hook(&house, "push", &github("d-3", other), other).expect(201);
    assert_eq!(made["job_id"], 2);
    // A blank id names nothing, and what stands in another header is not signed.
    let blank = standard("", now_secs(), body);
    let made = hook(&house, "push", &blank, body).expect(201);
    let blank = format!("{blank}x-github-delivery: d-4\r\n");
    let replayed = hook(&house, "push", &blank, body).expect(200);
    assert_eq!(replayed["job_id"], made["job_id"]);
    // Whoever shows the secret itself can ask for as many jobs as they like.
    hook(&house, "push", &bearer(""), body).expect(201);
    hook(&house, "push", &bearer(""), body).expect(201);
}

#[test]
fn a_webhook_that_makes_too_many_jobs_is_told_to_come_back_and_others_are_not() {
    let house = house_with(|config| {
        config.limits.submissions_per_sec = 1;
        config.limits.submissions_burst = 2;
    });
    let body = br#"{ "tag": "v1" }"#;
    let push = || hook(&house, "push", &bearer("webhook-id: known\r\n"), body);
    push().expect(201);
    let mut refused = None;
    until("the webhook is over its limit", || {
        let answer = hook(&house, "push", &bearer(""), body);
        refused = (answer.status == 429).then_some(answer);
        refused.is_some()
    });
    let refused = refused.unwrap();
    assert_eq!(refused.refused(429), "too_many_submissions");
    assert!(refused.header("retry-after").is_some());
    let message = refused.message();
    assert!(message.contains("this webhook"), "{message}");
    // A delivery that is known makes no job, and another webhook has its own limit.
    assert_eq!(push().expect(200)["repeated"], true);
    let strict = standard("msg_1", now_secs(), body);
    hook(&house, "strict", &strict, body).expect(201);
}

/// A server whose webhook has a short secret. `of_0_1`: version 0.1 had accepted the file.
fn house_with_short_secret(of_0_1: bool) -> ServerHouse {
    ServerHouse::with(Limits::default(), |config| {
        let folder = config.workflows_dir.clone().unwrap();
        let secret = folder.with_file_name("push.secret");
        fs::write(&secret, "15 bytes short.").unwrap();
        config.secrets.allow_files.push(secret.clone());
        let text = format!(
            "tasks:\n  deploy:\n    flow: {{ go: {{ script: echo go }} }}\n    webhooks: {{ push: {{ secret: {{ file: {} }} }} }}\n",
            secret.display()
        );
        let file = folder.join("webhooks.yaml");
        fs::write(&file, &text).unwrap();
        if of_0_1 {
            let all = folder.join("all.yaml");
            let kept = json!({
                "folder": folder,
                "files": { all.display().to_string(): fs::read_to_string(&all).unwrap(), file.display().to_string(): text },
                "scripts": {},
            });
            // Without its database the folder would be refused.
            drop(Store::open(&config.data_dir, StoreOptions::default()).unwrap());
            let memory = config.data_dir.join("workflows.good.json");
            fs::write(memory, kept.to_string()).unwrap();
        }
    })
}

#[test]
fn a_short_secret_is_a_problem_and_refused_unless_0_1_had_accepted_it() {
    let right = "authorization: Bearer 15 bytes short.\r\n";
    for (of_0_1, status, said) in [
        (false, 401, "webhook push refuses all requests"),
        (
            true,
            201,
            "still served because version 0.1 had accepted its file",
        ),
    ] {
        let house = house_with_short_secret(of_0_1);
        let answer = hook(&house, "push", right, b"");
        assert_eq!(answer.status, status, "{}", answer.text());
        let health = house.get("/readyz").expect(200);
        let notice = &health["notices"][0];
        assert_eq!(notice["code"], "short_webhook_secret");
        let message = notice["message"].as_str().unwrap();
        assert!(
            message.contains("its secret has 15 bytes, at least 16 are needed"),
            "{message}"
        );
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn what_is_not_understood_is_refused_after_the_secret() {
    let house = house();
    let form = bearer("").replace("application/json", "application/x-www-form-urlencoded");
    assert_eq!(
        hook(&house, "push", &form, b"tag=a").refused(415),
        "unsupported_media_type"
    );
    assert_eq!(
        hook(&house, "push", &bearer(""), b"{ no").refused(400),
        "invalid_json"
    );
    let deep = "[".repeat(10_000);
    assert_eq!(
        hook(&house, "push", &bearer(""), deep.as_bytes()).refused(400),
        "invalid_json"
    );
    let large = vec![b' '; (1 << 20) + 1];
    assert_eq!(
        hook(&house, "push", &bearer(""), &large).refused(413),
        "too_large"
    );
    let query = hook(&house, "push?secret=x", &bearer(""), b"{}");
    assert_eq!(query.refused(422), "invalid");
    let other = house.ask("GET", "/hooks/push", &bearer(""), b"");
    assert_eq!(other.refused(401), "unauthorized");

    // An empty body is an empty object, which has no tag.
    let missing = hook(&house, "push", &bearer(""), b"");
    assert_eq!(missing.refused(422), "invalid");
    let message = missing.message();
    assert!(message.contains("input tag: "), "{message}");
    assert_eq!(jobs(&house), 0);
}

#[test]
fn an_input_that_breaks_the_tasks_rules_is_refused_in_its_words() {
    let house = house();
    let body = br#"{ "tag": "a", "count": "many" }"#;
    let answer = hook(&house, "push", &bearer(""), body);
    answer.refused(422);
    assert!(answer.text().contains("count"), "{}", answer.text());
    assert_eq!(jobs(&house), 0);
}

#[test]
fn a_secret_that_cannot_be_had_is_told_to_the_owner_and_to_nobody_else() {
    let house = house();
    let wrong = hook(&house, "nobody", &bearer(""), b"{}");
    let guessed = "authorization: Bearer no such webhook\r\n".to_string();
    for headers in [bearer(""), github("d", b"{}"), String::new(), guessed] {
        let answer = hook(&house, "broken", &headers, b"{}");
        assert_eq!(answer.refused(401), "unauthorized");
        assert_eq!(answer.text(), wrong.text());
    }
    assert_eq!(jobs(&house), 0);
    let events = get(&house, "/api/events?limit=500");
    let events = events["items"].as_array().unwrap().iter();
    let told: Vec<&Value> = events
        .filter(|event| event["kind"] == "hook_failed")
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    let text = told[0].to_string();
    assert!(text.contains("webhook broken cannot be checked"), "{text}");
    assert!(text.contains("STEPWARD_SECRET_NEVER_SET"), "{text}");
}

#[test]
fn no_key_of_the_api_takes_the_place_of_a_delivery() {
    let house = house();
    let body = br#"{ "tag": "a" }"#;
    for key in ["webhook:push:pre", "webhook push pre", "webhook\tpush\tpre"] {
        let headers = format!(
            "authorization: Bearer a-token-that-is-long-enough\r\n\
             content-type: application/json\r\nidempotency-key: {key}\r\n"
        );
        let submitted = br#"{ "input": { "tag": "b" } }"#;
        house
            .ask("POST", "/api/tasks/deploy/jobs", &headers, submitted)
            .expect(201);
    }
    let made = hook(&house, "push", &github("pre", body), body).expect(201);
    assert_eq!(made, json!({ "job_id": 4, "repeated": false }));
}

#[test]
fn headers_become_text_and_nothing_else() {
    let house = house();
    let body = br#"{ "tag": "{{ secret.x }} $(reboot)" }"#;
    let hostile = bearer("x-github-event: {{ body.tag }}'; drop\r\n");
    let made = hook(&house, "push", &hostile, body).expect(201);
    let job = get(&house, &format!("/api/jobs/{}", made["job_id"]));
    assert_eq!(job["input"]["tag"], "{{ secret.x }} $(reboot)");
    assert_eq!(job["input"]["event"], "{{ body.tag }}'; drop");
}
