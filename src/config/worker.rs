//! Settings of a worker.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::domain::worker::offer_fault;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerConfig {
    pub name: String,
    pub tags: Vec<String>,
    pub slots: u32,
}

impl Default for WorkerConfig {
    fn default() -> WorkerConfig {
        WorkerConfig {
            name: String::new(),
            tags: vec!["script".to_string()],
            slots: 1,
        }
    }
}

impl WorkerConfig {
    pub fn load(file: Option<&Path>) -> Result<WorkerConfig, ConfigError> {
        super::load(file, WorkerConfig::check)
    }

    fn check(&self) -> Result<(), String> {
        match offer_fault(self.slots, &self.tags) {
            None => Ok(()),
            Some((place, fault)) => Err(format!("{place} {fault}")),
        }
    }
}
