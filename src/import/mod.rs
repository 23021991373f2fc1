//! Turns workflows of other tools into ours: crontabs, Strøm workspaces, Dagu DAGs.
//!
//! Texts come in, texts go out, and a report says of every line or key what became of it. What cannot be written in our
//! language is reported, and what is written passes `stepward validate`.
//!
//! Deliberately not here: folders and terminals. `cli::import` reads and writes.

mod body;
mod crontab;
mod dagu;
mod report;
mod shell;
mod stroem;
mod tera;
mod tree;
mod valid;
mod yaml;

pub use crontab::{CrontabSource, import_crontab};
pub use dagu::{DaguFile, import_dagu};
pub use report::{Outcome, Report, Row};
pub use stroem::{StroemFile, import_stroem};

/// A file that an import asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Below the folder of workflows.
    pub name: String,
    pub text: String,
}

/// What an import came to.
#[derive(Debug, Default)]
pub struct Imported {
    pub files: Vec<Written>,
    pub report: Report,
}
