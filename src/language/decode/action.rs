//! What a step or a named action does: its type, and the keys of that type.

use serde_json::Value;

use super::policies::{self, Policies};
use super::{Decoder, Owner, Place, SpecParts, Text, collect, collect_as, find, first_line};
use crate::domain::Json;
use crate::domain::check::image_fault;
use crate::domain::limits;
use crate::domain::task::{Action, Runner, is_template};
use crate::domain::words;
use crate::language::arguments::{self, Choice, Role};
use crate::language::diagnostic::Problem;
use crate::language::manifest;
use crate::language::shell::Program;
use crate::language::source::Span;
use crate::language::template;
use crate::language::tree::{Entry, Key, Kind, Node};
use crate::language::words::{Where, listed, one};

words! {
    pub enum StepType {
        Script = "script",
        Docker = "docker",
        Pod = "pod",
        Task = "task",
        Approval = "approval",
    }
}

/// The keys that say what is done, and the types that have them.
const TYPE_KEYS: &[(&str, &[StepType])] = &[
    ("runner", &[StepType::Script]),
    ("script", &[StepType::Script]),
    ("file", &[StepType::Script]),
    ("language", &[StepType::Script]),
    ("image", &[StepType::Script, StepType::Docker]),
    ("entrypoint", &[StepType::Docker]),
    ("command", &[StepType::Docker]),
    ("manifest", &[StepType::Pod]),
    ("task", &[StepType::Task]),
    ("message", &[StepType::Approval]),
    ("env", WORK),
    ("workdir", WORK),
    ("tags", WORK),
    ("on_worker_loss", WORK),
    ("unmatched", WORK),
    (
        "outputs",
        &[
            StepType::Script,
            StepType::Docker,
            StepType::Pod,
            StepType::Task,
        ],
    ),
    (
        "retry",
        &[
            StepType::Script,
            StepType::Docker,
            StepType::Pod,
            StepType::Task,
        ],
    ),
    (
        "for_each",
        &[
            StepType::Script,
            StepType::Docker,
            StepType::Pod,
            StepType::Task,
        ],
    ),
    (
        "max_parallel",
        &[
            StepType::Script,
            StepType::Docker,
            StepType::Pod,
            StepType::Task,
        ],
    ),
];
const WORK: &[StepType] = &[StepType::Script, StepType::Docker, StepType::Pod];

/// A named action as it stands in its file.
#[derive(Debug)]
pub struct ActionParts<'t> {
    pub key: &'t Key,
    /// Span of everything that the action says.
    pub span: Span,
    pub owner: Owner,
    /// `None`: it is broken, and that has been said.
    pub action: Option<Action>,
    pub inputs: Vec<SpecParts>,
    pub policies: Policies,
    pub texts: Vec<Text<'t>>,
    pub manifest: Option<ManifestParts<'t>>,
    pub whole: bool,
}

/// The manifest of a pod. What its texts become depends on the variables that the step adds, so they are judged when all is read.
#[derive(Debug)]
pub struct ManifestParts<'t> {
    /// A map, or a text of YAML.
    pub node: &'t Node,
    pub tree: Value,
}

