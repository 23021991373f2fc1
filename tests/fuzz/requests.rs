//! Every address of a real server, asked for with paths, queries, headers and bodies that nobody would write: it always has an
//! answer, never one that says that it met a bug, and nobody who does not know a secret calls a webhook.

use std::sync::OnceLock;

use super::dice::Dice;
use super::line::Line;
use super::mutate;
use super::site::Site;
use super::watch::Tried;

/// (method, path), as `routes.rs` lists them.
fn routes() -> &'static [(String, String)] {
    static ROUTES: OnceLock<Vec<(String, String)>> = OnceLock::new();
    ROUTES.get_or_init(|| {
        let source = include_str!("../../src/server/routes.rs");
        let lines = source
            .lines()
            .filter_map(|line| line.trim().strip_prefix("route("));
        let routes = lines.filter_map(|line| {
            let (method, rest) = line.split_once(',')?;
            let path = rest.split('"').nth(1)?;
            Some((method.trim().to_uppercase(), path.to_string()))
        });
        let routes: Vec<_> = routes.collect();
        assert!(routes.len() > 80, "the table of routes is read");
        routes
    })
}

#[rustfmt::skip]
const KEYS: &[&str] = &[
    "q", "status", "task", "limit", "before", "after", "tail", "from", "n", "grep", "attempt", "step", "stream",
    "follow", "since", "cursor", "format", "phase", "open", "all", "line", "token", "next", "ids", "scope", "verb",
    "wait", "seed", "streams", "every", "needle", "left_out", "ignore_case", "download", "kind", "worker", "state",
    "tag", "order",
];

#[rustfmt::skip]
const VALUES: &[&str] = &[
    "", "1", "0", "-1", "99999999999999999999", "true", "failed", "hello", "pair@latest", "latest", "status:failed",
    "status:", "task:hello -tag:x", "is:running since:1h", "\"open", "since:9999999999w", "before:2026-13-45", "1..2",
    "1-", "1,2,,3", "_server", "../../etc/passwd", "stdout", "2026-11-17T00:00:00Z", "1h", "*", "greet[3]", "NaN",
    "1e9",
];

#[rustfmt::skip]
const HEADERS: &[&str] = &[
    "accept: text/html", "accept: application/json", "accept-encoding: gzip", "content-type: application/json",
    "content-type: application/x-www-form-urlencoded", "idempotency-key: a", "last-event-id: 9999999999999999999",
    "range: bytes=0-", "authorization: Bearer x", "authorization: Bearer", "authorization: Basic eDp5",
    "cookie: session=x; session=y", "webhook-id: m", "webhook-timestamp: 1763312345",
    "webhook-timestamp: 99999999999999999999", "webhook-signature: v1,AAAA v1, v2,x",
    "x-hub-signature-256: sha256=zz", "x-hub-signature-256: sha256=", "origin: null", "sec-fetch-site: same-origin",
    "if-none-match: \"x\"", "x-requested-with: fetch", "content-type: text/plain",
];

/// With a job of each kind.
fn busy_site() -> Site {
    let site = Site::new();
    let mut line = Line::open(site.server.address());
    for task in ["hello", "pair", "wide", "ask", "outer"] {
        line.ask("POST", &format!("/api/tasks/{task}/jobs"), "", b"");
        assert_eq!(line.answer().status, 201, "{task}");
    }
    site
}

pub fn play(dice: &mut Dice, tried: &Tried) {
    let site = busy_site();
    let mut line = Line::open(site.server.address());
    for _ in 0..100 {
        let (method, pattern) = dice.pick(routes()).expect("there are some");
        // What is listened to for ever has tests of its own, as have those who wait.
        if pattern == "/api/worker/poll" {
            continue;
        }
        let method = match dice.chance(5) {
            true => ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"][dice.roll(6) as usize],
            false => method,
        };
        let path = address(dice, pattern);
        let headers = headers(dice);
        let body = body(dice, method);
        tried.also(&format!(
            "{method} {path} {headers:?} {}",
            body.escape_ascii()
        ));
        line.ask(method, &path, &headers, &body);
        let answer = match method {
            "HEAD" => line.bare_head(),
            _ => line.try_answer().expect("an answer"),
        };
        let said = String::from_utf8_lossy(&answer.body);
        assert!(answer.status < 500, "{} {said}", answer.status);
        let is_called = pattern.starts_with("/hooks") && method == "POST";
        assert!(
            !is_called || answer.status >= 400,
            "nobody knows the secret: {said}"
        );
        if answer.status == 400 || answer.header("connection") == Some("close") {
            line = Line::open(site.server.address());
        }
    }
    let breaches = site.breaches();
    assert!(breaches.is_empty(), "{breaches:?}");
}

