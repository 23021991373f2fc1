//! Settings: both example files show every key with its default; what contradicts itself is refused with both values.

use std::path::Path;

use serde::Serialize;
use stepward::config::{MAKE_CERTIFICATE, ServerConfig, WorkerConfig};

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
            "recovery: { heartbeat_timeout_secs: 60, heartbeat_interval_secs: 30 }",
            "server.yaml: recovery.heartbeat_timeout_secs is 60, it must be at least 90 \
             (3 x recovery.heartbeat_interval_secs, which is 30)",
        ),
        (
            "recovery: { heartbeat_timeout_secs: 2 }",
            "server.yaml: recovery.heartbeat_timeout_secs is 2, it must be at least 3 \
             (3 x recovery.heartbeat_interval_secs, which is 1)",
        ),
        (
            "recovery: { prepare_timeout_secs: 10, ack_timeout_secs: 60 }",
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
    assert!(unknown.contains("unknown key `recovry`"), "{unknown}");
    assert!(server("recovery: { heartbeat_timeout_secs: -1 }").is_err());
    assert!(server("[1, 2").is_err());
}

/// Each pair of files means the same.
#[test]
fn settings_load_in_every_form_that_people_write() {
    for (written, same) in [
        ("embedded_worker: true", "embedded_worker: {}"),
        ("embedded_worker: false", ""),
        ("embedded_worker: null", ""),
        ("embedded_worker:", ""),
        ("recovery: null", ""),
        ("data_dir: null", ""),
        ("embedded_worker: { data_dir: }", "embedded_worker: {}"),
        (
            "recovery:\nretention:\ndefaults:\nnotify:\ntls:\nauth:\nlog:\nbackup:\n",
            "",
        ),
        ("listen: localhost:7000", "listen: 127.0.0.1:7000"),
        (
            "embedded_worker: { tags: 'gpu, script', docker: , env: { PORT: 8080, DEBUG: true, RATE: 0.5 }, name: }",
            "embedded_worker: { tags: [gpu, script], env: { PORT: '8080', DEBUG: 'true', RATE: '0.5' } }",
        ),
        ("embedded_worker: { tags: , env: }", "embedded_worker: {}"),
        // A setting that was not set follows the one that was.
        (
            "recovery: { heartbeat_timeout_secs: 60 }",
            "recovery: { heartbeat_timeout_secs: 60, heartbeat_interval_secs: 15 }",
        ),
        (
            "recovery: { heartbeat_timeout_secs: 600 }",
            "recovery: { heartbeat_timeout_secs: 600, heartbeat_interval_secs: 30 }",
        ),
        (
            "recovery: { heartbeat_timeout_secs: 3 }",
            "recovery: { heartbeat_timeout_secs: 3, heartbeat_interval_secs: 1 }",
        ),
        (
            "recovery: { heartbeat_interval_secs: 60 }",
            "recovery: { heartbeat_interval_secs: 60, heartbeat_timeout_secs: 240 }",
        ),
        (
            "recovery: { heartbeat_interval_secs: 5 }",
            "recovery: { heartbeat_interval_secs: 5, heartbeat_timeout_secs: 120 }",
        ),
        (
            "recovery: { prepare_timeout_secs: 10 }",
            "recovery: { prepare_timeout_secs: 10, ack_timeout_secs: 10 }",
        ),
        (
            "recovery: { ack_timeout_secs: 1000 }",
            "recovery: { ack_timeout_secs: 1000, prepare_timeout_secs: 1000 }",
        ),
        (
            "retention: { job_days: 7 }",
            "retention: { job_days: 7, log_days: 7, event_days: 90 }",
        ),
        (
            "retention: { job_days: 365 }",
            "retention: { job_days: 365, log_days: 30, event_days: 365 }",
        ),
    ] {
        assert_eq!(server(written), server(same), "{written}");
        assert!(server(written).is_ok(), "{written}");
    }
}

/// Settings of a file, with these variables in the environment.
fn server_with(text: &str, set: &[(&str, &str)]) -> Result<ServerConfig, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.yaml");
    std::fs::write(&file, text).unwrap();
    let lookup = |name: &str| {
        let found = set.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.into())
    };
    ServerConfig::load_from(Some(&file), &lookup, |_| ()).map_err(|fault| fault.to_string())
}

