//! The real worker program against servers of other versions, which are scripted here: of 0.1 as it was recorded, of this version, one
//! that the worker is too old for, and one of another installation.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::PATIENCE;

const RECORDED: &str = include_str!("../../fixtures/v0.1/exchange-worker.jsonl");
const ANNOUNCED: &str = "2; features=log_checksum,start_details";

/// A request that the worker made.
#[derive(Debug, Clone)]
struct Request {
    /// Method and path, without the query.
    route: String,
    query: String,
    announced: Option<String>,
    body: Vec<u8>,
}

impl Request {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The answer to a piece of a log: it is there.
    fn taken(&self) -> Value {
        let offset = self.query.split("offset=").nth(1).unwrap_or("0");
        let length = offset.parse::<usize>().unwrap() + self.body.len();
        json!({ "length": length, "abort": false, "full": false })
    }
}

/// What the scripted server says: a status and a body.
type Script = dyn FnMut(&Request) -> (u16, Value) + Send;

struct ScriptedServer {
    url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl ScriptedServer {
    /// `announced`: what it says of itself with every answer.
    fn start(announced: Option<&'static str>, script: Box<Script>) -> ScriptedServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let script = Arc::new(Mutex::new(script));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, script) = (seen.clone(), script.clone());
                std::thread::spawn(move || answer(stream, announced, &seen, &script));
            }
        });
        ScriptedServer { url, requests }
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Every item of every report.
    fn reported(&self) -> Vec<Value> {
        let reports = self.requests().into_iter();
        let reports = reports.filter(|request| request.route.ends_with("/reports"));
        let items = reports.flat_map(|request| {
            let items = request.json()["items"].as_array().cloned();
            items.unwrap_or_default()
        });
        items.collect()
    }
}

/// One request and its answer; the next one comes on a new connection.
fn answer(
    mut stream: TcpStream,
    announced: Option<&str>,
    seen: &Mutex<Vec<Request>>,
    script: &Mutex<Box<Script>>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let mut words = line.split_whitespace().map(str::to_string);
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_string());
    }
    let length = headers.get("content-length").map_or("0", String::as_str);
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let request = Request {
        route: format!("{method} {path}"),
        query: query.to_string(),
        announced: headers.remove("stepward-protocol"),
        body,
    };
    seen.lock().unwrap().push(request.clone());
    let (status, body) = (script.lock().unwrap())(&request);
    let body = body.to_string();
    let announced = announced.map_or(String::new(), |text| {
        format!("stepward-protocol: {text}\r\n")
    });
    let answer = format!(
        "HTTP/1.1 {status} As it is\r\ncontent-type: application/json\r\n{announced}content-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    // The worker may have ended meanwhile.
    let _ = stream.write_all(answer.as_bytes());
}

