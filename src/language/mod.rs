//! What the YAML says: workflow files, decoded into checked definitions, or a list of what is wrong with them.
//!
//! A file becomes a tree in which everything knows its place (`tree`), the tree becomes drafts key by key (`decode`), and
//! all files together are checked for what only they together can be wrong about (`check`). One pass finds everything;
//! `rules` is the list of what there is to find. Only files without errors become workflows.
//!
//! Deliberately not here: the server, the store. A folder becomes values.

pub mod arguments;
mod budget;
mod check;
mod decode;
mod diagnostic;
pub mod duration;
mod library;
mod load;
pub mod manifest;
mod memory;
pub mod program_quotes;
pub mod render;
pub mod rules;
mod scalar;
pub mod schema;
mod scripts;
mod secrets;
pub mod shell;
mod source;
pub mod template;
mod tree;
pub mod values;
pub mod words;

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::domain::schedule::ScheduleDraft;
use crate::domain::task::Definition;
use crate::domain::webhook::WebhookDraft;
use budget::Suggestions;
use decode::{Decoder, Document};
use diagnostic::{Problems, Unshown};
use scripts::Scripts;
use source::Source;

pub use budget::CheckBudget;
pub use check::CheckOptions;
pub use diagnostic::{Diagnostic, Fix, Severity, Spot};
pub use library::{Library, Reloaded};
pub use load::{FILE_BYTES_MAX, FILES_MAX, check_among, load, load_accepting, load_files, text_of};
pub use memory::AcceptedTexts;
pub use secrets::{looks_secret, names_secret};
pub use source::SourceFile;

/// The tasks of a folder, each with all that it calls, and what starts them.
#[derive(Debug, Default)]
pub struct Workflows {
    tasks: BTreeMap<String, Arc<Definition>>,
    places: BTreeMap<String, TaskPlace>,
    schedules: Vec<ScheduleDraft>,
    webhooks: Vec<WebhookDraft>,
}

/// Where a task is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPlace {
    /// As it is shown.
    pub file: String,
    /// The first line is 1.
    pub line: u32,
}

/// Files and what was found in them.
#[derive(Debug, Default)]
pub struct Checked {
    /// Of all files, if none has an error; else nothing, since half of a folder is not what anybody wrote.
    pub workflows: Workflows,
    /// By file and line.
    pub diagnostics: Vec<Diagnostic>,
    unshown: Unshown,
    pub files: usize,
    /// The files that secrets come from, if a server checks them. A change of one of them can make a workflow file good or bad.
    secret_files: Vec<PathBuf>,
}

impl Workflows {
    pub fn tasks(&self) -> impl Iterator<Item = (&String, &Arc<Definition>)> {
        self.tasks.iter()
    }

    /// By task.
    pub fn places(&self) -> &BTreeMap<String, TaskPlace> {
        &self.places
    }

    pub fn schedules(&self) -> &[ScheduleDraft] {
        &self.schedules
    }

    pub fn webhooks(&self) -> &[WebhookDraft] {
        &self.webhooks
    }
}

impl Checked {
    /// All there are, shown or not.
    pub fn errors(&self) -> usize {
        let shown = self.diagnostics.iter().filter(|found| found.is_error());
        let unshown = self.unshown.values().map(|(errors, _)| errors);
        shown.count() + unshown.sum::<usize>()
    }

    /// Those that there are besides the shown ones.
    pub fn unshown(&self) -> usize {
        let unshown = self.unshown.values();
        unshown.map(|(errors, warnings)| errors + warnings).sum()
    }

    /// All there are, shown or not.
    pub fn warnings(&self) -> usize {
        let shown = self.diagnostics.iter().filter(|found| !found.is_error());
        let unshown = self.unshown.values().map(|(_, warnings)| warnings);
        shown.count() + unshown.sum::<usize>()
    }
}

impl From<Diagnostic> for Checked {
    /// A file that could not be read.
    fn from(fault: Diagnostic) -> Checked {
        Checked {
            diagnostics: vec![fault],
            files: 1,
            ..Checked::default()
        }
    }
}

/// Checks files together. There is no folder in which `file:` could be looked for.
pub fn check_sources(files: Vec<SourceFile>, options: &CheckOptions) -> Checked {
    check_with(&files, true, &mut Scripts::new(None), options)
}

/// Checks files together with the scripts that they name with `file:`, by path. Nothing is read from disk.
pub fn check_texts(
    files: Vec<SourceFile>,
    scripts: BTreeMap<String, String>,
    options: &CheckOptions,
) -> Checked {
    check_with(&files, true, &mut Scripts::kept(None, scripts), options)
}

/// `all_read`: these are all the files there are, so that what is not in them does not exist.
fn check_with(
    files: &[SourceFile],
    all_read: bool,
    scripts: &mut Scripts,
    options: &CheckOptions,
) -> Checked {
    let sources: Vec<Source> = files.iter().map(Source::new).collect();
    let accepted = |file: &SourceFile| options.accepted_by_0_1.has_file(file);
    let accepted = files.iter().map(accepted).collect();
    let mut problems = Problems::new(accepted, options.budget.clone());
    let mut roots = Vec::new();
    let mut all_read = all_read;
    for (file, source) in sources.iter().enumerate() {
        let errors_before = problems.errors();
        match tree::read(source, file as u32, &mut problems) {
            Some(root) => roots.push(root),
            None => all_read &= problems.errors() == errors_before,
        }
    }
    let suggestions = Suggestions::new();
    let mut decoder = Decoder {
        problems: &mut problems,
        suggestions: &suggestions,
        scripts,
        meant: HashSet::new(),
        zones: OnceCell::new(),
    };
    let documents: Vec<Document<'_>> = roots.iter().map(|root| decoder.document(root)).collect();
    let secret_files = match &options.secret_policy {
        Some(policy) => check::check_secret_places(&documents, policy, &mut problems),
        None => Vec::new(),
    };
    // Decoding stopped early, so checks would report parts as missing that were only not read.
    let workflows = match problems.is_out_of_time() {
        true => None,
        false => check::check(
            documents,
            all_read,
            &sources,
            options,
            &suggestions,
            &mut problems,
        ),
    };
    let (diagnostics, unshown) = problems.into_diagnostics(&sources);
    Checked {
        workflows: workflows.unwrap_or_default(),
        diagnostics,
        unshown,
        files: files.len(),
        secret_files,
    }
}
