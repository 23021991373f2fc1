//! Definitions: a task, its steps and what each does, as they were written and once `check.rs` has checked them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::depends::DependsOn;
use super::retry::{OnWorkerLoss, RetryPolicy};
use super::secret::SecretRef;
use super::step::StepKind;
use super::value::ValueSpec;
use super::{Json, words};

/// A task as somebody wrote it. Texts may be templates; `language::template` renders them when they are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskDraft {
    pub name: String,
    pub description: Option<String>,
    pub inputs: Vec<ValueSpec>,
    /// In the environment of every step that a worker runs.
    pub env: BTreeMap<String, String>,
    pub steps: Vec<StepDraft>,
    /// Bounds the running time of a job, from its first start. `None`: the server's default.
    pub timeout_ms: Option<i64>,
    /// Bounds the waiting before the first start.
    pub queue_timeout_ms: Option<i64>,
    pub priority: i32,
    pub concurrency: Option<Concurrency>,
    pub hooks: Vec<Hook>,
    /// The secrets that its templates name.
    pub secrets: BTreeMap<String, TaskSecret>,
}

/// A secret that a task or one of its actions uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSecret {
    pub reference: SecretRef,
    /// The rules that the secret was accepted under: those of version 0.1 only if 0.1 had accepted both the text that declares the
    /// secret and a text that uses it.
    pub rules: Rules,
}

/// A version of the rules for templates and secrets. A step keeps the version it was accepted under: when the step is rendered, the
/// server refuses what that version refuses, and nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rules {
    /// Version 0.1: the definition was frozen by 0.1, or its workflow file still has a text that 0.1 had accepted and that breaks
    /// newer rules.
    V1,
    /// Untrusted values are kept out of everything that is run, not only out of scripts.
    V2,
}

impl Rules {
    /// The number that a frozen definition carries.
    pub fn number(self) -> u32 {
        match self {
            Rules::V1 => 1,
            Rules::V2 => 2,
        }
    }

    pub fn from_number(number: u32) -> Option<Rules> {
        [Rules::V1, Rules::V2]
            .into_iter()
            .find(|rules| rules.number() == number)
    }
}

impl TaskDraft {
    pub fn new(name: &str, steps: Vec<StepDraft>) -> TaskDraft {
        TaskDraft {
            name: name.to_string(),
            description: None,
            inputs: Vec::new(),
            env: BTreeMap::new(),
            steps,
            timeout_ms: None,
            queue_timeout_ms: None,
            priority: 0,
            concurrency: None,
            hooks: Vec::new(),
            secrets: BTreeMap::new(),
        }
    }
}

/// A step as somebody wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepDraft {
    pub name: String,
    pub action: Action,
    pub depends_on: DependsOn<String>,
    /// A template, or a value, that says whether it runs at all. `None`: it does.
    pub when: Option<Json>,
    pub for_each: Option<ForEach>,
    /// A JSON object of templates: what a named action is given, or what is added to the job's inputs for this step.
    pub input: Json,
    /// Whose action it carries out, if that has a name.
    pub named_action: Option<NamedAction>,
    /// What it gives back. Empty: anything.
    pub outputs: Vec<ValueSpec>,
    /// In the environment of what it runs.
    pub env: BTreeMap<String, String>,
    /// Where it runs, below its workspace unless it says a whole path. `None`: in the workspace.
    pub workdir: Option<String>,
    /// In addition to those that the action implies.
    pub tags: Vec<String>,
    /// `None`: the server's default.
    pub timeout_ms: Option<i64>,
    pub retry: RetryPolicy,
    pub on_worker_loss: OnWorkerLoss,
    pub unmatched: Unmatched,
    /// Its own failure does not fail the job.
    pub continue_on_failure: bool,
    /// The rules that the text of its action was accepted under.
    pub rules: Rules,
}

impl StepDraft {
    pub fn new(name: &str, action: Action) -> StepDraft {
        StepDraft {
            name: name.to_string(),
            action,
            depends_on: DependsOn::nothing(),
            when: None,
            for_each: None,
            input: Json::empty_object(),
            named_action: None,
            outputs: Vec::new(),
            env: BTreeMap::new(),
            workdir: None,
            tags: Vec::new(),
            timeout_ms: None,
            retry: RetryPolicy::never(),
            on_worker_loss: OnWorkerLoss::Fail,
            unmatched: Unmatched::Fail,
            continue_on_failure: false,
            rules: Rules::V2,
        }
    }

    pub fn script(name: &str, script: &str) -> StepDraft {
        let script = script.to_string();
        StepDraft::new(
            name,
            Action::Script {
                runner: Runner::Local,
                image: None,
                language: None,
                script,
            },
        )
    }

