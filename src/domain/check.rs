//! What is wrong with a definition: all of it at once, each with its place.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use super::Json;
use super::cycle::cycles;
use super::depends::{Accept, DependsOn};
use super::limits::{self, shorten};
use super::task::{
    Action, Definition, HookDoes, Items, Runner, StepDraft, StepGraph, Task, TaskDraft, is_template,
};

impl Definition {
    /// Checks the first task and those that it calls, directly or not; tasks that it never calls are left out.
    ///
    /// All problems come back at once, each naming its place.
    pub fn check(root: &str, drafts: Vec<TaskDraft>) -> Result<Definition, Problems> {
        let mut problems = Vec::new();
        let mut drafts_by_name: BTreeMap<String, TaskDraft> = BTreeMap::new();
        for draft in drafts {
            if drafts_by_name.contains_key(&draft.name) {
                problems.push(Place::task(&draft.name).problem(Fault::Duplicate));
            } else {
                drafts_by_name.insert(draft.name.clone(), draft);
            }
        }
        let tasks = TaskSet::new(drafts_by_name.into_values());
        match tasks.definition(root) {
            Ok(definition) if problems.is_empty() => Ok(definition),
            Ok(_) => Err(Problems(problems)),
            Err(found) => {
                problems.extend(found.0);
                Err(Problems(problems))
            }
        }
    }
}

/// Tasks that may call each other. Each task is checked once, however many others call it, and all definitions share the result.
pub struct TaskSet {
    indexes: HashMap<String, u32>,
    tasks: Vec<CheckedTask>,
    /// For each task the length of the longest chain of steps that call tasks. `None`: the chain leads into a cycle and has no end.
    heights: Vec<Option<usize>>,
    /// For each task whether the task itself, or a task that it calls directly or indirectly, has a problem.
    are_faulty: Vec<bool>,
}

struct CheckedTask {
    draft: Arc<TaskDraft>,
    steps: Arc<StepGraph>,
    problems: Vec<Problem>,
    /// The tasks of the set that its steps and its hooks call.
    calls: Vec<Option<u32>>,
    hook_calls: Vec<Option<u32>>,
}

impl CheckedTask {
    /// The tasks that this task calls: first those of its steps, then those of its hooks.
    fn called(&self) -> impl Iterator<Item = u32> {
        let all = self.calls.iter().chain(&self.hook_calls);
        all.flatten().copied()
    }
}

impl TaskSet {
    /// Checks each task. All drafts must have different names.
    pub fn new(drafts: impl IntoIterator<Item = TaskDraft>) -> TaskSet {
        let drafts: Vec<TaskDraft> = drafts.into_iter().collect();
        let names = drafts.iter().zip(0..);
        let indexes: HashMap<String, u32> = names
            .map(|(draft, index)| (draft.name.clone(), index))
            .collect();
        let tasks = drafts.into_iter().map(|draft| check_task(draft, &indexes));
        let tasks: Vec<CheckedTask> = tasks.collect();
        TaskSet {
            heights: heights(&tasks),
            are_faulty: are_faulty(&tasks),
            indexes,
            tasks,
        }
    }

    /// Returns the definition of `root`: the task itself and all tasks that it calls, directly or indirectly.
    pub fn definition(&self, root: &str) -> Result<Definition, Problems> {
        let place = Place::task(root);
        let Some(&root) = self.indexes.get(root) else {
            let task = shorten(root);
            return Err(place.problem(Fault::UnknownTask { task }).into());
        };
        let is_faulty = self.are_faulty[root as usize];
        if !is_faulty && self.is_too_deep(root) {
            let tasks = self.deepest_chain(root);
            return Err(place.problem(Fault::NestingTooDeep { tasks }).into());
        }
        let (reached, local) = self.reached(root);
        if reached.len() > limits::TASKS_MAX {
            let fault = Fault::TooMany {
                what: "tasks",
                count: reached.len(),
                max: limits::TASKS_MAX,
            };
            return Err(place.problem(fault).into());
        }
        let tasks = reached.iter().map(|&index| &self.tasks[index as usize]);
        if is_faulty {
            let problems = tasks.flat_map(|task| task.problems.iter().cloned());
            return Err(Problems(problems.collect()));
        }
        let calls_of = |calls: &[Option<u32>]| -> Vec<Option<u32>> {
            let calls = calls.iter();
            calls.map(|call| call.map(|index| local[&index])).collect()
        };
        let tasks: Vec<Task> = tasks
            .map(|task| Task {
                draft: task.draft.clone(),
                steps: task.steps.clone(),
                calls: calls_of(&task.calls),
                hook_calls: calls_of(&task.hook_calls),
            })
            .collect();
        if reached
            .iter()
            .any(|&index| self.heights[index as usize].is_none())
        {
            return Err(cycle_problem(&tasks).into());
        }
        Ok(Definition { tasks })
    }

