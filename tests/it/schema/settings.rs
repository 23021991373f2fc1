//! The JSON schemas of both settings files: what they let pass loads, and what they refuse does not.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use stepward::config::{ServerConfig, WorkerConfig};

use super::parse;
use super::validator::faults;

fn schema(name: &str) -> Value {
    let printed = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .args(["schema", name])
        .output()
        .unwrap();
    assert!(printed.status.success());
    serde_json::from_slice(&printed.stdout).unwrap()
}

/// Whether the real loader takes it.
fn loads(name: &str, settings: &Value) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    fs::write(&file, settings.to_string()).unwrap();
    match name {
        "server-config" => ServerConfig::load(Some(&file)).is_ok(),
        _ => WorkerConfig::load(Some(&file)).is_ok(),
    }
}

/// Every key, as `a.b`, with its own schema.
fn keys_of(schema: &Value, prefix: &str, found: &mut Vec<(String, Value)>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (key, inner) in properties {
        found.push((format!("{prefix}{key}"), inner.clone()));
        keys_of(inner, &format!("{prefix}{key}."), found);
    }
}

/// Every key of a file, as `a.b`.
fn keys_in(value: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    for (key, inner) in value.as_object().into_iter().flatten() {
        found.insert(format!("{prefix}{key}"));
        keys_in(inner, &format!("{prefix}{key}."), found);
    }
}

/// A file that sets this one key.
fn file_with(path: &str, value: Value) -> Value {
    let keys = path.rsplit('.');
    keys.fold(value, |inner, key| json!({ key: inner }))
}

#[test]
fn the_schemas_know_every_key_of_the_example_files_and_no_other() {
    for name in ["server-config", "worker-config"] {
        let schema = schema(name);
        let example = parse(&fs::read_to_string(format!("{name}.example.yaml")).unwrap());
        assert_eq!(faults(&schema, &example), Vec::<String>::new());
        assert_eq!(
            faults(&schema, &Value::Null),
            Vec::<String>::new(),
            "an empty file"
        );
        let mut shown = BTreeSet::new();
        keys_in(&example, "", &mut shown);
        let mut known = Vec::new();
        keys_of(&schema, "", &mut known);
        let known = known.into_iter().map(|(key, _)| key);
        // A worker within a server has its keys in the other file.
        let known: BTreeSet<String> = known
            .filter(|key| !key.starts_with("embedded_worker."))
            .collect();
        assert_eq!(known, shown);
    }
}

#[test]
fn each_key_loads_with_its_default_and_an_unknown_one_beside_it_does_not() {
    for name in ["server-config", "worker-config"] {
        let schema = schema(name);
        let mut known = Vec::new();
        keys_of(&schema, "", &mut known);
        for (path, key) in known {
            if let Some(default) = key.get("default") {
                let file = file_with(&path, default.clone());
                assert_eq!(faults(&schema, &file), Vec::<String>::new(), "{path}");
                assert!(loads(name, &file), "{path}");
            }
            let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
            let beside = format!("{parent}.unknown_key");
            let file = file_with(beside.trim_start_matches('.'), json!(1));
            assert!(!faults(&schema, &file).is_empty(), "{beside}");
            assert!(!loads(name, &file), "{beside}");
        }
    }
}

#[test]
fn what_has_the_wrong_type_or_is_too_small_is_refused_by_both() {
    let server = schema("server-config");
    for text in [
        "listen: 7717",
        "embedded_worker: 5",
        "embedded_worker: { server_url: 'http://x' }",
        "embedded_worker: { slots: none }",
        "recovery: { sweep_interval_secs: 0 }",
        "recovery: { heartbeat_timeout_secs: soon }",
        "recovery: 5",
        "defaults: { job_timeout_secs: -1 }",
        "retention: { job_days: 0 }",
        "retention: { idempotency_key_days: 6 }",
        "retention: { log_days: forever }",
        "notify: { ops: { type: pigeon, on: [job_failed] } }",
        "notify: { ops: { type: slack, on: [job_failed] } }",
        "notify: { ops: { type: slack, url: 'https://x.example', on: [job_exploded] } }",
        "notify: { ops: { type: webhook, url: 'https://x.example', secret: hunter2, on: [] } }",
        "notify: { ops: { type: slack, url: 'https://x.example', to: [a@b.example] } }",
    ] {
        let file = parse(text);
        assert!(!faults(&server, &file).is_empty(), "{text}");
        assert!(!loads("server-config", &file), "{text}");
    }
    // Those of the example file's comments.
    let example = fs::read_to_string("server-config.example.yaml").unwrap();
    let targets = example.lines().filter_map(|line| line.strip_prefix("#   "));
    let mut count = 0;
    for target in targets.filter(|line| line.contains("{ type: ")) {
        let file = parse(&format!("notify: {{ {target}\n}}"));
        assert_eq!(faults(&server, &file), Vec::<String>::new(), "{target}");
        assert!(loads("server-config", &file), "{target}");
        count += 1;
    }
    assert_eq!(count, 5);
}

#[test]
fn other_forms_of_a_setting_are_taken_by_both() {
    for (name, text) in [
        ("server-config", "embedded_worker: true"),
        ("server-config", "embedded_worker: false"),
        ("server-config", "recovery: null"),
        ("server-config", "notify: null"),
        ("server-config", "recovery: { heartbeat_timeout_secs: 60 }"),
        (
            "server-config",
            "embedded_worker: { tags: 'gpu,script', env: { PORT: 8080, DEBUG: true } }",
        ),
        ("worker-config", "docker: null\nenv: null\ntags: null"),
        ("worker-config", "name: null\ntags: script"),
    ] {
        let file = parse(text);
        assert_eq!(faults(&schema(name), &file), Vec::<String>::new(), "{text}");
        assert!(loads(name, &file), "{text}");
    }
}

/// An editor shows what the example files say.
#[test]
fn keys_are_described() {
    let server = schema("server-config");
    let said = &server["properties"]["recovery"]["properties"]["cancel_grace_secs"];
    assert_eq!(
        said["description"],
        "between SIGTERM and SIGKILL for what must end"
    );
    assert_eq!(said["default"], 10);
    let worker = schema("worker-config");
    let said = &worker["properties"]["docker"]["properties"]["command"]["description"];
    assert_eq!(said, "or podman");
}
