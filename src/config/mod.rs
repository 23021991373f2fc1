//! Settings of server and worker: read, check, refuse what makes no sense. The example files show every key.

mod server;
mod worker;

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

pub use server::{Auth, Defaults, Recovery, ServerConfig};
pub use worker::{Docker, Kubernetes, WorkerConfig, WorkerLimits};

/// Why settings are not taken. One line: which file, what, what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{file} cannot be read: {source}")]
    Unreadable {
        file: PathBuf,
        source: std::io::Error,
    },
    #[error("{file}: {fault}")]
    Invalid { file: PathBuf, fault: String },
}

/// A token stands alone in its file. Short ones can be guessed.
fn read_token(file: &Path) -> Result<String, ConfigError> {
    const TOKEN_BYTES_MIN: usize = 16;
    let text = std::fs::read_to_string(file).map_err(|source| ConfigError::Unreadable {
        file: file.into(),
        source,
    })?;
    let token = text.trim();
    if token.len() < TOKEN_BYTES_MIN || token.contains(char::is_whitespace) {
        let fault = format!("holds no token: one word of at least {TOKEN_BYTES_MIN} characters");
        let file = file.into();
        return Err(ConfigError::Invalid { file, fault });
    }
    Ok(token.to_string())
}

/// A missing file name and an empty file both mean the defaults.
fn load<T: DeserializeOwned + Default>(
    file: Option<&Path>,
    check: fn(&T) -> Result<(), String>,
) -> Result<T, ConfigError> {
    let Some(file) = file else {
        return Ok(T::default());
    };
    let text = std::fs::read_to_string(file).map_err(|source| ConfigError::Unreadable {
        file: file.into(),
        source,
    })?;
    let invalid = |fault| ConfigError::Invalid {
        file: file.into(),
        fault,
    };
    let settings: Option<T> =
        serde_yaml::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    let settings = settings.unwrap_or_default();
    check(&settings).map_err(invalid)?;
    Ok(settings)
}
