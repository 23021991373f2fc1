//! The shape of a workflow file as a JSON schema (draft-07), for editors: what may stand where, and what it means.
//!
//! It says no more than a schema can. Names that must exist, templates, cycles and the like are told by `stepward validate`.

use serde_json::{Map, Value, json};

const SCALAR: [&str; 3] = ["string", "number", "boolean"];

/// Where an editor finds what this is about.
const TITLE: &str = "Stepward workflow";

/// The whole schema.
pub fn workflow() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": TITLE,
        "description": "Tasks, named actions and secrets. Every *.yaml file below the workflows folder is read.",
        "type": "object",
        "additionalProperties": false,
        "properties": keys(&[
            Key::new("tasks", "What can be run, by name.", refer_to_each("task"))
                .example(json!({ "hello": { "flow": { "greet": { "script": "echo hello" } } } })),
            Key::new("actions", "What steps and hooks can use, by name: a step says `action: NAME` instead of `type`.", refer_to_each("action"))
                .example(json!({ "page-me": { "input": { "text": { "type": "string" } }, "script": "./page.sh \"$INPUT_TEXT\"" } })),
            Key::new("secrets", "Where secrets are found, never what they are. Templates say `secret.NAME`.", refer_to_each("secret"))
                .example(json!({ "deploy_key": { "file": "/etc/stepward/deploy.key" }, "db_password": { "env": "DB_PASSWORD" } })),
        ]),
        "defaultSnippets": [{
            "label": "task",
            "description": "A task of one step",
            "body": { "tasks": { "${1:hello}": { "flow": { "${2:greet}": { "script": "${3:echo hello}" } } } } },
        }],
        "definitions": {
            "task": task(),
            "step": step(),
            "action": action(),
            "value": value_spec(),
            "hooks": hooks(),
            "schedule": schedule(),
            "webhook": webhook(),
            "secret": secret(),
            "concurrency": concurrency(),
            "retry": retry(),
            "depends": depends(),
            "duration": duration(),
            "env": env(),
            "words": words(),
        },
    })
}

/// One key: what it is called, what it means, what it may hold.
struct Key {
    name: &'static str,
    description: &'static str,
    shape: Value,
    examples: Vec<Value>,
    default: Option<Value>,
}

impl Key {
    fn new(name: &'static str, description: &'static str, shape: Value) -> Key {
        Key {
            name,
            description,
            shape,
            examples: Vec::new(),
            default: None,
        }
    }

    fn example(mut self, example: Value) -> Key {
        self.examples.push(example);
        self
    }

    fn default(mut self, default: Value) -> Key {
        self.default = Some(default);
        self
    }
}

fn keys(keys: &[Key]) -> Value {
    let mut properties = Map::new();
    for key in keys {
        // Beside a `$ref` nothing else counts in draft-07.
        let mut shape = match &key.shape {
            Value::Object(shape) if shape.contains_key("$ref") => {
                Map::from_iter([("allOf".to_string(), json!([key.shape]))])
            }
            Value::Object(shape) => shape.clone(),
            other => panic!("{} has no shape: {other}", key.name),
        };
        shape.insert("description".to_string(), json!(key.description));
        assert!(!key.examples.is_empty(), "{} has no example", key.name);
        shape.insert("examples".to_string(), json!(key.examples));
        if let Some(default) = &key.default {
            shape.insert("default".to_string(), default.clone());
        }
        properties.insert(key.name.to_string(), Value::Object(shape));
    }
    Value::Object(properties)
}

fn refer(name: &str) -> Value {
    json!({ "$ref": format!("#/definitions/{name}") })
}

/// Nothing counts as an empty map.
fn refer_to_each(name: &str) -> Value {
    json!({ "type": ["object", "null"], "additionalProperties": refer(name) })
}

/// Whatever YAML makes of a plain word, it is taken as it is written.
fn text() -> Value {
    json!({ "type": SCALAR })
}

fn some_text() -> Value {
    json!({ "type": SCALAR, "pattern": "\\S" })
}

