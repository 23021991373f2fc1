//! `stepward config show` and `stepward token`: where settings come from, and what lets one in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::house::House;
use crate::typed::{Typed, command, typed, typed_in};

const SETTINGS: &str = "\
# ours
listen: 127.0.0.1:7800

recovery:
  ack_timeout_secs: 7
notify:
  chat:
    type: slack
    on: [job_failed]
    url: https://hooks.example.org/services/T0/B0/tellnobody
";

fn with_settings() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("server-config.yaml"), SETTINGS).unwrap();
    folder
}

/// The one with this key.
fn setting(typed: &Typed, key: &str) -> Value {
    let json = typed.json();
    let items = json["items"].as_array().unwrap();
    let found = items.iter().find(|item| item["key"] == key);
    found.unwrap_or_else(|| panic!("{key}: {json}")).clone()
}

#[test]
fn every_setting_says_where_it_comes_from() {
    let folder = with_settings();
    let words = [
        "config",
        "show",
        "--origin",
        "--",
        "--workflows-dir",
        "elsewhere",
    ];
    let told: Typed = command(folder.path(), &words)
        .env("STEPWARD_DATA_DIR", "/var/lib/data")
        .output()
        .unwrap()
        .into();
    assert_eq!(told.code, Some(0), "{told:?}");
    for line in [
        "listen\t127.0.0.1:7800\tserver-config.yaml:2",
        "recovery.ack_timeout_secs\t7\tserver-config.yaml:5",
        "recovery.sweep_interval_secs\t60\tdefault",
        "data_dir\t/var/lib/data\tSTEPWARD_DATA_DIR",
        "workflows_dir\telsewhere\t--workflows-dir",
        "notify.chat.url\t(not shown)\tserver-config.yaml:10",
        "embedded_worker\tnull\tdefault",
    ] {
        let lines: Vec<&str> = told.stdout.lines().collect();
        assert!(lines.contains(&line), "{line}: {}", told.stdout);
    }
    assert!(!told.stdout.contains("tellnobody"), "{}", told.stdout);
}

#[test]
fn a_flag_comes_before_a_variable_and_that_before_the_file() {
    let folder = with_settings();
    let show = |words: &[&str], variable: Option<&str>| {
        let mut command = command(
            folder.path(),
            &[&["config", "show", "--json"], words].concat(),
        );
        if let Some(variable) = variable {
            command.env("STEPWARD_LISTEN", variable);
        }
        let told: Typed = command.output().unwrap().into();
        let listen = setting(&told, "listen");
        (listen["value"].clone(), listen["origin"].clone())
    };
    let origin = |kind: &str, file: Value, line: Value, variable: Value, flag: Value| json!({ "kind": kind, "file": file, "line": line, "variable": variable, "flag": flag });
    let null = Value::Null;
    let (value, from) = show(&[], None);
    assert_eq!(value, "127.0.0.1:7800");
    let file = origin(
        "file",
        "server-config.yaml".into(),
        2.into(),
        null.clone(),
        null.clone(),
    );
    assert_eq!(from, file);
    let (value, from) = show(&[], Some("127.0.0.1:1"));
    assert_eq!(value, "127.0.0.1:1");
    let variable = "STEPWARD_LISTEN".into();
    assert_eq!(
        from,
        origin(
            "variable",
            null.clone(),
            null.clone(),
            variable,
            null.clone()
        )
    );
    let (value, from) = show(&["--", "--listen", "127.0.0.1:2"], Some("127.0.0.1:1"));
    assert_eq!(value, "127.0.0.1:2");
    let flag = "--listen".into();
    assert_eq!(from, origin("flag", null.clone(), null.clone(), null, flag));
}

