//! `stepward doctor`: each check finds what it is there for, says how to mend it, and changes nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use serde_json::{Value, json};
use stepward::store::SCHEMA_VERSION;
use stepward::wire::api::WorkerJson;

use crate::house::{House, await_that};
use crate::pseudo_terminal::{fits, shown};
use crate::typed::{Typed, command, typed, typed_in};

const HELLO: &str = "tasks:\n  hello:\n    flow:\n      say: { script: echo hello }\n";

/// What was found by a group, as `status: message`.
fn found(typed: &Typed, group: &str) -> Vec<String> {
    let json = typed.json();
    let checks = json["checks"].as_array().unwrap().iter();
    let of_group = checks.filter(|check| check["name"] == group);
    of_group
        .map(|check| {
            let word = |key: &str| check[key].as_str().unwrap().to_string();
            let needs_fix = ["warning", "problem"].contains(&word("status").as_str());
            let fix = check["fix"].as_array().unwrap();
            assert!(!needs_fix || !fix.is_empty(), "no fix: {check}");
            format!("{}: {}", word("status"), word("message"))
        })
        .collect()
}

/// Exactly one line of the group begins and goes on like this.
fn assert_found(typed: &Typed, group: &str, begin: &str, words: &str) {
    let found = found(typed, group);
    let fits = |line: &&String| line.starts_with(begin) && line.contains(words);
    assert_eq!(found.iter().filter(fits).count(), 1, "{group}: {found:?}");
    // A problem is an exit code.
    let problems = typed.json()["problems"].as_u64().unwrap();
    assert_eq!(typed.code, Some(i32::from(problems > 0)), "{typed:?}");
}

fn doctor(house: &House, words: &[&str]) -> Typed {
    let config = house.path("server.yaml");
    let common = ["doctor", "--json", "--config", config.to_str().unwrap()];
    typed(house, &[&common, words].concat())
}

/// Without a server.
fn doctor_in(folder: &Path, words: &[&str]) -> Typed {
    typed_in(folder, &[&["doctor", "--json"], words].concat())
}

/// Every file below, with its bytes and when it was last written.
fn files(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => {
                let at = entry.metadata().unwrap().modified().unwrap();
                found.insert(path.clone(), (fs::read(path).unwrap(), at));
            }
        }
    }
    found
}

#[test]
fn a_healthy_installation_is_told_so() {
    let mut house = House::with(HELLO);
    let _worker = house.worker(1);
    let job_id = house.submit("hello");
    house.await_job(job_id, "completed");
    house.await_sweep();
    let told = doctor(&house, &[]);
    let json = told.json();
    let bad: Vec<&Value> = json["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["status"] != "ok")
        .collect();
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert_eq!(bad[0]["message"], "no backup is known");
    assert_eq!(json["problems"], 0);
    assert_eq!(json["warnings"], 1);
    assert_eq!(told.code, Some(0));

    let config = house.path("server.yaml");
    let told = typed(&house, &["doctor", "--config", config.to_str().unwrap()]);
    assert_eq!(told.code, Some(0));
    assert_eq!(told.stdout.lines().last(), Some("0 problems, 1 warning"));
    assert!(
        told.stdout.contains("✔ ok       workers "),
        "{}",
        told.stdout
    );
    assert!(
        told.stdout.contains("  fix: make one: stepward backup "),
        "{}",
        told.stdout
    );
    assert!(told.stderr.is_empty(), "{}", told.stderr);
    let told = typed(&house, &["doctor", "sweeper", "--ascii"]);
    assert!(
        told.stdout.starts_with("+ ok       sweeper "),
        "{}",
        told.stdout
    );
    assert!(told.stdout.is_ascii(), "{}", told.stdout);
    house.check();
}

#[test]
fn where_nothing_is_nothing_is_wrong_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let told = doctor_in(folder.path(), &[]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert_found(&told, "server", "skipped: ", "no server is named");
    assert_found(&told, "database", "skipped: ", "no server has run");
    assert_eq!(told.json()["warnings"], 0);
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    // Who names a folder means one that is there.
    let told = doctor_in(folder.path(), &["database", "--data-dir", "nowhere"]);
    assert_found(
        &told,
        "database",
        "problem: ",
        "nowhere/stepward.db does not exist",
    );
    let told = typed_in(folder.path(), &["doctor", "databse"]);
    assert_eq!(told.code, Some(2));
    assert!(told.stderr.contains("database"), "{}", told.stderr);
}

#[test]
fn settings_that_do_not_load_keep_no_other_check_from_looking() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("server-config.yaml"), "recovry: {}\n").unwrap();
    fs::write(folder.path().join("worker-config.yaml"), "slots: 0\n").unwrap();
    let told = doctor_in(folder.path(), &[]);
    assert_found(
        &told,
        "configuration",
        "problem: ",
        "server-config.yaml: unknown key `recovry`",
    );
    assert_found(
        &told,
        "configuration",
        "problem: ",
        "worker-config.yaml: slots are 0",
    );
    assert_found(
        &told,
        "database",
        "skipped: ",
        "the data folder is not known",
    );
    assert_found(&told, "tools", "ok: ", "neither docker nor kubernetes");
    assert_eq!(told.json()["problems"], 2);

    fs::write(folder.path().join("worker-config.yaml"), "slots: 2\n").unwrap();
    let settings = "auth: { token_file: nowhere }\n";
    fs::write(folder.path().join("server-config.yaml"), settings).unwrap();
    let told = doctor_in(folder.path(), &["configuration"]);
    assert_found(
        &told,
        "configuration",
        "problem: ",
        "the token cannot be read: nowhere",
    );
    assert_found(
        &told,
        "configuration",
        "ok: ",
        "server-config.yaml loads, 1 setting differs",
    );
    assert_found(
        &told,
        "configuration",
        "ok: ",
        "worker-config.yaml loads, 1 setting differs",
    );
}

