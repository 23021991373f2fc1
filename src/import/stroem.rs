//! A workspace of Strøm becomes workflow files of the same names: its actions, tasks, secrets and triggers.
//!
//! A step that cannot be said here is written as one that fails and says so: the graph around it stays what it was, and
//! nothing runs that was not meant.

use std::collections::{BTreeMap, BTreeSet};

use serde_yaml::{Mapping, Value};

use super::Imported;
use super::body::{as_flag, no_equivalent, shown};
use super::report::Outcome::{self, Changed, Converted, LeftOut, NotSupported};
use super::report::Report;
use super::tera::{self, Quoting, Scope, Translated, translate};
use super::tree::{get, mapping, plain_text, text};
use super::valid::{Draft, failing_step, finish};
use super::yaml::{Map, Node, key_text};
use crate::domain::task::is_template;
use crate::language::arguments::{self, Role};
use crate::language::shell::Program;

/// One file of a workspace.
#[derive(Debug, Clone)]
pub struct StroemFile {
    /// As it is named below the folder, such as `deploy.yaml`.
    pub name: String,
    pub text: String,
}

/// `name` is the name of the workspace. `source` gives the text of a script by its path in the workspace. `runner_image` is the
/// image of Strøm's runner, which its files do not name.
pub fn import_stroem(
    name: &str,
    files: &[StroemFile],
    source: &dyn Fn(&str) -> Result<String, String>,
    runner_image: Option<&str>,
) -> Imported {
    let mut report = Report::default();
    let workspace = Workspace::read(files, &mut report);
    let mut writer = Writer {
        name,
        source,
        runner_image,
        report,
        secrets: BTreeMap::new(),
        actions: BTreeMap::new(),
        written: BTreeMap::new(),
        scripts: BTreeMap::new(),
        places: BTreeMap::new(),
        declared: workspace.declared_inputs(),
        wanted: BTreeMap::new(),
        accepts_by_edge: workspace.has_edges(),
        workspace: &workspace,
    };
    writer.secrets();
    writer.unsupported_at_the_top();
    writer.actions();
    writer.tasks();
    writer.triggers();
    writer.declare_what_is_given();
    let mut places = writer.places;
    let drafts = writer.written.into_iter().map(|(name, document)| Draft {
        head: vec![format!("Imported from {name} of a Strøm workspace.")],
        source: name.clone(),
        places: places.remove(&name).unwrap_or_default(),
        name,
        document,
        tail: Vec::new(),
    });
    finish(drafts.collect(), writer.scripts, writer.report)
}

/// A thing with a name, and the file that it is in.
struct Named<'a> {
    file: &'a str,
    name: String,
    body: Mapping,
}

#[derive(Default)]
struct Workspace<'a> {
    actions: Vec<Named<'a>>,
    tasks: Vec<Named<'a>>,
    triggers: Vec<Named<'a>>,
    secrets: Vec<(&'a str, String, Value)>,
    hooks: Vec<(&'a str, String, Vec<Value>)>,
    /// Keys at the top that have no place here.
    others: Vec<(&'a str, String, Value)>,
}

const HOOKS: &[&str] = &["on_success", "on_error", "on_cancel", "on_suspended"];

impl<'a> Workspace<'a> {
    fn read(files: &'a [StroemFile], report: &mut Report) -> Workspace<'a> {
        let mut workspace = Workspace::default();
        for file in files {
            if file.name.ends_with(".sops.yaml") || file.name.ends_with(".sops.yml") {
                let note = "is encrypted; decrypt it with sops -d and import that, then keep the values out of the files";
                report.add(&file.name, NotSupported, "", note);
                continue;
            }
            let tree = serde_yaml::from_str(&file.text).and_then(|mut tree: Value| {
                tree.apply_merge()?;
                Ok(tree)
            });
            let tree = match tree {
                Ok(tree) => tree,
                Err(error) => {
                    let note = format!("cannot be read as YAML: {error}");
                    report.add(&file.name, NotSupported, "", &note);
                    continue;
                }
            };
            match tree {
                Value::Mapping(tree) => workspace.add(&file.name, tree, report),
                Value::Null => {
                    let note = "is empty; no workflow file is written for it";
                    report.add(&file.name, LeftOut, "", note);
                }
                other => {
                    let note = not_expected("a mapping", &other);
                    report.add(&file.name, NotSupported, "", &note);
                }
            }
        }
        workspace
    }

    fn add(&mut self, file: &'a str, tree: Mapping, report: &mut Report) {
        for (key, value) in tree {
            let key = key_text(&key);
            let is_hooks = HOOKS.contains(&key.as_str());
            let is_section = ["actions", "tasks", "triggers", "secrets"].contains(&key.as_str());
            if !value.is_null()
                && ((is_hooks && !value.is_sequence()) || (is_section && !value.is_mapping()))
            {
                let expected = if is_hooks { "a list" } else { "a mapping" };
                let note = not_expected(expected, &value);
                report.add(format!("{file}: {key}"), NotSupported, "", &note);
                continue;
            }
            let list = match key.as_str() {
                "actions" => &mut self.actions,
                "tasks" => &mut self.tasks,
                "triggers" => &mut self.triggers,
                "secrets" => {
                    for (name, value) in mapping(&value) {
                        flatten(file, name, value, &mut self.secrets);
                    }
                    continue;
                }
                key if HOOKS.contains(&key) => {
                    let hooks = value.as_sequence().cloned().unwrap_or_default();
                    self.hooks.push((file, key.to_string(), hooks));
                    continue;
                }
                _ => {
                    self.others.push((file, key, value));
                    continue;
                }
            };
            for (name, body) in mapping(&value) {
                let place = format!("{file}: {key}.{name}");
                let Value::Mapping(body) = body else {
                    let note = not_expected("a mapping", &body);
                    report.add(place, NotSupported, "", &note);
                    continue;
                };
                if list.iter().any(|named| named.name == name) {
                    report.add(
                        place,
                        NotSupported,
                        "",
                        "is there twice; the first one is kept",
                    );
                    continue;
                }
                list.push(Named { file, name, body });
            }
        }
    }

    fn action(&self, name: &str) -> Option<&Named<'a>> {
        self.actions.iter().find(|action| action.name == name)
    }

    fn task(&self, name: &str) -> Option<&Named<'a>> {
        self.tasks.iter().find(|task| task.name == name)
    }

    /// Since 0.18 an edge says what it accepts, and a bare name means completion, as it does here.
    fn has_edges(&self) -> bool {
        let steps = self.tasks.iter().flat_map(|task| steps_of(&task.body));
        let mut depends = steps.filter_map(|(_, step)| get(&step, "depends_on").cloned());
        depends.any(|tree| match tree {
            Value::Sequence(edges) => edges.iter().any(|edge| edge.is_mapping()),
            other => other.is_mapping(),
        })
    }

    fn declared_inputs(&self) -> BTreeMap<(Kind, String), BTreeSet<String>> {
        let of = |kind: Kind, named: &Named| {
            let names = get(&named.body, "input").map(mapping).unwrap_or_default();
            let names = names.into_iter().map(|(name, _)| name).collect();
            ((kind, named.name.clone()), names)
        };
        let actions = self.actions.iter().map(|action| of(Kind::Action, action));
        actions
            .chain(self.tasks.iter().map(|task| of(Kind::Task, task)))
            .collect()
    }
}

fn not_expected(expected: &str, found: &Value) -> String {
    format!("expected {expected}, found {}; not imported", shown(found))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Action,
    Task,
}

/// Steps by their name: of a mapping, or of a list of steps that each have a `name`.
fn steps_of(task: &Mapping) -> Vec<(String, Mapping)> {
    let steps: Vec<(String, Value)> = match get(task, "flow") {
        Some(Value::Sequence(list)) => {
            let named = list.iter().map(|step| {
                let name = step.as_mapping().and_then(|step| text(step, "name"));
                (name.unwrap_or_default().to_string(), step.clone())
            });
            named.collect()
        }
        Some(flow) => mapping(flow),
        None => Vec::new(),
    };
    let steps = steps.into_iter();
    steps
        .filter_map(|(name, step)| Some((name, step.as_mapping()?.clone())))
        .filter(|(name, _)| !name.is_empty())
        .collect()
}

/// What stands in a flow and is no step: each is reported.
fn not_steps_of(task: &Mapping) -> Vec<String> {
    match get(task, "flow") {
        None => vec!["flow".to_string()],
        Some(Value::Sequence(list)) => {
            let is_step = |step: &Value| {
                let step = step.as_mapping();
                step.is_some_and(|step| text(step, "name").is_some_and(|name| !name.is_empty()))
            };
            let all = list.iter().enumerate();
            let others = all.filter(|(_, step)| !is_step(step));
            others.map(|(index, _)| format!("flow[{index}]")).collect()
        }
        Some(Value::Mapping(_)) => {
            let all = mapping(&get(task, "flow").cloned().unwrap_or_default()).into_iter();
            let others = all.filter(|(_, step)| !step.is_mapping());
            others.map(|(name, _)| format!("flow.{name}")).collect()
        }
        Some(_) => vec!["flow".to_string()],
    }
}

/// Secrets may nest there; here each has one name.
fn flatten<'a>(
    file: &'a str,
    name: String,
    value: Value,
    into: &mut Vec<(&'a str, String, Value)>,
) {
    match &value {
        Value::Mapping(_) => {
            for (inner, value) in mapping(&value) {
                flatten(file, format!("{name}.{inner}"), value, into);
            }
        }
        _ => into.push((file, name, value)),
    }
}

struct Writer<'a> {
    /// The name of the workspace.
    name: &'a str,
    source: &'a dyn Fn(&str) -> Result<String, String>,
    runner_image: Option<&'a str>,
    workspace: &'a Workspace<'a>,
    report: Report,
    /// Path there, name here.
    secrets: BTreeMap<String, String>,
    /// Actions that were written, by their name there and what was put in for their inputs; `None`: it cannot be one.
    actions: BTreeMap<(String, BTreeMap<String, String>), Option<String>>,
    written: BTreeMap<String, Map>,
    scripts: BTreeMap<String, String>,
    /// For each file, the parts of the written document whose path in the source is another one.
    places: BTreeMap<String, BTreeMap<Vec<String>, String>>,
    declared: BTreeMap<(Kind, String), BTreeSet<String>>,
    /// Inputs that are given or mentioned without being declared, which Strøm lets pass.
    wanted: BTreeMap<(Kind, String), BTreeSet<String>>,
    accepts_by_edge: bool,
}

