//! `stepward job`, `task`, `worker`, `schedule`: what they print for people's scripts, what they change, how they end.

use serde_json::Value;

use crate::house::{House, PATIENT, SETTINGS};
use crate::typed::{Typed, command, typed, typed_in};

const WORKFLOWS: &str = "
tasks:
  release:
    description: Builds and ships.
    timeout: 10m
    input:
      version: { type: string, required: true, description: Which one. }
      env: { type: string, default: dev, options: [dev, prod] }
      key: { type: string, secret: true }
    flow:
      build: { script: echo built }
      test: { script: exit 2, depends_on: build }
      ship: { script: echo shipped, depends_on: test }
    schedules:
      nightly: { cron: 0 2 * * *, timezone: Europe/Oslo, input: { version: 'x' } }
      never: { cron: 0 3 * * *, enabled: false, input: { version: 'x' } }
  nap:
    flow:
      nap: { script: SLEEP }
  ask:
    flow:
      sure: { type: approval, message: Really?, input: { because: { type: string, required: true } } }
";

/// Typed where all is well.
fn printed(house: &House, words: &[&str]) -> String {
    let typed = typed(house, words);
    assert_eq!(typed.code, Some(0), "{words:?}: {typed:?}");
    typed.stdout
}

/// The fields of an object, in the order of the alphabet.
fn fields(object: &Value) -> Vec<&str> {
    let object = object
        .as_object()
        .unwrap_or_else(|| panic!("no object: {object}"));
    let mut fields: Vec<&str> = object.keys().map(String::as_str).collect();
    fields.sort_unstable();
    fields
}

#[track_caller]
fn has_fields(object: &Value, expected: &str) {
    let mut expected: Vec<&str> = expected.split_whitespace().collect();
    expected.sort_unstable();
    assert_eq!(fields(object), expected);
}

/// A list is one object with its items, all of them.
#[track_caller]
fn items(typed: &Typed) -> Vec<Value> {
    assert_eq!(typed.code, Some(0), "{typed:?}");
    let list = typed.json();
    has_fields(&list, "items next");
    assert_eq!(list["next"], Value::Null);
    list["items"].as_array().unwrap().clone()
}

/// Tabs between columns, and no heading.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .map(|line| line.split('\t').collect())
        .collect()
}

const JOB: &str = "id task status reason message source input output labels priority parent retry_of hook_of schedule_id \
                   scheduled_for created_at started_at ended_at";
const STEP: &str = "id name status reason message type depends_on required_tags attempt max_attempts worker child_job_id \
                    exit_code output ready_at assigned_at started_at ended_at not_before attempts";
const TASK: &str = "name description inputs steps priority timeout_secs queue_timeout_secs";
const VALUE: &str =
    "name type required default options pattern min max multiple secret description";
const WORKER: &str = "id name status tags slots slots_used session version platform last_heartbeat_at heartbeat_age_secs \
                      inactive_in_secs draining paused running";
const SCHEDULE: &str = "id task name cron timezone input overlap catch_up enabled paused loaded next_at following last \
                        created_at removed_at";