fn tag() -> Value {
    json!({ "type": SCALAR, "pattern": "^[A-Za-z0-9._:/=-]+$" })
}

fn flag() -> Value {
    json!({ "type": "boolean" })
}

fn one_of(words: &[&str]) -> Value {
    json!({ "enum": words })
}

fn values() -> Value {
    json!({ "type": "object" })
}

fn task() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["flow"],
        "properties": keys(&[
            Key::new("description", "What it is for, in a sentence.", text())
                .example(json!("Build, test, publish")),
            Key::new("input", "What a job is given. Enforced wherever jobs are made; `input.NAME` in templates, INPUT_NAME in the environment.", refer_to_each("value"))
                .example(json!({ "version": { "type": "string", "required": true } })),
            Key::new("timeout", "Bounds the running time of a job, from its first start.", refer("duration"))
                .example(json!("1h")),
            Key::new("queue_timeout", "Bounds the waiting before the first start.", refer("duration"))
                .example(json!("10m")),
            Key::new("priority", "Higher first; first in, first out within a priority.", json!({ "type": "integer" }))
                .example(json!(10)).default(json!(0)),
            Key::new("concurrency", "How many jobs of a group run at once, and what becomes of the next.", refer("concurrency"))
                .example(json!({ "group": "release", "limit": 1, "when_full": "queue" })),
            Key::new("env", "In the environment of every step. Templates.", refer("env"))
                .example(json!({ "CHANNEL": "{{ input.channel }}" })),
            Key::new("flow", "The steps, by name. Those that wait for nothing start at once.", json!({ "type": "object", "minProperties": 1, "additionalProperties": refer("step") }))
                .example(json!({ "build": { "script": "make" }, "test": { "depends_on": ["build"], "script": "make test" } })),
            Key::new("on_error", "What follows a failed job.", refer("hooks"))
                .example(json!([{ "action": "page-me", "input": { "text": "{{ hook.summary }}" } }])),
            Key::new("on_success", "What follows a completed job.", refer("hooks"))
                .example(json!([{ "task": "publish" }])),
            Key::new("on_cancel", "What follows a cancelled job.", refer("hooks"))
                .example(json!([{ "action": "clean-up" }])),
            Key::new("on_suspended", "What follows when a job waits for a person.", refer("hooks"))
                .example(json!([{ "notify": "team" }])),
            Key::new("schedules", "When jobs are made by themselves, by name.", refer_to_each("schedule"))
                .example(json!({ "nightly": { "cron": "0 2 * * *", "timezone": "Europe/Oslo" } })),
            Key::new("webhooks", "Requests that make jobs, by the name in their address, /hooks/NAME.", refer_to_each("webhook"))
                .example(json!({ "push": { "secret": { "env": "STEPWARD_SECRET_PUSH" } } })),
        ]),
    })
}

/// What a step or a named action does.
fn body_keys() -> Vec<Key> {
    vec![
        Key::new("type", "What it is; left out where a script is.", one_of(&["script", "docker", "pod", "task", "approval"]))
            .example(json!("docker")).default(json!("script")),
        Key::new("runner", "Where a script runs.", one_of(&["local", "docker", "pod"]))
            .example(json!("docker")).default(json!("local")),
        Key::new("script", "The text of a script. A template: values from outside need `| sh`, `| json` or `| unsafe`.", some_text())
            .example(json!("make build VERSION=\"$INPUT_VERSION\"")),
        Key::new("file", "A script in a file inside the workflows folder.", some_text())
            .example(json!("scripts/build.sh")),
        Key::new("language", "Who reads the script: a program. Left out: what its `#!` line says, else sh.", json!({ "type": "string", "pattern": "^[A-Za-z0-9._+-]+$" }))
            .example(json!("bash")).example(json!("python")).default(json!("sh")),
        Key::new("image", "The image of a container. A template.", text())
            .example(json!("alpine:3.20")),
        Key::new("entrypoint", "Instead of the image's own. Templates.", refer("words"))
            .example(json!(["/bin/sh", "-c"])),
        Key::new("command", "What the container is told. Templates.", refer("words"))
            .example(json!(["migrate", "--to", "latest"])),
        Key::new("manifest", "A pod, as YAML or as a text. Templates.", json!({ "type": ["object", "string"] }))
            .example(json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "alpine:3.20" }] } })),
    ]
}