/// Why a step or an action cannot be written.
struct Unsaid(String);

impl Writer<'_> {
    fn row(&mut self, file: &str, path: &str, outcome: Outcome, what: &str, note: &str) {
        self.report
            .add(format!("{file}: {path}"), outcome, what, note);
    }

    /// Remembers that a part of the written task comes from this place.
    fn place(&mut self, task: &Named, part: &[&str], place: String) {
        let part = [&["tasks", task.name.as_str()], part].concat();
        let part = part.into_iter().map(str::to_string).collect();
        let places = self.places.entry(task.file.to_string()).or_default();
        places.insert(part, place);
    }

    /// A flag, which may be written as text. Anything else is reported, and counts as not there.
    fn flag(&mut self, file: &str, path: &str, body: &Mapping, key: &str) -> Option<bool> {
        let value = get(body, key).filter(|value| !value.is_null())?;
        let flag = as_flag(value);
        if flag.is_none() {
            let note = not_expected("true or false", value);
            self.row(file, &format!("{path}.{key}"), NotSupported, "", &note);
        }
        flag
    }

    fn section(&mut self, file: &str, key: &str) -> &mut Map {
        self.written
            .entry(file.to_string())
            .or_default()
            .map_mut(key)
    }

    fn scope(&self) -> Scope {
        Scope {
            secrets: self.secrets.clone(),
            workspace: self.name.to_string(),
            ..Scope::default()
        }
    }

    fn unsupported_at_the_top(&mut self) {
        for (file, key, value) in &self.workspace.others {
            let note = match key.as_str() {
                "connections" => {
                    "there are no connections; give the values as inputs of type json, their secrets as secrets"
                }
                "connection_types" => {
                    "there are no connection types; inputs of such a type became json"
                }
                "mcp_servers" => "there are no agents",
                key => &no_equivalent(key),
            };
            match value.as_mapping() {
                Some(entries) => {
                    for name in entries.keys() {
                        self.report.add(
                            format!("{file}: {key}.{}", key_text(name)),
                            NotSupported,
                            "",
                            note,
                        );
                    }
                }
                None => self
                    .report
                    .add(format!("{file}: {key}"), NotSupported, "", note),
            }
        }
    }

    fn secrets(&mut self) {
        for (file, path, value) in &self.workspace.secrets {
            let name = path.replace('.', "_");
            let mut variable: String = name
                .chars()
                .map(|c| {
                    if c.is_ascii_alphanumeric() {
                        c.to_ascii_uppercase()
                    } else {
                        '_'
                    }
                })
                .collect();
            let from_env = value.as_str().and_then(variable_of);
            let (outcome, note) = match (&from_env, value.as_str()) {
                (Some(_), _) => (Converted, String::new()),
                (None, Some(text)) if text.contains("ref+") => (
                    Changed,
                    format!(
                        "vals is not asked here; put the value into {variable} of the server's environment, or name a file"
                    ),
                ),
                (None, _) => (
                    Changed,
                    format!(
                        "values do not stand in files here; put it into {variable} of the server's environment, or name a file"
                    ),
                ),
            };
            variable = from_env.unwrap_or(variable);
            let mut reference = Map::default();
            reference.put("env", variable);
            self.section(file, "secrets").put(&name, reference);
            let renamed = name != *path;
            let note = match (renamed, note.is_empty()) {
                (false, _) => note,
                (true, true) => format!("called {name} here"),
                (true, false) => format!("called {name} here; {note}"),
            };
            self.row(
                file,
                &format!("secrets.{path}"),
                if renamed { Changed } else { outcome },
                "",
                &note,
            );
            self.secrets.insert(path.clone(), name);
        }
    }

    // Actions

    fn actions(&mut self) {
        for action in &self.workspace.actions {
            let path = format!("actions.{}", action.name);
            let kind = text(&action.body, "type").unwrap_or_default();
            match kind {
                "task" | "approval" => {
                    let note = format!("written into each step that uses it, as type: {kind}");
                    self.row(action.file, &path, Converted, "", &note);
                    let used = if kind == "task" { "task" } else { "message" };
                    self.unused_keys(
                        action.file,
                        &path,
                        &action.body,
                        &["type", used, "input", "output", "retry"],
                    );
                }
                "agent" => {
                    let note = "there are no agents; its steps fail and say so, call the model from a script instead";
                    self.row(action.file, &path, NotSupported, "", note);
                }
                _ => drop(self.action_named(&action.name, BTreeMap::new())),
            }
        }
    }

    /// The name here of an action in whose texts these expressions stand for inputs. `None`: it has to be written into its steps.
    fn action_named(&mut self, name: &str, given: BTreeMap<String, String>) -> Option<String> {
        let key = (name.to_string(), given.clone());
        if let Some(found) = self.actions.get(&key) {
            return found.clone();
        }
        let action = self.workspace.action(name)?;
        let path = format!("actions.{name}");
        let scope = Scope {
            given: given.clone(),
            numbers: numbers_of(&action.body),
            ..self.scope()
        };
        let is_first = given.is_empty();
        let written = match self.body(action.file, &path, &action.body, &scope, is_first) {
            Ok((mut body, mentioned)) => {
                let mut called = name.to_string();
                if !is_first {
                    let taken = |called: &str, all: &Self| {
                        all.workspace.action(called).is_some()
                            || all.actions.values().flatten().any(|other| other == called)
                    };
                    called = format!("{name}-with-secrets");
                    let mut number = 2;
                    while taken(&called, self) {
                        called = format!("{name}-with-secrets-{number}");
                        number += 1;
                    }
                    self.row(action.file, &path, Changed, "", &format!("also written as {called}, which holds the secrets that its callers gave it"));
                }
                let description = text(&action.body, "description");
                if let Some(description) = description.or(text(&action.body, "name")) {
                    body.put_first("description", description);
                }
                let inputs = get(&action.body, "input").cloned().unwrap_or(Value::Null);
                let inputs: Vec<(String, Value)> = mapping(&inputs)
                    .into_iter()
                    .filter(|(input, _)| !given.contains_key(input))
                    .collect();
                let specs = self.specs(action.file, &format!("{path}.input"), &inputs, is_first);
                if !specs.is_empty() {
                    body.put("input", specs);
                }
                for input in mentioned {
                    self.want(Kind::Action, name, &input);
                }
                self.section(action.file, "actions").put(&called, body);
                if is_first {
                    self.row(action.file, &path, Converted, "", "");
                    let mut known = vec!["input", "retry", "name", "description"];
                    known.extend(BODY_KEYS);
                    self.unused_keys(action.file, &path, &action.body, &known);
                }
                Some(called)
            }
            Err(Unsaid(why)) => {
                if is_first {
                    self.row(
                        action.file,
                        &path,
                        Changed,
                        "",
                        &format!("not written by itself: {why}"),
                    );
                }
                None
            }
        };
        self.actions.insert(key, written.clone());
        written
    }

    /// The value as the input of an action or a task takes it. `of_caller` are the inputs that templates of the value see.
    fn fit(
        &self,
        kind: Kind,
        name: &str,
        input: &str,
        value: Node,
        of_caller: Option<&Value>,
    ) -> Node {
        let named = match kind {
            Kind::Action => self.workspace.action(name),
            Kind::Task => self.workspace.task(name),
        };
        let inputs = named.and_then(|named| get(&named.body, "input"));
        let inputs = inputs.map(mapping).unwrap_or_default();
        match inputs.iter().find(|(known, _)| known == input) {
            Some((_, field)) => Taken::of_field(field).fit(value, is_text_of(of_caller)),
            None => value,
        }
    }

    fn want(&mut self, kind: Kind, name: &str, input: &str) {
        let key = (kind, name.to_string());
        let declared = self
            .declared
            .get(&key)
            .is_some_and(|inputs| inputs.contains(input));
        if !declared {
            self.wanted
                .entry(key)
                .or_default()
                .insert(input.to_string());
        }
    }

    /// Names and remarks are for people; everything else that nobody asked for is told.
    fn unused_keys(&mut self, file: &str, path: &str, body: &Mapping, known: &[&str]) {
        for key in body.keys().map(key_text) {
            if known.contains(&key.as_str()) {
                continue;
            }
            let (outcome, note) = match key.as_str() {
                "name" | "description" | "folder" | "order" => {
                    (LeftOut, "there is no place for it here; it changes nothing")
                }
                "mode" => (LeftOut, "every task is distributed here"),
                "continue_when_skipped" => (
                    NotSupported,
                    "say in depends_on what is accepted: { step: NAME, accept: [completed, skipped] }",
                ),
                key => (NotSupported, &*no_equivalent(key)),
            };
            self.row(file, &format!("{path}.{key}"), outcome, "", note);
        }
    }

    /// What an action does, and the inputs that it mentions.
    fn body(
        &mut self,
        file: &str,
        path: &str,
        action: &Mapping,
        scope: &Scope,
        tell: bool,
    ) -> Result<(Map, BTreeSet<String>), Unsaid> {
        let mut say = Sayer {
            scope,
            notes: Vec::new(),
            inputs: BTreeSet::new(),
        };
        let mut body = Map::default();
        match text(action, "type").unwrap_or("script") {
            "script" | "shell" => self.script_body(action, &mut say, &mut body)?,
            "docker" => {
                body.put("type", "docker");
                container_body(action, &mut say, &mut body)?;
            }
            "pod" => {
                body.put("type", "pod");
                let manifest = pod_manifest(action, &mut say)?;
                body.put("manifest", Node::from(&manifest));
                say.note("manifest", Changed, "a whole pod is written: its container, with what stood in manifest put over it");
            }
            "agent" => {
                return Err(Unsaid(
                    "there are no agents here, call the model from a script".to_string(),
                ));
            }
            other => return Err(Unsaid(format!("Stepward has no type {other}"))),
        }
        let kind = text(action, "type").unwrap_or("script");
        for key in unused_body_keys(action) {
            let note = format!("is not used by an action of type {kind}; not imported");
            say.note(key, NotSupported, &note);
        }
        match get(action, "env") {
            None | Some(Value::Null) => {}
            Some(Value::Mapping(env)) => {
                for (name, value) in env {
                    let quoting = match arguments::is_loader_variable(&key_text(name)) {
                        true => Quoting::Choice,
                        false => Quoting::None,
                    };
                    let said = say.say("env", &rendered(&Node::from(value)), quoting)?;
                    body.map_mut("env").put(&key_text(name), said);
                }
            }
            Some(env) => {
                let note = format!("{}; write NAME: VALUE", not_expected("a mapping", env));
                say.note("env", NotSupported, &note);
            }
        }
        if let Some(workdir) = text(action, "workdir") {
            body.put("workdir", say.say("workdir", workdir, Quoting::Choice)?);
        }
        for (key, expected) in [("workdir", "a text"), ("tags", "a list")] {
            let is_read = |value: &Value| {
                value.is_null() || value.is_string() || (key == "tags" && value.is_sequence())
            };
            if let Some(value) = get(action, key).filter(|value| !is_read(value)) {
                say.note(key, NotSupported, &not_expected(expected, value));
            }
        }
        let tags = words(get(action, "tags"));
        if !tags.is_empty() {
            body.put(
                "tags",
                tags.into_iter().map(Node::from).collect::<Vec<Node>>(),
            );
        }
        for (key, note) in [
            (
                "dependencies",
                "nothing is installed before a script; install it in the script, or use an image that has it",
            ),
            (
                "args",
                "scripts are given no arguments; write them into the script",
            ),
            (
                "resources",
                "bounds of processor and memory are not set here; set them in the manifest of a pod",
            ),
        ] {
            if get(action, key).is_some_and(|value| *value != Value::Sequence(Vec::new())) {
                say.note(key, NotSupported, note);
            }
        }
        let written = serde_yaml::to_string(action).unwrap_or_default();
        let language = text(action, "language").unwrap_or("shell");
        for note in not_kept(&written, is_shell(language)) {
            say.note("script", NotSupported, &note);
        }
        if tell {
            for (key, outcome, note) in std::mem::take(&mut say.notes) {
                self.row(file, &format!("{path}.{key}"), outcome, "", &note);
            }
        }
        Ok((body, say.inputs))
    }

    fn script_body(
        &mut self,
        action: &Mapping,
        say: &mut Sayer,
        body: &mut Map,
    ) -> Result<(), Unsaid> {
        body.put("type", "script");
        let kind = text(action, "type").unwrap_or("script");
        let runner = text(action, "runner").unwrap_or("local");
        match (runner, self.runner_image) {
            ("local", _) => {}
            ("docker" | "pod", Some(image)) => {
                body.put("runner", runner);
                body.put("image", image);
                say.note("runner", Changed, "the image is named in the file here");
                if get(action, "manifest").is_some() {
                    say.note(
                        "manifest",
                        NotSupported,
                        "a script in a pod takes no manifest; write it as type: pod",
                    );
                }
            }
            ("docker" | "pod", None) => {
                return Err(Unsaid(format!(
                    "runner: {runner} needs an image here, give --runner-image IMAGE"
                )));
            }
            (other, _) => return Err(Unsaid(format!("Stepward has no runner {other}"))),
        }
        let said = text(action, "language").unwrap_or("shell");
        let language = match said {
            said if is_shell(said) => "bash",
            "python" => "python",
            "javascript" | "js" => "node",
            "typescript" | "ts" => "bun",
            other => {
                return Err(Unsaid(format!(
                    "language: {other} is read by no single program; use a script that calls it"
                )));
            }
        };
        let is_shell = language == "bash";
        if !is_shell {
            say.note(
                "language",
                Changed,
                &format!("{said} is read by the program {language}; Strøm looks for others too"),
            );
        }
        let reader = text(action, "interpreter").unwrap_or(language);
        let is_word = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        if !reader.chars().all(is_word) {
            return Err(Unsaid(format!(
                "interpreter: {reader} is not the name of a program, put it on the worker's PATH"
            )));
        }
        body.put("language", reader);
        // In the days of type: shell, `cmd` was the text and `script` the file.
        let (inline, path) = match kind {
            "shell" => (text(action, "cmd"), text(action, "script")),
            _ => (
                text(action, "script").or(text(action, "cmd")),
                text(action, "source"),
            ),
        };
        match (inline, path) {
            (Some(script), _) => {
                let quoting = if is_shell {
                    Quoting::Shell
                } else {
                    Quoting::Unsafe
                };
                let said = say.say("script", script, quoting)?;
                body.put("script", with_folders(said, is_shell));
            }
            (None, Some(path)) => {
                if tera::is_template(path)
                    || path.starts_with('/')
                    || path.split('/').any(|part| part == "..")
                {
                    return Err(Unsaid(format!(
                        "the script {path} is not a path inside the workspace"
                    )));
                }
                let script = (self.source)(path)
                    .map_err(|why| Unsaid(format!("the script {path} {why}")))?;
                if script.trim().is_empty() {
                    return Err(Unsaid(format!("the script {path} is empty")));
                }
                for note in not_kept(&script, is_shell) {
                    say.note("source", NotSupported, &note);
                }
                let script = with_folders(script, is_shell);
                if is_template(&script) {
                    if script.contains("endraw") {
                        return Err(Unsaid(format!(
                            "the script {path} holds a template that cannot be quoted"
                        )));
                    }
                    body.put(
                        "script",
                        format!("{{% raw %}}{}{{% endraw %}}\n", script.trim_end()),
                    );
                    say.note(
                        "source",
                        Changed,
                        "written into the file, quoted: it holds what would be a template here",
                    );
                } else {
                    self.scripts.insert(path.to_string(), script);
                    body.put("file", path);
                    say.note("source", Changed, "copied next to the workflows, as file:");
                }
            }
            (None, None) => return Err(Unsaid("it has no script".to_string())),
        }
        Ok(())
    }

    /// The schema of inputs or outputs.
    fn specs(&mut self, file: &str, path: &str, fields: &[(String, Value)], tell: bool) -> Map {
        let mut specs = Map::default();
        for (name, field) in fields {
            let (spec, notes) = spec(field);
            specs.put(name, spec);
            if tell {
                for (key, outcome, note) in notes {
                    self.row(file, &format!("{path}.{name}.{key}"), outcome, "", &note);
                }
            }
        }
        specs
    }

    // Tasks

    fn tasks(&mut self) {
        for task in &self.workspace.tasks {
            let path = format!("tasks.{}", task.name);
            let mut written = Map::default();
            let (name, remark) = (text(&task.body, "name"), text(&task.body, "description"));
            if let Some(description) = remark.or(name) {
                written.put("description", description);
            }
            let inputs = get(&task.body, "input").map(mapping).unwrap_or_default();
            let specs = self.specs(task.file, &format!("{path}.input"), &inputs, true);
            if !specs.is_empty() {
                written.put("input", specs);
            }
            if let Some(timeout) = get(&task.body, "timeout") {
                written.put("timeout", duration(timeout));
                self.row(task.file, &format!("{path}.timeout"), Changed, &plain_text(timeout), "counts from the first start of a job, not from its making; queue_timeout bounds the waiting");
            }
            if get(&task.body, "retry").is_some() {
                let note = "whole jobs are not tried again by themselves; give the steps a retry";
                self.row(task.file, &format!("{path}.retry"), NotSupported, "", note);
            }
            let steps = steps_of(&task.body);
            for key in not_steps_of(&task.body) {
                let note = "holds no step: a mapping with a name is expected";
                self.row(task.file, &format!("{path}.{key}"), NotSupported, "", note);
            }
            let mut flow = Map::default();
            for (name, step) in &steps {
                let (written, remarks) = self.step(task, name, step, &steps);
                flow.put_remarked(name, written, remarks);
            }
            written.put("flow", flow);
            for event in HOOKS {
                let is_list = |hooks: &Value| hooks.is_sequence() || hooks.is_null();
                if get(&task.body, event).is_some_and(|hooks| !is_list(hooks)) {
                    let path = format!("{path}.{event}");
                    self.row(
                        task.file,
                        &path,
                        NotSupported,
                        "",
                        "expected a list of hooks; not imported",
                    );
                }
                let own = get(&task.body, event)
                    .and_then(Value::as_sequence)
                    .cloned()
                    .unwrap_or_default();
                let mut hooks = Vec::new();
                for (index, hook) in own.iter().enumerate() {
                    hooks.extend(self.hook(task.file, &format!("{path}.{event}[{index}]"), hook));
                }
                if own.is_empty() {
                    for (file, _, list) in
                        self.workspace.hooks.iter().filter(|(_, on, _)| on == event)
                    {
                        for (index, hook) in list.iter().enumerate() {
                            let path = format!("{event}[{index}] for {}", task.name);
                            hooks.extend(self.hook(file, &path, hook));
                            self.place(task, &[event, &path], format!("{file}: {path}"));
                        }
                    }
                }
                if !hooks.is_empty() {
                    written.put(event, hooks);
                }
            }
            self.section(task.file, "tasks").put(&task.name, written);
            self.row(task.file, &path, Converted, "", "");
            let known = [
                "name",
                "description",
                "input",
                "flow",
                "timeout",
                "retry",
                "on_success",
                "on_error",
                "on_cancel",
                "on_suspended",
            ];
            self.unused_keys(task.file, &path, &task.body, &known);
        }
        for (file, event, _) in &self.workspace.hooks {
            let note = "written into each task that has none of its own; here they follow the jobs of such tasks also when another task called them";
            self.row(file, event, Changed, "", note);
        }
    }

    fn step(
        &mut self,
        task: &Named,
        name: &str,
        step: &Mapping,
        all: &[(String, Mapping)],
    ) -> (Map, Vec<String>) {
        let path = format!("tasks.{}.flow.{name}", task.name);
        let mut scope = self.scope();
        scope.numbers = numbers_of(&task.body);
        for (other, _) in all {
            scope.steps.insert(other.replace('-', "_"), other.clone());
        }
        let rows = self.report.rows.len();
        let mut remarks = Vec::new();
        for key in ["name", "description"] {
            remarks.extend(text(step, key).map(str::to_string));
        }
        let written = match self.step_body(task, &path, step, &scope) {
            Ok(written) => {
                self.row(task.file, &path, Converted, "", "");
                written
            }
            Err(Unsaid(why)) => {
                self.report.rows.truncate(rows);
                let note = format!("{why}; written as a step that fails and says so");
                self.row(task.file, &path, NotSupported, "", &note);
                remarks.push(format!("Not imported: {why}."));
                failing_step(&why)
            }
        };
        (self.step_policies(task, &path, step, written, all), remarks)
    }

    fn step_body(
        &mut self,
        task: &Named,
        path: &str,
        step: &Mapping,
        scope: &Scope,
    ) -> Result<Map, Unsaid> {
        let mut written = Map::default();
        let mut say = Sayer {
            scope,
            notes: Vec::new(),
            inputs: BTreeSet::new(),
        };
        let named =
            match text(step, "action") {
                None => None,
                Some(name) => Some(self.workspace.action(name).ok_or_else(|| {
                    Unsaid(format!("the action {name} is not in this workspace"))
                })?),
            };
        let body = named.map_or(step, |action| &action.body);
        let mut given = get(step, "input").map(mapping).unwrap_or_default();
        if ["task", "approval"].contains(&text(body, "type").unwrap_or_default()) {
            // These actions are written into their steps, and so are the defaults of their inputs.
            given.extend(
                named
                    .map(defaults_of)
                    .unwrap_or_default()
                    .into_iter()
                    .filter(|(name, _)| {
                        get(step, "input").is_none_or(|given| given.get(name).is_none())
                    }),
            );
        }
        match text(body, "type").unwrap_or("script") {
            "task" => {
                let child =
                    text(body, "task").ok_or_else(|| Unsaid("it names no task".to_string()))?;
                if self.workspace.task(child).is_none() {
                    return Err(Unsaid(format!("the task {child} is not in this workspace")));
                }
                written.put("type", "task");
                written.put("task", child);
                let mut input = Map::default();
                for (name, value) in &given {
                    let said = say.value("input", value)?;
                    let of_caller = get(&task.body, "input");
                    input.put(name, self.fit(Kind::Task, child, name, said, of_caller));
                    self.want(Kind::Task, child, name);
                }
                say.refuse_secrets()?;
                if !input.is_empty() {
                    written.put("input", input);
                }
            }
            "approval" => {
                let mut scope = scope.clone();
                for (name, value) in &given {
                    let said = say.value("input", value)?;
                    scope.given.insert(name.clone(), expression(&said));
                }
                let mut inner = Sayer {
                    scope: &scope,
                    notes: Vec::new(),
                    inputs: BTreeSet::new(),
                };
                let message = text(body, "message").unwrap_or("Approve?");
                written.put("type", "approval");
                written.put("message", inner.say("message", message, Quoting::None)?);
                say.inputs.extend(inner.inputs);
                say.notes.extend(inner.notes);
                say.note("output", Changed, "the output of an approval is what the approver is asked for (input:), not approved_by and approved_at");
            }
            _ => {
                let mut secrets = BTreeMap::new();
                let mut input = Map::default();
                for (name, value) in &given {
                    let mut each = Sayer {
                        scope,
                        notes: Vec::new(),
                        inputs: BTreeSet::new(),
                    };
                    let said = each.value("input", value)?;
                    if each.refuse_secrets().is_err() {
                        secrets.insert(name.clone(), expression(&said));
                    } else {
                        let of_caller = get(&task.body, "input");
                        let fit = |action: &Named| {
                            self.fit(Kind::Action, &action.name, name, said.clone(), of_caller)
                        };
                        input.put(name, named.map_or(said.clone(), fit));
                    }
                    say.inputs.extend(each.inputs);
                    say.notes
                        .extend(each.notes.into_iter().filter(|(key, _, _)| key != SECRETS));
                }
                let called = match named {
                    None => None,
                    Some(action) => self.action_named(&action.name, secrets.clone()),
                };
                match (called, named) {
                    (Some(called), Some(action)) => {
                        written.put("action", called);
                        for (name, _) in &given {
                            self.want(Kind::Action, &action.name, name);
                        }
                    }
                    _ => {
                        let scope = Scope {
                            given: secrets,
                            ..scope.clone()
                        };
                        let (inlined, mentioned) =
                            self.body(task.file, path, body, &scope, named.is_none())?;
                        written = inlined;
                        // What an action declares and nobody gives has its default.
                        for (name, default) in named.map(defaults_of).unwrap_or_default() {
                            if input.get(&name).is_none() && !scope.given.contains_key(&name) {
                                input.put(&name, Node::from(&default));
                            }
                        }
                        let own = |name: &String| input.get(name).is_none();
                        say.inputs.extend(mentioned.into_iter().filter(own));
                    }
                }
                if !input.is_empty() {
                    written.put("input", input);
                }
            }
        }
        if let Some(when) = get(step, "when") {
            let said = say.say("when", &plain_text(when), Quoting::None)?;
            // A text that is no template would be a word that means yes.
            written.put("when", said);
        }
        match get(step, "for_each") {
            None => {}
            Some(Value::String(items)) => {
                let said = say.say("for_each", items, Quoting::None)?;
                written.put("for_each", said);
            }
            Some(items) => written.put("for_each", say.value("for_each", items)?),
        }
        say.refuse_secrets()?;
        for input in std::mem::take(&mut say.inputs) {
            self.want(Kind::Task, &task.name, &input);
        }
        for (key, outcome, note) in say.notes {
            self.row(task.file, &format!("{path}.{key}"), outcome, "", &note);
        }
        if let Some(output) = get(body, "output") {
            let specs = self.specs(
                task.file,
                &format!("{path}.output"),
                &mapping(output),
                named.is_none(),
            );
            if !specs.is_empty() {
                written.put("outputs", specs);
                self.row(
                    task.file,
                    &format!("{path}.output"),
                    Changed,
                    "",
                    "outputs is enforced here: what does not fit fails the step",
                );
            }
        }
        Ok(written)
    }

    /// What holds of a step whatever it does, also of one that could not be said.
    fn step_policies(
        &mut self,
        task: &Named,
        path: &str,
        step: &Mapping,
        mut written: Map,
        all: &[(String, Mapping)],
    ) -> Map {
        let file = task.file;
        let is_mapping = |input: &Value| input.is_mapping() || input.is_null();
        if get(step, "input").is_some_and(|input| !is_mapping(input)) {
            let path = format!("{path}.input");
            self.row(
                file,
                &path,
                NotSupported,
                "",
                "expected a mapping; write NAME: VALUE",
            );
        }
        let goes_on = self.flag(file, path, step, "continue_on_failure");
        let goes_on = goes_on.unwrap_or(false);
        if let Some(depends) = get(step, "depends_on") {
            written.put(
                "depends_on",
                self.depends_on(file, path, depends, goes_on, all),
            );
        }
        if goes_on {
            written.put("continue_on_failure", true);
        }
        if self.flag(file, path, step, "sequential") == Some(true) {
            written.put("max_parallel", 1);
            self.row(
                file,
                &format!("{path}.sequential"),
                Changed,
                "",
                "max_parallel: 1",
            );
        }
        if let Some(timeout) = get(step, "timeout") {
            written.put("timeout", duration(timeout));
        }
        let action = text(step, "action").and_then(|name| self.workspace.action(name));
        let own = get(step, "retry").filter(|retry| !retry.is_null());
        let of_action = action.and_then(|action| get(&action.body, "retry"));
        let retry_path = format!("{path}.retry");
        for retry in [
            own,
            of_action.filter(|_| own.is_none_or(|own| !own.is_mapping())),
        ] {
            match retry {
                None | Some(Value::Null) => {}
                Some(Value::Mapping(retry)) => {
                    written.put("retry", self.retry(file, &retry_path, retry));
                }
                // All tries or those after the first: nobody can tell.
                Some(other) => self.row(
                    file,
                    &retry_path,
                    NotSupported,
                    &plain_text(other),
                    "expected a mapping; write retry: { max_attempts: N }, which counts the first try too",
                ),
            }
        }
        let mut known = vec![
            "action",
            "input",
            "depends_on",
            "continue_on_failure",
            "sequential",
            "timeout",
            "when",
            "for_each",
            "retry",
            "name",
            "description",
        ];
        if action.is_none() {
            match text(step, "type") {
                Some("task") => known.extend(["type", "task", "output"]),
                Some("approval") => known.extend(["type", "message", "output"]),
                _ => known.extend(BODY_KEYS),
            }
        }
        if text(step, "type") == Some("agent") {
            known.extend([
                "provider",
                "model",
                "prompt",
                "system_prompt",
                "temperature",
                "max_tokens",
                "max_turns",
                "tools",
                "interactive",
            ]);
        }
        self.unused_keys(file, path, step, &known);
        written
    }

    fn depends_on(
        &mut self,
        file: &str,
        path: &str,
        depends: &Value,
        goes_on: bool,
        all: &[(String, Mapping)],
    ) -> Node {
        let names: Option<Vec<&str>> = match depends {
            Value::Sequence(list) => list.iter().map(Value::as_str).collect(),
            Value::String(name) => Some(vec![name.as_str()]),
            _ => None,
        };
        let names = match names {
            // Their words are ours.
            Some(names) if !self.accepts_by_edge => names,
            _ => return Node::from(depends),
        };
        let edge = |name: &str, accept: Node| {
            let mut edge = Map::default();
            edge.put("step", name);
            edge.put("accept", accept);
            Node::from(edge)
        };
        let path = format!("{path}.depends_on");
        if goes_on && !names.is_empty() {
            let note = "continue_on_failure also lets a step run after failed dependencies there (before 0.17); written as accept: terminal";
            self.row(file, &path, Changed, "", note);
            let edges = names.iter().map(|name| edge(name, Node::from("terminal")));
            return Node::from(edges.collect::<Vec<_>>());
        }
        let may_be_skipped = |name: &str| {
            let step = all.iter().find(|(other, _)| other == name);
            let is_loop = |step: &Mapping| {
                let items = get(step, "for_each");
                items.is_some_and(|items| items.as_sequence().is_none_or(|items| items.is_empty()))
            };
            step.is_some_and(|(_, step)| get(step, "when").is_some() || is_loop(step))
        };
        let skippable = names.iter().filter(|name| may_be_skipped(name)).count();
        // A single dependency has to complete in both.
        if skippable == 0 || names.len() < 2 {
            return Node::from(names.into_iter().map(Node::from).collect::<Vec<_>>());
        }
        let note = "a skipped dependency lets a step run there (before 0.17) if another one completed; written so";
        self.row(file, &path, Changed, "", note);
        let accepted = || Node::from(vec![Node::from("completed"), Node::from("skipped")]);
        let mut edges: Vec<Node> = names
            .iter()
            .map(|name| match may_be_skipped(name) {
                true => edge(name, accepted()),
                false => Node::from(*name),
            })
            .collect();
        if skippable == names.len() {
            let mut any = Map::default();
            any.put("any", names.into_iter().map(Node::from).collect::<Vec<_>>());
            edges.push(Node::from(any));
        }
        Node::from(edges)
    }

    fn retry(&mut self, file: &str, path: &str, retry: &Mapping) -> Map {
        let mut written = Map::default();
        for key in ["max_attempts", "delay", "backoff", "jitter"] {
            if let Some(value) = get(retry, key) {
                written.put(key, duration(value));
            }
        }
        if get(retry, "max_attempts").is_none() {
            written.put("max_attempts", 2);
        }
        self.row(file, path, Changed, "", "a lost worker is no reason to try again here; name it in on: or say on_worker_loss: retry");
        if text(retry, "backoff") == Some("exponential") {
            self.row(
                file,
                &format!("{path}.backoff"),
                Changed,
                "",
                "delays grow to max_delay (1h), not to 64 times the first",
            );
        }
        self.unused_keys(
            file,
            path,
            retry,
            &["max_attempts", "delay", "backoff", "jitter"],
        );
        written
    }

    fn hook(&mut self, file: &str, path: &str, hook: &Value) -> Option<Node> {
        let empty = Mapping::new();
        let hook = hook.as_mapping().unwrap_or(&empty);
        match self.hook_body(hook) {
            Ok((node, notes)) => {
                self.unused_keys(file, path, hook, &["action", "input"]);
                let outcome = if notes.is_empty() { Converted } else { Changed };
                let notes: Vec<String> = notes.into_iter().collect();
                self.row(file, path, outcome, "", &notes.join("; "));
                Some(node)
            }
            Err(Unsaid(why)) => {
                self.row(
                    file,
                    path,
                    NotSupported,
                    "",
                    &format!("{why}; the hook is not written"),
                );
                None
            }
        }
    }

    fn hook_body(&mut self, hook: &Mapping) -> Result<(Node, BTreeSet<String>), Unsaid> {
        let name = text(hook, "action").ok_or_else(|| Unsaid("it names no action".to_string()))?;
        if get(hook, "when").is_some() {
            return Err(Unsaid(
                "a hook has no when here, test it in the script of the action".to_string(),
            ));
        }
        let action = self
            .workspace
            .action(name)
            .ok_or_else(|| Unsaid(format!("the action {name} is not in this workspace")))?;
        let scope = Scope {
            in_hook: true,
            ..self.scope()
        };
        let mut input = Map::default();
        let mut secrets = BTreeMap::new();
        let mut notes = BTreeSet::new();
        let mut names = Vec::new();
        if get(&action.body, "retry").is_some() {
            notes.insert(format!("the retry of {name} does not hold for a hook"));
        }
        let mut given = get(hook, "input").map(mapping).unwrap_or_default();
        if text(&action.body, "type") == Some("task") {
            let defaults = defaults_of(action).into_iter();
            let is_given =
                |name: &str| get(hook, "input").is_some_and(|all| all.get(name).is_some());
            given.extend(defaults.filter(|(name, _)| !is_given(name)));
        }
        for (name, value) in given {
            let mut say = Sayer {
                scope: &scope,
                notes: Vec::new(),
                inputs: BTreeSet::new(),
            };
            let said = say.value("input", &value)?;
            match say.refuse_secrets() {
                Ok(()) => {
                    let is_task = text(&action.body, "type") == Some("task");
                    let (kind, of) = match text(&action.body, "task").filter(|_| is_task) {
                        Some(task) => (Kind::Task, task),
                        None => (Kind::Action, action.name.as_str()),
                    };
                    input.put(&name, self.fit(kind, of, &name, said, None));
                }
                Err(_) if matches!(&said, Node::Text(text) if text.contains("hook.")) => {
                    return Err(Unsaid(format!(
                        "the input {name} joins a secret with what a hook knows"
                    )));
                }
                Err(_) => drop(secrets.insert(name.clone(), expression(&said))),
            }
            notes.extend(
                say.notes
                    .into_iter()
                    .filter(|(key, _, _)| key != SECRETS)
                    .map(|(_, _, note)| note),
            );
            names.push(name);
        }
        let mut written = Map::default();
        match text(&action.body, "type").unwrap_or("script") {
            "task" if secrets.is_empty() => {
                let task = text(&action.body, "task").unwrap_or_default();
                if self.workspace.task(task).is_none() {
                    return Err(Unsaid(format!("the task {task} is not in this workspace")));
                }
                written.put("task", task);
                for name in names {
                    self.want(Kind::Task, task, &name);
                }
            }
            "task" => {
                return Err(Unsaid(
                    "secrets are not given to tasks here, name them in the task".to_string(),
                ));
            }
            kind @ ("approval" | "agent") => {
                return Err(Unsaid(format!("an action of type {kind} cannot be a hook")));
            }
            _ => {
                let called = self
                    .action_named(name, secrets)
                    .ok_or_else(|| Unsaid(format!("the action {name} could not be written")))?;
                written.put("action", called);
                for input in names {
                    self.want(Kind::Action, name, &input);
                }
            }
        }
        if !input.is_empty() {
            written.put("input", input);
        }
        Ok((Node::from(written), notes))
    }

    // Triggers

    fn triggers(&mut self) {
        for trigger in &self.workspace.triggers {
            let path = format!("triggers.{}", trigger.name);
            let body = &trigger.body;
            let target = text(body, "task").unwrap_or_default().to_string();
            let Some(task) = self.workspace.task(&target) else {
                let note = format!("the task {target} is not in this workspace");
                self.row(trigger.file, &path, NotSupported, "", &note);
                continue;
            };
            let given = get(body, "input").map(mapping).unwrap_or_default();
            for (name, _) in &given {
                self.want(Kind::Task, &target, name);
            }
            let mut input = Map::default();
            let templates = given
                .iter()
                .any(|(_, value)| value.as_str().is_some_and(tera::is_template));
            for (name, value) in &given {
                let value = self.fit(Kind::Task, &target, name, Node::from(value), None);
                input.put(name, value);
            }
            if templates {
                self.row(trigger.file, &format!("{path}.input"), NotSupported, "", "holds a template; write it again, schedule.* or body and headers are what it sees here");
                continue;
            }
            match text(body, "type").unwrap_or_default() {
                "scheduler" => self.schedule(trigger, task, &path, input),
                "webhook" => self.webhook(trigger, task, &path, input),
                other => {
                    let note = format!(
                        "Stepward has no trigger of type {other}; let a webhook or a script submit the task"
                    );
                    self.row(trigger.file, &path, NotSupported, "", &note);
                }
            }
        }
    }

    fn task_map(&mut self, task: &Named) -> &mut Map {
        self.section(task.file, "tasks").map_mut(&task.name)
    }

    fn schedule(&mut self, trigger: &Named, task: &Named, path: &str, input: Map) {
        let body = &trigger.body;
        let cron = text(body, "cron").unwrap_or_default();
        let timezone = text(body, "timezone").unwrap_or("UTC");
        if let Err(error) = crate::cron::Cron::parse(cron, timezone) {
            let note = format!("the time {cron:?} cannot be read: {error}");
            self.row(trigger.file, path, NotSupported, cron, &note);
            return;
        }
        let mut schedule = Map::default();
        schedule.put(
            "cron",
            Node::Plain(serde_json::Value::from(cron).to_string()),
        );
        schedule.put("timezone", timezone);
        if !input.is_empty() {
            schedule.put("input", input);
        }
        schedule.put("overlap", text(body, "concurrency").unwrap_or("allow"));
        let mut latest = Map::default();
        latest.put("latest", Node::Plain("365d".to_string()));
        schedule.put("catch_up", latest);
        if let Some(enabled) = self.flag(trigger.file, path, body, "enabled") {
            schedule.put("enabled", enabled);
        }
        self.task_map(task)
            .map_mut("schedules")
            .put(&trigger.name, schedule);
        let place = format!("{}: {path}", trigger.file);
        self.place(task, &["schedules", &trigger.name], place);
        let note = format!("schedule {} of task {}", trigger.name, task.name);
        self.row(trigger.file, path, Converted, cron, &note);
        self.unused_keys(
            trigger.file,
            path,
            body,
            &[
                "type",
                "cron",
                "task",
                "input",
                "enabled",
                "timezone",
                "concurrency",
            ],
        );
    }

    fn webhook(&mut self, trigger: &Named, task: &Named, path: &str, mut input: Map) {
        let body = &trigger.body;
        if self.flag(trigger.file, path, body, "enabled") == Some(false) {
            self.row(trigger.file, path, LeftOut, "", "it is not enabled");
            return;
        }
        let name = text(body, "name").unwrap_or(&trigger.name).to_string();
        let secret = text(body, "secret");
        let letters = name.chars().map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        });
        let fallback = format!("{}_SECRET", letters.collect::<String>());
        let named = secret.and_then(variable_of);
        let mut reference = Map::default();
        reference.put("env", named.clone().unwrap_or(fallback.clone()));
        let mut webhook = Map::default();
        webhook.put("secret", reference);
        let note = match (secret, named) {
            (_, Some(_)) => {
                "the secret comes as a bearer token; ?secret= is not read here".to_string()
            }
            (Some(_), None) => format!(
                "the secret does not stand in the file here: put it into {fallback} of the server's environment; it comes as a bearer token, ?secret= is not read"
            ),
            (None, _) => format!(
                "it was open to everybody; here it needs a secret: put one into {fallback} of the server's environment"
            ),
        };
        // What the task reads of the request has to be declared and handed on.
        let key = (Kind::Task, task.name.clone());
        let wanted = self.wanted.get(&key).cloned().unwrap_or_default();
        let declared = self.declared.get(&key).cloned().unwrap_or_default();
        for part in ["body", "headers"] {
            if wanted.contains(part) || declared.contains(part) {
                input.put(part, format!("{{{{ {part} }}}}"));
            }
        }
        if !input.is_empty() {
            webhook.put("input", input);
        }
        self.task_map(task).map_mut("webhooks").put(&name, webhook);
        let place = format!("{}: {path}", trigger.file);
        self.place(task, &["webhooks", &name], place);
        self.row(
            trigger.file,
            path,
            Changed,
            "",
            &format!("webhook {name} of task {}; {note}", task.name),
        );
        for part in ["method", "query"] {
            if wanted.contains(part) || declared.contains(part) {
                let note = format!("input.{part} is not given by a webhook here");
                self.row(trigger.file, path, NotSupported, "", &note);
            }
        }
        if get(body, "mode").is_some() {
            let note = "a webhook answers at once; ask for the job at GET /api/jobs/{id}";
            self.row(
                trigger.file,
                &format!("{path}.mode"),
                NotSupported,
                "",
                note,
            );
        }
        self.unused_keys(
            trigger.file,
            path,
            body,
            &["type", "name", "task", "secret", "input", "enabled", "mode"],
        );
    }

    /// Strøm lets inputs pass that nobody declared; here they have to be.
    fn declare_what_is_given(&mut self) {
        for ((kind, name), inputs) in std::mem::take(&mut self.wanted) {
            let (named, section) = match kind {
                Kind::Action => (self.workspace.action(&name), "actions"),
                Kind::Task => (self.workspace.task(&name), "tasks"),
            };
            let Some(named) = named else { continue };
            if self
                .written
                .get(named.file)
                .is_none_or(|document| document.get(section).is_none())
            {
                continue;
            }
            for input in inputs {
                let map = self.section(named.file, section);
                if map.get(&name).is_none() {
                    continue;
                }
                let mut spec = Map::default();
                spec.put("type", "json");
                let definition = map.map_mut(&name);
                // Of a task they stand in front, of an action behind what it does.
                if kind == Kind::Task && definition.get("input").is_none() {
                    definition.put_first("input", Map::default());
                }
                definition.map_mut("input").put(&input, spec);
                let path = format!("{section}.{name}.input.{input}");
                self.row(
                    named.file,
                    &path,
                    Changed,
                    "",
                    "was used without being declared; declared as json",
                );
            }
        }
    }
}

