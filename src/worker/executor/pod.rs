//! Steps in a pod of their own, through kubectl. What runs on this machine is `stepward run-pod`, which follows the pod.
//!
//! A pod has no folder of ours: a script comes in its environment, and what it writes to `STEPWARD_OUTPUT` is the container's
//! termination message, of which Kubernetes keeps 4 KiB.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::environment::{self, of_worker};
use super::manifest::{self, Completion};
use super::tool::{words, write};
use super::{Fault, Invocation, Place, Tools, contained};
use crate::domain::protocol::Assignment;
use crate::domain::task::{Action, Runner};

/// One variable may be 128 KiB long, with its name.
const SCRIPT_BYTES_MAX: usize = 100 << 10;
/// After a step's own timeout: by then its worker, its supervisor and its cleanup must all have died.
const DEADLINE_MARGIN_SECS: i64 = 600;
const GRACE_SECS: u32 = 10;
const POLL_MS: u64 = 1_000;

/// Holds the script until it is a file inside. Only the launcher sees it.
const SCRIPT_VARIABLE: &str = "STEPWARD_SCRIPT";
const LAUNCHER: &str = r#"umask 0
mkdir -p "$STEPWARD_TMP" "$STEPWARD_WORKSPACE" && printf %s "$STEPWARD_SCRIPT" > "$0" && chmod 755 "$0" || exit 125
unset STEPWARD_SCRIPT
mkdir -p "$1" && cd "$1" || exit 125
shift
umask 022
exec "$@""#;

/// What `run-pod` does, as a file: it holds the whole environment of the step, so only this user may read it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub kubectl: String,
    pub namespace: Option<String>,
    pub name: String,
    /// The container that is the step.
    pub container: String,
    pub pod: Value,
    pub output: PathBuf,
    /// Where it notes that there is a pod, or that there will be none.
    pub created: PathBuf,
    /// Where it says what was not the step's own failure.
    pub failure: PathBuf,
    pub poll_ms: u64,
}

/// Checks and completes the manifest and says how its pod is followed.
pub fn prepare(assignment: &Assignment, place: &Place, tools: &Tools) -> Result<Invocation, Fault> {
    let environment = environment::of_step(assignment, tools, &contained::view());
    let environment = environment.map_err(Fault::payload)?;
    let (written, environment) = match &assignment.action {
        Action::Script {
            runner: Runner::Pod,
            image: Some(image),
            language,
            script,
        } => script_pod(assignment, image, language.as_deref(), script, environment)
            .map_err(Fault::payload)?,
        Action::Pod { manifest } => manifest_pod(manifest, tools, environment)?,
        _ => {
            let why = "this step has nothing for a pod to run";
            return Err(Fault::payload(why.to_string()));
        }
    };
    let namespace = manifest::named_namespace(&written).map(str::to_string);
    let namespace = namespace.or(tools.namespace.clone());
    let (step_id, attempt) = (assignment.attempt.step_id, assignment.attempt.attempt);
    let completion = Completion {
        name: contained::name(&tools.instance_key, assignment.attempt),
        namespace: namespace.clone(),
        labels: BTreeMap::from([
            (
                contained::LABEL_INSTANCE,
                contained::mark(&tools.instance_key),
            ),
            (contained::LABEL_STEP, step_id.to_string()),
            (contained::LABEL_ATTEMPT, attempt.to_string()),
        ]),
        deadline_secs: assignment.timeout_ms / 1_000 + DEADLINE_MARGIN_SECS,
    };
    let (mut pod, container) = manifest::complete(written, &completion).map_err(Fault::payload)?;
    manifest::add_environment(&mut pod, &environment);

    let mut cleanup = kubectl(&tools.kubectl, namespace.as_deref());
    cleanup.extend(words([
        "delete",
        "pod",
        &completion.name,
        "--ignore-not-found",
    ]));
    cleanup.extend(words(["--wait=false", "--now"]));
    let plan = Plan {
        kubectl: tools.kubectl.clone(),
        namespace,
        name: completion.name,
        container,
        pod,
        output: place.output(),
        created: place.folder.join("created"),
        failure: failure_file(place),
        poll_ms: POLL_MS,
    };
    let stepward = text(&tools.stepward)?;
    let file = plan_file(place);
    fs::create_dir_all(&place.folder)
        .map_err(|error| format!("{} cannot be made: {error}", place.folder.display()))?;
    let bytes = serde_json::to_vec(&plan).expect("a plan is plain data");
    write(&place.output(), 0o600, b"")?;
    write(&plan.created, 0o600, b"")?;
    write(&file, 0o600, &bytes)?;
    Ok(Invocation {
        argv: words([stepward, "run-pod", text(&file)?]),
        env: of_worker(),
        cwd: place.folder.clone(),
        settled: Some(plan.created),
        cleanup: vec![cleanup],
    })
}