    pub fn task(name: &str, task: &str) -> StepDraft {
        let action = Action::Task {
            task: task.to_string(),
            input: Json::empty_object(),
        };
        StepDraft::new(name, action)
    }

    pub fn approval(name: &str, message: &str) -> StepDraft {
        StepDraft::new(
            name,
            Action::Approval {
                message: message.to_string(),
                inputs: Vec::new(),
            },
        )
    }

    /// All of these must complete first.
    pub fn after(mut self, names: &[&str]) -> StepDraft {
        self.depends_on = DependsOn::All(names.iter().map(|name| DependsOn::on(*name)).collect());
        self
    }

    pub fn depending(mut self, depends_on: DependsOn<String>) -> StepDraft {
        self.depends_on = depends_on;
        self
    }

    /// Who carries the step out; of a loop, the placeholder.
    pub fn kind(&self) -> StepKind {
        if self.for_each.is_some() {
            StepKind::Loop
        } else {
            self.action.kind()
        }
    }

    /// What a worker must offer to run it, sorted, once each; empty for what the server itself does.
    pub fn required_tags(&self) -> Vec<String> {
        let implied: &[&str] = match &self.action {
            Action::Script {
                runner: Runner::Local,
                ..
            } => &["script"],
            Action::Script {
                runner: Runner::Docker,
                ..
            } => &["script", "docker"],
            Action::Script {
                runner: Runner::Pod,
                ..
            } => &["script", "kubernetes"],
            Action::Docker { .. } => &["docker"],
            Action::Pod { .. } => &["kubernetes"],
            Action::Task { .. } | Action::Approval { .. } => return Vec::new(),
        };
        let named = self.tags.iter().map(String::as_str);
        let tags: BTreeSet<&str> = implied.iter().copied().chain(named).collect();
        tags.into_iter().map(str::to_string).collect()
    }
}

/// What an action with a name brings into a step. Its own texts see its inputs alone, and not the job's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAction {
    pub name: String,
    pub inputs: Vec<ValueSpec>,
    /// The step's own variables win over these.
    pub env: BTreeMap<String, String>,
}

/// Whether a text has to be rendered before it means anything.
pub fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%")
}

/// What one step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Script {
        runner: Runner,
        image: Option<String>,
        /// Who reads it: `sh`, `bash`, `python`, `node`, any program. `None`: what its `#!` line says, else `sh`.
        language: Option<String>,
        script: String,
    },
    Docker {
        image: String,
        /// Instead of the image's own; what follows its first word goes in front of the command.
        entrypoint: Vec<String>,
        /// Empty: the image's own.
        command: Vec<String>,
    },
    Pod {
        manifest: String,
    },
    Task {
        task: String,
        input: Json,
    },
    Approval {
        message: String,
        /// What whoever approves is asked for; it becomes the step's output.
        inputs: Vec<ValueSpec>,
    },
}

impl Action {
    /// What it is called in a definition.
    pub fn word(&self) -> &'static str {
        match self {
            Action::Script { .. } => "script",
            Action::Docker { .. } => "docker",
            Action::Pod { .. } => "pod",
            Action::Task { .. } => "task",
            Action::Approval { .. } => "approval",
        }
    }

    /// Who carries one instance of it out.
    pub fn kind(&self) -> StepKind {
        match self {
            Action::Script { .. } | Action::Docker { .. } | Action::Pod { .. } => StepKind::Work,
            Action::Task { .. } => StepKind::Task,
            Action::Approval { .. } => StepKind::Approval,
        }
    }

    /// Every text in it, with the name of its key.
    pub fn texts(&self) -> Vec<(&'static str, &str)> {
        match self {
            Action::Script {
                image,
                language,
                script,
                ..
            } => {
                let image = image.iter().map(|image| ("image", image.as_str()));
                let language = language.iter().map(|word| ("language", word.as_str()));
                let texts = image.chain(language);
                texts.chain([("script", script.as_str())]).collect()
            }
            Action::Docker {
                image,
                entrypoint,
                command,
            } => {
                let entrypoint = entrypoint.iter().map(|word| ("entrypoint", word.as_str()));
                let command = command.iter().map(|word| ("command", word.as_str()));
                let words = entrypoint.chain(command);
                words.chain([("image", image.as_str())]).collect()
            }
            Action::Pod { manifest } => vec![("manifest", manifest)],
            Action::Task { input, .. } => vec![("input", &input.0)],
            Action::Approval { message, .. } => vec![("message", message)],
        }
    }
}