#[test]
fn only_what_was_changed_is_shown_if_so_asked() {
    let folder = with_settings();
    let told = typed_in(folder.path(), &["config", "show", "--changed", "--json"]);
    let json = told.json();
    let keys: Vec<&str> = json["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["key"].as_str().unwrap())
        .collect();
    let chat = ["notify.chat.on", "notify.chat.type", "notify.chat.url"];
    let expected = [&["listen"][..], &chat, &["recovery.ack_timeout_secs"]].concat();
    assert_eq!(keys, expected);
    assert_eq!(json["next"], Value::Null);
    let url = setting(&told, "notify.chat.url");
    assert_eq!(
        (&url["value"], &url["hidden"]),
        (&Value::Null, &json!(true))
    );

    let empty = tempfile::tempdir().unwrap();
    let told = typed_in(empty.path(), &["config", "show", "--changed"]);
    assert_eq!((told.code, told.stdout.as_str()), (Some(0), ""));
    assert!(
        told.stderr.contains("all are as they are by default"),
        "{}",
        told.stderr
    );
}

#[test]
fn the_settings_of_a_worker_are_shown_without_what_it_must_keep() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "tags: [gpu, script]\nenv: { DB_PASSWORD: tellnobody1, MODE: fast }\n";
    fs::write(folder.path().join("worker-config.yaml"), settings).unwrap();
    let told: Typed = command(folder.path(), &["config", "show", "--worker", "--origin"])
        .env("STEPWARD_TOKEN", "tellnobody2")
        .env("STEPWARD_SLOTS", "3")
        .output()
        .unwrap()
        .into();
    for line in [
        "tags\t[\"gpu\",\"script\"]\tworker-config.yaml:1",
        "env.DB_PASSWORD\t(not shown)\tworker-config.yaml:2",
        "env.MODE\tfast\tworker-config.yaml:2",
        "slots\t3\tSTEPWARD_SLOTS",
        "token\t(not shown)\tSTEPWARD_TOKEN",
        "server_url\tnull\tdefault",
    ] {
        let lines: Vec<&str> = told.stdout.lines().collect();
        assert!(lines.contains(&line), "{line}: {}", told.stdout);
    }
    assert!(!told.stdout.contains("tellnobody"), "{}", told.stdout);
}

#[test]
fn settings_that_a_server_would_refuse_are_refused_in_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.yaml"), "recovry: {}\n").unwrap();
    let told = typed_in(folder.path(), &["config", "show", "--config", "bad.yaml"]);
    assert_eq!(told.code, Some(3));
    let server = typed_in(folder.path(), &["server", "--config", "bad.yaml"]);
    assert_eq!(told.stderr, server.stderr);
    let told = typed_in(folder.path(), &["config", "show", "--", "--listen", "here"]);
    assert_eq!(told.code, Some(3));
    assert!(
        told.stderr
            .contains("names but localhost are not looked up"),
        "{}",
        told.stderr
    );
    let told: Typed = command(folder.path(), &["config", "show", "--worker"])
        .env("STEPWARD_SLOTS", "many")
        .output()
        .unwrap()
        .into();
    assert_eq!(told.code, Some(3));
    assert!(
        told.stderr
            .contains("invalid value 'many' for 'STEPWARD_SLOTS'"),
        "{}",
        told.stderr
    );
    let worker: Typed = command(folder.path(), &["worker"])
        .env("STEPWARD_WORKER_SLOTS", "many")
        .output()
        .unwrap()
        .into();
    assert_eq!(worker.code, Some(2));
    assert!(
        worker.stderr.contains("'STEPWARD_WORKER_SLOTS'"),
        "{}",
        worker.stderr
    );
}

/// The lines of `config show --origin`, with these variables in the environment.
fn origins(folder: &Path, words: &[&str], variables: &[(&str, &str)]) -> String {
    let words = [&["config", "show", "--origin"], words].concat();
    let mut command = command(folder, &words);
    command.envs(variables.iter().copied());
    let told: Typed = command.output().unwrap().into();
    assert_eq!(told.code, Some(0), "{told:?}");
    told.stdout
}

#[track_caller]
fn assert_lines(told: &str, expected: &[&str]) {
    for line in expected {
        assert!(told.lines().any(|shown| shown == *line), "{line}: {told}");
    }
}

