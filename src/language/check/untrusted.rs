//! Untrusted values that decide what is run: which image, which program, which folder, which libraries.
//!
//! People decide the values of inputs, the answers to approvals and the requests of webhooks. Such a value may only decide what is
//! run if its input declares what it may be (`options`, a `pattern` from beginning to end, or a type that is no text), or if the
//! template says `| unsafe`. A value is followed to where it comes from: through `env`, `for_each`, the `input` of a step, and from
//! a named action to the steps and hooks that use it. What the author has written into the file is trusted, and so is the output of
//! a step, because the step's own program decides it.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use serde_json::Value;

use super::super::arguments::Choice;
use super::super::budget::CheckBudget;
use super::super::decode::{
    ActionParts, Document, Does, HookTarget, Place, SpecParts, StepParts, TaskParts, Text,
};
use super::super::manifest;
use super::super::source::Span;
use super::super::template::{self, Mention};
use super::super::tree::{Entry, Kind, Node};
use super::Checker;
use crate::domain::limits;
use crate::domain::task::{Action, ForEach, Items, is_template};
use crate::domain::value::{ValueSpec, ValueType, input_variable};

/// A template that prints nothing of others.
const FIXED: &str = "{{ \"\" }}";
/// Length of the longest path that matters: each job adds the name of a step and the number of an item.
const PATH_MAX: usize = 4 + 2 * limits::NESTING_MAX;
/// Rules about values that become code or decide which code is run.
const CODE_RULES: &[&str] = &["E045", "E048", "E070", "E071"];
/// Facts of an ended job that nobody can choose freely.
const TRUSTED_HOOK_FACTS: &[&str] = &[
    "job",
    "task",
    "status",
    "reason",
    "created_at",
    "started_at",
    "ended_at",
    "url",
];

/// A step or a hook that uses a named action.
pub struct ActionUse<'d, 't> {
    origins: Origins<'d, 't>,
    input: Option<&'t Entry>,
    span: Span,
}

pub type ActionUses<'d, 't> = HashMap<&'t str, Vec<ActionUse<'d, 't>>>;

/// Steps and hooks by the named action that they use.
pub fn action_uses<'d, 't>(
    documents: &'d [Document<'t>],
    answers: &'d TaskAnswers<'d>,
    budget: &CheckBudget,
) -> ActionUses<'d, 't> {
    let mut uses: ActionUses<'d, 't> = HashMap::new();
    for task in documents.iter().flat_map(|document| &document.tasks) {
        let of_task = Origins::of_task(task, answers, budget.clone());
        for step in &task.steps {
            if let Does::Uses { action, span } = step.does {
                uses.entry(action).or_default().push(ActionUse {
                    origins: of_task.of_step(step),
                    input: step.input_entry,
                    span,
                });
            }
        }
        for hook in &task.hooks {
            if let HookTarget::Action { name, span } = hook.does {
                uses.entry(name).or_default().push(ActionUse {
                    origins: of_task.clone(),
                    input: hook.input_entry,
                    span,
                });
            }
        }
    }
    uses
}

/// What people enter at a step, as far as it is the output of the step.
enum StepAnswers<'d> {
    /// The values that an approval asks for. Who approves may give anything if it asks for nothing.
    Approval(&'d [SpecParts]),
    /// The output of a child job, or of a loop of child jobs the list of their outputs.
    Child { task: &'d str, looped: bool },
}

impl<'d> StepAnswers<'d> {
    fn of(step: &'d StepParts<'_>) -> Option<(&'d str, StepAnswers<'d>)> {
        let answers = match &step.does {
            Does::Own {
                action: Action::Approval { .. },
                asks,
            } => StepAnswers::Approval(asks),
            Does::Calls { task, .. } => StepAnswers::Child {
                task,
                looped: step.looped,
            },
            _ => return None,
        };
        Some((&step.key.text, answers))
    }
}

/// What people enter at approvals of each task, as far as it is part of the output of its jobs: the outputs of the steps that no other
/// step depends on.
pub struct TaskAnswers<'d> {
    tasks: HashMap<&'d str, BTreeMap<&'d str, StepAnswers<'d>>>,
    /// The first value without restrictions anywhere in the output of a task.
    whole: RefCell<HashMap<&'d str, Option<Answer<'d>>>>,
}

