//! Jobs of a server from the prompt: watched, waited for, cancelled, done again, decided about.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::house::{House, await_that};
use crate::proxy::{Fate, Proxy};
use crate::typed::{command, typed, typed_in};

const WORKFLOWS: &str = "
tasks:
  good: { flow: { a: { script: echo fine } } }
  bad:
    flow:
      a: { script: echo fine }
      b: { depends_on: [a], script: 'test -e LEDGER || { echo no ledger; exit 4; }' }
  nap: { flow: { rest: { script: SLEEP } } }
  gated:
    flow:
      gate:
        type: approval
        message: ship it?
        input: { version: { type: string, required: true }, count: { type: integer } }
      ship: { depends_on: [gate], env: { V: '{{ steps.gate.output.version }}' }, script: 'echo shipped $V' }
  two-gates:
    flow:
      one: { type: approval, message: first }
      two: { type: approval, message: second }
";

#[test]
fn a_job_that_has_ended_is_shown_as_it_ended() {
    let mut house = House::with(WORKFLOWS);
    let _worker = house.worker(2);
    house.submit("good");
    house.submit("bad");
    house.await_job(1, "completed");
    house.await_job(2, "failed");
    let watch = typed(&house, &["watch", "1"]);
    assert_eq!(watch.code, Some(0), "{watch:?}");
    assert!(
        watch.stderr.contains("good · job 1 · ✔ completed in "),
        "{watch:?}"
    );
    let watch = typed(&house, &["watch", "bad@latest", "--json"]);
    assert_eq!(watch.code, Some(10), "{watch:?}");
    let end: serde_json::Value =
        serde_json::from_str(watch.stdout.lines().next_back().unwrap()).unwrap();
    assert_eq!(
        (&end["kind"], &end["exit_code"]),
        (&json!("end"), &json!(10))
    );
    let watch = typed(&house, &["watch", "77"]);
    assert_eq!(watch.code, Some(5), "{watch:?}");
    let watch = typed(&house, &["watch", "what"]);
    assert_eq!(watch.code, Some(5), "{watch:?}");
    let folder = tempfile::tempdir().unwrap();
    let watch = typed_in(folder.path(), &["watch", "1"]);
    assert_eq!(watch.code, Some(6), "{watch:?}");
    assert!(watch.stderr.contains("stepward dev"), "{watch:?}");
    house.check();
}

#[test]
fn a_server_that_goes_away_is_waited_for() {
    let mut house = House::with(WORKFLOWS);
    let _worker = house.worker(1);
    house.submit("nap");
    house.await_step(1, "rest", "running");
    let mut child = command(house.folder.path(), &["watch", "1"])
        .env("STEPWARD_SERVER_URL", house.url())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    let mut hear = |what: &str| {
        while !said.contains(what) {
            assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
        }
    };
    hear("step rest  ▶ running");
    house.kill_server();
    hear("stepward: the server does not answer, trying again");
    house.start_server();
    hear("stepward: the server is back");
    house.cancel(1);
    hear("cancelled in");
    let told = said.matches("does not answer").count();
    assert_eq!(told, 1, "{said}");
    let status = await_that("the watch ends", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(11));
    house.check();
}

#[test]
fn waiting_is_silent_and_ends_as_the_jobs_do() {
    let mut house = House::with(WORKFLOWS);
    let _worker = house.worker(2);
    for task in ["good", "bad", "nap"] {
        house.submit(task);
    }
    let wait = typed(&house, &["wait", "1"]);
    assert_eq!(wait.code, Some(0), "{wait:?}");
    assert_eq!((wait.stdout.as_str(), wait.stderr.as_str()), ("", ""));
    let wait = typed(&house, &["wait", "1", "2"]);
    assert_eq!(wait.code, Some(10), "{wait:?}");
    let wait = typed(&house, &["wait", "3", "1", "--any", "--json"]);
    assert_eq!(wait.code, Some(0), "{wait:?}");
    let list = wait.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["id"], 1);
    assert_eq!(list["next"], json!(null));
    let wait = typed(&house, &["wait", "1", "3", "--timeout", "1s"]);
    assert_eq!(wait.code, Some(124), "{wait:?}");
    let wait = typed(&house, &["wait", "1", "99"]);
    assert_eq!(wait.code, Some(5), "{wait:?}");
    let wait = typed(&house, &["wait"]);
    assert_eq!(wait.code, Some(2), "{wait:?}");

    let mut child = command(house.folder.path(), &["wait", "3"])
        .env("STEPWARD_SERVER_URL", house.url())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    // Once it has taken the signals over, they are what ends it.
    await_that("it listens to signals", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))?;
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        (caught >> 1 & 1 == 1).then_some(())
    });
    kill_process(pid, Signal::INT).unwrap();
    let status = await_that("the waiting ends", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
    house.cancel(3);
    house.check();
}

