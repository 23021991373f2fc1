//! `/api/openapi.json` is the truth: it describes every route, and what the server takes and answers is what it says.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use stepward::config::NotifyTarget;
use stepward::server::{Limits, every_route};

use super::{Answer, ServerHouse, attempt, item, session_request, until, word};
use crate::outbox::receiver::Receiver;

const SECRET: &str = "the secret of push";

const WORKFLOWS: &str = r#"
tasks:
  release:
    description: Everything that a task can have
    timeout: 1h
    queue_timeout: 1h
    input:
      version: { type: string, required: true, pattern: '^\d+$', description: Which one }
      channel: { type: string, options: [stable, beta], default: stable }
      count: { type: integer, min: 1, max: 9, default: 2 }
      pin: { type: string, secret: true }
    flow:
      build: { script: "echo {{ input.version | sh }}", env: { PIN: "{{ input.pin }}" }, workdir: /tmp }
      each: { script: "echo {{ each.item | sh }}", for_each: [1, 2], depends_on: [build], continue_on_failure: true }
      either:
        script: echo
        depends_on: { any: [build, each] }
        when: "{{ input.count > 5 }}"
      sure:
        type: approval
        message: Really?
        depends_on: [{ step: build, accept: [completed, failed] }]
        input: { who: { type: string } }
      call: { type: task, task: hello, depends_on: [build] }
      box: { type: docker, image: alpine, command: [ls] }
      pod: { type: pod, manifest: { spec: { containers: [{ name: main, image: alpine }] } } }
    schedules:
      yearly: { cron: '0 0 1 1 *', catch_up: all, input: { version: "1" } }
    webhooks:
      push: { secret: { file: SECRET_FILE }, input: { version: "{{ body.version }}" } }
"#;

/// With something of everything in it.
fn house(receiver: &Receiver) -> ServerHouse {
    let target = json!({ "type": "slack", "url": receiver.url("/hook"), "on": ["job_submitted"] });
    let target: NotifyTarget = serde_json::from_value(target).unwrap();
    ServerHouse::with(Limits::default(), |config| {
        let folder = config.workflows_dir.clone().unwrap();
        let secret = folder.with_file_name("push.secret");
        fs::write(&secret, SECRET).unwrap();
        let text = WORKFLOWS.replace("SECRET_FILE", &secret.display().to_string());
        fs::write(folder.join("release.yaml"), text).unwrap();
        fs::write(
            folder.join("broken.yaml"),
            "tasks: { odd: { flow: { s: { scrpt: x } } } }",
        )
        .unwrap();
        config.secrets.allow_files.push(secret);
        config.notify = [("chat".to_string(), target)].into();
    })
}

struct Document(Value);

impl Document {
    fn of(house: &ServerHouse) -> Document {
        Document(house.get("/api/openapi.json").expect(200))
    }

    /// Method, path and description of each.
    fn operations(&self) -> Vec<(String, &str, &Value)> {
        let paths = self.0["paths"].as_object().unwrap().iter();
        let operations = paths.flat_map(|(path, item)| {
            let operations = item.as_object().unwrap().iter();
            operations
                .map(move |(method, operation)| (method.to_uppercase(), path.as_str(), operation))
        });
        operations.collect()
    }

    /// What a request is, by its address.
    fn operation(&self, method: &str, path: &str) -> &Value {
        let parts = path.split('?').next().unwrap().split('/');
        let fits = |pattern: &str| {
            let pattern: Vec<&str> = pattern.split('/').collect();
            pattern.len() == parts.clone().count()
                && (pattern.iter().zip(parts.clone()))
                    .all(|(known, found)| known.starts_with('{') || *known == found)
        };
        let operations = self.operations().into_iter();
        let found = operations.filter(|(known, pattern, _)| known == method && fits(pattern));
        let found = found.min_by_key(|(_, pattern, _)| pattern.matches('{').count());
        found
            .unwrap_or_else(|| panic!("{method} {path} is not described"))
            .2
    }

    fn resolved<'v>(&'v self, value: &'v Value) -> &'v Value {
        match value.get("$ref") {
            None => value,
            Some(place) => {
                let place = place.as_str().unwrap().strip_prefix('#').unwrap();
                let found = self.0.pointer(place);
                found.unwrap_or_else(|| panic!("{place} is nowhere"))
            }
        }
    }