/// Folders that Strøm keeps for a step, and what to do instead.
const KEPT_FOLDERS: [(&str, &str); 5] = [
    ("ARTIFACTS_DIR", NO_ARTIFACTS),
    ("GLOBAL_STATE_OUT_DIR", NO_STATE),
    ("GLOBAL_STATE_DIR", NO_STATE),
    ("STATE_OUT_DIR", NO_STATE),
    ("STATE_DIR", NO_STATE),
];

const NO_ARTIFACTS: &str =
    "artifacts are not kept here; let the script copy the files to a place that stays";

const NO_STATE: &str =
    "state is not kept between jobs here; let the script keep it in a place of its own";

/// What a script writes that Strøm keeps and nobody keeps here, in words.
fn not_kept(script: &str, is_shell: bool) -> BTreeSet<String> {
    let mut notes = BTreeSet::new();
    // Only shell scripts are given the folders; see `with_folders`.
    let [artifacts, state] = match is_shell {
        true => [
            "$ARTIFACTS_DIR is an empty folder that is removed after the step",
            "$STATE_DIR and $STATE_OUT_DIR are empty folders that are removed after the step",
        ],
        false => [
            "ARTIFACTS_DIR is not set in scripts of this language",
            "STATE_DIR and STATE_OUT_DIR are not set in scripts of this language",
        ],
    };
    for (folder, note, becomes) in [
        ("/artifacts", NO_ARTIFACTS, artifacts),
        ("/state-out", NO_STATE, state),
    ] {
        let is_absolute = |at: usize| {
            !script[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.}".contains(c))
        };
        let mut variables = KEPT_FOLDERS.iter().filter(|(_, of)| *of == note);
        if variables.any(|(name, _)| script.contains(name)) {
            notes.insert(format!("{becomes}, {note}"));
        } else if script.match_indices(folder).any(|(at, _)| is_absolute(at)) {
            notes.insert(format!("{folder} is no folder of ours, {note}"));
        }
    }
    if script.contains("STATE:") {
        notes.insert(format!(
            "a line that begins with STATE: is only a line of the log, {NO_STATE}"
        ));
    }
    notes
}

