//! The workflows folder of a running server: files that come, change, break and are mended.

use std::fs;

use serde_json::Value;
use stepward::wire::api::EventJson;

use crate::house::{House, await_that};

const HELLO: &str = "tasks:\n  hello:\n    flow:\n      greet: { script: echo one }\n";

fn problems(house: &House) -> Vec<Value> {
    let workflows: Value = house.get("/api/workflows");
    workflows["problems"].as_array().unwrap().clone()
}

fn tasks(house: &House) -> Vec<String> {
    let list: Value = house.get("/api/tasks");
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|task| task["name"].as_str().unwrap().to_string())
        .collect()
}

#[test]
fn a_file_that_comes_changes_or_goes_is_noticed() {
    let mut house = House::with(HELLO);
    let worker = house.worker(1);
    assert_eq!(tasks(&house), ["hello"]);
    house.write_workflow(
        "more.yaml",
        "tasks:\n  more:\n    flow:\n      call: { type: task, task: hello }\n",
    );
    await_that("the new task is there", || {
        (tasks(&house) == ["hello", "more"]).then_some(())
    });
    let job = house.submit("more");
    house.await_job(job, "completed");
    fs::remove_file(house.path("workflows/more.yaml")).unwrap();
    await_that("the task is gone", || {
        (tasks(&house) == ["hello"]).then_some(())
    });
    drop(worker);
    house.check();
}

#[test]
fn a_file_that_breaks_keeps_its_last_good_version_until_it_is_mended() {
    let mut house = House::with(HELLO);
    let worker = house.worker(1);
    house.write_workflow(
        "all.yaml",
        "tasks:\n  hello:\n    flow:\n      greet: { scrpt: echo two }\n",
    );
    let found = await_that("the problem is told", || {
        let found = problems(&house);
        (!found.is_empty()).then_some(found)
    });
    assert!(
        found[0]["message"].as_str().unwrap().contains("scrpt"),
        "{found:?}"
    );
    assert_eq!(
        (found[0]["line"].as_i64(), found[0]["column"].as_i64()),
        (Some(4), Some(16))
    );
    await_that("the event is there", || {
        let told = house.all_events();
        let is_it = |event: &EventJson| event.kind == "workflows_broken";
        told.iter().any(is_it).then_some(())
    });
    let ready: Value = house.get("/readyz");
    assert_eq!(ready["status"], "ready", "what is good goes on");
    assert!(
        ready["warnings"][0]
            .as_str()
            .unwrap()
            .contains("/api/workflows")
    );
    let job = house.submit("hello");
    house.await_job(job, "completed");
    assert_eq!(house.log_lines(job, "greet")[0], "one");

    // A restart goes by the last good version as well; what never was good is not there, and everybody is told.
    house.write_workflow(
        "good.yaml",
        "tasks:\n  good:\n    flow:\n      s: { script: echo good }\n",
    );
    house.write_workflow("new.yaml", "tasks: { new: { flow: 3 } }\n");
    house.kill_server();
    house.start_server();
    assert_eq!(tasks(&house), ["good", "hello"]);
    assert_eq!(problems(&house).len(), 2);
    let workflows: Value = house.get("/api/workflows");
    for (key, name) in [("stale", "all.yaml"), ("left_out", "new.yaml")] {
        let files = workflows[key].as_array().unwrap();
        assert_eq!(files.len(), 1, "{key}: {files:?}");
        assert!(files[0].as_str().unwrap().ends_with(name), "{files:?}");
    }
    let told = house.all_events();
    let told = told
        .iter()
        .rev()
        .find(|event| event.kind == "workflows_broken");
    let told = told.unwrap();
    assert!(
        told.message.contains("what never was is left out"),
        "{}",
        told.message
    );
    let job = house.submit("hello");
    house.await_job(job, "completed");
    assert_eq!(house.log_lines(job, "greet")[0], "one");
    fs::remove_file(house.path("workflows/new.yaml")).unwrap();

    house.write_workflow("all.yaml", &HELLO.replace("one", "three"));
    await_that("all is good again", || {
        problems(&house).is_empty().then_some(())
    });
    let job = house.submit("hello");
    house.await_job(job, "completed");
    assert_eq!(house.log_lines(job, "greet")[0], "three");
    drop(worker);
    house.check();
}

#[test]
fn a_job_keeps_the_definition_that_it_was_made_from() {
    let mut house = House::with(
        "tasks:\n  slow:\n    flow:\n      wait: { script: 'while [ ! -e LEDGER.gate ]; do sleep 0.05; done' }\n      say: { script: echo old, depends_on: [wait] }\n",
    );
    let worker = house.worker(1);
    let job = house.submit("slow");
    house.await_step(job, "wait", "running");
    house.write_workflow(
        "all.yaml",
        "tasks:\n  slow:\n    flow:\n      other: { script: echo new }\n",
    );
    await_that("the change is noticed", || {
        let task: Value = house.get("/api/tasks/slow");
        (task["steps"][0]["name"] == "other").then_some(())
    });
    house.open_gate();
    house.await_job(job, "completed");
    assert_eq!(house.log_lines(job, "say")[0], "old");
    drop(worker);
    house.check();
}
