//! Settings of a worker.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};
use ureq::http::Uri;

use super::environment::{self, Lookup, Variable, worker_variables};
use super::{ConfigError, Log, forms, read_token};
use crate::certificate::Trust;
use crate::domain::check::env_name_fault;
use crate::domain::limits;
use crate::domain::worker::offer_fault;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct WorkerConfig {
    /// `None`: it is not for these settings to say.
    pub server_url: Option<String>,
    pub token_file: Option<PathBuf>,
    pub ca_file: Option<PathBuf>,
    #[serde(deserialize_with = "forms::or_default")]
    pub name: String,
    #[serde(deserialize_with = "forms::tags")]
    pub tags: Vec<String>,
    pub slots: u32,
    #[serde(deserialize_with = "data_dir")]
    pub data_dir: PathBuf,
    pub drain_timeout_secs: u32,
    #[serde(deserialize_with = "forms::or_default")]
    pub docker: Docker,
    #[serde(deserialize_with = "forms::or_default")]
    pub kubernetes: Kubernetes,
    #[serde(deserialize_with = "forms::env")]
    pub env: BTreeMap<String, String>,
    #[serde(deserialize_with = "forms::or_default")]
    pub limits: WorkerLimits,
    #[serde(deserialize_with = "forms::or_default")]
    pub log: Log,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct Docker {
    pub command: String,
    /// Runs containers without any capability.
    pub hardened: bool,
    #[serde(deserialize_with = "forms::or_default")]
    pub args: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct Kubernetes {
    pub command: String,
    pub namespace: Option<String>,
    pub allow_privileged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct WorkerLimits {
    pub log_line_bytes: usize,
    pub log_attempt_bytes: u64,
}

/// The key without a value means the default.
fn data_dir<'de, D: Deserializer<'de>>(written: D) -> Result<PathBuf, D::Error> {
    let named = Option::deserialize(written)?;
    Ok(named.unwrap_or_else(|| WorkerConfig::default().data_dir))
}

impl Default for WorkerConfig {
    fn default() -> WorkerConfig {
        WorkerConfig {
            server_url: None,
            token_file: None,
            ca_file: None,
            name: String::new(),
            tags: vec!["script".to_string()],
            slots: 1,
            data_dir: PathBuf::from(".stepward-worker"),
            drain_timeout_secs: 3_600,
            docker: Docker::default(),
            kubernetes: Kubernetes::default(),
            env: BTreeMap::new(),
            limits: WorkerLimits::default(),
            log: Log::default(),
        }
    }
}

impl Default for Docker {
    fn default() -> Docker {
        Docker {
            command: "docker".to_string(),
            hardened: false,
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
    /// Loads the file alone, without the environment.
    pub fn load(file: Option<&Path>) -> Result<WorkerConfig, ConfigError> {
        WorkerConfig::load_from(file, &|_| None, |_| ())
    }

    /// Loads the file, then puts over it what variables of this process say, then what `put_over` sets.
    pub fn load_with(
        file: Option<&Path>,
        put_over: impl FnOnce(&mut WorkerConfig),
    ) -> Result<WorkerConfig, ConfigError> {
        WorkerConfig::load_from(file, &environment::of_process, put_over)
    }

    /// The same as `load_with`, with variables from `lookup`.
    pub fn load_from(
        file: Option<&Path>,
        lookup: Lookup,
        put_over: impl FnOnce(&mut WorkerConfig),
    ) -> Result<WorkerConfig, ConfigError> {
        super::load(file, lookup, put_over)
    }

    /// What every call carries, if there is a file for it.
    pub fn token(&self) -> Result<Option<String>, ConfigError> {
        self.token_file.as_deref().map(read_token).transpose()
    }

    /// Whom it believes, if there is a file for it; else whom everybody believes.
    pub fn trust(&self) -> Result<Option<Trust>, ConfigError> {
        let trust = self.ca_file.as_deref().map(Trust::of_file);
        trust.transpose().map_err(|fault| fault.named_by("ca_file"))
    }

    pub fn check(&self) -> Result<(), String> {
        if let Some((place, fault)) = offer_fault(self.slots, &self.tags) {
            return Err(format!("{place} {fault}"));
        }
        if self.name.len() > limits::NAME_BYTES_MAX || self.name.contains(char::is_control) {
            let max = limits::NAME_BYTES_MAX;
            return Err(format!("name is not one line of at most {max} bytes"));
        }
        if !self.name.is_empty() && self.name.trim().is_empty() {
            return Err("name is blank, write one or leave it out".to_string());
        }
        if self.data_dir.as_os_str().is_empty() {
            return Err("data_dir is empty, name a folder".to_string());
        }
        if self
            .ca_file
            .as_ref()
            .is_some_and(|file| file.as_os_str().is_empty())
        {
            return Err("ca_file is empty, name a file or write null".to_string());
        }
        if let Some(url) = self
            .server_url
            .as_deref()
            .filter(|url| !leads_to_a_host(url))
        {
            return Err(format!(
                "server_url is {url:?}, write http://HOST:PORT or https://HOST:PORT"
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

impl super::Settings for WorkerConfig {
    fn fault(&self) -> Result<(), String> {
        self.check()
    }

    fn variables() -> Vec<Variable> {
        worker_variables()
    }
}

/// Whether it is the address of a server, and nothing more.
pub fn leads_to_a_host(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    // Paths are put behind it as they are.
    let is_bare = uri.query().is_none() && !url.contains('#');
    let has_port_in_range = uri.authority().is_some_and(|authority| {
        // Brackets hold the colons that belong to the host.
        let after_host = authority
            .as_str()
            .rsplit([']', '@'])
            .next()
            .unwrap_or_default();
        !after_host.contains(':') || uri.port_u16().is_some_and(|port| port > 0)
    });
    matches!(uri.scheme_str(), Some("http" | "https")) && has_host && is_bare && has_port_in_range
}