/// Runs the worker until it ends by itself.
fn run_worker(url: &str, folder: &Path) -> Output {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .args(["worker", "--server", url, "--name", "ann", "--slots", "1"])
        .args(["--tags", "script", "--data-dir"])
        .arg(folder)
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while worker.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            worker.kill().unwrap();
            panic!("the worker never ended: {:?}", worker.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    worker.wait_with_output().unwrap()
}

fn refusal(code: &str, message: &str) -> Value {
    json!({ "error": { "code": code, "message": message, "details": [] } })
}

fn recorded() -> Vec<Value> {
    let lines = RECORDED.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The answer of 0.1 to the first recorded request that is so.
fn answered(path: &str, is_it: impl Fn(&Value, &Value) -> bool) -> Value {
    let found = recorded().into_iter().find(|exchange| {
        let is_there = exchange["path"].as_str().unwrap().starts_with(path);
        is_there && exchange["status"] == 200 && is_it(&exchange["request"], &exchange["response"])
    });
    found.expect("it was recorded")["response"].clone()
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

#[test]
fn a_new_worker_works_with_a_server_of_version_0_1_and_sends_it_nothing_new() {
    let opened = answered("/api/worker/sessions", |_, _| true);
    let beaten = answered("/api/worker/heartbeat", |_, answer| {
        answer["draining"] == false && answer["abort"] == json!([])
    });
    let drains = answered("/api/worker/heartbeat", |_, answer| {
        answer["draining"] == true
    });
    let given = answered("/api/worker/poll", |_, answer| {
        answer["assignments"][0]["step"] == "hello"
    });
    let none = json!({ "assignments": [], "abort": [], "draining": false });
    let reported = |items: usize| {
        answered("/api/worker/reports", |request, answer| {
            let results = answer["results"].as_array().unwrap();
            request["items"].as_array().unwrap().len() == items
                && results.iter().all(|result| result["result"] == "accepted")
                && answer["poll"]["assignments"] == json!([])
                && answer["poll"]["abort"] == json!([])
        })
    };
    let (one, nothing) = (reported(1), reported(0));
    let (mut is_given, mut is_over) = (false, false);
    let script = move |request: &Request| match request.route.as_str() {
        "GET /api/worker/server" => {
            let message = "there is nothing at this address";
            (404, refusal("no_route", message))
        }
        "POST /api/worker/sessions" => (200, opened.clone()),
        "POST /api/worker/heartbeat" if is_over => (200, drains.clone()),
        "POST /api/worker/heartbeat" => (200, beaten.clone()),
        "POST /api/worker/poll" if !std::mem::replace(&mut is_given, true) => (200, given.clone()),
        "POST /api/worker/poll" => (200, none.clone()),
        "POST /api/worker/reports" => {
            let items = request.json()["items"].clone();
            is_over |= items[0]["news"] == "finished";
            match items.as_array().unwrap().len() {
                0 => (200, nothing.clone()),
                _ => (200, one.clone()),
            }
        }
        "POST /api/worker/drain" => (200, json!({})),
        _ => (200, request.taken()),
    };
    let server = ScriptedServer::start(None, Box::new(script));
    let folder = tempfile::tempdir().unwrap();
    let ended = run_worker(&server.url, folder.path());
    assert!(ended.status.success(), "{ended:?}");
    let finished = server.reported().into_iter();
    let finished: Vec<Value> = finished
        .filter(|item| item["news"] == "finished")
        .map(|item| item["finished"].clone())
        .collect();
    assert_eq!(
        finished[0],
        json!({ "outcome": "completed", "exit_code": 0, "output": { "greeted": "world" } })
    );

    let mut known = BTreeSet::new();
    for exchange in recorded() {
        let path = exchange["path"].as_str().unwrap();
        fields(&exchange["request"], path, &mut known);
    }
    for request in server.requests() {
        assert!(request.announced.unwrap().starts_with("2; features="));
        let Some(path) = request.route.strip_prefix("POST ") else {
            continue;
        };
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let mut sent = BTreeSet::new();
        fields(&body, path, &mut sent);
        let new: Vec<&String> = sent.difference(&known).collect();
        assert!(new.is_empty(), "version 0.1 does not know {new:?}");
    }
}

#[test]
fn a_worker_that_is_too_old_says_what_to_install_and_ends() {
    let message = "this worker is too old for the server: it speaks protocol 2, the oldest that the server understands is 7; \
                   install version 9.1.0 on the worker";
    let script = move |_: &Request| (426, refusal("worker_too_old", message));
    let server = ScriptedServer::start(Some("7; features=wings"), Box::new(script));
    let folder = tempfile::tempdir().unwrap();
    let ended = run_worker(&server.url, folder.path());
    assert_eq!(ended.status.code(), Some(8), "{ended:?}");
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains(message), "{said}");
    assert_eq!(server.requests().len(), 1, "it does not ask again");
}

/// A server of installation `two` that may only be asked which one it is, and the folder of a worker of installation `one`.
fn server_of_another_installation() -> (ScriptedServer, tempfile::TempDir) {
    let script = |request: &Request| match request.route.as_str() {
        "GET /api/worker/server" => (200, json!({ "installation": "two", "version": "9.9.9" })),
        route => panic!("{route} must not be called"),
    };
    let server = ScriptedServer::start(Some(ANNOUNCED), Box::new(script));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("installation"), "one").unwrap();
    (server, folder)
}

#[test]
fn a_server_of_another_installation_never_sees_a_session_of_this_worker() {
    let (server, folder) = server_of_another_installation();
    let ended = run_worker(&server.url, folder.path());
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("belongs to another installation"), "{said}");
    assert_eq!(server.requests().len(), 1);
    let known = std::fs::read_to_string(folder.path().join("installation")).unwrap();
    assert_eq!(known, "one");
}

