//! The real server on a port of its own, with a database and workflows in a temporary folder, spoken to over real connections.

mod addresses;
mod ansi;
mod audit;
mod crowds;
mod deliveries;
mod gate;
mod health;
mod hooks;
mod hostile;
mod hostile_inputs;
mod leaks;
mod line;
mod lists;
mod logs;
mod metrics;
mod names;
mod openapi;
mod polls;
mod protocol;
mod race;
mod refused_starts;
mod rollback;
mod schedules;
mod sealed;
mod secret_places;
mod selectors;
mod shapes;
mod shares;
mod stop;
mod streams;
mod submit;
mod tls;
mod tokens;
mod validate;
mod worker_calls;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepward::client::Client;
use stepward::config::ServerConfig;
use stepward::server::{Limits, Server};
use tempfile::TempDir;

use line::{Answer, Line, PATIENCE};

/// What can be submitted.
const WORKFLOWS: &str = "
tasks:
  hello:
    input: { name: { type: json }, deep: { type: json }, n: { type: json }, a: { type: json }, to: { type: json } }
    flow:
      greet: { script: echo hello }
  gpu:
    flow:
      train: { script: train, tags: [gpu] }
  pair:
    flow:
      build: { script: make }
      test: { script: make test, depends_on: build }
  ask:
    flow:
      sure: { type: approval, message: Really? }
  outer:
    flow:
      call: { type: task, task: hello }
  wide:
    flow:
      each: { script: echo, for_each: [1, 2, 3, 4, 5, 6, 7, 8] }
";

pub struct ServerHouse {
    server: Server,
    config: ServerConfig,
    limits: Limits,
    folder: TempDir,
}

impl ServerHouse {
    fn new() -> ServerHouse {
        ServerHouse::with(Limits::default(), |_| ())
    }

    fn with(limits: Limits, set: impl FnOnce(&mut ServerConfig)) -> ServerHouse {
        let folder = fast_folder();
        let workflows = folder.path().join("workflows");
        std::fs::create_dir(&workflows).unwrap();
        std::fs::write(workflows.join("all.yaml"), WORKFLOWS).unwrap();
        let mut config = ServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: folder.path().join("data"),
            workflows_dir: Some(workflows),
            ..ServerConfig::default()
        };
        set(&mut config);
        ServerHouse {
            server: Server::start_with(&config, limits).unwrap(),
            config,
            limits,
            folder,
        }
    }

    /// The next life of the server, on the same folder.
    fn restart(&mut self) {
        self.server.stop();
        self.server = Server::start_with(&self.config, self.limits).unwrap();
    }

    fn database(&self) -> std::path::PathBuf {
        self.config.data_dir.join("stepward.db")
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.server.address()), None)
    }

    fn line(&self) -> Line {
        Line::open(self.server.address())
    }

    /// On a connection of its own.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut line = self.line();
        line.ask(method, path, headers, body);
        line.answer()
    }

    /// A backup, once the one before it is no longer on its way.
    fn take_backup(&self, method: &str, headers: &str, body: &[u8]) -> Answer {
        let mut answer = self.ask(method, "/api/backup", headers, body);
        until("no other backup is handed out", || {
            if answer.status == 503 {
                answer = self.ask(method, "/api/backup", headers, body);
            }
            answer.status != 503
        });
        answer
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", b"")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_as("", path, body)
    }

    /// With these headers besides the usual ones.
    fn post_as(&self, headers: &str, path: &str, body: &Value) -> Answer {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let headers = format!("content-type: application/json\r\n{headers}");
        self.ask("POST", path, &headers, body.as_bytes())
    }

    fn submit(&self, task: &str) -> i64 {
        let job = self.post(&format!("/api/tasks/{task}/jobs"), &Value::Null);
        job.expect(201)["id"].as_i64().unwrap()
    }

    fn job(&self, job_id: i64) -> Value {
        self.get(&format!("/api/jobs/{job_id}")).expect(200)
    }

    fn status(&self, job_id: i64) -> String {
        word(&self.job(job_id)["status"])
    }

    fn jobs(&self) -> usize {
        let list = self.get("/api/jobs?limit=500").expect(200);
        list["items"].as_array().unwrap().len()
    }

    fn worker(&self, name: &str, tags: &[&str], slots: u32) -> HttpWorker<'_> {
        self.life(name, 1, tags, slots)
    }

    /// The worker of this name in its n-th life.
    fn life(&self, name: &str, life: u32, tags: &[&str], slots: u32) -> HttpWorker<'_> {
        let session = format!("{name} {life}");
        let request = session_request(name, &session, tags, slots);
        let opened = self.post("/api/worker/sessions", &request).expect(200);
        HttpWorker {
            house: self,
            worker_id: opened["worker_id"].as_i64().unwrap(),
            session,
        }
    }

    fn await_polls(&self, count: usize) {
        until("the polls wait", || self.server.long_polls() == count);
    }

    /// The stream of everything, after its first word.
    fn stream(&self, query: &str, headers: &str) -> Listener {
        let mut line = self.line();
        let headers = format!("accept: text/event-stream\r\n{headers}");
        line.ask("GET", &format!("/api/events{query}"), &headers, b"");
        assert_eq!(line.head(), 200);
        let mut listener = Listener {
            line,
            ahead: String::new(),
        };
        assert_eq!(listener.frame().unwrap(), ": here we go");
        listener
    }
}

/// These stories are about threads and bytes on the wire: a disk that is slow to sync would only make their races rare.
fn fast_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