#[test]
fn variables_that_mean_nothing_are_told_with_what_was_meant() {
    let folder = tempfile::tempdir().unwrap();
    let told: Typed = command(folder.path(), &["doctor", "configuration", "--json"])
        .env("STEPWARD_LITSEN", "127.0.0.1:1")
        .env("STEPWARD_LOG", "debug")
        .env("STEPWARD_SECRET_PUSH", "a secret that is long enough")
        .output()
        .unwrap()
        .into();
    assert_found(
        &told,
        "configuration",
        "warning: ",
        "STEPWARD_LITSEN means nothing",
    );
    let text = told.stdout;
    assert!(text.contains("did you mean STEPWARD_LISTEN?"), "{text}");
    assert!(!text.contains("STEPWARD_LOG"), "{text}");
    // Workflow files name it by `secrets.allow_env_prefix`.
    assert!(!text.contains("STEPWARD_SECRET_PUSH"), "{text}");
}

#[test]
fn a_data_folder_is_left_as_it_is_whatever_its_server_does() {
    let mut house = House::with(HELLO);
    let data = house.path("data");
    house.submit("hello");
    let names = |folder: &Path| files(folder).into_keys().collect::<Vec<_>>();
    let before = names(&data);
    let told = doctor(&house, &["database", "disk"]);
    assert_found(
        &told,
        "database",
        "ok: ",
        &format!("every page is sound, schema version {SCHEMA_VERSION}"),
    );
    assert_found(&told, "database", "ok: ", "its server runs (process ");
    assert_eq!(names(&data), before);

    house.kill_server();
    let before = files(&data);
    let told = doctor(&house, &["database", "disk"]);
    assert_found(
        &told,
        "database",
        "ok: ",
        "every page is sound, every rule holds",
    );
    assert_found(&told, "database", "warning: ", "was killed");
    assert!(files(&data) == before, "something was changed");

    // A copy of what a killed server left, without what only its memory is for.
    let copy = house.path("copy");
    fs::create_dir(&copy).unwrap();
    for name in ["stepward.db", "stepward.db-wal"] {
        fs::copy(data.join(name), copy.join(name)).unwrap();
    }
    let before = files(&copy);
    let told = doctor_in(&copy, &["database", "--data-dir", "."]);
    assert_found(&told, "database", "warning: ", "has a write-ahead log");
    assert!(files(&copy) == before, "something was changed");

    house.start_server();
    house.stop_server();
    let before = files(&data);
    let told = doctor(&house, &["database", "disk"]);
    assert_found(
        &told,
        "database",
        "ok: ",
        "every page is sound, every rule holds",
    );
    assert!(files(&data) == before, "something was changed");
    house.check();
}

/// A stopped server's folder with some jobs in it.
fn with_jobs() -> House {
    let mut house = House::with(HELLO);
    for _ in 0..20 {
        house.submit("hello");
    }
    house.stop_server();
    house
}

