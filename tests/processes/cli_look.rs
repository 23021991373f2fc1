//! What somebody sees who looks: status, queue, recovery, events, and `stepward` alone.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::house::{BINARY, House, PATIENT, SETTINGS, await_that};
use crate::pseudo_terminal::{Terminal, fits, plain, shown};
use crate::typed::{Typed, command, typed, typed_in};

fn at(house: &House, words: &[&str]) -> Command {
    let mut command = command(house.folder.path(), words);
    command.env("STEPWARD_SERVER_URL", house.url());
    command
}

fn piped(house: &House, line: &str) -> Typed {
    let line = line.replace("stepward", BINARY);
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(line)
        .env("STEPWARD_SERVER_URL", house.url());
    command.output().unwrap().into()
}

fn codes(status: &serde_json::Value) -> Vec<String> {
    let problems = status["problems"].as_array().unwrap().iter();
    let code = |problem: &serde_json::Value| problem["code"].as_str().unwrap().to_string();
    problems.map(code).collect()
}

const ALL: &str = "
tasks:
  good: { flow: { work: { script: 'echo fine' } } }
  bad: { flow: { work: { script: 'exit 3' } } }
  long: { flow: { work: { script: 'SLEEP' } } }
  train: { flow: { train: { tags: [gpu], script: 'true' } } }
  crowd:
    input: { items: { type: json } }
    flow:
      one: { tags: [gpu], unmatched: wait, for_each: '{{ input.items }}', script: 'true' }
";

#[test]
fn events_are_followed_over_a_dead_server_without_a_gap() {
    let mut house = House::with_settings(ALL, PATIENT);
    let _worker = house.worker(1);
    let first = house.submit("good");
    house.await_job(first, "completed");
    let mut live = at(&house, &["events", "-f", "--json", "-n", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(live.stdout.take().unwrap()).lines();
    let mut seqs = Vec::new();
    let mut until = |kind: &str| loop {
        let line = told.next().unwrap().unwrap();
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        seqs.push(event["seq"].as_i64().unwrap());
        if event["kind"] == kind && seqs.len() > 2 {
            return;
        }
    };
    house.submit("good");
    until("job_completed");
    for _ in 0..2 {
        house.kill_server();
        house.start_server();
        let job_id = house.submit("bad");
        house.await_job(job_id, "failed");
        until("job_failed");
    }
    live.kill().unwrap();
    live.wait().unwrap();
    let all: Vec<i64> = house.all_events().iter().map(|event| event.seq).collect();
    let from = all.iter().position(|seq| *seq == seqs[0]).unwrap();
    assert_eq!(seqs, all[from..from + seqs.len()]);
    house.check();
}

#[test]
fn events_are_found_by_job_worker_phase_and_kind() {
    let mut house = House::with(ALL);
    let _worker = house.worker(1);
    house.submit("good");
    house.await_job(1, "completed");
    house.submit("bad");
    house.await_job(2, "failed");
    house.submit("train");
    house.await_job(3, "failed");
    let kinds = |words: &[&str]| -> Vec<String> {
        let list = typed(&house, &[&["events", "--json"], words].concat()).json();
        assert!(list["next"].is_null());
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|event| event["kind"].as_str().unwrap().to_string())
            .collect()
    };
    assert_eq!(
        kinds(&["--job", "bad@latest"]),
        ["job_submitted", "step_failed", "job_failed"]
    );
    assert_eq!(kinds(&["--job", "2", "-n", "1"]), ["job_failed"]);
    assert_eq!(kinds(&["--kind", "job_completed"]), ["job_completed"]);
    assert_eq!(kinds(&["--phase", "4"]), ["step_failed"]);
    assert_eq!(kinds(&["--phase", "1"]), [""; 0]);
    assert_eq!(kinds(&["--worker", "w1", "-n", "1"]).len(), 1);
    let all = kinds(&[]);
    assert_eq!(kinds(&["--after", "0"]), all);
    assert_eq!(kinds(&["--after", "0", "-n", "2"]), all[..2]);
    assert_eq!(kinds(&["-n", "2"]), all[all.len() - 2..]);
    let table = typed(&house, &["events", "--phase", "4"]).stdout;
    let cells: Vec<&str> = table.trim_end().split('\t').collect();
    assert_eq!(&cells[1..4], ["step_failed", "4", "3/train"]);
    assert!(cells[4].starts_with("[recovery] "), "{table}");
    let odd = typed(&house, &["events", "--kind", "job_faild"]);
    assert_eq!(odd.code, Some(2));
    assert!(odd.stderr.contains("did you mean job_failed?"), "{odd:?}");
    assert_eq!(typed(&house, &["events", "--phase", "5"]).code, Some(2));
    assert_eq!(typed(&house, &["events", "--job", "77"]).code, Some(5));
    let none = typed(&house, &["events", "--worker", "nobody"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(5), ""));

    // Nothing more happens: whoever wanted one line is not kept.
    let one = piped(&house, "stepward events -f | head -n 1 | wc -l");
    assert_eq!(one.stdout.trim(), "1");
    let none = piped(&house, "stepward events -f -n 0 | true");
    assert_eq!(none.stdout, "");
    house.check();
}

#[test]
fn ten_thousand_that_wait_are_told_whole_and_quickly() {
    let house = House::with_settings(ALL, PATIENT);
    let items: Vec<u32> = (0..10_000).collect();
    house
        .submit_with("crowd", serde_json::json!({ "items": items }))
        .unwrap();
    await_that("all of them wait", || {
        let waiting = piped(&house, "stepward queue | wc -l");
        (waiting.stdout.trim() == "10000").then_some(())
    });
    let queue = typed(&house, &["queue"]);
    let first: Vec<&str> = queue.stdout.lines().next().unwrap().split('\t').collect();
    assert_eq!(first[..4], ["1", "crowd", "one[0]", "no_matching_worker"]);
    assert_eq!(first[5], "gpu,script");
    assert_eq!(first[6], "", "it waits, and recovery lets it");
    assert_eq!(first[7], "no worker offers gpu + script");
    let list = typed(&house, &["queue", "--json"]).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 10_000);
    assert!(list["next"].is_null());
    let head = piped(&house, "stepward queue | head -n 3 | wc -l");
    assert_eq!((head.stdout.trim(), head.stderr.as_str()), ("3", ""));
    let status = typed(&house, &["status", "--json"]).json();
    assert_eq!(status["waiting"]["more"], true);
    assert_eq!(codes(&status), ["no_worker", "no_matching_worker"]);
    let shown = typed(&house, &["status"]).stdout;
    for counted in ["at least 1000 steps, the first is", "Waiting: 1000+"] {
        assert!(shown.contains(counted), "{shown}");
    }
    house.cancel(1);
    house.check();
}

