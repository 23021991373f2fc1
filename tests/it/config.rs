//! Settings: both example files show every key with its default; what contradicts itself is refused with both values.

use std::path::Path;

use serde::Serialize;
use stepward::config::{ServerConfig, WorkerConfig};

/// Every key of a settings value, as `a.b`.
fn keys(value: &impl Serialize) -> Vec<String> {
    fn collect(value: &serde_json::Value, prefix: &str, keys: &mut Vec<String>) {
        if let serde_json::Value::Object(members) = value {
            for (key, value) in members {
                keys.push(format!("{prefix}{key}"));
                collect(value, &format!("{prefix}{key}."), keys);
            }
        }
    }
    let mut found = Vec::new();
    collect(&serde_json::to_value(value).unwrap(), "", &mut found);
    found
}

fn keys_of_file(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    keys(&serde_yaml::from_str::<serde_json::Value>(&text).unwrap())
}

#[test]
fn the_example_files_show_every_key_with_its_default() {
    let server = Path::new("server-config.example.yaml");
    assert_eq!(
        ServerConfig::load(Some(server)).unwrap(),
        ServerConfig::default()
    );
    let mut shown = keys_of_file("server-config.example.yaml");
    let mut known = keys(&ServerConfig::default());
    shown.sort();
    known.sort();
    assert_eq!(shown, known);

    let worker = Path::new("worker-config.example.yaml");
    assert_eq!(
        WorkerConfig::load(Some(worker)).unwrap(),
        WorkerConfig::default()
    );
    let mut shown = keys_of_file("worker-config.example.yaml");
    let mut known = keys(&WorkerConfig::default());
    shown.sort();
    known.sort();
    assert_eq!(shown, known);
}

fn server(text: &str) -> Result<ServerConfig, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.yaml");
    std::fs::write(&file, text).unwrap();
    ServerConfig::load(Some(&file)).map_err(|error| {
        error
            .to_string()
            .replace(&file.display().to_string(), "server.yaml")
    })
}

#[test]
fn an_empty_or_missing_file_means_the_defaults() {
    assert_eq!(server("").unwrap(), ServerConfig::default());
    assert_eq!(server("# nothing\n").unwrap(), ServerConfig::default());
    assert_eq!(server("recovery: {}").unwrap(), ServerConfig::default());
    assert_eq!(ServerConfig::load(None).unwrap(), ServerConfig::default());
    let missing = ServerConfig::load(Some(Path::new("/nowhere.yaml")))
        .unwrap_err()
        .to_string();
    assert!(
        missing.starts_with("/nowhere.yaml cannot be read: "),
        "{missing}"
    );
}

#[test]
fn settings_reach_the_engine_in_milliseconds() {
    let settings = server("recovery: { ack_timeout_secs: 7 }")
        .unwrap()
        .settings();
    assert_eq!(settings.ack_timeout_ms, 7_000);
    assert_eq!(ServerConfig::default().settings(), Default::default());
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (text, expected) in [
        (
            "recovery: { heartbeat_timeout_secs: 60 }",
            "server.yaml: recovery.heartbeat_timeout_secs is 60, it must be at least 90 \
             (3 x recovery.heartbeat_interval_secs, which is 30)",
        ),
        (
            "recovery: { prepare_timeout_secs: 10 }",
            "server.yaml: recovery.prepare_timeout_secs is 10, it must be at least 60 (recovery.ack_timeout_secs)",
        ),
        (
            "defaults: { step_timeout_secs: 0 }",
            "server.yaml: defaults.step_timeout_secs is 0, it must be at least 1",
        ),
    ] {
        assert_eq!(server(text).unwrap_err(), expected);
    }
    let unknown = server("recovry: {}").unwrap_err();
    assert!(unknown.contains("unknown field `recovry`"), "{unknown}");
    assert!(server("recovery: { heartbeat_timeout_secs: -1 }").is_err());
    assert!(server("[1, 2").is_err());
}
