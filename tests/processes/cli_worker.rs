//! `stepward worker`: which server it finds, and with which token it comes.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::house::{House, Process, await_that};
use crate::typed::{Typed, command, typed, typed_in};

const TOKEN: &str = "0123456789abcdef0123";

/// A server in the `.stepward` of this folder, that wants the token.
fn server(folder: &Path, settings: &str) -> (Process, String) {
    fs::write(folder.join("token"), TOKEN).unwrap();
    let settings = format!(
        "listen: 127.0.0.1:0\ndata_dir: .stepward\nauth: {{ token_file: token }}\n{settings}"
    );
    fs::write(folder.join("server-config.yaml"), settings).unwrap();
    let server = Process::start("server", command(folder, &["server"]));
    let url = await_that("the server listens", || {
        let said = server.said();
        let line = said.lines().find(|line| line.contains("listening on"))?;
        line.split_whitespace().last().map(str::to_string)
    });
    let announced = folder.join(".stepward/server.json");
    await_that("it is announced", || announced.exists().then_some(()));
    (server, url)
}

fn names(folder: &Path) -> Vec<String> {
    let workers = typed_in(folder, &["worker", "ls", "--json"]).json();
    let workers = workers["items"].as_array().unwrap().iter();
    let name = |worker: &Value| worker["name"].as_str().unwrap().to_string();
    workers.map(name).collect()
}

#[test]
fn a_worker_finds_the_server_of_its_folder_with_the_token_of_that_server() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, url) = server(folder.path(), "");
    let below = folder.path().join("below");
    fs::create_dir(&below).unwrap();
    let words = ["worker", "--name", "here", "--tags", "gpu,script"];
    let worker = Process::start("here", command(&below, &words));
    await_that("it is let in", || {
        worker.said().contains("session opened").then_some(())
    });
    let told = format!("worker here offers gpu, script with 1 slot to {url}");
    assert!(worker.said().contains(&told), "{}", worker.said());
    assert_eq!(names(folder.path()), ["here"]);
    worker.signal(Signal::TERM);
    assert!(worker.wait());
}

#[test]
fn a_worker_to_whom_nobody_names_a_server_goes_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("worker-config.yaml"), "slots: 2\n").unwrap();
    let told = typed_in(folder.path(), &["worker"]);
    assert_eq!(told.code, Some(6), "{told:?}");
    for named in ["--server", "STEPWARD_SERVER_URL", "server_url"] {
        assert!(told.stderr.contains(named), "{told:?}");
    }
    assert!(!folder.path().join(".stepward-worker").exists());
}

#[test]
fn what_names_a_server_comes_before_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, url) = server(folder.path(), "");
    let elsewhere = tempfile::tempdir().unwrap();
    let (_other, other) = server(elsewhere.path(), "");
    fs::write(
        folder.path().join("worker-config.yaml"),
        format!("server_url: {other}\ntoken_file: token\n"),
    )
    .unwrap();
    let joins = |name: &str, words: &[&str], variables: &[(&str, &str)], joined: &Path| {
        let words = [&["worker", "--name", name, "--data-dir", name], words].concat();
        let mut command = command(folder.path(), &words);
        command.envs(variables.iter().copied());
        let worker = Process::start(name, command);
        await_that("it is let in", || {
            assert!(worker.is_alive(), "{}", worker.said());
            worker.said().contains("session opened").then_some(())
        });
        assert!(names(joined).contains(&name.to_string()));
    };
    joins("file", &[], &[], elsewhere.path());
    joins("flag", &["--server", &url], &[], folder.path());
    let variable = ("STEPWARD_SERVER_URL", url.as_str());
    joins("variable", &[], &[variable], folder.path());
    // The same of the token: a flag, the file of the variables, then their word, then the settings.
    fs::write(folder.path().join("wrong"), "wrongwrongwrongwrong").unwrap();
    let wrong = ("STEPWARD_TOKEN", "wrongwrongwrongwrong");
    let wrong_file = ("STEPWARD_TOKEN_FILE", "wrong");
    joins("t1", &["--token-file", "token"], &[wrong], elsewhere.path());
    joins("t2", &["--token", TOKEN], &[wrong_file], elsewhere.path());
    let right_file = ("STEPWARD_TOKEN_FILE", "token");
    joins("t3", &[], &[wrong, right_file], elsewhere.path());
    let told = typed_in(
        folder.path(),
        &["worker", "--token", TOKEN, "--token-file", "token"],
    );
    assert_eq!(told.code, Some(2), "{told:?}");
}

#[test]
fn a_worker_with_the_wrong_token_says_which_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, url) = server(folder.path(), "");
    fs::write(folder.path().join("wrong"), "wrongwrongwrongwrong").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong");
    let wrong = wrong.to_str().unwrap();
    for (words, variable, told) in [
        (&[][..], "", "and was sent none: "),
        (&["--token", "wrong"], "", "and refuses that of --token: "),
        (&[], "wrong", "and refuses that of STEPWARD_TOKEN: "),
        (
            &["--token-file", wrong],
            "",
            &format!("and refuses that of {wrong}: "),
        ),
    ] {
        let words = [&["worker", "--server", &url], words].concat();
        let mut command = command(elsewhere.path(), &words);
        if !variable.is_empty() {
            command.env("STEPWARD_TOKEN", variable);
        }
        let said: Typed = command.output().unwrap().into();
        assert_eq!(said.code, Some(4), "{said:?}");
        let told = format!("stepward: the server at {url} wants a token {told}");
        assert!(said.stderr.contains(&told), "{told}: {said:?}");
        assert!(said.stderr.contains("--token-file"), "{said:?}");
        assert!(!said.stderr.contains("again and again"), "{said:?}");
    }
}

