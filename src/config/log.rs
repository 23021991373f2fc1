//! Settings of what a process that stays writes of itself to stderr.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

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

impl LogFormat {
    pub const WORDS: &[&str] = &["text", "json"];
}

impl LogLevel {
    pub const WORDS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

    pub fn as_str(self) -> &'static str {
        LogLevel::WORDS[self as usize]
    }
}