    /// The names of an operation's parameters that stand there.
    fn parameters(&self, operation: &Value, place: &str) -> BTreeSet<String> {
        let parameters = operation["parameters"].as_array().unwrap().iter();
        let there = parameters.filter(|parameter| parameter["in"] == place);
        there.map(|parameter| word(&parameter["name"])).collect()
    }

    fn body<'v>(&'v self, operation: &'v Value) -> Option<&'v Value> {
        let body = operation.get("requestBody")?;
        let schema = body["content"].get("application/json")?.get("schema")?;
        Some(self.resolved(schema))
    }

    /// What is wrong with a value. A field that is not described is wrong, too: it was forgotten.
    fn faults(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        let schema = self.resolved(schema);
        let mut faults = Vec::new();
        let mut fault = |what: String| faults.push(format!("{at}: {what}"));
        for (keyword, rule) in schema.as_object().unwrap() {
            let is_kept = match keyword.as_str() {
                "description" | "default" | "properties" | "additionalProperties" | "items" => true,
                "type" => types(rule).iter().any(|name| is_of_type(value, name)),
                "const" => value == rule,
                "enum" | "x-extensible-enum" => rule.as_array().unwrap().contains(value),
                "minLength" => value.as_str() != Some(""),
                "minItems" => value
                    .as_array()
                    .is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
                "maxItems" => value
                    .as_array()
                    .is_none_or(|items| items.len() as u64 <= rule.as_u64().unwrap()),
                "minimum" => !value.is_number() || value.as_f64() >= rule.as_f64(),
                "maximum" => !value.is_number() || value.as_f64() <= rule.as_f64(),
                "format" => match rule.as_str().unwrap() {
                    "date-time" => value.is_null() || is_time(value),
                    "int32" => {
                        value.is_null()
                            || value.as_i64().is_some_and(|it| i32::try_from(it).is_ok())
                    }
                    "int64" => value.is_null() || value.is_i64(),
                    other => panic!("format {other} is not known here"),
                },
                "required" => {
                    let names = rule.as_array().unwrap().iter();
                    let mut names = names.map(|name| name.as_str().unwrap());
                    !value.is_object() || names.all(|name| value.get(name).is_some())
                }
                "anyOf" | "oneOf" => {
                    let fits = |one: &&Value| self.faults(one, value, at).is_empty();
                    let fitting = rule.as_array().unwrap().iter().filter(fits).count();
                    fitting == 1 || (keyword == "anyOf" && fitting > 1)
                }
                other => panic!("{other} is not known here"),
            };
            if !is_kept {
                fault(format!("{value} breaks {keyword} {rule}"));
            }
        }
        if let (Some(items), Some(list)) = (schema.get("items"), value.as_array()) {
            for (index, one) in list.iter().enumerate() {
                faults.extend(self.faults(items, one, &format!("{at}[{index}]")));
            }
        }
        let is_described = schema
            .get("properties")
            .or(schema.get("additionalProperties"));
        if let (Some(_), Some(members)) = (is_described, value.as_object()) {
            for (name, member) in members {
                let property = schema.get("properties").and_then(|all| all.get(name));
                let others = schema
                    .get("additionalProperties")
                    .filter(|it| it.is_object());
                match property.or(others) {
                    Some(schema) => {
                        faults.extend(self.faults(schema, member, &format!("{at}.{name}")))
                    }
                    None => faults.push(format!("{at}.{name}: it is not described")),
                }
            }
        }
        faults
    }
}

fn types(rule: &Value) -> Vec<&str> {
    match rule {
        Value::Array(names) => names.iter().map(|name| name.as_str().unwrap()).collect(),
        name => vec![name.as_str().unwrap()],
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("type {other} is not known here"),
    }
}

fn is_time(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok()
}

/// Somebody who has read the document: what is sent and what is answered must be what it says.
struct Reader<'a> {
    house: &'a ServerHouse,
    document: Document,
    asked: RefCell<BTreeSet<String>>,
}

