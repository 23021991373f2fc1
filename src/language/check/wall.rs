//! The last wall: what the rules of the domain still find is told at the best known place, never lost.

use std::collections::HashMap;

use super::super::decode::Document;
use super::super::source::Span;
use super::super::{TaskPlace, Workflows};
use super::Checker;
use super::assemble::draft_bytes;
use crate::domain::check::{Fault, Problem, TaskSet};
use crate::domain::limits::{self, shorten};
use crate::domain::task::TaskDraft;

/// Maximum number of steps in all tasks together. A task counts again for each task that calls it, because each job stores all tasks
/// that it may need.
const STEPS_MAX: usize = 200_000;
/// Maximum bytes of text in all tasks together. A task counts again for each task that calls it.
const BYTES_MAX: usize = 256 << 20;
/// Number of errors after which no further task is checked: finding the problems of one task takes as long as listing all that it calls.
const ERRORS_MAX: usize = 1_000;

impl<'t> Checker<'_, 't> {
    pub fn wall(
        &mut self,
        drafts: HashMap<String, TaskDraft>,
        documents: &[Document<'t>],
    ) -> Option<Workflows> {
        let errors_before = self.problems.errors();
        let mut workflows = Workflows::default();
        let mut steps = 0;
        let weights: HashMap<String, usize> = drafts
            .iter()
            .map(|(name, draft)| (name.clone(), draft_bytes(draft)))
            .collect();
        let tasks = TaskSet::new(drafts.into_values());
        let (mut bytes, mut is_size_told) = (0, false);
        for task in documents.iter().flat_map(|document| &document.tasks) {
            let is_bad_enough = self.problems.errors() - errors_before >= ERRORS_MAX;
            if is_bad_enough || self.problems.is_out_of_time() {
                return None;
            }
            let definition = match tasks.definition(&task.key.text) {
                Ok(definition) => definition,
                Err(problems) => {
                    // A task that another calls has its problems told with itself.
                    let own = shorten(&task.key.text);
                    let steps = task.steps.iter().rev();
                    let steps: HashMap<String, Span> = steps
                        .map(|step| (shorten(&step.key.text), step.key.span))
                        .collect();
                    let has_own = problems.0.iter().any(|problem| problem.place.task == own);
                    let told = problems.0.iter();
                    for problem in told.filter(|problem| !has_own || problem.place.task == own) {
                        let step = problem.place.step.as_ref();
                        let span = step.and_then(|name| steps.get(name).copied());
                        self.domain_problem(problem, span.unwrap_or(task.key.span));
                    }
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
            let called = definition.tasks().iter();
            bytes += called
                .filter_map(|task| weights.get(task.draft.name.as_str()))
                .sum::<usize>();
            if bytes > BYTES_MAX && !is_size_told {
                is_size_told = true;
                let message = format!(
                    "all tasks with what they call are more than {} MiB of text",
                    BYTES_MAX >> 20
                );
                let problem = self.problems.new_rule("E062", task.key.span, message);
                problem
                    .label("counted up to here")
                    .help("large tasks that many others call count once for each of these");
                if self.problems.errors() > errors_before {
                    return None;
                }
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

    fn domain_problem(&mut self, problem: &Problem, span: Span) {
        let code = code(&problem.fault);
        let found = self.problems.error(code, span, problem.to_string());
        found.label("here");
        if matches!(problem.fault, Fault::NestingTooDeep { .. }) {
            let max = limits::NESTING_MAX;
            found.help(format!("a task may call others {max} levels deep"));
        }
    }
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