#[test]
fn flipped_bytes_in_the_database_are_found() {
    let house = with_jobs();
    let file = house.path("data").join("stepward.db");
    let sound = fs::read(&file).unwrap();
    let mut bytes = sound.clone();
    for byte in &mut bytes[5 * 4096..9 * 4096] {
        *byte ^= 0x5A;
    }
    fs::write(&file, &bytes).unwrap();
    let told = doctor(&house, &["database"]);
    let problems = found(&told, "database");
    let is_told =
        |line: &String| line.starts_with("problem: not so: every page of the file is sound: ");
    assert!(problems.iter().any(is_told), "{problems:?}");
    assert_eq!(told.code, Some(1));
    assert!(!told.stdout.contains("no backup is known"), "{told:?}");
    assert_eq!(fs::read(&file).unwrap(), bytes);
    let folder = house.path("data");
    let checked = typed(&house, &["db", "check", folder.to_str().unwrap(), "--json"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let breach = &checked.json()["breaches"][0];
    assert_eq!(breach["rule"], "every page of the file is sound");

    fs::write(&file, "rubbish").unwrap();
    let told = doctor(&house, &["database"]);
    assert_found(&told, "database", "problem: ", "is not a database");
    fs::write(&file, sound).unwrap();
    let sql = rusqlite::Connection::open(&file).unwrap();
    sql.pragma_update(None, "user_version", 99).unwrap();
    let told = doctor(&house, &["database"]);
    assert_found(&told, "database", "problem: ", "has schema version 99");
    sql.pragma_update(None, "user_version", SCHEMA_VERSION)
        .unwrap();
    drop(sql);
    // Nothing can be below a file.
    let words = ["database", "--data-dir", file.to_str().unwrap()];
    assert_found(
        &doctor(&house, &words),
        "database",
        "problem: ",
        "cannot be read",
    );
    house.check();
}

/// An older stepward may be what its server is run with.
#[test]
fn commands_that_only_look_leave_an_older_database_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let sql = rusqlite::Connection::open(data.join("stepward.db")).unwrap();
    sql.pragma_update(None, "journal_mode", "WAL").unwrap();
    sql.execute_batch(include_str!("../it/store/released/version-1.sql"))
        .unwrap();
    drop(sql);
    let before = fs::read(data.join("stepward.db")).unwrap();

    let checked = typed_in(folder.path(), &["db", "check", "data"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("every rule holds"), "{checked:?}");
    let told = "it has schema version 1, which the next start of the server upgrades";
    assert!(checked.stderr.contains(told), "{checked:?}");
    for words in [
        &["token", "ls", "--data-dir", "data"][..],
        &["prune", "--dry-run", "--data-dir", "data"],
    ] {
        let refused = typed_in(folder.path(), words);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(
            refused.stderr.contains("has schema version 1"),
            "{refused:?}"
        );
    }
    let after = fs::read(data.join("stepward.db")).unwrap();
    assert!(before == after, "the database was changed");
    assert!(!data.join("stepward.db.version-1").exists());

    // A rule that it breaks is found nevertheless.
    let sql = rusqlite::Connection::open(data.join("stepward.db")).unwrap();
    sql.execute("UPDATE server SET service_clock_up = -1", [])
        .unwrap();
    drop(sql);
    let checked = typed_in(folder.path(), &["db", "check", "data", "--json"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert_eq!(checked.json()["schema_version"], 1);
}

#[test]
fn a_rule_that_the_database_breaks_is_found() {
    let house = with_jobs();
    let file = house.path("data").join("stepward.db");
    let sql = rusqlite::Connection::open(&file).unwrap();
    let up: i64 = sql
        .query_row("SELECT max(since_up) FROM job", [], |row| row.get(0))
        .unwrap();
    let set = |up: i64| {
        let changed = sql.execute("UPDATE server SET service_clock_up = ?1", [up]);
        changed.unwrap();
    };
    set(-1);
    let told = doctor(&house, &["database"]);
    let problems = found(&told, "database");
    let is_told = |line: &String| line.contains("nothing has happened after the service clock");
    assert!(problems.iter().any(is_told), "{problems:?}");
    assert_eq!(told.code, Some(1));
    // And in full by the check itself.
    let folder = house.path("data");
    let told = typed(&house, &["db", "check", "--json", folder.to_str().unwrap()]);
    assert_eq!(told.code, Some(1));
    let json = told.json();
    assert_eq!(json["ok"], false);
    let rule = "nothing has happened after the service clock";
    assert_eq!(json["breaches"][0]["rule"], rule);
    set(up);
    drop(sql);
    let told = typed(&house, &["db", "check", "--json", folder.to_str().unwrap()]);
    assert_eq!(told.json()["breaches"], json!([]));
    assert_eq!(told.code, Some(0));
}

#[test]
fn a_disk_that_will_be_full_soon_is_told_by_how_the_data_grew() {
    let house = with_jobs();
    let told = doctor(&house, &["disk"]);
    assert_found(&told, "disk", "", "not enough history");
    let logs = house.path("data").join("logs/1");
    fs::create_dir_all(&logs).unwrap();
    let found = rustix::fs::statvfs(house.folder.path()).unwrap();
    let free = found.f_bavail * found.f_frsize;
    // It has a length, and takes no room.
    let log = File::create(logs.join("1.1.log")).unwrap();
    let days_ago = |days: u64| SystemTime::now() - Duration::from_secs(days * 86_400 + 60);
    let grown = |bytes: u64| {
        log.set_len(bytes).unwrap();
        log.set_modified(days_ago(2)).unwrap();
        doctor(&house, &["disk"])
    };
    assert_found(&grown(free), "disk", "warning: ", "a day: full in ");
    assert_found(&grown(4 * free), "disk", "problem: ", "a day: full in ");
    log.set_len(0).unwrap();
    house.check();
}

#[test]
fn a_server_that_is_not_there_is_a_problem_and_the_rest_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let told = doctor_in(folder.path(), &["--server", "http://127.0.0.1:1"]);
    assert_found(
        &told,
        "server",
        "problem: ",
        "http://127.0.0.1:1 does not answer",
    );
    for group in ["sweeper", "clock", "workers", "tags", "schedules"] {
        assert_found(&told, group, "skipped: ", "the server does not answer");
    }
    let told = doctor_in(folder.path(), &["server", "--server", "ftp://x"]);
    assert_found(&told, "server", "problem: ", "write http://HOST:PORT");

    // The one of the data folder is known by what it left there.
    let mut house = House::with(HELLO);
    let config = house.path("server.yaml");
    let config = config.to_str().unwrap();
    let told = doctor_in(folder.path(), &["server", "--config", config]);
    assert_found(&told, "server", "ok: ", &house.url());
    house.kill_server();
    let told = doctor_in(folder.path(), &["server", "--config", config]);
    assert_found(&told, "server", "problem: ", "has ended");
    assert!(
        told.stdout.contains("start it again: stepward server"),
        "{}",
        told.stdout
    );
}

#[test]
fn a_server_that_wants_a_token_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef0123\n").unwrap();
    let settings = format!("auth: {{ token_file: {} }}", token.display());
    let house = House::with_settings(HELLO, &settings);
    let told = doctor_in(
        folder.path(),
        &["server", "workers", "--server", &house.url()],
    );
    assert_found(&told, "server", "problem: ", "wants a token");
    assert_found(&told, "workers", "skipped: ", "lets nobody look");
    let words = ["server", "--server", &house.url(), "--token-file", "token"];
    assert_found(
        &doctor_in(folder.path(), &words),
        "server",
        "ok: ",
        "answers in",
    );
}

/// Something at a port that answers as a server would, if it were in trouble. Its times are given by how far they are from now.
struct Responder {
    url: String,
}

impl Responder {
    fn start(answers: Vec<(&'static str, Value)>) -> Responder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let Some(first) = lines.next() else { continue };
                // The whole head, so that closing does not reset.
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let path = first.split_whitespace().nth(1).unwrap_or_default();
                let path = path.split('?').next().unwrap();
                let answer = answers.iter().find(|(known, _)| *known == path);
                let (status, body) = match answer {
                    Some((_, Value::String(text))) => ("200 OK", text.clone()),
                    Some((_, body)) => ("200 OK", body.to_string()),
                    None => ("200 OK", json!({ "items": [], "next": null }).to_string()),
                };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
                );
                // Whoever asked may have gone.
                let _ = (&stream).write_all((head + &body).as_bytes());
            }
        });
        Responder { url }
    }

    fn doctor(&self, words: &[&str]) -> Typed {
        let folder = tempfile::tempdir().unwrap();
        let server = ["doctor", "--json", "--server", &self.url];
        typed_in(folder.path(), &[&server, words].concat())
    }
}

