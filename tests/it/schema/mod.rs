//! The JSON schema of workflow files: it lets pass what we write, and refuses what the loader refuses.

mod settings;
mod validator;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use validator::faults;

fn schema() -> Value {
    let printed = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .args(["schema", "workflow"])
        .output()
        .unwrap();
    assert!(printed.status.success());
    serde_json::from_slice(&printed.stdout).unwrap()
}

fn parse(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

fn examples() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("examples")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    found.sort();
    found
}

#[test]
fn every_example_and_every_snippet_of_the_readme_is_valid() {
    let schema = schema();
    for path in examples() {
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            faults(&schema, &parse(&text)),
            Vec::<String>::new(),
            "{}",
            path.display()
        );
    }
    let readme = fs::read_to_string("README.md").unwrap();
    let blocks = readme
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap());
    for block in blocks.filter(|block| block.contains("flow:")) {
        assert_eq!(
            faults(&schema, &parse(block)),
            Vec::<String>::new(),
            "{block}"
        );
    }
}

#[test]
fn what_an_import_writes_is_valid() {
    for golden in ["crontab-user", "crontab-system"] {
        let text = fs::read_to_string(format!("tests/it/import/golden/{golden}.yaml")).unwrap();
        assert_eq!(
            faults(&schema(), &parse(&text)),
            Vec::<String>::new(),
            "{golden}"
        );
    }
}

