//! Servers that die, are stopped, or are away for longer than a worker may be silent.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stepward::client::{CallError, Client};
use stepward::wire::api::{JobJson, SubmitRequest};

use crate::house::{House, PATIENT, await_that};
use crate::ledger::{self, AWAIT_GATE, BEGIN, END};

/// Submits one job after the other, and keeps the ids that it was given.
struct Submitter {
    enough: Arc<AtomicBool>,
    thread: JoinHandle<Vec<i64>>,
}

impl Submitter {
    fn start(url: &str, path: &'static str) -> Submitter {
        let client = Client::new(url, None);
        let enough = Arc::new(AtomicBool::new(false));
        let told = enough.clone();
        let thread = std::thread::spawn(move || {
            let mut accepted = Vec::new();
            while !told.load(Ordering::Relaxed) {
                let request = SubmitRequest::default();
                match client.post::<_, JobJson>(path, &request, Duration::from_secs(5)) {
                    Ok(job) => accepted.push(job.id),
                    // It may or may not have happened.
                    Err(CallError::Unreachable(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                // About as many as the workers can run.
                std::thread::sleep(Duration::from_millis(30));
            }
            accepted
        });
        Submitter { enough, thread }
    }

    fn end(self) -> Vec<i64> {
        self.enough.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn a_server_killed_under_load_loses_nothing_that_it_had_said_yes_to() {
    let workflows = format!(
        "tasks:
  pair:
    flow:
      one: {{ script: '{BEGIN}; sleep 0.1; {END}' }}
      two: {{ script: '{BEGIN}; {END}', depends_on: [one] }}
"
    );
    let mut house = House::with(&workflows);
    let _workers = [house.worker(4), house.worker(4)];
    let submitter = Submitter::start(&house.url(), "/api/tasks/pair/jobs");
    for _ in 0..4 {
        let before = house.read("ledger").lines().count();
        await_that("more steps have run", || {
            let ran = house.read("ledger").lines().count();
            (ran > before + 8).then_some(())
        });
        house.kill_server();
        house.start_server();
    }
    let accepted = submitter.end();
    assert!(accepted.len() > 8, "{accepted:?}");
    for job_id in &accepted {
        house.await_job(*job_id, "completed");
        let events = house.events(*job_id).into_iter();
        let kinds: Vec<String> = events.map(|event| event.kind).collect();
        assert_eq!(kinds, ["job_submitted", "job_completed"], "job {job_id}");
        for step in ["one", "two"] {
            let lives = ledger::lives(&house);
            assert_eq!(lives[&format!("{job_id}/{step}/1")], (1, 1));
        }
    }
    // Also of those whose answer was lost.
    for attempt in ledger::lives(&house).keys() {
        assert!(attempt.ends_with("/1"), "nothing ran twice: {attempt}");
    }
    // Jobs come and go side by side, so only this is sure: besides them there is nothing to tell.
    let mut story = house.story();
    story
        .retain(|event| !event.starts_with("job_submitted") && !event.starts_with("job_completed"));
    assert_eq!(story, ["worker_registered w1", "worker_registered w2"]);
    house.check();
}

/// A step that goes on until a file of this name is there.
fn gated() -> String {
    format!(
        "tasks:
  long:
    flow:
      work: {{ script: '{BEGIN}; {AWAIT_GATE}; {END}' }}
  longer:
    flow:
      work: {{ script: '{BEGIN}; while [ ! -e LEDGER.second ]; do sleep 0.05; done; {END}' }}
"
    )
}

#[test]
fn a_server_that_was_away_for_longer_than_a_worker_may_be_silent_fails_nothing() {
    let mut house = House::with(&gated());
    let _worker = house.worker(2);
    let ending = house.submit("long");
    let going_on = house.submit("longer");
    house.await_step(ending, "work", "running");
    house.await_step(going_on, "work", "running");
    assert!(house.stop_server());
    // The time of being away is what this story is about.
    std::thread::sleep(Duration::from_secs(5));
    house.open_gate();
    await_that("one ends while nobody listens", || {
        let ended = ledger::lives(&house)
            .get(&format!("{ending}/work/1"))
            .copied();
        (ended == Some((1, 1))).then_some(())
    });
    house.start_server();
    house.await_job(ending, "completed");
    house.await_sweep();
    assert_eq!(house.step(going_on, "work").status, "running");
    std::fs::write(house.path("ledger.second"), "").unwrap();
    house.await_job(going_on, "completed");
    assert_eq!(ledger::lives(&house)[&format!("{going_on}/work/1")], (1, 1));
    house.ends(&[
        "worker_registered w1",
        "job_submitted 1",
        "job_submitted 2",
        "job_completed 1",
        "job_completed 2",
    ]);
}

#[test]
fn a_server_that_was_frozen_gives_nobody_up() {
    let mut house = House::with(&gated());
    let _worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_step(job_id, "work", "running");
    house.server().signal(Signal::STOP);
    // As above.
    std::thread::sleep(Duration::from_secs(5));
    house.server().signal(Signal::CONT);
    house.await_sweep();
    assert_eq!(house.step(job_id, "work").status, "running");
    house.open_gate();
    house.await_job(job_id, "completed");
    house.ends(&["worker_registered w1", "job_submitted 1", "job_completed 1"]);
}

#[test]
fn a_server_stops_in_seconds_with_workers_connected_and_their_steps_go_on() {
    let mut house = House::with(&gated());
    let worker = house.worker(2);
    let job_id = house.submit("long");
    house.await_step(job_id, "work", "running");
    let begun = Instant::now();
    assert!(house.stop_server());
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert!(worker.process().is_alive());
    house.start_server();
    assert_eq!(house.step(job_id, "work").status, "running");
    house.open_gate();
    house.await_job(job_id, "completed");
    assert_eq!(ledger::lives(&house)[&format!("{job_id}/work/1")], (1, 1));
    house.ends(&["worker_registered w1", "job_submitted 1", "job_completed 1"]);
}

#[test]
fn a_second_server_on_the_same_folder_and_one_on_a_taken_port_are_refused_in_one_line() {
    let house = House::with("tasks: {}");
    let refused = |arguments: &[&str]| {
        let ended = std::process::Command::new(crate::house::BINARY)
            .arg("server")
            .args(arguments)
            .output()
            .unwrap();
        assert!(!ended.status.success());
        String::from_utf8(ended.stderr).unwrap()
    };
    let data = house.path("data");
    let data = data.to_str().unwrap();
    let said = refused(&["--listen", "127.0.0.1:0", "--data-dir", data]);
    assert!(said.contains("in use by another server"), "{said}");
    let address = house.url();
    let address = address.strip_prefix("http://").unwrap();
    let other = house.path("other");
    let said = refused(&["--listen", address, "--data-dir", other.to_str().unwrap()]);
    assert!(said.contains("cannot listen on"), "{said}");
    let said = refused(&[
        "--listen",
        "0.0.0.0:0",
        "--data-dir",
        other.to_str().unwrap(),
    ]);
    assert!(said.contains("plain_http: true"), "{said}");
    house.ends(&[]);
}

#[test]
fn a_server_with_a_worker_of_its_own_runs_steps_and_takes_them_along_when_it_stops() {
    let settings = format!("embedded_worker: {{ name: inside, slots: 2 }}\n{PATIENT}");
    let workflows = "
tasks:
  quick:
    flow:
      work: { script: echo hello }
  long:
    flow:
      work: { script: SLEEP }
";
    let mut house = House::with_settings(workflows, &settings);
    house.await_worker("inside", "active");
    let quick = house.submit("quick");
    house.await_job(quick, "completed");
    assert_eq!(house.log_lines(quick, "work")[0], "hello");
    let long = house.submit("long");
    house.await_asleep(1);
    assert!(house.stop_server());
    assert!(house.asleep().is_empty());
    house.start_server();
    house.await_job(long, "failed");
    house.ends(&[
        "worker_registered inside",
        "job_submitted 1",
        "job_completed 1",
        "job_submitted 2",
        "worker_draining inside",
        "step_failed 2/work/1 worker_shutdown inside",
        "job_failed 2 worker_shutdown",
        "worker_restarted inside",
    ]);
}

#[test]
fn whoever_has_no_token_is_not_let_in() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "0123456789abcdef0123\n").unwrap();
    let settings = format!("auth: {{ token_file: {} }}", token_file.display());
    let mut house = House::with_settings("tasks: {}", &settings);
    let said = house.server().said();
    assert!(
        said.contains("every user of this machine can read"),
        "{said}"
    );
    let timeout = Duration::from_secs(5);
    let _: serde_json::Value = house.client.get("/healthz", timeout).unwrap();
    let refused = house.client.get::<serde_json::Value>("/api/jobs", timeout);
    assert!(matches!(
        refused,
        Err(CallError::Refused { status: 401, .. })
    ));
    let wrong = stepward::client::Client::new(&house.url(), Some("0123456789abcdef0124"));
    let refused = wrong.get::<serde_json::Value>("/api/jobs", timeout);
    assert!(matches!(
        refused,
        Err(CallError::Refused { status: 401, .. })
    ));
    let known = stepward::client::Client::new(&house.url(), Some("0123456789abcdef0123"));
    let _: serde_json::Value = known.get("/api/jobs", timeout).unwrap();
    let mut command = std::process::Command::new(crate::house::BINARY);
    command.args([
        "worker",
        "--server",
        &house.url(),
        "--name",
        "w",
        "--data-dir",
    ]);
    command.arg(folder.path().join("worker"));
    command.env("STEPWARD_TOKEN", "0123456789abcdef0123");
    let worker = crate::house::Process::start("w", command);
    await_that("the worker is let in", || {
        worker.said().contains("session opened").then_some(())
    });
    house.client = known;
    house.ends(&["worker_registered w"]);
}

#[test]
fn a_server_whose_database_is_taken_away_ends_and_does_not_begin_anew() {
    let mut house = House::with("tasks: { hello: { flow: { a: { script: echo hello } } } }");
    let job = house.submit("hello");
    let (file, aside) = (house.path("data/stepward.db"), house.path("aside.db"));
    std::fs::rename(&file, &aside).unwrap();
    let timeout = Duration::from_secs(5);
    let submit = |house: &House| {
        let path = "/api/tasks/hello/jobs";
        let body = serde_json::json!({});
        (house.client).post::<_, serde_json::Value>(path, &body, timeout)
    };
    assert!(submit(&house).is_err(), "nobody would find it again");
    await_that("it says why it ends", || {
        let said = house.server().said();
        said.contains("the database was removed or replaced while it is in use")
            .then_some(())
    });
    house.kill_server();
    let data = house.path("data");
    let words = ["server", "--listen", "127.0.0.1:0", "--data-dir"];
    let refused = std::process::Command::new(crate::house::BINARY)
        .args(words)
        .arg(&data)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("stepward.db is missing, and "),
        "{said}"
    );
    std::fs::rename(&aside, &file).unwrap();
    house.start_server();
    assert_eq!(house.job(job).id, job);

    // Emptied in place, and nobody writes: the server notices by itself.
    house.stop_server();
    std::fs::copy(&file, &aside).unwrap();
    house.start_server();
    std::fs::write(&file, "").unwrap();
    await_that("it says why it ends", || {
        let said = house.server().said();
        let mut lines = said.lines();
        let line =
            lines.find(|line| line.contains("the database was emptied while it is in use"))?;
        // The next start is refused, so nothing promises that it recovers.
        assert!(!line.contains("recovers"), "{line}");
        line.contains("stepward restore FILE --data-dir ")
            .then_some(())
    });
    house.kill_server();
    std::fs::copy(&aside, &file).unwrap();
    // SQLite deletes the write-ahead log if a connection is opened while the database file is empty. Then the copy lacks the commits
    // of the last start, and the server refuses it.
    crate::rollback::accept(&data);
    house.start_server();
    assert_eq!(house.job(job).id, job);
    house.check();
}

/// The submission is answered, or it is not and the server has said why it ends.
fn submits(house: &House) -> bool {
    let path = "/api/tasks/hello/jobs";
    let body = serde_json::json!({});
    let timeout = Duration::from_secs(5);
    let answer = (house.client).post::<_, serde_json::Value>(path, &body, timeout);
    answer.is_ok()
}

fn run_offline(words: &[&str], data: &std::path::Path) -> (Option<i32>, String) {
    let ran = std::process::Command::new(crate::house::BINARY)
        .args(words)
        .arg(data)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    (ran.status.code(), said)
}

#[test]
fn a_server_whose_write_ahead_log_is_taken_away_ends_and_loses_nothing() {
    let mut house = House::with("tasks: { hello: { flow: { a: { script: echo hello } } } }");
    let jobs: Vec<i64> = (0..5).map(|_| house.submit("hello")).collect();
    std::fs::remove_file(house.path("data/stepward.db-wal")).unwrap();
    assert!(!submits(&house), "nobody would find it again");
    await_that("it says why it ends", || {
        let said = house.server().said();
        let why = "the write-ahead log was removed or replaced while it is in use";
        let saved = "all of its commits were moved into the database";
        (said.contains(why) && said.contains(saved)).then_some(())
    });
    house.kill_server();
    house.start_server();
    for job in &jobs {
        assert_eq!(house.job(*job).id, *job);
    }
    // Emptied in place, it has lost what it held, and the server notices by itself.
    let log = house.path("data/stepward.db-wal");
    house.submit("hello");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&log)
        .and_then(|file| file.set_len(0))
        .unwrap();
    await_that("it says why it ends", || {
        let said = house.server().said();
        (said.contains("the write-ahead log was emptied while it is in use")).then_some(())
    });
    house.kill_server();
    let data = house.path("data");
    let server = ["server", "--listen", "127.0.0.1:0", "--data-dir"];
    let (code, said) = run_offline(&server, &data);
    assert!(
        code == Some(1) && said.contains("says that it was at commit"),
        "{said}"
    );
}

#[test]
fn a_database_that_lost_its_write_ahead_log_is_refused_until_a_person_accepts_it() {
    let mut house = House::with("tasks: { hello: { flow: { a: { script: echo hello } } } }");
    for _ in 0..5 {
        house.submit("hello");
    }
    house.kill_server();
    let data = house.path("data");
    std::fs::remove_file(house.path("data/stepward.db-wal")).unwrap();
    let before = house.data_files();
    let server = ["server", "--listen", "127.0.0.1:0", "--data-dir"];
    for words in [
        &server[..],
        &["db", "check"],
        &["token", "ls", "--data-dir"],
        &["backup", "never-made.tar", "--data-dir"],
    ] {
        let (code, said) = run_offline(words, &data);
        assert_eq!(code, Some(1), "{words:?}: {said}");
        // No server uses the folder, so nobody is sent to one.
        assert!(!said.contains("--server URL"), "{words:?}: {said}");
        let told = "stepward.mark says that it was at commit";
        assert!(
            said.contains(told) && said.contains("--accept-older-database"),
            "{said}"
        );
    }
    assert!(before == house.data_files(), "nothing was changed");
    let mut command = std::process::Command::new(crate::house::BINARY);
    command.args([
        "server",
        "--listen",
        "127.0.0.1:0",
        "--no-auth",
        "--accept-older-database",
    ]);
    command.arg("--data-dir").arg(&data);
    let accepting = crate::house::Process::start("accepting", command);
    await_that("it starts", || {
        accepting.said().contains("listening on").then_some(())
    });
    accepting.kill();
    house.start_server();
    assert_eq!(house.story(), ["older_database_accepted"]);
    house.submit("hello");
    // A mark that cannot be used keeps nobody out, but it is told.
    house.stop_server();
    std::fs::write(house.path("data/stepward.mark"), "").unwrap();
    let (code, said) = run_offline(&["db", "check"], &data);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("stepward.mark is empty and is ignored"),
        "{said}"
    );
    house.check();
}

