//! Settings of a worker.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::domain::check::tag_fault;
use crate::domain::limits;

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
        if self.slots == 0 || self.slots > limits::SLOTS_MAX {
            let (slots, max) = (self.slots, limits::SLOTS_MAX);
            return Err(format!("slots is {slots}, expected 1 to {max}"));
        }
        match self.tags.iter().find(|tag| tag_fault(tag).is_some()) {
            None => Ok(()),
            Some(tag) => Err(format!("tag {} is not allowed", limits::shorten(tag))),
        }
    }
}
