//! Settings of what a process that stays writes of itself to stderr.

use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_yaml::Value;

use super::read;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a list of settings")]
pub struct Log {
    pub format: LogFormat,
    pub level: LogLevel,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// An object a line, for programs.
    Json,
}

/// The least important lines that are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl Log {
    /// As far as the file can be understood: what is wrong with the rest of it is to be said so, too.
    pub fn of_file(file: Option<&Path>) -> Log {
        let text = file.and_then(|file| read(file).ok()).unwrap_or_default();
        let settings: Value = serde_yaml::from_str(&text).unwrap_or_default();
        let log = settings.get("log").cloned().unwrap_or_default();
        serde_yaml::from_value(log).unwrap_or_default()
    }
}

impl LogFormat {
    pub const WORDS: &[&str] = &["text", "json"];
}

impl LogLevel {
    pub const WORDS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

    pub fn as_str(self) -> &'static str {
        LogLevel::WORDS[self as usize]
    }
}