/// A value without restrictions that a person enters: its path inside the output, and its declaration, if it has one.
type Answer<'d> = (Vec<String>, Option<&'d ValueSpec>);

impl<'d> TaskAnswers<'d> {
    pub fn of(documents: &'d [Document<'_>]) -> TaskAnswers<'d> {
        let tasks = documents.iter().flat_map(|document| &document.tasks);
        let tasks = tasks.map(|task| {
            let edges = task.steps.iter().flat_map(|step| &step.edges);
            let needed: HashSet<&str> = edges.map(|edge| edge.step).collect();
            let answers = task.steps.iter().filter_map(StepAnswers::of);
            let answers = answers.filter(|(step, _)| !needed.contains(step));
            (task.key.text.as_str(), answers.collect())
        });
        TaskAnswers {
            tasks: tasks.collect(),
            whole: RefCell::default(),
        }
    }

    /// Finds a value at this path inside the output of a step, or below it.
    fn in_step(&self, step: &StepAnswers<'d>, path: &[String], depth: usize) -> Option<Answer<'d>> {
        match step {
            StepAnswers::Approval([]) => Some((path.first().cloned().into_iter().collect(), None)),
            StepAnswers::Approval(asks) => {
                let mut specs = asks.iter().map(|ask| &ask.spec);
                let is_meant =
                    |spec: &ValueSpec| path.first().is_none_or(|name| *name == spec.name);
                let spec = specs.find(|spec| !is_restricted(spec) && is_meant(spec))?;
                Some((vec![spec.name.clone()], Some(spec)))
            }
            StepAnswers::Child {
                task,
                looped: false,
            } => self.in_task(task, path, depth),
            StepAnswers::Child { task, looped: true } => match path {
                [item, path @ ..] if item.parse::<i64>().is_ok() => self.in_task(task, path, depth),
                _ => self.in_task(task, &[], depth),
            },
        }
    }

    fn in_task(&self, task: &'d str, path: &[String], depth: usize) -> Option<Answer<'d>> {
        // Deeper nesting is an error of its own.
        if depth > limits::NESTING_MAX {
            return None;
        }
        let steps = self.tasks.get(task)?;
        let below = |name: &str, step, path| {
            let (mut member, spec) = self.in_step(step, path, depth + 1)?;
            member.insert(0, name.to_string());
            Some((member, spec))
        };
        if let [name, path @ ..] = path {
            return below(name, steps.get(name.as_str())?, path);
        }
        if let Some(found) = self.whole.borrow().get(task) {
            return found.clone();
        }
        // Tasks that call each other are an error of its own.
        self.whole.borrow_mut().insert(task, None);
        let found = steps.iter().find_map(|(name, step)| below(name, step, &[]));
        self.whole.borrow_mut().insert(task, found.clone());
        found
    }
}

/// Origins of the values that a text may mention.
#[derive(Clone, Default)]
pub struct Origins<'d, 't> {
    owner: Rc<OwnerOrigins<'d>>,
    /// Inputs that a step adds to those of its job.
    step_input: Option<&'t Entry>,
    task_env: Option<&'d BTreeMap<String, String>>,
    /// Environment of the step or of the action.
    step_env: Option<&'d BTreeMap<String, String>>,
    for_each: Option<&'d ForEach>,
    /// Uses of an action: its inputs come from them.
    uses: Option<&'d [ActionUse<'d, 't>]>,
    /// Cache of earlier results: a list may mention the same value thousands of times.
    found: RefCell<FoundSources<'d>>,
    /// What the steps that use an action add to its environment, by name: whether the value comes from a template.
    uses_variables: OnceCell<HashMap<&'d str, bool>>,
    /// Names of the step's own inputs by their variables.
    step_input_variables: OnceCell<HashMap<String, &'t str>>,
}

/// The source of each path that was looked for, by when its text is rendered.
type FoundSources<'d> = HashMap<(Vec<String>, Stage), Option<UntrustedSource<'d>>>;

/// What all steps of a task share. Many steps may look for the same, so what takes long is found once.
#[derive(Default)]
struct OwnerOrigins<'d> {
    inputs: Vec<&'d ValueSpec>,
    /// Names of the inputs by their variables.
    input_variables: OnceCell<HashMap<String, &'d str>>,
    /// Values that people enter, by the name of the step.
    answers: HashMap<&'d str, StepAnswers<'d>>,
    /// Values that people enter in child jobs.
    task_answers: Option<&'d TaskAnswers<'d>>,
    whole_input: OnceCell<Option<UntrustedSource<'d>>>,
    whole_env: OnceCell<Option<UntrustedSource<'d>>>,
    /// Variables of the task by their names.
    variables: RefCell<HashMap<String, Option<UntrustedSource<'d>>>>,
    /// When its time is over, nothing is looked for any more: the check says so and concludes nothing from what was not found.
    budget: CheckBudget,
}

