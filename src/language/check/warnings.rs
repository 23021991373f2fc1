//! What is allowed and probably not meant.

use super::super::decode::TaskParts;
use super::super::words::listed;
use super::{CheckOptions, Checker};
use crate::domain::task::Items;

impl<'t> Checker<'_, 't> {
    pub fn warnings(&mut self, task: &TaskParts<'t>, options: &CheckOptions) {
        for step in &task.steps {
            if self.problems.is_out_of_time() {
                return;
            }
            if let Some((when, span)) = &step.when
                && when.0 == "false"
            {
                let message = format!("{} never runs", step.owner.what);
                self.problems
                    .error("W102", *span, message)
                    .label("always skipped")
                    .help("remove the step, or say when it runs: `when: \"{{ … }}\"`");
            }
            if let Some(for_each) = &step.for_each
                && for_each.items == Items::List(Vec::new())
            {
                let message = format!("{} loops over nothing", step.owner.what);
                self.problems
                    .error("W102", step.key.span, message)
                    .label("always skipped")
                    .help("name at least one item under `for_each`");
            }
            if let (Some(job_ms), Some((ms, span))) = (task.draft.timeout_ms, step.policies.timeout)
                && ms > job_ms
            {
                let message = format!(
                    "the timeout of {} is above that of its task",
                    step.owner.what
                );
                let problem = self.problems.error("W104", span, message);
                problem.label("never reached");
                if let Some(span) = task.timeout {
                    problem.also(span, "the whole job ends here");
                }
            }
            if let Some(offered) = &options.offered_tags {
                for (tag, span) in &step.policies.tags {
                    if !offered.contains(tag) {
                        let known = || offered.iter().map(String::as_str);
                        let problem = self.problems.error(
                            "W101",
                            *span,
                            format!("no worker offers the tag `{tag}`"),
                        );
                        problem.label("such a step finds nobody to run it");
                        if self.suggestions.are_exhausted() {
                            continue;
                        }
                        match self.suggestions.nearest(tag, known()) {
                            Some(near) => problem.help(format!("did you mean `{near}`?")),
                            None => problem.help(format!("offered are {}", listed(known()))),
                        };
                    }
                }
            }
        }
        if task.draft.timeout_ms.is_none() && task.timeout.is_none() {
            for schedule in &task.schedules {
                let message = format!("{} has no timeout of its own", task.owner.what);
                self.problems
                    .error("W103", schedule.key.span, message)
                    .label("nobody watches what a schedule starts")
                    .also(task.key.span, "this task")
                    .help("add `timeout:` to the task, such as `timeout: 1h`");
            }
        }
    }
}