words! {
    /// Where a script runs.
    pub enum Runner {
        Local = "local",
        Docker = "docker",
        Pod = "pod",
    }
}

words! {
    /// What becomes of a ready step that no active worker can run.
    pub enum Unmatched {
        Fail = "fail",
        Wait = "wait",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForEach {
    pub items: Items,
    pub max_parallel: Option<u32>,
}

/// What a loop goes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Items {
    /// Each may be a template.
    List(Vec<Json>),
    /// A template that gives a list.
    Template(String),
}

impl FromIterator<Json> for Items {
    fn from_iter<I: IntoIterator<Item = Json>>(items: I) -> Items {
        Items::List(items.into_iter().collect())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concurrency {
    pub group: String,
    pub limit: u32,
    pub when_full: WhenFull,
}

words! {
    pub enum WhenFull {
        Queue = "queue",
        Skip = "skip",
        CancelPrevious = "cancel_previous",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub on: HookOn,
    pub does: HookDoes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookDoes {
    /// A job of this task, which is in the same definition. That of a named action is called `hook.` and its name.
    Job { task: String, input: Json },
    /// A message to a target of the server's settings.
    Notify { target: String },
}

/// What the name of a task that a hook's action became begins with; no other may.
pub const HOOK_TASK_PREFIX: &str = "hook.";

words! {
    pub enum HookOn {
        Success = "on_success",
        Error = "on_error",
        Cancel = "on_cancel",
        Suspended = "on_suspended",
    }
}

/// A checked set of tasks: the first one, and every task that it calls. This is what a job freezes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    pub(super) tasks: Vec<Task>,
}

/// A checked task: its draft, and the graph that its names stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// All definitions that this task is in share it, and its steps.
    pub draft: Arc<TaskDraft>,
    pub(super) steps: Arc<StepGraph>,
    /// The task in the definition that each step calls.
    pub(super) calls: Vec<Option<u32>>,
    /// The task in the definition that each hook makes a job of.
    pub(super) hook_calls: Vec<Option<u32>>,
}

/// The steps of a task and who waits for whom, by their positions in the task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StepGraph {
    pub depends_on: Vec<DependsOn<u32>>,
    /// The distinct steps that each step names, and those that name it.
    pub dependencies: Vec<Vec<u32>>,
    pub dependents: Vec<Vec<u32>>,
    pub positions: HashMap<String, u32>,
    /// What each step says has to be made before a worker may see it.
    pub unrendered: Vec<bool>,
}

impl Task {
    pub fn step(&self, position: u32) -> &StepDraft {
        &self.draft.steps[position as usize]
    }

    pub fn depends_on(&self, position: u32) -> &DependsOn<u32> {
        &self.steps.depends_on[position as usize]
    }

    /// The distinct steps that a step waits for.
    pub fn dependencies(&self, position: u32) -> &[u32] {
        &self.steps.dependencies[position as usize]
    }

    pub fn dependents(&self, position: u32) -> &[u32] {
        &self.steps.dependents[position as usize]
    }

    /// The task that a `task` step calls.
    pub fn calls(&self, position: u32) -> Option<u32> {
        self.calls[position as usize]
    }

    /// The task that a hook makes a job of.
    pub fn hook_calls(&self, hook: usize) -> Option<u32> {
        self.hook_calls[hook]
    }

    /// Whether what a step says has to be made before a worker may see it: templates rendered, secrets looked up.
    pub fn is_unrendered(&self, position: u32) -> bool {
        self.steps.unrendered[position as usize]
    }

    pub fn position(&self, name: &str) -> Option<u32> {
        self.steps.positions.get(name).copied()
    }

    /// What people call a step: `test`, or `test[2]` for an instance of a loop.
    pub fn step_name(&self, position: u32, item: Option<u32>) -> String {
        let name = &self.step(position).name;
        match item {
            None => name.clone(),
            Some(item) => format!("{name}[{item}]"),
        }
    }

    /// The given steps and everything downstream of them.
    pub fn with_dependents(&self, positions: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
        let mut reached: BTreeSet<u32> = positions.into_iter().collect();
        let mut unvisited: Vec<u32> = reached.iter().copied().collect();
        while let Some(position) = unvisited.pop() {
            for &dependent in self.dependents(position) {
                if reached.insert(dependent) {
                    unvisited.push(dependent);
                }
            }
        }
        reached
    }
}

impl Definition {
    pub fn task(&self, index: u32) -> &Task {
        &self.tasks[index as usize]
    }

    /// The task that was submitted.
    pub fn root(&self) -> &Task {
        &self.tasks[0]
    }

    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }
}
