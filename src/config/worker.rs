//! Settings of a worker.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{ConfigError, read_token};
use crate::domain::check::env_name_fault;
use crate::domain::limits;
use crate::domain::worker::offer_fault;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerConfig {
    pub server_url: String,
    pub token_file: Option<PathBuf>,
    pub name: String,
    pub tags: Vec<String>,
    pub slots: u32,
    pub data_dir: PathBuf,
    pub drain_timeout_secs: u32,
    pub docker: Docker,
    pub kubernetes: Kubernetes,
    pub env: BTreeMap<String, String>,
    pub limits: WorkerLimits,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Docker {
    pub command: String,
    pub args: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kubernetes {
    pub command: String,
    pub namespace: Option<String>,
    pub allow_privileged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerLimits {
    pub log_line_bytes: usize,
    pub log_attempt_bytes: u64,
}

impl Default for WorkerConfig {
    fn default() -> WorkerConfig {
        WorkerConfig {
            server_url: "http://127.0.0.1:7717".to_string(),
            token_file: None,
            name: String::new(),
            tags: vec!["script".to_string()],
            slots: 1,
            data_dir: PathBuf::from(".stepward-worker"),
            drain_timeout_secs: 3_600,
            docker: Docker::default(),
            kubernetes: Kubernetes::default(),
            env: BTreeMap::new(),
            limits: WorkerLimits::default(),
        }
    }
}

impl Default for Docker {
    fn default() -> Docker {
        Docker {
            command: "docker".to_string(),
            args: Vec::new(),
        }
    }
}

impl Default for Kubernetes {
    fn default() -> Kubernetes {
        Kubernetes {
            command: "kubectl".to_string(),
            namespace: None,
            allow_privileged: false,
        }
    }
}

impl Default for WorkerLimits {
    fn default() -> WorkerLimits {
        WorkerLimits {
            log_line_bytes: 1 << 20,
            log_attempt_bytes: 64 << 20,
        }
    }
}

impl WorkerConfig {
    pub fn load(file: Option<&Path>) -> Result<WorkerConfig, ConfigError> {
        super::load(file, WorkerConfig::check)
    }

    /// What every call carries, if there is a file for it.
    pub fn token(&self) -> Result<Option<String>, ConfigError> {
        self.token_file.as_deref().map(read_token).transpose()
    }

    pub fn check(&self) -> Result<(), String> {
        if let Some((place, fault)) = offer_fault(self.slots, &self.tags) {
            return Err(format!("{place} {fault}"));
        }
        if self.name.len() > limits::NAME_BYTES_MAX || self.name.contains(char::is_control) {
            let max = limits::NAME_BYTES_MAX;
            return Err(format!("name is not one line of at most {max} bytes"));
        }
        let is_http = ["http://", "https://"]
            .iter()
            .any(|scheme| self.server_url.starts_with(scheme));
        if !is_http {
            return Err(format!(
                "server_url is {:?}, write http://HOST:PORT or https://HOST:PORT",
                self.server_url
            ));
        }
        if let Some(name) = self.env.keys().find(|name| env_name_fault(name).is_some()) {
            return Err(format!(
                "env has a variable {name:?}, whose name is not allowed"
            ));
        }
        if let Some((name, _)) = self.env.iter().find(|(_, value)| value.contains('\0')) {
            return Err(format!(
                "env has a NUL byte in the value of {name}, which no environment can hold"
            ));
        }
        for (key, command) in [
            ("docker.command", &self.docker.command),
            ("kubernetes.command", &self.kubernetes.command),
        ] {
            if command.is_empty() {
                return Err(format!("{key} is empty, name a program"));
            }
        }
        Ok(())
    }
}