/// So many seconds from now.
fn at(secs: i64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let at = jiff::Timestamp::from_second(now.unwrap().as_secs() as i64 + secs).unwrap();
    at.to_string()
}

fn ready(version: &str, now_secs: i64) -> (&'static str, Value) {
    let health = json!({ "status": "ready", "version": version, "now": at(now_secs) });
    ("/readyz", health)
}

fn recovery(last_sweep_secs: i64, failures: u32) -> (&'static str, Value) {
    let settings = json!({
        "heartbeat_interval_secs": 30, "heartbeat_timeout_secs": 120, "sweep_interval_secs": 60,
        "unmatched_step_timeout_secs": 30, "ack_timeout_secs": 60, "prepare_timeout_secs": 900,
        "report_grace_secs": 30, "cancel_grace_secs": 10,
    });
    let sweep = json!({ "at": at(last_sweep_secs), "recoveries": 0, "failures": failures });
    let recovery = json!({
        "settings": settings, "last_sweep": sweep, "forecast": [], "forecast_more": false, "history": [],
    });
    ("/api/recovery", recovery)
}

const OURS: &str = env!("CARGO_PKG_VERSION");

#[test]
fn another_version_a_late_sweeper_and_a_skewed_clock_are_told() {
    let server = Responder::start(vec![ready("9.9.9", 3_600), recovery(3_600 - 500, 2)]);
    let told = server.doctor(&["server", "sweeper", "clock"]);
    assert_found(
        &told,
        "server",
        "warning: ",
        "is version 9.9.9, this program is",
    );
    assert_found(
        &told,
        "sweeper",
        "problem: ",
        "the last sweep was 8m 20s ago, one is due every 1m",
    );
    assert_found(
        &told,
        "sweeper",
        "warning: ",
        "the last sweep failed 2 times",
    );
    assert_found(&told, "clock", "problem: ", "ahead of this machine's");

    let server = Responder::start(vec![ready(OURS, -20), recovery(-20, 0)]);
    let told = server.doctor(&["server", "sweeper", "clock"]);
    assert_found(&told, "clock", "warning: ", "behind this machine's");
    assert_found(&told, "sweeper", "ok: ", "");
    assert_eq!(told.code, Some(0));

    let stuck = json!({
        "status": "not ready", "problems": ["the sweeper is late"], "version": OURS, "now": at(0),
    });
    let server = Responder::start(vec![("/readyz", stuck)]);
    let told = server.doctor(&["server"]);
    assert_found(
        &told,
        "server",
        "problem: ",
        "is not ready: the sweeper is late",
    );

    let server = Responder::start(vec![("/readyz", json!("<html>hello</html>"))]);
    let told = server.doctor(&["server", "workers"]);
    assert_found(&told, "server", "problem: ", "is no server of ours");
    assert_found(&told, "workers", "skipped: ", "");
}

