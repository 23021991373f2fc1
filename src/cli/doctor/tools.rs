//! Whether docker and kubectl answer, where the settings of this machine promise what needs them.

use std::collections::BTreeSet;

use super::case::Case;
use super::{Finding, Looked, or_well};
use crate::worker::executor::obstacle;

pub fn look(case: &Case) -> Looked {
    let mut found = Vec::new();
    let mut answering = BTreeSet::new();
    let needed = needed(case);
    for worker in case.worker_configs() {
        let (docker, kubectl) = (&worker.docker.command, &worker.kubernetes.command);
        for (tag, tool) in [("docker", docker), ("kubernetes", kubectl)] {
            if !worker.tags.iter().any(|offered| offered == tag) {
                continue;
            }
            let Some(why) = obstacle(tag, docker, kubectl) else {
                answering.insert(tool.clone());
                continue;
            };
            let (why, advice) = why.split_once("; ").unwrap_or((&why, "drop the tag"));
            let message = format!("the settings offer {tag}, but {why}");
            let finding = match needed.contains(tag) {
                true => Finding::problem(format!("{message}; tasks need it")),
                false => Finding::warning(message),
            };
            found.push(finding.fix(advice));
        }
    }
    Ok(or_well(found, || match answering.is_empty() {
        true => "the settings of this machine offer neither docker nor kubernetes".to_string(),
        false => {
            let names: Vec<&str> = answering.iter().map(String::as_str).collect();
            format!("{} answers", names.join(" and "))
        }
    }))
}

/// Every tag that some task needs, as the server has them, else as the files of this machine do.
fn needed(case: &Case) -> BTreeSet<String> {
    let tasks = case.answering().and_then(|server| server.tasks());
    if let Ok(tasks) = tasks {
        let steps = tasks.into_iter().flat_map(|task| task.steps);
        return steps.flat_map(|step| step.required_tags).collect();
    }
    let Some(checked) = case.workflows() else {
        return BTreeSet::new();
    };
    let definitions = checked.workflows.tasks();
    let tasks = definitions.flat_map(|(_, definition)| definition.tasks());
    let steps = tasks.flat_map(|task| &task.draft.steps);
    steps.flat_map(|step| step.required_tags()).collect()
}