    /// Lists `root` and all tasks that it calls, breadth first, each once, and maps each task to its position in this list. The
    /// search stops as soon as the list exceeds `TASKS_MAX`.
    fn reached(&self, root: u32) -> (Vec<u32>, HashMap<u32, u32>) {
        let mut reached = vec![root];
        let mut local = HashMap::from([(root, 0)]);
        let mut next = 0;
        while next < reached.len() {
            for called in self.tasks[reached[next] as usize].called() {
                if reached.len() > limits::TASKS_MAX {
                    return (reached, local);
                }
                if let Entry::Vacant(entry) = local.entry(called) {
                    entry.insert(reached.len() as u32);
                    reached.push(called);
                }
            }
            next += 1;
        }
        (reached, local)
    }

    fn is_too_deep(&self, task: u32) -> bool {
        self.heights[task as usize].is_some_and(|height| height > limits::NESTING_MAX)
    }

    /// The names of the tasks in the longest chain of calls from `root`, up to the first task that is nested too deep.
    fn deepest_chain(&self, root: u32) -> Vec<String> {
        let mut chain = vec![root];
        while chain.len() <= limits::NESTING_MAX + 1 {
            let last = &self.tasks[chain[chain.len() - 1] as usize];
            let calls = last.calls.iter().flatten().copied();
            match calls.max_by_key(|&called| self.heights[called as usize]) {
                Some(deepest) => chain.push(deepest),
                None => break,
            }
        }
        let names = chain.into_iter();
        names
            .map(|index| self.tasks[index as usize].draft.name.clone())
            .collect()
    }
}

/// For each task the length of the longest chain of steps that call tasks. `None`: the chain leads into a cycle and has no end.
fn heights(tasks: &[CheckedTask]) -> Vec<Option<usize>> {
    let mut callers = vec![Vec::new(); tasks.len()];
    let mut open_calls = vec![0; tasks.len()];
    for (task, caller) in tasks.iter().zip(0..) {
        for &called in task.calls.iter().flatten() {
            callers[called as usize].push(caller);
            open_calls[caller as usize] += 1;
        }
    }
    // Tasks whose callees all have a height, beginning with the tasks that call nothing. A task in a cycle never gets one.
    let mut known: Vec<u32> = (0..tasks.len() as u32)
        .filter(|&task| open_calls[task as usize] == 0)
        .collect();
    let mut so_far = vec![0; tasks.len()];
    let mut heights = vec![None; tasks.len()];
    while let Some(task) = known.pop() {
        let height = so_far[task as usize];
        heights[task as usize] = Some(height);
        for &caller in &callers[task as usize] {
            let caller = caller as usize;
            so_far[caller] = so_far[caller].max(height + 1);
            open_calls[caller] -= 1;
            if open_calls[caller] == 0 {
                known.push(caller as u32);
            }
        }
    }
    heights
}

/// For each task whether the task itself, or a task that it calls directly or indirectly, has a problem.
fn are_faulty(tasks: &[CheckedTask]) -> Vec<bool> {
    let mut are_faulty: Vec<bool> = tasks.iter().map(|task| !task.problems.is_empty()).collect();
    let mut unvisited: Vec<u32> = (0..tasks.len() as u32)
        .filter(|&task| are_faulty[task as usize])
        .collect();
    if unvisited.is_empty() {
        return are_faulty;
    }
    let mut callers = vec![Vec::new(); tasks.len()];
    for (task, caller) in tasks.iter().zip(0u32..) {
        for called in task.called() {
            callers[called as usize].push(caller);
        }
    }
    while let Some(task) = unvisited.pop() {
        for &caller in &callers[task as usize] {
            if !std::mem::replace(&mut are_faulty[caller as usize], true) {
                unvisited.push(caller);
            }
        }
    }
    are_faulty
}

