//! Why no worker takes a step that needs certain tags and features, worker by worker.

use std::fmt;

use serde_json::{Value, json};

use super::EngineError;
use super::cascade::seconds;
use super::facts::Facts;
use crate::domain::peer::{Feature, Features};
use crate::domain::worker::{Worker, WorkerState};
use crate::domain::{Now, RequirementId};
use crate::store::{Requirement, Tx};

/// Workers that are spoken of, and how much is noted about them.
pub(super) const WORKERS_MAX: usize = 20;
const FACTS_BYTES_MAX: usize = 8 << 10;
/// Workers among which the nearest matches are looked for.
const LOOKED_AT_MAX: u32 = 100;

/// The nearest matches come first.
pub(super) struct Lacks {
    workers: Vec<Lack>,
    /// There are others.
    pub more: bool,
}

struct Lack {
    worker: Worker,
    obstacle: Obstacle,
}

enum Obstacle {
    Tags(Vec<String>),
    /// The worker's program is too old for the step.
    Features(Features),
    Silence {
        ms: i64,
    },
    Paused,
    Draining,
}

impl Lacks {
    pub fn find(
        tx: &Tx,
        requirement_id: RequirementId,
        requirement: &Requirement,
        now: Now,
    ) -> Result<Lacks, EngineError> {
        let mut workers = tx.workers_able_to(requirement_id, WORKERS_MAX as u32 + 1)?;
        let matching = workers.len();
        for worker in tx.first_workers(LOOKED_AT_MAX)? {
            let known = |found: &Worker| found.worker_id == worker.worker_id;
            if !workers[..matching].iter().any(known) {
                workers.push(worker);
            }
        }
        let lacks = workers.into_iter().map(|worker| Lack {
            obstacle: obstacle(&worker, requirement, now),
            worker,
        });
        let mut workers: Vec<Lack> = lacks.collect();
        workers.sort_by_key(Lack::distance);
        let more = workers.len() > WORKERS_MAX;
        workers.truncate(WORKERS_MAX);
        Ok(Lacks { workers, more })
    }

    /// Whether a worker that is active and has all the tags only lacks a feature.
    pub fn is_only_feature_missing(&self) -> bool {
        self.workers
            .iter()
            .any(|lack| matches!(lack.obstacle, Obstacle::Features(_)) && lack.worker.takes_work())
    }

    pub fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().map(|lack| &lack.worker)
    }

    /// One for each worker.
    pub fn about_workers(&self) -> impl Iterator<Item = String> {
        self.workers.iter().map(ToString::to_string)
    }

    pub fn lines(&self) -> Vec<String> {
        let others = self.more.then(|| "and others".to_string());
        self.about_workers().chain(others).collect()
    }

    pub fn facts(&self) -> Facts {
        let mut bytes = 0;
        let fitting = self.workers.iter().map(Lack::fact).take_while(|fact| {
            bytes += fact.to_string().len();
            bytes <= FACTS_BYTES_MAX
        });
        let workers: Vec<Value> = fitting.collect();
        let more = self.more || workers.len() < self.workers.len();
        Facts::none()
            .and("workers", workers)
            .and("more_workers", more)
    }
}

fn obstacle(worker: &Worker, requirement: &Requirement, now: Now) -> Obstacle {
    let missing = (requirement.tags.iter()).filter(|tag| !worker.tags.contains(tag));
    let missing: Vec<String> = missing.cloned().collect();
    let missing_features = requirement.features.missing_in(worker.features);
    if !missing.is_empty() {
        Obstacle::Tags(missing)
    } else if !missing_features.is_empty() {
        Obstacle::Features(missing_features)
    } else if worker.state == WorkerState::Inactive {
        let ms = (now.up.0 - worker.seen_up.0).max(0);
        Obstacle::Silence { ms }
    } else if worker.paused {
        Obstacle::Paused
    } else {
        Obstacle::Draining
    }
}

impl Lack {
    /// How far the worker is from a match: missing tags weigh more than missing features, and those more than its state.
    fn distance(&self) -> (usize, usize, bool) {
        let (tags, features) = match &self.obstacle {
            Obstacle::Tags(tags) => (tags.len(), 0),
            Obstacle::Features(features) => (0, features.iter().count()),
            Obstacle::Silence { .. } | Obstacle::Paused | Obstacle::Draining => (0, 0),
        };
        (tags, features, self.worker.state != WorkerState::Active)
    }

    fn fact(&self) -> Value {
        let worker = &self.worker.name;
        match &self.obstacle {
            Obstacle::Tags(tags) => json!({ "worker": worker, "lacks": tags }),
            Obstacle::Features(features) => {
                let names: Vec<&str> = features.iter().map(Feature::as_str).collect();
                let version = &self.worker.version;
                json!({ "worker": worker, "lacks": [], "lacks_features": names, "version": version })
            }
            Obstacle::Silence { ms } => {
                let silent_secs = *ms as f64 / 1_000.0;
                json!({ "worker": worker, "lacks": [], "silent_secs": silent_secs })
            }
            Obstacle::Paused => json!({ "worker": worker, "lacks": [], "paused": true }),
            Obstacle::Draining => json!({ "worker": worker, "lacks": [], "draining": true }),
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let worker = &self.worker.name;
        match &self.obstacle {
            Obstacle::Tags(tags) => write!(f, "worker {worker} lacks {}", tags.join(", ")),
            Obstacle::Features(features) => write!(
                f,
                "worker {worker} has the tags, but its version {} lacks the feature {}; install version {} on it",
                self.worker.version,
                in_words(*features),
                env!("CARGO_PKG_VERSION")
            ),
            Obstacle::Silence { ms } => {
                write!(f, "worker {worker} matches, silent for {}", seconds(*ms))
            }
            Obstacle::Paused => write!(f, "worker {worker} matches, but is paused"),
            Obstacle::Draining => write!(f, "worker {worker} matches, but drains"),
        }
    }
}

/// What to do about a worker whose version lacks a feature.
pub(super) fn install_on(worker: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("install version {version} on worker {worker}")
}

/// `start_details and log_checksum`.
pub(super) fn in_words(features: Features) -> String {
    let names: Vec<&str> = features.iter().map(Feature::as_str).collect();
    names.join(" and ")
}