#[test]
fn jobs_are_cancelled_one_by_one_whatever_becomes_of_the_others() {
    let mut house = House::with(WORKFLOWS);
    let _worker = house.worker(2);
    for task in ["good", "nap", "nap"] {
        house.submit(task);
    }
    house.await_job(1, "completed");
    let cancel = typed(&house, &["cancel", "2"]);
    assert_eq!(cancel.code, Some(0), "{cancel:?}");
    assert_eq!(cancel.stdout, "job 2 nap is cancelled\n");
    let cancel = typed(&house, &["cancel", "1", "3", "--json"]);
    assert_eq!(cancel.code, Some(7), "{cancel:?}");
    assert!(cancel.stderr.contains("job 1"), "{cancel:?}");
    assert_eq!(cancel.json()["items"][0]["id"], 3);
    assert_eq!(cancel.json()["items"][0]["status"], "cancelled");
    house.check();
}

#[test]
fn what_failed_is_done_again_and_watched() {
    let mut house = House::with(WORKFLOWS);
    let _worker = house.worker(1);
    house.submit("bad");
    house.await_job(1, "failed");
    let retry = typed(&house, &["retry", "1"]);
    assert_eq!(retry.code, Some(10), "{retry:?}");
    std::fs::write(house.path("ledger"), "").unwrap();
    let retry = typed(&house, &["retry", "bad@failed"]);
    assert_eq!(retry.code, Some(0), "{retry:?}");
    assert_eq!(house.job(3).retry_of, Some(2));
    let retry = typed(&house, &["retry", "1", "--from", "b", "--detach"]);
    assert_eq!(
        (retry.code, retry.stdout.as_str()),
        (Some(0), "4\n"),
        "{retry:?}"
    );
    let retry = typed(&house, &["retry", "1", "--all", "--detach", "--json"]);
    assert_eq!(retry.json()["id"], 5);
    let retry = typed(&house, &["retry", "1", "--all", "--from", "b"]);
    assert_eq!(retry.code, Some(2), "{retry:?}");
    let retry = typed(&house, &["retry", "1", "--from", "nothing"]);
    assert!(matches!(retry.code, Some(3 | 5)), "{retry:?}");
    house.submit("nap");
    let retry = typed(&house, &["retry", "6"]);
    assert_eq!(retry.code, Some(7), "{retry:?}");
    house.cancel(6);
    house.await_job(4, "completed");
    house.await_job(5, "completed");
    house.check();
}

#[test]
fn a_person_decides_with_what_is_asked_for() {
    let mut house = House::with(WORKFLOWS);
    let _worker = house.worker(1);
    house.submit("gated");
    house.await_step(1, "gate", "suspended");
    let approve = typed(&house, &["approve", "1"]);
    assert_eq!(approve.code, Some(3), "{approve:?}");
    assert!(approve.stderr.contains("version"), "{approve:?}");
    let approve = typed(&house, &["approve", "1", "gaet"]);
    assert_eq!(approve.code, Some(5), "{approve:?}");
    assert!(approve.stderr.contains("did you mean gate?"), "{approve:?}");
    let approve = typed(&house, &["approve", "1/ship"]);
    assert_eq!(approve.code, Some(7), "{approve:?}");
    let approve = typed(
        &house,
        &["approve", "1", "-i", "version=1.10", "-i", "count=2"],
    );
    assert_eq!(approve.code, Some(0), "{approve:?}");
    assert_eq!(approve.stdout, "step gate of job 1 gated was approved\n");
    house.await_job(1, "completed");
    assert!(
        house
            .log_lines(1, "ship")
            .contains(&"shipped 1.10".to_string())
    );
    let approve = typed(&house, &["approve", "1"]);
    assert_eq!(approve.code, Some(7), "{approve:?}");

    house.submit("gated");
    house.await_step(2, "gate", "suspended");
    let reject = typed(
        &house,
        &["reject", "gated@latest", "-m", "not today", "--json"],
    );
    assert_eq!(reject.code, Some(0), "{reject:?}");
    assert_eq!(reject.json()["id"], 2);
    let job = house.await_job(2, "failed");
    assert!(job.message.unwrap().contains("not today"));

    house.submit("two-gates");
    house.await_step(3, "two", "suspended");
    let approve = typed(&house, &["approve", "3"]);
    assert_eq!(approve.code, Some(2), "{approve:?}");
    assert!(approve.stderr.contains("`one` or `two`"), "{approve:?}");
    for step in ["3/one", "3/two"] {
        assert_eq!(typed(&house, &["approve", step]).code, Some(0));
    }
    house.await_job(3, "completed");
    house.check();
}