/// Everything that is wrong with a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 10;
        for (index, problem) in self.0.iter().take(SHOWN_MAX).enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            problem.fmt(f)?;
        }
        match self.0.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for Problems {}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Problems {
        Problems(vec![problem])
    }
}

/// One thing that is wrong with a definition, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub place: Place,
    pub fault: Fault,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub task: String,
    pub step: Option<String>,
    pub key: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Empty,
    NulByte,
    /// A character that names may not have.
    BadCharacter {
        character: char,
    },
    Reserved {
        word: &'static str,
    },
    TooLong {
        bytes: usize,
        bytes_max: usize,
    },
    TooMany {
        what: &'static str,
        count: usize,
        max: usize,
    },
    OutOfRange {
        value: i64,
        min: i64,
        max: i64,
    },
    NotAllowed {
        why: &'static str,
    },
    Duplicate,
    UnknownDependency {
        step: String,
    },
    SelfReference,
    EmptyGroup,
    EmptyAccept,
    DependsTooDeep,
    Cycle {
        steps: Vec<String>,
    },
    UnknownTask {
        task: String,
    },
    TaskCycle {
        tasks: Vec<String>,
    },
    NestingTooDeep {
        tasks: Vec<String>,
    },
}

impl Place {
    /// Names are kept as they are shown: a hostile one is long, and every problem has a copy.
    fn task(task: &str) -> Place {
        Place {
            task: shorten(task),
            step: None,
            key: None,
        }
    }

    fn step(&self, step: &str) -> Place {
        Place {
            step: Some(shorten(step)),
            key: None,
            ..self.clone()
        }
    }

    fn key(&self, key: &'static str) -> Place {
        Place {
            key: Some(key),
            ..self.clone()
        }
    }