fn worker(name: &str, heartbeat_secs: i64) -> Value {
    json!({
        "id": 1, "name": name, "status": "active", "tags": ["script"], "slots": 1, "slots_used": 0, "session": 1,
        "version": OURS, "platform": "linux", "last_heartbeat_at": at(heartbeat_secs),
        "heartbeat_age_secs": -heartbeat_secs as f64, "inactive_in_secs": 20.0, "draining": false, "paused": false,
        "running": [],
    })
}

#[test]
fn a_silent_worker_and_one_of_the_future_are_told() {
    let workers = json!({ "items": [worker("quiet", -100), worker("early", 500)], "next": null });
    let server = Responder::start(vec![
        ready(OURS, 0),
        recovery(-5, 0),
        ("/api/workers", workers),
    ]);
    let told = server.doctor(&["workers", "clock"]);
    assert_found(
        &told,
        "workers",
        "warning: ",
        "worker quiet is silent for 1m 40s, and is given up in 20s",
    );
    assert_found(
        &told,
        "clock",
        "warning: ",
        "worker early was last heard of in the future",
    );
}

#[test]
fn workers_that_take_nothing_and_tags_that_nobody_offers_are_told() {
    let workflows =
        format!("{HELLO}  train:\n    flow:\n      learn: {{ script: echo learn, tags: [gpu] }}\n");
    let mut house = House::with(&workflows);
    let told = doctor(&house, &["workers", "tags"]);
    assert_found(
        &told,
        "workers",
        "problem: ",
        "there is no worker: nothing runs",
    );
    assert_found(&told, "tags", "skipped: ", "no worker takes steps");

    let w1 = house.worker(1);
    let told = doctor(&house, &["workers", "tags"]);
    assert_found(&told, "workers", "ok: ", "1 worker active, with 1 slot");
    assert_found(
        &told,
        "tags",
        "problem: ",
        "no worker that takes steps offers gpu + script, which is needed by train/learn",
    );

    let id = house.workers()[0].id;
    let _: WorkerJson = house.post(&format!("/api/workers/{id}/pause")).unwrap();
    // It is there, and steps that wait for it are failed all the same.
    let told = doctor(&house, &["workers", "tags"]);
    assert_found(&told, "workers", "warning: ", "worker w1 is paused");
    assert_found(
        &told,
        "workers",
        "problem: ",
        "none of 1 worker takes steps",
    );
    assert_found(&told, "tags", "skipped: ", "no worker takes steps");
    let status = typed(&house, &["status", "--json"]).json();
    assert_eq!(status["problems"][0]["code"], "no_worker");

    // One of another version, which says hello and is never heard of again.
    let session = json!({
        "name": "old", "instance": "0123456789abcdef", "session": "fedcba9876543210", "tags": ["gpu", "script"],
        "slots": 1, "version": "0.0.1", "platform": "linux", "spooled": [],
    });
    let timeout = Duration::from_secs(10);
    let _: Value = house
        .client
        .post("/api/worker/sessions", &session, timeout)
        .unwrap();
    let told = doctor(&house, &["workers", "tags"]);
    assert_found(
        &told,
        "workers",
        "warning: ",
        "worker old is version 0.0.1, the server is ",
    );
    assert_found(
        &told,
        "tags",
        "ok: ",
        "all steps of 2 tasks find what they need: gpu, script",
    );
    house.await_worker("old", "inactive");
    let told = doctor(&house, &["workers"]);
    assert_found(
        &told,
        "workers",
        "warning: ",
        "worker old is inactive, it was last heard of ",
    );
    assert!(
        told.stdout.contains("stepward worker rm old"),
        "{}",
        told.stdout
    );
    drop(w1);
    house.check();
}

