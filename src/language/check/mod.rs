//! What can only be known when all files are read: names, graphs, templates, what is given to whom.

mod assemble;
mod calls;
mod graph;
mod inside;
mod names;
mod templates;
mod wall;
mod warnings;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::decode::Document;
use super::diagnostic::Problems;
use super::source::Source;
use super::{TaskPlace, Workflows};
use crate::domain::task::Definition;
use names::Names;

/// What is known besides the files.
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    /// What the workers that are there offer. `None`: unknown, and nothing is said about it.
    pub offered_tags: Option<BTreeSet<String>>,
}

/// The files taken together.
pub struct Checker<'c, 't> {
    pub problems: &'c mut Problems,
    pub sources: &'c [Source],
    pub names: Names<'t>,
}

/// Looking for what was meant costs as much as there are names; a file with more errors than this was not mistyped.
const SUGGESTIONS_MAX: usize = 500;

/// Everything that is wrong is said; the workflows, if nothing was.
pub fn check(
    mut documents: Vec<Document<'_>>,
    all_read: bool,
    sources: &[Source],
    options: &CheckOptions,
    problems: &mut Problems,
) -> Option<Workflows> {
    let names = Names::collect(&mut documents, all_read, problems);
    let mut checker = Checker {
        problems,
        sources,
        names,
    };
    for document in &documents {
        for action in &document.actions {
            checker.action_templates(action);
        }
        for task in &document.tasks {
            let graph = checker.graph(task);
            checker.templates(task, &graph);
            checker.calls(task);
            checker.warnings(task, options);
        }
    }
    checker.task_cycles(&documents);
    if checker.problems.errors() > 0 {
        return None;
    }
    let drafts = checker.assemble(&documents);
    checker.wall(drafts, &documents)
}

impl Checker<'_, '_> {
    fn may_suggest(&self) -> bool {
        self.problems.errors() <= SUGGESTIONS_MAX
    }
}

impl Workflows {
    fn add(&mut self, name: String, definition: Definition, place: TaskPlace) {
        self.places.insert(name.clone(), place);
        self.tasks.insert(name, Arc::new(definition));
    }
}
