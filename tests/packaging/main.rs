//! What a distribution gets: units, the Debian package, the image. Made and used as an administrator would, on a copy of this
//! machine that is thrown away. Needs root; without root, and without a tool, a story is left out and says so.

mod confined;
mod image;
mod installed;
mod units;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use libtest_mimic::{Arguments, Failed, Trial};

type Story = fn() -> Result<(), Failed>;

/// (its name, what it needs, the story)
#[rustfmt::skip]
const STORIES: [(&str, &[&str], Story); 6] = [
    ("units_are_closed_to_what_they_do_not_need", &["systemd-analyze"], units::exposure),
    ("the_server_makes_no_system_call_that_its_unit_forbids", &["systemd-analyze", "strace"], units::system_calls),
    ("units_name_what_the_package_brings", &[], units::agree_with_settings),
    ("the_server_and_a_worker_run_with_as_little_as_their_units_leave_them", &["unshare", "setpriv"], confined::story),
    ("the_package_is_installed_used_upgraded_removed_and_purged", &["cargo-deb", "dpkg", "unshare"], installed::story),
    ("the_image_serves_as_nobody_and_says_that_it_is_well", &["dockerd", "unshare"], image::story),
];

fn main() {
    let arguments = Arguments::from_args();
    let is_root = rustix::process::geteuid().is_root();
    let mut trials = Vec::new();
    for (name, tools, story) in STORIES {
        let missing = tools.iter().find(|tool| !is_there(tool));
        match missing {
            Some(tool) => println!("left out: {name}: there is no {tool}"),
            None if !is_root => println!("left out: {name}: not root"),
            None => trials.push(Trial::test(name, story)),
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn is_there(tool: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$0\"", tool])
        .output();
    found.is_ok_and(|found| found.status.success())
}

/// The binary that is packaged: the release one, built once.
fn release_binary() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args([
                "build",
                "--quiet",
                "--release",
                "--locked",
                "--bin",
                "stepward",
            ])
            .current_dir(project());
        as_from_a_shell(&mut cargo);
        let built = cargo.status();
        assert!(
            built.is_ok_and(|built| built.success()),
            "it does not build"
        );
        project().join("target/release/stepward")
    };
    BUILT.get_or_init(build).clone()
}

/// Removes the variables that `cargo test` sets for a test. The build script of a dependency depends on one of them:
/// with it, a build that is up to date would be done again.
fn as_from_a_shell(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_MANIFEST") || name.starts_with("CARGO_PKG_") {
            command.env_remove(name.as_ref());
        }
    }
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A shell script of ours, in namespaces of its own: what it mounts and starts is gone with it.
fn in_a_world_of_its_own(script: &str, variables: &[(&str, &Path)]) -> Result<String, Failed> {
    let mut shell = Command::new("unshare");
    shell.args([
        "--mount",
        "--pid",
        "--net",
        "--ipc",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    shell
        .args(["setsid", "sh"])
        .arg(project().join("tests/packaging").join(script));
    shell.envs(variables.iter().copied());
    shell.current_dir("/");
    said(&shell.output()?)
}

fn said(output: &Output) -> Result<String, Failed> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let complained = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}\n{text}{complained}", output.status).into())
}
