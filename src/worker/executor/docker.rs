//! Steps in a container of their own, through the docker command or one that understands the same words.
//!
//! # The environment of a step
//! No value of it is ever an argument: everybody on the machine can read those. Nor is it the docker command's own environment,
//! where `DOCKER_HOST` or `LD_PRELOAD` would let a step steer the worker. It goes through a file of mode 0600, which lives no
//! longer than docker's own copy of it. Such a file has one line for each variable, so a value of several lines cannot be in
//! it: that one is handed over through docker's environment, unless docker itself heeds the name; then the step is refused.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::environment::{self, of_worker};
use super::tool::{words, write};
use super::{Aside, Fault, Invocation, Place, RunAside, Tools, confinement, contained};
use crate::domain::protocol::Assignment;
use crate::domain::task::{Action, Runner};

/// For whoever stops the container from outside; we give the step its time ourselves.
const STOP_SECS: u32 = 10;
/// Docker reads its file of variables with a scanner that gives up at 64 KiB a line.
const ENV_LINE_BYTES_MAX: usize = 60 << 10;
/// What `docker run` exits with when it is docker that failed. A step may exit with it as well.
const DOCKER_FAILED: i32 = 125;

/// Names, and beginnings of names, that the docker command, its helpers or what loads them heed.
const HEEDED: &[&str] = &[
    "ENV",
    "HOME",
    "IFS",
    "KUBECONFIG",
    "PATH",
    "SHELLOPTS",
    "TMPDIR",
    "USER",
];
const HEEDED_PREFIXES: &[&str] = &[
    "BASH",
    "BUILD",
    "CONTAINER",
    "DBUS_",
    "DOCKER_",
    "DYLD_",
    "GIT_",
    "GLIBC_",
    "GO",
    "GRPC_",
    "LD_",
    "LISTEN_",
    "MALLOC_",
    "NOTIFY_",
    "OTEL_",
    "PERL",
    "PODMAN_",
    "PYTHON",
    "REGISTRY_",
    "SSH_",
    "SSL_",
    "STORAGE_",
    "XDG_",
    "_CONTAINERS_",
];

/// Makes the folders, finds or pulls the image, and says how the container runs.
pub fn prepare(
    assignment: &Assignment,
    place: &Place,
    tools: &Tools,
    run_aside: RunAside,
) -> Result<Invocation, Fault> {
    let container = Container::of(assignment).map_err(Fault::payload)?;
    let environment = environment::of_step(assignment, tools, &contained::view());
    let environment = environment.and_then(Split::of).map_err(Fault::payload)?;
    make_folders(place)?;
    if let Some(script) = container.script {
        write(&place.script(), 0o755, script.as_bytes())?;
    }
    write(&env_file(place), 0o600, environment.file.as_bytes())?;
    find_image(container.image, tools, run_aside)?;
    Ok(invocation(
        assignment,
        place,
        tools,
        &container,
        environment,
    )?)
}

/// Adds variables to the file that the container's environment is read from when it is made.
pub fn add_environment(place: &Place, added: &BTreeMap<String, String>) -> Result<(), Fault> {
    let added = Split::of(added.clone()).map_err(Fault::payload)?;
    let file = env_file(place);
    let written = fs::OpenOptions::new()
        .append(true)
        .open(&file)
        .and_then(|mut file| file.write_all(added.file.as_bytes()));
    written.map_err(|error| format!("{} cannot be written: {error}", file.display()).into())
}

/// After the end of an attempt: whether it was docker that failed and not the step, as far as can be known.
pub fn tool_failure(place: &Place, exit_code: i32) -> Option<String> {
    // Docker notes the container's id once there is one: without it, nothing of the step can have run.
    let never_made = exit_code == DOCKER_FAILED && !id_file(place).exists();
    never_made.then(|| {
        "docker could not make the container, the end of the log has its words".to_string()
    })
}

/// What runs in which image.
struct Container<'a> {
    image: &'a str,
    script: Option<&'a str>,
    entrypoint: Option<String>,
    words: Vec<String>,
    /// `None`: where the image says.
    workdir: Option<String>,
}

