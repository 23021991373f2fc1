//! Turns Dagu DAGs into tasks: one task for each DAG, one workflow file for each file.
//!
//! Dagu has written its keys in two ways, `retryPolicy` and later `retry_policy`: both are read. A step that cannot be written
//! becomes one that fails and says so. Every key that nothing here reads is reported.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_yaml::{Mapping, Value};

use super::Imported;
use super::report::Outcome::{self, Changed, Converted, LeftOut, NotSupported};
use super::report::Report;
use super::shell::{base_name, literal, name_of};
use super::tree::{get, mapping, plain_text, text};
use super::valid::{Draft, failing_step, finish};
use super::yaml::{Map, Node, key_text, quoted};
use crate::cron::Cron;
use crate::domain::check::env_name_fault;
use crate::domain::limits;

/// One file of DAGs.
#[derive(Debug, Clone)]
pub struct DaguFile {
    /// How the report calls the file, such as `etl.yaml`.
    pub name: String,
    /// The name of the file without its ending, which names a DAG that has no name.
    pub stem: String,
    pub text: String,
}

/// `timezone` is the zone that Dagu's scheduler runs in. All files are imported at once, since a DAG may run a DAG of another file.
pub fn import_dagu(files: &[DaguFile], timezone: &str) -> Imported {
    let mut report = Report::default();
    let dags = read(files, &mut report);
    let mut drafts = Vec::new();
    let mut mail_targets = Vec::new();
    for file in files {
        let mut writer = Writer {
            dags: &dags,
            timezone,
            report: &mut report,
            document: Map::default(),
            places: BTreeMap::new(),
            mail_targets: &mut mail_targets,
            uses_own_zone: false,
        };
        for dag in dags.iter().filter(|dag| dag.file == file.name) {
            writer.dag(dag);
        }
        if writer.uses_own_zone {
            let note = format!(
                "Dagu fires by the time zone of its server; written as timezone: {timezone}; give --timezone if that is another"
            );
            writer
                .report
                .add(file.name.as_str(), Changed, "time zone", &note);
        }
        drafts.push(Draft {
            name: format!("{}.yaml", file.stem),
            source: file.name.clone(),
            head: vec![format!("Imported from the Dagu file {}.", file.name)],
            document: writer.document,
            tail: Vec::new(),
            places: writer.places,
        });
    }
    if drafts.iter().any(|draft| !draft.document.is_empty()) {
        every_dag(&mut report);
    }
    finish(drafts, BTreeMap::new(), report)
}

/// What is true of every DAG.
fn every_dag(report: &mut Report) {
    for (what, note) in [
        (
            "shell",
            "commands without a shell of their own are read by sh; Dagu takes $SHELL",
        ),
        (
            "environment",
            "steps see PATH, HOME, USER and the like of their worker, and what env sets; Dagu passes all of its own environment",
        ),
        (
            "folder",
            "a step without a folder starts in an empty one; Dagu starts in the folder of the DAG file",
        ),
        (
            "lost workers",
            "a retry does not follow a lost worker; name worker_lost in on: of retry, or write on_worker_loss: retry",
        ),
    ] {
        report.add("every DAG", Changed, what, note);
    }
}

/// A mapping of Dagu, whose keys remember whether something read them.
struct Body {
    entries: Vec<Entry>,
}

struct Entry {
    /// The key as it is written.
    written: String,
    /// The key in Dagu's present spelling.
    key: String,
    value: Value,
    is_read: Cell<bool>,
}

impl Body {
    fn new(mapping: &Mapping) -> Body {
        let entry = |(key, value): (&Value, &Value)| {
            let written = key_text(key);
            Entry {
                key: snake_case(&written),
                written,
                value: value.clone(),
                is_read: Cell::new(false),
            }
        };
        Body {
            entries: mapping.iter().map(entry).collect(),
        }
    }

    /// The value of a key, which counts as read. Null is no value.
    fn get(&self, key: &str) -> Option<&Value> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        entry.is_read.set(true);
        Some(&entry.value).filter(|value| !value.is_null())
    }

    fn text(&self, key: &str) -> Option<String> {
        let text = self.get(key).map(plain_text);
        text.filter(|text| !text.is_empty())
    }

    fn number(&self, key: &str) -> Option<i64> {
        self.get(key).and_then(Value::as_i64)
    }

    /// The first of these keys that is there.
    fn any(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().find_map(|key| self.get(key))
    }

    fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    fn unread(&self) -> Vec<(String, String)> {
        let unread = self.entries.iter().filter(|entry| !entry.is_read.get());
        unread
            .map(|entry| (entry.written.clone(), entry.key.clone()))
            .collect()
    }
}

/// `retryPolicy` as `retry_policy`.
fn snake_case(key: &str) -> String {
    let mut snake = String::new();
    for c in key.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() && !snake.ends_with('_') {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

struct Dag {
    file: String,
    /// What its rows in the report begin with, if its file holds several DAGs.
    prefix: String,
    /// Names by which other DAGs run it.
    called: Vec<String>,
    /// The name of the imported task.
    task: String,
    body: Body,
    params: Vec<Param>,
    /// Parameters that cannot be imported, each with the reason.
    param_faults: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq)]
struct Param {
    /// The name of the input here.
    name: String,
    /// The variable that scripts know it by. `None`: it is only known by its position.
    variable: Option<String>,
    kind: &'static str,
    default: Option<Value>,
    required: bool,
    description: Option<String>,
    options: Option<Value>,
}

fn read(files: &[DaguFile], report: &mut Report) -> Vec<Dag> {
    let mut dags: Vec<Dag> = Vec::new();
    for file in files {
        let mut documents = Vec::new();
        let rows = report.rows.len();
        for document in serde_yaml::Deserializer::from_str(&file.text) {
            match Value::deserialize(document) {
                Ok(Value::Mapping(mapping)) => documents.push(Body::new(&mapping)),
                Ok(Value::Null) => {}
                Ok(_) => report.add(&file.name, NotSupported, "", "is no mapping at its top"),
                Err(error) => {
                    let note = format!("cannot be read as YAML: {error}");
                    report.add(&file.name, NotSupported, "", &note);
                    break;
                }
            }
        }
        if documents.is_empty() && report.rows.len() == rows {
            let note = "is empty: it holds no DAG; no workflow file is written for it";
            report.add(&file.name, LeftOut, "", note);
        }
        let is_alone = documents.len() == 1;
        for (index, body) in documents.into_iter().enumerate() {
            let named = body.text("name");
            let wanted = named.clone().unwrap_or_else(|| match index {
                0 => file.stem.clone(),
                index => format!("{}-{}", file.stem, index + 1),
            });
            let mut task = valid_name(&wanted, "dag");
            let mut number = 2;
            while dags.iter().any(|dag| dag.task == task) {
                task = format!("{}-{number}", valid_name(&wanted, "dag"));
                number += 1;
            }
            let mut called = vec![wanted];
            if index == 0 {
                called.push(file.stem.clone());
                called.push(file.name.clone());
            }
            let (params, param_faults) = params(body.get("params"));
            dags.push(Dag {
                file: file.name.clone(),
                prefix: if is_alone {
                    String::new()
                } else {
                    format!("{task}.")
                },
                called,
                task,
                body,
                params,
                param_faults,
            });
        }
    }
    dags
}

/// The text as the name of a task or a step.
fn valid_name(text: &str, otherwise: &str) -> String {
    let mut name = String::new();
    for c in text.chars().take(60) {
        match c {
            c if c.is_alphanumeric() || c == '_' || c == '.' => name.push(c),
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    let name = name.trim_end_matches('-');
    match name.is_empty() || name == "_server" {
        true => otherwise.to_string(),
        false => name.to_string(),
    }
}

/// The text as the name of an input and of a variable.
fn variable_name(text: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = text.chars().take(60).map(word).collect();
    match name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        true => format!("p{name}"),
        false => name,
    }
}

/// Parameters, and what is wrong with those that are none: (where, why).
fn params(written: Option<&Value>) -> (Vec<Param>, Vec<(String, String)>) {
    let mut found: Vec<Param> = Vec::new();
    let mut faults = Vec::new();
    let named = |key: &str, default: Value| Param {
        name: variable_name(key),
        variable: Some(variable_name(key)),
        // Dagu passes every parameter as text.
        kind: "string",
        default: Some(default).filter(|default| !default.is_null()),
        required: false,
        description: None,
        options: None,
    };
    let mut add = |param: Param| match found.iter().any(|known| known.name == param.name) {
        true => faults.push((
            format!("params.{}", param.name),
            "is there twice; the first one is kept".to_string(),
        )),
        false => found.push(param),
    };
    let mut position = 0;
    let mut one = |word: &str| match word.split_once('=') {
        Some((key, value)) if !key.is_empty() && !key.contains(['$', '`', '"']) => {
            named(key, Value::from(value))
        }
        _ => {
            position += 1;
            Param {
                variable: None,
                ..named(&format!("arg{position}"), Value::from(word))
            }
        }
    };
    match written {
        None => {}
        Some(Value::Sequence(list)) => {
            for item in list {
                match item {
                    Value::Mapping(entry) if text(entry, "name").is_some() && entry.len() > 1 => {
                        add(rich_param(&Body::new(entry)));
                    }
                    Value::Mapping(_) => {
                        for (key, value) in mapping(item) {
                            add(named(&key, value));
                        }
                    }
                    item => {
                        for word in split_words(&plain_text(item)) {
                            add(one(&word));
                        }
                    }
                }
            }
        }
        Some(map @ Value::Mapping(_)) => {
            let keys = mapping(map);
            let is_schema = keys.iter().any(|(key, _)| {
                key == "schema"
                    || (key == "properties" && keys.iter().any(|(key, _)| key == "type"))
            });
            if is_schema {
                let why = "is a JSON schema, which is not read; declare the parameters as input of the task";
                return (Vec::new(), vec![("params".to_string(), why.to_string())]);
            }
            for (key, value) in keys {
                add(named(&key, value));
            }
        }
        Some(words) => {
            for word in split_words(&plain_text(words)) {
                add(one(&word));
            }
        }
    }
    (found, faults)
}

fn rich_param(body: &Body) -> Param {
    let name = variable_name(&body.text("name").unwrap_or_default());
    let kind = match body.text("type").as_deref() {
        Some("integer") => "integer",
        Some("number") => "number",
        Some("boolean") => "boolean",
        _ => "string",
    };
    Param {
        variable: Some(name.clone()),
        name,
        kind,
        default: body.get("default").cloned(),
        required: body.get("required").and_then(Value::as_bool) == Some(true),
        description: body.text("description"),
        options: body.get("enum").cloned(),
    }
}

/// Splits at blanks that are not inside quotes or backticks; quotes around a value are taken away.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut is_begun = false;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => {
                quote = None;
                if c == '`' {
                    word.push(c);
                }
            }
            (None, '"' | '\'' | '`') => {
                quote = Some(c);
                is_begun = true;
                if c == '`' {
                    word.push(c);
                }
            }
            (None, c) if c.is_whitespace() => {
                if is_begun {
                    words.push(std::mem::take(&mut word));
                }
                is_begun = false;
            }
            (_, c) => {
                word.push(c);
                is_begun = true;
            }
        }
    }
    if is_begun {
        words.push(word);
    }
    words
}

