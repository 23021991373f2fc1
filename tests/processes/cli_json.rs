//! What the README promises programs: every word of its table is a key of what the command really prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::house::{House, await_that};
use crate::typed::{command, typed};

/// The words in quotes that the README has for each command.
fn promised() -> BTreeMap<String, BTreeSet<String>> {
    let readme = fs::read_to_string("README.md").unwrap();
    let table = readme
        .split("| command | what `--json` prints")
        .nth(1)
        .unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut promised = BTreeMap::new();
    for row in rows {
        let row = row.replace("\\|", "");
        let cells: Vec<&str> = row.split('|').collect();
        let keys = cells[2]
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|shape| shape.contains('{'));
        let keys: BTreeSet<String> = keys
            .flat_map(|shape| shape.split('"').skip(1).step_by(2))
            // What a key may be, not a key.
            .filter(|word| !["job", "step", "event", "end"].contains(word))
            .map(str::to_string)
            .collect();
        for name in cells[1].split('`').skip(1).step_by(2) {
            promised.insert(name.to_string(), keys.clone());
        }
    }
    promised
}

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.insert(key.clone());
                keys(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

const WORKFLOWS: &str = r#"
tasks:
  hello:
    flow:
      greet: { script: echo hello }
      tell: { env: { HOW: "{{ steps.greet.status }}" }, script: 'echo "$HOW"', depends_on: [greet] }
    schedules:
      nightly: { cron: "0 2 * * *" }
  ask:
    flow:
      decide: { type: approval, message: Go on? }
  train:
    flow:
      fit: { script: echo never, tags: [gpu] }
  fails:
    flow:
      test: { script: exit 3 }
      after: { script: echo, depends_on: [test] }
"#;

/// A database with a job that should have ended.
fn break_a_rule(folder: &Path) {
    drop(stepward::store::Store::open(folder, Default::default()).unwrap());
    let sql = rusqlite::Connection::open(folder.join("stepward.db")).unwrap();
    sql.execute_batch(
        "INSERT INTO definition (hash, body)
         VALUES ('h', '[{\"name\":\"t\",\"steps\":[{\"name\":\"a\",\"action\":{\"type\":\"pod\",\"manifest\":\"m\"},
                  \"on_worker_loss\":\"fail\",\"unmatched\":\"fail\"}]}]');
         INSERT INTO job (definition_id, task_index, task, state, source, input, labels, priority, depth, steps_open,
                          change_seq, created_at, since_up)
         VALUES (1, 0, 't', 'pending', 'submit', '{}', '{}', 0, 0, 1, 1, 0, 0)",
    )
    .unwrap();
}

#[test]
fn every_command_prints_for_programs_what_the_readme_says() {
    // Long enough for the step that nobody can run to be foreseen in all of it.
    let settings = "recovery: { unmatched_step_timeout_secs: 300 }";
    let mut house = House::with_settings(WORKFLOWS, settings);
    let _worker = house.worker(2);
    let folder = house.folder.path().to_path_buf();
    fs::write(folder.join("wrong.yaml"), "tasks:\n  a: 5\n").unwrap();
    fs::write(folder.join("server-config.yaml"), "listen: 127.0.0.1:0\n").unwrap();
    let hello = house.submit("hello");
    house.await_job(hello, "completed");
    let fails = house.submit("fails");
    house.await_job(fails, "failed");
    house.submit("train");
    let asks = [
        house.submit("ask"),
        house.submit("ask"),
        house.submit("ask"),
    ];
    for job in asks {
        await_that("it asks", || {
            let job = house.job(job);
            let steps = job.steps.unwrap();
            (steps[0].status == "suspended").then_some(())
        });
    }
    let [approved, rejected, cancelled] = asks.map(|job| job.to_string());
    break_a_rule(&folder.join("other"));

    let commands: &[(&str, &[&str])] = &[
        ("run", &["run", "hello"]),
        ("watch", &["watch", "1"]),
        ("retry", &["retry", "1", "--all"]),
        ("run --detach", &["run", "hello", "--detach"]),
        ("approve", &["approve", &approved]),
        ("reject", &["reject", &rejected, "-m", "no"]),
        ("job show", &["job", "show", "1"]),
        ("wait", &["wait", "1"]),
        ("cancel", &["cancel", &cancelled]),
        ("ls", &["job", "ls"]),
        ("logs", &["logs", "1"]),
        ("events", &["events"]),
        ("status", &["status"]),
        ("why", &["why", "3"]),
        ("recovery forecast", &["recovery", "forecast"]),
        ("schedule next", &["schedule", "next"]),
        ("validate", &["validate", "wrong.yaml"]),
        ("graph", &["graph", "hello"]),
        ("render", &["render", "hello"]),
        ("explain", &["explain", "worker_lost"]),
        ("doctor", &["doctor"]),
        ("config show", &["config", "show"]),
        ("token new", &["token", "new", "new.token"]),
        ("token check", &["token", "check"]),
        ("db check", &["db", "check", "other"]),
        ("init", &["init", "project"]),
        ("demo", &["demo"]),
    ];
    let mut promised = promised();
    // One row for two commands, each with its own half.
    for (command, halves) in [
        ("token new", ["file", "token"]),
        ("token check", ["server", "allowed"]),
    ] {
        promised.insert(command.to_string(), halves.map(str::to_string).into());
    }
    for (name, words) in commands {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        let done = match *name {
            // It has a server of its own.
            "demo" => command(&folder, &words).output().unwrap().into(),
            _ => typed(&house, &words),
        };
        let values = serde_json::Deserializer::from_str(&done.stdout).into_iter::<Value>();
        let values: Vec<Value> = values
            .map(|value| value.unwrap_or_else(|error| panic!("{name}: {error}: {done:?}")))
            .collect();
        assert!(!values.is_empty(), "{name}: {done:?}");
        let mut found = BTreeSet::new();
        values.iter().for_each(|value| keys(value, &mut found));
        let expected = promised
            .remove(*name)
            .unwrap_or_else(|| panic!("{name} is not in the README"));
        let missing: Vec<&String> = expected.difference(&found).collect();
        assert_eq!(missing, Vec::<&String>::new(), "{name}: {}", done.stdout);
    }
    assert_eq!(
        promised.keys().collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "nobody tried these"
    );
}
