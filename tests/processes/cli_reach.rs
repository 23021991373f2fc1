//! Whoever is at the address that somebody calls a server: something else, nobody in time, or one that wants another token.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use stepward::client::{CallError, Client, Silence};

use crate::house::{House, Process, SETTINGS, await_that};
use crate::typed::{Typed, command, typed, typed_in};

/// Something at a port that answers everybody alike. It ends with the tests.
fn something_else(status: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            // The whole head, so that closing does not reset.
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            // Whoever asked may have gone.
            let _ = (&stream).write_all(answer.as_bytes());
        }
    });
    url
}

fn asked(url: &str, words: &str) -> Typed {
    let folder = tempfile::tempdir().unwrap();
    let words: Vec<&str> = words.split(' ').chain(["--server", url]).collect();
    typed_in(folder.path(), &words)
}

#[test]
fn what_answers_and_is_not_ours_is_called_so() {
    for (status, body) in [
        ("200 OK", "<html>Welcome</html>"),
        ("200 OK", "{}"),
        ("404 Not Found", "<h1>nothing here</h1>"),
        ("302 Found", ""),
        ("502 Bad Gateway", "{\"error\": \"upstream\"}"),
    ] {
        let url = something_else(status, body);
        for words in [
            "task ls",
            "status",
            "job show 1",
            "run x",
            "events -f",
            "token check",
        ] {
            let told = asked(&url, words);
            assert_eq!(told.code, Some(6), "{words}: {told:?}");
            let said = format!("{url} is no server of ours: it answered {status}");
            assert!(told.stderr.contains(&said), "{words}: {told:?}");
            assert_eq!(told.stdout, "", "{words}");
        }
    }
}

#[test]
fn an_address_without_a_host_or_with_more_than_that_is_refused() {
    for url in [
        "http://127.0.0.1:99999",
        "http://127.0.0.1:abc",
        "http://127.0.0.1:",
        "http://",
        "http://127.0.0.1/?x=1",
        "http://somebody:hunter2@127.0.0.1",
        "127.0.0.1:7717",
    ] {
        let told = asked(url, "status");
        assert_eq!(told.code, Some(2), "{url}: {told:?}");
        assert!(told.stderr.contains("write http://HOST:PORT"), "{told:?}");
        assert!(!told.stderr.contains("hunter2"), "{told:?}");
    }
}

#[test]
fn tls_to_a_server_without_it_is_told() {
    let house = House::with("tasks: {}");
    let secure = house.url().replace("http://", "https://");
    let told = asked(&secure, "task ls");
    assert_eq!(told.code, Some(6), "{told:?}");
    let hint = format!("does not speak TLS, try {}", house.url());
    assert!(told.stderr.contains(&hint), "{told:?}");
    house.check();
}

#[test]
fn a_wrong_token_is_told_from_none() {
    let folder = tempfile::tempdir().unwrap();
    for (name, token) in [
        ("good", "0123456789abcdef0123"),
        ("bad", "ffffffffffffffffffff"),
    ] {
        std::fs::write(folder.path().join(name), token).unwrap();
    }
    let file = folder.path().join("good");
    let settings = format!("{SETTINGS}auth: {{ token_file: {} }}", file.display());
    let house = House::with_settings("tasks: {}", &settings);
    let url = house.url();
    let ask = |folder: &Path, more: &[&str]| {
        let told = typed_in(folder, &[&["task", "ls", "--server", &url], more].concat());
        assert_eq!(told.code, Some(4), "{told:?}");
        told.stderr
    };
    let wrong = ask(folder.path(), &["--token-file", "bad"]);
    assert!(
        wrong.contains("does not take this token (from bad)"),
        "{wrong}"
    );
    let none = ask(folder.path(), &[]);
    assert!(none.contains("wants a token: "), "{none}");
    house.check();
}

/// As a process that is stopped does: the machine takes the connection, and nobody answers.
#[test]
fn an_answer_that_does_not_come_is_not_waited_for_for_ever() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let patience = Duration::from_secs(1);
    let answer = Client::new(&url, None).get::<serde_json::Value>("/readyz", patience);
    match answer {
        Err(CallError::Unreachable(why @ Silence::TooLong(_))) => {
            assert_eq!(why.to_string(), "no answer within 1 s");
        }
        other => panic!("{other:?}"),
    }
}