#[test]
fn what_programs_read_has_these_fields_and_no_others() {
    let mut house = House::with(WORKFLOWS);
    let worker = house.worker(2);
    let input = serde_json::json!({ "version": "1.2" });
    house.submit_with("release", input).unwrap();
    house.await_job(1, "failed");
    house.submit("nap");
    house.await_asleep(1);
    house.submit("ask");

    let jobs = items(&typed(&house, &["job", "ls", "--json"]));
    assert_eq!(jobs.len(), 3);
    for job in &jobs {
        has_fields(job, JOB);
    }
    let job = typed(&house, &["job", "show", "release@failed", "--json"]).json();
    has_fields(&job, &format!("{JOB} steps"));
    for step in job["steps"].as_array().unwrap() {
        has_fields(step, STEP);
    }
    has_fields(
        &job["steps"][1]["attempts"][0],
        "attempt worker session started_at ended_at outcome reason message exit_code",
    );
    let asked = typed(&house, &["job", "show", "ask@latest", "--json"]).json();
    has_fields(&asked["steps"][0], &format!("{STEP} asks"));
    has_fields(&asked["steps"][0]["asks"][0], VALUE);

    let tasks = items(&typed(&house, &["task", "ls", "--json"]));
    for task in &tasks {
        has_fields(task, TASK);
    }
    let task = typed(&house, &["task", "show", "release", "--json"]).json();
    assert_eq!(task, tasks[2]);
    has_fields(&task["inputs"][0], VALUE);
    has_fields(&task["steps"][0], "name type depends_on required_tags");

    let workers = items(&typed(&house, &["worker", "ls", "--json"]));
    has_fields(&workers[0], WORKER);
    let shown = typed(&house, &["worker", "show", "w1", "--json"]).json();
    has_fields(&shown, WORKER);
    has_fields(&shown["running"][0], "job_id step attempt status");
    for verb in ["pause", "resume", "drain"] {
        let changed = typed(&house, &["worker", verb, "w1", "--json"]).json();
        has_fields(&changed, WORKER);
    }
    let removed = typed(&house, &["worker", "rm", "w1", "--force", "--json"]).json();
    has_fields(&removed, WORKER);

    let name = "release.nightly";
    for verb in ["show", "pause", "resume"] {
        let schedule = typed(&house, &["schedule", verb, name, "--json"]).json();
        has_fields(&schedule, SCHEDULE);
        has_fields(&schedule["catch_up"], "policy within_secs max");
    }
    let fired = typed(&house, &["schedule", "fire", name, "--json"]).json();
    has_fields(&fired, &format!("{JOB} steps"));
    assert_eq!(fired["source"], "schedule");
    let schedules = items(&typed(&house, &["schedule", "ls", "--json"]));
    assert_eq!(schedules.len(), 2);
    for schedule in &schedules {
        has_fields(schedule, SCHEDULE);
    }
    let nightly = schedules.iter().find(|one| one["name"] == "nightly");
    has_fields(
        &nightly.unwrap()["last"],
        "due_at until_at outcome manual job_id at message",
    );
    let next = items(&typed(&house, &["schedule", "next", "-n", "7", "--json"]));
    assert_eq!(next.len(), 7, "more than the server tells of one");
    for fire in &next {
        has_fields(fire, "at schedule_id task name timezone");
        assert_eq!(fire["name"], "nightly");
    }
    house.await_nobody_asleep();
    drop(worker);
    house.check();
}