#[test]
fn the_forecast_names_what_then_happens() {
    let mut house = House::with_settings(ALL, SETTINGS);
    let mut worker = house.worker(1);
    let job_id = house.submit("long");
    house.await_asleep(1);
    house.submit("train");
    let quiet = typed(&house, &["recovery", "history"]);
    assert_eq!((quiet.code, quiet.stdout.as_str()), (Some(0), ""));
    worker.kill();
    let foreseen = await_that("its silence is foreseen", || {
        let list = typed(&house, &["recovery", "forecast", "--json"]).json();
        let items = list["items"].as_array().unwrap().clone();
        items.iter().any(|it| it["worker"] == "w1").then_some(items)
    });
    let named = |phase: u8, field: &str| {
        let found = foreseen
            .iter()
            .find(|it| it["phase"] == phase && !it[field].is_null());
        found.map(|it| it[field].as_str().unwrap().to_string())
    };
    assert_eq!(named(1, "worker").as_deref(), Some("w1"));
    assert_eq!(named(4, "step").as_deref(), Some("train"));
    assert_eq!(named(4, "task").as_deref(), Some("train"));
    let table = typed(&house, &["recovery", "forecast"]).stdout;
    assert!(table.contains("worker w1"), "{table}");
    let queue = typed(&house, &["queue"]).stdout;
    assert!(queue.contains("the step fails in "), "{queue}");

    house.await_job(job_id, "failed");
    house.await_job(2, "failed");
    let history = typed(&house, &["recovery", "history", "--json"]).json();
    let history = history["items"].as_array().unwrap();
    let did: Vec<(&str, Option<&str>)> = history
        .iter()
        .map(|event| (event["kind"].as_str().unwrap(), event["step"].as_str()))
        .collect();
    assert_eq!(
        did,
        [
            ("worker_inactive", None),
            ("step_failed", Some("work")),
            ("step_failed", Some("train"))
        ]
    );
    let overview = typed(&house, &["recovery"]).stdout;
    assert!(
        overview.contains("a worker is marked inactive after\t3s"),
        "{overview}"
    );
    assert!(overview.contains("step_failed\t1\t1/work"), "{overview}");
    let both = typed(&house, &["recovery", "--json", "forecast"]);
    assert_eq!(both.code, Some(2));
    house.await_nobody_asleep();
    house.check();
}