fn address(dice: &mut Dice, pattern: &str) -> String {
    let mut path = String::new();
    for segment in pattern.split('/').filter(|segment| !segment.is_empty()) {
        path.push('/');
        match segment.strip_prefix('{') {
            Some(name) => path += &param(dice, name.trim_end_matches('}')),
            None => path += segment,
        }
    }
    if path.is_empty() {
        path.push('/');
    }
    for n in 0..dice.roll(4) {
        path.push(if n == 0 { '?' } else { '&' });
        path += dice.pick(KEYS).expect("there are some");
        if dice.chance(95) {
            path.push('=');
            let value = match dice.chance(70) {
                true => dice.pick(VALUES).expect("there are some").to_string(),
                false => mutate::noise(dice, 12),
            };
            path += &encoded(dice, &value);
        }
    }
    path
}

/// What is there, more often than not.
fn param(dice: &mut Dice, name: &str) -> String {
    if dice.chance(15) {
        let noise = mutate::noise(dice, 8);
        return encoded(dice, &noise);
    }
    let known: &[&str] = match name {
        "task" => &["hello", "ask", "nothing"],
        "job" => &[
            "1",
            "2",
            "3",
            "4",
            "latest",
            "pair@latest",
            "hello@failed",
            "0",
            "-1",
            "9223372036854775807",
        ],
        "step" => &[
            "greet", "build", "each[1]", "each", "sure", "call", "_server", "1",
        ],
        "worker" => &["1", "ann", "0"],
        "schedule" => &["outer.nightly", "outer%2Fnightly", "nightly", "1"],
        "verb" => &["pause", "resume", "drain", "delete", "fire", "nothing"],
        "name" => &["called.push", "push", "called", "called%2Fpush"],
        "attempt" => &["1", "0", "4294967296"],
        "file" => &["app.css", "app.js", "../routes.rs", "%2e%2e"],
        _ => &["1", "x"],
    };
    dice.pick(known).expect("there are some").to_string()
}

/// As it goes over the wire. Now and then wrongly.
fn encoded(dice: &mut Dice, text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~:@,*!".contains(&byte);
    let wrongly = dice.chance(5);
    let byte = |byte: u8| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false if wrongly => "%".to_string(),
        false => format!("%{byte:02x}"),
    };
    text.bytes().map(byte).collect()
}

fn headers(dice: &mut Dice) -> String {
    let mut headers = String::new();
    for _ in 0..dice.roll(5) {
        let header = dice.pick(HEADERS).expect("there are some");
        headers += header;
        if dice.chance(10) {
            headers += &mutate::noise(dice, 8).replace(|c: char| c.is_control(), "");
        }
        headers += "\r\n";
    }
    headers
}

fn body(dice: &mut Dice, method: &str) -> Vec<u8> {
    if method == "GET" || method == "HEAD" {
        return Vec::new();
    }
    match dice.roll(6) {
        0 => Vec::new(),
        1 => mutate::bytes(dice, 100),
        2 => {
            let value = mutate::value(dice, 4);
            mutate::written(dice, &value)
        }
        3 => {
            let mut value = serde_json::json!({ "input": { "name": "x", "n": 1 }, "reason": "x", "steps": ["build"], "priority": 1 });
            mutate::json(dice, &mut value);
            mutate::written(dice, &value)
        }
        _ => {
            let pairs = (0..dice.roll(6)).map(|_| {
                let key = dice.pick(KEYS).expect("there are some");
                let noise = mutate::noise(dice, 10);
                format!("{key}={}", encoded(dice, &noise))
            });
            pairs.collect::<Vec<_>>().join("&").into_bytes()
        }
    }
}