/// When a text is rendered, which decides what `input` and `env` are in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    /// What the worker is given: the step has added its own inputs and variables.
    Worker,
    /// The variables and inputs of the step itself.
    Step,
    /// The variables of the task, and what a loop goes over.
    Task,
}

/// A value that people decide.
#[derive(Debug, Clone)]
struct UntrustedSource<'d> {
    /// Path of the value as templates write it.
    name: String,
    /// The input or the answer, if it is declared.
    spec: Option<&'d ValueSpec>,
    /// Place at which an action is given the value.
    given_at: Option<Span>,
}

impl<'d, 't> Origins<'d, 't> {
    pub fn of_task(
        task: &'d TaskParts<'t>,
        answers: &'d TaskAnswers<'d>,
        budget: CheckBudget,
    ) -> Origins<'d, 't> {
        Origins {
            owner: Rc::new(OwnerOrigins {
                inputs: task.inputs.iter().map(|input| &input.spec).collect(),
                answers: task.steps.iter().filter_map(StepAnswers::of).collect(),
                task_answers: Some(answers),
                budget,
                ..OwnerOrigins::default()
            }),
            task_env: Some(&task.draft.env),
            ..Origins::default()
        }
    }

    /// Returns the origins for one step of this task.
    pub fn of_step(&self, step: &'d StepParts<'t>) -> Origins<'d, 't> {
        let adds_input = matches!(step.does, Does::Own { .. });
        Origins {
            owner: self.owner.clone(),
            step_input: step.input_entry.filter(|_| adds_input),
            task_env: self.task_env,
            step_env: Some(&step.policies.env),
            for_each: step.for_each.as_ref(),
            ..Origins::default()
        }
    }

    pub fn of_action(
        action: &'d ActionParts<'t>,
        uses: &'d ActionUses<'d, 't>,
        budget: CheckBudget,
    ) -> Origins<'d, 't> {
        let uses = uses.get(action.key.text.as_str()).map(Vec::as_slice);
        Origins::of_uses(action, uses, budget)
    }

    fn of_uses(
        action: &'d ActionParts<'t>,
        uses: Option<&'d [ActionUse<'d, 't>]>,
        budget: CheckBudget,
    ) -> Origins<'d, 't> {
        Origins {
            owner: Rc::new(OwnerOrigins {
                inputs: action.inputs.iter().map(|input| &input.spec).collect(),
                budget,
                ..OwnerOrigins::default()
            }),
            step_env: Some(&action.policies.env),
            uses,
            ..Origins::default()
        }
    }