fn policy_keys() -> Vec<Key> {
    vec![
        Key::new("env", "In its environment. Templates.", refer("env"))
            .example(json!({ "KEY": "{{ secret.deploy_key }}" })),
        Key::new(
            "workdir",
            "Where it runs, below its workspace unless it is a whole path. A template.",
            text(),
        )
        .example(json!("src")),
        Key::new(
            "tags",
            "What a worker must offer, besides what the type asks for.",
            json!({ "anyOf": [tag(), { "type": "array", "items": tag() }] }),
        )
        .example(json!(["gpu"])),
        Key::new(
            "timeout",
            "Bounds one attempt; of an approval, the waiting for an answer.",
            refer("duration"),
        )
        .example(json!("20m")),
        Key::new(
            "retry",
            "Whether and when it is tried again.",
            refer("retry"),
        )
        .example(json!({ "max_attempts": 3, "delay": "10s" })),
        Key::new(
            "on_worker_loss",
            "What becomes of it when its worker is lost in the middle.",
            one_of(&["fail", "retry", "hold"]),
        )
        .example(json!("retry"))
        .default(json!("fail")),
        Key::new(
            "unmatched",
            "What becomes of it when no active worker can run it.",
            one_of(&["fail", "wait"]),
        )
        .example(json!("wait"))
        .default(json!("fail")),
        Key::new(
            "outputs",
            "What it gives back; what does not fit fails it.",
            refer_to_each("value"),
        )
        .example(json!({ "image": { "type": "string", "required": true } })),
    ]
}

fn step() -> Value {
    let mut all = body_keys();
    all.extend([
        Key::new("task", "The task that is called, as a job of its own.", text())
            .example(json!("publish")),
        Key::new("message", "What whoever approves is asked. A template.", text())
            .example(json!("Publish {{ input.version }}?")),
        Key::new("action", "A named action, instead of `type`.", text())
            .example(json!("page-me")),
        Key::new("input", "What an action or task is given, or what is added to the job's inputs for this step; of an approval, what the approver is asked for.", values())
            .example(json!({ "version": "{{ input.version }}" })),
        Key::new("depends_on", "What it waits for, and which ends of that let it run.", refer("depends"))
            .example(json!(["build"])).example(json!([{ "step": "scan", "accept": "terminal" }])),
        Key::new("when", "Whether it runs at all. A template; empty, false, 0, null, none, [] and {} mean no.", json!({ "type": ["string", "boolean", "number", "null"] }))
            .example(json!("{{ input.channel == 'stable' }}")),
        Key::new("for_each", "Runs once for each item: a list, or a template that gives one. `each.item` and `each.index`, EACH_ITEM and EACH_INDEX.", json!({ "type": ["array", "string"] }))
            .example(json!(["unit", "api", "ui"])).example(json!("{{ steps.list.output.files }}")),
        Key::new("max_parallel", "How many items run at once.", json!({ "type": "integer", "minimum": 1 }))
            .example(json!(2)),
        Key::new("continue_on_failure", "Its own failure does not fail the job.", flag())
            .example(json!(true)).default(json!(false)),
    ]);
    all.extend(policy_keys());
    json!({
        "type": "object",
        "additionalProperties": false,
        "anyOf": [{ "required": ["type"] }, { "required": ["action"] }, { "required": ["script"] }, { "required": ["file"] }],
        "not": { "anyOf": [{ "required": ["type", "action"] }, { "required": ["script", "file"] }] },
        "dependencies": { "max_parallel": ["for_each"] },
        "allOf": [
            without_type(json!({ "not": has_any(&["message", "task"]) })),
            of_type("script", json!({ "not": has_any(&["message", "task"]) })),
            local_without_image(),
            of_type("docker", json!({ "required": ["image"] })),
            of_type("pod", json!({ "required": ["manifest"] })),
            of_type("task", json!({ "required": ["task"] })),
            of_type("approval", json!({ "properties": { "input": refer_to_each("value") }, "not": has_any(&["outputs", "script", "file", "image"]) })),
        ],
        "properties": keys(&all),
        "defaultSnippets": [
            { "label": "script", "description": "A step that runs a script", "body": { "script": "${1:make}" } },
            { "label": "docker", "description": "A step that runs a container", "body": { "type": "docker", "image": "${1:alpine:3.20}", "command": ["${2:true}"] } },
            { "label": "task", "description": "A step that calls a task", "body": { "type": "task", "task": "${1:name}", "input": {} } },
            { "label": "approval", "description": "A step that asks a person", "body": { "type": "approval", "message": "${1:Go on?}", "timeout": "${2:24h}" } },
            { "label": "loop", "description": "A step that runs once for each item", "body": { "for_each": ["${1:one}", "${2:two}"], "max_parallel": 2, "script": "echo \"\\$EACH_ITEM\"" } },
        ],
    })
}

