//! A script on this machine, as the worker's own user.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use super::environment::{self, View};
use super::{Fault, Invocation, Place, Tools};
use crate::domain::limits::shorten;
use crate::domain::protocol::Assignment;

/// Where programs are looked for if nobody says.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub fn prepare(
    assignment: &Assignment,
    language: Option<&str>,
    script: &str,
    place: &Place,
    tools: &Tools,
) -> Result<Invocation, Fault> {
    environment::make_place(place, Some(script)).map_err(|error| {
        format!(
            "its files cannot be made in {}: {error}",
            place.folder.display()
        )
    })?;
    let of_step = environment::of_step(assignment, tools, &View::of_place(place));
    let of_step = of_step.map_err(Fault::payload)?;
    let mut env = environment::inherited();
    let tmp = place.tmp().to_string_lossy().into_owned();
    env.insert("TMPDIR".to_string(), tmp);
    env.extend(of_step);
    env.entry("PATH".to_string())
        .or_insert_with(|| PATH.to_string());
    let cwd = workdir(assignment.workdir.as_deref(), &place.workspace())?;
    let argv = command(language, script, place, &env)?;
    Ok(Invocation {
        argv,
        env,
        cwd,
        settled: None,
        cleanup: Vec::new(),
    })
}

/// Who reads the script: whoever was named, whoever its first line names, or `sh`.
fn command(
    language: Option<&str>,
    script: &str,
    place: &Place,
    env: &BTreeMap<String, String>,
) -> Result<Vec<String>, Fault> {
    let file = place.script().to_string_lossy().into_owned();
    let programs = match language {
        None if script.starts_with("#!") => return Ok(vec![file]),
        None => vec!["sh"],
        Some("python") => vec!["python3", "python"],
        Some(program) => vec![program],
    };
    let path = env.get("PATH").map_or(PATH, String::as_str);
    let found = programs.iter().find_map(|program| find(program, path));
    match found {
        Some(program) => Ok(vec![program, file]),
        None => Err(Fault::spawn(missing(&programs))),
    }
}

fn missing(programs: &[&str]) -> String {
    let hint = match programs[0] {
        "python3" | "python" => " (the package python3, or python.org)",
        "node" | "nodejs" => " (the package nodejs, or nodejs.org)",
        "bash" => " (the package bash)",
        _ => "",
    };
    let names: Vec<String> = programs.iter().map(|name| shorten(name)).collect();
    format!(
        "there is no {} on this worker: install it{hint}, or give the step a tag of workers that have it",
        names.join(" and no ")
    )
}

/// The first program of this name in the folders of a `PATH`. A name with a slash is a path of its own.
pub fn find(program: &str, path: &str) -> Option<String> {
    let is_program = |file: &PathBuf| {
        let metadata = file.metadata();
        metadata.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    let mut candidates: Box<dyn Iterator<Item = PathBuf>> = match program {
        "" => return None,
        absolute if absolute.starts_with('/') => Box::new([PathBuf::from(absolute)].into_iter()),
        relative if relative.contains('/') => return None,
        name => {
            // A relative one would mean another folder for the worker than for the step.
            let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
            Box::new(folders.map(move |folder| folder.join(name)))
        }
    };
    let found = candidates.find(is_program)?;
    found.to_str().map(str::to_string)
}

/// Below the workspace, and made if it is not there; or a whole path, which must be.
fn workdir(workdir: Option<&str>, workspace: &Path) -> Result<PathBuf, Fault> {
    let Some(workdir) = workdir else {
        return Ok(workspace.to_path_buf());
    };
    let asked = Path::new(workdir);
    if asked.is_absolute() {
        return match asked.is_dir() {
            true => Ok(asked.to_path_buf()),
            false => Err(Fault::spawn(format!(
                "the working directory {} does not exist on this worker",
                shorten(workdir)
            ))),
        };
    }
    let leaves = || {
        Fault::payload(format!(
            "the working directory {} leads out of the workspace",
            shorten(workdir)
        ))
    };
    let mut folder = workspace.to_path_buf();
    for part in asked.components() {
        match part {
            Component::CurDir => continue,
            Component::Normal(name) => folder.push(name),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(leaves());
            }
        }
        // A link could lead anywhere.
        match folder.symlink_metadata() {
            Ok(data) if data.is_dir() => {}
            Ok(_) => return Err(leaves()),
            Err(_) => environment::make_folder(&folder).map_err(|error| {
                Fault::payload(format!(
                    "the working directory {}: {error}",
                    shorten(workdir)
                ))
            })?,
        }
    }
    Ok(folder)
}