    /// The text of a variable that the step adds to the environment of its pod: see `manifest::Variable`.
    pub fn variable(&self, name: &str) -> Option<String> {
        if let Some(input) = self.input_of_variable(name) {
            return Some(manifest::input_template(input));
        }
        let of_uses = self.uses_variables().get(name).copied();
        if let Some(template) = manifest::loop_template(name) {
            let is_set = self.for_each.is_some() || of_uses.is_some();
            return is_set.then(|| template.to_string());
        }
        let mut envs = self.step_env.into_iter().chain(self.task_env);
        let own = envs.find_map(|env| env.get(name));
        match (of_uses, own) {
            (Some(true), _) => Some(manifest::variable_template(name)),
            (_, Some(text)) if is_template(text) => Some(manifest::variable_template(name)),
            // Each step that uses the action may have another text, and none of them comes from people.
            (Some(false), _) => Some(FIXED.to_string()),
            (None, own) => own.cloned(),
        }
    }

    fn input_of_variable(&self, variable: &str) -> Option<&str> {
        if !variable.starts_with("INPUT_") {
            return None;
        }
        let of_step = self.step_input_variables.get_or_init(|| {
            let entries = match self.step_input.map(|entry| &entry.value.kind) {
                Some(Kind::Map(entries)) => entries.as_slice(),
                _ => &[],
            };
            let names = entries.iter().map(|entry| entry.key.text.as_str());
            names.map(|name| (input_variable(name), name)).collect()
        });
        let of_owner = self.owner.input_variables.get_or_init(|| {
            let names = self.owner.inputs.iter().map(|spec| spec.name.as_str());
            names.map(|name| (input_variable(name), name)).collect()
        });
        let of_step = of_step.get(variable).copied();
        of_step.or_else(|| of_owner.get(variable).copied())
    }

