//! `stepward why`, as somebody types it who wonders.

use crate::house::{House, SETTINGS, await_that};
use crate::typed::{Typed, typed};

const WORKFLOWS: &str = "
tasks:
  train:
    flow:
      fit: { script: 'true', tags: [gpu] }
      evaluate: { script: 'true', depends_on: fit }
      publish: { script: 'true', depends_on: evaluate }
  backup:
    flow:
      dump: { script: 'SLEEP' }
      upload: { script: 'true', depends_on: dump }
  release:
    flow:
      build: { script: 'exit 127' }
      test: { script: 'true', depends_on: build }
      publish: { script: 'true', depends_on: test }
    schedules:
      nightly: { cron: '0 3 * * *' }
";

fn said(typed: &Typed) -> &str {
    assert_eq!(
        (typed.code, typed.stderr.as_str()),
        (Some(0), ""),
        "{typed:?}"
    );
    &typed.stdout
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn a_step_that_nobody_can_run_is_explained_before_and_after_it_fails() {
    let settings = SETTINGS.replace(
        "unmatched_step_timeout_secs: 20",
        "unmatched_step_timeout_secs: 8",
    );
    let mut house = House::with_settings(WORKFLOWS, &settings);
    let url = house.url();
    let _one = house.worker_with(1, &url, "tags: [script, edge]");
    house.submit("train");
    house.await_step(1, "fit", "ready");

    let waits = typed(&house, &["why", "latest"]);
    has(
        said(&waits),
        &[
            "job 1 train · pending",
            "1 of 3 steps waits",
            "no worker offers gpu + script",
            "needs     gpu + script",
            "w1        edge, script   lacks gpu   seen ",
            "recovery phase 4 fails this step in ",
            "evaluate and publish will be skipped",
            "stepward worker --tags gpu,script",
        ],
    );
    assert_eq!(
        said(&typed(&house, &["why", "1/fit", "-q"])),
        "no_matching_worker\n"
    );
    assert_eq!(
        said(&typed(&house, &["why", "1", "evaluate", "-q"])),
        "dependencies\n"
    );
    let json = typed(&house, &["why", "1", "--json"]).json();
    assert_eq!(
        (&json["job_id"], &json["code"]),
        (&1.into(), &"no_matching_worker".into())
    );
    let step = &json["steps"][0];
    assert_eq!(step["needs"], serde_json::json!(["gpu", "script"]));
    assert_eq!(step["workers"][0]["lacks"], serde_json::json!(["gpu"]));
    assert_eq!(step["skips"], serde_json::json!(["evaluate", "publish"]));
    assert_eq!(step["outcome"]["phase"], 4);
    assert_eq!(step["outcome"]["code"], "fail");
    assert_eq!(step["details"][0]["kind"], "note");
    assert!(
        step["facts"]
            .as_array()
            .unwrap()
            .iter()
            .all(|fact| fact.is_string())
    );

    house.await_job(1, "failed");
    let ended = typed(&house, &["why", "train@failed"]);
    has(
        said(&ended),
        &[
            "job 1 train · failed ",
            "root cause: step fit, unmatched",
            "No active worker with required tags to run this step",
            "worker w1 lacked gpu then",
            "evaluate  ↷ skipped because fit failed",
            "then   stepward retry 1",
        ],
    );
    let json = typed(&house, &["why", "1/publish", "--json"]).json();
    assert_eq!(json["code"], "dependency_not_accepted");
    assert_eq!(json["root_cause"]["step"], "fit");
    house.check();
}

#[test]
fn a_killed_worker_is_explained_by_its_steps_and_by_itself() {
    let mut house = House::with(WORKFLOWS);
    let mut worker = house.worker(1);
    house.submit("backup");
    house.await_asleep(1);
    has(
        said(&typed(&house, &["why", "1"])),
        &["job 1 backup · running ", "worker w1 runs it for "],
    );
    has(
        said(&typed(&house, &["why", "w1"])),
        &[
            "worker w1 · active",
            "runs         1/dump (running, attempt 1)",
        ],
    );
    worker.kill();
    house.await_job(1, "failed");
    has(
        said(&typed(&house, &["why", "1"])),
        &[
            "root cause: step dump, worker_lost",
            "dump    ✘ failed, worker_lost, on w1",
            "it may have run partly: check its side effects before retrying",
            "stepward logs 1 dump",
            "upload  ↷ skipped because dump failed",
        ],
    );
    let gone = typed(&house, &["why", "--worker", "w1"]);
    has(
        said(&gone),
        &[
            "worker w1 · inactive",
            "recovery phase 1 marked it inactive ",
            "job 1: step dump failed: worker w1 was lost",
            "start worker w1 again",
        ],
    );
    let json = typed(&house, &["why", "w1", "--json"]).json();
    assert_eq!(
        (&json["code"], &json["worker"]["name"]),
        (&"inactive".into(), &"w1".into())
    );
    // It ends what its former life left.
    worker.start();
    house.await_nobody_asleep();
    house.check();
}

#[test]
fn what_is_meant_is_found_and_what_is_not_there_is_said() {
    let mut house = House::with(WORKFLOWS);
    let _worker = house.worker_with(1, &house.url(), "");
    house.submit("release");
    house.await_job(1, "failed");
    has(
        said(&typed(&house, &["why", "1/build"])),
        &[
            "exit code 127: command not found",
            "skipped   test and publish",
        ],
    );
    has(
        said(&typed(&house, &["why", "release.nightly"])),
        &[
            "schedule release.nightly · scheduled · next in ",
            "it has not been due yet",
        ],
    );
    let json = typed(&house, &["why", "--schedule", "release.nightly", "--json"]).json();
    assert_eq!(
        (&json["code"], &json["schedule"]["cron"]),
        (&"scheduled".into(), &"0 3 * * *".into())
    );
    let _: serde_json::Value = house.post("/api/schedules/release.nightly/pause").unwrap();
    assert_eq!(
        said(&typed(&house, &["why", "release.nightly", "-q"])),
        "paused\n"
    );

    for (words, expected) in [
        (
            &["why", "release.nihgtly"][..],
            "did you mean release.nightly?",
        ),
        (&["why", "w11"], "did you mean w1?"),
        (
            &["why", "--worker", "release.nightly"],
            "there is no worker",
        ),
        (
            &["why", "release"],
            "release is a task; of its newest job: stepward why release@latest",
        ),
        (&["why", "99"], "job 99 does not exist"),
        (&["why", "train@failed"], "there is no job"),
        (&["why", "1/biuld"], "job 1 has no step"),
        (&["why", "1/"], "names no step, write 1/STEP"),
        (&["why", "nobody", "build"], "names no job"),
        (&["why", "latst"], "did you mean latest?"),
        (&["why", "latst", "build"], "did you mean latest?"),
        (&["why", "latst/build"], "did you mean latest?"),
        (&["why", "release@latst"], "did you mean release@latest?"),
        (&["why", "relaese@failed"], "did you mean release@failed?"),
        (&["why", "release@"], "did you mean release@latest?"),
        (&["why", "release@fail"], "did you mean release@failed?"),
        (&["why", "nightly"], "did you mean release.nightly?"),
        (
            &["schedule", "show", "nightly"],
            "did you mean release.nightly?",
        ),
        (&["events", "--worker", "w11"], "did you mean w1?"),
        (&["events", "-f", "--worker", "w11"], "did you mean w1?"),
        (&["events", "-f", "--worker", "77"], "worker 77"),
    ] {
        let typed = typed(&house, words);
        assert_eq!(
            (typed.code, typed.stdout.as_str()),
            (Some(5), ""),
            "{typed:?}"
        );
        has(&typed.stderr, &[expected]);
        assert_eq!(typed.stderr.lines().count(), 1, "{typed:?}");
    }
    let hostile = typed(&house, &["why", "a\x1b[2Jb"]);
    assert_eq!(hostile.code, Some(5));
    assert!(!hostile.stderr.contains('\x1b'), "{hostile:?}");
    assert_eq!(typed(&house, &["why"]).code, Some(2));
    house.check();
}

#[test]
fn a_task_may_be_missing_because_its_file_does_not_load() {
    let house = House::with(WORKFLOWS);
    let told = typed(&house, &["run", "inp"]);
    assert_eq!(told.code, Some(5));
    assert!(!told.stderr.contains("load"), "{told:?}");
    house.write_workflow("inp.yaml", "tasks: { inp: { setps: {} } }");
    await_that("the file is read", || {
        let workflows: serde_json::Value = house.get("/api/workflows");
        (workflows["left_out"] != serde_json::json!([])).then_some(())
    });
    let told = typed(&house, &["run", "inp"]);
    assert_eq!(told.code, Some(5));
    has(
        &told.stderr,
        &["1 workflow file does not load, see `stepward status`"],
    );
}

#[test]
fn the_past_of_a_worker_that_was_removed_is_told() {
    let mut house = House::with(WORKFLOWS);
    let mut worker = house.worker(1);
    worker.kill();
    assert_eq!(house.delete_worker(1, true), 200);
    for name in ["w1", "1"] {
        let told = typed(&house, &["events", "--worker", name]);
        has(said(&told), &["worker_registered", "worker_deleted"]);
    }
}

#[test]
fn a_name_that_is_two_things_is_asked_back() {
    let house = House::with(WORKFLOWS);
    // A worker may be called as a schedule is.
    let body = serde_json::json!({
        "instance": "0".repeat(32), "session": "1".repeat(32), "name": "release.nightly",
        "tags": ["script"], "slots": 1, "version": "0", "platform": "x", "spooled": [],
    });
    let patience = std::time::Duration::from_secs(10);
    let opened: Result<serde_json::Value, _> =
        house.client.post("/api/worker/sessions", &body, patience);
    opened.unwrap();
    await_that("it is there", || {
        (!house.workers().is_empty()).then_some(())
    });
    let both = typed(&house, &["why", "release.nightly"]);
    assert_eq!(both.code, Some(5), "{both:?}");
    has(
        &both.stderr,
        &["is a schedule and a worker", "--schedule or --worker"],
    );
    let worker = typed(&house, &["why", "--worker", "release.nightly", "-q"]);
    assert_eq!(said(&worker), "active\n");
    house.check();
}