/// Adds variables to the pod that is made when the step starts.
pub fn add_environment(place: &Place, added: &BTreeMap<String, String>) -> Result<(), Fault> {
    let file = plan_file(place);
    let unusable = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let bytes = fs::read(&file).map_err(|error| unusable(&error))?;
    let mut plan: Plan = serde_json::from_slice(&bytes).map_err(|error| unusable(&error))?;
    manifest::add_environment(&mut plan.pod, added);
    let bytes = serde_json::to_vec(&plan).expect("a plan is plain data");
    Ok(write(&file, 0o600, &bytes)?)
}

fn plan_file(place: &Place) -> PathBuf {
    place.folder.join("pod")
}

/// After the end of an attempt: whether it was Kubernetes that failed and not the step.
pub fn tool_failure(place: &Place) -> Option<String> {
    fs::read_to_string(failure_file(place)).ok()
}

/// The beginning of every kubectl command.
pub(super) fn kubectl(command: &str, namespace: Option<&str>) -> Vec<String> {
    let namespace = namespace.map(|namespace| format!("--namespace={namespace}"));
    let command = [command.to_string()];
    command.into_iter().chain(namespace).collect()
}

fn failure_file(place: &Place) -> PathBuf {
    place.folder.join("failure")
}

/// What a pod is made from, and the environment of its first container.
type Draft = (Value, BTreeMap<String, String>);

fn manifest_pod(
    text: &str,
    tools: &Tools,
    mut environment: BTreeMap<String, String>,
) -> Result<Draft, Fault> {
    let written = manifest::read(text).map_err(Fault::payload)?;
    if !tools.allow_privileged {
        // Another worker may allow it.
        manifest::check(&written, tools.namespace.as_deref())?;
    }
    // Folders of ours are not in it.
    for name in ["STEPWARD_TMP", "STEPWARD_WORKSPACE"] {
        environment.remove(name);
    }
    let first = &written["spec"]["containers"][0];
    let output = first["terminationMessagePath"].as_str();
    let output = output.unwrap_or(manifest::OUTPUT).to_string();
    environment.insert("STEPWARD_OUTPUT".to_string(), output);
    Ok((written, environment))
}

fn script_pod(
    assignment: &Assignment,
    image: &str,
    language: Option<&str>,
    script: &str,
    mut environment: BTreeMap<String, String>,
) -> Result<Draft, String> {
    contained::check_image(image)?;
    if script.len() > SCRIPT_BYTES_MAX || script.contains('\0') {
        let bytes = script.len();
        return Err(format!(
            "the script is {bytes} bytes long; in a pod it may be {SCRIPT_BYTES_MAX}, without NUL bytes"
        ));
    }
    for (name, value) in [
        (SCRIPT_VARIABLE, script),
        ("STEPWARD_OUTPUT", manifest::OUTPUT),
    ] {
        environment.insert(name.to_string(), value.to_string());
    }
    let workdir = contained::workdir(assignment);
    let workdir = workdir.as_deref().unwrap_or(contained::WORKSPACE);
    let mut command = words(["sh", "-c", LAUNCHER, contained::SCRIPT, workdir]);
    command.extend(contained::script_words(language, script));
    let command: Vec<String> = command.iter().map(|word| manifest::literal(word)).collect();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "terminationGracePeriodSeconds": GRACE_SECS,
            "enableServiceLinks": false,
            "containers": [{
                "name": "step",
                "image": image,
                "command": command,
                "volumeMounts": [{ "name": "stepward", "mountPath": contained::FOLDER }],
            }],
            "volumes": [{ "name": "stepward", "emptyDir": {} }],
        },
    });
    Ok((pod, environment))
}

fn text(path: &Path) -> Result<&str, String> {
    path.to_str()
        .ok_or_else(|| format!("{} is not UTF-8", path.display()))
}