#[test]
fn a_variable_overrides_the_file() {
    let file = "recovery: { ack_timeout_secs: 7, sweep_interval_secs: 5 }\nretention: null\n";
    let loaded = server_with(
        file,
        &[
            ("STEPWARD_RECOVERY_ACK_TIMEOUT_SECS", "8"),
            ("STEPWARD_RECOVERY_HEARTBEAT_TIMEOUT_SECS", "60"),
            ("STEPWARD_RETENTION_JOB_DAYS", "7"),
            ("STEPWARD_AUTH_REQUIRED", "yes"),
            ("STEPWARD_BACKUP_DIR", "/backups"),
            ("STEPWARD_PUBLIC_URL", ""),
        ],
    );
    let same = server(
        "recovery: { ack_timeout_secs: 8, sweep_interval_secs: 5, heartbeat_timeout_secs: 60 }\n\
         retention: { job_days: 7 }\nauth: { required: true }\nbackup: { dir: /backups }",
    );
    assert_eq!(loaded, same);
    assert_eq!(loaded.unwrap().recovery.heartbeat_interval_secs, 15);
    // Nothing else in the file is forgotten.
    let file = "listen: 127.0.0.1:7000\nembedded_worker: { slots: 3 }\nnotify:\n  any: { type: command, command: [/bin/x] }";
    let loaded = server_with(file, &[("STEPWARD_PLAIN_HTTP", "true")]).unwrap();
    assert!(loaded.plain_http);
    let rest = ServerConfig {
        plain_http: false,
        ..loaded
    };
    assert_eq!(rest, server(file).unwrap());
}

#[test]
fn the_places_of_secrets_are_whole_paths_and_a_prefix_that_says_something() {
    let places = |file: &str| server(file).unwrap().secrets;
    let default = ServerConfig::default().secrets;
    assert_eq!(
        default.allow_files,
        [std::path::PathBuf::from("/etc/stepward/secrets")]
    );
    assert_eq!(
        default.allow_env_prefix.as_deref(),
        Some("STEPWARD_SECRET_")
    );
    for same in [
        "",
        "secrets:",
        "secrets: {}",
        "secrets: { allow_files: null }",
    ] {
        assert_eq!(places(same), default, "{same}");
    }
    assert!(
        places("secrets: { allow_files: [] }")
            .allow_files
            .is_empty()
    );
    let none = places("secrets: { allow_env_prefix: null }");
    assert_eq!(none.allow_env_prefix, None);
    for (file, expected) in [
        (
            "secrets: { allow_env_prefix: '' }",
            "secrets.allow_env_prefix is empty, which would allow every variable",
        ),
        (
            "secrets: { allow_env_prefix: ' ' }",
            "secrets.allow_env_prefix is empty",
        ),
        (
            "secrets: { allow_files: [keys] }",
            "secrets.allow_files has \"keys\", which is not an absolute path",
        ),
        (
            "secrets: { allow_files: [''] }",
            "secrets.allow_files has \"\"",
        ),
    ] {
        let fault = server(file).unwrap_err();
        assert!(fault.contains(expected), "{fault}");
    }
}

#[test]
fn a_variable_with_a_bad_value_is_named() {
    for (file, set, expected) in [
        (
            "",
            &[("STEPWARD_RECOVERY_ACK_TIMEOUT_SECS", "soon")][..],
            "STEPWARD_RECOVERY_ACK_TIMEOUT_SECS is \"soon\", expected a whole number, 0 or more",
        ),
        (
            "",
            &[("STEPWARD_AUTH_REQUIRED", "maybe")],
            "STEPWARD_AUTH_REQUIRED is \"maybe\", expected true or false",
        ),
        (
            "",
            &[("STEPWARD_RETENTION_JOB_DAYS", "0")],
            "retention.job_days is 0, it must be at least 1; a large number such as 36500 keeps it for ever; see the \
             variable STEPWARD_RETENTION_JOB_DAYS",
        ),
        (
            "recovery: { heartbeat_interval_secs: 30 }",
            &[
                ("STEPWARD_RETENTION_JOB_DAYS", "5"),
                ("STEPWARD_RECOVERY_HEARTBEAT_TIMEOUT_SECS", "60"),
            ],
            "recovery.heartbeat_timeout_secs is 60, it must be at least 90 (3 x recovery.heartbeat_interval_secs, which is \
             30); see the variable STEPWARD_RECOVERY_HEARTBEAT_TIMEOUT_SECS",
        ),
        (
            "",
            &[("STEPWARD_RECOVERY_ACK_TIMEOUT_SECS", "9999999999")],
            "found integer `9999999999`, expected a whole number, 0 to 4294967295; see the \
             variable STEPWARD_RECOVERY_ACK_TIMEOUT_SECS",
        ),
    ] {
        assert_eq!(server_with(file, set).unwrap_err(), expected);
    }
}

