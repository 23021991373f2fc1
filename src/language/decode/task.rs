//! A task and its own keys.

use super::{
    Decoder, HookParts, Owner, Place, ScheduleParts, SpecParts, StepParts, Text, WebhookParts,
    collect, find,
};
use crate::domain::limits;
use crate::domain::task::{Concurrency, HookOn, TaskDraft, WhenFull};
use crate::language::source::Span;
use crate::language::tree::{Entry, Key, Kind, Node};
use crate::language::words::Where;

const KEYS: &[&str] = &[
    "description",
    "input",
    "timeout",
    "queue_timeout",
    "priority",
    "concurrency",
    "env",
    "flow",
    "on_error",
    "on_success",
    "on_cancel",
    "on_suspended",
    "schedules",
    "webhooks",
];

/// A task as it stands in its file.
#[derive(Debug)]
pub struct TaskParts<'t> {
    pub key: &'t Key,
    pub owner: Owner,
    /// Without its steps, inputs, hooks and secrets, which are added when all is known to be whole.
    pub draft: TaskDraft,
    pub inputs: Vec<SpecParts>,
    /// All their names are known, even if one is broken.
    pub inputs_known: bool,
    pub steps: Vec<StepParts<'t>>,
    pub hooks: Vec<HookParts<'t>>,
    pub schedules: Vec<ScheduleParts<'t>>,
    pub webhooks: Vec<WebhookParts<'t>>,
    pub texts: Vec<Text<'t>>,
    pub timeout: Option<Span>,
    /// Nothing was wrong with it so far.
    pub whole: bool,
    /// All its steps are known, even if one is broken.
    pub flow_known: bool,
}