/// The log of a step of one installation must not be read, or thrown away, by the server of another.
#[test]
fn a_server_of_another_installation_never_sees_a_log_of_this_worker() {
    let (server, folder) = server_of_another_installation();
    let attempt = folder.path().join("attempts/7.1");
    std::fs::create_dir_all(&attempt).unwrap();
    std::fs::write(attempt.join("session"), "life").unwrap();
    std::fs::write(attempt.join("log"), "1 o one\n").unwrap();
    let ended = run_worker(&server.url, folder.path());
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert_eq!(server.requests().len(), 1);
    let log = std::fs::read_to_string(attempt.join("log")).unwrap();
    assert_eq!(log, "1 o one\n", "its own installation still gets it");
}

/// The worker serves a running step when the server is upgraded to a version that does not understand it any more.
#[test]
fn a_worker_that_became_too_old_lets_its_step_end_and_keeps_the_result() {
    let opened = answered("/api/worker/sessions", |_, _| true);
    let mut given = answered("/api/worker/poll", |_, answer| {
        answer["assignments"][0]["step"] == "hello"
    });
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    given["assignments"][0]["action"]["script"] =
        format!("touch {}; sleep 1; echo done", started.display()).into();
    let message = "install version 9.1.0 on the worker";
    let mut is_given = false;
    let script = move |request: &Request| {
        // Not before the step runs: a worker that is refused while it waits for the answer to its start does not run the step.
        if started.exists() {
            return (426, refusal("worker_too_old", message));
        }
        match request.route.as_str() {
            "GET /api/worker/server" => (
                200,
                json!({ "installation": opened["installation"], "version": "0.2.0" }),
            ),
            "POST /api/worker/sessions" => (200, opened.clone()),
            "POST /api/worker/heartbeat" => (200, json!({ "abort": [], "draining": false })),
            "POST /api/worker/poll" if !std::mem::replace(&mut is_given, true) => {
                (200, given.clone())
            }
            "POST /api/worker/reports" => (
                200,
                json!({ "results": [{ "result": "accepted" }], "poll": null }),
            ),
            _ => (
                200,
                json!({ "assignments": [], "abort": [], "draining": false }),
            ),
        }
    };
    let server = ScriptedServer::start(Some(ANNOUNCED), Box::new(script));
    let ended = run_worker(&server.url, folder.path());
    assert_eq!(ended.status.code(), Some(8), "{ended:?}");
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains(message), "{said}");
    let spool = std::fs::read_dir(folder.path().join("spool")).unwrap();
    let results: Vec<String> = spool
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    assert_eq!(results.len(), 1, "{said}");
    assert!(results[0].contains("\"completed\""), "{results:?}");
}

#[test]
fn a_refusal_that_is_not_of_the_server_loses_no_log() {
    let opened = answered("/api/worker/sessions", |_, _| true);
    let (mut refused, mut pieces) = (false, 0);
    let script = move |request: &Request| match request.route.as_str() {
        "GET /api/worker/server" => (
            200,
            json!({ "installation": opened["installation"], "version": "0.2.0" }),
        ),
        "POST /api/worker/sessions" => (200, opened.clone()),
        "POST /api/worker/heartbeat" => (200, json!({ "abort": [], "draining": pieces > 1 })),
        "POST /api/worker/poll" => (
            200,
            json!({ "assignments": [], "abort": [], "draining": false }),
        ),
        "POST /api/worker/reports" => (200, json!({ "results": [], "poll": null })),
        "POST /api/worker/drain" => (200, json!({})),
        // A proxy that has just been restarted knows no route yet.
        _ if request.route.contains("/steps/7/") && !std::mem::replace(&mut refused, true) => {
            (404, json!("<h1>Not Found</h1>"))
        }
        _ => {
            pieces += 1;
            (200, request.taken())
        }
    };
    let server = ScriptedServer::start(Some(ANNOUNCED), Box::new(script));
    let folder = tempfile::tempdir().unwrap();
    for (attempt, text) in [("7.1", "1 o one\n"), ("8.1", "1 o two\n")] {
        let attempt = folder.path().join("attempts").join(attempt);
        std::fs::create_dir_all(&attempt).unwrap();
        std::fs::write(attempt.join("session"), "life").unwrap();
        std::fs::write(attempt.join("log"), text).unwrap();
    }
    let ended = run_worker(&server.url, folder.path());
    assert!(ended.status.success(), "{ended:?}");
    let pieces = server.requests().into_iter();
    let pieces = pieces.filter(|request| request.route.ends_with("/log"));
    let bodies: Vec<Vec<u8>> = pieces.map(|request| request.body).collect();
    // The second log does not wait until the first one is taken.
    let (one, two) = (b"1 o one\n".to_vec(), b"1 o two\n".to_vec());
    assert_eq!(bodies, [one.clone(), two, one]);
}