#[test]
fn every_setting_has_a_variable_that_is_named_as_its_origin() {
    let folder = with_settings();
    let variables = [
        ("STEPWARD_RECOVERY_HEARTBEAT_TIMEOUT_SECS", "60"),
        ("STEPWARD_RECOVERY_ACK_TIMEOUT_SECS", "8"),
        ("STEPWARD_RETENTION_JOB_DAYS", "365"),
        ("STEPWARD_EMBEDDED_WORKER", "true"),
        ("STEPWARD_DATA_DIR", "/var/lib/data"),
        ("STEPWARD_WORKER_DATA_DIR", "/var/lib/worker"),
    ];
    let told = origins(folder.path(), &[], &variables);
    assert_lines(
        &told,
        &[
            "recovery.heartbeat_timeout_secs\t60\tSTEPWARD_RECOVERY_HEARTBEAT_TIMEOUT_SECS",
            "recovery.heartbeat_interval_secs\t15\tSTEPWARD_RECOVERY_HEARTBEAT_TIMEOUT_SECS",
            "recovery.ack_timeout_secs\t8\tSTEPWARD_RECOVERY_ACK_TIMEOUT_SECS",
            "retention.job_days\t365\tSTEPWARD_RETENTION_JOB_DAYS",
            "retention.event_days\t365\tSTEPWARD_RETENTION_JOB_DAYS",
            "retention.log_days\t30\tdefault",
            "data_dir\t/var/lib/data\tSTEPWARD_DATA_DIR",
            // The worker of a server takes neither the folder of the server nor that of another worker.
            "embedded_worker.data_dir\t/var/lib/data/worker\tSTEPWARD_EMBEDDED_WORKER",
        ],
    );
    fs::write(
        folder.path().join("server-config.yaml"),
        "embedded_worker: true\n",
    )
    .unwrap();
    let told = origins(folder.path(), &[], &[]);
    assert_lines(&told, &["embedded_worker.slots\t1\tserver-config.yaml:1"]);
    let told = origins(folder.path(), &[], &[("STEPWARD_EMBEDDED_WORKER", "false")]);
    assert_lines(&told, &["embedded_worker\tnull\tSTEPWARD_EMBEDDED_WORKER"]);
}

#[test]
fn variables_of_a_worker_come_before_those_that_a_server_reads_too() {
    let folder = tempfile::tempdir().unwrap();
    let of_both = [
        ("STEPWARD_DATA_DIR", "/var/lib/data"),
        ("STEPWARD_LOG_FORMAT", "json"),
        ("STEPWARD_SLOTS", "2"),
    ];
    let told = origins(folder.path(), &["--worker"], &of_both);
    assert_lines(
        &told,
        &[
            "data_dir\t/var/lib/data\tSTEPWARD_DATA_DIR",
            "log.format\tjson\tSTEPWARD_LOG_FORMAT",
            "slots\t2\tSTEPWARD_SLOTS",
        ],
    );
    let of_worker = [
        ("STEPWARD_WORKER_DATA_DIR", "/var/lib/worker"),
        ("STEPWARD_WORKER_LOG_FORMAT", "text"),
        ("STEPWARD_WORKER_SLOTS", "3"),
        ("STEPWARD_WORKER_TAGS", ""),
        ("STEPWARD_WORKER_DRAIN_TIMEOUT_SECS", "5"),
    ];
    let told = origins(
        folder.path(),
        &["--worker"],
        &[&of_both[..], &of_worker].concat(),
    );
    assert_lines(
        &told,
        &[
            "data_dir\t/var/lib/worker\tSTEPWARD_WORKER_DATA_DIR",
            "log.format\ttext\tSTEPWARD_WORKER_LOG_FORMAT",
            "slots\t3\tSTEPWARD_WORKER_SLOTS",
            "tags\t[\"script\"]\tdefault",
            "drain_timeout_secs\t5\tSTEPWARD_WORKER_DRAIN_TIMEOUT_SECS",
        ],
    );
    let told = origins(folder.path(), &[], &[&of_both[..], &of_worker].concat());
    assert_lines(&told, &["data_dir\t/var/lib/data\tSTEPWARD_DATA_DIR"]);
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_new_token_is_for_its_owner_alone_and_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let told = typed_in(folder.path(), &["token", "file", "token"]);
    assert_eq!((told.code, told.stdout.as_str()), (Some(0), ""));
    let file = folder.path().join("token");
    let shown = fs::canonicalize(&file).unwrap().display().to_string();
    assert!(
        told.stderr.contains(&format!("token_file: {shown}")),
        "{}",
        told.stderr
    );
    assert_eq!(mode(&file), 0o600);
    let token = fs::read_to_string(&file).unwrap();
    assert_eq!(token.trim().len(), 64);
    assert!(!told.stderr.contains(token.trim()), "{}", told.stderr);

    let told = typed_in(folder.path(), &["token", "file", "token"]);
    assert_eq!(told.code, Some(7));
    assert!(
        told.stderr
            .contains("token exists, and nothing is overwritten"),
        "{}",
        told.stderr
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), token);

    let told = typed_in(folder.path(), &["token", "file", "-"]);
    assert_eq!(told.code, Some(0));
    assert_eq!(told.stdout.len(), 65);
    assert_ne!(told.stdout, token);
    let told = typed_in(folder.path(), &["token", "file", "other", "--json"]);
    assert_eq!(told.json(), json!({ "file": "other", "token": null }));
    let told = typed_in(folder.path(), &["token", "file", "no/where"]);
    assert_eq!(told.code, Some(1));
}