/// Whether Dagu puts something else in its place.
fn is_evaluated(text: &str) -> bool {
    text.contains(['$', '`'])
}

/// Whether a script mentions a variable: `$NAME` or `${NAME}`.
fn mentions(script: &str, name: &str) -> bool {
    script.match_indices('$').any(|(at, _)| {
        let rest = &script[at + 1..];
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        rest.strip_prefix(name).is_some_and(|after| {
            !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        })
    })
}

/// `${name.field}`, which a shell cannot read.
fn field_reference(script: &str) -> Option<&str> {
    script.match_indices("${").find_map(|(at, _)| {
        let end = script[at..].find('}')? + at + 1;
        let inner = &script[at + 2..end - 1];
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let is_it = inner.contains('.') && inner.chars().all(is_path);
        is_it.then(|| &script[at..end])
    })
}

/// The text inside double quotes of a shell: what Dagu evaluates in it, the shell does too.
fn in_quotes(text: &str) -> String {
    let mut out = String::from("\"");
    let mut is_command = false;
    let mut chars = text.chars().peekable();
    let mut depth = 0;
    while let Some(c) = chars.next() {
        match c {
            '`' => {
                out.push_str(if is_command { ")" } else { "$(" });
                is_command = !is_command;
            }
            '$' if chars.peek() == Some(&'(') => {
                out.push('$');
                depth += 1;
            }
            ')' if depth > 0 => {
                out.push(c);
                depth -= 1;
            }
            '"' | '\\' if !is_command && depth == 0 => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    if is_command {
        out.push(')');
    }
    out.push('"');
    out
}

/// The text as one word of a shell command.
fn shell_word(text: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    match text {
        text if is_evaluated(text) => in_quotes(text),
        text if !text.is_empty() && text.chars().all(is_safe) => text.to_string(),
        text => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// Variables of the environment, in order.
fn variables(written: Option<&Value>) -> Vec<(String, String)> {
    let pair = |text: &str| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        (name.trim().to_string(), value.to_string())
    };
    let of_map = |map: &Value| -> Vec<(String, String)> {
        let pairs = mapping(map).into_iter();
        pairs
            .map(|(name, value)| (name, plain_text(&value)))
            .collect()
    };
    match written {
        None => Vec::new(),
        Some(Value::Sequence(list)) => {
            let each = list.iter().flat_map(|item| match item {
                Value::Mapping(_) => of_map(item),
                item => vec![pair(&plain_text(item))],
            });
            each.collect()
        }
        Some(map @ Value::Mapping(_)) => of_map(map),
        Some(other) => split_words(&plain_text(other))
            .iter()
            .map(|word| pair(word))
            .collect(),
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Sequence(list) => list.iter().map(plain_text).collect(),
        other => vec![plain_text(other)],
    }
}

fn secs(secs: i64) -> Node {
    Node::Plain(format!("{secs}s"))
}

/// How a step is reached in a template.
fn step_output(step: &str, name: &str) -> String {
    format!("steps['{step}'].output.{name}")
}

/// A condition that holds if all of these expressions do.
fn when_all(expressions: &[String]) -> String {
    format!("{{{{ {} }}}}", expressions.join(" and "))
}

/// What steps after this one may do when it did not complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Continue {
    failure: bool,
    skipped: bool,
}

/// A step of the DAG, with its name here.
struct Step {
    name: String,
    /// The path of the step in the report.
    path: String,
    body: Body,
    /// Names here of the steps that it waits for.
    needs: Vec<String>,
    goes_on: Continue,
    /// The variable that its output is kept in.
    output: Option<String>,
}

struct Writer<'a> {
    dags: &'a [Dag],
    timezone: &'a str,
    report: &'a mut Report,
    document: Map,
    /// Where the steps of the document are in the DAG.
    places: BTreeMap<Vec<String>, String>,
    /// Targets of mail of all files.
    mail_targets: &'a mut Vec<MailTarget>,
    uses_own_zone: bool,
}

/// Addresses that get mail. They are a target of notifications in the server's settings.
struct MailTarget {
    /// Counts from 1.
    number: usize,
    /// `None`: the DAG names no address.
    to: Option<Vec<String>>,
    from: Option<String>,
    /// Whether a row of the report has its definition.
    is_told: bool,
}

impl MailTarget {
    fn name(&self) -> String {
        match self.number {
            1 => "mail".to_string(),
            number => format!("mail-{number}"),
        }
    }

    /// What the server's settings need. `None`: a row says it already.
    fn definition(&mut self) -> Option<String> {
        if self.is_told {
            return None;
        }
        self.is_told = true;
        let to = self.to.as_ref();
        let to = to.map_or_else(|| "ADDRESS".to_string(), |to| to.join(", "));
        let from = self.from.as_ref();
        let from = from.map_or_else(String::new, |from| format!(", from: {from}"));
        let name = self.name();
        Some(format!(
            "notify: {{ {name}: {{ type: email, to: [{to}]{from} }} }}"
        ))
    }
}

/// What is true of all steps of one DAG.
struct Around<'a> {
    dag: &'a Dag,
    /// Variables that have to be evaluated by each script.
    evaluated: Vec<(String, String)>,
    /// Variables that steps get by `env`.
    given: Map,
    folder: Option<String>,
    shell: Option<String>,
    container: Option<&'a Value>,
    tags: Vec<String>,
    defaults: Option<Body>,
}

/// Why a step cannot be written.
struct Unsaid(String);

fn unsaid<T>(why: impl Into<String>) -> Result<T, Unsaid> {
    Err(Unsaid(why.into()))
}