/// A shell script that finds the folders that it expects, though they are empty: an unset variable would lead it to `/`.
fn with_folders(script: String, is_shell: bool) -> String {
    // A longer name may hold a shorter one, so what is in front of it counts.
    let uses = |name: &str| {
        let is_whole =
            |at: usize| !script[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        script.match_indices(name).any(|(at, _)| is_whole(at))
    };
    let names: Vec<&str> = KEPT_FOLDERS
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| is_shell && uses(name))
        .collect();
    if names.is_empty() {
        return script;
    }
    let folders = names.iter().map(|name| {
        let folder = name.to_ascii_lowercase();
        format!("export {name}=\"$STEPWARD_TMP/{folder}\"; mkdir -p \"${name}\"\n")
    });
    let folders: String = folders.collect();
    match script.split_once('\n') {
        Some((first, rest)) if first.starts_with("#!") => format!("{first}\n{folders}{rest}"),
        _ => format!("{folders}{script}"),
    }
}

/// Keys of an action that say what it does, and of a step that is its own action.
const BODY_KEYS: [&str; 18] = [
    "type",
    "cmd",
    "script",
    "source",
    "runner",
    "language",
    "interpreter",
    "image",
    "command",
    "entrypoint",
    "env",
    "workdir",
    "tags",
    "output",
    "manifest",
    "dependencies",
    "args",
    "resources",
];