#[test]
fn a_step_sees_what_the_answer_to_its_start_adds_and_missing_bytes_of_its_log_are_sent_again() {
    const STARTED_AT: &str = "2026-11-18T01:02:03.456Z";
    let mut opened = answered("/api/worker/sessions", |_, _| true);
    opened["from_a_newer_server"] = json!({ "ignored": true });
    let mut given = answered("/api/worker/poll", |_, answer| {
        answer["assignments"][0]["step"] == "hello"
    });
    given["assignments"][0]["action"]["script"] =
        "echo at=$STEPWARD_STARTED_AT >> \"$STEPWARD_OUTPUT\"; echo some text".into();
    // What this version does not know is declined, and what came with it is not lost.
    let mut unknown = given["assignments"][0].clone();
    unknown["step_id"] = json!(77);
    unknown["action"] = json!({ "type": "hologram", "beam": 3 });
    let assignments = given["assignments"].as_array_mut().unwrap();
    assignments.insert(0, unknown);
    let none = json!({ "assignments": [], "abort": [], "draining": false });
    let (mut is_given, mut is_asked, mut is_over) = (false, false, false);
    let script = move |request: &Request| match request.route.as_str() {
        "GET /api/worker/server" => (200, json!({ "installation": "one", "version": "0.2.0" })),
        "POST /api/worker/sessions" => {
            opened["installation"] = "one".into();
            (200, opened.clone())
        }
        "POST /api/worker/heartbeat" => (200, json!({ "abort": [], "draining": is_over })),
        "POST /api/worker/poll" if !std::mem::replace(&mut is_given, true) => (200, given.clone()),
        "POST /api/worker/poll" => (200, none.clone()),
        "POST /api/worker/reports" => {
            let items = request.json()["items"].as_array().unwrap().clone();
            let results = items.iter().map(|item| match item["news"].as_str() {
                Some("started") => {
                    let env = json!({ "STEPWARD_STARTED_AT": STARTED_AT });
                    let start =
                        json!({ "started_at": STARTED_AT, "timeout_ms": 60_000, "env": env });
                    json!({ "result": "accepted", "start": start })
                }
                Some("finished") => {
                    is_asked = true;
                    json!({ "result": "accepted", "log_from": 5 })
                }
                _ => json!({ "result": "accepted" }),
            });
            let results: Vec<Value> = results.collect();
            (200, json!({ "results": results, "poll": none }))
        }
        "POST /api/worker/drain" => (200, json!({})),
        _ => {
            is_over |= is_asked && request.query.ends_with("offset=5");
            (200, request.taken())
        }
    };
    let server = ScriptedServer::start(Some(ANNOUNCED), Box::new(script));
    let folder = tempfile::tempdir().unwrap();
    let ended = run_worker(&server.url, folder.path());
    assert!(ended.status.success(), "{ended:?}");
    let items = server.reported();
    let of = |news: &str| items.iter().find(|item| item["news"] == news).unwrap();
    assert_eq!(of("declined")["step_id"], 77);
    let why = of("declined")["why"].as_str().unwrap();
    assert!(why.contains("does not know the action"), "{why}");
    let finished = of("finished");
    assert_eq!(finished["finished"]["output"]["at"], STARTED_AT);

    let is_log = |request: &Request| request.route.ends_with("/attempts/1/log");
    let pieces: Vec<Request> = server.requests().into_iter().filter(is_log).collect();
    let mut whole = Vec::new();
    for piece in &pieces {
        let offset = piece.query.split("offset=").nth(1).unwrap();
        whole.truncate(offset.parse().unwrap());
        whole.extend_from_slice(&piece.body);
    }
    let mut crc = flate2::Crc::new();
    crc.update(&whole);
    assert_eq!(
        finished["log"],
        json!({ "length": whole.len(), "crc32": crc.sum() })
    );
    let again = pieces.last().unwrap();
    assert!(again.query.ends_with("offset=5"), "{}", again.query);
    assert_eq!(again.body, whole[5..]);
}