impl Writer<'_> {
    fn row(&mut self, dag: &Dag, path: &str, outcome: Outcome, what: &str, note: &str) {
        let place = format!("{}: {}{path}", dag.file, dag.prefix);
        self.report.add(place, outcome, what, note);
    }

    fn dag(&mut self, dag: &Dag) {
        let body = &dag.body;
        let mut task = Map::default();
        if let Some(description) = body.text("description") {
            task.put("description", description);
            self.row(dag, "description", Converted, "", "");
        }
        let name = body.text("name");
        if let Some(name) = name {
            match name == dag.task {
                true => self.row(dag, "name", Converted, &name, ""),
                false => {
                    let note = format!("the task is called {} here", dag.task);
                    self.row(dag, "name", Changed, &name, &note);
                }
            }
        }
        self.params(dag, &mut task);
        self.limits(dag, &mut task);
        let around = self.around(dag);
        self.steps(dag, &around, &mut task);
        self.handlers(dag, &around, &mut task);
        self.mail(dag, &mut task);
        self.schedules(dag, &mut task);
        self.unread(dag, "", body);
        self.document.map_mut("tasks").put(&dag.task, task);
    }

    /// Reports every key that nothing read.
    fn unread(&mut self, dag: &Dag, path: &str, body: &Body) {
        for (written, key) in body.unread() {
            let (outcome, note) = match key.as_str() {
                "tags" | "labels" | "group" => (
                    LeftOut,
                    "there are no labels of tasks here; it changes nothing",
                ),
                "log_dir" | "log_output" | "max_output_size" | "max_clean_up_time_sec" => (
                    LeftOut,
                    "logs are kept by the server; limits of a worker and retention in the settings bound them",
                ),
                "hist_retention_days" => (
                    NotSupported,
                    "is one setting for all jobs here: retention.job_days in the server's settings",
                ),
                "dotenv" => (
                    NotSupported,
                    "no .env file is read; write the variables as env, or put them into env of the worker's settings",
                ),
                "delay_sec" | "restart_wait_sec" => (
                    NotSupported,
                    "nothing waits before a start; put a sleep into the first step",
                ),
                "max_active_steps" => (
                    NotSupported,
                    "a job has no limit of its own; the slots of the workers bound what runs at a time",
                ),
                "skip_if_successful" => (
                    NotSupported,
                    "every scheduled run starts; let the first step look whether there is something to do",
                ),
                "queue" => (
                    NotSupported,
                    "there are no queues by name; write concurrency with the same group into each task that shared it",
                ),
                "repeat_policy" => (
                    NotSupported,
                    "a step runs once; repeat in the script, or use a schedule",
                ),
                "signal_on_stop" => (
                    NotSupported,
                    "a step is stopped by SIGTERM, then by SIGKILL",
                ),
                "stdout" | "stderr" => (
                    NotSupported,
                    "what a step prints is its log; redirect in the script to have it in a file as well",
                ),
                "smtp" => (
                    NotSupported,
                    "mail is sent by sendmail of the server's machine; set up smtp there",
                ),
                "run_config" | "otel" | "worker_id" => {
                    (NotSupported, "there is no such setting here")
                }
                "ssh" | "s3" | "redis" | "llm" | "harness" | "harnesses" | "registry_auths" => (
                    NotSupported,
                    "only scripts, containers, pods and tasks are run here; call the tool from a script",
                ),
                "approval" => (
                    NotSupported,
                    "write a step of type: approval behind it, and let the next steps wait for that",
                ),
                _ => (NotSupported, "is not known here"),
            };
            self.row(dag, &format!("{path}{written}"), outcome, "", note);
        }
    }

    fn params(&mut self, dag: &Dag, task: &mut Map) {
        for (path, why) in &dag.param_faults {
            self.row(dag, path, NotSupported, "", why);
        }
        for param in &dag.params {
            let path = format!("params.{}", param.name);
            let mut spec = Map::default();
            spec.put("type", param.kind);
            if let Some(description) = &param.description {
                spec.put("description", description.as_str());
            }
            let mut outcome = (Converted, format!("input {}", param.name));
            if param.variable.is_none() {
                outcome = (
                    Changed,
                    format!(
                        "input {}; scripts that use its position get it there",
                        param.name
                    ),
                );
            }
            match &param.default {
                Some(default) if is_evaluated(&plain_text(default)) => {
                    outcome = (
                        NotSupported,
                        format!(
                            "a default is not evaluated here; give {} when the task is submitted, or set it in the script",
                            param.name
                        ),
                    );
                }
                Some(default @ (Value::Sequence(_) | Value::Mapping(_))) => {
                    let json = serde_json::to_string(default).unwrap_or_default();
                    spec.put("default", json);
                }
                Some(default) if param.kind == "string" => {
                    spec.put("default", plain_text(default));
                }
                Some(default) => spec.put("default", Node::from(default)),
                None if param.required => spec.put("required", true),
                None => {}
            }
            if let Some(options) = &param.options {
                let options = match param.kind {
                    "string" => Node::from(
                        texts(options)
                            .into_iter()
                            .map(Node::from)
                            .collect::<Vec<_>>(),
                    ),
                    _ => Node::from(options),
                };
                spec.put("options", options);
            }
            task.map_mut("input").put(&param.name, spec);
            if let Some(variable) = &param.variable {
                let value = format!("{{{{ input.{} | default('') }}}}", param.name);
                task.map_mut("env").put(variable, value);
            }
            let (outcome, note) = outcome;
            self.row(dag, &path, outcome, "", &note);
        }
    }

    fn limits(&mut self, dag: &Dag, task: &mut Map) {
        let body = &dag.body;
        match body.number("timeout_sec") {
            Some(timeout) if timeout > 0 => {
                task.put("timeout", secs(timeout));
                self.row(
                    dag,
                    "timeout_sec",
                    Converted,
                    &timeout.to_string(),
                    "timeout",
                );
            }
            Some(_) => self.row(
                dag,
                "timeout_sec",
                Converted,
                "0",
                "the server's default holds",
            ),
            None => {}
        }
        match body.number("max_active_runs") {
            Some(limit) if limit > 0 => {
                let mut concurrency = Map::default();
                concurrency.put("group", dag.task.as_str());
                concurrency.put("limit", Node::Plain(limit.to_string()));
                concurrency.put("when_full", "queue");
                task.put("concurrency", concurrency);
                let note = "concurrency: a job beyond the limit waits";
                self.row(dag, "max_active_runs", Converted, &limit.to_string(), note);
            }
            Some(limit) => {
                let note = "jobs of a task are not limited by themselves";
                self.row(dag, "max_active_runs", Converted, &limit.to_string(), note);
            }
            None => {}
        }
    }

    /// Variables that steps get by `env`, and those that each script has to evaluate.
    fn environment(
        &mut self,
        dag: &Dag,
        path: &str,
        written: Option<&Value>,
        given: &mut Map,
    ) -> Vec<(String, String)> {
        let mut evaluated = Vec::new();
        for (name, value) in variables(written) {
            let path = format!("{path}.{name}");
            if env_name_fault(&name).is_some() {
                let note = "a variable cannot be called so: letters, digits and _ are allowed, and names that begin with STEPWARD_ are reserved; rename it";
                self.row(dag, &path, NotSupported, "", note);
            } else if is_evaluated(&value) {
                let note = "is evaluated by the shell at the start of each script";
                self.row(dag, &path, Changed, "", note);
                evaluated.push((name, value));
            } else {
                given.put(&name, literal(&value));
                self.row(dag, &path, Converted, "", "");
            }
        }
        evaluated
    }

    fn around<'d>(&mut self, dag: &'d Dag) -> Around<'d> {
        let body = &dag.body;
        let mut given = Map::default();
        let evaluated = self.environment(dag, "env", body.get("env"), &mut given);
        self.secrets(dag, &mut given);
        let folder = body.any(&["working_dir", "dir"]).map(plain_text);
        if folder.is_some() {
            self.row(dag, "working_dir", Converted, "", "workdir of each script");
        }
        let shell = body.get("shell").map(|shell| texts(shell).join(" "));
        if let Some(shell) = &shell {
            self.row(dag, "shell", Converted, shell, "language of each script");
        }
        let container = body.get("container");
        if container.is_some() {
            let note = "runner: docker of each script; the image needs the shell of the script";
            self.row(dag, "container", Changed, "", note);
        }
        let tags = self.tags(dag, "", body);
        let defaults = body
            .get("defaults")
            .and_then(Value::as_mapping)
            .map(Body::new);
        if let Some(defaults) = &defaults {
            self.row(dag, "defaults", Converted, "", "written into each step");
            for key in ["retry_policy", "continue_on", "timeout_sec"] {
                defaults.get(key);
            }
            self.unread(dag, "defaults.", defaults);
        }
        Around {
            dag,
            evaluated,
            given,
            folder,
            shell,
            container,
            tags,
            defaults,
        }
    }

    fn tags(&mut self, dag: &Dag, path: &str, body: &Body) -> Vec<String> {
        let Some(Value::Mapping(selector)) = body.get("worker_selector") else {
            return Vec::new();
        };
        let pairs = selector.iter();
        let tags = pairs.map(|(key, value)| format!("{}={}", key_text(key), plain_text(value)));
        let tags: Vec<String> = tags.collect();
        let note = format!("tags: start a worker with --tags script,{}", tags.join(","));
        self.row(dag, &format!("{path}worker_selector"), Changed, "", &note);
        tags
    }

    fn secrets(&mut self, dag: &Dag, given: &mut Map) {
        let Some(Value::Sequence(secrets)) = dag.body.get("secrets") else {
            return;
        };
        for secret in secrets {
            let Some(secret) = secret.as_mapping().map(Body::new) else {
                self.row(dag, "secrets", NotSupported, "", "is no list of mappings");
                continue;
            };
            let name = secret.text("name").unwrap_or_default();
            let path = format!("secrets.{name}");
            let key = secret.text("key").unwrap_or_default();
            let provider = secret.text("provider").unwrap_or_default();
            if !["env", "file"].contains(&provider.as_str())
                || key.is_empty()
                || env_name_fault(&name).is_some()
            {
                let note = "only providers env and file are known here; put the value into the server's environment or a file, name it under secrets, and write env: { NAME: '{{ secret.NAME }}' } into the steps";
                self.row(dag, &path, NotSupported, "", note);
                continue;
            }
            let mut reference = Map::default();
            reference.put(&provider, key);
            self.document.map_mut("secrets").put(&name, reference);
            given.put(&name, format!("{{{{ secret.{name} }}}}"));
            self.row(dag, &path, Converted, "", "a secret, in env of each script");
            self.unread(dag, &format!("{path}."), &secret);
        }
    }

    // Steps

    fn steps(&mut self, dag: &Dag, around: &Around, task: &mut Map) {
        let mut steps = self.read_steps(dag, around);
        let mut names: BTreeSet<String> = steps.iter().map(|step| step.name.clone()).collect();
        let mut gate_name = |wanted: &str| {
            let mut name = wanted.to_string();
            let mut number = 2;
            while !names.insert(name.clone()) {
                name = format!("{wanted}-{number}");
                number += 1;
            }
            name
        };
        let mut flow = Map::default();
        let mut gates: Vec<String> = Vec::new();
        let mut gate_when = None;
        if let Some(conditions) = dag.body.any(&["preconditions", "precondition"]) {
            match conditions_of(conditions) {
                Ok(conditions) => {
                    let name = gate_name("preconditions");
                    let script = self.script_of_conditions(around, &conditions);
                    flow.put(&name, script);
                    let expression = format!("({} | string) == 'true'", step_output(&name, "ok"));
                    gate_when = Some(expression);
                    gates.push(name.clone());
                    let note = format!(
                        "step {name} looks whether they hold; all steps are skipped if not, and the job completes"
                    );
                    self.row(dag, "preconditions", Changed, "", &note);
                }
                Err(why) => self.row(dag, "preconditions", NotSupported, "", &why),
            }
        }
        let handlers = dag.body.get("handler_on").and_then(Value::as_mapping);
        let handlers = handlers.map(Body::new);
        if let Some(Value::Mapping(init)) = handlers.as_ref().and_then(|all| all.get("init")) {
            let init = Step {
                name: gate_name("init"),
                path: "handler_on.init".to_string(),
                body: Body::new(init),
                needs: gates.clone(),
                goes_on: Continue::default(),
                output: None,
            };
            let written = self.step(around, &init, &[], gate_when.clone(), &mut gate_name);
            for (name, step) in written {
                flow.put(&name, step);
            }
            gates = vec![init.name];
            gate_when = None;
        }
        // A step that runs although a step before it was skipped would run although the gate is closed, too. All others are
        // skipped because the steps before them are.
        let may_be_skipped: BTreeSet<String> = steps
            .iter()
            .filter(|step| step.goes_on.skipped)
            .map(|step| step.name.clone())
            .collect();
        let is_gated = |step: &Step| {
            step.needs.is_empty() || step.needs.iter().any(|need| may_be_skipped.contains(need))
        };
        let is_gated: Vec<bool> = steps.iter().map(is_gated).collect();
        for (step, is_gated) in steps.iter_mut().zip(&is_gated) {
            if *is_gated {
                step.needs.splice(0..0, gates.clone());
            }
        }
        for (step, is_gated) in steps.iter().zip(is_gated) {
            let when = gate_when.clone().filter(|_| is_gated);
            for (name, written) in self.step(around, step, &steps, when, &mut gate_name) {
                flow.put(&name, written);
            }
        }
        if flow.is_empty() {
            let note = "the DAG has no steps; the task is not written";
            self.row(dag, "steps", NotSupported, "", note);
        }
        task.put("flow", flow);
    }

    /// The steps, each with its name and with what it waits for.
    fn read_steps(&mut self, dag: &Dag, around: &Around) -> Vec<Step> {
        // Groups of steps that run at the same time, as a chain has them.
        let mut groups: Vec<Vec<(String, Option<String>, Value)>> = Vec::new();
        match dag.body.get("steps") {
            Some(Value::Sequence(list)) => {
                for (index, item) in list.iter().enumerate() {
                    let path = format!("steps[{index}]");
                    groups.push(match item {
                        Value::Sequence(parallel) => {
                            let each = parallel.iter().enumerate();
                            each.map(|(at, item)| (format!("{path}[{at}]"), None, item.clone()))
                                .collect()
                        }
                        item => vec![(path, None, item.clone())],
                    });
                }
            }
            Some(map @ Value::Mapping(_)) => {
                for (name, step) in mapping(map) {
                    groups.push(vec![(format!("steps.{name}"), Some(name), step)]);
                }
            }
            _ => {}
        }
        let mut steps: Vec<Step> = Vec::new();
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        let mut written_needs: Vec<Option<Vec<String>>> = Vec::new();
        let mut group_of: Vec<usize> = Vec::new();
        for (group, items) in groups.into_iter().enumerate() {
            for (path, key, item) in items {
                let body = match &item {
                    Value::Mapping(step) => Body::new(step),
                    item if !plain_text(item).is_empty() => {
                        let mut step = Mapping::new();
                        step.insert("command".into(), plain_text(item).into());
                        Body::new(&step)
                    }
                    _ => {
                        self.row(dag, &path, NotSupported, "", "is no step");
                        continue;
                    }
                };
                let (name, id) = (body.text("name").or(key), body.text("id"));
                let command = body.any(&["command", "run", "script", "call"]);
                let command = command.map(|command| texts(command).join("; "));
                let wanted = match id.as_ref().or(name.as_ref()) {
                    Some(name) => valid_name(name, "step"),
                    None => match &command {
                        Some(command) => name_of(command),
                        None => "step".to_string(),
                    },
                };
                let mut called = wanted.clone();
                let mut number = 2;
                while steps.iter().any(|step| step.name == called) {
                    called = format!("{wanted}-{number}");
                    number += 1;
                }
                let path = name
                    .as_ref()
                    .or(id.as_ref())
                    .map_or(path, |name| format!("steps.{name}"));
                for alias in [&name, &id].into_iter().flatten() {
                    names.entry(alias.clone()).or_insert(called.clone());
                }
                let defaults = around.defaults.as_ref();
                let goes_on = body
                    .get("continue_on")
                    .or_else(|| defaults.and_then(|defaults| defaults.get("continue_on")));
                let goes_on = goes_on.map(continue_of).unwrap_or_default();
                let output = match body.get("output") {
                    Some(Value::String(name)) => {
                        let name = name.trim().trim_start_matches('$').trim_matches(['{', '}']);
                        Some(variable_name(name))
                    }
                    _ => None,
                };
                let needs = body.get("depends").map(|depends| {
                    let needs = texts(depends).into_iter();
                    needs.filter(|need| !need.is_empty()).collect::<Vec<_>>()
                });
                written_needs.push(needs);
                group_of.push(group);
                steps.push(Step {
                    name: called,
                    path,
                    body,
                    needs: Vec::new(),
                    goes_on,
                    output,
                });
            }
        }
        self.order(dag, &mut steps, &names, &written_needs, &group_of);
        steps
    }

    /// What each step waits for: by `depends`, and by its place if the DAG is a chain.
    fn order(
        &mut self,
        dag: &Dag,
        steps: &mut [Step],
        names: &BTreeMap<String, String>,
        written_needs: &[Option<Vec<String>>],
        group_of: &[usize],
    ) {
        let has_needs = written_needs
            .iter()
            .flatten()
            .any(|needs| !needs.is_empty());
        let is_chain = match dag.body.text("type").as_deref() {
            Some("chain") => {
                self.row(
                    dag,
                    "type",
                    Converted,
                    "chain",
                    "each step waits for the one before it",
                );
                true
            }
            Some("graph") => {
                self.row(dag, "type", Converted, "graph", "depends_on");
                false
            }
            Some(other) => {
                let note = "only chain and graph are known; the steps are written as a chain";
                self.row(dag, "type", NotSupported, other, note);
                true
            }
            None if has_needs => false,
            None if steps.len() > 1 => {
                let note = "is not set: some versions of Dagu run these steps in order, others at once; written in order, remove depends_on to run them at once";
                self.row(dag, "type", Changed, "", note);
                true
            }
            None => false,
        };
        let all: Vec<String> = steps.iter().map(|step| step.name.clone()).collect();
        for index in 0..steps.len() {
            let mut needs: Vec<String> = Vec::new();
            for need in written_needs[index].iter().flatten() {
                match names.get(need) {
                    Some(name) => needs.push(name.clone()),
                    // The check of what is written says what is wrong with it.
                    None => needs.push(need.clone()),
                }
            }
            let is_free = written_needs[index].as_ref().is_some_and(Vec::is_empty);
            if is_chain && !is_free && group_of[index] > 0 {
                let before = (0..index).filter(|other| group_of[*other] < group_of[index]);
                let last = before.clone().map(|other| group_of[other]).max();
                needs.extend(
                    before
                        .filter(|other| Some(group_of[*other]) == last)
                        .map(|other| all[other].clone()),
                );
            }
            let mut seen = BTreeSet::new();
            needs.retain(|need| seen.insert(need.clone()));
            steps[index].needs = needs;
        }
    }

    /// The step, and in front of it the step that looks whether it has to run, if there is one.
    fn step(
        &mut self,
        around: &Around,
        step: &Step,
        all: &[Step],
        gate: Option<String>,
        gate_name: &mut dyn FnMut(&str) -> String,
    ) -> Vec<(String, Map)> {
        let dag = around.dag;
        let place = format!("{}: {}{}", dag.file, dag.prefix, step.path);
        let path = ["tasks", &dag.task, "flow", &step.name].map(str::to_string);
        self.places.insert(path.into(), place);
        let rows = self.report.rows.len();
        let mut written = match self.step_body(around, step, all) {
            Ok(written) => {
                let note = match step.path.ends_with(&format!(".{}", step.name)) {
                    true => String::new(),
                    false => format!("step {}", step.name),
                };
                // One row for the step: if one says already what is different, it stays.
                let place = format!("{}: {}{}", dag.file, dag.prefix, step.path);
                let mut own = self.report.rows[rows..].iter_mut();
                match own.find(|row| row.place == place && row.outcome == Changed) {
                    Some(_) if note.is_empty() => {}
                    Some(row) => row.note = format!("{note}: {}", row.note),
                    None => self.row(dag, &step.path, Converted, "", &note),
                }
                written
            }
            Err(Unsaid(why)) => {
                self.report.rows.truncate(rows);
                let note = format!("{why}; written as a step that fails and says so");
                self.row(dag, &step.path, NotSupported, "", &note);
                for entry in &step.body.entries {
                    entry.is_read.set(true);
                }
                failing_step(&why)
            }
        };
        let mut before = Vec::new();
        let mut edges = edges(step, all);
        let mut when: Vec<String> = gate.into_iter().collect();
        if let Some(conditions) = step.body.any(&["preconditions", "precondition"]) {
            let path = format!("{}.preconditions", step.path);
            match conditions_of(conditions) {
                Ok(conditions) => match direct_conditions(&conditions, &dag.params) {
                    Some(expressions) => {
                        when.extend(expressions);
                        self.row(dag, &path, Converted, "", "when");
                    }
                    None => {
                        let name = gate_name(&format!("check-{}", step.name));
                        let mut check = self.script_of_conditions(around, &conditions);
                        if !edges.is_empty() {
                            check.put("depends_on", edges.clone());
                        }
                        if !when.is_empty() {
                            check.put("when", when_all(&when));
                        }
                        if let Some(env) = outputs_before(step, all, &conditions_text(&conditions))
                        {
                            for (name, value) in env {
                                check.map_mut("env").put(&name, value);
                            }
                        }
                        let ok = format!("({} | string) == 'true'", step_output(&name, "ok"));
                        when.push(ok);
                        edges.push(Node::from(name.as_str()));
                        let note = format!(
                            "step {name} looks whether they hold; the step is skipped if not"
                        );
                        self.row(dag, &path, Changed, "", &note);
                        before.push((name, check));
                    }
                },
                Err(why) => {
                    let why = format!("preconditions: {why}");
                    let note = format!("{why}; written as a step that fails and says so");
                    self.row(dag, &path, NotSupported, "", &note);
                    written = failing_step(&why);
                }
            }
        }
        if !edges.is_empty() {
            written.put("depends_on", edges);
        }
        if !when.is_empty() {
            written.put("when", when_all(&when));
        }
        self.policies(around, step, &mut written);
        self.unread(dag, &format!("{}.", step.path), &step.body);
        before.push((step.name.clone(), written));
        before
    }

    fn policies(&mut self, around: &Around, step: &Step, written: &mut Map) {
        let dag = around.dag;
        let path = |key: &str| format!("{}.{key}", step.path);
        let defaults = around.defaults.as_ref();
        let value = |key: &str| {
            let own = step.body.get(key);
            own.or_else(|| defaults.and_then(|defaults| defaults.get(key)))
        };
        step.body.get("depends");
        if step.goes_on.failure {
            written.put("continue_on_failure", true);
            let note = "continue_on_failure, and steps behind it accept its failure; the job completes, Dagu calls it partially succeeded";
            self.row(dag, &path("continue_on"), Changed, "", note);
        } else if step.goes_on.skipped {
            let note = "steps behind it accept that it is skipped";
            self.row(dag, &path("continue_on"), Converted, "", note);
        }
        if let Some(Value::Mapping(rules)) = step.body.get("continue_on") {
            let rules = Body::new(rules);
            for key in ["failure", "failed", "skipped", "mark_success"] {
                rules.get(key);
            }
            for (key, _) in rules.unread() {
                let note = "is no reason to go on here; let the script end with 0 in that case";
                self.row(
                    dag,
                    &path(&format!("continue_on.{key}")),
                    NotSupported,
                    "",
                    note,
                );
            }
        }
        match value("timeout_sec").and_then(Value::as_i64) {
            Some(timeout) if timeout > 0 => {
                written.put("timeout", secs(timeout));
                self.row(dag, &path("timeout_sec"), Converted, "", "timeout");
            }
            Some(_) => self.row(
                dag,
                &path("timeout_sec"),
                Converted,
                "0",
                "the server's default holds",
            ),
            None => {}
        }
        if let Some(retry) = value("retry_policy") {
            self.retry(dag, &path("retry_policy"), retry, written);
        }
        if value("mail_on_error").and_then(Value::as_bool) == Some(true) {
            let target = self.mail_target(dag, "error_mail");
            let name = self.mail_targets[target].name();
            let note = format!(
                "a step tells nobody by itself; add on_error: [{{ notify: {name} }}] to the task, which tells of every failed job"
            );
            self.row(dag, &path("mail_on_error"), NotSupported, "", &note);
        }
        step.body.get("mail_on_error");
        let own = self.tags(dag, &format!("{}.", step.path), &step.body);
        let tags = if own.is_empty() {
            around.tags.clone()
        } else {
            own
        };
        if !tags.is_empty() && written.get("type") != Some(&Node::from("task")) {
            let tags = tags.into_iter().map(Node::from);
            written.put("tags", tags.collect::<Vec<Node>>());
        }
    }

    fn retry(&mut self, dag: &Dag, path: &str, retry: &Value, written: &mut Map) {
        let Some(retry) = retry.as_mapping().map(Body::new) else {
            self.row(dag, path, NotSupported, "", "is no mapping");
            return;
        };
        let Some(limit) = retry.number("limit") else {
            let note = "limit is no number; write retry: { max_attempts: N }, which counts the first try too";
            self.row(dag, path, NotSupported, "", note);
            return;
        };
        let attempts = limit
            .max(0)
            .saturating_add(1)
            .min(limits::ATTEMPTS_MAX.into());
        if attempts > 1 {
            let mut policy = Map::default();
            policy.put("max_attempts", Node::Plain(attempts.to_string()));
            if let Some(interval) = retry.number("interval_sec").filter(|secs| *secs > 0) {
                policy.put("delay", secs(interval));
            }
            match retry.get("backoff") {
                None | Some(Value::Bool(false)) => {}
                Some(backoff) => {
                    policy.put("backoff", "exponential");
                    if backoff.as_f64().is_some_and(|factor| factor != 2.0) {
                        let note = "each delay is twice the one before it here";
                        self.row(
                            dag,
                            &format!("{path}.backoff"),
                            Changed,
                            &plain_text(backoff),
                            note,
                        );
                    }
                }
            }
            if let Some(most) = retry.number("max_interval_sec").filter(|secs| *secs > 0) {
                policy.put("max_delay", secs(most));
            }
            written.put("retry", policy);
        }
        if retry.get("exit_code").is_some() {
            let note = "every exit code but 0 is a reason to try again; let the script end with 0 where it should not be";
            self.row(dag, &format!("{path}.exit_code"), NotSupported, "", note);
        }
        let note = format!("max_attempts: {attempts}, which counts the first try too");
        self.row(dag, path, Converted, &format!("limit {limit}"), &note);
        self.unread(dag, &format!("{path}."), &retry);
    }

    fn step_body(&mut self, around: &Around, step: &Step, all: &[Step]) -> Result<Map, Unsaid> {
        let body = &step.body;
        step.body.get("name");
        step.body.get("id");
        let description = body.text("description");
        let action = body.text("action");
        let with = body.any(&["with", "config"]).and_then(Value::as_mapping);
        let with = with.map(Body::new);
        let mut written = match action.as_deref() {
            Some("dag.run") => {
                let with = with.as_ref();
                let child = with.and_then(|with| with.text("dag")).unwrap_or_default();
                let params = with.and_then(|with| with.get("params")).cloned();
                self.call(around, step, all, &child, params.as_ref())?
            }
            Some("exec") => {
                let with = with.as_ref();
                let mut words = with
                    .and_then(|with| with.get("command"))
                    .map(texts)
                    .unwrap_or_default();
                words.extend(
                    with.and_then(|with| with.get("args"))
                        .map(texts)
                        .unwrap_or_default(),
                );
                let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
                self.script(around, step, all, words.join(" "), None)?
            }
            Some("log.write") => {
                let message = with.as_ref().and_then(|with| with.text("message"));
                let message = message.unwrap_or_default();
                let script = format!("printf '%s\\n' {}", shell_word(&message));
                self.script(around, step, all, script, None)?
            }
            Some("noop") => self.script(around, step, all, "true".to_string(), None)?,
            Some("docker.run" | "container.run") => {
                let with = with.as_ref();
                let command = with.and_then(|with| with.get("command")).map(command_of);
                let image = with.and_then(|with| with.text("image"));
                let Some(image) = image else {
                    return unsaid(format!("{} names no image", action.unwrap_or_default()));
                };
                let script = command.unwrap_or_else(|| "true".to_string());
                let mut written = self.script(around, step, all, script, Some(image))?;
                self.container_keys(
                    around.dag,
                    &format!("{}.with.", step.path),
                    with,
                    &mut written,
                );
                written
            }
            Some(other) => {
                return unsaid(format!(
                    "the action {other} is not known here, call the tool from a script"
                ));
            }
            None => self.executed(around, step, all, with.as_ref())?,
        };
        if let Some(description) = description {
            // Steps have no descriptions: the report keeps it, and it changes nothing.
            let note = "there is no place for it here; it changes nothing";
            self.row(
                around.dag,
                &format!("{}.description", step.path),
                LeftOut,
                &description,
                note,
            );
        }
        if body.get("output").is_some_and(|output| !output.is_string()) {
            let note = "is not kept; let the script write NAME=VALUE lines to \"$STEPWARD_OUTPUT\"";
            self.row(
                around.dag,
                &format!("{}.output", step.path),
                NotSupported,
                "",
                note,
            );
        }
        self.each(around, step, &mut written)?;
        Ok(written)
    }

    /// A step of the older form: `command`, `script`, `call`, with an executor or without.
    fn executed(
        &mut self,
        around: &Around,
        step: &Step,
        all: &[Step],
        with: Option<&Body>,
    ) -> Result<Map, Unsaid> {
        let body = &step.body;
        let dag = around.dag;
        let run = body.text("run");
        let call = body.text("call").or_else(|| {
            // `run` named a DAG before it named a command.
            run.clone()
                .filter(|name| self.find(name).is_some() || body.has("params"))
        });
        if let Some(child) = call {
            let params = body.get("params").cloned();
            return self.call(around, step, all, &child, params.as_ref());
        }
        let executor = body.get("executor");
        let (kind, config) = match executor {
            Some(Value::Mapping(executor)) => {
                let kind = text(executor, "type").unwrap_or_default().to_string();
                let config = get(executor, "config").and_then(Value::as_mapping);
                (kind, config.map(Body::new))
            }
            Some(executor) => (plain_text(executor), None),
            None => (body.text("type").unwrap_or_default(), None),
        };
        let config = config.as_ref().or(with);
        let container = match body.get("container") {
            Some(container) => Some(container),
            None => around.container,
        };
        let mut image = match container {
            Some(Value::Mapping(container)) => text(container, "image").map(str::to_string),
            Some(Value::String(_)) => {
                return unsaid("it runs in a container that is there already, name an image");
            }
            _ => None,
        };
        match kind.as_str() {
            "" | "shell" | "command" | "sh" | "bash" => {}
            "docker" | "container" => {
                let named = config.and_then(|config| config.text("image"));
                let Some(named) = named.or(image) else {
                    return unsaid("the executor docker names no image");
                };
                image = Some(named);
            }
            other => {
                return unsaid(format!(
                    "the executor {other} is not known here, call the tool from a script"
                ));
            }
        }
        let script = body.text("script");
        let command = body.get("command");
        let (source, reader) = match (script, command, run) {
            (Some(script), Some(command), _) => (script, Some(texts(command).join(" "))),
            (Some(script), None, _) => (script, None),
            (None, Some(command), _) => (command_of(command), None),
            (None, None, Some(named)) => {
                if !named.trim().contains(char::is_whitespace) {
                    let note = "is taken as a command; if it is the name of a DAG, import the file of that DAG too";
                    self.row(dag, &step.path, Changed, &format!("run: {named}"), note);
                }
                let run = body.get("run").map(commands_of).unwrap_or_default();
                (run, None)
            }
            (None, None, None) => match body.get("run") {
                Some(run) => (commands_of(run), None),
                None => return unsaid("it has no command and no script"),
            },
        };
        if let Some(args) = body.get("args") {
            return unsaid(format!(
                "args ({}) beside a command are not known here, write them into the command",
                texts(args).join(" ")
            ));
        }
        let mut written = self.script_read_by(around, step, all, source, image, reader)?;
        if ["docker", "container"].contains(&kind.as_str()) {
            let path = format!("{}.executor.config.", step.path);
            self.container_keys(dag, &path, config, &mut written);
        }
        if let Some(Value::Mapping(container)) = container {
            let path = match body.has("container") {
                true => format!("{}.container.", step.path),
                false => "container.".to_string(),
            };
            self.container_keys(dag, &path, Some(&Body::new(container)), &mut written);
        }
        Ok(written)
    }

    /// What a container is given besides its image.
    fn container_keys(&mut self, dag: &Dag, path: &str, config: Option<&Body>, written: &mut Map) {
        let Some(config) = config else {
            return;
        };
        config.get("image");
        config.get("command");
        let mut given = Map::default();
        let evaluated = self.environment(dag, &format!("{path}env"), config.get("env"), &mut given);
        for (name, _) in evaluated {
            let note = "is set outside of the container there; put it into env of the step";
            self.row(dag, &format!("{path}env.{name}"), NotSupported, "", note);
        }
        for name in given.keys().map(str::to_string).collect::<Vec<_>>() {
            if let Some(value) = given.get(&name) {
                written.map_mut("env").put(&name, value.clone());
            }
        }
        if let Some(folder) = config.any(&["working_dir", "workdir"]) {
            written.put("workdir", literal(&plain_text(folder)));
        }
        for (key, _) in config.unread() {
            let note =
                "is not said of a step here; name it in docker.args of the worker's settings";
            self.row(dag, &format!("{path}{key}"), NotSupported, "", note);
        }
    }

    fn find(&self, name: &str) -> Option<&Dag> {
        let name = name.trim();
        let bare = name
            .strip_suffix(".yaml")
            .or_else(|| name.strip_suffix(".yml"))
            .unwrap_or(name);
        let is_it = |dag: &&Dag| {
            dag.called
                .iter()
                .any(|called| called == name || called == bare || *called == *base_name(bare))
        };
        self.dags.iter().find(is_it)
    }

    /// A step that runs another DAG.
    fn call(
        &mut self,
        around: &Around,
        step: &Step,
        all: &[Step],
        child: &str,
        params: Option<&Value>,
    ) -> Result<Map, Unsaid> {
        let Some(called) = self.find(child) else {
            return unsaid(format!("the DAG {child} is not among the imported files"));
        };
        let known: Vec<String> = called
            .params
            .iter()
            .map(|param| param.name.clone())
            .collect();
        let mut written = Map::default();
        written.put("type", "task");
        written.put("task", called.task.as_str());
        let (given, faults) = self::params(params);
        if let Some((_, why)) = faults.first() {
            return unsaid(format!("params {why}"));
        }
        for param in given {
            if !known.contains(&param.name) {
                return unsaid(format!("the DAG {child} has no parameter {}", param.name));
            }
            let value = param.default.as_ref().map(plain_text).unwrap_or_default();
            let value = to_template(&value, around, step, all)
                .map_err(|why| Unsaid(format!("the parameter {} {why}", param.name)))?;
            written.map_mut("input").put(&param.name, value);
        }
        if params.is_none() && step.body.has("parallel") {
            // Dagu gives the item to the child as all of its parameters: a plain word is the first one.
            match known.first() {
                Some(first) => written.map_mut("input").put(first, "{{ each.item }}"),
                None => {
                    let note = format!(
                        "the item is not handed over, because the DAG {child} declares no parameter; declare one there, and give it the item by params"
                    );
                    self.row(around.dag, &step.path, Changed, "", &note);
                }
            }
        }
        if step.output.is_some() {
            let note = "the output of a task is that of its steps; take it from steps.NAME.output";
            let path = format!("{}.output", step.path);
            self.row(around.dag, &path, NotSupported, "", note);
        }
        Ok(written)
    }

    /// A step that is done once for each of some items.
    fn each(&mut self, around: &Around, step: &Step, written: &mut Map) -> Result<(), Unsaid> {
        let Some(parallel) = step.body.get("parallel") else {
            return Ok(());
        };
        let (items, most) = match parallel {
            Value::Mapping(parallel) => {
                let parallel = Body::new(parallel);
                let most = parallel.number("max_concurrent");
                (parallel.get("items").cloned(), most)
            }
            other => (Some(other.clone()), None),
        };
        let Some(Value::Sequence(items)) = items else {
            return unsaid(
                "the items of parallel are no list, write for_each with a list or a template",
            );
        };
        if items
            .iter()
            .any(|item| plain_text(item).is_empty() || is_evaluated(&plain_text(item)))
        {
            return unsaid(
                "the items of parallel are no plain values, write for_each with a list or a template",
            );
        }
        let has_params = step.body.has("params")
            || step
                .body
                .any(&["with", "config"])
                .and_then(Value::as_mapping)
                .is_some_and(|with| get(with, "params").is_some());
        let is_one_word = |item: &Value| {
            let words = split_words(&plain_text(item));
            matches!(&words[..], [word] if !word.contains('='))
        };
        if written.get("type") == Some(&Node::from("task"))
            && !has_params
            && !items.iter().all(is_one_word)
        {
            return unsaid(
                "the items of parallel are lists of parameters, write for_each with one value for each item and name it in input",
            );
        }
        let items = items.iter().map(|item| Node::from(plain_text(item)));
        written.put("for_each", items.collect::<Vec<Node>>());
        if let Some(most) = most.filter(|most| *most > 0) {
            written.put("max_parallel", Node::Plain(most.to_string()));
        }
        let note = "for_each";
        self.row(
            around.dag,
            &format!("{}.parallel", step.path),
            Converted,
            "",
            note,
        );
        Ok(())
    }

    fn script(
        &mut self,
        around: &Around,
        step: &Step,
        all: &[Step],
        source: String,
        image: Option<String>,
    ) -> Result<Map, Unsaid> {
        self.script_read_by(around, step, all, source, image, None)
    }

    /// A step that runs a script. `reader` is the command that Dagu gives the script to.
    fn script_read_by(
        &mut self,
        around: &Around,
        step: &Step,
        all: &[Step],
        source: String,
        image: Option<String>,
        reader: Option<String>,
    ) -> Result<Map, Unsaid> {
        let dag = around.dag;
        let body = &step.body;
        if let Some(reference) = field_reference(&source) {
            return unsaid(format!(
                "{reference} is read by Dagu and by no shell, take the value from the output of the step"
            ));
        }
        let own_shell = body.get("shell").map(|shell| texts(shell).join(" "));
        let reader = reader.or(own_shell).or_else(|| around.shell.clone());
        let has_mark = source.starts_with("#!");
        let program = reader
            .as_deref()
            .and_then(|reader| reader.split_whitespace().next());
        let program = program.map(|program| base_name(program).to_string());
        let shells = ["sh", "bash", "dash", "ash", "ksh", "zsh"];
        let is_shell = match (&program, has_mark) {
            (_, true) => {
                let first = source.lines().next().unwrap_or_default();
                shells.iter().any(|shell| first.ends_with(shell))
            }
            (Some(program), false) => shells.contains(&program.as_str()),
            (None, false) => true,
        };
        let mut written = Map::default();
        let mut head = String::new();
        let mut source = source;
        if has_mark {
            let (first, rest) = source.split_once('\n').unwrap_or((&source, ""));
            head = format!("{first}\n");
            source = rest.to_string();
        } else if let (Some(reader), Some(program)) = (&reader, &program) {
            match reader.trim() == program.as_str() {
                true if program == "sh" => {}
                true => written.put("language", program.as_str()),
                false => head = format!("#!/usr/bin/env -S {}\n", reader.trim()),
            }
        }
        if let Some(image) = image {
            written.put("runner", "docker");
            written.put("image", literal(&image));
        }
        // Variables.
        let mut given = around.given.clone();
        let own = self.environment(
            dag,
            &format!("{}.env", step.path),
            body.get("env"),
            &mut given,
        );
        let mut lines: Vec<String> = Vec::new();
        for (name, here) in DAGU_VARIABLES {
            if mentions(&source, name) {
                lines.push(format!("export {name}=\"${here}\""));
            }
        }
        for name in LOST_VARIABLES {
            if mentions(&source, name) {
                let note = format!("${name} is empty here; logs are read by stepward logs");
                self.row(dag, &step.path, Changed, "", &note);
            }
        }
        for (name, value) in around.evaluated.iter().chain(&own) {
            lines.push(format!("export {name}={}", in_quotes(value)));
        }
        let positions: Vec<&Param> = dag
            .params
            .iter()
            .filter(|param| param.variable.is_none())
            .collect();
        let uses_position =
            (1..=positions.len()).any(|position| mentions(&source, &position.to_string()));
        if uses_position {
            let words = positions
                .iter()
                .map(|param| format!("\"${{INPUT_{}-}}\"", param.name.to_ascii_uppercase()));
            lines.push(format!("set -- {}", words.collect::<Vec<_>>().join(" ")));
        }
        let folder = body.any(&["working_dir", "dir"]).map(plain_text);
        let folder = folder.or_else(|| around.folder.clone());
        match folder.filter(|folder| !folder.is_empty()) {
            Some(folder) if is_evaluated(&folder) || folder.starts_with('~') => {
                let quoted = match folder.strip_prefix('~') {
                    Some(rest) => format!(
                        "~{}",
                        if rest.is_empty() {
                            String::new()
                        } else {
                            in_quotes(rest)
                        }
                    ),
                    None => in_quotes(&folder),
                };
                lines.push(format!("cd {quoted} || exit 1"));
            }
            Some(folder) => written.put("workdir", literal(&folder)),
            None => {}
        }
        if !is_shell && (!lines.is_empty() || step.output.is_some()) {
            // A shell sets the variables and keeps the output, and gives the script to its reader.
            let reader = match has_mark {
                true => head.trim_start_matches("#!").trim().to_string(),
                false => reader.unwrap_or_default(),
            };
            source = given_to(&reader, &source);
            head.clear();
            written.remove_at(&["language".to_string()]);
        }
        let mut script = String::new();
        for line in &lines {
            script.push_str(line);
            script.push('\n');
        }
        match &step.output {
            Some(output) => {
                script.push_str(&captured(&source, output));
                let mut note = format!(
                    "what it prints is its output {output}, which the steps behind it have in ${output}"
                );
                let mut outcome = Converted;
                if step.goes_on.failure {
                    outcome = Changed;
                    note.push_str("; if it fails, they have an empty text there: the output of a failed step is not passed on");
                }
                self.row(
                    dag,
                    &format!("{}.output", step.path),
                    outcome,
                    output,
                    &note,
                );
            }
            None => {
                script.push_str(source.trim_end());
                script.push('\n');
            }
        }
        for (name, value) in outputs_before(step, all, &script).unwrap_or_default() {
            given.put(&name, value);
        }
        if script.trim().is_empty() {
            return unsaid("its script is empty");
        }
        written.put("script", literal(&format!("{head}{script}")));
        if !given.is_empty() {
            written.put("env", given);
        }
        Ok(written)
    }

    /// A step that writes whether all conditions hold to its output `ok`.
    fn script_of_conditions(&mut self, around: &Around, conditions: &[Condition]) -> Map {
        let mut script = String::new();
        for (name, value) in &around.evaluated {
            script.push_str(&format!("export {name}={}\n", in_quotes(value)));
        }
        let tests: Vec<String> = conditions.iter().map(Condition::test).collect();
        script.push_str(&format!(
            "if {}\nthen echo ok=true\nelse echo ok=false\nfi >> \"$STEPWARD_OUTPUT\"\n",
            tests.join(" &&\n   ")
        ));
        let mut step = Map::default();
        step.put("script", literal(&script));
        if !around.given.is_empty() {
            step.put("env", around.given.clone());
        }
        step
    }

    // What belongs to the whole DAG

    fn handlers(&mut self, dag: &Dag, around: &Around, task: &mut Map) {
        let Some(Value::Mapping(handlers)) = dag.body.get("handler_on") else {
            return;
        };
        let handlers = Body::new(handlers);
        handlers.get("init");
        let mut hooks: BTreeMap<&str, Vec<Node>> = BTreeMap::new();
        let all_events = ["on_success", "on_error", "on_cancel"];
        for (key, events) in [
            ("success", &all_events[..1]),
            ("failure", &all_events[1..2]),
            ("cancel", &all_events[2..]),
            ("abort", &all_events[2..]),
            ("exit", &all_events[..]),
        ] {
            let Some(handler) = handlers.get(key) else {
                continue;
            };
            let path = format!("handler_on.{key}");
            let body = match handler {
                Value::Mapping(handler) => Body::new(handler),
                command => {
                    let mut step = Mapping::new();
                    step.insert("command".into(), plain_text(command).into());
                    Body::new(&step)
                }
            };
            let step = Step {
                name: format!("{}-on-{key}", dag.task),
                path: path.clone(),
                body,
                needs: Vec::new(),
                goes_on: Continue::default(),
                output: None,
            };
            let rows = self.report.rows.len();
            match self.step_body(around, &step, &[]) {
                Ok(mut action) => {
                    if action.get("type") == Some(&Node::from("task")) {
                        let mut hook = Map::default();
                        for key in ["task", "input"] {
                            if let Some(value) = action.get(key) {
                                hook.put(key, value.clone());
                            }
                        }
                        for event in events {
                            hooks.entry(event).or_default().push(hook.clone().into());
                        }
                    } else {
                        let params = dag.params.iter().filter_map(|param| {
                            let default =
                                param.default.as_ref().map(plain_text).unwrap_or_default();
                            Some((param.variable.clone()?, default))
                        });
                        let params: Vec<(String, String)> = params.collect();
                        for (variable, default) in &params {
                            let default = if is_evaluated(default) { "" } else { default };
                            action.map_mut("env").put(variable, literal(default));
                        }
                        self.document.map_mut("actions").put(&step.name, action);
                        let mut hook = Map::default();
                        hook.put("action", step.name.as_str());
                        for event in events {
                            hooks.entry(event).or_default().push(hook.clone().into());
                        }
                        if !params.is_empty() {
                            let note = "sees the defaults of the parameters, not what the job was given: a hook is a job of its own";
                            self.row(dag, &path, Changed, "", note);
                        }
                    }
                    let note = format!("{}: a job of its own", events.join(", "));
                    self.row(dag, &path, Changed, "", &note);
                    step.body.get("continue_on");
                    self.unread(dag, &format!("{path}."), &step.body);
                }
                Err(Unsaid(why)) => {
                    self.report.rows.truncate(rows);
                    let note = format!("{why}; the hook is not written");
                    self.row(dag, &path, NotSupported, "", &note);
                }
            }
        }
        for (event, list) in hooks {
            task.put(event, list);
        }
        self.unread(dag, "handler_on.", &handlers);
    }

    /// The target that stands for the addresses under this key: its index among all targets.
    fn mail_target(&mut self, dag: &Dag, key: &str) -> usize {
        let config = dag.body.get(key).and_then(Value::as_mapping);
        let config = config.map(Body::new);
        let config = config.as_ref();
        let to = config.and_then(|config| config.get("to")).map(texts);
        let from = config.and_then(|config| config.text("from"));
        let known = self.mail_targets.iter();
        let mut known = known.map(|target| (&target.to, &target.from));
        if let Some(index) = known.position(|known| known == (&to, &from)) {
            return index;
        }
        self.mail_targets.push(MailTarget {
            number: self.mail_targets.len() + 1,
            to,
            from,
            is_told: false,
        });
        self.mail_targets.len() - 1
    }

    fn mail(&mut self, dag: &Dag, task: &mut Map) {
        let body = &dag.body;
        let mail_on = body
            .get("mail_on")
            .and_then(Value::as_mapping)
            .map(Body::new);
        let is_on = |key: &str| {
            let on = mail_on.as_ref().and_then(|mail_on| mail_on.get(key));
            on.and_then(Value::as_bool) == Some(true)
        };
        for (key, event, mail) in [
            ("failure", "on_error", "error_mail"),
            ("success", "on_success", "info_mail"),
        ] {
            let config = body.get(mail).and_then(Value::as_mapping).map(Body::new);
            if config.is_none() && !is_on(key) {
                continue;
            }
            let target = self.mail_target(dag, mail);
            let name = self.mail_targets[target].name();
            if let Some(config) = &config {
                let note = match self.mail_targets[target].definition() {
                    Some(definition) => {
                        format!("belongs into the server's settings: {definition}")
                    }
                    None => {
                        format!("is the target {name}, whose definition is in an earlier row")
                    }
                };
                self.row(dag, mail, Changed, "", &note);
                for key in ["to", "from"] {
                    config.get(key);
                }
                self.unread(dag, &format!("{mail}."), config);
            }
            if is_on(key) {
                let mut hooks = match task.get(event) {
                    Some(Node::List(hooks)) => hooks.clone(),
                    _ => Vec::new(),
                };
                let mut hook = Map::default();
                hook.put("notify", name.as_str());
                hooks.push(hook.into());
                task.put(event, hooks);
                let mut note = format!("{event}: [{{ notify: {name} }}]");
                if let Some(definition) = self.mail_targets[target].definition() {
                    note = format!("{note}; the server's settings need {definition}");
                }
                self.row(dag, &format!("mail_on.{key}"), Changed, "", &note);
            }
        }
        if let Some(mail_on) = &mail_on {
            for key in ["failure", "success"] {
                mail_on.get(key);
            }
            self.unread(dag, "mail_on.", mail_on);
        }
    }

    fn schedules(&mut self, dag: &Dag, task: &mut Map) {
        let catch_up = dag.body.text("catchup_window");
        let policy = dag.body.text("overlap_policy");
        let Some(written) = dag.body.get("schedule") else {
            if catch_up.is_some() || policy.is_some() {
                let note = "there is no schedule that it could be about";
                self.row(dag, "catchup_window", LeftOut, "", note);
            }
            return;
        };
        let mut starts: Vec<(String, Value)> = Vec::new();
        let list = |path: &str, value: &Value| -> Vec<(String, Value)> {
            match value {
                Value::Sequence(list) => {
                    let each = list.iter().enumerate();
                    each.map(|(index, item)| (format!("{path}[{index}]"), item.clone()))
                        .collect()
                }
                other => vec![(path.to_string(), other.clone())],
            }
        };
        match written {
            Value::Mapping(kinds)
                if get(kinds, "expression").is_none() && get(kinds, "at").is_none() =>
            {
                let kinds = Body::new(kinds);
                if let Some(start) = kinds.get("start") {
                    starts.extend(list("schedule.start", start));
                }
                for (key, hint) in [
                    (
                        "stop",
                        "nothing is stopped by the clock; give the task a timeout",
                    ),
                    (
                        "restart",
                        "nothing is restarted by the clock; add a schedule with overlap: cancel_previous",
                    ),
                ] {
                    if kinds.get(key).is_some() {
                        self.row(dag, &format!("schedule.{key}"), NotSupported, "", hint);
                    }
                }
                self.unread(dag, "schedule.", &kinds);
            }
            other => starts.extend(list("schedule", other)),
        }
        let is_limited = dag
            .body
            .number("max_active_runs")
            .is_none_or(|limit| limit == 1);
        let mut number = 0;
        for (path, item) in starts {
            let expression = match &item {
                Value::Mapping(item) => text(item, "expression").unwrap_or_default().to_string(),
                item => plain_text(item),
            };
            if expression.is_empty() {
                let note = "a single time is no schedule here; submit the task then";
                self.row(dag, &path, NotSupported, "", note);
                continue;
            }
            let (zone, cron) = match expression.trim().split_once(char::is_whitespace) {
                Some((first, rest))
                    if first.starts_with("CRON_TZ=") || first.starts_with("TZ=") =>
                {
                    let zone = first.split_once('=').map(|(_, zone)| zone.to_string());
                    (zone, rest.trim().to_string())
                }
                _ => (None, expression.trim().to_string()),
            };
            self.uses_own_zone |= zone.is_none();
            let zone = zone.unwrap_or_else(|| self.timezone.to_string());
            if let Err(fault) = Cron::parse(&cron, &zone) {
                let note = format!("the time cannot be read: {fault}; write it in another way");
                self.row(dag, &path, NotSupported, &expression, &note);
                continue;
            }
            number += 1;
            let name = match number {
                1 => "schedule".to_string(),
                number => format!("schedule-{number}"),
            };
            let mut schedule = Map::default();
            schedule.put("cron", Node::Plain(quoted(&cron)));
            schedule.put("timezone", zone);
            schedule.put("overlap", if is_limited { "skip" } else { "allow" });
            match &catch_up {
                Some(window) => {
                    let mut latest = Map::default();
                    latest.put("latest", window.as_str());
                    schedule.put("catch_up", latest);
                }
                None => schedule.put("catch_up", "none"),
            }
            task.map_mut("schedules").put(&name, schedule);
            self.row(
                dag,
                &path,
                Converted,
                &expression,
                &format!("schedule {name}"),
            );
        }
        if catch_up.is_some() {
            let note =
                "catch_up: only the latest missed run is made up for; write { all: N } for more";
            self.row(dag, "catchup_window", Changed, "", note);
        }
        if let Some(policy) = policy {
            let note = "a run that is due while another one runs follows overlap of the schedule";
            self.row(dag, "overlap_policy", Changed, &policy, note);
        }
    }
}