#[test]
fn what_scripts_cut_is_separated_by_tabs() {
    let mut house = House::with(WORKFLOWS);
    let worker = house.worker(2);
    let labels = serde_json::json!({ "input": { "version": "1.2", "key": "hunter2" }, "labels": { "who": "ann" } });
    let _: Value = house
        .client
        .post(
            "/api/tasks/release/jobs",
            &labels,
            std::time::Duration::from_secs(10),
        )
        .unwrap();
    house.await_job(1, "failed");
    house.submit("nap");
    house.await_asleep(1);
    house.submit("ask");

    let listed = printed(&house, &["job", "ls"]);
    let jobs = rows(&listed);
    let few: Vec<[&str; 3]> = jobs.iter().map(|row| [row[0], row[1], row[2]]).collect();
    assert_eq!(
        few,
        [
            ["3", "ask", "running"],
            ["2", "nap", "running"],
            ["1", "release", "failed"]
        ]
    );
    assert_eq!(
        (jobs[2].len(), jobs[2][5], jobs[2][6]),
        (7, "submit", "step test failed: exit code 2")
    );
    for (words, expected) in [
        (&["--task", "nap"][..], &["2"][..]),
        (&["--status", "running"], &["3", "2"]),
        (&["-n", "1"], &["3"]),
        (&["--all"], &["3", "2", "1"]),
        (&["--reason", "exit_code", "--since", "1h"], &["1"]),
        (&["-q", "source:submit status:failed"], &["1"]),
    ] {
        let words = [&["job", "ls"], words].concat();
        let listed = printed(&house, &words);
        let found: Vec<&str> = rows(&listed).iter().map(|row| row[0]).collect();
        assert_eq!(found, expected, "{words:?}");
    }

    let shown = typed(&house, &["job", "show", "1"]);
    let (head, steps) = shown.stdout.split_once("\n\n").unwrap();
    let head = rows(head);
    for expected in [
        ["job", "1"],
        ["task", "release"],
        ["status", "failed"],
        ["reason", "exit_code"],
        ["message", "step test failed: exit code 2"],
        ["source", "submit"],
        ["labels", "who=ann"],
    ] {
        assert!(head.contains(&expected.to_vec()), "{expected:?}: {head:?}");
    }
    assert!(!shown.stdout.contains("hunter2"));
    let steps = rows(steps);
    let of = |at: usize| {
        let row = &steps[at];
        [row[0], row[1], row[2], row[3], row[6]]
    };
    assert_eq!(of(0), ["build", "completed", "1/1", "w1", "exit code 0"]);
    assert_eq!(of(1), ["test", "failed", "1/1", "w1", "exit code 2"]);
    assert_eq!(
        of(2),
        [
            "ship",
            "skipped",
            "-",
            "-",
            "step test failed, which it does not accept"
        ]
    );
    assert_eq!(
        shown.stderr,
        "stepward: next: stepward why 1, stepward logs 1, stepward retry 1\n"
    );
    let asked = typed(&house, &["job", "show", "ask@latest"]);
    let ask = asked.stdout.rsplit("\n\n").next().unwrap();
    assert_eq!(ask, "because\tstring\tyes\t-\t-\t-\n");
    assert!(
        asked.stderr.contains("stepward approve 3 sure"),
        "{asked:?}"
    );

    let tasks = printed(&house, &["task", "ls"]);
    assert_eq!(
        rows(&tasks),
        [
            ["ask", "1", "-", "-"],
            ["nap", "1", "-", "-"],
            ["release", "3", "version, [env], [key]", "Builds and ships."]
        ]
    );
    let task = typed(&house, &["task", "show", "release"]);
    let parts: Vec<&str> = task.stdout.split("\n\n").collect();
    assert_eq!(
        rows(parts[0]),
        [
            ["task", "release"],
            ["description", "Builds and ships."],
            ["timeout", "10m"]
        ]
    );
    assert_eq!(
        rows(parts[1]),
        [
            ["version", "string", "yes", "-", "-", "Which one."],
            ["env", "string", "no", "dev", "dev, prod", "-"],
            ["key", "string, secret", "no", "-", "-", "-"]
        ]
    );
    assert_eq!(
        rows(parts[2]),
        [
            ["build", "script", "-", "script"],
            ["test", "script", "build", "script"],
            ["ship", "script", "test", "script"]
        ]
    );
    assert_eq!(rows(parts[3])[0][..3], ["1", "release", "failed"]);
    assert_eq!(
        task.stderr,
        "stepward: run it: stepward run release -i version=STRING\n"
    );

    let workers = printed(&house, &["worker", "ls"]);
    let row = &rows(&workers)[0];
    assert_eq!(row[..4], ["w1", "active", "1/2", "script"]);
    assert_eq!(row[5..], [env!("CARGO_PKG_VERSION"), "1"]);
    let worker_shown = printed(&house, &["worker", "show", "1"]);
    assert!(
        worker_shown.ends_with("\n\n2\tnap\trunning\t1\n"),
        "{worker_shown}"
    );

    let schedules = printed(&house, &["schedule", "ls"]);
    let mut schedules = rows(&schedules);
    schedules.sort();
    assert_eq!(
        schedules[0],
        ["release.never", "0 3 * * *", "UTC", "-", "-", "disabled"]
    );
    let nightly = &schedules[1];
    assert_eq!(
        nightly[..3],
        ["release.nightly", "0 2 * * *", "Europe/Oslo"]
    );
    assert_eq!(nightly[4..], ["-", "on"]);
    let next = printed(&house, &["schedule", "next", "-n", "1"]);
    assert_eq!(rows(&next)[0][0], nightly[3]);
    assert_eq!(rows(&next)[0][2], "release.nightly");

    house.cancel(2);
    house.await_nobody_asleep();
    drop(worker);
    house.check();
}

