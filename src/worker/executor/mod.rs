//! What a step runs: from an assignment to a command line. One file per way of running.
//!
//! Everything runs as a command on this machine under the supervisor, also a container: then the command is docker's.
//! Nothing of the user's runs here; `prepare` makes files, looks for images, and says what to run once the server says yes.

mod confinement;
mod contained;
pub mod docker;
pub mod environment;
mod leftovers;
pub mod local;
mod manifest;
mod offer;
pub mod pod;
mod pod_log;
mod pod_run;
mod tool;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::domain::protocol::Assignment;
use crate::domain::reason::Reason;
use crate::domain::task::{Action, Runner};

pub use leftovers::{Leftovers, remove_leftovers};
pub use offer::{Offer, ask_cluster, ask_docker, obstacle, offer};
pub use pod_run::run_pod;

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
    /// Containers run without any capability.
    pub docker_hardened: bool,
    /// What the worker's settings add to every `docker run`. They come last, so they win over ours.
    pub docker_args: Vec<String>,
    pub kubectl: String,
    /// `None`: the one that kubectl's own settings say.
    pub namespace: Option<String>,
    /// Manifests may ask for what reaches beyond their pod: the host, other namespaces, service accounts.
    pub allow_privileged: bool,
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
    /// A file that is not empty once the command may be killed: before that, something that it has just asked for, such as a
    /// container, might come into being after the cleanup. `None`: at any time.
    pub settled: Option<PathBuf>,
    /// Commands that end what killing processes does not, such as a container. Run by the supervisor in every ending,
    /// also when the worker has died.
    pub cleanup: Vec<Vec<String>>,
}

/// Runs a command of the worker's own while a step is being prepared, such as the pull of an image. An error is one sentence.
/// It ends early when the attempt is stopped, and with the worker.
pub type RunAside<'a> = &'a mut dyn FnMut(Aside, &[String]) -> Result<(), String>;

/// What becomes of what such a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aside {
    /// It goes to the attempt's log.
    Told,
    Quiet,
}

/// Why there is nothing to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It has to do with this worker, or with this moment: the assignment goes back.
    Here(String),
    /// Every worker would meet it: the step has failed.
    Step { reason: Reason, message: String },
}

impl Fault {
    /// What was given cannot be handed to any program.
    pub fn payload(message: String) -> Fault {
        let reason = Reason::PayloadError;
        Fault::Step { reason, message }
    }

    pub fn spawn(message: String) -> Fault {
        let reason = Reason::SpawnError;
        Fault::Step { reason, message }
    }
}

impl From<String> for Fault {
    fn from(why: String) -> Fault {
        Fault::Here(why)
    }
}

/// Everything up to the user's own command: files, folders, images.
pub fn prepare(
    assignment: &Assignment,
    place: &Place,
    tools: &Tools,
    run_aside: RunAside,
) -> Result<Invocation, Fault> {
    match &assignment.action {
        Action::Script {
            runner: Runner::Local,
            language,
            script,
            ..
        } => local::prepare(assignment, language.as_deref(), script, place, tools),
        Action::Script {
            runner: Runner::Docker,
            ..
        }
        | Action::Docker { .. } => docker::prepare(assignment, place, tools, run_aside),
        Action::Script {
            runner: Runner::Pod,
            ..
        }
        | Action::Pod { .. } => pod::prepare(assignment, place, tools),
        Action::Task { .. } | Action::Approval { .. } => Err(Fault::Here(
            "no worker does what the server does itself".to_string(),
        )),
    }
}

/// Adds variables to the environment of a step that is prepared: those that are known only when it starts.
pub fn add_environment(
    invocation: &mut Invocation,
    action: &Action,
    place: &Place,
    added: &BTreeMap<String, String>,
) -> Result<(), Fault> {
    if added.is_empty() {
        return Ok(());
    }
    match action {
        Action::Script {
            runner: Runner::Docker,
            ..
        }
        | Action::Docker { .. } => docker::add_environment(place, added),
        Action::Script {
            runner: Runner::Pod,
            ..
        }
        | Action::Pod { .. } => pod::add_environment(place, added),
        Action::Script { .. } | Action::Task { .. } | Action::Approval { .. } => {
            invocation.env.extend(added.clone());
            Ok(())
        }
    }
}

/// After the end of an attempt: whether it was the tool that failed and not the step, in a sentence.
pub fn tool_failure(assignment: &Assignment, place: &Place, exit_code: i32) -> Option<String> {
    match &assignment.action {
        Action::Script {
            runner: Runner::Docker,
            ..
        }
        | Action::Docker { .. } => docker::tool_failure(place, exit_code),
        Action::Script {
            runner: Runner::Pod,
            ..
        }
        | Action::Pod { .. } => pod::tool_failure(place),
        _ => None,
    }
}