/// Variables of Dagu that have the same meaning as one of ours.
const DAGU_VARIABLES: [(&str, &str); 6] = [
    ("DAG_NAME", "STEPWARD_TASK"),
    ("DAG_RUN_ID", "STEPWARD_JOB_ID"),
    ("DAG_RUN_STEP_NAME", "STEPWARD_STEP"),
    ("DAG_REQUEST_ID", "STEPWARD_JOB_ID"),
    ("DAG_STEP_NAME", "STEPWARD_STEP"),
    ("ITEM", "EACH_ITEM"),
];

/// Variables of Dagu that nothing here corresponds to.
const LOST_VARIABLES: [&str; 4] = [
    "DAG_RUN_LOG_FILE",
    "DAG_RUN_STEP_STDOUT_FILE",
    "DAG_RUN_STEP_STDERR_FILE",
    "DAG_EXECUTION_LOG_PATH",
];

/// One text is a command. A list is a program and its arguments, or commands if its first entry is more than one word.
fn command_of(command: &Value) -> String {
    match command {
        Value::Sequence(list) => {
            let words: Vec<String> = list.iter().map(plain_text).collect();
            match words.first() {
                Some(first) if !first.trim().contains(char::is_whitespace) => {
                    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
                    words.join(" ")
                }
                _ => commands_of(command),
            }
        }
        other => plain_text(other),
    }
}