#[test]
fn status_counts_every_worker() {
    let house = House::with(ALL);
    let sql = rusqlite::Connection::open(house.path("data/stepward.db")).unwrap();
    sql.execute_batch(
        "BEGIN IMMEDIATE;
         WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1200)
         INSERT INTO worker (worker_id, instance_key, name, state, tags, slots, version, platform, seen_at, seen_up, created_at)
         SELECT n, 'i' || n, 'w' || n, 'inactive', 'script', 1, '0.1.0', 'linux', 0, 0, 0 FROM number;
         INSERT INTO session (session_id, worker_id, session_key, opened_at)
         SELECT worker_id, worker_id, 's' || worker_id, 0 FROM worker;
         UPDATE worker SET session_id = worker_id;
         COMMIT",
    )
    .unwrap();
    drop(sql);
    let status = typed(&house, &["status", "--json"]).json();
    assert_eq!(status["workers"].as_array().unwrap().len(), 1_200);
    assert_eq!(status["workers_more"], false);
    let shown = typed(&house, &["status"]).stdout;
    assert!(shown.contains("Workers: 1200\n"), "{shown}");
    house.check();
}

#[test]
fn status_says_what_is_wrong_first() {
    let mut house = House::with(ALL);
    let empty = typed(&house, &["status"]);
    assert_eq!(empty.code, Some(0));
    assert!(!empty.stdout.contains("all is well"), "{empty:?}");
    assert!(empty.stdout.contains("Workers: none"), "{empty:?}");
    let status = typed(&house, &["status", "--json"]).json();
    let fields: Vec<&String> = status.as_object().unwrap().keys().collect();
    let expected = [
        "jobs",
        "problems",
        "ready",
        "schedules_next",
        "server",
        "waiting",
        "workers",
        "workers_more",
    ];
    assert_eq!(fields, expected);
    assert_eq!(status["ready"], true);
    assert_eq!(codes(&status), ["no_worker"], "tasks, and nobody for them");
    let fix = format!("stepward worker --server {}", house.url());
    assert_eq!(status["problems"][0]["fix"], fix.as_str());

    let mut worker = house.worker(1);
    house.await_worker("w1", "active");
    let well = typed(&house, &["status"]);
    assert!(well.stdout.contains("all is well"), "{well:?}");
    house.submit("bad");
    house.await_job(1, "failed");
    house.submit("bad");
    house.await_job(2, "failed");
    let status = typed(&house, &["status", "--json"]).json();
    assert_eq!(codes(&status), ["exit_code"]);
    assert_eq!(status["problems"][0]["fix"], "stepward logs 2 --failed");
    assert_eq!(
        status["jobs"]["failed_recently"].as_array().unwrap().len(),
        2
    );

    house.submit("long");
    house.await_asleep(1);
    house.write_workflow(
        "broken.yaml",
        "tasks: { oops: { flow: { a: { skript: x } } } }\n",
    );
    worker.kill();
    house.await_worker("w1", "inactive");
    house.await_job(3, "failed");
    house.submit("train");
    let status = await_that("the broken file is noticed", || {
        let status = typed(&house, &["status", "--json"]).json();
        (status["problems"][0]["code"] == "workflows_broken").then_some(status)
    });
    assert_eq!(
        codes(&status),
        [
            "workflows_broken",
            "no_worker",
            "worker_inactive",
            "no_matching_worker",
            "worker_lost",
            "exit_code"
        ]
    );
    assert_eq!(status["waiting"]["by_reason"]["no_matching_worker"], 1);
    let fix = status["problems"][3]["fix"].as_str().unwrap();
    assert_eq!(fix, "stepward worker --tags gpu,script");
    let countdown = status["problems"][3]["message"].as_str().unwrap();
    assert!(
        countdown.contains("job 4 step train; the step fails in "),
        "{countdown}"
    );

    for columns in [80, 40] {
        for words in [
            ["status"].as_slice(),
            &["queue"],
            &["events"],
            &["recovery"],
            &["recovery", "forecast"],
            &["recovery", "history"],
        ] {
            let (code, seen) = shown(at(&house, words), columns);
            assert_eq!(code, Some(0), "{words:?}: {seen}");
            fits(&seen, usize::from(columns));
        }
    }
    let mut plain_locale = at(&house, &["status"]);
    plain_locale.env("LC_ALL", "C");
    let (_, seen) = shown(plain_locale, 80);
    assert!(seen.is_ascii(), "{seen:?}");
    let coloured = typed(&house, &["status", "--color", "always"]).stdout;
    assert!(coloured.contains("\x1b[31m"), "{coloured:?}");
    let mut dull = at(&house, &["status"]);
    dull.env("NO_COLOR", "1");
    let (_, seen) = shown(dull, 80);
    assert!(
        !seen.contains('\x1b') && seen.contains("problems"),
        "{seen:?}"
    );
    house.await_nobody_asleep();
    house.check();
}