fn project(settings: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("workflows")).unwrap();
    let flow = "tasks: { hello: { flow: { greet: { script: echo hello } } } }\n";
    std::fs::write(folder.path().join("workflows/hello.yaml"), flow).unwrap();
    std::fs::write(folder.path().join("server-config.yaml"), settings).unwrap();
    folder
}

/// The server of a folder, until it is ready.
fn serve(folder: &Path) -> Process {
    let server = Process::start("server", command(folder, &["server"]));
    await_that("it listens", || {
        server.said().contains("data in ").then_some(())
    });
    server
}

#[test]
fn a_folder_that_is_not_served_is_told_of() {
    let folder = project("listen: 127.0.0.1:0\ndata_dir: data\n");
    let server = serve(folder.path());
    await_that("it is said", || {
        let said = server.said();
        said.contains(
            "the folder workflows here is not served: start with --workflows-dir workflows",
        )
        .then_some(())
    });
    // By the data folder of the settings, which is not the usual one.
    let status = typed_in(folder.path(), &["status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let tasks = typed_in(folder.path(), &["task", "ls"]);
    assert_eq!(tasks.code, Some(0), "{tasks:?}");
    assert!(tasks.stderr.contains("it serves no folder"), "{tasks:?}");
    let told = typed_in(folder.path(), &["doctor", "workflows"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.stdout.contains("0 problems, 1 warning"), "{told:?}");
    assert!(
        told.stdout.contains("workflows here is not served"),
        "{told:?}"
    );
    // Settings that do not load name no server, and are nobody's fault.
    std::fs::write(folder.path().join("server-config.yaml"), "data_dri: x\n").unwrap();
    let status = typed_in(folder.path(), &["status"]);
    assert_eq!(status.code, Some(6), "{status:?}");
    assert!(
        status.stderr.contains("no server is known here"),
        "{status:?}"
    );
    server.signal(Signal::TERM);
    assert!(server.wait());
}

#[test]
fn a_server_without_tasks_says_where_it_looks() {
    let folder = project("listen: 127.0.0.1:0\nworkflows_dir: workflows\n");
    std::fs::remove_file(folder.path().join("workflows/hello.yaml")).unwrap();
    let server = serve(folder.path());
    assert!(!server.said().contains("not served"), "{}", server.said());
    let tasks = typed_in(folder.path(), &["task", "ls"]);
    let looks_in = folder.path().canonicalize().unwrap().join("workflows");
    let said = format!("it looks for them in {}", looks_in.display());
    assert!(tasks.stderr.contains(&said), "{tasks:?}");
    server.signal(Signal::TERM);
    assert!(server.wait());
}

/// What stands in `--help` is what comes through a pipe.
#[test]
fn the_columns_of_a_pipe_are_in_the_help() {
    const ALL: &str = "
tasks:
  good:
    flow: { work: { script: 'true' } }
    schedules: { nightly: { cron: '0 3 * * *' } }
  train: { flow: { train: { tags: [gpu], script: 'true' } } }
";
    let mut house = House::with(ALL);
    let mut worker = house.worker(1);
    let job = house.submit("good");
    house.await_job(job, "completed");
    house.submit("train");
    worker.kill();
    for words in [
        "queue",
        "recovery forecast",
        "job ls",
        "task ls",
        "worker ls",
        "schedule ls",
        "schedule next",
        "events",
        "recovery history",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let help = typed(&house, &[&words[..], &["--help"]].concat()).stdout;
        let columns = help.lines().find_map(|line| line.strip_prefix("Columns: "));
        let columns = columns.unwrap_or_else(|| panic!("{help}")).split(", ");
        let rows = await_that("there is one", || {
            let rows = typed(&house, &words).stdout;
            (!rows.is_empty()).then_some(rows)
        });
        let first = rows.lines().next().unwrap();
        assert_eq!(
            first.split('\t').count(),
            columns.count(),
            "{words:?}: {rows}"
        );
    }
}