/// A list of commands: each runs if the one before it did not fail.
fn commands_of(commands: &Value) -> String {
    match commands {
        Value::Sequence(list) => {
            let commands: Vec<String> = list.iter().map(plain_text).collect();
            format!("set -e\n{}", commands.join("\n"))
        }
        other => plain_text(other),
    }
}

/// A shell script that gives this script to its reader.
fn given_to(reader: &str, source: &str) -> String {
    let mut end = "END_OF_SCRIPT".to_string();
    while source.lines().any(|line| line == end) {
        end.push('_');
    }
    let source = source.trim_end();
    format!(
        "cat > \"$STEPWARD_TMP/script\" <<'{end}'\n{source}\n{end}\n{reader} \"$STEPWARD_TMP/script\"\n"
    )
}

/// A script whose output becomes the output `name` of its step as well as its log.
fn captured(source: &str, name: &str) -> String {
    let source = source.trim_end();
    format!(
        "(\n{source}\n) > \"$STEPWARD_TMP/stdout\"\nstatus=$?\ncat \"$STEPWARD_TMP/stdout\"\n\
         {{ echo '{name}<<END_OF_{name}'; cat \"$STEPWARD_TMP/stdout\"; echo; echo 'END_OF_{name}'; }} >> \"$STEPWARD_OUTPUT\"\n\
         exit \"$status\"\n"
    )
}

