//! The last wall: what the rules of the domain still find is told at the best known place, never lost.

use std::collections::HashMap;

use super::super::decode::{Document, TaskParts};
use super::super::source::Span;
use super::super::{TaskPlace, Workflows};
use super::Checker;
use crate::domain::check::{Fault, Problem};
use crate::domain::limits::{self, shorten};
use crate::domain::task::{Definition, TaskDraft};

/// All tasks with all that they call, taken together. Each definition has copies of its own.
const STEPS_MAX: usize = 200_000;

impl<'t> Checker<'_, 't> {
    pub fn wall(
        &mut self,
        drafts: HashMap<String, TaskDraft>,
        documents: &[Document<'t>],
    ) -> Option<Workflows> {
        let errors_before = self.problems.errors();
        let mut workflows = Workflows::default();
        let mut steps = 0;
        for task in documents.iter().flat_map(|document| &document.tasks) {
            let definition = match Definition::check_among(&task.key.text, &drafts) {
                Ok(definition) => definition,
                Err(problems) => {
                    // A task that another calls has its problems told with itself.
                    let own = shorten(&task.key.text);
                    let own_problems = problems
                        .0
                        .iter()
                        .filter(|problem| problem.place.task == own);
                    let mut told = own_problems.peekable();
                    if told.peek().is_none() {
                        problems
                            .0
                            .iter()
                            .for_each(|problem| self.domain_problem(problem, task));
                    }
                    told.for_each(|problem| self.domain_problem(problem, task));
                    continue;
                }
            };
            steps += definition
                .tasks()
                .iter()
                .map(|task| task.draft.steps.len())
                .sum::<usize>();
            if steps > STEPS_MAX {
                let message =
                    format!("all tasks with what they call have more than {STEPS_MAX} steps");
                self.problems
                    .error("E062", task.key.span, message)
                    .label("counted up to here")
                    .help("large tasks that many others call count once for each of these");
                return None;
            }
            let source = &self.sources[task.key.span.file as usize];
            let place = TaskPlace {
                file: source.name.to_string(),
                line: source.position(task.key.span.start).line,
            };
            workflows.add(task.key.text.clone(), definition, place);
        }
        for task in documents.iter().flat_map(|document| &document.tasks) {
            let schedules = task.schedules.iter().map(|schedule| schedule.draft.clone());
            workflows.schedules.extend(schedules);
            let webhooks = task
                .webhooks
                .iter()
                .filter_map(|webhook| webhook.draft.clone());
            workflows.webhooks.extend(webhooks);
        }
        (self.problems.errors() == errors_before).then_some(workflows)
    }

    fn domain_problem(&mut self, problem: &Problem, task: &TaskParts<'t>) {
        let code = code(&problem.fault);
        let span = place(problem, task);
        let found = self.problems.error(code, span, problem.to_string());
        found.label("here");
        if matches!(problem.fault, Fault::NestingTooDeep { .. }) {
            let max = limits::NESTING_MAX;
            found.help(format!("a task may call others {max} levels deep"));
        }
    }
}

fn place(problem: &Problem, task: &TaskParts<'_>) -> Span {
    let step = problem.place.step.as_ref();
    let step = step.and_then(|name| {
        task.steps
            .iter()
            .find(|step| shorten(&step.key.text) == *name)
    });
    step.map_or(task.key.span, |step| step.key.span)
}

fn code(fault: &Fault) -> &'static str {
    match fault {
        Fault::Empty => "E019",
        Fault::NulByte => "E009",
        Fault::BadCharacter { .. } | Fault::Reserved { .. } => "E020",
        Fault::TooLong { .. } | Fault::TooMany { .. } => "E062",
        Fault::OutOfRange { .. } => "E017",
        Fault::NotAllowed { .. } => "E013",
        Fault::Duplicate => "E060",
        Fault::UnknownDependency { .. } => "E030",
        Fault::SelfReference => "E032",
        Fault::EmptyGroup => "E035",
        Fault::EmptyAccept => "E036",
        Fault::DependsTooDeep | Fault::NestingTooDeep { .. } => "E038",
        Fault::Cycle { .. } => "E031",
        Fault::UnknownTask { .. } => "E033",
        Fault::TaskCycle { .. } => "E034",
    }
}