impl Reader<'_> {
    fn ask(&self, method: &str, path: &str, headers: &str, body: &Value) -> Answer {
        let operation = self.document.operation(method, path);
        let place = format!("{method} {path}");
        let text = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let headers = match body {
            Value::Null => headers.to_string(),
            _ => format!("content-type: application/json\r\n{headers}"),
        };
        let answer = self.house.ask(method, path, &headers, text.as_bytes());
        if answer.status < 300 {
            self.asked
                .borrow_mut()
                .insert(word(&operation["operationId"]));
            if !body.is_null() {
                let schema = self.document.body(operation);
                let schema = schema.unwrap_or_else(|| panic!("{place}: no body is described"));
                if schema.get("properties").is_some() {
                    assert_eq!(
                        self.document.faults(schema, body, &place),
                        Vec::<String>::new()
                    );
                }
            }
        }
        let answers = &operation["responses"];
        let described = answers.get(answer.status.to_string());
        let described = match answer.status {
            200..300 => described.unwrap_or_else(|| panic!("{place}: {}", answer.status)),
            _ => described.unwrap_or(&answers["default"]),
        };
        let described = self.document.resolved(described);
        let media = |text: &str| text.split(';').next().unwrap().to_string();
        let found = media(answer.header("content-type").unwrap_or_default());
        let forms = described["content"].as_object().unwrap();
        let form = forms.iter().find(|(known, _)| media(known) == found);
        let (_, form) = form.unwrap_or_else(|| panic!("{place}: {found} is not described"));
        if found == "application/json" {
            let faults = self
                .document
                .faults(&form["schema"], &answer.json(), &place);
            assert_eq!(faults, Vec::<String>::new());
        }
        answer
    }

    fn get(&self, path: &str) -> Value {
        self.ask("GET", path, "", &Value::Null).expect(200)
    }

    fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.ask("POST", path, "", &body);
        assert!(answer.status < 300, "{path}: {}", answer.text());
        answer.json()
    }

    fn refused(&self, method: &str, path: &str, status: u16) {
        self.ask(method, path, "", &Value::Null).refused(status);
    }
}

#[test]
fn whoever_holds_an_answer_against_a_shape_sees_what_is_wrong() {
    let document = Document(json!({ "components": { "schemas": { "One": {
        "type": "object",
        "required": ["n"],
        "properties": { "n": { "type": "integer", "minimum": 1 }, "at": { "type": ["string", "null"], "format": "date-time" } },
    } } } }));
    let one = json!({ "$ref": "#/components/schemas/One" });
    let maybe = json!({ "anyOf": [{ "type": "array", "items": one }, { "type": "null" }] });
    for good in [
        json!(null),
        json!([]),
        json!([{ "n": 1 }, { "n": 2, "at": null }]),
    ] {
        assert_eq!(document.faults(&maybe, &good, ""), Vec::<String>::new());
    }
    for bad in [
        json!({}),
        json!([{}]),
        json!([{ "n": "1" }]),
        json!([{ "n": 0 }]),
        json!([{ "n": 1, "at": "noon" }]),
        json!([{ "n": 1, "more": 1 }]),
    ] {
        assert_ne!(
            document.faults(&maybe, &bad, ""),
            Vec::<String>::new(),
            "{bad}"
        );
    }
}

#[test]
fn every_route_that_is_no_page_is_described_and_nothing_else_is() {
    let house = ServerHouse::new();
    let document = Document::of(&house);
    assert_eq!(document.0["openapi"], "3.1.1");
    let operations = document.operations();
    let described: BTreeSet<(String, &str)> = (operations.iter())
        .map(|(method, path, _)| (method.clone(), *path))
        .collect();
    let routes = every_route().filter(|(_, _, access)| !access.is_page());
    let mut there = BTreeSet::new();
    for (method, path, access) in routes {
        there.insert((method.to_string(), path));
        let operation = &document.0["paths"][path][method.to_lowercase()];
        let needed = access.needed_role().map(|role| role.as_str());
        let role = operation["x-stepward-role"].as_str();
        assert_eq!(
            role.filter(|role| *role != "enrolment"),
            needed,
            "{method} {path}"
        );
        let places = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let places: BTreeSet<String> = places.map(str::to_string).collect();
        assert_eq!(document.parameters(operation, "path"), places, "{path}");
    }
    assert_eq!(described, there);

    let ids: BTreeSet<String> = (operations.iter())
        .map(|(_, _, operation)| word(&operation["operationId"]))
        .collect();
    assert_eq!(ids.len(), operations.len(), "each has an id of its own");
    let tags = document.0["tags"].as_array().unwrap();
    let tags: Vec<&Value> = tags.iter().map(|tag| &tag["name"]).collect();
    let schemes = &document.0["components"]["securitySchemes"];
    for (_, path, operation) in &operations {
        assert!(tags.contains(&&operation["tags"][0]), "{path}");
        for way in operation["security"].as_array().unwrap() {
            let known = way
                .as_object()
                .unwrap()
                .keys()
                .all(|name| schemes.get(name).is_some());
            assert!(known, "{path}: {way}");
        }
    }
}

