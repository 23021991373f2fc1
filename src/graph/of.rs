//! Graphs of what a server or a file tells: a task, or a job with the states of its steps.

use std::collections::BTreeMap;

use super::{Graph, Node, clean};
use crate::wire::api::{EdgesJson, JobJson, StepJson, TaskJson, TaskStepJson};

const MAY_FAIL: &str = "may fail";

pub fn of_task(task: &TaskJson) -> Graph {
    let nodes = task.steps.iter().map(|step| Node {
        label: clean(&step.name),
        kind: clean(&step.kind),
        is_loop: step.for_each,
        state: None,
        notes: notes(step),
        stands_for: None,
    });
    let mut graph = Graph {
        title: clean(&task.name),
        nodes: nodes.collect(),
        edges: Vec::new(),
    };
    let steps = task.steps.iter().enumerate();
    graph.connect(steps.flat_map(|(at, step)| {
        let names = step.depends_on.iter();
        names.map(move |name| (at, name.as_str(), accepted(&step.edges, name)))
    }));
    graph
}

/// `failed or cancelled`; with `any` where one of several is enough. `None`: that it completed.
fn accepted(edges: &EdgesJson, name: &str) -> Option<String> {
    let outcomes = edges.accepts.get(name).map(|words| match words.len() {
        5.. => "however it ends".to_string(),
        _ => words.join(" or "),
    });
    let any = edges.any_of.iter().any(|one| one == name).then_some("any");
    match (any, outcomes) {
        (None, outcomes) => outcomes,
        (Some(any), None) => Some(any.to_string()),
        (Some(any), Some(outcomes)) => Some(format!("{any}: {outcomes}")),
    }
}

fn notes(step: &TaskStepJson) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(task) = &step.task {
        notes.push(format!("calls {}", clean(task)));
    }
    if let Some(when) = &step.when {
        notes.push(format!("when {}", clean(when)));
    }
    if step.continue_on_failure {
        notes.push(MAY_FAIL.to_string());
    }
    notes
}

/// The instances of a loop are told with the loop.
pub fn of_job(job: &JobJson) -> Graph {
    let all = job.steps.as_deref().unwrap_or_default();
    let mut instances: BTreeMap<&str, Vec<&StepJson>> = BTreeMap::new();
    for step in all {
        if let Some(name) = loop_of(&step.name) {
            instances.entry(name).or_default().push(step);
        }
    }
    let is_shown = |step: &&StepJson| loop_of(&step.name).is_none();
    let steps: Vec<&StepJson> = all.iter().filter(is_shown).collect();
    let nodes = steps.iter().map(|step| {
        let of_loop = instances.get(step.name.as_str());
        let mut notes = Vec::new();
        if let Some(instances) = of_loop {
            let ended = |step: &&&StepJson| step.status == "completed";
            let done = instances.iter().filter(ended).count();
            notes.push(format!("{done} of {} completed", instances.len()));
        }
        if let Some(reason) = &step.reason {
            notes.push(clean(reason));
        }
        if let Some(child) = step.child_job_id {
            notes.push(format!("job {child}"));
        }
        if step.continue_on_failure {
            notes.push(MAY_FAIL.to_string());
        }
        if step.attempt > 1 {
            notes.push(format!("attempt {} of {}", step.attempt, step.max_attempts));
        }
        Node {
            label: clean(&step.name),
            kind: clean(&step.kind),
            is_loop: step.for_each,
            state: Some(clean(&step.status)),
            notes,
            stands_for: None,
        }
    });
    let mut graph = Graph {
        title: format!("{} {}", clean(&job.task), job.id),
        nodes: nodes.collect(),
        edges: Vec::new(),
    };
    let steps = steps.iter().enumerate();
    graph.connect(steps.flat_map(|(at, step)| {
        let names = step.depends_on.iter();
        names.map(move |name| (at, name.as_str(), accepted(&step.edges, name)))
    }));
    graph
}

/// `test` of `test[2]`.
pub(crate) fn loop_of(name: &str) -> Option<&str> {
    let (name, item) = name.strip_suffix(']')?.rsplit_once('[')?;
    let is_number = !item.is_empty() && item.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(name)
}