/// Every object of the schema that has keys of ours.
fn objects(schema: &Value, found: &mut Vec<Value>) {
    match schema {
        Value::Object(object) => {
            if object.contains_key("properties") && object.contains_key("additionalProperties") {
                found.push(schema.clone());
            }
            object.values().for_each(|inner| objects(inner, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| objects(inner, found)),
        _ => {}
    }
}

#[test]
fn every_key_says_what_it_means_and_shows_an_example_that_fits() {
    let schema = schema();
    let mut found = Vec::new();
    objects(&schema, &mut found);
    assert!(found.len() >= 14, "{}", found.len());
    for object in found {
        assert_eq!(
            object["additionalProperties"],
            Value::Bool(false),
            "{object}"
        );
        for (name, key) in object["properties"].as_object().unwrap() {
            let description = key["description"].as_str().unwrap_or_default();
            assert!(description.ends_with('.'), "{name}: {description}");
            for example in key["examples"].as_array().unwrap() {
                // The definitions are needed to follow what the key refers to.
                let mut alone = key.clone();
                alone["definitions"] = schema["definitions"].clone();
                assert_eq!(
                    faults(&alone, example),
                    Vec::<String>::new(),
                    "{name}: {example}"
                );
            }
        }
    }
}

/// A whole file around one step, one task or one schedule.
fn around(place: &str, inner: &str) -> String {
    match place {
        "top" => inner.to_string(),
        "task" => format!("tasks: {{ t: {{ flow: {{ s: {{ script: x }} }}, {inner} }} }}"),
        "step" => format!("tasks: {{ t: {{ flow: {{ a: {{ script: x }}, s: {{ {inner} }} }} }} }}"),
        "action" => format!(
            "tasks: {{ t: {{ flow: {{ s: {{ script: x }} }} }} }}\nactions: {{ a: {{ {inner} }} }}"
        ),
        other => panic!("{other}"),
    }
}

#[test]
fn what_has_no_place_or_the_wrong_type_is_refused() {
    let schema = schema();
    for (place, inner) in [
        ("top", "taks: {}"),
        ("top", "tasks: []"),
        ("top", "tasks: { t: {} }"),
        ("top", "tasks: { t: { flow: {} } }"),
        ("top", "secrets: { s: hunter2 }"),
        ("top", "secrets: { s: { env: A, file: b } }"),
        ("task", "timeout: soon"),
        ("task", "timeout: 1m1h"),
        ("task", "priority: high"),
        ("task", "steps: []"),
        ("task", "concurrency: { limit: 1 }"),
        ("task", "concurrency: { group: g, when_full: wait }"),
        ("task", "env: { 1A: x }"),
        ("task", "env: { A: [x] }"),
        ("task", "input: { a: { type: strnig } }"),
        ("task", "input: { a: { options: [] } }"),
        ("task", "on_error: [{ input: {} }]"),
        ("task", "on_error: [{ action: a, task: t }]"),
        ("task", "schedules: { n: { timezone: UTC } }"),
        (
            "task",
            "schedules: { n: { cron: '@daily', catch_up: some } }",
        ),
        (
            "task",
            "schedules: { n: { cron: '@daily', catch_up: { latest: 1h, all: 3 } } }",
        ),
        (
            "task",
            "schedules: { n: { cron: '@daily', overlap: both } }",
        ),
        ("task", "webhooks: { w: {} }"),
        (
            "task",
            "webhooks: { w: { secret: { env: A }, scheme: hmac } }",
        ),
        ("step", "depends_on: [a]"),
        ("step", "script: [x]"),
        ("step", "script: x, scrpt: y"),
        ("step", "type: dokcer"),
        ("step", "type: docker"),
        ("step", "type: pod"),
        ("step", "type: task"),
        ("step", "type: script, action: b, script: x"),
        ("step", "script: x, depends_on: [{ accept: terminal }]"),
        ("step", "script: x, depends_on: [{ step: a, accept: [] }]"),
        ("step", "script: x, depends_on: [{ step: a, accept: done }]"),
        ("step", "script: x, depends_on: { any: [] }"),
        ("step", "script: x, depends_on: { any: [a], all: [a] }"),
        ("step", "script: x, retry: { delay: 1s }"),
        ("step", "script: x, retry: { max_attempts: 0 }"),
        ("step", "script: x, retry: { max_attempts: 101 }"),
        ("step", "script: x, retry: 3"),
        ("step", "script: x, on_worker_loss: ignore"),
        ("step", "script: x, unmatched: skip"),
        ("step", "script: x, continue_on_failure: sometimes"),
        ("step", "script: x, for_each: 3"),
        ("step", "script: x, for_each: [1], max_parallel: 0"),
        ("step", "script: x, tags: gpu!"),
        ("step", "type: approval, input: { a: yes please }"),
        ("step", "script: x, message: y"),
        ("step", "type: script, script: x, message: y"),
        ("step", "script: x, task: t"),
        ("step", "script: x, file: a.sh"),
        ("step", "script: x, image: alpine"),
        ("step", "script: x, runner: local, image: alpine"),
        ("step", "type: approval, outputs: { a: {} }"),
        ("step", "type: approval, script: x"),
        ("step", "script: ''"),
        ("step", "script: ' '"),
        ("step", "script: x, max_parallel: 2"),
        ("task", "on_error: [{ notify: team, input: { a: 1 } }]"),
        ("action", "script: x, file: a.sh"),
        ("action", "script: x, image: alpine"),
        ("action", "type: task, task: t"),
        ("action", "type: approval"),
        ("action", "script: x, depends_on: [s]"),
        ("action", "input: { a: { type: string } }"),
    ] {
        let text = around(place, inner);
        assert!(
            !faults(&schema, &parse(&text)).is_empty(),
            "the schema lets pass: {text}"
        );
        refused_by_the_loader(&text);
    }
    for (place, inner) in [
        ("task", "timeout: 90, queue_timeout: 1h30m, priority: -5"),
        ("task", "env: { A: 1, B: true, C: '{{ job.id }}' }"),
        (
            "task",
            "schedules: { n: { cron: '@daily', catch_up: { latest: 2h } } }",
        ),
        (
            "task",
            "env: null, input: null, schedules: null, on_error: null",
        ),
        ("task", "input: { a: null }, description: 5"),
        ("top", "tasks: null"),
        ("step", "script: 5"),
        ("step", "script: x, tags: gpu"),
        ("step", "script: x, tags: [1]"),
        ("step", "script: x, env: null"),
        (
            "step",
            "script: x, retry: { max_attempts: 2, on: exit_code }",
        ),
        ("step", "type: docker, image: alpine, command: [x, 1]"),
        ("step", "script: x, runner: docker, image: alpine"),
        ("step", "script: x, for_each: [1], max_parallel: 2"),
        ("step", "type: approval, message: Go on?"),
        ("step", "script: x, when: false"),
        ("step", "script: x, depends_on: a"),
        (
            "step",
            "script: x, depends_on: { all: [a, { any: [a, { step: a, accept: [failed, omitted] }] }] }",
        ),
        ("step", "type: docker, image: alpine, command: [true]"),
        ("step", "script: x, for_each: '{{ [1, 2] }}'"),
    ] {
        let text = around(place, inner).replace("[true]", "['true']");
        assert_eq!(
            faults(&schema, &parse(&text)),
            Vec::<String>::new(),
            "{text}"
        );
        taken_by_the_loader(&text);
    }
}

fn taken_by_the_loader(text: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.yaml"), text).unwrap();
    let checked = stepward::language::load(folder.path());
    let said = stepward::language::render::human(&checked.diagnostics, false);
    assert_eq!(checked.errors(), 0, "the loader refuses: {text}\n{said}");
}

fn refused_by_the_loader(text: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.yaml"), text).unwrap();
    let checked = stepward::language::load(folder.path());
    assert!(checked.errors() > 0, "the loader lets pass: {text}");
}

/// The keys that the loader takes for unknown, of all those that are known anywhere.
fn unknown_to_the_loader(around: &str, all: &[&String]) -> BTreeSet<String> {
    let keys: Vec<String> = all.iter().map(|key| format!("{key}: null")).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.yaml");
    fs::write(&file, around.replace("HERE", &keys.join(", "))).unwrap();
    let validated = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .args(["validate", "--format", "short"])
        .arg(&file)
        .output()
        .unwrap();
    let told = String::from_utf8(validated.stdout).unwrap();
    let key_of = |line: &str, before: &str, after: &str| {
        let (_, rest) = line.split_once(before)?;
        let (key, rest) = rest.split_once('`')?;
        rest.starts_with(after).then(|| key.to_string())
    };
    let told = told.lines().filter_map(|line| {
        key_of(line, "unknown key `", " in ")
            .or_else(|| key_of(line, "error: `", " is a word of "))
            .or_else(|| key_of(line, "error: `", " is not a key of an action ["))
    });
    told.collect()
}

#[test]
fn the_schema_knows_exactly_the_keys_that_the_loader_knows() {
    let schema = schema();
    let things = [
        ("/properties", "{ HERE }"),
        ("/definitions/task/properties", "tasks: { t: { HERE } }"),
        (
            "/definitions/step/properties",
            "tasks: { t: { flow: { s: { HERE } } } }",
        ),
        ("/definitions/action/properties", "actions: { a: { HERE } }"),
        (
            "/definitions/value/properties",
            "tasks: { t: { flow: { s: { script: x } }, input: { v: { HERE } } } }",
        ),
        (
            "/definitions/schedule/properties",
            "tasks: { t: { flow: { s: { script: x } }, schedules: { n: { HERE } } } }",
        ),
        (
            "/definitions/webhook/properties",
            "tasks: { t: { flow: { s: { script: x } }, webhooks: { w: { HERE } } } }",
        ),
        ("/definitions/secret/properties", "secrets: { s: { HERE } }"),
        (
            "/definitions/concurrency/properties",
            "tasks: { t: { flow: { s: { script: x } }, concurrency: { HERE } } }",
        ),
        (
            "/definitions/retry/properties",
            "tasks: { t: { flow: { s: { script: x, retry: { HERE } } } } }",
        ),
        (
            "/definitions/hooks/items/properties",
            "tasks: { t: { flow: { s: { script: x } }, on_error: [{ HERE }] } }",
        ),
    ];
    let keys = |place: &str| -> BTreeSet<String> {
        let properties = schema.pointer(place).unwrap().as_object().unwrap();
        properties.keys().cloned().collect()
    };
    let mut all: BTreeSet<String> = things.iter().flat_map(|(place, _)| keys(place)).collect();
    all.insert("nobody_knows".to_string());
    for (place, around) in things {
        let unknown: BTreeSet<String> = all.difference(&keys(place)).cloned().collect();
        // Few at a time: the list of problems of one file has an end.
        let all: Vec<&String> = all.iter().collect();
        let told = all
            .chunks(15)
            .flat_map(|some| unknown_to_the_loader(around, some));
        assert_eq!(told.collect::<BTreeSet<_>>(), unknown, "{place}");
    }
}