/// Runs a worker whose former life left a result, its log, and the checksum of its log. Returns what it sent.
fn come_back_with_a_result(announced: Option<&'static str>, verdict: Value) -> ScriptedServer {
    let mut opened = answered("/api/worker/sessions", |_, _| true);
    opened["spooled"] = json!([verdict]);
    let (mut openings, mut pieces) = (0, 0);
    let pieces_wanted = 1 + usize::from(verdict.get("log_from").is_some());
    let script = move |request: &Request| match request.route.as_str() {
        "GET /api/worker/server" if announced.is_none() => {
            (404, refusal("no_route", "there is nothing at this address"))
        }
        "GET /api/worker/server" => (
            200,
            json!({ "installation": opened["installation"], "version": "0.2.0" }),
        ),
        "POST /api/worker/sessions" => {
            openings += 1;
            match openings {
                1 => (503, refusal("busy", "later")),
                _ => (200, opened.clone()),
            }
        }
        "POST /api/worker/heartbeat" => {
            let is_over = pieces >= pieces_wanted;
            (200, json!({ "abort": [], "draining": is_over }))
        }
        "POST /api/worker/poll" => (
            200,
            json!({ "assignments": [], "abort": [], "draining": false }),
        ),
        "POST /api/worker/reports" => (200, json!({ "results": [], "poll": null })),
        "POST /api/worker/drain" => (200, json!({})),
        _ => {
            pieces += 1;
            (200, request.taken())
        }
    };
    let server = ScriptedServer::start(announced, Box::new(script));
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let attempt = folder.path().join("attempts/7.1");
    std::fs::create_dir_all(&spool).unwrap();
    std::fs::create_dir_all(&attempt).unwrap();
    let result = json!({
        "step_id": 7, "attempt": 1, "session": "life",
        "finished": { "outcome": "completed", "exit_code": 0 },
    });
    std::fs::write(spool.join("7.1.json"), result.to_string()).unwrap();
    std::fs::write(spool.join("7.1.log"), r#"{"length":8,"crc32":5}"#).unwrap();
    std::fs::write(attempt.join("session"), "life").unwrap();
    std::fs::write(attempt.join("log"), "1 o one\n").unwrap();
    let ended = run_worker(&server.url, folder.path());
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(std::fs::read_dir(&spool).unwrap().count(), 0);
    server
}

fn sessions(server: &ScriptedServer) -> Vec<Value> {
    let requests = server.requests().into_iter();
    let opening = requests.filter(|request| request.route == "POST /api/worker/sessions");
    opening.map(|request| request.json()).collect()
}

#[test]
fn a_result_of_a_former_life_says_what_was_written_of_its_log_to_a_server_that_compares_it() {
    let verdict = json!({ "result": "accepted", "log_from": 2 });
    let server = come_back_with_a_result(Some(ANNOUNCED), verdict);
    let log = json!({ "length": 8, "crc32": 5 });
    for request in sessions(&server) {
        assert_eq!(request["spooled"][0]["log"], log);
    }
    let requests = server.requests().into_iter();
    let pieces = requests.filter(|request| request.route.ends_with("/log"));
    let pieces: Vec<(String, Vec<u8>)> = pieces
        .map(|request| (request.query, request.body))
        .collect();
    assert_eq!(
        pieces,
        [
            ("session=life&offset=0".to_string(), b"1 o one\n".to_vec()),
            ("session=life&offset=2".to_string(), b"o one\n".to_vec()),
        ]
    );
    let requests = server.requests();
    let first = |end: &str| {
        let found = requests
            .iter()
            .position(|request| request.route.ends_with(end));
        found.unwrap()
    };
    assert!(
        first("/worker/server") < first("/log") && first("/log") < first("/sessions"),
        "the log follows the check of the installation, and the session the log"
    );

    let server = come_back_with_a_result(None, json!({ "result": "accepted" }));
    for request in sessions(&server) {
        assert_eq!(request["spooled"][0].get("log"), None);
    }
}