/// The keys that an action of this type does not look at, or that another key overrides.
fn unused_body_keys(action: &Mapping) -> Vec<&'static str> {
    let has = |key: &str| get(action, key).is_some();
    let in_container = ["image", "command", "entrypoint", "cmd"];
    let used: Vec<&str> = match text(action, "type").unwrap_or("script") {
        "docker" => in_container.to_vec(),
        "pod" => [&in_container[..], &["manifest"]].concat(),
        kind => {
            let source = match kind {
                "shell" if has("cmd") => "cmd",
                "shell" => "script",
                _ if has("script") => "script",
                _ if has("cmd") => "cmd",
                _ => "source",
            };
            let mut used = vec![source, "language", "interpreter", "runner"];
            // A script in a container says more about its manifest elsewhere.
            if text(action, "runner").is_some_and(|runner| runner != "local") {
                used.push("manifest");
            }
            used
        }
    };
    let all = [
        "script",
        "cmd",
        "source",
        "language",
        "interpreter",
        "runner",
        "image",
        "command",
        "entrypoint",
        "manifest",
    ];
    let all = all.into_iter();
    all.filter(|key| has(key) && !used.contains(key)).collect()
}

fn is_shell(language: &str) -> bool {
    ["shell", "bash", "sh"].contains(&language)
}