    fn uses_variables(&self) -> &HashMap<&'d str, bool> {
        self.uses_variables.get_or_init(|| {
            let mut variables = HashMap::new();
            let mut last_task_env: Option<&BTreeMap<String, String>> = None;
            for used in self.uses.into_iter().flatten() {
                // Steps of one task stand together, and share its environment.
                let of_task = used.origins.task_env;
                let of_task = of_task.filter(|env| {
                    let last = last_task_env.replace(env);
                    !last.is_some_and(|last| std::ptr::eq(last, *env))
                });
                for (name, text) in used.origins.step_env.into_iter().chain(of_task).flatten() {
                    *variables.entry(name.as_str()).or_insert(false) |= is_template(text);
                }
                if used.origins.for_each.is_some() {
                    variables.extend([("EACH_ITEM", true), ("EACH_INDEX", true)]);
                }
            }
            variables
        })
    }

    /// The source of what this mention prints, if people decide it.
    fn find(&self, path: &[String], stage: Stage) -> Option<UntrustedSource<'d>> {
        // No longer part of a path makes a difference: jobs are not nested deeper.
        let key = (path[..path.len().min(PATH_MAX)].to_vec(), stage);
        if let Some(found) = self.found.borrow().get(&key) {
            return found.clone();
        }
        // A loop that goes over its own items is wrong, and must not be followed for ever.
        self.found.borrow_mut().insert(key.clone(), None);
        let found = self.find_anew(path, stage);
        self.found.borrow_mut().insert(key, found.clone());
        found
    }

    fn find_anew(&self, path: &[String], stage: Stage) -> Option<UntrustedSource<'d>> {
        let name = path.get(1).map(String::as_str);
        match path.first()?.as_str() {
            "input" => match name {
                Some(name) => self.find_input(name, stage),
                None => {
                    let added = self.step_input.filter(|_| stage == Stage::Worker);
                    let added =
                        added.and_then(|entry| self.find_in_node(&entry.value, Stage::Step));
                    added.or_else(|| {
                        let whole = self.owner.whole_input.get_or_init(|| {
                            let mut inputs = self.owner.inputs.iter();
                            inputs.find_map(|spec| self.find_declared(spec))
                        });
                        whole.clone()
                    })
                }
            },
            "each" if name != Some("index") => match self.for_each.map(|each| &each.items) {
                Some(Items::Template(text)) => self.find_in_text(text, Stage::Task),
                Some(Items::List(items)) => items.iter().find_map(|item| {
                    let item = serde_json::from_str(&item.0).ok()?;
                    self.find_in_value(&item)
                }),
                // Kubernetes knows the item of the step that uses an action.
                None => {
                    let mut uses = self.uses.into_iter().flatten();
                    uses.find_map(|used| used.origins.find(path, stage))
                }
            },
            "env" => self.find_variable(name, stage),
            "steps" => self.find_answer(path),
            "hook" => {
                let is_trusted = name.is_some_and(|name| TRUSTED_HOOK_FACTS.contains(&name));
                (!is_trusted).then(|| unspecified(path))
            }
            "body" | "headers" => Some(unspecified(path)),
            _ => None,
        }
    }

    fn find_input(&self, name: &str, stage: Stage) -> Option<UntrustedSource<'d>> {
        if stage == Stage::Worker
            && let Some(node) = self.step_input.and_then(|entry| member(entry, name))
        {
            return self.find_in_node(node, Stage::Step);
        }
        let mut inputs = self.owner.inputs.iter();
        let spec = inputs.find(|spec| spec.name == name)?;
        self.find_declared(spec)
    }

    fn find_declared(&self, spec: &'d ValueSpec) -> Option<UntrustedSource<'d>> {
        if is_restricted(spec) {
            return None;
        }
        let own = UntrustedSource {
            name: format!("input.{}", spec.name),
            spec: Some(spec),
            given_at: None,
        };
        // An action that nothing uses yet may be used with anything.
        let Some(uses) = self.uses else {
            return Some(own);
        };
        uses.iter().find_map(|used| {
            let node = used.input.and_then(|entry| member(entry, &spec.name))?;
            used.origins.find_in_node(node, Stage::Step)?;
            Some(UntrustedSource {
                given_at: Some(used.span),
                ..own.clone()
            })
        })
    }

    fn find_variable(&self, name: Option<&str>, stage: Stage) -> Option<UntrustedSource<'d>> {
        let of_step = || self.find_in_env(self.step_env?, name, Stage::Step);
        let of_task = || match name {
            Some(name) => {
                let known = self.owner.variables.borrow().get(name).cloned();
                known.unwrap_or_else(|| {
                    let found = self.find_in_env(self.task_env?, Some(name), Stage::Task);
                    let mut variables = self.owner.variables.borrow_mut();
                    variables.insert(name.to_string(), found.clone());
                    found
                })
            }
            None => {
                let whole = self.owner.whole_env.get_or_init(|| {
                    let env = self.task_env?;
                    self.find_in_env(env, None, Stage::Task)
                });
                whole.clone()
            }
        };
        let of_uses = || {
            let mut uses = self.uses.into_iter().flatten();
            uses.find_map(|used| used.origins.find_variable(name, Stage::Worker))
        };
        match stage {
            Stage::Worker => of_step().or_else(of_task).or_else(of_uses),
            Stage::Step => of_task().or_else(of_uses),
            Stage::Task => None,
        }
    }

    /// Looks in one variable of an environment, or in all of them.
    fn find_in_env(
        &self,
        env: &BTreeMap<String, String>,
        name: Option<&str>,
        stage: Stage,
    ) -> Option<UntrustedSource<'d>> {
        match name {
            Some(name) => self.find_in_text(env.get(name)?, stage),
            None => env.values().find_map(|text| self.find_in_text(text, stage)),
        }
    }

    /// What a person enters at an approval is the output of that step, and part of the output of its job. What a person writes who
    /// rejects a step is its error. Every step may be rejected, because any step may be suspended when its worker is lost.
    fn find_answer(&self, path: &[String]) -> Option<UntrustedSource<'d>> {
        let [_, name, rest @ ..] = path else {
            // All steps together have all errors.
            return Some(unspecified(path));
        };
        let member = rest.first().map(String::as_str);
        if member == Some("error") {
            return Some(unspecified(&path[..3]));
        }
        let Some(step) = self.owner.answers.get(name.as_str()) else {
            // The step as a whole has its error.
            return member.is_none().then(|| unspecified(path));
        };
        if member.is_some_and(|member| member != "output") {
            return None;
        }
        let below = rest.get(1..).unwrap_or_default();
        let answer = self.owner.task_answers?.in_step(step, below, 0);
        match answer {
            Some((members, spec)) => Some(UntrustedSource {
                name: [&path[..2], &["output".to_string()], &members]
                    .concat()
                    .join("."),
                spec,
                given_at: None,
            }),
            None => member.is_none().then(|| unspecified(path)),
        }
    }

    fn find_in_text(&self, text: &str, stage: Stage) -> Option<UntrustedSource<'d>> {
        if self.owner.budget.exceeded().is_some() {
            return None;
        }
        let exposed = template::exposed(text).ok()?;
        let mut exposed = exposed.iter();
        exposed.find_map(|mention| self.find(&mention.path, stage))
    }

    fn find_in_node(&self, node: &Node, stage: Stage) -> Option<UntrustedSource<'d>> {
        match &node.kind {
            Kind::Scalar(scalar) => self.find_in_text(&scalar.text, stage),
            Kind::List(members) => members
                .iter()
                .find_map(|member| self.find_in_node(member, stage)),
            Kind::Map(entries) => entries
                .iter()
                .find_map(|entry| self.find_in_node(&entry.value, stage)),
            Kind::Broken => None,
        }
    }

    fn find_in_value(&self, value: &Value) -> Option<UntrustedSource<'d>> {
        match value {
            Value::String(text) => self.find_in_text(text, Stage::Task),
            Value::Array(items) => items.iter().find_map(|item| self.find_in_value(item)),
            Value::Object(members) => members.values().find_map(|item| self.find_in_value(item)),
            _ => None,
        }
    }
}

