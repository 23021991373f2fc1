//! What can be submitted: the workflows as they were last loaded. Replaced as a whole, so nobody sees half of a change.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use crate::domain::Timestamp;
use crate::domain::schedule::ScheduleDraft;
use crate::domain::webhook::WebhookDraft;
use crate::language::{Diagnostic, Reloaded, TaskPlace, Workflows};
use crate::store::Frozen;

#[derive(Default)]
pub struct Catalogue {
    loaded: RwLock<Arc<Loaded>>,
}

/// One state of the workflows.
#[derive(Default)]
pub struct Loaded {
    pub tasks: BTreeMap<String, Frozen>,
    /// Where each is written.
    pub places: BTreeMap<String, TaskPlace>,
    pub schedules: Vec<ScheduleDraft>,
    /// By name.
    pub webhooks: BTreeMap<String, WebhookDraft>,
    /// What is wrong with the files as they are now.
    pub problems: Vec<Diagnostic>,
    /// Files that are served as they were when they were last good.
    pub stale: Vec<String>,
    /// Files that are not served at all.
    pub left_out: Vec<String>,
    /// When they were read. `None`: there is no folder.
    pub at: Option<Timestamp>,
}

impl Catalogue {
    pub fn replace(&self, loaded: Arc<Loaded>) {
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
    }

    pub fn current(&self) -> Arc<Loaded> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded.clone()
    }
}

impl Loaded {
    /// What can be submitted, and nothing that would happen by itself.
    pub fn of_tasks(workflows: &Workflows, at: Timestamp) -> Loaded {
        Loaded {
            tasks: frozen(workflows),
            places: workflows.places().clone(),
            at: Some(at),
            ..Loaded::default()
        }
    }

    pub fn new(reloaded: &Reloaded, at: Timestamp) -> Loaded {
        let workflows = &reloaded.workflows;
        let webhooks = workflows.webhooks().iter();
        Loaded {
            tasks: frozen(workflows),
            places: workflows.places().clone(),
            schedules: workflows.schedules().to_vec(),
            webhooks: webhooks
                .map(|webhook| (webhook.name.clone(), webhook.clone()))
                .collect(),
            problems: reloaded.diagnostics.clone(),
            stale: names(&reloaded.stale),
            left_out: names(&reloaded.left_out),
            at: Some(at),
        }
    }

    pub fn errors(&self) -> usize {
        let problems = self.problems.iter();
        problems.filter(|problem| problem.is_error()).count()
    }

    /// Those whose names come after this one.
    pub fn tasks_after(&self, name: &str) -> impl Iterator<Item = &Frozen> {
        let after = (Bound::Excluded(name), Bound::Unbounded);
        self.tasks.range::<str, _>(after).map(|(_, task)| task)
    }
}

fn frozen(workflows: &Workflows) -> BTreeMap<String, Frozen> {
    let tasks = workflows.tasks();
    tasks
        .map(|(name, task)| (name.clone(), Frozen::new(task.clone())))
        .collect()
}

fn names(files: &[PathBuf]) -> Vec<String> {
    let names = files.iter().map(|file| file.to_string_lossy().into_owned());
    names.collect()
}
