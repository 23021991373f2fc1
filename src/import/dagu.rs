//! Turns Dagu DAGs into tasks: one task for each DAG, one workflow file for each file.
//!
//! Dagu has written its keys in two ways, `retryPolicy` and later `retry_policy`: both are read. A step that cannot be written
//! becomes one that fails and says so. Every key that nothing here reads is reported.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_yaml::{Mapping, Value};

use super::Imported;
use super::body::{Body, shown};
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

struct Dag {
    file: String,
    /// The name of the file without its folder and its ending.
    file_stem: String,
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
    /// The name in the DAG.
    written: String,
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
            let document = Value::deserialize(document).and_then(|mut document| {
                document.apply_merge()?;
                Ok(document)
            });
            match document {
                Ok(Value::Mapping(mapping)) => documents.push(Body::new(&mapping)),
                Ok(Value::Null) => {}
                Ok(_) => report.add(
                    &file.name,
                    NotSupported,
                    "",
                    "expected a mapping; no workflow file is written for it",
                ),
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
                file_stem: file_stem(&file.name).to_string(),
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

/// `etl` of `dags/etl.yaml`.
fn file_stem(path: &str) -> &str {
    let base = base_name(path);
    let stem = base.strip_suffix(".yaml");
    stem.or_else(|| base.strip_suffix(".yml")).unwrap_or(base)
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

/// Parameters in the order of their positions, and what of them cannot be imported: (path, why).
fn params(written: Option<&Value>) -> (Vec<Param>, Vec<(String, String)>) {
    let mut all: Vec<Param> = Vec::new();
    let mut faults = Vec::new();
    match written {
        None => {}
        Some(Value::Sequence(list)) => {
            for item in list {
                match item {
                    Value::Mapping(entry) if text(entry, "name").is_some() && entry.len() > 1 => {
                        let body = Body::new(entry);
                        let param = rich_param(&body);
                        faults.extend(body.leftovers().iter().map(|left| {
                            let path = format!("params.{}.{}", param.written, left.path);
                            (path, left.note())
                        }));
                        all.push(param);
                    }
                    Value::Mapping(_) => {
                        let pairs = mapping(item).into_iter();
                        all.extend(pairs.map(|(key, value)| named_param(&key, value)));
                    }
                    Value::Sequence(_) => {
                        let why = "expected a text or a mapping, found a list; not imported";
                        faults.push(("params".to_string(), why.to_string()));
                    }
                    item => add_words(&plain_text(item), &mut all),
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
            let pairs = keys.into_iter();
            all.extend(pairs.map(|(key, value)| named_param(&key, value)));
        }
        Some(words) => add_words(&plain_text(words), &mut all),
    }
    let mut params: Vec<Param> = Vec::new();
    for param in all {
        match params.iter().any(|known| known.name == param.name) {
            true => faults.push((
                format!("params.{}", param.written),
                format!(
                    "the input {} is there twice; the first one is kept",
                    param.name
                ),
            )),
            false => params.push(param),
        }
    }
    (params, faults)
}

fn named_param(written: &str, default: Value) -> Param {
    Param {
        name: variable_name(written),
        written: written.to_string(),
        variable: Some(variable_name(written)),
        // Dagu passes every parameter as text.
        kind: "string",
        default: Some(default).filter(|default| !default.is_null()),
        required: false,
        description: None,
        options: None,
    }
}

/// Parameters in one line: `NAME=value`, or a bare value that only has a position. Positions count all parameters.
fn add_words(line: &str, params: &mut Vec<Param>) {
    for word in split_words(line) {
        params.push(match word.split_once('=') {
            Some((key, value)) if !key.is_empty() && !key.contains(['$', '`', '"']) => {
                named_param(key, Value::from(value))
            }
            _ => Param {
                variable: None,
                ..named_param(&format!("arg{}", params.len() + 1), Value::from(word))
            },
        });
    }
}

fn rich_param(body: &Body) -> Param {
    let name = body.text("name").unwrap_or_default();
    let kind = match body.text("type").as_deref() {
        Some("integer") => "integer",
        Some("number") => "number",
        Some("boolean") => "boolean",
        None | Some("string") => "string",
        Some(_) => {
            body.expect("type", "string, integer, number or boolean");
            "string"
        }
    };
    Param {
        kind,
        required: body.flag("required") == Some(true),
        description: body.text("description"),
        options: body.get("enum").cloned(),
        ..named_param(&name, body.get("default").cloned().unwrap_or_default())
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

/// Whether a script holds a name as a whole word, in whatever way its language reads variables.
fn has_word(script: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    script.match_indices(name).any(|(at, _)| {
        !script[..at].ends_with(is_part) && !script[at + name.len()..].starts_with(is_part)
    })
}

/// `${name.field}`, which a shell cannot read.
fn field_reference(script: &str) -> Option<&str> {
    script.match_indices("${").find_map(|(at, _)| {
        let end = script[at..].find('}')? + at + 1;
        let inner = &script[at + 2..end - 1];
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_-.[]".contains(c);
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

/// The names of variables whose value is no text.
fn odd_variables(written: Option<&Value>) -> Vec<(String, Value)> {
    let maps: Vec<&Value> = match written {
        Some(Value::Sequence(list)) => list.iter().collect(),
        other => other.into_iter().collect(),
    };
    let mut all: Vec<(String, Value)> = maps.into_iter().flat_map(mapping).collect();
    all.retain(|(_, value)| value.is_sequence() || value.is_mapping());
    all
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
    /// Set for a handler, which becomes a hook: a job of its own, which is given all values as inputs.
    handler: Option<Handler>,
}

impl Step {
    fn new(name: String, path: String, body: Body) -> Step {
        Step {
            name,
            path,
            body,
            needs: Vec::new(),
            goes_on: Continue::default(),
            output: None,
            handler: None,
        }
    }

    /// The step that tests the preconditions of this one: everything around its script is the same.
    fn check(&self) -> Step {
        Step {
            needs: self.needs.clone(),
            ..Step::new(self.name.clone(), self.path.clone(), self.body.clone())
        }
    }
}

/// The form in which the preconditions of a step are written.
enum Gate {
    /// The preconditions become `when` of the step.
    Expressions(Vec<String>),
    /// A check step in front of the step tests the preconditions.
    Step(Map),
}

struct Handler {
    /// Lines of the shell that end the script early if the handler must not run.
    guard: Option<String>,
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
    tags: Vec<String>,
    defaults: Option<&'a Body>,
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

    /// Removes the rows about this path that were added since there were `from` rows. Rows about other parts of the DAG stay: what
    /// several steps share is reported only once.
    fn take_back_rows(&mut self, from: usize, dag: &Dag, path: &str) {
        let place = format!("{}: {}{path}", dag.file, dag.prefix);
        let mut index = 0;
        self.report.rows.retain(|row| {
            index += 1;
            index <= from || !row.place.starts_with(&place)
        });
    }

    /// Remembers that a part of the written task comes from this path of the DAG.
    fn place(&mut self, dag: &Dag, part: &[&str], path: &str) {
        let part = [&["tasks", dag.task.as_str()], part].concat();
        let part = part.into_iter().map(str::to_string).collect();
        let place = format!("{}: {}{path}", dag.file, dag.prefix);
        self.places.insert(part, place);
    }

    fn dag(&mut self, dag: &Dag) {
        let body = &dag.body;
        let mut task = Map::default();
        let rows = self.report.rows.len();
        let steps = self.read_steps(dag);
        if steps.is_empty() {
            self.report.rows.truncate(rows);
            let note = "the DAG has no steps; nothing of it is imported";
            self.row(dag, "steps", NotSupported, "", note);
            return;
        }
        let place = match dag.prefix.strip_suffix('.') {
            Some(prefix) => format!("{}: {prefix}", dag.file),
            None => dag.file.clone(),
        };
        let path = ["tasks", &dag.task].map(str::to_string);
        self.places.insert(path.into(), place);
        if let Some(description) = body.text("description") {
            task.put("description", description);
            self.row(dag, "description", Converted, "", "");
        }
        let name = body.text("name");
        let is_renamed = name.as_deref().unwrap_or(&dag.file_stem) != dag.task;
        let name = name.unwrap_or_default();
        if is_renamed {
            let note = format!("the task is called {} here", dag.task);
            self.row(dag, "name", Changed, &name, &note);
        } else if !name.is_empty() {
            self.row(dag, "name", Converted, &name, "");
        }
        self.params(dag, &mut task);
        self.limits(dag, &mut task);
        let around = self.around(dag);
        let (steps, gate) = self.steps(dag, &around, steps, &mut task);
        self.handlers(dag, &around, &steps, gate.as_deref(), &mut task);
        self.mail(dag, &mut task);
        self.schedules(dag, &mut task);
        self.unread(dag, "", body);
        self.document.map_mut("tasks").put(&dag.task, task);
    }

    /// Reports every key that nothing read, and every value that is not what its reader expected.
    fn unread(&mut self, dag: &Dag, path: &str, body: &Body) {
        for left in body.leftovers() {
            let known = match (left.parent.as_str(), left.key.as_str()) {
                _ if left.expected.is_some() => None,
                ("continue_on", "mark_success") => Some((
                    NotSupported,
                    "a failed step is shown as failed; let the script end with 0 instead",
                )),
                ("continue_on", _) => Some((
                    NotSupported,
                    "is no reason to go on here; let the script end with 0 in that case",
                )),
                ("", key) => explained(key),
                _ => None,
            };
            let path = format!("{path}{}", left.path);
            match known {
                Some((outcome, note)) => self.row(dag, &path, outcome, "", note),
                None => self.row(dag, &path, NotSupported, "", &left.note()),
            }
        }
    }

    fn params(&mut self, dag: &Dag, task: &mut Map) {
        for (path, why) in &dag.param_faults {
            self.row(dag, path, NotSupported, "", why);
        }
        for param in &dag.params {
            let path = format!("params.{}", param.written);
            self.place(dag, &["input", &param.name], &path);
            let mut spec = Map::default();
            spec.put("type", param.kind);
            if let Some(description) = &param.description {
                spec.put("description", description.as_str());
            }
            let mut outcome = match param.written == param.name {
                true => (Converted, format!("input {}", param.name)),
                false => {
                    let note = format!("the input and its variable are called {}", param.name);
                    (Changed, note)
                }
            };
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
                    outcome = (
                        Changed,
                        format!("input {}; its default is JSON", param.name),
                    );
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
                self.place(dag, &["timeout"], "timeout_sec");
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
                self.place(dag, &["concurrency"], "max_active_runs");
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

    /// The variables that can be imported, in order. `evaluated` says what becomes of those that have to be evaluated.
    fn environment(
        &mut self,
        dag: &Dag,
        path: &str,
        written: Option<&Value>,
        evaluated: (Outcome, &str),
    ) -> Vec<(String, String)> {
        let odd = odd_variables(written);
        for (name, value) in &odd {
            let note = format!("expected a text, found {}; not imported", shown(value));
            self.row(dag, &format!("{path}.{name}"), NotSupported, "", &note);
        }
        let mut all = variables(written);
        all.retain(|(name, _)| !odd.iter().any(|(odd, _)| odd == name));
        all.retain(|(name, value)| {
            let path = format!("{path}.{name}");
            if env_name_fault(name).is_some() {
                let note = "a variable cannot be called so: letters, digits and _ are allowed, and names that begin with STEPWARD_ are reserved; rename it";
                self.row(dag, &path, NotSupported, "", note);
                return false;
            }
            if let Some(reference) = field_reference(value) {
                let note = format!("{}; the variable is not set", not_for_shells(reference));
                self.row(dag, &path, NotSupported, "", &note);
                return false;
            }
            let (outcome, note) = match is_evaluated(value) {
                true => evaluated,
                false => (Converted, ""),
            };
            self.row(dag, &path, outcome, "", note);
            outcome != NotSupported
        });
        all
    }

    fn around<'d>(&mut self, dag: &'d Dag) -> Around<'d> {
        let body = &dag.body;
        let all = self.environment(dag, "env", body.get("env"), BY_THE_SHELL);
        let (evaluated, plain): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, value)| is_evaluated(value));
        let mut given = Map::default();
        for (name, value) in plain {
            given.put(&name, literal(&value));
        }
        self.secrets(dag, &mut given);
        let folder = folder_of(body);
        if folder.is_some() {
            self.row(dag, "working_dir", Converted, "", "workdir of each script");
        }
        let shell = body.get("shell").map(|shell| texts(shell).join(" "));
        if let Some(shell) = &shell {
            self.row(dag, "shell", Converted, shell, "language of each script");
        }
        if body.has("container") {
            let note = "runner: docker of each script; the image needs the shell of the script";
            self.row(dag, "container", Changed, "", note);
        }
        let tags = self.tags(dag, "", body);
        let defaults = body.map("defaults");
        if let Some(defaults) = defaults {
            self.row(dag, "defaults", Converted, "", "written into each step");
            for key in ["retry_policy", "continue_on", "timeout_sec"] {
                defaults.get(key);
            }
        }
        Around {
            dag,
            evaluated,
            given,
            folder,
            shell,
            tags,
            defaults,
        }
    }

    fn tags(&mut self, dag: &Dag, path: &str, body: &Body) -> Vec<String> {
        let Some(Value::Mapping(selector)) = body.get("worker_selector") else {
            body.expect("worker_selector", "a mapping");
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
        for secret in dag.body.list("secrets").unwrap_or_default() {
            let Some(secret) = secret.as_mapping().map(Body::new) else {
                let note = format!("expected a mapping, found {}; not imported", shown(secret));
                self.row(dag, "secrets", NotSupported, "", &note);
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

    /// Writes the flow of the task. Gives all steps, with the init handler as one of them, and the step that tests the
    /// preconditions of the DAG.
    fn steps(
        &mut self,
        dag: &Dag,
        around: &Around,
        mut steps: Vec<Step>,
        task: &mut Map,
    ) -> (Vec<Step>, Option<String>) {
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
        let mut gate = None;
        if let Some(conditions) = preconditions_of(&dag.body) {
            let name = gate_name("preconditions");
            self.place(dag, &["flow", &name], "preconditions");
            let nothing = Step::new(String::new(), String::new(), Body::new(&Mapping::new()));
            let checked = self.conditions(dag, "preconditions", conditions);
            let checked = checked.and_then(|conditions| {
                let check = self.check(around, &nothing, &[], &conditions);
                check.map_err(|Unsaid(why)| why)
            });
            match checked {
                Ok(check) => {
                    flow.put(&name, check);
                    let note = format!(
                        "step {name} tests them; if one is false, all steps are skipped and the job completes, where Dagu aborts the run and calls its handlers for that"
                    );
                    self.row(dag, "preconditions", Changed, "", &note);
                }
                Err(why) => {
                    let note = format!("{why}; written as a step that fails and says so");
                    self.row(dag, "preconditions", NotSupported, "", &note);
                    flow.put(&name, failing_step(&format!("preconditions: {why}")));
                }
            }
            gate = Some(name);
        }
        // Steps that run although a step before them was skipped would run although the gate is closed, too. All others are
        // skipped because the steps before them are.
        let may_be_skipped: BTreeSet<String> = steps
            .iter()
            .filter(|step| step.goes_on.skipped)
            .map(|step| step.name.clone())
            .collect();
        let is_gated = |step: &Step| {
            step.needs.is_empty() || step.needs.iter().any(|need| may_be_skipped.contains(need))
        };
        let mut is_gated: Vec<bool> = steps.iter().map(is_gated).collect();
        let init = dag
            .body
            .map("handler_on")
            .and_then(|all| all.get("init"))
            .map(step_of);
        if let Some(body) = init {
            let name = gate_name("init");
            for (step, _) in steps.iter_mut().zip(&is_gated).filter(|(_, gated)| **gated) {
                step.needs.insert(0, name.clone());
            }
            let mut init = Step::new(name, "handler_on.init".to_string(), body);
            init.goes_on = goes_on(&init.body);
            init.output = output_of(&init.body);
            steps.insert(0, init);
            is_gated.insert(0, true);
        }
        let mut gate_when = None;
        if let Some(gate) = &gate {
            for (step, _) in steps.iter_mut().zip(&is_gated).filter(|(_, gated)| **gated) {
                step.needs.insert(0, gate.clone());
            }
            gate_when = Some(format!("({} | string) == 'true'", step_output(gate, "ok")));
        }
        for (step, is_gated) in steps.iter().zip(is_gated) {
            let when = gate_when.clone().filter(|_| is_gated);
            for (name, written) in self.step(around, step, &steps, when, &mut gate_name) {
                flow.put(&name, written);
            }
        }
        task.put("flow", flow);
        (steps, gate)
    }

    /// The steps, each with its name and with what it waits for.
    fn read_steps(&mut self, dag: &Dag) -> Vec<Step> {
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
            _ => dag.body.expect("steps", "a list"),
        }
        let mut steps: Vec<Step> = Vec::new();
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        let mut written_needs: Vec<Option<Vec<String>>> = Vec::new();
        let mut group_of: Vec<usize> = Vec::new();
        for (group, items) in groups.into_iter().enumerate() {
            for (path, key, item) in items {
                if !item.is_mapping() && plain_text(&item).is_empty() {
                    let note = format!("expected a step, found {}; not imported", shown(&item));
                    self.row(dag, &path, NotSupported, "", &note);
                    continue;
                }
                let body = step_of(&item);
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
                let defaults = dag.body.map("defaults");
                let goes_on = match defaults.filter(|_| !body.has("continue_on")) {
                    Some(defaults) => goes_on(defaults),
                    None => goes_on(&body),
                };
                let output = output_of(&body);
                if body.get("depends").is_some_and(Value::is_mapping) {
                    body.expect("depends", "a name or a list of names");
                }
                let needs = body.get("depends").map(|depends| {
                    let needs = texts(depends).into_iter();
                    needs.filter(|need| !need.is_empty()).collect::<Vec<_>>()
                });
                written_needs.push(needs);
                group_of.push(group);
                steps.push(Step {
                    goes_on,
                    output,
                    ..Step::new(called, path, body)
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
                self.take_back_rows(rows, dag, &step.path);
                let note = format!("{why}; written as a step that fails and says so");
                self.row(dag, &step.path, NotSupported, "", &note);
                step.body.dismiss();
                failing_step(&why)
            }
        };
        let mut before = Vec::new();
        let mut edges = edges(step, all);
        let mut when: Vec<String> = gate.into_iter().collect();
        if let Some(conditions) = preconditions_of(&step.body) {
            let path = format!("{}.preconditions", step.path);
            let checked = self.conditions(dag, &path, conditions);
            let checked = checked.and_then(|conditions| {
                if let Some(expressions) = direct_conditions(&conditions, around, step) {
                    return Ok(Gate::Expressions(expressions));
                }
                let check = self.check(around, step, all, &conditions);
                check.map(Gate::Step).map_err(|Unsaid(why)| why)
            });
            match checked {
                Ok(Gate::Expressions(expressions)) => {
                    when.extend(expressions);
                    self.row(dag, &path, Converted, "", "when");
                }
                Ok(Gate::Step(mut check)) => {
                    let name = gate_name(&format!("check-{}", step.name));
                    self.place(dag, &["flow", &name], &path);
                    if !edges.is_empty() {
                        check.put("depends_on", edges.clone());
                    }
                    if !when.is_empty() {
                        check.put("when", when_all(&when));
                    }
                    let ok = format!("({} | string) == 'true'", step_output(&name, "ok"));
                    when.push(ok);
                    edges.push(Node::from(name.as_str()));
                    let note = format!(
                        "step {name} tests the preconditions; {} is skipped if one is false",
                        step.name
                    );
                    self.row(dag, &path, Changed, "", &note);
                    before.push((name, check));
                }
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
        // A step overrides the defaults of its DAG.
        let holder = |key: &str| {
            let defaults = around.defaults.filter(|_| !step.body.has(key));
            defaults.unwrap_or(&step.body)
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
        let part = |key| ["flow", step.name.as_str(), key];
        match holder("timeout_sec").number("timeout_sec") {
            Some(timeout) if timeout > 0 => {
                written.put("timeout", secs(timeout));
                self.place(dag, &part("timeout"), &path("timeout_sec"));
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
        if let Some(retry) = holder("retry_policy").map("retry_policy") {
            self.place(dag, &part("retry"), &path("retry_policy"));
            self.retry(dag, &path("retry_policy"), retry, written);
        }
        if holder("mail_on_error").flag("mail_on_error") == Some(true) {
            let target = self.mail_target(dag, "error_mail");
            let name = self.mail_targets[target].name();
            let note = format!(
                "a step tells nobody by itself; add on_error: [{{ notify: {name} }}] to the task, which tells of every failed job"
            );
            self.row(dag, &path("mail_on_error"), NotSupported, "", &note);
        }
        self.put_tags(around, step, written);
    }

    /// Tags for the worker that the step, or else the DAG, asks for.
    fn put_tags(&mut self, around: &Around, step: &Step, written: &mut Map) {
        let own = self.tags(around.dag, &format!("{}.", step.path), &step.body);
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

    fn retry(&mut self, dag: &Dag, path: &str, retry: &Body, written: &mut Map) {
        let Some(limit) = retry.number("limit") else {
            let note = "has no limit that is a number; write retry: { max_attempts: N }, which counts the first try too";
            self.row(dag, path, NotSupported, "", note);
            retry.dismiss();
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
        let mut note = format!("max_attempts: {attempts}, which counts the first try too");
        let mut outcome = Converted;
        if limit >= attempts {
            outcome = Changed;
            note.push_str("; more are not allowed");
        }
        self.row(dag, path, outcome, &format!("limit {limit}"), &note);
    }

    fn step_body(&mut self, around: &Around, step: &Step, all: &[Step]) -> Result<Map, Unsaid> {
        let body = &step.body;
        step.body.get("name");
        step.body.get("id");
        let description = body.text("description");
        let action = body.text("action");
        let with = body.map("with").or_else(|| body.map("config"));
        let mut written = match action.as_deref() {
            Some("dag.run") => {
                let child = with.and_then(|with| with.text("dag")).unwrap_or_default();
                let params = with.and_then(|with| with.get("params")).cloned();
                self.call(around, step, all, &child, params.as_ref())?
            }
            Some("exec") => {
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
                let message = with.and_then(|with| with.text("message"));
                let message = message.unwrap_or_default();
                let script = format!("printf '%s\\n' {}", shell_word(&message));
                self.script(around, step, all, script, None)?
            }
            Some("noop") => self.script(around, step, all, "true".to_string(), None)?,
            Some("docker.run" | "container.run") => {
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
                    "Stepward has no action {other}, call the tool from a script"
                ));
            }
            None => self.executed(around, step, all, with)?,
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
        if step.handler.is_none() && body.get("output").is_some_and(|output| !output.is_string()) {
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
        let run = body.get("run").map(plain_text);
        let run = run.filter(|run| !run.is_empty());
        let call = body.text("call").or_else(|| {
            // `run` named a DAG before it named a command.
            run.clone()
                .filter(|name| self.find(name).is_some() || body.has("params"))
        });
        if let Some(child) = call {
            let params = body.get("params").cloned();
            return self.call(around, step, all, &child, params.as_ref());
        }
        let (kind, config) = match body.get("executor") {
            Some(Value::Mapping(_)) => {
                let executor = body.map("executor");
                let kind = executor.and_then(|executor| executor.text("type"));
                (
                    kind.unwrap_or_default(),
                    executor.and_then(|executor| executor.map("config")),
                )
            }
            Some(executor) => (plain_text(executor), None),
            None => (body.text("type").unwrap_or_default(), None),
        };
        let config = config.or(with);
        let container_holder = match body.has("container") {
            true => body,
            false => &dag.body,
        };
        if container_holder
            .get("container")
            .is_some_and(Value::is_string)
        {
            return unsaid("it runs in a container that is there already, name an image");
        }
        let container = container_holder.map("container");
        let mut image = container.and_then(|container| container.text("image"));
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
                    "Stepward has no executor {other}, call the tool from a script"
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
                "args ({}) beside a command are not supported, write them into the command",
                texts(args).join(" ")
            ));
        }
        let mut written = self.script_read_by(around, step, all, source, image, reader)?;
        if ["docker", "container"].contains(&kind.as_str()) {
            let path = format!("{}.executor.config.", step.path);
            self.container_keys(dag, &path, config, &mut written);
        }
        if let Some(container) = container {
            let path = match body.has("container") {
                true => format!("{}.container.", step.path),
                false => "container.".to_string(),
            };
            self.container_keys(dag, &path, Some(container), &mut written);
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
        let outside = "is set outside of the container there; put it into env of the step";
        let variables = self.environment(
            dag,
            &format!("{path}env"),
            config.get("env"),
            (NotSupported, outside),
        );
        for (name, value) in variables {
            written.map_mut("env").put(&name, literal(&value));
        }
        if let Some(folder) = config.any(&["working_dir", "workdir"]) {
            written.put("workdir", literal(&plain_text(folder)));
        }
        for left in config.leftovers() {
            let note = match left.expected {
                Some(_) => left.note(),
                None => {
                    "is no setting of a step here; name it in docker.args of the worker's settings"
                        .to_string()
                }
            };
            self.row(
                dag,
                &format!("{path}{}", left.path),
                NotSupported,
                "",
                &note,
            );
        }
        config.dismiss();
    }

    fn find(&self, name: &str) -> Option<&Dag> {
        let name = name.trim();
        let is_it = |dag: &&Dag| {
            let mut called = dag.called.iter();
            called.any(|called| called == name || called == file_stem(name))
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
            Value::Mapping(_) => {
                let parallel = step.body.map("parallel");
                let most = parallel.and_then(|parallel| parallel.number("max_concurrent"));
                let items = parallel.and_then(|parallel| parallel.get("items"));
                (items.cloned(), most)
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
            return unsaid(not_for_shells(reference));
        }
        let own_shell = body.get("shell").map(|shell| texts(shell).join(" "));
        let reader = reader.or(own_shell).or_else(|| around.shell.clone());
        let has_mark = source.starts_with("#!");
        let program = reader
            .as_deref()
            .and_then(|reader| reader.split_whitespace().next());
        let program = program.map(|program| base_name(program).to_string());
        let is_shell = match (&program, has_mark) {
            (_, true) => is_shell(marked_program(&source)),
            (Some(program), false) => is_shell(program),
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
        if source.trim().is_empty() {
            return unsaid("its script is empty");
        }
        if let Some(image) = image {
            written.put("runner", "docker");
            written.put("image", literal(&image));
        }
        // Variables. What a step sets itself comes last: it overrides what its DAG sets.
        let mut given = around.given.clone();
        let outputs = outputs_before(step, all);
        let mut lines: Vec<String> = Vec::new();
        for (name, here) in DAGU_VARIABLES {
            let is_given = step.handler.is_some() && HANDLER_VARIABLES.contains(&name);
            // Dagu sets ITEM only in parallel steps. Elsewhere it is a variable like any other.
            let is_other = name == "ITEM" && body.get("parallel").is_none();
            if has_word(&source, name) && !is_given && !is_other {
                lines.push(format!("export {name}=\"${here}\""));
            }
        }
        for (name, note) in LOST_VARIABLES {
            if has_word(&source, name) {
                self.row(
                    dag,
                    &step.path,
                    Changed,
                    "",
                    &format!("${name} is empty here; {note}"),
                );
            }
        }
        for (name, value) in &around.evaluated {
            if !outputs.iter().any(|(output, _)| output == name) {
                lines.push(format!("export {name}={}", in_quotes(value)));
            }
        }
        let path = format!("{}.env", step.path);
        let own = self.environment(dag, &path, body.get("env"), BY_THE_SHELL);
        for (name, value) in &own {
            let is_set = around.given.get(name).is_some();
            let is_set = is_set || around.evaluated.iter().any(|(other, _)| other == name);
            if is_evaluated(value) || (is_set && !around.evaluated.is_empty()) {
                lines.push(format!("export {name}={}", shell_word(value)));
            } else {
                given.put(name, literal(value));
            }
        }
        if (1..=dag.params.len()).any(|position| mentions(&source, &position.to_string())) {
            let words = dag.params.iter().map(|param| {
                let value = format!("${{INPUT_{}-}}", param.name.to_ascii_uppercase());
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
                match param.variable {
                    Some(_) if param.written.chars().all(is_plain) => {
                        format!("\"{}={value}\"", param.written)
                    }
                    Some(_) => format!("\"{}={value}\"", param.name),
                    None => format!("\"{value}\""),
                }
            });
            lines.push(format!("set -- {}", words.collect::<Vec<_>>().join(" ")));
        }
        match folder_of(body).or_else(|| around.folder.clone()) {
            Some(folder) if is_evaluated(&folder) || folder == "~" || folder.starts_with("~/") => {
                if let Some(reference) = field_reference(&folder) {
                    return unsaid(not_for_shells(reference));
                }
                // A shell does not expand a tilde inside quotes.
                let folder = match folder.strip_prefix('~') {
                    Some(rest) => format!("$HOME{rest}"),
                    None => folder,
                };
                lines.push(format!("cd {} || exit 1", in_quotes(&folder)));
            }
            Some(folder) => written.put("workdir", literal(&folder)),
            None => {}
        }
        lines.extend(
            step.handler
                .as_ref()
                .and_then(|handler| handler.guard.clone()),
        );
        if !is_shell {
            let positions = (1..=dag.params.len()).map(|position| position.to_string());
            let params = dag.params.iter().filter_map(|param| param.variable.clone());
            let variables = around.evaluated.iter().chain(&own).chain(&outputs);
            let names = given.keys().map(str::to_string).collect::<Vec<_>>();
            let names = names.into_iter().chain(positions).chain(params);
            let names = names.chain(variables.map(|(name, _)| name.clone()));
            let mut kept: Vec<String> = names.filter(|name| mentions(&source, name)).collect();
            kept.sort();
            kept.dedup();
            if !kept.is_empty() {
                let note = format!(
                    "Dagu puts in the values of ${}; here the script keeps these words, let it read the variables of its environment",
                    kept.join(", $")
                );
                self.row(
                    dag,
                    &format!("{}.script", step.path),
                    NotSupported,
                    "",
                    &note,
                );
            }
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
                script.push_str(&captured(&source, output, !head.is_empty()));
                let mut note = format!(
                    "what it prints is its output {output}, which the steps behind it have in ${output}; more than {} KiB fail the step, Dagu keeps 1 MB",
                    limits::OUTPUT_BYTES_MAX >> 10
                );
                if step.goes_on.failure {
                    note.push_str("; if it fails, they have an empty text there: the output of a failed step is not passed on");
                }
                self.row(
                    dag,
                    &format!("{}.output", step.path),
                    Changed,
                    output,
                    &note,
                );
            }
            None => {
                script.push_str(source.trim_end());
                script.push('\n');
            }
        }
        for (name, value) in outputs {
            let is_own = own.iter().any(|(own, _)| *own == name);
            // A handler is a job of its own, which is given them as inputs.
            if !is_own && step.handler.is_none() {
                given.put(&name, value);
            }
        }
        written.put("script", literal(&format!("{head}{script}")));
        if !given.is_empty() {
            written.put("env", given);
        }
        Ok(written)
    }

    /// A step that writes whether all conditions hold to its output `ok`. It runs where the step itself would run.
    fn check(
        &mut self,
        around: &Around,
        step: &Step,
        all: &[Step],
        conditions: &[Condition],
    ) -> Result<Map, Unsaid> {
        let script = format!(
            "if {}\nthen echo ok=true\nelse echo ok=false\nfi >> \"$STEPWARD_OUTPUT\"\n",
            all_of(conditions)
        );
        let shell = step.body.get("shell").map(|shell| texts(shell).join(" "));
        let shell = shell.or_else(|| around.shell.clone()).filter(|shell| {
            let program = shell.split_whitespace().next().unwrap_or_default();
            is_shell(base_name(program))
        });
        let shell = shell.unwrap_or_else(|| "sh".to_string());
        // The rows of the step itself say what became of its variables and its folder.
        let rows = self.report.rows.len();
        let check = step.check();
        let written = self.script_read_by(around, &check, all, script, None, Some(shell));
        let written = written.map(|mut written| {
            self.put_tags(around, &check, &mut written);
            written
        });
        self.report.rows.truncate(rows);
        written
    }

    /// The conditions as they are written.
    fn conditions(
        &mut self,
        dag: &Dag,
        path: &str,
        written: &Value,
    ) -> Result<Vec<Condition>, String> {
        let items = match written {
            Value::Sequence(list) => list.clone(),
            other => vec![other.clone()],
        };
        let mut conditions = Vec::new();
        for item in items {
            let condition = match &item {
                Value::Mapping(item) => {
                    let item = Body::new(item);
                    let condition = Condition {
                        condition: item
                            .any(&["condition", "command"])
                            .map(plain_text)
                            .unwrap_or_default(),
                        expected: item.text("expected"),
                        is_negated: item.flag("negate") == Some(true),
                    };
                    self.unread(dag, &format!("{path}."), &item);
                    condition
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
            let expected = condition.expected.as_deref().unwrap_or_default();
            for text in [condition.condition.as_str(), expected] {
                if let Some(reference) = field_reference(text) {
                    return Err(not_for_shells(reference));
                }
            }
            if let Some(pattern) = expected.strip_prefix("re:") {
                posix_pattern(pattern)?;
            }
            conditions.push(condition);
        }
        Ok(conditions)
    }

    // What belongs to the whole DAG

    /// Handlers become hooks. `gate` is the step that tests the preconditions of the DAG.
    fn handlers(
        &mut self,
        dag: &Dag,
        around: &Around,
        steps: &[Step],
        gate: Option<&str>,
        task: &mut Map,
    ) {
        let Some(handlers) = dag.body.map("handler_on") else {
            return;
        };
        let mut hooks: BTreeMap<&str, Vec<Node>> = BTreeMap::new();
        // Each event with the status that Dagu would tell a handler.
        let all_events = [
            ("on_success", "succeeded"),
            ("on_error", "failed"),
            ("on_cancel", "aborted"),
        ];
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
            let name = format!("{}-on-{key}", dag.task);
            let mut step = Step::new(name, path.clone(), step_of(handler));
            step.needs = steps.iter().map(|step| step.name.clone()).collect();
            let rows = self.report.rows.len();
            let gate = gate.filter(|_| key == "success");
            match self.hook(around, &mut step, steps, gate) {
                Ok(hook) => {
                    for (event, status) in events {
                        let mut hook = hook.clone();
                        if hook.at(&["input", "DAG_RUN_STATUS"]).is_some() {
                            hook.map_mut("input").put("DAG_RUN_STATUS", *status);
                        }
                        hooks.entry(event).or_default().push(hook.into());
                        self.place(dag, &[event, &path], &path);
                    }
                    let events: Vec<&str> = events.iter().map(|(event, _)| *event).collect();
                    let note = format!("{}: a job of its own", events.join(", "));
                    self.row(dag, &path, Changed, "", &note);
                    self.unread(dag, &format!("{path}."), &step.body);
                }
                Err(Unsaid(why)) => {
                    self.take_back_rows(rows, dag, &path);
                    let note = format!("{why}; the hook is not written");
                    self.row(dag, &path, NotSupported, "", &note);
                }
            }
        }
        for (event, list) in hooks {
            task.put(event, list);
        }
    }

    /// The hook that runs a handler. A hook is a job of its own: it is given all values that the handler sees in Dagu as inputs.
    fn hook(
        &mut self,
        around: &Around,
        step: &mut Step,
        steps: &[Step],
        gate: Option<&str>,
    ) -> Result<Map, Unsaid> {
        let dag = around.dag;
        let mut guards: Vec<String> = Vec::new();
        if gate.is_some() {
            guards.push("[ \"$INPUT_PRECONDITIONS_MET\" = true ] || exit 0".to_string());
        }
        let conditions = preconditions_of(&step.body);
        if let Some(conditions) = conditions {
            let path = format!("{}.preconditions", step.path);
            let conditions = self.conditions(dag, &path, conditions).map_err(Unsaid)?;
            guards.push(format!(
                "if {}\nthen :\nelse exit 0\nfi",
                all_of(&conditions)
            ));
            let note = "the script tests them first, and ends with 0 if one is false";
            self.row(dag, &path, Changed, "", note);
        }
        let has_conditions = conditions.is_some();
        step.handler = Some(Handler {
            guard: (!guards.is_empty()).then(|| guards.join("\n")),
        });
        let mut action = self.step_body(around, step, steps)?;
        let mut hook = Map::default();
        if action.get("type") == Some(&Node::from("task")) {
            if has_conditions {
                return unsaid("a handler that runs a DAG has no preconditions here");
            }
            if gate.is_some() {
                let note = "runs also if the preconditions of the DAG do not hold";
                self.row(dag, &step.path, Changed, "", note);
            }
            for key in ["task", "input"] {
                if let Some(value) = action.get(key) {
                    hook.put(key, value.clone());
                }
            }
            return Ok(hook);
        }
        let own = variables(step.body.get("env"));
        // Input of the action, its value in the hook, and the variable that scripts know it by.
        let mut passed: Vec<(&str, String, bool)> = Vec::new();
        for param in &dag.params {
            let value = format!("{{{{ input.{} | default('') | string }}}}", param.name);
            let is_variable = around.given.get(&param.name).is_none();
            passed.push((&param.name, value, is_variable && param.variable.is_some()));
        }
        let outputs = outputs_before(step, steps);
        for (name, value) in &outputs {
            passed.retain(|(known, ..)| known != name);
            passed.push((name, value.clone(), true));
        }
        let script = match action.get("script") {
            Some(Node::Text(script)) => script.clone(),
            _ => String::new(),
        };
        for (name, value) in HANDLER_VARIABLES.iter().zip([
            "{{ hook.task }}",
            "{{ hook.job | string }}",
            "{{ hook.job | string }}",
            "",
        ]) {
            if has_word(&script, name) {
                passed.push((name, value.to_string(), true));
            }
        }
        if let Some(gate) = gate {
            let value = format!(
                "{{{{ {} | default('') | string }}}}",
                step_output(gate, "ok")
            );
            passed.push(("preconditions_met", value, false));
        }
        for (name, value, is_variable) in passed {
            let mut spec = Map::default();
            spec.put("type", "string");
            action.map_mut("input").put(name, spec);
            hook.map_mut("input").put(name, value);
            if is_variable && !own.iter().any(|(own, _)| own == name) {
                let value = format!("{{{{ input.{name} | default('') }}}}");
                action.map_mut("env").put(name, value);
            }
        }
        self.put_tags(around, step, &mut action);
        hook.put_first("action", step.name.as_str());
        let path = ["actions", &step.name].map(str::to_string);
        let place = format!("{}: {}{}", dag.file, dag.prefix, step.path);
        self.places.insert(path.into(), place);
        self.document.map_mut("actions").put(&step.name, action);
        Ok(hook)
    }

    /// The target that stands for the addresses under this key: its index among all targets.
    fn mail_target(&mut self, dag: &Dag, key: &str) -> usize {
        let config = dag.body.map(key);
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
        let mail_on = body.map("mail_on");
        let is_on = |key: &str| mail_on.and_then(|mail_on| mail_on.flag(key)) == Some(true);
        for (key, event, mail) in [
            ("failure", "on_error", "error_mail"),
            ("success", "on_success", "info_mail"),
        ] {
            let config = body.map(mail);
            if config.is_none() && !is_on(key) {
                continue;
            }
            let target = self.mail_target(dag, mail);
            let name = self.mail_targets[target].name();
            if config.is_some() {
                let note = match self.mail_targets[target].definition() {
                    Some(definition) => {
                        format!("belongs into the server's settings: {definition}")
                    }
                    None => {
                        format!("is the target {name}, whose definition is in an earlier row")
                    }
                };
                self.row(dag, mail, Changed, "", &note);
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
                let path = format!("mail_on.{key}");
                self.place(dag, &[event, &path], &path);
                self.row(dag, &path, Changed, "", &note);
            }
        }
    }

    fn schedules(&mut self, dag: &Dag, task: &mut Map) {
        let catch_up = dag.body.text("catchup_window");
        let policy = dag.body.text("overlap_policy");
        let Some(written) = dag.body.get("schedule") else {
            for (key, value) in [("catchup_window", catch_up), ("overlap_policy", policy)] {
                if value.is_some() {
                    let note = "there is no schedule that it could be about";
                    self.row(dag, key, LeftOut, "", note);
                }
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
                let Some(kinds) = dag.body.map("schedule") else {
                    return;
                };
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
                Value::Mapping(item) => {
                    let item = Body::new(item);
                    let expression = item.text("expression").unwrap_or_default();
                    if !expression.is_empty() {
                        self.unread(dag, &format!("{path}."), &item);
                    }
                    expression
                }
                item => plain_text(item),
            };
            if expression.is_empty() {
                let note = "holds no cron expression, and a single time is no schedule here; submit the task then";
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
            self.place(dag, &["schedules", &name], &path);
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

/// Advice about a key of a DAG or a step that is not imported, if there is any.
fn explained(key: &str) -> Option<(Outcome, &'static str)> {
    Some(match key {
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
        "ssh" | "s3" | "redis" | "llm" | "harness" | "harnesses" | "registry_auths" => (
            NotSupported,
            "only scripts, containers, pods and tasks are run here; call the tool from a script",
        ),
        "approval" => (
            NotSupported,
            "write a step of type: approval behind it, and let the next steps wait for that",
        ),
        _ => return None,
    })
}

/// The report row of a variable whose value has to be evaluated.
const BY_THE_SHELL: (Outcome, &str) = (
    Changed,
    "is evaluated by the shell at the start of each script",
);

/// Variables of Dagu that have the same meaning as one of ours.
const DAGU_VARIABLES: [(&str, &str); 6] = [
    ("DAG_NAME", "STEPWARD_TASK"),
    ("DAG_RUN_ID", "STEPWARD_JOB_ID"),
    ("DAG_RUN_STEP_NAME", "STEPWARD_STEP"),
    ("DAG_REQUEST_ID", "STEPWARD_JOB_ID"),
    ("DAG_STEP_NAME", "STEPWARD_STEP"),
    ("ITEM", "EACH_ITEM"),
];

/// Variables of Dagu that a handler is given by its hook.
const HANDLER_VARIABLES: [&str; 4] = ["DAG_NAME", "DAG_RUN_ID", "DAG_REQUEST_ID", "DAG_RUN_STATUS"];

/// Variables of Dagu that nothing here corresponds to, and what to do instead.
const LOST_VARIABLES: [(&str, &str); 8] = [
    ("DAG_RUN_LOG_FILE", READ_LOGS),
    ("DAG_RUN_STEP_STDOUT_FILE", READ_LOGS),
    ("DAG_RUN_STEP_STDERR_FILE", READ_LOGS),
    ("DAG_EXECUTION_LOG_PATH", READ_LOGS),
    ("DAG_PARAMS_JSON", READ_INPUTS),
    ("DAGU_PARAMS_JSON", READ_INPUTS),
    ("DAG_RUN_WORK_DIR", KEEP_FILES),
    ("DAG_RUN_ARTIFACTS_DIR", KEEP_FILES),
];

const READ_LOGS: &str = "logs are read by stepward logs";
const READ_INPUTS: &str = "each input is in a variable of its own";
const KEEP_FILES: &str = "let the script name a folder of its own";

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

/// A script whose output becomes the output `name` of its step as well as its log. The exit code stays that of the script.
/// `may_exit` says that the shell may have been told to end at the first failure.
fn captured(source: &str, name: &str, may_exit: bool) -> String {
    let source = source.trim_end();
    let (before, within) = match may_exit {
        true => ("flags=$-\nset +e\n", "case $flags in *e*) set -e;; esac\n"),
        false => ("", ""),
    };
    format!(
        "{before}{{ (\n{within}{source}\n)\necho \"$?\" > \"$STEPWARD_TMP/status\"; }} | tee \"$STEPWARD_TMP/stdout\"\n\
         {{ echo '{name}<<END_OF_{name}'; cat \"$STEPWARD_TMP/stdout\"; echo; echo 'END_OF_{name}'; }} >> \"$STEPWARD_OUTPUT\"\n\
         exit \"$(cat \"$STEPWARD_TMP/status\")\"\n"
    )
}

/// The content of `continue_on` of a step or of the defaults.
fn goes_on(body: &Body) -> Continue {
    match body.get("continue_on") {
        None => Continue::default(),
        Some(Value::Mapping(_)) => {
            let is_on =
                |key: &str| body.map("continue_on").and_then(|rules| rules.flag(key)) == Some(true);
            let (failure, failed) = (is_on("failure"), is_on("failed"));
            Continue {
                failure: failure || failed,
                skipped: is_on("skipped"),
            }
        }
        Some(words) => {
            let words = texts(words);
            let is_failure = |word: &String| word == "failed" || word == "failure";
            let is_skipped = |word: &String| word == "skipped";
            if !words
                .iter()
                .all(|word| is_failure(word) || is_skipped(word))
            {
                body.expect("continue_on", "failed or skipped");
            }
            Continue {
                failure: words.iter().any(is_failure),
                skipped: words.iter().any(is_skipped),
            }
        }
    }
}

/// The preconditions as they are written. An empty list is none.
fn preconditions_of(body: &Body) -> Option<&Value> {
    let is_empty = |value: &Value| value.as_sequence().is_some_and(Vec::is_empty);
    body.any(&["preconditions", "precondition"])
        .filter(|value| !is_empty(value))
}

fn folder_of(body: &Body) -> Option<String> {
    body.text("working_dir").or_else(|| body.text("dir"))
}

/// The variable that the output of a step is kept in.
fn output_of(body: &Body) -> Option<String> {
    let name = body.get("output")?.as_str()?.trim();
    let name = name.trim_start_matches('$').trim_matches(['{', '}']);
    Some(variable_name(name))
}

/// A step, which may be written as its command alone.
fn step_of(written: &Value) -> Body {
    match written {
        Value::Mapping(step) => Body::new(step),
        command => {
            let mut step = Mapping::new();
            step.insert("command".into(), command.clone());
            Body::new(&step)
        }
    }
}

fn is_shell(program: &str) -> bool {
    ["sh", "bash", "dash", "ash", "ksh", "zsh"].contains(&program)
}

/// The program that the first line of a script names: `bash` of `#!/usr/bin/env -S bash -e`.
fn marked_program(source: &str) -> &str {
    let line = source.lines().next().unwrap_or_default();
    let mut words = line.trim_start_matches("#!").split_whitespace();
    let program = base_name(words.next().unwrap_or_default());
    match program {
        "env" => {
            let mut words = words.filter(|word| !word.starts_with('-') && !word.contains('='));
            words.next().map_or("env", base_name)
        }
        program => program,
    }
}

fn not_for_shells(reference: &str) -> String {
    format!(
        "{reference} is read by Dagu and by no shell, take the value from the output of the step"
    )
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

/// The outputs of the steps before this one, as variables. If two steps have the same one, the later step counts.
fn outputs_before(step: &Step, all: &[Step]) -> Vec<(String, String)> {
    let before = steps_before(step, all);
    let is_before = |other: &&Step| before.iter().any(|before| before.name == other.name);
    let mut outputs: Vec<(String, String)> = Vec::new();
    for before in all.iter().filter(is_before) {
        let Some(name) = &before.output else {
            continue;
        };
        let value = format!(
            "{{{{ {} | default('') | trim }}}}",
            step_output(&before.name, name)
        );
        outputs.retain(|(known, _)| known != name);
        outputs.push((name.clone(), value));
    }
    outputs
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
        let mut params = around.dag.params.iter().enumerate();
        let param = params.find(|(index, param)| match &param.variable {
            Some(variable) => variable == name,
            None => (index + 1).to_string() == name,
        });
        let param = param.map(|(_, param)| param);
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
                let always_there = of.goes_on == Continue::default() && step.handler.is_none();
                out.push_str(&match always_there {
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
                // The line end is for a command that ends with a comment.
                format!("(\n{}\n) > /dev/null", inner.unwrap_or(command))
            }
            Some(expected) => match expected.strip_prefix("re:") {
                Some(pattern) => {
                    let pattern = posix_pattern(pattern).unwrap_or_default();
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

/// All conditions as one condition of the shell.
fn all_of(conditions: &[Condition]) -> String {
    let tests: Vec<String> = conditions.iter().map(Condition::test).collect();
    tests.join(" &&\n   ")
}

/// A pattern of Go's regular expressions as one of `grep -E`, or why there is none.
fn posix_pattern(pattern: &str) -> Result<String, String> {
    let fault = |what: &str| {
        Err(format!(
            "the pattern {pattern} holds {what}, which grep -E does not know; write it in another way"
        ))
    };
    let mut out = String::new();
    let mut is_in_brackets = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let escaped = chars.next().unwrap_or('\\');
                let class = match escaped {
                    'd' => Some("0-9"),
                    'w' => Some("0-9A-Za-z_"),
                    's' => Some("[:space:]"),
                    _ => None,
                };
                match (class, is_in_brackets) {
                    (Some(class), true) => out.push_str(class),
                    (Some(class), false) => out.push_str(&format!("[{class}]")),
                    (None, false) if escaped == 'b' => out.push_str("\\b"),
                    // Inside brackets POSIX knows no escapes, and these two would end or turn the list.
                    (None, true) if "]^-".contains(escaped) => {
                        return fault(&format!("\\{escaped} in brackets"));
                    }
                    (None, _) if escaped.is_alphanumeric() => {
                        return fault(&format!("\\{escaped}"));
                    }
                    (None, true) => out.push(escaped),
                    (None, false) if ".*+?()[]{}|^$\\".contains(escaped) => {
                        out.push('\\');
                        out.push(escaped);
                    }
                    (None, false) => out.push(escaped),
                }
            }
            '(' if !is_in_brackets && chars.peek() == Some(&'?') => return fault("(?"),
            '*' | '+' | '?' | '}' if !is_in_brackets && chars.peek() == Some(&'?') => {
                return fault(&format!("{c}?"));
            }
            '[' if is_in_brackets && chars.peek() == Some(&':') => {
                // A class such as [:alpha:].
                out.push(c);
                for c in chars.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '[' if !is_in_brackets => {
                is_in_brackets = true;
                out.push(c);
                // A bracket that comes first is one of the list.
                for first in ['^', ']'] {
                    if chars.next_if_eq(&first).is_some() {
                        out.push(first);
                    }
                }
            }
            ']' if is_in_brackets => {
                is_in_brackets = false;
                out.push(c);
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

/// The conditions as expressions, if all of them compare a parameter with a plain text.
fn direct_conditions(
    conditions: &[Condition],
    around: &Around,
    step: &Step,
) -> Option<Vec<String>> {
    let own = variables(step.body.get("env"));
    let is_overridden = |name: &str| {
        let mut set = own.iter().chain(&around.evaluated);
        around.given.get(name).is_some() || set.any(|(other, _)| other == name)
    };
    let direct = |condition: &Condition| {
        let name = condition.condition.trim().strip_prefix('$')?;
        let name = name
            .strip_prefix('{')
            .and_then(|inner| inner.strip_suffix('}'))
            .unwrap_or(name);
        let mut params = around.dag.params.iter();
        let param = params.find(|param| param.variable.as_deref() == Some(name))?;
        if is_overridden(name) {
            return None;
        }
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
        assert_eq!(
            field_reference("${CFG.items[0].name}"),
            Some("${CFG.items[0].name}")
        );
        assert_eq!(field_reference("a ${X:-1.5} b"), None);
        assert!(has_word("os.environ['OUT']", "OUT"));
        assert!(!has_word("OUTPUT SHOUT", "OUT"));
    }

    #[test]
    fn patterns_of_go_become_patterns_of_grep() {
        for (go, posix) in [
            (r"^\d+$", "^[0-9]+$"),
            (r"\bv\w*\s", r"\bv[0-9A-Za-z_]*[[:space:]]"),
            (r"[\d.]+\.", r"[0-9.]+\."),
            (r"[^]\s]\/x", "[^][:space:]]/x"),
            (r"[[:alpha:]_]{2,3}", "[[:alpha:]_]{2,3}"),
            (r"a|\(b\)", r"a|\(b\)"),
        ] {
            assert_eq!(posix_pattern(go).as_deref(), Ok(posix));
        }
        for go in [r"(?i)x", r"a*?", r"\D", r"\pL", r"[a\-z]", r"\z"] {
            assert!(posix_pattern(go).is_err(), "{go}");
        }
    }

    #[test]
    fn the_first_line_of_a_script_names_its_program() {
        for (line, program) in [
            ("#!/bin/sh", "sh"),
            ("#!/usr/bin/fish", "fish"),
            ("#!/usr/bin/env -S bash -e", "bash"),
            ("#! /usr/bin/env pwsh", "pwsh"),
        ] {
            assert_eq!(marked_program(line), program);
        }
    }
}