#[test]
fn what_is_expected_is_said_in_the_words_of_settings() {
    let number = "expected a whole number, 0 to 4294967295";
    let address = "write an address such as 127.0.0.1:7717, names but localhost are not looked up";
    for (text, expected) in [
        (
            "hello",
            "found string \"hello\", expected settings, each as KEY: VALUE",
        ),
        (
            "recovery: 5",
            "recovery: found integer `5`, expected settings, each as KEY: VALUE",
        ),
        (
            "recovery: { ack_timeout_secs: }",
            &format!("recovery.ack_timeout_secs: found nothing, {number}"),
        ),
        (
            "recovery: { ack_timeout_secs: soon }",
            &format!("recovery.ack_timeout_secs: found string \"soon\", {number}"),
        ),
        (
            "backup: { every_hours: 999999999999 }",
            &format!("backup.every_hours: found integer `999999999999`, {number}"),
        ),
        (
            "recovery: { ack_timeout_secs: -1 }",
            &format!("recovery.ack_timeout_secs: found integer `-1`, {number}"),
        ),
        (
            "embedded_worker: { tags: 5 }",
            "embedded_worker.tags: found integer `5`, expected a list such as [script, gpu]",
        ),
        (
            "embedded_worker: 5",
            "embedded_worker: found integer `5`, expected true, false, null or settings, each as KEY: VALUE",
        ),
        (
            "embedded_worker: { slots: many }",
            &format!("embedded_worker.slots: found string \"many\", {number}"),
        ),
        ("data_dir: [a]", "data_dir: found a list, expected a path"),
        ("listen: here:7717", &format!("listen: {address}")),
        ("listen: 7717", &format!("listen: {address}")),
        ("data_dir: ''", "data_dir is empty, name a folder"),
        (
            "workflows_dir: ''",
            "workflows_dir is empty, name a folder or write null",
        ),
    ] {
        let fault = server(text).unwrap_err();
        let told = format!("server.yaml: {expected}");
        assert!(fault.starts_with(&told), "{text}: {fault}");
    }
}

#[test]
fn a_worker_in_a_server_has_no_other_server_and_no_token_of_its_own() {
    for (key, value) in [
        ("server_url", "http://127.0.0.1:7717"),
        ("token", "x"),
        ("token_file", "null"),
        ("ca_file", "root.pem"),
    ] {
        let fault = server(&format!("embedded_worker: {{ {key}: '{value}' }}")).unwrap_err();
        assert_eq!(
            fault,
            format!(
                "server.yaml: embedded_worker.{key} cannot be set, leave it out: this worker reaches the server that it is in, \
                 with that server's own token"
            )
        );
    }
    assert!(server("embedded_worker: { slots: 2 }").is_ok());
}

#[test]
fn settings_are_checked_when_all_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.yaml");
    std::fs::write(&file, "data_dir: ''").unwrap();
    let data_dir = |folder: &str| {
        let loaded = ServerConfig::load_with(Some(&file), |config| config.data_dir = folder.into());
        loaded.map_err(|fault| fault.to_string())
    };
    let loaded = data_dir("data").unwrap();
    assert_eq!(loaded.data_dir, Path::new("data"));
    // Who is to blame is named.
    let same = data_dir("").unwrap_err();
    let begin = format!("{}: data_dir is empty", file.display());
    assert!(same.starts_with(&begin), "{same}");
    std::fs::write(&file, "").unwrap();
    let other = data_dir("").unwrap_err();
    assert!(other.starts_with("data_dir is empty"), "{other}");
}

