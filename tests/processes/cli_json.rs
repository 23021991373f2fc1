//! What the README promises programs: every word of its table is a key of what the command really prints.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::house::{House, await_that};
use crate::typed::{command, typed};

/// What the README writes: `{"a", "b": [{"c"}], …}`.
#[derive(Debug, Clone)]
enum Shape {
    Object(Vec<(String, Shape)>),
    List(Box<Shape>),
    /// One of these words.
    Word(Vec<String>),
    Anything,
}

impl Shape {
    fn parse(text: &mut &str) -> Shape {
        *text = text.trim_start();
        if let Some(rest) = text.strip_prefix('{') {
            *text = rest;
            let mut members = Vec::new();
            loop {
                *text = text.trim_start_matches([' ', ',', '…']);
                if let Some(rest) = text.strip_prefix('}') {
                    *text = rest;
                    return Shape::Object(members);
                }
                let name = Shape::quoted(text).unwrap_or_else(|| panic!("no key at {text}"));
                let value = match text.strip_prefix(':') {
                    Some(rest) => {
                        *text = rest;
                        Shape::parse(text)
                    }
                    None => Shape::Anything,
                };
                members.push((name, value));
            }
        }
        if let Some(rest) = text.strip_prefix('[') {
            *text = rest;
            let inner = match text.starts_with('{') {
                true => Shape::parse(text),
                false => Shape::Anything,
            };
            let (_, rest) = text.split_once(']').expect("a list ends");
            *text = rest;
            return Shape::List(Box::new(inner));
        }
        let mut words = Vec::new();
        while let Some(word) = Shape::quoted(text) {
            words.push(word);
            *text = text.trim_start_matches('|');
        }
        Shape::Word(words)
    }

    fn quoted(text: &mut &str) -> Option<String> {
        let (word, rest) = text.strip_prefix('"')?.split_once('"')?;
        *text = rest;
        Some(word.to_string())
    }

    fn fits(&self, value: &Value) -> bool {
        match self {
            Shape::Anything => true,
            Shape::Word(words) => value
                .as_str()
                .is_some_and(|word| words.iter().any(|one| one == word)),
            Shape::List(inner) => value.as_array().is_some_and(|items| match **inner {
                Shape::Anything => true,
                _ => items.iter().any(|item| inner.fits(item)),
            }),
            Shape::Object(members) => value.as_object().is_some_and(|object| {
                let has = |(name, shape): &(String, Shape)| {
                    object.get(name).is_some_and(|value| shape.fits(value))
                };
                members.iter().all(has)
            }),
        }
    }

    /// The README tells it of an item of a list, or of one line of many.
    fn fits_somewhere(&self, value: &Value) -> bool {
        self.fits(value)
            || match value {
                Value::Object(map) => map.values().any(|value| self.fits_somewhere(value)),
                Value::Array(items) => items.iter().any(|item| self.fits_somewhere(item)),
                _ => false,
            }
    }
}

/// What the README has for each command.
fn promised() -> BTreeMap<String, Vec<Shape>> {
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
        // What stands between two words is no border.
        let row = row.replace("\\|", "\u{1}");
        let cells: Vec<&str> = row.split('|').collect();
        let texts = cells[2].replace('\u{1}', "|");
        let texts = texts.split('`').skip(1).step_by(2);
        let shapes: Vec<Shape> = texts
            .filter(|text| text.contains('{'))
            .map(|mut text| Shape::parse(&mut text))
            .collect();
        let names: Vec<&str> = cells[1].split('`').skip(1).step_by(2).collect();
        for (at, name) in names.iter().enumerate() {
            // As many shapes as commands: each has its own.
            let own = match names.len() == shapes.len() && names.len() > 1 {
                true => vec![shapes[at].clone()],
                false => shapes.clone(),
            };
            promised.insert(name.to_string(), own);
        }
    }
    promised
}

const WORKFLOWS: &str = r#"
tasks:
  hello:
    flow:
      greet: { script: echo hello }
      tell: { env: { HOW: "{{ steps.greet.status }}" }, script: 'echo "$HOW"', depends_on: [greet] }
    schedules:
      nightly: { cron: "0 2 * * *" }
  slow:
    flow:
      wait: { script: sleep 600 }
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
    fs::write(folder.join("crontab"), "0 3 * * * echo hello\n").unwrap();
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
        house.submit("ask"),
    ];
    for job in asks {
        await_that("it asks", || {
            let job = house.job(job);
            let steps = job.steps.unwrap();
            (steps[0].status == "suspended").then_some(())
        });
    }
    let [approved, rejected, cancelled, failed] = asks.map(|job| job.to_string());
    let failed = format!("{failed}/decide");
    let slow = house.submit("slow");
    await_that("it runs", || {
        let steps = house.job(slow).steps.unwrap();
        (steps[0].status == "running").then_some(())
    });
    let requeued = format!("{slow}/wait");
    break_a_rule(&folder.join("other"));

    let commands: &[(&str, &[&str])] = &[
        ("run", &["run", "hello"]),
        ("watch", &["watch", "1"]),
        ("retry", &["retry", "1", "--all"]),
        ("run --detach", &["run", "hello", "--detach"]),
        ("approve", &["approve", &approved]),
        ("reject", &["reject", &rejected, "-m", "no"]),
        ("job show", &["job", "show", "1"]),
        ("job requeue", &["job", "requeue", &requeued]),
        (
            "job fail",
            &["job", "fail", &failed, "-m", "nobody answers"],
        ),
        ("recovery sweep", &["recovery", "sweep"]),
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
        ("token new", &["token", "new", "ada", "--role", "admin"]),
        ("token file", &["token", "file", "new.token"]),
        ("token check", &["token", "check"]),
        ("db check", &["db", "check", "other"]),
        ("audit verify", &["audit", "verify"]),
        ("db compact", &["db", "compact", "other"]),
        ("backup", &["backup", "all.tar"]),
        ("backup verify", &["backup", "verify", "all.tar"]),
        ("restore", &["restore", "all.tar", "--data-dir", "restored"]),
        ("prune", &["prune", "--jobs-older", "30d", "--dry-run"]),
        ("import", &["import", "crontab", "crontab", "--dry-run"]),
        ("init", &["init", "project"]),
        ("demo", &["demo"]),
    ];
    let mut promised = promised();
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
        let shapes = promised
            .remove(*name)
            .unwrap_or_else(|| panic!("{name} is not in the README"));
        for shape in shapes {
            let fits = values.iter().any(|value| shape.fits_somewhere(value));
            assert!(fits, "{name}: {shape:?} in {}", done.stdout);
        }
    }
    assert_eq!(
        promised.keys().collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "nobody tried these"
    );
}