    fn problem(&self, fault: Fault) -> Problem {
        Problem {
            place: self.clone(),
            fault,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}", self.task)?;
        if let Some(step) = &self.step {
            write!(f, ", step {step}")?;
        }
        if let Some(key) = self.key {
            write!(f, ", {key}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        match &self.fault {
            Fault::Empty => f.write_str("is empty"),
            Fault::NulByte => f.write_str("holds a NUL byte"),
            Fault::BadCharacter { character } => {
                write!(f, "holds {character:?}, which is not allowed")
            }
            Fault::Reserved { word } => write!(f, "{word:?} is reserved"),
            Fault::TooLong { bytes, bytes_max } => {
                write!(f, "is {bytes} bytes long, at most {bytes_max} are allowed")
            }
            Fault::TooMany { what, count, max } => {
                write!(f, "has {count} {what}, at most {max} are allowed")
            }
            Fault::OutOfRange { value, min, max } => {
                write!(f, "is {value}, expected {min} to {max}")
            }
            Fault::NotAllowed { why } => f.write_str(why),
            Fault::Duplicate => f.write_str("the name is taken, give each its own"),
            Fault::UnknownDependency { step } => {
                write!(f, "depends on step {step}, which does not exist")
            }
            Fault::SelfReference => f.write_str("depends on itself"),
            Fault::EmptyGroup => f.write_str("has an empty group, name at least one step in it"),
            Fault::EmptyAccept => f.write_str("has an edge that accepts no outcome"),
            Fault::DependsTooDeep => {
                let max = limits::DEPENDS_DEPTH_MAX;
                write!(f, "has groups nested too deep, at most {max} are allowed")
            }
            Fault::Cycle { steps } => write!(f, "steps wait for each other: {}", steps.join(" → ")),
            Fault::UnknownTask { task } => write!(f, "task {task} does not exist"),
            Fault::TaskCycle { tasks } => write!(f, "tasks call each other: {}", tasks.join(" → ")),
            Fault::NestingTooDeep { tasks } => write!(
                f,
                "child jobs would nest {} deep, at most {} are allowed: {}",
                tasks.len() - 1,
                limits::NESTING_MAX,
                tasks.join(" → ")
            ),
        }
    }
}

fn check_task(draft: TaskDraft, indexes: &HashMap<String, u32>) -> CheckedTask {
    let mut problems = Vec::new();
    let (calls, hook_calls, steps) = check_parts(&draft, indexes, &mut problems);
    CheckedTask {
        draft: Arc::new(draft),
        steps: Arc::new(steps),
        problems,
        calls,
        hook_calls,
    }
}

/// Returns the tasks that the steps call, the tasks that the hooks call, and the graph of the steps.
fn check_parts(
    draft: &TaskDraft,
    indexes: &HashMap<String, u32>,
    problems: &mut Vec<Problem>,
) -> (Vec<Option<u32>>, Vec<Option<u32>>, StepGraph) {
    let place = Place::task(&draft.name);
    check_name(&place, &draft.name, problems);
    check_duration(&place.key("timeout"), draft.timeout_ms, problems);
    check_duration(
        &place.key("queue_timeout"),
        draft.queue_timeout_ms,
        problems,
    );
    if let Some(concurrency) = &draft.concurrency {
        let place = place.key("concurrency");
        check_text(&place, &concurrency.group, limits::KEY_BYTES_MAX, problems);
        check_range(
            &place,
            concurrency.limit.into(),
            1,
            i64::from(u32::MAX),
            problems,
        );
    }
    check_env(&place.key("env"), &draft.env, problems);
    let mut hook_calls = Vec::with_capacity(draft.hooks.len());
    for hook in &draft.hooks {
        let place = place.key(hook.on.as_str());
        hook_calls.push(match &hook.does {
            HookDoes::Job { task, input } => {
                check_json_size(&place, input, limits::INPUT_BYTES_MAX, problems);
                called(&place, task, indexes, problems)
            }
            HookDoes::Notify { target } => {
                check_text(&place, target, limits::NAME_BYTES_MAX, problems);
                None
            }
        });
    }
    let steps_max = limits::JOB_STEPS_MAX;
    match draft.steps.len() {
        0 => problems.push(place.key("flow").problem(Fault::Empty)),
        count if count > steps_max => {
            // Ten thousand further problems would not help.
            let fault = Fault::TooMany {
                what: "steps",
                count,
                max: steps_max,
            };
            problems.push(place.problem(fault));
            return (Vec::new(), hook_calls, StepGraph::default());
        }
        _ => {}
    }

    let mut positions: HashMap<String, u32> = HashMap::with_capacity(draft.steps.len());
    for (position, step) in draft.steps.iter().enumerate() {
        if positions
            .insert(step.name.clone(), position as u32)
            .is_some()
        {
            problems.push(place.step(&step.name).problem(Fault::Duplicate));
        }
    }
    let mut depends_on = Vec::with_capacity(draft.steps.len());
    let mut calls = Vec::with_capacity(draft.steps.len());
    for (position, step) in draft.steps.iter().enumerate() {
        let place = place.step(&step.name);
        check_step(&place, step, problems);
        depends_on.push(resolve(&place, position as u32, step, &positions, problems));
        calls.push(match &step.action {
            Action::Task { task, .. } => called(&place, task, indexes, problems),
            _ => None,
        });
    }
    let dependencies: Vec<Vec<u32>> = depends_on
        .iter()
        .map(|tree| tree.named().into_iter().collect())
        .collect();
    let mut dependents = vec![Vec::new(); draft.steps.len()];
    for (position, named) in dependencies.iter().enumerate() {
        for &dependency in named {
            dependents[dependency as usize].push(position as u32);
        }
    }
    if problems.is_empty()
        && let Some(cycle) = find_cycle(&dependencies)
    {
        let steps = cycle
            .iter()
            .map(|&at| draft.steps[at as usize].name.clone())
            .collect();
        problems.push(place.problem(Fault::Cycle { steps }));
    }
    let steps = draft.steps.iter();
    let unrendered = steps.map(|step| is_unrendered(draft, step)).collect();
    let steps = StepGraph {
        depends_on,
        dependencies,
        dependents,
        positions,
        unrendered,
    };
    (calls, hook_calls, steps)
}

/// Whether there is anything in a step that is not yet what a worker may see.
fn is_unrendered(task: &TaskDraft, step: &StepDraft) -> bool {
    let has_secret_inputs = || task.inputs.iter().any(|spec| spec.secret);
    let variables = || task.env.values().chain(step.env.values());
    let mut texts = step.action.texts().into_iter().map(|(_, text)| text);
    step.named_action.is_some()
        || step.input != Json::empty_object()
        || has_secret_inputs()
        || texts.any(is_template)
        || variables()
            .chain(&step.workdir)
            .any(|text| is_template(text))
}

fn called(
    place: &Place,
    task: &str,
    indexes: &HashMap<String, u32>,
    problems: &mut Vec<Problem>,
) -> Option<u32> {
    let call = indexes.get(task).copied();
    if call.is_none() {
        let task = shorten(task);
        problems.push(place.problem(Fault::UnknownTask { task }));
    }
    call
}

fn check_step(place: &Place, step: &StepDraft, problems: &mut Vec<Problem>) {
    check_name(place, &step.name, problems);
    for (key, text) in step.action.texts() {
        check_text_size(&place.key(key), text, limits::SCRIPT_BYTES_MAX, problems);
    }
    match &step.action {
        Action::Script { script, .. } if script.is_empty() => {
            problems.push(place.key("script").problem(Fault::Empty));
        }
        Action::Script {
            runner: Runner::Docker | Runner::Pod,
            image: None,
            ..
        } => {
            problems.push(place.key("image").problem(Fault::NotAllowed {
                why: "is missing, a script with runner docker or pod needs one",
            }));
        }
        Action::Script {
            language: Some(language),
            ..
        } if !is_program_name(language) && !is_template(language) => {
            problems.push(place.key("language").problem(Fault::NotAllowed {
                why: "is not the name of a program, such as sh, bash, python or node",
            }));
        }
        Action::Approval { .. } if step.for_each.is_some() => {
            problems.push(place.key("for_each").problem(Fault::NotAllowed {
                why: "an approval cannot be a loop, ask once before it",
            }));
        }
        _ => {}
    }
    let image = match &step.action {
        Action::Script { image, .. } => image.as_deref(),
        Action::Docker { image, .. } => Some(image.as_str()),
        _ => None,
    };
    let written = image.filter(|image| !is_template(image));
    if let Some(fault) = written.and_then(image_fault) {
        problems.push(place.key("image").problem(fault));
    }
    check_env(&place.key("env"), &step.env, problems);
    if let Some(workdir) = &step.workdir {
        let place = place.key("workdir");
        check_text(&place, workdir, limits::WORKDIR_BYTES_MAX, problems);
    }
    if step.tags.len() > limits::STEP_TAGS_MAX {
        let (count, max) = (step.tags.len(), limits::STEP_TAGS_MAX);
        problems.push(place.problem(Fault::TooMany {
            what: "tags",
            count,
            max,
        }));
    }
    for tag in step.tags.iter().take(limits::STEP_TAGS_MAX) {
        if let Some(fault) = tag_fault(tag) {
            problems.push(place.key("tags").problem(fault));
        }
    }
    check_duration(&place.key("timeout"), step.timeout_ms, problems);
    let retry = place.key("retry");
    check_range(
        &retry,
        step.retry.max_attempts.into(),
        1,
        limits::ATTEMPTS_MAX.into(),
        problems,
    );
    check_range(
        &retry,
        step.retry.delay_ms,
        0,
        limits::DURATION_MS_MAX,
        problems,
    );
    check_range(
        &retry,
        step.retry.max_delay_ms,
        0,
        limits::DURATION_MS_MAX,
        problems,
    );
    if let Some(for_each) = &step.for_each {
        let place = place.key("for_each");
        let items: &[Json] = match &for_each.items {
            Items::List(items) => items,
            Items::Template(_) => &[],
        };
        let (count, max) = (items.len(), limits::LOOP_ITEMS_MAX);
        if count > max {
            problems.push(place.problem(Fault::TooMany {
                what: "items",
                count,
                max,
            }));
        }
        for item in items.iter().take(max) {
            check_json_size(&place, item, limits::OUTPUT_BYTES_MAX, problems);
        }
        if for_each.max_parallel == Some(0) {
            let fault = Fault::OutOfRange {
                value: 0,
                min: 1,
                max: max as i64,
            };
            problems.push(place.key("max_parallel").problem(fault));
        }
    }
}

/// The dependency tree with positions instead of names.
fn resolve(
    place: &Place,
    position: u32,
    step: &StepDraft,
    positions: &HashMap<String, u32>,
    problems: &mut Vec<Problem>,
) -> DependsOn<u32> {
    let place = place.key("depends_on");
    // No deeper than needed to know: a hostile tree must not exhaust the stack.
    let depth = step.depends_on.depth_up_to(limits::DEPENDS_DEPTH_MAX + 1);
    if depth > limits::DEPENDS_DEPTH_MAX {
        problems.push(place.problem(Fault::DependsTooDeep));
        return DependsOn::nothing();
    }
    if let DependsOn::All(group) = &step.depends_on
        && group.is_empty()
    {
        return DependsOn::nothing();
    }
    let mut edge = |name: &str, accept: Accept| -> Option<u32> {
        let fault = match positions.get(name) {
            None => Fault::UnknownDependency {
                step: shorten(name),
            },
            Some(&at) if at == position => Fault::SelfReference,
            Some(_) if accept.is_empty() => Fault::EmptyAccept,
            Some(&at) => return Some(at),
        };
        problems.push(place.problem(fault));
        None
    };
    let mut empty_groups = 0;
    let tree = resolve_tree(&step.depends_on, &mut edge, &mut empty_groups);
    if empty_groups > 0 {
        problems.push(place.problem(Fault::EmptyGroup));
    }
    tree.unwrap_or_else(DependsOn::nothing)
}

fn resolve_tree(
    tree: &DependsOn<String>,
    edge: &mut impl FnMut(&str, Accept) -> Option<u32>,
    empty_groups: &mut usize,
) -> Option<DependsOn<u32>> {
    let mut members = |group: &[DependsOn<String>]| -> Vec<DependsOn<u32>> {
        *empty_groups += usize::from(group.is_empty());
        group
            .iter()
            .filter_map(|member| resolve_tree(member, edge, empty_groups))
            .collect()
    };
    match tree {
        DependsOn::Step { step, accept } => edge(step, *accept).map(|step| DependsOn::Step {
            step,
            accept: *accept,
        }),
        DependsOn::All(group) => Some(DependsOn::All(members(group))),
        DependsOn::Any(group) => Some(DependsOn::Any(members(group))),
    }
}

/// A circle, with its first member repeated at the end.
fn find_cycle(arrows: &[Vec<u32>]) -> Option<Vec<u32>> {
    let mut cycle = cycles(arrows).into_iter().next()?;
    cycle.push(cycle[0]);
    Some(cycle)
}

/// Returns the problem of tasks that call each other in a cycle. The caller has made sure that there is a cycle.
fn cycle_problem(tasks: &[Task]) -> Problem {
    let name = |index: u32| tasks[index as usize].draft.name.clone();
    let calls: Vec<Vec<u32>> = tasks
        .iter()
        .map(|task| task.calls.iter().flatten().copied().collect())
        .collect();
    let cycle = find_cycle(&calls).expect("the caller knows that there is one");
    let tasks = cycle.iter().map(|&index| name(index)).collect();
    Place::task(&name(cycle[0])).problem(Fault::TaskCycle { tasks })
}

/// What a name of a task or step may not be. `[` and `]` are for loop instances, `/` and `@` for selectors.
fn check_name(place: &Place, name: &str, problems: &mut Vec<Problem>) {
    check_text(place, name, limits::NAME_BYTES_MAX, problems);
    let bad = |c: &char| (c.is_control() && *c != '\0') || "[]/@".contains(*c);
    if name.len() <= limits::NAME_BYTES_MAX
        && let Some(character) = name.chars().find(bad)
    {
        problems.push(place.problem(Fault::BadCharacter { character }));
    }
    if name == "_server" {
        problems.push(place.problem(Fault::Reserved { word: "_server" }));
    }
}

fn check_text(place: &Place, text: &str, bytes_max: usize, problems: &mut Vec<Problem>) {
    if text.trim().is_empty() {
        problems.push(place.problem(Fault::Empty));
    }
    check_text_size(place, text, bytes_max, problems);
}

fn check_text_size(place: &Place, text: &str, bytes_max: usize, problems: &mut Vec<Problem>) {
    let bytes = text.len();
    if bytes > bytes_max {
        problems.push(place.problem(Fault::TooLong { bytes, bytes_max }));
    } else if text.contains('\0') {
        problems.push(place.problem(Fault::NulByte));
    }
}

fn check_json_size(place: &Place, json: &Json, bytes_max: usize, problems: &mut Vec<Problem>) {
    check_text_size(place, &json.0, bytes_max, problems);
}

fn check_duration(place: &Place, duration_ms: Option<i64>, problems: &mut Vec<Problem>) {
    if let Some(ms) = duration_ms {
        check_range(place, ms, 1, limits::DURATION_MS_MAX, problems);
    }
}

fn check_range(place: &Place, value: i64, min: i64, max: i64, problems: &mut Vec<Problem>) {
    if !(min..=max).contains(&value) {
        problems.push(place.problem(Fault::OutOfRange { value, min, max }));
    }
}

/// Names are those that every shell can read; what the worker itself says is not to be overwritten.
fn check_env(place: &Place, env: &BTreeMap<String, String>, problems: &mut Vec<Problem>) {
    if env.len() > limits::ENV_MAX {
        let (count, max) = (env.len(), limits::ENV_MAX);
        problems.push(place.problem(Fault::TooMany {
            what: "variables",
            count,
            max,
        }));
        return;
    }
    let bytes: usize = env.iter().map(|(k, v)| k.len() + v.len()).sum();
    let bytes_max = limits::ENV_BYTES_MAX;
    if bytes > bytes_max {
        problems.push(place.problem(Fault::TooLong { bytes, bytes_max }));
    }
    for (name, value) in env {
        if let Some(fault) = env_name_fault(name) {
            problems.push(place.problem(fault));
        }
        if value.contains('\0') {
            problems.push(place.problem(Fault::NulByte));
        }
    }
}

/// What is wrong with the name of a variable of the environment.
pub fn env_name_fault(name: &str) -> Option<Fault> {
    let bad = |c: &char| !(c.is_ascii_alphanumeric() || *c == '_');
    if name.is_empty() {
        return Some(Fault::Empty);
    }
    if let Some(character) = name.chars().find(bad) {
        return Some(Fault::BadCharacter { character });
    }
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        return Some(Fault::NotAllowed {
            why: "has a variable whose name begins with a digit",
        });
    }
    name.starts_with("STEPWARD_").then_some(Fault::NotAllowed {
        why: "has a variable whose name begins with STEPWARD_, which is reserved",
    })
}