impl Container<'_> {
    fn of(assignment: &Assignment) -> Result<Container<'_>, String> {
        let workdir = contained::workdir(assignment);
        let container = match &assignment.action {
            Action::Script {
                runner: Runner::Docker,
                image: Some(image),
                language,
                script,
            } => {
                let mut words = contained::script_words(language.as_deref(), script);
                Container {
                    image,
                    script: Some(script),
                    entrypoint: Some(words.remove(0)),
                    words,
                    workdir: workdir.or(Some(contained::WORKSPACE.to_string())),
                }
            }
            Action::Docker {
                image,
                entrypoint,
                command,
            } => Container {
                image,
                script: None,
                entrypoint: entrypoint.first().cloned(),
                words: entrypoint.iter().skip(1).chain(command).cloned().collect(),
                workdir,
            },
            _ => return Err("this step has no image for docker to run".to_string()),
        };
        contained::check_image(container.image)?;
        let words = container.words.iter().chain(&container.entrypoint);
        if words
            .chain(&container.workdir)
            .any(|word| word.contains('\0'))
        {
            return Err("a word of the command holds a NUL byte".to_string());
        }
        Ok(container)
    }
}

/// An environment, by the way it reaches the container.
#[derive(Debug)]
struct Split {
    /// As docker's `--env-file` has it.
    file: String,
    /// What such a file cannot hold.
    handed_over: BTreeMap<String, String>,
}

impl Split {
    fn of(environment: BTreeMap<String, String>) -> Result<Split, String> {
        let mut file = String::new();
        let mut handed_over = BTreeMap::new();
        for (name, value) in environment {
            if !is_variable_name(&name) || value.contains('\0') {
                return Err(format!("variable {name:?} cannot be passed to a container"));
            }
            // A carriage return at the end would be taken for a part of the line's end.
            let fits = name.len() + value.len() < ENV_LINE_BYTES_MAX
                && !value.contains('\n')
                && !value.ends_with('\r');
            if fits {
                file.push_str(&format!("{name}={value}\n"));
            } else if is_heeded(&name) {
                return Err(format!(
                    "variable {name} has a value of several lines or more than {ENV_LINE_BYTES_MAX} bytes, \
                     which cannot be passed under a name that docker itself heeds: rename it"
                ));
            } else {
                handed_over.insert(name, value);
            }
        }
        Ok(Split { file, handed_over })
    }
}

fn is_variable_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins_well = !name.starts_with(|first: char| first.is_ascii_digit());
    !name.is_empty() && begins_well && name.chars().all(good)
}

fn is_heeded(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    HEEDED.contains(&name.as_str())
        || HEEDED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
        || name.ends_with("_PROXY")
}

fn env_file(place: &Place) -> PathBuf {
    place.folder.join("env")
}

fn id_file(place: &Place) -> PathBuf {
    place.folder.join("container")
}

/// An image may run as any user, so inside everybody may write; outside nobody gets past the attempt's folder.
fn make_folders(place: &Place) -> Result<(), String> {
    let explain = |path: &Path, error| format!("{} cannot be made: {error}", path.display());
    let make = |path: &Path, mode: u32| {
        fs::create_dir_all(path)
            .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
            .map_err(|error| explain(path, error))
    };
    make(&place.folder, 0o700)?;
    make(&place.tmp(), 0o1777)?;
    make(&place.workspace(), 0o777)?;
    write(&place.output(), 0o666, b"")?;
    // Docker refuses to overwrite what a former preparation left.
    match fs::remove_file(id_file(place)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(explain(&id_file(place), error))
        }
        _ => Ok(()),
    }
}

/// An image that is here is used as it is; one that is not is pulled.
fn find_image(image: &str, tools: &Tools, run_aside: RunAside) -> Result<(), String> {
    let inspect = words([
        &tools.docker,
        "image",
        "inspect",
        "--format={{.Id}}",
        "--",
        image,
    ]);
    if run_aside(Aside::Quiet, &inspect).is_ok() {
        return Ok(());
    }
    let pull = words([&tools.docker, "pull", "--", image]);
    run_aside(Aside::Told, &pull)
        .map_err(|why| format!("image {image} is not here and could not be pulled: {why}"))
}