#[test]
fn a_worker_is_paused_drained_and_removed_by_its_name() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let mut worker = house.worker(1);
    let job = house.submit("nap");
    house.await_asleep(1);

    let paused = typed(&house, &["worker", "pause", "w1"]);
    assert_eq!(
        paused.stdout,
        "worker w1 is active, paused: it still runs 1 step\n"
    );
    let resumed = typed(&house, &["worker", "resume", "w1"]);
    assert_eq!(resumed.stdout, "worker w1 is active\n");
    let refused = typed(&house, &["worker", "rm", "w1"]);
    assert_eq!(
        (refused.code, refused.stderr.as_str()),
        (
            Some(7),
            "stepward: worker w1 holds 1 step: 1/nap (running); let it finish them with \
             `stepward worker drain w1`, or lose them with --force\n"
        )
    );
    let drained = typed(&house, &["worker", "drain", "w1"]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
    let resumed = typed(&house, &["worker", "resume", "w1"]);
    assert_eq!(resumed.code, Some(7), "{resumed:?}");
    assert!(
        resumed.stderr.contains("start it again to have it back"),
        "{resumed:?}"
    );
    let removed = typed(&house, &["worker", "rm", "w1", "--force"]);
    assert_eq!(
        (
            removed.code,
            removed.stdout.as_str(),
            removed.stderr.as_str()
        ),
        (
            Some(0),
            "worker w1, number 1, is removed, and with it 1/nap (running)\n",
            ""
        )
    );
    assert_eq!(
        house.await_job(job, "failed").reason.as_deref(),
        Some("worker_deleted")
    );
    let gone = typed(&house, &["worker", "show", "w1"]);
    assert_eq!(gone.code, Some(5), "{gone:?}");
    let none = typed(&house, &["worker", "ls"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    assert!(none.stderr.contains("there are no workers"), "{none:?}");
    house.await_nobody_asleep();
    worker.kill();
    house.check();
}

#[test]
fn a_schedule_is_paused_resumed_and_fired_by_its_name() {
    let house = House::with_settings(WORKFLOWS, PATIENT);
    let paused = typed(&house, &["schedule", "pause", "release.nightly"]);
    assert_eq!(paused.stdout, "schedule release.nightly is paused\n");
    let next = typed(&house, &["schedule", "next"]);
    assert_eq!((next.code, next.stdout.as_str()), (Some(0), ""));
    let resumed = typed(&house, &["schedule", "resume", "release.nightly"]);
    assert!(resumed.stdout.contains("is on, next in "), "{resumed:?}");
    assert_eq!(
        printed(&house, &["schedule", "fire", "release.nightly"]),
        "1\n"
    );
    let shown = printed(&house, &["schedule", "show", "release.nightly"]);
    let (head, fires) = shown.split_once("\n\n").unwrap();
    assert!(rows(head).contains(&vec!["state", "on"]), "{head}");
    assert!(head.contains("\nnext\t"), "{head}");
    assert_eq!(rows(fires)[0][1], "fired by hand: job 1");

    house.write_workflow(
        "all.yaml",
        "tasks: { other: { flow: { a: { script: echo } } } }",
    );
    crate::house::await_that("the schedule is removed", || {
        let shown = printed(&house, &["schedule", "show", "release.nightly"]);
        rows(shown.split("\n\n").next().unwrap())
            .contains(&vec!["state", "removed"])
            .then_some(())
    });
    let paused = typed(&house, &["schedule", "pause", "release.nightly"]);
    assert_eq!(paused.code, Some(7), "{paused:?}");
    let none = typed(&house, &["schedule", "ls"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    assert!(none.stderr.contains("there are no schedules"), "{none:?}");
    house.check();
}

/// (what is typed, how it ends, how what is said ends or what it holds)
#[rustfmt::skip]
const MISTYPED: &[(&str, i32, &str)] = &[
    ("task show relase", 5, "task \"relase\" does not exist; did you mean release?"),
    ("job show relase@latest", 5, "did you mean release@latest?"),
    ("job show release@faild", 5, "did you mean release@failed?"),
    ("job show latst", 5, "did you mean latest?"),
    ("job show release", 5, "did you mean release@latest?"),
    ("job show 99", 5, "job 99 does not exist"),
    ("worker show w11", 5, "did you mean w1?"),
    ("worker drain nobody", 5, "there is no worker \"nobody\""),
    ("worker rm 99", 5, "worker 99 does not exist"),
    ("schedule show release.nighty", 5, "did you mean release.nightly?"),
    ("schedule fire 99", 5, "there is no schedule 99"),
    ("job ls --status faild", 2, "a similar value exists: 'failed'"),
    ("job ls -q stauts:failed", 2, "did you mean status?"),
    ("job ls --since soon", 2, "expected how long ago"),
    ("job ls -n 0", 2, "0 is not in 1.."),
    ("job ls -n 5 --all", 2, "cannot be used with"),
    ("job shwo 1", 2, "a similar subcommand exists: 'show'"),
    ("job", 2, "Usage: stepward job"),
    ("worker --slots 2 ls", 2, "cannot be used with"),
    ("lgos", 2, "a similar subcommand exists: 'logs'"),
    ("serve", 2, "'server'"),
    ("job ls --server 127.0.0.1", 2, "write http://HOST:PORT"),
    ("task ls --server http://127.0.0.1:1", 6, "does not answer"),
    ("schedule ls --token-file nowhere", 5, "nowhere"),
];

#[test]
fn whoever_mistypes_is_told_what_there_is() {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let worker = house.worker(1);
    for (words, code, said) in MISTYPED {
        let words: Vec<&str> = words.split(' ').collect();
        let typed = typed(&house, &words);
        assert_eq!(typed.code, Some(*code), "{words:?}: {typed:?}");
        assert!(typed.stderr.contains(said), "{words:?}: {typed:?}");
        assert!(!typed.stderr.contains("supervise"), "{typed:?}");
        assert_eq!(typed.stdout, "", "{words:?}");
    }
    // An empty list is no error, but says what may be wrong.
    let none = typed(&house, &["job", "ls", "--task", "relase"]);
    assert_eq!(none.code, Some(0), "{none:?}");
    assert!(none.stderr.contains("did you mean release?"), "{none:?}");
    drop(worker);
    house.check();
}

const CAREFUL: &str = "
tasks:
  careful:
    flow:
      migrate: { script: SLEEP, on_worker_loss: hold }
";

/// The step's own row says that it was rejected; the attempt that its lost worker made is told below it.
#[test]
fn job_show_lists_the_attempt_of_a_step_that_was_held_and_rejected() {
    let mut house = House::with_settings(CAREFUL, SETTINGS);
    let mut worker = house.worker(1);
    let job_id = house.submit("careful");
    house.await_asleep(1);
    worker.kill();
    house.await_step(job_id, "migrate", "suspended");
    let rejected = typed(&house, &["reject", "1", "migrate", "-m", "half done"]);
    assert_eq!(rejected.code, Some(0), "{rejected:?}");
    house.await_job(job_id, "failed");
    let shown = printed(&house, &["job", "show", "1"]);
    let attempts = rows(shown.rsplit("\n\n").next().unwrap());
    let [attempt] = &attempts[..] else {
        panic!("one attempt: {shown}");
    };
    assert_eq!(attempt[..4], ["migrate", "1", "failed", "w1"]);
    assert!(attempt[5].contains("w1"), "{attempt:?}");
    assert!(!attempt[5].contains("half done"), "{attempt:?}");
    house.await_nobody_asleep();
    house.check();
}

#[test]
fn whoever_has_no_token_is_told_how_to_show_one() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "0123456789abcdef0123\n").unwrap();
    let settings = format!("{SETTINGS}auth: {{ token_file: {} }}", token_file.display());
    let house = House::with_settings(WORKFLOWS, &settings);
    for words in [
        &["job", "ls"],
        &["task", "ls"],
        &["worker", "ls"],
        &["schedule", "next"],
    ] {
        let refused = typed(&house, words);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.stderr.contains("--token-file"), "{refused:?}");
        let named = [words, &["--token-file", token_file.to_str().unwrap()][..]].concat();
        assert_eq!(typed(&house, &named).code, Some(0), "{named:?}");
    }
    house.check();
}

#[test]
fn without_a_server_the_tasks_of_the_folder_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = typed_in(folder.path(), &["task", "ls"]);
    assert_eq!(nothing.code, Some(6), "{nothing:?}");
    std::fs::create_dir(folder.path().join("workflows")).unwrap();
    std::fs::write(folder.path().join("workflows/all.yaml"), WORKFLOWS).unwrap();

    let listed = typed_in(folder.path(), &["task", "ls"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert_eq!(rows(&listed.stdout).len(), 3);
    assert_eq!(
        listed.stderr,
        "stepward: no server is known here: these are the workflow files of workflows\n"
    );
    let shown = typed_in(folder.path(), &["task", "show", "release", "--json"]);
    has_fields(&shown.json(), TASK);
    let mistyped = typed_in(folder.path(), &["task", "show", "relase"]);
    assert_eq!(mistyped.code, Some(5), "{mistyped:?}");
    assert!(
        mistyped.stderr.contains("did you mean release?"),
        "{mistyped:?}"
    );
    for words in [["job", "ls"], ["worker", "ls"], ["schedule", "ls"]] {
        let typed = typed_in(folder.path(), &words);
        assert_eq!(typed.code, Some(6), "{typed:?}");
        assert!(
            typed.stderr.contains("no server is known here"),
            "{typed:?}"
        );
    }
}

#[test]
fn whoever_has_read_enough_ends_it_in_peace() {
    let house = House::with_settings(WORKFLOWS, PATIENT);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(house.folder.path(), &["task", "ls"]);
    let command = command.env("STEPWARD_SERVER_URL", house.url());
    let output = command.stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    house.check();
}
