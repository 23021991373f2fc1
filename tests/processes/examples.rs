//! Every example, run by a real server with a worker inside to the end that it promises.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use stepward::client::Client;

use crate::house::{BINARY, Process, await_that, check_database};

const PUSH_SECRET: &str = "a secret of the push";
const REPORT_TOKEN: &str = "tok-4f1d9c0a7b";
const TIMEOUT: Duration = Duration::from_secs(10);

/// A server whose worker stands at both sites of the edge.
struct Server {
    folder: tempfile::TempDir,
    process: Process,
    address: String,
    client: Client,
}

impl Server {
    fn start() -> Server {
        let folder = tempfile::tempdir().unwrap();
        let workflows = folder.path().join("workflows");
        copy(Path::new("examples"), &workflows);
        let data = folder.path().join("data");
        let config = format!(
            "listen: 127.0.0.1:0\ndata_dir: {}\nworkflows_dir: {}\nrecovery: {{ sweep_interval_secs: 5 }}\n\
             auth: {{ required: false }}\n\
             embedded_worker: {{ slots: 8, tags: [script, edge, site-north, site-south] }}\n",
            data.display(),
            workflows.display(),
        );
        let file = folder.path().join("server.yaml");
        fs::write(&file, config).unwrap();
        let mut command = Command::new(BINARY);
        command.arg("server").arg("--config").arg(file);
        command
            .env("STEPWARD_SECRET_PUSH", PUSH_SECRET)
            .env("STEPWARD_SECRET_REPORT_TOKEN", REPORT_TOKEN);
        let process = Process::start("server", command);
        let address = await_that("the server listens", || {
            assert!(process.is_alive(), "the server ended: {}", process.said());
            let said = process.said();
            let line = said.lines().find(|line| line.contains("listening on"));
            line.map(|line| line.rsplit("http://").next().unwrap().to_string())
        });
        let client = Client::new(&format!("http://{address}"), None);
        Server {
            folder,
            process,
            address,
            client,
        }
    }

    fn submit(&self, task: &str, input: Value) -> i64 {
        let made: Value = self
            .client
            .post(
                &format!("/api/tasks/{task}/jobs"),
                &json!({ "input": input }),
                TIMEOUT,
            )
            .unwrap();
        made["id"].as_i64().unwrap()
    }

    fn job(&self, job: i64) -> Value {
        self.client
            .get(&format!("/api/jobs/{job}"), TIMEOUT)
            .unwrap()
    }

    /// The job, once it has ended, and ended so.
    fn ended(&self, job: i64, status: &str) -> Value {
        let ended = await_that(&format!("job {job} ends"), || {
            let job = self.job(job);
            (!job["ended_at"].is_null()).then_some(job)
        });
        assert_eq!(ended["status"], status, "{ended:#}");
        ended
    }

    fn completed(&self, task: &str, input: Value) -> Value {
        let job = self.submit(task, input);
        self.ended(job, "completed")
    }

    fn log(&self, job: &Value, step: &str) -> String {
        let logs: Value = self
            .client
            .get(
                &format!("/api/jobs/{}/steps/{step}/logs", job["id"]),
                TIMEOUT,
            )
            .unwrap();
        let lines = logs["lines"].as_array().unwrap().iter();
        let lines = lines.filter(|line| line["stream"] == "stdout");
        lines
            .map(|line| format!("{}\n", line["text"].as_str().unwrap()))
            .collect()
    }