fn of_type(name: &str, then: Value) -> Value {
    json!({ "if": { "properties": { "type": { "const": name } }, "required": ["type"] }, "then": then })
}

/// What runs a script, since it says nothing else.
fn without_type(then: Value) -> Value {
    json!({ "if": { "not": has_any(&["type", "action"]) }, "then": then })
}

fn has_any(keys: &[&str]) -> Value {
    let each: Vec<Value> = keys
        .iter()
        .map(|key| json!({ "required": [key] }))
        .collect();
    json!({ "anyOf": each })
}

/// A script that says nothing of a container runs in none.
fn local_without_image() -> Value {
    json!({
        "if": {
            "properties": { "type": { "const": "script" }, "runner": { "const": "local" } },
            "not": { "required": ["action"] },
        },
        "then": { "not": { "required": ["image"] } },
    })
}

fn action() -> Value {
    let mut all = vec![
        Key::new("description", "What it is for, in a sentence.", text())
            .example(json!("Tells me")),
        Key::new(
            "input",
            "What it is given; the step or hook that uses it gives it under its own `input`.",
            refer_to_each("value"),
        )
        .example(json!({ "text": { "type": "string" } })),
    ];
    all.extend(body_keys());
    all.extend(policy_keys());
    let mut properties = keys(&all);
    // A task and an approval are steps, and no actions.
    properties["type"]["enum"] = json!(["script", "docker", "pod"]);
    json!({
        "type": "object",
        "additionalProperties": false,
        "anyOf": [{ "required": ["type"] }, { "required": ["script"] }, { "required": ["file"] }],
        "not": { "required": ["script", "file"] },
        "allOf": [
            local_without_image(),
            of_type("docker", json!({ "required": ["image"] })),
            of_type("pod", json!({ "required": ["manifest"] })),
        ],
        "properties": properties,
    })
}

fn value_spec() -> Value {
    json!({
        "type": ["object", "null"],
        "additionalProperties": false,
        "properties": keys(&[
            Key::new("type", "What kind of value.", one_of(&["string", "text", "integer", "number", "boolean", "date", "datetime", "json"]))
                .example(json!("integer")).default(json!("string")),
            Key::new("required", "It must be given.", flag()).example(json!(true)).default(json!(false)),
            Key::new("default", "What it is if it is not given. No template.", json!({})).example(json!("beta")),
            Key::new("options", "All that is allowed.", json!({ "type": "array", "minItems": 1 })).example(json!(["stable", "beta"])),
            Key::new("pattern", "A regular expression that must be found in it.", text()).example(json!("^\\d+\\.\\d+\\.\\d+$")),
            Key::new("min", "The least value; of a text, the least characters.", json!({ "type": ["number", "string"] })).example(json!(1)),
            Key::new("max", "The greatest value; of a text, the most characters.", json!({ "type": ["number", "string"] })).example(json!(100)),
            Key::new("multiple", "A list of such values.", flag()).example(json!(true)).default(json!(false)),
            Key::new("secret", "Never shown, and sealed where it is kept.", flag()).example(json!(true)).default(json!(false)),
            Key::new("description", "What it is for, in a sentence.", text()).example(json!("The version to publish")),
        ]),
        "defaultSnippets": [{ "label": "required text", "body": { "type": "string", "required": true } }],
    })
}

