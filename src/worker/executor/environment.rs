//! What a step finds around it: its environment, its files and folders. The same for every way of running it.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{Place, Tools};
use crate::domain::Json;
use crate::domain::limits::shorten;
use crate::domain::protocol::Assignment;
use crate::domain::value::input_variable;
use crate::service;
use crate::words::rfc3339_ms;

/// What a step on this machine has of the worker's own environment. Nothing else: there may be tokens in it.
const INHERITED: &[&str] = &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ"];
const INHERITED_PREFIX: &str = "LC_";
/// What Linux takes for one variable, with its name and its end.
const VARIABLE_BYTES_MAX: usize = 128 << 10;

/// Where the step sees its files. In a container that is elsewhere than on this machine.
#[derive(Debug, Clone)]
pub struct View {
    pub output: PathBuf,
    pub tmp: PathBuf,
    pub workspace: PathBuf,
}

impl View {
    /// Of a step that runs on this machine.
    pub fn of_place(place: &Place) -> View {
        View {
            output: place.output(),
            tmp: place.tmp(),
            workspace: place.workspace(),
        }
    }
}

/// The variables that a step gets wherever it runs. What it or the worker's settings set itself wins over `CI`, and nothing
/// wins over what tells it who it is and what it was given. An error is a fault in what was given, in one sentence.
pub fn of_step(
    assignment: &Assignment,
    tools: &Tools,
    view: &View,
) -> Result<BTreeMap<String, String>, String> {
    let mut env = BTreeMap::from([("CI".to_string(), "true".to_string())]);
    env.extend(tools.env.clone());
    env.extend(assignment.env.clone());
    env.extend(inputs(&assignment.input)?);
    if let Some(value) = &assignment.item_value {
        env.insert("EACH_ITEM".to_string(), text_of(&parse(value)?));
    }
    if let Some(item) = assignment.item {
        env.insert("EACH_INDEX".to_string(), item.to_string());
    }
    if let Some(at) = assignment.scheduled_at {
        env.insert("STEPWARD_SCHEDULED_AT".to_string(), rfc3339_ms(at));
    }
    let job_url = format!(
        "{}/jobs/{}",
        tools.server_url.trim_end_matches('/'),
        assignment.job_id
    );
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let own = [
        ("STEPWARD", "1".to_string()),
        ("STEPWARD_JOB_ID", assignment.job_id.to_string()),
        ("STEPWARD_TASK", assignment.task.clone()),
        ("STEPWARD_STEP", assignment.step.clone()),
        ("STEPWARD_ATTEMPT", assignment.attempt.attempt.to_string()),
        ("STEPWARD_WORKER", tools.worker_name.clone()),
        ("STEPWARD_JOB_URL", job_url),
        ("STEPWARD_TMP", path(&view.tmp)),
        ("STEPWARD_WORKSPACE", path(&view.workspace)),
        ("STEPWARD_OUTPUT", path(&view.output)),
    ];
    env.extend(own.map(|(name, value)| (name.to_string(), value)));
    check(&env)?;
    Ok(env)
}

/// What a program on this machine needs to find its way, of the worker's own environment.
pub fn inherited() -> BTreeMap<String, String> {
    let wanted = |name: &str| INHERITED.contains(&name) || name.starts_with(INHERITED_PREFIX);
    own_environment(wanted)
}

/// For the worker's own commands, such as docker's: everything but what is ours. Who speaks to our service manager is us: podman
/// would tell it that a container is what it started.
pub fn of_worker() -> BTreeMap<String, String> {
    own_environment(|name| !name.starts_with("STEPWARD") && !service::VARIABLES.contains(&name))
}

fn own_environment(wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let variables = std::env::vars_os();
    let texts = variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.filter(|(name, _)| wanted(name)).collect()
}

/// The folders and the script of an attempt, for nobody but the worker's user.
pub fn make_place(place: &Place, script: Option<&str>) -> io::Result<()> {
    for folder in [&place.folder, &place.tmp(), &place.workspace()] {
        make_folder(folder)?;
    }
    write_new(&place.output(), 0o600, "")?;
    match script {
        Some(script) => write_new(&place.script(), 0o700, script),
        None => Ok(()),
    }
}

pub fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)
}

/// Never through a link, and never what somebody else has put there.
fn write_new(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())
}

fn parse(json: &Json) -> Result<Value, String> {
    serde_json::from_str(&json.0).map_err(|error| format!("its input is not JSON: {error}"))
}

fn inputs(input: &Json) -> Result<BTreeMap<String, String>, String> {
    let object = match parse(input)? {
        Value::Object(object) => object,
        Value::Null => Map::new(),
        _ => return Err("its input is not a JSON object".to_string()),
    };
    let mut variables = BTreeMap::new();
    for (name, value) in object {
        let variable = input_variable(&name);
        if variables
            .insert(variable.clone(), text_of(&value))
            .is_some()
        {
            return Err(format!(
                "two inputs become {variable}, one of them is {}",
                shorten(&name)
            ));
        }
    }
    Ok(variables)
}

/// A text as it is, anything else as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn check(env: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(format!(
                "{} cannot be the name of a variable",
                shorten(name)
            ));
        }
        if value.contains('\0') {
            return Err(format!(
                "{name} has a NUL byte in it, which no environment can hold"
            ));
        }
        let length = name.len() + value.len() + 2;
        if length > VARIABLE_BYTES_MAX {
            return Err(format!(
                "{name} is {} bytes long, and no program can be given a variable of more than {} KiB",
                value.len(),
                VARIABLE_BYTES_MAX >> 10
            ));
        }
    }
    Ok(())
}