/// Somebody copies a file over the database with a tool that truncates it, or a disk loses its end.
#[test]
fn a_server_whose_database_is_truncated_ends_before_it_acknowledges_anything_more() {
    let mut house = House::with("tasks: { hello: { flow: { a: { script: echo hello } } } }");
    for _ in 0..5 {
        house.submit("hello");
    }
    let file = house.path("data/stepward.db");
    let pages = file.metadata().unwrap().len() / 4096;
    let cut = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    cut.set_len((pages - 1) * 4096).unwrap();
    assert!(!submits(&house), "nobody would find it again");
    await_that("it says why it ends", || {
        let said = house.server().said();
        let why = "the database was truncated while it is in use";
        (said.contains(why) && said.contains("stepward restore FILE --data-dir ")).then_some(())
    });
    house.kill_server();
    // The log, too: what was acknowledged is no longer whole.
    let mut house = House::with("tasks: { hello: { flow: { a: { script: echo hello } } } }");
    house.submit("hello");
    let file = house.path("data/stepward.db-wal");
    let bytes = file.metadata().unwrap().len();
    let cut = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    cut.set_len(bytes / 2).unwrap();
    assert!(!submits(&house), "nobody would find it again");
    await_that("it says why it ends", || {
        let said = house.server().said();
        said.contains("the write-ahead log was truncated while it is in use")
            .then_some(())
    });
    house.kill_server();
}