fn unspecified<'d>(path: &[String]) -> UntrustedSource<'d> {
    UntrustedSource {
        name: path.join("."),
        spec: None,
        given_at: None,
    }
}

fn member<'t>(entry: &'t Entry, name: &str) -> Option<&'t Node> {
    let Kind::Map(entries) = &entry.value.kind else {
        return None;
    };
    let mut entries = entries.iter();
    let entry = entries.find(|entry| entry.key.text == name)?;
    Some(&entry.value)
}

/// Whether the declaration says what the value may be.
fn is_restricted(spec: &ValueSpec) -> bool {
    let is_free = matches!(
        spec.value_type,
        ValueType::String | ValueType::Text | ValueType::Json
    );
    !is_free || !spec.options.is_empty() || spec.pattern.as_deref().is_some_and(is_anchored)
}

/// Whether a pattern speaks of the whole value. Any other pattern only has to be found somewhere in it.
fn is_anchored(pattern: &str) -> bool {
    // Flags in front: with `m` the signs `^` and `$` stand for lines, and with `x` the rest of a line may be a comment.
    let (flags, rest) = match pattern.strip_prefix("(?") {
        Some(rest) => match rest.find([')', ':']) {
            Some(end) if rest.as_bytes()[end] == b')' => (&rest[..end], &rest[end + 1..]),
            _ => ("", pattern),
        },
        None => ("", pattern),
    };
    let changes_meaning = |flags: &str| {
        flags
            .split('-')
            .next()
            .is_some_and(|on| on.contains(['m', 'x']))
    };
    if changes_meaning(flags) {
        return false;
    }
    if !rest.starts_with('^') && !rest.starts_with("\\A") {
        return false;
    }
    let mut depth = 0_usize;
    let mut in_class = false;
    let mut last = ' ';
    let mut letters = rest.char_indices();
    while let Some((at, letter)) = letters.next() {
        last = letter;
        match letter {
            '\\' => {
                let escaped = letters.next().map_or(' ', |(_, escaped)| escaped);
                last = if escaped == 'z' && !in_class {
                    '$'
                } else {
                    ' '
                };
            }
            ']' if in_class => in_class = false,
            _ if in_class => last = ' ',
            '[' => in_class = true,
            '(' => {
                depth += 1;
                let group = rest[at + 1..].strip_prefix('?').unwrap_or_default();
                let flags = group.split([')', ':', '<']).next().unwrap_or_default();
                let are_flags = flags.chars().all(|c| c.is_ascii_alphabetic() || c == '-');
                if are_flags && changes_meaning(flags) {
                    return false;
                }
            }
            ')' => depth = depth.saturating_sub(1),
            // `^a|b$` is anchored at one side of each.
            '|' if depth == 0 => return false,
            _ => {}
        }
    }
    last == '$' && depth == 0 && !in_class
}

