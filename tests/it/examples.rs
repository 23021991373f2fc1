//! The examples are workflows that people start from: each loads, and together they show every key there is.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

fn examples() -> Vec<PathBuf> {
    let entries = fs::read_dir("examples")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .collect();
    found.sort();
    found
}

#[test]
fn every_example_is_valid_by_itself_and_with_the_others() {
    let validate = |path: &str| {
        let validated = Command::new(env!("CARGO_BIN_EXE_stepward"))
            .args(["validate", path])
            .output()
            .unwrap();
        let told = String::from_utf8(validated.stdout).unwrap()
            + &String::from_utf8(validated.stderr).unwrap();
        assert!(validated.status.success(), "{path}: {told}");
    };
    validate("examples");
    // A file with a script beside it needs its folder.
    for path in examples()
        .iter()
        .filter(|path| !path.ends_with("backup.yaml"))
    {
        validate(path.to_str().unwrap());
    }
}

#[test]
fn every_example_says_what_it_shows_and_how_to_run_it() {
    assert!(examples().len() >= 10);
    for path in examples() {
        let text = fs::read_to_string(&path).unwrap();
        let head: Vec<&str> = text
            .lines()
            .take_while(|line| line.starts_with('#'))
            .collect();
        assert!(
            head.len() >= 3 && head[0].ends_with(['.', ':']),
            "{}",
            path.display()
        );
        let shown = head
            .iter()
            .any(|line| line.contains("/api/tasks/") || line.contains("/hooks/"));
        assert!(shown, "{} does not say how to run it", path.display());
    }
}

/// The keys of one kind of thing, by its place in the schema.
fn keys(schema: &Value, place: &str) -> BTreeSet<String> {
    let properties = schema
        .pointer(place)
        .unwrap_or_else(|| panic!("{place} is not in the schema"));
    properties.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn together_they_show_every_key() {
    let schema = stepward::language::schema::workflow();
    let mut unseen: BTreeSet<(&str, String)> = BTreeSet::new();
    for (thing, place) in [
        ("file", "/properties"),
        ("task", "/definitions/task/properties"),
        ("step", "/definitions/step/properties"),
        ("value", "/definitions/value/properties"),
        ("schedule", "/definitions/schedule/properties"),
        ("webhook", "/definitions/webhook/properties"),
        ("secret", "/definitions/secret/properties"),
        ("concurrency", "/definitions/concurrency/properties"),
        ("retry", "/definitions/retry/properties"),
        ("hook", "/definitions/hooks/items/properties"),
    ] {
        unseen.extend(keys(&schema, place).into_iter().map(|key| (thing, key)));
    }
    for path in examples() {
        let file: Value = serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        see(&mut unseen, "file", &file);
        each(&file["secrets"], |secret| {
            see(&mut unseen, "secret", secret)
        });
        each(&file["actions"], |action| {
            see(&mut unseen, "step", action);
            each(&action["input"], |value| see(&mut unseen, "value", value));
        });
        each(&file["tasks"], |task| see_task(&mut unseen, task));
    }
    assert_eq!(unseen, BTreeSet::new(), "no example shows these");
}

fn see_task(unseen: &mut BTreeSet<(&str, String)>, task: &Value) {
    see(unseen, "task", task);
    see(unseen, "concurrency", &task["concurrency"]);
    each(&task["input"], |value| see(unseen, "value", value));
    each(&task["schedules"], |schedule| {
        see(unseen, "schedule", schedule)
    });
    each(&task["webhooks"], |webhook| see(unseen, "webhook", webhook));
    for event in ["on_success", "on_error", "on_cancel", "on_suspended"] {
        for hook in task[event].as_array().into_iter().flatten() {
            see(unseen, "hook", hook);
        }
    }
    each(&task["flow"], |step| {
        see(unseen, "step", step);
        see(unseen, "retry", &step["retry"]);
        each(&step["outputs"], |value| see(unseen, "value", value));
    });
}

fn see(unseen: &mut BTreeSet<(&str, String)>, thing: &str, value: &Value) {
    for key in value
        .as_object()
        .into_iter()
        .flat_map(|object| object.keys())
    {
        unseen.retain(|(of, unseen)| !(*of == thing && unseen == key));
    }
}

fn each(things: &Value, mut look: impl FnMut(&Value)) {
    things
        .as_object()
        .into_iter()
        .flat_map(|object| object.values())
        .for_each(&mut look);
}