/// The inputs of an action that have a default.
fn defaults_of(action: &Named) -> Vec<(String, Value)> {
    let declared = get(&action.body, "input").map(mapping).unwrap_or_default();
    let defaults = declared.into_iter().filter_map(|(name, field)| {
        let default = get(field.as_mapping()?, "default")?.clone();
        Some((name, default))
    });
    defaults.filter(|(_, default)| !default.is_null()).collect()
}

/// How an input takes its value. Strøm renders every value to text, so a text takes numbers and booleans there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Text,
    Integer,
    Number,
    Boolean,
    AsItIs,
}

impl Taken {
    fn by(kind: &str, is_multiple: bool) -> Taken {
        match kind {
            _ if is_multiple => Taken::AsItIs,
            "string" | "text" | "date" | "datetime" => Taken::Text,
            "integer" => Taken::Integer,
            "number" => Taken::Number,
            "boolean" | "bool" => Taken::Boolean,
            _ => Taken::AsItIs,
        }
    }

    fn of_field(field: &Value) -> Taken {
        let body = field.as_mapping();
        let kind = body.and_then(|body| text(body, "type")).or(field.as_str());
        let is_multiple = body.is_some_and(is_multiple);
        Taken::by(kind.unwrap_or("string"), is_multiple)
    }

