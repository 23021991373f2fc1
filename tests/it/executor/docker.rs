//! What the docker command is asked, word by word.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use stepward::domain::task::{Action, Runner};
use stepward::worker::executor::{Aside, Fault, Invocation, docker};

use super::desk::{Desk, NAME, assignment, payload_fault, script};

fn docker_step(image: &str, entrypoint: &[&str], command: &[&str]) -> Action {
    let owned = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
    Action::Docker {
        image: image.to_string(),
        entrypoint: owned(entrypoint),
        command: owned(command),
    }
}

/// A desk whose docker has every image.
fn desk() -> Desk {
    let mut desk = Desk::new();
    desk.tools.docker = desk.tool("docker", "");
    desk
}

/// What is here needs no pull.
fn only_look(aside: Aside, argv: &[String]) -> Result<(), String> {
    assert_eq!(aside, Aside::Quiet, "{argv:?}");
    let status = Command::new(&argv[0]).args(&argv[1..]).status().unwrap();
    match status.success() {
        true => Ok(()),
        false => Err(status.to_string()),
    }
}

fn prepared(desk: &Desk, action: Action) -> Invocation {
    let assignment = assignment(action);
    docker::prepare(&assignment, &desk.place, &desk.tools, &mut only_look).unwrap()
}

#[test]
fn a_script_runs_in_a_container_of_its_own() {
    let mut desk = desk();
    desk.tools.docker_args = vec!["--network=none".to_string()];
    let invocation = prepared(&desk, script(Runner::Docker, "busybox:1", "echo hello"));
    let docker = &desk.tools.docker;
    let folder = desk.place.folder.display();
    assert_eq!(
        invocation.argv,
        [
            docker.as_str(),
            "run",
            "--name=stepward-2c70e12b7a0646f9-17-2",
            "--label=stepward.instance=key",
            "--label=stepward.step=17",
            "--label=stepward.attempt=2",
            &format!("--cidfile={folder}/container"),
            "--pull=never",
            "--init",
            "--sig-proxy=true",
            "--log-driver=none",
            "--stop-timeout=10",
            &format!("--env-file={folder}/env"),
            &format!("--mount=type=bind,source={folder}/script,target=/stepward/script,readonly"),
            &format!("--mount=type=bind,source={folder}/output,target=/stepward/output"),
            &format!("--mount=type=bind,source={folder}/tmp,target=/stepward/tmp"),
            &format!("--mount=type=bind,source={folder}/workspace,target=/stepward/workspace"),
            "--workdir=/stepward/workspace",
            "--entrypoint=sh",
            "--security-opt=no-new-privileges",
            "--pids-limit=4096",
            "--cap-drop=NET_RAW",
            "--cap-drop=MKNOD",
            "--network=none",
            "--",
            "busybox:1",
            "/stepward/script",
        ]
    );
    assert_eq!(
        invocation.cleanup,
        [[docker, "rm", "--force", "--volumes", "--", NAME]]
    );
    assert_eq!(desk.read("attempt/script"), "echo hello");
    assert_eq!(
        desk.read("attempt/env"),
        "CI=true\nSTEPWARD=1\nSTEPWARD_ATTEMPT=2\nSTEPWARD_JOB_ID=5\n\
         STEPWARD_JOB_URL=http://localhost/jobs/5\nSTEPWARD_OUTPUT=/stepward/output\nSTEPWARD_STEP=build\n\
         STEPWARD_TASK=release\nSTEPWARD_TMP=/stepward/tmp\nSTEPWARD_WORKER=w\n\
         STEPWARD_WORKSPACE=/stepward/workspace\n"
    );
    let mode = |path: &str| {
        let path = desk.place.folder.join(path);
        path.metadata().unwrap().permissions().mode() & 0o7777
    };
    let modes = ["", "env", "script", "output", "tmp", "workspace"].map(mode);
    assert_eq!(modes, [0o700, 0o600, 0o755, 0o666, 0o1777, 0o777]);
    assert_eq!(
        desk.ledger(),
        ["image inspect --format={{.Id}} -- busybox:1"]
    );
}

#[test]
fn an_image_runs_as_it_says_itself_unless_told_otherwise() {
    let desk = desk();
    let after_mounts = |invocation: &Invocation| {
        let last_mount = |word: &String| word.starts_with("--mount=");
        let at = invocation.argv.iter().rposition(last_mount).unwrap();
        let mut rest = invocation.argv[at + 1..].to_vec();
        // The test above has these.
        rest.retain(|word| {
            let confines = ["--security-opt=", "--pids-limit=", "--cap-drop="];
            !confines.iter().any(|flag| word.starts_with(flag))
        });
        rest
    };
    let plain = prepared(&desk, docker_step("app", &[], &[]));
    assert_eq!(after_mounts(&plain), ["--", "app"]);
    assert!(!plain.argv.iter().any(|word| word.contains("/script")));
    let told = prepared(&desk, docker_step("app", &["a", "-b"], &["--rm", "$c"]));
    assert_eq!(
        after_mounts(&told),
        ["--entrypoint=a", "--", "app", "-b", "--rm", "$c"]
    );
}

#[test]
fn a_working_directory_is_below_the_workspace_or_a_whole_path() {
    let desk = desk();
    for (workdir, expected) in [("src/x", "/stepward/workspace/src/x"), ("/app", "/app")] {
        let mut assignment = assignment(docker_step("app", &[], &[]));
        assignment.workdir = Some(workdir.to_string());
        let tools = &desk.tools;
        let invocation = docker::prepare(&assignment, &desk.place, tools, &mut only_look);
        let expected = format!("--workdir={expected}");
        assert!(invocation.unwrap().argv.contains(&expected), "{expected}");
    }
}