const NIGHTLY: &str = "tasks:
  hello:
    flow:
      say: { script: echo hello }
    schedules:
      nightly: { cron: '0 3 * * *' }
";

/// There need not be a file for it.
#[test]
fn a_variable_that_means_nothing_here_is_a_problem_without_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut asked = command(folder.path(), &["doctor", "configuration", "--json"]);
    let told: Typed = asked.env("STEPWARD_SLOTS", "abc").output().unwrap().into();
    assert_eq!(told.code, Some(1), "{told:?}");
    assert_found(&told, "configuration", "problem: ", "invalid value 'abc'");
    assert_eq!(told.json()["problems"], 1);
}

#[test]
fn lines_are_no_wider_than_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    for columns in [80, 40] {
        let (_, seen) = shown(command(folder.path(), &["doctor"]), columns);
        assert!(
            seen.contains("no backup is known") || seen.contains("configuration"),
            "{seen}"
        );
        fits(&seen, usize::from(columns));
    }
}

#[test]
fn a_paused_schedule_is_told() {
    let house = House::with(NIGHTLY);
    let told = doctor(&house, &["schedules"]);
    assert_found(
        &told,
        "schedules",
        "ok: ",
        "1 schedule; next is hello.nightly in ",
    );
    let _: Value = house.post("/api/schedules/1/pause").unwrap();
    let told = doctor(&house, &["schedules"]);
    assert_found(
        &told,
        "schedules",
        "warning: ",
        "schedule hello.nightly is paused",
    );
    assert!(
        told.stdout.contains("stepward schedule resume 1"),
        "{}",
        told.stdout
    );
    house.check();
}

#[test]
fn schedules_without_a_file_and_with_a_bad_last_time_are_told() {
    let schedule = |name: &str, loaded: bool, outcome: &str| {
        json!({
            "id": 7, "task": "hello", "name": name, "cron": "0 3 * * *", "timezone": "UTC", "input": {},
            "overlap": "skip", "catch_up": { "policy": "none" }, "enabled": true, "paused": false, "loaded": loaded,
            "next_at": at(3_600), "following": [], "created_at": at(-9_000), "removed_at": null,
            "last": {
                "due_at": at(-60), "until_at": null, "outcome": outcome, "manual": false, "job_id": null, "at": at(-50),
                "message": "so it is",
            },
        })
    };
    let schedules = json!({
        "items": [schedule("a", false, "fired"), schedule("b", true, "missed"), schedule("c", true, "refused")],
        "next": null,
    });
    let server = Responder::start(vec![ready(OURS, 0), ("/api/schedules", schedules)]);
    let told = server.doctor(&["schedules"]);
    assert_found(
        &told,
        "schedules",
        "problem: ",
        "schedule hello.a makes no jobs: its file does not load",
    );
    assert_found(&told, "schedules", "warning: ", "schedule hello.b missed ");
    assert_found(
        &told,
        "schedules",
        "problem: ",
        "schedule hello.c was refused at ",
    );
    assert_eq!(told.json()["problems"], 2);
}

#[test]
fn workflow_files_that_do_not_load_are_told_with_and_without_a_server() {
    let mut house = House::with(HELLO);
    house.write_workflow("broken.yaml", "tasks:\n  x: { flwo: {} }\n");
    let told = await_that("the server has seen it", || {
        let told = doctor(&house, &["workflows"]);
        (told.code == Some(1)).then_some(told)
    });
    let problems = found(&told, "workflows");
    let is_told = |line: &String| line.contains("broken.yaml:2:");
    assert!(problems.iter().any(is_told), "{problems:?}");
    assert_found(&told, "workflows", "problem: ", "it is not served at all");
    assert_eq!(told.json()["problems"], 1, "one file, one problem");
    house.stop_server();
    let folder = tempfile::tempdir().unwrap();
    let config = house.path("server.yaml");
    let words = ["workflows", "--config", config.to_str().unwrap()];
    let told = doctor_in(folder.path(), &words);
    let problems = found(&told, "workflows");
    assert!(problems.iter().any(is_told), "{problems:?}");
    assert!(
        told.stdout.contains("stepward validate "),
        "{}",
        told.stdout
    );
    house.check();
}

