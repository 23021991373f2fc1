//! What can only be known when all files are read: names, graphs, templates, what is given to whom.

mod assemble;
mod calls;
mod command_secrets;
mod graph;
mod inside;
mod manifests;
mod names;
mod secret_inputs;
mod secret_places;
mod templates;
mod untrusted;
mod wall;
mod warnings;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use super::budget::{CheckBudget, Suggestions};
use super::decode::Document;
use super::decode::Text;
use super::diagnostic::{Problem, Problems};
use super::memory::AcceptedTexts;
use super::source::{Source, Span};
use super::{TaskPlace, Workflows};
use crate::domain::task::Definition;
use crate::secret_policy::SecretPolicy;
use manifests::PlacedManifest;
use names::Names;

pub use secret_places::check_secret_places;

/// What is known besides the files.
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    /// What the workers that are there offer. `None`: unknown, and nothing is said about it.
    pub offered_tags: Option<BTreeSet<String>>,
    /// Texts in which violations of rules newer than version 0.1 are warnings. Only a server with a data folder of 0.1 has any.
    pub accepted_by_0_1: AcceptedTexts,
    /// The places that secrets may come from. Only a server knows them; `None`: unknown, and nothing is said about them.
    pub secret_policy: Option<Arc<SecretPolicy>>,
    /// Time limit of the check. Only a server that checks files for a caller sets one.
    pub budget: CheckBudget,
}

/// The files taken together.
pub struct Checker<'c, 't> {
    pub problems: &'c mut Problems,
    pub sources: &'c [Source],
    pub names: Names<'t>,
    pub suggestions: &'c Suggestions,
    accepted_by_0_1: &'c AcceptedTexts,
    /// The last text of a manifest in which a place was looked for.
    placed_manifest: RefCell<Option<(Span, Rc<PlacedManifest>)>>,
}

/// Looking for what was meant costs as much as there are names; a file with more errors than this was not mistyped.
const SUGGESTIONS_MAX: usize = 500;

/// Everything that is wrong is said; the workflows, if nothing was.
pub fn check(
    mut documents: Vec<Document<'_>>,
    all_read: bool,
    sources: &[Source],
    options: &CheckOptions,
    suggestions: &Suggestions,
    problems: &mut Problems,
) -> Option<Workflows> {
    let names = Names::collect(&mut documents, all_read, problems);
    let mut checker = Checker {
        problems,
        sources,
        names,
        suggestions,
        accepted_by_0_1: &options.accepted_by_0_1,
        placed_manifest: RefCell::default(),
    };
    let answers = untrusted::TaskAnswers::of(&documents);
    let uses = untrusted::action_uses(&documents, &answers, &options.budget);
    let command_values = checker.action_command_values(&documents, &uses);
    for document in &documents {
        for action in &document.actions {
            if checker.problems.is_out_of_time() {
                return None;
            }
            checker.action_templates(action, &uses);
            checker.secrets_in_action_command(action, &uses);
        }
        for task in &document.tasks {
            if checker.problems.is_out_of_time() {
                return None;
            }
            let graph = checker.graph(task);
            checker.templates(task, &graph, &answers);
            checker.calls(task);
            checker.secrets_in_commands(task, &command_values, &answers);
            checker.warnings(task, options);
        }
    }
    checker.former_actions(&documents, &uses);
    checker.task_cycles(&documents);
    let is_out_of_time = checker.problems.is_out_of_time();
    if is_out_of_time || checker.problems.errors() > 0 || !checker.copies_fit(&documents) {
        return None;
    }
    let drafts = checker.assemble(&documents);
    checker.wall(drafts, &documents)
}

impl Checker<'_, '_> {
    /// A violation, inside a text, of a rule that version 0.1 did not have: see `Problems::new_rule`. If the text is a script in a
    /// file of its own, that file must be unchanged as well for the violation to be a warning.
    fn new_rule(
        &mut self,
        code: &'static str,
        text: &Text<'_>,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Problem {
        let is_changed_script = text.from_file
            && !text
                .node
                .scalar_text()
                .is_some_and(|path| self.accepted_by_0_1.has_script(path, &text.text));
        match is_changed_script {
            true => self.problems.error(code, span, message),
            false => self.problems.new_rule(code, span, message),
        }
    }

    fn may_suggest(&self) -> bool {
        self.problems.errors() <= SUGGESTIONS_MAX && !self.suggestions.are_exhausted()
    }
}

impl Workflows {
    fn add(&mut self, name: String, definition: Definition, place: TaskPlace) {
        self.places.insert(name.clone(), place);
        self.tasks.insert(name, Arc::new(definition));
    }
}