fn hooks() -> Value {
    json!({
        "type": ["array", "null"],
        "items": {
            "type": "object",
            "additionalProperties": false,
            "oneOf": [{ "required": ["action"] }, { "required": ["task"] }, { "required": ["notify"] }],
            "not": { "required": ["notify", "input"] },
            "properties": keys(&[
                Key::new("action", "A named action, run as a job of its own.", text()).example(json!("page-me")),
                Key::new("task", "A task, run as a job of its own.", text()).example(json!("publish")),
                Key::new("notify", "A target of the server's settings.", text()).example(json!("team")),
                Key::new("input", "What the action or task is given. Templates that see `hook`.", values())
                    .example(json!({ "text": "{{ hook.summary }}" })),
            ]),
        },
    })
}

fn schedule() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["cron"],
        "properties": keys(&[
            Key::new("cron", "5 fields (minute hour day month weekday), 6 with seconds in front, or a word such as @daily.", text())
                .example(json!("0 2 * * *")).example(json!("*/5 8-18 * * MON-FRI")).example(json!("@hourly")),
            Key::new("timezone", "Where its clock is read: an IANA name.", text())
                .example(json!("Europe/Oslo")).default(json!("UTC")),
            Key::new("input", "What the job is given. Templates that see `schedule.name` and `schedule.at`.", values())
                .example(json!({ "day": "{{ schedule.at }}" })),
            Key::new("overlap", "A fire is due while a job of an earlier one is still there.", one_of(&["skip", "queue", "allow", "cancel_previous"]))
                .example(json!("queue")).default(json!("skip")),
            Key::new("catch_up", "Fires were found more than 10 s late, as after the server was off: none of them is made up for, the latest, all.", json!({
                "oneOf": [
                    one_of(&["none", "latest", "all"]),
                    {
                        "type": "object",
                        "additionalProperties": false,
                        "minProperties": 1,
                        "maxProperties": 1,
                        "properties": keys(&[
                            Key::new("latest", "The last one, if it is no older than this.", refer("duration")).example(json!("1h")),
                            Key::new("all", "The last so many of them; with overlap skip or queue one after another.", json!({ "type": "integer", "minimum": 1, "maximum": 10_000 })).example(json!(100)),
                        ]),
                    },
                ],
            }))
                .example(json!("latest")).example(json!({ "all": 24 })).default(json!("latest")),
            Key::new("enabled", "false: it does not fire.", flag()).example(json!(false)).default(json!(true)),
        ]),
        "defaultSnippets": [{ "label": "nightly", "body": { "cron": "0 2 * * *", "timezone": "${1:UTC}" } }],
    })
}

fn webhook() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["secret"],
        "properties": keys(&[
            Key::new("secret", "What a request must show that it knows.", refer("secret")).example(json!({ "env": "STEPWARD_SECRET_PUSH" })),
            Key::new("scheme", "How it shows that; left out: any of the three, told by its headers.", one_of(&["standard", "github", "bearer"]))
                .example(json!("github")),
            Key::new("input", "What the job is given. Templates that see `body` and `headers`.", values())
                .example(json!({ "version": "{{ body.tag }}" })),
        ]),
        "defaultSnippets": [{ "label": "webhook", "body": { "secret": { "env": "${1:STEPWARD_SECRET_PUSH}" }, "input": {} } }],
    })
}

