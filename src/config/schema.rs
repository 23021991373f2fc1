//! The shape of both settings files as JSON schemas (draft-07), for editors.
//!
//! What a key holds is said here, what it means in the comments of the example files, and its default in the settings themselves: each
//! once. What contradicts itself is told when the settings are loaded.

use serde_json::{Map, Value, json};

use super::notify::{PRIORITIES, TYPES};
use super::{LogFormat, LogLevel, ServerConfig, WorkerConfig};
use crate::domain::event::EventKind;

const SERVER_EXAMPLE: &str = include_str!("../../server-config.example.yaml");
const WORKER_EXAMPLE: &str = include_str!("../../worker-config.example.yaml");

/// What one key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Text,
    /// Or null.
    TextOrNone,
    Boolean,
    /// Or null.
    BooleanOrNone,
    /// Whole, and at least this.
    Number(u32),
    Texts,
    /// A list of texts, or one text with commas.
    Tags,
    TextsByName,
    /// A worker within a server.
    Worker,
    Targets,
    /// One of these.
    Word(&'static [&'static str]),
}
use Shape::*;

#[rustfmt::skip]
pub(super) const SERVER: &[(&str, Shape)] = &[
    ("listen",                                Text),
    ("tls.cert_file",                         TextOrNone),
    ("tls.key_file",                          TextOrNone),
    ("plain_http",                            Boolean),
    ("data_dir",                              Text),
    ("workflows_dir",                         TextOrNone),
    ("embedded_worker",                       Worker),
    ("auth.required",                         BooleanOrNone),
    ("auth.token_file",                       TextOrNone),
    ("secrets.allow_files",                   Texts),
    ("secrets.allow_env_prefix",              TextOrNone),
    ("recovery.heartbeat_interval_secs",      Number(1)),
    ("recovery.heartbeat_timeout_secs",       Number(3)),
    ("recovery.sweep_interval_secs",          Number(1)),
    ("recovery.unmatched_step_timeout_secs",  Number(1)),
    ("recovery.ack_timeout_secs",             Number(1)),
    ("recovery.prepare_timeout_secs",         Number(1)),
    ("recovery.report_grace_secs",            Number(0)),
    ("recovery.cancel_grace_secs",            Number(0)),
    ("retention.job_days",                    Number(1)),
    ("retention.log_days",                    Number(1)),
    ("retention.event_days",                  Number(1)),
    ("retention.audit_days",                  Number(1)),
    ("retention.message_days",                Number(1)),
    ("retention.idempotency_key_days",        Number(7)),
    ("retention.schedule_fire_days",          Number(1)),
    ("retention.worker_hours",                Number(1)),
    ("defaults.step_timeout_secs",            Number(1)),
    ("defaults.job_timeout_secs",             Number(1)),
    ("limits.share_percent",                  Number(1)),
    ("limits.submissions_per_sec",            Number(1)),
    ("limits.submissions_burst",              Number(1)),
    ("limits.logins_per_minute",              Number(1)),
    ("limits.session_opens_per_sec",          Number(1)),
    ("public_url",                            TextOrNone),
    ("notify",                                Targets),
    ("backup.dir",                            TextOrNone),
    ("backup.every_hours",                    Number(1)),
    ("backup.keep",                           Number(1)),
    ("backup.pipe",                           Texts),
    ("log.format",                            Word(LogFormat::WORDS)),
    ("log.level",                             Word(LogLevel::WORDS)),
];

#[rustfmt::skip]
pub(super) const WORKER: &[(&str, Shape)] = &[
    ("server_url",                   TextOrNone),
    ("token_file",                   TextOrNone),
    ("ca_file",                      TextOrNone),
    ("name",                         TextOrNone),
    ("tags",                         Tags),
    ("slots",                        Number(1)),
    ("data_dir",                     Text),
    ("drain_timeout_secs",           Number(0)),
    ("docker.command",               Text),
    ("docker.hardened",              Boolean),
    ("docker.args",                  Texts),
    ("kubernetes.command",           Text),
    ("kubernetes.namespace",         TextOrNone),
    ("kubernetes.allow_privileged",  Boolean),
    ("env",                          TextsByName),
    ("limits.log_line_bytes",        Number(0)),
    ("limits.log_attempt_bytes",     Number(0)),
    ("log.format",                   Word(LogFormat::WORDS)),
    ("log.level",                    Word(LogLevel::WORDS)),
];

/// These are the server's own, in a worker that it holds.
const NOT_EMBEDDED: [&str; 5] = [
    "server_url",
    "token_file",
    "ca_file",
    "log.format",
    "log.level",
];

pub fn server() -> Value {
    let defaults = json!(ServerConfig::default());
    file(
        "Stepward server settings",
        SERVER,
        SERVER_EXAMPLE,
        &defaults,
    )
}

pub fn worker() -> Value {
    let defaults = json!(WorkerConfig::default());
    file(
        "Stepward worker settings",
        WORKER,
        WORKER_EXAMPLE,
        &defaults,
    )
}

