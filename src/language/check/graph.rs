//! Who waits for whom, and who calls whom: unknown names, circles.

use std::collections::HashMap;

use super::super::decode::{Document, Does, TaskParts};
use super::super::source::Span;
use super::Checker;
use crate::domain::cycle::cycles;

/// The steps of one task and their arrows.
pub struct Graph<'t> {
    pub positions: HashMap<&'t str, u32>,
    pub dependencies: Vec<Vec<u32>>,
    /// `false`: something is wrong with the arrows, and nothing can be concluded from them.
    pub sound: bool,
}

impl<'t> Checker<'_, 't> {
    pub fn graph(&mut self, task: &TaskParts<'t>) -> Graph<'t> {
        let errors_before = self.problems.errors();
        let steps = task.steps.iter().enumerate();
        let positions: HashMap<&str, u32> = steps
            .map(|(at, step)| (step.key.text.as_str(), at as u32))
            .collect();
        let mut dependencies = Vec::with_capacity(task.steps.len());
        for (at, step) in task.steps.iter().enumerate() {
            if self.problems.is_out_of_time() {
                return Graph {
                    positions,
                    dependencies: Vec::new(),
                    sound: false,
                };
            }
            let mut named = Vec::with_capacity(step.edges.len());
            for edge in &step.edges {
                match positions.get(edge.step) {
                    Some(&other) if other as usize == at => {
                        let message = format!("{} depends on itself", step.owner.what);
                        self.problems
                            .error("E032", edge.span, message)
                            .label("this step")
                            .also(step.key.span, "depends on itself");
                    }
                    Some(&other) => named.push(other),
                    None => self.unknown_step(edge.step, edge.span, task, step.owner.span),
                }
            }
            named.sort_unstable();
            named.dedup();
            dependencies.push(named);
        }
        for cycle in cycles(&dependencies) {
            let names = cycle
                .iter()
                .map(|&at| task.steps[at as usize].key.text.as_str());
            let mut names: Vec<&str> = names.collect();
            names.push(names[0]);
            let message = format!("steps wait for each other: {}", shown(&names));
            let edge = |from: u32, to: u32| {
                let name = task.steps[to as usize].key.text.as_str();
                let edges = task.steps[from as usize].edges.iter();
                edges
                    .into_iter()
                    .find(|edge| edge.step == name)
                    .map(|edge| edge.span)
            };
            let arrows = (0..cycle.len()).map(|at| {
                let (from, to) = (cycle[at], cycle[(at + 1) % cycle.len()]);
                let from_name = &task.steps[from as usize].key;
                let to_name = &task.steps[to as usize].key.text;
                let span = edge(from, to).unwrap_or(from_name.span);
                (span, format!("`{}` waits for `{to_name}`", from_name.text))
            });
            let arrows: Vec<(Span, String)> = arrows.collect();
            let (first, rest) = arrows.split_first().expect("a circle has members");
            let problem = self.problems.error("E031", first.0, message);
            problem.label(first.1.clone());
            for (span, label) in rest {
                problem.also(*span, label.clone());
            }
            problem.help("remove one of these dependencies");
        }
        let broken = task.steps.iter().any(|step| !step.depends_whole);
        let sound = self.problems.errors() == errors_before && task.flow_known && !broken;
        Graph {
            positions,
            dependencies,
            sound,
        }
    }

    fn unknown_step(&mut self, name: &str, span: Span, task: &TaskParts<'_>, owner: Span) {
        if !task.flow_known {
            return;
        }
        let may_suggest = self.may_suggest();
        let message = format!("{} has no step `{name}`", task.owner.what);
        let problem = self.problems.error("E030", span, message);
        problem.label("no such step").also(owner, "in this step");
        if !may_suggest {
            return;
        }
        let known = task.steps.iter().map(|step| step.key.text.as_str());
        match self.suggestions.nearest(name, known) {
            Some(near) => {
                problem
                    .help(format!("did you mean `{near}`?"))
                    .fix(span, near);
            }
            None if self.names.tasks.contains_key(name) => {
                problem.help(format!(
                    "`{name}` is a task: call it in a step of `type: task` and depend on that"
                ));
            }
            None => {
                let known = task.steps.iter().map(|step| step.key.text.as_str());
                problem.help(format!(
                    "its steps are {}",
                    super::super::words::listed(known)
                ));
            }
        }
    }

    /// A task that calls itself, through others or not.
    pub fn task_cycles(&mut self, documents: &[Document<'t>]) {
        let tasks: Vec<&TaskParts<'_>> = documents.iter().flat_map(|doc| &doc.tasks).collect();
        let indexes: HashMap<&str, u32> = tasks
            .iter()
            .enumerate()
            .rev()
            .map(|(at, task)| (task.key.text.as_str(), at as u32))
            .collect();
        let calls_of = |task: &TaskParts<'_>| -> Vec<(u32, Span)> {
            let steps = task.steps.iter().filter_map(|step| match &step.does {
                Does::Calls { task, span } => Some((*indexes.get(task.as_str())?, *span)),
                _ => None,
            });
            steps.collect()
        };
        let calls: Vec<Vec<(u32, Span)>> = tasks.iter().map(|task| calls_of(task)).collect();
        let arrows = calls
            .iter()
            .map(|calls| calls.iter().map(|call| call.0).collect());
        let arrows: Vec<Vec<u32>> = arrows.collect();
        for cycle in cycles(&arrows) {
            let names = cycle.iter().map(|&at| tasks[at as usize].key.text.as_str());
            let mut names: Vec<&str> = names.collect();
            names.push(names[0]);
            let message = match cycle.len() {
                1 => format!("task `{}` calls itself", names[0]),
                _ => format!("tasks call each other: {}", shown(&names)),
            };
            let mut problem = None;
            for (at, &from) in cycle.iter().enumerate() {
                let to = cycle[(at + 1) % cycle.len()];
                let call = calls[from as usize].iter().find(|call| call.0 == to);
                let span = call.map_or(tasks[from as usize].key.span, |call| call.1);
                let from = &tasks[from as usize].key.text;
                let label = format!("`{from}` calls `{}`", tasks[to as usize].key.text);
                match &mut problem {
                    None => {
                        let found = self.problems.error("E034", span, message.clone());
                        problem = Some(found.label(label));
                    }
                    Some(problem) => {
                        problem.also(span, label);
                    }
                }
            }
            if let Some(problem) = problem {
                problem.help("a loop over items is `for_each`; trying again is `retry`");
            }
        }
    }
}