impl Decoder<'_> {
    pub fn action<'t>(&mut self, key: &'t Key, node: &'t Node) -> ActionParts<'t> {
        let errors_before = self.problems.errors();
        let owner = Owner::new("action", key, Where::Step);
        let mut parts = ActionParts {
            key,
            span: node.span,
            owner: owner.clone(),
            action: None,
            inputs: Vec::new(),
            policies: Policies::default(),
            texts: Vec::new(),
            manifest: None,
            whole: true,
        };
        if let Some(entries) = self.map(node, &owner) {
            let own = ["type", "input", "description"];
            let work = TYPE_KEYS.iter().map(|(key, _)| *key);
            let work =
                work.filter(|key| !["task", "message", "for_each", "max_parallel"].contains(key));
            let known: Vec<&str> = own.into_iter().chain(work).chain(["timeout"]).collect();
            for entry in entries {
                let key = entry.key.text.as_str();
                let of_a_step = [
                    "depends_on",
                    "when",
                    "for_each",
                    "max_parallel",
                    "continue_on_failure",
                ];
                if of_a_step.contains(&key) {
                    self.problems
                        .error(
                            "E013",
                            entry.key.span,
                            format!("`{key}` is not a key of an action"),
                        )
                        .label("belongs to the step that uses it")
                        .also(owner.span, "in this action");
                } else if !known.contains(&key) {
                    self.unknown_key(entry, &owner, &known);
                }
            }
            if let Some(input) = find(entries, "input") {
                parts.inputs = self.specs(input, &owner, "input");
            }
            if let Some(kind) = self.step_type(entries, &owner) {
                if matches!(kind, StepType::Task | StepType::Approval) {
                    let at = find(entries, "type").map_or(owner.span, |entry| entry.value.span);
                    self.problems
                        .error("E013", at, format!("an action cannot be of type {kind}"))
                        .label("expected `script`, `docker` or `pod`")
                        .also(owner.span, "in this action")
                        .help(format!("write a step of `type: {kind}` where it is needed"));
                } else {
                    self.keys_of_type(entries, &owner, kind);
                    let (texts, manifest) = (&mut parts.texts, &mut parts.manifest);
                    parts.action = self.body(entries, &owner, kind, texts, manifest);
                }
            }
            parts.policies = self.policies(entries, &owner, &mut parts.texts);
        }
        parts.whole = self.problems.errors() == errors_before && parts.action.is_some();
        parts
    }

    /// By `type:`, or by a script that is there.
    pub fn step_type(&mut self, entries: &[Entry], owner: &Owner) -> Option<StepType> {
        if let Some(entry) = find(entries, "type") {
            let all: Vec<&str> = StepType::ALL.iter().map(|kind| kind.as_str()).collect();
            return self.word(&entry.value, "type", owner, StepType::from_word, &all);
        }
        if find(entries, "script").is_some() || find(entries, "file").is_some() {
            return Some(StepType::Script);
        }
        // The text of a script under a word of another tool: that has been said.
        if ["run", "cmd", "uses", "steps"]
            .iter()
            .any(|key| find(entries, key).is_some())
        {
            return None;
        }
        let guess = [
            (
                "image",
                "write `type: docker`, or add a `script:` for `runner: docker`",
            ),
            (
                "command",
                "write `script:` instead of `command:`, or add `type: docker`",
            ),
            ("manifest", "write `type: pod`"),
            ("task", "write `type: task`"),
            ("message", "write `type: approval`"),
        ];
        let help = guess
            .iter()
            .find(|(key, _)| find(entries, key).is_some())
            .map_or(
                "write `script:` with what it does, or a `type:`",
                |(_, help)| help,
            );
        self.missing(owner, "type", help);
        None
    }

    /// Keys that other types have.
    pub fn keys_of_type(&mut self, entries: &[Entry], owner: &Owner, kind: StepType) {
        for entry in entries {
            let key = entry.key.text.as_str();
            let Some((_, types)) = TYPE_KEYS.iter().find(|(known, _)| *known == key) else {
                continue;
            };
            if types.contains(&kind) {
                continue;
            }
            let message = format!("`{key}` is not a key of {} of type {kind}", one(owner.kind));
            let problem = self.problems.error("E013", entry.key.span, message);
            problem
                .label(format!(
                    "belongs to type {}",
                    listed(types.iter().map(|kind| kind.as_str()))
                ))
                .also(owner.span, format!("in this {}", owner.kind));
            match (key, kind) {
                ("command", StepType::Script) => {
                    problem
                        .help("the text of a script is `script:`")
                        .fix(entry.key.span, "script");
                }
                ("script", StepType::Docker) => {
                    problem.help("a script in a container is `type: script` with `runner: docker`");
                }
                ("tags", StepType::Task | StepType::Approval) => {
                    problem.help("the server itself does this step, no worker is needed");
                }
                ("env", StepType::Task) => {
                    problem.help("give the task its values under `input:`");
                }
                ("for_each", StepType::Approval) => {
                    problem.help("ask once, in a step before the loop");
                }
                _ => {}
            }
        }
    }

    /// What is done, from the keys of its type.
    pub fn body<'t>(
        &mut self,
        entries: &'t [Entry],
        owner: &Owner,
        kind: StepType,
        texts: &mut Vec<Text<'t>>,
        manifest: &mut Option<ManifestParts<'t>>,
    ) -> Option<Action> {
        match kind {
            StepType::Script => self.script_body(entries, owner, texts),
            StepType::Docker => {
                let image = self.image(entries, owner, texts);
                if find(entries, "image").is_none() {
                    let help = "name what is run: `image: alpine:3.20`";
                    self.missing(owner, "image", help);
                }
                let entrypoint = self.words(entries, "entrypoint", owner);
                let command = self.words(entries, "command", owner);
                collect_arguments(image.as_deref(), &entrypoint, &command, texts);
                let written = |words: Vec<(&str, &Node)>| {
                    let words = words.into_iter();
                    words.map(|(text, _)| text.to_string()).collect()
                };
                Some(Action::Docker {
                    image: image?,
                    entrypoint: written(entrypoint),
                    command: written(command),
                })
            }
            StepType::Pod => {
                let Some(entry) = find(entries, "manifest") else {
                    let help = "give the pod as a map, or as a text under `|`";
                    self.missing(owner, "manifest", help);
                    return None;
                };
                let node = &entry.value;
                let text = match &node.kind {
                    Kind::Map(_) => {
                        let tree = self.manifest_tree(node, texts)?;
                        let text = tree.to_string();
                        *manifest = Some(ManifestParts { node, tree });
                        text
                    }
                    _ => {
                        let text = self.some_text(entry, owner)?;
                        collect(node, text, Place::Worker, texts);
                        if is_template(text) || text.contains("$(") {
                            let tree = self.manifest_text(entry, text);
                            *manifest = tree.map(|tree| ManifestParts { node, tree });
                        }
                        text.to_string()
                    }
                };
                Some(Action::Pod { manifest: text })
            }
            StepType::Task => {
                let Some(entry) = find(entries, "task") else {
                    self.missing(owner, "task", "name the task that is called: `task: NAME`");
                    return None;
                };
                let task = self.some_text(entry, owner)?.to_string();
                // Its input is added by whoever reads the step's.
                let input = Json::empty_object();
                Some(Action::Task { task, input })
            }
            StepType::Approval => {
                let message = match find(entries, "message") {
                    Some(entry) => {
                        let text = self.text(entry, owner);
                        if let Some(text) = text {
                            collect(&entry.value, text, Place::Message, texts);
                        }
                        text.unwrap_or_default().to_string()
                    }
                    None => String::new(),
                };
                let inputs = Vec::new();
                Some(Action::Approval { message, inputs })
            }
        }
    }

    fn script_body<'t>(
        &mut self,
        entries: &'t [Entry],
        owner: &Owner,
        texts: &mut Vec<Text<'t>>,
    ) -> Option<Action> {
        let runner = match find(entries, "runner") {
            None => Some(Runner::Local),
            Some(entry) => {
                let all = ["local", "docker", "pod"];
                self.word(&entry.value, "runner", owner, Runner::from_word, &all)
            }
        };
        let image = self.image(entries, owner, texts);
        match (runner, find(entries, "image")) {
            (Some(Runner::Local), Some(entry)) => {
                self.problems
                    .error(
                        "E013",
                        entry.key.span,
                        "`image` needs a script that runs in a container",
                    )
                    .label("a local script has no image")
                    .also(owner.span, format!("in this {}", owner.kind))
                    .help("add `runner: docker`, or remove the image");
            }
            (Some(runner @ (Runner::Docker | Runner::Pod)), None) => {
                let help =
                    format!("`runner: {runner}` runs the script in an image: `image: alpine:3.20`");
                self.missing(owner, "image", help);
            }
            _ => {}
        }
        let language = match find(entries, "language") {
            None => None,
            Some(entry) => self.some_text(entry, owner).map(|text| {
                let good = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
                let is_name =
                    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(good);
                if !is_name && !is_template(text) {
                    let message = format!("`{text}` is not the name of a program");
                    self.problems
                        .error("E029", entry.value.span, message)
                        .label("expected such as `sh`, `bash`, `python` or `node`")
                        .help("for a program with arguments, begin the script with a `#!` line");
                }
                let role = Role::Choice(Choice::Language);
                collect_as(role, &entry.value, text, Place::Worker, texts);
                text.to_string()
            }),
        };
        let script = match (find(entries, "script"), find(entries, "file")) {
            (Some(_), Some(file)) => {
                self.exclusive(owner, "script", file);
                return None;
            }
            (Some(entry), None) => {
                let text = self.some_text(entry, owner)?;
                self.script_text(entry, text);
                collect(&entry.value, text, Place::Script, texts);
                text.to_string()
            }
            (None, Some(entry)) => {
                let path = self.some_text(entry, owner)?;
                match self.scripts.read(path) {
                    Ok(text) => {
                        if is_template(&text) {
                            let shown = text.clone().into();
                            texts.push(Text::new(&entry.value, shown, Place::Script, true));
                        }
                        text
                    }
                    Err(fault) => {
                        self.problems
                            .error("E028", entry.value.span, format!("the file {fault}"))
                            .label("cannot be used")
                            .also(owner.span, format!("in this {}", owner.kind))
                            .help("name a text file inside the workflows folder, relative to it");
                        return None;
                    }
                }
            }
            (None, None) => {
                self.missing(owner, "script", "write what it does: `script: make build`");
                return None;
            }
        };
        let scripts = texts.iter_mut().filter(|text| text.place == Place::Script);
        for text in scripts {
            text.role = Role::Code(Program::of(language.as_deref(), &script));
        }
        Some(Action::Script {
            runner: runner?,
            image,
            language,
            script,
        })
    }

    fn script_text(&mut self, entry: &Entry, text: &str) {
        let (bytes, max) = (text.len(), limits::SCRIPT_BYTES_MAX);
        if bytes > max {
            let message = format!("the script is {bytes} bytes long, at most {max} are allowed");
            self.problems
                .error("E062", entry.key.span, message)
                .label("too long");
        }
        if super::super::secrets::holds_token(text) {
            self.looks_secret("script", text, entry.key.span);
        }
    }

    fn image<'t>(
        &mut self,
        entries: &'t [Entry],
        owner: &Owner,
        texts: &mut Vec<Text<'t>>,
    ) -> Option<String> {
        let entry = find(entries, "image")?;
        let text = self.some_text(entry, owner)?;
        let role = Role::Choice(Choice::Image);
        collect_as(role, &entry.value, text, Place::Worker, texts);
        if !is_template(text) && image_fault(text).is_some() {
            let message = format!("`{text}` is not the name of an image");
            self.problems
                .error("E026", entry.value.span, message)
                .label("expected such as `alpine:3.20` or `ghcr.io/org/app:1`")
                .also(owner.span, format!("in this {}", owner.kind));
            return None;
        }
        Some(text.to_string())
    }

    /// The words of an argument list.
    fn words<'t>(
        &mut self,
        entries: &'t [Entry],
        key: &str,
        owner: &Owner,
    ) -> Vec<(&'t str, &'t Node)> {
        match find(entries, key) {
            Some(entry) => self.texts(entry, owner),
            None => Vec::new(),
        }
    }

    /// A manifest that is written as YAML of the workflow file.
    fn manifest_tree<'t>(&mut self, node: &'t Node, texts: &mut Vec<Text<'t>>) -> Option<Value> {
        let tree = self.json(node, Place::Worker, texts)?;
        if let Some(key) = key_with_template(node) {
            self.structure_fault(key.span, "a key of the manifest contains a template")
                .label("keys are never rendered");
        }
        Some(tree)
    }

    /// A manifest that is written as a text. It is read before its templates are rendered, so each of them stands inside one scalar.
    fn manifest_text(&mut self, entry: &Entry, text: &str) -> Option<Value> {
        let span = first_line(&entry.value);
        let tree = match manifest::read(text) {
            Ok(tree) if tree.is_object() => tree,
            // The worker says what is wrong with a manifest that has no templates.
            _ if !is_template(text) => return None,
            Ok(_) => {
                self.structure_fault(entry.key.span, "a template decides the whole manifest")
                    .label("the manifest is no map before its templates are rendered");
                return None;
            }
            Err(why) => {
                self.structure_fault(
                    entry.key.span,
                    "the manifest cannot be read before its templates are rendered",
                )
                .label("a template stands outside of a quoted text, or spans several keys")
                .help(format!(
                    "{why} (counted from the beginning of the manifest)"
                ));
                return None;
            }
        };
        if manifest::key_with_template(&tree).is_some() {
            self.structure_fault(entry.key.span, "a key of the manifest contains a template")
                .label("keys are never rendered");
            return None;
        }
        if template::mentions(text).is_ok() {
            for (place, part) in manifest::templates(&tree) {
                if template::mentions(part).is_err() {
                    let message = format!(
                        "the template at `{}` of the manifest goes beyond one text",
                        place.trim_start_matches('/')
                    );
                    self.structure_fault(span, message)
                        .label("a block begins in one text and ends in another");
                }
            }
        }
        Some(tree)
    }

    fn structure_fault(&mut self, span: Span, message: impl Into<String>) -> &mut Problem {
        let problem = self.problems.new_rule("E071", span, message);
        problem.help(
            "put each template into one quoted text, such as `image: \"{{ input.image }}\"`, and `{% if … %}` inside such a \
             text; a quoted template that gives a number stays a number where one belongs",
        )
    }
}