fn session_request(name: &str, session: &str, tags: &[&str], slots: u32) -> Value {
    let tags: Vec<&str> = tags.iter().copied().chain(["script"]).collect();
    json!({
        "name": name, "instance": format!("instance of {name}"), "session": session, "tags": tags,
        "slots": slots, "version": "0.1.0", "platform": "linux", "spooled": [],
    })
}

/// A worker that says what it is told to, in JSON.
struct HttpWorker<'a> {
    house: &'a ServerHouse,
    worker_id: i64,
    session: String,
}

impl HttpWorker<'_> {
    fn poll_request(&self, free_slots: u32, held: &[Value], wait: Duration) -> Value {
        let wait_ms = wait.as_millis() as u64;
        json!({ "session": self.session, "free_slots": free_slots, "held": held, "wait_ms": wait_ms })
    }

    fn poll(&self, free_slots: u32, held: &[Value]) -> Answer {
        let request = self.poll_request(free_slots, held, Duration::ZERO);
        self.house.post("/api/worker/poll", &request)
    }

    /// A poll that waits. Its answer comes over the line.
    fn begin_poll(&self, free_slots: u32, held: &[Value], wait: Duration) -> Line {
        let mut line = self.house.line();
        let request = self.poll_request(free_slots, held, wait).to_string();
        line.ask("POST", "/api/worker/poll", "", request.as_bytes());
        line
    }

    /// A poll that nothing but its purpose ends within this test.
    fn wait(&self, free_slots: u32, held: &[Value]) -> Line {
        let others = self.house.server.long_polls();
        let line = self.begin_poll(free_slots, held, PATIENCE);
        self.house.await_polls(others + 1);
        line
    }

    /// The one step that it is given.
    fn claim(&self) -> Value {
        let answer = self.poll(1, &[]).expect(200);
        let assignments = answer["assignments"].as_array().unwrap();
        assert_eq!(assignments.len(), 1, "one step is claimable");
        attempt(&assignments[0])
    }

    /// Claims a step and starts it.
    fn begin(&self) -> Value {
        let attempt = self.claim();
        assert_eq!(self.report(&attempt, "started", json!({})), "accepted");
        attempt
    }

    fn report(&self, attempt: &Value, news: &str, more: Value) -> String {
        let results = self.report_all(vec![item(attempt, news, more)]);
        results[0].clone()
    }

    fn complete(&self, attempt: &Value) -> String {
        let finished = json!({ "finished": { "outcome": "completed", "exit_code": 0 } });
        self.report(attempt, "finished", finished)
    }

    fn report_all(&self, items: Vec<Value>) -> Vec<String> {
        let request = json!({ "session": self.session, "items": items });
        let answer = self.house.post("/api/worker/reports", &request).expect(200);
        let results = answer["results"].as_array().unwrap().iter();
        results.map(|result| word(&result["result"])).collect()
    }

    fn heartbeat(&self, seq: i64, held: &Value) -> Answer {
        let request = json!({ "session": self.session, "seq": seq, "held": held });
        self.house.post("/api/worker/heartbeat", &request)
    }

    fn shown(&self) -> Value {
        let path = format!("/api/workers/{}", self.worker_id);
        self.house.get(&path).expect(200)
    }

    fn change(&self, verb: &str) {
        let path = format!("/api/workers/{}/{verb}", self.worker_id);
        self.house.post(&path, &Value::Null).expect(200);
    }
}

/// The attempt of an assignment.
fn attempt(assignment: &Value) -> Value {
    json!({ "step_id": assignment["step_id"], "attempt": assignment["attempt"] })
}

fn attempts(answer: &Value) -> Vec<Value> {
    let assignments = answer["assignments"].as_array().unwrap();
    assignments.iter().map(attempt).collect()
}

/// The same of an answer that may have none.
fn attempts_or_none(answer: &Value) -> Vec<Value> {
    match answer.get("assignments") {
        Some(_) => attempts(answer),
        None => Vec::new(),
    }
}

/// An item of a report.
fn item(attempt: &Value, news: &str, more: Value) -> Value {
    let mut item = attempt.clone();
    item["news"] = news.into();
    for (key, value) in more.as_object().unwrap() {
        item[key] = value.clone();
    }
    item
}

fn word(value: &Value) -> String {
    value.as_str().expect("a word").to_string()
}

/// Waits until it is so, for as long as anything may take.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Somebody who listens to a stream of events.
struct Listener {
    line: Line,
    ahead: String,
}

/// One of the things that a stream tells.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    id: String,
    kind: String,
    data: Value,
}

impl Listener {
    /// The next frame. `None`: the stream ended.
    fn frame(&mut self) -> Option<String> {
        loop {
            if let Some((frame, rest)) = self.ahead.split_once("\n\n") {
                let (frame, rest) = (frame.to_string(), rest.to_string());
                self.ahead = rest;
                return Some(frame);
            }
            let piece = self.line.piece()?;
            self.ahead += std::str::from_utf8(&piece).expect("frames are text");
        }
    }

    /// The next thing that is told.
    fn next(&mut self) -> Told {
        loop {
            let frame = self.frame().expect("the stream goes on");
            let field = |name: &str| {
                let value = frame.lines().find_map(|line| line.strip_prefix(name));
                value.map(str::to_string)
            };
            if let Some(data) = field("data: ") {
                return Told {
                    id: field("id: ").expect("an id"),
                    kind: field("event: ").expect("a kind"),
                    data: serde_json::from_str(&data).expect("data is JSON"),
                };
            }
        }
    }

    /// The next thing of this kind that is so.
    fn next_where(&mut self, kind: &str, is_so: impl Fn(&Value) -> bool) -> Told {
        loop {
            let told = self.next();
            if told.kind == kind && is_so(&told.data) {
                return told;
            }
        }
    }
}
