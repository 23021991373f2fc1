//! A database that was put back: workers that have worked for its later state notice, and no log of another life is shown.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use stepward::store::{Store, StoreOptions};

use super::line::Answer;
use super::{ServerHouse, session_request, word};

impl ServerHouse {
    fn stop(&mut self) {
        self.server.stop();
    }

    fn start(&mut self) {
        self.server = stepward::server::Server::start_with(&self.config, self.limits).unwrap();
    }

    /// A call of a worker that has seen this epoch.
    fn call(&self, path: &str, seen: &str, body: &Value) -> Answer {
        let headers = format!("stepward-lineage: {seen}\r\n");
        self.ask("POST", path, &headers, body.to_string().as_bytes())
    }

    /// The epoch that this server tells workers.
    fn epoch(&self) -> String {
        let answer = self.post("/api/worker/heartbeat", &json!({}));
        answer.header("stepward-lineage").unwrap().to_string()
    }

    fn rollback_events(&self) -> Vec<String> {
        let events = self.get("/api/events?limit=500").expect(200);
        let events = events["items"].as_array().unwrap().iter();
        let events = events.filter(|event| event["kind"] == "rollback_noticed");
        events.map(|event| word(&event["message"])).collect()
    }

    /// What `stepward server --accept-older-database` and `stepward restore` do to the database.
    fn begin_new_lineage(&self) {
        let store = Store::open(&self.config.data_dir, StoreOptions::default()).unwrap();
        let begun = store.write(|tx| tx.begin_new_lineage());
        begun.unwrap();
    }