fn is_program_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(good)
}

/// An image's name is handed to the docker command: it must not look like an option or like two words.
pub fn image_fault(image: &str) -> Option<Fault> {
    let (bytes, bytes_max) = (image.len(), limits::IMAGE_BYTES_MAX);
    if image.is_empty() {
        return Some(Fault::Empty);
    }
    if bytes > bytes_max {
        return Some(Fault::TooLong { bytes, bytes_max });
    }
    let bad = |c: &char| !(c.is_ascii_alphanumeric() || "._:/@-".contains(*c));
    if let Some(character) = image.chars().find(bad) {
        return Some(Fault::BadCharacter { character });
    }
    let first_is_good = image.starts_with(|first: char| first.is_ascii_alphanumeric());
    (!first_is_good).then_some(Fault::NotAllowed {
        why: "does not begin with a letter or digit",
    })
}

/// The first tag that is none, and what one is.
pub fn bad_tag(tags: &[String]) -> Option<String> {
    let bad = tags.iter().find(|tag| tag_fault(tag).is_some())?;
    Some(format!(
        "{} is not allowed, a tag is 1 to {} letters, figures or signs of . _ : / - =",
        limits::shorten(bad),
        limits::TAG_BYTES_MAX
    ))
}

/// What is wrong with a tag, of a step or of a worker.
pub fn tag_fault(tag: &str) -> Option<Fault> {
    let (bytes, bytes_max) = (tag.len(), limits::TAG_BYTES_MAX);
    if tag.is_empty() {
        return Some(Fault::Empty);
    }
    if bytes > bytes_max {
        return Some(Fault::TooLong { bytes, bytes_max });
    }
    let bad = |c: &char| !(c.is_ascii_alphanumeric() || "._:/-=".contains(*c));
    tag.chars().find(bad).map(|character| match character {
        '\0' => Fault::NulByte,
        character => Fault::BadCharacter { character },
    })
}