    /// The value as such an input takes it.
    fn fit(self, value: Node, is_text: impl Fn(&str) -> bool) -> Node {
        match (self, value) {
            (Taken::Text, value @ Node::Plain(_)) => Node::Text(rendered(&value)),
            (Taken::Text, Node::List(list)) if list.iter().all(is_rendered) => {
                Node::Text(rendered(&Node::List(list)))
            }
            (Taken::Text, Node::Text(text)) => match sole_expression(&text) {
                Some(inner) if !is_text(inner) => {
                    let is_path = |c: char| c.is_alphanumeric() || "_.[]'\"-".contains(c);
                    match inner.chars().all(is_path) {
                        true => Node::Text(format!("{{{{ {inner} | string }}}}")),
                        false => Node::Text(format!("{{{{ ({inner}) | string }}}}")),
                    }
                }
                _ => Node::Text(text),
            },
            (Taken::Integer, Node::Text(text)) if text.trim().parse::<i64>().is_ok() => {
                Node::Plain(text.trim().to_string())
            }
            (Taken::Number, Node::Text(text))
                if text.trim().parse::<f64>().is_ok_and(f64::is_finite) =>
            {
                // Only what reads as a number in YAML, too.
                match serde_yaml::from_str::<Value>(text.trim()) {
                    Ok(Value::Number(_)) => Node::Plain(text.trim().to_string()),
                    _ => Node::Text(text),
                }
            }
            (Taken::Boolean, Node::Text(text)) if ["true", "false"].contains(&text.trim()) => {
                Node::Plain(text.trim().to_string())
            }
            (_, value) => value,
        }
    }
}

/// Whether Tera renders all of it. It renders no mapping.
fn is_rendered(value: &Node) -> bool {
    match value {
        Node::Map(_) => false,
        Node::List(list) => list.iter().all(is_rendered),
        Node::Text(_) | Node::Plain(_) => true,
    }
}

/// A value as Tera renders it: null is nothing, 1.0 is `1`, a list is `[1, 2]`.
fn rendered(value: &Node) -> String {
    match value {
        Node::Text(text) => text.clone(),
        Node::Plain(text) if text == "null" => String::new(),
        Node::Plain(text) => plain_number(text),
        Node::List(list) => {
            let items: Vec<String> = list.iter().map(rendered).collect();
            format!("[{}]", items.join(", "))
        }
        Node::Map(_) => String::new(),
    }
}

/// A number as Tera renders it; any other text as it is.
fn plain_number(text: &str) -> String {
    let is_whole = text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
    match text.parse::<f64>() {
        Ok(number) if !is_whole && number.is_finite() => number.to_string(),
        _ => text.to_string(),
    }
}

/// The inputs that are declared as numbers with a fraction.
fn numbers_of(body: &Mapping) -> BTreeSet<String> {
    let fields = get(body, "input").map(mapping).unwrap_or_default();
    let numbers = fields
        .into_iter()
        .filter(|(_, field)| Taken::of_field(field) == Taken::Number);
    numbers.map(|(name, _)| name).collect()
}

fn is_multiple(field: &Mapping) -> bool {
    get(field, "multiple").and_then(as_flag) == Some(true)
}

/// What is inside, if the text is one `{{ … }}` and nothing else: then its value keeps its type here.
fn sole_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{") && !inner.contains("}}")).then(|| inner.trim())
}

/// Expressions that are texts already.
fn is_text_of(inputs: Option<&Value>) -> impl Fn(&str) -> bool {
    let fields = inputs.map(mapping).unwrap_or_default();
    move |expression| {
        // A text that has a text as its default is a text.
        let expression = match expression.split_once(" | default(") {
            Some((before, default))
                if default.starts_with(['\'', '"']) && default.ends_with([')']) =>
            {
                before
            }
            _ => expression,
        };
        let of_input = expression.strip_prefix("input.").is_some_and(|name| {
            let field = fields.iter().find(|(known, _)| known == name);
            field.is_some_and(|(_, field)| Taken::of_field(field) == Taken::Text)
        });
        let texts = [
            "hook.task",
            "hook.status",
            "hook.summary",
            "hook.started_at",
            "hook.ended_at",
        ];
        of_input || texts.contains(&expression) || expression.ends_with("| string")
    }
}

/// Turns the values of one step, and keeps what there is to tell.
struct Sayer<'a> {
    scope: &'a Scope,
    /// Key, outcome, note.
    notes: Vec<(String, Outcome, String)>,
    inputs: BTreeSet<String>,
}

/// The key under which a sayer remembers that a secret was named where none may be.
const SECRETS: &str = "secrets";

impl Sayer<'_> {
    fn note(&mut self, key: &str, outcome: Outcome, note: &str) {
        let row = (key.to_string(), outcome, note.to_string());
        if !self.notes.contains(&row) {
            self.notes.push(row);
        }
    }

    fn say(&mut self, key: &str, text: &str, quoting: Quoting) -> Result<String, Unsaid> {
        let Translated {
            text,
            notes,
            faults,
            inputs,
            uses_secrets,
            ..
        } = translate(text, self.scope, quoting);
        if let Some(fault) = faults.first() {
            return Err(Unsaid(format!("{key}: {fault}")));
        }
        for note in notes {
            self.note(key, Changed, &note);
        }
        let is_for_worker = matches!(
            key,
            "script" | "env" | "workdir" | "image" | "command" | "manifest"
        );
        if uses_secrets && !is_for_worker {
            self.note(SECRETS, NotSupported, key);
        }
        self.inputs.extend(inputs);
        Ok(text)
    }

    fn value(&mut self, key: &str, value: &Value) -> Result<Node, Unsaid> {
        Ok(match value {
            Value::String(text) => Node::from(self.say(key, text, Quoting::None)?),
            Value::Sequence(list) => {
                let items: Result<Vec<Node>, Unsaid> =
                    list.iter().map(|item| self.value(key, item)).collect();
                Node::from(items?)
            }
            Value::Mapping(_) => {
                let mut map = Map::default();
                for (name, value) in mapping(value) {
                    map.put(&name, self.value(key, &value)?);
                }
                Node::from(map)
            }
            other => Node::from(other),
        })
    }

    /// Secrets are only in what a worker is given.
    fn refuse_secrets(&self) -> Result<(), Unsaid> {
        match self.notes.iter().find(|(key, _, _)| key == SECRETS) {
            None => Ok(()),
            Some((_, _, key)) => Err(Unsaid(format!(
                "secrets are not in {key} here, name them in the script or env"
            ))),
        }
    }
}

/// A value as an expression that can stand in another template.
fn expression(value: &Node) -> String {
    if let Node::Text(text) = value {
        let inner = text
            .trim()
            .strip_prefix("{{")
            .and_then(|rest| rest.strip_suffix("}}"));
        if let Some(inner) = inner
            && !inner.contains("{{")
        {
            return inner.trim().to_string();
        }
        if !is_template(text) {
            return serde_json::Value::from(text.as_str()).to_string();
        }
        // Parts and templates joined: `a{{ b }}c` is "a" ~ b ~ "c".
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("{{") {
            let (inner, more) = after.split_once("}}").unwrap_or((after, ""));
            if !before.is_empty() {
                parts.push(serde_json::Value::from(before).to_string());
            }
            parts.push(format!("({})", inner.trim()));
            rest = more;
        }
        if !rest.is_empty() {
            parts.push(serde_json::Value::from(rest).to_string());
        }
        return parts.join(" ~ ");
    }
    match value {
        Node::Plain(text) if text == "null" => "\"\"".to_string(),
        Node::Plain(text) => plain_number(text),
        _ => "none".to_string(),
    }
}