fn continue_of(written: &Value) -> Continue {
    match written {
        Value::Mapping(rules) => {
            let rules = Body::new(rules);
            let is_on = |key: &str| rules.get(key).and_then(Value::as_bool) == Some(true);
            Continue {
                failure: is_on("failure") || is_on("failed"),
                skipped: is_on("skipped"),
            }
        }
        other => {
            let words = texts(other);
            Continue {
                failure: words
                    .iter()
                    .any(|word| word == "failed" || word == "failure"),
                skipped: words.iter().any(|word| word == "skipped"),
            }
        }
    }
}

/// What a step waits for, and which outcomes of it let the step run.
fn edges(step: &Step, all: &[Step]) -> Vec<Node> {
    let edge = |need: &String| {
        let goes_on = all.iter().find(|other| other.name == *need);
        let goes_on = goes_on.map(|other| other.goes_on).unwrap_or_default();
        if goes_on == Continue::default() {
            return Node::from(need.as_str());
        }
        let mut accept = vec![Node::from("completed")];
        if goes_on.failure {
            accept.push(Node::from("failed"));
        }
        if goes_on.skipped {
            accept.push(Node::from("skipped"));
        }
        let mut edge = Map::default();
        edge.put("step", need.as_str());
        edge.put("accept", accept);
        Node::from(edge)
    };
    step.needs.iter().map(edge).collect()
}