#[test]
fn what_others_send_is_encrypted_unless_somebody_says_otherwise() {
    let open = "listen: 0.0.0.0:7717\nauth: { token_file: token }\n";
    let tls = "tls: { cert_file: cert.pem, key_file: key.pem }\n";
    let refused = format!(
        "server.yaml: listen is 0.0.0.0:7717, and what others send there could be read by anybody between: make a \
         certificate with `{MAKE_CERTIFICATE}`, or take one that you have, and name it and its key with tls.cert_file and \
         tls.key_file, or write plain_http: true if a tunnel, a proxy or a network that you trust is between"
    );
    assert_eq!(server(open).unwrap_err(), refused);
    // Who has to make a token, too, is told at once.
    let token = "; unless there is a valid token of role admin, make one with \
                 `stepward token new NAME --role admin --data-dir 'my data'`";
    assert_eq!(
        server("listen: 0.0.0.0:7717\ndata_dir: my data").unwrap_err(),
        refused + token
    );
    for command in MAKE_CERTIFICATE.split(" && ") {
        let readme = include_str!("../../README.md");
        assert!(readme.lines().any(|line| line == command), "{command}");
    }
    for enough in [tls, "plain_http: true"] {
        server(&format!("{open}{enough}")).unwrap();
        server(enough).unwrap();
    }
    for (text, expected) in [
        (
            "tls: { cert_file: cert.pem }",
            "tls.cert_file is set and tls.key_file is not: name both files, or neither",
        ),
        (
            "tls: { key_file: key.pem }",
            "tls.key_file is set and tls.cert_file is not: name both files, or neither",
        ),
        (
            "tls: { cert_file: '', key_file: key.pem }",
            "tls.cert_file is empty, name a file or write null",
        ),
        (
            &format!("{tls}plain_http: true"),
            "plain_http is true and tls.cert_file is set, which is spoken then: leave out one of them",
        ),
        (
            &format!("{tls}public_url: http://jobs.example.org"),
            "public_url is http://jobs.example.org and tls.cert_file is set: write https:// in public_url",
        ),
    ] {
        assert_eq!(
            server(text).unwrap_err(),
            format!("server.yaml: {expected}")
        );
    }
}

#[test]
fn only_plain_files_of_a_sensible_size_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let long = folder.path().join("long");
    std::fs::write(&long, "# ".repeat((1 << 19) + 1)).unwrap();
    let full = folder.path().join("full");
    std::fs::write(&full, "#".repeat(1 << 20)).unwrap();
    let plain = "is not a plain file";
    for (file, told) in [
        (fifo.as_path(), plain),
        (Path::new("/dev/zero"), plain),
        (folder.path(), plain),
        (&long, "is longer than 1 MiB"),
    ] {
        let told = format!("{}: {told}", file.display());
        let settings = ServerConfig::load(Some(file)).unwrap_err();
        assert_eq!(settings.to_string(), told);
        let config = WorkerConfig {
            token_file: Some(file.to_path_buf()),
            ..WorkerConfig::default()
        };
        assert_eq!(config.token().unwrap_err().to_string(), told);
    }
    assert!(ServerConfig::load(Some(&full)).is_ok());
}

#[test]
fn a_worker_needs_a_server_to_go_to_and_a_name_that_can_be_read() {
    let server_url = |url: &str| WorkerConfig {
        server_url: Some(url.to_string()),
        ..WorkerConfig::default()
    };
    for good in [
        "http://a",
        "https://a.example:7717/below/",
        "http://[::1]:7717",
        "http://user:word@a",
    ] {
        assert_eq!(server_url(good).check(), Ok(()), "{good}");
    }
    for bad in [
        "",
        "http://",
        "http://:7717",
        "http:// a",
        "http://a:99999",
        "http://a:",
        "http://a/?b",
        "a:7717",
        "ftp://a",
    ] {
        let told = format!("server_url is {bad:?}, write http://HOST:PORT or https://HOST:PORT");
        assert_eq!(server_url(bad).check(), Err(told));
    }
    let name = |name: &str| WorkerConfig {
        name: name.to_string(),
        ..WorkerConfig::default()
    };
    assert_eq!(name("").check(), Ok(()));
    let told = "name is blank, write one or leave it out".to_string();
    assert_eq!(name(" ").check(), Err(told));
}