impl Decoder<'_> {
    pub fn task<'t>(&mut self, key: &'t Key, node: &'t Node) -> TaskParts<'t> {
        let errors_before = self.problems.errors();
        let owner = Owner::new("task", key, Where::Task);
        let mut parts = TaskParts {
            key,
            owner: owner.clone(),
            draft: TaskDraft::new(&key.text, Vec::new()),
            inputs: Vec::new(),
            inputs_known: true,
            steps: Vec::new(),
            hooks: Vec::new(),
            schedules: Vec::new(),
            webhooks: Vec::new(),
            texts: Vec::new(),
            timeout: None,
            whole: true,
            flow_known: true,
        };
        if let Some(entries) = self.map(node, &owner) {
            self.task_keys(entries, &owner, &mut parts);
        } else {
            parts.flow_known = false;
        }
        parts.whole = self.problems.errors() == errors_before && !node.is_broken();
        parts
    }

    fn task_keys<'t>(&mut self, entries: &'t [Entry], owner: &Owner, parts: &mut TaskParts<'t>) {
        self.known_keys(entries, owner, KEYS);
        let odd = ["params", "inputs", "with"];
        parts.inputs_known = !odd.iter().any(|word| find(entries, word).is_some());
        for entry in entries {
            match entry.key.text.as_str() {
                "description" => {
                    let text = self.text(entry, owner);
                    parts.draft.description = text.map(str::to_string);
                }
                "input" => {
                    parts.inputs = self.specs(entry, owner, "input");
                    parts.inputs_known =
                        matches!(entry.value.kind, Kind::Map(_)) || entry.value.is_null();
                }
                "timeout" => {
                    parts.draft.timeout_ms = self.duration(entry, owner, 1);
                    parts.timeout = Some(entry.value.span);
                }
                "queue_timeout" => parts.draft.queue_timeout_ms = self.duration(entry, owner, 1),
                "priority" => {
                    let (min, max) = (i32::MIN.into(), i32::MAX.into());
                    let priority = self.number(entry, owner, min, max);
                    parts.draft.priority = priority.unwrap_or_default() as i32;
                }
                "concurrency" => {
                    parts.draft.concurrency = self.concurrency(entry, owner, &mut parts.texts);
                }
                "env" => {
                    parts.draft.env = self.env(entry, owner, Place::TaskEnv, &mut parts.texts);
                }
                "flow" => self.flow(entry, owner, parts),
                "schedules" => {
                    for (key, node) in self.named(entry, "schedules", "schedule") {
                        parts
                            .schedules
                            .push(self.schedule(key, node, &parts.key.text));
                    }
                }
                "webhooks" => {
                    for (key, node) in self.named(entry, "webhooks", "webhook") {
                        parts
                            .webhooks
                            .push(self.webhook(key, node, &parts.key.text));
                    }
                }
                word => {
                    if let Some(on) = HookOn::from_word(word) {
                        self.hooks(entry, owner, on, &mut parts.hooks);
                    }
                }
            }
        }
        if find(entries, "flow").is_none() {
            parts.flow_known = false;
            // Whoever wrote the steps under another tool's word has been told.
            let said = ["steps", "jobs"]
                .iter()
                .any(|word| find(entries, word).is_some());
            if !said {
                let help = "name its steps: `flow: { build: { script: make } }`";
                self.missing(owner, "flow", help);
            }
        }
    }

    fn flow<'t>(&mut self, entry: &'t Entry, owner: &Owner, parts: &mut TaskParts<'t>) {
        let flow = owner.below("flow", &entry.key);
        match &entry.value.kind {
            Kind::List(_) => {
                parts.flow_known = false;
                self.problems
                    .error(
                        "E015",
                        entry.key.span,
                        "the steps are a list, as in other tools",
                    )
                    .label("expected a map")
                    .also(owner.span, "in this task")
                    .help("each step is named by its key: `flow: { build: { script: make } }`");
            }
            Kind::Map(entries) => {
                let (count, max) = (entries.len(), limits::JOB_STEPS_MAX);
                if count > max {
                    let message = format!(
                        "{} has {count} steps, at most {max} are allowed",
                        owner.what
                    );
                    self.problems
                        .error("E062", entry.key.span, message)
                        .label("too many steps")
                        .help("loop with `for_each`, or split it into tasks that call each other");
                    parts.flow_known = false;
                    return;
                }
                for step in entries {
                    self.name(&step.key, "step");
                    let step = self.step(&step.key, &step.value);
                    parts.steps.push(step);
                }
                if entries.is_empty() {
                    self.no_steps(entry, owner);
                }
            }
            _ if entry.value.is_null() => self.no_steps(entry, owner),
            _ => {
                parts.flow_known = false;
                self.wrong_type(&entry.value, &flow.what, "a map of steps");
            }
        }
    }

    fn no_steps(&mut self, entry: &Entry, owner: &Owner) {
        let message = format!("{} has no steps", owner.what);
        self.problems
            .error("E019", entry.key.span, message)
            .label("nothing in it")
            .also(owner.span, "in this task")
            .help("name at least one step: `flow: { build: { script: make } }`");
    }

    fn concurrency<'t>(
        &mut self,
        entry: &'t Entry,
        owner: &Owner,
        texts: &mut Vec<Text<'t>>,
    ) -> Option<Concurrency> {
        let owner = owner.below("concurrency", &entry.key);
        let entries = self.map(&entry.value, &owner)?;
        self.known_keys(entries, &owner, &["group", "limit", "when_full"]);
        let group = match find(entries, "group") {
            Some(group) => {
                let text = self.some_text(group, &owner);
                if let Some(text) = text {
                    collect(&group.value, text, Place::Concurrency, texts);
                }
                text
            }
            None => {
                self.missing(&owner, "group", "name the group that shares the limit");
                None
            }
        };
        let limit = match find(entries, "limit") {
            Some(limit) => self.number(limit, &owner, 1, u32::MAX.into()),
            None => Some(1),
        };
        let when_full = match find(entries, "when_full") {
            Some(entry) => {
                let all = ["queue", "skip", "cancel_previous"];
                self.word(&entry.value, "when_full", &owner, WhenFull::from_word, &all)
            }
            None => Some(WhenFull::Queue),
        };
        Some(Concurrency {
            group: group?.to_string(),
            limit: limit? as u32,
            when_full: when_full?,
        })
    }
}