/// The steps that a step waits for, directly or not.
fn steps_before<'s>(step: &Step, all: &'s [Step]) -> Vec<&'s Step> {
    let mut found: Vec<&Step> = Vec::new();
    let mut open: Vec<&String> = step.needs.iter().collect();
    while let Some(name) = open.pop() {
        let Some(before) = all.iter().find(|other| other.name == *name) else {
            continue;
        };
        if found.iter().all(|known| known.name != before.name) {
            found.push(before);
            open.extend(&before.needs);
        }
    }
    found
}

/// The outputs of steps before this one that its script mentions, as variables. `None`: there are none.
fn outputs_before(step: &Step, all: &[Step], script: &str) -> Option<Vec<(String, String)>> {
    let before = steps_before(step, all).into_iter();
    let outputs = before.filter_map(|before| {
        let name = before.output.as_ref()?;
        let value = format!(
            "{{{{ {} | default('') | trim }}}}",
            step_output(&before.name, name)
        );
        mentions(script, name).then(|| (name.clone(), value))
    });
    let outputs: Vec<(String, String)> = outputs.collect();
    (!outputs.is_empty()).then_some(outputs)
}

/// A text of Dagu as a template: `${NAME}` of parameters, of outputs of steps before it, and of items.
fn to_template(text: &str, around: &Around, step: &Step, all: &[Step]) -> Result<String, String> {
    if text.contains('`') || text.contains("$(") {
        return Err("is the output of a command, which is not run here; let a step before it print the value".to_string());
    }
    if text.contains("{{") || text.contains("{%") {
        return Err("looks like a template of ours; write the value in another way".to_string());
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (name, more) = match after.strip_prefix('{') {
            Some(inner) => inner.split_once('}').unwrap_or((inner, "")),
            None => {
                let end = after
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(after.len());
                after.split_at(end)
            }
        };
        rest = more;
        let param = around.dag.params.iter().find(|param| {
            let position = around
                .dag
                .params
                .iter()
                .filter(|param| param.variable.is_none());
            let at = position.clone().position(|other| other == *param);
            param.variable.as_deref() == Some(name)
                || at.is_some_and(|at| (at + 1).to_string() == name)
        });
        let of_step = steps_before(step, all)
            .into_iter()
            .find(|before| before.output.as_deref() == Some(name));
        match (name, param, of_step, around.given.get(name)) {
            ("ITEM", ..) => out.push_str("{{ each.item }}"),
            (_, Some(param), ..) => {
                let name = &param.name;
                let value = param.default.as_ref().map(plain_text);
                out.push_str(&match value.is_some_and(|value| !is_evaluated(&value)) {
                    true => format!("{{{{ input.{name} }}}}"),
                    false => format!("{{{{ input.{name} | default('') }}}}"),
                });
            }
            (name, None, Some(of), _) => {
                let output = step_output(&of.name, name);
                out.push_str(&match of.goes_on == Continue::default() {
                    true => format!("{{{{ {output} | trim }}}}"),
                    false => format!("{{{{ {output} | default('') | trim }}}}"),
                });
            }
            (_, None, None, Some(Node::Text(value))) => out.push_str(value),
            (name, ..) => {
                return Err(format!(
                    "uses ${name}, which is known to no template; name it as an input"
                ));
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// One condition: a command that has to succeed, or a value that has to be as expected.
struct Condition {
    condition: String,
    expected: Option<String>,
    is_negated: bool,
}

impl Condition {
    /// The condition as a test of the shell.
    fn test(&self) -> String {
        let test = match &self.expected {
            None => {
                let command = self.condition.trim();
                let inner = command
                    .strip_prefix('`')
                    .and_then(|rest| rest.strip_suffix('`'));
                format!("( {} ) > /dev/null", inner.unwrap_or(command))
            }
            Some(expected) => match expected.strip_prefix("re:") {
                Some(pattern) => {
                    let pattern = pattern.replace('\'', "'\\''");
                    let value = in_quotes(&self.condition);
                    format!("printf '%s\\n' {value} | grep -Eq -- '{pattern}'")
                }
                None => {
                    format!(
                        "[ {} = {} ]",
                        in_quotes(&self.condition),
                        in_quotes(expected)
                    )
                }
            },
        };
        match self.is_negated {
            true => format!("! {{ {test}; }}"),
            false => test,
        }
    }
}

fn conditions_text(conditions: &[Condition]) -> String {
    conditions
        .iter()
        .map(|condition| condition.test() + "\n")
        .collect()
}

fn conditions_of(written: &Value) -> Result<Vec<Condition>, String> {
    let items = match written {
        Value::Sequence(list) => list.clone(),
        other => vec![other.clone()],
    };
    let mut conditions = Vec::new();
    for item in items {
        let condition = match &item {
            Value::Mapping(item) => {
                let item = Body::new(item);
                Condition {
                    condition: item
                        .any(&["condition", "command"])
                        .map(plain_text)
                        .unwrap_or_default(),
                    expected: item.text("expected"),
                    is_negated: item.get("negate").and_then(Value::as_bool) == Some(true),
                }
            }
            item => Condition {
                condition: plain_text(item),
                expected: None,
                is_negated: false,
            },
        };
        if condition.condition.trim().is_empty() {
            return Err("a condition is empty".to_string());
        }
        if let Some(reference) = field_reference(&condition.condition) {
            return Err(format!("{reference} is read by Dagu and by no shell"));
        }
        conditions.push(condition);
    }
    match conditions.is_empty() {
        true => Err("there is no condition".to_string()),
        false => Ok(conditions),
    }
}

/// The conditions as expressions, if all of them compare a parameter with a plain text.
fn direct_conditions(conditions: &[Condition], params: &[Param]) -> Option<Vec<String>> {
    let direct = |condition: &Condition| {
        let name = condition.condition.trim().strip_prefix('$')?;
        let name = name
            .strip_prefix('{')
            .and_then(|inner| inner.strip_suffix('}'))
            .unwrap_or(name);
        let param = params
            .iter()
            .find(|param| param.variable.as_deref() == Some(name))?;
        let expected = condition.expected.as_ref()?;
        let is_plain = |c: char| c.is_alphanumeric() || "_-. /".contains(c);
        if expected.starts_with("re:") || !expected.chars().all(is_plain) {
            return None;
        }
        let operator = if condition.is_negated { "!=" } else { "==" };
        Some(format!(
            "(input.{} | default('') | string) {operator} '{expected}'",
            param.name
        ))
    };
    conditions.iter().map(direct).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_in_both_spellings() {
        for (written, key) in [
            ("retryPolicy", "retry_policy"),
            ("retry_policy", "retry_policy"),
            ("maxActiveRuns", "max_active_runs"),
            ("timeoutSec", "timeout_sec"),
            ("name", "name"),
        ] {
            assert_eq!(snake_case(written), key);
        }
    }

    #[test]
    fn words_are_split_as_a_shell_would() {
        assert_eq!(split_words("a  b=c"), ["a", "b=c"]);
        assert_eq!(
            split_words("A=\"x y\" B='' C=`date +%d`"),
            ["A=x y", "B=", "C=`date +%d`"]
        );
        assert_eq!(split_words(" "), Vec::<String>::new());
    }

    #[test]
    fn a_value_in_quotes_means_the_same_to_a_shell() {
        for (text, quoted) in [
            ("plain", "\"plain\""),
            ("${HOME}/x", "\"${HOME}/x\""),
            ("say \"hi\"", "\"say \\\"hi\\\"\""),
            ("`date +\"%F\"`", "\"$(date +\"%F\")\""),
            ("$(echo \"a\") \"b\"", "\"$(echo \"a\") \\\"b\\\"\""),
        ] {
            assert_eq!(in_quotes(text), quoted);
        }
    }

    #[test]
    fn variables_are_found_by_their_whole_name() {
        assert!(mentions("echo ${DATE}", "DATE"));
        assert!(mentions("echo $DATE/x", "DATE"));
        assert!(!mentions("echo $DATES", "DATE"));
        assert!(mentions("run $1", "1"));
        assert_eq!(
            field_reference("a ${CONFIG.port} b"),
            Some("${CONFIG.port}")
        );
        assert_eq!(field_reference("a ${X:-1.5} b"), None);
    }
}