#[test]
fn no_value_of_the_environment_is_an_argument() {
    let desk = desk();
    let secret = "hunter2";
    let mut assignment = assignment(script(Runner::Docker, "busybox", "true"));
    for (name, value) in [
        ("ONE_LINE", format!("{secret} '\"$x")),
        ("TWO_LINES", format!("{secret}\nmore")),
        ("DOCKER_HOST", format!("tcp://{secret}")),
        ("LD_PRELOAD", format!("/{secret}.so")),
        ("PATH", "/opt/bin".to_string()),
    ] {
        assignment.env.insert(name.to_string(), value);
    }
    let invocation = docker::prepare(&assignment, &desk.place, &desk.tools, &mut only_look);
    let invocation = invocation.unwrap();
    assert!(!invocation.argv.iter().any(|word| word.contains(secret)));
    assert!(invocation.argv.contains(&"--env=TWO_LINES".to_string()));
    // What would steer the docker command is in the file only; what the step sets itself is not left out.
    let env = &invocation.env;
    assert_eq!(env["TWO_LINES"], "hunter2\nmore");
    assert_ne!(
        env.get("DOCKER_HOST").map(String::as_str),
        Some("tcp://hunter2")
    );
    assert!(!env.contains_key("LD_PRELOAD") && env["PATH"] != "/opt/bin");
    let file = desk.read("attempt/env");
    for line in [
        "DOCKER_HOST=tcp://hunter2",
        "LD_PRELOAD=/hunter2.so",
        "PATH=/opt/bin",
    ] {
        assert!(
            file.lines().any(|in_file| in_file == line),
            "{line} in {file}"
        );
    }
    assert!(!file.contains("HOME="), "{file}");
}

#[test]
fn an_image_that_is_not_here_is_pulled() {
    let mut desk = Desk::new();
    desk.tools.docker = desk.tool("docker", "exit 1");
    let mut told = Vec::new();
    let prepared = docker::prepare(
        &assignment(script(Runner::Docker, "busybox", "true")),
        &desk.place,
        &desk.tools,
        &mut |aside, argv| match aside {
            Aside::Quiet => Err("no such image".to_string()),
            Aside::Told => {
                told.push(argv.to_vec());
                Ok(())
            }
        },
    );
    assert!(prepared.is_ok());
    assert_eq!(told, [[&desk.tools.docker, "pull", "--", "busybox"]]);

    let refused = docker::prepare(
        &assignment(script(Runner::Docker, "busybox", "true")),
        &desk.place,
        &desk.tools,
        &mut |_, _| Err("docker said: no route to host".to_string()),
    );
    let why = "image busybox is not here and could not be pulled: docker said: no route to host";
    assert_eq!(refused.unwrap_err(), Fault::Here(why.to_string()));
}

#[test]
fn a_hostile_image_never_reaches_docker() {
    let desk = desk();
    let long = "a".repeat(4_000);
    for image in ["--privileged", "a b", "-v /:/h", "", "a\nb", "a\0", &long] {
        for action in [
            script(Runner::Docker, image, "true"),
            docker_step(image, &[], &[]),
        ] {
            let refused = docker::prepare(
                &assignment(action),
                &desk.place,
                &desk.tools,
                &mut only_look,
            );
            let refusal = payload_fault(refused);
            assert!(
                refusal.ends_with("is not the name of an image"),
                "{refusal}"
            );
        }
    }
    let nul = docker::prepare(
        &assignment(docker_step("app", &[], &["a\0b"])),
        &desk.place,
        &desk.tools,
        &mut only_look,
    );
    assert_eq!(payload_fault(nul), "a word of the command holds a NUL byte");
    assert!(desk.ledger().is_empty(), "docker was asked for nothing");
}

#[test]
fn an_environment_that_no_container_can_have_is_the_steps_fault() {
    for (name, value, sentence) in [
        (
            "A",
            "x\0",
            "A has a NUL byte in it, which no environment can hold",
        ),
        (
            "a-b",
            "x",
            "variable \"a-b\" cannot be passed to a container",
        ),
        (
            "LD_PRELOAD",
            "a\nb",
            "variable LD_PRELOAD has a value of several lines or more than 61440 bytes, \
             which cannot be passed under a name that docker itself heeds: rename it",
        ),
    ] {
        let desk = desk();
        let mut assignment = assignment(docker_step("app", &[], &[]));
        assignment.env.insert(name.to_string(), value.to_string());
        let refused = docker::prepare(&assignment, &desk.place, &desk.tools, &mut only_look);
        assert_eq!(payload_fault(refused), sentence);
        assert!(desk.ledger().is_empty(), "docker was asked for nothing");
    }
}

#[test]
fn what_the_workers_settings_add_reaches_a_container_whatever_its_name() {
    let mut desk = desk();
    let added = [
        ("HOME", "/srv"),
        ("LANG", "de_DE.UTF-8"),
        ("TZ", "Europe/Berlin"),
    ];
    desk.tools.env = added
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into();
    prepared(&desk, script(Runner::Docker, "busybox", "true"));
    let file = desk.read("attempt/env");
    for (name, value) in added {
        let line = format!("{name}={value}");
        assert!(
            file.lines().any(|in_file| in_file == line),
            "{line} in {file}"
        );
    }
}

#[test]
fn a_step_of_another_kind_is_not_dockers() {
    let desk = desk();
    for action in [
        script(Runner::Local, "busybox", "true"),
        script(Runner::Pod, "busybox", "true"),
        Action::Pod {
            manifest: String::new(),
        },
    ] {
        let refused = docker::prepare(
            &assignment(action),
            &desk.place,
            &desk.tools,
            &mut only_look,
        );
        assert_eq!(
            payload_fault(refused),
            "this step has no image for docker to run"
        );
    }
}