#[test]
fn secrets_that_are_not_there_are_told_and_none_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let workflows = folder.path().join("workflows");
    fs::create_dir(&workflows).unwrap();
    let here = folder.path().canonicalize().unwrap();
    let settings = format!(
        "secrets: {{ allow_files: [{}], allow_env_prefix: DOCTOR_ }}\n",
        here.display()
    );
    fs::write(folder.path().join("server-config.yaml"), settings).unwrap();
    let text = "secrets:
  one: { env: DOCTOR_ONE }
  two: { file: nowhere/two }
  three: { file: three }
tasks:
  hello:
    flow:
      say: { script: \"echo {{ secret.one }} {{ secret.two }} {{ secret.three }}\" }
";
    fs::write(workflows.join("all.yaml"), text).unwrap();
    fs::write(folder.path().join("three"), "tellnobody3\n").unwrap();
    let told = doctor_in(folder.path(), &["workflows", "secrets"]);
    assert_found(&told, "workflows", "ok: ", "every file loads");
    assert_found(
        &told,
        "secrets",
        "warning: ",
        "a secret of task hello is not in this environment: DOCTOR_ONE",
    );
    assert_found(&told, "secrets", "problem: ", "nowhere/two");
    assert_eq!(found(&told, "secrets").len(), 2);
    fs::create_dir(folder.path().join("nowhere")).unwrap();
    fs::write(folder.path().join("nowhere/two"), "tellnobody2\n").unwrap();
    let told: Typed = command(folder.path(), &["doctor", "--json"])
        .env("DOCTOR_ONE", "tellnobody1")
        .output()
        .unwrap()
        .into();
    assert_found(&told, "secrets", "ok: ", "3 secrets found");
    assert!(!told.stdout.contains("tellnobody"), "{}", told.stdout);
    assert!(!told.stderr.contains("tellnobody"), "{}", told.stderr);

    // What the server would refuse is told with the setting; what `stepward dev` allows all the same is a warning.
    let settings = "secrets: { allow_files: [] }\n";
    fs::write(folder.path().join("server-config.yaml"), settings).unwrap();
    let told = doctor_in(folder.path(), &["secrets"]);
    let three = here.join("three").display().to_string();
    for advice in [
        format!("secrets.allow_files is empty in the server's settings; add {three} to it"),
        "or change secrets.allow_env_prefix".to_string(),
    ] {
        assert_found(&told, "secrets", "warning: ", &advice);
    }
    let settings = format!("secrets: {{ allow_files: [{}/three] }}\n", here.display());
    fs::write(folder.path().join("server-config.yaml"), settings).unwrap();
    fs::write(folder.path().join("three"), "12345\n").unwrap();
    let told = doctor_in(folder.path(), &["secrets"]);
    assert_found(&told, "secrets", "problem: ", "at least 6 bytes");
}

#[test]
fn a_tool_that_the_settings_promise_and_that_does_not_answer_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "embedded_worker: { tags: [docker], docker: { command: /nowhere/docker } }\n";
    fs::write(folder.path().join("server-config.yaml"), settings).unwrap();
    let told = doctor_in(folder.path(), &["tools"]);
    assert_found(
        &told,
        "tools",
        "warning: ",
        "the settings offer docker, but /nowhere/docker cannot be started",
    );
    let workflows = folder.path().join("workflows");
    fs::create_dir(&workflows).unwrap();
    let text = "tasks:\n  boxed:\n    flow:\n      say: { runner: docker, image: busybox, script: echo hi }\n";
    fs::write(workflows.join("all.yaml"), text).unwrap();
    let told = doctor_in(folder.path(), &["tools"]);
    assert_found(&told, "tools", "problem: ", "tasks need it");
}

/// On a disk of its own, with less room than anybody should have.
#[cfg(feature = "faults")]
#[test]
fn a_disk_that_is_nearly_full_is_told() {
    let mount_point = tempfile::tempdir().unwrap();
    for (size, status) in [("64m", "problem: "), ("512m", "warning: ")] {
        let inside = format!(
            "mount -t tmpfs -o size={size} tmpfs \"$disk\" && cd / && exec \"$me\" doctor --json disk --data-dir \"$disk\""
        );
        let told: Typed = std::process::Command::new("unshare")
            .args(["--mount", "--map-root-user", "sh", "-euc", &inside])
            .env("disk", mount_point.path())
            .env("me", crate::house::BINARY)
            .output()
            .unwrap()
            .into();
        assert_found(&told, "disk", status, " MiB free");
    }
}