fn shown(names: &[&str]) -> String {
    const SHOWN_MAX: usize = 12;
    if names.len() <= SHOWN_MAX {
        return names.join(" → ");
    }
    let last = names[names.len() - 1];
    let more = names.len() - SHOWN_MAX;
    format!(
        "{} → … {more} more … → {last}",
        names[..SHOWN_MAX - 1].join(" → ")
    )
}

/// For each step, all that it waits for, directly or not.
pub struct Ancestors {
    words: usize,
    bits: Vec<u64>,
}

impl Ancestors {
    /// The arrows have no circles.
    pub fn of(dependencies: &[Vec<u32>]) -> Ancestors {
        let count = dependencies.len();
        let words = count.div_ceil(64);
        let mut all = Ancestors {
            words,
            bits: vec![0; words * count],
        };
        let mut done = vec![false; count];
        for start in 0..count {
            let mut path = vec![(start, 0)];
            while let Some((node, arrow)) = path.last_mut() {
                let node = *node;
                if done[node] {
                    path.pop();
                    continue;
                }
                match dependencies[node].get(*arrow) {
                    Some(&next) => {
                        *arrow += 1;
                        if !done[next as usize] {
                            path.push((next as usize, 0));
                        }
                    }
                    None => {
                        for &dependency in &dependencies[node] {
                            all.take(node, dependency as usize);
                        }
                        done[node] = true;
                        path.pop();
                    }
                }
            }
        }
        all
    }

    fn take(&mut self, node: usize, dependency: usize) {
        for word in 0..self.words {
            let theirs = self.bits[dependency * self.words + word];
            self.bits[node * self.words + word] |= theirs;
        }
        self.bits[node * self.words + dependency / 64] |= 1 << (dependency % 64);
    }

    pub fn contains(&self, node: u32, other: u32) -> bool {
        let word = node as usize * self.words + other as usize / 64;
        self.bits[word] & (1 << (other % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_each_once() {
        // 0 → 1 → 0, 2 → 3 → 4 → 2, 5 → 2
        let arrows = [vec![1], vec![0], vec![3], vec![4], vec![2], vec![2]];
        assert_eq!(cycles(&arrows), [vec![0, 1], vec![2, 3, 4]]);
        assert!(cycles(&[vec![1], vec![]]).is_empty());
    }

    #[test]
    fn ancestors_reach_all_the_way_up() {
        let ancestors = Ancestors::of(&[vec![], vec![0], vec![1], vec![]]);
        assert!(ancestors.contains(2, 0) && ancestors.contains(2, 1));
        assert!(!ancestors.contains(2, 3) && !ancestors.contains(0, 2));
    }
}
