//! What can be submitted: the workflows as they were last loaded. Replaced as a whole, so nobody sees half of a change.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use crate::domain::schedule::ScheduleDraft;
use crate::domain::webhook::WebhookDraft;
use crate::language::Workflows;
use crate::store::Frozen;

pub struct Catalogue {
    loaded: RwLock<Arc<Loaded>>,
}

/// One state of the workflows.
#[derive(Default)]
pub struct Loaded {
    pub tasks: BTreeMap<String, Frozen>,
    pub schedules: Vec<ScheduleDraft>,
    /// By name.
    pub webhooks: BTreeMap<String, WebhookDraft>,
}

impl Catalogue {
    pub fn new(loaded: Loaded) -> Catalogue {
        Catalogue {
            loaded: RwLock::new(Arc::new(loaded)),
        }
    }

    pub fn current(&self) -> Arc<Loaded> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded.clone()
    }
}

impl Loaded {
    pub fn new(workflows: &Workflows) -> Loaded {
        let tasks = workflows.tasks();
        let frozen = tasks.map(|(name, task)| (name.clone(), Frozen::new(task.clone())));
        let webhooks = workflows.webhooks().iter();
        Loaded {
            tasks: frozen.collect(),
            schedules: workflows.schedules().to_vec(),
            webhooks: webhooks
                .map(|webhook| (webhook.name.clone(), webhook.clone()))
                .collect(),
        }
    }

    /// Those whose names come after this one.
    pub fn tasks_after(&self, name: &str) -> impl Iterator<Item = &Frozen> {
        let after = (Bound::Excluded(name), Bound::Unbounded);
        self.tasks.range::<str, _>(after).map(|(_, task)| task)
    }
}