fn secret() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "minProperties": 1,
        "maxProperties": 1,
        "properties": keys(&[
            Key::new("env", "A variable in the server's environment.", text()).example(json!("DB_PASSWORD")),
            Key::new("file", "A file that the server can read.", text()).example(json!("/etc/stepward/deploy.key")),
        ]),
    })
}

fn concurrency() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["group"],
        "properties": keys(&[
            Key::new("group", "Jobs of one group count together. A template.", text()).example(json!("release-{{ input.channel }}")),
            Key::new("limit", "How many run at once.", json!({ "type": "integer", "minimum": 1 })).example(json!(1)).default(json!(1)),
            Key::new("when_full", "What becomes of the next.", one_of(&["queue", "skip", "cancel_previous"])).example(json!("skip")).default(json!("queue")),
        ]),
    })
}

fn retry() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["max_attempts"],
        "properties": keys(&[
            Key::new("max_attempts", "All tries, the first one too.", json!({ "type": "integer", "minimum": 1, "maximum": 100 })).example(json!(3)),
            Key::new("delay", "How long until the next try.", refer("duration")).example(json!("10s")).default(json!(0)),
            Key::new("backoff", "Whether delays stay or double.", one_of(&["fixed", "exponential"])).example(json!("exponential")).default(json!("fixed")),
            Key::new("max_delay", "How far delays grow.", refer("duration")).example(json!("5m")).default(json!("1h")),
            Key::new("jitter", "Spreads the tries of many steps.", flag()).example(json!(true)).default(json!(false)),
            Key::new("on", "The reasons that are worth another try.", refer("words"))
                .example(json!(["exit_code", "worker_lost"])).default(json!(["exit_code", "signal", "spawn_error", "step_timeout"])),
        ]),
    })
}

fn depends() -> Value {
    let outcomes = ["completed", "failed", "cancelled", "skipped", "omitted"];
    let group = json!({ "type": "array", "minItems": 1, "items": refer("depends") });
    json!({
        "description": "A step, a list of which all must be accepted, or a group.",
        "oneOf": [
            { "type": "string", "minLength": 1 },
            { "type": "array", "items": refer("depends") },
            {
                "type": "object",
                "additionalProperties": false,
                "required": ["step"],
                "properties": keys(&[
                    Key::new("step", "Its name.", text()).example(json!("build")),
                    Key::new("accept", "The ends of it that are accepted; `terminal` means any.", json!({
                        "anyOf": [
                            one_of(&["completed", "failed", "cancelled", "skipped", "omitted", "terminal"]),
                            { "type": "array", "minItems": 1, "items": one_of(&outcomes) },
                        ],
                    })).example(json!("terminal")).example(json!(["completed", "skipped"])).default(json!(["completed"])),
                ]),
            },
            {
                "type": "object",
                "additionalProperties": false,
                "required": ["all"],
                "properties": keys(&[Key::new("all", "Each of these must be accepted.", group.clone()).example(json!(["build", "lint"]))]),
            },
            {
                "type": "object",
                "additionalProperties": false,
                "required": ["any"],
                "properties": keys(&[Key::new("any", "One of these must be accepted; all of them must have ended.", group).example(json!(["build", "cached"]))]),
            },
        ],
    })
}

fn duration() -> Value {
    json!({
        "description": "Seconds, or a text such as 30s, 5m, 1h30m, 2d.",
        "anyOf": [
            { "type": "integer", "minimum": 0 },
            { "type": "string", "pattern": "^([0-9]+|[0-9]+d([0-9]+h)?([0-9]+m)?([0-9]+s)?|[0-9]+h([0-9]+m)?([0-9]+s)?|[0-9]+m([0-9]+s)?|[0-9]+s)$" },
        ],
    })
}

fn env() -> Value {
    json!({
        "type": ["object", "null"],
        "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
        "additionalProperties": { "type": ["string", "number", "boolean"] },
    })
}

fn words() -> Value {
    json!({ "anyOf": [text(), { "type": "array", "items": text() }] })
}