/// The size of the file is as it was, so only the call that reads a damaged page notices.
#[test]
fn a_corrupt_page_that_a_call_meets_ends_the_server_before_it_acknowledges_anything_more() {
    type MeetsPage = fn(&House);
    let calls: [(&str, MeetsPage); 2] = [
        ("token", |house| {
            // Whoever lists the tokens only reads.
            let path = "/api/tokens";
            let _ = (house.client).get::<serde_json::Value>(path, Duration::from_secs(5));
        }),
        ("idempotency", |house| {
            assert!(!submits_with_key(house), "it is not acknowledged");
        }),
    ];
    for (table, call) in calls {
        let mut house = House::with("tasks: { hello: { flow: { a: { script: echo hello } } } }");
        // The server that created the database has all of its pages in memory.
        assert!(house.stop_server());
        house.start_server();
        house.submit("hello");
        let file = house.path("data/stepward.db");
        let pages: Vec<u32> = {
            let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
            let sql = rusqlite::Connection::open_with_flags(&file, flags).unwrap();
            let pages = "SELECT rootpage FROM sqlite_schema WHERE tbl_name = ?1";
            let mut pages = sql.prepare(pages).unwrap();
            let pages = pages.query_map([table], |row| row.get(0)).unwrap();
            pages.collect::<Result<_, _>>().unwrap()
        };
        let damaged = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        for page in pages {
            let at = u64::from(page - 1) * 4096;
            damaged.write_all_at(&[0xAA; 4096], at).unwrap();
        }
        call(&house);
        await_that("the server ends", || {
            (!house.server().is_alive()).then_some(())
        });
        assert!(!submits(&house), "{table}: nobody would find it again");
        let said = house.server().said();
        assert!(
            said.contains("is corrupt (") && said.contains("stepward restore FILE"),
            "{table}: {said}"
        );
        assert_eq!(house.server().code(), Some(1), "{table}");
    }
}