impl Choice {
    /// Behind "decides".
    fn decides(self) -> &'static str {
        match self {
            Choice::Image => "which image is run",
            Choice::Entrypoint => "what the container runs",
            Choice::WorkingFolder => "in which folder it runs",
            Choice::Language => "which program reads the script",
            Choice::Program => "which program is run",
            Choice::Option => "with which options a program that runs code is started",
            Choice::ScriptFile => "which file is run",
            Choice::Variable => "which code is loaded",
            Choice::Reference => "which variable Kubernetes puts in place of `$(…)`",
            Choice::PodField => "what the pod may do and reach",
        }
    }
}

impl Checker<'_, '_> {
    /// Says which untrusted values decide what is run.
    pub fn chosen(&mut self, text: &Text<'_>, choice: Choice, origins: &Origins<'_, '_>) {
        let exposed = template::exposed(&text.text).unwrap_or_default();
        for mention in &exposed {
            if self.problems.is_out_of_time() {
                return;
            }
            if let Some(source) = origins.find(&mention.path, stage_of(text)) {
                self.untrusted_choice(text, choice, mention, &source);
            }
        }
    }

    /// Says which steps and hooks of new files give a value that people decide to an action of a file that version 0.1 had accepted,
    /// and that breaks newer rules. The violation is a warning in the file of the action, so nothing else would refuse these uses.
    pub fn former_actions<'d, 't>(
        &mut self,
        documents: &'d [Document<'t>],
        uses: &'d ActionUses<'d, 't>,
    ) {
        for action in documents.iter().flat_map(|document| &document.actions) {
            let tolerated = self.problems.tolerated_in(action.span);
            let tolerated = tolerated.filter(|(code, _)| CODE_RULES.contains(code));
            let tolerated: Vec<(&'static str, Span)> = tolerated.collect();
            let name = action.key.text.as_str();
            let uses = uses.get(name).map_or(&[][..], Vec::as_slice);
            for used in uses {
                if tolerated.is_empty() || self.problems.is_out_of_time() {
                    break;
                }
                if self.problems.is_accepted_by_0_1(used.span.file) {
                    continue;
                }
                let only_this = Some(std::slice::from_ref(used));
                let origins = Origins::of_uses(action, only_this, self.problems.budget());
                let mut tolerated = tolerated.iter().copied();
                let broken = tolerated.find(|(_, at)| gives_untrusted(action, used, &origins, *at));
                if let Some((code, broken_at)) = broken {
                    let message = format!(
                        "a value that people decide is given to action `{name}`, which is not safe for it"
                    );
                    self.problems
                        .error(code, used.span, message)
                        .label("this file is new, so the rule holds here")
                        .also(
                            broken_at,
                            "only a warning here: version 0.1 had accepted this file",
                        )
                        .help(format!("correct the action `{name}` first"));
                }
            }
        }
    }

    fn untrusted_choice(
        &mut self,
        text: &Text<'_>,
        choice: Choice,
        mention: &Mention,
        source: &UntrustedSource<'_>,
    ) {
        let span = self.at(text, mention.span.clone());
        let part = text.part.as_ref();
        let reference = part.and_then(|part| part.reference(&mention.span));
        let name = match reference {
            Some(reference) => format!("$({})", reference.name),
            None => mention.path.join("."),
        };
        let message = format!("`{name}` decides {}", choice.decides());
        let problem = self.new_rule("E070", text, span, message);
        problem.label(match choice {
            Choice::Reference => "whoever gives this value can read any variable of the container",
            _ => "whoever gives this value can have anything run",
        });
        if let Some(given_at) = source.given_at {
            problem.also(given_at, "used here with a value that people decide");
        } else if source.name != name {
            problem.help(format!("the value comes from `{}`", source.name));
        }
        match source.spec {
            Some(spec) if spec.pattern.is_some() => {
                let pattern = spec.pattern.as_deref().unwrap_or_default();
                problem.help(format!(
                    "the pattern `{pattern}` of `{}` only has to be found somewhere in the value: begin it with `^`, end it with `$`, \
                     and put alternatives in parentheses",
                    spec.name
                ));
            }
            Some(spec) => {
                problem.help(format!(
                    "say what it may be: give `{}` a list of `options`, or a `pattern` such as '^[a-z0-9.-]+$'",
                    spec.name
                ));
            }
            None => {
                problem.help("give it to an input that has `options` or a `pattern`");
            }
        }
        if choice == Choice::Program {
            problem.help(
                "if it is an argument for the program of the image, name that program in `entrypoint` (in a pod: in `command`)",
            );
        }
        let place = match reference {
            Some(_) => "write a template with `| unsafe` instead of the reference",
            None => "write `| unsafe` behind it",
        };
        if choice == Choice::Reference {
            problem.help("or write `$$(` instead of `$(`, if no variable is meant");
        }
        let may = match choice {
            Choice::Reference => "read any variable",
            _ => "have anything run",
        };
        problem.help(format!("or {place}, if whoever gives the value may {may}"));
    }
}