#[test]
fn every_shape_is_there_and_is_needed() {
    let house = ServerHouse::new();
    let document = Document::of(&house);
    let mut named = BTreeSet::new();
    let mut left = vec![&document.0];
    while let Some(value) = left.pop() {
        if let Some(place) = value.get("$ref") {
            document.resolved(value);
            named.insert(word(place));
        }
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(members) => left.extend(members.values()),
            _ => {}
        }
    }
    for name in document.0["components"]["schemas"]
        .as_object()
        .unwrap()
        .keys()
    {
        // What the lines of a stream hold is said in words.
        let is_needed = named.contains(&format!("#/components/schemas/{name}"));
        assert!(
            is_needed || ["Edges", "JobChange"].contains(&name.as_str()),
            "{name}"
        );
    }
}

/// What a refusal says would be known: the words in these quotes, after this word.
fn known_words(message: &str, after: &str, separator: &str) -> BTreeSet<String> {
    let Some((_, known)) = message.split_once(after) else {
        return BTreeSet::new();
    };
    let words = known.split(separator).map(|name| name.trim().to_string());
    words.filter(|name| !name.is_empty()).collect()
}

fn filled(pattern: &str) -> String {
    pattern
        .replace("{task}", "hello")
        .replace("{job}", "1")
        .split('/')
        .map(|part| if part.starts_with('{') { "1" } else { part })
        .collect::<Vec<_>>()
        .join("/")
}

#[test]
fn what_may_be_asked_for_after_a_question_mark_is_what_is_described() {
    let house = ServerHouse::new();
    house.submit("hello");
    let document = Document::of(&house);
    for (method, pattern, operation) in document.operations() {
        // A worker may be newer than the server: what it asks for besides is ignored.
        if pattern.starts_with("/api/worker/") {
            continue;
        }
        let path = format!("{}?zz=1", filled(pattern));
        let mut known = BTreeSet::new();
        for accept in ["application/json", "text/event-stream"] {
            let headers = format!("accept: {accept}\r\nauthorization: Bearer any\r\n");
            let answer = house.ask(&method, &path, &headers, b"");
            assert_eq!(answer.refused(422), "invalid", "{method} {pattern}");
            let message = word(&answer.json()["error"]["message"]);
            assert!(
                message.contains("\"zz\" is not known here"),
                "{pattern}: {message}"
            );
            known.extend(known_words(&message, "known are: ", ","));
        }
        assert_eq!(
            document.parameters(operation, "query"),
            known,
            "{method} {pattern}"
        );
    }
}

#[test]
fn a_page_holds_as_many_as_is_described() {
    let house = ServerHouse::new();
    house.submit("hello");
    let document = Document::of(&house);
    let mut pages = 0;
    for (method, pattern, operation) in document.operations() {
        let parameters = operation["parameters"].as_array().unwrap();
        let Some(limit) = parameters.iter().find(|one| one["name"] == "limit") else {
            continue;
        };
        let max = limit["schema"]["maximum"].as_u64().unwrap();
        let path = format!("{}?limit={}", filled(pattern), max + 1);
        let answer = house.ask(&method, &path, "", b"");
        assert_eq!(answer.refused(422), "invalid", "{pattern}");
        let message = word(&answer.json()["error"]["message"]);
        assert!(
            message.ends_with(&format!("expected 1 to {max}")),
            "{pattern}: {message}"
        );
        pages += 1;
    }
    assert_eq!(pages, 13);
}