#[test]
fn a_backup_is_known_and_so_is_a_copy_of_the_folder_until_it_is_old() {
    let mut house = House::with(HELLO);
    house.stop_server();
    let told = doctor(&house, &["database"]);
    assert_found(&told, "database", "warning: ", "no backup is known");
    let fix = told.json()["checks"][1]["fix"][0]
        .as_str()
        .unwrap()
        .to_string();
    let (_, command) = fix.split_once("make one: stepward ").expect(&fix);
    let made = std::process::Command::new("sh")
        .args(["-c", &format!("{} {command}", crate::house::BINARY)])
        .output()
        .unwrap();
    assert!(made.status.success(), "{command}: {made:?}");
    let told = doctor(&house, &["database"]);
    assert_found(&told, "database", "ok: ", "the last backup is of ");
    fs::remove_file(house.path("data/last-backup.json")).unwrap();

    let copy = format!("{}.backup-by-hand", house.path("data").display());
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(house.path("data"))
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success(), "{copy}");
    let told = doctor(&house, &["database"]);
    assert_found(&told, "database", "ok: ", "the last backup is ");

    let long_ago = SystemTime::now() - Duration::from_secs(8 * 86_400);
    let file = fs::File::options()
        .write(true)
        .open(Path::new(&copy).join("stepward.db"));
    file.unwrap().set_modified(long_ago).unwrap();
    let told = doctor(&house, &["database"]);
    assert_found(&told, "database", "warning: ", ", of 8d ago");
}

#[test]
fn a_database_too_large_to_look_at_is_not_called_sound_and_a_log_that_grew_is_told() {
    let mut house = House::with(HELLO);
    house.stop_server();
    let data = house.path("data");
    let grow = |name: &str, bytes: u64| {
        let file = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(data.join(name));
        file.unwrap().set_len(bytes).unwrap();
    };
    // Nothing of it is on the disk.
    grow("stepward.db", 1_200 << 20);
    let told = doctor(&house, &["database"]);
    assert_found(
        &told,
        "database",
        "skipped: ",
        "too large to look at every page here",
    );
    assert!(told.stdout.contains("stepward db check"), "{told:?}");

    let mut house = House::with(HELLO);
    let job_id = house.submit("hello");
    house.kill_server();
    let wal = house.path("data").join("stepward.db-wal");
    let file = fs::File::options().write(true).open(wal).unwrap();
    file.set_len(300 << 20).unwrap();
    let told = doctor(&house, &["database"]);
    let grown = "the write-ahead log has grown to 300 MiB";
    let all = found(&told, "database");
    assert!(
        all.iter().any(|line| line.contains(grown)),
        "job {job_id}: {all:?}"
    );
}

#[test]
fn a_server_that_was_stopped_by_a_signal_is_not_to_be_started_again() {
    let house = House::with(HELLO);
    let config = house.path("server.yaml");
    let folder = tempfile::tempdir().unwrap();
    house.server().signal(Signal::STOP);
    let told = doctor_in(
        folder.path(),
        &["server", "--config", config.to_str().unwrap()],
    );
    house.server().signal(Signal::CONT);
    assert_found(&told, "server", "problem: ", "which may be stopped or busy");
    let cont = format!("kill -CONT {}", house.server().id());
    assert!(told.stdout.contains(&cont), "{told:?}");
    assert!(!told.stdout.contains("start it"), "{told:?}");
    house.check();
}

#[test]
fn settings_that_lead_nowhere_are_no_defaults() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/nonexistent", folder.path().join("server-config.yaml")).unwrap();
    let told = doctor_in(folder.path(), &["configuration"]);
    assert_found(
        &told,
        "configuration",
        "problem: ",
        "server-config.yaml cannot be read",
    );
    assert_eq!(typed_in(folder.path(), &["config", "show"]).code, Some(5));
}

#[test]
fn all_problems_are_counted_though_not_all_are_told() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("workflows")).unwrap();
    for n in 0..30 {
        let file = folder.path().join(format!("workflows/broken-{n}.yaml"));
        fs::write(file, "tasks: { a: { flow: { b: { scrpt: x } } } }\n").unwrap();
    }
    let told = doctor_in(folder.path(), &["workflows"]);
    let json = told.json();
    assert_eq!(json["problems"], 30, "{json}");
    let checks = json["checks"].as_array().unwrap();
    let is_rest = |check: &&Value| check["message"].as_str().unwrap().starts_with("and ");
    let more = checks.iter().find(is_rest);
    assert!(
        !more.unwrap()["fix"].as_array().unwrap().is_empty(),
        "{json}"
    );
}