#[test]
fn whoever_waits_stays_though_a_proxy_says_that_the_server_is_away() {
    let mut house = House::with(WORKFLOWS);
    let _worker = house.worker(1);
    house.submit("nap");
    house.await_step(1, "rest", "running");
    let is_away = Arc::new(AtomicBool::new(false));
    let ways = [
        &["watch", "1"][..],
        &["wait", "1"],
        &["logs", "-f", "1", "--exit-status"],
    ];
    // Each by a proxy of its own, so that it is known who asked.
    let wait = |words: &&'static [&'static str]| {
        let away = is_away.clone();
        // What never ends does not go through it.
        let proxy = Proxy::start(&house.url(), move |path, _| {
            match away.load(Ordering::SeqCst) || path.starts_with("/api/events") {
                true => Fate::BadGateway,
                false => Fate::Pass,
            }
        });
        let mut child = command(house.folder.path(), words);
        child.env("STEPWARD_SERVER_URL", &proxy.url);
        let child = child.stderr(Stdio::piped()).spawn().unwrap();
        await_that("it has found its job", || {
            (proxy.count("/api/jobs/1", Fate::Pass) > 1).then_some(())
        });
        (proxy, child)
    };
    let waiting: Vec<_> = ways.iter().map(wait).collect();
    is_away.store(true, Ordering::SeqCst);
    for (proxy, _) in &waiting {
        await_that("it is told that the server is away", || {
            (proxy.count("/api/jobs/1", Fate::BadGateway) > 1).then_some(())
        });
    }
    house.cancel(1);
    is_away.store(false, Ordering::SeqCst);
    for ((_proxy, child), words) in waiting.into_iter().zip(ways) {
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(11), "{words:?}: {said}");
    }
    house.check();
}

#[test]
fn why_a_job_was_cancelled_is_told_to_whoever_looks() {
    let mut house = House::with(WORKFLOWS);
    let _worker = house.worker(1);
    house.submit("nap");
    house.await_step(1, "rest", "running");
    let cancelled = typed(&house, &["cancel", "1", "-m", "wrong version"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    let job = house.job(1);
    assert_eq!(job.message.as_deref(), Some("cancelled: wrong version"));
    house.check();
}

#[test]
fn a_name_that_is_empty_names_nothing() {
    let house = House::with(WORKFLOWS);
    for words in [
        &["wait", ""][..],
        &["watch", ""],
        &["logs", ""],
        &["cancel", ""],
        &["retry", ""],
        &["approve", ""],
        &["reject", ""],
        &["job", "show", ""],
        &["task", "show", ""],
        &["worker", "show", ""],
        &["worker", "rm", ""],
        &["schedule", "show", ""],
        &["events", "--job", ""],
    ] {
        let typed = typed(&house, words);
        assert_eq!(typed.code, Some(2), "{words:?}: {typed:?}");
        assert!(typed.stderr.contains("nothing is named by it"), "{typed:?}");
    }
    for words in [
        &["why", ""][..],
        &["graph", ""],
        &["graph", "--job", ""],
        &["run", ""],
        &["job", "show", ".."],
    ] {
        let typed = typed(&house, words);
        assert_eq!(typed.code, Some(2), "{words:?}: {typed:?}");
    }
    // Variables that are set to nothing say nothing.
    for variable in ["STEPWARD_TOKEN_FILE", "STEPWARD_TOKEN", "STEPWARD_DATA_DIR"] {
        let status = command(house.folder.path(), &["status"])
            .env("STEPWARD_SERVER_URL", house.url())
            .env(variable, "")
            .output();
        assert_eq!(status.unwrap().status.code(), Some(0), "{variable}");
    }
    // An address that ends too late is no job that is not there.
    let url = format!("{}/foo", house.url());
    let typed = typed_in(house.folder.path(), &["wait", "1", "--server", &url]);
    assert_eq!(typed.code, Some(6), "{typed:?}");
    house.check();
}