#[test]
fn what_may_be_said_in_a_body_is_what_is_described() {
    let house = ServerHouse::new();
    house.submit("hello");
    let document = Document::of(&house);
    let mut bodies = 0;
    for (method, pattern, operation) in document.operations() {
        // Whoever sends to a webhook says what he likes, and an enrolment must be shown first.
        if method != "POST" || ["/hooks/{name}", "/api/worker/enrol"].contains(&pattern) {
            continue;
        }
        let answer = house.post(&filled(pattern), &json!({ "zz": 1 }));
        assert_eq!(answer.refused(422), "invalid", "{method} {pattern}");
        if pattern.starts_with("/api/worker/") {
            // A worker may be newer: what the server does not know is ignored, what it needs is missing.
            let schema = document.body(operation).unwrap();
            assert!(schema.get("additionalProperties").is_none(), "{pattern}");
            assert!(answer.message().contains("missing field"), "{pattern}");
            continue;
        }
        let message = word(&answer.json()["error"]["message"]);
        assert!(
            message.contains("unknown field `zz`"),
            "{pattern}: {message}"
        );
        let known = message.split("expected").nth(1).unwrap_or_default();
        let known: BTreeSet<&str> = known.split('`').skip(1).step_by(2).collect();
        let described: BTreeSet<&str> = match document.body(operation) {
            Some(schema) => {
                assert_eq!(schema["additionalProperties"], false, "{pattern}");
                schema["properties"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(String::as_str)
                    .collect()
            }
            None => BTreeSet::new(),
        };
        assert_eq!(described, known, "{pattern}");
        bodies += usize::from(!known.is_empty());
    }
    assert_eq!(bodies, 9);
}

#[test]
fn what_the_server_answers_is_what_is_described() {
    let receiver = Receiver::start();
    let house = house(&receiver);
    let reader = Reader {
        house: &house,
        document: Document::of(&house),
        asked: RefCell::default(),
    };
    until("it is ready", || house.get("/readyz").status == 200);
    for path in [
        "/healthz",
        "/readyz",
        "/api/openapi.json",
        "/api/tasks",
        "/api/tasks/release",
        "/api/workflows",
        "/api/me",
        "/api/backups",
        "/api/retention",
    ] {
        reader.get(path);
    }
    let problems = &reader.get("/api/workflows")["problems"];
    assert_ne!(problems, &json!([]), "one of the files is broken");
    jobs_and_their_worker(&reader);
    schedules_and_webhooks(&reader);
    deliveries(&reader, &receiver);
    tokens(&reader);
    refusals(&reader);
    for (method, path, headers) in [
        ("GET", "/metrics", ""),
        ("POST", "/api/backup", ""),
        ("GET", "/api/backup", "authorization: Bearer any\r\n"),
    ] {
        super::until("it is answered, one backup at a time", || {
            let status = reader.ask(method, path, headers, &Value::Null).status;
            assert!(matches!(status, 200 | 503), "{method} {path}: {status}");
            status == 200
        });
    }
    let removed = json!({ "jobs_older_secs": 1, "dry_run": true });
    reader.post("/api/prune", removed);

    let described = reader.document.operations().into_iter();
    let described: BTreeSet<String> = described
        .map(|(_, _, operation)| word(&operation["operationId"]))
        .collect();
    assert_eq!(*reader.asked.borrow(), described, "all of it was asked for");
}

fn jobs_and_their_worker(reader: &Reader) {
    let submission = json!({
        "input": { "version": "7", "pin": "4711-0815" }, "priority": -3, "labels": { "by": "me" }, "not_before": null,
    });
    let key = "idempotency-key: once\r\n";
    let submit = || reader.ask("POST", "/api/tasks/release/jobs", key, &submission);
    assert_eq!(submit().expect(201)["id"], 1);
    assert_eq!(submit().expect(200)["id"], 1, "it had come before");
    let later = json!({ "input": { "version": "8" }, "not_before": "2999-01-01T00:00:00Z" });
    reader.post("/api/tasks/release/jobs", later);
    for path in [
        "/api/queue",
        "/api/jobs/1/why",
        "/api/jobs/2/why",
        "/api/jobs/2",
    ] {
        reader.get(path);
    }

    let spooled = json!({
        "step_id": 99, "attempt": 1, "session": "ann 0", "finished": { "outcome": "completed", "exit_code": 0 },
    });
    let mut session = session_request("ann", "ann 1", &["docker", "kubernetes"], 9);
    session["spooled"] = json!([spooled]);
    reader.get("/api/worker/server");
    reader.post("/api/worker/sessions", session);
    let poll = || {
        let poll = json!({ "session": "ann 1", "free_slots": 9, "held": [], "wait_ms": 0 });
        let given = reader.post("/api/worker/poll", poll);
        given["assignments"].as_array().unwrap().clone()
    };
    let report = |items: Vec<Value>| {
        let poll = json!({ "free_slots": 0, "held": [] });
        let reports = json!({ "session": "ann 1", "items": items, "poll": poll });
        reader.post("/api/worker/reports", reports)
    };
    let given = poll();
    assert_eq!(given.len(), 3, "a script, a container and a pod");
    let started = given
        .iter()
        .map(|given| item(&attempt(given), "started", json!({})));
    report(started.collect());
    let held = given.iter().map(|given| {
        let mut held = attempt(given);
        held["phase"] = "running".into();
        held
    });
    let held: Vec<Value> = held
        .chain([json!({ "step_id": 99, "attempt": 1, "phase": "preparing" })])
        .collect();
    let beat = json!({ "session": "ann 1", "seq": 1, "held": held });
    let beaten = reader.post("/api/worker/heartbeat", beat);
    assert_eq!(beaten["abort"].as_array().unwrap().len(), 1);
    let log = format!(
        "/api/worker/steps/{}/attempts/1/log?session=ann%201&offset=0",
        given[0]["step_id"]
    );
    let line = b"2026-01-31T08:00:00.000Z O hello\n";
    let appended = reader.house.ask("PUT", &log, "", line).expect(200);
    let appending = reader.document.operation("PUT", &log);
    let schema = &appending["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(
        reader.document.faults(schema, &appended, "log"),
        Vec::<String>::new()
    );
    reader
        .asked
        .borrow_mut()
        .insert(word(&appending["operationId"]));
    for path in [
        "/api/workers",
        "/api/workers/ann",
        "/api/workers/1/why",
        "/api/jobs/1",
    ] {
        reader.get(path);
    }

    let completed =
        json!({ "finished": { "outcome": "completed", "exit_code": 0, "output": { "size": 7 } } });
    let failed = json!({
        "finished": { "outcome": "failed", "reason": "exit_code", "message": "exit code 2", "exit_code": 2 },
    });
    let ends = given
        .iter()
        .map(|given| match word(&given["step"]).as_str() {
            "build" => item(&attempt(given), "finished", completed.clone()),
            _ => item(&attempt(given), "finished", failed.clone()),
        });
    report(
        ends.chain([json!({ "step_id": 99, "attempt": 1, "news": "keepalive" })])
            .collect(),
    );
    let declined = poll();
    let declined = declined
        .iter()
        .map(|given| item(&attempt(given), "declined", json!({ "why": "not now" })));
    report(declined.collect());
    reader.post("/api/tasks/hello/jobs", Value::Null);
    let again = poll();
    let (job, step) = (&again[0]["job_id"], word(&again[0]["step"]));
    let requeue = format!("/api/jobs/{job}/steps/{step}/requeue");
    reader.post(&requeue, Value::Null);
    for path in [
        "/api/queue",
        "/api/recovery",
        "/api/failures?limit=5",
        "/api/jobs/1",
        "/api/jobs/1/steps/build/why",
        "/api/jobs/1/steps/build/output",
        "/api/jobs/1/steps/sure/output",
        "/api/jobs/1/logs",
        "/api/jobs/1/logs?tail=1&limit=1",
        "/api/jobs/1/steps/build/logs",
        "/api/jobs/1/steps/build/logs?grep=HELLO&ignore_case=true",
        "/api/jobs/1/steps/_server/logs?from=1&n=3",
    ] {
        reader.get(path);
    }
    let raw = reader.ask(
        "GET",
        "/api/jobs/1/steps/build/logs?raw=true",
        "",
        &Value::Null,
    );
    assert_eq!(raw.status, 200);
    reader.post(
        "/api/jobs/1/steps/sure/approve",
        json!({ "output": { "who": "me" } }),
    );
    reader.post("/api/jobs/1/keep", Value::Null);
    reader.post("/api/jobs/1/cancel", json!({ "why": "enough" }));
    reader.post("/api/jobs/2/cancel", Value::Null);
    reader.get("/api/jobs/1/why");
    reader.post("/api/jobs/1/retry", json!({ "from": "box" }));
    reader.post("/api/jobs/1/retry", json!({ "all": true }));
    reader.post("/api/jobs/1/release", Value::Null);
    let asked = reader.post("/api/tasks/ask/jobs", Value::Null);
    let reject = format!("/api/jobs/{}/steps/sure/reject", asked["id"]);
    reader.post(&reject, json!({ "why": "no" }));
    let asked = reader.post("/api/tasks/ask/jobs", Value::Null);
    let fail = format!("/api/jobs/{}/steps/sure/fail", asked["id"]);
    reader.post(&fail, json!({ "why": "nobody is there" }));
    reader.post("/api/recovery/sweep", Value::Null);
    for path in [
        "/api/jobs",
        "/api/jobs?q=status:failed%20since:2d&limit=1",
        "/api/jobs/1/events",
        "/api/events",
        "/api/events?after=1&limit=3",
        "/api/events?recovery=true",
    ] {
        reader.get(path);
    }
    for verb in ["pause", "resume", "drain"] {
        reader.post(&format!("/api/workers/ann/{verb}"), Value::Null);
    }
    reader.post("/api/worker/drain", json!({ "session": "ann 1" }));
    reader.get("/api/workers/ann/why");
    let deleted = reader.ask("DELETE", "/api/workers/ann?force=true", "", &Value::Null);
    deleted.expect(200);
}

fn schedules_and_webhooks(reader: &Reader) {
    reader.post("/api/schedules/release.yearly/fire", Value::Null);
    for path in [
        "",
        "/release.yearly",
        "/release.yearly/why",
        "/release.yearly/fires",
    ] {
        reader.get(&format!("/api/schedules{path}"));
    }
    for verb in ["pause", "resume"] {
        reader.post(
            &format!("/api/schedules/release.yearly/{verb}"),
            Value::Null,
        );
    }
    let headers = format!("authorization: Bearer {SECRET}\r\nidempotency-key: d-1\r\n");
    let push = || reader.ask("POST", "/hooks/push", &headers, &json!({ "version": "9" }));
    push().expect(201);
    push().expect(200);
    let files = json!({ "files": [{ "path": "a.yaml", "text": "tasks: { a: { flow: { s: { scrpt: x } } } }" }] });
    let validated = reader.post("/api/validate", files);
    assert_eq!(validated["valid"], false);
}

fn deliveries(reader: &Reader, receiver: &Receiver) {
    receiver.await_got(1);
    until("it is delivered", || {
        reader.get("/api/deliveries/1")["state"] == "delivered"
    });
    reader.get("/api/deliveries?state=delivered&target=chat&limit=1");
    reader.post("/api/deliveries/1/redeliver", Value::Null);
    reader.post("/api/notify/chat/test", Value::Null);
}

fn tokens(reader: &Reader) {
    let made =
        json!({ "name": "bob", "role": "enrolment", "tags": ["gpu"], "expires_in_secs": 60 });
    let made = reader.post("/api/tokens", made);
    reader.post("/api/tokens", json!({ "name": "eve", "role": "viewer" }));
    let headers = format!("authorization: Bearer {}\r\n", word(&made["text"]));
    reader
        .ask("GET", "/api/worker/enrol", &headers, &Value::Null)
        .expect(200);
    let enrolment = json!({ "name": "bob", "secret_hash": "0".repeat(64) });
    reader
        .ask("POST", "/api/worker/enrol", &headers, &enrolment)
        .expect(200);
    reader
        .ask("DELETE", "/api/tokens/eve", "", &Value::Null)
        .expect(200);
    let tokens = reader.get("/api/tokens");
    assert_eq!(tokens["items"].as_array().unwrap().len(), 3);
    let rows = reader.get("/api/audit?action=token_made&limit=10");
    assert_eq!(rows["items"].as_array().unwrap().len(), 2);
    reader.get("/api/audit?after=0");
    reader.get("/api/audit/head");
}

fn refusals(reader: &Reader) {
    for (method, path, status) in [
        ("GET", "/api/tasks/nothing", 404),
        ("GET", "/api/jobs?limit=0", 422),
        ("GET", "/api/jobs/1/steps/build/logs?tail=1&from=1", 422),
        ("POST", "/api/jobs/1/cancel", 409),
        ("POST", "/api/tasks/release/jobs", 422),
        ("POST", "/hooks/nothing", 401),
        ("POST", "/api/worker/enrol", 401),
    ] {
        reader.refused(method, path, status);
    }
}