/// By the token of the settings, which opens everything.
fn new_token(folder: &Path, words: &str) -> String {
    let words: Vec<&str> = ["token", "new", "--json"]
        .into_iter()
        .chain(words.split(' '))
        .collect();
    let made = typed_in(folder, &words);
    assert_eq!(made.code, Some(0), "{made:?}");
    made.json()["text"].as_str().unwrap().to_string()
}

#[test]
fn a_worker_with_a_token_of_another_role_says_so_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, url) = server(folder.path(), "");
    let token = new_token(folder.path(), "ada --role viewer");
    let elsewhere = tempfile::tempdir().unwrap();
    let words = ["worker", "--server", &url, "--token", &token];
    let said: Typed = command(elsewhere.path(), &words).output().unwrap().into();
    assert_eq!(said.code, Some(4), "{said:?}");
    let why =
        "this takes a token of role worker, and ada is of role viewer; ask there for an enrolment";
    assert!(said.stderr.contains(why), "{said:?}");
}

#[test]
fn a_worker_is_told_what_its_token_does_not_let_it_offer() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, url) = server(folder.path(), "");
    let token = new_token(folder.path(), "edge --role worker --tags script,gpu");
    let elsewhere = tempfile::tempdir().unwrap();
    let words = ["worker", "--server", &url, "--token", &token];
    let words = [&words[..], &["--tags", "script,gpu,extra"]].concat();
    let worker = Process::start("w", command(elsewhere.path(), &words));
    await_that("it says so", || {
        let told = "its token does not let it offer extra, ";
        worker.said().contains(told).then_some(())
    });
}

#[test]
fn a_worker_whose_token_was_changed_is_refused_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let beats = "recovery: { heartbeat_interval_secs: 1, heartbeat_timeout_secs: 60 }\n";
    let (first, url) = server(folder.path(), beats);
    let worker = Process::start("w", command(folder.path(), &["worker"]));
    await_that("it is let in", || {
        worker.said().contains("session opened").then_some(())
    });
    first.signal(Signal::TERM);
    assert!(first.wait());
    fs::write(folder.path().join("token"), "anotherwordanotherword").unwrap();
    let listen = url.strip_prefix("http://").unwrap();
    let again = command(folder.path(), &["server", "--listen", listen]);
    let _again = Process::start("server", again);
    await_that("it is refused", || {
        assert!(worker.is_alive(), "{}", worker.said());
        let told = ": refused, trying again and again: 401";
        worker.said().contains(told).then_some(())
    });
}

/// A worker of this name, in a folder of its own.
fn called(house: &House, name: &str, folder: &str) -> Process {
    let words = ["worker", "--name", name, "--data-dir", folder];
    let mut command = command(house.folder.path(), &words);
    command.env("STEPWARD_SERVER_URL", house.url());
    let worker = Process::start(name, command);
    await_that("it is let in", || {
        worker.said().contains("session opened").then_some(())
    });
    worker
}

#[test]
fn a_worker_may_have_a_slash_and_a_space_in_its_name() {
    let house = House::with("tasks: {}");
    let _worker = called(&house, "a/b c", "w");
    let told = typed(&house, &["worker", "show", "a/b c"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(
        told.stderr.contains("stepward worker pause 'a/b c'"),
        "{told:?}"
    );
    for words in [
        ["worker", "pause"],
        ["worker", "resume"],
        ["why", "--worker"],
    ] {
        let told = typed(&house, &[&words[..], &["a/b c"]].concat());
        assert_eq!(told.code, Some(0), "{told:?}");
    }
    // Written twice over it is another name, and its parts are no places.
    for other in ["a%2Fb c", "a", "a/../a/b c", "a/b c/why"] {
        let told = typed(&house, &["worker", "show", other]);
        assert_eq!(told.code, Some(5), "{told:?}");
    }
}

#[test]
fn of_two_workers_with_one_name_the_advice_is_about_the_one_that_is_meant() {
    let house = House::with("tasks: {}");
    let first = called(&house, "vm", "first");
    first.kill();
    house.await_worker("vm", "inactive");
    let _second = called(&house, "vm", "second");
    let advice = "stepward worker rm 1";
    for words in [&["status"][..], &["doctor"], &["worker", "show", "1"]] {
        let told = typed(&house, words);
        let all = told.stdout + &told.stderr;
        assert!(all.contains(advice), "{words:?}: {all}");
        assert!(!all.contains("worker rm vm"), "{words:?}: {all}");
    }
    let told = typed(&house, &["worker", "rm", "1"]);
    assert_eq!(told.stdout, "worker vm, number 1, is removed\n");
    let left: Vec<i64> = house.workers().iter().map(|worker| worker.id).collect();
    assert_eq!(left, [2]);
    // The name is enough again.
    let told = typed(&house, &["worker", "show", "2"]);
    assert!(told.stderr.contains("stepward worker drain vm"), "{told:?}");
}