#[test]
fn status_is_watched_on_a_terminal_only() {
    let mut house = House::with_settings(ALL, PATIENT);
    let _worker = house.worker(1);
    house.await_worker("w1", "active");
    let nowhere = typed(&house, &["status", "--watch"]);
    assert_eq!(nowhere.code, Some(2));
    assert!(nowhere.stderr.contains("needs a terminal"), "{nowhere:?}");
    let mut watched = Terminal::start(at(&house, &["status", "--watch"]), 80);
    let mut seen = String::new();
    while !seen.contains("all is well") {
        seen.push_str(&watched.read());
    }
    house.submit("train");
    while !seen.contains("no worker offers gpu") {
        let more = watched.read();
        assert!(!more.is_empty(), "{seen}");
        seen.push_str(&more);
    }
    let pid = rustix::process::Pid::from_child(&watched.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let (code, seen) = watched.ends(seen);
    assert_eq!(code, Some(0));
    assert!(plain(&seen).contains("Waiting: 1"), "{seen}");
    house.cancel(1);
    house.check();
}

/// A server that wants a token, and where it listens.
fn locked(folder: &std::path::Path) -> (crate::house::Process, String) {
    let token = folder.join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    let only_ours = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&token, only_ours).unwrap();
    let settings = "listen: 127.0.0.1:0\ndata_dir: data\nauth: { token_file: token }\n";
    std::fs::write(folder.join("locked.yaml"), settings).unwrap();
    let server = command(folder, &["server", "--config", "locked.yaml"]);
    let server = crate::house::Process::start("server", server);
    let url = crate::house::await_that("it listens", || {
        let said = server.said();
        let line = said.lines().find(|line| line.contains("listening on"))?;
        Some(line.rsplit(' ').next()?.to_string())
    });
    (server, url)
}