/// Whether a value that people decide comes from this use into the text of the action in which a violation stands.
fn gives_untrusted<'d, 't>(
    action: &'d ActionParts<'t>,
    used: &'d ActionUse<'d, 't>,
    origins: &Origins<'d, 't>,
    broken_at: Span,
) -> bool {
    let has_violation = |node: &Node| {
        let span = node.span;
        span.file == broken_at.file && (span.start..span.end).contains(&broken_at.start)
    };
    let mut texts = action.texts.iter().filter(|text| has_violation(text.node));
    let mut is_found = false;
    let in_texts = texts.any(|text| {
        is_found = true;
        origins.find_in_text(&text.text, stage_of(text)).is_some()
    });
    if in_texts {
        return true;
    }
    let manifest = action.manifest.as_ref();
    if let Some(manifest) = manifest.filter(|manifest| has_violation(manifest.node)) {
        let variable = |name: &str| origins.variable(name);
        let mut texts = manifest::texts(&manifest.tree, &variable).into_iter();
        return texts.any(|found| origins.find_in_text(&found.text, Stage::Worker).is_some());
    }
    // The structure of a manifest that cannot be read depends on every value.
    let given = used.input.map(|entry| &entry.value);
    !is_found && given.is_some_and(|node| used.origins.find_in_node(node, Stage::Step).is_some())
}

fn stage_of(text: &Text<'_>) -> Stage {
    match text.place {
        Place::StepEnv => Stage::Step,
        Place::TaskEnv => Stage::Task,
        _ => Stage::Worker,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_restricts_a_value_if_it_speaks_of_the_whole() {
        for pattern in [
            "^a$",
            "^(a|b)$",
            r"\Aa\z",
            "(?i)^v[0-9]+$",
            "^[$|]$",
            "^(?:a|b)+$",
            r"^a\|b$",
            "^(?P<m>a)$",
        ] {
            assert!(is_anchored(pattern), "{pattern}");
        }
        for pattern in [
            "a",
            "^a",
            "a$",
            "^a|b$",
            r"^a\$",
            "(?m)^a$",
            "(?im)^a$",
            "^(?m:a$)",
            "[^a]$",
            "^[a$",
            "^a[$]",
            "(?x)^a # $",
            "(?ix)^a$",
            "^a(?x) # $",
            "^(?x:a) # $",
        ] {
            assert!(!is_anchored(pattern), "{pattern}");
        }
    }
}