/// Keeps the words with templates of an argument list, with what each of them is to the program that receives it.
fn collect_arguments<'t>(
    image: Option<&str>,
    entrypoint: &[(&'t str, &'t Node)],
    command: &[(&'t str, &'t Node)],
    texts: &mut Vec<Text<'t>>,
) {
    let written = |words: &[(&'t str, &'t Node)]| -> Vec<&'t str> {
        words.iter().map(|(text, _)| *text).collect()
    };
    let roles = arguments::roles(image, &written(entrypoint), &written(command));
    let words = entrypoint.iter().chain(command);
    for ((text, node), role) in words.zip(roles) {
        collect_as(role, node, text, Place::Worker, texts);
    }
}

fn key_with_template(node: &Node) -> Option<&Key> {
    match &node.kind {
        Kind::Map(entries) => entries.iter().find_map(|entry| {
            let key = Some(&entry.key).filter(|key| is_template(&key.text));
            key.or_else(|| key_with_template(&entry.value))
        }),
        Kind::List(members) => members.iter().find_map(key_with_template),
        _ => None,
    }
}

/// Every key that a step may have.
pub fn step_keys() -> Vec<&'static str> {
    let own = [
        "type",
        "action",
        "depends_on",
        "when",
        "input",
        "continue_on_failure",
    ];
    let mut keys: Vec<&str> = own.to_vec();
    keys.extend(TYPE_KEYS.iter().map(|(key, _)| *key));
    keys.extend(policies::KEYS);
    keys.sort();
    keys.dedup();
    keys
}

/// The keys of one type's own, which a step with `action:` has not.
pub fn is_body_key(key: &str) -> bool {
    matches!(
        key,
        "runner"
            | "script"
            | "file"
            | "language"
            | "image"
            | "entrypoint"
            | "command"
            | "manifest"
            | "task"
            | "message"
            | "workdir"
    )
}