/// `30m` needs no quotes.
fn duration(value: &Value) -> Node {
    match value.as_str() {
        Some(text)
            if text.ends_with(['s', 'm', 'h', 'd'])
                && text
                    .chars()
                    .all(|c| c.is_ascii_digit() || "smhd".contains(c))
                && text.starts_with(|c: char| c.is_ascii_digit()) =>
        {
            Node::Plain(text.to_string())
        }
        _ => Node::from(value),
    }
}

/// `{{ env.NAME }}`, and nothing else.
fn variable_of(text: &str) -> Option<String> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let name = inner.strip_prefix("env.")?;
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (is_name && !name.is_empty()).then(|| name.to_string())
}

/// One input or output.
fn spec(field: &Value) -> (Map, Vec<(String, Outcome, String)>) {
    let mut spec = Map::default();
    let mut notes = Vec::new();
    let empty = Mapping::new();
    let body = field.as_mapping().unwrap_or(&empty);
    let kind = text(body, "type").or(field.as_str()).unwrap_or("string");
    let kind = match kind {
        "string" | "text" | "integer" | "number" | "boolean" | "date" | "datetime" | "json" => kind,
        "bool" => "boolean",
        "array" | "object" | "list" | "map" => {
            notes.push(("type".to_string(), Changed, format!("{kind} is json here")));
            "json"
        }
        other => {
            notes.push(("type".to_string(), Changed, format!("the connection type {other} is json here: give the values themselves, not the name of a connection")));
            "json"
        }
    };
    spec.put("type", kind);
    if let Some(description) = text(body, "description").or(text(body, "name")) {
        spec.put("description", description);
    }
    let default = get(body, "default").filter(|default| !default.is_null());
    if !field.is_mapping() && !field.is_string() && !field.is_null() {
        let note = not_expected("a mapping", field);
        notes.push(("type".to_string(), NotSupported, note));
    }
    let is_on = |key: &str| get(body, key).and_then(as_flag) == Some(true);
    for key in ["required", "secret", "allow_custom", "multiple"] {
        let value = get(body, key).filter(|value| !value.is_null());
        if let Some(value) = value.filter(|value| as_flag(value).is_none()) {
            let note = not_expected("true or false", value);
            notes.push((key.to_string(), NotSupported, note));
        }
    }
    let is_required = is_on("required");
    match default {
        Some(Value::String(text)) if tera::is_template(text) => {
            notes.push((
                "default".to_string(),
                NotSupported,
                "a default is no template here; give the value where the task is submitted"
                    .to_string(),
            ));
        }
        Some(default) => {
            spec.put("default", fit_all(kind, default));
            if is_required {
                notes.push((
                    "required".to_string(),
                    LeftOut,
                    "it has a default, so nothing is required".to_string(),
                ));
            }
        }
        None if is_required => spec.put("required", true),
        None => {}
    }
    if is_on("secret") {
        spec.put("secret", true);
    }
    if let Some(options) = get(body, "options") {
        if is_on("allow_custom") {
            notes.push(("options".to_string(), Changed, "options are all that is allowed here; left out, because other values are allowed there".to_string()));
        } else {
            spec.put("options", fit_all(kind, options));
        }
    }
    if is_multiple(body) {
        spec.put("multiple", true);
    }
    let known = [
        "type",
        "description",
        "name",
        "default",
        "required",
        "secret",
        "options",
        "allow_custom",
        "multiple",
        "order",
    ];
    for key in body.keys().map(key_text) {
        if !known.contains(&key.as_str()) {
            let note = no_equivalent(&key);
            notes.push((key, NotSupported, note));
        }
    }
    (spec, notes)
}

/// A value, or each value of a list, as an input of this type takes it.
fn fit_all(kind: &str, value: &Value) -> Node {
    let taken = Taken::by(kind, false);
    let fit = |value: &Value| taken.fit(Node::from(value), |_| true);
    match value {
        Value::Sequence(list) if taken != Taken::AsItIs => {
            Node::from(list.iter().map(fit).collect::<Vec<Node>>())
        }
        value => fit(value),
    }
}

fn container_body(action: &Mapping, say: &mut Sayer, body: &mut Map) -> Result<(), Unsaid> {
    let image = text(action, "image").ok_or_else(|| Unsaid("it has no image".to_string()))?;
    body.put("image", say.say("image", image, Quoting::Choice)?);
    let entrypoint = words(get(action, "entrypoint"));
    if !entrypoint.is_empty() {
        let said: Result<Vec<Node>, Unsaid> = entrypoint
            .iter()
            .map(|word| Ok(Node::from(say.say("command", word, Quoting::Choice)?)))
            .collect();
        body.put("entrypoint", said?);
    }
    let command = command_words(action, say)?;
    if !command.is_empty() {
        body.put(
            "command",
            command.into_iter().map(Node::from).collect::<Vec<_>>(),
        );
    }
    Ok(())
}

fn words(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Sequence(list)) => list.iter().map(plain_text).collect(),
        Some(Value::String(word)) => vec![word.clone()],
        _ => Vec::new(),
    }
}

fn command_words(action: &Mapping, say: &mut Sayer) -> Result<Vec<String>, Unsaid> {
    let mut command = Vec::new();
    let (entrypoint, written) = (
        words(get(action, "entrypoint")),
        words(get(action, "command")),
    );
    fn borrowed(words: &[String]) -> Vec<&str> {
        words.iter().map(String::as_str).collect()
    }
    let roles = arguments::roles(
        text(action, "image"),
        &borrowed(&entrypoint),
        &borrowed(&written),
    );
    for (word, role) in written.iter().zip(&roles[entrypoint.len()..]) {
        let quoting = match role {
            Role::Data => Quoting::None,
            Role::Code(Program::Shell) => Quoting::Shell,
            Role::Code(_) => Quoting::Unsafe,
            Role::Choice(_) => Quoting::Choice,
        };
        command.push(say.say("command", word, quoting)?);
    }
    if let Some(cmd) = text(action, "cmd") {
        let has_entrypoint = get(action, "entrypoint").is_some();
        let quoting = if has_entrypoint {
            Quoting::None
        } else {
            Quoting::Shell
        };
        let cmd = say.say("command", cmd, quoting)?;
        if has_entrypoint {
            command.extend(cmd.split_whitespace().map(str::to_string));
            say.note(
                "cmd",
                Changed,
                "split into words, which the entrypoint is given",
            );
        } else {
            command = vec!["sh".to_string(), "-c".to_string(), cmd];
            say.note(
                "cmd",
                Changed,
                "written as command: [sh, -c, …]; the image needs sh",
            );
        }
    }
    Ok(command)
}

/// The pod that Strøm makes, with the action's own parts put over it.
fn pod_manifest(action: &Mapping, say: &mut Sayer) -> Result<Value, Unsaid> {
    let image = text(action, "image").ok_or_else(|| Unsaid("it has no image".to_string()))?;
    let mut container = Mapping::new();
    container.insert("name".into(), "step".into());
    container.insert(
        "image".into(),
        say.say("image", image, Quoting::Choice)?.into(),
    );
    let entrypoint = words(get(action, "entrypoint"));
    if !entrypoint.is_empty() {
        container.insert("command".into(), entrypoint.into());
    }
    let command = command_words(action, say)?;
    if !command.is_empty() {
        // What Docker calls command are a container's args, unless it brings its own shell.
        let key = if text(action, "cmd").is_some() && get(action, "entrypoint").is_none() {
            "command"
        } else {
            "args"
        };
        container.insert(key.into(), command.into());
    }
    let mut spec = Mapping::new();
    spec.insert("restartPolicy".into(), "Never".into());
    spec.insert("containers".into(), Value::Sequence(vec![container.into()]));
    let mut pod = Mapping::new();
    pod.insert("apiVersion".into(), "v1".into());
    pod.insert("kind".into(), "Pod".into());
    pod.insert("spec".into(), spec.into());
    let mut pod = Value::from(pod);
    if let Some(over) = get(action, "manifest") {
        let mut said = over.clone();
        say_all(&mut said, say)?;
        lay_over(&mut pod, &said);
    }
    Ok(pod)
}

fn say_all(value: &mut Value, say: &mut Sayer) -> Result<(), Unsaid> {
    match value {
        Value::String(text) => *text = say.say("manifest", text, Quoting::None)?,
        Value::Sequence(list) => {
            for item in list {
                say_all(item, say)?;
            }
        }
        Value::Mapping(map) => {
            for (_, value) in map.iter_mut() {
                say_all(value, say)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Maps are joined, lists of named things by their names, everything else is replaced.
fn lay_over(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Mapping(under), Value::Mapping(over)) => {
            for (key, value) in over {
                match under.get_mut(key) {
                    Some(there) => lay_over(there, value),
                    None => drop(under.insert(key.clone(), value.clone())),
                }
            }
        }
        (Value::Sequence(under), Value::Sequence(over))
            if over.iter().all(|item| item.get("name").is_some()) =>
        {
            for item in over {
                match under
                    .iter_mut()
                    .find(|there| there.get("name") == item.get("name"))
                {
                    Some(there) => lay_over(there, item),
                    None => under.push(item.clone()),
                }
            }
        }
        (under, over) => *under = over.clone(),
    }
}