    /// What a request that was signed by its sender is answered.
    fn push(&self, body: &str, secret: &str, delivery: &str) -> (u16, Value) {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
        let signature = ring::hmac::sign(&key, body.as_bytes());
        let signature: String = signature
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!(
            "POST /hooks/push HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             user-agent: git-host\r\nx-github-delivery: {delivery}\r\nx-hub-signature-256: sha256={signature}\r\n\
             content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split_whitespace().nth(1).unwrap().parse().unwrap();
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// The jobs that this one's hooks made.
    fn hook_jobs(&self, job: i64, count: usize) -> Vec<Value> {
        await_that(&format!("{count} hooks of job {job} end"), || {
            let list: Value = self.client.get("/api/jobs?limit=200", TIMEOUT).unwrap();
            let all = list["items"].as_array().unwrap();
            let its_own = |other: &&Value| other["source"] == "hook" && other["hook_of"] == job;
            let hooks: Vec<Value> = all.iter().filter(its_own).cloned().collect();
            let ended = hooks.iter().all(|hook| !hook["ended_at"].is_null());
            (hooks.len() == count && ended).then_some(hooks)
        })
    }

    fn check(self) {
        self.process.signal(Signal::TERM);
        assert!(self.process.wait(), "the server ended with an error");
        check_database(&self.folder.path().join("data"));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn step<'a>(job: &'a Value, name: &str) -> &'a Value {
    let mut steps = job["steps"].as_array().unwrap().iter();
    let found = steps.find(|step| step["name"] == name);
    found.unwrap_or_else(|| panic!("there is no step {name}: {job:#}"))
}

#[test]
fn the_first_steps() {
    let server = Server::start();
    let job = server.completed("hello", json!({ "name": "Ada" }));
    assert_eq!(server.log(&job, "greet"), "Hello, Ada!\n");
    assert_eq!(step(&job, "count[2]")["status"], "completed");
    assert!(server.log(&job, "report").contains("greeted Ada on "));
    let job = server.submit("release", json!({}));
    let job = server.ended(job, "failed");
    assert_eq!(step(&job, "publish")["status"], "skipped");
    server.check();
}

#[test]
fn a_backup_is_checked_and_old_ones_go() {
    let server = Server::start();
    let target = server.folder.path().join("archives");
    for count in 1..=3 {
        let input = json!({ "target": target, "keep": 2 });
        let job = server.completed("backup", input);
        assert_eq!(step(&job, "verify")["output"]["files"], "3");
        let kept = fs::read_dir(&target).unwrap().count();
        assert_eq!(kept, count.min(2));
    }
    server.check();
}

#[test]
fn a_loop_over_what_was_found_gives_typed_outputs() {
    let server = Server::start();
    let job = server.completed("etl", json!({ "day": "2026-11-16", "factor": 2 }));
    assert_eq!(step(&job, "load")["output"], json!({ "total": 330 }));
    let refused = server.client.post::<_, Value>(
        "/api/tasks/etl/jobs",
        &json!({ "input": { "day": "tomorrow" } }),
        TIMEOUT,
    );
    assert!(refused.is_err(), "{refused:?}");
    server.check();
}

#[test]
fn a_person_decides_about_a_deployment() {
    let server = Server::start();
    let input = json!({ "version": "1.4.0", "channel": "stable" });
    let waits = |job: i64| {
        await_that("the approval waits", || {
            (step(&server.job(job), "approve")["status"] == "suspended").then_some(())
        });
        format!("/api/jobs/{job}/steps/approve")
    };
    let job = server.submit("ship", input.clone());
    let address = waits(job);
    let approve = |output: Value| {
        server.client.post::<_, Value>(
            &format!("{address}/approve"),
            &json!({ "output": output }),
            TIMEOUT,
        )
    };
    assert!(
        approve(json!({ "region": "moon" })).is_err(),
        "it is asked for one of two"
    );
    approve(json!({ "region": "eu" })).unwrap();
    let done = server.ended(job, "completed");
    assert_eq!(
        server.log(&done, "deploy"),
        "app-1.4.0.tar goes to eu, 10 percent at first\n"
    );
    assert_eq!(step(&done, "scan")["status"], "failed");
    assert_eq!(step(&done, "withdraw")["status"], "skipped");

    let job = server.submit("ship", input);
    let address = waits(job);
    let _: Value = server
        .client
        .post(
            &format!("{address}/reject"),
            &json!({ "why": "not today" }),
            TIMEOUT,
        )
        .unwrap();
    let done = server.ended(job, "failed");
    assert_eq!(step(&done, "withdraw")["status"], "completed");
    assert_eq!(step(&done, "deploy")["status"], "skipped");

    let done = server.completed("ship", json!({ "version": "1.4.1", "dry_run": true }));
    assert_eq!(step(&done, "approve")["status"], "skipped");
    server.check();
}

#[test]
fn machines_are_found_by_their_tags() {
    let server = Server::start();
    let job = server.completed("edge-rollout", json!({}));
    assert_eq!(
        step(&job, "north")["required_tags"],
        json!(["edge", "script", "site-north"])
    );
    assert_eq!(
        server.log(&job, "summary"),
        "north has brightness=7 at north\nsouth has brightness=7 at south\n"
    );
    server.check();
}

#[test]
fn what_the_clock_starts_is_listed_and_can_be_run_by_hand() {
    let server = Server::start();
    let job = server.completed("nightly-report", json!({ "day": "2026-11-16" }));
    assert_eq!(job["output"], json!({ "report": { "day": "2026-11-16" } }));
    let listed: Value = server.client.get("/api/schedules", TIMEOUT).unwrap();
    let names: Vec<&str> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["name"].as_str())
        .collect();
    for name in [
        "every-night",
        "in-office-hours",
        "often",
        "monthly",
        "nightly",
    ] {
        assert!(names.contains(&name), "{name}: {listed:#}");
    }
    server.check();
}

#[test]
fn children_give_their_parent_what_they_found() {
    let server = Server::start();
    let job = server.completed("order", json!({ "pieces": 3 }));
    assert_eq!(server.log(&job, "bill"), "3 parcels for 750 cents\n");
    assert_eq!(step(&job, "pack[2]")["status"], "completed");
    server.check();
}

#[test]
fn what_goes_wrong_ends_as_the_task_says() {
    let server = Server::start();
    let job = server.completed("recovery", json!({}));
    assert_eq!(step(&job, "flaky")["attempt"], 3);
    assert_eq!(step(&job, "too-slow")["reason"], "step_timeout");
    assert!(server.log(&job, "judge").starts_with("too-slow: "));
    server.check();
}

#[test]
fn a_signed_push_deploys_and_a_forged_one_does_not() {
    let server = Server::start();
    let body = r#"{"tag": "v1.2.0", "repository": {"name": "app"}}"#;
    let (status, answer) = server.push(body, PUSH_SECRET, "d-1");
    assert!((200..300).contains(&status), "{status} {answer}");
    let job = await_that("the push made a job", || {
        let list: Value = server.client.get("/api/jobs", TIMEOUT).unwrap();
        list["items"][0]["id"].as_i64()
    });
    let done = server.ended(job, "completed");
    assert_eq!(
        server.log(&done, "deploy"),
        "deploying v1.2.0 of app, asked by git-host\n"
    );
    assert_eq!(server.push(body, "another secret", "d-2").0, 401);
    // The same delivery again is known.
    let (status, _) = server.push(body, PUSH_SECRET, "d-1");
    assert!((200..300).contains(&status), "{status}");
    let list: Value = server.client.get("/api/jobs", TIMEOUT).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list:#}");
    server.check();
}

#[test]
fn a_secret_reaches_its_step_and_nothing_else() {
    let server = Server::start();
    let job = server.completed("call-api", json!({ "pin": "4711-0815" }));
    assert_eq!(
        step(&job, "call")["output"]["token_bytes"],
        REPORT_TOKEN.len().to_string()
    );
    let said = server.log(&job, "call");
    assert_eq!(said, "the token is *** and the PIN ***\n");
    assert_eq!(server.log(&job, "other"), "no token here: []\n");
    let shown = job.to_string();
    assert!(
        !shown.contains(REPORT_TOKEN) && !shown.contains("4711-0815"),
        "{shown}"
    );
    server.check();
}

#[test]
fn a_graph_comes_together_whichever_way_it_went() {
    let server = Server::start();
    for (cached, ran, skipped) in [(true, "fetch", "make"), (false, "make", "fetch")] {
        let job = server.completed("matrix", json!({ "cached": cached }));
        assert_eq!(step(&job, ran)["status"], "completed");
        assert_eq!(step(&job, skipped)["reason"], "when_false");
        assert_eq!(job["output"]["release"], json!({ "lint": "failed" }));
        assert_eq!(step(&job, "apologise")["reason"], "dependency_not_accepted");
    }
    server.check();
}

#[test]
fn hooks_follow_each_outcome_once() {
    let server = Server::start();
    let good = server.submit("watched", json!({}));
    server.ended(good, "completed");
    let hooks = server.hook_jobs(good, 1);
    assert_eq!(
        server.log(&hooks[0], "cheer"),
        format!("job {good} went well\n")
    );

    let bad = server.submit("watched", json!({ "end": "fail" }));
    server.ended(bad, "failed");
    assert_eq!(server.hook_jobs(bad, 1)[0]["status"], "completed");

    let asked = server.submit("watched", json!({ "end": "ask" }));
    server.hook_jobs(asked, 1);
    let _: Value = server
        .client
        .post(&format!("/api/jobs/{asked}/cancel"), &json!({}), TIMEOUT)
        .unwrap();
    server.ended(asked, "cancelled");
    server.hook_jobs(asked, 2);
    server.check();
}