fn invocation(
    assignment: &Assignment,
    place: &Place,
    tools: &Tools,
    container: &Container,
    environment: Split,
) -> Result<Invocation, String> {
    let name = contained::name(&tools.instance_key, assignment.attempt);
    let (step_id, attempt) = (assignment.attempt.step_id, assignment.attempt.attempt);
    let labels = [
        (contained::LABEL_INSTANCE, tools.instance_key.clone()),
        (contained::LABEL_STEP, step_id.to_string()),
        (contained::LABEL_ATTEMPT, attempt.to_string()),
    ];
    let mut argv = words([&tools.docker, "run"]);
    argv.push(format!("--name={name}"));
    argv.extend(labels.map(|(label, value)| format!("--label={label}={value}")));
    argv.push(format!("--cidfile={}", text(&id_file(place))?));
    argv.extend(words([
        "--pull=never",
        // A first process that passes signals on and buries the dead: most shells do neither.
        "--init",
        "--sig-proxy=true",
        // We are told all of it as it comes: a second copy would only fill docker's disk.
        "--log-driver=none",
    ]));
    argv.push(format!("--stop-timeout={STOP_SECS}"));
    argv.push(format!("--env-file={}", text(&env_file(place))?));
    argv.extend(
        environment
            .handed_over
            .keys()
            .map(|name| format!("--env={name}")),
    );
    if container.script.is_some() {
        argv.push(mount(&place.script(), contained::SCRIPT, ",readonly")?);
    }
    argv.push(mount(&place.output(), contained::OUTPUT, "")?);
    argv.push(mount(&place.tmp(), contained::TMP, "")?);
    argv.push(mount(&place.workspace(), contained::WORKSPACE, "")?);
    argv.extend(
        container
            .workdir
            .iter()
            .map(|path| format!("--workdir={path}")),
    );
    argv.extend(
        container
            .entrypoint
            .iter()
            .map(|word| format!("--entrypoint={word}")),
    );
    argv.extend(confinement::flags(
        tools.docker_hardened,
        &tools.docker_args,
    ));
    argv.extend(tools.docker_args.iter().cloned());
    argv.extend(words(["--", container.image]));
    argv.extend(container.words.iter().cloned());
    let mut env = of_worker();
    env.extend(environment.handed_over);
    Ok(Invocation {
        argv,
        env,
        cwd: place.folder.clone(),
        // Docker makes the file at its start, and writes to it once there is a container.
        settled: Some(id_file(place)),
        cleanup: vec![words([
            &tools.docker,
            "rm",
            "--force",
            "--volumes",
            "--",
            &name,
        ])],
    })
}

fn mount(here: &Path, there: &str, more: &str) -> Result<String, String> {
    // The value is a line of comma-separated values, where a quoted field may hold anything.
    let source = format!("source={}", text(here)?);
    let source = match source.contains([',', '"']) {
        true => format!("\"{}\"", source.replace('"', "\"\"")),
        false => source,
    };
    Ok(format!("--mount=type=bind,{source},target={there}{more}"))
}

fn text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| {
        format!(
            "docker cannot be told of {}: it is not UTF-8",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pairs: &[(&str, &str)]) -> Result<Split, String> {
        let pair = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Split::of(pairs.iter().map(pair).collect())
    }

    #[test]
    fn a_variable_goes_by_file_unless_a_line_cannot_hold_it() {
        let long = "x".repeat(70_000);
        let split = split(&[
            ("DOCKER_HOST", "tcp://evil"),
            ("EMPTY", ""),
            ("KEY", "-----BEGIN\nabc\n"),
            ("LD_PRELOAD", "/evil.so"),
            ("LONG", &long),
            ("QUOTED", "\"a\" 'b' #c $d \\"),
            ("RETURN", "a\r"),
        ]);
        let split = split.unwrap();
        assert_eq!(
            split.file,
            "DOCKER_HOST=tcp://evil\nEMPTY=\nLD_PRELOAD=/evil.so\nQUOTED=\"a\" 'b' #c $d \\\n"
        );
        let names: Vec<&str> = split.handed_over.keys().map(String::as_str).collect();
        assert_eq!(names, ["KEY", "LONG", "RETURN"]);
    }

    #[test]
    fn a_step_cannot_steer_the_docker_command() {
        for name in [
            "DOCKER_HOST",
            "LD_PRELOAD",
            "PATH",
            "HOME",
            "https_proxy",
            "HTTP_PROXY",
            "GODEBUG",
            "BASH_ENV",
            "CONTAINER_HOST",
            "XDG_CONFIG_HOME",
        ] {
            let refusal = split(&[(name, "a\nb")]).unwrap_err();
            assert!(
                refusal.starts_with(&format!("variable {name} has a value of")),
                "{refusal}"
            );
        }
    }

    #[test]
    fn a_name_cannot_forge_a_line_of_the_file() {
        for name in ["", "A=B", "A\nB", "#A", "A B", "1A", "A\0"] {
            assert!(split(&[(name, "x")]).is_err(), "{name:?}");
        }
        assert!(split(&[("A", "x\0")]).is_err());
    }

    #[test]
    fn a_mount_holds_any_path() {
        let plain = mount(Path::new("/a b:c"), "/x", "").unwrap();
        assert_eq!(plain, "--mount=type=bind,source=/a b:c,target=/x");
        let hostile = mount(Path::new("/a,readonly=\"0"), "/x", ",readonly").unwrap();
        assert_eq!(
            hostile,
            "--mount=type=bind,\"source=/a,readonly=\"\"0\",target=/x,readonly"
        );
    }
}