#[test]
fn targets_of_messages_are_understood_or_refused_by_their_names() {
    let good = "
notify:
  ops: { type: webhook, url: https://example.org/hook, secret: { env: OPS }, on: [job_failed, worker_inactive] }
  chat: { type: slack, url: { env: SLACK_URL }, on: [job_failed], tasks: [backup] }
  phone: { type: ntfy, url: https://ntfy.example.org/x, token: { file: /etc/token }, priority: high }
  mail: { type: email, to: [ops@example.org], from: me@example.org }
  any: { type: command, command: [/usr/local/bin/tell, --now] }
";
    assert_eq!(server(good).unwrap().notify.len(), 5);
    let example = std::fs::read_to_string("server-config.example.yaml").unwrap();
    let shown = example.lines().filter_map(|line| line.strip_prefix("#   "));
    let shown: String = shown.map(|line| format!("  {line}\n")).collect();
    assert_eq!(
        server(&format!("notify:\n{shown}")).unwrap().notify.len(),
        5
    );

    for (target, expected) in [
        (
            "{ type: webhok }",
            "notify.ops.type is \"webhok\", expected one of webhook, slack, ntfy, email, command",
        ),
        (
            "{ on: [job_failed] }",
            "notify.ops.type is \"\", expected one of webhook, slack, ntfy, email, command",
        ),
        (
            "{ type: slack }",
            "notify.ops.url is missing, a target of type slack needs it",
        ),
        (
            "{ type: webhook, url: https://x.org }",
            "notify.ops.secret is missing, a target of type webhook needs it",
        ),
        (
            "{ type: slack, url: https://x.org, to: [a@b.org] }",
            "notify.ops.to does not belong to a target of type slack, leave it out",
        ),
        (
            "{ type: slack, url: gopher://x.org }",
            "notify.ops.url is no address, write one such as https://example.org/hook",
        ),
        (
            "{ type: slack, url: https://x.org, on: [job_faild] }",
            "notify.ops.on has \"job_faild\", which is no kind of event, did you mean job_failed?",
        ),
        (
            "{ type: slack, url: https://x.org, tasks: [] }",
            "notify.ops.tasks is an empty list: name tasks, or leave it out for all of them",
        ),
        (
            "{ type: ntfy, url: https://x.org, priority: huge }",
            "notify.ops.priority is \"huge\", expected min, low, default, high or max",
        ),
        (
            "{ type: email, to: [\"a@b.org, c@d.org\"] }",
            "notify.ops.to has \"a@b.org, c@d.org\", expected an address such as ops@example.org",
        ),
        (
            "{ type: email, to: [a@b.org], from: \"a@b.org\\nBcc: c@d.org\" }",
            "notify.ops.from has \"a@b.org\\nBcc: c@d.org\", expected an address such as ops@example.org",
        ),
        (
            "{ type: email, to: [a@b.org], sendmail: sendmail }",
            "notify.ops.sendmail must be the path of a program, such as /usr/sbin/sendmail",
        ),
        (
            "{ type: command, command: [tell] }",
            "notify.ops.command must be a list that begins with the path of a program, such as [/usr/local/bin/tell, --now]",
        ),
        (
            "{ type: command, command: [] }",
            "notify.ops.command must be a list that begins with the path of a program, such as [/usr/local/bin/tell, --now]",
        ),
    ] {
        let fault = server(&format!("notify: {{ ops: {target} }}")).unwrap_err();
        assert_eq!(fault, format!("server.yaml: {expected}"), "{target}");
    }
    let written_out =
        server("notify: { ops: { type: webhook, url: https://x.org, secret: hunter22 } }");
    let fault = written_out.unwrap_err();
    assert!(
        fault.contains("a secret is not written out here, write { env: NAME } or { file: PATH }"),
        "{fault}"
    );
    assert!(!fault.contains("hunter22"), "{fault}");
    let unknown = server("notify: { ops: { type: slack, urll: x } }").unwrap_err();
    assert!(unknown.contains("unknown key `urll`"), "{unknown}");
    let odd = server("notify: { \"a b\": { type: slack, url: https://x.org } }").unwrap_err();
    assert!(odd.contains("notify has a target \"a b\""), "{odd}");
}