#[test]
fn stepward_alone_is_the_status_or_where_to_begin() {
    let empty = tempfile::tempdir().unwrap();
    let begin = typed_in(empty.path(), &[]);
    assert_eq!(begin.code, Some(0));
    assert!(begin.stdout.contains("Start here"), "{begin:?}");
    for verb in ["demo", "init", "run FILE", "dev"] {
        assert!(
            begin.stdout.contains(&format!("  stepward {verb} ")),
            "{verb}"
        );
    }

    let house = House::with_settings(ALL, PATIENT);
    let status = typed(&house, &[]);
    assert_eq!(status.code, Some(0));
    assert!(status.stdout.contains("no_worker: "), "{status:?}");
    assert!(!status.stdout.contains("Start here"), "{status:?}");
    let url = house.url();
    let named = typed_in(empty.path(), &["--server", &url]);
    assert_eq!(named.code, Some(0), "{named:?}");
    assert_eq!(named.stdout, status.stdout);
    let before = typed_in(empty.path(), &["--server", &url, "status"]);
    assert_eq!(before.code, Some(2), "{before:?}");
    for words in ["status", "--server"] {
        assert!(before.stderr.contains(words), "{before:?}");
    }
    // One that does not let us in is there: nothing is to begin.
    let locked = locked(empty.path());
    let refused = typed_in(empty.path(), &["--server", &locked.1]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert_eq!(refused.stdout, "", "{refused:?}");
    assert!(refused.stderr.contains("wants a token"), "{refused:?}");
    let token = empty.path().join("token");
    let words = [
        "--server",
        &locked.1,
        "--token-file",
        token.to_str().unwrap(),
    ];
    let let_in = typed_in(empty.path(), &words);
    assert_eq!(let_in.code, Some(0), "{let_in:?}");

    // Somebody listens at the usual port, perhaps; nobody named it.
    let dead = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let gone = command(empty.path(), &[])
        .env("STEPWARD_SERVER_URL", format!("http://{dead}"))
        .output()
        .unwrap();
    let gone = Typed::from(gone);
    assert_eq!(gone.code, Some(6));
    assert!(gone.stderr.contains("does not answer"), "{gone:?}");
    assert_eq!(gone.stderr.lines().count(), 1, "{gone:?}");
    assert_eq!(
        gone.stdout, "",
        "whoever names a server asks about that one"
    );
    // A variable that is set to nothing names none.
    let unset = command(empty.path(), &[])
        .env("STEPWARD_SERVER_URL", "")
        .output();
    let unset = Typed::from(unset.unwrap());
    assert_eq!(unset.code, Some(0), "{unset:?}");
    assert!(unset.stdout.contains("Start here"), "{unset:?}");
    let unreachable = command(empty.path(), &["status", "--server", "http://127.0.0.1:9"]);
    let unreachable = Typed::from({ unreachable }.output().unwrap());
    assert_eq!(unreachable.code, Some(6), "{unreachable:?}");
    house.check();
}

#[test]
fn a_job_that_ran_out_of_time_did_not_fail() {
    const SLOW: &str = "
tasks:
  slow: { timeout: 1s, flow: { work: { script: 'SLEEP' } } }
";
    let mut house = House::with(SLOW);
    let _worker = house.worker(1);
    let job = house.submit("slow");
    house.await_job(job, "cancelled");
    let status = typed(&house, &["status", "--json"]).json();
    assert_eq!(codes(&status), ["job_timeout"]);
    let message = status["problems"][0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("job 1 slow ran out of time "),
        "{message}"
    );
    house.await_nobody_asleep();
}

/// Whoever redirects an answer relies on it.
#[test]
fn an_answer_that_cannot_be_written_is_no_success() {
    let mut house = House::with_settings(ALL, PATIENT);
    let _worker = house.worker(1);
    let job = house.submit("good");
    house.await_job(job, "completed");
    for words in [
        "job ls",
        "job ls --json",
        "status",
        "logs 1",
        "logs 1 --raw",
        "events -f",
        "run good --output",
        "schema workflow",
        "explain E012",
        "--help",
        "--version",
        "job ls --help",
    ] {
        let told = piped(&house, &format!("stepward {words} > /dev/full"));
        assert_eq!(told.code, Some(1), "{words}: {told:?}");
        let fault = "stepward: the output cannot be written: No space left on device";
        assert_eq!(told.stderr.matches(fault).count(), 1, "{words}: {told:?}");
    }
    // How the job ended says more.
    let told = piped(&house, "stepward run bad --json > /dev/full");
    assert_eq!(told.code, Some(10), "{told:?}");
    assert!(told.stderr.contains("cannot be written"), "{told:?}");
    let told = piped(&house, "stepward backup - > /dev/full");
    assert_eq!(told.code, Some(1), "{told:?}");
    let fault = "stepward: stdout cannot be written: No space left on device";
    assert!(told.stderr.contains(fault), "{told:?}");
    // Who has read enough is not told.
    let told = piped(
        &house,
        "{ stepward events -n 50; echo $? >&2; } | head -n 1 > /dev/null",
    );
    assert_eq!(told.stderr, "0\n", "{told:?}");
}