fn file(title: &str, keys: &[(&str, Shape)], example: &str, defaults: &Value) -> Value {
    let mut schema = object(keys, example, defaults);
    schema.insert(
        "$schema".into(),
        "http://json-schema.org/draft-07/schema#".into(),
    );
    schema.insert("title".into(), title.into());
    // An empty file means the defaults.
    schema.insert("type".into(), json!(["object", "null"]));
    Value::Object(schema)
}

/// Keys of one object; those with a dot are in objects of their own.
fn object(keys: &[(&str, Shape)], example: &str, defaults: &Value) -> Map<String, Value> {
    let mut properties = Map::new();
    for (path, shape) in keys {
        let mut schema = shape.schema();
        let default = path.split('.').try_fold(defaults, |at, key| at.get(key));
        let said = schema.as_object_mut().expect("a shape is an object");
        if let Some(default) = default {
            said.insert("default".into(), default.clone());
        }
        if let Some(description) = comment(example, path) {
            said.insert("description".into(), description.into());
        }
        match path.split_once('.') {
            None => properties.insert(path.to_string(), schema),
            Some((section, key)) => {
                let section = properties.entry(section).or_insert_with(|| {
                    let mut schema = json!({ "type": ["object", "null"], "additionalProperties": false, "properties": {} });
                    if let Some(description) = comment(example, section) {
                        schema["description"] = description.into();
                    }
                    schema
                });
                section["properties"][key] = schema;
                continue;
            }
        };
    }
    let schema =
        json!({ "type": "object", "additionalProperties": false, "properties": properties });
    match schema {
        Value::Object(schema) => schema,
        _ => unreachable!("it was written as one"),
    }
}

impl Shape {
    fn schema(self) -> Value {
        match self {
            Text => json!({ "type": "string" }),
            TextOrNone => json!({ "type": ["string", "null"] }),
            Boolean => json!({ "type": "boolean" }),
            BooleanOrNone => json!({ "type": ["boolean", "null"] }),
            Word(words) => json!({ "enum": words }),
            Number(min) => json!({ "type": "integer", "minimum": min }),
            Texts => json!({ "type": ["array", "null"], "items": { "type": "string" } }),
            Tags => {
                json!({ "type": ["array", "string", "null"], "items": { "type": "string" } })
            }
            TextsByName => json!({
                "type": ["object", "null"],
                "additionalProperties": { "type": ["string", "number", "boolean"] },
            }),
            Worker => {
                let is_own = |(key, _): &&(&str, Shape)| !NOT_EMBEDDED.contains(key);
                let keys: Vec<(&str, Shape)> = WORKER.iter().filter(is_own).copied().collect();
                let mut schema = object(&keys, WORKER_EXAMPLE, &json!(WorkerConfig::default()));
                schema.insert("type".into(), json!(["object", "boolean", "null"]));
                Value::Object(schema)
            }
            Targets => json!({ "type": ["object", "null"], "additionalProperties": target() }),
        }
    }
}

/// Who is told: which keys it needs follows from its type.
fn target() -> Value {
    let reference = json!({
        "description": "Where it is found, never what it is.",
        "oneOf": [
            { "type": "object", "additionalProperties": false, "required": ["env"], "properties": { "env": { "type": "string" } } },
            { "type": "object", "additionalProperties": false, "required": ["file"], "properties": { "file": { "type": "string" } } },
        ],
    });
    let kinds: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let properties = json!({
        "on": { "description": "Kinds of events that it is told.", "type": "array", "items": { "enum": kinds } },
        "tasks": { "description": "Of these tasks alone; null: of all.", "type": ["array", "null"], "items": { "type": "string" } },
        "url": { "description": "Written out, or where it is found.", "anyOf": [{ "type": "string" }, reference] },
        "secret": reference,
        "token": reference,
        "priority": { "enum": PRIORITIES },
        "to": { "type": "array", "items": { "type": "string" } },
        "from": { "type": "string" },
        "sendmail": { "type": "string" },
        "command": { "description": "The path of a program and what it is told; it gets the event as JSON on its input.", "type": "array", "items": { "type": "string" } },
    });
    let each = TYPES.iter().map(|(kind, needed, allowed)| {
        let mut own = json!({ "type": { "enum": [kind] } });
        let keys = ["on", "tasks"].iter().chain(*needed).chain(*allowed);
        keys.for_each(|key| own[*key] = properties[*key].clone());
        let required: Vec<&str> = ["type"].iter().chain(*needed).copied().collect();
        json!({ "type": "object", "additionalProperties": false, "required": required, "properties": own })
    });
    json!({ "oneOf": each.collect::<Vec<Value>>() })
}

/// What the example file says behind a key.
fn comment(example: &str, path: &str) -> Option<String> {
    let mut section = "";
    for line in example.lines() {
        let Some((key, rest)) = line.split_once(':').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let is_inner = key.starts_with(' ');
        let key = key.trim();
        if !is_inner {
            section = key;
        }
        let is_it = match path.split_once('.') {
            Some((outer, inner)) => is_inner && section == outer && key == inner,
            None => !is_inner && key == path,
        };
        if is_it {
            return rest
                .split_once("# ")
                .map(|(_, said)| said.trim().to_string());
        }
    }
    None
}
