//! What a step runs: from an assignment to a command line. One file per way of running.
//!
//! Everything runs as a command on this machine under the supervisor, also a container: then the command is docker's.
//! Nothing of the user's runs here; `prepare` makes files, looks for images, and says what to run once the server says yes.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What this worker runs steps with.
#[derive(Debug, Clone)]
pub struct Tools {
    /// This very binary, which is also the supervisor.
    pub stepward: PathBuf,
    /// Marks processes and containers as this worker's, over its lives.
    pub instance_key: String,
    pub worker_name: String,
    pub server_url: String,
    /// What the worker's settings add to the environment of every step.
    pub env: BTreeMap<String, String>,
    /// The docker command, or one that understands the same words.
    pub docker: String,
    pub kubectl: String,
    pub namespace: Option<String>,
}

/// Where one attempt lives on the worker's disk. All of it goes when the attempt is over and its log was sent.
#[derive(Debug, Clone)]
pub struct Place {
    pub folder: PathBuf,
}

impl Place {
    pub fn script(&self) -> PathBuf {
        self.folder.join("script")
    }

    /// `STEPWARD_OUTPUT`: what the step writes here is its output.
    pub fn output(&self) -> PathBuf {
        self.folder.join("output")
    }

    /// `STEPWARD_TMP`, and what programs take for the folder of temporary files.
    pub fn tmp(&self) -> PathBuf {
        self.folder.join("tmp")
    }

    /// `STEPWARD_WORKSPACE`, where the step begins.
    pub fn workspace(&self) -> PathBuf {
        self.folder.join("workspace")
    }

    /// Records as in `domain/log.rs`, until they were sent.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}

/// What the supervisor starts, and how it leaves nothing behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    pub argv: Vec<String>,
    /// The whole environment: nothing is inherited.
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
    /// Commands that end what killing processes does not, such as a container. Run by the supervisor in every ending,
    /// also when the worker has died.
    pub cleanup: Vec<Vec<String>>,
}

/// Runs a command of the worker's own while a step is being prepared, such as the pull of an image. What it prints goes to the
/// attempt's log; an error is one sentence. It ends early when the attempt is stopped.
pub type RunAside<'a> = &'a mut dyn FnMut(&[String]) -> Result<(), String>;