    fn log_files(&self, job_id: i64) -> Vec<String> {
        let folder = self.config.data_dir.join(format!("logs/{job_id}"));
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".log"))
            .collect();
        names.sort();
        names
    }

    fn log_text(&self, job_id: i64) -> String {
        let path = format!("/api/jobs/{job_id}/steps/greet/logs?raw=1");
        let answer = self.get(&path);
        assert_eq!(answer.status, 200);
        answer.text()
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn send_log(house: &ServerHouse, session: &str, step_id: i64, text: &str) {
    let session = session.replace(' ', "%20");
    let path = format!("/api/worker/steps/{step_id}/attempts/1/log?session={session}&offset=0");
    let line = format!("1763312345678 o {text}\n");
    let answer = house.ask("PUT", &path, "", line.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn a_worker_that_has_seen_a_later_state_is_refused_until_that_state_is_back() {
    let mut house = ServerHouse::new();
    let data = house.config.data_dir.clone();
    let (early, late) = (house.path().join("early"), house.path().join("late"));
    house.stop();
    copy_folder(&data, &early);
    house.start();
    let ann = house.worker("ann", &[], 1);
    let session = ann.session.clone();
    let seen = house.epoch();
    house.stop();
    fs::rename(&data, &late).unwrap();
    copy_folder(&early, &data);

    // The next start has the same number as the one that was lost, and is told from it all the same. So is the one after that.
    house.start();
    let beat = json!({ "session": session, "seq": 1, "held": [] });
    for _ in 0..2 {
        let refused = house.call("/api/worker/heartbeat", &seen, &beat);
        assert_eq!(refused.refused(503), "server_rolled_back");
        assert!(
            refused
                .message()
                .contains("stepward server --data-dir FOLDER --accept-older-database")
        );
        let open = session_request("ann", "ann 2", &[], 1);
        let refused = house.call("/api/worker/sessions", &seen, &open);
        assert_eq!(refused.refused(503), "server_rolled_back");
        house.restart();
    }
    let open = session_request("ann", "ann 2", &[], 1);
    house.call("/api/worker/sessions", &seen, &open);
    house.call("/api/worker/sessions", &seen, &open);
    assert_eq!(house.get("/api/workers").expect(200)["items"], json!([]));

    // People are told: once for each worker in each life of the server.
    let told = house.rollback_events();
    let of_ann = told
        .iter()
        .filter(|told| told.starts_with("worker ann is refused"));
    assert_eq!(of_ann.count(), 3, "{told:?}");
    let ready = house.get("/readyz").json();
    assert_eq!(
        ready["rollback"]["workers"],
        json!(["worker ann"]),
        "{ready}"
    );
    let page = house.ask("GET", "/", "accept: text/html\r\n", b"").text();
    assert!(page.contains("the database was rolled back"), "{page}");

    // A worker that has seen nothing yet, such as one of version 0.1, is not refused.
    house.worker("new", &[], 1);

    // With the later state back in its place, the session goes on.
    house.stop();
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&late, &data).unwrap();
    house.start();
    house
        .call("/api/worker/heartbeat", &seen, &beat)
        .expect(200);
    assert_eq!(house.get("/readyz").json().get("rollback"), None);
}

/// The copy was made after the last start, so only the number of a commit tells.
#[test]
fn a_worker_that_has_seen_a_lost_commit_is_refused() {
    let mut house = ServerHouse::new();
    let data = house.config.data_dir.clone();
    let early = house.path().join("early");
    let ann = house.worker("ann", &[], 1);
    let session = ann.session.clone();
    house.stop();
    house.start();
    // Before the copy: the server may commit something between the two.
    let seen_early = house.epoch();
    copy_folder(&data, &early);
    house.submit("hello");
    let seen = house.epoch();
    assert_ne!(seen, seen_early);
    house.stop();
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&early, &data).unwrap();
    // The server may have written while the files were copied one after the other.
    fs::remove_file(data.join("stepward.mark")).unwrap();
    house.start();
    let beat = json!({ "session": session, "seq": 1, "held": [] });
    let refused = house.call("/api/worker/heartbeat", &seen, &beat);
    assert_eq!(refused.refused(503), "server_rolled_back");
    assert!(house.rollback_events()[0].starts_with("worker ann is refused"));
    // What this worker has seen is all there.
    house
        .call("/api/worker/heartbeat", &seen_early, &beat)
        .expect(200);
}

#[test]
fn a_new_lineage_is_accepted_and_ends_every_session_of_the_former_one() {
    let mut house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let (greet, session) = (ann.begin(), ann.session.clone());
    let seen = house.epoch();
    house.stop();
    house.begin_new_lineage();
    house.start();
    assert_ne!(house.epoch().split(';').next(), seen.split(';').next());

    // The step still runs for the database. What the worker says of it in its former session is not taken for it.
    let beat = json!({ "session": session, "seq": 1, "held": [] });
    let gone = house.call("/api/worker/heartbeat", &seen, &beat);
    assert_eq!(gone.refused(410), "session_unknown");
    let mut open = session_request("ann", "ann 2", &[], 1);
    open["spooled"] = json!([{
        "step_id": greet["step_id"], "attempt": greet["attempt"], "session": session,
        "finished": { "outcome": "completed", "exit_code": 0 },
    }]);
    let opened = house.call("/api/worker/sessions", &seen, &open).expect(200);
    assert_eq!(opened["spooled"][0]["result"], "abort");
    assert_eq!(house.status(1), "failed");
    assert_eq!(house.rollback_events(), [] as [String; 0]);
}

#[test]
fn the_log_of_another_life_is_never_shown() {
    let mut house = ServerHouse::new();
    house.submit("ask");
    let database = house.database();
    let early = house.path().join("early.db");
    house.stop();
    fs::copy(&database, &early).unwrap();
    house.start();
    let run = |house: &ServerHouse, life: u32, text: &str| {
        let job_id = house.submit("hello");
        let ann = house.life("ann", life, &[], 1);
        let greet = ann.begin();
        let step_id = greet["step_id"].as_i64().unwrap();
        if !text.is_empty() {
            send_log(house, &ann.session, step_id, text);
        }
        assert_eq!(ann.complete(&greet), "accepted");
        (job_id, step_id)
    };
    let first = run(&house, 1, "of the first life");
    assert!(house.log_text(first.0).contains("of the first life"));

    // Somebody puts an older database beside the logs and accepts it. The same numbers are given again.
    house.stop();
    for file in ["stepward.db-wal", "stepward.db-shm", "stepward.mark"] {
        // Not all of them are there after a stop.
        let _ = fs::remove_file(house.config.data_dir.join(file));
    }
    fs::copy(&early, &database).unwrap();
    house.begin_new_lineage();
    let logs = house.config.data_dir.join("logs");
    let of_first_life = logs.join("2").join(&house.log_files(2)[0]);
    let kept = house.path().join("kept.log");
    fs::copy(&of_first_life, &kept).unwrap();
    house.start();
    assert_eq!(run(&house, 1, ""), first);
    // The server removes files of jobs that its database does not know. This file is there all the same.
    fs::create_dir_all(logs.join("2")).unwrap();
    fs::copy(&kept, &of_first_life).unwrap();
    assert_eq!(house.log_text(first.0), "", "this attempt printed nothing");

    // A log stays readable in the lineages that follow its own.
    let second = run(&house, 2, "of the second life");
    assert!(house.log_text(second.0).contains("of the second life"));
    house.stop();
    house.begin_new_lineage();
    house.start();
    assert!(house.log_text(second.0).contains("of the second life"));
    let third = run(&house, 3, "of the third life");
    assert!(house.log_text(third.0).contains("of the third life"));
    let names = [house.log_files(second.0), house.log_files(third.0)].concat();
    let tag = |name: &str| name.split('.').nth(2).unwrap().to_string();
    assert_eq!(names.len(), 2);
    assert_ne!(tag(&names[0]), tag(&names[1]));
}

#[test]
fn a_session_of_version_0_1_goes_on_with_logs_of_the_old_names() {
    let mut house = ServerHouse::new();
    house.submit("hello");
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.begin();
    let session = ann.session.clone();
    let step_id = greet["step_id"].as_i64().unwrap();
    house.stop();
    // As the upgrade leaves it: the first session is older than the first lineage.
    let sql = rusqlite::Connection::open(house.database()).unwrap();
    sql.execute("UPDATE lineage SET first_session_id = 2", [])
        .unwrap();
    drop(sql);
    house.start();
    send_log(&house, &session, step_id, "over the upgrade");
    assert_eq!(house.log_files(1), [format!("{step_id}.1.log")]);
    house.restart();
    assert!(house.log_text(1).contains("over the upgrade"));

    let bob = house.worker("bob", &[], 1);
    let greet = bob.begin();
    send_log(
        &house,
        &bob.session,
        greet["step_id"].as_i64().unwrap(),
        "after it",
    );
    assert!(house.log_text(2).contains("after it"));
    assert_eq!(
        house.log_files(2)[0].split('.').count(),
        4,
        "with a lineage"
    );
}