fn submits_with_key(house: &House) -> bool {
    let path = "/api/tasks/hello/jobs";
    let body = serde_json::json!({});
    let timeout = Duration::from_secs(5);
    let answer = (house.client).post_once::<_, serde_json::Value>(path, &body, "once", timeout);
    answer.is_ok()
}

#[test]
fn a_server_whose_lock_file_is_removed_ends_and_leaves_the_folder_to_the_next_one() {
    let mut house = House::with("tasks: { hello: { flow: { a: { script: echo hello } } } }");
    let job = house.submit("hello");
    std::fs::remove_file(house.path("data/LOCK")).unwrap();
    // Nobody else keeps a second server out of the folder.
    assert!(!submits(&house), "two servers would acknowledge");
    await_that("it says why it ends", || {
        let said = house.server().said();
        said.contains("the lock file was removed or replaced while it is in use")
            .then_some(())
    });
    house.kill_server();
    house.start_server();
    assert_eq!(house.job(job).id, job);
    // Nobody writes, and another server takes the folder: the first one notices by itself.
    std::fs::remove_file(house.path("data/LOCK")).unwrap();
    let mut command = std::process::Command::new(crate::house::BINARY);
    command.args(["server", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(house.path("data"));
    let second = crate::house::Process::start("second", command);
    await_that("the first one ends", || {
        (!house.server().is_alive()).then_some(())
    });
    await_that("the second one listens", || {
        second.said().contains("listening on").then_some(())
    });
    second.signal(rustix::process::Signal::TERM);
    assert!(second.wait());
    house.kill_server();
    house.start_server();
    assert_eq!(house.job(job).id, job);
    house.check();
}

/// Larger than what is checked at each start: the damage is met when the server writes.
#[test]
fn a_corrupt_database_that_is_met_while_the_server_runs_ends_it_with_the_documented_code() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    drop(stepward::store::Store::open(&data, Default::default()).unwrap());
    let file = data.join("stepward.db");
    let root: u32 = {
        let sql = rusqlite::Connection::open(&file).unwrap();
        let fill = "INSERT INTO event (at, kind, message)
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1700)
            SELECT 0, 'backup_made', hex(zeroblob(20000)) FROM n";
        sql.execute(fill, []).unwrap();
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'schedule'";
        sql.query_row(root, [], |row| row.get(0)).unwrap()
    };
    assert!(file.metadata().unwrap().len() > 64 << 20);
    let mut bytes = std::fs::read(&file).unwrap();
    let page = (root as usize - 1) * 4096;
    bytes[page..page + 4096].fill(0xAA);
    std::fs::write(&file, bytes).unwrap();
    let server = ["server", "--listen", "127.0.0.1:0", "--data-dir"];
    let (code, said) = run_offline(&server, &data);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("is corrupt (") && said.contains("stepward restore FILE"),
        "{said}"
    );
}