#[test]
fn a_token_is_tried_at_the_server() {
    let folder = tempfile::tempdir().unwrap();
    typed_in(folder.path(), &["token", "file", "good"]);
    typed_in(folder.path(), &["token", "file", "bad"]);
    let file = folder.path().join("good");
    let settings = format!("auth: {{ token_file: {} }}", file.display());
    let house = House::with_settings("tasks: {}", &settings);
    let url = house.url();
    let check = |words: &[&str]| {
        let common = ["token", "check", "--json", "--server", &url];
        let told = typed_in(folder.path(), &[&common, words].concat());
        (told.code, told.json())
    };
    let answer = |from: Value, allowed: bool| {
        let (name, role) = match allowed {
            true => (json!("settings"), json!("admin")),
            false => (Value::Null, Value::Null),
        };
        json!({
            "server": url, "needs_token": true, "token_from": from, "allowed": allowed, "name": name, "role": role,
        })
    };
    assert_eq!(
        check(&["--token-file", "good"]),
        (Some(0), answer("good".into(), true))
    );
    assert_eq!(
        check(&["--token-file", "bad"]),
        (Some(4), answer("bad".into(), false))
    );
    assert_eq!(check(&[]), (Some(4), answer(Value::Null, false)));
    let told = typed_in(folder.path(), &["token", "check", "--server", &url]);
    assert!(
        told.stdout.contains("needs a token, and none is sent"),
        "{}",
        told.stdout
    );

    let open = House::with("tasks: {}");
    let told = typed(&open, &["token", "check"]);
    assert_eq!(told.code, Some(0));
    assert!(told.stdout.ends_with("needs no token\n"), "{}", told.stdout);
    let nobody = ["token", "check", "--server", "http://127.0.0.1:1"];
    assert_eq!(typed_in(folder.path(), &nobody).code, Some(6));
    assert_eq!(typed_in(folder.path(), &["token", "check"]).code, Some(6));
    open.check();
}

/// Nobody has to guess what is behind such a name.
#[test]
fn a_short_password_is_not_shown_either() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "embedded_worker: { env: { PASSWORD: hunter2, SSH_KEY: abc, TOKEN_FILE: /etc/token, MODE: fast } }\n";
    fs::write(folder.path().join("server-config.yaml"), settings).unwrap();
    for words in [&["config", "show"][..], &["config", "show", "--json"]] {
        let told = typed_in(folder.path(), words);
        assert_eq!(told.code, Some(0), "{told:?}");
        assert!(!told.stdout.contains("hunter2"), "{told:?}");
        assert!(!told.stdout.contains("abc"), "{told:?}");
        assert!(told.stdout.contains("/etc/token"), "{told:?}");
        assert!(told.stdout.contains("fast"), "{told:?}");
    }
}
